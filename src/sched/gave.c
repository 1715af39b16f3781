// Owns who made room for whom. "A gave way to B" puts B above A while both are there. Who takes what is
// its project's due (share, quota, rank of a QoS) takes from nobody above itself by steps of that kind; who
// takes more than that, from nobody above itself by steps of any kind. So there is always one order of all
// jobs in which every taker is before its victims: first by groups that only dues can join in a circle,
// inside them by dues, which never make one. As starts on free room take nothing from anybody, preemption
// ends. A step counts no more when the one's project is due more than then, or the other's less; it all
// begins anew for a project's jobs when one of them ends by itself, for all when rules are changed.
#include <string.h>

#include "sched/pass.h"

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
        if (g->to == new->to && g->beyond == new->beyond) {
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
    bool dues;  // only by steps of that kind
    VEC(struct job *) found;
};

static int64_t share_of(struct world *w, const struct job *j) {
    return world_project_slot(w, j->request->asked.project)->own_share[j->request->dim];
}

struct sched_gave gave_grounds(struct world *w, const struct job *victim, const struct job *taker, bool beyond) {
    return (struct sched_gave){.to = taker->id, .share = share_of(w, victim), .to_share = share_of(w, taker),
                               .beyond = beyond};
}

// From one that made room (NULL: the first).
static void reach(struct search *s, const struct job *from, const struct sched_gave *g) {
    struct world *w = s->p->w;
    struct job *j = world_find(w, g->to);
    if (!j || (g->beyond && s->dues) || (s->dues ? j->above_due : j->above) == w->above)
        return;
    if (from && (share_of(w, from) > g->share || share_of(w, j) < g->to_share))
        return;
    *(s->dues ? &j->above_due : &j->above) = w->above;
    vec_push(&s->found, j);
}

// Also by what this pass decided: its victims are below their takers from now on.
static void spread(struct search *s, uint64_t from) {
    const struct decisions *d = s->p->out;
    vec_clear(&s->found);
    reach(s, NULL, &(struct sched_gave){.to = from});
    for (uint32_t i = 0; i < s->found.len; i++) {
        const struct job *j = s->found.at[i];
        for (uint32_t k = 0; j->gave && k < j->gave->count; k++)
            reach(s, j, &j->gave->to[k]);
        for (uint32_t k = 0; j->vacating && k < d->preempts.len; k++)
            if (d->preempts.at[k].victim == j->id)
                reach(s, j, &d->preempts.at[k].gave);
    }
}

uint32_t gave_above(struct pass *p, const struct job *taker) {
    struct world *w = p->w;
    if (!taker->gave)
        return 0;
    struct search s = {.p = p, .dues = true};
    w->above = w->above == UINT32_MAX ? 1 : w->above + 1;
    spread(&s, taker->id);
    s.dues = false;
    spread(&s, taker->id);
    vec_done(&s.found);
    return w->above;
}
