"""acequia cp: files and folders to and from running jobs, as the job's user, in its container, on its nodes."""
import os
import pwd
import shutil
import subprocess

import pytest

from tests.lab.cluster import Cluster
from tests.lab.images import make_rootfs
from tests.lab.proc import wait_until

NOBODY = pwd.getpwnam("nobody")
AS_NOBODY = ["setpriv", "--reuid", "nobody", "--regid", str(NOBODY.pw_gid), "--clear-groups"]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="jobs of other users need root")


@pytest.fixture(scope="module", name="cluster")
def _cluster():
    with Cluster(config="[node *]\ncpus = 8\n") as c:
        yield c


def cp(cluster, *arguments, user=(), cwd="/tmp"):
    done = subprocess.run([*user, cluster.binary, "cp", *arguments], env=cluster.env, capture_output=True, text=True, timeout=120, check=False, cwd=cwd,
                          stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout + done.stderr


def sleeper(cluster, folder, *options, user=()):
    done = subprocess.run([*user, cluster.binary, "submit", "-Q", "-o", "/dev/null", "-D", str(folder), *options, "--", "/bin/sleep", "600"], env=cluster.env,
                          capture_output=True, text=True, check=True, cwd="/tmp")
    job = done.stdout.strip()
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 60, "it does not run")
    return job


def test_there_and_back(cluster, tmp_path):
    (tmp_path / "work").mkdir()
    data = os.urandom(5_000_000)
    (tmp_path / "data.bin").write_bytes(data)
    (tmp_path / "data.bin").chmod(0o750)
    job = sleeper(cluster, tmp_path / "work", "-J", "trainer")
    assert cp(cluster, str(tmp_path / "data.bin"), f"{job}:copy.bin") == (0, "")
    assert (tmp_path / "work/copy.bin").read_bytes() == data and (tmp_path / "work/copy.bin").stat().st_mode & 0o100
    assert cp(cluster, "trainer:copy.bin", str(tmp_path / "back")) == (0, "")  # by name, below its working directory
    assert (tmp_path / "back").read_bytes() == data
    # Folders, names that are hard to write, several at once, into a folder.
    odd = tmp_path / "odd dir"
    (odd / "sub").mkdir(parents=True)
    for name in ("a b", "new\nline", "-r", "12:x", "ñ", "*"):
        (odd / "sub" / name).write_text(name)
    (odd / "link").symlink_to("sub/a b")
    code, text = cp(cluster, str(odd), f"{job}:")
    assert code == 1 and "copy it with -r" in text
    assert cp(cluster, "-r", str(odd), f"{job}:") == (0, "")
    assert cp(cluster, "-r", f"{job}:odd dir", str(tmp_path / "again")) == (0, "")
    assert sorted(p.name for p in (tmp_path / "again/sub").iterdir()) == sorted(("a b", "new\nline", "-r", "12:x", "ñ", "*"))
    assert all(p.read_text() == p.name for p in (tmp_path / "again/sub").iterdir())
    assert os.readlink(tmp_path / "again/link") == "sub/a b"
    (tmp_path / "into").mkdir()
    assert cp(cluster, f"{job}:copy.bin", f"{job}:{odd.name}/sub/a b", str(tmp_path / "into")) == (0, "")
    assert sorted(os.listdir(tmp_path / "into")) == ["a b", "copy.bin"]
    assert cp(cluster, "./12:x", f"{job}:colon", cwd=str(odd / "sub")) == (0, "")
    assert (tmp_path / "work/colon").read_text() == "12:x"


def test_what_goes_wrong_is_said(cluster, tmp_path):
    job = sleeper(cluster, tmp_path)
    (tmp_path / "f").write_text("x")
    assert cp(cluster, str(tmp_path / "none"), f"{job}:x")[0] == 1
    code, text = cp(cluster, f"{job}:none", str(tmp_path))
    assert code and "No such file" in text, text
    code, text = cp(cluster, str(tmp_path / "f"), f"{job}:no/such/folder/x")
    assert code and "folder cannot be opened" in text, text
    code, text = cp(cluster, str(tmp_path / "f"), str(tmp_path / "g"))
    assert code == 2 and "JOB:PATH" in text
    code, text = cp(cluster, f"{job}:f", f"{job}:g")
    assert code == 2 and "is in a job, too" in text
    assert "999999" in cp(cluster, str(tmp_path / "f"), "999999:x")[1]
    code, text = cp(cluster, str(tmp_path / "f"), f"{job}+7:x")
    assert code and "is not elastic: it has no workers" in text, text
    # The program is the node's own, not one in the job's PATH.
    bare = sleeper(cluster, tmp_path, "--export", "none", "-E", "PATH=/nowhere")
    assert cp(cluster, str(tmp_path / "f"), f"{bare}:copied") == (0, "")
    assert (tmp_path / "copied").read_text() == "x"
    assert not [n for n in os.listdir(tmp_path) if n.startswith(".acequia")]


@needs_root
def test_as_the_jobs_user(cluster, tmp_path):
    folder = f"{cluster.home}/nobody"
    os.mkdir(folder)
    os.chown(folder, NOBODY.pw_uid, NOBODY.pw_gid)
    job = sleeper(cluster, folder, user=AS_NOBODY)
    (tmp_path / "f").write_text("x")
    assert cp(cluster, str(tmp_path / "f"), f"{job}:mine") == (0, "")
    assert os.stat(f"{folder}/mine").st_uid == NOBODY.pw_uid
    code, text = cp(cluster, str(tmp_path / "f"), f"{job}:/etc/acequia-test")
    assert code and "Permission denied" in text and not os.path.exists("/etc/acequia-test")
    other = sleeper(cluster, tmp_path)
    code, text = cp(cluster, f"{other}:f", f"{folder}/of-other", user=AS_NOBODY)
    assert code and not os.path.exists(f"{folder}/of-other"), text


@needs_root
def test_the_job_does_not_choose_the_program(cluster, tmp_path):
    """One in its PATH that would answer with another name than the one that was asked for is never started; what comes
    from such a program is refused, too (test_transfer.c)."""
    folder = f"{cluster.home}/false"
    os.mkdir(folder)
    with open(f"{folder}/acequia", "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\nexec /usr/bin/printf 'ACQCP1\\n\\007\\000\\000\\000.bashrcF\\244\\001\\000\\000\\000\\000\\000\\000"
                "\\004\\000\\000\\000EVIL\\000\\000\\000\\000E'\n")
    os.chmod(f"{folder}/acequia", 0o755)
    job = sleeper(cluster, "/tmp", "--export", "none", "-E", f"PATH={folder}:/usr/bin:/bin", user=AS_NOBODY)
    (tmp_path / ".bashrc").write_text("mine")
    for path in ("result.txt", "/tmp/result.txt"):
        code, text = cp(cluster, "-r", f"{job}:{path}", ".", cwd=str(tmp_path))
        assert code, text
    assert (tmp_path / ".bashrc").read_text() == "mine" and os.listdir(tmp_path) == [".bashrc"]
    code, text = cp(cluster, f"{job}:.bashrc", str(tmp_path / "there"))
    assert code and "No such file" in text and not (tmp_path / "there").exists(), text


@pytest.mark.skipif(not shutil.which("busybox"), reason="not installed: busybox")
def test_in_a_container(cluster, tmp_path):
    root = make_rootfs(f"{cluster.home}/rootfs")
    (tmp_path / "data").mkdir()
    job = sleeper(cluster, "/tmp", "--container", root, "--container-mounts", f"{tmp_path}/data:/only-inside")
    (tmp_path / "f").write_text("inside")
    assert cp(cluster, str(tmp_path / "f"), f"{job}:/only-inside/g") == (0, "")
    assert (tmp_path / "data/g").read_text() == "inside"
    assert cp(cluster, f"{job}:/only-inside/g", str(tmp_path / "back")) == (0, "")
    assert (tmp_path / "back").read_text() == "inside"


def test_the_nodes_of_a_job(tmp_path):
    with Cluster(config="[node *]\ncpus = 2\n", agents=["n1", "n2"]) as cluster:
        wait_until(lambda: len(cluster.nodes_up()) == 3, 60, "nodes do not appear")
        job = cluster.cli("submit", "-Q", "-N", "2", "-w", "n1,n2", "-o", "/dev/null", "-D", "/tmp", "--", "/bin/sleep", "600").stdout.strip()
        wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 60, "it does not run")
        # Both are this machine; what differs is the process that is asked.
        for node in (0, 1):
            (tmp_path / "f").write_text(f"for {node}")
            assert cp(cluster, "--node", str(node), str(tmp_path / "f"), f"{job}:{tmp_path}/on{node}") == (0, "")
            assert cp(cluster, "-w", str(node), f"{job}:{tmp_path}/on{node}", str(tmp_path / f"back{node}")) == (0, "")
            assert (tmp_path / f"back{node}").read_text() == f"for {node}"
        code, text = cp(cluster, "-w", "2", str(tmp_path / "f"), f"{job}:{tmp_path}/on2")
        assert code and "has 2 nodes, counted from 0; there is no 2" in text and not (tmp_path / "on2").exists()
