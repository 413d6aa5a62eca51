"""`kvasir bench serve`: what it sends, what it makes of good and bad answers, and a real server."""

import http.server
import json
import os
import pty
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from cli_harness import BINARY, SMOLLM2, ProgramTest, clean_environment, kvasir, need
from server_harness import Server

PIECES = 4  # Of each answer of the stub.


class StubServer:
    """Speaks just enough of the protocol; the first part of the path says how it (mis)behaves:
    http://127.0.0.1:PORT/hangup. Keeps the bodies it was sent."""

    def __enter__(self):
        stub = self
        self.bodies = []
        self.keys = []
        self.lock = threading.Lock()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                self.whole(200, {"object": "list", "data": [{"id": "stub-model", "object": "model"}]})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                mode, path = re.fullmatch(r"/(\w+)(/.*)", self.path).groups()
                if path == "/tokenize":
                    # Two tokens a word, for whoever is asked in the mode "tokens".
                    text = body.get("content") or body.get("prompt")
                    known = mode == "tokens" and "content" in body
                    return self.whole(200 if known else 404, {"tokens": [0] * (2 * len(text.split()))})
                with stub.lock:
                    stub.bodies.append(body)
                    stub.keys.append(self.headers.get("Authorization"))
                    number = len(stub.bodies)
                getattr(self, mode)(number)

            def whole(self, status, reply):
                data = json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def start(self):
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Connection", "close")
                self.end_headers()
                self.close_connection = True

            def event(self, event):
                self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
                self.wfile.flush()

            def text(self, number, count=PIECES):
                if self.path.endswith("/chat/completions"):
                    self.event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
                for i in range(count):
                    if self.path.endswith("/chat/completions"):
                        choice = {"delta": {"content": f" r{number}p{i}"}}
                    else:
                        choice = {"text": f" r{number}p{i}"}
                    self.event({"choices": [{"index": 0, "finish_reason": None, **choice}]})

            def conclude(self, **fields):
                self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}], **fields})
                self.wfile.write(b"data: [DONE]\n\n")

            def good(self, number):
                self.start()
                self.wfile.write(b": a comment\r\n\r\n")
                self.text(number)
                self.conclude()

            tokens = good

            def usage(self, number):
                self.start()
                self.text(number)
                self.conclude()
                self.event({"choices": [], "usage": {
                    "prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 25}}})

            def llama(self, number):
                self.start()
                self.text(number)
                self.conclude(usage={"prompt_tokens": 50, "completion_tokens": PIECES},
                            timings={"cache_n": 40, "prompt_n": 10})

            def dribble(self, number):
                """One event in many pieces, then several events in one; lines end in CR LF; text beyond ASCII."""
                self.start()
                events = [{"choices": [{"delta": {"content": "\u00e9\u4e16"}}]}] * PIECES
                data = b"".join(b"event: message\r\ndata:" + json.dumps(e, ensure_ascii=False).encode() + b"\r\n\r\n"
                                for e in events)
                for i in range(0, 80, 3):
                    self.wfile.write(data[i:min(i + 3, 80)])
                    self.wfile.flush()
                    time.sleep(0.001)
                self.wfile.write(data[80:])
                self.conclude()

            def status500(self, _):
                self.whole(500, {"error": {"message": "out of \x1b luck", "type": "server_error"}})

            def flaky(self, number):
                if number % 2 == 0:
                    return self.whole(429, {"error": {"message": "too much"}})
                self.good(number)

            def plain(self, _):
                self.whole(200, {"choices": [{"message": {"content": "not streamed"}}]})

            def hangup(self, number):
                self.start()
                self.text(number, 2)

            def drop(self, _):
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)

            def garbage(self, _):
                self.start()
                self.wfile.write(b"data: {not json\n\n")

            def late_error(self, number):
                self.start()
                self.text(number, 1)
                self.event({"error": {"message": "lost my mind", "code": 500}})

            def silent(self, _):
                time.sleep(5)

            def slow(self, number):
                time.sleep(0.2)
                self.good(number)

            def endless(self, number):
                self.start()
                while True:
                    self.text(number, 1)
                    time.sleep(0.02)

        class Quiet(http.server.ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False
            request_queue_size = 256

            def handle_error(self, *_):
                pass  # The client hung up, as it may.

        self.server = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def prompts(self):
        """The texts asked last in each request, in no order."""
        return [b["messages"][-1]["content"] if "messages" in b else b["prompt"] for b in self.bodies]


def bench(url, *args, code=0, timeout=120):
    """The JSON of a run that must end with `code`."""
    result = kvasir("bench", "serve", "--url", url, "--warmup", "0", "--json", "-", *map(str, args), timeout=timeout)
    if result.returncode != code:
        raise AssertionError(f"{args}: exit code {result.returncode}\n{result.stdout.decode()}{result.stderr.decode()}")
    if result.stderr:
        raise AssertionError(f"{args}: {result.stderr.decode()}")
    return json.loads(result.stdout)


class UsageTest(ProgramTest):
    def test_wrong_options(self):
        url = ["--url", "http://127.0.0.1:9"]
        self.fails("bench", "serve", says="--url")
        self.fails("bench", "serve", "--url", "https://x", says="only http://")
        self.fails("bench", "serve", *url, "--scenario", "surprise", says="shared, chat, unique or replay")
        self.fails("bench", "serve", *url, "--scenario", "replay", says="--trace")
        self.fails("bench", "serve", *url, "--trace", "x", says="--scenario replay")
        self.fails("bench", "serve", *url, "--requests", "0")
        self.fails("bench", "serve", *url, "--endpoint", "responses", says="chat or completions")
        self.fails("bench", "serve", *url, "--vs-model", "m", says="--vs-url")
        self.fails("bench", "serve", *url, "--json", "-", "--html", "-", says="only one")
        with tempfile.TemporaryDirectory() as folder:
            page = os.path.join(folder, "missing", "page.html")
            self.fails("bench", "serve", *url, "--html", page, code=1, says=f"{page}: cannot be written")

    def test_bad_traces_are_named_by_line(self):
        good = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}
        cases = {
            "must be an object, is array": "[]", "not JSON": "{",
            '"timestamp" must be a number, is string': json.dumps({**good, "timestamp": "now"}),
            '"input_length" must be a count of tokens from 1 to 10000000, is 0': json.dumps({**good, "input_length": 0}),
            '"output_length" must be a count of tokens from 0 to 10000000, is -1': json.dumps({**good, "output_length": -1}),
            '"output_length" must be a count of tokens from 0 to 10000000, is null': json.dumps({**good, "output_length": None}),
            "1 hash_id for 600 tokens in blocks of 512, want 2 (--trace-block)": json.dumps({**good, "hash_ids": [1]}),
            "hash_ids[1] must be a whole number": json.dumps({**good, "hash_ids": [1, "2"]}),
            "hash_ids[0] must be a whole number": json.dumps({**good, "hash_ids": [-1, 2]}),
            '"hash_ids" must be an array, is number': json.dumps({**good, "hash_ids": 5}),
            'has no "hash_ids"': json.dumps({k: v for k, v in good.items() if k != "hash_ids"}),
        }
        # Only for who follows times and lengths.
        absent = {f'has no "{key}"': json.dumps({k: v for k, v in good.items() if k != key})
                  for key in ("timestamp", "input_length", "output_length")}
        for says, line in {**cases, **absent}.items():
            with self.subTest(says=says), tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
                file.write(json.dumps(good) + "\n\n" + line + "\n")
                file.flush()
                self.fails("bench", "serve", "--url", "http://127.0.0.1:9", "--scenario", "replay",
                           "--trace", file.name, says=[says, f"{file.name}:3:"])
                if says in absent:
                    self.works("bench", "evict", "--trace", file.name)
                else:  # One trace is right for both, or for neither.
                    self.fails("bench", "evict", "--trace", file.name, says=[says, f"{file.name}:3:"])
        self.fails("bench", "serve", "--url", "http://127.0.0.1:9", "--scenario", "replay", "--trace", "/nonexistent",
                   says="/nonexistent")

    def test_nobody_there(self):
        with socket.socket() as taken:  # Bound, not listening.
            taken.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{taken.getsockname()[1]}"
            self.fails("bench", "serve", "--url", url, code=1, says="cannot connect")
            report = bench(url, "--model", "m", "-n", 5, code=1)["servers"][0]
        self.assertEqual((report["requests"], report["succeeded"], report["failed"]), (5, 0, 5))
        self.assertEqual(report["errors"]["connect"]["count"], 5)
        self.assertIn("refused", report["errors"]["connect"]["example"])
        self.assertEqual(report["ttft_ms"]["count"], 0)


class StubTest(ProgramTest):
    def test_what_is_sent(self):
        with StubServer() as stub:
            bench(stub.url + "/good/v1", "-n", 3, "--ignore-eos", "--output-tokens", 9, "--api-key", "secret")
            for body in stub.bodies:
                self.assertEqual(body["model"], "stub-model")
                self.assertEqual([m["role"] for m in body["messages"]], ["user"])
                self.assertEqual((body["max_tokens"], body["temperature"], body["stream"]), (9, 0, True))
                self.assertEqual(body["stream_options"], {"include_usage": True})
                self.assertIs(body["ignore_eos"], True)
            self.assertEqual(stub.keys, ["Bearer secret"] * 3)
        with StubServer() as stub:
            bench(stub.url + "/good", "-n", 3, "--endpoint", "completions", "--model", "other")
            for body in stub.bodies:
                self.assertEqual(body["model"], "other")
                self.assertIsInstance(body["prompt"], str)
                self.assertNotIn("ignore_eos", body)

    def sent(self, *args, path="/good"):
        with StubServer() as stub:
            bench(stub.url + path, *args)
            return stub.prompts()

    def test_shared_and_unique_prompts(self):
        args = ["-n", 6, "--prefix-tokens", 100, "--tail-tokens", 10]
        prompts = self.sent(*args)
        self.assertEqual(len(set(prompts)), 6)
        self.assertEqual(len({p.split("\n")[0] for p in prompts}), 1)
        self.assertEqual({len(p.split()) for p in prompts}, {110})
        self.assertEqual(sorted(self.sent(*args)), sorted(prompts))
        other = self.sent(*args, "--seed", 2)
        self.assertFalse({p.split("\n")[0] for p in prompts} & {p.split("\n")[0] for p in other})
        unique = self.sent("-n", 6, "--scenario", "unique", "--tail-tokens", 50)
        self.assertEqual({len(p.split()) for p in unique}, {50})
        self.assertEqual(len({" ".join(p.split()[:3]) for p in unique}), 6)

    def test_lengths_follow_the_servers_tokenizer(self):
        args = ["-n", 2, "--prefix-tokens", 100, "--tail-tokens", 10]
        self.assertEqual({len(p.split()) for p in self.sent(*args, path="/tokens")}, {55})

    def test_rounds_have_new_texts_and_both_servers_the_same(self):
        with StubServer() as a, StubServer() as b:
            report = bench(a.url + "/good", "--vs-url", b.url + "/usage", "-n", 4, "--rounds", 2)
            self.assertEqual(sorted(a.prompts()), sorted(b.prompts()))
            self.assertEqual(len({p.split("\n")[0] for p in a.prompts()}), 2)
        self.assertEqual([len(s["rounds"]) for s in report["servers"]], [2, 2])
        self.assertEqual([s["requests"] for s in report["servers"]], [8, 8])
        self.assertEqual([s["output_tokens"] for s in report["servers"]], [8 * PIECES, 8 * 7])
        self.assertAlmostEqual(report["ratios"]["output_tokens"], PIECES / 7)
        self.assertIsNone(report["ratios"]["cached_percent"])

    def test_chat_repeats_the_servers_own_answers(self):
        with StubServer() as stub:
            report = bench(stub.url + "/good", "--scenario", "chat", "-n", 7, "--turns", 3, "-c", 2)["servers"][0]
            bodies = stub.bodies
        self.assertEqual(report["succeeded"], 7)
        self.assertEqual(sorted(len(b["messages"]) for b in bodies), [1, 1, 1, 3, 3, 5, 5])
        answers = ["".join(f" r{n + 1}p{i}" for i in range(PIECES)) for n in range(len(bodies))]
        for body in bodies:
            roles = [m["role"] for m in body["messages"]]
            self.assertEqual(roles, ["user", "assistant"] * (len(roles) // 2) + ["user"])
            if len(roles) > 1:  # What went before is the earlier request and its answer.
                earlier = [i for i, b in enumerate(bodies) if b["messages"] == body["messages"][:-2]]
                self.assertEqual(len(earlier), 1)
                self.assertEqual(body["messages"][-2]["content"], answers[earlier[0]])

    def test_replay(self):
        entries = [(0, 600, [7, 8]), (0, 700, [7, 9]), (100, 512, [7]), (200, 100, [5])]
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            for start, length, ids in entries:
                file.write(json.dumps({"timestamp": start, "input_length": length, "output_length": length // 100,
                                       "hash_ids": ids}) + "\n")
            file.flush()
            args = ["--scenario", "replay", "--trace", file.name]
            with StubServer() as stub:
                report = bench(stub.url + "/good", *args)
                by_length = {len(p.split()): p for p in stub.prompts()}
                self.assertEqual(sorted(b["max_tokens"] for b in stub.bodies), [1, 5, 6, 7])
            self.assertEqual(report["load"]["loop"], "open")
            self.assertEqual([s["start_ms"] for s in sorted(report["servers"][0]["samples"],
                                                            key=lambda s: s["start_ms"])], [0, 0, 100, 200])
            self.assertEqual(set(by_length), {600, 700, 512, 100})
            self.assertTrue(by_length[600].startswith(by_length[512] + " "))
            self.assertTrue(by_length[700].startswith(by_length[512] + " "))
            self.assertNotEqual(by_length[600].split()[512:520], by_length[700].split()[512:520])
            self.assertNotEqual(by_length[100].split()[:8], by_length[512].split()[:8])
            with StubServer() as stub:
                bench(stub.url + "/good", *args, "--trace-scale", 0.5, "-c", 2, "-n", 3)
                self.assertEqual(sorted(len(p.split()) for p in stub.prompts()), [256, 300, 350])

    def test_counts_and_sources_of_tokens(self):
        with StubServer() as stub:
            good = bench(stub.url + "/good", "-n", 5)["servers"][0]
            usage = bench(stub.url + "/usage", "-n", 5)["servers"][0]
            llama = bench(stub.url + "/llama", "-n", 5)["servers"][0]
        self.assertEqual((good["output_tokens"], good["prompt_tokens"], good["cached_tokens"]), (5 * PIECES, None, None))
        self.assertEqual((usage["output_tokens"], usage["prompt_tokens"], usage["cached_tokens"]), (35, 500, 125))
        self.assertEqual(usage["cached_share"], 0.25)
        self.assertEqual((llama["prompt_tokens"], llama["cached_tokens"], llama["cached_share"]), (250, 200, 0.8))
        for report in (good, usage, llama):
            self.assertEqual(report["ttft_ms"]["count"], 5)
            self.assertEqual(report["gap_ms"]["count"], 5 * (PIECES - 1))
            self.assertEqual(report["latency_ms"]["count"], 5)
            for name in ("ttft_ms", "gap_ms", "latency_ms"):
                values = [report[name][k] for k in ("p50", "p95", "p99", "max")]
                self.assertEqual(values, sorted(values), name)
                self.assertGreaterEqual(values[0], 0.0)

    def test_events_in_any_pieces(self):
        with StubServer() as stub:
            report = bench(stub.url + "/dribble", "-n", 4, "--scenario", "chat", "--turns", 2, "-c", 1)["servers"][0]
            self.assertEqual({b["messages"][1]["content"] for b in stub.bodies if len(b["messages"]) > 1},
                             {"\u00e9\u4e16" * PIECES})
        self.assertEqual((report["succeeded"], report["output_tokens"]), (4, 4 * PIECES))

    def test_progress_is_for_terminals(self):
        with StubServer() as stub:
            command = ["bench", "serve", "--url", stub.url + "/slow", "-n", "6", "-c", "2", "--warmup", "2"]
            self.assertEqual(self.works(*command).stderr, b"")
            keyboard, screen = pty.openpty()
            try:
                subprocess.run([BINARY, *command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=screen,
                               env=clean_environment(), timeout=60, check=True)
                shown = os.read(keyboard, 1 << 16).decode()
            finally:
                os.close(keyboard)
                os.close(screen)
        self.assertIn("warming up", shown)
        self.assertRegex(shown, r"\rload: \d done, 2 under way")
        self.assertTrue(shown.endswith("\r\x1b[K"), repr(shown[-80:]))  # Gone at the end.

    def test_failures_are_counted_by_kind(self):
        kinds = {"status500": "HTTP 500", "plain": "no event stream", "hangup": "answer cut short",
                 "drop": "connection lost", "garbage": "malformed event", "late_error": "error in the stream",
                 "silent": "timeout", "endless": "timeout"}
        for mode, kind in kinds.items():
            with self.subTest(mode), StubServer() as stub:
                timeout = 0.5 if kind == "timeout" else 60
                report = bench(f"{stub.url}/{mode}", "-n", 4, "--timeout", timeout, code=1)["servers"][0]
                self.assertEqual((report["requests"], report["succeeded"], report["failed"]), (4, 0, 4))
                self.assertEqual({k: v["count"] for k, v in report["errors"].items()}, {kind: 4})
                self.assertEqual({s["error"] for s in report["samples"]}, {kind})
                self.assertNotIn("\x1b", report["errors"][kind]["example"])
        with StubServer() as stub:
            report = bench(f"{stub.url}/status500", "-n", 1, code=1)["servers"][0]
            self.assertIn("luck", report["errors"]["HTTP 500"]["example"])

    def test_some_failures(self):
        with StubServer() as stub:
            report = bench(stub.url + "/flaky", "-n", 6, "-c", 1)["servers"][0]
            self.assertEqual((report["succeeded"], report["failed"]), (3, 3))
            self.assertEqual(report["errors"], {"HTTP 429": {"count": 3, "example": "too much"}})
            self.assertEqual(report["output_tokens"], 3 * PIECES)
        with StubServer() as stub:  # The second turn fails: there is nothing to ask a third about.
            chat = ["--scenario", "chat", "--turns", 3, "-c", 1]
            report = bench(stub.url + "/flaky", "-n", 3, *chat)["servers"][0]
            self.assertEqual((report["requests"], report["succeeded"], report["not_asked"]), (2, 1, 1))

    def test_open_loop_counts_from_the_intended_start(self):
        with StubServer() as stub:
            report = bench(stub.url + "/slow", "-n", 5, "--rate", 1000, "-c", 1)
        server = report["servers"][0]
        self.assertEqual(report["load"]["loop"], "open")
        self.assertEqual(server["succeeded"], 5)
        # One after the other, 0.2 s each, all meant to start at once: the last one waited for the others.
        self.assertGreaterEqual(server["ttft_ms"]["max"], 5 * 200 - 50)
        starts = sorted(s["start_ms"] for s in server["samples"])
        self.assertLess(starts[-1], 100)
        with StubServer() as stub:
            self.assertEqual([s["start_ms"] for s in sorted(
                bench(stub.url + "/good", "-n", 5, "--rate", 1000)["servers"][0]["samples"],
                key=lambda s: s["start_ms"])], starts)

    def test_duration_ends_the_load(self):
        with StubServer() as stub:
            report = bench(stub.url + "/slow", "--duration", 0.5, "-c", 2)["servers"][0]
            self.assertEqual(report["failed"], 0)
            self.assertGreaterEqual(report["succeeded"], 2)
            self.assertLessEqual(report["succeeded"], 8)

    def test_interrupted(self):
        with StubServer() as stub:
            process = subprocess.Popen([BINARY, "bench", "serve", "--url", stub.url + "/slow", "--warmup", "0", "-n",
                                        "100000", "-c", "2", "--json", "-"], stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, env=clean_environment())
            while len(stub.bodies) < 5:
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=20)
        self.assertEqual(process.returncode, 130)
        report = json.loads(out)
        self.assertTrue(report["interrupted"])
        self.assertEqual(report["servers"][0]["failed"], 0)
        self.assertGreaterEqual(report["servers"][0]["succeeded"], 1)

    def test_table_and_page(self):
        with tempfile.TemporaryDirectory() as folder, StubServer() as stub:
            page = os.path.join(folder, "page.html")
            text = self.works("bench", "serve", "--url", stub.url + "/flaky", "--vs-url", stub.url + "/usage", "--model",
                              "<b>&", "--html", page).stdout.decode()
            for part in ("output tokens/s", "A / B", "time to first token", "p95", "reused", "HTTP 429", "16"):
                self.assertIn(part, text)
            with open(page, encoding="utf-8") as file:
                html = file.read()
        self.assertEqual(html.count("<svg"), 6)
        self.assertEqual(html.count("</svg>"), 6)
        self.assertIn("&lt;b&gt;&amp;", html)
        self.assertNotIn("<b>&", html)
        self.assertNotIn("<script", html)
        self.assertNotRegex(html, r'(src|href)=|url\(')
        self.assertNotRegex(html, r"\b(nan|inf)\b")


class RealServerTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        need(SMOLLM2)
        cls.server = Server(SMOLLM2, "--max-batch", 8)

    @classmethod
    def tearDownClass(cls):
        cls.server.kill()

    def test_shared(self):
        report = bench(self.server.url, "-n", 6, "-c", 3, "--prefix-tokens", 200, "--tail-tokens", 20,
                       "--output-tokens", 8, "--ignore-eos", "--seed", 77)
        self.assertTrue(report["load"]["words_per_token_measured"])
        server = report["servers"][0]
        self.assertEqual((server["succeeded"], server["failed"], server["with_usage"]), (6, 0, 6))
        self.assertEqual(server["output_tokens"], 6 * 8)
        self.assertEqual({s["output_tokens"] for s in server["samples"]}, {8})
        # The template adds a few tokens to each prompt.
        self.assertGreaterEqual(server["prompt_tokens"], 6 * 220 * 0.95)
        self.assertLessEqual(server["prompt_tokens"], 6 * (220 * 1.05 + 60))
        self.assertEqual(server["prompt_tokens"], sum(s["prompt_tokens"] for s in server["samples"]))
        # All but the first find the common beginning, up to a block of 16.
        self.assertGreaterEqual(server["cached_tokens"], 5 * (200 * 0.95 - 16))
        self.assertLess(server["cached_tokens"], server["prompt_tokens"])

    def test_chat_reuses_the_turns_before(self):
        server = bench(self.server.url, "--scenario", "chat", "-n", 6, "--turns", 3, "-c", 2, "--prefix-tokens", 0,
                       "--tail-tokens", 60, "--output-tokens", 8, "--seed", 78)["servers"][0]
        self.assertEqual(server["failed"], 0)
        self.assertGreater(server["cached_share"], 0.3)

    def test_unique_and_completions(self):
        server = bench(self.server.url + "/v1", "--scenario", "unique", "-n", 3, "--tail-tokens", 100, "--output-tokens",
                       4, "--ignore-eos", "--endpoint", "completions", "--seed", 79)["servers"][0]
        self.assertEqual((server["succeeded"], server["output_tokens"]), (3, 12))
        self.assertLess(server["cached_share"], 0.1)

    def test_wrong_model_and_no_room(self):
        server = bench(self.server.url, "--model", "nonesuch", "-n", 2, code=1)["servers"][0]
        self.assertEqual(server["errors"]["HTTP 404"]["count"], 2)
        server = bench(self.server.url, "--output-tokens", 900000, "-n", 2, code=1)["servers"][0]
        self.assertEqual(server["errors"]["HTTP 400"]["count"], 2)


if __name__ == "__main__":
    unittest.main()
