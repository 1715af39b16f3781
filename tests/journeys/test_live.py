"""What browsers look at while it changes: the live feed and logs as server-sent events, over the controller's socket."""
import json
import os
import socket

import pytest

from tests.lab.api import Api, ApiError
from tests.lab.command import Cluster
from tests.lab.proc import wait_until


@pytest.fixture(scope="module")
def cluster():
    c = Cluster("[node *]\ncpus = 16\nmemory = 8G\ngpus = a100:4\ngpus_simulated = true\n")
    c.api = Api(os.path.join(c.home, "run/api.sock"))
    yield c
    c.api.close()
    c.close()


class Events:
    """One connection of an EventSource: `next(kind)` is the data of the next event of that kind, decoded."""

    def __init__(self, cluster, target, last=None):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(60)
        self.sock.connect(cluster.api.path)
        head = f"GET {target} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n"
        head += f"Last-Event-ID: {last}\r\n" if last else ""
        self.sock.sendall(head.encode() + b"\r\n")
        self.stream = self.sock.makefile("rb")
        self.status = int(self.stream.readline().split()[1])
        while self.stream.readline() not in (b"\r\n", b""):
            pass
        self.text, self.last = b"", None

    def close(self):
        self.stream.close()
        self.sock.close()

    def _line(self):
        while b"\n" not in self.text:
            size = int(self.stream.readline() or b"0", 16)
            if not size:
                return None
            self.text += self.stream.read(size)
            self.stream.readline()
        line, self.text = self.text.split(b"\n", 1)
        return line.decode()

    def next(self, kind):
        """None: the stream has ended."""
        name = data = None
        while (line := self._line()) is not None:
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("id: "):
                self.last = line[4:]
            elif line.startswith("data: "):
                data = json.loads(line[6:])
            elif not line and name == kind:
                return data
        return None


def until(events, wanted):
    """Rows of jobs until one passes."""
    while True:
        for row in events.next("jobs")["jobs"]:
            if wanted(row):
                return row


def test_a_job_is_seen_from_its_submit_to_its_end(cluster):
    seq = cluster.api.get("/v1/table")["seq"]
    live = Events(cluster, f"/v1/live?after={seq}")
    assert live.status == 200
    job = int(cluster.submit("--gpus", "1", "--", "sleep", "2"))
    row = until(live, lambda r: r["id"] == job and r["state"] == "RUNNING")
    assert row["gpus_milli"] == 1000 and row["nodes"]
    nodes = live.next("nodes")["nodes"]
    assert len(nodes) == 1 and len(nodes[0]["gpus"]) == 4
    live.close()
    # What happened meanwhile comes after the event that was seen last.
    cluster.wait_state(job, "COMPLETED")
    live = Events(cluster, "/v1/live?topics=jobs", live.last)
    assert until(live, lambda r: r["id"] == job)["state"] == "COMPLETED"
    live.close()
    rows = cluster.api.get(f"/v1/table?search={job}")["rows"]
    assert rows[0]["id"] == job and rows[0]["state"] == "COMPLETED" and rows[0]["array"] is None


def test_the_feed_goes_on_after_a_restart_of_the_controller(cluster):
    live = Events(cluster, "/v1/live?topics=jobs")
    job = int(cluster.submit("--hold", "--", "true"))
    until(live, lambda r: r["id"] == job)
    last = live.last
    live.close()
    cluster.acequia("cancel", job)
    cluster.acequia("down")
    cluster.acequia("up")
    cluster.api.close()
    live = Events(cluster, "/v1/live?topics=jobs", last)
    assert until(live, lambda r: r["id"] == job)["state"] == "CANCELLED"
    live.close()


def test_overview_counts_what_is_there(cluster):
    job = cluster.submit("--gpus", "0.5", "--", "sleep", "60")
    cluster.wait_state(job, "RUNNING")
    node = cluster.api.get("/v1/overview")["node_list"][0]
    assert [g["held_milli"] for g in node["gpus"]].count(500) == 1
    assert [p for g in node["gpus"] for p in g["parts"]] == [{"project": "default", "milli": 500}]
    cluster.acequia("cancel", job)


def test_logs_as_events_go_on_where_they_were(cluster):
    script = r"printf 'one \303'; sleep 1; printf '\251\nbad \377\n'; sleep 3; echo three"
    job = cluster.submit("--", "sh", "-c", script)
    cluster.wait_state(job, "RUNNING")
    target = f"/v1/jobs/{job}/logs?follow=1"
    log = Events(cluster, target)
    text = ""
    while "bad" not in text:
        text += log.next("log")["text"]
    assert text.startswith("one \u00e9\nbad \ufffd\n")
    log.close()
    log = Events(cluster, target, log.last)
    assert log.next("log")["text"] == "three\n"
    end = log.next("end")
    assert end is None or end["id"] == int(job)
    log.close()
    whole = Events(cluster, f"/v1/jobs/{job}/logs")
    assert whole.next("log")["text"] == "one \u00e9\nbad \ufffd\nthree\n"
    assert Events(cluster, target, "x").status == 400


def at(cluster, time_ms):
    """The state at a time."""
    return cluster.api.get(f"/v1/at?time_ms={time_ms}")


def test_queue_nodes_and_shares_as_they_were(cluster):
    cluster.acequia("project", "create", "past", "--quota", "1")
    job = int(cluster.submit("--gpus", "1", "-P", "past", "--", "sleep", "60"))
    cluster.wait_state(job, "RUNNING")
    waiting = int(cluster.submit("--hold", "--", "true"))
    then = cluster.api.get("/v1/overview")["at_ms"]
    wait_until(lambda: cluster.api.get("/v1/table")["now_ms"] > then + 5, 20, "time stands still")
    cluster.acequia("cancel", job, waiting)
    cluster.wait_state(job, "CANCELLED")
    cluster.acequia("project", "delete", "past")
    past = at(cluster, then)
    rows = {r["id"]: r for r in past["jobs"]}
    assert rows[job]["state"] == "RUNNING" and rows[job]["nodes"] and rows[waiting]["state"] == "PENDING"
    assert [p for g in past["nodes"][0]["gpus"] for p in g["parts"]] == [{"project": "past", "milli": 1000}]
    assert "past" in {p["project"] for p in past["shares"]["projects"]}
    now = at(cluster, 0)
    assert not {job, waiting} & {r["id"] for r in now["jobs"]}
    assert "past" not in {p["project"] for p in now["shares"]["projects"]}
    assert at(cluster, 1000)["jobs"] == []  # before the journal began
    with pytest.raises(ApiError, match="lies in the future"):
        at(cluster, 4000000000000)


def test_few_looks_back_at_a_time(cluster):
    """Three in one packet: processes work on the first two, the third is refused and says why."""
    one = b"GET /v1/at?time_ms=0 HTTP/1.1\r\nHost: x\r\n"
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(120)
        s.connect(cluster.api.path)
        s.sendall(one + b"\r\n" + one + b"\r\n" + one + b"Connection: close\r\n\r\n")
        data = b""
        while piece := s.recv(65536):
            data += piece
    answers = data.split(b"HTTP/1.1 ")[1:]
    assert [a[:3] for a in answers] == [b"200", b"200", b"429"] and b"viewing an earlier state already" in answers[2]
    assert "jobs" in at(cluster, 0)


def test_use_by_project_adds_up(cluster):
    job = cluster.submit("--gpus", "2", "--", "sleep", "2")
    cluster.wait_state(job, "COMPLETED")
    used = cluster.api.get("/v1/analytics?step_ms=3600000")
    group = next(g for g in used["groups"] if g["name"] == "default")
    assert group["jobs"] >= 1 and group["gpu_hours"] >= 2 * 2 / 3600
    hours = sum(group["gpus"][:-1]) + group["gpus"][-1] * ((used["to_ms"] - used["from_ms"]) % 3600000 or 3600000) / 3600000
    assert abs(hours - group["gpu_hours"]) < 0.01 * group["gpu_hours"] + 1e-6
    assert cluster.api.get("/v1/analytics?by=month")["groups"][0]["name"].startswith("20")
    status, text = cluster.api.raw("GET", "/v1/analytics?by=user&csv=1")
    assert status == 200 and text.decode().splitlines()[0].startswith("name,jobs,gpu_hours")


def test_a_kept_snapshot_shortens_the_way_back(cluster):
    """After 50,000 events a snapshot is made and kept; what is asked about a later time begins there."""
    folder = os.path.join(cluster.home, "state/past")

    def kept():
        names = os.listdir(folder) if os.path.isdir(folder) else []
        return sorted(n for n in names if n.endswith(".snapshot"))

    before = cluster.api.get("/v1/table?limit=1")["now_ms"]
    spec = {"spec": {"name": "many", "workdir": "/", "argv": ["true"], "hold": True}}
    for _ in range(11):
        cluster.api.post("/v1/jobs", [spec] * 5000)
    wait_until(kept, 60, "no snapshot is kept")
    newest = int(kept()[-1].split("-")[1].split(".")[0])
    later = cluster.api.get("/v1/table?limit=1")["now_ms"]
    view = at(cluster, later)
    assert view["states"]["PENDING"] >= 55000 and not view["complete"] and len(view["jobs"]) == 2000
    assert at(cluster, before)["states"]["PENDING"] < 55000  # from the beginning of the journal
    # A snapshot that is not of this journal is not used: a restore may have replaced it.
    path = os.path.join(folder, kept()[-1])
    os.rename(path, path.replace(str(newest), str(newest + 1)))
    with pytest.raises(ApiError):
        at(cluster, later)
    assert not kept()
    assert at(cluster, later)["states"]["PENDING"] >= 55000
    cluster.acequia("cancel", "--all")
