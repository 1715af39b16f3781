"""Stored cross-site scripting: every text that a user can set is HTML here, and every page that shows one of them shows it as it is.

Two guards hold: Preact puts texts into text nodes, and the policy (Trusted Types without any, no inline script) stops what would pass that. The
first is looked for here: no element was made of such a text, and each was seen. That the policy is sent, and which one, is in
src/controller/test/test_portal.c."""
from tests.journeys.test_portal import HOSTILE, PACK, no_problems, pytestmark as PORTAL
from tests.lab import browser
from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until

pytestmark = PORTAL
MADE = "document.querySelectorAll('img[src=x], img[onerror]').length"


def text(name):
    """Another one for each place, so that a page shows which it has."""
    return f"{name} {HOSTILE}"


def set_all(c):
    """Sets every text there is; returns the number of the job."""
    c.cli("user", "add", "ana", "--full-name", text("full name"), "--email", "ana@example.org")
    job = c.cli("submit", "-Q", "-J", text("job name"), "--comment", text("comment"), "--tag", "kind=<b>", "-o", f"{c.home}/out",
                "--", "sh", "-c", f"echo \"{text('log line')}\"; echo 'epoch 1/2 <b>'; sleep 3000").stdout.strip()
    held = c.cli("submit", "-Q", "-H", "-J", text("held name"), "-o", "/dev/null", "--", "true", text("argument")).stdout.strip()
    wait_until(lambda: c.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 60, "the job does not start")
    c.api.request("PUT", "/v1/drafts/evil", {"title": text("draft title"), "spec": {"name": text("draft name"), "workdir": "/tmp"}, "script": f"#!/bin/sh\n# {text('script')}\n"})
    c.api.request("PUT", "/v1/templates/evil", {"title": text("template title"), "spec": {"name": "x"}, "script": "#!/bin/sh\n"})
    c.api.request("PUT", "/v1/views/evil", {"title": text("view title"), "query": "state=RUNNING"})
    c.api.request("PUT", "/v1/alerts/evil", {"metric": "cluster/gpus", "value": -1, "for_s": 0})
    wait_until(lambda: any(a["rule"] == "evil" for a in c.api.get("/v1/alerts")["alerts"]), 60, "there is no alert")
    c.api.post("/v1/alerts/ack", {"rule": "evil", "subject": "cluster/gpus", "comment": text("alert comment")})
    node = c.api.get("/v1/nodes")["nodes"][0]["name"]
    c.api.post(f"/v1/nodes/{node}/drain", {"reason": text("drain reason")})
    return job, held, node


def test_no_text_of_a_user_becomes_html():
    with Cluster(config=f"[node *]\ncpus = 4\nmemory = 4G\ngpus = a100:1\ngpus_simulated = true\n[portal]\nfile = {PACK}\n") as c, browser.Browser() as b:
        job, held, node = set_all(c)
        page = b.page()
        page.call("Network.setUserAgentOverride", userAgent=text("browser"))  # shown in the list of logins
        link = c.api.post("/v1/portal", {})["url"]
        page.goto(link)
        page.wait_text("GPUs in use")
        origin = link.split("/#")[0]
        seen = {"/": ["job name"], "/jobs": ["job name", "held name"], "/jobs?state=DRAFT": ["draft title"], f"/jobs/{job}": ["job name", "comment", "log line"],
                f"/jobs/{held}": ["held name", "argument"], "/new?draft=evil": [], f"/new?from={held}": [], "/nodes": [],
                f"/nodes/{node}": ["drain reason", "job name"], "/alerts": ["alert comment"], "/account": [], "/admin/people": ["full name"],
                "/admin/audit": [], "/past": [], "/analytics": [], f"/files?path={c.home}": []}
        for path, names in seen.items():
            page.goto(origin + path)
            page.wait("document.querySelector('h1')?.innerText.length > 0")
            page.wait("document.querySelectorAll('.loading, [aria-busy=true]').length === 0")
            for name in names:
                page.wait_text(text(name))
            assert page.evaluate(MADE) == 0, f"{path}: a text became an element"
            assert page.evaluate("document.title") != "owned", path
        page.goto(f"{origin}/new")
        page.click("From template")
        page.wait_text(text("template title"))
        page.goto(f"{origin}/jobs")
        page.wait_text(text("view title"))
        assert page.evaluate(MADE) == 0
        no_problems(page)
