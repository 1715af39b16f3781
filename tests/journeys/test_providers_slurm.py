"""Slurm as the engine: pilot jobs of an ordinary user on a real Slurm with several nodes, from none to some and back;
the long part ends pilots, slurmctld and the controller at random."""
import os
import random
import shutil
import signal
import socket
import subprocess
import time

import pytest

from lab.cluster import Cluster
from lab.helpers import command_of, covers, descendants
from lab.proc import free_ports, wait_until
from lab.slurm import SlurmLab
from lab.users import user

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("slurmctld"),
                                reason="needs root and Debian's Slurm (slurmctld, slurmd, munge)")
SOON, LATER = 60, 240


@pytest.fixture(scope="module")
def slurm():
    with SlurmLab(nodes=2, cpus=4, gpus=0) as s:
        yield s


@pytest.fixture(scope="module")
def cluster(slurm):
    """A controller that agents can join, and whose own machine takes no jobs."""
    os.environ["SLURM_CONF"] = slurm.env["SLURM_CONF"]
    with Cluster(config=f"[cluster]\nlisten = 127.0.0.1:{free_ports(1)[0]}\nheartbeat = 2s\nnode_timeout = 8s\n") as c:
        c.cli("drain", socket.gethostname().split(".")[0], "--reason", "jobs run on nodes of providers")
        yield c
    del os.environ["SLURM_CONF"]


def nodes(c):
    return [n for n in c.api.get("/v1/providers")["nodes"] if n["state"] != "gone"]


def pilots(slurm):
    return [line for line in slurm.run("squeue", "-h", "-o", "%i|%k|%u").stdout.splitlines() if line.split("|")[1]]


def add(c, name, *words):
    c.cli("provider", "add", "slurm", "--name", name, "--partition", "main", "--cpus", "1", "--memory", "512M", *words,
          "--", f"--program={c.binary}")


def submit(c, *words, env=None, runner=None):
    command = [c.binary, "submit", "--memory", "100M", "-o", "/dev/null", *words]
    done = subprocess.run(runner.command(*command) if runner else command, env=runner.env(c.env) if runner else c.env,
                          cwd="/", capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])


def state(c, job):
    return c.api.get(f"/v1/jobs/{job}")["state"]


def test_pilots_of_an_ordinary_user(slurm, cluster):
    c = cluster
    with user("pilot") as pilot:
        add(c, "slurm", "--max", "2", "--idle", "1s", "--time", "30", "--as", pilot.name)
        shape = wait_until(lambda: c.api.get("/v1/providers")["providers"][0]["settings"]["shapes"], SOON, "nothing is offered")[0]
        assert shape["user"] == pilot.name and shape["lifetime_s"] == 1800
        other = submit(c, "--time", "10m", "--", "true")
        late = submit(c, "--time", "2h", "--", "true", runner=pilot)
        jobs = [submit(c, "--time", "10m", "--", "sleep", "2", runner=pilot) for _ in range(3)]
        wait_until(lambda: any(n["state"] == "joined" for n in nodes(c)), SOON, "no pilot joins")
        assert {p.split("|")[2] for p in pilots(slurm)} == {pilot.name}
        assert "for another user's jobs only" in c.cli("why", str(other)).stdout
        assert "gone before" in c.cli("why", str(late)).stdout
        wait_until(lambda: all(state(c, j) == "COMPLETED" for j in jobs), LATER, "jobs do not complete")
        wait_until(lambda: not nodes(c) and not pilots(slurm), LATER, "idle pilots are not given back")
        assert state(c, other) == state(c, late) == "PENDING"
        c.cli("cancel", str(other), str(late))
        c.cli("provider", "remove", "slurm")
        wait_until(lambda: not c.api.get("/v1/providers")["providers"], LATER, "the provider is not removed")
        assert not pilots(slurm)


@covers("acequia-provider")
def test_what_slurm_says_is_told(cluster):
    """Also after a kill of the program that asks Slurm: it is started anew."""
    c = cluster
    c.cli("provider", "add", "slurm", "--name", "none", "--partition", "nowhere", "--max", "1")
    wait_until(lambda: "nowhere" in c.cli("provider", "show", "none").stdout.split("Problem")[-1], SOON, "nothing is said")

    def programs():
        return {pid for pid in descendants(c.pid("controller")) if "acequia-provider" in command_of(pid)}
    killed = wait_until(programs, SOON, "its program does not run")
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: programs() - killed, SOON, "its program is not started anew")
    c.cli("provider", "remove", "none", "--forget")


@pytest.mark.long
def test_kills_lose_and_leak_nothing(slurm, cluster):
    c, r = cluster, random.Random(17)
    add(c, "wild", "--max", "6", "--idle", "5s", "--time", "60")
    jobs = [submit(c, "--time", "10m", "--requeue", "--", "sleep", str(r.choice([0, 1, 3, 8]))) for _ in range(int(os.environ.get("JOBS", 200)))]
    until = time.monotonic() + float(os.environ.get("SECONDS_OF_KILLS", 120))
    while time.monotonic() < until:
        time.sleep(r.uniform(2, 8))
        what = r.choice(["pilot", "pilot", "slurmctld", "controller"])
        if what == "pilot" and pilots(slurm):
            slurm.run("scancel", "-f", "-s", "KILL", r.choice(pilots(slurm)).split("|")[0])
        elif what == "slurmctld":
            slurm.kill_controller()
            slurm.start_controller()
        elif what == "controller":
            c.kill_controller()
            c.start_controller()
            wait_until(c.answers, SOON, "the controller does not come back")
    wait_until(lambda: all(state(c, j) == "COMPLETED" for j in jobs), 900, "jobs do not complete")
    c.cli("provider", "remove", "wild")
    wait_until(lambda: not c.api.get("/v1/providers")["providers"], LATER, "the provider is not removed")
    assert not pilots(slurm)
    keys = [n["key"] for n in c.api.get("/v1/providers")["nodes"]]
    assert len(keys) == len(set(keys))
