"""acequia reload: the file is read again, a bad one changes nothing, and entries taken out of it are reported."""
import os
import signal

import pytest

from lab.command import Cluster
from lab.proc import wait_until

CONFIG = "[cluster]\nname = lab\n[project vision]\nquota = 2\n[project speech]\nquota = 1\n"


@pytest.fixture
def c():
    c = Cluster(CONFIG)
    yield c
    c.close()


def write(c, text):
    with open(os.path.join(c.home, "acequia.conf"), "w", encoding="utf-8") as f:
        f.write(text)


def quota(c, name):
    return next(p for p in c.json("project", "list")["projects"] if p["name"] == name)["quota_milligpu"]


def test_reload(c):
    write(c, CONFIG.replace("quota = 2", "quota = 4"))
    assert "has read" in c.acequia("reload")
    assert quota(c, "vision") == 4000
    write(c, CONFIG.replace("quota = 2", "quota = many"))
    r = c.run("reload")
    assert r.returncode != 0 and "many" in r.stderr
    assert quota(c, "vision") == 4000


def test_entries_taken_out_are_reported(c):
    write(c, "[cluster]\nname = lab\n[project vision]\nquota = 2\n")
    said = c.acequia("reload")
    assert 'project "speech" is no longer in the configuration file' in said and "acequia project delete speech" in said
    assert "speech" in c.acequia("status")
    with open(os.path.join(c.home, "run", "controller.pid"), encoding="utf-8") as f:
        os.kill(int(f.read()), signal.SIGKILL)
    c.acequia("up")
    wait_until(lambda: "speech" in c.acequia("status"), 20, "the warning after a restart")
    c.acequia("project", "delete", "speech")
    assert "speech" not in c.acequia("status")
    assert "speech" not in c.acequia("reload")


def test_down_cancels_jobs_when_asked(c):
    job = c.submit("--", "sleep", "600")
    c.wait_state(job, "RUNNING")
    c.acequia("down", "--cancel-jobs", limit=150)
    c.acequia("up")
    assert c.state(job) == "CANCELLED"
