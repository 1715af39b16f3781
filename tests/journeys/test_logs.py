"""What `acequia logs` shows of jobs that ran more than once."""
import glob
import json
import os
import re
import subprocess

import pytest

from tests.lab.cluster import Cluster, find_binary
from tests.lab.proc import wait_until
from tests.lab.ws import Socket


@pytest.fixture(scope="module")
def cluster():
    with Cluster(config="[cluster]\ngrace = 1s\n") as c:
        yield c


def text_of(path):
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8") as f:
        return f.read()


def requeue(c, job):
    c.cli("requeue", "--hold", job)
    wait_until(lambda: c.api.get(f"/v1/jobs/{job}")["state"] == "PENDING", 20, "the job is not queued again")


def logs(c, *arguments):
    """What the job itself wrote, and how many lines tell where an attempt was ended or begun."""
    text = c.cli("logs", *arguments).stdout
    told = [line for line in text.splitlines() if line.startswith("acequia: job ") and (" was ended, " in line or " begins" in line)]
    return "".join(line + "\n" for line in text.splitlines() if line not in told), len(told)


def refused(c, *arguments):
    done = c.cli("logs", *arguments, check=False)
    assert done.returncode
    return done.stderr


def pieces(c, job, **query):
    """What the log's WebSocket sends with times: (time, text) each."""
    text = "".join(f"&{k}={v}" for k, v in query.items())
    ws = Socket(f"{c.home}/run/api.sock", f"/v1/jobs/{job}/logs?follow=1&times=1{text}")
    at, got = 0, []
    try:
        while True:
            kind, data = ws.receive()
            if kind == 2:
                got.append((at, data[17:].decode()))
            elif kind == 8:
                return got
            elif kind == 1:
                at = json.loads(data).get("time_ms", at)
    finally:
        ws.close()


def ended(c, job):
    wait_until(lambda: c.api.get(f"/v1/jobs/{job}")["state"] == "COMPLETED", 60, "the job does not end")
    return c.api.get(f"/v1/jobs/{job}")


def test_lines_keep_the_time_of_their_write(cluster, tmp_path):
    """Nobody looks while the job runs; one job writes into its own file, the other is attached to its client."""
    text = "echo one; sleep 2; echo two; echo three; sleep 2; echo four"
    (tmp_path / "out").write_text("from before\n", encoding="ascii")
    job = cluster.cli("submit", "-Q", "--append", "-o", f"{tmp_path}/out", "--", "sh", "-c", text).stdout.strip()
    cluster.cli("run", "-J", "attached", "--", "sh", "-c", text)
    attached = cluster.api.get("/v1/jobs?finished=1&name=attached")["jobs"][0]["label"]
    short = cluster.cli("submit", "-Q", "-o", f"{tmp_path}/short", "--", "echo", "quick").stdout.strip()
    for one in (job, attached):
        j = ended(cluster, one)
        wait_until(lambda one=one: glob.glob(f"{cluster.home}/**/output/times/{one}.1.out", recursive=True), 20, "the times are not kept")
        got = pieces(cluster, one)
        lines = [(at, line) for at, piece in got for line in piece.splitlines()]
        if one == job:
            assert lines.pop(0) == (0, "from before")
        assert [line for _, line in lines] == ["one", "two", "three", "four"], got
        times = [at for at, _ in lines]
        assert j["start_ms"] - 1000 <= times[0] <= times[1] - 1500 and times[1] == times[2] <= times[3] - 1500 <= j["end_ms"], (j, lines)
        assert pieces(cluster, one, tail=1)[-1] == (times[3], "four\n")
    ended(cluster, short)
    assert pieces(cluster, short) == [(0, "quick\n")]  # over before anybody looked


def test_a_job_that_waits_to_run_again(cluster, tmp_path):
    out = f"{tmp_path}/out"
    job = cluster.cli("submit", "-Q", "--truncate", "-o", out, "--", "sh", "-c", "echo attempt $ACEQUIA_ATTEMPT; sleep 60").stdout.strip()
    never = cluster.cli("submit", "-Q", "-H", "-o", "/dev/null", "--", "true").stdout.strip()
    wait_until(lambda: text_of(out), 10, "the job writes nothing")
    requeue(cluster, job)
    done = cluster.cli("logs", job)
    assert done.stdout.startswith("attempt 1\nacequia: job ")
    assert done.stderr == f"acequia: job {job} is queued again; this is the output of attempt 1\n"
    assert logs(cluster, "-f", job) == ("attempt 1\n", 1)
    assert logs(cluster, "--attempt", "1", job) == ("attempt 1\n", 1)
    assert "has run once" in refused(cluster, "--attempt", "2", job)
    assert "has not run yet" in refused(cluster, never)
    assert "has not run yet" in refused(cluster, "--attempt", "1", never)
    cluster.cli("release", job)
    wait_until(lambda: "attempt 2" in text_of(out), 20, "the job does not run again")
    done = cluster.cli("logs", job)
    assert (done.stdout, done.stderr) == ("attempt 2\n", "")
    assert "was replaced by that of attempt 2" in refused(cluster, "--attempt", "1", job)
    cluster.cli("cancel", job, never)


def test_a_later_attempt_appends_to_the_output(cluster, tmp_path):
    out = f"{tmp_path}/out"
    with open(out, "w", encoding="utf-8") as f:
        f.write("of another job\n")  # the first attempt replaces it
    job = cluster.cli("submit", "-Q", "-o", out, "--", "sh", "-c", "echo attempt $ACEQUIA_ATTEMPT; sleep 60").stdout.strip()
    wait_until(lambda: "attempt 1" in text_of(out), 10, "the job writes nothing")
    requeue(cluster, job)
    cluster.cli("release", job)
    wait_until(lambda: "attempt 2" in text_of(out), 20, "the job does not run again")
    assert logs(cluster, job) == ("attempt 1\nattempt 2\n", 2)
    assert f"acequia: job {job}: attempt 2 begins\nattempt 2\n" in text_of(out)
    assert "write to one file" in refused(cluster, "--attempt", "1", job)
    cluster.cli("cancel", job)


def test_output_kept_for_somebody_attached(cluster):
    """`acequia run` has no file: the node keeps what each attempt has written."""
    spec = {"name": "t", "workdir": "/tmp", "attach": True, "requeue": True, "argv": ["sh", "-c", "echo attempt $ACEQUIA_ATTEMPT; sleep 60"]}
    job = str(cluster.api.post("/v1/jobs", {"spec": spec})["id"])
    wait_until(lambda: cluster.cli("logs", job, check=False).stdout == "attempt 1\n", 10, "the job writes nothing")
    requeue(cluster, job)
    cluster.cli("release", job)
    wait_until(lambda: cluster.cli("logs", job, check=False).stdout == "attempt 2\n", 20, "the job does not run again")
    assert logs(cluster, "--attempt", "1", job) == ("attempt 1\n", 0)
    cluster.cli("cancel", job)


def test_output_that_is_a_link_into_proc_is_not_read(cluster, tmp_path):
    """The reader is a copy of the agent: /proc/self would show it instead of the job's output."""
    out = f"{tmp_path}/link"
    job = cluster.cli("submit", "-Q", "--wait", "-o", out, "--", "sh", "-c", f"echo mine; ln -sf /proc/self/status {out}").stdout.split()[0]
    done = cluster.cli("logs", job, check=False)
    assert "Uid:" not in done.stdout and done.returncode, done


def test_what_a_command_says_does_not_command_the_terminal(cluster):
    job = cluster.cli("submit", "-Q", "-o", "/dev/null", "--", "true", "\x1b[2J\u202e").stdout.strip()
    shown = cluster.cli("get", job).stdout + cluster.cli("list", "-a", job, check=False).stdout
    assert "\x1b" not in shown and "\u202e" not in shown
    assert "[2J\\u202e" in shown


def test_a_program_that_fails_is_run_again(cluster, tmp_path):
    out = f"{tmp_path}/out"
    script = f"echo try >>{tmp_path}/tries; test $(wc -l <{tmp_path}/tries) -ge 3"
    done = cluster.cli("submit", "-Q", "--wait", "--retries", "5", "--backoff", "1s", "-o", out, "--", "sh", "-c", script)
    job = done.stdout.split()[0]
    assert text_of(f"{tmp_path}/tries").count("try") == 3
    events = cluster.cli("events", job).stdout
    assert events.count("job_requeued") == 2 and "retry 1 of 5" in events and "retry 2 of 5" in events
    assert cluster.api.get(f"/v1/jobs/{job}")["state"] == "COMPLETED"


def test_times_of_lines(cluster):
    """--times: of a job that runs what is there now, of one that has ended all; each line with the time of its writing."""
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}  "
    job = cluster.cli("submit", "-Q", "-o", f"{cluster.home}/times-%j", "--", "sh", "-c",
                      "echo one; sleep 2; printf 'two\\nth'; sleep 2; echo ree; sleep 600").stdout.strip()
    wait_until(lambda: "three" in cluster.cli("logs", job, check=False).stdout, 60, "it does not print")
    lines = cluster.cli("logs", "--times", job).stdout.splitlines()
    assert [re.sub(f"^{stamp}", "", x) for x in lines] == ["one", "two", "three"], lines
    assert all(re.match(stamp, x) for x in lines) and lines[0][:19] < lines[1][:19], lines
    assert re.fullmatch(f"{stamp}three\n", cluster.cli("logs", "-T", "-n", "1", job).stdout)
    cluster.cli("cancel", job)
    done = cluster.cli("logs", "-f", "--times", job)
    assert [x[:23] for x in done.stdout.splitlines()[:3]] == [x[:23] for x in lines] and "CANCELLED" in done.stderr, done
    # One that has not begun says so, and does not wait.
    waits = cluster.cli("submit", "-Q", "--hold", "--", "true").stdout.strip()
    refused = cluster.cli("logs", "--times", waits, check=False)
    assert refused.returncode == 1 and "has not run yet" in refused.stderr, refused
    cluster.cli("cancel", waits)


def test_a_log_that_is_followed_over_a_requeue(cluster, tmp_path):
    """It goes on with what the next attempt writes, in a file that all attempts append to and for an attached job."""
    for kind, options in (("file", ["-o", f"{tmp_path}/out"]), ("kept", ["--attach"])):
        go = f"{tmp_path}/{kind}"
        text = f"echo one $ACEQUIA_ATTEMPT; while [ ! -e {go}$ACEQUIA_ATTEMPT ]; do sleep 0.1; done; echo two $ACEQUIA_ATTEMPT"
        if kind == "kept":
            body = {"name": "t", "workdir": str(tmp_path), "argv": ["sh", "-c", text], "attach": True, "requeue": True}
            job = str(cluster.api.post("/v1/jobs", {"spec": body})["id"])
        else:
            job = cluster.cli("submit", "-Q", "--requeue", *options, "--", "sh", "-c", text).stdout.strip()
        with open(f"{tmp_path}/seen-{kind}", "w+", encoding="utf-8") as seen:
            follower = subprocess.Popen([find_binary(), "logs", "-f", job], env=cluster.env, stdout=seen,
                                        stderr=subprocess.DEVNULL)
            wait_until(lambda: "one 1" in text_of(seen.name), 30, "the first attempt is not shown")
            cluster.cli("requeue", job)
            wait_until(lambda: "one 2" in text_of(seen.name), 60, "the second attempt is not shown")
            open(f"{go}2", "w", encoding="utf-8").close()
            assert follower.wait(60) == 0
            lines = [x for x in text_of(seen.name).splitlines() if x[:3] in ("one", "two")]
        assert lines == ["one 1", "one 2", "two 2"], kind
