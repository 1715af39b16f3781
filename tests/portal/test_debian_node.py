"""The portal built by Debian's own pair of Node and npm, in a Debian of its own (debootstrap), besides what is installed here; and what it has
built is shown by a browser. Run by make test-portal-debian."""
import os
import re
import shutil
import subprocess
import tempfile

import pytest

from tests.lab import browser
from tests.lab.cluster import Cluster
from tests.packages.test_deb import ROOT, Chroot, mirror, run

pytestmark = pytest.mark.long
BUILD = os.path.abspath(os.environ.get("BUILD", f"{ROOT}/build"))
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
ACEQUIAD = f"{BUILD}/src/acequiad/acequiad"


@pytest.fixture(scope="module", name="debian")
def _debian():
    if os.geteuid() != 0 or not shutil.which("debootstrap") or not mirror():
        pytest.skip("needs root, debootstrap and a package mirror")
    root = Chroot(tempfile.mkdtemp(prefix="acequia-portal-"))
    try:
        run("debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", root.path, mirror(), limit=1800)
        shutil.copytree("/etc/apt/apt.conf.d", f"{root.path}/etc/apt/apt.conf.d", dirs_exist_ok=True)
        for name in ("/etc/resolv.conf", AUTHORITIES):
            if os.path.exists(name):
                shutil.copy(name, root.path + name)
        # As here, but for sources that are not Debian's: its own Node is wanted.
        with open(f"{root.path}/etc/apt/sources.list", "w", encoding="ascii") as f:
            f.write(f"deb {mirror()} bookworm main\n")
        root.mount("-t", "proc", "proc", "/proc")
        root.mount("--bind", "/dev", "/dev")
        yield root
    finally:
        root.close()


def libraries():
    """Debian packages of what acequiad is linked with: the build asks it for the API's description."""
    paths = re.findall(r"=> (/\S+)", run("ldd", ACEQUIAD))
    found = (re.match(r"([^:,\s]+)", run("dpkg-query", "-S", f"*{os.path.basename(os.path.realpath(p))}", check=False)) for p in paths)
    return sorted({m.group(1) for m in found if m and m.group(1).startswith("lib")})


def npm_settings():
    """Where npm gets packages from on this machine."""
    registry = subprocess.run(["npm", "config", "get", "registry"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
    return {"npm_config_registry": registry.strip(), "NODE_EXTRA_CA_CERTS": AUTHORITIES}


def test_debians_node_and_npm_build_the_portal(debian):
    def inside(line, limit=1500, **more):
        clean = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive", **more}
        r = subprocess.run(["chroot", debian.path, "/bin/sh", "-c", line], env=clean, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           timeout=limit, check=False)
        assert r.returncode == 0, f"{line}: {r.returncode}\n{r.stdout[-3000:]}"
        return r.stdout

    inside("apt-get -q update && apt-get -q install -y --no-install-recommends nodejs npm " + " ".join(libraries()))
    versions = inside("node --version; npm --version").split()
    assert versions[0].startswith("v18.") and versions[1].startswith("9."), versions
    run("git", "clone", "-q", "--no-hardlinks", ROOT, f"{debian.path}/srv/acequia")
    os.makedirs(f"{debian.path}/srv/acequia/build/src/acequiad")
    shutil.copy(ACEQUIAD, f"{debian.path}/srv/acequia/build/src/acequiad/acequiad")
    said = inside("cd /srv/acequia && tools/portal build --check", **npm_settings())
    assert "first load" in said, said
    pack = f"{debian.path}/srv/acequia/build/portal/portal.pack"
    if not browser.PROGRAM:
        return
    with Cluster(config=f"[portal]\nfile = {pack}\n") as c, browser.Browser() as b:
        page = b.page()
        page.goto(c.api.post("/v1/portal", {})["url"])
        page.wait_text("GPUs in use")
        assert page.problems == []
