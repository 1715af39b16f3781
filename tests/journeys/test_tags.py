"""Tags on jobs, and lists filtered by any column."""
import json
import time

from urllib.parse import quote

import pytest

from tests.lab.api import ApiError
from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until


def job(name="l", argv=("sleep", "600"), **more):
    return {"spec": {"name": name, "workdir": "/tmp", "output": "/dev/null", "argv": list(argv), **more}}


@pytest.fixture(scope="module", name="cluster")
def _cluster():
    with Cluster(config="[node *]\ncpus = 4\n") as c:
        yield c


def cli(cluster, *arguments):
    return cluster.cli(*arguments).stdout


def names(cluster, where, **query):
    text = "".join(f"&{k}={v}" for k, v in query.items())
    rows = cluster.api.get(f"/v1/jobs?fields=id,name,tags&where={quote(where)}{text}")["jobs"]
    return sorted(r["name"] for r in rows)


def refused(cluster, where):
    with pytest.raises(ApiError) as e:
        cluster.api.get(f"/v1/jobs?where={quote(where)}")
    return str(e.value)


def test_tags_and_filters(cluster):
    api = cluster.api
    one = cli(cluster, "submit", "-n", "1", "-c", "2", "-J", "run one", "--tag", "exp1", "--tag", "team=vision", "-t", "8h",
                      "-o", "/dev/null", "--", "sleep", "600").split()[-1]
    wait_until(lambda: api.get(f"/v1/jobs/{one}")["state"] == "RUNNING", 60, "it does not run")
    big = api.post("/v1/jobs", job("big", tasks=4, tags=["exp2", "team=vision"], comment="secret plan", hold=True))["id"]
    array = api.post("/v1/jobs", job("many", array=[{"first": 0, "last": 499, "step": 1}], tags=["sweep"], hold=True))["id"]
    assert names(cluster, "tag=exp1") == ["run one"]
    assert names(cluster, "tag=team=vision") == ["big", "run one"]
    assert names(cluster, "tag=team") == ["big", "run one"]
    assert names(cluster, "tag=exp* tag!=exp2") == ["run one"]
    assert names(cluster, "tag!=*") == []
    assert names(cluster, "state=R") == names(cluster, "state=RUN*") == ["run one"]
    assert names(cluster, "state=R|PD cpus>=4") == ["big"]
    assert names(cluster, 'name="run one"|big') == ["big", "run one"]
    assert names(cluster, "comment=*plan") == ["big"]
    assert names(cluster, "limit<=8h") == ["run one"] and names(cluster, "limit=unlimited tag!=sweep") == ["big"]
    assert names(cluster, "age<1h held=no") == ["run one"] and names(cluster, "age>1d") == []
    assert names(cluster, "start>now-1hour") == ["run one"]
    assert names(cluster, f"id>={big} id<{array}") == ["big"]
    # Of a folded array only the elements that pass, and one evaluation for what they have in common.
    rows = api.get(f"/v1/jobs?where={quote('tag=sweep index>=10 index<20')}")["jobs"]
    assert [r["label"] for r in rows] == [f"{array}_[10-19]"]
    assert len(api.get(f"/v1/jobs?elements=1&where={quote('tag=sweep index=3|5')}")["jobs"]) == 2

    # Shown by get and list; changed while it runs.
    assert "exp1, team=vision" in cli(cluster, "get", one)
    cli(cluster, "update", one, "--tag", "team=speech", "--tag", "-exp1", "--tag", "done")
    table = cli(cluster, "list", "-o", "id,tags,age", "--where", "user=* tag=done").splitlines()
    assert len(table) == 2 and "team=speech,done" in table[1], table
    assert api.get(f"/v1/jobs/{one}")["spec"]["tags"] == ["team=speech", "done"]
    cli(cluster, "update", one, "--tag", "-")
    assert api.get(f"/v1/jobs/{one}")["spec"]["tags"] == []
    cli(cluster, "update", one, "--tag", "kept")

    # A new controller knows them; ended jobs keep them.
    cluster.kill_controller()
    cluster.start_controller()
    cluster.wait_ready()
    assert names(cluster, "tag=kept") == ["run one"]
    cli(cluster, "cancel", one)
    wait_until(lambda: names(cluster, "tag=kept state=CA", finished=1) == ["run one"], 60, "it has not ended")
    assert names(cluster, "tag=sweep", finished=1) == []
    again = cli(cluster, "resubmit", "-Q", one, "--tag", "again=1", "--hold").strip()
    assert api.get(f"/v1/jobs/{again}")["spec"]["tags"] == ["kept", "again=1"]
    text = cli(cluster, "list", "--json", "--where", "tag=again")
    assert [j["name"] for j in json.loads(text)["jobs"]] == ["run one"]
    cli(cluster, "cancel", "--all")


def test_what_is_not_understood_is_said(cluster):
    assert 'did you mean "user"' in refused(cluster, "usr=a")
    assert "compare it by = or !=" in refused(cluster, "name>a")
    assert "a size such as 8G" in refused(cluster, "memory>much")
    assert "at most 1024" in refused(cluster, "name=" + "x" * 1100)
    with pytest.raises(ApiError, match="not a tag"):
        cluster.api.post("/v1/jobs", job(tags=["a b"]))
    with pytest.raises(ApiError, match="at most 32"):
        cluster.api.post("/v1/jobs", job(tags=[f"t{i}" for i in range(33)]))


def test_a_costly_filter_leaves_the_controller_to_others(cluster):
    """Patterns that go back and forth over long texts, over many rows: others are served meanwhile."""
    text = "a" * 4000
    for i in range(10):
        cluster.api.post("/v1/jobs", [job(f"x{k}", argv=["true"], command_text=text, hold=True) for k in range(40)])
    where = "command=" + "|".join("*a" * 28 + "b" for _ in range(16))
    began = time.monotonic()
    rows = cluster.api.get(f"/v1/jobs?where={quote(where)}")["jobs"]
    assert rows == []
    assert time.monotonic() - began < 60
    cli(cluster, "cancel", "--all")
