// A job's position in the order of a pass in which no job starts, computed without walking the order.
//
// Invariant: projects are merged by the rank of their first job, so a job comes only after all jobs before it
// in its own project, and its project must have had its turn for each of them. Hence of another project all
// jobs come first up to the one with which that project ranks after the worst rank that the job's own
// project had until then.
// Example: project A, quota 4 GPUs, has A1 (6 GPUs) before A2 (1 GPU); project B, quota 4, has B1 (1 GPU). With
// A1 first, A would be over its quota and ranks after B: the order is B1, A1, A2, so A2 has position 3.
#include "order.h"

// The entry of the request's job at index `at`.
static struct queue_entry entry_at(const struct sched_order *o, const struct queue_entry *t, uint32_t at) {
    struct queue_entry c = *t;
    c.at = at;
    const struct job_queue *q = &c.request->queue;
    c.base = sched_queue_time_add(c.base, job_queue_at(q, at)->submit_ms - job_queue_at(q, t->at)->submit_ms);
    c.key = sched_queue_entry_key(o, &c);
    return c;
}

// The first of the request's jobs, from the entry's on, that does not come before the bound.
static uint32_t first_not_before(const struct sched_order *o, const struct queue_entry *t,
                                 const struct queue_entry *bound) {
    uint32_t low = t->at, high = t->request->queue.len;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        struct queue_entry c = entry_at(o, t, mid);
        if (sched_queue_entry_before(&c, bound))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

uint32_t sched_order_jobs_before(const struct sched_order *o, const struct queue_entry *t,
                                 const struct queue_entry *bound) {
    if (!bound)
        return t->request->queue.len - t->at;
    return sched_queue_entry_before(t, bound) ? first_not_before(o, t, bound) - t->at : 0;
}

static struct queue_entry entry_of(const struct sched_order *o, const struct world_project *p,
                                   const struct world_request *r, const struct world_job *j) {
    return entry_at(o, &p->queue.slots.at[r->project_slot], sched_queue_index(r, j));
}

// The same jobs wait in all options of a choice, in the same order; a job has come when it has come in one
// of them. Counted for the option that comes first; 0 for the others.
static uint32_t choice_before(const struct sched_order *o, const struct world_project *p, const struct queue_entry *t,
                              const struct queue_entry *bound) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < t->request->choice->options.len; i++) {
        const struct queue_entry *other = &p->queue.slots.at[t->request->choice->options.at[i]->project_slot];
        if (sched_queue_entry_before(other, t))
            return 0;
        uint32_t n = sched_order_jobs_before(o, other, bound);
        most = n > most ? n : most;
    }
    return most;
}

static uint32_t jobs_before(const struct sched_order *o, const struct world_project *p,
                            const struct queue_entry *bound) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < p->queue.sorted.len; i++) {
        const struct queue_entry *t = &p->queue.slots.at[p->queue.sorted.at[i]];
        if (bound && !sched_queue_entry_before(t, bound))
            break;  // entries are sorted: those that follow do not come before it either
        sum += t->request->choice ? choice_before(o, p, t, bound) : sched_order_jobs_before(o, t, bound);
    }
    return sum;
}

// The project's rank if this entry were its first; borrows `entry`.
static struct order_project rank_with(const struct sched_order *o, struct world_project *p,
                                      struct queue_entry *entry) {
    struct order_project l = {.project = p, .heaped = true};
    l.heap.at = entry;
    l.heap.len = l.heap.cap = 1;
    sched_order_project_rank(o, &l);
    return l;
}

// The worst rank the job's project has until the job comes.
static struct order_project worst_until(const struct sched_order *o, struct world_project *p,
                                        struct queue_entry *mine, struct queue_entry *worst) {
    *worst = *mine;
    struct order_project at_worst = rank_with(o, p, worst);
    for (uint32_t i = 0; i < p->queue.sorted.len; i++) {
        const struct queue_entry *t = &p->queue.slots.at[p->queue.sorted.at[i]];
        uint32_t end = sched_queue_entry_before(t, mine) ? first_not_before(o, t, mine) : t->at;
        if (end == t->at)
            continue;
        struct queue_entry last = entry_at(o, t, end - 1);
        struct order_project l = rank_with(o, p, &last);
        if (sched_order_project_before(&at_worst, &l)) {
            *worst = last;
            at_worst = rank_with(o, p, worst);
        }
    }
    return at_worst;
}

// The project's first job, in its order, with which the project does not rank before `bound`; false: none.
static bool first_worse(const struct sched_order *o, struct world_project *p, const struct order_project *bound,
                        struct queue_entry *out) {
    bool any = false;
    for (uint32_t i = 0; i < p->queue.sorted.len; i++) {
        const struct queue_entry *t = &p->queue.slots.at[p->queue.sorted.at[i]];
        if (any && !sched_queue_entry_before(t, out))
            break;
        uint32_t low = t->at, high = t->request->queue.len;
        while (low < high) {  // jobs of one request differ in rank by their age only, so ranks are sorted
            uint32_t mid = low + (high - low) / 2;
            struct queue_entry c = entry_at(o, t, mid);
            struct order_project l = rank_with(o, p, &c);
            if (sched_order_project_before(&l, bound))
                low = mid + 1;
            else
                high = mid;
        }
        if (low == t->request->queue.len)
            continue;
        struct queue_entry c = entry_at(o, t, low);
        if (!any || sched_queue_entry_before(&c, out))
            *out = c;
        any = true;
    }
    return any;
}

// How many jobs the pass looks at before this one. In the fair order a project's rank falls with each of its
// jobs that is looked at. So of another project all jobs come before this one up to the first with which that
// project ranks behind; of its own project, those before it in the project's queue. Nothing is simulated:
// each project's answer is found by a search in its sorted queue.
uint32_t sched_order_position(struct sched_order *o, const struct world_job *j, order_cut_fn cut, void *ctx) {
    if (!j->queued)
        return 0;
    const struct world *w = o->p->w;
    struct world_project *own = w->rules.projects.at[j->request->asked.project];
    struct queue_entry mine = entry_of(o, own, sched_job_option(j, 0), j), worst, first;
    for (uint32_t i = 1; i < sched_job_options(j); i++) {
        struct queue_entry other = entry_of(o, own, sched_job_option(j, i), j);
        if (sched_queue_entry_before(&other, &mine))
            mine = other;
    }
    bool fair = o->p->policy->order == POLICY_ORDER_FAIR;
    struct order_project rank = worst_until(o, own, &mine, &worst);
    uint32_t sum = 1;
    for (uint32_t i = 0; i < w->rules.projects.len; i++) {
        struct world_project *p = w->rules.projects.at[i];
        if (!p || !p->queue.count)
            continue;
        bool bounded = p == own || !fair || first_worse(o, p, &rank, &first);
        const struct queue_entry *bound = !bounded ? NULL : p == own || !fair ? &mine : &first;
        sum += jobs_before(o, p, bound);
        if (cut)
            cut(ctx, p, bound);
    }
    return sum;
}
