"""Loaded by schemathesis (SCHEMATHESIS_HOOKS): what the document's examples are, what must exist for them, and how each operation was answered.

A run as an administrator deletes what it looks at, its own token and its own user included. So before a request that names one of the example's
things, that thing is made again, and a token that is refused is replaced. How often each operation answered with which status is written to the
file ACEQUIA_ANSWERS at the end."""
import atexit
import collections
import json
import os
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import schemathesis  # pylint: disable=import-error,wrong-import-position

from tests.lab.api import Api, ApiError  # pylint: disable=wrong-import-position

SOCKET, FOLDER, NODE = (os.environ[k] for k in ("ACEQUIA_SOCKET", "ACEQUIA_FOLDER", "ACEQUIA_NODE"))
USER = "games"  # an administrator whose jobs and files are those of a user of the system without any rights
NAME, JOB = "example", "4000000000"  # what the examples are called; a job gets its real number when it is asked for
SLEEP = {"name": NAME, "argv": ["sleep", "3000"], "workdir": FOLDER, "output": "/dev/null", "time_limit_s": 3600}
DAY_MS = 86_400_000
NOW_MS = int(time.time() * 1000)

# What a thing of this kind needs, to be made under NAME.
BODIES = {
    "projects": {"quota_milligpu": 1000}, "partitions": {}, "qos": {"priority": 10}, "alerts": {"metric": "cluster/gpus", "value": 1},
    "reservations": {"start_ms": NOW_MS + 300 * DAY_MS, "end_ms": NOW_MS + 301 * DAY_MS, "nodes": NODE, "users": ["root"]},
    "secrets": {"value": "c2VjcmV0"}, "drafts": {"spec": SLEEP}, "templates": {"spec": SLEEP}, "views": {"query": "state=RUNNING"},
    "users": {"full_name": "Somebody", "role": "user"},
}
SERVICE = {"name": NAME, "spec": {**SLEEP, "argv": ["sleep", "3000"]}, "replicas_min": 0, "replicas_max": 1}
# Of operations whose requests cannot be read off the kind of thing: path, query, body.
EXAMPLES = {
    "POST /v1/jobs": {"body": {"spec": SLEEP}},
    "POST /v1/jobs/{job}": {"path": {"job": "hold"}, "body": {"name": NAME}},
    "POST /v1/jobs/{job}/shares": {"body": {"user": "daemon", "port": 8000}},
    "DELETE /v1/jobs/{job}/shares": {"query": {"user": "daemon", "port": 8000}},
    "POST /v1/jobs/{job}/open": {"query": {"port": 8000}},
    "GET /v1/jobs/{job}/extension": {"query": {"time_limit_s": 7200}},
    "GET /v1/jobs/{job}/when": {"query": {"workers": 2}},
    "POST /v1/jobs/{job}/resize": {"body": {"workers_max": 3}},
    "POST /v1/jobs/{job}/workers": {"body": {"ranks": [{"number": 1, "rank": 1}]}},
    "POST /v1/services": {"body": SERVICE},
    "POST /v1/services/{name}": {"body": {"replicas_max": 2}},
    "POST /v1/services/{name}/tokens": {"body": {"label": "of a test"}},
    "POST /v1/when": {"body": {"spec": SLEEP, "instead": [{"gpus_milli": 500}, {"time_limit_s": 60}]}},
    "POST /v1/mcp": {"body": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}},
    "GET /v1/at": {"query": {"time_ms": NOW_MS}},
    "GET /v1/series": {"query": {"prefix": "cluster/"}},
    "POST /v1/alerts/ack": {"body": {"rule": NAME, "subject": "cluster/gpus"}},
    "POST /v1/nodes/{name}/drain": {"path": {"name": NODE}, "body": {"reason": "a test"}},
    "POST /v1/volumes": {"body": {"name": "another"}},
    "POST /v1/volumes/{name}/shares": {"body": {"with": "daemon"}},
    "POST /v1/tokens": {"body": {"kind": "user", "ttl_s": 3600}},
    "POST /v1/login": {"body": {"method": "own", "user": "ana", "password": "correct horse battery"}},
    "POST /v1/login/device": {"body": {"client": "a test"}},
    "PUT /v1/users/{name}/password": {"body": {"password": "correct horse battery"}},
    "POST /v1/apps/{name}": {"path": {"name": "program"}, "body": {"workdir": FOLDER, "values": ["command=sleep 1"]}},
    "GET /v1/files": {"query": {"path": FOLDER}},
    "DELETE /v1/files": {"query": {"path": f"{FOLDER}/gone"}},
    "GET /v1/files/content": {"query": {"path": f"{FOLDER}/here"}},
    "PUT /v1/files/content": {"query": {"path": f"{FOLDER}/new"}},
    "GET /v1/files/zip": {"query": {"path": FOLDER}},
    "POST /v1/files/folder": {"body": {"path": f"{FOLDER}/folder", "parents": True}},
    "POST /v1/files/move": {"body": {"path": f"{FOLDER}/gone", "to": f"{FOLDER}/moved", "replace": True}},
    "POST /v1/files/copy": {"body": {"path": f"{FOLDER}/here", "to": f"{FOLDER}/copied", "replace": True}},
    "PUT /v1/policy": {"body": {"min_run_s": 0}},
    "POST /v1/policy/dry-run": {"body": {"change": {"min_run_s": 60}}},
}
for _kind, _body in BODIES.items():
    EXAMPLES.setdefault(f"PUT /v1/{_kind}/{{name}}", {"body": _body})

_lock = threading.Lock()
_answers = collections.defaultdict(collections.Counter)
_api = Api(SOCKET)
_state = {"token": "", "jobs": {}}


def _tried(method, path, body=None):
    """What must be there may be there already, or cannot be just now: the request that needs it will show it."""
    try:
        return _api.request(method, path, body)
    except (ApiError, OSError, ValueError):
        return None


def _new_token():
    _tried("PUT", f"/v1/users/{USER}", {"role": "admin", "unix_user": USER, "disabled": False})
    made = _tried("POST", "/v1/tokens", {"kind": "user", "user": USER, "ttl_s": 86400})
    if made:
        _state["token"] = made["token"]


def _as_probe(method, path, body=None):
    """Things that belong to a user are made by that user."""
    try:
        import ssl  # pylint: disable=import-outside-toplevel
        import urllib.request  # pylint: disable=import-outside-toplevel
        request = urllib.request.Request(os.environ["ACEQUIA_URL"] + path, method=method, data=None if body is None else json.dumps(body).encode(),
                                         headers={"Authorization": f"Bearer {_state['token']}", "Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60, context=ssl._create_unverified_context()) as reply:  # pylint: disable=protected-access
            return json.loads(reply.read() or "null")
    except (OSError, ValueError):
        return None


KINDS_OF_JOBS = {  # by the last word of the path; else any job
    "array": {"array": [{"first": 0, "last": 1, "step": 1}], "hold": True}, "script": "script", "resize": {"workers_min": 1, "workers_max": 2},
    "workers": {"workers_min": 1, "workers_max": 2}, "when": {"workers_min": 1, "workers_max": 2}, "efficiency": "ended",
    "shares": {"ports": ["http:8000"]}, "open": {"ports": ["http:8000"]},
}


def _job(word):
    """A job of the kind that routes with this last word are about; a new one when the last has ended."""
    kind = KINDS_OF_JOBS.get(word, {})
    known = _state["jobs"].get(word)
    now = known and _tried("GET", f"/v1/jobs/{known}")
    if now and (kind == "ended" or now["state"] in ("RUNNING", "PENDING")):
        return known
    spec, script = dict(SLEEP), None
    if kind == "ended":
        spec["argv"] = ["sleep", "2"]
    elif kind == "script":
        spec["argv"], script = [], "#!/bin/sh\nsleep 3000\n"
    else:
        spec.update(kind)
    _tried("POST", f"/v1/nodes/{NODE}/resume")
    made = _as_probe("POST", "/v1/jobs", {"spec": spec, "environment": ["A=b"], **({"script": script} if script else {})})
    if not made:
        return None
    until = time.monotonic() + 20
    wanted = ("COMPLETED",) if kind == "ended" else ("RUNNING",)
    while not spec.get("hold") and time.monotonic() < until and (_tried("GET", f"/v1/jobs/{made['id']}") or {}).get("state") not in wanted:
        time.sleep(0.1)
    _state["jobs"][word] = str(made["id"])
    return str(made["id"])


def _make(method, path, values, query):
    """What the request names, if it is one of the examples."""
    kind = path.split("/")[2] if path.count("/") > 1 else ""
    if values.get("name") == NAME and kind in BODIES:
        _as_probe("PUT", f"/v1/{kind}/{NAME}", BODIES[kind])
    if kind == "services" and values.get("name") == NAME:
        _as_probe("POST", "/v1/services", SERVICE)
        if method == "DELETE" and query.get("id") == NAME:
            made = _as_probe("POST", f"/v1/services/{NAME}/tokens", {"label": "x"})
            query["id"] = (made or {}).get("id", NAME)
    if kind == "services" and method == "POST" and path == "/v1/services":
        _as_probe("DELETE", f"/v1/services/{NAME}")
    if kind == "volumes":
        _as_probe("POST", "/v1/volumes", {"name": NAME})
        if method == "POST" and path == "/v1/volumes":
            _as_probe("DELETE", "/v1/volumes/another")
    if kind == "files":
        for name in ("gone", "here"):
            with open(f"{FOLDER}/{name}", "w", encoding="ascii") as f:
                f.write("text\n")
            os.chmod(f"{FOLDER}/{name}", 0o666)
    if kind == "tokens" and values.get("name") == NAME:
        made = _as_probe("POST", "/v1/tokens", {"kind": "user", "ttl_s": 3600})
        values["name"] = (made or {}).get("id", NAME)
    if kind == "sessions" and values.get("name") == NAME:
        listed = _as_probe("GET", "/v1/sessions")
        values["name"] = next((s["id"] for s in (listed or {}).get("sessions", [])), NAME)
    if kind == "alerts" and path.endswith("/ack"):
        until = time.monotonic() + 30
        _as_probe("PUT", f"/v1/alerts/{NAME}", {**BODIES["alerts"], "value": -1, "for_s": 0})
        while not any(a["rule"] == NAME for a in (_as_probe("GET", "/v1/alerts") or {}).get("alerts", [])) and time.monotonic() < until:
            time.sleep(0.2)
    if kind == "devices" and values.get("name") == NAME:
        made = _as_probe("POST", "/v1/login/device", {"client": "a test"})
        values["name"] = (made or {}).get("user_code", NAME)
    if values.get("job") == JOB:
        values["job"] = _job(path.rsplit("/", 1)[-1]) or JOB
        if kind == "jobs" and path.endswith("/shares") and method == "DELETE":
            _as_probe("POST", f"/v1/jobs/{values['job']}/shares", {"user": "daemon", "port": 8000})


@schemathesis.hook
def before_load_schema(context, raw_schema):
    """Puts the examples into the document: one for each parameter of a path, and those of EXAMPLES."""
    for path, methods in raw_schema["paths"].items():
        for method, operation in methods.items():
            if not isinstance(operation, dict) or "responses" not in operation:
                continue
            example = EXAMPLES.get(f"{method.upper()} {path}", {})
            for p in operation.get("parameters", ()):
                p.pop("examples", None)
                if p["in"] == "path":
                    default = JOB if p["name"] == "job" else NODE if path.startswith("/v1/nodes/") else NAME
                    p["example"] = example.get("path", {}).get(p["name"], default)
                elif p["name"] in example.get("query", {}):
                    p["example"] = example["query"][p["name"]]
                elif p.get("required"):
                    p["example"] = NAME
            if "body" in example:
                next(iter(operation["requestBody"]["content"].values()))["example"] = example["body"]


@schemathesis.auth(refresh_interval=None)
class Token:
    """The token of the moment."""

    def get(self, case, context):
        """Called for each request that is to be authenticated."""
        with _lock:
            if not _state["token"]:
                _new_token()
            return _state["token"]

    def set(self, case, data, context):
        """As the document says."""
        case.headers = case.headers or {}
        case.headers["Authorization"] = f"Bearer {data}"


@schemathesis.hook
def before_call(context, case, kwargs):
    """Makes what the request names."""
    with _lock:
        values = case.path_parameters if isinstance(case.path_parameters, dict) else {}
        query = case.query if isinstance(case.query, dict) else {}
        _make(case.method.upper(), case.path, values, query)


@schemathesis.hook
def after_call(context, case, response):
    """Counts the answer; a token that was revoked, or whose user is no administrator any more, is replaced."""
    with _lock:
        sent = response.request.headers.get("Authorization", "")
        _answers[f"{case.method.upper()} {case.path}"][response.status_code] += 1
        if _state["token"] and sent.endswith(_state["token"]) and response.status_code in (401, 403):
            me = _as_probe("GET", "/v1/me")
            if not me or me.get("role") != "admin":
                _new_token()


@atexit.register
def _write():
    with open(os.environ["ACEQUIA_ANSWERS"], "w", encoding="ascii") as f:
        json.dump(_answers, f)
