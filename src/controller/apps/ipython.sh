#!/bin/sh
# IPython Parallel: a controller and engines. Connections are encrypted (curve), its tasks are kept in an SQLite file.
start_head() {
    need ipyparallel ipyparallel
    profile=$folder/profile
    client=$profile/security/ipcontroller-client.json
    mkdir -p "$profile/security"
    rm -f "$profile"/security/*
    python3 -m ipyparallel.controller --profile-dir="$profile" --ip="$address" --location="$address" --sqlitedb \
        --SQLiteDB.location="$profile" --SQLiteDB.table=tasks \
        --IPController.enable_curve=True --HeartMonitor.period=1000 &
    controller=$!
    await "$client" $controller && await "$profile/security/ipcontroller-engine.json" $controller || exit 1
    cat > "$folder/connect.py" <<PYTHON
import ipyparallel
client = ipyparallel.Client("$client")
PYTHON
    echo "$profile/security/ipcontroller-engine.json" > "$folder/endpoint"
    ready
    wait $controller
}
start_worker() {
    need ipyparallel ipyparallel
    export ACEQUIA_CLUSTER_READY="$ready"
    # The controller shows an engine to clients from its first heartbeat on, which is later than the engine runs.
    exec python3 -m ipyparallel.engine --profile-dir="$folder/profile" --file="$endpoint" --timeout=60 -c '
import threading

def _acequia_joined(number):
    import os, time, ipyparallel
    client = ipyparallel.Client(os.environ["ACEQUIA_CLUSTER"] + "/profile/security/ipcontroller-client.json")
    while number not in client.ids:
        time.sleep(0.1)
    client.close()
    open(os.environ["ACEQUIA_CLUSTER_READY"], "w").close()

threading.Thread(target=_acequia_joined, args=(get_ipython().kernel.int_id,), daemon=True).start()
del threading, _acequia_joined'
}
cluster_main "$@"
