#!/usr/bin/env python3
"""Float64 oracle for GGUF models: a NumPy forward pass of llama (and Mistral), qwen2, qwen3, gemma2, gemma3, phi3.

Slow and exact on purpose. Weights are dequantized to float32 by the public `gguf` package and every
product is taken in float64, so an engine's logits can be judged against it. It was written from the
papers, the Hugging Face documentation and the GGUF specification, not from the engine:

- attention, RoPE, RMS norm, SwiGLU/GeGLU: arXiv:2104.09864, 1910.07467, 2002.05202
- linear scaling arXiv:2306.15595; YaRN arXiv:2309.00071 with `modeling_rope_utils` of Transformers for
  the rounding of its borders; Llama 3 divisors come with the file (`rope_freqs.weight`)
- LongRoPE arXiv:2402.13753: divisors `rope_factors_long|short.weight`, magnitude `rope.scaling.attn_factor`
- soft caps and alternating windows: Gemma 2, arXiv:2408.00118; Gemma 3, arXiv:2503.19786

usage: reference.py MODEL.gguf TOKEN_ID[,TOKEN_ID...]   -> JSON with the last position's top logits
"""
import json
import math
import sys

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

# Layers of the Gemma models whose scores are divided by sqrt(d_model / heads): the two of 27B.
GEMMA_27B_LAYERS = {"gemma2": 46, "gemma3": 62}


class Model:
    def __init__(self, path):
        reader = GGUFReader(path)
        self.meta = {k: f.contents() for k, f in reader.fields.items()
                     if not k.startswith("tokenizer.ggml.")}
        self.arch = self.meta["general.architecture"]
        self.raw = {t.name: t for t in reader.tensors}
        self.cache = {}

    def key(self, name, default=None):
        return self.meta.get(f"{self.arch}.{name}", default)

    def w(self, name):
        """Tensor as float32, shape (out, in) for matrices."""
        if name not in self.cache:
            t = self.raw[name]
            shape = tuple(int(x) for x in reversed(t.shape))
            self.cache[name] = np.asarray(dequantize(t.data, t.tensor_type), np.float32).reshape(shape)
        return self.cache[name]

    def has(self, name):
        return name in self.raw


def rms(x, w, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w.astype(np.float64)


def rope(x, pos, inv, magnitude, neox):
    """x: (n, heads, d); the first 2 * len(inv) dimensions turn by pos * inv and grow by magnitude."""
    turning = 2 * len(inv)
    ang = pos[:, None].astype(np.float64) * inv
    c, s = np.cos(ang)[:, None] * magnitude, np.sin(ang)[:, None] * magnitude
    out = x.copy()
    if neox:
        first, second = slice(0, turning // 2), slice(turning // 2, turning)
    else:
        first, second = slice(0, turning, 2), slice(1, turning, 2)
    a, b = x[..., first], x[..., second]
    out[..., first], out[..., second] = a * c - b * s, a * s + b * c
    return out


def yarn(inv, base, factor, original, beta_fast, beta_slow):
    """Frequencies of YaRN: interpolated (divided by factor), kept, and a mixture between."""
    dims = 2 * len(inv)

    def dimension_of(rotations):
        return dims * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(base))

    low = max(math.floor(dimension_of(beta_fast)), 0)
    high = min(math.ceil(dimension_of(beta_slow)), dims - 1)
    if low == high:
        high += 0.001
    ramp = np.clip((np.arange(len(inv), dtype=np.float64) - low) / (high - low), 0, 1)
    extrapolated = 1 - ramp
    return inv / factor * (1 - extrapolated) + inv * extrapolated


def rope_of(m, d_head, context):
    """Frequencies of the layers with full attention (all layers, but in gemma3) and the magnitude."""
    dims = m.key("rope.dimension_count", d_head)
    base = m.key("rope.freq_base", 10000.0)
    inv = float(base) ** (-np.arange(0, dims, 2, dtype=np.float64) / dims)
    if m.has("rope_freqs.weight"):
        inv = inv / m.w("rope_freqs.weight").astype(np.float64)
    if m.has("rope_factors_long.weight"):
        is_long = context > m.key("rope.scaling.original_context_length")
        divisors = m.w(f"rope_factors_{'long' if is_long else 'short'}.weight")
        inv = inv / divisors.astype(np.float64)
    magnitude = m.key("rope.scaling.attn_factor", 1.0)
    factor = m.key("rope.scaling.factor", m.key("rope.scale_linear", 1.0))
    kind = m.key("rope.scaling.type", "linear")
    if kind == "yarn":
        inv = yarn(inv, base, factor, m.key("rope.scaling.original_context_length"),
                   m.key("rope.scaling.yarn_beta_fast", 32.0), m.key("rope.scaling.yarn_beta_slow", 1.0))
        # Converters write Transformers' attention_factor, which takes the place of the formula.
        magnitude *= m.key("rope.scaling.yarn_attn_factor", 0.1 * math.log(factor) + 1)
    elif kind == "linear":
        inv = inv / factor
    return inv, magnitude


def windows(m):
    """The window of each layer; 0 where everything is seen."""
    layers = m.key("block_count")
    window = m.key("attention.sliding_window", 4096 if m.arch == "gemma2" else 0)
    if m.arch not in ("gemma2", "gemma3"):
        return [window] * layers
    pattern = m.key("attention.sliding_window_pattern", {"gemma2": 2, "gemma3": 6}[m.arch])
    if not isinstance(pattern, list):
        pattern = [i % pattern != pattern - 1 for i in range(layers)]
    return [window if local else 0 for local in pattern]


def attention_scale(m, d_head):
    if m.key("block_count") == GEMMA_27B_LAYERS.get(m.arch):
        return 1 / math.sqrt(m.key("embedding_length") / m.key("attention.head_count"))
    return 1 / math.sqrt(d_head)


def cap(x, limit):
    return limit * np.tanh(x / limit) if limit else x


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))


def silu(x):
    return x / (1 + np.exp(-x))


def mm(x, w):
    return x @ w.T.astype(np.float64)


def project(m, b, h, widths):
    """q, k and v of a layer."""
    if m.has(b + "attn_qkv.weight"):
        return np.split(mm(h, m.w(b + "attn_qkv.weight")), np.cumsum(widths)[:2], axis=-1)
    out = [mm(h, m.w(b + f"attn_{c}.weight")) for c in "qkv"]
    if m.has(b + "attn_q.bias"):
        out = [y + m.w(b + f"attn_{c}.bias") for y, c in zip(out, "qkv")]
    return out


def feed_forward(m, b, h, act):
    if m.has(b + "ffn_gate.weight"):
        gate, up = mm(h, m.w(b + "ffn_gate.weight")), mm(h, m.w(b + "ffn_up.weight"))
    else:
        gate, up = np.split(mm(h, m.w(b + "ffn_up.weight")), 2, axis=-1)
    return mm(act(gate) * up, m.w(b + "ffn_down.weight"))


def forward(m, tokens, all_positions=False, context=None):
    """tokens: list[int]. Returns float64 logits, (vocab,) or (n, vocab).

    context: the longest context that the model is opened for, the file's own if None; it chooses
    between the two sets of divisors of LongRoPE.
    """
    gemma = m.arch in ("gemma2", "gemma3")
    eps = m.key("attention.layer_norm_rms_epsilon")
    heads = m.key("attention.head_count")
    kv_heads = m.key("attention.head_count_kv", heads)
    d_model = m.key("embedding_length")
    d_head = m.key("attention.key_length", d_model // heads)
    inv, magnitude = rope_of(m, d_head, context or m.key("context_length"))
    local_base = m.key("rope.freq_base_swa", 10000.0)
    local_inv = local_base ** (-np.arange(0, d_head, 2, dtype=np.float64) / d_head)
    scale = attention_scale(m, d_head)
    score_cap = m.key("attn_logit_softcapping", 50.0 if m.arch == "gemma2" else 0.0)
    logit_cap = m.key("final_logit_softcapping", 30.0 if m.arch == "gemma2" else 0.0)
    n = len(tokens)
    pos = np.arange(n)
    x = m.w("token_embd.weight")[tokens].astype(np.float64)
    if gemma:
        x *= np.sqrt(d_model)
    neox = m.arch != "llama"
    for i, window in enumerate(windows(m)):
        b = f"blk.{i}."
        h = rms(x, m.w(b + "attn_norm.weight"), eps)
        q, k, v = project(m, b, h, [heads * d_head, kv_heads * d_head, kv_heads * d_head])
        q = q.reshape(n, heads, d_head)
        k = k.reshape(n, kv_heads, d_head)
        v = v.reshape(n, kv_heads, d_head)
        if m.has(b + "attn_q_norm.weight"):
            q = rms(q, m.w(b + "attn_q_norm.weight"), eps)
            k = rms(k, m.w(b + "attn_k_norm.weight"), eps)
        turn = (local_inv, 1.0) if m.arch == "gemma3" and window else (inv, magnitude)
        q, k = rope(q, pos, *turn, neox), rope(k, pos, *turn, neox)
        k, v = (np.repeat(y, heads // kv_heads, axis=1) for y in (k, v))
        s = cap(np.einsum("qhd,khd->hqk", q, k) * scale, score_cap)
        mask = pos[None, :] > pos[:, None]
        if window:
            mask |= pos[:, None] - pos[None, :] >= window
        s = np.where(mask, -np.inf, s)
        p = np.exp(s - s.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        o = mm(np.einsum("hqk,khd->qhd", p, v).reshape(n, -1), m.w(b + "attn_output.weight"))
        if m.has(b + "post_attention_norm.weight"):
            o = rms(o, m.w(b + "post_attention_norm.weight"), eps)
        x = x + o
        h = rms(x, m.w(b + "ffn_norm.weight"), eps)
        f = feed_forward(m, b, h, gelu if gemma else silu)
        if m.has(b + "post_ffw_norm.weight"):
            f = rms(f, m.w(b + "post_ffw_norm.weight"), eps)
        x = x + f
    if not all_positions:
        x = x[-1:]
    x = rms(x, m.w("output_norm.weight"), eps)
    head = "output.weight" if m.has("output.weight") else "token_embd.weight"
    logits = cap(mm(x, m.w(head)), logit_cap)
    return logits if all_positions else logits[0]


if __name__ == "__main__":
    model = Model(sys.argv[1])
    ids = [int(t) for t in sys.argv[2].split(",")]
    logits = forward(model, ids)
    logp = logits - logits.max()
    logp = logp - np.log(np.exp(logp).sum())
    top = np.argsort(-logits)[:20]
    print(json.dumps({"tokens": ids, "top": [[int(t), round(float(logits[t]), 6), round(float(logp[t]), 6)] for t in top],
                      "sum_logits": float(logits.sum()), "l2": float(np.sqrt((logits ** 2).sum()))}))
