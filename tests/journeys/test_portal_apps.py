"""Apps, services and volumes in the portal, in Debian's Chromium: a person starts, shares and stops a program, watches and scales a service, keeps
data in a volume; what somebody has written into an app, a service or a volume is shown as text."""
import json
import os
import re
import shutil
import subprocess
import tempfile
from urllib.parse import urlsplit

import pytest

from tests.journeys.test_portal import HOSTILE, PACK, TREE, pytestmark as PORTAL
from tests.journeys.test_portal_pages import fill
from tests.lab import browser
from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until
from tests.lab.users import user

pytestmark = [*PORTAL, pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("useradd"), reason="users of their own need root")]
SERVER = '#!/bin/sh\nmkdir -p site && echo "<h1>$APP_WORD</h1>" > site/index.html && exec /usr/bin/python3 -m http.server "$ACEQUIA_PORT" --bind 127.0.0.1 --directory site\n'
GREETER = {"title": "Greeter", "summary": "Says a word in the browser.", "icon": "G", "spec": {"ports": ["http:0"], "health": "/", "memory_per_node_bytes": 100 << 20},
           "fields": [{"name": "word", "title": "Word", "choices": ["hello", "bye"], "value": "hello"}, {"name": "cpus", "title": "CPUs", "kind": "cpus"},
                      {"name": "time", "title": "Time limit", "kind": "time", "help": "Such as 8h."}, {"name": "note", "title": "Note", "required": True}]}
EVIL = {"title": HOSTILE, "summary": HOSTILE, "icon": HOSTILE, "spec": {"ports": ["http:0"]},
        "fields": [{"name": "word", "title": HOSTILE, "help": HOSTILE, "value": HOSTILE, "choices": [HOSTILE]}, {"name": "more", "title": HOSTILE, "help": HOSTILE, "value": HOSTILE}]}


def write_app(folder, name, app):
    os.makedirs(folder, exist_ok=True)
    for ending, text in (("json", json.dumps(app)), ("sh", SERVER)):
        with open(f"{folder}/{name}.{ending}", "w", encoding="utf-8") as f:
            f.write(text)


class Lab:
    """A cluster with apps and a place for volumes; Ana and Eva, and a browser in which Ana is logged in."""

    def __init__(self, c, b, ana, eva, root):
        self.c, self.b, self.ana, self.eva, self.root = c, b, ana, eva, root
        self.service = f"exec /usr/bin/python3 {shutil.copy(f'{TREE}/tests/lab/serve_program.py', ana.home)}"  # where she can read it

    def cli(self, who, *words):
        done = who.run(self.c.binary, *words, env=self.c.env)
        assert done.returncode == 0, done
        return done.stdout

    def page(self, path="/", who=None, **look):
        link = re.search(r"http://\S+", self.cli(who or self.ana, "portal")).group(0)
        page = self.b.page(**look)
        page.goto(link)
        page.wait("document.querySelector('.nav')")
        self.origin = link.split("/#")[0]
        page.goto(self.origin + path)
        page.wait("document.querySelectorAll('.loading').length === 0")
        return page


@pytest.fixture(scope="module", name="lab")
def _lab(tmp_path_factory):
    site = str(tmp_path_factory.mktemp("apps"))
    root = tempfile.mkdtemp(prefix="acequia-volumes-")
    os.chmod(root, 0o755)
    write_app(site, "greeter", GREETER)
    config = f"[cluster]\nname = lab\ngrace = 1s\nvolume_folder = {root}\n[node *]\ncpus = 64\nmemory = 64G\n[portal]\nfile = {PACK}\napps = {site}\n"
    with Cluster(config=config) as c, user("acqana") as ana, user("acqeva") as eva, browser.Browser() as b:
        own = f"{ana.home}/.config/acequia/apps"
        write_app(own, "evil", EVIL)
        write_app(own, "mine", dict(GREETER, title="My own", fields=[]))
        with open(f"{own}/broken.json", "w", encoding="ascii") as f:
            f.write("{")
        subprocess.run(["chown", "-R", f"{ana.uid}:{ana.gid}", f"{ana.home}/.config"], check=True)
        c.cli("project", "create", "vision", "--quota", "1", "--members", f"{ana.name},{eva.name}")
        yield Lab(c, b, ana, eva, root)
    shutil.rmtree(root, ignore_errors=True)


def job_of(lab, app):
    return next(j for j in lab.c.api.get(f"/v1/table?where=tag%3Dapp%3D{app}&fields=id,label,state,user,health,cpus,tags,time_limit_s")["rows"])


def click_in(page, row, text):
    """The button with this text in the row of a list that has that text."""
    rows = f"[...document.querySelectorAll('li.instance, tbody tr, li.app-card, li.spread')].filter(r => r.innerText.includes({json.dumps(row)}))"
    one = f"{rows}.flatMap(r => [...r.querySelectorAll('button, a')]).find(b => b.innerText.trim() === {json.dumps(text)} && !b.disabled)"
    page.wait(f"({one}) != null")
    page.evaluate(f"({one}).click()")


def answer(page):
    page.click(".dialog-foot .primary, .dialog-foot .danger")
    page.wait("!document.querySelector('dialog[open]')")


def test_an_app_is_started_opened_shared_stopped_and_started_again(lab):
    page = lab.page("/apps")
    for text in ("Nothing runs now", "JupyterLab", "Greeter", "of this site", "My own"):
        page.wait_text(text)
    assert "broken" not in page.text()
    click_in(page, "Greeter", "Start")
    page.wait_text("Start Greeter")
    fill(page, "CPUs", "none")
    fill(page, "Note", "first")
    page.click(".dialog-foot .primary")
    page.wait_text("write a number")  # the field that is wrong says so
    fill(page, "CPUs", "2")
    fill(page, "Time limit", "2h")
    page.click("dialog summary")
    page.wait_text("acequia app start greeter cpus=2 time=2h note=first")
    page.evaluate("(() => { const s = document.querySelector('dialog select'); s.value = 'bye'; s.dispatchEvent(new Event('change', { bubbles: true })); })()")
    answer(page)
    page.wait("document.querySelector('.instance .state.good')", 60)
    job = job_of(lab, "greeter")
    assert (job["user"], job["cpus"], job["time_limit_s"]) == (lab.ana.name, 2, 7200)
    # Its address opens the program, in a tab of its own and logged in as her.
    url = page.evaluate("document.querySelector('.instance a.primary').href")
    assert url == lab.c.api.get(f"/v1/jobs/{job['id']}")["urls"][0] and page.evaluate("document.querySelector('.instance a.primary').target") == "_blank"
    page.goto(url)
    page.wait_text("bye")
    page.goto(f"{lab.origin}/apps")
    click_in(page, "greeter", "Share…")
    fill(page, "User name", lab.eva.name)
    page.click("dialog form .primary")
    page.wait(f"document.querySelector('dialog tbody tr')?.innerText.startsWith('{lab.eva.name}')")
    page.click(".dialog-foot .button")
    # Another with the settings of the last time, or with the usual ones.
    click_in(page, "Greeter", "Start")
    page.wait_text("With the settings of the last time")
    assert page.evaluate("[...document.querySelectorAll('dialog input')].map(e => e.value)") == ["2", "2h", "first"]
    assert page.evaluate("document.querySelector('dialog select').value") == "bye"
    page.click("Usual settings")
    page.wait("document.querySelector('dialog input').value === ''")
    page.press("Escape")
    page.wait("!document.querySelector('dialog[open]')")
    click_in(page, "greeter", "Stop")
    answer(page)
    page.wait_text("Nothing runs now")
    wait_until(lambda: lab.c.api.get(f"/v1/jobs/{job['id']}")["state"] == "CANCELLED", 60, "it is not stopped")
    click_in(page, "greeter", "Start again")
    answer(page)
    page.wait("document.querySelector('.instance .state.good')", 60)
    again = job_of(lab, "greeter")
    assert again["id"] > job["id"] and again["cpus"] == 2
    environment = json.loads(lab.cli(lab.ana, "get", "--json", str(again["id"])))
    assert environment["spec"]["time_limit_s"] == 7200
    # The browser notes the refusal that the form tells in words, and that the program has no picture for the tab.
    assert [p for p in page.problems if "/v1/apps/greeter" not in p and "favicon" not in p] == []
    lab.c.cli("cancel", str(again["id"]))


def test_an_app_of_ones_own(lab):
    page = lab.page("/apps")
    page.wait_text("your own")
    click_in(page, "My own", "Start")
    page.wait_text("There is nothing to fill in")
    answer(page)
    page.wait("document.querySelector('.instance .state.good')", 60)
    job = job_of(lab, "mine")
    assert job["user"] == lab.ana.name and job["tags"] == ["app=mine"]
    assert page.problems == []
    lab.c.cli("cancel", str(job["id"]))
    # Others have none of her apps.
    other = lab.page("/apps", who=lab.eva)
    other.wait_text("Greeter")
    assert "My own" not in other.text() and other.problems == []


def test_a_service_is_made_scaled_updated_and_deleted(lab):
    page = lab.page("/services")
    page.wait_text("No services")
    page.click("New service")
    for label, value in (("Name", "echo"), ("Command", f"{lab.service} 1"), ("CPUs", "1"), ("Replicas at most", "3")):
        fill(page, label, value)
    page.click("dialog summary")
    page.wait_text("acequia serve --name echo --replicas 1-3 --cpus 1 -- sh -c")
    answer(page)
    page.wait("location.pathname === '/services/echo'")
    page.wait("document.querySelector('.top .pill.good')?.innerText === 'Ready'", 60)
    echo = f"/v1/services/echo?user={lab.ana.name}"
    assert (lab.c.api.get(echo)["replicas_min"], lab.c.api.get(echo)["replicas_max"]) == (1, 3)
    # A token, shown once; what comes in with it is counted on the page.
    page.click("New token")
    fill(page, "What it is for", HOSTILE)
    answer_token = "[...document.querySelectorAll('dialog[open] pre')].map(p => p.innerText).find(x => x.startsWith('aqs1.'))"
    page.click(".dialog-foot .primary")
    page.wait(answer_token)
    token = page.evaluate(answer_token).strip()
    page.click(".dialog-foot .primary")
    page.wait("!document.querySelector('dialog[open]')")
    url = urlsplit(lab.c.api.get(echo)["url"])
    command = ["curl", "-s", "--max-time", "60", "-H", f"Host: {url.netloc}", "-H", f"Authorization: Bearer {token}", f"http://127.0.0.1:{url.port}/"]
    for _ in range(5):
        assert json.loads(subprocess.run(command, capture_output=True, check=True, timeout=90).stdout)["revision"] == "1"
    page.wait_text("5 requests in all")
    # The sliders: one end pushes the other along.
    page.evaluate("(() => { const e = document.getElementById('scale-min'); Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set.call(e, '4');"
                  "e.dispatchEvent(new Event('input', { bubbles: true })); })()")
    page.wait("document.getElementById('scale-max').value === '4'")
    page.wait("document.querySelector('.card details pre') || true")
    page.click("Apply")
    wait_until(lambda: (lab.c.api.get(echo)["replicas_min"], lab.c.api.get(echo)["replicas_max"]) == (4, 4), 30, "it is not scaled")
    page.wait("document.querySelectorAll('[aria-label=Replicas] tbody .state.good').length === 4", 90)
    page.wait_text("Log of replica")
    # A revision that is tried with a part of the requests, then promoted.
    page.click("New revision")
    fill(page, "Command", f"{lab.service} 2")
    fill(page, "Part of the requests at first", "20")
    answer(page)
    page.wait("[...document.querySelectorAll('[aria-label=Revisions] tbody tr')].some(r => r.cells[0].innerText === '2' && r.innerText.includes('20%'))", 90)
    page.click("Promote")
    answer(page)
    wait_until(lambda: [r["number"] for r in lab.c.api.get(echo)["revisions"] if r["weight"] == 100] == [2], 90, "it is not promoted")
    page.click("tbody a")  # a replica's own page
    page.wait("location.pathname.startsWith('/jobs/')")
    page.goto(f"{lab.origin}/services")
    page.wait("document.querySelector('tbody tr')?.innerText.includes('echo')")
    page.click("echo")
    page.wait_text(HOSTILE)  # the label of the token: a text
    assert page.evaluate("document.querySelectorAll('img').length") == 0
    # It is hers: Eva is told that there is none.
    other = lab.page("/services/echo", who=lab.eva)
    other.wait_text("There is no service echo")
    page.click("Delete")
    answer(page)
    page.wait("location.pathname === '/services'")
    page.wait_text("No services")
    assert page.problems == []


def test_a_volume_is_made_used_shared_and_deleted(lab):
    page = lab.page("/volumes")
    page.wait_text("No volumes")
    page.click("New volume")
    fill(page, "Name", "data")
    fill(page, "How much it may hold", "much")
    page.click(".dialog-foot .primary")
    page.wait_text("The size is not understood")
    fill(page, "How much it may hold", "100G")
    page.click("dialog summary")
    page.wait_text("acequia volume create data --size 100G")
    answer(page)
    page.wait_text("100 GB")
    page.click(f"~{lab.ana.name}/data")
    page.wait_text("Its folder is made when the first job has it")
    page.wait_text("No job has it now")
    job = lab.cli(lab.ana, "submit", "-Q", "-o", "/dev/null", "-v", "data:/data", "--", "sleep", "600").strip()
    page.wait_text(f"Job {job}")
    wait_until(lambda: os.path.isdir(f"{lab.root}/users/{lab.ana.name}/data"), 60, "no folder")
    page.goto(f"{lab.origin}/volumes/data")
    page.wait_text("The file system keeps no quota for this folder")
    page.wait_text("Show its files")
    page.click("Delete")
    page.click(".dialog-foot .danger")
    page.wait_text(f"is in use by job {job}")
    page.press("Escape")
    page.wait("!document.querySelector('dialog[open]')")
    # For Eva to read; then no more.
    page.click("Share…")
    fill(page, "User name", lab.eva.name)
    answer(page)
    page.wait(f"[...document.querySelectorAll('li.spread')].some(r => r.innerText.includes('{lab.eva.name}'))")
    other = lab.page("/volumes", who=lab.eva)
    other.wait_text(f"~{lab.ana.name}/data")
    assert other.evaluate("document.querySelectorAll('tbody .danger').length") == 0  # not hers to delete
    other.click(f"~{lab.ana.name}/data")
    other.wait_text(f"-v '~{lab.ana.name}/data:/data:ro'")
    click_in(page, lab.eva.name, "Revoke")
    answer(page)
    page.wait_text("With nobody")
    other.goto(f"{lab.origin}/volumes")
    other.wait_text("No volumes")
    # One of the project.
    page.goto(f"{lab.origin}/volumes")
    page.click("New volume")
    fill(page, "Name", "sets")
    page.evaluate("(() => { const s = document.querySelector('dialog select'); s.value = 'vision'; s.dispatchEvent(new Event('change', { bubbles: true })); })()")
    answer(page)
    page.wait_text("vision/sets")
    other.goto(f"{lab.origin}/volumes")
    other.wait_text("vision/sets")
    lab.c.cli("cancel", job)
    lab.c.cli("wait", job, check=False)
    for name in (f"~{lab.ana.name}/data", "vision/sets"):
        page.wait_text(name)
        click_in(page, name, "Delete")
        answer(page)
        page.wait(f"![...document.querySelectorAll('tbody tr')].some(r => r.innerText.includes('{name}'))")
    page.wait_text("No volumes")
    # The browser notes the refusal that the dialog tells in words.
    assert [p for p in page.problems if "409" not in p] == [] and other.problems == []


def test_what_people_write_stays_text(lab):
    """The title, picture and fields of an app of one's own, the command of a service, the folder of a volume."""
    page = lab.page("/apps")
    page.wait_text(HOSTILE)
    click_in(page, HOSTILE, "Start")
    page.wait("document.querySelectorAll('dialog .hint').length === 2")
    page.click("dialog summary")
    page.wait("document.querySelector('dialog pre')")
    page.press("Escape")
    page.wait("!document.querySelector('dialog[open]')")
    lab.cli(lab.ana, "serve", "--name", "evil", "--replicas", "0-1", "-o", "/dev/null", "--", "sleep", HOSTILE)
    lab.cli(lab.ana, "serve", "token", "evil", "create", "--label", HOSTILE)
    lab.c.cli("volume", "create", "evil", "-P", "vision", "--at", f"/{HOSTILE}")
    for path in ("/services", "/services/evil", "/volumes", "/volumes/evil?project=vision"):
        page.goto(lab.origin + path)
        page.wait_text("evil")
        page.wait("document.querySelectorAll('.loading').length === 0")
        if path != "/services":
            page.wait_text(HOSTILE)
        assert page.evaluate("document.querySelectorAll('img').length") == 0, path
        assert "owned" not in page.evaluate("document.title"), path
    lab.cli(lab.ana, "serve", "delete", "evil")
    lab.c.cli("volume", "delete", "vision/evil")
    assert page.problems == []


def test_narrow_dark_and_other_languages(lab):
    lab.cli(lab.ana, "volume", "create", "long-name-of-a-volume-with-results", "--size", "2T")
    page = lab.page("/apps", width=390, height=844, dark=True, language="ca")
    for path, text in (("/apps", "En marxa"), ("/services", "No hi ha serveis"), ("/volumes", "Volum"), ("/volumes/long-name-of-a-volume-with-results", "Ús")):
        page.goto(lab.origin + path)
        page.wait_text(text)
        page.wait("document.querySelectorAll('.loading').length === 0")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
    lab.cli(lab.ana, "volume", "delete", "long-name-of-a-volume-with-results")
    assert page.problems == []
