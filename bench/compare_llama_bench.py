#!/usr/bin/env python3
"""Kvasir and llama.cpp's llama-bench on one model file, alternating in one run; medians and ratios.

    bench/compare_llama_bench.py MODEL.gguf --llama-bench PATH [--kvasir build/release/kvasir]
                                 [--threads 2] [--rounds 5] [-p 512] [-n 64]

Each round runs B (llama-bench -fa 1 -r 1) and A (kvasir bench model -b 1) one after the other, so that both see the
machine in the same mood. Prints a table of medians with the lowest and highest round, and the ratio round by round.
"""

import argparse
import json
import statistics
import subprocess


def run_json(command):
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def kvasir(options):
    report = run_json([options.kvasir, "bench", "model", options.model, "-p", str(options.p), "-n", str(options.n),
                       "-b", "1", "--context", "1", "--repeat", "1", "--threads", str(options.threads),
                       "--json"])
    return report["prefill_tok_s"], report["decode"][0]["decode_tok_s"]


def llama(options):
    rows = run_json([options.llama_bench, "-m", options.model, "-t", str(options.threads), "-fa", "1", "-p",
                     str(options.p), "-n", str(options.n), "-r", "1", "-o", "json"])
    prefill = next(row for row in rows if row["n_prompt"] > 0)
    decode = next(row for row in rows if row["n_gen"] > 0)
    return prefill["avg_ts"], decode["avg_ts"]


def describe(values):
    return f"{statistics.median(values):8.1f}  [{min(values):.1f}, {max(values):.1f}]"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--llama-bench", required=True)
    parser.add_argument("--kvasir", default="build/release/kvasir")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("-p", type=int, default=512)
    parser.add_argument("-n", type=int, default=64)
    options = parser.parse_args()
    a, b = [], []
    for _ in range(options.rounds):
        b.append(llama(options))
        a.append(kvasir(options))
    for index, name in enumerate((f"prefill {options.p}", f"decode {options.n}")):
        ratios = [x[index] / y[index] for x, y in zip(a, b)]
        print(f"{name:12}  kvasir {describe([x[index] for x in a])}  llama.cpp {describe([y[index] for y in b])}"
              f"  ratio {statistics.median(ratios):.2f}  [{min(ratios):.2f}, {max(ratios):.2f}]")


if __name__ == "__main__":
    main()
