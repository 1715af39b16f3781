// Planned starts are promises. A job that was given one keeps it from pass to pass, with the nodes that are kept for
// it, until it has started; others get no planned start in its stead, whatever their order.
//
// Invariant: a planned start only moves earlier, except for one of the reasons in enum sched_plan_late. Why it holds:
// on a node that is kept, another job starts only if it ends before, or if the planned part still fits then
// (sched_plan_allows); limits of projects and QoS leave room for the planned job (sched_commitments_allow). So the
// nodes that were kept fit it at the planned time as long as they are there and every job ends by its limit. In each
// pass an earlier time is looked for; if there is none, time and nodes stay.
//
// A project that is below its share may start a job on nodes that are kept for a job of a project that is not: shares
// come before the order of submission, and it could preempt for the same place.
#include "commitment.h"

#include <errno.h>
#include <string.h>

#include "place.h"
#include "plan.h"
#include "tentative.h"

static uint64_t rules_version(const struct world *w) {
    return w->version.config + w->version.limits;
}

struct commitment *sched_commitment_of(const struct sched_pass *p, const struct world_job *j) {
    for (uint32_t i = 0; i < p->commitments.len; i++)
        if (p->commitments.at[i].job == j)
            return &p->commitments.at[i];
    return NULL;
}

bool sched_commitments_of_request(const struct sched_pass *p, const struct world_request *r) {
    for (uint32_t i = 0; i < p->commitments.len; i++)
        if (p->commitments.at[i].request == r && !p->commitments.at[i].job->alloc)
            return true;
    return false;
}

// --- shares and limits ---

static bool below_share(const struct world *w, const struct world_request *r) {
    const struct world_project *p = world_project(w, r->asked.project);
    if (!p || p->used[r->dim] >= p->own_share[r->dim])
        return false;
    for (p = sched_project_parent(w, p); p; p = sched_project_parent(w, p))
        if (p->tree_used[r->dim] >= p->share[r->dim])
            return false;
    return true;
}

bool sched_commitment_yields(const struct sched_pass *p, const struct world_request *r,
                             const struct world_job *j) {
    const struct commitment *c = sched_commitment_of(p, j);
    return c && p->policy->order == POLICY_ORDER_FAIR && c->request->asked.project != r->asked.project &&
           below_share(p->w, r) && !below_share(p->w, c->request);
}

// Counts a job of the request as if it ran, or takes that back.
static void count_as_used(struct world *w, const struct world_request *r, int sign) {
    int64_t held[DIMS_MAX];
    for (unsigned d = 0; d < w->cluster.dims; d++)
        held[d] = sched_request_amount(w, r, d);
    sched_project_use(w, world_project_slot(w, r->asked.project), held, !r->preemptible, sign);
    struct world_qos *q = world_qos(w, r->asked.qos);
    if (q)
        q->used_gpu_milli += (uint64_t)(sign * (int64_t)r->gpu_milli);
    r->qos_user->jobs += (uint32_t)sign;
    r->qos_user->gpu_milli += (uint64_t)(sign * (int64_t)r->gpu_milli);
    r->qos_user->cpus += (uint64_t)(sign * (int64_t)sched_request_cpus(r));
}

// Is there a limit that counts both?
static bool share_limits(const struct world *w, const struct world_request *a,
                         const struct world_request *b) {
    if (a->asked.qos && a->asked.qos == b->asked.qos)
        return true;
    for (const struct world_project *x = world_project(w, a->asked.project); x;
         x = sched_project_parent(w, x))
        for (const struct world_project *y = world_project(w, b->asked.project); y;
             y = sched_project_parent(w, y))
            if (x == y)
                return true;
    return false;
}

bool sched_commitments_allow(struct sched_pass *p, const struct world_request *r) {
    for (uint32_t i = 0; i < p->commitments.len; i++) {
        const struct commitment *c = &p->commitments.at[i];
        if (c->job->alloc || sched_plan_later(p->now_ms, r->limit_ms) <= c->start_ms ||
            !share_limits(p->w, r, c->request) || sched_commitment_yields(p, r, c->job))
            continue;
        if (sched_eligibility(p, c->request))
            return false;  // jobs that end before its start use all that the limit allows
        count_as_used(p->w, r, 1);
        bool fine = !sched_eligibility(p, c->request);
        count_as_used(p->w, r, -1);
        if (!fine)
            return false;
    }
    return true;
}

bool sched_commitments_leave_room(struct sched_pass *p, const struct world_request *r) {
    for (uint32_t i = 0; i < p->commitments.len; i++)
        if (!p->commitments.at[i].job->alloc)
            count_as_used(p->w, p->commitments.at[i].request, 1);
    bool fine = !sched_eligibility(p, r);
    for (uint32_t i = 0; i < p->commitments.len; i++)
        if (!p->commitments.at[i].job->alloc)
            count_as_used(p->w, p->commitments.at[i].request, -1);
    return fine;
}

// --- nodes ---

// The request of one part of a job with several.
static const struct world_request *piece(const struct world_request *r, uint32_t i) {
    return i ? r->parts.at[i - 1] : r;
}

static bool node_is_there(const struct world *w, const struct world_request *r, uint32_t id) {
    const struct world_node *n = id < w->cluster.nodes.len ? w->cluster.nodes.at[id] : NULL;
    return n && n->present && n->state == SCHED_NODE_UP && sched_request_node_allowed(w, r, n);
}

static bool nodes_are_there(const struct world *w, const struct world_request *r,
                            const struct world_plan *plan) {
    for (uint32_t i = 0; i < plan->part_count; i++) {
        const struct sched_plan_part *part = &plan->parts[i];
        if (part->piece > r->parts.len || !node_is_there(w, piece(r, part->piece), part->node))
            return false;
    }
    return true;
}

static bool keep_known_nodes(struct sched_pass *p, struct commitment *c, const struct world_plan *plan) {
    if (!nodes_are_there(p->w, c->request, plan))
        return false;
    for (uint32_t i = 0; i < plan->part_count; i++)
        sched_plan_keep_part(p, c->job, piece(c->request, plan->parts[i].piece), plan->parts[i].node,
                             plan->parts[i].tasks, plan->start_ms);
    return plan->part_count > 0;
}

static void keep_allocation(struct sched_pass *p, struct commitment *c, const struct sched_alloc *a) {
    for (uint32_t i = 0; i < a->piece_count; i++)
        for (uint32_t k = 0; k < a->pieces[i]->node_count; k++)
            sched_plan_keep_part(p, c->job, piece(c->request, i), a->pieces[i]->nodes[k].node,
                                 a->pieces[i]->nodes[k].tasks, p->now_ms);
    for (uint32_t i = 0; !a->piece_count && i < a->node_count; i++)
        sched_plan_keep_part(p, c->job, c->request, a->nodes[i].node, a->nodes[i].tasks, p->now_ms);
}

static bool some_job_overran(const struct sched_pass *p) {
    sched_by_end_merge(p->w);
    return p->w->orders.by_end.sorted.len && sched_job_end_ms(p->w->orders.by_end.sorted.at[0]) <= p->now_ms;
}

// Why the job cannot start when it was to.
static enum sched_plan_late why_later(const struct sched_pass *p, const struct commitment *c,
                                      const struct world_plan *plan) {
    if (!c->nodes_kept && (plan->part_count || !(c->claimed_by || p->preempting)))
        return SCHED_PLAN_NODES;
    if (plan->version != rules_version(p->w))
        return SCHED_PLAN_RULES;
    return p->preempting || (c->claimed_by && !some_job_overran(p)) ? SCHED_PLAN_SHARE : SCHED_PLAN_OVERRUN;
}

// Is there a waiting job of another project that may have the place instead?
static bool may_be_claimed(const struct sched_pass *p, const struct commitment *c) {
    const struct world *w = p->w;
    if (p->policy->order != POLICY_ORDER_FAIR || below_share(w, c->request))
        return false;
    for (uint32_t i = 0; i < w->rules.projects.len; i++) {
        const struct world_project *other = w->rules.projects.at[i];
        if (!other || !other->queue.count || i == c->request->asked.project)
            continue;
        for (unsigned d = 0; d < w->cluster.dims; d++)
            if (other->used[d] < other->own_share[d])
                return true;
    }
    return false;
}

// It starts at once; or, where projects below their shares come first, when its turn comes.
static void fits_now(struct sched_pass *p, struct commitment *c, struct sched_alloc *a) {
    c->now = true;
    if (!may_be_claimed(p, c)) {
        sched_tentative_start(p, c->job, c->request, a, false);
        p->served = true;
        return;
    }
    keep_allocation(p, c, a);
    sched_alloc_free(a);
}

// Looks for the earliest start. The nodes that were kept stay kept unless there is an earlier one, or they do not
// fit any more.
static bool settle(struct sched_pass *p, struct commitment *c) {
    const struct world_plan *plan = c->job->plan;
    bool fits = c->nodes_kept && plan->start_ms > p->now_ms &&
                sched_plan_still_fits(p, c->job, c->request, plan->start_ms);
    p->placing = c->job;
    bool limited = sched_eligibility(p, c->request);
    struct sched_alloc *a = limited ? NULL : sched_place(p, c->request);
    if (limited && fits) {
        c->start_ms = plan->start_ms;
    } else if (a) {
        sched_plan_drop_parts(p, c->job);
        c->start_ms = p->now_ms;
        fits_now(p, c, a);
    } else {
        int64_t at_ms = sched_plan_search(p, c->job, c->request, fits ? plan->start_ms : INT64_MAX);
        if (at_ms < INT64_MAX)
            c->start_ms = at_ms;
        else if (!fits)
            c->start_ms = INT64_MAX;  // never, as things are
    }
    p->placing = NULL;
    if (c->start_ms == INT64_MAX)
        return false;
    if (c->start_ms > plan->start_ms && !c->now) {
        c->why = why_later(p, c, plan);
        c->claimed_by = 0;
    } else if (c->start_ms <= c->was_ms) {
        c->why = SCHED_PLAN_IN_TIME;
    }
    c->was_ms = c->start_ms < c->was_ms ? c->start_ms : c->was_ms;
    return true;
}

// A limit that other jobs have reached now, and will be below again when they end before the planned start.
static bool is_limit(enum sched_reason reason) {
    return reason == SCHED_REASON_QOS_LIMIT || reason == SCHED_REASON_PROJECT_LIMIT ||
           reason == SCHED_REASON_QUOTA;
}

static bool still_committed(struct sched_pass *p, struct world_job *j, struct world_request *r) {
    if (j->alloc || (p->earmarked.len && map_get(&p->earmarked, j->id)))
        return false;
    enum sched_reason reason = sched_eligibility(p, r);
    if (reason && !(is_limit(reason) && j->plan->start_ms > p->now_ms))
        return false;
    return !sched_pass_strict(p, r) && p->policy->plan_depth &&
           sched_fits_when_idle(p->w, sched_fit_of(p->w, r));
}

void sched_commitments_begin(struct sched_pass *p) {
    struct world *w = p->w;
    for (uint32_t i = 0; i < w->jobs.planned.len; i++) {
        struct world_job *j = world_find(w, w->jobs.planned.at[i]);
        if (!j || !j->plan || !j->queued)
            continue;
        struct world_request *r = sched_job_option_in(j, j->plan->partition);
        sched_request_refresh(w, r);
        if (!still_committed(p, j, r))
            continue;
        p->plans[r->asked.partition]++;
        struct commitment c = {.job = j,
                               .request = r,
                               .start_ms = j->plan->start_ms,
                               .was_ms = j->plan->was_ms,
                               .why = j->plan->why,
                               .claimed_by = j->plan->claimed_by};
        c.nodes_kept = keep_known_nodes(p, &c, j->plan);
        vec_push(&p->commitments, c);
    }
    // All nodes are kept before the first is looked at: who moves earlier stays off the others' nodes.
    for (uint32_t i = 0; i < p->commitments.len; i++) {
        struct commitment *c = &p->commitments.at[i];
        bool kept = settle(p, c) && !c->job->alloc;
        if (kept)
            sched_plan_note(p, c->job, c->request);
        if (!kept || c->now)
            p->plans[c->request->asked.partition]--;
        if (kept)
            continue;
        sched_plan_drop_parts(p, c->job);
        vec_remove(&p->commitments, i--);
    }
}

void sched_commitments_claimed(struct sched_pass *p, const struct world_job *j,
                               const struct world_request *r) {
    for (uint32_t i = 0; i < p->commitments.len; i++) {
        struct commitment *c = &p->commitments.at[i];
        if (c->job != j && !c->job->alloc && sched_commitment_yields(p, r, c->job))
            c->claimed_by = j->id;
    }
}

// Where the job did not start after all, nodes stay kept until the pass ends: in a pass free room may only shrink,
// which fit classes rely on. Another pass right away gives it to others.
void sched_commitment_started(struct sched_pass *p, const struct world_job *j) {
    if (!sched_commitment_of(p, j))
        return;
    for (uint32_t i = 0; i < p->parts.len; i++)
        for (uint32_t k = 0; p->parts.at[i].job == j && k < j->alloc->node_count; k++)
            if (j->alloc->nodes[k].node == p->parts.at[i].node) {
                p->parts.at[i].job = NULL;
                p->parts.at[i].from_ms = INT64_MAX;
            }
    p->out->next_ms = p->now_ms;
}

void sched_commitment_add(struct sched_pass *p, struct world_job *j, struct world_request *r,
                          int64_t start_ms) {
    struct commitment c = {
        .job = j, .request = r, .start_ms = start_ms, .was_ms = start_ms, .nodes_kept = true};
    // It had one, but there was no place for it any more.
    if (j->plan && j->plan->was_ms < start_ms) {
        c.was_ms = j->plan->was_ms;
        c.nodes_kept = nodes_are_there(p->w, sched_job_option_in(j, j->plan->partition), j->plan);
        c.why = start_ms > j->plan->start_ms ? why_later(p, &c, j->plan) : j->plan->why;
    }
    vec_push(&p->commitments, c);
}

static struct sched_plan_part *copy_parts(const struct sched_pass *p, const struct commitment *c,
                                          uint32_t *count) {
    VEC(struct sched_plan_part) parts = {0};
    for (uint32_t i = 0; i < p->parts.len; i++) {
        const struct planned_part *part = &p->parts.at[i];
        uint32_t k = 0;
        while (part->job == c->job && piece(c->request, k) != part->request)
            k++;
        if (part->job == c->job)
            vec_push(&parts, (struct sched_plan_part){part->node, part->tasks, k});
    }
    *count = parts.len;
    return parts.at;
}

static uint32_t more_nodes(const struct world_request *r) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < r->parts.len; i++)
        sum += r->parts.at[i]->demand.nodes_min;
    return sum;
}

// The planned starts of this pass, in the order in which they were made.
void sched_commitments_report(struct sched_pass *p) {
    for (uint32_t i = 0; i < p->commitments.len; i++) {
        struct commitment *c = &p->commitments.at[i];
        if (c->job->alloc || c->job->reason == SCHED_REASON_PREEMPTING)
            continue;
        struct sched_plan plan = {.job = c->job->id,
                                  .start_ms = c->start_ms,
                                  .was_ms = c->was_ms,
                                  .why = c->why,
                                  .claimed_by = c->claimed_by,
                                  .partition = c->request->asked.partition,
                                  .node_count = c->request->demand.nodes_min + more_nodes(c->request)};
        if (c->now) {  // it could have started, but for a job of a project below its share
            bool late = c->job->plan->start_ms <= p->now_ms;
            plan.start_ms = late ? p->now_ms : c->job->plan->start_ms;
            plan.why = late ? SCHED_PLAN_SHARE : c->why;
            if (!plan.claimed_by && p->out->preempts.len)
                plan.claimed_by = p->out->preempts.at[0].for_job;
        } else
            plan.parts = copy_parts(p, c, &plan.part_count);
        vec_push(&p->out->plans, plan);
    }
}

// --- between passes ---

void world_plans_keep(struct world *w, const struct sched_decisions *d) {
    for (uint32_t i = 0; i < w->jobs.planned.len; i++) {
        struct world_job *j = world_find(w, w->jobs.planned.at[i]);
        if (!j)
            continue;
        free(j->plan);
        j->plan = NULL;
    }
    vec_clear(&w->jobs.planned);
    for (uint32_t i = 0; i < d->plans.len; i++)
        world_job_plan(w, &d->plans.at[i]);
}

int world_job_plan(struct world *w, const struct sched_plan *plan) {
    struct world_job *j = world_find(w, plan->job);
    if (!j || j->state != SCHED_JOB_PENDING)
        return -ENOENT;
    if (!j->plan)
        vec_push(&w->jobs.planned, j->id);
    free(j->plan);
    j->plan = xcalloc(1, sizeof *j->plan + plan->part_count * sizeof *plan->parts);
    *j->plan = (struct world_plan){.start_ms = plan->start_ms,
                                   .was_ms = plan->was_ms,
                                   .why = plan->why,
                                   .claimed_by = plan->claimed_by,
                                   .version = rules_version(w),
                                   .partition = plan->partition,
                                   .part_count = plan->part_count};
    if (plan->part_count)
        memcpy(j->plan->parts, plan->parts, plan->part_count * sizeof *plan->parts);
    return 0;
}

bool world_job_planned(const struct world *w, uint64_t job, struct sched_plan *out) {
    const struct world_job *j = world_find(w, job);
    if (!j || !j->plan)
        return false;
    *out = (struct sched_plan){.job = job,
                               .start_ms = j->plan->start_ms,
                               .was_ms = j->plan->was_ms,
                               .why = j->plan->why,
                               .claimed_by = j->plan->claimed_by,
                               .partition = j->plan->partition,
                               .parts = j->plan->parts,
                               .part_count = j->plan->part_count};
    return true;
}

const char *sched_plan_late_word(enum sched_plan_late why) {
    static const char *const WORDS[] = {"", "node", "rules", "share", "overrun"};
    return why < sizeof WORDS / sizeof *WORDS ? WORDS[why] : "";
}
