"""`kvasir quantize`: what it writes, that the result runs, and what is left when it does not come to its end.

Also split model files, which it reads like every other command.
"""

import array
import json
import math
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cli_harness import BINARY, ProgramTest, clean_environment, gguf_string  # noqa: E402

LAYERS, D_MODEL, D_FFN, HEAD_DIM, VOCAB = 8, 256, 288, 64, 288
UINT16, UINT32, INT32, FLOAT32, STRING, ARRAY = 2, 4, 5, 6, 8, 9
F32 = 0
TEXT = "It was a bright cold day in April, and the clocks were striking thirteen. " * 12


def entry(key, kind, value):
    return gguf_string(key) + struct.pack("<I", kind) + value


def array_of(kind, items):
    return struct.pack("<IQ", kind, len(items)) + b"".join(items)


def metadata():
    """A llama of 8 layers with a vocabulary of single bytes."""
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    tokens += [f"w{i}" for i in range(VOCAB - len(tokens))]
    types = [2, 3, 3] + [6] * 256 + [1] * (VOCAB - 259)
    uint = lambda value: struct.pack("<I", value)  # noqa: E731
    real = lambda value: struct.pack("<f", value)  # noqa: E731
    numbers = {"block_count": LAYERS, "context_length": 1024, "embedding_length": D_MODEL,
               "feed_forward_length": D_FFN, "attention.head_count": 4, "attention.head_count_kv": 2,
               "attention.key_length": HEAD_DIM, "attention.value_length": HEAD_DIM, "rope.dimension_count": HEAD_DIM}
    entries = [entry("general.architecture", STRING, gguf_string("llama")),
               entry("general.name", STRING, gguf_string("tiny")),
               entry("general.file_type", UINT32, uint(0))]
    entries += [entry("llama." + key, UINT32, uint(value)) for key, value in numbers.items()]
    entries += [entry("llama.attention.layer_norm_rms_epsilon", FLOAT32, real(1e-5)),
                entry("tokenizer.ggml.model", STRING, gguf_string("llama")),
                entry("tokenizer.ggml.tokens", ARRAY, array_of(STRING, [gguf_string(t) for t in tokens])),
                entry("tokenizer.ggml.scores", ARRAY, array_of(FLOAT32, [real(-i) for i in range(VOCAB)])),
                entry("tokenizer.ggml.token_type", ARRAY, array_of(INT32, [struct.pack("<i", t) for t in types])),
                entry("tokenizer.ggml.bos_token_id", UINT32, uint(1)),
                entry("tokenizer.ggml.eos_token_id", UINT32, uint(2))]
    return entries


def tensors():
    """(name, dimensions, F32 bytes) of random matrices and norms of one."""
    rng = random.Random(5)
    pool = array.array("f", (rng.gauss(0, 0.08) for _ in range(1 << 16)))

    def matrix(name, rows, cols):
        values = array.array("f")
        while len(values) < rows * cols:
            start = rng.randrange(len(pool) // 2)
            values.extend(pool[start:start + min(rows * cols - len(values), len(pool) // 2)])
        return name, (cols, rows), values.tobytes()

    def norm(name):
        return name, (D_MODEL,), array.array("f", [1.0] * D_MODEL).tobytes()

    made = [matrix("token_embd.weight", VOCAB, D_MODEL), norm("output_norm.weight")]
    for i in range(LAYERS):
        at = f"blk.{i}."
        made += [norm(at + "attn_norm.weight"), matrix(at + "attn_q.weight", 4 * HEAD_DIM, D_MODEL),
                 matrix(at + "attn_k.weight", 2 * HEAD_DIM, D_MODEL), matrix(at + "attn_v.weight", 2 * HEAD_DIM, D_MODEL),
                 matrix(at + "attn_output.weight", D_MODEL, 4 * HEAD_DIM), norm(at + "ffn_norm.weight"),
                 matrix(at + "ffn_gate.weight", D_FFN, D_MODEL), matrix(at + "ffn_up.weight", D_FFN, D_MODEL),
                 matrix(at + "ffn_down.weight", D_MODEL, D_FFN)]
    return made


def gguf(entries, parts):
    """A file's bytes. Sizes of tensors are multiples of the alignment."""
    index, data = b"", b""
    for name, dims, values in parts:
        index += gguf_string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        index += struct.pack("<IQ", F32, len(data))
        data += values
    head = b"GGUF" + struct.pack("<IQQ", 3, len(parts), len(entries)) + b"".join(entries) + index
    return head + b"\0" * (-len(head) % 32) + data


class TinyModelTest(ProgramTest):
    """A folder that holds the model."""

    @classmethod
    def setUpClass(cls):
        cls.made = tensors()
        cls.bytes = gguf(metadata(), cls.made)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.model = self.write("in.gguf", self.bytes)

    def at(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, content):
        with open(self.at(name), "wb") as file:
            file.write(content)
        return self.at(name)

    def read(self, name):
        with open(self.at(name), "rb") as file:
            return file.read()

    def perplexity(self, name):
        return json.loads(self.works("perplexity", self.at(name), "-f", self.write("text", TEXT.encode()), "--json").stdout)


class DamagedWeightsTest(TinyModelTest):
    def test_weights_that_are_no_numbers(self):
        for value in (math.nan, 3e38):
            parts = [(name, dims, array.array("f", [value] * D_MODEL).tobytes() if name == "output_norm.weight" else values)
                     for name, dims, values in self.made]
            bad = self.write("bad.gguf", gguf(metadata(), parts))
            for command in (["run", bad, "-p", "x", "-n", "2"], ["logits", bad, "--tokens", "1,2"]):
                with self.subTest(value=value, command=command[0]):
                    self.fails(*command, says=("bad.gguf", "computes no numbers", "damaged"))


class QuantizeTest(TinyModelTest):
    def test_every_type_runs(self):
        # Largest change of the perplexity of a model of noise, which is near that of guessing.
        before = self.perplexity("in.gguf")["perplexity"]
        sizes = {}
        for kind, bound in [("F16", 0.002), ("Q8_0", 0.03), ("Q6_K", 0.04), ("Q5_0", 0.1), ("Q4_K_M", 0.2),
                            ("Q4_K", 0.3), ("q4_1", 0.3), ("Q4_0", 0.4)]:
            out = f"{kind}.gguf"
            report = json.loads(self.works("quantize", self.model, self.at(out), kind, "--json").stdout)
            sizes[kind] = os.path.getsize(self.at(out))
            self.assertEqual(report["bytes"], sizes[kind])
            self.assertEqual(report["bytes_before"], len(self.bytes))
            self.assertLess(abs(self.perplexity(out)["perplexity"] / before - 1), bound, kind)
        ordered = [sizes[kind] for kind in ("F16", "Q8_0", "Q6_K", "Q4_K_M", "Q4_K", "Q4_0")]
        self.assertEqual(ordered, sorted(ordered, reverse=True))

    def test_which_tensor_gets_what(self):
        report = json.loads(self.works("quantize", self.model, self.at("out.gguf"), "Q4_K_M", "--json").stdout)
        # Rows of 288 in ffn_down are no whole blocks of 256. Sensitive layers: 0, 3, 6, 7.
        self.assertEqual({name: each["tensors"] for name, each in report["formats"].items()},
                         {"F32": 17, "Q5_0": 4, "Q8_0": 4, "Q4_K": 44, "Q6_K": 5})
        self.assertEqual(report["fallbacks"], [
            {"wanted": "Q6_K", "format": "Q8_0", "row_values": 288, "tensors": 4},
            {"wanted": "Q4_K", "format": "Q5_0", "row_values": 288, "tensors": 4}])
        text = self.works("quantize", self.model, self.at("again.gguf"), "Q4_K_M").stdout.decode()
        self.assertIn("  Q8_0 instead of Q6_K for 4 tensors: rows of 288 are no whole blocks of 256\n"
                      "  Q5_0 instead of Q4_K for 4 tensors: rows of 288 are no whole blocks of 256\n", text)
        self.assertNotIn("instead", self.works("quantize", self.model, self.at("all.gguf"), "Q8_0").stdout.decode())
        self.assertEqual(report["formats"]["F32"]["relative_error"], 0)
        self.assertLess(report["formats"]["Q6_K"]["relative_error"], 0.02)
        seen = json.loads(self.works("inspect", self.at("out.gguf"), "--json").stdout)["tensor_types"]
        self.assertEqual({name: each["tensor_count"] for name, each in seen.items()},
                         {"F32": 17, "Q5_0": 4, "Q8_0": 4, "Q4_K": 44, "Q6_K": 5})

    def test_metadata_is_kept_and_says_what_the_file_is(self):
        self.works("quantize", self.model, self.at("out.gguf"), "Q8_0")
        out = self.read("out.gguf")
        for each in metadata():
            if b"general.file_type" not in each:
                self.assertIn(each, out)
        self.assertIn(entry("general.file_type", UINT32, struct.pack("<I", 7)), out)
        self.assertEqual(out.count(b"general.file_type"), 1)

    def test_same_bytes_for_any_number_of_threads(self):
        self.works("quantize", self.model, self.at("1.gguf"), "Q4_K_M", "--threads", "1")
        self.works("quantize", self.model, self.at("3.gguf"), "Q4_K_M", "--threads", "3")
        self.assertEqual(self.read("1.gguf"), self.read("3.gguf"))

    def test_check_is_what_perplexity_says(self):
        text = self.write("text", TEXT.encode())
        report = json.loads(self.works("quantize", self.model, self.at("out.gguf"), "Q4_0", "--check", text,
                                       "--json").stdout)
        self.assertEqual(report["perplexity_before"], self.perplexity("in.gguf")["perplexity"])
        self.assertEqual(report["perplexity_after"], self.perplexity("out.gguf")["perplexity"])
        line = self.works("quantize", self.model, self.at("out.gguf"), "Q4_0", "--check", text, "--force").stdout
        self.assertRegex(line.decode(), r"perplexity [\d.]+ \+- [\d.]+ before, [\d.]+ \+- [\d.]+ after")

    def test_nothing_is_overwritten_unasked(self):
        self.write("out.gguf", b"mine")
        self.fails("quantize", self.model, self.at("out.gguf"), "Q8_0", says="exists; pass --force")
        self.assertEqual(self.read("out.gguf"), b"mine")
        self.works("quantize", self.model, self.at("out.gguf"), "Q8_0", "--force")
        self.assertEqual(self.read("out.gguf")[:4], b"GGUF")
        os.link(self.model, self.at("same.gguf"))
        for name in ("in.gguf", "same.gguf"):
            self.fails("quantize", self.model, self.at(name), "Q8_0", "--force", says="is the file that is read")
        self.assertEqual(self.read("in.gguf"), self.bytes)
        self.assertEqual(sorted(os.listdir(self.folder)), ["in.gguf", "out.gguf", "same.gguf"])

    def test_what_is_lost_does_not_come_back(self):
        self.works("quantize", self.model, self.at("small.gguf"), "Q4_0")
        self.fails("quantize", self.at("small.gguf"), self.at("out.gguf"), "Q8_0",
                   says=["small.gguf", "'token_embd.weight'", "Q4_0 already", "--allow-requantize"])
        self.assertFalse(os.path.exists(self.at("out.gguf")))
        self.works("quantize", self.at("small.gguf"), self.at("out.gguf"), "Q8_0", "--allow-requantize")
        self.perplexity("out.gguf")

    def test_bad_input(self):
        out = self.at("out.gguf")
        self.fails("quantize", self.model, out, "Q3", says="the types are F16, Q8_0, Q6_K")
        self.fails("quantize", self.at("none.gguf"), out, "Q8_0", says="none.gguf: cannot open the file")
        self.fails("quantize", self.model, self.at("no/out.gguf"), "Q8_0", says="out.gguf: cannot be written")
        self.fails("quantize", self.model, self.folder, "Q8_0", says="is not a regular file")
        self.fails("quantize", self.model, out, "Q8_0", "--check", self.at("none"), says="none")
        broken = [(name, dims, struct.pack("<f", float("nan")) + values[4:]) if name == "blk.3.attn_q.weight"
                  else (name, dims, values) for name, dims, values in self.made]
        self.fails("quantize", self.write("nan.gguf", gguf(metadata(), broken)), out, "Q8_0",
                   says="'blk.3.attn_q.weight': it holds values that Q8_0 cannot")
        self.assertEqual(sorted(os.listdir(self.folder)), ["in.gguf", "nan.gguf"])

    def test_a_full_disk_leaves_nothing(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        # Python ignores SIGXFSZ; so does the child then, and is told by the error instead.
        result = subprocess.run([BINARY, "quantize", self.model, self.at("out.gguf"), "Q8_0"], capture_output=True,
                                env=clean_environment(), preexec_fn=limit, restore_signals=False, check=False)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn(b"out.gguf: cannot be written: File too large", result.stderr)
        self.assertEqual(os.listdir(self.folder), ["in.gguf"])

    def test_ctrl_c_leaves_nothing(self):
        # A gigabyte of zeros that the disk need not hold.
        side = 16384
        big = self.at("big.gguf")
        head = gguf(metadata(), [])[:24]
        index = gguf_string("a.weight") + struct.pack("<IQQIQ", 2, side, side, F32, 0)
        data = head[:8] + struct.pack("<QQ", 1, len(metadata())) + b"".join(metadata()) + index
        data += b"\0" * (-len(data) % 32)
        self.write("big.gguf", data)
        os.truncate(big, len(data) + side * side * 4)
        program = subprocess.Popen([BINARY, "quantize", big, self.at("out.gguf"), "Q8_0", "--threads", "1"],
                                   env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(0.15)
        program.send_signal(signal.SIGINT)
        out, _ = program.communicate(timeout=60)
        self.assertEqual(program.returncode, 130)
        self.assertEqual(out, b"")
        self.assertEqual(sorted(os.listdir(self.folder)), ["big.gguf", "in.gguf"])


class SplitTest(TinyModelTest):
    """The same model in three parts."""

    def split(self, count=3, tensors=None, numbers=None):
        whole = len(self.made)
        paths = []
        for i in range(count):
            number = i if numbers is None else numbers[i]
            entries = (metadata() if i == 0 else []) + [
                entry("split.no", UINT16, struct.pack("<H", number)),
                entry("split.count", UINT16, struct.pack("<H", count)),
                entry("split.tensors.count", INT32, struct.pack("<i", tensors or whole))]
            part = self.made[whole * i // count:whole * (i + 1) // count]
            paths.append(self.write(f"m-{i + 1:05}-of-{count:05}.gguf", gguf(entries, part)))
        return paths

    def test_any_part_is_the_model(self):
        paths = self.split()
        text = self.write("text", TEXT.encode())
        want = self.perplexity("in.gguf")["perplexity"]
        for path in (paths[0], paths[2]):
            got = json.loads(self.works("perplexity", path, "-f", text, "--json").stdout)
            self.assertEqual(got["perplexity"], want)
        self.works("inspect", paths[1])
        self.works("tokenize", paths[1], stdin="a")
        self.works("quantize", paths[1], self.at("joined.gguf"), "Q4_K_M")
        self.works("quantize", self.model, self.at("whole.gguf"), "Q4_K_M")
        self.assertEqual(self.read("joined.gguf"), self.read("whole.gguf"))

    def test_parts_that_are_none(self):
        paths = self.split()
        os.remove(paths[1])
        self.fails("inspect", paths[2], says=["part 2 of 3 is needed too", "m-00002-of-00003.gguf"])
        paths = self.split(tensors=99)
        self.fails("inspect", paths[0], says=["the model has 99 tensors, its parts hold"])
        paths = self.split(numbers=[0, 2, 1])
        self.fails("tokenize", paths[0], says=["part 2 of 3", "'split.no'"])
        alone = self.at("alone.gguf")
        os.rename(self.split()[1], alone)
        self.fails("inspect", alone, says="this is part 2 of a model of 3 parts")


if __name__ == "__main__":
    unittest.main()
