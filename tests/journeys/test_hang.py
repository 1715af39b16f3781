"""A file system that hangs holds up whoever reads from it, and nobody else."""
import subprocess
import time

import pytest

from tests.lab.cluster import Cluster
from tests.lab.hang import HangingFolder, possible
from tests.lab.proc import wait_until

pytestmark = pytest.mark.skipif(not possible(), reason="needs root and FUSE")
CONFIG = "[cluster]\nheartbeat = 1s\nnode_timeout = 3s\ngrace = 1s\n"


def state(c, job):
    return c.api.get(f"/v1/jobs/{job}")["state"]


@pytest.mark.long
def test_logs_on_a_file_system_that_hangs(tmp_path):
    with Cluster(config=CONFIG) as c, HangingFolder(f"{tmp_path}/remote") as folder:
        spec = {"name": "t", "workdir": "/tmp", "output": f"{folder.path}/out", "append": True, "argv": ["sh", "-c", "echo one; sleep 600"]}
        job = c.api.post("/v1/jobs", {"spec": spec})["id"]
        wait_until(lambda: state(c, job) == "RUNNING", 10, "the job does not start")
        wait_until(lambda: "one" in c.cli("logs", str(job)).stdout, 5, "its output cannot be read")
        folder.hang()
        readers = [subprocess.Popen([c.binary, "logs", *more, str(job)], env=c.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                   for more in ([], ["--tail", "1"], ["-f"])]
        until = time.monotonic() + 8  # more than twice the time after which a silent node is lost
        while time.monotonic() < until:
            assert c.nodes_up(), "the node was lost"
            assert c.cli("run", "--", "echo", "meanwhile").stdout == "meanwhile\n"
            other = int(c.cli("submit", "-Q", "-W", "--output", f"{tmp_path}/other", "--", "echo", "other").stdout)
            assert c.cli("logs", str(other)).stdout == "other\n"
            time.sleep(0.3)
        assert c.cli("exec", str(job), "--", "echo", "inside").stdout == "inside\n"
        assert state(c, job) == "RUNNING" and c.api.get(f"/v1/jobs/{job}")["attempt"] == 1
        def fails(reader):
            _, err = reader.communicate(timeout=180)
            assert reader.returncode != 0 and "file system does not answer" in err, (reader.returncode, err)
        fails(readers[0])
        fails(readers[1])
        assert "file system does not answer" in readers[2].stderr.readline()
        folder.answer()
        assert "one" in c.cli("logs", str(job)).stdout
        c.cli("cancel", str(job))
        wait_until(lambda: state(c, job) == "CANCELLED", 30, "the job does not end")
        readers[2].communicate(timeout=180)  # it has waited for the end of the job, and fails all the same
        assert readers[2].returncode != 0


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_launch_that_hangs_can_be_ended(tmp_path, tasks):
    with Cluster(config=CONFIG + "[node *]\ncpus = 8\n") as c, HangingFolder(f"{tmp_path}/remote") as folder:
        folder.hang("open")
        spec = {"name": "t", "workdir": "/tmp", "output": f"{folder.path}/out", "append": True, "tasks": tasks, "launch": "tasks", "argv": ["sleep", "60"]}
        job = c.api.post("/v1/jobs", {"spec": spec})["id"]
        timed = c.api.post("/v1/jobs", {"spec": {**spec, "time_limit_s": 2}})["id"]
        until = time.monotonic() + 5
        while time.monotonic() < until:
            assert c.nodes_up(), "the node was lost"
            assert c.cli("run", "--", "echo", "meanwhile").stdout == "meanwhile\n"
            time.sleep(0.3)
        c.cli("cancel", str(job))
        wait_until(lambda: state(c, job) == "CANCELLED", 15, "the job does not end")
        wait_until(lambda: state(c, timed) == "TIMEOUT", 15, "the time limit does not hold")


def test_a_job_whose_output_hangs_can_be_cancelled(tmp_path):
    """The line that tells its end goes into a file that takes nothing; the job ends all the same."""
    with Cluster(config=CONFIG) as c, HangingFolder(f"{tmp_path}/remote") as folder:
        spec = {"name": "t", "workdir": "/tmp", "output": f"{folder.path}/out", "append": True, "argv": ["sleep", "300"]}
        job = c.api.post("/v1/jobs", {"spec": spec})["id"]
        wait_until(lambda: state(c, job) == "RUNNING", 10, "the job does not start")
        time.sleep(0.2)
        folder.hang("write")
        c.cli("cancel", str(job))
        wait_until(lambda: state(c, job) == "CANCELLED", 15, "the job does not end")
        folder.answer()
