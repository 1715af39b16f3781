"""acequia notify: the ends of jobs on the desktop or in the terminal."""
import os
import pty
import select
import subprocess
import time

import pytest

from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until


@pytest.fixture(scope="module", name="cluster")
def _cluster():
    with Cluster(config="[node *]\ncpus = 8\n") as c:
        yield c


def submit(cluster, *words, name="job", options=()):
    return cluster.cli("submit", "-Q", "-o", "/dev/null", "-J", name, *options, "--", *words).stdout.strip()


def test_named_jobs_and_their_status(cluster):
    good, bad = submit(cluster, "sleep", "0.2", name="good"), submit(cluster, "sh", "-c", "exit 7", name="bad")
    done = cluster.cli("notify", "--how", "none", "--every", "1", good, bad, check=False)
    assert done.returncode == 7, done
    assert f"Job {good} good: COMPLETED" in done.stdout and f"Job {bad} bad: FAILED" in done.stdout and "exit code 7" in done.stdout
    done = cluster.cli("notify", "--how", "none", "--failed", good, bad, check=False)  # those that have ended, too
    assert "good" not in done.stdout and "bad" in done.stdout
    array = submit(cluster, "true", name="many", options=("--array", "0-19"))
    done = cluster.cli("notify", "--how", "none", "--every", "1", array)
    assert done.stdout.count("\n") == 1 and "many" in done.stdout  # an array counts as one
    assert cluster.cli("notify", "--how", "smoke", check=False).returncode == 2


def test_on_the_desktop(cluster, tmp_path):
    """notify-send gets title and text as arguments, with nothing that a shell or its markup would read."""
    tool = tmp_path / "notify-send"
    tool.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" >> {tmp_path}/told\n")
    tool.chmod(0o755)
    job = submit(cluster, "true", name="$(touch x) <b>&")
    env = dict(cluster.env, DISPLAY=":9", PATH=f"{tmp_path}:{cluster.env['PATH']}")
    subprocess.run([cluster.binary, "notify", "--every", "1", job], env=env, check=True, timeout=60, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True)
    told = (tmp_path / "told").read_text()
    assert f"Job {job} $(touch x)" in told and "COMPLETED" in told and not (tmp_path / "x").exists()


def test_all_of_mine_in_a_terminal(cluster):
    submit(cluster, "true", name="before")
    cluster.wait_empty(60)
    ours, theirs = pty.openpty()
    with subprocess.Popen([cluster.binary, "notify", "--how", "terminal", "--every", "1"], env=cluster.env, stdin=theirs, stdout=theirs, stderr=theirs) as p:
        os.close(theirs)
        text = b""

        def read():
            nonlocal text
            while select.select([ours], [], [], 0.1)[0]:
                text += os.read(ours, 4096)
            return text

        wait_until(lambda: b"waiting for the ends" in read(), 60, "it does not begin")
        time.sleep(0.2)
        one = submit(cluster, "true", name="after")
        wait_until(lambda: f"\033]9;Job {one} after: COMPLETED".encode() in read(), 60, "it is not told")
        cluster.kill_controller()
        cluster.start_controller()
        cluster.wait_ready()
        two = submit(cluster, "false", name="later")
        wait_until(lambda: f"Job {two} later: FAILED".encode() in read(), 60, "it does not go on after a restart")
        assert b"before" not in text and text.count(f"]9;Job {one} ".encode()) == 1
        p.terminate()
        p.wait(10)
    os.close(ours)


def test_a_job_that_never_was_is_not_waited_for(cluster):
    r = cluster.cli("notify", "999999", check=False)
    assert r.returncode == 1 and "there is no job 999999" in r.stderr, r
