"""A cluster of one machine in a folder of its own, driven through the command line."""
import json
import os
import shutil
import subprocess
import tempfile

from .proc import kill_trees, processes_naming, spools_of, wait_until

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("ACEQUIA_BUILD", os.path.join(ROOT, "build"))
ACEQUIA = os.path.join(BUILD, "src/cli/acequia")


class Cluster:
    """`acequia(...)` runs a verb; `home` holds everything; `work` is where jobs run."""

    def __init__(self, config="", up=True):
        self.home = tempfile.mkdtemp(prefix="aqt-", dir="/tmp")  # short: it holds a socket
        self.work = os.path.join(self.home, "work")
        os.mkdir(self.work)
        os.chmod(self.home, 0o755)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("ACEQUIA_", "SLURM_", "SBATCH_"))}
        self.env.update(ACEQUIA_HOME=self.home, NO_COLOR="1", COLUMNS="80")
        if config:
            with open(os.path.join(self.home, "acequia.conf"), "w", encoding="utf-8") as f:
                f.write(config)
        self.spools = set()
        if up:
            self.acequia("up")
            self.spools |= spools_of(self.home)

    def run(self, *args, input=None, limit=300, env=None, cwd=None):
        """The finished process, whatever its status."""
        return subprocess.run(
            [ACEQUIA, *map(str, args)],
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            text=True,
            timeout=limit,
            cwd=cwd or self.work,
            env={**self.env, **(env or {})},
        )

    def acequia(self, *args, **more):
        """Standard output of a verb that must succeed."""
        r = self.run(*args, **more)
        assert r.returncode == 0, f"acequia {' '.join(map(str, args))}: {r.returncode}\n{r.stdout}{r.stderr}"
        return r.stdout

    def json(self, *args, **more):
        return json.loads(self.acequia(args[0], "--json", *args[1:], **more))

    def submit(self, *args, **more):
        return self.acequia("submit", "--quiet", *args, **more).strip()

    def job(self, job):
        return self.json("get", job)

    def state(self, job):
        return self.job(job)["state"]

    def wait_state(self, job, state, seconds=20):
        return wait_until(lambda: self.state(job) == state, seconds, f"job {job} in state {state}")

    def start(self, *args, **more):
        """A verb in the background."""
        return subprocess.Popen([ACEQUIA, *map(str, args)], cwd=self.work, env=self.env, **more)

    def read(self, name):
        with open(os.path.join(self.work, name), encoding="utf-8") as f:
            return f.read()

    def close(self):
        try:
            self.spools |= spools_of(self.home)
            self.run("down", "--cancel-jobs", limit=300)
            self.run("down")
        finally:
            for place in (self.home, *self.spools):
                kill_trees(processes_naming(place))
            for place in (self.home, *self.spools):
                shutil.rmtree(place, ignore_errors=True)
