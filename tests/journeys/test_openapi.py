"""The OpenAPI document against a live controller: every GET route is asked, and answers are as their schemas say."""
import json
import os
import subprocess
import urllib.parse

import pytest

from tests.lab.api import Api
from tests.lab.command import BUILD, Cluster
from tests.lab.openapi import Document
from tests.lab.proc import wait_until

SECONDS_A_JOB_RUNS = 300


class Server:
    """A cluster with something of everything: jobs in many states, an array, steps, projects, a reservation."""

    def __init__(self):
        self.cluster = c = Cluster("[node *]\ncpus = 16\nmemory = 8G\ngpus = a100:4\ngpus_simulated = true\n")
        self.api = Api(os.path.join(c.home, "run/api.sock"))
        script = os.path.join(c.work, "job.sh")
        with open(script, "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\necho out\n")
        self.done = c.submit(script)
        c.run("wait", self.done)
        self.failed = c.submit("--", "false")
        c.run("wait", self.failed)
        self.running = c.submit("--gpus", "1", "--time", "1h", "--", "sleep", SECONDS_A_JOB_RUNS)
        c.wait_state(self.running, "RUNNING")
        c.run("exec", self.running, "--", "true")
        self.held = c.submit("--hold", "--comment", "of mine", "--", "true")
        self.array = c.submit("--array", "0-3", "--gpus", "4", "--", "true")
        c.acequia("project", "create", "vision", "--quota", "2")
        c.acequia("qos", "create", "urgent", "--priority", "10")
        c.acequia("reservation", "create", "disks", "--start", "tomorrow", "--end", "now+2days", "--users", "root")
        wait_until(lambda: self.api.get(f"/v1/jobs/{self.running}")["live"], 20, "no use is measured")
        status, text = self.api.raw("GET", "/v1/openapi.json")
        assert status == 200
        self.document = Document(text)

    def close(self):
        self.api.close()
        self.cluster.close()

    def values(self, path):
        """Values for the variable part of a path: each makes one request."""
        node = self.api.get("/v1/nodes")["nodes"][0]["name"]
        names = {"/v1/nodes/": [node], "/v1/projects/": ["vision", "default"], "/v1/partitions/": ["main"],
                 "/v1/qos/": ["urgent"], "/v1/licenses/": ["matlab"], "/v1/reservations/": ["disks"], "/v1/tokens/": [], "/v1/devices/": ["BBBB-BBBB"]}
        if "{job}" in path:
            return [self.done, self.failed, self.running, self.held, self.array, f"{self.array}_1"]
        if "{name}" in path:
            return next((v for k, v in names.items() if path.startswith(k)), ["not-there"])
        return [None]

    def check(self, method, path, operation, target, body=None):
        """Sends the request; the answer must be one that the operation declares."""
        status, data = self.api.raw(method, target, body)
        said = operation["responses"].get(str(status))
        assert said, f"{method} {target}: {status} is not declared: {data[:200]}"
        content = said["content"]
        if "application/json" in content and data[:1] in (b"{", b"["):
            schema = content["application/json"].get("schema", {})
            found = self.document.problems(schema, json.loads(data))
            assert not found, f"{method} {target}: {found[:5]}"
        return status, data


@pytest.fixture(scope="module")
def server():
    s = Server()
    yield s
    s.close()


def test_the_document_is_served_and_printed(server):
    printed = subprocess.run([os.path.join(BUILD, "src/acequiad/acequiad"), "openapi"], capture_output=True, check=True)
    assert json.loads(printed.stdout) == server.document.root
    assert server.document.root["openapi"].startswith("3.1")
    ids = [o["operationId"] for _, _, o in server.document.operations()]
    assert len(ids) == len(set(ids))
    listed = {(r["method"], r["path"].replace("/jobs/{name}", "/jobs/{job}")) for r in server.api.get("/v1")}
    assert listed == {(m, p) for m, p, _ in server.document.operations()}


def test_every_reference_exists(server):
    text = json.dumps(server.document.root)
    for part in text.split("#/components/schemas/")[1:]:
        assert part.split('"')[0] in server.document.schemas


def test_every_get_answers_as_the_document_says(server):
    asked = 0
    for method, path, operation in server.document.operations():
        if method != "GET" or path.endswith("/wait") or path == "/v1/live":  # which do not end by themselves
            continue
        for value in server.values(path):
            target = path if value is None else path[:path.index("{")] + value + path[path.index("}") + 1:]
            status, _ = server.check(method, path, operation, target)
            asked += 1
            if not operation.get("x-websocket") and value in (None, server.done) and not path.endswith(("/array", "/when")):  # of other kinds of jobs
                needs = any(p["in"] == "query" and p.get("required") for p in operation.get("parameters", ()))  # and it is not given
                assert status == (400 if needs else 200), f"{target}: {status}"
    assert asked > 60


def test_lists_with_every_parameter(server):
    operation = server.document.root["paths"]["/v1/jobs"]["get"]
    fields = list(server.document.schemas["Job"]["properties"])[:60]
    for query in ({}, {"finished": 1}, {"finished": "true", "limit": 1}, {"compact": 1}, {"fields": ",".join(fields)},
                  {"ids": f"{server.done},{server.array}"}, {"mine": 1, "elements": 1}, {"state": "PENDING,RUNNING"},
                  {"fields": "id,spec,steps,usage,order", "finished": 1}):
        status, _ = server.check("GET", "/v1/jobs", operation, "/v1/jobs?" + urllib.parse.urlencode(query))
        assert status == 200
    for field in fields:
        assert server.check("GET", "/v1/jobs", operation, f"/v1/jobs?fields={field}")[0] == 200


def test_list_and_get_agree(server):
    fields = ",".join(list(server.document.schemas["Job"]["properties"])[:58])
    for job in (server.done, server.held, server.failed):
        listed = server.api.get(f"/v1/jobs?ids={job}&fields={fields}")["jobs"][0]
        alone = server.api.get(f"/v1/jobs/{job}")
        assert set(listed) < set(alone)
        changing = {"order", "gpu_use_milli"}
        assert {k: v for k, v in listed.items() if k not in changing} == \
            {k: alone[k] for k in listed if k not in changing}


def test_pages_of_finished_jobs(server):
    seen, after = [], ""
    for _ in range(10):
        page = server.api.get(f"/v1/jobs?finished=1&limit=1&fields=id{after}")
        seen += [j["id"] for j in page["jobs"]]
        if not page["next"]:
            break
        after = f"&after={page['next']}"
    assert seen == sorted(set(seen), reverse=True) and len(seen) >= 2


@pytest.mark.parametrize("target, named", [
    ("/v1/jobs?limit=many", "limit"), ("/v1/jobs?limit=-1", "limit"), ("/v1/jobs?limit=9999999999", "limit"),
    ("/v1/jobs?colour=red", "colour"), ("/v1/jobs?mine=perhaps", "mine"), ("/v1/jobs?state=ASLEEP", "state"),
    ("/v1/jobs?fields=id,shoe_size", "fields"), ("/v1/jobs?after=yesterday&finished=1", "after"),
    ("/v1/jobs?limit=1&limit=2", "limit"), ("/v1/status?verbose=1", "verbose"), ("/v1/events?after=-1", "after"),
    ("/v1/jobs/1/wait?timeout_s=0", "timeout_s"), ("/v1/jobs/1/logs?source=both", "source"),
    ("/v1/jobs?user=%zz", "encoded"), ("/v1/jobs/%00", "encoded"), ("/v1/projects/vision?force=1", "force"),
])
def test_bad_parameters_are_named(server, target, named):
    status, data = server.api.raw("GET", target)
    assert status == 400 and named in json.loads(data)["error"]["message"], data


@pytest.mark.parametrize("method, path, body, named", [
    ("POST", "/v1/jobs", {"spec": {"gpus": 1}}, "gpus"), ("POST", "/v1/jobs", {"script": "x"}, "spec"),
    ("POST", "/v1/jobs", {"spec": {"nice": "low"}}, "nice"), ("POST", "/v1/jobs", {"spec": {}, "key": ""}, "key"),
    ("POST", "/v1/jobs", {"spec": {"class": "fast"}}, "class"), ("POST", "/v1/jobs/cancel", {"id": 1}, "id"),
    ("POST", "/v1/jobs/cancel", {"ids": ["1"], "signal": 65}, "signal"), ("POST", "/v1/jobs/update", {"ids": []}, "spec"),
    ("POST", "/v1/jobs/hold", {"ids": ["1"], "as": "king"}, "as"), ("PUT", "/v1/policy", {"reclaim": 0}, "reclaim"),
    ("PUT", "/v1/projects/vision", {"name": "speech"}, "name"), ("POST", "/v1/tokens", {"ttl_s": 0}, "ttl_s"),
    ("POST", "/v1/join", {"token": "x", "csr": "y"}, "name"), ("POST", "/v1/when", {}, "spec"),
    ("POST", "/v1/when", [], "object"), ("PUT", "/v1/qos/urgent", {"priority": 1e30}, "priority"),
])
def test_bad_bodies_name_the_field(server, method, path, body, named):
    status, data = server.api.raw(method, path, json.dumps(body))
    assert status == 400 and named in json.loads(data)["error"]["message"], data


def test_changes_answer_as_the_document_says(server):
    paths = server.document.root["paths"]
    for method, path, target, body in (
            ("PUT", "/v1/policy", "/v1/policy", {"min_run_s": 0}),
            ("PUT", "/v1/projects/{name}", "/v1/projects/speech", {"quota_milligpu": 500, "nodes": "no[1-2]"}),
            ("DELETE", "/v1/projects/{name}", "/v1/projects/speech", None),
            ("POST", "/v1/jobs/{job}", "/v1/jobs/update", {"ids": [server.held, "999999"], "spec": {"nice": 0}}),
            ("POST", "/v1/jobs", "/v1/jobs", {"spec": {"argv": ["true"], "workdir": "/"}, "dry_run": True}),
            ("POST", "/v1/jobs", "/v1/jobs", [{"spec": {"argv": ["true"], "workdir": "/"}}, {"spec": {}}]),
            ("POST", "/v1/when", "/v1/when", {"spec": {"gpus_milli": 4000}}),
            ("GET", "/v1/jobs/{job}/wait", f"/v1/jobs/{server.held}/wait?timeout_s=1", None),
            ("POST", "/v1/nodes/{name}/drain", "/v1/nodes/nobody/drain", {"reason": "x"})):
        text = json.dumps(body) if body is not None else None
        server.check(method, path, paths[path][method.lower()], target, text)


def test_a_method_that_a_path_does_not_take(server):
    server.api.raw("GET", "/v1")
    server.api.connection.request("DELETE", "/v1/status")
    reply = server.api.connection.getresponse()
    reply.read()
    assert reply.status == 405 and reply.headers["Allow"] == "GET"


def test_event_streams_carry_events(server):
    schema = server.document.schemas["EventList"]
    server.api.close()
    server.api.raw("GET", "/v1")
    connection = server.api.connection
    connection.request("GET", "/v1/events?follow=1&after=0")
    reply = connection.getresponse()
    assert reply.status == 200 and reply.headers["Content-Type"] == "text/event-stream"
    events = []
    while len(events) < 20:
        line = reply.readline()
        if line.startswith(b"data: "):
            events.append(json.loads(line[6:]))
    server.api.close()
    assert not server.document.problems(schema, events)


def test_streamed_lists(server):
    status, data = server.api.raw("GET", "/v1/jobs?stream=1&all=1&fields=id,state,exit_code")
    lines = [json.loads(x) for x in data.splitlines()]
    assert status == 200 and lines[0]["fields"] == ["id", "state", "exit_code"]
    assert lines[-1]["rows"] == len(lines) - 2 and all(len(x) == 3 for x in lines[1:-1])
