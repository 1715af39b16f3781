"""The published Run:AI runs on two DGX-1 (16 simulated V100) through the real command line: quotas
4, 2, 2, 8; over-quota use, reclaim, and what happens when a team leaves. Each end state stays put."""
import getpass
import socket
import threading
import time

import pytest

from tests.lab import command
from tests.lab.api import Api, ApiError
from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until

CONFIG = """[cluster]
grace = 1s

[node *]
cpus = 64
memory = 64G
gpus = V100:8:32G
gpus_simulated = true
"""
QUOTAS = {"team-a": 4, "team-b": 2, "team-c": 2, "team-d": 8}
FIRST = [
    ("a-1-1-jupyter", "team-a", "1", True), ("a-1-g", "team-a", "1", False), ("a-2-gg", "team-a", "2", False),
    ("b-1-g06", "team-b", "0.6", True), ("b-2-g04", "team-b", "0.4", True), ("b-3-g", "team-b", "1", False), ("b-4-gg", "team-b", "2", False),
    ("c-1-g05", "team-c", "0.5", True), ("c-2-g03", "team-c", "0.3", True), ("c-3-g02", "team-c", "0.2", True), ("c-4-gg", "team-c", "2", False),
    ("c-5-g", "team-c", "1", False), ("d-1-gggg", "team-d", "4", False),
]


class Lab:
    def __init__(self, cluster):
        self.c = cluster

    def submit(self, name, project, gpus, interactive=False):
        arguments = ["submit", "--name", name, "--project", project, "--gpus", gpus, "--output", "/dev/null", "--cpus-per-task", "1"]
        self.c.cli(*arguments, *(["--interactive"] if interactive else []), "--", "sleep", "600")
        time.sleep(0.05)

    def jobs(self):
        return self.c.api.get("/v1/jobs?fields=name,project,state,gpus_milli")["jobs"]

    def used(self):
        shares = self.c.api.get("/v1/shares")["projects"]
        return {p["project"]: p["used_milligpu"] / 1000 for p in shares if p["project"] in QUOTAS}

    def pending(self):
        return sorted(j["name"] for j in self.jobs() if j["state"] == "PENDING")

    def running(self):
        return sorted(j["name"] for j in self.jobs() if j["state"] in ("RUNNING", "STARTING"))

    def expect(self, used, pending, running):
        wanted = dict(zip(QUOTAS, used))
        wait_until(lambda: self.used() == wanted and len(self.running()) == running and self.pending() == sorted(pending), 30,
                   lambda: f"wanted {wanted} with {pending} pending and {running} running, got {self.used()}, {self.pending()}, {len(self.running())}")

    def stays(self, rounds=5):
        """Nothing moves in five further rounds: each is set off by a job that comes and goes."""
        before = self.running(), self.pending()
        for _ in range(rounds):
            self.c.cli("run", "--project", "default", "--", "true")
            assert (self.running(), self.pending()) == before


@pytest.fixture(scope="module")
def lab():
    with Cluster(config=CONFIG, agents=["dgx1-1", "dgx1-2"]) as c:
        # The local agent of `up` is a third machine: it takes no part.
        local = [n for n in c.nodes_up() if not n.startswith("dgx1")]
        for name in local:
            c.cli("drain", name, "--reason", "not a part of the test")
        for name, quota in QUOTAS.items():
            c.cli("project", "create", name, "--quota", str(quota))
        yield Lab(c)


@pytest.fixture(scope="module")
def published(lab):
    """The cluster after the published runs: teams that wait, starts and preemptions in the journal."""
    for job in FIRST:
        lab.submit(*job)
    lab.expect([4, 4, 4, 4], [], 13)                                   # 4.8
    lab.stays()
    lab.submit("d-2-gg", "team-d", "2")
    lab.submit("d-3-gg", "team-d", "2")
    lab.expect([4, 2, 2, 8], ["b-4-gg", "c-4-gg"], 13)                 # 4.9
    assert "c-5-g" in lab.running()
    lab.stays()
    for name, project in (("a-3-gg", "team-a"), ("a-4-gg", "team-a"), ("b-5-gg", "team-b"), ("c-6-gg", "team-c")):
        lab.submit(name, project, "2")
    lab.expect([4, 2, 2, 8], ["a-3-gg", "a-4-gg", "b-4-gg", "b-5-gg", "c-4-gg", "c-6-gg"], 13)
    lab.c.cli("cancel", "--name", "d-1-gggg", "--project", "team-d")
    lab.c.cli("cancel", "--name", "d-2-gg")
    lab.c.cli("cancel", "--name", "d-3-gg")
    lab.expect([8, 4, 4, 0], ["b-5-gg", "c-6-gg"], 14)                 # 4.10
    lab.stays()
    return lab


def test_published_runs_end_as_published(published):
    assert published.used() == dict(zip(QUOTAS, [8, 4, 4, 0]))


def test_the_clusters_own_history_can_be_simulated(lab, tmp_path):
    lab.c.cli("run", "--project", "default", "--", "true")
    for name, arguments in (("jobs.csv", []), ("nodes.csv", ["--nodes"])):
        (tmp_path / name).write_text(lab.c.cli("trace", *arguments).stdout)
    assert len((tmp_path / "jobs.csv").read_text().splitlines()) >= 2
    out = lab.c.cli("sim", str(tmp_path / "jobs.csv"), "--nodes", str(tmp_path / "nodes.csv"), "--policy", "default", "--policy", "easy").stdout
    assert "mean wait" in out and "easy" in out


def test_recorded_decisions_come_out_again(published):
    report = published.c.api.get("/v1/replay")
    assert report["starts"] >= 17 and report["preemptions"] >= 2
    assert report["different"] == 0, report["differences"]


def test_many_questions_wait_for_their_turn(published):
    """Explanations are made on the controller's loop: asked all at once they share a small part of it."""
    lab = published
    waiting = lab.c.api.get("/v1/jobs?state=PENDING&fields=id")["jobs"][0]["id"]
    answers, when = [], {"spec": {"name": "when", "gpus_milli": 4000, "time_limit_s": 3600}}

    def ask(i):
        api = Api(lab.c.api.path)
        try:
            answer = api.post("/v1/when", when) if i % 4 == 3 else api.get(f"/v1/jobs/{waiting}/why")
            answers.append(len(answer["lines"]))
        except ApiError as e:
            answers.append(e.status)
        finally:
            api.close()

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    assert len(answers) == 12 and all(0 < a < 100 for a in answers), answers
    shown = lab.c.cli("why", str(waiting)).stdout
    assert all(len(line) <= 80 for line in shown.splitlines()) and ", team-" in shown, shown  # who holds what it needs, by name
    reasons = {v["reason"] for v in lab.c.api.post("/v1/when", when)["variants"]}
    assert "Quota" not in reasons, reasons  # it would be queued again, so it may go over the quota, as when submitted
    for _ in range(3):  # whoever goes away before the answer leaves nothing behind
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
            s.connect(lab.c.api.path)
            s.sendall(f"GET /v1/jobs/{waiting}/why HTTP/1.1\r\nHost: x\r\n\r\n".encode() * 4)
    assert lab.c.api.get(f"/v1/jobs/{waiting}/why")["position"] >= 1


@pytest.fixture
def cluster_of_four():
    c = command.Cluster("[cluster]\ngrace = 1s\n[node *]\ncpus = 8\ngpus = V100:4:32G\ngpus_simulated = true\n")
    yield c
    c.close()


def test_a_job_is_spared_for_its_least_time_and_not_longer(cluster_of_four):
    c = cluster_of_four
    c.acequia("project", "create", "ours", "--quota", "4")
    first = c.submit("--project", "default", "--gpus", "4", "--min-run", "2", "--", "sleep", "60")
    c.wait_state(first, "RUNNING")
    second = c.submit("--project", "ours", "--gpus", "4", "--", "sleep", "60")
    c.wait_state(second, "RUNNING")
    assert c.state(first) == "PENDING"
    at = {e["type"]: e["at_ms"] for e in c.json("events", first)["events"]}
    assert at["job_ending"] - at["job_placed"] >= 2000


def test_work_without_a_project_leaves_the_others_their_quota(cluster_of_four):
    c = cluster_of_four
    c.acequia("project", "create", "team", "--quota", "2")
    jobs = [c.submit("--project", "default", "--gpus", "2", "--", "sleep", "60") for _ in range(2)]
    for job in jobs:
        c.wait_state(job, "RUNNING")
    mine = c.submit("--project", "team", "--gpus", "2", "--grace", "1", "--", "sleep", "60")
    c.wait_state(mine, "RUNNING")
    assert sorted(c.state(job) for job in jobs) == ["PENDING", "RUNNING"]
    shares = {s["project"]: s for s in c.json("shares")["projects"]}
    assert shares["default"]["quota_milligpu"] == 2000 and shares["team"]["share_milligpu"] == 2000


def test_the_policy_is_set_shown_kept_and_recorded():
    c = command.Cluster("[cluster]\ngrace = 1s\n[policy]\nuse = 1d\nreclaim = false\n[node *]\ncpus = 8\n")
    try:
        assert c.json("policy")["use_s"] == 86400 and c.json("policy")["reclaim"] is False
        c.acequia("policy", "set", "half_life=14d", "min_run=10m", "backfill=shortest")
        shown = c.acequia("policy", "show")
        assert "backfill = shortest    # default: in_order" in shown and "min_run = 10m" in shown
        assert all(len(line) <= 80 for line in shown.splitlines())
        for bad, says in (("use=-1", "use: "), ("backfill=never", "expected in_order, shortest or none"), ("colour=red", "unknown policy setting"),
                          ("plan_depth=99", "out of range")):
            refused = c.run("policy", "set", bad)
            assert refused.returncode == 2 and says in refused.stderr, refused.stderr
        events = [e for e in Api(f"{c.home}/run/api.sock").get("/v1/events")["events"] if e["type"] == "policy_set"]
        assert [e["by"] for e in events] == ["configuration", getpass.getuser()], events
        c.acequia("policy", "set", "use=3h", "reclaim=true", "interactive_in_quota=false")
        assert c.json("policy")["reclaim"] is True and c.json("policy")["interactive_in_quota"] is False
        c.acequia("down")
        c.acequia("up")
        kept = c.json("policy")
        assert kept["min_run_s"] == 600 and kept["backfill"] == "shortest"
        assert kept["use_s"] == 86400 and kept["reclaim"] is False  # the file says so, zero and false included
        assert kept["interactive_in_quota"] is False
        c.acequia("policy", "set", "min_run=0s")
        assert c.json("policy")["min_run_s"] == 0
        assert c.json("replay")["different"] == 0
    finally:
        c.close()
