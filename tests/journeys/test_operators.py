"""What operators meet: processes that are stopped, and an agent that was away for long."""
import os
import signal

import pytest

from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until

SPEC = {"workdir": "/tmp", "output": "/dev/null"}


@pytest.fixture(name="cluster", scope="module")
def _cluster():
    with Cluster(config="[cluster]\ngrace = 1s\nnode_timeout = 6s\nheartbeat = 2s\n[node *]\ncpus = 8\nmemory = 4G\n") as c:
        c.local = next(n["name"] for n in c.api.get("/v1/nodes")["nodes"])
        yield c


def submit(c, name, *argv, **more):
    return c.api.post("/v1/jobs", {"spec": {**SPEC, "name": name, "argv": list(argv), **more}})["id"]


def state(c, job):
    return c.api.get(f"/v1/jobs/{job}")["state"]


def children_named(name):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as f:
                if f.read().split("\0")[:2] == name:
                    found.append(int(pid))
        except OSError:
            pass
    return found


def parent(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        return int(f.read().rsplit(")", 1)[1].split()[1])


def test_a_stopped_shepherd_is_named(cluster):
    """`why` says which node's process does not answer, and that it holds what it has."""
    c = cluster
    job = submit(c, "stopped", "sleep", "471947")
    wait_until(lambda: children_named(["sleep", "471947"]), 30, "it does not run")
    shepherd = parent(children_named(["sleep", "471947"])[0])
    os.kill(shepherd, signal.SIGSTOP)
    try:
        c.cli("cancel", str(job))
        assert state(c, job) == "COMPLETING"
        wait_until(lambda: "do not answer" in c.cli("why", str(job)).stdout, 60, "nobody says what is wrong")
        said = " ".join(c.cli("why", str(job)).stdout.split())
        assert f"processes on node {c.local} do not answer" in said and "acequia-shepherd" in said, said
    finally:
        os.kill(shepherd, signal.SIGCONT)
    wait_until(lambda: state(c, job) == "CANCELLED", 60, "it does not end")


def test_an_agent_that_was_stopped_for_long(cluster):
    """Longer than node_timeout: the node is given up; when it goes on, what ran there is cleared away and it is used again."""
    c = cluster
    job = submit(c, "away", "sleep", "471948", requeue=False)
    wait_until(lambda: state(c, job) == "RUNNING", 30, "it does not run")
    agent = c.pid("agent") or c.pid(f"agent-{c.local}")
    os.kill(agent, signal.SIGSTOP)
    try:
        wait_until(lambda: state(c, job) == "NODE_FAIL", 60, "the node is not given up")
    finally:
        os.kill(agent, signal.SIGCONT)
    wait_until(lambda: c.nodes_up() == [c.local], 60, "the node does not come back")
    wait_until(lambda: not children_named(["sleep", "471948"]), 60, "what was given up runs on")
    c.cli("wait", str(submit(c, "after", "true")))
