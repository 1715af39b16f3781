"""What people meet in their first week: a controller that is away, limits that are none, sorting, and the like."""
import os
import time

import pytest

from tests.lab.command import Cluster


@pytest.fixture(scope="module")
def cluster():
    c = Cluster()
    yield c
    c.close()


def kill_controller(c):
    with open(os.path.join(c.home, "run", "controller.pid"), encoding="utf-8") as f:
        os.kill(int(f.read()), 9)


def test_commands_wait_for_a_controller_that_is_away():
    c = Cluster()
    try:
        job = c.submit("--hold", "--", "true")
        kill_controller(c)
        verbs = [("list",), ("slurm", "squeue"), ("slurm", "sacct"), ("slurm", "sprio"), ("slurm", "sstat", "-j", job),
                 ("slurm", "scontrol", "show", "job", job)]
        began = time.monotonic()
        waiting = [(v, c.start(*v, stdout=-1, stderr=-1, text=True)) for v in verbs]
        for verb, process in waiting:
            _, err = process.communicate(timeout=60)
            assert process.returncode == 1 and "does not answer" in err, (verb, process.returncode, err)
            assert verb[0] == "list" or "Unable to contact slurm controller" in err
        assert time.monotonic() - began > 3  # they have tried for some seconds
        late = c.start("list", stdout=-1, stderr=-1, text=True)
        c.acequia("up")
        out, err = late.communicate(timeout=60)
        assert late.returncode == 0 and job in out, err
    finally:
        c.close()


def test_a_time_limit_can_be_none(cluster):
    job = cluster.submit("--hold", "-t", "unlimited", "--", "true")
    assert "unlimited" in cluster.acequia("list", job) and "unlimited" in cluster.acequia("get", job)
    cluster.acequia("update", job, "--time", "5m")
    assert cluster.job(job)["spec"]["time_limit_s"] == 300
    cluster.acequia("update", job, "--time", "unlimited")
    assert "unlimited" in cluster.acequia("list", job)
    assert "UNLIMITED" in cluster.acequia("slurm", "squeue", "-o", "%l", "-j", job)
    cluster.acequia("cancel", job)


def test_lists_sort_ids_as_numbers(cluster):
    jobs = [cluster.submit("--hold", "--", "true") for _ in range(12)]
    shown = cluster.acequia("list", "-H", "-o", "id", "--sort", "id", *jobs).split()
    assert shown == sorted(jobs, key=int) and len(str(jobs[0])) < len(str(jobs[-1]))
    assert cluster.acequia("list", "-H", "-o", "id", "--sort", "-id", *jobs).split() == shown[::-1]
    cluster.acequia("cancel", *jobs)


def test_a_job_named_twice_is_counted_once(cluster):
    job = cluster.submit("--hold", "--", "true")
    assert cluster.acequia("cancel", job, job) == "1 job cancelled\n"


def test_a_high_priority_is_not_a_low_one(cluster):
    blocker = cluster.submit("--exclusive", "--", "sleep", "600")
    cluster.wait_state(blocker, "RUNNING")
    low, high = (cluster.submit("--", "true") for _ in range(2))
    cluster.acequia("slurm", "scontrol", "update", f"jobid={high}", "priority=4000000000")
    cluster.acequia("slurm", "scontrol", "update", f"jobid={low}", "priority=1000")
    assert cluster.job(high)["order"]["priority"] > cluster.job(low)["order"]["priority"] > 0
    assert "4000000000" in cluster.acequia("list", "-o", "id,priority", high)
    cluster.acequia("cancel", low, high, blocker)
