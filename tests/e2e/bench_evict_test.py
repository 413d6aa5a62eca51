"""kvasir bench evict: replays of traces, against a model that looks at everything, and the published figures."""

import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cli_harness import BINARY, ProgramTest, clean_environment, kvasir  # noqa: E402

POLICIES = ["lru", "lfu", "gdsf", "s3fifo", "adaptive", "belady"]


def small_trace(seed=5, count=400):
    """Requests that share beginnings, as lists of block ids; an id stands for a whole prefix."""
    rng = random.Random(seed)
    ids = {}
    requests = []
    for _ in range(count):
        path = []
        if requests and rng.random() < 0.7:
            path = rng.choice(requests[:5] if rng.random() < 0.4 else requests)
            path = path[:rng.randrange(len(path) + 1)]
        for _ in range(rng.randrange(1, 8)):
            path = path + [(path[-1] if path else -1, rng.randrange(9))]
            path[-1] = ids.setdefault(tuple(path), len(ids))
        requests.append(path)
    return requests


def lru(requests, capacity):
    """Hits and compute saved, by definition."""
    cache = {}  # id -> (last use, id before)
    clock = hits = references = 0
    saved = cost = 0.0
    for path in requests:
        references += len(path)
        cost += sum(1 + depth / 48 for depth in range(len(path)))
        found = 0
        while found < len(path) and path[found] in cache:
            found += 1
        hits += found
        saved += sum(1 + depth / 48 for depth in range(found))
        end = found
        while end < len(path):
            if len(cache) == capacity:
                parents = {before for _, before in cache.values()}
                leaves = [b for b in cache if b not in parents and b not in path[:end]]
                if not leaves:
                    break
                del cache[min(leaves, key=lambda b: cache[b][0])]
            cache[path[end]] = (0, path[end - 1] if end else None)
            end += 1
        for depth in range(end - 1, -1, -1):
            clock += 1
            cache[path[depth]] = (clock, cache[path[depth]][1])
    return hits / references, saved / cost


def lines(requests):
    return "".join(json.dumps({"timestamp": i, "input_length": 512 * len(r), "hash_ids": r}) + "\n"
                   for i, r in enumerate(requests))


class BenchEvictTest(ProgramTest):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.trace = os.path.join(directory.name, "trace.jsonl")

    def write(self, text):
        with open(self.trace, "w", encoding="utf-8") as file:
            file.write(text)

    def rows(self, *args):
        result = json.loads(self.works("bench", "evict", "--trace", self.trace, "--json", *args).stdout)
        return {(row["policy"], row["capacity"]): row for row in result["rows"]}, result

    def test_lru_is_what_its_definition_says(self):
        requests = small_trace()
        self.write(lines(requests))
        rows, result = self.rows("--capacities", "3,20,100,inf", "--policies", ",".join(POLICIES))
        self.assertEqual(result["requests"], len(requests))
        self.assertEqual(result["references"], sum(map(len, requests)))
        self.assertEqual(result["blocks"], len({b for r in requests for b in r}))
        self.assertEqual(len(rows), 4 * len(POLICIES))
        for capacity in (3, 20, 100):
            hit_rate, saved = lru(requests, capacity)
            self.assertAlmostEqual(rows["lru", capacity]["hit_rate"], hit_rate, places=12)
            self.assertAlmostEqual(rows["lru", capacity]["compute_saved"], saved, places=12)
            for policy in POLICIES:
                self.assertLessEqual(rows[policy, capacity]["hit_rate"], rows["belady", capacity]["hit_rate"])
        endless = 1 - result["blocks"] / result["references"]
        for policy in POLICIES:
            self.assertAlmostEqual(rows[policy, "inf"]["hit_rate"], endless, places=12)
        self.assertIn(rows["adaptive", 20]["ruling"], POLICIES)

    def test_the_table_has_the_same_numbers(self):
        self.write(lines(small_trace()))
        rows, _ = self.rows("--capacities", "50,inf")
        table = self.works("bench", "evict", "--trace", self.trace, "--capacities", "50,inf").stdout.decode()
        self.assertIn("400 requests", table)
        for (policy, capacity), row in rows.items():
            self.assertRegex(table, rf"(?m)^ +{capacity}  {policy} +{100 * row['hit_rate']:.2f}% +"
                                    rf"{100 * row['compute_saved']:.2f}%")

    def test_from_standard_input_and_other_costs(self):
        text = lines(small_trace())
        self.write(text)
        rows, _ = self.rows("--capacities", "50", "--policies", "gdsf")
        piped = subprocess.run([BINARY, "bench", "evict", "--trace", "-", "--json", "--capacities", "50", "--policies",
                                "gdsf"], input=text.encode(), stdout=subprocess.PIPE, env=clean_environment(), check=True)
        self.assertEqual(json.loads(piped.stdout)["rows"], list(rows.values()))
        deep, _ = self.rows("--capacities", "50", "--policies", "gdsf", "--double-depth", "1")
        self.assertNotEqual(deep["gdsf", 50]["compute_saved"], rows["gdsf", 50]["compute_saved"])

    def test_bad_traces_name_the_line(self):
        good = '{"hash_ids": [1, 2]}\n'
        for text, says in [
                ("", "no request"), ("\n\n", "no request"), ('{"hash_ids": []}\n', "no request"),
                (good + "{\n", ":2: not JSON"), (good + "\n" + good + "nonsense", ":4: not JSON"),
                (good + "[1]\n", ":2: must be an object, is array"), (good + "{}\n", ':2: has no "hash_ids"'),
                (good + '{"hash_ids": 5}\n', ":2: \"hash_ids\" must be an array, is number"),
                (good + '{"hash_ids": [1, "2"]}\n', ":2: hash_ids[1] must be a whole number"),
                (good + '{"hash_ids": [1.5]}\n', ":2: hash_ids[0] must be"), ('{"hash_ids": [-1]}\n', ":1: hash_ids[0]"),
                ('{"hash_ids": [1e3]}\n', ":1: hash_ids[0]"),
                ('{"hash_ids": [18446744073709551616]}\n', ":1: hash_ids[0]"), (good + "\0\n", ":2: not JSON"),
                (good + "[" * 100000 + "\n", ":2: not JSON"), (good + '{"hash_ids": [null]}', ":2: hash_ids[0]")]:
            with self.subTest(text=text[:60]):
                self.write(text)
                self.fails("bench", "evict", "--trace", self.trace, says=(self.trace, says))
        self.fails("bench", "evict", "--trace", "/nonexistent.jsonl", says="/nonexistent.jsonl")
        self.fails("bench", "evict", "--trace", os.path.dirname(self.trace), says=os.path.dirname(self.trace))

    def test_bad_options(self):
        self.write('{"hash_ids": [1, 2]}\n')
        self.fails("bench", "evict", says="--trace")
        for capacities in ["", "0", "-1", "1.5", "many", "5,,6", "5 6", "536870913", "99999999999999999999", "inf,x",
                           "5,5", "inf,9,inf"]:
            with self.subTest(capacities=capacities):
                self.fails("bench", "evict", "--trace", self.trace, f"--capacities={capacities}", says="--capacities")
        self.fails("bench", "evict", "--trace", self.trace, "--policies", "lru,fifo", says=("fifo", "s3fifo"))
        self.fails("bench", "evict", "--trace", self.trace, "--double-depth", "0", says="--double-depth")
        # More than the trace has is no reason to take the memory.
        rows, _ = self.rows("--capacities", "536870912", "--policies", "adaptive")
        self.assertEqual(rows["adaptive", 536870912]["hit_rate"], 0)

    def test_blank_lines_other_line_ends_and_unknown_members(self):
        self.write('\r\n{"hash_ids": [1, 2], "x": {"y": []}}\r\n  \n{"hash_ids": [1, 2, 3]}')
        rows, result = self.rows("--capacities", "9", "--policies", "lru")
        self.assertEqual(result["references"], 5)
        self.assertAlmostEqual(rows["lru", 9]["hit_rate"], 0.4)

    def test_ids_of_any_size(self):
        requests = small_trace()
        self.write(lines(requests))
        small, _ = self.rows("--capacities", "20,inf")
        self.write(lines([[2**64 - 1 - 7 * b for b in r] for r in requests]))
        large, _ = self.rows("--capacities", "20,inf")
        self.assertEqual(small, large)

    def test_blocks_and_lengths_agree(self):
        self.write('{"input_length": 100, "hash_ids": [1, 2]}\n')
        self.fails("bench", "evict", "--trace", self.trace, says="2 hash_ids for 100 tokens in blocks of 512, want 1")
        table = self.works("bench", "evict", "--trace", self.trace, "--trace-block", "64", "--capacities", "1").stdout
        self.assertIn(b"1 request, 2 block references, 2 different blocks", table)

    def test_evict_flag(self):
        self.fails("run", "m.gguf", "-p", "x", "--kv-evict", "random", says=("--kv-evict", "gdsf"))
        self.assertRegex(kvasir("serve", "--help").stdout.decode(), r"--kv-evict NAME +\[gdsf\]|--kv-evict.*gdsf")


@unittest.skipUnless(os.environ.get("KVASIR_TRACES_DIR"), "KVASIR_TRACES_DIR names no directory of public traces")
class PublishedFiguresTest(ProgramTest):
    """Mooncake's traces (README of their directory): rules and figures of a comparable replay."""

    def rows_of(self, name, capacities):
        trace = os.path.join(os.environ["KVASIR_TRACES_DIR"], name + "_trace.jsonl")
        result = json.loads(self.works("bench", "evict", "--trace", trace, "--json", "--capacities", capacities).stdout)
        return {(row["policy"], row["capacity"]): row for row in result["rows"]}, result

    def check(self, rows, expected):
        for (policy, capacity, figure), value in expected.items():
            self.assertAlmostEqual(rows[policy, capacity][figure], value, delta=0.005, msg=f"{policy} {capacity}")
        for (policy, capacity), row in rows.items():
            if policy == "gdsf":
                self.assertGreaterEqual(row["compute_saved"], rows["lru", capacity]["compute_saved"] - 0.005)
            if policy == "adaptive":
                self.assertGreaterEqual(row["compute_saved"], rows["lru", capacity]["compute_saved"] - 0.005)
                self.assertLessEqual(row["switches"], 6)

    def test_conversation(self):
        rows, result = self.rows_of("conversation", "5859,18279,inf")
        self.assertEqual((result["requests"], result["references"], result["blocks"]), (12031, 288500, 182790))
        self.check(rows, {("lru", 5859, "hit_rate"): 0.136, ("lru", 18279, "hit_rate"): 0.279,
                          ("lru", "inf", "hit_rate"): 0.3664, ("gdsf", 5859, "hit_rate"): 0.134,
                          ("gdsf", 5859, "compute_saved"): 0.131, ("lru", 5859, "compute_saved"): 0.116})

    def test_synthetic(self):
        rows, result = self.rows_of("synthetic", "2196,5859,10000,inf")
        self.assertEqual((result["requests"], result["references"], result["blocks"]), (3993, 121877, 43924))
        self.check(rows, {("lru", 2196, "hit_rate"): 0.157, ("lru", 5859, "hit_rate"): 0.309,
                          ("lru", 10000, "hit_rate"): 0.424, ("lru", "inf", "hit_rate"): 0.6396,
                          ("gdsf", 5859, "hit_rate"): 0.320, ("gdsf", 5859, "compute_saved"): 0.363,
                          ("lru", 5859, "compute_saved"): 0.322})
        self.assertGreaterEqual(rows["gdsf", 5859]["compute_saved"], rows["lru", 5859]["compute_saved"] + 0.035)


if __name__ == "__main__":
    unittest.main()
