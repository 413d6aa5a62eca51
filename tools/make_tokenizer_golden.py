#!/usr/bin/env python3
"""Writes tests/golden/tokenizer-rules.json: what the published tokenizers make of many texts.

The oracle is the Python package `tokenizers` (byte-level BPE, each pre-tokenizer put together as
the models' tokenizer.json files do) and the package `sentencepiece`. Small vocabularies are trained
here, on this repository's own text and on the texts below, one per pre-tokenizer; the file keeps
merges or pieces, and the ids of every text.

    pip install tokenizers sentencepiece
    python3 tools/make_tokenizer_golden.py
"""
import io
import json
import pathlib
import random

import sentencepiece
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
from tokenizers.pre_tokenizers import ByteLevel, Digits, Punctuation, Sequence, Split

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden" / "tokenizer-rules.json"

GPT2_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + GPT2_TAIL
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + GPT2_TAIL
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SLASH_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = (r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + r"+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + r"*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}" + SLASH_TAIL)
TEKKEN = (r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + r"+|[^\r\n\p{L}\p{N}]?" + UPPER + "+"
          + LOWER + r"*|\p{N}" + SLASH_TAIL)
DEEPSEEK_LETTERS = (
    "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚ"
    "Ḁ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎ"
    "ↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+")
DEEPSEEK_HAN = "[一-龥ࠀ-一가-\ud7a3\\x{d7a4}-\\x{d7ff}]+"
DEEPSEEK3 = ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
             r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+"
             r"|\s+(?!\S)|\s+")
BLOOM = " ?[^(\\s|.,!?…。，、।۔،)]+"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def split(*expressions):
    return [Split(Regex(e), "isolated") for e in expressions]


def bytes_only():
    return ByteLevel(add_prefix_space=False, use_regex=False)


def gpt2():
    return ByteLevel(add_prefix_space=False, use_regex=True)


RULES = {
    "default": lambda: split(r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]")
    + [bytes_only()],
    "gpt-2": lambda: [gpt2()],
    "smollm": lambda: [Digits(individual_digits=True), gpt2()],
    "llama-bpe": lambda: split(LLAMA3) + [bytes_only()],
    "qwen2": lambda: split(QWEN2) + [bytes_only()],
    "gpt-4o": lambda: split(O200K) + [bytes_only()],
    "tekken": lambda: split(TEKKEN) + [bytes_only()],
    "deepseek-llm": lambda: split(r"[\r\n]", DEEPSEEK_LETTERS, r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
                                  r"\s+$", DEEPSEEK_HAN)
    + [Digits(individual_digits=True), bytes_only()],
    "deepseek-coder": lambda: split(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_HAN)
    + [Digits(individual_digits=True), bytes_only()],
    "deepseek-v3": lambda: split(r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3) + [bytes_only()],
    "falcon": lambda: [Punctuation("contiguous"), gpt2(), Digits(individual_digits=False)]
    + split("[0-9][0-9][0-9]"),
    "bloom": lambda: split(BLOOM) + [bytes_only()],
    "viking": lambda: split(BLOOM) + [Digits(individual_digits=True), bytes_only()],
    "dbrx": lambda: split(LLAMA3) + [bytes_only()],
}
# Names with the same expressions.
ALSO = {
    "gpt-2": ["mpt", "olmo", "phi-2", "jais", "roberta-bpe", "exaone4"],
    "smollm": ["starcoder", "refact", "command-r", "codeshell", "exaone"],
    "llama-bpe": ["llama3", "llama-v3", "falcon3", "pixtral"],
    "qwen2": ["stablelm2", "deepseek-r1-qwen", "hunyuan"],
    "gpt-4o": ["llama4"],
    "deepseek-v3": ["hunyuan-dense"],
    "dbrx": ["smaug-bpe", "chatglm-bpe"],
    "bloom": ["poro-chat", "gpt3-finnish"],
}
WHOLE_WORDS = {"llama-bpe", "tekken"}
# Tokens that no merge leads to; rules that look whole words up find them all the same.
UNREACHABLE = [" zyzzyva", "Quetzal", "\n\n\n", "日本語の", "  \t  "]

SENTENCES = [
    "Hello, world! How's it going? I'M FINE, they'LL say; we'd've gone. 'tis the dog's 'S",
    "In 1984, 3.14159 × 2 = 6.28318; call +1 (555) 123-4567. x² + y³ = ½ ¼ ٣٤٥ Ⅷ ४२ 1234567890",
    "El niño comió piñas en el café — «¿qué tal?» — y se marchó. Größe, Straße, ŒUVRE, naïve.",
    "Съешь ещё этих мягких французских булок, да выпей чаю. Їжак ґанок. МОСКВА Москва москва",
    "東京は日本の首都です。人口は約1400万人。カタカナとひらがな、漢字。「引用」・・・ｶﾀｶﾅ",
    "我们今天去北京，买了3个苹果和２斤香蕉。繁體中文也可以！龥龦一丁",
    "한국어 문장입니다. 오늘 날씨가 좋네요! 가나다 힣",
    "مرحبا بالعالم، كيف حالك؟ שלום עולם हिन्दी में लिखा हुआ। ภาษาไทยไม่มีช่องว่าง Ελληνικά Ἀθῆναι",
    "e\u0301te\u0301 n\u0303 Z\u0351\u036b\u0343a\u0327lgo \u0915\u094d\u0937 A\u030angstro\u0308m",
    "😀😃 🎉🎊 👨‍👩‍👧‍👦 👍🏽 🇳🇴🇯🇵 ☕️ ❤️‍🔥 #️⃣ x😀y 😀 😀",
    "def f(x: int = 3) -> str:\n    \"\"\"Doc.\"\"\"\n    if x >= 10:\n\treturn f'{x!r:>10}'\n\n\n    return None\n",
    "#include <vector>\r\nint main() {\r\n  std::vector<int> v{1, 2, 3};\r\n  return v[0] << 2; // ok\r\n}\r\n",
    "<div class=\"a b\" id='c'>&nbsp;&lt;x&gt;</div><!-- http://example.org/a/b?c=d&e=%20f#g -->",
    "{\"name\": \"f\", \"arguments\": {\"x\": [1, 2.5, -3e-7, null, true]}}",
    "a  b   c    d     e      f  \t g\t\th \n i\n\nj\n \nk\n\n\nl   \n   m  \r\n\r\n n \u00a0o\u3000p\u2003q\u0085r\u2028s",
    "CamelCaseHTTPServer getURLForXMLParser snake_case_name kebab-case SCREAMING_SNAKE iPhone15Pro",
    "    leading\n\ttabs\ntrailing   ", "   ", " ", "\n", "\n\n\n", " \n", "\t", "\r\n", "", "a", "é",
    "!!! ??? ... ---- ==== **** //// \\\\\\\\ `code` ```py\nx\n``` ~~strike~~ ^caret^ |pipe| $5 €6 £7 ¥8",
    "zyzzyva Quetzal\n\n\n日本語の  \t  end", "ﬁne ﬂow ǆ ǅ Ǆ ſ 'ſ K Å İstanbul ıI ß ẞ ŉ",
    "\u200bzero\u200dwidth\ufeff\u00ad \u180e \u2060 \x1c \x00 \x7f", "I'm you're he's she'd it'll they've don't I'M YOU'RE",
    "1 12 123 1234 12345 123456 1,234,567.89 0x1F 1e10 v2.3.4 2024-01-02T03:04:05Z 10:30 50%",
    "end with space ", " starts with space", "tab\tseparated\tvalues\n1\t2\t3\n", "a\u0301\u0301\u0301 \u0301x \u20e3",
    "ĠĊ Ġword Ĺ ▁under ▁ ▁▁ <0x0A> <s> </s> <|im_end|>", "ａｂｃ ＡＢＣ １２３ ！？", "ᏣᎳᎩ ⴰⴱ Ⰰⰱ 𐐀𐐨 𝐀𝐛𝟏 𞤀𞤢 ᲐᲑ ა",
    "«»„“”‘’‹›—–…·•‡†¶§©®™°±×÷¬¦", "x=1;y=2\n\n\n\n  z=3\n", "  \n  \n  a", "\n  b\n    c\n", "...\n\n...\n /\n//\n",
]


def random_texts():
    rng = random.Random(1)
    alphabet = list(" \n\t'aAsStTlLdDmMrReEvV019!,./-_(") + [" ", " ", "\n", "  ", "\r\n", "é", "Σ", "日", "本", "か",
               "한", "й", "²", "½", "Ⅳ", "\u0301", "😀", "\u00a0", "\u3000", "،", "’", "$", "=", "ﬁ", "ǅ", "م"]
    return ["".join(rng.choice(alphabet) for _ in range(rng.randint(1, 40))) for _ in range(120)]


def corpus():
    files = sorted((ROOT / "docs").glob("*.md")) + sorted((ROOT / "src" / "text").glob("*.h"))
    return [f.read_text() for f in files] + SENTENCES * 20


def byte_level_rules(texts):
    byte_of = dict(zip(range(256), ByteLevelAlphabet()))
    for pre, make in RULES.items():
        tokenizer = Tokenizer(models.BPE(ignore_merges=pre in WHOLE_WORDS))
        tokenizer.pre_tokenizer = Sequence(make())
        trainer = trainers.BpeTrainer(vocab_size=256 + 700, initial_alphabet=list(byte_of.values()),
                                      show_progress=False)
        tokenizer.train_from_iterator(corpus(), trainer)
        merges = json.loads(tokenizer.to_str())["model"]["merges"]
        merges = [m if isinstance(m, list) else m.split(" ") for m in merges]
        tokens = [byte_of[b] for b in range(256)]
        for left, right in merges:
            if left + right not in tokens:
                tokens.append(left + right)
        extra = []
        for text in UNREACHABLE if pre in WHOLE_WORDS else []:
            spelled = "".join(byte_of[b] for b in text.encode())
            if spelled not in tokens:
                tokens.append(spelled)
                extra.append(spelled)
        final = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)},
                                     merges=[tuple(m) for m in merges],
                                     ignore_merges=pre in WHOLE_WORDS))
        final.pre_tokenizer = Sequence(make())
        ids = [final.encode(text, add_special_tokens=False).ids for text in texts]
        yield {"pre": pre, "also": ALSO.get(pre, []), "merges": [" ".join(m) for m in merges], "extra": extra, "ids": ids}


def ByteLevelAlphabet():
    """GPT-2's byte alphabet, by byte."""
    printable = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    rest = iter(range(256, 512))
    return [chr(b) if b in printable else chr(next(rest)) for b in range(256)]


SPM = {
    # Llama 2 and Mistral: a space in front, all spaces kept.
    "llama-2": dict(add_dummy_prefix=True, remove_extra_whitespaces=False, byte_fallback=True,
                    split_digits=True, allow_whitespace_only_pieces=True),
    # Phi-3: the same, with symbols of its own.
    "phi-3": dict(add_dummy_prefix=True, remove_extra_whitespaces=False, byte_fallback=True,
                  split_digits=True, allow_whitespace_only_pieces=True,
                  user_defined_symbols=["<|user|>", "<|end|>"]),
    # Gemma: nothing in front, runs of spaces and lines as symbols.
    "gemma": dict(add_dummy_prefix=False, remove_extra_whitespaces=False, byte_fallback=True,
                  split_digits=True, allow_whitespace_only_pieces=True,
                  user_defined_symbols=["\n", "\n\n", "\n\n\n", "▁▁", "▁▁▁", "▁▁▁▁", "\t"]),
    # Sentencepiece's own defaults: spaces are squeezed and trimmed.
    "squeezed": dict(add_dummy_prefix=True, remove_extra_whitespaces=True, byte_fallback=True),
    "squeezed-bare": dict(add_dummy_prefix=False, remove_extra_whitespaces=True, byte_fallback=True),
    "no-bytes": dict(add_dummy_prefix=True, remove_extra_whitespaces=False, byte_fallback=False),
}


def sentence_piece_rules(texts):
    for name, options in SPM.items():
        out = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([line for text in corpus() for line in text.split("\n") if line]),
            model_writer=out, model_type="bpe", vocab_size=1200, normalization_rule_name="identity",
            character_coverage=0.998, minloglevel=2, num_threads=1, **options)
        sp = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
        kinds = []
        for i in range(sp.vocab_size()):
            kinds.append(2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i)
                         else 5 if sp.is_unused(i) else 1)
        for symbol in options.get("user_defined_symbols", []):
            kinds[sp.piece_to_id(symbol)] = 4
        yield {"name": name, "add_space_prefix": options["add_dummy_prefix"],
               "remove_extra_whitespaces": options["remove_extra_whitespaces"],
               "pieces": [sp.id_to_piece(i) for i in range(sp.vocab_size())],
               "kinds": "".join(map(str, kinds)),
               "scores": [round(sp.get_score(i), 3) for i in range(sp.vocab_size())],
               "ids": [sp.encode(text) for text in texts]}


def main():
    texts = SENTENCES + random_texts()
    # Sentencepiece takes no NUL and treats its own space symbol as a space.
    spm_texts = [t for t in texts if "\0" not in t and "▁" not in t]
    golden = {"texts": texts, "byte_level": list(byte_level_rules(texts)), "spm_texts": spm_texts,
              "sentence_piece": list(sentence_piece_rules(spm_texts))}
    text = json.dumps(golden, ensure_ascii=False, separators=(",", ":"))
    GOLDEN.write_text(text.replace('{"pre"', '\n{"pre"').replace('{"name"', '\n{"name"') + "\n")
    total = sum(len(ids) for part in ("byte_level", "sentence_piece") for rule in golden[part]
                for ids in rule["ids"])
    print(f"{len(texts)} texts, {total} tokens, {GOLDEN.stat().st_size} bytes")


if __name__ == "__main__":
    main()
