"""Jobs that somebody is attached to: input that is on its way when the controller is killed arrives
once and in order, and a job on several nodes shows the output of all of them."""
import hashlib
import os
import random
import signal
import subprocess
import threading
import time

import pytest

from tests.journeys.test_chaos import CONFIG, needs_namespaces
from tests.lab.cluster import Cluster
from tests.lab.network import Network
from tests.lab.proc import wait_until

NODES = ["n1", "n2", "n3"]


def start(cluster, *arguments):
    return subprocess.Popen([cluster.binary, "run", *arguments], env=cluster.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)


def run(cluster, *arguments, text=None):
    return subprocess.run([cluster.binary, "run", *arguments], env=cluster.env, input=text, stdin=None if text else subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60, check=False)


def pour(pipe, data, seconds):
    """Writes `data` in pieces of all sizes, spread over that time."""
    rng = random.Random(len(data))
    begin = time.monotonic()
    at = 0
    while at < len(data):
        n = rng.randrange(1, 60000)
        pipe.write(data[at:at + n])
        pipe.flush()
        at += n
        ahead = at / len(data) * seconds - (time.monotonic() - begin)
        if ahead > 0:
            time.sleep(ahead)
    pipe.close()


def restart_controller(cluster):
    """Stopped first, so that input is surely on its way when it is killed."""
    os.kill(cluster.pid("controller"), signal.SIGSTOP)
    time.sleep(0.3)
    cluster.kill_controller()
    time.sleep(0.2)
    cluster.start_controller()
    cluster.wait_ready()


@pytest.mark.parametrize("command", [["sha256sum"], ["sh", "-c", "sleep 3; sha256sum"]], ids=["quick", "slow"])
def test_input_survives_the_controller(command):
    data = random.Random(7).randbytes(3 << 20)
    with Cluster() as c:
        job = start(c, "--", *command)
        writer = threading.Thread(target=pour, args=(job.stdin, data, 4))
        writer.start()
        for _ in range(3):
            time.sleep(0.7)
            restart_controller(c)
        writer.join(60)
        job.stdin = None
        out, err = job.communicate(timeout=60)
        assert job.returncode == 0, err
        assert out.split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_input_given_before_the_start_survives():
    with Cluster() as c:
        job = start(c, "--begin", "now+3s", "--", "cat")
        job.stdin.write(b"early\n")
        job.stdin.close()
        wait_until(lambda: c.api.get("/v1/jobs")["jobs"], 10, "the job is not there")
        restart_controller(c)
        job.stdin = None
        out, err = job.communicate(timeout=60)
        assert (job.returncode, out) == (0, b"early\n"), err


@pytest.fixture(scope="module")
def three():
    with Network(["head", *NODES]) as net, Cluster(config=CONFIG, agents=NODES, network=net) as c:
        wait_until(lambda: len(c.nodes_up()) == 3, 30, "nodes do not appear")
        yield c


@needs_namespaces
def test_all_nodes_are_shown(three):
    script = "for i in $(seq 2000); do echo $ACEQUIA_NODE $i; done; printf 'no end' >&2"
    r = run(three, "--no-input", "-N", "3", "-n", "3", "--", "sh", "-c", script)
    assert r.returncode == 0, r.stderr
    lines = r.stdout.splitlines()
    for node in NODES:
        assert [x.split()[1] for x in lines if x.startswith(f"{node} ")] == [str(i) for i in range(1, 2001)]
    assert len(lines) == 6000
    assert r.stderr == "no end" * 3


@needs_namespaces
def test_input_goes_to_all_nodes(three):
    text = "".join(f"line {i}\n" for i in range(100000))
    r = run(three, "-N", "3", "-n", "3", "--", "sh", "-c", "echo $ACEQUIA_NODE $(sha256sum)", text=text)
    assert r.returncode == 0, r.stderr
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert sorted(r.stdout.splitlines()) == [f"{node} {digest} -" for node in NODES]


@needs_namespaces
@pytest.mark.parametrize("codes, expected", [("0 5 0", 5), ("0 0 7", 7), ("3 0 0", 3)])
def test_one_bad_node_is_the_status(three, codes, expected):
    script = f"set -- {codes}; shift $ACEQUIA_NODEID; test $1 != 0 || sleep 0.3; exit $1"
    r = run(three, "--no-input", "-N", "3", "-n", "3", "--", "sh", "-c", script)
    assert r.returncode == expected, r.stderr


@needs_namespaces
def test_all_nodes_are_shown_once_over_a_restart(three):
    script = "for i in $(seq 60); do echo $ACEQUIA_NODE $i; sleep 0.05; done"
    job = start(three, "-N", "3", "-n", "3", "--", "sh", "-c", f"{script}; wc -c")
    job.stdin.write(b"x" * 1000)
    job.stdin.flush()
    time.sleep(1)
    restart_controller(three)
    job.stdin.write(b"y" * 500)
    job.stdin.close()
    job.stdin = None
    out, err = job.communicate(timeout=60)
    assert job.returncode == 0, err
    lines = out.decode().splitlines()
    for node in NODES:
        assert [x.split()[1] for x in lines if x.startswith(f"{node} ")] == [str(i) for i in range(1, 61)]
    assert lines.count("1500") == 3


STREAM_BYTES = 64 << 20  # KEPT_STREAM_BYTES
OVERHEAD = 2 << 20       # header, and what is accepted at the job's end


def kept_bytes(cluster, job):
    """What a job's kept output takes on disk."""
    total = 0
    for folder, _, names in os.walk(cluster.home):
        for name in names:
            if name.startswith(f"{job}.") and name.endswith((".out", ".err")):
                total += os.stat(os.path.join(folder, name)).st_blocks * 512
    return total


def job_of(cluster, name):
    wait_until(lambda: any(j["name"] == name for j in cluster.api.get("/v1/jobs")["jobs"]), 30, "no job")
    return next(j["id"] for j in cluster.api.get("/v1/jobs")["jobs"] if j["name"] == name)


@pytest.mark.parametrize("option", [[], ["--pty"]], ids=["pipes", "terminal"])
def test_output_that_nobody_reads_blocks_the_job_at_a_limit(option):
    """The client is there and does not read: the job waits, and goes on from there when it is read."""
    total = 150 << 20
    with Cluster() as c:
        done = os.path.join(c.home, "done")
        script = f"head -c {total} /dev/zero; touch {done}; echo end"
        p = subprocess.Popen([c.binary, "run", "--name", "flood", "--no-input", *option, "--", "sh", "-c", script], env=c.env,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        job = job_of(c, "flood")
        wait_until(lambda: kept_bytes(c, job) >= STREAM_BYTES, 120, "does not reach the limit")
        time.sleep(1)
        assert kept_bytes(c, job) <= STREAM_BYTES + OVERHEAD
        assert not os.path.exists(done)
        seen, most = 0, 0
        while data := p.stdout.read(1 << 20):
            seen += len(data)
            most = max(most, kept_bytes(c, job))
            last = data[-10:]
        assert p.wait(60) == 0
        assert seen - total in (4, 5) and last.replace(b"\r", b"").endswith(b"end\n"), seen
        assert max(most, kept_bytes(c, job)) <= STREAM_BYTES + OVERHEAD
        logs = subprocess.run([c.binary, "logs", str(job)], env=c.env, capture_output=True, check=True).stdout
        assert b"are not kept" in logs[:200] and len(logs) <= STREAM_BYTES + OVERHEAD


def test_kept_output_of_a_user_is_bounded_after_the_end():
    """Ten jobs whose output stays whole, 300 MiB: the newest stay."""
    with Cluster() as c:
        for _ in range(10):
            subprocess.run([c.binary, "run", "--no-input", "--", "head", "-c", str(30 << 20), "/dev/zero"], env=c.env,
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=240, check=True)
        wait_until(lambda: sum(kept_bytes(c, job) for job in range(1, 11)) <= 256 << 20, 60, "nothing is removed")
        assert kept_bytes(c, 10) >= 30 << 20 and kept_bytes(c, 1) == 0
