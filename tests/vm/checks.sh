# The checks inside the virtual machine, by busybox's shell: a real cluster on a kernel whose control
# groups are ours alone. Prints "ok NAME" or "not ok NAME: what was seen" for each; run.py counts.
# VM_MODE: v2, v1, hybrid, mixed or none. VM_ONLY: names of checks; else all.
export ACEQUIA_HOME=/var/acequia
mkdir -p $ACEQUIA_HOME /home/alice /var/volumes
chmod 755 /var /var/acequia
chown alice /home/alice
cat >$ACEQUIA_HOME/acequia.conf <<END
[cluster]
grace = 1s
admins = root
volume_folder = /var/volumes
[node *]
processes_per_job = 120
END
limits=yes  # the kernel enforces
[ "$VM_MODE" = none ] && limits=no
cd /tmp

ok() { echo "ok $NAME${1:+: $1}"; }
bad() { echo "not ok $NAME: $1"; FAILED=1; }
same() { [ "$1" = "$2" ] || bad "$3 is \"$1\", not \"$2\""; }
has() { case "$1" in *"$2"*) ;; *) bad "\"$2\" is not in: $1" ;; esac; }
between() { [ "${1:-0}" -ge "$2" ] && [ "${1:-0}" -le "$3" ] || bad "$4 is ${1:-nothing}, not $2 to $3"; }

# The value of a key in the record of job $J.
field() { acequia get --json "$J" | sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p"; }
submit() { J=$(acequia submit -Q "$@"); [ -n "$J" ] || bad "not submitted: $*"; }
# Submits, waits for the end; the state is in $STATE, the output in $OUT.
job() {
    submit -o /tmp/out-%j "$@"
    acequia wait "$J" >/dev/null 2>&1
    CODE=$?
    STATE=$(field state)
    OUT=$(cat "/tmp/out-$J" 2>/dev/null)
}
running() {  # waits until job $J runs
    for _ in $(seq 100); do
        [ "$(field state)" = RUNNING ] && return 0
        sleep 0.1
    done
    bad "job $J does not start: $(field state)"
}
# How many processes have this in their command line; written so that the search does not find itself.
alive() { grep -l "$1" /proc/[0-9]*/cmdline 2>/dev/null | wc -l; }
MIB=1048576

check_node() {
    missing=$(acequia nodes --json | sed -n 's/.*"missing":"\{0,1\}\([^"}]*\).*/\1/p')
    case "$VM_MODE" in
    v2 | v1 | hybrid | mixed) has "$missing" "null" ;;
    none) has "$missing" "memory limits are checked" ; has "$missing" "processes is not limited" ;;
    esac
    [ "$limits" = no ] || ls -d /sys/fs/cgroup/acequia/* /sys/fs/cgroup/*/acequia/* 2>/dev/null | grep -q . || bad "no control group of ours"
}

check_memory() {
    job -m 64M -- probe hog 200 8000
    same "$STATE" OUT_OF_MEMORY state
    has "$(acequia get "$J")" "over the memory limit of 64M"
    peak=$(field memory_peak_bytes)
    [ $limits = yes ] && between "$peak" $((60 * MIB)) $((65 * MIB)) peak
    [ $limits = no ] && between "$peak" $((60 * MIB)) $((260 * MIB)) peak
    same "$CODE" 137 "exit status of wait"
    case "$OUT" in *touched*) [ $limits = yes ] && bad "it got its memory" ;; esac
}

check_memory_of_children() {  # who ends it does not matter: the limit is the job's
    job -m 64M -- sh -c 'sleep 0.5; probe hog 40 60000 & probe hog 40 60000 & wait; exit 0'
    between "$(field wall_ms)" 0 30000 "time until all of it had ended"
    same "$STATE" OUT_OF_MEMORY state
    has "$(acequia get "$J")" "over the memory limit of 64M"
}

check_memory_inside_the_limit() {
    job -m 64M -- probe hog 40 500
    same "$STATE" COMPLETED state
    between "$(field memory_peak_bytes)" $((39 * MIB)) $((50 * MIB)) peak
}

check_memory_in_shared_memory() {  # files in memory are the job's memory too
    [ $limits = yes ] || return
    job -m 64M -- dd if=/dev/urandom of=/dev/shm/eaten bs=1M count=100
    rm -f /dev/shm/eaten
    same "$STATE" OUT_OF_MEMORY state
}

check_swap_is_no_way_out() {
    [ $limits = yes ] || return
    [ "$(grep -c zram /proc/swaps)" = 1 ] || bad "no swap"
    job -m 64M -- probe hog 100 300
    same "$STATE" OUT_OF_MEMORY state
    between "$(field memory_peak_bytes)" $((60 * MIB)) $((65 * MIB)) peak
}

check_processes() {
    [ $limits = yes ] || return
    job -- probe crowd 500
    made=$(echo "$OUT" | sed -n 's/^made //p')
    between "$made" 100 120 "number of processes"
    job -- true
    same "$STATE" COMPLETED "the next job"
}

check_fork_bomb() {
    [ $limits = yes ] || return
    submit -o /dev/null -- probe bomb
    running
    sleep 2
    [ "$(alive "probe.[b]omb")" -gt 20 ] || bad "it did not explode: $(alive "probe.[b]omb")"
    between "$(alive "probe.[b]omb")" 21 120 "size of the bomb"
    bomb=$J
    job -- echo meanwhile
    same "$OUT" meanwhile "another job's output"
    J=$bomb
    acequia cancel "$J" >/dev/null
    acequia wait "$J" 2>/dev/null
    same "$(field state)" CANCELLED state
    same "$(alive "probe.[b]omb")" 0 "processes left"
}

forks_a_second() {
    begin=$(cut -d' ' -f5 /proc/loadavg)
    sleep 1
    echo $(($(cut -d' ' -f5 /proc/loadavg) - begin))
}

check_hopper() {  # no process of it lives for long
    submit -o /dev/null -- sh -c 'probe hopper 3; sleep 30'
    running
    between $(forks_a_second) 40 100000 "forks a second while it hops"
    acequia cancel "$J" >/dev/null
    acequia wait "$J" 2>/dev/null
    same "$(field state)" CANCELLED state
    between $(forks_a_second) 0 30 "forks a second afterwards"
    same "$(alive "probe.[h]opper")" 0 "processes left"
}

check_hidden_process_ends_with_its_job() {
    job -- sh -c 'probe hide sleep 1111; probe hide; sleep 0.3; pidof sleep | wc -w'
    same "$STATE" COMPLETED state
    same "$OUT" 1 "hidden processes while it ran"
    same "$(alive "sleep.[1]111")" 0 "hidden sleeps left"
    same "$(alive "probe.[h]ide")" 0 "hidden probes left"
}

check_cpus() {
    submit -o /tmp/a -c 1 -- sh -c 'grep Cpus_allowed_list /proc/self/status; probe widen; sleep 2'
    first=$J
    running
    submit -o /tmp/b -c 1 -- sh -c 'grep Cpus_allowed_list /proc/self/status; probe widen; cat /sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup)/cpuset.cpus.effective'
    acequia wait "$first" "$J"
    a=$(sed -n 's/Cpus_allowed_list:[^0-9]*//p' /tmp/a) b=$(sed -n 's/Cpus_allowed_list:[^0-9]*//p' /tmp/b)
    same "$(printf '%s\n' $a $b | sort | tr '\n' ' ')" "0 1 " "cpus of two jobs"
    case "$VM_MODE" in
    v2)
        has "$(cat /tmp/a /tmp/b)" "on 1"
        same "$(tail -n 1 /tmp/b)" "$b" "cpuset.cpus.effective" ;;
    v1 | hybrid | mixed) has "$(cat /tmp/a /tmp/b)" "on 1" ;;
    none) has "$(cat /tmp/a)" "on 2" ;;
    esac
}

check_usage() {  # of a process that hides as well
    job -m 100M -- sh -c 'probe hide probe spin 700; probe hog 30 0; probe spin 500; while pidof probe >/dev/null; do sleep 0.1; done'
    same "$STATE" COMPLETED state
    # Emulated processors are slow at everything else too: no upper bound that would mean something.
    between $(($(field cpu_user_us) + $(field cpu_system_us))) 1150000 4000000 "cpu time"
    between "$(field memory_peak_bytes)" $((29 * MIB)) $((60 * MIB)) peak
}

check_time_limit() {
    job -t 2s -- sh -c 'trap "echo asked; exit 0" TERM; while :; do sleep 0.1; done'
    same "$STATE" TIMEOUT "state of one that obeys"
    same "$(echo "$OUT" | grep -x asked | tail -n 1)" asked "its output"
    job -t 2s -- sh -c 'trap "echo asked" TERM; while :; do sleep 0.1; done'
    same "$STATE" TIMEOUT "state of one that does not"
    same "$(echo "$OUT" | grep -x asked | tail -n 1)" asked "its output"
    between "$(field wall_ms)" 2900 9000 "its time"
}

check_devices() {
    job -g 1 -- sh -c 'probe open /dev/nvidia0; probe open /dev/nvidia1; probe open /dev/urandom'
    if [ "$VM_MODE" = none ]; then
        same "$(echo "$OUT" | grep -c opened)" 3 "devices opened"
        return
    fi
    same "$(echo "$OUT" | grep -c 'nvidia. opened')" 1 "GPUs opened with one granted: $OUT,"
    has "$OUT" "Operation not permitted"
    has "$OUT" "/dev/urandom opened"
    job -- sh -c 'probe open /dev/nvidia0; probe open /dev/nvidia1'
    same "$(echo "$OUT" | grep -c 'Operation not permitted')" 2 "GPUs refused with none granted: $OUT,"
    job -g 2 -- sh -c 'probe open /dev/nvidia0; probe open /dev/nvidia1'
    same "$(echo "$OUT" | grep -c opened)" 2 "GPUs opened with both granted: $OUT,"
}

check_users() {
    su alice -c 'cd /home/alice && acequia run -m 64M -- sh -c "id -u; cat /proc/self/status; echo 0 >/sys/fs/cgroup/cgroup.procs"' </dev/null >/tmp/who 2>/tmp/who.err
    same "$(head -n 1 /tmp/who)" 1000 "uid"
    has "$(cat /tmp/who)" "CapEff:	0000000000000000"
    [ "$VM_MODE" != v2 ] || has "$(cat /tmp/who.err)" "ermission denied"
    su alice -c 'cd /home/alice && acequia submit -Q -m 64M -o /dev/null -- probe hog 200 8000' >/tmp/who
    J=$(cat /tmp/who)
    acequia wait "$J" 2>/dev/null
    same "$(field state)" OUT_OF_MEMORY "her job over its memory"
}

check_exec_counts() {  # what is started inside a job is inside its limits
    submit -o /dev/null -m 64M -- sleep 60
    running
    acequia exec "$J" -- probe hog 200 8000 >/dev/null 2>&1
    acequia wait "$J" 2>/dev/null
    same "$(field state)" OUT_OF_MEMORY state
}

check_step_memory() {  # a step's limit costs that step, and not the job
    cat >/tmp/steps.sh <<'END'
#!/bin/sh
srun -n 1 --mem=40M sh -c 'probe hog 70 6000 & wait; sleep 3'
echo "over $?"
srun -n 1 --mem=40M probe hog 25 300
echo "inside $?"
srun -n 1 probe hog 70 300
echo "without $?"
probe hog 70 300
END
    job -m 100M /tmp/steps.sh
    same "$STATE" COMPLETED state
    has "$OUT" "Out Of Memory (over the memory limit of 40M)"
    has "$OUT" "over 1"  # 137, or 1 where the kernel kills one process only and the rest ends by itself
    has "$OUT" "inside 0"
    has "$OUT" "without 0"
    same "$(echo "$OUT" | tail -n 1)" "touched 70 MiB" "last line of $OUT"
    has "$(sacct -n -P -j "$J" -o JobID,State)" "$J.0|OUT_OF_MEMORY"
    has "$(sacct -n -P -j "$J" -o JobID,State)" "$J.1|COMPLETED"
    # The job's own limit still holds for what its steps use together.
    printf '#!/bin/sh\nsrun -n 1 --mem=60M probe hog 55 8000 &\nprobe hog 60 8000\nwait\n' >/tmp/steps.sh
    job -m 100M /tmp/steps.sh
    same "$STATE" OUT_OF_MEMORY "state of a job over its limit with a step inside its own"
}

check_step_gpus() {
    cat >/tmp/steps.sh <<'END'
#!/bin/sh
srun -n 1 --gpus=1 sh -c 'echo "visible $CUDA_VISIBLE_DEVICES"; probe open /dev/nvidia0; probe open /dev/nvidia1'
echo main
probe open /dev/nvidia0
probe open /dev/nvidia1
END
    job -g 2 /tmp/steps.sh
    has "$OUT" "visible GPU-0000000"
    case "$OUT" in *visible*,*main*) bad "two GPUs visible: $OUT" ;; esac
    step=$(echo "$OUT" | sed '/^main/,$d') main=$(echo "$OUT" | sed '1,/^main/d')
    [ "$VM_MODE" = none ] || same "$(echo "$step" | grep -c opened)" 1 "GPUs opened by the step ($OUT)"
    same "$(echo "$main" | grep -c opened)" 2 "GPUs opened by the job itself"
}

check_daemons_die() {
    submit -m 64M -o /tmp/survivor -- sh -c 'sleep 6; probe hog 30 0; exit 7'
    running
    kill -9 "$(cat $ACEQUIA_HOME/run/agent-*.pid)"
    kill -9 "$(cat $ACEQUIA_HOME/run/controller.pid)"
    sleep 1
    acequia up >/dev/null || bad "up: $?"
    acequia wait "$J" 2>/dev/null
    same "$?" 7 "exit status"
    same "$(field attempt)" 1 attempt
    between "$(field memory_peak_bytes)" $((29 * MIB)) $((60 * MIB)) peak
    # A job that outgrows its memory, and ends, while nobody looks.
    submit -m 64M -o /dev/null -- sh -c 'sleep 2; probe hog 200 4000'
    running
    kill -9 "$(cat $ACEQUIA_HOME/run/agent-*.pid)"
    sleep 9
    acequia up >/dev/null || bad "up: $?"
    acequia wait "$J" 2>/dev/null
    same "$(field state)" OUT_OF_MEMORY "state of one that ended meanwhile"
    job -- echo again
    same "$OUT" again "a job afterwards"
}

check_clock() {  # of the machine: set forward a day, then back two, while jobs and clients are at work
    mkdir -p /tmp/web/api
    echo '[{"last_activity":"2020-01-01T00:00:00Z","execution_state":"idle"}]' >/tmp/web/api/kernels
    cp /tmp/web/api/kernels /tmp/web/api/terminals
    submit -t 1h -o /dev/null --port 8123 --health jupyter --health-interval 1s --idle 1h -- busybox httpd -f -p 127.0.0.1:8123 -h /tmp/web
    running
    notebook=$J
    acequia exec --no-input "$J" -- sh -c 'for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; sleep 2; done' >/tmp/clock-exec 2>&1 &
    client=$!
    sleep 3
    now=$(date +%s)
    date -s "@$((now + 86400))" >/dev/null
    sleep 6
    has "$(acequia get "$J")" RUNNING
    job -- echo forward
    same "$STATE $OUT" "COMPLETED forward" "a job after the clock was set forward"
    submit -t 15s -o /dev/null -- sleep 600
    running
    date -s "@$((now - 86400))" >/dev/null
    acequia wait "$J" 2>/dev/null
    same "$(field state)" TIMEOUT "state of the one with a limit of 15 s"
    job -- echo back
    same "$STATE $OUT" "COMPLETED back" "a job after the clock was set back"
    wait $client
    same "$?" 0 "exit status of exec"
    same "$(tr '\n' ' ' </tmp/clock-exec)" "1 2 3 4 5 6 7 8 9 10 " "what exec printed"
    J=$notebook
    has "$(acequia get "$J")" RUNNING
    date -s "@$((now + 60))" >/dev/null
    acequia cancel "$J" >/dev/null
}

check_delegated() {  # an agent without root in a group that was handed over to it
    [ "$VM_MODE" = v2 ] || return
    group=/sys/fs/cgroup/alice
    echo "+memory +pids +cpu +cpuset" >/sys/fs/cgroup/cgroup.subtree_control
    mkdir $group
    chown -R alice $group
    probe delegate $group || bad "the mark of delegation cannot be set"
    (
        echo 0 >$group/cgroup.procs
        exec su alice -c '
            export ACEQUIA_HOME=/home/alice/own; mkdir -p $ACEQUIA_HOME; cd /home/alice
            acequia up; acequia nodes --json
            acequia submit -Q -m 64M -o /dev/null -- probe hog 200 8000 >id; acequia wait $(cat id); acequia get $(cat id)
            acequia run -- sh -c "probe hide sleep 2222; sleep 0.3"
            acequia down'
    ) >/tmp/delegated 2>&1
    has "$(cat /tmp/delegated)" OUT_OF_MEMORY
    has "$(cat /tmp/delegated)" "over the memory limit of 64M"
    has "$(cat /tmp/delegated)" "jobs run as one user; devices of other jobs are reachable"
    same "$(alive "sleep.[2]222")" 0 "hidden processes left"
}

check_container() {  # an agent that sees its container's group as the top of all
    [ "$VM_MODE" = v2 ] || return
    mkdir /sys/fs/cgroup/pod
    (
        echo 0 >/sys/fs/cgroup/pod/cgroup.procs
        exec probe contain sh -c '
            export ACEQUIA_HOME=/var/pod; mkdir -p $ACEQUIA_HOME; cd /tmp
            acequia up; acequia nodes --json
            acequia submit -Q -m 64M -o /dev/null -- probe hog 200 8000 >id; acequia wait $(cat id); acequia get $(cat id)
            acequia run -- sh -c "probe hide sleep 3333; sleep 0.3"
            acequia down'
    ) >/tmp/contained 2>&1
    has "$(cat /tmp/contained)" OUT_OF_MEMORY
    has "$(cat /tmp/contained)" '"missing":null'
    has "$(cat /tmp/contained)" "Memory peak    64M"
    same "$(alive "sleep.[3]333")" 0 "hidden processes left"
}

check_images() {  # a root file system as an image, for a user, with memory above it
    mkdir -p /var/image/bin /var/image/etc /var/image/home
    cp /bin/busybox /var/image/bin/
    for a in sh ls touch id cat rm mkdir; do ln -s busybox /var/image/bin/$a; done
    chown -R alice:alice /var/image
    chgrp 0 /var/image/home  # a group that is not in the container
    OUT=$(cd /tmp && su alice -c "acequia run --container /var/image -- sh -c 'id -un; touch /bin/new && ls /bin/new; rm /bin/ls && echo done; exit 7'; echo \$?" 2>&1)
    has "$OUT" alice
    has "$OUT" /bin/new
    has "$OUT" done
    has "$OUT" 7
    [ -e /var/image/bin/new ] && bad "the image was written to"
    [ -e /var/image/bin/ls ] || bad "the image was written to"
}

check_machine_out_of_memory() {  # a job without a limit of its own: the daemons must survive it
    swapoff /dev/zram0
    submit -o /dev/null -- probe hog 4000 1000
    acequia wait "$J" 2>/dev/null
    state=$(field state)
    [ $limits = no ] || same "$state" OUT_OF_MEMORY state
    [ $limits = no ] || has "$(acequia get "$J")" "the node ran out of memory"
    job -- echo alive
    same "$OUT" alive "a job afterwards"
    swapon /dev/zram0
}

# A file system in a file: kind, folder, options for mounting.
make_disk() {
    rm -f "/tmp/disk-$1"
    dd if=/dev/zero of="/tmp/disk-$1" bs=1M count=0 seek=320 2>/dev/null
    case "$1" in
    ext4) mkfs.ext4 -q -O project,quota -E quotatype=prjquota "/tmp/disk-$1" ;;
    xfs) mkfs.xfs -q "/tmp/disk-$1" ;;
    esac >/tmp/mkfs.log 2>&1 || bad "mkfs.$1: $(cat /tmp/mkfs.log)"
    mkdir -p "$2"
    mount -t "$1" -o "loop${3:+,$3}" "/tmp/disk-$1" "$2" || bad "$1 cannot be mounted at $2: $(dmesg | tail -n 3)"
    chmod 755 "$2"
}

as_alice() { su alice -c "cd /home/alice && $1" </dev/null 2>&1; }

check_volume_sizes() {  # kept by the file system for each volume, whoever writes
    [ "$VM_MODE" = v2 ] || return
    for kind in ext4 xfs; do
        make_disk $kind /var/volumes prjquota
        has "$(as_alice "acequia volume create $kind-small --size 8M")" "Its size is kept by the file system ($kind), from the first job on"
        as_alice "acequia volume create $kind-other --size 20M" >/dev/null
        told=$(as_alice "acequia run -v $kind-small:/small -v $kind-other:/other -- dd if=/dev/urandom of=/small/x bs=1M count=20")
        case "$kind" in ext4) has "$told" "Disk quota exceeded" ;; xfs) has "$told" "No space left on device" ;; esac
        case "$told" in *"is not kept"*) bad "$told" ;; esac
        between "$(stat -c %s /var/volumes/users/alice/$kind-small/x)" 1 $((8 * MIB)) "size of the file ($kind)"
        # The other one has its own size, and what is removed is free again.
        told=$(as_alice "acequia run -v $kind-small:/small -v $kind-other:/other -- sh -c 'dd if=/dev/urandom of=/other/x bs=1M count=15 && rm /small/x && dd if=/dev/urandom of=/small/y bs=1M count=6 && echo both'")
        has "$told" both
        has "$(as_alice "acequia volume get $kind-other")" "kept by the file system ($kind)"
        has "$(as_alice "acequia volume get $kind-other")" " of 20M free"
        umount /var/volumes || bad "the volumes' file system is in use: $(grep volumes /proc/mounts)"
        rm -f /tmp/disk-$kind
    done
}

check_nfs() {  # a server and a client of the kernel
    [ "$VM_MODE" = v2 ] || return
    make_disk ext4 /srv/export
    mkdir -p /srv/export/sets /var/lib/nfs/rpc_pipefs /var/lib/nfs/v4recovery
    chown alice /srv/export/sets
    echo '/srv/export 127.0.0.1(rw,fsid=0,no_subtree_check,insecure)' >/etc/exports
    touch /var/lib/nfs/etab /var/lib/nfs/rmtab
    mount -t nfsd nfsd /proc/fs/nfsd
    echo 10 >/proc/fs/nfsd/nfsv4leasetime
    echo 10 >/proc/fs/nfsd/nfsv4gracetime
    { exportfs -a && rpc.mountd -N 3 && rpc.nfsd -N 3 -U 2; } >/tmp/nfs.log 2>&1 || bad "the server does not start: $(cat /tmp/nfs.log)"
    acequia project create lab --quota 1 --members alice >/dev/null
    acequia volume create sets -P lab --at nfs://127.0.0.1/sets >/dev/null || bad "no volume"
    has "$(as_alice "acequia run -P lab -v lab/sets:/sets -- sh -c 'id -u; dd if=/dev/urandom of=/sets/big bs=1M count=30 2>/dev/null; md5sum </sets/big; grep \" /sets \" /proc/mounts'")" "nfs4"
    # Written when the job has ended, as its user, and nothing is mounted any more.
    as_alice "acequia run -P lab -v lab/sets:/sets -- sh -c 'echo word >/sets/word'"
    same "$(cat /srv/export/sets/word)" word "what a job wrote"
    same "$(stat -c '%u %s' /srv/export/sets/big)" "1000 $((30 * MIB))" "owner and size"
    same "$(grep -c ' nfs4 ' /proc/mounts)" 0 "mounts on the node"
    has "$(as_alice "acequia run -P lab -v lab/sets:/sets:ro -- sh -c 'cat /sets/word; touch /sets/x'")" "Read-only file system"
    # Killed while it writes: nothing is left, and the next job has the volume.
    submit -P lab -o /dev/null -v lab/sets:/sets -- sh -c 'while :; do echo more >>/sets/growing; done'
    running
    sleep 2
    acequia cancel "$J" >/dev/null
    acequia wait "$J" 2>/dev/null
    same "$(grep -c ' nfs4 ' /proc/mounts)" 0 "mounts after it was cancelled"
    has "$(as_alice "acequia run -P lab -v lab/sets:/sets -- cat /sets/word")" word
    acequia volume create gone -P lab --at nfs://127.0.0.1/none >/dev/null
    has "$(as_alice "acequia run -P lab -v lab/gone:/gone -- true")" "cannot be mounted on this node: mount.nfs"
    # A server that does not answer holds up this job alone, and says so.
    rpc.nfsd 0
    submit -P lab -o /tmp/silent -v lab/sets:/sets -- true
    silent=$J
    job -- echo meanwhile
    same "$OUT" meanwhile "another job's output"
    acequia wait "$silent" >/dev/null 2>&1
    J=$silent
    has "$(acequia get "$J")" "cannot be mounted on this node: mount.nfs:"
    umount /proc/fs/nfsd
    exportfs -ua
    umount /srv/export
}

check_unit_tests() {  # the shepherd's own, which elsewhere find version 2 without controllers
    case "$VM_MODE" in
    v2 | mixed) kind=v2 ;;
    v1) kind=v1 ;;
    *) return ;;
    esac
    for test in shepherd survival chaos; do
        /vm/test_agent_$test /opt/acequia/bin/acequia-shepherd $kind >/tmp/unit.log 2>&1 ||
            bad "$test: $(grep -E "FAILED|Error|error" /tmp/unit.log | head -n 12 | tr '\n' ' ')"
        [ -z "$VM_LOGS" ] || cat /tmp/unit.log
    done
}

check_nothing_is_left() {  # after the daemons have gone
    acequia down >/dev/null
    sleep 1
    left=$(find /sys/fs/cgroup -name 's[0-9]*-[0-9]*' -type d 2>/dev/null)
    same "$left" "" "groups left"
    same "$(alive "acequia-[s]hepherd")" 0 "shepherds left"
}

acequia up >/tmp/up.log 2>&1 || { NAME=up; bad "$(cat /tmp/up.log)"; }
# The unit tests keep time by the clock, which emulated processors do not always: only when asked for.
all=$(sed -n 's/^check_\([a-z0-9_]*\)() .*/\1/p' /vm/checks.sh | grep -v '^unit_tests$')
for NAME in ${VM_ONLY:-$all}; do
    NAME=$(echo "$NAME" | tr , ' ')
    for NAME in $NAME; do
        FAILED=
        [ -z "$VM_TRACE" ] || set -x
        "check_$NAME"
        set +x
        [ -n "$FAILED" ] || ok
        echo "time $(cut -d' ' -f1 /proc/uptime)"
    done
done
[ -z "$VM_LOGS" ] || tail -n 40 $ACEQUIA_HOME/log/*.log
echo "done"
