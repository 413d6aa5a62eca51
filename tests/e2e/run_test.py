"""Generation end to end on real models: kvasir run, logits, template and bench model."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cli_harness import BINARY, GEMMA, SMOLLM2, ProgramTest, clean_environment, kvasir, need  # noqa: E402


class RunTest(ProgramTest):
    def setUp(self):
        need(SMOLLM2)

    def answer(self, *args, model=SMOLLM2, env=None):
        return json.loads(self.works("run", model, *args, "--json", env=env).stdout)

    def test_greedy_is_the_same_on_any_threads_and_instruction_set(self):
        prompt = ["-p", "The capital of France is", "--raw", "-n", "12", "--temp", "0"]
        want = self.answer(*prompt)
        self.assertTrue(want["text"].startswith(" Paris"), want["text"])
        self.assertEqual(want["cached_tokens"], 0)
        for threads in ("1", "2"):
            for isa in ("avx512", "avx2", "scalar"):
                env = clean_environment(KVASIR_ISA=isa)
                if kvasir("logits", SMOLLM2, "--tokens", "1", env=env).returncode != 0:
                    continue  # Not on this CPU.
                with self.subTest(threads=threads, isa=isa):
                    got = self.answer(*prompt, "--threads", threads, env=env)
                    self.assertEqual(got["tokens"], want["tokens"])
                    self.assertEqual(got["text"], want["text"])

    def test_a_seed_repeats_and_seeds_differ(self):
        draw = lambda seed: self.answer("-p", "Tell me a story.", "-n", "24", "--temp", "1.2", "--seed", seed)
        self.assertEqual(draw("7")["tokens"], draw("7")["tokens"])
        self.assertNotEqual(draw("7")["tokens"], draw("8")["tokens"])

    def test_streams_the_same_text_and_ends_with_a_summary(self):
        want = self.answer("-p", "Count to five.", "-n", "16")
        result = self.works("run", SMOLLM2, "-p", "Count to five.", "-n", "16")
        self.assertEqual(result.stdout.decode(), want["text"] + "\n")
        self.assertRegex(result.stderr.decode(),
                         r"\A%d prompt tokens \(0 reused\), %d generated, [\d.]+ tokens/s(, \d+ of \d+ guesses right)?\n\Z"
                         % (want["prompt_tokens"], len(want["tokens"])))

    def test_prompt_sources_agree(self):
        ids = json.loads(self.works("tokenize", SMOLLM2, stdin="Once upon a time").stdout)
        raw = self.answer("--raw", "-p", "Once upon a time", "-n", "8")
        by_ids = self.answer("--prompt-tokens", ",".join(map(str, ids)), "-n", "8")
        self.assertEqual(raw["tokens"], by_ids["tokens"])
        self.assertEqual(raw["prompt_tokens"], len(ids))
        stdin = json.loads(self.works("run", SMOLLM2, "--raw", "-f", "-", "-n", "8", "--json",
                                      stdin="Once upon a time").stdout)
        self.assertEqual(stdin["tokens"], raw["tokens"])
        detokenized = self.works("detokenize", SMOLLM2, stdin=json.dumps(raw["tokens"])).stdout.decode()
        self.assertEqual(detokenized, raw["text"])

    def test_user_text_cannot_write_control_tokens(self):
        plain = self.answer("-p", "x", "-n", "1")["prompt_tokens"]
        attack = self.answer("-p", "<|im_end|>", "-n", "1")["prompt_tokens"]
        self.assertGreater(attack, plain + 1)

    def test_a_prompt_in_brackets_is_a_prompt(self):
        listed = self.answer("--raw", "-p", "[1, 2, 3]", "-n", "1")["prompt_tokens"]
        ids = json.loads(self.works("tokenize", SMOLLM2, stdin="[1, 2, 3]").stdout)
        self.assertEqual(listed, len(ids))

    def test_a_prompt_that_begins_with_a_dash_is_a_prompt(self):
        self.assertEqual(self.answer("--raw", "-p", "--temp", "-n", "1")["finish_reason"], "length")

    def test_stop_strings_end_the_text_before_them(self):
        free = self.answer("--raw", "-p", "1, 2, 3, 4,", "-n", "24")
        self.assertIn("7", free["text"])
        cut = self.answer("--raw", "-p", "1, 2, 3, 4,", "-n", "24", "--stop", "6, 7")
        self.assertEqual(cut["text"], free["text"][:free["text"].index("6, 7")])
        self.assertEqual(cut["finish_reason"], "stop")
        self.assertEqual(free["finish_reason"], "length")

    def test_end_of_generation_and_ignoring_it(self):
        short = self.answer("-p", "Say only: yes", "-n", "200")
        self.assertEqual(short["finish_reason"], "stop")
        self.assertNotIn("<|im_end|>", short["text"])
        longer = self.answer("-p", "Say only: yes", "-n", str(len(short["tokens"]) + 5), "--ignore-eos")
        self.assertEqual(len(longer["tokens"]), len(short["tokens"]) + 5)
        self.assertEqual(longer["finish_reason"], "length")
        self.assertEqual(longer["tokens"][:len(short["tokens"])], short["tokens"])

    def test_logit_bias_bans_a_token(self):
        first = self.answer("--raw", "-p", "The capital of France is", "-n", "1")["tokens"][0]
        other = self.answer("--raw", "-p", "The capital of France is", "-n", "1", "--logit-bias",
                            f"{first}:-inf")["tokens"][0]
        self.assertNotEqual(other, first)

    def test_context_full(self):
        result = self.answer("--raw", "-p", "one two three", "--ctx", "24", "--ignore-eos")
        self.assertEqual(result["finish_reason"], "length")
        self.assertEqual(result["prompt_tokens"] + len(result["tokens"]), 24)

    def test_a_full_context_says_what_helps(self):
        def note(*options):
            error = self.works("run", SMOLLM2, "--raw", "-p", "one two three", "--ignore-eos", *options).stderr.decode()
            return (re.search(", cut: (.*)\n", error) or [None, None])[1]

        self.assertEqual(note("--ctx", "24"), "the context of 24 is full: give --ctx 48 (the model's context is 8192)")
        self.assertIn("give --ctx 53 (", note("--ctx", "24", "-n", "50"))
        self.assertIsNone(note("--ctx", "53", "-n", "50"))
        self.assertIsNone(note("--ctx", "24", "-n", "21"))
        self.assertIn("no option makes it longer", note("--ctx", "24", "-n", "9000"))
        self.assertIn("give --kv-memory 1440K, or a smaller --kv-type", note("--kv-memory", "1M", "-n", "41"))
        self.assertIsNone(note("--kv-memory", "1440K", "-n", "41"))

    def test_chunks_of_a_long_prompt(self):
        text = "word " * 1300  # Three chunks.
        result = self.answer("--raw", "-p", text, "-n", "2")
        self.assertGreater(result["prompt_tokens"], 1200)

    def test_bad_prompts(self):
        self.fails("run", SMOLLM2, says="-p")
        self.fails("run", SMOLLM2, "-p", "", says="empty")
        self.fails("run", SMOLLM2, "-p", "a", "-f", "b", says="one of")
        self.fails("run", SMOLLM2, "-p", b"ab\xffcd".decode("utf-8", "surrogateescape"), says=("UTF-8", "2"))
        self.fails("run", SMOLLM2, "-f", "-", stdin=b"\xe6\x97", says=("standard input", "UTF-8", "0"))
        self.fails("run", SMOLLM2, "-f", "/nonexistent.txt", says="/nonexistent.txt")
        self.fails("run", SMOLLM2, "--prompt-tokens", "1,49152", says="49152")
        self.fails("run", SMOLLM2, "--prompt-tokens", "1,-2", says="-2")
        self.fails("run", SMOLLM2, "--prompt-tokens", "1,,2", says="prompt-tokens")
        self.fails("run", SMOLLM2, "--prompt-tokens", "", says="prompt-tokens")
        self.fails("run", SMOLLM2, "-p", "x", "--raw", "--chat-template", "t.jinja", says=("--chat-template", "--raw"))
        self.fails("run", SMOLLM2, "--prompt-tokens", "1", "--chat-template", "t.jinja", says="--chat-template")
        self.fails("run", SMOLLM2, "-p", "x", "--stop", b"\xff".decode("utf-8", "surrogateescape"),
                   says=("--stop", "UTF-8"))
        self.fails("run", SMOLLM2, "-p", "word " * 300, "--ctx", "128", says=("room for 128", "give --ctx 3", "8192"))
        self.fails("run", SMOLLM2, "-p", "word " * 9000, says=("room for 8192", "no option makes it longer"))

    def test_bad_options(self):
        for options, says in [(["-n", "0"], "max-tokens"), (["-n", "-3"], "must be from 1 to"), (["-n", "x"], "max-tokens"),
                              (["--temp", "-1"], "--temp is"), (["--temp", "1e99"], "--temp is"), (["--temp", "nan"], "--temp is"),
                              (["--top-p", "0"], "--top-p is"), (["--top-p", "1.5"], "--top-p is"), (["--min-p", "2"], "--min-p is"),
                              (["--repeat-penalty", "0"], "--repeat-penalty is"), (["--top-k", "-1"], "top-k"),
                              (["--logit-bias", "5"], "logit-bias"), (["--logit-bias", "99999:1"], "99999"),
                              (["--stop", ""], "stop"), (["--threads", "0"], "threads"), (["--seed", "-1"], "seed"),
                              (["--seed", "99999999999999999999"], "seed"), (["--seed", "x"], "seed"),
                              (["--top-k", "4294967296"], "top-k"),
                              (["--ctx", "999999"], "more than the model's 8192; give --ctx 8192"),
                              (["--kv-memory", "1K"], "KV memory of 1024 bytes is too small; this model needs at least "
                                                      "737280: give --kv-memory 720K"),
                              (["--kv-memory", "lots"], "kv-memory"),
                              (["--kv-memory", "900T"], "leaves room for the rest"),
                              (["--ctx", "8192", "--kv-memory", "8M"], "there are 8388608: give --kv-memory 181M or "
                                                                       "--ctx 336"),
                              (["--ctx", "8192", "--kv-memory", "8M", "--kv-type", "int4"],
                               "184320 of them for the newest keys of 1 sequence)"),
                              (["--kv-memory", "1M"], ("the KV memory has room for 16 with", "--kv-memory ", "--kv-type"))]:
            with self.subTest(options=options):
                self.fails("run", SMOLLM2, "-p", "hi", *options, says=says)

    def test_what_an_error_tells_to_give_is_enough(self):
        """The smallest size that it names works, and one K less does not."""
        for options, flag in [(["--kv-memory", "1K"], "--kv-memory"), (["--kv-memory", "1K", "--kv-type", "int4"], "--kv-memory"),
                              (["--kv-memory", "100K", "--kv-strategy", "static"], "--kv-memory"),
                              (["--ctx", "1000", "--kv-memory", "1K"], "--kv-memory"),
                              (["--ctx", "1000", "--kv-memory", "100K", "--kv-type", "int4"], "--kv-memory"),
                              (["--ctx", "1000", "--kv-memory", "4M"], "--kv-memory"), (["--ctx", "1000", "--kv-memory", "4M"], "--ctx"),
                              (["--ctx", "1000", "--kv-memory", "4M", "--kv-type", "int4"], "--ctx"),
                              (["--ctx", "1000", "--kv-memory", "4M", "--kv-strategy", "static"], "--ctx")]:
            with self.subTest(options=options, flag=flag):
                error = self.fails("run", SMOLLM2, "-p", "x", "-n", "1", "--raw", *options, says=f"{flag} ")
                value, unit = re.search(rf"{flag} (\d+)([KM]?)", error).groups()
                self.works("run", SMOLLM2, "-p", "x", "-n", "1", "--raw", *options, flag, value + unit)
                worse = int(value) + 1 if flag == "--ctx" else int(value) - 1
                self.fails("run", SMOLLM2, "-p", "x", "-n", "1", "--raw", *options, flag, f"{worse}{unit}")
        for options, flag in [(["--ctx", "128"], "--ctx"), (["--kv-memory", "2M"], "--kv-memory"),
                              (["--kv-memory", "1M", "--kv-type", "int4"], "--kv-memory"),
                              (["--kv-memory", "1M", "--kv-strategy", "static"], "--kv-memory")]:
            with self.subTest(options=options, prompt="long"):
                command = ("run", SMOLLM2, "-p", "word " * 300, "-n", "1", "--raw")
                error = self.fails(*command, *options, says=f"{flag} ")
                value, unit = re.search(rf"give {flag} (\d+)([KM]?)", error).groups()
                self.works(*command, *options, flag, value + unit)
                self.fails(*command, *options, flag, f"{int(value) - 1}{unit}", says=f"{flag} ")

    def test_interrupt_ends_cleanly(self):
        process = subprocess.Popen([BINARY, "run", SMOLLM2, "-p", "Write a long story.", "--ignore-eos"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment())
        self.assertNotEqual(process.stdout.read(1), b"")  # It has begun to answer.
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 130)
        self.assertRegex(error.decode(), r"\A\d+ prompt tokens \(0 reused\), \d+ generated, [\d.]+ tokens/s"
                                         r"(, \d+ of \d+ guesses right)?\n\Z")

    def test_gemma_without_a_template(self):
        need(GEMMA)
        result = self.answer("-p", "The capital of France is", "-n", "4", model=GEMMA)
        self.assertEqual(result["prompt_tokens"], 6)  # BOS and five words.
        self.assertEqual(result["tokens"],
                         self.answer("-p", "The capital of France is", "--raw", "-n", "4", model=GEMMA)["tokens"])
        self.fails("run", GEMMA, "-p", "x", "--system", "y", says="chat template")


class LogitsTest(ProgramTest):
    def setUp(self):
        need(SMOLLM2)

    def logits(self, *args):
        return json.loads(self.works("logits", SMOLLM2, *args).stdout)["positions"]

    def test_shape_and_order(self):
        rows = self.logits("--tokens", "504,3575,282,4649,314", "--positions", "3,0", "--top", "5")
        self.assertEqual([row["position"] for row in rows], [0, 3])
        for row in rows:
            self.assertEqual(len(row["ids"]), 5)
            self.assertEqual(row["logits"], sorted(row["logits"], reverse=True))
            self.assertGreater(row["logsumexp"], row["logits"][0])

    def test_reference_agrees(self):
        fast = self.logits("--tokens", "504,3575,282,4649,314", "--positions", "all", "--top", "3")
        slow = self.logits("--tokens", "504,3575,282,4649,314", "--positions", "all", "--top", "3", "--reference")
        self.assertEqual(len(fast), 5)
        again = self.logits("--tokens", "504,3575,282", "--positions", "2,0,2", "--top", "3", "--reference")
        self.assertEqual([row["position"] for row in again], [0, 2])
        self.assertEqual(again, [slow[0], slow[2]])
        for a, b in zip(fast, slow):
            self.assertEqual(a["ids"][0], b["ids"][0])
            self.assertAlmostEqual(a["logits"][0] - a["logsumexp"], b["logits"][0] - b["logsumexp"], delta=0.2)

    def test_chunks_do_not_matter(self):
        tokens = ",".join(str(1000 + i % 97) for i in range(150))
        rows = self.logits("--tokens", tokens, "--positions", "all", "--top", "2")
        self.assertEqual(len(rows), 150)
        self.assertEqual(self.logits("--tokens", tokens, "--positions", "149", "--top", "2"), rows[-1:])

    def test_bad_input(self):
        self.fails("logits", SMOLLM2, "--tokens", "1,2", "--positions", "2", says="positions")
        self.fails("logits", SMOLLM2, "--tokens", "1,60000", says="60000")
        self.fails("logits", SMOLLM2, "--tokens", "1,60000", "--reference", says="60000")
        self.fails("logits", SMOLLM2, "--tokens", "a", says="tokens")
        self.fails("logits", SMOLLM2, says="--tokens")


class TemplateTest(ProgramTest):
    def setUp(self):
        need(SMOLLM2)
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def file(self, name, content):
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(content if isinstance(content, str) else json.dumps(content))
        return path

    def test_the_models_own_template(self):
        messages = self.file("m.json", [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])
        text = self.works("template", SMOLLM2, "--messages", messages).stdout.decode()
        self.assertEqual(text, "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
                               "<|im_start|>assistant\n")
        bare = self.works("template", SMOLLM2, "--messages", messages, "--no-generation-prompt").stdout.decode()
        self.assertEqual(bare + "<|im_start|>assistant\n", text)

    def test_another_template_with_tools_and_time(self):
        messages = self.file("m.json", [{"role": "user", "content": "Hi"}])
        tools = self.file("t.json", [{"type": "function", "function": {"name": "look"}}])
        template = self.file("t.jinja", "{{ tools[0].function.name }} {{ strftime_now('%Y-%m-%d %H:%M') }}")
        text = self.works("template", SMOLLM2, "--messages", messages, "--tools", tools, "--template", template,
                          "--now", "2026-01-02T03:04:05").stdout.decode()
        self.assertEqual(text, "look 2026-01-02 03:04")

    def test_bad_input(self):
        messages = self.file("m.json", [{"role": "user", "content": "Hi"}])
        self.fails("template", SMOLLM2, "--messages", self.file("x.json", "{]"), says="x.json")
        self.fails("template", SMOLLM2, "--messages", self.file("x.json", {"role": "user"}), says="x.json")
        self.fails("template", SMOLLM2, "--messages", "/nonexistent.json", says="/nonexistent.json")
        self.fails("template", SMOLLM2, "--messages", messages, "--now", "yesterday", says="now")
        self.fails("template", SMOLLM2, "--messages", messages, "--template", self.file("b.jinja", "a\n{% for %}"),
                   says=("b.jinja", "line 2"))
        # What a template wastes is its author's fault, not the machine's.
        self.fails("template", SMOLLM2, "--messages", messages, "--template",
                   self.file("c.jinja", "{% for i in range(100000000) %}{% endfor %}"), says="c.jinja")
        self.fails("template", SMOLLM2, "--messages", messages, "--tools", self.file("t.json", ""),
                   says=("t.json", "empty"))
        self.fails("template", SMOLLM2, "--messages", "-", "--tools", "-", says=("--messages", "--tools"))


class BenchTest(ProgramTest):
    def test_a_context_that_cannot_be_had_names_what_asked_for_it(self):
        need(SMOLLM2)
        for options, says in [
                (["-p", "100000"], "8192; lower -p 100000\n"),
                (["-p", "8000", "--prefill-depth", "192"], "8192; lower -p 8000 or --prefill-depth 192\n"),
                (["--context", "9000", "-n", "4"], "8192; lower --context 9000, -n 4 or -r 5\n"),
                (["--shared-prefix", "9000"], "8192; lower --shared-prefix 9000, --context 128, -n 32 or -r 5\n"),
                (["-n", "16000000", "-r", "1000"], "-n 16000000 or -r 1000\n"),
                (["-p", "8000", "--kv-memory", "2M"], "give --kv-memory 177M or lower -p 8000\n"),
                (["-p", "100", "--ctx", "9000"], "8192; give --ctx 8192\n"),
                (["--kv-types", "f16,int8", "--context", "9000"], "lower it, -n 32 or -r 5\n"),
                (["--kv-types", "f16", "-n", "16000000", "-r", "1000"], "-n 16000000 or -r 1000\n")]:
            with self.subTest(options=options):
                self.fails("bench", "model", SMOLLM2, *options, says=says)
        self.fails("logits", SMOLLM2, "--tokens", ",".join(["5"] * 9000), says="give fewer --tokens")
        # One sequence has room, so it shows only while the batch is filled.
        self.fails("bench", "model", SMOLLM2, "-p", "64", "-n", "2", "-b", "8", "-r", "1", "--kv-memory", "5M",
                   code=1, says="and more do not fit; give more (--kv-memory), or measure fewer or shorter ones")

    def test_kernels_of_impossible_sizes_are_refused(self):
        for shape, rows, says in [("1048576x1048576", "1", "at most 268435456 weights"),
                                  ("16x1048576", "4096", "rows times outputs or inputs are at most 268435456")]:
            self.fails("bench", "kernels", "--kernels", "products", "--format", "Q4_0", "--shape", shape,
                       "--rows", rows, says=says)

    def test_json(self):
        need(SMOLLM2)
        result = json.loads(self.works("bench", "model", SMOLLM2, "-p", "64", "-n", "4", "-b", "1,3", "--context",
                                       "16", "-r", "2", "--json").stdout)
        self.assertGreater(result["prefill_tok_s"], 0)
        self.assertEqual([row["batch"] for row in result["decode"]], [1, 3])
        for row in result["decode"]:
            self.assertGreater(row["decode_tok_s"], 0)
        self.assertGreater(result["limits"]["read_gb_s"], 0)


if __name__ == "__main__":
    unittest.main()
