"""Logins by way of a provider of OpenID Connect, as a browser makes them, without one: what is taken, and everything that is not."""
import json
import os
import re
import socket
import subprocess
import urllib.parse

import pytest

from tests.journeys.test_login import SAME, ask, place
from tests.lab.cluster import Cluster
from tests.lab.oidc import FAULTS, SECRET, Provider

JOB = {"spec": {"argv": ["true"], "workdir": "/", "output": "/dev/null"}}


def section(name, p, folder, more=""):
    file = folder / f"{name}.secret"
    file.write_text(SECRET + "\n")
    secret = "" if p.public else f"client_secret_file = {file}\n"
    return f"[oidc {name}]\nissuer = {p.issuer}\nclient_id = acequia\n{secret}{more}"


@pytest.fixture(scope="module", name="lab")
def lab_fixture(tmp_path_factory):
    folder = tmp_path_factory.mktemp("oidc")
    with Provider() as p, Provider("ES256", public=True) as other:
        config = (section("lab", p, folder, "title = Lab account\nuser_claim = user\ngroups_claim = groups\nmin_uid = 2\n"
                          "operator_groups = ops\nadmin_groups = /lab/heads, bosses\nproject_groups = /lab/vision=vision, ops=speech\n") +
                  section("other", other, folder, "allowed_groups = staff, /a group\ngroups_claim = roles\n"))
        p.people.update({"ana": {"name": "Ana B"}, "joan": {"user": "nobody"}, "root": {"user": "root"}})
        other.people.update({"eva": {"roles": ["x", "/a group"]}, "max": {"roles": ["staffs"]}})
        with Cluster(agents=["n1"], config=config) as c:
            yield c, p, other, place(c)[0]


@pytest.fixture(autouse=True)
def no_fault(lab):
    lab[1].fault = lab[2].fault = None


def begin(host, name="lab", **headers):
    """The address of the provider's login page, as its parts, and the cookie that goes with it."""
    status, answer, _, cookies = full(host, "POST", f"/v1/login/oidc/{name}", **(headers or SAME))
    assert status == 200, answer
    query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(answer["url"]).query))
    return query, cookies["acequia_login"]


def full(host, method, path, body=None, cookie=None, **headers):
    if cookie:
        headers["Cookie"] = f"acequia_login={cookie}"
    status, answer, session = ask(host, method, path, body, None, **headers)
    return status, answer, session, ask.cookies


def finish(host, code, state, cookie, name="lab", **more):
    return full(host, "POST", f"/v1/login/oidc/{name}/finish", {"code": code, "state": state, **more}, cookie, **SAME)


def log_in(host, provider, person, name="lab"):
    query, cookie = begin(host, name)
    return finish(host, provider.code_for(person, query), query["state"], cookie, name, iss=provider.issuer)


def test_people_are_who_the_provider_says(lab):
    c, p, other, host = lab
    methods = ask(host, "GET", "/v1/login")[1]
    assert methods["providers"] == [{"name": "lab", "title": "Lab account"}, {"name": "other", "title": "other"}]
    status, me, session, cookies = log_in(host, p, "ana")
    assert status == 200 and me["identity"] == "oidc:lab:id-ana" and me["full_name"] == "Ana B" and not me["may_submit"], me
    assert cookies["acequia_login"] == ""  # it has served its time
    assert ask(host, "POST", "/v1/jobs", JOB, session, **SAME)[0] == 403
    # By table.
    c.cli("user", "add", "ana", "--unix-user", "daemon", "--identities", "oidc:lab:id-ana", "--role", "operator")
    assert ask(host, "GET", "/v1/me", cookie=session)[1]["user"] == "daemon"
    # By claim; but nobody becomes a user of the system's own, also where an account has that user.
    assert log_in(host, p, "joan")[1]["user"] == "nobody"
    assert not log_in(host, p, "root")[1]["may_submit"]
    c.cli("user", "add", "boss", "--unix-user", "root")
    status, me, _, _ = log_in(host, p, "root")
    assert status == 200 and not me["may_submit"] and me["role"] == "user", me
    # ES256, a client without a secret, groups that may log in.
    assert log_in(host, other, "eva", "other")[1]["identity"] == "oidc:other:id-eva"
    status, answer, _, _ = log_in(host, other, "max", "other")
    assert status == 401 and "groups" in answer["error"]["message"]
    c.cli("user", "set", "ana", "--disabled", "yes")
    assert log_in(host, p, "ana")[0] == 401
    c.cli("user", "remove", "ana")
    c.cli("user", "remove", "boss")
    assert "oidc:lab:id-joan" in c.cli("audit").stdout


def test_groups_give_roles_and_projects(lab):
    c, p, _, host = lab
    c.cli("project", "create", "vision", "--quota", "1", "--members", "root")

    def of(*groups):
        p.people["joan"] = {"user": "nobody", "groups": list(groups)}
        return log_in(host, p, "joan")[1:3]

    def submits(session):
        return ask(host, "POST", "/v1/jobs", {"spec": {**JOB["spec"], "project": "vision"}}, session, **SAME)[0]

    me, session = of("others", "/lab/visions")
    assert me["role"] == "user" and submits(session) == 403
    me, session = of("/lab/vision")
    assert me["role"] == "user" and "vision" in {x["name"] for x in me["projects"]} and submits(session) == 201
    assert of("ops")[0]["role"] == "operator"
    me, session = of("bosses", "ops")
    assert me["role"] == "admin" and ask(host, "GET", "/v1/audit", cookie=session)[0] == 200
    # It outlives the controller, and a login that says less takes it away.
    c.kill_controller()
    c.start_controller()
    assert place(c)[0] == host
    assert ask(host, "GET", "/v1/me", cookie=session)[1]["role"] == "admin"
    of()
    assert ask(host, "GET", "/v1/me", cookie=session)[1]["role"] == "user" and submits(session) == 403
    assert not of("/lab/heads/")[0]["role"] == "admin"
    # Without a Unix user there is nobody to give it to.
    p.people["ana"] = {"groups": ["bosses"]}
    assert log_in(host, p, "ana")[1]["role"] == "user"


def test_claims_of_the_userinfo_address_and_new_keys(lab):
    _, p, _, host = lab
    p.in_userinfo = ("user",)
    assert log_in(host, p, "joan")[1]["user"] == "nobody"
    p.fault = "userinfo"
    assert log_in(host, p, "joan")[0] == 401  # claims of somebody else
    p.fault, p.in_userinfo = None, ()
    p.rotate()
    assert log_in(host, p, "joan")[0] == 200


@pytest.mark.parametrize("fault", [f for f in FAULTS if f != "userinfo"])
def test_a_wrong_token_lets_nobody_in(lab, fault):
    _, p, _, host = lab
    p.fault = fault
    status, answer, session, _ = log_in(host, p, "joan")
    assert status == 401 and not session and "ID token" in answer["error"]["message"], answer


@pytest.mark.parametrize("fault,word", [("huge", "too large"), ("redirect", "redirects"), ("document", "another issuer")])
def test_a_hostile_provider_is_an_error(lab, fault, word):
    c, p, _, host = lab
    query, cookie = begin(host)
    p.fault = fault
    status, answer, _, _ = finish(host, p.code_for("joan", query), query["state"], cookie)
    assert status == 503 and word in answer["error"]["message"], answer
    assert "/elsewhere" not in p.asked
    assert c.api.get("/v1/status")


CONTROL = "\x1b[31m\x9b\x07\u202e\u200bred\n"


@pytest.mark.parametrize("claims, status", [({"name": "Joan" + CONTROL}, 200), ({"user": "nob" + CONTROL}, 200), ({"groups": ["ops" + CONTROL, CONTROL]}, 200),
                                            ({"sub": "id" + CONTROL}, 401)])
def test_control_characters_in_claims(lab, claims, status):
    """Whatever a provider says of a person, it reaches no terminal."""
    c, p, _, host = lab
    p.people["strange"] = {"user": "nobody", **claims}
    got, me, session, _ = log_in(host, p, "strange")
    assert got == status, me
    texts = [json.dumps(me, ensure_ascii=False)]
    for command in (["session", "list"], ["user", "list"], ["audit"], ["status"], ["list"]):
        texts.append(c.cli(*command).stdout)
    with open(f"{c.home}/log/controller.log", encoding="utf-8", errors="surrogateescape") as f:
        texts.append(f.read())
    for text in texts:
        assert not any(x in text for x in "\x1b\x9b\x07\u202e\u200b"), text
    if session:
        assert ask(host, "GET", "/v1/me", cookie=session)[1]["role"] == "user"  # "ops" it was not


def test_logins_begun_from_many_addresses_keep_nobody_out(lab):
    """As many as are kept in all: who is at the provider's page comes back, and others begin."""
    _, p, _, host = lab
    query, cookie = begin(host)
    port = int(host.rsplit(":", 1)[1])
    head = f"POST /v1/login/oidc/lab HTTP/1.1\r\nHost: {host}\r\nSec-Fetch-Site: same-origin\r\nContent-Length: 0\r\n\r\n".encode()
    for i in range(70):
        with socket.create_connection(("127.0.0.1", port), timeout=60, source_address=(f"127.9.0.{i + 1}", 0)) as s:
            for _ in range(64):
                s.sendall(head)
                data = b""
                while b"\r\n\r\n" not in data or len(data.split(b"\r\n\r\n", 1)[1]) < int(re.search(rb"(?i)content-length: (\d+)", data)[1]):
                    data += s.recv(65536)
                assert b" 200 " in data[:15], data
    assert finish(host, p.code_for("joan", query), query["state"], cookie)[0] == 200
    assert log_in(host, p, "joan")[0] == 200


def test_a_slow_provider_holds_up_nobody(lab):
    _, p, other, host = lab
    query, cookie = begin(host)
    p.fault = "slow"
    code = p.code_for("joan", query)
    child = os.fork()
    if child == 0:
        finish(host, code, query["state"], cookie)
        os._exit(0)
    try:
        assert log_in(host, other, "eva", "other")[0] == 200
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_a_login_belongs_to_one_browser_and_is_finished_once(lab):
    _, p, other, host = lab
    query, cookie = begin(host)
    code = p.code_for("joan", query)
    assert finish(host, code, "0" * 64, cookie)[0] == 401               # another state
    assert finish(host, code, query["state"], None)[0] == 401           # another browser: login CSRF
    assert finish(host, code, query["state"], begin(host)[1])[0] == 401  # another login of the same browser
    assert finish(host, code, query["state"], cookie, "other")[0] == 401  # another provider: mix-up
    assert finish(host, code, query["state"], cookie, iss=other.issuer)[0] == 401
    assert finish(host, code, query["state"], cookie)[0] == 200
    p.codes[code] = ("joan", query)  # a provider that takes a code twice
    assert finish(host, code, query["state"], cookie)[0] == 401
    # The code of another login: the provider's proof key does not match.
    query, cookie = begin(host)
    assert finish(host, p.code_for("joan", begin(host)[0]), query["state"], cookie)[0] == 401
    # A page of another server begins and finishes nothing.
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://evil.example"}):
        assert full(host, "POST", "/v1/login/oidc/lab", **headers)[0] == 403
        assert full(host, "POST", "/v1/login/oidc/lab/finish", {"code": "x", "state": "y"}, cookie, **headers)[0] == 403
    assert full(host, "POST", "/v1/login/oidc/lab", named="evil.example", **SAME)[0] == 421
    assert full(host, "POST", "/v1/login/oidc/nobody", **SAME)[0] == 404


def test_the_redirect_and_the_challenge(lab):
    _, _, _, host = lab
    query, _ = begin(host)
    assert query["redirect_uri"] == f"http://{host}/login/lab/callback" and query["response_type"] == "code"
    assert len(query["code_challenge"]) == 43 and query["code_challenge_method"] == "S256"
    assert re.fullmatch("[0-9a-f]{64}", query["state"]) and query["state"] != begin(host)[0]["state"]


def test_the_providers_certificate_is_checked(tmp_path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert], check=True, capture_output=True)
    with Provider(certificate=(cert, key)) as p:
        p.people["ana"] = {}
        config = section("good", p, tmp_path, f"ca_file = {cert}\n") + section("bad", p, tmp_path)
        with Cluster(config=config) as c:
            host = place(c)[0]
            assert log_in(host, p, "ana", "good")[0] == 200
            status, answer, _, _ = full(host, "POST", "/v1/login/oidc/bad", **SAME)
            assert status == 503 and "certificate" in answer["error"]["message"], answer
