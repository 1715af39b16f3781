"""Notifications: mails through a real SMTP server (aiosmtpd) and signed webhooks, also over a killed controller."""
import hashlib
import hmac
import json
import os
import signal
import socket
import threading
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lab.command import Cluster
from lab.proc import wait_until

smtp = pytest.importorskip("aiosmtpd.controller")
SECRET = "between you and me"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class MailServer:
    def __init__(self, port):
        self.mails = []
        self.port = port
        self.server = None

    async def handle_DATA(self, server, session, envelope):
        self.mails.append((envelope.mail_from, envelope.rcpt_tos, message_from_bytes(envelope.content, policy=policy.default)))
        return "250 OK"

    def start(self):
        self.server = smtp.Controller(self, hostname="127.0.0.1", port=self.port)
        self.server.start()

    def stop(self):
        if self.server:
            self.server.stop()
            self.server = None

    def subjects(self):
        return [str(m["Subject"]) for _, _, m in self.mails]


class HookServer:
    def __init__(self):
        hooks = self.hooks = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hooks.append((self.path, self.headers, body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def world(tmp_path):
    mail, hook = MailServer(free_port()), HookServer()
    secret = tmp_path / "secret"
    secret.write_text(SECRET + "\n")
    secret.chmod(0o600)
    c = Cluster(config=f"""[cluster]
name = lab
[notify]
from = acequia@lab.example
smtp_server = smtp://127.0.0.1:{mail.port}
webhook_hosts = 127.0.0.1
webhook_secret_file = {secret}
""")
    mail.start()
    yield c, mail, hook
    c.close()
    mail.stop()
    hook.stop()


def test_mails_and_webhooks(world):
    c, mail, hook = world
    job = c.submit("--name", "façade", "--notify", "begin,end", "--notify-to", f"ana@example.org,http://127.0.0.1:{hook.port}/x",
                   "--", "true")
    wait_until(lambda: len(mail.mails) == 2 and len(hook.hooks) == 2, 60, lambda: f"{mail.subjects()} {hook.hooks}")
    begun, ended = sorted(mail.mails, key=lambda m: "ended" in str(m[2]["Subject"]))
    assert begun[0] == "acequia@lab.example" and begun[1] == ["ana@example.org"]
    assert str(begun[2]["Subject"]) == f"[lab] Job {job} (façade) started"
    assert f"Job {job} (façade) ended: COMPLETED" in str(ended[2]["Subject"])
    assert f"acequia logs {job}" in ended[2].get_content() and "Exit:     0" in ended[2].get_content()
    for path, headers, body in hook.hooks:
        parts = dict(p.split("=", 1) for p in headers["X-Acequia-Signature"].split(","))
        made = hmac.new(SECRET.encode(), parts["t"].encode() + b"." + body, hashlib.sha256).hexdigest()
        assert hmac.compare_digest(made, parts["v1"])
        assert path == "/x" and json.loads(body)["job"] == int(job) and "façade" in json.loads(body)["text"]


def test_only_what_was_asked_for(world):
    c, mail, _ = world
    good = c.submit("--notify", "fail", "--", "true")
    bad = c.submit("--notify", "fail", "--", "sh", "-c", "exit 3")
    array = c.submit("--notify", "end", "--array", "0-3", "-o", "/dev/null", "--", "sh", "-c", "test $ACEQUIA_ARRAY_TASK_ID != 2")
    wait_until(lambda: len(mail.mails) >= 2, 60, lambda: str(mail.subjects()))
    c.acequia("run", "--", "true")
    assert sorted(mail.subjects())[0].startswith(f"[lab] Array {array} (sh) ended: 3 of 4 elements completed"), mail.subjects()
    assert any(f"Job {bad} (sh) ended: FAILED" in s for s in mail.subjects())
    assert len(mail.mails) == 2 and not any(f"Job {good} " in s for s in mail.subjects())


def test_every_address_counts_towards_the_limit(world):
    c, mail, _ = world
    to = ",".join(f"user{i}@example.org" for i in range(8))
    c.submit("--notify", "end,array_tasks", "--notify-to", to, "--array", "0-26", "-o", "/dev/null", "--", "true")
    wait_until(lambda: len(mail.mails) >= 200, 120, lambda: f"{len(mail.mails)} mails")
    c.acequia("run", "--notify", "end", "--", "true")
    assert len(mail.mails) == 200
    assert sum("This is message 200 within one hour" in m.get_content() for _, _, m in mail.mails) == 1


def test_time_limit_comes_near(world):
    c, mail, _ = world
    job = c.submit("--notify", "time_limit_50", "--time", "20s", "--", "sleep", "60")
    wait_until(lambda: mail.mails, 60, "a warning")
    assert mail.subjects()[0] == f"[lab] Job {job} (sleep) has used 50% of its time limit"
    assert c.state(job) == "RUNNING"
    assert "job_time_warning" in c.acequia("events", job)
    c.acequia("cancel", job)


def test_nothing_is_lost_when_everything_is_down(world):
    c, mail, _ = world
    mail.stop()
    job = c.submit("--notify", "end", "--", "true")
    c.wait_state(job, "COMPLETED")
    with open(os.path.join(c.home, "run", "controller.pid"), encoding="utf-8") as f:
        os.kill(int(f.read()), signal.SIGKILL)
    mail.start()
    c.acequia("up")
    wait_until(lambda: any(f"Job {job} " in s for s in mail.subjects()), 30, lambda: str(mail.subjects()))


def test_alerts(world):
    c, mail, hook = world
    c.acequia("alert", "set", "always", "--metric", "cluster/jobs_pending", "--above", "-1", "--to", f"ops@example.org,http://127.0.0.1:{hook.port}/a")
    wait_until(lambda: mail.mails and hook.hooks, 60, lambda: f"{mail.subjects()} {hook.hooks}")
    assert mail.subjects() == ["[lab] always: cluster/jobs_pending is above -1: 0"] and mail.mails[0][1] == ["ops@example.org"]
    assert "acequia alert ack always cluster/jobs_pending" in mail.mails[0][2].get_content()
    body = json.loads(hook.hooks[0][2])
    assert (body["event"], body["rule"], body["subject"], body["value"]) == ("alert_raised", "always", "cluster/jobs_pending", 0)
    c.acequia("alert", "ack", "always", "cluster/jobs_pending", "--comment", "known")
    assert "known" in c.acequia("alert", "list")
    c.acequia("alert", "set", "always", "--metric", "cluster/jobs_pending", "--above", "1000")  # back within the rule
    wait_until(lambda: "No alerts" in c.acequia("alert", "list"), 30, lambda: c.acequia("alert", "list"))
    c.acequia("alert", "delete", "always")
    assert "always" not in c.acequia("alert", "list")


def test_bad_addresses_and_hosts(world):
    c, _, hook = world
    for option, value, words in (("--notify", "sometimes", "expected a list of begin"),
                                 ("--notify-to", "ana@b\r\nRCPT", "not understood"),
                                 ("--notify-to", "file:///etc/passwd", "not understood")):
        r = c.run("submit", "--notify", "end", option, value, "--", "true")
        assert r.returncode != 0 and words in r.stderr, r.stderr
    refused = '--notify-to: webhooks to "localhost" are not allowed here'
    r = c.run("submit", "--notify", "end", "--notify-to", "ana@b.example,http://localhost:1/x", "--", "true")
    assert r.returncode == 1 and refused in r.stderr and "webhook_hosts" in r.stderr, r
    job = c.submit("--hold", "--", "true")
    r = c.run("update", job, "--notify-to", "http://localhost:1/x")
    assert r.returncode == 1 and refused in r.stderr, r
    # A host that is taken out of the list afterwards: the job runs, nothing is sent, and the status says so.
    c.acequia("update", job, "--notify", "end", "--notify-to", f"http://127.0.0.1:{hook.port}/later")
    sent = len(hook.hooks)
    config = os.path.join(c.home, "acequia.conf")
    with open(config, encoding="utf-8") as f:
        text = f.read()
    with open(config, "w", encoding="utf-8") as f:
        f.write(text.replace("webhook_hosts = 127.0.0.1", "webhook_hosts = other.example"))
    c.acequia("reload")
    c.acequia("release", job)
    wait_until(lambda: "webhook_hosts" in c.acequia("status"), 60, "a warning about the host")
    assert c.state(job) == "COMPLETED" and len(hook.hooks) == sent


def test_a_restart_tells_of_arrays_and_workers_once(world):
    """Nothing could be delivered before the controller was killed; what is sent then is what would have been."""
    c, mail, _ = world
    mail.stop()
    to = ["--notify-to", "ana@example.org", "-o", "/dev/null", "--"]
    array = c.submit("--notify", "begin,end", "--array", "0-5", *to, "sh", "-c", "test $ACEQUIA_ARRAY_TASK_ID != 2")
    pool = c.submit("--notify", "begin,end", "--workers", "2", *to, "true")
    late = c.submit("--notify", "time_limit_50", "-t", "4s", *to, "sleep", "3")
    for job in (array, pool, late):
        c.run("wait", job)
    with open(os.path.join(c.home, "run", "controller.pid"), encoding="utf-8") as f:
        os.kill(int(f.read()), signal.SIGKILL)
    mail.start()
    c.acequia("up")
    expected = [f"Array {array} (sh) started", f"Array {array} (sh) ended: 5 of 6 elements completed",
                f"Job {pool} (true) started", f"Job {pool} (true) ended: COMPLETED",
                f"Job {late} (sleep) has used 50% of its time limit"]
    wait_until(lambda: all(any(x in s for s in mail.subjects()) for x in expected), 60, lambda: str(mail.subjects()))
    assert len(mail.mails) == len(expected), mail.subjects()
