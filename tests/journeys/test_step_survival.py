"""Steps and allocations under kills of the controller and of the agent: srun and salloc go on by themselves, every
line of output comes once and in order, input arrives once, exit codes are those of the tasks. STEP_ROUNDS says how
many kills; the long run is tests/kills/."""
import fcntl
import os
import random
import signal
import subprocess
import threading
import time

import pytest

from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until

CONFIG = "[node *]\ncpus = 16\nmemory = 8000M\n"
LINES = 40
TALK = f"for i in $(seq 1 {LINES}); do echo line $i; sleep 0.1; done; exit 7"


@pytest.fixture
def cluster():
    with Cluster(config=CONFIG) as c:
        c.cli("slurm-commands", f"{c.home}/bin")
        c.local = next(n["name"] for n in c.api.get("/v1/nodes")["nodes"])
        yield c


def start(c, *command, stdin=subprocess.DEVNULL):
    env = {k: v for k, v in c.env.items() if not k.startswith("SLURM")}
    env["PATH"] = f"{c.home}/bin:{env['PATH']}"
    return subprocess.Popen(command, env=env, cwd=c.home, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            start_new_session=True)


def restart_controller(c):
    c.kill_controller()
    c.start_controller()
    c.wait_ready()


def restart_agent(c):
    c.kill_agent(c.local)
    c.start_agent(c.local)
    wait_until(lambda: c.nodes_up() == [c.local], 60, "the node does not come back")


def check_lines(text, label=""):
    """Every line once, in order."""
    assert text.splitlines() == [f"{label}line {i}" for i in range(1, LINES + 1)], text


def finish(child, code):
    out, err = child.communicate(timeout=180)
    assert child.returncode == code, (child.returncode, out, err)
    return out


def run_rounds(c, rounds, seed):
    """One kill each, at any time, with three kinds of clients at work."""
    chance = random.Random(seed)
    data = "".join(f"{i}\n" for i in range(20000))
    done = 0
    while done < rounds:
        alone = start(c, "srun", "-n2", "--label", "bash", "-c", TALK)
        batch = start(c, "sbatch", "-Q", "-n1", "-o", f"{c.home}/batch.out", "--wrap",
                      f"srun bash -c '{TALK}'; echo step $?")
        inside = start(c, "salloc", "-Q", "-n1", "bash", "-c", f"srun bash -c '{TALK}'; exit 5")
        fed = start(c, "srun", "cat", stdin=subprocess.PIPE)
        fed.stdin.write(data[:len(data) // 2])
        fed.stdin.flush()
        for _ in range(min(3, rounds - done)):
            time.sleep(chance.uniform(0.1, 1.0))
            chance.choice([restart_controller, restart_agent])(c)
            done += 1
        fed.stdin.write(data[len(data) // 2:])
        fed.stdin.close()
        fed.stdin = None
        out = finish(alone, 7)
        for rank in (0, 1):
            check_lines("\n".join(x for x in out.splitlines() if x.startswith(f"{rank}: ")), f"{rank}: ")
        check_lines(finish(inside, 5))
        assert finish(fed, 0) == data
        batch.communicate(timeout=180)
        wait_until(lambda: not c.active_jobs(), 90, "a job is left")
        with open(f"{c.home}/batch.out", encoding="utf-8") as f:
            text = f.read()
        assert text.splitlines()[-1] == "step 7", text
        check_lines("\n".join(x for x in text.splitlines() if x.startswith("line ")))


def test_steps_survive(cluster):
    run_rounds(cluster, int(os.environ.get("STEP_ROUNDS", "3")), 11)


def test_an_allocation_that_nobody_claims_ends(cluster):
    """Its client dies while the controller is away: the lease ends the job, with a reason."""
    client = start(cluster, "salloc", "-Q", "sleep", "1000")
    wait_until(lambda: cluster.active_jobs() == 1, 60, "the allocation is not there")
    job = cluster.api.get("/v1/jobs")["jobs"][0]["id"]
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 60, "the allocation does not start")
    cluster.kill_controller()
    os.killpg(client.pid, signal.SIGKILL)  # with the command that it runs
    client.communicate(timeout=60)
    cluster.start_controller()
    cluster.wait_ready()
    wait_until(lambda: not cluster.active_jobs(), 150, "the allocation is not ended")
    assert "its client was not connected for 60 s" in cluster.api.get(f"/v1/jobs/{job}")["reason"]


def test_a_command_on_a_lost_node_ends_with_it():
    """Its job goes back to the queue and its node stays away: nobody waits for output that does not come."""
    with Cluster(config="[cluster]\nnode_timeout = 5s\nheartbeat = 1s\n\n" + CONFIG) as c:
        node = c.api.get("/v1/nodes")["nodes"][0]["name"]
        job = c.cli("submit", "-Q", "-o", "/dev/null", "--", "sleep", "600").stdout.strip()
        wait_until(lambda: c.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 60, "it does not run")
        client = start(c, c.binary, "exec", job, "--", "sh", "-c", "echo begun; sleep 600")
        assert client.stdout.readline() == "begun\n"
        c.kill_agent(node)
        wait_until(lambda: c.api.get(f"/v1/jobs/{job}")["state"] == "PENDING", 60, "the node is not given up")
        text = client.communicate(timeout=180)[1]
        assert client.returncode == 1 and "the node is gone" in text
        c.start_agent(node)
        wait_until(lambda: c.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 60, "it does not run again")


def test_an_agent_waits_for_the_lock_of_one_that_was_just_killed(cluster):
    """A killed process holds its files until the kernel has taken it down; the next agent may be quicker."""
    cluster.kill_agent(cluster.local)
    with open(f"{cluster.home}/run/agent-{cluster.local}.pid", "r+", encoding="utf-8") as dying:
        fcntl.flock(dying, fcntl.LOCK_EX)
        threading.Timer(0.5, lambda: fcntl.flock(dying, fcntl.LOCK_UN)).start()
        cluster.start_agent(cluster.local)
        time.sleep(1)
    assert cluster.cli("run", "--no-input", "--", "echo", "there").stdout == "there\n"
