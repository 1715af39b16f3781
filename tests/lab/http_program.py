"""A program of a job that speaks HTTP and WebSocket, for tests of the proxy: http_program.py PORT.

/echo answers with what it got, /upload counts and hashes a body, /download?bytes=N sends one, /redirect names its own host, /cookie sets
cookies beyond its own, /slow begins an answer and waits, /die ends it, /ws is a WebSocket that says everything again. Anything else is a page."""
import base64
import hashlib
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

PORT = int(sys.argv[1])
PAGE = """<!doctype html><title>a program</title><h1>A program of a job</h1><p id=said></p><script>
document.cookie = "made=here";
const ws = new WebSocket(location.origin.replace("http", "ws") + "/ws");
ws.onopen = () => ws.send("hello");
ws.onmessage = e => { document.getElementById("said").textContent = "said " + e.data + " with " + document.cookie; };
</script>"""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):  # pylint: disable=arguments-differ
        pass

    def answer(self, body, kind="application/json", status=200, headers=()):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def echo(self):
        self.answer(json.dumps({"method": self.command, "path": self.path, "headers": self.headers.items()}).encode())

    def do_GET(self):
        url = urlsplit(self.path)
        if url.path == "/echo":
            self.echo()
        elif url.path == "/download":
            self.download(int(parse_qs(url.query)["bytes"][0]), "chunked" in url.query)
        elif url.path == "/redirect":
            self.answer(b"", status=302, headers=[("Location", f"http://127.0.0.1:{PORT}/there?x=1")])
        elif url.path == "/cookie":
            self.answer(b"{}", headers=[("Set-Cookie", "wide=1; Domain=localhost; Path=/"), ("Set-Cookie", "acequia_app=forged; Path=/"),
                                        ("Clear-Site-Data", '"cookies"'), ("Connection", "X-Hop"), ("X-Hop", "1")])
        elif url.path == "/slow":
            self.send_response(200)
            self.send_header("Content-Length", "10")
            self.end_headers()
            self.wfile.write(b"abc")
            time.sleep(600)
        elif url.path == "/die":
            os._exit(3)
        elif url.path == "/ws":
            self.websocket()
        else:
            self.answer(PAGE.encode(), "text/html; charset=utf-8")

    do_HEAD = do_OPTIONS = do_GET

    def download(self, left, chunked):
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header(*(("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(left))))
        self.end_headers()
        block = bytes(1 << 16)
        while left:
            piece = block[:left]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
            left -= len(piece)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")

    def pieces(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return
        left = int(self.headers.get("Content-Length", 0))
        while left:
            piece = self.rfile.read(min(left, 1 << 20))
            left -= len(piece)
            yield piece

    def do_POST(self):
        count, digest = 0, hashlib.sha256()
        for piece in self.pieces():
            count += len(piece)
            if self.path != "/upload?count":
                digest.update(piece)
        self.answer(json.dumps({"bytes": count, "sha256": digest.hexdigest(), "headers": self.headers.items()}).encode())

    do_PUT = do_POST

    def frame(self):
        first, second = self.rfile.read(2)
        size = second & 127
        if size == 126:
            size = int.from_bytes(self.rfile.read(2), "big")
        elif size == 127:
            size = int.from_bytes(self.rfile.read(8), "big")
        mask = self.rfile.read(4)
        data = self.rfile.read(size)
        return first & 15, bytes(b ^ mask[i % 4] for i, b in enumerate(data))

    def websocket(self):
        accept = hashlib.sha1((self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
        self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " +
                         base64.b64encode(accept) + b"\r\n\r\n")
        self.close_connection = True
        try:
            while True:
                kind, data = self.frame()
                if kind == 8:
                    return
                self.wfile.write(bytes([128 | kind, len(data)] if len(data) < 126 else [128 | kind, 126, *len(data).to_bytes(2, "big")]) + data)
        except (ValueError, OSError):
            return


class Server(ThreadingHTTPServer):
    request_queue_size = 1024
    daemon_threads = True


Server(("127.0.0.1", PORT), Handler).serve_forever()
