"""The HTTP API as its clients see it: zero and false are values, answers have the same fields every time."""
import os
import subprocess

import pytest

from tests.lab.command import ACEQUIA, Cluster


@pytest.fixture(scope="module")
def cluster():
    c = Cluster("[node *]\ncpus = 16\nmemory = 8G\ngpus = a100:4\ngpus_simulated = true\n")
    yield c
    c.close()


def held(cluster, *options):
    """The id of a job that waits until it is released."""
    return cluster.submit("--hold", *options, "--", "sleep", "60")


def spec(cluster, job):
    """What the job asks for now."""
    return cluster.json("get", job)["spec"]


def test_policy_settings_can_be_zero_and_false(cluster):
    cluster.acequia("policy", "set", "reclaim=true", "min_run=10m")
    assert cluster.json("policy")["reclaim"] is True and cluster.json("policy")["min_run_s"] == 600
    before = cluster.json("policy")
    cluster.acequia("policy", "set", "reclaim=false", "min_run=0s")
    assert cluster.json("policy") == {**before, "reclaim": False, "min_run_s": 0}
    cluster.acequia("policy", "set", "reclaim=true")
    assert cluster.json("policy") == {**before, "min_run_s": 0}


def test_update_can_set_a_zero(cluster):
    job = held(cluster, "--nice", "10", "--gpus", "2", "--memory", "64M", "--time", "1h")
    usual = spec(cluster, held(cluster))
    cluster.acequia("update", job, "--nice", "0")
    assert spec(cluster, job)["nice"] == 0
    cluster.acequia("update", job, "--gpus", "0")
    assert spec(cluster, job)["gpus_milli"] == 0 and spec(cluster, job)["time_limit_s"] == 3600
    cluster.acequia("update", job, "--memory", "0")  # back to what a job gets that does not ask
    for field in ("memory_per_node_bytes", "memory_per_cpu_bytes", "memory_per_gpu_bytes"):
        assert spec(cluster, job)[field] == usual[field]
    cluster.acequia("update", job, "--time", "unlimited")
    assert spec(cluster, job)["time_limit_s"] > 86400 * 365
    refused = cluster.run("update", job, "--time", "0")
    assert refused.returncode == 2 and "give more than 0, or unlimited" in refused.stderr


def test_amounts_that_exclude_each_other_replace_each_other(cluster):
    job = held(cluster, "--gpus", "2", "--memory-per-cpu", "64M")
    cluster.acequia("update", job, "--gpus-per-node", "1", "--memory", "128M")
    now = spec(cluster, job)
    assert (now["gpus_milli"], now["gpus_per_node_milli"]) == (0, 1000)
    assert (now["memory_per_cpu_bytes"], now["memory_per_node_bytes"]) == (0, 128 << 20)


def test_slurm_words_can_set_a_zero(cluster):
    job = held(cluster, "--nice", "10", "--gpus-per-node", "2")
    scontrol = os.path.join(cluster.home, "scontrol")
    os.symlink(ACEQUIA, scontrol)
    subprocess.run([scontrol, "update", f"JobId={job}", "Nice=0", "Gres=gpu:0"], env=cluster.env, check=True)
    assert spec(cluster, job)["nice"] == 0 and spec(cluster, job)["gpus_per_node_milli"] == 0


def test_a_dependency_can_be_removed(cluster):
    first = held(cluster)
    job = held(cluster, "--dependency", f"afterok:{first}")
    cluster.acequia("update", job, "--dependency", "none")
    assert not spec(cluster, job)["dependency"]


def test_success_has_an_exit_code(cluster):
    job = cluster.submit("--", "true")
    cluster.run("wait", job)
    record = cluster.json("get", job)
    assert record["exit_code"] == 0 and record["exit_signal"] == 0 and record["state"] == "COMPLETED"
    waiting = cluster.json("get", held(cluster))
    assert set(waiting) - {"order"} == set(record) - {"order"}
