#!/bin/sh
# MPI: a list of hosts that follows the size, and what mpirun and mpiexec start their daemons with: acequia exec, inside
# the workers' limits. A host is a worker, worker-3, so that several of them may be on one node. A worker leaves a file
# host.NUMBER with its CPUs and its own folder for temporary files, and removes both when it is told to end; the head
# removes the files of workers that were killed.
start_head() {
    acequia=$(command -v acequia || echo "$APP_ACEQUIA")
    [ -x "$acequia" ] || fail "there is no acequia in the PATH on $(hostname), which starts programs of MPI in the workers; install it, or give its path: acequia=PATH"
    rm -f "$folder"/host.*
    cat > "$folder/hosts" <<SHELL
#!/bin/sh
# Writes the lists of hosts: for Open MPI, and for MPICH and Intel MPI.
cd "$folder" || exit 1
for h in host.*; do [ ! -e "\$h" ] || echo "worker-\${h#host.} slots=\$(cut -d' ' -f1 "\$h")"; done | sort -t- -k2n > new.\$\$ && mv new.\$\$ hostfile
sed 's/ slots=/:/' hostfile > new.\$\$ && mv new.\$\$ machinefile
SHELL
    cat > "$folder/remote" <<SHELL
#!/bin/sh
# Called by mpirun and mpiexec as ssh would be: [options] HOST COMMAND...
while [ "\${1#-}" != "\$1" ]; do shift; done
number=\${1#worker-}
own=\$(cut -d' ' -f2 "$folder/host.\$number") || { echo "acequia: worker \$number has left the cluster $name" >&2; exit 1; }
shift
exec "$acequia" exec --no-input "$ACEQUIA_WORKERS_JOB+\$number" -- sh -c "
    export TMPDIR=\$own OMPI_MCA_btl_vader_backing_directory=\$own
    \$*"
SHELL
    cat > "$folder/enter" <<SHELL
#!/bin/sh
# Runs a command with the variables by which mpirun (Open MPI) and mpiexec (MPICH, Intel MPI) use the workers.
for v in \$(env | sed -n 's/^\(SLURM_[A-Z_]*\)=.*/\1/p'); do unset "\$v"; done
export OMPI_MCA_plm=rsh OMPI_MCA_plm_rsh_agent="$folder/remote" OMPI_MCA_orte_default_hostfile="$folder/hostfile"
export PRTE_MCA_plm=ssh PRTE_MCA_plm_ssh_agent="$folder/remote" PRTE_MCA_prte_default_hostfile="$folder/hostfile"
export HYDRA_LAUNCHER=ssh HYDRA_LAUNCHER_EXEC="$folder/remote" HYDRA_HOST_FILE="$folder/machinefile"
export I_MPI_HYDRA_BOOTSTRAP=ssh I_MPI_HYDRA_BOOTSTRAP_EXEC="$folder/remote" I_MPI_HYDRA_HOST_FILE="$folder/machinefile"
"$folder/hosts"
[ -s "$folder/hostfile" ] || { echo "acequia: the cluster $name has no workers now; give it some: acequia cluster resize $name 4" >&2; exit 1; }
exec "\$@"
SHELL
    chmod 700 "$folder/hosts" "$folder/remote" "$folder/enter"
    "$folder/hosts"
    echo none > "$folder/endpoint"
    ready
    before=
    while :; do
        now=$(stat -c %Y.%i "$ACEQUIA_WORKERS_FILE")$(ls "$folder")
        if [ "$now" != "$before" ]; then
            before=$now
            for h in "$folder"/host.*; do
                case $(member "${h##*.}" state) in left | leaving | waiting) rm -f "$h" ;; esac
            done
            "$folder/hosts"
        fi
        sleep 0.5
    done
}
use_cluster() { "$folder/enter" "$@"; }
start_worker() {
    own=$(mktemp -d /tmp/acequia-mpi-XXXXXX) || fail "no folder can be made in /tmp"
    trap 'rm -rf "$folder/host.$ACEQUIA_WORKER" "$own"; exit 0' TERM
    echo "$cpus $own" > "$folder/host.$ACEQUIA_WORKER"
    ready
    sleep infinity &
    wait
}
cluster_main "$@"
