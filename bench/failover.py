#!/usr/bin/env python3
"""Takeover time of two controllers on one PostgreSQL database, and submits per second there beside SQLite.

    python3 bench/failover.py [TAKEOVERS] [SECONDS]

Takeover: from kill -9 (or SIGSTOP) of the leader to the first answer of the other as leader, and to the node being
connected to it. Submits: eight connections to the unix socket, each sends the next when it has its answer; held jobs.
"""
import os
import signal
import statistics
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests"))
from lab.api import Api  # noqa: E402
from lab.cluster import Cluster  # noqa: E402
from lab.controllers import Controllers  # noqa: E402
from lab.proc import wait_until  # noqa: E402

CONNECTIONS = 8
JOB = {"spec": {"workdir": "/", "argv": ["true"], "hold": True}}


def submits(socket, seconds):
    """Submits per second, and the latencies in ms: median and 99th percentile."""
    times, end = [], time.monotonic() + seconds

    def one():
        api = Api(socket)
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


def main():
    count, seconds = (int(a) for a in (sys.argv[1:] + ["10", "10"])[:2])
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
