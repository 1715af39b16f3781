// Owns steps as rows, and jobs and steps as JSON.
#include "cli/slurm/steplist.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "cli/slurm/columns.h"
#include "cli/slurm/squeue_columns.h"

static void add_batch(const struct sjob *j, sstep_vec *out) {
    struct sstep b = {.job = j, .id = "batch", .name = "batch", .nodes = j->nodes, .state = j->state, .start_ms = j->start_ms, .end_ms = j->end_ms,
                      .exit_code = j->exit_code, .exit_signal = j->exit_signal, .tasks = 1, .cpus = j->node_count > 1 ? j->cpus / j->node_count : j->cpus, .node_count = 1, .usage = j->usage};
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
        struct sstep s = {.job = j, .id = arena_printf(a, "%u", number - 1), .name = json_str(e, "name"), .nodes = json_str(e, "nodes"),
                          .state = JOB_RUNNING, .start_ms = json_i64(e, "at_ms", 0), .tasks = (uint32_t)json_i64(e, "tasks", 1),
                          .cpus = (uint32_t)json_i64(e, "cpus", 1), .node_count = 1};
        vec_push(out, s);
        return;
    }
    char id[16];
    snprintf(id, sizeof id, "%u", number - 1);
    for (uint32_t i = from; i < out->len; i++) {
        struct sstep *s = &out->at[i];
        if (!streq(s->id, id))
            continue;
        int state = words_find(job_state_words, json_str(e, "state") ? json_str(e, "state") : "COMPLETED");
        s->state = state < 0 ? JOB_COMPLETED : (enum job_state)state;
        s->end_ms = json_i64(e, "at_ms", 0);
        s->exit_code = (int32_t)json_i64(e, "exit_code", 0);
        s->exit_signal = (uint32_t)json_i64(e, "exit_signal", 0);
        s->usage = json_get(e, "usage");
        if (s->usage && s->usage->type != JSON_OBJECT)
            s->usage = NULL;
    }
}

void steps_of(struct arena *a, const struct sjob *j, sstep_vec *out) {
    uint32_t from = out->len;
    if (!j->start_ms)
        return;
    if (streq(j->launch, "batch"))
        add_batch(j, out);
    if (streq(j->launch, "tasks")) {  // srun alone: the job is its only step
        struct sstep s = {.job = j, .id = "0", .name = j->name, .nodes = j->nodes, .state = j->state == JOB_STARTING ? JOB_RUNNING : j->state,
                          .start_ms = j->start_ms, .end_ms = j->end_ms, .exit_code = j->exit_code, .exit_signal = j->exit_signal,
                          .tasks = j->tasks, .cpus = j->cpus, .node_count = j->node_count, .usage = j->usage};
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
PUT(name) { STEP; buf_adds(out, p->name ? p->name : ""); }
PUT(partition) { STEP; buf_adds(out, p->job->partition ? p->job->partition : ""); }
PUT(user) { STEP; buf_adds(out, p->job->user ? p->job->user : ""); }
PUT(used) {
    STEP;
    char t[UNIT_TEXT_MAX];
    buf_adds(out, elapsed_format((p->job->now_ms - p->start_ms) / 1000, t));
}
PUT(nodes) { STEP; buf_adds(out, p->nodes ? p->nodes : ""); }
PUT(start) {
    STEP;
    char t[UNIT_TEXT_MAX];
    buf_adds(out, slurm_time(p->start_ms, "N/A", t));
}
PUT(tasks) { STEP; buf_addu(out, p->tasks); }
PUT(state) { STEP; buf_adds(out, job_state_words[p->state]); }

static const struct column step_columns[] = {
    {'i', "stepid", "STEPID", "", put_id},         {'A', "jobid", "JOBID", "", put_job_id},     {'j', "stepname", "NAME", "", put_name},
    {'P', "partition", "PARTITION", "", put_partition}, {'u', "username", "USER", "", put_user}, {'M', "timeused", "TIME", "", put_used},
    {'N', "nodelist", "NODELIST", "", put_nodes}, {'S', "starttime", "START_TIME", "", put_start}, {'A', "numtasks", "TASKS", "", put_tasks},
    {'T', "stepstate", "STATE", "", put_state}};

int steps_show(struct slurm *s, const char *ids, const struct step_show *how) {
    struct columns c = {0};
    sjob_vec jobs = {0};
    sstep_vec steps = {0};
    cleanup_buf struct buf out = {0};
    const char *which = ids ? ids : how->jobs, *bad = NULL;
    const char *plain = which ? ids_plain(&s->cli.arena, which, &bad) : NULL;
    if (which && !plain) {
        slurm_error(s, "Invalid job id: %s", bad);
        return SLURM_FAILED;
    }
    columns_by_letters(s, step_columns, sizeof step_columns / sizeof *step_columns, how->format ? how->format : "%.15i %.8j %.9P %.8u %.9M %N", &c);
    struct job_query q = {.live = true, .fields = STEP_FIELDS, .ids = plain};
    int status = jobs_fetch(s, &q, &jobs);
    for (uint32_t i = 0; !status && i < jobs.len; i++)
        if (list_has(how->users, jobs.at[i].user) && list_has(how->partitions, jobs.at[i].partition) && ids_have(which, &jobs.at[i]))
            steps_of(&s->cli.arena, &jobs.at[i], &steps);
    if (!status && how->heading)
        columns_heading(&c, &out);
    for (uint32_t i = 0; !status && i < steps.len; i++)
        if ((steps.at[i].state == JOB_RUNNING || steps.at[i].state == JOB_SUSPENDED) && ids_have_step(which, steps.at[i].job, steps.at[i].id))
            columns_row(&c, &steps.at[i], &out);
    vec_done(&jobs);
    vec_done(&steps);
    columns_done(&c);
    return status ? status : cli_print(&out);
}

static void kv_time(struct json_writer *w, const char *key, int64_t at_ms) {
    json_kv_i64(w, key, at_ms / 1000);
}

void sjob_json(const struct sjob *j, struct json_writer *w) {
    const struct spec *s = j->spec;
    cleanup_buf struct buf text = {0};
    json_open(w, '{');
    json_kv_i64(w, "job_id", (int64_t)j->id);
    json_kv_i64(w, "array_job_id", (int64_t)j->array_id);
    json_key(w, "array_task_id");
    if (j->array_id && !j->elements)
        json_put_i64(w, j->array_index);
    else
        json_put_null(w);
    json_kv_str(w, "array_task_string", j->elements ? j->elements : "");
    json_kv_str(w, "name", j->name);
    json_kv_str(w, "user_name", j->user);
    json_kv_i64(w, "user_id", j->uid);
    json_kv_i64(w, "group_id", s ? s->gid : 0);
    json_kv_str(w, "account", j->project ? j->project : "");
    json_kv_str(w, "partition", j->partition);
    json_kv_str(w, "qos", j->qos ? j->qos : "normal");
    json_kv_str(w, "job_state", state_word(j->state));
    json_kv_str(w, "state_reason", reason_word(j));
    json_kv_str(w, "nodes", j->nodes ? j->nodes : "");
    json_kv_i64(w, "node_count", j->node_count);
    json_kv_i64(w, "tasks", j->tasks ? j->tasks : 1);
    json_kv_i64(w, "cpus", j->cpus);
    tres_text(j, false, &text);
    json_kv_str(w, "tres_req_str", buf_str(&text));
    json_kv_str(w, "tres_alloc_str", j->start_ms ? buf_str(&text) : "");
    json_kv_i64(w, "time_limit", j->time_limit_s / 60);
    kv_time(w, "submit_time", j->submit_ms);
    kv_time(w, "eligible_time", j->eligible_ms);
    kv_time(w, "start_time", j->start_ms ? j->start_ms : j->expected_start_ms);
    kv_time(w, "end_time", sjob_end_ms(j));
    json_kv_i64(w, "exit_code", (j->exit_code << 8) | (int)j->exit_signal);
    json_kv_i64(w, "priority", sjob_priority(j));
    json_kv_i64(w, "nice", j->nice);
    json_kv_i64(w, "restart_cnt", j->attempt > 1 ? j->attempt - 1 : 0);
    json_kv_bool(w, "hold", j->hold);
    if (s) {
        json_kv_str(w, "comment", s->comment ? s->comment : "");
        json_kv_str(w, "current_working_directory", s->workdir ? s->workdir : "");
        json_kv_str(w, "command", s->command_text ? s->command_text : "");
        json_kv_str(w, "dependency", s->dependency ? s->dependency : "");
        json_kv_str(w, "features", s->features ? s->features : "");
        json_kv_str(w, "required_nodes", s->nodes ? s->nodes : "");
        json_kv_str(w, "excluded_nodes", s->exclude ? s->exclude : "");
        json_kv_bool(w, "requeue", s->requeue);
        buf_clear(&text);
        sjob_path(j, s->output, &text);
        json_kv_str(w, "standard_output", buf_str(&text));
        buf_clear(&text);
        sjob_path(j, str_empty(s->error) ? s->output : s->error, &text);
        json_kv_str(w, "standard_error", buf_str(&text));
        json_kv_str(w, "standard_input", s->input ? s->input : "/dev/null");
    }
    json_close(w, '}');
}
