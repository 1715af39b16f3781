"""Small things that people meet every day: pipes, narrow terminals, watching, starting twice."""
import fcntl
import json
import os
import pty
import select
import shutil
import struct
import subprocess
import termios
import threading
import time

import pytest

from tests.lab.command import ACEQUIA, Cluster
from tests.lab.proc import wait_until


@pytest.fixture(scope="module")
def cluster():
    c = Cluster()
    yield c
    c.close()


class Terminal:
    """A verb on a terminal of its own."""

    def __init__(self, cluster, *args, rows=24, columns=80):
        self.seen = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))  # before its first look at it
            os.execve(ACEQUIA, [ACEQUIA, *args], {**cluster.env, "TERM": "xterm"})

    def read(self, seconds=0.2):
        """What came since the last time."""
        text = b""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if select.select([self.fd], [], [], 0.05)[0]:
                try:
                    piece = os.read(self.fd, 65536)
                except OSError:
                    break
                if not piece:
                    break
                text += piece
        self.seen += text.decode()
        return text.decode()

    def expect(self, words, seconds=15):
        end = time.monotonic() + seconds
        text = ""
        while words not in text:
            assert time.monotonic() < end, f"{words!r} did not come; there was {text!r}"
            text += self.read()

    def send(self, text):
        os.write(self.fd, text.encode())

    def end(self):
        status = os.waitpid(self.pid, 0)[1]
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)


def test_what_a_program_reads_is_not_shortened(cluster):
    name = "a-name-that-takes-all-the-room-there-is-in-a-line-of-eighty-columns"
    job = cluster.submit("--hold", "--name", name, "--", "true")
    env = {k: v for k, v in cluster.env.items() if k != "COLUMNS"}
    whole = subprocess.run([ACEQUIA, "list"], capture_output=True, text=True, env=env, check=True).stdout
    assert name in whole
    assert name not in cluster.acequia("list")  # COLUMNS is set there
    cluster.acequia("cancel", job)


def test_output_that_cannot_be_written_is_told(cluster):
    with open("/dev/full", "w", encoding="utf-8") as full:
        r = subprocess.run([ACEQUIA, "nodes"], stdout=full, stderr=subprocess.PIPE, text=True, env=cluster.env, check=False)
    assert r.returncode == 1 and "cannot write to standard output" in r.stderr


def test_top_outlives_the_controller_and_arrow_keys(cluster):
    t = Terminal(cluster, "top")
    t.expect("q quits")
    cluster.acequia("down")
    t.expect("trying again")
    cluster.acequia("up")
    t.expect("q quits")
    t.send("\033[A")
    t.expect("q quits")
    t.send("q")
    assert t.end() == 0


def test_a_watched_list_stays_on_the_screen(cluster):
    job = cluster.submit("--hold", "--array", "0-59", "--", "true")
    t = Terminal(cluster, "list", "--elements", "--watch=1", job, rows=10)
    while t.seen.count("more; q quits") < 2:
        t.expect("more; q quits")
    screens = [part for part in t.seen.split("\033[H")[1:] if "more; q quits" in part]
    assert len(screens) >= 2 and all(s.count("\r\n") == 9 for s in screens), screens
    t.send("q")
    assert t.end() == 0
    cluster.acequia("cancel", job)


@pytest.mark.parametrize("word,verb", [("ps", "list"), ("kill", "cancel"), ("queue", "list"), ("stop", "cancel"), ("lsit", "list")])
def test_words_of_other_tools_lead_to_the_verb(cluster, word, verb):
    r = cluster.run(word)
    assert r.returncode == 2 and f'did you mean "{verb}"?' in r.stderr


def test_my_jobs_do_not_depend_on_the_environment(cluster):
    job = cluster.submit("--hold", "--", "true")
    for user in ({}, {"USER": "somebody-else"}):
        assert job in cluster.acequia("list", "--me", env=user)
    cluster.acequia("cancel", job)


def test_where_the_output_lies(cluster):
    job = cluster.submit("-J", "x/y", "-o", "out-%x-%j.txt", "--", "true")
    cluster.run("wait", job)
    assert os.path.join(cluster.work, f"out-x_y-{job}.txt") in cluster.acequia("get", job)


def test_starting_twice_at_once_starts_one():
    c = Cluster(up=False)
    try:
        both = [c.start("up", stdout=subprocess.DEVNULL) for _ in range(3)]
        assert [p.wait(60) for p in both] == [0, 0, 0]
        assert c.acequia("down").startswith("Stopped")
        time.sleep(0.5)
        assert "no cluster is running here" in c.run("list").stderr
    finally:
        c.close()


def test_up_and_down_know_daemons_they_did_not_start():
    c = Cluster(up=False)
    daemons = []
    try:
        for role in ("controller", "agent"):
            daemons.append(c.start(role, stderr=subprocess.DEVNULL))
            if role == "controller":
                wait_until(lambda: c.run("status").returncode == 0, 20, "the controller to answer")
        wait_until(lambda: c.json("nodes")["nodes"], 20, "the agent to be there")
        c.acequia("up")
        assert not os.path.exists(os.path.join(c.home, "log", "agent.log"))  # no second one was started
        assert c.acequia("down").startswith("Stopped")
        assert [d.wait(180) for d in daemons] == [0, 0]
    finally:
        for d in daemons:
            d.kill()
        c.close()


def test_following_waits_for_the_start_and_outlives_the_controller():
    c = Cluster()
    try:
        job = c.submit("--hold", "--", "sh", "-c", "for i in 1 2 3 4 5 6 7 8; do echo line $i; sleep 0.5; done")
        follow = c.start("logs", "-f", job, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        tail = c.start("logs", "-f", "-n", "1", job, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        waiting = follow.stderr.readline()  # it is connected
        c.acequia("release", job)
        c.wait_state(job, "RUNNING")
        time.sleep(1)
        with open(os.path.join(c.home, "run", "controller.pid"), encoding="utf-8") as f:
            os.kill(int(f.read()), 9)
        c.acequia("up")
        out, err = follow.communicate(timeout=180)
        assert follow.returncode == 0, err
        assert out.splitlines() == [f"line {i}" for i in range(1, 9)]
        assert "waiting for its output" in waiting + err
        out, err = tail.communicate(timeout=180)
        lines = out.splitlines()
        assert tail.returncode == 0 and lines == [f"line {i}" for i in range(9 - len(lines), 9)] and "missing" not in err, (out, err)
    finally:
        c.close()


def test_a_run_on_several_nodes_shows_what_all_wrote(cluster):
    agent = cluster.start("agent", "--name", "second", stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: len([n for n in cluster.json("nodes")["nodes"] if n["connected"]]) == 2, 20, "two nodes")
        out = cluster.acequia("run", "-N", "2", "-n", "2", "--", "sh", "-c", "echo task $ACEQUIA_PROCID")
        assert sorted(out.splitlines()) == ["task 0", "task 1"]
    finally:
        agent.terminate()
        agent.wait(180)
        cluster.run("forget", "second")


def test_tokens_are_kept_from_others(cluster, tmp_path):
    kept = tmp_path / "kept"
    kept.write_text("here already")
    r = cluster.run("token", "create", "-o", str(kept))
    assert r.returncode == 1 and "File exists" in r.stderr
    assert "give more than 0" in cluster.run("token", "create", "--ttl", "0").stderr
    loose = tmp_path / "token"
    loose.write_text("aq1.0.0.0")
    loose.chmod(0o644)
    r = cluster.run("list", env={"ACEQUIA_HOST": "127.0.0.1:1", "ACEQUIA_TOKEN_FILE": str(loose)})
    assert r.returncode == 1 and "chmod 600" in r.stderr


def test_a_slip_in_a_node_name_is_told(cluster):
    r = cluster.run("partition", "create", "slip", "--nodes", "n[1-3]")
    assert r.returncode == 0 and "3 of these nodes do not exist yet, for example n1" in r.stderr
    r = cluster.run("partition", "edit", "slip", "--nodes", cluster.json("nodes")["nodes"][0]["name"])
    assert r.returncode == 0 and r.stderr == ""
    cluster.acequia("partition", "delete", "slip")


def test_what_everything_needs_is_not_deleted(cluster):
    r = cluster.run("project", "delete", "default")
    assert r.returncode == 1 and "it cannot be deleted" in r.stderr
    assert "default" in cluster.acequia("project")
    cluster.acequia("partition", "create", "other", "--default", "true")
    marked = [p["name"] for p in cluster.json("partition", "list")["partitions"] if p.get("is_default")]
    assert marked == ["other"]
    cluster.acequia("partition", "edit", "main", "--default", "true")
    cluster.acequia("partition", "delete", "other")


@pytest.mark.parametrize("mask,mode", [(0o077, 0o600), (0o002, 0o664), (0o022, 0o644)])
def test_the_umask_holds_for_jobs(cluster, mask, mode):
    out = os.path.join(cluster.work, f"masked-{mask:o}")
    before = os.umask(mask)
    try:
        said = cluster.acequia("run", "--", "sh", "-c", "umask")
        cluster.acequia("submit", "--wait", "-o", out, "--", "sh", "-c", "umask")
    finally:
        os.umask(before)
    assert said.strip() == f"{mask:04o}" == cluster.read(out).strip()
    assert os.stat(out).st_mode & 0o777 == mode


def test_completion_knows_the_names_of_the_cluster(cluster):
    script = f"""PATH={os.path.dirname(ACEQUIA)}:$PATH
source <(acequia completion bash)
try() {{ COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _acequia; echo "${{COMPREPLY[*]}}"; }}
try acequia submit -P d
try acequia project show de
try acequia project create de
try acequia partition ed
try acequia list --columns gpu_
try acequia help sus
"""
    r = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=cluster.env, cwd=cluster.work, check=True)
    assert r.stdout.split("\n")[:6] == ["default", "default", "", "edit", "gpu_model gpu_busy gpu_use", "suspend"], r.stderr


@pytest.mark.skipif(not shutil.which("fish"), reason="needs fish")
def test_completion_for_fish(cluster, tmp_path):
    (tmp_path / "c.fish").write_text(cluster.acequia("completion", "fish"))
    asked = {"acequia su": ["submit", "suspend"], "acequia submit --gp": ["--gpu-memory", "--gpus", "--gpus-per-node", "--gpus-per-task"],
             "acequia submit -P d": ["default"], "acequia submit --project d": ["default"], "acequia project show de": ["default"], "acequia project create de": [],
             "acequia partition ed": ["edit"], "aq list --columns gpu_m": ["gpu_model"], "acequia help sus": ["suspend"], "acequia list --sta": ["--state"]}
    tries = "".join(f"echo '#'; complete -C '{line}' | string replace -r '\\t.*' ''\n" for line in asked)
    script = f"set -x PATH {os.path.dirname(ACEQUIA)} $PATH; source {tmp_path}/c.fish\n{tries}"
    r = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True, env={**cluster.env, "HOME": str(tmp_path)}, cwd=cluster.work, check=True)
    told = [sorted(t.split()) for t in r.stdout.split("#")[1:]]
    assert r.stderr == "" and dict(zip(asked, told, strict=True)) == asked


def test_states_in_any_case_and_lines_of_shell(cluster):
    job = cluster.submit("--hold", "--", "true")
    assert job in cluster.acequia("list", "-s", "pending,Running")
    assert "1 job cancelled" in cluster.acequia("cancel", "--state", "pending", "--all")
    for states in ("cancelled", "cancelled,Failed"):  # no live job is in one of these
        assert job in [line.split()[0] for line in cluster.acequia("list", "-s", states).splitlines()]
    assert job not in [line.split()[0] for line in cluster.acequia("list", "-s", "cancelled,running").splitlines()]
    r = cluster.run("run", "--", "echo a | cat")
    assert r.returncode == 127 and "sh -c" in r.stderr


def test_the_same_twice_and_a_job_for_a_node(cluster):
    job = cluster.submit("--hold", "--", "true")
    again = cluster.acequia("resubmit", "--hold", job, job)
    assert again.count("Submitted job") == 1
    r = cluster.run("resume", job)
    assert r.returncode == 1 and f"acequia continue {job}" in r.stderr
    cluster.acequia("cancel", job, again.split()[2])


def test_elements_of_an_array_in_order(cluster):
    job = cluster.submit("--array", "0-3", "-o", "/dev/null", "--", "true")
    assert cluster.run("wait", job).returncode == 0
    rows = cluster.acequia("list", "--finished", "--no-heading", "--columns", "id", job).split()
    assert rows == [f"{job}_{i}" for i in range(4)]
    shown = cluster.acequia("get", job)
    assert f"acequia list {job}" in shown and "4 elements" in shown and "4 COMPLETED" in shown
    assert "acequia list" not in cluster.acequia("get", f"{job}_2")
    job = cluster.submit("--array", "0-9%2", "-o", "/dev/null", "--", "sh", "-c", "[ $ACEQUIA_ARRAY_TASK_ID -lt 4 ] || sleep 30; exit 3")
    try:
        wait_until(lambda: "4 PENDING, 2 RUNNING, 4 FAILED" in cluster.acequia("get", job), 25, "they are not counted")
    finally:
        assert cluster.run("cancel", job).returncode == 0


def test_a_reservation_in_the_way_is_told(cluster):
    cluster.acequia("reservation", "create", "window", "--start", "now+1day", "--end", "now+2days", "--maintenance", "true")
    try:
        job = cluster.submit("--", "true")  # without a limit it could run into it
        # Before that it may wait for a job of another test that is still ending.
        wait_until(lambda: cluster.acequia("why", job).startswith("It has no time limit, so it could still run when a reservation"), 30,
                   lambda: cluster.acequia("why", job))
        assert "1 reserved while it would run" in cluster.acequia("why", job)
    finally:
        cluster.acequia("reservation", "delete", "window")
    assert cluster.run("wait", job).returncode == 0


def test_why_on_a_narrow_terminal(cluster):
    cpus = str(cluster.json("nodes")["nodes"][0]["cpus"])
    holder = cluster.submit("-J", "holder", "-c", cpus, "-t", "unlimited", "--", "sleep", "600")
    job = cluster.submit("-H", "-c", cpus, "--", "true")
    wait_until(lambda: cluster.job(holder)["state"] == "RUNNING", 30, "it does not run")
    try:
        assert "without time limit" in cluster.acequia("why", job)
        t = Terminal(cluster, "why", job, columns=60)
        t.expect("Expected start")
        assert t.end() == 0
        lines = t.seen.replace("\r", "").splitlines()
        assert lines[0] == "It is held by its user." and max(map(len, lines)) <= 60, lines
    finally:
        cluster.acequia("cancel", holder, job)
    assert "at most 365d" in cluster.run("token", "create", "--ttl", "unlimited").stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_descriptors(cluster, closed):
    line = f"exec {ACEQUIA} run -- sh -c 'cat; echo said' {closed}"
    r = subprocess.run(["bash", "-c", line], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=cluster.env, cwd=cluster.work, timeout=180, check=False)
    assert r.returncode == 0
    assert r.stdout == ("" if ">&-" in closed.replace("2>&-", "") else "said\n")


def test_following_events_outlives_the_controller():
    c = Cluster()
    try:
        events = c.start("events", "--follow", "--json", stdout=subprocess.PIPE, text=True)
        seen = []
        reader = threading.Thread(target=lambda: seen.extend(json.loads(line) for line in events.stdout))
        reader.start()

        def has_ended(job):
            return any(e["type"] == "job_ended" and str(e["id"]) == job for e in list(seen))

        def connected():
            return seen or not c.submit("-o", "/dev/null", "--hold", "--", "true")  # something to be told of

        wait_until(connected, 20, "no event comes", 0.3)
        first = c.submit("-o", "/dev/null", "--", "true")
        c.run("wait", first)
        c.acequia("down")
        c.acequia("up")
        second = c.submit("-o", "/dev/null", "--", "true")
        c.run("wait", second)
        wait_until(lambda: has_ended(first) and has_ended(second), 20, "the ends are not told")
        events.terminate()
        reader.join()
        third = c.submit("-o", "/dev/null", "--", "sleep", "1")
        assert "job_ended" in c.acequia("events", "--follow", third)  # and ends by itself
        assert "already ended" in c.run("events", "--follow", third).stderr
        assert "no job is named" in c.run("events", "--follow", "abc").stderr
        events.wait(180)
        numbers = [e["seq"] for e in seen]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), numbers  # none missing, none twice
        assert {str(e["id"]) for e in seen if e["type"] == "job_ended"} == {first, second}
    finally:
        c.close()


def test_deleting_under_jobs_is_refused_or_told(cluster):
    for noun, option in (("project", "-P"), ("partition", "-p"), ("qos", "-q")):
        cluster.acequia(noun, "create", "short-lived")
        job = cluster.submit("--hold", option, "short-lived", "--", "true")
        r = cluster.run(noun, "delete", "short-lived")
        assert r.returncode == 1 and "1 live job" in r.stderr and f"acequia cancel --{noun} short-lived" in r.stderr, r.stderr
        r = cluster.run(noun, "delete", "short-lived", "--force")
        assert r.returncode == 0 and "1 live job is in it" in r.stderr
        cluster.wait_state(job, "CANCELLED")
        told = cluster.acequia("get", job)
        assert "short-lived was deleted" in told, told
        wait_until(lambda: "short-lived" not in cluster.acequia(noun, "list"), 10, f"the {noun} is still there")
        cluster.acequia(noun, "create", "short-lived")
        r = cluster.run(noun, "delete", "short-lived")
        assert r.returncode == 0 and r.stderr == ""
    cluster.acequia("project", "create", "busy")
    job = cluster.submit("-P", "busy", "--", "sh", "-c", "while ! test -e go; do sleep 0.1; done")
    cluster.wait_state(job, "RUNNING")
    assert cluster.acequia("project", "delete", "busy", "--force") == "project busy is being deleted\n"
    assert "busy (being deleted)" in cluster.acequia("project", "list") and "busy (being d" in cluster.acequia("shares")
    r = cluster.run("submit", "-P", "busy", "--", "true")
    assert r.returncode == 1 and '--project: "busy" is being deleted' in r.stderr, r.stderr
    open(os.path.join(cluster.work, "go"), "w", encoding="utf-8").close()
    cluster.wait_state(job, "COMPLETED")
    wait_until(lambda: "busy" not in cluster.acequia("project", "list"), 10, "the project is still there")
    assert "--force is for delete" in cluster.run("qos", "create", "x", "--force").stderr


def test_words_are_those_of_the_command_line(cluster):
    """Sentences of the controller name options, not fields of the API; reasons are no codes."""
    r = cluster.run("reservation", "create", "late", "--start", "now+2days", "--end", "now+1hour")
    assert r.returncode == 1 and "acequia: --end: a reservation must end" in r.stderr
    assert "acequia: --nodelist: node \"nowhere\" does not exist" in cluster.run("submit", "-w", "nowhere", "--", "true").stderr
    job = cluster.submit("-o", "/dev/null", "--", "no-such-program")
    cluster.run("wait", job)
    assert "could not be started: command no-such-program not found" in cluster.acequia("get", job)
    reservation = cluster.run("reservation", "create", "soon", "--start", "now+1hour", "--end", "now+2hours", "--maintenance", "true")
    assert reservation.returncode == 0
    job = cluster.submit("-o", "/dev/null", "-t", "4h", "--", "true")
    wait_until(lambda: "(Reservation)" in cluster.acequia("list", job), 5, "the reservation is not the reason")
    assert "could still run when a reservation" in cluster.acequia("why", job)
    cluster.acequia("cancel", job)
    cluster.acequia("reservation", "delete", "soon")


def test_a_terminal_opens_at_our_size(cluster):
    t = Terminal(cluster, "run", "--pty", "--", "stty", "size", rows=33, columns=101)
    t.expect("33 101")
