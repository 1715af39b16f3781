"""Commands on a machine without daemons, over TLS with a token, that are several processes: each of them must have the
program that speaks TLS. And what a user of a port sees of a cut."""
import os
import shutil
import socket
import subprocess

import pytest

from tests.kills.ports import serve_command
from tests.lab.cluster import Cluster
from tests.lab.proc import end_child, free_ports, wait_until
from tests.lab.proxy import Proxy

needs_ssh = pytest.mark.skipif(not shutil.which("ssh") or not os.access("/usr/sbin/sshd", os.X_OK), reason="ssh or sshd is not installed")


@pytest.fixture(scope="module", name="away")
def _away():
    """A cluster, whose `away` is the environment of another machine and `link` the way from there."""
    with Cluster(config="[cluster]\ngrace = 1s\n[node *]\ncpus = 16\n", agents=["n1"]) as c:
        with Proxy(("127.0.0.1", 0), ("127.0.0.1", c.port)) as c.link:
            c.cli("token", "create", "--user", "root", "--ttl", "1h", "-o", f"{c.home}/token")
            os.makedirs(f"{c.home}/away")
            c.away = {**c.env, "ACEQUIA_HOME": f"{c.home}/away", "ACEQUIA_TOKEN_FILE": f"{c.home}/token",
                      "ACEQUIA_HOST": f"127.0.0.1:{c.link.front[1]}", "XDG_CACHE_HOME": f"{c.home}/cache"}
            yield c


@pytest.fixture(name="job")
def _job(away):
    job = away.cli("submit", "-Q", "-o", "/dev/null", "--", "sleep", "600").stdout.strip()
    wait_until(lambda: away.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 60, "the job does not start")
    yield job
    away.cli("cancel", job)


def run(c, *words):
    return subprocess.run([c.binary, *words], env=c.away, cwd=c.home, text=True, capture_output=True, stdin=subprocess.DEVNULL,
                          timeout=240, check=False)


@needs_ssh
def test_ssh_by_the_number_of_the_job(away, job):
    """Nothing has to be asked for before the session begins."""
    done = run(away, "ssh", job, "--", "echo $ACEQUIA_JOB_ID; exit 7")
    assert (done.returncode, done.stdout) == (7, f"{job}\n"), done


@needs_ssh
def test_ssh_after_one_that_was_killed(away, job):
    """Keys and host keys that it left behind keep nobody out."""
    with subprocess.Popen([away.binary, "ssh", job, "--", "echo begun; sleep 600"], env=away.away, cwd=away.home, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True) as first:
        assert first.stdout.readline() == "begun\n"
        os.killpg(first.pid, 9)
    done = run(away, "ssh", job, "--", "echo there")
    assert (done.returncode, done.stdout) == (0, "there\n"), done


def test_cp_to_and_from_a_job(away, job, tmp_path):
    data = os.urandom(300_000)
    (tmp_path / "a").write_bytes(data)
    done = run(away, "cp", f"{tmp_path}/a", f"{job}:{tmp_path}/b")
    assert done.returncode == 0 and (tmp_path / "b").read_bytes() == data, done
    done = run(away, "cp", f"{job}:{tmp_path}/b", f"{tmp_path}/c")
    assert done.returncode == 0 and (tmp_path / "c").read_bytes() == data, done


def test_a_connection_to_a_port_that_is_cut_ends_with_a_reset(away):
    """As if all had been sent it must not look: half an answer would be taken for a whole one."""
    c, port = away, free_ports(1)[0]
    job = c.cli("submit", "-Q", "--port", str(port), "-o", "/dev/null", "--", *serve_command(port)).stdout.strip()
    wait_until(lambda: c.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 60, "the job does not start")
    with subprocess.Popen([c.binary, "port-forward", job, f":{port}"], env=c.away, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as forward:
        local = int(forward.stdout.readline().split()[0].rpartition(":")[2])

        def connect():
            s = socket.create_connection(("127.0.0.1", local))
            s.settimeout(120)
            return s

        def works():
            with connect() as s:
                s.sendall(b"question")
                s.shutdown(socket.SHUT_WR)
                try:
                    return len(b"".join(iter(lambda: s.recv(1 << 16), b""))) > 1000
                except OSError:
                    return False
        wait_until(works, 60, "the port does not answer")
        before = set(c.link.pairs)  # the last one may not have gone yet
        with connect() as s:
            s.sendall(b"half a question")
            wait_until(lambda: set(c.link.pairs) - before, 60, "it is not connected")
            c.link.cut()
            with pytest.raises(ConnectionResetError):
                s.recv(1)
        wait_until(works, 60, "the next connection does not work")
        end_child(forward)
    c.cli("cancel", job)
