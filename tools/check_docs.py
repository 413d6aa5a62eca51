#!/usr/bin/env python3
"""Checks the documentation and the text of the repository against the tree.

Fails on: a path named in README.md or docs/*.md, or a docs/*.md named in a source file, that does not
exist; a relative link that leads nowhere; a note to do something later that names no owner in
parentheses; an absolute path of somebody's machine in any text file.

A path is recognised between backticks, by its first folder. `NAME`, `*` and `<...>` stand for anything.
build/ and files that `./dev` makes are not checked.
"""

import glob
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOPS = ("src", "app", "tests", "bench", "docs", "tools", "cmake", ".ci")
SKIPPED = (".gguf", ".png", ".bin")
# Spelled so that this file does not contain what it looks for.
MACHINE_PATH = re.compile(r"(?<![\w./$}~-])/" + r"(?:root|home|work)/\w")
UNOWNED = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b(?!\([\w.-]+\))")


def tracked_files():
    """Every file that belongs to the repository, added or not."""
    done = subprocess.run(["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard"],
                          capture_output=True, text=True)
    if done.returncode == 0:
        return [name for name in done.stdout.splitlines() if os.path.isfile(os.path.join(ROOT, name))]
    found = ["README.md"] if os.path.isfile(os.path.join(ROOT, "README.md")) else []
    for top in TOPS:
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            found += [os.path.relpath(os.path.join(folder, name), ROOT) for name in names]
    return found


def exists(path):
    """Whether `path` names something here, from the root or from src/."""
    pattern = re.sub(r"<[^>]*>|\{[^}]*\}|(?<![A-Z])(?:NAME|PRESET|MODULE)(?![A-Z])", "*", path.rstrip("/"))
    return any(glob.glob(os.path.join(ROOT, base, pattern)) for base in ("", "src"))


def check_page(path, text, modules, problems):
    for number, line in enumerate(text.splitlines(), 1):
        for word in re.findall(r"`([^`\s]+)`", line) + re.findall(r"`\./([^`\s]+)[^`]*`", line):
            word = re.sub(r":\d+$", "", word).removeprefix("./")
            if "/" in word and word.split("/")[0] in TOPS + tuple(modules) and not exists(word):
                problems.append(f"{path}:{number}: {word} does not exist")
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", line):
            if "://" in target or target.startswith("mailto:"):
                continue
            if not os.path.exists(os.path.join(ROOT, os.path.dirname(path), target)):
                problems.append(f"{path}:{number}: the link to {target} leads nowhere")


def check_text(path, text, problems):
    for number, line in enumerate(text.splitlines(), 1):
        for match in UNOWNED.finditer(line):
            problems.append(f"{path}:{number}: {match.group(0)} without an owner")
        if MACHINE_PATH.search(line):
            problems.append(f"{path}:{number}: absolute path of one machine")
        if path.startswith(("src/", "app/", "tests/", "bench/")):
            # "repository, docs/x.md" names a page of another project, as a source.
            for page in re.findall(r"(?<!repository, )\bdocs/[\w-]+\.md\b", line):
                if not os.path.exists(os.path.join(ROOT, page)):
                    problems.append(f"{path}:{number}: {page} does not exist")


def main():
    problems = []
    modules = [m for m in sorted(os.listdir(os.path.join(ROOT, "src")))
               if os.path.isdir(os.path.join(ROOT, "src", m))]
    for path in tracked_files():
        if path.endswith(SKIPPED) or path == "LICENSE" or "/golden/" in path or "/corpus/" in path:
            continue
        with open(os.path.join(ROOT, path), "rb") as file:
            try:
                text = file.read().decode("utf-8")
            except UnicodeDecodeError:
                continue
        if path == "README.md" or (path.startswith("docs/") and path.endswith(".md")):
            check_page(path, text, modules, problems)
        check_text(path, text, problems)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
