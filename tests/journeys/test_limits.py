"""Limits are real, nothing of a job survives it, and every way to fail ends in a clear state."""
import os
import pwd
import subprocess
import time

import pytest

from tests.lab.api import ApiError
from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until

CONFIG = "[cluster]\ngrace = 1s\n"
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture(scope="module")
def cluster():
    with Cluster(config=CONFIG) as c:
        yield c


def submit(c, argv, **spec):
    body = {"spec": {"name": "t", "workdir": "/tmp", "output": "/dev/null", "argv": argv, **spec}}
    return c.api.post("/v1/jobs", body)["id"]


def shell(c, text, **spec):
    return submit(c, ["sh", "-c", text], **spec)


def ended(c, job, seconds=150):
    for _ in range(seconds):
        record = c.api.get(f"/v1/jobs/{job}/wait?timeout_s=1")
        if record.get("end_ms"):
            return record
    raise AssertionError(f"job {job} does not end: {record}")


def processes_with(mark):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark.encode() in open(f"/proc/{pid}/cmdline", "rb").read() and int(pid) != os.getpid():
                found.append(int(pid))
        except OSError:
            pass
    return found


@root_only
def test_memory_limit_kills_and_says_so(cluster):
    job = submit(cluster, ["python3", "-c", "x = bytearray(400 << 20); print(len(x))"], memory_per_node_bytes=100 << 20)
    r = ended(cluster, job)
    assert r["state"] == "OUT_OF_MEMORY"
    assert 50 << 20 <= r["usage"]["memory_peak_bytes"] <= 110 << 20


@root_only
def test_a_job_out_of_memory_ends_as_a_whole(cluster):
    """Not only the process that asked for more: what is left of the job would wait for it."""
    job = shell(cluster, "sleep 0.3; python3 -c 'x = bytearray(400 << 20)' & sleep 60; exit 0", memory_per_node_bytes=100 << 20)
    r = ended(cluster, job)
    assert (r["state"], r["reason"]) == ("OUT_OF_MEMORY", "over the memory limit of 100M")
    assert r["end_ms"] - r["start_ms"] < 50000, "it waited for the process that sleeps"


def test_time_limit_terminates_then_kills(cluster):
    polite = shell(cluster, "trap 'exit 0' TERM; while :; do sleep 0.05; done", time_limit_s=1)
    stubborn = shell(cluster, "trap '' TERM; while :; do sleep 0.05; done", time_limit_s=1)
    assert ended(cluster, polite)["state"] == "TIMEOUT"
    assert ended(cluster, stubborn)["state"] == "TIMEOUT"


@root_only
@pytest.mark.parametrize("slurm, words", [(False, "acequia: job {} reached its time limit"), (True, "slurmstepd: error: *** JOB {} ON ")])
def test_the_output_tells_that_the_time_was_over(cluster, tmp_path, slurm, words):
    job = cluster.api.post("/v1/jobs", {"spec": {"name": "t", "workdir": "/tmp", "output": f"{tmp_path}/out", "argv": ["sleep", "60"],
                                                 "time_limit_s": 1, "slurm_words": slurm}})["id"]
    assert ended(cluster, job)["state"] == "TIMEOUT"
    text = open(f"{tmp_path}/out", encoding="utf-8").read()
    assert text.startswith(words.format(job)) and text.count("\n") == 1 and ("DUE TO TIME LIMIT" in text) == slurm


def test_nothing_survives_its_job(cluster):
    mark = f"survivor{os.getpid()}"
    text = (f"(setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 1; : {mark}; done' >/dev/null 2>&1 &) ;"
            f"setsid nohup sh -c 'while :; do sleep 1; : {mark}; done' >/dev/null 2>&1 & sleep 0.3; exit 0")
    job = shell(cluster, text)
    assert ended(cluster, job)["state"] == "COMPLETED"
    wait_until(lambda: not processes_with(mark), 5, "processes of the job survive it")


def test_cancel_kills_everything(cluster):
    mark = f"cancelled{os.getpid()}"
    job = shell(cluster, f"trap '' TERM; sh -c 'trap \"\" TERM; while :; do sleep 1; : {mark}; done' & wait; while :; do sleep 1; done")
    wait_until(lambda: processes_with(mark), 10, "the job does not start")
    cluster.cli("cancel", str(job))
    assert ended(cluster, job)["state"] == "CANCELLED"
    assert not processes_with(mark)


def test_cpus_are_bound(cluster):
    out = "/tmp/acequia-test-affinity-%j"
    job = submit(cluster, ["python3", "-c", "import os; print(len(os.sched_getaffinity(0)))"], output=out, cpus_per_task=1)
    ended(cluster, job)
    path = out.replace("%j", str(job))
    assert open(path, encoding="utf-8").read().strip() == "1"
    os.unlink(path)


@pytest.mark.parametrize("spec, script, state, words", [
    ({"argv": ["/no/such/program"]}, None, "FAILED", "/no/such/program"),
    ({"argv": ["/etc/passwd"]}, None, "FAILED", "/etc/passwd"),
    ({"argv": ["true"], "workdir": "/no/such/folder"}, None, "FAILED", "/no/such/folder"),
    ({"argv": ["true"], "output": "/no/such/folder/out"}, None, "FAILED", "/no/such/folder"),
    ({}, "#!/no/such/interpreter\n", "FAILED", "/no/such/interpreter"),
    ({"argv": ["false"]}, None, "FAILED", ""),
])
def test_failures_say_why(cluster, spec, script, state, words):
    body = {"spec": {"name": "t", "workdir": "/tmp", "output": "/dev/null", **spec}}
    if script:
        body["script"] = script
    r = ended(cluster, cluster.api.post("/v1/jobs", body)["id"])
    assert r["state"] == state
    assert words in (r.get("reason") or ""), r.get("reason")


def test_full_output_disk_hurts_only_the_job(cluster):
    job = shell(cluster, "cat /dev/zero | head -c 1000000", output="/dev/full")
    r = ended(cluster, job)
    assert r["state"] in ("COMPLETED", "FAILED")
    assert ended(cluster, shell(cluster, "exit 0"))["state"] == "COMPLETED"


@root_only
def test_unknown_user_on_the_node_is_a_clear_failure(cluster):
    """A uid without a name submits: no account, no job."""
    command = f"{cluster.binary} submit --output /dev/null -- true"
    done = subprocess.run(["setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups", "sh", "-c", command], env=cluster.env,
                          capture_output=True, text=True, check=False, cwd="/tmp")
    if done.returncode == 0:
        r = ended(cluster, int(done.stdout.split()[-1]))
        assert r["state"] == "FAILED" and "54321" in r["reason"]
    else:
        assert "54321" in done.stderr


@root_only
def test_jobs_run_as_their_user(cluster):
    nobody = pwd.getpwnam("nobody")
    folder = f"{cluster.home}/of-nobody"
    os.makedirs(folder)
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    done = subprocess.run(["setpriv", "--reuid", "nobody", "--regid", str(nobody.pw_gid), "--init-groups", cluster.binary, "run", "--", "sh", "-c",
                           "id -u; touch made; grep NoNewPrivs /proc/self/status | cut -f2; grep CapEff /proc/self/status | cut -f2"],
                          env=cluster.env, capture_output=True, text=True, check=False, cwd=folder, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split()
    assert int(lines[0]) == nobody.pw_uid
    assert int(lines[-1], 16) == 0, "a job has capabilities"
    assert os.stat(f"{folder}/made").st_uid == nobody.pw_uid


@root_only
def test_output_is_written_with_the_users_rights_only(cluster):
    nobody = pwd.getpwnam("nobody")
    target = f"{cluster.home}/of-root"
    open(target, "w", encoding="utf-8").close()
    os.chmod(target, 0o600)
    done = subprocess.run(["setpriv", "--reuid", "nobody", "--regid", str(nobody.pw_gid), "--init-groups", cluster.binary, "submit", "--output", target,
                           "--", "echo", "owned"], env=cluster.env, capture_output=True, text=True, check=False, cwd="/tmp")
    job = int(done.stdout.split()[-1])
    r = ended(cluster, job)
    assert r["state"] == "FAILED" and target in r["reason"]
    assert open(target, encoding="utf-8").read() == ""


def test_agent_and_controller_die_and_the_job_does_not_notice(cluster):
    node = cluster.nodes_up()[0]
    job = shell(cluster, "sleep 2; exit 7")
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 10, "the job does not start")
    cluster.kill_agent(node)
    cluster.kill_controller()
    cluster.start_controller()
    cluster.wait_ready()
    time.sleep(2)
    cluster.start_agent(node)
    r = ended(cluster, job)
    assert (r["state"], r["exit_code"], r["attempt"]) == ("FAILED", 7, 1)
    wait_until(lambda: cluster.nodes_up(), 10, "the node does not come back")


def test_time_limit_of_a_running_job_can_be_changed(cluster):
    job = shell(cluster, "sleep 30", time_limit_s=600)
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 10, "the job does not start")
    cluster.api.post("/v1/jobs/update", {"ids": [str(job)], "spec": {"time_limit_s": 1}})
    assert ended(cluster, job)["state"] == "TIMEOUT"


@root_only
def test_a_steps_memory_limit_costs_the_step(cluster, tmp_path):
    cluster.cli("slurm-commands", str(tmp_path))
    hog = "python3 -c 'x = bytearray({} << 20); print(len(x) >> 20)'"
    script = (f"#!/bin/sh\nPATH={tmp_path}:$PATH\nsrun -n1 --mem=60M {hog.format(150)}; echo over $?\n"
              f"srun -n1 --mem=100M {hog.format(40)}; echo inside $?\nsrun -n1 {hog.format(150)}; echo without $?\n")
    out = f"{tmp_path}/out"
    job = cluster.api.post("/v1/jobs", {"spec": {"name": "t", "workdir": "/tmp", "output": out, "memory_per_node_bytes": 400 << 20}, "script": script,
                                        "environment": ["PATH=/usr/bin:/bin", f"ACEQUIA_HOME={cluster.home}"]})["id"]
    r = ended(cluster, job, 60)
    text = open(out, encoding="utf-8").read()
    assert r["state"] == "COMPLETED", (r, text)
    assert "Out Of Memory (over the memory limit of 60M)" in text and "over 137" in text, text
    assert "inside 0" in text and "without 0" in text, text
    steps = {e["step"]: e["state"] for e in cluster.api.get(f"/v1/jobs/{job}/events")["events"] if e["type"] == "step_ended"}
    assert "OUT_OF_MEMORY" in steps.values() and list(steps.values()).count("COMPLETED") == 2, steps


def test_the_scripts_of_one_user_do_not_fill_the_controllers_disk():
    """What their waiting and running jobs keep there is limited; the same text counts once."""
    with Cluster(config="[cluster]\nmax_texts_per_user = 1M\n") as c:
        def send(letter, **spec):
            text = "#!/bin/sh\n# " + letter * 400000 + "\n"
            spec = {"name": "t", "workdir": "/tmp", "output": "/dev/null", "hold": True, **spec}
            return c.api.post("/v1/jobs", {"spec": spec, "script": text})["id"]

        first = send("a")
        send("b")
        send("a", array=[{"first": 0, "last": 99, "step": 1}])
        send("b")
        with pytest.raises(ApiError) as refused:
            send("c")
        assert refused.value.status == 429
        said = str(refused.value)
        assert "0.8 MiB" in said and "at most 1.0 MiB are allowed (max_texts_per_user)" in said and "array" in said
        c.kill_controller()
        c.start_controller()
        c.wait_ready()
        with pytest.raises(ApiError):
            send("c")
        c.api.post("/v1/jobs/cancel", {"all": True})
        send("c")
        assert len(c.api.raw("GET", f"/v1/jobs/{first}/script")[1]) > 400000  # kept as long as the history


def spools(c):
    """Folders that the agents hold open on a memory file system."""
    found = set()
    for f in [f for f in os.listdir(f"{c.home}/run") if f.startswith("agent") and f.endswith(".pid")]:
        pid = int(open(f"{c.home}/run/{f}", encoding="utf-8").read())
        links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        found |= {t for t in links if t.startswith(("/dev/shm/acequia-", "/run/acequia-")) and "/hints" not in t}
    return found


@root_only
def test_an_agent_that_stops_leaves_no_empty_folder_behind():
    with Cluster(config=CONFIG) as c:
        places = spools(c)
        ended(c, shell(c, "exit 0"))
        job = shell(c, "sleep 60")
        wait_until(lambda: c.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 10, "it does not start")
        c.cli("down")
        assert all(os.path.isdir(p) for p in places)  # a job runs there
        c.cli("up")
        c.wait_ready()
        wait_until(c.nodes_up, 10, "the node does not come back")
        assert spools(c) == places and c.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING"
        c.api.post("/v1/jobs/cancel", {"ids": [str(job)]})
        ended(c, job)
        time.sleep(0.3)  # the end is acknowledged
        c.cli("down")
        assert not any(os.path.exists(p) for p in places)
        c.cli("up")
        c.wait_ready()
