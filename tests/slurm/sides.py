"""Two sides that take the same command lines: a real Slurm from Debian's packages, and Acequia
called by the names of Slurm's commands. Both have two nodes, n1 and n2, with 64 CPUs each."""
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time

from tests.lab.cluster import find_binary
from tests.lab.proc import LabError, end_child, kill_trees, processes_naming, wait_until
from tests.lab.slurm import SlurmLab

FIRST_ID = 2001  # so that no other number looks like a job's
CONFIG = "[node *]\ncpus = 64\nmemory = 20000M\n[license fluent]\ncount = 3\n[license gauss]\ncount = 1\n"
LICENSES = "Licenses=fluent:3,gauss"


class Result:
    """What a command line gave."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def __repr__(self):
        return f"rc={self.code} out={self.out!r} err={self.err!r}"


class Side:
    """Runs command lines with names put in for {placeholders}."""
    env = None
    work = None

    def __init__(self):
        self.names = {}

    @staticmethod
    def become(user):
        """The words before a command that is run as somebody else."""
        return ["setpriv", f"--reuid={user}", f"--regid={pwd.getpwnam(user).pw_gid}", "--clear-groups"] if user else []

    def run(self, line, save=None, stdin="", timeout=60, user=None):
        """Runs a line with a shell; `save` keeps the number it prints under a name."""
        for name, number in self.names.items():
            line = line.replace(f"{{{name}}}", number)
        done = subprocess.run([*self.become(user), "bash", "-c", line], env=self.env, cwd=self.work, input=stdin, text=True,
                              capture_output=True, timeout=timeout, check=False, errors="replace")
        if save:
            found = re.search(r"\d+", done.stdout)
            self.names[save] = found.group() if found else "0"
        return Result(done.returncode, self.plain(done.stdout), self.plain(done.stderr))

    def plain(self, text):
        """Ids, times and folders by names, so that the two sides can be compared."""
        text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", "<time>", text)
        for name, number in sorted(self.names.items(), key=lambda x: -len(x[1])):
            text = re.sub(rf"(?<![\w.]){number}(?![a-zA-Z0-9])", f"<{name}>", text)
        return text.replace(self.work, "<work>")

    def wait(self, name, seconds=120):
        """Until no element of the job is in the queue any more."""
        def gone():
            r = self.run(f"squeue -h -j {{{name}}} -t PD,R,CG,S,CF -o %i")
            return not r.out.strip()
        wait_until(gone, seconds, f"job {name} does not end", interval=0.05)


class SlurmSide(Side):
    """The real one."""

    def __init__(self, accounting=False, gpu_type="", **lab):
        super().__init__()
        self.lab = SlurmLab(**{"nodes": 2, "tuned": True, "accounting": accounting, "extra": f"FirstJobId={FIRST_ID}\n{LICENSES}",
                               "gpu_type": gpu_type, **lab})
        self.lab.up()
        self.env = self.lab.env
        self.work = tempfile.mkdtemp(prefix="slurm-work-")
        os.chmod(self.work, 0o777)

    def close(self):
        """Ends it."""
        self.lab.down()
        shutil.rmtree(self.work, ignore_errors=True)


class AcequiaSide(Side):
    """Ours: a controller, two agents, and a folder of links first on PATH."""

    def __init__(self, config=CONFIG, nodes=("n1", "n2"), default_memory="10M"):
        super().__init__()
        self.home = tempfile.mkdtemp(prefix="acequia-slurm-")
        os.chmod(self.home, 0o755)
        self.work = tempfile.mkdtemp(prefix="slurm-work-")
        os.chmod(self.work, 0o777)
        binary = find_binary()
        env = {k: v for k, v in os.environ.items() if not k.startswith("SLURM")}
        self.env = dict(env, ACEQUIA_HOME=self.home, PATH=f"{self.home}/bin:{env['PATH']}")
        with open(f"{self.home}/acequia.conf", "w", encoding="utf-8") as f:
            f.write(config)
        self.children = []
        try:
            self._start(binary, "controller")
            wait_until(lambda: os.path.exists(f"{self.home}/run/api.sock"), 20,
                       "the controller does not open its socket")
            subprocess.run([binary, "slurm-commands", f"{self.home}/bin"], env=self.env,
                           check=True, capture_output=True)
            for count, name in enumerate(nodes, 1):  # one by one: the first is filled first
                self._start(binary, "agent", "--name", name)
                wait_until(lambda n=count: self.run("sinfo -h -o '%t %D'").out.strip() == f"idle {n}", 20,
                           f"{name} does not become idle", interval=0.05)
            self.run(f"sbatch -H -a 1-{FIRST_ID - 1} --wrap true", save="first")
            self.run("scancel {first}")
            self.names.clear()
            if default_memory:
                self.acequia("partition", "edit", "main", "--default-memory-per-cpu", default_memory)
        except BaseException:
            self.close()
            raise

    def acequia(self, *words):
        """A command of its own, which must do."""
        subprocess.run([find_binary(), *words], env=self.env, check=True, capture_output=True)

    def _start(self, *command):
        with open(f"{self.home}/{command[1]}.out", "ab") as log:
            self.children.append(subprocess.Popen(
                command, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True))

    def close(self):
        """Ends it and what it started."""
        try:
            self.run("scancel -u root", timeout=30)
            time.sleep(0.5)
        except (subprocess.TimeoutExpired, OSError, LabError):
            pass
        for child in reversed(self.children):
            end_child(child)
        kill_trees(processes_naming(self.home))
        shutil.rmtree(self.home, ignore_errors=True)
        shutil.rmtree(self.work, ignore_errors=True)


def end_all(*sides):
    """Ends sides that are there; never leaves one because another fails."""
    signal.alarm(0)
    for side in sides:
        if side:
            side.close()
