"""One direction of a node's link is cut for longer than the node's time-out. The controller gives the
node up; when the link works again the node must come back and the job must be done."""
import time

import pytest

from tests.journeys.test_chaos import CONFIG, needs_namespaces
from tests.lab.cluster import Cluster
from tests.lab.network import Network
from tests.lab.proc import wait_until


def state_of(cluster, node):
    return next(n["state"] for n in cluster.api.get("/v1/nodes")["nodes"] if n["name"] == node)


@needs_namespaces
@pytest.mark.parametrize("direction", ["out", "in"])
def test_a_node_comes_back(direction):
    with Network(["head", "n1"]) as net, Cluster(config=CONFIG, agents=["n1"], network=net) as c:
        wait_until(lambda: len(c.nodes_up()) == 1, 30, "the node does not appear")
        job = c.api.post("/v1/jobs", {"spec": {"name": "long", "workdir": "/tmp", "output": "/dev/null", "requeue": True}, "script": "#!/bin/sh\nsleep 8\n"})
        wait_until(lambda: c.api.get(f"/v1/jobs/{job['id']}")["state"] == "RUNNING", 10, "the job does not start")
        net.cut_one_way("n1", direction)
        wait_until(lambda: state_of(c, "n1") == "down", 20, "the node is not given up")
        time.sleep(0.5)
        net.heal_one_way("n1", direction)
        wait_until(lambda: len(c.nodes_up()) == 1, 40, "the node does not come back")
        wait_until(lambda: c.api.get(f"/v1/jobs/{job['id']}")["state"] == "COMPLETED", 40, "the job is not done")
        record = c.api.get(f"/v1/jobs/{job['id']}")
        assert record["attempt"] == 2, record
