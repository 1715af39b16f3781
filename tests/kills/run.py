#!/usr/bin/env python3
"""The long run of kills and cuts: rounds split over processes, each with a cluster of its own (home, ports, nodes).

    python3 -m tests.kills.run --rounds 1000 --shards 8

Needs the built programs ($BUILD, or the folder build) and Python's standard library: no root, no network, no packages;
mpirun is tried where it is installed. The last line says how many rounds passed; the exit status is 1 when one failed,
and the folder with the logs of a shard that failed is named and kept."""
import argparse
import glob
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import traceback

from tests.kills import rounds as kills
from tests.lab.proc import processes_naming, spools_of

PROGRESS_S = 30


def run_shard(number, count, seed, folder):
    """One shard, in a process of its own. Its result is in the folder: "done" counts rounds, "failure" says what broke."""
    def progress(done):
        with open(f"{folder}/done", "w", encoding="utf-8") as f:
            f.write(str(done))
    try:
        with kills.LinkCluster(f"{folder}/clients", seed) as lab:
            try:
                kills.run_rounds(lab, count, progress)
            except BaseException:
                describe(lab, f"{folder}/failure-state")
                shutil.copytree(lab.c.home, f"{folder}/home", symlinks=True, ignore=only_text, ignore_dangling_symlinks=True)
                raise
            finally:
                with open(f"{folder}/faults", "w", encoding="utf-8") as f:
                    f.write(", ".join(f"{n} {kind}" for kind, n in sorted(lab.counts.items())))
    except BaseException:  # the parent tells of it
        with open(f"{folder}/failure", "w", encoding="utf-8") as f:
            f.write(f"shard {number}, seed {seed}\n{traceback.format_exc()}")
        return 1
    return 0


def describe(lab, path):
    """What is left on the nodes: positions of streams (launch/relay.h) and processes."""
    with open(path, "w", encoding="utf-8") as out:
        for page in sorted(glob.glob("/dev/shm/acequia-*/*/io.*") + glob.glob(f"{lab.c.home}/**/io.*", recursive=True)):
            with open(page, "rb") as f:
                v = struct.unpack("<8x4Q2I3QI", f.read(76))
            names = ("out_len", "out_lost", "out_bytes", "in_read", "in_closed", "client", "out_acked", "in_len", "in_foreign", "in_ended")
            print(page, dict(zip(names, v)), file=out)
        for spool in sorted(spools_of(lab.c.home)):
            print(spool, [name for pid in processes_naming(spool) for name in [read(f"/proc/{pid}/cmdline", "").replace("\0", " ")]], file=out)


def only_text(folder, names):
    """Sockets, keys and the spool stay behind."""
    return [n for n in names if not os.path.isdir(f"{folder}/{n}") and not os.path.isfile(f"{folder}/{n}")]


def read(path, otherwise):
    """A small file."""
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except FileNotFoundError:
        return otherwise


def watch(children, folders, rounds):
    """Until all have ended; says now and then how far they are."""
    said = time.monotonic()
    while any(child.poll() is None for child in children):
        time.sleep(0.5)
        if time.monotonic() - said > PROGRESS_S:
            said = time.monotonic()
            print(f"{done_in(folders)} of {rounds} rounds", flush=True)


def done_in(folders):
    """Rounds that passed."""
    return sum(int(read(f"{f}/done", "0") or 0) for f in folders)


def main():
    """Splits the rounds and adds up."""
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--rounds", type=int, default=int(os.environ.get("STREAM_ROUNDS", "1000")))
    p.add_argument("--shards", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="processes (half the cores)")
    p.add_argument("--seed", type=int, default=int(time.time()), help="of the first shard; the next ones follow it")
    p.add_argument("--shard", type=int, help=argparse.SUPPRESS)
    p.add_argument("--folder", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.folder:
        return run_shard(a.shard, a.rounds, a.seed, a.folder)
    shards = max(1, min(a.shards, a.rounds))
    parent = tempfile.mkdtemp(prefix="acequia-kills-")
    folders, children = [], []
    for i in range(shards):
        folder = f"{parent}/{i}"
        os.makedirs(folder)
        share = a.rounds // shards + (i < a.rounds % shards)
        command = [sys.executable, "-m", "tests.kills.run", "--rounds", str(share), "--shard", str(i), "--folder", folder,
                   "--seed", str(a.seed + i)]
        folders.append(folder)
        children.append(subprocess.Popen(command, stdin=subprocess.DEVNULL))
    begin = time.monotonic()
    watch(children, folders, a.rounds)
    failed = [f for f, child in zip(folders, children) if child.returncode]
    for f in folders:
        print(f"shard {os.path.basename(f)}: {read(f'{f}/done', '0')} rounds ({read(f'{f}/faults', 'it did not begin')})")
    for f in failed:
        print(f"{read(f'{f}/failure', 'ended without a word')}{read(f'{f}/failure-state', '')}\nlogs: {f}")
    print(f"{done_in(folders)} of {a.rounds} rounds passed, {len(failed)} of {shards} shards failed, seed {a.seed}, "
          f"{time.monotonic() - begin:.0f} s{'' if kills.has_mpirun() else ', without mpirun'}")
    if not failed:
        shutil.rmtree(parent, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
