"""kill -9 of the programs that daemons start for a while: the maker of snapshots, backups, checks of passwords, users' files,
the mailer, look-ups of users. Each is noticed and started again or its failure is said; the daemons go on."""
import os
import signal
import subprocess
import time

import pytest

from tests.lab.cluster import Cluster
from tests.lab.helpers import Killer, children, command_of, covers, helpers_in_sources, helpers_in_tests, name_of
from tests.lab.proc import alive, wait_until


class Hunter(Killer):
    """Kills every new child of a daemon as soon as it is seen; notes what each was called."""

    def __init__(self, pid, spared=()):
        super().__init__(pid, "")
        self.spared = set(spared)

    def _hunt(self):
        while not self.over.is_set():
            for pid in children(self.pid):
                if pid not in self.spared:
                    name = command_of(pid)
                    try:
                        os.kill(pid, signal.SIGKILL)
                        self.killed.append(name)
                    except ProcessLookupError:
                        pass
            time.sleep(0.001)


@pytest.fixture(name="c", scope="module")
def _cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("backups")
    with Cluster(config=f"[cluster]\ngrace = 1s\n[backup]\nfolder = {folder}\n[node *]\ncpus = 8\n") as c:
        c.node = c.nodes_up()[0]
        c.backups = folder
        yield c


def works(c):
    assert c.cli("run", "--no-input", "--", "echo", "there").stdout == "there\n"


@covers("backups")
def test_the_program_of_backups(c):
    """A backup that is killed says so, and leaves none that looks whole."""
    controller = c.pid("controller")
    with Hunter(controller, children(controller)) as hunter:
        done = c.cli("backup", "--now", check=False, timeout=120)
        wait_until(lambda: hunter.killed, 5, "nothing was started")
        time.sleep(1)
    assert done.returncode == 0 or done.stderr, done
    assert not [f for f in os.listdir(c.backups) if f.endswith(".acequia")], os.listdir(c.backups)
    assert "the program that makes them has ended" in " ".join(c.cli("status").stdout.split())
    c.cli("backup", "--now", timeout=120)
    wait_until(lambda: os.listdir(c.backups), 60, "no backup is made")
    works(c)


@covers("acequia-users")
def test_lasting_children_of_the_controller_come_back(c):
    """Look-ups of users and whatever else stays: each is killed once."""
    controller = c.pid("controller")
    lasting = children(controller)
    assert "acequia-users" in [name_of(p) for p in lasting]
    for pid in lasting:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(alive(p) for p in lasting), 10, "they do not end")
    works(c)
    assert c.pid("controller") == controller and alive(controller)
    wait_until(lambda: "acequia-users" in [name_of(p) for p in children(controller)], 30, "look-ups of users are not started again")


@covers("acequia-shep")
def test_lasting_children_of_the_agent_come_back(c):
    """The shepherds' own parent and look-ups of users: a job that runs goes on, the next one starts."""
    job = c.cli("submit", "-Q", "-o", "/dev/null", "--", "sleep", "600").stdout.strip()
    wait_until(lambda: c.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 60, "it does not run")
    agent = c.pid(f"agent-{c.node}")
    lasting = children(agent)
    assert lasting
    for pid in lasting:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(alive(p) for p in lasting), 10, "they do not end")
    works(c)
    assert c.pid(f"agent-{c.node}") == agent and alive(agent)
    assert c.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING" and c.api.get(f"/v1/jobs/{job}")["attempt"] == 1
    c.cli("cancel", job)
    wait_until(lambda: c.api.get(f"/v1/jobs/{job}")["state"] == "CANCELLED", 60, "it is not cancelled")


@covers("acequia-files")
def test_the_program_of_users_files(c, tmp_path):
    """A transfer whose helper is killed ends with an error, and the next one works."""
    big = tmp_path / "big"
    big.write_bytes(os.urandom(1 << 20))
    agent = c.pid(f"agent-{c.node}")
    with Hunter(agent, children(agent)) as hunter:
        for _ in range(50):  # on a busy machine one may have ended before it was seen
            hunted = subprocess.run([c.binary, "files", "get", str(big), "-"], env=c.env, capture_output=True, timeout=120, check=False)
            assert (hunted.returncode and hunted.stderr) or hunted.stdout == big.read_bytes(), (hunted.stderr, hunter.killed)
            if hunter.killed:
                break
    done = subprocess.run([c.binary, "files", "get", str(big), "-"], env=c.env, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0 and done.stdout == big.read_bytes(), done.stderr
    assert hunter.killed, "the agent starts no process for files"


@covers("acequia-reader")
def test_readers_of_logs(c):
    """logs -f whose reading process is killed over and over goes on, or says what failed; the log is whole afterwards."""
    path = f"{c.home}/talk.out"
    job = c.cli("submit", "-Q", "-o", path, "--", "sh", "-c", "for i in $(seq 1 40); do echo line $i; sleep 0.05; done").stdout.strip()
    agent = c.pid(f"agent-{c.node}")
    wait_until(lambda: c.api.get(f"/v1/jobs/{job}")["state"] != "PENDING", 60, "it does not run")
    with Hunter(agent, children(agent)):
        done = c.cli("logs", "-f", job, check=False, timeout=120)
    assert done.returncode == 0 or done.stderr.strip(), done
    done = c.cli("logs", job)
    assert done.stdout.splitlines() == [f"line {i}" for i in range(1, 41)], done


@covers("make-snapshot")
def test_the_maker_of_snapshots():
    """Killed each time: the journal is enough, and the next start is right."""
    with Cluster(config="[cluster]\ngrace = 1s\n[node *]\ncpus = 8\n") as c:
        controller = c.pid("controller")
        spec = {"name": "t", "workdir": "/tmp", "output": "/dev/null", "argv": ["true"], "hold": True}
        jobs = 0
        with Hunter(controller, children(controller)) as hunter:
            end = time.monotonic() + 120
            while not hunter.killed and time.monotonic() < end:
                jobs += len(c.submit_many([{"spec": spec} for _ in range(5000)]))
        assert hunter.killed, "no snapshot was begun"
        assert c.answers() and c.pid("controller") == controller
        c.kill_controller()
        c.start_controller()
        c.wait_ready(60)
        assert c.api.get("/v1/status")["jobs"]["PENDING"] == jobs


def test_every_helper_is_killed_by_a_test():
    """One that the sources start and no test kills has no promise."""
    assert helpers_in_sources() == helpers_in_tests(), "write a test that kills it, and mark the test with @covers"
