#!/usr/bin/env python3
"""Builds and runs the tests; `./dev test` calls it. The last line is "N passed, N failed".

    tools/run_tests.py [--quick] [--rewrite] [NAME...] [--gtest_...]    tests, all or some
    tools/run_tests.py --checks                                         the quick checks only

Counted are: each check, each build, each GoogleTest case, each replayed fuzz corpus and each method of
tests/e2e/*_test.py. A build that breaks, a program that crashes, runs out of time or runs no test is one
failure more. Exit code 0 exactly when nothing failed (2 for a wrong argument).
"""

import fcntl
import glob
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM_TIME_LIMIT_S = 900
OUTPUT_LINES = 120  # Of a failing program's output, at most so many are shown.

CHECKS = [
    ("layers", [sys.executable, "tools/check_layers.py"]),
    ("limits", [sys.executable, "tools/check_limits.py"]),
    ("docs", [sys.executable, "tools/check_docs.py"]),
    ("format", ["bash", "-c", "find src app tests bench '(' -name '*.cc' -o -name '*.h' -o -name '*.inl' ')' "
                              "-print0 | xargs -0 -r -n 8 -P 2 clang-format-14 --dry-run -Werror"]),
]

# Which programs run under which sanitizer: address and undefined behaviour for everything that reads
# bytes from outside or counts owners of memory, threads where threads meet. The release build runs all.
SANITIZED = {
    "asan": ["kv_test", "text_test", "model_test", "io_test", "*_replay"],
    "tsan": ["base_test", "io_test", "engine_test"],
}


class Tally:
    """What passed and failed so far; prints one line for each program."""

    def __init__(self):
        self.passed = 0
        self.failed = 0
        self.skipped = 0
        self.failures = []

    def add(self, name, passed, failed, seconds, output="", skipped=0):
        self.passed += passed
        self.failed += failed
        self.skipped += skipped
        if failed:
            self.failures.append(name)
            print(f"--- {name}: output", flush=True)
            print("\n".join(output.rstrip().splitlines()[-OUTPUT_LINES:]), flush=True)
            print(f"--- {name}: end of output", flush=True)
        counts = f"{passed} passed" + (f", {failed} FAILED" if failed else "")
        counts += f", {skipped} skipped" if skipped else ""
        print(f"{name:<32} {counts:<28} {seconds:7.1f} s", flush=True)

    def close(self):
        if self.failures:
            print("failed: " + ", ".join(self.failures))
        if self.skipped:
            print(f"skipped: {self.skipped}")
        print(f"{self.passed} passed, {self.failed} failed", flush=True)
        return 1 if self.failed else 0


def run_limited(command, environment, limit_s):
    """Runs a command. Returns (exit code or None when out of time, output, seconds)."""
    start = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
                                   stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = process.wait(limit_s)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            code = None
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    return code, text, time.monotonic() - start


def why(code):
    if code is None:
        return f"stopped after {PROGRAM_TIME_LIMIT_S} s"
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"


def test_environment(rewrite):
    environment = dict(os.environ)
    environment["KVASIR_REQUIRE_MODELS"] = "1"
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    environment["KVASIR_BINARY"] = os.path.join(ROOT, "build", "release", "kvasir")
    environment.setdefault("KVASIR_MODELS_DIR", os.path.expanduser("~/.cache/kvasir/models"))
    environment.setdefault("ASAN_OPTIONS", "detect_stack_use_after_return=1:strict_string_checks=1")
    environment.setdefault("UBSAN_OPTIONS", "print_stacktrace=1")
    environment.setdefault("TSAN_OPTIONS", "halt_on_error=0:second_deadlock_stack=1")
    environment.pop("KVASIR_REWRITE", None)
    if rewrite:
        environment["KVASIR_REWRITE"] = "1"
    return environment


def run_checks(tally):
    for name, command in CHECKS:
        code, output, seconds = run_limited(command, None, PROGRAM_TIME_LIMIT_S)
        tally.add(f"check {name}", int(code == 0), int(code != 0), seconds, output)


def fetch_models(tally):
    start = time.monotonic()
    code = subprocess.run([sys.executable, "tools/fetch_models.py"], cwd=ROOT).returncode
    tally.add("models", int(code == 0), int(code != 0), time.monotonic() - start,
              "see the messages of fetch_models above")


def build(tally, preset, wanted):
    """Builds the programs `wanted` selects. Returns {name: path} of those that could be built."""
    start = time.monotonic()
    code, output, _ = run_limited(["cmake", "--preset", preset], None, PROGRAM_TIME_LIMIT_S)
    if code != 0:
        tally.add(f"build {preset}", 0, 1, time.monotonic() - start, output)
        return {}
    programs = {}
    with open(os.path.join(ROOT, "build", preset, "test_programs.txt"), encoding="utf-8") as file:
        for line in file:
            name, path = line.split(maxsplit=1)
            programs[name] = path.strip()
    chosen = {name: path for name, path in programs.items() if wanted(name)}
    targets = sorted(chosen)
    if preset == "release" and glob.glob(os.path.join(ROOT, "app", "*.cc")):
        targets.append("kvasir")
    if not targets:
        return {}
    ninja = ["ninja", "-C", os.path.join("build", preset), "-k", "0", "-j", str(os.cpu_count() or 2)]
    if sys.stdout.isatty():
        code, output = subprocess.run(ninja + targets, cwd=ROOT).returncode, "see above"
    else:
        code, output, _ = run_limited(ninja + ["--quiet"] + targets, None, 4 * PROGRAM_TIME_LIMIT_S)
    tally.add(f"build {preset}", int(code == 0), int(code != 0), time.monotonic() - start, output)
    if code == 0:
        return chosen
    # What could be built is still run; what is left from before this change is not.
    return {name: path for name, path in chosen.items() if can_be_built(preset, name)}


def can_be_built(preset, target):
    return subprocess.run(["ninja", "-C", os.path.join("build", preset), "--quiet", target], cwd=ROOT,
                          capture_output=True).returncode == 0


def failing_output(output):
    """The parts of a GoogleTest log that belong to failures, or all of it when there is none."""
    blocks, block = [], []
    for line in output.splitlines():
        if line.startswith("[ RUN      ]"):
            block = []
        block.append(line)
        if line.startswith("[  FAILED  ]") and " ms)" in line:
            blocks += block
            block = []
        elif line.startswith(("[       OK ]", "[  SKIPPED ]")):
            block = []
    return "\n".join(blocks + block)


def run_gtest(tally, preset, name, path, environment, extra):
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        code, output, seconds = run_limited([path, f"--gtest_output=json:{report}", *extra], environment,
                                            PROGRAM_TIME_LIMIT_S)
        label = f"{preset} {name}"
        try:
            with open(report, encoding="utf-8") as file:
                suites = json.load(file).get("testsuites", [])
        except (OSError, ValueError):
            # It died: what had passed before is counted, the test it died in is the failure.
            passed = len(re.findall(r"^\[       OK \]", output, re.M))
            failed = len(re.findall(r"^\[  FAILED  \].* ms\)$", output, re.M)) + 1
            tally.add(label, passed, failed, seconds, failing_output(output) + f"\n{name}: {why(code)}")
            return
        passed = failed = skipped = 0
        for suite in suites:
            for case in suite.get("testsuite", []):
                if case.get("failures"):
                    failed += 1
                elif case.get("result") == "SKIPPED":
                    skipped += 1
                elif case.get("status") == "RUN":
                    passed += 1
        # A sanitizer's report after the last test, a failure outside any test, or no test at all.
        if (code != 0 and not failed) or (passed + failed + skipped == 0 and not extra):
            failed += 1
            output += f"\n{name}: {why(code)}"
            tally.add(label, passed, failed, seconds, output, skipped)
        else:
            tally.add(label, passed, failed, seconds, failing_output(output), skipped)


def run_replay(tally, preset, name, path, environment):
    code, output, seconds = run_limited([path], environment, PROGRAM_TIME_LIMIT_S)
    tally.add(f"{preset} {name}", int(code == 0), int(code != 0), seconds, f"{output}\n{name}: {why(code)}")


def run_programs(tally, preset, programs, environment, extra):
    for name, path in programs.items():
        if name.endswith("_replay"):
            run_replay(tally, preset, name, path, environment)
        else:
            run_gtest(tally, preset, name, path, environment, extra)


def e2e_python(tally):
    """The Python for the end-to-end tests: with tests/e2e/requirements.txt installed, when there is one."""
    requirements = os.path.join(ROOT, "tests", "e2e", "requirements.txt")
    if not os.path.exists(requirements):
        return sys.executable
    start = time.monotonic()
    with open(requirements, "rb") as file:
        digest = hashlib.sha256(sys.version.encode() + file.read()).hexdigest()[:16]
    cache = os.path.expanduser("~/.cache/kvasir")
    os.makedirs(cache, exist_ok=True)
    venv = os.path.join(cache, f"venv-{digest}")
    python = os.path.join(venv, "bin", "python")
    with open(os.path.join(cache, ".venv-lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(os.path.join(venv, "complete")):
            return python
        for command in ([sys.executable, "-m", "venv", "--clear", venv],
                        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                         "-r", requirements]):
            code, output, _ = run_limited(command, None, PROGRAM_TIME_LIMIT_S)
            if code != 0:
                tally.add("e2e requirements", 0, 1, time.monotonic() - start, output)
                return None
        with open(os.path.join(venv, "complete"), "w", encoding="ascii"):
            pass
    return python


def run_e2e(tally, environment):
    scripts = sorted(glob.glob(os.path.join(ROOT, "tests", "e2e", "*_test.py")))
    python = e2e_python(tally) if scripts else None
    for script in scripts if python else []:
        with tempfile.TemporaryDirectory() as folder:
            report = os.path.join(folder, "report.json")
            code, output, seconds = run_limited(
                [python, os.path.abspath(__file__), "--unittest", script, report], environment,
                PROGRAM_TIME_LIMIT_S)
            label = f"e2e {os.path.basename(script)}"
            try:
                with open(report, encoding="ascii") as file:
                    passed, failed, skipped = json.load(file)
            except (OSError, ValueError):
                passed, failed, skipped = 0, 1, 0
            if passed + failed + skipped == 0:
                failed = 1
            tally.add(label, passed, failed, seconds, f"{output}\n{script}: {why(code)}", skipped)


def run_unittest(script, report):
    """The process of one end-to-end script: runs its test methods and writes the counts."""
    sys.path.insert(0, os.path.dirname(script))
    suite = unittest.defaultTestLoader.loadTestsFromName(os.path.basename(script)[:-len(".py")])
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(suite)
    # Methods, not subtests: a method with three failing subtests is one failure.
    broken = {getattr(case, "test_case", case).id() for case, _ in result.failures + result.errors}
    failed = len(broken) + len(result.unexpectedSuccesses)
    skipped = len(result.skipped)
    with open(report, "w", encoding="ascii") as file:
        json.dump([max(0, result.testsRun - failed - skipped), failed, skipped], file)
    return 1 if failed else 0


def matches(name, patterns):
    return any(name == p or (p.startswith("*") and name.endswith(p[1:])) for p in patterns)


def run_some(tally, names, environment, extra):
    """`./dev test NAME...`: release build only; a name is a module, a program or e2e."""
    wanted = {name for name in names} | {f"{name}_test" for name in names} | {f"{name}_replay" for name in names}
    programs = build(tally, "release", lambda name: name in wanted)
    known = set(programs) | {"e2e"}
    for name in names:
        if not known & {name, f"{name}_test", f"{name}_replay"}:
            tally.add(name, 0, 1, 0.0, f"no tests are called {name!r}, or they could not be built")
    fetch_models(tally)
    run_programs(tally, "release", programs, environment, extra)
    if "e2e" in names:
        run_e2e(tally, environment)


def run_all(tally, quick, environment, extra):
    run_checks(tally)
    fetch_models(tally)
    programs = build(tally, "release", lambda name: not name.endswith("_replay"))
    run_programs(tally, "release", programs, environment, extra)
    run_e2e(tally, environment)
    if quick:
        return
    for preset, patterns in SANITIZED.items():
        programs = build(tally, preset, lambda name, p=patterns: matches(name, p))
        run_programs(tally, preset, programs, environment, extra)
        for pattern in patterns:
            if not any(matches(name, [pattern]) for name in programs):
                tally.add(f"{preset} {pattern}", 0, 1, 0.0, "no such test program was built")


def main(arguments):
    if arguments[:1] == ["--unittest"]:
        return run_unittest(arguments[1], arguments[2])
    extra = [a for a in arguments if a.startswith("--gtest_")]
    options = {a for a in arguments if a.startswith("-")} - set(extra)
    names = [a for a in arguments if not a.startswith("-")]
    unknown = options - {"--quick", "--rewrite", "--checks"}
    if unknown:
        print(f"run_tests: unknown option {sorted(unknown)[0]}; known: --quick --rewrite --checks --gtest_...",
              file=sys.stderr)
        return 2
    tally = Tally()
    environment = test_environment("--rewrite" in options)
    try:
        if "--checks" in options:
            run_checks(tally)
        elif names:
            run_some(tally, names, environment, extra)
        else:
            run_all(tally, "--quick" in options, environment, extra)
    except Exception as error:  # A bug here must not hide the last line.
        tally.add("run_tests", 0, 1, 0.0, f"{type(error).__name__}: {error}")
    return tally.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
