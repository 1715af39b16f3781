"""Run:AI's command line: the lines of its published walkthroughs (training, interactive builds, ports, shared volumes, fractions), typed as
printed there but for the names of images, by a user in a container from a registry."""
import os
import re
import shutil
import tempfile

import pytest

from tests.lab.cluster import Cluster
from tests.lab.images import Registry, layer_of, make_rootfs, save_docker
from tests.lab.proc import wait_until
from tests.lab.users import user

missing = [t for t in ("skopeo", "umoci", "busybox", "useradd") if not shutil.which(t)]
pytestmark = [pytest.mark.skipif(bool(missing), reason=f"not installed: {' '.join(missing)}; make test installs it"),
              pytest.mark.skipif(os.geteuid() != 0, reason="users of their own need root")]
CONFIG = """[cluster]
grace = 1s
volume_folder = {folder}/volumes
[node *]
cpus = 16
memory = 8G
gpus = v100:4
gpus_simulated = true
[project team-a]
quota = 2
[project team-d]
quota = 2
"""


class Lab:
    def __init__(self, cluster, folder, who, image):
        self.c, self.folder, self.who, self.image = cluster, folder, who, image

    def runai(self, *words, status=0, **kwargs):
        done = self.who.run(f"{self.folder}/links/runai", *words, env=self.c.env, **kwargs)
        assert done.returncode == status, (words, done.stdout, done.stderr)
        return done.stdout + (done.stderr if status else "")

    def acequia(self, *words):
        done = self.who.run(self.c.binary, *words, env=self.c.env)
        assert done.returncode == 0, (words, done)
        return done.stdout

    def row(self, name, *options):
        """The columns of a job in `runai list`, which are separated by two blanks or more."""
        for line in self.runai("list", *options).splitlines():
            if line.startswith(name + " "):
                return re.split(r"\s{2,}", line.strip())
        return []

    def running(self, name, *options):
        wait_until(lambda: "Running" in self.row(name, *options), 60, f"{name} runs")


@pytest.fixture(scope="module", name="lab")
def _lab():
    folder = tempfile.mkdtemp(prefix="acequia-runai-")
    os.chmod(folder, 0o755)
    os.makedirs(f"{folder}/volumes")
    with Registry() as registry, Cluster(config=CONFIG.format(folder=folder)) as c, user("acqrun") as who:
        archive = f"{folder}/image.tar"
        save_docker(archive, [layer_of(make_rootfs(f"{folder}/rootfs"))], config={"Cmd": ["/bin/sleep", "600"], "Env": ["PATH=/bin"]})
        registry.push(archive, "run-ai-demo/quickstart:latest")
        c.cli("slurm-commands", f"{folder}/links")
        yield Lab(c, folder, who, registry.name("run-ai-demo/quickstart"))
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def _clean(lab):
    yield
    lab.runai("delete", "--all", "-A")
    lab.runai("project", "set", "team-a")


def test_unattended_training(lab):
    assert "team-a" in lab.runai("project", "set", "team-a")
    out = lab.runai("submit", "hyper1", "-i", lab.image, "-g", "1")
    assert "runai describe job hyper1" in out
    lab.running("hyper1")
    shown = lab.runai("list")
    assert shown.startswith("Showing jobs for project team-a\n")
    heading = shown.splitlines()[1].split()
    assert heading == ["NAME", "STATUS", "AGE", "NODE", "IMAGE", "TYPE", "PROJECT", "USER", "GPUs", "SERVICE", "URL(S)"]
    row = lab.row("hyper1")
    assert row[1] == "Running" and re.fullmatch(r"\d+[smhd]", row[2]) and row[4:] == [lab.image, "Train", "team-a", lab.who.name, "1"], row
    assert "hyper1" in lab.runai("get", "hyper1") and "hyper1" in lab.runai("describe", "job", "hyper1", "-p", "team-a")
    lab.runai("delete", "hyper1")
    wait_until(lambda: not lab.row("hyper1"), 30, "a deleted job is not listed")


def test_interactive_build(lab):
    lab.runai("submit", "build1", "-i", lab.image, "-g", "1", "--interactive", "--command", "sleep", "--args", "infinity")
    lab.running("build1")
    assert "Interactive" in lab.row("build1")
    assert lab.runai("bash", "build1", input="cat /word\n") == "image\n"
    assert lab.runai("exec", "build1", "--", "cat", "/word") == "image\n"
    assert lab.runai("exec", "build1", "cat", "/nothing", status=1)
    assert "build1" in lab.runai("top", "job") and "1/4" in lab.runai("top", "node")


def test_later_form_of_the_command(lab):
    lab.runai("submit", "--name", "words", "-i", lab.image, "-p", "team-d", "-e", "WHO=eva", "--command", "--", "sh", "-c", "echo to $WHO")
    wait_until(lambda: "Succeeded" in lab.row("words", "-p", "team-d"), 60, "it has ended")
    assert lab.runai("logs", "words", "-p", "team-d") == "to eva\n"
    assert not lab.row("words") and lab.row("words", "-A")


def test_ports(lab):
    lab.runai("submit", "test-ingress", "-i", lab.image, "-g", "1", "--interactive", "--service-type=ingress", "--port", "8888",
              "--args=600", "--command=sleep")
    lab.running("test-ingress")
    assert re.match(r"https?://", lab.row("test-ingress")[-1]), lab.row("test-ingress")


def test_volumes_and_fractions(lab):
    lab.acequia("volume", "create", "test")
    lab.runai("submit", "pvc-test", "-p", "team-a", "--pvc", "test:/tmp/pvc1mount", "-i", lab.image, "-g", "0.5")
    lab.running("pvc-test", "-p", "team-a")
    assert lab.row("pvc-test", "-p", "team-a")[-1] == "0.5"
    assert "/tmp/pvc1mount" in lab.runai("get", "pvc-test", "-p", "team-a")
    assert lab.runai("bash", "pvc-test", "-p", "team-a", input="echo data > /tmp/pvc1mount/f\n") == ""
    lab.runai("submit", "netapp1", "-i", lab.image, "--local-image", "--large-shm", "-v", f"{lab.who.home}:/mnt", "--pvc", "test:/data:ro",
              "--command", "cat", "--args", "/data/f", "-g", "1")
    wait_until(lambda: "Succeeded" in lab.row("netapp1"), 60, "it has ended")
    assert lab.runai("logs", "netapp1") == "data\n"


def test_mistakes(lab):
    assert "did you mean \"runai delete\"" in lab.runai("delte", "hyper1", status=2)
    for words in ([], ["x"], ["x", "-g", "1"]):
        assert "give the job a name and an image" in lab.runai("submit", *words, status=2)
    assert "acequia notebook" in lab.runai("submit", "a", "--jupyter", status=2)
    assert "jobs, projects or nodes" in lab.runai("list", "pods", status=2)
    assert "--all" in lab.runai("delete", status=2)
    assert "one job" in lab.runai("logs", "a", "b", status=2)
    assert "no job" in lab.runai("logs", "nothing-of-this-name", status=1).lower()
    assert "Usage: runai" in lab.runai("help") and "Usage: runai" in lab.runai(status=2)
