#!/usr/bin/env python3
"""Runs all tests. The last line is exactly "N passed, N failed, N skipped".

Steps: build, build with ASan and UBSan, unit tests and short fuzz runs, tidy, journeys (two more at a time than there are
cores, because they mostly wait; at most six) and beside them, at a lower priority, the unit tests with sanitizers, a
check that nothing was left behind. Every step has a time limit. A test that did not run counts as skipped and its
reason is printed. Up to five tests that failed run once more, alone; one that passes then counts as passed, and its
first failure is printed, because it still has to be mended.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as xml

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CASE = re.compile(r"^\[ +(OK|FAILED|SKIPPED) +\] (?:[\w-]+: )?(\w+)\s*$", re.M)  # one line of cmocka's report
SHOWN_LINES = 40
WORKERS_MAX = 6
WORKER_BYTES = 1 << 30  # of memory, for the daemons of a journey
LEFTOVERS_MAX = 5
AGAIN_MAX = 5  # tests that are tried a second time; more of them are no accident
# Half the time of -O2 -g to compile; a report of a sanitizer still names functions and lines. tools/fuzz has the same.
SANITIZED = ("-Db_sanitize=address,undefined", "-Doptimization=1", "-Dc_args=-g1")


class Totals:
    """Counts of the three results, the reasons of skipped tests, and tests that failed once and then passed."""

    def __init__(self):
        self.passed = self.failed = 0
        self.skips = collections.Counter()
        self.unsteady = []

    def add(self, name, ok, output=""):
        if ok:
            self.passed += 1
            return
        self.failed += 1
        print(f"FAILED {name}")
        for line in output.strip().splitlines()[-SHOWN_LINES:]:
            print("    " + line)

    def skip(self, reason):
        self.skips[reason.strip() or "no reason given"] += 1

    @property
    def skipped(self):
        return sum(self.skips.values())

    def line(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def run(command, limit, **more):
    """Exit status and output; 124 when the time limit was reached."""
    try:
        r = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit, errors="replace", **more)
        return r.returncode, r.stdout
    except subprocess.TimeoutExpired as e:
        out = e.stdout.decode(errors="replace") if isinstance(e.stdout, bytes) else e.stdout or ""
        return 124, out + f"\nended after {limit} s"


def step(text):
    print(f"== {text}", flush=True)
    return time.monotonic()


def build(totals, folder, *options):
    begin = step(f"building {folder}")
    code, out = run(["tools/build", folder, *options], 1800)
    totals.add(f"building {folder}", code == 0, output=out)
    print(f"   {time.monotonic() - begin:.0f} s")
    return code == 0


def count_program(totals, folder, test):
    """One test program of Meson: each of its cmocka cases counts, a program without cases counts as one."""
    name, result = f"{folder}: {test['name']}", test["result"]
    text = (test.get("stdout") or "") + (test.get("stderr") or "")
    if result == "SKIP":
        totals.skip(f"{name}: {(text.strip().splitlines() or ['exit status 77'])[-1]}")
        return
    cases = dict((case, state) for state, case in CASE.findall(text))
    for case, state in cases.items():
        if state == "SKIPPED":
            totals.skip(f"{name}: {case}")
        elif state == "OK":
            totals.add(f"{name}: {case}", True)
    if result not in ("OK", "EXPECTEDFAIL"):
        totals.add(f"{name} ({result})", False, output=text)
    elif not cases:
        totals.add(name, True)


def run_meson(folder, limit_factor, processes, *before, names=()):
    """What each test program (of those named, or all) gave, or None without a log; and the seconds that it took."""
    begin = time.monotonic()
    env = dict(os.environ, ASAN_OPTIONS="detect_leaks=1:abort_on_error=1", UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1")
    log = os.path.join(ROOT, folder, "meson-logs", "testlog.json")
    if os.path.exists(log):
        os.unlink(log)
    run([*before, "meson", "test", "-C", folder, "--no-rebuild", "--no-suite", "long", "-t", str(limit_factor),
         "--num-processes", str(processes), *names], 3600, env=env)
    if not os.path.exists(log):
        return None, 0
    with open(log, encoding="utf-8", errors="replace") as f:
        return [json.loads(line) for line in f], time.monotonic() - begin


def count_meson(totals, folder, programs, seconds):
    before = totals.passed
    if programs is None:
        totals.add(f"meson test in {folder}", False, output="it wrote no log")
        return
    failed = [p["name"] for p in programs if p["result"] not in ("OK", "EXPECTEDFAIL", "SKIP")]
    second = {}
    if failed and len(failed) <= AGAIN_MAX:
        step(f"{len(failed)} failed: once more, alone")
        second = {p["name"]: p for p in run_meson(folder, 8, 1, names=[name.split(" / ")[-1] for name in failed])[0] or ()}
    for program in programs:
        now = second.get(program["name"], program)
        if now["result"] == "OK" and program["result"] != "OK":
            totals.unsteady.append((f"{folder}: {program['name']}", program.get("stdout") or ""))
        count_program(totals, folder, now)
    for program in sorted(programs, key=lambda p: -p["duration"])[:3]:
        print(f"   {program['duration']:5.0f} s {program['name']}")
    print(f"   {totals.passed - before} passed in {seconds:.0f} s")


def tidy(totals, folder):
    step("tidy")
    code, out = run([sys.executable, "tests/tidy.py"], 300, env=dict(os.environ, BUILD=os.path.join(ROOT, folder)))
    totals.add("tidy", code == 0, output=out)


def count_journeys(totals, report, durations, again):
    """Adds the cases of a JUnit file to the totals and their seconds per file to the recorded durations. again() runs
    failed tests a second time and returns those that passed then."""
    seconds = collections.Counter()
    failures = {}
    for case in xml.parse(report).getroot().iter("testcase"):
        bad = case.find("failure") if case.find("failure") is not None else case.find("error")
        skipped = case.find("skipped")
        name = f"{case.get('classname')}.{case.get('name')}"
        seconds[(case.get("classname") or "").replace(".", "/") + ".py"] += float(case.get("time") or 0)
        if bad is not None:
            failures[name] = bad.text or bad.get("message") or ""
        elif skipped is not None:
            totals.skip(f"{case.get('classname')}: {skipped.get('message') or ''}")
        else:
            totals.add(name, True)
    passed_now = again(failures)
    for name, text in failures.items():
        if name in passed_now:
            totals.unsteady.append((name, text))
        totals.add(name, name in passed_now, output=text)
    with open(durations, "w", encoding="utf-8") as f:
        json.dump({path: round(s, 1) for path, s in seconds.most_common()}, f, indent=1)
    return seconds


def node_of(name):
    """The test that a JUnit file calls journeys.test_x.test_y, as pytest's command line names it."""
    parts = name.split("[")[0].split(".")
    for n in range(len(parts) - 1, 0, -1):
        path = os.path.join("tests", *parts[:n]) + ".py"
        if os.path.exists(os.path.join(ROOT, path)):
            return f"{path}::{name[len('.'.join(parts[:n])) + 1:]}"
    return name


def free_memory():
    """Bytes that programs can still have."""
    with open("/proc/meminfo", encoding="ascii") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("MemAvailable:"))


def journeys(totals, folder, limit):
    """Whole files run side by side, the longest first (tests/conftest.py knows how long each took)."""
    workers = str(max(1, min(WORKERS_MAX, (os.cpu_count() or 2) + 2, free_memory() // WORKER_BYTES)))
    begin = step(f"journeys, {workers} at a time")
    before = totals.passed
    report = os.path.join(ROOT, folder, "journeys.xml")
    durations = os.path.join(ROOT, folder, "journeys.json")
    if os.path.exists(report):
        os.unlink(report)
    # Debian's Python, which has Debian's pytest.
    python = "/usr/bin/python3" if os.path.exists("/usr/bin/pytest-3") or os.path.exists("/usr/bin/pytest") else sys.executable
    env = dict(os.environ, ACEQUIA_BUILD=os.path.join(ROOT, folder), BUILD=os.path.join(ROOT, folder), PYTHONPATH=f"{ROOT}:{ROOT}/tests",
               ACEQUIA_DURATIONS=durations)
    pytest = [python, "-m", "pytest", "-q", "-m", "not long and not gpu", "-p", "no:cacheprovider"]

    def again(failures):
        """Each of a few failed tests once more, alone: a daemon that a busy machine delayed passes, a defect fails."""
        if not failures or len(failures) > AGAIN_MAX or os.environ.get("FAIL_FAST"):
            return set()
        step(f"{len(failures)} failed: once more, alone")
        return {name for name in failures if run([*pytest, node_of(name)], limit, env=env)[0] == 0}

    code, out = run([*pytest, *(["-x"] if os.environ.get("FAIL_FAST") else []), "-n", workers, "--dist", "loadfile",
                     "--continue-on-collection-errors", "--junitxml", report, "tests"], limit, env=env)
    if not os.path.exists(report):
        totals.add("journeys", False, output=out)
        return
    seconds = count_journeys(totals, report, durations, again)
    if code not in (0, 1):
        totals.add("journeys", False, output=out)
    for path, s in seconds.most_common(8):
        print(f"   {s:5.0f} s {path}")
    print(f"   {totals.passed - before} passed in {time.monotonic() - begin:.0f} s")


def leftovers():
    """Folders of agents and tests that outlive their processes unless somebody removes them."""
    found = set()
    for place in ("/dev/shm", "/run", "/tmp"):
        for name in os.listdir(place):
            if name.startswith(("acequia-", "aqt-")):
                found.add(f"{place}/{name}")
    return found


def in_use(path):
    """True when a living process names the path or has it open: another run on this machine."""
    needle = path.encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
            if any(target.startswith(path) for target in links):
                return True
            for part in ("cmdline", "environ"):
                with open(f"/proc/{pid}/{part}", "rb") as f:
                    if needle in f.read():
                        return True
        except OSError:
            continue
    return False


def check_leftovers(totals, before):
    step("nothing left behind")
    left = sorted(path for path in leftovers() - before if not in_use(path))
    for path in left:
        print(f"   left behind: {path}")
    # Journeys that kill daemons can leave a folder that something wrote to after it was removed; tests that do not
    # clean up at all leave many.
    totals.add("nothing left behind", len(left) <= LEFTOVERS_MAX, output="\n".join(left))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="without the sanitizer build")
    parser.add_argument("--build", default="build")
    args = parser.parse_args()
    totals = Totals()
    before = leftovers()
    cores = os.cpu_count() or 2
    beside = concurrent.futures.ThreadPoolExecutor(1)
    built = build(totals, args.build)
    # Without Node or a registry its journeys are skipped and say why.
    portal = beside.submit(run, ["tools/portal", args.build], 900) if built else None
    # The journeys look for leaks in the daemons of the sanitizer build: it comes before them.
    sanitized = not args.quick and build(totals, "build-asan", *SANITIZED)
    if built:
        print(portal.result()[1].strip())
        step(f"unit tests and short fuzz runs in {args.build}")
        count_meson(totals, args.build, *run_meson(args.build, 6, 2 * cores))  # every other one waits
        tidy(totals, args.build)
    checked = beside.submit(run_meson, "build-asan", 8, cores, "nice", "-n", "10") if sanitized else None
    if built:
        journeys(totals, args.build, 1800)
    if checked:
        step("unit tests and short fuzz runs in build-asan")
        count_meson(totals, "build-asan", *checked.result())
    check_leftovers(totals, before)
    for name, text in totals.unsteady:
        step(f"passed only at the second try, which is a defect of the test or of the program: {name}")
        print("\n".join("    " + line for line in text.strip().splitlines()[-SHOWN_LINES:]))
    if totals.skips:
        step("skipped")
        for reason, count in totals.skips.most_common():
            print(f"   {count} x {reason}")
    print(totals.line())
    return 1 if totals.failed else 0


if __name__ == "__main__":
    sys.exit(main())
