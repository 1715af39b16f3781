// Decides how many nodes are wanted (sched/autoscale.h), on a copy of the world.
#include "sched/autoscale.h"

#include <stdio.h>

#include "base/cleanup.h"
#include "forecast.h"
#include "world_state.h"

struct imagined {
    uint32_t id, shape;
    bool coming, used;
};

struct trial {
    struct world *w;
    struct autoscale_shape *shapes;
    uint32_t base;  // ids from here on are imagined nodes
    VEC(struct imagined) nodes;
    struct autoscale_result *out;
};

static struct imagined *imagined_of(const struct trial *t, uint32_t id) {
    return id >= t->base ? &t->nodes.at[id - t->base] : NULL;
}

// A job counts once for the first shape that it needs a new node of.
static void note_pass(void *ctx, const struct sched_decisions *d) {
    struct trial *t = ctx;
    for (uint32_t i = 0; i < d->starts.len; i++) {
        const struct sched_start *s = &d->starts.at[i];
        bool counted = false;
        for (uint32_t k = 0; k < s->alloc->node_count; k++) {
            struct imagined *n = imagined_of(t, s->alloc->nodes[k].node);
            if (!n) {
                vec_push(&t->out->used, s->alloc->nodes[k].node);
                continue;
            }
            struct autoscale_shape *shape = &t->shapes[n->shape];
            if (!n->used) {
                shape->wanted += !n->coming;
                shape->coming_used += n->coming;
            }
            n->used = true;
            if (!counted && !n->coming) {
                shape->jobs++;
                shape->first_job = shape->first_job && shape->first_job < s->job ? shape->first_job : s->job;
                counted = true;
            }
        }
    }
}

// Up to `count` nodes of the shape; ids may run out.
static void add_nodes(struct trial *t, uint32_t shape, uint32_t count, bool coming, int64_t at_ms) {
    const struct autoscale_shape *s = &t->shapes[shape];
    for (uint32_t i = 0; i < count && t->base + t->nodes.len < SCHED_NODES_MAX; i++) {
        char name[32];
        struct sched_node n = s->node;
        n.id = t->base + t->nodes.len;
        snprintf(name, sizeof name, "+%u", n.id);
        n.name = name;
        n.state = SCHED_NODE_UP;
        n.until_ms = s->lifetime_ms ? at_ms + s->lifetime_ms : 0;
        if (world_node_set(t->w, &n, NULL) < 0)
            return;
        struct world_node *made = world_node(t->w, n.id);
        for (uint32_t k = 0; k < s->partition_count; k++)
            made->partitions[s->partitions[k] / 64] |= 1ULL << (s->partitions[k] % 64);
        vec_push(&t->nodes, ((struct imagined){n.id, shape, coming, false}));
    }
}

// What no job started on is not to attract those that are tried on the next shape.
static void remove_unused(struct trial *t, uint32_t shape) {
    for (uint32_t i = 0; i < t->nodes.len; i++)
        if (t->nodes.at[i].shape == shape && !t->nodes.at[i].used && !t->nodes.at[i].coming)
            world_node_state(t->w, t->nodes.at[i].id, SCHED_NODE_DOWN);
}

// The cheapest first, of equal cost the one that is there first, else in the order given.
static void sort_shapes(const struct autoscale_shape *shapes, uint32_t *order, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        uint32_t k = i;
        for (; k > 0; k--) {
            const struct autoscale_shape *a = &shapes[order[k - 1]], *b = &shapes[i];
            if (a->cost < b->cost || (a->cost == b->cost && a->boot_ms <= b->boot_ms))
                break;
            order[k] = order[k - 1];
        }
        order[k] = i;
    }
}

static int by_number(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void sort_used(struct autoscale_result *out) {
    uint32_t kept = 0;
    if (out->used.len)
        qsort(out->used.at, out->used.len, sizeof *out->used.at, by_number);
    for (uint32_t i = 0; i < out->used.len; i++)
        if (!kept || out->used.at[kept - 1] != out->used.at[i])
            out->used.at[kept++] = out->used.at[i];
    out->used.len = kept;
}

void sched_autoscale(const struct world *w, struct autoscale_shape *shapes, uint32_t count, int64_t now_ms,
                     const struct policy *policy, struct autoscale_result *out) {
    *out = (struct autoscale_result){0};
    for (uint32_t i = 0; i < count; i++)
        shapes[i].wanted = shapes[i].coming_used = shapes[i].jobs = 0, shapes[i].first_job = 0;
    if (!w->jobs.pending)
        return;
    struct trial t = {.w = world_clone(w), .shapes = shapes, .out = out};
    struct policy pack = *policy;
    cleanup_free uint32_t *order = xcalloc(count + 1, sizeof *order);
    int64_t at = now_ms;
    pack.placement = POLICY_PLACE_PACK;  // as few nodes as possible
    sched_forecast_without_optional(t.w);
    t.base = t.w->cluster.nodes.len ? t.w->cluster.nodes.len : 1;
    for (uint32_t i = 0; i < count; i++)
        add_nodes(&t, i, shapes[i].coming < AUTOSCALE_STEP_MAX ? shapes[i].coming : AUTOSCALE_STEP_MAX, true,
                  now_ms + shapes[i].boot_ms);
    sort_shapes(shapes, order, count);
    at = sched_forecast_play(t.w, at, now_ms, &pack, note_pass, &t);
    for (uint32_t i = 0; i < count && t.w->jobs.ready; i++) {
        struct autoscale_shape *s = &shapes[order[i]];
        if (!s->room)
            continue;
        int64_t ready_ms = now_ms + s->boot_ms;
        if (ready_ms > at) {
            sched_forecast_play(t.w, at, ready_ms, &pack, note_pass, &t);
            at = ready_ms;
        }
        add_nodes(&t, order[i], s->room < AUTOSCALE_STEP_MAX ? s->room : AUTOSCALE_STEP_MAX, false, at);
        sched_forecast_play(t.w, at, at, &pack, note_pass, &t);
        remove_unused(&t, order[i]);
    }
    out->unmet = t.w->jobs.ready;
    sort_used(out);
    vec_done(&t.nodes);
    world_free(t.w);
}
