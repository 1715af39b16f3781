// Owns each project's turns: one slot per request that has jobs ready, and their order, kept from one
// pass to the next. Turns drift slowly against each other (users' use decays), so bringing the order
// up to date costs one look at each and the moving of a few.
#include <assert.h>

#include "order.h"

static_assert(sizeof(struct turn) == 64, "a pass looks at one for each request");

void turns_add(struct turns *t, struct request *r) {
    uint32_t slot = t->free ? t->free - 1 : t->slots.len;
    if (t->free)
        t->free = t->slots.at[slot].at;
    else
        vec_push(&t->slots, (struct turn){0});
    // a slot that was given up and taken again since the latest pass may be in the order still
    bool listed = t->slots.at[slot].stale;
    t->slots.at[slot] = (struct turn){.request = r, .stale = true};
    if (!listed)
        vec_push(&t->sorted, slot);
    r->project_slot = slot;
    t->count++;
}

void turns_remove(struct turns *t, struct request *r) {
    struct turn *at = &t->slots.at[r->project_slot];
    assert(at->request == r);
    *at = (struct turn){.at = t->free, .stale = true};  // stale: `sorted` names it until the next pass
    t->free = r->project_slot + 1;
    t->count--;
}

void turns_stale(struct project *p, struct request *r) {
    assert(p->turns.slots.at[r->project_slot].request == r);
    p->turns.slots.at[r->project_slot].stale = true;
}

void turns_done(struct turns *t) {
    vec_done(&t->slots);
    vec_done(&t->sorted);
}

static void refresh(const struct order *o, struct turn *t) {
    struct world *w = o->p->w;
    struct request *r = t->request;
    request_refresh(w, r);
    const struct qos *q = world_qos(w, r->asked.qos);
    int64_t submit_ms = r->queue.at[r->head]->submit_ms;
    struct turn_parts parts;
    turn_parts(w, o->p->policy, r, submit_ms, 0, 1, submit_ms, &parts);
    t->base = turn_time(submit_ms, &parts);
    t->limit_ms = r->limit_ms;
    t->fit = fit_class(w, r);
    t->user = r->user;
    t->tier = r->tier;
    t->priority = turn_class(w, o->p->policy, r);
    t->at = r->head;
    t->partition = (uint8_t)r->asked.partition;
    t->dim = r->dim;
    t->stale = false;
    t->use_free = r->fifo || o->p->policy->order == POLICY_ORDER_FCFS;
    t->special = !r->preemptible || (q && q->preempts.len);
    t->named = r->asked.reservation;
    t->nth = r->nth & OPTIONS_TOLD;
}

static void tally(struct order *o, const struct turn *t, struct line *l) {
    struct fit *f = t->fit;
    if (f->tally_pass != o->p->w->pass) {
        f->tally_pass = o->p->w->pass;
        f->any = t->request;
        f->left = 0;
        f->bit = 1ULL << (f->hash % 64);
        f->least_ms = INT64_MAX;
        f->named = false;
        vec_push(&o->p->classes, f);
    }
    f->left++;
    f->least_ms = t->limit_ms < f->least_ms ? t->limit_ms : f->least_ms;
    f->named |= t->named;
    l->classes |= f->bit;
    l->special |= t->special;
    l->dims |= 1U << t->dim;
    if (!o->listed[t->partition]) {
        o->listed[t->partition] = true;
        vec_push(&o->partitions, t->partition);
    }
    l->partitions |= 1ULL << (t->partition % 64);
}

static int by_turn(const void *pa, const void *pb, void *slots) {
    const struct turn *a = (const struct turn *)slots + *(const uint32_t *)pa,
                      *b = (const struct turn *)slots + *(const uint32_t *)pb;
    return turn_before(a, b) ? -1 : turn_before(b, a) ? 1 : 0;
}

// Both are sorted; `to` has room for all.
static void merge(const struct turn *slots, uint32_t *to, uint32_t kept, const uint32_t *moved, uint32_t count) {
    for (uint32_t at = kept + count; count > 0;) {
        bool old = kept && turn_before(&slots[moved[count - 1]], &slots[to[kept - 1]]);
        to[--at] = old ? to[--kept] : moved[--count];
    }
}

void turns_sort(struct order *o, struct project *p, struct line *l) {
    struct turns *t = &p->turns;
    const struct world *w = o->p->w;
    uint64_t version = w->config_version + w->turn_rules.version;  // both only grow
    bool all = t->version != version;
    t->version = version;
    struct turn *slots = t->slots.at;
    uint32_t kept = 0, n = t->sorted.len;
    uint32_t *sorted = t->sorted.at;
    vec_clear(&o->moved);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t slot = sorted[i];
        struct turn *at = &slots[slot];
        if (!at->request) {
            at->stale = false;  // out of the order now
            continue;
        }
        bool fresh = at->stale;
        if (fresh || all)
            refresh(o, at);
        at->key = turn_key(o, at);
        tally(o, at, l);
        if (fresh) {
            vec_push(&o->moved, slot);
        } else if (kept && turn_before(at, &slots[sorted[kept - 1]])) {
            vec_push(&o->moved, slot);  // one of the two is out of place
            vec_push(&o->moved, sorted[--kept]);
        } else {
            sorted[kept++] = slot;
        }
    }
    if (o->moved.len > 1)
        qsort_r(o->moved.at, o->moved.len, sizeof *o->moved.at, by_turn, slots);
    merge(slots, sorted, kept, o->moved.at, o->moved.len);
    t->sorted.len = kept + o->moved.len;
    assert(t->sorted.len == t->count);
}
