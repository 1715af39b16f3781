// The sentences of an explanation.
#include <stdio.h>
#include <string.h>

#include "amount_text.h"
#include "base/buf.h"
#include "base/phrase.h"
#include "explain_phrases.h"
#include "sched/explain.h"
#include "world_state.h"

// "unlimited" is stored as a time limit of 100 years: a job that has more than half of them left has no limit.
#define NO_LIMIT_MS (INT64_C(50) * 365 * 86400 * 1000)
enum { CHANGE_PARTS_MAX = 3, NODE_PARTS_MAX = 17 };

// What is being explained, and to whom.
struct speech {
    const struct world *w;
    const struct sched_explanation *e;
    int64_t now_ms;
    explain_name_fn name;
    void *ctx;
    struct phrase_out *out;
};

#define WHY(s, phrase, ...) SAY((s)->out, &sched_phrases[WHY_##phrase], __VA_ARGS__)
static const struct phrase_value NOTHING = {0};

static enum why_phrase reason_phrase(const struct sched_explanation *e) {
    static const enum why_phrase phrases[SCHED_REASON_COUNT] = {
        [SCHED_REASON_NONE] = WHY_NEXT_PASS,
        [SCHED_REASON_HELD] = WHY_NOT_CONSIDERED,
        [SCHED_REASON_BEGIN_TIME] = WHY_BEGIN_TIME,
        [SCHED_REASON_PROJECT_GONE] = WHY_PROJECT_GONE,
        [SCHED_REASON_PARTITION] = WHY_PARTITION_CLOSED,
        [SCHED_REASON_QOS_GONE] = WHY_QOS_GONE,
        [SCHED_REASON_QOS_LIMIT] = WHY_QOS_LIMIT,
        [SCHED_REASON_LICENSES] = WHY_LICENSES,
        [SCHED_REASON_TIME_LIMIT] = WHY_TIME_LIMIT,
        [SCHED_REASON_DEADLINE] = WHY_DEADLINE,
        [SCHED_REASON_PROJECT_LIMIT] = WHY_PROJECT_LIMIT,
        [SCHED_REASON_QUOTA] = WHY_QUOTA,
        [SCHED_REASON_RESOURCES] = WHY_RESOURCES,
        [SCHED_REASON_PRIORITY] = WHY_PRIORITY,
        [SCHED_REASON_NODES] = WHY_NODES_UNFIT,
        [SCHED_REASON_RESERVATION] = WHY_RESERVATION,
        [SCHED_REASON_PREEMPTING] = WHY_PREEMPTING,
        [SCHED_REASON_RESERVATION_GONE] = WHY_NOT_CONSIDERED,  // has a sentence with its name
    };
    // An optional worker has no place in the queue: the sentences of waiting jobs would promise it one.
    if (e->optional && !e->hold && e->reason == SCHED_REASON_RESOURCES)
        return WHY_OPTIONAL_RESOURCES;
    if (e->optional && !e->hold && e->reason == SCHED_REASON_PRIORITY)
        return WHY_OPTIONAL_PRIORITY;
    switch (e->hold) {
    case SCHED_HOLD_USER: return WHY_HELD_USER;
    case SCHED_HOLD_ADMIN: return WHY_HELD_ADMIN;
    case SCHED_HOLD_DEPENDENCY: return WHY_HELD_DEPENDENCY;
    case SCHED_HOLD_ARRAY: return WHY_HELD_ARRAY;
    case SCHED_HOLD_OTHER: return WHY_HELD;
    case SCHED_HOLD_NONE: break;
    }
    // Not its own reservation keeps it out: one of others begins before it could have ended.
    bool kept_out = e->nodes.reserved && !e->nodes.planned && !e->nodes.fit;
    if ((e->reason == SCHED_REASON_RESERVATION && !e->reservation) ||
        (e->reason == SCHED_REASON_PRIORITY && kept_out))
        return e->unlimited ? WHY_KEPT_OUT_UNLIMITED : WHY_KEPT_OUT;
    if (e->nodes.ending && !e->nodes.planned && !e->nodes.fit &&
        (e->reason == SCHED_REASON_PRIORITY || e->reason == SCHED_REASON_RESOURCES))
        return e->unlimited ? WHY_NODES_GO_UNLIMITED : WHY_NODES_GO;
    return e->reason < SCHED_REASON_COUNT ? phrases[e->reason] : WHY_NOT_CONSIDERED;
}

// "It would exceed max_gpus_per_user of QoS high: 2 GPUs for each user, 1 GPU in use; it asks for 2 GPUs."
static void qos_limit_line(const struct speech *s) {
    static const char *const settings[] = {[LIMIT_JOBS_PER_USER] = "max_jobs_per_user",
                                           [LIMIT_GPUS_PER_USER] = "max_gpus_per_user",
                                           [LIMIT_CPUS_PER_USER] = "max_cpus_per_user",
                                           [LIMIT_GPUS] = "max_gpus"};
    const struct world_qos *q = world_qos(s->w, s->e->qos);
    const struct explain_limit *l = &s->e->qos_limit;
    const char *qos = q ? q->name : "(none)";
    if (l->kind == LIMIT_JOBS_PER_USER) {
        WHY(s, QOS_JOBS, SAY_TEXT(qos), SAY_NUMBER(l->limit), SAY_NUMBER(l->used));
        return;
    }
    struct phrase_value setting = SAY_TEXT(settings[l->kind]), name = SAY_TEXT(qos);
    if (l->kind == LIMIT_CPUS_PER_USER)
        WHY(s, QOS_USER, setting, name, SAY_CPUS(l->limit), SAY_CPUS(l->used), SAY_CPUS(l->asked));
    else if (l->kind == LIMIT_GPUS)
        WHY(s, QOS_ALL, setting, name, SAY_GPUS(l->limit), SAY_GPUS(l->used), SAY_GPUS(l->asked));
    else
        WHY(s, QOS_USER, setting, name, SAY_GPUS(l->limit), SAY_GPUS(l->used), SAY_GPUS(l->asked));
}

static void license_line(const struct speech *s) {
    const struct explain_license *l = &s->e->license;
    const struct world_license *found = world_license(s->w, l->license);
    if (found)
        WHY(s, LICENSE_USED, SAY_TEXT(found->name), SAY_NUMBER(l->count), SAY_NUMBER(l->used), SAY_NUMBER(l->asked));
    else
        WHY(s, LICENSE_GONE, NOTHING);
}

static void node_lines(const struct speech *s) {
    const struct explain_nodes *n = &s->e->nodes;
    const struct {
        uint32_t count;
        enum why_phrase phrase;
    } counts[NODE_PARTS_MAX] = {
        {n->partition, WHY_NODES_PARTITION},
        {n->project, WHY_NODES_PROJECT},
        {n->listed, WHY_NODES_LISTED},
        {n->features, WHY_NODES_FEATURES},
        {n->model, WHY_NODES_MODEL},
        {n->down, WHY_NODES_DOWN},
        {n->drained, WHY_NODES_DRAINED},
        {n->small, WHY_NODES_SMALL},
        {n->reserved, WHY_NODES_RESERVED},
        {n->other_user, WHY_NODES_OTHER_USER},
        {n->ending, WHY_NODES_ENDING},
        {n->busy_gpus, WHY_NODES_BUSY_GPUS},
        {n->busy_cpus, WHY_NODES_BUSY_CPUS},
        {n->busy_memory, WHY_NODES_BUSY_MEMORY},
        {n->busy_alone, WHY_NODES_BUSY_ALONE},
        {n->planned, WHY_NODES_PLANNED},
        {n->fit, n->needed == 1 && !n->partly ? WHY_NODES_FIT : WHY_NODES_FIT_PART},
    };
    struct phrase_part parts[NODE_PARTS_MAX];
    uint32_t count = 0;
    for (unsigned i = 0; i < NODE_PARTS_MAX; i++)
        if (counts[i].count)
            parts[count++] = (struct phrase_part){&sched_phrases[counts[i].phrase], {SAY_NUMBER(counts[i].count)}};
    if (count)
        WHY(s, NODES, SAY_NUMBER(n->needed), SAY_NUMBER(n->all), SAY_PARTS(parts, count));
    else
        WHY(s, NODES_NONE, SAY_NUMBER(n->needed), SAY_NUMBER(n->all));
    if (n->sick_gpus)
        WHY(s, SICK_GPUS, SAY_NUMBER(n->sick_gpus));
}

static void job_name(const struct speech *s, uint64_t job, struct buf *out) {
    if (s->name)
        s->name(s->ctx, job, out);
    else
        buf_addu(out, job);
}

// What it asks for now, where that is one amount.
static int64_t asked_gpus(const struct world *w, uint64_t job) {
    const struct world_job *j = world_find(w, job);
    const struct sched_request *q = j ? &j->request->asked : NULL;
    return !q                      ? 0
           : q->gpu_milli_per_job  ? q->gpu_milli_per_job
           : q->gpu_milli_per_node ? q->gpu_milli_per_node
                                   : q->gpu_milli_per_task;
}

// Is it the share of CPUs that applies to the job?
static bool asks_cpus(const struct world *w, uint64_t job) {
    const struct world_job *j = world_find(w, job);
    return j && j->request->dim == DIM_CPU;
}

// The change itself, as a part of the sentence; `text` is room for names and lives as long as the part.
static struct phrase_part change_part(const struct speech *s, struct buf *text) {
    const struct sched_explanation *e = s->e;
    const struct world_partition *p = world_partition(s->w, (uint32_t)e->value);
    const struct world_qos *q = world_qos(s->w, (uint32_t)e->value);
    struct phrase_value number = SAY_NUMBER(e->value), cpus = SAY_CPUS(e->value), gpus = SAY_GPUS(e->value);
    char asked[AMOUNT_TEXT_MAX];
#define PART(phrase, ...) ((struct phrase_part){&sched_phrases[WHY_CHANGE_##phrase], {__VA_ARGS__}})
    switch (e->change) {
    case CHANGE_NONE: break;
    case CHANGE_RELEASE:
        return e->hold == SCHED_HOLD_DEPENDENCY ? PART(NO_DEPENDENCY, NOTHING) : PART(RELEASED, NOTHING);
    case CHANGE_BEGIN_NOW: return PART(BEGIN_NOW, NOTHING);
    case CHANGE_TIME_LIMIT: return PART(TIME_LIMIT, SAY_SPAN(e->value));
    case CHANGE_GPUS:
        buf_adds(text, sched_gpu_number_text(asked_gpus(s->w, e->job), asked));
        return PART(GPUS, gpus, SAY_TEXT(text->data));
    case CHANGE_NODES: return PART(NODES, number);
    case CHANGE_TASKS: return e->elastic ? PART(WORKERS, number) : PART(TASKS, number);
    case CHANGE_CPUS: return PART(CPUS, cpus);
    case CHANGE_MEMORY: return PART(MEMORY, SAY_BYTES(e->value));
    case CHANGE_ANY_MODEL: return PART(ANY_MODEL, NOTHING);
    case CHANGE_NO_FEATURES: return PART(NO_FEATURES, NOTHING);
    case CHANGE_NO_NODE_LIST: return PART(NO_NODE_LIST, NOTHING);
    case CHANGE_PARTITION: return PART(PARTITION, SAY_TEXT(p ? p->name : "(none)"));
    case CHANGE_QOS: return q ? PART(QOS, SAY_TEXT(q->name)) : PART(NO_QOS, NOTHING);
    case CHANGE_TRAIN: return PART(TRAIN, NOTHING);
    case CHANGE_SHARED: return PART(SHARED, NOTHING);
    case CHANGE_NO_RESERVATION: return PART(NO_RESERVATION, NOTHING);
    case CHANGE_PRIORITY: return PART(PRIORITY, NOTHING);
    case CHANGE_PROJECT_QUOTA: return PART(QUOTA, asks_cpus(s->w, e->job) ? cpus : gpus);
    case CHANGE_PROJECT_LIMIT: return PART(LIMIT, asks_cpus(s->w, e->job) ? cpus : gpus);
    case CHANGE_END_JOBS:
        for (uint32_t i = 0; i < e->end_count; i++) {
            buf_adds(text, i ? ", " : "");
            job_name(s, e->ends[i], text);
        }
        return PART(END_JOBS, SAY_NUMBER(e->end_count), SAY_TEXT(text->data));
    }
    return PART(PRIORITY, NOTHING);
}

static void change_line(const struct speech *s) {
    const struct sched_explanation *e = s->e;
    cleanup_buf struct buf text = {0};
    struct phrase_part parts[CHANGE_PARTS_MAX];
    uint32_t n = 0;
    if (e->change == CHANGE_NONE) {
        WHY(s, NO_CHANGE, NOTHING);
        return;
    }
    if (e->also_release)
        parts[n++] = e->hold == SCHED_HOLD_DEPENDENCY ? PART(NO_DEPENDENCY, NOTHING) : PART(RELEASED, NOTHING);
    if (e->also_first)
        parts[n++] = PART(FIRST, NOTHING);
    parts[n++] = change_part(s, &text);
    WHY(s, CHANGE, SAY_PARTS(parts, n));
#undef PART
}

static void band_line(const struct speech *s) {
    const struct explain_band *b = &s->e->band;
    int64_t early = b->early_ms - s->now_ms, late = b->late_ms - s->now_ms;
    switch (b->basis) {
    case EXPLAIN_NOW: WHY(s, START_NOW, NOTHING); break;
    case EXPLAIN_FORECAST:
        if (early == late)
            WHY(s, START, SAY_SPAN(early));
        else
            WHY(s, START_BAND, SAY_RANGE(early, late));
        break;
    case EXPLAIN_ESTIMATE: WHY(s, START_ESTIMATE, SAY_RANGE(early, late)); break;
    case EXPLAIN_LATER:
        if (early <= 0)
            WHY(s, START_UNFORESEEN, NOTHING);
        else
            WHY(s, START_LATER, SAY_SPAN(early));
        break;
    case EXPLAIN_UNKNOWN: WHY(s, START_UNKNOWN, NOTHING); break;
    case EXPLAIN_NEVER: WHY(s, START_NEVER, NOTHING); break;
    }
}

static void holder_line(const struct speech *s, const struct explain_holder *h) {
    cleanup_buf struct buf name = {0};
    int64_t left = h->end_ms > s->now_ms ? h->end_ms - s->now_ms : 0;
    job_name(s, h->job, &name);
    if (left > NO_LIMIT_MS && h->gpu_milli)
        WHY(s, HOLDER_UNLIMITED, SAY_TEXT(name.data), SAY_GPUS(h->gpu_milli), SAY_CPUS(h->cpus));
    else if (left > NO_LIMIT_MS)
        WHY(s, HOLDER_CPUS_UNLIMITED, SAY_TEXT(name.data), SAY_CPUS(h->cpus));
    else if (h->gpu_milli)
        WHY(s, HOLDER, SAY_TEXT(name.data), SAY_GPUS(h->gpu_milli), SAY_CPUS(h->cpus), SAY_SPAN(left));
    else
        WHY(s, HOLDER_CPUS, SAY_TEXT(name.data), SAY_CPUS(h->cpus), SAY_SPAN(left));
}

static void holder_lines(const struct speech *s) {
    const struct sched_explanation *e = s->e;
    uint32_t shown = e->holder_count < EXPLAIN_NAMED_MAX ? e->holder_count : EXPLAIN_NAMED_MAX;
    if (!e->holders_all)
        return;
    WHY(s, HELD_BY, SAY_NUMBER(e->holders_all));
    for (uint32_t i = 0; i < shown; i++)
        holder_line(s, &e->holders[i]);
    if (e->holders_all > shown)
        WHY(s, HOLDERS_MORE, SAY_NUMBER(e->holders_all - shown));
}

static enum why_phrase option_phrase(enum sched_reason r) {
    switch (r) {
    case SCHED_REASON_PARTITION: return WHY_PARTITION_SHUT;
    case SCHED_REASON_TIME_LIMIT: return WHY_PARTITION_TIME;
    case SCHED_REASON_NODES: return WHY_PARTITION_UNFIT;
    case SCHED_REASON_RESERVATION: return WHY_PARTITION_RESERVED;
    case SCHED_REASON_RESERVATION_GONE: return WHY_PARTITION_RESERVATION_GONE;
    case SCHED_REASON_NONE: return WHY_PARTITION_NOT_CONSIDERED;
    default: return WHY_PARTITION_BUSY;
    }
}

static void option_lines(const struct speech *s) {
    if (!s->e->option_count)
        return;
    WHY(s, PARTITIONS, NOTHING);
    for (uint32_t i = 0; i < s->e->option_count; i++) {
        const struct explain_option *o = &s->e->options[i];
        const struct world_partition *p = world_partition(s->w, o->partition);
        const char *name = p ? p->name : "(deleted)";
        if (o->planned_ms > s->now_ms)
            WHY(s, PARTITION_PLANNED, SAY_TEXT(name), SAY_SPAN(o->planned_ms - s->now_ms));
        else
            SAY(s->out, &sched_phrases[option_phrase(o->reason)], SAY_TEXT(name));
    }
}

void sched_explain_say(const struct world *w, const struct sched_explanation *e, int64_t now_ms,
                       explain_name_fn name, void *ctx, struct phrase_out *out) {
    const struct speech s = {w, e, now_ms, name, ctx, out};
    if (!e->hold && e->qos_limit.kind)
        qos_limit_line(&s);
    else if (!e->hold && e->reason == SCHED_REASON_LICENSES && e->license.license)
        license_line(&s);
    else if (!e->hold && e->reason == SCHED_REASON_RESERVATION_GONE)
        WHY(&s, RESERVATION_GONE, SAY_TEXT(e->reservation));
    else
        SAY(out, &sched_phrases[reason_phrase(e)], NOTHING);
    option_lines(&s);
    node_lines(&s);
    holder_lines(&s);
    if (e->position)
        WHY(&s, POSITION, SAY_NUMBER(e->position), SAY_NUMBER(e->waiting));
    band_line(&s);
    if (e->band.basis != EXPLAIN_NOW && !e->optional)
        change_line(&s);
}

void sched_explain_text(const struct world *w, const struct sched_explanation *e, int64_t now_ms, struct buf *out) {
    sched_explain_say(w, e, now_ms, NULL, NULL, &(struct phrase_out){.text = out});
}
