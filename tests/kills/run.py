#!/usr/bin/env python3
"""The long run of kills and cuts: many clusters side by side, each with a home, ports and nodes of its own.

    python3 -m tests.kills.run --rounds 1000 --parallel 24 --seconds 500
    python3 -m tests.kills.run --failover --rounds 300 --parallel 14

With --failover each cluster has three controllers and a PostgreSQL database of its own, and those are hurt (failover.py).
Needs the built programs ($BUILD, or the folder build) and Python's standard library: no root, no network, no packages;
mpirun and ssh are tried where they are installed. A round is a fault; five faults and the clients that live through
them are a set. A set has a seed, which decides its faults: `--rounds 5 --seed SEED` repeats it. The last line says how
many rounds there were and how many of them belong to sets that failed; the exit status is 1 when one did, and the
folder with its logs is named and kept. tests/kills/pack makes a file with all of it for a machine that has nothing."""
import argparse
import glob
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback

from tests.kills import failover
from tests.kills import rounds as kills
from tests.lab.proc import kill_trees, processes_naming, spools_of

PROGRESS_S = 30
START_APART_S = 0.3   # many clusters that start at once would only wait for each other
LAST_SET_S = 60       # how long a set that has begun may go on after --seconds
NEW_CLUSTER_TRIES = 3


class Worker:
    """One process with one cluster at a time. Every `parallel`th set is its own, until the rounds or the time are over."""

    def __init__(self, a):
        self.a = a
        self.cluster, self.of_set = (failover.FailoverCluster, failover.run_set) if a.failover else (kills.LinkCluster, kills.run_set)
        self.ends = time.monotonic() + a.seconds if a.seconds else None
        self.result = {"rounds": 0, "failed": [], "faults": {}, "left_out": 0}
        self.tries = 0

    def run(self):
        """All its sets; a new cluster after each that failed."""
        sets = list(self.sets())
        while sets and self.tries < NEW_CLUSTER_TRIES and not self.late():
            try:
                with self.cluster(tempfile.mkdtemp(dir=self.a.folder), sets[0][0]) as lab:
                    self.tries = 0
                    while sets and not self.late():
                        if not self.run_set(lab, *sets.pop(0)):
                            break
            except Exception:  # pylint: disable=broad-except  # the cluster did not start or did not end
                self.tries += 1
                self.fail(sets[0][0] if sets else self.a.seed, 0, traceback.format_exc())
        self.result["left_out"] = sum(n for _, n in sets)
        self.save()

    def sets(self):
        """Seed and number of rounds of each."""
        at_a_time = kills.FAULTS_AT_A_TIME
        for i in range(self.a.worker, -(-self.a.rounds // at_a_time), self.a.parallel):
            yield self.a.seed + i, min(at_a_time, self.a.rounds - i * at_a_time)

    def late(self):
        return self.ends is not None and time.monotonic() > self.ends

    def run_set(self, lab, seed, count):
        """One set; False when it failed."""
        self.result["now"] = [seed, count]
        self.save()
        try:
            lab.seed(seed)
            lab.counts = {}
            self.of_set(lab, count)
            return True
        except BaseException:
            folder = f"{self.a.folder}/failed-{seed}"
            os.makedirs(folder)
            describe(lab, f"{folder}/nodes")
            shutil.copytree(lab.c.home, f"{folder}/home", symlinks=True, ignore=only_text, ignore_dangling_symlinks=True)
            self.fail(seed, count, f"{traceback.format_exc()}logs: {folder}")
            return False
        finally:
            self.result["rounds"] += count
            for kind, n in lab.counts.items():
                self.result["faults"][kind] = self.result["faults"].get(kind, 0) + n
            self.result.pop("now", None)
            self.save()

    def fail(self, seed, count, text):
        self.result["failed"].append({"seed": seed, "rounds": count, "text": text})
        self.save()

    def save(self):
        with open(f"{self.a.folder}/result.new", "w", encoding="utf-8") as f:
            json.dump(self.result, f)
        os.replace(f"{self.a.folder}/result.new", f"{self.a.folder}/result")


def describe(lab, path):
    """What is left on the nodes: positions of streams (launch/relay.h) and processes."""
    with open(path, "w", encoding="utf-8") as out:
        for page in sorted(glob.glob("/dev/shm/acequia-*/*/io.*") + glob.glob(f"{lab.c.home}/**/io.*", recursive=True)):
            try:
                with open(page, "rb") as f:
                    v = struct.unpack("<8x4Q2I3QI", f.read(76))
            except (OSError, struct.error):  # of another cluster, and gone meanwhile
                continue
            names = ("out_len", "out_lost", "out_bytes", "in_read", "in_closed", "client", "out_acked", "in_len", "in_foreign", "in_ended")
            print(page, dict(zip(names, v)), file=out)
        for spool in sorted(spools_of(lab.c.home)):
            print(spool, [command_of(pid) for pid in processes_naming(spool)], file=out)


def command_of(pid):
    """Its words."""
    try:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as f:
            return f.read().replace("\0", " ")
    except OSError:
        return ""


def only_text(folder, names):
    """Sockets and keys stay behind."""
    return [n for n in names if not os.path.isdir(f"{folder}/{n}") and not os.path.isfile(f"{folder}/{n}")]


def result_of(folder):
    """What a worker has written last."""
    try:
        with open(f"{folder}/result", encoding="utf-8") as f:
            return json.load(f)
    except (FileNotFoundError, json.JSONDecodeError):
        return {"rounds": 0, "failed": [], "faults": {}, "left_out": 0}


def watch(workers, folders, a):
    """Until all have ended; says now and then how far they are. True when some had to be killed."""
    begin = said = time.monotonic()
    while any(w.poll() is None for w in workers):
        time.sleep(0.2)
        now = time.monotonic()
        if now - said > PROGRESS_S:
            said = now
            print(f"{now - begin:.0f} s: {sum(result_of(f)['rounds'] for f in folders)} of {a.rounds} rounds", flush=True)
        if a.seconds and now - begin > a.seconds + LAST_SET_S:
            for w in workers:
                if w.poll() is None:
                    w.send_signal(signal.SIGKILL)
                    w.wait()
            return True
    return False


def end_left_behind(folders):
    """Daemons and jobs of clusters whose worker was killed."""
    homes = [line for f in folders for line in glob.glob(f"{f}/*/acequia-lab-*")]
    for home in homes:
        spools = spools_of(home)
        for place in (home, *spools):
            kill_trees(processes_naming(place))


def start(a, parent):
    """Worker processes and their folders."""
    workers, folders = [], []
    for i in range(a.parallel):
        folder = f"{parent}/{i}"
        os.makedirs(f"{folder}/t")
        command = [sys.executable, "-m", "tests.kills.run", "--rounds", str(a.rounds), "--parallel", str(a.parallel), "--seed", str(a.seed),
                   "--seconds", str(max(0, a.seconds - i * START_APART_S)), "--worker", str(i), "--folder", folder,
                   *(["--failover"] if a.failover else [])]
        folders.append(folder)
        workers.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, env=dict(
            os.environ, TMPDIR=f"{folder}/t", KILLS_PATIENCE_S=str(a.patience))))
        time.sleep(START_APART_S)
    return workers, folders


def report(results, a, seconds):
    """What there was, each failure with its seed, and the line that counts."""
    failures = [f for r in results for f in r["failed"]]
    for r in results:  # one that was killed in the middle of a set
        if "now" in r:
            failures.append({"seed": r["now"][0], "rounds": r["now"][1], "text": "it had not ended when the time was over"})
            r["rounds"] += r["now"][1]
    faults = {}
    for r in results:
        for kind, n in r["faults"].items():
            faults[kind] = faults.get(kind, 0) + n
    for f in failures:
        print(f"FAILED, seed {f['seed']}: {f['text']}")
    left_out = sum(r["left_out"] for r in results)
    missing = [name for name, there in (("mpirun", kills.has_mpirun()), ("ssh", kills.has_ssh())) if not there]
    print(f"seeds from {a.seed}, {a.parallel} clusters side by side, {seconds:.0f} s; "
          + ", ".join(f"{n} × {kind}" for kind, n in sorted(faults.items()))
          + (f"; {left_out} rounds left out when the time was over" if left_out else "")
          + (f"; without {' and '.join(missing)}" if missing else ""))
    rounds = sum(r["rounds"] for r in results)
    print(f"{rounds} rounds, {sum(max(1, f['rounds']) for f in failures)} failed", flush=True)
    return 1 if failures or not rounds else 0


def main():
    """Splits the rounds and adds up."""
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--rounds", type=int, default=int(os.environ.get("STREAM_ROUNDS", "1000")))
    p.add_argument("--parallel", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="clusters side by side (half the cores)")
    p.add_argument("--seconds", type=float, default=0, help="begin no set of faults after so long (no limit)")
    p.add_argument("--seed", type=int, default=int(time.time()), help="of the first set; the next ones follow it")
    p.add_argument("--patience", type=float, default=kills.PATIENCE_S, help="seconds that a client may take to end (300)")
    p.add_argument("--failover", action="store_true", help="three controllers and their PostgreSQL database in each cluster")
    p.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    p.add_argument("--folder", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.folder:
        Worker(a).run()
        return 0
    a.parallel = max(1, min(a.parallel, -(-a.rounds // kills.FAULTS_AT_A_TIME)))
    parent = tempfile.mkdtemp(prefix="acequia-kills-")
    os.chmod(parent, 0o755)  # the database's user goes through it
    begin = time.monotonic()
    workers, folders = start(a, parent)
    if watch(workers, folders, a):
        end_left_behind(folders)
    results = [result_of(f) for f in folders]
    for r, w in zip(results, workers):
        if w.returncode not in (0, -signal.SIGKILL):
            r["failed"].append({"seed": a.seed, "rounds": 0, "text": f"a worker ended with {w.returncode}"})
    status = report(results, a, time.monotonic() - begin)
    if not status:
        shutil.rmtree(parent, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
