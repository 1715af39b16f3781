"""A policy is tried on what ran here before it is set: real jobs, the real scheduler, nothing changed."""
import json

from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until

GPUS = "[cluster]\nname = trial\n\n[node *]\ncpus = 16\nmemory = 64G\ngpus = a100:4\ngpus_simulated = true\n"


def submit(c, *options, command=("sleep", "1")):
    return c.cli("submit", "-Q", "-o", "/dev/null", *options, "--", *command).stdout.strip()


def ended(c, job):
    wait_until(lambda: c.api.get(f"/v1/jobs/{job}")["end_ms"], 60, f"job {job} does not end")


def trial(c, change, **more):
    return c.api.request("POST", "/v1/policy/dry-run", {"change": change, **more})


def test_a_policy_is_tried_on_recent_jobs():
    with Cluster(config=GPUS) as c:
        c.cli("project", "create", "vision", "--quota", "2")
        assert "nothing to try" in c.cli("policy", "set", "--dry-run", "backfill=none").stdout
        for project in ("vision", "default", "vision"):
            ended(c, submit(c, "-P", project, "-g", "4", "-t", "1h"))
        running = submit(c, "-g", "3", "-t", "1h", command=("sleep", "600"))
        wait_until(lambda: c.api.get(f"/v1/jobs/{running}")["state"] == "RUNNING", 30, "the job does not run")
        never = submit(c, "-g", "4", "-t", "1h")  # waits: it takes no part
        before = c.api.get("/v1/policy")
        both = trial(c, {"backfill": "none"}, days=1)
        assert both["jobs"] == 4 and both["complete"] is True
        assert {p["project"]: p["jobs"] for p in both["projects"]} == {"default": 2, "vision": 2}
        assert 0 < both["now"]["gpu_hours"] < 4 and both["now"]["preemptions"] == 0
        same = trial(c, {})
        assert same["now"] == same["changed"] and (same["sooner"], same["later"]) == (0, 0)
        said = c.cli("policy", "set", "--dry-run", "--days", "2", "backfill=none").stdout
        assert "vision" in said and "Nothing was changed" in said
        assert json.loads(c.cli("policy", "set", "--dry-run", "backfill=none", "--json").stdout)["jobs"] == 4
        assert c.api.get("/v1/policy") == before and c.api.get(f"/v1/jobs/{never}")["state"] == "PENDING"
        wrong = c.cli("policy", "set", "--dry-run", "--days", "0", "backfill=none", check=False)
        assert wrong.returncode == 2 and "--days" in wrong.stderr
        c.kill_controller()
        c.start_controller()
        wait_until(lambda: c.cli("policy", check=False).returncode == 0, 30, "the controller does not start")
        assert trial(c, {"order": "fcfs"})["jobs"] == 4  # out of the journal, not out of memory
