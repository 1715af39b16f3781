"""Preemption respects work: the checkpoint command runs in the job first, then signal and grace; the
job goes back to its place and is told how often it was started."""
import os

import pytest

from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until

CONFIG = """[cluster]
grace = 5s

[node *]
cpus = 8
gpus = V100:1:32G
gpus_simulated = true

[project owner]
quota = 1

[project guest]
quota = 0
weight = 1
"""


@pytest.fixture()
def cluster():
    with Cluster(config=CONFIG) as c:
        yield c


def submit(c, project, text, **spec):
    body = {"name": project, "project": project, "gpus_milli": 1000, "workdir": c.home, "output": "/dev/null", "argv": ["sh", "-c", text], **spec}
    return c.api.post("/v1/jobs", {"spec": body})["id"]


def test_work_is_saved_before_a_job_is_preempted(cluster):
    c = cluster
    work = "trap 'echo term >> order; exit 0' TERM; echo start $ACEQUIA_ATTEMPT >> order; while :; do sleep 0.05; done"
    guest = submit(c, "guest", work, checkpoint="echo saving $ACEQUIA_JOB_ID >> order; sleep 0.5; echo saved >> order")
    order = f"{c.home}/order"
    wait_until(lambda: os.path.exists(order), 10, "the job does not start")
    owner = submit(c, "owner", "sleep 1")
    wait_until(lambda: c.api.get(f"/v1/jobs/{owner}")["state"] == "COMPLETED", 30, "the owner does not get its GPU")
    wait_until(lambda: "start 2" in open(order, encoding="utf-8").read(), 15, "the job does not come back")
    assert open(order, encoding="utf-8").read().split("\n")[:5] == ["start 1", f"saving {guest}", "saved", "term", "start 2"]
    assert c.api.get(f"/v1/jobs/{guest}")["preempted"] == 1
    c.cli("cancel", str(guest))


def test_a_checkpoint_that_hangs_is_not_waited_for_longer_than_the_grace(cluster):
    c = cluster
    guest = submit(c, "guest", "sleep 600", checkpoint="sleep 600", grace_s=1)
    wait_until(lambda: c.api.get(f"/v1/jobs/{guest}")["state"] == "RUNNING", 10, "the job does not start")
    owner = submit(c, "owner", "sleep 1")
    wait_until(lambda: c.api.get(f"/v1/jobs/{owner}")["state"] == "COMPLETED", 20, "the owner does not get its GPU")
    c.cli("cancel", str(guest))


@pytest.mark.parametrize("daemon", ["agent", "controller"])
def test_a_checkpoint_runs_once_and_to_its_end_whatever_is_killed(cluster, daemon):
    """It belongs to the job's shepherd: neither a restarted agent nor a lost connection ends it or starts another."""
    c = cluster
    order = f"{c.home}/order"
    work = "echo start $ACEQUIA_ATTEMPT >> order; trap 'echo term >> order; exit 0' TERM; while :; do sleep 0.05; done"
    guest = submit(c, "guest", work, checkpoint="echo saving >> order; while ! test -e go; do sleep 0.05; done; echo saved >> order", grace_s=120)
    wait_until(lambda: os.path.exists(order), 20, "the job does not start")
    owner = submit(c, "owner", "sleep 1")
    wait_until(lambda: "saving" in open(order, encoding="utf-8").read(), 30, "the checkpoint command is not run")
    if daemon == "agent":
        c.kill(next(name[:-4] for name in os.listdir(f"{c.home}/run") if name.startswith("agent-") and name.endswith(".pid")))
    else:
        c.kill_controller()
    c.cli("up")
    wait_until(lambda: c.api.get(f"/v1/jobs/{guest}")["state"] == "COMPLETING", 30, "the job is not being ended")
    wait_until(c.nodes_up, 30, "the node is not back")
    with open(f"{c.home}/go", "w", encoding="utf-8"):
        pass
    wait_until(lambda: c.api.get(f"/v1/jobs/{owner}")["state"] == "COMPLETED", 60, "the owner does not get its GPU")
    assert open(order, encoding="utf-8").read().split("\n")[:4] == ["start 1", "saving", "saved", "term"]
    c.cli("cancel", str(guest))
