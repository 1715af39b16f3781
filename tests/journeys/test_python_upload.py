"""Folders and Python packages that go with jobs: nothing of them is on the node before."""
import os
import sys
import zipfile

import pytest

from tests.lab.cluster import Cluster

PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "python")
sys.path.insert(0, PACKAGE)
cloudpickle = pytest.importorskip("cloudpickle", reason="cloudpickle is not installed; make test installs it")
import acequia  # noqa: E402
from acequia import upload  # noqa: E402

cloudpickle.register_pickle_by_value(sys.modules[__name__])
WAIT = 120


@pytest.fixture(scope="module", name="cluster")
def _cluster():
    with Cluster(config="[cluster]\ngrace = 1s\nmax_texts_per_user = 1M\n[node *]\ncpus = 16\nmemory = 8G\n") as c:
        yield c


@pytest.fixture(name="client")
def _client(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ACEQUIA_HOME", cluster.home)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ACEQUIA_HOST", raising=False)
    return acequia.Client()


@pytest.fixture(name="project")
def _project(tmp_path):
    """A folder with a module, data, and what is left out."""
    root = tmp_path / "project"
    for name in ("src/deep", "data", ".git", "__pycache__", "logs"):
        (root / name).mkdir(parents=True)
    (root / "helper_of_job.py").write_text("import os\nVALUE = 41\ndef more(x):\n    return x + VALUE\n")
    (root / "run.sh").write_text("#!/bin/sh\ncat data/numbers\n")
    (root / "run.sh").chmod(0o755)
    (root / "data/numbers").write_text("1 2 3\n")
    (root / "src/deep/kept.log").write_text("kept\n")
    (root / "src/deep/left.log").write_text("left\n")
    (root / "logs/all").write_text("left\n")
    (root / ".git/config").write_text("left\n")
    (root / "__pycache__/x.pyc").write_text("left\n")
    (root / ".gitignore").write_text("# what is left out\n*.log\n!kept.log\n/logs/\n")
    os.symlink("data/numbers", root / "link")
    return root


def listed():
    return sorted(os.path.relpath(os.path.join(at, name), ".") for at, _, names in os.walk(".") for name in names)


def test_a_folder_goes_with_jobs(client, project, tmp_path):
    def use(x):
        import helper_of_job
        return helper_of_job.more(x), listed(), os.getcwd()

    with acequia.Executor(client, python=sys.executable, cpus=1, memory="200M", upload=project) as ex:
        first, names, where = ex.submit(use, 1).result(WAIT)
        assert first == 42 and names == [".gitignore", "data/numbers", "helper_of_job.py", "link", "run.sh", "src/deep/kept.log"]
        assert where.startswith(str(tmp_path / "cache/acequia/uploads/")) and len(os.path.basename(where)) == 64
        assert [r[0] for r in ex.map(use, range(3))] == [41, 42, 43]
        (project / "helper_of_job.py").write_text("VALUE = 0\n")  # what was sent is what it was then
        assert ex.submit(use, 1).result(WAIT)[0] == 42
    assert len([n for n in os.listdir(tmp_path / "cache/acequia/uploads") if not n.endswith(".lock")]) == 1  # unpacked once
    job = client.submit(["sh", "run.sh"], upload=project, memory="100M")
    assert job.result(WAIT) == 0 and job.logs() == "1 2 3\n"
    script = client.submit_script("#!/bin/sh\n./run.sh; echo $1\n", "argument", upload=str(project), memory="100M")
    assert script.result(WAIT) == 0 and script.logs() == "1 2 3\nargument\n"


def test_a_pool_has_it_too(client, project):
    with acequia.Pool(client, python=sys.executable, cpus=1, memory="256M", upload=project) as pool:
        assert pool.submit(lambda: __import__("helper_of_job").more(1)).result(WAIT) == 42


def test_the_controller_keeps_a_folder_once(client, project):
    (project / "noise").write_bytes(os.urandom(400 << 10))  # more than half of what a user's texts may have
    jobs = [client.submit("exit 0", upload=project, hold=True, memory="100M") for _ in range(4)]
    (project / "noise").write_bytes(os.urandom(400 << 10))
    with pytest.raises(acequia.AcequiaError, match="max_texts_per_user"):
        acequia.Client(patience_s=1).submit("exit 0", upload=project, hold=True, memory="100M")
    for job in jobs:
        job.cancel()
        job.wait(WAIT)
    client.submit("exit 0", upload=project, memory="100M").result(WAIT)  # room again


def test_the_folder_survives_restarts(cluster, client, project):
    job = client.submit(["cat", "data/numbers"], upload=project, hold=True, memory="100M")
    cluster.cli("down")
    cluster.cli("up")
    client.act("release", [job.id])
    assert job.result(WAIT) == 0 and job.logs() == "1 2 3\n"


@pytest.mark.long
def test_packages_are_installed_once(client, tmp_path):
    wheel = tmp_path / "only_here-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as z:
        z.writestr("only_here.py", "VALUE = 7\n")
        z.writestr("only_here-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: only-here\nVersion: 1.0\n")
        z.writestr("only_here-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr("only_here-1.0.dist-info/RECORD", "only_here.py,,\nonly_here-1.0.dist-info/METADATA,,\nonly_here-1.0.dist-info/WHEEL,,\n"
                   "only_here-1.0.dist-info/RECORD,,\n")
    with acequia.Executor(client, python=sys.executable, cpus=1, memory="500M", pip=[str(wheel)]) as ex:
        assert list(ex.map(lambda x: __import__("only_here").VALUE * x, range(3))) == [0, 7, 14]  # three at once
    assert len([n for n in os.listdir(tmp_path / "cache/acequia/environments") if not n.endswith(".lock")]) == 1
    with acequia.Executor(client, python=sys.executable, cpus=1, memory="500M", pip=["/nowhere/of-this.whl"]) as ex:
        job = ex.submit(len, "abc")
        with pytest.raises(acequia.JobFailed, match="cannot be installed"):
            job.result(WAIT)


def test_mistakes_are_said(client, project, tmp_path):
    with pytest.raises(acequia.AcequiaError, match="is not a folder"):
        acequia.Executor(client, upload=tmp_path / "nowhere")
    with pytest.raises(acequia.AcequiaError, match="requirements file"):
        acequia.Executor(client, pip="nowhere.txt")
    (project / "large").write_bytes(os.urandom(5 << 20))
    with pytest.raises(acequia.AcequiaError, match=r"too large.*large \(5.0 MB\).*\.acequiaignore"):
        acequia.Executor(client, upload=project)
    (project / ".acequiaignore").write_text("large\n")
    assert upload.Upload(project, None).hash == upload.Upload(project, None).hash


def test_what_is_not_used_goes_when_there_is_too_much(client, project, tmp_path):
    for _ in range(4):
        (project / "noise").write_bytes(os.urandom(300 << 10))
        assert client.submit(["true"], upload=project, memory="100M", env={"ACEQUIA_CACHE_KB": "700"}).result(WAIT) == 0
    left = [n for n in os.listdir(tmp_path / "cache/acequia/uploads") if not n.endswith(".lock")]
    assert 1 <= len(left) <= 2


def test_the_command_line_sends_folders_too(cluster, project, tmp_path):
    def submit(*words, check=True):
        return cluster.cli("submit", "-D", str(tmp_path), "-o", f"{tmp_path}/out", "-W", *words, check=check)

    submit("--upload", str(project), "--", "sh", "-c", "cat data/numbers; python3 -c 'import helper_of_job as h; print(h.more(1))'; ls -a; ls src/deep")
    text = (tmp_path / "out").read_text()
    assert text.startswith("1 2 3\n42\n") and "left.log" not in text and ".git\n" not in text and "__pycache__" not in text
    (tmp_path / "job.sh").write_text("#!/bin/sh\n#ACEQUIA -n 1\n./run.sh\necho \"$1\"\n")
    submit("--upload", str(project), str(tmp_path / "job.sh"), "an argument")
    assert (tmp_path / "out").read_text() == "1 2 3\nan argument\n"
    assert "not a folder" in submit("--upload", str(tmp_path / "job.sh"), "--", "true", check=False).stderr
    (project / "large").write_bytes(os.urandom(4 << 20))
    assert "too large" in submit("--upload", str(project), "--", "true", check=False).stderr
    (tmp_path / "needs.txt").write_text("/nowhere/of-this.whl\n")
    refused = submit("--requirements", str(tmp_path / "missing.txt"), "--", "true", check=False)
    assert "missing.txt" in refused.stderr and refused.returncode
