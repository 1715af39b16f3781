"""Idempotency keys: one key makes one job, however often and by whichever way the submit comes again."""
import json
import os
import signal
import socket

import pytest

from tests.lab.api import Api, ApiError
from tests.lab.cluster import Cluster

SPEC = {"name": "t", "workdir": "/tmp", "output": "/dev/null", "argv": ["true"], "hold": True}


@pytest.fixture(name="cluster", scope="module")
def _cluster():
    with Cluster("[cluster]\nmax_keys_per_user = 40\n") as c:
        yield c


def job(key, **fields):
    return {"spec": dict(SPEC, **fields), "key": key}


def submitted(cluster):
    return cluster.api.get("/v1/status")["jobs"]["submitted"]


def send(path, body):
    """A request on a connection of its own; the answer is read later."""
    text = json.dumps(body).encode()
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    s.settimeout(60)
    s.connect(path)
    s.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
              b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
    return s


def answer(s):
    data = b""
    while chunk := s.recv(65536):
        data += chunk
    s.close()
    head, _, body = data.partition(b"\r\n\r\n")
    assert b" 201 " in head.split(b"\r\n")[0], data
    return json.loads(body)


def test_two_connections_in_one_turn_of_the_loop(cluster):
    before = submitted(cluster)
    pid = cluster.pid("controller")
    os.kill(pid, signal.SIGSTOP)  # both requests are there when it goes on
    try:
        pair = [send(cluster.api.path, job("pair")) for _ in range(2)]
        given_up = send(cluster.api.path, job("paused"))
        given_up.close()  # this client has timed out, and asks again
        again = send(cluster.api.path, job("paused"))
    finally:
        os.kill(pid, signal.SIGCONT)
    one, two = (answer(s) for s in pair)
    assert one["id"] == two["id"] and one["repeated"] != two["repeated"]
    repeat = answer(again)
    third = cluster.api.post("/v1/jobs", job("paused"))
    assert third["id"] == repeat["id"] and third["repeated"]
    assert submitted(cluster) == before + 2


def test_twice_in_one_list(cluster):
    before = submitted(cluster)
    array = [{"first": 1, "last": 30, "step": 1}]
    one, two, other, last = cluster.api.post("/v1/jobs", [
        job("list", array=array), job("list", array=array), job("list", array=array, name="u"), job("list2")])
    assert one == {"id": one["id"], "count": 30, "repeated": False}
    assert two == {"id": one["id"], "count": 30, "repeated": True}
    assert other["error"]["code"] == "EEXIST" and f"job {one['id']}" in other["error"]["message"]
    assert last["id"] == one["id"] + 30 and submitted(cluster) == before + 31


def test_another_spec_script_or_environment_is_a_conflict(cluster):
    first = cluster.api.post("/v1/jobs", dict(job("spec"), script="#!/bin/sh\n", environment=["A=1"]))
    for change in ({"script": "#!/bin/bash\n"}, {"environment": ["A=2"]}, {"environment": None}):
        body = dict(job("spec"), script="#!/bin/sh\n", environment=["A=1"])
        body.update(change)
        with pytest.raises(ApiError) as refused:
            cluster.api.post("/v1/jobs", body)
        assert refused.value.status == 409 and f"job {first['id']}" in str(refused.value)


def test_keys_survive_the_end_of_the_job_and_of_the_controller(cluster):
    first = cluster.api.post("/v1/jobs", job("survivor"))
    cluster.api.post("/v1/jobs/cancel", {"ids": [str(first["id"])]})
    cluster.kill_controller()
    cluster.start_controller()
    cluster.wait_ready()
    again = cluster.api.post("/v1/jobs", job("survivor"))
    assert again["id"] == first["id"] and again["repeated"]


def test_at_the_limit_a_new_key_is_refused(cluster):
    api = Api(cluster.api.path)
    with pytest.raises(ApiError) as refused:
        for i in range(41):
            api.post("/v1/jobs", job(f"limit-{i}"))
    assert refused.value.status == 429 and "max_keys_per_user" in str(refused.value)
    assert api.post("/v1/jobs", job("limit-0"))["repeated"]
    assert not api.post("/v1/jobs", {"spec": SPEC})["repeated"]
    api.close()


def test_the_secret_is_never_shown(cluster):
    events = cluster.api.get("/v1/events")["events"]
    init = [e for e in events if e["type"] == "keys_init"]
    assert len(init) == 1 and not init[0].get("secret")
    assert all(not e.get("key") for e in events)
