"""What operators, cleaners and full tables do to a node: no descriptors left, files of the spool folder deleted. Jobs go
on, or are ended before they are started anew; nothing runs twice and nothing stays behind."""
import os
import re
import resource
import shutil
import subprocess
import time

import pytest

from tests.lab.cluster import Cluster
from tests.lab.proc import alive, wait_until

CONFIG = "[cluster]\ngrace = 1s\n[node *]\ncpus = 8\nmemory = 4000M\n"


def submit(c, *arguments):
    return c.cli("submit", "-Q", "-o", "/dev/null", *arguments).stdout.strip()


def record(c, job):
    return c.api.get(f"/v1/jobs/{job}")


def until(c, job, state):
    wait_until(lambda: record(c, job)["state"] == state, 60, lambda: f"job {job} is {record(c, job)['state']}, not {state}")


def started(c, note):
    """The process of a job that wrote its number there, once its shepherd listens as well."""
    wait_until(lambda: os.path.exists(note) and open(note, encoding="utf-8").read().strip(), 60, "the job does not start")
    with open(note, encoding="utf-8") as f:
        return int(f.read())


def spool_of(c, node):
    fds = f"/proc/{c.pid(f'agent-{node}')}/fd"
    names = (os.readlink(f"{fds}/{fd}") for fd in os.listdir(fds))
    return next(n for n in names if re.fullmatch("/(run|dev/shm)/acequia-[^/]*|.*/spool", n))


@pytest.fixture(name="c")
def _cluster():
    with Cluster(config=CONFIG) as cluster:
        yield cluster


def limit_files(pid, soft):
    hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


def test_an_agent_without_descriptors_loses_no_job(c, tmp_path):
    """It cannot look at its jobs: that says nothing about them."""
    node = c.nodes_up()[0]
    note, over = f"{tmp_path}/pid", f"{tmp_path}/over"
    job = submit(c, "--requeue", "--", "sh", "-c", f"echo $$ > {note}; until test -e {over}; do sleep 0.2; done; exit 3")
    pid = started(c, note)
    agent = c.pid(f"agent-{node}")
    before = resource.prlimit(agent, resource.RLIMIT_NOFILE)[0]
    taken = {int(fd) for fd in os.listdir(f"/proc/{agent}/fd")}
    limit_files(agent, next(n for n in range(len(taken) + 1) if n not in taken))
    other = submit(c, "--", "true")  # cannot be launched: the node's fault
    wait_until(lambda: c.api.get(f"/v1/nodes/{node}").get("launch_failures"), 60, "the node launches without descriptors")
    time.sleep(5)  # it looks at its jobs every 2 s
    assert record(c, job)["state"] == "RUNNING" and record(c, job)["attempt"] == 1, record(c, job)
    assert alive(pid)
    limit_files(agent, before)
    c.cli("resume", node)
    until(c, other, "COMPLETED")
    with open(over, "w", encoding="utf-8"):
        pass
    until(c, job, "FAILED")
    assert record(c, job)["attempt"] == 1 and record(c, job)["exit_code"] == 3


def test_jobs_keep_the_limit_of_open_files_that_the_agent_was_started_with():
    """The agent raises its own: streams of users need descriptors too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        with Cluster(config=CONFIG) as c:
            agent = c.pid(f"agent-{c.nodes_up()[0]}")
            assert c.cli("run", "--", "sh", "-c", "ulimit -Sn").stdout == "1024\n"
            assert resource.prlimit(agent, resource.RLIMIT_NOFILE)[0] > 1024
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_deleted_control_socket_is_made_again(c, tmp_path):
    """Without it the job could never be ended."""
    note = f"{tmp_path}/pid"
    job = submit(c, "--", "sh", "-c", f"echo $$ > {note}; exec sleep 3600")
    pid = started(c, note)
    control = f"{spool_of(c, c.nodes_up()[0])}/{job}.1/control"
    wait_until(lambda: os.path.exists(control), 60, "its shepherd does not listen")
    os.unlink(control)
    c.cli("cancel", job)
    until(c, job, "CANCELLED")
    assert not alive(pid)


def test_an_attempt_whose_record_is_deleted_is_ended_before_its_job_runs_again(c, tmp_path):
    note = f"{tmp_path}/pid"
    job = submit(c, "--requeue", "--", "sh", "-c", f"echo $$ > {note}.$ACEQUIA_ATTEMPT; exec sleep 3600")
    first = started(c, f"{note}.1")
    until(c, job, "RUNNING")
    time.sleep(3)  # the agent has seen it run
    shutil.rmtree(f"{spool_of(c, c.nodes_up()[0])}/{job}.1")
    second = started(c, f"{note}.2")
    assert not alive(first) and alive(second)
    c.cli("cancel", job)
    until(c, job, "CANCELLED")
    assert not alive(second)


def test_what_ran_from_a_deleted_spool_folder_ends(c, tmp_path):
    """Its agent was killed as well: nobody but the shepherd knows of it."""
    node, note = c.nodes_up()[0], f"{tmp_path}/pid"
    job = submit(c, "--requeue", "--", "sh", "-c", f"echo $$ > {note}.$ACEQUIA_ATTEMPT; exec sleep 3600")
    first = started(c, f"{note}.1")
    until(c, job, "RUNNING")
    spool = spool_of(c, node)
    c.kill_agent(node)
    shutil.rmtree(spool)
    c.start_agent(node)
    wait_until(lambda: not alive(first), 60, "it runs on without a record")
    second = started(c, f"{note}.2")
    c.cli("cancel", job)
    until(c, job, "CANCELLED")
    assert not alive(second)


def fill(folder):
    """To the last page."""
    with open(f"{folder}/filler", "wb", buffering=0) as f:
        try:
            while f.write(bytes(4096)):
                pass
        except OSError:
            pass


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
def test_daemons_start_while_the_run_folder_is_full(tmp_path):
    """An agent that could not be started would lose its jobs after node_timeout."""
    with Cluster(config=CONFIG) as c:
        c.api.close()
        node, run, note = c.nodes_up()[0], f"{c.home}/run", f"{tmp_path}/pid"
        job = submit(c, "--", "sh", "-c", f"echo $$ > {note}; exec sleep 3600")
        pid = started(c, note)
        until(c, job, "RUNNING")
        c.kill_agent(node)
        c.kill_controller()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=755", "tmpfs", run], check=True)
        try:
            fill(run)
            c.start_controller()
            c.wait_ready()
            c.start_agent(node)
            wait_until(c.nodes_up, 60, "the agent does not come")
            assert record(c, job)["state"] == "RUNNING" and record(c, job)["attempt"] == 1 and alive(pid)
            assert not os.path.exists(f"{run}/controller.pid") and c.children["controller"].poll() is None
            os.unlink(f"{run}/filler")
            wait_until(lambda: c.pid("controller") == c.children["controller"].pid and
                       os.path.exists(f"{run}/controller.pid"), 60, "the pid file is not written when there is room")
            c.cli("cancel", job)
            until(c, job, "CANCELLED")
        finally:
            c.kill_agent(node)
            c.kill_controller()
            subprocess.run(["umount", "-l", run], check=True)


def test_a_copy_of_a_node_does_not_take_its_place(tmp_path):
    """A disk that was copied, with its certificate: both agents would end each other's jobs, again and again."""
    with Cluster(config=CONFIG, agents=["n2"]) as c:
        wait_until(lambda: "n2" in c.nodes_up(), 60, "the node does not come")
        note, copy = f"{tmp_path}/pid", f"{c.home}/copy"
        job = submit(c, "-w", "n2", "--requeue", "--", "sh", "-c", f"echo $$ > {note}; exec sleep 3600")
        pid = started(c, note)
        until(c, job, "RUNNING")
        shutil.copytree(f"{c.home}/agent-n2", copy, ignore=shutil.ignore_patterns("run", "log"))
        c._daemon("copy", "agent", "--name", "n2", "--join", f"127.0.0.1:{c.port}", home=copy)
        wait_until(lambda: "two agents say that they are node n2" in " ".join(c.cli("status").stdout.split()), 60,
                   "the second agent is not noticed")
        assert record(c, job)["state"] == "RUNNING" and record(c, job)["attempt"] == 1 and alive(pid)
        with open(f"{copy}/log/copy.out", encoding="utf-8") as f:
            assert "another agent is connected as this node" in f.read()
        # Its own agent is not kept out. (The copy would take its place meanwhile: it goes first.)
        c.kill("copy")
        c.kill_agent("n2")
        c.start_agent("n2")
        wait_until(lambda: "n2" in c.nodes_up(), 60, "the node does not come back")
        assert record(c, job)["state"] == "RUNNING" and record(c, job)["attempt"] == 1 and alive(pid)
        c.cli("cancel", job)
        until(c, job, "CANCELLED")
