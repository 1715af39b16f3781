"""MPI programs over several nodes by srun: Debian's MPICH (PMI) and Open MPI (PMIx), killed ranks, lost nodes, restarts of
agents and of the controller in the middle. Nodes are network namespaces; without root the tests run on one node."""
import os
import re
import shutil
import subprocess
import sys
import time

import pytest

from tests.journeys.test_chaos import needs_namespaces
from tests.lab.cluster import Cluster
from tests.lab.images import make_rootfs
from tests.lab.network import Network
from tests.lab.proc import processes_naming, wait_until

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data/mpi")
CONFIG = "[node *]\ncpus = 64\n"
KINDS = {"mpich": "mpicc.mpich", "openmpi": "mpicc.openmpi"}
HEADERS = {"mpich": "/usr/include/x86_64-linux-gnu/mpich/mpi.h", "openmpi": "/usr/lib/x86_64-linux-gnu/openmpi/include/mpi.h"}


@pytest.fixture(scope="module", name="programs")
def compile_programs(tmp_path_factory):
    """The check program with each library that is installed."""
    folder = tmp_path_factory.mktemp("mpi")
    os.chmod(folder, 0o755)
    found = {}
    for kind, compiler in KINDS.items():
        out = f"{folder}/check-{kind}"
        if shutil.which(compiler) and subprocess.run([compiler, "-O1", "-o", out, f"{FOLDER}/check.c"], capture_output=True, check=False).returncode == 0:
            found[kind] = out
    if not found:
        pytest.skip("no MPI compiler is installed (mpich, libopenmpi-dev)")
    return found


def slurm_environment(c):
    """Slurm's commands first; Open MPI's nodes of one machine talk by TCP."""
    subprocess.run([c.binary, "slurm-commands", f"{c.home}/bin"], env=c.env, check=True, capture_output=True)
    return dict(c.env, PATH=f"{c.home}/bin:{c.env['PATH']}", OMPI_MCA_btl="tcp,self", OMPI_MCA_btl_base_warn_component_unused="0")


@pytest.fixture(scope="module", name="one")
def one_node():
    with Cluster(config=CONFIG) as c:
        c.shell_env = slurm_environment(c)
        yield c


@pytest.fixture(scope="module", name="three")
def three_nodes():
    names = ["n1", "n2", "n3"]
    with Network(["head", *names]) as net, Cluster(config=CONFIG, agents=names, network=net) as c:
        wait_until(lambda: sorted(c.nodes_up()) == names, 90, "the nodes do not appear")
        c.shell_env = slurm_environment(c)
        c.net = net
        yield c


def run(c, *command, timeout=180, **extra):
    return subprocess.run(command, env=dict(c.shell_env, **extra), capture_output=True, text=True, timeout=timeout, check=False)


def ranks_of(text):
    """Sorted (rank, size, sum) of the lines that the check program printed."""
    return sorted(tuple(int(n) for n in m) for m in re.findall(r"rank (\d+) of (\d+) sum (-?\d+)", text))


def expected(size):
    return [(r, size, size * (size - 1) // 2) for r in range(size)]


def kinds(programs):
    return sorted(programs.items())


def no_helper_is_left(c):
    def left():
        return [p for p in processes_naming("acequia-mpi") if name_is_helper(p)]
    wait_until(lambda: not left(), 60, f"helpers are left: {left()}")


def name_is_helper(pid):
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8") as f:
            return f.read().strip() == "acequia-mpi"
    except OSError:
        return False


def test_ranks_of_one_node_are_one_program(one, programs):
    for kind, program in kinds(programs):
        r = run(one, "srun", "-n", "4", program)
        assert (r.returncode, ranks_of(r.stdout)) == (0, expected(4)), (kind, r)
        option = {"mpich": "pmi2", "openmpi": "pmix"}[kind]
        r = run(one, "srun", "-n", "3", f"--mpi={option}", program)
        assert (r.returncode, ranks_of(r.stdout)) == (0, expected(3)), (kind, r)
        r = run(one, "srun", "-n", "1", program)
        assert (r.returncode, ranks_of(r.stdout)) == (0, expected(1)), (kind, r)


def test_a_script_may_run_any_library(one, programs):
    script = "; ".join(p for _, p in kinds(programs))
    r = run(one, "srun", "-n", "3", "bash", "-c", script)
    assert r.returncode == 0 and ranks_of(r.stdout) == sorted(expected(3) * len(programs)), r


def test_many_programs_of_one_rank_are_said(one, programs):
    if "mpich" not in programs:
        pytest.skip("MPICH is not installed")
    r = run(one, "srun", "-n", "3", "--mpi=none", programs["mpich"])
    assert ranks_of(r.stdout) == expected(1) * 3
    assert "each of its tasks is an MPI program of its own" in r.stderr and "--mpi=pmi2" in r.stderr, r
    r = run(one, "srun", "-n", "3", "--mpi=none", "true")
    assert (r.returncode, r.stderr) == (0, "")


def test_types_are_listed_and_unknown_ones_refused(one):
    assert run(one, "srun", "--mpi=list").stdout.split()[-3:] == ["none", "pmi2", "pmix"]
    r = run(one, "srun", "--mpi=nosuch", "true")
    assert r.returncode == 1 and "nosuch" in r.stderr


def test_programs_without_mpi_have_no_helper(one):
    r = run(one, "srun", "-n", "2", "env")
    assert r.returncode == 0 and "PMI_RANK" in r.stdout  # env may run anything
    r = run(one, "srun", "-n", "2", "printenv")
    assert r.returncode == 0 and "PMI_" not in r.stdout and "PMIX" not in r.stdout
    r = run(one, "srun", "-n", "1", "env")
    assert r.returncode == 0 and "PMI_RANK" not in r.stdout


def test_a_rank_that_ends_early_ends_the_step(one, programs):
    for kind, program in kinds(programs):
        for how, words in (("die", "rank 2 ended without MPI_Finalize"), ("leave", "rank 2 ended without MPI_Finalize"), ("abort", "")):
            r = run(one, "srun", "-n", "4", program, how, "2", timeout=120)
            assert r.returncode != 0 and words in r.stderr, (kind, how, r)
            assert how != "abort" or r.returncode == 7, (kind, r)  # what the program said
            assert not ranks_of(r.stdout) or how == "leave" or len(ranks_of(r.stdout)) < 4
    no_helper_is_left(one)


def test_what_killed_ranks_leave_in_memory_is_removed(one):
    """Open MPI's shared memory and PMIx's files lie in a folder of the step."""
    left = "d=$OMPI_MCA_btl_vader_backing_directory; echo $d; mkdir -p $d/a/b; ln -s /etc $d/a/link; touch $d/a/b/c; kill -9 $$"
    r = run(one, "srun", "-n", "2", "--mpi=pmix", "sh", "-c", left)
    if "PMIx" in r.stderr:
        pytest.skip(r.stderr)
    folder = r.stdout.split()[0]
    assert folder.startswith("/dev/shm/acequia-mpi-"), r
    wait_until(lambda: not os.path.exists(folder), 60, "files of the step are left")
    assert os.path.exists("/etc/passwd")
    r = run(one, "srun", "-n", "2", "--mpi=pmix", "printenv", "OMPI_MCA_btl_sm_backing_directory", OMPI_MCA_btl_sm_backing_directory="/tmp")
    assert r.stdout.split() == ["/tmp"] * 2, r  # the user's own stays


def test_mpirun_in_a_job_stays_inside_it(one, programs):
    """Open MPI's own mpirun and MPICH's mpiexec, in sbatch: without ssh, and nothing is left when the job is cancelled."""
    starters = {"openmpi": "mpirun.openmpi --allow-run-as-root --oversubscribe -n 4", "mpich": "mpiexec.mpich -n 4"}
    for kind, program in kinds(programs):
        r = run(one, "salloc", "-Q", "-n", "4", "bash", "-c", f"{starters[kind]} {program}")
        assert (r.returncode, ranks_of(r.stdout)) == (0, expected(4)), (kind, r)
        job = run(one, "sbatch", "--parsable", "-n", "4", "-o", "/dev/null", "--wrap", f"{starters[kind]} {program} wait {one.home}/never-{kind}").stdout.strip()
        wait_until(lambda k=kind: os.path.exists(f"{one.home}/never-{k}.ready"), 90, "the ranks do not meet")
        assert processes_naming(f"never-{kind}")
        run(one, "scancel", job)
        wait_until(lambda k=kind: not processes_naming(f"never-{k}"), 90, "ranks are left")


@pytest.mark.long
def test_256_ranks_start(one, programs):
    """Processes of Open MPI wait by polling, which takes long on a small machine: fewer of them, unless MPI_RANKS says more."""
    for kind, program in kinds(programs):
        size = int(os.environ.get("MPI_RANKS", "256" if kind == "mpich" else "64"))
        r = run(one, "srun", "-n", str(size), "--overcommit", "--mem=8G", program, timeout=500, OMPI_MCA_mpi_yield_when_idle="1")
        assert (r.returncode, ranks_of(r.stdout)) == (0, expected(size)), (kind, r.stderr[-1000:])


def test_tasks_are_bound_as_asked(one):
    show = "grep Cpus_allowed_list /proc/self/status"
    own = run(one, "srun", "-n", "1", "bash", "-c", "nproc").stdout.strip()
    r = run(one, "srun", "-n", "2", "--cpu-bind=verbose,map_cpu:1,0", "--overcommit", "bash", "-c", f"echo $SLURM_PROCID; {show}")
    assert r.returncode == 0, r
    masks = re.findall(r"cpu-bind=MASK - \S+, task +(\d+) +(\d+) \[\d+\]: mask 0x(\w+) set", r.stderr)
    bound = os.cpu_count() >= 2
    if bound:
        assert sorted((int(m[0]), int(m[2], 16)) for m in masks) == [(0, 2), (1, 1)], r
    r = run(one, "srun", "-n", "2", "--cpu-bind=mask_cpu:0x3", "--overcommit", "bash", "-c", show)
    assert r.returncode == 0 and (not bound or r.stdout.split() == ["Cpus_allowed_list:", "0-1"] * 2), (r, own)
    r = run(one, "srun", "-n", "2", "--cpu-bind=map_cpu:x", "true")
    assert r.returncode != 0 and "not a CPU" in r.stderr


@pytest.fixture(scope="module", name="speaker")
def compile_speaker(tmp_path_factory):
    """A program that speaks PMI-1 without any library."""
    folder = tmp_path_factory.mktemp("speaker")
    os.chmod(folder, 0o755)
    subprocess.run(["gcc", "-O1", "-o", f"{folder}/rank", f"{FOLDER}/pmi_client.c"], check=True)
    return f"{folder}/rank"


def spawned(c, speaker, tmp_path, *options, program=(), timeout=120):
    os.chmod(tmp_path, 0o777)
    return run(c, "srun", "--mpi=pmi2", *options, speaker, "spawn", "2", *program, FILE=f"{tmp_path}/there", timeout=timeout)


def children(text):
    return sorted(line for line in text.splitlines() if line.startswith("child"))


CHILDREN = [f"child {i} of 2: it's a child, value=a b=c" for i in range(2)]


def test_ranks_start_further_ranks(one, speaker, tmp_path):
    """They are a step of the job, with the output of the asking one, and end with it."""
    r = spawned(one, speaker, tmp_path, "-n", "2")
    assert r.returncode == 0 and "spawn: cmd=spawn_result rc=0" in r.stdout and children(r.stdout) == CHILDREN, r
    # also into a file, and from a step of one task
    out = tmp_path / "out"
    r = spawned(one, speaker, tmp_path, "-n", "1", "-o", str(out))
    assert r.returncode == 0 and children(out.read_text()) == CHILDREN, (r, out.read_text())
    # a program that is not there ends all, with its status and message
    for f in tmp_path.glob("there.*"):
        f.unlink()
    r = spawned(one, speaker, tmp_path, "-n", "2", program=["/nonexistent/program"])
    assert r.returncode == 127 and "/nonexistent/program" in r.stderr and "started with MPI_Comm_spawn ended with status 127" in r.stderr, r
    no_helper_is_left(one)


def test_a_step_that_is_ended_takes_the_ranks_it_started_along(one, speaker, tmp_path):
    script = f"touch {tmp_path}/began; exec sleep 1000"
    (tmp_path / "child").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "child").chmod(0o755)
    job = run(one, "sbatch", "--parsable", "-n", "1", "-o", "/dev/null", "--export", f"ALL,FILE={tmp_path}/never", "--wrap",
              f"srun --mpi=pmi2 {speaker} spawn 2 {tmp_path}/child").stdout.strip()
    wait_until(lambda: (tmp_path / "began").exists(), 90, "the ranks are not started")
    assert "spawned" in run(one, "sacct", "-n", "-j", job, "-o", "jobname%20").stdout
    run(one, "scancel", f"{job}.0")  # the step that asked for them
    wait_until(lambda: not processes_naming(f"{tmp_path}/child") and not run(one, "squeue", "-h", "-j", job).stdout.strip(), 90, "ranks are left")
    no_helper_is_left(one)


def copy_with_libraries(root, *paths):
    """Files and folders of the machine into an image's root, with every library that they name."""
    names = set(paths)
    for path in paths:
        found = [path] if os.path.isfile(path) else [os.path.join(where, f) for where, _, files in os.walk(path) for f in files if ".so" in f]
        for f in found:
            listed = subprocess.run(["ldd", f], capture_output=True, text=True, check=False).stdout
            names |= set(re.findall(r"(/\S+) \(0x", listed))
    for path in sorted(names):
        os.makedirs(os.path.dirname(root + path), exist_ok=True)
        if os.path.isdir(path):
            shutil.copytree(path, root + path, dirs_exist_ok=True)
        elif not os.path.exists(root + path):
            shutil.copy(path, root + path)


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("busybox") or not shutil.which("mksquashfs"), reason="needs busybox and mksquashfs")
def test_libraries_in_containers(one, programs, tmp_path):
    """Open MPI by PMIx and MPICH by PMI in an image of their own, started by srun and by mpirun inside the container."""
    root = make_rootfs(f"{tmp_path}/root")
    starters = {"openmpi": ["/usr/bin/orterun", "--allow-run-as-root", "--oversubscribe"], "mpich": ["/usr/bin/mpiexec.hydra"]}
    library = "/usr/lib/x86_64-linux-gnu"
    more = [p for p in (f"{library}/openmpi", f"{library}/pmix2", f"{library}/ucx", "/etc/openmpi", "/usr/share/openmpi", "/usr/bin/orterun", "/usr/bin/orted",
                        "/usr/bin/mpiexec.hydra", "/usr/bin/hydra_pmi_proxy") if os.path.exists(p)]
    copy_with_libraries(root, *more, *programs.values())
    image = f"{tmp_path}/image.sqsh"
    subprocess.run(["mksquashfs", root, image, "-quiet", "-no-progress"], check=True, capture_output=True)
    os.chmod(tmp_path, 0o755)
    for kind, program in kinds(programs):
        r = run(one, "srun", "-n", "3", f"--container-image={image}", program)
        if "containers cannot be run" in r.stderr:
            pytest.skip(r.stderr)
        assert (r.returncode, ranks_of(r.stdout)) == (0, expected(3)), (kind, r)
        r = run(one, "acequia", "run", "--cpus", "3", "--container", image, "--", *starters[kind], "-n", "3", program)
        assert (r.returncode, ranks_of(r.stdout)) == (0, expected(3)), (kind, r)
        r = run(one, "srun", "-n", "3", f"--container-image={image}", program, "die", "1")
        assert r.returncode != 0 and "rank 1 ended without MPI_Finalize" in r.stderr, (kind, r)
    no_helper_is_left(one)


PACKAGES = {  # from PyPI: the compiler, what starts ranks, and what the library can
    "mpich": (["mpich"], "bin/mpiexec", ("hello", "session", "spawn")),
    "impi": (["impi-rt", "impi-devel"], "bin/mpiexec.hydra", ("hello", "session", "spawn")),
    "openmpi": (["openmpi"], "bin/mpirun --allow-run-as-root --oversubscribe", ("hello",)),
}


@pytest.fixture(scope="session", name="library", params=sorted(PACKAGES))
def install_library(request, tmp_path_factory):
    """ACEQUIA_MPI_ENVIRONMENTS names a folder that has environments of these names."""
    kind = request.param
    there = os.environ.get("ACEQUIA_MPI_ENVIRONMENTS")
    home = f"{there}/{kind}" if there else str(tmp_path_factory.mktemp(kind))
    if not there:
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        subprocess.run([f"{home}/bin/pip", "install", "-q", *PACKAGES[kind][0]], check=True)
    folder = tmp_path_factory.mktemp(f"program-{kind}")
    os.chmod(folder, 0o755)
    program = f"{folder}/check"
    subprocess.run(["gcc", "-O1", f"-I{home}/include", "-o", program, f"{FOLDER}/check.c", f"-L{home}/lib", "-lmpi", f"-Wl,-rpath,{home}/lib"], check=True)
    return kind, home, program


@pytest.mark.long
def test_libraries_from_pypi(one, library):
    kind, home, program = library
    starter, can = PACKAGES[kind][1:]
    more = {"I_MPI_SPAWN": "on", "OMPI_MCA_btl": "self,sm"}
    for what in ("hello", "session"):
        if what in can:
            r = run(one, "srun", "-n", "4", "--mem=8G", program, what, **more)
            assert (r.returncode, ranks_of(r.stdout)) == (0, expected(4)), (kind, what, r)
    r = run(one, "salloc", "-Q", "-n", "4", "--mem=8G", "bash", "-c", f"{home}/{starter} -n 4 {program}", **more)
    assert (r.returncode, ranks_of(r.stdout)) == (0, expected(4)), (kind, r)
    r = run(one, "srun", "-n", "4", "--mem=8G", program, "abort", "2", timeout=120, **more)
    assert r.returncode == 7, (kind, r)
    r = run(one, "srun", "-n", "2", "--mem=8G", program, "spawn", "2", **more)
    if "spawn" not in can:
        assert r.returncode != 0
        return
    assert r.returncode == 0 and r.stdout.count("parent") == 2 and r.stdout.count("of 2 with 2 sum 201") == 4, (kind, r)
    r = run(one, "srun", "-n", "2", "--mem=8G", program, "spawn", "2", "two", **more)
    assert r.returncode == 0 and r.stdout.count("of 3 with 2 sum 301") == 3, (kind, r)
    for how, code in (("missing", 127), ("fail", 3), ("die", None)):
        r = run(one, "srun", "-n", "2", "--mem=8G", program, "spawn", "2", how, timeout=120, **more)
        assert r.returncode == code if code else r.returncode, (kind, how, r)
        assert "started with MPI_Comm_spawn ended with status" in r.stderr, (kind, how, r)
    no_helper_is_left(one)


@needs_namespaces
@pytest.mark.long
def test_ranks_of_pypi_start_further_ones_on_several_nodes(three, library):
    kind, _, program = library
    if "spawn" in PACKAGES[kind][2]:
        r = run(three, "srun", "-N", "3", "-n", "3", "--mem=4G", program, "spawn", "3", I_MPI_SPAWN="on")
        assert r.returncode == 0 and r.stdout.count("child") == 3, (kind, r)


@needs_namespaces
def test_ranks_that_are_started_are_on_several_nodes(three, speaker, tmp_path):
    r = spawned(three, speaker, tmp_path, "-N", "3", "-n", "3")
    assert r.returncode == 0 and children(r.stdout) == CHILDREN, r
    no_helper_is_left(three)


@needs_namespaces
def test_ranks_of_several_nodes_are_one_program(three, programs):
    for kind, program in kinds(programs):
        for distribution in ("block", "cyclic"):
            r = run(three, "srun", "-N", "3", "-n", "6", "-m", distribution, program)
            assert (r.returncode, ranks_of(r.stdout)) == (0, expected(6)), (kind, distribution, r)
        r = run(three, "srun", "-N", "2", "-n", "3", program)
        assert (r.returncode, ranks_of(r.stdout)) == (0, expected(3)), (kind, r)
    no_helper_is_left(three)


@needs_namespaces
def test_mpirun_over_several_nodes(three, programs):
    """The libraries' own starters find the job's nodes, and start their daemons there by srun."""
    starters = {"openmpi": "mpirun.openmpi --allow-run-as-root -n 6", "mpich": "mpiexec.mpich -iface e0 -n 6"}
    for kind, program in kinds(programs):
        out = f"{three.home}/mpirun-{kind}.out"
        r = run(three, "sbatch", "--wait", "-N", "3", "-n", "6", "-o", out, "--wrap", f"{starters[kind]} {program}")
        with open(out, encoding="utf-8") as f:
            text = f.read()
        assert (r.returncode, ranks_of(text)) == (0, expected(6)), (kind, r, text)


@needs_namespaces
def test_a_rank_that_is_killed_ends_the_step_on_all_nodes(three, programs):
    for kind, program in kinds(programs):
        r = run(three, "srun", "-N", "3", "-n", "6", program, "die", "5", timeout=150)
        assert r.returncode != 0 and r.stderr.count("rank 5 ended without MPI_Finalize") == 1, (kind, r)
    no_helper_is_left(three)


@needs_namespaces
def test_restarts_in_the_middle_are_not_noticed(three, programs):
    """Agents and the controller are killed while the ranks wait in the middle, and while the next step starts."""
    for kind, program in kinds(programs):
        go = f"{three.home}/go-{kind}"
        step = subprocess.Popen(["srun", "-N", "3", "-n", "6", program, "wait", go], env=three.shell_env,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_until(lambda g=go: os.path.exists(f"{g}.ready"), 120, "the ranks do not meet")
        for name in ("n1", "n2"):
            three.kill_agent(name)
        three.kill_controller()
        three.start_controller()
        for name in ("n1", "n2"):
            three.start_agent(name)
        three.wait_ready()
        wait_until(lambda: len(three.nodes_up()) == 3, 90, "the nodes do not come back")
        with open(go, "w", encoding="utf-8"):
            pass
        out, err = step.communicate(timeout=180)
        assert (step.returncode, ranks_of(out)) == (0, expected(6)), (kind, out, err)


@needs_namespaces
def test_nodes_find_each_other_over_restarts(three, programs):
    """The controller dies right after the step's start, several times: helpers are told again."""
    kind, program = kinds(programs)[0]
    for i in range(3):
        step = subprocess.Popen(["srun", "-N", "3", "-n", "6", program], env=three.shell_env, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)
        time.sleep(0.1 + 0.15 * i)
        three.kill_controller()
        three.start_controller()
        three.wait_ready()
        out, err = step.communicate(timeout=180)
        assert (step.returncode, ranks_of(out)) == (0, expected(6)), (kind, i, out, err)


@needs_namespaces
def test_a_lost_node_ends_the_step(three, programs):
    """Its helper is killed with everything else of the step there."""
    kind, program = kinds(programs)[0]
    never = f"{three.home}/never-lost"
    step = subprocess.Popen(["srun", "-N", "3", "-n", "6", program, "wait", never], env=three.shell_env,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: os.path.exists(f"{never}.ready"), 120, "the ranks do not meet")
    helpers = [p for p in processes_naming("acequia-mpi") if name_is_helper(p)]
    assert len(helpers) == 3
    os.kill(helpers[-1], 9)
    out, err = step.communicate(timeout=150)
    assert step.returncode != 0 and "MPI" in err, (kind, out, err)
    wait_until(lambda: not processes_naming(never), 60, "ranks are left")
    no_helper_is_left(three)


@pytest.mark.skipif(not shutil.which("hpcc"), reason="hpcc is not installed")
def test_the_example_of_hpl(one, tmp_path):
    tree = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    r = run(one, f"{tree}/examples/mpi-hpl/run", "--sizes", "64,128", "--blocks", "16", "--grids", "1x1,1x2", "--folder", f"{tmp_path}/hpl", "--mem=4G",
            timeout=400, OMPI_MCA_mpi_yield_when_idle="1")
    assert r.returncode == 0, r
    assert len(re.findall(r"^ +\d+ +16 +1 x [12] +[\d.]+ +[\d.]+$", r.stdout, re.M)) == 4 and "Best:" in r.stdout, r.stdout
    with open(f"{tmp_path}/hpl/hpl.svg", encoding="utf-8") as f:
        assert f.read().count("<polyline") == 2


@pytest.mark.skipif(not shutil.which("busybox") or not shutil.which("mksquashfs"), reason="needs busybox and mksquashfs")
def test_ranks_in_containers_find_each_other(one, tmp_path):
    """The socket of a rank passes into the container as it is; nothing is mounted for it."""
    root = make_rootfs(f"{tmp_path}/root")
    subprocess.run(["gcc", "-static", "-O1", "-o", f"{root}/bin/rank", f"{FOLDER}/pmi_client.c"], check=True)
    image = f"{tmp_path}/image.sqsh"
    subprocess.run(["mksquashfs", root, image, "-quiet", "-no-progress"], check=True, capture_output=True)
    os.chmod(tmp_path, 0o755)
    for options in ((), ("--mpi=pmi2",)):
        r = run(one, "srun", "-n", "3", *options, f"--container-image={image}", "/bin/rank")
        if "containers cannot be run" in r.stderr:
            pytest.skip(r.stderr)
        assert (r.returncode, ranks_of(r.stdout)) == (0, expected(3)), r
