"""Messages between an agent and a controller as they cross the wire, recorded through a relay.

    python3 -m lab.exchange BUILD OUTPUT

runs a controller and an agent of BUILD with a relay between them and writes the messages: for each
a byte 'A' (from the agent) or 'C' (from the controller), its length as 4 bytes, little endian, and the bytes."""
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time

from .proc import wait_until

HOME = "/tmp/acequia-exchange"
KEPT_MAX = 40  # of one type from one side: pings and telemetry repeat


class Frames:
    """Takes a stream of WebSocket frames apart; calls `message` with the bytes of each binary message."""

    def __init__(self, message):
        self.message, self.rest, self.http, self.parts = message, b"", True, b""

    def feed(self, data):
        self.rest += data
        if self.http:
            head, mark, rest = self.rest.partition(b"\r\n\r\n")
            if not mark:
                return
            self.http, self.rest = False, rest
        while self.one():
            pass

    def one(self):
        if len(self.rest) < 2:
            return False
        first, second = self.rest[0], self.rest[1]
        size, at = second & 127, 2
        if size == 126:
            size, at = (struct.unpack(">H", self.rest[2:4])[0] if len(self.rest) >= 4 else 1 << 40), 4
        elif size == 127:
            size, at = (struct.unpack(">Q", self.rest[2:10])[0] if len(self.rest) >= 10 else 1 << 40), 10
        mask = self.rest[at:at + 4] if second & 128 else b""
        at += len(mask)
        if len(self.rest) < at + size:
            return False
        data = self.rest[at:at + size]
        if mask:
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(data))
        self.rest = self.rest[at + size:]
        if first & 15 in (0, 2):
            self.parts += data
            if first & 128:
                self.message(self.parts)
                self.parts = b""
        return True


class Relay:
    """A unix socket in front of the controller's, for one agent."""

    def __init__(self, path, target):
        self.messages, self.lock, self.target = [], threading.Lock(), target
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(path)
        self.server.listen(8)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.server.accept()
            upstream = socket.socket(socket.AF_UNIX)
            upstream.connect(self.target)
            for source, sink, side in ((client, upstream, b"A"), (upstream, client, b"C")):
                threading.Thread(target=self.copy, args=(source, sink, side), daemon=True).start()

    def copy(self, source, sink, side):
        frames = Frames(lambda data: self.keep(side, data))
        while True:
            try:
                data = source.recv(65536)
            except OSError:
                data = b""
            if not data:
                sink.close()
                return
            frames.feed(data)
            sink.sendall(data)

    def keep(self, side, data):
        with self.lock:
            if sum(1 for s, d in self.messages if s == side and d[:1] == data[:1]) < KEPT_MAX:
                self.messages.append((side, data))


def record(build, output):
    shutil.rmtree(HOME, ignore_errors=True)
    os.makedirs(f"{HOME}/agent/run")
    config = "[cluster]\nname = oldlab\ngrace = 1s\nusage_interval = 1s\nheartbeat = 1s\n[node n1]\ncpus = 8\nmemory = 4G\n" \
             "gpus = h200:2\ngpus_simulated = true\n"
    for folder in (HOME, f"{HOME}/agent"):
        with open(f"{folder}/acequia.conf", "w", encoding="utf-8") as f:
            f.write(config)
    binary = f"{build}/src/cli/acequia"
    env = {"PATH": "/usr/bin:/bin", "HOME": HOME, "ACEQUIA_HOME": HOME, "USER": "root"}

    def cli(*arguments, check=True):
        return subprocess.run([binary, *arguments], env=env, check=check, capture_output=True, text=True, timeout=60,
                              stdin=subprocess.DEVNULL, cwd="/tmp").stdout

    children = []

    def start(home, *arguments):
        children.append(subprocess.Popen([binary, *arguments], env=dict(env, ACEQUIA_HOME=home), stdin=subprocess.DEVNULL,
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        return children[-1]

    def submit(*arguments):
        return cli("submit", "-Q", "-D", "/tmp", "-o", "/dev/null", "--export", "none", *arguments).strip()

    try:
        start(HOME, "controller")
        wait_until(lambda: os.path.exists(f"{HOME}/run/api.sock"), 20, "no controller")
        relay = Relay(f"{HOME}/agent/run/api.sock", f"{HOME}/run/api.sock")
        agent = start(f"{HOME}/agent", "agent", "--name", "n1")
        wait_until(lambda: "n1" in cli("nodes", check=False), 30, "no node")
        cli("run", "--", "echo", "hello")
        cli("wait", submit("--", "sh", "-c", "exit 3"), check=False)
        cli("wait", submit("-t", "1s", "--", "sleep", "60"), check=False)
        cli("wait", submit("-a", "0-1", "-g", "0.5", "--", "true"), check=False)
        long = submit("-c", "2", "-m", "64M", "-t", "1h", "-g", "1", "--", "sleep", "3600")
        wait_until(lambda: "RUNNING" in cli("get", long), 20, "not running")
        cli("suspend", long)
        cli("continue", long)
        cli("update", long, "-t", "2h")
        cli("exec", long, "--", "true", check=False)
        cli("cancel", "--signal", "USR1", submit("--", "sh", "-c", "trap '' USR1; sleep 3600"))
        time.sleep(3)
        agent.kill()  # a hello with attempts that run
        agent.wait()
        start(f"{HOME}/agent", "agent", "--name", "n1")
        time.sleep(2)
        cli("cancel", "--all")
        wait_until(lambda: "RUNNING" not in cli("list"), 20, "jobs do not end")
        time.sleep(1)
        with open(output, "wb") as f, relay.lock:
            for side, data in relay.messages:
                f.write(side + struct.pack("<I", len(data)) + data)
            print(sorted((s + d[:1], sum(1 for x in relay.messages if x[0] == s and x[1][:1] == d[:1]))
                         for s, d in {(s, d[:1]): (s, d) for s, d in relay.messages}.values()))
    finally:
        for child in children:
            child.terminate()
            child.wait()
        shutil.rmtree(HOME, ignore_errors=True)


if __name__ == "__main__":
    record(*sys.argv[1:])
