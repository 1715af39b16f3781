"""More pages of the portal in Debian's Chromium: analytics, time travel, alerts, what a longer time limit does to others."""
import json
import time

import pytest

from tests.lab import browser
from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until
from tests.journeys.test_portal import COUNTS, GPUS, no_problems, pytestmark, served, wait_state  # noqa: F401  # pylint: disable=unused-import

PRICES = "[report]\ncurrency = EUR\nprice_gpu_hour = 1000\n"


def submit(c, name, *options, command=("sleep", "600")):
    return c.cli("submit", "-Q", "-J", name, "-o", "/dev/null", *options, "--", *command).stdout.strip()


def fill(page, label, text):
    """Types into the field of the open dialog with this label, over what is there."""
    field = f"[...document.querySelectorAll('dialog[open] .field')].find(f => f.innerText.startsWith('{label}'))?.querySelector('input')"
    page.wait(field)
    page.evaluate(f"(() => {{ const e = {field}; e.focus(); e.select(); }})()")
    page.type(text)
    page.wait(f"{field}.value === {json.dumps(text)}")


@pytest.fixture(scope="module", name="lab")
def lab_fixture():
    with Cluster(config=GPUS + PRICES) as c:
        c.cli("project", "create", "vision", "--quota", "3")
        wait_state(c, submit(c, "short", "-P", "vision", "-g", "2", "-t", "1h", command=("sleep", "3")), "COMPLETED")
        c.cli("submit", "-Q", "-P", "vision", "-J", "train", "-g", "2", "-t", "2h", "-o", f"{c.home}/train.out", "--", "sh", "-c", COUNTS)
        submit(c, "waits", "-P", "vision", "-g", "4", "-t", "1h")
        with served(c) as url, browser.Browser() as b:
            yield c, url, b


def test_analytics(lab):
    _, url, b = lab
    page = b.page()
    page.goto(f"{url}/analytics?span=1d")
    page.wait_text("GPUs by project")
    page.wait("document.querySelectorAll('.chart canvas').length > 0")
    row = "[...document.querySelectorAll('tbody tr')].find(r => r.innerText.startsWith('vision'))"
    page.wait(row)
    assert "EUR" in page.evaluate(f"{row}.innerText")
    assert page.evaluate("document.querySelector('.legend').innerText").strip() == "vision"
    csv = page.evaluate("fetch([...document.querySelectorAll('a')].find(a => a.innerText === 'Download CSV').href).then(r => r.text())")
    assert csv.splitlines()[0].startswith("name,jobs,gpu_hours") and any(line.startswith('"vision",2,') for line in csv.splitlines()), csv
    page.click("User")
    page.wait_text("GPUs by user")
    page.click("Month")
    page.wait("[...document.querySelectorAll('tbody tr')].some(r => /^2\\d\\d\\d-\\d\\d/.test(r.innerText))")
    page.goto(f"{url}/analytics?by=month")  # the address says it all
    page.wait("document.querySelector('[aria-pressed=true] + [aria-pressed=false]')")
    page.wait("[...document.querySelectorAll('tbody tr')].some(r => /^2\\d\\d\\d-\\d\\d/.test(r.innerText))")
    no_problems(page)


def test_pages_that_were_left_hold_no_connection(lab):
    """A browser opens six connections to a server; each page that it keeps for "back" would hold one of them."""
    _, url, b = lab
    page = b.page()
    for i in range(9):
        page.goto(f"{url}/analytics?span=1d&n={i}")
        page.wait_text("GPUs by project", seconds=10)
        page.wait("document.body.innerText.includes('live')")
    no_problems(page)


def test_time_travel(lab):
    c, url, b = lab
    job = submit(c, "long-ago")
    wait_state(c, job, "RUNNING")
    then = int(time.time() * 1000)
    c.cli("cancel", job)
    wait_state(c, job, "CANCELLED")
    page = b.page()
    page.goto(f"{url}/past")
    page.wait_text("train")
    assert "long-ago" not in page.text()
    page.goto(f"{url}/past?at={then}")
    page.wait_text("long-ago")
    assert "waits" in page.text()
    page.click("Now")
    page.wait("!document.body.innerText.includes('long-ago')")
    page.click("Play")  # it is now already: it stops by itself
    page.wait("[...document.querySelectorAll('button')].some(b => b.innerText === 'Play')")
    page.goto(f"{url}/past?at={then}")
    page.wait_text("long-ago")
    page.evaluate("document.querySelector('.past-jobs:last-of-type, .two:last-of-type .past-jobs')?.focus()")
    page.click("[aria-label=Waiting] .link-button")
    page.wait_text("Why job")
    page.wait_text("It needs")
    page.press("Escape")
    page.press("ArrowLeft")
    page.wait(f"Number(new URLSearchParams(location.search).get('at')) < {then}")
    assert page.problems == [p for p in page.problems if "/v1/me" in p or "404" in p]  # before the first event: nothing is kept
    page.goto(f"{url}/past?at=1000")
    page.wait_text("What is kept does not reach back to that time")


def test_extend_shows_who_waits_longer(lab):
    c, url, b = lab
    train, waits = (next(j for j in c.api.get("/v1/jobs")["jobs"] if j["name"] == n) for n in ("train", "waits"))
    page = b.page()
    page.goto(f"{url}/jobs/{train['label']}")
    page.click("Extend…")
    page.wait_text("Who waits longer")
    page.wait_text("1 job starts later.")
    row = page.evaluate("document.querySelector('dialog tbody tr').innerText")
    assert waits["label"] in row and "+1 h" in row, row
    page.click("+4 h")
    page.wait("document.querySelector('dialog tbody tr')?.innerText.includes('+4 h')")
    page.click("dialog summary")
    page.wait_text(f"acequia update {train['label']} --time 6h")
    page.click(".dialog-foot .primary")
    page.wait_text("has a limit of")
    assert c.api.get(f"/v1/jobs/{train['label']}")["time_limit_s"] == 6 * 3600
    c.cli("update", train["label"], "--time", "2h")
    no_problems(page)


def test_alerts_are_set_shown_and_acknowledged(lab):
    c, url, b = lab
    page = b.page()
    page.goto(f"{url}/alerts")
    page.wait_text("gpu-too-hot")
    page.wait_text("No alerts")
    page.click("New rule")
    for label, value in (("Name", "warm"), ("Value", "-5"), ("For how many seconds", "0")):
        fill(page, label, value)
    page.click("dialog .dialog-body > details:last-of-type summary")
    page.wait_text("acequia alert set warm --metric 'gpu/*/*/temperature_celsius' --above -5")
    page.click(".dialog-foot .primary")
    page.wait_text("warm is saved.")
    page.wait("[...document.querySelectorAll('tbody tr')].filter(r => r.innerText.startsWith('warm')).length >= 5")  # the rule and four GPUs
    page.wait("[...document.querySelectorAll('nav a')].some(a => /Alerts\\s*4/.test(a.innerText))")
    page.click("Acknowledge")
    fill(page, "What is done about it", "fan ordered")
    page.click(".dialog-foot .primary")
    page.wait_text("fan ordered")
    c.kill_controller()
    c.start_controller()
    c.wait_ready()
    kept = c.api.get("/v1/alerts")["alerts"]
    assert [a["comment"] for a in kept].count("fan ordered") == 1 and len(kept) == 4
    assert "fan ordered" in c.cli("alert", "list").stdout
    c.cli("alert", "delete", "warm")
    wait_until(lambda: not c.api.get("/v1/alerts")["alerts"], 30, "the alerts of a rule to go with it")
    page.goto(f"{url}/alerts")
    page.wait_text("No alerts")


def test_a_policy_is_tried_before_it_is_set(lab):
    c, url, b = lab
    submit(c, "ran", command=("true",))
    wait_until(lambda: not any(j["name"] == "ran" for j in c.api.get("/v1/jobs")["jobs"]), 60, "the job does not end")
    page = b.page()
    page.goto(f"{url}/admin/policy")
    page.wait("document.querySelector('.card select')")
    page.evaluate("(() => { const s = [...document.querySelectorAll('.field')].find(f => f.innerText.startsWith('backfill')).querySelector('select'); "
                  "s.value = 'shortest'; s.dispatchEvent(new Event('change', { bubbles: true })); })()")
    page.click("Try and save…")
    page.wait_text("What the change would have done")
    page.wait_text("Wait, median")
    assert c.api.get("/v1/policy")["backfill"] == "in_order"  # only tried
    page.evaluate("document.querySelector('dialog details summary').click()")
    page.wait_text("acequia policy set --dry-run backfill=shortest")
    page.click(".dialog-foot .primary")
    wait_until(lambda: c.api.get("/v1/policy")["backfill"] == "shortest", 20, "the policy is not set")
    c.cli("policy", "set", "backfill=in_order")
    no_problems(page)


def test_admin_keeps_departments_partitions_and_reservations(lab):
    c, url, b = lab
    page = b.page()
    page.goto(f"{url}/admin/projects")
    page.click("New project")
    for label, value in (("Name", "detection"), ("Department", "vision"), ("Guaranteed GPUs", "1")):
        fill(page, label, value)
    page.click(".dialog-foot .primary")
    page.wait_text("detection is saved.")
    assert c.api.get("/v1/projects/detection")["parent"] == "vision"
    page.wait("[...document.querySelectorAll('tbody tr')].some(r => r.cells[0].innerText.trim() === 'detection')")
    rows = page.evaluate("[...document.querySelectorAll('tbody tr')].map(r => r.cells[0].innerText)")
    assert [r.strip() for r in rows].index("detection") == [r.strip() for r in rows].index("vision") + 1, rows
    page.goto(f"{url}/admin/partitions")
    page.click("New")
    for label, value in (("Name", "night"), ("Longest time limit", "7200"), ("Tier", "2")):
        fill(page, label, value)
    page.click("dialog summary")
    page.wait_text("acequia partition create night")
    page.click(".dialog-foot .primary")
    page.wait_text("night is saved.")
    night = c.api.get("/v1/partitions/night")
    assert (night["max_time_s"], night["tier"], night["default_time_s"]) == (7200, 2, None)
    page.goto(f"{url}/admin/reservations")
    page.wait_text("None yet")
    page.click("New")
    fill(page, "Name", "service")
    for i, moment in enumerate(("2035-01-01T08:00", "2035-01-01T09:00")):
        field = f"document.querySelectorAll('dialog input[type=datetime-local]')[{i}]"
        page.evaluate(f"(() => {{ const e = {field}; Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set.call(e, '{moment}');"
                      "e.dispatchEvent(new Event('input', { bubbles: true })); })()")
        page.wait(f"document.querySelector('dialog pre')?.textContent.includes('{moment}')")
    page.click(".dialog-foot .primary")
    page.wait_text("service is saved.")
    one = c.api.get("/v1/reservations/service")
    assert one["end_ms"] - one["start_ms"] == 3600 * 1000
    page.click("tbody .danger")
    page.click(".dialog-foot .danger, .dialog-foot .primary")
    page.wait_text("None yet")
    for kind, name in (("partition", "night"), ("project", "detection")):
        c.cli(kind, "delete", name)
    no_problems(page)


def test_programs_are_opened_and_shared(lab):
    c, url, b = lab
    job = submit(c, "board", "--port", "8000", "--port", "8001", command=("/usr/bin/python3", "-m", "http.server", "8000"))
    wait_state(c, job, "RUNNING")
    page = b.page()
    page.goto(f"{url}/jobs?search=board")
    page.wait("document.querySelectorAll('tbody .open-link').length === 2")
    first = c.api.get(f"/v1/jobs/{job}")["urls"][0]
    assert page.evaluate("document.querySelector('tbody .open-link').href") == first
    page.goto(f"{url}/jobs/{job}")
    page.wait_text("Port 8000")
    assert page.evaluate("document.querySelector('.program a.primary').href") == first
    page.click("Share…")
    page.wait_text("With nobody")
    page.click("dialog form .primary")
    page.wait_text("Say with whom")
    fill(page, "User name", "daemon")
    page.click("dialog summary")
    page.wait_text(f"acequia share {job} 8000 --with daemon --for 8h")
    page.click("dialog form .primary")
    page.wait("document.querySelector('dialog tbody tr')?.innerText.startsWith('daemon')")
    kept = c.api.get(f"/v1/jobs/{job}/shares")["shares"]
    assert [(s["port"], s["user"]) for s in kept] == [(8000, "daemon")] and kept[0]["expires_ms"] - kept[0]["made_ms"] == 8 * 3600 * 1000
    assert "daemon" in c.cli("share", job, "--list").stdout
    page.click("dialog tbody .danger")
    page.wait_text("With nobody")
    assert c.api.get(f"/v1/jobs/{job}/shares")["shares"] == []
    page.press("Escape")
    page.wait("!document.querySelector('dialog[open]')")
    c.cli("cancel", job)
    wait_state(c, job, "CANCELLED")
    page.wait("!document.querySelector('.program')")  # a program ends with its job
    no_problems(page)


def test_node_shows_processes_charts_and_log(lab):
    c, url, b = lab
    node = c.api.get("/v1/nodes")["nodes"][0]["name"]
    page = b.page()
    page.goto(f"{url}/nodes/{node}")
    train = next(j for j in c.api.get("/v1/jobs")["jobs"] if j["name"] == "train")["label"]
    row = f"[...document.querySelectorAll('[aria-label=\"Processes of jobs\"] tbody tr')].find(r => r.innerText.startsWith('{train}') && r.innerText.includes('sh'))"
    page.wait(row)
    page.wait(f"/\\d\\.?\\d*/.test({row}.cells[3].innerText)")  # how busy it is, from the second look on
    page.wait("document.querySelectorAll('.charts canvas').length === 2")
    page.click("Show")
    page.wait("document.querySelector('.daemon-log')?.innerText.includes('connected to cluster')")
    page.goto(f"{url}/admin/audit")
    page.click("Show")
    page.wait(f"document.querySelector('.daemon-log')?.innerText.includes('node {node} is here')")
    # Of another user's job only what it uses is told, and the logs are for administrators.
    ours = c.api.get(f"/v1/nodes/{node}/processes")["processes"]
    # One that is ending has no memory any more.
    assert all(p["name"] for p in ours) and any(p["memory_bytes"] > 0 for p in ours)
    no_problems(page)


def test_job_charts_of_cpu_and_memory(lab):
    c, url, b = lab
    train = next(j for j in c.api.get("/v1/jobs")["jobs"] if j["name"] == "train")
    wait_until(lambda: {f"job/{train['id']}/cpu_cores", f"job/{train['id']}/memory_bytes"} <=
               set(c.api.get(f"/v1/series?prefix=job/{train['id']}/")["names"]), 30, "series of CPU and memory")
    page = b.page()
    page.goto(f"{url}/jobs/{train['label']}")
    page.wait("['CPUs', 'Memory'].every(x => [...document.querySelectorAll('.chart-title')].some(e => e.innerText.startsWith(x)))")
    no_problems(page)


def test_narrow_dark_and_other_languages(lab):
    _, url, b = lab
    page = b.page(width=390, height=844, dark=True, language="ca")
    for path, text in (("/analytics", "GPU per projecte"), ("/past", "Reprodueix"), ("/alerts", "Regles"), ("/admin/partitions", "Particions")):
        page.goto(url + path)
        page.wait_text(text)
        page.wait("document.querySelectorAll('.loading').length === 0")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
    no_problems(page)
