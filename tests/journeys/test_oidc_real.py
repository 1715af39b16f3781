"""Logging in by way of a provider that others have written: PyPI's oidc-provider-mock, with its own forms, tokens and keys. In the long run only:
it is fetched from a registry of packages."""
import contextlib
import json
import os
import subprocess
import sys
import urllib.parse
import urllib.request

import pytest

from tests.journeys.test_login import SAME, ask, place
from tests.journeys.test_oidc import begin, finish
from tests.lab.cluster import Cluster
from tests.lab.proc import end_child, free_ports, wait_until

pytestmark = pytest.mark.long


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):  # pylint: disable=arguments-differ
        return None


@contextlib.contextmanager
def running(folder):
    made = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--target", folder, "oidc-provider-mock"], check=False, capture_output=True, timeout=600)
    if made.returncode:
        pytest.skip("PyPI's oidc-provider-mock cannot be installed here")
    port = free_ports(1)[0]
    env = {**os.environ, "PYTHONPATH": str(folder)}
    people = [{"sub": "ana-77", "preferred_username": "nobody", "name": "Ana B", "groups": ["lab"]}, {"sub": "eva", "preferred_username": "root"}]
    with subprocess.Popen([sys.executable, "-m", "oidc_provider_mock", "--port", str(port), *(x for p in people for x in ("--user-claims", json.dumps(p)))],
                          env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        url = f"http://localhost:{port}"

        def answers():
            with contextlib.suppress(OSError):
                return urllib.request.urlopen(f"{url}/.well-known/openid-configuration", timeout=10).status == 200
            return False

        try:
            wait_until(answers, 30, "the provider does not answer")
            yield url
        finally:
            end_child(server)


def prove(url, person):
    """Fills in the provider's form; what it sends the browser back with."""
    opener = urllib.request.build_opener(NoRedirect)
    try:
        opener.open(url, data=urllib.parse.urlencode({"sub": person}).encode(), timeout=30)
    except urllib.error.HTTPError as e:
        return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(e.headers["Location"]).query))
    raise AssertionError("the provider does not send the browser back")


def test_a_provider_of_others(tmp_path):
    with running(tmp_path / "packages") as issuer:
        secret = tmp_path / "secret"
        secret.write_text("any secret\n")
        config = (f"[oidc mock]\nissuer = {issuer}\nclient_id = acequia\nclient_secret_file = {secret}\nuser_claim = preferred_username\nmin_uid = 2\n"
                  "groups_claim = groups\noperator_groups = lab\n")
        with Cluster(config=config) as c:
            host = place(c)[0]
            for person, user, role in (("ana-77", "nobody", "operator"), ("eva", None, "user")):
                query, cookie = begin(host, "mock")
                back = prove(f"{issuer}/oauth2/authorize?{urllib.parse.urlencode(query)}", person)
                assert back["state"] == query["state"]
                status, me, session, _ = finish(host, back["code"], back["state"], cookie, "mock", **({"iss": back["iss"]} if "iss" in back else {}))
                assert status == 200 and me["identity"] == f"oidc:mock:{person}" and me["role"] == role, me
                assert me["may_submit"] == bool(user) and (not user or me["user"] == user)
                assert ask(host, "GET", "/v1/me", cookie=session)[0] == 200
            # The provider takes a code once, and so do we.
            assert finish(host, back["code"], back["state"], cookie, "mock")[0] == 401
            query, cookie = begin(host, "mock")
            assert finish(host, back["code"], query["state"], cookie, "mock")[0] == 401
            assert ask(host, "GET", "/v1/login", **SAME)[1]["providers"][0]["name"] == "mock"
