"""Values that are refused, and in which words; and steps. See cases.lines for the marks."""

VALUES = r"""
? sbatch -N 9 --wrap true
? sbatch -n 999 --wrap true
? srun --mem=99999G true
? srun -w nosuch true
? srun -w n[1-3] true
? srun -p nope true
? salloc -p nope true
? salloc --mem=99999G true
? timeout 2 srun -N 9 true
? timeout 2 srun -n 999 true
? timeout 2 salloc -N 9 true
? sbatch -A nosuch -H --wrap true
? sbatch --qos=nosuch -H --wrap true
? sbatch -C nosuch -H --wrap true
? sbatch -x nosuch -H --wrap true
? sbatch -d afterok:999999 -H --wrap true
? sbatch -a '1-3:0' -H --wrap true
? sbatch -a '' -H --wrap true
? sbatch -a '1,2,2,3' -H --wrap true
? sbatch --nice=x -H --wrap true
? sbatch --nice=99999999999 -H --wrap true
? sbatch --priority=x -H --wrap true
? sbatch --gres=gpu:x -H --wrap true
? sbatch --gres=gpu:99 -H --wrap true
? sbatch --gpus=99 -H --wrap true
? sbatch -G x -H --wrap true
? sbatch --gpus-per-node=x -H --wrap true
? sbatch --cpus-per-gpu=x -H --wrap true
? sbatch --mem-per-gpu=x -H --wrap true
? sbatch --ntasks-per-node=x -H --wrap true
? sbatch --ntasks-per-node=0 -H --wrap true
? sbatch --time-min=x -H --wrap true
? sbatch -t 5 --time-min=10 -H --wrap true
? sbatch --begin=x -H --wrap true
? sbatch --begin=2020-01-01 -H --wrap true
? sbatch --deadline=2020-01-01 -H --wrap true
? sbatch --signal=99 -H --wrap true
? sbatch --signal=B -H --wrap true
? sbatch --signal=@10 -H --wrap true
? sbatch --signal=USR1@99999999 -H --wrap true
? sbatch --mail-type=x -H --wrap true
? sbatch --mail-type=BEGIN,END,TIME_LIMIT_80 -H --wrap true
? sbatch --distribution=x -H --wrap true
? sbatch --distribution=cyclic:block,NoPack -H --wrap true
? sbatch --hint=x -H --wrap true
? sbatch --threads-per-core=x -H --wrap true
? sbatch --profile=x -H --wrap true
? sbatch --profile=task,energy -H --wrap true
? sbatch --export= -H --wrap true
? sbatch --job-name= -H --wrap true
? sbatch -D /nosuchdir -H --wrap true
? sbatch --uid=nosuch -H --wrap true
? sbatch --licenses=foo -H --wrap true
? sbatch --tmp=x -H --wrap true
? sbatch --tmp=5 -H --wrap true
? sbatch --mincpus=2 -H --wrap true
? sbatch --container=x -H --wrap true
? sbatch --bb=x -H --wrap true
? sbatch -J
? sbatch --time
? sbatch --no-such=3
? sbatch -y
? sbatch --ntas=3 -H --wrap true
? sbatch --mem=-5 -H --wrap true
? sbatch --mem= -H --wrap true
? sbatch -n '' -H --wrap true
? sbatch -c -1 -H --wrap true
? sbatch -t -5 -H --wrap true
? sbatch -p '' -H --wrap true
? sbatch -p main,nope -H --wrap true
? sbatch -w n[1-2 -H --wrap true
? sbatch -w n1 -x n1 -H --wrap true
? sbatch -N 2 -w n1 -H --wrap true
? sbatch -N 1 -w n[1-2] -H --wrap true
? sbatch -N 3-4 -H --wrap true
? sbatch --exclusive=x -H --wrap true
? sbatch --exclusive=user -H --wrap true
? sbatch --oversubscribe -H --wrap true
? sbatch --kill-on-invalid-dep=x -H --wrap true
? sbatch --kill-on-invalid-dep=yes -H --wrap true
? sbatch --no-kill=x -H --wrap true
? sbatch --core-spec=1 -H --wrap true
? sbatch --switches=x -H --wrap true
? sbatch --switches=1@10 -H --wrap true
? sbatch --wait-all-nodes=x -H --wrap true
? sbatch --open-mode=app -H --wrap true
? sbatch --mem-bind=x -H --wrap true
? sbatch --gpu-bind=x -H --wrap true
? sbatch --gres-flags=x -H --wrap true
? sbatch --reboot -H --wrap true
? sbatch --test-only --wrap true
? sbatch --test-only -p nope --wrap true
? srun --test-only true
? srun --jobid=999999 true
? srun -i /nosuch cat
? srun -o /nosuch/x true
? srun --multi-prog /nosuch
scancel -u root
"""

ARRAYS = r"""
j <- sbatch -H --parsable -a 1-5 -J arr --wrap true
squeue -h -j {j}_2 -o '%i %t'
squeue -h -j {j}_9 -o '%i %t'
squeue -h -j {j} -o '%A|%F|%K|%i'
squeue -h -r -j {j} -o '%i %F %K %j'
squeue -h --array-unique -j {j} -o '%i'
scontrol show job {j} | grep -o 'ArrayTaskId=\S*'
scontrol -o show job {j}_2 | grep -o 'ArrayTaskId=\S*'
scontrol hold {j}_2
scontrol update jobid={j}_3 name=third
squeue -h -r -j {j} -o '%i %j' | sort
scontrol update jobid={j}_[4-5] timelimit=7
squeue -h -r -j {j} -o '%i %l' | sort
scontrol update arrayjobid={j} name=x
scancel {j}_1
scancel {j}_[3,5]
squeue -h -r -j {j} -o '%i' | sort
scancel {j}_x
scancel {j}_[x]
scancel {j}.x
scancel {j}_*
squeue -h -j {j} -o '%i'
squeue -h -j {j} -t all -r -o '%i %T' | sort
"""

# Who comes first is chance where several tasks speak.
STEPS = r"""
srun -n 2 sh -c 'exit $SLURM_PROCID'
srun -n 4 sh -c 'exit 3'
srun -n 5 sh -c 'exit $((SLURM_PROCID%2))'
srun -n 3 -K sh -c '[ $SLURM_PROCID = 1 ] && exit 5; sleep 20'
srun -n 3 --kill-on-bad-exit=1 sh -c '[ $SLURM_PROCID = 1 ] && kill -9 $$; sleep 20'
srun -n 2 -W 1 sh -c '[ $SLURM_PROCID = 1 ] && exit 0; sleep 20'
srun -n 2 --wait=1 -N 2 sh -c '[ $SLURM_PROCID = 1 ] && exit 0; sleep 20'
srun sh -c 'kill -TERM $$'
srun sh -c 'kill -SEGV $$'
srun sh -c 'kill -USR1 $$'
srun -n 2 sh -c 'kill -9 $$'
srun nosuchcommand
srun -n 3 nosuchcommand
srun /tmp
srun -l -n 12 sh -c 'echo $SLURM_PROCID' | sort -n
printf 'x\ny\n' | srun -n 2 -l cat | sort
printf 'x\ny\n' | srun -n 2 -i 1 -l cat
printf 'x\ny\n' | srun -n 2 -i none -l cat
printf 'x\ny\n' > in.txt; srun -n 2 -i in.txt -l cat | sort
srun -n 2 -o out.%t sh -c 'echo $SLURM_PROCID'; cat out.0 out.1
srun -n 2 -o out.%j.%s.%t sh -c 'echo $SLURM_PROCID'; ls out.*.*.* | sed 's/out.[0-9]*/out/'
srun -n 2 -o none sh -c 'echo $SLURM_PROCID'
srun -n 2 -o 1 sh -c 'echo $SLURM_PROCID'
srun -e err.txt sh -c 'echo o; echo e >&2'; cat err.txt
srun -o both.txt sh -c 'echo o; echo e >&2'; cat both.txt
srun -o both.txt --open-mode=append sh -c 'echo again'; cat both.txt
srun -u sh -c 'printf a; sleep 0.2; printf b'
printf '0 echo zero\n1-2 echo t=%%t o=%%o\n' > m.conf; srun -n 3 --multi-prog m.conf | sort
printf '0 echo zero\n' > m1.conf; srun -n 2 --multi-prog m1.conf
printf '* echo %%t\n' > m2.conf; srun -n 2 --multi-prog m2.conf | sort
printf '0-1 echo %%t\n' > m3.conf; srun --multi-prog m3.conf | sort
printf 'x echo zero\n' > m4.conf; srun -n 1 --multi-prog m4.conf
export FOO=1; srun --export=NONE sh -c 'echo $FOO.$HOME.$SLURM_NTASKS'
export FOO=1; srun --export=NONE,X=y sh -c 'echo $FOO.$X'
export FOO=1; srun --export=ALL,X=y sh -c 'echo $FOO.$X'
srun --export=X=y,Z=a=b sh -c 'echo $X.$Z'
srun -D /nosuch true
srun --mpi=list
srun --mpi=nosuch echo ok
srun --overcommit -n 70 sh -c 'echo 1' | wc -l
srun --pty sh -c 'tty >/dev/null && echo yes; exit 3'
script -qec "srun --pty sh -c 'tty >/dev/null && echo terminal; exit 3'" /dev/null < /dev/null | tr -d '\r' | sed 's/^^@//' | sort
timeout -s TERM 2 srun -n 1 sleep 20
timeout -s USR1 2 srun -n 1 sh -c 'trap "echo got; exit 4" USR1; sleep 5 & wait'
srun -n 2 sleep 33 & sleep 1.5; kill -INT $!; sleep 0.3; kill -INT $!; wait $!; echo $?
"""

INSIDE = r"""
a <- sbatch --parsable -n 4 --wrap 'sleep 60'
sleep 1.5
srun --jobid={a} -n 9 hostname
srun --jobid={a} -N 3 hostname
srun --jobid={a} --overlap -n 1 echo over
srun --jobid={a} -w n2 hostname
srun --jobid={a} -c 9 hostname
srun --jobid={a} --mem=1G true
srun --jobid={a} --gpus=1 true
srun --jobid={a} -r 1 true
squeue -s {a}.0
scontrol show step {a}.0
scancel --batch {a}
wait a
squeue -h -j {a} -t all -o '%T'
"""
