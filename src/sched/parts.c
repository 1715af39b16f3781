// Places a job with several parts: one part after the other, each in what the parts before it leave, all or none. What
// the parts take is given back before the function returns: like every placement, it only says where the job would go.
//
// Where the first parts go decides whether the last ones fit. So nodes are chosen by what is free alone (the fullest
// first), not by the mix of requests seen lately: a job that fitted without its victims still fits when they have
// ended, or it would preempt them again and again.
#include "parts.h"

#include <stdlib.h>
#include <string.h>

#include "place.h"

static struct world_request *part_of(struct world_request *r, uint32_t i) {
    return i ? r->parts.at[i - 1] : r;
}

static void take(struct sched_pass *p, const struct sched_alloc *a, bool exclusive, int sign) {
    for (uint32_t i = 0; i < a->node_count; i++) {
        struct world_node *n = p->w->cluster.nodes.at[a->nodes[i].node];
        sched_node_allocate(n, &a->nodes[i], exclusive, sign);
        world_node_changed(p->w, n->id);
    }
}

// The pieces as one allocation, each node once.
static struct sched_alloc *merge(struct sched_alloc **pieces, uint32_t n) {
    uint32_t nodes = 0, gpus = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < pieces[i]->node_count; k++) {
            gpus += pieces[i]->nodes[k].gpu_count;
            bool known = false;
            for (uint32_t h = 0; h < i && !known; h++)
                for (uint32_t m = 0; m < pieces[h]->node_count && !known; m++)
                    known = pieces[h]->nodes[m].node == pieces[i]->nodes[k].node;
            nodes += !known;
        }
    struct sched_alloc *a = sched_alloc_new(nodes, gpus);
    struct sched_alloc_gpu *next = sched_alloc_gpus(a);
    uint32_t last = 0;  // node ids begin with 1
    for (uint32_t to = 0; to < nodes; to++) {
        uint32_t id = UINT32_MAX;
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t k = 0; k < pieces[i]->node_count; k++)
                if (pieces[i]->nodes[k].node > last && pieces[i]->nodes[k].node < id)
                    id = pieces[i]->nodes[k].node;
        struct sched_alloc_node *out = &a->nodes[to];
        *out = (struct sched_alloc_node){.node = id, .gpus = next};
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t k = 0; k < pieces[i]->node_count; k++) {
                const struct sched_alloc_node *from = &pieces[i]->nodes[k];
                if (from->node != id)
                    continue;
                out->cpus += from->cpus;
                out->tasks += from->tasks;
                out->memory_bytes += from->memory_bytes;
                if (from->gpu_count)
                    memcpy(out->gpus + out->gpu_count, from->gpus, from->gpu_count * sizeof *from->gpus);
                out->gpu_count += from->gpu_count;
            }
        next += out->gpu_count;
        last = id;
    }
    return a;
}

struct sched_alloc *sched_place_parts(struct sched_pass *p, struct world_request *r) {
    uint32_t count = 1 + r->parts.len, done = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (i) {
            sched_request_refresh(p->w, part_of(r, i));
            part_of(r, i)->limit_ms = r->limit_ms;  // whatever its own partition's default is
        }
        if (!sched_fit_enough(sched_fit_of(p->w, part_of(r, i))))
            return NULL;
    }
    struct sched_alloc **pieces = xcalloc(count, sizeof(*pieces));
    bool retry = p->retry;
    p->retry = true;  // that a part does not fit beside the others says nothing of other jobs
    p->placing_parts = true;
    while (done < count && (pieces[done] = sched_place_part(p, part_of(r, done)))) {
        take(p, pieces[done], r->demand.exclusive, 1);
        done++;
    }
    for (uint32_t i = done; i-- > 0;)
        take(p, pieces[i], r->demand.exclusive, -1);
    p->retry = retry;
    p->placing_parts = false;
    if (done == count) {
        struct sched_alloc *a = merge(pieces, count);
        a->piece_count = count;
        a->pieces = pieces;
        return a;
    }
    for (uint32_t i = 0; i < done; i++)
        sched_alloc_free(pieces[i]);
    free(pieces);
    return NULL;
}

bool sched_parts_enough(struct sched_pass *p, struct world_request *r) {
    uint32_t restricted = p->restricted.len;
    p->restricted.len = 0;
    struct sched_alloc *a = sched_place_parts(p, r);
    p->restricted.len = restricted;
    sched_alloc_free(a);
    return a;
}

bool sched_parts_fit_idle(struct world *w, struct world_request *r) {
    bool fit = true;
    for (uint32_t i = 0; i <= r->parts.len && fit; i++)
        fit = sched_fits_when_idle(w, sched_fit_of(w, part_of(r, i)));
    return fit;
}

bool sched_parts_may_use(struct world *w, const struct world_request *r, uint32_t node) {
    for (uint32_t i = 0; i < r->parts.len; i++) {
        const struct sched_fit *f = sched_fit_of(w, r->parts.at[i]);
        if (node < f->nodes_len && f->allowed[node])
            return true;
    }
    return false;
}
