"""Requests made to hurt: what one client sends must cost the others nothing."""

import http.client
import os
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cli_harness import BINARY, SMOLLM2, clean_environment, need  # noqa: E402
from server_harness import START_TIMEOUT_S, Server, Stream  # noqa: E402

# A sanitizer build on a busy machine takes some seconds for what takes tenths; without the limits under test
# each of these would take minutes.
LIMIT_S = 20


class CostTest(unittest.TestCase):
    def setUp(self):
        need(SMOLLM2)

    def refused(self, server, path, body, status, code, says):
        start = time.monotonic()
        got, _, reply = server.request("POST", path, body)
        self.assertEqual((got, reply["error"]["code"]), (status, code), reply)
        self.assertIn(says, reply["error"]["message"])
        self.assertLess(time.monotonic() - start, LIMIT_S)

    def test_bodies_that_would_take_long(self):
        wide = "{" + ",".join(f'"k{i}":1' for i in range(400_000)) + "}"
        long = "ab" * 6_000_000
        with Server(SMOLLM2, "--kv-memory", "64M", "--ctx", "512") as server:
            for path in ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize", "/apply-template"):
                self.refused(server, path, wide, 400, None, "too many members")
            self.refused(server, "/v1/completions", {"prompt": ["x", long]}, 400, "context_length_exceeded", "at least")
            self.refused(server, "/v1/chat/completions", {"messages": [{"role": "user", "content": long}]}, 400,
                         "context_length_exceeded", "at least")
            # What may fit is counted.
            self.refused(server, "/v1/completions", {"prompt": "ab " * 9000, "max_tokens": 1}, 400,
                         "context_length_exceeded", "requested 9002 tokens (9001 in the prompt")
            self.assertEqual(server.complete("1, 2,", max_tokens=2)["usage"]["completion_tokens"], 2)

    def test_choices_count_as_waiting(self):
        with Server(SMOLLM2, "--kv-memory", "64M", "--ctx", "256", "--max-batch", "2", "--max-queue", "8") as server:
            endless = {"max_tokens": 200, "ignore_eos": True, "temperature": 0}
            # Nobody else waits: asking again would not help.
            self.refused(server, "/v1/completions", {"prompt": ["a", "b"], "n": 100, **endless}, 400, None,
                         "n = 100 for 2 prompts makes 200 sequences, more than the 10 that this server takes at a time "
                         "(--max-batch 2 and --max-queue 8)")
            self.refused(server, "/v1/completions", {"prompt": "a", "n": 11, **endless}, 400, None,
                         "n = 11 for 1 prompt makes 11 sequences")
            # What fills every place is taken, and holds up only others.
            with Stream(server, "/v1/completions", {"prompt": ["a", "b"], "n": 5, **endless}) as client:
                self.assertEqual(client.open(), 200)
                self.refused(server, "/v1/completions", {"prompt": ["a", "b"], "n": 2}, 429, "rate_limit_exceeded",
                             "the queue is full: of other requests, sequences waiting: ")
            self.assertEqual(server.wait_for_metric("kvasir_engine_waiting_sequences", lambda v: v == 0), 0)
            self.assertEqual(server.complete("1, 2,", max_tokens=2, n=4)["usage"]["completion_tokens"], 8)
            self.assertEqual(server.complete(["1, 2,"] * 5, max_tokens=2, n=2)["usage"]["completion_tokens"], 20)

    def test_one_large_event_does_not_make_a_client_slow(self):
        """The first event of a stream that scores a long prompt has some megabytes."""
        body = {"prompt": [5 + i % 1000 for i in range(6000)], "echo": True, "logprobs": 20, "max_tokens": 8,
                "ignore_eos": True}
        with Server(SMOLLM2, "--kv-memory", "512M") as server:
            with Stream(server, "/v1/completions", body) as client:
                self.assertEqual(client.open(), 200)
                time.sleep(8)
                events = list(client.events())
            self.assertEqual(events[-1], "[DONE]")
            self.assertEqual(sum(len(e["choices"][0]["logprobs"]["tokens"]) for e in events[:-1]), 6008)

    def test_long_work_of_a_worker_holds_up_no_stream(self):
        """More texts to tokenize than this machine has cores: streams and probes go on meanwhile."""
        long = {"content": "a" * 8_000_000}
        with Server(SMOLLM2, "--kv-memory", "64M", "--ctx", "512") as server:
            with Stream(server, "/v1/completions", {"prompt": "x", "max_tokens": 500, "ignore_eos": True}) as client:
                client.open()
                events = client.events()
                next(events)
                heavy = [Stream(server, "/tokenize", {**long, "stream": False}) for _ in range(3)]
                for _ in range(3):
                    next(events)
                    self.assertEqual(server.request("GET", "/health")[0], 200)
                replies = server.metrics().get('kvasir_api_replies_total{route="/tokenize",status="200"}', 0)
                self.assertEqual(replies, 0, "the texts were too short for this test")
                for other in heavy:
                    other.close()


class SurroundingsTest(unittest.TestCase):
    def setUp(self):
        need(SMOLLM2)

    def test_wrong_addresses_are_in_the_log(self):
        with Server(SMOLLM2, "--kv-memory", "64M") as server:
            self.assertEqual(server.request("POST", "/chat/completions", {}, {"X-Request-Id": "lost"})[0], 404)
            line = server.log_of("lost")
            self.assertEqual((line["method"], line["path"], line["status"]), ("POST", "/chat/completions", "404"))
            self.assertEqual(server.request("GET", "/%1b[31m%ff", None, {"X-Request-Id": "red"})[0], 400)
            self.assertEqual(server.request("GET", "/x%ff%22%c2%9b", None, {"X-Request-Id": "bytes"})[0], 404)
            self.assertIn('path="/x', server.log_text())
            self.assertNotIn("\x1b", server.log_text())

    def test_keys_and_addresses_are_taken_as_meant(self):
        for option in ("--host", "--served-model-name", "--api-key"):
            ended = subprocess.run([BINARY, "serve", SMOLLM2, "--port", "0", option, ""], env=clean_environment(),
                                   capture_output=True, text=True, timeout=60)
            self.assertEqual(ended.returncode, 2, (option, ended.stdout, ended.stderr))
            self.assertIn("empty", ended.stderr)
        ended = subprocess.run([BINARY, "serve", SMOLLM2, "--port", "0", "--kv-memory", "1000T"], text=True,
                               env=clean_environment(), capture_output=True, timeout=60)
        self.assertEqual(ended.returncode, 2, ended.stderr)
        self.assertIn("more than the", ended.stderr)
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write("# ours\n \talpha \r\n\n  # indented\nbeta")
            keys.flush()
            with Server(SMOLLM2, "--kv-memory", "64M", "--api-key-file", keys.name) as server:
                for key, status in (("alpha", 200), ("beta", 200), ("# indented", 401), ("ours", 401)):
                    self.assertEqual(server.request("GET", "/v1/models", None, {"X-Api-Key": key})[0], status, key)

    def test_closed_standard_streams_do_not_become_sockets(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        process = subprocess.Popen([BINARY, "serve", SMOLLM2, "--kv-memory", "64M", "--port", str(port)],
                                   env=clean_environment(), preexec_fn=lambda: os.closerange(0, 3))
        try:
            deadline = time.monotonic() + START_TIMEOUT_S
            status = 0
            while status != 200 and time.monotonic() < deadline:
                time.sleep(0.05)
                self.assertIsNone(process.poll())
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                try:
                    connection.request("POST", "/v1/completions", '{"prompt": "x", "max_tokens": 1}')
                    status = connection.getresponse().status
                except ConnectionError:
                    pass
                finally:
                    connection.close()
            self.assertEqual(status, 200)
            for stream in range(3):
                self.assertEqual(os.readlink(f"/proc/{process.pid}/fd/{stream}"), "/dev/null")
        finally:
            process.kill()
            process.wait()


if __name__ == "__main__":
    unittest.main()
