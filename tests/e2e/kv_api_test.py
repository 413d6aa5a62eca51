"""GET /v1/kv, POST /v1/kv/pin, /unpin, /clear on a real server: what a key sees and does, and that it works."""

import os
import re
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cli_harness import SMOLLM2, need  # noqa: E402
from server_harness import Server, words  # noqa: E402

BLOCK = 16
ALPHA = {"Authorization": "Bearer alpha"}
BETA = {"Authorization": "Bearer beta"}


class KvApiTest(unittest.TestCase):
    ARGS = ()

    @classmethod
    def setUpClass(cls):
        need(SMOLLM2)
        cls.server = Server(SMOLLM2, *cls.ARGS)

    @classmethod
    def tearDownClass(cls):
        cls.server.kill()

    def get(self, path, key=None, status=200):
        got, _, reply = self.server.request("GET", path, headers=key)
        self.assertEqual(got, status, reply)
        return reply

    def post(self, path, body, key=None, status=200, code=None):
        got, _, reply = self.server.request("POST", path, body, key)
        self.assertEqual(got, status, reply)
        if status != 200:
            self.assertEqual(set(reply["error"]), {"message", "type", "param", "code"})
            self.assertEqual(reply["error"]["code"], code)
        return reply

    def ask(self, prompt, key=None, **fields):
        """The number of tokens that came from the cache, and that the prompt had."""
        body = {"prompt": prompt, "temperature": 0, "max_tokens": 1, **fields}
        usage = self.server.post("/v1/completions", body, key)["usage"]
        return usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"]

    def entries(self, key=None, limit=100, query=""):
        """All pages."""
        found, cursor, pages = [], None, 0
        while True:
            page = self.get(f"/v1/kv?limit={limit}{query}" + (f"&cursor={cursor}" if cursor else ""), key)
            self.assertLessEqual(len(page["data"]), limit)
            found += page["data"]
            pages += 1
            cursor = page["next_cursor"]
            if cursor is None:
                return found
            self.assertLess(pages, 1000)


class TwoKeysTest(KvApiTest):
    ARGS = ("--kv-memory", "64M", "--api-key", "alpha", "--api-key", "beta", "--max-batch", "4")

    def test_a_key_is_needed(self):
        self.assertEqual(self.server.request("GET", "/v1/kv")[0], 401)
        for path in ("pin", "unpin", "clear"):
            self.assertEqual(self.server.request("POST", f"/v1/kv/{path}", {})[0], 401)

    def test_each_key_lists_and_touches_its_own(self):
        prompt = words("mine", 60)
        _, tokens = self.ask(prompt, ALPHA)
        full = tokens // BLOCK
        before = time.time()
        entries = self.entries(ALPHA)
        own = {e["hash"]: e for e in entries}
        self.assertEqual(len(own), len(entries), "each entry is listed once")
        self.assertGreaterEqual(len(own), full)
        for entry in entries:
            self.assertRegex(entry["hash"], r"\A[0-9a-f]{64}\Z")
            self.assertEqual(entry["depth"] % BLOCK, 0)
            self.assertGreater(entry["bytes"], 0)
            self.assertGreaterEqual(entry["uses"], 1)
            self.assertFalse(entry["in_use"] or entry["pinned"])
            self.assertLess(abs(entry["last_used_at"] + entry["idle_s"] - before), 60)
            self.assertNotIn("text", entry)
            if entry["depth"] > 0:
                self.assertEqual(own[entry["parent"]]["depth"] + own[entry["parent"]]["tokens"], entry["depth"])
        # The same in pages of three.
        self.assertEqual(sorted(e["hash"] for e in self.entries(ALPHA, limit=3)), sorted(own))
        # The other key sees none of it, whatever it asked itself, and can do nothing to it.
        self.ask(prompt, BETA)
        others = {e["hash"] for e in self.entries(BETA)}
        self.assertFalse(others & set(own))
        deepest = max(entries, key=lambda e: e["depth"])["hash"]
        self.post("/v1/kv/pin", {"hash": deepest}, BETA, 404, "not_cached")
        pin = self.post("/v1/kv/pin", {"prompt": prompt}, ALPHA)
        self.post("/v1/kv/unpin", {"hash": pin["hash"]}, BETA, 404, "not_pinned")
        self.post("/v1/kv/unpin", {"prompt": prompt}, BETA, 404, "not_pinned")
        self.assertEqual(self.post("/v1/kv/unpin", {"prompt": prompt}, ALPHA)["hash"], pin["hash"])
        self.post("/v1/kv/unpin", {"prompt": prompt}, ALPHA, 404, "not_pinned")
        cleared = self.post("/v1/kv/clear", {}, BETA)["blocks"]
        self.assertGreaterEqual(cleared, full)
        self.assertEqual(self.entries(BETA), [])
        self.assertEqual({e["hash"] for e in self.entries(ALPHA)}, set(own))
        self.assertEqual(self.ask(prompt, ALPHA)[0], tokens - 1)
        self.assertEqual(self.ask(prompt, BETA)[0], 0)

    def test_salts_are_apart_too(self):
        prompt = words("salted", 40)
        self.ask(prompt, ALPHA, cache_salt="a b&c")
        salted = self.entries(ALPHA, query="&cache_salt=a%20b%26c")
        self.assertGreater(len(salted), 1)
        self.assertFalse({e["hash"] for e in salted} & {e["hash"] for e in self.entries(ALPHA)})
        self.post("/v1/kv/pin", {"prompt": prompt}, ALPHA, 404, "not_cached")
        self.post("/v1/kv/pin", {"prompt": prompt, "cache_salt": "a b&c"}, ALPHA)
        # A clearing leaves pins alone.
        self.post("/v1/kv/clear", {"cache_salt": "a b&c"}, ALPHA)
        kept = self.entries(ALPHA, query="&cache_salt=a%20b%26c")
        self.assertGreater(len(kept), 1)
        self.assertTrue(all(e["pinned"] for e in kept))
        self.post("/v1/kv/unpin", {"prompt": prompt, "cache_salt": "a b&c"}, ALPHA)

    def test_wrong_requests(self):
        for query, param in [("limit=0", "limit"), ("limit=1001", "limit"), ("limit=x", "limit"),
                             ("cursor=!", "cursor"), ("cache_salt=%f", "cache_salt")]:
            self.assertEqual(self.get(f"/v1/kv?{query}", ALPHA, 400)["error"]["param"], param)
        for body, param in [({}, None), ({"prompt": "x", "hash": "0" * 64}, None), ({"hash": "12"}, "hash"),
                            ({"prompt": ""}, "prompt"), ({"prompt": ["a", "b"]}, "prompt"),
                            ({"prompt": "x", "ttl_s": 0}, "ttl_s"), ({"prompt": "x", "ttl_s": 1e9}, "ttl_s"),
                            ({"messages": []}, "messages"), ({"prompt": [10 ** 9]}, "prompt[0]")]:
            with self.subTest(body=body):
                reply = self.post("/v1/kv/pin", body, ALPHA, 400)
                self.assertEqual(reply["error"]["param"], param)
        self.post("/v1/kv/pin", {"prompt": "x", "model": "gpt-9"}, ALPHA, 404, "model_not_found")
        self.post("/v1/kv/pin", {"hash": "0" * 64}, ALPHA, 404, "not_cached")
        self.assertEqual(self.server.request("POST", "/v1/kv", {}, ALPHA)[0], 405)
        self.assertEqual(self.server.request("GET", "/v1/kv/pin", headers=ALPHA)[0], 405)
        # A cursor beyond everything is the end.
        self.assertEqual(self.get("/v1/kv?cursor=ffffffffffffffff", ALPHA)["data"], [])


class PressureTest(KvApiTest):
    # 23,040 bytes a token: about 700 tokens.
    ARGS = ("--kv-memory", "16M", "--ctx", "512", "--max-batch", "2")

    def fill(self, tag):
        """More than the cache holds."""
        for i in range(6):
            self.ask(words(f"{tag}{i}", 60))

    def test_a_pin_survives_pressure_until_its_time_is_over(self):
        kept, lost = words("kept", 30), words("lost", 30)
        _, tokens = self.ask(kept)
        self.ask(lost)
        pin = self.post("/v1/kv/pin", {"prompt": kept, "ttl_s": 600})
        self.assertEqual(pin["object"], "kv.pin")
        self.assertLessEqual(pin["tokens"], tokens)
        self.assertGreaterEqual(pin["tokens"], tokens // BLOCK * BLOCK)
        self.assertEqual(pin["blocks"], -(-pin["tokens"] // BLOCK))
        self.assertLess(abs(pin["expires_at"] - time.time() - 600), 30)
        self.assertEqual(pin["ttl_s"], 600)
        self.assertGreater(self.get("/v1/kv")["usage"]["pinned_bytes"], 0)
        self.fill("first")
        self.assertEqual(self.ask(lost)[0], 0, "it was to be evicted")
        self.assertEqual(self.ask(kept)[0], tokens - 1)
        ends = [e for e in self.entries() if "pin_expires_at" in e]
        self.assertEqual([(e["hash"], e["pin_expires_at"]) for e in ends], [(pin["hash"], pin["expires_at"])])
        # Another time to live: the same pin, by its name, for a second.
        again = self.post("/v1/kv/pin", {"hash": pin["hash"], "ttl_s": 1})
        self.assertEqual((again["hash"], again["tokens"]), (pin["hash"], pin["tokens"]))
        time.sleep(2.2)
        self.assertFalse(any(e["pinned"] for e in self.entries()))
        self.assertEqual(self.get("/v1/kv")["usage"]["pinned_bytes"], 0)
        self.fill("second")
        self.assertEqual(self.ask(kept)[0], 0, "its time is over")
        self.post("/v1/kv/unpin", {"hash": pin["hash"]}, status=404, code="not_pinned")

    def test_unpinned_is_like_any_other(self):
        prompt = words("briefly", 30)
        self.ask(prompt)
        pin = self.post("/v1/kv/pin", {"prompt": prompt})
        self.assertEqual(self.post("/v1/kv/unpin", {"hash": pin["hash"]})["hash"], pin["hash"])
        self.fill("third")
        self.assertEqual(self.ask(prompt)[0], 0)

    def test_pins_have_a_limit_and_requests_go_on(self):
        codes = []
        prompts = [words(f"pin{i}", 40) for i in range(8)]
        for prompt in prompts:
            self.ask(prompt)
            status, _, reply = self.server.request("POST", "/v1/kv/pin", {"prompt": prompt})
            codes.append(reply["error"]["code"] if status != 200 else "ok")
        self.assertIn("ok", codes)
        self.assertIn("pin_limit", codes)
        self.assertEqual(self.ask(words("alone", 80), max_tokens=20)[0], 0)
        for prompt, code in zip(prompts, codes):
            if code == "ok":
                self.post("/v1/kv/unpin", {"prompt": prompt})
        self.post("/v1/kv/clear", "")
        self.assertEqual(self.entries(), [])

    def test_messages(self):
        messages = [{"role": "system", "content": "You speak of " + words("thing", 30)}]
        self.server.chat([*messages, {"role": "user", "content": "Hi"}], max_tokens=1)
        pin = self.post("/v1/kv/pin", {"messages": messages})
        self.assertGreater(pin["tokens"], 30)
        longer = [*messages, {"role": "user", "content": "Not asked yet"}]
        self.post("/v1/kv/unpin", {"messages": longer}, status=404, code="not_pinned")
        self.fill("fourth")
        reply = self.server.chat([*messages, {"role": "user", "content": "Bye"}], max_tokens=1)
        self.assertGreaterEqual(reply["usage"]["prompt_tokens_details"]["cached_tokens"], pin["tokens"] - 1)
        self.post("/v1/kv/unpin", {"messages": messages})

    def test_eight_readers_during_load(self):
        stop, wrong, reads = threading.Event(), [], [0] * 8

        def read(index):
            while not stop.is_set():
                for path in ("/v1/kv?limit=5", "/metrics", "/v1/kv?limit=1000"):
                    status, _, reply = self.server.request("GET", path)
                    if status != 200:
                        wrong.append((path, status, reply))
                    elif path != "/metrics":
                        usage = reply["usage"]
                        if not usage["used_bytes"] <= usage["reserved_bytes"] <= usage["total_bytes"]:
                            wrong.append(usage)
                    reads[index] += 1

        readers = [threading.Thread(target=read, args=(i,)) for i in range(8)]
        alone = [self.server.complete(f"Count from {i}:", max_tokens=12)["choices"][0]["text"] for i in range(3)]
        for reader in readers:
            reader.start()
        try:
            for i in range(9):
                text = self.server.complete(f"Count from {i % 3}:", max_tokens=12)["choices"][0]["text"]
                self.assertEqual(text, alone[i % 3])
        finally:
            stop.set()
            for reader in readers:
                reader.join()
        self.assertEqual(wrong, [])
        self.assertTrue(all(reads), reads)


class PinShareTest(KvApiTest):
    # About 700 tokens; pins keep 350 at most, those of one key half of what others leave.
    ARGS = ("--kv-memory", "16M", "--ctx", "512", "--max-batch", "2", "--api-key", "alpha", "--api-key", "beta")

    def test_one_key_leaves_something_to_others(self):
        refused = 0
        for i in range(8):
            prompt, salt = words(f"greedy{i}", 30), f"salt {i % 3}"
            self.ask(prompt, ALPHA, cache_salt=salt)
            status, _, reply = self.server.request("POST", "/v1/kv/pin", {"prompt": prompt, "cache_salt": salt}, ALPHA)
            if status != 200:
                self.assertEqual((status, reply["error"]["code"]), (409, "pin_limit"))
                self.assertRegex(reply["error"]["message"], r"Your pins may keep \d+ blocks together")
                refused += 1
        self.assertIn(refused, range(3, 8))
        prompt = words("modest", 10)
        self.ask(prompt, BETA)
        self.post("/v1/kv/pin", {"prompt": prompt}, BETA)


class NoPinsTest(KvApiTest):
    ARGS = ("--kv-memory", "32M", "--ctx", "512", "--max-batch", "2", "--kv-strategy", "shared")

    def test_a_strategy_without_pins_says_so(self):
        prompt = words("region", 30)
        self.ask(prompt)
        self.assertGreater(len(self.entries()), 0)
        reply = self.post("/v1/kv/pin", {"prompt": prompt}, status=400, code="unsupported")
        self.assertIn("--kv-strategy paged", reply["error"]["message"])


class SmallMemoryTest(KvApiTest):
    # SmolLM2's context is 8,192 tokens, this holds about 700.
    ARGS = ("--kv-memory", "16M", "--max-batch", "2")

    def test_a_prompt_longer_than_the_memory_is_told_so(self):
        reply = self.post("/v1/completions", {"prompt": words("long", 500), "max_tokens": 4}, status=400,
                          code="context_length_exceeded")
        self.assertRegex(reply["error"]["message"], r"maximum context length is \d{3} tokens.*"
                                                    r"KV memory that holds no more; .* 8192 tokens")


class StartOfASmallMemoryTest(unittest.TestCase):
    def setUp(self):
        need(SMOLLM2)

    def start(self, *options):
        """What the memory is said to be, the context, and what is said to standard error."""
        with Server(SMOLLM2, *options) as server:
            context, memory = server.wait_for_output(r"context (\d+) tokens?, KV memory ([\d.]+ \w+) of").groups()
            return memory, int(context), server.log_text()

    def test_a_memory_that_makes_the_context_short_is_told(self):
        memory, context, said = self.start("--kv-memory", "720K")
        self.assertEqual((memory, context), ("720 KiB", 16))
        self.assertRegex(said, r"\Akvasir: warning: [^\n]*--kv-memory 720K[^\n]* 16 tokens; [^\n]* give --kv-memory 181M, "
                               r"or a smaller --kv-type [^\n]*8192\); --ctx 16 says")
        # What it tells to give is enough, both ways.
        memory, context, said = self.start("--kv-memory", "181M")
        self.assertEqual((memory, context, said), ("180 MiB", 8192, ""))
        self.assertEqual(self.start("--kv-memory", "720K", "--ctx", "16"), ("720 KiB", 16, ""))

    def test_what_the_memory_is_said_to_be(self):
        # int4: blocks of 16 tokens and, for each of --max-batch, its newest 16 keys and the unit before in f16.
        for batch in (1, 8):
            memory, _, said = self.start("--kv-memory", "5M", "--kv-type", "int4", "--max-batch", batch)
            self.assertEqual(memory, "4.9 MiB")
            needed = int(re.search(r"give --kv-memory (\d+)K \(", said).group(1))
            memory, context, said = self.start("--kv-memory", f"{needed}K", "--kv-type", "int4", "--max-batch", batch)
            self.assertEqual((memory, context, said), (f"{needed // 1024} MiB", 8192, ""))
        memory, context, _ = self.start("--kv-memory", "400K", "--kv-strategy", "static", "--max-batch", "1")
        self.assertEqual((memory, context), ("360 KiB", 16))


class ShowTextTest(KvApiTest):
    ARGS = ("--kv-memory", "32M", "--max-batch", "2", "--kv-show-text")

    def test_texts_and_the_end_of_the_server(self):
        prompt = words("shown", 25)
        self.ask(prompt)
        entries = sorted(self.entries(), key=lambda e: e["depth"])
        text = "".join(e["text"] for e in entries)
        self.assertTrue(prompt.startswith(text) and len(text) > 50, text)
        # While the server drains the engine answers no questions any more.
        slow = threading.Thread(target=lambda: self.server.complete("Once", max_tokens=400, ignore_eos=True))
        slow.start()
        self.server.wait_for_metric("kvasir_engine_running_sequences", lambda n: n > 0)
        self.server.terminate()
        deadline = time.monotonic() + 10
        status = 200
        while status == 200 and time.monotonic() < deadline:
            try:
                status, _, reply = self.server.request("GET", "/v1/kv")
            except OSError:  # It closes connections when it has ended.
                break
        if status != 200:
            self.assertEqual((status, reply["error"]["code"]), (503, "unavailable"))
        slow.join()
        self.assertEqual(self.server.process.wait(30), 0)


if __name__ == "__main__":
    unittest.main()
