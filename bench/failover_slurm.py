#!/usr/bin/env python3
"""Takeover time of Slurm's backup controller, and submits per second of Slurm with slurmdbd beside Acequia on PostgreSQL.

    python3 bench/failover_slurm.py [TIMEOUTS] [SUBMITS]        (120,10 and 5000)

Needs root; Debian's Slurm and MariaDB are installed if they are missing. Both slurmctld share the folder of the state, as
Slurm wants it. The backup runs in a UTS namespace with a host name of its own, by which slurmctld knows which of the two
it is, at an address of its own (127.0.0.2), and with a pid file of its own: it ends whatever process an existing one
names. Takeover: from kill -9 of the primary to the first answer of squeue that lists the job."""
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests"))
from failover import submits  # noqa: E402
from lab.controllers import Controllers  # noqa: E402
from lab.proc import end_child, wait_until  # noqa: E402
from lab.slurm import SlurmLab  # noqa: E402
from sides import SlurmSide, build, spawn_program  # noqa: E402

BACKUP = "lab-backup"
SECONDS = 10


def start_backup(s):
    """The second slurmctld, when it answers."""
    folder = f"{s.folder}/backup"
    os.mkdir(folder)
    for name in ("gres.conf", "cgroup.conf"):
        shutil.copy(f"{s.folder}/{name}", folder)
    with open(f"{s.folder}/slurm.conf", encoding="utf-8") as f:
        text = re.sub(r"(Slurmctld(?:Pid|Log)File=).*/", rf"\1{folder}/", f.read())
    s._write("backup/slurm.conf", text)
    s._write("hosts", f"127.0.0.1 localhost {socket.gethostname()}\n127.0.0.2 {BACKUP}\n")
    child = s._spawn("unshare", "--uts", "--mount", "sh", "-c", f"hostname {BACKUP} && mount --bind {s.folder}/hosts /etc/hosts && "
                     f"SLURM_CONF={folder}/slurm.conf exec slurmctld -D", log="backup.out")
    wait_until(lambda: s.run("scontrol", "ping", check=False).stdout.count("is UP") == 2, 60, "the two slurmctld do not answer")
    return child


def takeover(timeout_s):
    """Seconds from kill -9 of the primary to the backup's first answer."""
    with SlurmLab(nodes=2, extra=f"SlurmctldHost={BACKUP}(127.0.0.2)\nSlurmctldTimeout={timeout_s}\n"
                                 "CommunicationParameters=NoCtldInAddrAny") as s:
        backup = start_backup(s)
        try:
            s.run("sbatch", "-o", "/dev/null", "--wrap", "sleep 3600")
            wait_until(lambda: " R " in s.run("squeue", "-h", check=False).stdout, 60, "the job does not run")
            time.sleep(12)  # Slurm has saved its state since, which it does every five seconds
            assert s.run("scontrol", "ping", check=False).stdout.count("is UP") == 2, "the primary is gone"
            began = time.monotonic()
            s.kill_controller()
            wait_until(lambda: s.run("timeout", "2", "squeue", "-h", check=False).stdout.strip(), timeout_s * 2 + 60,
                       "the backup does not take over", interval=0.1)
            return time.monotonic() - began
        finally:
            end_child(backup, 30)


def main():
    timeouts = [int(n) for n in (sys.argv[1:] + ["120,10"])[0].split(",")]
    count = int((sys.argv[1:] + ["", "5000"][len(sys.argv) - 1:])[1])
    print("load average %.1f" % os.getloadavg()[0], flush=True)
    side = SlurmSide(accounting=True)
    side.up()
    try:
        program = build("slurm_submit", "bench/slurm_submit.c", libraries=["slurm", "pthread"])
        out = json.loads(side.lab.run(program, str(count), "8", "held", timeout=1200).stdout)
        one = side.timed(100, 1, *side.submit_command(held=True))
        print(f"Slurm with slurmdbd     {out['rate']:.0f} submits/s by 8 threads; sbatch, one by one: median {one['median_us'] / 1000:.1f} ms, "
              f"p99 {one['p99_us'] / 1000:.1f} ms", flush=True)
    finally:
        side.down()
    with Controllers(2) as c:
        print("Acequia on PostgreSQL   %.0f submits/s by 8 threads, median %.1f ms, p99 %.1f ms"
              % submits(c.socket(c.wait_leader()), SECONDS), flush=True)
        done = subprocess.run([spawn_program(), "100", "1", c.binary, "submit", "-Q", "--hold", "-o", "/dev/null", "--", "true"], env=c.env,
                              capture_output=True, text=True, check=True)
        one = json.loads(done.stdout)
        print(f"  acequia submit, one by one: median {one['median_us'] / 1000:.1f} ms, p99 {one['p99_us'] / 1000:.1f} ms", flush=True)
    for timeout_s in timeouts:
        print(f"Slurm's backup controller answers {takeover(timeout_s):.1f} s after kill -9, with SlurmctldTimeout={timeout_s}", flush=True)


if __name__ == "__main__":
    main()
