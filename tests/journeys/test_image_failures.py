"""Registries that refuse or lie, disks that are full, Dockerfiles and folders that were made to do harm."""
import contextlib
import fcntl
import http.server
import io
import json
import os
import subprocess
import tarfile
import threading
import urllib.error
import urllib.request

import pytest

from tests.journeys.test_images import DOCKERFILE, ROOT, UID, Lab, missing, public_folder
from tests.lab.cluster import Cluster
from tests.lab.images import Registry, layer_of, make_rootfs, save_docker
from tests.lab.proc import wait_until

pytestmark = pytest.mark.skipif(bool(missing), reason=f"not installed: {' '.join(missing)}; make test installs it")


@pytest.fixture(scope="module", name="lab")
def _lab():
    with public_folder() as folder, Cluster(config="[cluster]\ngrace = 2s\n[node *]\ncpus = 16\nmemory = 8G\nimage_cache = 200M\n") as c:
        yield Lab(c, folder)


@pytest.fixture(scope="module", name="registry")
def _registry(lab):
    with Registry() as r:
        r.push(save_docker(f"{lab.folder}/saved.tar", [layer_of(make_rootfs(f"{lab.folder}/rootfs"))]), "lab/tool:1")
        yield r


@contextlib.contextmanager
def between(registry, change):
    """A proxy in front of the real registry: change(path, status, body) says what comes back."""
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self):
            request = urllib.request.Request(f"http://127.0.0.1:{registry.port}{self.path}", method=self.command,
                                             headers={"Accept": self.headers.get("Accept", "*/*")})
            try:
                with urllib.request.urlopen(request, timeout=20) as r:
                    status, headers, body = r.status, dict(r.headers), r.read()
            except urllib.error.HTTPError as e:
                status, headers, body = e.code, dict(e.headers), e.read()
            status, body, length = change(self.path, status, body)
            self.send_response(status)
            for name in ("Content-Type", "Docker-Content-Digest"):
                if name in headers:
                    self.send_header(name, headers[name])
            self.send_header("Content-Length", str(length))
            self.send_header("Connection", "close")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)
            self.close_connection = True

        do_GET = do_HEAD = answer

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}/lab/tool:1"
    server.shutdown()
    server.server_close()


def refuses(code):
    text = b'{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}' if code == 401 else b'{"errors":[{"code":"X","message":"refused"}]}'
    return lambda path, status, body: (status, body, len(body)) if path == "/v2/" else (code, text, len(text))


def truncates(path, status, body):
    whole = len(body)
    return status, body[:whole // 2] if "/blobs/" in path and whole > 4096 else body, whole


def lies(path, status, body):
    return status, body[:-1] + bytes([body[-1] ^ 1]) if "/blobs/" in path and len(body) > 4096 else body, len(body)


CASES = {"401": (refuses(401), "skopeo login"), "404": (refuses(404), "the image cannot be had"), "503": (refuses(503), "the image cannot be had"),
         "truncated": (truncates, "the image cannot be had"), "digest": (lies, "the image cannot be had")}


@pytest.mark.parametrize("case", CASES)
def test_registries_that_refuse_or_lie(lab, registry, case):
    change, why = CASES[case]
    with between(registry, change) as name:
        for words in (("run", "--container", name, "--", "true"), ("image", "pull", name)):
            done = lab.cli(*words)
            assert done.returncode in (1, 127) and why in done.stderr, (words, done.stdout, done.stderr)
        done = lab.build("based", f"FROM {name}\nRUN true\n")
        assert done.returncode == 1 and "the image was not built" in done.stderr, (done.stdout, done.stderr)
    assert lab.work() == []
    assert not os.path.isdir(f"{lab.cache}/store") or os.listdir(f"{lab.cache}/store") == []


def test_more_than_the_user_may_keep(lab):
    folder = lab.context("large", DOCKERFILE + "COPY large /large\n")
    with open(f"{folder}/large", "wb") as f:
        f.write(os.urandom(210 << 20))
    done = lab.cli("image", "build", "-t", "large", folder)
    assert done.returncode == 1 and "per user (image_cache)" in done.stderr, done.stderr
    os.unlink(f"{folder}/large")
    assert ("large:latest", "built") not in lab.images() and lab.work() == []


def test_layers_stay_while_another_build_runs(lab):
    """Beyond the user's room they go with the last build: others may have begun from them."""
    often = "".join(f"RUN dd if=/dev/zero of=/large bs=1M count={n}\n" for n in (53, 52, 51, 50))  # 206M of layers, 50M in the image
    assert lab.build("small").returncode == 0

    def layers():
        with open(f"{lab.cache}/buildah/storage/overlay-images/images.json", encoding="utf-8") as f:
            return json.load(f)

    with open(f"{lab.cache}/locks/builds", encoding="utf-8") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        done = lab.build("often", DOCKERFILE.replace("WORKDIR", often + "WORKDIR"))
        assert done.returncode == 0 and layers(), (done.stdout, done.stderr)
    assert lab.build("small").returncode == 0 and not layers()


def test_a_build_that_fills_the_disk(lab):
    """It is ended while it writes, and nothing of it is left; a folder that is sent as well."""
    done = lab.build("filling", DOCKERFILE.replace("WORKDIR", "RUN dd if=/dev/zero of=/filling bs=1M count=40000\nWORKDIR"))
    assert done.returncode == 1 and "the build was ended: it takes more than 600M" in done.stderr, done.stderr[-500:]
    folder = lab.context("sent-large", DOCKERFILE)
    with open(f"{folder}/large", "wb") as f:
        f.truncate(40 << 30)  # holes are sent as zeros
    with subprocess.Popen(["tar", "-c", "-C", folder, "."], stdout=subprocess.PIPE) as tar:
        done = lab.cli("image", "build", "-t", "sent-large", "-", stdin=tar.stdout)
        tar.kill()
    assert done.returncode == 1 and "the build was ended: it takes more than 600M" in done.stderr, done.stderr[-500:]
    assert lab.work() == []
    used = sum(os.lstat(os.path.join(d, f)).st_blocks * 512 for d, _, files in os.walk(lab.cache) for f in files)
    assert used < 300 << 20


HOSTILE = DOCKERFILE.replace("WORKDIR", """RUN for p in /etc /home /../../etc /../../usr/bin; do touch $p/acequia-hostile 2>/dev/null; done; true
RUN touch /proc/1/root/tmp/acequia-hostile /proc/self/cwd/../../../../tmp/acequia-hostile 2>/dev/null; kill -0 1 2>/dev/null; true
RUN mount -t tmpfs none /bin 2>&1 | grep -v xyz; true
LABEL evil="\\x1b]0;title" other='$(rm -rf /)'
WORKDIR""")


def test_a_hostile_dockerfile_harms_its_image_alone(lab):
    before = {name: os.stat(name).st_mtime_ns for name in ("/etc", "/etc/passwd", "/usr/bin")}
    done = lab.build("hostile", HOSTILE)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert {name: os.stat(name).st_mtime_ns for name in before} == before
    assert not os.path.exists("/tmp/acequia-hostile") and os.path.isdir(lab.home)
    done = lab.cli("image", "list")
    assert "\x1b]0" not in done.stdout
    if ROOT:
        owners = {os.lstat(os.path.join(d, f)).st_uid for d, _, files in os.walk(lab.cache) for f in files}
        assert owners == {UID}


ROOTS = """grep -h -E "^CapEff|NoNewPrivs" /proc/self/status
v=$(cat /proc/sys/vm/stat_interval) && echo "$v" 2>&- > /proc/sys/vm/stat_interval && echo CHAN''GED a setting of the kernel
cat /proc/1/root/etc/shadow && echo CHAN''GED shadow
mount -t tmpfs none /home && echo CHAN''GED mounts
for d in /dev/*; do [ -b $d ] && echo CHAN''GED $d is a disk; done
true"""


@pytest.mark.skipif(not ROOT, reason="needs root")
def test_an_image_of_roots_has_no_power_over_the_node(lab):
    """Root's builds, and root's jobs in an image: whoever made the image gets nothing of what is root's without a privilege, such as settings of the
    kernel, which name a program that it starts."""
    inside = ROOTS.replace("\n", "; ")
    folder = lab.context("rooted", f"FROM scratch\nCOPY rootfs /\nRUN {inside}\n")
    done = lab.c.cli("image", "build", "-t", "rooted", folder, check=False)
    assert done.returncode == 0 and "CapEff:" in done.stdout and "CHANGED" not in done.stdout, done
    done = lab.c.cli("run", "--container", "rooted", "--", "sh", "-c", inside, check=False)
    assert done.returncode == 0 and "CapEff:\t0000000000000000" in done.stdout and "CHANGED" not in done.stdout, done
    lab.c.cli("image", "remove", "rooted")


def test_a_hostile_archive_as_the_folder(lab):
    """A folder that is sent as an archive, with members that point out of it."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as t:
        for name, kind, link in (("out", tarfile.SYMTYPE, "/tmp"), ("out/acequia-hostile", tarfile.REGTYPE, ""), ("../acequia-hostile", tarfile.REGTYPE, ""),
                                 ("Dockerfile", tarfile.REGTYPE, "")):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, link
            text = b"FROM scratch\nCOPY out /out\n" if name == "Dockerfile" else b"x" * (kind == tarfile.REGTYPE)
            info.size = len(text)
            t.addfile(info, io.BytesIO(text))
    path = f"{lab.folder}/hostile.tar"
    with open(path, "wb") as f:
        f.write(data.getvalue())
    with open(path, "rb") as f:
        lab.cli("image", "build", "-t", "sent-hostile", "-", stdin=f)
    assert not os.path.exists("/tmp/acequia-hostile") and not os.path.exists(os.path.join(lab.cache, "work", "acequia-hostile"))
    assert lab.work() == []


def test_the_list_of_images_is_the_users_word_and_does_no_harm(lab):
    """The agent reads a file that its user can write anything into."""
    assert lab.build("honest").returncode == 0
    index = f"{lab.cache}/index"
    with open(index, "rb") as f:
        honest = f.read()
    lines = [b"built\t1\t1\tbad\x1b[2J\tx\t\n", b"built\tmany\t1\tname\t\t\n", b"nosuch\t1\t1\tname\t\t\n", b"\xff\xfe\n", b"built\t5\t5\tmine:latest\t\t\n" * 5000, b"x" * 300000]
    os.rename(index, index + ".old")
    with open(index, "wb") as f:
        f.write(b"".join(lines))
    if ROOT:
        os.chown(index, UID, -1)
    names = lab.images()
    wait_until(lambda: ("mine:latest", "built") in lab.images(), 30, f"it is not read: {names}")
    assert not any("\x1b" in name for name, _ in lab.images())
    os.unlink(index)
    os.symlink("/etc/passwd", index)
    wait_until(lambda: lab.images() == set(), 30, "a link is followed")
    os.unlink(index)
    with open(index, "wb") as f:
        f.write(honest)
    if ROOT:
        os.chown(index, UID, -1)
    wait_until(lambda: ("honest:latest", "built") in lab.images(), 30, "it is not read again")


def test_without_buildah_the_remedy_is_named(lab):
    """A box that finds no buildah: in a namespace where it is covered."""
    box = os.path.join(os.path.dirname(lab.c.binary), "../box/acequia-box")
    folder = lab.context("names", DOCKERFILE)
    if not ROOT:
        pytest.skip("covering a program needs root")
    script = f"mount --bind /dev/null /usr/bin/buildah; exec {box} --cache {lab.folder}/none --cache-bytes 1000000000 --task -- build --tag x {folder}"
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "apt install buildah" in done.stderr, done.stderr
