"""Who may do what: strangers, other users, wrong and used tokens; secrets stay where they belong."""
import json
import os
import pwd
import socket
import ssl
import subprocess

import pytest

from tests.lab.api import ApiError
from tests.lab.cluster import Cluster
from tests.lab.proc import processes_naming, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
NOBODY = pwd.getpwnam("nobody")
AS_NOBODY = ["setpriv", "--reuid", "nobody", "--regid", str(NOBODY.pw_gid), "--clear-groups"]


@pytest.fixture(scope="module")
def cluster():
    with Cluster(agents=["n1"]) as c:
        yield c


def as_nobody(c, *arguments):
    return subprocess.run([*AS_NOBODY, c.binary, *arguments], env=c.env, capture_output=True, text=True, check=False, cwd="/tmp",
                          stdin=subprocess.DEVNULL)


def http(c, method, path, body="", headers="", tls=True):
    """One request over TLS without a client certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", c.port), timeout=180) as raw, context.wrap_socket(raw) as s:
        s.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{headers}\r\n{body}".encode())
        data = b""
        while chunk := s.recv(65536):
            data += chunk
    return int(data.split()[1]), data


def test_every_route_refuses_a_stranger(cluster):
    """Over TLS without token or certificate nothing answers but joining, which wants a token, and logging in."""
    routes = cluster.api.get("/v1")
    assert len(routes) > 30
    for route in routes:
        path = route["path"].replace("{job}", "1").replace("{name}", "x")
        status, data = http(cluster, route["method"], path, "{}")
        expected = {"/v1/join": 400, "/v1/agent": 403, "/v1/apps/authorize": 400}.get(route["path"], 401)
        if path.startswith(("/v1/login", "/v1/logout")):
            expected = 421  # for everybody, but only under a name of this server
        assert status == expected, (route, data[:200])


def test_plain_http_and_old_tls_get_nothing(cluster):
    with socket.create_connection(("127.0.0.1", cluster.port), timeout=180) as s:
        s.sendall(b"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"cluster" not in s.recv(4096)


def test_other_users_see_no_private_parts(cluster):
    job = cluster.api.post("/v1/jobs", {"spec": {"name": "secret-plan", "workdir": "/root", "argv": ["sh", "-c", "sleep 60 # hush"], "comment": "hush"},
                                        "environment": ["PASSWORD=hush"]})["id"]
    for verb in (["get"], ["logs"], ["events"], ["exec", "--"], ["list", "--json"]):
        arguments = [*verb[:1], str(job), *verb[1:]] if verb[0] != "list" else verb
        done = as_nobody(cluster, *arguments, *(["true"] if verb[0] == "exec" else []))
        assert "hush" not in done.stdout + done.stderr, (verb, done.stdout)
    for verb in ("cancel", "hold", "requeue"):
        done = as_nobody(cluster, verb, str(job))
        assert done.returncode == 1 and "is another user" in done.stderr, done
    for arguments in (["drain", "n1", "--reason", "x"], ["token", "create"], ["project", "create", "mine", "--quota", "1"]):
        done = as_nobody(cluster, *arguments)
        assert done.returncode == 1 and "administrator" in done.stderr, (arguments, done.stderr)
    assert cluster.api.get(f"/v1/jobs/{job}")["state"] in ("RUNNING", "STARTING", "PENDING")
    cluster.cli("cancel", str(job))


def test_a_sharing_project_shows_output_and_nothing_more(cluster):
    """Members of a project that shares logs see each other's output; they do not become each other."""
    cluster.api.request("PUT", "/v1/projects/open", {"name": "open", "members": ["root", "nobody"], "shared_logs": True})
    out = f"{cluster.home}/shared-out"
    job = cluster.api.post("/v1/jobs", {"spec": {"name": "s", "project": "open", "workdir": "/tmp", "output": out, "argv": ["sh", "-c", "echo seen; sleep 30"]}})["id"]
    wait_until(lambda: os.path.exists(out) and os.path.getsize(out), 10, "no output")
    assert as_nobody(cluster, "logs", str(job)).stdout == "seen\n"
    done = as_nobody(cluster, "exec", str(job), "--", "id", "-un")
    assert done.returncode != 0 and "root" not in done.stdout, done
    assert as_nobody(cluster, "cancel", str(job)).returncode == 1
    cluster.cli("cancel", str(job))


def test_a_token_works_once_and_only_as_it_is(cluster):
    token = cluster.api.post("/v1/tokens", {"kind": "agent"})["token"]
    home = f"{cluster.home}/intruder"
    os.makedirs(home)

    def join(name, text):
        path = f"{home}/token-{name}"
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, 0o600)
        return subprocess.run([cluster.binary, "agent", "--name", name, "--join", f"127.0.0.1:{cluster.port}", "--token-file", path],
                              env=dict(cluster.env, ACEQUIA_HOME=f"{home}/{name}"), capture_output=True, text=True, timeout=180, check=False)

    parts = token.split(".")
    wrong_secret = ".".join([parts[0], parts[1], "0" * len(parts[2]), parts[3]])
    wrong_ca = ".".join([parts[0], parts[1], parts[2], "0" * len(parts[3])])
    for name, text in (("x1", wrong_secret), ("x2", wrong_ca), ("x3", "nonsense"), ("x4", "")):
        os.makedirs(f"{home}/{name}")
        done = join(name, text)
        assert done.returncode == 1, (name, done.stderr)
    # The wrong CA was noticed before the secret was told: the token is still good, once.
    cluster.join_agent("n2")
    used = open(f"{cluster.home}/agent-n2/token", encoding="utf-8").read()
    wait_until(lambda: "n2" in cluster.nodes_up(), 20, "n2 does not join")
    os.makedirs(f"{home}/x5")
    done = join("x5", used)
    assert done.returncode == 1 and "not valid" in done.stderr, done.stderr
    names = {n["name"] for n in cluster.api.get("/v1/nodes")["nodes"]}
    assert not names & {"x1", "x2", "x3", "x4", "x5"}


def test_a_user_token_stands_for_its_user_over_tls(cluster):
    token = cluster.api.post("/v1/tokens", {"kind": "user", "user": "nobody"})["token"]
    status, data = http(cluster, "GET", "/v1/status", headers=f"Authorization: Bearer {token}\r\n")
    body = json.loads(data.split(b"\r\n\r\n", 1)[1])
    assert status == 200 and body["user"] == "nobody" and not body["admin"]
    bad = token[:-70] + ("0" if token[-70] != "0" else "1") + token[-69:]
    assert http(cluster, "GET", "/v1/status", headers=f"Authorization: Bearer {bad}\r\n")[0] == 401


def test_a_token_for_nobody_is_not_made(cluster):
    with pytest.raises(ApiError) as refused:
        cluster.api.post("/v1/tokens", {"kind": "user", "user": "no-such-user"})
    assert refused.value.status == 404 and "no user no-such-user" in str(refused.value)


def test_secrets_are_in_private_files_only(cluster):
    """No token, key or job environment in logs or in files that others can read."""
    cluster.api.post("/v1/jobs", {"spec": {"name": "s", "workdir": "/tmp", "output": "/dev/null", "argv": ["true"]}, "environment": ["PASSWORD=hush-hush"]})
    tokens = [open(f"{cluster.home}/agent-{n}/token", encoding="utf-8").read().strip().split(".")[2] for n in ("n1", "n2")]
    for folder, _, files in os.walk(cluster.home):
        for name in files:
            path = os.path.join(folder, name)
            if not os.path.isfile(path):
                continue
            data = open(path, "rb").read()
            secret = b"PRIVATE KEY" in data or b"hush-hush" in data or any(t.encode() in data for t in tokens)
            reachable = os.stat(path).st_mode & 0o044 and all(os.stat(p).st_mode & 0o001 for p in parents(path, cluster.home))
            assert not (secret and reachable), f"{path} can be read by others"
            if name.endswith((".log", ".out")):
                assert not secret, f"a secret in {path}"


def parents(path, top):
    while path != top:
        path = os.path.dirname(path)
        yield path


def test_nothing_secret_in_command_lines(cluster):
    """Of this cluster only: other programs of the machine, also other tests, may show tokens of their own."""
    seen = set()
    for pid in processes_naming(cluster.home):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                line = f.read()
        except OSError:
            continue  # it has ended
        assert b"aq1." not in line
        seen |= {daemon for daemon in ("controller", "agent-n1") if pid == cluster.pid(daemon)}
    assert seen == {"controller", "agent-n1"}
