#!/usr/bin/env python3
"""How much of its decode speed a server keeps while a foreign process keeps one of its cores busy.

    bench/company.py MODEL.gguf [--kvasir build/release/kvasir] [--streams 1] [--tokens 400] [--rounds 5]

Starts `kvasir serve` on two cores (the first two this process may use), then alternates quiet rounds and rounds with
one endless loop pinned to the first of them. A round streams completions of --tokens tokens and asks /health every
20 ms meanwhile. Printed are the median tokens a second with the lowest and highest round, the share that is kept, and
the slowest and the 99th percentile of /health. The pause between rounds lets the scheduler of the system forget.
"""

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import threading
import time


def request(port, method, path, body=None, timeout=120):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    connection.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    return response.status, response.read()


class Server:
    def __init__(self, options, cores):
        self.process = subprocess.Popen(
            [options.kvasir, "serve", options.model, "--port", "0", "--threads", str(len(cores))],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, cores))
        self.port = None
        for line in self.process.stdout:
            if "http://127.0.0.1:" in line:
                self.port = int(line.split("http://127.0.0.1:")[1].split()[0].split("/")[0].rstrip(".,"))
                break
        if self.port is None:
            sys.exit("kvasir serve did not start")
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        while request(self.port, "GET", "/ready")[0] != 200:
            time.sleep(0.05)


def generate(server, options, out, index):
    body = {"prompt": f"Stream number {index}. Once upon a time", "max_tokens": options.tokens, "ignore_eos": True,
            "temperature": 0, "no_store": True}
    status, reply = request(server.port, "POST", "/v1/completions", body)
    if status != 200:
        sys.exit(f"/v1/completions answered {status}: {reply[:300]}")
    out[index] = json.loads(reply)["usage"]["completion_tokens"]


def one_round(server, options, health):
    counts = [0] * options.streams
    streams = [threading.Thread(target=generate, args=(server, options, counts, i)) for i in range(options.streams)]
    start = time.monotonic()
    for stream in streams:
        stream.start()
    while any(stream.is_alive() for stream in streams):
        asked = time.monotonic()
        if request(server.port, "GET", "/health")[0] != 200:
            sys.exit("/health did not answer 200")
        health.append(time.monotonic() - asked)
        time.sleep(0.02)
    return sum(counts) / (time.monotonic() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--kvasir", default="build/release/kvasir")
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[:2]
    server = Server(options, cores)
    speeds = {False: [], True: []}
    health = {False: [], True: []}
    try:
        one_round(server, options, [])
        for _ in range(options.rounds):
            for busy in (False, True):
                company = subprocess.Popen([sys.executable, "-c", "while True: pass"],
                                           preexec_fn=lambda: os.sched_setaffinity(0, cores[:1])) if busy else None
                time.sleep(0.5)
                speeds[busy].append(one_round(server, options, health[busy]))
                if company:
                    company.kill()
                    company.wait()
    finally:
        server.process.terminate()
        server.process.wait()
    for busy, name in ((False, "quiet"), (True, "company")):
        values, waits = speeds[busy], sorted(health[busy])
        print(f"{name:8} {statistics.median(values):7.1f} tok/s [{min(values):.1f}, {max(values):.1f}]   "
              f"/health p99 {1e3 * waits[int(0.99 * (len(waits) - 1))]:.1f} ms, slowest {1e3 * waits[-1]:.1f} ms")
    kept = [b / a for a, b in zip(speeds[False], speeds[True])]
    print(f"kept     {100 * statistics.median(kept):.0f} % [{100 * min(kept):.0f}, {100 * max(kept):.0f}]")


if __name__ == "__main__":
    main()
