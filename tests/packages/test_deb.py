"""The Debian package in a root of its own (debootstrap): installed, used, upgraded under a running job, removed, purged."""
import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import time

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
pytestmark = pytest.mark.long


def run(*command, check=True, limit=900, **more):
    r = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit, **more)
    assert not check or r.returncode == 0, f"{' '.join(command)}: {r.returncode}\n{r.stdout[-3000:]}"
    return r.stdout


def mirror():
    """Where this machine's own packages come from."""
    folders = ["/etc/apt/sources.list", *sorted(
        os.path.join("/etc/apt/sources.list.d", f) for f in os.listdir("/etc/apt/sources.list.d"))]
    for path in folders:
        if not os.path.isfile(path):
            continue
        with open(path) as f:
            text = f.read()
        found = re.search(r"^(?:deb (?:\[[^\]]*\] )?|URIs: )(\S+)", text, re.M)
        if found:
            return found.group(1)
    return None


def build_deb(folder, version):
    out = run(os.path.join(ROOT, "tools/deb"), folder, cwd=ROOT, limit=1800, env=dict(os.environ, ACEQUIA_DEB_VERSION=version))
    return out.strip().splitlines()[-1]


def debootstrap(root, *options):
    """A fresh Debian. What was fetched once is kept below build/ for the next one, and nothing in it needs to survive a
    power failure: that is most of the time it takes."""
    kept = os.path.join(ROOT, "build", "debian-packages")
    os.makedirs(os.path.join(kept, "partial"), exist_ok=True)
    run("debootstrap", "--variant=minbase", f"--cache-dir={kept}", *options, "bookworm", root.path, mirror(), limit=1800)
    for name in ("/etc/apt/apt.conf.d", "/etc/apt/sources.list.d", "/etc/apt/sources.list"):
        if os.path.isdir(name):
            shutil.copytree(name, root.path + name, dirs_exist_ok=True)
        elif os.path.exists(name):
            shutil.copy(name, root.path + name)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{root.path}/etc/apt/apt.conf.d/docker-clean")  # of images of Debian: removes what was fetched
    with open(f"{root.path}/etc/dpkg/dpkg.cfg.d/unsafe", "w", encoding="ascii") as f:
        f.write("force-unsafe-io\n")
    with open(f"{root.path}/etc/apt/apt.conf.d/99keep", "w", encoding="ascii") as f:
        f.write('Binary::apt::APT::Keep-Downloaded-Packages "1";\nAPT::Keep-Downloaded-Packages "1";\n')
    root.mount("-t", "proc", "proc", "/proc")
    root.mount("-t", "tmpfs", "tmpfs", "/run")
    root.mount("--rbind", "/sys", "/sys")
    root.mount("--bind", "/dev", "/dev")
    root.mount("--bind", kept, "/var/cache/apt/archives")


class Chroot:
    def __init__(self, path):
        self.path = path
        self.mounts = []

    def mount(self, *arguments):
        target = os.path.join(self.path, arguments[-1].lstrip("/"))
        os.makedirs(target, exist_ok=True)
        run("mount", *arguments[:-1], target)
        self.mounts.append(target)

    def sh(self, line, check=True):
        return run("chroot", self.path, "/bin/bash", "-lc", line, check=check)

    def close(self):
        self.sh("test -x /usr/bin/acequia && acequia down || true", check=False)
        for target in reversed(self.mounts):
            run("umount", "-l", target, check=False)
        shutil.rmtree(self.path, ignore_errors=True)


@pytest.fixture(scope="module")
def debian():
    if os.geteuid() != 0 or not shutil.which("debootstrap") or not mirror():
        pytest.skip("needs root, debootstrap and a package mirror")
    path = tempfile.mkdtemp(prefix="acequia-deb-")
    root = Chroot(path)
    try:
        debootstrap(root, "--include=systemd,man-db,procps")
        yield root
    finally:
        root.close()


def install(root, deb):
    shutil.copy(deb, root.path + "/tmp/")
    return root.sh(f"apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends /tmp/{os.path.basename(deb)}")


def test_package(debian, tmp_path):
    first, second = build_deb(str(tmp_path), "0.1.0~test1"), build_deb(str(tmp_path), "0.1.0~test2")
    said = install(debian, first)
    assert "acequia token create" in said
    assert "acequia" in debian.sh("command -v acequia") and "/usr/lib/acequia/slurm/sbatch" in debian.sh("command -v sbatch")
    assert "ACEQUIA" in debian.sh("man -P cat acequia-submit | head -n 3").upper()
    for unit in ("acequia-controller", "acequia-agent"):
        assert "acequia" not in debian.sh(f"systemd-analyze verify /usr/lib/systemd/system/{unit}.service 2>&1 || true")

    # Logins: programs that are not writable by others, the service of PAM that its users are checked by, the portal.
    assert debian.sh("stat -c '%U %a' /usr/libexec/acequia/acequia-pam /usr/libexec/acequia/acequia-oidc").split() == ["root", "755"] * 2
    debian.sh("useradd tester && echo tester:horse-77 | chpasswd")
    for word, verdict in (("horse-77", "0"), ("horse-78", "1")):
        said = debian.sh(f"printf 'acequia\\000tester\\000127.0.0.1\\000{word}\\000' | /usr/libexec/acequia/acequia-pam; echo verdict $?")
        assert said.split()[-2:] == ["verdict", verdict], said
    if shutil.which("npm"):
        assert os.path.exists(debian.path + "/usr/libexec/acequia/portal.pack")

    debian.sh("acequia up")
    assert debian.sh("acequia run -- echo ready").strip().endswith("ready")
    job = debian.sh("acequia submit --quiet -o /tmp/job.out -- sh -c 'sleep 20; echo finished'").split()[-1]
    for _ in range(100):
        if "RUNNING" in debian.sh(f"acequia list --no-heading --columns state {job}"):
            break
        time.sleep(0.2)
    install(debian, second)
    debian.sh("acequia down && acequia up")
    debian.sh(f"acequia wait {job}")
    assert "finished" in debian.sh("cat /tmp/job.out")
    assert "0.1.0~test2" in debian.sh("dpkg-query -W acequia")

    debian.sh("acequia down")
    debian.sh("apt-get remove -y acequia")
    assert not os.path.exists(debian.path + "/usr/bin/acequia")
    assert os.path.exists(debian.path + "/etc/profile.d/acequia-slurm.sh"), "configuration stays until purge"
    said = debian.sh("apt-get purge -y acequia")
    assert not os.path.exists(debian.path + "/etc/profile.d/acequia-slurm.sh")
    assert "/var/lib/acequia" in said
