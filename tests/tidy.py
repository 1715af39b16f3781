#!/usr/bin/env python3
"""Tidy is a test: who includes whom, banned functions, sizes, and what must not be in the tree.

The table of rooms is read from docs/architecture.md, so that text and check cannot differ.
Prints one line per finding and ends with 1 when there is any.
"""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FILE_LINES = 1000
FUNCTION_LINES = 150
LINE_COLUMNS = 120
TABLE_FILES = ("table.c", "job.c", "event.c", "message.c")  # declarations in rows, no logic

BANNED = {
    "strcpy": "memcpy with a checked length, or a buf",
    "strcat": "buf_adds",
    "strncpy": "memcpy with a checked length",
    "strncat": "buf_add",
    "sprintf": "snprintf or buf_addf",
    "vsprintf": "vsnprintf or buf_vaddf",
    "gets": "read",
    "system": "fork and exec",
    "popen": "fork and exec",
    "atoi": "parse_u32",
    "atol": "parse_i64",
    "atoll": "parse_i64",
    "atof": "strtod with a checked end",
    "strtok": "strcspn",
    "alloca": "an arena",
    "tmpnam": "mkstemp",
    "mktemp": "mkstemp",
    "rand": "rand_u64 of base/rand.h",
    "srand": "rand_seed of base/rand.h",
}

ABSOLUTE = re.compile(r"(?<![\w./-])/(?:work|root|workspace|mnt/data)/[\w.-]+")
HOSTS = re.compile(r"\b[\w.-]*(?:artifactory|jfrog|nexus|registry\.internal|pypi-mirror)[\w.-]*\b", re.I)


def tracked():
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    return [p for p in out.stdout.splitlines() if os.path.isfile(os.path.join(ROOT, p))]


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8", errors="replace") as f:
        return f.read()


def strip_comments_and_strings(text):
    """Blanks comments and the insides of strings; keeps every newline in place."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)


def rooms():
    """folder -> set of rooms it may use; None: everything."""
    table = {}
    above = []
    for line in read("docs/architecture.md").splitlines():
        m = re.match(r"\| `((?:src/)?[\w/]+)/`(?: · `[\w/]+/`)* \| .* \| (.*) \|$", line)
        if not m:
            continue
        folder, uses = m.group(1), m.group(2)
        name = folder.removeprefix("src/")
        if uses.startswith("all above"):
            allowed = set(above)
            if " but " in uses:
                excluded = set(re.findall(r"[\w/]+", uses.split(" but ")[1]))
                allowed = {a for a in allowed if a.split("/")[0] not in excluded}
        elif "everything" in uses or uses in ("built programs", "–"):
            allowed = None
        else:
            allowed = set(re.findall(r"[\w/]+", uses)) - {"libc"}
        table[folder] = allowed
        above.append(name)
    return table


def check_includes(path, text, table):
    folder = next((f for f in table if path.startswith(f + "/")), None)
    if folder is None or table[folder] is None or "/test/" in path or "/fuzz/" in path:
        return
    own = folder.removeprefix("src/")
    known = {f.removeprefix("src/") for f in table}
    for number, line in enumerate(text.splitlines(), 1):
        m = re.match(r'\s*#include "([\w./-]+)/[\w.-]+"', line)
        if not m or m.group(1) not in known:
            continue
        if m.group(1) != own and m.group(1) not in table[folder]:
            # The programs' own mains tie the rooms together.
            if os.path.basename(path) == "main.c":
                continue
            yield f"{path}:{number}: {own} may not use {m.group(1)} (docs/architecture.md)"


def check_banned(path, code):
    for number, line in enumerate(code.splitlines(), 1):
        for m in re.finditer(r"(?<![\w.>])(\w+)\s*\(", line):
            if m.group(1) in BANNED:
                yield f"{path}:{number}: {m.group(1)} is banned; use {BANNED[m.group(1)]}"


def check_sizes(path, text, code):
    lines = text.splitlines()
    if len(lines) > FILE_LINES and os.path.basename(path) not in TABLE_FILES:
        yield f"{path}: {len(lines)} lines; at most {FILE_LINES}"
    for number, line in enumerate(lines, 1):
        if len(line) > LINE_COLUMNS and "/test/" not in path:
            yield f"{path}:{number}: {len(line)} columns; at most {LINE_COLUMNS}"
    start = None
    for number, line in enumerate(code.splitlines(), 1):
        if line.endswith("{") and re.match(r"[A-Za-z_]", line) and "(" in line and not line.startswith(("struct ", "enum ", "union ")) or (
            line.endswith(") {") and re.match(r"[A-Za-z_]", line)
        ):
            start = number
        elif line.rstrip() == "}" and start:
            if number - start + 1 > FUNCTION_LINES:
                yield f"{path}:{start}: a function of {number - start + 1} lines; at most {FUNCTION_LINES}"
            start = None


def check_header(path, text):
    if path.endswith(".h") and "#pragma once" not in text:
        yield f"{path}: no #pragma once"
    if not text.lstrip().startswith(("//", "/*")):
        yield f"{path}: the top of the file does not say what it owns"


def check_words(path, text):
    for number, line in enumerate(text.splitlines(), 1):
        if path == "tests/tidy.py":
            continue
        for pattern, what in ((ABSOLUTE, "a path of one machine"), (HOSTS, "a registry's host")):
            m = pattern.search(line)
            if m:
                yield f"{path}:{number}: {what}: {m.group(0)}"
        if re.search(r"\b(TODO|FIXME|XXX)\b", line) and path.endswith((".c", ".h", ".py")):
            yield f"{path}:{number}: something left to do"


def check_generated():
    """Pages made from the program's tables are those in the tree."""
    program = os.path.join(ROOT, os.environ.get("BUILD", "build"), "src/cli/acequia")
    if not os.access(program, os.X_OK):
        return
    daemon = os.path.join(ROOT, os.environ.get("BUILD", "build"), "src/acequiad/acequiad")
    for page, command in (("docs/commands.md", [program, "man", "--markdown"]), ("docs/configuration.md", [program, "man", "--configuration"]),
                          ("docs/api.md", [daemon, "api-reference"])):
        made = subprocess.run(command, capture_output=True, text=True).stdout
        if not os.path.exists(os.path.join(ROOT, page)) or read(page) != made:
            yield f"{page}: not what the program prints; run make docs"


def main():
    findings = []
    table = rooms()
    if len(table) < 8:
        findings.append("docs/architecture.md: the table of rooms cannot be read")
    for path in tracked():
        if path.endswith((".png", ".gz", ".svg", ".woff2")):
            continue
        text = read(path)
        findings += check_words(path, text)
        if path.endswith((".c", ".h")):
            code = strip_comments_and_strings(text)
            findings += check_includes(path, text, table)
            findings += check_banned(path, code)
            findings += check_sizes(path, text, code)
            findings += check_header(path, text)
    findings += check_generated()
    for f in findings:
        print(f)
    print(f"tidy: {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
