"""kill -9 of the programs that work for a request or beside a job, at random moments: whoever asked gets an error that says
so, or an answer; the next request works; the job goes on or ends with a reason; and nothing is left behind."""
import glob
import os
import random
import re
import shutil
import signal
import subprocess
import time
import urllib.parse

import pytest

from tests.journeys.test_bad_day import spool_of
from tests.journeys.test_images import Lab, public_folder
from tests.journeys.test_login import SAME, ask, place
from tests.lab.api import ApiError
from tests.lab.cluster import Cluster
from tests.lab.hooks import Hooks
from tests.lab.helpers import Killer, Traces, covers, descendants, name_of
from tests.lab.images import layer_of, make_rootfs, save_docker
from tests.lab.oidc import SECRET, Provider
from tests.lab.proc import alive, wait_until

ROOT = os.geteuid() == 0
SERVICE = f"acequia-killed-{os.getpid()}"
ROUNDS = 5
# Answers after a moment, so that whoever asks can be killed meanwhile.
PAGE = """
import http.server, os, time
class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        time.sleep(0.3)
        super().do_GET()
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["ACEQUIA_PORT"])), Handler).serve_forever()
"""


@pytest.fixture(name="c", scope="module")
def _cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("helpers")
    (folder / "secret").write_text(SECRET + "\n")
    checker = folder / "check"
    checker.write_text('#!/bin/sh\nread -r word\nsleep 0.3\n[ "$PAM_USER" = nobody ] && [ "$word" = "right one" ]\n')
    checker.chmod(0o755)
    hooks, service = Hooks(), f"/etc/pam.d/{SERVICE}"
    if ROOT:
        with open(service, "w", encoding="ascii") as f:
            f.write(f"auth sufficient pam_exec.so quiet expose_authtok {checker}\nauth required pam_deny.so\naccount required pam_permit.so\n")
    try:
        with Provider() as provider:
            config = (f"[cluster]\ngrace = 1s\nusage_interval = 1s\n[login]\npam_service = {SERVICE}\n"
                      f"[notify]\nwebhook_hosts = 127.0.0.1\n"
                      f"[oidc lab]\nissuer = {provider.issuer}\nclient_id = acequia\nclient_secret_file = {folder}/secret\n"
                      "[node *]\ncpus = 8\nmemory = 8G\n")
            provider.people["ana"] = {}
            with Cluster(agents=["n1"], config=config) as c:
                c.provider, c.hooks = provider, hooks
                # One node: the other one's folders and processes would have to be looked at too.
                c.kill(f"agent-{next(n for n in c.nodes_up() if n != 'n1')}")
                wait_until(lambda: c.nodes_up() == ["n1"], 60, "the first node does not go")
                c.cli("run", "--", "true")
                yield c
    finally:
        hooks.server.shutdown()
        if ROOT:
            os.unlink(service)


@pytest.fixture(name="traces", autouse=True)
def _traces(c):
    """Nothing may be left of what a test has killed."""
    c.cli("run", "--", "true")
    wait_until(lambda: not c.api.get("/v1/jobs")["jobs"], 60, "jobs of the test before do not end")
    traces = Traces([c.pid("controller"), c.pid("agent-n1")], [spool_of(c, "n1")])
    yield traces
    c.cli("cancel", "--all", check=False)
    wait_until(lambda: not c.api.get("/v1/jobs")["jobs"], 60, "jobs do not end")
    assert c.cli("run", "--", "echo", "there").stdout == "there\n"
    wait_until(lambda: not traces.left(), 30, traces.left)
    wait_until(lambda: not left_groups(c), 30, lambda: f"control groups are left: {left_groups(c)}")


def left_groups(c):
    """Control groups of shepherds that are gone. Each has the number of its shepherd's process in its name."""
    paths = {line.split(":")[2] for line in c.cli("run", "--", "cat", "/proc/self/cgroup").stdout.splitlines()}
    tops = {re.sub(r"/s\d+-\d+(/.*)?$", "", path) for path in paths if re.search(r"/s\d+-\d+(/|$)", path)}
    found = set()
    for place in glob.glob("/sys/fs/cgroup") + glob.glob("/sys/fs/cgroup/*"):
        for top in tops:
            found.update(g for g in glob.glob(f"{place}{top}/s*-*") if os.path.isdir(g))
    return [g for g in found if not alive(int(re.search(r"/s(\d+)-\d+$", g).group(1)))]


def record(c, job):
    return c.api.get(f"/v1/jobs/{job}")


def until(c, job, *states):
    wait_until(lambda: record(c, job)["state"] in states, 60, lambda: f"job {job} is {record(c, job)['state']}, not {states}")
    return record(c, job)


def submit(c, *arguments):
    job = c.cli("submit", "-Q", "-o", "/dev/null", *arguments).stdout.strip()
    until(c, job, "RUNNING")
    return job


def shepherd_of(c, job):
    """The process that watches over a job: the parent of its first process."""
    spool = spool_of(c, "n1")
    path = f"{spool}/{job}.1/control"
    wait_until(lambda: os.path.exists(path), 60, "its shepherd does not listen")
    for pid in descendants(c.pid("agent-n1")):
        if name_of(pid) in ("acequia-shep", "acequia-shepher") and any(
                name_of(p) == "sleep" and f"ACEQUIA_JOB_ID={job}\0" in environment(p) for p in descendants(pid)):
            inner = [p for p in descendants(pid) if name_of(p).startswith("acequia-shep") and
                     any(name_of(q) == "sleep" and f"ACEQUIA_JOB_ID={job}\0" in environment(q) for q in descendants(p))]
            return inner[-1] if inner else pid
    raise AssertionError(f"no shepherd of job {job}")


def environment(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as f:
            return f.read().decode(errors="replace")
    except OSError:
        return ""


@covers("acequia-pam")
@pytest.mark.skipif(not ROOT, reason="PAM asks for root")
def test_a_password_that_is_being_checked(c):
    """A helper that is killed is not a wrong password."""
    host = place(c)[0]
    who = {"method": "pam", "user": "nobody", "password": "right one"}
    with Killer(c.pid("controller"), "acequia-pam", 0.2) as killer:
        answers = [ask(host, "POST", "/v1/login", who, **SAME)[:2] for _ in range(ROUNDS)]
    assert killer.killed, answers
    for status, answer in answers:
        assert status == 200 or (status >= 500 and "cannot be checked now" in answer["error"]["message"]), answers
    assert any(status != 200 for status, _ in answers)
    assert ask(host, "POST", "/v1/login", who, **SAME)[0] == 200


@covers("acequia-oidc")
@pytest.mark.long
def test_a_provider_that_is_being_asked(c):
    host = place(c)[0]

    def log_in():
        status, answer, _ = ask(host, "POST", "/v1/login/oidc/lab", **SAME)
        if status != 200:
            return status, answer
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(answer["url"]).query))
        return ask(host, "POST", "/v1/login/oidc/lab/finish", {"code": c.provider.code_for("ana", query), "state": query["state"]},
                   Cookie=f"acequia_login={ask.cookies['acequia_login']}", **SAME)[:2]

    with Killer(c.pid("controller"), "acequia-oidc", 0.02) as killer:
        answers = [log_in() for _ in range(ROUNDS)]
    assert killer.killed
    for status, answer in answers:
        assert status == 200 or (status >= 400 and answer["error"]["message"]), answers
    wait_until(lambda: log_in()[0] == 200, 60, "nobody can log in any more", 1)


@covers("acequia-notify")
@pytest.mark.long
def test_the_sender_of_notifications(c):
    """What was being sent is sent again."""
    c.hooks.bodies.clear()
    with Killer(c.pid("controller"), "acequia-notify", 0.3):
        jobs = [c.cli("submit", "-Q", "-o", "/dev/null", "--notify", "end", "--notify-to", c.hooks.url, "--", "true").stdout.strip()
                for _ in range(3)]
        for job in jobs:
            until(c, job, "COMPLETED")
        time.sleep(2)
    wait_until(lambda: all(any(f'"job":{job},' in body for body in c.hooks.bodies) for job in jobs), 120,
               lambda: f"not all are told: {c.hooks.bodies}")


@covers("show-past")
def test_the_view_of_an_earlier_time(c):
    now = int(time.time() * 1000)
    told = []
    with Killer(c.pid("controller"), "acequiad show-past", 0.01) as killer:
        wait_until(lambda: told.append(asked(c, f"/v1/at?time_ms={now}")) or killer.killed, 30, "nothing is started")
    assert all(status == 200 or (status == 503 and "try again" in text) for status, text in told), told
    assert asked(c, f"/v1/at?time_ms={now}")[0] == 200


def asked(c, path, body=None):
    try:
        return 200, c.api.request("POST" if body else "GET", path, body)
    except ApiError as e:
        return e.status, str(e)


@covers("try-policy")
def test_the_trial_of_a_policy(c):
    change = {"change": {"backfill": "none"}}
    told = []
    with Killer(c.pid("controller"), "acequiad try-policy", 0.01) as killer:
        wait_until(lambda: told.append(asked(c, "/v1/policy/dry-run", change)) or killer.killed, 30, "nothing is started")
    assert all(status == 200 or (status >= 500 and text) for status, text in told), told
    assert asked(c, "/v1/policy/dry-run", change)[0] == 200


@covers("acequia-shepherd", "acequia-nurse")
def test_the_shepherd_of_a_job(c):
    """Nothing of the job outlives it; the job is run again. The process that starts a job's processes has done its work."""
    job = submit(c, "--requeue", "--", "sleep", "600")
    shepherd = shepherd_of(c, job)
    family = descendants(shepherd)
    for pid in [p for p in family if name_of(p) == "acequia-nurse"]:
        os.kill(pid, signal.SIGKILL)
    time.sleep(1)
    assert record(c, job)["state"] == "RUNNING" and record(c, job)["attempt"] == 1 and alive(shepherd), record(c, job)
    os.kill(shepherd, signal.SIGKILL)
    wait_until(lambda: record(c, job)["attempt"] == 2 and record(c, job)["state"] == "RUNNING", 60, "it is not run again")
    wait_until(lambda: not any(alive(p) for p in family), 60, "processes of the first attempt are left")


@covers("health-check")
@pytest.mark.long
def test_the_check_of_health(c):
    """One that is killed says nothing about the program: it is asked again, and the job is not ended as sick."""
    folder = f"{c.home}/page"
    os.makedirs(folder)
    with open(f"{folder}/ready", "w", encoding="utf-8"):
        pass
    job = submit(c, "-D", folder, "--port", "http:0", "--health", "/ready", "--health-interval", "1", "--health-failures", "1", "--",
                 "/usr/bin/python3", "-c", PAGE)
    wait_until(lambda: record(c, job)["health"] == "ready", 60, lambda: f"it never gets ready: {record(c, job)}")
    killed = []
    for _ in range(2):
        with Killer(c.pid("agent-n1"), "health-check", 0.1) as killer:
            wait_until(lambda: killer.killed, 60, "no check is killed")  # pylint: disable=cell-var-from-loop
        killed += killer.killed
        time.sleep(2.5)  # the next checks are not killed
    assert len(killed) >= 2
    assert record(c, job)["state"] == "RUNNING" and record(c, job)["health"] == "ready" and record(c, job)["attempt"] == 1, record(c, job)


@covers("progress-reader")
@pytest.mark.long
def test_the_reader_of_progress(c):
    """Without it nobody knows how far the job has come; the job itself goes on, and ends as it would."""
    go = f"{c.home}/killed.go"
    job = c.cli("submit", "-Q", "-o", f"{c.home}/progress.out", "--", "sh", "-c",
                f"echo epoch 1/4; until test -e {go}; do sleep 0.1; done; echo epoch 3/4; exit 3").stdout.strip()
    wait_until(lambda: (record(c, job).get("live") or {}).get("progress_milli") == 250, 60, "its output is not read")
    found = [p for p in descendants(c.pid("agent-n1")) if name_of(p) == "progress-reader"]
    assert found
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    with open(go, "w", encoding="utf-8"):
        pass
    assert until(c, job, "FAILED")["exit_code"] == 3
    assert "epoch 3/4" in c.cli("logs", job).stdout


@covers("acequia-mpi")
def test_the_helper_of_an_mpi_step(c):
    """Its ranks cannot find each other any more: the step ends and says so."""
    c.cli("slurm-commands", f"{c.home}/bin")
    step = subprocess.Popen([f"{c.home}/bin/srun", "-n", "2", "--mpi=pmi2", "sleep", "600"], env=c.env, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with Killer(c.pid("agent-n1"), "acequia-mpi", 0.5) as killer:
        wait_until(lambda: killer.killed, 60, "no helper is started")
    out, err = step.communicate(timeout=120)
    assert step.returncode and "mpi" in err.lower(), (step.returncode, out, err)


@covers("acequia-box")
@pytest.mark.long
@pytest.mark.skipif(not shutil.which("busybox") or not shutil.which("umoci"), reason="needs busybox and umoci")
def test_the_program_that_prepares_a_container(c, tmp_path):
    archive = save_docker(f"{c.home}/image.tar", [layer_of(make_rootfs(f"{tmp_path}/rootfs"))])
    os.chmod(archive, 0o644)
    run = ["run", "--no-input", "--container", archive, "--", "cat", "/word"]
    told = []
    with Killer(c.pid("agent-n1"), "acequia-box", 0.2, random.randrange(1000)) as killer:
        wait_until(lambda: told.append(c.cli(*run, check=False, timeout=120)) or killer.killed, 60, "none is killed")
    assert all(r.returncode == 0 or r.stderr for r in told), told
    done = c.cli(*run, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "image\n"), done
    assert not glob.glob(f"{c.home}/**/images/*/work/*", recursive=True)


@covers("acequia-image")
@pytest.mark.long
@pytest.mark.skipif(not ROOT or not shutil.which("buildah"), reason="needs buildah, and an ordinary user")
def test_a_build_of_an_image(c):
    """The job that builds ends with a reason, and leaves nothing half-built; the next one is whole."""
    with public_folder() as folder:
        lab = Lab(c, folder)
        told = []
        with Killer(c.pid("agent-n1"), "acequia-image", 0.3) as killer:
            wait_until(lambda: told.append(lab.build("killed:1")) or killer.killed, 60, "none is killed")
        assert all(r.returncode == 0 or r.stderr for r in told), told
        done = lab.build("whole:1")
        assert done.returncode == 0, done.stderr
        wait_until(lambda: any(name.endswith("whole:1") for name, _ in lab.images()), 60, lambda: f"it is not listed: {lab.images()}")
        assert not [f for f in glob.glob(f"{c.home}/**/images/*/work/*", recursive=True)]
