"""Everything that people keep in a cluster, over kill -9 of controller and agent and over the restore of an older copy:
heterogeneous jobs, drafts, templates, views, secrets, logins, alerts, reservations, volumes, services, notifications and
images. What was acknowledged before is there once afterwards; what is younger than the copy is adopted or said."""
import glob
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

from tests.journeys.test_images import AS_NOBODY, Lab, public_folder
from tests.journeys.test_login import SAME, ask, place
from tests.journeys.test_serve import Service
from tests.lab.cluster import Cluster
from tests.lab.hooks import Hooks
from tests.lab.proc import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="volumes and accounts need root")
RULE = ["--metric", "cluster/jobs_pending", "--above", "-1"]
SUBJECT = "cluster/jobs_pending"


def as_json(c, *words):
    return json.loads(c.cli(*words, "--json").stdout)


def names(entries):
    return [e["name"] for e in entries]


class Drafts:
    def make(self, c, tag):
        c.cli("draft", "save", tag, "-J", tag, "-o", "/dev/null", "--", "true")

    def there(self, c, tag):
        return names(as_json(c, "draft", "list")["drafts"]).count(tag)


class Templates:
    def make(self, c, tag):
        c.cli("template", "save", tag, "-J", tag, "--time", "7m", "-o", "/dev/null", "--", "true")

    def there(self, c, tag):
        return names(as_json(c, "template", "list")["templates"]).count(tag)


class Views:
    def make(self, c, tag):
        c.cli("view", "save", tag, "-s", "PENDING")

    def there(self, c, tag):
        return names(c.api.get("/v1/views")["views"]).count(tag)


class Secrets:
    def make(self, c, tag):
        c.cli("secret", "set", tag.upper(), input=f"value of {tag}\n")

    def there(self, c, tag):
        known = names(as_json(c, "secret", "list")["secrets"]).count(tag.upper())
        if known:
            said = c.cli("run", "-c", "1", "--secret", tag.upper(), "--", "sh", "-c", f"echo ${tag.upper()}").stdout
            assert said == f"value of {tag}\n", said
        return known


class Reservations:
    """Of the node that is away: jobs without a time limit do not start before one."""

    def make(self, c, tag):
        c.cli("reservation", "create", tag, "--nodes", c.other, "--start", "now+10days", "--end", "now+11days")

    def there(self, c, tag):
        return names(as_json(c, "reservation", "list")["reservations"]).count(tag)


class Alerts:
    """Raised by a rule that always holds, and acknowledged."""

    def make(self, c, tag):
        c.cli("alert", "set", tag, *RULE)
        wait_until(lambda: self.raised(c, tag), 60, "no alert is raised")
        c.cli("alert", "ack", tag, SUBJECT, "--comment", f"seen {tag}")

    def raised(self, c, tag):
        return [a for a in as_json(c, "alert", "list")["alerts"] if a["rule"] == tag]

    def there(self, c, tag):
        if tag not in names(as_json(c, "alert", "list")["rules"]):
            return 0
        raised = self.raised(c, tag)
        assert len(raised) == 1 and f"seen {tag}" in c.cli("alert", "list").stdout, raised
        return 1


class Logins:
    """An account with a password, and a browser that is logged in."""

    def __init__(self):
        self.cookies = {}

    def make(self, c, tag):
        c.cli("user", "add", tag)
        c.cli("user", "passwd", tag, input="correct horse\n")
        status, me, cookie = ask(place(c)[0], "POST", "/v1/login", {"method": "own", "user": tag, "password": "correct horse"}, **SAME)
        assert status == 200, me
        self.cookies[tag] = cookie

    def there(self, c, tag):
        status, me, _ = ask(place(c)[0], "GET", "/v1/me", cookie=self.cookies[tag])
        assert status in (200, 401), me
        accounts = names(as_json(c, "user", "list")["users"]).count(tag)
        assert (status == 200) == (accounts == 1), (status, accounts)
        return accounts


class Volumes:
    def make(self, c, tag):
        c.cli("volume", "create", tag)
        c.cli("run", "-c", "1", "-v", f"{tag}:/kept", "--", "sh", "-c", f"echo of {tag} > /kept/word")

    def there(self, c, tag):
        known = names(as_json(c, "volume", "list")["volumes"]).count(tag)
        if known:
            assert c.cli("run", "-c", "1", "-v", f"{tag}:/kept", "--", "cat", "/kept/word").stdout == f"of {tag}\n"
        return known


class Services:
    def __init__(self):
        self.made = {}

    def make(self, c, tag):
        self.made[tag] = Service(c, tag, "--replicas", "1")
        self.made[tag].ask()

    def there(self, c, tag):
        known = names(as_json(c, "serve", "list")["services"]).count(tag)
        if known:
            self.made[tag].address()
            assert self.made[tag].ask()["revision"] == "1"
        return known


class HetJobs:
    """Two components that run; each is to be found once."""

    def __init__(self):
        self.jobs = {}

    def make(self, c, tag):
        if not os.path.exists(f"{c.home}/bin/sbatch"):
            c.cli("slurm-commands", f"{c.home}/bin")
        done = subprocess.run([f"{c.home}/bin/sbatch", "--parsable", "-J", tag, "-n1", "-o", "/dev/null", ":", "-J", f"{tag}-b", "-n2",
                               "--wrap", "sleep 3600"], env=c.env, text=True, capture_output=True, check=True)
        self.jobs[tag] = done.stdout.strip()
        wait_until(lambda: self.there(c, tag), 60, "the heterogeneous job does not run")

    def there(self, c, tag):
        shown = subprocess.run([f"{c.home}/bin/squeue", "-h", "-o", "%i %t"], env=c.env, text=True, capture_output=True, check=True).stdout.split("\n")
        running = [line.split()[0] for line in shown if line.endswith(" R") and line.split("+")[0].split()[0] == self.jobs[tag]]
        return len(running) == 2


class Notifications:
    """A job that will tell at its end: told once it is let go."""

    def __init__(self, hooks):
        self.hooks, self.jobs = hooks, {}

    def make(self, c, tag):
        self.jobs[tag] = c.cli("submit", "-Q", "--hold", "-J", tag, "-o", "/dev/null", "--notify", "end", "--notify-to", self.hooks.url, "--",
                               "true").stdout.strip()

    def there(self, c, tag):
        held = [j for j in c.api.get("/v1/jobs?limit=1000")["jobs"] if j["name"] == tag and j["state"] == "PENDING"]
        return len(held)

    def tell(self, c, tag):
        c.cli("release", self.jobs[tag])
        wait_until(lambda: any(f'"name":"{tag}"' in b for b in self.hooks.bodies), 120, f"nobody is told of {tag}: {self.hooks.bodies}")


@pytest.fixture(name="c")
def _cluster():
    root = tempfile.mkdtemp(prefix="acequia-kept-")
    os.chmod(root, 0o755)
    config = (f"[cluster]\ngrace = 1s\nvolume_folder = {root}\n[notify]\nwebhook_hosts = 127.0.0.1\n"
              "[node *]\ncpus = 64\nmemory = 64G\n")
    with Cluster(config=config, agents=["n1"]) as c:
        # One node; it has joined over the network, so that there is an address to log in at.
        c.other = next(n for n in c.nodes_up() if n != "n1")
        c.kill(f"agent-{c.other}")
        wait_until(lambda: c.nodes_up() == ["n1"], 60, "the other node does not go")
        c.node, c.hooks = "n1", Hooks()
        yield c
        c.hooks.server.shutdown()
    shutil.rmtree(root, ignore_errors=True)


def kinds_of(c):
    return [Drafts(), Templates(), Views(), Secrets(), Reservations(), Alerts(), Logins(), Volumes(), Services(), HetJobs(),
            Notifications(c.hooks)]


def restart(c, agent=False):
    """kill -9, as soon as something was acknowledged."""
    c.kill_controller()
    if agent:
        c.kill_agent(c.node)
    c.start_controller()
    if agent:
        c.start_agent(c.node)
    c.wait_ready()
    wait_until(c.nodes_up, 60, "the node does not come back")


def once(c, kinds, tag):
    for kind in kinds:
        wait_until(lambda k=kind: k.there(c, tag) == 1, 60, lambda k=kind: f"{type(k).__name__} of {tag}: {k.there(c, tag)} times")


def test_kills_after_acknowledgements(c):
    """The short one: what costs no job."""
    kinds = [Drafts(), Templates(), Views(), Reservations(), Logins(), Notifications(c.hooks)]
    for i, kind in enumerate(kinds):
        kind.make(c, "early")
        if i % 2:
            restart(c)
    once(c, kinds, "early")
    kinds[-1].tell(c, "early")


@pytest.mark.long
def test_kills_of_controller_and_agent(c):
    kinds = kinds_of(c)
    for i, kind in enumerate(kinds):
        kind.make(c, "early")
        restart(c, agent=i % 2 == 0)
    once(c, kinds, "early")
    restart(c, agent=True)
    once(c, kinds, "early")
    kinds[-1].tell(c, "early")
    assert not [j for j in c.api.get("/v1/jobs?finished=1&limit=1000")["jobs"] if j["state"] in ("FAILED", "NODE_FAIL")]


@pytest.mark.long
@pytest.mark.parametrize("agent", [False, True], ids=["the agent goes on", "the agent is killed too"])
def test_a_restore(c, agent):
    """The copy's objects are there once. Younger jobs go on under their numbers; younger objects are gone, can be made again,
    and the status says that an older copy was put back."""
    kinds, backup = kinds_of(c), f"{c.home}/copy.acequia"
    for kind in kinds:
        kind.make(c, "early")
    c.cli("backup", "-q", backup)
    for kind in kinds:
        kind.make(c, "late")
    het = next(k for k in kinds if isinstance(k, HetJobs))
    served = next(k for k in kinds if isinstance(k, Services)).made["late"]
    replicas = [j["id"] for j in c.api.get("/v1/jobs?limit=1000")["jobs"] if j["name"].startswith("late") and j["state"] == "RUNNING"]
    c.api.close()
    c.kill("controller", signal.SIGKILL)
    if agent:
        c.kill_agent(c.node)
    c.cli("restore", backup)
    c.start_controller()
    if agent:
        c.start_agent(c.node)
    c.wait_ready()
    wait_until(c.nodes_up, 60, "the node does not come back")
    once(c, kinds, "early")
    assert any("older copy" in w for w in c.api.get("/v1/status")["warnings"])
    # Jobs: adopted, each once, and said to be so.
    wait_until(lambda: het.there(c, "late"), 60, lambda: f"the younger heterogeneous job is not adopted: {c.cli('list').stdout}")
    running = {j["id"]: j for j in c.api.get("/v1/jobs?limit=1000")["jobs"] if j["state"] == "RUNNING"}
    for job in replicas:
        assert job in running and "older copy" in running[job]["reason"], (job, running.get(job), c.cli("list").stdout)
    # Objects: not there, and not in the way.
    for kind in kinds:
        if not isinstance(kind, (HetJobs, Services)):
            assert kind.there(c, "late") == 0, type(kind).__name__
            kind.make(c, "late")
    once(c, [k for k in kinds if not isinstance(k, (HetJobs, Services))], "late")
    assert served.name not in names(as_json(c, "serve", "list")["services"])
    # A second start changes nothing, and everything can be ended.
    restart(c, agent=True)
    once(c, kinds, "early")
    c.cli("serve", "delete", "early")
    c.cli("cancel", "--all")
    wait_until(lambda: not c.api.get("/v1/jobs?limit=1000")["jobs"], 120, lambda: f"jobs do not end: {c.cli('list').stdout}")
    assert not c.api.get(f"/v1/nodes/{c.node}")["cpus_used"]


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("buildah") or not shutil.which("busybox"), reason="needs buildah and busybox")
def test_a_build_over_kills(c):
    """It is a job: it goes on while daemons are away, and its client hears how it ended."""
    with public_folder() as folder:
        lab = Lab(c, folder)
        context = lab.context("kept", "FROM scratch\nCOPY rootfs /\nENV PATH=/bin\nRUN sleep 3; echo made > /made\n")
        build = subprocess.Popen([*AS_NOBODY, c.binary, "image", "build", "-t", "kept:1", context], env=dict(c.env, HOME=lab.home),
                                 cwd=lab.home, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        wait_until(lambda: [j for j in c.api.get("/v1/jobs")["jobs"] if j["state"] == "RUNNING"], 60, "the build does not run")
        for agent in (False, True):
            time.sleep(0.5)
            restart(c, agent)
        out, _ = build.communicate(timeout=300)
        assert build.returncode == 0 and "is ready" in out, out
        assert lab.cli("run", "--container", "kept:1", "--", "cat", "/made").stdout == "made\n"
    assert not glob.glob(f"{c.home}/**/images/*/work/*", recursive=True)
