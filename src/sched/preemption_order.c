// Owns who made room for whom. "A gave way to B" puts B above A while both are there, by a step of the kind
// of claim it was. Nobody takes from a job above itself by steps of the kind it claims by now or of stronger
// ones. So there is always one order of all jobs in which every taker is before its victims: by groups that
// all steps join in circles, inside them by groups that all but the weakest do, and so on; the strongest make
// none. As starts on free room take nothing from anybody, preemption ends. A step counts no more when the
// one's project is due more than then, or the other's less; it all begins anew for a project's jobs when one
// of them ends by itself, for all when rules are changed.
#include <string.h>

#include "pass.h"

struct gave {
    uint32_t count, slot;  // slot: of its job in world.gave
    struct sched_gave to[];
};

static struct gave *list(const struct sched_gave *to, uint32_t count) {
    struct gave *g = xmalloc(sizeof *g + count * sizeof *g->to);
    g->count = count;
    memcpy(g->to, to, count * sizeof *to);
    return g;
}

static void replace(struct world *w, struct job *j, struct gave *g) {
    struct gave *old = j->gave;
    if (g)
        g->slot = old ? old->slot : w->gave.len;
    if (g && !old)
        vec_push(&w->gave, j);
    if (!g && old) {
        vec_remove_swap(&w->gave, old->slot);
        if (old->slot < w->gave.len)
            w->gave.at[old->slot]->gave->slot = old->slot;
    }
    free(old);
    j->gave = g;
}

void gave_forget(struct world *w, struct job *j) {
    replace(w, j, NULL);
}

void world_gave_forget(struct world *w) {
    while (w->gave.len)
        gave_forget(w, w->gave.at[w->gave.len - 1]);
}

void gave_lapse(struct world *w, uint32_t project) {
    for (uint32_t i = w->gave.len; i-- > 0;)
        if (w->gave.at[i]->request->asked.project == project)
            gave_forget(w, w->gave.at[i]);
}

// Those that ended meanwhile go when the next comes, so the list is no longer than the jobs there are.
// The second time to the same job counts whatever becomes of shares: what a job holds can differ from what
// it asked for, so they may go up and down as the two take turns.
void gave_note(struct world *w, struct job *j, const struct sched_gave *new) {
    struct sched_gave last = *new;
    VEC(struct sched_gave) all = {0};
    for (uint32_t i = 0; j->gave && i < j->gave->count; i++) {
        const struct sched_gave *g = &j->gave->to[i];
        if (g->to == new->to && g->claim == new->claim) {
            last.share = INT64_MAX;
            last.to_share = 0;
        } else if (world_find(w, g->to)) {
            vec_push(&all, *g);
        }
    }
    vec_push(&all, last);
    replace(w, j, list(all.at, all.len));
    vec_done(&all);
}

struct sched_gave *world_job_gave(const struct world *w, uint64_t id, uint32_t *count) {
    const struct job *j = world_find(w, id);
    *count = j && j->gave ? j->gave->count : 0;
    return *count ? xmemdup(j->gave->to, *count * sizeof *j->gave->to) : NULL;
}

void world_job_gave_set(struct world *w, uint64_t id, const struct sched_gave *to, uint32_t count) {
    struct job *j = world_find(w, id);
    if (j)
        replace(w, j, count ? list(to, count) : NULL);
}

// --- who is above ---

struct search {
    struct pass *p;
    enum sched_claim up_to;  // by steps of this kind or stronger
    VEC(struct job *) found;
};

static int64_t share_of(struct world *w, const struct job *j) {
    return world_project_slot(w, j->request->asked.project)->own_share[j->request->dim];
}

struct sched_gave gave_grounds(struct world *w, const struct job *victim, const struct job *taker,
                               enum sched_claim claim) {
    return (struct sched_gave){.to = taker->id, .share = share_of(w, victim), .to_share = share_of(w, taker),
                               .claim = claim};
}

// From one that made room (NULL: the first).
static void reach(struct search *s, const struct job *from, const struct sched_gave *g) {
    struct world *w = s->p->w;
    struct job *j = world_find(w, g->to);
    if (!j || g->claim > s->up_to || map_get(&s->p->above, j->id))
        return;
    if (from && (share_of(w, from) > g->share || share_of(w, j) < g->to_share))
        return;
    map_put(&s->p->above, j->id, (void *)(uintptr_t)(1 + s->up_to));
    vec_push(&s->found, j);
}

// Also by what this pass decided: its victims are below their takers from now on.
static void spread(struct search *s) {
    const struct decisions *d = s->p->out;
    for (uint32_t i = 0; i < s->found.len; i++) {
        const struct job *j = s->found.at[i];
        for (uint32_t k = 0; j->gave && k < j->gave->count; k++)
            reach(s, j, &j->gave->to[k]);
        for (uint32_t k = 0; j->vacating && k < d->preempts.len; k++)
            if (d->preempts.at[k].victim == j->id)
                reach(s, j, &d->preempts.at[k].gave);
    }
}

bool gave_above(struct pass *p, const struct job *taker) {
    if (!taker->gave)
        return false;
    struct search s = {.p = p};
    map_done(&p->above);
    reach(&s, NULL, &(struct sched_gave){.to = taker->id});
    for (; s.up_to < SCHED_CLAIM_COUNT; s.up_to++)
        spread(&s);
    vec_done(&s.found);
    return true;
}
