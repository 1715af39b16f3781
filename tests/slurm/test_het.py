"""Heterogeneous jobs beside a real Slurm: the same script on both, and what its variables and steps say. Slurm gives
every component nodes of its own, so both sides have four."""
import os
import re
import time

import pytest

from tests.lab.proc import wait_until
from tests.slurm.sides import FIRST_ID, AcequiaSide, SlurmSide, end_all

NODES = ("n1", "n2", "n3", "n4")
FIRST, SECOND = "-t 5 -n 2 -c 2 --mem=100 -J het -w n1", "-t 5 -N 2 --ntasks-per-node=2 --mem=50 -w n[2-3]"
SCRIPT = f"""#!/bin/bash
#SBATCH {FIRST}
#SBATCH hetjob
#SBATCH {SECOND}
exec 2>/dev/null  # a busy Slurm says that a step has to wait
env | grep -E "^SLURM_(HET_SIZE|PACK_SIZE|[A-Z_]*_(HET|PACK)_GROUP_[01])=" | grep -vE "JOB_?ID_|ACCOUNT_|QOS_" | sort
echo --- first
srun sh -c 'echo $SLURM_PROCID $SLURM_NTASKS' | sort -n
echo --- second
srun --het-group=1 sh -c 'echo $SLURM_PROCID $SLURM_NTASKS $SLURM_NODEID $SLURM_JOB_NAME' | sort -n
echo --- both
srun --het-group=0,1 sh -c 'echo $SLURM_PROCID $SLURM_NTASKS $SLURM_HET_SIZE' | sort -n
vars='echo $SLURM_PROCID $SLURM_NODEID $SLURM_JOB_NUM_NODES $SLURM_NNODES $SLURM_JOB_NODELIST $SLURM_NODELIST'
vars="$vars "'$SLURM_JOB_CPUS_PER_NODE $SLURM_TASKS_PER_NODE $SLURM_STEP_NUM_NODES $SLURM_STEP_NUM_TASKS'
vars="$vars "'$SLURM_STEP_NODELIST $SLURM_STEP_TASKS_PER_NODE'
echo --- variables
srun sh -c "$vars" | sort -n
srun --het-group=1 sh -c "$vars" | sort -n
srun --het-group=0,1 sh -c "$vars" | sort -n
srun -n1 sh -c "$vars" : -n2 sh -c "$vars" | sort -n
echo --- colon
srun -n1 sh -c 'echo a $SLURM_PROCID' : -n2 sh -c 'echo b $SLURM_PROCID' | sort
echo --- status
srun -n1 true : -n1 sh -c 'exit 3'; echo $?
squeue -h -j $SLURM_JOB_ID -o '%t %D %C %j' | sort
"""


@pytest.fixture(scope="module")
def sides():
    slurm = ours = None
    try:
        slurm = SlurmSide(nodes=4, tuned=False, accounting=True,
                          extra=f"FirstJobId={FIRST_ID}\nSchedulerParameters=bf_interval=1,sched_interval=1")
        ours = AcequiaSide(nodes=NODES)
        yield slurm, ours
    finally:
        end_all(slurm, ours)


def output(side, name):
    path = f"{side.work}/{name}"
    return open(path, encoding="utf-8").read() if os.path.exists(path) else ""


def test_a_script_with_components(sides):
    said = []
    for side in sides:
        with open(f"{side.work}/het.sh", "w", encoding="utf-8") as f:
            f.write(SCRIPT)
        assert side.run("sbatch --parsable -o out.txt het.sh", save="j").code == 0
        side.wait("j")
        said.append(output(side, "out.txt").splitlines())
    assert said[0][-1] == "R 2 4 het", said[0]
    assert said[0] == said[1]


def test_an_allocation_with_components(sides):
    """salloc: the same variables and steps as a script has."""
    said = []
    for side in sides:
        with open(f"{side.work}/alloc.sh", "w", encoding="utf-8") as f:
            f.write(SCRIPT)
        done = side.run(f"salloc -Q {FIRST} : {SECOND} bash ./alloc.sh")
        said.append((done.code, done.out.splitlines()))
    assert said[0][1][-1] == "R 2 4 het", said[0]
    assert said[0] == said[1]


def test_what_salloc_says(sides):
    said = []
    for side in sides:
        done = side.run("salloc -t5 -n1 : -t5 -n2 bash -c 'echo job $SLURM_JOB_ID; exit 4'", save="j")
        lines = [x for x in done.err.splitlines() if not re.search("queued and waiting|been allocated|Pending|been revoked", x)]
        said.append((done.code, done.out, lines))
        side.wait("j")
    assert said[0] == said[1]


def test_srun_with_components_outside_a_job(sides):
    shown = "echo {} $SLURM_PROCID $SLURM_NTASKS $SLURM_HET_SIZE"
    said = []
    for side in sides:
        first, second = (f"sh -c '{shown.format(word)}'" for word in "ab")
        lines = [side.run(f"srun -Q -t5 -n1 {first} : -t5 -N2 -n2 {second} | sort"),
                 side.run("srun -Q -t5 -n1 true : -t5 -n1 sh -c 'exit 3'")]
        said.append([(x.code, x.out) for x in lines])
    assert said[0] == said[1]
    assert said[0][0][1].startswith("a 0 3 2\nb 1 3 2\n")
    assert sides[1].run("srun -Q -n1 cat : -n1 true", stdin="words\n").out == "words\n"  # the first component reads


def test_components_in_the_history(sides):
    """One row for each component and for each of its steps."""
    said = []
    for side in sides:
        side.run("sbatch --parsable -t5 -n1 -J het : -t5 -n2 -o /dev/null --wrap='srun --het-group=0,1 true; srun true; exit 2'", save="j")
        side.wait("j")
        rows = "sacct -n -P -j {j} -o jobid,jobname,ntasks,alloccpus,state,exitcode"
        wait_until(lambda s=side: "+1.0|" in s.run(rows).out, 60, "the job is not in the history")
        said.append([side.run(rows).out.splitlines(), side.run(f"{rows} -X").out.splitlines(),
                     side.run("sacct -n -P -X -j {j}+1 -o jobid").out.splitlines()])
    assert said[0] == said[1]


def test_components_that_never_started(sides):
    """Cancelled while they waited: one row for each component, with what it asked for."""
    said = []
    for side in sides:
        side.run("sbatch -H --parsable -t5 -n1 -J het : -t5 -n2 --wrap='sleep 60'", save="j")
        # Slurm's database hears of a job some time after its submit, and never of one that was cancelled before that.
        wait_until(lambda s=side: "+1|" in s.run("sacct -n -P -j {j} -o jobid,state").out, 60, "it is not in the history")
        side.run("scancel {j}")
        rows = "sacct -n -P -j {j} -o jobid,jobname,ntasks,reqcpus,nnodes,reqtres,state,exitcode,elapsed,end,nodelist,timelimit"
        wait_until(lambda s=side: s.run(rows).out.count("CANCELLED") == 2, 60, "its end is not in the history")
        said.append([side.run(rows).out.splitlines(), side.run("sacct -n -P -X -j {j}+1 -o jobid").out.splitlines()])
    assert said[0] == said[1]


def test_components_in_the_queue(sides):
    said = []
    for side in sides:
        lines = [side.run('sbatch -H --parsable -t5 -n1 : -t5 -n2 --wrap="sleep 60"', save="j"),
                 side.run("squeue -h -j {j} -o '%i %t %r %D %C %j' | sort"),
                 side.run("squeue -h -j {j} -O HetJobID:10,HetJobOffset:2 | sort"),
                 side.run("scontrol show job {j} | grep -oE 'HetJobOffset=[0-9]+|NumTasks=[0-9]+'"),
                 side.run("scancel {j}"), side.run("squeue -h -j {j}")]
        said.append([(x.code, x.out) for x in lines])
    assert said[0] == said[1]


@pytest.mark.parametrize("line", [
    "sbatch -a 1-2 -n1 : -n2 --wrap=true",
    'printf "#!/bin/sh\\n#SBATCH -H -n1\\n#SBATCH packjob\\n#SBATCH -n2\\ntrue\\n" | sbatch >/dev/null',
])
def test_words(sides, line):
    theirs, ours = (side.run(line) for side in sides)
    assert (theirs.code, theirs.out, theirs.err) == (ours.code, ours.out, ours.err)


def test_a_component_ends_with_the_job(sides):
    side = sides[1]
    side.run("sbatch --parsable -n1 : -n2 --wrap='sleep 1; exit 4'", save="j")
    wait_until(lambda: "FAILED" in side.run("sacct -n -j {j} -o state").out, 60, "the job does not end with its script")
    deadline = time.monotonic() + 30
    while side.run("squeue -h -j {j}").out.strip():
        assert time.monotonic() < deadline, "a component is left"
        time.sleep(0.1)
