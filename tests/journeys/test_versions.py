"""State of the releases before, kept in tests/data: this version starts on it, shows the same, and does
not write what that release cannot read until the upgrade is finished."""
import json
import os
import sqlite3
import struct
import tarfile
import tempfile

import pytest

from tests.lab.api import Api
from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until
from tests.lab.release import SECRET, describe
from tests.lab.ws import Socket

DATA = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data")


class OnState(Cluster):
    """A controller alone, on a copy of kept state."""

    def __init__(self, name):
        super().__init__()
        self.home = tempfile.mkdtemp(prefix="aqv-", dir="/tmp")  # short: it holds a socket
        with tarfile.open(f"{DATA}/{name}.tar.xz") as tar:
            tar.extractall(self.home)
        os.chmod(f"{self.home}/state", 0o700)
        with open(f"{self.home}/acequia.conf", encoding="utf-8") as f:
            text = "".join(line for line in f if not line.startswith("listen"))
        with open(f"{self.home}/acequia.conf", "w", encoding="utf-8") as f:
            f.write(text)
        self.env = dict(os.environ, ACEQUIA_HOME=self.home)
        self.api = Api(f"{self.home}/run/api.sock")

    def up(self):
        self.start_controller()
        self.wait_ready()

    def restart(self):
        self.kill("controller", 15)
        self.api.close()
        self.up()

    def meta(self):
        """The database's own table of versions."""
        db = sqlite3.connect(f"{self.home}/state/acequia.db")
        found = dict(db.execute("SELECT name, value FROM meta"))
        db.close()
        return found


LEVELS = {"0.1.0": 1, "0.2.0": 2}  # of the journals of releases
NEWEST = 3


@pytest.fixture(params=LEVELS, name="old")
def _old(request):
    cluster = OnState(f"state-{request.param}")
    cluster.release, cluster.level = request.param, LEVELS[request.param]
    yield cluster
    cluster.cli("down", check=False)  # without cancelling: jobs of a node that never comes do not end
    cluster.down()


def sparse(value):
    """Without what is absent, zero, false or empty: releases differ in whether they write it."""
    if isinstance(value, dict):
        return {k: v for k, v in ((k, sparse(v)) for k, v in value.items()) if v not in (None, False, 0, "", [], {})}
    return [sparse(v) for v in value] if isinstance(value, list) else value


def check_has(found, wanted, where):
    """All that is recorded is there; a later release may show more."""
    if isinstance(wanted, dict):
        for key, value in wanted.items():
            assert key in found, f"{where}.{key} is missing"
            check_has(found[key], value, f"{where}.{key}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), where
        for i, value in enumerate(wanted):
            check_has(found[i], value, f"{where}[{i}]")
    else:
        assert found == wanted, where


def check_same(cluster):
    with open(f"{DATA}/state-{cluster.release}.json", encoding="utf-8") as f:
        expected = json.load(f)
    check_has(sparse(describe(cluster.api)), sparse(expected), "state")


def check_can_go_back(cluster):
    """The program of that release would open the database, and finds nothing in it that it does not know."""
    meta = cluster.meta()
    if cluster.level == 1:
        assert meta["readable_by"] <= 2 and "level" not in meta
    else:
        assert meta["readable_by"] <= 4 and meta["level"] == cluster.level  # 0.2.0 had formats up to 4


@pytest.mark.parametrize("snapshot", [True, False])
def test_state_of_the_release_before(old, snapshot):
    """From its snapshot, and from its journal alone."""
    if not snapshot:
        for name in os.listdir(f"{old.home}/state"):
            if name.startswith("snapshot-"):
                os.unlink(f"{old.home}/state/{name}")
        if old.level > 1:  # since 0.2.0 they are in the database
            db = sqlite3.connect(f"{old.home}/state/acequia.db")
            assert db.execute("DELETE FROM snapshot").rowcount > 0
            db.execute("DELETE FROM snapshot_piece")
            db.commit()
            db.close()
    old.up()
    check_same(old)
    assert any("upgrade finish" in w for w in old.api.get("/v1/status")["warnings"])
    assert "upgrade" in old.cli("status").stdout
    old.restart()  # from a snapshot that this version wrote
    check_same(old)
    assert old.api.get("/v1/upgrade")["readable_since"] == old.release
    check_can_go_back(old)


def test_finishing_an_upgrade(old):
    old.up()
    assert "going back is possible" in old.cli("upgrade").stdout
    assert old.api.get("/v1/upgrade")["finished"] is False
    assert "no upgrade" in old.cli("upgrade", "finish").stdout
    assert not any("upgrade" in w for w in old.api.get("/v1/status")["warnings"])
    check_same(old)
    assert old.meta()["level"] == NEWEST and old.meta()["readable_by"] >= 3
    old.restart()
    assert old.api.get("/v1/upgrade")["finished"] is True
    check_same(old)


@pytest.mark.parametrize("old", ["0.2.0"], indirect=True)
def test_objects_of_the_release_before_are_used(old):
    """Its secrets can be decrypted, its node is known, and its jobs that were lost with the node run again."""
    old.up()
    old.start_agent("n1")
    wait_until(lambda: "n1" in old.nodes_up(), 60, "the node does not come")
    assert old.cli("run", "-w", "n1", "--secret", "TOKEN", "--", "sh", "-c", 'printf %s "$TOKEN"').stdout == SECRET
    pool = next(j["id"] for j in old.api.get("/v1/jobs?limit=1000")["jobs"] if j["name"] == "pool")
    wait_until(lambda: [m["state"] for m in old.api.get(f"/v1/jobs/{pool}")["members"]].count("running") >= 2, 60,
               "the elastic job does not run again")
    old.cli("upgrade", "finish")
    assert old.cli("run", "-w", "n1", "--secret", "TOKEN", "--", "sh", "-c", 'printf %s "$TOKEN"').stdout == SECRET


def test_a_later_journal_is_refused(old):
    """With a sentence that names the release it needs."""
    old.up()
    old.cli("upgrade", "finish")
    old.kill("controller", 15)
    db = sqlite3.connect(f"{old.home}/state/acequia.db")
    db.execute("UPDATE meta SET value = 7 WHERE name = 'level'")
    release = b"7.5.0"
    db.execute("UPDATE blob SET data = ? WHERE name = 'level.release'", (release,))
    db.commit()
    db.close()
    old.start_controller()
    assert old.children["controller"].wait(180) == 1
    assert "it needs Acequia 7.5.0 or later" in old.log_tail("controller")


def test_a_fresh_cluster_needs_no_upgrade():
    with Cluster() as c:
        assert c.api.get("/v1/upgrade") | {"version": ""} == {
            "version": "", "level": NEWEST, "newest_level": NEWEST, "readable_since": "0.3.0", "finished": True}
        assert not any("upgrade" in w for w in c.api.get("/v1/status")["warnings"])


def recorded(side):
    """Messages that release 0.1.0 sent, from the agent ("A") or from the controller ("C")."""
    with open(f"{DATA}/messages-0.1.0.bin", "rb") as f:
        data, at = f.read(), 0
    while at < len(data):
        size = struct.unpack("<I", data[at + 1:at + 5])[0]
        if data[at:at + 1] == side:
            yield data[at + 5:at + 5 + size]
        at += 5 + size


def test_an_agent_of_another_release():
    """All that an agent of 0.1.0 said once, then messages of a later one: the connection stays."""
    with Cluster() as c:
        agent = Socket(c.api.path, "/v1/agent")

        def connected():
            return any(n["name"] == "n1" and n["connected"] for n in c.api.get("/v1/nodes")["nodes"])

        for message in recorded(b"A"):
            agent.send(2, message)
        wait_until(connected, 20, "the agent of the release before is not accepted")
        for _ in range(3):
            agent.send(2, b"\xe7\x07" + b"whatever")  # type 999
        agent.send(2, b"\x07")  # a pong
        wait_until(lambda: "of type 999 are skipped" in c.log_tail("controller", 100), 20, "no word of it in the log")
        assert c.log_tail("controller", 100).count("of type 999 are skipped") == 1
        assert connected()
        agent.close()
