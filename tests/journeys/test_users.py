"""A directory of users that does not answer: a real module of the name service, in a mount namespace
of its own. Who is known works on, who is not waits for a bounded time, and nobody else notices."""
import os
import pwd
import shutil
import subprocess
import time

import pytest

from tests.lab.cluster import Cluster, find_binary
from tests.lab.proc import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("gcc"), reason="needs root and a compiler")
CONFIG = "[cluster]\nheartbeat = 1s\nnode_timeout = 3s\ngrace = 1s\n[node *]\ncpus = 8\n"
NOBODY = pwd.getpwnam("nobody")
AS_NOBODY = ["setpriv", "--reuid", "nobody", "--regid", str(NOBODY.pw_gid), "--clear-groups"]
MODULE = r"""
#include <nss.h>
#include <pwd.h>
#include <grp.h>
#include <unistd.h>
#include <errno.h>
// Knows nobody; while the file is there it does not even say so.
static enum nss_status none(int *e) {
    while (access(FLAG, F_OK) == 0)
        usleep(20000);
    *e = ENOENT;
    return NSS_STATUS_NOTFOUND;
}
enum nss_status _nss_mute_getpwuid_r(uid_t u, struct passwd *p, char *b, size_t n, int *e) { return none(e); }
enum nss_status _nss_mute_getpwnam_r(const char *u, struct passwd *p, char *b, size_t n, int *e) { return none(e); }
enum nss_status _nss_mute_initgroups_dyn(const char *u, gid_t g, long *s, long *z, gid_t **l, long m, int *e) { return none(e); }
"""


class Mute:
    """The cluster's program, under a name service that can be made to hang."""

    def __init__(self, folder):
        self.flag = folder / "mute"
        (folder / "mute.c").write_text(MODULE)
        subprocess.run(["gcc", "-shared", "-fPIC", f'-DFLAG="{self.flag}"', "-o", folder / "libnss_mute.so.2", folder / "mute.c"], check=True)
        lines = [f"{line.split(':')[0]}: mute files\n" if line.startswith(("passwd:", "group:")) else line
                 for line in open("/etc/nsswitch.conf", encoding="utf-8")]
        (folder / "nsswitch.conf").write_text("".join(lines))
        self.program = folder / "acequia"
        self.program.write_text(f"#!/bin/sh\nexport LD_LIBRARY_PATH={folder}\nexec unshare -m sh -c 'mount --bind {folder}/nsswitch.conf "
                                f"/etc/nsswitch.conf && exec {find_binary()} \"$@\"' sh \"$@\"\n")
        self.program.chmod(0o755)

    def hang(self):
        self.flag.touch()

    def answer(self):
        self.flag.unlink(missing_ok=True)


@pytest.fixture
def mute(tmp_path):
    m = Mute(tmp_path)
    yield m
    m.answer()


def client(c, *words, **how):
    return subprocess.Popen([*AS_NOBODY, find_binary(), *words], env=c.env, cwd="/tmp", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how)


def goes_on(c, seconds):
    until = time.monotonic() + seconds
    while True:
        assert c.nodes_up(), "the node was lost"
        done = subprocess.run([find_binary(), "run", "--", "echo", "meanwhile"], env=c.env, capture_output=True, text=True, timeout=120, check=False)
        assert done.stdout == "meanwhile\n", done
        if time.monotonic() >= until:
            return
        time.sleep(0.3)


@pytest.mark.long
def test_the_controller_does_not_wait_for_a_directory(mute):
    with Cluster(config=CONFIG, binary=str(mute.program)) as c:
        goes_on(c, 0)
        mute.hang()
        asking = client(c, "submit", "-o", "/dev/null", "--", "true")
        goes_on(c, 5)
        assert asking.poll() is None
        _, err = asking.communicate(timeout=180)
        assert asking.returncode and "directory of users does not answer" in err, err
        mute.answer()
        wait_until(lambda: client(c, "submit", "-o", "/dev/null", "--", "true").wait(20) == 0, 20, "it is not asked again")


def test_an_agent_does_not_wait_for_a_directory(mute):
    with Cluster(config=CONFIG, binary=str(mute.program)) as c:
        assert client(c, "run", "--", "true").wait(180) == 0  # the controller knows them
        node = c.nodes_up()[0]
        c.kill_agent(node)
        c.start_agent(node)
        wait_until(c.nodes_up, 10, "the node does not come back")
        goes_on(c, 0)
        mute.hang()
        texts = [client(c, "submit", "-Q", "-o", "/dev/null", "--", "true").communicate(timeout=180)[0] for _ in range(3)]
        quick, cancelled, late = (int(t) for t in texts)
        goes_on(c, 4)
        record = {j: c.api.get(f"/v1/jobs/{j}") for j in (quick, cancelled, late)}
        assert all(r["state"] == "STARTING" and r["attempt"] == 1 for r in record.values()), record
        c.api.post("/v1/jobs/cancel", {"ids": [str(cancelled)]})
        wait_until(lambda: c.api.get(f"/v1/jobs/{cancelled}")["state"] == "CANCELLED", 60, "it cannot be cancelled")
        c.api.post("/v1/jobs/cancel", {"ids": [str(quick)]})
        # The node says in time that it cannot, and the job is tried again; nothing of it ran.
        wait_until(lambda: c.api.get(f"/v1/jobs/{late}")["attempt"] > 1, 30, "it is not queued again")
        goes_on(c, 1)
        assert c.api.get(f"/v1/jobs/{late}")["attempt"] == 2
        events = c.api.get(f"/v1/jobs/{late}/events")["events"]
        assert any("directory of users does not answer" in str(e.get("reason")) for e in events), events
        mute.answer()
        wait_until(lambda: c.api.get(f"/v1/jobs/{late}")["state"] == "COMPLETED", 20, "it does not run")
