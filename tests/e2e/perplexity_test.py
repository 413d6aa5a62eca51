"""`kvasir perplexity`: its numbers against the float64 oracle and its own definition, and what bad input is told."""

import json
import math
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cli_harness import GEMMA, ROOT, SMOLLM2, ProgramTest, kvasir, need  # noqa: E402

# The fast path multiplies in int8; fast_path_golden_test.cc has the same bound for the mean of all texts.
MAX_NLL_DIFFERENCE = 0.03


def golden_rows(name):
    with open(os.path.join(ROOT, "tests", "golden", f"{name}-logits.json"), encoding="utf-8") as file:
        return json.load(file)["rows"]


class PerplexityTest(ProgramTest):
    def measure(self, model, *args, stdin=b""):
        return json.loads(self.works("perplexity", model, *args, "--json", stdin=stdin, timeout=300).stdout)

    def against_the_oracle(self, model, name, with_bos):
        need(model)
        difference, tokens = 0.0, 0
        for row in golden_rows(name):
            if row["label"] == "chat":
                continue  # Its control tokens would be text here.
            got = self.measure(model, "-f", "-", "--ctx", "2048", stdin=row["text"])
            self.assertEqual(got["tokens"], len(row["tokens"]) - 1, row["label"])
            self.assertEqual(row["tokens"][0] == 2, with_bos)
            difference += math.log(got["perplexity"]) * got["tokens"] - row["nll_sum"]
            tokens += got["tokens"]
        self.assertLess(abs(difference / tokens), MAX_NLL_DIFFERENCE)

    def test_smollm2_agrees_with_the_oracle(self):
        self.against_the_oracle(SMOLLM2, "smollm2-135m-instruct-q4_1", with_bos=False)

    def test_gemma_agrees_with_the_oracle(self):
        self.against_the_oracle(GEMMA, "gemma3-270m-q4_k_m", with_bos=True)

    def test_files_windows_and_the_f16_columns(self):
        need(SMOLLM2)
        texts = [row["text"] for row in golden_rows("smollm2-135m-instruct-q4_1") if row["label"] != "chat"]
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for i, text in enumerate(texts):
                paths.append(os.path.join(folder, f"{i}.txt"))
                with open(paths[-1], "w", encoding="utf-8") as file:
                    file.write(text)
            together = self.measure(SMOLLM2, "-f", *paths)
            apart = [self.measure(SMOLLM2, "-f", path) for path in paths]
            repeated = self.measure(SMOLLM2, *[word for path in paths for word in ("-f", path)])
            short = self.measure(SMOLLM2, "-f", paths[0], "--ctx", "64")
            code = self.measure(SMOLLM2, "-f", paths[1], "--ctx", "64")
            threads = self.measure(SMOLLM2, "-f", paths[1], "--ctx", "64", "--threads", "1", "--isa", "scalar")
        self.assertEqual(together["ctx"], 512)
        self.assertEqual(together["files"], paths)
        self.assertEqual(together["tokens"], sum(each["tokens"] for each in apart))
        self.assertAlmostEqual(math.log(together["perplexity"]) * together["tokens"],
                               sum(math.log(each["perplexity"]) * each["tokens"] for each in apart), places=6)
        self.assertEqual(repeated["perplexity"], together["perplexity"])
        self.assertEqual(together["perplexity_f16"], together["perplexity"])
        for key, want in [("kl_vs_f16", 0), ("top1_vs_f16", 1), ("ppl_ratio_vs_f16", 1), ("ratio_stderr", 0),
                          ("kv_type", "f16"), ("kv_bytes_per_token", 23040), ("model", SMOLLM2)]:
            self.assertEqual(together[key], want, key)
        self.assertGreater(together["stderr"], 0)
        # Less to look back at: every token is still scored, and is foretold less well.
        self.assertEqual(short["tokens"], apart[0]["tokens"])
        self.assertGreater(short["perplexity"], apart[0]["perplexity"])
        # Promise P1: not a bit depends on threads and instruction set.
        self.assertEqual(threads["perplexity"], code["perplexity"])

    def test_another_kv_type_beside_f16(self):
        need(SMOLLM2)
        if b"--kv-type" not in self.works("perplexity", "--help").stdout:
            self.skipTest("this build stores f16 only")
        text = golden_rows("smollm2-135m-instruct-q4_1")[0]["text"][:1500]
        plain = self.measure(SMOLLM2, "-f", "-", "--ctx", "128", stdin=text)
        got = self.measure(SMOLLM2, "-f", "-", "--ctx", "128", "--kv-type", "int8", stdin=text)
        self.assertEqual((got["kv_type"], got["tokens"]), ("int8", plain["tokens"]))
        self.assertLess(got["kv_bytes_per_token"], 12600)
        # The f16 beside it is f16 alone, bit for bit; int8 is something else, and near.
        self.assertEqual(got["perplexity_f16"], plain["perplexity"])
        self.assertNotEqual(got["perplexity"], plain["perplexity"])
        self.assertAlmostEqual(got["ppl_ratio_vs_f16"], got["perplexity"] / got["perplexity_f16"], places=9)
        self.assertLess(abs(got["ppl_ratio_vs_f16"] - 1), 0.02)
        self.assertGreater(got["kl_vs_f16"], 0)
        self.assertLess(got["kl_vs_f16"], 0.01)
        self.assertGreater(got["top1_vs_f16"], 0.9)
        # The two move together: of the difference the error is much smaller.
        self.assertLess(got["ratio_stderr"], 0.2 * got["stderr"] / got["perplexity"])

    def test_text_output(self):
        need(SMOLLM2)
        out = self.works("perplexity", SMOLLM2, "-f", "-", stdin="One two three four five.").stdout.decode()
        self.assertRegex(out, r"\Aperplexity \d+\.\d{4} \+- \d+\.\d{4} over \d+ tokens \(f16 KV, 23040 bytes a token, "
                              r"\d+ tokens/s\)\n\Z")

    def test_bad_input(self):
        need(SMOLLM2)
        command = ["perplexity", SMOLLM2]
        self.fails(*command, says="--file is missing")
        self.fails(*command, "-f", "/no/such/file", says="/no/such/file: cannot be opened")
        self.fails(*command, "-f", "/tmp", says="/tmp: is a directory")
        self.fails(*command, "-f", "/dev/null", says="/dev/null: is empty")
        self.fails(*command, "-f", "-", says="standard input: is empty")
        self.fails(*command, "-f", "-", stdin="a", says="standard input: is too short: 1 token, at least 3")
        self.fails(*command, "-f", "-", stdin=b"ab\xffc", says="standard input: invalid UTF-8 at byte 2 (0xFF)")
        self.fails(*command, "-f", "-", "--ctx", "15", stdin="a b c d", says=("--ctx", "16"))
        self.fails(*command, "-f", "-", "--ctx", "9000", stdin="a b c d", says="more than the model's 8192")
        self.fails(*command, "-f", "-", "--ctx", "0", stdin="a b c d", says=("--ctx", "16"))
        self.fails("perplexity", "/dev/null", "-f", SMOLLM2, says="invalid UTF-8")

    def test_one_bad_file_of_many(self):
        need(SMOLLM2)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "good.txt")
            with open(path, "w", encoding="utf-8") as file:
                file.write("A good text of some length.")
            self.fails("perplexity", SMOLLM2, "-f", path, "-f", "/no/such/file", says="/no/such/file")
            self.assertEqual(kvasir("perplexity", SMOLLM2, "-f", path).returncode, 0)


if __name__ == "__main__":
    unittest.main()
