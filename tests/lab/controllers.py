"""Several controllers that share one PostgreSQL database, and an agent that knows all of them.

    with Controllers(2) as c:
        c.cli("run", "--", "true")
        c.kill(c.leader()); ...
"""
import os
import shutil
import signal
import subprocess
import tempfile

from .api import Api, ApiError
from .cluster import find_binary
from .postgres import Postgres
from .proc import alive, end_child, free_ports, kill_trees, processes_naming, spools_of, wait_until

LEASE_S = 3
NODES = "[node *]\ncpus = 64\nmemory = 64G\n"


class Controllers:
    def __init__(self, count=2, agents=("n1",), config="", database=None, settings=""):
        """`settings` are of the section [cluster], `config` is whole sections."""
        self.count, self.agents, self.config, self.settings = count, agents, config, settings
        self.binary = find_binary()
        self.own_database = database is None
        self.database = database
        self.home = None
        self.children = {}

    def __enter__(self):
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *_):
        self.down()

    def up(self):
        if self.own_database:
            self.database = Postgres()
        self.home = tempfile.mkdtemp(prefix="acequia-lab-")
        os.chmod(self.home, 0o755)
        self.ports = free_ports(self.count)
        self.env = dict(os.environ, ACEQUIA_HOME=f"{self.home}/client", ACEQUIA_HOST=",".join(
            f"unix:{self.socket(i)}" for i in range(self.count)))
        for i in range(self.count):
            os.makedirs(f"{self.home}/c{i}")
            with open(f"{self.home}/c{i}/acequia.conf", "w", encoding="utf-8") as f:
                f.write(f"[cluster]\nlisten = 127.0.0.1:{self.ports[i]}\n{self.settings}[store]\ndatabase = {self.uri(i)}\n"
                        f"address = 127.0.0.1:{self.ports[i]}\nlease = {LEASE_S}s\n[portal]\nenabled = false\n{self.config}")
            self.start(i)
        wait_until(lambda: self.leader() is not None, 30, self.logs)
        for name in self.agents:
            self.join(name)
        wait_until(lambda: len(self.nodes_up()) == len(self.agents), 30, self.logs)

    def down(self):
        for i in range(self.count):
            child = self.children.get(f"c{i}")
            if child and child.poll() is None:
                child.send_signal(signal.SIGCONT)
        for child in self.children.values():
            end_child(child)
        if self.home:
            spools = spools_of(self.home)
            for place in (self.home, *spools):
                kill_trees(processes_naming(place))
            for spool in spools:
                shutil.rmtree(spool, ignore_errors=True)
            shutil.rmtree(self.home, ignore_errors=True)
        if self.own_database and self.database:
            self.database.close()

    # --- daemons ---

    def uri(self, i):
        """Where controller i finds the database."""
        return self.database.uri

    def socket(self, i):
        return f"{self.home}/c{i}/run/api.sock"

    def _daemon(self, name, *arguments):
        with open(f"{self.home}/{name}.log", "ab") as log:
            self.children[name] = subprocess.Popen([self.binary, *arguments], stdin=subprocess.DEVNULL, stdout=log,
                                                   stderr=log, start_new_session=True,
                                                   env=dict(os.environ, ACEQUIA_HOME=f"{self.home}/{name}"))

    def start(self, i):
        """Starts controller i without waiting for it."""
        self._daemon(f"c{i}", "controller")

    def kill(self, i, sig=signal.SIGKILL):
        child = self.children[f"c{i}"]
        os.kill(child.pid, sig)
        if sig == signal.SIGKILL:
            child.wait(10)

    def join(self, name):
        """A node that knows all controllers."""
        os.makedirs(f"{self.home}/{name}")
        with open(f"{self.home}/{name}/acequia.conf", "w", encoding="utf-8") as f:
            f.write(NODES)
        token = self.api().post("/v1/tokens", {"kind": "agent"})["token"]
        with open(os.open(f"{self.home}/{name}/token", os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as f:
            f.write(token + "\n")
        self.start_agent(name)

    def start_agent(self, name):
        addresses = ",".join(f"127.0.0.1:{p}" for p in self.ports)
        self._daemon(name, "agent", "--name", name, "--join", addresses, "--token-file", f"{self.home}/{name}/token")

    # --- asking ---

    def answers(self, i):
        """What controller i says to a request: "leads", "follows", or None when nothing comes."""
        if not alive(self.children[f"c{i}"].pid):
            return None
        api = Api(self.socket(i), timeout=2)
        try:
            api.get("/v1/status")
            return "leads"
        except ApiError as e:
            return "follows" if e.status == 503 else None
        except OSError:
            return None
        finally:
            api.close()

    def leader(self):
        """The number of the controller that leads; None: nobody does."""
        return next((i for i in range(self.count) if self.answers(i) == "leads"), None)

    def wait_leader(self, other_than=None, seconds=30):
        """The number of the leader, when there is one that is not `other_than`."""
        def found():
            for i in range(self.count):
                if i != other_than and self.answers(i) == "leads":
                    return [i]
            return None
        return wait_until(found, seconds, self.logs, interval=0.02)[0]

    def api(self):
        return Api(self.socket(self.wait_leader()))

    def nodes_up(self):
        return [n["name"] for n in self.api().get("/v1/nodes")["nodes"] if n["state"] not in ("DOWN", "SILENT", "UNKNOWN")]

    def cli(self, *arguments, check=True, timeout=240, env=None, **kwargs):
        done = subprocess.run([self.binary, *arguments], env=env or self.env, capture_output=True, text=True, check=False,
                              timeout=timeout, **kwargs)
        if check and done.returncode:
            raise AssertionError(f"acequia {' '.join(arguments)} ended with {done.returncode}: {done.stderr}{done.stdout}\n"
                                 + self.logs())
        return done

    def logs(self):
        out = []
        for name in self.children:
            with open(f"{self.home}/{name}.log", encoding="utf-8", errors="replace") as f:
                out.append(f"--- {name}\n" + f.read()[-3000:])
        return "\n".join(out)
