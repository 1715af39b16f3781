"""Elastic jobs with real daemons: the minimum starts together, optional workers come and are given back, the size is
changed while the job runs, and all of it survives kills of controller and agent and the loss of a node."""
import json
import os

import pytest

from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until

CONFIG = """[cluster]
grace = 5s
{more}
[node *]
cpus = 8
gpus = V100:4:32G
gpus_simulated = true

[project owner]
quota = 4

[project guest]
quota = 0
weight = 1
"""
WORK = 'echo "$ACEQUIA_WORKER $ACEQUIA_ATTEMPT" >> started; exec sleep 600'


@pytest.fixture()
def cluster():
    with Cluster(config=CONFIG.format(more="")) as c:
        yield c


def submit(c, *options, text=WORK):
    out = c.cli("submit", "-o", f"{c.home}/out.%a", "-D", c.home, *options, "--", "sh", "-c", text).stdout
    return int(out.split()[2].rstrip(","))


def job(c, name):
    return c.api.get(f"/v1/jobs/{name}")


def states(c, number):
    return [m["state"] if not m["ended"] else m["ended"] for m in job(c, number)["members"]]


def running(c, number):
    return states(c, number).count("running")


def wait_running(c, number, count, seconds=60):
    wait_until(lambda: running(c, number) == count, seconds, f"job {number} does not have {count} workers: {states(c, number)}")


def wait_state(c, name, state, seconds=60):
    wait_until(lambda: job(c, name)["state"] == state, seconds, f"job {name} is not {state}")


def agent_name(c):
    return next(name[:-4] for name in os.listdir(f"{c.home}/run") if name.startswith("agent-") and name.endswith(".pid"))


def test_workers_start_grow_and_are_seen(cluster):
    c = cluster
    number = submit(c, "--workers", "2-4", "--gpus", "1", "-P", "guest", "-J", "pool",
                    text='cat "$ACEQUIA_WORKERS_FILE" > first.$ACEQUIA_WORKER; echo worker $ACEQUIA_WORKER; exec sleep 600')
    wait_running(c, number, 4)
    listed = c.cli("list").stdout
    assert f"{number} " in listed and "RUNNING 4/4" in listed and listed.count("pool") == 1
    assert c.cli("list", "--elements").stdout.count("pool") == 4
    assert [m["optional"] for m in job(c, number)["members"]] == [False, False, True, True]
    shown = c.cli("get", str(number)).stdout
    assert "4 of 4 run, at least 2" in shown and "+3 running on" in shown
    assert "4 of at most 4 workers run" in c.cli("why", str(number)).stdout
    assert job(c, f"{number}+2")["label"] == f"{number}+2" and job(c, f"{number}+2")["worker"] == 2
    assert "worker 3" in c.cli("logs", f"{number}+3").stdout
    everyone = c.cli("logs", "--all", str(number)).stdout
    assert all(f"==> {number}+{i} <==\nworker {i}" in everyone for i in range(4)), everyone
    c.cli("cp", "/etc/hostname", f"{number}+1:/tmp/acequia-cp-of-{number}")
    os.unlink(f"/tmp/acequia-cp-of-{number}")
    assert c.cli("exec", f"{number}+1", "--", "sh", "-c", "echo $ACEQUIA_WORKER $ACEQUIA_WORKERS_JOB").stdout.split() == ["1", str(number)]
    # Every worker has the membership, from its start on and as it is now.
    lines = [json.loads(line) for line in open(f"{c.home}/first.0", encoding="utf-8")]
    assert [line["worker"] for line in lines] == [0, 1, 2, 3] and lines[1]["node"] and lines[0]["component"] == "worker"

    def seen(worker):
        text = c.cli("exec", f"{number}+{worker}", "--", "sh", "-c", "cat $ACEQUIA_WORKERS_FILE").stdout
        return [json.loads(line)["state"] for line in text.splitlines()]
    wait_until(lambda: all(seen(i) == ["running"] * 4 for i in (0, 3)), 30, "the membership does not reach the workers")
    c.cli("cancel", f"{number}+3")
    wait_until(lambda: seen(0) == ["running"] * 3 + ["left"], 30, "that a worker has left is not told")
    c.cli("cancel", str(number))
    wait_state(c, number, "CANCELLED")
    assert c.cli("wait", str(number), check=False).returncode != 0
    assert "+3 CANCELLED" in c.cli("get", str(number)).stdout
    finished = c.cli("list", "--finished", "-o", "id,state,cpus").stdout.split("\n")[1]
    assert finished.split() == [str(number), "CANCELLED", "4"], finished  # as many as have run
    assert c.cli("list", "--finished", "--elements").stdout.count("pool") == 4
    assert json.loads(c.cli("report", "--json").stdout)["total"]["jobs"] == 1
    each = c.api.get("/v1/jobs?finished=1&elements=1&fields=id,cpus")["jobs"]  # as reports count
    assert sorted(j["id"] for j in each) == [number + i for i in range(1, 5)] and all(j["cpus"] == 1 for j in each)
    assert job(c, f"{number}+1")["state"] == "CANCELLED"


def test_optional_workers_are_given_back(cluster):
    """An owner's job has its place at once; it begins when the workers in the way have ended, idle ones first."""
    c = cluster
    number = submit(c, "--workers", "1-4", "-c", "2", "-P", "guest", "--worker-signal", "USR1", text=(
        "trap 'echo told >> told.$ACEQUIA_WORKER' USR1; echo $ACEQUIA_WORKER $ACEQUIA_ATTEMPT >> started; "
        "trap 'exit 0' TERM; while :; do sleep 0.1; done"))
    wait_running(c, number, 4)
    c.cli("workers", str(number), "--idle", "2")
    assert "idle" in c.cli("workers", str(number)).stdout
    owner = submit(c, "-c", "2", "-P", "owner", text="sleep 600")
    wait_state(c, owner, "RUNNING")
    assert states(c, number)[2] == "waiting" and running(c, number) == 3
    events = c.cli("events", f"{number}+2").stdout
    assert f"Given back for job {owner} of owner" in " ".join(events.split())
    wait_until(lambda: os.path.exists(f"{c.home}/told.0"), 30, "the signal of a new membership does not come")
    # Another takes the rest; then the room comes back.
    more = submit(c, "-c", "4", "-P", "owner", text="sleep 600")
    wait_state(c, more, "RUNNING")
    assert running(c, number) == 1 and "RUNNING 1/4" in c.cli("list").stdout
    assert "waits for resources that no other job needs" in c.cli("why", str(number)).stdout
    c.cli("cancel", str(owner), str(more))
    wait_running(c, number, 4, 90)
    assert job(c, f"{number}+2")["attempt"] == 2
    c.cli("cancel", str(number))
    wait_state(c, number, "CANCELLED")


def test_resize(cluster):
    c = cluster
    number = submit(c, "--workers", "2", "-c", "1")
    wait_running(c, number, 2)
    assert c.cli("resize", str(number), "5").stdout == f"Job {number}: at most 5 workers from now on\n"
    assert "workers=+0 on " in c.cli("events", str(number)).stdout
    wait_running(c, number, 5)
    c.cli("resize", str(number), "3")
    wait_running(c, number, 3)
    assert states(c, number)[:2] == ["running", "running"]
    c.cli("resize", str(number), "1-2")
    wait_running(c, number, 2)
    c.cli("resize", str(number), "4-4")
    wait_running(c, number, 4)
    # Those that were made to leave may still be ending.
    wait_until(lambda: [m["optional"] for m in job(c, number)["members"] if not m["ended"]] == [False] * 4, 30,
               "the minimum is not four workers")
    bad = c.cli("resize", str(number), "0", check=False)
    assert bad.returncode == 1 and "a job has at least one; cancel the job to end it" in bad.stderr
    other = submit(c, text="sleep 600")
    wrong = c.cli("resize", str(other), "2", check=False)
    assert wrong.returncode != 0 and "has no workers" in wrong.stderr
    c.cli("cancel", str(number), str(other))
    wait_state(c, number, "CANCELLED")


@pytest.mark.parametrize("policy", ["fail", "restart", "continue"])
def test_a_worker_that_fails(cluster, policy):
    c = cluster
    number = submit(c, "--workers", "2", "--on-worker-end", policy, text=(
        "echo $ACEQUIA_WORKER >> started; test $ACEQUIA_WORKER = 0 && { while ! test -e go; do sleep 0.1; done; exit 0; }; "
        "test $ACEQUIA_ATTEMPT = 2 && exit 0; exit 3"))
    if policy == "fail":
        wait_state(c, number, "FAILED")
        assert job(c, number)["exit_code"] == 3 and job(c, f"{number}+0")["state"] != "COMPLETED"
        return
    ended = "COMPLETED" if policy == "restart" else "FAILED"
    wait_until(lambda: states(c, number)[1] == ended, 60, "worker 1 does not end")
    assert job(c, number)["state"] == "RUNNING"
    with open(f"{c.home}/go", "w", encoding="utf-8"):
        pass
    wait_state(c, number, ended)
    assert job(c, f"{number}+1")["attempt"] == (2 if policy == "restart" else 1)


def test_kills_of_daemons(cluster):
    """Neither controller nor agent is needed for the workers to go on; each worker is started once."""
    c = cluster
    number = submit(c, "--workers", "2-6", "-c", "1")
    wait_running(c, number, 6)
    c.kill_controller()
    c.cli("up")
    wait_until(c.nodes_up, 30, "the node is not back")
    c.cli("resize", str(number), "2-8")
    c.kill(agent_name(c))
    c.kill_controller()
    c.cli("up")
    wait_running(c, number, 8)
    c.kill(agent_name(c))
    c.cli("resize", str(number), "2-3")
    c.cli("up")
    wait_running(c, number, 3)
    started = sorted(open(f"{c.home}/started", encoding="utf-8").read().split("\n")[:-1])
    assert started == sorted(f"{i} 1" for i in range(8)), started
    c.cli("cancel", str(number))
    wait_state(c, number, "CANCELLED")


def test_a_lost_node_is_replaced():
    with Cluster(config=CONFIG.format(more="heartbeat = 1s\nnode_timeout = 4s\n"), agents=["a", "b"]) as c:
        wait_until(lambda: len(c.nodes_up()) >= 3, 60, "the nodes do not come")
        number = submit(c, "--workers", "2", "-c", "8", "-w", "a,b")
        wait_running(c, number, 2)
        spare = job(c, number)["members"]
        assert {m["node"] for m in spare} == {"a", "b"}
        c.cli("cancel", str(number))
        wait_state(c, number, "CANCELLED")
        number = submit(c, "--workers", "2", "-c", "5")
        wait_running(c, number, 2)
        lost = next(m for m in job(c, number)["members"] if m["node"] in ("a", "b"))
        c.kill_agent(lost["node"])
        wait_until(lambda: job(c, number)["members"][lost["number"]]["attempt"] == 2, 90, "the worker is not replaced")
        wait_running(c, number, 2)
        assert job(c, number)["members"][lost["number"]]["node"] != lost["node"]
        assert job(c, number)["state"] == "RUNNING" and job(c, number)["attempt"] == 1
        c.cli("cancel", str(number))
        wait_state(c, number, "CANCELLED")
