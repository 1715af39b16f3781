"""What somebody types in the first hour, wrong or right: nothing is ignored without a word, and each message names the
problem and what to do. One cluster; each row is a command, its exit status and a part of what it says."""
import json
import os

import pytest

from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until

CONFIG = """[node *]
cpus = 8
memory = 16G
gpus = v100:8:32G
gpus_simulated = true
[project vision]
quota = 4
"""


@pytest.fixture(scope="module")
def cluster():
    with Cluster(config=CONFIG) as c:
        c.env["HOME"] = c.home
        yield c


def submit(c, *options, command=("sleep", "600")):
    return c.cli("submit", "-Q", "-m", "10M", "-o", "/dev/null", *options, "--", *command).stdout.strip()


def job(c, name):
    return c.api.get(f"/v1/jobs/{name}")


def refused(c, *command, status, said):
    r = c.cli(*command, check=False)
    assert r.returncode == status and said in r.stderr, (command, r.returncode, r.stdout, r.stderr)


def test_jobs_and_filters_are_not_mixed(cluster):
    held = submit(cluster, "-H", "-J", "kept")
    for verb in ("cancel", "hold", "release", "suspend", "continue", "requeue"):
        refused(cluster, verb, "--name", "other", held, status=2, said="give either jobs or --name, not both")
        refused(cluster, verb, "--all", held, status=2, said="give either jobs or --all, not both")
    refused(cluster, "cancel", "--batch", held, status=2, said="--batch needs --signal")
    assert job(cluster, held)["state"] == "PENDING"
    # --project says which job of a name is meant.
    assert cluster.cli("cancel", "kept", "-P", "default").stdout == "1 job cancelled\n"


def test_an_update_changes_what_it_says(cluster):
    held = submit(cluster, "-H", "-J", "changed")
    array = submit(cluster, "-H", "-a", "0-3")
    for option, value, field, expected in (("--retries", "3", "retries", 3), ("--retries", "0", "retries", 0),
                                           ("--backoff", "9s", "backoff_s", 9), ("--backoff", "0", "backoff_s", 0),
                                           ("--network", "own", "network", "own"), ("--network", "auto", "network", "auto"),
                                           ("--signal", "USR1@60", "signal", 10), ("--signal", "none", "signal", 0),
                                           ("--grace", "9s", "grace_s", 9), ("--grace", "none", "grace_s", 0)):
        assert cluster.cli("update", held, option, value).stdout == "1 job changed\n"
        assert job(cluster, held)["spec"][field] == expected, (option, value)
    cluster.cli("update", held, "--deadline", "now+2hours")
    assert job(cluster, held)["spec"]["deadline_ms"] > 0
    cluster.cli("update", held, "--deadline", "none")
    assert not job(cluster, held)["spec"]["deadline_ms"]
    assert cluster.cli("update", array, "--array", "0-3%2").stdout == "4 jobs changed\n"
    assert job(cluster, array)["spec"]["array_limit"] == 2
    refused(cluster, "update", held, "--array", "0-3", status=1, said="the job is no array and cannot become one")
    refused(cluster, "update", f"{array}_0", "--array", "0-4", status=1, said="its indices stay as submitted")
    refused(cluster, "update", held, "-E", "A=1", status=2, said="keeps the environment that it was submitted with")
    refused(cluster, "update", held, "--hold", status=2, said=f"use acequia hold {held}")
    refused(cluster, "update", held, "--min-run", "unlimited", status=2, said="give a duration such as 30s or 10m, or none")
    cluster.cli("cancel", held, array)


def test_a_job_submitted_again_with_another_environment(cluster, tmp_path):
    first = cluster.cli("submit", "-Q", "-m", "10M", "-o", f"{tmp_path}/one", "-E", "A=1", "-E", "B=2", "--", "sh", "-c", "echo $A $B").stdout.strip()
    cluster.cli("wait", first)
    again = cluster.cli("resubmit", "-Q", "-o", f"{tmp_path}/two", "-E", "A=7", first).stdout.split()[0]
    cluster.cli("wait", again)
    assert (tmp_path / "one").read_text() == "1 2\n" and (tmp_path / "two").read_text() == "7 2\n"


def test_accounts(cluster):
    refused(cluster, "user", "set", "ana", "--role", "user", status=1, said="there is no account ana; to make it: acequia user add ana")
    cluster.cli("user", "add", "ana")
    refused(cluster, "user", "add", "ana", status=1, said="exists already; to change it: acequia user set ana")
    refused(cluster, "user", "set", "ana", status=2, said="set needs what to change")
    refused(cluster, "user", "fly", status=2, said='unknown action "fly"; use list, add')
    assert cluster.cli("user", "set", "ana", "--role", "operator").stdout == "Account ana changed\n"


def test_ports_are_checked_before_anybody_connects(cluster):
    plain, served, ended = submit(cluster), submit(cluster, "--port", "6006"), submit(cluster, command=("true",))
    cluster.cli("wait", ended)
    refused(cluster, "port-forward", "99999", "80", status=1, said="there is no job 99999")
    refused(cluster, "port-forward", ended, "80", status=1, said="has already ended (COMPLETED)")
    refused(cluster, "port-forward", plain, "80", status=1, said=f"job {plain} has no port 80; ports are given at its submit")
    refused(cluster, "port-forward", served, "6006", "80", status=1, said=f"job {served} has no port 80")
    cluster.cli("cancel", plain, served)


def test_lists_say_what_is_not_there(cluster):
    held = submit(cluster, "-H")
    refused(cluster, "list", "99999", status=1, said="there is no job 99999")
    r = cluster.cli("list", "-H", "-o", "id", held, "99999", "99999_1", check=False)
    assert r.returncode == 1 and r.stdout == f"{held}\n" and r.stderr.count("there is no job") == 2
    assert cluster.cli("list", "-s", "RUNNING", "-H", held).stdout == ""   # there, and left out
    refused(cluster, "list", "--since", "08:00", status=2, said="give --finished too")
    refused(cluster, "logs", "-x", held, status=2, said="--exit-status needs --follow")
    refused(cluster, "events", "--after", "3", held, status=2, said="--after needs --follow")
    cluster.cli("cancel", held)


def test_run_shows_its_output(cluster):
    for option in ("--output=x", "--error=x", "--append"):
        refused(cluster, "run", option, "--", "true", status=2, said="cannot be used with run, which shows the output here")
    refused(cluster, "run", "--component", "a: -c 1", "--", "true", status=2, said="--component cannot be used with run")


def test_workers_are_found_by_name_and_end_with_their_job(cluster):
    cluster.cli("submit", "-m", "10M", "-c", "4", "-o", "/dev/null", "-J", "pool", "--workers", "1-4", "--", "sleep", "600")
    wait_until(lambda: cluster.cli("workers", "pool").stdout.count("running") == 2, 60, "two workers do not run")
    assert "COMPONENT" not in cluster.cli("workers", "pool").stdout
    number = cluster.cli("list", "-H", "-o", "id", "-J", "pool").stdout.strip()
    cluster.cli("cancel", "pool")
    wait_until(lambda: job(cluster, number)["state"] == "CANCELLED", 60, "the job does not end")
    shown = cluster.cli("workers", "pool").stdout
    assert shown.count("CANCELLED") == 4 and "waiting" not in shown
    assert "4 in all, at least 1 started together" in cluster.cli("get", "pool").stdout


def test_drafts_and_templates(cluster):
    cluster.cli("draft", "save", "night", "-a", "0-3", "-m", "10M", "-o", "/dev/null", "--", "true")
    refused(cluster, "draft", "submit", "night", "-g", "8", status=2, said="--gpus has no effect on draft submit; give it to save")
    refused(cluster, "draft", "show", "nope", status=1, said="see 'acequia draft list'")
    assert cluster.cli("draft", "submit", "night").stdout.endswith(", 4 elements\n")
    # The script alone is on standard output, the options are told beside it.
    cluster.cli("draft", "save", "whole", "-g", "v100:2", "-t", "8h", "-J", "it's", "--tag", "a=b", "--", "true")
    shown = cluster.cli("draft", "show", "whole")
    assert shown.stdout == "true\n"
    for option in ("--gpus v100:2", "--time 8h", "--name 'it'\\''s'", "--tag a=b"):
        assert option in shown.stderr
    # Whoever may save a project's template finds it where the message says.
    said = cluster.cli("template", "save", "eval", "--share", "vision", "-m", "10M", "-o", "/dev/null", "--", "true").stdout
    assert "acequia submit --template eval" in said
    assert "eval" in [t["name"] for t in json.loads(cluster.cli("template", "list", "--json").stdout)["templates"]]
    cluster.cli("wait", cluster.cli("submit", "-Q", "--template", "eval").stdout.strip())


@pytest.mark.skipif(os.geteuid() != 0, reason="its home is another user's")
def test_files_of_a_job_that_is_named(cluster, tmp_path):
    os.chmod(tmp_path, 0o755)
    (tmp_path / "loss.csv").write_text("1\n")
    submit(cluster, "-J", "named", "-D", str(tmp_path))
    assert "loss.csv" in cluster.cli("files", "ls", "--job", "named").stdout
    cluster.cli("files", "mkdir", "-p", f"{tmp_path}/a/b")
    cluster.cli("files", "mkdir", "-p", f"{tmp_path}/a/b")
    refused(cluster, "files", "mkdir", f"{tmp_path}/a/b", status=1, said="File exists")
    cluster.cli("cancel", "named")


def test_get_shows_every_option(cluster):
    held = submit(cluster, "-H", "--nice", "5", "--retries", "3", "--signal", "B:USR1@60", "--checkpoint", "sh -c x", "--network", "own", "--spread")
    line = next(text for text in cluster.cli("get", held).stdout.splitlines() if text.startswith("Options "))
    assert line.split(None, 1)[1] == "--spread --nice 5 --retries 3 --signal B:USR1@60 --checkpoint 'sh -c x' --network own"
    cluster.cli("cancel", held)
    plain = submit(cluster, "-H")
    assert "Options" not in cluster.cli("get", plain).stdout
    cluster.cli("cancel", plain)


@pytest.mark.parametrize("options", [("-n", "2", "-m", "10M"), ("--workers", "2", "-m", "10M"),
                                     ("--component", "head: -c 1 -m 10M", "--component", "train: -c 1 -m 10M")])
def test_why_names_who_holds_the_rest(cluster, options):
    """One CPU is free and two are needed together."""
    holder = submit(cluster, "-c", "7", "-J", "holder")
    wait_until(lambda: job(cluster, holder)["state"] == "RUNNING", 60, "the job does not run")
    waits = cluster.cli("submit", "-Q", "-o", "/dev/null", *options, "--", "true").stdout.strip()
    said = cluster.cli("why", waits).stdout
    assert "1 that could run a part of it now" in said and f"held by 1 job:\n  {holder} holder" in said, said
    assert "--component" in options or f"It would start now with 1 {'task' if '-n' in options else 'worker'}." in said, said
    cluster.cli("cancel", waits, holder)


def test_words_that_no_job_has(cluster):
    running = submit(cluster)
    wait_until(lambda: job(cluster, running)["state"] == "RUNNING", 60, "the job does not run")
    for state in ("state=running", "state=r", "state=R|pd", "state=RUN*"):
        assert running in cluster.cli("list", "-H", "-o", "id", "--where", state).stdout.split(), state
    refused(cluster, "list", "--where", "state=flying", status=1, said='--where: there is no state "FLYING"')
    refused(cluster, "list", "--where", "class=fly", status=1, said='--where: class is never "fly"')
    refused(cluster, "logs", "--attempt", "3", running, status=1, said=f"job {running} has run once")
    cluster.cli("cancel", running)


def test_rules_of_alerts_change_piece_by_piece(cluster):
    def rule(name):
        return next(r for r in json.loads(cluster.cli("alert", "--json").stdout)["rules"] if r["name"] == name)
    before = rule("gpu-too-hot")
    cluster.cli("alert", "set", "gpu-too-hot", "--off")
    assert rule("gpu-too-hot")["disabled"] and rule("gpu-too-hot")["value"] == before["value"]
    cluster.cli("alert", "set", "gpu-too-hot", "--on", "--above", "90")
    after = rule("gpu-too-hot")
    assert not after["disabled"] and after["value"] == 90 and all(after[k] == before[k] for k in ("metric", "when", "for_s"))
    cluster.cli("alert", "delete", "gpu-too-hot")
    assert rule("gpu-too-hot") == before
    refused(cluster, "alert", "delete", "gpu-too-hot", status=1, said="a built-in one cannot be deleted, but switched off")
    refused(cluster, "alert", "set", "new", "--above", "3", status=2, said="set needs --metric, and either --above or --below")
    refused(cluster, "alert", "set", "new", "--metric", "node/*/up", "--below", "1", "--for", "unlimited", status=2, said="give at most 7d")


def test_lists_need_no_word_and_changes_need_one(cluster):
    for verb in ("draft", "template", "secret", "token", "user", "session", "alert", "project", "qos"):
        assert cluster.cli(verb).stdout == cluster.cli(verb, "list").stdout
    refused(cluster, "project", "edit", "vision", status=2, said="project edit needs what to change")
    refused(cluster, "token", "create", "--user", "root", "--node", "n1", status=2, said="give one of them")
    refused(cluster, "token", "create", "--user", "nobody-of-that-name", status=1, said="there is no user nobody-of-that-name")
    assert cluster.cli("session", "revoke", "others").stdout == "All your other logins have ended\n"
    assert f"export PATH={os.path.realpath(cluster.home)}/slurm:$PATH" in cluster.cli("slurm-commands", "slurm", cwd=cluster.home).stdout
