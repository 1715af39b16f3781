// Explains why one pending job waits: what rules out nodes, which jobs hold what it needs, its position in the
// order, when it will start.
#include "sched/explain.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "suggestion.h"
#include "forecast.h"
#include "growth_place.h"
#include "order.h"
#include "plan.h"
#include "promise.h"
#include "what_if.h"

static bool node_list_allows(const struct sched_request *q, uint32_t node) {
    bool only = !q->nodes_only_count;
    for (uint32_t i = 0; i < q->nodes_only_count; i++)
        only |= q->nodes_only[i] == node;
    for (uint32_t i = 0; i < q->nodes_except_count; i++)
        only &= q->nodes_except[i] != node;
    return only;
}

// What is missing on a node that would fit the job if it were idle.
static uint32_t *busy(const struct world_node *n, const struct sched_demand *d, struct explain_nodes *e) {
    uint32_t k = d->even ? d->node_tasks : 1;
    if (n->exclusive || (d->exclusive && n->jobs.len))
        return &e->busy_alone;
    // GPUs come first: who waits for them rarely means the memory that goes with them.
    struct world_node otherwise_idle = *n;
    otherwise_idle.cpus_free = n->cpus;
    otherwise_idle.memory_free = UINT64_MAX;
    if (sched_fit_tasks(&otherwise_idle, d) < k)
        return &e->busy_gpus;
    return n->cpus_free < d->cpus_task * k ? &e->busy_cpus : &e->busy_memory;
}

// Is a planned start on the node so near that optional workers are told to end?
static bool starts_soon(const struct sched_pass *p, uint32_t node) {
    for (uint32_t i = pass_first_part(p, node); i; i = p->parts.at[i - 1].next)
        if (p->parts.at[i - 1].from_ms - p->policy->grace_ms <= p->now_ms)
            return true;
    return false;
}

static uint32_t *ruled_out_by(struct sched_pass *p, const struct world_request *r, const struct world_node *n,
                              struct explain_nodes *e) {
    const struct sched_request *q = &r->asked;
    const struct sched_demand *d = &r->demand;
    if (!sched_request_partition_has(q, n))
        return &e->partition;
    if (n->user && n->user != q->user)
        return &e->other_user;
    if (!sched_project_allows(world_project(p->w, q->project), n->id))
        return &e->project;
    if (!node_list_allows(q, n->id))
        return &e->listed;
    if (!sched_request_features_ok(r, n))
        return &e->features;
    if (d->model_unknown || (d->models && !(d->models & n->models)))
        return &e->model;
    if (n->state != SCHED_NODE_UP)
        return n->state == SCHED_NODE_DOWN ? &e->down : &e->drained;
    if (!sched_fit_tasks_idle(n, d))
        return &e->small;
    if (!sched_reservations_allow(p->w, r, n->id, p->now_ms, r->limit_ms))
        return sched_node_ends_before(n, p->now_ms, r->limit_ms) ? &e->ending : &e->reserved;
    struct node_copy left;  // an optional worker has what all others leave
    if (q->optional)
        sched_growth_copy(&left, n);
    uint32_t tasks = sched_fit_tasks(q->optional ? &left.node : n, d);
    if (!tasks)
        return busy(q->optional ? &left.node : n, d, e);
    if (q->optional)
        return starts_soon(p, n->id) ? &e->planned : &e->fit;
    if (pass_first_part(p, n->id) && !sched_plan_allows(p, r, n, d->even ? tasks : 1))
        return &e->planned;
    return &e->fit;
}

static void holders_add(struct sched_explanation *e, const struct world_job *j) {
    for (uint32_t i = 0; i < e->holder_count; i++)
        if (e->holders[i].job == j->id)
            return;
    e->holders_all++;
    struct explain_holder h = {.job = j->id,
                               .project = j->request->asked.project,
                               .user = j->request->asked.user,
                               .gpu_milli = (uint64_t)j->held_gpu,
                               .cpus = (uint32_t)j->held_cpus,
                               .end_ms = sched_job_end_ms(j)};
    // The largest are kept, in the order of their size.
    uint32_t i = e->holder_count < EXPLAIN_HOLDERS_MAX ? e->holder_count++ : EXPLAIN_HOLDERS_MAX - 1;
    bool full = i == EXPLAIN_HOLDERS_MAX - 1 && e->holders_all > EXPLAIN_HOLDERS_MAX;
    if (full && (e->holders[i].gpu_milli > h.gpu_milli ||
                 (e->holders[i].gpu_milli == h.gpu_milli && e->holders[i].cpus >= h.cpus)))
        return;
    e->holders[i] = h;
    for (; i > 0; i--) {
        struct explain_holder *a = &e->holders[i - 1], *b = &e->holders[i], t = *a;
        if (a->gpu_milli > b->gpu_milli ||
            (a->gpu_milli == b->gpu_milli && (a->cpus > b->cpus || (a->cpus == b->cpus && a->job < b->job))))
            break;
        *a = *b;
        *b = t;
    }
}

static bool wants_gpus(const struct sched_demand *d) {
    return d->gpu_task || d->gpu_node || d->gpu_by_memory;
}

static void add_holders_on(struct sched_explanation *e, const struct world_request *r,
                           const struct world_node *n) {
    for (uint32_t k = 0; k < n->jobs.len; k++)
        if (n->jobs.at[k]->state != SCHED_JOB_PENDING)
            holders_add(e, n->jobs.at[k]);
    for (uint32_t k = 0; r->asked.optional && n->optional && k < n->optional->jobs.len; k++)
        holders_add(e, n->optional->jobs.at[k]);
}

// A node on which one task of the job fits may have no room for the others: two workers of one CPU each that start
// together, and one free CPU. Then whoever holds the rest is named, as for a node without any room.
static void look_at_room(struct sched_pass *p, const struct world_request *r, struct sched_explanation *e) {
    uint64_t room = 0, gpus = 0;
    if (!e->nodes.fit || r->asked.optional)
        return;
    for (uint32_t i = 0; i < p->w->cluster.nodes.len; i++) {
        const struct world_node *n = world_node(p->w, i);
        struct explain_nodes ignored = {0};
        if (n && ruled_out_by(p, r, n, &ignored) == &ignored.fit) {
            uint32_t tasks = sched_fit_tasks(n, &r->demand);
            room += tasks < r->demand.node_tasks ? tasks : r->demand.node_tasks;
            gpus += r->demand.gpu_total ? sched_fit_gpus(n, &r->demand) : 0;
        }
    }
    bool parts = r->parts.len && e->reason == SCHED_REASON_RESOURCES;
    e->nodes.partly = room < r->demand.tasks || gpus * SCHED_GPU < r->demand.gpu_total || parts;
    for (uint32_t i = 0; e->nodes.partly && i < p->w->cluster.nodes.len; i++) {
        const struct world_node *n = world_node(p->w, i);
        struct explain_nodes ignored = {0};
        if (n && ruled_out_by(p, r, n, &ignored) == &ignored.fit)
            add_holders_on(e, r, n);
    }
}

// Counts every node under the first reason that rules it out, and collects the jobs that hold what is missing.
static void look_at_nodes(struct sched_pass *p, struct world_job *j, struct sched_explanation *e) {
    struct world_request *r = j->request;
    e->nodes.needed = r->demand.nodes_min;
    for (uint32_t i = 0; i < p->w->cluster.nodes.len; i++) {
        const struct world_node *n = world_node(p->w, i);
        if (!n)
            continue;
        e->nodes.all++;
        uint32_t *count = ruled_out_by(p, r, n, &e->nodes);
        ++*count;
        if (count == &e->nodes.busy_gpus || count == &e->nodes.small || count == &e->nodes.model)
            e->nodes.sick_gpus += wants_gpus(&r->demand) ? n->gpu_count - n->gpu_usable : 0;
        bool held = count == &e->nodes.busy_gpus || count == &e->nodes.busy_cpus || count == &e->nodes.busy_memory ||
                    count == &e->nodes.busy_alone;
        if (held)
            add_holders_on(e, r, n);
    }
    look_at_room(p, r, e);
}

static void find_position(struct sched_pass *p, const struct world_job *j, struct sched_explanation *e) {
    struct sched_order o;
    sched_order_make(&o, p);
    e->position = sched_order_position(&o, j, NULL, NULL);
    e->waiting = p->w->jobs.ready;
    sched_order_done(&o);
}

static struct sched_pass pass_for(struct world *w, int64_t now_ms, const struct policy *policy,
                                  struct sched_decisions *d) {
    *d = (struct sched_decisions){.next_ms = INT64_MAX};
    return (struct sched_pass){.w = w, .policy = policy, .now_ms = now_ms, .out = d};
}

// Makes the planned starts of the decisions again, so that nodes kept for other jobs count as such.
static void remake_plans(struct sched_pass *p, const struct sched_decisions *d, uint64_t except) {
    for (uint32_t i = 0; i < d->plans.len; i++) {
        struct world_job *other = world_find(p->w, d->plans.at[i].job);
        if (other && other->id != except)
            sched_promise_remake(p, other, &d->plans.at[i]);
    }
}

// The reason in each of the partitions the job names.
static void explain_options(const struct world *w, const struct world_job *j, const struct sched_decisions *d,
                            struct sched_explanation *e) {
    for (uint32_t i = 0; sched_job_is_choice(j) && i < sched_job_options(j) && i < EXPLAIN_OPTIONS_MAX; i++) {
        struct explain_option *o = &e->options[e->option_count++];
        o->partition = sched_job_option(j, i)->asked.partition;
        o->reason = j->queued ? sched_option_reason(w, j->id, o->partition) : SCHED_REASON_NONE;
        for (uint32_t k = 0; k < d->plans.len; k++)
            if (d->plans.at[k].job == j->id && d->plans.at[k].partition == o->partition)
                o->planned_ms = d->plans.at[k].start_ms;
    }
}

// Reasons for which the job starts by itself some time.
static bool starts_later(enum sched_reason r) {
    return r == SCHED_REASON_RESOURCES || r == SCHED_REASON_PRIORITY || r == SCHED_REASON_PREEMPTING ||
           r == SCHED_REASON_RESERVATION || r == SCHED_REASON_QUOTA || r == SCHED_REASON_QOS_LIMIT ||
           r == SCHED_REASON_LICENSES ||
           r == SCHED_REASON_PROJECT_LIMIT || r == SCHED_REASON_BEGIN_TIME;
}

static bool starts_in(const struct sched_decisions *d, uint64_t job) {
    for (uint32_t i = 0; i < d->starts.len; i++)
        if (d->starts.at[i].job == job)
            return true;
    return false;
}

// What the latest decisions mean for the job: nodes, holders, position.
static void explain_decisions(struct world *w, struct world_job *j, int64_t now_ms, const struct policy *policy,
                              const struct sched_decisions *d, struct sched_explanation *out) {
    struct sched_decisions unused;
    explain_options(w, j, d, out);
    for (uint32_t i = 0; i < d->preempts.len; i++)
        out->victims += d->preempts.at[i].for_job == j->id;
    for (uint32_t i = 0; i < w->jobs.ending.len; i++)
        out->victims += w->jobs.ending.at[i]->ending_for == j->id;
    sched_request_refresh(w, j->request);
    struct sched_pass p = pass_for(w, now_ms, policy, &unused);
    w->last_pass.number++;
    sched_plan_mark_reservations(&p);
    remake_plans(&p, d, j->id);
    look_at_nodes(&p, j, out);
    if (!j->optional)
        find_position(&p, j, out);
    sched_pass_done(&p);
    sched_decisions_done(&unused);
}

int sched_explain(struct world *w, uint64_t job, int64_t now_ms, const struct policy *policy,
                  struct sched_explanation *out) {
    struct world_job *j = world_find(w, job);
    if (!j || j->state != SCHED_JOB_PENDING)
        return -ENOENT;
    *out = (struct sched_explanation){.job = job,
                                      .hold = (enum sched_hold)j->hold,
                                      .reservation = j->request->asked.reservation,
                                      .unlimited = sched_request_limit_ms(w, j->request) == INT64_MAX,
                                      .optional = j->optional};
    struct sched_question q;
    struct sched_decisions d;
    sched_question_begin(&q, w, j, now_ms);
    sched_decide(w, now_ms, policy, &d);
    out->reason = sched_job_reason(w, job);
    out->qos = j->request->asked.qos;
    if (out->reason == SCHED_REASON_QOS_LIMIT)
        out->qos_limit = sched_qos_limit(w, j->request, j->optional);
    if (out->reason == SCHED_REASON_LICENSES)
        out->license = sched_license_limit(w, j->request);
    explain_decisions(w, j, now_ms, policy, &d, out);
    bool starts = starts_in(&d, job);
    sched_decisions_done(&d);
    if (starts) {
        out->reason = SCHED_REASON_NONE;
        out->band = (struct explain_band){EXPLAIN_NOW, now_ms, now_ms};
    } else {
        if (starts_later(out->reason))
            out->band = sched_forecast_start(w, job, now_ms, policy);
        else
            out->band.basis = EXPLAIN_NEVER;
        if (!j->optional)
            sched_suggest_change(w, j, now_ms, policy, out);
    }
    sched_question_end(&q);
    return 0;
}

enum { WHEN_ID_BASE = 0x7fffffff };

// Adds a job with this request, asks, and removes it again.
static struct sched_when suppose(struct world *w, const struct sched_request *asked, int64_t now_ms,
                                 const struct policy *policy) {
    uint64_t id = UINT64_MAX - WHEN_ID_BASE;  // above every real id, so it comes last among equals
    struct sched_question q;
    sched_question_begin(&q, w, NULL, now_ms);
    const struct world_request *mine = world_request(w, asked);
    sched_job_add_hypothetical(w, &(struct sched_job){.id = id, .request = mine, .submit_ms = now_ms});
    world_request_unref(w, mine);
    struct sched_decisions d;
    sched_decide(w, now_ms, policy, &d);
    struct sched_when out = {.reason = sched_job_reason(w, id)};
    if (starts_in(&d, id))
        out = (struct sched_when){.band = {EXPLAIN_NOW, now_ms, now_ms}};
    sched_decisions_done(&d);
    if (out.reason == SCHED_REASON_NODES || out.reason == SCHED_REASON_PARTITION)
        out.band.basis = EXPLAIN_NEVER;
    else if (out.reason)
        out.band = sched_forecast_start(w, id, now_ms, policy);
    world_job_remove(w, id);
    sched_question_end(&q);
    return out;
}

void sched_when(struct world *w, const struct sched_request *requests, uint32_t n, int64_t now_ms,
                const struct policy *policy, struct sched_when *out) {
    for (uint32_t i = 0; i < n; i++)
        out[i] = suppose(w, &requests[i], now_ms, policy);
}
