// The one table of everything that is exported: name, type, unit, labels, help. The writer, the
// exporters, docs/monitoring.md and the tests read it; nothing is exported that is not in here.
// Names of others (slurm_*, DCGM_*) are kept as their dashboards expect them, units included.
#pragma once
#include <stddef.h>

#include "base/buf.h"

enum metric_type { METRIC_GAUGE, METRIC_COUNTER, METRIC_HISTOGRAM, METRIC_INFO, METRIC_UNKNOWN };
enum metric_where { METRIC_CONTROLLER = 1, METRIC_AGENT = 2, METRIC_BOTH = 3 };

struct metric_info {
    const char *name;    // of the family: without _total, _info, _bucket
    enum metric_type type;
    enum metric_where where;
    const char *unit;    // "" or the name's suffix
    const char *labels;  // comma-separated, in the order they are written; "": none
    const char *help;
};

#define LABELS_DCGM "gpu,UUID,pci_bus_id,device,modelName,GPU_I_PROFILE,Hostname"
#define LABELS_GPU "node,gpu,uuid,model"
#define LABELS_JOB "job_id,user,project,node,gpu,uuid"

// X(id, where, type, name, unit, labels, help)
#define METRICS_ABOUT(X)                                                                                              \
    X(BUILD, BOTH, INFO, "acequia_build", "", "version", "Version of the program.")                                  \
    X(START, BOTH, GAUGE, "acequia_start_time_seconds", "seconds", "", "When this daemon started, since 1970.")      \
    X(DROPPED, BOTH, GAUGE, "acequia_metrics_left_out", "", "list",                                                  \
      "Entries beyond a list's limit that were left out of this answer, or folded into the label value other.")      \
    X(PROCESS_CPU, BOTH, COUNTER, "process_cpu_seconds", "seconds", "", "CPU time of this daemon.")                  \
    X(PROCESS_MEMORY, BOTH, GAUGE, "process_resident_memory_bytes", "bytes", "", "Memory of this daemon.")           \
    X(PROCESS_FDS, BOTH, GAUGE, "process_open_fds", "", "", "Open file descriptors of this daemon.")

#define METRICS_JOBS(X)                                                                                      \
    X(JOBS, CONTROLLER, GAUGE, "acequia_jobs", "", "state", "Jobs that have not ended, by state.")           \
    X(JOBS_ENDED, CONTROLLER, COUNTER, "acequia_jobs_ended", "", "state", "Jobs that have ended, by how.")   \
    X(JOBS_SUBMITTED, CONTROLLER, COUNTER, "acequia_jobs_submitted", "", "",                                 \
      "Jobs submitted, array elements counted.")                                                             \
    X(JOBS_STARTED, CONTROLLER, COUNTER, "acequia_jobs_started", "", "", "Attempts placed on nodes.")        \
    X(JOBS_REQUEUED, CONTROLLER, COUNTER, "acequia_jobs_requeued", "", "", "Jobs put back into the queue.")  \
    X(JOBS_PREEMPTED, CONTROLLER, COUNTER, "acequia_jobs_preempted", "", "", "Jobs preempted for others.")   \
    X(PENDING, CONTROLLER, GAUGE, "acequia_pending_jobs", "", "reason",                                      \
      "Pending jobs by the reason they wait.")                                                               \
    X(OLDEST, CONTROLLER, GAUGE, "acequia_queue_oldest_wait_seconds", "seconds", "",                         \
      "How long the oldest job that could start has been waiting.")                                          \
    X(USER_JOBS, CONTROLLER, GAUGE, "acequia_user_jobs", "", "user,state",                                   \
      "A user's pending, running and suspended jobs.")                                                       \
    X(USER_GPUS, CONTROLLER, GAUGE, "acequia_user_gpus", "", "user", "GPUs a user's running jobs hold.")     \
    X(PROJECT_JOBS, CONTROLLER, GAUGE, "acequia_project_jobs", "", "project,state",                          \
      "A project's pending, running and suspended jobs.")                                                    \
    X(PROJECT_GPUS, CONTROLLER, GAUGE, "acequia_project_gpus", "", "project",                                \
      "GPUs a project's running jobs hold.")                                                                 \
    X(PROJECT_QUOTA, CONTROLLER, GAUGE, "acequia_project_quota_gpus", "", "project",                         \
      "GPUs guaranteed to a project.")                                                                       \
    X(SERVICE_REPLICAS, CONTROLLER, GAUGE, "acequia_service_replicas", "", "service,user,state",             \
      "Replicas of a service that are wanted, and that are ready.")                                          \
    X(SERVICE_IN_FLIGHT, CONTROLLER, GAUGE, "acequia_service_in_flight", "", "service,user",                 \
      "Requests that replicas of a service have.")                                                           \
    X(SERVICE_QUEUED, CONTROLLER, GAUGE, "acequia_service_queued", "", "service,user",                       \
      "Requests that wait for a replica.")                                                                   \
    X(SERVICE_REQUESTS, CONTROLLER, COUNTER, "acequia_service_requests", "", "service,user,result",          \
      "Requests given to replicas, those of them whose replica failed, and those that were refused.")        \
    X(SERVICE_LATENCY, CONTROLLER, GAUGE, "acequia_service_latency_seconds", "seconds",                      \
      "service,user,quantile",                                                                               \
      "Time within which half, and 99 of 100, of the last minute's requests were answered.")

#define METRICS_NODES(X)                                                                                     \
    X(NODES, CONTROLLER, GAUGE, "acequia_nodes", "", "state", "Nodes by state.")                             \
    X(CPUS, CONTROLLER, GAUGE, "acequia_cpus", "", "", "CPUs of all nodes.")                                 \
    X(CPUS_ALLOCATED, CONTROLLER, GAUGE, "acequia_cpus_allocated", "", "", "CPUs held by jobs.")             \
    X(GPUS, CONTROLLER, GAUGE, "acequia_gpus", "", "", "GPUs of all nodes.")                                 \
    X(GPUS_ALLOCATED, CONTROLLER, GAUGE, "acequia_gpus_allocated", "", "",                                   \
      "GPUs held by jobs, fractions added up.")                                                              \
    X(NODE_UP, BOTH, GAUGE, "acequia_node_up", "", "node",                                                   \
      "1: the node's agent is connected; 0: silent or down. On an agent: whether it has its controller.")    \
    X(NODE_DRAINED, CONTROLLER, GAUGE, "acequia_node_drained", "", "node", "1: the node gets no new jobs.")  \
    X(NODE_JOBS, BOTH, GAUGE, "acequia_node_jobs", "", "node", "Jobs on the node.")                          \
    X(NODE_CPUS, BOTH, GAUGE, "acequia_node_cpus", "", "node", "CPUs for jobs.")                             \
    X(NODE_CPUS_ALLOCATED, CONTROLLER, GAUGE, "acequia_node_cpus_allocated", "", "node",                     \
      "CPUs held by jobs.")                                                                                  \
    X(NODE_CPU_USE, BOTH, GAUGE, "acequia_node_cpu_utilization_ratio", "ratio", "node",                      \
      "Use of the machine's CPUs.")                                                                          \
    X(NODE_LOAD, BOTH, GAUGE, "acequia_node_load", "", "node", "Load average over one minute.")              \
    X(NODE_MEMORY, BOTH, GAUGE, "acequia_node_memory_bytes", "bytes", "node", "Memory for jobs.")            \
    X(NODE_MEMORY_ALLOCATED, CONTROLLER, GAUGE, "acequia_node_memory_allocated_bytes", "bytes", "node",      \
      "Memory held by jobs.")                                                                                \
    X(NODE_MEMORY_USED, BOTH, GAUGE, "acequia_node_memory_used_bytes", "bytes", "node",                      \
      "Memory in use on the machine.")                                                                       \
    X(NODE_DISK_FREE, BOTH, GAUGE, "acequia_node_disk_free_bytes", "bytes", "node",                          \
      "Free space of the file system that holds the agent's spool.")                                         \
    X(NODE_DISK, BOTH, GAUGE, "acequia_node_disk_bytes", "bytes", "node", "Size of that file system.")       \
    X(NODE_GPUS, BOTH, GAUGE, "acequia_node_gpus", "", "node", "GPUs of the node.")                          \
    X(NODE_GPUS_ALLOCATED, CONTROLLER, GAUGE, "acequia_node_gpus_allocated", "", "node", "GPUs held by jobs.")

#define METRICS_DAEMON(X)                                                                                    \
    X(PASS, CONTROLLER, HISTOGRAM, "acequia_scheduler_pass_seconds", "seconds", "",                          \
      "Time of one scheduling pass.")                                                                        \
    X(PASS_JOBS, CONTROLLER, COUNTER, "acequia_scheduler_jobs_considered", "", "",                           \
      "Jobs looked at by all passes.")                                                                       \
    X(BACKFILLED, CONTROLLER, COUNTER, "acequia_scheduler_backfilled_jobs", "", "",                          \
      "Jobs started ahead of others without delaying them.")                                                 \
    X(API_REQUESTS, CONTROLLER, COUNTER, "acequia_api_requests", "", "route,method,code",                    \
      "Requests answered.")                                                                                  \
    X(API_TIME, CONTROLLER, HISTOGRAM, "acequia_api_request_seconds", "seconds", "",                         \
      "Time from the whole request to the answer, followers excluded.")                                      \
    X(API_CONNECTIONS, CONTROLLER, GAUGE, "acequia_api_connections", "", "",                                 \
      "Open connections of clients and agents.")                                                             \
    X(JOURNAL_EVENTS, CONTROLLER, COUNTER, "acequia_journal_events", "", "",                                 \
      "Events committed to the journal.")                                                                    \
    X(JOURNAL_SIZE, CONTROLLER, GAUGE, "acequia_journal_size_bytes", "bytes", "",                            \
      "Size of the database on disk.")                                                                       \
    X(JOURNAL_COMMITS, CONTROLLER, COUNTER, "acequia_journal_commits", "", "", "Group commits.")             \
    X(JOURNAL_COMMIT_TIME, CONTROLLER, COUNTER, "acequia_journal_commit_time_seconds", "seconds", "",        \
      "Time spent in group commits.")                                                                        \
    X(SNAPSHOT_AGE, CONTROLLER, GAUGE, "acequia_snapshot_age_seconds", "seconds", "",                        \
      "Age of the newest snapshot.")                                                                         \
    X(STORAGE, CONTROLLER, GAUGE, "acequia_storage_size_bytes", "bytes", "path",                             \
      "Size of the file system that holds this folder.")                                                     \
    X(STORAGE_FREE, CONTROLLER, GAUGE, "acequia_storage_free_bytes", "bytes", "path", "Free space there.")

#define METRICS_GPU(X)                                                                                       \
    X(GPU_HEALTHY, BOTH, GAUGE, "acequia_gpu_healthy", "", LABELS_GPU, "1: in use; 0: taken out of use.")    \
    X(GPU_ALLOCATED, BOTH, GAUGE, "acequia_gpu_allocated_ratio", "ratio", LABELS_GPU,                        \
      "Part of the GPU held by jobs.")                                                                       \
    X(GPU_ECC, BOTH, GAUGE, "acequia_gpu_ecc_errors", "", LABELS_GPU,                                        \
      "Uncorrected memory errors the driver counts.")                                                        \
    X(GPU_REMAPPED, BOTH, GAUGE, "acequia_gpu_remapped_rows", "", LABELS_GPU,                                \
      "Memory rows replaced by spare ones.")                                                                 \
    X(GPU_FOREIGN, BOTH, GAUGE, "acequia_gpu_foreign_memory_bytes", "bytes", LABELS_GPU,                     \
      "Memory held by processes that belong to no job.")                                                     \
    X(GPU_THROTTLE, BOTH, GAUGE, "acequia_gpu_clock_reasons", "", LABELS_GPU,                                \
      "Bit mask of why the clocks are lowered, as the driver gives it.")                                     \
    X(JOB_GPU_GRANT, BOTH, GAUGE, "acequia_job_gpu_allocated_ratio", "ratio", LABELS_JOB,                    \
      "Part of the GPU the job holds.")                                                                      \
    X(JOB_GPU_USE, BOTH, GAUGE, "acequia_job_gpu_utilization_ratio", "ratio", LABELS_JOB,                    \
      "Part of the GPU's time the job used.")                                                                \
    X(JOB_GPU_MEMORY, BOTH, GAUGE, "acequia_job_gpu_memory_used_bytes", "bytes", LABELS_JOB,                 \
      "GPU memory the job uses.")                                                                            \
    X(JOB_GPU_MEMORY_LIMIT, BOTH, GAUGE, "acequia_job_gpu_memory_limit_bytes", "bytes", LABELS_JOB,          \
      "GPU memory the job may use.")                                                                         \
    X(JOB_GPU_POWER, BOTH, GAUGE, "acequia_job_gpu_power_watts", "watts", LABELS_JOB,                        \
      "Power of the GPU that falls to the job by its use.")                                                  \
    X(JOB_GPU_ENERGY, BOTH, COUNTER, "acequia_job_gpu_energy_joules", "joules", LABELS_JOB,                  \
      "Energy of the GPU that falls to the job by its use.")                                                 \
    X(JOB_GPU_THROTTLED, BOTH, GAUGE, "acequia_job_gpu_throttled_ratio", "ratio", LABELS_JOB,                \
      "Part of the time in which the job's kernels waited because its share was used up.")                   \
    X(JOB_GPU_OUTSIDE, BOTH, GAUGE, "acequia_job_gpu_outside_limits", "", LABELS_JOB,                        \
      "1: the job does not keep to its part of the GPU.")                                                    \
    X(JOB_GPU_IDLE, CONTROLLER, GAUGE, "acequia_job_gpu_idle_seconds", "seconds", LABELS_JOB,                \
      "How long the job has held this GPU without using it.")

// The field names of NVIDIA's exporter with its labels and units; counters there lack _total, so
// their type is left open.
#define METRICS_DCGM(X)                                                                                               \
    X(DCGM_SM_CLOCK, BOTH, GAUGE, "DCGM_FI_DEV_SM_CLOCK", "", LABELS_DCGM, "Clock of the multiprocessors (in MHz).") \
    X(DCGM_MEM_CLOCK, BOTH, GAUGE, "DCGM_FI_DEV_MEM_CLOCK", "", LABELS_DCGM, "Clock of the memory (in MHz).")        \
    X(DCGM_MEMORY_TEMP, BOTH, GAUGE, "DCGM_FI_DEV_MEMORY_TEMP", "", LABELS_DCGM, "Temperature of the memory (in C).") \
    X(DCGM_GPU_TEMP, BOTH, GAUGE, "DCGM_FI_DEV_GPU_TEMP", "", LABELS_DCGM, "Temperature of the GPU (in C).")         \
    X(DCGM_POWER, BOTH, GAUGE, "DCGM_FI_DEV_POWER_USAGE", "", LABELS_DCGM, "Power draw (in W).")                     \
    X(DCGM_ENERGY, BOTH, UNKNOWN, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "", LABELS_DCGM,                           \
      "Energy since the driver was loaded (in mJ).")                                                                 \
    X(DCGM_PCIE_REPLAY, BOTH, UNKNOWN, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "", LABELS_DCGM, "PCIe packets sent again.") \
    X(DCGM_PCIE_TX, BOTH, GAUGE, "DCGM_FI_PROF_PCIE_TX_BYTES", "", LABELS_DCGM, "PCIe bytes sent per second.")       \
    X(DCGM_PCIE_RX, BOTH, GAUGE, "DCGM_FI_PROF_PCIE_RX_BYTES", "", LABELS_DCGM, "PCIe bytes received per second.")   \
    X(DCGM_GPU_UTIL, BOTH, GAUGE, "DCGM_FI_DEV_GPU_UTIL", "", LABELS_DCGM, "Utilisation of the GPU (in %).")         \
    X(DCGM_MEM_COPY, BOTH, GAUGE, "DCGM_FI_DEV_MEM_COPY_UTIL", "", LABELS_DCGM,                                      \
      "Utilisation of the memory interface (in %).")                                                                 \
    X(DCGM_ENC, BOTH, GAUGE, "DCGM_FI_DEV_ENC_UTIL", "", LABELS_DCGM, "Utilisation of the video encoder (in %).")    \
    X(DCGM_DEC, BOTH, GAUGE, "DCGM_FI_DEV_DEC_UTIL", "", LABELS_DCGM, "Utilisation of the video decoder (in %).")    \
    X(DCGM_XID, BOTH, GAUGE, "DCGM_FI_DEV_XID_ERRORS", "", LABELS_DCGM, "The newest XID error; 0: none.")            \
    X(DCGM_FB_FREE, BOTH, GAUGE, "DCGM_FI_DEV_FB_FREE", "", LABELS_DCGM, "Memory free (in MiB).")                    \
    X(DCGM_FB_USED, BOTH, GAUGE, "DCGM_FI_DEV_FB_USED", "", LABELS_DCGM, "Memory used (in MiB).")                    \
    X(DCGM_NVLINK, BOTH, GAUGE, "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "", LABELS_DCGM,                               \
      "NVLink traffic of all lanes (in bytes per second).")                                                          \
    X(DCGM_ROWS, BOTH, UNKNOWN, "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "", LABELS_DCGM,                          \
      "Memory rows replaced after uncorrectable errors.")                                                            \
    X(DCGM_ROWS_CORRECTED, BOTH, UNKNOWN, "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "", LABELS_DCGM,                  \
      "Memory rows replaced after correctable errors.")                                                              \
    X(DCGM_ROWS_FAILED, BOTH, GAUGE, "DCGM_FI_DEV_ROW_REMAP_FAILURE", "", LABELS_DCGM,                               \
      "1: replacing memory rows failed.")                                                                            \
    X(DCGM_ENGINE, BOTH, GAUGE, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "", LABELS_DCGM,                                    \
      "Part of the time in which anything ran, 0 to 1 (Hopper and later, as those below).")                          \
    X(DCGM_SM_ACTIVE, BOTH, GAUGE, "DCGM_FI_PROF_SM_ACTIVE", "", LABELS_DCGM,                                        \
      "Part of the multiprocessors that had work, 0 to 1.")                                                          \
    X(DCGM_OCCUPANCY, BOTH, GAUGE, "DCGM_FI_PROF_SM_OCCUPANCY", "", LABELS_DCGM,                                     \
      "Part of the warps they can hold, 0 to 1.")                                                                    \
    X(DCGM_TENSOR, BOTH, GAUGE, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "", LABELS_DCGM,                                  \
      "Part of the time in which tensor cores worked, 0 to 1.")                                                      \
    X(DCGM_DRAM, BOTH, GAUGE, "DCGM_FI_PROF_DRAM_ACTIVE", "", LABELS_DCGM,                                           \
      "Part of the memory's bandwidth in use, 0 to 1.")

// The names of the Slurm exporters in use.
#define METRICS_SLURM(X)                                                                                     \
    X(SLURM_NODES_ALLOC, CONTROLLER, GAUGE, "slurm_nodes_alloc", "", "",                                     \
      "Nodes whose CPUs or GPUs are all held.")                                                              \
    X(SLURM_NODES_COMP, CONTROLLER, GAUGE, "slurm_nodes_comp", "", "",                                       \
      "Nodes on which jobs are being ended.")                                                                \
    X(SLURM_NODES_DOWN, CONTROLLER, GAUGE, "slurm_nodes_down", "", "", "Nodes that are down.")               \
    X(SLURM_NODES_DRAIN, CONTROLLER, GAUGE, "slurm_nodes_drain", "", "", "Nodes that get no new jobs.")      \
    X(SLURM_NODES_ERR, CONTROLLER, GAUGE, "slurm_nodes_err", "", "", "Nodes with a GPU out of use.")         \
    X(SLURM_NODES_FAIL, CONTROLLER, GAUGE, "slurm_nodes_fail", "", "", "Nodes that are silent.")             \
    X(SLURM_NODES_IDLE, CONTROLLER, GAUGE, "slurm_nodes_idle", "", "", "Nodes without jobs.")                \
    X(SLURM_NODES_MAINT, CONTROLLER, GAUGE, "slurm_nodes_maint", "", "",                                     \
      "Nodes in a maintenance reservation.")                                                                 \
    X(SLURM_NODES_MIX, CONTROLLER, GAUGE, "slurm_nodes_mix", "", "", "Nodes with jobs and with room.")       \
    X(SLURM_NODES_RESV, CONTROLLER, GAUGE, "slurm_nodes_resv", "", "", "Nodes in another reservation.")      \
    X(SLURM_Q_PENDING, CONTROLLER, GAUGE, "slurm_queue_pending", "", "", "Pending jobs.")                    \
    X(SLURM_Q_DEPENDENCY, CONTROLLER, GAUGE, "slurm_queue_pending_dependency", "", "",                       \
      "Pending jobs that wait for others.")                                                                  \
    X(SLURM_Q_RUNNING, CONTROLLER, GAUGE, "slurm_queue_running", "", "", "Running jobs.")                    \
    X(SLURM_Q_SUSPENDED, CONTROLLER, GAUGE, "slurm_queue_suspended", "", "", "Suspended jobs.")              \
    X(SLURM_Q_CONFIGURING, CONTROLLER, GAUGE, "slurm_queue_configuring", "", "", "Jobs being started.")      \
    X(SLURM_Q_COMPLETING, CONTROLLER, GAUGE, "slurm_queue_completing", "", "", "Jobs being ended.")          \
    X(SLURM_Q_CANCELLED, CONTROLLER, GAUGE, "slurm_queue_cancelled", "", "",                                 \
      "Jobs cancelled in the last five minutes.")                                                            \
    X(SLURM_Q_COMPLETED, CONTROLLER, GAUGE, "slurm_queue_completed", "", "",                                 \
      "Jobs completed in the last five minutes.")                                                            \
    X(SLURM_Q_FAILED, CONTROLLER, GAUGE, "slurm_queue_failed", "", "",                                       \
      "Jobs that failed, out of memory included, in the last five minutes.")                                 \
    X(SLURM_Q_TIMEOUT, CONTROLLER, GAUGE, "slurm_queue_timeout", "", "",                                     \
      "Jobs ended by their time limit or deadline in the last five minutes.")                                \
    X(SLURM_Q_PREEMPTED, CONTROLLER, GAUGE, "slurm_queue_preempted", "", "",                                 \
      "Jobs ended by preemption in the last five minutes.")                                                  \
    X(SLURM_Q_NODE_FAIL, CONTROLLER, GAUGE, "slurm_queue_node_fail", "", "",                                 \
      "Jobs lost with their node in the last five minutes.")                                                 \
    X(SLURM_CPUS_ALLOC, CONTROLLER, GAUGE, "slurm_cpus_alloc", "", "", "CPUs held by jobs.")                 \
    X(SLURM_CPUS_IDLE, CONTROLLER, GAUGE, "slurm_cpus_idle", "", "", "CPUs that jobs could get.")            \
    X(SLURM_CPUS_OTHER, CONTROLLER, GAUGE, "slurm_cpus_other", "", "",                                       \
      "Free CPUs of nodes that get no jobs.")                                                                \
    X(SLURM_CPUS_TOTAL, CONTROLLER, GAUGE, "slurm_cpus_total", "", "", "CPUs.")                              \
    X(SLURM_GPUS_ALLOC, CONTROLLER, GAUGE, "slurm_gpus_alloc", "", "", "GPUs held by jobs.")                 \
    X(SLURM_GPUS_IDLE, CONTROLLER, GAUGE, "slurm_gpus_idle", "", "", "GPUs nobody holds.")                   \
    X(SLURM_GPUS_TOTAL, CONTROLLER, GAUGE, "slurm_gpus_total", "", "", "GPUs.")                              \
    X(SLURM_GPUS_USE, CONTROLLER, GAUGE, "slurm_gpus_utilization", "", "",                                   \
      "Part of the GPUs that is held, 0 to 1.")                                                              \
    X(SLURM_USER_PENDING, CONTROLLER, GAUGE, "slurm_user_jobs_pending", "", "user",                          \
      "A user's pending jobs.")                                                                              \
    X(SLURM_USER_RUNNING, CONTROLLER, GAUGE, "slurm_user_jobs_running", "", "user",                          \
      "A user's running jobs.")                                                                              \
    X(SLURM_USER_SUSPENDED, CONTROLLER, GAUGE, "slurm_user_jobs_suspended", "", "user",                      \
      "A user's suspended jobs.")                                                                            \
    X(SLURM_USER_CPUS, CONTROLLER, GAUGE, "slurm_user_cpus_running", "", "user",                             \
      "CPUs a user's running jobs hold.")                                                                    \
    X(SLURM_ACCOUNT_PENDING, CONTROLLER, GAUGE, "slurm_account_jobs_pending", "", "account",                 \
      "A project's pending jobs.")                                                                           \
    X(SLURM_ACCOUNT_RUNNING, CONTROLLER, GAUGE, "slurm_account_jobs_running", "", "account",                 \
      "A project's running jobs.")                                                                           \
    X(SLURM_ACCOUNT_SUSPENDED, CONTROLLER, GAUGE, "slurm_account_jobs_suspended", "", "account",             \
      "A project's suspended jobs.")                                                                         \
    X(SLURM_ACCOUNT_FAIR, CONTROLLER, GAUGE, "slurm_account_fairshare", "", "account",                       \
      "What a project is promised against what it uses, as sshare tells: 1 unused, 0.5 even.")               \
    X(SLURM_ACCOUNT_CPUS, CONTROLLER, GAUGE, "slurm_account_cpus_running", "", "account",                    \
      "CPUs a project's running jobs hold.")                                                                 \
    X(SLURM_PARTITION_ALLOC, CONTROLLER, GAUGE, "slurm_partition_cpus_allocated", "", "partition",           \
      "CPUs held by jobs.")                                                                                  \
    X(SLURM_PARTITION_IDLE, CONTROLLER, GAUGE, "slurm_partition_cpus_idle", "", "partition",                 \
      "CPUs that jobs could get.")                                                                           \
    X(SLURM_PARTITION_OTHER, CONTROLLER, GAUGE, "slurm_partition_cpus_other", "", "partition",               \
      "Free CPUs of nodes that get no jobs.")                                                                \
    X(SLURM_PARTITION_TOTAL, CONTROLLER, GAUGE, "slurm_partition_cpus_total", "", "partition", "CPUs.")      \
    X(SLURM_PARTITION_PENDING, CONTROLLER, GAUGE, "slurm_partition_jobs_pending", "", "partition",           \
      "Pending jobs.")                                                                                       \
    X(SLURM_NODE_CPU_ALLOC, CONTROLLER, GAUGE, "slurm_node_cpu_alloc", "", "node,status",                    \
      "CPUs held by jobs.")                                                                                  \
    X(SLURM_NODE_CPU_IDLE, CONTROLLER, GAUGE, "slurm_node_cpu_idle", "", "node,status",                      \
      "CPUs that jobs could get.")                                                                           \
    X(SLURM_NODE_CPU_OTHER, CONTROLLER, GAUGE, "slurm_node_cpu_other", "", "node,status",                    \
      "Free CPUs that jobs cannot get.")                                                                     \
    X(SLURM_NODE_CPU_TOTAL, CONTROLLER, GAUGE, "slurm_node_cpu_total", "", "node,status", "CPUs.")           \
    X(SLURM_NODE_MEM_ALLOC, CONTROLLER, GAUGE, "slurm_node_mem_alloc", "", "node,status",                    \
      "Memory held by jobs (in MiB).")                                                                       \
    X(SLURM_NODE_MEM_TOTAL, CONTROLLER, GAUGE, "slurm_node_mem_total", "", "node,status",                    \
      "Memory (in MiB).")                                                                                    \
    X(SLURM_S_THREADS, CONTROLLER, GAUGE, "slurm_scheduler_threads", "", "",                                 \
      "Open connections of clients and agents.")                                                             \
    X(SLURM_S_QUEUE, CONTROLLER, GAUGE, "slurm_scheduler_queue_size", "", "",                                \
      "Events that wait for their commit.")                                                                  \
    X(SLURM_S_LAST, CONTROLLER, GAUGE, "slurm_scheduler_last_cycle", "", "",                                 \
      "Time of the newest scheduling pass (in microseconds).")                                               \
    X(SLURM_S_MEAN, CONTROLLER, GAUGE, "slurm_scheduler_mean_cycle", "", "",                                 \
      "Mean time of a scheduling pass (in microseconds).")                                                   \
    X(SLURM_S_RATE, CONTROLLER, GAUGE, "slurm_scheduler_cycle_per_minute", "", "",                           \
      "Scheduling passes per minute.")                                                                       \
    X(SLURM_S_BF_LAST, CONTROLLER, GAUGE, "slurm_scheduler_backfill_last_cycle", "", "",                     \
      "The same as last_cycle: one pass does both (in microseconds).")                                       \
    X(SLURM_S_BF_MEAN, CONTROLLER, GAUGE, "slurm_scheduler_backfill_mean_cycle", "", "",                     \
      "The same as mean_cycle (in microseconds).")                                                           \
    X(SLURM_S_DEPTH, CONTROLLER, GAUGE, "slurm_scheduler_backfill_depth_mean", "", "",                       \
      "Jobs looked at by a pass, on average.")                                                               \
    X(SLURM_S_BACKFILLED, CONTROLLER, COUNTER, "slurm_scheduler_backfilled_jobs_since_start", "", "",        \
      "Jobs started ahead of others without delaying them.")                                                 \
    X(SLURM_S_BF_CYCLE, CONTROLLER, COUNTER, "slurm_scheduler_backfilled_jobs_since_cycle", "", "",          \
      "The same as since_start: nothing resets it in between.")                                              \
    X(SLURM_S_BF_HET, CONTROLLER, COUNTER, "slurm_scheduler_backfilled_heterogeneous", "", "",               \
      "Always 0: there are no heterogeneous jobs.")                                                          \
    X(SLURM_S_DBD, CONTROLLER, GAUGE, "slurm_scheduler_dbd_queue_size", "", "",                              \
      "Always 0: history is written with the events.")

#define METRICS_ALL(X) \
    METRICS_ABOUT(X) METRICS_JOBS(X) METRICS_NODES(X) METRICS_DAEMON(X) METRICS_GPU(X) METRICS_DCGM(X) METRICS_SLURM(X)

enum metric_id {
#define METRIC_ENUM(id, ...) M_##id,
    METRICS_ALL(METRIC_ENUM)
#undef METRIC_ENUM
    METRIC_COUNT
};

const struct metric_info *metric_info(enum metric_id id);
void metrics_reference_markdown(struct buf *out);  // the tables of docs/monitoring.md
