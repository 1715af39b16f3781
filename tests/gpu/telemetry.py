"""Compares gpu_show with nvidia-smi, idle and under load; called by telemetry.sh.

usage: telemetry.py GPU_SHOW JSON
Ends with 0 when all figures agree, 1 when one does not, 77 without a GPU."""
import json
import os
import subprocess
import sys
import threading
import time

COST_LIMIT_US = 1250  # of CPU per reading of one GPU: 1 % of a core for eight

LOAD = """
import sys, time, torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
b = torch.empty(6 << 30, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print("ready", flush=True)
end = time.time() + float(sys.argv[1])
while time.time() < end:
    for _ in range(20):
        c = a @ a
    torch.cuda.synchronize()
"""


def smi(fields, kind="gpu"):
    """Rows of nvidia-smi's own figures as lists of texts."""
    out = subprocess.run(["nvidia-smi", f"--query-{kind}={fields}", "--format=csv,noheader,nounits"], capture_output=True,
                         text=True, timeout=30, check=True).stdout
    return [[cell.strip() for cell in line.split(",")] for line in out.splitlines() if line.strip()]


class Report:
    """Every comparison, printed and kept."""

    def __init__(self):
        self.rows = []

    def add(self, what, ours, theirs, ok):
        self.rows.append({"what": what, "acequia": ours, "nvidia-smi": theirs, "ok": bool(ok)})
        print(f"{'ok  ' if ok else 'FAIL'} {what:34} {ours!s:>42} | {theirs}")

    def near(self, what, ours, theirs, part=0.0, absolute=0.0):
        self.add(what, round(ours, 2), round(theirs, 2), abs(ours - theirs) <= max(part * abs(theirs), absolute))


def show(program, seconds, pid=None, gpm=False):
    """The GPUs, a line per second, and what each question cost."""
    env = dict(os.environ, **({"GPU_SHOW_PID": str(pid)} if pid else {}), **({"GPU_SHOW_GPM": "1"} if gpm else {}))
    done = subprocess.run([program, str(seconds)], capture_output=True, text=True, timeout=seconds + 60, env=env, check=False)
    if done.returncode == 77:
        print(done.stderr.strip())
        sys.exit(77)
    if done.returncode:
        sys.exit(f"gpu_show ended with {done.returncode}: {done.stderr}")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return lines[0], lines[1:-1], lines[-1]["costs_us"]


def device(line, index=0):
    """The sample of a whole device; fields that are 0 are left out in the JSON."""
    return next((s for s in line["telemetry"]["gpus"] if s.get("index", 0) == index and not s.get("id")), {})


def job(line):
    return next((s for s in line["telemetry"]["gpus"] if s.get("id") == 1), {})


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else float("nan")


def compare_identity(report, gpus):
    rows = smi("uuid,name,memory.total,pci.bus_id,mig.mode.current")
    report.add("number of GPUs", len(gpus), len(rows), len(gpus) == len(rows))
    for ours, theirs in zip(gpus, rows):
        report.add("uuid", ours["uuid"], theirs[0], ours["uuid"] == theirs[0])
        report.add("model", ours["model"], theirs[1], theirs[1] in (ours["model"], "NVIDIA " + ours["model"]))
        report.near("memory (MiB)", ours["memory_bytes"] / 2**20, float(theirs[2]), 0.01)
        report.add("pci", ours["pci"], theirs[3].lower(), theirs[3].lower().endswith(ours["pci"]))
        report.add("device file", ours["minor_path"], "exists", os.path.exists(ours["minor_path"].split(",")[0]))


class Watcher(threading.Thread):
    """nvidia-smi's figures once a second, beside ours."""

    FIELDS = "utilization.gpu,memory.used,power.draw.instant,temperature.gpu,clocks.sm,clocks.mem"

    def __init__(self, seconds):
        super().__init__(daemon=True)
        self.seconds, self.rows = seconds, []

    def run(self):
        end = time.time() + self.seconds
        while time.time() < end:
            self.rows.append([float(v) for v in smi(self.FIELDS)[0]])
            time.sleep(0.8)

    def mean(self, column):
        return mean(row[column] for row in self.rows[1:])


def compare_load(report, program):
    child = subprocess.Popen([sys.executable, "-c", LOAD, "45"], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline().strip() == "ready"
        time.sleep(4)
        watcher = Watcher(14)
        watcher.start()
        _, lines, costs = show(program, 14, child.pid)
        watcher.join()
        _, other, gpm_costs = show(program, 4, child.pid, gpm=True)
        processes = smi("pid,used_memory", "compute-apps")
    finally:
        child.terminate()
        child.wait(30)
    samples = [device(line) for line in lines[2:]]
    report.near("load: utilisation (%)", mean(s.get("utilisation_milli", 0) / 10 for s in samples), watcher.mean(0), 0.05, 3)
    report.near("load: memory used (MiB)", mean(s["memory_used_bytes"] / 2**20 for s in samples), watcher.mean(1), 0.02)
    report.near("load: power (W)", mean(s["power_mw"] / 1000 for s in samples), watcher.mean(2), 0.06, 10)
    report.near("load: temperature (C)", mean(s["temperature_c"] for s in samples), watcher.mean(3), 0, 3)
    report.near("load: SM clock (MHz)", mean(s["sm_clock_mhz"] for s in samples), watcher.mean(4), 0.06)
    report.near("load: memory clock (MHz)", mean(s["memory_clock_mhz"] for s in samples), watcher.mean(5), 0.02)
    first, last = lines[2], lines[-1]
    seconds = (last["telemetry"]["at_ms"] - first["telemetry"]["at_ms"]) / 1000
    energy = (device(last)["energy_mj"] - device(first)["energy_mj"]) / 1000
    fresh = sum(1 for a, b in zip(samples, samples[1:]) if a["power_mw"] != b["power_mw"]) + 1
    report.add("load: new figures of power", f"{fresh} of {len(samples)}", "at least half", fresh >= len(samples) / 2)
    report.near("load: energy against power (J)", energy, mean(s["power_mw"] / 1000 for s in samples) * seconds, 0.08)
    of_job = [job(line) for line in lines[3:]]
    report.near("job: memory of its process (MiB)", mean(s.get("memory_used_bytes", 0) / 2**20 for s in of_job),
                mean(float(m) for p, m in processes if int(p) == child.pid), 0.02)
    report.near("job: utilisation (%)", mean(s.get("utilisation_milli", 0) / 10 for s in of_job), watcher.mean(0), 0.1, 8)
    # A share of the idling and all of the work: never more than the device drew.
    share = (job(last).get("energy_mj", 0) - job(first).get("energy_mj", 0)) / 1000
    report.add("job: energy (J)", round(share, 1), f"<= {energy:.1f}", 0 < share <= energy * 1.001)
    report.near("performance monitoring: use (%)", mean(device(line).get("utilisation_milli", 0) / 10 for line in other[2:]), watcher.mean(0), 0.05, 5)
    print("cost of each question (us):", json.dumps(costs), "with performance monitoring:", gpm_costs["use"])
    cpu, wall = [line["cpu_us"] for line in lines[1:]], [line["wall_us"] for line in lines[1:]]
    report.add("cost: CPU per reading (us)", round(mean(cpu)), f"<= {COST_LIMIT_US} (most {max(cpu)}, wall {round(mean(wall))})",
               mean(cpu) <= COST_LIMIT_US)


def main():
    program, target = sys.argv[1], sys.argv[2]
    report = Report()
    gpus, lines, _ = show(program, 2)
    print("gpus:", json.dumps(gpus))
    print("idle:", json.dumps(lines[-1]))
    driver = smi("driver_version")[0][0]
    compare_identity(report, gpus)
    idle = smi("temperature.gpu,power.draw.instant,memory.used,clocks.sm")[0]
    sample = device(lines[-1])
    report.near("idle: temperature (C)", sample["temperature_c"], float(idle[0]), 0, 3)
    report.near("idle: power (W)", sample["power_mw"] / 1000, float(idle[1]), 0.25, 15)
    report.near("idle: memory used (MiB)", sample.get("memory_used_bytes", 0) / 2**20, float(idle[2]), 0.02, 20)
    compare_load(report, program)
    bad = [row for row in report.rows if not row["ok"]]
    with open(target, "w", encoding="utf-8") as f:
        json.dump({"driver": driver, "gpus": gpus, "rows": report.rows, "idle": lines[-1]}, f, indent=1)
    print(f"{len(report.rows) - len(bad)} of {len(report.rows)} figures agree (driver {driver})")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
