"""Users and nodes that mean harm: numbers that wrap, requests made to be heavy, floods of input, names of
other nodes, what strangers learn. The controller goes on, and the others with it."""
import http.client
import glob
import json
import os
import pwd
import re
import socket
import ssl
import subprocess
import sys
import time

import pytest

from tests.lab.api import ApiError
from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until
from tests.lab.ws import Socket

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
NOBODY = pwd.getpwnam("nobody")
AS_NOBODY = ["setpriv", "--reuid", "nobody", "--regid", str(NOBODY.pw_gid), "--clear-groups"]


@pytest.fixture(scope="module")
def cluster():
    with Cluster(agents=["n1"]) as c:
        wait_until(lambda: "n1" in c.nodes_up(), 20, "n1 does not join")
        yield c


def spec(**more):
    return {"name": "h", "workdir": "/tmp", "output": "/dev/null", "argv": ["true"], **more}


def as_nobody(cluster, code, timeout=60):
    """Runs Python as nobody, with `api` at hand; returns what it prints, as JSON."""
    tree = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    prelude = f"import sys, json; sys.path.insert(0, {tree!r})\nfrom tests.lab.api import Api, ApiError\napi = Api({cluster.api.path!r})\n"
    done = subprocess.run([*AS_NOBODY, sys.executable, "-B", "-c", prelude + code], capture_output=True, text=True, check=False, timeout=timeout, cwd="/tmp")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("number", [1, -1, 2**31, 2**32, 2**32 + 1, 2**40, 2**63 - 1, -2**63])
def test_a_part_that_is_not_there(cluster, number):
    """Numbers that are something else when they are cut to 32 bits."""
    job = cluster.api.post("/v1/jobs", {"spec": spec(argv=["sleep", "30"])})["id"]
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 20, "does not run")
    with pytest.raises(ApiError) as refused:
        cluster.api.get(f"/v1/jobs/{job}/logs?node={number}")
    assert refused.value.status == 400
    ws = Socket(cluster.api.path, f"/v1/jobs/{job}/exec")
    ws.send(1, json.dumps({"argv": ["true"], "node": number}).encode())
    assert b"error" in ws.receive()[1]
    ws.close()
    cluster.cli("cancel", str(job))
    assert cluster.answers()


def test_a_flood_of_input_does_not_cut_off_the_node(cluster):
    """More than a connection may hold, to a job that does not read."""
    ws = Socket(cluster.api.path, "/v1/run")
    ws.send(1, json.dumps({"spec": spec(argv=["sleep", "60"], attach=True, stdin_open=True, nodes="n1")}).encode())
    job = ws.until("id")
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 20, "does not run")
    agent = cluster.pid("agent-n1") or cluster.children["agent-n1"].pid
    os.kill(agent, 19)  # stopped: it takes nothing
    piece = bytes(1 << 20)
    sent = 0
    ws.sock.settimeout(0.5)
    try:
        while sent < 200 << 20:
            ws.send(2, piece)
            sent += len(piece)
    except TimeoutError:
        pass  # read no further, as it should be
    os.kill(agent, 18)
    assert sent < 150 << 20
    time.sleep(1)
    assert "n1" in cluster.nodes_up()
    assert "too slow" not in cluster.log_tail("controller", 50)
    ws.close()
    cluster.cli("cancel", str(job))


@pytest.mark.parametrize("wish", [{"nodes": 2**31, "tasks_per_node": 65536}, {"tasks_per_node": 65536, "overcommit": True}, {"tasks": -1}, {"tasks": 2**40},
                                  {"memory_per_cpu_bytes": -1}, {"gpus_per_task_milli": 2**32 - 1}, {"name": "x" * 100000}, {"name": "\x1b[2J"},
                                  {"nodelist": "n[1-99999999]"}, {"argv": [1, None, "true"]}, {"rows": 2**40, "pty": True, "argv": ["true"]}])
def test_steps_of_strange_shape(cluster, wish):
    job = cluster.api.post("/v1/jobs", {"spec": spec(argv=["sleep", "30"])})["id"]
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 20, "does not run")
    ws = Socket(cluster.api.path, f"/v1/jobs/{job}/step")
    assert ws.status == 101
    ws.send(1, json.dumps({"argv": ["true"], "overlap": True, **wish}).encode())
    try:
        while True:
            opcode, data = ws.receive()
            if opcode == 8 or b"error" in data or b"exit_code" in data:
                break
    except EOFError:
        pass
    ws.close()
    cluster.cli("cancel", str(job))
    assert cluster.answers()


def test_one_message_of_input_is_bounded(cluster):
    ws = Socket(cluster.api.path, "/v1/run")
    ws.send(1, json.dumps({"spec": spec(argv=["sleep", "60"], attach=True)}).encode())
    job = ws.until("id")
    ws.send(2, bytes(15 << 20))
    texts = b""
    try:
        while b"E2BIG" not in texts:
            texts += ws.receive()[1]
    except EOFError:
        pass
    assert b"E2BIG" in texts
    ws.close()
    cluster.cli("cancel", str(job))


def test_a_request_made_to_be_heavy_is_cut_short(cluster):
    """Everybody waits while one request is carried out."""
    job = cluster.api.post("/v1/jobs", {"spec": spec(hold=True, array=[{"first": 0, "last": 99999, "step": 1}])})["id"]
    ids = [f"{job}_[0-99999]"] * 3000
    with pytest.raises(ApiError) as refused:
        cluster.api.post("/v1/jobs/hold", {"ids": ids})
    assert refused.value.code == "E2BIG"
    with pytest.raises(ApiError) as refused:
        cluster.api.get("/v1/jobs?elements=1&ids=" + ",".join([str(job)] * 3000))
    assert refused.value.code == "E2BIG"
    cluster.api.post("/v1/jobs/cancel", {"ids": [str(job)]})


@pytest.mark.parametrize("body, words", [
    (lambda n: b"[" + b"1," * (n // 2) + b"1]", b"more than 10000 jobs in one request"),
    (lambda n: b"[[" + b"1," * (n // 2) + b"1]]", b"more than [0-9]+ bytes"),
    (lambda n: b'{"spec":{"argv":[' + b'"a",' * (n // 4) + b'"a"]}}', b"at most [0-9]+ are read"),
])
def test_a_large_request_costs_little_more_than_its_bytes(body, words):
    size = 60 << 20
    with Cluster() as c:
        status, data = c.api.raw("POST", "/v1/jobs", body(size))
        assert status == 413 and re.search(words, data)
        with open(f"/proc/{c.pid('controller')}/status", encoding="utf-8") as f:
            peak = next(int(line.split()[1]) << 10 for line in f if line.startswith("VmHWM"))
        assert peak < 3 * size, f"{peak >> 20} MiB for a request of {size >> 20}"
        assert c.api.get("/v1/jobs")["jobs"] == []


def test_a_change_of_many_large_jobs_is_bounded(cluster):
    """Each changed element has a copy of what was submitted."""
    job = cluster.api.post("/v1/jobs", {"spec": spec(hold=True, argv=["true", "x" * 100000], array=[{"first": 0, "last": 99999, "step": 1}])})["id"]
    done = cluster.api.post("/v1/jobs/update", {"ids": [str(job)], "spec": {"comment": "c"}})
    assert 0 < done["done"] < 10000 and done["errors"][-1]["error"]["code"] in ("E2BIG", "EAGAIN")
    cluster.api.post("/v1/jobs/cancel", {"ids": [str(job)]})
    assert cluster.answers()


def test_the_past_is_not_played_all_day(cluster):
    job = cluster.api.post("/v1/jobs", {"spec": spec()})["id"]
    at = int(time.time() * 1000)
    codes = as_nobody(cluster, f"""
codes = []
for i in range(20):
    codes.append(api.raw("GET", "/v1/jobs/{job}/why?at_ms={at}")[0])
print(json.dumps(codes))""")
    assert 429 in codes
    assert cluster.api.get(f"/v1/jobs/{job}/why?at_ms={at}")  # administrators may


def test_connections_of_one_user_leave_room(cluster):
    code = f"""
import resource, socket, time
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
socks = []
for i in range(2300):
    s = socket.socket(socket.AF_UNIX); s.connect({cluster.api.path!r}); socks.append(s)
    if i % 50 == 0:
        time.sleep(0.01)
time.sleep(1)
open_ = 0
for s in socks:
    s.settimeout(0.0)
    try:
        open_ += s.recv(1) != b""
    except BlockingIOError:
        open_ += 1
    except OSError:
        pass
print(json.dumps(open_))"""
    assert 1000 < as_nobody(cluster, code) <= 2048
    assert cluster.answers()


def test_followers_of_one_user_leave_room(cluster):
    codes = as_nobody(cluster, f"""
import socket
socks, codes = [], []
for i in range(70):
    s = socket.socket(socket.AF_UNIX); s.connect({cluster.api.path!r}); s.settimeout(10)
    s.sendall(b"GET /v1/events?follow=1 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
    codes.append(int(s.recv(200).split()[1])); socks.append(s)
print(json.dumps(codes))""")
    assert codes.count(200) == 64 and codes.count(429) == 6


def memory_peak(cluster):
    with open(f"/proc/{cluster.pid('controller')}/status", encoding="utf-8") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("VmHWM"))


def test_streams_of_one_user_leave_room(cluster):
    """As many as one user may have, of long output that nobody reads: neither the node's connection nor the memory of the controller suffers."""
    job = as_nobody(cluster, """
print(json.dumps(api.post("/v1/jobs", {"spec": {"name": "s", "workdir": "/tmp", "output": "/tmp/acequia-streams-%j",
                                                "argv": ["sh", "-c", "head -c 3000000 /dev/zero; sleep 120"]}})["id"]))""")
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 20, "the job does not run")
    before = memory_peak(cluster)
    refused = as_nobody(cluster, f"""
import resource, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
socks = []
for i in range(1025):
    s = socket.socket(socket.AF_UNIX); s.connect({cluster.api.path!r}); s.settimeout(150)
    s.sendall(b"GET /v1/jobs/{job}/logs?follow=1 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n"); socks.append(s)
print(json.dumps([h for h in (s.recv(2000).decode() for s in socks) if " 200 " not in h]))""", 200)
    assert len(refused) == 1 and " 409 " in refused[0] and "1024 outputs" in refused[0]
    assert memory_peak(cluster) < before + (500 << 20)  # a mebibyte for each would be more
    for path in glob.glob(f"{cluster.home}/**/*.log", recursive=True):
        with open(path, encoding="utf-8") as f:
            assert "too slow" not in f.read(), path
    # Those who read for the first are just ending, and are bounded, too.
    wait_until(lambda: cluster.api.raw("GET", f"/v1/jobs/{job}/logs")[0] == 200, 60, "others cannot read")
    cluster.api.post("/v1/jobs/cancel", {"ids": [str(job)]})
    os.unlink(f"/tmp/acequia-streams-{job}")


def test_what_a_token_opened_ends_with_it(cluster):
    made = cluster.api.post("/v1/tokens", {"kind": "user", "user": "nobody"})
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", cluster.port), timeout=180) as raw, context.wrap_socket(raw) as s:
        s.sendall(f"GET /v1/events?follow=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {made['token']}\r\n\r\n".encode())
        assert b" 200 " in s.recv(4096)
        cluster.api.request("DELETE", f"/v1/tokens/{made['id']}")
        try:
            while s.recv(65536):
                pass
        except (ssl.SSLError, ConnectionError) as e:
            assert not isinstance(e, TimeoutError)


def test_a_node_that_is_here_cannot_be_replaced(cluster):
    """A token brings a node; it does not take the place of one that is connected, nor of one it is not for."""
    def join(token, name):
        home = f"{cluster.home}/x-{name}-{token[4:8]}"
        os.makedirs(home, exist_ok=True)
        with open(f"{home}/token", "w", encoding="utf-8") as f:
            f.write(token)
        os.chmod(f"{home}/token", 0o600)
        return subprocess.run([cluster.binary, "agent", "--name", name, "--join", f"127.0.0.1:{cluster.port}", "--token-file", f"{home}/token"],
                              env=dict(cluster.env, ACEQUIA_HOME=home), capture_output=True, text=True, timeout=180, check=False)
    done = join(cluster.api.post("/v1/tokens", {"kind": "agent"})["token"], "n1")
    assert done.returncode == 1 and "is connected" in done.stderr, done.stderr
    done = join(cluster.api.post("/v1/tokens", {"kind": "agent", "node": "n7"})["token"], "n8")
    assert done.returncode == 1 and "another node" in done.stderr, done.stderr
    assert "n1" in cluster.nodes_up()


def test_a_revoked_node_is_disconnected(cluster):
    cluster.join_agent("n3")
    wait_until(lambda: "n3" in cluster.nodes_up(), 20, "n3 does not join")
    mine = [t for t in cluster.api.get("/v1/tokens")["tokens"] if t.get("node") == "n3"]
    cluster.api.request("DELETE", f"/v1/tokens/{mine[0]['id']}")
    wait_until(lambda: "n3" not in cluster.nodes_up(), 10, "n3 stays")
    time.sleep(2)
    assert "n3" not in cluster.nodes_up()
    cluster.kill("agent-n3")


def test_arrays_of_strange_shape(cluster):
    """Ranges that overlap, repeat or come in any order; nothing of it ends the controller."""
    one = {"first": 5, "last": 5, "step": 1}
    for ranges in ([one] * 70, [{"first": 0, "last": 10, "step": 2}] * 2, [{"first": 9, "last": 9, "step": 1}, {"first": 1, "last": 3, "step": 1}],
                   [{"first": 0, "last": 2**32 - 1, "step": 1}], [{"first": 0, "last": 1, "step": 2**32 - 1}], [{"first": 3, "last": 1, "step": 1}],
                   [{"first": 0, "last": 1, "step": 0}]):
        try:
            job = cluster.api.post("/v1/jobs", {"spec": spec(hold=True, array=ranges, array_limit=1)})["id"]
        except ApiError as e:
            assert e.status in (400, 413), (ranges, e)
            continue
        cluster.api.get("/v1/jobs")
        cluster.api.get(f"/v1/jobs?elements=1&ids={job},{job}_5")
        cluster.api.post("/v1/jobs/cancel", {"ids": [f"{job}_5", f"{job}_[0-10]"]})
        cluster.api.post("/v1/jobs/cancel", {"ids": [str(job)]})
    assert cluster.answers()


def test_strangers_learn_no_paths_and_no_keys(cluster):
    job = cluster.api.post("/v1/jobs", {"spec": spec(argv=["/srv/hush/plan"], workdir="/"), "key": "hush-key"})["id"]
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}")["state"] == "FAILED", 20, "does not fail")
    assert "hush" in cluster.api.get(f"/v1/jobs/{job}")["reason"]
    seen = as_nobody(cluster, f"""
texts = [api.raw("GET", path)[1].decode() for path in ("/v1/jobs/{job}", "/v1/jobs/{job}/events", "/v1/jobs/{job}/why", "/v1/jobs/{job}/efficiency",
         "/v1/jobs/{job}/wait", "/v1/jobs?finished=1", "/v1/jobs?finished=1&fields=id,reason,command,workdir,spec,steps", "/v1/events", "/v1/jobs?ids={job}")]
print(json.dumps(texts))""")
    for text in seen:
        assert "hush" not in text, text
    assert "could not be started" in seen[0]


def test_many_large_scripts_do_not_cut_off_the_node():
    """More at once than a connection may hold: they are sent as the node takes them."""
    with Cluster(config="[node *]\ncpus = 64\nmemory = 64G\n", agents=["n1"]) as c:
        wait_until(lambda: "n1" in c.nodes_up(), 20, "n1 does not join")
        c.api.post("/v1/jobs", {"spec": {"name": "a", "workdir": "/tmp", "output": "/dev/null", "nodes": "n1", "memory_per_node_bytes": 1000000,
                                         "array": [{"first": 0, "last": 39, "step": 1}]}, "script": "#!/bin/sh\nsleep 1\n#" + "x" * 4000000})
        c.wait_empty(60)
        assert "not connected any more" not in c.log_tail("controller", 100)


def test_singletons_do_not_multiply(cluster):
    """Every element looks at all others of its name: the number of looks is bounded, at submit, change and end."""
    large, small = [{"first": 0, "last": 99999, "step": 1}], [{"first": 0, "last": 899, "step": 1}]
    with pytest.raises(ApiError) as refused:
        cluster.api.post("/v1/jobs", {"spec": spec(hold=True, dependency="singleton", array=large)})
    assert refused.value.code == "E2BIG"
    first = cluster.api.post("/v1/jobs", {"spec": spec(hold=True, array=small)})["id"]
    second = cluster.api.post("/v1/jobs", {"spec": spec(hold=True, dependency="singleton", array=small)})["id"]
    cluster.api.post("/v1/jobs/update", {"ids": [str(first)], "spec": {"dependency": "singleton"}})
    cluster.api.post("/v1/jobs/cancel", {"ids": [str(first)]})
    cluster.api.post("/v1/jobs/cancel", {"ids": [str(second)]})


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_for(cluster, job):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(60)
    s.connect(cluster.api.path)
    s.sendall(f"GET /v1/jobs/{job}/wait?timeout_s=600 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return s


def test_an_elastic_job_that_is_resized_over_and_over(cluster):
    """What workers cost that have come and gone: the controller's own time, so that a busy machine does not matter."""
    job = cluster.api.post("/v1/jobs", {"spec": spec(argv=["sleep", "120"], workers_min=1, workers_max=1024, nodes="n1")})["id"]
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 20, "does not run")
    before = cpu_seconds(cluster.pid("controller"))
    for n in range(26):
        cluster.api.post(f"/v1/jobs/{job}/resize", {"workers_min": 1, "workers_max": 1 if n % 2 else 1024})
    used = cpu_seconds(cluster.pid("controller")) - before
    assert used < 4, f"{used} s"
    assert len(cluster.api.get(f"/v1/jobs/{job}")["members"]) <= 2048
    # Very many who wait for it: its changes, those who leave, and its end.
    before = cpu_seconds(cluster.pid("controller"))
    waits = [wait_for(cluster, job) for _ in range(400)]
    for most in (100, 1, 100):
        cluster.api.post(f"/v1/jobs/{job}/resize", {"workers_min": 1, "workers_max": most})
    for left in waits[:200]:
        left.close()
    with pytest.raises(ApiError) as refused:
        for n in range(8):
            cluster.api.post(f"/v1/jobs/{job}/resize", {"workers_min": 1, "workers_max": 1 if n % 2 else 1024})
    assert refused.value.status == 413
    cluster.cli("cancel", str(job))
    for wait in waits[200:]:
        assert wait.recv(12) == b"HTTP/1.1 200"
        wait.close()
    used = cpu_seconds(cluster.pid("controller")) - before
    assert used < 5, f"{used} s"
    assert cluster.answers()


def test_very_large_secrets_do_not_hold_up_launches(cluster):
    """All secrets of a job together are bounded: they are decrypted and sent at each launch."""
    for i in range(8):
        cluster.api.request("PUT", f"/v1/secrets/large{i}", {"value": (b"x" * 65536).hex()})
    fits = cluster.api.post("/v1/jobs", {"spec": spec(secrets=[f"large{i}:file" for i in range(4)])})["id"]
    too_much = cluster.api.post("/v1/jobs", {"spec": spec(secrets=[f"large{i}:file" for i in range(5)])})["id"]
    for job, state in ((fits, "COMPLETED"), (too_much, "FAILED")):
        wait_until(lambda j=job, s=state: cluster.api.get(f"/v1/jobs/{j}")["state"] == s, 30, f"does not become {state}")
    assert "256 KiB" in cluster.api.get(f"/v1/jobs/{too_much}")["reason"]
    for i in range(8):
        cluster.api.request("DELETE", f"/v1/secrets/large{i}")
