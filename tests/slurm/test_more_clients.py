"""More clients made for Slurm, unmodified: AiiDA, Toil, Cylc, ipyparallel, executorlib, hydra's launcher,
cluster-tools, Lightning, nextflow. Where one is not installed its test is left out; $CLIENTS_PYTHON names Pythons
that have them."""
import glob
import os
import subprocess
import textwrap

import pytest

from tests.lab.proc import wait_until

from .client_run import environment, python_with, run
from .sides import AcequiaSide

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def acequia():
    side = AcequiaSide(default_memory="400M")
    yield side
    side.close()


def test_aiida(acequia):
    """Calculations through its Slurm scheduler plugin: one that ends well with srun, one that fails."""
    python = python_with("aiida")
    env = dict(environment(acequia, python), AIIDA_PATH=acequia.work)
    subprocess.run([f"{os.path.dirname(python)}/verdi", "presto", "-p", "p"], env=env, cwd=acequia.work, check=True,
                   capture_output=True, timeout=120)
    acequia.env["AIIDA_PATH"] = acequia.work
    out = run(acequia, python, """
        import os
        from aiida import engine, load_profile, orm
        load_profile()
        computer = orm.Computer(label="c", hostname="localhost", transport_type="core.local",
                                scheduler_type="core.slurm", workdir=os.getcwd() + "/aiida-work").store()
        computer.set_minimum_job_poll_interval(1)
        computer.set_mpirun_command(["srun", "-n", "{tot_num_mpiprocs}"])
        computer.configure(safe_interval=0.1, use_login_shell=False)
        code = orm.InstalledCode(label="bash", computer=computer, filepath_executable="/bin/bash",
                                 default_calc_job_plugin="core.arithmetic.add").store()
        def calculate(**options):
            b = code.get_builder()
            b.x, b.y = orm.Int(3), orm.Int(4)
            for k, v in dict(resources={"num_machines": 1, "num_mpiprocs_per_machine": 1}, queue_name="main",
                             account="default", max_wallclock_seconds=120, max_memory_kb=50000, **options).items():
                b.metadata.options[k] = v
            result, node = engine.run_get_node(b)
            info = node.get_detailed_job_info()
            state = dict(zip(*(x.split("|") for x in info["stdout"].splitlines()[:2])))["State"]
            print(node.exit_status, int(result["sum"]) if "sum" in result else None, state)
        calculate(withmpi=True)
        calculate(prepend_text="exit 3")
        """)
    assert out.splitlines() == ["0 7 COMPLETED", "310 None FAILED"]


def test_toil(acequia):
    """Children, a follow-on, and a job that dies once and is tried again."""
    python = python_with("toil")
    path = f"{acequia.work}/flow.py"
    with open(path, "w", encoding="utf-8") as f:
        f.write(textwrap.dedent("""
            import os
            from toil.common import Toil
            from toil.job import Job
            SMALL = dict(memory="100M", cores=1, disk="10M")
            def leaf(job, x):
                return x * x
            def total(job, xs):
                return sum(xs)
            def flaky(job):
                died = os.path.dirname(os.path.abspath(__file__)) + "/died"
                if not os.path.exists(died):
                    open(died, "w").close()
                    os._exit(9)
                return "second"
            def root(job):
                leaves = [job.addChildJobFn(leaf, i, **SMALL) for i in range(3)]
                end = job.addFollowOnJobFn(total, [x.rv() for x in leaves], **SMALL)
                return end.rv(), end.addFollowOnJobFn(flaky, **SMALL).rv()
            if __name__ == "__main__":
                with Toil(Job.Runner.getDefaultArgumentParser().parse_args()) as t:
                    print("result", t.start(Job.wrapJobFn(root, **SMALL)))
            """))
    done = subprocess.run([python, path, f"file:{acequia.work}/store", "--batchSystem", "slurm", "--retryCount", "2",
                           "--statePollingWait", "1", "--slurmDefaultAllMem=False", "--workDir", acequia.work,
                           "--coordinationDir", acequia.work],
                          env=environment(acequia, python), cwd=acequia.work, capture_output=True, text=True,
                          timeout=150, check=False)
    assert "result (5, 'second')" in done.stdout, done.stdout + done.stderr


def test_cylc(acequia):
    """Tasks that succeed, fail, and are killed; jobs report from below HOME."""
    python = python_with("cylc.flow")
    env = dict(environment(acequia, python), CYLC_CONF_PATH=f"{acequia.work}/cylc-conf")
    for folder in ("cylc-conf", "cylc-flow"):
        os.makedirs(f"{acequia.work}/{folder}")
    with open(f"{acequia.work}/.bash_profile", "w", encoding="utf-8") as f:  # its jobs are login shells
        f.write(f"export PATH={env['PATH']}\n")
    with open(f"{acequia.work}/cylc-conf/global.cylc", "w", encoding="utf-8") as f:
        f.write("[scheduler]\n[[run hosts]]\navailable = localhost\n[platforms]\n[[lab]]\nhosts = localhost\n"
                "job runner = slurm\ninstall target = localhost\nsubmission polling intervals = PT2S\n"
                "execution polling intervals = PT2S\n")
    with open(f"{acequia.work}/cylc-flow/flow.cylc", "w", encoding="utf-8") as f:
        f.write("[scheduling]\n[[graph]]\nR1 = \"\"\"\nprep => work & bad? & victim?\n"
                "work & bad:fail? & victim:fail? => end\n\"\"\"\n"
                "[runtime]\n[[root]]\nplatform = lab\nexecution time limit = PT5M\n[[[directives]]]\n--mem = 50M\n"
                "[[prep, work, end]]\nscript = true\n[[bad]]\nscript = exit 4\n[[victim]]\nscript = sleep 100\n")
    cylc = f"{os.path.dirname(python)}/cylc"
    with open(f"{acequia.work}/cylc.log", "w", encoding="utf-8") as log:
        with subprocess.Popen([cylc, "vip", "--no-detach", "./cylc-flow"], env=env, cwd=acequia.work, stdout=log,
                              stderr=log) as child:
            try:
                wait_until(lambda: "victim.1" in acequia.run("squeue -h -t R -o %j").out, 60,
                           lambda: "victim does not run:\n" + open(f"{acequia.work}/cylc.log", encoding="utf-8").read())
                subprocess.run([cylc, "kill", "cylc-flow//1/victim"], env=env, cwd=acequia.work, check=True,
                               capture_output=True, timeout=60)
                assert child.wait(timeout=90) == 0
            finally:
                child.kill()
    with open(f"{acequia.work}/cylc.log", encoding="utf-8") as f:
        text = f.read()
    assert "[1/end/01:running] => succeeded" in text and "[1/bad/01:running] => failed" in text


def test_ipyparallel(acequia):
    """Three engines started by one sbatch and one srun."""
    out = run(acequia, python_with("ipyparallel"), """
        import os, ipyparallel as ipp
        if __name__ == "__main__":
            c = ipp.Cluster(engines="slurm", n=3, profile_dir=os.getcwd() + "/ipp", controller_ip="127.0.0.1",
                            engine_timeout=60)
            c.config.SlurmEngineSetLauncher.queue = "main"
            rc = c.start_and_connect_sync()
            ranks = sorted(rc[:].apply_sync(lambda: __import__("os").environ["SLURM_PROCID"]))
            print(ranks, sum(rc[:].map_sync(lambda x: x * x, range(10))))
            rc.close()
            c.stop_cluster_sync()
        """)
    assert out.splitlines()[-1] == "['0', '1', '2'] 285"
    wait_until(lambda: not acequia.run("squeue -h -o %j").out.strip(), 30, "the engines stay")


def test_executorlib(acequia):
    """Functions whose results go into one another: the ids of both jobs stand behind one afterok."""
    out = run(acequia, python_with("executorlib.executor.slurm, pysqa, h5py"), """
        import os
        from executorlib import SlurmClusterExecutor
        def add(a, b):
            return a + b
        resources = {"cores": 1, "cwd": os.getcwd(), "partition": "main"}
        with SlurmClusterExecutor(cache_directory="exl", resource_dict=resources) as ex:
            fs = [ex.submit(add, i, 1) for i in range(2)]
            d = ex.submit(add, fs[0], fs[1])
            print([f.result() for f in fs], d.result())
        """)
    assert "[1, 2] 3" in out


def test_hydra_launcher(acequia):
    """A sweep as an array; the folder of its output is made after the submit."""
    python = python_with("hydra_plugins.hydra_submitit_launcher")
    with open(f"{acequia.work}/app.py", "w", encoding="utf-8") as f:
        f.write(textwrap.dedent("""
            import os, hydra
            from hydra.core.config_store import ConfigStore
            ConfigStore.instance().store(name="c", node={"x": 1})
            @hydra.main(version_base=None, config_path=None, config_name="c")
            def main(cfg):
                with open(f"res-{cfg.x}", "w") as f:
                    f.write(os.environ["SLURM_ARRAY_TASK_ID"])
            main()
            """))
    subprocess.run([python, "app.py", "-m", "x=1,2,3", "hydra/launcher=submitit_slurm", "hydra.sweep.dir=sweep",
                    "hydra.launcher.partition=main", "hydra.launcher.timeout_min=2", "hydra.launcher.mem_gb=1",
                    "hydra.launcher.cpus_per_task=1", "hydra.launcher.array_parallelism=2"],
                   env=environment(acequia, python), cwd=acequia.work, check=True, timeout=120)
    assert [open(f"{acequia.work}/res-{i}", encoding="utf-8").read() for i in (1, 2, 3)] == ["0", "1", "2"]


def test_cluster_tools(acequia):
    """Arrays, after it asked for the longest one allowed; an error that comes back."""
    with open(f"{acequia.work}/work_functions.py", "w", encoding="utf-8") as f:
        f.write("def square(x):\n    return x * x\n\n\ndef bad():\n    return 1 / 0\n")
    acequia.env["PYTHONPATH"] = acequia.work
    out = run(acequia, python_with("cluster_tools"), """
        import cluster_tools
        from work_functions import bad, square
        with cluster_tools.get_executor("slurm", job_resources={"mem": "200M", "time": "00:02:00"}) as ex:
            print([f.result() for f in ex.map_to_futures(square, [1, 2, 3])])
            try:
                ex.submit(bad).result()
            except Exception as e:
                print(type(e).__name__)
        """)
    del acequia.env["PYTHONPATH"]
    assert out.splitlines()[-2:] == ["[1, 4, 9]", "RemoteException"]


def test_lightning(acequia):
    """USR1 before the end: it saves itself, asks for a requeue and goes on where it was."""
    python = python_with("lightning")
    with open(f"{acequia.work}/train.py", "w", encoding="utf-8") as f:
        f.write(textwrap.dedent("""
            import signal, time, torch, lightning as L
            from lightning.pytorch.plugins.environments import SLURMEnvironment
            class Model(L.LightningModule):
                def __init__(self):
                    super().__init__()
                    self.layer = torch.nn.Linear(4, 1)
                def training_step(self, batch, i):
                    time.sleep(0.05)
                    return self.layer(batch).sum()
                def configure_optimizers(self):
                    return torch.optim.SGD(self.parameters(), 0.01)
            class Tell(L.Callback):
                def on_train_start(self, trainer, model):
                    print("start", trainer.global_step, flush=True)
                def on_train_end(self, trainer, model):
                    print("end", trainer.global_step, flush=True)
            L.Trainer(max_steps=120, accelerator="cpu", devices=1, enable_progress_bar=False, callbacks=[Tell()],
                      logger=False, plugins=[SLURMEnvironment(requeue_signal=signal.SIGUSR1)]).fit(
                Model(), torch.utils.data.DataLoader(torch.randn(400, 4), batch_size=2))
            """))
    with open(f"{acequia.work}/train.sh", "w", encoding="utf-8") as f:
        f.write(f"#!/bin/bash\n#SBATCH --ntasks-per-node=1 --mem=1500M -o train.out --open-mode=append --requeue\n"
                f"export OMP_NUM_THREADS=1\nsrun {python} train.py\n")
    acequia.run("sbatch --parsable train.sh", save="t")
    seen = f"{acequia.work}/train.out"
    wait_until(lambda: os.path.exists(seen) and "start 0" in open(seen, encoding="utf-8").read(), 60,
               "it does not train")
    acequia.run("sleep 1.5; scancel --signal=USR1 {t}")
    acequia.wait("t")
    with open(seen, encoding="utf-8") as f:
        lines = [x for x in f.read().splitlines() if x.startswith(("start", "end"))]
    assert len(lines) == 3 and lines[0] == "start 0" and int(lines[1].split()[1]) > 0 and lines[2] == "end 120"


@pytest.mark.skipif(not os.environ.get("NEXTFLOW_CLASSPATH"), reason="name nextflow's jars in NEXTFLOW_CLASSPATH")
def test_nextflow(acequia):
    """A pipeline with a task that is tried again and one whose failure is ignored."""
    folder = f"{acequia.work}/nextflow"
    os.mkdir(folder)
    with open(f"{folder}/main.nf", "w", encoding="utf-8") as f:
        f.write("""
            process sq { time '5m'; memory '50 MB'
              input: val x
              output: stdout
              script: "echo \\$((${x}*${x}))" }
            process flaky { errorStrategy 'retry'; maxRetries 2
              output: stdout
              script: "[ ${task.attempt} = 2 ] && echo attempt ${task.attempt} || exit 7" }
            process bad { errorStrategy 'ignore'
              script: 'sleep 3; exit 5' }
            workflow { sq(Channel.of(1..4)).map { it.trim() as int }.sum().view(); flaky().view(); bad() }
            """)
    with open(f"{folder}/nextflow.config", "w", encoding="utf-8") as f:
        f.write("process.executor='slurm'\nprocess.queue='main'\nexecutor.pollInterval='1s'\n"
                "executor.queueStatInterval='1s'\n")
    opens = [f"--add-opens=java.base/{p}=ALL-UNNAMED" for p in
             ("java.lang", "java.io", "java.nio", "java.net", "java.util", "sun.nio.ch", "java.util.concurrent",
              "java.util.regex", "java.nio.file.spi")]
    env = dict(acequia.env, NXF_OFFLINE="true", NXF_PLUGINS_DEFAULT="false", NXF_HOME=f"{folder}/home",
               NXF_ANSI_LOG="false")
    program = ["java", "-cp", os.environ["NEXTFLOW_CLASSPATH"], *opens, "nextflow.cli.Launcher"]
    done = subprocess.run([*program, "run", "main.nf"], env=env, cwd=folder,
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\n30\n" in done.stdout and "attempt 2" in done.stdout
    assert "exit status (5) -- Error is ignored" in done.stdout
    assert glob.glob(f"{folder}/work/*/*/.exitcode")
