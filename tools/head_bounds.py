#!/usr/bin/env python3
"""How much of a quantized output head must be read to be sure of its largest logit?

For real hidden states of a model, and for several proven upper bounds of a row's logit, counts the
rows (and panels of 16) whose bound reaches the largest logit: those would have to be read in full
after the bound's own bytes. docs/HEAD.md quotes its table. Needs numpy and gguf from PyPI.

usage: head_bounds.py MODEL.gguf --kvasir PATH [--positions 200] [--panels-of 16] [--tokens 240]
"""
import argparse
import json
import pathlib
import subprocess

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

ROOT = pathlib.Path(__file__).resolve().parent.parent
MULTILINGUAL = (
    "Der Frühling kam spät in diesem Jahr, und die Bauern im Tal warteten ungeduldig. Les étudiants se "
    "sont réunis devant la bibliothèque pour discuter de la réforme. El río bajaba crecido después de "
    "las lluvias, y nadie se atrevía a cruzar el puente. 今天天气很好,我们决定去公园散步。 Сегодня утром я "
    "прочитал интересную статью. 東京の夏はとても暑いので、多くの人が海や山へ出かけます。 ") * 4


class Model:
    def __init__(self, path):
        reader = GGUFReader(path)
        self.meta = {k: f.contents() for k, f in reader.fields.items() if not k.startswith("tokenizer.")}
        self.arch = self.meta["general.architecture"]
        self.raw = {t.name: t for t in reader.tensors}

    def key(self, name, default=None):
        return self.meta.get(f"{self.arch}.{name}", default)

    def w(self, name):
        t = self.raw[name]
        shape = tuple(int(x) for x in reversed(t.shape))
        return np.asarray(dequantize(t.data, t.tensor_type), np.float32).reshape(shape)

    def head(self):
        return self.w("output.weight" if "output.weight" in self.raw else "token_embd.weight")


def rms(x, w, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def rope(x, base, halves):
    n, _, d = x.shape
    angle = np.arange(n)[:, None] * base ** (-np.arange(0, d, 2) / d)
    c, s = (f(angle)[:, None].astype(np.float32) for f in (np.cos, np.sin))
    first = np.s_[..., : d // 2] if halves else np.s_[..., 0::2]
    second = np.s_[..., d // 2:] if halves else np.s_[..., 1::2]
    out = np.empty_like(x)
    out[first] = x[first] * c - x[second] * s
    out[second] = x[first] * s + x[second] * c
    return out


def hidden_states(m, tokens):
    """What the head is given at each position, float32 [n, d_model] (llama and gemma3 files)."""
    gemma = m.arch == "gemma3"
    eps, d_model = m.key("attention.layer_norm_rms_epsilon"), m.key("embedding_length")
    heads, kv_heads = m.key("attention.head_count"), m.key("attention.head_count_kv")
    d = m.key("attention.key_length", d_model // heads)
    n = len(tokens)
    x = m.w("token_embd.weight")[tokens].copy() * np.float32(np.sqrt(d_model) if gemma else 1)
    later = np.arange(n)[None] > np.arange(n)[:, None]
    for i in range(m.key("block_count")):
        def w(name, i=i):
            full = f"blk.{i}.{name}.weight"
            return m.w(full) if full in m.raw else None
        h = rms(x, w("attn_norm"), eps)
        q, k, v = (h @ w(f"attn_{c}").T for c in "qkv")
        q, k, v = q.reshape(n, heads, d), k.reshape(n, kv_heads, d), v.reshape(n, kv_heads, d)
        if w("attn_q_norm") is not None:
            q, k = rms(q, w("attn_q_norm"), eps), rms(k, w("attn_k_norm"), eps)
        local = gemma and i % 6 != 5
        base = 10000.0 if local else m.key("rope.freq_base", 10000.0)
        q, k = rope(q, base, gemma), rope(k, base, gemma)
        k, v = (np.repeat(y, heads // kv_heads, axis=1) for y in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.float32(np.sqrt(d))
        p = np.exp(np.where(later, -np.inf, scores - scores.max(-1, keepdims=True)))
        p /= p.sum(-1, keepdims=True)
        for part in ("attention", "ffn"):
            if part == "attention":
                out = np.einsum("hqk,khd->qhd", p, v).reshape(n, -1) @ w("attn_output").T
                norm = w("post_attention_norm")
            else:
                h = rms(x, w("ffn_norm"), eps)
                g, u = h @ w("ffn_gate").T, h @ w("ffn_up").T
                if gemma:
                    a = 0.5 * g * (1 + np.tanh(np.sqrt(2 / np.pi) * (g + 0.044715 * g**3)))
                else:
                    a = g / (1 + np.exp(-g))
                out, norm = (a * u) @ w("ffn_down").T, w("post_ffw_norm")
            x = x + (out if norm is None else rms(out, norm, eps))
    return rms(x, m.w("output_norm.weight"), eps).astype(np.float32)


def texts(kvasir, path, tokens):
    def generate(prompt, *options):
        run = [kvasir, "run", path, "--raw", "-n", str(tokens), "--ignore-eos", "-p", prompt, *options]
        return prompt + subprocess.run(run, stdout=subprocess.PIPE, check=True).stdout.decode(errors="replace")
    return {
        "prose": (ROOT / "LICENSE").read_text() if (ROOT / "LICENSE").exists() else (ROOT / "README.md").read_text(),
        "markdown": (ROOT / "docs/ARCHITECTURE.md").read_text(),
        "c++": (ROOT / "src/kv/prefix_tree.cc").read_text(),
        "python": pathlib.Path(__file__).read_text(),
        "multilingual": MULTILINGUAL,
        "greedy": generate("The history of the city of Lisbon begins"),
        "sampled": generate("Once upon a time there was an old sailor who", "--temp", "0.8", "--seed", "7"),
    }


def round8(x):
    """The engine's activations: int8 with a scale per 32."""
    b = x.reshape(len(x), -1, 32)
    s = np.abs(b).max(-1, keepdims=True) / 127
    s[s == 0] = 1
    return (np.rint(b / s) * s).reshape(x.shape).astype(np.float32)


def remainder(w, bits):
    """w minus its nearest code of `bits` bits, scale per 32: -2^(bits-1) at the larger end."""
    if bits == 8:
        return w - round8(w)
    b = w.reshape(len(w), -1, 32)
    end = np.where(b.max(-1) > -b.min(-1), b.max(-1), b.min(-1))[..., None]
    s = end / -(2 ** (bits - 1))
    s[s == 0] = 1
    return (b - np.clip(np.rint(b / s), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1) * s).reshape(w.shape)


def block_norms(x):
    return np.sqrt((x.reshape(len(x), -1, 32) ** 2).sum(-1))


def mixed(w, bits):
    """Remainder with its own bits for each block of 32 columns."""
    return np.concatenate([remainder(w[:, 32 * b:32 * b + 32], n) for b, n in enumerate(bits)], 1)


def clusters(w, count, rounds, rng):
    centres = w[rng.permutation(len(w))[:count]]
    for _ in range(rounds):
        nearest = (w @ centres.T - (centres**2).sum(1) / 2).argmax(1)
        for c in range(count):
            if (nearest == c).any():
                centres[c] = w[nearest == c].mean(0)
    return w - centres[(w @ centres.T - (centres**2).sum(1) / 2).argmax(1)]


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("model")
    p.add_argument("--kvasir", required=True)
    p.add_argument("--positions", type=int, default=200)
    p.add_argument("--panels-of", type=int, default=16, help="look at one of so many panels")
    p.add_argument("--tokens", type=int, default=240)
    args = p.parse_args()
    m, rng = Model(args.model), np.random.default_rng(0)
    states, kinds = [], []
    for kind, text in texts(args.kvasir, args.model, args.tokens).items():
        run = subprocess.run([args.kvasir, "tokenize", args.model], input=text.encode(), stdout=subprocess.PIPE, check=True)
        states.append(hidden_states(m, json.loads(run.stdout)[: args.tokens])[1:])
        kinds += [kind] * len(states[-1])
    a, kinds = round8(np.concatenate(states)), np.array(kinds)
    w = m.head()
    vocab, cols = w.shape
    pick = rng.permutation(len(a))[: args.positions]
    a_all, kinds_all, a, kinds = a, kinds, a[pick], kinds[pick]
    best = np.concatenate([(a[i:i + 64] @ w.T).max(1) for i in range(0, len(a), 64)])
    panels = rng.permutation(vocab // 16)[: vocab // 16 // args.panels_of]
    w = w[(panels[:, None] * 16 + np.arange(16)).ravel()]
    logits = a @ w.T
    blocks = cols // 32
    row_bytes = cols * 34 / 32
    order = np.argsort(-np.abs(m.w("output_norm.weight")), kind="stable")
    print(f"{args.model}: {len(a_all)} positions, {len(a)} taken, {len(w)} of {vocab} rows")

    def report(name, margin, guess, bytes_a_row):
        reach = guess + margin >= best[:, None]
        rows, pans = reach.mean(1), reach.reshape(len(a), -1, 16).any(-1).mean(1)
        total = bytes_a_row / row_bytes + pans
        print(f"| {name} | {bytes_a_row / row_bytes:.1%} | {np.median(rows):.2%}, {np.percentile(rows, 90):.2%} "
              f"| {np.median(pans):.1%}, {np.percentile(pans, 90):.1%} | {np.median(total):.0%}, {total.mean():.0%} |",
              flush=True)

    def columns(name, bits, o):
        r, x = mixed(w[:, o], bits), a[:, o]
        report(name, block_norms(x) @ block_norms(r).T, logits - x @ r.T, sum(b * 4 + 2 for b in bits) + blocks)

    print("| bound | own bytes | rows left: median, p90 | panels left: median, p90 | all bytes: median, mean |")
    print("|---|---|---|---|---|")
    r4 = remainder(w, 4)
    worst = np.abs(r4).reshape(len(w), -1, 32).max(-1)
    report("4 bits, worst case of each value", np.abs(a).reshape(len(a), -1, 32).sum(-1) @ worst.T,
           logits - a @ r4.T, 4.5 / 8 * cols)
    report("4 bits, Cauchy-Schwarz of the row", np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(r4, axis=1),
           logits - a @ r4.T, 4.5 / 8 * cols + 2)
    for k in (16, 32):  # Directions fitted on the other texts only.
        margin, guess = np.empty_like(logits), np.empty_like(logits)
        for kind in set(kinds):
            x = a_all[kinds_all != kind]
            u = np.linalg.eigh((x.T @ x).astype(np.float64))[1][:, -k:].astype(np.float32)
            rest = a[kinds == kind] - (a[kinds == kind] @ u) @ u.T
            margin[kinds == kind] = np.linalg.norm(rest, axis=1)[:, None] * np.linalg.norm(r4 - (r4 @ u) @ u.T, axis=1)
            guess[kinds == kind] = logits[kinds == kind] - rest @ r4.T
        report(f"4 bits, {k} principal directions exact", margin, guess, 4.5 / 8 * cols + k + 4)
    c = clusters(w, 256, 3, rng)
    report("256 clusters, centre and radius", np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(c, axis=1),
           logits - a @ c.T, 4)
    same = np.arange(cols)
    columns("4 bits, Cauchy-Schwarz of 32-blocks", [4] * blocks, same)
    columns("the same, columns by norm weight", [4] * blocks, order)
    columns("8 bits for 64 columns, 4 for the rest, by norm weight", [8] * 2 + [4] * (blocks - 2), order)
    columns("8 for 128, 4 for the rest", [8] * 4 + [4] * (blocks - 4), order)
    columns("8 for 64, 4, 3 for half", [8] * 2 + [4] * (blocks // 2 - 2) + [3] * (blocks - blocks // 2), order)
    columns("8 for 128, 3 for the rest", [8] * 4 + [3] * (blocks - 4), order)
    columns("8 for 64, 4, 2 for half", [8] * 2 + [4] * (blocks // 2 - 2) + [2] * (blocks - blocks // 2), order)


if __name__ == "__main__":
    main()
