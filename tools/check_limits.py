#!/usr/bin/env python3
"""Checks the limits that keep the code readable.

Functions: 98 % have at most 70 lines, none more than 120. Files: .h at most 200 lines, .cc and .inl
at most 600. Include guards are KVASIR_<PATH>_H_. No file or type is called Manager, Helper, Utils,
Handler, Info or Data. Lines of a function run from its name to its closing brace.

tools/limits_exceptions.txt lists what may break a limit, one "path name lines" a line (name is the
function, or "file"). It may only shrink: an entry that is no longer needed fails, and so does one
that was not in the first committed version.

    tools/check_limits.py [--list]     --list prints the longest functions
"""

import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOPS = ("src", "app", "tests", "bench")
EXCEPTIONS = "tools/limits_exceptions.txt"
FILE_LIMITS = {".h": 200, ".cc": 600, ".inl": 600}
FUNCTION_LIMIT = 120
USUAL_LIMIT = 70
USUAL_SHARE = 0.98
BANNED = ("Manager", "Helper", "Utils", "Handler", "Info", "Data")
CONTROL = {"if", "for", "while", "switch", "catch", "constexpr", "return", "sizeof", "alignof",
           "decltype", "requires", "noexcept", "defined", "do", "else"}
TOKEN = re.compile(
    r'R"([^()\\ ]{0,16})\((?:.|\n)*?\)\1"'  # raw string
    r'|//[^\n]*|/\*(?:.|\n)*?\*/'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'")


def blank(text):
    """Replaces comments, literals and preprocessor lines by spaces; line numbers stay."""
    def spaces(match):
        return re.sub(r"[^\n]", " ", match.group(0))
    text = TOKEN.sub(spaces, text)
    return re.sub(r"(?m)^[ \t]*#(?:[^\n]*\\\n)*[^\n]*$", spaces, text)


def function_name(head):
    """The name of the function whose body follows `head`, or None when no function body does."""
    head = re.sub(r"\[\[[^\]]*\]\]", " ", head).strip()
    head = re.sub(r"^(?:(?:public|private|protected)\s*:\s*)+", "", head)
    if not head or head.endswith(("=", ",", "(", "[", "]", "return", "{")):
        return None
    if re.search(r"\b(namespace|class|struct|enum|union)\b[^()]*$", head) or "(" not in head:
        return None
    # The first "name(" outside template brackets whose name is no keyword.
    for match in re.finditer(r"(operator\s*[^\s\w(]{1,3}|operator\s*\(\s*\)|[~\w:]+)\s*\(", head):
        name = match.group(1).strip()
        if name.split("::")[-1] in CONTROL:
            if name in ("requires", "noexcept", "decltype", "alignof", "sizeof"):
                continue
            return None
        if "=" in re.sub(r"[=!<>]=|operator\s*=", "", head[:match.start()]).replace("= default", ""):
            # "auto x = F(...) {": an initialiser, or a default template argument.
            if not head.startswith("template"):
                return None
        if name.startswith(("TEST", "RC_GTEST", "BENCHMARK")):
            inner = head[match.end():].split(")")[0]
            return f"{name}({' '.join(inner.split())})"
        return name
    return None


def functions_of(text):
    """Yields (name, first line, line count) of every function body, the outermost ones."""
    text = blank(text)
    depth, inside, head_start, start = 0, None, 0, 0
    for match in re.finditer(r"[{};]|\bextern\s+ {0,3}\{", text):
        symbol, position = match.group(0)[-1], match.start()
        if symbol == "{":
            if inside is None:
                name = function_name(text[head_start:position])
                if name:
                    body = text[head_start:position]
                    start = head_start + len(body) - len(body.lstrip())
                    inside, depth = name, 0
                else:
                    head_start = match.end() if is_scope(text[head_start:position]) else head_start
                    if head_start != match.end():
                        inside, depth, start = "", 0, position  # An initialiser: skip it whole.
            depth += 1
        elif symbol == "}":
            depth -= 1
            if inside is not None and depth == 0:
                if inside and text[match.end():match.end() + 200].lstrip()[:1] in (",", "{"):
                    pass  # "A::A() : a_{1}, b_{2} {": that was a member's initialiser.
                elif inside:
                    first = text.count("\n", 0, start) + 1
                    yield inside, first, text.count("\n", 0, position) + 2 - first
                    head_start = match.end()
                inside = None
            elif inside is None:
                head_start = match.end()
        elif inside is None:
            head_start = match.end()


def is_scope(head):
    return re.search(r"\b(namespace|class|struct|enum|union|extern)\b[^()=;]*$",
                     re.sub(r"alignas\s*\([^)]*\)|\([^()]*\)", " ", head)) is not None


def source_files():
    for top in TOPS:
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            for name in sorted(names):
                if os.path.splitext(name)[1] in FILE_LIMITS:
                    yield os.path.relpath(os.path.join(folder, name), ROOT)


def parse_exceptions(text):
    """Returns {(path, name): lines}."""
    entries = {}
    for line in text.splitlines():
        fields = line.split("#")[0].split()
        if len(fields) >= 3:
            entries[(fields[0], " ".join(fields[1:-1]))] = int(fields[-1])
    return entries


def first_version():
    """The exceptions as first committed, or None when git cannot say (no history here)."""
    def git(*arguments):
        return subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True)
    try:
        added = git("log", "--diff-filter=A", "--format=%H", "--", EXCEPTIONS)
        commits = added.stdout.split()
        if added.returncode != 0 or not commits:
            return None
        shown = git("show", f"{commits[-1]}:{EXCEPTIONS}")
        return parse_exceptions(shown.stdout) if shown.returncode == 0 else None
    except OSError:
        return None


def check_names(path, text, problems):
    stem = os.path.basename(path).split(".")[0]
    for word in BANNED:
        if word.lower() in stem.split("_"):
            problems.append(f"{path}: file name says {word}; name what it is")
        for match in re.finditer(rf"\b(?:class|struct|enum class|enum)\s+(\w*{word})\b(?!::)", blank(text)):
            line = text.count("\n", 0, match.start()) + 1
            problems.append(f"{path}:{line}: type {match.group(1)}; name what it is, not {word}")
    if path.endswith(".h"):
        inner = path[len("src/"):] if path.startswith("src/") else path
        guard = "KVASIR_" + re.sub(r"[^A-Z0-9]", "_", inner.upper()) + "_"
        if f"#ifndef {guard}\n#define {guard}\n" not in text:
            problems.append(f"{path}: include guard must be {guard}")


def main(arguments):
    problems, functions, used = [], [], {}
    with open(os.path.join(ROOT, EXCEPTIONS), encoding="utf-8") as file:
        exceptions = parse_exceptions(file.read())

    def over(path, name, lines, limit, where):
        allowed = exceptions.get((path, name))
        if allowed is not None:
            used[(path, name)] = lines
            if lines <= allowed:
                return
        problems.append(f"{where}: {name} has {lines} lines, the limit is {allowed or limit}")

    for path in source_files():
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            text = file.read()
        lines, limit = text.count("\n"), FILE_LIMITS[os.path.splitext(path)[1]]
        if lines > limit:
            over(path, "file", lines, limit, path)
        check_names(path, text, problems)
        for name, first, length in functions_of(text):
            functions.append((length, path, first, name))
            if length > FUNCTION_LIMIT:
                over(path, name, length, FUNCTION_LIMIT, f"{path}:{first}")
    functions.sort(reverse=True)
    long_ones = [f for f in functions if f[0] > USUAL_LIMIT]
    if len(long_ones) > (1 - USUAL_SHARE) * len(functions):
        problems.append(f"{len(long_ones)} of {len(functions)} functions have more than {USUAL_LIMIT} "
                        "lines, at most 2 % may:")
        problems += [f"  {path}:{first}: {name} {length}" for length, path, first, name in long_ones]
    for path, name in sorted(set(exceptions) - set(used)):
        problems.append(f"{EXCEPTIONS}: {path} {name} is no longer needed; remove the line")
    first = first_version()
    for key in sorted(exceptions):
        if first is not None and exceptions[key] > first.get(key, 0):
            problems.append(f"{EXCEPTIONS}: {' '.join(key)} is new or grew; the list may only shrink")
    if "--list" in arguments:
        for length, path, first_line, name in functions[:20]:
            print(f"{length:4d} {path}:{first_line}: {name}")
        print(f"{len(functions)} functions, {len(long_ones)} longer than {USUAL_LIMIT} lines")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
