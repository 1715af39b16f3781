"""Clients made for Slurm, unmodified, against Acequia. They come from PyPI (submitit, dask-jobqueue, parsl,
psij-python, snakemake-executor-plugin-slurm, qtoolkit, simple-slurm); where they are not installed these tests are left out. Open OnDemand's calls are made as its adapter makes
them."""
import os
import subprocess

import pytest

from tests.lab.proc import wait_until

from .client_run import python_with, run
from .sides import AcequiaSide


@pytest.fixture(scope="module")
def acequia():
    side = AcequiaSide()
    yield side
    side.close()


def test_submitit(acequia):
    """Jobs, arrays, several tasks, an error that comes back."""
    out = run(acequia, python_with("submitit"), """
        import submitit
        def add(a, b):
            return a + b
        def where():
            e = submitit.JobEnvironment()
            return (e.num_tasks, e.global_rank, e.num_nodes, len(e.hostnames))
        ex = submitit.AutoExecutor(folder="log", cluster="slurm")
        ex.update_parameters(timeout_min=2, slurm_partition="main", cpus_per_task=1, mem_gb=0.1)
        print(ex.submit(add, 5, 7).result())
        print([j.result() for j in ex.map_array(add, [1, 2, 3], [10, 20, 30])])
        ex.update_parameters(tasks_per_node=2)
        print(ex.submit(where).results())
        ex.update_parameters(tasks_per_node=1)
        try:
            ex.submit(lambda: 1 / 0).result()
        except Exception as e:
            print(type(e).__name__)
        """)
    assert out.split("\n")[:4] == ["12", "[11, 22, 33]", "[(2, 0, 1, 1), (2, 1, 1, 1)]", "FailedJobError"]


@pytest.mark.long
def test_submitit_checkpoint(acequia):
    """USR2 before the time limit: the job saves itself, is queued again and goes on."""
    out = run(acequia, python_with("submitit"), """
        import os, time, submitit
        class Counting(submitit.helpers.Checkpointable):
            def __call__(self, path):
                n = os.path.getsize(path) if os.path.exists(path) else 0
                with open(path, "a") as f:
                    f.write("x")
                if n == 0:
                    time.sleep(60)
                return n
        ex = submitit.AutoExecutor(folder="log2", cluster="slurm")
        ex.update_parameters(timeout_min=2, slurm_partition="main", mem_gb=0.1)
        job = ex.submit(Counting(), os.path.abspath("count"))
        while job.state != "RUNNING" or not os.path.exists("count"):
            time.sleep(0.3)
        job._interrupt(timeout=True)
        print(job.result())
        """)
    assert out.strip() == "1"


@pytest.mark.long
def test_dask_jobqueue(acequia):
    """A cluster of workers that grows and shrinks."""
    out = run(acequia, python_with("dask_jobqueue"), """
        import time, dask_jobqueue
        from dask.distributed import Client
        if __name__ == "__main__":
            c = dask_jobqueue.SLURMCluster(queue="main", cores=1, processes=1, memory="300MB", walltime="00:05:00", interface="lo",
                                           log_directory="dask", worker_extra_args=["--no-nanny"])
            c.scale(2)
            client = Client(c)
            client.wait_for_workers(2, timeout=90)
            print(sum(client.gather(client.map(lambda x: x * x, range(20)))))
            c.scale(1)
            for _ in range(100):
                if len(client.scheduler_info()["workers"]) == 1:
                    break
                time.sleep(0.2)
            print(len(client.scheduler_info()["workers"]))
            client.close()
            c.close()
        """)
    assert out.split() == ["2470", "1"]


OOD_FIELDS = "aAbBcCdDeEfFgGhHiIjJkKlLmMnNoOqPQrStTuUvVwWxXyYzZ"


def test_open_ondemand_calls(acequia):
    """What the ood_core adapter calls, and what it reads."""
    side = acequia
    cluster = "acequia"
    script = "#!/bin/bash\nsleep 30\n"
    r = side.run(f"sbatch -M {cluster} -D {side.work} -J ood -o ood.out -t 00:10:00 -p main -A default --export NONE --parsable --requeue -H",
                 stdin=script)
    number, name = r.out.strip().split(";")
    assert r.code == 0 and name == cluster and number.isdigit()
    fields = ";".join(f"%{c}" for c in OOD_FIELDS)
    r = side.run(f"squeue -M {cluster} --all --states=all --noconvert -o '{fields}' -j {number}")
    lines = r.out.splitlines()
    assert lines[0] == f"CLUSTER: {cluster}" and lines[2].count(";") == lines[1].count(";") == len(OOD_FIELDS) - 1
    names = "Account,ArrayJobID,ArrayTaskID,BatchHost,Comment,Dependency,EndTime,JobID,Name,NodeList,NumCPUs,Partition,Reason,StartTime,State,TimeLimit,UserName,tres-per-node"
    spec = ",".join(f"{n}:\x1f" for n in names.split(","))
    r = side.run(f"squeue --all --states=all --noconvert -O '{spec}' -j {number}")
    values = r.out.splitlines()[1].split("\x1f")
    assert values[7] == number and values[14] == "PENDING" and values[12] == "JobHeldUser"
    assert side.run(f"scontrol release {number} -M {cluster}").code == 0
    assert side.run("sinfo -aho %F/%C").out.count("/") == 7
    assert "PartitionName=main" in side.run("scontrol show part -o").out
    assert side.run("sacctmgr -nP show users withassoc format=account,qos where user=root").out.startswith("default|")
    assert side.run(f"scontrol hold {number}").code in (0, 1)
    assert side.run(f"scancel {number}").code == 0
    side.names["ood"] = number
    side.wait("ood")
    r = side.run(f"sacct -P --delimiter \x1f -n --units G --allocations -j {number} -o User,Group,JobId,JobName,State,ExitCode,Timelimit,ReqMem")
    assert r.out.split("\x1f")[4].startswith("CANCELLED")
    r = side.run("squeue -j 999999")
    assert r.code == 1 and "Invalid job id specified" in r.err


def test_long_history(acequia):
    """Many cancelled jobs in one list: their rows come and go."""
    acequia.run("sbatch -H -a 1-3000 --wrap true", save="many")
    assert acequia.run("scancel {many}").code == 0
    r = acequia.run("sacct -n -P -a --array -s CA -S now-1hour -E now -o jobid,state")
    assert r.code == 0 and r.out.count("CANCELLED by 0\n") >= 3000


@pytest.mark.long
def test_parsl(acequia):
    """A block of two nodes whose workers are started with srun, asked for with squeue."""
    out = run(acequia, python_with("parsl"), """
        import parsl
        from parsl.config import Config
        from parsl.executors import HighThroughputExecutor
        from parsl.launchers import SrunLauncher
        from parsl.providers import SlurmProvider
        if __name__ == "__main__":
            parsl.load(Config(run_dir="parsl", executors=[HighThroughputExecutor(label="s", address="127.0.0.1", max_workers_per_node=1,
                provider=SlurmProvider(partition="main", nodes_per_block=2, init_blocks=1, max_blocks=1, walltime="00:05:00", cmd_timeout=30,
                                       launcher=SrunLauncher(), cores_per_node=1, mem_per_node=1, exclusive=False))]))
            @parsl.python_app
            def where():
                import os, time
                time.sleep(1)
                return os.environ.get("SLURMD_NODENAME")
            print(sorted(set(f.result(timeout=100) for f in [where() for _ in range(6)])))
            parsl.dfk().cleanup()
        """)
    assert "['n1', 'n2']" in out


@pytest.mark.long
def test_psij(acequia):
    """States, exit codes and cancelling through squeue and scancel."""
    out = run(acequia, python_with("psij"), """
        import datetime, time
        from psij import Job, JobAttributes, JobExecutor, JobSpec, ResourceSpecV1
        ex = JobExecutor.get_instance("slurm")
        ex.config.queue_polling_interval, ex.config.initial_queue_polling_delay = 2, 1
        def end(executable, args, **kw):
            job = Job(JobSpec(executable=executable, arguments=args, attributes=JobAttributes(queue_name="main", duration=datetime.timedelta(minutes=5)), **kw))
            ex.submit(job)
            s = job.wait(timeout=datetime.timedelta(seconds=60))
            print(s.state.name, s.exit_code)
        end("/bin/true", [])
        end("/bin/sh", ["-c", "exit 3"])
        end("/bin/hostname", [], resources=ResourceSpecV1(node_count=2, processes_per_node=1), launcher="srun")
        job = Job(JobSpec(executable="/bin/sleep", arguments=["60"], attributes=JobAttributes(queue_name="main")))
        ex.submit(job)
        time.sleep(3)
        job.cancel()
        print(job.wait(timeout=datetime.timedelta(seconds=30)).state.name)
        """)
    assert out.split("\n")[:4] == ["COMPLETED 0", "FAILED 3", "COMPLETED 0", "CANCELED"]


@pytest.mark.long
def test_snakemake(acequia):
    """The executor plugin: sbatch --parsable --wrap, sacct for states."""
    python = python_with("snakemake_executor_plugin_slurm")
    rule = 'resources: mem_mb=400, runtime=5, slurm_partition="main", slurm_account="default"'
    with open(f"{acequia.work}/Snakefile", "w", encoding="utf-8") as f:
        f.write(f'rule c:\n    input: "a.txt"\n    output: "c.txt"\n    {rule}\n    shell: "cat {{input}} > {{output}}"\n'
                f'rule a:\n    output: "a.txt"\n    {rule}\n    shell: "echo made > {{output}}"\n')
    done = subprocess.run([os.path.join(os.path.dirname(python), "snakemake"), "--executor", "slurm", "--jobs", "2", "--latency-wait", "5",
                           "--default-resources", "slurm_account=default"],
                          env=dict(acequia.env, PATH=f"{os.path.dirname(python)}:{acequia.env['PATH']}"), cwd=acequia.work, capture_output=True, text=True,
                          timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    with open(f"{acequia.work}/c.txt", encoding="utf-8") as f:
        assert f.read() == "made\n"


def test_qtoolkit(acequia):
    """What jobflow-remote reads: submit, lists, one job, cancelling."""
    out = run(acequia, python_with("qtoolkit"), """
        import subprocess
        from qtoolkit.core.data_objects import QResources
        from qtoolkit.io.slurm import SlurmIO
        io = SlurmIO()
        def ask(command, parse):
            p = subprocess.run(command, shell=True, capture_output=True, text=True)
            return parse(p.returncode, p.stdout, p.stderr)
        with open("qt.sh", "w") as f:
            f.write(io.get_submission_script(["sleep 20"], QResources(queue_name="main", job_name="qt", processes=1, time_limit=300, memory_per_thread=20)))
        job = ask(io.get_submit_cmd("qt.sh"), io.parse_submit_output).job_id
        print(len(ask(io.get_jobs_list_cmd([job], None), io.parse_jobs_list_output)))
        print(ask(io.get_job_cmd(job), io.parse_job_output).queue_name)
        print(ask(io.get_cancel_cmd(job), io.parse_cancel_output).status.name)
        """)
    assert out.split() == ["1", "main", "SUCCESSFUL"]


def test_simple_slurm(acequia):
    """Submit, look at the queue, cancel. Its list takes no arrays, under Slurm neither: an id must be a number."""
    out = run(acequia, python_with("simple_slurm"), """
        from simple_slurm import Slurm
        s = Slurm(job_name="simple", ntasks=1, hold=True, output="simple-%j.out")
        job = s.sbatch("sleep 60")
        s.squeue.update_squeue()
        row = s.squeue.jobs[job]
        print(row["NAME"], row["ST"], row["NODELIST(REASON)"], len(s.squeue.get_filtered_jobs("simple")))
        s.scancel.cancel_job(job)
        s.squeue.update_squeue()
        print(job in s.squeue.jobs, Slurm(job_name="x").srun("echo hello"))
        """)
    assert "simple PD (JobHeldUser) 1\n" in out and "False 0\n" in out


def test_sattach(acequia):
    """Looking on at a step of a batch job: its output by task, its exit code; and who may not."""
    acequia.run("sbatch --parsable -n 2 -o at.out --wrap 'srun -n 2 sh -c \"for i in 1 2 3 4 5 6; do echo tick; sleep 0.3; done; exit 4\"'", save="at")
    wait_until(lambda: acequia.run("squeue -h -s {at}.0 -o %i").out.strip(), 20, "the step does not start")
    r = acequia.run("sattach -l {at}.0 < /dev/null")
    assert r.code == 4 and {x.split(":")[0] for x in r.out.splitlines()} == {"0", "1"} and r.out.count("tick") >= 2
    assert "Exited with exit code 4" in r.err
    r = acequia.run("sattach {at}.7")
    assert r.code == 1 and "Invalid job id specified" in r.err
    acequia.run("sbatch --parsable --wrap 'srun sleep 30'", save="own")
    wait_until(lambda: acequia.run("squeue -h -s {own}.0 -o %i").out.strip(), 20, "the step does not start")
    assert acequia.run("sattach {own}.0", user="nobody").code == 1
    assert acequia.run("timeout -s INT 1 sattach {own}.0 < /dev/null").code == 124  # the step goes on
    assert acequia.run("squeue -h -s {own}.0 -o %i").out.strip()
    acequia.run("scancel {own}")
