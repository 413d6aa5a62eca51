"""--speculate: the same answers, log-probabilities included, in fewer steps where text repeats."""

import concurrent.futures
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cli_harness import GEMMA, SMOLLM2, kvasir, need  # noqa: E402
from server_harness import Server, Stream  # noqa: E402

MINUTES = ("The committee met on Tuesday to review the proposal for the new harbour bridge. Members heard from three "
           "engineers, two residents, and a representative of the port authority. The first engineer described the "
           "foundations, which would be driven forty metres into the clay below the river bed.")
QUOTE = f"{MINUTES}\n\n{MINUTES}\n\n{MINUTES}\n\nThe committee met on"
STORY = "Once upon a time there was a baker who"


def requests():
    """Bodies of /v1/completions; "cache_salt" keeps them from finding each other."""
    base = {"temperature": 0, "seed": 3, "kvasir": True, "cache_salt": "one"}
    return [
        {**base, "prompt": QUOTE, "max_tokens": 60, "logprobs": 3},
        {**base, "prompt": QUOTE, "max_tokens": 60, "stop": ["representative"], "cache_salt": "two"},
        {**base, "prompt": QUOTE, "max_tokens": 17, "cache_salt": "three", "ignore_eos": True},
        {**base, "prompt": QUOTE, "max_tokens": 40, "n": 3, "temperature": 0.7, "logprobs": 2, "cache_salt": "four"},
        {**base, "prompt": QUOTE, "max_tokens": 40, "frequency_penalty": 0.2, "repetition_penalty": 1.05,
         "cache_salt": "five"},
        {**base, "prompt": QUOTE, "max_tokens": 30, "logit_bias": {"1000": 5}, "min_tokens": 10, "cache_salt": "six"},
        {**base, "prompt": STORY, "max_tokens": 40, "temperature": 1, "logprobs": 1},
    ]


def answers(server, bodies, stream):
    def one(body):
        if not stream:
            reply = server.post("/v1/completions", body)
            return sorted((c["index"], c["text"], c["finish_reason"], json.dumps(c["logprobs"]))
                          for c in reply["choices"]), reply["usage"], reply["kvasir"]
        choices, usage, explained = {}, None, None
        with Stream(server, "/v1/completions", {**body, "stream_options": {"include_usage": True}}) as events:
            assert events.open() == 200
            for event in events.events():
                if event == "[DONE]":
                    break
                usage = event.get("usage") or usage
                explained = event.get("kvasir") or explained
                for choice in event["choices"]:
                    got = choices.setdefault(choice["index"], ["", None, []])
                    got[0] += choice["text"]
                    got[1] = choice["finish_reason"] or got[1]
                    if choice.get("logprobs"):
                        got[2] += choice["logprobs"]["token_logprobs"]
        return sorted((i, *got) for i, got in choices.items()), usage, explained

    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(one, bodies))


class SpeculationTest(unittest.TestCase):
    def setUp(self):
        need(SMOLLM2)
        need(GEMMA)

    def test_answers_are_the_same_and_steps_are_fewer(self):
        for model in SMOLLM2, GEMMA:
            got = {}
            for mode in "off", "ngram", "auto":
                with Server(model, "--speculate", mode, "--kv-memory", "256M") as server:
                    # The second time the cache holds what was answered.
                    got[mode] = [answers(server, requests(), stream) for stream in (False, True, False)]
                    metrics = server.metrics()
                proposed = metrics["kvasir_engine_draft_tokens_total"]
                accepted = metrics["kvasir_engine_accepted_draft_tokens_total"]
                explained = [e["draft_tokens"] for rounds in got[mode] for _, _, e in rounds]
                self.assertEqual(proposed, sum(e["proposed"] for e in explained))
                self.assertEqual(accepted, sum(e["accepted"] for e in explained))
                labels = f'{{model_name="{os.path.splitext(os.path.basename(model))[0]}"}}'
                self.assertEqual(metrics[f"vllm:spec_decode_num_draft_tokens_total{labels}"], proposed)
                self.assertEqual(metrics[f"vllm:spec_decode_num_accepted_tokens_total{labels}"], accepted)
                if mode == "off":
                    self.assertEqual(proposed, 0)
                else:
                    self.assertGreater(proposed, 0)
                if mode == "ngram":
                    self.assertGreater(accepted, 200)
                    self.assertLessEqual(accepted, proposed)  # Gemma quotes so well that all may be right.
                    self.assertLess(metrics["kvasir_engine_steps_total"], steps - 50)
                steps = metrics["kvasir_engine_steps_total"]
            for mode in "ngram", "auto":
                for i, (want, have) in enumerate(zip(got["off"], got[mode])):
                    for body, a, b in zip(requests(), want, have):
                        with self.subTest(model=model, mode=mode, round=i, body=body):
                            self.assertEqual(a[0], b[0])
                            self.assertEqual(a[1]["completion_tokens"], b[1]["completion_tokens"])

    def test_run_says_what_was_guessed(self):
        said = {}
        for mode in "off", "ngram", "auto":
            result = kvasir("run", SMOLLM2, "--raw", "-p", QUOTE, "-n", "60", "--speculate", mode)
            self.assertEqual(result.returncode, 0, result.stderr)
            said[mode] = result.stdout
            summary = result.stderr.decode()
            if mode == "off":
                self.assertNotIn("guesses", summary)
            if mode == "ngram":
                self.assertRegex(summary, r"tokens/s, \d+ of \d+ guesses right\n\Z")
        self.assertEqual(said["off"], said["ngram"])
        self.assertEqual(said["off"], said["auto"])
        report = json.loads(kvasir("run", SMOLLM2, "--raw", "-p", QUOTE, "-n", "60", "--speculate", "ngram",
                                   "--json").stdout)
        self.assertGreater(report["accepted_draft_tokens"], 20)
        self.assertGreaterEqual(report["draft_tokens"], report["accepted_draft_tokens"])

    def test_a_mode_that_is_none(self):
        result = kvasir("run", SMOLLM2, "-p", "x", "--speculate", "maybe")
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"use off, ngram or auto", result.stderr)


if __name__ == "__main__":
    unittest.main()
