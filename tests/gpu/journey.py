"""Fractions of a real GPU through the real programs: controller, agent and command line on this machine.

usage: journey.py [RESULT.json [PART,...]]      needs root, one NVIDIA GPU with nvidia-smi, the built programs
($BUILD or $ACEQUIA), python3; PyTorch where it is there. Takes a minute and a half. Parts: memory, two halves,
efficiency, around, idle, devices, container, torch, left, cost.
Prints a row for each thing looked at; ends with 0 when all are as wanted, 77 without a GPU."""
import json
import os
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from tests.lab.cluster import Cluster  # noqa: E402
from tests.lab.proc import wait_until  # noqa: E402

LOAD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "load.py")
CONFIG = "[cluster]\ngrace = 2s\nidle_gpu_after = 6s\nusage_interval = 1s\n"
TORCH = """
import torch
free, total = torch.cuda.mem_get_info()
seen, taken, kept = total >> 20, 0, []
try:
    while True:
        kept.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda"))
        taken += 1024
except torch.OutOfMemoryError:
    pass
kept = None
torch.cuda.empty_cache()
a = torch.randn(512, 512, device="cuda")
print("torch", seen, taken, bool((a @ a).isfinite().all()), flush=True)
"""


class Report:
    def __init__(self):
        self.rows, self.begin = [], time.time()

    def add(self, what, got, wanted, ok):
        self.rows.append({"what": what, "got": got, "wanted": str(wanted), "ok": bool(ok)})
        print(f"{'ok  ' if ok else 'FAIL'} {time.time() - self.begin:6.1f}s {what:58} {got!s:>30} | {wanted}", flush=True)

    def near(self, what, got, wanted, part=0.0, absolute=0.0):
        self.add(what, round(got, 2), f"{round(wanted, 2)} +- {round(max(part * abs(wanted), absolute), 2)}",
                 abs(got - wanted) <= max(part * abs(wanted), absolute))


def smi(fields, kind="gpu"):
    out = subprocess.run(["nvidia-smi", f"--query-{kind}={fields}", "--format=csv,noheader,nounits"], capture_output=True, text=True,
                         timeout=30, check=True).stdout
    return [[cell.strip() for cell in line.split(",")] for line in out.splitlines() if line.strip()]


class Journey:
    def __init__(self, cluster, report):
        self.c, self.r = cluster, report
        self.python = sys.executable
        self.total = float(smi("memory.total")[0][0])

    # --- helpers ---

    def run(self, *options, command, timeout=90):
        return self.c.cli("run", "--no-input", *options, "--", *command, timeout=timeout, check=False, cwd=self.c.home)

    def run_load(self, *options, load):
        done = self.run(*options, command=[self.python, LOAD, *map(str, load)])
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        return json.loads(lines[-1]) if lines else {"error": f"{done.returncode}: {done.stdout} {done.stderr}"}

    def submit(self, *options, command):
        out = self.c.cli("submit", "--quiet", "--output", f"{self.c.home}/out-%j", *options, "--", *command, cwd=self.c.home).stdout
        return int(out.split()[0])

    def job(self, number):
        return self.c.api.get(f"/v1/jobs/{number}")

    def state(self, number):
        return self.job(number)["state"].upper()

    def wait_state(self, number, *states, seconds=30):
        wait_until(lambda: self.state(number) in states, seconds, f"job {number} does not become {states}: {self.state(number)}", 0.1)

    def output(self, number):
        with open(f"{self.c.home}/out-{number}", encoding="utf-8") as f:
            return f.read()

    def result(self, number):
        lines = [line for line in self.output(number).splitlines() if line.startswith("{")]
        return json.loads(lines[-1]) if lines else {"error": self.output(number)}

    def ready(self, name, seconds=40):
        path = f"{self.c.home}/{name}"
        wait_until(lambda: os.path.exists(path) and open(path, encoding="utf-8").read(), seconds, f"{name} is not ready", 0.1)
        return int(open(path, encoding="utf-8").read())

    def gpu_of(self, number):
        live = self.job(number).get("live") or {}
        return (live.get("gpus") or [{}])[0]

    def cancel_all(self):
        for job in self.c.api.get("/v1/jobs?fields=id,state")["jobs"]:
            if job["state"].upper() in ("PENDING", "STARTING", "RUNNING"):
                self.c.cli("cancel", str(job["id"]), check=False)

    # --- what is looked at ---

    def what_there_is(self):
        node = self.c.api.get("/v1/nodes")["nodes"][0]
        row = smi("uuid,name,memory.total,driver_version")[0]
        gpu = node["gpus"][0]
        self.r.add("the agent finds the GPU", f"{gpu['model']} {gpu['uuid'][:12]}", f"{row[1]} {row[0][:12]}", gpu["uuid"] == row[0])
        missing = node.get("missing") or "nothing"
        print("     driver", row[3], "| this node cannot enforce:", missing, flush=True)
        return row[3], missing

    def memory_seen(self):
        smi_total = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
        half = self.run("--gpus", "0.5", command=smi_total)
        self.r.near("run --gpus 0.5 nvidia-smi: memory (MiB)", float(re.findall(r"\d+", half.stdout + "0")[0]), self.total / 2, 0.01)
        some = self.run("--gpu-memory", "16G", command=smi_total)
        self.r.near("run --gpu-memory 16G nvidia-smi (MiB)", float(re.findall(r"\d+", some.stdout + "0")[0]), 16384, 0, 2)
        whole = self.run("--gpus", "1", command=smi_total)
        self.r.near("run --gpus 1 nvidia-smi (MiB)", float(re.findall(r"\d+", whole.stdout + "0")[0]), self.total, 0, 2)
        plain = self.run("--gpus", "0.5", command=["nvidia-smi"])
        found = re.search(r"(\d+)MiB / +(\d+)MiB", plain.stdout)
        self.r.near("the same, plain nvidia-smi", float(found.group(2)) if found else 0, self.total / 2, 0.01)
        x = self.run_load("--gpus", "0.5", load=["--fill"])
        self.r.near("half, driver interface: total (MiB)", x.get("total_mib", 0), self.total / 2, 0.01)
        self.r.add("half: taken until refused as out of memory (MiB)", f"{x.get('filled_mib')} ({x.get('refusal')})", f"{self.total / 2 * 0.97:.0f} .. {self.total / 2:.0f} (2)",
                   self.total / 2 * 0.97 <= x.get("filled_mib", 0) <= self.total / 2 and x.get("refusal") == 2)
        x = self.run_load("--gpu-memory", "16G", load=["--fill"])
        self.r.add("16G: taken until refused (MiB)", x.get("filled_mib"), "14800 .. 16384", 14800 <= x.get("filled_mib", 0) <= 16384)
        x = self.run_load("--gpus", "1", load=[])
        self.r.near("whole: total (MiB)", x.get("total_mib", 0), self.total, 0.02)
        self.r.add("whole: no shim", x.get("library"), "the driver's own", "acequia" not in x.get("library", "acequia") and "shim" not in x.get("library", "shim"))

    def torch(self):
        if subprocess.run([self.python, "-c", "import torch"], capture_output=True, check=False).returncode:
            print("     no PyTorch here", flush=True)
            return
        out = self.run("--gpus", "0.5", command=[self.python, "-c", TORCH]).stdout.split()
        seen, taken, works = (int(out[1]), int(out[2]), out[3]) if out[:1] == ["torch"] else (0, 0, out)
        self.r.near("PyTorch in half: mem_get_info (MiB)", seen, self.total / 2, 0.01)
        self.r.add("PyTorch in half: tensors until OutOfMemoryError (MiB)", taken, f"{self.total / 2 * 0.96:.0f} .. {self.total / 2:.0f}",
                   self.total / 2 * 0.96 <= taken <= self.total / 2)
        self.r.add("PyTorch goes on after it", works, True, works == "True")

    def two_halves(self):
        alone = self.run_load("--gpus", "1", load=["--seconds", "3"])
        rate = alone.get("kernels", 0) / max(alone.get("seconds", 1), 0.1)
        self.r.add("whole GPU alone: kernels of 2 ms per second", round(rate, 1), "> 400", rate > 400)
        node = self.c.nodes_up()[0]
        seconds = 14
        jobs = [self.submit("--gpus", "0.5", "--name", n, command=[self.python, LOAD, "--mib", "20000", "--seconds", str(seconds), "--rounds", str(alone.get("rounds", 0)), "--ready", n])
                for n in ("a", "b")]
        for n in ("a", "b"):
            self.ready(n)
        begin = time.time()
        wait_until(lambda: all(self.gpu_of(j).get("use_milli", 0) > 300 for j in jobs), 10, "no use is told", 0.2)
        time.sleep(2)
        for j in jobs:
            g = self.gpu_of(j)
            self.r.add(f"job {j}: share, use, throttled (thousandths)", f"{g.get('share_milli')} {g.get('use_milli')} {g.get('throttled_milli')}", "500, 420 .. 560, > 100",
                       g.get("share_milli") == 500 and 420 <= g.get("use_milli", 0) <= 560 and g.get("throttled_milli", 0) > 100)
            self.r.near(f"job {j}: memory, context included (MiB)", g.get("memory_bytes", 0) / 2**20, 20500, 0, 700)
        shown = self.c.cli("get", str(jobs[0])).stdout
        line = next((x.strip() for x in shown.splitlines() if x.startswith("GPUs now")), "-")
        self.r.add("acequia get: share, use, memory, throttling", line[8:].strip(), "0.5 of it, % busy, of 70.2G, throttled %",
                   all(word in line for word in ("0.5 of it", "% busy", "of 70.2G", "throttled")))
        time.sleep(1.5)
        powers = [self.gpu_of(j).get("power_mw", 0) / 1000 for j in jobs]
        device = float(smi("power.draw.instant")[0][0])
        self.r.add("power of the two jobs against the device (W)", f"{powers[0]:.0f} + {powers[1]:.0f}", f"{device:.0f}", 0.75 * device <= sum(powers) <= 1.15 * device)
        energy = [(self.job(j).get("live") or {}).get("energy_mj", 0) / 1000 for j in jobs]
        self.r.add("energy so far, split (J)", f"{energy[0]:.0f} + {energy[1]:.0f}", "> 100 each, like", min(energy) > 100 and max(energy) < 1.4 * min(energy))
        # kill -9 of the agent in the middle.
        self.c.kill_agent(node)
        time.sleep(1)
        self.c.start_agent(node)
        wait_until(lambda: node in self.c.nodes_up(), 20, "the agent does not come back")
        self.r.add("jobs after kill -9 of the agent", " ".join(self.state(j) for j in jobs), "RUNNING RUNNING", all(self.state(j) == "RUNNING" for j in jobs))
        wait_until(lambda: all(self.gpu_of(j).get("use_milli", 0) > 300 for j in jobs) or time.time() - begin > seconds, seconds, "no use is told again", 0.2)
        self.r.add("their use, told by the new agent", " ".join(str(self.gpu_of(j).get("use_milli")) for j in jobs), "> 300 each", all(self.gpu_of(j).get("use_milli", 0) > 300 for j in jobs))
        for j in jobs:
            self.wait_state(j, "COMPLETED", "FAILED", seconds=40)
        rates = [self.result(j).get("kernels", 0) / max(self.result(j).get("seconds", 1), 0.1) for j in jobs]
        for j, x in zip(jobs, rates):
            self.r.near(f"job {j} of two halves: part of the whole GPU's rate", x / max(rate, 1), 0.5, 0, 0.06)
        self.r.add("both together", round(sum(rates) / max(rate, 1), 3), ">= 0.93", sum(rates) >= 0.93 * rate)
        return jobs[0]

    def efficiency(self, number):
        rows = {row["what"]: row for row in self.c.api.get(f"/v1/jobs/{number}/efficiency")["rows"]}
        text = self.c.cli("efficiency", str(number)).stdout
        gpu, memory = rows.get("gpu", {}), rows.get("gpu_memory", {})
        self.r.add("efficiency: GPUs asked, used (thousandths)", f"{gpu.get('asked')} {gpu.get('used')}", "500, 300 .. 560", gpu.get("asked") == 500 and 300 <= (gpu.get("used") or 0) <= 560)
        self.r.near("efficiency: GPU memory used (MiB)", (memory.get("used") or 0) / 2**20, 20500, 0, 700)
        record = self.job(number)
        energy = (record.get("usage") or {}).get("energy_mj", 0) / 1000
        self.r.add("energy of a half over its time (J)", round(energy), "> 500", energy > 500)
        self.r.add("efficiency prints", len(text.splitlines()), ">= 5 lines", len(text.splitlines()) >= 5 and "GPU" in text)

    def around_the_shim(self):
        honest = self.submit("--gpus", "0.25", "--name", "honest", command=[self.python, LOAD, "--mib", "8000", "--seconds", "40", "--load", "300", "--ready", "honest"])
        self.ready("honest")
        # The shim is left out, the limit passed, and the environment tells of another job.
        clean = f"export LD_LIBRARY_PATH=$(echo $LD_LIBRARY_PATH | tr : '\\n' | grep -v shim | paste -sd:); export ACEQUIA_JOB_ID={honest};"
        cheat = self.submit("--gpus", "0.25", "--name", "cheat", command=["sh", "-c", f"{clean} exec {self.python} {LOAD} --mib 60000 --wait 60 --ready cheat"])
        self.ready("cheat")
        begin = time.time()
        self.wait_state(cheat, "FAILED", "COMPLETED", "CANCELLED", seconds=30)
        took = time.time() - begin
        self.r.add("around the shim: state, seconds until then", f"{self.state(cheat)} {took:.1f}", "FAILED < 8", self.state(cheat) == "FAILED" and took < 8)
        self.r.add("it is told why", (self.job(cheat).get("reason") or "")[:60], "process ... used GPU 0 without the library", "without the library" in (self.job(cheat).get("reason") or ""))
        self.r.add("its honest neighbour", self.state(honest), "RUNNING", self.state(honest) == "RUNNING")
        # Through the shim, the same is refused and nobody is ended.
        x = self.run_load("--gpus", "0.25", load=["--mib", "60000"])
        self.r.add("the same through the shim: given", x.get("taken"), False, x.get("taken") is False)
        # A job that writes into its own ledger.
        forge = self.submit("--gpus", "0.25", "--name", "forge", command=["sh", "-c", f"{self.python} {LOAD} --mib 500 --wait 60 --ready forge & sleep 6; for f in $ACEQUIA_GPU_LEDGER_DIR/*; do truncate -s 64 $f; done; wait"])
        self.ready("forge")
        self.wait_state(forge, "FAILED", "COMPLETED", "CANCELLED", seconds=40)
        self.r.add("a ledger cut off by the job", f"{self.state(forge)} {(self.job(forge).get('reason') or '')[:40]}", "FAILED the record of its limits", "record of its limits" in (self.job(forge).get("reason") or ""))
        self.r.add("its honest neighbour", self.state(honest), "RUNNING", self.state(honest) == "RUNNING")
        if shutil.which("unshare"):  # honest, but with a process number of its own
            inside = self.run("--gpus", "0.25", command=["unshare", "-mpf", "--mount-proc", self.python, LOAD, "--mib", "4000", "--seconds", "7", "--load", "300"])
            self.r.add("an honest job in a pid namespace: exit status", inside.returncode, 0, inside.returncode == 0)
        self.c.cli("cancel", str(honest))

    def idle(self):
        number = self.submit("--gpus", "0.5", "--name", "idle", command=[self.python, LOAD, "--mib", "100", "--wait", "30", "--ready", "idle"])
        self.ready("idle")
        warned = ""
        end = time.time() + 20
        while time.time() < end and not warned:
            warned = ((self.job(number).get("live") or {}).get("warning") or "")
            time.sleep(0.3)
        self.r.add("an idle GPU is named", warned[:44], "holds GPUs and has not used them", "has not used them" in warned)
        self.c.cli("cancel", str(number))
        self.wait_state(number, "CANCELLED")

    def devices(self, missing):
        look = "import os\ntry:\n    os.close(os.open('/dev/nvidia0', os.O_RDWR)); print('open')\nexcept OSError as e:\n    print(e.strerror)"
        other = self.run(command=[self.python, "-c", look]).stdout.strip()
        own = self.run("--gpus", "0.1", command=[self.python, "-c", look]).stdout.strip()
        enforced = "devices" not in missing
        self.r.add("/dev/nvidia0 from a job without a GPU", other, "Operation not permitted" if enforced else "open (not enforced here)", (other == "Operation not permitted") == enforced)
        self.r.add("/dev/nvidia0 from a job with a part of it", own, "open", own == "open")
        if shutil.which("unshare"):
            inner = self.run(command=["unshare", "-mpf", self.python, "-c", look]).stdout.strip()
            self.r.add("the same from namespaces of its own (unshare)", inner, "Operation not permitted" if enforced else "-", inner == "Operation not permitted" or not enforced)

    def bundle(self):
        """An image of this machine's own folders, but for those that every container has of its own."""
        folder = f"{self.c.home}/bundle"
        os.makedirs(f"{folder}/rootfs")
        mounts = []
        for name in os.listdir("/"):
            if os.path.islink(f"/{name}"):
                os.symlink(os.readlink(f"/{name}"), f"{folder}/rootfs/{name}")
            elif os.path.isdir(f"/{name}") and name not in ("dev", "proc", "sys", "tmp", "run"):
                mounts.append({"destination": f"/{name}", "source": f"/{name}", "type": "bind", "options": ["rbind", "ro"]})
        with open(f"{folder}/config.json", "w", encoding="utf-8") as f:
            json.dump({"ociVersion": "1.0.2", "root": {"path": "rootfs"}, "mounts": mounts, "process": {"env": [f"PATH={os.environ['PATH']}"], "cwd": "/"}}, f)
        return folder

    def container(self):
        """A part of the GPU in a container: of the root as it is, and of an image made of its folders."""
        if "containers" in (self.c.api.get("/v1/nodes")["nodes"][0].get("missing") or ""):
            self.r.add("containers", self.c.log_tail(f"agent-{self.c.nodes_up()[0]}", 5)[-80:], "not possible on this machine", True)
            return
        devices = "import glob; print(*sorted(glob.glob('/dev/nvidia[0-9]*') + glob.glob('/dev/nvidiactl')))"
        for kind, image in (("the root", "/"), ("a bundle", self.bundle())):
            none = self.run("--container", image, command=[self.python, "-c", devices])
            self.r.add(f"{kind}: GPUs in a container without any", none.stdout.strip() or none.stderr.strip()[-60:], "none, exit 0", none.returncode == 0 and not none.stdout.strip())
            own = self.run("--gpus", "1", "--container", image, command=[self.python, "-c", devices])
            self.r.add(f"{kind}: in one with a GPU", own.stdout.strip() or own.stderr.strip()[-60:], "its own and nvidiactl", len(own.stdout.split()) == 2)
            smi_says = self.run("--gpus", "1", "--container", image, command=["nvidia-smi", "-L"])
            self.r.add(f"{kind}: nvidia-smi -L", smi_says.stdout.strip()[:30] or smi_says.stderr.strip()[-60:], "one GPU", smi_says.stdout.count("GPU ") == 1)
            got = self.run_load("--gpus", "0.25", "--container", image, load=["--fill"])
            self.r.add(f"{kind}: memory seen by a quarter (MiB)", got.get("total_mib", got), round(self.total / 4), abs(got.get("total_mib", 0) - self.total / 4) <= self.total * 0.02)
        libraries = self.run("--gpus", "1", "--container", f"{self.c.home}/bundle", command=["sh", "-c", "ls /.acequia/nvidia/lib64; command -v nvidia-smi"])
        self.r.add("the driver's libraries in an image", libraries.stdout.split()[:1], "libcuda.so.1 among them", "libcuda.so.1" in libraries.stdout.split())

    def cost(self):
        pid = self.c.pid(f"agent-{self.c.nodes_up()[0]}")

        def used():
            with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
                fields = f.read().rsplit(")", 1)[1].split()
            return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")
        before, begin = used(), time.time()
        time.sleep(12)
        each = (used() - before) / (time.time() - begin)
        self.r.add("the whole agent: CPU per second, GPU idle (ms)", round(each, 2), "<= 3", each <= 3)

    def left_behind(self):
        wait_until(lambda: self.c.active_jobs() == 0, 20, "jobs remain")
        time.sleep(1)
        left = smi("pid,used_memory", "compute-apps")
        self.r.add("processes left on the GPU", len(left), 0, not left)


def main():
    if not shutil.which("nvidia-smi") or subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=False).returncode:
        print("no NVIDIA GPU here")
        return 77
    report, facts = Report(), {}
    with Cluster(config=CONFIG) as c:
        j = Journey(c, report)
        steps = [("what there is", lambda: facts.update(zip(("driver", "missing"), j.what_there_is()))), ("memory", j.memory_seen),
                 ("two halves", lambda: facts.update(half=j.two_halves())), ("efficiency", lambda: j.efficiency(facts["half"])),
                 ("around", j.around_the_shim), ("idle", j.idle), ("devices", lambda: j.devices(facts["missing"])), ("container", j.container),
                 ("torch", j.torch),
                 ("left", j.left_behind), ("cost", j.cost)]
        wanted = sys.argv[2].split(",") if len(sys.argv) > 2 else None
        for name, step in steps:
            if wanted and name not in wanted and name != "what there is":
                continue
            try:
                step()
            except Exception as e:  # one thing that fails must not hide the others
                report.add(f"{name}: {type(e).__name__}", str(e)[:200], "no error", False)
                j.cancel_all()
        if not all(row["ok"] for row in report.rows):
            for daemon in ("controller", f"agent-{os.uname().nodename}"):
                print(f"--- {daemon}\n{c.log_tail(daemon, 15)}")
    bad = [row for row in report.rows if not row["ok"]]
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w", encoding="utf-8") as f:
            json.dump({"driver": facts.get("driver"), "missing": facts.get("missing"), "rows": report.rows}, f, indent=1)
    print(f"{len(report.rows) - len(bad)} of {len(report.rows)} as wanted")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
