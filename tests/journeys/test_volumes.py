"""Volumes: folders on shared storage that jobs see where they ask for them, with their owners' permissions, and that are not deleted under a job."""
import os
import re
import shutil
import stat
import subprocess
import tempfile

import pytest

from tests.lab.cluster import Cluster
from tests.lab.images import make_rootfs
from tests.lab.proc import wait_until
from tests.lab.users import user

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("useradd"), reason="users of their own need root")


@pytest.fixture(scope="module", name="lab")
def _lab():
    root = tempfile.mkdtemp(prefix="acequia-volumes-")
    os.chmod(root, 0o755)
    config = f"[cluster]\ngrace = 1s\nvolume_folder = {root}\n[node *]\ncpus = 16\nmemory = 8G\n"
    with Cluster(config=config) as c, user("acqana") as ana, user("acqeva") as eva:
        yield Lab(c, root, ana, eva)
    shutil.rmtree(root, ignore_errors=True)


class Lab:
    """A cluster with a folder for volumes, and two people."""

    def __init__(self, cluster, root, ana, eva):
        self.c, self.root, self.ana, self.eva = cluster, root, ana, eva

    def cli(self, who, *arguments, check=True):
        done = who.run(self.c.binary, *arguments, env=self.c.env)
        assert not check or done.returncode == 0, (arguments, done)
        return done

    def folder(self, who, name):
        return f"{self.root}/users/{who.name}/{name}"


def test_a_job_sees_its_volume(lab):
    told = lab.cli(lab.ana, "volume", "create", "data", "--size", "100G").stdout
    assert "Its size is not kept: the file system (" in told and "has no project quotas" in told, told
    assert re.search(r"Quota +not kept: the file system", lab.cli(lab.ana, "volume", "get", "data").stdout)
    for place in ("/data", "/mnt/deep/data", f"{lab.ana.home}/inner"):
        word = os.path.basename(place)
        done = lab.cli(lab.ana, "run", "-v", f"data:{place}", "--", "sh", "-c", f"echo {word} > {place}/word; id -un; pwd")
        assert done.stdout == f"{lab.ana.name}\n{lab.ana.home}\n", done
        with open(f"{lab.folder(lab.ana, 'data')}/word", encoding="utf-8") as f:
            assert f.read() == f"{word}\n"
    # Read-only; a folder of the node; the rest of the node is as it was, and nothing stays mounted.
    done = lab.cli(lab.ana, "run", "-v", "data:/data:ro", "-v", "/etc:/elsewhere:ro", "--", "sh", "-c",
                   "cat /data/word; touch /data/x; cmp /elsewhere/passwd /etc/passwd && echo same", check=False)
    assert done.stdout == "inner\nsame\n" and "Read-only file system" in done.stderr, done
    assert not os.path.exists("/data") and not os.path.exists("/elsewhere")
    with open("/proc/mounts", encoding="utf-8") as f:
        assert lab.root not in f.read()
    # The folder is its owner's and nobody else's; what is above it is root's.
    st = os.stat(lab.folder(lab.ana, "data"))
    assert (st.st_uid, stat.S_IMODE(st.st_mode)) == (lab.ana.uid, 0o700)
    assert os.stat(os.path.dirname(lab.folder(lab.ana, "data"))).st_uid == 0
    # This file system keeps no quota for it, which is said; commands inside see it as well.
    job = lab.cli(lab.ana, "submit", "-Q", "-v", "data:/data", "--", "sleep", "600").stdout.strip()
    wait_until(lambda: lab.c.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 60, "it does not run")
    assert lab.cli(lab.ana, "exec", job, "--", "cat", "/data/word").stdout == "inner\n"
    assert f"Volumes        ~{lab.ana.name}/data:/data" in lab.cli(lab.ana, "get", job).stdout
    # It is not deleted under the job; who has it is named.
    refused = lab.cli(lab.ana, "volume", "delete", "data", check=False)
    assert refused.returncode == 1 and f"in use by job {job} ({lab.ana.name})" in refused.stderr, refused
    assert f"In use by      job {job}" in lab.cli(lab.ana, "volume", "get", "data").stdout
    lab.c.cli("cancel", job)
    lab.c.cli("wait", job, check=False)
    lab.cli(lab.ana, "volume", "delete", "data")
    assert "does not exist" in lab.cli(lab.ana, "volume", "get", "data", check=False).stderr
    assert os.path.exists(f"{lab.folder(lab.ana, 'data')}/word")


def test_in_a_container(lab):
    if not shutil.which("busybox"):
        pytest.skip("busybox is not installed")
    image = make_rootfs(f"{lab.ana.home}/image")
    subprocess.run(["chown", "-R", f"{lab.ana.uid}:{lab.ana.gid}", image], check=True)
    lab.cli(lab.ana, "volume", "create", "boxed")
    done = lab.cli(lab.ana, "run", "--container", image, "--pvc", "boxed:/tmp/pvc1mount", "--", "sh", "-c", "cat /word > /tmp/pvc1mount/w; cat /word")
    assert done.stdout == "image\n"
    with open(f"{lab.folder(lab.ana, 'boxed')}/w", encoding="utf-8") as f:
        assert f.read() == "image\n"


def test_shares(lab):
    """Another's volume is not there; then for reading; then for writing, and both can change what the other wrote."""
    lab.cli(lab.ana, "volume", "create", "common")
    lab.cli(lab.ana, "run", "-v", "common:/common", "--", "sh", "-c", "umask 077; echo one > /common/one; mkdir /common/sub")
    name = f"~{lab.ana.name}/common"

    def tries(*options):
        return lab.cli(lab.eva, "run", *options, "--", "sh", "-c", "ls /common; echo two > /common/two && echo three > /common/sub/three", check=False)
    assert "does not exist" in tries("-v", f"{name}:/common").stderr
    assert lab.cli(lab.eva, "volume", "list").stdout.count("\n") == 1
    lab.cli(lab.ana, "volume", "share", "common", "--with", lab.eva.name, "--read-only")
    assert "for reading only; add :ro" in tries("-v", f"{name}:/common").stderr
    got = tries("-v", f"{name}:/common:ro")
    assert got.stdout == "one\nsub\n" and "Read-only" in got.stderr, got
    assert "only they and administrators" in lab.cli(lab.eva, "volume", "delete", name, check=False).stderr
    lab.cli(lab.ana, "volume", "share", "common", "--with", lab.eva.name)
    got = tries("-v", f"{name}:/common")
    assert "two" in os.listdir(lab.folder(lab.ana, "common")), got
    assert lab.cli(lab.ana, "run", "-v", "common:/common", "--", "sh", "-c", "cat /common/two; echo more >> /common/two").stdout == "two\n"
    lab.cli(lab.ana, "volume", "share", "common", "--with", lab.eva.name, "--revoke")
    assert "does not exist" in tries("-v", f"{name}:/common").stderr


def test_volumes_of_projects(lab):
    lab.c.cli("project", "create", "vision", "--quota", "1", "--members", f"{lab.ana.name},{lab.eva.name}")
    lab.cli(lab.ana, "volume", "create", "sets", "-P", "vision")
    lab.cli(lab.ana, "run", "-P", "vision", "-v", "sets:/sets", "--", "sh", "-c", "echo cats > /sets/cats")
    assert lab.cli(lab.eva, "run", "-P", "vision", "-v", "sets:/sets", "--", "sh", "-c", "cat /sets/cats; echo dogs > /sets/dogs").stdout == "cats\n"
    assert lab.cli(lab.eva, "run", "-v", "vision/sets:/sets:ro", "--", "cat", "/sets/dogs").stdout == "dogs\n"
    assert "has volumes; delete them first" in lab.c.cli("project", "delete", "vision", "--force", check=False).stderr
    assert "vision/sets" in lab.cli(lab.eva, "volume", "list").stdout
    lab.cli(lab.ana, "volume", "delete", "vision/sets")


def test_words_of_other_tools(lab):
    """The right column of the guide's table, with a command and an image where it leaves them open."""
    with open(f"{os.path.dirname(__file__)}/../../docs/guide.md", encoding="utf-8") as f:
        rows = [line for line in f if re.match(r"\| `(submit|bash|get) ", line)]
    commands = [c for row in rows for c in re.findall(r"`(acequia [^`]+)`", row.split("|")[2])]
    assert len(commands) >= 9 and any("--pvc" in c for c in commands)
    image = make_rootfs(f"{lab.ana.home}/words")
    subprocess.run(["chown", "-R", f"{lab.ana.uid}:{lab.ana.gid}", image], check=True)
    lab.c.cli("project", "create", "team-a", "--quota", "1")
    lab.cli(lab.ana, "volume", "create", "test")
    for command in commands:
        words = command.replace("-g 1 ", "").replace("IMAGE", image).replace("--container python", f"--container {image}").split()
        words = [w for word in words for w in (("sleep", "60") if word == "COMMAND" else (word,))]
        words = ["60" if w == "infinity" else w for w in words]
        if words[1] in ("bash", "open", "logs"):
            wait_until(lambda: lab.c.api.get("/v1/jobs?fields=name,state")["jobs"], 30, "no job")
            name = words[-1]
            wait_until(lambda: "RUNNING" in lab.cli(lab.ana, "get", name).stdout, 60, f"{name} does not run")
        done = lab.cli(lab.ana, *words[1:])
        assert done.returncode == 0, (command, done)
        if words[1] == "submit" and "--pvc" in words:
            assert f"~{lab.ana.name}/test:/tmp/pvc1mount" in lab.cli(lab.ana, "get", "pvc-test").stdout
    lab.c.cli("cancel", "--all", check=False)


def test_the_example(lab):
    tree = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    env = dict(lab.c.env, PATH=f"{os.path.dirname(lab.c.binary)}:{os.environ['PATH']}")
    done = lab.ana.run(f"{tree}/examples/volumes/run", env=env)
    assert done.returncode == 0 and "\n1000\n" in done.stdout and "in use by job" in done.stderr and "Quota " in done.stdout, done
    assert "example-" not in lab.cli(lab.ana, "volume", "list").stdout


def test_what_is_refused(lab):
    def said(*arguments):
        done = lab.cli(lab.ana, *arguments, check=False)
        assert done.returncode in (1, 2, 127), done
        return done.stderr
    lab.cli(lab.ana, "volume", "create", "twice", "--size", "unlimited")
    assert "no limit" in lab.cli(lab.ana, "volume", "get", "twice").stdout
    assert "exists already" in said("volume", "create", "twice")
    assert "is not a valid name" in said("volume", "create", "../x")
    assert "is not a place for a volume" in said("volume", "create", "cloud", "--at", "gs://bucket/x")
    assert "administrator" in said("volume", "create", "mine", "--at", "/srv")
    assert "does not say where" in said("submit", "-v", "twice", "--", "true")
    assert "cover everything" in said("submit", "-v", "twice:/", "--", "true")
    assert "give them different places" in said("submit", "-v", "twice:/a", "-v", "/tmp:/a", "--", "true")
    assert "does not exist" in said("submit", "-v", "never:/a", "--", "true")
    assert "cannot be opened on this node" in said("run", "-v", "/does/not/exist:/a", "--", "true")


def test_no_link_leads_the_folder_elsewhere(lab):
    """The folder is made by root. What a user could put into its place, had they the right to, is not followed."""
    lab.cli(lab.ana, "volume", "create", "trap")
    os.makedirs(os.path.dirname(lab.folder(lab.ana, "trap")), mode=0o711, exist_ok=True)
    os.symlink("/root", lab.folder(lab.ana, "trap"))
    before = os.stat("/root")
    done = lab.cli(lab.ana, "run", "-v", "trap:/trap", "--", "ls", "/trap", check=False)
    assert "its folder cannot be opened" in done.stderr, done
    os.unlink(lab.folder(lab.ana, "trap"))
    os.chmod(os.path.dirname(lab.folder(lab.ana, "trap")), 0o777)
    done = lab.cli(lab.ana, "run", "-v", "trap:/trap", "--", "ls", "/trap", check=False)
    assert "it must be root's, and nobody else may write to it" in done.stderr, done
    os.chmod(os.path.dirname(lab.folder(lab.ana, "trap")), 0o711)
    assert (before.st_uid, before.st_mode) == (os.stat("/root").st_uid, os.stat("/root").st_mode)
    assert lab.cli(lab.ana, "run", "-v", "trap:/trap", "--", "ls", "/trap").returncode == 0


def test_volumes_survive_a_restart(lab):
    lab.cli(lab.eva, "volume", "create", "kept", "--size", "5G", "--mode", "750")
    before = lab.cli(lab.eva, "volume", "list").stdout
    lab.c.kill_controller()
    lab.c.start_controller()
    lab.c.wait_ready()
    assert lab.cli(lab.eva, "volume", "list").stdout == before and re.search(r"kept +\S+ +5G +750 ", before), before


def test_a_volume_has_its_size():
    """A file system with project quotas, in a file: what is beyond the size is refused, to root's jobs as well."""
    folder = tempfile.mkdtemp(prefix="acequia-quota-")
    root = f"{folder}/mnt"
    os.makedirs(root)
    with open(f"{folder}/disk", "wb") as f:
        f.truncate(64 << 20)
    try:
        made = subprocess.run(["mkfs.ext4", "-q", "-O", "project,quota", "-E", "quotatype=prjquota", f"{folder}/disk"], capture_output=True, check=False)
        if made.returncode or subprocess.run(["mount", "-o", "loop,prjquota", f"{folder}/disk", root], capture_output=True, check=False).returncode:
            pytest.skip("no file system with project quotas can be mounted here")
        os.chmod(root, 0o755)
        with Cluster(config=f"[cluster]\nvolume_folder = {root}\n[node *]\ncpus = 4\nmemory = 4G\n") as c, user("acqful") as who:
            told = who.run(c.binary, "volume", "create", "small", "--size", "8M", env=c.env).stdout
            assert "Its size is kept by the file system (ext4), from the first job on" in told, told
            done = who.run(c.binary, "run", "-v", "small:/small", "--", "dd", "if=/dev/zero", "of=/small/x", "bs=1M", "count=20", env=c.env)
            assert "quota exceeded" in done.stderr.lower() and "is not kept" not in done.stderr, done
            assert os.stat(f"{root}/users/{who.name}/small/x").st_size <= 8 << 20
            got = who.run(c.binary, "volume", "get", "small", env=c.env).stdout
            assert re.search(r"Quota +kept by the file system \(ext4\); \S+ of 8M free", got), got
            # What it may hold and what is free in it are told, as the portal shows them.
            told = c.api.get(f"/v1/files?path={root}/users/{who.name}/small")
            assert told["space_bytes"] == 8 << 20 and told["space_free_bytes"] < 1 << 20, told
    finally:
        subprocess.run(["umount", root], check=False, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)
