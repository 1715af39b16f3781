"""GPUs through the whole program: parts that are kept to, devices that are out of reach, faults. On
simulated GPUs, and on pretended drivers (the tests' own libnvidia-ml.so.1 and libcuda.so.1 below
the real shim) where processes and their groups matter."""
import errno
import glob
import json
import os
import re
import shutil
import subprocess
import time

import pytest

from tests.lab.cluster import Cluster, find_binary
from tests.lab.proc import wait_until

SIMULATED = "[cluster]\ngrace = 1s\n[node *]\ncpus = 16\nmemory = 8G\ngpus = h200:2\ngpus_simulated = true\n"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="devices and other users' processes need root")


def submit(c, text, **spec):
    body = {"name": "t", "workdir": c.home, "output": f"{c.home}/out-%j", "argv": ["sh", "-c", text], **spec}
    return c.api.post("/v1/jobs", {"spec": body})["id"]


def with_environment(c, text, variables, **spec):
    body = {"name": "t", "workdir": c.home, "output": "/dev/null", "argv": ["sh", "-c", text], **spec}
    return c.api.post("/v1/jobs", {"spec": body, "environment": variables})["id"]


def job(c, number):
    return c.api.get(f"/v1/jobs/{number}")


def wait_state(c, number, state, seconds=20):
    wait_until(lambda: job(c, number)["state"].upper() == state, seconds, f"job {number} does not become {state}", 0.1)


# --- simulated GPUs ---

def test_gpus_that_the_nodes_cannot_share_equally():
    """-N2 --gpus=3: two and one, also for a step, also after the controller was killed."""
    with Cluster(config=SIMULATED, agents=("n1", "n2")) as c:
        number = submit(c, "sleep 600", nodes_min=2, gpus_milli=3000)
        wait_state(c, number, "RUNNING")

        def held():
            return [len(p["gpus"]) for p in job(c, number)["parts"]]
        assert held() == [2, 1]
        c.kill_controller()
        c.start_controller()
        c.wait_ready()
        assert held() == [2, 1]
        seen = c.cli("exec", str(number), "--", "sh", "-c", "echo $ACEQUIA_GPUS_ON_NODE").stdout
        assert seen.split() == ["2"]
        text = c.cli("submit", "-N", "2", "--gpus", "5", "--", "true", check=False).stderr
        assert "gpus: 5, but no 2 of the nodes it may use have as many together" in text.replace("--", "")


def test_a_job_beyond_its_part_is_ended_with_a_reason():
    with Cluster(config=SIMULATED) as c:
        honest = with_environment(c, "sleep 3600", ["ACEQUIA_SIMULATED_GPU_MEMORY=70G"], gpus_milli=500)
        greedy = with_environment(c, "sleep 3600", ["ACEQUIA_SIMULATED_GPU_MEMORY=90G"], gpus_milli=500)
        wait_state(c, greedy, "FAILED", 50)
        reason = "its processes held 92160 MiB of GPU 0 where the job may hold 72192 MiB; ask for more with --gpu-memory"
        assert reason in job(c, greedy)["reason"]
        assert reason in c.cli("get", str(greedy)).stdout.replace("\n", " ")
        events = c.cli("events", str(greedy)).stdout
        assert "cause=gpu" in events and "part_ended" in events
        time.sleep(2)
        assert job(c, honest)["state"].upper() == "RUNNING"
        assert not job(c, honest).get("warning")


@pytest.mark.long
def test_the_policy_can_be_to_warn_only():
    with Cluster(config=SIMULATED + "gpu_audit = warn\n") as c:
        greedy = with_environment(c, "sleep 3600", ["ACEQUIA_SIMULATED_GPU_MEMORY=90G"], gpus_milli=500)
        wait_until(lambda: "does not keep to its part" in c.cli("get", str(greedy)).stdout, 15, "no warning", 0.3)
        assert "acequia_job_gpu_outside_limits{" in c.api.raw("GET", "/metrics")[1].decode()
        time.sleep(2)
        assert job(c, greedy)["state"].upper() == "RUNNING"
        status = c.api.get("/v1/status")
        assert f"1 job does not keep to its part of a GPU: {greedy} of {status['user']}" in status["warnings"]
        assert f"job {greedy} of" in c.log_tail("controller") and "does not keep to its part" in c.log_tail("controller")
    with Cluster(config=SIMULATED + "gpu_audit = off\n") as c:
        greedy = with_environment(c, "sleep 3600", ["ACEQUIA_SIMULATED_GPU_MEMORY=90G"], gpus_milli=500)
        time.sleep(6)
        assert "does not keep to its part" not in c.cli("get", str(greedy)).stdout
        assert job(c, greedy)["state"].upper() == "RUNNING"


def test_a_faulty_gpu_gets_no_jobs_until_it_is_well():
    with Cluster(config=SIMULATED) as c:
        node = c.nodes_up()[0]
        folder = [p for p in glob.glob(f"{c.home}/**/agent-{node}", recursive=True) if os.path.isdir(p)][0]
        running = submit(c, "sleep 3600", gpus_milli=1000)
        wait_state(c, running, "RUNNING")

        def gpus():
            return c.api.get("/v1/nodes")["nodes"][0]["gpus"]

        def fault(text):
            with open(f"{folder}/gpu-faults", "w", encoding="utf-8") as f:
                f.write(text)

        for text, reason in (("1 xid 79\n", "XID 79: fell off the bus; reset the GPU"), ("1 remap\n", "memory rows wait to be replaced; reset the GPU"),
                             ("1 ecc 3\n", "3 new uncorrected memory errors")):
            fault(text)
            wait_until(lambda: gpus()[1].get("unhealthy") == reason, 10, f"{reason}: not told", 0.2)
            shown = c.cli("nodes", node).stdout
            assert f"GPU 1 is out of use: {reason}\n" in shown
            assert re.search(r"^ +1 .* out of use$", shown, re.M) and re.search(r"^ +0 .* simulated$", shown, re.M), shown
            assert f"1 GPU is out of use: {node}:1; 'acequia nodes NODE' shows why" in c.api.get("/v1/status")["warnings"]
            assert f"GPU 1 of node {node} is out of use: {reason}" in c.log_tail("controller")
            assert f"is out of use: {reason}" in c.log_tail(f"agent-{node}") + c.log_tail("agent")
            assert f"GPU 1: {reason}" in c.cli("nodes", "--wide").stdout
            assert os.path.exists(f"{folder}/gpu-health") == ("xid" in text)  # for the next start of the agent
            waiting = submit(c, "sleep 3600", gpus_milli=1000)
            time.sleep(1)
            assert job(c, waiting)["state"].upper() == "PENDING"
            assert job(c, running)["state"].upper() == "RUNNING"
            assert "1 GPU there is faulty and not used." in c.cli("why", str(waiting)).stdout
            both = submit(c, "true", gpus_milli=2000)  # what is to be repaired is waited for, not refused
            c.cli("cancel", str(both))
            fault("")
            wait_until(lambda: not gpus()[1].get("unhealthy"), 10, "it does not come back", 0.2)
            wait_state(c, waiting, "RUNNING")
            c.cli("cancel", str(waiting))
            wait_state(c, waiting, "CANCELLED")
        fault("0 xid 62\n")
        wait_until(lambda: "GPU 0 of" in (job(c, running)["live"].get("warning") or ""), 10, "the job's owner is not told", 0.2)
        assert re.search(r"Warning +it runs on GPU 0 of \S+, which has a fault: XID 62", c.cli("get", str(running)).stdout)
        fault("")
        wait_until(lambda: not gpus()[0].get("unhealthy"), 10, "it does not come back", 0.2)
        assert not os.path.exists(f"{folder}/gpu-health")
        assert not job(c, running)["live"].get("warning")
        fault("1 lost\n")
        wait_until(lambda: "GPU is lost" in (gpus()[1].get("unhealthy") or ""), 10, "a lost GPU is not told", 0.2)
        # The other GPU goes on being measured and used.
        assert not gpus()[0].get("unhealthy") and job(c, running)["state"].upper() == "RUNNING"


# --- a pretended driver ---

class Pretended:
    """A cluster whose agent finds two GPUs of 64 GiB in the tests' own NVML; `on_gpu` says which
    processes the driver shows."""

    def __init__(self, tmp_path, monkeypatch, config=""):
        build = os.path.dirname(os.path.dirname(os.path.dirname(find_binary())))
        nvml, cuda = f"{build}/src/device/test/fake_nvml.so", f"{build}/src/shim/libfakedriver.so"
        if not os.path.exists(nvml) or not os.path.exists(cuda):
            pytest.skip("the pretended drivers are not built")
        driver = tmp_path / "driver"
        driver.mkdir()
        os.symlink(nvml, driver / "libnvidia-ml.so.1")
        self.cuda, self.file = cuda, tmp_path / "gpus"
        self.on_gpu([])
        monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
        monkeypatch.setenv("FAKE_NVML_FILE", str(self.file))
        self.cluster = Cluster(config="[cluster]\ngrace = 1s\n[node *]\ncpus = 16\nmemory = 8G\n" + config)

    def on_gpu(self, processes):
        """[(gpu, pid, MiB)]"""
        text = "gpus 2 65536\n" + "".join(f"{g} {p} {m}\n" for g, p, m in processes)
        new = str(self.file) + ".new"
        with open(new, "w", encoding="utf-8") as f:
            f.write(text)
        os.rename(new, self.file)


@pytest.fixture()
def pretended(tmp_path, monkeypatch):
    p = Pretended(tmp_path, monkeypatch)
    with p.cluster:
        assert len(p.cluster.api.get("/v1/nodes")["nodes"][0]["gpus"]) == 2, p.cluster.log_tail("controller")
        yield p


HONEST = """import ctypes, os, time
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
pointer = ctypes.c_uint64()
assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1 << 30)) == 0
open("pid-" + os.environ["ACEQUIA_JOB_ID"], "w").write(str(os.getpid()))
time.sleep(120)
"""


def pid_of(c, number):
    path = f"{c.home}/pid-{number}"
    wait_until(lambda: os.path.exists(path) and open(path, encoding="utf-8").read().strip(), 15, f"job {number} does not say its pid")
    return int(open(path, encoding="utf-8").read())


def honest(p, **spec):
    c = p.cluster
    with open(f"{c.home}/honest.py", "w", encoding="utf-8") as f:
        f.write(HONEST)
    return with_environment(c, "exec python3 honest.py", [f"ACEQUIA_REAL_LIBCUDA={p.cuda}", "PATH=/usr/bin:/bin"], gpus_milli=250, **spec)


def test_processes_are_known_by_their_group_not_by_what_they_say(pretended):
    c = pretended.cluster
    good = honest(pretended)
    good_pid = pid_of(c, good)
    # It goes around the shim and names the other job in its environment.
    liar = with_environment(c, f"exec env -i ACEQUIA_JOB_ID={good} ACEQUIA_ATTEMPT=1 sh -c 'echo $$ > {c.home}/pid-liar; exec sleep 120'",
                            ["PATH=/usr/bin:/bin"], gpus_milli=250)
    liar_pid = pid_of(c, "liar")
    stranger = subprocess.Popen(["sleep", "120"])  # of nobody: not ours to end
    try:
        pretended.on_gpu([(0, good_pid, 1500), (0, stranger.pid, 30000)])
        time.sleep(5)
        assert job(c, good)["state"].upper() == "RUNNING" and job(c, liar)["state"].upper() == "RUNNING"
        pretended.on_gpu([(0, good_pid, 1500), (0, liar_pid, 700), (0, stranger.pid, 30000)])
        wait_state(c, liar, "FAILED", 12)
        assert f"process {liar_pid} used GPU 0 without the library that keeps the job to its share" in job(c, liar)["reason"]
        pretended.on_gpu([(0, good_pid, 1500), (0, stranger.pid, 30000)])
        time.sleep(2)
        assert job(c, good)["state"].upper() == "RUNNING"
        assert stranger.poll() is None
        foreign = re.findall(r'^acequia_gpu_foreign_memory_bytes\{.*gpu="0".*\} (\S+)$', c.api.raw("GET", "/metrics")[1].decode(), re.M)
        assert [float(v) for v in foreign] == [30000 * 2**20]  # but it is shown
    finally:
        stranger.kill()
        stranger.wait()


def test_steps_and_commands_inside_keep_the_shim(pretended):
    """A step that comes with another machine's environment is held to the job's part, too."""
    c = pretended.cluster
    number = honest(pretended)
    pid_of(c, number)
    show = ["sh", "-c", "echo $LD_LIBRARY_PATH; echo $ACEQUIA_GPU_LEDGER_DIR"]
    os.symlink(c.binary, f"{c.home}/srun")
    elsewhere = dict(c.env, LD_LIBRARY_PATH="/opt/mine", ACEQUIA_GPU_LEDGER_DIR="/nowhere")
    step = subprocess.run([f"{c.home}/srun", f"--jobid={number}", *show], env=elsewhere, capture_output=True, text=True, timeout=180, check=False)
    inside = c.cli("exec", str(number), "--", *show)
    for out in (step.stdout, inside.stdout):
        path, ledger = out.split()
        assert path.split(":")[0].endswith("shim"), out
        assert ledger.endswith(f"/gpu/{number}.1"), out
    assert step.stdout.split()[0].endswith(":/opt/mine")


def test_more_than_granted_by_the_drivers_count(pretended):
    c = pretended.cluster
    good, greedy = honest(pretended), honest(pretended)
    pids = pid_of(c, good), pid_of(c, greedy)
    pretended.on_gpu([(0, pids[0], 16300), (0, pids[1], 16384 + 256 + 64)])  # within what contexts may grow
    time.sleep(5)
    assert job(c, good)["state"].upper() == job(c, greedy)["state"].upper() == "RUNNING"
    # The agent is killed; the next one knows the limits all the same.
    node = c.nodes_up()[0]
    c.kill_agent(node)
    c.start_agent(node)
    wait_until(lambda: node in c.nodes_up(), 20, "the agent does not come back")
    pretended.on_gpu([(0, pids[0], 16300), (0, pids[1], 20000)])
    wait_state(c, greedy, "FAILED", 15)
    assert "its processes held 20000 MiB of GPU 0 where the job may hold 16384 MiB" in job(c, greedy)["reason"]
    assert job(c, good)["state"].upper() == "RUNNING"


def outer_pid(inner_command):
    """The process with that word in its command line that lives in a pid namespace of its own."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as f:
                command = f.read()
            with open(f"/proc/{pid}/status", encoding="utf-8") as f:
                numbers = next(line for line in f if line.startswith("NSpid:")).split()[1:]
        except (OSError, StopIteration):
            continue
        if inner_command in command and len(numbers) == 2:
            return int(pid)
    return None


@needs_root
def test_a_process_in_a_pid_namespace_is_found_in_its_ledger(pretended):
    c = pretended.cluster
    with open(f"{c.home}/inside.py", "w", encoding="utf-8") as f:
        f.write(HONEST)
    inside = with_environment(c, "exec unshare -mpf --mount-proc python3 inside.py", [f"ACEQUIA_REAL_LIBCUDA={pretended.cuda}", "PATH=/usr/bin:/bin"],
                              gpus_milli=250)
    assert pid_of(c, inside) < 10  # as it sees itself
    pid = outer_pid("inside.py")
    assert pid and pid > 10
    pretended.on_gpu([(0, pid, 1500)])
    time.sleep(7)
    assert job(c, inside)["state"].upper() == "RUNNING", job(c, inside)["reason"]


def test_a_ledger_that_was_written_to_and_a_gpu_that_was_not_granted(pretended):
    c = pretended.cluster
    forger = honest(pretended)
    forger_pid = pid_of(c, forger)
    ledger = glob.glob(f"{ledger_dir(forger_pid)}/*.ledger")[0]
    pretended.on_gpu([(0, forger_pid, 1500)])
    os.truncate(ledger, 100)
    wait_state(c, forger, "FAILED", 15)
    assert "the record of its limits on GPU 0 was changed or damaged" in job(c, forger)["reason"]
    # A job without any GPU that gets at one all the same.
    stray = with_environment(c, f"echo $$ > {c.home}/pid-stray; exec sleep 120", ["PATH=/usr/bin:/bin"])
    stray_pid = pid_of(c, "stray")
    pretended.on_gpu([(1, stray_pid, 900)])
    wait_state(c, stray, "FAILED", 15)
    assert f"process {stray_pid} used GPU 1, which the job does not hold" in job(c, stray)["reason"]


def test_a_stray_is_told_where_it_is_only_warned_of(tmp_path, monkeypatch):
    p = Pretended(tmp_path, monkeypatch, "gpu_audit = warn\n")
    with p.cluster as c:
        stray = with_environment(c, f"echo $$ > {c.home}/pid-stray; exec sleep 120", ["PATH=/usr/bin:/bin"])
        pid = pid_of(c, "stray")
        p.on_gpu([(1, pid, 900)])
        said = f"process {pid} used GPU 1, which the job does not hold"
        wait_until(lambda: said in ((job(c, stray).get("live") or {}).get("warning") or ""), 15, "its owner is not told", 0.2)
        assert said in c.cli("get", str(stray)).stdout.replace("\n", " ")
        status = c.api.get("/v1/status")
        assert f"1 job does not keep to its part of a GPU: {stray} of {status['user']}" in status["warnings"]
        node = c.nodes_up()[0]
        assert f"{stray} (stray)" in c.cli("nodes", node).stdout
        text = c.api.raw("GET", "/metrics")[1].decode()
        assert re.search(rf'^acequia_job_gpu_outside_limits\{{job_id="{stray}",.*gpu="1",.*\}} 1$', text, re.M)
        assert not re.search(rf'^acequia_job_gpu_allocated_ratio\{{job_id="{stray}"', text, re.M)
        assert said in c.log_tail("controller")
        assert job(c, stray)["state"].upper() == "RUNNING"


def ledger_dir(pid):
    with open(f"/proc/{pid}/environ", "rb") as f:
        variables = dict(v.split(b"=", 1) for v in f.read().split(b"\0") if b"=" in v)
    return variables[b"ACEQUIA_GPU_LEDGER_DIR"].decode()


# --- devices ---

OPEN = """import json, os, sys
def result(path):
    try:
        os.close(os.open(path, os.O_RDWR))
        return "open"
    except OSError as e:
        return os.strerror(e.errno)
print(json.dumps({"how": sys.argv[1], "granted": result(sys.argv[2]), "other": result(sys.argv[3])}), flush=True)
"""


def write_bundle(folder, home, command):
    """A container with the machine's own files, mounts and processes of its own."""
    os.makedirs(f"{folder}/rootfs", exist_ok=True)
    config = {
        "ociVersion": "1.0.2",
        "process": {"terminal": False, "user": {"uid": 0, "gid": 0}, "args": command, "env": ["PATH=/usr/bin:/bin"], "cwd": "/",
                    "capabilities": {k: ["CAP_MKNOD", "CAP_DAC_OVERRIDE"] for k in ("bounding", "effective", "permitted")}},
        "root": {"path": f"{folder}/rootfs", "readonly": False},
        "mounts": [{"destination": d, "source": d, "type": "bind", "options": ["rbind"]} for d in ("/usr", "/bin", "/lib", "/lib64", "/dev", "/tmp")]
        + [{"destination": "/proc", "source": "proc", "type": "proc"}] + ([] if home.startswith("/tmp") else [{"destination": home, "source": home, "type": "bind", "options": ["rbind"]}]),
        "linux": {"namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}]},
    }
    with open(f"{folder}/config.json", "w", encoding="utf-8") as f:
        json.dump(config, f)


@needs_root
def test_devices_of_others_are_out_of_reach_in_containers_too(pretended):
    """Nodes with the numbers of NVIDIA's devices: one that may be opened answers "no such device" here,
    one of another GPU is forbidden: in the job, in namespaces of its own, in bwrap and crun."""
    c = pretended.cluster
    if "device" in (c.api.get("/v1/nodes")["nodes"][0].get("missing") or ""):
        pytest.skip("no device control groups here")
    for minor in (0, 1):
        os.mknod(f"{c.home}/nvidia{minor}", 0o600 | 0o020000, os.makedev(195, minor))
    with open(f"{c.home}/look.py", "w", encoding="utf-8") as f:
        f.write(OPEN)
    nodes = f"{c.home}/nvidia0 {c.home}/nvidia1"
    lines = [f"python3 {c.home}/look.py plain {nodes}", f"unshare -mpf --mount-proc python3 {c.home}/look.py unshare {nodes}"]
    expected = {"plain", "unshare"}
    if shutil.which("bwrap"):
        lines.append(f"{shutil.which('bwrap')} --dev-bind / / --unshare-pid --proc /proc python3 {c.home}/look.py bwrap {nodes}")
        expected.add("bwrap")
    for program in ("crun", "runc"):
        if not shutil.which(program):
            continue
        options = "--cgroup-manager=disabled" if program == "crun" else ""
        bundle = f"{c.home}/bundle-{program}"
        write_bundle(bundle, c.home, ["/usr/bin/python3", f"{c.home}/look.py", program, f"{c.home}/nvidia0", f"{c.home}/nvidia1"])
        lines.append(f"{shutil.which(program)} {options} --root {c.home}/{program} run --bundle {bundle} acequia-test-$$")
    # Nor does a group below the job's own give it back.
    lines.append("for d in $(sed -n 's/.*:devices:\\(.*\\)/\\/sys\\/fs\\/cgroup\\/devices\\1/p' /proc/self/cgroup); do "
                 "mkdir $d/inner; echo a > $d/inner/devices.allow; echo 'c 195:* rwm' > $d/inner/devices.allow; echo $$ > $d/inner/cgroup.procs; done 2>/dev/null; "
                 f"python3 {c.home}/look.py inner {nodes}; for d in $(sed -n 's/.*:devices:\\(.*\\)\\/inner/\\/sys\\/fs\\/cgroup\\/devices\\1/p' /proc/self/cgroup); do "
                 "echo $$ > $d/cgroup.procs; rmdir $d/inner; done 2>/dev/null; true")
    expected.add("inner")
    number = submit(c, "\n".join(lines), gpus_milli=1000)
    wait_until(lambda: job(c, number)["state"].upper() in ("COMPLETED", "FAILED"), 30, "the job does not end")
    with open(f"{c.home}/out-{number}", encoding="utf-8") as f:
        text = f.read()
    told = {r["how"]: r for r in map(json.loads, [line for line in text.splitlines() if line.startswith("{")])}
    # crun and runc do not start under every machine's control groups; where they do, they must not reach it.
    assert expected <= set(told), text
    for how, r in told.items():
        assert r["other"] == os.strerror(errno.EPERM), (how, r)
        assert r["granted"] in (os.strerror(errno.ENXIO), os.strerror(errno.ENODEV), os.strerror(errno.EIO), "open"), (how, r)
