#!/usr/bin/env python3
"""What --speculate auto gains on texts that repeat their prompt, and costs on texts that do not.

    bench/speculation_bench.py MODEL.gguf [--kvasir build/release/kvasir] [--streams 1,4,8] [--rounds 5]
                               [--tokens 160] [--cases quote,edit,story]

Starts two servers, `--speculate off` and `--speculate auto`, and gives them the same requests in turn: each round
--streams requests at once to one, then to the other (who is first alternates). Prompts differ between requests and
rounds and nothing is kept in the cache (`no_store`), so drafts come from the request's own text alone. Cases:

    quote   three invented reports, then the beginning of one of them again; greedy: the model says it again
    edit    two functions and what they are after a variable was renamed, then a third, its edited text begun; greedy.
            (The prompt ends inside a line: after a line end it would stop inside a token, since indentation is part of
            it, and the model would leave the text.)
    story   the beginning of a story; temperature 1: nothing repeats
    answer  a question; greedy

Printed for each case and number of streams: output tokens a second of both (median round), the ratio (median of the
rounds' ratios, [lowest, highest]), and how many of the guesses were right. Answers must be the same: it fails if not.
"""

import argparse
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time

NAMES = ["Alvarez", "Okafor", "Lindqvist", "Moreau", "Tanaka", "Haddad", "Novak", "Silva", "Keller", "Osei"]
PLACES = ["harbour", "library", "northern depot", "old mill", "observatory", "market hall", "river station", "archive"]
THINGS = ["pumps", "ledgers", "lanterns", "barrels", "drawings", "engines", "crates of tea", "telescopes", "maps"]
VERBS = ["inspected", "repaired", "counted", "moved", "painted", "sold", "measured", "catalogued"]


def report(rng):
    lines = []
    for _ in range(5):
        lines.append(f"{rng.choice(['On Monday', 'In March', 'After lunch', 'Last year', 'At dawn'])} "
                     f"{rng.choice(['Ms.', 'Mr.', 'Dr.'])} {rng.choice(NAMES)} {rng.choice(VERBS)} "
                     f"{rng.randrange(3, 900)} {rng.choice(THINGS)} at the {rng.choice(PLACES)}.")
    return " ".join(lines)


def function(rng, name):
    field, other = rng.sample(["price", "weight", "height", "count", "speed", "age"], 2)
    return (f"def {name}(items):\n    result = []\n    total = 0\n    for item in items:\n"
            f"        if item.{field} > {rng.randrange(5, 99)} and item.{other} is not None:\n"
            f"            result.append((item.name, item.{field} * {rng.randrange(2, 9)}))\n"
            f"            total += item.{other}\n        else:\n"
            f"            print(\"skipped\", item.name, item.{other})\n"
            f"    result.sort(key=lambda pair: pair[1])\n    return result, total\n")


def edits(rng):
    """The prompt, and what a faithful editor answers."""
    text = ""
    for i in range(3):
        before = function(rng, f"step_{i}")
        text += f"Before:\n\n{before}\nAfter (result is now rows):\n\n"
        first, rest = before.replace("result", "rows").split("\n", 1)
        text += first if i == 2 else f"{first}\n{rest}\n\n"
    return text, "\n" + rest


def prompt_of(case, seed):
    rng = random.Random(seed)
    if case == "quote":
        texts = [report(rng) for _ in range(3)]
        again = rng.choice(texts)
        return "\n\n".join(texts + texts) + "\n\n" + " ".join(again.split()[:6]), 0.0
    if case == "edit":
        return edits(rng)[0], 0.0
    subject = f"{rng.choice(NAMES)}, {rng.choice(['a baker', 'a pilot', 'a clerk', 'a singer'])}, and " \
              f"{rng.randrange(3, 99)} {rng.choice(THINGS)}"
    if case == "story":
        return f"A story about {subject}.\n\nOnce upon a time", 1.0
    return f"Question: what should one know about the {rng.choice(PLACES)} and {rng.choice(THINGS)}?\nAnswer:", 0.0


def ask(port, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    return reply.status, reply.read()


class Server:
    def __init__(self, options, speculate):
        self.process = subprocess.Popen(
            [options.kvasir, "serve", options.model, "--port", "0", "--speculate", speculate, "--ctx", "2048"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.port = None
        for line in self.process.stdout:
            if "http://127.0.0.1:" in line:
                self.port = int(line.split("http://127.0.0.1:")[1].split()[0].rstrip(".,"))
                break
        if self.port is None:
            sys.exit("kvasir serve did not start")
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        while ask(self.port, "GET", "/ready")[0] != 200:
            time.sleep(0.05)


def run_round(server, case, streams, tokens, round_number):
    """(answers, output tokens a second while all were decoding, guesses, right ones)"""
    replies = [None] * streams

    def one(index):
        prompt, temperature = prompt_of(case, 1000 * round_number + index)
        status, reply = ask(server.port, "POST", "/v1/completions",
                            {"prompt": prompt, "temperature": temperature, "seed": index, "max_tokens": tokens,
                             "ignore_eos": True, "no_store": True, "kvasir": True})
        if status != 200:
            sys.exit(f"/v1/completions answered {status}: {reply[:300]}")
        replies[index] = json.loads(reply)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    explained = [reply["kvasir"] for reply in replies]
    # From its first token on: reading the prompt is the same for both.
    rate = sum(reply["usage"]["completion_tokens"] / max(e["decode_ms"], 1e-3) * 1e3
               for reply, e in zip(replies, explained))
    return ([reply["choices"][0]["text"] for reply in replies], rate,
            sum(e["draft_tokens"]["proposed"] for e in explained),
            sum(e["draft_tokens"]["accepted"] for e in explained))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--kvasir", default="build/release/kvasir")
    parser.add_argument("--streams", default="1,4,8")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--cases", default="quote,edit,story,answer")
    options = parser.parse_args()
    servers = [Server(options, "off"), Server(options, "auto")]
    different = 0
    try:
        print(f"{os.path.basename(options.model)}, {options.tokens} tokens each, median of {options.rounds} rounds")
        print(f"{'case':<8}{'streams':>8}{'off tok/s':>11}{'auto tok/s':>11}  ratio                guesses right")
        for case in options.cases.split(","):
            for streams in map(int, options.streams.split(",")):
                rates, ratios, proposed, accepted = ([], []), [], 0, 0
                for round_number in range(options.rounds + 1):
                    results = [None, None]
                    for i in (0, 1) if round_number % 2 == 0 else (1, 0):
                        results[i] = run_round(servers[i], case, streams, options.tokens, round_number)
                    different += results[0][0] != results[1][0]
                    if round_number == 0:
                        continue  # Warms up.
                    for i in (0, 1):
                        rates[i].append(results[i][1])
                    ratios.append(results[1][1] / results[0][1])
                    proposed += results[1][2]
                    accepted += results[1][3]
                ratio = f"{statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]"
                print(f"{case:<8}{streams:>8}{statistics.median(rates[0]):>11.0f}{statistics.median(rates[1]):>11.0f}"
                      f"  {ratio:<20} {accepted} of {proposed}", flush=True)
    finally:
        for server in servers:
            server.process.kill()
    if different:
        sys.exit(f"{different} rounds had different answers")


if __name__ == "__main__":
    main()
