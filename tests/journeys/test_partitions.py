"""A job that names several partitions: it starts in whichever lets it start first, is told of both
while it waits, knows where it runs over a restart of the controller, and has all of them again when it
is queued again."""
import json

import pytest

from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until

CONFIG = """[node *]
cpus = 4

[partition short]
nodes = n1
max_time = 10m

[partition long]
nodes = n2
"""


@pytest.fixture(scope="module")
def cluster():
    with Cluster(config=CONFIG, agents=("n1", "n2")) as c:
        yield c


def submit(c, partition, *command, cpus=4):
    return c.cli("submit", "--quiet", "-p", partition, "-c", str(cpus), "-o", f"{c.home}/%j.out", *command).stdout.strip()


def job(c, ident):
    return json.loads(c.cli("get", "--json", ident).stdout)


def row(c, ident, *more):
    """Of the list of live jobs, or of finished ones."""
    for finished in ((), ("--finished",)):
        for r in json.loads(c.cli("list", "--json", *finished, *more).stdout)["jobs"]:
            if str(r["id"]) == ident:
                return r
    return None


def wait_state(c, ident, state):
    wait_until(lambda: job(c, ident)["state"] == state, 20, f"job {ident} does not become {state}")


def test_a_job_starts_in_whichever_partition_lets_it(cluster):
    c = cluster
    holder = submit(c, "short", "--", "sleep", "600")
    wait_state(c, holder, "RUNNING")
    ident = submit(c, "short,long", "--", "sh", "-c", "echo $SLURM_JOB_PARTITION; sleep 600")
    wait_state(c, ident, "RUNNING")
    assert row(c, ident)["partition"] == "long"
    assert job(c, ident)["spec"]["partition"] == "long"
    assert job(c, ident)["parts"][0]["node"] == "n2"
    wait_until(lambda: open(f"{c.home}/{ident}.out", encoding="utf-8").read() == "long\n", 10, "it is not told its partition")

    waits = submit(c, "long,short", "--", "true")
    assert row(c, waits)["partition"] == "long,short"
    assert row(c, waits, "-p", "short") and row(c, waits, "-p", "long") and not row(c, waits, "-p", "main")
    why = c.cli("why", waits).stdout
    assert "the first of its partitions that has room" in why and "\n  short: " in why and "\n  long: " in why
    told = json.loads(c.cli("why", "--json", waits).stdout)
    assert [p["partition"] for p in told["partitions"]] == ["long", "short"]
    assert "Partition" in c.cli("get", waits).stdout and "long,short" in c.cli("get", waits).stdout
    metrics = c.api.raw("GET", "/metrics")[1].decode()
    for name in ("short", "long"):  # it waits in each; there is no partition of both names
        assert f'slurm_partition_jobs_pending{{partition="{name}"}} 1\n' in metrics
    assert "long,short" not in metrics

    c.kill_controller()
    c.start_controller()
    c.wait_ready()
    assert row(c, ident)["partition"] == "long" and row(c, waits)["partition"] == "long,short"

    # the other one goes down under it: it waits for the first, which it gets
    c.cli("partition", "edit", "long", "--down", "true")
    c.cli("cancel", "--partition", "long")  # what runs there; who waits for another too stays
    wait_state(c, ident, "CANCELLED")
    assert row(c, ident)["partition"] == "long"
    assert job(c, waits)["state"] == "PENDING"
    c.cli("cancel", holder)
    wait_state(c, waits, "COMPLETED")
    assert row(c, waits)["partition"] == "short"
    c.cli("partition", "edit", "long", "--down", "false")


def test_a_requeued_job_has_all_of_them_again(cluster):
    c = cluster
    ident = submit(c, "short,long", "--", "sleep", "600")
    wait_state(c, ident, "RUNNING")
    assert row(c, ident)["partition"] == "short"
    c.cli("partition", "edit", "short", "--down", "true")
    c.cli("requeue", ident)
    wait_until(lambda: row(c, ident)["partition"] == "long", 20, "it does not start in the other one")
    c.cli("cancel", ident)
    c.cli("partition", "edit", "short", "--down", "false")


def test_what_none_can_hold_is_refused(cluster):
    c = cluster
    r = c.cli("submit", "-p", "short,nosuch", "--", "true", check=False)
    assert r.returncode and 'partition "nosuch" does not exist' in r.stderr
    r = c.cli("submit", "-p", "short,long", "-N", "2", "--", "true", check=False)
    assert r.returncode and "the other partitions it names cannot run it either" in r.stderr
    r = c.cli("submit", "-p", "short,lo ng", "--", "true", check=False)
    assert r.returncode and 'partition "lo ng" is not a valid name' in r.stderr
    ident = submit(c, "short,long", "--time", "1h", "--", "sleep", "1")  # too long for the first only
    wait_state(c, ident, "COMPLETED")
    assert row(c, ident)["partition"] == "long"
    full = submit(c, "short", "--", "sleep", "600")
    wait_state(c, full, "RUNNING")
    assert "As asked: starts at once" in c.cli("when", "-p", "short,long", "-c", "4").stdout
    c.cli("cancel", full)
