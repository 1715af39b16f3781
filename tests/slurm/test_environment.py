"""What scripts, their steps and the shells of salloc find in their environment: the same names with the same
values under a real Slurm and here, but for those below."""
import os

import pytest

from tests.lab.proc import wait_until

from .sides import CONFIG, AcequiaSide, SlurmSide, end_all

pytestmark = [pytest.mark.long, pytest.mark.skipif(os.geteuid() != 0, reason="a private Slurm needs root")]

# Of the machine or the moment; compared by being there.
OWN = {"SLURM_JOB_ID", "SLURM_JOBID", "SLURM_TASK_PID", "SLURM_SUBMIT_DIR", "SLURM_CLUSTER_NAME",
       "SLURM_ARRAY_JOB_ID", "SLURM_STEP_LAUNCHER_PORT", "SLURM_LAUNCH_NODE_IPADDR", "SLURM_SRUN_COMM_HOST"}
# Which of two empty nodes a job gets is chance.
PLACE = {"SLURMD_NODENAME", "SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_STEP_NODELIST", "SLURM_TOPOLOGY_ADDR",
         "HOSTNAME"}
# docs/slurm-differences.md says why. Slurm's GPUs are plain files in this lab, so it tells no numbers of theirs.
OTHER = {"SLURM_CONF", "SLURM_WORKING_CLUSTER", "SLURM_SRUN_COMM_PORT", "SRUN_DEBUG", "SLURM_JOB_QOS", "SLURM_JOB_NAME",
         "SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0", "SLURM_DISTRIBUTION", "SLURMD_TRES_BIND", "SLURMD_TRES_FREQ",
         "SLURM_NTASKS_PER_TRES",
         "SLURM_CPU_BIND", "SLURM_CPU_BIND_LIST", "SLURM_CPU_BIND_TYPE", "SLURM_CPU_BIND_VERBOSE", "SLURM_JOB_GPUS",
         "SLURM_STEP_GPUS", "SLURM_NODE_ALIASES", "SLURM_JOB_COMMENT", "SLURM_JOB_ACCOUNT"}

BATCH = ["", "-n 3", "-N 2", "-N 2 --ntasks-per-node=2", "--ntasks-per-node=3", "-c 4", "-n 2 -c 2 --mem=100",
         "--mem-per-cpu=20 -n 2", "--gres=gpu:2", "--gres=gpu:v100:1", "--gpus=2", "--gpus=v100:2",
         "--gpus-per-node=2 -N 2", "--gpus-per-task=1 -n 3", "-n 4 --ntasks-per-gpu=2", "--gpus=2 --ntasks-per-gpu=2",
         "--mem-per-gpu=50 --gpus=2", "--hint=nomultithread -n 2", "--threads-per-core=1", "--ntasks-per-core=1",
         "--ntasks-per-socket=2", "--distribution=cyclic -n 2", "--open-mode=append", "--gpu-bind=closest --gpus=1",
         "--gpu-freq=low --gpus=1", "--array=7", "-J named -t 5", "--requeue", "--signal=B:USR1@10 -t 5"]
SHELLS = ["", "-n 3", "-N 2", "-N 2 --ntasks-per-node=2", "-c 2 -n 2", "--gres=gpu:2", "--gpus-per-task=1 -n 2",
          "--gpus-per-node=2 -N 2", "--mem=100", "--mem-per-cpu=20 -n 2", "-J named -t 5"]

SHOW = "env | grep -E '^(SLURM|SRUN|TMPDIR=|ENVIRONMENT=|HOSTNAME=)' | sort"
SCRIPT = f"#!/bin/bash\n{SHOW} > NAME.batch\nsrun bash -c \"{SHOW} > NAME.\\$SLURM_PROCID\" </dev/null\n"


@pytest.fixture(scope="module")
def sides():
    slurm = acequia = None
    try:
        slurm = SlurmSide(gpu_type="v100")
        acequia = AcequiaSide(CONFIG + "gpus = v100:8:32G\ngpus_simulated = true\n")
        yield slurm, acequia
    finally:
        end_all(acequia, slurm)


def read(text):
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def differing(one, two, also=()):
    found = []
    for name in sorted((set(one) | set(two)) - OTHER - PLACE - set(also)):
        same = name in one and name in two if name in OWN else one.get(name) == two.get(name)
        if not same:
            found.append(f"{name}: {one.get(name)} / {two.get(name)}")
    return found


def file(side, name):
    path = f"{side.work}/{name}"
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as f:
        return read(f.read())


def test_scripts_and_steps(sides):
    for number, options in enumerate(BATCH):
        for side in sides:
            done = side.run(f"sbatch -o job{number}.out {options}", stdin=SCRIPT.replace("NAME", f"job{number}"))
            assert done.code == 0, (options, done)
        if number % 3 == 2 or number + 1 == len(BATCH):  # few at a time: none is split for want of room
            for side in sides:
                wait_until(lambda s=side: not s.run("squeue -h -o %i").out.strip(), 60, "the jobs do not end", 0.1)
    found = []
    for number, options in enumerate(BATCH):
        for part in ("batch", "0", "1"):
            one, two = (file(side, f"job{number}.{part}") for side in sides)
            if part == "1" and not (one and two):
                continue
            assert one and two, (options, part)
            found += [f"sbatch {options} ({part}): {x}" for x in differing(one, two)]
    assert found == []


def test_shells(sides):
    found = []
    for options in SHELLS:
        one, two = (read(side.run(f"salloc -Q {options} bash -c \"{SHOW}\"").out) for side in sides)
        assert two, options
        found += [f"salloc {options}: {x}" for x in differing(one, two, {"TMPDIR"})]
    assert found == []
