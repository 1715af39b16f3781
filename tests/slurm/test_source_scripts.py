"""Scripts and outputs as the documents that Acequia is made for print them: two GPUs and a Python
program, tasks on all nodes, what sinfo, scontrol and sacct show of it."""
import pytest

from .sides import AcequiaSide

CONFIG = "[node *]\ncpus = 6\ngpus = v100:2:32G\ngpus_simulated = true\n"


@pytest.fixture(scope="module")
def side():
    made = AcequiaSide(CONFIG, ("cvblab03", "cvblab04"))
    yield made
    made.close()


def test_sinfo(side):
    out = side.run("sinfo").out.splitlines()
    assert out[0].split() == ["PARTITION", "AVAIL", "TIMELIMIT", "NODES", "STATE", "NODELIST"]
    assert out[1].split() == ["main*", "up", "infinite", "2", "idle", "cvblab[03-04]"]


def test_two_gpus_and_python(side):
    script = ("#!/bin/bash\n# JOB HEADERS HERE\n#SBATCH --gres=gpu:2\n\n"
              "echo $SLURM_JOB_GPUS\nsrun --gpus=1 sh -c 'echo $SLURM_STEP_GPUS'\n"
              "srun -n 2 -O --gpus-per-task=1 sh -c 'echo $CUDA_VISIBLE_DEVICES' | sort -u | wc -l\n"
              "python3 -c 'print(6 * 7)'\n")
    r = side.run("sbatch --wait -o gpu.out", stdin=script)
    assert r.code == 0 and r.out.startswith("Submitted batch job ")
    with open(f"{side.work}/gpu.out", encoding="utf-8") as f:
        assert f.read().split() == ["0,1", "0", "2", "42"]
    assert "gres/gpu=2" in side.run("sacct -X -P -n -o alloctres").out


def test_tasks_on_all_nodes(side):
    script = ("#!/bin/bash\n#SBATCH --job-name=test_job_mpi\n#SBATCH --output=mpi.out\n"
              "#SBATCH --ntasks=2 --ntasks-per-node=1\n#SBATCH --time=00:01:00\n\n"
              "srun sh -c 'echo $SLURMD_NODENAME $SLURM_PROCID of $SLURM_NTASKS'\n")
    r = side.run("sbatch --wait", stdin=script)
    assert r.code == 0
    with open(f"{side.work}/mpi.out", encoding="utf-8") as f:
        assert sorted(f.read().splitlines()) == ["cvblab03 0 of 2", "cvblab04 1 of 2"]
    number = r.out.split()[-1]
    rows = [x.split() for x in side.run(f"sacct -n -j {number}").out.splitlines()]
    assert [x[0] for x in rows] == [number, f"{number}.batch", f"{number}.0"]
    assert rows[0][1:] == ["test_job_+", "main", "default", "2", "COMPLETED", "0:0"]
    assert rows[1][1:] == ["batch", "default", "1", "COMPLETED", "0:0"]
    assert rows[2][1:] == ["sh", "default", "2", "COMPLETED", "0:0"]


def test_show(side):
    node = side.run("scontrol show node cvblab03").out
    for text in ("NodeName=cvblab03", "CPUTot=6", "Gres=gpu:v100:2", "State=IDLE", "CfgTRES=cpu=6", "gres/gpu=2"):
        assert text in node
    partition = side.run("scontrol show partition main").out
    for text in ("PartitionName=main", "Nodes=cvblab[03-04]", "State=UP TotalCPUs=12 TotalNodes=2", "MaxTime=UNLIMITED"):
        assert text in partition
