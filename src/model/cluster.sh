#!/bin/sh
# What all kinds of virtual clusters have in common; the lines of a kind follow. They define start_head and start_worker,
# which run the framework's programs, and end with: cluster_main "$@"
#
# A cluster's files lie in ~/.acequia/clusters/NAME, or where the field folder says, which only its owner can enter: the keys; the file "job", which says
# which attempt of which head is there; "endpoint", where it listens; and ready.JOB-ATTEMPT of each worker that has
# joined, which is what the health check looks at. A head that begins removes those of the one before, so the workers of
# that one are ended by their health checks and started again.
umask 077
say() { echo "acequia: $*" >&2; }
fail() { say "$*"; exit 1; }
ready() { : > "$ready"; }
await() {  # a file, until the process $2 ends
    until [ -e "$1" ]; do
        kill -0 "$2" 2> /dev/null || return 1
        sleep 0.1
    done
}
# The text or number $2 of worker $1 in the membership of the job.
member() { sed -n "s/^{\"worker\":$1,.*\"$2\":\"\{0,1\}\([^\",}]*\).*/\1/p" "$ACEQUIA_WORKERS_FILE"; }
enter() {
    [ -x "$1/bin/python" ] || fail "$1 is not an environment: it has no bin/python"
    PATH=$1/bin:$PATH
    export PATH
    if [ -f "$1/pyvenv.cfg" ]; then VIRTUAL_ENV=$1; export VIRTUAL_ENV; else CONDA_PREFIX=$1; export CONDA_PREFIX; fi
}
need() {  # a module of Python and the package that has it
    command -v python3 > /dev/null || fail "there is no python3 on $(hostname)"
    python3 -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)' "$1" ||
        fail "$(command -v python3) on $(hostname) has no $1; install it ($2), or name an environment that has it: environment=FOLDER"
}
secret() { od -An -N32 -tx1 /dev/urandom | tr -d ' \n'; }
# A key and a certificate for this cluster alone. Both sides of a connection show it, and take no other.
certificate() {
    command -v openssl > /dev/null || fail "there is no openssl on $(hostname), which makes the keys of the cluster; install it"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=$name" \
        -addext "subjectAltName=IP:$address" -keyout "$folder/key.pem" -out "$folder/cert.pem" 2> /dev/null ||
        fail "openssl cannot make the keys of the cluster"
}
own_address() {
    address=$APP_ADDRESS
    [ -n "$address" ] || address=$(member "$ACEQUIA_WORKER" address)
    case $address in *[!0-9.]* | '') address=$(hostname -I 2> /dev/null | cut -d' ' -f1) ;; esac
    [ -n "$address" ] || address=127.0.0.1
}
# Growing and shrinking by what the framework has to do: Python for the head of a kind with the field "demand", LOW-HIGH.
# It calls follow(), now and then, with the number of workers there is work for and the numbers of those that work.
# Workers that had nothing to do for a minute are called idle and leave; nothing else is remembered, and the size is the
# job's, so a head that is run again goes on.
check_demand() {
    [ -n "$APP_DEMAND" ] || return 0
    case $APP_DEMAND in -* | *- | *-*-* | *[!0-9-]*) fail "demand=$APP_DEMAND is not LOW-HIGH, such as demand=0-8" ;; *-*) ;;
    *) fail "demand=$APP_DEMAND is not LOW-HIGH, such as demand=0-8" ;; esac
    [ "${APP_DEMAND%-*}" -le "${APP_DEMAND#*-}" ] || fail "demand=$APP_DEMAND: the first number is larger than the second"
    command -v acequia > /dev/null || fail "there is no acequia in the PATH on $(hostname), which resizes the cluster by its demand; install it"
}
demand='
import json, os, subprocess, time

IDLE_S = 60
LOOK_S = 2
low, high = (int(n) for n in (os.environ.get("APP_DEMAND") or "0-0").split("-"))
since = {}


def numbers(workers):
    return ",".join(map(str, workers))


def follow(wanted, busy):
    with open(os.environ["ACEQUIA_WORKERS_FILE"]) as f:
        rows = [json.loads(line) for line in f]
    there = [r["worker"] for r in rows if r["worker"] and r["state"] not in ("left", "leaving")]
    now, keep = time.monotonic(), min(max(wanted, low), high)
    for w in set(since) - set(there) | set(busy):
        since.pop(w, None)
    for w in set(there) - set(busy):
        since.setdefault(w, now)
    if keep >= len(there):
        size = keep
    else:
        idle = sorted((w for w in there if now - since.get(w, now) >= IDLE_S), key=lambda w: (since[w], -w))
        leave = idle[: len(there) - keep]
        size = len(there) - len(leave)
        stay = [w for w in there if w not in leave]
        if leave:
            subprocess.run(["acequia", "workers", "--idle", numbers(leave), *(["--busy", numbers(stay)] if stay else [])],
                           stdout=subprocess.DEVNULL, check=False)
    if size != len(there):
        subprocess.run(["acequia", "cluster", "resize", os.environ["ACEQUIA_JOB_NAME"], str(size)], check=False)
'
# Keys, and whatever says that a head is there.
forget() {
    rm -rf "$folder"/job "$folder"/ready.* "$folder"/endpoint "$folder"/connect.py "$folder"/*.pem "$folder"/token \
        "$folder"/profile/security "$folder"/conf "$folder"/enter
}
cluster_head() {
    mkdir -p "$folder" && [ ! -L "$folder" ] && [ -O "$folder" ] && chmod 700 "$folder" ||
        fail "$folder cannot be made, or is not yours alone"
    exec 9> "$folder/lock"
    ! command -v flock > /dev/null || flock -n 9 ||
        fail "a cluster $name of yours is there already (job $(cut -d. -f1 "$folder/job")); end it first: acequia cluster delete $name"
    forget
    echo "$ACEQUIA_WORKERS_JOB.$ACEQUIA_ATTEMPT" > "$folder/job"
    own_address
    trap : TERM INT  # its programs get the signal too
    if [ $# -gt 0 ]; then start_head > "$folder/head.log" 2>&1 & else start_head & fi
    server=$!
    if [ $# -gt 0 ]; then
        await "$ready" $server || { tail -n 20 "$folder/head.log" >&2; fail "the cluster did not start"; }
        want=${APP_WORKERS%%-*}
        until [ "$(ls "$folder" | grep -c '^ready\.')" -gt "$want" ]; do
            kill -0 $server 2> /dev/null || fail "the cluster ended while its workers started"
            sleep 0.1
        done
        use_cluster "$@"
        status=$?
        kill $server 2> /dev/null
        wait $server
    else
        wait $server
        status=$?
        while kill -0 $server 2> /dev/null; do wait $server; status=$?; done
    fi
    forget
    exit $status
}
# Before anything in it is believed: where all may write, somebody else may have made it.
own_folder() {
    if [ -L "$folder" ] || { [ -e "$folder" ] && [ ! -O "$folder" ]; }; then
        fail "$folder belongs to another user on $(hostname): $(id -un) must have the same number (uid) on all nodes, here it is $(id -u)"
    fi
}
# Waits for the head of this job. Homes and users must be the same on all nodes: a folder that does not appear, or that
# belongs to somebody else here, is neither.
cluster_worker() {
    waited=0
    while [ "$(cat "$folder/job" 2> /dev/null)" != "$ACEQUIA_WORKERS_JOB.$(member 0 attempt)" ] || [ ! -e "$folder/endpoint" ]; do
        sleep 0.1
        waited=$((waited + 1))
        own_folder
        if [ $waited -eq 300 ] && [ ! -e "$folder" ]; then
            fail "$(hostname) does not see $folder, which the head on $(member 0 node) has made: homes must be the same on all nodes"
        fi
    done
    own_folder
    own_address
    endpoint=$(cat "$folder/endpoint")
    start_worker
}
use_cluster() { "$@"; }  # kinds add variables here
cluster_main() {
    name=$ACEQUIA_JOB_NAME
    case $name in '' | .* | *[!A-Za-z0-9._-]*)
        fail "\"$name\" cannot be the name of a cluster: use letters, digits, '.', '_' and '-'" ;;
    esac
    folder=${APP_FOLDER:-$HOME/.acequia/clusters}/$name
    ready=$folder/ready.$ACEQUIA_JOB_ID-$ACEQUIA_ATTEMPT
    cpus=${ACEQUIA_CPUS_ON_NODE:-1}
    export ACEQUIA_CLUSTER="$folder"
    [ -z "$APP_ENVIRONMENT" ] || enter "$APP_ENVIRONMENT"
    if [ "$ACEQUIA_COMPONENT" = head ]; then cluster_head "$@"; else cluster_worker; fi
}
