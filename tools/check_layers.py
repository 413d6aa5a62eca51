#!/usr/bin/env python3
"""Checks every #include against the table of layers in docs/ARCHITECTURE.md.

Fails on: an include of ours that the table does not allow (tests too), a table with a cycle or an
unknown folder, a third-party header in a .h file (exceptions: Abseil status and fmt in base,
GoogleTest in a header that only tests include),
and more than four translation units that include Boost.Beast, each of which costs half a minute.
"""

import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TABLE = "docs/ARCHITECTURE.md"
BEAST_LIMIT = 4
INCLUDE = re.compile(r'^\s*#\s*include\s*(<([^>]+)>|"([^"]+)")')
# What a third-party header may be in a .h of base/.
BASE_HEADERS = ("absl/status/", "fmt/")
# What it may be in a .h that only tests include.
TEST_HEADERS = ("gtest/", "gmock/")
# Headers of the system and the compiler that have a folder or a ".h": all others with one of
# these are a library's.
SYSTEM = re.compile(r"^(sys|linux|netinet|arpa|asm|bits)/|^[a-z0-9_]+\.h$")
LIBRARY_TOP = {"CLI11.hpp", "CLI/CLI.hpp", "pcre2.h", "utf8proc.h", "histedit.h", "xxhash.h",
               "liburing.h"}
SOURCES = (".h", ".cc", ".inl")


def read_table():
    """Returns {folder: set of folders it may include} and a list of complaints."""
    allowed, problems = {}, []
    with open(os.path.join(ROOT, TABLE), encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if len(cells) != 3 or not re.fullmatch(r"`\w+`", cells[0]):
                continue
            allowed[cells[0].strip("`")] = set(re.findall(r"\w+", cells[2]))
    for folder, targets in allowed.items():
        for target in sorted(targets - set(allowed)):
            problems.append(f"{TABLE}: {folder} may include {target}, which is not in the table")
    if not allowed:
        problems.append(f"{TABLE}: no table of layers found")
    return allowed, problems


def find_cycle(allowed):
    """Returns a cycle of the table as a list of folders, or None."""
    done, path = set(), []

    def visit(folder):
        if folder in path:
            return path[path.index(folder):] + [folder]
        if folder in done:
            return None
        path.append(folder)
        for target in sorted(allowed.get(folder, ())):
            cycle = visit(target)
            if cycle:
                return cycle
        path.pop()
        done.add(folder)
        return None

    for folder in sorted(allowed):
        cycle = visit(folder)
        if cycle:
            return cycle
    return None


def source_files(top):
    for folder, _, names in os.walk(os.path.join(ROOT, top)):
        for name in sorted(names):
            if name.endswith(SOURCES):
                yield os.path.relpath(os.path.join(folder, name), ROOT)


def includes_of(path):
    """Yields (line number, header, whether quoted)."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            match = INCLUDE.match(line)
            if match:
                yield number, match.group(2) or match.group(3), match.group(3) is not None


def is_third_party(header):
    if header in LIBRARY_TOP:
        return True
    if "." not in header and "/" not in header:
        return False  # <vector>
    return not SYSTEM.match(header)


def only_tests_include(path):
    """Whether every includer of the header `path` is a test, or a header that only tests include."""
    wanted = path.removeprefix("src/")
    for top in ("src", "app", "bench"):
        for other in source_files(top):
            if other.endswith("_test.cc") or all(h != wanted for _, h, _ in includes_of(other)):
                continue
            if not other.endswith("_for_test.h") or not only_tests_include(other):
                return False
    return True


def check_module(module, allowed, problems):
    for path in source_files(os.path.join("src", module)):
        for number, header, quoted in includes_of(path):
            first = header.split("/")[0]
            if first in allowed and os.path.exists(os.path.join(ROOT, "src", header)):
                if first != module and first not in allowed[module]:
                    problems.append(f"{path}:{number}: {module} may not include {header} ({TABLE})")
                continue
            if first in allowed or (quoted and not header.startswith(BASE_HEADERS)
                                    and "/" not in header):
                problems.append(f"{path}:{number}: no file src/{header}; write includes from src/")
                continue
            if not path.endswith(".cc") and is_third_party(header):
                allowed_here = (module == "base" and header.startswith(BASE_HEADERS)
                                or header.startswith(TEST_HEADERS) and only_tests_include(path))
                if not allowed_here:
                    problems.append(f"{path}:{number}: third-party header {header} outside a .cc")


def check_top(top, allowed, problems):
    """app/ and bench/ may include every module; their headers stay free of third-party ones too."""
    for path in source_files(top):
        for number, header, _ in includes_of(path):
            first = header.split("/")[0]
            if first in allowed:
                if not os.path.exists(os.path.join(ROOT, "src", header)):
                    problems.append(f"{path}:{number}: no file src/{header}")
            elif first != top and not path.endswith(".cc") and is_third_party(header):
                problems.append(f"{path}:{number}: third-party header {header} outside a .cc")


def check_beast(problems):
    users = [path for top in ("src", "app", "tests", "bench") for path in source_files(top)
             if any(header.startswith("boost/beast") for _, header, _ in includes_of(path))]
    if len(users) > BEAST_LIMIT:
        problems.append(f"{len(users)} files include Boost.Beast, at most {BEAST_LIMIT} may: "
                        + " ".join(users))


def main():
    allowed, problems = read_table()
    cycle = find_cycle(allowed)
    if cycle:
        problems.append(f"{TABLE}: cycle {' -> '.join(cycle)}")
    for module in sorted(os.listdir(os.path.join(ROOT, "src"))):
        if not os.path.isdir(os.path.join(ROOT, "src", module)):
            continue
        if module not in allowed:
            if any(source_files(os.path.join("src", module))):
                problems.append(f"src/{module} is not in the table of {TABLE}")
            continue
        check_module(module, allowed, problems)
    for top in ("app", "bench"):
        check_top(top, allowed, problems)
    check_beast(problems)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
