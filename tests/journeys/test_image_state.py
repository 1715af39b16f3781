"""A job whose container image is being fetched says so: in list, get and why, also after restarts of the daemons."""
import json
import os
import shutil
import socket
import threading

import pytest

from tests.lab.cluster import Cluster
from tests.lab.images import make_rootfs
from tests.lab.proc import wait_until

missing = [t for t in ("skopeo", "umoci", "busybox") if not shutil.which(t)]
pytestmark = pytest.mark.skipif(bool(missing), reason=f"not installed: {' '.join(missing)}")


class Silent:
    """A registry that takes connections and says nothing until it is told to close them."""

    def __init__(self):
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.socket.listen(16)
        self.port = self.socket.getsockname()[1]
        self.kept = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                self.kept.append(self.socket.accept()[0])
            except OSError:
                return

    def close(self):
        self.socket.close()
        for s in self.kept:
            s.close()


@pytest.fixture(name="registry")
def _registry():
    r = Silent()
    yield r
    r.close()


def fetching(cluster, job):
    rows = json.loads(cluster.cli("list", "--json").stdout)["jobs"]
    return [r for r in rows if r["id"] == int(job) and r["reason"] == "FetchingImage"]


def test_fetching_is_visible(registry):
    with Cluster(config="[node *]\ncpus = 4\n") as cluster:
        job = cluster.cli("submit", "-Q", "-o", "/dev/null", "--container", f"docker://127.0.0.1:{registry.port}/image:1", "--", "true").stdout.strip()
        wait_until(lambda: fetching(cluster, job), 60, "it is not seen that the image is fetched")
        assert "FETCHING" in cluster.cli("list").stdout
        assert "FETCHING" in cluster.cli("list", "--where", "reason=Fetching*").stdout
        assert "fetching its container image" in cluster.cli("get", job).stdout
        assert "container image is being fetched on node" in " ".join(cluster.cli("why", job).stdout.split())
        wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}")["live"]["preparing_ms"] > 0, 60, "it is not said since when")
        # A new controller hears of it when the agent is back; so does the old one of a new agent.
        cluster.kill_controller()
        cluster.start_controller()
        cluster.wait_ready()
        wait_until(lambda: fetching(cluster, job), 60, "a new controller does not know")
        agent = cluster.api.get("/v1/nodes")["nodes"][0]["name"]
        cluster.kill_agent(agent)
        cluster.start_agent(agent)
        wait_until(lambda: fetching(cluster, job), 60, "a new agent does not tell")
        cluster.cli("cancel", job)
        wait_until(lambda: not cluster.active_jobs(), 60, "it does not end")
        assert "FETCHING" not in cluster.cli("list", "--finished").stdout


def test_a_ready_image_is_not_fetched(registry):
    with Cluster(config="[node *]\ncpus = 4\n") as cluster:
        root = make_rootfs(f"{cluster.home}/rootfs")
        job = cluster.cli("submit", "-Q", "-o", "/dev/null", "-D", "/tmp", "--container", root, "--", "/bin/sleep", "600").stdout.strip()
        wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 60, "it does not run")
        wait_until(lambda: not fetching(cluster, job), 60, "it stays in fetching")
        assert "RUNNING" in cluster.cli("list").stdout
        assert os.path.isdir(root)
        cluster.cli("cancel", job)
