"""The audit log: logins, denials, tokens, what administrators do and read of others; it survives the controller."""
import json
import os
import pwd
import subprocess
import time

import pytest

from tests.journeys.test_front_door import request, user_token
from tests.lab.api import ApiError
from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
NOBODY = pwd.getpwnam("nobody")
AS_NOBODY = ["setpriv", "--reuid", "nobody", "--regid", str(NOBODY.pw_gid), "--clear-groups"]


@pytest.fixture(scope="module")
def cluster():
    with Cluster(agents=["n1"]) as c:
        yield c


def as_nobody(c, *words):
    return subprocess.run([*AS_NOBODY, c.binary, *words], env=c.env, cwd="/tmp", capture_output=True, text=True, check=False)


def records(c, **query):
    q = "&".join(f"{k}={v}" for k, v in query.items())
    return c.api.get(f"/v1/audit?limit=10000&{q}")["records"]


def found(c, **wanted):
    return [r for r in records(c) if all(r[k] == v for k, v in wanted.items())]


def test_denials_and_logins(cluster):
    assert as_nobody(cluster, "drain", "n1", "--reason", "x").returncode != 0
    assert found(cluster, who="nobody", what="POST /v1/nodes/n1/drain", status=403)[0]["from"] == "unix"
    token = user_token(cluster, "nobody")
    assert found(cluster, who="root", what="POST /v1/tokens", status=200) or found(cluster, who="root", what="POST /v1/tokens", status=201)
    for _ in range(3):
        assert request(cluster, "GET", "/v1/status", token=token)[0] == 200
    login = found(cluster, who="nobody", what="login", on=f"token {token.split('.')[1]}")
    assert len(login) == 1 and login[0]["from"].startswith("[127.0.0.1]:")
    assert request(cluster, "GET", "/v1/nodes", token="aq1.wrong")[0] == 401
    assert found(cluster, who=None, what="GET /v1/nodes", status=401)
    assert not any(token.split(".")[2] in json.dumps(r) for r in records(cluster)), "a secret is in the log"


def test_administrators_and_others_jobs(cluster):
    done = as_nobody(cluster, "submit", "-Q", "--hold", "-o", "/dev/null", "--", "true")
    theirs = done.stdout.strip()
    assert theirs, done.stderr
    own = cluster.cli("submit", "-Q", "--hold", "-o", "/dev/null", "--", "true").stdout.strip()
    for job in (theirs, own):
        cluster.api.raw("GET", f"/v1/jobs/{job}/environment")
    assert found(cluster, who="root", what=f"GET /v1/jobs/{theirs}/environment")
    assert not found(cluster, what=f"GET /v1/jobs/{own}/environment")
    cluster.cli("cancel", theirs, own)
    assert f'"{theirs}"' in found(cluster, who="root", what="POST /v1/jobs/cancel", status=200)[0]["on"]
    before = len(records(cluster))
    as_nobody(cluster, "list")
    as_nobody(cluster, "submit", "-Q", "--hold", "-o", "/dev/null", "--", "true")
    as_nobody(cluster, "cancel", "--all")
    assert len([r for r in records(cluster) if r["who"] == "nobody"]) == len([r for r in records(cluster)[-before:] if r["who"] == "nobody"])


def test_a_change_says_what_it_changed(cluster):
    cluster.cli("project", "create", "audited", "--quota", "4")
    cluster.cli("project", "edit", "audited", "--quota", "8", "--members", "eva,joan")
    cluster.cli("project", "edit", "audited", "--limit", "9")
    cluster.cli("project", "delete", "audited")
    cluster.cli("policy", "set", "min_run=10m")
    on = [r["on"] for r in reversed(found(cluster, who="root", status=200)) if "audited" in r["what"] and r["on"]]
    assert on == ["new, quota: 4", "quota: 4 -> 8, members: none -> eva, joan", "limit: none -> 9",
                  "deleted with 0 live jobs"], on
    assert "min_run: 0s -> 10m" in cluster.cli("audit").stdout
    cluster.cli("policy", "set", "min_run=0s")


def test_only_administrators_read_it(cluster):
    assert "administrator" in as_nobody(cluster, "audit").stderr
    shown = cluster.cli("audit", "--user", "nobody").stdout
    assert shown.startswith("TIME") and "403" in shown and "root" not in shown.split("\n", 1)[1].replace("/root", "")


def test_a_stranger_cannot_push_out_the_records_of_others(cluster):
    """Joining is possible without a token, so everybody can send nonsense there."""
    began = time.monotonic()
    answers = [request(cluster, "POST", "/v1/join", body=b"{}")[0] for _ in range(150)]
    minutes = int((time.monotonic() - began) // 60) + 2  # that it may have touched, however slow the machine is
    assert set(answers) == {400}
    assert 0 < len(found(cluster, what="POST /v1/join", status=400)) <= 60 * minutes
    before = len(found(cluster, who="nobody", what="POST /v1/nodes/n1/drain", status=403))
    assert as_nobody(cluster, "drain", "n1", "--reason", "x").returncode
    assert len(found(cluster, who="nobody", what="POST /v1/nodes/n1/drain", status=403)) == before + 1  # others are still recorded


def test_a_user_cannot_push_out_the_records_of_others(cluster):
    script = ("import sys; sys.path.insert(0, sys.argv[2])\nfrom tests.lab.api import Api\napi = Api(sys.argv[1])\n"
              "for _ in range(150):\n    t = api.post('/v1/tokens', {'kind': 'user'})\n    api.request('DELETE', '/v1/tokens/' + t['id'])\n")
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    subprocess.run([*AS_NOBODY, "/usr/bin/python3", "-c", script, f"{cluster.home}/run/api.sock", root], check=True, cwd="/")
    assert len([r for r in records(cluster) if r["who"] == "nobody" and "/v1/tokens" in r["what"]]) <= 180


def test_it_survives_the_controller_and_a_flood_of_denials(cluster):
    assert request(cluster, "GET", "/v1/status", token=user_token(cluster, "nobody"))[0] == 200
    kept = found(cluster, what="login")
    cluster.kill_controller()
    cluster.start_controller()
    cluster.wait_ready()
    assert found(cluster, what="login") == kept and kept
    script = ("import sys; sys.path.insert(0, sys.argv[2])\nfrom tests.lab.api import Api, ApiError\napi = Api(sys.argv[1])\n"
              "for _ in range(700):\n    try:\n        api.get('/v1/audit')\n    except ApiError:\n        pass\n")
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    before = len(found(cluster, who="nobody", what="GET /v1/audit"))
    subprocess.run([*AS_NOBODY, "/usr/bin/python3", "-c", script, f"{cluster.home}/run/api.sock", root], check=True, cwd="/")
    assert 0 < len(found(cluster, who="nobody", what="GET /v1/audit")) - before < 700  # the rest was counted
    with pytest.raises(ApiError):
        cluster.api.get("/v1/jobs/999999")
    wait_until(cluster.nodes_up, 20, "no node")
