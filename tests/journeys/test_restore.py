"""The controller's state is put back to an older copy while jobs run: new jobs run, those that the copy does
not know are shown, keep what they hold, and end only when somebody ends them."""
import os
import shutil
import subprocess

import pytest

from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until

SPEC = {"workdir": "/tmp", "output": "/dev/null"}


def submit(c, seconds, name, **more):
    return c.api.post("/v1/jobs", {"spec": {**SPEC, "name": name, "argv": ["sleep", str(seconds)], **more}})["id"]


def state(c, job):
    return c.api.get(f"/v1/jobs/{job}")["state"]


def live(c):
    return c.api.get("/v1/jobs?elements=1&limit=1000")["jobs"]


@pytest.fixture
def cluster():
    with Cluster(config="[cluster]\ngrace = 1s\n[node *]\ncpus = 8\nmemory = 4G\n") as c:
        yield c


def stop(c):
    c.api.close()
    c.kill("controller", 15)


def take_copy(c):
    """The state of now, to be put back later; the controller goes on."""
    stop(c)
    copy = f"{c.home}/copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(f"{c.home}/state", copy, ignore=shutil.ignore_patterns("lock", "reserve"))
    c.start_controller()
    c.wait_ready()
    return copy


def put_back(c, copy):
    """kill -9, the older copy in place, and a new start."""
    c.kill_controller()
    shutil.rmtree(f"{c.home}/state")
    shutil.copytree(copy, f"{c.home}/state")
    c.start_controller()
    c.wait_ready()


@pytest.mark.parametrize("agent_too", [False, True])
def test_a_restore_of_an_older_copy(cluster, agent_too):
    c = cluster
    first = submit(c, 0, "first")
    c.cli("wait", str(first))
    copy = take_copy(c)
    wait_until(c.nodes_up, 30, "the node does not come back")
    runs = [submit(c, 600, f"runs{i}", cpus_per_task=2) for i in range(2)]
    over = submit(c, 0, "over")
    for job in runs:
        wait_until(lambda j=job: state(c, j) == "RUNNING", 30, "does not run")
    c.cli("wait", str(over))
    if agent_too:
        name = c.nodes_up()[0]
        c.kill_agent(name)
        c.start_agent(name)
    put_back(c, copy)
    # One at once, perhaps before the node could report what it runs; then four more.
    early = submit(c, 0, "early")
    wait_until(lambda: len([j for j in live(c) if j["name"].startswith("runs")]) == 2, 60, "jobs are not adopted")
    adopted = [j for j in live(c) if j["name"].startswith("runs")]
    assert {j["state"] for j in adopted} == {"RUNNING"}, adopted
    assert all("restored from an older copy" in j["reason"] for j in adopted), adopted
    assert sum(n["cpus_used"] for n in c.api.get("/v1/nodes")["nodes"]) >= 4
    new = [submit(c, 0, f"new{i}") for i in range(4)]
    for job in (early, *new):
        assert c.cli("wait", str(job), check=False, timeout=120).returncode == 0, c.api.get(f"/v1/jobs/{job}")
    assert min(new) > max(*runs, over), (new, runs, over)
    assert any("older copy" in w and "shown for 3 days" in w for w in c.api.get("/v1/status")["warnings"])
    # A plain restart keeps them, and they can be cancelled.
    c.kill_controller()
    c.start_controller()
    c.wait_ready()
    wait_until(c.nodes_up, 30, "the node does not come back")
    assert {j["id"] for j in live(c)} == {j["id"] for j in adopted}
    for job in adopted:
        c.cli("cancel", str(job["id"]))
        wait_until(lambda j=job["id"]: state(c, j) == "CANCELLED", 30, "is not cancelled")
    wait_until(lambda: not sum(n["cpus_used"] for n in c.api.get("/v1/nodes")["nodes"]), 30, "CPUs are held")
    assert not live(c)


def test_a_job_that_ended_meanwhile(cluster):
    """It ended after the copy, and its end could not be acknowledged: it is in the history with its exit."""
    c = cluster
    copy = take_copy(c)
    wait_until(c.nodes_up, 30, "the node does not come back")
    flag = f"{c.home}/go"
    job = c.api.post("/v1/jobs", {"spec": {**SPEC, "name": "ends", "argv": [
        "sh", "-c", f"while [ ! -e {flag} ]; do sleep 0.05; done; exit 7"]}})["id"]
    wait_until(lambda: state(c, job) == "RUNNING", 30, "does not run")
    c.kill_controller()
    open(flag, "w", encoding="utf-8").close()
    shutil.rmtree(f"{c.home}/state")
    shutil.copytree(copy, f"{c.home}/state")
    c.start_controller()
    c.wait_ready()

    def ended():
        found = [j for j in c.api.get("/v1/jobs?finished=1&limit=100")["jobs"] if j["name"] == "ends"]
        return found and found[0]["state"] == "FAILED"
    wait_until(ended, 60, "its end is not recorded")
    assert os.path.exists(f"{c.home}/state/acequia.db")


def test_the_first_job_of_an_agent_is_adopted(cluster):
    """Its launch waits until its user is looked up; what it was started from must be kept all the same."""
    c = cluster
    c.cli("wait", str(submit(c, 0, "first")))
    copy = take_copy(c)
    name = wait_until(c.nodes_up, 30, "the node does not come back")[0]
    c.kill_agent(name)
    c.start_agent(name)
    job = submit(c, 600, "runs")
    wait_until(lambda: state(c, job) == "RUNNING", 30, "does not run")
    c.kill_agent(name)
    c.start_agent(name)
    put_back(c, copy)
    wait_until(lambda: [j["state"] for j in live(c) if j["name"] == "runs"] == ["RUNNING"], 30, "it is not adopted")
    c.cli("cancel", *[str(j["id"]) for j in live(c)])


def elastic(c):
    return [j for j in c.api.get("/v1/jobs?limit=100")["jobs"] if j["name"] == "pool"]


def members(c, job):
    return {m["number"]: m["state"] for m in c.api.get(f"/v1/jobs/{job}")["members"]}


@pytest.mark.parametrize("known", [False, True], ids=["its submit is lost", "it waits in the copy"])
def test_an_elastic_job_goes_on_as_one(cluster, known):
    c = cluster
    go, spec = f"{c.home}/go", {"name": "pool", "workers_min": 2, "workers_max": 4, "cpus_per_task": 1}
    argv = ["sh", "-c", f"while [ ! -e {go} ]; do sleep 0.05; done; exit $ACEQUIA_WORKER"]
    c.cli("wait", str(submit(c, 0, "first")))
    submitted = {"spec": {**SPEC, **spec, "argv": argv, "on_worker_end": "continue", "hold": True}}
    job = c.api.post("/v1/jobs", submitted)["id"] if known else 0
    copy = take_copy(c)
    wait_until(c.nodes_up, 30, "the node does not come back")
    if not known:
        job = c.api.post("/v1/jobs", submitted)["id"]
    c.cli("release", str(job))
    wait_until(lambda: list(members(c, job).values()) == ["running"] * 4, 30, "the workers do not run")
    put_back(c, copy)
    wait_until(lambda: elastic(c) and list(members(c, elastic(c)[0]["id"]).values()) == ["running"] * 4, 60,
               f"it is not one job of four workers: {live(c)}")
    assert elastic(c)[0]["id"] == job
    assert [j["id"] for j in live(c) if j["name"] == "pool" and j["label"].count("+") == 0] in ([], [job])
    # It survives a plain restart, and ends as one job.
    c.kill_controller()
    c.start_controller()
    c.wait_ready()
    wait_until(c.nodes_up, 30, "the node does not come back")
    assert list(members(c, job).values()) == ["running"] * 4
    open(go, "w", encoding="utf-8").close()
    wait_until(lambda: state(c, job) == "FAILED", 60, "it does not end with its workers")
    assert [m["exit_code"] for m in c.api.get(f"/v1/jobs/{job}")["members"]] == [0, 1, 2, 3]


def lost_script_is_said(c, job):
    """By every command that shows the worker that waits."""
    said = {"why": c.cli("why", str(job)).stdout, "why worker": c.cli("why", f"{job}+2").stdout,
            "get": c.cli("get", f"{job}+2").stdout, "events": c.cli("events", str(job)).stdout}
    for name, line in {"squeue": ["-r", "-h", "-o", "%K %i %T %r %S"], "scontrol": ["show", "job", f"{job}+2"]}.items():
        said[name] = subprocess.run([f"{c.home}/bin/{name}", *line], env=c.env, check=True, text=True,
                                    stdout=subprocess.PIPE).stdout
    assert not [name for name, text in said.items() if "9999-" in text or "BeginTime" in text], said
    for name in ("why", "why worker"):
        assert "script or environment was lost" in " ".join(said[name].split()), said
    for name in ("squeue", "scontrol"):
        assert "ScriptLost" in said[name], said


def test_a_worker_whose_script_is_lost(cluster):
    """The job goes on with the workers it has; of the others everybody says why they do not start."""
    c = cluster
    c.cli("wait", str(submit(c, 0, "first")))
    copy = take_copy(c)
    wait_until(c.nodes_up, 30, "the node does not come back")
    script = f"{c.home}/pool.sh"
    with open(script, "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\nexec sleep 600\n")
    job = int(c.cli("submit", "--name", "pool", "--workers", "1-3", "--cpus", "4", "-o", "/dev/null", script).stdout.split()[2])
    wait_until(lambda: list(members(c, job).values()) == ["running", "running", "waiting"], 30, "two workers do not run")
    put_back(c, copy)
    wait_until(lambda: elastic(c) and list(members(c, job).values()) == ["running", "running", "waiting"], 60,
               "it is not adopted")
    subprocess.run([c.binary, "slurm-commands", f"{c.home}/bin"], env=c.env, check=True, stdout=subprocess.DEVNULL)
    lost_script_is_said(c, job)
    stop(c)  # it survives a restart
    c.start_controller()
    c.wait_ready()
    wait_until(c.nodes_up, 30, "the node does not come back")
    lost_script_is_said(c, job)
    c.cli("cancel", str(job))
