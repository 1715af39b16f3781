"""Providers: nodes are started when jobs wait and stopped when they are idle, by programs that speak the protocol; kills
of the controller, of nodes and of the program lose and leak nothing."""
import csv
import io
import os
import signal
import socket

import pytest

from lab.cluster import Cluster
from lab.proc import alive, free_ports, wait_until

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LOCAL = f"{ROOT}/examples/providers/local.sh"
SOON, LATER = 60, 180


@pytest.fixture(scope="module")
def cluster():
    """A controller that agents can join, and whose own machine takes no jobs."""
    with Cluster(config=f"[cluster]\nlisten = 127.0.0.1:{free_ports(1)[0]}\nheartbeat = 2s\nnode_timeout = 8s\n") as c:
        c.cli("drain", socket.gethostname().split(".")[0], "--reason", "jobs run on nodes of providers")
        yield c


def nodes(c, state=None):
    return [n for n in c.api.get("/v1/providers")["nodes"] if state is None and n["state"] != "gone" or n["state"] == state]


def provider(c, name="local"):
    found = [p for p in c.api.get("/v1/providers")["providers"] if p["settings"]["name"] == name]
    return found[0] if found else None


def submit(c, count=1, command="sleep 1", **more):
    words = [f"--{k.replace('_', '-')}={v}" for k, v in more.items()]
    return [int(c.cli("submit", "--json", *words, "--memory", "100M", "--time", "10m", "-o", "/dev/null", "--", "sh", "-c", command).stdout
                .split('"id":')[1].split(",")[0].split("}")[0]) for _ in range(count)]


def state(c, job):
    return c.api.get(f"/v1/jobs/{job}")["state"]


def pids_of(folder):
    found = []
    for key in os.listdir(folder) if os.path.isdir(folder) else []:
        try:
            with open(f"{folder}/{key}/pid", encoding="ascii") as f:
                found.append(int(f.read()))
        except (OSError, ValueError):
            pass
    return [p for p in found if alive(p)]


def test_from_no_node_to_two_and_back(cluster, tmp_path):
    c, folder = cluster, str(tmp_path / "engine")
    c.cli("provider", "add", "program", LOCAL, "--name", "local", "--max", "2", "--idle", "3s", "--", folder,
          f"{os.path.dirname(c.binary)}/acequia")
    wait_until(lambda: provider(c)["settings"]["shapes"], SOON, "the program offers nothing")
    jobs = submit(c, 3, "sleep 2")
    wait_until(lambda: len(nodes(c, "joined")) == 2, SOON, "no two nodes join")
    listed = c.cli("providers").stdout
    assert "local-1" in listed and "jobs wait" in listed
    c.kill_controller()  # while jobs run on them
    c.start_controller()
    wait_until(c.answers, SOON, "the controller does not come back")
    wait_until(lambda: all(state(c, j) == "COMPLETED" for j in jobs), LATER, "jobs do not complete")
    assert {c.api.get(f"/v1/jobs/{j}")["nodes"] for j in jobs} <= {"local-1", "local-2"}
    wait_until(lambda: not nodes(c), LATER, "idle nodes are not given back")
    assert not pids_of(folder)
    rows = list(csv.DictReader(io.StringIO(c.cli("providers", "--timings", "--csv").stdout)))
    assert len(rows) == 2
    for row in rows:
        times = [int(row[k]) for k in ("demand", "request", "boot", "start", "join", "gone")]
        assert times == sorted(times)
    assert nodes(c, "gone")[0]["reason"] == "without jobs for 3 s"


@pytest.mark.long  # a node counts as lost only after its time-out
def test_what_goes_by_itself_is_replaced(cluster, tmp_path):
    c, folder = cluster, str(tmp_path / "engine2")
    c.cli("provider", "add", "program", LOCAL, "--name", "gone", "--max", "1", "--idle", "2s", "--", folder,
          f"{os.path.dirname(c.binary)}/acequia")
    c.cli("provider", "set", "local", "--pause")
    job, = submit(c, 1, "sleep 5")
    wait_until(lambda: state(c, job) == "RUNNING", SOON, "the job does not start")
    for pid in pids_of(folder):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: state(c, job) == "COMPLETED", LATER, "the job does not complete")
    c.cli("provider", "remove", "gone")
    c.cli("provider", "remove", "local")
    wait_until(lambda: provider(c, "gone") is None and provider(c) is None, LATER, "the providers are not removed")
    assert not pids_of(folder)


def test_a_program_that_is_wrong_is_named(cluster, tmp_path):
    c, program = cluster, tmp_path / "wrong.sh"
    program.write_text("#!/bin/sh\nwhile read -r line; do echo 'no json'; done\n")
    program.chmod(0o755)
    c.cli("provider", "add", "program", str(program), "--name", "wrong", "--max", "1")
    wait_until(lambda: provider(c, "wrong")["problem"], SOON, "nothing is said of it")
    assert "not understood" in c.cli("provider", "show", "wrong").stdout
    assert "max: say how many" in c.cli("provider", "add", "program", str(program), "--name", "more", check=False).stderr
    c.cli("provider", "remove", "wrong", "--forget")
    assert provider(c, "wrong") is None


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def test_a_program_that_is_removed_leaves_nothing_of_it_in_use():
    """One that talks without end is stopped; one that is removed while it runs is seen by the sanitizers if it is used further."""
    with Cluster() as c:
        before = c.pid("controller")
        c.cli("provider", "add", "program", "/usr/bin/yes", "--name", "a", "--max", "1")
        c.cli("provider", "add", "program", "/usr/bin/sleep", "--name", "b", "--max", "1", "--", "1000")
        said = os.path.join(c.home, "log", "controller.log")
        wait_until(lambda: "says more than it is asked" in read(said), SOON, "what it says is read without end")
        children = f"/proc/{before}/task/{before}/children"
        wait_until(lambda: any(read(f"/proc/{p}/comm") == "sleep\n" for p in read(children).split()), SOON, "the quiet one is not started")
        for name in ("a", "b"):
            c.cli("provider", "remove", name, "--forget")
        wait_until(lambda: not provider(c, "a") and not provider(c, "b"), SOON, "they are not removed")
        wait_until(lambda: c.cli("run", "--", "true").returncode == 0, SOON, "no job runs")
        assert c.pid("controller") == before
