"""A live controller and many simulated nodes in one process (sim/nodes): they join, run jobs, survive a restart of the
controller, and go away. $NODES makes it larger; the figures of 10,000 are in bench/README.md."""
import os
import subprocess
import time

import pytest

from tests.lab.cluster import Cluster, find_binary
from tests.lab.proc import rss_bytes, wait_until

COUNT = int(os.environ.get("NODES", "300"))
JOBS = int(os.environ.get("NODES_JOBS", str(4 * COUNT)))
WAIT_S = 120 + COUNT // 20


def nodes_program():
    return os.path.join(os.path.dirname(find_binary()), "..", "..", "sim", "nodes", "acequia-nodes")


pytestmark = pytest.mark.skipif(not os.access(nodes_program(), os.X_OK), reason="acequia-nodes is not built")


def ups(cluster):
    return sum(1 for name in cluster.nodes_up() if name.startswith("sim-"))


def test_many_nodes():
    with Cluster() as c:
        began = time.monotonic()
        with subprocess.Popen(
                [nodes_program(), "--socket", f"{c.home}/run/api.sock", "--count", str(COUNT), "--cpus", "4", "--gpus",
                 "1", "--run", "1"], stdout=subprocess.PIPE, text=True) as nodes:
            try:
                assert f"{COUNT} nodes are connected" in nodes.stdout.readline()
                wait_until(lambda: ups(c) == COUNT, WAIT_S, "simulated nodes are not up", interval=0.5)
                print(f"{COUNT} nodes are up after {time.monotonic() - began:.1f} s; controller: "
                      f"{c.controller_rss() >> 20} MiB, nodes: {rss_bytes(nodes.pid) >> 20} MiB")
                began = time.monotonic()
                # Only simulated nodes have GPUs: every job must run there.
                c.cli("submit", "-Q", "--array", f"0-{JOBS - 1}", "-g", "1", "-o", "/dev/null", "--", "work")
                c.wait_empty(WAIT_S, interval=0.2)
                took = time.monotonic() - began
                print(f"{JOBS} jobs in {took:.1f} s: {JOBS / took:.0f} a second; controller: "
                      f"{c.controller_rss() >> 20} MiB")
                c.kill_controller()
                c.start_controller()
                c.wait_ready()
                began = time.monotonic()
                wait_until(lambda: ups(c) == COUNT, WAIT_S, "simulated nodes do not come back", interval=0.5)
                print(f"after a restart of the controller they are back in {time.monotonic() - began:.1f} s")
            finally:
                nodes.terminate()
            totals = nodes.stdout.readlines()[-1]
        assert nodes.returncode == 0
        assert totals == f"{COUNT} of {COUNT} nodes, {JOBS} launched, {JOBS} ended\n"
        wait_until(lambda: ups(c) == 0, WAIT_S, "nodes that went away are still up")
