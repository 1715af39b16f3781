// Owns steps as rows.
#include "step_row.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "columns.h"
#include "squeue_columns.h"
#include "model/nodelist.h"

static void add_batch(const struct sjob *j, sstep_vec *out) {
    struct sstep b = {.job = j,
                      .id = "batch",
                      .name = "batch",
                      .nodes = j->nodes,
                      .state = j->state,
                      .start_ms = j->start_ms,
                      .end_ms = j->end_ms,
                      .exit_code = j->exit_code,
                      .exit_signal = j->exit_signal,
                      .tasks = 1,
                      .cpus = j->node_count > 1 ? j->cpus / j->node_count : j->cpus,
                      .node_count = 1,
                      .usage = j->usage};
    if (b.state == JOB_STARTING)
        b.state = JOB_RUNNING;
    if (b.state == JOB_FAILED && b.exit_signal)
        b.state = JOB_CANCELLED;
    if (b.state == JOB_TIMEOUT)
        b.state = JOB_CANCELLED;
    vec_push(out, b);
}

static void add_event(struct arena *a, const struct sjob *j, const struct json *e, uint32_t from, sstep_vec *out) {
    uint32_t number = (uint32_t)json_i64(e, "step", 1);
    const char *type = json_str(e, "type");
    if (json_i64(e, "attempt", 0) != j->attempt)
        return;
    if (streq(type, "step_started")) {
        struct sstep s = {.job = j,
                          .id = arena_printf(a, "%u", number - 1),
                          .name = json_str(e, "name"),
                          .nodes = json_str(e, "nodes"),
                          .state = JOB_RUNNING,
                          .start_ms = json_i64(e, "at_ms", 0),
                          .tasks = (uint32_t)json_i64(e, "tasks", 1),
                          .cpus = (uint32_t)json_i64(e, "cpus", 1),
                          .node_count = 1};
        vec_push(out, s);
        return;
    }
    char id[16];
    snprintf(id, sizeof id, "%u", number - 1);
    for (uint32_t i = from; i < out->len; i++) {
        struct sstep *s = &out->at[i];
        if (!streq(s->id, id))
            continue;
        int state =
            schema_word_find(job_state_words, json_str(e, "state") ? json_str(e, "state") : "COMPLETED");
        s->state = state < 0 ? JOB_COMPLETED : (enum job_state)state;
        s->end_ms = json_i64(e, "at_ms", 0);
        s->exit_code = (int32_t)json_i64(e, "exit_code", 0);
        s->exit_signal = (uint32_t)json_i64(e, "exit_signal", 0);
        s->usage = json_get(e, "usage");
        if (s->usage && s->usage->type != JSON_OBJECT)
            s->usage = NULL;
    }
}

void slurm_steps_of(struct arena *a, const struct sjob *j, sstep_vec *out) {
    uint32_t from = out->len;
    if (!j->start_ms)
        return;
    if (streq(j->launch, "batch"))
        add_batch(j, out);
    if (streq(j->launch, "tasks")) {  // srun alone: the job is its only step
        struct sstep s = {.job = j,
                          .id = "0",
                          .name = j->name,
                          .nodes = j->nodes,
                          .state = j->state == JOB_STARTING ? JOB_RUNNING : j->state,
                          .start_ms = j->start_ms,
                          .end_ms = j->end_ms,
                          .exit_code = j->exit_code,
                          .exit_signal = j->exit_signal,
                          .tasks = j->tasks,
                          .cpus = j->cpus,
                          .node_count = j->node_count,
                          .usage = j->usage};
        vec_push(out, s);
    }
    for (uint32_t i = 0; j->steps && i < j->steps->len; i++)
        add_event(a, j, &j->steps->items[i], from, out);
    for (uint32_t i = from; i < out->len; i++)  // steps that ended with their job
        if (out->at[i].state == JOB_RUNNING && job_state_final(j->state)) {
            out->at[i].state = JOB_CANCELLED;
            out->at[i].end_ms = j->end_ms;
        }
}

#define PUT(fn) static void put_##fn(const void *row, struct buf *out)
#define STEP const struct sstep *p = row
PUT(id) { STEP; buf_addf(out, "%s.%s", p->job->label, p->id); }
PUT(job_id) { STEP; buf_addu(out, p->job->id); }
PUT(array_id) { STEP; buf_addu(out, p->job->array_id); }
PUT(array_index) {
    STEP;
    if (p->job->array_id)
        buf_addu(out, p->job->array_index);
    else
        buf_adds(out, "N/A");
}
PUT(name) { STEP; buf_adds(out, p->name ? p->name : ""); }
PUT(partition) { STEP; buf_adds(out, p->job->partition ? p->job->partition : ""); }
PUT(user) { STEP; buf_adds(out, p->job->user ? p->job->user : ""); }
PUT(uid) { STEP; buf_addu(out, p->job->uid); }
PUT(used) {
    STEP;
    char t[UNIT_TEXT_MAX];
    buf_adds(out, duration_elapsed_format((p->job->now_ms - p->start_ms) / 1000, t));
}
PUT(nodes) {
    STEP;
    struct name_list names;
    cleanup_arena struct arena a = {0};
    if (streq(p->id, "batch") && p->nodes && nodelist_expand(p->nodes, &a, &names, NULL) == 0 && names.len)
        buf_adds(out, names.at[0]);  // the script runs on the first
    else
        buf_adds(out, p->nodes ? p->nodes : "");
}
PUT(start) {
    STEP;
    char t[UNIT_TEXT_MAX];
    buf_adds(out, slurm_time(p->start_ms, "N/A", t));
}
PUT(tasks) { STEP; buf_addu(out, p->tasks); }
PUT(state) { STEP; buf_adds(out, job_state_words[p->state]); }
PUT(unlimited) { (void)row; buf_adds(out, "UNLIMITED"); }
PUT(null) { (void)row; buf_adds(out, "(null)"); }

static const struct column step_columns[] = {{'A', "numtasks", "TASKS", "", put_tasks},
                                             {'b', "gres", "TRES_PER_NODE", "", put_null},
                                             {'i', "stepid", "STEPID", "", put_id},
                                             {'j', "stepname", "NAME", "", put_name},
                                             {'l', "timelimit", "TIME_LIMIT", "", put_unlimited},
                                             {'M', "timeused", "TIME", "", put_used},
                                             {'N', "nodes", "NODELIST", "", put_nodes},
                                             {'P', "partition", "PARTITION", "", put_partition},
                                             {'S', "starttime", "START_TIME", "", put_start},
                                             {'u', "username", "USER", "", put_user},
                                             {'U', "userid", "UID", "", put_uid},
                                             {0, "arrayjobid", "ARRAY_JOB_ID", "", put_array_id},
                                             {0, "arraytaskid", "ARRAY_TASK_ID", "", put_array_index},
                                             {0, "container", "CONTAINER", "", put_null},
                                             {0, "jobid", "JOBID", "", put_job_id},
                                             {0, "resvports", "RESV_PORTS", "", put_null},
                                             {0, "stepstate", "STATE", "", put_state},
                                             {0, "tres-per-step", "TRES_PER_STEP", "", put_null}};

// Numbered ones first, the script last.
static int by_number(const void *x, const void *y) {
    const struct sstep *a = x, *b = y;
    if (a->job != b->job)
        return a->job < b->job ? -1 : 1;
    uint32_t m = UINT32_MAX, n = UINT32_MAX;
    parse_u32(a->id, &m);
    parse_u32(b->id, &n);
    return m < n ? -1 : m > n;
}

int slurm_steps_show(struct slurm *s, const char *ids, const struct step_show *how) {
    struct columns c = {0};
    sjob_vec jobs = {0};
    sstep_vec steps = {0};
    cleanup_buf struct buf out = {0};
    const char *which = ids ? ids : how->jobs, *bad = NULL;
    const char *plain = which ? slurm_ids_plain(&s->cli.arena, which, &bad) : NULL;
    if (which && !plain) {
        slurm_error(s, "Invalid job id: %s", bad);
        return SLURM_FAILED;
    }
    size_t count = sizeof step_columns / sizeof *step_columns;
    if (how->names && !how->format)
        slurm_columns_by_names(s, step_columns, count, how->names, "job step", &c);
    else
        slurm_columns_by_letters(s, step_columns, count, how->format ? how->format : "%.15i %.8j %.9P %.8u %.9M %N",
                           "job step", &c);
    struct job_query q = {.live = true, .fields = STEP_FIELDS, .ids = plain};
    int status = slurm_jobs_fetch(s, &q, &jobs);
    for (uint32_t i = 0; !status && i < jobs.len; i++)
        if (slurm_list_has(how->users, jobs.at[i].user) && slurm_list_has(how->partitions, jobs.at[i].partition) &&
            slurm_ids_have(which, &jobs.at[i]))
            slurm_steps_of(&s->cli.arena, &jobs.at[i], &steps);
    if (steps.len > 1)
        qsort(steps.at, steps.len, sizeof *steps.at, by_number);
    if (!status && how->heading)
        slurm_columns_heading(&c, &out);
    for (uint32_t i = 0; !status && i < steps.len; i++)
        if ((steps.at[i].state == JOB_RUNNING || steps.at[i].state == JOB_SUSPENDED) &&
            slurm_ids_have_step(which, steps.at[i].job, steps.at[i].id))
            slurm_columns_row(&c, &steps.at[i], &out);
    vec_done(&jobs);
    vec_done(&steps);
    slurm_columns_done(&c);
    return status ? status : cli_print(&out);
}
