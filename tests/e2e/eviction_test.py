"""Eviction policies in the server: the same answers whatever is evicted, and metrics that say who rules."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cli_harness import SMOLLM2, ProgramTest, kvasir, need  # noqa: E402
from server_harness import Server, words  # noqa: E402

POLICIES = ["lru", "lfu", "gdsf", "s3fifo"]


class EvictionTest(unittest.TestCase):
    def setUp(self):
        need(SMOLLM2)

    def answers(self, policy):
        """Prompts of which some come back, in memory for about four of them."""
        with Server(SMOLLM2, "--kv-evict", policy, "--kv-memory", "24MiB", "--ctx", 512) as server:
            texts = []
            for name in [1, 2, 3, 1, 4, 5, 1, 6, 2, 1]:
                reply = server.complete(words(f"e{name}", 60), max_tokens=4)
                texts.append(reply["choices"][0]["text"])
            return texts, server.metrics()

    def test_answers_do_not_depend_on_it(self):
        first = None
        for policy in ["gdsf", "lru", "adaptive"]:
            with self.subTest(policy=policy):
                texts, metrics = self.answers(policy)
                first = first or texts
                self.assertEqual(texts, first)
                evicted = {p: metrics[f'kvasir_kv_policy_evictions_total{{policy="{p}"}}'] for p in POLICIES}
                rules = {p: metrics[f'kvasir_kv_policy_rules{{policy="{p}"}}'] for p in POLICIES}
                self.assertGreater(sum(evicted.values()), 0)
                self.assertEqual(sum(evicted.values()), metrics['kvasir_kv_evictions_total{group="0"}'])
                self.assertEqual(sum(rules.values()), 1)
                self.assertGreater(metrics["kvasir_kv_depth_cost_ratio"], 0)
                if policy == "adaptive":
                    self.assertGreater(metrics["kvasir_kv_shadow_blocks"], 0)
                    self.assertIn('kvasir_kv_policy_saved_ratio{policy="s3fifo"}', metrics)
                else:
                    self.assertEqual(rules[policy], 1)
                    self.assertEqual(evicted[policy], sum(evicted.values()))
                    self.assertNotIn("kvasir_kv_shadow_blocks", metrics)


class RefusedTest(ProgramTest):
    def test_only_paged_has_a_choice(self):
        for strategy in ("static", "dynamic", "shared"):
            self.fails("run", SMOLLM2, "-p", "x", "--kv-strategy", strategy, "--kv-evict", "gdsf",
                       says=("--kv-evict gdsf", f"--kv-strategy {strategy}", "only paged"))
            served = kvasir("serve", SMOLLM2, "--port", "0", "--kv-strategy", strategy, "--kv-evict", "lru")
            self.assertEqual(served.returncode, 2)
            self.assertIn(b"only paged", served.stderr)


if __name__ == "__main__":
    unittest.main()
