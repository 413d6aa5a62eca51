"""`kvasir pull` against a server that drops, lies, redirects, stalls and changes its mind."""

import fcntl
import hashlib
import http.server
import os
import random
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cli_harness import BINARY, SMOLLM2, ProgramTest, clean_environment, kvasir, need  # noqa: E402

BODY = b"GGUF" + random.Random(7).randbytes(300_000)
SUM = hashlib.sha256(BODY).hexdigest()
NO_PROXY = {"no_proxy": "*"}


class Handler(http.server.BaseHTTPRequestHandler):
    """Calls server.behaviour(handler, n) for the n-th request (from 0), and keeps what was asked."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        with self.server.lock:
            n = len(self.server.seen)
            self.server.seen.append((self.path, dict(self.headers.items())))
        self.close_connection = True
        try:
            self.server.behaviour(self, n)
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
            pass  # The client has had enough, as some of these tests want it to.

    def log_message(self, *args):
        pass

    def head(self, status, **fields):
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def from_byte(self):
        value = self.headers.get("Range")
        return int(value.removeprefix("bytes=").removesuffix("-")) if value else 0

    def serve(self, body=BODY, etag='"one"', cut=None, ranges=True, **fields):
        """The file as an honest server gives it, or only its bytes up to `cut`."""
        start = self.from_byte() if ranges else 0
        if start and self.headers.get("If-Range") not in (None, etag):
            start = 0
        if start and start >= len(body):
            return self.head(416, Content_Range=f"bytes */{len(body)}", Content_Length=0)
        if etag:
            fields["ETag"] = etag
        if start:
            self.head(206, Content_Length=len(body) - start,
                      Content_Range=f"bytes {start}-{len(body) - 1}/{len(body)}", **fields)
        else:
            self.head(200, Content_Length=len(body), **fields)
        self.wfile.write(body[start:cut])
        return None


class Server:
    def __init__(self, behaviour, certificate=None):
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.http.behaviour = behaviour
        self.http.seen = []
        self.http.lock = threading.Lock()
        self.http.handle_error = lambda *args: None  # Handshakes that the client refuses.
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
        self.scheme = "https" if certificate else "http"
        self.port = self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    seen = property(lambda self: self.http.seen)

    def url(self, path="/model.gguf", host="127.0.0.1"):
        return f"{self.scheme}://{host}:{self.port}{path}"

    def close(self):
        self.http.shutdown()
        self.http.server_close()


class TunnelProxy:
    """Answers CONNECT with `answer(n)` (bytes) to the n-th connection and, if that is a 200, relays to `port`.

    Up to `most(n)` bytes of what comes back; then it hangs up.
    """

    def __init__(self, port, answer=lambda n: b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n",
                 most=lambda n: 1 << 30):
        self.target, self.answer, self.most = port, answer, most
        self.seen = []  # The first lines.
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        head = b""
        while not head.endswith(b"\r\n\r\n"):  # Byte by byte: the rest is not ours.
            byte = client.recv(1)
            if not byte:
                return client.close()
            head += byte
        n = len(self.seen)
        self.seen.append(head.split(b"\r\n")[0].decode())
        answer = self.answer(n)
        client.sendall(answer)
        if b" 200 " in answer:
            with socket.create_connection(("127.0.0.1", self.target)) as server:
                threading.Thread(target=self.pump, args=(client, server, 1 << 30), daemon=True).start()
                self.pump(server, client, self.most(n))
        try:
            client.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        return client.close()

    @staticmethod
    def pump(source, sink, most):
        try:
            while most > 0 and (data := source.recv(min(most, 65536))):
                sink.sendall(data)
                most -= len(data)
        except OSError:
            pass

    def close(self):
        self.listener.close()


class PullTest(ProgramTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.env = clean_environment(KVASIR_MODELS_DIR=self.folder, **NO_PROXY)

    def server(self, behaviour, **kwargs):
        server = Server(behaviour, **kwargs)
        self.addCleanup(server.close)
        return server

    def path(self, name="model.gguf"):
        return os.path.join(self.folder, name)

    def content(self, name="model.gguf"):
        with open(self.path(name), "rb") as file:
            return file.read()

    def pulls(self, url, *args, name="model.gguf", body=BODY, env=None):
        result = self.works("pull", url, *args, env=env or self.env, timeout=30)
        self.assertEqual(result.stdout.decode().strip(), self.path(name))
        self.assertTrue(self.content(name) == body, "another file than the server's")
        self.assertEqual(sorted(os.listdir(self.folder)), [name, name + ".origin"])
        return result.stderr.decode()

    def refused(self, url, *args, code, says, kept=None, env=None):
        """Fails with `code`; no finished file, and `kept` bytes of a part (None: nothing at all)."""
        result = kvasir("pull", url, "--retries", "0", *args, env=env or self.env, timeout=30)
        error = result.stderr.decode()
        self.assertEqual(result.returncode, code, error)
        self.assertEqual(result.stdout, b"")
        last = error.strip().split("\n")[-1]
        for part in [says] if isinstance(says, str) else says:
            self.assertIn(part, last)
        self.assertTrue(last.startswith("kvasir: "), error)
        files = sorted(os.listdir(self.folder))
        if kept is None:
            self.assertEqual(files, [])
        else:
            self.assertEqual(files, ["model.gguf.part", "model.gguf.part.origin"])
            self.assertTrue(self.content("model.gguf.part") == BODY[:kept], "not the bytes that came")
        return error

    def test_whole_then_already_there_then_again(self):
        server = self.server(lambda h, n: h.serve())
        self.pulls(server.url(), "--sha256", SUM.upper())
        self.assertNotIn("Range", server.seen[0][1])
        self.assertNotIn("Authorization", server.seen[0][1])
        self.assertIn("already there", self.pulls(server.url()))
        self.assertIn("already there", self.pulls(server.url(), "--sha256", SUM))
        self.assertEqual(len(server.seen), 1)
        wrong = self.fails("pull", server.url(), "--sha256", "0" * 64, "--quiet", env=self.env,
                           says=[SUM, "0" * 64, "--force"])
        self.assertEqual(sorted(os.listdir(self.folder)), ["model.gguf", "model.gguf.origin"])
        self.assertNotIn("fetching", wrong)
        self.pulls(server.url(), "--force")
        self.assertEqual(len(server.seen), 2)
        # The same name from elsewhere is not taken for it, nor overwritten.
        self.fails("pull", server.url("/x/model.gguf"), env=self.env, says="--name")
        self.assertEqual(sorted(os.listdir(self.folder)), ["model.gguf", "model.gguf.origin"])
        self.assertTrue(self.content() == BODY)

    def test_names(self):
        fields = {"Content_Disposition": 'attachment; filename="../../.evil/..x y.gguf"'}
        server = self.server(lambda h, n: h.serve(**fields))
        self.pulls(server.url("/get?id=7"), name="x_y.gguf")
        self.assertEqual(len(server.seen), 2)  # One asked for the name alone.
        self.assertIn("already there", self.pulls(server.url("/get?id=7"), name="x_y.gguf"))
        self.assertEqual(len(server.seen), 2)
        for name in ("../a.gguf", ".a", "a.part", "a" * 300):
            self.fails("pull", server.url(), "--name", name, env=self.env, says="the name")
        shutil.rmtree(self.folder)
        self.pulls(server.url("/%2e%2e%2fb.gguf"), name="b.gguf")
        shutil.rmtree(self.folder)
        self.pulls(server.url(), "--name", "own", name="own")

    def test_dropped_at_random_bytes_and_resumed(self):
        cuts = sorted(random.Random(3).sample(range(1, len(BODY)), 5))

        def drop(handler, n):
            handler.serve(cut=cuts[n] if n < len(cuts) else None)

        server = self.server(drop)
        error = self.pulls(server.url(), "--sha256", SUM, "--retries", "1")
        self.assertEqual(error.count("trying again"), len(cuts))
        self.assertEqual([fields.get("Range") for _, fields in server.seen],
                         [None] + [f"bytes={cut}-" for cut in cuts])
        self.assertTrue(all(fields["If-Range"] == '"one"' for _, fields in server.seen[1:]))

    def test_progress_is_no_failure(self):
        server = self.server(lambda h, n: h.serve(cut=100_000 if n == 0 else None))
        # What is given up after a failure without progress does not include the first one.
        self.pulls(server.url(), "--retries", "0")
        self.assertEqual(server.seen[1][1]["Range"], "bytes=100000-")

    def test_no_progress_stops_and_keeps_the_part(self):
        server = self.server(lambda h, n: h.serve(cut=1000))
        self.refused(server.url(), code=1, kept=1000,
                     says=["closed amid the response", "without progress", "1000 of 300004 bytes are kept"])
        server.http.behaviour = lambda h, n: h.serve()
        self.pulls(server.url())
        self.assertEqual(server.seen[-1][1]["Range"], "bytes=1000-")

    def test_server_without_ranges_begins_anew(self):
        server = self.server(lambda h, n: h.serve(cut=1000 if n == 0 else None, ranges=False))
        self.pulls(server.url(), "--sha256", SUM)
        self.assertEqual(len(server.seen), 2)
        # Cut at the same byte each time, it makes no progress, however much it sends.
        shutil.rmtree(self.folder)
        server = self.server(lambda h, n: h.serve(cut=1000, ranges=False))
        self.refused(server.url(), code=1, says="without progress", kept=1000)

    def test_changed_file_begins_anew(self):
        other = b"GGUF" + bytes(200_000)

        def change(handler, n):
            if n == 0:
                handler.serve(cut=5000)
            else:
                handler.serve(body=other, etag='"two"')

        self.pulls(self.server(change).url(), body=other)
        shutil.rmtree(self.folder)

        def ignores_if_range(handler, n):  # 206 of another file.
            if n == 0:
                handler.serve(cut=5000)
            else:
                del handler.headers["If-Range"]
                handler.serve(body=other, etag='"two"')

        self.pulls(self.server(ignores_if_range).url(), body=other)
        shutil.rmtree(self.folder)
        server = self.server(lambda h, n: h.serve(etag=f'"{n}"', cut=5000 + n))
        self.refused(server.url(), code=1, says="changes while it is fetched", kept=5003)

    def test_without_a_validator_nothing_is_resumed(self):
        server = self.server(lambda h, n: h.serve(etag=None, cut=5000 if n == 0 else None))
        self.pulls(server.url())
        self.assertNotIn("Range", server.seen[1][1])

    def test_416_begins_anew(self):
        server = self.server(lambda h, n: h.serve(cut=5000 if n == 0 else None) if n != 1 else
                             h.head(416, Content_Range="bytes */17", Content_Length=0))
        self.pulls(server.url())
        self.assertNotIn("Range", server.seen[2][1])

    def test_lies_about_the_length(self):
        def resumed(range_field, length=None):
            def behave(handler, n):
                if n == 0:
                    return handler.serve(cut=5000)
                handler.head(206, ETag='"one"', Content_Range=range_field,
                             Content_Length=length or len(BODY) - 5000)
                return handler.wfile.write(BODY[5000:])
            return self.server(behave).url()

        size = len(BODY)
        for field, length in ((f"bytes 4000-{size - 1}/{size}", None), ("bytes 0-1/x", None), ("", None),
                              (f"bytes 5000-{size - 1}/{size}", 17)):
            self.refused(resumed(field, length), code=1, says="Content-", kept=5000)
            shutil.rmtree(self.folder)

        def too_long(handler, n):
            handler.head(200, Content_Length=1000, ETag='"one"')
            handler.wfile.write(BODY[:1500])

        self.refused(self.server(too_long).url(), code=1, says="more than the 1000 bytes it announced")

    def test_chunked(self):
        def chunked(handler, n, whole=True):
            handler.head(200, Transfer_Encoding="chunked", ETag='"one"')
            for at in range(0, len(BODY), 100_000):
                piece = BODY[at:at + 100_000]
                handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            if whole:
                handler.wfile.write(b"0\r\n\r\n")

        self.refused(self.server(chunked).url(), code=1, says=["how long the file is", "--sha256"])
        self.pulls(self.server(chunked).url(), "--sha256", SUM)
        shutil.rmtree(self.folder)
        server = self.server(lambda h, n: chunked(h, n, whole=False))
        self.refused(server.url(), "--sha256", SUM, code=1, says="closed amid the response", kept=len(BODY))

    def test_wrong_checksum(self):
        server = self.server(lambda h, n: h.serve())
        self.refused(server.url(), "--sha256", "ab" * 32, code=1, says=[SUM, "ab" * 32])
        self.refused(server.url(), "--sha256", "abc", code=2, says="64 hexadecimal digits")

    def test_a_page_is_no_model_and_costs_no_part(self):
        def page(handler, n):
            if n == 0:
                return handler.serve(cut=5000)
            return handler.serve(body=b"<!DOCTYPE html><p>Sign in", etag=None, Content_Type="text/html")

        server = self.server(page)
        self.refused(server.url(), code=2, says=["not a GGUF file", "<!DOCTYPE", "text/html"], kept=5000)
        server.http.behaviour = lambda h, n: h.serve()
        self.pulls(server.url())
        self.assertEqual(server.seen[-1][1]["Range"], "bytes=5000-")
        shutil.rmtree(self.folder)
        for body, says in ((b"GG", "not a GGUF file"), (b"", "the file is empty"), (b"<html>", "not a GGUF file")):
            self.refused(self.server(lambda h, n, body=body: h.serve(body=body)).url(), code=2, says=says)

    def test_statuses(self):
        for status, code in ((404, 2), (403, 2), (401, 2), (410, 2), (418, 2), (500, 1), (503, 1)):
            server = self.server(lambda h, n, s=status: h.head(s, Content_Length=0))
            self.refused(server.url(), code=code, says=f"HTTP {status}")
            self.assertEqual(len(server.seen), 1)

        def busy(handler, n):
            return handler.head(503, Retry_After=1, Content_Length=0) if n == 0 else handler.serve()

        start = time.monotonic()
        self.pulls(self.server(busy).url(), "--retries", "1")
        self.assertGreater(time.monotonic() - start, 0.9)
        shutil.rmtree(self.folder)
        long = self.server(lambda h, n: h.head(503, Retry_After=4000, Content_Length=0))
        self.refused(long.url(), "--retries", "3", code=1, says="4000 s")
        endless = self.server(lambda h, n: (h.head(404), h.wfile.write(bytes(3_000_000))))
        self.refused(endless.url(), code=2, says="HTTP 404")

    def test_redirects(self):
        end = self.server(lambda h, n: h.serve())

        def chain(handler, n):
            step = int(handler.path.split("/")[-1].split("?")[0] or 0)
            # Relative, absolute path, query, another host.
            to = [f"../b/{step + 1}", f"/c/{step + 1}?q=1", f"{step + 1}", end.url(host="localhost")][step]
            handler.head([301, 302, 307, 308][step], Location=to, Content_Length=0)

        first = self.server(chain)
        self.pulls(first.url("/a/0"), "--name", "model.gguf", env={**self.env, "HF_TOKEN": "secret"})
        self.assertEqual([path for path, _ in first.seen], ["/a/0", "/b/1", "/c/2?q=1", "/c/3"])
        for _, fields in first.seen + end.seen:
            self.assertNotIn("Authorization", fields)
        self.assertEqual(end.seen[0][1]["Host"], f"localhost:{end.port}")
        shutil.rmtree(self.folder)
        for location, says in (("/model.gguf", "loop"), ("ftp://x/y", "only http"), ("http://", "host"), ("", "Location")):
            server = self.server(lambda h, n, to=location: h.head(302, Location=to, Content_Length=0))
            self.refused(server.url(), code=2, says=says)
        server = self.server(lambda h, n: h.head(302, Location=f"/{n}", Content_Length=0))
        self.refused(server.url(), code=2, says="more than 10 redirects")
        self.assertEqual(len(server.seen), 11)

    def test_silence_ends_and_is_resumed(self):
        stop = threading.Event()
        self.addCleanup(stop.set)

        def stall(handler, n):
            handler.serve(cut=5000 if n == 0 else None)
            if n == 0:
                handler.wfile.flush()
                stop.wait(10)

        server = self.server(stall)
        error = self.pulls(server.url(), "--timeout", "1")
        self.assertIn("no progress for 1000 ms", error)

        def trickle(handler, n):  # Slow is not silent.
            handler.head(200, Content_Length=len(BODY))
            for at in range(0, 6):
                handler.wfile.write(BODY[at:at + 1])
                handler.wfile.flush()
                time.sleep(0.25)
            handler.wfile.write(BODY[6:])

        self.pulls(self.server(trickle).url(), "--timeout", "1", "--retries", "0", "--force")

    def test_ctrl_c_keeps_the_part(self):
        stop = threading.Event()
        self.addCleanup(stop.set)
        server = self.server(lambda h, n: (h.serve(cut=5000 if n == 0 else None), n or stop.wait(10)))
        process = subprocess.Popen([BINARY, "pull", server.url()], env=self.env, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            if os.path.exists(self.path("model.gguf.part")) and len(self.content("model.gguf.part")) == 5000:
                break
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=10)
        self.assertEqual(process.returncode, 130, error)
        self.assertIn(b"5000 of 300004 bytes are kept, the same command goes on", error)
        self.assertEqual(out, b"")
        stop.set()
        self.pulls(server.url())
        self.assertEqual(server.seen[-1][1]["Range"], "bytes=5000-")

    def test_full_disk_keeps_the_part(self):
        server = self.server(lambda h, n: h.serve())
        limit = 100_000
        result = subprocess.run(
            [BINARY, "pull", server.url()], env=self.env, capture_output=True, timeout=30,
            restore_signals=False,  # SIGXFSZ stays ignored, as Python has it: write then fails.
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn(b"cannot write: File too large", result.stderr)
        self.assertIn(b"are kept", result.stderr)
        self.assertTrue(self.content("model.gguf.part") == BODY[:limit])
        self.pulls(server.url())
        self.assertEqual(server.seen[-1][1]["Range"], f"bytes={limit}-")

    def test_two_at_once(self):
        server = self.server(lambda h, n: (time.sleep(0.5), h.serve()))
        both = [subprocess.Popen([BINARY, "pull", server.url()], env=self.env, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE) for _ in range(2)]
        errors = b"".join(process.communicate(timeout=20)[1] for process in both)
        self.assertEqual([process.returncode for process in both], [0, 0], errors)
        self.assertEqual(len(server.seen), 1)
        self.assertIn(b"waiting", errors)
        self.assertTrue(self.content() == BODY)
        # A lock that its holder left behind, killed, holds nobody.
        shutil.rmtree(self.folder)
        os.mkdir(self.folder)
        with open(self.path("model.gguf.lock"), "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
        self.pulls(server.url())

    def certificate_for(self, name):
        """(certificate, key): files."""
        made = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, made)
        key, certificate = os.path.join(made, "key.pem"), os.path.join(made, "cert.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                        "-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext",
                        f"subjectAltName=DNS:{name}", "-keyout", key, "-out", certificate],
                       check=True, capture_output=True)
        return certificate, key

    def test_certificates(self):
        certificate, key = self.certificate_for("localhost")
        server = self.server(lambda h, n: h.serve(cut=5000 if n == 0 else None),
                             certificate=(certificate, key))
        self.refused(server.url(host="localhost"), "--retries", "5", code=2, says=["not trusted", "self-signed"])
        trusting = {**self.env, "SSL_CERT_FILE": certificate}
        # The right authority, the wrong name.
        self.refused(server.url(host="127.0.0.1"), code=2, says=["not trusted", "mismatch"], env=trusting)
        self.pulls(server.url(host="localhost"), "--sha256", SUM, env=trusting)
        self.assertEqual(server.seen[-1][1]["Range"], "bytes=5000-")
        shutil.rmtree(self.folder)
        plain = self.server(lambda h, n: h.head(302, Location=server.url(host="localhost"), Content_Length=0))
        self.pulls(plain.url(), env=trusting)
        shutil.rmtree(self.folder)
        server.http.behaviour = lambda h, n: h.head(302, Location=plain.url(), Content_Length=0)
        self.refused(server.url(host="localhost"), code=2, says="from https to http", env=trusting)
        self.refused(f"https://localhost:{plain.port}/x.gguf", code=1, says="no TLS connection", env=trusting)

    def test_a_tunnel_through_a_proxy(self):
        # Only the proxy can find this host, so that nothing goes past it.
        host = "models.invalid"
        certificate, key = self.certificate_for(host)
        server = self.server(lambda h, n: h.serve(), certificate=(certificate, key))
        def tunnel(**kwargs):
            proxy = TunnelProxy(server.port, **kwargs)
            self.addCleanup(proxy.close)
            self.tunnel_env = clean_environment(KVASIR_MODELS_DIR=self.folder, SSL_CERT_FILE=certificate,
                                                https_proxy=f"http://127.0.0.1:{proxy.port}", no_proxy="example.org")
            return proxy
        ask = f"CONNECT {host}:{server.port} HTTP/1.1"

        proxy = tunnel()
        self.pulls(server.url(host=host), "--sha256", SUM, env=self.tunnel_env)
        self.assertEqual(proxy.seen, [ask])
        self.assertEqual([path for path, _ in server.seen], ["/model.gguf"])  # It does not know of the proxy.
        self.assertEqual(server.seen[0][1]["Host"], f"{host}:{server.port}")
        shutil.rmtree(self.folder)
        # A tunnel that breaks: another one, from where the first one ended.
        proxy = tunnel(most=lambda n: 100_000 if n == 0 else 1 << 30)
        self.pulls(server.url(host=host), "--sha256", SUM, env=self.tunnel_env)
        self.assertEqual(proxy.seen, [ask] * 2)
        self.assertRegex(server.seen[-1][1]["Range"], r"bytes=\d{5}-")
        shutil.rmtree(self.folder)
        # The certificate must be that of the host, not of whoever sits behind the proxy.
        tunnel()
        self.refused(server.url(host="other.invalid"), code=2, says=["not trusted", "mismatch"], env=self.tunnel_env)
        # What a proxy may say instead.
        asked = len(server.seen)
        for answer, says in [(b"HTTP/1.1 403 Not for you\r\n\r\n", "the proxy 127.0.0.1 answers HTTP/1.1 403 Not for you"),
                             (b"HTTP/1.1 407 Who are you\r\n\r\n", "answers HTTP/1.1 407 Who are you"),
                             (b"", "the proxy has hung up"), (b"HTTP/1.1 200", "the proxy has hung up"),
                             (b"x" * 100_000, "the proxy does not speak HTTP")]:
            with self.subTest(answer=answer[:20]):
                tunnel(answer=lambda n, answer=answer: answer)
                self.refused(server.url(host=host), "--retries", "0", code=1, says=says, env=self.tunnel_env)
        self.assertEqual(len(server.seen), asked)

    def test_proxies(self):
        server = self.server(lambda h, n: h.serve())
        proxy = self.server(lambda h, n: h.serve())
        env = clean_environment(KVASIR_MODELS_DIR=self.folder, http_proxy=f"http://127.0.0.1:{proxy.port}",
                                no_proxy="example.org,localhost")
        self.pulls(server.url(), env=env)
        self.assertEqual([path for path, _ in proxy.seen], [server.url()])
        self.assertEqual(server.seen, [])
        shutil.rmtree(self.folder)
        self.pulls(server.url(host="localhost"), env=env)
        self.assertEqual((len(server.seen), len(proxy.seen)), (1, 1))

    def test_wrong_urls(self):
        for url in ("ftp://x/y.gguf", "http://u:p@x/y.gguf", "http://x:0/y", "hf:only", "http:///x", "model.gguf"):
            self.fails("pull", url, env=self.env, says="kvasir: ")
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            self.refused(f"http://127.0.0.1:{nobody.getsockname()[1]}/m.gguf", code=1, says="refused")

    def test_run_and_inspect_pull_what_is_missing(self):
        need(SMOLLM2)
        with open(SMOLLM2, "rb") as file:
            model = file.read()
        server = self.server(lambda h, n: h.serve(body=model, cut=50_000_000 if n == 0 else None))
        command = ("run", server.url("/smol.gguf"), "-p", "Say hello.", "-n", "3")
        first = self.works(*command, env=self.env)
        self.assertEqual(os.path.getsize(self.path("smol.gguf")), len(model))
        again = self.works(*command, env=self.env)
        self.assertEqual(first.stdout, again.stdout)
        self.assertEqual(first.stdout, self.works("run", SMOLLM2, *command[2:]).stdout)
        self.assertIn(b"smol", self.works("inspect", server.url("/smol.gguf"), env=self.env).stdout.lower())
        self.assertEqual(len(server.seen), 2)

    def test_parts_of_a_model(self):
        server = self.server(lambda h, n: h.serve())
        result = self.works("pull", server.url("/m-00002-of-00003.gguf?x=1"), env=self.env)
        self.assertEqual(result.stdout.decode().strip(), self.path("m-00002-of-00003.gguf"))
        names = [f"m-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
        self.assertEqual([path for path, _ in server.seen], [f"/{name}?x=1" for name in names])
        self.assertTrue(all(self.content(name) == BODY for name in names))
        self.works("pull", server.url("/n-00002-of-00003.gguf"), "--sha256", SUM, env=self.env)
        self.assertEqual(len(server.seen), 4)

    def test_serve_pulls_what_is_missing(self):
        need(SMOLLM2)
        with open(SMOLLM2, "rb") as file:
            model = file.read()
        server = self.server(lambda h, n: h.serve(body=model))
        for _ in range(2):
            process = subprocess.Popen([BINARY, "serve", server.url("/smol.gguf"), "--port", "0", "--ctx", "256"],
                                       env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            try:
                self.assertIn(b"listening on", process.stdout.readline())
                self.assertIn(b"ready on", process.stdout.readline())
                process.send_signal(signal.SIGTERM)
                self.assertEqual(process.wait(20), 0)
            finally:
                process.kill()
                process.communicate()
        self.assertEqual(len(server.seen), 1)
        # What cannot be had is said before anything listens.
        server.http.behaviour = lambda h, n: h.head(404, Content_Length=0)
        self.fails("serve", server.url("/other.gguf"), "--port", "0", env=self.env, says="HTTP 404")


if __name__ == "__main__":
    unittest.main()
