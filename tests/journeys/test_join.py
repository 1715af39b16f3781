"""A node joins with the one line that `acequia token create` prints."""
import os
import pty
import re
import socket
import subprocess

import pytest

from lab.command import ACEQUIA, Cluster
from lab.proc import wait_until


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def on_terminal(command, env):
    """What a command prints when its output is a terminal."""
    main, other = pty.openpty()
    p = subprocess.Popen(command, stdout=other, stderr=other, stdin=subprocess.DEVNULL, env=env)
    os.close(other)
    out = b""
    while True:
        try:
            data = os.read(main, 4096)
        except OSError:
            break
        if not data:
            break
        out += data
    os.close(main)
    assert p.wait(180) == 0, out
    return out.decode().replace("\r\n", "\n")


@pytest.fixture
def head():
    port = free_port()
    c = Cluster(config=f"[cluster]\nname = lab\nlisten = 127.0.0.1:{port}\n")
    c.port = port
    yield c
    c.close()


def test_the_printed_line_joins_a_node(head):
    printed = on_terminal([ACEQUIA, "token", "create"], head.env)
    line = re.search(r"^  (echo \S+ \| acequia join 127\.0\.0\.1:\d+)$", printed, re.M)
    assert line, printed
    node = Cluster(up=False)
    try:
        pasted = line.group(1).replace("| acequia", f"| {ACEQUIA}") + " --name n2"
        r = subprocess.run(pasted, shell=True, env=node.env, capture_output=True, text=True, timeout=120)
        assert r.returncode == 0 and f"Joined 127.0.0.1:{head.port}" in r.stdout, r.stdout + r.stderr
        wait_until(lambda: any(n["name"] == "n2" and n["connected"] for n in head.json("nodes")["nodes"]), 20, "node n2")
        assert head.acequia("run", "--nodelist", "n2", "--", "echo", "here").strip() == "here"
        left = [f for _, _, files in os.walk(node.home) for f in files if f.startswith("join.")]
        assert not left, "the token must not stay on the disk"
        # A token is good for one node.
        again = subprocess.run(pasted.replace("n2", "n3"), shell=True, env=node.env, capture_output=True, text=True, timeout=120)
        assert again.returncode != 0 and "did not join" in again.stderr and "token" in again.stderr
    finally:
        node.close()


def test_without_a_token_and_for_programs(head):
    r = head.run("join", "127.0.0.1:1", input="\n")
    assert r.returncode != 0 and "acequia token create" in r.stderr
    assert re.fullmatch(r"\S+\n", head.acequia("token", "create")), "programs get the bare token"
