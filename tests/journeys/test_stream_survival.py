"""Clients of running jobs (run, exec, attach, logs -f, srun, salloc) under kills of the controller and of the
agent, and under cuts of the links between client and controller and between controller and agent: one way, both,
half open. They go on by themselves; every line of output comes once and in order, input arrives once, exit codes
are right. STREAM_ROUNDS says how many faults; the long run has 1,000."""
import fcntl
import os
import pty
import random
import select
import signal
import struct
import subprocess
import termios
import threading
import time

import pytest

from tests.journeys.test_chaos import needs_namespaces
from tests.lab.cluster import Cluster
from tests.lab.network import Network
from tests.lab.proc import wait_until
from tests.lab.proxy import Proxy

CONFIG = """[cluster]
node_timeout = 120s
heartbeat = 1s

[node *]
cpus = 32
memory = 8000M
"""
LINES = 50
TALK = f"for i in $(seq 1 {LINES}); do echo line $i; sleep 0.1; done; exit 7"
EXPECTED = [f"line {i}" for i in range(1, LINES + 1)]


class Lab:
    """One node over TLS in a namespace of its own; clients reach the controller through a proxy."""

    def __init__(self, cluster, net, proxy, seed):
        self.c, self.net, self.proxy, self.chance = cluster, net, proxy, random.Random(seed)

    def start(self, *command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE):
        env = {k: v for k, v in self.c.env.items() if not k.startswith("SLURM")}
        env["ACEQUIA_HOME"] = os.path.dirname(os.path.dirname(self.proxy.front))
        env["PATH"] = f"{self.c.home}/bin:{env['PATH']}"
        return subprocess.Popen(command, env=env, cwd=self.c.home, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE,
                                text=True, start_new_session=True)

    def kill_controller(self):
        self.c.kill_controller()
        time.sleep(self.chance.uniform(0, 0.5))
        self.c.start_controller()
        self.c.wait_ready()

    def kill_agent(self):
        self.c.kill_agent("n1")
        time.sleep(self.chance.uniform(0, 0.5))
        self.c.start_agent("n1")

    def cut_node(self):
        """Longer than the agent waits for the controller: both sides notice."""
        self.net.cut("n1")
        time.sleep(self.chance.uniform(0.2, 5))
        self.net.heal("n1")

    def cut_one_way(self):
        direction = self.chance.choice(["in", "out"])
        self.net.cut_one_way("n1", direction)
        time.sleep(self.chance.uniform(0.2, 5))
        self.net.heal_one_way("n1", direction)

    def cut_clients(self):
        self.proxy.cut()

    def hurt(self):
        self.chance.choice([self.kill_controller, self.kill_agent, self.cut_node, self.cut_one_way, self.cut_clients])()


@pytest.fixture(name="lab")
def make_lab(tmp_path):
    with Network(["head", "n1"]) as net, Cluster(config=CONFIG, agents=["n1"], network=net) as c:
        wait_until(lambda: c.nodes_up() == ["n1"], 60, "the node does not appear")
        c.cli("slurm-commands", f"{c.home}/bin")
        os.makedirs(f"{tmp_path}/run")
        with Proxy(f"{tmp_path}/run/api.sock", f"{c.home}/run/api.sock") as proxy:
            yield Lab(c, net, proxy, 5)


def finish(child, code, name):
    try:
        out, err = child.communicate(timeout=240)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        out, err = child.communicate()
        raise AssertionError(f"{name} hangs: {out} {err}") from None
    assert child.returncode == code, (name, child.returncode, (out or "")[-500:], err)
    return out


def check_lines(text, name):
    assert [x for x in text.splitlines() if x.startswith("line ")] == EXPECTED, (name, text)


def begin(lab):
    """A job to look at, and every kind of client at work."""
    job = lab.c.cli("submit", "-Q", "-o", f"{lab.c.home}/log.out", "--truncate", "--", "bash", "-c", TALK).stdout.strip()
    host = lab.c.cli("submit", "-Q", "-o", "/dev/null", "--", "sleep", "1000").stdout.strip()
    wait_until(lambda: lab.c.api.get(f"/v1/jobs/{host}")["state"] == "RUNNING", 60, "the job does not start")
    clients = {
        "run": (lab.start("acequia", "run", "--no-input", "--", "bash", "-c", TALK), 7),
        "exec": (lab.start("acequia", "exec", "--no-input", host, "--", "bash", "-c", TALK), 7),
        "logs": (lab.start("acequia", "logs", "-f", "-x", job), 7),
        "srun": (lab.start("srun", "bash", "-c", TALK), 7),
        "salloc": (lab.start("salloc", "-Q", "bash", "-c", f"srun bash -c '{TALK}'; exit 5"), 5),
    }
    return host, clients


def feed(lab, host, data):
    """Clients that read their input in pieces, over the faults."""
    fed = {}
    for name, command in {"run": ["run"], "exec": ["exec", host]}.items():
        with open(f"{lab.c.home}/{name}.copy", "wb") as out:  # a pipe that nobody reads yet would hold everything up
            fed[name] = lab.start("acequia", *command, "--", "cat", stdin=subprocess.PIPE, stdout=out)

    def pour(child):
        for at in range(0, len(data), 4096):
            child.stdin.write(data[at:at + 4096])
            child.stdin.flush()
            time.sleep(0.05)
        child.stdin.close()
        child.stdin = None

    threads = [threading.Thread(target=pour, args=(child,)) for child in fed.values()]
    for t in threads:
        t.start()
    return fed, threads


def run_rounds(lab, rounds):
    data = "".join(f"{i}\n" for i in range(40000))
    done = 0
    while done < rounds:
        host, clients = begin(lab)
        fed, threads = feed(lab, host, data)
        for _ in range(min(4, rounds - done)):
            time.sleep(lab.chance.uniform(0.1, 1.0))
            lab.hurt()
            done += 1
        for t in threads:
            t.join(240)
        for name, (child, code) in clients.items():
            check_lines(finish(child, code, name), name)
        for name, child in fed.items():
            finish(child, 0, f"{name} with input")
            with open(f"{lab.c.home}/{name}.copy", encoding="utf-8") as f:
                assert f.read() == data, name
        wait_until(lambda: lab.c.nodes_up() == ["n1"], 60, "the node does not come back")
        lab.c.cli("cancel", host)
        wait_until(lambda: not lab.c.active_jobs(), 90, "a job is left")


@needs_namespaces
def test_clients_survive(lab):
    run_rounds(lab, int(os.environ.get("STREAM_ROUNDS", "4")))


@needs_namespaces
@pytest.mark.long
def test_clients_survive_long(lab):
    lab.chance.seed(int(time.time()))
    run_rounds(lab, 1000)


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
