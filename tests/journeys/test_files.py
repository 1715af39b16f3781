"""Users' files through an agent: as the user and nobody else, in pieces that can be interrupted, past file systems that hang."""
import http.client
import io
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import zipfile

import pytest

from tests.lab.cluster import Cluster
from tests.lab.hang import HangingFolder, possible
from tests.lab.proc import rss_bytes, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="files of other users need root")
NOBODY, DAEMON = pwd.getpwnam("nobody"), pwd.getpwnam("daemon")
PIECE = 1 << 20


def as_user(user):
    return [] if user is None else ["setpriv", "--reuid", str(user.pw_uid), "--regid", str(user.pw_gid), "--clear-groups"]


@pytest.fixture(scope="module", name="cluster")
def _cluster():
    with Cluster(config="[cluster]\nheartbeat = 1s\n[node *]\ncpus = 8\n") as c:
        yield c


@pytest.fixture(name="folder")
def _folder(cluster):
    """A folder of nobody's."""
    path = f"{cluster.home}/of-nobody"
    os.mkdir(path, 0o755)
    os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
    yield path
    shutil.rmtree(path)


class Unix(http.client.HTTPConnection):
    """One connection to the controller's socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=90)
        self.unix = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(90)
        self.sock.connect(self.unix)


SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from tests.journeys.test_files import exchange
status, headers, data = exchange(*json.loads(sys.argv[2]), sys.stdin.buffer.read())
sys.stdout.buffer.write(json.dumps([status, headers]).encode() + b"\\n" + data)
"""
TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def exchange(path, method, target, headers, body):
    k = Unix(path)
    k.request(method, target, body=body if method in ("PUT", "POST") else None, headers=headers)
    r = k.getresponse()
    return r.status, dict(r.getheaders()), r.read()


def ask(c, method, route, user=NOBODY, body=b"", headers=None, **query):
    """Status, headers, and what was answered: JSON where it is."""
    text = {k: v for k, v in query.items() if v is not None}
    target = route + ("?" + urllib.parse.urlencode(text) if text else "")
    what = [f"{c.home}/run/api.sock", method, target, headers or {}]
    done = subprocess.run([*as_user(user), sys.executable, "-c", SCRIPT, TREE, json.dumps(what)], input=body, capture_output=True, timeout=120, check=False,
                          cwd="/tmp", env={**os.environ, "PYTHONPATH": TREE, "PYTHONDONTWRITEBYTECODE": "1"})
    assert done.returncode == 0, done.stderr.decode()
    head, data = done.stdout.split(b"\n", 1)
    status, answered = json.loads(head)
    return status, answered, json.loads(data) if answered.get("Content-Type", "").endswith("json") else data


def read(c, path, user=NOBODY, **more):
    return ask(c, "GET", "/v1/files/content", user, path=path, **more)


def put(c, path, data, user=NOBODY, headers=None, **more):
    return ask(c, "PUT", "/v1/files/content", user, data, headers, path=path, **more)


def listed(c, path, user=NOBODY, **more):
    status, _, answer = ask(c, "GET", "/v1/files", user, path=path, **more)
    return {e["name"]: e for e in answer["entries"]} if status == 200 else answer["error"]


def cli(c, *arguments, user=NOBODY, cwd="/tmp"):
    done = subprocess.run([*as_user(user), c.binary, "files", *arguments], env=c.env, capture_output=True, timeout=120, check=False, cwd=cwd, stdin=subprocess.DEVNULL)
    return done.returncode, (done.stdout + done.stderr).decode()


def test_there_and_back_by_command(cluster, folder, tmp_path):
    data = os.urandom(5_000_001)
    (tmp_path / "data.bin").write_bytes(data)
    below = [p for p in (tmp_path, *tmp_path.parents) if str(p).startswith(tempfile.gettempdir() + "/")]
    for p in below:  # others may read it
        p.chmod(0o755)
    assert cli(cluster, "mkdir", "-p", f"{folder}/a/b") == (0, "")
    assert cli(cluster, "put", f"{tmp_path}/data.bin", f"{folder}/a/b") == (0, "")
    with open(f"{folder}/a/b/data.bin", "rb") as f:
        assert f.read() == data
    st = os.stat(f"{folder}/a/b/data.bin")
    assert (st.st_uid, st.st_gid, st.st_mode & 0o777) == (NOBODY.pw_uid, NOBODY.pw_gid, 0o644)
    code, text = cli(cluster, "put", f"{tmp_path}/data.bin", f"{folder}/a/b")
    assert code == 1 and "--force" in text
    assert cli(cluster, "mv", f"{folder}/a/b/data.bin", f"{folder}/moved") == (0, "")
    assert cli(cluster, "get", f"{folder}/moved", f"{folder}/local") == (0, "")
    with open(f"{folder}/local", "rb") as f:
        assert f.read() == data
    code, text = cli(cluster, "ls", folder)
    assert code == 0 and "moved" in text and "folder" in text, text
    code, text = cli(cluster, "rm", f"{folder}/a")
    assert code == 1 and "recursive" in text
    assert cli(cluster, "rm", "-r", f"{folder}/a", f"{folder}/moved") == (0, "")
    assert sorted(os.listdir(folder)) == ["local"]
    assert sorted(listed(cluster, folder)) == ["local"]


def test_every_name_can_be_used(cluster, folder):
    names = [b"50%", b"new\nline", b"\xff\xfe", "caf\u00e8".encode(), b"<img src=x onerror=alert(1)>", b"a&b=c+d", b"-r", "x\u202egnp".encode(), b'quo"te\\']
    for name in names:
        with open(os.path.join(folder.encode(), name), "wb") as f:
            f.write(name)
        os.chown(os.path.join(folder.encode(), name), NOBODY.pw_uid, NOBODY.pw_gid)
    entries = listed(cluster, folder)
    assert len(entries) == len(names) and {"50%25", "new%0Aline", "%FF%FE", "x%E2%80%AEgnp"} <= set(entries)
    for name in entries:
        status, headers, data = read(cluster, f"{folder}/{name}")
        assert status == 200 and data in names and "\n" not in headers["Content-Disposition"]
        assert ask(cluster, "DELETE", "/v1/files", path=f"{folder}/{name}")[0] == 200
    assert os.listdir(folder) == []
    for path in (f"{folder}/%", f"{folder}/%00", f"{folder}/%zz", "x" * 5000, f"{folder}/" + "y" * 300):
        assert read(cluster, path)[0] == 400, path
    # Page by page.
    for i in range(25):
        put(cluster, f"{folder}/f{i:02}", b"") if i < 2 else open(f"{folder}/f{i:02}", "w", encoding="ascii").close()
    seen, after = [], None
    while True:
        page = ask(cluster, "GET", "/v1/files", path=folder, limit=10, after=after)[2]
        seen += [e["name"] for e in page["entries"]]
        after = page["next"]
        if not after:
            break
    assert seen == [f"f{i:02}" for i in range(25)]


def test_what_is_others_stays_theirs(cluster, folder):
    private = f"{cluster.home}/of-daemon"
    os.mkdir(private, 0o700)
    os.chown(private, DAEMON.pw_uid, DAEMON.pw_gid)
    try:
        assert put(cluster, f"{private}/secret", b"mine", user=DAEMON)[0] == 200
        assert read(cluster, f"{private}/secret", user=DAEMON)[2] == b"mine"
        os.symlink(f"{private}/secret", f"{folder}/link")
        os.symlink(private, f"{folder}/door")
        os.symlink("/etc/shadow", f"{folder}/shadow")
        refused = [f"{private}/secret", f"{folder}/link", f"{folder}/door/secret", f"{folder}/shadow", f"{folder}/../of-daemon/secret", "/etc/shadow"]
        for path in refused:
            status, _, answer = read(cluster, path)
            assert status == 403 and answer["error"]["code"] == "EACCES", (path, answer)
        assert listed(cluster, private)["code"] == "EACCES" and listed(cluster, f"{folder}/door")["code"] == "EACCES"
        assert ask(cluster, "GET", "/v1/files/zip", path=private)[0] == 403
        for path in (f"{private}/new", f"{private}/secret", f"{folder}/door/secret", "/etc/new", f"{cluster.home}/new"):
            assert put(cluster, path, b"x")[0] == 403, path
        assert ask(cluster, "DELETE", "/v1/files", path=f"{private}/secret")[0] == 403
        assert ask(cluster, "DELETE", "/v1/files", path=private, recursive="true")[0] == 403
        body = json.dumps({"path": f"{private}/secret", "to": f"{folder}/stolen"}).encode()
        assert ask(cluster, "POST", "/v1/files/move", body=body)[0] == 403
        assert ask(cluster, "POST", "/v1/files/copy", body=body)[0] == 403
        # Replacing through a link that leads to somebody else's file changes neither.
        assert put(cluster, f"{folder}/link", b"x")[0] == 403
        assert read(cluster, f"{private}/secret", user=DAEMON)[2] == b"mine" and os.path.islink(f"{folder}/link")
        # Removing a folder removes links, not what they lead to.
        assert ask(cluster, "DELETE", "/v1/files", path=folder + "/door")[0] == 200
        assert read(cluster, f"{private}/secret", user=DAEMON)[2] == b"mine"
    finally:
        shutil.rmtree(private)


def test_only_plain_files_are_opened(cluster, folder):
    os.mkfifo(f"{folder}/pipe")
    os.mknod(f"{folder}/zero", 0o666 | 0o020000, os.makedev(1, 5))
    s = socket.socket(socket.AF_UNIX)
    s.bind(f"{folder}/sock")
    os.symlink("/proc/self/environ", f"{folder}/environ")
    entries = listed(cluster, folder)
    assert {entries[n]["type"] for n in ("pipe", "zero", "sock")} == {"other"} and entries["environ"]["type"] == "link"
    for name in ("pipe", "zero", "sock"):
        status, _, answer = read(cluster, f"{folder}/{name}")
        assert status == 400 and answer["error"]["code"] == "ENOTSUP", answer
        assert put(cluster, f"{folder}/{name}", b"x")[0] == 400
    for path in (f"{folder}/environ", "/proc/self/cmdline", "/proc/1/environ", "/proc/self/fd/0", "/proc/self/root/etc/passwd", "/sys/kernel/uevent_seqnum",
                 "/proc/self/cwd"):
        assert read(cluster, path)[0] in (400, 403, 409), path
    assert listed(cluster, "/proc")["code"] == "EPERM" and listed(cluster, "/sys")["code"] == "EPERM"
    archive = zipfile.ZipFile(io.BytesIO(ask(cluster, "GET", "/v1/files/zip", path=folder)[2]))
    assert archive.testzip() is None and archive.namelist() == ["NOT-IN-THIS-ARCHIVE.txt"]
    assert archive.read("NOT-IN-THIS-ARCHIVE.txt").count(b"\n") == 4
    s.close()


def test_folder_as_an_archive(cluster, folder):
    os.makedirs(f"{folder}/deep/er")
    big = os.urandom(3_000_000)
    for name, data in (("deep/er/big", big), ("deep/empty", b""), ("n\u00e4me", b"x")):
        with open(f"{folder}/{name}", "wb") as f:
            f.write(data)
    with open(f"{folder}/unreadable", "w", encoding="ascii") as f:
        f.write("no")
    os.chmod(f"{folder}/unreadable", 0o600)  # root's
    status, headers, data = ask(cluster, "GET", "/v1/files/zip", path=folder)
    assert status == 200 and headers["Content-Type"] == "application/zip" and "of-nobody.zip" in headers["Content-Disposition"]
    archive = zipfile.ZipFile(io.BytesIO(data))
    assert archive.testzip() is None
    assert sorted(archive.namelist()) == ["NOT-IN-THIS-ARCHIVE.txt", "deep/", "deep/empty", "deep/er/", "deep/er/big", "n\u00e4me"]
    assert archive.read("deep/er/big") == big and b"unreadable: Permission denied" in archive.read("NOT-IN-THIS-ARCHIVE.txt")


def test_parts_versions_and_types(cluster, folder):
    data = bytes(range(256)) * 5000
    status, headers, answer = put(cluster, f"{folder}/f.svg", data)
    assert status == 200 and answer["complete"] and headers["ETag"] == f'"{answer["entry"]["version"]}"'
    tag = headers["ETag"]
    for asked, part in (("bytes=100-199", data[100:200]), ("bytes=1279990-", data[1279990:]), ("bytes=-5", data[-5:]), ("bytes=1279999-9999999", data[-1:])):
        status, headers, got = read(cluster, f"{folder}/f.svg", headers={"Range": asked})
        assert (status, got) == (206, part) and headers["Content-Length"] == str(len(part)) and headers["Content-Range"].endswith("/1280000")
    assert read(cluster, f"{folder}/f.svg", headers={"Range": "bytes=99999999-"})[0] == 416
    assert read(cluster, f"{folder}/f.svg", headers={"Range": "bytes=0-1,5-6"})[2] == data
    assert read(cluster, f"{folder}/f.svg", headers={"Range": "bytes=0-1", "If-Range": '"old"'})[2] == data
    assert read(cluster, f"{folder}/f.svg", headers={"If-None-Match": tag})[0] == 304
    # Nothing a user has written becomes a page of the portal.
    for name, view, kind in (("f.svg", "true", "image/svg+xml"), ("f.svg", None, "application/octet-stream"), ("f.html", "true", "application/octet-stream")):
        put(cluster, f"{folder}/{name}", b"<script>alert(1)</script>")
        headers = read(cluster, f"{folder}/{name}", view=view)[1]
        assert headers["Content-Type"] == kind and "sandbox" in headers["Content-Security-Policy"] and headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Content-Disposition"].startswith("inline" if kind.startswith("image") else "attachment")
    # A version that is gone is not replaced; nor is anything, where there must be nothing.
    status, _, answer = put(cluster, f"{folder}/f.svg", b"mine", headers={"If-Match": tag})
    assert status == 412 and answer["error"]["code"] == "ESTALE"
    assert put(cluster, f"{folder}/f.svg", b"x", headers={"If-None-Match": "*"})[0] == 409
    now = read(cluster, f"{folder}/f.svg")[1]["ETag"]
    assert put(cluster, f"{folder}/f.svg", b"mine", headers={"If-Match": now})[0] == 200
    assert ask(cluster, "DELETE", "/v1/files", path=f"{folder}/f.svg", headers={"If-Match": now})[0] == 412
    assert read(cluster, f"{folder}/f.svg")[2] == b"mine"


def half_a_piece(c, target, length, sent):
    """Begins a request and cuts the connection in its body."""
    s = socket.socket(socket.AF_UNIX)
    s.connect(f"{c.home}/run/api.sock")
    s.sendall(f"PUT {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode() + sent)
    s.close()


def test_upload_survives_cuts_and_restarts(cluster, tmp_path):
    data = os.urandom(6 * PIECE + 12345)
    path, node = f"{tmp_path}/big", cluster.api.get("/v1/nodes")["nodes"][0]["name"]
    query = {"path": path, "upload": "u-1", "size": len(data)}

    def piece(at, length=PIECE):
        return put(cluster, path, data[at:at + length], user=None, upload="u-1", size=len(data), offset=at)

    def standing():
        status, _, answer = put(cluster, path, b"", user=None, upload="u-1", size=len(data), offset=0)
        return answer["offset"] if status == 200 else None

    assert piece(0)[2]["offset"] == PIECE
    half_a_piece(cluster, "/v1/files/content?" + urllib.parse.urlencode({**query, "offset": PIECE}), PIECE, data[PIECE:PIECE + 5000])
    assert standing() == PIECE and not os.path.exists(path)
    assert piece(PIECE)[0] == 200
    status, _, answer = piece(PIECE)  # once more, as after a lost answer
    assert status == 409 and answer["error"]["code"] == "ESPIPE"
    cluster.kill_controller()
    cluster.start_controller()
    cluster.wait_ready()
    wait_until(lambda: standing() == 2 * PIECE, 60, "the upload is lost with the controller")
    assert piece(2 * PIECE)[0] == 200
    cluster.kill_agent(node)
    assert piece(3 * PIECE)[0] in (503, 504)
    cluster.start_agent(node)
    wait_until(lambda: standing() == 3 * PIECE, 60, "the upload is lost with the agent")
    while (at := standing()) is not None and at < len(data):
        status, _, answer = piece(at, 2 * PIECE)
        assert status == 200, answer
        if answer["complete"]:
            break
    with open(path, "rb") as f:
        assert f.read() == data
    assert os.listdir(tmp_path) == ["big"]
    assert put(cluster, path, b"x" * (5 << 20), user=None)[0] == 413


def mount(path, options):
    os.mkdir(path)
    return subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", path], capture_output=True, check=False).returncode == 0


def test_full_disk(cluster):
    path = f"{cluster.home}/small"
    if not mount(path, "size=1m,mode=0777"):
        pytest.skip("no mounts here")
    try:
        assert put(cluster, f"{path}/kept", b"k" * 400_000)[0] == 200
        status, _, answer = put(cluster, f"{path}/kept", b"n" * 900_000)
        assert status == 507 and answer["error"]["code"] == "ENOSPC", answer
        assert read(cluster, f"{path}/kept")[2] == b"k" * 400_000
        assert "choose another place" in answer["error"]["message"]
        # What cannot fit is refused before its first byte, with what it needs and what there is.
        status, _, answer = put(cluster, f"{path}/huge", b"a" * 1000, upload="u", size=5_000_000, offset=0)
        assert status == 507 and "it needs" in answer["error"]["message"], answer
        assert os.listdir(path) == ["kept"]
        # A piece that did not fit is not there in part.
        assert put(cluster, f"{path}/big", b"a" * 200_000, upload="u", size=500_000, offset=0)[0] == 200
        assert put(cluster, f"{path}/other", b"o" * 300_000)[0] == 200
        status, _, answer = put(cluster, f"{path}/big", b"b" * 300_000, upload="u", size=500_000, offset=200_000)
        assert status == 507 and "no space is left" in answer["error"]["message"], answer
        assert put(cluster, f"{path}/big", b"", upload="u", size=500_000, offset=0)[2]["offset"] == 200_000
        # Nor is a folder that did not fit.
        os.mkdir(f"{path}/folder", 0o777)
        os.chmod(f"{path}/folder", 0o777)
        os.remove(f"{path}/other")
        assert put(cluster, f"{path}/folder/one", b"1" * 200_000)[0] == 200
        assert put(cluster, f"{path}/folder/two", b"2" * 100_000)[0] == 200
        code, text = cli(cluster, "cp", f"{path}/folder", f"{path}/copy")
        assert code == 1 and "no space is left" in text, text
        assert sorted(n for n in os.listdir(path) if "upload" not in n) == ["folder", "kept"]
    finally:
        subprocess.run(["umount", "-l", path], check=False)


def workers():
    """Processes that work on files: pid -> their status."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
                status = dict(line.split(":\t", 1) for line in f.read().splitlines() if ":\t" in line)
            if status["Name"] == "acequia-files":
                found[int(pid)] = status
        except (OSError, KeyError):
            pass
    return found


@pytest.mark.skipif(not possible(), reason="needs FUSE")
def test_file_system_that_hangs(cluster, folder):
    with open(f"{folder}/quick", "w", encoding="ascii") as f:
        f.write("quick")
    with HangingFolder(f"{cluster.home}/remote") as remote:
        mine = set(workers())
        remote.hang("open")
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(read(cluster, f"{remote.path}/out"))) for _ in range(16)]
        for t in threads:
            t.start()
        wait_until(lambda: len([p for p in workers() if p not in mine]) >= 16, 60, "the requests are not under way")
        for pid, status in workers().items():
            if pid in mine:
                continue
            assert set(status["Uid"].split()) == {str(NOBODY.pw_uid)} and set(status["Gid"].split()) == {str(NOBODY.pw_gid)}, status
            assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == int(status["CapBnd"], 16) == 0 and status["NoNewPrivs"] == "1"
            assert status["Groups"].split() in ([], [str(NOBODY.pw_gid)]) and os.stat(f"/proc/{pid}/mem").st_uid == 0  # not the user's to look into
        # One user's requests fill that user's part, and nobody else notices.
        assert read(cluster, f"{folder}/quick")[0] == 429
        until = time.monotonic() + 6
        while time.monotonic() < until:
            assert read(cluster, f"{folder}/quick", user=DAEMON)[2] == b"quick"
            assert cluster.cli("run", "--", "echo", "meanwhile").stdout == "meanwhile\n" and cluster.nodes_up()
        for t in threads:
            t.join(60)
        assert [a[0] for a in answers] == [504] * 16 and "does not answer" in answers[0][2]["error"]["message"]
        wait_until(lambda: not [p for p in workers() if p not in mine], 30, "processes are left")
        remote.answer()
        assert read(cluster, f"{folder}/quick")[2] == b"quick"


@pytest.mark.skipif(not possible(), reason="needs FUSE")
def test_file_system_that_lets_nobody_go(cluster, folder):
    """Processes in it cannot be killed. One user's file system uses up that user's part, and not that of the node."""
    with open(f"{folder}/quick", "w", encoding="ascii") as f:
        f.write("quick")
    with HangingFolder(f"{cluster.home}/deaf") as remote:
        mine = set(workers())
        remote.hang("open deaf")
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(read(cluster, f"{remote.path}/out"))) for _ in range(16)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(120)
        assert [a[0] for a in answers] == [504] * 16
        assert len(set(workers()) - mine) == 16  # killed, and still there
        status, _, said = read(cluster, f"{folder}/quick")
        assert status == 429 and "hang in its file systems" in said["error"]["message"]
        assert read(cluster, f"{folder}/quick", user=DAEMON)[2] == b"quick"
    wait_until(lambda: not set(workers()) - mine, 60, "processes are left")
    wait_until(lambda: read(cluster, f"{folder}/quick")[0] == 200, 60, "the user is not let in again")


def test_client_that_leaves_ends_its_process(cluster, folder):
    with open(f"{folder}/large", "wb") as f:
        f.truncate(1 << 30)
    before = set(workers())
    s = socket.socket(socket.AF_UNIX)
    s.connect(f"{cluster.home}/run/api.sock")
    s.sendall(f"GET /v1/files/content?path={folder}/large HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert s.recv(100).startswith(b"HTTP/1.1 200")
    wait_until(lambda: set(workers()) - before, 30, "it does not run")
    controller = cluster.pid("controller")
    before_bytes = rss_bytes(controller)
    for _ in range(20):  # nobody reads: what was sent ahead is bounded
        time.sleep(0.1)
        assert rss_bytes(controller) - before_bytes < 32 << 20
    s.close()
    wait_until(lambda: not set(workers()) - before, 30, "it goes on for nobody")
    # One that is killed is an error, and not a short file.
    k = Unix(f"{cluster.home}/run/api.sock")
    k.request("GET", f"/v1/files/content?path={folder}/large")
    r = k.getresponse()
    for pid in set(workers()) - before:
        os.kill(pid, signal.SIGKILL)
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        r.read()


def test_folders_are_copied_whole(cluster, folder):
    os.makedirs(f"{folder}/a/deep/er")
    with open(f"{folder}/a/deep/er/run.sh", "w", encoding="ascii") as f:
        f.write("#!/bin/sh\necho hi\n")
    os.chmod(f"{folder}/a/deep/er/run.sh", 0o750)
    os.symlink("deep/er/run.sh", f"{folder}/a/link")
    subprocess.run(["chown", "-Rh", "nobody", f"{folder}/a"], check=True)
    assert cli(cluster, "cp", f"{folder}/a", f"{folder}/b") == (0, "")
    assert os.readlink(f"{folder}/b/link") == "deep/er/run.sh"
    st = os.stat(f"{folder}/b/deep/er/run.sh")
    assert (st.st_uid, st.st_mode & 0o777) == (NOBODY.pw_uid, 0o750)
    code, text = cli(cluster, "cp", f"{folder}/a", f"{folder}/a/inside")
    assert code == 1 and "into itself" in text
    assert cli(cluster, "cp", f"{folder}/a", f"{folder}/b") == (0, "")  # into the folder that is there
    assert os.path.isdir(f"{folder}/b/a/deep")
    os.mkfifo(f"{folder}/a/pipe")
    code, text = cli(cluster, "cp", f"{folder}/a", f"{folder}/c")
    assert code == 1 and "/a/pipe is a device, pipe or socket" in text, text
    assert sorted(os.listdir(folder)) == ["a", "b"]  # nothing of it is left


def test_what_a_running_job_uses_stays(cluster, folder):
    os.mkdir(f"{folder}/busy")
    os.chown(f"{folder}/busy", NOBODY.pw_uid, NOBODY.pw_gid)
    os.symlink("busy", f"{folder}/other-way")
    done = subprocess.run([*as_user(NOBODY), cluster.binary, "submit", "-Q", "-J", "busy", "-D", f"{folder}/other-way", "-o", "%x-%j.log", "--",
                           "sh", "-c", "echo hello; sleep 600"], env=cluster.env, capture_output=True, text=True, check=True, cwd="/tmp")
    job = done.stdout.strip()
    log = f"{folder}/busy/busy-{job}.log"
    wait_until(lambda: os.path.exists(log) and os.path.getsize(log), 60, "no output")
    for path in (f"{folder}/busy", log):
        code, text = cli(cluster, "rm", "-r", path)
        assert code == 1 and f"job {job} (busy) is running and uses it" in text, text
    assert put(cluster, f"{folder}/busy/mine", b"x")[0] == 200
    assert cli(cluster, "rm", f"{folder}/busy/mine", f"{folder}/other-way") == (0, "")  # the link is not the folder
    cluster.cli("cancel", job)
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}")["state"] == "CANCELLED", 60, "the job does not end")
    assert cli(cluster, "rm", "-r", f"{folder}/busy") == (0, "")


def test_of_a_job(cluster, folder):
    done = subprocess.run([*as_user(NOBODY), cluster.binary, "submit", "-Q", "-D", folder, "-o", "out.txt", "--", "sh", "-c", "echo hello; sleep 600"],
                          env=cluster.env, capture_output=True, text=True, check=True, cwd="/tmp")
    job = done.stdout.strip()
    wait_until(lambda: b"hello" in (read(cluster, "out.txt", job=job)[2] or b"") if os.path.exists(f"{folder}/out.txt") else False, 60, "no output")
    assert "out.txt" in listed(cluster, "", job=job)
    code, text = cli(cluster, "get", "--job", job, "out.txt", "-")
    assert (code, text) == (0, "hello\n")
    # Its folder is private; and who may see it sees it as themselves.
    assert read(cluster, "out.txt", user=DAEMON, job=job)[0] == 403
    os.chmod(folder, 0o700)
    assert read(cluster, "out.txt", job=job)[0] == 200
    cluster.cli("cancel", job)
    assert read(cluster, "x", node="nonesuch")[0] == 404 and read(cluster, "x", job="999999")[0] == 404
