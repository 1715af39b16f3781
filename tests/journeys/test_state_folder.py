"""What the controller must not lose is in its database: every other file of the state folder can go. A database
that is missing is noticed."""
import os
import signal
import ssl
import subprocess

import pytest

from tests.journeys.test_versions import OnState
from tests.lab.api import ApiError
from tests.lab.cluster import Cluster
from tests.lab.proc import free_ports, wait_until


def others(c):
    """Files of the state folder that are not the database's."""
    return [f for f in os.listdir(f"{c.home}/state") if not f.startswith("acequia.db")]


def charts(c):
    try:
        return c.api.get("/v1/series?name=cluster/jobs_running")["points"]
    except ApiError:  # nothing was drawn yet
        return []


def certificate(c):
    return ssl.get_server_certificate(("127.0.0.1", c.port))


def test_the_database_is_all(tmp_path):
    with Cluster(config="[cluster]\ngrace = 1s\n[node *]\ncpus = 4\n", agents=["n2"]) as c:
        token = f"{tmp_path}/token"
        c.cli("token", "create", "--user", "root", "--ttl", "1h", "-o", token)
        wait_until(lambda: "n2" in c.nodes_up(), 60, "the second node does not come")
        job = c.cli("submit", "-Q", "-w", "n2", "-o", "/dev/null", "--", "sleep", "600").stdout.strip()
        wait_until(lambda: c.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 30, "does not run")
        before = certificate(c)
        wait_until(lambda: len(charts(c)) > 2, 30, "there are no charts")
        drawn = charts(c)[:3]
        assert not [f for f in others(c) if f.endswith((".key", ".crt"))]
        c.api.close()
        c.kill("controller", signal.SIGTERM)
        assert set(others(c)) == {"lock", "reserve"}, others(c)
        for name in others(c):
            os.unlink(f"{c.home}/state/{name}")
        c.start_controller()
        c.wait_ready()
        wait_until(lambda: "n2" in c.nodes_up(), 60, "the agent is not enrolled any more")
        assert certificate(c) == before
        assert charts(c)[:3] == drawn
        assert c.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING"
        done = subprocess.run([c.binary, "status"], capture_output=True, text=True, check=False, timeout=60, env=dict(
            c.env, ACEQUIA_HOST=f"127.0.0.1:{c.port}", ACEQUIA_TOKEN_FILE=token))
        assert done.returncode == 0, done.stderr
        # An agent that has its certificate is started with its used token, as a service would.
        c.kill_agent("n2")
        home = f"{c.home}/agent-n2"
        c._daemon("agent-n2", "agent", "--name", "n2", "--join", f"127.0.0.1:{c.port}", "--token-file", f"{home}/token",
                  home=home, host="n2")
        wait_until(lambda: "n2" in c.nodes_up(), 60, "the agent does not come back")
        os.unlink(f"{home}/token")
        c.kill_agent("n2")
        c._daemon("agent-n2", "agent", "--name", "n2", "--join", f"127.0.0.1:{c.port}", "--token-file", f"{home}/token",
                  home=home, host="n2")
        wait_until(lambda: "n2" in c.nodes_up(), 60, "the agent does not come back without its token")
        # Without its database the folder is not taken for a new one.
        c.api.close()
        c.kill("controller", signal.SIGTERM)
        os.rename(f"{c.home}/state/acequia.db", f"{tmp_path}/acequia.db")
        c.start_controller()
        assert c.children["controller"].wait(180) == 1
        assert "acequia.db is missing although" in c.log_tail("controller")
        assert not os.path.exists(f"{c.home}/state/acequia.db")
        os.rename(f"{tmp_path}/acequia.db", f"{c.home}/state/acequia.db")
        c.start_controller()
        c.wait_ready()


@pytest.fixture
def old():
    cluster = OnState("state-0.1.0")
    cluster.port = free_ports(1)[0]
    with open(f"{cluster.home}/acequia.conf", encoding="utf-8") as f:
        text = f.read()
    with open(f"{cluster.home}/acequia.conf", "w", encoding="utf-8") as f:
        f.write(text.replace("[cluster]\n", f"[cluster]\nlisten = 127.0.0.1:{cluster.port}\n"))
    yield cluster
    cluster.down()


def test_files_of_the_release_before_are_imported(old):
    with open(f"{old.home}/state/server.crt", encoding="utf-8") as f:
        first = f.read().split("-----END CERTIFICATE-----")[0]
    old.up()
    assert first.strip() in certificate(old)
    assert "are now kept in the database" in old.log_tail("controller")
    assert "ca.key" in others(old)  # the release before needs them
    old.cli("upgrade", "finish")
    old.restart()
    assert not [f for f in others(old) if f.endswith((".key", ".crt"))]
    assert first.strip() in certificate(old)
    old.restart()
    assert first.strip() in certificate(old)


def test_a_controller_that_is_stopped_at_once():
    """Nothing may have happened yet when it is told to stop."""
    with Cluster() as c:
        for _ in range(5):
            c.api.close()
            c.kill("controller", signal.SIGTERM)
            c.start_controller()
            child = c.children["controller"]
            wait_until(lambda: os.path.exists(f"{c.home}/run/api.sock"), 30, "does not listen")
            child.send_signal(signal.SIGTERM)
            assert child.wait(180) in (0, -signal.SIGTERM)
            c.start_controller()
            c.wait_ready()
