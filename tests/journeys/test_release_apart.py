"""Programs of an earlier release beside this version's: agents of one with a controller of the other, and the way back
before an upgrade is finished. The old programs are built from their commit; $ACEQUIA_RELEASE_0_2_0 (or another release)
names a build folder of them that is there already."""
import json
import os
import subprocess
import tempfile

import pytest

from tests.lab.cluster import Cluster, find_binary
from tests.lab.proc import free_ports, wait_until

pytestmark = pytest.mark.long
COMMITS = {"0.1.0": "3ecc72e", "0.2.0": "737a3a8"}
NEWEST = "0.3.0"
TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@pytest.fixture(scope="module", params=COMMITS, name="release")
def _release(request):
    return request.param


@pytest.fixture(scope="module")
def old_binary(release):
    build = os.environ.get("ACEQUIA_RELEASE_" + release.replace(".", "_"))
    commit = COMMITS[release]
    if build:
        yield f"{build}/src/cli/acequia"
        return
    known = subprocess.run(["git", "-C", TREE, "cat-file", "-e", f"{commit}^{{commit}}"], check=False, capture_output=True)
    if known.returncode:
        pytest.skip(f"the history of this tree does not reach back to release {release} ({commit})")
    with tempfile.TemporaryDirectory(prefix=f"acequia-{release}-") as folder:
        archive = subprocess.run(["git", "-C", TREE, "archive", commit], check=True, capture_output=True).stdout
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


def work_of_0_2_0(c):
    """A command inside a job, workers and secrets: what the releases have in common since 0.2.0."""
    c.cli("secret", "set", "TOKEN", "--from-file", "/etc/hostname")
    with open("/etc/hostname", encoding="utf-8") as f:
        value = f.read().strip()
    assert c.cli("run", "--secret", "TOKEN", "--", "sh", "-c", 'echo "$TOKEN"').stdout.strip() == value
    pool = c.cli("submit", "-Q", "-o", "/dev/null", "-D", "/tmp", "--workers", "1-2", "--", "sleep", "600").stdout.strip()
    wait_until(lambda: [m["state"] for m in c.api.get(f"/v1/jobs/{pool}")["members"]].count("running") == 2, 60,
               "two workers do not run")
    assert c.cli("exec", f"{pool}+1", "--", "sh", "-c", "echo $ACEQUIA_WORKER").stdout == "1\n"
    c.cli("cancel", pool)
    wait_until(lambda: c.api.get(f"/v1/jobs/{pool}")["state"] == "CANCELLED", 60, f"job {pool} is not cancelled")


def work(c, release):
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
    if release != "0.1.0":
        work_of_0_2_0(c)


def test_one_release_apart(release, old_binary):
    """Up in the recommended order, with a job that runs all the time, and all the way back."""
    new = find_binary()
    with Cluster(binary=old_binary, config="[cluster]\ngrace = 1s\n[node *]\ncpus = 4\n") as c:
        wait_until(c.nodes_up, 60, "the node does not come")
        name = c.nodes_up()[0]
        kept = c.cli("submit", "-Q", "-o", "/dev/null", "-D", "/tmp", "--", "sleep", "1000").stdout.strip()
        wait_until(lambda: c.api.get(f"/v1/jobs/{kept}")["state"] == "RUNNING", 60, "does not run")
        restart_controller(c, new)      # an old agent, a new controller
        work(c, release)
        restart_agent(c, name, new)
        work(c, release)
        restart_controller(c, old_binary)  # a new agent, an old controller: the upgrade was not finished
        work(c, release)
        restart_agent(c, name, old_binary)
        work(c, release)
        restart_controller(c, new)      # and up again, for good
        restart_agent(c, name, new)
        work(c, release)
        c.cli("upgrade", "finish")
        work(c, release)
        assert c.api.get(f"/v1/jobs/{kept}")["state"] == "RUNNING"
        c.api.close()
        c.kill("controller", 15)
        swap(c, old_binary)
        c.start_controller()            # refused, and says so
        assert c.children["controller"].wait(180) == 1
        refusal = c.log_tail("controller")
        assert ("install the newer program" if release == "0.1.0" else f"it needs Acequia {NEWEST} or later") in refusal
        swap(c, new)
        c.start_controller()
        c.wait_ready()
        work(c, release)


def test_an_old_client(release, old_binary):
    """Commands of the previous release with this version's controller: on its machine, and over TLS with a token."""
    if release != list(COMMITS)[-1]:
        pytest.skip("only the previous release's clients are promised to work")
    with Cluster(config=f"[cluster]\nlisten = 127.0.0.1:{free_ports(1)[0]}\ngrace = 1s\n[node *]\ncpus = 4\n") as c, \
            tempfile.TemporaryDirectory() as home:
        wait_until(c.nodes_up, 60, "the node does not come")
        token = os.path.join(home, "token")
        with open(os.open(token, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="ascii") as f:
            f.write(c.cli("token", "create", "--user", "root").stdout)
        away = {**c.env, "ACEQUIA_HOME": home, "ACEQUIA_HOST": json.loads(c.cli("status", "--json").stdout)["listen"]}
        for env in (c.env, away):
            def old(*words):
                r = subprocess.run([old_binary, *words], env=env, text=True, capture_output=True, timeout=120, check=False)  # pylint: disable=cell-var-from-loop
                assert r.returncode == 0, (words, r.stderr)
                return r.stdout

            assert old("run", "--", "echo", "hello") == "hello\n"
            job = old("submit", "-Q", "-D", "/tmp", "-o", "/dev/null", "-J", "of-old", "--", "sleep", "600").strip()
            wait_until(lambda: c.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 60, "does not run")  # pylint: disable=cell-var-from-loop
            assert "of-old" in old("list") and json.loads(old("get", "--json", job))["id"] == int(job)
            for words in (("nodes",), ("status",), ("shares",), ("project", "list"), ("events", job), ("policy",), ("token", "list")):
                assert old(*words)
            assert "already" not in old("why", job)
            assert old("exec", job, "--", "echo", "inside") == "inside\n"
            assert "cancelled" in old("cancel", job).lower()
            wait_until(lambda: c.api.get(f"/v1/jobs/{job}")["state"] == "CANCELLED", 60, "is not cancelled")  # pylint: disable=cell-var-from-loop
            array = old("submit", "-Q", "-D", "/tmp", "-o", "/dev/null", "--array", "0-3", "--", "true").strip()
            old("wait", array)
