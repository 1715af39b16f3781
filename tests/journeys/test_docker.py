"""docker's words inside jobs: scripts with docker, nvidia-docker and sudo lines run unchanged, as the user, within the job."""
import os
import re

import pytest

from tests.journeys.test_images import DOCKERFILE, Lab, UID, missing, public_folder
from tests.lab.cluster import Cluster

pytestmark = pytest.mark.skipif(bool(missing), reason=f"not installed: {' '.join(missing)}; make test installs it")


class Docker(Lab):
    def __init__(self, cluster, folder):
        super().__init__(cluster, folder)
        cluster.cli("docker-commands", f"{folder}/docker")
        done = self.build("tool", DOCKERFILE.replace('"cat /made; echo entry"', '"echo entry $0 $1"'))
        assert done.returncode == 0, (done.stdout, done.stderr)

    def script(self, text, *options):
        """Runs a script as a job; PATH has the links first, as a user has set it up."""
        path = f"{self.folder}/script.sh"
        with open(path, "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\n" + text)
        os.chmod(path, 0o755)
        return self.cli("run", *options, "--", path, env={"PATH": f"{self.folder}/docker:{os.environ['PATH']}"})

    def cli(self, *arguments, env=None, **kwargs):
        env = {"PATH": f"{self.folder}/docker:{self.c.env['PATH']}", **(env or {})}
        path = env.pop("PATH")
        self.c.env["PATH"] = path
        return super().cli(*arguments, env=env, **kwargs)


@pytest.fixture(scope="module", name="lab")
def _lab():
    with public_folder() as folder, Cluster(config="[cluster]\ngrace = 2s\n[node *]\ncpus = 16\nmemory = 8G\n") as c:
        yield Docker(c, folder)


def test_run(lab):
    done = lab.script("docker run --rm tool one two; echo $?; docker run --rm --entrypoint cat tool /made; docker run --rm -it -w / --entrypoint pwd tool\n"
                      "export KEPT=kept; docker run --rm -e GREETING=bye -e KEPT --entrypoint sh tool -c 'echo $GREETING $KEPT; id -u; pwd'\n"
                      "mkdir -p data; echo text > data/file; docker run --rm -v $PWD/data:/data:ro --entrypoint sh tool -c 'cat /data/file; touch /data/no'\n"
                      "docker run --rm --entrypoint sh tool -c 'exit 9'; echo $?; docker run --rm --entrypoint nosuch tool; echo $?\n")
    out = done.stdout.splitlines()
    assert out[:4] == ["entry one two", "0", "built with hello by 0", "/"], (done.stdout, done.stderr)
    assert out[4:] == ["bye kept", str(UID), "/work", "text", "9", "127"], (done.stdout, done.stderr)
    assert "Read-only" in done.stderr and "command nosuch not found in the image" in done.stderr


def test_a_script_of_a_thesis_runs_unchanged(lab):
    """Source of the words: a container that was made by hand, and a job that runs a program in it."""
    os.makedirs(f"{lab.home}/mounted/CNN", exist_ok=True)
    with open(f"{lab.home}/mounted/CNN/script.py", "w", encoding="utf-8") as f:
        f.write("echo trained in $PWD > /result; cat /result\n")
    os.system(f"chmod -R a+rwX {lab.home}/mounted")
    done = lab.script(f"docker run --name dockerMontado -v {lab.home}/mounted:/mounted -w /mounted --entrypoint true tool\n")
    assert done.returncode == 0, (done.stdout, done.stderr)
    done = lab.script("#SBATCH --job-name=cnn\nsudo nvidia-docker exec dockerMontado sh CNN/script.py\n")
    assert done.stdout == "trained in /mounted\n", (done.stdout, done.stderr)
    done = lab.script("docker exec dockerMontado cat /result; docker run --name dockerMontado tool; echo $?; docker rm dockerMontado; docker exec dockerMontado true; echo $?\n")
    assert done.stdout == "trained in /mounted\n125\ndockerMontado\n1\n", (done.stdout, done.stderr)
    assert 'name "dockerMontado" is in use already' in done.stderr and "no such container on this node: dockerMontado" in done.stderr


def test_in_the_background(lab):
    done = lab.script("id=$(docker run -d --rm --name server --entrypoint sh tool -c 'echo begun; echo x > /mine; sleep 1000') || exit 1\n"
                      "echo ${#id}; docker ps | grep -c server; docker exec -e A=b server sh -c 'cat /mine; echo $A'\n"
                      "docker logs server; docker stop -t 1 server; docker ps -q | wc -l; docker ps -a | grep -c Exited\n"
                      "docker run -d --name short --entrypoint sh tool -c 'exit 3' > /dev/null; docker wait short; docker rm -f short\n"
                      "docker run -d --entrypoint nosuch tool; echo $?\n")
    assert done.stdout.split() == ["64", "1", "x", "b", "begun", "server", "0", "1", "3", "short", "125"], (done.stdout, done.stderr)


def test_images(lab):
    folder = lab.context("inner", "FROM localhost/tool\nENV WHO=inner\nENTRYPOINT []\nCMD [\"/bin/sh\", \"-c\", \"echo $WHO\"]\n", rootfs=False)
    done = lab.script(f"docker build -q -t inner {folder} >build.out 2>&1 || cat build.out; docker run --rm inner; docker tag inner other:2; docker images; docker rmi other:2; docker images | grep -c other\n")
    assert done.stdout.splitlines()[0] == "inner" and re.search(r"^other +2 ", done.stdout, re.M), (done.stdout, done.stderr)
    assert done.stdout.splitlines()[-1] == "0"


@pytest.mark.parametrize("words, why", [
    ("run --privileged tool", "containers of jobs have no privileges"), ("run -m 4g tool", "the job's limits hold"),
    ("run -p 80:8080 tool", "acequia submit --port"), ("run --network bridge tool", "containers use the job's network"),
    ("run -v data:/data tool", "volumes of docker are not known here"), ("run --user root tool", "you are yourself in a container"),
    ("run --frobnicate tool", "option --frobnicate is not known here"), ("run --gpus 2 tool", "the job has 0"),
    ("compose up", "components of a job"), ("frobnicate", "is not one of docker's words"), ("run", "needs an image"),
])
def test_what_cannot_hold_is_refused(lab, words, why):
    done = lab.script(f"docker {words}\n")
    assert done.returncode == 125 and why in done.stderr, (done.stdout, done.stderr)


def test_only_inside_jobs(lab):
    done = lab.cli("run", "tool", program=f"{lab.folder}/docker/docker")
    assert done.returncode == 125 and "docker's words work inside jobs" in done.stderr
    done = lab.cli("run", "--container", "tool", "--", "/.acequia/bin/acequia", "docker", "run", "tool")
    assert done.returncode == 125 and "runs in a container already" in done.stderr, done.stderr
