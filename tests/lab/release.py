"""State of an earlier release: recorded once with that release's programs, loaded by every later one.

    python3 -m lab.release BUILD OUTPUT.tar.xz EXPECTED.json

runs a small cluster with the programs of BUILD (as root; `unshare --uts` and a host name of its own keep
this machine's name out), brings about every kind of object, and packs the controller's state folder. `describe` reads back what a version must show again after loading it."""
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile

from .api import Api
from .cluster import Cluster
from .proc import wait_until

PORT = 16820
FOLDER = "/tmp/acequia-release"  # job records name it: always the same
CONFIG = f"""[cluster]
name = oldlab
listen = 127.0.0.1:{PORT}
node_timeout = 86400
history_days = 36500
grace = 1s
[node n1]
cpus = 16
memory = 8G
gpus = h200:4
gpus_simulated = true
features = fast, nvlink
[node n2]
cpus = 4
memory = 2G
"""
# Fields of the API's answers that say what the state is. What is measured, computed from the time of
# the question, or only presentation is left out; absent, zero and false are the same here.
JOB_FIELDS = """id name user project partition qos state attempt tasks cpus memory_bytes gpus_milli nodes
    node_count time_limit_s submit_ms start_ms end_ms exit_code exit_signal held array_id array_index
    dependency begin_ms priority nice comment preempted steps class tags worker members label""".split()
SPEC_FIELDS = """name user project partition qos argv workdir output error gpus_milli memory_bytes cpus_per_task tasks
    nodes_min time_limit_s array dependency begin_ms hold requeue comment checkpoint signal nice features tags secrets
    workers_min workers_max on_worker_end retries notify notify_to""".split()
SECRET = "a value that only jobs see"
ENTITY_KINDS = ["projects", "partitions", "qos", "reservations"]


def pick(value, fields):
    """The named fields that say something."""
    return {k: value[k] for k in fields if value.get(k) not in (None, False, 0, "", [])}


class OldCluster(Cluster):
    """Always in the same folder and without anything of this machine's environment."""

    def up(self):
        self.home = FOLDER
        os.makedirs(f"{self.home}/log")
        os.environ.clear()
        os.environ.update(PATH="/usr/bin:/bin", HOME=FOLDER, USER="root")
        self.env = dict(os.environ, ACEQUIA_HOME=self.home)
        self.api = Api(f"{self.home}/run/api.sock")
        self.port = PORT
        with open(f"{self.home}/acequia.conf", "w", encoding="utf-8") as f:
            f.write(CONFIG)
        self.start_controller()
        self.wait_ready()
        self.start_agent("n1")
        self.join_agent("n2")
        wait_until(lambda: len(self.nodes_up()) == 2, 30, "nodes do not appear")

    def submit(self, *arguments):
        """The id of a new job."""
        return int(self.cli("submit", "-Q", "-D", "/tmp", "-o", "/dev/null", "--export", "none", *arguments).stdout)

    def until(self, job, *states):
        """Waits for a state."""
        wait_until(lambda: self.api.get(f"/v1/jobs/{job}")["state"] in states, 30, f"job {job}: not {states}")


def break_node(c, name):
    """A node whose spool folder is gone fails launches, and gets fewer; then its agent is started again."""
    fds = f"/proc/{c.pid(f'agent-{name}')}/fd"
    spool = next(t for t in (os.readlink(f"{fds}/{fd}") for fd in os.listdir(fds)) if re.fullmatch("/(run|dev/shm)/acequia-[^/]*", t))
    shutil.rmtree(spool)
    job = c.submit("-w", name, "-J", "refused", "--", "true")
    wait_until(lambda: c.api.get(f"/v1/nodes/{name}").get("launch_failures"), 30, "the node launches without its folder")
    c.cli("cancel", str(job))
    c.kill(f"agent-{name}")
    c.start_agent(name)
    wait_until(lambda: len(c.nodes_up()) == 2, 30, "the node does not come back")
    c.cli("resume", name)


def fill_workers(c):
    """What release 0.2.0 brought: elastic jobs, secrets, tags, limits of zero, notices, steps that are events."""
    with open(f"{c.home}/value", "w", encoding="utf-8") as f:
        f.write(SECRET)
    for line in (f"secret set TOKEN --from-file {c.home}/value", f"secret set TOKEN --from-file {c.home}/value",
                 f"secret set GONE --from-file {c.home}/value", f"secret set SHARED -P vision --from-file {c.home}/value",
                 "secret delete GONE", "qos create none --max-jobs-per-user 0"):
        c.cli(*line.split(" "))
    tagged = c.submit("-H", "-J", "tagged", "--tag", "exp1", "--tag", "stage=train", "--secret", "TOKEN", "--", "true")
    c.cli("update", str(tagged), "--tag", "exp2")
    c.until(c.submit("-J", "secretly", "-w", "n1", "--secret", "TOKEN", "--secret", "SHARED:file", "-P", "vision", "--",
                     "sh", "-c", 'test -n "$TOKEN" && test -s "$SHARED_FILE"'), "COMPLETED")
    late = c.submit("-J", "warned", "-w", "n1", "-t", "4s", "--notify", "time_limit_50", "--notify-to", "root@localhost",
                    "--", "sleep", "60")
    pool = c.submit("--workers", "2-4", "-J", "pool", "-w", "n1", "--on-worker-end", "restart", "--retries", "3",
                    "--backoff", "1s", "--", "sh", "-c", 'test "$ACEQUIA_WORKER.$ACEQUIA_ATTEMPT" != 1.1 && exec sleep 3600')
    steps = c.submit("-J", "steps", "-w", "n1", "--", "sh", "-c",
                     f"{c.home}/bin/srun -n1 true; {c.home}/bin/srun -n1 sleep 3600 & {c.home}/bin/srun -n1 sleep 3599")
    c.until(late, "TIMEOUT")
    wait_until(lambda: [m["state"] for m in c.api.get(f"/v1/jobs/{pool}")["members"]].count("running") == 4, 60,
               "its workers do not run")
    c.cli("resize", str(pool), "2-3")
    c.cli("workers", str(pool), "--rank", "0=7")
    c.submit("--workers", "20", "-J", "bigpool", "--", "true")
    c.until(steps, "RUNNING")
    wait_until(lambda: [e["type"] for e in c.api.get(f"/v1/jobs/{steps}/events")["events"]].count("step_started") >= 2, 60,
               "its steps do not start")


def fill(c):
    """Brings about every kind of record."""
    for line in ("project create vision --quota 2 --members root,eva", "project create speech --quota 1 --weight 3",
                 "project create gone", "project create part --parent vision --limit 1",
                 "partition create short --nodes n[1-2] --max-time 4h --default true",
                 "partition create night --down true --tier 5", "partition create fifo --fifo true",
                 "qos create urgent --priority 1000 --max-jobs-per-user 3", "qos create scavenge --usage-factor 0.5",
                 "qos edit urgent --preempts scavenge", "project edit speech --default-qos scavenge",
                 "reservation create disks --start 2090-01-01T00:00 --end 2090-01-02T00:00 --nodes n2 --users eva",
                 "reservation create mine --start 2089-01-01T00:00 --end 2090-01-01T00:00 --nodes n2 --users root --projects vision",
                 "policy set half_life=3d min_run=10m", "policy set short_factor=2",
                 "project delete gone", "drain n2 --reason disks"):
        c.cli(*line.split(" "))
    c.cli("resume", "n2")
    break_node(c, "n2")
    c.cli("token", "create", "--user", "daemon", "--ttl", "365d", "-o", f"{c.home}/daemon.token")
    c.cli("token", "create", "--ttl", "365d", "-o", f"{c.home}/join.token")
    c.cli("token", "create", "--user", "nobody", "--ttl", "365d", "-o", f"{c.home}/nobody.token")
    nobody = [t for t in c.api.get("/v1/tokens")["tokens"] if t.get("user") == "nobody"][0]
    c.cli("token", "revoke", nobody["id"])
    ends = [c.submit("-J", "ok", "--", "true"), c.submit("-J", "fails", "--", "sh", "-c", "exit 3"),
            c.submit("-J", "killed", "--", "sh", "-c", "kill -9 $$"), c.submit("-a", "0-4", "-J", "sweep", "--", "true"),
            c.submit("-J", "missing", "--", "/does/not/exist"), c.submit("-P", "vision", "-g", "0.5", "-J", "half", "--", "true")]
    cancelled = c.submit("-H", "-J", "cancelled", "--", "true")
    c.cli("cancel", str(cancelled), "-r", "no longer needed")
    limited = c.submit("-t", "1s", "-J", "late", "--", "sleep", "60")
    for job in ends:
        c.cli("wait", str(job), check=False)
    c.cli("wait", str(limited), check=False)
    running = c.submit("-J", "running", "-c", "2", "-m", "256M", "-t", "4h", "--comment", "a comment", "--", "sleep", "3600")
    gpus = c.submit("-J", "gpus", "-P", "vision", "-q", "urgent", "-g", "2", "-t", "2h", "--checkpoint", "true", "--", "sleep", "3600")
    fraction = c.submit("-J", "fraction", "-P", "speech", "-g", "0.25", "--", "sleep", "3600")
    suspended = c.submit("-J", "suspended", "-C", "fast", "--", "sleep", "3600")
    two = c.submit("-J", "two", "-N", "2", "-n", "2", "-P", "vision", "--no-requeue", "--", "sleep", "3600")
    again = c.submit("-J", "again", "-w", "n1", "--requeue", "--", "sleep", "3600")
    for job in (running, gpus, fraction, suspended, two, again):
        c.until(job, "RUNNING")
    c.cli("suspend", str(suspended))
    c.until(suspended, "SUSPENDED")
    c.cli("requeue", str(again), "--hold")
    c.until(again, "PENDING")
    c.cli("update", str(running), "-t", "3h")
    array = c.submit("-a", "0-9%2", "-J", "elements", "-w", "n1", "--", "sleep", "3600")
    wait_until(lambda: c.api.get("/v1/status")["jobs"].get("RUNNING", 0) >= 6, 30, "array elements do not start")
    c.submit("-d", f"afterok:{running}", "-J", "after", "--", "true")
    c.submit("-d", f"afterany:{array}", "-J", "afterarray", "--", "true")
    c.submit("-d", f"afterok:{ends[1]}", "-J", "never", "--", "true")
    c.submit("-d", "singleton", "-J", "running", "--", "true")
    c.submit("-H", "-J", "held", "--nice", "5", "--", "true")
    admin = c.submit("-J", "heldbyadmin", "-c", "16", "--", "true")
    c.cli("hold", str(admin))
    c.submit("-b", "2090-01-01T00:00", "-J", "later", "--", "true")
    c.submit("-p", "night", "-J", "closed", "--", "true")
    c.submit("-g", "4", "-J", "waits", "-p", "short,fifo", "--", "true")
    script = "#!/bin/sh\n#ACEQUIA --name script\necho hello\n"
    for _ in range(2):  # the second is the first's: the key is the same
        c.api.post("/v1/jobs", {"spec": {"workdir": "/tmp", "output": "/dev/null", "hold": True}, "script": script,
                                "environment": ["COLOUR=blue"], "key": "nightly-2026-01"})
    key_job = c.api.post("/v1/jobs", {"spec": {"workdir": "/tmp", "output": "/dev/null"}, "script": "#!/bin/sh\ntrue\n",
                                      "key": "done-1"})["id"]
    c.cli("wait", str(key_job))
    subprocess.run([c.binary, "slurm-commands", f"{c.home}/bin"], env=c.env, check=True, stdout=subprocess.DEVNULL)
    subprocess.run([f"{c.home}/bin/salloc", "-n1", f"{c.home}/bin/srun", "-n1", "true"], env=c.env, check=True, capture_output=True,
                   cwd="/tmp", timeout=60)
    fill_workers(c)
    c.cli("drain", "n2", "--reason", "new disks")


def describe(api):
    """What a version must show of the state."""
    jobs = sorted(api.get("/v1/jobs?elements=1&limit=1000")["jobs"], key=lambda j: j["id"])
    finished = sorted(api.get("/v1/jobs?finished=1&elements=1&limit=1000")["jobs"], key=lambda j: j["id"])
    out = {"jobs": [], "finished": [pick(j, JOB_FIELDS) for j in finished], "events": {}, "scripts": {}}
    for j in jobs:
        whole = api.get(f"/v1/jobs/{j['id']}")
        out["jobs"].append({**pick(whole, JOB_FIELDS), "spec": pick(whole.get("spec") or {}, SPEC_FIELDS)})
    for j in jobs + finished:
        events = api.get(f"/v1/jobs/{j['id']}/events")["events"]
        out["events"][str(j["id"])] = [[e["type"], e["at_ms"]] for e in events]
        status, text = api.raw("GET", f"/v1/jobs/{j['id']}/script")
        if status == 200 and text:
            out["scripts"][str(j["id"])] = text.decode()
    for kind in ENTITY_KINDS:
        out[kind] = api.get(f"/v1/{kind}")[kind]
    out["tokens"] = sorted((pick(t, ["id", "user", "expires_ms", "used", "node", "by"])
                            for t in api.get("/v1/tokens")["tokens"]), key=lambda t: t["id"])
    out["secrets"] = sorted(api.get("/v1/secrets")["secrets"], key=lambda s: s["name"])
    out["policy"] = api.get("/v1/policy")
    out["nodes"] = [pick(n, "name reason by cpus memory_bytes gpus_milli cpus_used memory_used_bytes gpus_used_milli jobs "
                            "features partitions".split()) for n in api.get("/v1/nodes")["nodes"]]
    return out


def main(build, output, expected):
    c = OldCluster(binary=f"{build}/src/cli/acequia")
    try:
        c.up()
        fill(c)
        for name in ("agent-n1", "agent-n2", "controller"):  # jobs stay as they are; agents are never asked again
            c.kill(name)
        c.start_controller()
        c.wait_ready()
        described = describe(c.api)
        c.kill("controller", 15)
        with open(expected, "w", encoding="utf-8") as f:
            json.dump(described, f, indent=1, sort_keys=True)
            f.write("\n")
        with tarfile.open(output, "w:xz", preset=9) as tar:
            for folder, _, names in sorted(os.walk(f"{FOLDER}/state")):
                for name in sorted(names):
                    if name not in ("lock", "reserve"):
                        path = os.path.join(folder, name)
                        tar.add(path, os.path.relpath(path, FOLDER))
            for name in ("acequia.conf", "daemon.token", "join.token", "keys/secret.key"):
                tar.add(f"{FOLDER}/{name}", name)
    finally:
        c.down()


if __name__ == "__main__":
    main(*sys.argv[1:])
