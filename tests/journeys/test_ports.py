"""Ports of jobs: reached through controller and agent, from a network of the job's own or from the node's, by their owner alone."""
import contextlib
import hashlib
import os
import pwd
import re
import shutil
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.lab.cluster import Cluster
from tests.lab.proc import end_child, free_ports, spools_of, wait_until

NOBODY = pwd.getpwnam("nobody")
AS_NOBODY = ["setpriv", "--reuid", "nobody", "--regid", str(NOBODY.pw_gid), "--clear-groups"]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="other users and networks of jobs need root")
needs_pasta = pytest.mark.skipif(not shutil.which("pasta"), reason="pasta is not installed (tools/setup --test)")
# Answers each connection with the hash of what it was sent, and who it is; the end of the request is the end of its input.
ANSWERS = """
import hashlib, os, socket, sys
s = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    c, _ = s.accept()
    h = hashlib.sha256()
    while piece := c.recv(65536):
        h.update(piece)
    c.sendall(h.hexdigest().encode() + b" " + os.environ["ACEQUIA_JOB_NAME"].encode() + b" " + b"x" * int(sys.argv[2]))
    c.close()
"""


@pytest.fixture(scope="module", name="cluster")
def _cluster():
    with Cluster(config="[node *]\ncpus = 16\nmemory = 16G\n") as c:
        yield c


def service(cluster, name, port, *options, answer=0, listens=None):
    out = f"{cluster.home}/{name}.out"
    job = cluster.cli("submit", "-Q", "-J", name, "--port", str(port), "-o", out, *options, "--", "/usr/bin/python3", "-c", ANSWERS,
                      str(listens or port), str(answer)).stdout.strip()
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 60, "it does not run")
    return job


def ask(cluster, job, port, data=b"hello", user=()):
    """One connection over standard input and output; again while the program does not listen yet."""
    def once():
        done = subprocess.run([*user, cluster.binary, "port-forward", "--stdio", str(job), str(port)], env=cluster.env, input=data, capture_output=True,
                              timeout=120, check=False, cwd="/tmp")
        return None if b"nothing listens" in done.stderr else done
    return wait_until(once, 60, "nothing listens")


@contextlib.contextmanager
def forwarded(cluster, job, *ports):
    with subprocess.Popen([cluster.binary, "port-forward", str(job), *ports], env=cluster.env, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield [int(re.match(r"127\.0\.0\.1:(\d+) is port", child.stdout.readline()).group(1)) for _ in ports]
        finally:
            end_child(child)


def exchange(port, data):
    with socket.create_connection(("127.0.0.1", port)) as c:
        c.sendall(data)
        c.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: c.recv(1 << 16), b""))


def gateways(cluster):
    """Processes that connect the networks of this cluster's jobs: children of its shepherds."""
    found, spools = [], spools_of(cluster.home)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
                name, rest = re.match(r"\d+ \((.*)\) (.*)", f.read().strip()).groups()
            with open(f"/proc/{rest.split()[1]}/cmdline", encoding="utf-8") as f:
                parent = f.read()
            if name.startswith(("pasta", "passt")) and any(spool in parent for spool in spools):
                found.append(pid)
    return found


def accepts(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
        return True
    return False


def answer_of(data, name, extra=0):
    return hashlib.sha256(data).hexdigest().encode() + b" " + name.encode() + b" " + b"x" * extra


def test_a_chosen_port_is_told(cluster):
    job = cluster.cli("submit", "-Q", "--hold", "--port", "0", "--port", "tcp:0", "--port", "8000", "--", "true").stdout.strip()
    shown = re.search(r"^Ports +http:(\d+), tcp:(\d+), 8000$", cluster.cli("get", job).stdout, re.M)
    assert shown and int(shown.group(1)) + 1 == int(shown.group(2))
    cluster.cli("cancel", job)


@needs_root
@needs_pasta
def test_jobs_of_one_node_listen_on_the_same_port(cluster):
    one, two = service(cluster, "one", 8888), service(cluster, "two", 8888, "--port", "tcp:0")
    for job, name in ((one, "one"), (two, "two")):
        got = ask(cluster, job, 8888)
        assert got.stdout == answer_of(b"hello", name), got
    # Neither reaches the other, nor what listens on the node.
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        tried = cluster.cli("exec", one, "--", "/usr/bin/python3", "-c", f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)", check=False)
        assert tried.returncode == 1 and "refused" in tried.stderr
    # It has a way out: an address and a route.
    assert "default" in cluster.cli("exec", one, "--", "ip", "route").stdout
    told = cluster.cli("exec", two, "--", "sh", "-c", "echo $ACEQUIA_PORT $ACEQUIA_PORTS").stdout
    assert re.fullmatch(r"8888 8888,2\d{4}\n", told)
    assert f"Ports          8888, tcp:{told.split(',')[1]}" in cluster.cli("get", two).stdout
    # Nothing is left of its network.
    assert len(gateways(cluster)) == 2
    cluster.cli("cancel", one, two)
    cluster.cli("wait", one, two, check=False)
    assert not gateways(cluster)


def test_much_both_ways_and_several_at_once(cluster):
    port = free_ports(1)[0]
    job = service(cluster, "much", port, "--network", "node", answer=3_000_000)
    data = os.urandom(5_000_000)
    assert ask(cluster, job, port, data).stdout == answer_of(data, "much", 3_000_000)
    with forwarded(cluster, job, f":{port}") as (local,), ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda i: exchange(local, b"%d" % i), range(4))) == [answer_of(b"%d" % i, "much", 3_000_000) for i in range(4)]


def test_it_goes_on_after_restarts(cluster):
    port = free_ports(1)[0]
    job = service(cluster, "stays", port)
    assert ask(cluster, job, port).stdout.startswith(answer_of(b"hello", "stays"))
    cluster.kill_controller()
    cluster.start_controller()
    cluster.wait_ready()
    wait_until(lambda: ask(cluster, job, port).stdout.startswith(answer_of(b"hello", "stays")), 60, "not reached after the controller's restart")
    name = cluster.api.get("/v1/nodes")["nodes"][0]["name"]
    cluster.kill_agent(name)
    cluster.start_agent(name)
    wait_until(lambda: ask(cluster, job, port).stdout.startswith(answer_of(b"hello", "stays")), 60, "not reached after the agent's restart")


def test_what_goes_wrong_is_said(cluster):
    port = free_ports(1)[0]
    job = service(cluster, "wrong", port)
    def said(*arguments):
        done = cluster.cli(*arguments, check=False)
        assert done.returncode
        return done.stderr
    assert "has no port 9; ports are given at its submit, with --port 9" in said("port-forward", "--stdio", job, "9")
    assert "write PORT, LOCAL:PORT" in said("port-forward", job, "70000")
    assert '"http:x" is not understood' in said("submit", "--port", "http:x", "--", "true")
    assert "80 is given twice" in said("submit", "--port", "80", "--port", "tcp:80", "--", "true")
    assert "expected auto, own or node" in said("submit", "--network", "moon", "--", "true")
    cluster.cli("cancel", job)
    cluster.cli("wait", job, check=False)
    assert "its ports can be reached while it runs" in said("port-forward", "--stdio", job, str(port))
    silent = cluster.cli("submit", "-Q", "--port", str(port), "-o", "/dev/null", "--", "sleep", "600").stdout.strip()
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{silent}")["state"] == "RUNNING", 60, "it does not run")
    assert f"nothing listens on port {port} of the job" in said("port-forward", "--stdio", silent, str(port))


@needs_root
def test_others_reach_nothing(cluster):
    port = free_ports(1)[0]
    job = service(cluster, "private", port)
    refused = ask(cluster, job, port, user=AS_NOBODY)
    assert refused.returncode and not refused.stdout
    # On the node's network a program of somebody else is not taken for the job's.
    taken = free_ports(1)[0]
    with subprocess.Popen([*AS_NOBODY, "/usr/bin/python3", "-c", ANSWERS, str(taken), "0"], env={"ACEQUIA_JOB_NAME": "impostor"}) as other:
        try:
            wait_until(lambda: accepts(taken), 30, "it does not listen")
            mine = cluster.cli("submit", "-Q", "--port", str(taken), "--network", "node", "-o", "/dev/null", "--", "sleep", "600").stdout.strip()
            wait_until(lambda: cluster.api.get(f"/v1/jobs/{mine}")["state"] == "RUNNING", 60, "it does not run")
            got = ask(cluster, mine, taken)
            assert b"a program of another user listens" in got.stderr and not got.stdout
        finally:
            end_child(other)


def test_another_program_of_the_same_user_is_not_the_job(cluster, tmp_path):
    """On the node's network, where anybody may listen."""
    port = free_ports(1)[0]
    go = tmp_path / "go"
    # What the job leaves running beside its program is the job's.
    work = "while ! [ -e \"$1\" ]; do sleep 0.1; done; (setsid /usr/bin/python3 -c \"$2\" $3 0 &); exec sleep 600"
    job = cluster.cli("submit", "-Q", "-J", "mine", "--port", str(port), "--network", "node", "-o", "/dev/null", "--", "sh", "-c", work, "sh", str(go), ANSWERS,
                      str(port)).stdout.strip()
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 60, "it does not run")
    with subprocess.Popen(["/usr/bin/python3", "-c", ANSWERS, str(port), "0"], env={"ACEQUIA_JOB_NAME": "other"}) as other:
        try:
            wait_until(lambda: accepts(port), 30, "it does not listen")
            got = ask(cluster, job, port)
            assert b"another program of its user listens" in got.stderr and not got.stdout, got
        finally:
            end_child(other)
    go.touch()
    assert ask(cluster, job, port).stdout == answer_of(b"hello", "mine")
    cluster.cli("cancel", job)
