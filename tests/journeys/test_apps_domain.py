"""Programs of jobs over the network: HTTPS on a name of their own below apps_domain, with the site's certificate for all of them, and nothing else there."""
import base64
import contextlib
import http.client
import json
import os
import socket
import ssl
import subprocess
from urllib.parse import urlsplit

import pytest

from tests.journeys.test_apps import NOBODY, TREE, say
from tests.lab.cluster import Cluster
from tests.lab.proc import free_ports, wait_until

DOMAIN = "apps.lab.test"
needs_openssl = pytest.mark.skipif(subprocess.run(["which", "openssl"], capture_output=True, check=False).returncode != 0, reason="openssl is not installed")


def certificate(folder, name):
    """Of an authority of its own, as a site has it from one that browsers know."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                    "-addext", f"subjectAltName=DNS:{name}", "-keyout", f"{folder}/apps.key", "-out", f"{folder}/apps.crt"], check=True, capture_output=True)
    os.chmod(f"{folder}/apps.key", 0o600)


class Tls:
    """The controller's TLS port under a name, of which the certificate must be."""

    def __init__(self, port, folder):
        self.port, self.cookies = port, {}
        self.context = ssl.create_default_context(cafile=f"{folder}/apps.crt")

    def connect(self, host):
        raw = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        return self.context.wrap_socket(raw, server_hostname=host)

    def get(self, host, path, method="GET", body=None, **headers):
        with contextlib.closing(http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60)) as c:
            c.sock = self.connect(host)
            cookie = {"Cookie": self.cookies[host]} if host in self.cookies else {}
            c.request(method, path, body, {"Host": f"{host}:{self.port}", **cookie, **{k.replace("_", "-"): v for k, v in headers.items()}})
            r = c.getresponse()
            if r.headers.get("Set-Cookie"):
                self.cookies[host] = r.headers["Set-Cookie"].split(";")[0]
            return r.status, r.headers, r.read()


@pytest.fixture(scope="module", name="lab")
def _lab(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("tls"))
    certificate(folder, f"*.{DOMAIN}")
    port = free_ports(1)[0]
    with Cluster(config=f"[cluster]\nlisten = 127.0.0.1:{port}\n[node *]\ncpus = 16\nmemory = 8G\n[portal]\nurl = https://head.lab.test:{port}\n"
                        f"apps_domain = {DOMAIN}\napps_certificate = {folder}/apps.crt\napps_key = {folder}/apps.key\n") as c:
        with open(f"{TREE}/tests/lab/http_program.py", encoding="utf-8") as f, open(f"{c.home}/program.py", "w", encoding="utf-8") as to:
            to.write(f.read())
        os.chmod(c.home, 0o755)
        yield c, Tls(port, folder)


def start(cluster, name):
    job = cluster.cli("submit", "-Q", "-J", name, "--port", "8000", "-o", "/dev/null", "--", "/usr/bin/python3", f"{cluster.home}/program.py", "8000").stdout.strip()
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 60, "it does not run")
    return job


def address(cluster, job):
    return urlsplit(next(u for u in cluster.api.get(f"/v1/jobs/{job}")["urls"] if u.startswith("https://")))


def enter(cluster, tls, job):
    """As `acequia open` lets a browser in."""
    link = urlsplit(cluster.cli("open", job).stdout.strip())
    host = link.hostname
    status, headers, _ = tls.get(host, f"{link.path}?{link.query}", Accept="text/html")
    assert status == 303 and headers["Location"] == "/", (status, headers)
    wait_until(lambda: tls.get(host, "/echo")[0] == 200, 60, "the program does not answer")
    return host


@needs_openssl
def test_a_program_has_https_on_a_name_of_its_own(lab):
    c, tls = lab
    job = start(c, "page")
    where = address(c, job)
    assert where.scheme == "https" and where.hostname.endswith(f".{DOMAIN}") and where.port == tls.port and where.hostname.startswith(f"{job}-8000-")
    assert where.geturl() in c.cli("get", job).stdout
    host = enter(c, tls, job)
    assert host == where.hostname
    status, headers, body = tls.get(host, "/echo")
    told = dict(json.loads(body)["headers"])
    assert status == 200 and told["X-Forwarded-Proto"] == "https" and told["Host"] == f"{host}:{tls.port}" and "Cookie" not in told
    # A redirect to where the program believes to be leads back here, over TLS; cookies for the whole domain are narrowed.
    assert tls.get(host, "/redirect")[1]["Location"] == f"https://{host}:{tls.port}/there?x=1"
    mine = dict(tls.cookies)
    assert "Domain" not in tls.get(host, "/cookie")[1]["Set-Cookie"]
    tls.cookies.update(mine)
    assert mine[host].startswith("__Host-"), mine
    data = os.urandom(3 << 20)
    assert json.loads(tls.get(host, "/upload", "POST", data)[2])["bytes"] == len(data)


@needs_openssl
def test_websockets(lab):
    c, tls = lab
    host = enter(c, tls, start(c, "socket"))
    s = tls.connect(host)
    s.sendall((f"GET /ws HTTP/1.1\r\nHost: {host}:{tls.port}\r\nCookie: {tls.cookies[host]}\r\nOrigin: https://{host}:{tls.port}\r\nConnection: Upgrade\r\n"
               f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {base64.b64encode(bytes(16)).decode()}\r\n\r\n").encode())
    head = b""
    while b"\r\n\r\n" not in head:
        head += s.recv(1)
    assert head.startswith(b"HTTP/1.1 101 "), head
    assert say(s, b"over TLS") == b"over TLS"
    s.close()


@needs_openssl
def test_who_comes_is_asked(lab):
    c, tls = lab
    job = start(c, "private")
    host = address(c, job).hostname
    tls.cookies.pop(host, None)
    assert tls.get(host, "/echo")[0] == 401
    status, headers, _ = tls.get(host, "/", Accept="text/html")
    assert status == 303 and headers["Location"].startswith(f"https://head.lab.test:{tls.port}/v1/apps/authorize?app="), headers
    # The cookie of one program is none for another; names that were not given are nobody's.
    other = enter(c, tls, start(c, "other"))
    tls.cookies[host] = tls.cookies[other]
    assert tls.get(host, "/echo")[0] == 401
    for name in (f"{job}-8000-{'0' * 24}.{DOMAIN}", f"nothing.{DOMAIN}"):
        assert tls.get(name, "/echo")[0] == 404
    # No route of the API below a program's name, with the program's cookie or without.
    assert tls.get(other, "/v1/jobs")[2].startswith(b"<!doctype html>")  # the program's own page
    # Nor the program below the portal's.
    raw = ssl._create_unverified_context()  # pylint: disable=protected-access
    with contextlib.closing(http.client.HTTPSConnection("127.0.0.1", tls.port, timeout=60, context=raw)) as k:
        k.request("GET", "/echo", headers={"Cookie": tls.cookies[other]})
        answer = k.getresponse()
        assert answer.status >= 400 or b'<div id="app"' in answer.read()  # the portal's own page


@needs_openssl
@pytest.mark.skipif(os.geteuid() != 0, reason="other users need root")
def test_another_user_is_refused(lab):
    c, _ = lab
    done = subprocess.run(["setpriv", "--reuid", "nobody", "--regid", str(NOBODY.pw_gid), "--clear-groups", c.binary, "open", start(c, "roots")],
                          env=c.env, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode and "another user's" in done.stderr
