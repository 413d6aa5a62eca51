"""What the end-to-end tests of the server share: starting one, asking it, reading its metrics and log."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time

from cli_harness import BINARY, clean_environment

START_TIMEOUT_S = 120


class Server:
    """`kvasir serve` on a free port, ready when the constructor returns."""

    def __init__(self, model, *args, wait=True):
        self.log = tempfile.TemporaryFile()
        self.out = tempfile.TemporaryFile()
        self.process = subprocess.Popen([BINARY, "serve", model, "--port", "0", *map(str, args)],
                                        stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.log,
                                        env=clean_environment())
        self.port = int(self.wait_for_output(r"listening on http://127\.0\.0\.1:(\d+)").group(1))
        self.url = f"http://127.0.0.1:{self.port}"
        if wait:
            self.wait_for_output("ready on ")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def wait_for_output(self, pattern):
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            match = re.search(pattern, self.output())
            if match:
                return match
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended: {self.output()}\n{self.log_text()}")
            time.sleep(0.02)
        raise AssertionError(f"no {pattern!r} in {self.output()}\n{self.log_text()}")

    def output(self):
        return os.pread(self.out.fileno(), 1 << 20, 0).decode()

    def log_text(self):
        return os.pread(self.log.fileno(), 64 << 20, 0).decode()

    def log_of(self, request_id, timeout=20):
        """The fields of the log line of one request."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            for line in self.log_text().splitlines():
                if f" id={request_id} " in line:
                    return dict(re.findall(r'(\w+)=("(?:[^"\\]|\\.)*"|\S*)', line))
            time.sleep(0.02)
        raise AssertionError(f"no log line of {request_id} in {self.log_text()[-2000:]}")

    def request(self, method, path, body=None, headers=None, timeout=300):
        """(status, headers, JSON or text)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            if body is not None and not isinstance(body, (bytes, str)):
                body = json.dumps(body)
            connection.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
            reply = connection.getresponse()
            text = reply.read().decode()
            kind = reply.headers.get("Content-Type", "")
            return reply.status, reply.headers, json.loads(text) if kind.startswith("application/json") else text
        finally:
            connection.close()

    def post(self, path, body, headers=None, timeout=300):
        """The JSON of a reply that must be 200."""
        status, _, reply = self.request("POST", path, body, headers, timeout)
        if status != 200:
            raise AssertionError(f"{status}: {reply}")
        return reply

    def chat(self, messages, **fields):
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return self.post("/v1/chat/completions", {"messages": messages, "temperature": 0, "seed": 1, **fields})

    def complete(self, prompt, **fields):
        return self.post("/v1/completions", {"prompt": prompt, "temperature": 0, "seed": 1, **fields})

    def metrics(self):
        """{name or name{labels}: value}"""
        _, _, text = self.request("GET", "/metrics")
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
                for line in text.splitlines() if line and not line.startswith("#")}

    def wait_for_metric(self, name, wanted, timeout=20):
        deadline = time.monotonic() + timeout
        while True:
            value = self.metrics()[name]
            if wanted(value) or time.monotonic() > deadline:
                return value
            time.sleep(0.01)

    def memory_bytes(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            return int(re.search(r"VmHWM:\s+(\d+) kB", file.read()).group(1)) * 1024

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.log.close()
        self.out.close()


class Stream:
    """A streamed request on a raw socket: its events as they come; can hang up at any time."""

    def __init__(self, server, path, body, headers=()):
        self.reply = None
        data = json.dumps({**body, "stream": body.get("stream", True)}).encode()
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=300)
        lines = [f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json",
                 f"Content-Length: {len(data)}", "Connection: close", *headers]
        self.socket.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + data)

    def open(self):
        """Reads the reply's head; the status."""
        self.reply = http.client.HTTPResponse(self.socket)
        self.reply.begin()
        return self.reply.status

    def events(self):
        """Yields the JSON of each event, and "[DONE]"."""
        for line in self.reply:
            if line.startswith(b"data: "):
                data = line[6:].strip().decode()
                yield data if data == "[DONE]" else json.loads(data)

    def close(self):
        if self.reply:
            self.reply.close()
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def text_of(events):
    """(text of choice 0, finish reason) of the events of a stream."""
    text, finish = "", None
    for event in events:
        if event == "[DONE]" or not event.get("choices"):
            continue
        choice = event["choices"][0]
        text += choice["text"] if "text" in choice else choice["delta"].get("content", "")
        finish = choice["finish_reason"] or finish
    return text, finish


def words(tag, count):
    return " ".join(f"{tag}{i}" for i in range(count))
