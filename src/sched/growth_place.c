// Chooses room for optional workers: free in both ledgers, not needed by a planned start within the grace time. They
// go where other jobs would go last, so that they are rarely in the way: nodes that have optional workers already,
// then the emptiest, then the highest id; on a node the GPUs with the highest index.
#include "growth_place.h"

#include <stdlib.h>

#include "growth.h"
#include "uneven.h"

void sched_growth_copy(struct node_copy *c, const struct world_node *n) {
    sched_node_copy_init(c, n);
    if (!n->optional)
        return;
    c->node.cpus_withheld += n->optional->cpus;
    c->node.memory_withheld += n->optional->memory;
    c->node.exclusive += n->optional->exclusive;
    for (uint32_t i = 0; i < n->gpu_count; i++)
        c->gpus[i].withheld_milli = (uint16_t)(c->gpus[i].withheld_milli + n->gpus[i].optional_milli);
    sched_node_refresh(&c->node);
}

// Tasks that fit in what is free in both ledgers; `cap`: in what is free in the first.
static uint32_t fit_both(const struct world_node *n, const struct sched_demand *d, uint32_t cap) {
    const struct node_optional *o = n->optional;
    if (!cap || !o || !o->jobs.len)
        return cap;
    if (n->cpus_free < o->cpus + d->cpus_task || n->memory_free < o->memory + d->memory_node + d->memory_task)
        return 0;
    uint32_t whole = (d->gpu_task > d->gpu_node ? d->gpu_task : d->gpu_node) / SCHED_GPU, found = 0;
    for (uint32_t i = 0; whole && i < n->gpu_count; i++)
        found += n->gpus[i].free_milli == SCHED_GPU && !n->gpus[i].optional_milli;
    if (found < whole)
        return 0;
    struct node_copy c;
    sched_growth_copy(&c, n);
    uint32_t k = sched_fit_tasks(&c.node, d);
    return k < cap ? k : cap;
}

bool sched_growth_fits(const struct world *w, const struct sched_fit *f) {
    uint32_t nodes = 0;
    uint64_t tasks = 0;
    for (uint32_t i = 0; i < f->nodes_len && sched_fit_enough(f); i++) {
        uint32_t k = f->cap[i] ? fit_both(w->cluster.nodes.at[i], &f->demand, f->cap[i]) : 0;
        nodes += k > 0;
        tasks += k;
    }
    return nodes >= f->demand.nodes_min && tasks >= f->demand.tasks;
}

// Does anybody but this project want room? Then it does not take back at once what it had to give.
static bool others_want(const struct world *w, uint32_t project) {
    if (w->jobs.ready)
        return true;
    for (uint32_t i = 0; i < w->optional.queues.len; i++)
        if (w->optional.queues.at[i]->request->asked.project != project)
            return true;
    return false;
}

bool sched_growth_may_use(struct sched_pass *p, const struct world_request *r, uint32_t node) {
    const struct node_optional *o = p->w->cluster.nodes.at[node]->optional;
    uint32_t project = r->asked.project;
    if (p->soon.len && p->soon.at[node])
        return false;
    if (o && o->rest_until_ms > p->now_ms && o->rest_project == project && others_want(p->w, project)) {
        p->out->next_ms = o->rest_until_ms < p->out->next_ms ? o->rest_until_ms : p->out->next_ms;
        return false;
    }
    return (!pass_restricted(p, node) && !r->asked.reservation) ||
           sched_reservations_allow(p->w, r, node, p->now_ms, r->limit_ms);
}

static int64_t preference(const struct world_node *n, const struct sched_demand *d) {
    bool gpus = d->gpu_task || d->gpu_node || d->gpu_by_memory;
    int64_t together = n->optional && n->optional->jobs.len ? INT64_C(1) << 40 : 0;
    return together + (gpus ? n->free_milli : n->cpus_free + (n->gpu_usable ? 0 : INT64_C(1) << 33));
}

static int best_first(const void *pa, const void *pb) {
    const struct placement_candidate *a = pa, *b = pb;
    if (a->score != b->score)
        return a->score > b->score ? -1 : 1;
    return (a->node < b->node) - (a->node > b->node);
}

static int most_first(const void *pa, const void *pb) {
    const struct placement_candidate *a = pa, *b = pb;
    if (a->tasks != b->tasks)
        return a->tasks > b->tasks ? -1 : 1;
    return best_first(pa, pb);
}

void sched_growth_room_init(struct sched_pass *p, struct world_request *r, struct growth_room *out) {
    *out = (struct growth_room){.request = r, .fit = sched_fit_of(p->w, r)};
    struct sched_fit *f = out->fit;
    if (!sched_fit_enough(f) || f->full_pass == p->w->last_pass.number)
        return;
    bool any = false;
    uint32_t need = f->demand.even && f->demand.nodes_min == 1 ? f->demand.tasks : 1;
    for (uint32_t i = 0; i < f->nodes_len; i++) {
        const struct world_node *n = p->w->cluster.nodes.at[i];
        if (f->cap[i] < need || fit_both(n, &f->demand, f->cap[i]) < need)
            continue;
        any = true;
        if (sched_growth_may_use(p, r, i))
            vec_push(&out->nodes, (struct placement_candidate){i, f->cap[i], preference(n, &f->demand), 0});
    }
    if (!any)
        f->full_pass = p->w->last_pass.number;
    if (out->nodes.len)
        qsort(out->nodes.at, out->nodes.len, sizeof *out->nodes.at, best_first);
}

void sched_growth_room_done(struct growth_room *room) {
    vec_done(&room->nodes);
}

static int by_node(const void *a, const void *b) {
    uint32_t x = ((const struct placement_spot *)a)->node, y = ((const struct placement_spot *)b)->node;
    return (x > y) - (x < y);
}

// On a copy with its GPUs in reverse order, so that those with the highest index are taken.
static void fit_last(const struct world_node *n, const struct sched_demand *d, uint32_t tasks,
                     struct sched_alloc_node *out, struct sched_alloc_gpu *gpus) {
    struct node_copy c;
    sched_growth_copy(&c, n);
    for (uint32_t i = 0; i < n->gpu_count / 2; i++) {
        struct world_gpu t = c.gpus[i];
        c.gpus[i] = c.gpus[n->gpu_count - 1 - i];
        c.gpus[n->gpu_count - 1 - i] = t;
    }
    sched_fit_node(&c.node, d, tasks, -1, out, gpus);
    for (uint32_t i = 0; i < out->gpu_count; i++)
        gpus[i].index = (uint16_t)(n->gpu_count - 1 - gpus[i].index);
    for (uint32_t i = 0; i < out->gpu_count / 2; i++) {
        struct sched_alloc_gpu t = gpus[i];
        gpus[i] = gpus[out->gpu_count - 1 - i];
        gpus[out->gpu_count - 1 - i] = t;
    }
}

static struct sched_alloc *build(const struct world *w, const struct sched_demand *d,
                                 struct placement_spot *spots, uint32_t n) {
    uint32_t slots = 0;
    for (uint32_t i = 0; i < n; i++)
        slots += spots[i].gpus ? spots[i].gpus : sched_fit_gpu_slots(d, spots[i].tasks);
    struct sched_alloc *a = sched_alloc_new(n, slots);
    struct sched_alloc_gpu *gpus = sched_alloc_gpus(a);
    if (n > 1)
        qsort(spots, n, sizeof *spots, by_node);
    for (uint32_t i = 0; i < n; i++) {
        struct sched_demand here = sched_demand_on(d, spots[i].gpus);
        fit_last(w->cluster.nodes.at[spots[i].node], &here, spots[i].tasks, &a->nodes[i], gpus);
        gpus += a->nodes[i].gpu_count;
    }
    return a;
}

static struct sched_alloc *place_many(struct sched_pass *p, struct growth_room *room) {
    const struct sched_demand *d = &room->fit->demand;
    VEC(struct placement_candidate) found = {0};
    for (uint32_t i = 0; i < room->nodes.len; i++) {
        struct placement_candidate c = room->nodes.at[i];
        uint32_t k = fit_both(p->w->cluster.nodes.at[c.node], d, room->fit->cap[c.node]);
        c.tasks = d->even ? d->node_tasks : k;
        if (k && d->gpu_total) {
            struct node_copy left;
            sched_growth_copy(&left, p->w->cluster.nodes.at[c.node]);
            c.gpus = sched_fit_gpus(&left.node, d);
        }
        if (k)
            vec_push(&found, c);
    }
    if (found.len && !d->even)
        qsort(found.at, found.len, sizeof *found.at, most_first);
    struct placement_spot *spots = xcalloc(found.len + 1, sizeof *spots);
    uint32_t n = d->gpu_total ? sched_uneven_place(p->w, d, found.at, found.len, spots)
                              : sched_place_divide(d, found.at, found.len, spots);
    struct sched_alloc *a = n ? build(p->w, d, spots, n) : NULL;
    free(spots);
    vec_done(&found);
    return a;
}

struct sched_alloc *sched_growth_place(struct sched_pass *p, struct growth_room *room) {
    const struct sched_demand *d = &room->fit->demand;
    if (!d->even || d->nodes_min != 1)
        return place_many(p, room);
    for (; room->at < room->nodes.len; room->at++) {
        uint32_t id = room->nodes.at[room->at].node;
        if (fit_both(p->w->cluster.nodes.at[id], d, room->fit->cap[id]) < d->tasks)
            continue;
        struct placement_spot spot = {id, d->tasks};
        return build(p->w, d, &spot, 1);
    }
    return NULL;
}
