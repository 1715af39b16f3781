"""One client against the others: large bodies, idle connections, wrong tokens and agents' messages. Each test measures
what somebody else can still do meanwhile."""
import contextlib
import json
import os
import pwd
import resource
import socket
import ssl
import struct
import subprocess

import pytest

from tests.lab.cluster import Cluster, find_binary
from tests.lab.proc import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
NOBODY = pwd.getpwnam("nobody")
AS_NOBODY = ["setpriv", "--reuid", "nobody", "--regid", str(NOBODY.pw_gid), "--clear-groups"]
BODY_LIMIT = 64 << 20


@pytest.fixture(scope="module")
def cluster():
    with Cluster(agents=["n1"]) as c:
        wait_until(lambda: "n1" in c.nodes_up(), 20, "n1 does not join")
        yield c


def dial(c, source="127.0.0.1", certificate=None):
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if certificate:
        context.load_cert_chain(*certificate)
    return context.wrap_socket(socket.create_connection(("127.0.0.1", c.port), timeout=120, source_address=(source, 0)))


def head(method, path, length=0, token=None):
    bearer = f"Authorization: Bearer {token}\r\n" if token else ""
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n{bearer}Content-Length: {length}\r\nConnection: close\r\n\r\n".encode()


def answer(s):
    data = b""
    try:
        while piece := s.recv(65536):
            data += piece
    except (ConnectionError, ssl.SSLError):
        pass
    return data


def request(c, method, path, body=b"", token=None, source="127.0.0.1"):
    with dial(c, source) as s:
        s.sendall(head(method, path, len(body), token) + body)
        data = answer(s)
    return int(data.split()[1]), data


def user_token(c, user):
    return c.api.post("/v1/tokens", {"kind": "user", "user": user})["token"]


def job(script=""):
    return json.dumps({"spec": {"name": "t", "workdir": "/tmp", "output": "/dev/null", "hold": True, "argv": ["true"]} if not script else
                       {"name": "t", "workdir": "/tmp", "output": "/dev/null", "hold": True}, **({"script": script} if script else {})}).encode()


def rss_peak(c):
    with open(f"/proc/{c.pid('controller')}/status", encoding="utf-8") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("VmHWM"))


def test_a_body_without_identity_is_not_received(cluster):
    """The refusal comes before a byte of the body was sent."""
    for token in (None, "rubbish"):
        with dial(cluster) as s:
            s.sendall(head("POST", "/v1/jobs", BODY_LIMIT - 40, token))
            assert answer(s).startswith(b"HTTP/1.1 401")
    with dial(cluster) as s:  # joining needs no identity, and no large body
        s.sendall(head("POST", "/v1/join", 1 << 20))
        assert answer(s).startswith(b"HTTP/1.1 413")


def test_unfinished_bodies_of_one_user_are_no_matter_to_others(cluster):
    """Nine bodies that stop just below the limit: their user loses some of them, others submit small and large jobs."""
    mine, other = user_token(cluster, "nobody"), user_token(cluster, "root")
    block = b" " * (1 << 20)
    with contextlib.ExitStack() as stack:
        held = []
        for _ in range(9):
            s = stack.enter_context(dial(cluster))
            s.sendall(head("POST", "/v1/jobs", BODY_LIMIT, mine))
            try:
                for _ in range(BODY_LIMIT // len(block)):
                    s.sendall(block if _ < BODY_LIMIT // len(block) - 1 else block[:-40])
            except (ConnectionError, ssl.SSLError):
                pass  # refused: over the user's budget
            held.append(s)
        assert rss_peak(cluster) < 400 << 20  # two of them and what the rest needs, not nine
        for _ in range(5):
            status, data = request(cluster, "POST", "/v1/jobs", job(), other)
            assert status in (200, 201), data
        assert cluster.api.post("/v1/jobs", json.loads(job()))["id"]
        status, data = request(cluster, "POST", "/v1/jobs", job("#!/bin/sh\n#" + "x" * (3 << 20)), other)
        assert status in (200, 201), data
        status, data = request(cluster, "POST", "/v1/jobs", job(), mine)  # even their own small ones
        assert status in (200, 201), data
    cluster.cli("cancel", "--all")


def test_idle_connections_leave_room_for_others(tmp_path):
    """More idle connections than the controller has descriptors: the unix socket is served, and so is another address."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    program = tmp_path / "acequia"
    program.write_text(f'#!/bin/sh\nulimit -n 1500\nexec {find_binary()} "$@"\n')
    program.chmod(0o755)
    os.chmod(tmp_path, 0o755)
    c = Cluster(agents=["n1"], binary=str(program))
    c.up()
    try:
        token = user_token(c, "nobody")
        with contextlib.ExitStack() as stack:
            def flood(source, count):
                for _ in range(count):
                    stack.enter_context(socket.create_connection(("127.0.0.1", c.port), timeout=60, source_address=(source, 0)))

            flood("127.0.0.1", 1000)  # one address takes no more than its part
            for _ in range(5):
                status, data = request(c, "GET", "/v1/status", token=token, source="127.0.0.9")
                assert status == 200, data
            flood("127.0.0.2", 1000)
            flood("127.0.0.3", 1000)
            for _ in range(20):
                c.api.close()
                assert c.api.get("/v1/status")["nodes"]
            done = subprocess.run([*AS_NOBODY, find_binary(), "list"], env=c.env, capture_output=True, text=True, check=False, cwd="/tmp")
            assert done.returncode == 0, done.stderr
            assert len(os.listdir(f"/proc/{c.pid('controller')}/fd")) < 1000
        # Connections that never asked for anything are closed after a while; then there is room again.
        wait_until(lambda: request(c, "GET", "/v1/status", token=token)[0] == 200, 20, "no room after the flood")
    finally:
        c.down()


def frame(data):
    return b"\x82" + (b"\xff" + struct.pack(">Q", len(data)) if len(data) > 65535 else bytes([0x80 | len(data)])) + bytes(4) + data


def agent_socket(c, name):
    """A WebSocket as the agent of that name would open it."""
    folder = next(root for root, _, files in os.walk(f"{c.home}/agent-{name}") if "cert.pem" in files)
    s = dial(c, certificate=(f"{folder}/cert.pem", f"{folder}/key.pem"))
    s.sendall(b"GET /v1/agent HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
              b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
    data = b""
    while b"\r\n\r\n" not in data:
        data += s.recv(4096)
    assert data.startswith(b"HTTP/1.1 101"), data
    return s


@pytest.mark.parametrize("size", [15800 << 10, 1900 << 10])
@pytest.mark.parametrize("field", [b"\x03\x00", b"\x05\x00"])  # empty nodes, or empty attempts
def test_repeated_fields_of_an_agent_cost_little(cluster, size, field):
    """A message of millions of empty fields: the sender is disconnected, the controller does not grow by its multiple."""
    before = rss_peak(cluster)
    with agent_socket(cluster, "n1") as s:
        try:
            s.sendall(frame(b"\x01" + field * (size // len(field))))
        except (ConnectionError, ssl.SSLError):
            pass
        closing = answer(s)
    assert closing[:1] in (b"", b"\x88"), closing[:80]  # a close frame, or the end
    assert rss_peak(cluster) - before < 150 << 20
    assert "n1" in cluster.nodes_up()


def test_wrong_tokens_are_locked_out_but_nobody_else(cluster):
    """Ten wrong secrets for one token from one address lock that token there, not other tokens and not other addresses."""
    victim, bystander = user_token(cluster, "nobody"), user_token(cluster, "root")
    wrong = victim[:-70] + ("0" if victim[-70] != "0" else "1") + victim[-69:]
    source = "127.0.0.7"
    statuses = [request(cluster, "GET", "/v1/status", token=wrong, source=source)[0] for _ in range(10)]
    assert statuses == [401] * 10
    assert request(cluster, "GET", "/v1/status", token=victim, source=source)[0] == 429
    assert request(cluster, "GET", "/v1/status", token=bystander, source=source)[0] == 200
    assert request(cluster, "GET", "/v1/status", token=victim, source="127.0.0.8")[0] == 200


def test_who_asks_over_and_over_keeps_nobody_from_logging_in(cluster, tmp_path):
    """A program waits for its user; then more programs ask from its address than have codes that can be typed. Its link still works."""
    fingerprint = next(line.split()[-1] for line in cluster.cli("whoami").stdout.splitlines() if "ingerprint" in line)
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "ACEQUIA_HOME": str(tmp_path)}
    ask = f"POST /v1/login/device HTTP/1.1\r\nHost: 127.0.0.1:{cluster.port}\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{{}}".encode()
    program = subprocess.Popen([find_binary(), "login", f"127.0.0.1:{cluster.port}", "--fingerprint", fingerprint], env=env, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    try:
        link = program.stderr.readline().split()[-1]
        for _ in range(40):
            with dial(cluster) as s:
                s.sendall(ask)
                assert answer(s).startswith(b"HTTP/1.1 201 ")
        asked = cluster.api.get(f"/v1/devices/{link.split('?code=')[1]}")
        assert "acequia" in asked["client"]
        cluster.api.post(f"/v1/devices/{asked['user_code']}", {"allow": True})
        said = program.communicate(timeout=120)[0]
    finally:
        program.kill()
        program.wait()
    assert program.returncode == 0 and "Logged in at" in said, said
