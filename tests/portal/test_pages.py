"""Every page of the portal, wide and narrow, light and dark: axe finds nothing, nothing is wider than the screen, the console is empty. Takes
screenshots for people to look at. Run by make test-portal, which fetches axe-core."""
import json
import os

import pytest

from tests.lab import browser
from tests.journeys.test_portal import PACK, lab_fixture, no_problems  # noqa: F401 (a fixture)  # pylint: disable=unused-import

AXE = os.environ.get("PORTAL_AXE", "")
SHOTS = os.path.join(os.path.dirname(PACK), "shots")
PAGES = {"overview": "/", "jobs": "/jobs", "running": "/jobs/1", "waiting": "/jobs/2", "nodes": "/nodes", "node": None, "account": "/account", "new": "/new", "drafts": "/jobs?state=DRAFT", "admin": "/admin", "join": "/admin/join", "policy": "/admin/policy", "backups": "/admin/backups", "audit": "/admin/audit",
         "analytics": "/analytics", "past": "/past", "alerts": "/alerts", "partitions": "/admin/partitions", "reservations": "/admin/reservations", "files": "/files?path=/usr/share", "file": "/files?path=/etc/passwd",
         "missing": "/nothing/here", "no-job": "/jobs/999999"}
LOOKS = {"wide-light": (1440, 900, False), "wide-dark": (1440, 900, True), "phone-light": (390, 844, False), "phone-dark": (390, 844, True)}

pytestmark = [pytest.mark.skipif(not os.path.exists(AXE), reason="axe-core is not there: make test-portal"),
              pytest.mark.skipif(not browser.PROGRAM or not os.path.exists(PACK), reason="no chromium, or the portal is not built")]


def findings(page):
    """What axe finds on the page, one line each. It is given to the page by the debugger: the policy forbids nothing to that."""
    with open(AXE, encoding="utf-8") as f:
        page.call("Runtime.evaluate", expression=f.read())
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] }).then(r => JSON.stringify(r.violations.map(v => "
                          "`${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map(n => n.html.slice(0, 160)).join(' | ')}`)))")
    return json.loads(found)


@pytest.mark.parametrize("look", LOOKS)
def test_pages(lab, look):
    c, url, b = lab
    os.makedirs(SHOTS, exist_ok=True)
    width, height, dark = LOOKS[look]
    wrong = []
    for name, path in PAGES.items():
        path = path or f"/nodes/{c.api.get('/v1/nodes')['nodes'][0]['name']}"
        page = b.page(width=width, height=height, dark=dark)
        page.goto(url + path)
        page.wait("document.querySelector('h1')?.innerText.length > 0")
        page.wait("document.querySelectorAll('.loading').length === 0")
        page.screenshot(f"{SHOTS}/{name}-{look}.png")
        wrong += [f"{name}: {f}" for f in findings(page)]
        if page.evaluate("document.documentElement.scrollWidth") > width:
            wrong.append(f"{name}: wider than the screen")
        if name != "no-job":  # the browser notes the 404 that the page shows
            no_problems(page)
    assert not wrong, "\n".join(wrong)
