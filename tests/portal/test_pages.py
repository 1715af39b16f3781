"""Every page of the portal, wide and narrow, light and dark, with something to show on it: axe finds nothing, nothing is wider than the screen, the
console is empty, the chosen tab is in view. Takes screenshots for people to look at. Run by make test-portal, which fetches axe-core."""
import json
import os
import tempfile

import pytest

from tests.journeys.test_portal import PACK
from tests.journeys.test_portal_clusters import fails, pool_of, score
from tests.lab import browser
from tests.lab.cluster import Cluster
from tests.portal.data import CONFIG, populate

AXE = os.environ.get("PORTAL_AXE", "")
SHOTS = os.path.join(os.path.dirname(PACK), "shots")
ADMIN = ("projects", "partitions", "qos", "reservations", "people", "join", "policy", "backups", "audit")
LOOKS = {"wide-light": (1440, 900, False), "wide-dark": (1440, 900, True), "phone-light": (390, 844, False), "phone-dark": (390, 844, True)}
DIALOGS = (("app-start", "/apps", "[aria-label='Start JupyterLab']", "Close when idle"), ("cluster-resize", "/clusters", "[aria-label='Resize hpc']", "Workers at most"), ("cluster-use", "/clusters", "[aria-label='Connect to hpc']", "mpirun"),
           ("service-new", "/services", "New service", "Replicas at most"),
           ("service-revision", "/services/translate", "New revision", "It starts beside"), ("volume-new", "/volumes", "New volume", "How much it may hold"))
MISSING = {"no-job", "no-file", "login", "service-none", "volume-none"}  # the browser notes the status that the page tells in words

pytestmark = [pytest.mark.skipif(not os.path.exists(AXE), reason="axe-core is not there: make test-portal"),
              pytest.mark.skipif(not browser.PROGRAM or not os.path.exists(PACK), reason="no chromium, or the portal is not built")]


@pytest.fixture(scope="module", name="lab")
def lab_fixture():
    with tempfile.TemporaryDirectory(prefix="acequia-volumes-") as volumes, \
            Cluster(config=f"{CONFIG.format(volumes=volumes)}[portal]\nfile = {PACK}\n") as c, browser.Browser() as b:
        jobs = populate(c)
        with pool_of(c, time="4h") as pool:
            refs = [pool.submit(fails, 3), *[pool.submit(score, i) for i in range(12)], pool.put(b"x" * 2_000_000)]
            assert refs
            yield c, b, {**jobs, "pool": pool.job.id}


def addresses(c, jobs):
    """Name of the picture -> address of the page."""
    return {"overview": "/", "jobs": "/jobs", "jobs-waiting": "/jobs?state=PENDING", "jobs-none": "/jobs?search=nonesuch", "drafts": "/jobs?state=DRAFT",
            **{f"job-{k}": f"/jobs/{v}" for k, v in jobs.items() if k in ("running", "failed", "waiting", "program", "held")},
            "no-job": "/jobs/999999", "new": "/new", "new-from-job": f"/new?from={jobs['running']}", "new-from-draft": "/new?draft=segment",
            "apps": "/apps", "services": "/services", "service": "/services/translate", "clusters": "/clusters", "pool": f"/pools/{jobs['pool']}", "pool-none": f"/pools/{jobs['running']}", "service-none": "/services/nonesuch",
            "volumes": "/volumes", "volume": "/volumes/datasets", "volume-project": "/volumes/models?project=vision", "volume-none": "/volumes/nonesuch",
            "nodes": "/nodes", "node": f"/nodes/{c.api.get('/v1/nodes')['nodes'][0]['name']}",
            "files": f"/files?path={c.home}/files", "file-text": f"/files?path={c.home}/files/train.py", "file-table": f"/files?path={c.home}/files/results/loss.csv",
            "no-file": "/files?path=/nonesuch", "analytics": "/analytics?span=1d", "past": "/past", "alerts": "/alerts", "account": "/account",
            **{f"admin-{tab}": f"/admin/{tab}" for tab in ADMIN}, "missing": "/nothing/here"}


def findings(page):
    """What axe finds on the page, one line each. It is given to the page by the debugger: the policy forbids nothing to that."""
    with open(AXE, encoding="utf-8") as f:
        page.call("Runtime.evaluate", expression=f.read())
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] }).then(r => JSON.stringify(r.violations.map(v => "
                          "`${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map(n => n.html.slice(0, 160)).join(' | ')}`)))")
    return json.loads(found)


def logged_in(c, b, width, height, dark, language="en"):
    page = b.page(width=width, height=height, dark=dark, language=language)
    link = c.api.post("/v1/portal", {})["url"]
    page.goto(link)
    page.wait("document.querySelector('.nav')")
    return page, link.split("/#")[0]


def shown(page, url):
    page.problems = []
    page.goto(url)
    page.wait("document.querySelector('h1')?.innerText.length > 0")
    page.wait("document.querySelectorAll('.loading, [aria-busy=true]').length === 0")


def looked_at(page, name, width):
    wrong = [f"{name}: {f}" for f in findings(page)]
    if page.evaluate("document.documentElement.scrollWidth") > width:
        wrong.append(f"{name}: wider than the screen")
    if not page.evaluate("[...document.querySelectorAll('[role=tab][aria-selected=true]')].every(t => { const a = t.getBoundingClientRect(), "
                         "b = t.parentElement.getBoundingClientRect(); return a.left >= b.left - 1 && a.right <= b.right + 1; })"):
        wrong.append(f"{name}: the chosen tab is out of view")
    hidden = page.evaluate("JSON.stringify([...document.querySelectorAll('.scroll-x')].flatMap(s => [...s.querySelectorAll('button, a')].filter(e => e.offsetParent && "
                           "e.getBoundingClientRect().right > s.getBoundingClientRect().right + 1).map(e => e.innerText)))")
    if hidden != "[]":
        wrong.append(f"{name}: out of view, at the right of a table: {hidden}")
    if name not in MISSING and page.problems:
        wrong.append(f"{name}: {page.problems}")
    return wrong


@pytest.mark.parametrize("look", LOOKS)
def test_pages(lab, look):
    c, b, jobs = lab
    os.makedirs(SHOTS, exist_ok=True)
    width, height, dark = LOOKS[look]
    page, origin = logged_in(c, b, width, height, dark)
    wrong = []
    for name, path in addresses(c, jobs).items():
        shown(page, origin + path)
        page.screenshot(f"{SHOTS}/{name}-{look}.png", whole=True)
        wrong += looked_at(page, name, width)
    shown(page, f"{origin}/jobs/{jobs['program']}")
    page.click("Share…")
    page.wait_text("Shared now")
    page.screenshot(f"{SHOTS}/share-{look}.png")
    wrong += looked_at(page, "share", width)
    for name, path, button, text in DIALOGS:
        shown(page, origin + path)
        page.click(button)
        page.wait_text(text)
        page.screenshot(f"{SHOTS}/{name}-{look}.png")
        wrong += looked_at(page, name, width)
    other = b.page(width=width, height=height, dark=dark)
    shown(other, origin)
    other.screenshot(f"{SHOTS}/login-{look}.png")
    wrong += looked_at(other, "login", width)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("language", ("es", "ca"))
def test_languages(lab, language):
    c, b, jobs = lab
    width = 390 if language == "ca" else 1440
    page, origin = logged_in(c, b, width, 900, False, language)
    wrong = []
    for name, path in addresses(c, jobs).items():
        shown(page, origin + path)
        page.screenshot(f"{SHOTS}/{name}-{language}.png", whole=True)
        if page.evaluate("document.documentElement.scrollWidth") > width:
            wrong.append(f"{name}: wider than the screen")
        if page.evaluate("document.documentElement.lang") != language:
            wrong.append(f"{name}: not in {language}")
    assert not wrong, "\n".join(wrong)
