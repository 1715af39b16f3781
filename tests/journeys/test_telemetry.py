"""What is told about use: of now and of nobody who is gone, of all nodes of a job, of the attempt that runs;
over restarts of both daemons."""
import contextlib
import os
import re
import signal
import sqlite3
import time

import pytest

from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until

SIMULATED = "[cluster]\ngrace = 1s\nusage_interval = 1s\n[node *]\ncpus = 16\nmemory = 8G\ngpus = h200:2\ngpus_simulated = true\n"


def submit(c, text, load=None, **spec):
    body = {"name": "t", "workdir": c.home, "output": "/dev/null", "argv": ["sh", "-c", text], **spec}
    environment = [f"ACEQUIA_SIMULATED_GPU_LOAD={load}"] if load is not None else []
    return c.api.post("/v1/jobs", {"spec": body, "environment": environment})["id"]


def job(c, number):
    return c.api.get(f"/v1/jobs/{number}")


def wait_state(c, number, state, seconds=20):
    wait_until(lambda: job(c, number)["state"].upper() == state, seconds, f"job {number} does not become {state}", 0.1)


def metrics(c):
    return c.api.raw("GET", "/metrics")[1].decode()


@pytest.mark.long
def test_a_node_that_is_gone_has_no_figures():
    with Cluster(config=SIMULATED) as c:
        node = c.nodes_up()[0]
        number = submit(c, "sleep 3600", load=900, gpus_milli=1000)
        wait_until(lambda: " 90 % busy" in c.cli("get", str(number)).stdout, 10, "no use")
        now = c.api.get(f"/v1/nodes/{node}")["gpus_now"]
        assert now[0]["use_milli"] == 900 and now[0]["held_milli"] == 1000 and now[1]["use_milli"] == 0
        assert [j["job"] for j in now[0]["jobs"]] == [str(number)] and now[1]["jobs"] == []
        assert re.search(r"^ +0 +h200 +90 % +\S+/141G +\d+ W +\d+ C +1 +\d+ +simulated$", c.cli("nodes", node).stdout, re.M)
        assert re.search(r"^GPU use +\[#+\.+\] 45 %, \d+ W$", c.cli("status").stdout, re.M)
        wait_until(lambda: c.cli("list", "-o", "id,gpu_use", "-H").stdout.split() == [str(number), "90", "%"], 5, "no use in the list")
        c.kill_agent(node)
        wait_until(lambda: "acequia_job_gpu_utilization_ratio{" not in metrics(c), 25, "figures of long ago are told")
        text = metrics(c)
        for name in ("DCGM_FI_DEV_GPU_UTIL{", "DCGM_FI_DEV_GPU_TEMP{", "acequia_node_load{", "acequia_job_gpu_memory_used_bytes{"):
            assert f"\n{name}" not in text, name
        assert re.search(r"^acequia_gpu_healthy\{.*\} 1$", text, re.M)  # that is known without a measurement
        assert c.api.get("/v1/status")["gpus"]["measured"] == 0
        first = c.api.get(f"/v1/nodes/{node}")["gpus_now"][0]
        assert {k: v for k, v in first.items() if v is not None} == {"held_milli": 1000, "jobs": []}
        assert re.search(r"^ +0 +h200 +- +-/141G +- +- +1 ", c.cli("nodes", node).stdout, re.M)
        newest = c.api.get("/v1/series?name=cluster/gpu_utilisation")["points"][-1][0]
        time.sleep(2)
        assert c.api.get("/v1/series?name=cluster/gpu_utilisation")["points"][-1][0] == newest
        c.start_agent(node)
        wait_until(lambda: "acequia_job_gpu_utilization_ratio{" in metrics(c), 20, "no telemetry afterwards")


def test_all_nodes_of_a_job_count():
    with Cluster(config=SIMULATED, agents=("n1", "n2")) as c:
        wait_until(lambda: {"n1", "n2"} <= set(c.nodes_up()), 20, "two nodes")
        number = submit(c, "sleep 3600", load=500, nodes_min=2, nodes_max=2, gpus_per_node_milli=1000, nodes="n1,n2")
        wait_state(c, number, "RUNNING")

        def live():
            return (job(c, number).get("live") or {})
        wait_until(lambda: live().get("gpu_busy_ms", 0) > 3000, 20, "no use", 0.3)
        seen = [live()["processes"] for _ in range(12) if not time.sleep(0.25)]
        assert len(set(seen)) == 1, seen  # not now one node's, now the other's
        rows = {r["what"]: r for r in c.api.get(f"/v1/jobs/{number}/efficiency")["rows"]}
        assert rows["gpu"]["asked"] == 2000 and 0 < rows["gpu"]["used"] <= 1100, rows
        assert len(live()["gpus"]) == 2


@pytest.mark.long
def test_figures_are_of_the_newest_attempt():
    with Cluster(config=SIMULATED) as c:
        number = submit(c, "sleep 7", load=500, gpus_milli=1000)
        for _ in range(3):
            wait_state(c, number, "RUNNING")
            wait_until(lambda: (job(c, number).get("live") or {}).get("gpu_busy_ms", 0) > 500, 20, "no use", 0.2)
            if job(c, number)["attempt"] < 3:
                c.cli("requeue", str(number))
                wait_until(lambda: job(c, number)["state"].upper() != "RUNNING", 10, "it goes on", 0.05)
        wait_state(c, number, "COMPLETED", 30)
        done = job(c, number)
        assert done["attempt"] == 3
        elapsed = done["end_ms"] - done["start_ms"]
        assert done["usage"]["gpu_busy_ms"] <= elapsed, (done["usage"], elapsed)
        assert done["usage"]["gpu_memory_peak_bytes"] < 60 << 30  # one peak, not three


def test_efficiency_of_an_array():
    with Cluster(config=SIMULATED) as c:
        c.cli("submit", "-a", "0-3", "-g", "0.5", "-E", "ACEQUIA_SIMULATED_GPU_LOAD=500", "-o", "/dev/null", "--", "sleep", "4")
        array = 1
        wait_until(lambda: c.active_jobs() == 0, 40, "the array does not end", 0.3)
        report = c.api.get(f"/v1/jobs/{array}/efficiency")
        assert report["elements"] == 4 and 4 <= report["elapsed_s"]
        rows = {r["what"]: r for r in report["rows"]}
        assert rows["gpu"]["asked"] == 500 and 0 < rows["gpu"]["used"] <= 300, rows["gpu"]
        one = {r["what"]: r for r in c.api.get(f"/v1/jobs/{array}_1/efficiency")["rows"]}
        assert rows["energy"]["used"] >= 2 * one["energy"]["used"]
        shown = c.cli("efficiency", str(array)).stdout
        assert re.search(rf"^Array {array}, 4 elements that ran for \d+s on average$", shown, re.M), shown
        assert c.api.get(f"/v1/jobs/{array}_1/efficiency")["elements"] is None


@pytest.mark.long
def test_nobody_is_ended_for_time_in_which_nobody_looked():
    config = SIMULATED.replace("[cluster]\n", "[cluster]\nidle_gpu_after = 2s\nidle_gpu_end = 15s\n")
    with Cluster(config=config) as c:
        node = c.nodes_up()[0]
        number = submit(c, "sleep 120", load=0, gpus_milli=500)
        wait_until(lambda: "has not used them" in ((job(c, number).get("live") or {}).get("warning") or ""), 15, "it is not named", 0.2)
        c.kill_agent(node)
        time.sleep(18)
        c.start_agent(node)
        wait_until(lambda: c.api.get("/v1/status")["gpus"]["measured"], 20, "no telemetry")
        time.sleep(3)
        assert job(c, number)["state"].upper() == "RUNNING", job(c, number)["reason"]
        wait_state(c, number, "CANCELLED", 30)
        assert "held GPUs for 15s without using them (idle_gpu_end)" in job(c, number)["reason"]


def saved_charts(c):
    with contextlib.closing(sqlite3.connect(f"file:{c.home}/state/acequia.db?mode=ro", uri=True)) as db:
        return db.execute("SELECT count(*) FROM blob WHERE name LIKE 'series/gpu/%'").fetchone()[0]


@pytest.mark.long
def test_charts_survive_kill_9_of_the_controller():
    with Cluster(config=SIMULATED) as c:
        node = c.nodes_up()[0]
        submit(c, "sleep 300", load=700, gpus_milli=1000)
        wait_until(lambda: saved_charts(c), 90, "the charts are not saved within a minute", 1)
        c.kill_controller()
        c.start_controller()
        c.wait_ready()
        points = c.api.get(f"/v1/series?name=gpu/{node}/0/utilisation")["points"]
        assert len(points) > 40 and max(v for _, v in points) > 0.6


def test_figures_that_come_late_are_not_added_up():
    """Several messages of an agent reach a controller that was paused at once: the last one counts."""
    with Cluster(config=SIMULATED) as c:
        number = submit(c, "sleep 3600", load=900, gpus_milli=1000)

        def use():
            rows = c.api.get("/v1/jobs?fields=id,gpu_use_milli")["jobs"]
            return next(r for r in rows if r["id"] == number)["gpu_use_milli"]
        wait_until(lambda: (use() or 0) > 500, 20, "no use", 0.2)
        seen = []
        for _ in range(3):
            os.kill(c.pid("controller"), signal.SIGSTOP)
            time.sleep(3)
            os.kill(c.pid("controller"), signal.SIGCONT)
            seen += [use() or 0 for _ in range(15) if not time.sleep(0.1)]
        assert max(seen) <= 1000, seen
