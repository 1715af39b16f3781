"""The controller's state is put back to an older copy while people are connected: srun, salloc, run and a batch job's
steps go on with every line of output, allocations keep their lease, and programs of jobs their ports."""
import os
import subprocess

import pytest

from tests.journeys.test_ports import ask, service
from tests.journeys.test_restore import live, put_back, state, take_copy
from tests.journeys.test_step_survival import start
from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until


@pytest.fixture(name="cluster", scope="module")
def _cluster():
    with Cluster(config="[cluster]\ngrace = 1s\n[node *]\ncpus = 16\nmemory = 8G\n") as c:
        c.cli("slurm-commands", f"{c.home}/bin")
        c.local = next(n["name"] for n in c.api.get("/v1/nodes")["nodes"])
        yield c


def wait_for(flag):
    return f"while [ ! -e {flag} ]; do sleep 0.05; done"


def named(c, name):
    return [j for j in live(c) if j["name"] == name]


def running(c, *names):
    wait_until(lambda: all(j["state"] == "RUNNING" for n in names for j in named(c, n) or [{"state": ""}]), 60,
               "they do not all run")


def steps(c, job):
    return [s["type"] for s in c.api.get(f"/v1/jobs/{job}")["steps"]]


def talks(c, name, flag, code):
    """A program that says that it has begun, waits for the flag, and ends."""
    return f"echo begun {name}; echo > {c.home}/{name}; {wait_for(flag)}; echo ended {name}; exit {code}"


@pytest.mark.parametrize("agent_too", [False, True], ids=["", "the agent too"])
def test_clients_go_on(cluster, agent_too):
    c = cluster
    tag = "b" if agent_too else "a"
    flag = f"{c.home}/go-{tag}"
    copy = take_copy(c)
    wait_until(c.nodes_up, 30, "the node does not come back")
    names = {k: f"{k}-{tag}" for k in ("alone", "inside", "batch", "attached")}
    alone = start(c, "srun", "-J", names["alone"], "-n2", "bash", "-c", talks(c, names["alone"], flag, 7))
    inside = start(c, "salloc", "-Q", "-J", names["inside"], "-n1", "bash", "-c",
                   f"srun -Q bash -c '{talks(c, names['inside'], flag, 3)}'; exit 5")
    subprocess.run(
        ["sbatch", "-Q", "-J", names["batch"], "-n1", "-o", f"{c.home}/{names['batch']}.out", "--wrap",
         f"srun bash -c '{talks(c, names['batch'], flag, 0)}'; echo step $?"],
        env={**c.env, "PATH": f"{c.home}/bin:{c.env['PATH']}"}, check=True, cwd=c.home)
    attached = start(c, c.binary, "run", "--name", names["attached"], "--", "bash", "-c", talks(c, names["attached"], flag, 4))
    running(c, *names.values())
    for k in ("alone", "inside", "batch", "attached"):
        wait_until(lambda n=names[k]: os.path.exists(f"{c.home}/{n}"),
                   60, f"{k} does not begin")
    before = {n: named(c, n)[0]["id"] for n in names.values()}
    if agent_too:
        c.kill_agent(c.local)
        c.start_agent(c.local)
    put_back(c, copy)
    running(c, *names.values())
    assert {n: [j["id"] for j in named(c, n)] for n in names.values()} == {n: [i] for n, i in before.items()}
    # The steps are known again, with what they hold.
    for k in ("alone", "inside", "batch"):
        wait_until(lambda n=names[k]: steps(c, before[n]) == ["step_started"], 30, f"{k}: no step")
    open(flag, "w", encoding="utf-8").close()
    said = {k: p.communicate(timeout=60) for k, p in (("alone", alone), ("inside", inside), ("attached", attached))}
    assert (alone.returncode, inside.returncode, attached.returncode) == (7, 5, 4), said
    assert said["alone"][0].splitlines() == [f"begun {names['alone']}"] * 2 + [f"ended {names['alone']}"] * 2, said
    for k in ("inside", "attached"):
        assert said[k][0].splitlines() == [f"begun {names[k]}", f"ended {names[k]}"], said
    wait_until(lambda: not live(c), 30, f"not all have ended: {live(c)}")
    with open(f"{c.home}/{names['batch']}.out", encoding="utf-8") as f:
        assert f.read().splitlines() == [f"begun {names['batch']}", f"ended {names['batch']}", "step 0"]


def test_an_allocation_that_nobody_claims(cluster):
    """It keeps its lease: it ends by itself, with the reason."""
    c = cluster
    copy = take_copy(c)
    wait_until(c.nodes_up, 30, "the node does not come back")
    job = c.api.post("/v1/jobs", {"spec": {"name": "unclaimed", "launch": "steps", "lease_s": 15, "workdir": "/tmp"}})["id"]
    running(c, "unclaimed")
    put_back(c, copy)
    running(c, "unclaimed")
    wait_until(lambda: state(c, job) == "CANCELLED", 60, "the allocation stays")
    assert "client was not connected for 15 s" in c.api.get(f"/v1/jobs/{job}")["reason"]


def test_ports_stay_open(cluster):
    c = cluster
    copy = take_copy(c)
    wait_until(c.nodes_up, 30, "the node does not come back")
    job = service(c, "served", 8931)
    assert ask(c, job, 8931).returncode == 0
    put_back(c, copy)
    running(c, "served")
    assert c.api.get(f"/v1/jobs/{job}")["spec"]["ports"] == ["8931"]
    assert b"served" in ask(c, job, 8931).stdout
    c.cli("cancel", str(job))
