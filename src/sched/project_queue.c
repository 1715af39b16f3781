// Each project's queue: one entry per request that has jobs ready, kept sorted from one pass to the next.
// Keys drift slowly against each other (users' usage decays), so bringing the order up to date takes one
// look at each entry and moving a few.
#include <assert.h>

#include "order.h"

static_assert(sizeof(struct queue_entry) == 64, "a pass reads one per request: keep it in one cache line");

void sched_project_queue_add(struct project_queue *q, struct world_request *r) {
    uint32_t slot = q->free ? q->free - 1 : q->slots.len;
    if (q->free)
        q->free = q->slots.at[slot].at;
    else
        vec_push(&q->slots, (struct queue_entry){0});
    // A slot that was freed and used again since the latest pass may be in `sorted` still.
    bool listed = q->slots.at[slot].stale;
    q->slots.at[slot] = (struct queue_entry){.request = r, .stale = true};
    if (!listed)
        vec_push(&q->sorted, slot);
    r->project_slot = slot;
    q->count++;
}

void sched_project_queue_remove(struct project_queue *q, struct world_request *r) {
    struct queue_entry *at = &q->slots.at[r->project_slot];
    assert(at->request == r);
    *at = (struct queue_entry){.at = q->free, .stale = true};  // stale: it is in `sorted` until the next pass
    q->free = r->project_slot + 1;
    q->count--;
}

void sched_project_queue_stale(struct world_project *p, struct world_request *r) {
    assert(p->queue.slots.at[r->project_slot].request == r);
    p->queue.slots.at[r->project_slot].stale = true;
}

void sched_project_queue_done(struct project_queue *q) {
    vec_done(&q->slots);
    vec_done(&q->sorted);
}

static void refresh(const struct sched_order *o, struct queue_entry *t) {
    struct world *w = o->p->w;
    struct world_request *r = t->request;
    sched_request_refresh(w, r);
    const struct world_qos *q = world_qos(w, r->asked.qos);
    int64_t submit_ms = job_queue_at(&r->queue, 0)->submit_ms;
    struct queue_time_parts parts;
    sched_queue_time_parts(w, o->p->policy, r, submit_ms, 0, 1, submit_ms, &parts);
    t->base = sched_queue_time(submit_ms, &parts);
    t->limit_ms = r->limit_ms;
    t->fit = sched_fit_class(w, r);
    t->user = r->user;
    t->tier = r->tier;
    t->priority = sched_queue_priority(w, o->p->policy, r);
    t->at = 0;
    t->partition = (uint8_t)r->asked.partition;
    t->dim = r->dim;
    t->stale = false;
    t->ignores_use = r->fifo || o->p->policy->order == POLICY_ORDER_FCFS;
    t->may_preempt = !r->preemptible || (q && q->preempts.len);
    t->named = r->asked.reservation;
    t->nth = r->nth & OPTIONS_ORDERED;
}

// Adds the entry to what its fit class and its project have in common.
static void tally(struct sched_order *o, const struct queue_entry *t, struct order_project *l) {
    struct sched_fit *f = t->fit;
    if (f->tally_pass != o->p->w->last_pass.number) {
        f->tally_pass = o->p->w->last_pass.number;
        f->any = t->request;
        f->left = 0;
        f->bit = 1ULL << (f->hash % 64);
        f->least_ms = INT64_MAX;
        f->named = false;
        vec_push(&o->p->classes, f);
    }
    f->left++;
    int64_t time_min_ms = t->request->asked.time_min_ms,
            least_ms = time_min_ms && time_min_ms < t->limit_ms ? time_min_ms : t->limit_ms;
    f->least_ms = least_ms < f->least_ms ? least_ms : f->least_ms;
    f->named |= t->named;
    l->classes |= f->bit;
    l->may_preempt |= t->may_preempt;
    l->dims |= 1U << t->dim;
    if (!o->listed[t->partition]) {
        o->listed[t->partition] = true;
        vec_push(&o->partitions, t->partition);
    }
    l->partitions |= 1ULL << (t->partition % 64);
}

static int by_turn(const void *pa, const void *pb, void *slots) {
    const struct queue_entry *a = (const struct queue_entry *)slots + *(const uint32_t *)pa,
                             *b = (const struct queue_entry *)slots + *(const uint32_t *)pb;
    return sched_queue_entry_before(a, b) ? -1 : sched_queue_entry_before(b, a) ? 1 : 0;
}

// Both are sorted; `to` has room for all.
static void merge(const struct queue_entry *slots, uint32_t *to, uint32_t kept, const uint32_t *moved,
                  uint32_t count) {
    for (uint32_t at = kept + count; count > 0;) {
        bool old = kept && sched_queue_entry_before(&slots[moved[count - 1]], &slots[to[kept - 1]]);
        to[--at] = old ? to[--kept] : moved[--count];
    }
}

void sched_project_queue_sort(struct sched_order *o, struct world_project *p, struct order_project *l) {
    struct project_queue *q = &p->queue;
    const struct world *w = o->p->w;
    uint64_t version = w->version.config + w->queue_rules.version;  // both only grow
    bool all = q->version != version;
    q->version = version;
    struct queue_entry *slots = q->slots.at;
    uint32_t kept = 0, n = q->sorted.len;
    uint32_t *sorted = q->sorted.at;
    vec_clear(&o->moved);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t slot = sorted[i];
        struct queue_entry *at = &slots[slot];
        if (!at->request) {
            at->stale = false;  // no longer in `sorted`
            continue;
        }
        bool fresh = at->stale;
        if (fresh || all)
            refresh(o, at);
        at->key = sched_queue_entry_key(o, at);
        tally(o, at, l);
        if (fresh) {
            vec_push(&o->moved, slot);
        } else if (kept && sched_queue_entry_before(at, &slots[sorted[kept - 1]])) {
            vec_push(&o->moved, slot);  // one of the two is out of place: sort both again
            vec_push(&o->moved, sorted[--kept]);
        } else {
            sorted[kept++] = slot;
        }
    }
    if (o->moved.len > 1)
        qsort_r(o->moved.at, o->moved.len, sizeof *o->moved.at, by_turn, slots);
    merge(slots, sorted, kept, o->moved.at, o->moved.len);
    q->sorted.len = kept + o->moved.len;
    assert(q->sorted.len == q->count);
}
