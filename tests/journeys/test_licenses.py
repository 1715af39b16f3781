"""Licenses: seats that running jobs share, cluster-wide; over a restart of the controller, and with Slurm's words."""
import pytest

from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until

CONFIG = "[node *]\ncpus = 8\n[license matlab]\ncount = 3\n[license ansys]\ncount = 1\n"


@pytest.fixture(scope="module")
def cluster():
    with Cluster(config=CONFIG) as c:
        yield c


def state(c, job):
    r = c.api.get(f"/v1/jobs/{job}")
    return r["state"], r.get("reason")


def used(c, name):
    return c.api.get(f"/v1/licenses/{name}").get("used", 0)


def submit(c, *words):
    out = c.cli("submit", "--json", *words, "--", "sleep", "1000").stdout
    return int(out.split('"id"')[1].split(":")[1].split(",")[0].split("}")[0])


def test_seats_are_shared_over_nodes_and_restarts(cluster):
    c = cluster
    first = submit(c, "--license", "matlab:2")
    wait_until(lambda: state(c, first)[0] == "RUNNING", 60, "the first job does not run")
    second, other = submit(c, "--license", "matlab:2,ansys"), submit(c, "--license", "ansys=1")
    wait_until(lambda: state(c, other)[0] == "RUNNING", 60, "a job with another license waits, too")
    wait_until(lambda: state(c, second) == ("PENDING", "Licenses"), 60, "the second job does not wait for its license")
    assert (used(c, "matlab"), used(c, "ansys")) == (2, 1)
    why = c.cli("why", str(second)).stdout
    assert "License matlab has 3 seats, 2 in use; it asks for 2." in why, why
    c.kill_controller()
    c.start_controller()
    c.wait_ready()
    wait_until(lambda: used(c, "matlab") == 2, 60, "the seats were not held over the restart")
    assert state(c, second)[0] == "PENDING"
    c.cli("cancel", str(first))
    wait_until(lambda: used(c, "matlab") == 0, 60, "the seats are not given back")
    assert state(c, second)[0] == "PENDING"  # the other license is still held
    c.cli("cancel", str(other))
    wait_until(lambda: state(c, second)[0] == "RUNNING", 60, "the second job does not start")
    assert (used(c, "matlab"), used(c, "ansys")) == (2, 1)
    assert "matlab:2,ansys" in c.cli("get", str(second)).stdout
    c.cli("cancel", str(second))


def test_what_cannot_be_had_is_refused(cluster):
    for words, message in ((("--license", "matlab:4"), "matlab has 3 seats"), (("--license", "nosuch"), "nosuch"),
                           (("--license", "matlab:0"), "is no number of seats"),
                           (("--license", "matlab,matlab"), "named twice"),
                           (("--license", "matlab", "--workers", "1-2"), "cannot hold licenses")):
        r = cluster.cli("submit", *words, "--", "true", check=False)
        assert r.returncode and message in r.stderr, (words, r.stderr)


def test_fewer_seats_and_none(cluster):
    c = cluster
    c.cli("license", "create", "gauss", "--count", "1")
    job = submit(c, "--license", "gauss")
    wait_until(lambda: state(c, job)[0] == "RUNNING", 60, "it does not run")
    c.cli("license", "delete", "gauss")
    assert c.cli("license", "show", "gauss", check=False).returncode
    assert state(c, job)[0] == "RUNNING"
    c.cli("license", "create", "gauss", "--count", "1")
    assert used(c, "gauss") == 1
    c.cli("license", "edit", "gauss", "--count", "0")
    assert state(c, job)[0] == "RUNNING"
    c.cli("cancel", str(job))
    waits = submit(c, "--license", "gauss")
    wait_until(lambda: state(c, waits) == ("PENDING", "Licenses"), 60, "a license of no seats is had")
    c.cli("license", "edit", "gauss", "--count", "1")
    wait_until(lambda: state(c, waits)[0] == "RUNNING", 60, "the seat is not had")
    c.cli("cancel", str(waits))
