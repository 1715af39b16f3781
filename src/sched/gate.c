// Owns the rules that may keep a job waiting whatever is free: what it refers to, limits, quota.
#include "sched/pass.h"

void request_refresh(struct world *w, struct request *r) {
    if (r->limit_version == w->config_version)
        return;
    const struct partition *part = world_partition(w, r->asked.partition);
    r->limit_ms = request_limit_ms(w, r);
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
int64_t user_load(const struct world *w, const struct request *r, int64_t now_ms) {
    struct user *u = r->user;
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

static enum sched_reason gate_names(const struct pass *p, const struct request *r) {
    const struct world *w = p->w;
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
    if (q->deadline_ms && (r->limit_ms == INT64_MAX || p->now_ms + r->limit_ms > q->deadline_ms))
        return SCHED_REASON_DEADLINE;
    if (q->reservation) {
        const struct reservation *v = world_reservation(w, q->reservation);
        if (!v || v->maintenance || p->now_ms < v->start_ms || p->now_ms >= v->end_ms ||
            !(listed(v->users.at, v->users.len, q->user) || listed(v->projects.at, v->projects.len, q->project)))
            return SCHED_REASON_RESERVATION;
    }
    return SCHED_REASON_NONE;
}

static enum sched_reason gate_qos(const struct pass *p, const struct request *r) {
    const struct qos *q = world_qos(p->w, r->asked.qos);
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

static enum sched_reason gate_project(const struct pass *p, const struct request *r) {
    const struct world *w = p->w;
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
        if (!r->preemptible && p->policy->interactive_within_quota && own->fixed[d] + amount > own->quota[d])
            return SCHED_REASON_QUOTA;
    }
    return SCHED_REASON_NONE;
}

enum sched_reason gate(const struct pass *p, const struct request *r) {
    enum sched_reason reason = gate_names(p, r);
    if (!reason)
        reason = gate_qos(p, r);
    return reason ? reason : gate_project(p, r);
}
