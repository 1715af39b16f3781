"""Jobs in containers: every kind of image, what is seen inside, exits and signals, steps, the cache of
unpacked images under races and kills, and images that were made to do harm."""
import contextlib
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time

import pytest

from tests.lab.cluster import Cluster, find_binary
from tests.lab.images import (Registry, layer_of, layer_with, make_rootfs, make_sif, member, save_docker, skopeo)
from tests.lab.proc import wait_until
from tests.journeys.test_gpus import Pretended

ROOT = os.geteuid() == 0
NOBODY = pwd.getpwnam("nobody")
AS_NOBODY = ["setpriv", "--reuid", "nobody", "--regid", str(NOBODY.pw_gid), "--clear-groups"]
missing = [t for t in ("skopeo", "umoci", "mksquashfs", "unsquashfs", "busybox") if not shutil.which(t)]
pytestmark = pytest.mark.skipif(bool(missing), reason=f"not installed: {' '.join(missing)}; make test installs it")
needs_root = pytest.mark.skipif(not ROOT, reason="jobs of other users need root")


class Lab:
    """A cluster, images of one root file system in all their forms, and a user that is not root."""

    def __init__(self, cluster, folder):
        self.c, self.folder = cluster, folder
        self.home = f"{folder}/home"
        os.makedirs(self.home)
        if ROOT:
            os.chown(self.home, NOBODY.pw_uid, NOBODY.pw_gid)
        self.rootfs = make_rootfs(f"{folder}/rootfs")
        cluster.cli("slurm-commands", f"{folder}/slurm")

    def path(self, name):
        return f"{self.folder}/{name}"

    def squashfs(self, rootfs, name="image.sqsh"):
        subprocess.run(["mksquashfs", rootfs, self.path(name), "-quiet", "-no-progress", "-noappend"], check=True, capture_output=True)
        return self.path(name)

    def command(self, program, *arguments, user=ROOT, env=None, **kwargs):
        """As nobody where we can."""
        env = dict(self.c.env, HOME=self.home, **(env or {}))
        env["PATH"] = f"{self.folder}/slurm:{env['PATH']}"
        who = AS_NOBODY if user else []
        kwargs.setdefault("cwd", self.home)
        return subprocess.run([*who, program, *arguments], env=env, capture_output=True, text=True, timeout=90, **kwargs)

    def run(self, image, *command, options=(), **kwargs):
        return self.command(self.c.binary, "run", *options, "--container", image, "--", *command, **kwargs)

    def submit(self, image, script, *options):
        path = self.path("script")
        with open(path, "w", encoding="utf-8") as f:
            f.write(script)
        done = self.command(self.c.binary, "submit", "--container", image, *options, path)
        assert done.returncode == 0, done.stderr
        return int(re.search(r"job (\d+)", done.stdout).group(1))

    def job(self, number):
        return self.c.api.get(f"/v1/jobs/{number}")

    def wait(self, number, *states, seconds=30):
        wait_until(lambda: self.job(number)["state"].upper() in states, seconds, f"job {number} is not {states}: {self.job(number)}", 0.05)
        return self.job(number)

    def output(self, number):
        with open(f"{self.home}/acequia-{number}.out", encoding="utf-8") as f:
            return f.read()


@contextlib.contextmanager
def public_folder():
    """One that other users can pass through; pytest closes its own to them."""
    folder = tempfile.mkdtemp(prefix="acequia-containers-")
    os.chmod(folder, 0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def lab():
    with public_folder() as folder, Cluster(config="[cluster]\ngrace = 1s\nusage_interval = 1s\n[node *]\ncpus = 16\nmemory = 8G\n") as c:
        yield Lab(c, folder)


@pytest.fixture(scope="module")
def archive(lab):
    return save_docker(lab.path("saved.tar"), [layer_of(lab.rootfs)])


@pytest.fixture(scope="module")
def registry():
    with Registry() as r:
        yield r


def bundle(lab):
    folder = lab.path("bundle")
    if not os.path.isdir(folder):
        make_rootfs(f"{folder}/rootfs")
        os.makedirs(lab.path("data"), exist_ok=True)
        with open(f"{folder}/config.json", "w", encoding="utf-8") as f:
            json.dump({"ociVersion": "1.0.2", "root": {"path": "rootfs"},
                       "process": {"args": ["hello", "world"], "env": ["PATH=/own/bin:/bin", "FROM_IMAGE=yes"], "cwd": "/work"},
                       "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"},
                                  {"destination": "/data", "type": "bind", "source": lab.path("data"), "options": ["rbind", "ro"]}]}, f)
    return folder


KINDS = ("rootfs", "bundle", "squashfs", "sif", "layout", "oci-archive", "docker-archive", "registry", "registry-scheme")


def image_of(kind, lab, archive, request):
    if kind == "rootfs":
        return lab.rootfs
    if kind == "bundle":
        return bundle(lab)
    if kind == "squashfs":
        return lab.squashfs(lab.rootfs)
    if kind == "sif":
        return make_sif(lab.path("image.sif"), lab.squashfs(lab.rootfs, "for-sif.sqsh"))
    if kind == "docker-archive":
        return archive
    if kind == "layout":
        skopeo("copy", "--quiet", f"docker-archive:{archive}", f"oci:{lab.path('layout')}:v1")
        subprocess.run(["chmod", "-R", "a+rX", lab.path("layout")], check=True)
        return lab.path("layout") + ":v1"
    if kind == "oci-archive":
        skopeo("copy", "--quiet", f"docker-archive:{archive}", f"oci-archive:{lab.path('image.oci.tar')}")
        return lab.path("image.oci.tar")
    registry = request.getfixturevalue("registry")
    registry.push(archive, "lab/tool:1")
    name = registry.name("lab/tool:1")
    return name if kind == "registry" else f"docker://{name}"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_image(lab, archive, kind, request):
    image = image_of(kind, lab, archive, request)
    done = lab.run(image, "sh", "-c", "cat /word; echo env=$FROM_IMAGE; hello you; echo $PATH; id -u; exit 9")
    assert done.returncode == 9, done.stderr
    has_config = kind not in ("rootfs", "squashfs", "sif")
    lines = done.stdout.splitlines()
    assert lines[0] == "image"
    assert lines[1] == ("env=yes" if has_config else "env=")
    if has_config:
        assert lines[2] == "hello you" and lines[3].startswith("/own/bin:/bin")
    assert int(lines[-1]) == (NOBODY.pw_uid if ROOT else os.getuid())
    again = lab.run(image, "cat", "/word")
    assert (again.returncode, again.stdout) == (0, "image\n")
    assert "preparing" not in again.stderr  # it is kept


def test_layers_take_away_what_earlier_ones_had(lab):
    first = layer_with(member("old", b"old"), member("folder", kind=tarfile.DIRTYPE, mode=0o755), member("folder/old", b"old"),
                       member("cleared", kind=tarfile.DIRTYPE, mode=0o755), member("cleared/old", b"old"), member("changed", b"before"))
    second = layer_with(member(".wh.old"), member("folder/.wh.old"), member("folder/new", b"new"), member("cleared", kind=tarfile.DIRTYPE, mode=0o755),
                        member("cleared/.wh..wh..opq"), member("cleared/new", b"new"), member("changed", b"after\n"))
    image = save_docker(lab.path("layers.tar"), [layer_of(lab.rootfs), first, second])
    done = lab.run(image, "sh", "-c", "ls -d /old; ls /folder /cleared; cat /changed; ls -A / | grep -c '^.wh'")
    assert done.stdout == "/cleared:\nnew\n\n/folder:\nnew\nafter\n0\n", (done.stdout, done.stderr)
    assert "/old: No such file" in done.stderr


def test_a_batch_script_that_names_its_image(lab, archive):
    with open(lab.path("named"), "w", encoding="utf-8") as f:
        f.write(f"#!/bin/sh\n#SBATCH --container-image={archive}\n#SBATCH --container-mounts={lab.folder}:/lab:ro\n#SBATCH -o named.out\ncat /word; ls -d /lab/rootfs; echo $1\n")
    done = lab.command("sbatch", "--wait", lab.path("named"), "argument")
    assert done.returncode == 0, done.stderr
    with open(f"{lab.home}/named.out", encoding="utf-8") as f:
        assert f.read().endswith("image\n/lab/rootfs\nargument\n")


def test_the_images_own_command(lab, archive):
    done = lab.command(lab.c.binary, "run", "--container", archive)
    assert done.stdout == "hello world\n", done.stderr
    done = lab.command(lab.c.binary, "run", "--container", bundle(lab))
    assert done.stdout == "hello world\n", done.stderr
    done = lab.command(lab.c.binary, "run", "--container", lab.rootfs)
    assert done.returncode == 127 and "names no command of its own" in done.stderr


def test_what_is_seen_inside(lab, archive):
    name = "nobody" if ROOT else pwd.getpwuid(os.getuid()).pw_name
    with open("/etc/resolv.conf", "rb") as f:
        names = f.read()
    done = lab.run(archive, "sh", "-c", "id -un; id -gn; pwd; echo $HOME; ls /dev; touch made /tmp/acequia-box-test && rm /tmp/acequia-box-test; "
                   "touch /bin/new && ls /bin/new; touch /sys/x 2>&1; echo LANG=$LANG; cat /etc/hostname; echo $SLURM_JOB_ID $ACEQUIA_CONTAINER; "
                   "grep -c . /proc/self/mounts; cat /etc/resolv.conf > resolv; grep CapEff /proc/self/status; grep NoNewPrivs /proc/self/status; "
                   "tty < /dev/ptmx >/dev/null; echo x > /dev/null && head -c 4 /dev/zero | wc -c", options=["--env", "LANG=job"])
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == name and lines[2] == lab.home
    devices = set(lines[4:lines.index("/bin/new")])
    assert devices <= {"fd", "full", "infiniband", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom", "zero"}
    assert {"null", "zero", "shm", "pts"} <= devices
    text = done.stdout
    assert "Read-only file system" in text
    assert "LANG=job" in text  # the job's variables over the image's
    assert re.search(r"^\d+ " + re.escape(archive) + "$", text, re.M)
    assert "CapEff:\t0000000000000000" in text and "NoNewPrivs:\t1" in text
    assert lines[-1] == "4"
    assert os.path.exists(f"{lab.home}/made")
    if names:
        with open(f"{lab.home}/resolv", "rb") as f:
            assert f.read() == names
    gone = lab.run(archive, "ls", "/bin/new")  # what was written is its own, and gone
    assert gone.returncode == 1


def test_somebody_elses_root_file_system_and_the_machines_own(lab):
    done = lab.run(lab.rootfs, "sh", "-c", "id -un; ls -d $PWD; cat /etc/hostname; touch /word 2>&1; true")
    name = "nobody" if ROOT else pwd.getpwuid(os.getuid()).pw_name
    assert done.stdout.splitlines()[0] == name, (done.stdout, done.stderr)
    assert lab.home in done.stdout
    done = lab.run("/", "/bin/sh", "-c", "echo ok > here; ls /dev; touch /usr/acequia-box-test")
    assert "Read-only file system" in done.stderr or "cannot touch" in done.stderr, done.stderr
    assert open(f"{lab.home}/here", encoding="utf-8").read() == "ok\n"
    assert "nvidia" not in done.stdout and "mem" not in done.stdout.split() and "null" in done.stdout.split()


def test_links_to_nowhere_are_followed_inside(lab):
    """As in images where /home is a link to var/home, which is not there."""
    rootfs = make_rootfs(lab.path("rootfs-linked"))
    shutil.rmtree(f"{rootfs}/home")
    os.symlink("var/home", f"{rootfs}/home")
    os.symlink("/loop", f"{rootfs}/loop")
    os.makedirs(lab.path("data"), exist_ok=True)
    image = lab.squashfs(rootfs, "linked.sqsh")
    done = lab.run(image, "sh", "-c", "ls -d /home/me /var/home/me; pwd", options=["--container-mounts", f"{lab.path('data')}:/home/me"])
    assert done.stdout == f"/home/me\n/var/home/me\n{lab.home}\n", done.stderr
    done = lab.run(image, "true", options=["--container-mounts", f"{lab.path('data')}:/loop/x"])
    assert done.returncode == 127 and "nothing can be mounted at /loop/x in the image" in done.stderr


def test_an_allocation_with_an_image(lab, archive):
    done = lab.command("salloc", f"--container={archive}", "sh", "-c", "test -e /word || echo outside; srun cat /word; srun --container-workdir=/work pwd")
    assert done.stdout == "outside\nimage\n/work\n", done.stderr


def test_exits_signals_input_and_terminal(lab, archive):
    assert lab.run(archive, "sh", "-c", "exit 137").returncode == 137
    number = lab.submit(archive, "#!/bin/sh\nkill -SEGV $$\n")
    job = lab.wait(number, "FAILED")
    assert (job.get("exit_signal"), job.get("exit_code", 0)) == (signal.SIGSEGV, 0)
    done = lab.run(archive, "cat", input="through\nit\n")
    assert done.stdout == "through\nit\n"
    done = lab.command("script", "-qec", f"{lab.c.binary} run --pty --container {archive} -- sh -c 'tty; test -t 0 && echo terminal'", "/dev/null")
    assert "terminal" in done.stdout and "/dev/pts/" in done.stdout, (done.stdout, done.stderr)


def test_scripts_and_signals_to_them(lab, archive):
    number = lab.submit(archive, "#!/bin/sh\ntrap 'echo caught; exit 3' USR1\necho from $FROM_IMAGE $(cat /word) $SLURM_JOB_ID $0\n"
                        "touch ready-$SLURM_JOB_ID\nwhile :; do sleep 0.05; done\n")
    wait_until(lambda: os.path.exists(f"{lab.home}/ready-{number}"), 20, "the script does not start")
    done = lab.command("scancel", "--signal=USR1", "--batch", str(number))
    job = lab.wait(number, "FAILED")
    text = lab.output(number)
    assert job["exit_code"] == 3 and "caught" in text, (job, text, done.stderr)
    assert f"from yes image {number} " in text
    number = lab.submit(archive, "#!/usr/bin/nosuch\n")
    assert "interpreter /usr/bin/nosuch does not exist in the image" in lab.wait(number, "FAILED")["reason"]
    done = lab.run(archive, "nosuch")
    assert done.returncode == 127 and "command nosuch not found in the image" in done.stderr


def test_time_limits_count_in_containers(lab, archive):
    number = lab.submit(archive, "#!/bin/sh\nsleep 60\n", "--time", "1s")
    assert lab.wait(number, "TIMEOUT")


def test_mounts_and_the_working_directory(lab, archive):
    os.makedirs(lab.path("data"), exist_ok=True)
    with open(lab.path("data/file"), "w", encoding="utf-8") as f:
        f.write("data\n")
    os.chmod(lab.path("data"), 0o777)
    mounts = f"{lab.path('data')}:/mnt/deep/in:ro,{lab.path('data')}:/rw,{lab.path('data/file')}:/bin/cover"
    done = lab.run(archive, "sh", "-c", "pwd; cat /mnt/deep/in/file /bin/cover; touch /mnt/deep/in/no; touch /rw/yes",
                   options=["--container-mounts", mounts, "--container-workdir", "/work"])
    assert done.stdout == "/work\ndata\ndata\n", done.stderr
    assert "Read-only" in done.stderr and os.path.exists(lab.path("data/yes")) and not os.path.exists(lab.path("data/no"))
    done = lab.run(archive, "true", options=["--container-mounts", "/nosuch/folder:/x"])
    assert done.returncode == 127 and "mount /nosuch/folder: the path cannot be opened on this node: No such file" in done.stderr
    done = lab.run(archive, "true", options=["--container-workdir", "/nosuch"])
    assert "working directory /nosuch cannot be entered in the image" in done.stderr
    for bad, word in (("data", "not an absolute path"), ("/a:/b:xx", '"xx"'), ("/a:/", "cover the whole image")):
        done = lab.run(archive, "true", options=["--container-mounts", bad])
        assert done.returncode not in (0, 127) and word in done.stderr, done.stderr


def test_steps(lab, archive):
    """srun in a container job, srun --container-image in a plain one, exec and a shell in both."""
    number = lab.submit(archive, "#!/bin/sh\nsrun -n 2 sh -c 'echo step $SLURM_PROCID $(cat /word)'\nsrun false\necho $?\ntouch up-$SLURM_JOB_ID\nsleep 60\n", "--tasks", "2")
    wait_until(lambda: os.path.exists(f"{lab.home}/up-{number}"), 20, "the steps do not end")
    assert "step 0 image" in lab.output(number) and "step 1 image" in lab.output(number)
    assert "\n1\n" in lab.output(number)
    done = lab.command(lab.c.binary, "exec", str(number), "--", "sh", "-c", "cat /word; exit 4")
    assert (done.returncode, done.stdout) == (4, "image\n"), done.stderr
    done = lab.command(lab.c.binary, "bash", str(number), input="cat /word; echo shell $FROM_IMAGE\n")
    assert "image" in done.stdout and "shell yes" in done.stdout, (done.stdout, done.stderr)
    lab.command(lab.c.binary, "cancel", str(number))
    assert lab.wait(number, "CANCELLED")
    script = f"#!/bin/sh\ntest -e /word; echo outside $?\nsrun --container-image={archive} --container-mounts={lab.folder}:/lab:ro sh -c 'cat /word; ls /lab | grep saved.tar'\n"
    path = lab.path("plain")
    with open(path, "w", encoding="utf-8") as f:
        f.write(script)
    done = lab.command("sbatch", "--parsable", path)
    number = int(done.stdout)
    lab.wait(number, "COMPLETED", "FAILED")
    with open(f"{lab.home}/slurm-{number}.out", encoding="utf-8") as f:
        assert f.read() == "outside 1\nimage\nsaved.tar\n"
    done = lab.command("srun", f"--container={archive}", "-n", "2", "cat", "/word")
    assert done.stdout == "image\nimage\n", done.stderr


# --- the cache ---

def entries(lab, uid=None):
    folder = f"{lab.c.home}/images/{uid if uid is not None else (NOBODY.pw_uid if ROOT else os.getuid())}"
    store, work = (os.listdir(f"{folder}/{name}") if os.path.isdir(f"{folder}/{name}") else [] for name in ("store", "work"))
    return folder, store, [name for name in work if not name.startswith("changes.")]  # of jobs, on older kernels


def test_an_array_of_eight_unpacks_once(lab):
    rootfs = make_rootfs(lab.path("rootfs-array"), "array")
    for i in range(300):
        with open(f"{rootfs}/file{i}", "wb") as f:
            f.write(os.urandom(20000))
    image = save_docker(lab.path("array.tar"), [layer_of(rootfs)])
    number = lab.submit(image, "#!/bin/sh\ncat /word\nsleep 0.3\n", "--array", "0-7")
    wait_until(lambda: all(lab.job(number + i)["state"].upper() == "COMPLETED" for i in range(8)), 60, "the array does not end")
    texts = [open(f"{lab.home}/{f}", encoding="utf-8").read() for f in os.listdir(lab.home) if re.match(rf"acequia-{number}_\d+\.out", f)]
    assert len(texts) == 8 and all("array\n" in t for t in texts)
    assert sum("is ready after" in t for t in texts) == 1, texts
    assert sum("preparing image" in t for t in texts) == 1, texts
    assert entries(lab)[2] == []


def test_the_least_recently_used_go():
    with public_folder() as folder, Cluster(config="[cluster]\ngrace = 1s\n[node *]\ncpus = 16\nimage_cache = 9M\n") as c:
        lab = Lab(c, folder)
        images = []
        for i in range(4):
            rootfs = make_rootfs(lab.path(f"rootfs{i}"), f"image {i}")
            with open(f"{rootfs}/ballast", "wb") as f:
                f.write(os.urandom(1 << 20))
            os.makedirs(f"{rootfs}/closed/inner")
            os.chmod(f"{rootfs}/closed", 0o555)  # what cannot be written to can be removed all the same
            images.append(lab.squashfs(rootfs, f"{i}.sqsh"))
        user = NOBODY.pw_uid if ROOT else os.getuid()
        held = lab.submit(images[0], "#!/bin/sh\ntouch up\nsleep 60\n")
        wait_until(lambda: os.path.exists(f"{lab.home}/up"), 20, "the job does not start")
        for i in (1, 2, 3, 1):
            done = lab.run(images[i], "cat", "/word")
            assert done.stdout == f"image {i}\n", done.stderr
            time.sleep(1.1)  # times of use are whole seconds
            assert len(entries(lab, user)[1]) <= 3
        done = lab.run(images[0], "cat", "/word")  # in use all the time: still there, however old
        assert done.stdout == "image 0\n" and "preparing" not in done.stderr
        lab.command(c.binary, "cancel", str(held))
        with open(f"{lab.path('rootfs0')}/large", "wb") as f:
            f.write(os.urandom(10 << 20))
        done = lab.run(lab.squashfs(lab.path("rootfs0"), "large.sqsh"), "true")
        assert done.returncode == 127 and "and this node keeps 9M of images per user (image_cache)" in done.stderr, done.stderr
        assert entries(lab, user)[2] == []


@needs_root
def test_a_full_disk_is_said_and_leaves_nothing(tmp_path):
    with public_folder() as folder:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m,mode=755", "acequia-test", folder], check=True)
        try:
            with public_folder() as other, Cluster(config=f"[cluster]\ngrace = 1s\n[node *]\nimage_folder = {folder}/images\n") as c:
                lab = Lab(c, other)
                with open(f"{lab.rootfs}/large", "wb") as f:
                    f.write(os.urandom(8 << 20))
                for image in (lab.squashfs(lab.rootfs), save_docker(lab.path("saved.tar"), [layer_of(lab.rootfs)])):
                    done = lab.run(image, "true")
                    assert done.returncode == 127 and done.stderr.count("FAILED") == 1 and "cannot be unpacked: no space left in" in done.stderr.replace("cannot be had", "cannot be unpacked"), done.stderr
                    user = f"{folder}/images/{NOBODY.pw_uid}"
                    assert os.listdir(f"{user}/store") == [] and os.listdir(f"{user}/work") == []
                os.unlink(f"{lab.rootfs}/large")
                for i in range(4):  # what is not in use makes room
                    with open(f"{lab.rootfs}/more", "wb") as f:
                        f.write(os.urandom(1 << 20))
                    done = lab.run(lab.squashfs(lab.rootfs, f"{i}.sqsh"), "cat", "/word")
                    assert done.stdout == "image\n", done.stderr
        finally:
            subprocess.run(["umount", folder], check=True)


@needs_root
def test_an_agent_that_is_not_root(tmp_path):
    """Everything of a user's own: controller, agent, images."""
    with public_folder() as folder:
        home = f"{folder}/own"
        os.makedirs(home)
        os.chown(home, NOBODY.pw_uid, NOBODY.pw_gid)
        rootfs = make_rootfs(f"{folder}/rootfs")
        image = save_docker(f"{folder}/saved.tar", [layer_of(rootfs)])
        program = find_binary()
        env = dict(os.environ, HOME=home, ACEQUIA_HOME=f"{home}/acequia")
        env.pop("XDG_RUNTIME_DIR", None)

        def own(*arguments):
            return subprocess.run([*AS_NOBODY, program, *arguments], env=env, cwd=home, capture_output=True, text=True, timeout=60)
        try:
            assert own("up").returncode == 0
            done = own("run", "--container", image, "--", "sh", "-c", "cat /word; id -un; srun cat /word; exit 6")
            assert (done.returncode, done.stdout) == (6, "image\nnobody\nimage\n"), done.stderr
            assert own("run", "--container", rootfs, "--", "sh", "-c", "kill -TERM $$").returncode == 143
        finally:
            own("down", "--cancel-jobs")


@pytest.fixture()
def silent():
    """A registry that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        yield f"127.0.0.1:{s.getsockname()[1]}/slow:1"


def programs_of(number):
    """Processes of a job, by the job's number in their environment."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                if f"\0ACEQUIA_JOB_ID={number}\0".encode() in b"\0" + f.read():
                    with open(f"/proc/{pid}/comm", encoding="utf-8") as g:
                        found.append((int(pid), g.read().strip()))
        except OSError:
            continue
    return found


def preparing(lab, number):
    wait_until(lambda: any(name == "skopeo" for _, name in programs_of(number)), 20, "skopeo is not started")
    assert "preparing image" in lab.output(number)
    wait_until(lambda: lab.job(number)["state"].upper() == "RUNNING", 20, "the job does not run")
    wait_until(lambda: "fetching its container image" in lab.command(lab.c.binary, "get", str(number)).stdout, 10, "it is not said", 0.2)


def test_cancelled_while_preparing(lab, silent):
    number = lab.submit(silent, "#!/bin/sh\necho never\n")
    preparing(lab, number)
    lab.command(lab.c.binary, "cancel", str(number))
    lab.wait(number, "CANCELLED", seconds=60)
    wait_until(lambda: not programs_of(number), 5, "processes of the job are left")
    number = lab.submit(silent, "#!/bin/sh\necho never\n", "--time", "1s")
    assert lab.wait(number, "TIMEOUT")
    assert lab.run(lab.rootfs, "cat", "/word").stdout == "image\n"  # and nobody else is held up


def test_the_agent_is_killed_while_an_image_is_prepared(lab, silent):
    number = lab.submit(silent, "#!/bin/sh\necho never\n")
    preparing(lab, number)
    os.kill(agent_pid(lab), signal.SIGKILL)
    time.sleep(0.3)
    assert any(name == "skopeo" for _, name in programs_of(number))  # the job goes on without it
    lab.c.cli("up")
    wait_until(lambda: lab.c.nodes_up(), 20, "the node does not come back")
    assert lab.job(number)["state"].upper() == "RUNNING"
    lab.command(lab.c.binary, "cancel", str(number))
    lab.wait(number, "CANCELLED")


def agent_pid(lab):
    folder = f"{lab.c.home}/run"
    name = next(f for f in os.listdir(folder) if f.startswith("agent-") and f.endswith(".pid"))
    with open(f"{folder}/{name}", encoding="utf-8") as f:
        return int(f.read())


def test_a_kill_in_the_middle_leaves_nothing_half_used(lab):
    """The box, then the unpacking program, are killed while they unpack; the next job unpacks anew."""
    rootfs = make_rootfs(lab.path("rootfs-big"), "big")
    for i in range(2000):
        with open(f"{rootfs}/file{i}", "wb") as f:
            f.write(os.urandom(30000))
    image = lab.squashfs(rootfs, "big.sqsh")
    shutil.rmtree(rootfs)
    before = set(entries(lab)[1])
    for victim in ("acequia-box", "unsquashfs"):
        number = lab.submit(image, "#!/bin/sh\ncat /word\n")
        found = []

        def seen():
            names = programs_of(number)
            found[:] = [p for p, name in names if name.startswith(victim[:15])] if any(n == "unsquashfs" for _, n in names) else []
            return found or lab.job(number)["state"].upper() in ("COMPLETED", "FAILED")
        wait_until(seen, 30, "it does not unpack", 0.001)
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        job = lab.wait(number, "FAILED", "COMPLETED")
        if found:
            assert job["state"].upper() == "FAILED"
            assert set(entries(lab)[1]) == before
        else:
            pytest.skip("it was too fast to be killed")
    done = lab.run(image, "sh", "-c", "cat /word; ls / | grep -c file")
    assert done.stdout == "big\n2000\n", done.stderr
    assert entries(lab)[2] == []


def test_names_are_asked_for_again_and_an_unreachable_registry_is_survived(lab, archive):
    with Registry() as r:
        r.push(archive, "tool:1")
        name = r.name("tool:1")
        assert lab.run(name, "cat", "/word").stdout == "image\n"
        other = save_docker(lab.path("other.tar"), [layer_of(make_rootfs(lab.path("rootfs-other"), "other"))])
        r.push(other, "tool:1")
        assert lab.run(name, "cat", "/word").stdout == "image\n"  # believed for a while
        folder = entries(lab)[0]
        for f in os.listdir(f"{folder}/refs"):
            os.utime(f"{folder}/refs/{f}", (1, 1))
        done = lab.run(name, "cat", "/word")
        assert done.stdout == "other\n", done.stderr
        for f in os.listdir(f"{folder}/refs"):
            os.utime(f"{folder}/refs/{f}", (1, 1))
    done = lab.run(name, "cat", "/word")
    assert done.stdout == "other\n" and "as it was before is used" in done.stderr, done.stderr
    done = lab.run(name.replace("tool", "unknown"), "true")
    assert done.returncode == 127 and "the image cannot be had" in done.stderr and done.stderr.count("FAILED") == 1


# --- failures are one sentence ---

def test_what_is_no_image(lab):
    with open(lab.path("text"), "w", encoding="utf-8") as f:
        f.write("hello\n" * 100)
    with open(lab.path("broken.sqsh"), "wb") as f:
        f.write(b"hsqs" + b"\0" * 24 + b"\4\0\0\0" + b"\1" * 4000)
    os.makedirs(lab.path("empty"), exist_ok=True)
    os.makedirs(lab.path("bad-bundle"), exist_ok=True)
    with open(lab.path("bad-bundle/config.json"), "w", encoding="utf-8") as f:
        f.write("{ nonsense")
    for image, words in ((lab.path("text"), "is not an image that is known here"), (lab.path("broken.sqsh"), "cannot be unpacked"),
                         (lab.path("empty"), "neither a root file system nor an OCI bundle"), (lab.path("bad-bundle"), "config.json"),
                         (lab.path("nosuch"), "does not exist"), ("what is this", "neither a file or folder here nor a name")):
        done = lab.run(image, "true")
        assert done.returncode == 127 and words in done.stderr, (image, done.stderr)


# --- images that mean harm ---

@needs_root
def test_hostile_layers(lab):
    """Paths that lead out, through links and above the top; whiteouts outside; devices; setuid files."""
    target = tempfile.mkdtemp(prefix="acequia-target-", dir="/var/tmp")  # no container sees this place
    os.chmod(target, 0o777)
    with open(f"{target}/keep", "w", encoding="utf-8") as f:
        f.write("kept\n")
    os.chmod(f"{target}/keep", 0o666)
    busybox = open(shutil.which("busybox"), "rb").read()
    up = "../" * 12 + target.lstrip("/")
    hostile = [
        layer_with(member("a", kind=tarfile.SYMTYPE, link=target), member("a/through", b"bad")),
        layer_with(member(f"{up}/above", b"bad")),
        layer_with(member(f"{target}/absolute", b"bad")),
        layer_with(member("b", kind=tarfile.SYMTYPE, link=up), member("b/.wh.keep", b"")),
        layer_with(member("c", kind=tarfile.SYMTYPE, link=target), member("c/.wh..wh..opq", b"")),
        layer_with(member(f"{up}/.wh.keep", b"")),
        layer_with(member("d", kind=tarfile.LNKTYPE, link=f"{up}/keep")),
        layer_with(member("dev/mem0", kind=tarfile.CHRTYPE, devmajor=1, devminor=1, mode=0o666)),
        layer_with(member("bin/su0", busybox, mode=0o6755, uid=0, gid=0)),
        layer_with(member("home", kind=tarfile.SYMTYPE, link=target), member("tmp", kind=tarfile.SYMTYPE, link=target),
                   member("sys", kind=tarfile.SYMTYPE, link=target), member("etc/passwd", kind=tarfile.SYMTYPE, link=f"{target}/keep"),
                   member("etc/hosts", kind=tarfile.SYMTYPE, link=f"{target}/hosts")),
    ]
    for i, layer in enumerate(hostile):
        image = save_docker(lab.path(f"hostile{i}.tar"), [layer_of(lab.rootfs), layer])
        done = lab.run(image, "sh", "-c", "cat /word; su0 id -u 2>/dev/null; id -u", options=["--container-mounts", f"{lab.path('data') if os.path.isdir(lab.path('data')) else lab.home}:/a/b/c"])
        assert done.returncode in (0, 127), (i, done.stderr)
        if done.returncode == 0:
            assert done.stdout.startswith("image\n") and not re.search(r"^0$", done.stdout, re.M), (i, done.stdout)
        else:
            assert done.stderr.count("FAILED") == 1, (i, done.stderr)
        assert sorted(os.listdir(target)) == ["keep"], (i, os.listdir(target))
        with open(f"{target}/keep", encoding="utf-8") as f:
            assert f.read() == "kept\n", i
    for folder, _, files in os.walk(f"{lab.c.home}/images"):
        for f in files:
            st = os.lstat(f"{folder}/{f}")
            assert st.st_uid in (NOBODY.pw_uid, 0) and not (st.st_mode & 0o170000 == 0o020000), f"{folder}/{f}"
    shutil.rmtree(target)


@needs_root
def test_hostile_root_file_systems(lab):
    """Mount points that are links to the outside, in a folder that needs no unpacking."""
    target = tempfile.mkdtemp(prefix="acequia-target-", dir="/var/tmp")
    os.chmod(target, 0o777)
    rootfs = make_rootfs(lab.path("rootfs-links"))
    for name in ("dev", "proc", "tmp", "sys", ".acequia", "x"):
        os.symlink(target, f"{rootfs}/{name}")
    shutil.rmtree(f"{rootfs}/home")
    os.symlink(target, f"{rootfs}/home")
    os.makedirs(lab.path("data"), exist_ok=True)
    for user in (True, False):
        done = lab.run(rootfs, "sh", "-c", "cat /word", user=user, options=["--container-mounts", f"{lab.path('data')}:/x/y,{lab.path('data')}:/home/z"])
        assert os.listdir(target) == [], (user, done.stderr)
        assert done.returncode in (0, 127)
    shutil.rmtree(target)


@needs_root
def test_devices_in_a_squashfs_are_left_out(lab):
    rootfs = make_rootfs(lab.path("rootfs-dev"), "devices")
    os.mknod(f"{rootfs}/own/memory", 0o666 | 0o020000, os.makedev(1, 1))
    os.chmod(f"{rootfs}/bin/busybox", 0o4755)
    image = lab.squashfs(rootfs, "devices.sqsh")
    for user in (True, False):
        done = lab.run(image, "sh", "-c", "cat /word; ls /own; id -u", user=user)
        assert done.returncode == 0, done.stderr
        assert "memory" not in done.stdout and done.stdout.endswith(f"{NOBODY.pw_uid if user else 0}\n")


@needs_root
def test_users_images_are_apart(lab, archive):
    lab.run(archive, "true")
    lab.run(archive, "true", user=False)
    top = f"{lab.c.home}/images"
    assert os.stat(top).st_uid == 0 and os.stat(top).st_mode & 0o777 == 0o711
    mine, roots = os.stat(f"{top}/{NOBODY.pw_uid}"), os.stat(f"{top}/0")
    assert (mine.st_uid, mine.st_mode & 0o777) == (NOBODY.pw_uid, 0o700)
    assert (roots.st_uid, roots.st_mode & 0o777) == (0, 0o700)


# --- GPUs ---

LOOK = """import ctypes, glob, json, os
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
total = ctypes.c_size_t()
assert cuda.cuDeviceTotalMem_v2(ctypes.byref(total), 0) == 0
maps = open("/proc/self/maps").read()
print(json.dumps({"total": total.value >> 20, "devices": sorted(os.path.basename(p) for p in glob.glob("/dev/nvidia*")),
                  "shim": "shim/libcuda.so.1" in maps, "driver": "/.acequia/nvidia/lib64" in os.environ.get("LD_LIBRARY_PATH", ""),
                  "libraries": os.listdir("/.acequia/nvidia/lib64")}))
"""


@pytest.fixture()
def device_files():
    """Where this machine has no GPU: device files with the numbers of NVIDIA's, for a while."""
    wanted = {"/dev/nvidia0": (195, 0), "/dev/nvidia1": (195, 1), "/dev/nvidiactl": (195, 255)}
    made = [p for p in wanted if not os.path.exists(p)]
    for p in made:
        os.mknod(p, 0o666 | 0o020000, os.makedev(*wanted[p]))
    yield
    for p in made:
        os.unlink(p)


@needs_root
def test_a_part_of_a_gpu_in_a_container(tmp_path, monkeypatch, device_files):
    """The driver's libraries and exactly the job's devices are there, and the shim before them."""
    pretended = Pretended(tmp_path, monkeypatch)
    os.symlink(pretended.cuda, tmp_path / "driver" / "libcuda.so.1")
    image = tmp_path / "bundle"
    os.makedirs(image / "rootfs" / "etc")
    for name in ("bin", "lib", "lib64", "sbin"):
        os.symlink(f"usr/{name}", image / "rootfs" / name)
    with open(image / "config.json", "w", encoding="utf-8") as f:
        json.dump({"root": {"path": "rootfs"}, "mounts": [{"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"]}]}, f)
    with open(tmp_path / "look.py", "w", encoding="utf-8") as f:
        f.write(LOOK)
    with pretended.cluster as c:
        def look(*options, word="run"):
            done = c.cli(word, *options, "--container", str(image), "--", "/usr/bin/python3", str(tmp_path / "look.py"), check=False, cwd=str(tmp_path))
            assert done.returncode == 0, done.stderr
            return json.loads(done.stdout)
        quarter = look("--gpus", "0.25")
        assert quarter["shim"] and quarter["driver"] and sorted(quarter["libraries"]) == ["libcuda.so.1", "libnvidia-ml.so.1"], quarter
        assert len([d for d in quarter["devices"] if d[6:].isdigit()]) == 1 and "nvidiactl" in quarter["devices"]
        whole = look("--gpus", "1")
        assert not whole["shim"] and len([d for d in whole["devices"] if d[6:].isdigit()]) == 1
        assert quarter["total"] < whole["total"]
        both = look("--gpus", "2")
        assert {"nvidia0", "nvidia1"} <= set(both["devices"])
        none = c.cli("run", "--container", str(image), "--", "sh", "-c", "ls /dev; ls -A /.acequia", cwd=str(tmp_path)).stdout
        assert "nvidia" not in none


def test_the_shim_loads_with_old_c_libraries():
    """Images bring their own C library: nothing younger than 2014's may be asked of it."""
    build = os.path.dirname(os.path.dirname(os.path.dirname(find_binary())))
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        path = f"{build}/src/shim/{name}"
        if not os.path.exists(path) or not shutil.which("objdump"):
            pytest.skip("not a build folder")
        table = subprocess.run(["objdump", "-T", path], capture_output=True, text=True, check=True).stdout
        if "__asan" in table or "__tsan" in table:
            pytest.skip("built with sanitizers")
        versions = {tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([\d.]+)", table)}
        assert max(versions) <= (2, 17), sorted(versions)
