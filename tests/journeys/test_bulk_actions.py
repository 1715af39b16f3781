"""Actions on very many jobs are cut into slices: the work of one turn of the controller's loop is bounded, and others
are answered in between."""
import json
import os
import pwd
import signal
import socket
import subprocess

import pytest

from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until

ELEMENTS = 60000
SLICE_JOBS = 564    # at most so many are changed in one turn: a slice ends with its batch
WORK_SLICE = 10000  # in units of work
NOBODY = pwd.getpwnam("nobody")
AS_NOBODY = ["setpriv", "--reuid", "nobody", "--regid", str(NOBODY.pw_gid), "--clear-groups"]
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture(scope="module")
def cluster():
    with Cluster(config="[cluster]\nmax_jobs_per_user = 1000000\nmax_queue_length = 1000000\nmax_array_size = 1000000\n") as c:
        yield c


def array(c, elements=ELEMENTS):
    spec = {"name": "large", "workdir": "/tmp", "output": "/dev/null", "hold": True, "argv": ["true"],
            "array": [{"first": 0, "last": elements - 1, "step": 1}]}
    return c.api.post("/v1/jobs", {"spec": spec})["id"]


def scheduler(c):
    return c.api.get("/v1/status")["scheduler"]


def as_nobody(c, *words):
    return subprocess.run([*AS_NOBODY, c.binary, *words], env=c.env, cwd="/tmp", capture_output=True, text=True, check=True)


class Paused:
    """The controller does nothing while requests are written: it finds all of them at once."""

    def __init__(self, c):
        self.pid = c.pid("controller")

    def __enter__(self):
        os.kill(self.pid, signal.SIGSTOP)

    def __exit__(self, *_):
        os.kill(self.pid, signal.SIGCONT)


class Asked:
    """A request on a connection of its own."""

    def __init__(self, c, method, path, body=None):
        text = json.dumps(body) if body is not None else ""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(600)
        self.sock.connect(f"{c.home}/run/api.sock")
        self.sock.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())

    def answer(self):
        data = b""
        while piece := self.sock.recv(1 << 16):
            data += piece
        self.sock.close()
        head, body = data.split(b"\r\n\r\n", 1)
        assert head.startswith(b"HTTP/1.1 2"), data[:300]
        return json.loads(body)


@pytest.mark.parametrize("action, more", [("hold", {"as": "admin"}), ("update", {"spec": {"nice": 5}}), ("release", {}), ("cancel", {})])
def test_others_are_answered_between_the_slices(cluster, action, more):
    job = array(cluster)
    if action == "release" and cluster.nodes_up():  # nothing is to start
        cluster.cli("drain", cluster.nodes_up()[0], "--reason", "test")
    before = scheduler(cluster)["action_slices"]
    with Paused(cluster):
        act = Asked(cluster, "POST", f"/v1/jobs/{action}", {"ids": [str(job)], **more})
        others = [Asked(cluster, "GET", "/v1/status") for _ in range(5)]
    seen = [other.answer()["scheduler"]["action_slices"] - before for other in others]
    done = act.answer()
    assert done["done"] == done["matched"] == ELEMENTS, done
    after = scheduler(cluster)
    assert after["action_slices"] - before >= ELEMENTS / SLICE_JOBS
    # A batch is complete before the work is counted again; no turn goes far beyond its part.
    assert after["action_work_max"] <= WORK_SLICE * 1.3, after
    assert max(seen) <= 3, seen  # slices that were carried out before others were answered
    if action != "cancel":
        cluster.api.post("/v1/jobs/cancel", {"ids": [str(job)]})


def test_one_action_of_a_user_at_a_time(cluster):
    """Six large ones at once: another user's small one is complete long before them."""
    job = array(cluster)
    made = as_nobody(cluster, "submit", "-Q", "--hold", "-o", "/dev/null", "--", "true").stdout.strip()
    before = scheduler(cluster)["action_slices"]
    with Paused(cluster):
        six = [Asked(cluster, "POST", f"/v1/jobs/{a}", {"ids": [str(job)]}) for a in ("release", "hold") * 3]
        small = subprocess.Popen([*AS_NOBODY, cluster.binary, "cancel", made], env=cluster.env, cwd="/tmp", stdout=subprocess.PIPE, text=True)
    assert small.communicate(timeout=600)[0] == "1 job cancelled\n"
    answers = [a.answer() for a in six]
    assert [a["done"] for a in answers] == [ELEMENTS] * 6
    after = scheduler(cluster)
    assert after["action_slices"] - before >= 6 * ELEMENTS / SLICE_JOBS and after["action_work_max"] <= WORK_SLICE * 1.3
    cluster.api.post("/v1/jobs/cancel", {"ids": [str(job)]})


def test_a_client_that_leaves_does_not_stop_its_action(cluster):
    job = array(cluster)
    with Paused(cluster):
        Asked(cluster, "POST", "/v1/jobs/cancel", {"ids": [str(job)]}).sock.close()
    wait_until(lambda: cluster.active_jobs() == 0, 60, "the action was not carried out to its end")


def test_jobs_submitted_meanwhile_are_not_meant(cluster):
    array(cluster)
    spec = {"name": "later", "workdir": "/tmp", "output": "/dev/null", "hold": True, "argv": ["true"]}
    with Paused(cluster):
        act = Asked(cluster, "POST", "/v1/jobs/cancel", {"all": True})
        later = [Asked(cluster, "POST", "/v1/jobs", {"spec": spec}) for _ in range(5)]
    later = {a.answer()["id"] for a in later}
    assert act.answer()["done"] == ELEMENTS
    assert {j["id"] for j in cluster.api.get("/v1/jobs?fields=id")["jobs"]} == later
    cluster.api.post("/v1/jobs/cancel", {"all": True})


def test_a_list_of_jobs_is_submitted_in_slices(cluster):
    """Also its reading; the answer has an entry for each job."""
    spec = {"name": "one", "workdir": "/tmp", "output": "/dev/null", "hold": True, "argv": ["true"]}
    wrong = dict(spec, argv=[])
    before = scheduler(cluster)["action_slices"]
    made = Asked(cluster, "POST", "/v1/jobs", [{"spec": spec, "key": f"list-{i}"} for i in range(9999)] + [{"spec": wrong}]).answer()
    assert len(made) == 10000 and len({m["id"] for m in made[:-1]}) == 9999 and "nothing to run" in made[-1]["error"]["message"]
    after = scheduler(cluster)
    assert after["action_slices"] - before >= 10000 * 20 / WORK_SLICE and after["action_work_max"] <= WORK_SLICE * 1.3, after
    # The same list again: no second job.
    again = cluster.api.post("/v1/jobs", [{"spec": spec, "key": f"list-{i}"} for i in range(5)])
    assert [m["id"] for m in again] == [m["id"] for m in made[:5]] and all(m["repeated"] for m in again)
    assert cluster.api.post("/v1/jobs/cancel", {"name": "one", "all": True})["done"] == 9999


def test_a_list_that_is_no_json_submits_nothing(cluster):
    body = b'[' + b'{"spec": {"name": "never", "workdir": "/tmp", "hold": true, "argv": ["true"]}},' * 3000 + b'{"spec": ]'
    status, data = cluster.api.raw("POST", "/v1/jobs", body)
    assert status == 400, data[:200]
    assert not cluster.api.get("/v1/jobs?name=never")["jobs"]
