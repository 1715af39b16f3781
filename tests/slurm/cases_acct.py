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
