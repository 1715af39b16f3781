"""Programs of release 0.1.0 beside this version's: agents of one with a controller of the other, and the way back
before an upgrade is finished. The old programs are built from their commit; $ACEQUIA_RELEASE_0_1_0 names a build
folder of them that is there already."""
import os
import subprocess
import tempfile

import pytest

from tests.lab.cluster import Cluster, find_binary
from tests.lab.proc import wait_until

pytestmark = pytest.mark.long
COMMIT = "3ecc72e"
TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@pytest.fixture(scope="module")
def old_binary():
    build = os.environ.get("ACEQUIA_RELEASE_0_1_0")
    if build:
        yield f"{build}/src/cli/acequia"
        return
    known = subprocess.run(["git", "-C", TREE, "cat-file", "-e", f"{COMMIT}^{{commit}}"], check=False, capture_output=True)
    if known.returncode:
        pytest.skip(f"the history of this tree does not reach back to release 0.1.0 ({COMMIT})")
    with tempfile.TemporaryDirectory(prefix="acequia-0.1.0-") as folder:
        archive = subprocess.run(["git", "-C", TREE, "archive", COMMIT], check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        subprocess.run(["tools/build", "build"], cwd=folder, check=True, timeout=3600)
        yield f"{folder}/build/src/cli/acequia"


def swap(c, binary):
    """From now on daemons are started from these programs; their daemons find each other beside them."""
    c.binary = binary
    c.env["PATH"] = f"{os.path.dirname(binary)}:{os.environ['PATH']}"


def restart_controller(c, binary):
    c.api.close()
    c.kill("controller", 15)
    swap(c, binary)
    c.start_controller()
    c.wait_ready()


def restart_agent(c, name, binary):
    c.kill_agent(name)
    swap(c, binary)
    c.start_agent(name)


def work(c):
    """Jobs start, end, are suspended and cancelled."""
    wait_until(c.nodes_up, 60, "the node does not come")
    assert c.cli("run", "--", "echo", "hello").stdout == "hello\n"
    job = c.cli("submit", "-Q", "-o", "/dev/null", "-D", "/tmp", "--", "sleep", "600").stdout.strip()

    def state(wanted):
        wait_until(lambda: c.api.get(f"/v1/jobs/{job}")["state"] == wanted, 60, f"job {job} is not {wanted}")
    state("RUNNING")
    c.cli("suspend", job)
    state("SUSPENDED")
    c.cli("continue", job)
    state("RUNNING")
    c.cli("cancel", job)
    state("CANCELLED")


def test_one_release_apart(old_binary):
    """Up in the recommended order, with a job that runs all the time, and all the way back."""
    new = find_binary()
    with Cluster(binary=old_binary, config="[cluster]\ngrace = 1s\n[node *]\ncpus = 4\n") as c:
        wait_until(c.nodes_up, 60, "the node does not come")
        name = c.nodes_up()[0]
        kept = c.cli("submit", "-Q", "-o", "/dev/null", "-D", "/tmp", "--", "sleep", "1000").stdout.strip()
        wait_until(lambda: c.api.get(f"/v1/jobs/{kept}")["state"] == "RUNNING", 60, "does not run")
        restart_controller(c, new)      # an old agent, a new controller
        work(c)
        restart_agent(c, name, new)
        work(c)
        restart_controller(c, old_binary)  # a new agent, an old controller: the upgrade was not finished
        work(c)
        restart_agent(c, name, old_binary)
        work(c)
        restart_controller(c, new)      # and up again, for good
        restart_agent(c, name, new)
        work(c)
        c.cli("upgrade", "finish")
        work(c)
        assert c.api.get(f"/v1/jobs/{kept}")["state"] == "RUNNING"
        c.api.close()
        c.kill("controller", 15)
        swap(c, old_binary)
        c.start_controller()            # refused, and says so
        assert c.children["controller"].wait(30) == 1
        assert "install the newer program" in c.log_tail("controller")
        swap(c, new)
        c.start_controller()
        c.wait_ready()
        work(c)
