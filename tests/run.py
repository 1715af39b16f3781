#!/usr/bin/env python3
"""Runs all tests and ends with one line: N passed, N failed.

Steps: build, also with ASan and UBSan; unit tests and fuzz slices; tidy; journeys; unit tests with the sanitizers.
Each step has a limit of time. --quick leaves the sanitizer build out.
"""
import argparse
import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as xml

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Totals:
    passed = 0
    failed = 0

    def add(self, name, ok, seconds=None, output=""):
        if ok:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAILED {name}")
            for line in output.strip().splitlines()[-40:]:
                print("    " + line)


def run(command, limit, **more):
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


def meson(totals, folder, limit_factor):
    begin = step(f"unit tests and fuzz slices in {folder}")
    before = totals.passed
    env = dict(os.environ, ASAN_OPTIONS="detect_leaks=1:abort_on_error=1", UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1")
    run(["meson", "test", "-C", folder, "--no-rebuild", "--no-suite", "long", "-t", str(limit_factor), "--num-processes", str(os.cpu_count() or 2)], 3600, env=env)
    log = os.path.join(ROOT, folder, "meson-logs", "testlog.json")
    if not os.path.exists(log):
        totals.add(f"meson test in {folder}", False, output="it left no log")
        return
    with open(log, encoding="utf-8", errors="replace") as f:
        for line in f:
            t = json.loads(line)
            text = (t.get("stdout") or "") + (t.get("stderr") or "")
            totals.add(f"{folder}: {t['name']} ({t['result']})", t["result"] in ("OK", "EXPECTEDFAIL", "SKIP"), output=text)
    print(f"   {totals.passed - before} passed in {time.monotonic() - begin:.0f} s")


def tidy(totals):
    step("tidy")
    code, out = run([sys.executable, "tests/tidy.py"], 300)
    totals.add("tidy", code == 0, output=out)


def journeys(totals, folder, limit):
    begin = step("journeys")
    before = totals.passed
    report = os.path.join(ROOT, folder, "journeys.xml")
    if os.path.exists(report):
        os.unlink(report)
    # Debian's Python, which has Debian's pytest.
    python = "/usr/bin/python3" if os.path.exists("/usr/bin/pytest-3") or os.path.exists("/usr/bin/pytest") else sys.executable
    env = dict(os.environ, ACEQUIA_BUILD=os.path.join(ROOT, folder), BUILD=os.path.join(ROOT, folder), PYTHONPATH=f"{ROOT}:{ROOT}/tests")
    code, out = run([python, "-m", "pytest", "-q", "-x" if os.environ.get("FAIL_FAST") else "-q", "-m", "not long and not gpu", "--continue-on-collection-errors", "--durations", "10", "--junitxml", report, "-p", "no:cacheprovider", "tests"], limit, env=env)
    if not os.path.exists(report):
        totals.add("journeys", code in (0, 5), output=out)
        return
    for case in xml.parse(report).getroot().iter("testcase"):
        bad = case.find("failure") if case.find("failure") is not None else case.find("error")
        totals.add(f"{case.get('classname')}.{case.get('name')}", bad is None, output=(bad.text or "") if bad is not None else "")
    if code == 124:
        totals.add("journeys", False, output=out)
    print(f"   {totals.passed - before} passed in {time.monotonic() - begin:.0f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="without the sanitizer build")
    parser.add_argument("--build", default="build")
    args = parser.parse_args()
    totals = Totals()
    built = build(totals, args.build)
    # The journeys look for leaks in the daemons of the sanitizer build: it comes before them.
    sanitized = not args.quick and build(totals, "build-asan", "-Db_sanitize=address,undefined")
    if built:
        meson(totals, args.build, 2)
        tidy(totals)
        journeys(totals, args.build, 1800)
    if sanitized:
        meson(totals, "build-asan", 6)
    print(f"{totals.passed} passed, {totals.failed} failed")
    return 1 if totals.failed else 0


if __name__ == "__main__":
    sys.exit(main())
