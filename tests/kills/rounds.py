"""Rounds of faults with every kind of client at work. A round is one fault: a kill -9 of the controller or of an
agent, or a cut of the links between client, controller and agent: ended, stopped one way or both, half open. The
clients go on by themselves: every line of output comes once and in order, input arrives once, exit codes are right.
Connections to ports of jobs end with a cut, and say so; the command that listens for them stays (ports.py).
Only the standard library, so that the long run needs no packages (tests/kills/run.py)."""
import os
import random
import shutil
import signal
import subprocess
import threading
import time

from tests.kills.ports import PortUser, serve_command

from tests.lab.cluster import Cluster
from tests.lab.proc import free_ports, wait_until
from tests.lab.proxy import Proxy

CONFIG = """[cluster]
node_timeout = 120s
heartbeat = 1s

[node *]
cpus = 32
memory = 8000M
"""
LINES = 50
TALK = f"for i in $(seq 1 {LINES}); do echo line $i; sleep 0.1; done; exit 7"
EXPECTED = [f"line {i}" for i in range(1, LINES + 1)]
MPI_TALK = f"for i in $(seq 1 {LINES}); do echo $OMPI_COMM_WORLD_RANK: line $i; sleep 0.1; done"
MPI_RANKS = 4
FAULTS_AT_A_TIME = 5
PATIENCE_S = float(os.environ.get("KILLS_PATIENCE_S", "300"))
# Open MPI over the loopback device, as root and with both "machines" under one host name.
MPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_oob_tcp_if_include": "lo", "OMPI_MCA_btl_tcp_if_include": "lo", "OMPI_MCA_btl": "self,tcp",
    "PMIX_MCA_gds": "hash",
}


def has_mpirun():
    """Open MPI of the 4th series, as Debian has it; others start their daemons in another way."""
    if not shutil.which("mpirun"):
        return False
    done = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=False, timeout=60)
    return "(Open MPI) 4." in done.stdout


def has_ssh():
    """The client, and the server that nodes start inside jobs."""
    return bool(shutil.which("ssh")) and os.access("/usr/sbin/sshd", os.X_OK)


class Lab:
    """Where clients and faults come from; the links are of the two kinds below."""
    mpi = True  # whether mpirun is tried; it has time-outs of its own

    def __init__(self, cluster, nodes, seed):
        self.c, self.nodes, self.chance = cluster, nodes, random.Random(seed)
        self.proxy = self.tls = self.token = None
        self.next_kinds = []  # of faults, in the order of this turn
        self.counts = {}

    def kinds(self):
        """Faults by name."""
        return {"controller killed": self.kill_controller, "agent killed": self.kill_agent, "node cut off": self.cut_node,
                "node cut off one way": self.cut_one_way, "clients cut off": self.cut_clients}

    def start(self, *command, tls=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, more=None):
        """A client; through TLS with a token as on a machine without daemons."""
        env = {k: v for k, v in self.c.env.items() if not k.startswith("SLURM")}
        env["PATH"] = f"{self.c.home}/bin:{env['PATH']}"
        env["XDG_CACHE_HOME"] = f"{self.c.home}/cache"  # ssh's keys: clusters side by side have the same job numbers
        if tls:
            env.update(ACEQUIA_HOME=f"{self.c.home}/away", ACEQUIA_TOKEN_FILE=self.token,
                       ACEQUIA_HOST=f"127.0.0.1:{self.tls.front[1]}")
        else:
            env["ACEQUIA_HOME"] = os.path.dirname(os.path.dirname(self.proxy.front))
        return subprocess.Popen(command, env={**env, **(more or {})}, cwd=self.c.home, stdin=stdin, stdout=stdout,
                                stderr=subprocess.PIPE, text=True, start_new_session=True)

    def kill_controller(self):
        """And starts it again."""
        self.c.kill_controller()
        time.sleep(self.chance.uniform(0, 0.5))
        self.c.start_controller()
        self.c.wait_ready()

    def kill_agent(self):
        """And starts it again."""
        node = self.chance.choice(self.nodes)
        self.c.kill_agent(node)
        time.sleep(self.chance.uniform(0, 0.5))
        self.c.start_agent(node)

    def cut_node(self):
        """Both ways, for a while."""
        raise NotImplementedError

    def cut_one_way(self):
        """One way, for a while."""
        raise NotImplementedError

    def cut_clients(self):
        """Every client at once; those that come over TLS are sometimes only stopped."""
        self.proxy.cut()
        if self.tls and self.chance.random() < 0.5:
            self.tls.cut()
        elif self.tls:
            self.tls.stop(*self.chance.choice([("in",), ("out",), ("in", "out")]))
            time.sleep(self.chance.uniform(0.2, 5))
            self.tls.go_on()

    def seed(self, seed):
        """What comes now depends on it alone: kinds of faults, when, and for how long."""
        self.chance, self.next_kinds = random.Random(seed), []

    def hurt(self):
        """One round. All kinds come in turn, so that a short run has each of them."""
        kinds = self.kinds()
        if not self.next_kinds:
            self.next_kinds = self.chance.sample(sorted(kinds), len(kinds))
        name = self.next_kinds.pop()
        self.counts[name] = self.counts.get(name, 0) + 1
        kinds[name]()


class NamespaceLab(Lab):
    """Each node has a network namespace of its own and loses its cable."""

    def __init__(self, cluster, network, nodes, seed):
        super().__init__(cluster, nodes, seed)
        self.net = network

    def cut_node(self):
        node = self.chance.choice(self.nodes)
        self.net.cut(node)
        time.sleep(self.chance.uniform(0.2, 5))  # longer than the agent waits for the controller: both notice
        self.net.heal(node)

    def cut_one_way(self):
        node, direction = self.chance.choice(self.nodes), self.chance.choice(["in", "out"])
        self.net.cut_one_way(node, direction)
        time.sleep(self.chance.uniform(0.2, 5))
        self.net.heal_one_way(node, direction)


class LinkLab(Lab):
    """The nodes share this machine's network and reach each other whatever happens; each reaches the controller through
    a link of its own that is cut."""

    def cut_node(self):
        link = self.c.links[self.chance.choice(self.nodes)]
        if self.chance.random() < 0.5:
            link.cut()
            return
        link.stop("in", "out")
        time.sleep(self.chance.uniform(0.2, 5))
        link.go_on()

    def cut_one_way(self):
        link = self.c.links[self.chance.choice(self.nodes)]
        link.stop(self.chance.choice(["in", "out"]))
        time.sleep(self.chance.uniform(0.2, 5))
        link.go_on()


class LinkCluster:
    """A LinkLab with two nodes, a proxy for local clients and one for those over TLS."""

    def __init__(self, folder, seed, nodes=("n1", "n2")):
        self.folder, self.seed, self.nodes = folder, seed, list(nodes)
        self.parts = []

    def __enter__(self):
        try:
            c = self._enter(Cluster(config=CONFIG, agents=self.nodes, links=True))
            wait_until(lambda: sorted(c.nodes_up()) == self.nodes, 60, "the nodes do not appear")
            prepare(c)
            lab = LinkLab(c, self.nodes, self.seed)
            os.makedirs(f"{self.folder}/run")
            lab.proxy = self._enter(Proxy(f"{self.folder}/run/api.sock", f"{c.home}/run/api.sock"))
            lab.tls = self._enter(Proxy(("127.0.0.1", 0), ("127.0.0.1", c.port)))
            lab.token = f"{c.home}/token"
            c.cli("token", "create", "--user", "root", "--ttl", "1d", "-o", lab.token)
            os.makedirs(f"{c.home}/away")
            return lab
        except BaseException:
            self.__exit__()
            raise

    def _enter(self, part):
        entered = part.__enter__()
        self.parts.append(part)
        return entered

    def __exit__(self, *_):
        while self.parts:
            self.parts.pop().__exit__(None, None, None)


def prepare(cluster):
    """Slurm's commands in the cluster's own folder."""
    cluster.cli("slurm-commands", f"{cluster.home}/bin")


def finish(child, code, name):
    """Output of a client that must end by itself."""
    try:
        out, err = child.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        out, err = child.communicate()
        raise AssertionError(f"{name} hangs: {out} {err}") from None
    assert child.returncode == code, (name, child.returncode, (out or "")[-500:], err)
    return out


def check_lines(text, name, label=""):
    """Every line once, in order."""
    lines = [x[len(label):] for x in text.splitlines() if x.startswith(f"{label}line ")]
    assert lines == EXPECTED, (name, text)


def check_ranks(text, name, ranks):
    """Those of every task."""
    for rank in range(ranks):
        check_lines(text, name, f"{rank}: ")


def begin(lab):
    """A job to look at, and every kind of client at work: name -> client, exit code, number of ranks (0: no labels)."""
    c = lab.c
    log = f"{c.home}/log.out"
    if os.path.exists(log):
        os.unlink(log)  # what the job before has printed would be shown until this one begins
    job = c.cli("submit", "-Q", "-o", log, "--", "bash", "-c", TALK).stdout.strip()
    host = c.cli("submit", "-Q", "-o", "/dev/null", "--", "sleep", "1000").stdout.strip()
    wait_until(lambda: c.api.get(f"/v1/jobs/{host}")["state"] == "RUNNING", 60, "the job does not start")
    run, exec_ = ["acequia", "run", "--no-input", "--", "bash", "-c", TALK], ["acequia", "exec", "--no-input", host, "--"]
    watched, attach = begin_watched(lab)
    clients = {
        "run": (watched, 7, 0),
        "attach": (lab.start(*attach), 7, 0),
        "exec": (lab.start(*exec_, "bash", "-c", TALK), 7, 0),
        "logs": (lab.start("acequia", "logs", "-f", "-x", job), 7, 0),
        "srun": (lab.start("srun", "bash", "-c", TALK), 7, 0),
        "salloc": (lab.start("salloc", "-Q", "bash", "-c", f"srun bash -c '{TALK}'; exit 5"), 5, 0),
        "srun with labels": (lab.start("srun", "-n2", "--label", "bash", "-c", TALK), 7, 2),
    }
    if lab.tls:
        clients["run over TLS"] = (lab.start(*run, tls=True), 7, 0)
        clients["exec over TLS"] = (lab.start(*exec_, "bash", "-c", TALK, tls=True), 7, 0)
        clients["logs over TLS"] = (lab.start("acequia", "logs", "-f", "-x", job, tls=True), 7, 0)
        clients["attach over TLS"] = (lab.start(*attach, tls=True), 7, 0)
        clients["srun over TLS"] = (lab.start("srun", "bash", "-c", TALK, tls=True), 7, 0)
    if has_ssh():
        clients["ssh"] = (lab.start("acequia", "ssh", host, "--", TALK), 7, 0)
        if lab.tls:
            clients["ssh over TLS"] = (lab.start("acequia", "ssh", host, "--", TALK, tls=True), 7, 0)
    if lab.mpi and has_mpirun() and len(lab.nodes) > 1:
        mpi = ["mpirun", "-np", str(MPI_RANKS), "bash", "-c", MPI_TALK]
        clients["mpirun"] = (lab.start("salloc", "-Q", "-N2", "-n4", *mpi, more=MPI_ENVIRONMENT), 0, MPI_RANKS)
    return host, clients


def begin_watched(lab):
    """A client that runs a job, and the command that attaches another one to it."""
    before = {j["id"] for j in lab.c.api.get("/v1/jobs?limit=1000")["jobs"]}
    client = lab.start("acequia", "run", "--no-input", "--name", "watched", "--", "bash", "-c", TALK)

    def number():
        return [j["id"] for j in lab.c.api.get("/v1/jobs?limit=1000")["jobs"]
                if j["name"] == "watched" and j["id"] not in before]
    job = wait_until(number, 60, "the job of `acequia run` is not there")[0]
    return client, ["acequia", "attach", "--no-input", str(job)]


def begin_ports(lab):
    """A job that answers on a port, and those who ask: (job, users)."""
    port = free_ports(1)[0]
    job = lab.c.cli("submit", "-Q", "--port", str(port), "-o", "/dev/null", "--", *serve_command(port)).stdout.strip()
    wait_until(lambda: lab.c.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 60, "the job with a port does not start")
    users = [PortUser(lab.start("acequia", "port-forward", job, f":{port}"), "port-forward")]
    if lab.tls:
        users.append(PortUser(lab.start("acequia", "port-forward", job, f":{port}", tls=True), "port-forward over TLS"))
    return job, users


def begin_batch(lab):
    """A script that runs a step on its node."""
    path = f"{lab.c.home}/batch.out"
    if os.path.exists(path):
        os.unlink(path)
    script = f"srun bash -c '{TALK}'; echo step $?"
    done = lab.start("sbatch", "-Q", "--parsable", "-n1", "-o", path, "--wrap", script)
    finish(done, 0, "sbatch")
    return path


def check_batch(path):
    """The step's output and exit in the script's log."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    assert text.splitlines()[-1] == "step 7", text
    check_lines(text, "sbatch")


def feed(lab, host, data):
    """Clients that read their input in pieces, over the faults."""
    fed = {}
    commands = {"run": ["acequia", "run", "--"], "exec": ["acequia", "exec", host, "--"], "srun": ["srun"]}
    for name, command in commands.items():
        with open(f"{lab.c.home}/{name}.copy", "wb") as out:  # a pipe that nobody reads yet would hold everything up
            fed[name] = lab.start(*command, "cat", stdin=subprocess.PIPE, stdout=out)

    def pour(child):
        try:
            for at in range(0, len(data), 4096):
                child.stdin.write(data[at:at + 4096])
                child.stdin.flush()
                time.sleep(0.05)
            child.stdin.close()
        except BrokenPipeError:
            pass  # its end and what it says are looked at below
        child.stdin = None

    threads = [threading.Thread(target=pour, args=(child,)) for child in fed.values()]
    for t in threads:
        t.start()
    return fed, threads


def check_fed(lab, fed, threads, data):
    """What they were given has come back."""
    for t in threads:
        t.join(PATIENCE_S)
    for name, child in fed.items():
        finish(child, 0, f"{name} with input")
        with open(f"{lab.c.home}/{name}.copy", encoding="utf-8") as f:
            assert f.read() == data, f"{name} with input"


DATA = "".join(f"{i}\n" for i in range(40000))


def run_set(lab, faults):
    """New clients of every kind, so many faults while they work, and what has come of them."""
    host, clients = begin(lab)
    server, port_users = begin_ports(lab)
    batch = begin_batch(lab)
    fed, threads = feed(lab, host, DATA)
    try:
        for _ in range(faults):
            time.sleep(lab.chance.uniform(0.1, 1.0))
            lab.hurt()
        for name, (child, code, ranks) in clients.items():
            text = finish(child, code, name)
            if ranks:
                check_ranks(text, name, ranks)
            else:
                check_lines(text, name)
        check_fed(lab, fed, threads, DATA)
        wait_until(lambda: sorted(lab.c.nodes_up()) == lab.nodes, 60, "a node does not come back")
        for user in port_users:
            user.check(PATIENCE_S)
    finally:
        for user in port_users:
            user.end()
    lab.c.cli("cancel", host, server)
    wait_until(lambda: not lab.c.active_jobs(), 90, "a job is left")
    check_batch(batch)


def run_rounds(lab, rounds):
    """Each kind of fault once, then a new set of clients."""
    for done in range(0, rounds, FAULTS_AT_A_TIME):
        run_set(lab, min(FAULTS_AT_A_TIME, rounds - done))
