// The text of an explanation: one sentence per line.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "amount_text.h"
#include "base/buf.h"
#include "sched/explain.h"
#include "world_state.h"

// "unlimited" is stored as a time limit of 100 years: a job that has more than half of them left has no limit.
#define NO_LIMIT_MS (INT64_C(50) * 365 * 86400 * 1000)

// Rounded: forecasts are no better.
static void span(struct buf *out, int64_t ms) {
    int64_t s = (ms + 999) / 1000;
    if (s < 120)
        buf_addf(out, "%" PRId64 " s", s);
    else if (s < 7200)
        buf_addf(out, "%" PRId64 " min", (s + 30) / 60);
    else if (s < 172800)
        buf_addf(out, "%" PRId64 " h", (s + 1800) / 3600);
    else
        buf_addf(out, "%" PRId64 " days", (s + 43200) / 86400);
}

static void gpus(struct buf *out, int64_t milli) {
    char text[AMOUNT_TEXT_MAX];
    buf_adds(out, sched_gpus_text(milli, text));
}

// "36 to 60 min", "50 s to 2 h"
static void band(struct buf *out, int64_t early_ms, int64_t late_ms) {
    cleanup_buf struct buf a = {0}, b = {0};
    span(&a, early_ms);
    span(&b, late_ms);
    const char *unit = strrchr(buf_str(&a), ' '), *other = strrchr(buf_str(&b), ' ');
    if (strcmp(buf_str(&a), buf_str(&b)) == 0)
        buf_adds(out, buf_str(&a));
    else if (unit && other && strcmp(unit, other) == 0)
        buf_addf(out, "%.*s to %s", (int)(unit - buf_str(&a)), buf_str(&a), buf_str(&b));
    else
        buf_addf(out, "%s to %s", buf_str(&a), buf_str(&b));
}

static const char *reason_sentence(const struct sched_explanation *e) {
    static const char *const sentences[SCHED_REASON_COUNT] = {
        [SCHED_REASON_NONE] = "It starts in the next scheduling pass.",
        [SCHED_REASON_BEGIN_TIME] = "Its begin time has not come yet.",
        [SCHED_REASON_PROJECT_GONE] = "Its project was deleted.",
        [SCHED_REASON_PARTITION] = "Its partition is closed or was deleted.",
        [SCHED_REASON_QOS_GONE] = "Its QoS was deleted.",
        [SCHED_REASON_QOS_LIMIT] = "It would exceed a limit of its QoS.",
        [SCHED_REASON_TIME_LIMIT] = "Its time limit exceeds that of its partition or QoS.",
        [SCHED_REASON_DEADLINE] = "It could not end before its deadline.",
        [SCHED_REASON_PROJECT_LIMIT] = "It would exceed its project's limit.",
        [SCHED_REASON_QUOTA] =
            "It may run only within its project's quota, which is in use.",
        [SCHED_REASON_RESOURCES] = "It is next in the queue and waits for free resources.",
        [SCHED_REASON_PRIORITY] = "Other jobs come first, or it would delay a job with a planned start.",
        [SCHED_REASON_NODES] = "The nodes that are up could not run it even if they were idle.",
        [SCHED_REASON_RESERVATION] = "Its reservation is not active now, or does not admit it.",
        [SCHED_REASON_PREEMPTING] = "Jobs were preempted for it; it starts when they have ended.",
    };
    // An optional worker has no place in the queue: the sentences of waiting jobs would promise it one.
    if (e->optional && !e->hold && e->reason == SCHED_REASON_RESOURCES)
        return "It is an optional worker: it starts when there is room that no other job uses.";
    if (e->optional && !e->hold && e->reason == SCHED_REASON_PRIORITY)
        return "It is an optional worker: workers of projects further below their share come first, or a "
               "planned "
               "start needs the room soon.";
    switch (e->hold) {
    case SCHED_HOLD_USER: return "It is held by its user.";
    case SCHED_HOLD_ADMIN: return "It is held by an administrator.";
    case SCHED_HOLD_DEPENDENCY: return "It waits for the jobs it depends on.";
    case SCHED_HOLD_ARRAY: return "Its array has reached its limit of running tasks.";
    case SCHED_HOLD_OTHER: return "It is held.";
    case SCHED_HOLD_NONE: break;
    }
    // Not its own reservation keeps it out: one of others begins before it could have ended.
    bool kept_out = e->nodes.reserved && !e->nodes.planned && !e->nodes.fit;
    if ((e->reason == SCHED_REASON_RESERVATION && !e->reservation) ||
        (e->reason == SCHED_REASON_PRIORITY && kept_out))
        return e->unlimited
                   ? "It has no time limit, so it could still run when a reservation of the nodes it needs "
                     "begins, and waits until that is over. With a limit it may start before (acequia update "
                     "--time)."
                   : "It could still run when a reservation of the nodes it needs begins.";
    return sentences[e->reason] ? sentences[e->reason] : "No scheduling pass has considered it yet.";
}

// "It would exceed max_gpus_per_user of QoS high: 2 GPUs for each user, 1 GPU in use; it asks for 2 GPUs."
static void qos_limit_line(const struct world *w, const struct sched_explanation *e, struct buf *out) {
    static const char *const settings[] = {[LIMIT_JOBS_PER_USER] = "max_jobs_per_user",
                                           [LIMIT_GPUS_PER_USER] = "max_gpus_per_user",
                                           [LIMIT_CPUS_PER_USER] = "max_cpus_per_user",
                                           [LIMIT_GPUS] = "max_gpus"};
    const struct world_qos *q = world_qos(w, e->qos);
    const struct explain_limit *l = &e->qos_limit;
    char limit[AMOUNT_TEXT_MAX], used[AMOUNT_TEXT_MAX], asked[AMOUNT_TEXT_MAX];
    buf_addf(out, "It would exceed %s of QoS %s: ", settings[l->kind], q ? q->name : "(none)");
    if (l->kind == LIMIT_JOBS_PER_USER) {
        buf_addf(out, "%" PRIu64 " running job%s for each user, and %" PRIu64 " run%s.\n", l->limit,
                 l->limit == 1 ? "" : "s", l->used, l->used == 1 ? "s" : "");
        return;
    }
    bool cpus = l->kind == LIMIT_CPUS_PER_USER;
    buf_addf(out, "%s %s, %s in use; it asks for %s.\n",
             cpus ? sched_cpus_text(l->limit, limit) : sched_gpus_text((int64_t)l->limit, limit),
             l->kind == LIMIT_GPUS ? "for all its jobs" : "for each user",
             cpus ? sched_cpus_text(l->used, used) : sched_gpus_text((int64_t)l->used, used),
             cpus ? sched_cpus_text(l->asked, asked) : sched_gpus_text((int64_t)l->asked, asked));
}

static void node_lines(const struct explain_nodes *n, struct buf *out) {
    const struct {
        uint32_t count;
        const char *text;
    } lines[] = {
        {n->partition, "outside its partition"},
        {n->project, "not allowed for its project"},
        {n->listed, "excluded by its node list"},
        {n->features, "without the features it asks for"},
        {n->model, "without the GPU model it asks for"},
        {n->down, "down"},
        {n->drained, "drained"},
        {n->small, "too small for it"},
        {n->reserved, "reserved while it would run"},
        {n->busy_gpus, "with too few free GPUs"},
        {n->busy_cpus, "with too few free CPUs"},
        {n->busy_memory, "with too little free memory"},
        {n->busy_alone, "in use that it cannot share"},
        {n->planned, "kept for a job with a planned start"},
        {n->fit, n->needed == 1 && !n->partly ? "that could run it now" : "that could run a part of it now"},
    };
    bool first = true;
    buf_addf(out, "It needs %u node%s. Of %u node%s", n->needed, n->needed == 1 ? "" : "s", n->all,
             n->all == 1 ? "" : "s");
    for (unsigned i = 0; i < sizeof lines / sizeof *lines; i++)
        if (lines[i].count) {
            buf_addf(out, "%s %u %s", first ? ":" : ",", lines[i].count, lines[i].text);
            first = false;
        }
    buf_adds(out, ".\n");
    if (n->sick_gpus)
        buf_addf(out, "%u GPU%s there %s faulty and not used.\n", n->sick_gpus, n->sick_gpus == 1 ? "" : "s",
                 n->sick_gpus == 1 ? "is" : "are");
}

static void job_name(uint64_t job, explain_name_fn name, void *ctx, struct buf *out) {
    if (name)
        name(ctx, job, out);
    else
        buf_addf(out, "%" PRIu64, job);
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

static void change_line(const struct world *w, const struct sched_explanation *e, explain_name_fn name, void *ctx,
                        struct buf *out) {
    const struct world_partition *p = world_partition(w, (uint32_t)e->value);
    const struct world_qos *q = world_qos(w, (uint32_t)e->value);
    char text[AMOUNT_TEXT_MAX];
    buf_adds(out, "It would start now ");
    if (e->also_release)
        buf_adds(out, e->hold == SCHED_HOLD_DEPENDENCY ? "without its dependency and " : "once released, ");
    if (e->also_first)
        buf_adds(out, "if it came before all other jobs, and ");
    switch (e->change) {
    case CHANGE_NONE:
        out->len -= sizeof "It would start now " - 1;  // nothing else was added then
        buf_adds(out, "No single change was found that would start it now.");
        break;
    case CHANGE_RELEASE:
        buf_adds(out, e->hold == SCHED_HOLD_DEPENDENCY ? "without its dependency." : "if it were released.");
        break;
    case CHANGE_BEGIN_NOW: buf_adds(out, "without its begin time."); break;
    case CHANGE_TIME_LIMIT:
        buf_adds(out, "with a time limit of ");
        span(out, e->value);
        buf_addc(out, '.');
        break;
    case CHANGE_GPUS:
        buf_adds(out, "with ");
        gpus(out, e->value);
        buf_addf(out, " instead of %s.", sched_gpu_number_text(asked_gpus(w, e->job), text));
        break;
    case CHANGE_NODES: buf_addf(out, "on %" PRId64 " node%s.", e->value, e->value == 1 ? "" : "s"); break;
    case CHANGE_TASKS:
        buf_addf(out, "with %" PRId64 " %s%s.", e->value, e->elastic ? "worker" : "task",
                 e->value == 1 ? "" : "s");
        break;
    case CHANGE_CPUS: buf_addf(out, "with %" PRId64 " CPU%s per task.", e->value, e->value == 1 ? "" : "s"); break;
    case CHANGE_MEMORY:
        if (e->value >= 10LL << 30)
            buf_addf(out, "with %" PRId64 " GiB of memory per node.", e->value >> 30);
        else
            buf_addf(out, "with %" PRId64 " MiB of memory per node.", e->value >> 20);
        break;
    case CHANGE_ANY_MODEL: buf_adds(out, "on any GPU model."); break;
    case CHANGE_NO_FEATURES: buf_adds(out, "without the features it asks for."); break;
    case CHANGE_NO_NODE_LIST: buf_adds(out, "without its node list."); break;
    case CHANGE_PARTITION: buf_addf(out, "in partition %s.", p ? p->name : "(none)"); break;
    case CHANGE_QOS: buf_addf(out, q ? "with QoS %s." : "without a QoS.", q ? q->name : ""); break;
    case CHANGE_TRAIN: buf_adds(out, "as a batch job, which may be preempted and may exceed the quota."); break;
    case CHANGE_SHARED: buf_adds(out, "on shared nodes."); break;
    case CHANGE_NO_RESERVATION: buf_adds(out, "outside its reservation."); break;
    case CHANGE_PRIORITY: buf_adds(out, "with a higher priority."); break;
    case CHANGE_PROJECT_QUOTA:
    case CHANGE_PROJECT_LIMIT:
        buf_addf(out, "if its project's %s were %s.", e->change == CHANGE_PROJECT_QUOTA ? "quota" : "limit",
                 asks_cpus(w, e->job) ? sched_cpus_text((uint64_t)e->value, text) : sched_gpus_text(e->value, text));
        break;
    case CHANGE_END_JOBS:
        buf_adds(out, e->end_count == 1 ? "if this job ended: " : "if these jobs ended: ");
        for (uint32_t i = 0; i < e->end_count; i++) {
            buf_adds(out, i ? ", " : "");
            job_name(e->ends[i], name, ctx, out);
        }
        buf_addc(out, '.');
        break;
    }
    buf_addc(out, '\n');
}

static void band_line(const struct explain_band *b, int64_t now_ms, struct buf *out) {
    switch (b->basis) {
    case EXPLAIN_NOW: buf_adds(out, "It starts now.\n"); break;
    case EXPLAIN_FORECAST:
        buf_adds(out, "Expected start: in ");
        band(out, b->early_ms - now_ms, b->late_ms - now_ms);
        buf_adds(out, b->early_ms == b->late_ms ? ".\n" : ", if jobs run as long as usual, or to their limits.\n");
        break;
    case EXPLAIN_ESTIMATE:
        buf_adds(out, "Expected start: in about ");
        band(out, b->early_ms - now_ms, b->late_ms - now_ms);
        buf_adds(out, ", estimated from the jobs that run and come first.\n");
        break;
    case EXPLAIN_LATER:
        if (b->early_ms <= now_ms) {
            buf_adds(out, "Expected start: later than can be foreseen.\n");
            break;
        }
        buf_adds(out, "Expected start: later than in ");
        span(out, b->early_ms - now_ms);
        buf_adds(out, ", where the forecast ends.\n");
        break;
    case EXPLAIN_UNKNOWN:
        buf_adds(out, "Expected start: unknown, because jobs it waits for have no time limit.\n");
        break;
    case EXPLAIN_NEVER: buf_adds(out, "Expected start: unknown until that changes.\n"); break;
    }
}

static void holder_lines(const struct sched_explanation *e, int64_t now_ms, explain_name_fn name, void *ctx,
                         struct buf *out) {
    uint32_t shown = e->holder_count < EXPLAIN_NAMED_MAX ? e->holder_count : EXPLAIN_NAMED_MAX;
    if (!e->holders_all)
        return;
    buf_addf(out, "The resources it needs are held by %u %s:\n", e->holders_all,
             e->holders_all == 1 ? "job" : "jobs");
    for (uint32_t i = 0; i < shown; i++) {
        const struct explain_holder *h = &e->holders[i];
        buf_adds(out, "  ");
        job_name(h->job, name, ctx, out);
        buf_adds(out, ": ");
        if (h->gpu_milli) {
            gpus(out, (int64_t)h->gpu_milli);
            buf_adds(out, ", ");
        }
        buf_addf(out, "%u CPU%s, ", h->cpus, h->cpus == 1 ? "" : "s");
        if (h->end_ms - now_ms > NO_LIMIT_MS) {
            buf_adds(out, "without time limit\n");
        } else {
            buf_adds(out, "for at most ");
            span(out, h->end_ms > now_ms ? h->end_ms - now_ms : 0);
            buf_addc(out, '\n');
        }
    }
    if (e->holders_all > shown)
        buf_addf(out, "  and %u more jobs, none larger\n", e->holders_all - shown);
}

static const char *option_words(enum sched_reason r) {
    switch (r) {
    case SCHED_REASON_PARTITION: return "closed or deleted";
    case SCHED_REASON_TIME_LIMIT: return "its time limit is too long there";
    case SCHED_REASON_NODES: return "its nodes that are up could not run it even if they were idle";
    case SCHED_REASON_RESERVATION: return "nodes are reserved";
    case SCHED_REASON_RESERVATION_GONE: return "its reservation was deleted";
    case SCHED_REASON_NONE: return "not considered yet";
    default: return "waiting for free resources or behind other jobs";
    }
}

static void option_lines(const struct world *w, const struct sched_explanation *e, int64_t now_ms, struct buf *out) {
    if (!e->option_count)
        return;
    buf_adds(out, "It starts in the first of its partitions that has room for it:\n");
    for (uint32_t i = 0; i < e->option_count; i++) {
        const struct explain_option *o = &e->options[i];
        const struct world_partition *p = world_partition(w, o->partition);
        buf_addf(out, "  %s: ", p ? p->name : "(deleted)");
        if (o->planned_ms > now_ms) {
            buf_adds(out, "planned start in ");
            span(out, o->planned_ms - now_ms);
            buf_addc(out, '\n');
        } else {
            buf_addf(out, "%s\n", option_words(o->reason));
        }
    }
}

void sched_explain_text(const struct world *w, const struct sched_explanation *e, int64_t now_ms,
                        explain_name_fn name, void *ctx, struct buf *out) {
    if (!e->hold && e->qos_limit.kind)
        qos_limit_line(w, e, out);
    else if (!e->hold && e->reason == SCHED_REASON_RESERVATION_GONE)
        buf_addf(out,
                 "Its reservation %s was deleted. It waits until there is one of that name, or until it "
                 "names another "
                 "(acequia update --reservation NAME).\n",
                 e->reservation);
    else
        buf_addf(out, "%s\n", reason_sentence(e));
    option_lines(w, e, now_ms, out);
    node_lines(&e->nodes, out);
    holder_lines(e, now_ms, name, ctx, out);
    if (e->position)
        buf_addf(out, "Position %u of %u in the queue.\n", e->position, e->waiting);
    band_line(&e->band, now_ms, out);
    if (e->band.basis != EXPLAIN_NOW && !e->optional)
        change_line(w, e, name, ctx, out);
}
