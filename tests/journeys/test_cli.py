"""What a user does at a shell, through the real programs."""
import json
import os
import pty
import re
import select
import signal
import subprocess
import time

import pytest

from tests.lab.command import ACEQUIA, Cluster
from tests.lab.proc import free_ports, wait_until


@pytest.fixture(scope="module")
def cluster():
    c = Cluster()
    yield c
    c.close()


@pytest.fixture
def new_cluster():
    """A function that makes clusters, which end with the test."""
    made = []

    def make(*args, **more):
        made.append(Cluster(*args, **more))
        return made[-1]

    yield make
    for c in made:
        c.close()


def test_a_job_from_submit_to_history(cluster):
    job = cluster.submit("--name", "hello", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    r = cluster.run("wait", job)
    assert r.returncode == 3
    assert cluster.read(f"acequia-{job}.out") == "out\nerr\n"
    assert cluster.acequia("logs", job) == "out\nerr\n"
    record = cluster.job(job)
    assert record["state"] == "FAILED" and record["exit_code"] == 3 and record["attempt"] == 1
    assert record["spec"]["name"] == "hello" and record["parts"][0]["node"]
    types = [e["type"] for e in cluster.json("events", job)["events"]]
    assert types[0] == "job_submitted" and types[-1] == "job_ended" and "job_started" in types
    line = [x for x in cluster.acequia("list", "--finished").splitlines() if x.split()[0] == job][0]
    assert "FAILED" in line and " 3 " in line


def test_scripts_files_input_and_directives(cluster):
    script = "#!/bin/sh\n#ACEQUIA --name from-script --cpus 1\necho \"$0 $1 $ACEQUIA_JOB_NAME\"\n"
    path = os.path.join(cluster.work, "job.sh")
    with open(path, "w", encoding="utf-8") as f:
        f.write(script)
    job = cluster.submit(path, "argument")
    assert cluster.run("wait", job).returncode == 0
    assert "argument" in cluster.read(f"acequia-{job}.out")
    assert cluster.job(job)["spec"]["name"] == "from-script"
    assert cluster.acequia("get", job, "--script") == script
    job = cluster.submit("--name", "wins", input=script)
    assert cluster.run("wait", job).returncode == 0
    assert cluster.job(job)["spec"]["name"] == "wins"


def test_environment(cluster):
    show = ["--", "sh", "-c", "echo $KEEP-$OTHER-$ADDED"]
    env = {"KEEP": "1", "OTHER": "2"}
    for options, expected in (
        ([], "1-2-"),
        (["--export", "none"], "--"),
        (["--export", "KEEP,ADDED=3"], "1--3"),
        (["--env", "ADDED=4", "--env", "KEEP=5"], "5-2-4"),
    ):
        job = cluster.submit(*options, *show, env=env)
        assert cluster.run("wait", job).returncode == 0
        assert cluster.read(f"acequia-{job}.out").strip() == expected


def test_output_patterns(cluster):
    job = cluster.submit("-J", "pat", "-o", "out-%x-%5j-%u-%N.txt", "-e", "err-%j.txt", "--", "sh", "-c", "echo o; echo e >&2")
    assert cluster.run("wait", job).returncode == 0
    names = os.listdir(cluster.work)
    out = [n for n in names if n.startswith(f"out-pat-{int(job):05d}-")]
    assert len(out) == 1 and cluster.read(out[0]) == "o\n"
    assert cluster.read(f"err-{job}.txt") == "e\n"


def test_arrays(cluster):
    job = cluster.submit("-a", "1-9:2%2", "-o", "arr-%A_%a.txt", "--", "sh", "-c", "echo $ACEQUIA_ARRAY_TASK_ID")
    assert cluster.run("wait", job).returncode == 0
    for i in (1, 3, 5, 7, 9):
        assert cluster.read(f"arr-{job}_{i}.txt") == f"{i}\n"
    assert cluster.state(f"{job}_5") == "COMPLETED"


def test_dependencies_hold_and_release(cluster):
    first = cluster.submit("--hold", "--", "true")
    second = cluster.submit("-d", f"afterok:{first}", "--", "true")
    never = cluster.submit("-d", f"afternotok:{first}", "--", "true")
    rows = {r["label"]: r for r in cluster.json("list")["jobs"]}
    assert rows[first]["reason"] == "JobHeldUser" and rows[second]["reason"] == "Dependency"
    cluster.acequia("release", first)
    assert cluster.run("wait", second).returncode == 0
    cluster.run("cancel", never)


def test_cancel_by_id_name_and_signal(cluster):
    job = cluster.submit("--", "sleep", "60")
    cluster.wait_state(job, "RUNNING")
    assert "1 job cancelled" in cluster.acequia("cancel", job)
    assert cluster.run("wait", job).returncode == 128 + signal.SIGTERM
    assert cluster.state(job) == "CANCELLED"
    for _ in range(2):
        cluster.submit("-J", "many", "--hold", "--", "true")
    assert "2 jobs cancelled" in cluster.acequia("cancel", "--name", "many")
    job = cluster.submit("--", "sh", "-c", "trap 'echo got; exit 7' USR1; echo ready; while :; do sleep 0.1; done")
    wait_until(lambda: cluster.state(job) == "RUNNING" and cluster.read(f"acequia-{job}.out") == "ready\n", 20, "it is not ready")
    cluster.acequia("cancel", "--signal", "USR1", job)
    assert cluster.run("wait", job).returncode == 7
    r = cluster.run("cancel", "999999")
    assert r.returncode == 1 and "999999" in r.stderr


def test_run_streams_and_returns(cluster):
    r = cluster.run("run", "--", "sh", "-c", "echo out; echo err >&2; exit 5")
    assert (r.returncode, r.stdout, r.stderr) == (5, "out\n", "err\n")
    r = cluster.run("run", "--", "cat", input="typed\n" * 1000)
    assert r.returncode == 0 and r.stdout == "typed\n" * 1000
    big = cluster.run("run", "--no-input", "--", "sh", "-c", "seq 100000")
    assert big.stdout.splitlines()[-1] == "100000" and len(big.stdout.splitlines()) == 100000
    r = cluster.run("run", "--", "/no/such/command")
    assert r.returncode != 0 and r.stderr


def test_run_ends_with_ctrl_c(cluster):
    p = cluster.start("run", "--no-input", "--", "sh", "-c", "echo ready; sleep 60", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert p.stdout.readline() == "ready\n"
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=180)
    assert p.returncode != 0 and "cancelling job" in err


def wait_child(pid, seconds=10):
    """Its wait status; it is killed when it does not end."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


def test_run_on_a_terminal(cluster):
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(cluster.work)
        os.execve(ACEQUIA, [ACEQUIA, "run", "--pty", "--", "sh", "-c", "tty; read line; echo you said $line"], cluster.env)
    seen = b""
    deadline = time.monotonic() + 20
    typed = False
    while time.monotonic() < deadline:
        if select.select([fd], [], [], 0.2)[0]:
            try:
                piece = os.read(fd, 4096)
            except OSError:
                break
            if not piece:
                break
            seen += piece
        if b"/dev/" in seen and not typed:
            os.write(fd, b"hello\r")
            typed = True
    os.close(fd)  # a hang-up, if it has not ended
    status = wait_child(pid)
    assert os.waitstatus_to_exitcode(status) == 0, seen
    assert b"you said hello" in seen


def test_exec_and_bash(cluster):
    job = cluster.submit("--", "sleep", "60")
    cluster.wait_state(job, "RUNNING")
    r = cluster.run("exec", job, "--", "sh", "-c", "echo in $ACEQUIA_JOB_ID; exit 4")
    assert (r.returncode, r.stdout) == (4, f"in {job}\n")
    r = cluster.run("bash", job, input="echo shell; exit 6\n")
    assert r.returncode == 6 and "shell" in r.stdout
    cluster.acequia("cancel", job)
    cluster.run("wait", job)
    r = cluster.run("exec", job, "--", "true")
    assert r.returncode == 1 and r.stderr


def test_logs_follow_and_tail(cluster):
    job = cluster.submit("--", "sh", "-c", "for i in 1 2 3; do echo line $i; sleep 0.3; done")
    wait_until(lambda: cluster.state(job) != "PENDING", 10, "started")
    assert cluster.acequia("logs", "-f", job) == "line 1\nline 2\nline 3\n"
    assert cluster.acequia("logs", "--tail", "1", job) == "line 3\n"


def test_keys_make_submits_repeatable(cluster):
    one = cluster.json("submit", "--key", "once", "--hold", "--", "true")
    two = cluster.json("submit", "--key", "once", "--hold", "--", "true")
    assert one["id"] == two["id"] and two["repeated"] and not one["repeated"]
    cluster.acequia("cancel", one["id"])


@pytest.mark.parametrize("verb", ["submit", "run"])
def test_errors_are_json_where_it_is_asked_for(cluster, verb):
    r = cluster.run(verb, "--gpus", "1.5", "--json", "--", "true")
    assert r.returncode == 2 and json.loads(r.stderr)["error"]["message"].startswith("--gpus")
    r = cluster.run(verb, "--gpus", "x", "--json", "--", "true")
    assert r.returncode == 1 and json.loads(r.stderr)["error"]["code"] == "ERANGE"


def test_dry_run_stores_nothing(cluster):
    before = cluster.json("status")["jobs"]["submitted"]
    cluster.acequia("submit", "--dry-run", "--", "true")
    assert cluster.json("status")["jobs"]["submitted"] == before


@pytest.mark.parametrize(
    "options, words",
    [
        (["--gpus", "1.5"], ["--gpus", "1.5"]),
        (["--gpus", "-1"], ["--gpus", "-1"]),
        (["--memory", "10X"], ["--memory", "10X"]),
        (["--memory", "99999999999999999999G"], ["--memory"]),
        (["--time", "-5"], ["--time", "-5"]),
        (["--cpus", "0"], ["--cpus", "0"]),
        (["--cpus", "99999999999"], ["--cpus"]),
        (["--array", "5-1"], ["--array", "5-1"]),
        (["--array", "0-99999999"], ["--array", "largest index"]),
        (["--dependency", "afterok:x"], ["--dependency", 'no job is named "x"']),
        (["--begin", "soonish"], ["--begin", "soonish"]),
        (["--name", "a\tb"], ["name"]),
        (["--output", "%q"], ["--output", "%q"]),
        (["--project", "no such"], ["project"]),
        (["--gpsu", "1"], ["did you mean --gpus"]),
        (["--signal", "NOPE"], ["--signal", "NOPE"]),
        (["--nodes", "4-2"], ["--nodes", "4-2"]),
    ],
)
def test_bad_input_is_refused_here(cluster, options, words):
    before = cluster.json("status")["jobs"]["submitted"]
    r = cluster.run("submit", *options, "--", "true")
    assert r.returncode == 2, r
    for w in words:
        assert w in r.stderr
    assert cluster.json("status")["jobs"]["submitted"] == before


@pytest.mark.parametrize(
    "options",
    [["--cpus", "60000"], ["--memory", "900T"], ["--gpus", "64"], ["-w", "nosuchnode"], ["-p", "nosuch"], ["-q", "nosuch"], ["-P", "nosuch"], ["-d", "afterok:999999"]],
)
def test_what_no_node_can_ever_meet_is_refused(cluster, options):
    r = cluster.run("submit", *options, "--", "true")
    assert r.returncode == 1 and len(r.stderr.splitlines()) == 1, r
    assert r.stderr.startswith("acequia: ")


def test_a_script_without_interpreter_is_refused(cluster):
    r = cluster.run("submit", input="echo hello\n")
    assert r.returncode == 2 and "#!" in r.stderr
    r = cluster.run("submit", "nosuch.sh")
    assert r.returncode == 2 and "after --" in r.stderr


def test_every_verb_has_help_within_80_columns(cluster):
    overview = cluster.acequia("--help")
    verbs = re.findall(r"^  (\w+) ", overview, re.M)
    assert len(verbs) > 30
    for verb in verbs:
        text = cluster.acequia(verb, "--help")
        assert max(map(len, text.splitlines())) <= 80, verb
        assert "--json" in text, verb


def test_tables_fit_80_columns(cluster):
    cluster.submit("-J", "x" * 200, "--hold", "--comment", "y" * 500, "--", "true")
    for args in (["list"], ["list", "--finished"], ["nodes"], ["status"], ["top"], ["shares"], ["project", "list"]):
        for line in cluster.acequia(*args).splitlines():
            assert len(line) <= 80, (args, line)
    cluster.acequia("cancel", "--name", "x" * 200)


def test_json_everywhere(cluster):
    job = cluster.submit("--", "true")
    cluster.run("wait", job)
    for args in (["list"], ["status"], ["nodes"], ["get", job], ["events", job], ["shares"], ["project", "list"], ["partition", "list"], ["qos", "list"],
                 ["reservation", "list"], ["token", "list"], ["config", "show"], ["version"], ["top"], ["list", "--finished"]):
        json.loads(cluster.acequia(*args, "--json"))
    r = cluster.run("get", "999999", "--json")
    assert r.returncode == 1 and json.loads(r.stderr)["error"]["message"]


def test_filters_columns_and_sort(cluster):
    a = cluster.submit("-J", "aaa", "--hold", "--", "true")
    b = cluster.submit("-J", "bbb", "--hold", "--nice", "5", "--", "true")
    out = cluster.acequia("list", "-H", "-o", "id,name", "--sort", "-name", a, b)
    assert [line.split() for line in out.splitlines()] == [[b, "bbb"], [a, "aaa"]]
    assert cluster.acequia("list", "-H", "-o", "name", "--name", "aaa").split() == ["aaa"]
    assert cluster.acequia("list", "-H", "--state", "RUNNING", "--name", "aaa") == ""
    r = cluster.run("list", "-o", "nmae")
    assert r.returncode == 2 and "did you mean" in r.stderr
    cluster.acequia("cancel", a, b)


def test_update_and_requeue(cluster):
    job = cluster.submit("--hold", "-t", "1h", "--", "true")
    cluster.acequia("update", job, "--time", "2h", "--name", "renamed")
    spec = cluster.job(job)["spec"]
    assert spec["time_limit_s"] == 7200 and spec["name"] == "renamed"
    cluster.acequia("cancel", job)
    job = cluster.submit("--requeue", "--", "sleep", "60")
    cluster.wait_state(job, "RUNNING")
    cluster.acequia("requeue", job)
    wait_until(lambda: cluster.job(job).get("attempt") == 2 and cluster.state(job) == "RUNNING", 20, "second attempt")
    cluster.acequia("cancel", job)
    cluster.run("wait", job)


def test_drain_and_resume(cluster):
    node = cluster.json("nodes")["nodes"][0]["name"]
    assert cluster.run("drain", node).returncode == 2
    cluster.acequia("drain", node, "--reason", "new disks")
    assert "new disks" in cluster.acequia("nodes")
    job = cluster.submit("--", "true")
    time.sleep(0.3)
    assert cluster.state(job) == "PENDING"
    cluster.acequia("resume", node)
    assert cluster.run("wait", job).returncode == 0


def test_projects_partitions_qos_reservations(cluster):
    cluster.acequia("project", "create", "vision", "--quota", "4", "--members", "root,eva")
    assert cluster.run("project", "create", "vision").returncode == 1
    cluster.acequia("project", "edit", "vision", "--limit", "8")
    shown = cluster.acequia("project", "show", "vision")
    assert "quota = 4" in shown and "limit = 8" in shown and "members = root, eva" in shown
    assert "vision" in cluster.acequia("project", "list")
    cluster.acequia("project", "delete", "vision")
    assert cluster.run("project", "show", "vision").returncode == 1
    cluster.acequia("partition", "create", "short", "--max-time", "1h")
    r = cluster.run("submit", "-p", "short", "-t", "2h", "--", "true")
    assert r.returncode == 1 and "short" in r.stderr
    cluster.acequia("partition", "delete", "short")
    cluster.acequia("qos", "create", "urgent", "--priority", "100")
    assert json.loads(cluster.acequia("qos", "show", "urgent", "--json"))["priority"] == 100
    cluster.acequia("qos", "delete", "urgent")
    cluster.acequia("reservation", "create", "later", "--nodes", cluster.json("nodes")["nodes"][0]["name"], "--start", "tomorrow", "--end", "now+3days")
    assert "later" in cluster.acequia("reservation", "list")
    cluster.acequia("reservation", "delete", "later")
    assert cluster.run("project", "create", "bad", "--quota", "many").returncode == 2


def test_up_and_down_are_harmless_to_repeat(new_cluster):
    c = new_cluster()
    first = c.json("status")
    c.acequia("up")
    assert c.json("status")["journal_seq"] >= first["journal_seq"]
    assert "Stopped" in c.acequia("down")
    assert "Nothing was running" in c.acequia("down")
    r = c.run("list")
    assert r.returncode == 1 and "acequia up" in r.stderr
    c.acequia("up")
    job = c.submit("--", "true")
    assert c.run("wait", job).returncode == 0


def test_jobs_go_on_while_the_cluster_is_down(new_cluster):
    c = new_cluster()
    job = c.submit("--", "sh", "-c", "until [ -e down ]; do sleep 0.05; done; echo survived")
    c.wait_state(job, "RUNNING")
    assert "continues" in c.acequia("down")
    with open(os.path.join(c.work, "down"), "w", encoding="utf-8"):
        pass
    wait_until(lambda: c.read(f"acequia-{job}.out") == "survived\n", 20, "the job does not end")
    c.acequia("up")
    assert c.run("wait", job).returncode == 0
    assert c.read(f"acequia-{job}.out") == "survived\n"
    assert c.job(job)["attempt"] == 1


def test_a_wrong_configuration_is_told(new_cluster):
    c = new_cluster(config="[cluster]\nnode_timeuot = 5\n", up=False)
    r = c.run("up")
    assert r.returncode == 1 and 'did you mean "node_timeout"' in r.stderr and "acequia.conf:2" in r.stderr
    assert c.run("config", "check").returncode == 1


def test_completion_and_man_pages(cluster, tmp_path):
    bash = cluster.acequia("completion", "bash")
    ask = bash + "\nCOMP_WORDS=(acequia su); COMP_CWORD=1; _acequia; echo ${COMPREPLY[@]}\nCOMP_WORDS=(acequia submit --gp); COMP_CWORD=2; _acequia; echo ${COMPREPLY[@]}"
    out = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True).stdout.splitlines()
    assert out[0].split() == ["submit", "suspend"]
    assert "--gpus" in out[1].split() and "--gpu-memory" in out[1].split()
    cluster.acequia("man", str(tmp_path))
    pages = os.listdir(tmp_path)
    assert "acequia.1" in pages and "acequia-submit.1" in pages and "acequia.conf.5" in pages


def kill_controller(c):
    with open(os.path.join(c.home, "run/controller.pid"), encoding="utf-8") as f:
        os.kill(int(f.read()), signal.SIGKILL)


def test_wait_and_run_outlive_the_controller(new_cluster):
    c = new_cluster()
    job = c.submit("-o", "/dev/null", "--", "sh", "-c", "sleep 2; exit 7")
    waiter = c.start("wait", job, stderr=subprocess.PIPE, text=True)
    show = "for i in 1 2 3 4 5 6; do echo line $i; echo err $i >&2; sleep 0.4; done; exit 3"
    runner = c.start("run", "--no-input", "--", "sh", "-c", show, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    first = runner.stdout.readline()
    kill_controller(c)
    time.sleep(0.5)
    c.acequia("up")
    out, err = runner.communicate(timeout=180)
    assert first + out == "".join(f"line {i}\n" for i in range(1, 7))
    assert err == "".join(f"err {i}\n" for i in range(1, 7))
    assert runner.returncode == 3
    waiter.communicate(timeout=180)
    assert waiter.returncode == 7


def test_run_outlives_its_agent(new_cluster):
    c = new_cluster()
    show = "for i in 1 2 3 4 5 6; do echo line $i; sleep 0.4; done; exit 3"
    runner = c.start("run", "--no-input", "--", "sh", "-c", show, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    first = runner.stdout.readline()
    with open(os.path.join(c.home, "run/agent.pid"), encoding="utf-8") as f:
        os.kill(int(f.read()), signal.SIGKILL)
    time.sleep(0.3)
    c.acequia("up")
    out, _ = runner.communicate(timeout=180)
    assert first + out == "".join(f"line {i}\n" for i in range(1, 7))
    assert runner.returncode == 3


def test_other_machines_over_tls(new_cluster):
    """Commands with a user's token; a token that is none, or one for agents, gets nothing."""
    c = new_cluster(config=f"[cluster]\nlisten = 127.0.0.1:{free_ports(1)[0]}\n")
    address = c.json("status")["listen"]
    token, joins = os.path.join(c.home, "token"), os.path.join(c.home, "join")
    c.acequia("token", "create", "--user", "root", "--ttl", "1h", "-o", token)
    c.acequia("token", "create", "--ttl", "1h", "-o", joins)
    assert os.stat(token).st_mode & 0o777 == 0o600
    away = {"ACEQUIA_HOME": os.path.join(c.home, "away"), "ACEQUIA_HOST": address, "ACEQUIA_TOKEN_FILE": token}
    r = c.run("run", "--no-input", "--", "sh", "-c", "echo here; exit 4", env=away)
    assert (r.returncode, r.stdout) == (4, "here\n")
    assert len(json.loads(c.run("nodes", "--json", env=away).stdout)["nodes"]) == 1
    for bad in (joins, "/dev/null"):
        r = c.run("list", env={**away, "ACEQUIA_TOKEN_FILE": bad})
        assert r.returncode == 1 and r.stderr and not r.stdout


def test_why_and_when(cluster):
    held = cluster.submit("--hold", "--", "true")
    assert cluster.acequia("why", held).strip()
    assert json.loads(cluster.acequia("why", held, "--json"))["lines"]
    assert "as asked" in cluster.acequia("when", "-c", "1").lower()
    cluster.acequia("cancel", held)


def test_input_waits_for_a_slow_reader_and_none_is_lost(cluster):
    size = 8_000_000
    r = cluster.run("run", "--", "sh", "-c", "sleep 1; wc -c", input="x" * size)
    assert r.stdout.strip() == str(size)
    job = cluster.submit("--", "sleep", "60")
    cluster.wait_state(job, "RUNNING")
    r = cluster.run("exec", job, "--", "sh", "-c", "sleep 1; wc -c", input="x" * size)
    assert r.stdout.strip() == str(size)
    cluster.acequia("cancel", job)


def test_elements_are_named_by_ranges(cluster):
    job = cluster.submit("--array", "0-9", "--", "true")
    assert cluster.run("wait", job).returncode == 0
    shown = cluster.acequia("list", "--no-heading", "--columns", "id", f"{job}_[3-5,7]").split()
    assert shown == [f"{job}_{n}" for n in (3, 4, 5, 7)]
    for wrong in (f"{job}_[", f"{job}_[5-1]", "abc"):
        r = cluster.run("list", wrong)
        assert r.returncode == 1 and ("is not" in r.stderr or "no job is named" in r.stderr)


def test_decisions_come_out_the_same_again(cluster):
    cluster.acequia("run", "--", "true")
    assert "All decisions are the same" in cluster.acequia("replay")
    again = cluster.json("replay")
    assert again["different"] == 0 and again["starts"] > 0


@pytest.mark.parametrize("options, said", [
    (["--container-mounts", "/data"], "--container-mounts: there is no container"),
    (["--container", "debian", "--container-mounts", "data"], "\"data\" in \"data\" is not an absolute path"),
    (["--deadline", "2020-01-01T00:00"], "deadline: that time has passed"),
    (["--project", "nope"], "see 'acequia project list'"),
    (["--qos", "nope"], "see 'acequia qos list'"),
    (["--gpus", "1"], "has no GPU"),
    (["--bogus"], "unknown option --bogus; see --help"),
    # What lines of runai have.
    (["--image", "python"], "unknown option --image; an image is given with --container IMAGE"),
    (["--command=start"], "unknown option --command; the program and its arguments are written after --"),
    (["--service-type=ingress"], "unknown option --service-type; --port PORT is enough"),
    (["--local-image"], "unknown option --local-image; write --pull never"),
    (["build1"], "a whole line of runai after acequia: acequia runai submit"),
])
def test_what_cannot_be_done_is_refused_with_a_remedy(cluster, options, said):
    r = cluster.run("submit", *options, "--", "true")
    assert r.returncode != 0 and said in r.stderr, r.stderr


@pytest.mark.parametrize("verb", ["bash", "get", "logs"])
def test_a_project_of_a_line_of_runai(cluster, verb):
    assert "unknown option -p; a project is given with -P NAME" in cluster.run(verb, "build1", "-p", "team-a").stderr


def test_a_dependency_that_cannot_come_true_is_told_and_can_be_dropped(cluster):
    first = cluster.submit("--", "false")
    assert cluster.run("wait", first).returncode == 1
    job = cluster.submit("--dependency", f"afterok:{first}", "--", "true")
    why = cluster.acequia("why", job)
    assert f"It depends on afterok:{first}, which can no longer be satisfied." in why
    assert "without its dependency" in why
    assert "would wait for itself" in cluster.run("update", job, "--dependency", f"afterok:{job}").stderr
    cluster.acequia("update", job, "--dependency", "none")
    assert cluster.run("wait", job).returncode == 0


def test_up_right_after_a_kill_starts_another(new_cluster):
    c = new_cluster()
    for _ in range(10):
        with open(os.path.join(c.home, "run", "controller.pid"), encoding="utf-8") as f:
            os.kill(int(f.read()), signal.SIGKILL)
        c.acequia("up")
