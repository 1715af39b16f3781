// Estimates when a job will start in worlds too large to simulate: the nodes it may use are one pool of GPUs (or
// CPUs), running jobs return their part when they end, and the jobs before it take what they need as soon as it is
// there. Where pieces fit on nodes is ignored, and no new jobs are assumed.
#include "estimate.h"

#include "order.h"

enum { SLOTS = 2048, WEIGHT = 1024, RATIO_UNKNOWN = 600 };

// A running job, or the jobs of one request that come first: how much of the pool they take and for how long, if
// they run as long as usual and if they run to their limits.
struct estimate_parcel {
    int64_t key;
    int64_t amount;
    int64_t usual_ms, limit_ms;
};

struct estimate_pool {
    struct sched_order *o;
    struct sched_fit *f;  // of the job asked about
    unsigned dim;         // DIM_GPU or DIM_CPU
    int64_t capacity, idle;
    bool everywhere;  // its nodes are all nodes that are up
    VEC(struct estimate_parcel) running, ahead;
};

static int64_t amount_of(const struct estimate_pool *s, const struct world_request *r) {
    return s->dim == DIM_CPU ? sched_request_cpus(r) : (int64_t)r->gpu_milli;
}

static void pool_nodes(struct estimate_pool *s) {
    const struct world *w = s->o->p->w;
    s->everywhere = true;
    for (uint32_t i = 1; i < s->f->nodes_len; i++) {
        const struct world_node *n = world_node(w, i);
        if (!n || n->state != SCHED_NODE_UP)
            continue;
        if (!s->f->allowed[i]) {
            s->everywhere = false;
            continue;
        }
        s->capacity += s->dim == DIM_CPU ? n->cpus : (int64_t)n->gpu_usable * SCHED_GPU;
        s->idle += s->dim == DIM_CPU ? n->cpus_free : n->free_milli;
    }
}

// The part of another class's nodes that is in the pool: its jobs count in that proportion.
static int64_t overlap(const struct estimate_pool *s, struct sched_fit *f) {
    struct world *w = s->o->p->w;
    uint32_t all = 0, both = 0;
    if (s->everywhere || f == s->f)
        return WEIGHT;
    sched_fit_of(w, f->any);
    for (uint32_t i = 1; i < f->nodes_len && i < s->f->nodes_len; i++) {
        all += f->allowed[i];
        both += f->allowed[i] && s->f->allowed[i];
    }
    return all ? (int64_t)both * WEIGHT / all : 0;
}

static int64_t usual(int64_t limit_ms, const struct world_user *u) {
    return limit_ms / 1000 * (u && u->ratio_milli ? u->ratio_milli : RATIO_UNKNOWN);
}

static void add_ahead(void *ctx, struct world_project *p, const struct queue_entry *bound) {
    struct estimate_pool *s = ctx;
    for (uint32_t i = 0; i < p->queue.sorted.len; i++) {
        const struct queue_entry *t = &p->queue.slots.at[p->queue.sorted.at[i]];
        uint32_t n = sched_order_jobs_before(s->o, t, bound);
        int64_t amount = n ? amount_of(s, t->request) * n * t->fit->weight / WEIGHT : 0;
        if (t->request->choice)  // they start in one of their partitions
            amount /= t->request->choice->options.len;
        int64_t limit = t->limit_ms == INT64_MAX ? NO_LIMIT_COUNTS_AS_MS : t->limit_ms;
        if (amount)
            vec_push(&s->ahead, (struct estimate_parcel){t->key, amount, usual(limit, t->user), limit});
    }
}

static int64_t held_in_pool(const struct estimate_pool *s, const struct world_job *j) {
    if (s->everywhere)
        return s->dim == DIM_CPU ? j->held_cpus : j->held_gpu;
    int64_t sum = 0;
    for (uint32_t i = 0; i < j->alloc->node_count; i++) {
        const struct sched_alloc_node *a = &j->alloc->nodes[i];
        if (a->node >= s->f->nodes_len || !s->f->allowed[a->node])
            continue;
        sum += s->dim == DIM_CPU ? a->cpus : 0;
        for (uint32_t g = 0; s->dim != DIM_CPU && g < a->gpu_count; g++)
            sum += a->gpus[g].milli;
    }
    return sum;
}

static int64_t left_of(int64_t end_ms, int64_t now_ms) {
    return end_ms > now_ms ? end_ms - now_ms : 1;
}

// Jobs without time limit never return their part.
static void add_running(struct estimate_pool *s) {
    struct world *w = s->o->p->w;
    int64_t now_ms = s->o->p->now_ms;
    vec_reserve(&s->running, w->jobs.running.len + 1);
    for (uint32_t i = 0; i < w->jobs.running.len; i++) {
        const struct world_job *j = w->jobs.running.at[i];
        int64_t end = sched_job_end_ms(j), held = end == INT64_MAX ? 0 : held_in_pool(s, j);
        bool ending = j->state == SCHED_JOB_ENDING;
        sched_request_refresh(w, j->request);
        if (held)
            vec_push(&s->running,
                     (struct estimate_parcel){
                         0, held, ending ? 1 : left_of(j->start_ms + usual(j->limit_ms, j->request->user), now_ms),
                         ending ? 1 : left_of(end, now_ms)});
    }
}

static int by_key(const void *pa, const void *pb) {
    const struct estimate_parcel *a = pa, *b = pb;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    if (a->limit_ms != b->limit_ms)
        return a->limit_ms < b->limit_ms ? -1 : 1;
    return (a->amount > b->amount) - (a->amount < b->amount);
}

static int64_t length(const struct estimate_parcel *p, bool early) {
    return early ? p->usual_ms : p->limit_ms;
}

// The length of a time slot, such that everything is over within all slots.
static int64_t slot_for(const struct estimate_pool *s, bool early) {
    __int128 area = 0;
    int64_t longest = 0;
    for (uint32_t i = 0; i < s->running.len; i++)
        area += (__int128)s->running.at[i].amount * length(&s->running.at[i], early);
    for (uint32_t i = 0; i < s->ahead.len; i++) {
        const struct estimate_parcel *p = &s->ahead.at[i];
        area += (__int128)p->amount * length(p, early);
        longest = length(p, early) > longest ? length(p, early) : longest;
    }
    int64_t drained = (int64_t)(area / s->capacity);
    return (drained + drained / 2 + longest) / SLOTS + 1;
}

// How long until all jobs before it have started and there is room for it; -1: not within the slots.
static int64_t flow(const struct estimate_pool *s, int64_t amount, bool early) {
    if (s->capacity < amount || !s->capacity)
        return -1;
    int64_t slot_ms = slot_for(s, early), *back = xcalloc(SLOTS, sizeof *back), room = s->idle, found = -1;
    // An estimate: only amounts count, not on which nodes they are. Time is cut into slots; back[i] is what jobs free
    // in slot i.
    for (uint32_t i = 0; i < s->running.len; i++)
        if (length(&s->running.at[i], early) / slot_ms < SLOTS)
            back[length(&s->running.at[i], early) / slot_ms] += s->running.at[i].amount;
    uint32_t k = 0;
    int64_t left = s->ahead.len ? s->ahead.at[0].amount : 0;
    for (int64_t i = 0; i < SLOTS && found < 0; i++) {
        room += back[i];
        // The jobs ahead take what there is, in order and piece by piece; what they take comes back when they end.
        while (room > 0 && k < s->ahead.len) {
            int64_t take = left < room ? left : room, end = i + 1 + length(&s->ahead.at[k], early) / slot_ms;
            room -= take;
            left -= take;
            if (end < SLOTS)
                back[end] += take;
            if (!left && ++k < s->ahead.len)
                left = s->ahead.at[k].amount;
        }
        if (k == s->ahead.len && room >= amount)
            found = (i + 1) * slot_ms;
    }
    free(back);
    return found;
}

struct explain_band sched_estimate_start(struct world *w, const struct world_job *j, int64_t now_ms,
                                         const struct policy *policy) {
    struct sched_decisions unused = {0};
    struct sched_pass p = {.w = w, .policy = policy, .now_ms = now_ms, .out = &unused};
    struct sched_order o;
    w->last_pass.number++;
    sched_order_make(&o, &p);
    struct estimate_pool s = {
        .o = &o, .f = sched_fit_of(w, j->request), .dim = j->request->gpu_milli ? DIM_GPU : DIM_CPU};
    pool_nodes(&s);
    for (uint32_t i = 0; i < p.classes.len; i++)
        p.classes.at[i]->weight = overlap(&s, p.classes.at[i]);
    add_running(&s);
    sched_order_position(&o, j, add_ahead, &s);
    if (s.ahead.len)
        qsort(s.ahead.at, s.ahead.len, sizeof *s.ahead.at, by_key);
    int64_t late = flow(&s, amount_of(&s, j->request), false), early = flow(&s, amount_of(&s, j->request), true);
    vec_done(&s.running);
    vec_done(&s.ahead);
    sched_order_done(&o);
    if (early < 0)
        return (struct explain_band){EXPLAIN_UNKNOWN, 0, INT64_MAX};
    if (late < 0)
        return (struct explain_band){EXPLAIN_UNKNOWN, now_ms + early, INT64_MAX};
    return (struct explain_band){EXPLAIN_ESTIMATE, now_ms + (early < late ? early : late), now_ms + late};
}
