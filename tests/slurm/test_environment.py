"""What scripts, their steps and the shells of salloc find in their environment: the same names with the same
values under a real Slurm and here, but for those below. And scripts as frameworks are launched with."""
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


LAUNCH = {
    "one process per node, address of the first": """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gres=gpu:4 --cpus-per-task=8 --mem=1G --time=00:10:00
set -euo pipefail
export WORLD_SIZE=$(($SLURM_NNODES * $SLURM_NTASKS_PER_NODE)) OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
echo $SLURM_NODELIST $MASTER_ADDR $WORLD_SIZE $OMP_NUM_THREADS $SLURM_GPUS_ON_NODE
srun -c $SLURM_CPUS_PER_TASK bash -c 'echo $SLURM_PROCID $SLURM_NODEID $WORLD_SIZE $SLURM_GPUS_ON_NODE $SLURM_CPUS_ON_NODE' | sort
""",
    "one process per GPU": """#!/bin/bash
#SBATCH -N 2 --ntasks-per-node=4 --gpus-per-node=4 -c 2 -t 10
echo $SLURM_NTASKS $SLURM_NTASKS_PER_NODE $SLURM_GPUS_PER_NODE $SLURM_JOB_NUM_NODES $SLURM_TASKS_PER_NODE $SLURM_JOB_CPUS_PER_NODE
srun --kill-on-bad-exit=1 bash -c 'echo $SLURM_PROCID $SLURM_LOCALID $SLURM_NTASKS $SLURM_NODEID $SLURM_STEP_NUM_NODES' | sort -n
""",
    "a head and workers, by node": """#!/bin/bash
#SBATCH -N 2 --exclusive --tasks-per-node=1 --cpus-per-task=4 -t 10
nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
srun --nodes=1 --ntasks=1 -w "${nodes[0]}" bash -c 'echo head $SLURMD_NODENAME $SLURM_CPUS_PER_TASK; sleep 1.5' &
sleep 0.7
srun --nodes=1 --ntasks=1 -w "${nodes[1]}" bash -c 'echo worker $SLURMD_NODENAME'
wait
""",
    "a launcher with the rank of each node": """#!/bin/bash
#SBATCH -N2 --ntasks-per-node=1 --gres=gpu:2
export LAUNCHER="--num_processes $((SLURM_NNODES * 2)) --num_machines $SLURM_NNODES --machine_rank \\$SLURM_PROCID"
srun --jobid $SLURM_JOBID bash -c "echo $LAUNCHER" | sort
scontrol show hostnames $SLURM_JOB_NODELIST | awk '{print $0" slots=2"}'
""",
    "steps side by side, each with a GPU": """#!/bin/bash
#SBATCH -n 4 --gres=gpu:4
for i in 0 1 2 3; do
    srun --exact -n1 --gres=gpu:1 bash -c 'echo $SLURM_GPUS_ON_NODE $SLURM_CPUS_ON_NODE' 2>/dev/null &
done
wait
""",
}


@pytest.mark.parametrize("name", LAUNCH)
def test_launch_scripts(sides, name):
    one, two = [], []
    for side, into in zip(sides, (one, two)):
        done = side.run("sbatch --wait -Q -o launch.out", stdin=LAUNCH[name])
        with open(f"{side.work}/launch.out", encoding="utf-8") as f:
            into += [done.code, *f.read().splitlines()]
    assert one == two
