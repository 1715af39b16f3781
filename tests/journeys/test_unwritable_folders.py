"""Folders that are read-only or full: state, spool and output of attached jobs, under the controller, the agent and the
command line. Whoever cannot write names the folder, what is wrong with it and what to do; work goes on afterwards."""
import contextlib
import os
import subprocess

import pytest

from tests.journeys.test_bad_day import fill, spool_of
from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount file systems")
CONFIG = "[cluster]\ngrace = 1s\n[node *]\ncpus = 4\nmemory = 4000M\n"
READ_ONLY, FULL = ("Read-only file system", "make that file system writable"), ("No space left", "make room on that disk")


@pytest.fixture(name="c", scope="module")
def _cluster():
    with Cluster(config=CONFIG) as cluster:
        cluster.node = cluster.nodes_up()[0]
        yield cluster


@contextlib.contextmanager
def unwritable(folder, how, size="64k"):
    """A bind mount that is read-only, or a small file system that is full, in the folder's place."""
    if how == "read-only":
        subprocess.run(["mount", "--bind", folder, folder], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
    else:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=711", "tmpfs", folder], check=True)
        fill(folder)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def words(text):
    return " ".join(text.split())


def says(text, folder, expected):
    assert folder in text and all(part in words(text) for part in expected), text


def stop(c):
    c.api.close()
    c.cli("down")


def start(c):
    c.cli("up")
    wait_until(c.nodes_up, 60, "the node does not come")
    assert c.cli("run", "--", "echo", "again").stdout == "again\n"


@pytest.mark.parametrize("how, expected", [("read-only", READ_ONLY), ("full", ("full", "make room on that disk"))])
def test_the_state_folder_at_a_start(c, how, expected):
    state = f"{c.home}/state"
    stop(c)
    with unwritable(state, how):
        up = c.cli("up", check=False)
        assert up.returncode == 1
        says(up.stderr, state, expected)
        daemon = subprocess.run([c.binary, "controller"], env=c.env, capture_output=True, text=True, timeout=120, check=False)
        assert daemon.returncode == 1
        says(daemon.stderr, state, expected)
    start(c)


def test_the_run_folder_at_a_start(c):
    """No daemon is left that nobody could stop."""
    run = f"{c.home}/run"
    stop(c)
    with unwritable(run, "full"):
        up = c.cli("up", check=False)
        assert up.returncode == 1
        says(up.stderr, run, FULL)
        mine = f"ACEQUIA_HOME={c.home}\0".encode()
        left = [p for p in os.listdir("/proc") if p.isdigit() and mine in environment(p) and "acequiad" in command(p)]
        assert not left, [command(p) for p in left]
    start(c)


def environment(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as f:
            return f.read()
    except OSError:
        return b""


def command(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def connected(c):
    return c.api.get(f"/v1/nodes/{c.node}")["connected"]


def stop_agent(c):
    child = c.children.get(f"agent-{c.node}")
    if not child or child.poll() is None:
        c.kill_agent(c.node)
    wait_until(lambda: not connected(c), 60, "its end is not noticed")


def refused(c, job, folder, expected):
    """The job goes back to the queue, and everybody who looks is told of the folder."""
    wait_until(lambda: c.api.get(f"/v1/nodes/{c.node}").get("launch_failures"), 60, "the launch does not fail")
    says(c.api.get(f"/v1/nodes/{c.node}")["reason"], folder, expected)
    assert c.api.get(f"/v1/jobs/{job}")["state"] == "PENDING"
    says(c.log_tail(f"agent-{c.node}"), folder, expected)


@pytest.mark.parametrize("how, expected", [("read-only", READ_ONLY), ("full", FULL)])
@pytest.mark.parametrize("which", ["spool", "output"])
def test_folders_of_a_node(c, which, how, expected):
    folder = spool_of(c, c.node) if which == "spool" else f"{c.home}/agent-{c.node}/output"
    stop_agent(c)
    with unwritable(folder, how):
        c.start_agent(c.node)
        # One that cannot even start says so; it is not the controller's word then.
        wait_until(lambda: connected(c) or c.children[f"agent-{c.node}"].poll() is not None, 60, "the agent hangs")
        if c.children[f"agent-{c.node}"].poll() is not None:
            says(c.log_tail(f"agent-{c.node}", 3), folder, expected)
            job = None
        else:
            attached = subprocess.Popen([c.binary, "run", "--no-input", "--", "echo", "late"], env=c.env, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            wait_until(lambda: c.api.get("/v1/jobs")["jobs"], 60, "it is not submitted")
            job = c.api.get("/v1/jobs")["jobs"][0]["id"]
            refused(c, job, folder, expected)
        stop_agent(c)
    c.start_agent(c.node)
    wait_until(lambda: connected(c), 60, "the node does not come back")
    c.cli("resume", c.node, check=False)  # instead of waiting until it is tried again
    if job:
        out, err = attached.communicate(timeout=120)
        assert (attached.returncode, out) == (0, "late\n"), (out, err)
        says(err, folder, expected)
    assert c.cli("run", "--", "echo", "again").stdout == "again\n"


@pytest.mark.parametrize("how, expected", [("read-only", READ_ONLY), ("full", ("full", "make room on that disk"))])
def test_a_backup_to_such_a_folder(c, tmp_path, how, expected):
    with unwritable(tmp_path, how):
        done = c.cli("backup", f"{tmp_path}/b.acequia", check=False)
        assert done.returncode == 1
        says(done.stderr, str(tmp_path), expected)
        assert f"{c.home}/state" not in done.stderr
    assert not [f for f in os.listdir(tmp_path) if f.startswith("b.acequia")]


@pytest.mark.parametrize("how, expected", [("read-only", READ_ONLY), ("full", ("disk is full", FULL[1]))])
def test_a_restore_into_such_a_folder(c, tmp_path, how, expected):
    state, backup = f"{c.home}/state", f"{tmp_path}/b.acequia"
    c.cli("backup", backup)
    stop(c)
    with unwritable(state, how):
        done = c.cli("restore", backup, check=False)
        assert done.returncode == 1
        says(done.stderr, state, expected)
    start(c)


def test_a_restore_from_another_file_system(c, tmp_path):
    """As a backup is mostly kept."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", tmp_path], check=True)
    try:
        assert os.stat(tmp_path).st_dev != os.stat(f"{c.home}/state").st_dev
        c.cli("project", "create", "kept")
        c.cli("backup", f"{tmp_path}/b.acequia")
        stop(c)
        c.cli("restore", f"{tmp_path}/b.acequia")
        start(c)
        assert "kept" in c.cli("project", "list").stdout
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)
