"""Control characters in every text that comes from outside: what programs print, what users, nodes and files call things. None reaches a
terminal: names with them are refused, whatever else is shown has them replaced."""
import json
import os
import re
import shutil
import subprocess

import pytest

from tests.lab.cluster import Cluster
from tests.lab.images import make_rootfs
from tests.lab.proc import wait_until

BAD = "\x1b[31m\x9b\x07\u202e\u200bred"
MARKS = "\x1b\x9b\x07\u202e\u200b"


@pytest.fixture(scope="module", name="cluster")
def _cluster(tmp_path_factory):
    apps, volumes = tmp_path_factory.mktemp("apps"), tmp_path_factory.mktemp("volumes")
    os.chmod(volumes, 0o755)
    plain = {"title": "T", "script": "#!/bin/sh\ntrue\n", "fields": [{"name": "a", "help": "h"}]}
    for i, change in enumerate(({"title": BAD}, {"summary": BAD}, {"icon": BAD}, {"fields": [{"name": "a", "help": BAD}]}, {"fields": [{"name": "a", "title": BAD}]},
                                {"fields": [{"name": "a", "value": BAD}]}, {"fields": [{"name": "a", "choices": [BAD]}]})):
        (apps / f"bad{i}.json").write_text(json.dumps({**plain, **change}))
    (apps / "good.json").write_text(json.dumps(plain))
    with Cluster(agents=["n1"], config=f"[cluster]\nvolume_folder = {volumes}\n[portal]\napps = {apps}\n[node *]\ncpus = 8\n") as c:
        yield c


def clean(text):
    found = [x for x in MARKS if x in text]
    assert not found, (found, text[-500:])
    return text


def looks(cluster, *commands):
    """The commands' output, on both channels; also as a terminal would be told in colour."""
    for words in commands:
        for more in ([], ["--color", "always"]):
            done = subprocess.run([cluster.binary, *words, *more], env=cluster.env, capture_output=True, text=True, errors="surrogateescape", check=False)
            text = done.stdout + done.stderr
            if more:  # our own colours
                text = re.sub(r"\x1b\[[0-9;]*m(?!\x9b|red)", "", text)
            if not more or "unknown option" not in done.stderr:
                clean(text)


def refused(cluster, *words):
    done = cluster.cli(*words, check=False)
    assert done.returncode, (words, done.stdout)
    return clean(done.stderr)


def test_names_are_refused(cluster):
    """Of everything that a user or administrator names; the refusal itself shows none."""
    for words in (["volume", "create", BAD], ["submit", "-J", BAD, "--", "true"], ["submit", "--tag", f"k={BAD}", "--", "true"], ["submit", "-v", f"{BAD}:/x", "--", "true"],
                  ["submit", "--comment", BAD, "--", "true"], ["submit", "-P", BAD, "--", "true"], ["submit", "-p", BAD, "--", "true"],
                  ["submit", "-w", BAD, "--", "true"], ["submit", "--health", BAD, "--port", "http:0", "--", "true"], ["submit", "--port", BAD, "--", "true"],
                  ["submit", "-d", BAD, "--", "true"], ["submit", "--container", BAD, "--", "true"], ["submit", "--secret", BAD, "--", "true"],
                  ["project", "create", BAD], ["user", "add", BAD], ["drain", "n1", "--reason", BAD], ["drain", BAD], ["get", BAD], ["logs", BAD], ["cancel", BAD],
                  ["serve", "--name", BAD, "--", "true"], ["app", "start", BAD], ["volume", "share", BAD, "nobody"], ["token", "create", "--node", BAD],
                  ["share", "1", BAD], ["list", "--where", f"name={BAD}", "--columns", BAD], ["config", "set", BAD, "1"], ["view", "set", BAD], ["secret", "set", BAD]):
        refused(cluster, *words)
    for path, body in (("/v1/services/x/tokens", {"label": BAD}), ("/v1/volumes", {"name": BAD}), ("/v1/volumes", {"name": "a", "at": f"/srv/{BAD}"}),
                       ("/v1/login/device", {"client": BAD}), (f"/v1/apps/{'x' * 3}", {"values": [BAD]}), ("/v1/join", {"name": BAD})):
        status, data = cluster.api.raw("POST", path, json.dumps(body).encode())
        assert status >= 400, (path, data)
        clean(json.dumps(json.loads(data), ensure_ascii=False))


def test_texts_of_apps(cluster):
    text = clean(cluster.cli("app", "list").stdout)
    assert "good" in text and "bad" not in text
    for app in cluster.api.get("/v1/apps")["apps"]:
        clean(json.dumps(app, ensure_ascii=False))
    with open(f"{cluster.home}/log/controller.log", encoding="utf-8", errors="surrogateescape") as f:
        assert "bad0.json is left out" in clean(f.read())


def test_what_health_checks_say(cluster):
    flag = f"{cluster.home}/ready"
    check = f"test -e {flag} && exit 0; printf '\\033[31m\\302\\233\\007\\342\\200\\256red'; printf '\\033[31mred' >&2; exit 1"
    with open(flag, "w", encoding="utf-8"):
        pass
    job = cluster.cli("submit", "-Q", "-o", "/dev/null", "--health", check, "--health-interval", "1", "--health-failures", "1", "--", "sleep", "600").stdout.strip()
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}").get("health") == "ready", 60, "it is not ready")
    os.unlink(flag)
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}").get("health") != "ready", 60, "it stays ready")
    clean(json.dumps(cluster.api.get(f"/v1/jobs/{job}"), ensure_ascii=False))
    looks(cluster, ["get", job], ["events", job], ["why", job], ["list"])
    cluster.cli("cancel", job, check=False)


def test_what_programs_say_of_their_progress_and_failure(cluster):
    job = cluster.cli("submit", "-Q", "-o", f"{cluster.home}/out-%j", "--", "sh", "-c", f"acequia progress 40% '{BAD}'; sleep 600").stdout.strip()
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 60, "it does not run")
    cluster.cli("progress", "--job", job, "50%", BAD, check=False)
    looks(cluster, ["get", job], ["list"], ["list", "--columns", "id,progress"])
    cluster.cli("cancel", job)
    done = cluster.cli("run", "--", f"/nonexistent/{BAD}", check=False)
    assert done.returncode == 127
    clean(done.stderr)
    looks(cluster, ["list", "--finished"], ["status"], ["nodes"], ["audit"])


@pytest.mark.skipif(not all(shutil.which(t) for t in ("skopeo", "umoci", "busybox")), reason="needs skopeo, umoci, busybox")
def test_images(cluster, tmp_path):
    """Labels and variables of an image, and what the programs that unpack it print."""
    folder = make_rootfs(str(tmp_path / "root"))
    bundle = tmp_path / "image"
    subprocess.run(["umoci", "init", "--layout", bundle], check=True)
    subprocess.run(["umoci", "new", "--image", f"{bundle}:x"], check=True)
    subprocess.run(["umoci", "insert", "--rootless", "--image", f"{bundle}:x", folder, "/"], check=True)
    subprocess.run(["umoci", "config", "--image", f"{bundle}:x", "--config.label", f"maintainer={BAD}", "--author", BAD, "--config.env", f"X={BAD}"], check=True)
    job = cluster.cli("submit", "-Q", "-o", "/dev/null", "--container", f"oci:{bundle}:x", "--", "/bin/sleep", "600").stdout.strip()
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}")["state"] not in ("PENDING", "STARTING"), 60, "it does not begin")
    looks(cluster, ["get", job], ["list"], ["events", job])
    cluster.cli("cancel", job, check=False)
    bad = tmp_path / f"no{BAD}"
    bad.mkdir()
    done = cluster.cli("run", "--container", f"oci:{bad}:x", "--", "true", check=False)
    assert done.returncode
    clean(done.stderr)
