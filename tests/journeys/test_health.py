"""Services of jobs that say whether they are ready: served only then, ended when they stay sick, on unix sockets and free ports."""
import os
import socket
import subprocess
from urllib.parse import urlsplit

import pytest

from tests.journeys.test_apps import AS_NOBODY, Visitor, needs_root
from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until

# An HTTP program whose readiness is the existence of a file; told its port or socket.
PROGRAM = r"""
import http.server, os, socketserver, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ready = os.path.exists(sys.argv[1])
        self.send_response(200 if ready or self.path == "/echo" else 503)
        self.end_headers()
        self.wfile.write(b"hello")
    def log_message(self, *_):
        pass
    def address_string(self):
        return "somebody"
class Unix(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    pass
if "ACEQUIA_SOCKET" in os.environ:
    Unix(os.environ["ACEQUIA_SOCKET"], Handler).serve_forever()
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["ACEQUIA_PORT"])), Handler).serve_forever()
"""


@pytest.fixture(scope="module", name="cluster")
def _cluster():
    with Cluster(config="[node *]\ncpus = 64\nmemory = 64G\n") as c:
        with open(f"{c.home}/service.py", "w", encoding="utf-8") as f:
            f.write(PROGRAM)
        yield c


def submit(cluster, name, *options):
    """A job that runs and is not ready yet, and the file that makes it so."""
    flag = f"{cluster.home}/{name}.ready"
    job = cluster.cli("submit", "-Q", "-J", name, "-o", "/dev/null", *options, "--", "/usr/bin/python3", f"{cluster.home}/service.py",
                      flag).stdout.strip()
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 60, "it does not run")
    return job, flag


def make(path):
    with open(path, "w", encoding="utf-8"):
        pass


def health(cluster, job):
    return cluster.api.get(f"/v1/jobs/{job}").get("health")


def events(cluster, job):
    return [e for e in cluster.api.get(f"/v1/jobs/{job}/events")["events"] if e["type"] == "job_health"]


def visit(cluster, job):
    """A visitor who is let in, whatever the program answers."""
    v = Visitor.__new__(Visitor)
    link = urlsplit(cluster.cli("open", job).stdout.strip())
    v.host, v.port, v.cookie = link.netloc, link.port, ""
    v.cookie = v.get(f"{link.path}?{link.query}", Accept="text/html")[1]["Set-Cookie"].split(";")[0]
    return v


def test_served_only_while_it_is_ready(cluster):
    job, flag = submit(cluster, "web", "--port", "http:0", "--health", "/ready", "--health-interval", "1", "--health-failures", "8")
    assert health(cluster, job) == "starting"
    v = visit(cluster, job)
    status, headers, page = v.get("/", Accept="text/html")
    assert status == 503 and headers["Retry-After"] and b"not ready yet" in page
    make(flag)
    wait_until(lambda: health(cluster, job) == "ready", 60, "it never gets ready")
    assert v.get("/")[0] == 200
    assert cluster.api.get(f"/v1/jobs/{job}")["urls"][0].startswith("http://" + v.host.split(".")[0])
    shown = cluster.cli("list", "-o", "id,health,url", "--wide").stdout
    assert "ready" in shown and v.host.split(".")[0] in shown
    os.unlink(flag)
    wait_until(lambda: health(cluster, job) == "sick", 60, "nobody sees that it is sick")
    status, _, page = v.get("/")
    assert status == 503 and b"HTTP status 503" in page
    assert "HTTP status 503" in cluster.cli("get", job).stdout
    make(flag)
    wait_until(lambda: health(cluster, job) == "ready", 60, "it stays sick")
    wait_until(lambda: [e["health"] for e in events(cluster, job)] == ["ready", "sick", "ready"], 60, "its events do not say so")
    cluster.kill_controller()
    cluster.start_controller()
    wait_until(cluster.answers, 60, "the controller does not come back")
    assert health(cluster, job) == "ready"
    cluster.cli("cancel", job)


def test_what_happens_while_the_daemons_are_away_is_known_afterwards(cluster):
    job, flag = submit(cluster, "away", "--port", "http:0", "--health", "/ready", "--health-interval", "1", "--health-failures", "20")
    assert health(cluster, job) == "starting"
    node = cluster.nodes_up()[0]
    cluster.kill_agent(node)
    make(flag)
    cluster.start_agent(node)
    wait_until(lambda: health(cluster, job) == "ready", 60, "the agent does not say what it missed")
    cluster.cli("cancel", job)


def test_a_service_that_stays_sick_is_run_again(cluster):
    job, flag = submit(cluster, "sick", "--port", "http:0", "--health", "test -e $FLAG", "--health-interval", "1", "--health-failures", "1",
                       "--retries", "1", "--grace", "1", "-E", f"FLAG={cluster.home}/sick.ready")
    assert health(cluster, job) == "starting"
    make(flag)
    wait_until(lambda: health(cluster, job) == "ready", 60, "it never gets ready")
    os.unlink(flag)
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}")["attempt"] == 2, 60, "it is not run again")
    make(flag)
    wait_until(lambda: health(cluster, job) == "ready", 60, "it does not get ready again")
    os.unlink(flag)
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}")["state"] == "FAILED", 60, "it is not ended")
    reason = cluster.api.get(f"/v1/jobs/{job}")["reason"]
    assert "health check failed 2 times in a row: exit status 1 of the check" in reason, reason
    requeued = [e for e in cluster.api.get(f"/v1/jobs/{job}/events")["events"] if e["type"] == "job_requeued"]
    assert len(requeued) == 1 and requeued[0]["cause"] == "unhealthy"


def test_a_check_that_hangs_is_a_failure(cluster):
    job, flag = submit(cluster, "hang", "--port", "http:0", "--health", "if test -e $FLAG; then sleep 1000; fi", "--health-interval", "1",
                       "--health-failures", "1", "--grace", "1", "-E", f"FLAG={cluster.home}/hang.ready")
    wait_until(lambda: health(cluster, job) == "ready", 60, "it never gets ready")
    make(flag)
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}")["state"] == "FAILED", 60, "it is not ended")
    assert "no answer in time" in cluster.api.get(f"/v1/jobs/{job}")["reason"]


def test_a_unix_socket(cluster):
    job, flag = submit(cluster, "unix", "--port", f"unix:{cluster.home}/%j.sock", "--health", "/ready")
    make(flag)
    wait_until(lambda: health(cluster, job) == "ready", 60, "it never gets ready")
    assert os.path.exists(f"{cluster.home}/{job}.sock")
    v = visit(cluster, job)
    assert v.get("/")[2] == b"hello"
    cluster.cli("cancel", job)


@needs_root
def test_a_socket_of_somebody_else_is_not_reached(cluster):
    path = f"{cluster.home}/theirs.sock"
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(path)
        os.chmod(path, 0o777)
        s.listen()
        job = subprocess.run([*AS_NOBODY, cluster.binary, "submit", "-Q", "-o", "/dev/null", "--port", f"unix:{path}", "--", "sleep", "1000"],
                             env=cluster.env, capture_output=True, text=True, check=True, cwd="/").stdout.strip()
        wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 60, "it does not run")
        v = visit(cluster, job)
        status, _, page = v.get("/")
        assert status == 502 and b"another user" in page, page
    cluster.cli("cancel", job)


def test_what_is_wrong_is_said(cluster):
    for words, message in ((["--health", "/x"], "no HTTP port to ask"), (["--health", "http:9/x", "--port", "8"], "no HTTP port 9"),
                           (["--health-interval", "3"], "needs a check"), (["--health", "true", "--idle", "1h"], "--health jupyter"),
                           (["--port", "unix:"], "path of a socket")):
        r = cluster.cli("submit", *words, "--", "true", check=False)
        assert r.returncode != 0 and message in r.stderr, r.stderr
