"""Programs of jobs in the browser: reached under a host of their own by their owner alone, streamed both ways, through restarts."""
import base64
import contextlib
import hashlib
import http.client
import json
import os
import pwd
import re
import socket
import subprocess
from urllib.parse import urlsplit

import pytest

from tests.lab import browser
from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACK = os.path.join(os.path.abspath(os.environ.get("BUILD", f"{TREE}/build")), "portal", "portal.pack")
NOBODY = pwd.getpwnam("nobody")
AS_NOBODY = ["setpriv", "--reuid", "nobody", "--regid", str(NOBODY.pw_gid), "--clear-groups"]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="other users need root")
needs_browser = pytest.mark.skipif(not browser.PROGRAM, reason="chromium is not installed (tools/setup --test)")
needs_pack = pytest.mark.skipif(not os.path.exists(PACK), reason="the portal is not built (tools/portal build)")
MIB = 1 << 20


@pytest.fixture(scope="module", name="cluster")
def _cluster():
    with Cluster(config="[node *]\ncpus = 64\nmemory = 64G\n") as c:
        with open(f"{TREE}/tests/lab/http_program.py", encoding="utf-8") as f, open(f"{c.home}/program.py", "w", encoding="utf-8") as to:
            to.write(f.read())  # where every user can read it
        os.chmod(c.home, 0o755)
        yield c


def start(cluster, name, port=8000, *options):
    job = cluster.cli("submit", "-Q", "-J", name, "--port", str(port), "-o", "/dev/null", *options, "--", "/usr/bin/python3",
                      f"{cluster.home}/program.py", str(port)).stdout.strip()
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 60, "it does not run")
    return job


class Visitor:
    """A browser in the small: one program's host, and the cookies it set."""

    def __init__(self, cluster, job, ready="/echo", seconds=60):
        link = urlsplit(cluster.cli("open", str(job)).stdout.strip())
        self.host, self.port, self.cookie = link.netloc, link.port, ""
        status, headers, _ = self.get(f"{link.path}?{link.query}", Accept="text/html")
        assert status == 303 and headers["Location"] == "/"
        self.cookie = headers["Set-Cookie"].split(";")[0]
        wait_until(lambda: self.get(ready)[0] == 200, seconds, "the program does not answer")

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def headers(self, **more):
        return {"Host": self.host, "Cookie": self.cookie, **{k.replace("_", "-"): v for k, v in more.items()}}

    def get(self, path, method="GET", body=None, **headers):
        with contextlib.closing(self.connect()) as c:
            c.request(method, path, body, self.headers(**headers))
            r = c.getresponse()
            return r.status, r.headers, r.read()

    def websocket(self):
        s = socket.create_connection(("127.0.0.1", self.port), timeout=120)
        s.sendall((f"GET /ws HTTP/1.1\r\nHost: {self.host}\r\nCookie: {self.cookie}\r\nOrigin: http://{self.host}\r\nConnection: Upgrade\r\n"
                   f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {base64.b64encode(bytes(16)).decode()}\r\n\r\n").encode())
        head = b""
        while b"\r\n\r\n" not in head:
            piece = s.recv(1)
            assert piece, head
            head += piece
        assert head.startswith(b"HTTP/1.1 101 "), head
        return s


def say(s, text):
    s.sendall(bytes([0x81, 0x80 | len(text)]) + bytes(4) + text)
    answer = b""
    while len(answer) < 2 + len(text):
        piece = s.recv(100)
        if not piece:
            return None
        answer += piece
    return answer[2:]


def rss(cluster, daemon):
    with open(f"/proc/{cluster.pid(daemon)}/status", encoding="utf-8") as f:
        return int(re.search(r"VmRSS:\s+(\d+) kB", f.read()).group(1)) * 1024


def test_requests_and_answers(cluster):
    v = Visitor(cluster, start(cluster, "echo"))
    status, _, body = v.get("/echo?a=b", X_Forwarded_For="6.6.6.6", X_Own="1", Cookie=v.cookie + "; theirs=1")
    told = dict(json.loads(body)["headers"])
    assert status == 200 and told["X-Own"] == "1" and told["Cookie"] == "theirs=1" and told["X-Forwarded-For"] == "127.0.0.1"
    assert told["Host"] == v.host and told["X-Acequia-User"] == pwd.getpwuid(os.getuid()).pw_name
    assert v.get("/redirect")[1]["Location"] == f"http://{v.host}/there?x=1"
    headers = v.get("/cookie")[1]
    assert headers.get_all("Set-Cookie") == ["wide=1; Path=/"] and "Clear-Site-Data" not in headers and "X-Hop" not in headers
    data = os.urandom(3 * MIB)
    for body in (data, iter([data[:MIB], data[MIB:]])):  # with its length, in chunks
        answer = v.get("/upload", "POST", body)[2]
        assert json.loads(answer)["sha256"] == hashlib.sha256(data).hexdigest()
    assert len(v.get("/download?bytes=3000000&chunked=1")[2]) == 3000000
    assert v.get("/echo", "HEAD")[0] == 200
    with contextlib.closing(v.connect()) as c:  # one connection, many requests
        for i in range(20):
            c.request("GET", f"/echo?{i}", headers=v.headers())
            assert json.loads(c.getresponse().read())["path"] == f"/echo?{i}"


def test_only_the_owner_gets_in(cluster):
    mine, other = Visitor(cluster, start(cluster, "mine")), Visitor(cluster, start(cluster, "other"))
    strange = mine.cookie
    mine.cookie = other.cookie  # of one program for another
    assert mine.get("/echo")[0] == 401
    status, headers, _ = mine.get("/echo", Accept="text/html")
    assert status == 303 and "/v1/apps/authorize?app=" in headers["Location"]
    status, _, body = mine.get("/echo", Authorization="Bearer nonsense")
    assert status == 401 and b"The token is wrong, has ended or was revoked" in body, body
    mine.cookie = strange
    assert mine.get("/echo", Sec_Fetch_Site="same-site", Sec_Fetch_Mode="cors")[0] == 403
    assert mine.get("/echo", Host="1-8000-" + "0" * 24 + mine.host[mine.host.index("."):])[0] == 404
    session = next(s["id"] for s in cluster.api.get("/v1/sessions")["sessions"] if s["id"] in strange)
    tunnel = mine.websocket()
    assert say(tunnel, b"there") == b"there"
    cluster.cli("session", "revoke", session)
    assert mine.get("/echo")[0] == 401
    assert wait_until(lambda: tunnel.recv(1) == b"", 60, "the tunnel outlives the login")


@needs_root
def test_others_are_refused_unless_it_is_shared(cluster):
    def as_nobody(*words):
        return subprocess.run([*AS_NOBODY, cluster.binary, *words], env=cluster.env, capture_output=True, text=True, check=False, cwd="/")
    job = start(cluster, "roots")
    done = as_nobody("open", job)
    assert done.returncode and "another user's" in done.stderr
    address = cluster.cli("share", job, "--with", "nobody", "--for", "1h").stdout.strip()
    assert address in cluster.api.get(f"/v1/jobs/{job}")["urls"] and "user nobody" in cluster.cli("share", job, "--list").stdout
    assert as_nobody("share", job, "--with", "nobody").returncode  # only its owner shares it
    v = Visitor(cluster, job)
    link = urlsplit(as_nobody("open", job).stdout.strip())
    v.cookie = v.get(f"{link.path}?{link.query}", Accept="text/html")[1]["Set-Cookie"].split(";")[0]
    assert dict(json.loads(v.get("/echo")[2])["headers"])["X-Acequia-User"] == "nobody"
    tunnel = v.websocket()
    cluster.kill_controller()
    cluster.start_controller()
    wait_until(cluster.answers, 60, "the controller does not come back")
    tunnel.close()

    def lets_in():
        with contextlib.suppress(OSError, http.client.HTTPException):
            return v.get("/echo")[0] == 200
        return False
    wait_until(lets_in, 60, "the share is lost")
    tunnel = v.websocket()
    cluster.cli("share", job, "--with", "nobody", "--revoke")
    assert v.get("/echo")[0] == 403
    assert wait_until(lambda: tunnel.recv(1) == b"", 60, "the tunnel outlives the share")


@pytest.mark.parametrize("mebibytes", [2048, pytest.param(10240, marks=pytest.mark.long)])
def test_a_large_upload_and_a_slow_reader_take_no_memory(cluster, mebibytes):
    job = start(cluster, "large")
    v = Visitor(cluster, job)
    slow = v.connect()
    slow.request("GET", "/download?bytes=2000000000", headers=v.headers())
    answer = slow.getresponse()
    assert answer.read(10) == bytes(10)  # and no more
    before = {d: rss(cluster, d) for d in ("controller", f"agent-{cluster.nodes_up()[0]}")}
    most = dict(before)
    block = bytes(MIB)

    def pieces():
        for i in range(mebibytes):
            if i % 64 == 0:
                for d in most:
                    most[d] = max(most[d], rss(cluster, d))
            yield block

    status, _, body = v.get("/upload?count", "POST", pieces(), Content_Length=str(mebibytes * MIB))
    assert status == 200 and json.loads(body)["bytes"] == mebibytes * MIB
    assert all(most[d] - before[d] < 48 * MIB for d in most), (before, most)
    slow.close()


def test_what_goes_wrong_is_said(cluster):
    job = start(cluster, "wrong")
    v = Visitor(cluster, job)
    with contextlib.closing(v.connect()) as c:
        c.request("GET", "/slow", headers=v.headers())
        answer = c.getresponse()
        assert answer.read(3) == b"abc"
        assert v.get("/die")[0] == 502  # without an answer
        with pytest.raises(http.client.IncompleteRead):
            answer.read()
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}")["state"] == "FAILED", 60, "it does not end")
    status, _, page = v.get("/", Accept="text/html")
    assert status == 410 and b"has ended" in page
    quiet = cluster.cli("submit", "-Q", "--port", "8000", "-o", "/dev/null", "--", "sleep", "600").stdout.strip()
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{quiet}")["state"] == "RUNNING", 60, "it does not run")
    link = urlsplit(cluster.cli("open", quiet).stdout.strip())
    v.host = link.netloc
    v.cookie = v.get(f"{link.path}?{link.query}")[1]["Set-Cookie"].split(";")[0]
    status, headers, page = v.get("/", Accept="text/html")
    assert status == 502 and b"nothing listens on port 8000" in page and b'http-equiv="refresh"' in page and headers["Retry-After"]
    status, headers, page = v.get("/")
    assert headers["Content-Type"] == "application/problem+json" and "nothing listens" in json.loads(page)["detail"]


def test_a_thousand_idle_websockets(cluster):
    v = Visitor(cluster, start(cluster, "many"))
    before = rss(cluster, "controller")
    with contextlib.ExitStack() as all_of_them:
        sockets = [all_of_them.enter_context(contextlib.closing(v.websocket())) for _ in range(1000)]
        assert rss(cluster, "controller") - before < 64 * MIB
        for i in (0, 500, 999):
            assert say(sockets[i], b"%d" % i) == b"%d" % i
        assert v.get("/echo")[0] == 200


def test_restarts(cluster):
    v = Visitor(cluster, start(cluster, "restart"))
    node = cluster.nodes_up()[0]
    for daemon in ("agent", "controller"):
        tunnel = v.websocket()
        assert say(tunnel, b"before") == b"before"
        if daemon == "agent":
            cluster.kill_agent(node)
            cluster.start_agent(node)
        else:
            cluster.kill_controller()
            cluster.start_controller()
        assert tunnel.recv(1) == b""  # it ends; a tab connects again

        def again():
            with contextlib.suppress(OSError, http.client.HTTPException):
                return v.get("/echo")[0] == 200
            return False
        wait_until(again, 60, "it does not come back")  # with the same cookie
        assert say(v.websocket(), b"after") == b"after"


@needs_browser
@needs_pack
def test_in_the_browser(cluster):
    job = start(cluster, "page")
    wait_until(lambda: Visitor(cluster, job), 60, "it does not answer")
    with browser.Browser() as b:
        page = b.page()
        page.goto(cluster.cli("portal").stdout.strip())
        page.wait_text("page")
        address = cluster.api.get(f"/v1/jobs/{job}")["urls"][0]
        page.goto(address)  # by way of the portal, which knows the browser
        page.wait_text("said hello with made=here")  # the WebSocket, and no cookie of ours
        assert page.evaluate("location.href") == address
        # Neither the portal nor another program can be read from here.
        other = cluster.api.get(f"/v1/jobs/{start(cluster, 'page2')}")["urls"][0]
        portal = re.match(r"http://[^/]+", cluster.cli("portal").stdout).group(0)
        for url in (f"{portal}/v1/me", f"{other}echo"):
            got = page.evaluate(f"fetch({url!r}, {{credentials: 'include'}}).then(r => r.text(), e => 'refused')")
            assert got == "refused", got
        stranger = b.page()  # with cookies of its own
        stranger.goto(address)
        stranger.wait("location.pathname === '/open' || document.querySelector('form')")
        assert "A program of a job" not in stranger.text()
        one = b.page()
        one.goto(cluster.cli("open", job).stdout.strip())
        one.wait_text("said hello")
