"""The README's two commands in a Debian 12 that has nothing but a shell and apt (debootstrap): as root, and as a user
with sudo, each from a fresh clone."""
import os
import re
import shutil
import subprocess
import tempfile

import pytest

from test_deb import Chroot, ROOT, debootstrap, mirror, run

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def debian():
    if os.geteuid() != 0 or not shutil.which("debootstrap") or not mirror():
        pytest.skip("needs root, debootstrap and a package mirror")
    root = Chroot(tempfile.mkdtemp(prefix="acequia-bare-"))
    try:
        debootstrap(root)
        os.chmod(root.path, 0o755)
        yield root
    finally:
        root.close()


def clone(root, folder):
    """A fresh clone; made outside, because there is no git in there."""
    run("git", "clone", "-q", "--no-hardlinks", ROOT, root.path + folder)


def in_root(root, line, limit=2400):
    """A line of sh, with nothing of our environment."""
    clean = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp", "TERM": "dumb"}
    r = subprocess.run(["chroot", root.path, "/bin/sh", "-c", line], env=clean, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, timeout=limit)
    assert r.returncode == 0, f"{line}: {r.returncode}\n{r.stdout[-3000:]}"
    return r.stdout


def is_up(said, user):
    assert re.search(r"^job \d+ runs on \S+ as " + user + "$", said, re.M) and "step 5 of 5" in said, said
    assert "The cluster is running" in said


def test_up_as_root(debian):
    assert "make" not in in_root(debian, "ls /usr/bin | grep -x make || true")
    clone(debian, "/srv/acequia")
    is_up(in_root(debian, "cd /srv/acequia && ./run up"), "root")
    assert "ran by root" in in_root(debian, "cd /srv/acequia && build/src/cli/acequia run -- sh -c 'echo ran by $(id -un)'")
    assert in_root(debian, "cd /srv/acequia && ./run down").strip() == "Stopped"


def test_up_as_a_user_with_sudo(debian):
    in_root(debian, "apt-get install -y --no-install-recommends sudo && useradd -m -s /bin/sh joan && "
                    "echo 'joan ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/joan && apt-get purge -y meson ninja-build libuv1-dev")
    clone(debian, "/home/joan/acequia")
    in_root(debian, "chown -R joan: /home/joan")
    is_up(in_root(debian, "su - joan -c 'cd acequia && ./run up'"), "joan")
    assert in_root(debian, "su - joan -c 'cd acequia && ./run down'").strip() == "Stopped"


def test_a_user_without_sudo_is_told(debian):
    in_root(debian, "useradd -m -s /bin/sh eva; SUDO_FORCE_REMOVE=yes apt-get purge -y sudo libcmocka-dev; cp -r /home/joan/acequia /home/eva/; chown -R eva: /home/eva")
    r = subprocess.run(["chroot", debian.path, "/bin/su", "-", "eva", "-c", "cd acequia && ./run up"], stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, timeout=60)
    assert r.returncode == 1 and "run this as root or install sudo; missing packages: libcmocka-dev" in r.stdout, r.stdout


def test_the_tests_set_themselves_up(debian):
    """./run test up to its first tests: it installs what they need and builds everything. All of them take long."""
    said = in_root(debian, "cd /srv/acequia && tools/setup --test && tools/build build && "
                           "meson test -C build --no-rebuild base-base base-json model-config core")
    assert re.search(r"^Fail: +0", said, re.M), said[-2000:]
