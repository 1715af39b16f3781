#!/usr/bin/env python3
"""Boots Debian's kernel in an emulated machine and checks there that limits are real.

Every mode is one boot of an initramfs made from the build: pure cgroup v2, v1, both side by side, controllers spread over
both, and none. Nothing of this machine is touched but the build folder. Ends with one line: N passed, N failed.
"""
import argparse
import glob
import gzip
import os
import re
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.join(ROOT, "tests", "vm")
MODES = ("v2", "v1", "hybrid", "mixed", "none")
KERNEL = "linux-image-cloud-amd64"  # small, and quick to boot
MODULES = ("zsmalloc", "lzo-rle", "zram", "overlay", "loop", "quota_v2", "xfs", "nfsd", "nfsv4")
# What makes file systems and serves NFS, where this machine has it (tools/setup --vm).
PLACES = ("mkfs.ext4", "mkfs.xfs", "rpc.nfsd", "rpc.mountd", "exportfs", "mount.nfs")
UNIT_TESTS = ("test_agent_shepherd", "test_agent_survival", "test_agent_chaos")
BOOT_SECONDS = 300
APPLETS_WITHOUT = {"busybox", "init", "linuxrc"}


def run(command, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **more)
    if done.returncode:
        sys.exit(f"vm: {' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}")
    return done.stdout


def kernel(folder):
    """Debian's kernel package, unpacked into the folder and never installed."""
    found = glob.glob(f"{folder}/boot/vmlinuz-*")
    if not found:
        os.makedirs(folder, exist_ok=True)
        package = re.search(r"Depends: (linux-image-\S+)", run(["apt-cache", "depends", KERNEL]))
        if not package:
            sys.exit(f"vm: apt knows no package {KERNEL}; run apt-get update")
        print(f"== fetching {package[1]}", flush=True)
        run(["apt-get", "download", package[1]], cwd=folder)
        deb = glob.glob(f"{folder}/*.deb")[0]
        run(["dpkg-deb", "-x", deb, folder])
        os.unlink(deb)
        found = glob.glob(f"{folder}/boot/vmlinuz-*")
    return found[0]


def libraries(program):
    """What the loader needs for a program, none if it is static: paths as they are written in it."""
    done = subprocess.run(["ldd", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return [m[1] for m in re.finditer(r"(/\S+) \(0x", done.stdout)]


def with_their_own(names, modules):
    """Files of the kernel's modules and of those that they need, in an order in which they can be loaded."""
    files = {os.path.basename(p)[:-3].replace("-", "_"): p for p in glob.glob(f"{modules}/lib/modules/*/kernel/**/*.ko", recursive=True)}
    found = []

    def visit(name):
        path = files.get(name.replace("-", "_"))  # what is not there is in the kernel itself
        if not path or path in found:
            return
        with open(path, "rb") as f:
            needs = re.search(rb"\0depends=([^\0]*)\0", f.read())
        for other in filter(None, needs[1].decode().split(",") if needs else []):
            visit(other)
        found.append(path)
    for name in names:
        visit(name)
    return found


def put(root, source, target, mode=0o755):
    path = root + target
    os.makedirs(os.path.dirname(path), exist_ok=True)
    shutil.copyfile(source, path)
    os.chmod(path, mode)


def fill(root, build, modules):
    programs = {"acequia": "src/cli/acequia", "acequiad": "src/acequiad/acequiad", "acequia-shepherd": "src/shepherd/acequia-shepherd",
                "acequia-box": "src/box/acequia-box", "acequia-files": "src/files/acequia-files"}
    needed = set()
    for name, where in programs.items():
        put(root, f"{build}/{where}", f"/opt/acequia/bin/{name}")
        needed.update(libraries(f"{build}/{where}"))
    for name in UNIT_TESTS:
        put(root, f"{build}/src/shepherd/{name}", f"/vm/{name}")
        needed.update(libraries(f"{build}/src/shepherd/{name}"))
    for name in ("srun", "sacct"):
        os.symlink("acequia", f"{root}/opt/acequia/bin/{name}")
    for name in PLACES:
        program = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
        if not program:
            sys.exit(f"vm: {name} is missing; run tools/setup --vm")
        put(root, os.path.realpath(program), f"/usr/sbin/{name}")
        needed.update(libraries(program))
    for path in needed:
        put(root, os.path.realpath(path), path)
    put(root, shutil.which("busybox") or "/bin/busybox", "/bin/busybox")
    for applet in run([f"{root}/bin/busybox", "--list"]).split():
        if applet not in APPLETS_WITHOUT:
            os.symlink("busybox", f"{root}/bin/{applet}")
    cc = os.environ.get("CC", "cc")
    run([cc, "-O1", "-static", "-o", f"{root}/bin/probe", f"{HERE}/probe.c"])
    os.makedirs(f"{root}/usr/lib/x86_64-linux-gnu", exist_ok=True)
    run([cc, "-O1", "-shared", "-fPIC", "-std=gnu17", *(f"-I{ROOT}/src/{m}/include" for m in ("base", "model", "device")), f"-I{ROOT}/src/device/test", "-o",
         f"{root}/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", f"{HERE}/gpus.c"])
    loaded = with_their_own(MODULES, modules)
    for path in loaded:
        put(root, path, f"/modules/{os.path.basename(path)}")
    with open(f"{root}/modules/list", "w", encoding="utf-8") as f:
        f.writelines(os.path.basename(path) + "\n" for path in loaded)
    put(root, f"{HERE}/init", "/init")
    put(root, f"{HERE}/checks.sh", "/vm/checks.sh")
    for folder in ("proc", "sys", "dev", "run", "tmp", "root", "var", "home", "etc"):
        os.makedirs(f"{root}/{folder}", exist_ok=True)
    for name, text in (("passwd", "root:x:0:0:root:/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"),
                       ("group", "root:x:0:\nalice:x:1000:\nnogroup:x:65534:\n"),
                       ("netconfig", "tcp tpi_cots_ord v inet tcp - -\nudp tpi_clts v inet udp - -\nlocal tpi_cots_ord - loopback - - -\n"),
                       ("protocols", "tcp 6 TCP\nudp 17 UDP\n"), ("services", "nfs 2049/tcp\n"), ("hosts", "127.0.0.1 localhost node1\n")):
        with open(f"{root}/etc/{name}", "w", encoding="utf-8") as f:
            f.write(text)


def initramfs(folder, build, modules):
    root = f"{folder}/root"
    shutil.rmtree(root, ignore_errors=True)
    os.makedirs(f"{root}/bin")
    fill(root, build, modules)
    names = subprocess.run(["find", "."], cwd=root, stdout=subprocess.PIPE, check=True).stdout
    archive = subprocess.run(["cpio", "-o", "-H", "newc", "-R", "0:0", "--quiet"], cwd=root, input=names, stdout=subprocess.PIPE, check=True).stdout
    path = f"{folder}/initramfs.gz"
    with gzip.open(path, "wb", compresslevel=1) as f:
        f.write(archive)
    shutil.rmtree(root)
    return path


def boot(image, ramdisk, mode, args):
    """One boot; returns (passed, failed)."""
    words = ["console=ttyS0", "panic=-1", "quiet", f"vm.mode={mode}"]
    if mode in ("v2", "none"):
        words.append("cgroup_no_v1=all")
    if args.only:
        words.append("vm.only=" + ",".join(args.only))
    if args.trace:
        words.append("vm.trace=1")
    if args.logs:
        words.append("vm.logs=1")
    command = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "1024", "-nodefaults", "-no-user-config",
               "-display", "none", "-serial", "stdio", "-net", "none", "-no-reboot", "-kernel", image, "-initrd", ramdisk,
               "-append", " ".join(words)]
    begin = time.monotonic()
    passed = failed = 0
    finished = False
    print(f"== {mode}", flush=True)
    with subprocess.Popen(["timeout", str(args.seconds), *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace") as machine:
        bad = set()
        for line in machine.stdout:
            line = line.strip("\r\n ")
            if line.startswith("ok "):
                passed += 1
            elif line.startswith("not ok "):
                bad.add(line.split(":")[0])
                print(f"FAILED {mode}: {line[7:]}", flush=True)
            elif line == "done":
                finished = True
            elif args.verbose or args.trace or args.logs:
                print("   ", line, flush=True)
        failed = len(bad)
    if not finished:
        failed += 1
        print(f"FAILED {mode}: the machine did not come to its end within {args.seconds} s")
    print(f"   {passed} passed in {time.monotonic() - begin:.0f} s", flush=True)
    return passed, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modes", nargs="*", metavar="MODE", help=f"of {', '.join(MODES)}; else all")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--only", action="append", metavar="CHECK", help="this check alone (may be repeated)")
    parser.add_argument("--seconds", type=int, default=BOOT_SECONDS, help="limit of one boot")
    parser.add_argument("--verbose", action="store_true", help="everything the machine prints")
    parser.add_argument("--trace", action="store_true", help="every command of the checks")
    parser.add_argument("--logs", action="store_true", help="what the daemons logged, at the end")
    args = parser.parse_args()
    for mode in args.modes:
        if mode not in MODES:
            parser.error(f"{mode} is not one of {', '.join(MODES)}")
    build = os.path.abspath(args.build)
    folder = os.path.join(build, "vm")
    os.makedirs(folder, exist_ok=True)
    modules = os.path.join(folder, "kernel")
    image = kernel(modules)
    ramdisk = initramfs(folder, build, modules)
    totals = [boot(image, ramdisk, mode, args) for mode in args.modes or MODES]
    passed, failed = (sum(t[i] for t in totals) for i in (0, 1))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
