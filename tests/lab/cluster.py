"""A private Acequia cluster in a temporary folder: everything it has lives under $ACEQUIA_HOME.

    with Cluster(config="[node *]\\ncpus = 64\\n") as c:
        c.cli("run", "--", "true")
        c.kill_controller(); c.start_controller(); c.wait_ready()

Agents beyond the first join over TLS, each with a home of its own, on the same host or in a
namespace of a Network."""
import os
import shutil
import signal
import subprocess
import tempfile

from .api import Api, ApiError
from .proxy import Proxy
from .proc import (LabError, end, end_child, free_ports, kill_trees, processes_naming,
                   rss_bytes, spools_of, wait_until)

CANCEL_MAX = 2000  # more jobs than this are not cancelled one by one at the end
ACTIVE = {"PENDING", "STARTING", "RUNNING", "SUSPENDED", "COMPLETING"}


def find_binary():
    """$ACEQUIA, else the one in $BUILD (this tree's "build"), else what is installed."""
    tree = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    build = os.path.abspath(os.environ.get("BUILD", f"{tree}/build"))
    candidates = [os.environ.get("ACEQUIA"), f"{build}/src/cli/acequia", shutil.which("acequia")]
    for path in candidates:
        if path and os.access(path, os.X_OK):
            return path
    raise LabError("no acequia program: build it (ninja -C build), or name it in $ACEQUIA")


class Cluster:
    """One controller and its agents. `agents` names those started over the network besides the one
    that `acequia up` starts; `network` puts controller and agents into its namespaces, where the
    controller is the host named "head" and `acequia up` is not used. `links`: each agent reaches the
    controller through a proxy of its own, `links[name]`, which can be cut; nodes reach each other
    directly, and there is no agent but those named. Needs neither root nor namespaces."""

    living = set()  # those that are up

    def __init__(self, config="", agents=(), network=None, binary=None, keep=False, links=False):
        self.config, self.agent_names, self.network = config, list(agents), network
        self.links = {} if links else None
        self.binary = binary or find_binary()
        self.keep = keep
        self.home = None
        self.env = None
        self.children = {}   # daemons started here and not by `up`: name -> Popen
        self.api = None
        self.port = None
        self.spools = set()

    # --- up and down ---

    def __enter__(self):
        self.up()
        return self

    def __exit__(self, *_):
        self.down()

    def up(self):
        """Starts the cluster; returns when it answers and its nodes are there."""
        Cluster.living.add(self)
        self.home = tempfile.mkdtemp(prefix="acequia-lab-")
        os.chmod(self.home, 0o755)
        self.env = dict(os.environ, ACEQUIA_HOME=self.home,
                        PATH=f"{os.path.dirname(self.binary)}:{os.environ['PATH']}")
        self.api = Api(f"{self.home}/run/api.sock")
        try:
            self._write_config()
            if self.network or self.links is not None:
                self.start_controller()
            else:
                self.cli("up")
            self.wait_ready()
            for name in self.agent_names if self.links is not None else ():
                self.links[name] = Proxy(("127.0.0.1", 0), ("127.0.0.1", self.port))
                self.links[name].__enter__()
            for name in self.agent_names:
                self.join_agent(name)
            wait_until(lambda: len(self.nodes_up()) >= max(1, len(self.agent_names)), 30,
                       "nodes do not appear")
            self._note_spools()
        except BaseException:
            self.down()
            raise

    def down(self):
        """Stops everything by process id and removes the folder."""
        Cluster.living.discard(self)
        if not self.home:
            return
        self._note_spools()
        try:  # jobs outlive the daemons; with very many waiting, the kill below is quicker
            few = self.answers() and 0 < self.active_jobs() <= CANCEL_MAX and self.nodes_up()
            self.cli("down", *(["--cancel-jobs"] if few else []), check=False)
        except (subprocess.TimeoutExpired, OSError, ApiError):
            pass
        self.api.close()
        for child in self.children.values():
            end_child(child)
        self.children = {}
        for link in (self.links or {}).values():
            link.__exit__()
        for place in (self.home, *self.spools):
            kill_trees(processes_naming(place))
        for spool in self.spools:
            shutil.rmtree(spool, ignore_errors=True)
        self.spools = set()
        if not self.keep:
            shutil.rmtree(self.home, ignore_errors=True)
        self.home = None

    def _note_spools(self):
        """The agents' spool folders on memory file systems: shepherds are known by them."""
        self.spools |= spools_of(self.home)

    def _write_config(self):
        text = self.config
        if self.agent_names and "listen" not in text:
            host = self.network.address("head") if self.network else "127.0.0.1"
            self.port = 6820 if self.network else free_ports(1)[0]
            listen = f"listen = {host}:{self.port}\n"
            text = (text.replace("[cluster]\n", f"[cluster]\n{listen}", 1) if "[cluster]\n" in text
                    else f"[cluster]\n{listen}{text}")
        with open(f"{self.home}/acequia.conf", "w", encoding="utf-8") as f:
            f.write(text)

    # --- daemons ---

    def _daemon(self, name, *arguments, home=None, host=None):
        home = home or self.home
        os.makedirs(f"{home}/log", exist_ok=True)
        command = [self.binary, *arguments]
        if self.network:
            command = self.network.command(host, *command)
        with open(f"{home}/log/{name}.out", "ab") as log:
            child = subprocess.Popen(command, env=dict(self.env, ACEQUIA_HOME=home),
                                     stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                     start_new_session=True)
        self.children[name] = child
        return child

    def pid(self, daemon):
        """Process id of "controller" or "agent-NAME", from its pid file; None when there is none."""
        for home in (self.home, f"{self.home}/{daemon}"):
            try:
                with open(f"{home}/run/{daemon}.pid", encoding="utf-8") as f:
                    return int(f.read().split()[0])
            except (FileNotFoundError, ValueError, IndexError):
                continue
        child = self.children.get(daemon)
        return child.pid if child and child.poll() is None else None

    def kill(self, daemon, sig=signal.SIGKILL):
        """kill -9 of a daemon; returns when it is gone."""
        child = self.children.pop(daemon, None)
        # One that was started a moment ago may not have written its pid file yet.
        pid = child.pid if child and child.poll() is None else self.pid(daemon)
        if not pid:
            raise LabError(f"{daemon} does not run")
        self._note_spools()
        os.kill(pid, sig)
        if child:
            child.wait(10)
        else:
            end(pid)

    def kill_controller(self):
        """kill -9 of the controller."""
        self.api.close()
        self.kill("controller")

    def start_controller(self):
        """Starts the controller without waiting for it."""
        self._daemon("controller", "controller", host="head")

    def kill_agent(self, name):
        """kill -9 of an agent; its jobs go on under their shepherds."""
        self.kill(f"agent-{name}")

    def start_agent(self, name):
        """Starts an agent that has joined before, or the local one, again."""
        home = f"{self.home}/agent-{name}"
        joined = name in self.agent_names
        arguments = ["agent", "--name", name]
        if joined:
            arguments += ["--join", self._address(name)]
        self._daemon(f"agent-{name}", *arguments, home=home if joined else None, host=name)

    def join_agent(self, name):
        """A new node: a token from the head, a home of its own."""
        home = f"{self.home}/agent-{name}"
        os.makedirs(home, exist_ok=True)
        shutil.copy(f"{self.home}/acequia.conf", f"{home}/acequia.conf")  # its [node ...] sections
        token_file = f"{home}/token"
        token = self.api.post("/v1/tokens", {"kind": "agent"})["token"]
        with open(token_file, "w", encoding="utf-8") as f:
            f.write(token + "\n")
        os.chmod(token_file, 0o600)
        if name not in self.agent_names:
            self.agent_names.append(name)
        self._daemon(f"agent-{name}", "agent", "--name", name, "--join", self._address(name),
                     "--token-file", token_file, home=home, host=name)

    def _address(self, name):
        if self.links is not None:
            return f"127.0.0.1:{self.links[name].front[1]}"
        host = self.network.address("head") if self.network else "127.0.0.1"
        return f"{host}:{self.port}"

    # --- asking ---

    def cli(self, *arguments, check=True, timeout=240, **kwargs):
        """Runs `acequia ARGUMENTS` against this cluster."""
        done = subprocess.run([self.binary, *arguments], env=self.env, capture_output=True,
                              text=True, check=False, timeout=timeout,
                              **({} if "input" in kwargs else {"stdin": subprocess.DEVNULL}), **kwargs)
        if check and done.returncode:
            raise LabError(f"acequia {' '.join(arguments)} ended with {done.returncode}: "
                           f"{done.stderr.strip() or done.stdout.strip()}")
        return done

    def answers(self):
        """True when the controller answers."""
        try:
            self.api.get("/v1/status")
            return True
        except (OSError, ApiError):
            return False

    def wait_ready(self, seconds=30):
        """Returns when the controller answers."""
        def ready():
            child = self.children.get("controller")
            if child and child.poll() is not None:
                raise LabError(f"the controller ended with {child.returncode}")
            return self.answers()
        try:
            wait_until(ready, seconds, "the controller does not answer", interval=0.002)
        except LabError as e:
            raise LabError(f"{e}\n{self.log_tail('controller')}") from None

    def nodes_up(self):
        """Names of the nodes that can run jobs."""
        nodes = self.api.get("/v1/nodes")["nodes"]
        return [n["name"] for n in nodes if n["state"].lower() in ("idle", "mixed", "allocated")]

    def active_jobs(self):
        """How many jobs are not finished."""
        counts = self.api.get("/v1/status")["jobs"]
        return sum(n for state, n in counts.items() if state.upper() in ACTIVE)

    def settle(self):
        """Waits until the jobs that were cancelled have ended and their resources are free; never fails."""
        try:
            wait_until(lambda: not self.api.get("/v1/status")["jobs"].get("COMPLETING"), 2, "jobs do not end", 0.01)
        except (LabError, OSError, ApiError):
            pass  # the controller is down, or a test before this one keeps a job from ending

    def wait_empty(self, seconds=600, interval=0.01):
        """Returns when no job is pending or running."""
        wait_until(lambda: self.active_jobs() == 0, seconds, "jobs do not finish", interval)

    def submit_many(self, submits, chunk=10000):
        """Bulk submit over the API; returns the ids, fails on the first refusal."""
        ids = []
        for at in range(0, len(submits), chunk):
            for reply in self.api.post("/v1/jobs", submits[at:at + chunk]):
                if "error" in reply:
                    raise LabError(reply["error"]["message"])
                ids.append(reply["id"])
        return ids

    def controller_rss(self):
        """Resident memory of the controller in bytes."""
        return rss_bytes(self.pid("controller"))

    def log_tail(self, daemon, lines=20):
        """The last lines a daemon logged."""
        text = []
        for home in (self.home, f"{self.home}/{daemon}"):
            for name in (f"{daemon}.log", f"{daemon}.out"):
                try:
                    with open(f"{home}/log/{name}", encoding="utf-8", errors="replace") as f:
                        text += f.readlines()[-lines:]
                except FileNotFoundError:
                    continue
        return "".join(text)
