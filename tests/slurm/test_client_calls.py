"""What clients made for Slurm call and read, without the clients: each line was seen in the one named beside it.
The clients themselves run in test_clients.py and test_more_clients.py."""
import json
import os
import threading
import time

import pytest

from .sides import CONFIG, AcequiaSide


@pytest.fixture(scope="module")
def acequia():
    side = AcequiaSide()
    yield side
    side.close()


def ok(side, line, **kw):
    r = side.run(line, **kw)
    assert r.code == 0, f"{line}: {r}"
    return r.out


def test_home_is_the_submitters(acequia):
    """cylc: jobs look for their files below HOME as it was when they were submitted."""
    ok(acequia, "HOME=$PWD/elsewhere LOGNAME=maria sbatch -W -o home.out --wrap 'echo $HOME $LOGNAME'")
    assert ok(acequia, "cat home.out") == "<work>/elsewhere maria\n"


def test_srun_without_exported_variables(acequia):
    """batchspawner: a job that is given only named variables still finds its cluster."""
    ok(acequia, "sbatch -W -o bare.out --export=PATH --wrap 'srun echo step'")
    assert ok(acequia, "cat bare.out") == "step\n"


def test_folder_of_the_output_comes_late(acequia):
    """hydra's launcher (submitit with %j in its folder): the folder is made once the number is known."""
    folder = f"{acequia.work}/late"
    late = threading.Timer(0.5, os.mkdir, [folder])
    late.start()
    ok(acequia, "sbatch -W -o late/%A.out --wrap 'echo here'", save="j")
    late.join()
    assert ok(acequia, "cat late/{j}.out") == "here\n"
    assert acequia.run("sbatch -W -o never/%j.out --wrap true").code != 0


def test_dependencies_as_clients_write_them(acequia):
    """executorlib joins ids by commas; other scripts give a bare id."""
    ok(acequia, "sbatch -H --parsable --wrap true", save="a")
    ok(acequia, "sbatch -H --parsable --wrap true", save="b")
    for given, shown in (("{a}", "afterany:<a>(unfulfilled)"),
                         ("{a},{b}", "afterany:<a>(unfulfilled),afterany:<b>(unfulfilled)"),
                         ("afterok:{a},{b}", "afterok:<a>(unfulfilled),afterany:<b>(unfulfilled)"),
                         ("AfterOK: {a}", "afterok:<a>(unfulfilled)")):
        ok(acequia, f"sbatch --parsable -d '{given}' --wrap true", save="c")
        assert ok(acequia, "squeue -h -j {c} -o %E") == shown + "\n"
        ok(acequia, "scancel {c}")
        del acequia.names["c"]
    assert acequia.run("sbatch -d {a}:{b} --wrap true").code == 1
    ok(acequia, "scancel {a} {b}")
    ok(acequia, "sbatch --parsable --wrap 'exit 1'", save="a")
    ok(acequia, "sbatch -W -d {a} --wrap true")


def test_empty_values_of_templates(acequia):
    """pysqa, signac-flow, aiida: a template leaves a line such as #SBATCH --reservation= behind."""
    for name in ("reservation", "gpus", "gpus-per-node", "gpus-per-task", "nodelist", "exclude", "output", "error",
                 "account", "qos", "comment", "constraint", "dependency"):
        ok(acequia, f"sbatch -H --{name}= --wrap true")
    assert acequia.run("sbatch -H --partition= --wrap true").code == 1
    ok(acequia, "scancel -u root")


def test_the_usual_qos(acequia):
    """Open OnDemand offers what sacctmgr lists, and submits with it."""
    assert "|normal\n" in ok(acequia, "sacctmgr -nP show users withassoc format=account,qos where user=root")
    ok(acequia, "sbatch -H --parsable --qos=normal --wrap true", save="q")
    assert ok(acequia, "squeue -h -j {q} -o %q") == "normal\n"
    ok(acequia, "scancel {q}")
    assert acequia.run("sbatch -H --qos=nosuch --wrap true").code == 1


def test_sacctmgr(acequia):
    """The fields that exporters and schedulers of sites ask for."""
    assert ok(acequia, "sacctmgr show assoc format=User,Account,GrpCPU,GrpMem,GrpJobs,GrpSubmit --noheader --parsable2"
              ) == "root|default||||\n"
    assert ok(acequia, "sacctmgr list -n qos normal format=maxsubmitjobsperuser").strip() == ""
    assert ok(acequia, "sacctmgr list -n user withassoc format=maxsubmitjobsperuser").strip() == ""
    assert ok(acequia, "sacctmgr -nP show qos format=name,priority,maxwall,maxtrespu") == "normal|0||\n"
    assert ok(acequia, "sacctmgr -n -s list user root format=account%20") == "             default \n"
    assert ok(acequia, "sacctmgr show assoc format=User%-8,QOS%5") == (
        "User       QOS \n-------- ----- \nroot     norm+ \n")
    assert "gres|gpu|1001" in ok(acequia, "sacctmgr -nP show tres")
    assert ok(acequia, "sacctmgr -nP show account nosuch") == ""
    heading = ok(acequia, "sacctmgr -P show assoc").splitlines()[0]
    assert heading == ("Cluster|Account|User|Partition|Share|Priority|GrpJobs|GrpTRES|GrpSubmit|GrpWall|GrpTRESMins|"
                       "MaxJobs|MaxTRES|MaxTRESPerNode|MaxSubmit|MaxWall|MaxTRESMins|QOS|Def QOS|GrpTRESRunMins")
    r = acequia.run("sacctmgr show assoc format=nosuch")
    assert r.code == 1 and "Unknown field 'nosuch'" in r.err
    assert acequia.run("sacctmgr show users foo=bar").code == 1


def test_limits_in_the_configuration(acequia):
    """cluster-tools reads how long an array may be."""
    assert ok(acequia, "scontrol show config | sed -n '/^MaxArraySize/s/.*= *//p'").strip() == "1000000"
    assert "KillWait                = 30 sec" in ok(acequia, "scontrol show config")


def test_json_has_ended_jobs(acequia):
    """Dashboards read squeue --json alone, and learn from it how a job ended."""
    ok(acequia, "sbatch -W --wrap true", save="a")
    acequia.run("sbatch -W --wrap 'exit 3'", save="b")
    ids = {k: int(acequia.names[k]) for k in "ab"}
    acequia.names.clear()  # numbers as they are
    jobs = {j["job_id"]: j for j in json.loads(ok(acequia, "squeue --json"))["jobs"]}
    assert jobs[ids["a"]]["job_state"] == "COMPLETED"
    assert jobs[ids["b"]]["job_state"] == "FAILED" and jobs[ids["b"]]["exit_code"] == 3 << 8
    assert "\"RUNNING\"" not in ok(acequia, "squeue --json -t PD")
    node = json.loads(ok(acequia, "sinfo --json"))["nodes"][0]
    assert {"cpu_load", "alloc_cpus", "idle_cpus", "tres_used", "tres_weighted", "gres_drained", "last_busy", "port",
            "owner", "cpu_binding", "next_state_after_reboot", "next_state_after_reboot_flags"} <= set(node)
    job = json.loads(ok(acequia, f"sacct --json -j {ids['b']}"))["jobs"][0]
    assert {"het", "mcs", "reservation", "wckey"} <= set(job) and job["array"]["limits"]["max"]["running"]["tasks"] == 0
    assert {"CPU", "statistics", "task"} <= set(job["steps"][0])
    assert job["steps"][0]["tres"]["consumed"] == {"max": [], "min": [], "average": [], "total": []}


def test_exporters(acequia):
    """prometheus-slurm-exporter (vpenso, rivosinc) and slurm_exporter: values begin with a blank, or are JSON."""
    ok(acequia, "sbatch --parsable -c 2 --mem=100M --wrap 'sleep 60'", save="r")
    ok(acequia, "for i in $(seq 100); do [ \"$(squeue -h -j {r} -o %t)\" = R ] && break; sleep 0.1; done")
    assert ok(acequia, "squeue -a -r -h '-o %A|%u|%T|%C' --states=all").splitlines()[0].startswith(" ")
    assert " <r>|root|RUNNING|2\n" in ok(acequia, "squeue -a -r -h '-o %A|%u|%T|%C' --states=all")
    assert ok(acequia, "sinfo -h '-o %C'") == " 2/126/0/128\n"
    assert ok(acequia, "sinfo -h -o%R,%C") == "main,2/126/0/128\n"
    rows = ok(acequia, "sinfo -h -N -O NodeList,AllocMem,Memory,CPUsState,StateLong").splitlines()
    assert rows[0].split() == ["n1", "100", "20000", "2/62/0/64", "mixed"]
    assert ok(acequia, "sinfo -h -o '%R|%D|%T|%b'") == "main|1|mixed|(null)\nmain|1|idle|(null)\n"
    line = ok(acequia, """squeue --states=R -h -r -o '{"a": "%a", "id": "%A", "end_time": "%e", "u": "%u", """
              """"state": "%T", "p": "%P", "cpu": %C, "mem": "%m", "array_id": "%K", "r": "%R"}'""")
    assert json.loads(line.splitlines()[0])["mem"] == "100M"
    line = ok(acequia, """sinfo -h -o '{"s": "%T", "mem": %m, "n": "%n", "l": "%O", "p": "%R", "fmem": "%e", """
              """"cstate": "%C", "w": %w}'""")
    assert json.loads(line.splitlines()[0])["n"] == "n1"
    names = "JobID:|,Account:|,UserName:|,Partition:|,State:|,NumNodes:|,NumCPUs:|,tres-alloc:"
    assert "<r>|default|root|main|RUNNING|1|2|cpu=2,mem=100M," in ok(acequia, f"squeue -a -r -h -O '{names}'")
    rows = ok(acequia, "sinfo -a -h '--Format=Nodes: ,StateLong: ,Gres: ,GresUsed:'").split()
    assert rows[:2] == ["1", "mixed"]
    assert ok(acequia, "sshare -n -P -o account,fairshare").splitlines()[1].split("|")[0].strip() == "default"
    assert ok(acequia, "sacct -a -X --format=Allocgres --state=RUNNING --noheader --parsable2").strip() == ""
    assert "Last cycle:" in ok(acequia, "sdiag") and ok(acequia, "scontrol show licenses -o") is not None
    ok(acequia, "scancel {r}")


def test_states_as_clients_ask(acequia):
    """nextflow, toil, batchspawner, cylc: what they poll with, while a job runs and when it is gone."""
    ok(acequia, "sbatch --parsable -J 'nf-slow_(1)' --wrap 'sleep 60'", save="n")
    ok(acequia, "for i in $(seq 100); do [ \"$(squeue -h -j {n} -o %t)\" = R ] && break; sleep 0.1; done")
    assert "<n> R\n" in ok(acequia, "squeue --noheader -o '%i %t' -t all -p main -u root")
    assert ok(acequia, "squeue -h -j {n} -o '%T %B'") == "RUNNING n1\n"
    assert "JobState=RUNNING" in ok(acequia, "scontrol show job")
    assert "<n>|RUNNING|0:0" in ok(acequia, "sacct -n -j {n},999999 --format JobIDRaw,State,ExitCode -P "
                                            "-S 2020-01-01T00:00:00 -E 2040-01-02T00:00:00")
    assert ok(acequia, "sinfo -a -o '%P %G %l %p %c %m'").splitlines()[1].split()[0] == "main*"
    ok(acequia, "scancel {n}")
    acequia.wait("n")
    assert ok(acequia, "squeue -h -j {n} -o '%T %B'") == ""
    assert "<n> CA\n" in ok(acequia, "squeue --noheader -o '%i %t' -t all -p main -u root")
    # aiida asks for one id twice, and for every field there is
    fields = ",".join(ok(acequia, "sacct --helpformat").split())
    rows = ok(acequia, f"sacct --format={fields}, --parsable --jobs={{n}}").splitlines()
    assert rows[0].count("|") == rows[1].count("|") == fields.count(",") + 1
    assert ok(acequia, "squeue --noheader -o '%i^^^%t^^^%r^^^%B^^^%u' --jobs={n},{n}") == ""


def test_names_of_newer_releases(acequia):
    """Open OnDemand 4 asks for ExcNodes, which came after 22.05; a name left out would move all columns."""
    ok(acequia, "sbatch -H --parsable -x n2 --wrap true", save="x")
    line = ok(acequia, "squeue --all --states=all --noconvert -h -O 'JobID:\x1f,ExcNodes:\x1f,WorkDir:\x1f,' -j {x}")
    assert line.split("\x1f") == ["<x>", "n2", "<work>", "\n"]
    assert ok(acequia, "squeue -h -O 'cpuspertask:5,shared:5' -j {x}").split() == ["1", "OK"]
    ok(acequia, "scancel {x}")


def test_requeue_is_told(acequia):
    """Lightning and submitit ask for a requeue themselves; the output says why the job was ended."""
    ok(acequia, "sbatch --parsable --requeue -o again.out --open-mode=append "
                "--wrap 'echo $SLURM_RESTART_COUNT; sleep 60'", save="z")
    ok(acequia, "for i in $(seq 100); do [ -s again.out ] && break; sleep 0.1; done")
    ok(acequia, "scontrol requeue {z}")
    ok(acequia, "for i in $(seq 100); do grep -q '^1$' again.out && break; sleep 0.1; done")
    ok(acequia, "scancel {z}")
    text = ok(acequia, "cat again.out")
    assert "*** JOB <z> ON n1 CANCELLED AT <time> DUE TO JOB REQUEUE ***" in text and "\n1\n" in text


def test_gpus_as_monitors_read_them():
    """slurm_gpustat takes the model from JOB_GRES; slurm_exporter counts from sinfo."""
    side = AcequiaSide(config=CONFIG.replace("[node *]\n", "[node *]\ngpus = a100:4:40G\ngpus_simulated = true\n"))
    try:
        ok(side, "sbatch --parsable -N 2 --gpus-per-node=1 --wrap 'sleep 60'", save="g")
        ok(side, "for i in $(seq 100); do [ \"$(squeue -h -j {g} -o %t)\" = R ] && break; sleep 0.1; done")
        text = ok(side, "scontrol show jobid -dd {g}")
        assert "JOB_GRES=gpu:a100:2\n" in text and text.count(" GRES=gpu:a100:1(IDX:0)\n") == 2
        assert ok(side, "squeue -O tres-per-node:100,nodelist:100,username:100,jobid:100 --noheader").split() == [
            "gres:gpu:1", "n[1-2]", "root", "<g>"]
        assert ok(side, "sinfo -o '%1000N|%1000G' --noheader").replace(" ", "") == "n[1-2]|gpu:a100:4\n"
        rows = ok(side, "sinfo -a -h '--Format=Nodes: ,StateLong: ,Gres: ,GresUsed:'").splitlines()
        assert rows[0].split() == ["2", "mixed", "gpu:a100:4", "gpu:a100:1"]
        ok(side, "scancel {g}")
    finally:
        side.close()


def test_efficiency_of_a_job(acequia):
    """seff, the script that comes with Slurm: of a job that has ended, one that runs, one that waits, none."""
    ok(acequia, "sbatch -W --parsable -n1 -c2 --mem=100M --wrap 'python3 -c \"sum(range(10**7))\"'", save="e")
    lines = ok(acequia, "seff {e}").splitlines()
    words = [line.split(":")[0] for line in lines]
    assert words == ["Job ID", "Cluster", "User/Group", "State", "Nodes", "Cores per node", "CPU Utilized",
                     "CPU Efficiency", "Job Wall-clock time", "Memory Utilized", "Memory Efficiency"]
    assert lines[2] == "User/Group: root/root" and lines[3] == "State: COMPLETED (exit code 0)"
    assert lines[5] == "Cores per node: 2" and lines[10].endswith("% of 100.00 MB (100.00 MB/node)")
    ok(acequia, "sbatch --parsable -H --wrap true", save="w")
    assert ok(acequia, "seff {w}").endswith("Efficiency not available for jobs in the PENDING state.\n")
    ok(acequia, "scancel {w}")
    assert acequia.run("seff 999999").err == "seff: error: Job not found.\n"
    assert "give the id of a job" in acequia.run("seff").err


def test_invalid_dependencies_are_cancelled_when_asked(acequia):
    """snakemake, nextflow: --kill-on-invalid-dep=yes."""
    ok(acequia, "sbatch --parsable --wrap 'sleep 1; exit 3'", save="f")
    ok(acequia, "sbatch --parsable --kill-on-invalid-dep=yes -d afterok:{f} --wrap true", save="k")
    ok(acequia, "sbatch --parsable --kill-on-invalid-dep=no -d afterok:{f} --wrap true", save="s")
    ok(acequia, "for i in $(seq 300); do [ -z \"$(squeue -h -j {k} -o %t)\" ] && break; sleep 0.1; done")
    assert ok(acequia, "sacct -X -n -P -o state -j {k}") == "CANCELLED\n"
    assert ok(acequia, "squeue -h -j {s} -o '%t %r'") == "PD DependencyNeverSatisfied\n"
    ok(acequia, "scancel {s}")


def test_programs_around_tasks(acequia):
    """Scripts of sites: --task-prolog changes the task's environment, --task-epilog sees its end."""
    for name, text in (("before.sh", "echo export COLOUR='a b'; echo unset GONE; echo print hello; echo noise"),
                       ("after.sh", "echo after $SLURM_PROCID"), ("here.sh", "echo $1here")):
        with open(f"{acequia.work}/{name}", "w", encoding="utf-8") as f:
            f.write(f"#!/bin/sh\n{text}\n")
        os.chmod(f"{acequia.work}/{name}", 0o755)
    out = ok(acequia, "GONE=1 srun --task-prolog=./before.sh --task-epilog=./after.sh sh -c 'echo $COLOUR,$GONE,$0 x' y")
    assert out == "hello\na b,,y x\nafter 0\n"
    assert ok(acequia, "srun --prolog=./here.sh --epilog=./here.sh echo task") == "here\ntask\nhere\n"
    assert acequia.run("srun --task-epilog=./after.sh sh -c 'kill -9 $$'").code == 128 + 9
    assert acequia.run("srun --task-prolog=./nosuch.sh true").code == 127
    assert ok(acequia, "SLURM_TASK_EPILOG=./after.sh srun -n2 true").splitlines() and True


def test_files_are_copied_to_nodes(acequia):
    """sbcast and srun --bcast."""
    with open(f"{acequia.work}/data.bin", "wb") as f:
        f.write(os.urandom(3_000_000))
    line = "sbcast {0} data.bin {1}; srun -N2 --ntasks-per-node=1 sha256sum {1}"
    target = f"{acequia.work}/copied-$SLURM_JOB_ID"
    out = ok(acequia, f"salloc -Q -N2 sh -c '{line.format('', target)}'; sha256sum data.bin")
    sums = [row.split()[0] for row in out.splitlines()]
    assert len(sums) == 3 and len(set(sums)) == 1
    r = acequia.run("salloc -Q -N1 sh -c 'sbcast data.bin data.bin'")
    assert r.code == 1 and "File exists; --force replaces it" in r.err
    out = ok(acequia, "salloc -Q -N2 srun -N2 --bcast=$PWD/own-echo /bin/echo copied")
    assert out == "copied\ncopied\n"
    assert "use it inside one" in acequia.run("srun --bcast /bin/true").err
    assert "use it inside one" in acequia.run("sbcast data.bin /tmp/x").err
    assert "it is not a file" in acequia.run("salloc -Q -N1 sbcast . /tmp/x").err


def test_least_cpus(acequia):
    """--mincpus gives each node at least so many CPUs."""
    assert ok(acequia, "srun --mincpus=2 sh -c 'echo $SLURM_CPUS_ON_NODE'") == "2\n"
    assert ok(acequia, "salloc -Q -n1 srun --mincpus=9 echo step") == "step\n"
    assert acequia.run("srun --mincpus=x true").code == 1
