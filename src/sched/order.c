// Owns the order: a heap of projects, each a heap of requests. Inside a pass use only grows, so keys
// only get worse: a stale key is noticed when its owner comes to the top and is sifted down again.
#include "sched/order.h"

#include <assert.h>
#include <string.h>

#include "sched/turn.h"

static struct job *job_of(const struct turn *t) {
    return t->request->queue.at[t->at];
}

static int64_t turn_key(const struct order *o, const struct turn *t, int64_t load) {
    const struct request *r = t->request;
    if (o->shortest)
        return r->limit_ms == INT64_MAX ? NO_LIMIT_COUNTS_AS_MS : r->limit_ms;
    struct turn_parts parts;
    int64_t submit_ms = job_of(t)->submit_ms;
    turn_parts(o->p->policy, r, submit_ms, load, o->cost_capacity, o->p->now_ms, &parts);
    return turn_time(submit_ms, &parts);
}

static void turn_update(const struct order *o, struct turn *t) {
    t->load = o->p->policy->order == POLICY_ORDER_FAIR ? user_load(o->p->w, t->request, o->p->now_ms) : 0;
    t->key = turn_key(o, t, t->load);
}

static bool turn_before(const struct turn *a, const struct turn *b) {
    const struct request *x = a->request, *y = b->request;
    if (x->tier != y->tier)
        return x->tier > y->tier;
    if (x->priority != y->priority)
        return x->priority > y->priority;
    if (a->key != b->key)
        return a->key < b->key;
    const struct job *i = job_of(a), *j = job_of(b);
    return i->submit_ms != j->submit_ms ? i->submit_ms < j->submit_ms : i->id < j->id;
}

static void turn_sift(struct line *l, uint32_t i) {
    struct turn t = l->turns.at[i];
    for (uint32_t k; (k = 2 * i + 1) < l->turns.len; i = k) {
        if (k + 1 < l->turns.len && turn_before(&l->turns.at[k + 1], &l->turns.at[k]))
            k++;
        if (!turn_before(&l->turns.at[k], &t))
            break;
        l->turns.at[i] = l->turns.at[k];
    }
    l->turns.at[i] = t;
}

// Users' use may have grown since the keys were made.
static void line_settle(const struct order *o, struct line *l) {
    while (l->turns.len) {
        struct turn *t = &l->turns.at[0];
        if (o->p->policy->order != POLICY_ORDER_FAIR || o->shortest ||
            t->load == user_load(o->p->w, t->request, o->p->now_ms))
            return;
        turn_update(o, t);
        turn_sift(l, 0);
    }
}

static void line_update(const struct order *o, struct line *l) {
    line_settle(o, l);
    if (!l->turns.len)
        return;
    const struct request *r = l->turns.at[0].request;
    l->tier = r->tier;
    l->priority = r->priority;
    l->submit_ms = job_of(&l->turns.at[0])->submit_ms;
    if (!l->project)
        return;
    unsigned d = r->dim;
    const struct project *own = l->project;
    l->used = own->used[d];
    l->share = own->own_share[d];
    l->over_share = l->used >= l->share;
    for (const struct project *up = project_parent(o->p->w, own); up; up = project_parent(o->p->w, up)) {
        l->over_share |= up->tree_used[d] >= up->share[d];
        if ((__int128)up->tree_used[d] * l->share > (__int128)l->used * up->share[d]) {
            l->used = up->tree_used[d];  // the fullest level counts
            l->share = up->share[d];
        }
    }
    l->over_quota = own->quota[d] != SCHED_UNLIMITED
                        ? own->used[d] + r->amount > own->quota[d]
                        : true;
}

static bool line_before(const struct line *a, const struct line *b) {
    if (a->tier != b->tier)
        return a->tier > b->tier;
    if (a->over_share != b->over_share)
        return b->over_share;
    if (a->over_quota != b->over_quota)
        return b->over_quota;
    if (a->priority != b->priority)
        return a->priority > b->priority;
    __int128 x = (__int128)a->used * b->share, y = (__int128)b->used * a->share;
    if (x != y)
        return x < y;
    if (a->share != b->share && (!a->share || !b->share))
        return b->share == 0;
    if (a->submit_ms != b->submit_ms)
        return a->submit_ms < b->submit_ms;
    return a->project && b->project && a->project->id < b->project->id;
}

static void line_sift(struct order *o, uint32_t i) {
    struct line l = o->lines.at[i];
    for (uint32_t k; (k = 2 * i + 1) < o->lines.len; i = k) {
        if (k + 1 < o->lines.len && line_before(&o->lines.at[k + 1], &o->lines.at[k]))
            k++;
        if (!line_before(&o->lines.at[k], &l))
            break;
        o->lines.at[i] = o->lines.at[k];
    }
    o->lines.at[i] = l;
}

void order_projects(struct order *o) {
    for (uint32_t i = 0; i < o->lines.len; i++)
        line_update(o, &o->lines.at[i]);
    for (uint32_t i = o->lines.len / 2; i-- > 0;)
        line_sift(o, i);
}

void order_rebuild(struct order *o) {
    for (uint32_t i = 0; i < o->lines.len; i++) {
        struct line *l = &o->lines.at[i];
        for (uint32_t k = 0; k < l->turns.len; k++)
            turn_update(o, &l->turns.at[k]);
        for (uint32_t k = l->turns.len / 2; k-- > 0;)
            turn_sift(l, k);
    }
    order_projects(o);
}

void order_make(struct order *o, struct pass *p) {
    struct world *w = p->w;
    *o = (struct order){.p = p};
    o->cost_capacity = cost_capacity(w);
    struct line all = {0};
    bool fair = p->policy->order == POLICY_ORDER_FAIR;
    for (uint32_t i = 0; i < w->projects.len; i++) {
        struct project *project = w->projects.at[i];
        if (!project || !project->requests.len)
            continue;
        struct line own = {.project = project}, *l = fair ? &own : &all;
        vec_reserve(&l->turns, l->turns.len + project->requests.len);
        for (uint32_t k = 0; k < project->requests.len; k++) {
            struct request *r = project->requests.at[k];
            request_refresh(w, r);
            vec_push(&l->turns, (struct turn){.request = r, .at = r->head});
        }
        if (fair)
            vec_push(&o->lines, own);
    }
    if (all.turns.len)
        vec_push(&o->lines, all);
    order_rebuild(o);
}

static bool same_place(const struct line *a, const struct line *b) {
    return !line_before(a, b) && !line_before(b, a);
}

struct turn *order_next(struct order *o) {
    while (o->lines.len) {
        struct line *l = &o->lines.at[0];
        if (!l->turns.len) {
            vec_done(&l->turns);
            vec_remove_swap(&o->lines, 0);
            if (o->lines.len)
                line_sift(o, 0);
            continue;
        }
        if (o->lines.len == 1) {
            line_settle(o, l);
            return &l->turns.at[0];
        }
        struct line before = *l;
        line_update(o, l);
        if (same_place(&before, l))
            return &l->turns.at[0];
        line_sift(o, 0);
    }
    return NULL;
}

void order_started(struct order *o) {
    struct line *l = &o->lines.at[0];
    struct turn *t = &l->turns.at[0];
    if (++t->at == t->request->queue.len) {
        order_drop(o);
        return;
    }
    turn_update(o, t);
    turn_sift(l, 0);
}

void order_drop(struct order *o) {
    struct line *l = &o->lines.at[0];
    vec_remove_swap(&l->turns, 0);
    if (l->turns.len)
        turn_sift(l, 0);
}

void order_done(struct order *o) {
    for (uint32_t i = 0; i < o->lines.len; i++)
        vec_done(&o->lines.at[i].turns);
    vec_done(&o->lines);
}
