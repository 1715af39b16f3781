"""The portal in Debian's Chromium: drafts, templates and views that the controller keeps, and what one user sees of another's jobs."""
import contextlib
import os
import pwd
import subprocess

import pytest

from tests.journeys.test_portal import GPUS, PACK, TREE, no_problems, pytestmark, served  # noqa: F401 (marks of this module)  # pylint: disable=unused-import
from tests.lab import browser
from tests.lab.cluster import Cluster
from tests.lab.proc import end_child, free_ports, wait_until

SBATCH = "#!/bin/bash\n#SBATCH --job-name=legacy\n#SBATCH --gres=gpu:2\n#SBATCH --time=01:30:00\n\nsrun ./old\n"


@pytest.fixture(scope="module", name="lab")
def lab_fixture():
    with Cluster(config=GPUS) as c:
        with served(c) as url, browser.Browser() as b:
            yield c, url, b


@contextlib.contextmanager
def served_for(cluster, user):
    """The portal as somebody else: the kernel tells the controller who the server's process belongs to."""
    port = free_ports(1)[0]
    who = pwd.getpwnam(user)
    command = ["setpriv", "--reuid", user, "--regid", str(who.pw_gid), "--clear-groups", "node", f"{TREE}/portal/dev.mjs", "--socket", f"{cluster.home}/run/api.sock",
               "--port", str(port), "--pack", PACK]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert "Portal:" in server.stdout.readline()
            yield f"http://localhost:{port}"
        finally:
            end_child(server)


def write_script(page, text):
    page.evaluate("document.querySelector('textarea.editor').focus()")
    page.evaluate("document.querySelector('textarea.editor').select()")
    page.type(text)


def script_of(page):
    return page.evaluate("document.querySelector('textarea.editor').value")


def drafts(c):
    return c.api.get("/v1/drafts")["drafts"]


def test_a_draft_is_kept_shown_opened_and_submitted(lab):
    c, url, b = lab
    page = b.page()
    page.goto(f"{url}/new")
    page.wait("document.querySelector('textarea.editor')")
    assert drafts(c) == []  # looking keeps nothing
    write_script(page, "#!/bin/sh\n#ACEQUIA --name night --cpus 2 --memory 1G --output /dev/null\n\ntrue\n")
    page.wait("location.search.startsWith('?draft=')")
    page.wait_text("draft kept")
    kept = drafts(c)
    assert [d["title"] for d in kept] == ["night"] and kept[0]["spec"]["cpus_per_task"] == 2
    page.goto(f"{url}/jobs")  # another visit
    page.wait_text("Not submitted")
    page.wait_text("night")
    page.evaluate("document.querySelector('input[type=search]').focus()")
    page.type("nothing like it")
    page.wait("![...document.querySelectorAll('tbody tr')].some(r => r.innerText.includes('night'))")
    page.goto(f"{url}/jobs?state=DRAFT")
    page.click("night")
    page.wait("location.pathname === '/new'")
    page.wait("document.querySelector('textarea.editor')?.value.includes('--name night')")
    page.wait_text("accepted as written")
    page.click(".button.primary")
    page.wait("location.pathname.startsWith('/jobs/')")
    wait_until(lambda: drafts(c) == [], 20, "the draft stays after it was submitted")
    assert c.api.get("/v1/table?search=night")["rows"][0]["name"] == "night"
    no_problems(page)


def test_a_stale_draft_is_refused_and_the_person_chooses(lab):
    c, url, b = lab
    page = b.page()
    page.goto(f"{url}/new")
    page.wait("document.querySelector('textarea.editor')")
    write_script(page, "#!/bin/sh\n#ACEQUIA --name first\ntrue\n")
    page.wait_text("draft kept")
    name = drafts(c)[0]["name"]

    def meanwhile(script):
        c.api.request("PUT", f"/v1/drafts/{name}", {"title": "theirs", "spec": {}, "script": script})

    def kept():
        return c.api.get(f"/v1/drafts/{name}")["script"]

    meanwhile("#!/bin/sh\n# theirs\n")
    write_script(page, "#!/bin/sh\n#ACEQUIA --name mine\ntrue\n")
    page.wait_text("changed or deleted somewhere else")
    assert "# theirs" in kept() and "mine" in script_of(page)  # neither is lost
    page.click("Replace it with mine")
    wait_until(lambda: "--name mine" in kept(), 20, "mine is not kept")
    page.wait_text("draft kept")
    meanwhile("#!/bin/sh\n# again theirs\n")
    write_script(page, "#!/bin/sh\n#ACEQUIA --name other\ntrue\n")
    page.wait_text("changed or deleted somewhere else")
    page.click("Keep mine as another draft")
    wait_until(lambda: sorted(d["title"] for d in drafts(c)) == ["other", "theirs"], 20, "they are not both kept")
    page.goto(f"{url}/new?draft={name}")
    page.wait("document.querySelector('textarea.editor')?.value.includes('again theirs')")
    meanwhile("#!/bin/sh\n# the last of theirs\n")
    write_script(page, "#!/bin/sh\n# lost on purpose\n")
    page.wait_text("changed or deleted somewhere else")
    page.click("Open the other version")
    page.wait("document.querySelector('textarea.editor')?.value.includes('the last of theirs')")
    assert [p for p in page.problems if "412" not in p] == []
    for d in drafts(c):
        c.cli("draft", "delete", d["name"])


def test_the_folder_of_a_draft_and_a_terminal_in_it(lab, tmp_path):
    c, url, b = lab
    folder = tmp_path / "work folder"
    page = b.page()
    page.goto(f"{url}/new")
    page.wait("document.querySelector('textarea.editor')")
    write_script(page, f"#!/bin/sh\n#ACEQUIA --name here --chdir '{folder}'\ntrue\n")
    page.wait_text("There is no such folder")
    page.click("Make the folder")
    page.wait("document.querySelector('dialog[open]')")
    page.click(".dialog-foot .primary")
    page.wait_text("This folder is empty")
    assert folder.is_dir()
    (folder / "data.csv").write_text("1,2\n")
    page.goto(f"{url}/new?draft={drafts(c)[0]['name']}")
    page.wait_text("data.csv")
    page.click("Terminal here")
    page.wait_text("so does a terminal")
    page.click(".dialog-foot .primary")
    page.wait("document.querySelector('dialog[open] .xterm-helper-textarea')", 60)
    page.evaluate("document.querySelector('.xterm-helper-textarea').focus()")
    job = next(j for j in c.api.get("/v1/jobs")["jobs"] if j["name"] == "terminal")
    page.keys("pwd > seen")
    page.press("Enter")
    wait_until(lambda: (folder / "seen").exists() and (folder / "seen").read_text() == f"{folder}\n", 60, "the terminal is not in the folder")
    page.click("dialog[open] .dialog-head button")
    wait_until(lambda: c.api.get(f"/v1/jobs/{job['id']}")["state"] == "CANCELLED", 30, "the terminal's job goes on")
    no_problems(page)  # also where the folder is not there yet
    for d in drafts(c):
        c.cli("draft", "delete", d["name"])


def test_what_was_typed_last_is_kept_when_one_leaves(lab):
    c, url, b = lab
    page = b.page()
    page.goto(f"{url}/new")
    page.wait("document.querySelector('textarea.editor')")
    write_script(page, "#!/bin/sh\n#ACEQUIA --name quick\ntrue\n")
    page.click('a[href="/jobs"]')
    page.wait("location.pathname === '/jobs'")
    wait_until(lambda: [d["title"] for d in drafts(c)] == ["quick"], 20, "what was typed is lost")
    page.goto(f"{url}/jobs?state=DRAFT")
    page.wait_text("quick")
    page.click("tbody input[type=checkbox]")
    page.click(".bulk .danger")
    page.wait_text("Delete 1 draft?")
    page.click(".dialog-foot .danger")
    wait_until(lambda: drafts(c) == [], 20, "the draft is not deleted")
    page.wait_text("No job matches the filter")
    no_problems(page)


def test_templates_and_scripts_of_slurm(lab):
    c, url, b = lab
    page = b.page()
    page.goto(f"{url}/new")
    page.wait("document.querySelector('textarea.editor')")
    page.click("From template")
    page.click("Sweep on halves of GPUs")
    page.wait("document.querySelector('textarea.editor').value.includes('--array 0-31%8')")
    # A script of this machine, with #SBATCH lines.
    page.evaluate("(() => { const d = new DataTransfer(); d.items.add(new File([" + repr(SBATCH) + "], 'old.sh')); const i = document.querySelector('input[type=file]'); "
                  "i.files = d.files; i.dispatchEvent(new Event('change', { bubbles: true })); })()")
    page.wait("document.querySelector('textarea.editor').value.includes('srun ./old')")
    page.wait("[...document.querySelectorAll('.field input')].some(i => i.value === 'legacy')")
    page.wait("[...document.querySelectorAll('.field input')].some(i => i.value === '01:30:00')")
    page.wait_text("#SBATCH --gres gpu:2 → --gpus 2")
    page.click("From template")
    page.click("Save as template…")
    page.wait("document.querySelector('dialog[open] input')")
    page.evaluate("(() => { const i = document.querySelector('dialog input'); i.focus(); i.select(); })()")
    page.type("Our old one")
    page.click(".dialog-foot .primary")
    wait_until(lambda: any(t["title"] == "Our old one" and t["of"] == "own" for t in c.api.get("/v1/templates")["templates"]), 20, "the template is not kept")
    page = b.page()
    page.goto(f"{url}/new")
    page.wait("document.querySelector('textarea.editor')")
    page.click("From template")
    page.click("Our old one")
    page.wait("document.querySelector('textarea.editor').value.includes('srun ./old')")
    page.click("From template")
    page.click("Delete a template…")
    page.wait("document.querySelector('dialog[open] select')")
    page.click(".dialog-foot .danger")
    wait_until(lambda: all(t["of"] == "built_in" for t in c.api.get("/v1/templates")["templates"]), 20, "the template stays")
    no_problems(page)
    for d in drafts(c):
        c.cli("draft", "delete", d["name"])


def test_views_are_kept_with_the_controller(lab):
    c, url, b = lab
    page = b.page()
    page.goto(f"{url}/jobs?search=night&sort=name")
    page.click("Save this view")
    page.wait("document.querySelector('dialog[open] input')")
    page.evaluate("document.querySelector('dialog input').focus()")
    page.type("Nights")
    page.click(".dialog-foot .primary")
    page.wait_text("Nights")
    assert [v["title"] for v in c.api.get("/v1/views")["views"]] == ["Nights"]
    page = b.page()
    page.goto(f"{url}/jobs")
    page.click("Nights")
    page.wait("location.search === '?search=night&sort=name'")
    page.click("Remove this view")
    page.click(".dialog-foot .danger")
    wait_until(lambda: c.api.get("/v1/views")["views"] == [], 20, "the view stays")
    no_problems(page)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("mode", ["masked", "hidden"])
def test_two_users_do_not_see_each_others_jobs(mode):
    with Cluster(config=GPUS.replace("[cluster]\n", f"[cluster]\nothers_jobs = {mode}\n")) as c:
        job = c.cli("submit", "-Q", "-J", "hushname", "--comment", "hushcomment", "-o", "/dev/null", "--", "sleep", "600").stdout.strip()
        c.cli("draft", "save", "hushdraft", "--", "true")
        wait_until(lambda: c.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 30, "the job does not run")
        with served(c) as ours, browser.Browser() as b:
            mine = b.page()
            mine.goto(f"{ours}/jobs")
            mine.wait_text("hushname")
            mine.wait_text("hushdraft")
        with served_for(c, "nobody") as theirs, browser.Browser() as b:
            page = b.page()
            page.goto(f"{theirs}/jobs")
            page.wait_text("private job" if mode == "masked" else "No jobs yet")
            page.evaluate("document.querySelector('input[type=search]').focus()")
            page.type("hushname")
            page.wait_text("No job matches the filter")
            for path in ("/", "/jobs", f"/jobs/{job}", "/nodes"):
                page.goto(theirs + path)
                page.wait("document.querySelector('h1')?.innerText.length > 0")
                page.wait("document.querySelectorAll('.loading').length === 0")
                if path == f"/jobs/{job}":
                    page.wait_text("private job" if mode == "masked" else f"There is no job {job}")
                assert "hush" not in page.text(), (path, page.text())
            # What changes comes without a reload, as little as the rest.
            page = b.page()
            page.goto(f"{theirs}/jobs")
            page.wait_text("private job" if mode == "masked" else "No jobs yet")
            own = subprocess.run(["setpriv", "--reuid", "nobody", "--regid", str(pwd.getpwnam("nobody").pw_gid), "--clear-groups", c.binary, "submit", "-Q", "-J", "ownjob",
                                  "-o", "/dev/null", "--", "sleep", "600"], env=c.env, capture_output=True, text=True, check=True, cwd="/tmp").stdout.strip()
            c.cli("submit", "-Q", "-J", "hushlater", "-o", "/dev/null", "--", "sleep", "600")
            page.wait_text("ownjob")
            if mode == "masked":
                page.wait("document.body.innerText.split('private job').length === 3")
            assert "hush" not in page.text()
            page.goto(f"{theirs}/jobs/{own}")
            page.wait_text("ownjob")
            assert [p for p in page.problems if "/v1/me" not in p and "403" not in p and "404" not in p] == []
