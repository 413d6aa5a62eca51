"""The server's API end to end: shapes, fields, errors, keys, with the openai client and with plain HTTP."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import openai

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cli_harness import BINARY, GEMMA, ROOT, SMOLLM2, clean_environment, need  # noqa: E402
from server_harness import Server, Stream  # noqa: E402

MODEL = "SmolLM2-135M-Instruct.Q4_1"
SKY = [{"role": "user", "content": "Why is the sky blue?"}]


class ServerTest(unittest.TestCase):
    """One server for all tests of a class."""

    ARGS = ("--kv-memory", "256M")

    @classmethod
    def setUpClass(cls):
        need(SMOLLM2)
        cls.server = Server(SMOLLM2, *cls.ARGS)
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="none", max_retries=0, timeout=120)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.server.kill()

    def refused(self, path, body, status=400, param=None, code=None, says=""):
        got, _, reply = self.server.request("POST", path, body)
        self.assertEqual(got, status, reply)
        error = reply["error"]
        self.assertEqual(set(error), {"message", "type", "param", "code"})
        self.assertIn(says, error["message"])
        if param is not None:
            self.assertEqual(error["param"], param, error)
        if code is not None:
            self.assertEqual(error["code"], code, error)
        return error


class OpenAiClientTest(ServerTest):
    def chat(self, **fields):
        return self.client.chat.completions.create(
            **{"model": MODEL, "messages": SKY, "temperature": 0, "max_tokens": 16, **fields})

    def test_chat_and_its_stream_say_the_same(self):
        whole = self.chat()
        self.assertEqual(whole.object, "chat.completion")
        self.assertEqual(whole.model, MODEL)
        self.assertEqual(whole.choices[0].message.role, "assistant")
        self.assertEqual(whole.choices[0].finish_reason, "length")
        self.assertEqual(whole.usage.completion_tokens, 16)
        self.assertEqual(whole.usage.total_tokens, whole.usage.prompt_tokens + 16)
        self.assertTrue(whole.system_fingerprint.startswith("kvasir-"))
        chunks = list(self.chat(stream=True, stream_options={"include_usage": True}))
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in chunks if c.choices),
                         whole.choices[0].message.content)
        self.assertEqual([c.choices[0].finish_reason for c in chunks if c.choices][-1], "length")
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage.prompt_tokens, whole.usage.prompt_tokens)
        # The same prompt again: all but the token that must be computed to go on.
        self.assertEqual(chunks[-1].usage.prompt_tokens_details.cached_tokens, whole.usage.prompt_tokens - 1)
        self.assertTrue(all(c.usage is None for c in chunks[:-1]))

    def test_fifty_at_once(self):
        async def ask_all():
            async with openai.AsyncOpenAI(base_url=self.server.url + "/v1", api_key="none", max_retries=0,
                                          timeout=300) as client:
                return await asyncio.gather(*[
                    client.chat.completions.create(
                        model=MODEL, temperature=0, max_tokens=6,
                        messages=[{"role": "user", "content": f"Count from {i % 10}"}]) for i in range(50)])
        replies = asyncio.run(ask_all())
        self.assertEqual(len({r.id for r in replies}), 50)
        for i in range(10):
            self.assertEqual(len({replies[j].choices[0].message.content for j in range(i, 50, 10)}), 1)

    def test_chat_logprobs(self):
        reply = self.chat(logprobs=True, top_logprobs=3)
        content = reply.choices[0].logprobs.content
        self.assertEqual(len(content), 16)
        self.assertEqual("".join(t.token for t in content), reply.choices[0].message.content)
        for token in content:
            self.assertEqual(len(token.top_logprobs), 3)
            self.assertEqual(bytes(token.bytes).decode(), token.token)
            # Greedy: what was chosen is the best, and nothing is above certainty.
            self.assertEqual(token.top_logprobs[0].token, token.token)
            self.assertLessEqual(token.logprob, 0.0)
            self.assertGreaterEqual(token.top_logprobs[0].logprob, token.top_logprobs[1].logprob)
        streamed = [t for c in self.chat(logprobs=True, top_logprobs=3, stream=True)
                    if c.choices and c.choices[0].logprobs for t in c.choices[0].logprobs.content]
        self.assertEqual([(t.token, t.logprob) for t in streamed], [(t.token, t.logprob) for t in content])

    def test_choices_draw_with_consecutive_seeds(self):
        reply = self.chat(n=3, temperature=1.0, seed=5)
        self.assertEqual([c.index for c in reply.choices], [0, 1, 2])
        self.assertEqual(reply.usage.completion_tokens, 48)
        for i in range(3):
            alone = self.chat(temperature=1.0, seed=5 + i)
            self.assertEqual(alone.choices[0].message.content, reply.choices[i].message.content)
        streamed = ["", "", ""]
        for chunk in self.chat(n=3, temperature=1.0, seed=5, stream=True):
            for choice in chunk.choices:
                streamed[choice.index] += choice.delta.content or ""
        self.assertEqual(streamed, [c.message.content for c in reply.choices])

    def test_completions(self):
        complete = self.client.completions.create
        one = complete(model=MODEL, prompt="The capital of France is", temperature=0, max_tokens=4)
        self.assertTrue(one.choices[0].text.startswith(" Paris"))
        two = complete(model=MODEL, prompt=["The capital of France is", "1, 2, 3,"], temperature=0, max_tokens=4)
        self.assertEqual([c.index for c in two.choices], [0, 1])
        self.assertEqual(two.choices[0].text, one.choices[0].text)
        ids = self.server.post("/tokenize", {"content": "The capital of France is"})["tokens"]
        by_ids = complete(model=MODEL, prompt=ids, temperature=0, max_tokens=4)
        self.assertEqual(by_ids.choices[0].text, one.choices[0].text)
        lists = complete(model=MODEL, prompt=[ids, ids], temperature=0, max_tokens=4)
        self.assertEqual([c.text for c in lists.choices], [one.choices[0].text] * 2)
        streamed = "".join(c.choices[0].text for c in complete(
            model=MODEL, prompt="The capital of France is", temperature=0, max_tokens=4, stream=True))
        self.assertEqual(streamed, one.choices[0].text)

    def test_stop(self):
        full = self.client.completions.create(model=MODEL, prompt="1, 2,", temperature=0, max_tokens=24)
        self.assertIn("3, 4", full.choices[0].text)
        for stream in (False, True):
            reply = self.client.completions.create(model=MODEL, prompt="1, 2,", temperature=0, max_tokens=24,
                                                   stop=["3, 4"], stream=stream)
            pieces = list(reply) if stream else [reply]
            text = "".join(p.choices[0].text for p in pieces)
            self.assertEqual(text, full.choices[0].text.split("3, 4")[0])
            self.assertEqual(pieces[-1].choices[0].finish_reason, "stop")

    def test_echo_scores_the_prompt(self):
        prompt = "The capital of France is Paris"
        scored = self.client.completions.create(model=MODEL, prompt=prompt, max_tokens=0, echo=True, logprobs=2)
        choice = scored.choices[0]
        self.assertEqual(choice.text, prompt)
        self.assertEqual(scored.usage.completion_tokens, 0)
        logprobs = choice.logprobs
        self.assertEqual("".join(logprobs.tokens), prompt)
        self.assertIsNone(logprobs.token_logprobs[0])
        self.assertIsNone(logprobs.top_logprobs[0])
        self.assertEqual(logprobs.text_offset[0], 0)
        for token, offset in zip(logprobs.tokens, logprobs.text_offset):
            self.assertEqual(prompt[offset:offset + len(token)], token)
        # " Paris" after the rest is what the model says itself when it generates.
        rest = self.client.completions.create(model=MODEL, prompt="The capital of France is", max_tokens=1,
                                              temperature=0, logprobs=2)
        self.assertEqual(rest.choices[0].logprobs.tokens, [" Paris"])
        self.assertAlmostEqual(rest.choices[0].logprobs.token_logprobs[0], logprobs.token_logprobs[-1], places=4)
        self.assertEqual(self.server.complete(prompt, max_tokens=2, echo=True)["choices"][0]["text"][:len(prompt)],
                         prompt)

    def test_models_and_errors_as_exceptions(self):
        self.assertEqual([m.id for m in self.client.models.list()], [MODEL])
        self.assertEqual(self.client.models.retrieve(MODEL).id, MODEL)
        with self.assertRaises(openai.NotFoundError) as caught:
            self.chat(model="gpt-4o")
        self.assertEqual(caught.exception.code, "model_not_found")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(temperature=3)
        self.assertEqual(caught.exception.param, "temperature")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(messages=[{"role": "user", "content": "x " * 9000}], stream=True)
        self.assertEqual(caught.exception.code, "context_length_exceeded")


class FieldsTest(ServerTest):
    def test_bad_fields_are_named(self):
        chat, complete = "/v1/chat/completions", "/v1/completions"
        for fields, param in [
                ({"temperature": -0.1}, "temperature"), ({"temperature": "hot"}, "temperature"),
                ({"top_p": 1.5}, "top_p"), ({"top_k": -2}, "top_k"), ({"min_p": 2}, "min_p"), ({"n": 0}, "n"),
                ({"n": 1000}, "n"), ({"max_tokens": 0}, "max_tokens"), ({"max_tokens": -1}, "max_tokens"),
                ({"max_tokens": 1.5}, "max_tokens"), ({"max_completion_tokens": 0}, "max_completion_tokens"),
                ({"presence_penalty": 3}, "presence_penalty"), ({"frequency_penalty": -3}, "frequency_penalty"),
                ({"repetition_penalty": 0}, "repetition_penalty"), ({"stop": 5}, "stop"), ({"stop": [""]}, "stop"),
                ({"stop": ["x"] * 17}, "stop"), ({"seed": "x"}, "seed"), ({"logit_bias": {"a": 1}}, "logit_bias"),
                ({"logit_bias": {"1": 101}}, "logit_bias"), ({"logit_bias": {"99999999": 1}}, "logit_bias"),
                ({"logprobs": 3}, "logprobs"), ({"top_logprobs": 3}, "top_logprobs"),
                ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"), ({"stream": "yes"}, "stream"),
                ({"stream_options": {"include_usage": True}}, "stream_options"), ({"timeout_s": 0}, "timeout_s"),
                ({"priority": 1e12}, "priority"), ({"min_tokens": 9, "max_tokens": 3}, "min_tokens"),
                ({"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "required"}, "tool_choice"),
                ({"tools": [1]}, "tools[0]"),
                ({"tools": [{"type": "function"}]}, "tools[0].function"),
                ({"messages": [{"role": "assistant", "tool_calls": [1]}]}, "messages[0].tool_calls[0].function"),
                ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
                ({"response_format": {"type": "json_object"}}, "response_format"),
                ({"guided_json": {"type": "object"}}, "guided_json"), ({"functions": [{}]}, "functions"),
                ({"modalities": ["text", "audio"]}, "modalities"), ({"messages": []}, "messages"),
                ({"messages": "hi"}, "messages"), ({"messages": [{"role": "king", "content": ""}]}, "messages[0].role"),
                ({"messages": [{"role": "user"}]}, "messages[0].content"),
                ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
                 "messages[0].content[0].type"),
                ({"continue_final_message": True}, "continue_final_message"),
                ({"chat_template_kwargs": [1]}, "chat_template_kwargs"), ({"model": 5}, "model")]:
            with self.subTest(fields=fields):
                self.refused(chat, {"messages": SKY, "max_tokens": 2, **fields}, param=param)
        for fields, param in [({"prompt": None}, "prompt"), ({"prompt": []}, "prompt"), ({"prompt": [[]]}, "prompt"),
                              ({"prompt": [1, -1]}, "prompt[1]"), ({"prompt": [10**9]}, "prompt[0]"),
                              ({"prompt": ["a", 5]}, "prompt[1]"), ({"prompt": ""}, "prompt"),
                              ({"suffix": "x"}, "suffix"), ({"best_of": 3}, "best_of"), ({"logprobs": 21}, "logprobs"),
                              ({"logprobs": True}, "logprobs"), ({"echo": 1}, "echo")]:
            with self.subTest(fields=fields):
                self.refused(complete, {"prompt": "x", "max_tokens": 2, **fields}, param=param)

    def test_fields_that_change_nothing_pass(self):
        want = self.server.chat(SKY, max_tokens=4)["choices"][0]["message"]["content"]
        for fields in [{"unknown_field": {"a": 1}}, {"stop": None, "n": None, "seed": None}, {"stop": []},
                       {"response_format": {"type": "text"}}, {"tools": [], "tool_choice": "auto"},
                       {"logit_bias": {}}, {"user": "u"}, {"store": True, "metadata": {"a": "b"}},
                       {"no_store": True}, {"priority": -3}, {"timeout_s": 60}, {"max_tokens": 4.0},
                       {"guided_json": None, "suffix": "", "use_beam_search": False}]:
            with self.subTest(fields=fields):
                reply = self.server.chat(SKY, **{"max_tokens": 4, **fields})
                self.assertEqual(reply["choices"][0]["message"]["content"], want)

    def test_message_forms(self):
        prompt = lambda messages, **f: self.server.post("/apply-template", {"messages": messages, **f})["prompt"]
        self.assertEqual(prompt([{"role": "user", "content": [{"type": "text", "text": "a"},
                                                              {"type": "text", "text": "b"}]}]),
                         prompt([{"role": "user", "content": "a\nb"}]))
        self.assertEqual(prompt([{"role": "developer", "content": "be kind"}, *SKY]),
                         prompt([{"role": "system", "content": "be kind"}, *SKY]))
        calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]
        self.assertIn("<|im_start|>tool\n42<|im_end|>", prompt(
            [*SKY, {"role": "assistant", "content": None, "tool_calls": calls},
             {"role": "tool", "tool_call_id": "1", "content": "42"}]))
        self.assertFalse(prompt(SKY, add_generation_prompt=False).endswith("assistant\n"))
        started = [*SKY, {"role": "assistant", "content": "The sky is blue because"}]
        self.assertTrue(prompt(started, continue_final_message=True).endswith("The sky is blue because"))

    def test_lengths(self):
        long = self.server.chat(SKY, max_tokens=3, min_tokens=3, ignore_eos=True)
        self.assertEqual(long["usage"]["completion_tokens"], 3)
        # The answer to this is short; min_tokens keeps it going.
        short = self.server.chat("Say only: yes", max_tokens=40, logit_bias={"2": 100})
        self.assertEqual((short["usage"]["completion_tokens"], short["choices"][0]["finish_reason"]), (1, "stop"))
        held = self.server.chat("Say only: yes", max_tokens=40, logit_bias={"2": 100}, min_tokens=7)
        self.assertEqual((held["usage"]["completion_tokens"], held["choices"][0]["finish_reason"]), (8, "stop"))
        error = self.refused("/v1/chat/completions", {"messages": SKY, "max_tokens": 8192},
                             code="context_length_exceeded", says="8192")
        self.assertRegex(error["message"], r"\d+ in the messages, 8192 in the completion")

    def test_explanation(self):
        body = {"prompt": "An explanation of many words that nobody has asked for before", "max_tokens": 2}
        cold = self.server.post("/v1/completions", {**body, "kvasir": True})["kvasir"]
        self.assertEqual(cold["cached_tokens"], {"memory": 0})
        for key in ("queue_ms", "prefill_ms", "decode_ms"):
            self.assertGreaterEqual(cold[key], 0)
        warm = self.server.post("/v1/completions", body, {"X-Kvasir-Explain": "1"})["kvasir"]
        self.assertGreater(warm["cached_tokens"]["memory"], 5)
        self.assertNotIn("kvasir", self.server.post("/v1/completions", body))
        with Stream(self.server, "/v1/completions", {**body, "kvasir": True}) as stream:
            stream.open()
            events = list(stream.events())
        self.assertIn("kvasir", events[-2])
        self.assertEqual(events[-1], "[DONE]")

    def test_the_explanation_names_retokenization(self):
        def ids(text):
            return self.server.post("/tokenize", {"content": text})["tokens"]

        start = "The keeper of the lighthouse wrote only one word in the book:"
        letters = [token for letter in " seventeen" for token in ids(letter)]
        self.server.post("/v1/completions", {"prompt": ids(start) + letters, "max_tokens": 1})
        body = {"prompt": start + " seventeen gulls", "max_tokens": 1, "kvasir": True}
        diverged = self.server.post("/v1/completions", body)["kvasir"]["diverged_at"]
        self.assertEqual(diverged["token"], len(ids(start)))
        self.assertTrue(diverged["retokenized"], diverged)
        body["prompt"] = start + " nothing at all"
        self.assertFalse(self.server.post("/v1/completions", body)["kvasir"]["diverged_at"]["retokenized"])

    def test_no_store_leaves_nothing_behind(self):
        prompt = "Forty-two gulls sat on the harbour wall and said nothing about it to anybody."
        cached = []
        for fields in ({"no_store": True}, {"no_store": True}, {}, {"no_store": True}, {}):
            reply = self.client.completions.create(model=MODEL, prompt=prompt, max_tokens=4, temperature=0,
                                                   extra_body=fields)
            cached.append(reply.usage.prompt_tokens_details.cached_tokens)
            total = reply.usage.prompt_tokens
        self.assertEqual(cached, [0, 0, 0, 0, total - 1])

    def test_token_endpoints(self):
        post = self.server.post
        tokens = post("/tokenize", {"content": "Hello <|im_end|>"})
        self.assertEqual(tokens["count"], len(tokens["tokens"]))
        self.assertEqual(tokens["tokens"][-1], 2)
        plain = post("/tokenize", {"prompt": "Hello <|im_end|>", "parse_special": False})["tokens"]
        self.assertNotIn(2, plain)
        self.assertEqual(post("/detokenize", {"tokens": plain})["content"], "Hello <|im_end|>")
        pieces = post("/tokenize", {"content": "é €", "with_pieces": True})["tokens"]
        joined = b"".join(p["piece"].encode() if isinstance(p["piece"], str) else bytes(p["piece"]) for p in pieces)
        self.assertEqual(joined.decode(), "é €")
        by_id = self.server.complete("1, 2,", max_tokens=2, logprobs=0, return_tokens_as_token_ids=True)
        self.assertRegex(by_id["choices"][0]["logprobs"]["tokens"][0], r"^token_id:\d+$")
        self.assertEqual([list(t) for t in by_id["choices"][0]["logprobs"]["top_logprobs"]],
                         [[t] for t in by_id["choices"][0]["logprobs"]["tokens"]])
        # Strings parse control tokens, unless they shall not.
        n = lambda **f: self.server.complete("<|im_start|>", max_tokens=1, **f)["usage"]["prompt_tokens"]
        self.assertEqual(n(), 1)
        self.assertGreater(n(parse_special=False), 1)

    def test_malformed_bodies(self):
        path = "/v1/chat/completions"
        for body in (b"", b"{", b"[]", b"\"x\"", b"{\"messages\": \"\xff\"}", b"{\"a\":" * 30 + b"[" * 100_000,
                     b"{\"messages\": [1e999]}", b"nonsense", b"{\"a\": \"\\ud800\"}"):
            with self.subTest(body=body[:30]):
                self.refused(path, body)
        status, _, reply = self.server.request("GET", path)
        self.assertEqual((status, reply["error"]["param"]), (405, None))
        status, _, reply = self.server.request("POST", "/v1/nothing", b"{}")
        self.assertEqual(status, 404)
        self.assertIn("message", reply["error"])
        self.assertEqual(self.server.request("GET", "/health")[0], 200)

    def test_request_ids_log_lines_and_metrics(self):
        before = self.server.metrics()
        _, headers, _ = self.server.request("POST", "/v1/chat/completions",
                                            {"messages": [{"role": "user", "content": "my secret"}], "max_tokens": 3,
                                             "user": "a b"}, {"X-Request-Id": "id-from-client"})
        self.assertEqual(headers["X-Request-Id"], "id-from-client")
        line = self.server.log_of("id-from-client")
        self.assertEqual((line["status"], line["generated_tokens"], line["finish"], line["user"]),
                         ("200", "3", "length", '"a b"'))
        self.refused("/v1/chat/completions", '{"messages": [{"role": "user", "content": "my secret" x')
        self.assertNotIn("secret", self.server.log_text())
        after = self.server.metrics()
        grown = lambda name: after[name] - before.get(name, 0)
        self.assertEqual(grown("kvasir_engine_generated_tokens_total"), 3)
        self.assertEqual(grown("kvasir_api_first_token_seconds_count"), 1)
        self.assertEqual(grown("kvasir_api_token_gap_seconds_count"), 2)
        self.assertEqual(grown(f'vllm:time_to_first_token_seconds_count{{model_name="{MODEL}"}}'), 1)
        self.assertEqual(after["kvasir_engine_running_sequences"], 0)
        self.assertIn(f'vllm:num_requests_waiting{{model_name="{MODEL}"}}', after)
        self.assertGreater(grown(f'vllm:prefix_cache_queries_total{{model_name="{MODEL}"}}'), 5)

    def test_a_timeout_is_504(self):
        self.refused("/v1/completions", {"prompt": "x", "max_tokens": 4000, "ignore_eos": True, "timeout_s": 0.3},
                     status=504, code="timeout")
        with Stream(self.server, "/v1/completions",
                    {"prompt": "x", "max_tokens": 4000, "ignore_eos": True, "timeout_s": 0.3}) as stream:
            self.assertEqual(stream.open(), 200)
            events = list(stream.events())
        self.assertEqual(events[-2]["error"]["code"], "timeout")
        self.assertEqual(self.server.wait_for_metric("kvasir_engine_running_sequences", lambda v: v == 0), 0)

    def test_curl(self):
        reply = subprocess.run(
            ["curl", "-sS", "--fail", self.server.url + "/v1/chat/completions", "-H", "Content-Type: application/json",
             "-d", json.dumps({"messages": SKY, "max_tokens": 3})], capture_output=True, timeout=60, check=True)
        self.assertEqual(json.loads(reply.stdout)["object"], "chat.completion")
        self.assertIn("curl http://127.0.0.1:", self.server.output())


class KeysTest(ServerTest):
    ARGS = ("--kv-memory", "128M", "--api-key", "alpha", "--api-key", "beta", "--cors-origin", "https://app.example",
            "--served-model-name", "first", "--served-model-name", "second", "--any-model", "--log-json",
            "--log-prompts", "--max-body", "100K", "--max-connections", "64")

    def test_keys(self):
        path, body = "/v1/completions", {"prompt": "a prompt of some length, to be cached by its owner", "max_tokens": 1}
        for headers in ({}, {"Authorization": "Bearer gamma"}, {"Authorization": "Basic alpha"},
                        {"Authorization": "Bearer alph"}, {"Authorization": "Bearer alphaa"}, {"X-Api-Key": "g"}):
            status, reply_headers, reply = self.server.request("POST", path, body, headers)
            self.assertEqual((status, reply["error"]["code"]), (401, "invalid_api_key"), headers)
            self.assertEqual(reply_headers["WWW-Authenticate"], "Bearer")
        cached = lambda key, **f: self.server.post(path, {**body, **f}, {"Authorization": f"Bearer {key}"})[
            "usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertEqual(cached("alpha"), 0)
        self.assertGreater(cached("alpha"), 5)
        self.assertEqual(cached("beta"), 0, "a key must not see what another one cached")
        self.assertEqual(cached("alpha", cache_salt="s"), 0)
        self.assertGreater(cached("alpha", cache_salt="s"), 5)
        self.assertEqual(self.server.request("GET", "/health")[0], 200)
        self.assertEqual(self.server.request("GET", "/metrics")[0], 401)

    def test_names_cors_and_body_limit(self):
        key = {"Authorization": "Bearer beta", "Origin": "https://app.example"}
        _, headers, models = self.server.request("GET", "/v1/models", headers=key)
        self.assertEqual([m["id"] for m in models["data"]], ["first", "second"])
        self.assertEqual(headers["Access-Control-Allow-Origin"], "https://app.example")
        body = {"prompt": "visible prompt", "max_tokens": 1, "model": "whatever"}
        self.assertEqual(self.server.post("/v1/completions", body, {**key, "X-Request-Id": "j1"})["model"], "whatever")
        status, _, reply = self.server.request("POST", "/v1/completions", b" " * 200_000, key)
        self.assertEqual(status, 413, reply)
        deadline = time.monotonic() + 10
        while '"id":"j1"' not in self.server.log_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        line = next(json.loads(line) for line in self.server.log_text().splitlines() if '"id":"j1"' in line)
        self.assertEqual((line["prompt"], line["tenant"]), ("visible prompt", 1))


class GemmaTest(unittest.TestCase):
    """A model with BOS and without a chat template."""

    def setUp(self):
        need(GEMMA)

    def test_bos_is_scored_and_not_shown(self):
        with Server(GEMMA, "--kv-memory", "128M") as server:
            choice = server.complete("Hello world", max_tokens=0, echo=True, logprobs=1)["choices"][0]
            self.assertEqual(choice["text"], "Hello world")
            self.assertEqual(choice["logprobs"]["tokens"], ["<bos>", "Hello", " world"])
            self.assertEqual(choice["logprobs"]["text_offset"], [0, 0, 5])
            self.assertIsNone(choice["logprobs"]["token_logprobs"][0])
            status, _, reply = server.request("POST", "/v1/chat/completions", {"messages": SKY})
            self.assertEqual(status, 400)
            self.assertIn("no chat template", reply["error"]["message"])
            self.assertIn("/v1/completions", server.output())

    def test_a_template_from_a_file(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
            file.write("{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
                       "{% if add_generation_prompt %}assistant:{% endif %}")
            file.flush()
            with Server(GEMMA, "--kv-memory", "128M", "--chat-template", file.name) as server:
                prompt = server.post("/apply-template", {"messages": SKY})["prompt"]
                self.assertEqual(prompt, "<bos>user: Why is the sky blue?\nassistant:")
                chat = server.chat(SKY, max_tokens=8)
                same = server.complete("user: Why is the sky blue?\nassistant:", max_tokens=8)
                self.assertEqual(chat["choices"][0]["message"]["content"], same["choices"][0]["text"])
                self.assertEqual(chat["usage"]["prompt_tokens"], same["usage"]["prompt_tokens"])


class UnitFileTest(unittest.TestCase):
    def test_systemd_accepts_the_unit(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("systemd-analyze is not installed")
        with open(os.path.join(ROOT, "packaging", "kvasir.service"), encoding="utf-8") as file:
            unit = file.read()
        self.assertIn("/usr/local/bin/kvasir", unit)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "kvasir.service")
            with open(path, "w", encoding="utf-8") as file:
                file.write(unit.replace("/usr/local/bin/kvasir", BINARY))
            done = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stderr.decode()), (0, ""))


class LoadingTest(unittest.TestCase):
    def test_health_is_503_while_loading(self):
        need(SMOLLM2)
        with Server(SMOLLM2, "--kv-memory", "64M", wait=False) as server:
            status, headers, reply = server.request("GET", "/health")
            if status == 200:
                self.skipTest("it loads too fast here")
            self.assertEqual((status, reply["error"]["type"]), (503, "unavailable_error"))
            self.assertEqual(server.request("GET", "/ready")[0], 503)
            self.assertEqual(server.request("POST", "/v1/completions", {"prompt": "x"})[0], 503)
            server.wait_for_output("ready on")
            deadline = time.monotonic() + 5
            while server.request("GET", "/ready")[0] != 200 and time.monotonic() < deadline:
                time.sleep(0.05)
            self.assertEqual(server.request("GET", "/health")[0], 200)
            server.terminate()
            self.assertEqual(server.process.wait(20), 0)

    def test_bad_arguments(self):
        need(SMOLLM2)
        with tempfile.NamedTemporaryFile("w") as empty:
            for args, says in [(["--api-key-file", empty.name], "no key"), (["--prefill-chunk", "x"], "auto"),
                               (["--max-batch", "64", "--max-batch-tokens", "32"], "max-batch-tokens"),
                               (["--port", "70000"], "port"), (["--host", "256.1.1.1", "--port", "0"], "256.1.1.1"),
                               (["--chat-template", "/nonexistent"], "nonexistent")]:
                with self.subTest(args=args):
                    result = subprocess.run([BINARY, "serve", SMOLLM2, "--port", "0", *args], capture_output=True,
                                            timeout=60, env=clean_environment(), check=False)
                    self.assertNotEqual(result.returncode, 0)
                    self.assertIn(says, result.stderr.decode())


if __name__ == "__main__":
    unittest.main()
