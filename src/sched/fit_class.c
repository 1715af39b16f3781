// Fit classes: per class of requests, how many tasks fit on each node. A class is brought up to date by looking
// again at the nodes that changed since it was last used; most are ruled out by the sums in struct world_node.
#include "fit_class.h"

#include <assert.h>
#include <string.h>

#include "base/buf.h"
#include "uneven.h"
#include "world_state.h"

// What decides on which nodes a request fits, and nothing else: requests of different users, priorities or time
// limits are one class, and nodes are searched once for all of them.
static void encode(struct buf *b, const struct world *w, const struct world_request *r) {
    const struct sched_request *q = &r->asked;
    const struct sched_demand *d = &r->demand;
    const struct world_project *p = world_project(w, q->project);
    uint64_t fixed[] = {
        q->partition,
        p && p->nodes.len ? q->project : 0,
        w->cluster.of_users ? q->user : 0,
        d->nodes_min,
        d->nodes_max,
        d->tasks,
        d->node_tasks,
        d->even,
        d->exclusive,
        d->spread,
        d->same_group,
        d->cpus_task,
        d->memory_node,
        d->memory_task,
        d->gpu_task,
        d->gpu_node,
        d->gpu_total,
        d->memory_gpu,
        d->gpu_memory,
        d->gpu_by_memory,
        d->models,
        d->model_unknown,
        r->feature_unknown,
        r->features.len,
        q->nodes_only_count,
        q->nodes_except_count,
    };
    buf_add(b, fixed, sizeof fixed);
    if (r->features.len)
        buf_add(b, r->features.at, r->features.len * sizeof *r->features.at);
    if (q->nodes_only_count)
        buf_add(b, q->nodes_only, q->nodes_only_count * sizeof *q->nodes_only);
    if (q->nodes_except_count)
        buf_add(b, q->nodes_except, q->nodes_except_count * sizeof *q->nodes_except);
    if (q->also_count)
        buf_add(b, q->also, q->also_count * sizeof *q->also);
}

void sched_fit_unrank(struct sched_fit *f) {
    f->ranked = false;
    vec_done(&f->ranks);
    vec_done(&f->unranked);
}

static void fit_free(struct sched_fit *f) {
    sched_fit_unrank(f);
    free(f->allowed);
    free(f->cap);
    free(f->score);
    free(f->gpus);
    free(f->code);
    free(f);
}

static void unlink_fit(struct world *w, struct sched_fit *f) {
    struct sched_fit *first = map_remove(&w->requests.fits, f->hash);
    if (first == f) {
        first = f->next;
    } else {
        struct sched_fit *before = first;
        while (before->next != f)
            before = before->next;
        before->next = f->next;
    }
    if (first)
        map_put(&w->requests.fits, f->hash, first);
    w->requests.fit_count--;
    fit_free(f);
}

void sched_fit_forget(struct world *w, struct world_request *r) {
    if (!r->fit)
        return;
    struct sched_fit *f = r->fit;
    r->fit = NULL;
    if (--f->users == 0)
        unlink_fit(w, f);
}

static struct sched_fit *lookup(struct world *w, struct world_request *r) {
    cleanup_buf struct buf code = {0};
    encode(&code, w, r);
    uint64_t hash = hash_keyed(code.data, code.len);
    struct sched_fit *first = map_get(&w->requests.fits, hash);
    for (struct sched_fit *f = first; f; f = f->next)
        if (f->code_len == code.len && memcmp(f->code, code.data, code.len) == 0)
            return f;
    struct sched_fit *f = xcalloc(1, sizeof *f);
    f->code_len = (uint32_t)code.len;
    f->code = buf_take(&code);
    f->hash = hash;
    f->next = first;
    f->demand = r->demand;
    map_put(&w->requests.fits, hash, f);
    w->requests.fit_count++;
    return f;
}

// A quick check that rules out most nodes; false does not mean that something fits.
static bool hopeless(const struct world_node *n, const struct sched_demand *d) {
    if (n->cpus_free < d->cpus_task || n->memory_free < d->memory_node + d->memory_task)
        return true;
    if (d->gpu_task >= SCHED_GPU || d->gpu_node >= SCHED_GPU)
        return n->whole_free < (d->gpu_task > d->gpu_node ? d->gpu_task : d->gpu_node) / SCHED_GPU;
    if (d->gpu_by_memory)
        return !n->most_free;
    return n->most_free < (d->gpu_task > d->gpu_node ? d->gpu_task : d->gpu_node);
}

static void look(const struct world *w, struct sched_fit *f, uint32_t id) {
    const struct world_node *n = w->cluster.nodes.at[id];
    uint32_t k = 0;
    if (n && f->allowed[id] && !hopeless(n, &f->demand))
        k = sched_fit_tasks(n, &f->demand);
    k = k > UINT16_MAX ? UINT16_MAX : k;
    f->nodes_fit += (k > 0) - (f->cap[id] > 0);
    f->tasks_fit += k;
    f->tasks_fit -= f->cap[id];
    f->cap[id] = (uint16_t)k;
    if (f->gpus) {
        uint32_t gpus = k ? sched_fit_gpus(n, &f->demand) : 0;
        f->gpus_fit += gpus;
        f->gpus_fit -= f->gpus[id];
        f->gpus[id] = (uint8_t)gpus;
    }
    f->score[id] = SCORE_UNKNOWN;
    if (f->ranked)
        vec_push(&f->unranked, id);
}

static void rebuild(const struct world *w, struct sched_fit *f, const struct world_request *r) {
    sched_fit_unrank(f);
    if (f->config_version != w->version.config) {
        free(f->allowed);
        free(f->cap);
        free(f->score);
        free(f->gpus);
        f->nodes_len = w->cluster.nodes.len;
        f->allowed = xcalloc(f->nodes_len + 1, 1);
        f->cap = xcalloc(f->nodes_len + 1, sizeof *f->cap);
        f->score = xcalloc(f->nodes_len + 1, sizeof *f->score);
        f->gpus = f->demand.gpu_total ? xcalloc(f->nodes_len + 1, 1) : NULL;
        f->gpus_fit = 0;
        for (uint32_t i = 0; i < f->nodes_len; i++) {
            const struct world_node *n = world_node(w, i);
            f->allowed[i] = n && sched_request_node_allowed(w, r, n);
        }
        f->config_version = w->version.config;
        f->idle_version = 0;
        f->nodes_fit = 0;
        f->tasks_fit = 0;
    }
    for (uint32_t i = 0; i < f->nodes_len; i++)
        if (f->allowed[i])
            look(w, f, i);
}

struct sched_fit *sched_fit_class(struct world *w, struct world_request *r) {
    if (!r->fit || r->fit_version != w->version.config) {
        struct sched_fit *f = lookup(w, r);
        if (f != r->fit) {
            f->users++;
            sched_fit_forget(w, r);
            r->fit = f;
        }
        r->fit_version = w->version.config;
    }
    return r->fit;
}

struct sched_fit *sched_fit_of(struct world *w, struct world_request *r) {
    struct sched_fit *f = sched_fit_class(w, r);
    uint64_t latest = w->cluster.changes_base + w->cluster.changes.len;
    if (f->config_version != w->version.config || f->synced < w->cluster.changes_base ||
        latest - f->synced > w->cluster.nodes.len) {
        rebuild(w, f, r);
    } else {
        for (uint64_t i = f->synced; i < latest; i++)
            look(w, f, w->cluster.changes.at[i - w->cluster.changes_base]);
    }
    f->synced = latest;
    return f;
}

bool sched_fit_enough(const struct sched_fit *f) {
    return f->nodes_fit >= f->demand.nodes_min && f->tasks_fit >= f->demand.tasks &&
           f->gpus_fit * SCHED_GPU >= f->demand.gpu_total;
}

bool sched_fit_enough_together(const struct sched_fit *f) {
    const struct sched_demand *d = &f->demand;
    if (!sched_fit_enough(f) || (!d->gpu_total && (d->even || f->nodes_fit <= d->nodes_max)))
        return sched_fit_enough(f);
    VEC(struct placement_candidate) found = {0};
    for (uint32_t i = 0; i < f->nodes_len; i++)
        if (f->cap[i])
            vec_push(&found, (struct placement_candidate){i, f->cap[i], 0, f->gpus ? f->gpus[i] : 0});
    bool enough = sched_nodes_enough(d, found.at, found.len);
    vec_done(&found);
    return enough;
}

bool sched_fits_when_idle(const struct world *w, struct sched_fit *f) {
    const struct sched_demand *d = &f->demand;
    if (f->idle_version == w->version.nodes)
        return f->fits_idle;
    uint32_t nodes = 0;
    uint64_t tasks = 0;
    for (uint32_t i = 0; i < f->nodes_len && (nodes < d->nodes_min || tasks < d->tasks); i++) {
        const struct world_node *n = f->allowed[i] ? w->cluster.nodes.at[i] : NULL;
        uint32_t k = n && n->state == SCHED_NODE_UP ? sched_fit_tasks_idle(n, d) : 0;
        nodes += k > 0;
        tasks += k;
    }
    f->fits_idle = nodes >= d->nodes_min && tasks >= d->tasks;
    if (f->fits_idle && (d->gpu_total || !d->even))
        f->fits_idle = sched_fits_together_when_idle(w, f);
    f->idle_version = w->version.nodes;
    return f->fits_idle;
}

void sched_fits_free(struct world *w) {
    size_t it = 0;
    void *v;
    while (map_next(&w->requests.fits, &it, NULL, &v))
        for (struct sched_fit *f = v, *next; f; f = next) {
            next = f->next;
            fit_free(f);
        }
    map_done(&w->requests.fits);
}
