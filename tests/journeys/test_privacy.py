"""What users see of the jobs of others: everything public, masked, or nothing; with every command that shows jobs."""
import os
import pwd
import subprocess

import pytest

from tests.journeys.test_security import http
from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
NOBODY = pwd.getpwnam("nobody")
AS_NOBODY = ["setpriv", "--reuid", "nobody", "--regid", str(NOBODY.pw_gid), "--clear-groups"]


def as_nobody(c, *arguments):
    return subprocess.run([*AS_NOBODY, c.binary, *arguments], env=c.env, capture_output=True, text=True, check=False, cwd="/tmp",
                          stdin=subprocess.DEVNULL)


def shows(job):
    """Every command that shows jobs to somebody else."""
    return [("list",), ("list", "--json"), ("list", "--columns", "id,name,user,state,comment,tags,command"), ("list", "--finished"),
            ("list", str(job)), ("get", str(job)), ("get", str(job), "--json"), ("why", str(job)), ("events", str(job)), ("efficiency", str(job)),
            ("nodes", "n1", "--json"), ("top", "--once"), ("shares",), ("report",), ("report", "--by", "user"),
            ("slurm", "squeue"), ("slurm", "squeue", "-l"), ("slurm", "squeue", "-o", "%i|%j|%u|%U|%k|%Z|%o"), ("slurm", "squeue", "--json"),
            ("slurm", "squeue", "-u", "root"), ("slurm", "sacct", "-a"), ("slurm", "sacct", "-a", "-l"), ("slurm", "sacct", "-a", "-o", "JobID,JobName,User,WorkDir"),
            ("slurm", "scontrol", "show", "job", str(job)), ("slurm", "scontrol", "show", "jobs"), ("slurm", "sprio"), ("slurm", "sshare"),
            ("slurm", "sstat", "-j", str(job))]


@pytest.mark.parametrize("mode", ["masked", "hidden"])
def test_commands_tell_nothing_of_the_jobs_of_others(mode):
    with Cluster(config=f"[cluster]\nothers_jobs = {mode}\n", agents=["n1"]) as c:
        spec = {"name": "hushname", "workdir": "/", "output": "/dev/null", "argv": ["sh", "-c", "sleep 300 # hushargument"], "comment": "hushcomment",
                "tags": ["hushtag"]}
        ended = c.api.post("/v1/jobs", {"spec": {**spec, "argv": ["sh", "-c", "exit 3 # hushargument"]}})["id"]
        wait_until(lambda: c.api.get(f"/v1/jobs/{ended}")["state"] == "FAILED", 30, "the first job does not end")
        job = c.api.post("/v1/jobs", {"spec": spec})["id"]
        wait_until(lambda: c.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 30, "the second job does not run")
        own = as_nobody(c, "submit", "-Q", "-J", "mine", "-o", "/dev/null", "--", "sleep", "300").stdout.strip()
        wait_until(lambda: "RUNNING" in as_nobody(c, "get", own).stdout, 20, "one's own job does not run")
        for verb in shows(job) + shows(ended)[4:10]:
            done = as_nobody(c, *verb)
            assert "hush" not in done.stdout + done.stderr, (verb, done.stdout, done.stderr)
            assert done.returncode in (0, 1), (verb, done)
        listed = as_nobody(c, "list").stdout
        assert "mine" in listed
        queue = as_nobody(c, "slurm", "squeue", "-h", "-o", "%i").stdout.split()
        assert own in queue and (str(job) in queue) == (mode == "masked"), queue
        got = as_nobody(c, "get", str(job))
        assert ("there is no job" in got.stderr) == (mode == "hidden"), got
        for verb in ("cancel", "hold"):
            done = as_nobody(c, verb, str(job))
            assert done.returncode == 1 and ("there is no job" in done.stderr) == (mode == "hidden"), done
        assert as_nobody(c, "cancel", "--name", "hushname", "--user", "root").stdout == "No matching jobs\n"
        token = c.api.post("/v1/tokens", {"kind": "user", "user": "nobody"})["token"]
        status, past = http(c, "GET", "/v1/at", headers=f"Authorization: Bearer {token}\r\n")
        assert status == 200 and b"hush" not in past and b'"mine"' in past, past
        assert (f'"id":{job},'.encode() in past) == (mode == "masked"), past
        admin = f"Authorization: Bearer {c.api.post('/v1/tokens', {'kind': 'user', 'user': 'root'})['token']}\r\n"
        stranger = f"Authorization: Bearer {token}\r\n"
        for user, sees in ((admin, True), (stranger, False)):
            figures = http(c, "GET", "/metrics", headers=user)[1].decode()
            assert ('user="root"' in figures) == sees and 'user="nobody"' in figures, figures
        assert "hushname" in c.cli("list").stdout  # an administrator sees everything, and the job runs on
