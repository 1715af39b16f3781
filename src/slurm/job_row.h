// Jobs as Slurm's commands see them: rows of the API read into structs, Slurm's words for states
// and reasons, and selections (-j, -u, -t, …) as these commands write them.
#pragma once
#include "base/vec.h"
#include "context.h"
#include "model/job.h"

struct sjob {
    uint64_t id, array_id;  // array_id 0: no array
    uint32_t array_index;
    const char *label, *name, *user, *project, *partition, *qos;
    enum job_state state;
    const char *reason, *nodes, *elements, *by, *ending, *launch;
    uint32_t node_count, tasks, cpus, time_limit_s, attempt, uid, preempted;
    uint64_t memory_bytes, gpus_milli, memory_peak_bytes, cpu_ms, energy_mj, gpu_busy_ms;
    const char *gpu_model;
    int64_t submit_ms, eligible_ms, start_ms, end_ms, elapsed_ms, expected_start_ms;
    int64_t suspended_ms, suspend_ms;  // all pauses; when it was suspended or resumed last
    int32_t exit_code, nice;
    uint32_t exit_signal, priority;
    bool ordered;           // where its turn comes from is known: see "order" in docs/api.md
    int64_t turn_priority, age_s, short_s, use_s, size_s, tier, qos_priority;
    bool hold;
    const struct json *spec_json, *steps, *usage;
    struct spec *spec;      // never NULL when "spec" was asked for
    int64_t now_ms;         // of the answer
};

typedef VEC(struct sjob) sjob_vec;

// Of a component, by its label "12+1": its job and its number there. False: it is none.
bool slurm_job_component(const struct sjob *j, uint64_t *job, uint32_t *offset);
uint64_t slurm_job_number(const struct sjob *j);  // of the first component that of the job, as in Slurm

struct job_query {
    const char *ids;      // NULL: all
    const char *fields;   // of the API, joined by ','
    const char *user, *partition, *project, *name, *qos;  // one value each; NULL: any
    bool elements;        // array elements that wait, one by one
    bool components;      // of a heterogeneous job, one by one
    bool live, finished;
    uint32_t states;      // bit per state; 0: all
    int64_t since_ms, to_ms;  // finished ones that ended since then; those that began until then; 0: any
};
// 0, or the error is printed and the exit status returned. Rows live in the arena of the call.
int slurm_jobs_fetch(struct slurm *s, const struct job_query *q, sjob_vec *out);
int slurm_jobs_fetch_in(struct slurm *s, const struct job_query *q, struct arena *a, sjob_vec *out);  // rows live there
// One row after the other, in any order; each lives until `fn` returns. What `fn` returns, when it is
// not 0, ends the reading and is the exit status.
typedef int (*sjob_fn)(void *ctx, const struct sjob *j);
int slurm_jobs_each(struct slurm *s, const struct job_query *q, sjob_fn fn, void *ctx);

// State as Slurm would say it: a job being started is running.
const char *slurm_state_word(enum job_state s);
const char *slurm_state_letters(enum job_state s);
const char *slurm_reason_word(const struct sjob *j);  // one word, "None"
// "RUNNING,PD,all": a bit per state; 0 with the error printed.
uint32_t slurm_states_parse(struct slurm *s, const char *text);
bool slurm_states_known(const char *word);
// Is the step meant by "12.0", "12.batch", or by its job's id alone?
bool slurm_ids_have_step(const char *list, const struct sjob *j, const char *step);
enum {
    STATES_ALL = (1u << JOB_STATE_COUNT) - 1,
    STATES_LIVE = 1u << JOB_PENDING | 1u << JOB_STARTING | 1u << JOB_RUNNING | 1u << JOB_SUSPENDED |
                  1u << JOB_COMPLETING
};

// Is the word in "a,b,c"? An empty list has everything.
bool slurm_list_has(const char *list, const char *word);
bool slurm_list_meets(const char *list, const char *words);  // of several words, one; no list: true
// A waiting job of several partitions becomes a row for each that is asked about (NULL: for each).
void slurm_jobs_by_partition(const char *wanted, struct arena *a, sjob_vec *jobs);
// Have the two lists of nodes one in common?
bool slurm_nodes_meet(const char *wanted, const char *nodes);
// Is the job meant by a list of "12", "12_3", "12_[1-5]", "12.0"?
bool slurm_ids_have(const char *list, const struct sjob *j);
// Ids as the API takes them ("12_[1-5]" becomes "12"); NULL with *bad the one that is none.
const char *slurm_ids_plain(struct arena *a, const char *list, const char **bad);
const char *slurm_user_name_of(struct arena *a, const char *text);  // a number becomes the name; NULL: no such user
const char *slurm_group_name(struct arena *a, uint32_t gid);
const char *slurm_own_name(struct arena *a);
// "cpu=2,mem=100M,node=1,billing=2,gres/gpu=1"
void slurm_tres_text(const struct sjob *j, bool sorted, struct buf *out);
