"""--kv-adapt on: limits move with the load, settle, say why, and change no answer."""

import os
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cli_harness import SMOLLM2, need  # noqa: E402
from server_cases_test import content, together  # noqa: E402
from server_harness import Server, words  # noqa: E402

MOST = 16
# About 700 tokens of KV: three sequences of 220, where sixteen begin.
OPTIONS = ("--kv-memory", "16M", "--max-batch", str(MOST), "--ctx", "256", "--speculate", "off")


def decisions(metrics):
    return {reason: metrics[f'kvasir_adapt_decisions_total{{reason="{reason}"}}']
            for reason in ("work_lost", "room_again", "probe", "limit_idle", "prompts_wait")}


class AdaptTest(unittest.TestCase):
    def setUp(self):
        need(SMOLLM2)

    def ask(self, server, number):
        return server.complete(words(f"t{number}", 4), max_tokens=180, ignore_eos=True)

    def crowd(self, server, first, count):
        return together([lambda n=n: content(self.ask(server, n)) for n in range(first, first + count)])

    def test_a_crowd_lowers_the_limit_and_its_end_lifts_it(self):
        with Server(SMOLLM2, *OPTIONS) as server:
            expected = self.crowd(server, 0, MOST)
            lost_without = server.metrics()["kvasir_engine_recomputed_tokens_total"]
        with Server(SMOLLM2, *OPTIONS, "--kv-adapt", "on") as server:
            self.assertEqual(server.metrics()["kvasir_adapt_running_limit"], MOST)
            self.assertEqual(self.crowd(server, 0, MOST), expected)
            crowded = server.metrics()
            self.assertGreater(lost_without, 0, "this memory should have been too small")
            self.assertGreaterEqual(decisions(crowded)["work_lost"], 1)
            self.assertLess(crowded["kvasir_adapt_running_limit"], MOST)
            # Settled: a second crowd like the first moves it less, and less work is done twice.
            self.assertEqual(self.crowd(server, 0, MOST), expected)
            settled = server.metrics()
            moves = sum(decisions(settled).values()) - sum(decisions(crowded).values())
            self.assertLessEqual(moves, sum(decisions(crowded).values()) + 4)
            # One client alone: the limit does not matter, and is lifted.
            until = time.monotonic() + 90
            number = 100
            while server.metrics()["kvasir_adapt_running_limit"] < MOST and time.monotonic() < until:
                self.ask(server, number)
                number += 1
            self.assertEqual(server.metrics()["kvasir_adapt_running_limit"], MOST)
            time.sleep(1.5)
            log = server.log_text()
        self.assertIn("adapt: running sequences, at most 16 -> ", log)
        self.assertIn("% of the work was done twice", log)

    def test_wrong_words_are_refused(self):
        with self.assertRaises(Exception) as caught:
            with Server(SMOLLM2, "--kv-adapt", "maybe"):
                pass
        self.assertIn("must be on or off", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
