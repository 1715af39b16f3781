// Owns the rules that may keep a job waiting whatever is free: what it refers to, limits, quota.
#include "pass.h"

void request_refresh(struct world *w, struct request *r) {
    if (r->limit_version == w->config_version)
        return;
    const struct partition *part = world_partition(w, r->asked.partition);
    r->limit_ms = r->turn_limit_ms = request_limit_ms(w, r);
    for (uint32_t i = 0; r->choice && i < r->choice->options.len; i++) {
        int64_t other = request_limit_ms(w, r->choice->options.at[i]);
        r->turn_limit_ms = other > r->turn_limit_ms ? other : r->turn_limit_ms;
    }
    r->priority = request_priority(w, r);
    r->tier = part ? part->tier : 0;
    r->fifo = part && part->fifo;
    r->dim = (uint8_t)request_dim(w, r);
    r->amount = request_amount(w, r, r->dim);
    r->preemptible = request_preemptible(w, r);
    r->user = user_slot(&w->users, r->asked.project, r->asked.user);
    r->qos_user = user_slot(&w->qos_users, r->asked.qos, r->asked.user);
    r->limit_version = w->config_version;
}

// What the user of this request uses, by the moving average and at this moment.
int64_t user_load(const struct world *w, struct user *u, int64_t now_ms) {
    if (u->pass != w->pass) {
        u->average_now = user_average(u, now_ms, w->half_life_ms);
        u->pass = w->pass;
    }
    return u->average_now + u->cost + u->trial_cost;
}

static bool listed(const uint32_t *ids, uint32_t n, uint32_t id) {
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] == id)
            return true;
    return false;
}

static enum sched_reason gate_names(const struct world *w, const struct request *r, int64_t now_ms) {
    const struct sched_request *q = &r->asked;
    if (!world_project(w, q->project))
        return SCHED_REASON_PROJECT_GONE;
    const struct partition *part = world_partition(w, q->partition);
    if (q->partition && (!part || part->closed))
        return SCHED_REASON_PARTITION;
    const struct qos *qos = world_qos(w, q->qos);
    if (q->qos && !qos)
        return SCHED_REASON_QOS_GONE;
    if ((part && part->max_time_ms && r->limit_ms > part->max_time_ms) ||
        (qos && qos->max_time_ms && r->limit_ms > qos->max_time_ms))
        return SCHED_REASON_TIME_LIMIT;
    if (q->deadline_ms && (r->limit_ms == INT64_MAX || now_ms + r->limit_ms > q->deadline_ms))
        return SCHED_REASON_DEADLINE;
    if (q->reservation) {
        const struct reservation *v = world_reservation(w, q->reservation);
        if (!v || v->maintenance || now_ms < v->start_ms || now_ms >= v->end_ms ||
            !(listed(v->users.at, v->users.len, q->user) || listed(v->projects.at, v->projects.len, q->project)))
            return SCHED_REASON_RESERVATION;
    }
    return SCHED_REASON_NONE;
}

static enum sched_reason gate_qos(const struct world *w, const struct request *r) {
    const struct qos *q = world_qos(w, r->asked.qos);
    const struct user *u = r->qos_user;
    if (!q)
        return SCHED_REASON_NONE;
    if ((q->max_jobs_per_user && u->jobs >= q->max_jobs_per_user) ||
        (q->max_gpu_milli_per_user && u->gpu_milli + r->gpu_milli > q->max_gpu_milli_per_user) ||
        (q->max_cpus_per_user && u->cpus + request_cpus(r) > q->max_cpus_per_user) ||
        (q->max_gpu_milli && q->used_gpu_milli + r->gpu_milli > q->max_gpu_milli))
        return SCHED_REASON_QOS_LIMIT;
    return SCHED_REASON_NONE;
}

static enum sched_reason gate_project(const struct world *w, const struct request *r, bool within_quota) {
    const struct project *own = world_project(w, r->asked.project);
    for (unsigned d = 0; d < w->dims; d++) {
        int64_t amount = request_amount(w, r, d);
        if (!amount)
            continue;
        for (const struct project *t = own; t; t = project_parent(w, t))
            if (t->limit[d] >= 0 && t->tree_used[d] + amount > t->limit[d])
                return SCHED_REASON_PROJECT_LIMIT;
        if (d != r->dim && d != DIM_GPU)
            continue;  // the quota that rules it, and the one of GPUs in general
        if (own->quota[d] == SCHED_UNLIMITED)
            continue;
        if (own->weight == 0 && own->used[d] + amount > own->quota[d])
            return SCHED_REASON_QUOTA;
        if (!r->preemptible && within_quota && own->fixed[d] + amount > own->quota[d])
            return SCHED_REASON_QUOTA;
    }
    return SCHED_REASON_NONE;
}

static enum sched_reason gate_at(const struct world *w, const struct request *r, int64_t now_ms, bool within_quota) {
    enum sched_reason reason = gate_names(w, r, now_ms);
    if (!reason)
        reason = gate_qos(w, r);
    return reason ? reason : gate_project(w, r, within_quota);
}

enum sched_reason gate(const struct pass *p, const struct request *r) {
    return gate_at(p->w, r, p->now_ms, p->policy->interactive_within_quota);
}

static bool waits_in_line(enum sched_reason r) {
    return r == SCHED_REASON_PRIORITY || r == SCHED_REASON_RESOURCES;
}

static enum sched_reason reason_of(struct world *w, struct request *r) {
    request_refresh(w, r);
    enum sched_reason reason = gate_at(w, r, w->judged.now_ms, w->judged.within_quota);
    struct fit *f = reason ? NULL : fit_of(w, r);
    if (reason || fit_enough(f))
        return reason ? reason : SCHED_REASON_PRIORITY;
    if (!fit_ever(w, f))
        return SCHED_REASON_NODES;
    return w->judged.planless ? SCHED_REASON_RESOURCES : SCHED_REASON_PRIORITY;
}

// There is room, but not for as long as it may run: a reservation is in the way. Looked at once in a
// pass for all jobs that ask for the same.
static bool kept_out(struct world *w, struct request *r) {
    request_refresh(w, r);
    const struct fit *f = fit_of(w, r);
    if (!fit_enough(f))
        return false;  // something else is missing, too
    if (r->window_pass == w->pass + 1)
        return r->kept_out;
    uint32_t nodes = 0;
    uint64_t tasks = 0;
    for (uint32_t i = 0; i < f->nodes_len && (nodes < f->demand.nodes_min || tasks < f->demand.tasks); i++)
        if (f->cap[i] && window_allows(w, r, i, w->judged.now_ms, r->limit_ms)) {
            nodes++;
            tasks += f->cap[i];
        }
    r->window_pass = w->pass + 1;
    r->kept_out = nodes < f->demand.nodes_min || tasks < f->demand.tasks;
    return r->kept_out;
}

// Made when somebody asks, so that a pass need not look at those whose answer cannot have changed.
static enum sched_reason reason_in_line(struct world *w, const struct job *j) {
    if (!j || j->state != SCHED_JOB_PENDING)
        return SCHED_REASON_NONE;
    if (j->hold != SCHED_HOLD_NONE)
        return SCHED_REASON_HELD;
    if (!j->queued)
        return SCHED_REASON_BEGIN_TIME;
    if (j->reason)
        return (enum sched_reason)j->reason;
    if (j->since_pass == (uint32_t)w->pass)
        return SCHED_REASON_NONE;
    enum sched_reason best = reason_of(w, job_option(j, 0));
    for (uint32_t i = 1; i < job_options(j); i++) {
        enum sched_reason other = reason_of(w, job_option(j, i));
        if (waits_in_line(other) || (!waits_in_line(best) && other == SCHED_REASON_NODES))
            best = other;
    }
    return best;
}

enum sched_reason sched_option_reason(const struct world *cw, uint64_t id, uint32_t partition) {
    struct world *w = (struct world *)(uintptr_t)cw;
    const struct job *j = world_find(w, id);
    return j && j->queued ? reason_of(w, job_option_in(j, partition)) : SCHED_REASON_NONE;
}

enum sched_reason sched_job_reason(const struct world *cw, uint64_t id) {
    struct world *w = (struct world *)(uintptr_t)cw;  // caches are brought up to date
    const struct job *j = world_find(w, id);
    enum sched_reason reason = reason_in_line(w, j);
    if (!waits_in_line(reason) || !w->reservations.len)
        return reason;
    bool out = true;
    for (uint32_t i = 0; i < job_options(j) && out; i++)
        out = kept_out(w, job_option(j, i));
    return out ? SCHED_REASON_RESERVATION : reason;
}
