"""Processes that the labs start: ended by their own id, never by name, with a bounded wait."""
import os
import signal
import socket
import subprocess
import time


class LabError(RuntimeError):
    """Something in a lab did not come up or go down as it must; the text says what."""


# A wait ends as soon as its condition holds, so patience costs nothing on a machine that is not busy.
PATIENCE = 5


def wait_until(check, seconds, what, interval=0.05):
    """Calls check() until it is true; LabError after `seconds` (on an idle machine; PATIENCE times as long on any)."""
    seconds *= PATIENCE
    deadline = time.monotonic() + seconds
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > deadline:
            raise LabError(f"{what() if callable(what) else what}: not within {seconds} s")
        time.sleep(interval)


def alive(pid):
    """True while the process runs: a zombie does not, unless threads of it still hold its files."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            if f.read().rpartition(")")[2].split()[0] not in ("Z", "X"):
                return True
        return len(os.listdir(f"/proc/{pid}/task")) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False


def end(pid, grace_s=5):
    """SIGTERM, then SIGKILL after the grace; returns when the process is gone."""
    for sig, patience in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 5)):
        try:
            os.kill(pid, sig)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + patience
        while alive(pid):
            if time.monotonic() > deadline:
                break
            time.sleep(0.01)
        else:
            return
    raise LabError(f"process {pid} does not end")


def end_child(child, grace_s=5):
    """The same for a Popen of ours, which is also reaped."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(grace_s)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait(5)


def processes_naming(text):
    """Processes whose environment or command line names `text` (a lab's own folder)."""
    found = []
    needle = text.encode()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        for part in ("environ", "cmdline"):
            try:
                with open(f"/proc/{entry}/{part}", "rb") as f:
                    if needle in f.read():
                        found.append(int(entry))
                        break
            except OSError:
                continue
    return found


def spools_of(home):
    """Spool folders on memory file systems that daemons of the cluster in `home` have open."""
    found = set()
    for pid in processes_naming(home):
        try:
            targets = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            continue
        for place in ("/dev/shm/acequia-", "/run/acequia-"):
            found |= {"/".join(t.split("/")[:place.count("/") + 1]) for t in targets if t.startswith(place)}
    return found


def kill_trees(roots):
    """SIGKILL for these processes and all that descend from them."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as f:
                    parent = int(f.read().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry))
            except OSError:
                continue
    todo = list(roots)
    while todo:
        pid = todo.pop()
        todo += children.get(pid, [])
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def free_ports(count):
    """Ports on loopback that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


def rss_bytes(pid):
    """Resident memory of a process."""
    with open(f"/proc/{pid}/statm", encoding="utf-8") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
