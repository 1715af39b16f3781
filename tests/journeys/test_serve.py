"""Services: replicas behind one address, which follow the requests down to none and back, updates without a failed request, tokens."""
import http.client
import json
import os
import socket
import subprocess
import threading
from urllib.parse import urlsplit

import pytest

from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WAIT = 120


@pytest.fixture(scope="module", name="cluster")
def _cluster():
    with Cluster(config="[node *]\ncpus = 64\nmemory = 64G\n") as c:
        yield c


def restart(cluster):
    cluster.kill_controller()
    cluster.start_controller()
    cluster.wait_ready()


def as_json(cluster, *words):
    return json.loads(cluster.cli(words[0], "--json", *words[1:]).stdout)


class Service:
    """A service of the test's program, and a caller with a token."""

    def __init__(self, cluster, name, *options, revision="1"):
        self.cluster, self.name = cluster, name
        cluster.cli("serve", "--name", name, *self.common(), *options, "--", *self.program(revision))
        self.token = cluster.cli("serve", "token", name, "create", "--label", "test").stdout.strip()
        self.address()

    def address(self):
        url = urlsplit(self.get()["url"])
        self.host, self.port = url.netloc, url.port

    @staticmethod
    def common():
        return ["-o", "/dev/null", "--grace", "1s"]

    @staticmethod
    def program(revision):
        return ["/usr/bin/python3", f"{TREE}/tests/lab/serve_program.py", revision]

    def get(self):
        return self.cluster.api.get(f"/v1/services/{self.name}")

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT)

    def send(self, path="/", method="GET", token=None, connection=None, body=None):
        c = connection or self.connect()
        token = self.token if token is None else token
        c.request(method, path, body, {"Host": self.host, **({"Authorization": f"Bearer {token}"} if token else {})})
        r = c.getresponse()
        return r.status, r.headers, r.read()

    def ask(self, path="/", **more):
        status, _, body = self.send(path, **more)
        assert status == 200, body
        return json.loads(body)

    def update(self, revision, *options):
        self.cluster.cli("serve", "update", self.name, *self.common(), *options, "--", *self.program(revision))

    def wait(self, what, check, seconds=WAIT):
        wait_until(lambda: check(self.get()), seconds, f"{what}: {self.get()}")

    def delete(self):
        self.cluster.cli("serve", "delete", self.name)


class Load:
    """Clients that ask one after the other until they are told to stop; every answer is kept."""

    def __init__(self, service, clients, path="/", method="GET"):
        self.service, self.path, self.method = service, path, method
        self.stop, self.statuses, self.revisions, self.errors = False, {}, set(), []
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run) for _ in range(clients)]
        for t in self.threads:
            t.start()

    def run(self):
        connection = self.service.connect()
        while not self.stop:
            try:
                status, _, body = self.service.send(self.path, self.method, connection=connection,
                                                    body=b"x" * 100 if self.method == "POST" else None)
            except OSError as e:
                self.errors.append(repr(e))
                return
            with self.lock:
                self.statuses[status] = self.statuses.get(status, 0) + 1
                if status == 200:
                    self.revisions.add(json.loads(body)["revision"])
                else:
                    self.errors.append(body)

    def count(self):
        return sum(self.statuses.values())

    def end(self):
        self.stop = True
        for t in self.threads:
            t.join()
        assert not self.errors, self.errors[:3]


def test_tokens_let_callers_in_and_nobody_else(cluster):
    s = Service(cluster, "doors")
    said = s.ask()
    assert said["user"] == "token:test" and said["authorization"] is None, "the token is not the program's to see"
    status, headers, _ = s.send(token="aqs1." + "0" * 16 + "." + "0" * 64)
    assert status == 401 and headers["WWW-Authenticate"] == "Bearer"
    assert s.send(token="")[0] == 401
    other = Service(cluster, "others")
    assert other.send(token=s.token)[0] == 401, "a token is of one service"
    made = as_json(cluster, "serve", "token", "doors", "list")["tokens"]
    assert [t["label"] for t in made] == ["test"] and "token" not in made[0] and "hash" not in made[0]
    restart(cluster)
    s.address()
    wait_until(lambda: s.send()[0] == 200, WAIT, "it does not answer after a restart")
    cluster.cli("serve", "token", "doors", "revoke", made[0]["id"])
    assert s.send()[0] == 401
    restart(cluster)
    assert s.send()[0] == 401, "a revoked token stays revoked"
    s.delete()
    other.delete()
    wait_until(lambda: not cluster.api.get("/v1/jobs")["jobs"], WAIT, "jobs of deleted services go on")


def test_replicas_follow_the_requests_to_none_and_back(cluster):
    s = Service(cluster, "wave", "--replicas", "0-3", "--target", "2", "--cooldown", "1s", "--zero-after", "2s")
    load = Load(s, 12, "/slow?s=0.05")
    s.wait("it does not grow", lambda v: v["ready_replicas"] == 3)
    load.end()
    s.wait("it does not shrink to none", lambda v: v["state"] == "idle" and v["replicas"] == 0)
    assert s.ask()["revision"] == "1"  # waits for the first replica
    v = s.get()
    assert v["cold_start_ms"] > 0 and v["refused"] == 0 and v["failures"] == 0
    metrics = cluster.api.raw("GET", "/metrics")[1].decode()
    assert 'acequia_service_replicas{service="wave",user="' in metrics
    s.delete()


def test_an_update_fails_no_request(cluster):
    s = Service(cluster, "update", "--replicas", "2")
    s.wait("no two replicas", lambda v: v["ready_replicas"] == 2)
    load = Load(s, 8, "/slow?s=0.02", "POST")
    wait_until(lambda: load.count() > 20, WAIT, "no requests")
    s.update("2")
    s.wait("the new revision does not take over", lambda v: [r["number"] for r in v["revisions"]] == [2])
    load.revisions.clear()
    more = load.count() + 40
    wait_until(lambda: load.count() > more, WAIT, "no requests")
    assert load.revisions == {"2"}, "the old revision takes requests after the update"
    load.end()
    assert set(load.statuses) == {200}
    # One that never gets ready: the old one goes on, and the state says why.
    cluster.cli("serve", "update", "update", *s.common(), "--", "/bin/sleep", "1000")
    s.wait("it is not said what is wrong", lambda v: v["state"] == "updating" and v["reason"] and "not ready" in v["reason"])
    assert s.ask()["revision"] == "2"
    cluster.cli("serve", "update", "update", "--rollback")
    s.wait("the failed revision stays", lambda v: [r["number"] for r in v["revisions"]] == [2])
    # Other resources for the same program, which is not typed again; nor are its variables and files.
    cluster.cli("serve", "update", "update", "--memory", "77M")
    s.wait("the changed revision does not take over", lambda v: len(v["revisions"]) == 1 and v["revisions"][0]["number"] > 2)
    job = cluster.api.get(f"/v1/jobs/{s.get()['revisions'][0]['job']}")["spec"]
    assert s.ask()["revision"] == "2" and job["memory_per_node_bytes"] == 77 << 20, job
    r = cluster.cli("serve", "update", "update", "--memory", "1G", "--promote", check=False)
    assert r.returncode and "--memory is of a new revision" in r.stderr
    s.delete()


def test_a_canary_gets_its_part(cluster):
    s = Service(cluster, "canary")
    s.wait("not ready", lambda v: v["state"] == "ready")
    s.update("2", "--canary", "25%")
    s.wait("the canary does not serve", lambda v: [r["weight"] for r in v["revisions"]] == [75, 25])
    said = [s.ask()["revision"] for _ in range(40)]
    assert said.count("2") == 10, said
    cluster.cli("serve", "update", "canary", "--promote")
    s.wait("the old one stays", lambda v: [r["number"] for r in v["revisions"]] == [2])
    assert {s.ask()["revision"] for _ in range(5)} == {"2"}
    s.delete()


def test_a_replica_that_dies(cluster, tmp_path):
    s = Service(cluster, "dies", "--replicas", "2")
    s.wait("no two replicas", lambda v: v["ready_replicas"] == 2)
    assert s.ask(f"/die-once?file={tmp_path}/one")["revision"] == "1", "another replica answers a GET"
    s.wait("it is not started again", lambda v: v["ready_replicas"] == 2)
    status, _, body = s.send(f"/die-once?file={tmp_path}/two", method="POST", body=b"x")
    assert status == 502 and b"not sent to another" in body, body
    s.wait("it is not started again", lambda v: v["ready_replicas"] == 2)
    s.delete()


def test_no_replica_and_a_full_queue(cluster, tmp_path):
    s = Service(cluster, "late", "--queue", "2", "--queue-time", "1s", "--target", "1", "--limit", "1")
    s.wait("not ready", lambda v: v["state"] == "ready")
    answers = []
    lock = threading.Lock()

    def one(path):
        status, headers, _ = s.send(path)
        with lock:
            answers.append((status, headers.get("Retry-After")))

    threads = [threading.Thread(target=one, args=(f"/wait-for?file={tmp_path}/go",))]
    threads[0].start()
    s.wait("the first is not there", lambda v: v["in_flight"] == 1)
    cluster.cli("serve", "update", "late", "--queue-time", "10m")
    for _ in range(2):
        threads.append(threading.Thread(target=one, args=("/",)))
        threads[-1].start()
    s.wait("they do not wait", lambda v: v["queued"] == 2)
    status, headers, body = s.send()
    assert status == 503 and headers["Retry-After"] and b"wait for a replica already" in body
    cluster.cli("serve", "update", "late", "--queue-time", "1s", "--queue", "3")
    status, headers, body = s.send()
    assert status == 503 and headers["Retry-After"] and b"in time" in body
    (tmp_path / "go").touch()
    for t in threads:
        t.join()
    assert [a[0] for a in answers] == [200, 200, 200], answers
    s.delete()


def test_a_program_that_does_not_get_ready(cluster):
    cluster.cli("serve", "--name", "never", "-o", "/dev/null", "--", "/bin/sleep", "1000")
    s = Service.__new__(Service)
    s.cluster, s.name = cluster, "never"
    s.wait("no reason", lambda v: v["state"] in ("starting", "failing") and "not ready" in (v["reason"] or ""))
    assert "never" in cluster.cli("serve", "list").stdout
    said = cluster.cli("serve", "get", "never").stdout
    assert "is not ready" in said and "starting" in said, said
    s.delete()


def test_a_health_check_says_when_it_is_ready(cluster, tmp_path):
    s = Service(cluster, "healthy", "--health", f"test -e {tmp_path}/ready")
    s.wait("it is ready too early", lambda v: v["state"] == "starting" and "not ready" in v["reason"])
    (tmp_path / "ready").touch()
    assert s.ask()["revision"] == "1"
    s.delete()


def test_a_slow_reader_holds_up_nobody(cluster):
    s = Service(cluster, "slow")
    s.wait("not ready", lambda v: v["state"] == "ready")
    with socket.create_connection(("127.0.0.1", s.port)) as slow:
        slow.sendall(f"GET /big HTTP/1.1\r\nHost: {s.host}\r\nAuthorization: Bearer {s.token}\r\n\r\n".encode())
        s.wait("it is not asked", lambda v: v["in_flight"] == 1)
        for _ in range(20):
            assert s.ask()["revision"] == "1"
        assert s.get()["in_flight"] == 1
        got = 0
        while got < 8 << 20:
            piece = slow.recv(1 << 16)
            assert piece
            got += len(piece)
    s.delete()


def test_a_python_class(cluster, tmp_path):
    (tmp_path / "model.py").write_text(
        "class Double:\n    def predict(self, x):\n        return {'twice': 2 * x['n']}\n", encoding="utf-8")
    made = as_json(cluster, "serve", "-o", "/dev/null", f"{tmp_path}/model.py:Double")
    assert made["name"] == "model"
    s = Service.__new__(Service)
    s.cluster, s.name = cluster, "model"
    s.token = as_json(cluster, "serve", "token", "model", "create")["token"]
    s.address()
    assert s.ask(method="POST", body=b'{"n": 21}') == {"twice": 42}
    status, _, body = s.send(method="POST", body=b'{"m": 21}')
    assert status == 400 and b"KeyError" in body
    assert s.send(method="POST", body=b"{")[0] == 400
    s.delete()


def test_what_is_wrong_is_said(cluster):
    def refused(*words):
        r = cluster.cli("serve", *words, check=False)
        assert r.returncode, r.stdout
        return r.stderr

    assert "say what to serve" in refused()
    assert "cannot be the name of a service" in refused("--name", "No!", "--", "true")
    assert "MIN-MAX" in refused("--name", "x", "--replicas", "8-2", "--", "true")
    assert "1% to 99%" in refused("update", "x", "--canary", "100%", "--", "true")
    assert 'no service "x"' in refused("get", "x")
    assert 'no service "x"' in refused("scale", "x", "2")
    assert "array" in refused("--name", "x", "-a", "0-3", "--", "true")
    assert "no file" in refused("missing.py:Model")
    assert "say what is to change" in refused("update", "x")


def test_the_example(cluster):
    env = {**cluster.env, "PATH": f"{os.path.dirname(cluster.binary)}:{os.environ['PATH']}", "STEPS": "1 30 1", "STEP_S": "2"}
    r = subprocess.run([f"{TREE}/examples/serve/run"], env=env, capture_output=True, text=True, timeout=240, check=False)
    assert r.returncode == 0 and " 0 failed; " in r.stdout, r.stdout + r.stderr
