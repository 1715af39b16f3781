"""Somebody who uses a port of a job over and over while things fail. A connection that a fault meets ends, and its user
can see that: what was sent is there to its last byte, or the connection was reset. The command that listens goes on."""
import hashlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time

PAUSE_S = 0.05
ANSWER_BYTES = 200_000
# Answers each connection with the hash of what it was sent, then so many bytes.
SERVER = """
import hashlib, socket, sys, threading
def answer(c):
    try:
        h = hashlib.sha256()
        while piece := c.recv(65536):
            h.update(piece)
        c.sendall(h.hexdigest().encode() + b"x" * int(sys.argv[2]))
    except OSError:
        pass
    c.close()
s = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=64)
while True:
    threading.Thread(target=answer, args=(s.accept()[0],), daemon=True).start()
"""


def serve_command(port):
    """The program of a job that answers on this port."""
    return [sys.executable, "-c", SERVER, str(port), str(ANSWER_BYTES)]


class PortUser:
    """Asks through one `acequia port-forward`, in a thread of its own, until it is ended."""

    def __init__(self, child, name):
        self.child, self.name = child, name
        line = child.stdout.readline()
        at = re.match(r"127\.0\.0\.1:(\d+) is port", line)
        if not at:
            child.kill()
            raise AssertionError(f"{name} does not listen: {line} {child.communicate()[1]}")
        self.port = int(at.group(1))
        self.whole = self.cut = 0
        self.wrong = None
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._use, daemon=True)
        self.thread.start()

    def _use(self):
        number = 0
        while not self.stopping.is_set() and not self.wrong:
            number += 1
            self._ask(f"{self.name} {number}".encode() * 1000)
            time.sleep(PAUSE_S)

    def _ask(self, data):
        wanted = hashlib.sha256(data).hexdigest().encode() + b"x" * ANSWER_BYTES
        got = b""
        try:
            with socket.create_connection(("127.0.0.1", self.port)) as c:
                c.settimeout(1)
                c.sendall(data)
                c.shutdown(socket.SHUT_WR)
                while piece := self._receive(c):
                    got += piece
        except OSError:  # it was cut, and we were told
            self.cut += 1
            return
        if got == wanted:
            self.whole += 1
        elif not self.stopping.is_set():
            self.wrong = f"{self.name}: {len(got)} of {len(wanted)} bytes came, and the connection ended as if they were all"

    def _receive(self, connection):
        while not self.stopping.is_set():
            try:
                return connection.recv(65536)
            except socket.timeout:  # waits; whether for too long is asked by check()
                continue
        return b""

    def check(self, patience_s):
        """When all is well again it works, without a new start, and nothing wrong was seen meanwhile."""
        before, end = self.whole, time.monotonic() + patience_s
        while self.whole == before and not self.wrong and self.child.poll() is None and time.monotonic() < end:
            time.sleep(PAUSE_S)
        assert not self.wrong, self.wrong
        assert self.child.poll() is None, f"{self.name} has ended: {self.child.communicate()[1]}"
        assert self.whole > before, f"{self.name}: no connection works any more ({self.whole} did, {self.cut} were cut)"

    def end(self):
        """The thread and the command."""
        self.stopping.set()
        self.thread.join(10)
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
        try:
            self.child.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.communicate()
