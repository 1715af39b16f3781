"""The labs themselves: a cluster that is killed and comes back, nodes on a network that is cut, and
a real Slurm."""
import os
import time

import pytest

from lab.cluster import Cluster
from lab.network import Network
from lab.proc import processes_naming, wait_until
from lab.slurm import SlurmLab

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def sleeper(seconds):
    """A job that sleeps."""
    return {"spec": {"name": "sleeper", "argv": ["sleep", str(seconds)], "workdir": "/tmp",
                     "output": "/dev/null"}, "environment": ["PATH=/usr/bin:/bin"]}


def finished(cluster):
    """Counts of finished states."""
    counts = cluster.api.get("/v1/status")["jobs"]
    return {s: counts[s] for s in ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL") if counts[s]}


def test_kill_and_restart():
    with Cluster(config="[node *]\ncpus = 8\n") as c:
        home = c.home
        ids = c.submit_many([sleeper(1)] * 5)
        c.kill_controller()
        c.start_controller()
        c.wait_ready()
        node = c.nodes_up()[0] if c.nodes_up() else wait_until(c.nodes_up, 20, "node")[0]
        c.kill_agent(node)
        c.start_agent(node)
        c.wait_empty(60)
        assert len(ids) == 5 and finished(c) == {"COMPLETED": 5}
    assert not os.path.exists(home) and not processes_naming(home)


@needs_root
def test_network_cut_and_healed():
    config = "[cluster]\nnode_timeout = 3s\nheartbeat = 1s\n[node *]\ncpus = 4\n"
    with Network(["head", "n1", "n2"]) as net, \
            Cluster(config=config, agents=["n1", "n2"], network=net) as c:
        assert sorted(c.nodes_up()) == ["n1", "n2"]
        c.submit_many([sleeper(1)] * 6)
        net.cut("n1")
        wait_until(lambda: c.nodes_up() == ["n2"], 20, "the silent node is noticed")
        net.heal("n1")
        net.cut_one_way("n2", "in")
        wait_until(lambda: c.nodes_up() == ["n1"], 20, "the deaf node is noticed")
        net.heal_one_way("n2", "in")
        wait_until(lambda: sorted(c.nodes_up()) == ["n1", "n2"], 30, "both are back")
        c.wait_empty(60)
        assert finished(c) == {"COMPLETED": 6}


@pytest.mark.long
@needs_root
def test_slurm():
    with SlurmLab(nodes=2) as slurm:
        folder = slurm.folder
        job = slurm.run("sbatch", "--parsable", "-o", "/dev/null", "--wrap", "true").stdout.strip()
        slurm.wait_empty(60)
        time.sleep(0.5)
        shown = slurm.run("scontrol", "show", "job", job).stdout
        assert "JobState=COMPLETED" in shown
        slurm.reset()
        assert slurm.active_jobs() == 0
    assert not os.path.exists(folder) and not processes_naming(folder)
