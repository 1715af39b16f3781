"""Schemathesis against a live controller: thousands of requests made from the OpenAPI document, over TLS with a token.

Every check is on but positive_data_acceptance: what a schema allows may still be refused for reasons that a schema
cannot express (a project that does not exist, a time that has passed, an action's word where other methods of the
path take a job). Ten examples for each operation beside those of the coverage phase: some 7,000 requests. The stateful
phase follows created things through the routes that name them. Routes that answer when something happens (wait, live,
logs with follow) and WebSockets have tests of their own.
"""
import os
import subprocess
import sys
import tempfile

import pytest

from tests.lab.api import Api
from tests.lab.command import Cluster
from tests.lab.proc import free_ports

NOT_ASKED = r"(exec|attach|step|allocate|run|agent|wait|live|logs)$"
CONFIG = """[cluster]
listen = 127.0.0.1:{port}
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


@pytest.mark.long
def test_no_finding(schemathesis):
    port = free_ports(1)[0]
    cluster = Cluster(CONFIG.format(port=port))
    try:
        cluster.run("wait", cluster.submit("--", "true"))
        cluster.submit("--gpus", "1", "--time", "1h", "--", "sleep", "3000")
        cluster.acequia("project", "create", "vision", "--quota", "2")
        cluster.acequia("qos", "create", "urgent", "--priority", "10")
        api = Api(os.path.join(cluster.home, "run/api.sock"))
        token = api.post("/v1/tokens", {"kind": "user", "ttl_s": 86400})["token"]
        api.close()
        r = subprocess.run(
            [schemathesis, "run", f"https://127.0.0.1:{port}/v1/openapi.json", "--tls-verify", "false",
             "-H", f"Authorization: Bearer {token}", "--exclude-path-regex", NOT_ASKED,
             "--exclude-checks", "positive_data_acceptance", "--phases", "coverage,fuzzing,stateful", "--max-examples", "10",
             "--request-timeout", "60", "--no-color", "--continue-on-failure"],
            cwd=cluster.home, capture_output=True, text=True, timeout=7200, check=False)
        print(r.stdout[-3000:])  # how many operations and cases; pytest shows it with -rA
        assert r.returncode == 0, r.stdout[-30000:] + r.stderr[-2000:]
        assert api.get("/v1/status")["version"]  # and it is still there
    finally:
        api.close()
        cluster.close()
