"""Two controllers that share a PostgreSQL database: one leads, the other takes over; running work does not notice."""
import json
import os
import pwd
import re
import signal
import subprocess
import sys
import time

import pytest

from lab.controllers import Controllers
from lab.proc import wait_until

PYTHON = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "python")


@pytest.fixture(scope="module")
def pair():
    with Controllers(2) as c:
        yield c


def both_up(c):
    """One leads and the other follows, each of them started again if it was killed."""
    for i in range(c.count):
        if c.children[f"c{i}"].poll() is not None:
            c.start(i)
    wait_until(lambda: sorted(filter(None, map(c.answers, range(c.count)))) == ["follows", "leads"], 30, c.logs)
    wait_until(lambda: c.nodes_up() == ["n1"], 30, c.logs)


def state(c, job):
    return c.api().get(f"/v1/jobs/{job}")["state"]


def submit(c, *command):
    return c.cli("submit", "-o", "/dev/null", "--", *command).stdout.split()[2].rstrip(",")


def test_a_follower_says_who_leads(pair):
    both_up(pair)
    leader = pair.leader()
    done = pair.cli("status", env={**pair.env, "ACEQUIA_HOST": f"unix:{pair.socket(1 - leader)}"}, check=False,
                    timeout=120)
    assert done.returncode != 0
    assert f"127.0.0.1:{pair.ports[leader]}" in done.stderr


def test_kill_takes_over(pair, tmp_path):
    both_up(pair)
    leader = pair.leader()
    out = tmp_path / "beats"
    job = submit(pair, "sh", "-c", f"while sleep 0.1; do echo x >> {out}; done")
    wait_until(lambda: state(pair, job) == "RUNNING", 30, pair.logs)
    attached = subprocess.Popen([pair.binary, "run", "--", "sh", "-c", "read a; echo got $a; read b; echo got $b"],
                                env=pair.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    attached.stdin.write("one\n")
    attached.stdin.flush()
    assert attached.stdout.readline() == "got one\n"
    pair.kill(leader)
    began = time.monotonic()
    assert pair.wait_leader(other_than=leader) == 1 - leader
    print(f"takeover after {time.monotonic() - began:.2f} s")
    later = submit(pair, "true")
    wait_until(lambda: state(pair, later) == "COMPLETED", 60, pair.logs)
    assert int(later) > int(job)
    attached.stdin.write("two\n")
    attached.stdin.close()
    assert attached.stdout.readline() == "got two\n"
    assert attached.wait(60) == 0
    before = os.path.getsize(out)
    wait_until(lambda: os.path.getsize(out) > before, 10, "the job does not run on")
    pair.cli("cancel", job)


def test_each_machine_knows_the_database(pair):
    """Beside the state folder, also of the one that began on an empty database: an emptied one is noticed there."""
    both_up(pair)
    for i in range(pair.count):
        env = {**pair.env, "ACEQUIA_HOME": f"{pair.home}/c{i}"}
        wait_until(lambda: os.path.exists(f"{env['ACEQUIA_HOME']}/state/database"), 30, pair.logs)
        assert "is readable" in pair.cli("check", env=env).stdout
        refused = pair.cli("backup", f"{pair.home}/backup", env=env, check=False)
        assert refused.returncode == 1 and "pg_dump" in refused.stderr


def follower_first(c):
    """The TLS addresses of both, the one that does not lead first."""
    leader = c.wait_leader()
    return [f"127.0.0.1:{c.ports[i]}" for i in (1 - leader, leader)]


def test_logins_and_configurations_name_both(pair, tmp_path):
    """With the addresses of all controllers, commands and Python programs find the leader, also after a hand-over."""
    both_up(pair)
    fingerprint = re.search(r"Fingerprint +(\S+)", pair.cli("whoami").stdout).group(1)
    me = pwd.getpwuid(os.geteuid()).pw_name
    pair.cli("user", "add", "ana", "--unix-user", me)
    pair.cli("user", "passwd", "ana", input="correct horse\n")
    env = {k: v for k, v in os.environ.items() if k != "ACEQUIA_HOST"}
    login, plain = ({**env, "ACEQUIA_HOME": str(tmp_path / name)} for name in ("login", "plain"))
    both = follower_first(pair)
    pair.cli("login", ",".join(both), "--fingerprint", fingerprint, "--password", "--user", "ana", "--method", "own", env=login,
             input="correct horse\n")
    assert json.loads((tmp_path / "login/login").read_text())["server"] == ",".join(both)
    token = pair.cli("token", "create", "--user", me).stdout.splitlines()[0]
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain/acequia.conf").write_text(f"[cluster]\ncontroller = {both[0]}, {both[1]}\n")
    with open(os.open(tmp_path / "plain/token", os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as f:
        f.write(token + "\n")
    python = "import acequia; print(acequia.Client(patience_s=60).get('/v1/me')['user'])"
    for handed_over in (False, True):
        if handed_over:
            leader = pair.leader()
            pair.cli("controller", "hand-over")
            assert pair.wait_leader(other_than=leader) == 1 - leader
        for who in (login, plain):
            assert me in pair.cli("whoami", env=who).stdout
        done = subprocess.run([sys.executable, "-c", python], env={**login, "PYTHONPATH": PYTHON}, capture_output=True, text=True, timeout=120,
                              check=False)
        assert done.stdout == f"{me}\n", done.stderr
    one = pair.cli("whoami", env={**login, "ACEQUIA_HOST": follower_first(pair)[1]})  # one of those that the login names
    assert me in one.stdout
    pair.cli("logout", env=login)
    refused = pair.cli("login", f"{both[0]},,{both[1]}", env=login, check=False)
    assert refused.returncode != 0 and "HOST:PORT" in refused.stderr


def test_hand_over(pair):
    """Nothing that is asked meanwhile is refused, and the accounts can be read with plain SQL."""
    both_up(pair)
    leader = pair.leader()
    work = subprocess.Popen(["sh", "-c", f"for i in 1 2 3 4 5 6 7 8; do {pair.binary} submit -o /dev/null -- true || exit 1; "
                             "sleep 0.2; done"], env=pair.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    pair.cli("controller", "hand-over")
    assert pair.wait_leader(other_than=leader) == 1 - leader
    out, error = work.communicate(timeout=120)
    assert work.returncode == 0, error
    jobs = [line.split()[2] for line in out.splitlines()]
    assert len(set(jobs)) == 8
    wait_until(lambda: {state(pair, j) for j in jobs} == {"COMPLETED"}, 60, pair.logs)
    row = pair.database.psql(f"SELECT state, cpus, cpu_hours > 0 FROM acequia.finished_jobs WHERE job = {jobs[-1]}")
    assert row == "COMPLETED|1|t"
    assert int(pair.database.psql("SELECT sum(jobs) FROM acequia.use_by_day")) >= 8
    pair.kill(leader)  # it follows now
    writers = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'acequia writer'"
    wait_until(lambda: pair.database.psql(writers) == "1", 30, pair.logs)
    refused = pair.cli("controller", "hand-over", check=False)
    assert refused.returncode == 1 and "nobody could take over; start another one first" in refused.stderr


@pytest.mark.long
def test_a_paused_leader_comes_back_as_a_follower(pair):
    both_up(pair)
    leader = pair.leader()
    pair.kill(leader, signal.SIGSTOP)
    try:
        assert pair.wait_leader(other_than=leader) == 1 - leader
        job = submit(pair, "true")
        wait_until(lambda: state(pair, job) == "COMPLETED", 60, pair.logs)
    finally:
        pair.kill(leader, signal.SIGCONT)
    wait_until(lambda: pair.answers(leader) == "follows", 30, pair.logs)
    assert pair.leader() == 1 - leader
    assert state(pair, job) == "COMPLETED"


@pytest.mark.long
def test_the_database_is_away(pair, tmp_path):
    both_up(pair)
    out = tmp_path / "beats"
    job = submit(pair, "sh", "-c", f"while sleep 0.1; do echo x >> {out}; done")
    wait_until(lambda: state(pair, job) == "RUNNING", 30, pair.logs)
    pair.database.kill()
    wait_until(lambda: pair.leader() is None, 30, pair.logs)
    before = os.path.getsize(out)
    wait_until(lambda: os.path.getsize(out) > before, 10, "the job does not run on")
    pair.database.start()
    both_up(pair)
    assert state(pair, job) == "RUNNING"
    pair.cli("cancel", job)
    wait_until(lambda: state(pair, job) == "CANCELLED", 60, pair.logs)
