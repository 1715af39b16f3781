"""The portal by keyboard alone: log in, compose, submit, read the log, work in a terminal, cancel. Nothing is clicked, nothing is focused by a script:
every step is a key that a person can press, and what has the focus is seen by its ring."""
import getpass
import json
import os
import subprocess

import pytest

from tests.journeys.test_portal import PACK, job_state
from tests.lab import browser
from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until

pytestmark = [
    pytest.mark.skipif(not browser.PROGRAM, reason="chromium is not installed (tools/setup --test)"),
    pytest.mark.skipif(not os.path.exists(PACK), reason="the portal is not built (tools/portal build)"),
]
PASSWORD = "correct horse battery"
SHIFT, CTRL = 8, 2
HAS_RING = "getComputedStyle(document.activeElement).outlineStyle !== 'none'"
SCRIPT = "#!/bin/sh\n#ACEQUIA --name typed --memory 100M --output {out}\ni=0; while :; do i=$((i+1)); echo line $i; sleep 0.1; done\n"


def tab_to(page, what, back=False):
    """Tab until what has the focus is this: an expression of `e`."""
    found = f"(e => e && e !== document.body && ({what}))(document.activeElement)"
    seen = []
    for _ in range(250):
        if page.evaluate(f"!!({found})"):
            assert page.evaluate(HAS_RING), f"what has the focus is not seen: {what}"
            return
        seen.append(page.evaluate("document.activeElement?.outerHTML.slice(0, 60)"))
        page.press("Tab", SHIFT if back else 0)
    raise AssertionError(f"not reached by Tab: {what}; passed {seen[:40]}")


def button(text):
    return f"e.innerText?.trim() === {json.dumps(text)} && !e.disabled"


def labelled(text):
    return f"document.querySelector(`label[for=\"${{e.id}}\"]`)?.innerText.trim() === {json.dumps(text)}"


def test_a_day_without_a_mouse(tmp_path):
    with Cluster(config=f"[cluster]\nname = lab\n[node *]\ncpus = 4\nmemory = 4G\n[portal]\nfile = {PACK}\n") as c, browser.Browser() as b:
        c.cli("user", "add", "ana", "--full-name", "Ana B", "--unix-user", getpass.getuser())
        subprocess.run([c.binary, "user", "passwd", "ana"], env=c.env, input=f"{PASSWORD}\n".encode(), check=True)
        page = b.page()
        page.goto(c.api.post("/v1/portal", {})["url"].split("#")[0])
        page.wait_text("Log in to lab")
        tab_to(page, labelled("User"))
        page.keys("ana")
        page.press("Tab")
        page.keys(PASSWORD)
        page.press("Enter")
        page.wait_text("GPUs in use")
        # The search box leads anywhere.
        page.press("/")
        page.wait("document.activeElement.classList.contains('command-input')")
        page.keys("new job")
        page.wait("document.querySelector('.command-item[aria-selected=true]')?.innerText.includes('New job')")
        page.press("Enter")
        page.wait("document.querySelector('textarea.editor')")
        page.wait("!document.querySelector('dialog[open]')")
        tab_to(page, "e.matches('textarea.editor')")
        page.press("a", CTRL)
        page.type(SCRIPT.format(out=f"{tmp_path}/out"))
        page.wait("document.querySelector('textarea.editor').value.includes('--name typed')")
        page.wait_text("accepted as written")
        tab_to(page, button("Submit"), back=True)
        page.press("Enter")
        page.wait("/^.jobs.[0-9]+$/.test(location.pathname)")
        job = page.evaluate("location.pathname.slice(6)")
        page.wait_text("line 1")
        # The log takes the focus, "/" searches it.
        tab_to(page, "e.getAttribute('role') === 'log'")
        page.press("/")
        page.wait("document.activeElement.id === 'log-search'")
        page.keys("line 3")
        page.wait("document.querySelector('.log-line mark')")
        page.press("Enter")
        page.wait("document.querySelector('.log-line.current')?.innerText.includes('line 3')")
        # A terminal keeps Escape for its programs; the way out is said and works.
        tab_to(page, button("Terminal"), back=True)
        page.press("Enter")
        page.wait("document.activeElement?.classList.contains('xterm-helper-textarea')")
        page.wait("document.querySelector('.xterm-rows')?.innerText.trim().length > 0")
        page.keys("echo sum-$((40+2))")
        page.press("Enter")
        page.wait("document.querySelector('.xterm-rows').innerText.includes('sum-42')")
        page.wait_text("Ctrl+F6 leaves the terminal")
        page.press("Escape")
        page.press("Tab")
        assert page.evaluate("document.activeElement.classList.contains('xterm-helper-textarea')")
        page.press("F6", CTRL)
        page.wait("document.activeElement?.closest('.dialog-head')")
        page.press("Escape")
        page.wait("!document.querySelector('dialog[open]')")
        tab_to(page, button("Cancel"))
        page.press("Enter")
        page.wait("document.querySelector('dialog[open]')")
        tab_to(page, "e.closest('.dialog-foot') && e.classList.contains('danger')")
        page.press("Enter")
        wait_until(lambda: job_state(c, job) == "CANCELLED", 60, "the job goes on")
        page.wait_text("Cancelled")
        # The browser notes what the page tells in words: who is not logged in yet.
        assert [p for p in page.problems if "401" not in p] == []
