"""History, control and cancelling as administrators' tools ask for them. See cases.lines for the marks."""

CANCEL = r"""
a <- sbatch --parsable -n 2 -t 5 -J aone --wrap 'srun true; srun sleep 30'
e <- sbatch --parsable --wrap 'exit 2'
h <- sbatch --parsable -H -J held --wrap true
wait e
? scancel {e}.0
? scancel 999999.0
? scancel -s USR1 {e}
? scancel -s USR1 999999
? scancel -b 999999
? scancel -s KILL 999999
? scancel -f 999999
? scancel -s USR1 -f 999999
? scancel --wckey=x
? scancel ''
? scancel {h}_1
? scancel -q normal -n nosuch
? scancel -w n1 -n aone
? scancel -t COMPLETED
? scancel -R nosuch
? scancel {h}
wait a
? scontrol hold {h}
? scontrol release {h}
? scontrol suspend {h}
? scontrol resume {h}
"""

# What sacct shows of when: -s is about the window, and without -E a state is asked for at -S.
WINDOW = r"""
a <- sbatch --parsable -n 2 -t 5 -J acc --comment=cc --wrap 'srun true; srun -n 1 false; exit 3'
b <- sbatch --parsable -a 1-2 -J arr --wrap 'exit 0'
c <- sbatch --parsable -n 1 -t 5 -J runs --wrap 'sleep 300'
d <- sbatch --parsable -H -n 3 -J pend --wrap true
f <- sbatch --parsable -H -n 3 -J never --wrap true
scancel {f}
wait a
wait b
sleep 2
sacct -j {a} -b
sacct -j {a} -l | head -1
sacct -j {a} -c
sacct -j {a} -n -o jobid%-20,state%20,jobname%5
sacct -j {a} -X -o JobID%30
sacct -n -X -P -j {d} -o jobid,state,start,end,elapsed,reason,nodelist,alloccpus,allocnodes,reqcpus,nnodes,alloctres
sacct -n -X -P -j {f} -o jobname,state,eligible,start,end,elapsed,nnodes,allocnodes,reqnodes,alloccpus,ncpus,reqcpus
sacct -n -X -P --name pend,never -o jobname
sacct -n -X -P -s CA -S now-1minute -E now --name never -o jobname,state
sacct -n -X -P -s PD -j {d} -o jobid,state
sacct -n -X -P -s R -o jobname | grep -c runs
sacct -n -X -P -s R -j {c} -o jobid,state
sacct -n -X -P -s PD -o jobname | sort -u
sacct -n -X -P -s CD -S now-10minutes --name arr -o jobid,state
sacct -n -X -P -s CD,F -S now-1minute -E now --name arr,acc -o state | sort -u
sacct -n -X -P -s F -S now-10minutes --name arr,acc -o jobid,state
sacct -n -X -P -s R -S now-1minute -E now --name runs,acc -o jobname,state | sort -u
sacct -n -X -P -s R -S now-10minutes --name runs,acc -o jobname,state
sacct -n -X -P -s PD -S now-1minute -E now --name runs,acc,pend -o jobname,state | sort -u
sacct -n -X -P -s R -S now-1seconds -E now --name runs -o jobname,state
sacct -T -n -X -P -S now-1seconds --name runs -o jobname,elapsed | grep -c '00:00:0[12]'
sacct -n -X -P -S midnight --name acc -o jobname | sort -u
sacct -n -X -P -S tomorrow --name acc -o jobname
sacct -n -X -P -S yesterday --name acc -o jobname
sacct -n -X -P -S 0101 -E 0102 --name acc -o jobname
sacct -n -X -P -S 010120 --name acc -o jobname | sort -u
sacct -n -X -P -S 01/01/20 --name acc -o jobname | sort -u
sacct -n -X -P -S 01.01.20 --name acc -o jobname | sort -u
sacct -n -X -P -S 00:00 --name acc -o jobname | sort -u
sacct -n -X -P -S 2020-11-01-10:00 --name acc -o jobname | sort -u
sacct -n -X -P -S now-2weeks --name acc -o jobname | sort -u
sacct -n -X -P -S now-600 --name acc -o jobname | sort -u
sacct -n -X -P -S 1:00AM -E x --name acc -o jobname
sacct -n -X -P -S uts1000000 --name acc -o jobname | sort -u
sacct -n -X -P -E 2020-11-01 --name acc -o jobname
sacct -n -X -P -E garbage --name acc -o jobname
sacct -n -X -P -N n[1-2] -j {a} -o jobname,nodelist
sacct -n -X -P -N nosuch -j {a} -o jobname,nodelist
sacct -n -X -P -r nosuch -j {a} -o jobname
sacct -n -X -P -q normal -j {a} -o jobname
sacct -n -X -P -q nosuch -j {a} -o jobname
sacct -n -X -P -A nosuch -j {a} -o jobname
sacct -n -X -P -u 0 -j {a} -o jobname
sacct -n -X -P -u nobody -j {a} -o jobname
sacct -n -X -P -g root -j {a} -o jobname
sacct -n -X -P --gid=0 -j {a} -o jobname
sacct -n -X -P -g nosuch -j {a} -o jobname
sacct -n -X -P -k 1 -K 10 -j {a},{c} -o jobname
sacct -n -X -P -k 6 -K 10 -j {a},{c} -o jobname
sacct -n -X -P -k 5 -j {a},{c} -o jobname
sacct -n -X -P -k 9 -K 3 -j {a},{c} -o jobname
sacct -n -X -P -i 2 -j {a},{c} -o jobname
sacct -n -X -P -i 1-2 -j {a},{c} -o jobname
sacct -n -X -P -i x -j {a},{c} -o jobname
sacct -n -X -P -I 1 -j {a},{c} -o jobname
sacct -n -X -P -I 2-3 -j {a},{c} -o jobname
sacct -n -X -P -W x -j {a} -o jobname
sacct -n -X -P -C nosuch -j {a} -o jobname
sacct -n -X -P -j {a} --units=M -o reqmem,maxrss
sacct -n -X -P -j {a} --units=X -o reqmem
sacct -n -X -P -j {a} -o submitline
sacct -n -p -j {a} -o jobid,exitcode --delimiter=,
sacct -n -P -j {a} -o all | awk -F'|' '{print NF}'
sacct -e
sacct -n -P -j {a} -j {b} -X -o jobid
sacct -n -P -j {a} -o jobid,ntasks,layout,reqcpufreqmin,reqcpufreqmax,reqcpufreqgov,avecpufreq
sacct --state=COMP -n -X -j {a} -P -o state
scancel {c} {d}
wait c
"""

# The pause is no part of what the job ran, and the limit does not run on in it.
PAUSE = r"""
c <- sbatch --parsable -t 5 -J longr --wrap 'sleep 100'
sleep 2
scontrol suspend {c}
sleep 5
sacct -X -n -P -s S -j {c} -o jobname,state
sacct -n -P -j {c} -o elapsedraw,suspended | awk -F'|' '{print ($1 < 7), ($2 >= "00:00:04")}'
squeue -h -j {c} -o '%M' | awk -F: '{print ($2 < 7)}'
scontrol show job {c} | grep -oE '(SuspendTime|EndTime)=\S*'
scontrol show job {c} | grep -oE 'SecsPreSuspend=\S*' | awk -F= '{print ($2 > 0 && $2 < 7)}'
scontrol resume {c}
scancel {c}
wait c
sacct -n -P -X -j {c} -o state,elapsedraw,cputimeraw,suspended | awk -F'|' '{print $1, ($2 < 7), ($2 == $3), ($4 >= "00:00:04")}'
sacct -n -P -X -s S -S now-1minute -E now -j {c} -o jobname,state
d <- sbatch --parsable -t 1 -J limit --wrap 'sleep 100'
sleep 1
scontrol suspend {d}
sleep 6
scontrol resume {d}
scontrol show job {d} | grep -oE '(StartTime|EndTime)=\S*' | wc -l
scancel {d}
"""

HOLD = r"""
a <- sbatch --parsable -n 2 -t 5 -J upd --wrap 'srun sleep 200'
sleep 1.5
scontrol hold {a}
squeue -h -j {a} -o '%t %r %Q'
scontrol show job {a} | grep -oE '(Priority|JobState|Reason)=\S*'
scontrol release {a}
squeue -h -j {a} -o '%t %r'
scontrol uhold {a}
scontrol show job {a} | grep -oE '(Priority|JobState|Reason)=\S*'
scontrol requeue {a}
sleep 6
squeue -h -j {a} -o '%t %r %Q'
scontrol hold {a}
squeue -h -j {a} -o '%r'
scontrol uhold {a}
squeue -h -j {a} -o '%r'
scontrol hold name=nosuch
scontrol update jobid={a} priority=5000
scontrol update jobid={a} priority=x
scontrol update jobid={a} requeue=x
scontrol update jobid={a}
scontrol update jobid={a} nosuch
scontrol update jobid={a} endtime=now+10minutes
scontrol update jobid={a} licenses=x
scontrol update jobid={a} burstbuffer=x
scontrol update jobid={a} resetaccruetime
scancel {a}
r <- sbatch --parsable -n 2 -t 5 -J running --wrap 'sleep 200'
sleep 1.5
scontrol update jobid={r} timelimit+=5
squeue -h -j {r} -o '%l'
scontrol update jobid={r} timelimit-=2
squeue -h -j {r} -o '%l'
scontrol update jobid={r} timelimit+=x
scontrol update jobid={r} endtime=now+20minutes
squeue -h -j {r} -o '%l'
scontrol update jobid={r} priority=100
scontrol update jobid={r} features=x
scontrol update jobid={r} excnodelist=n2
scontrol update jobid={r} starttime=now+1hour
scontrol update jobid={r} minmemorynode=50
scontrol update jobid={r} stdout=/tmp/x
scontrol update jobid={r} timemin=2
scontrol update jobid={r} deadline=now+1hour
scontrol update jobid={r} comment=hello
squeue -h -j {r} -o '%k'
scancel {r}
wait r
b <- sbatch -H --parsable -a 1-6%2 --wrap true
scontrol update jobid={b} arraytaskthrottle=4
scontrol show job {b} | grep -o 'ArrayTaskThrottle=.'
scancel {b}
"""

# What administrators change: nodes, partitions, reservations. Nothing of a line is dropped in silence.
THINGS = r"""
scontrol write nosuch
scontrol wait_job x
scontrol exit
scontrol delete
scontrol delete x
scontrol delete reservationname=nosuch
scontrol delete partitionname=nosuch
scontrol delete jobid=1
scontrol create
scontrol create x
scontrol show step 999999
scontrol show node n1 n2
scontrol show hostnames
scontrol show burstbuffer
scontrol show federation
scontrol show topo
scontrol -o show node n1 | wc -l
scontrol update nodename=n1 state=drain reason=test
scontrol show node n1 | grep -oE '(State|Reason)=\S*'
scontrol update nodename=n1 state=resume
scontrol update nodename=nosuch state=resume
scontrol update nodename=n2 nosuch=1
scontrol update nodename=n2
scontrol update nodename=n2 comment=hi
scontrol update nodename=ALL state=drain reason='two words'
scontrol show node n2 | grep -oE 'Reason=two words'
scontrol update nodename=ALL state=resume
scontrol update node=n1 state=drain reason=z
scontrol update node=n1 state=resume
scontrol update partitionname=main state=drain
sinfo -h -o '%P %a'
sbatch --wrap true
scontrol update partitionname=main state=inactive
sinfo -h -o '%P %a'
sbatch --wrap true
scontrol update partitionname=main state=down
sinfo -h -o '%P %a'
scontrol show partition main | grep -oE 'State=\S*'
scontrol update partitionname=main state=up
sinfo -h -o '%P %a'
scontrol update partitionname=main state=x
scontrol update partitionname=main maxtime=60
scontrol show partition main | grep -oE 'MaxTime=\S*'
scontrol update partitionname=main maxtime=x
scontrol update partitionname=main maxtime=unlimited
scontrol show partition main | grep -oE 'MaxTime=\S*'
scontrol update partitionname=main defaulttime=none
scontrol update partitionname=main prioritytier=7
scontrol show partition main | grep -oE 'PriorityTier=\S*'
scontrol update partitionname=main prioritytier=1
scontrol update partitionname=main allowaccounts=ALL maxnodes=unlimited hidden=no rootonly=no
scontrol update partitionname=main defmempercpu=10
scontrol show partition main | grep -oE 'DefMemPerCPU=\S*'
scontrol update partitionname=main nosuch=1
scontrol update partitionname=main
scontrol update partitionname=nosuch state=up
scontrol create partitionname=extra nodes=n1
scontrol create partitionname=extra nodes=n1
scontrol update partition=extra maxtime=10
scontrol delete partitionname=extra
scontrol delete partition=extra
scontrol create reservationname=r1 starttime=now+10minutes duration=10 nodes=n1 users=root
scontrol show reservation r1 | sed 's/StartTime.*//'
scontrol create reservation starttime=now+30minutes duration=10 nodes=n2 users=root | sed 's/_[0-9]*//'
scontrol create reservation starttime=now+1hour duration=10 nodes=n2
scontrol create reservation starttime=now duration=10 nodes=nosuch users=root
scontrol create reservation duration=10 nodes=n2 users=root
scontrol create reservationname=r2 starttime=now+3hour endtime=now+4hours nodecnt=1 users=root flags=maint
scontrol create reservationname=r5 starttime=now+7hour duration=10 nodes=n1 users=nosuchuser
scontrol create reservationname=r6 starttime=now+7hour duration=10 nodes=n1 accounts=nosuchacct
scontrol create reservationname=r7 starttime=now+8hour duration=10 nodes=n1 users=root nosuch=1
scontrol update reservationname=r1 duration=20
scontrol update reservationname=r1 users+=nobody
scontrol show reservation r1 | grep -oE 'Users=\S*'
scontrol update reservationname=r1 users-=nobody
scontrol update reservationname=nosuch duration=20
scontrol delete reservationname=r1
scontrol delete reservation=r1
for r in $(scontrol -o show res | grep -oE 'ReservationName=\S*' | cut -d= -f2); do scontrol delete reservationname=$r; done
scontrol show res
"""

# Running steps, turns, accounts; and what a step is given.
LOOKS = r"""
a <- sbatch --parsable -n 2 -t 5 -J st --wrap 'srun sleep 60'
h <- sbatch --parsable -H -n 2 -t 5 -J prio --wrap true
sleep 2
scontrol -d show job {a} | grep -oE '(JOB_GRES|Nodes|Mem|GRES)=\S*'
scontrol show step {a}.0 | grep -v SrunHost
scontrol show step {a} | grep -oE '(StepId|CPUs|TRES)=\S*'
scontrol listpids {a}.0 | awk 'NR>1{print $2,$3,$4,$5}' | sort
scontrol listpids {a} | awk 'NR>1{print $3}' | sort -u
scontrol pidinfo $(scontrol listpids {a}.0 | awk 'NR==2{print $1}') | grep -c .
scontrol pidinfo x
scontrol top {a}
scontrol top {h}
scontrol top 999999
scontrol requeue {h}
scontrol write batch_script {a} y.sh
cat y.sh
sstat -j {a} -n -P -o jobid
sstat -j {a}.0 -n -P -o jobid
sstat -j {a}.batch -n -P -o jobid
sstat -a -j {a} -n -P -o jobid
sstat -j {a} | head -1
sstat -j 999999
sstat -j x
sstat -j {h}
sstat -j {a}.9
sprio -h -j {h} -o %i
sprio -h -j 999999
sprio -h -u nosuch
sshare | head -2
sshare -A nosuch
sacctmgr show cluster -n -P format=cluster
sacctmgr show qos -n -P format=name
sacctmgr -n -P show qos format=name,priority,maxwall,flags
sacctmgr show runaway
sacctmgr show wckey -n -P
sbatch --test-only -n 3 -N 2 --wrap true
srun --test-only -N 2 true
sbatch --test-only -w n2 --wrap true
umask 027; srun sh -c 'umask; echo $SLURM_UMASK'
umask 027; sbatch --wait -o um.out --wrap 'umask; srun sh -c "umask; echo \$SLURM_UMASK"; umask 077; srun sh -c umask' > /dev/null; grep -v srun: um.out
scancel {a} {h}
wait a
"""

# As workflow managers and portals ask.
TOOLS = r"""
a <- sbatch --parsable -J tool -t 5 -n 2 --mem=50 --comment='c d' -o %j.out --wrap 'srun -n 2 true; sleep 2; exit 3'
b <- sbatch --parsable -J tarr -a 0-3%2 -t 5 --wrap 'sleep 1; exit $((SLURM_ARRAY_TASK_ID == 2))'
c <- sbatch --parsable -J trun -t 5 --wrap 'sleep 100'
d <- sbatch --parsable -J tdep -d afterok:{a} -t 5 --wrap true
wait a
wait b
sleep 3
sacct --jobs={a} --format=JobID,State --noheader --parsable2 -X
sacct -o JobID,State,ExitCode --parsable2 -j {b}
sacct -n -X -P -j {b} --format=jobidraw,jobid | awk -F'|' '{print ($1 > 0), $2}'
sacct -X --noheader --parsable2 --format=JobIdRaw,State --name tool --starttime now-1hour --endtime now | awk -F'|' '{print $2}' | sort -u
sacct -j {a} --format=State --noheader | head -1 | tr -d ' '
sacct -b -j {a} -n
sacct -j {a}.batch --format=jobid,exitcode -n -P
sacct -j {a}.0 --format=jobid,ntasks,nnodes,alloccpus -n -P
sacct -j {a} -o jobid,jobname%30,partition,state,elapsed,timelimit -P | cut -d'|' -f1-4
sacct -X -j {a},{b},{c} -n -P -o jobid,state,exitcode | sort
sacct -X -s RUNNING -j {c} -n -P -o state
sacct -j {a} -n -P -o submit,start,end | head -1
sacct --units=M -j {a} -n -X -P -o reqmem
sacct -j {c} -n -X -o end
sacct -j {c} -n -X -P -o exitcode,derivedexitcode
sacct -j {b}_2 -n -X -P -o state,exitcode
sacct -j {b}_9 -n -X -P -o state,exitcode
sacct -a -X -n -S now-1hour -r main -P -o partition | sort -u
sacct -X -n -P -S now-1hour -E now --name tool -o user,group | sort -u
scontrol show job {b}_99
squeue -h -j {d} -o '%t %r %E'
scontrol show job {d} | grep -oE '(JobState|Reason|Dependency)=\S*'
scontrol update jobid={d} dependency=
sleep 2
squeue -h -j {d} -t all -o '%T'
scontrol show job {a} | grep -oE '(JobState|ExitCode|Comment|MinMemoryNode|NumTasks)=.*'
scontrol show job {c} | grep -E 'RunTime' | grep -oE 'TimeLimit=\S*'
scontrol -o show jobs | wc -l | awk '{print ($1 > 3)}'
scontrol show job {b}_1 | grep -oE 'ArrayTaskId=\S*'
scancel --state=RUNNING --name=trun
wait c
sacct -j {c} -n -X -P -o state
squeue -h -j {c} -t CA -o %T
scancel --quiet {c}; echo $?
scancel {c} 999999 x; echo $?
scancel -n trun -u root; echo $?
e <- sbatch --parsable -H -J te1 -t 5 --wrap true
f <- sbatch --parsable -H -J te2 -t 5 --wrap true
scontrol update jobid={e},{f} timelimit=7
squeue -h -j {e},{f} -o %l
scontrol update jobid={e} partition=main name=both comment=both nice=4
squeue -h -j {e} -o '%j %k %y'
scontrol update jobid={e} nodelist=n2
squeue -h -j {e} -o '%n'
scontrol update jobid={e} reqnodelist=
squeue -h -j {e} -o '%n'
scontrol update jobid={e} excnodelist=n1
scontrol show job {e} | grep -oE 'ExcNodeList=\S*'
scontrol update jobid={e} excnodelist=
scontrol update jobid={e} numnodes=1-2
scontrol show job {e} | grep -oE 'NumNodes=\S*'
scontrol update jobid={e} eligibletime=now+1hour
scontrol update jobid={e} deadline=x
scontrol update jobid={e} starttime=2020-01-01
scontrol hold {e} {f}
scontrol release {e},{f}
wait e
wait f
"""

# Without rights.
STRANGER = r"""
a <- sbatch --parsable -J mine -t 5 --wrap 'sleep 30'
sleep 4
sacct -n -X -P -o jobname | sort -u
sacct -n -X -P -s R -o jobname
scontrol hold {a}
squeue -h -j {a} -o '%r'
scontrol release {a}
scontrol update jobid={a} timelimit=3
scontrol update jobid={a} timelimit=30
scontrol update jobid={a} priority=7
scontrol create partitionname=x nodes=n1
scontrol delete partitionname=main
scontrol create reservation starttime=now duration=5 nodes=n1 users=nobody
scontrol delete reservationname=zz
scontrol update nodename=n1 state=resume
scancel -s USR1 999999
scancel {a}
wait a
"""
