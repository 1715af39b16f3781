"""The controller's disk: full, and full again while jobs run. Nothing acknowledged is lost, running
jobs go on, new ones are refused with a sentence, and work resumes when there is room."""
import os
import socket
import subprocess
import time

import pytest

from tests.lab import command
from tests.lab.api import ApiError
from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")


class SmallDisk(Cluster):
    """A cluster whose state folder is a tmpfs of 160 MiB."""

    def _write_config(self):
        super()._write_config()
        self.state = f"{self.home}/state"
        os.makedirs(self.state, mode=0o700)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160m,mode=700", "tmpfs", self.state], check=True)

    def down(self):
        state = getattr(self, "state", None)
        if state and os.path.ismount(state):
            subprocess.run(["umount", "-l", state], check=False)
        super().down()


def test_full_disk_refuses_new_work_and_keeps_what_runs():
    with SmallDisk() as c:
        spec = {"name": "t", "workdir": "/tmp", "output": "/dev/null", "argv": ["sleep", "2"]}
        running = [c.api.post("/v1/jobs", {"spec": spec})["id"] for _ in range(2)]
        wait_until(lambda: c.api.get("/v1/status")["jobs"]["RUNNING"] == 2, 10, "jobs do not start")
        fill = f"{c.state}/filler"
        with open(fill, "wb") as f:
            try:
                while True:
                    f.write(b"x" * (1 << 20))
                    f.flush()
            except OSError:
                pass
        with pytest.raises(ApiError) as refused:
            for _ in range(2000):
                c.api.post("/v1/jobs", {"spec": dict(spec, name="x" * 200)})
        assert refused.value.status == 503 and c.state in str(refused.value) and "Make room" in str(refused.value), refused.value
        time.sleep(3)
        os.unlink(fill)
        for job in running:
            record = c.api.get(f"/v1/jobs/{job}/wait?timeout_s=20")
            assert record["state"] == "COMPLETED" and record["attempt"] == 1, record
        wait_until(lambda: try_submit(c, spec), 20, "submits are not taken again")


def try_submit(c, spec):
    try:
        c.api.post("/v1/jobs", {"spec": spec})
        return True
    except (ApiError, OSError):
        return False


def test_acknowledged_jobs_survive_kill_9_right_after():
    with Cluster() as c:
        spec = {"name": "t", "workdir": "/tmp", "output": "/dev/null", "argv": ["true"], "hold": True}
        ids = [c.api.post("/v1/jobs", {"spec": spec})["id"] for _ in range(100)]
        c.kill_controller()
        c.start_controller()
        c.wait_ready()
        assert [j["id"] for j in c.api.get("/v1/jobs")["jobs"]] == ids


def test_a_second_controller_is_refused():
    with Cluster() as c:
        done = subprocess.run([c.binary, "controller"], env=c.env, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1
        assert c.answers()


def test_a_removed_database_is_noticed_before_work_is_taken():
    c = command.Cluster()
    try:
        c.acequia("run", "--", "true")
        os.unlink(os.path.join(c.home, "state", "acequia.db"))
        r = c.run("submit", "--", "true")
        assert r.returncode == 1 and "has been removed" in r.stderr
        assert "has been removed" in " ".join(c.acequia("status").split())
    finally:
        c.close()


FAILING_SYNC = """#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
// While the file $BAD_DISK exists, every third sync or so fails.
static unsigned state = 12345;
static int fails(void) {
    const char *flag = getenv("BAD_DISK");
    state = state * 1103515245u + 12345u;
    return flag && access(flag, F_OK) == 0 && (state >> 16) % 3 == 0;
}
int fdatasync(int fd) {
    if (fails()) { errno = EIO; return -1; }
    return (int)syscall(SYS_fdatasync, fd);
}
int fsync(int fd) {
    if (fails()) { errno = EIO; return -1; }
    return (int)syscall(SYS_fsync, fd);
}
"""


def test_failing_syncs_lose_nothing_that_was_acknowledged(tmp_path):
    """A controller whose disk fails every third sync: answers are late or refused, never wrong."""
    source, library = tmp_path / "sync.c", tmp_path / "sync.so"
    source.write_text(FAILING_SYNC)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    with Cluster() as c:
        c.kill_controller()
        c.env.update(LD_PRELOAD=str(library), BAD_DISK=str(tmp_path / "bad"))
        c.start_controller()
        c.wait_ready()
        del c.env["LD_PRELOAD"]
        (tmp_path / "bad").touch()
        spec = {"name": "t", "workdir": "/tmp", "output": "/dev/null", "argv": ["true"], "hold": True}
        acknowledged, refused = [], 0
        end = time.monotonic() + 20
        while len(acknowledged) < 12 and time.monotonic() < end:
            try:
                acknowledged.append(c.api.post("/v1/jobs", {"spec": spec, "key": f"k{len(acknowledged)}"})["id"])
            except (ApiError, OSError):
                refused += 1
                time.sleep(0.05)
        assert len(acknowledged) >= 5, "nothing was taken"
        log = "".join(open(f"{c.home}/log/{f}", encoding="utf-8", errors="replace").read() for f in os.listdir(f"{c.home}/log"))
        assert "cannot be written" in log, "no sync failed: the test tests nothing"
        c.kill_controller()
        c.start_controller()
        c.wait_ready()
        kept = {j["id"] for j in c.api.get("/v1/jobs")["jobs"]}
        assert set(acknowledged) <= kept
        assert len(set(acknowledged)) == len(acknowledged)


def test_others_are_served_while_the_past_is_played_back():
    """On a thread of its own, one question at a time."""
    with Cluster() as c:
        spec = {"name": "t", "workdir": "/tmp", "output": "/dev/null", "argv": ["true"], "hold": True, "array": [{"first": 0, "last": 29999, "step": 1}]}
        job = c.api.post("/v1/jobs", {"spec": spec})["id"]
        c.api.post("/v1/jobs/cancel", {"ids": [str(job)]})
        at = int(time.time() * 1000)
        asking = [subprocess.Popen([c.binary, *words], env=c.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                  for words in (["replay"], ["replay"])]
        answered = 0
        while any(p.poll() is None for p in asking):
            c.api.get("/v1/status")
            answered += any(p.poll() is None for p in asking)
        told = [p.communicate()[0] + p.communicate()[1] for p in asking]
        assert any("All decisions are the same" in t for t in told), told
        assert any("replayed for another request" in t for t in told), told
        assert answered >= 2, "no request was answered while the events were replayed"
        assert c.api.get(f"/v1/jobs/{job}/why?at_ms={at}")["state"] == "CANCELLED"


class SmallSpool(Cluster):
    """A cluster whose agent has its spool on a tmpfs of 2 MiB."""

    def _write_config(self):
        super()._write_config()
        self.folder = f"{self.home}/agent-{socket.gethostname().split('.')[0]}"
        os.makedirs(self.folder, mode=0o700)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", self.folder], check=True)

    def down(self):
        folder = getattr(self, "folder", None)
        super().down()
        if folder and os.path.ismount(folder):
            subprocess.run(["umount", "-l", folder], check=False)


def test_a_node_whose_spool_is_full_harms_no_job_and_is_tried_again():
    with SmallSpool() as c:
        assert os.path.isdir(f"{c.folder}/spool")
        fill = f"{c.folder}/filler"
        with open(fill, "wb", buffering=0) as f:
            try:
                while f.write(b"x" * 4096):
                    pass
            except OSError:
                pass
        spec = {"name": "t", "workdir": "/tmp", "output": "/dev/null", "argv": ["true"], "requeue": False}
        jobs = [c.api.post("/v1/jobs", {"spec": spec})["id"] for _ in range(30)]

        def node():
            return c.api.get("/v1/nodes")["nodes"][0]

        wait_until(lambda: node()["launch_failures"] >= 2, 60, "the node's failures are not counted")
        assert "space" in node()["reason"], node()
        status = c.api.get("/v1/status")["jobs"]
        assert not status.get("FAILED") and not status.get("NODE_FAIL"), status
        # Launches were sent in a few bursts, not again and again.
        placed = sum("job_placed" in line for line in c.cli("events", str(jobs[0])).stdout.splitlines())
        assert placed <= 3, placed
        os.unlink(fill)
        wait_until(lambda: c.api.get("/v1/status")["jobs"].get("COMPLETED", 0) == 30, 120, "the jobs do not run after all")
        assert node()["launch_failures"] == 0 and not node().get("reason")


READ_ONLY = """#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>
// While the file $READ_ONLY exists, nothing can be written, as on a file system that the kernel has made read-only.
static int refused(void) {
    const char *flag = getenv("READ_ONLY");
    if (!flag || access(flag, F_OK) != 0) return 0;
    errno = EROFS;
    return 1;
}
ssize_t pwrite64(int fd, const void *p, size_t n, off_t at) { return refused() ? -1 : syscall(SYS_pwrite64, fd, p, n, at); }
ssize_t pwrite(int fd, const void *p, size_t n, off_t at) { return pwrite64(fd, p, n, at); }
int ftruncate64(int fd, off_t n) { return refused() ? -1 : (int)syscall(SYS_ftruncate, fd, n); }
int fdatasync(int fd) { return refused() ? -1 : (int)syscall(SYS_fdatasync, fd); }
int fsync(int fd) { return refused() ? -1 : (int)syscall(SYS_fsync, fd); }
int statvfs64(const char *path, struct statvfs64 *v) {
    int (*next)(const char *, struct statvfs64 *) = dlsym(RTLD_NEXT, "statvfs64");
    int r = next(path, v);
    if (r == 0 && refused()) v->f_flag |= ST_RDONLY;
    return r;
}
int statvfs(const char *path, struct statvfs *v) { return statvfs64(path, (struct statvfs64 *)v); }
"""


def test_a_state_folder_that_becomes_read_only(tmp_path):
    """Nothing is acknowledged that is not kept, jobs run to their ends, and work goes on when it can be written again."""
    source, library, flag = tmp_path / "ro.c", tmp_path / "ro.so", tmp_path / "read-only"
    source.write_text(READ_ONLY)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    with Cluster(config="[cluster]\ngrace = 1s\n[node *]\ncpus = 4\n") as c:
        c.kill_controller()
        c.env.update(LD_PRELOAD=str(library), READ_ONLY=str(flag))
        c.start_controller()
        c.wait_ready()
        del c.env["LD_PRELOAD"]
        spec = {"name": "t", "workdir": "/tmp", "output": "/dev/null", "requeue": False}
        go = f"{c.home}/go"
        job = c.api.post("/v1/jobs", {"spec": dict(spec, argv=["sh", "-c", f"until test -e {go}; do sleep 0.1; done; exit 3"])})["id"]
        wait_until(lambda: c.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 60, "it does not run")
        flag.touch()
        # What was under way waits for its commit; what comes later is refused, and everybody is told why.
        first = subprocess.Popen([c.binary, "submit", "-Q", "-o", "/dev/null", "--", "true"], env=c.env, stdout=subprocess.PIPE, text=True)
        wait_until(lambda: "nothing can be stored right now" in " ".join(c.cli("status").stdout.split()), 30, lambda: c.cli("status").stdout)
        told = " ".join(c.cli("status").stdout.split())
        assert f"{c.home}/state" in told and "Read-only file system" in told and "make that file system writable" in told, told
        done = c.cli("submit", "-o", "/dev/null", "--", "true", check=False, timeout=120)
        assert done.returncode != 0 and "nothing can be stored right now" in done.stderr, done
        assert first.poll() is None
        open(go, "w", encoding="utf-8").close()  # it ends while that cannot be recorded
        time.sleep(2)
        flag.unlink()
        assert first.wait(120) == 0 and c.api.get(f"/v1/jobs/{first.communicate()[0].strip()}")
        wait_until(lambda: c.api.get(f"/v1/jobs/{job}")["state"] == "FAILED", 60, "its end is lost")
        record = c.api.get(f"/v1/jobs/{job}")
        assert record["attempt"] == 1 and record["exit_code"] == 3, record
        assert c.cli("run", "--", "echo", "again").stdout == "again\n"


@pytest.mark.long
def test_a_command_that_waits_for_a_commit_in_vain(tmp_path):
    """Its request was taken in before the disk failed: after its patience it says what the controller waits for."""
    source, library, flag = tmp_path / "ro.c", tmp_path / "ro.so", tmp_path / "read-only"
    source.write_text(READ_ONLY)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    with Cluster(config="[cluster]\ngrace = 1s\n[node *]\ncpus = 4\n") as c:
        c.kill_controller()
        c.env.update(LD_PRELOAD=str(library), READ_ONLY=str(flag))
        c.start_controller()
        c.wait_ready()
        del c.env["LD_PRELOAD"]
        flag.touch()
        done = c.cli("project", "create", "late", check=False, timeout=120)
        told = " ".join(done.stderr.split())
        assert done.returncode and f"{c.home}/state" in told and "Read-only file system" in told, told
        flag.unlink()
        wait_until(lambda: "late" in c.cli("project", "list").stdout, 60, "it is not done when it can be stored")


@pytest.mark.parametrize("how", ["read-only", "full"])
def test_a_controller_that_is_started_on_such_a_folder(how):
    """It starts, or says what is wrong with which folder; nothing is lost."""
    with SmallDisk(config="[cluster]\ngrace = 1s\n[node *]\ncpus = 4\n") as c:
        spec = {"name": "t", "workdir": "/tmp", "output": "/dev/null", "argv": ["true"], "hold": True}
        ids = [c.api.post("/v1/jobs", {"spec": spec})["id"] for _ in range(20)]
        job = c.api.post("/v1/jobs", {"spec": dict(spec, argv=["sleep", "600"], hold=False)})["id"]
        wait_until(lambda: c.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 60, "it does not run")
        c.kill_controller()
        if how == "full":
            with open(f"{c.state}/filler", "wb", buffering=0) as f:
                try:
                    while f.write(b"x" * 4096):
                        pass
                except OSError:
                    pass
        else:
            subprocess.run(["mount", "-o", "remount,ro", c.state], check=True)
        c.start_controller()
        time.sleep(3)
        child = c.children["controller"]
        if child.poll() is None:  # it answers, and refuses what it cannot keep
            c.wait_ready()
            assert len(c.api.get("/v1/jobs?limit=100")["jobs"]) == 21
            with pytest.raises(ApiError) as refused:
                c.api.post("/v1/jobs", {"spec": spec})
            assert refused.value.status == 503
            c.kill_controller()
        else:
            said = c.log_tail("controller", 5)
            assert child.returncode == 1 and c.state in said and ("read-only" in said.lower() or "space" in said or "full" in said), said
        if how == "full":
            os.unlink(f"{c.state}/filler")
        else:
            subprocess.run(["mount", "-o", "remount,rw", c.state], check=True)
        c.start_controller()
        c.wait_ready()
        assert {j["id"] for j in c.api.get("/v1/jobs?limit=100")["jobs"]} >= {*ids, job}
        wait_until(lambda: c.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING" and c.nodes_up(), 60, "the job is lost")
        assert c.api.get(f"/v1/jobs/{job}")["attempt"] == 1
        c.cli("cancel", str(job))
