"""Volumes elsewhere than below the cluster's folder: buckets of S3, mounted as the job's user, and exports of NFS, mounted by root for one job."""
import contextlib
import hashlib
import os
import shutil
import signal
import stat
import subprocess
import tempfile

import pytest

from tests.lab.cluster import Cluster
from tests.lab.images import make_rootfs
from tests.lab.proc import wait_until
from tests.lab.s3 import Store, real_store
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
            store.held.set()
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


WRITES = """
cd /m
seq 50000 | sort > sorted                      # two processes have it open for a moment
mkdir -p deep/er && cp sorted deep/er/copy && echo more >> deep/er/copy
mv deep/er/copy deep/moved
: > empty
rm old
(sleep 0.2; echo late > late; sleep 600) &    # what is left behind ends with the program, what it wrote is sent
sleep 1
exit 7
"""


def test_what_a_job_writes_is_there_when_it_has_ended(lab):
    objects = lab.store.buckets["results"] = {"old": b"x", "beside": b"y"}
    lab.cli(lab.ana, "volume", "create", "results", "--at", f"s3://results?endpoint={lab.store.endpoint}")
    done = lab.cli(lab.ana, "run", "-v", "results:/m", "--", "sh", "-c", WRITES, check=False)
    assert done.returncode == 7 and not done.stderr, done
    text = "".join(sorted(f"{i}\n" for i in range(1, 50001))).encode()
    assert objects == {"beside": b"y", "sorted": text, "deep/moved": text + b"more\n", "empty": b"", "late": b"late\n"}, sorted(objects)
    # Commands in the job as well, each at its own end; in a container; by root.
    job = lab.cli(lab.ana, "submit", "-Q", "-v", "results:/m", "--", "sleep", "600").stdout.strip()
    wait_until(lambda: lab.c.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 60, "it does not run")
    lab.cli(lab.ana, "exec", job, "--", "sh", "-c", "echo by exec > /m/by-exec")
    assert objects["by-exec"] == b"by exec\n"
    lab.c.cli("cancel", job)
    lab.c.cli("wait", job, check=False)
    assert lab.c.api.get(f"/v1/jobs/{job}")["state"] == "CANCELLED"
    wait_until(lambda: not programs() and not unsent(lab), 30, "something of a mount is left")
    if shutil.which("busybox"):
        image = make_rootfs(f"{lab.ana.home}/writes")
        subprocess.run(["chown", "-R", f"{lab.ana.uid}:{lab.ana.gid}", image], check=True)
        lab.cli(lab.ana, "run", "--container", image, "-v", "results:/m", "--", "sh", "-c", "echo boxed > /m/boxed")
        assert objects["boxed"] == b"boxed\n"


@pytest.mark.long
def test_a_signal_comes_once(lab):
    """The process that waits for the program passes on what the program does not get by itself."""
    lab.store.buckets["signals"] = {}
    lab.cli(lab.ana, "volume", "create", "signals", "--at", f"s3://signals?endpoint={lab.store.endpoint}")
    out = f"{lab.ana.home}/signals.txt"
    wait = "trap 'echo got; n=1' USR1; while [ -z \"$n\" ]; do sleep 0.1; done; sleep 1"
    job = lab.cli(lab.ana, "submit", "-Q", "-t", "60s", "--signal", "B:USR1@45", "-o", out, "-v", "signals:/m", "--", "sh", "-c", wait).stdout.strip()
    lab.c.cli("wait", job, check=False)
    assert read(out) == "got\n", read(out)


def unsent(lab):
    found = []
    for folder, folders, _ in os.walk(lab.c.home):
        if os.path.basename(folder) == "unsent":
            found += [os.path.join(folder, f) for f in folders]
    return found


def test_a_job_that_is_ended_sends_first_or_says_what_is_missing(lab):
    objects = lab.store.buckets["late"] = {}
    lab.cli(lab.ana, "volume", "create", "late", "--at", f"s3://late?endpoint={lab.store.endpoint}")

    def ended_while_it_sends(grace):
        lab.store.held.clear()
        out = f"{lab.ana.home}/late-{grace}.txt"
        job = lab.cli(lab.ana, "submit", "-Q", "--grace", grace, "-o", out, "-v", "late:/m", "--", "sh", "-c",
                      f"trap 'echo asked; cat /m/of-{grace}; exit 0' TERM; echo words > /m/of-{grace}; echo written; while :; do sleep 0.1; done").stdout.strip()
        wait_until(lambda: "written" in read(out), 60, "it does not write")
        lab.c.cli("cancel", job)
        wait_until(lambda: "not sent yet" in read(out), 60, "it does not say what is not sent")
        return job, out
    job, out = ended_while_it_sends("100s")
    assert lab.c.api.get(f"/v1/jobs/{job}")["state"] == "COMPLETING"
    lab.store.held.set()
    lab.c.cli("wait", job, check=False)
    assert objects == {"of-100s": b"words\n"}, objects
    said = read(out)
    assert "asked\nwords\n" in said and "1 file not sent yet to s3://late" in said and "all of it was sent" in said, said
    # With too little time it is killed: its output has said where the file is, and the next job there says it again.
    job, out = ended_while_it_sends("2s")
    lab.c.cli("wait", job, check=False)
    lab.store.held.set()
    wait_until(lambda: not programs(), 30, "rclone outlives the job")
    kept = [f for f in unsent(lab) if os.path.exists(f"{f}/vfs")]
    assert len(kept) == 1 and f"what is missing is in {kept[0]}/vfs" in read(out), (kept, read(out))
    done = lab.cli(lab.ana, "run", "-v", "late:/m", "--", "true")
    assert f"killed before all was sent: late/of-2s. It is in {kept[0]}/vfs" in done.stderr, done
    shutil.rmtree(kept[0])


def processes(lab, job, what):
    """Of the job's, what mounts the bucket ("rclone") or its parent, which waits until all is sent ("sender")."""
    found = []
    for pid in programs():
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/environ", "rb") as f:
                if f"ACEQUIA_JOB_ID={job}\0".encode() not in f.read():
                    continue
            with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
                found.append(int(pid) if what == "rclone" else int(f.read().rsplit(")", 1)[1].split()[1]))
    return found


KILLED = """
echo whole > /m/whole; echo part > /m/part
exec 3> /m/open; echo begun >&3; echo written
while [ ! -e "$1" ]; do sleep 0.1; done
echo end >&3; exec 3>&-
"""


@pytest.mark.parametrize("victims", [["rclone"], ["sender"], pytest.param(["sender", "rclone"], marks=pytest.mark.long)], ids="-".join)
def test_what_sends_is_killed_while_a_job_writes(lab, victims):
    """What was written is in the bucket, or the job fails and says what is missing; nothing of it stays but the folder that it names."""
    name = "-".join(victims)
    objects = lab.store.buckets[name] = {}
    lab.cli(lab.ana, "volume", "create", name, "--at", f"s3://{name}?endpoint={lab.store.endpoint}")
    out, go = f"{lab.ana.home}/{name}.txt", f"{lab.ana.home}/{name}.go"
    lab.store.held.clear()
    try:
        job = lab.cli(lab.ana, "submit", "-Q", "-o", out, "-v", f"{name}:/m", "--", "sh", "-c", KILLED, "sh", go).stdout.strip()
        wait_until(lambda: "written" in read(out), 60, "it does not write")
        victims_now = [pid for what in victims for pid in processes(lab, job, what)]
        assert len(victims_now) == len(victims), victims_now
        for pid in victims_now:
            os.kill(pid, signal.SIGKILL)
    finally:
        lab.store.held.set()
    with open(go, "w", encoding="utf-8"):
        pass
    lab.c.cli("wait", job, check=False)
    end, said = lab.c.api.get(f"/v1/jobs/{job}"), read(out)
    assert end["state"] == "FAILED", (end, said)
    wait_until(lambda: not programs() and not mounted(), 30, "something of a mount is left")
    kept = [f for f in unsent(lab) if os.path.basename(f).startswith(f"{name}.")]
    assert len(kept) == 1 and f"{kept[0]}/vfs" in said, (kept, said)
    for file in ("whole", "part", "open"):
        assert file in objects or f"{name}/{file}" in said, (file, objects, said)
    files = {f: read(f"{folder}/{f}") for folder, _, names in os.walk(f"{kept[0]}/vfs") for f in names}
    assert objects.get("whole", b"whole\n") == b"whole\n" and files["whole"] == "whole\n" and files["part"] == "part\n", files
    assert files["open"].startswith("begun\n")
    # The user's next job there says it again until the folder is removed, and sends its own.
    done = lab.cli(lab.ana, "run", "-v", f"{name}:/m", "--", "sh", "-c", "echo again > /m/again")
    assert f"{kept[0]}/vfs" in done.stderr and objects["again"] == b"again\n", (done, objects)
    shutil.rmtree(kept[0])


def read(path):
    try:
        with open(path, encoding="utf-8") as f:
            return f.read()
    except FileNotFoundError:
        return ""


@pytest.mark.long
def test_a_store_that_takes_nothing_in(lab):
    lab.store.buckets["full"] = {}
    lab.cli(lab.ana, "volume", "create", "full", "--at", f"s3://full?endpoint={lab.store.endpoint}")
    lab.store.refuses = True
    try:
        done = lab.cli(lab.ana, "run", "-v", "full:/m", "--", "sh", "-c", "echo lost > /m/lost", check=False)
    finally:
        lab.store.refuses = False
    assert done.returncode == 1 and "1 file could not be sent to s3://full" in done.stderr and "AccessDenied" in done.stderr, done
    shutil.rmtree(unsent(lab)[0])


@pytest.fixture(scope="module", name="seaweed")
def _seaweed(tmp_path_factory):
    with real_store(tmp_path_factory.mktemp("seaweed"), "models") as store:
        yield store


@pytest.mark.long
def test_a_real_server_of_s3(lab, seaweed):
    """Large objects in parts, many small ones, changes in the middle of one; a key that may not write."""
    address, rclone = seaweed
    lab.cli(lab.ana, "volume", "create", "real", "--at", f"s3://models/v1?endpoint={address}")
    key = {"AWS_ACCESS_KEY_ID": "ours", "AWS_SECRET_ACCESS_KEY": "secret"}
    work = """cd /m && head -c 300000000 /dev/urandom > large && sha256sum < large
              mkdir many && for i in $(seq 300); do echo $i > many/$i; done
              seq 100000 > numbers && mv numbers renamed && printf changed | dd of=renamed bs=1 seek=1000 conv=notrunc status=none && sha256sum < renamed"""
    done = lab.cli(lab.ana, "run", "-v", "real:/m", "--", "sh", "-c", work, env=key)
    digests = [line.split()[0] for line in done.stdout.splitlines()]
    stored = [hashlib.sha256(rclone("cat", f":s3:models/v1/{name}").stdout).hexdigest() for name in ("large", "renamed")]
    assert stored == digests, done
    assert len(rclone("lsf", ":s3:models/v1/many").stdout.split()) == 300
    # An object that is there is changed in its middle and nothing else of it.
    work = "printf again | dd of=/m/renamed bs=1 seek=5 conv=notrunc status=none; sha256sum < /m/renamed"
    done = lab.cli(lab.ana, "run", "-v", "real:/m", "--", "sh", "-c", work, env=key)
    assert hashlib.sha256(rclone("cat", ":s3:models/v1/renamed").stdout).hexdigest() == done.stdout.split()[0]
    refused = lab.cli(lab.ana, "run", "-v", "real:/m", "--", "sh", "-c", "cat /m/many/7; echo no > /m/refused", env=dict(key, AWS_ACCESS_KEY_ID="reader"), check=False)
    assert refused.returncode == 1 and refused.stdout == "7\n" and "1 file could not be sent" in refused.stderr and "models/v1/refused" in refused.stderr, refused
    shutil.rmtree(unsent(lab)[0])


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
