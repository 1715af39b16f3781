"""What the portal shows, from a shell: the jobs of an earlier time, and what more time for a job does to others."""
import json

from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until

GPUS = "[cluster]\nname = back\n\n[node *]\ncpus = 16\nmemory = 64G\ngpus = a100:4\ngpus_simulated = true\n"


def test_jobs_of_then_and_who_would_wait_longer():
    with Cluster(config=GPUS) as c:
        def submit(name):
            return c.cli("submit", "-Q", "-J", name, "-g", "4", "-t", "10m", "-o", "/dev/null", "--", "sleep", "600").stdout.strip()
        job, later = submit("first"), submit("later")
        wait_until(lambda: c.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 30, "the job does not run")
        wait_until(lambda: c.api.get(f"/v1/jobs/{job}/extension?time_limit_s=7200")["delayed"] == 1, 30, "nobody waits behind it")
        said = c.cli("update", job, "--time", "2h", "--dry-run").stdout
        assert "1 waiting job would start later" in said and "later" in said and "Nothing was changed" in said
        assert c.api.get(f"/v1/jobs/{job}")["time_limit_s"] == 600
        then = json.loads(c.cli("list", "--at", "now", "--json").stdout)["time_ms"]
        c.cli("cancel", job, later)
        wait_until(lambda: not c.api.get("/v1/jobs")["jobs"], 60, "they do not end")
        past = c.api.get(f"/v1/at?time_ms={then}")
        assert sorted(j["name"] for j in past["jobs"]) == ["first", "later"]
        wrong = c.cli("list", "--at", "now", "--finished", check=False)
        assert wrong.returncode == 2 and "does not go with --finished" in wrong.stderr
        assert c.cli("update", job, "--dry-run", check=False).returncode == 2
        assert "first" not in c.cli("list", "--at", "now").stdout
