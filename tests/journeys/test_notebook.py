"""Apps: programs started as jobs and used in the browser. With PyPI's packages (long): JupyterLab runs cells, survives restarts, closes when idle."""
import json
import os
import shutil
import subprocess
import sys
import time

import pytest

from tests.journeys.test_apps import TREE, Visitor, needs_browser, needs_root
from tests.lab import browser
from tests.lab.cluster import Cluster
from tests.lab.images import make_rootfs
from tests.lab.proc import LabError, wait_until

APP = {"title": "Greeter", "summary": "Says hello.", "icon": "G", "spec": {"ports": ["http:0"], "health": "/"},
       "fields": [{"name": "word", "title": "Word", "value": "hello", "choices": ["hello", "bye"]}, {"name": "cpus", "kind": "cpus", "value": "2"}]}
SCRIPT = """#!/usr/bin/python3
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(os.environ["APP_WORD"].encode())
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["ACEQUIA_PORT"])), Handler).serve_forever()
"""
SHIFT, CONTROL = 8, 2
LOADED_S = 240  # these pages load megabytes of scripts


def write_app(folder, name, app, script=SCRIPT):
    os.makedirs(folder, exist_ok=True)
    for suffix, text in (("json", app if isinstance(app, str) else json.dumps(app)), ("sh", script)):
        with open(f"{folder}/{name}.{suffix}", "w", encoding="utf-8") as f:
            f.write(text)


@pytest.fixture(scope="module", name="cluster")
def _cluster(tmp_path_factory):
    site = str(tmp_path_factory.mktemp("apps"))
    write_app(site, "greeter", APP)
    write_app(site, "tensorboard", dict(APP, title="The site's board"))
    write_app(site, "broken", "{")
    with Cluster(config=f"[node *]\ncpus = 64\nmemory = 64G\n[portal]\napps = {site}\n") as c:
        yield c


def newest(cluster):
    return max(j["id"] for j in cluster.api.get("/v1/jobs?all=true&fields=id")["jobs"])


def test_apps_of_all_three_origins(cluster, tmp_path):
    own = cluster.cli("config", "path").stdout.strip().rsplit("/", 1)[0] + "/apps"
    write_app(own, "mine", dict(APP, title="My own"))
    apps = {a["name"]: a for a in json.loads(cluster.cli("app", "list", "--json").stdout)}
    assert apps["mine"]["origin"] == "own" and apps["greeter"]["origin"] == "site" and apps["jupyter"]["origin"] == "built-in"
    assert apps["tensorboard"]["title"] == "The site's board" and "broken" not in apps
    assert "Default: hello" in cluster.cli("app", "show", "greeter").stdout
    out = cluster.cli("app", "start", "mine", "word=bye", cwd=tmp_path).stdout
    job = cluster.api.get(f"/v1/jobs/{newest(cluster)}")
    assert "is ready: http://" in out and job["health"] == "ready" and job["cpus"] == 2 and job["tags"] == ["app=mine"]
    again = cluster.cli("app", "start", "mine").stdout  # the one that runs
    assert job["urls"][0] in again and newest(cluster) == job["id"]
    cluster.cli("cancel", str(job["id"]))
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{job['id']}")["end_ms"], 60, "it does not end")
    cluster.cli("app", "start", "mine")  # the settings of the last time
    assert newest(cluster) != job["id"]
    assert "APP_WORD=bye" in cluster.api.get(f"/v1/jobs/{newest(cluster)}/environment?list=true")["environment"]
    cluster.cli("app", "start", "--new", "mine", "word=hello", "-c", "3", cwd=tmp_path)
    assert cluster.api.get(f"/v1/jobs/{newest(cluster)}")["cpus"] == 3
    assert len(cluster.api.get("/v1/jobs?where=tag%3Dapp%3Dmine&fields=id")["jobs"]) == 2


def test_by_the_api(cluster):
    apps = cluster.api.get("/v1/apps")["apps"]
    assert next(a for a in apps if a["name"] == "greeter")["fields"][0]["choices"] == ["hello", "bye"]
    job = cluster.api.post("/v1/apps/greeter", {"values": ["word=bye"], "workdir": "/tmp"})["id"]
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}").get("health") == "ready", 60, "it does not get ready")
    cluster.cli("cancel", str(job))


def test_what_is_wrong_is_said(cluster):
    for words, message in ((["start", "none"], "there is no app"), (["start", "--new", "greeter", "colour=red"], "is no field of greeter"),
                           (["start", "--new", "greeter", "word=what"], "choose one of hello, bye"), (["start", "gradio"], "file: it must be given"),
                           (["show"], "app show NAME")):
        r = cluster.cli("app", *words, check=False)
        assert r.returncode != 0 and message in r.stderr, r.stderr
    env = dict(cluster.env, PATH=f"{os.path.dirname(cluster.binary)}:/usr/bin:/bin")
    for words, message in ((["streamlit", "file=x.py"], "streamlit is not in the PATH"), (["gradio", "file=x.py"], "has no gradio; install it"),
                           (["vscode"], "neither code-server nor openvscode-server")):
        r = subprocess.run([cluster.binary, "app", "start", "--new", *words], env=env, capture_output=True, text=True, check=False, cwd="/tmp")
        assert r.returncode != 0 and message in r.stdout + r.stderr, r.stdout + r.stderr
    r = subprocess.run([cluster.binary, "notebook", "--new", "--environment", "/usr/share"], env=env, capture_output=True, text=True, check=False, cwd="/tmp")
    assert r.returncode != 0 and "is not an environment" in r.stdout + r.stderr, r.stdout + r.stderr


# --- with packages from PyPI ---

@pytest.fixture(scope="session", name="packages")
def _packages(tmp_path_factory):
    """An environment with the programs; ACEQUIA_NOTEBOOK_ENVIRONMENT names one that is there already."""
    there = os.environ.get("ACEQUIA_NOTEBOOK_ENVIRONMENT")
    if there:
        return there
    folder = str(tmp_path_factory.mktemp("python"))
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([f"{folder}/bin/pip", "install", "-q", "jupyterlab", "ipykernel", "tensorboard", "streamlit", "gradio"], check=True)
    return folder


def open_in_browser(cluster, page, words, **kwargs):
    out = cluster.cli(*words, **kwargs).stdout
    page.goto(out.rsplit("logged in as you: ", 1)[1].strip(), LOADED_S)
    return newest(cluster)


@pytest.mark.long
@needs_browser
def test_a_cell_runs_and_goes_on_after_restarts(cluster, packages, tmp_path):
    cell = {"cell_type": "code", "metadata": {}, "source": "x = 6 * 7; print('the answer is', x)", "outputs": [], "execution_count": None, "id": "a"}
    with open(tmp_path / "first.ipynb", "w", encoding="utf-8") as f:
        json.dump({"cells": [cell, dict(cell, id="b", source="print('still', x)")], "metadata": {"kernelspec": {
            "name": "python3", "language": "python", "display_name": "Python 3 (ipykernel)"}}, "nbformat": 4, "nbformat_minor": 5}, f)
    with browser.Browser() as b:
        page = b.page()
        job = open_in_browser(cluster, page, ["notebook", "--new", "--environment", packages, "--kernel", packages], cwd=tmp_path)
        page.wait("document.querySelector('#jp-MainLogo')", 120)
        origin = page.evaluate("location.origin")
        page.goto(f"{origin}/lab/tree/first.ipynb", LOADED_S)
        page.wait("document.querySelector('.jp-Notebook .jp-CodeCell .cm-content')", 120)

        def run_cell(number, text):
            """Runs it until it has printed the text: the kernel may still start, or the tab connect again. A run removes what the last one
            printed, so that there is time between two."""
            page.evaluate(f"document.querySelectorAll('.jp-Notebook .jp-CodeCell .cm-content')[{number}].focus()")
            page.press("Enter", SHIFT)
            try:
                page.wait_text(text, 20)
            except LabError:
                return False
            return True
        # It may ask which kernel. A later click would choose another one, which knows nothing of x.
        page.wait("document.querySelector('.jp-Dialog .jp-mod-accept') || document.querySelector('[data-status=idle]')", 120)
        page.evaluate("document.querySelector('.jp-Dialog .jp-mod-accept')?.click()")
        page.wait("!document.querySelector('.jp-Dialog') && document.querySelector('[data-status=idle]')", 120)
        wait_until(lambda: run_cell(0, "the answer is 42"), 180, "the cell does not run", interval=2)
        kernels = json.loads(page.evaluate("fetch('/api/kernelspecs').then(r => r.text())"))["kernelspecs"]
        assert os.path.basename(packages) in kernels  # that of the further environment
        node = cluster.nodes_up()[0]
        cluster.kill_agent(node)
        cluster.start_agent(node)
        cluster.kill_controller()
        cluster.start_controller()
        wait_until(cluster.answers, 60, "the controller does not come back")
        wait_until(lambda: cluster.nodes_up(), 60, "the node does not come back")
        wait_until(lambda: run_cell(1, "still 42"), 180, "the tab does not connect again", interval=2)
        assert cluster.api.get(f"/v1/jobs/{job}")["attempt"] == 1
        # What was done is kept: the page saves it, and it is there when the job has ended.
        page.press("s", CONTROL)
        wait_until(lambda: "still 42" in (tmp_path / "first.ipynb").read_text("utf-8"), 60, "the notebook is not saved")
    cluster.cli("cancel", str(job))
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}")["end_ms"], 60, "it does not end")
    assert "the answer is 42" in (tmp_path / "first.ipynb").read_text("utf-8")


@pytest.mark.long
def test_the_example(cluster, packages):
    done = subprocess.run([f"{TREE}/examples/notebook/run", packages], env=cluster.env, capture_output=True, text=True, check=True)
    job = newest(cluster)
    assert f"Job {job} is ready" in done.stdout and cluster.api.get(f"/v1/jobs/{job}")["workdir"] == f"{TREE}/examples/notebook"
    cluster.cli("cancel", str(job))


@pytest.mark.long
def test_closed_when_idle_and_warned_before(cluster, packages, tmp_path):
    cluster.cli("notebook", "--new", "--environment", packages, "--idle", "20s", cwd=tmp_path)
    job = newest(cluster)
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}")["state"] == "COMPLETED", 180, "it is not closed")
    said = [e for e in cluster.api.get(f"/v1/jobs/{job}/events")["events"] if e["type"] == "job_health"]
    assert said[-1]["health"] == "idle" and "no kernel was used since" in said[-1]["reason"]
    assert "closed: no kernel was used" in cluster.api.get(f"/v1/jobs/{job}")["reason"]


@pytest.mark.long
def test_a_busy_kernel_is_not_idle(cluster, packages, tmp_path):
    cluster.cli("notebook", "--new", "--environment", packages, "--idle", "10s", cwd=tmp_path)
    job = newest(cluster)
    path = cluster.api.get(f"/v1/jobs/{job}")["spec"]["ports"][0].removeprefix("unix:").replace("%j", str(job))
    ask = ["curl", "-sf", "--unix-socket", path]
    xsrf = subprocess.run([*ask, "-c", str(tmp_path / "jar"), "-o", "/dev/null", "http://localhost/lab"], check=True)
    assert xsrf.returncode == 0
    with open(tmp_path / "jar", encoding="utf-8") as f:
        token = next(line.split("\t")[-1].strip() for line in f if "_xsrf" in line)
    subprocess.run([*ask, "-b", str(tmp_path / "jar"), "-H", f"X-XSRFToken: {token}", "-X", "POST", "-o", "/dev/null", "http://localhost/api/kernels"],
                   check=True)
    began = time.monotonic()
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}")["state"] == "COMPLETED", 180, "it is not closed")
    assert time.monotonic() - began >= 9  # the start of a kernel is use


@pytest.mark.long
@needs_browser
@needs_root
def test_tensorboard_and_streamlit(cluster, packages, tmp_path):
    with open(tmp_path / "demo.py", "w", encoding="utf-8") as f:
        f.write("import streamlit as st\nst.title('The demo runs')\n")
    env = dict(cluster.env, PATH=f"{packages}/bin:{cluster.env['PATH']}")
    with browser.Browser() as b:
        page = b.page()
        done = subprocess.run([cluster.binary, "app", "start", "streamlit", "file=demo.py"], env=env, cwd=tmp_path, capture_output=True, text=True,
                              check=True)
        page.goto(done.stdout.rsplit("logged in as you: ", 1)[1].strip(), LOADED_S)
        page.wait_text("The demo runs", 120)  # drawn by what came over its WebSocket
        # The site's app of that name is another one: the built-in script is started as a program.
        done = subprocess.run([cluster.binary, "app", "start", "program",
                               "command=tensorboard --logdir . --host 127.0.0.1 --port $ACEQUIA_PORT"], env=env, cwd=tmp_path, capture_output=True,
                              text=True, check=True)
        page.goto(done.stdout.rsplit("logged in as you: ", 1)[1].strip(), LOADED_S)
        page.wait("document.title == 'TensorBoard'", 120)


def make_python_image(folder, packages):
    """A root file system with Python, ipykernel, and a word of its own."""
    site = f"{folder}/opt/site"
    os.makedirs(site)
    make_rootfs(folder, "in the image")
    subprocess.run([f"{packages}/bin/pip", "install", "-q", "--target", site, "ipykernel"], check=True)
    version = f"python3.{sys.version_info[1]}"
    shutil.copytree(f"/usr/lib/{version}", f"{folder}/usr/lib/{version}", symlinks=False, ignore=shutil.ignore_patterns("__pycache__", "test", "config-*"),
                    ignore_dangling_symlinks=True)
    os.makedirs(f"{folder}/usr/bin")
    shutil.copy(f"/usr/bin/{version}", f"{folder}/usr/bin")
    objects = [f"/usr/bin/{version}"] + [os.path.join(d, f) for top in (site, f"/usr/lib/{version}/lib-dynload") for d, _, names in os.walk(top) for f in names
                                         if ".so" in f]
    told = subprocess.run(["ldd", *objects], capture_output=True, text=True, check=False).stdout
    for path in {word for word in told.split() if word.startswith("/") and not word.endswith(":") and ".so" in word and not word.startswith(folder)}:
        os.makedirs(os.path.dirname(folder + path), exist_ok=True)
        shutil.copy(path, folder + path)
    with open(f"{folder}/bin/python", "w", encoding="utf-8") as f:
        f.write(f'#!/bin/sh\nPYTHONPATH=/opt/site exec /usr/bin/{version} "$@"\n')
    os.chmod(f"{folder}/bin/python", 0o755)
    return folder


DRIVE = """import os, threading
from jupyter_client.manager import start_new_kernel
os.chdir(os.path.dirname(__file__))
manager, client = start_new_kernel(kernel_name="chosen", startup_timeout=240)

def run(code):
    out = []
    client.execute_interactive(code, timeout=240, output_hook=lambda m: out.append(m["content"].get("text") or m["content"].get("ename") or ""))
    return "".join(out)
print(run("import os; open('made-inside', 'w').close(); print(open('/word').read().strip() + ', job', os.environ['ACEQUIA_JOB_ID'])"), end="")

def interrupt():
    while not os.path.exists("busy"):
        threading.Event().wait(0.1)
    manager.interrupt_kernel()
threading.Thread(target=interrupt, daemon=True).start()
print("interrupted" if "KeyboardInterrupt" in run("import time; open('busy', 'w').close(); time.sleep(600)") else "not interrupted")
client.stop_channels()
manager.shutdown_kernel()
"""


@pytest.mark.long
@needs_browser
@pytest.mark.skipif(not shutil.which("busybox"), reason="busybox is not here")
def test_kernels_of_environments_and_images_can_be_chosen(cluster, packages, tmp_path):
    image = make_python_image(str(tmp_path / "own-image"), packages)
    plain = make_rootfs(str(tmp_path / "no-python"))
    with browser.Browser() as b:
        page = b.page()
        job = open_in_browser(cluster, page, ["notebook", "--new", "--environment", packages, "--kernel", packages, "--kernel", image, "--kernel", plain], cwd=tmp_path)
        page.goto(f"{page.evaluate('location.origin')}/lab?reset", LOADED_S)  # not what was open the last time
        card = "document.querySelector('.jp-LauncherCard[data-category=\"Notebook\"][title=%s]')"
        for title in (os.path.basename(packages), image, plain):
            page.wait(card % json.dumps(title), LOADED_S)
        specs = json.loads(page.evaluate("fetch('/api/kernelspecs').then(r => r.text())"))["kernelspecs"]
    # What JupyterLab does when it is clicked, by its own library, inside the job.
    spec = next(k["spec"] for k in specs.values() if k["spec"]["display_name"] == image)
    os.makedirs(tmp_path / "data/kernels/chosen")
    (tmp_path / "data/kernels/chosen/kernel.json").write_text(json.dumps(spec), "utf-8")
    (tmp_path / "drive.py").write_text(DRIVE, "utf-8")
    told = cluster.cli("exec", str(job), "--", "env", f"JUPYTER_PATH={tmp_path}/data", f"{packages}/bin/python", f"{tmp_path}/drive.py").stdout
    assert told == f"in the image, job {job}\ninterrupted\n", told
    assert (tmp_path / "made-inside").exists()  # the notebook's folder is there
    log = cluster.cli("logs", str(job)).stdout
    assert "has no python" not in log, log
    cluster.cli("cancel", str(job))
    said = cluster.cli("notebook", "--new", "--environment", packages, "--kernel", "/no/such/place", check=False, cwd=tmp_path)
    assert "neither an environment, it has no bin/python, nor an image" in said.stdout + said.stderr, said


CODE_SERVER = {"20": "4.100.3"}  # by the Node that it needs


@pytest.fixture(scope="session", name="code_server")
def _code_server(tmp_path_factory):
    """The folder of its program, from npm; ACEQUIA_CODE_SERVER names one that is there. Its own installation fetches more than packages: what is not needed
    here is left out."""
    there = os.environ.get("ACEQUIA_CODE_SERVER")
    if there:
        return there
    node = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False) if shutil.which("node") and shutil.which("npm") else None
    version = CODE_SERVER.get(node.stdout.lstrip("v").split(".")[0]) if node else None
    if not version or not shutil.which("make"):
        pytest.skip(f"no code-server for this Node: needs one of {', '.join(CODE_SERVER)}, npm and make")
    top = str(tmp_path_factory.mktemp("code-server"))
    npm = ["npm", "--no-audit", "--no-fund", "--ignore-scripts=false"]
    code = f"{top}/node_modules/code-server/lib/vscode"
    subprocess.run(["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", f"code-server@{version}"], cwd=top, check=True, capture_output=True)
    subprocess.run([*npm, "rebuild", "argon2", "--build-from-source"], cwd=top, check=True, capture_output=True)
    for folder in (code, f"{code}/extensions"):
        subprocess.run(["npm", "install", "--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund"], cwd=folder, check=True, capture_output=True)
    for module in ("node-pty", "@vscode/spdlog", "native-watchdog", "@parcel/watcher"):  # the last step of one asks for what is not there
        subprocess.run([*npm, "rebuild", module], cwd=code, check=False, capture_output=True)
    assert os.path.exists(f"{code}/node_modules/node-pty/build/Release/pty.node")
    if not os.path.exists(f"{code}/node_modules.asar"):
        os.symlink("node_modules", f"{code}/node_modules.asar")
    return f"{top}/node_modules/.bin"


@pytest.mark.long
@needs_browser
def test_vs_code(cluster, code_server, tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "hello.py").write_text("print('hello from the job')\n", "utf-8")
    env = dict(cluster.env, PATH=f"{code_server}:{cluster.env['PATH']}", HOME=str(tmp_path))
    with browser.Browser() as b:
        page = b.page()
        done = subprocess.run([cluster.binary, "app", "start", "--new", "vscode", f"folder={tmp_path}/work"], env=env, cwd=tmp_path, capture_output=True, text=True,
                              check=False)
        assert done.returncode == 0, done
        job = newest(cluster)
        page.goto(done.stdout.rsplit("logged in as you: ", 1)[1].strip(), LOADED_S)
        page.wait("document.querySelector('.monaco-workbench')", LOADED_S)

        def trusted():  # the question may come late
            page.evaluate("[...document.querySelectorAll('.monaco-dialog-box .monaco-button')].find(x => x.textContent.includes('Yes'))?.click()")

        def has_file():  # listed by the server, over its WebSocket
            trusted()
            return page.evaluate("[...document.querySelectorAll('.explorer-folders-view .label-name')].some(x => x.textContent == 'hello.py')")
        wait_until(has_file, LOADED_S, "the folder is not shown", interval=1)
    cluster.cli("cancel", str(job))


def ask(visitor, path, **kwargs):
    status, _, body = visitor.get(path, **kwargs)
    return status, json.loads(body) if status == 200 else body


@pytest.mark.long
def test_six_on_one_port_of_one_node(cluster, packages, tmp_path):
    """Each has a network of its own: they do not know of each other, and each is reached under its own address."""
    jobs = []
    for i in range(6):
        os.makedirs(tmp_path / str(i))
        jobs.append(cluster.cli("submit", "-Q", "-J", f"lab{i}", "--port", "8888", "-o", "/dev/null", "--", f"{packages}/bin/jupyter-lab", "--no-browser", "--allow-root",
                                "--ip=127.0.0.1", "--port=8888", "--ServerApp.port_retries=0", "--ServerApp.token=", "--ServerApp.allow_remote_access=True",
                                cwd=tmp_path / str(i)).stdout.strip())
    for i, job in enumerate(jobs):
        wait_until(lambda j=job: cluster.api.get(f"/v1/jobs/{j}")["state"] == "RUNNING", 60, "it does not run")
        wait_until(lambda j=job: knocks(cluster, j), LOADED_S, "it does not listen", interval=2)
        visitor = Visitor(cluster, job, "/api/status")
        (tmp_path / str(i) / f"of-{i}.txt").write_text("", "utf-8")
        status, listing = ask(visitor, "/api/contents")
        assert status == 200 and [c["name"] for c in listing["content"]] == [f"of-{i}.txt"], listing
    assert len({cluster.api.get(f"/v1/jobs/{j}")["nodes"] for j in jobs}) == 1
    for job in jobs:
        cluster.cli("cancel", job)


def knocks(cluster, job):
    """Whether the program answers."""
    try:
        Visitor(cluster, job, "/api/status", 1)
        return True
    except (LabError, AssertionError):
        return False


@pytest.mark.long
def test_warned_before_its_time_ends(packages, tmp_path):
    """By mail, without a word of the user, where the site sends mails."""
    notify = pytest.importorskip("tests.journeys.test_notify")
    mail = notify.MailServer(notify.free_port())
    mail.start()
    config = f"[node *]\ncpus = 4\nmemory = 4G\n[notify]\nfrom = acequia@lab.example\nsmtp_server = smtp://127.0.0.1:{mail.port}\n"
    with Cluster(config=config) as c:
        c.cli("notebook", "--new", "--environment", packages, "--time", "1m", cwd=tmp_path)
        job = newest(c)
        wait_until(lambda: mail.mails, 120, "no warning comes")
        assert f"Job {job} " in mail.subjects()[0] and "has used 90% of its time limit" in mail.subjects()[0], mail.subjects()
        assert c.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING"
        c.cli("cancel", str(job))
    mail.stop()


@pytest.mark.long
def test_gradio(cluster, packages, tmp_path):
    """Its page and its API, many times: one answer in many once was 500."""
    (tmp_path / "demo.py").write_text("import gradio as gr\ngr.Interface(fn=lambda x: x + '!', inputs='text', outputs='text', api_name='predict').launch()\n", "utf-8")
    cluster.cli("app", "start", "--new", "gradio", "file=demo.py", f"python={packages}/bin/python", cwd=tmp_path)
    visitor = Visitor(cluster, newest(cluster), "/config")
    for i in range(200):
        status, _, body = visitor.get("/gradio_api/call/predict", "POST", json.dumps({"data": [f"word {i}"]}), Content_Type="application/json")
        assert status == 200, (i, status, body)
        status, _, body = visitor.get(f"/gradio_api/call/predict/{json.loads(body)['event_id']}")
        assert status == 200 and f"word {i}!".encode() in body, (i, status, body)
    cluster.cli("cancel", str(newest(cluster)))
