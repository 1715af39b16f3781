"""A real Prometheus over a cluster with simulated GPUs: it scrapes without complaint, every query of
the dashboards gives data, alerts fire; idle GPUs are named and ended; the charts survive a restart."""
import base64
import glob
import json
import math
import os
import re
import shutil
import ssl
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest

from tests.lab.cluster import Cluster
from tests.lab.proc import end_child, free_ports, wait_until

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
RULES = f"{TREE}/deploy/prometheus"
DASHBOARDS = f"{TREE}/deploy/grafana"
needs_prometheus = pytest.mark.skipif(not (shutil.which("prometheus") and shutil.which("promtool")),
                                      reason="needs Debian's prometheus")
# Names that are others': their dashboards want them as they are.
FOREIGN = re.compile(r"^(DCGM_FI_\w+|slurm_\w+) ")


def config(port, more=""):
    return (f"[cluster]\nlisten = 127.0.0.1:{port}\ngrace = 1s\n{more}"
            "[node *]\ncpus = 16\nmemory = 64G\ngpus = h200:4\ngpus_simulated = true\n")


def submit(c, gpus_milli, seconds=120, load=None, **spec):
    environment = [f"ACEQUIA_SIMULATED_GPU_LOAD={load}"] if load is not None else []
    body = {"spec": {"name": "t", "workdir": "/tmp", "output": "/dev/null", "gpus_milli": gpus_milli,
                     "argv": ["sleep", str(seconds)], **spec}, "environment": environment}
    return c.api.post("/v1/jobs", body)["id"]


class Prometheus:
    """Its HTTP API, with the password that `acequia monitor` made."""

    def __init__(self, port, password=None):
        self.base = f"http://127.0.0.1:{port}"
        self.password = password

    def get(self, path, **query):
        url = f"{self.base}{path}?{urllib.parse.urlencode(query)}"
        request = urllib.request.Request(url)
        if self.password:
            text = base64.b64encode(f"acequia:{self.password}".encode()).decode()
            request.add_header("Authorization", f"Basic {text}")
        with urllib.request.urlopen(request, timeout=10) as reply:
            return json.load(reply)["data"]

    def query(self, expr):
        return self.get("/api/v1/query", query=expr)["result"]

    def target(self):
        return self.get("/api/v1/targets")["activeTargets"][0]

    def wait_up(self, seconds=30):
        def up():
            try:
                return self.target()["health"] == "up"
            except (OSError, IndexError):
                return False
        wait_until(up, seconds, "Prometheus does not scrape the controller")


@pytest.fixture(scope="module")
def cluster():
    with Cluster(config=config(free_ports(1)[0])) as c:
        submit(c, 2000)
        submit(c, 500)
        submit(c, 250, load=0)
        submit(c, 4000)  # waits: not all GPUs are free
        wait_until(lambda: b"acequia_job_gpu_allocated_ratio{" in c.api.raw("GET", "/metrics")[1], 10, "no telemetry comes")
        yield c


@pytest.fixture(scope="module")
def monitored(cluster):
    port = free_ports(1)[0]
    cluster.cli("monitor", "--port", str(port), "--interval", "1s")
    with open(f"{cluster.home}/state/monitor/password", encoding="utf-8") as f:
        prometheus = Prometheus(port, f.read())
    prometheus.wait_up()
    try:
        yield prometheus
    finally:
        cluster.cli("monitor", "--stop")


def promtool(*arguments, text=None):
    return subprocess.run(["promtool", *arguments], input=text, cwd=HERE, capture_output=True, text=True, timeout=60,
                          check=False)


@needs_prometheus
def test_rules():
    done = promtool("check", "rules", f"{RULES}/recording.yml", f"{RULES}/alerts.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    done = promtool("test", "rules", "rules_test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested():
    with open(f"{RULES}/alerts.yml", encoding="utf-8") as f:
        alerts = set(re.findall(r"alert: (\w+)", f.read()))
    with open(f"{HERE}/rules_test.yml", encoding="utf-8") as f:
        cases = re.findall(r"eval_time: (\d+)m\s+alertname: (\w+)\s+exp_alerts:( \[\])?", f.read())
    fired, ended = {}, {}
    for minute, name, none in cases:
        (ended if none else fired)[name] = int(minute)  # the last of each
    assert alerts == set(fired)
    assert not [name for name in alerts if ended.get(name, 0) <= fired[name]], "alerts that are not seen to end"


def plain_metrics(c):
    c.api.close()
    connection = c.api
    connection.raw("GET", "/v1/status")
    connection.connection.request("GET", "/metrics", headers={"Accept": "text/plain"})
    reply = connection.connection.getresponse()
    assert reply.getheader("Content-Type").startswith("text/plain")
    return reply.read().decode()


@needs_prometheus
def test_lint(cluster):
    done = promtool("check", "metrics", text=plain_metrics(cluster))
    complaints = [line for line in (done.stdout + done.stderr).splitlines() if line and not FOREIGN.match(line)]
    assert complaints == []


@needs_prometheus
def test_lint_of_an_agent():
    build = os.environ.get("BUILD", f"{TREE}/build")
    text = subprocess.run([f"{build}/src/metrics/metrics_show", "agent", "plain"], capture_output=True, text=True, check=True).stdout
    done = promtool("check", "metrics", text=text)
    assert [line for line in (done.stdout + done.stderr).splitlines() if line and not FOREIGN.match(line)] == []


def test_openmetrics_is_the_default(cluster):
    status, data = cluster.api.raw("GET", "/metrics")
    assert status == 200 and data.endswith(b"# EOF\n")
    text = data.decode()
    assert 'acequia_jobs{state="RUNNING"} 3\n' in text
    assert "slurm_queue_pending 1\n" in text
    assert 'slurm_partition_cpus_total{partition="main"} 16\n' in text
    assert 'slurm_partition_cpus_idle{partition="main"} 13\n' in text
    assert re.search(r'^DCGM_FI_DEV_GPU_UTIL\{gpu="0",UUID="GPU-[0-9a-f-]{36}",pci_bus_id="0000:10:00.0",device="nvidia0",modelName="h200",GPU_I_PROFILE="",Hostname="[\w-]+"\} [\d.]+$', text, re.M)
    assert re.search(r'^acequia_job_gpu_allocated_ratio\{job_id="2",user="\w+",project="default",.*\} 0\.5$', text, re.M)


@needs_prometheus
def test_scraped_without_warnings(cluster, monitored):
    time.sleep(4)
    target = monitored.target()
    assert target["lastError"] == "" and target["health"] == "up"
    assert float(monitored.query("scrape_samples_scraped")[0]["value"][1]) > 300
    types = monitored.get("/api/v1/metadata")
    assert types["acequia_jobs_started"][0]["type"] == "counter"
    with open(f"{cluster.home}/log/prometheus.log", encoding="utf-8") as f:
        complaints = [line for line in f if "level=warn" in line or "level=error" in line]
    assert complaints == []


@needs_prometheus
def test_needs_a_password(monitored):
    with pytest.raises(urllib.error.HTTPError) as refused:
        Prometheus(int(monitored.base.rsplit(":", 1)[1])).query("up")
    assert refused.value.code == 401


def dashboard_queries():
    for name in sorted(os.listdir(DASHBOARDS)):
        with open(f"{DASHBOARDS}/{name}", encoding="utf-8") as f:
            board = json.load(f)
        assert any(v["name"] == "node" for v in board["templating"]["list"])
        for panel in board["panels"]:
            for target in panel.get("targets", []):
                yield name, panel["title"], target["expr"]


@needs_prometheus
def test_dashboards_have_data(cluster, monitored):
    for _ in range(8):  # something must happen for rates
        cluster.cli("run", "--", "true")
        time.sleep(1)
    empty = []
    for name, title, expr in dashboard_queries():
        expr = expr.replace("$node", ".*").replace("$__rate_interval", "30s")
        result = monitored.query(expr)
        if not result or all(math.isnan(float(r["value"][1])) for r in result):
            empty.append((name, title, expr))
    assert empty == []
    assert len(list(dashboard_queries())) > 50


@needs_prometheus
def test_alert_fires(cluster, tmp_path):
    """The rules as they are, but without waiting, in a Prometheus of the test's own."""
    cluster.cli("monitor", "--write-only")
    for name in ("recording.yml", "alerts.yml"):
        with open(f"{RULES}/{name}", encoding="utf-8") as f:
            (tmp_path / name).write_text(re.sub(r"for: \w+", "for: 1s", f.read()))
    with open(f"{cluster.home}/state/monitor/prometheus.yml", encoding="utf-8") as f:
        text = f.read().replace(RULES, str(tmp_path)).replace("interval: 15s", "interval: 1s")
    (tmp_path / "prometheus.yml").write_text(text)
    port = free_ports(1)[0]
    with open(tmp_path / "log", "wb") as log:
        child = subprocess.Popen(["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
                                  f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
    prometheus = Prometheus(port)
    node = cluster.api.get("/v1/nodes")["nodes"][0]["name"]
    faults = [f"{p}/gpu-faults" for p in glob.glob(f"{cluster.home}/**/agent-{node}", recursive=True) if os.path.isdir(p)]
    assert faults, os.listdir(cluster.home)

    def firing():
        return {a["labels"]["alertname"]: a for a in prometheus.get("/api/v1/alerts")["alerts"] if a["state"] == "firing"}
    try:
        prometheus.wait_up()
        assert "AcequiaGpuUnhealthy" not in firing()
        with open(faults[0], "w", encoding="utf-8") as f:
            f.write("3 xid 79\n")
        wait_until(lambda: "AcequiaGpuUnhealthy" in firing(), 30, "the alert does not fire", 0.5)
        assert firing()["AcequiaGpuUnhealthy"]["labels"]["gpu"] == "3"
        gpu = cluster.api.get("/v1/nodes")["nodes"][0]["gpus"][3]
        assert gpu["unhealthy"] == "XID 79: fell off the bus; reset the GPU"
        os.unlink(faults[0])
        wait_until(lambda: "AcequiaGpuUnhealthy" not in firing(), 40, "the alert does not end", 0.5)
    finally:
        if os.path.exists(faults[0]):
            os.unlink(faults[0])
        end_child(child)


# What the popular dashboards ask, written down by name: NVIDIA's for its exporter (12239), whose selectors are
# the node as instance and the GPU, and the one for the Slurm exporter (4323).
DCGM_PANELS = ["DCGM_FI_DEV_GPU_TEMP{S}", "avg(DCGM_FI_DEV_GPU_TEMP{S})", "DCGM_FI_DEV_POWER_USAGE{S}",
               "sum(DCGM_FI_DEV_POWER_USAGE{S})", "DCGM_FI_DEV_SM_CLOCK{S} * 1000000", "DCGM_FI_DEV_GPU_UTIL{S}",
               "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{S}", "DCGM_FI_DEV_FB_USED{S}", "DCGM_FI_DEV_FB_FREE{S}",
               "DCGM_FI_PROF_GR_ENGINE_ACTIVE{S}", "DCGM_FI_PROF_DRAM_ACTIVE{S}", "DCGM_FI_DEV_XID_ERRORS{S}",
               "DCGM_FI_DEV_ROW_REMAP_FAILURE{S}", "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS{S}"]
SLURM_PANELS = [f"slurm_nodes_{w}" for w in ("alloc", "comp", "down", "drain", "err", "fail", "idle", "maint", "mix", "resv")] + [
    f"slurm_queue_{w}" for w in ("pending", "pending_dependency", "running", "suspended", "cancelled", "completing", "completed",
                                 "configuring", "failed", "timeout", "preempted", "node_fail")] + [
    f"slurm_cpus_{w}" for w in ("alloc", "idle", "other", "total")] + [
    f"slurm_scheduler_{w}" for w in ("threads", "queue_size", "dbd_queue_size", "last_cycle", "mean_cycle", "cycle_per_minute",
                                     "backfill_last_cycle", "backfill_mean_cycle", "backfill_depth_mean",
                                     "backfilled_jobs_since_start_total", "backfilled_jobs_since_cycle_total",
                                     "backfilled_heterogeneous_total")] + [
    "slurm_user_jobs_running", "slurm_user_cpus_running", "slurm_account_jobs_running", "slurm_account_fairshare"]


@needs_prometheus
def test_dashboards_of_others(cluster, monitored):
    node = cluster.api.get("/v1/nodes")["nodes"][0]["name"]
    selector = f'{{instance=~"{node}", gpu=~"0"}}'
    wait_until(lambda: monitored.query(f"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{selector}"), 20, "nothing is scraped")
    assert {s["metric"]["instance"] for s in monitored.query("DCGM_FI_DEV_GPU_TEMP")} == {node}
    assert {s["metric"]["gpu"] for s in monitored.query("DCGM_FI_DEV_GPU_TEMP")} == {"0", "1", "2", "3"}
    empty = [q for q in DCGM_PANELS if len(monitored.query(q.replace("{S}", selector))) != 1]
    empty += [q for q in SLURM_PANELS if len(monitored.query(q)) != 1]
    assert not empty
    assert 0 < float(monitored.query("slurm_account_fairshare")[0]["value"][1]) < 1
    tensor = monitored.query("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")
    assert all(0 <= float(s["value"][1]) <= 1 for s in tensor) and len(tensor) == 4


def metric(c, name):
    """The value of a metric without labels."""
    return float(re.search(rf"^{name} (\S+)$", c.api.raw("GET", "/metrics")[1].decode(), re.M).group(1))


def test_nodes_being_cleaned_reserved_and_maintained():
    with Cluster(config="[cluster]\ngrace = 20s\n[node *]\ncpus = 4\n") as c:
        node = c.nodes_up()[0]
        names = ("slurm_nodes_comp", "slurm_nodes_maint", "slurm_nodes_resv", "slurm_cpus_other")
        assert [metric(c, n) for n in names] == [0, 0, 0, 0]
        stubborn = c.api.post("/v1/jobs", {"spec": {"name": "t", "workdir": "/tmp", "output": "/dev/null",
                                                   "argv": ["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"]}})["id"]
        wait_until(lambda: c.api.get(f"/v1/jobs/{stubborn}")["state"].upper() == "RUNNING", 10, "it does not start")
        time.sleep(0.5)
        c.cli("cancel", str(stubborn))
        wait_until(lambda: metric(c, "slurm_nodes_comp") == 1, 5, "the node is not completing")
        c.cli("cancel", "--signal", "KILL", str(stubborn), check=False)
        c.cli("reservation", "create", "ours", "--nodes", node, "--start", "now", "--end", "now+1hour", "--users", "root")
        assert metric(c, "slurm_nodes_resv") == 1 and metric(c, "slurm_nodes_maint") == 0
        c.cli("reservation", "create", "works", "--start", "now", "--end", "now+1hour", "--maintenance", "true")
        assert metric(c, "slurm_nodes_maint") == 1
        c.cli("reservation", "create", "later", "--nodes", node, "--start", "now+2hours", "--end", "now+3hours", "--users", "root")
        c.cli("reservation", "delete", "ours")
        c.cli("reservation", "delete", "works")
        assert metric(c, "slurm_nodes_resv") == 0 and metric(c, "slurm_nodes_maint") == 0
        wait_until(lambda: metric(c, "slurm_nodes_comp") == 0, 40, "the node stays completing")


def test_agent_answers_by_itself():
    port, own = free_ports(2)
    text = config(port).replace("[node *]\n", f"[node *]\nmetrics_listen = 127.0.0.1:{own}\n")
    with Cluster(config=text) as c:
        submit(c, 500)
        node = c.api.get("/v1/nodes")["nodes"][0]["name"]
        wait_until(lambda: glob.glob(f"{c.home}/**/metrics.token", recursive=True), 10, "no token")
        folder = os.path.dirname(glob.glob(f"{c.home}/**/metrics.token", recursive=True)[0])
        assert os.stat(f"{folder}/metrics.token").st_mode & 0o777 == 0o600
        trust = ssl.create_default_context(cafile=f"{folder}/metrics-ca.crt")
        with open(f"{folder}/metrics.token", encoding="utf-8") as f:
            token = f.read()

        def get(path="/metrics", bearer=token):
            request = urllib.request.Request(f"https://127.0.0.1:{own}{path}", headers={"Authorization": f"Bearer {bearer}"})
            with urllib.request.urlopen(request, timeout=10, context=trust) as reply:
                return reply.read().decode()
        wait_until(lambda: "acequia_job_gpu_allocated_ratio{" in get(), 10, "no figures")
        text = get()
        assert text.endswith("# EOF\n")
        assert f'acequia_node_up{{node="{node}"}} 1\n' in text
        assert f'acequia_node_jobs{{node="{node}"}} 1\n' in text
        assert re.search(r'^acequia_gpu_allocated_ratio\{.*gpu="0".*\} 0\.5$', text, re.M)
        for path, bearer, code in (("/metrics", token[:-1], 401), ("/metrics", token[:-1] + "x", 401), ("/metrics", "", 401),
                                   ("/v1/jobs", token, 404)):
            with pytest.raises(urllib.error.HTTPError) as refused:
                get(path, bearer)
            assert refused.value.code == code


def test_monitor_needs_an_address():
    with Cluster(config="[node *]\ncpus = 1\n") as c:
        done = c.cli("monitor", check=False)
        assert done.returncode == 1
        assert "listen = 127.0.0.1:6820" in done.stderr


@needs_prometheus
def test_monitor_twice_and_again():
    with Cluster(config=config(free_ports(1)[0])) as c:
        port = free_ports(1)[0]
        first = c.cli("monitor", "--port", str(port)).stdout
        assert f"http://127.0.0.1:{port}/ as user acequia" in first
        again = c.cli("monitor").stdout
        assert "is already running" in again and f"http://127.0.0.1:{port}/ as user acequia" in again
        assert "need acequia monitor --stop" not in again
        assert "need acequia monitor --stop" in c.cli("monitor", "--port", "1").stdout
        c.cli("monitor", "--stop")
        assert "was not running" in c.cli("monitor", "--stop").stdout
        for _ in range(3):
            c.cli("monitor", "--write-only")
        tokens = c.api.get("/v1/tokens")["tokens"]
        assert [t["user"] for t in tokens] == ["nobody"]
        with open(f"{c.home}/state/monitor/token", encoding="utf-8") as f:
            token = f.read().strip()
        trust = ssl.create_default_context(cafile=f"{c.home}/state/ca.crt")
        trust.check_hostname = False

        def ask(path, method="GET", data=None):
            request = urllib.request.Request(f"https://127.0.0.1:{c.api.get('/v1/status')['listen'].split(':')[1]}{path}",
                                             method=method, data=data, headers={"Authorization": f"Bearer {token}"})
            with urllib.request.urlopen(request, timeout=10, context=trust) as reply:
                return reply.status
        assert ask("/metrics") == 200
        with pytest.raises(urllib.error.HTTPError) as refused:  # it reads, and rules over nothing
            ask(f"/v1/nodes/{c.nodes_up()[0]}/drain", "POST", b'{"reason": "x"}')
        assert refused.value.code == 403


def test_idle_gpus_are_named_and_ended():
    more = "idle_gpu_after = 2s\nidle_gpu_warn = 4s\nidle_gpu_end = 8s\n"
    with Cluster(config=config(free_ports(1)[0], more)) as c:
        idle, busy = submit(c, 1000, load=0), submit(c, 1000, load=900)

        def warning(job):
            return (c.api.get(f"/v1/jobs/{job}").get("live") or {}).get("warning")
        wait_until(lambda: warning(idle), 20, "the idle job is not named", 0.2)
        assert re.fullmatch(r"holds GPUs and has not used them for \w+; it is ended after 8s", warning(idle))
        user = c.api.get("/v1/status")["user"]
        named = [w for w in c.api.get("/v1/status")["warnings"] if "without using them" in w]
        assert len(named) == 1 and re.fullmatch(rf"1 job holds GPUs without using them: {idle} of {user} \(1 for \w+\)", named[0]), named
        assert "Warning" in c.cli("get", str(idle)).stdout
        assert "Note" not in c.cli("list").stdout  # for programs
        shown = subprocess.run(["script", "-qec", f"{c.binary} list", "/dev/null"], env=c.env, capture_output=True, text=True,
                               timeout=20, check=True).stdout.replace("\r\n", " ")
        assert re.search(rf"Note +job {idle} holds GPUs and has not used them", re.sub(r"\x1b\[[0-9;]*m", "", shown)), shown
        shown = c.cli("get", str(busy)).stdout
        assert re.search(r"GPUs now +\S+:1  1 of it, 90 % busy, \S+ of 141G\n", shown), shown
        wait_until(lambda: c.api.get(f"/v1/jobs/{idle}")["state"] == "CANCELLED", 20, "the idle job is not ended", 0.2)
        record = c.api.get(f"/v1/jobs/{idle}")
        assert "without using them (idle_gpu_end)" in record["reason"]
        assert c.api.get(f"/v1/jobs/{busy}")["state"] == "RUNNING"
        assert warning(busy) is None
        log = "".join(c.log_tail("controller", 50))
        assert "its owner is warned" in log


def test_efficiency_and_charts_survive_a_restart(cluster):
    def rows():
        return {r["what"]: r for r in cluster.api.get("/v1/jobs/1/efficiency")["rows"]}
    wait_until(lambda: rows()["gpu"]["used"] > 300, 40, "the job does not become busy", 0.5)
    rows = rows()
    assert rows["gpu"]["asked"] == 2000
    assert rows["gpu_memory"]["asked"] == 2 * 141 * 2**30
    assert rows["energy"]["used"] > 0
    assert "GPUs" in cluster.cli("efficiency", "1").stdout
    done = cluster.cli("efficiency", "4", check=False)
    assert done.returncode == 1 and "has not run yet" in done.stderr

    node = cluster.api.get("/v1/nodes")["nodes"][0]["name"]
    name = f"gpu/{node}/0/utilisation"
    before = cluster.api.get(f"/v1/series?name={name}")
    assert before["step_ms"] == 1000 and len(before["points"]) > 5
    assert max(v for _, v in before["points"]) > 0.5
    assert name in cluster.api.get("/v1/series?prefix=gpu/")["names"]
    cluster.cli("down")
    cluster.cli("up")
    cluster.api.close()
    wait_until(lambda: cluster.nodes_up(), 30, "no node")
    after = cluster.api.get(f"/v1/series?name={name}")
    kept = {t for t, _ in after["points"]}
    assert {t for t, _ in before["points"]} <= kept
