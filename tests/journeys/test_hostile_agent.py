"""A node that was joined and is then in the hands of an attacker: it has a certificate and sends what it likes. It may
spoil what runs on it; it must not touch jobs of other nodes, speak for them, or hold up the controller."""
import contextlib
import os
import socket
import ssl
import struct
import time

import pytest

from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until

HELLO, STARTED, ENDED, USAGE, STREAM_DATA, STREAM_END, PONG, TELEMETRY, NODE_CHANGED, ATTEMPT = 1, 2, 3, 4, 5, 6, 7, 9, 10, 11
STEP_END, IMAGE, FILE_RESULT, NODE_SEEN, STEP_KNOWN, HEALTH, NODE_IMAGES = 15, 17, 52, 58, 72, 75, 78
MIB = 1 << 20


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def fields(*pairs):
    """The binary form of a struct: numbers as varints (signed ones as the caller folds them), texts and structs by length."""
    out = b""
    for number, value in pairs:
        if isinstance(value, int):
            out += varint(number << 1) + varint(value)
        else:
            value = value.encode() if isinstance(value, str) else value
            out += varint(number << 1 | 1) + varint(len(value)) + value
    return out


class HostileAgent:
    """The connection of an agent, by the certificate that a node was given."""

    def __init__(self, cluster, node):
        folder = next(root for root, _, files in os.walk(f"{cluster.home}/agent-{node}") if "cert.pem" in files)
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.load_cert_chain(f"{folder}/cert.pem", f"{folder}/key.pem")
        self.sock = context.wrap_socket(socket.create_connection(("127.0.0.1", cluster.port), timeout=60))
        self.sock.sendall(b"GET /v1/agent HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                          b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")
        head = b""
        while b"\r\n\r\n" not in head:
            head += self.sock.recv(1)
        assert b" 101 " in head.split(b"\r\n")[0] + b" ", head

    def send(self, kind, *pairs):
        self.send_bytes(bytes([kind]) + fields(*pairs))

    def send_bytes(self, body):
        size = len(body)
        length = (bytes([0x80 | size]) if size < 126 else b"\xfe" + struct.pack(">H", size) if size < 65536 else
                  b"\xff" + struct.pack(">Q", size))
        self.sock.sendall(b"\x82" + length + bytes(4) + body)

    def hello(self, name, *more):
        self.send(HELLO, (1, fields((1, name), (4, "boot"), (5, "hostile"), (6, 4), (10, 8 << 30))), *more)

    def ended(self):
        """Whether the controller ends the connection."""
        self.sock.settimeout(30)
        with contextlib.suppress(OSError):
            while piece := self.sock.recv(1 << 16):
                if piece[0] == 0x88:
                    return True
            return True
        return False

    def close(self):
        self.sock.close()


@pytest.fixture(scope="module")
def lab():
    with Cluster(agents=["good", "evil"], config="[cluster]\ngrace = 1s\n[node *]\ncpus = 4\nmemory = 8G\n") as c:
        wait_until(lambda: {"good", "evil"} <= set(c.nodes_up()), 60, "the nodes are not up")
        job = c.api.post("/v1/jobs", {"spec": {"name": "victim", "workdir": "/tmp", "output": "/dev/null", "nodes": "good",
                                               "argv": ["sleep", "600"]}})["id"]
        wait_until(lambda: c.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 60, "the job does not run")
        c.kill("agent-evil")
        yield c, job


@pytest.fixture
def agent(lab):
    c, _ = lab
    agents = []

    def make():
        agents.append(HostileAgent(c, "evil"))
        return agents[-1]
    yield make
    for a in agents:
        a.close()


def cpus(c, node):
    return next(n for n in c.api.get("/v1/nodes")["nodes"] if n["name"] == node)["cpus"]


def unharmed(c, job):
    """The job of the other node runs as before, and the controller does what it is asked."""
    assert c.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING"
    assert [e["type"] for e in c.api.get(f"/v1/jobs/{job}/events")["events"]].count("job_started") == 1
    assert c.api.post("/v1/jobs", {"spec": {"workdir": "/tmp", "hold": True, "argv": ["true"]}})["id"]


def test_it_speaks_for_no_other_node(lab, agent):
    c, job = lab
    a = agent()
    a.hello("good")
    assert a.ended()
    a = agent()
    a.hello("evil")
    a.send(NODE_CHANGED, (1, "good"), (6, 1))
    a.hello("good")  # a connection is for one node
    assert a.ended()
    assert cpus(c, "good") == 4
    unharmed(c, job)


def test_reports_for_jobs_of_others_change_nothing(lab, agent):
    c, job = lab
    a = agent()
    # It says in its hello that the job runs there, that it has ended there, and that there are others nobody knows of.
    a.hello("evil", (2, fields((1, job), (2, 1))), (2, fields((1, job), (2, 1), (3, 1), (4, fields((1, job), (2, 1))))),
            *[(2, fields((1, 10 ** 6 + i), (2, 1), (5, 1))) for i in range(200)])
    wait_until(lambda: "evil is here ([127.0.0.1], 4 CPUs, 0 GPUs, 202 attempts known)" in c.log_tail("controller"), 30, "the hello is not taken")
    before = c.api.get(f"/v1/jobs/{job}")
    for attempt in (0, 1, 2, 2 ** 32 - 1):
        for end in ((3, 1), (3, 5), (4, 2)):
            a.send(ENDED, (1, job), (2, attempt), end)
        a.send(STARTED, (1, job), (2, attempt), (3, 1), (5, "0-4095"))
        a.send(USAGE, (1, job), (2, attempt), (3, fields((1, 2 ** 60), (2, 2 ** 60))), (4, 2 ** 62), (7, 1), (8, 1000), (9, "\x1b[2Jdone"))
        a.send(HEALTH, (1, job), (2, attempt), (3, 3), (4, "sick"))
        a.send(IMAGE, (1, job), (2, attempt), (3, 1), (4, 2))
        a.send(STEP_END, (1, job), (2, attempt), (3, 1))
        a.send(STEP_KNOWN, (1, job), (2, attempt), (3, 7))
        # A job that somebody else is said to have submitted; nobody asked for it.
        spec = fields((1, "planted"), (2, "root"))
        a.send(ATTEMPT, (1, 10 ** 7 + attempt), (2, 1), (3, fields((1, 10 ** 7), (4, 1), (5, spec))), (4, 2))
    for stream in (0, 1, 2, 3, 2 ** 63):
        a.send(STREAM_DATA, (1, stream), (2, 1), (3, b"x" * 1000))
        a.send(STREAM_END, (1, stream), (4, 1))
        a.send(FILE_RESULT, (1, stream), (2, 5))
    a.send(NODE_SEEN, (2, 2 ** 32 - 1), (3, "\x1b[2J" * 1000))
    a.send(NODE_CHANGED, (1, "evil"), (4, "boot"), (5, "hostile"), (6, 3), (10, 8 << 30))
    wait_until(lambda: cpus(c, "evil") == 3, 30, "what was sent before is not taken")
    unharmed(c, job)
    after = c.api.get(f"/v1/jobs/{job}")
    assert {k: after[k] for k in ("state", "nodes", "attempt")} == {k: before[k] for k in ("state", "nodes", "attempt")}
    assert not [j for j in c.api.get("/v1/jobs")["jobs"] if j["name"] == "planted"]
    assert "\x1b" not in c.cli("get", str(job)).stdout
    assert "which this state does not know" not in c.log_tail("controller", 10000)  # what nobody asked for leaves no lines


@pytest.mark.parametrize("body", [b"", b"\x01", b"\xff\xff", bytes([ENDED]) + b"\xff" * 400, bytes([HELLO]) + b"\x03" + varint(2 ** 63),
                                  bytes([TELEMETRY]) + bytes(range(256)) * 40, bytes([21]) + fields((1, 1)), bytes([HELLO]) + fields((3, 1)) * 1000,
                                  bytes([NODE_IMAGES]) + b"\x03\x00" * 100000],
                         ids=["empty", "type", "unknown", "varint", "length", "noise", "wrong-way", "repeated", "many"])
def test_what_cannot_be_read(lab, agent, body):
    c, job = lab
    for first in (False, True):  # before a hello, and after it
        with contextlib.suppress(OSError):
            a = agent()
            if first:
                a.hello("evil")
            a.send_bytes(body)
            a.send(PONG)
            a.close()
    unharmed(c, job)


def test_messages_without_a_pause_hold_nobody_up(lab, agent):
    """Work of one node in a turn of the loop is bounded: another user's submit is answered meanwhile."""
    c, job = lab
    a = None
    pongs = (b"\x82\x81" + bytes(4) + bytes([PONG])) * 20000
    reports = b"".join(b"\x82" + bytes([0x80 | len(m)]) + bytes(4) + m
                       for m in (bytes([ENDED]) + fields((1, job), (2, 1), (3, 1)), bytes([HEALTH]) + fields((1, job), (2, 1), (3, 3)))) * 5000
    until, answers = time.monotonic() + 1, 0
    while time.monotonic() < until:
        try:
            if not a:
                a = agent()
                a.hello("evil")
                a.sock.settimeout(0.5)
            a.sock.sendall(pongs + reports)
        except OSError:  # the controller reads more slowly than this, and half a message was sent
            a = None
        unharmed(c, job)
        answers += 1
    assert answers > 0


@pytest.mark.long
def test_a_message_as_large_as_any(lab, agent):
    c, job = lab
    for kind in (HELLO, ENDED, TELEMETRY, NODE_IMAGES, STREAM_DATA):
        with contextlib.suppress(OSError):
            a = agent()
            a.hello("evil")
            a.send_bytes(bytes([kind]) + fields((3, b"x" * (15 * MIB))))
            a.send(PONG)
            a.close()
    unharmed(c, job)
    with open(f"/proc/{c.pid('controller')}/status", encoding="ascii") as f:
        peak = next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))
    assert peak < 600000, f"{peak} kB"


def test_the_true_agent_is_taken_back(lab):
    """After all that the node works again, with its own agent."""
    c, job = lab
    c.start_agent("evil")
    wait_until(lambda: "evil" in c.nodes_up(), 60, "the node does not come back")
    done = c.api.post("/v1/jobs", {"spec": {"workdir": "/tmp", "output": "/dev/null", "nodes": "evil", "argv": ["true"]}})["id"]
    wait_until(lambda: c.api.get(f"/v1/jobs/{done}")["state"] == "COMPLETED", 60, "no job runs there")
    unharmed(c, job)
