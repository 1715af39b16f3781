"""acequia backup, restore and check on a running cluster, and the backups that the controller makes by itself."""
import json
import os
import shutil
import time

import pytest

from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until

SPEC = {"workdir": "/tmp", "output": "/dev/null"}


def submit(c, seconds, name):
    return c.api.post("/v1/jobs", {"spec": {**SPEC, "name": name, "argv": ["sleep", str(seconds)]}})["id"]


def state(c, job):
    return c.api.get(f"/v1/jobs/{job}")["state"]


@pytest.fixture
def cluster():
    folder = "/tmp/acequia-backups-" + os.urandom(6).hex()
    with Cluster(config=f"[backup]\nfolder = {folder}\nevery = 0\nkeep = 2\n[cluster]\ngrace = 1s\n"
                        "[node *]\ncpus = 8\nmemory = 4G\n") as c:
        c.backups = folder
        yield c
    shutil.rmtree(folder, ignore_errors=True)


def stop(c):
    c.api.close()
    c.kill("controller", 15)


def start(c):
    c.start_controller()
    c.wait_ready()
    wait_until(c.nodes_up, 120, "the node does not come back")


def test_a_backup_and_a_restore(cluster, tmp_path):
    c, file = cluster, f"{tmp_path}/copy"
    c.cli("wait", str(submit(c, 0, "over")))
    known = submit(c, 600, "known")
    wait_until(lambda: state(c, known) == "RUNNING", 120, "does not run")
    out = c.cli("backup", file).stdout
    assert "is complete and readable" in out and "1 live, 1 finished" in out
    assert os.stat(file).st_mode & 0o777 == 0o600
    later = submit(c, 600, "later")
    wait_until(lambda: state(c, later) == "RUNNING", 120, "does not run")

    again = c.cli("backup", file, check=False)
    assert again.returncode != 0 and "exists already" in again.stderr
    busy = c.cli("restore", file, check=False)
    assert busy.returncode != 0 and "stop that one first" in busy.stderr

    stop(c)
    said = c.cli("restore", file).stdout
    assert "It is in place" in said and "is kept as" in said
    start(c)
    assert state(c, known) == "RUNNING"
    jobs = wait_until(lambda: [j for j in c.api.get("/v1/jobs?limit=100")["jobs"] if j["name"] == "later"], 120,
                      "the job that the backup does not know is not adopted")
    assert jobs[0]["state"] == "RUNNING" and "older copy" in jobs[0]["reason"]
    kept = [f for f in os.listdir(f"{c.home}/state") if f.startswith("acequia.db.before-")]
    there = json.loads(c.cli("check", f"{c.home}/state/{kept[0]}", "--json").stdout)
    assert there["live_jobs"] == 2 and there["newest_record"] > there["first_record"]
    assert "complete and readable" in c.cli("check").stdout


def test_what_is_no_backup_is_refused(cluster, tmp_path):
    c, file = cluster, f"{tmp_path}/copy"
    c.cli("wait", str(submit(c, 0, "over")))
    c.cli("backup", "-q", file)
    with open(file, "r+b") as f:  # a page in the middle
        f.seek(os.stat(file).st_size // 2)
        f.write(os.urandom(4096))
    text = f"{tmp_path}/text"
    with open(text, "w", encoding="utf-8") as f:
        f.write("nothing of the kind\n" * 100)
    stop(c)
    for wrong in (file, text, f"{tmp_path}/missing"):
        for verb in ("check", "restore"):
            p = c.cli(verb, wrong, check=False)
            assert p.returncode == 1 and wrong in p.stderr or "damaged" in p.stderr, (verb, wrong, p.stderr)
    assert not [f for f in os.listdir(f"{c.home}/state") if "before" in f or "restored" in f]
    start(c)
    c.cli("wait", str(submit(c, 0, "next")))


def test_the_key_of_secrets(cluster, tmp_path):
    """It is in a backup only when asked for, and comes back only with its passphrase."""
    c, plain, full, phrase = cluster, f"{tmp_path}/plain", f"{tmp_path}/full", f"{tmp_path}/phrase"
    c.cli("secret", "set", "TOKEN", input="hunter2-hunter2\n")
    with open(phrase, "w", encoding="utf-8") as f:
        f.write("correct horse battery\n")
    c.cli("backup", "-q", plain)
    short = c.cli("backup", "--secret-key", full, input="short\n", check=False)
    assert short.returncode != 0 and "at least 8" in short.stderr and not os.path.exists(full)
    c.cli("backup", "-q", "--secret-key", "--passphrase-file", phrase, full)
    with open(f"{c.home}/keys/secret.key", "rb") as f:
        key = f.read()
    for file in (plain, full):
        with open(file, "rb") as f:
            data = f.read()
        assert key not in data and b"hunter2" not in data
    stop(c)
    os.unlink(f"{c.home}/keys/secret.key")
    assert "cannot be decrypted until" in c.cli("restore", plain).stdout
    none = c.cli("restore", "--secret-key", "--passphrase-file", phrase, plain, check=False)
    assert none.returncode != 0 and "does not hold the key" in none.stderr
    before = sorted(os.listdir(f"{c.home}/state"))
    wrong = c.cli("restore", "--secret-key", full, input="another phrase\n", check=False)
    assert wrong.returncode != 0 and "passphrase is not the one" in wrong.stderr
    assert sorted(os.listdir(f"{c.home}/state")) == before
    c.cli("restore", "--secret-key", "--passphrase-file", phrase, full)
    with open(f"{c.home}/keys/secret.key", "rb") as f:
        assert f.read() == key
    start(c)
    out = c.cli("run", "--secret", "TOKEN", "--", "sh", "-c", "echo $TOKEN", check=False)
    assert "hunter2-hunter2" in out.stdout, out


def test_the_controller_makes_backups(cluster):
    c = cluster
    assert "one is being made" not in c.cli("backup", "--list").stdout
    for _ in range(3):
        c.cli("backup", "--now")
        wait_until(lambda: not c.api.get("/v1/backups")["running"], 120, "is not made")
        newest = c.api.get("/v1/backups")["backups"][0]["file"]
        wait_until(lambda n=newest: n < time.strftime("acequia-%Y%m%d-%H%M%S", time.gmtime()), 120, "the clock stands")
    got = c.api.get("/v1/backups")
    assert got["problem"] is None and len(got["backups"]) == 2, got
    for b in got["backups"]:
        c.cli("check", f"{c.backups}/{b['file']}")
    assert got["backups"][0]["file"] in c.cli("backup", "--list").stdout
    # A folder that cannot be written is told, here and in the status.
    shutil.rmtree(c.backups)
    with open(c.backups, "w", encoding="utf-8") as f:
        f.write("in the way")
    c.cli("backup", "--now")
    wait_until(lambda: any("backups into" in w for w in c.api.get("/v1/status")["warnings"]), 120, "not told")
    os.unlink(c.backups)
    c.cli("backup", "--now")
    wait_until(lambda: not any("backups into" in w for w in c.api.get("/v1/status")["warnings"]), 120, "still told")
