"""Longer stories: changes, signals and time limits, dependencies, history, another user. See cases.lines
for the marks."""

UPDATES = r"""
a <- sbatch --parsable -H -N 2 --wrap true
c <- sbatch --parsable -H -n 3 -c 2 --mem=50 -t 5 --comment=hey -d singleton -J w --wrap true
d <- sbatch --parsable -N 2 -n 4 -t 5 -J run --wrap 'sleep 30'
sleep 1.5
scontrol show job {a} | grep -oE '(NumNodes|NumCPUs|NumTasks|CPUs/Task|TRES|MinMemory[A-Za-z]*|MinCPUsNode|EligibleTime|OverSubscribe)=\S*'
scontrol show job {c} | grep -oE '(NumCPUs|NumTasks|CPUs/Task|TRES|MinMemory[A-Za-z]*|EligibleTime|Dependency|Comment|TimeLimit)=\S*'
scontrol show job {d} | grep -oE '(JobState|NodeList|BatchHost|NumNodes|NumCPUs|NumTasks|TRES|TimeLimit|ExitCode|Restarts)=\S*'
scontrol -o show job {d} | wc -l
scontrol update jobid={c} numnodes=2
scontrol update jobid={c} minmemorynode=70
scontrol update jobid={c} minmemorycpu=7
scontrol update jobid={c} features=nosuch
scontrol update jobid={c} nice=5
scontrol update jobid={c} nice
squeue -h -j {c} -o '%y'
scontrol update jobid={c} timelimit=+5
scontrol update jobid={c} timelimit=-2
squeue -h -j {c} -o '%l'
scontrol update jobid={c} timelimit=1:00:00
scontrol update jobid={c} timelimit=x
scontrol update jobid={c} requeue=0
scontrol update jobid={c} partition=nosuch
scontrol update jobid={c} partition=main
scontrol update jobid={c} reqnodelist=nosuch
scontrol update jobid={c} dependency=afterok:{d}
squeue -h -j {c} -o '%E'
scontrol update jobid={c} dependency=bad
scontrol update jobid={c} starttime=now+1hour
scontrol update jobid={c} starttime=x
scontrol update jobid={c} deadline=now+2days
scontrol update jobid={c} reservationname=nosuch
scontrol update jobid={c} jobname=nn workdir=/tmp stdout=/tmp/x.out
scontrol update jobid={c} oversubscribe=yes contiguous=yes licenses= wckey=x mailuser=x
scontrol update jobid={c} cpuspertask=3
scontrol update jobid={c} numtasks=2
scontrol update jobid={c} timemin=3
scontrol update jobid={c} comment='two words'
scontrol update job {c} name=viaspace
squeue -h -j {c} -o '%j %k'
scontrol update jobid={d} timelimit=9
squeue -h -j {d} -o '%l'
scontrol hold {c}
scontrol uhold {a}
scontrol resume {d}
scontrol write batch_script {d} -
scontrol write batch_script 99999
scontrol wait_job 99999
scontrol show licenses
scontrol show topology
scontrol show daemons
scontrol errnumstr 1
scontrol update nodename=n1 state=drain
scancel -v {c} 99999
scancel {a} {d}
wait d
"""

# Partitions other (n2, ten minutes) and third (n1) are there besides main.
PARTITIONS = r"""
sbatch -p main,nope -H --wrap true
sbatch -p nope,main -H --wrap true
sbatch -p , -H --wrap true
srun -p main,nope true
salloc -p nope,main true
a <- sbatch -p main,other -H --parsable -o where.out --wrap 'echo $SLURM_JOB_PARTITION'
squeue -h -j {a} -o '%i %P %t %r'
squeue -h -j {a} -O 'partition:30,state'
scontrol show job {a} | grep -o 'Partition=[^ ]*'
squeue -h -p other -o '%i %P'
squeue -h -p third -o '%i %P'
squeue -h -p third,other -o '%i %P'
squeue -h -P -j {a} -o '%i %P' -S P
squeue -h -P -p other -o '%i %P'
scontrol update jobid={a} partition=third,nope
scontrol update jobid={a} partition=third,other
squeue -h -j {a} -o '%i %P'
b <- sbatch -p other,third -t 30 -H --parsable --wrap true
squeue -h -p other -S i -o '%i %P %l'
scancel -p other
squeue -h -p other -S i -o '%i %P'
scancel {b}
scontrol release {a}
wait a
cat where.out
srun -p third,other sh -c 'echo $SLURMD_NODENAME'
srun -p other,third sh -c 'echo $SLURMD_NODENAME'
salloc -Q -p other,third true
c <- sbatch -p third,other --exclusive --parsable --wrap 'sleep 60'
d <- sbatch -p third,other --exclusive --parsable --wrap 'sleep 60'
e <- sbatch -p third,other --exclusive --parsable --wrap 'sleep 60'
sleep 1.5
squeue -h -j {c},{d},{e} -S i -o '%i %P %t %N'
scontrol show job {d} | grep -o 'Partition=[^ ]*'
scontrol show job {e} | grep -o 'Partition=[^ ]*'
squeue -h -p third -S i -o '%i %P %t'
squeue -h -p other -S i -o '%i %P %t'
squeue -h -P -j {e} -o '%i %P %t'
sprio -h -j {e} -o '%i %r'
sprio -h -p other -o '%i %r'
scontrol requeuehold {c}
sleep 4
squeue -h -j {c},{e} -S i -o '%i %P %t'
scancel -p other
wait d
squeue -h -j {c},{e} -S i -o '%i %P %t'
scancel {c} {e}
wait e
sleep 3
sacct -X -n -P -j {c},{d},{e} -o jobid,partition | sort
sacct -X -n -P -j {c},{d},{e} -r other -o jobid,partition
"""

SIGNALS = r"""
a <- sbatch --parsable -t 1 -o to.out --wrap 'sleep 200'
b <- sbatch --parsable -t 1 --signal=B:USR1@50 -o sigb.out --wrap 'trap "echo gotB; exit 3" USR1; while :; do sleep 0.1; done'
c <- sbatch --parsable -t 1 --signal=USR1@50 -o sigs.out --wrap 'srun sh -c "trap \"echo step got; exit 7\" USR1; while :; do sleep 0.1; done"'
e <- sbatch --parsable --begin=now+1hour --wrap true
sleep 1
squeue -h -j {e} -o '%T %r'
scontrol update jobid={e} starttime=now
wait e
squeue -h -j {e} -t all -o '%T'
g <- sbatch --parsable --wrap 'sleep 100'
sleep 1.5
scancel -s TERM {g}
sleep 1
squeue -h -j {g} -t all -o '%T'
scancel -s TERM -f {g}
wait g
squeue -h -j {g} -t all -o '%T %r'
sacct -n -P -j {g} -o jobid,state,exitcode
h <- sbatch --parsable --wrap 'sleep 100'
sleep 1.5
scontrol suspend {h}
sleep 2
squeue -h -j {h} -o '%T %t'
scontrol resume {h}
scontrol resume {h}
scancel {h}
wait h
i <- sbatch --parsable --wrap 'exit 3'
k <- sbatch --parsable -d afterok:{i}?afternotok:{i} --wrap true
l <- sbatch --parsable -d afterok:{i} --wrap true
n <- sbatch --parsable -d aftercorr:{i} --wrap true
o <- sbatch --parsable -d after:{i} --wrap true
p <- sbatch --parsable -d after:{i}+1 --wrap true
wait k
wait o
sleep 1
squeue -h -j {k} -t all -o '%T %r %E'
squeue -h -j {l} -o '%T %r %E'
squeue -h -j {n} -o '%T %r'
scontrol update jobid={l} dependency=
wait l
squeue -h -j {l} -t all -o '%T %r %E'
scancel {n} {p}
sbatch -Q --wait --wrap 'kill -9 $$'; echo $?
sbatch -Q --wait --wrap 'exit 300'; echo $?
sbatch -Q -W -a 0-3 --wrap 'exit $SLURM_ARRAY_TASK_ID'; echo $?
o <- sbatch --parsable -o mode.out --wrap 'echo one'
wait o
o <- sbatch --parsable -o mode.out --open-mode=append --wrap 'echo two'
wait o
cat mode.out
o <- sbatch --parsable -o mode.out --open-mode=truncate --wrap 'echo three'
wait o
cat mode.out
wait a
wait b
wait c
squeue -h -j {a} -t all -o '%T %r'
sacct -n -P -j {a} -o jobid,state,exitcode,derivedexitcode
sacct -n -P -j {b} -o jobid,state,exitcode
sacct -n -P -j {c} -o jobid,state,exitcode
grep -c 'DUE TO TIME LIMIT' to.out
cat sigb.out
grep got sigs.out
"""

HISTORY = r"""
a <- sbatch --parsable -J one -n 2 -t 5 --wrap 'srun true; srun sh -c "exit 3"; exit 4'
b <- sbatch --parsable -J two -a 1-3 -t 5 --wrap 'exit $((SLURM_ARRAY_TASK_ID-1))'
d <- sbatch --parsable -J four --wrap 'sleep 50'
e <- sbatch --parsable -J five --wrap 'kill -9 $$'
f <- salloc -Q -J six srun sh -c 'echo $SLURM_JOB_ID'
sleep 2
scancel {d}
wait a
wait b
wait d
sleep 2
sacct -j {a} -P -o jobid,jobname,partition,alloccpus,state,exitcode
sacct -j {a} -X -n -p -o jobid,jobname
sacct -j {b} -P -o jobid,state,exitcode
sacct -j {b}_2 -P -o jobid,state,exitcode
sacct -j {d} -P -o jobid,state,exitcode,derivedexitcode
sacct -j {e} -P -o jobid,state,exitcode,derivedexitcode
sacct -j {f} -P -o jobid,jobname,state,exitcode,ntasks,alloccpus
sacct -j {a},{d} -n -X -P -o jobid
sacct -j {a}.batch -P -o jobid,state
sacct -j {a}.0 -P -o jobid,state
sacct -j {a} -P -o jobid,allocnodes,ncpus,reqcpus,reqmem,reqnodes,reqtres,alloctres,timelimit,timelimitraw,user,uid,group,gid,partition,qos,nnodes,ntasks,workdir
sacct -j {a} -n -P -o jobname%-20,state%3,exitcode
sacct -j {a} -o jobname%-20,state%3,exitcode
sacct -j {a} -n -P -s F -o jobid,state
sacct -j {a} -n -P --name=one -o jobid
sacct -j {a} -n -P --name=nope -o jobid
sacct -n -P -X --name=one,four -S now-1hour -o jobname | sort -u
sacct -n -P -X -S now+1hour -o jobid
sacct -n -P -X -S 2020-01-01 -E 2020-01-02 -o jobid
sacct -n -P -X -u root -S now-1hour -o user | sort -u
sacct -n -P -X -u nosuch -o user
sacct -j x
sacct -j 99999999
sacct -s nosuch
sacct -o nosuch
sacct -S garbage
sacct -n -X -P -r main -S now-1hour -o partition | sort -u
sacct -n -X -P -j {a} --units=K -o reqmem
sacct -n -X -P -j {a} --units=G -o reqmem
sacct -n -X -P -j {a} --noconvert -o reqmem
sacct -n -X -P -j {a} --delimiter=';' -o jobid,state
SACCT_FORMAT=jobid,state sacct -n -P -j {d}
SLURM_TIME_FORMAT=%Y sacct -n -X -j {d} -o submit
SQUEUE_FORMAT='%T' squeue -h -j {d} -t all
SQUEUE_STATES=all squeue -h -j {d} -o %T
SINFO_FORMAT='%P' sinfo -h
SBATCH_JOB_NAME=env SBATCH_TIMELIMIT=9 sbatch -H --parsable --wrap true | xargs -I@ sh -c 'squeue -h -j @ -o "%j %l"; scancel @'
"""

# As somebody without rights; {r} is root's.
OTHER = r"""
id -un
o <- sbatch -H --parsable --wrap true
squeue -h -u nobody -o '%u %t'
squeue -h -j {r} -o '%u'
scancel {r}
scontrol update jobid={r} timelimit=5
scontrol hold {r}
scontrol release {r}
scontrol requeue {r}
scontrol suspend {r}
scontrol show job {r} | grep -o 'JobState=.*Reason'
scontrol update nodename=n1 state=drain reason=x
scontrol update partitionname=main state=down
scontrol create reservation starttime=now duration=5 nodes=n1 users=nobody
scontrol reconfigure
scontrol hold {o}
scontrol update jobid={o} nice=-5
scontrol update jobid={o} timelimit=5
scontrol release {o}
sbatch --nice=-10 --wrap true
srun id -un
scontrol write batch_script {r} -
scancel -s USR1 {r}
scancel --me
"""
