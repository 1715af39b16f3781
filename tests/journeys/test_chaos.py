"""Three agents in network namespaces; links are cut and healed, agents and controller are killed at
random while jobs are submitted. At the end every acknowledged job is finished, no attempt ran twice,
and every count agrees. A slice runs by default; CHAOS_KILLS=200 (or -m long) runs the long one."""
import collections
import os
import random
import subprocess
import time

import pytest

from tests.lab.api import ApiError
from tests.lab.cluster import Cluster
from tests.lab.network import Network
from tests.lab.proc import LabError, wait_until

NODES = ["n1", "n2", "n3"]
CONFIG = """[cluster]
node_timeout = 4s
heartbeat = 1s
grace = 1s

[node *]
cpus = 8
"""
# Each attempt leaves one line, written in one piece: which job, which attempt, begin or end.
SCRIPT = """echo "$ACEQUIA_JOB_ID $ACEQUIA_ATTEMPT begin" >> {log}
sleep {seconds}
echo "$ACEQUIA_JOB_ID $ACEQUIA_ATTEMPT end" >> {log}
"""

needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or subprocess.run(["ip", "netns", "list"], capture_output=True, check=False).returncode != 0,
    reason="needs root and network namespaces")


class Chaos:
    def __init__(self, cluster, network, seed):
        self.c, self.net, self.random = cluster, network, random.Random(seed)
        self.log = f"{cluster.home}/starts"
        self.acknowledged = set()
        self.kills = 0
        self.cut = set()
        self.count = 0

    def submit(self):
        """Some jobs; only what was acknowledged counts, and a repeat with the same key is harmless."""
        self.count += 1
        script = "#!/bin/sh\n" + SCRIPT.format(log=self.log, seconds=round(self.random.uniform(0, 1.5), 2))
        spec = {"name": "chaos", "workdir": "/tmp", "output": "/dev/null", "requeue": True}
        if self.random.random() < 0.3:
            spec["array"] = [{"first": 0, "last": self.random.randrange(1, 6), "step": 1}]
        job = {"spec": spec, "script": script, "key": f"chaos-{self.count}"}
        for _ in range(50):
            try:
                reply = self.c.api.post("/v1/jobs", job)
                self.acknowledged.update(range(reply["id"], reply["id"] + (1 if reply["repeated"] else reply["count"])))
                return
            except (OSError, ApiError):
                time.sleep(0.1)
        raise LabError("a submit was never taken")

    def hurt(self):
        """One fault: a kill -9 and a restart, or a link cut or healed."""
        what = self.random.randrange(5)
        node = self.random.choice(NODES)
        if what == 0:
            self.c.kill_controller()
            self.kills += 1
            time.sleep(self.random.uniform(0, 0.5))
            self.c.start_controller()
            self.c.wait_ready()
        elif what in (1, 2):
            self.c.kill_agent(node)
            self.kills += 1
            time.sleep(self.random.choice([0, 0.2, 1.0]))
            self.c.start_agent(node)
        elif node in self.cut:
            self.net.heal(node)
            self.cut.discard(node)
        else:
            self.net.cut(node)
            self.cut.add(node)

    def heal(self):
        for node in list(self.cut):
            self.net.heal(node)
        self.cut.clear()

    def check(self):
        lines = open(self.log, encoding="utf-8").read().split("\n")[:-1]
        begun = collections.Counter(tuple(x.split()[:2]) for x in lines if x.endswith("begin"))
        ended = collections.Counter(tuple(x.split()[:2]) for x in lines if x.endswith("end"))
        twice = [k for k, n in begun.items() if n > 1] + [k for k, n in ended.items() if n > 1]
        assert not twice, f"attempts that ran twice: {twice[:10]}"
        for job in self.acknowledged:
            record = self.c.api.get(f"/v1/jobs/{job}")
            assert record["state"] == "COMPLETED", (job, record["state"], record.get("reason"))
            attempt = (str(job), str(record["attempt"]))
            assert ended[attempt] == 1, f"job {job}: attempt {attempt[1]} counts as completed but did not run to its end"
            events = [e["type"] for e in self.c.api.get(f"/v1/jobs/{job}/events")["events"]]
            assert events.count("job_ended") == 1, (job, events)
        status = self.c.api.get("/v1/status")["jobs"]
        assert status["COMPLETED"] == status["submitted"] >= len(self.acknowledged)
        stray = {int(job) for job, _ in begun} - self.acknowledged
        # A submit whose answer was lost may have been taken; it too ran to its end.
        for job in stray:
            assert self.c.api.get(f"/v1/jobs/{job}")["state"] == "COMPLETED"
        for node in self.c.api.get("/v1/nodes")["nodes"]:
            assert node["cpus_used"] == 0 and node["jobs"] == 0, node


def run_chaos(kills, seed):
    print(f"chaos with seed {seed}")
    with Network(["head", *NODES]) as net, Cluster(config=CONFIG, agents=NODES, network=net) as c:
        chaos = Chaos(c, net, seed)
        open(chaos.log, "w", encoding="utf-8").close()
        os.chmod(chaos.log, 0o666)
        wait_until(lambda: len(c.nodes_up()) == 3, 30, "nodes do not appear")
        while chaos.kills < kills:
            for _ in range(chaos.random.randrange(1, 6)):
                chaos.submit()
            chaos.hurt()
            time.sleep(chaos.random.uniform(0, 0.3))
        chaos.heal()
        wait_until(lambda: len(c.nodes_up()) == 3, 60, "nodes do not come back")
        c.wait_empty(120, interval=0.2)
        time.sleep(0.5)
        chaos.check()
        print(f"{len(chaos.acknowledged)} acknowledged, {chaos.kills} kills")


@needs_namespaces
def test_nothing_is_lost_or_run_twice():
    run_chaos(int(os.environ.get("CHAOS_KILLS", "12")), int(os.environ.get("CHAOS_SEED", str(time.time_ns() % 100000))))


@needs_namespaces
@pytest.mark.long
def test_nothing_is_lost_or_run_twice_long():
    run_chaos(int(os.environ.get("CHAOS_KILLS", "200")), int(os.environ.get("CHAOS_SEED", str(time.time_ns() % 100000))))
