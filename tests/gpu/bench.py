#!/usr/bin/env python3
"""Measures the GPU shim on a real GPU and prints a table and JSON.

usage: bench.py BUILD_DIR [--quick] [--only PART,...] [--kinds KIND,...] [--json FILE]
"""
import argparse
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MIB, GIB = 1 << 20, 1 << 30
ROWS, RESULT = [], {}


def row(part, what, got, want, ok):
    ROWS.append((part, what, got, want, ok))
    print(f"{'ok  ' if ok else 'MISS'} {part:10} {what:44} {got:>22}   {want}", flush=True)


class Nvml:
    """The driver's own figures, read past any shim."""

    class Process(ctypes.Structure):
        _fields_ = [("pid", ctypes.c_uint), ("bytes", ctypes.c_ulonglong),
                    ("gpu", ctypes.c_uint), ("compute", ctypes.c_uint)]

    def __init__(self):
        self.lib = ctypes.CDLL("libnvidia-ml.so.1")
        self.lib.nvmlInit_v2()
        self.dev = ctypes.c_void_p()
        self.lib.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.dev))
        buf = ctypes.create_string_buffer(96)
        self.lib.nvmlDeviceGetUUID(self.dev, buf, 96)
        self.uuid = buf.value.decode()
        self.lib.nvmlSystemGetDriverVersion(buf, 96)
        self.driver = buf.value.decode()
        self.lib.nvmlDeviceGetName(self.dev, buf, 96)
        self.name = buf.value.decode()

    def utilization(self):
        rates = (ctypes.c_uint * 2)()
        self.lib.nvmlDeviceGetUtilizationRates(self.dev, rates)
        return rates[0]

    def used(self, pids):
        n, buf = ctypes.c_uint(256), (self.Process * 256)()
        if self.lib.nvmlDeviceGetComputeRunningProcesses_v3(self.dev, ctypes.byref(n), buf):
            return 0
        return sum(buf[i].bytes for i in range(n.value) if buf[i].pid in pids)


def real_path(soname):
    out = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True).stdout
    return next(x.split()[-1] for x in out.splitlines() if x.split()[:1] == [soname])


class Load(threading.Thread):
    """Mean share of the time in which some kernel ran, by the driver's figure. That figure covers
    the last moments, so the first ones are left out."""

    def __init__(self, nvml):
        super().__init__(daemon=True)
        self.nvml, self.stop, self.seen = nvml, False, []

    def run(self):
        start = time.monotonic()
        while not self.stop:
            if time.monotonic() - start > 0.7:
                self.seen.append(self.nvml.utilization())
            time.sleep(0.02)

    def mean(self):
        self.stop = True
        self.join()
        return sum(self.seen) / max(len(self.seen), 1)


class Watch(threading.Thread):
    """The most a set of processes ever held together, by the driver's figures."""

    def __init__(self, nvml, pids):
        super().__init__(daemon=True)
        self.nvml, self.pids, self.most, self.samples, self.stop = nvml, set(pids), 0, 0, False

    def run(self):
        while not self.stop:
            self.most = max(self.most, self.nvml.used(self.pids))
            self.samples += 1
            time.sleep(0.001)


class Job:
    def __init__(self, bench, name, memory=0, milli=0, borrow=0):
        self.bench, self.name = bench, name
        self.dir = os.path.join(bench.dir, name)
        os.makedirs(self.dir, exist_ok=True)
        self.file = os.path.join(self.dir, bench.nvml.uuid[4:] + ".ledger")
        self.limits("create", memory, milli, borrow)

    def limits(self, verb, memory, milli, borrow):
        subprocess.run([self.bench.ledger, verb, self.file, self.name, self.bench.nvml.uuid,
                        str(memory), str(milli), str(borrow)], check=True)

    def set(self, memory=0, milli=0, borrow=0):
        self.limits("set", memory, milli, borrow)

    def show(self):
        return json.loads(subprocess.run([self.bench.ledger, "show", self.file], check=True,
                                         capture_output=True, text=True).stdout)

    def env(self, arbiter=False, **more):
        env = dict(os.environ, ACEQUIA_GPU_LEDGER_DIR=self.dir, **more)
        env["LD_LIBRARY_PATH"] = self.bench.shim + ":" + env.get("LD_LIBRARY_PATH", "")
        if arbiter:
            env["ACEQUIA_GPU_ARBITER_DIR"] = self.bench.dir
        return env


class Worker:
    def __init__(self, env):
        self.p = subprocess.Popen([sys.executable, os.path.join(HERE, "worker.py")], env=env, text=True,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ready(self):
        self.read()
        return self

    def read(self):
        line = self.p.stdout.readline()
        if not line:
            raise RuntimeError(f"a worker died with status {self.p.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def send(self, text):
        self.p.stdin.write(text + "\n")
        self.p.stdin.flush()

    def run(self, kind, seconds):
        self.send(f"run {kind} {seconds}")
        return self.read()["rate"]

    def end(self):
        try:
            self.send("quit")
            self.p.wait(20)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self.p.kill()
            self.p.wait()


class Bench:
    def __init__(self, build, quick, kinds):
        self.build, self.quick = build, quick
        self.kinds = set(kinds.split(","))
        self.shim = os.path.join(build, "shim")
        self.ledger, self.probe = os.path.join(build, "ledger"), os.path.join(build, "probe")
        self.dir = tempfile.mkdtemp(prefix="acequia-gpu-")
        self.nvml = Nvml()
        self.arbiter = os.path.join(self.dir, self.nvml.uuid[4:] + ".arbiter")
        subprocess.run([self.ledger, "arbiter", self.arbiter, self.nvml.uuid], check=True)
        self.seconds = 1.5 if quick else 2.5

    def probe_run(self, what, env, **kw):
        return subprocess.run([self.probe, what], env=env, capture_output=True, text=True, timeout=120, **kw)

    # Memory

    def exports(self):
        for soname, names in (("libcuda.so.1", "libcuda.symbols"), ("libnvidia-ml.so.1", "libnvml.symbols")):
            path = real_path(soname)
            out = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True).stdout
            real = {x.split()[2].split("@")[0] for x in out.splitlines() if x.split()[1] == "T"}
            with open(os.path.join(HERE, "../../src/shim", names)) as f:
                ours = {x.strip() for x in f if not x.startswith("#")}
            row("exports", f"functions of {soname} not passed on", str(len(real - ours)), "0", not real - ours)
            if real - ours:
                print("    lacking:", " ".join(sorted(real - ours)))

    def memory_kinds(self):
        job = Job(self, "kinds", memory=16 * GIB)
        r = self.probe_run("kinds", job.env())
        bad = [x for x in r.stdout.splitlines() if x.startswith("FAIL")]
        good = [x for x in r.stdout.splitlines() if x.startswith("ok")]
        row("memory", "every kind charged, refused, given back", f"{len(good)} of {len(good) + len(bad)}",
            "all", r.returncode == 0 and good)
        for x in bad:
            print("    ", x)
        if r.returncode:
            print(r.stdout[-1500:], r.stderr[-1500:])
        row("memory", "left in the ledger afterwards", f"{job.show()['processes']}"[:22], "dead or none", True)

    def memory_race(self, n=16, limit=16 * GIB):
        job = Job(self, "race", memory=limit)
        hogs = [subprocess.Popen([self.probe, "hog", str(i)], env=job.env(), text=True, stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE) for i in range(n)]
        watch = Watch(self.nvml, [h.pid for h in hogs])
        watch.start()
        got = [h.stdout.readline().split() for h in hogs]
        time.sleep(0.3)
        end = self.nvml.used({h.pid for h in hogs})
        watch.stop = True
        watch.join()
        show = job.show()
        RESULT["race"] = {"limit": limit, "most": watch.most, "end": end, "samples": watch.samples,
                          "contexts": sum(g[0] == "1" for g in got), "ledger": show["used"],
                          "overdraft": show["overdraft"], "context_bytes": show["context"]}
        over = watch.most - limit
        row("memory", f"race of {n}: most ever held over the limit", f"{max(over, 0)} B", "0 B", over <= 0)
        row("memory", f"race of {n}: contexts made", str(RESULT["race"]["contexts"]), f"{n}", True)
        row("memory", f"race of {n}: used of the limit at the end", f"{100 * end / limit:.1f} %", "> 90 %",
            end > 0.9 * limit)
        # Half are killed while they hold memory; their part can be taken again at once.
        for h in hogs[::2]:
            h.kill()
            h.wait()
        before = time.monotonic()
        again = subprocess.Popen([self.probe, "hog", "99"], env=job.env(), text=True, stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE)
        reply = again.stdout.readline().split()
        most = self.nvml.used({h.pid for h in hogs} | {again.pid})
        row("kill", "memory of 8 killed processes taken again", f"{int(reply[1]) / GIB:.1f} GiB", "> 3 GiB",
            int(reply[1]) > 3 * GIB and most <= limit)
        RESULT["retake_s"] = time.monotonic() - before
        for h in hogs[1::2] + [again]:
            h.kill()
            h.wait()

    def allocators(self, limit=16 * GIB):
        modes = {"native": "", "expandable_segments": "expandable_segments:True",
                 "cudaMallocAsync": "backend:cudaMallocAsync"}
        jobs = {m: Job(self, "alloc-" + m, memory=limit) for m in modes}
        workers = {m: Worker(jobs[m].env(PYTORCH_CUDA_ALLOC_CONF=c, PYTORCH_ALLOC_CONF=c)) for m, c in modes.items()}
        RESULT["allocators"] = {}
        for m, w in workers.items():
            w.ready()
            watch = Watch(self.nvml, [w.p.pid])
            watch.start()
            w.send("fill")
            a = w.read()
            watch.stop = True
            watch.join()
            RESULT["allocators"][m] = dict(a, most=watch.most, ledger=jobs[m].show()["used"])
            row("memory", f"PyTorch {m}: total shown", f"{a['total'] / MIB:.0f} MiB", f"{limit / MIB:.0f} MiB",
                a["total"] == limit)
            row("memory", f"PyTorch {m}: got / held / limit", f"{a['got'] / MIB:.0f} / {watch.most / MIB:.0f} MiB",
                "held <= limit", watch.most <= limit and a["got"] > 0.9 * limit)
            w.send("drop")
            w.read()
            rate = w.run("graph", 0.5)
            row("memory", f"PyTorch {m}: graphs after the refusal", f"{rate:.0f} replays/s", "works", rate > 0)
            w.end()

    def smi(self):
        job = Job(self, "smi", memory=16 * GIB)
        out = subprocess.run(["nvidia-smi", "--query-gpu=memory.total,memory.used,name", "--format=csv,noheader"],
                             env=job.env(), capture_output=True, text=True).stdout.strip()
        plain = subprocess.run(["nvidia-smi"], env=job.env(), capture_output=True, text=True).stdout
        row("memory", "nvidia-smi shows", out.split(",")[0], "16384 MiB",
            out.startswith("16384 MiB") and "16384MiB" in plain.replace(" ", ""))

    # Compute

    def overhead(self):
        """With and without the shim in turn inside one process, so that noise hits both alike."""
        job = Job(self, "launch")
        variants = {"no limit on this GPU": (dict(job.env(), ACEQUIA_GPU_LEDGER_DIR="/nonexistent"), None),
                    "memory limit only": (job.env(), (16 * GIB, 0, 0)),
                    "compute, not limited by it": (job.env(), (16 * GIB, 990, 0)),
                    "may borrow, alone": (job.env(arbiter=True), (16 * GIB, 500, 1))}
        real = real_path("libcuda.so.1")
        got = {k: [] for k in variants}
        for _ in range(3):
            for k, (env, limits) in variants.items():
                if limits:
                    job.set(*limits)
                r = self.probe_run("launch", dict(env, PROBE_REAL=real))
                if r.returncode:
                    raise RuntimeError(r.stderr[-300:])
                got[k].append([float(x) for x in r.stdout.split()])
        RESULT["launch_ns"] = got
        row("overhead", "one launch, bare", f"{min(x[1] for v in got.values() for x in v):.0f} ns", "", True)
        for k, v in got.items():
            extra = sorted(x[0] - x[1] for x in v)[1]
            row("overhead", f"added per launch: {k}", f"{extra:.0f} ns", "<= 100 ns", extra <= 100)

    def barriers(self):
        """Programs that must neither hang nor go wrong while the GPU is made to wait."""
        RESULT["barriers"] = {}
        for what, text in (("streams", "sixteen streams that wait for each other"), ("order", "order and completeness"),
                           ("flood", "a queue full of other work"), ("await", "a kernel that waits for the program"),
                           ("exit", "exit with work waiting"), ("reset", "context reset with work waiting")):
            for arbiter in (False, True):
                job = Job(self, f"barriers-{what}-{arbiter}", memory=16 * GIB, milli=500 if what == "await" else 100)
                start = time.monotonic()
                try:
                    r = subprocess.run([self.probe, "barriers", what], env=job.env(arbiter=arbiter), capture_output=True, text=True,
                                       timeout=15)
                    took, ok, said = time.monotonic() - start, r.returncode == 0, r.stderr.strip()
                except subprocess.TimeoutExpired:
                    took, ok, said = 15, False, "hung"
                RESULT["barriers"][f"{what}-{arbiter}"] = took
                row("barriers", text + (", turns" if arbiter else ""), f"{took:.2f} s {said[-60:]}", "ends, right", ok)

    def loops(self, bare, shim, job):
        """Training and inference with and without the shim, alternating in one run."""
        for kind in self.kinds & {"train", "infer"}:
            rates = {"bare": [], "memory": [], "borrow": []}
            bare.run(kind, 1)
            shim.run(kind, 1)
            for _ in range(4 if self.quick else 8):
                rates["bare"].append(bare.run(kind, 1))
                job.set(memory=64 * GIB)
                rates["memory"].append(shim.run(kind, 1))
                job.set(memory=64 * GIB, milli=500, borrow=1)
                rates["borrow"].append(shim.run(kind, 1))
            RESULT[f"loop_{kind}"] = rates
            best = {k: max(v) for k, v in rates.items()}
            mid = {k: sorted(v)[len(v) // 2] for k, v in rates.items()}
            for k in ("memory", "borrow"):
                slow, slow_mid = 100 * (1 - best[k] / best["bare"]), 100 * (1 - mid[k] / mid["bare"])
                row("overhead", f"{kind} slowdown, {k} ({best['bare']:.1f} steps/s bare)",
                    f"{slow:+.2f} % (median {slow_mid:+.2f})", "<= 1 %", min(slow, slow_mid) <= 1)

    def shares(self, bare, shim, job):
        RESULT["shares"] = {}
        for kind in sorted(self.kinds - {"infer"}):
            bare.run(kind, 0.3)
            job.set(memory=64 * GIB)
            shim.run(kind, 0.3)
            load = Load(self.nvml)
            load.start()
            full = bare.run(kind, self.seconds)
            busy, rates = load.mean(), {}
            for milli in (250, 500, 750):
                job.set(memory=64 * GIB, milli=milli)
                shim.run(kind, 0.2)
                load = Load(self.nvml)
                load.start()
                rates[milli] = shim.run(kind, self.seconds), load.mean()
            full = max(full, bare.run(kind, self.seconds))
            RESULT["shares"][kind] = {"bare": full, "bare_busy": busy, "rates": rates}
            for milli, (rate, load) in rates.items():
                pct, time_pct = 100 * rate / full, load
                ok = min(abs(pct - milli / 10), abs(time_pct - milli / 10)) <= 3 and pct >= 0.97 * milli / 10
                judged = busy > 90  # a program that cannot fill the GPU is bound by its processor
                row("share", f"{kind} at {milli / 10:.0f} % ({full:.1f}/s bare, busy {busy:.0f} %)",
                    f"{pct:.1f} %, time {time_pct:.1f} %", "+-3 points, >= 97 %" if judged else "not judged",
                    ok or not judged)
        job.set(memory=64 * GIB)

    def two_processes(self, bare):
        job = Job(self, "pair", memory=64 * GIB)
        pair = [Worker(job.env()), Worker(job.env())]
        for w in pair:
            w.ready()
        RESULT["pair"] = {}
        for kind in ("small", "large", "graph"):
            for w in pair:
                w.run(kind, 0.3)
            full = bare.run(kind, self.seconds)
            rate = {}
            for milli in (0, 250, 500, 750):
                job.set(memory=64 * GIB, milli=milli)
                load = Load(self.nvml)
                load.start()
                for w in pair:
                    w.send(f"run {kind} {self.seconds}")
                rate[milli] = sum(w.read()["rate"] for w in pair), load.mean()
            RESULT["pair"][kind] = {"rates": rate, "bare": full}
            both = rate[0][0]
            for milli in (250, 500, 750):
                pct, time_pct = 100 * rate[milli][0] / both, rate[milli][1]
                ok = min(abs(pct - milli / 10), abs(time_pct - milli / 10)) <= 3 and pct >= 0.97 * milli / 10
                row("share", f"two processes, {kind} at {milli / 10:.0f} % ({both:.0f}/s unlimited)",
                    f"{pct:.1f} %, time {time_pct:.1f} %", "+-3 points, >= 97 %", ok)
        # One of the two is killed in the middle; the other gets the whole share.
        job.set(memory=64 * GIB, milli=500)
        for w in pair:
            w.send("run small 2")
        time.sleep(0.7)
        pair[0].p.kill()
        pair[0].p.wait()
        series = pair[1].read()["series"]
        full = bare.run("small", 1)
        pct = 100 * sum(r for _, r in series[-4:]) / 4 / full
        row("kill", "share of the survivor after kill -9 of a peer", f"{pct:.1f} %", "50 +- 5", abs(pct - 50) <= 5)
        pair[1].end()

    def jobs_together(self, bare):
        """Jobs that share a GPU: each held to its share while all want it, idle share lent."""
        RESULT["jobs"] = {}
        a, b = Job(self, "job-a", memory=48 * GIB), Job(self, "job-b", memory=48 * GIB)
        wa, wb = Worker(a.env(arbiter=True)), Worker(b.env(arbiter=True))
        wa.ready()
        wb.ready()
        for kind in ("small", "large", "train"):
            a.set(memory=48 * GIB, milli=500, borrow=1)
            b.set(memory=48 * GIB, milli=500, borrow=1)
            wa.run(kind, 0.3)
            wb.run(kind, 0.3)
            full = bare.run(kind, self.seconds)
            for sa, sb, borrow in ((500, 500, 1), (750, 250, 1), (500, 250, 0)):
                a.set(memory=48 * GIB, milli=sa, borrow=borrow)
                b.set(memory=48 * GIB, milli=sb, borrow=borrow)
                for w in (wa, wb):  # the one with less is longer at its first steps: only the common time counts
                    w.send(f"run {kind} {self.seconds + 1}")
                time.sleep(0.6)
                before, start = [j.show()["gpu_ns"] for j in (a, b)], time.monotonic()
                time.sleep(self.seconds - 0.2)
                gpu = [(j.show()["gpu_ns"] - x) / (time.monotonic() - start) / 1e7 for j, x in zip((a, b), before)]
                series = [w.read()["series"] for w in (wa, wb)]
                begin, end = max(s[0][0] for s in series), min(s[-1][0] for s in series)
                common = [[r for t, r in s if begin < t <= end] for s in series]
                ra, rb = [100 * sum(c) / max(len(c), 1) / full for c in common]
                RESULT["jobs"][f"{kind}/{sa}/{sb}/{borrow}"] = {"rates": [ra, rb], "gpu": gpu}
                near = lambda r, g, s: min(abs(r - s / 10), abs(g - s / 10)) <= 3 and r >= s / 10 - 3
                ok = near(ra, gpu[0], sa) and near(rb, gpu[1], sb)
                row("jobs", f"two jobs, {kind}, {sa / 10:.0f} and {sb / 10:.0f} %" + ("" if borrow else ", no borrowing"),
                    f"{ra:.1f} and {rb:.1f} %", "+-3 points", ok)
                print(f"        of GPU time {gpu[0]:.1f} and {gpu[1]:.1f} %, {full:.1f}/s bare")
        # Borrow, give back, borrow again.
        for j in (a, b):
            j.set(memory=48 * GIB, milli=500, borrow=1)
        full = bare.run("small", 1.5)
        wa.send("run small 4.5")
        time.sleep(1.5)
        wb.send("run small 1.5")
        sb = wb.read()["series"]
        t1, t2 = sb[0][0] - 0.25, sb[-1][0]
        sa = wa.read()["series"]
        full = (full + bare.run("small", 1.5)) / 2  # the chip grows warm and slow meanwhile
        alone = [r for t, r in sa if t < t1]
        during = [r for t, r in sa if t1 + 0.5 < t <= t2]
        after = [r for t, r in sa if t > t2 + 0.5]
        mean = lambda v: 100 * sum(v) / max(len(v), 1) / full
        RESULT["borrow"] = {"a": sa, "b": sb, "full": full}
        row("borrow", "alone with half a share", f"{mean(alone):.1f} %", ">= 97 %", mean(alone) >= 97)
        row("borrow", "while the other runs", f"{mean(during):.1f} %", "50 +- 3", abs(mean(during) - 50) <= 3)
        row("borrow", "the other, in its first quarter second", f"{100 * sb[0][1] / full:.1f} %", ">= 40 %",
            100 * sb[0][1] / full >= 40)
        row("borrow", "alone again", f"{mean(after):.1f} %", ">= 97 %", mean(after) >= 97)
        # A job killed in its turn must not hold the others up.
        wa.send("run small 3")
        wb.send("run small 4")
        time.sleep(0.8)
        wb.p.send_signal(signal.SIGKILL)
        wb.p.wait()
        t3 = time.monotonic()
        after = [r for t, r in wa.read()["series"] if t > t3 + 0.5]
        full = (full + bare.run("small", 1.5)) / 2
        row("kill", "a job alone after kill -9 of the other", f"{mean(after):.1f} %", ">= 97 %", mean(after) >= 97)
        wa.end()

    def latency(self, bare):
        """Small inferences, 5 ms apart, beside a job that wants the whole GPU, each with half."""
        a, b = (Job(self, f"reply-{x}", memory=48 * GIB, milli=500, borrow=1) for x in "ab")
        wa, wb, other = Worker(a.env(arbiter=True)), Worker(b.env(arbiter=True)), Worker(dict(os.environ))
        for w in (wa, wb, other):
            w.ready()
        seconds, got = self.seconds + 1, {}

        def ask(w):
            w.send(f"reply {seconds} 5")
            return w.read()
        for name, w, beside in (("bare, alone", bare, None), ("bare, beside another", bare, other), ("alone", wa, None),
                                ("beside another", wa, wb)):
            ask_kind = "large"
            if beside:
                beside.run(ask_kind, 0.3)
            w.send("reply 0.3 5")
            w.read()
            if beside:
                beside.send(f"run {ask_kind} {seconds + 1}")
                time.sleep(0.3)
            got[name] = ask(w)
            got[name]["batch"] = beside.read()["rate"] if beside else 0
        RESULT["latency"] = got
        for name, r in got.items():
            ok = name != "beside another" or r["p99"] <= max(25, 1.5 * got["bare, beside another"]["p99"])
            row("latency", f"small inference, {name}", f"p50 {r['p50']:.1f}, p99 {r['p99']:.1f} ms", "", ok)
        for w in (wa, wb, other):
            w.end()

    def eight_jobs(self, bare, n=8):
        jobs = [Job(self, f"eight-{i}", memory=8 * GIB, milli=1000 // n, borrow=1) for i in range(n)]
        workers = [Worker(j.env(arbiter=True)) for j in jobs]
        for w in workers:
            w.ready()
        for w in workers:
            w.run("small", 0.2)
        full = bare.run("small", 1)
        for w in workers:
            w.send(f"run small {self.seconds + 1.5}")
        series = [w.read()["series"] for w in workers]
        begin, end = max(s[0][0] for s in series), min(s[-1][0] for s in series)
        mean = lambda s: sum(r for t, r in s if begin < t <= end) / max(1, sum(begin < t <= end for t, r in s))
        rates = [100 * mean(s) / full for s in series]
        RESULT["eight"] = {"rates": rates, "full": full, "series": series}
        row("jobs", f"{n} jobs at {100 / n:.1f} %: least and most", f"{min(rates):.1f} .. {max(rates):.1f} %",
            "+-3 points", min(rates) >= 100 / n - 3 and max(rates) <= 100 / n + 3)
        row("jobs", f"{n} jobs together ({full:.0f}/s bare)", f"{sum(rates):.1f} %", ">= 90 %", sum(rates) >= 90)
        for w in workers:
            w.end()

    def forks(self):
        job = Job(self, "forks", memory=16 * GIB, milli=500)
        code = ("import os, torch, torch.utils.data as d\n"
                "pid = os.fork()\n"
                "x = torch.zeros(1 << 20, device='cuda'); x += 1; torch.cuda.synchronize()\n"
                "assert x.sum().item() == 1 << 20\n"
                "if pid == 0: os._exit(0)\n"
                "assert os.waitpid(pid, 0)[1] == 0\n"
                "pid = os.fork()\n"
                "if pid == 0: os._exit(0)\n"
                "os.waitpid(pid, 0)\n"
                "data = d.DataLoader(torch.arange(1000.), batch_size=10, num_workers=4, pin_memory=True)\n"
                "s = sum(b.cuda().sum().item() for b in data)\n"
                "assert s == 499500, s\n"
                "print(torch.cuda.mem_get_info()[1])\n")
        r = subprocess.run([sys.executable, "-c", code], env=job.env(), capture_output=True, text=True, timeout=120)
        row("forks", "fork before and after CUDA, DataLoader workers", r.stdout.strip() or "failed", str(16 * GIB),
            r.returncode == 0 and r.stdout.strip() == str(16 * GIB))
        if r.returncode:
            print(r.stderr[-2000:])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("build")
    ap.add_argument("--quick", action="store_true")
    ap.add_argument("--only", default="", help="parts, by name")
    ap.add_argument("--kinds", default="tiny,small,large,graph,train,infer", help="workloads of shares and loops")
    ap.add_argument("--json")
    args = ap.parse_args()
    bench = Bench(args.build, args.quick, args.kinds)
    only = set(filter(None, args.only.split(",")))
    RESULT.update(driver=bench.nvml.driver, gpu=bench.nvml.name, date=time.strftime("%Y-%m-%d"))
    print(f"{bench.nvml.name}, driver {bench.nvml.driver}, {RESULT['date']}")
    wanted = lambda name: not only or name in only
    workers = {}

    def bare():
        if "bare" not in workers:
            workers["bare"] = Worker(dict(os.environ, WORKER_CORES="2,3")).ready()
        return workers["bare"]

    def shim():
        if "shim" not in workers:
            workers["job"] = Job(bench, "shares", memory=64 * GIB)
            workers["shim"] = Worker(workers["job"].env(arbiter=True, WORKER_CORES="2,3")).ready()
        return workers["shim"], workers["job"]

    parts = {
        "exports": bench.exports, "smi": bench.smi, "kinds": bench.memory_kinds, "race": bench.memory_race,
        "forks": bench.forks, "allocators": bench.allocators, "overhead": bench.overhead,
        "barriers": bench.barriers, "loops": lambda: bench.loops(bare(), *shim()), "shares": lambda: bench.shares(bare(), *shim()),
        "pair": lambda: bench.two_processes(bare()), "jobs": lambda: bench.jobs_together(bare()),
        "eight": lambda: bench.eight_jobs(bare()), "latency": lambda: bench.latency(bare()),
    }
    for name, part in parts.items():
        if not wanted(name):
            continue
        start = time.monotonic()
        try:
            part()
        except Exception as e:
            row(name, "could not be measured", type(e).__name__, str(e)[:60], False)
        print(f"    ({name}: {time.monotonic() - start:.1f} s)", flush=True)
    for w in ("bare", "shim"):
        if w in workers:
            workers[w].end()
    missed = [r for r in ROWS if not r[4]]
    print(f"\n{len(ROWS) - len(missed)} of {len(ROWS)} rows as wanted")
    if args.json:
        with open(args.json, "w") as f:
            json.dump({"rows": ROWS, "result": RESULT}, f, indent=1)
    shutil.rmtree(bench.dir, ignore_errors=True)
    return 0


sys.exit(main())
