"""ssh into jobs: with the real ssh, scp, sftp and rsync, through a server that the job's user runs inside the job."""
import os
import pwd
import re
import shutil
import socket
import subprocess

import pytest

from tests.lab.cluster import Cluster
from tests.lab.images import make_rootfs
from tests.lab.proc import end_child, free_ports, wait_until
from tests.lab.users import user

missing = [p for p in ("/usr/sbin/sshd", "/usr/bin/ssh", "/usr/bin/rsync", "/usr/sbin/useradd") if not os.access(p, os.X_OK)]
pytestmark = [pytest.mark.skipif(bool(missing), reason=f"not installed: {' '.join(missing)}; make test installs it"),
              pytest.mark.skipif(os.geteuid() != 0, reason="a user of its own needs root")]


@pytest.fixture(scope="module", name="cluster")
def _cluster():
    with Cluster(config="[cluster]\ngrace = 1s\n[node *]\ncpus = 16\nmemory = 8G\n") as c:
        yield c


@pytest.fixture(scope="module", name="ana")
def _ana(cluster):
    with user("acqssh") as u:
        done = u.run(cluster.binary, "ssh-config", env=cluster.env)
        assert done.returncode == 0 and done.stdout.startswith("Host *.acequia\n"), done
        os.mkdir(f"{u.home}/.ssh", 0o700)
        with open(f"{u.home}/.ssh/config", "w", encoding="utf-8") as f:
            f.write(done.stdout)
        os.chown(f"{u.home}/.ssh", u.uid, u.gid)
        os.chown(f"{u.home}/.ssh/config", u.uid, u.gid)
        yield u


def submit(cluster, who, *options, command=("sleep", "600")):
    done = who.run(cluster.binary, "submit", "-Q", "-o", "/dev/null", *options, "--", *command, env=cluster.env)
    assert done.returncode == 0, done
    job = done.stdout.strip()
    wait_until(lambda: cluster.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 60, "it does not run")
    return job


def ssh(cluster, who, *arguments, **kwargs):
    """With the settings of `acequia ssh-config`, as an editor would. The test's users have homes of their own; ssh looks them up."""
    return who.run("ssh", "-F", f"{who.home}/.ssh/config", "-o", "BatchMode=yes", *arguments, env=cluster.env, **kwargs)


def folders(who):
    path = f"{who.home}/.cache/acequia/ssh"
    return os.listdir(path) if os.path.isdir(path) else []


def test_a_session_is_inside_the_job(cluster, ana):
    job = submit(cluster, ana, "-J", "inner", "-E", "WORD=a \"b\" \\c #d")
    done = ssh(cluster, ana, f"{job}.acequia", "id -un; echo $ACEQUIA_JOB_ID; printf '%s\\n' \"$WORD\"; cat /proc/self/cgroup")
    assert done.returncode == 0, done
    name, number, word, *groups = done.stdout.splitlines()
    assert (name, number, word) == (ana.name, job, "a \"b\" \\c #d")
    inside = ana.run(cluster.binary, "exec", job, "--", "cat", "/proc/self/cgroup", env=cluster.env).stdout.splitlines()
    assert [re.sub(r"step.*", "", g) for g in groups] == [re.sub(r"step.*", "", g) for g in inside]
    # By name; a terminal; an exit status; a job that is not there.
    assert ssh(cluster, ana, "inner.acequia", "exit 7").returncode == 7
    assert "/dev/pts/" in ssh(cluster, ana, "-tt", f"{job}.acequia", "tty").stdout
    done = ana.run(cluster.binary, "ssh", job, "--", "echo", "hello", env=cluster.env)
    assert (done.returncode, done.stdout) == (0, "hello\n"), done
    assert "there is no job 99999" in ana.run(cluster.binary, "ssh", "99999", env=cluster.env).stderr
    # No key, host key or process is left, neither here nor there.
    wait_until(lambda: not folders(ana), 20, lambda: f"left: {folders(ana)}")
    assert not [f for f in os.listdir("/tmp") if f.startswith(".acequia-ssh-")]
    assert not subprocess.run(["pgrep", "-u", ana.name, "sshd"], capture_output=True, check=False).stdout


def test_programs_that_use_ssh(cluster, ana):
    job = submit(cluster, ana)
    config = ["-F", f"{ana.home}/.ssh/config"]
    data = os.urandom(3 << 20)
    with open(f"{ana.home}/data", "wb") as f:
        f.write(data)
    os.makedirs(f"{ana.home}/there")
    os.chown(f"{ana.home}/there", ana.uid, ana.gid)
    for command in (["scp", "-q", *config, "data", f"{job}.acequia:{ana.home}/there/scp"],
                    ["sftp", "-q", *config, "-b", "-", f"{job}.acequia"],
                    ["rsync", "-a", "-e", f"ssh {' '.join(config)}", "data", f"{job}.acequia:{ana.home}/there/rsync"]):
        batch = {"input": f"put data {ana.home}/there/sftp\n"} if command[0] == "sftp" else {}
        done = ana.run(*command, env=cluster.env, **batch)
        assert done.returncode == 0, (command[0], done)
        with open(f"{ana.home}/there/{command[0]}", "rb") as f:
            assert f.read() == data, command[0]


def test_ports_and_agents_are_forwarded(cluster, ana):
    """A program on a port of the job's own network, reached from here; and an agent from here, used there."""
    own = ["--network", "own"] if shutil.which("pasta") else []
    job = submit(cluster, ana, *own, command=("/usr/bin/python3", "-m", "http.server", "8088", "--bind", "127.0.0.1"))
    local = free_ports(1)[0]
    agent = ana.run("ssh-agent", "-s", env=cluster.env).stdout
    variables = dict(re.findall(r"(SSH_[A-Z_]+)=([^;]+);", agent))
    try:
        ana.run("sh", "-c", f"ssh-keygen -q -t ed25519 -N '' -f {ana.home}/mine && ssh-add -q {ana.home}/mine", env={**cluster.env, **variables})
        command = ana.command("ssh", "-F", f"{ana.home}/.ssh/config", "-A", "-L", f"127.0.0.1:{local}:127.0.0.1:8088", f"{job}.acequia",
                              "ssh-add -l; cat")
        with subprocess.Popen(command, env=ana.env({**cluster.env, **variables}), cwd=ana.home, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as child:
            try:
                assert b"ED25519" in child.stdout.readline()

                def served():
                    try:
                        with socket.create_connection(("127.0.0.1", local), 5) as s:
                            s.sendall(b"GET / HTTP/1.0\r\n\r\n")
                            return b"200 OK" in s.recv(4096)
                    except OSError:
                        return False
                wait_until(served, 30, "the program is not reached")
                # The session ends with the job.
                cluster.cli("cancel", job)
                child.wait(60)
                assert child.returncode == 255
            finally:
                end_child(child)
    finally:
        os.kill(int(variables["SSH_AGENT_PID"]), 15)
    wait_until(lambda: not folders(ana), 20, lambda: f"left: {folders(ana)}")


def test_jobs_of_others_are_refused(cluster, ana):
    job = submit(cluster, ana)
    nobody = pwd.getpwnam("nobody")
    done = subprocess.run(["setpriv", "--reuid", "nobody", "--regid", str(nobody.pw_gid), "--clear-groups", cluster.binary, "ssh-proxy", job],
                          env=dict(cluster.env, HOME="/tmp", XDG_CACHE_HOME=f"/tmp/acequia-test-{os.getpid()}"), capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=60, check=False, cwd="/tmp")
    shutil.rmtree(f"/tmp/acequia-test-{os.getpid()}", ignore_errors=True)
    assert done.returncode == 1 and not done.stdout, done
    assert "owner" in done.stderr or "another user" in done.stderr or "not yours" in done.stderr, done
    # A key that nobody accepted opens nothing: another client's stays outside, even on the same stream.
    assert "is not a job" in ana.run(cluster.binary, "ssh-proxy", "../../x", env=cluster.env).stderr
    waits = ana.run(cluster.binary, "submit", "-Q", "--hold", "--", "true", env=cluster.env).stdout.strip()
    assert "ssh needs a running job" in ana.run(cluster.binary, "ssh", waits, env=cluster.env).stderr
    cluster.cli("cancel", waits)


def test_into_a_container(cluster, ana):
    """The node's server with the node's libraries, in an image that has neither."""
    if not shutil.which("busybox"):
        pytest.skip("busybox is not installed")
    image = make_rootfs(f"{ana.home}/image")
    with open(f"{image}/etc/group", "a", encoding="utf-8") as f:
        f.write("tty:x:5:\n")
    subprocess.run(["chown", "-R", f"{ana.uid}:{ana.gid}", image], check=True)
    job = submit(cluster, ana, "--container", image)
    done = ssh(cluster, ana, f"{job}.acequia", "cat /word; id -u; echo $FROM_IMAGE $ACEQUIA_JOB_ID")
    assert done.stdout.splitlines()[:2] == ["image", str(ana.uid)] and job in done.stdout, done
    assert "/dev/pts/" in ssh(cluster, ana, "-tt", f"{job}.acequia", "tty").stdout
    done = ana.run("sftp", "-q", "-F", f"{ana.home}/.ssh/config", "-b", "-", f"{job}.acequia", env=cluster.env, input="ls /word\n")
    assert done.returncode == 0 and "/word" in done.stdout, done


def test_a_node_without_an_ssh_server(cluster, ana):
    """What is missing is named, with the remedy. The end inside the job alone: in a container without what the node puts there."""
    done = ana.run(cluster.binary, "ssh-proxy", "--serve", "ssh-ed25519 AAAA", env=dict(cluster.env, ACEQUIA_CONTAINER="image"))
    assert done.returncode == 1 and "apt-get install openssh-server" in done.stderr and not done.stdout, done
    assert "is not a key" in ana.run(cluster.binary, "ssh-proxy", "--serve", "command=x ssh-ed25519 AAAA", env=cluster.env).stderr


def test_two_clusters_have_folders_of_their_own(cluster, ana):
    """Both may have a job of the same number: neither's keys are looked up for the other."""
    def folder(of):
        text = ana.run(of.binary, "ssh-config", env=of.env).stdout
        return re.search(r'IdentityFile "(.*)/key"', text)[1]
    with Cluster(config="[node *]\ncpus = 4\nmemory = 4G\n") as other:
        assert folder(cluster) != folder(other) and folder(cluster) == folder(cluster)
        job = submit(other, ana)
        done = ana.run(other.binary, "ssh", job, "--", "ls", os.path.dirname(folder(other)), env=other.env)
        assert done.returncode == 0 and os.path.basename(folder(other)).replace("%n", f"{job}.acequia") in done.stdout.split(), done
