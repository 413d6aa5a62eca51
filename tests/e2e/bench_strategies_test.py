"""`kvasir bench strategies`: counts that repeat and agree with each other, the page, and what bad input is told."""

import html.parser
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cli_harness import BINARY, GEMMA, SMOLLM2, ProgramTest, kvasir, need  # noqa: E402

SMALL = ["-n", "10", "-c", "6", "--tail-tokens", "16", "--prefix-tokens", "48", "--output-tokens", "8",
         "--ctx", "512", "--budget", "48MiB", "--prefill-rows", "64"]
BYTES_PER_TOKEN = {"f16": 23040, "int8": 12600, "int4": 7600}  # Of SmolLM2; quantized: at most.


class BenchStrategies(ProgramTest):
    def bench(self, *args, model=SMOLLM2, timeout=300):
        need(model)
        return json.loads(self.works("bench", "strategies", model, *args, "--json", timeout=timeout).stdout)


class CountsTest(BenchStrategies):
    def test_every_strategy_and_type_answers_alike_and_counts_repeat(self):
        for scenario in ("mixed", "chat"):
            with self.subTest(scenario):
                first = self.bench(*SMALL, "--scenario", scenario)
                again = self.bench(*SMALL, "--scenario", scenario, "--threads", "1")
                self.assertIs(first["answers_equal"], True)
                self.assertEqual([(row["strategy"], row["kv_type"]) for row in first["rows"]],
                                 [(s, t) for t in ("f16", "int8", "int4")
                                  for s in ("static", "dynamic", "shared", "paged")])
                self.assertEqual([row["counts"] for row in first["rows"]], [row["counts"] for row in again["rows"]])
                for row in first["rows"]:
                    self.check_row(first, row)

    def check_row(self, report, row):
        name = f"{row['strategy']} {row['kv_type']}"
        counts, load = row["counts"], report["load"]
        self.assertIsNone(row["problem"], name)
        self.assertEqual(len(row["requests"]), load["requests"], name)
        self.assertEqual(sum(r["prompt_tokens"] for r in row["requests"]), load["prompt_tokens"], name)
        self.assertEqual(sum(r["output_tokens"] for r in row["requests"]), load["output_tokens"], name)
        self.assertEqual(sum(r["cached_tokens"] for r in row["requests"]), counts["reused_tokens"], name)
        if counts["preemptions"] == 0:
            # Every token is computed once or reused; the last one of an answer is only chosen.
            self.assertEqual(counts["computed_tokens"],
                             load["prompt_tokens"] + load["output_tokens"] - load["requests"] - counts["reused_tokens"],
                             name)
        self.assertLessEqual(counts["most_at_once"], load["clients"], name)
        self.assertLessEqual(counts["reserved_mib_peak"] * 2**20, report["budget_bytes"], name)
        self.assertAlmostEqual(counts["reserved_mib_mean"],
                               counts["used_mib_mean"] + counts["wasted_mib_mean"], places=3, msg=name)
        self.assertLessEqual(row["kv_bytes_per_token"], BYTES_PER_TOKEN[row["kv_type"]], name)
        if row["strategy"] in ("static", "dynamic"):
            self.assertEqual(counts["copies"], 0, name)  # They share nothing.
        if row["strategy"] in ("static", "paged"):
            self.assertEqual(counts["moves"], 0, name)
            self.assertEqual(counts["preemptions"], 0, name)
        self.assertGreater(row["times"]["requests_s"], 0, name)
        self.assertGreaterEqual(row["times"]["ttft_ms_p95"], row["times"]["ttft_ms_p50"], name)
        for values in row["timeline"].values():
            self.assertEqual(len(values), len(row["timeline"]["step"]), name)

    def test_gemma_with_its_windows(self):
        report = self.bench(*SMALL, "--kv-types", "f16", model=GEMMA)
        self.assertIs(report["answers_equal"], True)
        for row in report["rows"]:
            self.assertIsNone(row["problem"])

    def test_the_seed_changes_the_load(self):
        args = [*SMALL, "--strategies", "paged", "--kv-types", "f16"]
        one, two = (self.bench(*args, "--seed", seed, "--rounds", "2") for seed in ("1", "2"))
        self.assertNotEqual(one["load"]["prompt_tokens"], two["load"]["prompt_tokens"])
        self.assertIsNone(one["answers_equal"])  # Nothing to compare with.

    def test_paged_holds_three_times_as_many_mixed_requests_as_static(self):
        report = self.bench("--scenario", "mixed", "-n", "40", "-c", "40", "--tail-tokens", "16", "--prefix-tokens",
                            "16", "--output-tokens", "16", "--ctx", "512", "--budget", "48MiB", "--kv-types", "f16",
                            "--strategies", "static,paged")
        static, paged = (row["counts"] for row in report["rows"])
        self.assertEqual(static["most_at_once"], 48 * 2**20 // (512 * BYTES_PER_TOKEN["f16"]))
        self.assertGreaterEqual(paged["most_at_once"], 3 * static["most_at_once"])
        self.assertLess(paged["steps"], static["steps"])

    def test_quantized_types_hold_more_tokens_at_once(self):
        # A load that is more than any of them can hold; few clients, since each has f16 keys beside its blocks.
        report = self.bench("--scenario", "unique", "-n", "8", "-c", "1", "--tail-tokens", "400", "--output-tokens",
                            "4", "--ctx", "1024", "--budget", "16MiB", "--strategies", "paged")
        f16, int8, int4 = (row["counts"]["peak_tokens"] for row in report["rows"])
        self.assertLess(1.2 * int4, report["load"]["prompt_tokens"])
        for row in report["rows"]:
            self.assertGreater(row["counts"]["evictions"], 0)  # It was full.
        self.assertGreaterEqual(int8, 1.85 * f16)
        self.assertGreaterEqual(int4, 2.9 * f16)


class PageTest(BenchStrategies):
    def test_page_is_whole_and_needs_nothing_from_outside(self):
        need(SMOLLM2)

        class Reader(html.parser.HTMLParser):
            VOID = {"meta", "input", "br"}

            def __init__(self):
                super().__init__()
                self.open, self.seen = [], set()

            def handle_starttag(self, tag, attrs):
                self.seen.add(tag)
                for name, value in attrs:
                    assert name not in ("src", "href"), (tag, name, value)
                if tag not in self.VOID:
                    self.open.append(tag)

            def handle_startendtag(self, tag, attrs):
                self.seen.add(tag)

            def handle_endtag(self, tag):
                assert self.open.pop() == tag, tag

        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "a<b>&'c'.gguf")
            os.symlink(SMOLLM2, model)
            page = os.path.join(folder, "page.html")
            table = self.works("bench", "strategies", model, *SMALL, "--kv-types", "f16,int8", "--html", page,
                               timeout=300).stdout.decode()
            with open(page, encoding="utf-8") as file:
                text = file.read()
        self.assertIn("answers equal: yes", table)
        for word in ("static", "dynamic", "shared", "paged", "first token p95", "wasted, of reserved", "preemptions"):
            self.assertIn(word, table)
            self.assertIn(word, text)
        self.assertIn("a&lt;b&gt;&amp;'c'.gguf", text)
        self.assertIn("prefers-color-scheme: dark", text)
        for outside in ("http://", "https://", "<script", "@import", "url("):
            self.assertNotIn(outside, text)
        reader = Reader()
        reader.feed(text)
        self.assertEqual(reader.open, [])
        self.assertIn("svg", reader.seen)
        self.assertNotIn("nan", text.lower().replace("nano", ""))


    def test_the_page_on_standard_output(self):
        need(SMOLLM2)
        out = self.works("bench", "strategies", SMOLLM2, *SMALL, "--kv-types", "f16", "--strategies", "paged",
                         "--html", "-", timeout=300).stdout.decode()
        self.assertFalse(os.path.exists("-"))
        self.assertTrue(out.startswith("<!"), out[:50])
        self.assertTrue(out.rstrip().endswith("</html>"), out[-50:])

    def test_the_page_comes_whole_or_not_at_all(self):
        need(SMOLLM2)
        with tempfile.TemporaryDirectory() as folder:
            page = os.path.join(folder, "page.html")
            command = [BINARY, "bench", "strategies", SMOLLM2, "--html", page]
            for content in (None, "the last one"):
                if content is not None:
                    with open(page, "w", encoding="utf-8") as file:
                        file.write(content)
                process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                time.sleep(0.2)  # It reads the model.
                process.kill()
                process.wait()
                if content is None:
                    self.assertEqual(os.listdir(folder), [])
                    continue
                with open(page, encoding="utf-8") as file:
                    self.assertEqual(file.read(), content)
                self.assertEqual(os.listdir(folder), ["page.html"])


class WrongInputTest(BenchStrategies):
    def test_what_cannot_be_is_refused_before_the_model_is_opened(self):
        for args, says in ((("--strategies", "static,heap"), ("heap", "static,dynamic,shared,paged")),
                           (("--strategies", "paged,paged"), "twice"),
                           (("--strategies", ""), "strategies"),
                           (("--kv-types", "f16,int9"), "int9"),
                           (("--kv-types", "int8;int8"), "twice"),
                           (("--scenario", "replay"), "shared, chat, unique or mixed"),
                           (("--budget", "much"), "--budget"),
                           (("--kv-evict", "fifo"), "lru"),
                           (("--kv-evict", "lru", "--strategies", "static,shared"), "paged"),
                           (("--scenario", "unique", "--prefix-tokens", "64"), ("--prefix-tokens", "unique")),
                           (("--scenario", "mixed", "--turns", "2"), ("--turns", "chat")),
                           (("--html", ""), ("--html", "name of a file")),
                           (("--html", "-", "--json"), "standard output"),
                           (("--clients", "0"), "--clients")):
            with self.subTest(args):
                self.fails("bench", "strategies", "/nonexistent.gguf", *args, says=says)
        self.fails("bench", "strategies", says="MODEL")
        self.fails("bench", "strategies", "/nonexistent.gguf", says="/nonexistent.gguf")
        self.fails("bench", "strategies", "/nonexistent.gguf", "--html", "/nonexistent/page.html", code=1,
                   says="/nonexistent/page.html")

    def test_a_budget_that_the_machine_does_not_have(self):
        need(SMOLLM2)
        self.fails("bench", "strategies", SMOLLM2, "--budget", "900T", says=("--budget 900T is more than", "leaves room"))

    def test_a_load_that_exceeds_the_context(self):
        need(SMOLLM2)
        self.fails("bench", "strategies", SMOLLM2, "--ctx", "128", says=("--ctx is 128", "tokens"))
        self.fails("bench", "strategies", SMOLLM2, "--ctx", "100000", says="8192")

    def test_a_budget_that_is_too_small_for_one_strategy(self):
        report = self.bench(*SMALL, "--budget", "8MiB", "--kv-types", "f16")
        problems = {row["strategy"]: row["problem"] for row in report["rows"]}
        self.assertIn("region", problems["static"])
        self.assertIsNone(problems["paged"])
        self.assertIs(report["answers_equal"], True)

    def test_a_budget_that_is_too_small_for_all(self):
        need(SMOLLM2)
        report = json.loads(self.ends_with_usage(*SMALL, "--budget", "1MiB", "--kv-types", "f16", "--json"))
        for row in report["rows"]:
            self.assertRegex(row["problem"], r"(tokens|bytes).* \(--budget \d+K is enough\)", row["strategy"])

    def test_the_least_budgets_are_the_least(self):
        need(SMOLLM2)
        load = ("--scenario", "shared", "-n", "3", "-c", "2", "--prefix-tokens", "30", "--tail-tokens", "9",
                "--output-tokens", "6", "--ctx", "128")
        error = self.fails("bench", "strategies", SMOLLM2, *load, "--budget", "1", says="no strategy can run this load with --budget 1;")
        least = re.findall(r"(\w+) (f16|int8|int4) (\d+)K", error)
        self.assertEqual(len(least), 12, error)
        for strategy, kv_type, size in least:
            for more, ok in ((0, True), (-1, False)):
                report = json.loads(kvasir("bench", "strategies", SMOLLM2, *load, "--strategies", strategy, "--kv-types", kv_type,
                                           "--budget", f"{int(size) + more}K", "--json").stdout)
                self.assertEqual(report["rows"][0]["problem"] is None, ok, (strategy, kv_type, size, report["rows"][0]["problem"]))

    def ends_with_usage(self, *args):
        result = kvasir("bench", "strategies", SMOLLM2, *args)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertRegex(result.stderr.decode(), r"\Akvasir: no strategy can run this load [^\n]+\n\Z")
        return result.stdout


if __name__ == "__main__":
    unittest.main()
