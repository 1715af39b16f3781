"""Clients of running jobs (run, exec, logs -f, srun, salloc, sbatch, mpirun) under kills of the controller and of agents,
and under cuts of the links between client, controller and agent: one way, both, half open. They go on by themselves;
every line of output comes once and in order, input arrives once, exit codes are right. Here is a slice, STREAM_ROUNDS
faults of each kind of lab; `make test-kills` runs 1,000 (tests/kills/)."""
import fcntl
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import termios
import time

import pytest

from tests.journeys.test_chaos import needs_namespaces
from tests.kills.rounds import CONFIG, TALK, LinkCluster, NamespaceLab, check_lines, finish, prepare, run_rounds
from tests.lab.cluster import Cluster
from tests.lab.network import Network
from tests.lab.proc import processes_naming, spools_of, wait_until
from tests.lab.proxy import Proxy

ROUNDS = int(os.environ.get("STREAM_ROUNDS", "5"))  # each kind of fault once


@pytest.fixture(name="lab")
def make_lab(tmp_path):
    """One node over TLS in a namespace of its own; clients reach the controller through a proxy."""
    with Network(["head", "n1"]) as net, Cluster(config=CONFIG, agents=["n1"], network=net) as c:
        wait_until(lambda: c.nodes_up() == ["n1"], 60, "the node does not appear")
        prepare(c)
        os.makedirs(f"{tmp_path}/run")
        lab = NamespaceLab(c, net, ["n1"], 5)
        with Proxy(f"{tmp_path}/run/api.sock", f"{c.home}/run/api.sock") as lab.proxy:
            yield lab


@needs_namespaces
def test_clients_survive(lab):
    run_rounds(lab, ROUNDS)


def test_clients_over_tls_and_mpirun_survive(tmp_path):
    """Two nodes that reach each other directly; only their links to the controller, and those of clients, are cut. mpirun
    is tried where it is installed (openmpi-bin)."""
    with LinkCluster(tmp_path, 6) as lab:
        run_rounds(lab, ROUNDS)


@needs_namespaces
def test_a_half_open_connection_hangs_nobody(lab):
    """The controller's side is gone and the client is not told: it connects again, past the job's end too."""
    job = lab.c.cli("submit", "-Q", "-o", f"{lab.c.home}/half.out", "--", "bash", "-c", TALK).stdout.strip()
    wait_until(lambda: lab.c.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 60, "the job does not start")
    logs = lab.start("acequia", "logs", "-f", "-x", job)
    run = lab.start("acequia", "run", "--no-input", "--", "bash", "-c", TALK)
    wait_until(lambda: len(lab.proxy.pairs) >= 2, 60, "the clients do not connect")
    time.sleep(2)
    lab.proxy.hold(600)
    check_lines(finish(logs, 7, "logs"), "logs")
    check_lines(finish(run, 7, "run"), "run")


@needs_namespaces
def test_the_step_of_a_client_that_is_killed_ends(lab):
    """As in Slurm: srun's death ends its step, not the job."""
    script = f"srun sleep 1000 & echo $! > {lab.c.home}/srun.pid; wait; sleep 1000"
    job = lab.c.cli("submit", "-Q", "-o", "/dev/null", "--", "bash", "-c", f"export PATH={lab.c.home}/bin:$PATH; {script}").stdout.strip()

    def steps(kind):
        return [e for e in lab.c.api.get(f"/v1/jobs/{job}/events")["events"] if e["type"] == kind]
    wait_until(lambda: steps("step_started"), 60, "the step does not start")
    with open(f"{lab.c.home}/srun.pid", encoding="utf-8") as f:
        os.kill(int(f.read()), signal.SIGKILL)
    wait_until(lambda: steps("step_ended"), 200, "the step is not ended")
    assert lab.c.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING"


def test_a_shepherd_that_was_not_woken_gets_the_input():
    """Its socket is full while the last piece of input and the end come: it is woken again."""
    with Cluster() as c:
        job = c.cli("submit", "-Q", "-o", "/dev/null", "--", "sleep", "1000").stdout.strip()
        wait_until(lambda: c.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 60, "the job does not start")
        client = subprocess.Popen([c.binary, "exec", job, "--", "cat"], env=c.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        client.stdin.write(b"first\n")
        client.stdin.flush()
        assert client.stdout.readline() == b"first\n"
        spool = next(s for s in spools_of(c.home) if os.path.exists(f"{s}/{job}.1/control"))
        shepherds = [p for p in processes_naming(spool) if name_of(p).startswith("acequia-shepher")]
        for pid in shepherds:
            os.kill(pid, signal.SIGSTOP)
        waiting = fill(f"{spool}/{job}.1/control")
        client.stdin.write(b"last\n")
        client.stdin.close()
        wait_until(lambda: os.path.getsize(f"{spool}/{job}.1/in.1") == len(b"first\nlast\n"), 60, "the input does not arrive")
        time.sleep(0.2)  # the end of the input, too
        for pid in shepherds:
            os.kill(pid, signal.SIGCONT)
        for s in waiting:
            s.close()
        assert client.stdout.read() == b"last\n"
        assert client.wait(60) == 0


def test_each_reader_of_a_job_has_its_own_position(tmp_path):
    """What run has read is not given back to the file system while an attach beside it has not."""
    size = 40 << 20
    script = f"while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; head -c {size} /dev/zero; while [ ! -e {tmp_path}/end ]; do sleep 0.1; done"
    with Cluster() as c:
        with open(f"{tmp_path}/out", "wb") as out:
            run = subprocess.Popen([c.binary, "run", "--no-input", "--", "bash", "-c", script], env=c.env, stdout=out, stderr=subprocess.PIPE)
        wait_until(lambda: any(j["state"] == "RUNNING" for j in c.api.get("/v1/jobs")["jobs"]), 60, "the job does not start")
        job = str(c.api.get("/v1/jobs")["jobs"][0]["id"])
        attach = subprocess.Popen([c.binary, "attach", job], env=c.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE)
        time.sleep(1)  # it is connected, and takes a break
        with open(f"{tmp_path}/go", "w", encoding="utf-8"):
            pass
        wait_until(lambda: os.path.getsize(f"{tmp_path}/out") == size, 120, "the job's client does not get its output")
        with open(f"{tmp_path}/end", "w", encoding="utf-8"):
            pass
        assert run.wait(120) == 0
        out, err = attach.communicate(timeout=240)
        assert (len(out), attach.returncode) == (size, 0) and b"not kept" not in err, (len(out), err)


def name_of(pid):
    with open(f"/proc/{pid}/comm", encoding="utf-8") as f:
        return f.read()


def fill(path):
    """Connections to a socket that nobody accepts, as many as it takes."""
    waiting = []
    while True:
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.setblocking(False)
        waiting.append(s)
        try:
            s.connect(path)
        except BlockingIOError:
            return waiting


def read_until(terminal, wanted, seen=b""):
    """What a terminal has shown when `wanted` is there."""
    end = time.monotonic() + 120
    while wanted not in seen and time.monotonic() < end:
        if select.select([terminal], [], [], 0.5)[0]:
            try:
                seen += os.read(terminal, 4096)
            except OSError:  # the other end is closed
                break
    assert wanted in seen, seen
    return seen


def test_a_terminal_survives():
    """Its job does not notice that agent and controller are killed; size and input go on."""
    with Cluster() as c:
        name = c.nodes_up()[0]
        terminal, end = pty.openpty()
        run = subprocess.Popen([c.binary, "run", "--pty", "--", "sh", "-c", "echo ready; read x; echo got $x; stty size; exit 9"],
                               env=c.env, stdin=end, stdout=end, stderr=end)
        os.close(end)
        seen = read_until(terminal, b"ready\r\n")
        c.kill_agent(name)
        c.start_agent(name)
        wait_until(lambda: c.nodes_up() == [name], 60, "the node does not come back")
        c.kill_controller()
        c.start_controller()
        c.wait_ready()
        wait_until(lambda: c.nodes_up() == [name], 60, "the node does not come back")
        time.sleep(2)  # the client has connected again: only then is a size passed on
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 111, 0, 0))
        run.send_signal(signal.SIGWINCH)
        time.sleep(1)
        os.write(terminal, b"hello\r")
        seen = read_until(terminal, b"33 111\r\n", seen)
        assert run.wait(60) == 9
        assert seen == b"ready\r\nhello\r\ngot hello\r\n33 111\r\n"
        os.close(terminal)


def test_a_log_that_is_rotated_and_emptied():
    with Cluster() as c:
        path = f"{c.home}/rotated"
        job = c.cli("submit", "-Q", "-o", path, "--", "sleep", "1000").stdout.strip()
        wait_until(lambda: c.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING" and os.path.exists(path), 60, "does not start")
        logs = subprocess.Popen([c.binary, "logs", "-f", job], env=c.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with open(path, "a", encoding="utf-8") as f:
            f.write("one\n")
        seen = read_until(logs.stdout.fileno(), b"one\n")
        os.rename(path, f"{path}.1")
        with open(f"{path}.1", "a", encoding="utf-8") as f:
            f.write("late\n")
        with open(path, "w", encoding="utf-8") as f:
            f.write("two of the next file\n")
        seen = read_until(logs.stdout.fileno(), b"next file\n", seen)
        with open(path, "w", encoding="utf-8") as f:
            f.write("three\n")
        seen = read_until(logs.stdout.fileno(), b"three\n", seen)
        c.cli("cancel", job)
        out, err = logs.communicate(timeout=60)
        assert seen + out == b"one\nlate\ntwo of the next file\nthree\n", (seen, out)
        assert b"replaced by another one" in err and b"begins anew" in err, err
