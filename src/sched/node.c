// Nodes: adding, replacing, changing their state, removing. A removed node keeps its running jobs until the caller
// ends them; if the node comes back before, they hold what they held.
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "world_state.h"

static void capacity(struct world *w, const struct world_node *n, int sign) {
    if (!n->present || n->state != SCHED_NODE_UP)
        return;
    w->cluster.capacity[DIM_CPU] += sign * (int64_t)n->cpus;
    for (uint32_t i = 0; i < n->gpu_count; i++) {
        if (!n->gpus[i].usable)
            continue;
        w->cluster.capacity[DIM_GPU] += sign * SCHED_GPU;
        if (w->cluster.dim_of_model[n->gpus[i].model])
            w->cluster.capacity[w->cluster.dim_of_model[n->gpus[i].model]] += sign * SCHED_GPU;
    }
}

static void count_special(struct world *w, const struct world_node *n, int sign) {
    if (n->present) {
        w->cluster.of_users += n->user ? (uint32_t)sign : 0;
        w->cluster.ending += n->until_ms ? (uint32_t)sign : 0;
    }
}

// True when a GPU memory size is new or gone: requests for GPU memory then count as another fraction.
static bool sizes_change(struct world *w, const struct world_node *n, int sign) {
    bool changed = false;
    for (uint32_t i = 0; n->present && i < n->gpu_count; i++) {
        uint32_t k = 0;
        while (k < w->cluster.gpu_sizes.len && w->cluster.gpu_sizes.at[k].bytes != n->gpus[i].memory_bytes)
            k++;
        if (k == w->cluster.gpu_sizes.len) {
            vec_push(&w->cluster.gpu_sizes, (struct world_gpu_size){n->gpus[i].memory_bytes, 0});
            changed = true;
        }
        w->cluster.gpu_sizes.at[k].count += (uint32_t)sign;
        if (!w->cluster.gpu_sizes.at[k].count) {
            vec_remove_swap(&w->cluster.gpu_sizes, k);
            changed = true;
        }
    }
    return changed;
}

void sched_nodes_recount_capacity(struct world *w) {
    memset(w->cluster.capacity, 0, sizeof w->cluster.capacity);
    for (uint32_t i = 0; i < w->cluster.nodes.len; i++)
        if (w->cluster.nodes.at[i])
            capacity(w, w->cluster.nodes.at[i], 1);
}

static int node_check(const struct world *w, const struct sched_node *n, struct error *err) {
    if (!n->id || n->id >= SCHED_NODES_MAX)
        return error_set(err, ERANGE, "node id %u: ids go from 1 to %d", n->id, SCHED_NODES_MAX - 1);
    if (str_empty(n->name))
        return error_set(err, EINVAL, "node %u has no name: give it one", n->id);
    if (n->gpu_count > SCHED_GPUS_MAX)
        return error_set(err, ERANGE, "node %s: %u GPUs, at most %d are supported", n->name, n->gpu_count,
                         SCHED_GPUS_MAX);
    if (n->feature_count > SCHED_FEATURES_MAX)
        return error_set(err, ERANGE, "node %s: %u features, at most %d are supported", n->name, n->feature_count,
                         SCHED_FEATURES_MAX);
    return 0;
}

static void node_clear(struct world_node *n) {
    free(n->name);
    free(n->gpus);
    n->name = NULL;
    n->gpus = NULL;
    n->gpu_count = n->gpu_usable = 0;
    n->models = 0;
    n->features = (struct world_features){0};
}

// Adds models and features before anything else changes, so that a refusal leaves the world as it was.
static int words_add(struct world *w, const struct sched_node *n, struct error *err) {
    for (uint32_t i = 0; i < n->gpu_count; i++)
        if (world_model(w, n->gpus[i].model ? n->gpus[i].model : "gpu", true) < 0)
            return error_set(err, ERANGE, "node %s: GPU model %s is one too many, at most %d differ", n->name,
                             n->gpus[i].model, SCHED_MODELS_MAX);
    for (uint32_t i = 0; i < n->feature_count; i++)
        if (world_feature(w, n->features[i], true) < 0)
            return error_set(err, ERANGE, "node %s: feature %s is one too many, at most %d differ", n->name,
                             n->features[i], SCHED_FEATURES_MAX);
    return 0;
}

static void node_fill(struct world *w, struct world_node *n, const struct sched_node *from) {
    n->id = from->id;
    n->present = true;
    n->state = from->state;
    n->name = xstrdup(from->name);
    n->cpus = from->cpus;
    n->memory = from->memory_bytes;
    n->user = from->user;
    n->until_ms = from->until_ms;
    n->gpu_count = from->gpu_count;
    n->gpus = xcalloc(from->gpu_count ? from->gpu_count : 1, sizeof *n->gpus);
    for (uint32_t i = 0; i < from->gpu_count; i++) {
        const struct sched_gpu *g = &from->gpus[i];
        int model = world_model(w, g->model ? g->model : "gpu", false);
        n->gpus[i] = (struct world_gpu){
            .memory_bytes = g->memory_bytes,
            .group = (uint16_t)g->group,
            .model = (uint8_t)model,
            .usable = !g->unusable,
            .socket = (uint8_t)g->socket,
        };
        n->gpu_usable += !g->unusable;
        n->models |= 1ULL << model;  // also of a faulty GPU
    }
    for (uint32_t i = 0; i < from->feature_count; i++) {
        unsigned f = (unsigned)world_feature(w, from->features[i], false);
        n->features.bits[f / 64] |= 1ULL << (f % 64);
    }
}

// Allocates what the node's running jobs hold, after its description changed.
static void allocate_again(struct world_node *n) {
    n->cpus_held = n->exclusive = 0;
    n->memory_held = 0;
    sched_node_refresh(n);
    for (uint32_t i = 0; i < n->jobs.len; i++) {
        const struct world_job *j = n->jobs.at[i];
        for (uint32_t k = 0; k < j->alloc->node_count; k++)
            if (j->alloc->nodes[k].node == n->id)
                sched_node_allocate(n, &j->alloc->nodes[k], j->request->demand.exclusive, 1);
    }
    sched_optional_node_again(n);
}

static bool same_features(const struct world *w, const struct world_node *n, const struct sched_node *from) {
    struct world_features f = {0};
    for (uint32_t i = 0; i < from->feature_count; i++) {
        int k = -1;
        for (uint32_t m = 0; m < w->cluster.features.len && k < 0; m++)
            k = streq(w->cluster.features.at[m], from->features[i]) ? (int)m : -1;
        if (k < 0)
            return false;
        f.bits[k / 64] |= 1ULL << (k % 64);
    }
    return !memcmp(&f, &n->features, sizeof f);
}

// Is everything but the state as before? An agent that reconnects describes the machine again.
static bool same_machine(const struct world *w, const struct world_node *n, const struct sched_node *from) {
    if (!n || !n->present || !streq(n->name, from->name) || n->cpus != from->cpus ||
        n->memory != from->memory_bytes || n->gpu_count != from->gpu_count ||
        n->user != from->user || n->until_ms != from->until_ms || !same_features(w, n, from))
        return false;
    for (uint32_t i = 0; i < n->gpu_count; i++) {
        const struct world_gpu *g = &n->gpus[i];
        const struct sched_gpu *h = &from->gpus[i];
        if (g->memory_bytes != h->memory_bytes || g->group != (uint16_t)h->group || g->usable == h->unusable ||
            g->socket != (uint8_t)h->socket || !streq(w->cluster.models.at[g->model], h->model ? h->model : "gpu"))
            return false;
    }
    return true;
}

int world_node_set(struct world *w, const struct sched_node *from, struct error *err) {
    int r = node_check(w, from, err);
    // Every hello describes the node. Mostly nothing is new, and nothing of what follows needs to be done.
    if (!r && from->id < w->cluster.nodes.len && same_machine(w, w->cluster.nodes.at[from->id], from)) {
        world_node_state(w, from->id, from->state);
        return 0;
    }
    uint32_t words = w->cluster.models.len + w->cluster.features.len;
    if (r || (r = words_add(w, from, err)))
        return r;
    while (w->cluster.nodes.len <= from->id)
        vec_push(&w->cluster.nodes, NULL);
    struct world_node *n = w->cluster.nodes.at[from->id];
    if (!n)
        n = w->cluster.nodes.at[from->id] = xcalloc(1, sizeof *n);
    // What the node was leaves the sums before it changes, and what it is enters them afterwards.
    capacity(w, n, -1);
    count_special(w, n, -1);
    bool sizes = sizes_change(w, n, -1);
    node_clear(n);
    node_fill(w, n, from);
    count_special(w, n, 1);
    capacity(w, n, 1);
    sizes |= sizes_change(w, n, 1);
    allocate_again(n);
    memset(n->partitions, 0, sizeof n->partitions);
    for (uint32_t i = 0; i < w->rules.partitions.len; i++)
        if (w->rules.partitions.at[i] && sched_partition_has(w->rules.partitions.at[i], n->id))
            n->partitions[i / 64] |= 1ULL << (i % 64);
    if (words != w->cluster.models.len + w->cluster.features.len || (sizes && w->requests.by_memory))
        sched_requests_derive(w);
    world_config_changed(w);
    world_node_changed(w, n->id);
    if (n->jobs.len && w->cluster.dims > DIM_MODEL)
        world_recount(w);
    return 0;
}

void world_node_state(struct world *w, uint32_t id, enum sched_node_state state) {
    struct world_node *n = world_node(w, id);
    if (!n || n->state == state)
        return;
    capacity(w, n, -1);
    n->state = state;
    capacity(w, n, 1);
    w->version.nodes++;
    world_node_changed(w, id);
}

void world_node_remove(struct world *w, uint32_t id) {
    struct world_node *n = world_node(w, id);
    if (!n)
        return;
    capacity(w, n, -1);
    count_special(w, n, -1);
    bool sizes = sizes_change(w, n, -1);
    n->present = false;
    if (sizes && w->requests.by_memory)
        sched_requests_derive(w);
    world_config_changed(w);
    world_node_changed(w, id);
}

void sched_potential_clear(struct world *w) {
    for (uint32_t i = 0; i < w->cluster.potential_count; i++)
        node_clear(&w->cluster.potential[i].node);
    free(w->cluster.potential);
    w->cluster.potential = NULL;
    w->cluster.potential_count = 0;
}

int world_shapes_set(struct world *w, const struct world_shape *shapes, uint32_t count, struct error *err) {
    uint32_t words = w->cluster.models.len + w->cluster.features.len;
    sched_potential_clear(w);
    w->cluster.potential = xcalloc(count + 1, sizeof *w->cluster.potential);
    int r = 0;
    for (uint32_t i = 0; i < count && r == 0; i++) {
        struct sched_node n = shapes[i].node;
        struct world_node *p = &w->cluster.potential[w->cluster.potential_count].node;
        n.id = 1;
        n.name = "shape";
        if ((r = node_check(w, &n, err)) < 0 || (r = words_add(w, &n, err)) < 0)
            break;
        node_fill(w, p, &n);
        sched_node_refresh(p);
        for (uint32_t k = 0; k < w->rules.partitions.len; k++) {
            const struct world_partition *part = w->rules.partitions.at[k];
            bool in = part && part->all_nodes;
            for (uint32_t m = 0; m < shapes[i].partition_count && !in; m++)
                in = shapes[i].partitions[m] == k;
            p->partitions[k / 64] |= (uint64_t)in << (k % 64);
        }
        w->cluster.potential[w->cluster.potential_count++].count = shapes[i].nodes;
    }
    if (words != w->cluster.models.len + w->cluster.features.len)
        sched_requests_derive(w);
    return r;
}

void sched_nodes_free(struct world *w) {
    sched_potential_clear(w);
    for (uint32_t i = 0; i < w->cluster.nodes.len; i++) {
        struct world_node *n = w->cluster.nodes.at[i];
        if (!n)
            continue;
        node_clear(n);
        vec_done(&n->jobs);
        free(n);
    }
    for (uint32_t i = 0; i < w->cluster.models.len; i++)
        free(w->cluster.models.at[i]);
    for (uint32_t i = 0; i < w->cluster.features.len; i++)
        free(w->cluster.features.at[i]);
    vec_done(&w->cluster.nodes);
    vec_done(&w->cluster.models);
    vec_done(&w->cluster.features);
    vec_done(&w->cluster.gpu_sizes);
}
