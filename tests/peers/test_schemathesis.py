"""Schemathesis against a live controller: thousands of requests made from the OpenAPI document, over TLS with a token.

Every check is on but two. ignored_auth sends every request again without a token, and who does that is answered later and later; the route walk
(src/controller/test/test_routes.c) does it for each route. positive_data_acceptance: what a schema allows may still be refused for reasons that a schema
cannot express (a project that does not exist, a time that has passed, an action's word where other methods of the
path take a job). Four phases: an example of each operation that is meant to succeed, the borders of every parameter, random
requests, and created things followed through the routes that name them. schemathesis_hooks.py has the examples and keeps
what they name, and the token, in being. Routes that answer when something happens (wait, live, logs with follow) and
WebSockets have tests of their own.

Every operation must have been answered with success at least once, or be listed in NO_SUCCESS with the reason.
"""
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile

import pytest

from tests.lab.api import Api
from tests.lab.command import Cluster
from tests.lab.proc import free_ports

HERE = os.path.dirname(os.path.abspath(__file__))
SECONDS = int(os.environ.get("ACEQUIA_SCHEMATHESIS_SECONDS", "1200"))  # for random requests; the examples and the borders come on top
NOT_ASKED = r"(exec|attach|step|allocate|run|agent|wait|live|logs|connect)$"
NO_SUCCESS = {
    "POST /v1/login/code": "takes a one-time code of `acequia portal`, which this cluster does not have",
    "POST /v1/login/oidc/{name}": "no provider is configured", "POST /v1/login/oidc/{name}/finish": "no provider is configured",
    "POST /v1/devices/{name}": "a person allows a device, in the portal and not with a token",
    "GET /v1/apps/authorize": "answers a browser with a redirect",
    "POST /v1/jobs/{job}/open": "makes a link for a browser's login; a token limited to scopes cannot",
    "DELETE /v1/nodes/{name}": "the only node is connected",
    "POST /v1/hand-over": "wants a second controller",
    "POST /v1/join": "wants a certificate request of a node",
}
SETTINGS = """[checks]
not_a_server_error.expected-statuses = ["2XX", "3XX", "4XX", 507]  # 507: an upload said to be larger than the disk
"""
CONFIG = """[cluster]
listen = 127.0.0.1:{port}
volume_folder = {folder}
[backup]
folder = {folder}
[node *]
cpus = 16
memory = 8G
gpus = a100:4
gpus_simulated = true
"""


@pytest.fixture(scope="module")
def schemathesis():
    """The program, from PyPI, in a folder that outlives the run."""
    folder = os.environ.get("ACEQUIA_SCHEMATHESIS", os.path.join(tempfile.gettempdir(), f"acequia-schemathesis-{os.getuid()}"))
    program = os.path.join(folder, "bin/st")
    if not os.path.exists(program):
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        installed = subprocess.run([os.path.join(folder, "bin/pip"), "install", "-q", "schemathesis>=4,<5"],
                                   capture_output=True, text=True, timeout=600)
        if installed.returncode:
            pytest.skip(f"schemathesis cannot be installed from PyPI: {installed.stderr.strip()[-200:]}")
    return program


class Run:
    """A cluster, a folder that everybody may write to, and schemathesis with its hooks."""

    def __init__(self, program):
        self.program = program
        self.port = free_ports(1)[0]
        self.folder = tempfile.mkdtemp(prefix="acequia-schemathesis-files-")
        os.chmod(self.folder, 0o777)
        self.cluster = Cluster(CONFIG.format(port=self.port, folder=self.folder))
        self.api = Api(os.path.join(self.cluster.home, "run/api.sock"))
        self.answers = {}
        self.operations = {f"{m.upper()} {p}" for p, methods in self.api.get("/v1/openapi.json")["paths"].items() for m in methods}
        self.cluster.run("wait", self.cluster.submit("--", "true"))
        self.cluster.acequia("user", "add", "ana")
        self.api.request("PUT", "/v1/users/ana/password", {"password": "correct horse battery"})

    def close(self):
        self.api.close()
        self.cluster.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def phases(self, phases, *options):
        """Runs these phases; counts the answers of each operation."""
        url = f"https://127.0.0.1:{self.port}"
        counts = os.path.join(self.cluster.home, "answers.json")
        with open(os.path.join(self.cluster.home, "openapi.json"), "wb") as f:
            f.write(self.api.raw("GET", "/v1/openapi.json")[1])
        with open(os.path.join(self.cluster.home, "schemathesis.toml"), "w", encoding="ascii") as f:
            f.write(SETTINGS)
        env = dict(os.environ, SCHEMATHESIS_HOOKS=os.path.join(HERE, "schemathesis_hooks.py"), ACEQUIA_SOCKET=self.api.path, ACEQUIA_URL=url,
                   ACEQUIA_FOLDER=self.folder, ACEQUIA_NODE=self.api.get("/v1/nodes")["nodes"][0]["name"], ACEQUIA_ANSWERS=counts)
        r = subprocess.run(
            [self.program, "run", "openapi.json", "--url", url, "--tls-verify", "false",
             "--exclude-path-regex", NOT_ASKED, "--exclude-checks", "positive_data_acceptance,ignored_auth", "--phases", phases,
             "--request-timeout", "60", "--no-color", "--continue-on-failure", *options],
            cwd=self.cluster.home, env=env, capture_output=True, text=True, timeout=7200, check=False)
        print(r.stdout[-3000:])  # how many operations and cases; pytest shows it with -rA
        with open(counts, encoding="ascii") as f:
            for operation, answers in json.load(f).items():
                have = self.answers.setdefault(operation, {})
                for status, n in answers.items():
                    have[status] = have.get(status, 0) + n
        assert r.returncode == 0, r.stdout[-30000:] + r.stderr[-2000:]
        assert self.api.get("/v1/status")["version"]  # and it is still there


@pytest.mark.long
@pytest.mark.skipif(os.getuid() != 0, reason="requests are made as a user without rights: wants root")
def test_no_finding(schemathesis):
    pwd.getpwnam("games")
    run = Run(schemathesis)
    try:
        run.phases("examples,coverage")
        run.phases("fuzzing,stateful", "--max-examples", "10", "--max-time", str(SECONDS))
        asked = {o: a for o, a in run.answers.items() if o in run.operations}  # and others that the document does not have, which are refused
        without = {o: a for o, a in asked.items() if o not in NO_SUCCESS and not any(s.startswith("2") for s in a)}
        print(f"{sum(sum(a.values()) for a in run.answers.values())} requests to {len(asked)} operations")
        assert not without, f"never answered with success: {without}"
    finally:
        run.close()
