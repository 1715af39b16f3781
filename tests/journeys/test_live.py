"""What browsers look at while it changes: the live feed and logs as server-sent events, over the controller's socket."""
import json
import os
import socket

import pytest

from tests.lab.api import Api
from tests.lab.command import Cluster


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
