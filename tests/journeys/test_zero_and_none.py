"""Zero is a limit of nothing; none and unlimited take a limit away: in the file, on the command line, in the API."""
import os

import pytest

from tests.lab.command import Cluster


@pytest.fixture(scope="module")
def cluster():
    c = Cluster(config="[qos filed]\nmax_jobs_per_user = 0\nmax_time = unlimited\nmax_gpus_per_user = none\n"
                       "[project rest]\nlimit = 0\n")
    yield c
    c.close()


def shown(c, kind, name):
    return dict(l.split(" = ") for l in c.acequia(kind, "show", name).splitlines()[1:])


def test_zero_jobs_wait(cluster):
    cluster.acequia("qos", "create", "none", "--max-jobs-per-user", "0")
    assert shown(cluster, "qos", "none")["max_jobs_per_user"] == "0"
    assert cluster.json("qos", "show", "none")["max_jobs_per_user"] == 0
    assert cluster.json("qos", "show", "none")["max_wall_s"] is None
    assert "|0|" in cluster.acequia("slurm", "sacctmgr", "-nP", "show", "qos", "none", "format=name,maxjobspu,maxwall")
    job = cluster.submit("-q", "none", "--", "true")
    assert "none" in cluster.acequia("why", job) and cluster.job(job)["state"] == "PENDING"
    cluster.acequia("qos", "edit", "none", "--max-jobs-per-user", "unlimited")
    assert "max_jobs_per_user" not in shown(cluster, "qos", "none")
    assert cluster.json("qos", "show", "none")["max_jobs_per_user"] is None
    cluster.wait_state(job, "COMPLETED")


def test_zero_gpus_and_zero_time(cluster):
    cluster.acequia("qos", "create", "cpuonly", "--max-gpus-per-user", "0")
    r = cluster.run("submit", "-q", "cpuonly", "-g", "1", "--", "true")
    assert r.returncode == 1 and "--gpus: 1 exceed QoS cpuonly's limit of 0" in r.stderr, r
    assert cluster.run("run", "-q", "cpuonly", "--", "true").returncode == 0
    cluster.acequia("partition", "create", "shut", "--max-time", "0")
    r = cluster.run("submit", "-p", "shut", "--", "true")
    assert r.returncode == 1 and "--partition: shut allows no jobs (its max_time is 0)" in r.stderr, r
    assert "MaxTime=00:00:00" in cluster.acequia("slurm", "scontrol", "show", "partition", "shut")
    cluster.acequia("slurm", "scontrol", "update", "partitionname=shut", "maxtime=UNLIMITED")
    assert cluster.json("partition", "show", "shut")["max_time_s"] is None
    assert "MaxTime=UNLIMITED" in cluster.acequia("slurm", "scontrol", "show", "partition", "shut")
    cluster.acequia("slurm", "scontrol", "update", "partitionname=shut", "maxtime=0")
    assert cluster.json("partition", "show", "shut")["max_time_s"] == 0
    cluster.acequia("partition", "edit", "shut", "--max-time", "none")
    assert cluster.run("run", "-p", "shut", "--", "true").returncode == 0


def test_limits_and_quotas_of_projects_are_removed(cluster):
    cluster.acequia("project", "create", "team", "--limit", "0", "--weight", "0")
    assert shown(cluster, "project", "team") == {"quota": "0", "weight": "0", "limit": "0"}
    cluster.acequia("project", "edit", "team", "--limit", "none", "--weight", "unlimited", "--quota", "rest")
    assert shown(cluster, "project", "team") == {"quota": "rest"}
    cluster.acequia("project", "edit", "team", "--quota", "none", "--interactive-time", "0")
    assert shown(cluster, "project", "team") == {"quota": "0", "interactive_time": "0s"}
    r = cluster.run("run", "--interactive", "-P", "team", "--", "true")
    assert "team allows no interactive jobs" in r.stderr
    cluster.acequia("project", "edit", "team", "--interactive-time", "none")
    assert shown(cluster, "project", "team") == {"quota": "0"}


def test_the_file_says_the_same(cluster):
    q = cluster.json("qos", "show", "filed")
    assert (q["max_jobs_per_user"], q["max_wall_s"], q["max_gpus_per_user_milli"]) == (0, None, None)
    assert cluster.json("project", "show", "rest")["limit_milligpu"] == 0
    # What the file says is set once, not at every reading.
    with open(os.path.join(cluster.home, "log", "controller.log"), encoding="utf-8") as log:
        cluster.acequia("reload")
        assert log.read().count('"filed" set from the configuration') == 1


def test_words_that_are_no_limit_are_refused(cluster):
    r = cluster.run("qos", "create", "wrong", "--max-jobs-per-user", "many")
    assert r.returncode == 2 and '--max-jobs-per-user: "many" is not understood; expected a number, or none' in r.stderr
    r = cluster.run("partition", "create", "wrong", "--default-time", "0")
    assert r.returncode == 1 and "--default-time: 0 would end every job at once" in r.stderr
