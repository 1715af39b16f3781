// Owns the words of an explanation: one sentence per line, for a person.
#include <inttypes.h>
#include <stdio.h>

#include "base/buf.h"
#include "sched/explain.h"
#include "sched/internal.h"

static void amount(struct buf *out, int64_t milli) {
    if (milli % SCHED_GPU)
        buf_addf(out, "%" PRId64 ".%03" PRId64, milli / SCHED_GPU, milli % SCHED_GPU);
    else
        buf_addf(out, "%" PRId64, milli / SCHED_GPU);
}

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

static const char *reason_sentence(const struct explanation *e) {
    static const char *const sentences[SCHED_REASON_COUNT] = {
        [SCHED_REASON_NONE] = "It starts in the next pass.",
        [SCHED_REASON_BEGIN_TIME] = "Its begin time has not come.",
        [SCHED_REASON_PROJECT_GONE] = "Its project does not exist any more.",
        [SCHED_REASON_PARTITION] = "Its partition is closed or does not exist any more.",
        [SCHED_REASON_QOS_GONE] = "Its QoS does not exist any more.",
        [SCHED_REASON_QOS_LIMIT] = "Its QoS allows its user no more at a time.",
        [SCHED_REASON_TIME_LIMIT] = "Its time limit is above what its partition or QoS allows.",
        [SCHED_REASON_DEADLINE] = "It could not end before its deadline.",
        [SCHED_REASON_PROJECT_LIMIT] = "Its project is at its limit.",
        [SCHED_REASON_QUOTA] = "Work that cannot be preempted runs only inside the project's quota, which is used up.",
        [SCHED_REASON_RESOURCES] = "It is next in line and waits for resources.",
        [SCHED_REASON_PRIORITY] = "Others are before it, or it would delay one that is planned.",
        [SCHED_REASON_NODES] = "No nodes that are up could run it, even idle.",
        [SCHED_REASON_RESERVATION] = "Its reservation is not open to it now.",
        [SCHED_REASON_VACATING] = "Preempted jobs are making room for it.",
    };
    switch (e->hold) {
    case SCHED_HOLD_USER: return "It is held by its user.";
    case SCHED_HOLD_ADMIN: return "It is held by an administrator.";
    case SCHED_HOLD_DEPENDENCY: return "It waits for other jobs.";
    case SCHED_HOLD_ARRAY: return "Its array runs as many tasks as it may.";
    case SCHED_HOLD_OTHER: return "It is held.";
    case SCHED_HOLD_NONE: break;
    }
    return sentences[e->reason] ? sentences[e->reason] : "It has not been looked at yet.";
}

static void node_lines(const struct explain_nodes *n, struct buf *out) {
    const struct {
        uint32_t count;
        const char *text;
    } lines[] = {
        {n->partition, "not in its partition"},
        {n->project, "not open to its project"},
        {n->listed, "ruled out by its node list"},
        {n->features, "without the features it asks for"},
        {n->model, "without the GPU model it asks for"},
        {n->down, "down"},
        {n->drained, "drained"},
        {n->small, "too small for it"},
        {n->reserved, "reserved during its time"},
        {n->busy_gpus, "with too few free GPUs"},
        {n->busy_cpus, "with too few free CPUs"},
        {n->busy_memory, "with too little free memory"},
        {n->busy_alone, "that cannot be shared now"},
        {n->planned, "kept for a job that is planned before it"},
        {n->fit, "that could take a part of it now"},
    };
    buf_addf(out, "Of %u nodes (it needs %u):", n->all, n->needed);
    for (unsigned i = 0; i < sizeof lines / sizeof *lines; i++)
        if (lines[i].count)
            buf_addf(out, " %u %s;", lines[i].count, lines[i].text);
    if (out->data[out->len - 1] == ';')
        out->data[out->len - 1] = '.';
    buf_addc(out, '\n');
}

static void change_line(const struct world *w, const struct explanation *e, struct buf *out) {
    const struct partition *p = world_partition(w, (uint32_t)e->value);
    const struct qos *q = world_qos(w, (uint32_t)e->value);
    buf_adds(out, "It would start now ");
    if (e->also_release)
        buf_adds(out, e->hold == SCHED_HOLD_DEPENDENCY ? "without its dependency and " : "once released, ");
    if (e->also_first)
        buf_adds(out, "if it came before everybody else, ");
    switch (e->change) {
    case CHANGE_NONE:
        out->len -= sizeof "It would start now " - 1;  // nothing else was added then
        buf_adds(out, "No single change was found that would start it now.");
        break;
    case CHANGE_RELEASE: buf_adds(out, e->hold == SCHED_HOLD_DEPENDENCY ? "without its dependency." : "if it were released."); break;
    case CHANGE_BEGIN_NOW: buf_adds(out, "without its begin time."); break;
    case CHANGE_TIME_LIMIT:
        buf_adds(out, "with a time limit of ");
        span(out, e->value);
        buf_addc(out, '.');
        break;
    case CHANGE_GPUS:
        buf_adds(out, "with ");
        amount(out, e->value);
        buf_adds(out, " GPU where it asks for more.");
        break;
    case CHANGE_NODES: buf_addf(out, "on %" PRId64 " nodes.", e->value); break;
    case CHANGE_TASKS: buf_addf(out, "with %" PRId64 " tasks.", e->value); break;
    case CHANGE_CPUS: buf_addf(out, "with %" PRId64 " CPUs per task.", e->value); break;
    case CHANGE_MEMORY: buf_addf(out, "with %" PRId64 " MiB of memory per node.", e->value >> 20); break;
    case CHANGE_ANY_MODEL: buf_adds(out, "on any GPU model."); break;
    case CHANGE_NO_FEATURES: buf_adds(out, "without the features it asks for."); break;
    case CHANGE_NO_NODE_LIST: buf_adds(out, "without its node list."); break;
    case CHANGE_PARTITION: buf_addf(out, "in partition %s.", p ? p->name : "(none)"); break;
    case CHANGE_QOS: buf_addf(out, "with QoS %s.", q ? q->name : "(none)"); break;
    case CHANGE_TRAIN: buf_adds(out, "as train work, which can be preempted and may go over quota."); break;
    case CHANGE_SHARED: buf_adds(out, "on shared nodes."); break;
    case CHANGE_NO_RESERVATION: buf_adds(out, "outside its reservation."); break;
    case CHANGE_PRIORITY: buf_adds(out, "with a higher priority."); break;
    case CHANGE_PROJECT_QUOTA:
    case CHANGE_PROJECT_LIMIT:
        buf_addf(out, "if its project's %s were ", e->change == CHANGE_PROJECT_QUOTA ? "quota" : "limit");
        amount(out, e->value);
        buf_addc(out, '.');
        break;
    case CHANGE_END_JOBS:
        buf_adds(out, "if these jobs ended:");
        for (uint32_t i = 0; i < e->end_count; i++)
            buf_addf(out, " %" PRIu64, e->ends[i]);
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
        span(out, b->early_ms - now_ms);
        if (b->late_ms != b->early_ms) {
            buf_adds(out, " to ");
            span(out, b->late_ms - now_ms);
        }
        buf_adds(out, " (late: jobs run to their limits; early: as long as their users' jobs usually do; nobody new).\n");
        break;
    case EXPLAIN_ESTIMATE:
        buf_adds(out, "Expected start: in about ");
        span(out, b->early_ms - now_ms);
        buf_adds(out, " to ");
        span(out, b->late_ms - now_ms);
        buf_adds(out, " (estimated from totals; nobody new).\n");
        break;
    case EXPLAIN_LATER:
        buf_adds(out, "Expected start: not within ");
        span(out, b->early_ms - now_ms);
        buf_adds(out, "; more cannot be told from what runs and waits now.\n");
        break;
    case EXPLAIN_UNKNOWN: buf_adds(out, "Expected start: unknown, as jobs in its way have no time limit.\n"); break;
    case EXPLAIN_NEVER: buf_adds(out, "Expected start: not before that changes.\n"); break;
    }
}

void sched_explain_text(const struct world *w, const struct explanation *e, int64_t now_ms, struct buf *out) {
    buf_addf(out, "%s\n", reason_sentence(e));
    node_lines(&e->nodes, out);
    if (e->holders_all) {
        buf_addf(out, "What it needs is held by %u %s:", e->holders_all, e->holders_all == 1 ? "job" : "jobs");
        for (uint32_t i = 0; i < e->holder_count; i++) {
            buf_addf(out, "%s %" PRIu64 " (", i ? "," : "", e->holders[i].job);
            if (e->holders[i].gpu_milli) {
                amount(out, (int64_t)e->holders[i].gpu_milli);
                buf_addf(out, " GPU%s, ", e->holders[i].gpu_milli > SCHED_GPU ? "s" : "");
            }
            buf_addf(out, "%u CPU%s)", e->holders[i].cpus, e->holders[i].cpus == 1 ? "" : "s");
        }
        buf_adds(out, e->holders_all > e->holder_count ? ", ...\n" : ".\n");
    }
    if (e->position)
        buf_addf(out, "Place %u of %u in the order.\n", e->position, e->waiting);
    band_line(&e->band, now_ms, out);
    if (e->band.basis != EXPLAIN_NOW)
        change_line(w, e, out);
}
