// Snapshots: the state as a sequence of records, each a type, a length and a schema-described body. Loading one
// gives the same state as replaying the journal; what is derived (indexes, the scheduler's world, dependencies)
// is computed again.
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "state.h"

enum record_type {
    REC_META = 1,
    REC_USER,
    REC_NODE,
    REC_ENTITY,
    REC_TOKEN,
    REC_SUBMISSION,
    REC_JOB,
    REC_OUTCOMES,
    REC_USAGE,
    REC_END
};

struct rec_meta {
    uint64_t next_id, submitted, requeued, preempted;
    LIST(uint64_t) by_state;
    int64_t last_event_ms;
    struct policy_settings *policy;  // NULL: never set
    uint32_t level;                  // 0: the first
    struct bytes key_secret;
    int64_t keys_swept_ms;
    LIST(uint64_t) epochs, epoch_seqs;
    LIST(uint64_t) adopted;  // id, attempt, epoch, node of each
    uint64_t unused_from, unused_to, restore_epoch;
    int64_t restore_ms;
};
struct rec_user {
    const char *name;
};
struct rec_usage {  // what a user used of a project lately
    uint32_t project, user;
    int64_t milli, at_ms;
};
struct rec_node {
    const char *name;
    struct node *node;
    uint32_t state;
    bool drained, removed;
    const char *reason, *by, *fingerprint;
    int64_t reason_ms, busy_ms;
    uint32_t launch_failures;
    int64_t retry_ms;
    const char *launch_reason;
};
struct rec_entity {
    uint32_t kind;
    const char *name;
    struct bytes value;  // empty: deleted, the name keeps its handle
};
struct rec_token {
    struct bytes token;
    bool used;
};
struct rec_submission {
    uint64_t number;     // within this snapshot, named by jobs
    uint64_t id, count;
    int64_t submit_ms;
    struct bytes spec;
    bool is_array;
    uint32_t limit;
    uint64_t ended, ended_ok, begun, live, cursor;
    LIST(struct array_range) ranges;
    bool has_array;      // this record brings the array's counts
    int64_t begun_ms;
};
struct rec_part {
    struct part *part;
    bool started, ended;
    uint32_t cause, exit_signal;
    int32_t exit_code;
    bool launch_failed;
};
struct rec_gave {  // a job's preemption: for which job, and the two projects' shares then
    uint64_t to;
    int64_t share, to_share;
    uint32_t claim;
};
struct rec_step {
    struct bytes started;  // the event, encoded
    bool ending;
    uint32_t signal, grace_s;
};
struct rec_job {
    uint64_t id, submission;
    uint32_t array_index, attempt, preempted, state, flags, steps, exit_signal;
    int32_t exit_code;
    int64_t begin_ms, eligible_ms, start_ms;
    struct usage *usage;
    LIST(struct rec_part) parts;
    uint32_t time_limit_s;
    bool ending, hold;
    uint32_t cause, signal, grace_s;
    const char *by, *reason, *end_reason;
    const char *partition;
    int64_t suspended_ms, suspend_ms;
    uint32_t warned_percent;
    LIST(struct rec_gave) gave;
    uint32_t uncounted, retried;
    const char *preempted_why;
    uint64_t epoch, seq, agent_id;
    bool adopted;
    LIST(struct rec_step) running;
};
// In columns: outcomes of ended jobs, or idempotency keys. One type of record for both, since the release before
// keys were part of the state refuses types that it does not know, and skips columns.
enum { KEY_COLUMNS = 7 };
struct rec_outcomes {
    LIST(uint64_t) ids, flags, starts;
    LIST(uint64_t) key_hashes, key_specs, key_ids, key_counts, key_users, key_expires, key_plain;
};

#define S struct rec_meta
static const struct field meta_fields[] = {FIELD(1, S, next_id, ""),
                                           FIELD(2, S, submitted, ""),
                                           FIELD(3, S, requeued, ""),
                                           FIELD(4, S, preempted, ""),
                                           FIELD_LIST(5, S, by_state, ""),
                                           FIELD(6, S, last_event_ms, ""),
                                           FIELD_SUB(7, S, policy, &policy_schema, ""),
                                           FIELD(8, S, level, ""),
                                           FIELD(9, S, key_secret, ""),
                                           FIELD(10, S, keys_swept_ms, ""),
                                           FIELD_LIST(20, S, epochs, ""),
                                           FIELD_LIST(21, S, epoch_seqs, ""),
                                           FIELD(22, S, unused_from, ""),
                                           FIELD(23, S, unused_to, ""),
                                           FIELD(24, S, restore_epoch, ""),
                                           FIELD(25, S, restore_ms, ""),
                                           FIELD_LIST(26, S, adopted, "")};
static const struct schema meta_schema = SCHEMA(S, "meta", meta_fields);
#undef S
#define S struct rec_user
static const struct field user_fields[] = {FIELD(1, S, name, "")};
static const struct schema user_schema = SCHEMA(S, "user", user_fields);
#undef S
#define S struct rec_usage
static const struct field rec_usage_fields[] = {FIELD(1, S, project, ""), FIELD(2, S, user, ""),
                                                FIELD(3, S, milli, ""), FIELD(4, S, at_ms, "")};
static const struct schema rec_usage_schema = SCHEMA(S, "usage", rec_usage_fields);
#undef S
#define S struct rec_node
static const struct field rec_node_fields[] = {
    FIELD(1, S, name, ""),     FIELD_SUB(2, S, node, &node_schema, ""),
    FIELD(3, S, state, ""),    FIELD(4, S, drained, ""),
    FIELD(5, S, removed, ""),  FIELD(6, S, reason, ""),
    FIELD(7, S, by, ""),       FIELD(8, S, fingerprint, ""),
    FIELD(9, S, reason_ms, ""), FIELD(10, S, busy_ms, ""),
    FIELD(11, S, launch_failures, ""), FIELD(12, S, retry_ms, ""), FIELD(13, S, launch_reason, "")};
static const struct schema rec_node_schema = SCHEMA(S, "node", rec_node_fields);
#undef S
#define S struct rec_entity
static const struct field rec_entity_fields[] = {FIELD(1, S, kind, ""), FIELD(2, S, name, ""),
                                                 FIELD(3, S, value, "")};
static const struct schema rec_entity_schema = SCHEMA(S, "thing", rec_entity_fields);
#undef S
#define S struct rec_token
static const struct field rec_token_fields[] = {FIELD(1, S, token, ""), FIELD(2, S, used, "")};
static const struct schema rec_token_schema = SCHEMA(S, "token", rec_token_fields);
#undef S
#define S struct rec_submission
static const struct field submission_fields[] = {FIELD(1, S, number, ""),
                                                 FIELD(2, S, id, ""),
                                                 FIELD(3, S, count, ""),
                                                 FIELD(4, S, submit_ms, ""),
                                                 FIELD(5, S, spec, ""),
                                                 FIELD(6, S, is_array, ""),
                                                 FIELD(7, S, limit, ""),
                                                 FIELD(8, S, ended, ""),
                                                 FIELD(9, S, ended_ok, ""),
                                                 FIELD(10, S, begun, ""),
                                                 FIELD(11, S, live, ""),
                                                 FIELD(12, S, cursor, ""),
                                                 FIELD_LIST_SUB(13, S, ranges, &array_range_schema, ""),
                                                 FIELD(14, S, has_array, ""),
                                                 FIELD(15, S, begun_ms, "")};
static const struct schema submission_schema = SCHEMA(S, "submission", submission_fields);
#undef S
#define S struct rec_part
static const struct field rec_part_fields[] = {FIELD_SUB(1, S, part, &part_schema, ""),
                                               FIELD(2, S, started, ""),
                                               FIELD(3, S, ended, ""),
                                               FIELD(4, S, cause, ""),
                                               FIELD(5, S, exit_signal, ""),
                                               FIELD(6, S, exit_code, ""),
                                               FIELD(7, S, launch_failed, "")};
static const struct schema rec_part_schema = SCHEMA(S, "part", rec_part_fields);
#undef S
#define S struct rec_gave
static const struct field rec_gave_fields[] = {FIELD(1, S, to, ""), FIELD(2, S, share, ""), FIELD(3, S, to_share, ""),
                                               FIELD(4, S, claim, "")};
static const struct schema rec_gave_schema = SCHEMA(S, "gave", rec_gave_fields);
#undef S
#define S struct rec_step
static const struct field rec_step_fields[] = {FIELD(1, S, started, ""), FIELD(2, S, ending, ""),
                                               FIELD(3, S, signal, ""), FIELD(4, S, grace_s, "")};
static const struct schema rec_step_schema = SCHEMA(S, "step", rec_step_fields);
#undef S
#define S struct rec_job
static const struct field rec_job_fields[] = {FIELD(1, S, id, ""),
                                              FIELD(2, S, submission, ""),
                                              FIELD(3, S, array_index, ""),
                                              FIELD(4, S, attempt, ""),
                                              FIELD(5, S, preempted, ""),
                                              FIELD(6, S, state, ""),
                                              FIELD(7, S, flags, ""),
                                              FIELD(8, S, begin_ms, ""),
                                              FIELD(9, S, eligible_ms, ""),
                                              FIELD(10, S, start_ms, ""),
                                              FIELD_SUB(11, S, usage, &usage_schema, ""),
                                              FIELD_LIST_SUB(12, S, parts, &rec_part_schema, ""),
                                              FIELD(13, S, time_limit_s, ""),
                                              FIELD(14, S, ending, ""),
                                              FIELD(15, S, hold, ""),
                                              FIELD(16, S, cause, ""),
                                              FIELD(17, S, signal, ""),
                                              FIELD(18, S, grace_s, ""),
                                              FIELD(19, S, by, ""),
                                              FIELD(20, S, reason, ""),
                                              FIELD(21, S, end_reason, ""),
                                              FIELD(22, S, steps, ""),
                                              FIELD(23, S, exit_code, ""),
                                              FIELD(24, S, exit_signal, ""),
                                              FIELD(25, S, partition, ""),
                                              FIELD(26, S, suspended_ms, ""),
                                              FIELD(40, S, warned_percent, ""),
                                              FIELD(27, S, suspend_ms, ""),
                                              FIELD_LIST_SUB(28, S, gave, &rec_gave_schema, ""),
                                              FIELD(29, S, uncounted, ""),
                                              FIELD(30, S, preempted_why, ""),
                                              FIELD(31, S, retried, ""),
                                              FIELD(50, S, epoch, ""),
                                              FIELD(51, S, seq, ""),
                                              FIELD(52, S, agent_id, ""),
                                              FIELD(53, S, adopted, ""),
                                              FIELD_LIST_SUB(45, S, running, &rec_step_schema, "")};
static const struct schema rec_job_schema = SCHEMA(S, "job", rec_job_fields);
#undef S
#define S struct rec_outcomes
static const struct field outcomes_fields[] = {FIELD_LIST(1, S, ids, ""), FIELD_LIST(2, S, flags, ""),
                                               FIELD_LIST(3, S, starts, ""),
                                               FIELD_LIST(4, S, key_hashes, ""),
                                               FIELD_LIST(5, S, key_specs, ""),
                                               FIELD_LIST(6, S, key_ids, ""),
                                               FIELD_LIST(7, S, key_counts, ""),
                                               FIELD_LIST(8, S, key_users, ""),
                                               FIELD_LIST(9, S, key_expires, ""),
                                               FIELD_LIST(10, S, key_plain, "")};
static const struct schema outcomes_schema = SCHEMA(S, "outcomes", outcomes_fields);
#undef S

static void put(struct buf *out, struct buf *scratch, enum record_type type, const struct schema *s,
                const void *value) {
    buf_clear(scratch);
    if (s)
        schema_encode(s, value, scratch);
    wire_put_varint(out, type);
    wire_put_varint(out, scratch->len);
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
    put(out, scratch, REC_META, &meta_schema, &meta);
    for (uint32_t i = 0; i < c->users.len; i++)
        put(out, scratch, REC_USER, &user_schema, &(struct rec_user){c->users.at[i]});
    for (uint32_t i = 0; i < c->node_list.len; i++) {
        const struct node_entry *n = c->node_list.at[i];
        struct rec_node r = {n->name,   n->node, n->state,       n->drained,  n->removed,
                             n->reason, n->by,   n->fingerprint, n->reason_ms, n->busy_ms,
                             n->launch_failures, n->retry_ms, n->launch_reason};
        put(out, scratch, REC_NODE, &rec_node_schema, &r);
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
                    put(out, scratch, REC_ENTITY, &rec_entity_schema,
                        &(struct rec_entity){kind, t->name, {value.data, value.len}});
            }
}

static void put_tokens(const struct core *c, struct buf *out, struct buf *scratch) {
    struct core_token_list tokens = core_tokens_by_id(c);
    for (uint32_t i = 0; i < tokens.len; i++) {
        const struct token_entry *t = tokens.at[i];
        cleanup_buf struct buf value = {0};
        schema_encode(event_info(EVENT_TOKEN_CREATED)->schema, t->token, &value);
        put(out, scratch, REC_TOKEN, &rec_token_schema, &(struct rec_token){{value.data, value.len}, t->used});
    }
    vec_done(&tokens);
}

static void put_usage(const struct core *c, struct buf *out, struct buf *scratch) {
    for (uint32_t p = 1; p <= c->entity_list[ENTITY_PROJECT].len; p++)
        for (uint32_t u = 1; u <= c->users.len; u++) {
            struct rec_usage r = {.project = p, .user = u};
            if (world_usage_kept(c->world, p, u, &r.milli, &r.at_ms))
                put(out, scratch, REC_USAGE, &rec_usage_schema, &r);
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
        r.ranges.at = a->ranges;
        r.ranges.len = a->range_count;
    }
    put(out, scratch, REC_SUBMISSION, &submission_schema, &r);
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
                        .usage = j->usage,
                        .steps = j->steps,
                        .uncounted = j->uncounted,
                        .preempted_why = map_get(&c->preempted_why, j->id),
                        .retried = j->retried};
    const struct core_run *run = j->run;
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
            r.parts.at[i] = (struct rec_part){part, p->started, p->ended, p->cause, p->exit_signal, p->exit_code,
                                              p->launch_failed};
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
    put(out, scratch, REC_JOB, &rec_job_schema, &r);
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
            put(out, scratch, REC_OUTCOMES, &outcomes_schema, 
                &(struct rec_outcomes){{ids, n}, {flags, n}, {starts, n}});
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
        put(out, scratch, REC_OUTCOMES, &outcomes_schema, &r);
        n = 0;
    }
}

void core_snapshot(const struct core *c, struct buf *out) {
    cleanup_buf struct buf scratch = {0};
    struct map numbers = {0};
    put_cluster(c, out, &scratch);
    put_tokens(c, out, &scratch);
    put_keys(c, out, &scratch);
    put_outcomes(c, out, &scratch);
    put_usage(c, out, &scratch);
    for (uint32_t i = 0; i < c->order.len; i++) {
        const struct core_job *j = c->order.at[i].job;
        if (!j)
            continue;
        uintptr_t number = (uintptr_t)map_get(&numbers, (uintptr_t)j->sub);
        if (!number) {
            number = numbers.len + 1;
            map_put(&numbers, (uintptr_t)j->sub, (void *)number);
            put_submission(out, &scratch, j->sub, number);
        }
        put_job(c, out, &scratch, j, number);
    }
    put(out, &scratch, REC_END, NULL, NULL);
    map_done(&numbers);
}

struct loader {
    struct core *core;
    VEC(struct submission *) submissions;
    VEC(struct rec_usage) usage;  // set after the jobs are in the scheduler's world
    VEC(struct sched_preemption) gave;  // likewise
    VEC(uint64_t) givers;         // the jobs that were preempted
    bool complete;
};

static void load_node(struct core *c, const struct rec_node *r) {
    // A removed node's name keeps its handle.
    struct node empty = {.name = r->name, .boot_id = "-", .spool_id = "-", .cpus = 1};
    struct event_node_joined joined = {.node = r->node ? r->node : &empty, .fingerprint = r->fingerprint};
    struct event_node state = {.name = r->name, .state = (enum node_state)r->state, .reason = r->reason, .by = r->by};
    core_apply(c, &(struct event){.type = EVENT_NODE_JOINED, .body = &joined});
    core_apply(c, &(struct event){.type = EVENT_NODE_STATE, .at_ms = r->reason_ms, .body = &state});
    if (r->drained)
        core_apply(c, &(struct event){.type = EVENT_NODE_DRAINED, .at_ms = r->reason_ms, .body = &state});
    struct node_entry *n = core_find_node(c, r->name);
    if (n)
        n->busy_ms = r->busy_ms;
    struct event_node_launches launches = {
        .name = r->name, .failures = r->launch_failures, .retry_ms = r->retry_ms, .reason = r->launch_reason};
    if (r->launch_failures)
        core_apply(c, &(struct event){.type = EVENT_NODE_LAUNCHES, .body = &launches});
    if (r->removed)
        core_apply(c, &(struct event){.type = EVENT_NODE_REMOVED, .body = &state});
}

static int load_entity(struct core *c, const struct rec_entity *r, struct arena *a) {
    if (r->kind >= ENTITY_COUNT)
        return -EBADMSG;
    const struct schema *s = entity_schema((enum entity_kind)r->kind);
    static const enum event_type set[] = {EVENT_PROJECT_SET, EVENT_PARTITION_SET, EVENT_QOS_SET, EVENT_RESERVATION_SET};
    static const enum event_type deleted[] = {EVENT_PROJECT_DELETED, EVENT_PARTITION_DELETED,
                                              EVENT_QOS_DELETED, EVENT_RESERVATION_DELETED};
    void *value = arena_alloc(a, s->size);
    int e = schema_decode(s, r->value.data, r->value.len, a, value);
    if (e < 0)
        return e;
    *(const char **)value = r->name;
    struct event_project_set body = {.project = value};  // all four begin with the pointer
    core_apply(c, &(struct event){.type = set[r->kind], .body = &body});
    if (!r->value.len)
        core_apply(c, &(struct event){.type = deleted[r->kind], .body = &(struct event_name){.name = r->name}});
    return 0;
}

static int load_token(struct core *c, const struct rec_token *r, struct arena *a) {
    struct event_token t;
    int e = schema_decode(event_info(EVENT_TOKEN_CREATED)->schema, r->token.data, r->token.len, a, &t);
    if (e < 0)
        return e;
    core_apply(c, &(struct event){.type = EVENT_TOKEN_CREATED, .body = &t});
    if (r->used)
        core_apply(c, &(struct event){.type = EVENT_TOKEN_USED, .body = &t});
    return 0;
}

static int load_submission(struct loader *l, const struct rec_submission *r, struct arena *a) {
    struct core *c = l->core;
    struct spec spec;
    int e = schema_decode(&spec_schema, r->spec.data, r->spec.len, a, &spec);
    if (e < 0 || r->number != l->submissions.len + 1 || !spec.user || !spec_known(&spec))
        return -EBADMSG;
    struct submission *s = core_submission_new(c, r->id, &spec, r->submit_ms);
    s->count = r->count;
    s->is_array = r->is_array;
    s->limit = r->limit;
    s->refs = 1;  // dropped when loading is done
    core_depend_parse(s, &spec);
    if (r->has_array && !(s->array = map_get(&c->arrays, r->id))) {
        struct array *array = xcalloc(1, sizeof *array);
        *array = (struct array){.id = r->id,
                                .count = r->count,
                                .ended = r->ended,
                                .ended_ok = r->ended_ok,
                                .begun = r->begun,
                                .live = r->live,
                                .limit = r->limit,
                                .cursor = r->cursor,
                                .begun_ms = r->begun_ms,
                                .range_count = r->ranges.len};
        array->ranges = xmemdup(r->ranges.at, r->ranges.len * sizeof *array->ranges);
        map_put(&c->arrays, array->id, array);
        s->array = array;
    }
    vec_push(&l->submissions, s);
    return 0;
}

static int load_run(struct core *c, struct core_job *j, const struct rec_job *r) {
    if (!r->parts.len)
        return -EBADMSG;
    struct core_run *run = xcalloc(1, sizeof *run);
    j->run = run;
    run->parts = xcalloc(r->parts.len, sizeof *run->parts);
    run->time_limit_s = r->time_limit_s;
    run->ending = r->ending;
    run->hold = r->hold;
    run->cause = (enum end_cause)r->cause;
    run->exit_code = r->exit_code;
    run->exit_signal = r->exit_signal;
    run->signal = r->signal;
    run->grace_s = r->grace_s;
    run->by = r->by ? xstrdup(r->by) : NULL;
    run->reason = r->reason ? xstrdup(r->reason) : NULL;
    run->end_reason = r->end_reason ? xstrdup(r->end_reason) : NULL;
    run->partition = r->partition ? core_intern(c, r->partition) : NULL;
    run->epoch = r->epoch;
    run->seq = r->seq;
    run->agent_id = r->agent_id;
    run->adopted = r->adopted;
    run->suspended_ms = r->suspended_ms;
    run->suspend_ms = r->suspend_ms;
    run->warned_percent = (uint8_t)r->warned_percent;
    for (uint32_t i = 0; i < r->parts.len; i++) {
        const struct rec_part *from = &r->parts.at[i];
        struct run_part *p = &run->parts[i];
        // Also one that was removed: a part that ended there is still part of the job.
        if (!from->part || !from->part->node || !(p->node = strmap_get(&c->nodes, from->part->node)))
            return -EBADMSG;
        p->cpus = from->part->cpus;
        p->tasks = from->part->tasks;
        p->memory_bytes = from->part->memory_bytes;
        p->gpus = xmemdup(from->part->gpus.at, from->part->gpus.len * sizeof *p->gpus);
        p->gpu_count = from->part->gpus.len;
        p->cpu_ids = from->part->cpu_ids ? xstrdup(from->part->cpu_ids) : NULL;
        p->started = from->started;
        p->ended = from->ended;
        p->cause = (enum end_cause)from->cause;
        p->exit_code = from->exit_code;
        p->exit_signal = from->exit_signal;
        p->launch_failed = from->launch_failed;
        run->part_count++;
    }
    for (uint32_t i = 0; i < r->running.len; i++) {
        cleanup_arena struct arena a = {0};
        const struct rec_step *s = &r->running.at[i];
        struct event e;
        if (event_decode(EVENT_STEP_STARTED, s->started.data, s->started.len, &a, &e) < 0 ||
            core_steps_load(c, j, e.body, s->ending, s->signal, s->grace_s) < 0)
            return -EBADMSG;
    }
    return 0;
}

static int load_job(struct loader *l, const struct rec_job *r) {
    struct core *c = l->core;
    if (!r->submission || r->submission > l->submissions.len || r->state >= JOB_COMPLETED || core_find_job(c, r->id) ||
        (c->order.len && c->order.at[c->order.len - 1].id >= r->id))
        return -EBADMSG;
    struct core_job *j = xcalloc(1, sizeof *j);
    j->id = r->id;
    j->sub = l->submissions.at[r->submission - 1];
    j->sub->refs++;
    j->array_index = r->array_index;
    j->attempt = r->attempt;
    j->preempted = r->preempted < UINT16_MAX ? (uint16_t)r->preempted : UINT16_MAX;
    j->steps = r->steps;
    j->uncounted = (uint16_t)r->uncounted;
    j->retried = (uint16_t)r->retried;
    j->state = (uint8_t)r->state;
    j->flags = (uint8_t)r->flags;
    j->begin_ms = r->begin_ms;
    j->eligible_ms = r->eligible_ms;
    j->start_ms = r->start_ms;
    j->usage = r->usage ? xmemdup(r->usage, sizeof *r->usage) : NULL;
    if (r->preempted_why)
        map_put(&c->preempted_why, j->id, xstrdup(r->preempted_why));
    core_job_link(c, j);
    for (uint32_t i = 0; i < r->gave.len; i++) {
        const struct rec_gave *g = &r->gave.at[i];
        vec_push(&l->gave, (struct sched_preemption){g->to, g->share, g->to_share, core_claim_read(g->claim)});
        vec_push(&l->givers, r->id);
    }
    return job_state_holds_resources((enum job_state)j->state) ? load_run(c, j, r) : 0;
}

static int load_keys(struct core *c, const struct rec_outcomes *r) {
    uint32_t n = r->key_hashes.len;
    if (r->key_specs.len != n || r->key_ids.len != n || r->key_counts.len != n || r->key_users.len != n ||
        r->key_expires.len != n || r->key_plain.len != n)
        return -EBADMSG;
    for (uint32_t i = 0; i < n; i++) {
        struct core_key k = {.hash = r->key_hashes.at[i],
                             .spec_hash = r->key_specs.at[i],
                             .id = r->key_ids.at[i],
                             .count = (uint32_t)r->key_counts.at[i],
                             .user = (uint32_t)r->key_users.at[i],
                             .expires_s = (uint32_t)r->key_expires.at[i],
                             .plain = r->key_plain.at[i] != 0};
        if (!k.user || k.user > c->users.len)
            return -EBADMSG;
        core_key_put(c, &k);
    }
    return 0;
}

static int load_outcomes(struct core *c, const struct rec_outcomes *r) {
    if (r->ids.len != r->flags.len)
        return -EBADMSG;
    for (uint32_t i = 0; i < r->ids.len; i++)
        core_outcome_add(c, r->ids.at[i], r->flags.at[i] & 1, r->flags.at[i] & 2,
                    r->starts.len == r->ids.len ? (uint32_t)r->starts.at[i] : 0);
    return load_keys(c, r);
}

static int load_record(struct loader *l, enum record_type type, const uint8_t *p, size_t len) {
    static const struct schema *const schemas[] = {
        [REC_META] = &meta_schema,       [REC_USER] = &user_schema,
        [REC_NODE] = &rec_node_schema,   [REC_ENTITY] = &rec_entity_schema,
        [REC_TOKEN] = &rec_token_schema, [REC_SUBMISSION] = &submission_schema,
        [REC_JOB] = &rec_job_schema,     [REC_OUTCOMES] = &outcomes_schema,
        [REC_USAGE] = &rec_usage_schema};
    cleanup_arena struct arena a = {0};
    struct core *c = l->core;
    if (type == REC_END) {
        l->complete = true;
        return 0;
    }
    if (type < REC_META || type > REC_USAGE)
        return -EBADMSG;
    void *value = arena_alloc(&a, schemas[type]->size);
    int e = schema_decode(schemas[type], p, len, &a, value);
    if (e < 0)
        return e;
    switch (type) {
    case REC_META: {
        const struct rec_meta *m = value;
        if (m->level > FEATURE_LEVEL_NEWEST)
            return -EPROTONOSUPPORT;
        if (m->epochs.len != m->epoch_seqs.len || m->epochs.len > EPOCHS_KEPT)
            return -EBADMSG;
        c->level = m->level ? m->level : FEATURE_LEVEL_FIRST;
        for (uint32_t i = 0; i < m->epochs.len; i++)
            vec_push(&c->epochs, (struct core_epoch){m->epochs.at[i], m->epoch_seqs.at[i]});
        if (m->adopted.len % 4 || m->adopted.len / 4 > ADOPTED_KEPT)
            return -EBADMSG;
        for (uint32_t i = 0; i < m->adopted.len; i += 4)
            core_note_adopted(c, &(struct core_adopted){m->adopted.at[i], m->adopted.at[i + 1], m->adopted.at[i + 2],
                                                        m->adopted.at[i + 3]});
        c->unused_from = m->unused_from;
        c->unused_to = m->unused_to;
        c->restore_epoch = m->restore_epoch;
        c->restore_ms = m->restore_ms;
        c->next_id = m->next_id;
        c->last_event_ms = m->last_event_ms;
        c->counts.submitted = m->submitted;
        c->counts.requeued = m->requeued;
        c->counts.preempted = m->preempted;
        core_keys_set_secret(c, &m->key_secret);
        c->keys.swept_ms = m->keys_swept_ms;
        if (m->policy)
            core_apply_policy(c, m->policy, 0);
        for (uint32_t i = 0; i < m->by_state.len && i < JOB_STATE_COUNT; i++)
            c->counts.by_state[i] = m->by_state.at[i];
        return 0;
    }
    case REC_USER: core_user_handle(c, ((struct rec_user *)value)->name); return 0;
    case REC_NODE: load_node(c, value); return 0;
    case REC_ENTITY: return load_entity(c, value, &a);
    case REC_TOKEN: return load_token(c, value, &a);
    case REC_SUBMISSION: return load_submission(l, value, &a);
    case REC_JOB: return load_job(l, value);
    case REC_OUTCOMES: return load_outcomes(c, value);
    case REC_USAGE: vec_push(&l->usage, *(struct rec_usage *)value); return 0;
    default: return -EBADMSG;
    }
}

static void gave_to_world(const struct loader *l) {
    world_preemptions_forget(l->core->world);
    for (uint32_t i = 0, n; i < l->gave.len; i += n) {
        for (n = 1; i + n < l->gave.len && l->givers.at[i + n] == l->givers.at[i];)
            n++;
        world_job_preemptions_set(l->core->world, l->givers.at[i], l->gave.at + i, n);
    }
}

int core_load_snapshot(struct core *c, uint64_t seq, const void *data, size_t len, struct error *e) {
    const uint8_t *p = data, *end = p + len;
    struct loader l = {.core = c};
    int r = 0;
    assert(!c->seq && !c->jobs.len);
    c->replaying = true;
    while (r == 0 && p < end && !l.complete) {
        uint64_t type, size;
        if ((r = wire_get_varint(&p, end, &type)) < 0 || (r = wire_get_varint(&p, end, &size)) < 0)
            break;
        if (size > (uint64_t)(end - p)) {
            r = -EBADMSG;
            break;
        }
        r = load_record(&l, (enum record_type)type, p, size);
        p += size;
    }
    if (r == 0 && !l.complete)
        r = -EBADMSG;
    if (r == 0) {
        core_jobs_to_world(c);
        gave_to_world(&l);
    }
    for (uint32_t i = 0; r == 0 && i < l.usage.len; i++) {
        const struct rec_usage *u = &l.usage.at[i];
        world_usage_set(c->world, u->project, u->user, u->milli, u->at_ms);
    }
    vec_done(&l.usage);
    vec_done(&l.gave);
    vec_done(&l.givers);
    for (uint32_t i = 0; i < l.submissions.len; i++)
        core_submission_unref(c, l.submissions.at[i]);
    vec_done(&l.submissions);
    c->replaying = false;
    c->dirty = true;
    if (r < 0) {
        core_reset(c);
        return error_set(e, -r, "the snapshot at event %llu is damaged", (unsigned long long)seq);
    }
    c->seq = seq;
    return 0;
}
