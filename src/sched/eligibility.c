// Whether a job may start at all, whatever is free: what it refers to exists, limits and quota allow it.
// Also the reason that is shown for a waiting job, computed when somebody asks.
#include "growth.h"
#include "pass.h"
#include "plan.h"

void sched_request_refresh(struct world *w, struct world_request *r) {
    if (r->limit_version == w->version.config)
        return;
    const struct world_partition *part = world_partition(w, r->asked.partition);
    r->limit_ms = r->queue_limit_ms = sched_request_limit_ms(w, r);
    for (uint32_t i = 0; r->choice && i < r->choice->options.len; i++) {
        int64_t other = sched_request_limit_ms(w, r->choice->options.at[i]);
        r->queue_limit_ms = other > r->queue_limit_ms ? other : r->queue_limit_ms;
    }
    r->priority = sched_request_priority(w, r);
    r->tier = part ? part->tier : 0;
    r->fifo = part && part->fifo;
    r->dim = (uint8_t)sched_request_dim(w, r);
    r->amount = sched_request_amount(w, r, r->dim);
    r->preemptible = sched_request_preemptible(w, r);
    r->user = sched_user_slot(&w->usage.users, r->asked.project, r->asked.user);
    r->qos_user = sched_user_slot(&w->usage.qos_users, r->asked.qos, r->asked.user);
    r->limit_version = w->version.config;
}

static bool listed(const uint32_t *ids, uint32_t n, uint32_t id) {
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] == id)
            return true;
    return false;
}

static enum sched_reason check_references(const struct world *w, const struct world_request *r, int64_t now_ms) {
    const struct sched_request *q = &r->asked;
    const struct world_project *project = world_project(w, q->project);
    if (!project || project->closed)
        return SCHED_REASON_PROJECT_GONE;
    const struct world_partition *part = world_partition(w, q->partition);
    if (q->partition && (!part || part->closed))
        return SCHED_REASON_PARTITION;
    const struct world_qos *qos = world_qos(w, q->qos);
    if (q->qos && !qos)
        return SCHED_REASON_QOS_GONE;
    if (r->limit_ms == 0 || (part && part->max_time_ms >= 0 && r->limit_ms > part->max_time_ms) ||
        (qos && qos->max_time_ms >= 0 && r->limit_ms > qos->max_time_ms))
        return SCHED_REASON_TIME_LIMIT;
    // Without a time limit it may run until its deadline, whenever it starts.
    if (q->deadline_ms && now_ms + (r->limit_ms == INT64_MAX ? 1 : r->limit_ms) > q->deadline_ms)
        return SCHED_REASON_DEADLINE;
    if (q->reservation) {
        const struct world_reservation *v = world_reservation(w, q->reservation);
        if (!v)
            return SCHED_REASON_RESERVATION_GONE;
        if (v->maintenance || now_ms < v->start_ms || now_ms >= v->end_ms ||
            !(listed(v->users.at, v->users.len, q->user) ||
              listed(v->projects.at, v->projects.len, q->project)))
            return SCHED_REASON_RESERVATION;
    }
    return SCHED_REASON_NONE;
}

// Whether a limit forbids this much more. A job that takes nothing of it is never forbidden.
static bool exceeds(uint64_t used, uint64_t more, int64_t limit) {
    return limit != SCHED_UNLIMITED && more && used + more > (uint64_t)limit;
}

struct explain_limit sched_qos_limit(const struct world *w, const struct world_request *r, bool optional) {
    const struct world_qos *q = world_qos(w, r->asked.qos);
    const struct world_user *u = r->qos_user;
    if (!q)
        return (struct explain_limit){LIMIT_NONE};
    const struct {
        enum explain_limit_kind kind;
        uint64_t used, asked;
        int64_t limit;
    } limits[] = {
        {LIMIT_JOBS_PER_USER, u->jobs, optional ? 0 : 1, q->max_jobs_per_user},
        {LIMIT_GPUS_PER_USER, u->gpu_milli + (optional ? u->optional_gpu_milli : 0), r->gpu_milli,
         q->max_gpu_milli_per_user},
        {LIMIT_CPUS_PER_USER, u->cpus + (optional ? u->optional_cpus : 0), sched_request_cpus(r),
         q->max_cpus_per_user},
        {LIMIT_GPUS, q->used_gpu_milli + (optional ? q->optional_gpu_milli : 0), r->gpu_milli,
         q->max_gpu_milli},
    };
    for (unsigned i = 0; i < sizeof limits / sizeof *limits; i++)
        if (exceeds(limits[i].used, limits[i].asked, limits[i].limit))
            return (struct explain_limit){limits[i].kind, (uint64_t)limits[i].limit, limits[i].used,
                                          limits[i].asked};
    return (struct explain_limit){LIMIT_NONE};
}

static enum sched_reason check_qos(const struct world *w, const struct world_request *r, bool optional) {
    return sched_qos_limit(w, r, optional).kind ? SCHED_REASON_QOS_LIMIT : SCHED_REASON_NONE;
}

// The first license that it cannot have now.
struct explain_license sched_license_limit(const struct world *w, const struct world_request *r) {
    for (uint32_t i = 0; i < r->asked.license_count; i++) {
        const struct sched_license_use *use = &r->asked.licenses[i];
        const struct world_license *l = world_license(w, use->license);
        if (!l || exceeds(l->used, use->count, l->count))
            return (struct explain_license){use->license, use->count, l ? l->count : 0, l ? l->used : 0, l != NULL};
    }
    return (struct explain_license){0};
}

static enum sched_reason check_licenses(const struct world *w, const struct world_request *r) {
    return sched_license_limit(w, r).license ? SCHED_REASON_LICENSES : SCHED_REASON_NONE;
}

static enum sched_reason check_project(const struct world *w, const struct world_request *r, bool within_quota) {
    const struct world_project *own = world_project(w, r->asked.project);
    for (unsigned d = 0; d < w->cluster.dims; d++) {
        int64_t amount = sched_request_amount(w, r, d);
        if (!amount)
            continue;
        for (const struct world_project *t = own; t; t = sched_project_parent(w, t))
            if (t->limit[d] >= 0 && t->tree_used[d] + amount > t->limit[d])
                return SCHED_REASON_PROJECT_LIMIT;
        if (d != r->dim && d != DIM_GPU)
            continue;  // only the quota of its own dimension and that of GPUs in general apply
        if (own->quota[d] == SCHED_UNLIMITED)
            continue;
        if (own->weight == 0 && own->used[d] + amount > own->quota[d])
            return SCHED_REASON_QUOTA;
        if (!r->preemptible && within_quota && own->used_nonpreemptible[d] + amount > own->quota[d])
            return SCHED_REASON_QUOTA;
    }
    return SCHED_REASON_NONE;
}

static enum sched_reason eligibility_at(const struct world *w, const struct world_request *r, int64_t now_ms,
                                        bool within_quota) {
    enum sched_reason reason = check_references(w, r, now_ms);
    if (!reason)
        reason = check_qos(w, r, false);
    if (!reason)
        reason = check_licenses(w, r);
    return reason ? reason : check_project(w, r, within_quota);
}

enum sched_reason sched_eligibility(const struct sched_pass *p, const struct world_request *r) {
    return eligibility_at(p->w, r, p->now_ms, p->policy->interactive_within_quota);
}

// As check_project, for what the project and those above it use with their optional workers. Optional use counts as
// use beyond the quota, so a project with weight 0 has none beyond it.
static enum sched_reason check_project_optional(const struct world *w, const struct world_request *r) {
    const struct world_project *own = world_project(w, r->asked.project);
    for (unsigned d = 0; d < w->cluster.dims; d++) {
        int64_t amount = sched_request_amount(w, r, d);
        for (const struct world_project *t = own; t && amount; t = sched_project_parent(w, t))
            if (t->limit[d] >= 0 && t->tree_used[d] + t->optional_tree[d] + amount > t->limit[d])
                return SCHED_REASON_PROJECT_LIMIT;
        if (amount && own->weight == 0 && (d == r->dim || d == DIM_GPU) && own->quota[d] != SCHED_UNLIMITED &&
            own->used[d] + own->optional_used[d] + amount > own->quota[d])
            return SCHED_REASON_QUOTA;
    }
    return SCHED_REASON_NONE;
}

enum sched_reason sched_optional_eligibility(const struct world *w, const struct world_request *r,
                                             int64_t now_ms) {
    enum sched_reason reason = check_references(w, r, now_ms);
    if (!reason)
        reason = check_qos(w, r, true);
    return reason ? reason : check_project_optional(w, r);
}

static bool waits_in_queue(enum sched_reason r) {
    return r == SCHED_REASON_PRIORITY || r == SCHED_REASON_RESOURCES;
}

static enum sched_reason reason_of(struct world *w, struct world_request *r) {
    sched_request_refresh(w, r);
    enum sched_reason reason = eligibility_at(w, r, w->last_pass.now_ms, w->last_pass.within_quota);
    struct sched_fit *f = reason ? NULL : sched_fit_of(w, r);
    if (reason || sched_fit_enough(f))
        return reason ? reason : SCHED_REASON_PRIORITY;
    if (!sched_fits_when_idle(w, f))
        return SCHED_REASON_NODES;
    return w->last_pass.no_plans ? SCHED_REASON_RESOURCES : SCHED_REASON_PRIORITY;
}

// Is there room for the request, but not for as long as it may run, because of a reservation? Computed once
// per pass for all jobs of the request.
static bool reservation_blocks(struct world *w, struct world_request *r) {
    sched_request_refresh(w, r);
    const struct sched_fit *f = sched_fit_of(w, r);
    if (!sched_fit_enough(f))
        return false;  // resources are missing as well
    if (r->reservation_pass == w->last_pass.number + 1)
        return r->reservation_blocks;
    uint32_t nodes = 0;
    uint64_t tasks = 0;
    for (uint32_t i = 0; i < f->nodes_len && (nodes < f->demand.nodes_min || tasks < f->demand.tasks); i++)
        if (f->cap[i] && sched_reservations_allow(w, r, i, w->last_pass.now_ms, r->limit_ms)) {
            nodes++;
            tasks += f->cap[i];
        }
    r->reservation_pass = w->last_pass.number + 1;
    r->reservation_blocks = nodes < f->demand.nodes_min || tasks < f->demand.tasks;
    return r->reservation_blocks;
}

// Why an optional worker was not started by the latest pass.
static enum sched_reason optional_reason(struct world *w, const struct world_job *j) {
    enum sched_reason first = SCHED_REASON_NONE;
    for (uint32_t i = 0; i < sched_job_options(j); i++) {
        struct world_request *r = sched_job_option(j, i);
        sched_request_refresh(w, r);
        enum sched_reason reason = sched_optional_eligibility(w, r, w->last_pass.now_ms);
        struct sched_fit *f = reason ? NULL : sched_fit_of(w, r);
        if (!reason && sched_fits_when_idle(w, f))
            return sched_growth_fits(w, f) ? SCHED_REASON_PRIORITY : SCHED_REASON_RESOURCES;
        first = first ? first : reason ? reason : SCHED_REASON_NODES;
    }
    return first;
}

// Computed when somebody asks, so that a pass need not look at every job.
static enum sched_reason reason_in_queue(struct world *w, const struct world_job *j) {
    if (!j || j->state != SCHED_JOB_PENDING)
        return SCHED_REASON_NONE;
    if (j->hold != SCHED_HOLD_NONE)
        return SCHED_REASON_HELD;
    if (!j->queued)
        return SCHED_REASON_BEGIN_TIME;
    if (j->reason)
        return (enum sched_reason)j->reason;
    if (j->since_pass == (uint32_t)w->last_pass.decided)
        return SCHED_REASON_NONE;
    if (j->optional)
        return optional_reason(w, j);
    enum sched_reason best = reason_of(w, sched_job_option(j, 0));
    for (uint32_t i = 1; i < sched_job_options(j); i++) {
        enum sched_reason other = reason_of(w, sched_job_option(j, i));
        if (waits_in_queue(other) || (!waits_in_queue(best) && other == SCHED_REASON_NODES))
            best = other;
    }
    return best;
}

enum sched_reason sched_option_reason(const struct world *cw, uint64_t id, uint32_t partition) {
    struct world *w = (struct world *)(uintptr_t)cw;
    const struct world_job *j = world_find(w, id);
    return j && j->queued ? reason_of(w, sched_job_option_in(j, partition)) : SCHED_REASON_NONE;
}

enum sched_reason sched_job_reason(const struct world *cw, uint64_t id) {
    struct world *w = (struct world *)(uintptr_t)cw;  // only caches change
    const struct world_job *j = world_find(w, id);
    enum sched_reason reason = reason_in_queue(w, j);
    if (!waits_in_queue(reason) || !w->rules.reservations.len || j->optional)
        return reason;
    bool blocked = true;
    for (uint32_t i = 0; i < sched_job_options(j) && blocked; i++)
        blocked = reservation_blocks(w, sched_job_option(j, i));
    return blocked ? SCHED_REASON_RESERVATION : reason;
}
