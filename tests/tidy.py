#!/usr/bin/env python3
"""Tidy is a test: who includes whom, banned functions, sizes, unique tags, prefixes of external symbols, names
of files in comments and documents, and what must not be in the tree.

The table of modules is read from docs/architecture.md, so that text and check cannot differ.
Prints one line per finding and ends with 1 when there is any.
"""
import glob
import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FILE_LINES = 1000
FUNCTION_LINES = 150
LINE_COLUMNS = 120
GLOSSARY_MAX = 30
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

# What the external symbols of a module's library begin with. A library of one subject has one prefix; where a library
# holds several small subjects (base, model, the parts of the controller that are objects of their own) it has one per
# subject, named like the file. Slurm's commands keep their own names: sbatch_run says more than slurm_sbatch_run.
PREFIXES = {
    "sim/libsim_trace.a": "sim_ trace_",
    "src/agent/daemon/libagent.a": "agent_",
    "src/agent/gpu/libagent_gpu.a": "gpus_",
    "src/agent/launch/libagent_launch.a": "launcher_ agent_request_ agent_container_",
    "src/agent/logic/libagent_logic.a": "agent_",
    "src/agent/node/libagent_node.a": "agent_",
    "src/agent/stream/libagent_flow.a": "agent_ stream_",
    "src/agent/stream/libagent_stream.a": "stream_ streams_",
    "src/base/libbase.a": "acl_ arena_ buf_ clock_ error_ hash_ json_ log_ map_ parse_ phrase_ process_ quota_ rand_ schema_ siphash str_ streq strmap_ "
                          "xmalloc xcalloc xrealloc xstrdup xstrndup xmemdup xasprintf",
    "src/base/libusers.a": "users_ forked_child_",
    "src/box/libbox.a": "box_",
    "src/cgroup/libcgroup.a": "cgroup_",
    "src/cli/client/libcli_client.a": "client_ saved_login_ addresses_",
    "src/cli/client/libcli_client_tls.a": "client_",
    "src/cli/command/libcommand.a": "cli_ option_ options_",
    "src/cli/job/libcli_job.a": "job_",
    "src/cli/term/libterm.a": "terminal_ table_ screen_ local_time_",
    "src/cli/verb/libverb.a": "docker_ verb_ verbs_",
    "src/controller/libcommit_pipeline.a": "pipeline_ leadership_ provider_question",
    "src/controller/libcontroller_streams.a": "controller_ answer_ port_",
    "src/controller/libcontroller.a": "controller_ serve_ api_ array_read_ list_names_ seen_ids_ sliced_read_ "
    "answer_ request_ query_ agents_ admission_ audit_ job_sight listing_ notifier_ telemetry_ alerts_ "
                                       "json_schema_ live_ feed_ job_table_ table_ mcp_ past_ overview_ "
                                       "providers_ app_ apps_ browser_ portal_ backups_ port_conn_ login_ helper_ helpers_",
    "src/core/libcore.a": "core_",
    "src/device/libdevice.a": "gpu_ nvml_",
    "src/files/libfiles.a": "files_",
    "src/launch/liblaunch.a": "launch_ spool_",
    "src/data/libdata.a": "data_",
    "src/mpi/libmpi.a": "pmi_ link_ spawn_",
    "src/tasks/libtasks.a": "tasks_",
    "src/tasks/libtasks_link.a": "tasks_link_",
    "src/metrics/libmetrics.a": "metrics_ metric_ series_ efficiency_",
    "src/model/libmodel.a": "engine_ license_ provider_ wanted_ service_ alert_ app_ image_ secret_ volume_ array_ command_ config_ constraint_ dependency_ duration_ entity_ event_ feature_ file_ gpu_ health_ job_ message_ name_ node_ "
                            "nodelist_ paths_ pattern_ policy_ port_ ports_ progress_ reason_ signal_ size_ spec_ tag_ tags_ time_ usage_ user_ where_",
    "src/net/libnet_http.a": "http_ ws_ net_",
    "src/net/libnet_server.a": "net_ http_",
    "src/net/libnet_tls.a": "aead_ mac_ tls_ pki_ token_ http_client_",  # http_client_tls stands beside http_client_unix
    "src/notify/libnotify.a": "notify_",
    "src/oidc/liboidc.a": "oidc_",
    "src/sched/libsched.a": "sched_ world_",
    "src/shim/libshim_ledger.a": "ledger_ arbiter_",
    "src/slurm/libslurm.a": "slurm_ sacct_ sacctmgr_ salloc_ sattach_ sbatch_ sbcast_ scancel_ scontrol_ sdiag_ seff_ sinfo_ sprio_ squeue_ "
                            "sreport_ srun_ sshare_ sstat_",
    "src/store/libstore.a": "store_ sim_ pg_ sqlite_",
}
TEST_LIBRARIES = ("libfuzz_driver.a", "libmetrics_example.a", "libshepherd_rig.a", "libcontroller_rig.a")

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


def modules():
    """folder -> set of modules it may use; None: everything."""
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


def check_module_rows(paths, table):
    """Every folder with sources has its row, so that a stranger finds it and check_includes sees it."""
    folders = {os.path.dirname(re.sub(r"/(test|fuzz)/.*", "/", p)) for p in paths if p.startswith("src/") and p.endswith(".c")}
    for folder in sorted(folders - set(table) - {"src/cli"}):  # src/cli/main.c ties the command line together
        yield f"docs/architecture.md: the table of modules has no row for {folder}/"


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
            # The programs' own mains tie the modules together.
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


def check_tags(sources):
    """The tag of a struct, union or enumeration means one thing in the whole program."""
    files = {}
    for path, text in sources.items():
        if path.startswith(("src/", "sim/")) and "/test/" not in path and "/fuzz/" not in path:
            for tag in set(re.findall(r"^\s*(?:typedef\s+|static\s+|const\s+)*((?:struct|union|enum)\s+\w+)\s*\{", text, re.M)):
                files.setdefault(tag, []).append(path)
    for tag in sorted(files):
        if len(files[tag]) > 1:
            yield f"{tag} is defined in {' and '.join(sorted(files[tag]))}: rename one"


def check_relative_includes(path, text):
    """A file outside its module is included through that module's include root."""
    module = os.path.dirname(path).split("/test")[0].split("/fuzz")[0]
    for number, line in enumerate(text.splitlines(), 1):
        m = re.match(r'\s*#include "(\.\./[^"]+)"', line)
        if m and not path.startswith("tests/"):
            target = os.path.normpath(os.path.join(os.path.dirname(path), m.group(1)))
            if not target.startswith(module + "/") or os.path.dirname(path) == module:
                yield f"{path}:{number}: includes {m.group(1)}; use the include root of its module"


def check_public_header(path):
    """include/ of a module holds headers of that module only, under the module's own path."""
    m = re.match(r"(?:src/)?([\w/]+)/include/(.*)/[\w.]+$", path)
    if m and not m.group(1).endswith(m.group(2)):
        yield f"{path}: public headers of {m.group(1)} belong into include/{m.group(1)}/"


def check_comment_files(path, text, names):
    """A comment that names a file names one that exists."""
    for m in re.finditer(r"//[^\n]*|/\*.*?\*/", text, re.S):
        for name in re.findall(r"(?<![\w./<-])(?:[\w-]+/)*[\w-]+\.(?:c|h|py|md)\b", m.group(0)):
            if os.path.basename(name) not in names:
                yield f"{path}:{text[:m.start()].count(chr(10)) + 1}: a comment names {name}, which does not exist"


def header_path(name):
    """`src/base/schema.h` in a text stands for src/base/include/base/schema.h."""
    m = re.match(r"(src|sim)/((?:\w+/)*)(\w+\.h)$", name)
    return m and f"{m.group(1)}/{m.group(2)}include/{m.group(2)}{m.group(3)}"


def check_document_files(path, text, names):
    """Documents name files that exist, in links and in code."""
    for m in re.finditer(r"`((?:src|sim|tests|docs|tools|deploy)/[\w./-]+)`", text):
        name = m.group(1).rstrip("/.")
        if not os.path.exists(os.path.join(ROOT, name)) and "/X/" not in name:
            public = header_path(name)
            if not public or not os.path.exists(os.path.join(ROOT, public)):
                yield f"{path}: names {m.group(1)}, which does not exist"
    for m in re.finditer(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
        if not os.path.exists(os.path.join(ROOT, os.path.dirname(path), m.group(1))):
            yield f"{path}: links to {m.group(1)}, which does not exist"
    for m in re.finditer(r"`([\w-]+\.(?:c|h|py))`", text):
        if m.group(1) not in names:
            yield f"{path}: names {m.group(1)}, which does not exist"


def check_glossary(path, text):
    """Few words of our own, so that somebody new can read all of them."""
    rows = [line for line in text.splitlines() if line.startswith("| ")][2:]
    if len(rows) > GLOSSARY_MAX:
        yield f"{path}: {len(rows)} words; at most {GLOSSARY_MAX}"


def check_symbols():
    """External symbols begin with a prefix of their module."""
    build = os.path.join(ROOT, os.environ.get("BUILD", "build"))
    seen, used = set(), set()
    for folder, _, files in os.walk(build):
        for name in files:
            library = os.path.relpath(os.path.join(folder, name), build)
            if not name.endswith(".a") or name in TEST_LIBRARIES:
                continue
            if library not in PREFIXES:
                if os.path.exists(os.path.join(ROOT, os.path.dirname(library), "meson.build")):
                    yield f"{library}: tests/tidy.py has no PREFIXES for it"
                continue
            seen.add(library)
            out = subprocess.run(["nm", "--defined-only", "-g", "-P", os.path.join(build, library)], capture_output=True, text=True, check=False).stdout
            rows = [line.split() for line in out.splitlines()]
            for symbol in sorted({r[0] for r in rows if len(r) > 1 and r[1] in "TDBRVWC"}):
                matching = [p for p in PREFIXES[library].split() if symbol.startswith(p)]
                used.update((library, p) for p in matching)
                if not matching and not symbol.startswith("__"):
                    yield f"{library}: {symbol} begins with none of the module's prefixes (PREFIXES in tests/tidy.py)"
    for library in sorted(seen):
        for prefix in PREFIXES[library].split():
            if (library, prefix) not in used:
                yield f"tests/tidy.py: {library} has no {prefix}… any more; take it out of PREFIXES"


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
    types = "python/acequia/types.py"
    document = subprocess.run([daemon, "openapi"], capture_output=True, text=True).stdout
    if read(types) != subprocess.run([sys.executable, os.path.join(ROOT, "python/tools/types.py")], input=document, capture_output=True, text=True).stdout:
        yield f"{types}: not made from the OpenAPI document of the program; run make docs"
    yield from check_catalogues("phrases", set(json.loads(document)["x-phrases"]))


def app_texts():
    """What the built-in apps say to people."""
    for path in sorted(glob.glob(os.path.join(ROOT, "src/controller/apps/*.json"))):
        with open(path, encoding="utf-8") as f:
            app = json.load(f)
        for part in [app, *app.get("fields", [])]:
            yield from (part[key] for key in ("title", "summary", "help") if part.get(key))


def check_catalogues(folder, texts):
    """The portal is not built while a text of the program has no translation, or another one has none to translate."""
    for path in sorted(glob.glob(os.path.join(ROOT, f"portal/src/locales/{folder}/*.json"))):
        with open(path, encoding="utf-8") as f:
            have = set(json.load(f))
        name = os.path.relpath(path, ROOT)
        yield from (f"{name}: \"{text}\" has no translation" for text in sorted(texts - have))
        yield from (f"{name}: \"{text}\" is no text of the program any more" for text in sorted(have - texts))


def main():
    findings = []
    table = modules()
    if len(table) < 8:
        findings.append("docs/architecture.md: the table of modules cannot be read")
    paths = tracked()
    findings += check_module_rows(paths, table)
    names = {os.path.basename(p) for p in paths}
    sources = {}
    for path in paths:
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
            findings += check_relative_includes(path, text)
            findings += check_public_header(path)
            findings += check_comment_files(path, text, names)
            sources[path] = text
        elif path.endswith(".md"):
            findings += check_document_files(path, text, names)
            if path == "docs/glossary.md":
                findings += check_glossary(path, text)
    findings += check_tags(sources)
    findings += check_symbols()
    findings += check_generated()
    findings += check_catalogues("apps", set(app_texts()))
    for f in findings:
        print(f)
    print(f"tidy: {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
