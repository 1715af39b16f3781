// Steps of jobs: the batch script (".batch") and what srun started (".0", ".1", …), made from the
// job's row and its events.
#pragma once
#include "job_row.h"

struct sstep {
    const struct sjob *job;
    const char *id;      // "batch", "0"
    const char *name, *nodes;
    enum job_state state;
    int64_t start_ms, end_ms;
    int32_t exit_code;
    uint32_t exit_signal, tasks, cpus, node_count;
    const struct json *usage;  // struct usage; may be NULL
};
typedef VEC(struct sstep) sstep_vec;

// Steps of the newest attempt. Needs the fields STEP_FIELDS.
#define STEP_FIELDS                                                                                          \
    "id,label,state,name,nodes,start_ms,end_ms,exit_code,exit_signal,cpus,tasks,node_count,attempt,steps,"   \
    "launch,user,uid,partition,array_id,array_index"
void slurm_steps_of(struct arena *a, const struct sjob *j, sstep_vec *out);

struct step_show {
    const char *users, *partitions, *jobs, *format, *names;  // `names`: the columns by name
    bool heading;
};
// squeue -s
int slurm_steps_show(struct slurm *s, const char *ids, const struct step_show *how);

// --json of squeue and sacct.
#define SJOB_JSON_FIELDS                                                                                     \
    "order,id,array_id,array_index,label,name,user,uid,project,partition,qos,state,reason,nodes,node_count," \
    "tasks,cpus,memory_bytes,"                                                                               \
    "gpus_milli,time_limit_s,submit_ms,eligible_ms,start_ms,end_ms,elapsed_ms,expected_start_ms,exit_code,"  \
    "exit_signal,attempt,"                                                                                   \
    "priority,nice,hold,spec,preempted,suspended_ms,suspend_ms"
