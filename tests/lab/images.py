"""Container images made by hand, and a registry to keep them in: nothing is fetched from anywhere."""
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
import urllib.request

from .proc import LabError, end_child, free_ports

APPLETS = ("sh", "ls", "cat", "id", "env", "echo", "pwd", "mount", "sleep", "tty", "touch", "true", "false", "stat",
           "readlink", "rm", "mkdir", "grep", "kill", "head", "hostname", "test", "seq", "wc")
ENV = ["PATH=/own/bin:/bin", "FROM_IMAGE=yes", "LANG=image"]


def make_rootfs(folder, text="image"):
    """A root file system: busybox, a few names, a word in /word."""
    busybox = shutil.which("busybox")
    for d in ("bin", "etc", "own/bin", "work", "home"):
        os.makedirs(f"{folder}/{d}", exist_ok=True)
    shutil.copy(busybox, f"{folder}/bin/busybox")
    for name in APPLETS:
        os.symlink("busybox", f"{folder}/bin/{name}")
    files = {"word": text + "\n", "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n", "etc/group": "root:x:0:\n"}
    for name, content in files.items():
        with open(f"{folder}/{name}", "w", encoding="utf-8") as f:
            f.write(content)
    with open(f"{folder}/own/bin/hello", "w", encoding="utf-8") as f:
        f.write('#!/bin/sh\necho hello "$@"\n')
    os.chmod(f"{folder}/own/bin/hello", 0o755)
    return folder


def layer_of(folder):
    """A layer with a folder's content, owned by root as in images that are built."""
    def clean(info):
        info.uid = info.gid = 0
        info.mtime = 0
        return info
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as t:
        t.add(folder, arcname=".", filter=clean)
    return data.getvalue()


def layer_with(*members):
    """A layer of members as given: (TarInfo, bytes)."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as t:
        for info, content in members:
            info.size = len(content)
            t.addfile(info, io.BytesIO(content))
    return data.getvalue()


def member(name, content=b"", kind=tarfile.REGTYPE, link="", mode=0o644, **more):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, mode
    for key, value in more.items():
        setattr(info, key, value)
    return info, content


def save_docker(path, layers, config=None):
    """What `docker save` writes."""
    diffs = ["sha256:" + hashlib.sha256(layer).hexdigest() for layer in layers]
    body = {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": diffs},
            "config": config if config is not None else {"Env": ENV, "WorkingDir": "/work", "Entrypoint": ["hello"], "Cmd": ["world"]},
            "history": [{"created": "2020-01-01T00:00:00Z", "created_by": "test"} for _ in layers]}
    text = json.dumps(body).encode()
    name = hashlib.sha256(text).hexdigest() + ".json"
    files = {name: text}
    names = []
    for i, layer in enumerate(layers):
        names.append(f"{i}/layer.tar")
        files[names[-1]] = layer
    files["manifest.json"] = json.dumps([{"Config": name, "RepoTags": ["test:latest"], "Layers": names}]).encode()
    with tarfile.open(path, "w") as t:
        for name, content in files.items():
            info, _ = member(name)
            info.size = len(content)
            t.addfile(info, io.BytesIO(content))
    return path


def skopeo(*arguments):
    done = subprocess.run(["skopeo", "--insecure-policy", *arguments], capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise LabError(f"skopeo {' '.join(arguments)}: {done.stderr}")


def make_sif(path, squashfs):
    """A .sif as far as it matters: its header, then a squashfs file system at a page boundary."""
    with open(squashfs, "rb") as f:
        content = f.read()
    head = b"#!/usr/bin/env run-singularity\n".ljust(32, b"\0") + b"SIF_MAGIC\0" + b"01\0"
    with open(path, "wb") as f:
        f.write(head.ljust(32768, b"\0") + content)
    return path


def registry_program(folder):
    """Debian's docker-registry; unpacked here rather than installed, which would start it for good."""
    found = shutil.which("docker-registry")
    if found:
        return found
    for attempt in range(2):
        done = subprocess.run(["apt-get", "download", "docker-registry"], cwd=folder, capture_output=True, text=True, timeout=300)
        packages = [f for f in os.listdir(folder) if f.endswith(".deb")]
        if packages:
            subprocess.run(["dpkg-deb", "-x", f"{folder}/{packages[0]}", folder], check=True)
            return f"{folder}/usr/bin/docker-registry"
        if attempt == 0:
            subprocess.run(["apt-get", "update"], capture_output=True, check=False, timeout=300)
    raise LabError(f"docker-registry cannot be had: {done.stderr}")


class Registry:
    """A registry on loopback, without TLS, as long as the `with` lasts."""

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="acequia-registry-")
        self.port = free_ports(1)[0]
        with open(f"{self.folder}/config.yml", "w", encoding="utf-8") as f:
            f.write(f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {self.folder}/data}}}}\n"
                    f"http: {{addr: 127.0.0.1:{self.port}}}\n")
        program = registry_program(self.folder)
        self.log = open(f"{self.folder}/log", "w", encoding="utf-8")
        self.child = subprocess.Popen([program, "serve", f"{self.folder}/config.yml"], stdout=self.log, stderr=self.log)
        until = time.time() + 20
        while time.time() < until:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v2/", timeout=2).close()
                return self
            except OSError:
                time.sleep(0.1)
        self.__exit__()
        raise LabError("the registry does not answer")

    def __exit__(self, *_):
        end_child(self.child)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def name(self, image):
        return f"127.0.0.1:{self.port}/{image}"

    def push(self, archive, image):
        skopeo("copy", "--quiet", "--dest-tls-verify=false", f"docker-archive:{archive}", f"docker://{self.name(image)}")
