#!/usr/bin/env python3
"""Kvasir and llama.cpp on the same model files and machine, alternating in one run; medians and ratios.

    tools/compare_peer.py --peer-bin DIR MODEL.gguf ... [--kvasir build/release/kvasir] [--threads 2] [--rounds 5]
                          [--long] [--json FILE]

DIR holds llama-bench and llama-batched-bench. Each round runs the peer and then Kvasir on one measurement before it
goes on to the next, so that both see the machine in the same mood; a ratio is taken round by round, and the median is
given with the lowest and the highest. Measured are

    prefill 512    llama-bench -fa 1 -p 512            kvasir bench model -p 512
    decode 1       llama-bench -fa 1 -n 64             kvasir bench model -b 1 --context 128 -n 32
    decode 8, 32   llama-batched-bench -npp 128 -ntg 32 -npl 8,32
                                                       kvasir bench model -b 8,32 --context 128 -n 32
and with --long, 8,000 tokens of context:
    prefill 8000   llama-bench -fa 1 -p 8000           kvasir bench model -p 8000
    decode @8000   llama-bench -fa 1 -d 8000 -n 32     kvasir bench model -b 1 --context 8000 -n 32

Output is a Markdown table of tokens a second.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

PREFILL, DECODE, LONG = 512, 64, 8000


class Programs:
    def __init__(self, options):
        self.kvasir = options.kvasir
        self.peer_bin = options.peer_bin
        self.threads = str(options.threads)

    @staticmethod
    def output(command):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stderr[-2000:]}")
        return done.stdout

    def peer_bench(self, model, arguments):
        command = [os.path.join(self.peer_bin, "llama-bench"), "-m", model, "-t", self.threads, "-fa", "1", "-r", "1",
                   "-o", "json", *arguments]
        return [row["avg_ts"] for row in json.loads(self.output(command))]

    def peer_batched(self, model, batches):
        command = [os.path.join(self.peer_bin, "llama-batched-bench"), "-m", model, "-t", self.threads, "-fa", "1",
                   "-c", "8192", "-npp", "128", "-ntg", "32", "-npl", ",".join(map(str, batches)),
                   "--output-format", "jsonl"]
        rows = [json.loads(line) for line in self.output(command).splitlines() if line.startswith("{")]
        speeds = {row["pl"]: row["speed_tg"] for row in rows}
        return [speeds[batch] for batch in batches]

    def kvasir_bench(self, model, arguments):
        return json.loads(self.output([self.kvasir, "bench", "model", model, "--threads", self.threads, "--repeat", "1",
                                       "--json", *arguments]))

    def kvasir_decode(self, model, batches, context):
        report = self.kvasir_bench(model, ["-p", "1", "-b", ",".join(map(str, batches)), "--context", str(context),
                                           "-n", "32"])
        return [row["decode_tok_s"] for row in report["decode"]]


def measurements(run, long):
    """(names, peer(model), kvasir(model)); each side gives one figure a name."""
    yield (["prefill 512"], lambda m: run.peer_bench(m, ["-p", str(PREFILL), "-n", "0"]),
           lambda m: [run.kvasir_bench(m, ["-p", str(PREFILL), "-b", "1", "-n", "1"])["prefill_tok_s"]])
    yield (["decode 1"], lambda m: run.peer_bench(m, ["-p", "0", "-n", str(DECODE)]),
           lambda m: run.kvasir_decode(m, [1], 128))
    yield (["decode 8", "decode 32"], lambda m: run.peer_batched(m, [8, 32]),
           lambda m: run.kvasir_decode(m, [8, 32], 128))
    if not long:
        return
    yield ([f"prefill {LONG}"], lambda m: run.peer_bench(m, ["-p", str(LONG), "-n", "0"]),
           lambda m: [run.kvasir_bench(m, ["-p", str(LONG), "-b", "1", "-n", "1"])["prefill_tok_s"]])
    yield ([f"decode @{LONG}"], lambda m: run.peer_bench(m, ["-p", "0", "-n", "32", "-d", str(LONG)]),
           lambda m: run.kvasir_decode(m, [1], LONG))


def describe(values):
    return f"{statistics.median(values):.0f} [{min(values):.0f}, {max(values):.0f}]"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL.gguf")
    parser.add_argument("--peer-bin", required=True)
    parser.add_argument("--kvasir", default="build/release/kvasir")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--long", action="store_true", help="also 8,000 tokens of context")
    parser.add_argument("--json", help="write every round's figures to this file")
    options = parser.parse_args()
    run = Programs(options)
    rows = []
    print("| file | measurement | llama.cpp tok/s | Kvasir tok/s | ratio |\n|---|---|---|---|---|", flush=True)
    for model in options.models:
        for names, peer, kvasir in measurements(run, options.long):
            rounds = [(peer(model), kvasir(model)) for _ in range(options.rounds)]
            for i, name in enumerate(names):
                theirs, ours = [p[i] for p, _ in rounds], [k[i] for _, k in rounds]
                ratios = [a / b for a, b in zip(ours, theirs)]
                rows.append({"model": os.path.basename(model), "measurement": name, "peer": theirs, "kvasir": ours})
                print(f"| {os.path.basename(model)} | {name} | {describe(theirs)} | {describe(ours)} | "
                      f"{statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}] |", flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
