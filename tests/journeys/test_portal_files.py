"""The portal's page of files in Debian's Chromium, at the controller's own door: browse, view, edit, upload, by mouse and by keyboard; and nothing that a
user has written or named becomes more than text or a picture."""
import base64
import json
import os
import shutil
import threading
import urllib.parse

import pytest

from tests.journeys.test_portal import PACK
from tests.lab import browser
from tests.lab.cluster import Cluster
from tests.lab.proc import LabError, wait_until

pytestmark = [
    pytest.mark.skipif(not browser.PROGRAM, reason="chromium is not installed (tools/setup --test)"),
    pytest.mark.skipif(not os.path.exists(PACK), reason="the portal is not built (tools/portal build)"),
]
HOSTILE = "<img src=x onerror=document.title='owned'>"
OWNED = "document.title='owned';top.document.title='owned'"
SVG = f'<svg xmlns="http://www.w3.org/2000/svg" width="80" height="40" onload="{OWNED}"><script>{OWNED}</script><rect width="80" height="40" fill="teal"/></svg>'
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
NOTEBOOK = {"cells": [
    {"cell_type": "markdown", "source": [f"# Title {HOSTILE}"]},
    {"cell_type": "code", "execution_count": 3, "source": "print(1)", "outputs": [
        {"output_type": "stream", "text": ["one\n", HOSTILE]},
        {"output_type": "display_data", "data": {"text/html": [f"<script>{OWNED}</script>"]}},
        {"output_type": "display_data", "data": {"image/svg+xml": [SVG]}},
        {"output_type": "display_data", "data": {"image/png": "javascript:alert(1)", "text/plain": "no picture"}},
        {"output_type": "display_data", "data": {"application/javascript": OWNED}},
        {"output_type": "error", "traceback": ["\u001b[31mValueError\u001b[0m " + HOSTILE]}]}]}


@pytest.fixture(scope="module", name="lab")
def _lab(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("files"))
    with Cluster(config="[cluster]\nheartbeat = 1s\n[node *]\ncpus = 8\n") as c, browser.Browser() as b:
        page = b.page()  # one for all: it is logged in
        link = c.cli("portal").stdout.strip()
        page.goto(link)
        page.wait("document.querySelector('.nav')")
        yield c, page, link.split("/#")[0], folder


def place(path, **more):
    return "/files?" + urllib.parse.urlencode({"path": path.replace("%", "%25").replace("\u202e", "%E2%80%AE"), **more})


def open_page(lab, path):
    """As by a link inside the portal: each load of the whole page would keep a connection for its events."""
    page = lab[1]
    page.problems = []
    page.evaluate("(() => { const a = document.createElement('a'); a.href = %s; document.body.append(a); a.click(); a.remove(); })()" % json.dumps(place(path)))
    page.wait("location.search.includes(%s)" % json.dumps(urllib.parse.urlencode({"path": path.replace("%", "%25").replace("\u202e", "%E2%80%AE")})))
    page.wait("document.querySelector('.crumbs')")
    page.wait("document.querySelectorAll('.loading').length === 0")
    return page


def write(folder, name, data):
    with open(os.path.join(folder, name), "wb" if isinstance(data, bytes) else "w") as f:
        f.write(data)


def content(*path):
    with open(os.path.join(*path), "rb") as f:
        return f.read()


def no_problems(page, refused=None):
    """`refused`: the browser notes answers with this status, which the page shows."""
    assert [p for p in page.problems if not refused or f"status of {refused}" not in p] == []


def edit(page, text):
    """Into the editor, which is inside a shadow root, at its end."""
    page.wait("document.querySelector('.editor-host')?.shadowRoot?.querySelector('.cm-content')")
    page.evaluate("document.querySelector('.editor-host').shadowRoot.querySelector('.cm-content').focus()")
    page.press("End", 2)
    page.type(text)


def test_browse_edit_and_save(lab):
    folder = os.path.join(lab[3], "edit")
    os.makedirs(f"{folder}/sub")
    write(folder, "train.py", "import os\r\nprint('old')\n")
    write(folder, ".hidden", "x")
    page = open_page(lab, folder)
    page.wait_text("train.py")
    assert ".hidden" not in page.text() and "1 hidden" in page.text()
    page.click(".tools .check input")
    page.wait_text(".hidden")
    page.click(".tools .check input")
    page.click("train.py")
    page.wait_text("print('old')")
    page.click("Edit")
    edit(page, "print('new')")
    page.wait_text("not saved")
    page.press("s", 2)
    page.wait_text("train.py saved")
    assert content(folder, "train.py") == b"import os\r\nprint('old')\nprint('new')"  # what was not touched is as it was
    # Somebody else changes it: nothing is lost without being asked.
    write(folder, "train.py", "theirs\n")
    edit(page, "# more")
    page.click("Save")
    page.wait_text("changed or removed by somebody else")
    assert content(folder, "train.py") == b"theirs\n"
    page.click("Save mine over it")
    wait_until(lambda: content(folder, "train.py").endswith(b"print('new')# more"), 30, "not saved")
    page.click("Close")
    page.wait_text("Download")
    page.problems = [p for p in page.problems if "412" not in p]
    no_problems(page)


def selected_first(page):
    """By keyboard; false when the rows were drawn anew between focus and key."""
    page.evaluate("document.querySelector('tbody tr.item').focus()")
    page.press(" ")
    try:
        page.wait_text("1 selected", seconds=1)
    except LabError:
        return False
    return True


def test_new_rename_delete_by_keyboard(lab):
    folder = os.path.join(lab[3], "keys")
    os.makedirs(folder)
    for name in ("a.txt", "b.txt", "c.txt"):
        write(folder, name, name)
    page = open_page(lab, folder)
    page.wait_text("c.txt")
    wait_until(lambda: selected_first(page), 30, "the first row cannot be selected")
    page.press("F2")
    page.wait("document.activeElement?.matches('dialog[open] input')")  # at once: no Tab is needed
    page.evaluate("document.activeElement.select()")
    page.type("renamed 50%.txt")
    page.click(".dialog-foot .primary")
    wait_until(lambda: os.path.exists(f"{folder}/renamed 50%.txt"), 30, "not renamed")
    page.wait_text("renamed 50%.txt")
    page.evaluate("document.querySelector('tbody tr.item').focus()")
    page.press(" ")
    page.press("ArrowDown", 8)
    page.wait_text("2 selected")
    page.press("Delete")
    page.wait_text("Delete 2 entries?")
    page.click("dialog summary")
    page.wait_text("acequia files rm /")
    page.click(".dialog-foot .danger")
    wait_until(lambda: os.listdir(folder) == ["renamed 50%.txt"], 30, "not deleted")
    page.wait_text("1 entry")
    page.evaluate("document.querySelector('tbody tr.item').focus()")
    page.press("Enter")
    page.wait_text("a.txt")
    no_problems(page)


def test_folders_are_copied_and_not_deleted_by_mistake(lab):
    folder = os.path.join(lab[3], "guards")
    os.makedirs(f"{folder}/busy/deep")
    write(f"{folder}/busy/deep", "one.txt", "1")
    job = lab[0].cli("submit", "-Q", "-J", "busy", "-D", f"{folder}/busy", "-o", "busy.log", "--", "sleep", "600").stdout.strip()
    wait_until(lambda: lab[0].api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 30, "the job does not run")
    page = open_page(lab, folder)
    page.wait_text("busy")
    wait_until(lambda: selected_first(page), 30, "the first row cannot be selected")
    page.click("Copy")
    page.wait("document.querySelector('dialog[open] input')?.value === 'busy-copy'")
    page.click("dialog summary")
    page.wait_text("acequia files cp")
    page.click(".dialog-foot .primary")
    wait_until(lambda: os.path.exists(f"{folder}/busy-copy/deep/one.txt"), 30, "not copied")
    page.wait_text("busy-copy")
    wait_until(lambda: selected_first(page), 30, "the first row cannot be selected")
    page.press("Delete")
    page.wait_text("Not empty: busy.")
    page.click(".dialog-foot .danger")
    page.wait_text("Tick above")
    page.click("dialog .check input")
    page.click(".dialog-foot .danger")
    page.wait_text("(busy) is running and uses it")  # once it is known that it is meant with all that is in it
    assert os.path.exists(f"{folder}/busy/deep/one.txt")
    page.click("dialog .check:last-of-type input")
    page.wait("document.querySelectorAll('dialog .check input:checked').length === 2")
    page.click(".dialog-foot .danger")
    wait_until(lambda: os.listdir(folder) == ["busy-copy"], 30, "not deleted")
    lab[0].cli("cancel", job)
    no_problems(page, "409")


def test_views(lab):
    folder = os.path.join(lab[3], "views")
    os.makedirs(folder)
    write(folder, "plot.png", PNG)
    write(folder, "plot.svg", SVG)
    write(folder, "table.csv", "name,value\n" + "".join(f'"row, {i}",{i}\n' for i in range(5000)))
    write(folder, "big.log", "".join(f"line {i:07}\n" for i in range(400_000)))
    write(folder, "binary.bin", b"\0\1\2" * 1000)
    write(folder, "latin1.txt", "caf\u00e9\n".encode("latin-1"))
    write(folder, "book.ipynb", json.dumps(NOTEBOOK))
    for name in ("plot.png", "plot.svg"):
        page = open_page(lab, f"{folder}/{name}")
        page.wait("document.querySelector('.file-image')?.complete && document.querySelector('.file-image').naturalWidth > 0")
        no_problems(page)
    page = open_page(lab, f"{folder}/table.csv")
    page.wait_text("row, 3")
    assert page.evaluate("document.querySelector('.file-table table').getAttribute('aria-rowcount')") == "5001"
    assert page.evaluate("document.querySelectorAll('.file-table tbody tr').length") < 100
    page = open_page(lab, f"{folder}/big.log")
    page.wait_text("line 0000003")
    page.click("End")
    page.wait_text("line 0399999")
    assert len(page.evaluate("document.querySelector('.file-text').textContent")) <= 256 << 10
    page = open_page(lab, f"{folder}/binary.bin")
    page.wait_text("This is not text")
    page = open_page(lab, f"{folder}/latin1.txt")
    page.wait_text("caf")
    assert page.evaluate("[...document.querySelectorAll('button')].find(b => b.innerText === 'Edit').disabled")  # it would be damaged
    page = open_page(lab, f"{folder}/book.ipynb")
    for text in ("Title", "print(1)", "HTML output is not shown", "no picture", "ValueError"):
        page.wait_text(text)
    assert page.evaluate("document.querySelectorAll('.note-code img').length") == 1
    no_problems(page)


def test_what_users_write_stays_text(lab):
    folder = os.path.join(lab[3], "hostile")
    os.makedirs(folder)
    names = [HOSTILE.replace("/", ""), "javascript:alert(1)", "x\u202egnp.html", '"><script>', "page.html", "plot.svg", "book.ipynb", "t.csv"]
    for name in names:
        write(folder, name, f"<script>{OWNED}</script>{HOSTILE}")
    write(folder, "plot.svg", SVG)
    write(folder, "book.ipynb", json.dumps(NOTEBOOK))
    page = open_page(lab, folder)
    page.wait_text("8 entries")
    page.wait_text(HOSTILE)
    assert page.evaluate("document.querySelectorAll('#main img, #main script, #main iframe').length") == 0
    no_problems(page)
    for name in names:
        page = open_page(lab, f"{folder}/{name}")
        page.wait("document.querySelector('.file-text, .file-image, .file-table, .note-code')")
        assert page.evaluate("document.querySelectorAll('#main script, #main iframe, #main object').length") == 0
        assert "owned" not in page.evaluate("document.title"), name
        no_problems(page)
    # The contents themselves, opened as a page of their own: a download, or a picture in which nothing runs.
    url = lab[2]
    for name in ("page.html", "plot.svg"):
        target = f"{url}/v1/files/content?" + urllib.parse.urlencode({"path": f"{folder}/{name}", "view": "1"})
        page = open_page(lab, folder)
        page.call("Page.navigate", url=target)  # the download leaves the page as it is
        page.wait("document.readyState === 'complete'" + (" && document.documentElement.tagName === 'svg'" if name == "plot.svg" else ""))
        assert page.evaluate("document.title") != "owned"
    assert page.evaluate("(() => { try { return localStorage.length } catch (e) { return e.name } })()") == "SecurityError"  # an origin of its own
    page.goto(url)
    page.wait("document.querySelector('.nav')")


def drop(page, name, size):
    """A file as if it was dropped onto the page: its bytes follow from their positions."""
    page.evaluate(f"""(() => {{
      const bytes = new Uint8Array({size});
      for (let i = 0; i < bytes.length; i++) bytes[i] = (i * 31 + (i >> 8)) & 255;
      const data = new DataTransfer();
      data.items.add(new File([bytes], {json.dumps(name)}, {{ lastModified: 1700000000000 }}));
      document.querySelector('.drop').dispatchEvent(new DragEvent('drop', {{ dataTransfer: data, bubbles: true, cancelable: true }}));
    }})()""")


def expected(size):
    return bytes((i * 31 + (i >> 8)) & 255 for i in range(size))


def test_upload_goes_on_after_a_restart(lab):
    c = lab[0]
    folder = os.path.join(lab[3], "upload")
    os.makedirs(folder)
    page = open_page(lab, folder)
    page.wait_text("This folder is empty")
    size = 24 << 20
    drop(page, "big.bin", size)

    def partial():
        return sum(os.path.getsize(f"{folder}/{n}") for n in os.listdir(folder) if n.startswith(".acequia-upload-"))

    wait_until(lambda: partial() > 0 or os.path.exists(f"{folder}/big.bin"), 60, "nothing comes")
    before = partial()
    c.kill_controller()
    assert not os.path.exists(f"{folder}/big.bin") or before == 0
    restart = threading.Timer(1.5, c.start_controller)
    restart.start()
    page.wait_text("big.bin", 60)
    wait_until(lambda: os.path.exists(f"{folder}/big.bin"), 120, "the upload does not go on")
    restart.join()
    c.wait_ready()
    assert content(folder, "big.bin") == expected(size) and os.listdir(folder) == ["big.bin"]
    page.wait_text("done", 60)
    page.wait_text("1 entry", 60)
    # Over what is there only when asked for.
    drop(page, "big.bin", 5)
    page.wait_text("Replace 1 file?")
    page.click("Back")
    assert os.path.getsize(f"{folder}/big.bin") == size
    drop(page, "big.bin", 5)
    page.wait_text("Replace 1 file?")
    page.click(".dialog-foot .danger")
    wait_until(lambda: content(folder, "big.bin") == expected(5), 60, "not replaced")


def test_of_a_job_and_where_it_is(lab):
    c, _, url, folder = lab
    work = os.path.join(folder, "work")
    os.makedirs(work)
    job = c.cli("submit", "-Q", "-D", work, "-o", "out.txt", "--", "sh", "-c", "echo from the job; sleep 600").stdout.strip()
    wait_until(lambda: os.path.exists(f"{work}/out.txt") and content(work, "out.txt"), 30, "no output")
    page = lab[1]
    page.problems = []
    page.goto(f"{url}/jobs/{job}")
    page.wait_text(work)
    page.click(work)
    page.wait_text("out.txt")
    page.click("Terminal here")
    page.wait("document.querySelector('.xterm')")
    page.keys("pwd")
    page.press("Enter")
    page.wait(f"document.querySelector('.xterm').innerText.includes({json.dumps(os.path.basename(work))})", 60)
    page.press("Escape")
    c.cli("cancel", job)
    shutil.rmtree(work)
    no_problems(page)
