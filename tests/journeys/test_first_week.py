"""What people meet in their first week: a controller that is away, limits that are none, sorting, and the like."""
import os
import signal
import time

import pytest

from tests.lab.command import Cluster
from tests.lab.proc import wait_until


@pytest.fixture(scope="module")
def cluster():
    c = Cluster()
    yield c
    c.close()


def kill_controller(c):
    with open(os.path.join(c.home, "run", "controller.pid"), encoding="utf-8") as f:
        os.kill(int(f.read()), 9)


def test_commands_wait_for_a_controller_that_is_away():
    c = Cluster()
    try:
        job = c.submit("--hold", "--", "true")
        kill_controller(c)
        verbs = [("list",), ("slurm", "squeue"), ("slurm", "sacct"), ("slurm", "sprio"), ("slurm", "sstat", "-j", job),
                 ("slurm", "scontrol", "show", "job", job)]
        began = time.monotonic()
        waiting = [(v, c.start(*v, stdout=-1, stderr=-1, text=True)) for v in verbs]
        for verb, process in waiting:
            _, err = process.communicate(timeout=60)
            assert process.returncode == 1 and "does not answer" in err, (verb, process.returncode, err)
            assert verb[0] == "list" or "Unable to contact slurm controller" in err
        assert time.monotonic() - began > 3  # they have tried for some seconds
        late = c.start("list", stdout=-1, stderr=-1, text=True)
        c.acequia("up")
        out, err = late.communicate(timeout=60)
        assert late.returncode == 0 and job in out, err
    finally:
        c.close()


def test_a_deleted_socket_is_put_back():
    """By whatever cleans up /run: commands wait for it, and a stopped controller says what is wrong."""
    c = Cluster()
    run = os.path.join(c.home, "run")
    try:
        job = c.submit("--hold", "--", "true")
        for path in ("api.sock", "controller.pid"):
            os.unlink(os.path.join(run, path))
        wait_until(lambda: os.path.exists(os.path.join(run, "controller.pid")), 60, "it is not put back")
        assert job in c.acequia("list")
        with open(os.path.join(run, "controller.pid"), encoding="utf-8") as f:
            pid = int(f.read())
        os.kill(pid, signal.SIGSTOP)
        os.unlink(os.path.join(run, "api.sock"))
        r = c.run("list")
        os.kill(pid, signal.SIGCONT)
        assert r.returncode == 1 and f"the controller runs (process {pid}), but its socket" in r.stderr, r
        assert job in c.acequia("list")
    finally:
        c.close()


def test_a_time_limit_can_be_none(cluster):
    job = cluster.submit("--hold", "-t", "unlimited", "--", "true")
    assert "unlimited" in cluster.acequia("list", job) and "unlimited" in cluster.acequia("get", job)
    cluster.acequia("update", job, "--time", "5m")
    assert cluster.job(job)["spec"]["time_limit_s"] == 300
    cluster.acequia("update", job, "--time", "unlimited")
    assert "unlimited" in cluster.acequia("list", job)
    assert "UNLIMITED" in cluster.acequia("slurm", "squeue", "-o", "%l", "-j", job)
    cluster.acequia("cancel", job)


def test_lists_sort_ids_as_numbers(cluster):
    jobs = [cluster.submit("--hold", "--", "true") for _ in range(12)]
    shown = cluster.acequia("list", "-H", "-o", "id", "--sort", "id", *jobs).split()
    assert shown == sorted(jobs, key=int) and len(str(jobs[0])) < len(str(jobs[-1]))
    assert cluster.acequia("list", "-H", "-o", "id", "--sort", "-id", *jobs).split() == shown[::-1]
    cluster.acequia("cancel", *jobs)


def test_a_job_named_twice_is_counted_once(cluster):
    job = cluster.submit("--hold", "--", "true")
    assert cluster.acequia("cancel", job, job) == "1 job cancelled\n"


def test_actions_that_change_nothing_say_so(cluster):
    job = cluster.submit("--begin", "now+1h", "--", "sleep", "600")

    def says(verb, words, *options):
        r = cluster.run(verb, *options, job)
        assert r.returncode == 0 and (r.stdout, r.stderr) == ("", f"acequia: job {job} {words}\n"), r

    says("release", "was not held")
    says("requeue", "is pending: it is in the queue already")
    assert cluster.acequia("hold", job) == "1 job held\n"
    says("hold", "is held already")
    assert cluster.json("hold", job)["unchanged"] == 1
    assert cluster.acequia("release", job) == "1 job released\n"
    cluster.acequia("update", job, "--begin", "now")
    cluster.wait_state(job, "RUNNING")
    says("continue", "was not suspended")
    assert cluster.acequia("suspend", job) == "1 job suspended\n"
    says("suspend", "is suspended already")
    cluster.acequia("cancel", job)
    cluster.wait_state(job, "CANCELLED")


def test_jobs_that_have_ended_are_requeued_as_new_ones(cluster):
    old = cluster.submit("-J", "once-more", "-t", "5m", "--", "sh", "-c", "echo $ACEQUIA_JOB_ID")
    array = cluster.submit("-a", "0-2", "--", "true")
    cluster.run("wait", old, array)
    r = cluster.run("requeue", "--hold", old, array)
    lines = r.stdout.splitlines()
    new = lines[0].split()[-1]
    assert r.returncode == 0 and lines[0] == f"Job {old} had ended: submitted again as job {new}" and not r.stderr, r
    assert lines[1].startswith(f"Job {array} had ended: submitted again as job ") and lines[1].endswith(", 3 elements")
    assert cluster.job(new)["spec"]["time_limit_s"] == 300 and cluster.job(new)["state"] == "PENDING"
    assert cluster.job(old)["state"] == "COMPLETED"  # its record stays
    cluster.acequia("cancel", "--all")
    by_name = cluster.json("requeue", "once-more")
    assert by_name["done"] == 0 and not by_name["errors"] and by_name["resubmitted"][0]["count"] == 1
    again = str(by_name["resubmitted"][0]["new_id"])
    assert cluster.run("logs", "-f", again).stdout == f"{again}\n"
    mixed = cluster.submit("--", "sleep", "600")
    cluster.wait_state(mixed, "RUNNING")
    r = cluster.run("requeue", "--hold", mixed, old, "999999")
    assert r.returncode == 1 and "there is no job 999999" in r.stderr and "1 job queued again" in r.stdout, r
    cluster.acequia("cancel", "--all")
    attached = cluster.run("run", "-J", "attached-one", "--", "true")
    r = cluster.run("requeue", "attached-one")
    assert attached.returncode == 0 and r.returncode == 1 and "was attached to a terminal" in r.stderr, r


def test_a_limit_that_may_be_shorter():
    """As Slurm's --time-min: before a planned start, for as long as there is time."""
    c = Cluster("[node *]\ncpus = 2\n")
    try:
        first = c.submit("-t", "20m", "-m", "1M", "--", "sleep", "600")
        c.wait_state(first, "RUNNING")
        planned = c.submit("-c", "2", "-t", "20m", "-m", "1M", "--", "true")
        waits = c.submit("-t", "1h", "-m", "1M", "--", "true")
        short = c.submit("-t", "1h", "--time-min", "5m", "-m", "1M", "--", "sleep", "600")
        c.wait_state(short, "RUNNING")
        assert c.job(planned)["state"] == c.job(waits)["state"] == "PENDING"
        placed = next(e for e in c.json("events", short)["events"] if e["type"] == "job_placed")
        assert 900 <= placed["time_limit_s"] <= 1200, placed
        assert "5m: shortened to that if it can start earlier" in c.acequia("get", short)
        r = c.run("submit", "-t", "5m", "--time-min", "10m", "--", "true")
        assert r.returncode == 1 and "--time-min: 10m is above the time limit, 5m" in r.stderr, r
    finally:
        c.close()


def test_a_high_priority_is_not_a_low_one(cluster):
    blocker = cluster.submit("--exclusive", "--", "sleep", "600")
    cluster.wait_state(blocker, "RUNNING")
    low, high = (cluster.submit("--", "true") for _ in range(2))
    cluster.acequia("slurm", "scontrol", "update", f"jobid={high}", "priority=4000000000")
    cluster.acequia("slurm", "scontrol", "update", f"jobid={low}", "priority=1000")
    assert cluster.job(high)["order"]["priority"] > cluster.job(low)["order"]["priority"] > 0
    assert "4000000000" in cluster.acequia("list", "-o", "id,priority", high)
    cluster.acequia("cancel", low, high, blocker)


def test_the_output_of_an_array_says_whose_it_is(cluster):
    array = cluster.submit("-a", "0-2", "--", "sh", "-c", "echo element $ACEQUIA_ARRAY_TASK_ID")
    cluster.run("wait", array)
    one = cluster.run("logs", array)
    assert one.stdout == "element 0\n" and f"this is the output of {array}_0" in one.stderr
    every = cluster.acequia("logs", "--all", array)
    assert every == "\n".join(f"==> {array}_{i} <==\nelement {i}\n" for i in range(3))
    assert cluster.run("logs", f"{array}_1").stderr == ""


def test_following_ends_with_the_state(cluster):
    job = cluster.submit("--", "sh", "-c", "echo hello; exit 3")
    r = cluster.run("logs", "-f", job)
    assert r.returncode == 0 and r.stdout == "hello\n" and r.stderr.endswith(f"job {job}: FAILED, exit code 3\n"), r
    assert cluster.run("logs", "-f", "--exit-status", job).returncode == 3
    job = cluster.submit("--", "true")
    r = cluster.run("logs", "-fx", job)
    assert r.returncode == 0 and r.stderr.endswith(f"job {job}: COMPLETED\n")


def test_arrays_are_one_line_unless_unfolded(cluster):
    blocker = cluster.submit("--exclusive", "--", "sleep", "600")
    cluster.wait_state(blocker, "RUNNING")
    array = cluster.submit("-a", "0-99", "-t", "1h", "--", "sleep", "600")
    sparse = cluster.submit("-a", ",".join(str(i * i + 100) for i in range(40)), "--", "true")
    cluster.acequia("hold", f"{array}_5")
    lines = [l.split() for l in cluster.acequia("list", "-H").splitlines()]
    assert [l[0] for l in lines if l[0].split("_")[0] == array] == [array]
    assert f"{array}  " in cluster.acequia("list") and "100 PENDING" in cluster.acequia("list")
    assert len([1 for l in cluster.acequia("list", "-r", "-H", "-o", "id").split() if l.startswith(f"{array}_")]) == 100
    # Ids are never cut: a long list of elements is shortened between two of them.
    shown = next(l for l in cluster.acequia("list", "-o", "id,name,where").splitlines() if l.startswith(f"{sparse}_["))
    assert shown.split()[0].endswith(",...]"), shown
    cluster.acequia("cancel", array, sparse, blocker)


def test_a_list_says_when_it_was_cut(cluster):
    jobs = [cluster.submit("--", "true") for _ in range(3)]
    cluster.run("wait", *jobs)
    r = cluster.run("list", "-f", "-l", "2")
    assert len(r.stdout.splitlines()) == 3 and "only the newest 2 finished jobs are shown" in r.stderr
    r = cluster.run("list", "-f", "-l", "1")
    assert len(r.stdout.splitlines()) == 2 and "only the newest finished job is shown" in r.stderr
    assert cluster.run("list", "-f").stderr == ""
    own = cluster.submit("-J", "the-only-one", "--", "true")
    cluster.run("wait", own)
    assert cluster.run("list", "-f", "-J", "the-only-one", "-l", "1").stderr == ""  # nothing was cut
    # Lines are counted: an array is one, however many elements it has, and all of them are in it.
    arrays = [cluster.submit("-J", "folded", "-a", "0-11", "--", "true") for _ in range(3)]
    cluster.run("wait", *arrays)
    r = cluster.run("list", "-f", "-J", "folded", "-l", "2")
    assert [line.split()[0] for line in r.stdout.splitlines()[1:]] == arrays[1:] and r.stdout.count("12 COMPLETED") == 2, r.stdout
    assert "only the newest 2 finished jobs are shown" in r.stderr
    assert cluster.run("list", "-f", "-J", "folded", "-l", "3").stderr == ""
    assert len(cluster.run("list", "-f", "-J", "folded", "-l", "5", "--elements").stdout.splitlines()) == 6


def test_attach_to_a_job_that_has_ended(cluster):
    job = cluster.submit("--", "sh", "-c", "exit 3")
    assert cluster.run("wait", job).returncode == 3
    r = cluster.run("attach", job)
    assert r.returncode == 3 and f"job {job} has already ended (FAILED); to see its output: acequia logs {job}" in r.stderr
    shown = cluster.acequia("get", job)
    assert "\nHeld " in shown and "\nHolds " not in shown
    assert "epoch" not in cluster.acequia("events", job)
    assert "there is no job 99999999" in cluster.run("why", "99999999").stderr
    assert f"there was no job {job} at that time" in cluster.run("why", job, "--at", "2020-01-01T08:00").stderr


def test_a_default_that_submit_would_refuse_is_not_set(cluster, tmp_path):
    env = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    assert '"foo" is not a duration' in cluster.run("config", "set", "time", "foo", env=env).stderr
    assert "give more than 0, or unlimited" in cluster.run("config", "set", "big.time", "0", env=env).stderr
    for key in ("time", "name", "big.nodes"):
        cluster.acequia("config", "set", key, {"time": "unlimited"}.get(key, "2"), env=env)
    cluster.acequia("config", "unset", "time", env=env)
    assert cluster.acequia("config", "get", env=env) == "name = 2\nbig.nodes = 2\n"
    r = cluster.run("config", "get", "time", env=env)
    assert r.returncode == 1 and "time is not set" in r.stderr


def test_python_scripts_find_what_lies_beside_them(cluster):
    folder = os.path.join(cluster.home, "code")
    os.mkdir(folder)
    for name, text in (("helper.py", "WORD = 'found'\n"), ("train.py", "import helper, sys\nprint(helper.WORD, *sys.argv[1:])\n"),
                       ("marked.py", "#!/usr/bin/python3\nimport helper\nprint(helper.WORD)\n"),
                       ("wrong.py", "# a comment\nraise ValueError\n")):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write(text)
    for script, args, out in (("train.py", ["a", "b"], "found a b\n"), ("marked.py", [], "found\n")):
        job = cluster.submit("-E", "PYTHONPATH=/elsewhere", os.path.join(folder, script), *args)
        assert cluster.run("logs", "-f", job).stdout == out
        assert f"PYTHONPATH={folder}:/elsewhere" in cluster.acequia("get", "--environment", job)
    job = cluster.submit("wrong.py", cwd=folder)  # a comment gave its line to the #! line
    assert "line 2" in cluster.run("logs", "-f", job).stdout
    # run does the same: with and without a folder in front, executable or not.
    os.chmod(os.path.join(folder, "marked.py"), 0o755)
    for words, out in ((["train.py", "a"], "found a\n"), (["./train.py"], "found\n"), (["marked.py"], "found\n"), (["--", "./marked.py"], "found\n")):
        done = cluster.run("run", *words, cwd=folder)
        assert (done.returncode, done.stdout) == (0, out), (words, done)
    assert cluster.run("run", "-J", "x", "nothing.py", cwd=folder).returncode == 127


def test_a_mistyped_dependency_is_said_to_be_one(cluster):
    for wrong, word in (("afterokay:12", "did you mean afterok?"), ("aftrany:1,singleton", "did you mean afterany?"),
                        ("finished:3", "expected after, afterok, afternotok, afterany, aftercorr or singleton")):
        r = cluster.run("submit", "-d", wrong, "--", "true")
        assert r.returncode and word in r.stderr and f'"{wrong}" is not a dependency' in r.stderr, r.stderr


def test_ended_jobs_are_submitted_again(cluster):
    script = os.path.join(cluster.work, "again.sh")
    with open(script, "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\necho $WORD $1\n")
    old = cluster.submit("-E", "WORD=two\nlines", "-t", "5m", script, "x")
    cluster.run("wait", old)
    os.remove(script)
    new = cluster.acequia("resubmit", "-Q", "--name", "other", "--nice", "0", old).strip()
    assert cluster.run("logs", "-f", new).stdout == "two lines x\n"
    spec = cluster.job(new)["spec"]
    assert spec["name"] == "other" and spec["time_limit_s"] == 300 and new != old
    array = cluster.submit("-a", "0-3", "--", "sh", "-c", "exit $((ACEQUIA_ARRAY_TASK_ID % 2))")
    cluster.run("wait", array)
    assert "2 elements" in cluster.acequia("resubmit", "--hold", "--failed", array)
    assert "is not an array" in cluster.run("resubmit", "--failed", new).stderr
    # Elements have numbers of their own, too, which mean them alone.
    second = str(int(array) + 1)
    assert f"{array}_1" in cluster.acequia("get", second).splitlines()[0]
    assert "is an array" not in cluster.run("logs", second).stderr
    assert "elements" not in cluster.acequia("resubmit", "--hold", second)
    one = cluster.acequia("resubmit", "-Q", f"{array}_2").strip()
    cluster.run("wait", one)
    assert cluster.acequia("list", "-r", "-f", "-H", "-o", "id,state", one).split() == [f"{one}_2", "COMPLETED"]
    r = cluster.run("slurm", "scontrol", "requeuehold", old)
    assert r.returncode == 0 and "submitted again as job" in r.stderr
    cluster.acequia("cancel", "--all")


def test_jobs_are_named_by_name(cluster):
    job = cluster.submit("-J", "train", "--", "sh", "-c", "echo one; sleep 600")
    cluster.wait_state(job, "RUNNING")
    assert cluster.job("train")["id"] == int(job)
    other = cluster.submit("-J", "train", "--hold", "--", "true")
    for verb in (["logs", "train"], ["cancel", "train"], ["why", "train"]):
        r = cluster.run(*verb)
        assert r.returncode == 1 and f'2 jobs are named "train": {job}, {other}; give the number' in r.stderr, r
    cluster.acequia("cancel", other)
    assert cluster.acequia("cancel", "train") == "1 job cancelled\n"
    cluster.run("wait", job)
    assert cluster.run("get", "train", "-P", "default").returncode == 0  # the newest that has ended
    assert cluster.job("train")["id"] == int(job)
    assert 'no pending or running job is named "train"' in cluster.run("cancel", "train").stderr
    assert 'no job is named "nobody"' in cluster.run("get", "nobody").stderr
    first = cluster.submit("-J", "first_1", "--hold", "--", "true")
    for given, meant in (("afterok:first_1", f"afterok:{first}"), ("first_1,singleton", f"{first},singleton"),
                         (f"after:first_1+10:{first}", f"after:{first}+10:{first}")):
        later = cluster.submit("-d", given, "--", "true")
        assert cluster.job(later)["spec"]["dependency"] == meant
        cluster.acequia("cancel", later)
    assert '--dependency: no job is named "frist"' in cluster.run("submit", "-d", "afterok:frist", "--", "true").stderr
    cluster.acequia("cancel", first)
    array = cluster.submit("-J", "sweep", "-a", "0-2", "--hold", "--", "true")
    assert cluster.acequia("cancel", "sweep") == "3 jobs cancelled\n" and array


def test_defaults_and_templates_of_a_user(cluster):
    home = os.path.join(cluster.home, "person")
    os.mkdir(home)
    env = {"HOME": home, "XDG_CONFIG_HOME": ""}
    for key, value in (("time", "3h"), ("comment", "from home"), ("exclusive", "true"), ("big.memory", "64M"), ("big.time", "5h")):
        cluster.acequia("config", "set", key, value, env=env)
    assert cluster.json("config", "get", env=env)["big.time"] == "5h"

    def spec(*args):
        job = cluster.submit("--hold", *args, "--", "true", env=env)
        return cluster.job(job)["spec"]

    plain = spec()
    assert plain["time_limit_s"] == 3 * 3600 and plain["comment"] == "from home" and plain["exclusive"]
    given = spec("-t", "1h", "--template", "big", "--memory-per-cpu", "16M")
    assert given["time_limit_s"] == 3600 and not given["memory_per_node_bytes"] and given["memory_per_cpu_bytes"] == 16 << 20
    big = spec("--template", "big")
    assert big["time_limit_s"] == 5 * 3600 and big["memory_per_node_bytes"] == 64 << 20
    cluster.acequia("config", "unset", "exclusive", env=env)
    assert not spec()["exclusive"]
    for args, words in ((["set", "gpsu", "1"], "submit has no option --gpsu"), (["unset", "qos"], "qos is not set"),
                        (["set", "exclusive", "7"], "use true or false")):
        r = cluster.run("config", *args, env=env)
        assert r.returncode == 1 and words in r.stderr, r
    assert 'there is no template "small"' in cluster.run("submit", "--template", "small", "--", "true", env=env).stderr
    cluster.acequia("cancel", "--all")


def test_ages_images_and_use_are_columns(cluster):
    job = cluster.submit("--", "sh", "-c", "while :; do :; done")
    cluster.wait_state(job, "RUNNING")
    wait_until(lambda: "%" in cluster.acequia("list", "-H", "-o", "cpu_use", job), 30, "its CPU use is shown")
    wait_until(lambda: cluster.acequia("list", "-H", "-o", "memory_now", job).strip() not in ("-", ""), 60, "its memory is shown")
    title = next(l for l in cluster.acequia("top", "--once").splitlines() if l.startswith("JOB"))
    assert "CPU USE" in title and "MEM USE" in title and "GPU USE" in title
    assert cluster.acequia("list", "-H", "-o", "age,image", job).strip().count(":") == 1
    assert "total" not in cluster.acequia("status")
    cluster.acequia("cancel", job)


def test_reports_of_use():
    c = Cluster("[report]\nprice_gpu_hour = 1000\nprice_cpu_hour = 10\nprice_kwh = 0\n[node *]\ngpus = v100:4:16G\ngpus_simulated = true\n")
    try:
        c.acequia("project", "create", "vision")
        jobs = [c.submit("-P", "vision", "-g", "2", "--", "sleep", "1"), c.submit("--", "sh", "-c", "sleep 1; exit 3")]
        c.run("wait", *jobs)
        report = c.json("report", "--by", "project,month")
        rows = {r["project"]: r for r in report["rows"]}
        for job, project, gpus in ((jobs[0], "vision", 2), (jobs[1], "default", 0)):
            hours = c.job(job)["elapsed_ms"] / 3.6e6
            r = rows[project]
            assert r["jobs"] == 1 and abs(r["gpu_hours"] - gpus * hours) < 1e-9 and r["cpu_hours"] >= hours - 1e-9
            assert abs(r["cost"] - (r["gpu_hours"] * 1000 + r["cpu_hours"] * 10)) < 1e-6
            assert r["month"] == time.strftime("%Y-%m")
        assert rows["default"]["failed_cpu_hours"] > 0 and rows["vision"]["failed_gpu_hours"] == 0
        assert abs(report["total"]["cpu_hours"] - sum(r["cpu_hours"] for r in report["rows"])) < 1e-9
        assert c.json("report", "--until", "now-1hour")["rows"] == []
        assert [r["project"] for r in c.json("report", "-P", "vision")["rows"]] == ["vision"]
        assert len(c.acequia("report", "--csv", "--by", "user").splitlines()) == 2
        shown = c.acequia("report")
        assert "GPU-H" in shown and "EUR" in shown and "TOTAL" in shown and max(map(len, shown.splitlines())) <= 80
        assert "use project, user, month" in c.run("report", "--by", "week").stderr
        rows = [l.split("|") for l in c.acequia("slurm", "sreport", "-nP", "-t", "seconds", "cluster", "AccountUtilizationByUser",
                                                "start=today", "end=now+1hour").splitlines()]
        assert [r[1] for r in rows] == ["root", "default", "default", "vision", "vision"]
        assert int(rows[0][4]) >= int(rows[1][4]) >= 1 and rows[1][4] == rows[2][4] and rows[1][2] == ""
        top = c.acequia("slurm", "sreport", "user", "TopUsage", "-T", "gres/gpu", "-t", "seconds", "start=today", "end=now+1hour")
        assert "Top 10 Users" in top and "gres/gpu" in top
        assert "Not valid report" in c.run("slurm", "sreport", "cluster", "nothing").stderr
    finally:
        c.close()


def test_every_attempt_is_in_the_report():
    """A job that was queued again, and then cancelled while it waited, has used what its first attempt used."""
    c = Cluster("[node *]\ngpus = v100:4:16G\ngpus_simulated = true\n")
    try:
        job = c.submit("-g", "2", "--", "sleep", "600")
        c.wait_state(job, "RUNNING")
        wait_until(lambda: c.job(job)["elapsed_ms"] > 1000, 20, "it does not run")
        c.acequia("requeue", "--hold", job)
        c.wait_state(job, "PENDING")

        def gpu_seconds():
            total = c.json("report")["total"]
            return total["jobs"], total["gpu_hours"] * 3600

        jobs, first = gpu_seconds()
        assert jobs == 1 and first > 2, (jobs, first)
        kill_controller(c)  # it is part of the state
        c.acequia("up")
        assert gpu_seconds() == (1, first)
        c.acequia("cancel", job)
        c.wait_state(job, "CANCELLED")
        assert gpu_seconds() == (1, first)
        again = c.submit("-g", "1", "--", "sleep", "600")
        c.wait_state(again, "RUNNING")
        c.acequia("requeue", again)
        wait_until(lambda: c.job(again)["attempt"] == 2 and c.state(again) == "RUNNING", 30, "no second attempt")
        wait_until(lambda: c.job(again)["elapsed_ms"] > 1000, 20, "it does not run")
        c.acequia("cancel", again)
        c.wait_state(again, "CANCELLED")
        own = c.job(again)
        used = own["usage"]["earlier_gpu_held_ms"] + own["elapsed_ms"]
        jobs, both = gpu_seconds()
        assert jobs == 2 and own["usage"]["earlier_attempts"] == 1 and abs(both - first - used / 1000) < 0.01, (first, both, own)
    finally:
        c.close()


def test_narrow_terminals_and_names_of_options():
    """At 60 columns no heading is cut and no line wraps; a message names the option that was typed."""
    c = Cluster(config="[node *]\ngpus = v100:4:32G\ngpus_simulated = true\n")
    try:
        c.run("run", "-J", "a-job-with-a-name", "--", "true")
        job = c.submit("-g", "2", "-t", "1h", "--", "sh", "-c", "sleep 600")
        c.wait_state(job, "RUNNING")
        wait_until(lambda: "v100" in c.acequia("nodes", c.json("nodes")["nodes"][0]["name"]), 20, "no GPUs")
        node = c.json("nodes")["nodes"][0]["name"]
        for verb in (("efficiency", job), ("nodes", node), ("nodes",), ("get", job), ("shares",), ("list",), ("list", "-f")):
            lines = c.acequia(*verb, env={"COLUMNS": "60"}).splitlines()
            heads = [l for l in lines if l.isupper()]
            assert max(map(len, lines)) <= 60 and not any("+" in h for h in heads), (verb, lines)
        for options, words in ((("-g", "a100:1"), '--gpus: no node has a GPU of model "a100"'),
                               (("-p", "main", "-t", "2h"), "--time: 2 h exceeds partition main's limit of 1 h"),
                               (("-J", "a\u200bb"), "holds control or invisible characters")):
            if "-t" in options:
                c.acequia("partition", "edit", "main", "--max-time", "1h")
            r = c.run("submit", *options, "--", "true")
            assert r.returncode != 0 and words in r.stderr, r
        assert "(default)" in c.acequia("get", job)
        assert "(default)" not in c.acequia("get", c.submit("-m", "1G", "--hold", "--", "true"))
        for command, words in ((("cancel", "--state", "FOO"), '--state: there is no state "FOO"; expected PENDING'),
                               (("list", "--state", "FOO"), '--state: there is no state "FOO"'),
                               (("audit", "--limit", "0"), "--limit: 0 is out of range; expected 1 to 10000"),
                               (("audit", "--since", "foo"), '--since: "foo" is not a time'),
                               (("when", "-g", "1", "--", "true"), "without script or command"),
                               (("update", job), f"update needs what to change, as in: acequia update {job} --time 8h"),
                               (("when", job), f"for job {job}: acequia why {job}"),
                               (("config", "show", "nosuchfile"), "cannot read nosuchfile"),
                               (("project", "create", "x", "--quota", "many"), '"many" is not a number of GPUs'),
                               (("partition", "delete", "main"), "is the only one"),
                               (("submit", "-g", "-1", "--", "true"), "write for example 2, 0.5, a100:2")):
            r = c.run(*command)
            assert r.returncode != 0 and words in r.stderr, r
        c.acequia("partition", "create", "other")
        assert "is where jobs that name none go" in c.run("partition", "delete", "main").stderr
        assert c.run("resume", node).stderr == f"acequia: {node} was not drained\n"
        c.acequia("partition", "edit", "main", "--closed", "true")
        assert "accepts no new jobs" in c.run("submit", "--", "true").stderr
    finally:
        c.close()
