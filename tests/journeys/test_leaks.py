"""The daemons, built with sanitizers, run a thousand jobs, lists, logs and commands, and are stopped:
no leak, no error."""
import glob
import os
import subprocess

import pytest

from tests.lab.cluster import Cluster

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BINARY = f"{TREE}/build-asan/src/cli/acequia"


@pytest.mark.skipif(not os.path.exists(BINARY), reason="no sanitizer build; `make test` makes one")
def test_a_thousand_jobs_leave_nothing_behind(monkeypatch):
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=1")
    monkeypatch.setenv("UBSAN_OPTIONS", "print_stacktrace=1")
    with Cluster(binary=BINARY, config="[node *]\ncpus = 16\n", keep=True) as c:
        spec = {"name": "t", "workdir": "/tmp", "output": "/dev/null", "argv": ["true"]}
        c.api.post("/v1/jobs", {"spec": dict(spec, array=[{"first": 1, "last": 900, "step": 1}])})
        c.submit_many([{"spec": spec, "environment": [f"A={i}"]} for i in range(100)])
        for _ in range(5):
            c.cli("run", "--", "sh", "-c", "echo out; echo err >&2")
        c.wait_empty(180)
        for arguments in (["list"], ["list", "--finished"], ["nodes"], ["status"], ["events", "1"], ["get", "5"], ["shares"]):
            c.cli(*arguments)
        home = c.home
    logs = glob.glob(f"{home}/log/*")
    assert logs
    for path in logs:
        text = open(path, encoding="utf-8", errors="replace").read()
        assert "ERROR: " not in text and "runtime error" not in text, text[-3000:]
    subprocess.run(["rm", "-rf", home], check=False)
