"""What the end-to-end tests of the program share: running it, the models, broken files, a terminal."""

import os
import pty
import re
import select
import signal
import struct
import subprocess
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BINARY = (os.environ.get("KVASIR_BINARY") or os.environ.get("KVASIR_BIN")
          or os.path.join(ROOT, "build", "release", "kvasir"))
MODELS = os.environ.get("KVASIR_MODELS_DIR") or os.path.expanduser("~/.cache/kvasir/models")
SMOLLM2 = os.path.join(MODELS, "SmolLM2-135M-Instruct.Q4_1.gguf")
GEMMA = os.path.join(MODELS, "gemma-3-270m-q4_k_m.gguf")

HOME = tempfile.TemporaryDirectory()  # Empty, and gone with this process.


def clean_environment(**extra):
    """The environment without the caller's own settings, so that they cannot leak into a test."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("KVASIR_")}
    environment["XDG_CONFIG_HOME"] = HOME.name
    environment["XDG_STATE_HOME"] = HOME.name
    environment.update(extra)
    return environment


def kvasir(*args, stdin=b"", env=None, timeout=120):
    """Runs the program to its end; output as bytes."""
    if isinstance(stdin, str):
        stdin = stdin.encode()
    return subprocess.run([BINARY, *args], input=stdin, capture_output=True, timeout=timeout,
                          env=env or clean_environment(), check=False)


def need(path):
    if os.path.exists(path):
        return
    if os.environ.get("KVASIR_REQUIRE_MODELS"):
        raise AssertionError(f"{path} is missing and KVASIR_REQUIRE_MODELS is set")
    raise unittest.SkipTest(f"{path} is missing")


ONE_OF_MANY = re.compile(r"(?<![\w.,:/-])1 (?:prompt |block |different |own )?(?:tokens|slots|threads|requests|sequences|"
                         r"messages|blocks|references|bytes|rounds|steps|turns|runs|switches|guesses|clients|rows|"
                         r"layers|tensors|prompts)\b(?!/)")
HELP = {}  # By command: what its --help prints.


def flags_without_help(args, text):
    """The options named in `text` that the command of `args` does not have, and that `args` does not hold either."""
    command = ()
    for count in (2, 1):
        words = args[:count]
        if words not in HELP and all(re.fullmatch(r"[a-z-]*[a-z]", word) for word in words):
            result = kvasir(*words, "--help")
            HELP[words] = result.stdout.decode() if result.returncode == 0 else None
        if HELP.get(words):
            command = words
            break
    if not command:
        return set()
    given = {arg.split("=")[0] for arg in args}
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", text)) - given - set(
        re.findall(r"--[a-z][a-z-]*[a-z]", HELP[command]))


class ProgramTest(unittest.TestCase):
    def reads_well(self, args, text):
        """What a person sees names options that there are, and counts in their language."""
        self.assertNotRegex(text, ONE_OF_MANY, args)
        self.assertEqual(flags_without_help(args, text), set(), f"{args}: {text}")

    def fails(self, *args, code=2, says=(), **kwargs):
        """Asserts that the program ends with `code`, nothing on stdout, and one line on stderr."""
        result = kvasir(*args, **kwargs)
        error = result.stderr.decode()
        self.assertEqual(result.returncode, code, f"{args}: {error}")
        self.assertEqual(result.stdout, b"", args)
        self.assertRegex(error, r"\Akvasir: [^\n]+\n\Z", f"{args}: not one line")
        for part in [says] if isinstance(says, str) else says:
            self.assertIn(part, error, args)
        self.reads_well(args, error)
        return error

    def works(self, *args, **kwargs):
        result = kvasir(*args, **kwargs)
        self.assertEqual(result.returncode, 0, f"{args}: {result.stderr.decode()}")
        self.reads_well(args, result.stderr.decode())
        return result


def gguf_string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf_header(version=3, tensors=0, entries=()):
    """A GGUF file that holds (key, type, value bytes) entries and announces `tensors` tensors."""
    data = b"GGUF" + struct.pack("<IQQ", version, tensors, len(entries))
    for key, kind, value in entries:
        data += gguf_string(key) + struct.pack("<I", kind) + value
    return data


class Terminal:
    """The program on a pseudo terminal: type, and wait for what should appear."""

    def __init__(self, *args, env=None):
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            try:
                os.execve(BINARY, [BINARY, *args], env or clean_environment(TERM="xterm"))
            finally:
                os._exit(127)  # Not there: this child must not go on as a second test run.
        self.output = ""

    def read_until(self, pattern, timeout=60):
        """Everything from the last match on, up to and including the next match of `pattern`."""
        deadline = time.monotonic() + timeout
        while True:
            match = re.search(pattern, self.output, re.S)
            if match:
                text, self.output = self.output[:match.end()], self.output[match.end():]
                return text
            left = deadline - time.monotonic()
            if left <= 0:
                raise AssertionError(f"no {pattern!r} within {timeout} s in {self.output!r}")
            if select.select([self.descriptor], [], [], left)[0]:
                try:
                    data = os.read(self.descriptor, 65536)
                except OSError:  # Linux's way to say that the other side is closed.
                    data = b""
                if not data:
                    raise AssertionError(f"ended without {pattern!r}: {self.output!r}")
                self.output += data.decode("utf-8", "replace")

    def type(self, text):
        os.write(self.descriptor, text.encode())

    def wait(self, timeout=20):
        """The exit code."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            try:  # Somebody must read, or the program blocks on its output.
                if select.select([self.descriptor], [], [], 0.05)[0]:
                    os.read(self.descriptor, 65536)
            except OSError:
                pass
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                return os.waitstatus_to_exitcode(status)
        raise AssertionError("the program does not end")

    def close(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.descriptor)
