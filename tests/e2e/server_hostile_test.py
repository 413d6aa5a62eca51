"""Requests made to hurt: what one client sends must cost the others nothing."""

import os
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cli_harness import SMOLLM2, need  # noqa: E402
from server_harness import Server, Stream  # noqa: E402

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
            # The second prompt finds the 100 choices of the first one waiting.
            self.refused(server, "/v1/completions", {"prompt": ["a", "b"], "n": 100, **endless}, 429,
                         "rate_limit_exceeded", "sequences are waiting")
            self.assertEqual(server.complete("1, 2,", max_tokens=2, n=4)["usage"]["completion_tokens"], 8)
            self.assertEqual(server.metrics()["kvasir_engine_requests_refused_total"], 1)

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


if __name__ == "__main__":
    unittest.main()
