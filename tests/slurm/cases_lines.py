"""More lines for both sides: what squeue and sinfo print and how they choose and sort, the list of steps, how
scripts and steps run, where their files go. SHORT is for every day. See cases.lines for the marks."""

SHORT = r"""
squeue -h -S foo -o %j
squeue -h -o '%-10i|%!'
squeue -h -o '%%i'
squeue -h -w nosuch
squeue -h -L nosuch
squeue -h -M {cluster} -o %i
sinfo -h -o '%#P|%-3D'
sinfo -h -t idle,drained -o '%N %t'
sinfo -i 0
sinfo -i x
sinfo -h -S -N -N -o %N
sinfo -h -M {cluster} -o %P
set -o pipefail; for i in 1 2 3 4 5 6 7 8; do scontrol show hostnames n[1-9] | head -n 1 || echo broken; done
"""

LICENSES = r"""
scontrol show licenses
scontrol -o show lic gauss
a <- sbatch --parsable -J one -t 5 -L fluent:2 --wrap 'sleep 300'
b <- sbatch --parsable -J two -t 5 -L fluent:2,gauss -H --wrap 'true'
? sbatch -L nosuch --wrap true
? sbatch -L fluent:4 --wrap true
? sbatch -L fluent:x --wrap true
sleep 2
squeue -h -S i -o '%j %t %W'
squeue -h -S i -L gauss -o '%j'
squeue -h -S i -L fluent,gauss -o '%j'
scontrol show licenses
scontrol show job {b} | grep -o 'Licenses=[^ ]*'
scontrol release {b}
sleep 2
squeue -h -j {b} -o '%t %r'
scontrol update jobid={b} licenses=nosuch
scontrol update jobid={b} licenses=fluent:1
wait b
scancel {a}
wait a
scontrol show licenses
"""

QUEUE = r"""
a <- sbatch -H --parsable -J alpha -t 1:30:00 --mem=100 -n 2 -c 2 --comment='hello world'  --nice=7 --mail-user=x@y --mail-type=END --wrap 'true'
b <- sbatch --parsable -J beta -N 2 -t 10 --wrap 'srun sleep 300'
c <- sbatch --parsable -H -a 1-20:2%3 -J gamma -d afterany:{b} --wrap true
d <- sbatch --parsable -J delta -d afterok:{b} --wrap true
sleep 2
squeue -h -S '-j' -o %j
squeue -h -S 'N' -o %j
squeue -h -S 'u,j' -o %j
squeue -h -S 'foo' -o %j
squeue -h --sort=+i,-t -o %j
squeue --sort=i -h -o '%10i|%-10i|%.10i|%.-5i'
squeue -h -S i -o '%.10j|%3j|%.3j|%j|%0j|%.0j'
squeue -S i -o '%i %j %t' -h -p main
squeue -h -S i -p nosuch
squeue -h -S i -t PENDING -o '%i %T'
squeue -h -S i -t pending,running -o '%i %T'
squeue -h -S i -t PD,R,CG -o '%j %T'
squeue -h -S i -t all -j {a},{b} -o '%j %T'
squeue -h -S i --states=all -j {a} -o '%j %T'
squeue -h -u root,nobody -S i -o %j
squeue -h -u 0 -S i -o %j
squeue -h -u nosuch -o %j
squeue -h -A nosuch -o %j
squeue -h -q nosuch -o %j
squeue -h -R nosuch -o %j
squeue -h -L nosuch -o %j
squeue -h -w n1 -o %j
squeue -h -w n2 -o %j
squeue -h -w nosuch -o %j
squeue -h -n alpha,beta -S i -o %j
squeue -h --name=gamma -o %i
squeue --me -h -S i -o %j
squeue -h --me -t R -o %j
squeue -h -j {c} -O dependency
squeue -h -j {c} -O 'jobarrayid:30,dependency:40'
squeue -j {a} -O 'jobid,name,username,state'
squeue -j {a} -O 'JobID:10 ,Name:20|,StateCompact'
squeue -j {a} -O 'JobID,,Name'
squeue -j {a} -O 'nosuch'
squeue -j {a} -o '%'
squeue -j {a} -o '%!'
squeue -j {a} -o 'abc'
squeue -j {a} -o '%i,%j;%u'
squeue -j {a} -o '%%i'
squeue -j {a} -h -o '%i\n%j'
squeue -h -j {a} -o '%b|%m|%C|%c|%d|%f|%k|%y'
squeue -h -j {a} -o '%v|%w|%x|%X|%Y|%z|%H|%I|%J'
squeue -h -j {a} -o '%n|%N|%o|%O|%h|%e|%S|%L'
squeue -h -j {b} -o '%n|%N|%B|%D|%C|%R|%r|%A|%F|%K|%s'
squeue -h -j {b} -O 'batchhost,nodelist,numnodes,numcpus,numtasks'
squeue -h -j {a} -O 'tres-per-node:40'
squeue -h -j {b} -O 'tres-alloc:60'
squeue -h -j {a} -O 'accruetime'
squeue -h -j {a} -O 'admin_comment,system_comment'
squeue -h -j {a} -O 'container,cpus-per-task,cpus-per-tres,deadline,delayboot'
squeue -h -j {a} -O 'cronjob'
squeue -h -j {a} -O 'exit_code,derivedec'
squeue -h -j {a} -O 'hetjobid,hetjoboffset,hetjobidset'
squeue -h -j {a} -O 'jobarrayid,lastschedeval'
squeue -h -j {a} -O 'mintime,nodes'
squeue -h -j {a} -O 'ntperboard,ntpercore,ntpernode,ntpersocket'
squeue -h -j {a} -O 'origin,originraw,siblingsactive,siblingsactiveraw,siblingsviable,siblingsviableraw'
squeue -h -j {a} -O 'pendingtime' | grep -c .
squeue -h -j {a} -O 'power,preemptime,prefer,priority'
squeue -h -j {a} -O 'profile,qos,reason,reasonlist,reboot,reqnodes,reqswitch,requeue,resizetime,restartcnt,resvport'
squeue -h -j {a} -O 'userid,username,wait4switch,wckey,workdir:80'
squeue -h -j {a} -O 'stderr:80,stdin,stdout:80'
squeue -h -j {a} -O 'command:80'
SQUEUE_FORMAT='%i %j' squeue -h -j {a}
SQUEUE_FORMAT2='jobid:12,name:10' squeue -h -j {a}
SQUEUE_SORT='-j' squeue -h -o %j
SQUEUE_STATES=R squeue -h -o %j
SQUEUE_USERS=nobody squeue -h -o %j
SQUEUE_NAMES=alpha squeue -h -o %j
SQUEUE_PARTITION=nosuch squeue -h -o %j
SQUEUE_ACCOUNT=nosuch squeue -h -o %j
SQUEUE_QOS=nosuch squeue -h -o %j
SQUEUE_ALL=1 squeue -h -n alpha -o %i
SQUEUE_PRIORITY=1 squeue -h -n alpha -o %i
SLURM_BITSTR_LEN=8 squeue -h -n gamma -o %i
SLURM_BITSTR_LEN=0 squeue -h -n gamma -o %i
squeue -h -j {c} -o '%.10i|%K'
squeue -s -h -j {b} -o '%i'
squeue -s -h -j {b} -o '%i %j %P %u %N %A %l'
squeue -s -j {b} | sed 's/ 0:[0-9]*/ T/'
squeue -s -h -O 'stepid,stepname'
squeue -s -O 'stepid,stepname,nosuch'
squeue -s -h -O 'jobid,stepid,stepname,stepstate,numtasks,nodes,userid,username,partition'
squeue --start -h -j {d} | sed 's/  */ /g'
squeue -P -h -j {a} -o '%i %P'
squeue -a -h -j {a} -o %i
squeue --hide -h -j {a} -o %i
squeue -h -j {a} --noconvert -o '%m'
squeue --federation -h -j {a} -o %i
squeue --local -h -j {a} -o %i
squeue -M all -h -j {a} -o %i
squeue -M {cluster} -j {a} -o %i
squeue -M {cluster} -h -j {a} -o %i
squeue -h -j {a},{b} -S i -o %j
squeue -h --job={b} -o %j
squeue -h -t x
squeue -h -t ''
squeue -h -t RUNNING,nosuch
squeue -h -i 0
scancel -u root
wait b
"""

NODES = r"""
scontrol update nodename=n2 state=drain reason='bad disk, replace'
sleep 2
sinfo
sinfo -l | tail -n +2
sinfo -N
sinfo -N -l | tail -n +2
sinfo -Nel | tail -n +2
sinfo -s
sinfo -s -h
sinfo -R | sed 's/ *<time>/ T/'
sinfo -R -l | sed 's/ *<time>/ T/' | tail -n +2
sinfo -h -R -o '%20E %12U %19H %6t %N'
sinfo -e
sinfo --exact -h -o '%P %t %D %N'
sinfo -d
sinfo --dead -h
sinfo -r
sinfo -t idle
sinfo -h -t drain
sinfo -h -t drained,mix
sinfo -h -t MIXED -o '%N %T'
sinfo -h -t alloc -o '%N'
sinfo -h -t all -o '%N %t'
sinfo -h --states=DRAINED -o '%N %T'
sinfo -h -t comp -o '%N'
sinfo -h -n n1 -o '%N %t'
sinfo -h -n n1,n2 -o '%N %t'
sinfo -h -n 'n[1-2]' -o '%N %t'
sinfo -h -n nosuch -o '%N %t'
sinfo -n n1
sinfo -p main
sinfo -p nosuch
sinfo -p main,nosuch -h
sinfo -o '%P|%.5a|%.10l|%.6D|%.6t|%N'
sinfo -o '%#P'
sinfo -o '%9P %5a %10l %6D %6t %N'
sinfo -h -o '%w|%X|%Y|%Z|%z|%V' | sed 's/|22.*//'
sinfo -o '%q'
sinfo -o '%!'
sinfo -o '%%P'
sinfo -o ''
sinfo -o 'abc'
sinfo -h -O allocmem,allocnodes,available,cluster,comment
sinfo -h -O preemptmode,priorityjobfactor,prioritytier,reason,root,size
sinfo -h -O sockets,socketcorethread,statecomplete,statecompact,statelong
sinfo -O 'partition:10,nodes:.6,cpusstate:20'
sinfo -O 'partition:|,nodes:;'
sinfo -O 'nosuch'
sinfo -O ''
sinfo -h -O 'NodeList:20,,Nodes'
sinfo -h -O statelong,nodeaiot:15,cpusstate -N
sinfo -a -h
sinfo --all -h
sinfo --hide -h
sinfo -S 'N' -h -N -o %N
sinfo -S '-N' -h -N -o %N
sinfo -S 't' -h -o %t
sinfo -S '-t' -h -o %t
SINFO_FORMAT='%P %D' sinfo -h
SINFO_PARTITION=nosuch sinfo -h
SINFO_SORT='-t' sinfo -h -o %t
SINFO_ALL=1 sinfo -h -o %P
sinfo -T
sinfo -h -b
sinfo -M {cluster} -h -o %P
sinfo -M {cluster} -o %P
sinfo -M all -o %P
sinfo -M nosuch -o %P
sinfo --local -h -o %P
sinfo --noconvert -h -o '%m'
sinfo -h --future -o %N
sinfo extra
sinfo -i 0
sinfo -i x
sinfo -c
sinfo --responding -h -o '%D'
sinfo -h -o '%.3D|%3D|%-3D|%03D|%.03D'
sinfo -h -o '%5.2f'
sinfo -ho '%30N|%.30N'
sinfo -h -o '%C' -p main
sinfo -h -N -o '%N %P %t'
scontrol update nodename=n2 state=resume
scontrol update nodename=n1 state=drain reason=x
sleep 1
sinfo -s -h
sinfo -h -o %A/%F/%C
scontrol update nodename=n1 state=undrain
scontrol update nodename=n2 state=down reason=dead
sleep 1
sinfo -dh -o '%N'
scontrol update nodename=n2 state=idle
sleep 1
scancel {b}
wait b
c <- sbatch --parsable --exclusive -N 2 --wrap 'sleep 20'
sleep 2
sinfo -h -o '%t %T %N %C'
sinfo
scontrol update partitionname=main state=down
sinfo -h
sinfo -s -h
scontrol update partitionname=main state=drain
scontrol update partitionname=main state=inactive
scontrol update partitionname=main state=up
scancel {c}
wait c
"""

STEP_LIST = r"""
a <- sbatch --parsable -N 2 -J stp -t 5 --wrap 'srun -J mystep sleep 60'
b <- sbatch --parsable -a 3 -J stp -t 5 --wrap 'srun -J arr sleep 60'
sleep 2
squeue -h -s -o '%a'
squeue -h -s -o '%b'
squeue -h -s -o '%c'
squeue -h -s -o '%d'
squeue -h -s -o '%e'
squeue -h -s -o '%f'
squeue -h -s -o '%g'
squeue -h -s -o '%h'
squeue -h -s -o '%i'
squeue -h -s -o '%j'
squeue -h -s -o '%k'
squeue -h -s -o '%l'
squeue -h -s -o '%m'
squeue -h -s -o '%n'
squeue -h -s -o '%o'
squeue -h -s -o '%p'
squeue -h -s -o '%q'
squeue -h -s -o '%r'
squeue -h -s -o '%s'
squeue -h -s -o '%t'
squeue -h -s -o '%u'
squeue -h -s -o '%v'
squeue -h -s -o '%w'
squeue -h -s -o '%x'
squeue -h -s -o '%y'
squeue -h -s -o '%z'
squeue -h -s -o '%A'
squeue -h -s -o '%B'
squeue -h -s -o '%C'
squeue -h -s -o '%D'
squeue -h -s -o '%E'
squeue -h -s -o '%F'
squeue -h -s -o '%G'
squeue -h -s -o '%H'
squeue -h -s -o '%I'
squeue -h -s -o '%J'
squeue -h -s -o '%K'
squeue -h -s -o '%L'
squeue -h -s -o '%N'
squeue -h -s -o '%O'
squeue -h -s -o '%P'
squeue -h -s -o '%Q'
squeue -h -s -o '%R'
squeue -h -s -o '%S'
squeue -h -s -o '%T'
squeue -h -s -o '%U'
squeue -h -s -o '%V'
squeue -h -s -o '%W'
squeue -h -s -o '%X'
squeue -h -s -o '%Y'
squeue -h -s -o '%Z'
squeue -s -O nosuch
squeue -s -h -O array-job-id
squeue -s -h -O arrayjobid
squeue -s -h -O arraytaskid
squeue -s -h -O gres
squeue -s -h -O jobid
squeue -s -h -O name
squeue -s -h -O nodelist
squeue -s -h -O nodes
squeue -s -h -O ntasks
squeue -s -h -O numtasks
squeue -s -h -O partition
squeue -s -h -O state
squeue -s -h -O stepid
squeue -s -h -O stepname
squeue -s -h -O stepstate
squeue -s -h -O timelimit
squeue -s -h -O starttime
squeue -s -h -O userid
squeue -s -h -O username
squeue -s -h -O tasks
squeue -s -h -O resvports
squeue -s -h -O tres
squeue -s -h -O tresperstep
squeue -s -h -O tres-per-step
squeue -s -h -O container
squeue -s -h -O sct
squeue -s -h -j {a} -o "%i %A"
squeue -h -s {a}.0
squeue -h -s {a}.0,{b}_3.0 -o %i
squeue -h -s -u nobody
scancel -u root
"""

SCRIPTS = r"""
a <- sbatch --parsable -J nm -o '%u_%x_%n_%t_%s_%8j_%A_%J_%%.o1' --wrap 'echo hi'
wait a
ls *.o1 | sed 's/[0-9]\{4,\}/ID/g'
a <- sbatch --parsable -a 4-5 -J nm -o '%A_%a-%3a-%x.o2' -e '%A_%a.e2' --wrap 'echo out; echo err >&2'
wait a
ls *.o2 *.e2 | sed 's/[0-9]\{4,\}/ID/g'
a <- sbatch --parsable -a 4-5 -J pat -n 2 -o /dev/null --wrap 'srun -o s_%A_%a_%x_%u_%t_%s.so sh -c "echo hi"; srun -o t_%A_%a.so echo x'
wait a
ls *.so | sed 's/[0-9]\{4,\}/ID/g'
srun -J alone -o w_%x_%u.so4 echo hi; ls *.so4
a <- sbatch --parsable -a 2-10:4 -o st.%a --wrap 'echo $SLURM_ARRAY_TASK_ID $SLURM_ARRAY_TASK_COUNT $SLURM_ARRAY_TASK_MIN $SLURM_ARRAY_TASK_MAX $SLURM_ARRAY_TASK_STEP'
wait a
cat st.2 st.6 st.10
a <- sbatch --parsable -a 1,5,9 -o st2.%a --wrap 'echo $SLURM_ARRAY_TASK_ID $SLURM_ARRAY_TASK_COUNT $SLURM_ARRAY_TASK_MIN $SLURM_ARRAY_TASK_MAX $SLURM_ARRAY_TASK_STEP'
wait a
cat st2.1 st2.5 st2.9
a <- sbatch --parsable -o rel/x.out --wrap 'echo hi'
wait a
squeue -h -j {a} -t all -o '%T'
a <- sbatch --parsable -o in.out -i /etc/hostname --wrap 'cat'
wait a
cat in.out
a <- sbatch --parsable -o exp.out --export=ALL,X=1,Y='a b' --wrap 'echo $X $Y $HOME'
wait a
cat exp.out
a <- FOO=bar sbatch --parsable -o exp.out --export=FOO,Z=2 --wrap 'echo $FOO $Z; echo "[$LANG]"; [ -n "$PATH" ] && echo path'
wait a
cat exp.out
a <- printf '#!/bin/bash\n#SBATCH -J here\n#SBATCH -o here.out\necho args $# $1 $2\n' > h.sh; sbatch --parsable h.sh one 'two words'
wait a
cat here.out
a <- sbatch --parsable <<< $'#!/bin/bash\n#SBATCH -o hd.out\necho heredoc $TMPDIR $([ $SLURM_TASK_PID = $$ ] && echo own)\n'
wait a
cat hd.out
a <- sbatch --parsable -n 3 -o mp.out --wrap 'printf "0 echo master\n1-2 echo worker %%t of %%o\n" > mp.conf; srun -l --multi-prog mp.conf | sort'
wait a
cat mp.out
a <- sbatch --parsable -n 4 -o pk.out --wrap 'for i in 1 2 3 4; do srun -n1 -c1 --exact sh -c "echo \$SLURM_STEP_NUM_TASKS" & done; wait'
wait a
cat pk.out
a <- sbatch --parsable -N 2 -o hn.out --wrap 'scontrol show hostnames $SLURM_JOB_NODELIST; scontrol show hostnames; head_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1); srun --nodes=1 --ntasks=1 -w $head_node sh -c "echo \$SLURMD_NODENAME \$SLURM_NODEID \$SLURM_NNODES \$SLURM_NODELIST; [ -n \"\$SLURM_LAUNCH_NODE_IPADDR\" ] && echo address"'
wait a
cat hn.out
a <- sbatch --parsable -N 2 --ntasks-per-node=4 -c 2 -o tr.out --wrap 'srun sh -c "echo \$SLURM_NODEID \$SLURM_PROCID \$SLURM_LOCALID \$SLURM_NTASKS \$SLURM_STEP_TASKS_PER_NODE \$SLURM_GTIDS \$SLURM_CPUS_PER_TASK \$SLURM_CPUS_ON_NODE" | sort -k2n'
wait a
cat tr.out
a <- sbatch --parsable -O -n 4 -o oc.out --wrap 'echo $SLURM_NTASKS $SLURM_CPUS_ON_NODE $SLURM_OVERCOMMIT; srun sh -c "echo \$SLURM_PROCID \$SLURM_NTASKS" | sort'
wait a
cat oc.out
a <- sbatch --parsable -O -N 2 -n 4 -o oc2.out --wrap 'srun sh -c "echo \$SLURM_PROCID \$SLURM_NODEID" | sort'
wait a
cat oc2.out
salloc -Q -O -n 3 srun sh -c 'echo $SLURM_PROCID' | sort
sbatch --parsable -H -n 1 -N 2 --wrap true | xargs -I@ sh -c 'squeue -h -j @ -o "%C %D"; scancel @'
a <- sbatch --parsable -o chain1 --wrap 'exit 0'
b <- sbatch --parsable -d afterok:{a} -o chain2 --wrap 'exit 1'
d <- sbatch --parsable -d afternotok:{b} --wrap 'true'
f <- sbatch --parsable -d afterok:{a},afterany:{b} --wrap 'true'
wait d
wait f
squeue -h -j {d} -t all -o '%T %r'
squeue -h -j {f} -t all -o '%T %r'
a <- sbatch --parsable -a 1-3 --wrap 'sleep 2; [ $SLURM_ARRAY_TASK_ID != 2 ]'
b <- sbatch --parsable -a 1-3 -d aftercorr:{a} --wrap true
c <- sbatch --parsable -d afterok:{a}_1 --wrap true
d <- sbatch --parsable -d afterany:{a} --wrap true
wait a
wait c
wait d
sleep 1
squeue -h -r -j {b} -t all -o '%i %T %r' -S i
squeue -h -j {c} -t all -o '%T'
scancel {b}
j <- sbatch -H --parsable -a 1-13:2 --wrap true
squeue -h -j {j} -o '%i'
scancel {j}
j <- sbatch -H --parsable -a 0,20 --wrap true
squeue -h -j {j} -o '%i'
scancel {j}
a <- sbatch --parsable --mem=0 -n 2 --wrap 'sleep 5'
sleep 1.5
scontrol show job {a} | grep -oE 'mem=[0-9]*M'
scancel {a}
"""

RUNNING = r"""
a <- sbatch --parsable -J sing -d singleton --wrap 'sleep 30'
b <- sbatch --parsable -J sing -d singleton --wrap true
sleep 1.5
squeue -h -j {b} -o '%T %r %E'
scancel {a}
wait b
squeue -h -j {b} -t all -o '%T %r %E'
a <- sbatch --parsable -N 2 -o rel2.out --wrap 'srun -n1 -x n1 sh -c "echo \$SLURMD_NODENAME" 2>/dev/null; srun -x n2 -N 1 sh -c "echo \$SLURMD_NODENAME"; srun -x n1,n2 -N 1 true 2>/dev/null; echo $?; srun -n 4 -O sh -c "echo \$SLURM_PROCID \$SLURM_NODEID" | sort'
wait a
cat rel2.out
a <- sbatch --parsable -t 1 --signal=B:USR1@50 -o sg.out --wrap 'trap "echo caught; exit 0" USR1; sleep 100 & wait'
d <- sbatch --parsable -t 1 --signal=SIGUSR1@50 -o sg4.out --wrap 'srun bash -c "trap \"echo step; exit 0\" USR1; sleep 100 & wait"'
wait a
wait d
cat sg4.out
salloc -Q -N 2 bash -c 'srun -l sh -c "echo \$SLURM_PROCID" | sort'
salloc -n 2 -t 5 -J inter bash -c 'squeue -h -j $SLURM_JOB_ID -o "%j %t %C %l"'
salloc true
salloc -Q false
salloc -Q -I sh -c 'echo ok'
salloc -Q --immediate=2 -w n1 sh -c 'echo ok'
echo 'echo in shell $SLURM_NTASKS; exit 4' | SHELL=/bin/bash salloc -Q -n 2
srun -n 2 --pty sh -c 'echo $SLURM_PROCID' | sort
srun --immediate=3 echo ok
srun -I -N 1 echo ok
srun -c 3 sh -c 'echo $SLURM_CPUS_PER_TASK $SLURM_CPUS_ON_NODE'
srun --spread-job -n 2 -N 2 sh -c 'echo $SLURM_NODEID' | sort
srun --use-min-nodes -n 2 sh -c 'echo $SLURM_NNODES'
srun --contiguous -N 2 sh -c 'echo ok'
srun --propagate=STACK echo ok
srun --export-file=/dev/null echo ok
srun -E echo ok
srun --quit-on-interrupt echo ok
srun --disable-status echo ok
srun --nice=5 echo ok
srun --comment=x echo ok
srun --begin=now echo ok
srun --mcs-label=x echo ok
srun --wckey=x echo ok
srun --container= echo ok
srun --network=x echo ok
srun --core-spec=0 echo ok
srun --ntasks-per-core=1 -n 2 echo ok
srun --ntasks-per-socket=2 -n 2 echo ok
srun --sockets-per-node=1 echo ok
srun --cores-per-socket=2 echo ok
srun --time-min=1 -t 5 echo ok
srun --mail-type=ALL --mail-user=x echo ok
srun --cpu-bind=help | head -1
srun --hint=help | head -1
srun --cpu-freq=Performance echo ok
srun --power=level echo ok
srun -k echo ok
srun -s echo ok
"""
