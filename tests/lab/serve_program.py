"""A program that a service of a test runs: answers on $ACEQUIA_PORT with its revision (the first argument) and its process.

/slow?s=N takes that long, /die ends it before it answers, /big sends 8 MiB, /wait-for?file=PATH answers once the file is there."""
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

REVISION = sys.argv[1] if len(sys.argv) > 1 else "1"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):  # pylint: disable=arguments-differ
        pass

    def answer(self, body, status=200):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        url = urlsplit(self.path)
        query = {k: v[0] for k, v in parse_qs(url.query).items()}
        if "Content-Length" in self.headers:
            self.rfile.read(int(self.headers["Content-Length"]))
        if url.path == "/die":
            os._exit(3)
        if url.path == "/die-once" and not os.path.exists(query["file"]):
            with open(query["file"], "w", encoding="utf-8"):
                pass
            os._exit(3)
        if url.path == "/slow":
            time.sleep(float(query["s"]))
        if url.path == "/wait-for":
            while not os.path.exists(query["file"]):
                time.sleep(0.02)
        if url.path == "/big":
            self.answer(bytes(8 << 20))
            return
        self.answer(json.dumps({"revision": REVISION, "pid": os.getpid(), "user": self.headers.get("X-Acequia-User"),
                                "authorization": self.headers.get("Authorization")}).encode())

    do_POST = do_GET


class Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True


Server(("127.0.0.1", int(os.environ["ACEQUIA_PORT"])), Handler).serve_forever()
