#!/usr/bin/env python3
"""Writes small random models in GGUF form with the public `gguf` package.

They are seeds of the model file's fuzzing (tests/fuzz/corpus/gguf) and, being made by another
writer than our tests' own, a check that we read what others write. The same seed gives the same
bytes.

usage: make_test_models.py FOLDER        needs the packages numpy and gguf
"""
import argparse
import pathlib
import sys

try:
    import gguf
    import numpy as np
except ImportError as error:
    sys.exit(f"make_test_models.py: {error}; install the Python packages numpy and gguf")

TYPE = gguf.GGMLQuantizationType


class Shape:
    """Sizes of one model; the defaults make a file of a few kilobytes."""

    def __init__(self, arch, layers=1, d_model=32, d_ffn=32, heads=2, kv_heads=1, head_dim=16, vocab=8):
        self.arch, self.layers, self.d_model, self.d_ffn = arch, layers, d_model, d_ffn
        self.heads, self.kv_heads, self.head_dim, self.vocab = heads, kv_heads, head_dim, vocab


def add_config(writer, shape):
    writer.add_block_count(shape.layers)
    writer.add_context_length(64)
    writer.add_embedding_length(shape.d_model)
    writer.add_feed_forward_length(shape.d_ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    if shape.arch in ("gemma2", "gemma3"):
        writer.add_sliding_window(4)
    if shape.arch == "gemma2":
        writer.add_attn_logit_softcapping(50.0)
        writer.add_final_logit_softcapping(30.0)
    if shape.arch == "phi3":
        writer.add_rope_dimension_count(12)
        writer.add_rope_scaling_orig_ctx_len(32)
        writer.add_rope_scaling_attn_factors(1.25)
    if shape.arch == "qwen3":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(4.0)
        writer.add_rope_scaling_orig_ctx_len(16)


def add_tokenizer(writer, shape, kind):
    tokens = [f"<{i}>" if i < 2 else chr(ord("a") + i - 2) for i in range(shape.vocab)]
    writer.add_tokenizer_model(kind)
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if i < 2 else 1 for i in range(shape.vocab)])
    if kind == "llama":
        writer.add_token_scores([float(-i) for i in range(shape.vocab)])
    else:
        writer.add_token_merges(["a b", "b c"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(kind == "llama")
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")


def random_blocks(rng, rows, cols, kind):
    """K-quant bytes: random integers with plain scales, since the package cannot quantize to them."""
    values, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (rows, cols // values, size), dtype=np.uint8)
    scale = np.frombuffer(np.float16(0.002).tobytes(), np.uint8)
    scale_offsets = [size - 2] if kind == TYPE.Q6_K else [0, 2]
    for offset in scale_offsets:
        blocks[:, :, offset:offset + 2] = scale
    return blocks.reshape(rows, -1)


def add_tensor(writer, rng, name, rows, cols, kind):
    if kind in (TYPE.Q4_K, TYPE.Q6_K):
        writer.add_tensor(name, random_blocks(rng, rows, cols, kind), raw_dtype=kind)
        return
    values = rng.normal(0, 0.2, (rows, cols)).astype(np.float32)
    if kind == TYPE.F32:
        writer.add_tensor(name, values)
    elif kind == TYPE.F16:
        writer.add_tensor(name, values.astype(np.float16))
    else:
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)


def add_tensors(writer, shape, rng, kind, down_kind, tied):
    def vector(name, size):
        writer.add_tensor(name, rng.normal(1, 0.1, size).astype(np.float32))

    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    add_tensor(writer, rng, "token_embd.weight", shape.vocab, shape.d_model, kind)
    for i in range(shape.layers):
        b = f"blk.{i}."
        vector(b + "attn_norm.weight", shape.d_model)
        fused = shape.arch == "phi3"
        if fused:
            add_tensor(writer, rng, b + "attn_qkv.weight", q + 2 * kv, shape.d_model, kind)
        else:
            add_tensor(writer, rng, b + "attn_q.weight", q, shape.d_model, kind)
            add_tensor(writer, rng, b + "attn_k.weight", kv, shape.d_model, kind)
            add_tensor(writer, rng, b + "attn_v.weight", kv, shape.d_model, kind)
        if shape.arch == "qwen2":
            vector(b + "attn_q.bias", q)
            vector(b + "attn_k.bias", kv)
            vector(b + "attn_v.bias", kv)
        add_tensor(writer, rng, b + "attn_output.weight", shape.d_model, q, kind)
        vector(b + "ffn_norm.weight", shape.d_model)
        if not fused:
            add_tensor(writer, rng, b + "ffn_gate.weight", shape.d_ffn, shape.d_model, kind)
        add_tensor(writer, rng, b + "ffn_up.weight", 2 * shape.d_ffn if fused else shape.d_ffn, shape.d_model, kind)
        add_tensor(writer, rng, b + "ffn_down.weight", shape.d_model, shape.d_ffn, down_kind or kind)
        if shape.arch in ("gemma3", "qwen3"):
            vector(b + "attn_q_norm.weight", shape.head_dim)
            vector(b + "attn_k_norm.weight", shape.head_dim)
        if shape.arch in ("gemma2", "gemma3"):
            vector(b + "post_attention_norm.weight", shape.d_model)
            vector(b + "post_ffw_norm.weight", shape.d_model)
    vector("output_norm.weight", shape.d_model)
    if shape.arch == "phi3":
        vector("rope_factors_long.weight", 6)
        vector("rope_factors_short.weight", 6)
    if shape.arch == "llama" and shape.layers == 3:
        vector("rope_freqs.weight", shape.head_dim // 2)
    if not tied:
        add_tensor(writer, rng, "output.weight", shape.vocab, shape.d_model, kind)


def write_model(path, shape, kind, tokenizer="llama", down_kind=None, tied=True, alignment=None, seed=1):
    """One file; `kind` None leaves the tensors out, `down_kind` is another type for ffn_down."""
    writer = gguf.GGUFWriter(path, shape.arch)
    writer.add_name(path.name)
    if alignment is not None:
        writer.add_custom_alignment(alignment)
    add_config(writer, shape)
    add_tokenizer(writer, shape, tokenizer)
    if kind is not None:
        add_tensors(writer, shape, np.random.default_rng(seed), kind, down_kind, tied)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    write_model(folder / "llama_f16", Shape("llama"), TYPE.F16)
    write_model(folder / "llama_q8_0", Shape("llama", layers=2), TYPE.Q8_0, "gpt2", tied=False)
    write_model(folder / "llama_q4_1", Shape("llama", layers=2), TYPE.Q4_1, "gpt2")
    write_model(folder / "gemma3_q5_0", Shape("gemma3", layers=6), TYPE.Q5_0, seed=2)
    write_model(folder / "gemma3_q4_0", Shape("gemma3", layers=2), TYPE.Q4_0, alignment=64, seed=3)
    write_model(folder / "gemma3_q4_k", Shape("gemma3", d_ffn=256), TYPE.Q5_0, down_kind=TYPE.Q4_K, seed=4)
    write_model(folder / "llama_q6_k", Shape("llama", d_ffn=256), TYPE.Q8_0, down_kind=TYPE.Q6_K, seed=5)
    write_model(folder / "llama3_q4_0", Shape("llama", layers=3), TYPE.Q4_0, seed=6)
    write_model(folder / "qwen2_q8_0", Shape("qwen2"), TYPE.Q8_0, "gpt2", seed=7)
    write_model(folder / "qwen3_q4_0", Shape("qwen3"), TYPE.Q4_0, "gpt2", tied=False, seed=8)
    write_model(folder / "gemma2_q4_1", Shape("gemma2", layers=2), TYPE.Q4_1, seed=9)
    write_model(folder / "phi3_q4_0", Shape("phi3"), TYPE.Q4_0, seed=10)
    write_model(folder / "vocabulary_gpt2", Shape("llama", vocab=28), None, "gpt2")
    write_model(folder / "vocabulary_llama", Shape("gemma3", vocab=20), None, "llama")
    (folder / "big_endian_header").write_bytes(b"GGUF" + (3).to_bytes(4, "big") + bytes(16))
    (folder / "html_page").write_text("<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>\n")
    (folder / "git_lfs_pointer").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n")


if __name__ == "__main__":
    main()
