"""A real, private Slurm on this machine: Debian's packages, several nodes on loopback ports, all
files in a temporary folder. For benchmarks side by side and for comparing behaviour.

    with SlurmLab(nodes=4, tuned=True) as slurm:
        slurm.run("sbatch", "--wrap", "true")

Needs root (slurmd starts jobs as their users)."""
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time

from .proc import LabError, alive, end_child, free_ports, processes_naming, wait_until

PACKAGES = ["slurmctld", "slurmd", "slurm-client", "munge"]
DBD_PACKAGES = ["slurmdbd", "mariadb-server"]

# The best of a dozen that were tried for throughput.
TUNING = ("batch_sched_delay=0,sched_min_interval=10000,sched_interval=1,"
          "default_queue_depth=10000,partition_job_depth=0,bf_interval=1")

SLURM_CONF = """\
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmdPort={first_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType={proctrack}
TaskPlugin={task}
TmpFS={folder}/tmp/%n
JobAcctGatherType={gather}
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
PriorityType=priority/multifactor
GresTypes=gpu
ReturnToService=2
MaxJobCount=200000
MaxArraySize=50001
SlurmdParameters=config_overrides
SlurmdTimeout=300
InactiveLimit=0
{accounting}
{extra}
{nodes}
PartitionName=main Nodes=n[1-{count}] Default=YES MaxTime=INFINITE State=UP DefMemPerCPU=10
"""


def install(packages=None):
    """Installs what is missing with apt; harmless when everything is there."""
    wanted = [p for p in packages or PACKAGES
              if subprocess.run(["dpkg", "-s", p], capture_output=True, check=False).returncode]
    if not wanted:
        return
    env = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    command = ["apt-get", "install", "-y", "--no-install-recommends", *wanted]
    if subprocess.run(command, env=env, capture_output=True, check=False).returncode:
        subprocess.run(["apt-get", "update"], env=env, capture_output=True, check=False)
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LabError(f"apt-get install {' '.join(wanted)} failed: {done.stderr.strip()}")


class SlurmLab:
    """One Slurm cluster. `tuned` is the best throughput setting found; False is as shipped.
    `cgroup` turns on what real sites run: cgroup tracking and limits. `accounting` starts
    slurmdbd on a private MariaDB. `gpu_devices` makes GPUs that are character devices: only then does
    Slurm tell steps their numbers."""

    def __init__(self, nodes=4, tuned=True, cgroup=False, accounting=False, cpus=64, gpus=8,
                 extra="", gpu_type="", gpu_devices=False):
        self.gpu_devices = gpu_devices
        self.count, self.tuned, self.cgroup, self.accounting = nodes, tuned, cgroup, accounting
        self.cpus, self.gpus, self.extra, self.gpu_type = cpus, gpus, extra, gpu_type
        self.folder = None
        self.munged = self.ctld = self.dbd = self.mariadb = None
        self.slurmds = {}
        self.env = self.dbd_port = self.sql_port = None

    # --- up and down ---

    def __enter__(self):
        self.up()
        return self

    def __exit__(self, *_):
        self.down()

    def up(self):
        """Starts everything; returns when the nodes are idle."""
        if os.geteuid() != 0:
            raise LabError("a private Slurm needs root")
        install(PACKAGES + (DBD_PACKAGES if self.accounting else []))
        self.folder = tempfile.mkdtemp(prefix="slurm-lab-")
        os.chmod(self.folder, 0o755)
        self.env = dict(os.environ, SLURM_CONF=f"{self.folder}/slurm.conf")
        try:
            self._start_munge()
            self._write_config()
            if self.accounting:
                self._start_accounting()
            self.start_controller(clean=True)
            for i in range(1, self.count + 1):
                self.start_node(f"n{i}")
            self.wait_ready()
        except BaseException:
            self.down()
            raise

    def down(self):
        """Stops everything that was started here, by process id, and removes the folder."""
        if not self.folder:
            return
        self._end_running_jobs()
        for child in [*self.slurmds.values(), self.ctld, self.dbd, self.mariadb, self.munged]:
            if child:
                end_child(child)
        self.slurmds = {}
        self.ctld = self.dbd = self.mariadb = self.munged = None
        for pid in processes_naming(self.folder):  # step daemons and what they left
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder = None

    def _end_running_jobs(self):
        """Jobs do not end with their slurmd; those that only wait need no ending."""
        if not self.ctld or self.ctld.poll() is not None:
            return
        try:
            self.run("scancel", "--state=RUNNING", "--user=root", check=False, timeout=20)
            wait_until(lambda: not self.run("squeue", "-h", "-t", "R,CG", check=False,
                                            timeout=20).stdout, 10, "jobs do not end", 0.2)
        except (LabError, subprocess.TimeoutExpired):
            pass  # what is left is found by the folder it names

    def _spawn(self, *command, log):
        with open(f"{self.folder}/{log}", "ab") as out:
            return subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL, stdout=out,
                                    stderr=out, start_new_session=True)

    def _log_tail(self, name):
        try:
            with open(f"{self.folder}/{name}", encoding="utf-8", errors="replace") as f:
                return "".join(f.readlines()[-8:])
        except FileNotFoundError:
            return ""

    def _start_munge(self):
        folder = f"{self.folder}/munge"
        os.mkdir(folder, 0o711)
        with open(f"{folder}/key", "wb") as f:
            f.write(os.urandom(1024))
        os.chmod(f"{folder}/key", 0o400)
        user = pwd.getpwnam("munge")
        for path in (folder, f"{folder}/key"):
            os.chown(path, user.pw_uid, user.pw_gid)
        self.munged = self._spawn(
            "setpriv", "--reuid", "munge", "--regid", "munge", "--clear-groups", "munged",
            "--force", "--foreground", "--num-threads=4", f"--key-file={folder}/key",
            f"--socket={folder}/socket", f"--pid-file={folder}/pid",
            f"--log-file={folder}/log", f"--seed-file={folder}/seed", log="munged.out")
        wait_until(lambda: os.path.exists(f"{folder}/socket"), 10,
                   "munged does not open its socket")

    def _write_config(self):
        host = socket.gethostname().split(".")[0]
        ports = free_ports(self.count + 3)
        self.dbd_port, self.sql_port = ports[-2:]
        nodes = [f"NodeName=n{i} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[i]} "
                 f"CPUs={self.cpus} Boards=1 SocketsPerBoard=1 CoresPerSocket={self.cpus} "
                 f"ThreadsPerCore=1 RealMemory=20000 Gres=gpu:{self.gpu_type and self.gpu_type + ':'}{self.gpus} "
                 f"State=UNKNOWN"
                 for i in range(1, self.count + 1)]
        accounting = "AccountingStorageType=accounting_storage/none"
        if self.accounting:
            accounting = ("AccountingStorageType=accounting_storage/slurmdbd\n"
                          f"AccountingStorageHost=127.0.0.1\nAccountingStoragePort={self.dbd_port}\n"
                          f"AccountingStoragePass={self.folder}/munge/socket")
        extra = [f"SchedulerParameters={TUNING}"] if self.tuned else []
        extra.append(self.extra)
        text = SLURM_CONF.format(
            host=host, folder=self.folder, ctld_port=ports[0], first_port=ports[1],
            count=self.count, nodes="\n".join(nodes), accounting=accounting,
            extra="\n".join(extra),
            proctrack="proctrack/cgroup" if self.cgroup else "proctrack/pgid",
            task="task/cgroup,task/affinity" if self.cgroup else "task/none",
            gather="jobacct_gather/cgroup" if self.cgroup else "jobacct_gather/none")
        self._write("slurm.conf", text)
        for k in range(self.gpus):
            if self.gpu_devices:  # of a major number that nothing has
                os.mknod(f"{self.folder}/fakegpu{k}", stat.S_IFCHR | 0o666, os.makedev(240, k))
            else:
                self._write(f"fakegpu{k}", "")
        if self.gpus:
            self._write("gres.conf", f"NodeName=n[1-{self.count}] Name=gpu "
                                     f"{self.gpu_type and f'Type={self.gpu_type} '}"
                                     f"File={self.folder}/fakegpu[0-{self.gpus - 1}]\n")
        cgroup = "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n"
        if self.cgroup:
            cgroup += "ConstrainCores=yes\nConstrainRAMSpace=yes\n"
        self._write("cgroup.conf", cgroup)
        for name in ("state", "spool", "tmp"):
            os.mkdir(f"{self.folder}/{name}")
        for i in range(1, self.count + 1):
            os.mkdir(f"{self.folder}/spool/n{i}")
            os.mkdir(f"{self.folder}/tmp/n{i}")

    def _write(self, name, text):
        with open(f"{self.folder}/{name}", "w", encoding="utf-8") as f:
            f.write(text)

    # --- accounting ---

    def _start_accounting(self):
        data = f"{self.folder}/mariadb"
        socket_path = f"{self.folder}/mariadb.sock"
        subprocess.run(["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--user=root",
                        "--auth-root-authentication-method=normal", "--skip-test-db"],
                       check=True, capture_output=True, timeout=120)
        self.mariadb = self._spawn(
            "mariadbd", "--no-defaults", f"--datadir={data}", f"--socket={socket_path}",
            "--user=root", "--bind-address=127.0.0.1", f"--port={self.sql_port}",
            "--innodb-buffer-pool-size=512M",
            "--innodb-lock-wait-timeout=900", f"--pid-file={self.folder}/mariadb.pid",
            log="mariadb.log")
        wait_until(lambda: self.sql("SELECT 1", check=False).returncode == 0, 30,
                   "MariaDB does not answer")
        self.sql("CREATE DATABASE slurm_acct_db; CREATE USER slurm@'127.0.0.1' IDENTIFIED BY 'lab';"
                 "CREATE USER slurm@localhost IDENTIFIED BY 'lab';"
                 "GRANT ALL ON slurm_acct_db.* TO slurm@'127.0.0.1';"
                 "GRANT ALL ON slurm_acct_db.* TO slurm@localhost")
        self._write("slurmdbd.conf", (
            f"AuthType=auth/munge\nAuthInfo=socket={self.folder}/munge/socket\n"
            f"DbdHost=localhost\nDbdAddr=127.0.0.1\nDbdPort={self.dbd_port}\nSlurmUser=root\n"
            f"StorageType=accounting_storage/mysql\nStorageUser=slurm\n"
            f"StorageHost=127.0.0.1\nStoragePort={self.sql_port}\nStoragePass=lab\n"
            f"StorageLoc=slurm_acct_db\n"
            f"LogFile={self.folder}/slurmdbd.log\nPidFile={self.folder}/slurmdbd.pid\n"))
        os.chmod(f"{self.folder}/slurmdbd.conf", 0o600)
        self.dbd = self._spawn("slurmdbd", "-D", log="slurmdbd.out")
        try:
            wait_until(lambda: self.run("sacctmgr", "-n", "show", "cluster",
                                        check=False).returncode == 0,
                       30, "slurmdbd does not answer", interval=0.3)
        except LabError as e:
            raise LabError(f"{e}\n{self._log_tail('slurmdbd.out')}"
                           f"{self._log_tail('slurmdbd.log')}") from None
        self.run("sacctmgr", "-i", "add", "cluster", "lab", check=False)

    def sql(self, statement, check=True):
        """Runs a statement in the accounting database."""
        return subprocess.run(
            ["mariadb", "--no-defaults", f"--socket={self.folder}/mariadb.sock", "-uroot", "-N",
             "-B"], input=statement, capture_output=True, text=True, check=check, timeout=300)

    # --- daemons ---

    def start_controller(self, clean=False):
        """Starts slurmctld; `clean` forgets all state."""
        args = ["slurmctld", "-D", *(["-c"] if clean else [])]
        self.ctld = self._spawn(*args, log="slurmctld.out")

    def kill_controller(self):
        """kill -9, as a power cut of the head would."""
        self.ctld.kill()
        self.ctld.wait(10)

    def stop_controller(self):
        """The orderly end: state is saved."""
        end_child(self.ctld, 30)

    def start_node(self, name):
        """Starts one slurmd."""
        self.slurmds[name] = self._spawn("slurmd", "-D", "-N", name, log=f"slurmd-{name}.out")

    def kill_node(self, name):
        """kill -9 of one slurmd; its steps go on."""
        child = self.slurmds.pop(name)
        child.kill()
        child.wait(10)

    def wait_answer(self, seconds=60):
        """Returns when slurmctld answers."""
        def answers():
            if self.ctld.poll() is not None:
                raise LabError(f"slurmctld ended:\n{self._log_tail('slurmctld.log')}")
            return self.run("scontrol", "ping", check=False).stdout.find("is UP") >= 0
        wait_until(answers, seconds, "slurmctld does not answer", interval=0.01)

    def wait_ready(self, seconds=60):
        """Returns when slurmctld answers and every node is idle."""
        self.wait_answer(seconds)

        def idle():
            out = self.run("sinfo", "-h", "-o", "%t %D", check=False).stdout.split("\n")
            return f"idle {self.count}" in out
        try:
            wait_until(idle, seconds, "nodes do not become idle", interval=0.2)
        except LabError as e:
            raise LabError(f"{e}\n{self._log_tail('slurmctld.log')}\n"
                           f"{self._log_tail('slurmd-n1.log')}") from None

    def reset(self):
        """A controller without jobs, without waiting for each to be cancelled."""
        self._end_running_jobs()
        self.kill_controller()
        for name in list(self.slurmds):
            self.kill_node(name)
        shutil.rmtree(f"{self.folder}/state")
        os.mkdir(f"{self.folder}/state")
        self.start_controller(clean=True)
        for i in range(1, self.count + 1):
            self.start_node(f"n{i}")
        self.wait_ready()

    def pids(self):
        """The daemons' process ids."""
        children = [self.ctld, self.dbd, self.mariadb, *self.slurmds.values()]
        return [c.pid for c in children if c and alive(c.pid)]

    # --- commands ---

    def run(self, *command, check=True, timeout=120, **kwargs):
        """Runs one of Slurm's commands against this cluster."""
        done = subprocess.run(command, env=self.env, capture_output=True, text=True,
                              check=False, timeout=timeout, **kwargs)
        if check and done.returncode:
            raise LabError(f"{' '.join(command)} ended with {done.returncode}: "
                           f"{done.stderr.strip()}")
        return done

    def active_jobs(self):
        """How many jobs are not finished."""
        out = self.run("squeue", "-h", "-r", "-t", "PD,CF,R,CG,S", "-o", "%i").stdout
        return len(out.split())

    def wait_empty(self, seconds=600):
        """Returns when no job is pending or running."""
        wait_until(lambda: self.active_jobs() == 0, seconds, "jobs do not finish", interval=0.1)

    def set_paused(self, paused):
        """Stops or continues all daemons, so that another system can be measured alone."""
        for pid in self.pids():
            os.kill(pid, signal.SIGSTOP if paused else signal.SIGCONT)


if __name__ == "__main__":
    with SlurmLab() as lab:
        start = time.monotonic()
        lab.run("srun", "true")
        print(f"srun true: {(time.monotonic() - start) * 1e3:.0f} ms")
