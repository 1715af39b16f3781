"""Volumes elsewhere than below the cluster's folder: buckets of S3, mounted as the job's user, and exports of NFS, mounted by root for one job."""
import hashlib
import os
import shutil
import stat
import subprocess
import tempfile

import pytest

from tests.lab.cluster import Cluster
from tests.lab.images import make_rootfs
from tests.lab.proc import wait_until
from tests.lab.s3 import Store
from tests.lab.users import user

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("useradd"), reason="users of their own need root")


def mounted():
    with open("/proc/mounts", encoding="utf-8") as f:
        return [line for line in f if " fuse.s3 " in line or "acequia-nfs" in line]


def programs():
    """rclone processes of this machine, by their command line."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"rclone") and any(b"acequia" in w for w in words):
            found.append(pid)
    return found


@pytest.fixture(scope="module", name="lab")
def _lab():
    if not shutil.which("rclone") or not os.path.exists("/dev/fuse"):
        pytest.skip("rclone or /dev/fuse is not here")
    before = stat.S_IMODE(os.stat("/dev/fuse").st_mode)
    os.chmod("/dev/fuse", 0o666)  # as udev has it
    store = Store()
    try:
        with Cluster(config="[cluster]\ngrace = 1s\n[node *]\ncpus = 16\nmemory = 8G\n") as c, user("acqana") as ana, user("acqeva") as eva:
            yield Lab(c, store, ana, eva)
    finally:
        store.close()
        os.chmod("/dev/fuse", before)


class Lab:
    """A cluster, a store and two people, of whom one has its key in her home and the other none."""

    def __init__(self, cluster, store, ana, eva):
        self.c, self.store, self.ana, self.eva = cluster, store, ana, eva
        os.makedirs(f"{ana.home}/.aws")
        with open(f"{ana.home}/.aws/credentials", "w", encoding="utf-8") as f:
            f.write(f"[default]\naws_access_key_id = {store.key}\naws_secret_access_key = secret\n")
        subprocess.run(["chown", "-R", f"{ana.uid}:{ana.gid}", f"{ana.home}/.aws"], check=True)

    def cli(self, who, *arguments, check=True, env=None):
        done = who.run(self.c.binary, *arguments, env=dict(self.c.env, AWS_REGION="here", **(env or {})))
        assert not check or done.returncode == 0, (arguments, done)
        return done


def test_a_bucket_is_a_volume(lab):
    objects = lab.store.buckets["models"] = {"v1/weights": b"w" * 1000, "v1/deep/large": os.urandom(12000000), "other": b"o"}
    made = lab.cli(lab.ana, "volume", "create", "models", "--at", f"s3://models/v1?endpoint={lab.store.endpoint}")
    assert "created" in made.stdout
    shown = lab.cli(lab.ana, "volume", "get", "models").stdout
    assert f"Folder         s3://models/v1?endpoint={lab.store.endpoint}" in shown, shown
    refused = lab.cli(lab.ana, "run", "-v", "models:/m", "--", "true", check=False)
    assert "which jobs read: add :ro" in refused.stderr, refused
    # What is beside the prefix is not seen, and nothing can be changed.
    done = lab.cli(lab.ana, "run", "-v", "models:/data/models:ro", "--", "sh", "-c",
                   "find /data/models -type f; sha256sum < /data/models/deep/large; id -un; ls /etc/passwd; rm /data/models/weights", check=False)
    digest = hashlib.sha256(objects["v1/deep/large"]).hexdigest()
    assert sorted(done.stdout.split("\n")[:2]) == ["/data/models/deep/large", "/data/models/weights"], done
    assert done.stdout.split("\n")[2:5] == [f"{digest}  -", lab.ana.name, "/etc/passwd"] and "Read-only file system" in done.stderr, done
    assert len(objects) == 3
    wait_until(lambda: not programs() and not mounted(), 30, "something of a mount is left")


def test_commands_and_containers_see_it(lab):
    lab.store.buckets["shared"] = {"word": b"from the store\n"}
    lab.cli(lab.ana, "volume", "create", "shared", "--at", f"s3://shared?endpoint={lab.store.endpoint}")
    job = lab.cli(lab.ana, "submit", "-Q", "-v", "shared:/s:ro", "--", "sleep", "600").stdout.strip()
    wait_until(lambda: lab.c.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 60, "it does not run")
    assert lab.cli(lab.ana, "exec", job, "--", "cat", "/s/word").stdout == "from the store\n"
    assert "in use by job" in lab.cli(lab.ana, "volume", "delete", "shared", check=False).stderr
    lab.c.cli("cancel", job)
    lab.c.cli("wait", job, check=False)
    wait_until(lambda: not programs(), 30, "rclone outlives the job")
    if shutil.which("busybox"):
        image = make_rootfs(f"{lab.ana.home}/image")
        subprocess.run(["chown", "-R", f"{lab.ana.uid}:{lab.ana.gid}", image], check=True)
        assert lab.cli(lab.ana, "run", "--container", image, "-v", "shared:/s:ro", "--", "cat", "/word", "/s/word").stdout == "image\nfrom the store\n"
    lab.cli(lab.ana, "volume", "delete", "shared")


def test_each_with_their_own_credentials(lab):
    """A share of the name gives nobody the key of the store."""
    lab.store.buckets["mine"] = {"a": b"a\n"}
    lab.cli(lab.ana, "volume", "create", "mine", "--at", f"s3://mine?endpoint={lab.store.endpoint}")
    lab.cli(lab.ana, "volume", "share", "mine", "--with", lab.eva.name)
    name = f"~{lab.ana.name}/mine:/m:ro"
    refused = lab.cli(lab.eva, "run", "-v", name, "--", "cat", "/m/a", check=False)
    assert refused.returncode == 127 and "cannot be read" in refused.stderr and "credentials" in refused.stderr, refused
    own = {"AWS_ACCESS_KEY_ID": lab.store.key, "AWS_SECRET_ACCESS_KEY": "x"}
    assert lab.cli(lab.eva, "run", "-v", name, "--", "cat", "/m/a", env=own).stdout == "a\n"
    # A store that does not answer is said, and nothing stays.
    lab.cli(lab.ana, "volume", "create", "gone", "--at", "s3://gone?endpoint=http://127.0.0.1:1")
    refused = lab.cli(lab.ana, "run", "-v", "gone:/m:ro", "--", "ls", "/m", check=False)
    assert refused.returncode == 127 and "connection refused" in refused.stderr and "cannot be read" in refused.stderr, refused
    wait_until(lambda: not programs(), 30, "rclone outlives the job")


def test_what_is_not_a_place(lab):
    def said(*arguments):
        done = lab.cli(lab.ana, *arguments, check=False)
        assert done.returncode in (1, 2), done
        return done.stderr
    for place, words in (("s3://", "names no bucket"), ("s3://a b", "no spaces"), ("s3://bucket?key=1", "only endpoint=URL"),
                         ("s3://bucket?endpoint=https://me:secret@store", "must not hold a password"), ("s3://bucket?endpoint=file:///etc", "not an address"),
                         ("s3://bucket/../x", "no .."), ("nfs://server", "names no export"), ("nfs://-o/x", "names no export"), ("gs://bucket", "not a place"),
                         ("s3://bucket?endpoint=http://x\nrw s3://other /etc", "control characters")):
        assert words in said("volume", "create", "wrong", "--at", place), place
    assert "leave the size out" in said("volume", "create", "wrong", "--at", "s3://bucket", "--size", "1G")
    assert "administrator" in said("volume", "create", "wrong", "--at", "nfs://server/export")


STAND_IN = """#!/bin/sh
# In the place of mount.nfs: the export is a folder of this machine.
echo "$@" >> {log}
case "$1" in *:/refused) echo "mount.nfs: access denied by server while mounting $1" >&2; exit 32;; esac
exec mount --bind "$(dirname {log})/exports${{1#*:}}" "$2"
"""


@pytest.mark.skipif(os.geteuid() != 0 or os.path.exists("/usr/local/sbin/mount.nfs"), reason="puts a program into /usr/local/sbin")
def test_exports_of_nfs(lab):
    """The kernel of this machine may have no NFS: what mounts is replaced by a program that binds a folder. Who mounts, where, with which options, for
    whom, and that nothing is left, is ours."""
    folder = tempfile.mkdtemp(prefix="acequia-nfs-")
    os.chmod(folder, 0o755)
    os.makedirs(f"{folder}/exports/sets")
    with open(f"{folder}/exports/sets/word", "w", encoding="utf-8") as f:
        f.write("exported\n")
    program = "/usr/local/sbin/mount.nfs"
    with open(program, "w", encoding="utf-8") as f:
        f.write(STAND_IN.format(log=f"{folder}/log"))
    os.chmod(program, 0o755)
    try:
        lab.c.cli("project", "create", "nfs", "--quota", "1", "--members", f"{lab.ana.name},{lab.eva.name}")
        lab.c.cli("volume", "create", "sets", "-P", "nfs", "--at", "nfs://server.example.org/sets")
        got = lab.cli(lab.ana, "run", "-v", "nfs/sets:/sets:ro", "--", "sh", "-c", "cat /sets/word; touch /sets/x", check=False)
        assert got.stdout == "exported\n" and "Read-only file system" in got.stderr, got
        with open(f"{folder}/log", encoding="utf-8") as f:
            assert f.read() == "server.example.org:/sets /run/acequia-nfs/0 -o nosuid,nodev,retry=0,ro\n"
        job = lab.cli(lab.eva, "submit", "-Q", "-v", "nfs/sets:/sets", "--", "sleep", "600").stdout.strip()
        wait_until(lambda: lab.c.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 60, "it does not run")
        assert lab.cli(lab.eva, "exec", job, "--", "cat", "/sets/word").stdout == "exported\n"
        assert not mounted() and not os.listdir("/run/acequia-nfs/0"), "the mount is seen outside the job"
        lab.c.cli("cancel", job)
        lab.c.cli("wait", job, check=False)
        lab.c.cli("volume", "create", "refused", "-P", "nfs", "--at", "nfs://server.example.org/refused")
        refused = lab.cli(lab.ana, "run", "-v", "nfs/refused:/r", "--", "true", check=False)
        assert refused.returncode == 127 and "access denied by server while mounting" in refused.stderr, refused
        os.unlink(program)
        missing = lab.cli(lab.ana, "run", "-v", "nfs/sets:/r", "--", "true", check=False)
        assert os.path.exists("/usr/sbin/mount.nfs") or "mount.nfs is not installed" in missing.stderr, missing
    finally:
        if os.path.exists(program):
            os.unlink(program)
        shutil.rmtree(folder, ignore_errors=True)
