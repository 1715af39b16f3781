// Writes the state as a snapshot. What is derived (indexes, the scheduler's world, dependencies) is left out: loading
// computes it again, and gives the same state as replaying the journal.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "images.h"
#include "snapshot_records.h"

static void put(struct buf *out, struct buf *scratch, enum record_type type, const void *value) {
    buf_clear(scratch);
    if (value)
        schema_encode(core_record_schema(type), value, scratch);
    schema_put_varint(out, type);
    schema_put_varint(out, scratch->len);
    buf_add(out, scratch->data, scratch->len);
}

static void put_cluster(const struct core *c, struct buf *out, struct buf *scratch) {
    uint64_t by_state[JOB_STATE_COUNT];
    memcpy(by_state, c->counts.by_state, sizeof by_state);
    for (int i = 0; i < JOB_COMPLETED; i++)
        by_state[i] = 0;  // live ones are counted when they are loaded
    struct rec_meta meta = {c->next_id,
                            c->counts.submitted,
                            c->counts.requeued,
                            c->counts.preempted,
                            {by_state, JOB_STATE_COUNT},
                            c->last_event_ms,
                            c->has_policy ? (struct policy_settings *)(uintptr_t)&c->policy : NULL,
                            c->level > FEATURE_LEVEL_FIRST ? c->level : 0,
                            {c->keys.secret, c->keys.ready ? sizeof c->keys.secret : 0},
                            c->keys.swept_ms};
    uint64_t epochs[EPOCHS_KEPT], epoch_seqs[EPOCHS_KEPT];
    for (uint32_t i = 0; i < c->epochs.len; i++) {
        epochs[i] = c->epochs.at[i].epoch;
        epoch_seqs[i] = c->epochs.at[i].first_seq;
    }
    meta.epochs.at = epochs;
    meta.epoch_seqs.at = epoch_seqs;
    meta.epochs.len = meta.epoch_seqs.len = c->epochs.len;
    meta.unused_from = c->unused_from;
    meta.unused_to = c->unused_to;
    meta.restore_epoch = c->restore_epoch;
    meta.restore_ms = c->restore_ms;
    static_assert(sizeof *c->adopted.at == 4 * sizeof(uint64_t), "a row of numbers");
    meta.adopted.at = (uint64_t *)c->adopted.at;
    meta.adopted.len = 4 * c->adopted.len;
    put(out, scratch, REC_META, &meta);
    for (uint32_t i = 0; i < c->users.len; i++)
        put(out, scratch, REC_USER, &(struct rec_user){c->users.at[i]});
    for (uint32_t i = 0; i < c->node_list.len; i++) {
        const struct node_entry *n = c->node_list.at[i];
        struct rec_node r = {n->name,   n->node, n->state,       n->drained,  n->removed,
                             n->reason, n->by,   n->fingerprint, n->reason_ms, n->busy_ms,
                             n->launch_failures, n->retry_ms, n->launch_reason};
        put(out, scratch, REC_NODE, &r);
        if (n->images)
            put(out, scratch, REC_NODE_IMAGES, n->images->list);
    }
    // Names first, then values: a value may refer to a later name.
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t kind = 0; kind < ENTITY_COUNT; kind++)
            for (uint32_t i = 0; i < c->entity_list[kind].len; i++) {
                const struct entity_entry *t = c->entity_list[kind].at[i];
                cleanup_buf struct buf value = {0};
                if (pass && t->value)
                    schema_encode(entity_schema((enum entity_kind)kind), t->value, &value);
                if (!pass || t->value)
                    put(out, scratch, REC_ENTITY,
                        &(struct rec_entity){kind, t->name, {value.data, value.len}, t->version});
            }
}

static void put_tokens(const struct core *c, struct buf *out, struct buf *scratch) {
    struct core_token_list tokens = core_tokens_by_id(c);
    for (uint32_t i = 0; i < tokens.len; i++) {
        const struct token_entry *t = tokens.at[i];
        cleanup_buf struct buf value = {0};
        schema_encode(event_info(EVENT_TOKEN_CREATED)->schema, t->token, &value);
        put(out, scratch, REC_TOKEN, &(struct rec_token){{value.data, value.len}, t->used});
    }
    vec_done(&tokens);
}

static void put_usage(const struct core *c, struct buf *out, struct buf *scratch) {
    for (uint32_t p = 1; p <= c->entity_list[ENTITY_PROJECT].len; p++)
        for (uint32_t u = 1; u <= c->users.len; u++) {
            struct rec_usage r = {.project = p, .user = u};
            if (world_usage_kept(c->world, p, u, &r.milli, &r.at_ms))
                put(out, scratch, REC_USAGE, &r);
        }
}

static void put_submission(struct buf *out, struct buf *scratch, const struct submission *s, uint64_t number) {
    const struct array *a = s->array;
    struct rec_submission r = {.number = number,
                               .id = s->id,
                               .count = s->count,
                               .submit_ms = s->submit_ms,
                               .spec = {s->spec, s->spec_len},
                               .is_array = s->is_array,
                               .limit = s->array ? s->array->limit : s->limit};
    if (a) {
        r.has_array = true;
        r.ended = a->ended;
        r.ended_ok = a->ended_ok;
        r.begun = a->begun;
        r.live = a->live;
        r.cursor = a->cursor;
        r.begun_ms = a->begun_ms;
        r.uncreated = a->count - a->created;
        r.unlimited = a->created - a->limited;
        r.creating = a->sub == s;
        r.ranges.at = a->ranges;
        r.ranges.len = a->range_count;
    }
    put(out, scratch, REC_SUBMISSION, &r);
}

static void put_group(struct buf *out, struct buf *scratch, const struct group *g) {
    cleanup_arena struct arena a = {0};
    struct rec_group r = {.id = g->id,
                          .generation = g->generation,
                          .together = g->components.at[0].together,
                          .worst_state = g->worst_state,
                          .worst_signal = g->worst_signal,
                          .worst_code = g->worst_code};
    r.workers.at = arena_alloc(&a, (g->workers.len + 1) * sizeof *r.workers.at);
    r.together_more.at = arena_alloc(&a, g->components.len * sizeof *r.together_more.at);
    for (uint32_t i = 1; i < g->components.len; i++)
        r.together_more.at[r.together_more.len++] = g->components.at[i].together;
    for (; r.workers.len < g->workers.len; r.workers.len++) {
        const struct group_worker *w = &g->workers.at[r.workers.len];
        r.workers.at[r.workers.len] = (struct rec_worker){w->id,    w->rank, w->exit_code,   w->flags,
                                                          w->state, w->node, w->exit_signal, w->component};
    }
    put(out, scratch, REC_GROUP, &r);
}

static void put_steps(const struct core_job *j, struct arena *a, struct rec_job *r) {
    uint32_t n = core_steps_running(j);
    r->running.at = arena_alloc(a, (n + 1) * sizeof *r->running.at);
    for (uint32_t i = 0; i < n; i++) {
        cleanup_buf struct buf b = {0};
        struct event_step *started;
        struct event_step_ending ending;
        core_steps_record(j, i, &started, &ending);
        event_encode(&(struct event){.type = EVENT_STEP_STARTED, .body = started}, &b);
        r->running.at[r->running.len++] = (struct rec_step){.started = {arena_memdup(a, b.data, b.len), b.len},
                                                            .ending = ending.id,
                                                            .signal = ending.signal,
                                                            .grace_s = ending.grace_s};
    }
    const struct core_step_name *adopted;
    n = core_steps_adopted(j, &adopted);
    r->adopted_steps.at = arena_alloc(a, (2 * n + 1) * sizeof *r->adopted_steps.at);
    if (n)
        r->adopted_steps.at[r->adopted_steps.len++] = core_steps_own(j);
    for (uint32_t i = 0; i < n; i++) {
        r->adopted_steps.at[r->adopted_steps.len++] = adopted[i].number;
        r->adopted_steps.at[r->adopted_steps.len++] = adopted[i].epoch;
    }
}

static void put_job(const struct core *c, struct buf *out, struct buf *scratch, const struct core_job *j,
                    uint64_t number) {
    struct rec_job r = {.id = j->id,
                        .submission = number,
                        .array_index = j->array_index,
                        .attempt = j->attempt,
                        .preempted = j->preempted,
                        .state = j->state,
                        .flags = j->flags,
                        .begin_ms = j->begin_ms,
                        .eligible_ms = j->eligible_ms,
                        .start_ms = j->start_ms,
                        .version = j->version,
                        .usage = j->usage,
                        .steps = j->steps,
                        .uncounted = j->uncounted,
                        .preempted_why = map_get(&c->preempted_why, j->id),
                        .retried = j->retried};
    const struct core_run *run = j->run;
    const struct core_promise *promise = core_promise_of(c, j);
    struct sched_job_view view;
    if (promise && world_job(c->world, j->id, &view) && view.promised_ms)
        r.promised = promise->event;
    r.late_why = promise ? promise->late_why : NULL;
    cleanup_arena struct arena a = {0};
    cleanup_free struct sched_preemption *gave = world_job_preemptions(c->world, j->id, &r.gave.len);
    r.gave.at = arena_alloc(&a, r.gave.len * sizeof *r.gave.at);
    for (uint32_t i = 0; i < r.gave.len; i++)
        r.gave.at[i] = (struct rec_gave){gave[i].by, gave[i].share, gave[i].by_share, gave[i].claim};
    if (run) {
        r.parts.at = arena_alloc(&a, run->part_count * sizeof *r.parts.at);
        r.parts.len = run->part_count;
        for (uint32_t i = 0; i < run->part_count; i++) {
            const struct run_part *p = &run->parts[i];
            struct part *part = arena_alloc(&a, sizeof *part);
            *part = (struct part){.node = p->node->name,
                                  .cpus = p->cpus,
                                  .tasks = p->tasks,
                                  .memory_bytes = p->memory_bytes,
                                  .gpus = {p->gpus, p->gpu_count},
                                  .cpu_ids = p->cpu_ids};
            r.parts.at[i] =
                (struct rec_part){part,         p->started,       p->ended,  p->cause,        p->exit_signal,
                                  p->exit_code, p->launch_failed, p->health, p->health_reason};
        }
        r.time_limit_s = run->time_limit_s;
        r.ending = run->ending;
        r.hold = run->hold;
        r.cause = run->cause;
        r.exit_code = run->exit_code;
        r.exit_signal = run->exit_signal;
        r.signal = run->signal;
        r.grace_s = run->grace_s;
        r.by = run->by;
        r.reason = run->reason;
        r.end_reason = run->end_reason;
        r.partition = run->partition;
        r.epoch = run->epoch;
        r.seq = run->seq;
        r.agent_id = run->agent_id;
        r.adopted = run->adopted;
        r.suspended_ms = run->suspended_ms;
        r.suspend_ms = run->suspend_ms;
        r.warned_percent = run->warned_percent;
        put_steps(j, &a, &r);
    }
    put(out, scratch, REC_JOB, &r);
}

static void put_outcomes(const struct core *c, struct buf *out, struct buf *scratch) {
    enum { CHUNK = 4096 };
    uint64_t ids[CHUNK], flags[CHUNK], starts[CHUNK];
    for (uint32_t i = 0, n = 0; i < c->outcomes.len; i++) {
        const struct core_outcome *o = &c->outcomes.at[(c->outcome_next + i) % c->outcomes.len];
        ids[n] = o->id;
        starts[n] = o->start_s;
        flags[n++] = (uint64_t)o->ok | (uint64_t)o->started << 1;
        if (n == CHUNK || i + 1 == c->outcomes.len) {
            put(out, scratch, REC_OUTCOMES, &(struct rec_outcomes){{ids, n}, {flags, n}, {starts, n}});
            n = 0;
        }
    }
}

static void put_keys(const struct core *c, struct buf *out, struct buf *scratch) {
    enum { CHUNK = 1024 };
    uint64_t col[KEY_COLUMNS][CHUNK];
    for (uint32_t i = 0, n = 0; i < c->keys.list.len; i++) {
        const struct core_key *k = &c->keys.list.at[i];
        const uint64_t row[KEY_COLUMNS] = {k->hash, k->spec_hash, k->id, k->count, k->user, k->expires_s, k->plain};
        for (int f = 0; f < KEY_COLUMNS; f++)
            col[f][n] = row[f];
        if (++n < CHUNK && i + 1 < c->keys.list.len)
            continue;
        struct rec_outcomes r = {.key_hashes = {col[0], n}, .key_specs = {col[1], n},   .key_ids = {col[2], n},
                                 .key_counts = {col[3], n}, .key_users = {col[4], n},   .key_expires = {col[5], n},
                                 .key_plain = {col[6], n}};
        put(out, scratch, REC_OUTCOMES, &r);
        n = 0;
    }
}

struct record_writer {
    struct buf *out, *scratch;
};

static bool put_secret(void *ctx, const struct event_secret *s) {
    struct record_writer *w = ctx;
    put(w->out, w->scratch, REC_SECRET, s);
    return true;
}

static int by_id(const void *x, const void *y) {
    const struct array *a = *(struct array *const *)x, *b = *(struct array *const *)y;
    return a->id < b->id ? -1 : a->id > b->id;
}

// What elements that are still to be created share, where no job has it: all that were created have ended or changed.
static void put_creating(const struct core *c, struct buf *out, struct buf *scratch, struct map *numbers) {
    VEC(struct array *) arrays = {0};
    for (uint32_t i = 0; i < c->unfinished.len; i++)
        if (c->unfinished.at[i]->sub && !map_get(numbers, (uintptr_t)c->unfinished.at[i]->sub))
            vec_push(&arrays, c->unfinished.at[i]);
    if (arrays.len)
        qsort(arrays.at, arrays.len, sizeof *arrays.at, by_id);
    for (uint32_t i = 0; i < arrays.len; i++)
        put_submission(out, scratch, arrays.at[i]->sub, numbers->len + i + 1);
    vec_done(&arrays);
}

static bool put_deleted_secret(void *ctx, const struct event_secret *s) {
    struct record_writer *w = ctx;
    put(w->out, w->scratch, REC_SECRET_DELETED, s);
    return true;
}

static int by_target(const void *x, const void *y) {
    const struct judging *a = *(struct judging *const *)x, *b = *(struct judging *const *)y;
    return a->target < b->target ? -1 : a->target > b->target;
}

static void put_judging(const struct core *c, struct buf *out, struct buf *scratch) {
    VEC(struct judging *) all = {0};
    VEC(uint64_t) ids = {0};
    void *v;
    for (size_t it = 0; map_next(&c->judging, &it, NULL, &v);)
        vec_push(&all, (struct judging *)v);
    if (all.len)
        qsort(all.at, all.len, sizeof *all.at, by_target);
    for (uint32_t i = 0; i < all.len; i++) {
        vec_clear(&ids);
        const struct dependents *d = all.at[i]->ids;
        for (uint32_t k = d->head; k < d->len; k++) {
            const struct core_job *j = core_find_job(c, d->at[k]);
            if (j && core_job_waits(j))
                vec_push(&ids, d->at[k]);
        }
        if (ids.len)
            put(out, scratch, REC_JUDGING, &(struct rec_judging){all.at[i]->target, {ids.at, ids.len}});
    }
    vec_done(&all);
    vec_done(&ids);
}

static bool put_account(void *ctx, const struct core_user_view *u) {
    struct record_writer *w = ctx;
    cleanup_arena struct arena a = {0};
    struct event_user_set r = {.account = schema_copy(&user_account_schema, u->account, &a),
                               .value = u->password,
                               .version = u->version,
                               .set_ms = u->set_ms};
    put(w->out, w->scratch, REC_ACCOUNT, &r);
    return true;
}

static bool put_session(void *ctx, const struct event_session *s) {
    struct record_writer *w = ctx;
    put(w->out, w->scratch, REC_SESSION, s);
    return true;
}

static bool put_saved(void *ctx, const struct event_saved *s) {
    struct record_writer *w = ctx;
    put(w->out, w->scratch, REC_SAVED, s);
    return true;
}

static bool put_grant(void *ctx, const struct event_user_grant *g) {
    struct record_writer *w = ctx;
    put(w->out, w->scratch, REC_GRANT, g);
    return true;
}

static bool put_alert_rule(void *ctx, const struct event_alert_rule *r) {
    struct record_writer *w = ctx;
    put(w->out, w->scratch, REC_ALERT_RULE, r);
    return true;
}

static bool put_alert(void *ctx, const struct event_alert *a) {
    struct record_writer *w = ctx;
    put(w->out, w->scratch, REC_ALERT, a);
    return true;
}

static bool put_share(void *ctx, const struct event_share *s) {
    struct record_writer *w = ctx;
    put(w->out, w->scratch, REC_SHARE, s);
    return true;
}

static bool put_service_token(void *ctx, const struct event_service_token *t) {
    struct record_writer *w = ctx;
    put(w->out, w->scratch, REC_SERVICE_TOKEN, t);
    return true;
}

static void put_services(const struct core *c, struct buf *out, struct buf *scratch) {
    const struct event_service *s = NULL;
    while ((s = core_service_next(c, s))) {
        put(out, scratch, REC_SERVICE, s);
        core_each_service_token(c, s->id, put_service_token, &(struct record_writer){out, scratch});
    }
}

static bool put_volume(void *ctx, const struct event_volume *v) {
    struct record_writer *w = ctx;
    put(w->out, w->scratch, REC_VOLUME, v);
    return true;
}

static bool put_provider(void *ctx, const struct node_provider *p) {
    struct record_writer *w = ctx;
    put(w->out, w->scratch, REC_PROVIDER, &(struct event_provider){(struct node_provider *)(uintptr_t)p});
    return true;
}

static bool put_wanted(void *ctx, const struct wanted_node *n) {
    struct record_writer *w = ctx;
    put(w->out, w->scratch, REC_WANTED, n);
    return true;
}

void core_snapshot(const struct core *c, struct buf *out) {
    cleanup_buf struct buf scratch = {0};
    struct map numbers = {0};
    put_cluster(c, out, &scratch);
    put_tokens(c, out, &scratch);
    core_each_deleted_secret(c, put_deleted_secret, &(struct record_writer){out, &scratch});
    core_each_secret(c, put_secret, &(struct record_writer){out, &scratch});
    core_each_user(c, put_account, &(struct record_writer){out, &scratch});
    core_each_session(c, put_session, &(struct record_writer){out, &scratch});
    core_each_user_grant(c, put_grant, &(struct record_writer){out, &scratch});
    core_each_saved(c, put_saved, &(struct record_writer){out, &scratch});
    core_each_alert_rule(c, put_alert_rule, &(struct record_writer){out, &scratch});
    core_each_alert(c, put_alert, &(struct record_writer){out, &scratch});
    core_each_share(c, put_share, &(struct record_writer){out, &scratch});
    put_services(c, out, &scratch);
    core_each_volume(c, put_volume, &(struct record_writer){out, &scratch});
    core_each_provider(c, put_provider, &(struct record_writer){out, &scratch});
    core_each_wanted(c, NULL, put_wanted, &(struct record_writer){out, &scratch});
    put_keys(c, out, &scratch);
    put_outcomes(c, out, &scratch);
    put_usage(c, out, &scratch);
    for (uint32_t i = 0; i < c->order.len; i++) {
        const struct core_job *j = c->order.at[i].job;
        if (!j)
            continue;
        // Workers are of the job's submission: those of components are derived from it.
        const struct submission *sub = core_is_worker(j) ? core_group_job(c, j)->sub : j->sub;
        uintptr_t number = (uintptr_t)map_get(&numbers, (uintptr_t)sub);
        if (!number) {
            number = numbers.len + 1;
            map_put(&numbers, (uintptr_t)sub, (void *)number);
            put_submission(out, &scratch, sub, number);
            if (core_is_group(j))
                put_group(out, &scratch, j->sub->group);
        }
        put_job(c, out, &scratch, j, number);
    }
    put_creating(c, out, &scratch, &numbers);
    put_judging(c, out, &scratch);
    put(out, &scratch, REC_END, NULL);
    map_done(&numbers);
}
