"""Drafts and templates that the controller keeps: saved, shown, submitted, begun from, over a restart."""
import json

import pytest

from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until


@pytest.fixture(scope="module")
def cluster():
    with Cluster(agents=["n1"]) as c:
        yield c


def done(cluster, job):
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}")["end_ms"], 30, f"job {job} does not end")
    return cluster.api.get(f"/v1/jobs/{job}")


def test_a_draft_is_kept_and_submitted(cluster, tmp_path):
    script = tmp_path / "work.sh"
    script.write_text("#!/bin/sh\n#ACEQUIA --time 10m\necho worked $1\n")
    out = tmp_path / "out"
    said = cluster.cli("draft", "save", "night", "-J", "night", "-o", str(out), str(script), "hard").stdout
    assert "acequia draft submit night" in said
    cluster.kill_controller()
    cluster.start_controller()
    listed = json.loads(cluster.cli("draft", "list", "--json").stdout)["drafts"]
    assert [d["name"] for d in listed] == ["night"] and listed[0]["spec"]["time_limit_s"] == 600
    assert cluster.cli("draft", "show", "night").stdout == script.read_text()
    assert cluster.api.get("/v1/jobs?all=1")["jobs"] == []  # nothing was submitted
    job = int(cluster.cli("draft", "submit", "night").stdout.split()[-1])
    assert done(cluster, job)["state"] == "COMPLETED"
    assert out.read_text() == "worked hard\n"
    assert json.loads(cluster.cli("draft", "list", "--json").stdout)["drafts"] == []
    missing = cluster.cli("draft", "submit", "night", check=False)
    assert missing.returncode == 1 and "there is no draft" in missing.stderr


def test_submit_begins_from_a_template(cluster, tmp_path):
    script = tmp_path / "eval.sh"
    script.write_text("#!/bin/sh\necho from the template\n")
    cluster.cli("template", "save", "eval", "-J", "evaluate", "--time", "7m", "--comment", "kept", "-o", f"{tmp_path}/out", str(script))
    job = int(cluster.cli("submit", "-Q", "--template", "eval", "--time", "9m").stdout)
    record = done(cluster, job)
    assert (record["name"], record["comment"], record["time_limit_s"]) == ("evaluate", "kept", 540)  # the command line comes first
    assert (tmp_path / "out").read_text() == "from the template\n"
    # Another command with the template's options.
    job = int(cluster.cli("submit", "-Q", "--template", "eval", "-o", f"{tmp_path}/other", "--", "echo", "instead").stdout)
    assert done(cluster, job)["comment"] == "kept" and (tmp_path / "other").read_text() == "instead\n"
    names = [t["name"] for t in json.loads(cluster.cli("template", "list", "--json").stdout)["templates"]]
    assert names[0] == "eval" and "train" in names  # one's own first, then those that come with Acequia
    cluster.cli("template", "delete", "eval")
    missing = cluster.cli("submit", "--template", "eval", check=False)
    assert missing.returncode == 1 and "there is no template" in missing.stderr
    assert "starts" in cluster.cli("when", "--template", "cpu", "-c", "1", "-m", "1M").stdout


def test_a_view_is_kept_and_listed_by(cluster):
    """As the portal has saved it, with a name that nobody types, and as saved by command."""
    for name in ("left", "right"):
        cluster.cli("submit", "-Q", "-J", name, "-H", "-o", "/dev/null", "--tag", name, "--", "true")
    cluster.api.request("PUT", "/v1/views/m1-x", {"title": "To the left", "query": "state=PENDING&search=lef&sort=-id"})
    assert cluster.cli("view", "save", "tagged", "-s", "PENDING", "--where", "tag=right", "--where", "gpus=0").stdout == "View tagged saved\n"
    listed = cluster.cli("view").stdout
    assert "To the left" in listed and "--state=PENDING --where=tag=right gpus=0" in listed, listed

    def names(*options):
        return cluster.cli("list", "-H", "-o", "name", *options).stdout.split()

    assert names("--view", "To the left") == names("--view", "m1-x") == ["left"]
    assert names("--view", "tagged") == ["right"]
    assert names("--view", "tagged", "--where", "tag=left") == ["left"]  # what is given beside it takes precedence
    assert "there is no view none" in cluster.cli("list", "--view", "none", check=False).stderr
    assert cluster.cli("view", "delete", "To the left", "tagged").stdout.splitlines() == ["View To the left deleted", "View tagged deleted"]
    assert cluster.api.get("/v1/views")["views"] == []
    cluster.cli("cancel", "--all")
