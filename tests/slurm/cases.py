"""The command lines that both sides receive, in groups. A group is a list of lines that build on
each other; {names} stand for job ids. `same` says what must agree: the exit code always, and
standard output ("out"), only whether there is any ("some"), or nothing of it ("code"). Messages on
standard error agree, or a row of docs/slurm-differences.md explains why not ("code" leaves them out,
"err" compares only them). `user` is who gives the line; "other" is a user without rights."""


class Line:
    """One command line."""

    def __init__(self, line, same="out", save=None, stdin="", wait=None, user=None):
        self.line, self.same, self.save = line, same, save
        self.stdin, self.wait, self.user = stdin, wait, user


def lines(text, user=None):
    """One line each; "a <- line" saves the number that it prints, "wait a" waits for a job's end,
    "? line" compares only the exit code and messages, "~ line" nothing but the exit code."""
    found = []
    for line in text.strip().splitlines():
        line = line.strip()
        if line.startswith("wait "):
            found.append(Line("true", wait=line[5:]))
        elif line[1:5] == " <- ":
            found.append(Line(line[5:], save=line[0], user=user))
        elif line[:2] in ("? ", "~ "):
            found.append(Line(line[2:], same="err" if line[0] == "?" else "code", user=user))
        elif line:
            found.append(Line(line, user=user))
    return found


def held(options, fields="%i %j %u %t %r %D %C %l %P"):
    """Submits held with options, looks at it, cancels it."""
    return [Line(f"sbatch -H --parsable {options} --wrap true", save="j"),
            Line(f"squeue -h -j {{j}} -o '{fields}'"), Line("scancel {j}")]


HELD = [
    "", "-J name", "--job-name=other", "-n 3", "--ntasks=3", "-N 2", "-N 1-2", "--nodes=2", "-c 4",
    "--cpus-per-task=2", "-n 2 -c 3", "-N 2 --ntasks-per-node=2", "-n 4 --ntasks-per-node=2",
    "-t 5", "-t 1:30", "-t 1:00:00", "-t 2-0", "-t 1-12:30", "--time=90", "-t 0:30", "-t UNLIMITED",
    "-p main", "--partition=main", "-a 1-5", "--array=0-9:3", "-a 1,3,7", "-a 1-10%2", "-a 5",
    "--comment=text", "--begin=now+1hour", "--begin=2030-01-01", "--begin=23:59:59", "-d singleton",
    "--nice=10", "--nice", "--mem=100", "--mem=1G", "--mem=512M", "--mem-per-cpu=20",
    "--exclusive", "-o out.txt", "-o '%j.out' -e '%j.err'", "-i /dev/null", "--open-mode=append",
    "--open-mode=truncate", "--requeue", "--no-requeue", "--signal=USR1@60", "--signal=B:10@30",
    "--signal=TERM", "-w n1", "--nodelist=n[1-2]", "-x n2", "--exclude=n1", "--export=ALL",
    "--export=NONE", "--export=A=b,C", "-D /tmp", "--chdir=/tmp", "-Q", "-v", "--mail-type=END",
    "--mail-user=me@example.org", "--mail-type=ALL --mail-user=a", "--hint=nomultithread",
    "--threads-per-core=1", "--ntasks-per-core=1", "--spread-job", "--use-min-nodes",
    "--profile=none", "--contiguous", "--wait-all-nodes=1", "--propagate=NONE", "--get-user-env=L",
    "--deadline=2031-01-01", "-t 10 --time-min=5", "--part=main", "--job=abbreviated", "-Jglued",
    "-n2", "-N1 -n1 -c1", "--cpus-per-task 2 --ntasks 2", "--gres=gpu:0",
    # what templates leave empty
    "--reservation=", "--gpus=", "--gpus-per-node=", "--exclude=", "--output=", "--error=",
]

FIELDS = [c for c in "ACDFGHIJKLMNOPQSTUWXYZcdehijlmnoprtuvwxyz"]
LONG_FIELDS = [
    "jobid", "jobarrayid", "arrayjobid", "arraytaskid", "name", "username", "userid", "groupid",
    "groupname", "partition", "state", "statecompact", "reason", "reasonlist", "numnodes",
    "numcpus", "numtasks", "timelimit", "timeleft", "timeused", "priority", "prioritylong", "nice",
    "nodelist", "reqnodes", "feature", "dependency", "comment", "command", "workdir:60",
    "contiguous", "corespec", "licenses", "wckey", "network", "reservation", "requeue", "restartcnt",
    "batchflag", "oversubscribe", "mincpus", "minmemory", "mintmpdisk", "starttime", "endtime",
    "submittime", "eligibletime", "tres-per-node", "tres-per-job", "tres-per-task", "stdin", "stdout:60",
    "stderr:60", "sct", "sockets", "cores", "threads", "schednodes", "profile", "maxnodes", "ntpernode",
]

BAD = [
    "sbatch --nosuch --wrap true", "sbatch -t abc --wrap true", "sbatch -t 1:2:3:4 --wrap true",
    "sbatch -n 0 --wrap true", "sbatch -n x --wrap true", "sbatch -n -1 --wrap true",
    "sbatch -c 0 --wrap true", "sbatch -N 0 --wrap true", "sbatch -N x --wrap true",
    "sbatch -N 2-1 --wrap true", "sbatch --mem=x --wrap true", "sbatch --mem=10Q --wrap true",
    "sbatch -p nope --wrap true", "sbatch -a 5-1 --wrap true", "sbatch -a x --wrap true",
    "sbatch -a 1-3%x --wrap true", "sbatch --begin=garbage --wrap true",
    "sbatch --signal=NOPE@10 --wrap true", "sbatch --signal=TERM@x --wrap true",
    "sbatch -d after --wrap true", "sbatch -d nonsense:1 --wrap true",
    "sbatch -d afterok:x --wrap true", "sbatch -w nosuchnode --wrap true",
    "sbatch --gres=nosuch:1 --wrap true", "sbatch --open-mode=x --wrap true", "sbatch nosuchfile",
    "sbatch", "sbatch --wrap", "sbatch --wrap true script", "sbatch /tmp", "sbatch -c 1000 --wrap true",
    "sbatch --mem=99999G --wrap true", "sbatch --reservation=nope --wrap true",
    "sbatch --deadline=x --wrap true", "sbatch -M nosuch --wrap true",
    "sbatch --mem=1 --mem-per-cpu=1 --wrap true", "sbatch -t", "sbatch --exclude= --wrap",
    "squeue --nosuch", "squeue -t nosuch", "squeue -j x", "squeue -j 999999", "squeue -j 1,x",
    "squeue -i x", "sinfo --nosuch", "scancel", "scancel x", "scancel 999999", "scancel -s NOPE 1",
    "scancel --nosuch 1", "scancel -t nosuch", "scancel -u nosuchuser", "scontrol nosuch",
    "scontrol show", "scontrol show nosuch", "scontrol show job 999999", "scontrol show job x",
    "scontrol show node nosuch", "scontrol show partition nosuch", "scontrol hold", "scontrol hold 999999",
    "scontrol release 999999", "scontrol requeue 999999", "scontrol suspend 999999",
    "scontrol resume 999999", "scontrol update", "scontrol update jobid=999999 timelimit=5",
    "scontrol update nosuch=1", "scontrol --nosuch", "scontrol update partitionname=nosuch state=up",
    "scontrol update nodename=n1 state=drain", "srun --nosuch true", "srun", "srun -n 0 true",
    "srun -p nope true", "srun -t x true", "salloc --nosuch true", "salloc -p nope true",
    "salloc -n x true", "sacct --nosuch", "sprio --nosuch", "sdiag --nosuch", "sstat", "sattach",
]
SCRIPTS_BAD = {
    "empty": "", "blank": "  \n\n", "no_shebang": "echo hello\n", "dos": "#!/bin/sh\r\necho hi\r\n",
    "bad_option": "#!/bin/sh\n#SBATCH --nosuch\ntrue\n", "bad_value": "#!/bin/sh\n#SBATCH -t x\ntrue\n",
}
SCRIPTS = {
    "plain": ("#!/bin/sh\n#SBATCH -J lines -n 2\n#SBATCH --time=7\ntrue\n", "%j %C %l"),
    "quoted": ("#!/bin/sh\n#SBATCH --comment=\"two words\" -J 'q'\ntrue\n", "%j %k"),
    "after_command": ("#!/bin/sh\n#SBATCH -J first\ntrue\n#SBATCH -J second\n", "%j"),
    "comment_between": ("#!/bin/sh\n# a comment\n\n#SBATCH -J ok # not this\necho\n", "%j"),
    "two_hashes": ("#!/bin/sh\n##SBATCH -J no\n#SBATCH -J yes\ntrue\n", "%j"),
    "tab": ("#!/bin/sh\n#SBATCH\t-J tabbed\ntrue\n", "%j"),
    "glued": ("#!/bin/sh\n#SBATCH\n#SBATCH-J glued\n   #SBATCH -J no\ntrue\n", "%j"),
    "tasks_per_node": ("#!/bin/sh\n#SBATCH -N 2 --tasks-per-node=2\ntrue\n", "%C %D"),
    "last_wins": ("#!/bin/sh\n#SBATCH -J one\n#SBATCH -J two\ntrue\n", "%j"),
}

SINFO = ["sinfo -h", "sinfo", "sinfo -s", "sinfo -N -h", "sinfo -h -n n1", "sinfo -h -p main", "sinfo -h -p nope",
         "sinfo -h -t idle", "sinfo -h -t down", "sinfo -R", "sinfo -aho %F/%C", "sinfo -h -o '%P %a %D %t %N'", "sinfo -ho %N",
         "sinfo -N -ho '%N %t'", "sinfo -e -h", "sinfo -h -r", "sinfo -h -d", "sinfo -ho '%10P|%.10D|%N'",
         "sinfo -T"] + \
        [f"sinfo -ho '%{c}'" for c in "aABcCDEfFghHIlmMNpPrRsStTuUwX"] + \
        [f"sinfo -hO {n}" for n in ("partition", "nodelist", "statelong", "statecompact", "nodes", "cpus", "cpusstate", "time",
                                    "memory", "available", "root", "size", "weight", "reason", "groups")]

HOSTLISTS = ["scontrol show hostnames 'n[1-3]'", "scontrol show hostnames 'a[01-03,7],b'", "scontrol show hostnames n1",
             "scontrol show hostnames 'x[9-11]'", "scontrol show hostlist n1,n2,n3", "scontrol show hostlist a01,a02,b",
             "scontrol show hostlist n3,n1,n2", "scontrol show hostlistsorted n3,n1,n2", "scontrol show hostnames 'n[3-1]'"]

# Jobs that run: option, script command, what sacct would say is seen by squeue of finished ones.
RUNS = [("true", ""), ("exit 3", ""), ("exit 255", ""), ("kill -9 $$", ""), ("kill -TERM $$", ""), ("sleep 0.2", "-n 2"), ("nosuchcommand", "")]

FLOWS = [
    [Line("sbatch -H --parsable --wrap true", save="a"), Line("squeue -h -j {a} -o '%t %r'"), Line("scontrol release {a}"),
     Line("true", wait="a"), Line("squeue -h -j {a} -t all -o '%t %T'"), Line("scontrol hold {a}", "code")],
    [Line("sbatch --parsable --wrap 'sleep 60'", save="a"), Line("sleep 1"), Line("squeue -h -j {a} -o '%t %D %C'"),
     Line("scancel {a}"), Line("true", wait="a"), Line("squeue -h -j {a} -t all -o '%T %r'"), Line("scancel {a}")],
    lines("""
        a <- sbatch --parsable -H --wrap true
        b <- sbatch --parsable -H --wrap true
        c <- sbatch --parsable -d {a},{b} --wrap true
        d <- sbatch --parsable -d afterok:{a},{b} --wrap true
        e <- sbatch --parsable -d 'AfterOK: {a}' --wrap true
        f <- sbatch --parsable -d afterok:{a}?{b} --wrap true
        squeue -h -S i -j {c},{d},{e},{f} -o '%i %E'
        sbatch -d {a}:{b} --wrap true
        sbatch -d {a}, --wrap true
        scancel {a} {b} {c} {d} {e} {f}
        h <- export HOME=/elsewhere LOGNAME=maria; sbatch -W -o home.out --wrap 'echo $HOME $LOGNAME'
        cat home.out"""),
    [Line("sbatch --parsable --wrap 'exit 2'", save="a"), Line("sbatch --parsable -d afterok:{a} --wrap true", save="b"),
     Line("sbatch --parsable -d afternotok:{a} --wrap true", save="c"), Line("sbatch --parsable -d afterany:{a} --wrap true", save="d"),
     Line("true", wait="c"), Line("true", wait="d"), Line("squeue -h -j {b} -o '%t %r'"), Line("squeue -h -j {c} -t all -o %T"),
     Line("squeue -h -j {d} -t all -o %T"), Line("scancel {b}")],
    [Line("sbatch --parsable -a 1-4 --wrap 'exit $((SLURM_ARRAY_TASK_ID % 2))'", save="a"), Line("true", wait="a"),
     Line("squeue -h -r -j {a} -t all -S i -o '%i %T'")],
    [Line("sbatch -H --parsable -a 1-6 --wrap true", save="a"), Line("squeue -h -j {a} -o %i"), Line("scancel {a}_[2-3]"),
     Line("squeue -h -r -j {a} -S i -o %i"), Line("scancel {a}_6"), Line("squeue -h -j {a} -o %i"), Line("scancel {a}")],
    [Line("sbatch -H --parsable -a 1-9%3 --wrap true", save="a"), Line("squeue -h -j {a} -o '%i %K %F'"),
     Line("squeue -h -r -j {a} -S i -o '%i %K'"), Line("scontrol update jobid={a} name=renamed"), Line("squeue -h -j {a} -o %j"), Line("scancel {a}")],
    [Line("sbatch -H --parsable --wrap true", save="a"), Line("scontrol update jobid={a} timelimit=9"), Line("squeue -h -j {a} -o %l"),
     Line("scontrol update jobid={a} comment=hello"), Line("squeue -h -j {a} -o %k"), Line("scontrol update jobid={a} nosuch=1"),
     Line("scontrol update jobid={a} timelimit=x"), Line("scancel {a}")],
    [Line("sbatch --parsable --wrap 'sleep 30'", save="a"), Line("sleep 1"), Line("scontrol suspend {a}"), Line("sleep 0.3"), Line("squeue -h -j {a} -o %t"),
     Line("scontrol resume {a}"), Line("sleep 0.3"), Line("squeue -h -j {a} -o %t"), Line("scancel {a}"), Line("true", wait="a")],
    [Line("sbatch --parsable --wrap 'trap \"echo got; exit 5\" USR1; while :; do sleep 0.1; done' -o sig.out", save="a"), Line("sleep 1"),
     Line("scancel -b -s USR1 {a}"), Line("true", wait="a"), Line("cat sig.out"), Line("squeue -h -j {a} -t all -o '%T'")],
    [Line("sbatch --wait --wrap 'exit 0'", "code"), Line("sbatch --wait --wrap 'exit 7'", "code"), Line("sbatch -W --wrap 'exit 1'", "code")],
    [Line("sbatch --parsable -o 'o-%x.%u' -J named --wrap 'echo $SLURM_JOB_NAME'", save="a"), Line("true", wait="a"), Line("cat o-named.root")],
    [Line("sbatch --parsable -n 2 -o env.out --wrap 'echo $SLURM_NTASKS $SLURM_JOB_NUM_NODES $SLURM_NNODES $SLURM_TASKS_PER_NODE "
          "$SLURM_JOB_CPUS_PER_NODE $SLURM_CPUS_ON_NODE $SLURM_JOB_PARTITION $SLURM_NODEID $SLURM_PROCID $SLURM_LOCALID $SLURM_JOB_USER'", save="a"),
     Line("true", wait="a"), Line("cat env.out")],
    [Line("sbatch --parsable -o exp.out --export=NONE --wrap 'echo $FOO $SLURM_EXPORT_ENV'", save="a"), Line("true", wait="a"), Line("cat exp.out")],
    [Line("sbatch --parsable -o arg.out", save="a", stdin="#!/bin/sh\necho from stdin\n"), Line("true", wait="a"), Line("cat arg.out")],
    [Line("sbatch -H --parsable -J one --wrap true", save="a"), Line("sbatch -H --parsable -J two --wrap true", save="b"),
     Line("squeue -h -n one -o %j"), Line("squeue -h -n one,two -S i -o %j"), Line("squeue -h --me -n two -o '%j %u'"), Line("squeue -h -u root -n one -o %j"),
     Line("squeue -h -t PD -n one -o %T"), Line("squeue -h -t R -n one -o %T"), Line("squeue -h -j {a},{b} -S -j -o %j"),
     Line("scancel -n one"), Line("squeue -h -n one,two -o %j"), Line("scancel -t PD -u root"), Line("squeue -h -o %j")],
]

STEPS = [
    [Line("srun true"), Line("srun false"), Line("srun sh -c 'exit 9'"), Line("srun -n 3 -l sh -c 'echo hi' ", "some"), Line("srun -N 2 true"),
     Line("srun nosuchcommand"), Line("srun /tmp"), Line("srun -n 2 sh -c 'kill -9 $$'"), Line("srun cat", stdin="through\n"),
     Line("srun -n 2 cat", stdin="both\n"), Line("srun -o srun.out echo tofile"), Line("cat srun.out"), Line("srun -D /tmp pwd"),
     Line("srun -Q echo quiet"), Line("srun sh -c 'echo err >&2'", "out"),
     Line("srun -n 4 sh -c 'echo $SLURM_NTASKS $SLURM_STEP_NUM_TASKS $SLURM_NNODES'"),
     Line("srun -N 2 -n 2 sh -c 'echo $SLURM_STEP_NUM_NODES $SLURM_TASKS_PER_NODE $SLURM_STEP_TASKS_PER_NODE'")],
    [Line("salloc -Q true"), Line("salloc -Q sh -c 'exit 6'"), Line("salloc -Q srun echo inside"), Line("salloc -Q -n 2 srun sh -c 'echo $SLURM_STEP_ID $SLURM_NTASKS'"),
     Line("salloc -Q -n 2 sh -c 'srun true; srun sh -c \"echo step $SLURM_STEP_ID\"'")],
    [Line("sbatch --parsable -n 2 -o steps.out --wrap 'srun -l sh -c \"echo \\$SLURM_PROCID\" | sort; srun -n 1 echo one 2>/dev/null; srun -n 1 false 2>/dev/null; echo rc $?; "
          "srun -n 1 --exact sleep 0.3 & srun -n 1 --exact sleep 0.3 & wait; srun --overlap -n 1 echo over 2>/dev/null'", save="a"),
     Line("true", wait="a"), Line("cat steps.out")],
    [Line("sbatch --parsable -n 2 -o multi.out --wrap 'printf \"0 echo zero %%t\\n1 echo one %%t\\n\" > multi.conf; srun --multi-prog multi.conf | sort'", save="a"),
     Line("true", wait="a"), Line("cat multi.out")],
]

SACCT_FIELDS = ["Account", "AllocCPUS", "AllocNodes", "CPUTime", "CPUTimeRAW", "Elapsed", "ElapsedRaw", "Eligible", "End", "ExitCode", "Group",
                "JobID", "JobIDRaw", "JobName", "MaxRSS", "NCPUS", "NNodes", "NodeList", "NTasks", "Partition", "Priority", "QOS", "ReqCPUS", "ReqMem",
                "ReqNodes", "ReqTRES", "Start", "State", "Submit", "Timelimit", "TotalCPU", "UID", "User", "WorkDir"]
