#!/usr/bin/env python3
"""A backup of a cluster with many finished jobs while others submit: what they notice, and how long backup, check and
restore take.

    python3 bench/backup.py [FINISHED] [SUBMITS_PER_S]      (1000000, 1000)

Finished jobs are elements of arrays that were submitted held and cancelled. Submits: eight connections to the unix
socket that keep to the rate, held jobs; their latencies are measured for as long again without a backup."""
import os
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests"))
from lab.api import Api  # noqa: E402
from lab.cluster import Cluster  # noqa: E402
from lab.proc import wait_until  # noqa: E402

CONNECTIONS = 8
AT_ONCE = 10000  # elements of one array
ALONE_S = 15
JOB = {"spec": {"workdir": "/", "argv": ["true"], "hold": True}}


class Load:
    """Submits at a rate until it is stopped."""

    def __init__(self, socket, per_s):
        self.socket, self.pause, self.stopped, self.times = socket, CONNECTIONS / per_s, False, []
        self.threads = [threading.Thread(target=self._one, args=(i,)) for i in range(CONNECTIONS)]
        self.began = time.monotonic()
        for t in self.threads:
            t.start()

    def _one(self, i):
        api = Api(self.socket)
        due = self.began + i * self.pause / CONNECTIONS
        while not self.stopped:
            time.sleep(max(0, due - time.monotonic()))
            asked = time.monotonic()
            api.post("/v1/jobs", JOB)
            self.times.append((time.monotonic() - asked) * 1000)
            due = max(due + self.pause, time.monotonic() - 0.1)

    def stop(self):
        """Submits per second, and latencies in ms: median, 99th percentile, longest."""
        self.stopped = True
        for t in self.threads:
            t.join()
        seconds = time.monotonic() - self.began
        self.times.sort()
        n = len(self.times)
        return n / seconds, self.times[n // 2], self.times[int(n * 0.99)], self.times[-1]


def finished_jobs(c, count):
    """That many jobs that have ended, in history."""
    made = 0
    while made < count:
        size = min(AT_ONCE, count - made)
        c.cli("submit", "-Q", "--hold", "-o", "/dev/null", "--array", f"0-{size - 1}", "--", "true")
        c.cli("cancel", "--all")
        made += size
        if made % (AT_ONCE * 10) == 0:
            print(f"{made} finished jobs", file=sys.stderr, flush=True)
    wait_until(lambda: not c.active_jobs(), 600, "jobs do not end")


def timed(*command, env=None):
    """Seconds that it took."""
    began = time.monotonic()
    subprocess.run(command, check=True, env=env, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def main():
    count, per_s = (int(a) for a in (sys.argv[1:] + ["1000000", "1000"][len(sys.argv) - 1:])[:2])
    with Cluster("[cluster]\nmax_array_size = 100000\n") as c, tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        finished_jobs(c, count)
        print(f"{count} finished jobs, made in {time.monotonic() - began:.0f} s")
        socket, file = f"{c.home}/run/api.sock", f"{folder}/backup"
        load = Load(socket, per_s)
        time.sleep(ALONE_S)
        print("alone    %5.0f submits/s, median %5.1f ms, p99 %6.1f ms, longest %6.1f ms" % load.stop())
        load = Load(socket, per_s)
        took = timed(c.binary, "backup", "-q", file, env=c.env)
        print("beside   %5.0f submits/s, median %5.1f ms, p99 %6.1f ms, longest %6.1f ms" % load.stop())
        print(f"backup   {took:.1f} s, {os.path.getsize(file) / 1e6:.0f} MB")
        print(f"check    {timed(c.binary, 'check', file, env=c.env):.1f} s")
        os.makedirs(f"{folder}/other")
        print(f"restore  {timed(c.binary, 'restore', file, env=dict(c.env, ACEQUIA_HOME=folder + '/other')):.1f} s")


if __name__ == "__main__":
    main()
