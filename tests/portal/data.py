"""A small cluster with something on every page of the portal: projects with quotas, jobs in all states, a program, drafts, views, alerts, files."""
import os

from tests.journeys.test_serve import Service
from tests.lab.proc import wait_until

CONFIG = """[cluster]
name = turia
volume_folder = {volumes}
[report]
currency = EUR
price_gpu_hour = 2.5
[node *]
cpus = 32
memory = 128G
gpus = a100:4:40G
gpus_simulated = true
"""
TRAIN = ("echo loading 50,000 images from /data/imagenet; sleep 1; e=0; while [ $e -lt 400 ]; do e=$((e+1)); "
         "echo \"epoch $e/400  loss 0.$((900-e*2))  accuracy 0.$((500+e))  3,412 images/s\"; sleep 3; done")
SCRIPT = """#!/bin/bash
#ACEQUIA --name segment --project vision --gpus 2 --time 4h
#ACEQUIA --cpus 8 --memory 32G
#ACEQUIA --tag baseline
set -e
python train.py --data /data/cityscapes --epochs 80 --batch 32
"""


def submit(c, name, *options, command=("sleep", "3000")):
    return c.cli("submit", "-Q", "-J", name, *([] if "-o" in options else ["-o", "/dev/null"]), *options, "--", *command).stdout.strip()


def state(c, job):
    return c.api.get(f"/v1/jobs/{job}")["state"]


def populate_programs(c):
    """Apps that run and that have ended, a service whose new revision is tried, volumes that are used and shared."""
    def app(**values):
        return str(c.api.post("/v1/apps/program", {"workdir": c.home, "values": [f"{k}={v}" for k, v in values.items()]})["id"])

    http = "/usr/bin/python3 -m http.server $ACEQUIA_PORT"
    ended = app(command="sleep 1", time="1h")
    runs = app(command=http, time="8h", memory="1G")
    Service(c, "embed", "--replicas", "0-4", "-P", "vision", "-c", "1")
    service = Service(c, "translate", "--replicas", "2-6", "-P", "speech", "-c", "1", "--latency", "200")
    service.wait("ready", lambda s: s["ready_replicas"] == 2)
    service.update("2", "--canary", "10%", "-P", "speech", "-c", "1")
    service.wait("a canary", lambda s: any(r["weight"] == 10 for r in s["revisions"]))
    for _ in range(40):
        service.ask()
    c.cli("volume", "create", "datasets", "--size", "500G")
    c.cli("volume", "create", "models", "-P", "vision", "--size", "2T")
    c.cli("volume", "create", "scratch")
    c.cli("volume", "share", "datasets", "--with", "daemon", "--read-only")
    c.cli("cluster", "create", "mpi", "hpc", f"folder={c.home}/clusters", "--workers", "1-2", "--time", "8h", cwd=c.home)
    submit(c, "index-datasets", "-P", "vision", "-c", "1", "-t", "3h", "-v", "datasets:/data")
    wait_until(lambda: state(c, ended) == "COMPLETED" and state(c, runs) == "RUNNING", 60, "the apps do not run")


def populate(c):
    """Numbers of the jobs that pages are shown of."""
    os.makedirs(f"{c.home}/files/results")
    for name, text in (("notes.md", "# Notes\n\nbaseline: 0.71 mIoU\n"), ("results/loss.csv", "epoch,loss,accuracy\n" + "".join(f"{i},{1 / (i + 1):.4f},{1 - 1 / (i + 2):.4f}\n" for i in range(80))),
                       ("train.py", "import sys\n\n\ndef main():\n    print('training')\n\n\nif __name__ == '__main__':\n    sys.exit(main())\n"), ("job.sh", SCRIPT)):
        with open(f"{c.home}/files/{name}", "w", encoding="ascii") as f:
            f.write(text)
    for name, quota in (("vision", "2"), ("speech", "1"), ("biology", "1")):
        c.cli("project", "create", name, "--quota", quota)
    c.cli("partition", "create", "night", "--max-time", "8h")
    c.cli("qos", "create", "urgent", "--priority", "100")
    c.cli("user", "add", "ana", "--role", "user", "--full-name", "Ana Ferrer", "--email", "ana@example.org")
    c.cli("alert", "set", "gpu-warm", "--metric", "gpu/*/*/temperature_celsius", "--above", "10", "--for", "0s")
    done = [submit(c, "preprocess", "-P", "vision", "-o", f"{c.home}/preprocess.out", command=("sh", "-c", "echo 12,000 files; sleep 2; echo done")),
            submit(c, "evaluate", "-P", "speech", "-g", "1", "-o", f"{c.home}/evaluate.out", command=("sh", "-c", "echo Traceback; sleep 2; exit 3"))]
    for job, end in zip(done, ("COMPLETED", "FAILED")):
        wait_until(lambda job=job, end=end: state(c, job) == end, 60, f"job {job} does not end")
    jobs = {"failed": done[1],
            "running": submit(c, "train-resnet50", "-P", "vision", "-g", "2", "-c", "8", "-m", "24G", "-t", "6h", "--tag", "baseline", "-o", f"{c.home}/train.out", command=("sh", "-c", TRAIN)),
            "program": submit(c, "tensorboard", "-P", "vision", "--port", "6006", "-t", "8h", command=("/usr/bin/python3", "-m", "http.server", "6006")),
            "fraction": submit(c, "whisper-small", "-P", "speech", "-g", "0.5", "-t", "2h"),
            "waiting": submit(c, "protein-folding", "-P", "biology", "-g", "4", "-t", "12h"),
            "waiting2": submit(c, "tune-learning-rate", "-P", "vision", "-g", "3", "-t", "3h")}
    submit(c, "sweep", "-P", "biology", "--array", "0-49%4", "-c", "1", "-t", "1h", command=("sleep", "20"))
    jobs["held"] = submit(c, "ablation", "-P", "vision", "-g", "1", "-H")
    for key in ("running", "program", "fraction"):
        wait_until(lambda key=key: state(c, jobs[key]) == "RUNNING", 60, f"{key} does not run")
    c.cli("draft", "save", "segment", f"{c.home}/files/job.sh")
    c.cli("view", "save", "large", "--title", "Large and waiting", "-s", "PENDING", "--where", "gpus>=2")
    populate_programs(c)
    c.cli("reservation", "create", "service", "--start", "2035-01-01T08:00", "--end", "2035-01-01T12:00")
    c.cli("share", jobs["program"], "--with", "daemon", "--for", "1d")
    wait_until(lambda: c.api.get("/v1/alerts")["alerts"], 60, "no alert")
    return jobs
