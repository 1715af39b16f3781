"""After many kills of everything, with steps, ports, containers, networks of their own and volumes: nothing stays behind.
Control groups, mounts, network namespaces, folders of the spool, sockets and processes are counted before and after."""
import glob
import os
import random
import re
import signal
import subprocess
import time

import pytest

from tests.lab.cluster import Cluster
from tests.lab.images import make_rootfs
from tests.lab.proc import free_ports, processes_naming, spools_of, wait_until

ROUNDS = int(os.environ.get("LEFTOVER_ROUNDS", "6"))
CONFIG = "[cluster]\ngrace = 1s\nheartbeat = 1s\nvolume_folder = {volumes}\n[node *]\ncpus = 64\nmemory = 16000M\n"
READY = ("acequia-shep", "acequia-nurse")  # some wait for the next attempt
READY_MAX = 26  # those of a killed zygote serve on until the agent ends: up to 8 each, of two and the newest
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="control groups, networks and mounts need root")


def named(pid):
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8") as f:
            return f.read().strip()
    except OSError:
        return ""


def parent(pid):
    found = [x for x in lines(f"/proc/{pid}/status") if x.startswith("PPid:")]
    return int(found[0].split()[1]) if found else 0


def ready(pid):
    return named(pid).startswith(READY[0])


def lines(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read().splitlines()
    except OSError:
        return []


def site(c):
    """The name of this node's control groups."""
    for pid in processes_naming(c.home):
        for line in lines(f"/proc/{pid}/cgroup"):
            found = re.search(r"/acequia/([0-9a-f]{16})", line)
            if found:
                return found.group(1)
    return None


class Things:
    """What a cluster may leave behind."""

    def __init__(self, c):
        self.c, self.site, self.spools = c, None, set()

    def _pids(self):
        self.spools |= spools_of(self.c.home)
        return sorted({p for place in (self.c.home, *self.spools) for p in processes_naming(place)})

    def count(self):
        self.site = self.site or site(self.c)
        pids = self._pids()
        names = [named(p) for p in pids]
        used_by = [p for p, n in zip(pids, names) if not n.startswith(READY)]
        own_ns = {os.readlink("/proc/self/ns/net")}
        nets = set()
        for p in pids:
            try:
                nets.add(os.readlink(f"/proc/{p}/ns/net"))
            except OSError:
                pass
        groups = [g for g in glob.glob("/sys/fs/cgroup/**/acequia/*/s*", recursive=True) if self.site and self.site in g]
        used = [g for g in groups if set(map(int, lines(f"{g}/cgroup.procs"))) & set(used_by)]
        return {
            "processes": sorted(n for n in names if n and not n.startswith(READY)),
            "nurseries without a shepherd": len([p for p, n in zip(pids, names) if n.startswith("acequia-nurse") and not ready(parent(p))]),
            "more shepherds than are kept ready": max(0, len([n for n in names if n.startswith(READY[0])]) - READY_MAX),
            "jobs in control groups": len(used),
            "networks": len(nets - own_ns),
            "mounts": len([m for m in lines("/proc/self/mountinfo") if self.c.home in m or any(s in m for s in self.spools)]),
            "attempts in the spool": len([f for s in self.spools for f in glob.glob(f"{s}/[0-9]*.[0-9]*")]),
            "sockets": len([x for x in lines("/proc/net/unix") if self.c.home in x or any(s in x for s in self.spools)]),
        }


def begin_work(c, rootfs):
    """Jobs and clients of every kind that makes something on the node."""
    port = free_ports(1)[0]
    quiet = ["submit", "-Q", "-o", "/dev/null"]
    c.cli(*quiet, "--", "sh", "-c", "sleep 600 & setsid sleep 600 & sleep 600")
    c.cli(*quiet, "--port", str(port), "--", "/usr/bin/python3", "-m", "http.server", str(port), "--bind", "127.0.0.1")
    c.cli(*quiet, "-v", "data:/data", "--", "sh", "-c", "echo x > /data/x; sleep 600")
    c.cli(*quiet, "--container", rootfs, "--", "sleep", "600")
    c.cli(*quiet, "--workers", "1-2", "--", "sleep", "600")
    host = c.cli(*quiet, "--", "sleep", "600").stdout.strip()
    wait_until(lambda: c.api.get(f"/v1/jobs/{host}")["state"] == "RUNNING", 60, "the job does not start")
    return [subprocess.Popen(words, env=c.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                             start_new_session=True)
            for words in ([c.binary, "run", "--no-input", "--", "sleep", "600"], [f"{c.home}/bin/srun", "-n2", "sleep", "600"],
                          [c.binary, "exec", "--no-input", host, "--", "sleep", "600"], [c.binary, "logs", "-f", host])]


def kill_something(c, chance, things):
    """The controller, the agent, a shepherd, or any process that they have started."""
    what = chance.randrange(4)
    node = c.node
    if what == 0:
        c.kill_controller()
        c.start_controller()
        c.wait_ready()
    elif what == 1:
        c.kill_agent(node)
        c.start_agent(node)
    else:
        daemons = {c.pid("controller"), c.pid(f"agent-{node}")}
        spool = {p for s in things.spools for p in processes_naming(s)} - daemons
        shepherds = [p for p in spool if named(p).startswith("acequia-shep")]
        victims = shepherds if what == 2 else sorted(set(processes_naming(c.home)) - daemons - {os.getpid()})
        if victims:
            try:
                os.kill(chance.choice(sorted(victims)), signal.SIGKILL)
            except ProcessLookupError:
                pass
    time.sleep(chance.uniform(0, 0.5))


def test_nothing_stays_behind(tmp_path):
    seed = int(os.environ.get("LEFTOVER_SEED", str(time.time_ns() % 100000)))
    print(f"seed {seed}")
    chance = random.Random(seed)
    os.makedirs(f"{tmp_path}/volumes")
    rootfs = make_rootfs(f"{tmp_path}/rootfs")
    with Cluster(config=CONFIG.format(volumes=f"{tmp_path}/volumes")) as c:
        c.node = c.nodes_up()[0]
        c.cli("slurm-commands", f"{c.home}/bin")
        c.cli("volume", "create", "data")
        things = Things(c)
        c.cli("run", "--", "true")
        c.cli("run", "--no-input", "--container", rootfs, "--", "true")
        time.sleep(3)
        before = things.count()
        for _ in range(ROUNDS):
            clients = begin_work(c, rootfs)
            things.count()
            for _ in range(3):
                kill_something(c, chance, things)
            if not c.pid(f"agent-{c.node}") or not os.path.exists(f"/proc/{c.pid(f'agent-{c.node}')}"):
                c.start_agent(c.node)
            wait_until(lambda: c.nodes_up() == [c.node], 60, "the node does not come back")
            c.cli("cancel", "--all")
            wait_until(lambda: not c.active_jobs(), 120, lambda: f"a job is left: {c.cli('list').stdout}")
            for client in clients:
                client.send_signal(signal.SIGKILL)
                client.wait()
        wait_until(lambda: things.count() == before, 60, lambda: f"left behind: {before} became {things.count()}")
