// Remembers who was preempted for whom, so that preemption ends.
//
// Definitions. When job V is preempted for job P, P is "above" V, by a step of the kind of P's claim: SHARE
// (strongest), QUOTA or BEYOND (enum sched_claim). A job is above another as well over several steps.
// Invariant. A job never preempts a job that is above it by steps of the kind it claims with, or stronger.
// Theorem. While no job ends by itself and no rule changes, there are finitely many preemptions.
// Proof. Take the graph of all jobs and steps. Its SHARE steps form no cycle: the last step of a cycle would
// preempt a job that is above by SHARE steps. Order the jobs by SHARE steps. SHARE and QUOTA steps together may
// form cycles, but inside a cycle no job preempts by QUOTA again, for the same reason; likewise for all three
// kinds. So order the strongly connected groups of all steps, inside a group those of SHARE and QUOTA, inside
// these the jobs by SHARE: every preemptor comes before its victims. Each preemption or start replaces the set
// of running jobs by one that is better from the top of that order, and there are finitely many sets.
// Example. Job 3 was preempted for job 2, and job 2 later for job 1, both by SHARE. Then 1 is above 2 and 3, and 2
// above 3. Job 3 may preempt others, but neither 2 nor 1; if it could preempt 1, a cycle of three would be closed
// and the three could replace each other for ever.
//
// A step no longer counts when what justified it is gone: the victim's project is due more than then, or the
// preemptor's less; one of the victim's project's jobs ended by itself; projects or QoS were changed.
// docs/decisions/preemption-ends.md has the reasons.
#include "preemption_order.h"

#include <string.h>

#include "pass.h"

struct preemption_list {
    uint32_t count;
    uint32_t slot;  // of its job in world_jobs.preempted
    struct sched_preemption by[];
};

static struct preemption_list *list_new(const struct sched_preemption *by, uint32_t count) {
    struct preemption_list *l = xmalloc(sizeof *l + count * sizeof *l->by);
    l->count = count;
    memcpy(l->by, by, count * sizeof *by);
    return l;
}

static void replace(struct world *w, struct world_job *j, struct preemption_list *new) {
    struct preemption_list *old = j->preempted_by;
    if (new)
        new->slot = old ? old->slot : w->jobs.preempted.len;
    if (new && !old)
        vec_push(&w->jobs.preempted, j);
    if (!new &&old) {
        vec_remove_swap(&w->jobs.preempted, old->slot);
        if (old->slot < w->jobs.preempted.len)
            w->jobs.preempted.at[old->slot]->preempted_by->slot = old->slot;
    }
    free(old);
    j->preempted_by = new;
}

void sched_preemptions_forget(struct world *w, struct world_job *j) {
    replace(w, j, NULL);
}

void world_preemptions_forget(struct world *w) {
    while (w->jobs.preempted.len)
        sched_preemptions_forget(w, w->jobs.preempted.at[w->jobs.preempted.len - 1]);
}

void sched_preemptions_lapse(struct world *w, uint32_t project) {
    for (uint32_t i = w->jobs.preempted.len; i-- > 0;)
        if (w->jobs.preempted.at[i]->request->asked.project == project)
            sched_preemptions_forget(w, w->jobs.preempted.at[i]);
}

// Preemptors that ended meanwhile are dropped here, so a list is never longer than the number of jobs.
// A second preemption for the same job by the same claim counts whatever becomes of the shares: a job can
// hold more than it asked for (an exclusive node), so shares may go up and down as the two replace each other.
void sched_preemption_record(struct world *w, struct world_job *j, const struct sched_preemption *new) {
    struct sched_preemption last = *new;
    VEC(struct sched_preemption) all = {0};
    for (uint32_t i = 0; j->preempted_by && i < j->preempted_by->count; i++) {
        const struct sched_preemption *g = &j->preempted_by->by[i];
        if (g->by == new->by && g->claim == new->claim) {
            last.share = INT64_MAX;
            last.by_share = 0;
        } else if (world_find(w, g->by)) {
            vec_push(&all, *g);
        }
    }
    vec_push(&all, last);
    replace(w, j, list_new(all.at, all.len));
    vec_done(&all);
}

struct sched_preemption *world_job_preemptions(const struct world *w, uint64_t id, uint32_t *count) {
    const struct world_job *j = world_find(w, id);
    *count = j && j->preempted_by ? j->preempted_by->count : 0;
    return *count ? xmemdup(j->preempted_by->by, *count * sizeof *j->preempted_by->by) : NULL;
}

void world_job_preemptions_set(struct world *w, uint64_t id, const struct sched_preemption *by, uint32_t count) {
    struct world_job *j = world_find(w, id);
    if (j)
        replace(w, j, count ? list_new(by, count) : NULL);
}

// --- which jobs are above one ---

struct preemption_search {
    struct sched_pass *p;
    enum sched_claim up_to;  // follows steps of this kind and stronger ones
    VEC(struct world_job *) found;
};

static int64_t share_of(struct world *w, const struct world_job *j) {
    return world_project_slot(w, j->request->asked.project)->own_share[sched_request_dim(w, j->request)];
}

struct sched_preemption sched_preemption_grounds(struct world *w, const struct world_job *victim,
                                                 const struct world_job *preemptor, enum sched_claim claim) {
    return (struct sched_preemption){
        .by = preemptor->id, .share = share_of(w, victim), .by_share = share_of(w, preemptor), .claim = claim};
}

// Follows one step from its victim (NULL: the start of the search) to its preemptor.
static void follow(struct preemption_search *s, const struct world_job *from, const struct sched_preemption *g) {
    struct world *w = s->p->w;
    struct world_job *j = world_find(w, g->by);
    if (!j || g->claim > s->up_to || map_get(&s->p->above, j->id))
        return;
    if (from && (share_of(w, from) > g->share || share_of(w, j) < g->by_share))
        return;  // what justified the step is gone
    map_put(&s->p->above, j->id, (void *)(uintptr_t)(1 + s->up_to));
    vec_push(&s->found, j);
}

// Follows all steps from the jobs found so far, including those this pass decided on.
static void follow_all(struct preemption_search *s) {
    const struct sched_decisions *d = s->p->out;
    for (uint32_t i = 0; i < s->found.len; i++) {
        const struct world_job *j = s->found.at[i];
        for (uint32_t k = 0; j->preempted_by && k < j->preempted_by->count; k++)
            follow(s, j, &j->preempted_by->by[k]);
        bool victim = j->state != SCHED_JOB_PENDING && pass_is_victim(s->p, j);
        for (uint32_t k = 0; victim && k < d->preempts.len; k++)
            if (d->preempts.at[k].victim == j->id)
                follow(s, j, &d->preempts.at[k].grounds);
    }
}

// Searches with the strongest kind of steps first: a job's entry in `above` is the strongest kind that reaches it.
bool sched_preemption_find_above(struct sched_pass *p, const struct world_job *preemptor) {
    if (!preemptor->preempted_by)
        return false;
    struct preemption_search s = {.p = p};
    map_done(&p->above);
    follow(&s, NULL, &(struct sched_preemption){.by = preemptor->id});
    for (; s.up_to < SCHED_CLAIM_COUNT; s.up_to++)
        follow_all(&s);
    vec_done(&s.found);
    return true;
}
