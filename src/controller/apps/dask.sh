#!/bin/sh
# Dask: a scheduler and workers that speak TLS with the cluster's own certificate, and take no other. The dashboard
# listens on a socket that only its user can open.
start_head() {
    need distributed 'dask and distributed'
    check_demand
    certificate
    cat > "$folder/connect.py" <<PYTHON
from distributed import Client, Security
client = Client(open("$folder/endpoint").read().strip(), security=Security(
    require_encryption=True, tls_ca_file="$folder/cert.pem", tls_client_cert="$folder/cert.pem", tls_client_key="$folder/key.pem"))
PYTHON
    rm -f "$ACEQUIA_SOCKET"
    exec python3 -c "$demand"'
import asyncio, sys
from distributed import Scheduler, Security
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_unix_socket

folder, address, ready = sys.argv[1:]
cert, key = folder + "/cert.pem", folder + "/key.pem"


async def follow_demand(scheduler):
    while True:
        await asyncio.sleep(LOOK_S)
        # One that holds values works too: they would have to be made again.
        busy = [int(str(w.name).rpartition("-")[2]) for w in scheduler.workers.values()
                if w.processing or w.has_what]
        wanted = scheduler.adaptive_target() if any(t.state in ("processing", "queued", "no-worker") for t in scheduler.tasks.values()) else 0
        await asyncio.to_thread(follow, wanted, busy)


async def main():
    security = Security(require_encryption=True, tls_ca_file=cert, tls_scheduler_cert=cert, tls_scheduler_key=key)
    async with Scheduler(host=address, port=0, protocol="tls", security=security, dashboard=True,
                         dashboard_address="127.0.0.1:0") as scheduler:
        scheduler.http_server.stop()
        if os.environ.get("ACEQUIA_SOCKET"):
            HTTPServer(scheduler.http_application).add_socket(bind_unix_socket(os.environ["ACEQUIA_SOCKET"], 0o600))
        with open(folder + "/endpoint.new", "w") as f:
            f.write(scheduler.address + "\n")
        os.rename(folder + "/endpoint.new", folder + "/endpoint")
        open(ready, "w").close()
        following = asyncio.create_task(follow_demand(scheduler)) if os.environ.get("APP_DEMAND") else None
        await scheduler.finished()
        if following:
            following.cancel()

asyncio.run(main())
' "$folder" "$address" "$ready"
}
start_worker() {
    need distributed 'dask and distributed'
    # One that the scheduler lets go has failed, and is started again: only a smaller size removes workers.
    exec python3 -c '
import asyncio, os, signal, sys, tempfile
from distributed import Security, Worker

folder, address, ready, endpoint, threads, name = sys.argv[1:]
cert, key = folder + "/cert.pem", folder + "/key.pem"


async def main():
    security = Security(require_encryption=True, tls_ca_file=cert, tls_worker_cert=cert, tls_worker_key=key)
    with tempfile.TemporaryDirectory(prefix="acequia-dask-") as local:
        async with Worker(endpoint, host=address, nthreads=int(threads), name=name, security=security, local_directory=local,
                          dashboard_address="127.0.0.1:0", dashboard=False, death_timeout=60) as worker:
            open(ready, "w").close()
            await worker.finished()
    sys.exit("acequia: the scheduler has let this worker go")

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # by way of the exit its folder is removed
asyncio.run(main())
' "$folder" "$address" "$ready" "$endpoint" "$cpus" "worker-$ACEQUIA_WORKER"
}
cluster_main "$@"
