#!/usr/bin/env python3
"""Writes small random models of every architecture with the public `gguf` package, and their golden logits.

Each variant turns on what its architecture can do: biases, tied and untied heads, windows shorter
than the tokens, every kind of RoPE scaling, soft caps, fused matrices, F32 and quantized weights.
Weights come from a hash of (variant, tensor, index), so that C++ tests can build the very same
tensors from the description in the golden file: no model file needs to be stored. For every
variant the oracle (reference.py) also computes the logits without what the variant is about, and
this program fails if that makes no difference: then the golden values would prove nothing.

usage: make_tiny_models.py FOLDER [--golden tests/golden/architectures.json]
needs the packages numpy and gguf
"""
import argparse
import json
import math
import pathlib
import sys

try:
    import gguf
    import numpy as np
except ImportError as error:
    sys.exit(f"make_tiny_models.py: {error}; install the Python packages numpy and gguf")

import reference

TYPE = gguf.GGMLQuantizationType
TOKENS = 40
VOCAB = 48
CONTEXT = 1024
U64 = np.uint64

# Where the f16 scales of a block stand: (bytes of a block's other random parts are arbitrary).
HALVES = {TYPE.Q8_0: [0], TYPE.Q4_0: [0], TYPE.Q4_1: [0, 2], TYPE.Q4_K: [0, 2], TYPE.Q6_K: [208]}
# Standard deviation of a value in units of the first scale, and the second scale in units of it.
SPREAD = {TYPE.Q8_0: (73.9, 0), TYPE.Q4_0: (4.61, 0), TYPE.Q4_1: (4.61, -7.5),
          TYPE.Q4_K: (240.0, 7.5), TYPE.Q6_K: (1365.0, 0)}


def hash64(text):
    """FNV-1a."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    return value


def random64(seed, count):
    """splitmix64 of seed + 1, seed + 2, ... in units of its increment."""
    with np.errstate(over="ignore"):
        z = U64(seed) + (np.arange(1, count + 1, dtype=U64) * U64(0x9E3779B97F4A7C15))
        z = (z ^ (z >> U64(30))) * U64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> U64(27))) * U64(0x94D049BB133111EB)
        return z ^ (z >> U64(31))


def random_floats(seed, count, scale, offset):
    """Uniform in offset +- scale, every step exact or rounded once to float32."""
    unit = ((random64(seed, count) >> U64(40)).astype(np.int64) - 2**23).astype(np.float32) * np.float32(2.0**-23)
    return unit * np.float32(scale) + np.float32(offset)


def random_blocks(seed, rows, cols, kind, halves):
    values, size = gguf.GGML_QUANT_SIZES[kind]
    count = rows * cols // values
    blocks = (random64(seed, count * size) >> U64(56)).astype(np.uint8).reshape(count, size)
    for offset, half in zip(HALVES[kind], halves):
        blocks[:, offset:offset + 2] = np.frombuffer(int(half).to_bytes(2, "little"), np.uint8)
    return blocks.reshape(rows, -1)


def half_bits(value):
    return int(np.frombuffer(np.float16(value).tobytes(), np.uint16)[0])


class Variant:
    """One model: metadata and tensors as plain lists, so that they can be written down."""

    def __init__(self, name, arch, layers=2, d_model=64, d_ffn=96, heads=4, kv_heads=2, head_dim=None,
                 kind=TYPE.F32, tied=True, context=CONTEXT, run_context=None, tokens=TOKENS, branch=2.0):
        self.name, self.arch, self.kind, self.layers = name, arch, kind, layers
        self.d_model, self.d_ffn, self.heads, self.kv_heads = d_model, d_ffn, heads, kv_heads
        self.head_dim = head_dim or d_model // heads
        self.run_context, self.token_count = run_context, tokens
        self.keys, self.tensors, self.without = [], [], []
        for key, value in (("block_count", layers), ("context_length", context), ("embedding_length", d_model),
                           ("feed_forward_length", d_ffn), ("attention.head_count", heads),
                           ("attention.head_count_kv", kv_heads)):
            self.add(key, value)
        if head_dim:
            self.add("attention.key_length", head_dim)
            self.add("attention.value_length", head_dim)
        self.add("attention.layer_norm_rms_epsilon", 1e-5)
        self.add("rope.freq_base", 10000.0)
        q, kv, gain = heads * self.head_dim, kv_heads * self.head_dim, 2.0
        fused, gemma = arch == "phi3", arch.startswith("gemma")
        # `branch`: what Gemma's norms after attention and FFN multiply by; less where many layers
        # would otherwise magnify every rounding.
        # Gemma scales embeddings up: layers must weigh against them, or errors there go unseen.
        self.matrix("token_embd.weight", d_model, VOCAB, 1.0 if gemma else 3.0)
        self.norm("blk.*.attn_norm.weight", d_model)
        if fused:
            self.matrix("blk.*.attn_qkv.weight", d_model, q + 2 * kv, gain)
        else:
            self.matrix("blk.*.attn_q.weight", d_model, q, gain)
            self.matrix("blk.*.attn_k.weight", d_model, kv, gain)
            self.matrix("blk.*.attn_v.weight", d_model, kv, 1.0)
        if arch == "qwen2":
            self.bias()
        if arch in ("qwen3", "gemma3"):
            self.norm("blk.*.attn_q_norm.weight", self.head_dim, 1.5)
            self.norm("blk.*.attn_k_norm.weight", self.head_dim, 1.5)
        self.matrix("blk.*.attn_output.weight", q, d_model, 1.0)
        self.norm("blk.*.ffn_norm.weight", d_model)
        if not fused:
            self.matrix("blk.*.ffn_gate.weight", d_model, d_ffn, gain)
        self.matrix("blk.*.ffn_up.weight", d_model, 2 * d_ffn if fused else d_ffn, 1.5)
        self.matrix("blk.*.ffn_down.weight", d_ffn, d_model, 1.0)
        if gemma:
            self.norm("blk.*.post_attention_norm.weight", d_model, branch)
            self.norm("blk.*.post_ffw_norm.weight", d_model, branch)
        self.norm("output_norm.weight", d_model)
        if not tied:
            self.matrix("output.weight", d_model, VOCAB, 3.0)

    def add(self, key, value, about=False):
        """A metadata key; `about` marks it as what the variant is about."""
        self.keys.append([f"{self.arch}.{key}", value])
        if about:
            self.without.append(f"{self.arch}.{key}")
        return self

    def bias(self):
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        for part, size in (("q", q), ("k", kv), ("v", kv)):
            self.tensors.append([f"blk.*.attn_{part}.bias", [size], 0, 1.0, 0.0])
        self.without += ["blk.*.attn_q.bias"]
        return self

    def norm(self, name, size, middle=1.0):
        self.tensors.append([name, [size], 0, 0.5 * middle, middle])

    def values(self, name, values):
        """A small float tensor, value by value."""
        self.tensors.append([name, [len(values)], 0, [float(np.float32(v)) for v in values]])
        self.without.append(name)
        return self

    def matrix(self, name, cols, rows, gain):
        if self.kind == TYPE.F32:
            self.tensors.append([name, [cols, rows], 0, float(np.float32(gain * math.sqrt(3 / cols))), 0.0])
            return
        kind = self.kind
        if kind == TYPE.Q4_K and ("ffn_down" in name or "token_embd" in name):
            kind = TYPE.Q6_K
        spread, second = SPREAD[kind]
        first = gain / math.sqrt(cols) / spread
        halves = [half_bits(first)] + ([half_bits(first * second)] if second else [])
        self.tensors.append([name, [cols, rows], int(kind), halves])

    def expanded(self):
        for tensor in self.tensors:
            if "*" not in tensor[0]:
                yield tensor
                continue
            for layer in range(self.layers):
                yield [tensor[0].replace("*", str(layer))] + tensor[1:]

    def data_of(self, tensor):
        name, dims, kind = tensor[0], tensor[1], TYPE(tensor[2])
        seed = hash64(f"{self.name}/{name}")
        if isinstance(tensor[3], list) and kind == TYPE.F32:
            return np.asarray(tensor[3], np.float32)
        if kind == TYPE.F32:
            return random_floats(seed, math.prod(dims), tensor[3], tensor[4]).reshape(dims[::-1])
        return random_blocks(seed, dims[1], dims[0], kind, tensor[3])

    def token_ids(self):
        return [int(v) for v in random64(hash64(self.name), self.token_count) % U64(VOCAB)]

    def write(self, path):
        writer = gguf.GGUFWriter(path, self.arch)
        writer.add_name(self.name.replace("phi3", "fused"))  # Some programs judge vocabularies by names.
        for key, value in self.keys:
            if isinstance(value, bool):
                writer.add_bool(key, value)
            elif isinstance(value, int):
                writer.add_uint32(key, value)
            elif isinstance(value, float):
                writer.add_float32(key, value)
            elif isinstance(value, str):
                writer.add_string(key, value)
            else:
                writer.add_array(key, value)
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
        writer.add_token_list([f"<{i}>" if i < 3 else f"t{i}" for i in range(VOCAB)])
        writer.add_token_scores([float(-i) for i in range(VOCAB)])
        writer.add_token_types([2 if i == 0 else 3 if i < 3 else 1 for i in range(VOCAB)])
        writer.add_unk_token_id(0)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        for tensor in self.expanded():
            kind = TYPE(tensor[2])
            writer.add_tensor(tensor[0], self.data_of(tensor), raw_dtype=None if kind == TYPE.F32 else kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    def checksum(self):
        """FNV-1a over 8-byte words of all tensors in order: what the C++ builder must reproduce."""
        value = 0xCBF29CE484222325
        for tensor in self.expanded():
            data = np.ascontiguousarray(self.data_of(tensor)).tobytes()
            data += bytes(-len(data) % 8)
            words = np.frombuffer(data, U64)
            with np.errstate(over="ignore"):
                mixed = np.bitwise_xor.reduce((words + np.arange(len(words), dtype=U64)) * U64(0x9E3779B97F4A7C15))
            value = ((value ^ int(mixed)) * 0x100000001B3) % 2**64
        return value


def llama3_divisors(dims, base, factor, low, high, original):
    """What the converter of Llama 3.1 writes: slow pairs are divided by the factor, fast ones not."""
    out = []
    for i in range(0, dims, 2):
        wavelength = 2 * math.pi * base ** (i / dims)
        if wavelength < original / high:
            out.append(1.0)
        elif wavelength > original / low:
            out.append(factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            out.append(1 / ((1 - smooth) / factor + smooth))
    return out


def add_yarn(variant, factor=4.0, original=32):
    variant.add("rope.scaling.type", "yarn", about=True)
    variant.add("rope.scaling.factor", factor)
    return variant.add("rope.scaling.original_context_length", original)


def llama_variants():
    yield Variant("llama_tied", "llama")
    yield Variant("llama_untied_q8_0", "llama", kind=TYPE.Q8_0, tied=False, layers=3)
    yield Variant("llama_k_quants", "llama", kind=TYPE.Q4_K, d_model=256, d_ffn=256)
    divisors = llama3_divisors(16, 10000.0, 8.0, 1.0, 4.0, 64)
    yield Variant("llama3_divisors", "llama", tied=False).values("rope_freqs.weight", divisors)
    yield (Variant("llama_linear", "llama").add("rope.scaling.type", "linear")
           .add("rope.scaling.factor", 4.0, about=True))
    yield Variant("llama_old_linear", "llama").add("rope.scale_linear", 2.5, about=True)
    yield add_yarn(Variant("llama_yarn", "llama"))
    yield (add_yarn(Variant("llama_yarn_keys", "llama", kind=TYPE.Q4_1, head_dim=32), 8.0, 64)
           .add("rope.scaling.attn_factor", 1.125).add("rope.scaling.yarn_attn_factor", 0.75)
           .add("rope.scaling.yarn_beta_fast", 16.0).add("rope.scaling.yarn_beta_slow", 2.0))
    yield Variant("llama_biases", "llama").bias()
    yield Variant("mistral_window", "llama", tied=False).add("attention.sliding_window", 8, about=True)
    yield (Variant("mistral_window_q4_0", "llama", kind=TYPE.Q4_0, tied=False, kv_heads=1)
           .add("attention.sliding_window", 20, about=True))
    for head_dim in (64, 80, 128, 256):
        yield Variant(f"llama_head_{head_dim}", "llama", heads=2, kv_heads=1, head_dim=head_dim)


def qwen_variants():
    yield Variant("qwen2_tied", "qwen2")
    yield Variant("qwen2_untied_q8_0", "qwen2", kind=TYPE.Q8_0, tied=False, d_model=192, heads=6, kv_heads=2)
    yield add_yarn(Variant("qwen2_yarn", "qwen2", tied=False))
    yield Variant("qwen3_tied", "qwen3", head_dim=32)
    yield Variant("qwen3_untied_q4_0", "qwen3", kind=TYPE.Q4_0, tied=False, head_dim=32)
    yield add_yarn(Variant("qwen3_yarn", "qwen3", head_dim=128, heads=2, kv_heads=1))


def gemma_variants():
    yield (Variant("gemma2_caps", "gemma2", layers=3).add("attention.sliding_window", 20)
           .add("attn_logit_softcapping", 3.0, about=True).add("final_logit_softcapping", 4.0, about=True))
    yield (Variant("gemma2_window_q8_0", "gemma2", layers=4, kind=TYPE.Q8_0, head_dim=32)
           .add("attention.sliding_window", 18, about=True)
           .add("attn_logit_softcapping", 5.0).add("final_logit_softcapping", 30.0))
    yield Variant("gemma2_silent", "gemma2", layers=2)
    yield add_yarn(Variant("gemma2_yarn", "gemma2", head_dim=32).add("attention.sliding_window", 16))
    yield (Variant("gemma2_27b_scale", "gemma2", layers=46, d_model=32, d_ffn=32, heads=2, kv_heads=1, head_dim=64, branch=0.2)
           .add("attention.sliding_window", 8, about=True))
    yield Variant("gemma3_silent", "gemma3", layers=7, head_dim=32).add("attention.sliding_window", 8)
    yield (Variant("gemma3_period", "gemma3", layers=4).add("attention.sliding_window", 8)
           .add("attention.sliding_window_pattern", 3, about=True)
           .add("rope.scaling.type", "linear").add("rope.scaling.factor", 8.0, about=True))
    yield (Variant("gemma3_bools_q4_0", "gemma3", layers=3, kind=TYPE.Q4_0, tied=False, head_dim=256, heads=2,
                   kv_heads=1)
           .add("attention.sliding_window", 17).add("rope.freq_base_swa", 500.0, about=True)
           .add("attention.sliding_window_pattern", [True, False, True], about=True)
           .add("final_logit_softcapping", 10.0, about=True))
    yield (Variant("gemma3_27b_scale", "gemma3", layers=62, d_model=32, d_ffn=32, heads=2, kv_heads=1, head_dim=64, branch=0.2)
           .add("attention.sliding_window", 8).add("rope.scaling.type", "linear")
           .add("rope.scaling.factor", 8.0, about=True))


def phi_variants():
    yield Variant("phi3_plain", "phi3", tied=False)
    yield (Variant("phi3_window_96", "phi3", d_model=192, heads=2, kv_heads=2, tied=False)
           .add("attention.sliding_window", 8, about=True).add("rope.dimension_count", 96))
    yield (Variant("phi3_partial_q4_0", "phi3", kind=TYPE.Q4_0, heads=4, kv_heads=1)
           .add("rope.dimension_count", 12, about=True))
    yield add_yarn(Variant("phi3_yarn", "phi3", tied=False).add("rope.dimension_count", 12))
    long_divisors = [1.0 + 0.75 * i * i for i in range(6)]
    short_divisors = [1.0 + 0.125 * i for i in range(6)]
    for name, run_context in (("phi3_long", None), ("phi3_short", 32)):
        variant = Variant(name, "phi3", tied=False, head_dim=16, run_context=run_context,
                          tokens=32 if run_context else TOKENS)
        variant.add("rope.dimension_count", 12).add("rope.scaling.original_context_length", 32)
        variant.add("rope.scaling.attn_factor", 1.25, about=True)
        variant.values("rope_factors_long.weight", long_divisors)
        variant.without.pop()
        variant.values("rope_factors_short.weight", short_divisors)
        variant.without.pop()
        yield variant


def logits_of(model, variant):
    return reference.forward(model, variant.token_ids(), all_positions=True, context=variant.run_context)


def check_that_it_matters(path, variant, logits):
    """Each thing that the variant is about changes the logits by far more than any tolerance."""
    for name in variant.without:
        model = reference.Model(path)
        model.meta.pop(name, None)
        for tensor in [t for t in model.raw if t == name or (("*" in name) and t.endswith(name.split("*")[1]))]:
            for part in ("attn_q.bias", "attn_k.bias", "attn_v.bias"):
                model.raw.pop(tensor.replace("attn_q.bias", part), None)
        change = np.abs(logits_of(model, variant) - logits).max()
        if change < 0.05:
            sys.exit(f"{variant.name}: without {name} logits change by {change:.2g} only")


def check_that_layer_count_matters(path, variant, logits):
    """The scale of the 27B models shows in their number of layers only."""
    known = dict(reference.GEMMA_27B_LAYERS)
    reference.GEMMA_27B_LAYERS.clear()
    change = np.abs(logits_of(reference.Model(path), variant) - logits).max()
    reference.GEMMA_27B_LAYERS.update(known)
    if change < 0.05:
        sys.exit(f"{variant.name}: without the scale of 27B logits change by {change:.2g} only")


def describe(path, variant):
    """The golden entry of a variant: its description and the oracle's logits at some positions."""
    logits = logits_of(reference.Model(path), variant)
    check_that_it_matters(path, variant, logits)
    if "27b" in variant.name:
        check_that_layer_count_matters(path, variant, logits)
    last = variant.token_count - 1
    positions = [0, 7, 8, 21, last]
    return {"name": variant.name, "arch": variant.arch, "layers": variant.layers, "run_context": variant.run_context or 0,
            "keys": variant.keys, "tensors": variant.tensors, "checksum": f"{variant.checksum():016x}",
            "tokens": variant.token_ids(), "positions": positions,
            "logits": [[round(float(v), 5) for v in logits[p]] for p in positions]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--golden", type=pathlib.Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for variants in (llama_variants, qwen_variants, gemma_variants, phi_variants):
        for variant in variants():
            path = options.folder / f"{variant.name}.gguf"
            variant.write(path)
            if options.golden:
                entries.append(describe(path, variant))
    if options.golden:
        lines = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in entries)
        options.golden.write_text('{"vocab":%d,"variants":[\n%s\n]}\n' % (VOCAB, lines))


if __name__ == "__main__":
    main()
