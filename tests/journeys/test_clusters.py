"""Virtual clusters with real daemons: MPI by Debian's libraries, IPython Parallel, Dask, Ray and Spark from PyPI (long). They
are resized while they run, to none and back, lose workers and heads, survive restarts of controller and agent, and are
private to their owner."""
import glob
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from tests.lab.cluster import Cluster
from tests.lab.proc import processes_naming, wait_until

DATA = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data/mpi")
CONFIG = "[cluster]\ngrace = 5s\n[node *]\ncpus = 32\n"
READY_S = 180


@pytest.fixture(name="cluster")
def _cluster():
    with Cluster(config=CONFIG) as c:
        yield c


def create(c, tmp_path, kind, name, *words, check=True):
    return c.cli("cluster", "create", kind, name, f"folder={tmp_path}", *words, check=check, cwd=tmp_path)


def members(c, name):
    job = json.loads(c.cli("cluster", "get", name, "--json").stdout)
    return [m for m in job["members"] if not m.get("ended")]


def ready(c, name):
    """The numbers of workers that are ready, without the head."""
    return [m["number"] for m in members(c, name) if m["component"] == "worker" and m["state"] == "running" and m.get("health") == "ready"]


def wait_workers(c, name, count):
    wait_until(lambda: len(ready(c, name)) == count and len(members(c, name)) == count + 1, READY_S,
               f"cluster {name} does not have {count} workers: {members(c, name)}")


def delete(c, name, kind, before):
    """Nothing of its workers stays in /tmp."""
    job = job_of(c, name)
    c.cli("cluster", "delete", name)
    ended(c, job)
    wait_until(lambda: not folders(kind) - before, 30, f"left: {folders(kind) - before}")


def folders(kind):
    return set(glob.glob(f"/tmp/acequia-{kind}-*"))


def job_of(c, name):
    return json.loads(c.cli("cluster", "get", name, "--json").stdout)["id"]


def ended(c, job):
    wait_until(lambda: c.api.get(f"/v1/jobs/{job}")["end_ms"], 60, f"job {job} does not end")


def restart_daemons(c):
    agent = next(x[:-4] for x in os.listdir(f"{c.home}/run") if x.startswith("agent-") and x.endswith(".pid"))
    c.kill_controller()
    c.kill(agent)
    c.cli("up")
    c.wait_ready()


def kill_worker(tmp_path, number):
    """kill -9 of all processes of a worker."""
    marks = [f"APP_FOLDER={tmp_path}\0".encode(), f"ACEQUIA_WORKER={number}\0".encode()]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                text = f.read()
            if all(m in text for m in marks):
                os.kill(int(pid), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            pass


def hosts(tmp_path, name):
    with open(f"{tmp_path}/{name}/hostfile", encoding="utf-8") as f:
        return [line.split()[0] for line in f]


def test_size_and_hosts_of_an_mpi_cluster(cluster, tmp_path):
    c = cluster
    create(c, tmp_path, "mpi", "hpc", "--workers", "2", "--cpus", "2", "--wait")
    assert "hpc   mpi   RUNNING      2/2      2" in c.cli("cluster", "list").stdout
    assert c.cli("cluster", "exec", "hpc", "--", "cat", f"{tmp_path}/hpc/hostfile").stdout == "worker-1 slots=2\nworker-2 slots=2\n"
    assert "mpirun" in c.cli("cluster", "connect", "hpc").stdout
    # what is in its folder is its owner's alone
    assert stat.S_IMODE(os.stat(f"{tmp_path}/hpc").st_mode) == 0o700
    # one of its name is there already; names that could leave the folder are refused
    again = create(c, tmp_path, "mpi", "hpc", check=False)
    assert again.returncode and "is there already" in again.stderr
    for name in ("../x", ".x", "a b", "a/b", ""):
        refused = create(c, tmp_path, "mpi", name, check=False)
        assert refused.returncode == 2, (name, refused.stderr)
    refused = create(c, tmp_path, "nothing", "x", check=False)
    assert refused.returncode == 2 and "there are dask, ipython, mpi" in refused.stderr
    refused = create(c, tmp_path, "mpi", "x", *[f"environment={tmp_path}"] * 70, check=False)  # none is left out in silence
    assert refused.returncode == 2 and "more than 64 fields" in refused.stderr
    # to none, and while the two still leave, to one
    c.cli("cluster", "resize", "hpc", "0")
    c.cli("cluster", "resize", "hpc", "1", "--wait")
    wait_workers(c, "hpc", 1)
    wait_until(lambda: hosts(tmp_path, "hpc") == ["worker-3"], 30, "the list of hosts does not follow the size")
    c.cli("cluster", "resize", "hpc", "0")
    wait_workers(c, "hpc", 0)
    none = c.cli("cluster", "exec", "hpc", "--", "true", check=False)
    assert none.returncode == 1 and "has no workers now" in none.stderr
    job = job_of(c, "hpc")
    c.cli("cluster", "delete", "hpc")
    ended(c, job)
    wait_until(lambda: not os.path.exists(f"{tmp_path}/hpc/enter"), 30, "files of the ended cluster are still there")
    gone = c.cli("cluster", "get", "hpc", check=False)
    assert gone.returncode == 1 and "there is no cluster" in gone.stderr


def test_a_link_in_the_place_of_the_folder(cluster, tmp_path):
    """Where others may write, one that leads elsewhere makes the head remove nothing there."""
    os.makedirs(tmp_path / "mine")
    (tmp_path / "mine/key.pem").write_text("mine")
    os.symlink(tmp_path / "mine", tmp_path / "linked")
    done = create(cluster, tmp_path, "mpi", "linked", "--workers", "0", "--wait", check=False)
    assert done.returncode == 1 and "cannot be made, or is not yours alone" in done.stdout + done.stderr, (done.stdout, done.stderr)
    assert os.listdir(tmp_path / "mine") == ["key.pem"]


@pytest.mark.parametrize("whose", ["link", "other"])
def test_a_worker_joins_no_head_of_another_user(tmp_path, whose):
    """A folder that somebody has prepared where all may write, with the right job and an endpoint of his own."""
    if whose == "other" and os.geteuid() != 0:
        pytest.skip("only root gives files away")
    there = tmp_path / ("c" if whose == "other" else "elsewhere")
    os.makedirs(there)
    (there / "job").write_text("5.1\n")
    (there / "endpoint").write_text("tls://192.0.2.1:1\n")
    (tmp_path / "members").write_text('{"worker":0,"state":"running","attempt":1}\n')
    if whose == "other":
        os.chown(there, 65534, 65534)
    else:
        os.symlink(there, tmp_path / "c")
    with open(os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(DATA))), "src/model/cluster.sh"), encoding="utf-8") as f:
        text = f.read() + 'start_worker() { echo "joins $endpoint"; }\ncluster_main\n'
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "APP_FOLDER": str(tmp_path), "ACEQUIA_JOB_NAME": "c", "ACEQUIA_JOB_ID": "6",
           "ACEQUIA_ATTEMPT": "1", "ACEQUIA_COMPONENT": "worker", "ACEQUIA_WORKERS_JOB": "5", "ACEQUIA_WORKER": "1",
           "ACEQUIA_WORKERS_FILE": str(tmp_path / "members")}
    done = subprocess.run(["sh", "-c", text], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "belongs to another user" in done.stderr and "joins" not in done.stdout, (done.stdout, done.stderr)


def test_a_cluster_for_one_command(cluster, tmp_path):
    done = cluster.cli("cluster", "run", "mpi", "--workers", "2", f"folder={tmp_path}", "--", "sh", "-c",
                       "wc -l < $OMPI_MCA_orte_default_hostfile; exit 7", check=False, cwd=tmp_path)
    assert done.returncode == 7 and done.stdout.splitlines()[0] == "2", done
    assert cluster.cli("cluster", "list").stdout.count("\n") == 1


@pytest.mark.long
def test_lost_workers_heads_and_daemons(cluster, tmp_path):
    c = cluster
    create(c, tmp_path, "mpi", "hpc", "--workers", "2", "--wait")
    restart_daemons(c)
    wait_workers(c, "hpc", 2)
    assert [m["attempt"] for m in members(c, "hpc")] == [1, 1, 1]  # nobody was started twice
    # a worker is killed: it is run again, and its host is back
    kill_worker(tmp_path, 1)
    wait_until(lambda: members(c, "hpc")[1]["attempt"] == 2, 60, "the killed worker is not run again")
    wait_workers(c, "hpc", 2)
    # the head is killed: another one takes over, and the workers join it
    kill_worker(tmp_path, 0)
    wait_until(lambda: members(c, "hpc")[0]["attempt"] == 2, 60, "the killed head is not run again")
    wait_until(lambda: all(m["attempt"] > 1 for m in members(c, "hpc")), READY_S, "workers of the lost head are not run again")
    wait_workers(c, "hpc", 2)
    # resized while workers start
    c.cli("cluster", "resize", "hpc", "8")
    c.cli("cluster", "resize", "hpc", "3")
    wait_workers(c, "hpc", 3)
    # a folder that belongs to somebody else
    if os.geteuid() == 0:
        os.makedirs(f"{tmp_path}/other")
        os.chown(f"{tmp_path}/other", 65534, 65534)
        refused = create(c, tmp_path, "mpi", "other", "--wait", "--retries", "1", check=False)
        assert refused.returncode == 1 and "is not yours alone" in refused.stdout + refused.stderr


@pytest.mark.long
@pytest.mark.parametrize("kind, compiler, start", [("openmpi", "mpicc.openmpi", ["mpirun.openmpi", "--allow-run-as-root"]),
                                                   ("mpich", "mpicc.mpich", ["mpiexec.mpich"])])
def test_mpirun_uses_the_workers_that_are_there(cluster, tmp_path, kind, compiler, start):
    c = cluster
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    program = f"{tmp_path}/check"
    subprocess.run([compiler, "-o", program, f"{DATA}/check.c"], check=True)
    create(c, tmp_path, "mpi", kind, "--workers", "2", "--cpus", "2", "--wait")

    def ranks():
        out = c.cli("cluster", "exec", kind, "--", *start, program, "hello", timeout=120).stdout
        return sorted(line for line in out.splitlines() if line.startswith("rank"))
    assert ranks() == [f"rank {i} of 4 sum 6" for i in range(4)]
    c.cli("cluster", "resize", kind, "3", "--wait")
    assert ranks() == [f"rank {i} of 6 sum 15" for i in range(6)]
    # a worker that is removed under mpirun ends the program, with a message, and nothing is left
    long = subprocess.Popen([c.binary, "cluster", "exec", kind, "--", *start, program, "wait", f"{tmp_path}/go"], env=c.env,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_until(lambda: os.path.exists(f"{tmp_path}/go.ready"), 60, "the program does not start")
    c.cli("cluster", "resize", kind, "1")
    out = long.communicate(timeout=120)[0]
    assert long.returncode != 0 and out, out
    wait_until(lambda: not processes_naming(program), 60, "ranks are left")


# --- with packages from PyPI ---

@pytest.fixture(scope="session", name="packages")
def _packages(tmp_path_factory):
    """An environment with the frameworks; ACEQUIA_CLUSTER_ENVIRONMENT names one that is there already."""
    there = os.environ.get("ACEQUIA_CLUSTER_ENVIRONMENT")
    if there:
        return there
    folder = str(tmp_path_factory.mktemp("python"))
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([f"{folder}/bin/pip", "install", "-q", "ipyparallel", "distributed", "bokeh", "ray[default]", "pyspark"], check=True)
    return folder


def python(c, packages, name, text, check=True):
    """What Python prints after the line that connects."""
    line = c.cli("cluster", "connect", name).stdout
    done = subprocess.run([f"{packages}/bin/python", "-c", line + text], capture_output=True, text=True, check=False, timeout=300)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def refused(packages, text):
    """Whether a client without the keys fails, or is still waiting for an answer after a minute."""
    try:
        return subprocess.run([f"{packages}/bin/python", "-c", text], capture_output=True, check=False, timeout=60).returncode != 0
    except subprocess.TimeoutExpired:
        return True


def secrets_are_private(folder):
    for where, _, files in os.walk(folder):
        for name in files:
            mode = stat.S_IMODE(os.stat(os.path.join(where, name)).st_mode)
            assert name == "README" or not mode & 0o077, (where, name, oct(mode))


@pytest.mark.long
def test_ipython_engines_come_and_go(cluster, packages, tmp_path):
    c = cluster
    create(c, tmp_path, "ipython", "lab", "--workers", "2", "--environment", packages, "--wait")
    secrets_are_private(f"{tmp_path}/lab")
    assert python(c, packages, "lab", "print(sorted(client[:].apply_sync(lambda: 6 * 7)), len(client.ids))") == "[42, 42] 2"
    # a client that stays sees engines join and leave
    code = c.cli("cluster", "connect", "lab").stdout + (
        "import sys, time\nfor line in sys.stdin:\n    n = int(line)\n    end = time.time() + 120\n"
        "    while len(client.ids) != n and time.time() < end: time.sleep(0.1)\n    print(len(client.ids), flush=True)\n")
    with subprocess.Popen([f"{packages}/bin/python", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        for size in (4, 1):
            c.cli("cluster", "resize", "lab", str(size), "--wait")
            client.stdin.write(f"{size}\n")
            client.stdin.flush()
            assert client.stdout.readline().strip() == str(size)
        restart_daemons(c)
        client.stdin.write("1\n")
        client.stdin.flush()
        assert client.stdout.readline().strip() == "1"
        client.stdin.close()
    assert python(c, packages, "lab", "print(client[:].apply_sync(lambda: 6 * 7))") == "[42]"
    # results of the past are in its SQLite file
    assert int(python(c, packages, "lab", "print(len(client.db_query({'completed': {'$ne': None}})))")) >= 3
    job = job_of(c, "lab")
    c.cli("cluster", "delete", "lab")
    ended(c, job)
    assert not os.path.exists(f"{tmp_path}/lab/profile/security") and os.path.exists(f"{tmp_path}/lab/profile/tasks.db")


@pytest.mark.long
def test_dask_with_its_dashboard(cluster, packages, tmp_path):
    c, before = cluster, folders("dask")
    create(c, tmp_path, "dask", "d", "--workers", "2", "--environment", packages, "--wait")
    secrets_are_private(f"{tmp_path}/d")
    total = "print(sum(client.gather(client.map(lambda x: x * x, range(10)))), len(client.scheduler_info(n_workers=-1)['workers']))"
    assert python(c, packages, "d", total) == "285 2"
    # a key of somebody else is refused, and so is none
    endpoint = open(f"{tmp_path}/d/endpoint", encoding="utf-8").read().strip()
    other = f"{tmp_path}/other"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x", "-keyout", other + ".key", "-out", other + ".pem"],
                   check=True, capture_output=True)
    attempt = (f"from distributed import Client, Security\nClient({endpoint!r}, timeout=5, security=Security(require_encryption=True, "
               f"tls_ca_file={other + '.pem'!r}, tls_client_cert={other + '.pem'!r}, tls_client_key={other + '.key'!r}))")
    assert refused(packages, attempt)
    # the dashboard comes through the proxy
    url = next(x for x in c.cli("cluster", "get", "d").stdout.split() if x.startswith("http"))
    assert ".localhost" in url
    job = job_of(c, "d")
    opened = json.loads(c.cli("open", str(job), "--json").stdout)
    assert opened["url"] == url
    # work goes on while workers leave and come, and daemons restart
    work = ("import time\nf = client.map(lambda x: (time.sleep(0.5), x)[1], range(40))\nprint(sum(client.gather(f)))")
    code = c.cli("cluster", "connect", "d").stdout + work
    with subprocess.Popen([f"{packages}/bin/python", "-c", code], stdout=subprocess.PIPE, text=True) as client:
        c.cli("cluster", "resize", "d", "4", "--wait")
        restart_daemons(c)
        c.cli("cluster", "resize", "d", "2")
        assert client.communicate(timeout=240)[0].strip() == str(sum(range(40)))
    wait_workers(c, "d", 2)
    delete(c, "d", "dask", before)


def size_of(c, name):
    return len([m for m in members(c, name) if m["component"] == "worker" and m["state"] not in ("left", "leaving")])


DEMAND = {"dask": ("import time\nf = client.map(lambda x: (time.sleep(1), x)[1], range(16))\nprint(sum(client.gather(f)))\ndel f\nclient.close()", []),
          "ray": ("import time\nf = ray.remote(lambda x: (time.sleep(1), x)[1])\nprint(sum(ray.get([f.remote(i) for i in range(16)])))",
                  ["--memory", "4G"])}


@pytest.mark.long
@pytest.mark.parametrize("kind", sorted(DEMAND))
def test_growth_by_demand(cluster, packages, tmp_path, kind):
    """From no workers to the limit while work waits, over a restart of the daemons, and to none when it is done."""
    c, (work, more) = cluster, DEMAND[kind]
    wrong = create(c, tmp_path, kind, "wrong", "--workers", "0", "--environment", packages, "demand=3-2", "--retries", "0", "--wait", check=False)
    assert wrong.returncode == 1 and "first number is larger" in wrong.stdout + wrong.stderr, wrong
    create(c, tmp_path, kind, "d", "--workers", "0", "--environment", packages, "demand=0-3", *more, "--wait")
    line = c.cli("cluster", "connect", "d").stdout
    with subprocess.Popen([f"{packages}/bin/python", "-c", line + work], stdout=subprocess.PIPE, text=True) as client:
        wait_until(lambda: size_of(c, "d") == 3, READY_S, "the cluster does not grow to its limit")
        restart_daemons(c)
        assert client.communicate(timeout=300)[0].strip() == "120"
    wait_until(lambda: size_of(c, "d") == 0, READY_S, f"idle workers do not leave: {members(c, 'd')}")


@pytest.mark.long
def test_ray(cluster, packages, tmp_path):
    c, before = cluster, folders("ray")
    create(c, tmp_path, "ray", "r", "--workers", "2", "--memory", "4G", "--environment", packages, "--wait")
    secrets_are_private(f"{tmp_path}/r")
    work = ("f = ray.remote(lambda x: (x * x, ray.get_runtime_context().get_node_id()))\n"
            "out = ray.get([f.remote(i) for i in range(20)])\nprint(sum(x for x, _ in out), int(ray.cluster_resources()['CPU']))")
    assert python(c, packages, "r", work) == "2470 2"
    # without the token nothing of it answers
    endpoint = open(f"{tmp_path}/r/endpoint", encoding="utf-8").read().strip()
    assert refused(packages, f"import ray; ray.init(address={endpoint!r})")
    port = json.loads(c.cli("cluster", "get", "r", "--json").stdout)["ports"][0].split(":")[1]
    for path, wanted in (("/api/jobs/", 401), ("/api/cluster_status", 401)):
        with pytest.raises(urllib.error.HTTPError) as answer:
            urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60)
        assert answer.value.code == wanted
    c.cli("cluster", "resize", "r", "1", "--wait")
    c.cli("cluster", "resize", "r", "3", "--wait")
    wait_workers(c, "r", 3)
    delete(c, "r", "ray", before)


@pytest.mark.long
def test_spark(cluster, packages, tmp_path):
    c = cluster
    if not shutil.which("java"):
        pytest.skip("java is not installed")
    create(c, tmp_path, "spark", "s", "--workers", "2", "--memory", "2G", "--environment", packages, "--wait")
    secrets_are_private(f"{tmp_path}/s")
    assert python(c, packages, "s", "print(spark.sparkContext.parallelize(range(100), 4).map(lambda x: x * x).sum())") == "328350"
    endpoint = open(f"{tmp_path}/s/endpoint", encoding="utf-8").read().strip()
    attempt = (f"from pyspark.sql import SparkSession\nspark = SparkSession.builder.master({endpoint!r}).getOrCreate()\n"
               "print(spark.sparkContext.parallelize(range(3)).sum())")
    assert refused(packages, attempt)
    c.cli("cluster", "resize", "s", "3", "--wait")
    wait_workers(c, "s", 3)


@pytest.mark.long
def test_the_mandelbrot_example(cluster, packages, tmp_path):
    tree = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    out = subprocess.run([f"{packages}/bin/python", f"{tree}/examples/ipython-mandelbrot/run", "--engines", "1,2,4", "--width", "60", "--height", "30",
                          "--tasks", "4", "--repeat", "1", "--show", "--", "--environment", packages, f"folder={tmp_path}"],
                         env=dict(cluster.env, ACEQUIA=cluster.binary), cwd=tmp_path, capture_output=True, text=True, check=False, timeout=400)
    assert out.returncode == 0, out.stdout + out.stderr
    rows = [line.split() for line in out.stdout.splitlines() if line.split()[:1] in (["1"], ["2"], ["4"])]
    assert [r[0] for r in rows] == ["1", "2", "4"] and rows[0][2:] == ["1.00", "100%"]
    picture = [line for line in out.stdout.splitlines() if len(line) == 60]
    assert len(picture) == 30 and picture[1] == picture[-1], out.stdout
    with open(f"{tmp_path}/mandelbrot.svg", encoding="utf-8") as f:
        assert f.read().count("<polyline") == 4
