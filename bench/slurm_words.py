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

    @staticmethod
    def word(command):
        """The command's path."""
        return command

    def finish(self, count):
        """Has `count` finished jobs in the accounting database: a thousand that really ran, and
        copies of their rows for the rest (Slurm itself would take half an hour)."""
        real = 1000
        self.in_process(real, held=False)
        self.wait_empty()
        deadline = time.monotonic() + 60
        ended = "SELECT count(*) FROM slurm_acct_db.lab_job_table WHERE time_end > 0"
        while int(self.lab.sql(ended).stdout) < real:
            if time.monotonic() > deadline:
                raise LabError("the accounting database lags behind")
            time.sleep(0.2)
        self._copy_rows("lab_job_table", real, count)
        return int(self.lab.sql(ended).stdout)

    def _copy_rows(self, table, real, count):
        columns = self.lab.sql(f"SELECT column_name FROM information_schema.columns WHERE "
                               f"table_schema='slurm_acct_db' AND table_name='{table}'").stdout
        names = [c for c in columns.split() if c != "job_db_inx"]
        quoted = ",".join(f"`{c}`" for c in names)
        statements = []
        for k in range(1, count // real):
            values = ",".join(f"id_job+{k * 1000000}" if c == "id_job" else f"`{c}`"
                              for c in names)
            statements.append(f"INSERT INTO {table}({quoted}) SELECT {values} FROM {table} "
                              f"WHERE id_job < 1000000")
        self.lab.sql("USE slurm_acct_db; " + ";".join(statements))


class AcequiaWords(AcequiaSide):
    """Acequia called by Slurm's names, which lead the way in a folder of links."""

    def up(self):
        super().up()
        self.words = f"{self.cluster.home}/words"
        os.mkdir(self.words)
        for command in COMMANDS:
            os.symlink(self.binary, f"{self.words}/{command}")
        self.env["PATH"] = f"{self.words}:{self.env['PATH']}"

    def word(self, command):
        """The command's path."""
        return f"{self.words}/{command}"

    def finish(self, count):
        """Has `count` finished jobs in history; all of them really ran."""
        for at in range(0, count, 10000):
            self.in_process(min(10000, count - at), held=False)
        self.wait_empty()
        return count
