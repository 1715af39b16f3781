"""The portal in Debian's Chromium: what it shows, what can be done in it, by mouse and by keyboard, without an error in the console or a
violation of its policy. Needs the pack (tools/portal), which needs Node and a registry of packages; without it these are skipped."""
import contextlib
import os
import shutil
import subprocess
import time

import pytest

from tests.lab import browser
from tests.lab.cluster import Cluster
from tests.lab.proc import end_child, free_ports

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACK = os.path.join(os.path.abspath(os.environ.get("BUILD", f"{TREE}/build")), "portal", "portal.pack")
HOSTILE = "<img src=x onerror=document.title='owned'>"
GPUS = "[cluster]\nname = lab\n[node *]\ncpus = 16\nmemory = 64G\ngpus = a100:4:40G\ngpus_simulated = true\n"
COUNTS = "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.2; done"

pytestmark = [
    pytest.mark.skipif(not browser.PROGRAM, reason="chromium is not installed (tools/setup --test)"),
    pytest.mark.skipif(not os.path.exists(PACK), reason="the portal is not built (tools/portal build)"),
    pytest.mark.skipif(not shutil.which("node"), reason="node is not installed"),
]


@contextlib.contextmanager
def served(cluster):
    """The portal's development server for a cluster: the pack and its policy as the controller has them, without a login."""
    port = free_ports(1)[0]
    with subprocess.Popen(["node", f"{TREE}/portal/dev.mjs", "--socket", f"{cluster.home}/run/api.sock", "--port", str(port), "--pack", PACK],
                          stdout=subprocess.PIPE, text=True) as server:
        try:
            assert "Portal:" in server.stdout.readline()
            yield f"http://localhost:{port}"
        finally:
            end_child(server)


@pytest.fixture(scope="module", name="lab")
def lab_fixture():
    with Cluster(config=GPUS) as c:
        c.cli("project", "create", "vision", "--quota", "3")
        c.cli("submit", "-Q", "-P", "vision", "-J", "train", "-g", "2", "-t", "2h", "-o", f"{c.home}/train.out", "--", "sh", "-c", COUNTS)
        c.cli("submit", "-Q", "-P", "vision", "-J", "waits", "-g", "4", "-t", "1h", "-o", "/dev/null", "--", "sleep", "9")
        c.cli("submit", "-Q", "-J", HOSTILE, "--comment", HOSTILE, "-o", "/dev/null", "--", "true")
        c.cli("submit", "-Q", "-J", "sweep", "--array", "0-19", "-H", "-o", "/dev/null", "--", "true")
        c.cli("submit", "-Q", "-J", "long", "-o", f"{c.home}/long.out", "--", "seq", "-f", "row %.0f", "200000")
        with served(c) as url, browser.Browser() as b:
            yield c, url, b


def no_problems(page):
    # An earlier controller has no sessions: the page asks and is told so.
    assert [p for p in page.problems if "/v1/me" not in p] == []


def job_state(c, job):
    return c.api.get(f"/v1/jobs/{job}")["state"]


def wait_state(c, job, state):
    until = time.monotonic() + 30
    while job_state(c, job) != state:
        assert time.monotonic() < until, job_state(c, job)
        time.sleep(0.1)


def test_overview_is_live(lab):
    c, url, b = lab
    page = b.page()
    page.goto(url)
    for text in ("GPUs in use", "vision", "train", "waits", "live"):
        page.wait_text(text)
    assert page.evaluate("document.querySelectorAll('.gpu').length") == 4
    c.cli("submit", "-Q", "-J", "appears", "-o", "/dev/null", "--", "sleep", "60")
    page.wait_text("appears")  # without a reload
    c.cli("cancel", "--name", "appears")
    no_problems(page)


def test_jobs_are_found_held_and_cancelled(lab):
    c, url, b = lab
    ids = c.cli("submit", "-Q", "-J", "victim", "-H", "-o", "/dev/null", "--", "true").stdout.strip()
    page = b.page()
    page.goto(f"{url}/jobs")
    page.wait_text("victim")
    page.wait_text("[20]")  # the array is one row
    page.evaluate("document.querySelector('input[type=search]').focus()")
    page.type("victim")
    page.wait("document.querySelectorAll('tbody tr.item').length === 1")
    page.click("tbody input[type=checkbox]")
    page.click("Release")
    page.click("dialog summary")
    page.wait_text(f"acequia release {ids}")
    page.click(".dialog-foot .primary")
    wait_state(c, ids, "COMPLETED")
    page.wait_text("Completed")
    no_problems(page)


def test_hostile_names_are_text(lab):
    _, url, b = lab
    page = b.page()
    page.goto(f"{url}/jobs")
    page.wait_text(HOSTILE)
    page.click(HOSTILE)
    page.wait("location.pathname !== '/jobs'")
    page.wait_text("What happened")
    assert page.evaluate("document.querySelectorAll('img').length") == 0
    assert page.evaluate("document.title") != "owned"
    no_problems(page)


def test_job_page_log_terminal_and_reason(lab):
    _, url, b = lab
    page = b.page()
    page.goto(f"{url}/jobs/1")
    page.wait_text("line 1")
    page.wait("document.querySelectorAll('.chart canvas').length > 0")
    page.click("Terminal")
    page.wait("document.querySelector('.xterm-rows')?.innerText.length > 0")
    page.keys("echo sum-$((40+2))")
    page.press("Enter")
    page.wait("document.querySelector('.xterm-rows').innerText.includes('sum-42')")
    page.press("Escape")
    page.goto(f"{url}/jobs/2")
    page.wait_text("Expected start")
    page.wait_text("Jobs that hold what it needs")
    no_problems(page)


def test_long_log_is_searched(lab):
    c, url, b = lab
    wait_state(c, c.api.get("/v1/jobs?finished=1&name=long")["jobs"][0]["id"], "COMPLETED")
    page = b.page()
    page.goto(f"{url}/jobs/{c.api.get('/v1/jobs?finished=1&name=long')['jobs'][0]['label']}")
    page.click("Load from the beginning")
    page.wait_text("200,000 lines")
    assert page.evaluate("document.querySelectorAll('.log-line').length") < 100
    page.evaluate("document.getElementById('log-search').focus()")
    page.type("ROW 123456")
    page.wait_text("1 line")
    page.press("Enter")
    page.wait("document.querySelector('.log-line.current')?.innerText.endsWith('row 123456')")
    no_problems(page)


def test_keyboard_alone(lab):
    _, url, b = lab
    page = b.page()
    page.goto(url)
    page.wait_text("train")
    page.press("/")
    page.wait("document.activeElement.classList.contains('command-input')")
    page.type("train")
    page.wait("[...document.querySelectorAll('.command-item')].some(e => e.innerText.includes('train') && e.getAttribute('aria-selected') === 'true')")
    page.press("Enter")
    page.wait("location.pathname === '/jobs/1'")
    page.wait_text("What happened")
    page.goto(f"{url}/jobs")
    page.wait("document.querySelector('tr[data-row]')")
    page.evaluate("document.querySelector('tr[data-row=\"0\"]').focus()")
    page.press("ArrowDown")
    page.wait("document.activeElement.dataset.row === '1'")
    page.press(" ")
    page.wait_text("1 job selected")
    page.press("Enter")
    page.wait("location.pathname.startsWith('/jobs/')")
    no_problems(page)


def test_phone_dark_and_languages(lab):
    c, url, b = lab
    page = b.page(width=390, height=844, dark=True, language="es")
    for path in ("/", "/jobs", "/jobs/1", "/nodes", "/account"):
        page.goto(url + path)
        page.wait("document.querySelector('h1')?.innerText.length > 0")
        page.wait("document.querySelectorAll('.loading').length === 0")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
    page.goto(url)
    page.wait_text("En espera")
    page.goto(f"{url}/jobs/2")  # what the scheduler explains
    page.wait_text("Es el siguiente de la cola y espera recursos libres.")
    page.wait_text("Necesita 1 nodo. De 1 nodo: 1 con muy pocas GPU libres.")
    page.wait_text("Empezaría ahora con 2 GPU en lugar de 4.")
    again = c.cli("submit", "-Q", "-J", "again", "--retries", "1", "-o", "/dev/null", "--", "false").stdout.strip()
    page.goto(f"{url}/jobs/{again}")  # and what events have kept in English
    page.wait_text("código de salida 1; reintento 1 de 1")
    page.goto(url)
    page.wait_text("En espera")
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(16, 22, 21)"
    no_problems(page)


def test_lost_connection_is_said_and_mended():
    with Cluster(config=GPUS) as c, served(c) as url, browser.Browser() as b:
        page = b.page()
        page.goto(url)
        page.wait("document.querySelector('.connection')?.dataset.state === 'live'")
        page.wait_text("GPUs in use")
        c.kill_controller()
        page.wait("document.querySelector('.banner.warning')")
        assert "GPUs in use" in page.text()  # what was there stays
        c.start_controller()
        c.wait_ready()
        page.wait("document.querySelector('.connection')?.dataset.state === 'live'", 60)
        page.wait("!document.querySelector('.banner.warning')")


SBATCH = "#!/bin/bash\\n#SBATCH --job-name=slurmy --time=00:10:00\\n#SBATCH --mem=100M -c 2\\necho from the portal\\n"


def value_of(page, label):
    return page.evaluate(f"[...document.querySelectorAll('.field')].find(f => f.innerText.startsWith('{label}')).querySelector('input').value")


def put_script(page, script):
    setter = "Object.getOwnPropertyDescriptor(HTMLTextAreaElement.prototype, 'value').set"
    page.evaluate(f"(() => {{ const e = document.querySelector('.editor'); {setter}.call(e, \"{script}\"); e.dispatchEvent(new Event('input', {{ bubbles: true }})); }})()")


def test_composer_keeps_form_and_script_in_step(lab):
    c, url, b = lab
    page = b.page()
    page.goto(f"{url}/new")
    page.wait_text("accepted as written")
    put_script(page, SBATCH)
    page.wait("document.querySelectorAll('.field input')[0].value === 'slurmy'")
    assert [value_of(page, f) for f in ("Memory", "CPUs", "Time limit")] == ["100M", "2", "00:10:00"]
    page.evaluate("(() => { const e = document.querySelectorAll('.field input')[0]; e.focus(); e.select(); })()")
    page.type("renamed")
    page.wait("document.querySelector('.editor').value.includes('--job-name=renamed --time=00:10:00')")
    page.wait_text("accepted as written")
    page.click("Submit")
    page.wait("/^.jobs.[0-9]+$/.test(location.pathname)")
    page.wait_text("from the portal")
    job = c.api.get(f"/v1/jobs/{page.evaluate('location.pathname.slice(6)')}")
    assert (job["name"], job["cpus"], job["time_limit_s"], job["memory_bytes"]) == ("renamed", 2, 600, 100 << 20)
    page.click("Clone")
    page.wait("document.querySelector('.editor')?.value.includes('echo from the portal')")
    no_problems(page)


SLIDER = "[...document.querySelectorAll('.start-axis')].find(a => a.innerText.startsWith('{}')).querySelector('input')"


def start_at(page, slider, stop):
    """What the composer says about a stop of a slider before it is moved there: the wait above it."""
    return page.evaluate(f"(a => a.querySelectorAll('.start-stops button')[[...a.querySelectorAll('.start-stops span')].filter(s => s.parentElement.tagName !== 'BUTTON')"
                         f".findIndex(s => s.innerText === '{stop}')].innerText)({SLIDER.format(slider)}.parentElement)")


def test_composer_shows_the_start_at_every_stop_of_its_sliders(lab):
    """Two of four GPUs are held for two hours, then a job has all four: what is short starts now, what is long or large does not."""
    c, url, b = lab
    page = b.page()
    page.goto(f"{url}/new")
    page.wait_text("accepted as written")
    put_script(page, "#!/bin/sh\\n#ACEQUIA --project vision --gpus 1 --memory 16G --time 4h\\ntrue\\n")
    page.wait_text("at the latest")
    page.wait("[...document.querySelectorAll('.start-stops button')].every(b => b.innerText.trim())")
    spec = {"project": "vision", "gpus_milli": 1000, "memory_per_node_bytes": 16 << 30, "time_limit_s": 4 * 3600}
    variants = c.api.post("/v1/when", {"spec": spec, "instead": [{"time_limit_s": 3600}, {"gpus_milli": 4000}, {"gpus_milli": 250}]})["variants"]
    assert [v["start"]["basis"] == "now" for v in variants] == [False, True, False, False], variants
    assert start_at(page, "Time limit", "1 h") == "now" and start_at(page, "GPUs", "0") == "now"
    assert {start_at(page, "Time limit", "4 h"), start_at(page, "GPUs", "4"), start_at(page, "Part of a GPU", "0.25")}.isdisjoint({"now", "–", "✕", ""})
    # By keyboard: what the scheduler said about the stop is there at once, for eyes and for screen readers; script and form follow.
    page.evaluate(SLIDER.format("Time limit") + ".focus()")
    page.press("ArrowLeft")
    page.wait("document.querySelector('.editor').value.includes('--time 1h')")
    assert value_of(page, "Time limit") == "1h"
    assert page.evaluate("document.querySelector('.figure .value').innerText") == "now"
    assert page.evaluate(SLIDER.format("Time limit") + ".getAttribute('aria-valuetext')") == "1 h: now"
    page.evaluate(SLIDER.format("Part of a GPU") + ".focus()")
    page.press("ArrowLeft")
    page.wait("document.querySelector('.editor').value.includes('--gpus 0.75')")
    page.evaluate(SLIDER.format("GPUs") + ".focus()")
    for key in ("ArrowRight", "ArrowRight", "ArrowRight"):
        page.press(key)
    page.wait("document.querySelector('.editor').value.includes('--gpus 4')")
    assert page.evaluate(SLIDER.format("Part of a GPU") + ".disabled")  # of four GPUs there are no parts
    page.wait_text("at the latest")
    no_problems(page)


def test_link_logs_in_once_and_nobody_else_is_in():
    with Cluster(config=f"[portal]\nfile = {PACK}\n") as c, browser.Browser() as b:
        link = c.api.post("/v1/portal", {})["url"]
        page = b.page()
        page.goto(link)
        page.wait_text("GPUs in use")
        assert "code" not in page.evaluate("location.href")
        page.goto(link.split("#", 1)[0] + "account")
        page.wait_text("this one")
        assert page.problems == [] and "Invalid" not in page.text()
        for second in (link, link.split("#", 1)[0]):  # a code is good for one login
            other = b.page()
            other.goto(second)
            other.wait_text("Log in to")
            assert "GPUs in use" not in other.text()
