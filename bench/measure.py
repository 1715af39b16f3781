"""What is measured, one function per measurement: it is given a side and returns named figures.
The table at the end says how they are shown and what is to be reached."""
import json
import os
import subprocess
import tempfile
import time

from sides import LabError, spawn_program
from slurm_words import BURST, run_steps

DEEP = 20000
JOBS = 2000
FINISHED = 100000


def submit(side):
    """One client after another submit, held: nothing else is in the way."""
    r = side.timed(300, 1, *side.submit_command(held=True))
    return {"submit_ms": r["median_us"] / 1e3, "submit_rate": r["rate"]}


def submit4(side):
    """Four clients at once."""
    return {"submit4_rate": side.timed(400, 4, *side.submit_command(held=True))["rate"]}


def bulk(side):
    """Without a command per job: the API here, libslurm with four threads there."""
    count = 2000 if side.name == "slurm" else 50000
    rate = side.in_process(count, held=True)
    side.clear()
    return {"bulk_rate": rate}


def noop(side):
    """No-op jobs, single submits by four clients, from the first submit to the last end."""
    begin = time.monotonic()
    side.timed(JOBS, 4, *side.submit_command())
    return {"noop_rate": JOBS / side.drained(begin)}


def noop_api(side):
    """The same submitted in process."""
    begin = time.monotonic()
    side.in_process(JOBS, held=False)
    return {"noop_api_rate": JOBS / side.drained(begin)}


def array(side):
    """The same as one array."""
    begin = time.monotonic()
    side.submit_array(JOBS)
    return {"array_rate": JOBS / side.drained(begin)}


def run(side):
    """Run and wait, idle cluster."""
    r = side.timed(60, 1, *side.run_command())
    return {"run_ms": r["median_us"] / 1e3}


def start(side):
    """From the submit command to the job's first instruction, idle cluster."""
    took = []
    for _ in range(5):
        with tempfile.NamedTemporaryFile(prefix="bench-start-") as f:
            begin = time.time()
            side.submit_after(None, f"date +%s.%N > {f.name}")
            side.wait_empty()
            took.append(float(open(f.name, encoding="utf-8").read()) - begin)
    return {"start_ms": sorted(took)[2] * 1e3}


def chain(side):
    """Ten jobs, each after the one before."""
    begin = time.monotonic()
    previous = None
    for _ in range(10):
        previous = side.submit_after(previous, "true")
    return {"chain_s": side.drained(begin)}


def deep_submit(side):
    """Submits while many jobs wait."""
    side.fill(DEEP)
    r = side.timed(100, 1, *side.submit_command(held=True))
    return {"deep_submit_ms": r["median_us"] / 1e3}


def busy_submit(side):
    """Submits while all CPUs are taken and many jobs wait for them: the scheduler has work."""
    if not side.blocked:
        side.clear()
        side.block()
        side.in_process(DEEP, held=False)
    r = side.timed(100, 1, *side.submit_command())
    return {"busy_submit_ms": r["median_us"] / 1e3, "busy_submit_p95_ms": r["p95_us"] / 1e3}


def list_pending(side):
    """All that waits, printed."""
    side.fill(DEEP)
    with tempfile.NamedTemporaryFile(prefix="bench-list-") as out:
        r = side.timed(10, 1, *side.list_command(), output=out.name)
        rows = sum(1 for _ in out) / 10
    if rows < DEEP:
        raise LabError(f"the list has {rows:.0f} lines for {DEEP} jobs")
    return {"list_ms": r["median_us"] / 1e3}


def memory(side):
    """Resident memory of the controller per waiting job, over an empty one."""
    side.clear()
    before = side.controller_rss()
    side.fill(DEEP)
    side.settle()
    return {"memory_bytes": (side.controller_rss() - before) / DEEP}


def crash_and_return(side, least):
    """Seconds to the first answer of a controller that was killed; it must know all its jobs."""
    side.crash()
    took = side.restart()
    jobs = side.active_jobs()
    if jobs < least:
        raise LabError(f"after the restart {jobs} of {least} jobs are there")
    return took


def restart(side):
    """From the start of a killed controller to its first answer."""
    if side.blocked:
        side.clear()
    side.fill(DEEP)
    side.settle()
    return {"restart_s": crash_and_return(side, DEEP)}


def restart_big(side):
    """The same with 100,000 jobs; Slurm would need minutes to be given that many."""
    if side.name == "slurm":
        return {}
    side.fill(100000)
    side.settle()
    took = crash_and_return(side, 100000)
    side.clear()
    return {"restart_big_s": took}


def lost(side):
    """Acknowledged jobs that are gone after kill -9 right after the last of 100 submits."""
    side.clear()
    ids = side.submit_ids(100, 1)
    if len(side.known(ids)) != len(ids) or side.known([10**8]):
        raise LabError("the list of jobs cannot be trusted")
    side.crash()
    side.restart()
    return {"lost_jobs": len(ids) - len(side.known(ids))}


def spawn(side):
    """posix_spawn and wait, bare: one process, and one per core."""
    if side.name == "slurm":
        return {}
    figures = {}
    for name, procs in (("spawn1_rate", 1), ("spawn_rate", os.cpu_count())):
        out = subprocess.run([spawn_program(), "3000", str(procs)], capture_output=True,
                             text=True, check=True)
        figures[name] = json.loads(out.stdout)["rate"]
    return figures


# --- Slurm's commands ---


def words_sbatch(side):
    """sbatch, held, one after another."""
    r = side.timed(200, 1, side.word("sbatch"), "-H", "-o", "/dev/null", "--wrap", "true")
    return {"words_sbatch_ms": r["median_us"] / 1e3}


def words_squeue(side):
    """squeue with many pending."""
    side.fill(DEEP)
    r = side.timed(10, 1, side.word("squeue"))
    return {"words_squeue_ms": r["median_us"] / 1e3}


def sacct_ms(side, count, expected, *options):
    """Milliseconds of one sacct, and that it prints what it must."""
    command = [side.word("sacct"), "-a", "-X", "-n", "-P", *options, "-o",
               "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode"]
    with tempfile.NamedTemporaryFile(prefix="bench-sacct-") as out:
        r = side.timed(count, 1, *command, output=out.name)
        rows = sum(1 for _ in out) / count
    if rows != expected:
        raise LabError(f"sacct {' '.join(options)} printed {rows:.0f} lines for {expected} jobs")
    return r["median_us"] / 1e3


def words_sacct(side):
    """sacct over many finished: all of them, one, and those of a short time."""
    side.finish(FINISHED)
    begin, end = side.window
    return {"words_sacct_ms": sacct_ms(side, 3, FINISHED, "-S", "now-1day"),
            "words_sacct_one_ms": sacct_ms(side, 20, 1, "-S", "now-1day", "-j", "777"),
            "words_sacct_window_ms": sacct_ms(side, 20, BURST, "-S", begin, "-E", end)}


def words_steps(side):
    """200 steps inside one allocation."""
    return {"words_step_ms": run_steps(side, 200) / 1e3}


# Those marked IDLE begin on a cluster without any job; the others leave held jobs behind.
IDLE, ANY = True, False
MEASUREMENTS = {
    "spawn": (spawn, ANY), "run": (run, IDLE), "start": (start, IDLE), "chain": (chain, IDLE),
    "noop": (noop, IDLE), "noop-api": (noop_api, IDLE), "array": (array, IDLE),
    "submit": (submit, ANY), "submit4": (submit4, ANY), "bulk": (bulk, ANY),
    "memory": (memory, ANY), "deep": (deep_submit, ANY), "list": (list_pending, ANY),
    "restart": (restart, ANY), "restart-big": (restart_big, ANY),
    "lost": (lost, ANY), "busy": (busy_submit, ANY),
}
WORDS = {
    "steps": (words_steps, IDLE), "sbatch": (words_sbatch, ANY), "squeue": (words_squeue, ANY),
    "sacct": (words_sacct, IDLE),
}


class Figure:
    """How a figure is shown: title, unit, whether more is better, and the target: bounds on the
    value, and a factor over Slurm's."""

    def __init__(self, title, unit, more=False, most=None, least=None, times=None, digits=1):
        self.title, self.unit, self.more, self.digits = title, unit, more, digits
        self.most, self.least, self.times = most, least, times

    def target(self):
        """The target in words."""
        parts = []
        if self.most is not None:
            parts.append(f"<= {self.most:g} {self.unit}")
        if self.least is not None:
            parts.append(f">= {self.least:g} {self.unit}")
        if self.times:
            parts.append(f">= {self.times:g} x slurm")
        return ", ".join(parts)

    def reached(self, ours, theirs):
        """True, False, or None when it cannot be said."""
        if ours is None or not self.target() or (self.times and not theirs):
            return None
        ratio = (ours / theirs if self.more else theirs / ours) if theirs and ours else 0
        return ((self.most is None or ours <= self.most) and
                (self.least is None or ours >= self.least) and
                (not self.times or ratio >= self.times))


FIGURES = {
    "spawn1_rate": Figure("bare spawn and wait, 1 process", "/s", more=True, digits=0),
    "spawn_rate": Figure("bare spawn and wait, all cores", "/s", more=True, digits=0),
    "submit_ms": Figure("submit", "ms", most=2, digits=2),
    "submit_rate": Figure("submit, 1 client", "/s", more=True, digits=0),
    "submit4_rate": Figure("submit, 4 clients", "/s", more=True, digits=0),
    "run_ms": Figure("run true", "ms", most=8),
    "start_ms": Figure("submit to first instruction", "ms"),
    "chain_s": Figure("chain of 10 afterok jobs", "s", digits=2),
    "noop_rate": Figure(f"{JOBS} no-op jobs, 4 clients", "jobs/s", more=True),
    "noop_api_rate": Figure(f"{JOBS} no-op jobs, in process", "jobs/s", more=True, times=20),
    "array_rate": Figure(f"{JOBS} no-op jobs, one array", "jobs/s", more=True, times=20),
    "bulk_rate": Figure("bulk submit", "/s", more=True, least=20000, digits=0),
    "memory_bytes": Figure(f"memory per job, {DEEP:,} pending", "B", most=1024, digits=0),
    "deep_submit_ms": Figure(f"submit with {DEEP:,} pending", "ms", most=2, digits=2),
    "busy_submit_ms": Figure(f"submit, {DEEP:,} waiting for CPUs", "ms", most=2, digits=2),
    "busy_submit_p95_ms": Figure("the same, 95th percentile", "ms", digits=2),
    "list_ms": Figure(f"list {DEEP:,} pending", "ms", most=40),
    "restart_s": Figure(f"restart with {DEEP:,} jobs", "s", digits=3),
    "restart_big_s": Figure("restart with 100,000 jobs", "s", most=0.5, digits=3),
    "lost_jobs": Figure("acknowledged, lost by kill -9", "of 100", most=0, digits=0),
    "words_sbatch_ms": Figure("sbatch", "ms", most=2, digits=2),
    "words_step_ms": Figure("srun step in an allocation", "ms", most=8, times=5, digits=2),
    "words_squeue_ms": Figure(f"squeue, {DEEP:,} pending", "ms", most=60, times=4),
    "words_sacct_ms": Figure(f"sacct, all of {FINISHED:,} finished", "ms", most=400, times=5,
                             digits=0),
    "words_sacct_one_ms": Figure("sacct, one of them", "ms", most=10, digits=2),
    "words_sacct_window_ms": Figure(f"sacct, {BURST} of a short time", "ms", most=10, digits=2),
}
