"""The command line: help, hints, settings from file and environment, and what bad input is told."""

import json
import os
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cli_harness import (BINARY, GEMMA, SMOLLM2, ProgramTest, clean_environment, gguf_header, gguf_string,  # noqa: E402
                         kvasir, need)

COMMANDS = [["run"], ["chat"], ["bench", "model"], ["bench", "strategies"], ["inspect"], ["logits"], ["perplexity"], ["template"],
            ["tokenize"], ["detokenize"], ["serve"]]


class HelpTest(ProgramTest):
    def test_every_command_has_help_and_version(self):
        listing = self.works("--help").stdout.decode()
        for command in COMMANDS:
            with self.subTest(command=command):
                text = self.works(*command, "--help").stdout.decode()
                self.assertIn("Usage: kvasir " + " ".join(command) + " [OPTIONS] MODEL\n", text)
                self.assertIn("--help", text)
                self.assertEqual(text, self.works(*command, "-h").stdout.decode())
                self.assertIn(command[0], listing)
                self.assertRegex(self.works(*command, "--version").stdout.decode(),
                                 r"\Akvasir \d+\.\d+\.\d+\n\Z")
        self.assertRegex(self.works("--version").stdout.decode(), r"\Akvasir \d+\.\d+\.\d+\n\Z")

    def test_every_documented_option_of_run_is_in_its_help(self):
        text = self.works("run", "--help").stdout.decode()
        for option in ("--prompt", "--prompt-tokens", "--file", "--max-tokens", "--temp", "--top-k", "--top-p",
                       "--min-p", "--repeat-penalty", "--presence-penalty", "--frequency-penalty",
                       "--logit-bias", "--seed", "--stop", "--ignore-eos", "--raw", "--json", "--threads",
                       "--ctx", "--kv-memory", "--system", "--config"):
            self.assertIn(option, text)

    def test_a_group_names_its_members(self):
        self.assertIn("Measure speed: model, kernels, serve", self.works("--help").stdout.decode())

    def test_no_command(self):
        self.fails(says="no command")
        self.fails("bench", says="model")


class HintTest(ProgramTest):
    def test_unknown_names_get_the_nearest(self):
        self.fails("rnu", says="did you mean run?")
        self.fails("bench", "modle", says="did you mean model?")
        self.fails("run", "--tmep", "1", "m.gguf", says=("--tmep", "did you mean --temp?"))
        self.fails("run", "m.gguf", "-p", "x", "--thread=2", says=("--thread;", "did you mean --threads?"))
        self.fails("inspect", "--jsno", "m.gguf", says="did you mean --json?")

    def test_names_that_resemble_nothing_get_no_hint(self):
        self.assertNotIn("did you mean", self.fails("run", "m.gguf", "--xyzzyxyzzy"))

    def test_surplus_and_missing_arguments(self):
        self.fails("inspect", says="MODEL")
        self.fails("inspect", "a.gguf", "b.gguf", says="b.gguf")
        self.fails("run", "m.gguf", "-n", says="-n needs a value")
        self.fails("run", "m.gguf", "--temp", "warm", says=("--temp", "number", "warm"))

    def test_an_empty_value_after_an_equals_sign_is_that(self):
        # Neither the next option nor MODEL becomes the value.
        self.fails("run", "--prompt=", "m.gguf", says="the prompt is empty")
        self.fails("run", "m.gguf", "--top-k=", "--json", "-p", "x", says="--top-k")
        self.fails("run", "/nonexistent.gguf", "-p", "--system=", says="/nonexistent.gguf")
        self.fails("run", "/nonexistent.gguf", "-p", "x", "--system=", "--json", says="/nonexistent.gguf")


class OutputTest(ProgramTest):
    """A full disk under standard output or standard error."""

    def full(self, *args, stream, stdin=b""):
        with open("/dev/full", "wb") as full:
            return subprocess.run([BINARY, *args], input=stdin, timeout=120, check=False,
                                  stdout=full if stream == "stdout" else subprocess.PIPE,
                                  stderr=full if stream == "stderr" else subprocess.PIPE,
                                  env=clean_environment())

    def test_standard_output(self):
        need(SMOLLM2)
        for args in (["--help"], ["--version"], ["inspect", SMOLLM2], ["tokenize", SMOLLM2],
                     ["logits", SMOLLM2, "--tokens", "1,2"], ["logits", SMOLLM2, "--tokens", "1", "--reference"],
                     ["run", SMOLLM2, "-p", "Hi", "-n", "3"], ["run", SMOLLM2, "-p", "Hi", "-n", "3", "--json"]):
            with self.subTest(args=args):
                result = self.full(*args, stream="stdout")
                self.assertEqual(result.returncode, 1)
                self.assertEqual(result.stderr, b"kvasir: standard output could not be written\n")

    def test_an_answer_that_nobody_gets_is_not_computed(self):
        need(SMOLLM2)
        # Would go on to the end of the context otherwise, which takes longer than the limit.
        result = self.full("run", SMOLLM2, "-p", "Hi", "--ignore-eos", stream="stdout")
        self.assertEqual(result.returncode, 1)

    def test_standard_error(self):
        need(SMOLLM2)
        self.assertEqual(self.full("nonsense", stream="stderr").returncode, 2)
        self.assertEqual(self.full("inspect", "/nonexistent", stream="stderr").returncode, 2)
        self.assertEqual(self.full("run", SMOLLM2, "-p", "Hi", "-n", "3", stream="stderr").returncode, 0)
        result = self.full("chat", SMOLLM2, "-n", "3", stream="stderr", stdin=b"Hi\n/help\nHi\n")
        self.assertEqual(result.returncode, 0)

    def test_serve_drains_when_nobody_reads_its_log(self):
        need(SMOLLM2)
        for reader_gone in (False, True):
            with self.subTest(reader_gone=reader_gone):
                if reader_gone:
                    end, target = os.pipe()
                    os.close(end)
                else:
                    target = os.open("/dev/full", os.O_WRONLY)
                process = subprocess.Popen([BINARY, "serve", SMOLLM2, "--port", "0"], stdout=subprocess.PIPE,
                                           stderr=target, env=clean_environment())
                os.close(target)
                try:
                    self.assertIn(b"listening", process.stdout.readline())
                    self.assertIn(b"ready", process.stdout.readline())
                    process.send_signal(signal.SIGTERM)
                    process.communicate(timeout=30)
                finally:
                    process.kill()
                    process.wait()
                self.assertEqual(process.returncode, 0)


class ThreadsTest(ProgramTest):
    def test_threads_that_the_system_refuses(self):
        need(SMOLLM2)
        limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (3_000_000 << 10, 3_000_000 << 10))
        for command in (["run", SMOLLM2, "-p", "hi", "-n", "1"], ["chat", SMOLLM2]):
            result = subprocess.run([BINARY, *command, "--threads", "1000"], capture_output=True, timeout=120,
                                    stdin=subprocess.DEVNULL, env=clean_environment(), preexec_fn=limit,
                                    check=False)
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertRegex(result.stderr.decode(), r"\Akvasir: [^\n]*1000 threads[^\n]*\n\Z")


class SettingsTest(ProgramTest):
    """Uses `logits`' --top: what it was set to shows in the output's length."""

    def setUp(self):
        need(SMOLLM2)
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def config(self, text, name="c.ini"):
        path = os.path.join(self.folder.name, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def top(self, *args, **env):
        result = self.works("logits", *args, "--tokens", "1,2", env=clean_environment(**env))
        return len(json.loads(result.stdout)["positions"][0]["ids"])

    def test_flag_before_environment_before_file_before_default(self):
        path = self.config(f"model = {SMOLLM2}\ntop = 3\n[logits]\nctx = 64\n[run]\ntemp = 0.5\n")
        self.assertEqual(self.top(SMOLLM2), 256)
        self.assertEqual(self.top("--config", path), 3)
        self.assertEqual(self.top("--config", path, KVASIR_TOP="4"), 4)
        self.assertEqual(self.top("--config", path, "--top", "5", KVASIR_TOP="4"), 5)
        self.assertEqual(self.top(KVASIR_CONFIG=path), 3)

    def test_a_section_outranks_the_top_of_the_file(self):
        path = self.config("top = 3\n[logits]\ntop = 6  # for this command\n")
        self.assertEqual(self.top(SMOLLM2, f"--config={path}"), 6)

    def test_default_place(self):
        self.config("top = 7\n", "kvasir/config.ini")
        self.assertEqual(self.top(SMOLLM2, XDG_CONFIG_HOME=self.folder.name), 7)

    def test_mistakes_name_file_line_and_key(self):
        for text, says in [
                ("threads = 1\nthraeds = 2\n", (":2:", "thraeds", "did you mean threads?")),
                ("# fine\n\n[logits]\ntop = many\n", (":4:", "top", "many")),
                ("threads = 0\n", (":1:", "threads")),
                ("threads\n", (":1:", "threads")),
                ("[lgoits]\ntop = 1\n", (":2:", "lgoits", "did you mean logits?")),
                ("top = 1\ntop = 2\n", (":2:", "top", ":1")),
                ("model = \"unclosed\ntop = 1\n", (":1:", "closing")),
        ]:
            with self.subTest(text=text):
                path = self.config(text)
                self.fails("logits", SMOLLM2, "--tokens", "1", "--config", path, says=(path, *says))
        self.fails("logits", SMOLLM2, "--tokens", "1", says=("KVASIR_THREADS", "two"),
                   env=clean_environment(KVASIR_THREADS="two"))
        self.fails("logits", SMOLLM2, "--tokens", "1", "--config", "/nonexistent/c.ini",
                   says="/nonexistent/c.ini")

    def test_a_file_that_is_none(self):
        fifo = os.path.join(self.folder.name, "fifo")
        os.mkfifo(fifo)
        for path, says in ((self.folder.name, "directory"), (fifo, "regular file"), ("/dev/zero", "regular file")):
            with self.subTest(path=path):
                self.fails("logits", SMOLLM2, "--tokens", "1", "--config", path, says=(path, says), timeout=20)
        self.assertEqual(self.top(SMOLLM2, "--config", "/dev/null"), 256)

    def test_byte_order_mark(self):
        self.assertEqual(self.top(SMOLLM2, "--config", self.config("\ufefftop = 3\n")), 3)

    def test_every_long_name_works_in_the_environment(self):
        for name in ("KVASIR_TEMP", "KVASIR_TEMPERATURE"):
            self.fails("run", SMOLLM2, "-p", "x", says=(name, "warm"), env=clean_environment(**{name: "warm"}))
        self.fails("run", SMOLLM2, "-p", "x", says="--temp is 777",
                   env=clean_environment(KVASIR_TEMP="777", KVASIR_TEMPERATURE="888"))

    def test_isa_is_checked(self):
        self.fails("logits", SMOLLM2, "--tokens", "1", says=("KVASIR_ISA", "avx9"),
                   env=clean_environment(KVASIR_ISA="avx9"))
        self.fails("logits", SMOLLM2, "--tokens", "1", "--isa", "sse", says="sse")

    def test_quotes_lists_and_underscores(self):
        path = self.config('[run]\nstop = ["\\n", "a, b"]\nmax_tokens = 2\n')
        result = self.works("run", SMOLLM2, "-p", "Hi", "--config", path, "--json", "--temp", "0")
        self.assertLessEqual(len(json.loads(result.stdout)["tokens"]), 2)


class BadFileTest(ProgramTest):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def file(self, data):
        path = os.path.join(self.folder.name, "m.gguf")
        with open(path, "wb") as file:
            file.write(data)
        return path

    def test_files_that_are_no_model(self):
        architecture = ("general.architecture", 8, gguf_string("llama"))
        for data, says in [
                (b"", "m.gguf"),
                (b"GGUF", "offset"),
                (b"<!DOCTYPE html><html>", "m.gguf"),
                (gguf_header(version=99), "99"),
                (gguf_header(tensors=1 << 60), "offset"),
                (gguf_header(entries=[("general.architecture", 8, struct.pack("<Q", 1 << 60))]), "offset"),
                (gguf_header(entries=[("general.architecture", 77, b"")]), "offset"),
                (gguf_header(entries=[("general.architecture", 8, gguf_string("mamba"))], tensors=0), "m.gguf"),
                (gguf_header(entries=[architecture, architecture]), "general.architecture"),
        ]:
            path = self.file(data)
            for command in (["run", path, "-p", "x"], ["logits", path, "--tokens", "1"],
                            ["tokenize", path], ["chat", path], ["bench", "model", path]):
                with self.subTest(data=data[:40], command=command[0]):
                    self.fails(*command, says=("m.gguf", says))

    def test_every_truncation_of_a_real_header(self):
        need(SMOLLM2)
        with open(SMOLLM2, "rb") as file:
            data = file.read(1 << 16)
        for length in (1, 7, 23, 24, 31, 100, 1000, 40000, 65535):
            with self.subTest(length=length):
                error = self.fails("inspect", self.file(data[:length]), says="m.gguf")
                self.assertRegex(error, r"offset \d+|after \d+ bytes?")

    def test_unreadable(self):
        self.fails("inspect", "/nonexistent.gguf", says="/nonexistent.gguf")
        self.fails("inspect", self.folder.name, says=self.folder.name)
        self.fails("run", "/nonexistent.gguf", "-p", "x", says="/nonexistent.gguf")


class TokenizeTest(ProgramTest):
    TEXTS = ["Hello, world!", " two  spaces ", "naïve café 日本語 🦊\n\ttabs", "<|im_end|>", "a" * 3000, "\n", ""]

    def round_trip(self, model, *flags, special=True):
        need(model)
        for text in self.TEXTS:
            with self.subTest(text=text[:30], flags=flags):
                ids = self.works("tokenize", model, *flags, stdin=text).stdout
                self.assertIsInstance(json.loads(ids), list)
                back = [f for f in flags if f == "--no-bos"]
                self.assertEqual(self.works("detokenize", model, *back, stdin=ids).stdout.decode(), text)

    def test_smollm2(self):
        self.round_trip(SMOLLM2)
        self.round_trip(SMOLLM2, "--special")

    def test_gemma(self):
        self.round_trip(GEMMA)
        self.round_trip(GEMMA, "--no-bos")

    def test_control_tokens_need_special(self):
        need(SMOLLM2)
        plain = json.loads(self.works("tokenize", SMOLLM2, stdin="<|im_end|>").stdout)
        special = json.loads(self.works("tokenize", SMOLLM2, "--special", stdin="<|im_end|>").stdout)
        self.assertEqual(len(special), 1)
        self.assertGreater(len(plain), 1)

    def test_golden_ids(self):
        need(GEMMA)
        golden = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "golden",
                              "gemma3-270m-q4_k_m-tokens.json")
        with open(golden, encoding="utf-8") as file:
            rows = json.load(file)["rows"]
        for row in rows[:12]:
            with self.subTest(text=row["text"]):
                ids = json.loads(self.works("tokenize", GEMMA, "--special", stdin=row["text"]).stdout)
                self.assertEqual(ids, row["tokens_special"])

    def test_bad_input(self):
        need(SMOLLM2)
        self.fails("tokenize", SMOLLM2, stdin=b"abc\xff", says=("standard input", "3"))
        for text, says in [("{}", "array"), ("[1, 2", "array"), ("[1, -1]", "element 1"), ("[1.5]", "element 0"),
                           ("[99999999]", "99999999"), ("[1e400]", "standard input"), ("", "array")]:
            with self.subTest(text=text):
                self.fails("detokenize", SMOLLM2, stdin=text, says=says)


class InspectTest(ProgramTest):
    def test_smollm2(self):
        need(SMOLLM2)
        report = json.loads(self.works("inspect", SMOLLM2, "--json").stdout)
        self.assertEqual(report["architecture"], "llama")
        self.assertTrue(report["support"]["runnable"])
        self.assertIsNone(report["support"]["chat_template"]["problem"])
        text = self.works("inspect", SMOLLM2).stdout.decode()
        self.assertIn("llama", text)
        self.assertIn("Q4_1", text)
        self.assertIn("\ntool arguments    as given\n", text)  # Its template writes no calls.

    def test_the_form_of_tool_arguments(self):
        calls = "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name }} ARGS{% endfor %}{% endfor %}"
        for template, form in [(calls.replace("ARGS", "{{ c.function.arguments }}"), "JSON text"),
                               (calls.replace("ARGS", "{{ c.function.arguments | tojson }}"), "object"),
                               ("{{ messages[0].content }}", "as given"), ("{% if %}", None)]:
            with self.subTest(template=template), tempfile.NamedTemporaryFile(suffix=".gguf") as file:
                file.write(gguf_header(entries=[("general.architecture", 8, gguf_string("llama")),
                                                ("tokenizer.ggml.model", 8, gguf_string("llama")),
                                                ("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 1) + gguf_string("x")),
                                                ("tokenizer.chat_template", 8, gguf_string(template))]))
                file.flush()
                shown = kvasir("inspect", file.name)
                self.assertEqual("tool arguments" in shown.stdout.decode(), form is not None, shown.stdout)
                self.assertEqual(json.loads(kvasir("inspect", file.name, "--json").stdout)["tool_arguments"], form)


class BenchKernelsTest(ProgramTest):
    def test_json(self):
        result = json.loads(self.works("bench", "kernels", "--format", "Q4_1,Q6_K,F16", "--shape", "48x64,32x256",
                                       "--rows", "1,13", "--memory", "1M", "-r", "1", "--json").stdout)
        measured = [(row["format"], row["outputs"], row["inputs"], row["rows"]) for row in result["kernels"]]
        # 64 inputs are no whole block of Q6_K.
        self.assertEqual(measured, [("Q4_1", 48, 64, 1), ("Q4_1", 48, 64, 13), ("Q4_1", 32, 256, 1),
                                    ("Q4_1", 32, 256, 13), ("Q6_K", 32, 256, 1), ("Q6_K", 32, 256, 13),
                                    ("F16", 48, 64, 1), ("F16", 48, 64, 13), ("F16", 32, 256, 1),
                                    ("F16", 32, 256, 13)])
        for row in result["kernels"]:
            self.assertGreater(row["gmac_s"], 0)
            # A row's weights are read once a product, whatever the rows: Q4_1 has 5 bits.
            if row["format"] == "Q4_1":
                self.assertAlmostEqual(row["gb_s"] / row["gmac_s"] * row["rows"], 0.625)
        self.assertGreater(result["limits"]["read_gb_s"], 0)

    def test_other_kernels(self):
        result = json.loads(self.works("bench", "kernels", "--kernels", "rows,attention", "--memory", "1M", "-r", "1",
                                       "--json").stdout)
        self.assertEqual(result["kernels"], [])
        names = [figure["kernel"] for figure in result["others"]]
        for name in ("attention f16", "attention int8", "attention int4", "quantize row", "top 40"):
            self.assertIn(name, names)
        read = {}
        for figure in result["others"]:
            self.assertGreater(figure["call_us"], 0)
            if figure["shape"] == "head 64 x 3, 1 row, 8000 tokens":
                # One row multiplies every stored value by 3 query heads.
                read[figure["kernel"]] = figure["gb_s"] / figure["gmac_s"] * 3
        # Bytes a value: halves; a byte and half a byte with their scales.
        self.assertAlmostEqual(read["attention f16"], 2.0)
        self.assertTrue(1.0 < read["attention int8"] < 1.1, read)
        self.assertTrue(0.5 < read["attention int4"] < 0.7, read)

    def test_bad_lists(self):
        self.fails("bench", "kernels", "--kernels", "products,moon", says=("--kernels", "moon", "attention"))
        self.fails("bench", "kernels", "--format", "Q4_1,Q3", says=("--format", "Q3", "Q4_K"))
        for shape in ["", "5", "5x", "x32", "16x33", "0x32", "16x32x1", "1048577x32"]:
            with self.subTest(shape=shape):
                self.fails("bench", "kernels", f"--shape={shape}", says="--shape")
        self.fails("bench", "kernels", "--shape", "16x32", "--format", "Q4_K", says="whole number of blocks")
        self.fails("bench", "kernels", "--rows", "5000", says=("--rows", "4096"))


if __name__ == "__main__":
    unittest.main()
