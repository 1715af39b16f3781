"""Virtual clusters and pools of Python workers in the portal: made from a form, resized by a slider, opened through the proxy, looked into."""
import contextlib
import os
import sys

import pytest

from tests.journeys.test_portal import PACK, no_problems, pytestmark as PORTAL
from tests.lab import browser
from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until

pytestmark = PORTAL
PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "python")
sys.path.insert(0, PACKAGE)
# A kind whose programs need nothing installed: the head serves a page, workers only sleep.
KIND = """{"title": "Echo cluster", "summary": "A head with a page, and workers.", "spec": {"tags": ["cluster"], "on_worker_end": "restart", "ports": ["0"],
"health": "test -e \\"$APP_FOLDER/$ACEQUIA_JOB_NAME/ready.$ACEQUIA_JOB_ID-$ACEQUIA_ATTEMPT\\"", "components": [{"name": "head"}, {"name": "worker"}]},
"fields": [{"name": "name", "title": "Name", "kind": "name", "required": true}, {"name": "workers", "title": "Workers", "kind": "workers", "value": "2"},
{"name": "folder", "title": "Folder", "kind": "folder", "value": "FOLDER"}, {"name": "time", "title": "Time limit", "kind": "time", "value": "1h"}]}"""
SCRIPT = """#!/bin/sh
start_head() {
    ready
    : > "$folder/endpoint"
    mkdir -p "$folder/page" && cd "$folder/page" && echo '<h1>echo dashboard</h1>' > index.html
    exec python3 -m http.server "$ACEQUIA_PORT"
}
start_worker() {
    ready
    exec sleep 3000
}
cluster_main "$@"
"""
OPEN = "[...document.querySelectorAll('a')].find(a => a.textContent.trim() === 'Open')?.href"
SET = "(() => {{ const e = document.querySelectorAll('dialog input[type=range]')[{at}]; e.value = {value}; e.dispatchEvent(new Event('input', {{ bubbles: true }})); }})()"


@pytest.fixture(name="lab")
def _lab(tmp_path):
    site = tmp_path / "apps"
    site.mkdir()
    folder = tmp_path / "clusters"
    (site / "echo.json").write_text(KIND.replace("FOLDER", str(folder)))
    (site / "echo.sh").write_text(SCRIPT)
    config = f"[cluster]\nname = lab\ngrace = 1s\n[node *]\ncpus = 16\nmemory = 8G\n[portal]\nfile = {PACK}\napps = {site}\n"
    with Cluster(config=config) as c, browser.Browser() as b:
        yield c, b


def logged_in(c, b, **how):
    page = b.page(**how)
    link = c.api.post("/v1/portal", {})["url"]
    page.goto(link)
    page.wait("document.querySelector('.nav')")
    return page, link.split("/#")[0]


def test_a_cluster_is_made_resized_opened_and_ended(lab):
    c, b = lab
    page, origin = logged_in(c, b)
    page.goto(f"{origin}/clusters")
    page.wait_text("No virtual cluster runs")
    page.click("New cluster")
    page.click("Echo cluster")
    page.wait_text("Workers that always run")
    page.evaluate("document.querySelector('dialog input[required]').focus()")
    page.type("lab1")
    page.evaluate(SET.format(at=0, value=1))
    page.evaluate(SET.format(at=1, value=3))
    page.click("The same from a shell")
    page.wait_text("acequia cluster create echo lab1 workers=1-3")
    page.click("dialog button[type=submit]")
    page.wait_text("3 of 1–3 workers ready", 60)
    page.wait(OPEN)
    page.goto(page.evaluate(OPEN))
    page.wait_text("echo dashboard")
    page.problems = []  # the program there has no icon
    page.goto(f"{origin}/clusters")
    page.click("[aria-label='Resize lab1']")
    page.wait_text("Workers at most")
    page.evaluate(SET.format(at=1, value=2))
    page.evaluate(SET.format(at=0, value=2))
    page.click("dialog .button.primary")
    page.wait_text("2 of 2 workers ready", 60)
    assert "lab1" in c.cli("cluster", "list").stdout
    page.click("[aria-label='Connect to lab1']")
    page.wait_text("acequia cluster exec lab1")
    page.click("dialog [aria-label='Close']")
    page.goto(f"{origin}/apps")
    page.wait_text("Nothing runs now")  # clusters have a page of their own
    assert "Echo cluster" not in page.text()
    page.goto(f"{origin}/clusters")
    page.click("[aria-label='End lab1']")
    page.wait("document.querySelector('dialog .button.danger')")
    page.click("dialog .button.danger")
    page.wait_text("No virtual cluster runs", 60)
    page.click("[aria-label='Log of the head of lab1']")
    page.wait("decodeURIComponent(location.pathname) === '/jobs/1+0'")
    page.wait_text("Cancelled")
    no_problems(page)


def score(x):
    import time
    time.sleep(0 if x < 8 else 60)
    return x


def fails(shard):
    print("loading shard", shard)
    raise ValueError(f"shard {shard} is empty")


@contextlib.contextmanager
def pool_of(c, **options):
    cloudpickle = pytest.importorskip("cloudpickle", reason="cloudpickle is not installed; make test installs it")
    import acequia
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    before = os.environ.get("ACEQUIA_HOME")
    os.environ["ACEQUIA_HOME"] = c.home
    try:
        with acequia.Pool(acequia.Client(), python=sys.executable, cpus=2, memory="512M", name="sweep", tags=["mine"], **options) as pool:
            yield pool
    finally:
        if before is None:
            del os.environ["ACEQUIA_HOME"]
        else:
            os.environ["ACEQUIA_HOME"] = before


def test_a_pool_is_looked_into(lab, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    c, b = lab
    with pool_of(c) as pool:
        refs = [pool.submit(fails, 7), *[pool.submit(score, i) for i in range(12)], pool.put(b"x" * 2_000_000)]
        wait_until(lambda: pool.summary()["failed"] == 1 and pool.summary()["finished"] == 8, 60, "the tasks do not end")
        assert set(c.api.get(f"/v1/jobs/{pool.job.id}")["tags"]) == {"pool", "mine"}
        page, origin = logged_in(c, b, language="es")
        page.goto(f"{origin}/clusters")
        page.click(f"[aria-label='Tareas de sweep, trabajo {pool.job.id}']")
        page.wait_text("1 con error")
        page.wait("document.querySelector('tbody tr .state.run')")
        page.click("fails")
        page.wait_text("shard 7 is empty")
        page.wait_text("loading shard 7")
        page.click("dialog .button.quiet")
        page.click("Valores")
        page.wait_text("en memoria compartida")
        page.click("Actores")
        page.wait_text("No hay actores")
        no_problems(page)
        assert refs
    page.goto(f"{origin}/pools/{pool.job.id}")
    page.wait_text("El pool ha terminado")
    page.goto(f"{origin}/pools/999")
    page.wait_text("999")
