"""Secrets: stored encrypted, given to jobs as variables and files, shown nowhere else, refused where they must be."""
import glob
import hashlib
import os
import pwd
import shutil
import signal
import sqlite3
import subprocess

import pytest

from tests.lab.api import ApiError
from tests.lab.cluster import Cluster
from tests.lab.images import make_rootfs
from tests.lab.proc import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="jobs of other users need root")
NOBODY = pwd.getpwnam("nobody")
AS_NOBODY = ["setpriv", "--reuid", "nobody", "--regid", str(NOBODY.pw_gid), "--clear-groups"]
VALUE = "correct-horse-battery-staple-8472"
ALL = ["-o", "/dev/null"]


@pytest.fixture(name="cluster")
def _cluster():
    with Cluster(config="[node *]\ncpus = 8\n") as c:
        yield c


def store(cluster, name, value, *options, user=()):
    done = subprocess.run([*user, cluster.binary, "secret", "set", name, *options], env=cluster.env, input=value.encode() if isinstance(value, str) else value,
                          capture_output=True, check=False)
    return done.returncode, done.stdout.decode() + done.stderr.decode()


def run(cluster, *arguments, user=(), **how):
    done = subprocess.run([*user, cluster.binary, *arguments], env=cluster.env, capture_output=True, text=True, check=False, timeout=120, cwd="/tmp",
                          stdin=subprocess.DEVNULL, **how)
    return done.returncode, done.stdout, done.stderr


def ended(cluster, job):
    def over():
        state = cluster.api.get(f"/v1/jobs/{job}")
        return state if state["state"] not in ("PENDING", "STARTING", "RUNNING", "COMPLETING") else None
    return wait_until(over, 60, "it has not ended")


def everywhere(cluster):
    """All bytes that the cluster keeps, but what jobs have printed: state, logs, spools."""
    for place in (cluster.home, *cluster.spools):
        for folder, _, files in os.walk(place):
            for name in files:
                path = os.path.join(folder, name)
                if os.path.isfile(path) and "/output/" not in path and not os.path.islink(path):
                    with open(path, "rb") as f:
                        yield path, f.read()


def test_a_job_gets_its_secrets_and_nobody_else_does(cluster, tmp_path):
    code, text = store(cluster, "TOKEN", VALUE + "\n")
    assert code == 0 and VALUE not in text
    binary = bytes(range(256)) * 4
    (tmp_path / "key").write_bytes(binary)
    assert store(cluster, "ssh-key", "", "--from-file", str(tmp_path / "key"))[0] == 0
    script = ('printf %s "$TOKEN"; echo; printf %s "$AGAIN"; echo; cmp "$ssh_key_FILE" ' + str(tmp_path / "key") +
              ' && echo same; stat -c %a "$ssh_key_FILE"; echo "$ssh_key_FILE"')
    code, out, err = run(cluster, "run", "--secret", "TOKEN", "--secret", "TOKEN=AGAIN", "--secret", "ssh-key:file", "--", "sh", "-c", script)
    lines = out.splitlines()
    assert code == 0 and lines[:3] == [VALUE, VALUE, "same"], (out, err)
    assert lines[3][1:] in ("00", "40")  # only its user
    wait_until(lambda: not os.path.exists(lines[4]), 60, "the file stays after the job's end")
    # In a job that goes on: nothing but the node's memory has it.
    job = cluster.cli("submit", *ALL, "--secret", "TOKEN", "--secret", "ssh-key:file", "--", "sleep", "600").stdout.split()[-1]
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 60, "it does not run")
    cluster._note_spools()
    code, out, err = run(cluster, "exec", job, "--", "sh", "-c", 'test -r "$ssh_key_FILE" && printf %s "$TOKEN"')
    assert out == VALUE, err
    shown = "".join(cluster.cli(*words).stdout for words in (("get", job), ("get", "--json", job), ("list", "--json"), ("events", job), ("audit",), ("secret", "list"),
                                                             ("secret", "list", "--json"), ("get", "--environment", job), ("why", job)))
    assert "TOKEN" in shown and VALUE not in shown and VALUE.encode().hex() not in shown
    for path, data in everywhere(cluster):
        secret = VALUE.encode() in data or VALUE.encode().hex().encode() in data or binary[:64] in data
        assert not secret or path.split("/")[1] in ("run", "dev"), path  # the spool, on a memory file system
        if secret:
            assert os.stat(path).st_mode & 0o007 == 0 and os.stat(os.path.dirname(path)).st_mode & 0o066 == 0, path
    assert glob.glob(f"{cluster.home}/keys/secret.key") and os.stat(f"{cluster.home}/keys/secret.key").st_mode & 0o777 == 0o600
    cluster.cli("cancel", job)
    ended(cluster, job)
    wait_until(lambda: not [p for p, d in everywhere(cluster) if VALUE.encode() in d], 30, "a secret stays behind")


def test_what_is_refused(cluster):
    assert "neither you nor project default has a secret NONE" in run(cluster, "submit", "--secret", "NONE", "--", "true")[2]
    code, _, err = run(cluster, "secret", "set", "TOKEN", VALUE)
    assert code == 2 and "never given as an argument" in err and VALUE not in err
    assert "empty" in store(cluster, "TOKEN", "\n")[1]
    assert "more than 65536" in store(cluster, "TOKEN", "x" * 70000)[1]
    assert store(cluster, "TOKEN", "x" * 65536)[0] == 0
    assert "not a valid name" in store(cluster, "../x", VALUE)[1]
    for wish, says in (("TOKEN=PATH", "not free"), ("TOKEN=ACEQUIA_X", "not free"), ("TOKEN=LD_PRELOAD", "not free"), ("TOKEN=a b", "no name of a variable"),
                       ("TOKEN:disk", "not understood"), ("/etc:file", "not understood")):
        assert says in run(cluster, "submit", "--secret", wish, "--", "true")[2], wish
    assert "two are given" in run(cluster, "submit", "--secret", "TOKEN", "--secret", "TOKEN", "--", "true")[2]
    for i in range(99):
        cluster.api.raw("PUT", f"/v1/secrets/n{i}", b'{"value":"00"}')
    assert "the most" in store(cluster, "onemore", VALUE)[1]
    # A variable cannot hold a zero byte; a file can.
    code, out, err = run(cluster, "run", "--secret", "n0", "--", "true")
    assert code and "zero byte" in out + err
    assert run(cluster, "run", "--secret", "n0:file", "--", "sh", "-c", 'test $(wc -c < "$n0_FILE") = 1')[0] == 0
    with pytest.raises(ApiError):
        cluster.api.get("/v1/secrets/TOKEN")


def test_deleted_replaced_and_after_restarts(cluster):
    store(cluster, "TOKEN", "one")
    job = cluster.cli("submit", "--hold", "-o", f"{cluster.home}/out", "--secret", "TOKEN", "--", "sh", "-c", 'echo "$TOKEN"').stdout.split()[-1]
    gone = cluster.cli("submit", "--hold", *ALL, "--secret", "OTHER", "--", "true", check=False)
    assert gone.returncode == 1
    store(cluster, "OTHER", "x")
    gone = cluster.cli("submit", "--hold", *ALL, "--secret", "OTHER", "--", "true").stdout.split()[-1]
    store(cluster, "TOKEN", "two")
    cluster.cli("secret", "delete", "OTHER")
    cluster.kill_controller()
    cluster.start_controller()
    cluster.wait_ready()
    assert [s["name"] for s in cluster.api.get("/v1/secrets")["secrets"]] == ["TOKEN"]
    assert cluster.api.get("/v1/secrets")["secrets"][0]["version"] == 2
    cluster.cli("release", job, gone)
    assert ended(cluster, job)["state"] == "COMPLETED"
    with open(f"{cluster.home}/out", encoding="utf-8") as f:
        assert f.read() == "two\n"
    end = ended(cluster, gone)
    assert end["state"] == "FAILED" and "secret OTHER: it was deleted" in end["reason"], end
    cluster.kill("controller", signal.SIGTERM)
    db = sqlite3.connect(f"{cluster.home}/state/acequia.db")
    names = [r[0] for r in db.execute("SELECT name FROM blob WHERE name LIKE 'secret-%'")]
    db.close()
    assert len(names) == 1  # replaced and deleted values are removed
    cluster.start_controller()
    cluster.wait_ready()


def test_without_the_key_the_state_tells_nothing(cluster):
    store(cluster, "A", "value-a")
    store(cluster, "B", "value-b")
    key = f"{cluster.home}/keys/secret.key"
    os.rename(key, key + ".away")
    job = cluster.cli("submit", *ALL, "--secret", "A", "--", "true").stdout.split()[-1]
    end = ended(cluster, job)
    assert end["state"] == "FAILED" and "secret.key is not there; put it back" in end["reason"], end
    # A new key in its place would hide that the others are lost.
    code, err = store(cluster, "C", "value-c")
    assert code == 1 and "2 stored secrets cannot be decrypted" in err and "Put the key back" in err, err
    assert not os.path.exists(key)
    assert "2 stored secrets cannot be decrypted" in cluster.cli("status").stdout
    assert "2 stored secrets cannot be decrypted" in run(cluster, "secret", "list")[2]
    with open(key, "wb") as f:
        os.fchmod(f.fileno(), 0o600)
        f.write(b"x" * 32)
    job = cluster.cli("submit", *ALL, "--secret", "A", "--", "true").stdout.split()[-1]
    assert "encrypted with another key; put that key back, or store the secret again" in ended(cluster, job)["reason"]
    code, out, err = run(cluster, "secret", "delete", "--lost")
    assert code == 1 and "nothing was deleted" in err
    os.rename(key + ".away", key)
    os.chmod(key, 0o644)
    job = cluster.cli("submit", *ALL, "--secret", "A", "--", "true").stdout.split()[-1]
    assert "mode 600" in ended(cluster, job)["reason"]
    os.chmod(key, 0o600)
    assert run(cluster, "run", "--secret", "A", "--", "sh", "-c", 'test "$A" = value-a')[0] == 0
    # Values that were exchanged or changed in the database are not taken.
    cluster.kill("controller", signal.SIGTERM)
    db = sqlite3.connect(f"{cluster.home}/state/acequia.db")
    rows = dict(db.execute("SELECT name, data FROM blob WHERE name LIKE 'secret-%'"))
    assert len(rows) == 2 and not any(b"value-" in d for d in rows.values())
    db.close()
    cluster.start_controller()
    cluster.wait_ready()


def test_a_lost_key_and_the_way_on(cluster):
    store(cluster, "MINE", "1")
    store(cluster, "MINE", "2")
    store(cluster, "OTHER", "x", user=AS_NOBODY)
    os.unlink(f"{cluster.home}/keys/secret.key")
    cluster.kill("controller", signal.SIGTERM)
    cluster.start_controller()
    cluster.wait_ready()
    assert "stored secrets cannot be decrypted" in open(f"{cluster.home}/log/controller.out").read()
    assert store(cluster, "MINE", "3")[0] == 1
    code, out, err = run(cluster, "secret", "delete", "--lost")
    assert code == 0 and "Secret MINE deleted" in out and "Secret OTHER deleted" in out, (out, err)
    assert store(cluster, "MINE", "4")[0] == 0
    assert run(cluster, "run", "--secret", "MINE", "--", "sh", "-c", 'test "$MINE" = 4')[0] == 0


def test_others_cannot_use_or_see_them(cluster):
    store(cluster, "TOKEN", VALUE)
    assert store(cluster, "MINE", "of nobody", user=AS_NOBODY)[0] == 0
    assert "neither you nor" in run(cluster, "submit", "--secret", "TOKEN", "--", "true", user=AS_NOBODY)[2]
    assert "TOKEN" not in run(cluster, "secret", "list", user=AS_NOBODY)[1]
    assert "does not exist" in run(cluster, "secret", "delete", "TOKEN", user=AS_NOBODY)[2]
    assert run(cluster, "secret", "delete", "--user", "root", "TOKEN", user=AS_NOBODY)[0] == 1
    code, out, err = run(cluster, "run", "--secret", "MINE", "--secret", "MINE:file", "--", "sh", "-c", 'echo "$MINE"; cat "$MINE_FILE"; chmod 777 "$MINE_FILE" || echo kept',
                         user=AS_NOBODY)
    assert out == "of nobody\nof nobodykept\n", (out, err)
    # A project's are for its members.
    cluster.cli("project", "create", "vision", "--members", "root")
    assert store(cluster, "SHARED", "of vision", "-P", "vision")[0] == 0
    assert "only its members" in store(cluster, "SHARED", "x", "-P", "vision", user=AS_NOBODY)[1]
    assert "only its members" in store(cluster, "X", "x", "-P", "default", user=AS_NOBODY)[1]
    assert "SHARED" not in run(cluster, "secret", "list", user=AS_NOBODY)[1]
    assert "neither you nor" in run(cluster, "submit", "--secret", "SHARED", "--", "true", user=AS_NOBODY)[2]
    assert run(cluster, "run", "-P", "vision", "--secret", "SHARED", "--", "sh", "-c", 'test "$SHARED" = "of vision"')[0] == 0
    # A later project of the same name does not inherit them.
    cluster.cli("project", "delete", "vision", "--force")
    cluster.cli("project", "create", "vision", "--members", "nobody,root")
    assert "neither you nor" in run(cluster, "submit", "-P", "vision", "--secret", "SHARED", "--", "true")[2]
    audit = cluster.cli("audit", "--json").stdout
    assert "/v1/secrets/SHARED" in audit and "of vision" not in audit and b"of vision".hex() not in audit


def test_commands_inside_a_job_leave_them_behind(cluster, tmp_path):
    """What submits or starts steps from inside sends its environment, which the controller keeps."""
    store(cluster, "TOKEN", VALUE)
    cluster.cli("slurm-commands", str(tmp_path))
    script = ("set -e; acequia submit -Q -o /dev/null -- sh -c 'test -z \"$TOKEN\"' > inner; echo 'exit 0' | sed '1i #!/bin/sh' | sbatch -o /dev/null > inner2; "
              "srun sh -c 'printf %s \"$TOKEN\" | sha256sum'")
    job = cluster.cli("submit", "-Q", "-n1", "-o", str(tmp_path / "out"), "-D", str(tmp_path), "-E", f"PATH={tmp_path}:{cluster.env['PATH']}", "--secret", "TOKEN",
                      "--", "sh", "-c", script).stdout.strip()
    end = ended(cluster, job)
    assert end["state"] == "COMPLETED" and hashlib.sha256(VALUE.encode()).hexdigest() in (tmp_path / "out").read_text(), (end, (tmp_path / "out").read_text())
    inner = (tmp_path / "inner").read_text().strip()
    end = ended(cluster, inner)
    assert end["state"] == "COMPLETED", end["exit_code"]
    assert VALUE not in cluster.cli("get", "--environment", inner).stdout
    for path, data in everywhere(cluster):
        assert VALUE.encode() not in data or path.split("/")[1] in ("run", "dev"), path


@pytest.mark.skipif(not shutil.which("busybox"), reason="not installed: busybox")
def test_in_a_container(cluster):
    root = make_rootfs(f"{cluster.home}/rootfs")
    for user in ((), AS_NOBODY):
        store(cluster, "TOKEN", VALUE, user=user)
        code, out, err = run(cluster, "run", "--container", root, "--secret", "TOKEN", "--secret", "TOKEN:file", "--", "/bin/sh", "-c",
                             'echo "$TOKEN"; cat "$TOKEN_FILE"', user=user)
        assert code == 0 and out == f"{VALUE}\n{VALUE}", (out, err)


def test_on_two_nodes_over_tls(tmp_path):
    """Each node of a job gets them over its own connection; files have the path of their own node."""
    with Cluster(config="[node *]\ncpus = 2\n", agents=["n1", "n2"]) as cluster:
        wait_until(lambda: len(cluster.nodes_up()) == 3, 60, "nodes do not appear")
        store(cluster, "TOKEN", VALUE)
        cluster.cli("slurm-commands", str(tmp_path))
        env = dict(cluster.env, PATH=f"{tmp_path}:{cluster.env['PATH']}")
        script = tmp_path / "job.sh"
        script.write_text('#!/bin/sh\nsrun sh -c \'printf "%s %s %s\\n" "$SLURMD_NODENAME" "$TOKEN" "$(cat "$TOKEN_FILE")"\'\n')
        done = subprocess.run([cluster.binary, "submit", "-Q", "-N", "2", "-n", "2", "-w", "n1,n2", "-D", str(tmp_path), "-o", str(tmp_path / "out"), "--secret", "TOKEN",
                               "--secret", "TOKEN:file", str(script)], env=env, capture_output=True, text=True, check=True)
        end = ended(cluster, done.stdout.strip())
        text = (tmp_path / "out").read_text()
        assert end["state"] == "COMPLETED" and sorted(text.splitlines()) == [f"n{i} {VALUE} {VALUE}" for i in (1, 2)], (end["reason"], text)
