"""kvasir chat on a pseudo terminal and on a pipe."""

import json
import os
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cli_harness import GEMMA, SMOLLM2, ProgramTest, Terminal, clean_environment, kvasir, need  # noqa: E402

STATUS = r"\[(\d+) prompt tokens? \((\d+) reused\), (\d+) generated, [\d.]+ tokens/s[^\]]*\]"


class ChatTest(ProgramTest):
    def setUp(self):
        need(SMOLLM2)
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def open(self, *args):
        environment = clean_environment(TERM="xterm", XDG_STATE_HOME=self.folder.name)
        terminal = Terminal("chat", SMOLLM2, "--temp", "0", *args, env=environment)
        self.addCleanup(terminal.close)
        terminal.read_until("/help")
        terminal.read_until("> ")
        return terminal

    def turn(self, terminal, text):
        import re
        terminal.type(text + "\r")
        shown = terminal.read_until(STATUS)
        terminal.read_until("> ")
        return [int(n) for n in re.search(STATUS, shown).groups()], shown

    def test_turns_reuse_what_came_before(self):
        terminal = self.open("-n", "24")
        (first_prompt, reused, generated), _ = self.turn(terminal, "What is the capital of France?")
        self.assertEqual(reused, 0)
        (second_prompt, reused, _), _ = self.turn(terminal, "And of Italy?")
        self.assertGreater(second_prompt, first_prompt + generated - 1)
        self.assertGreaterEqual(reused, first_prompt + generated - 2)
        terminal.type("/reset\r")
        terminal.read_until("forgotten")
        terminal.read_until("> ")
        (third_prompt, _, _), _ = self.turn(terminal, "What is the capital of France?")
        self.assertEqual(third_prompt, first_prompt)
        terminal.type("/quit\r")
        self.assertEqual(terminal.wait(), 0)

    def test_interrupt_stops_the_answer_and_clears_the_line(self):
        terminal = self.open()
        terminal.type("Write a very long story about a fox.\r")
        terminal.read_until(r"fox\.\r\n.*\w{3}")  # The echo, then the answer.
        terminal.type("\x03")
        terminal.read_until(r"stopped\]")
        terminal.read_until("> ")
        terminal.type("half a line\x03")
        terminal.read_until(r"\^C")
        terminal.read_until("> ")
        terminal.type("/help\r")
        self.assertIn("/save", terminal.read_until("Ctrl-C"))
        terminal.read_until("> ")
        terminal.type("\x04")
        self.assertEqual(terminal.wait(), 0)

    def test_interrupt_on_an_empty_line_stays(self):
        terminal = self.open("-n", "8")
        for _ in range(3):
            terminal.type("\x03")
            terminal.read_until(r"\^C")
            terminal.read_until("> ")
        (prompt, _, _), _ = self.turn(terminal, "Hello")
        terminal.type("/quit\r")
        self.assertEqual(terminal.wait(), 0)

    def test_interrupt_drops_a_message_of_several_lines(self):
        terminal = self.open("-n", "8")
        (want, _, _), _ = self.turn(terminal, "Hello")
        terminal.type("/reset\r")
        terminal.read_until("forgotten")
        terminal.read_until("> ")
        terminal.type("many words that nobody should ever see \\\r")
        terminal.read_until("> ")
        terminal.type("\x03")
        terminal.read_until(r"\^C")
        terminal.read_until("> ")
        (prompt, _, _), _ = self.turn(terminal, "Hello")
        self.assertEqual(prompt, want)
        terminal.type("/quit\r")
        self.assertEqual(terminal.wait(), 0)

    def test_impatience_does_not_end_the_conversation(self):
        terminal = self.open("--system", "word " * 3000)  # Is read for much longer than three Ctrl-C take.
        terminal.type("Hello\r")
        terminal.read_until("Hello\r\n")
        time.sleep(0.3)
        for _ in range(3):
            terminal.type("\x03")
            time.sleep(0.05)
        terminal.read_until(r"stopped\]")
        terminal.read_until("> ")
        terminal.type("/help\r")
        terminal.read_until("/save")
        terminal.type("\x04")
        self.assertEqual(terminal.wait(), 0)

    def test_a_message_that_begins_with_a_slash(self):
        script = "//help\n"
        result = self.works("chat", SMOLLM2, "--temp", "0", "-n", "8", stdin=script)
        self.assertRegex(result.stderr.decode(), rf"\A{STATUS}\n\Z")

    def test_what_is_typed_during_an_answer_is_not_lost(self):
        terminal = self.open("-n", "24")
        terminal.type("Write a story about a fox.\r/help\r\x04")
        terminal.read_until(STATUS)
        terminal.read_until("/save")
        self.assertEqual(terminal.wait(), 0)

    def test_system_save_and_history(self):
        path = os.path.join(self.folder.name, "saved.json")
        terminal = self.open("-n", "8")
        terminal.type("/system Answer in French.\r")
        terminal.read_until("system message set")
        terminal.read_until("> ")
        self.turn(terminal, "Hello")
        terminal.type(f"/save {path}\r")
        terminal.read_until("saved")
        terminal.read_until("> ")
        with open(path, encoding="utf-8") as file:
            messages = json.load(file)
        self.assertEqual([m["role"] for m in messages], ["system", "user", "assistant"])
        self.assertEqual(messages[0]["content"], "Answer in French.")
        self.assertEqual(messages[1]["content"], "Hello")
        terminal.type(f"/save {path}/x\r")  # Below a file nobody can write, root included.
        terminal.read_until("cannot be written: Not a directory")
        terminal.read_until("> ")
        terminal.type("/system\r")
        terminal.read_until("system message removed")
        terminal.read_until("> ")
        terminal.type("/nonsense\r")
        terminal.read_until("no command")
        terminal.read_until("> ")
        terminal.type("/quit\r")
        self.assertEqual(terminal.wait(), 0)
        with open(os.path.join(self.folder.name, "kvasir", "chat_history"), encoding="utf-8") as file:
            self.assertIn("Hello", file.read())

    def test_a_script_on_a_pipe(self):
        script = "What is the capital of France?\nAnd of Italy?\n/quit\nnever read\n"
        result = self.works("chat", SMOLLM2, "--temp", "0", "-n", "24", stdin=script)
        self.assertNotIn(b"\x1b", result.stdout + result.stderr)
        self.assertGreaterEqual(len(result.stdout.splitlines()), 2)
        self.assertNotIn(b"> ", result.stdout)
        self.assertRegex(result.stderr.decode(), rf"\A{STATUS}\n{STATUS}\n\Z")

    def test_a_full_context_says_what_helps(self):
        script = "Hello\n" + "word " * 100 + "\n"
        result = kvasir("chat", SMOLLM2, "--temp", "0", "--ctx", "64", stdin="Tell a long story.\n" + script)
        self.assertEqual(result.returncode, 1)
        notes = result.stderr.decode().splitlines()
        self.assertIn("the context of 64 is full: give --ctx 128 (the model's context is 8192); /reset starts over",
                      notes[0])
        self.assertRegex(notes[-1], r"kvasir: the conversation has \d+ tokens, there is room for 64; /reset starts over; "
                                    r"or give --ctx \d{3} \(")

    def test_a_model_without_template(self):
        need(GEMMA)
        self.fails("chat", GEMMA, says="chat template")


if __name__ == "__main__":
    unittest.main()
