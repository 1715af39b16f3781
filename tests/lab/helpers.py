"""Small programs and processes that the daemons start: which there are, killing them at chosen moments, and what they leave.

A test says which of them it kills with @covers(...); test_helpers_killed.py holds that against what the sources start."""
import glob
import os
import random
import re
import signal
import threading
import time

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# People's own programs, and roles of acequiad that people or their commands start.
NOT_HELPERS = {"acequia", "acequiad", "controller", "agent", "client", "sim", "backup", "restore", "check", "api-reference",
               "openapi", "acequia-gpu"}  # the last is a thread of users' programs


def covers(*names):
    """Marks a test that kills these helpers."""
    assert names
    return lambda function: function


def helpers_in_tests():
    """Those that a test is marked with, read from the files: some tests need modules that are not everywhere."""
    found = set()
    for path in glob.glob(f"{TREE}/tests/journeys/*.py"):
        for marks in re.findall(r"^@covers\((.*)\)$", read(path), re.M):
            found.update(re.findall(r'"([^"]+)"', marks))
    return found


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def helpers_in_sources():
    """Installed programs, roles of acequiad, and names that processes give themselves."""
    found = set()
    for path in glob.glob(f"{TREE}/src/**/meson.build", recursive=True):
        for name, rest in re.findall(r"executable\('([^']+)'(.*?)\n(?!  )", read(path) + "\n", re.S):
            if "install: true" in rest:
                found.add(name)
    found.update(re.findall(r'strcmp\(role, "([^"]+)"\)', read(f"{TREE}/src/acequiad/main.c")))
    for path in glob.glob(f"{TREE}/src/**/*.c", recursive=True):
        found.update(re.findall(r'(?:forked_child_begin\(|PR_SET_NAME, )"([^"]+)"', read(path)))
    return found - NOT_HELPERS


def name_of(pid):
    """As `ps` shows it: at most 15 characters."""
    try:
        return read(f"/proc/{pid}/comm").strip()
    except OSError:
        return ""


def command_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def children(pid):
    found = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        try:
            found += [int(x) for x in read(path).split()]
        except OSError:
            continue  # the thread has ended
    return found


def descendants(pid):
    found = children(pid)
    for child in found:
        found.extend(children(child))
    return found


class Killer:
    """Kills each new descendant of a process that is called so, a random time of at most `within_s` after it was seen.
    A name with a space is the beginning of arguments: "acequiad show-past"."""

    def __init__(self, pid, name, within_s=0.0, seed=None):
        self.pid, self.name, self.within_s, self.killed = pid, name, within_s, []
        self.random, self.over = random.Random(seed), threading.Event()
        self.thread = threading.Thread(target=self._hunt, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join(10)

    def _is_it(self, pid):
        return self.name in command_of(pid) if " " in self.name else name_of(pid) == self.name[:15]

    def _hunt(self):
        while not self.over.is_set():
            for pid in descendants(self.pid):
                if pid in self.killed or not self._is_it(pid):
                    continue
                time.sleep(self.random.uniform(0, self.within_s))
                try:
                    os.kill(pid, signal.SIGKILL)
                    self.killed.append(pid)
                except ProcessLookupError:
                    pass
            time.sleep(0.001)


class Traces:
    """What daemons and their helpers have at a moment: processes, descriptors, mounts, files of the spool folder and of
    /tmp. `left` names what is there and was not."""

    def __init__(self, pids, folders):
        self.pids, self.folders = pids, folders
        self.before = self._look()

    def _look(self):
        seen = {}
        for pid in self.pids:
            seen[f"descriptors of {name_of(pid)} {pid}"] = len(os.listdir(f"/proc/{pid}/fd"))
            for child in descendants(pid):
                # Shepherds wait for jobs, more of them when many came at once; the sender of notifications stays.
                key = f"process {name_of(child)} below {pid}"
                if name_of(child) not in ("acequia-shep", "acequia-nurse", "acequia-notify"):
                    seen[key] = seen.get(key, 0) + 1
        for line in read("/proc/self/mounts").splitlines():
            if any(f in line for f in self.folders):
                seen[f"mount {line}"] = seen.get(f"mount {line}", 0) + 1
        for folder in self.folders:
            for name in os.listdir(folder):
                seen[f"file {folder}/{name}"] = 1
        return seen

    def left(self):
        """Connections that clients have just closed may be open for a moment: two descriptors are nothing."""
        return {k: n for k, n in self._look().items()
                if n > self.before.get(k, 0) + (4 if k.startswith("descriptors") else 0)}
