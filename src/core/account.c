// The record of a job: made of a live one for the API, and of one that ends for history.
#include <errno.h>

#include "state.h"

void core_record_of(const struct core *c, const struct core_job *j, struct arena *a, struct job_record *out) {
    *out = (struct job_record){.id = j->id,
                               .is_array = j->sub->is_array,
                               .array_id = j->sub->is_array ? j->sub->id : 0,
                               .array_index = j->sub->is_array ? j->array_index : 0,
                               .spec = arena_alloc(a, sizeof *out->spec),
                               .state = (enum job_state)j->state,
                               .attempt = j->attempt,
                               .submit_ms = j->sub->submit_ms,
                               .eligible_ms = j->eligible_ms,
                               .start_ms = j->start_ms,
                               .expected_start_ms =
                                   j->state == JOB_PENDING ? (int64_t)j->expected_start_s * 1000 : 0,
                               .preempted = j->preempted,
                               .steps = j->steps,
                               .suspended_ms = j->run ? j->run->suspended_ms : 0};
    const char *why = map_get(&c->preempted_why, j->id);
    out->preempted_why = why ? arena_strdup(a, why) : NULL;
    const struct core_promise *promise = core_promise_of(c, j);
    out->late_why = promise && promise->late_why ? arena_strdup(a, promise->late_why) : NULL;
    core_spec_of(j, a, out->spec);
    if (j->state == JOB_PENDING)
        out->reason = job_reason_words[core_reason_of(c, j)];
    else if (j->run && j->run->reason)
        out->reason = arena_strdup(a, j->run->reason);
    if (j->usage)
        out->usage = arena_memdup(a, j->usage, sizeof *j->usage);
    if (j->sub->group)
        core_group_record(c, j, a, out);
    if (!j->run)
        return;
    out->epoch = j->run->epoch;
    out->agent_id = core_agent_job(j);
    out->parts.at = arena_alloc(a, j->run->part_count * sizeof *out->parts.at);
    out->parts.len = j->run->part_count;
    for (uint32_t i = 0; i < out->parts.len; i++) {
        const struct run_part *p = &j->run->parts[i];
        out->parts.at[i] = (struct part){.node = p->node->name,
                                         .cpus = p->cpus,
                                         .tasks = p->tasks,
                                         .memory_bytes = p->memory_bytes,
                                         .gpus = {p->gpus, p->gpu_count},
                                         .cpu_ids = p->cpu_ids ? arena_strdup(a, p->cpu_ids) : NULL};
    }
    // What the attempt was given counts while it runs, not what was asked for.
    if (j->run->time_limit_s)
        out->spec->time_limit_s = j->run->time_limit_s;
    if (j->run->partition)
        out->spec->partition = j->run->partition;
}

int core_record(const struct core *c, uint64_t id, struct arena *a, struct job_record *out) {
    const struct core_job *j = core_find_job(c, id);
    if (!j)
        return -ENOENT;
    core_record_of(c, j, a, out);
    return 0;
}

static uint32_t put_text(struct buf *b, const char *s) {
    uint32_t at = (uint32_t)b->len;
    buf_add(b, s, strlen(s) + 1);
    return at;
}

void core_finished_row(struct core *c, const struct core_job *j, const struct event_job_ended *e, int64_t now_ms) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf nodes = {0};
    struct job_record r;
    struct buf *bytes = &c->outbox.bytes;
    core_record_of(c, j, &a, &r);
    r.state = e->state;
    r.exit_code = e->exit_code;
    r.exit_signal = e->exit_signal;
    r.reason = e->reason;
    r.by = e->by;
    r.end_ms = now_ms;
    r.expected_start_ms = 0;
    r.suspended_ms = core_run_paused_ms(j, now_ms);
    if (!r.start_ms && j->flags & (HELD_USER | HELD_ADMIN))
        r.eligible_ms = 0;  // it was never eligible
    core_fold_nodes(c, j, &nodes);
    struct outbox_finished f = {.id = j->id,
                                .array_id = r.array_id,
                                .array_index = r.array_index,
                                .state = e->state,
                                .submit_ms = r.submit_ms,
                                .start_ms = r.start_ms,
                                .end_ms = now_ms,
                                .user = j->sub->user,
                                .project = j->sub->project,
                                .text_owner = j->sub->id,
                                .release_texts =
                                    j->sub->array ? j->sub->array->live == 1 : !core_is_worker(j)};
    for (uint32_t i = 0; i < r.parts.len; i++) {
        f.cpus += r.parts.at[i].cpus;
        for (uint32_t g = 0; g < r.parts.at[i].gpus.len; g++)
            f.gpu_milli += r.parts.at[i].gpus.at[g].milli;
    }
    f.name = put_text(bytes, j->sub->name);
    f.nodes = put_text(bytes, buf_str(&nodes));
    f.record = (uint32_t)bytes->len;
    schema_encode(&job_record_schema, &r, bytes);
    f.record_len = (uint32_t)bytes->len - f.record;
    vec_push(&c->outbox.finished, f);
}
