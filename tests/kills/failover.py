"""Rounds of faults on three controllers that share a real PostgreSQL database, with every kind of client at work
(rounds.py) and submits without a pause: controllers are killed, paused, cut off from the database and told to hand over;
the database is killed, restarted, paused and full. Held against it: every submit that was acknowledged is one job that
ran once, never two lead, the journal has no gap, and all that rounds.py says."""
import os
import pty
import re
import signal
import subprocess
import threading
import time

from tests.kills import rounds as kills
from tests.kills.rounds import Lab, prepare
from tests.lab.api import Api, ApiError
from tests.lab.cluster import ACTIVE
from tests.lab.controllers import Controllers
from tests.lab.postgres import Postgres
from tests.lab.proc import wait_until
from tests.lab.proxy import Proxy

SOCKET = ".s.PGSQL.5432"
SUBMIT_PAUSE_S = 0.2
SETTLE_S = 120
ROOM_MB = 400


class LinkedControllers(Controllers):
    """Each reaches the database by a socket of its own, which can be cut. `api` and `active_jobs` as a Cluster has them."""

    def __init__(self, database, count=3):
        super().__init__(count, agents=("n1", "n2"), database=database, settings="node_timeout = 120s\n")
        self.links = []

    def uri(self, i):
        folder = f"{self.home}/db{i}"
        os.makedirs(folder)
        self.links.append(Proxy(f"{folder}/{SOCKET}", f"{self.database.folder}/{SOCKET}").__enter__())
        return f"postgresql:///acequia?host={folder}&user=acequia"

    def down(self):
        for link in self.links:
            link.__exit__()
        self.links = []
        super().down()

    def asked(self, method, path, body=None):
        """The leader's answer, whoever that is by then."""
        end = time.monotonic() + SETTLE_S
        while True:
            for i in range(self.count):
                api = Api(self.socket(i), timeout=20)
                try:
                    return api.post(path, body) if method == "POST" else api.get(path)
                except ApiError as e:
                    if e.status != 503:
                        raise
                except OSError:
                    pass
                finally:
                    api.close()
            if time.monotonic() > end:
                raise AssertionError(f"nobody answers {method} {path}\n" + self.logs())
            time.sleep(0.1)

    @property
    def client(self):
        """Has get(), as an Api has."""
        return _Client(self)

    def active_jobs(self):
        return sum(n for state, n in self.asked("GET", "/v1/status")["jobs"].items() if state.upper() in ACTIVE)


class _Client:
    def __init__(self, controllers):
        self.controllers = controllers

    def get(self, path):
        return self.controllers.asked("GET", path)


class _Cluster:
    """What rounds.py knows of a cluster."""

    def __init__(self, controllers):
        self.own = controllers
        self.home, self.env, self.cli, self.api = controllers.home, controllers.env, controllers.cli, controllers.client
        self.submits = self.lab = None

    def active_jobs(self):
        """Nothing new is submitted until the next fault, and the terminal is closed."""
        self.submits.waits = True
        self.lab.end_terminal()
        return self.own.active_jobs()

    def nodes_up(self):
        nodes = self.api.get("/v1/nodes")["nodes"]
        return [n["name"] for n in nodes if n["state"] not in ("DOWN", "SILENT", "UNKNOWN")]


class Submitter(threading.Thread):
    """Submits jobs one after the other, each until it is acknowledged; every job writes a line when it runs."""

    def __init__(self, controllers):
        super().__init__(daemon=True)
        self.c, self.stop, self.failure, self.jobs = controllers, False, None, {}
        self.waits = False
        self.log = f"{controllers.home}/ran"

    def run(self):
        number = 0
        try:
            while not self.stop:
                if self.waits:
                    time.sleep(SUBMIT_PAUSE_S)
                    continue
                number += 1
                spec = {"workdir": "/", "argv": ["sh", "-c", f"echo {number} >> {self.log}"], "output": "/dev/null"}
                answer = self.c.asked("POST", "/v1/jobs", {"spec": spec, "key": f"round-{number}"})
                self.jobs[number] = answer["id"]
                time.sleep(SUBMIT_PAUSE_S)
        except BaseException as e:  # told by check()
            self.failure = e

    def check(self):
        """What was acknowledged so far has run, once."""
        if self.failure:
            raise self.failure
        jobs = dict(self.jobs)
        assert len(set(jobs.values())) == len(jobs), "two submits have one job"

        def ran():
            with open(self.log, encoding="utf-8") as f:
                lines = f.read().split()
            twice = {n for n in lines if lines.count(n) > 1}
            assert not twice, f"jobs ran twice: {sorted(twice)[:10]}"
            return all(str(n) in lines for n in jobs)
        wait_until(ran, SETTLE_S, "a job that was acknowledged does not run")
        return len(jobs)


class Terminal:
    """A shell in a job, at a terminal: what is typed between faults is carried out once, in order."""

    def __init__(self, lab):
        self.marks, self.text = 0, ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(lab.several.binary, ["acequia", "run", "--pty", "--", "sh"], lab.c.env)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        try:
            while piece := os.read(self.fd, 65536):
                self.text += piece.decode(errors="replace")
        except OSError:
            pass  # the end of a terminal

    def type(self):
        """One more line; the words are not together in what the terminal echoes."""
        self.marks += 1
        os.write(self.fd, f"echo mark''-{self.marks}-\n".encode())

    def finish(self):
        """Everything has come back, and its exit code."""
        os.write(self.fd, b"exit 3\n")
        end = time.monotonic() + SETTLE_S
        while (done := os.waitpid(self.pid, os.WNOHANG))[0] == 0:
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                raise AssertionError("the terminal hangs: " + self.text[-2000:])
            time.sleep(0.1)
        time.sleep(0.2)
        os.close(self.fd)
        found = [int(n) for n in re.findall(r"mark-(\d+)-", self.text)]
        assert found == list(range(1, self.marks + 1)), (found, self.text[-2000:])
        assert os.waitstatus_to_exitcode(done[1]) == 3, (done, self.text[-2000:])


class FailoverLab(Lab):
    """Faults of controllers and of their database."""
    mpi = False

    def __init__(self, controllers, seed):
        super().__init__(_Cluster(controllers), ["n1", "n2"], seed)
        self.several, self.terminal = controllers, None
        self.submits = Submitter(controllers)
        self.c.submits, self.c.lab = self.submits, self
        self.submits.start()

    def start(self, *command, tls=False, stdin=None, stdout=None, more=None):
        env = {k: v for k, v in self.c.env.items() if not k.startswith("SLURM")}
        env["PATH"] = f"{self.c.home}/bin:{os.path.dirname(self.several.binary)}:{env['PATH']}"
        return subprocess.Popen(command, env={**env, **(more or {})}, cwd=self.c.home,
                                stdin=subprocess.DEVNULL if stdin is None else stdin,
                                stdout=subprocess.PIPE if stdout is None else stdout, stderr=subprocess.PIPE, text=True,
                                start_new_session=True)

    def kinds(self):
        database = self.several.database
        kinds = {"leader killed": self.kill_leader, "leader paused": self.pause_leader, "follower killed": self.kill_follower,
                 "leader cut off from the database": self.cut_leader, "hand-over": self.hand_over,
                 "database killed": self.kill_database, "database restarted": self.restart_database,
                 "database paused": self.pause_database, "agent killed": self.kill_agent,
                 "two controllers killed": self.kill_two}
        if database.room:
            kinds["database full"] = self.fill_database
        return kinds

    def _start(self, i):
        self.several.start(i)

    def kill_leader(self):
        leader = self.several.wait_leader(seconds=SETTLE_S)
        self.several.kill(leader)
        time.sleep(self.chance.uniform(0, 6))
        self._start(leader)

    def kill_follower(self):
        leader = self.several.wait_leader(seconds=SETTLE_S)
        other = self.chance.choice([i for i in range(self.several.count) if i != leader])
        self.several.kill(other)
        self._start(other)

    def kill_two(self):
        gone = self.chance.sample(range(self.several.count), 2)
        for i in gone:
            self.several.kill(i)
        time.sleep(self.chance.uniform(0, 3))
        for i in gone:
            self._start(i)

    def pause_leader(self):
        leader = self.several.wait_leader(seconds=SETTLE_S)
        self.several.kill(leader, signal.SIGSTOP)
        time.sleep(self.chance.uniform(0.5, 8))
        self.several.kill(leader, signal.SIGCONT)

    def cut_leader(self):
        link = self.several.links[self.several.wait_leader(seconds=SETTLE_S)]
        if self.chance.random() < 0.3:
            link.cut()
            return
        link.stop(*self.chance.choice([("in",), ("out",), ("in", "out")]))
        time.sleep(self.chance.uniform(0.5, 8))
        if self.chance.random() < 0.5:
            link.cut()
        link.go_on()

    def hand_over(self):
        self.several.cli("controller", "hand-over", check=False)

    def kill_database(self):
        self.several.database.kill()
        time.sleep(self.chance.uniform(0, 5))
        self.several.database.start()

    def restart_database(self):
        self.several.database.stop()
        self.several.database.start()

    def pause_database(self):
        self.several.database.send(signal.SIGSTOP)
        time.sleep(self.chance.uniform(0.5, 8))
        self.several.database.send(signal.SIGCONT)

    def fill_database(self):
        """It may end itself for want of room; then it is started when there is some."""
        database = self.several.database
        database.fill()
        time.sleep(self.chance.uniform(1, 4))
        database.make_room()
        time.sleep(1)
        if database.process.poll() is not None:
            database.stop()
            database.start()

    def kill_agent(self):
        name = self.chance.choice(self.nodes)
        child = self.several.children[name]
        os.kill(child.pid, signal.SIGKILL)
        child.wait(10)
        time.sleep(self.chance.uniform(0, 0.5))
        self.several.start_agent(name)

    def hurt(self):
        self.submits.waits = False
        if not self.terminal:
            self.terminal = Terminal(self)
            self.terminal.type()
            wait_until(lambda: "mark-1-" in self.terminal.text, SETTLE_S, "the terminal does not answer")
        self.terminal.type()
        super().hurt()
        self.check()

    def end_terminal(self):
        """Before it is looked whether any job is left."""
        terminal, self.terminal = self.terminal, None
        if terminal:
            terminal.finish()

    def check(self):
        """One leads and the others follow; the journal is whole."""
        c = self.several
        for i in range(c.count):
            if c.children[f"c{i}"].poll() is not None:
                raise AssertionError(f"controller {i} has ended by itself\n" + c.logs())
        one = ["follows"] * (c.count - 1) + ["leads"]

        def settled():
            """Two that lead at once are asked again: the first may have lost the lease between the two questions."""
            said = sorted(str(c.answers(i)) for i in range(c.count))
            return said == one
        wait_until(settled, SETTLE_S, lambda: "not one leader and followers: "
                   + str([c.answers(i) for i in range(c.count)]) + c.logs(), interval=0.2)
        counted = c.database.psql("SELECT count(*) - (max(seq) - min(seq) + 1) FROM acequia.journal")
        assert counted == "0", f"the journal has gaps: {counted}"


class FailoverCluster:
    """A lab with three controllers, two nodes and a database of its own; as LinkCluster in rounds.py."""

    def __init__(self, folder, seed):
        self.seed, self.database, self.controllers, self.lab = seed, None, None, None

    def __enter__(self):
        try:
            self.database = Postgres(room_mb=ROOM_MB if os.geteuid() == 0 else 0)
            self.controllers = LinkedControllers(self.database)
            self.controllers.__enter__()
            prepare(self.controllers)
            self.lab = FailoverLab(self.controllers, self.seed)
            return self.lab
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        if self.lab:
            self.lab.submits.stop = True
        if self.controllers:
            self.controllers.down()
        if self.database:
            self.database.close()


def run_set(lab, faults):
    """As rounds.run_set; then the submits are looked at."""
    kills.run_set(lab, faults)
    lab.counts["submits acknowledged and run once"] = lab.submits.check()


def run_rounds(lab, rounds):
    """Sets of faults with new clients each."""
    for done in range(0, rounds, kills.FAULTS_AT_A_TIME):
        run_set(lab, min(kills.FAULTS_AT_A_TIME, rounds - done))
