"""Logging in from a browser's place: the link, own users and the system's (PAM), sessions, other pages and other hosts."""
import http.client
import json
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.lab.cluster import Cluster

SAME = {"Sec-Fetch-Site": "same-origin"}
SERVICE = f"acequia-test-{os.getpid()}"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pam")
    checker = folder / "check"
    checker.write_text('#!/bin/sh\nread -r word\n[ "$PAM_USER" = nobody ] && [ "$word" = "right one" ]\n')
    checker.chmod(0o755)
    service = f"/etc/pam.d/{SERVICE}"
    if os.geteuid() == 0:
        with open(service, "w", encoding="ascii") as f:
            f.write(f"auth sufficient pam_exec.so quiet expose_authtok {checker}\nauth required pam_deny.so\naccount required pam_permit.so\n")
    try:
        with Cluster(agents=["n1"], config=f"[login]\npam_service = {SERVICE}\n") as c:
            yield c
    finally:
        if os.geteuid() == 0:
            os.unlink(service)


def place(c):
    host, code = re.fullmatch(r"http://([0-9a-f]{32}\.localhost:\d+)/#code=(\S+)\s*", c.cli("portal").stdout).groups()
    return host, code


def ask(host, method, path, body=None, cookie=None, **headers):
    """As a browser does that resolves *.localhost to this machine."""
    k = http.client.HTTPConnection("127.0.0.1", int(host.rsplit(":", 1)[1]), timeout=60)
    h = {"Host": headers.pop("named", host), **{a.replace("_", "-"): b for a, b in headers.items()}}
    if cookie:
        h["Cookie"] = f"acequia_session={cookie}"
    k.request(method, path, body=None if body is None else json.dumps(body), headers=h)
    r = k.getresponse()
    data = r.read()
    ask.cookies = dict(re.match(r"([^=]*)=([^;]*)", line).groups() for line in r.headers.get_all("Set-Cookie") or [])
    return r.status, json.loads(data) if data[:1] == b"{" else data, ask.cookies.get("acequia_session")


def log_in(host, **body):
    return ask(host, "POST", "/v1/login", body, **SAME)


def test_the_link_opens_a_session_once(cluster):
    host, code = place(cluster)
    status, me, cookie = ask(host, "POST", "/v1/login/code", {"code": code}, **SAME)
    assert status == 200 and me["role"] == "admin" and me["via"] == "session" and "users" in me["capabilities"], me
    assert ask(host, "POST", "/v1/login/code", {"code": code}, **SAME)[0] == 401
    assert ask(host, "GET", "/v1/jobs", cookie=cookie)[0] == 200
    assert ask(host, "GET", "/v1/jobs")[0] == 401
    # Of many who come with the same code at once, one gets in.
    _, code = place(cluster)
    with ThreadPoolExecutor(16) as many:
        answers = list(many.map(lambda _: ask(host, "POST", "/v1/login/code", {"code": code}, **SAME)[0], range(16)))
    assert answers.count(200) == 1 and set(answers) <= {200, 401, 429}, answers
    # Another host's name (DNS rebinding), another page's request (CSRF) and WebSocket.
    assert ask(host, "GET", "/v1/jobs", cookie=cookie, named="evil.example")[0] == 421
    assert ask(host, "POST", "/v1/jobs/cancel", {"all": True}, cookie, Origin="http://evil.example")[0] == 403
    socket = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec_WebSocket_Version": "13",
              "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ=="}
    assert ask(host, "GET", "/v1/run", None, cookie, Origin="http://evil.example", **socket)[0] == 403
    assert ask(host, "GET", "/v1/run", None, cookie, Origin=f"http://{host}", **socket)[0] == 101
    # The login and the address outlive a restart of the controller.
    cluster.kill_controller()
    cluster.start_controller()
    assert place(cluster)[0] == host
    assert ask(host, "GET", "/v1/me", cookie=cookie)[0] == 200
    for session in json.loads(cluster.cli("session", "list", "--json").stdout)["sessions"]:  # of both codes
        cluster.cli("session", "revoke", session["id"])
    assert ask(host, "GET", "/v1/me", cookie=cookie)[0] == 401


def test_own_users(cluster):
    host, _ = place(cluster)
    cluster.cli("user", "add", "ana", "--full-name", "Ana B")
    subprocess.run([cluster.binary, "user", "passwd", "ana"], env=cluster.env, input=b"correct horse\n", check=True)
    assert log_in(host, method="own", user="ana", password="wrong horse")[0] == 401
    status, me, cookie = log_in(host, method="own", user="ana", password="correct horse")
    assert status == 200 and not me["may_submit"] and me["identity"] == "own:ana", me
    job = {"spec": {"argv": ["true"], "workdir": "/", "output": "/dev/null"}}
    assert ask(host, "POST", "/v1/jobs", job, cookie, **SAME)[0] == 403  # no Unix user: she looks
    if os.geteuid() != 0:
        return
    cluster.cli("user", "set", "ana", "--unix-user", "nobody")
    status, made, _ = ask(host, "POST", "/v1/jobs", job, cookie, **SAME)
    assert status == 201
    assert cluster.api.get(f"/v1/jobs/{made['id']}")["user"] == "nobody"
    assert "ana" in cluster.cli("user", "list").stdout
    cluster.cli("user", "remove", "ana")
    assert ask(host, "GET", "/v1/me", cookie=cookie)[0] == 401


@pytest.mark.skipif(os.geteuid() != 0, reason="a service of PAM is a file of root's")
def test_users_of_the_system(cluster):
    host, _ = place(cluster)
    assert "pam" in ask(host, "GET", "/v1/login")[1]["methods"]
    assert log_in(host, method="pam", user="nobody", password="wrong one")[0] == 401
    assert log_in(host, method="pam", user="daemon", password="right one")[0] == 401
    status, me, cookie = log_in(host, method="pam", user="nobody", password="right one")
    assert status == 200 and me["user"] == "nobody" and me["role"] == "user" and me["may_submit"], me
    assert ask(host, "GET", "/v1/audit", cookie=cookie)[0] == 403
    text = cluster.cli("audit").stdout
    assert "pam:nobody" in text and "right one" not in text and "wrong one" not in text
