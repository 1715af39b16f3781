"""The two systems that bench/run compares, behind one set of questions. Commands are timed by the
small C program bench_spawn, so that no interpreter's cost is in the figures."""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

TREE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.environ.get("BUILD", f"{TREE}/build"))
sys.path.insert(0, f"{TREE}/tests")

from lab.cluster import Cluster, find_binary  # noqa: E402
from lab.proc import LabError, alive, rss_bytes, wait_until  # noqa: E402
from lab.slurm import SlurmLab, install  # noqa: E402

NODES, CPUS = 4, 64
DRAIN_S = 180  # the longest a measurement may take to finish its jobs


def build(name, *sources, libraries=()):
    """Path of a helper program: from the build folder, else compiled into a temporary one."""
    ready = f"{BUILD}/bench/{name}"
    if os.access(ready, os.X_OK):
        return ready
    target = f"{tempfile.gettempdir()}/acequia-bench-{os.getuid()}-{name}"
    paths = [f"{TREE}/{s}" for s in sources]
    newest = max(os.path.getmtime(p) for p in paths)
    if not os.path.exists(target) or os.path.getmtime(target) < newest:
        subprocess.run(["cc", "-O2", "-D_GNU_SOURCE", f"-I{TREE}/src", "-o", target, *paths,
                        *[f"-l{x}" for x in libraries]], check=True)
    return target


def spawn_program():
    """The stopwatch."""
    return build("bench_spawn", "bench/spawn.c", "src/base/clock.c", "src/base/text.c")


class Side:
    """What both systems can be asked. `pending` counts the held jobs that fill() left there."""
    name = ""
    env = None

    def __init__(self):
        self.pending = 0
        self.held = False     # held jobs were left behind
        self.blocked = False  # all CPUs are taken by jobs that sleep

    def timed(self, count, procs, *command, output=None):
        """Runs a command `count` times by `procs` clients; rate and latencies."""
        options = ["-o", output] if output else []
        done = subprocess.run([spawn_program(), *options, str(count), str(procs), *command],
                              env=self.env, capture_output=True, text=True, check=False,
                              timeout=1200)
        if done.returncode:
            raise LabError(f"{' '.join(command)}: {done.stderr.strip()[-400:]}")
        return json.loads(done.stdout)

    def submit_ids(self, count, procs):
        """Submits held jobs one by one; the ids that were acknowledged."""
        with tempfile.NamedTemporaryFile(prefix="bench-ids-") as out:
            self.timed(count, procs, *self.submit_command(held=True), output=out.name)
            text = out.read().decode()
        ids = [int(n) for n in re.findall(r"\d+", text)]
        if len(ids) != count:
            raise LabError(f"{count} submits printed {len(ids)} numbers: {text[:200]}")
        return ids

    def drained(self, begin):
        """Waits until nothing is left to run; seconds since `begin`."""
        self.wait_empty()
        return time.monotonic() - begin

    def pause(self, paused):
        """Stops or continues the daemons."""
        for pid in self.pids():
            os.kill(pid, signal.SIGSTOP if paused else signal.SIGCONT)


class SlurmSide(Side):
    """Debian's Slurm, tuned for throughput unless told otherwise."""
    name = "slurm"

    def __init__(self, tuned=True, accounting=False, cgroup=False):
        super().__init__()
        self.lab = SlurmLab(nodes=NODES, cpus=CPUS, tuned=tuned, accounting=accounting,
                            cgroup=cgroup)

    def up(self):
        """Starts it."""
        install(["libslurm-dev", "gcc", "libc6-dev"])
        self.lab.up()
        self.env = self.lab.env

    def down(self):
        """Stops it."""
        self.lab.down()

    def ready(self):
        """After a pause: it answers again."""
        self.lab.wait_answer()

    def pids(self):
        """The daemons."""
        return self.lab.pids()

    def clear(self):
        """No jobs."""
        self.lab.reset()
        self.pending, self.held, self.blocked = 0, False, False

    def submit_command(self, held=False, extra=()):
        """One no-op job."""
        return ["sbatch", *(["-H"] if held else []), *extra, "-o", "/dev/null", "--wrap", "true"]

    def list_command(self):
        """Everything that waits or runs."""
        return ["squeue"]

    def run_command(self):
        """Run and wait."""
        return ["srun", "true"]

    def in_process(self, count, held):
        """Submits without starting a command for each: jobs per second."""
        program = build("slurm_submit", "bench/slurm_submit.c", libraries=["slurm", "pthread"])
        out = self.lab.run(program, str(count), "4", "held" if held else "free", timeout=1200)
        return json.loads(out.stdout)["rate"]

    def fill(self, count):
        """Has `count` held jobs waiting."""
        if self.pending < count:
            self.in_process(count - self.pending, held=True)
            self.pending = count

    def block(self):
        """Takes all CPUs until clear()."""
        for _ in range(NODES):
            self.lab.run("sbatch", "-n1", "-c", str(CPUS), "-o", "/dev/null", "--wrap",
                         "sleep 3600")
        self.blocked = True

    def submit_array(self, count):
        """One array of no-op jobs."""
        self.lab.run(*self.submit_command(extra=["--array", f"0-{count - 1}"]))

    def submit_after(self, previous, command):
        """A job that runs `command` after the job `previous` (None: at once); its id."""
        extra = [] if previous is None else ["-d", f"afterok:{previous}"]
        out = self.lab.run("sbatch", "--parsable", *extra, "-o", "/dev/null", "--wrap", command)
        return int(out.stdout.split(";")[0])

    def wait_empty(self):
        """Nothing left to run."""
        self.lab.wait_empty(DRAIN_S)

    def active_jobs(self):
        """Jobs that are not finished."""
        return self.lab.active_jobs()

    def controller_rss(self):
        """Bytes."""
        return rss_bytes(self.lab.ctld.pid)

    def settle(self):
        """Long enough for the state to be saved: every five seconds."""
        time.sleep(7)

    def crash(self):
        """kill -9 of the controller."""
        self.lab.kill_controller()

    def restart(self):
        """Seconds until it answers again."""
        begin = time.monotonic()
        self.lab.start_controller()
        self.lab.wait_answer()
        return time.monotonic() - begin

    def known(self, ids):
        """Those of the ids that exist."""
        out = self.lab.run("squeue", "-h", "-a", "-t", "all", "-o", "%i").stdout.split()
        there = {int(i) for i in out if i.isdigit()}
        return [i for i in ids if i in there]


class AcequiaSide(Side):
    """This tree's build."""
    name = "acequia"

    def __init__(self, binary=None):
        super().__init__()
        self.binary = binary or find_binary()
        config = f"[node *]\ncpus = {NODES * CPUS}\nmemory = {NODES * 20000}M\n"
        self.cluster = Cluster(config=config, binary=self.binary)

    def up(self):
        """Starts it."""
        self.cluster.up()
        self.env = self.cluster.env

    def down(self):
        """Stops it."""
        self.cluster.down()

    def ready(self):
        """After a pause: it answers, and the node that may have seemed silent is back."""
        self.cluster.wait_ready()
        wait_until(self.cluster.nodes_up, 60, "the node does not come back")

    def pids(self):
        """The daemons."""
        folder = f"{self.cluster.home}/run"
        pids = [self.cluster.pid(n[:-4]) for n in os.listdir(folder) if n.endswith(".pid")]
        return [p for p in pids if p and alive(p)]

    def clear(self):
        """No jobs."""
        self.cluster.down()
        self.up()
        self.pending, self.held, self.blocked = 0, False, False

    def submit_command(self, held=False, extra=()):
        """One no-op job."""
        return [self.binary, "submit", *(["--hold"] if held else []), *extra,
                "--output", "/dev/null", "--", "true"]

    def list_command(self):
        """Everything that waits or runs."""
        return [self.binary, "list"]

    def run_command(self):
        """Run and wait."""
        return [self.binary, "run", "--", "true"]

    @staticmethod
    def _noop(held):
        return {"spec": {"name": "noop", "argv": ["true"], "workdir": "/tmp",
                         "output": "/dev/null", "hold": held},
                "environment": ["PATH=/usr/bin:/bin"]}

    def in_process(self, count, held):
        """Bulk submit over the API, 10,000 to a request: jobs per second."""
        body = json.dumps([self._noop(held)] * min(count, 10000)).encode()
        begin = time.monotonic()
        for at in range(0, count, 10000):
            if count - at < 10000:
                body = json.dumps([self._noop(held)] * (count - at)).encode()
            status, data = self.cluster.api.raw("POST", "/v1/jobs", body)
            if status >= 400 or b'"error"' in data:
                raise LabError(f"bulk submit: {status}: {data[:300]!r}")
        return count / (time.monotonic() - begin)

    def fill(self, count):
        """Has `count` held jobs waiting."""
        if self.pending < count:
            self.in_process(count - self.pending, held=True)
            self.pending = count

    def block(self):
        """Takes all CPUs until clear()."""
        spec = {"name": "block", "argv": ["sleep", "3600"], "workdir": "/tmp",
                "output": "/dev/null", "tasks": 1, "cpus_per_task": NODES * CPUS}
        self.cluster.api.post("/v1/jobs", {"spec": spec, "environment": ["PATH=/usr/bin:/bin"]})
        self.blocked = True

    def submit_array(self, count):
        """One array of no-op jobs."""
        self.cluster.cli(*self.submit_command(extra=["--array", f"0-{count - 1}"])[1:])

    def submit_after(self, previous, command):
        """A job that runs `command` after the job `previous` (None: at once); its id."""
        spec = {"name": "step", "argv": ["/bin/sh", "-c", command], "workdir": "/tmp",
                "output": "/dev/null"}
        if previous is not None:
            spec["dependency"] = f"afterok:{previous}"
        return self.cluster.api.post("/v1/jobs", {"spec": spec})["id"]

    def wait_empty(self):
        """Nothing left to run."""
        self.cluster.wait_empty(DRAIN_S)

    def active_jobs(self):
        """Jobs that are not finished."""
        return self.cluster.active_jobs()

    def controller_rss(self):
        """Bytes."""
        return self.cluster.controller_rss()

    def settle(self):
        """What is acknowledged is on disk."""

    def crash(self):
        """kill -9 of the controller."""
        self.cluster.kill_controller()

    def restart(self):
        """Seconds until it answers again."""
        begin = time.monotonic()
        self.cluster.start_controller()
        self.cluster.wait_ready(60)
        return time.monotonic() - begin

    def known(self, ids):
        """Those of the ids that exist."""
        there = set()
        for at in range(0, len(ids), 100):
            text = ",".join(str(i) for i in ids[at:at + 100])
            rows = self.cluster.api.get(f"/v1/jobs?ids={text}&limit=1000")["jobs"]
            there |= {r["id"] for r in rows}
        return [i for i in ids if i in there]
