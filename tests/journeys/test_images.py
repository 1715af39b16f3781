"""Images: built by buildah as rootless jobs, pushed to a real registry, pulled and run; containers that are kept by name;
when the registry is asked; registries, builds and images that misbehave."""
import contextlib
import glob
import http.server
import json
import os
import pwd
import re
import shutil
import subprocess
import tempfile
import threading
import zipfile

import pytest

from tests.lab.cluster import Cluster
from tests.lab.images import Registry, layer_of, make_rootfs, save_docker
from tests.lab.proc import wait_until

ROOT = os.geteuid() == 0
NOBODY = pwd.getpwnam("nobody")
AS_NOBODY = ["setpriv", "--reuid", "nobody", "--regid", str(NOBODY.pw_gid), "--clear-groups"]
UID = NOBODY.pw_uid if ROOT else os.getuid()
missing = [t for t in ("skopeo", "umoci", "busybox", "buildah") if not shutil.which(t)]
pytestmark = pytest.mark.skipif(bool(missing), reason=f"not installed: {' '.join(missing)}; make test installs it")

DOCKERFILE = """FROM scratch
COPY rootfs /
ENV PATH=/bin GREETING=hello
RUN echo "built with $GREETING by $(id -u)" > /made
WORKDIR /work
ENTRYPOINT ["/bin/sh", "-c", "cat /made; echo entry"]
"""


class Lab:
    def __init__(self, cluster, folder):
        self.c, self.folder = cluster, folder
        self.home = f"{folder}/home"
        os.makedirs(self.home)
        if ROOT:
            os.chown(self.home, UID, NOBODY.pw_gid)
        cluster.cli("slurm-commands", f"{folder}/slurm")

    @property
    def cache(self):
        return f"{self.c.home}/images/{UID}"

    def cli(self, *arguments, env=None, timeout=150, program=None, **kwargs):
        """As nobody where we can."""
        env = dict(self.c.env, HOME=self.home, **(env or {}))
        env["PATH"] = f"{self.folder}/slurm:{env['PATH']}"
        kwargs.setdefault("cwd", self.home)
        who = AS_NOBODY if ROOT else []
        return subprocess.run([*who, program or self.c.binary, *arguments], env=env, capture_output=True, text=True, timeout=timeout, **kwargs)

    def context(self, name, dockerfile, rootfs=True, **files):
        folder = f"{self.folder}/{name}"
        os.makedirs(folder, exist_ok=True)
        if rootfs and not os.path.isdir(f"{folder}/rootfs"):
            make_rootfs(f"{folder}/rootfs")
        for file, text in {"Dockerfile": dockerfile, **files}.items():
            with open(f"{folder}/{file.replace('__', '.')}", "w", encoding="utf-8") as f:
                f.write(text)
        return folder

    def build(self, name, dockerfile=DOCKERFILE, *options, **files):
        return self.cli("image", "build", "-t", name, *options, self.context(name.replace(":", "-").replace("/", "-"), dockerfile, **files))

    def job(self, number):
        return self.c.api.get(f"/v1/jobs/{number}")

    def images(self):
        return {(i["name"], i["kind"]) for i in json.loads(self.cli("image", "list", "--json").stdout)["images"]}

    def work(self):
        return os.listdir(f"{self.cache}/work") if os.path.isdir(f"{self.cache}/work") else []


@contextlib.contextmanager
def public_folder():
    """One that other users can pass through; pytest closes its own to them."""
    folder = tempfile.mkdtemp(prefix="acequia-images-")
    os.chmod(folder, 0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def lab():
    with public_folder() as folder, Cluster(config="[cluster]\ngrace = 5s\n[node *]\ncpus = 16\nmemory = 8G\n") as c:
        yield Lab(c, folder)


@pytest.fixture(scope="module")
def registry():
    with Registry() as r:
        yield r


@pytest.fixture(scope="module")
def archive(lab):
    folder = f"{lab.folder}/archive"
    return save_docker(f"{lab.folder}/saved.tar", [layer_of(make_rootfs(folder))])


def test_built_run_pushed_and_run_from_the_registry(lab, registry):
    done = lab.build("tool")
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "STEP" in done.stdout + done.stderr and "image tool:latest is ready" in done.stdout
    done = lab.cli("run", "--container", "tool", "--", "sh", "-c", "cat /made; echo $GREETING; id -u")
    assert done.stdout == f"built with hello by 0\nhello\n{UID}\n", (done.stdout, done.stderr)
    done = lab.cli("run", "--container", "tool:latest")
    assert done.stdout == "built with hello by 0\nentry\n", (done.stdout, done.stderr)
    name = registry.name("lab/tool:1")
    done = lab.cli("image", "push", "tool", name)
    assert done.returncode == 0, (done.stdout, done.stderr)
    done = lab.cli("run", "--container", f"docker://{name}")
    assert done.stdout == "built with hello by 0\nentry\n", (done.stdout, done.stderr)
    again = lab.build("tool")
    assert "Using cache" in again.stdout + again.stderr, (again.stdout, again.stderr)
    wait_until(lambda: {("tool:latest", "built"), (name, "fetched")} <= lab.images(), 30, "the node does not say what it holds")
    assert lab.work() == []
    # Nothing of it belongs to root, and nothing ran as root.
    if ROOT:
        owners = {os.lstat(os.path.join(d, f)).st_uid for d, _, files in os.walk(lab.cache) for f in files}
        assert owners == {UID}


def test_the_folder_is_sent_and_dockerignore_is_honoured(lab):
    text = "FROM scratch\nCOPY . /\nENV PATH=/rootfs/bin\nRUN [\"/rootfs/bin/ls\", \"/\"]\n"
    folder = lab.context("sent", text, **{"__dockerignore": "secret*\nlogs/\n", "secret__txt": "s", "kept": "k"})
    os.makedirs(f"{folder}/logs", exist_ok=True)
    for options in ([], ["--upload"]):
        done = lab.cli("image", "build", "-t", "sent", "--no-cache", *options, folder)
        assert done.returncode == 0, (done.stdout, done.stderr)
        listed = done.stdout.split()
        assert "kept" in listed and "secret.txt" not in listed and "logs" not in listed, done.stdout
    done = lab.cli("image", "build", "-t", "sent", "--upload", "-d", folder)
    assert done.returncode == 2 and "leave out --detach" in done.stderr


def test_a_build_that_fails_never_ends_or_is_cancelled(lab):
    done = lab.build("broken", DOCKERFILE.replace("RUN echo", "RUN false; exit 7; echo"))
    assert done.returncode == 1 and "the image was not built" in done.stderr and "exit status 7" in done.stderr, done.stderr
    folder = lab.context("endless", DOCKERFILE.replace("RUN echo", "RUN sleep 1000; echo"))
    done = lab.cli("image", "build", "-t", "endless", "--time", "6s", folder)
    assert done.returncode != 0
    number = int(re.search(r"job (\d+)", lab.cli("image", "build", "-d", "-t", "endless", folder).stdout).group(1))
    wait_until(lambda: "STEP 4/6" in lab.cli("logs", str(number)).stdout, 60, "the build does not begin")
    assert lab.cli("cancel", str(number)).returncode == 0
    wait_until(lambda: lab.job(number)["state"].upper() == "CANCELLED", 60, f"it is not cancelled: {lab.job(number)}")
    wait_until(lambda: lab.work() == [], 30, f"it leaves {lab.work()}")
    containers = f"{lab.cache}/buildah/storage/overlay-containers/containers.json"
    wait_until(lambda: not os.path.exists(containers) or json.load(open(containers, encoding="utf-8")) == [], 30, "containers are left")
    assert ("endless:latest", "built") not in lab.images()
    assert lab.build("tool").returncode == 0


def test_what_is_missing_is_said(lab):
    done = lab.cli("image", "build", "-t", "UPPER/..", lab.context("names", DOCKERFILE))
    assert done.returncode == 1 and "cannot be the name of an image" in done.stderr, done.stderr
    done = lab.cli("image", "build", "-f", "nosuch", lab.context("names", DOCKERFILE))
    assert done.returncode == 1 and "nosuch" in done.stderr
    done = lab.cli("image", "push", "nosuch", "127.0.0.1:1/x")
    assert done.returncode == 1 and "image nosuch is on no node" in done.stderr
    done = lab.cli("image", "frobnicate")
    assert done.returncode == 2 and "expected build, push" in done.stderr
    done = lab.cli("run", "--container", "tool", "--pull", "often", "--", "true")
    assert done.returncode == 2 and "expected always, missing or never" in done.stderr


def test_when_the_registry_is_asked(lab, registry, archive):
    registry.push(archive, "lab/pulled:1")
    name = registry.name("lab/pulled:1")
    done = lab.cli("run", "--container", name, "--pull", "never", "--", "cat", "/word")
    assert done.returncode == 127 and "--pull never does not fetch it" in done.stderr, done.stderr
    assert lab.cli("image", "pull", name).returncode == 0
    done = lab.cli("run", "--container", name, "--pull", "never", "--", "cat", "/word")
    assert done.stdout == "image\n", done.stderr
    other = save_docker(f"{lab.folder}/other.tar", [layer_of(make_rootfs(f"{lab.folder}/other", "changed"))])
    registry.push(other, "lab/pulled:1")
    for when, word in (("missing", "image\n"), ("never", "image\n"), ("always", "changed\n"), ("missing", "changed\n")):
        done = lab.cli("run", "--container", name, "--pull", when, "--", "cat", "/word")
        assert done.stdout == word, (when, done.stdout, done.stderr)
    # A registry that is gone: always says so, the others use what is there.
    gone = name.replace(str(registry.port), "1")
    done = lab.cli("run", "--container", gone, "--pull", "always", "--", "true")
    assert done.returncode == 127 and "the image cannot be had" in done.stderr


def test_containers_that_are_kept(lab, archive):
    first = lab.cli("run", "--container", archive, "--container-name", "mine", "--", "sh", "-c", "echo one > /kept; cat /word; id -un")
    assert first.returncode == 0 and first.stdout.startswith("image\n"), (first.stdout, first.stderr)
    second = lab.cli("run", "--container-name", "mine", "--", "sh", "-c", "cat /kept; echo $FROM_IMAGE; grep -c . /etc/passwd")
    assert second.stdout == "one\nyes\n2\n", (second.stdout, second.stderr)
    script = "#!/bin/sh\n#SBATCH --container-name=mine -o kept.out -n 2\nsrun sh -c 'echo task >> /tasks'\ncat /kept /tasks\n"
    with open(f"{lab.folder}/kept.sh", "w", encoding="utf-8") as f:
        f.write(script)
    done = lab.cli("--wait", f"{lab.folder}/kept.sh", program="sbatch")
    with open(f"{lab.home}/kept.out", encoding="utf-8") as f:
        assert f.read() == "one\ntask\ntask\n", done.stderr
    done = lab.cli("--container-name=mine", "cat", "/kept", program="srun")
    assert done.stdout == "one\n", done.stderr
    wait_until(lambda: ("mine", "container") in lab.images(), 30, "it is not reported")
    assert "mine" in lab.cli("image", "containers").stdout and "mine" not in lab.cli("image", "list").stdout
    number = int(lab.cli("submit", "-Q", "-o", "/dev/null", "--container-name", "mine", "--", "sleep", "100").stdout)
    wait_until(lambda: lab.job(number)["state"].upper() == "RUNNING", 30, "it does not run")
    wait_until(lambda: "is in use by a running job" in lab.cli("image", "remove", "--container", "mine").stderr, 30, "it is removed while in use")
    lab.cli("cancel", str(number))
    wait_until(lambda: lab.cli("image", "remove", "--container", "mine").returncode == 0, 30, "it cannot be removed")
    done = lab.cli("run", "--container-name", "mine", "--", "true")
    assert done.returncode == 127 and "container mine: it does not exist on this node" in done.stderr, done.stderr
    done = lab.cli("run", "--container-name", "../mine", "--", "true")
    assert done.returncode != 0 and "container-name" in done.stderr.replace("_", "-"), done.stderr


def test_an_image_in_use_is_not_removed(lab):
    assert lab.build("used").returncode == 0
    number = int(lab.cli("submit", "-Q", "-o", "/dev/null", "--container", "used", "--", "sleep", "100").stdout)
    wait_until(lambda: lab.job(number)["state"].upper() == "RUNNING" and os.listdir(f"{lab.cache}/store"), 30, "it does not run")
    wait_until(lambda: "is in use by a running job" in lab.cli("image", "remove", "used").stderr, 30, "it is removed while in use")
    lab.cli("cancel", str(number))
    wait_until(lambda: lab.cli("image", "remove", "used").returncode == 0, 30, "it cannot be removed")
    wait_until(lambda: ("used:latest", "built") not in lab.images(), 30, "it is still reported")


def test_what_nodes_hold_survives_restarts(lab):
    assert lab.build("stays").returncode == 0
    wait_until(lambda: ("stays:latest", "built") in lab.images(), 30, "it is not reported")
    lab.c.kill_controller()
    lab.c.start_controller()
    assert ("stays:latest", "built") in lab.images()


def python_base(lab):
    """An image with this machine's python3 and Debian's pip."""
    folder = f"{lab.folder}/python"
    wheel = sorted(glob.glob("/usr/share/python-wheels/pip-*.whl"))
    if not wheel:
        pytest.skip("Debian's pip is not here (python3-pip-whl)")
    if not os.path.isdir(folder):
        subprocess.run([os.path.join(os.path.dirname(__file__), "../../examples/image-build/base"), folder], check=True,
                       env=dict(os.environ, PATH="/usr/bin:/bin"))
        os.makedirs(f"{folder}/rootfs/opt")
        shutil.copy(wheel[-1], f"{folder}/rootfs/opt/pip.whl")
        done = lab.cli("image", "build", "-t", "python-base", folder)
        assert done.returncode == 0, (done.stdout, done.stderr)
    return "localhost/python-base"


@contextlib.contextmanager
def package_index(folder):
    """An index with one package, as PyPI has them."""
    os.makedirs(f"{folder}/simple/acequia-sample")
    name = "acequia_sample-1.0-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/simple/acequia-sample/{name}", "w") as z:
        for path, text in (("acequia_sample.py", "WORD = 'from the index'\n"), ("acequia_sample-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n"),
                           ("acequia_sample-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: acequia-sample\nVersion: 1.0\n"),
                           ("acequia_sample-1.0.dist-info/RECORD", "")):
            z.writestr(path, text)
    with open(f"{folder}/simple/acequia-sample/index.html", "w", encoding="ascii") as f:
        f.write(f"<a href='{name}'>{name}</a>")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=folder)

        def log_message(self, *_):
            pass
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()


PIP = """FROM {base}
ENV PYTHONPATH=/opt/pip.whl
RUN ["/usr/bin/python3", "-m", "pip", "install", "--no-cache-dir", "--target", "/app", "{package}"]
ENTRYPOINT ["/usr/bin/python3", "-c", "{program}"]
"""


def test_pip_in_a_build_knows_the_sites_index(lab):
    base = python_base(lab)
    with package_index(f"{lab.folder}/index") as url:
        text = PIP.format(base=base, package="acequia-sample", program="import sys; sys.path.insert(0, '/app'); import acequia_sample, os; print(acequia_sample.WORD, os.path.getsize('/etc/pip.conf') "
                          "if os.path.exists('/etc/pip.conf') else 0)")
        folder = lab.context("with-pip", text, rootfs=False)
        done = lab.cli("image", "build", "-t", "with-pip", folder, env={"PIP_INDEX_URL": url, "PIP_FIND_LINKS": "", "PIP_CERT": "/etc/ssl/certs/ca-certificates.crt"})
        assert done.returncode == 0, (done.stdout, done.stderr)
    # The settings were there for the build alone.
    done = lab.cli("run", "--container", "with-pip")
    assert done.stdout == "from the index 0\n", (done.stdout, done.stderr)


@pytest.mark.long
def test_pip_in_a_build_from_pypi(lab):
    folder = lab.context("from-pypi", PIP.format(base=python_base(lab), package="six==1.16.0", program="import sys; sys.path.insert(0, '/app'); import six; print(six.__version__)"), rootfs=False)
    done = lab.cli("image", "build", "-t", "from-pypi", folder, timeout=300)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert lab.cli("run", "--container", "from-pypi").stdout == "1.16.0\n"


def test_the_example(lab):
    folder = os.path.join(os.path.dirname(__file__), "../../examples/image-build")
    own = f"{lab.folder}/example"
    shutil.copytree(folder, own)
    done = lab.cli(program=f"{own}/run", env={"ACEQUIA": lab.c.binary})
    assert done.returncode == 0 and "epoch 3: y = 3.00 x" in done.stdout, (done.stdout[-2000:], done.stderr)
