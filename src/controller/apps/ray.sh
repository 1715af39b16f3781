#!/bin/sh
# Ray: TLS with certificates that the cluster's own authority has signed, a token for every request, also of the
# dashboard, which asks for it: it is in the file "token".
tls() {  # a certificate for this node's address; $1: where
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$name" -keyout "$1.key.pem" -out "$1.csr.pem" 2> /dev/null &&
        printf 'subjectAltName=IP:%s,IP:127.0.0.1,DNS:localhost\n' "$address" > "$1.ext.pem" &&
        openssl x509 -req -in "$1.csr.pem" -CA "$folder/cert.pem" -CAkey "$folder/key.pem" -set_serial "0x$(secret | cut -c1-16)" \
            -days 3650 -extfile "$1.ext.pem" -out "$1.cert.pem" 2> /dev/null || fail "openssl cannot make the certificate of this node"
    export RAY_USE_TLS=1 RAY_TLS_CA_CERT="$folder/cert.pem" RAY_TLS_SERVER_CERT="$1.cert.pem" RAY_TLS_SERVER_KEY="$1.key.pem"
    export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$folder/token" RAY_USAGE_STATS_ENABLED=0 PYTHONUNBUFFERED=1
}
watch_ray() {  # marks the head or worker as ready when ray says that it has joined
    while read -r line; do
        echo "$line"
        case $line in *"Ray runtime started"*) joined ;; esac
    done
}
# What Ray tells its own autoscaler: which nodes work, and what tasks and actors wait for. A worker is known by a resource
# of its number.
follow_demand() {
    exec python3 -c "$demand"'
import math, sys
from ray.autoscaler.v2.sdk import get_cluster_status


def amounts(node):
    return {u.resource_name: u.total for u in node.resource_usage.usage} if node.resource_usage else {}


def number(node):
    return next((int(name.rpartition("-")[2]) for name in amounts(node) if name.startswith("acequia-worker-")), 0)


def waiting(demands):
    total = {}
    for d in demands.ray_task_actor_demand + demands.placement_group_demand:
        for b in d.bundles_by_count:
            for name, amount in b.bundle.items():
                total[name] = total.get(name, 0) + amount * b.count
    return total


while True:
    time.sleep(LOOK_S)
    try:
        status = get_cluster_status(sys.argv[1])
    except Exception as e:
        print("acequia: Ray does not say what it has to do:", e, file=sys.stderr)
        continue
    busy = [n for n in map(number, status.active_nodes) if n]
    nodes = [amounts(n) for n in status.active_nodes + status.idle_nodes if number(n)]
    more = waiting(status.resource_demands)
    # The size of a worker is that of one that is there; the first shows it.
    need = [math.ceil(more[r] / nodes[0][r]) if nodes and nodes[0].get(r) else 1 for r in ("CPU", "GPU") if more.get(r)]
    follow(len(busy) + max(need or [1 if more else 0]), busy)
' "$1"
}
start_head() {
    need ray 'ray[default]'
    check_demand
    certificate
    secret > "$folder/token"
    tls "$folder/head"
    ports=$(python3 -c 'import socket; a = [socket.socket() for _ in "12"]; [s.bind(("", 0)) for s in a]; print(*[s.getsockname()[1] for s in a])')
    port=${ports% *}
    # A Ray that knows no tokens would give its dashboard, and with it everything, to whoever is on this node.
    dashboard=--include-dashboard=false
    python3 -c 'import importlib.util, os, sys
sys.exit(not os.path.exists(importlib.util.find_spec("ray").submodule_search_locations[0] + "/_private/authentication"))' &&
        dashboard=--include-dashboard=true
    temporary=$(mktemp -d /tmp/acequia-ray-XXXXXX) || exit 1
    trap 'rm -rf "$temporary"' EXIT
    trap 'exit 1' TERM
    joined() {
        cat > "$folder/connect.py" <<PYTHON
import os
os.environ.update(RAY_USE_TLS="1", RAY_TLS_CA_CERT="$folder/cert.pem", RAY_TLS_SERVER_CERT="$folder/head.cert.pem",
                  RAY_TLS_SERVER_KEY="$folder/head.key.pem", RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH="$folder/token")
import ray
ray.init(address="$address:$port", log_to_driver=False)
PYTHON
        echo "$address:$port" > "$folder/endpoint"
        [ -z "$APP_DEMAND" ] || follow_demand "$address:$port" &
        ready
    }
    ray start --head --block --node-ip-address="$address" --port="$port" --num-cpus=0 --temp-dir="$temporary" --disable-usage-stats \
        $dashboard --dashboard-host=127.0.0.1 --dashboard-port="$ACEQUIA_PORT" --dashboard-agent-listen-port=0 --metrics-export-port=0 \
        --ray-client-server-port="${ports#* }" 2>&1 | watch_ray
    exit 1
}
start_worker() {
    need ray 'ray[default]'
    tls "$folder/worker-$ACEQUIA_WORKER"
    joined() { ready; }
    gpus=0
    [ -z "$CUDA_VISIBLE_DEVICES" ] || gpus=$(echo "$CUDA_VISIBLE_DEVICES" | tr ',' '\n' | grep -c .)
    ray start --address="$endpoint" --block --node-ip-address="$address" --num-cpus="$cpus" --num-gpus="$gpus" --resources="{\"acequia-worker-$ACEQUIA_WORKER\": 1}" --disable-usage-stats \
        --dashboard-agent-listen-port=0 --metrics-export-port=0 2>&1 | watch_ray
    exit 1
}
cluster_main "$@"
