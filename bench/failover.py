#!/usr/bin/env python3
"""Takeover time of two controllers on one PostgreSQL database, and submits per second there beside SQLite.

    python3 bench/failover.py [--slurm] [TAKEOVERS] [SECONDS]

With --slurm beside Slurm, in the same run: its backup controller with the timeout it has by default (120 s) and with the
shortest it takes (10 s), and its submits with slurmdbd on MariaDB.

Takeover: from kill -9 (or SIGSTOP) of the leader to the first answer of the other as leader, and to the node being
connected to it. Submits: eight connections to the unix socket, each sends the next when it has its answer; held jobs.
"""
import os
import signal
import socket
import statistics
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests"))
from lab.api import Api  # noqa: E402
from lab.cluster import Cluster  # noqa: E402
from lab.controllers import Controllers  # noqa: E402
from lab.proc import end_child, wait_until  # noqa: E402
from lab.slurm import SlurmLab  # noqa: E402
from sides import SlurmSide  # noqa: E402

CONNECTIONS = 8
JOB = {"spec": {"workdir": "/", "argv": ["true"], "hold": True}}


def submits(path, seconds):
    """Submits per second, and the latencies in ms: median and 99th percentile."""
    times, end = [], time.monotonic() + seconds

    def one():
        api = Api(path)
        while time.monotonic() < end:
            began = time.monotonic()
            api.post("/v1/jobs", JOB)
            times.append((time.monotonic() - began) * 1000)
    threads = [threading.Thread(target=one) for _ in range(CONNECTIONS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    times.sort()
    return len(times) / seconds, times[len(times) // 2], times[int(len(times) * 0.99)]


def takeover(c, sig):
    """Seconds until the other leads, and until the node is connected to it."""
    wait_until(lambda: None not in [c.answers(i) for i in range(c.count)] and c.nodes_up(), 60, c.logs)
    leader = c.leader()
    began = time.monotonic()
    c.kill(leader, sig)
    c.wait_leader(other_than=leader)
    leads = time.monotonic() - began
    wait_until(lambda: c.nodes_up(), 60, c.logs, interval=0.02)
    node = time.monotonic() - began
    if sig == signal.SIGSTOP:
        c.kill(leader, signal.SIGCONT)
    else:
        c.start(leader)
    return leads, node


def slurm_takeover(timeout_s):
    """Seconds from kill -9 of the primary slurmctld to the first answer of the backup. Both share the folder of the state."""
    with SlurmLab(nodes=2, extra=f"SlurmctldHost=lab-backup(127.0.0.2)\nSlurmctldTimeout={timeout_s}\n"
                                 "CommunicationParameters=NoCtldInAddrAny") as s:
        # slurmctld knows which of the two it is by the name of its machine, and looks its own name up.
        s._write("hosts", f"127.0.0.1 localhost {socket.gethostname()}\n127.0.0.2 lab-backup\n")
        backup = s._spawn("unshare", "--uts", "--mount", "sh", "-c",
                          f"hostname lab-backup && mount --bind {s.folder}/hosts /etc/hosts && exec slurmctld -D", log="backup.out")
        try:
            wait_until(lambda: s.run("scontrol", "ping", check=False).stdout.count("is UP") == 2, 60, "the backup does not answer")
            s.run("sbatch", "-o", "/dev/null", "--wrap", "sleep 600")
            began = time.monotonic()
            s.kill_controller()
            wait_until(lambda: s.run("squeue", "-h", check=False, timeout=600).stdout.strip(), 600, "the backup does not take over", interval=0.1)
            return time.monotonic() - began
        finally:
            end_child(backup, 30)


def beside_slurm():
    for timeout_s in (120, 10):
        print(f"Slurm's backup controller answers {slurm_takeover(timeout_s):.1f} s after kill -9, with SlurmctldTimeout={timeout_s}", flush=True)
    side = SlurmSide(accounting=True)
    side.up()
    try:
        print(f"Slurm with slurmdbd  {side.in_process(5000, held=True):.0f} submits/s", flush=True)
    finally:
        side.down()


def main():
    arguments = [a for a in sys.argv[1:] if a != "--slurm"]
    count, seconds = (int(a) for a in (arguments + ["10", "10"])[:2])
    if "--slurm" in sys.argv:
        beside_slurm()
    with Controllers(2) as c:
        for name, sig in (("kill -9", signal.SIGKILL), ("SIGSTOP", signal.SIGSTOP)):
            found = [takeover(c, sig) for _ in range(count)]
            for what, values in zip(("leads", "node connected"), zip(*found)):
                print(f"{name:8} {what:15} median {statistics.median(values):5.2f} s  longest {max(values):5.2f} s  of {count}")
        print("PostgreSQL  %.0f submits/s, median %.1f ms, p99 %.1f ms" % submits(c.socket(c.wait_leader()), seconds))
    with Cluster() as c:
        print("SQLite      %.0f submits/s, median %.1f ms, p99 %.1f ms" % submits(f"{c.home}/run/api.sock", seconds))


if __name__ == "__main__":
    main()
