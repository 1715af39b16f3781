"""A file system with one file whose reads, writes or opens can be made to hang, as on a network file system whose server is gone.

    with HangingFolder(path) as folder:       # needs root and FUSE
        folder.hang("read"); ...; folder.answer()
        folder.hang("read deaf")              # and whoever reads cannot be killed

The kernel's own FUSE protocol, spoken by a process of its own: killing that ends every request that hangs."""
import ctypes
import errno
import os
import stat
import struct
import subprocess
import sys
import time

HEADER = struct.Struct("<IIQQIIIHH")
LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE, STATFS, RELEASE, FSYNC = 1, 2, 3, 4, 14, 15, 16, 17, 18, 20
FLUSH, INIT, OPENDIR, RELEASEDIR, ACCESS, INTERRUPT, BATCH_FORGET = 25, 26, 27, 29, 34, 36, 42
HANGS = {"read": READ, "open": OPEN, "write": WRITE}
UNANSWERED = {FORGET, BATCH_FORGET, INTERRUPT}
DIRECT_IO = 1
BUFFER_BYTES = 1 << 18
MS_NOSUID, MS_NODEV, MNT_DETACH = 2, 4, 2
ROOT, FILE = 1, 2
libc = ctypes.CDLL(None, use_errno=True)


class Server:
    """Answers the kernel, except requests of the kind that the file `control` names."""

    def __init__(self, control):
        self.control = control
        self.content = bytearray()

    def attributes(self, node):
        mode, links = (stat.S_IFDIR | 0o777, 2) if node == ROOT else (stat.S_IFREG | 0o666, 1)
        size = 0 if node == ROOT else len(self.content)
        return struct.pack("<6Q10I", node, size, 0, 0, 0, 0, 0, 0, 0, mode, links, 0, 0, 0, 4096, 0)

    def write(self, body):
        _, offset, size = struct.unpack_from("<QQI", body)
        data = body[40:40 + size]
        self.content.extend(b"\0" * (offset - len(self.content)))
        self.content[offset:offset + size] = data
        return struct.pack("<II", size, 0)

    def answer(self, opcode, node, body):
        """The reply's body, or a negative errno."""
        if opcode == INIT:
            return struct.pack("<IIIIHHIIHHI7I", 7, 31, 0, 0, 16, 12, 65536, 1, 0, 0, 0, *[0] * 7)
        if opcode == LOOKUP:
            if node != ROOT or body != b"out\0":
                return -errno.ENOENT
            return struct.pack("<QQQQII", FILE, 0, 0, 0, 0, 0) + self.attributes(FILE)
        if opcode == SETATTR:
            valid, _, _, size = struct.unpack_from("<IIQQ", body)
            if valid & 8:
                del self.content[size:]
        if opcode in (GETATTR, SETATTR):
            return struct.pack("<QII", 0, 0, 0) + self.attributes(node)
        if opcode in (OPEN, OPENDIR):
            return struct.pack("<QII", 0, DIRECT_IO, 0)
        if opcode == READ:
            _, offset, size = struct.unpack_from("<QQI", body)
            return bytes(self.content[offset:offset + size])
        if opcode == WRITE:
            return self.write(body)
        if opcode == STATFS:
            return bytes(80)
        return b"" if opcode in (RELEASE, RELEASEDIR, FLUSH, FSYNC, ACCESS) else -errno.ENOSYS

    def hangs(self):
        try:
            with open(self.control, encoding="utf-8") as f:
                return HANGS.get(f.read().split()[0])
        except FileNotFoundError:
            return None

    def deaf(self):
        """Whoever waits cannot be killed, as with a file system of somebody who means harm."""
        try:
            with open(self.control, encoding="utf-8") as f:
                return "deaf" in f.read()
        except FileNotFoundError:
            return False

    def serve(self, fd):
        held = []
        while True:
            if held and not self.hangs():
                for opcode, unique, node, body in held:
                    self.reply(fd, unique, self.answer(opcode, node, body))
                held = []
            try:
                data = os.read(fd, BUFFER_BYTES)
            except BlockingIOError:
                time.sleep(0.005)
                continue
            except OSError:
                return  # unmounted
            length, opcode, unique, node, *_ = HEADER.unpack_from(data)
            body = data[HEADER.size:length]
            if opcode == INTERRUPT and not self.deaf():  # a signal: as with NFS, whoever waits can be killed
                gone = struct.unpack_from("<Q", body)[0]
                for request in [r for r in held if r[1] == gone]:
                    held.remove(request)
                    self.reply(fd, gone, -errno.EINTR)
            elif opcode == self.hangs():
                held.append((opcode, unique, node, body))
            elif opcode not in UNANSWERED:
                self.reply(fd, unique, self.answer(opcode, node, body))

    @staticmethod
    def reply(fd, unique, result):
        code, body = (result, b"") if isinstance(result, int) else (0, result)
        try:
            os.write(fd, struct.pack("<IiQ", 16 + len(body), code, unique) + body)
        except OSError:
            pass  # whoever asked is gone


def main(path, control):
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_NONBLOCK)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if libc.mount(b"hang", path.encode(), b"fuse", MS_NOSUID | MS_NODEV, options) < 0:
        sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
    print("ready", flush=True)
    Server(control).serve(fd)


def possible():
    return os.geteuid() == 0 and os.path.exists("/dev/fuse")


class HangingFolder:
    """The folder, with a file named "out" in it."""

    def __init__(self, path):
        self.path, self.control = path, f"{path}.hangs"
        self.server = None

    def __enter__(self):
        os.makedirs(self.path, exist_ok=True)
        self.server = subprocess.Popen([sys.executable, __file__, self.path, self.control], stdout=subprocess.PIPE, text=True)
        if self.server.stdout.readline().strip() != "ready":
            raise OSError("no FUSE here")
        return self

    def __exit__(self, *_):
        self.server.kill()  # whatever hangs fails now
        self.server.wait()
        self.server.stdout.close()
        libc.umount2(self.path.encode(), MNT_DETACH)
        self.answer()

    def hang(self, what="read"):
        with open(f"{self.control}.new", "w", encoding="utf-8") as f:
            f.write(what)
        os.rename(f"{self.control}.new", self.control)

    def answer(self):
        if os.path.exists(self.control):
            os.unlink(self.control)


if __name__ == "__main__":
    main(*sys.argv[1:])
