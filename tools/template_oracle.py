#!/usr/bin/env python3
"""Writes the expected outputs of the chat template tests with Python's jinja2.

The environment is the one of Hugging Face tokenizers' apply_chat_template: immutable sandbox,
trim_blocks, lstrip_blocks, loop controls, tojson as json.dumps, raise_exception, strftime_now and
generation blocks. Needs the package jinja2 (3.1). Run it after adding a template, a conversation
or an expression under src/text/testdata:

    python3 tools/template_oracle.py            # rewrites the expected outputs
    python3 tools/template_oracle.py --check    # fails when a committed file differs

Files, all under src/text/testdata:
    template_expressions.json   [[template, expected or null for an error], ...]
    template_context.json       the variables those templates see
    conversations.json          [{name, messages, tools, variables, add_generation_prompt}, ...]
    templates/NAME.jinja        a template in the manner of a model family
    templates/NAME.json         {conversation: expected, {"raises": message} when the template
                                itself refuses with raise_exception, or null for another error}
"""
import argparse
import copy
import datetime
import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

TESTDATA = pathlib.Path(__file__).resolve().parent.parent / "src" / "text" / "testdata"
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)
BOS, EOS = "<s>", "</s>"


class Refusal(jinja2.exceptions.TemplateError):
    """What raise_exception raises."""


class Generation(jinja2.ext.Extension):
    """{% generation %} marks what the assistant wrote; it prints its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def raise_exception(message):
        raise Refusal(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


def render(source, variables):
    """The output, {"raises": message}, or None when jinja2 reports an error."""
    try:
        text = environment().from_string(source).render(**variables)
        text.encode("utf-8")  # A lone surrogate is no text.
        return text
    except Refusal as refusal:
        return {"raises": str(refusal.message)}
    except Exception:  # Any failure of a template is one to us, too.
        return None


def expressions():
    path = TESTDATA / "template_expressions.json"
    context = dict(messages=[], tools=None, documents=None, add_generation_prompt=True,
                   bos_token=BOS, eos_token=EOS)
    context.update(json.loads((TESTDATA / "template_context.json").read_text()))
    cases = json.loads(path.read_text())
    # Each sees a fresh copy: some of jinja2's filters change a list in place.
    lines = [json.dumps([case[0], render(case[0], copy.deepcopy(context))], ensure_ascii=False)
             for case in cases]
    return path, "[\n" + ",\n".join(lines) + "\n]\n"


def conversations():
    cases = json.loads((TESTDATA / "conversations.json").read_text())
    for path in sorted((TESTDATA / "templates").glob("*.jinja")):
        expected = {}
        for case in cases:
            variables = {"documents": None, **case.get("variables", {})}
            variables.update(messages=case["messages"], tools=case.get("tools"),
                             add_generation_prompt=case.get("add_generation_prompt", True),
                             bos_token=BOS, eos_token=EOS)
            expected[case["name"]] = render(path.read_text(), variables)
        yield path.with_suffix(".json"), json.dumps(expected, ensure_ascii=False, indent=0) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail on differences")
    check = parser.parse_args().check
    stale = []
    for path, text in [expressions(), *conversations()]:
        if check:
            if not path.exists() or path.read_text() != text:
                stale.append(path.name)
        else:
            path.write_text(text)
    if stale:
        sys.exit("differs from jinja2: " + ", ".join(stale))


if __name__ == "__main__":
    main()
