#!/usr/bin/env python3
"""Checks the built programs and libraries: position independent, bound at start, relocations read-only,
no executable stack, checked libc calls. Reads the ELF files itself, so that nothing need be installed.
Checks the systemd units: what they must set, and what systemd-analyze (252 or newer) finds where it is installed.

usage: hardening.py BUILD          prints one line per finding, ends with 1 if there is any
"""
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

PROGRAMS = ("src/cli/acequia", "src/acequiad/acequiad", "src/shepherd/acequia-shepherd", "src/box/acequia-box", "src/files/acequia-files",
            "src/mpi/acequia-mpi", "src/tasks/acequia-tasks", "src/notify/acequia-notify", "src/oidc/acequia-oidc", "src/pam/acequia-pam")
LIBRARIES = ("src/shim/libcuda.so.1", "src/shim/libnvidia-ml.so.1")
ET_DYN, PT_LOAD, PT_DYNAMIC, PT_GNU_STACK, PT_GNU_RELRO, PF_X, PF_W = 3, 1, 2, 0x6474E551, 0x6474E552, 1, 2
DT_BIND_NOW, DT_FLAGS, DT_FLAGS_1, DT_TEXTREL = 24, 30, 0x6FFFFFFB, 22
DF_BIND_NOW, DF_1_NOW, DF_1_PIE = 8, 1, 0x08000000


class Elf:
    def __init__(self, path):
        with open(path, "rb") as f:
            self.data = f.read()
        if self.data[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path}: not a 64-bit little-endian ELF file")
        self.type, = struct.unpack_from("<H", self.data, 16)
        at, = struct.unpack_from("<Q", self.data, 32)
        size, count = struct.unpack_from("<HH", self.data, 54)
        self.segments = [struct.unpack_from("<IIQQQQQQ", self.data, at + i * size) for i in range(count)]

    def segment(self, kind):
        return next((s for s in self.segments if s[0] == kind), None)

    def dynamic(self):
        s = self.segment(PT_DYNAMIC)
        tags = {}
        for at in range(s[2], s[2] + s[5], 16) if s else ():
            tag, value = struct.unpack_from("<qQ", self.data, at)
            if tag == 0:
                break
            tags[tag] = value
        return tags


def findings(path, program):
    e = Elf(path)
    tags = e.dynamic()
    stack = e.segment(PT_GNU_STACK)
    if e.type != ET_DYN or (program and not tags.get(DT_FLAGS_1, 0) & DF_1_PIE):
        yield "is not position independent (PIE)"
    if not (DT_BIND_NOW in tags or tags.get(DT_FLAGS, 0) & DF_BIND_NOW or tags.get(DT_FLAGS_1, 0) & DF_1_NOW):
        yield "binds its symbols lazily (no BIND_NOW)"
    if not e.segment(PT_GNU_RELRO):
        yield "leaves its relocations writable (no RELRO)"
    if stack is None or stack[1] & PF_X:
        yield "has an executable stack"
    if DT_TEXTREL in tags:
        yield "has relocations in its code"
    if any(s[0] == PT_LOAD and s[1] & PF_W and s[1] & PF_X for s in e.segments):
        yield "has memory that is both writable and executable"


def fortified(path):
    """glibc programs only: checked variants of libc calls are in use."""
    with open(path, "rb") as f:
        return b"_chk" in f.read()


# Unit: lines it must hold, and the most that `systemd-analyze security` may rate its exposure (0 safe, 10 unsafe).
# Jobs inherit the agent's restrictions, so it can have few.
UNITS = {
    "acequia-controller.service": (("LimitCORE=0", "SystemCallFilter=@system-service", "CapabilityBoundingSet=", "NoNewPrivileges=yes"), 3.0),
    "acequia-agent.service": (("LimitCORE=0:infinity", "SystemCallFilter=~", "CapabilityBoundingSet=~", "KillMode=process"), 9.0),
}


def analyze(path, limit):
    if not shutil.which("systemd-analyze"):
        return
    version = subprocess.run(["systemd-analyze", "--version"], capture_output=True, text=True).stdout.split()
    if len(version) < 2 or not version[1].isdigit() or int(version[1]) < 252:
        return
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True)
    for line in done.stderr.splitlines():
        if os.path.basename(path) in line:
            yield line
    done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", path], capture_output=True, text=True)
    level = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
    if level and float(level.group(1)) > limit:
        yield f"has exposure level {level.group(1)}; at most {limit}"


def unit_findings(build, name):
    wanted, limit = UNITS[name]
    with open(os.path.join(build, "deploy", name), encoding="utf-8") as f:
        text = f.read()
    lines = text.splitlines()
    for want in wanted:
        if not any(line.startswith(want) for line in lines):
            yield f"does not set {want}"
    with tempfile.TemporaryDirectory() as folder:  # the program is not installed: verify with the one just built
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(re.sub(r"ExecStart=\S+", "ExecStart=" + os.path.join(os.path.abspath(build), "src/cli/acequia"), text))
        yield from analyze(path, limit)


def main():
    build = sys.argv[1]
    bad = 0
    for name, program in [(p, True) for p in PROGRAMS] + [(p, False) for p in LIBRARIES]:
        path = os.path.join(build, name)
        for text in findings(path, program):
            print(f"{name} {text}")
            bad += 1
    if not fortified(os.path.join(build, "src/acequiad/acequiad")):
        print("src/acequiad/acequiad uses no checked libc calls (_FORTIFY_SOURCE)")
        bad += 1
    for name in UNITS:
        for text in unit_findings(build, name):
            print(f"{name} {text}")
            bad += 1
    print(f"hardening: {len(PROGRAMS) + len(LIBRARIES)} files, {len(UNITS)} units, {bad} findings")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
