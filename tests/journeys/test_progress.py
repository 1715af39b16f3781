"""How far a job says it has come: read from its output, or said with `acequia progress`."""
import os
import subprocess

import pytest

from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until


@pytest.fixture(scope="module")
def cluster():
    with Cluster(config="[cluster]\nusage_interval = 1s\n") as c:
        yield c


def submit(c, text):
    out = c.cli("submit", "-o", f"{c.home}/out.%j", "-D", c.home, "--", "sh", "-c", text).stdout
    return int(out.split()[2].rstrip(","))


def live(c, job):
    return c.api.get(f"/v1/jobs/{job}")["live"] or {}


def wait_progress(c, job, milli):
    wait_until(lambda: live(c, job).get("progress_milli") == milli, 60, f"job {job} is not at {milli}: {live(c, job)}")


def test_output_is_understood(cluster):
    job = submit(cluster, "echo loading; echo epoch 2/8; exec sleep 300")
    wait_progress(cluster, job, 250)
    assert live(cluster, job)["progress_text"] == "epoch 2/8"
    assert live(cluster, job)["left_ms"] > 0
    assert "RUNNING 25 %" in cluster.cli("list").stdout
    assert "Progress" in cluster.cli("get", str(job)).stdout
    line = cluster.cli("list", "-o", "id,progress").stdout
    assert "[##        ] 25 %, " in line and " left" in line
    cluster.cli("cancel", str(job))


def test_a_bar_on_standard_error_that_moves(cluster):
    job = submit(cluster, r"printf '\r 10%%|#   | 1/10' >&2; while [ ! -e go ]; do sleep 0.2; done; "
                          r"printf '\r 90%%|### | 9/10' >&2; exec sleep 300")
    wait_progress(cluster, job, 100)
    open(os.path.join(cluster.home, "go"), "w", encoding="utf-8").close()
    wait_progress(cluster, job, 900)
    cluster.cli("cancel", str(job))


def test_the_jobs_own_word_counts_more_and_its_file_is_removed(cluster):
    job = submit(cluster, "echo 10%; echo $ACEQUIA_PROGRESS_FILE >named; acequia progress 3/4 'third fold'; exec sleep 300")
    wait_progress(cluster, job, 750)
    assert live(cluster, job)["progress_text"] == "third fold"
    with open(os.path.join(cluster.home, "named"), encoding="utf-8") as f:
        path = f.read().strip()
    assert path.startswith(f"/tmp/acequia-progress-{job}.1-")  # more follows: another cluster may have a job {job}
    assert os.path.exists(path)
    cluster.cli("cancel", str(job))
    wait_until(lambda: not os.path.exists(path), 60, "the progress file is still there")


def test_a_job_that_says_nothing_has_none(cluster):
    job = submit(cluster, "echo accuracy 92%; exec sleep 300")
    other = submit(cluster, "echo 50%; exec sleep 300")
    wait_progress(cluster, other, 500)
    assert live(cluster, job).get("progress_milli") is None
    cluster.cli("cancel", str(job), str(other))


def test_outside_a_job_and_nonsense(cluster):
    assert "is not a progress value" in cluster.cli("progress", "soon", check=False).stderr
    assert "not inside a job" in cluster.cli("progress", "50%", check=False).stderr


def test_reading_it_does_not_keep_a_jobs_input_open(cluster):
    child = subprocess.Popen([cluster.binary, "run", "-J", "fed", "--", "sh", "-c", "acequia progress 50%; exec cat"],
                             env=cluster.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    found = []

    def reads():
        found[:] = [j["id"] for j in cluster.api.get("/v1/jobs?name=fed")["jobs"]]
        return found and live(cluster, found[0]).get("progress_milli") == 500
    wait_until(reads, 60, "its progress is not read")
    out, _ = child.communicate(b"hello\n", timeout=60)  # ends only if cat sees the end of its input
    assert out == b"hello\n" and child.returncode == 0
