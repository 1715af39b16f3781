"""Jobs with several kinds of workers, with real daemons: they start together, each kind has its own shape and command,
the job ends with its head, one kind is resized, and all of it survives kills of controller and agent."""
import json
import os

import pytest

from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until

CONFIG = """[cluster]
grace = 5s
[node *]
cpus = 8
gpus = V100:4:32G
gpus_simulated = true
"""
HEAD = "--component", "head: -c 2 -m 100M"
TRAIN = "--component", "train: --workers 2-3 -g 1 -m 50M"
WORK = 'echo "$ACEQUIA_COMPONENT $ACEQUIA_WORKER $ACEQUIA_CPUS_ON_NODE $ACEQUIA_GPUS_ON_NODE" >> started; exec sleep 600'


@pytest.fixture()
def cluster():
    with Cluster(config=CONFIG) as c:
        yield c


def submit(c, *options, text=WORK):
    out = c.cli("submit", "-o", f"{c.home}/out.%a", "-D", c.home, *options, "--", "sh", "-c", text).stdout
    return int(out.split()[2].rstrip(","))


def job(c, name):
    return c.api.get(f"/v1/jobs/{name}")


def running(c, number):
    return [m["component"] for m in job(c, number)["members"] if m["state"] == "running" and not m["ended"]]


def wait_running(c, number, wanted, seconds=60):
    wait_until(lambda: running(c, number) == wanted, seconds, f"job {number} does not run {wanted}")


def lines(path):
    return open(path, encoding="utf-8").read().splitlines() if os.path.exists(path) else []


def test_kinds_of_workers_start_together_and_end_with_the_head(cluster):
    c = cluster
    number = submit(c, *HEAD, *TRAIN)
    wait_running(c, number, ["head", "train", "train", "train"])
    wait_until(lambda: len(lines(f"{c.home}/started")) == 4, 60, "not all have started")
    assert sorted(lines(f"{c.home}/started")) == ["head 0 2 ", "train 1 1 1", "train 2 1 1", "train 3 1 1"]

    def members():
        text = c.cli("exec", f"{number}+0", "--", "sh", "-c", "cat $ACEQUIA_WORKERS_FILE").stdout
        return [json.loads(line) for line in text.splitlines()]
    wait_until(lambda: [m["state"] for m in members()] == ["running"] * 4, 60, "the membership does not reach the head")
    assert [m["component"] for m in members()] == ["head", "train", "train", "train"]
    assert [len(m["gpus"]) for m in members()] == [0, 1, 1, 1]
    shown = c.cli("get", str(number)).stdout
    assert "+0 head running" in shown and "+3 train running" in shown and "optional" in shown
    # one kind is made smaller and larger; the other stays
    refused = c.cli("resize", str(number), "1", check=False)
    assert refused.returncode and "2 components" in refused.stderr
    c.cli("resize", str(number), "train=1")
    wait_running(c, number, ["head", "train"])
    c.cli("resize", str(number), "train=1-4")
    wait_running(c, number, ["head", "train", "train", "train", "train"])
    # whoever is killed, they go on
    agent = next(x[:-4] for x in os.listdir(f"{c.home}/run") if x.startswith("agent-") and x.endswith(".pid"))
    c.kill_controller()
    c.kill(agent)
    c.cli("up")
    wait_running(c, number, ["head", "train", "train", "train", "train"])
    assert len(lines(f"{c.home}/started")) == 7  # nobody was started twice
    # the head ends: the job has its status, and the others are ended
    c.cli("cancel", "--signal", "KILL", f"{number}+0")
    wait_until(lambda: job(c, number)["end_ms"], 60, "the job does not end with its head")
    assert job(c, number)["state"] == "CANCELLED"


def test_a_command_of_its_own_and_the_heads_status(cluster):
    c = cluster
    number = submit(c, "--component", "head: -- sh -c 'sleep 1; exit 7'", "--component", "helper: --workers 2")
    wait_until(lambda: job(c, number)["end_ms"], 60, "the job does not end")
    assert job(c, number)["state"] == "FAILED"
    assert job(c, number)["exit_code"] == 7
    assert sorted(x.split()[0] for x in lines(f"{c.home}/started")) == ["helper", "helper"]


def test_half_a_gang_never_starts(cluster):
    c = cluster
    other = submit(c, "-g", "3", text="exec sleep 600")
    number = submit(c, "--component", "head: -c 1", "--component", "train: --workers 2 -g 1")
    wait_until(lambda: job(c, other)["state"] == "RUNNING", 60, "the first job does not start")
    assert job(c, number)["state"] == "PENDING"
    assert not [m for m in job(c, number)["members"] if m["attempt"]]
    c.cli("cancel", str(other))
    wait_running(c, number, ["head", "train", "train"])


def test_a_trace_and_why_know_workers(cluster):
    c = cluster
    other = submit(c, "-g", "2", "-t", "1h", text="exec sleep 600")
    wait_until(lambda: job(c, other)["state"] == "RUNNING", 60, "the first job does not start")
    number = submit(c, "--workers", "1-3", "-g", "1", "-c", "2", "-m", "64M", "-t", "2h")
    wait_running(c, number, ["worker", "worker"])
    assert "It will have 3 workers in" in c.cli("why", str(number)).stdout
    c.cli("cancel", str(number))
    wait_until(lambda: job(c, number)["end_ms"], 60, "the job does not end")
    head, *rows = [x.split(",") for x in c.cli("trace").stdout.splitlines()]
    assert len(rows) == 1  # its workers are not counted again
    row = dict(zip(head, rows[0]))
    assert (row["tasks"], row["workers_max"], row["cpus_per_task"]) == ("1", "3", "2")
    assert (row["memory_mib"], row["gpu_milli"]) == ("64", "1000")


@pytest.mark.parametrize("options, message", [
    (("--component", "head: -t 5"), "--time applies to the whole job"),
    (("--component", ": -c 1"), "expected NAME: OPTIONS"),
    (("--component", "a: -c 1", "--component", "a: -c 1"), "two with the name"),
    (("--component", "a: -c 1", "-c", "2"), "a job with components has no resources of its own"),
    (("--component", "a: --workers 1-2 -n 2"), "fixed number"),
    (("--component", "a: -c 1", "--workers", "2"), "give it to a component"),
])
def test_what_is_refused(cluster, options, message):
    done = cluster.cli("submit", *options, "--", "true", check=False)
    assert done.returncode and message in done.stderr
