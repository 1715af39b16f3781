"""Snapshots are made by a process beside the controller, from what is committed, and lie in the database."""
import contextlib
import os
import signal
import sqlite3

import pytest

from tests.lab.cluster import Cluster
from tests.lab.proc import processes_naming, wait_until

ELEMENTS = 60000  # more events than lie between two snapshots


@pytest.fixture
def cluster():
    with Cluster(config="[cluster]\nmax_jobs_per_user = 100000\nmax_array_size = 100000\n") as c:
        yield c


def snapshots(c):
    with contextlib.closing(sqlite3.connect(f"file:{c.home}/state/acequia.db?mode=ro", uri=True)) as db:
        return [row[0] for row in db.execute("SELECT seq FROM snapshot ORDER BY seq")]


def makers(c):
    """Processes that make a snapshot of this cluster."""
    found = []
    for pid in processes_naming(f"{c.home}/state"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as f:
            if b"make-snapshot" in f.read():
                found.append(pid)
    return found


def array(c):
    spec = {"name": "large", "workdir": "/tmp", "output": "/dev/null", "hold": True, "argv": ["true"],
            "array": [{"first": 0, "last": ELEMENTS - 1, "step": 1}]}
    return c.api.post("/v1/jobs", {"spec": spec})["id"]


def update(c, job, nice):
    assert c.api.post("/v1/jobs/update", {"ids": [str(job)], "spec": {"nice": nice}})["done"] == ELEMENTS


def test_a_snapshot_is_made_beside_the_controller(cluster):
    job = array(cluster)
    update(cluster, job, 5)
    wait_until(lambda: snapshots(cluster), 60, "no snapshot was made")
    update(cluster, job, 6)
    wait_until(lambda: len(snapshots(cluster)) == 2, 60, "no second snapshot was made")
    cluster.kill_controller()
    assert not [f for f in os.listdir(f"{cluster.home}/state") if f.startswith("snapshot")]
    cluster.start_controller()
    cluster.wait_ready()
    assert cluster.active_jobs() == ELEMENTS
    assert cluster.api.get(f"/v1/jobs/{job}_7")["spec"]["nice"] == 6
    assert cluster.api.get(f"/v1/jobs/{job}_{ELEMENTS - 1}")["spec"]["nice"] == 6


def test_a_maker_that_is_killed(cluster):
    """The controller goes on, says so, and makes the next one; a maker does not outlive its controller."""
    job = array(cluster)
    update(cluster, job, 5)
    for pid in wait_until(lambda: makers(cluster), 60, "no snapshot is being made", 0.002):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: "makes snapshots failed (signal 9)" in cluster.log_tail("controller"), 30, "nothing is said")
    assert not snapshots(cluster)
    update(cluster, job, 6)
    wait_until(lambda: snapshots(cluster), 60, "no snapshot was made")
    update(cluster, job, 7)
    wait_until(lambda: makers(cluster), 60, "no snapshot is being made", 0.002)
    cluster.kill_controller()
    wait_until(lambda: not makers(cluster), 10, "it goes on without its controller")
    cluster.start_controller()
    cluster.wait_ready()
    assert cluster.api.get(f"/v1/jobs/{job}_7")["spec"]["nice"] == 7
