"""Slurm's own commands, spoken by Slurm and by Acequia (called as sbatch, squeue, …): sides for
the second half of bench/run."""
import os
import subprocess
import tempfile
import time

from sides import AcequiaSide, LabError, SlurmSide

STEPS_SCRIPT = """#!/bin/bash
#SBATCH -n 1 -o {out} -e /dev/null
begin=$(date +%s%N)
for i in $(seq {count}); do srun true || exit 1; done
end=$(date +%s%N)
echo $(( (end - begin) / 1000 ))
"""

COMMANDS = ["sbatch", "squeue", "srun", "scancel", "sinfo", "scontrol", "sacct", "salloc",
            "sacctmgr"]


COPY_STEP = 1000000  # between the ids of a job and of its copies
BURST = 100          # jobs that have a window of time to themselves


def burst(side):
    """Runs BURST jobs with nothing before and after; the seconds they lie between, for -S and -E."""
    time.sleep(2.1)
    begin = int(time.time())
    side.in_process(BURST, held=False)
    side.wait_empty()
    end = int(time.time()) + 1
    time.sleep(2.1)
    return [time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(t)) for t in (begin, end)]


def run_steps(side, count):
    """Microseconds per `srun true` inside one allocation."""
    folder = tempfile.mkdtemp(prefix="bench-steps-")
    out = f"{folder}/out"
    script = f"{folder}/job.sh"
    with open(script, "w", encoding="utf-8") as f:
        f.write(STEPS_SCRIPT.format(out=out, count=count))
    try:
        done = subprocess.run([side.word("sbatch"), "--wait", script], env=side.env, timeout=600,
                              capture_output=True, text=True, check=False)
        if done.returncode:
            raise LabError(f"steps: {done.stderr.strip()}")
        for _ in range(100):  # the output file may come a moment after the answer
            text = open(out, encoding="utf-8").read() if os.path.exists(out) else ""
            if text.strip().isdigit():
                return int(text) / count
            time.sleep(0.05)
        raise LabError(f"steps printed {text!r}")
    finally:
        for path in (out, script):
            if os.path.exists(path):
                os.unlink(path)
        os.rmdir(folder)


class SlurmWords(SlurmSide):
    """Slurm with accounting, as sites that use sacct have it."""

    def __init__(self):
        super().__init__(accounting=True)
        self.window = None

    @staticmethod
    def word(command):
        """The command's path."""
        return command

    def finish(self, count):
        """Has `count` finished jobs in the accounting database, BURST of them alone in their window
        of time: a thousand that really ran, and copies of their rows for the rest (Slurm itself
        would take half an hour)."""
        if self.window:
            return
        self.clear()  # ids begin at 1 again
        self.lab.sql("USE slurm_acct_db; DELETE FROM lab_job_table; DELETE FROM lab_step_table")
        window = burst(self)
        self._ran(BURST)
        real = 1000
        self.in_process(real, held=False)
        self.wait_empty()
        self._ran(BURST + real)
        self._copy_rows("lab_job_table", real, count - BURST)
        self._compare(BURST + 1, BURST + 1 + COPY_STEP)
        self.window = window

    def _ran(self, count):
        """Waits until so many ended jobs are in the database."""
        deadline = time.monotonic() + 120
        ended = "SELECT count(*) FROM slurm_acct_db.lab_job_table WHERE time_end > 0"
        while int(self.lab.sql(ended).stdout) < count:
            if time.monotonic() > deadline:
                raise LabError("the accounting database lags behind")
            time.sleep(0.2)

    def _compare(self, real, copy):
        """A copied row must look like the one of a job that ran, for sacct too."""
        lines = []
        for job in (real, copy):
            out = self.lab.run("sacct", "-a", "-X", "-n", "-P", "-S", "now-1day", "-j", str(job),
                               "-o", "JobName,Partition,Account,User,AllocCPUS,AllocTRES,State,"
                               "ExitCode,Submit,Start,End,NodeList,ReqMem,Timelimit").stdout
            lines.append(out)
        if lines[0] != lines[1] or lines[0].count("\n") != 1:
            raise LabError(f"a copied row differs: {lines}")

    def _copy_rows(self, table, real, count):
        columns = self.lab.sql(f"SELECT column_name FROM information_schema.columns WHERE "
                               f"table_schema='slurm_acct_db' AND table_name='{table}'").stdout
        names = [c for c in columns.split() if c != "job_db_inx"]
        quoted = ",".join(f"`{c}`" for c in names)
        statements = []
        for k in range(1, -(-count // real)):
            values = ",".join(f"id_job+{k * COPY_STEP}" if c == "id_job" else f"`{c}`"
                              for c in names)
            statements.append(f"INSERT INTO {table}({quoted}) SELECT {values} FROM {table} "
                              f"WHERE id_job > {BURST} AND id_job < {COPY_STEP}"
                              f" LIMIT {min(real, count - k * real)}")
        self.lab.sql("USE slurm_acct_db; " + ";".join(statements))


class AcequiaWords(AcequiaSide):
    """Acequia called by Slurm's names, which lead the way in a folder of links."""

    def up(self):
        super().up()
        self.window = None
        self.words = f"{self.cluster.home}/words"
        os.mkdir(self.words)
        for command in COMMANDS:
            os.symlink(self.binary, f"{self.words}/{command}")
        self.env["PATH"] = f"{self.words}:{self.env['PATH']}"

    def word(self, command):
        """The command's path."""
        return f"{self.words}/{command}"

    def finish(self, count):
        """Has `count` finished jobs in history, BURST of them alone in their window of time; all
        of them really ran."""
        if self.window:
            return
        self.clear()
        window = burst(self)
        for at in range(BURST, count, 10000):
            self.in_process(min(10000, count - at), held=False)
        self.wait_empty()
        self.window = window
