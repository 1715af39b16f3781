"""The README's tour, command by command, and its output line by line. Numbers that differ from machine to machine (times,
dates, the machine's name) are compared by their form."""
import getpass
import os
import re
import socket
import subprocess

import pytest

from lab.command import ACEQUIA, ROOT, Cluster
from lab.proc import wait_until

# As on the machine of the README: two CPUs, pretended GPUs.
CONFIG = "[node *]\ncpus = 2\nmemory = 24G\ngpus = V100:8:32G\ngpus_simulated = true\n"
INTERACTIVE = ("logs -f", "bash", "top")  # have journeys of their own


def tour():
    """(command, lines of output) of the first block that shows commands."""
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as f:
        block = re.search(r"```\n(\$ acequia run.*?)```", f.read(), re.S).group(1)
    steps = []
    for line in block.splitlines():
        if line.startswith("$ "):
            steps.append((re.sub(r"\s+#.*$", "", line[2:]), []))
        else:
            steps[-1][1].append(line)
    return steps


def form(line):
    """The line without what differs: the machine's name, the user, dates, durations, spaces."""
    line = line.replace(socket.gethostname().split(".")[0], "vm").replace(f"({getpass.getuser()},", "(root,")
    line = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+", "DATE", line)
    line = re.sub(r"in \d+ to \d+ min", "in A to B min", line)
    line = re.sub(r"at most \d+ (min|h)\b", r"at most N \1", line)
    line = re.sub(r"\b\d+:\d\d(:\d\d)?\b", "TIME", line)
    return re.sub(r"\s+", " ", line).strip()


@pytest.fixture(scope="module")
def c():
    c = Cluster(CONFIG)
    c.acequia("run", "--name", "sample", "--", "true")  # `./run up` runs one before
    yield c
    c.close()


def run(c, command):
    return subprocess.run(["bash", "-c", command], cwd=c.work, env={**c.env, "PATH": f"{os.path.dirname(ACEQUIA)}:{os.environ['PATH']}"},
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)


def test_the_tour(c):
    for command, documented in tour():
        if any(f"acequia {word}" in command for word in INTERACTIVE):
            continue
        if "acequia list" in command:
            c.wait_state("3", "RUNNING")
        if "acequia shares" in command:  # the preempted job has given its GPUs back
            c.wait_state("5", "RUNNING")
        wanted = [form(line) for line in documented if line != "…"]
        events = "acequia events" in command
        if events:  # lines are wrapped on a terminal only, and details grow: the kinds of events count
            wanted = re.findall(r"\bDATE (\w+)", " ".join(wanted))
        last = {}

        def shown():
            last["r"] = r = run(c, command)
            have = r.stdout.split() if events else [form(line) for line in r.stdout.splitlines()]
            return r.returncode == 0 and all(line in have for line in wanted)

        if command.startswith(("acequia submit", "acequia project", "acequia cancel", "acequia run")):
            assert shown(), f"{command}\n{last['r'].stdout}{last['r'].stderr}\nwanted: {wanted}"
        else:  # what is shown follows what was done
            wait_until(shown, 10, lambda: f"{command}\n{last['r'].stdout}{last['r'].stderr}\nwanted: {wanted}", interval=0.3)
