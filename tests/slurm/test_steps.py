"""How srun places the tasks of a step inside a job, and which GPUs each of them sees: the same task counts, ranks,
nodes and GPU numbers under a real Slurm and here. Also which GPUs a job gets on each of its nodes."""
import os
import re

import pytest

from tests.lab.proc import wait_until

from .sides import AcequiaSide, SlurmSide, end_all

pytestmark = [pytest.mark.long, pytest.mark.skipif(os.geteuid() != 0, reason="a private Slurm needs root")]

SHOW = ("bash -c 'echo task $SLURM_PROCID node $SLURM_NODEID local $SLURM_LOCALID gpus $SLURM_STEP_GPUS of "
        "$SLURM_GPUS_ON_NODE tasks $SLURM_TASKS_PER_NODE' < /dev/null")

# Options of the job, options of the step. Four GPUs and eight CPUs on each of three nodes.
STEPS = [line.split("|") for line in """\
-N2 -n2 -c4 |
-N2 -n2 -c4 | -n5 -c1
-N2 -n2 -c4 | -n5 -c1 -m cyclic
-N2 -n2 -c4 | -n5 -c1 -m plane=2
-N2 -n2 -c4 | -n4 -c1 -m block
-N2 -n2 -c4 | -n3 -c1 --exact
-N2 -n2 -c4 | -n2 -c1 --exact
-N2 -n2 -c4 | -n2 -c1 --exact -N1
-N2 -n2 -c4 | -n4 -c2
-N2 -n2 -c4 | -N1
-N2 -n2 -c4 | -N2
-N2 -n2 -c4 | -N3
-N2 -n2 -c4 | -n17 -c1
-N2 --ntasks-per-node=2 |
-N2 --ntasks-per-node=2 | -N2
-N2 --ntasks-per-node=2 | -N1
-N2 --ntasks-per-node=2 | -n1
-N2 --ntasks-per-node=2 | -n3
-N2 --ntasks-per-node=2 | --ntasks-per-node=1
-N2 --ntasks-per-node=2 | -m cyclic
-N2 -c4 | --ntasks-per-node=2
-N2 -c4 | -N1 --ntasks-per-node=2
-n4 | --ntasks-per-node=2
-N3 -n3 -c2 | -x n2 -n2
-N3 -n3 -c2 | -w n3 -n1
-N3 -n3 -c2 | -w n3
-N3 -n3 -c2 | -w n[2-3] -n2
-N1 -n1 | -w n9
-N1 -n2 | -n4 -O
-N1 -n2 --gpus=2 |
-N1 -n2 --gpus=2 | --gpus-per-task=1
-N1 -n2 --gpus=4 | --gpus-per-task=2
-N1 -n2 --gpus=4 | --gpus-per-task=1
-N1 -n2 --gpus-per-task=1 |
-N1 -n2 --gpus-per-task=1 | -n1
-N1 -n2 --gpus=4 | --gpu-bind=single:1
-N1 -n4 --gpus=2 | --gpu-bind=single:2
-N1 -n4 --gpus=4 | --gpu-bind=map_gpu:3,2,1,0
-N1 -n4 --gpus=4 | --gpu-bind=map_gpu:0,1
-N1 -n2 --gpus=4 | --gpu-bind=mask_gpu:0x3,0xc
-N1 -n2 --gpus=4 | --gpu-bind=per_task:1
-N1 -n2 --gpus=4 | --gpu-bind=per_task:2
-N1 -n2 --gpus=2 --gpu-bind=single:1 |
-N2 -n2 -c4 --gpus-per-node=4 | -n4 -c1 --gpus-per-task=1
-N2 -n2 -c4 --gpus-per-node=4 | -n4 -c1 --gpus-per-task=2
-N2 -n2 -c4 --gpus-per-node=4 | -n4 -c1 --gpus-per-task=1 -m cyclic
-N2 -n2 -c4 --gpus-per-node=3 | -n6 -c1 --gpu-bind=single:1
-N2 -n2 -c4 --gpus-per-node=4 | --gres=gpu:2
-N2 -n2 -c4 --gpus-per-node=4 | --gres=gpu:5
-N2 -n2 -c4 --gpus=6 | -n2 --gpus=7
-N2 -n2 -c4 --gpus=6 | -n2 --gpus=1
-N2 -n2 -c4 --gpus=6 | -n1 --gpus=2
-N2 --ntasks-per-node=2 -c1 --gpus=6 | --gpus-per-task=1
-N3 -n6 -c1 | -N2
-N2 -n2 -c4 --gpus-per-node=2 | -n4 -c1 --gpu-bind=map_gpu:1,0
-N2 -n2 -c4 --gpus-per-node=2 | -n4 -c1 --gpu-bind=per_task:1""".splitlines()]
# With --gpus-per-task Slurm says for several nodes how many GPUs the job has there, we what the step has; a task's own
# count agrees.
OF_THE_JOB = "--gpus-per-task"


@pytest.fixture(scope="module")
def sides():
    slurm = acequia = None
    try:
        slurm = SlurmSide(nodes=3, cpus=8, gpus=4, gpu_devices=True)
        acequia = AcequiaSide("[node *]\ncpus = 8\nmemory = 20000M\ngpus = v100:4:32G\ngpus_simulated = true\n",
                              nodes=("n1", "n2", "n3"))
        yield slurm, acequia
    finally:
        end_all(acequia, slurm)


def test_tasks_and_gpus(sides):
    found = []
    for job, step in STEPS:
        seen = []
        for side in sides:
            show = SHOW.replace("$", "\\$")
            done = side.run(f'timeout 60 salloc -Q {job} bash -c "timeout 30 srun {step} {show}"')
            lines = sorted(done.out.splitlines(), key=lambda x: int(x.split()[1]))
            if OF_THE_JOB in step and "-N2" in job:
                lines = [x.split(" of ")[0] + x.split(" tasks ")[1] for x in lines]
            seen.append((done.code, lines))
        if seen[0] != seen[1]:
            found.append(f"salloc {job} srun {step}: Slurm {seen[0]}, here {seen[1]}")
    assert not found, "\n".join(found)


# GPUs of a job that its nodes cannot share equally: what another job holds first, then the options.
TOTALS = [line.split("|") for line in """\
|-N2 --gpus=5
|-N2 -n3 --gpus=5
|-N2 -n4 --gpus=7
|-N3 --gpus=4
|-N3 -n3 --gpus=8
|-N3 -n6 --gpus=10
|-N2 --ntasks-per-node=2 --gpus=5
|-N2 -n5 -c2 --gpus=3
|-N2 --gpus=5 --mem-per-gpu=100
|-N2 -n5 --gpus=5
|-N1-3 -n3 --gpus=5
|-N2 --gpus=1
|-N3 --gpus=2
|-N2 --gpus=9
-w n1 --gpus=2|-N2 --gpus=5
-w n2 --gpus=3|-N2 --gpus=5
-w n1 --gpus=1|-N3 --gpus=10
-w n1 --gpus=3|-N3 --gpus=7
-w n1 --gpus=2|-N2 -w n1,n2 --gpus=5""".splitlines()]


def gpus_by_node(text):
    """Of `scontrol -d show job`: node -> numbers of its GPUs."""
    found = {}
    for nodes, gpus in re.findall(r"^ +Nodes=(\S+) .*\(IDX:(\S+)\)", text, re.M):
        first, _, last = (nodes[2:-1] if "[" in nodes else nodes[1:]).partition("-")
        for number in range(int(first), int(last or first) + 1):
            found[f"n{number}"] = gpus
    return found


def test_gpus_that_do_not_divide(sides):
    found = []
    for before, job in TOTALS:
        seen = []
        for side in sides:
            if before:
                side.run(f"sbatch --parsable {before} --wrap 'sleep 600'", save="before")
                wait_until(lambda s=side: s.run("squeue -h -j {before} -t R -o %i").out.strip(), 60, "no job before it")
            done = side.run(f"timeout 60 salloc -Q {job} bash -c 'scontrol -d show job $SLURM_JOB_ID'")
            seen.append((done.code, gpus_by_node(done.out)))
            if before:
                side.run("scancel {before}")
                side.wait("before")
            wait_until(lambda s=side: not s.run("squeue -h -o %i").out.strip(), 60, "jobs do not end")
        if seen[0] != seen[1]:
            found.append(f"{before or 'nothing'} before salloc {job}: Slurm {seen[0]}, here {seen[1]}")
    assert not found, "\n".join(found)
