// The second ledger: optional workers that wait, one queue per request and group, and what those that run hold of
// nodes, projects, QoS and users. Every change keeps both exact; nothing of it is counted anywhere else.
#include "optional.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "world_state.h"

static struct optional_queue *queue_of(struct world *w, struct world_request *r, uint64_t group) {
    for (struct optional_queue *q = r->optional; q; q = q->next)
        if (q->group == group)
            return q;
    struct optional_queue *q = xcalloc(1, sizeof *q);
    *q = (struct optional_queue){
        .request = r, .group = group, .next = r->optional, .slot = w->optional.queues.len};
    r->optional = q;
    vec_push(&w->optional.queues, q);
    return q;
}

static void queue_free(struct world *w, struct optional_queue *q) {
    struct optional_queue **at = &q->request->optional;
    while (*at != q)
        at = &(*at)->next;
    *at = q->next;
    vec_remove_swap(&w->optional.queues, q->slot);
    if (q->slot < w->optional.queues.len)
        w->optional.queues.at[q->slot]->slot = q->slot;
    vec_done(&q->jobs);
    free(q);
}

// The first index whose job's id is not below this one.
static uint32_t index_of(const struct optional_queue *q, uint64_t id) {
    uint32_t low = 0, high = q->jobs.len;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (q->jobs.at[mid]->id < id)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

void sched_optional_enqueue(struct world *w, struct world_job *j) {
    struct optional_queue *q = queue_of(w, j->request, j->group);
    uint32_t at = index_of(q, j->id);
    vec_push(&q->jobs, NULL);
    memmove(q->jobs.at + at + 1, q->jobs.at + at, (q->jobs.len - 1 - at) * sizeof *q->jobs.at);
    q->jobs.at[at] = j;
    j->queued = true;
    w->optional.waiting++;
}

void sched_optional_dequeue(struct world *w, struct world_job *j) {
    struct optional_queue *q = queue_of(w, j->request, j->group);
    uint32_t at = index_of(q, j->id);
    assert(at < q->jobs.len && q->jobs.at[at] == j);
    vec_remove(&q->jobs, at);
    j->queued = false;
    w->optional.waiting--;
    if (!q->jobs.len)
        queue_free(w, q);
}

static void node_hold(struct world_node *n, const struct sched_alloc_node *a, bool exclusive, int sign) {
    struct node_optional *o = n->optional;
    o->cpus += sign > 0 ? a->cpus : -a->cpus;
    o->memory += sign > 0 ? a->memory_bytes : -a->memory_bytes;
    o->exclusive += exclusive ? (uint32_t)sign : 0;
    for (uint32_t i = 0; i < a->gpu_count; i++) {
        if (a->gpus[i].index >= n->gpu_count)
            continue;  // the node came back with fewer GPUs than the worker holds
        struct world_gpu *g = &n->gpus[a->gpus[i].index];
        g->optional_milli = (uint16_t)(g->optional_milli + sign * a->gpus[i].milli);
    }
}

static void list_remove(struct node_optional *o, const struct world_job *j) {
    for (uint32_t k = o->jobs.len; k-- > 0;)
        if (o->jobs.at[k] == j) {
            vec_remove(&o->jobs, k);
            return;
        }
}

void sched_optional_hold(struct world *w, struct world_job *j, const struct sched_alloc *a, int sign) {
    for (uint32_t i = 0; i < a->node_count; i++) {
        struct world_node *n = w->cluster.nodes.at[a->nodes[i].node];
        if (!n->optional)
            n->optional = xcalloc(1, sizeof *n->optional);
        node_hold(n, &a->nodes[i], j->request->demand.exclusive, sign);
        if (sign > 0)
            vec_push(&n->optional->jobs, j);
        else
            list_remove(n->optional, j);
    }
}

void sched_optional_count(struct world *w, struct world_request *r, const struct sched_alloc *a, int sign) {
    int64_t held[DIMS_MAX];
    sched_alloc_amounts(w, a, held);
    struct world_project *p = world_project_slot(w, r->asked.project);
    for (unsigned d = 0; d < w->cluster.dims; d++)
        p->optional_used[d] += sign * held[d];
    struct world_qos *q = world_qos(w, r->asked.qos);
    if (q)
        q->optional_gpu_milli += (uint64_t)(sign * held[DIM_GPU]);
    struct world_user *u = sched_user_slot(&w->usage.qos_users, r->asked.qos, r->asked.user);
    u->optional_gpu_milli += (uint64_t)(sign * held[DIM_GPU]);
    u->optional_cpus += (uint64_t)(sign * held[DIM_CPU]);
}

void sched_optional_run(struct world *w, struct world_job *j) {
    int64_t held[DIMS_MAX];
    j->run_slot = w->optional.running.len;
    vec_push(&w->optional.running, j);
    w->optional.ending += j->state == SCHED_JOB_ENDING;
    world_project_slot(w, j->request->asked.project)->optional_running++;
    sched_alloc_amounts(w, j->alloc, held);
    j->held_gpu = held[DIM_GPU];
    j->held_cpus = held[DIM_CPU];
    sched_optional_hold(w, j, j->alloc, 1);
    sched_optional_count(w, j->request, j->alloc, 1);
}

void sched_optional_stop(struct world *w, struct world_job *j) {
    sched_optional_count(w, j->request, j->alloc, -1);
    sched_optional_hold(w, j, j->alloc, -1);
    world_project_slot(w, j->request->asked.project)->optional_running--;
    vec_remove_swap(&w->optional.running, j->run_slot);
    w->optional.ending -= j->state == SCHED_JOB_ENDING;
    if (j->run_slot < w->optional.running.len)
        w->optional.running.at[j->run_slot]->run_slot = j->run_slot;
}

void sched_optional_rest(struct world *w, const struct world_job *j, int64_t now_ms) {
    if (j->state != SCHED_JOB_ENDING || !j->ending_for)
        return;
    for (uint32_t i = 0; i < j->alloc->node_count; i++) {
        struct node_optional *o = w->cluster.nodes.at[j->alloc->nodes[i].node]->optional;
        o->rest_project = j->request->asked.project;
        o->rest_until_ms = now_ms + OPTIONAL_REST_MS;
    }
}

void sched_optional_node_again(struct world_node *n) {
    struct node_optional *o = n->optional;
    if (!o)
        return;
    o->cpus = o->exclusive = 0;
    o->memory = 0;
    for (uint32_t i = 0; i < o->jobs.len; i++) {
        const struct world_job *j = o->jobs.at[i];
        for (uint32_t k = 0; k < j->alloc->node_count; k++)
            if (j->alloc->nodes[k].node == n->id)
                node_hold(n, &j->alloc->nodes[k], j->request->demand.exclusive, 1);
    }
}

void sched_optional_recount(struct world *w) {
    for (uint32_t i = 0; i < w->rules.projects.len; i++)
        for (unsigned d = 0; w->rules.projects.at[i] && d < DIMS_MAX; d++)
            w->rules.projects.at[i]->optional_used[d] = 0;
    for (uint32_t i = 0; i < w->rules.qos.len; i++)
        if (w->rules.qos.at[i])
            w->rules.qos.at[i]->optional_gpu_milli = 0;
    for (uint32_t i = 0; i < w->optional.running.len; i++) {
        const struct world_job *j = w->optional.running.at[i];
        int64_t held[DIMS_MAX];
        sched_alloc_amounts(w, j->alloc, held);
        struct world_project *p = world_project_slot(w, j->request->asked.project);
        for (unsigned d = 0; d < w->cluster.dims; d++)
            p->optional_used[d] += held[d];
        struct world_qos *q = world_qos(w, j->request->asked.qos);
        if (q)
            q->optional_gpu_milli += (uint64_t)held[DIM_GPU];
    }
}

static void audit_node(const struct world_node *n) {
    const struct node_optional *o = n->optional;
    uint32_t cpus = 0, exclusive = 0, gpus[SCHED_GPUS_MAX] = {0};
    uint64_t memory = 0;
    for (uint32_t i = 0; o && i < o->jobs.len; i++) {
        const struct world_job *j = o->jobs.at[i];
        assert(j->optional && j->state != SCHED_JOB_PENDING && !j->leaves);
        exclusive += j->request->demand.exclusive;
        for (uint32_t k = 0; k < j->alloc->node_count; k++) {
            const struct sched_alloc_node *a = &j->alloc->nodes[k];
            if (a->node != n->id)
                continue;
            cpus += a->cpus;
            memory += a->memory_bytes;
            for (uint32_t g = 0; g < a->gpu_count; g++)
                if (a->gpus[g].index < n->gpu_count)
                    gpus[a->gpus[g].index] += a->gpus[g].milli;
        }
    }
    assert(!o || (o->cpus == cpus && o->memory == memory && o->exclusive == exclusive));
    for (uint32_t g = 0; g < n->gpu_count; g++)
        assert(n->gpus[g].optional_milli == gpus[g]);
}

void sched_optional_assert(const struct world *w) {
    // Everything below is kept up to date by differences elsewhere; here it is counted from the jobs.
    uint32_t waiting = 0, ending = 0;
    for (uint32_t i = 0; i < w->cluster.nodes.len; i++)
        if (w->cluster.nodes.at[i])
            audit_node(w->cluster.nodes.at[i]);
    for (uint32_t i = 0; i < w->optional.running.len; i++) {
        assert(w->optional.running.at[i]->run_slot == i && w->optional.running.at[i]->optional);
        ending += w->optional.running.at[i]->state == SCHED_JOB_ENDING;
    }
    assert(ending == w->optional.ending);
    for (uint32_t i = 0; i < w->optional.queues.len; i++) {
        const struct optional_queue *q = w->optional.queues.at[i];
        assert(q->slot == i && q->jobs.len);
        waiting += q->jobs.len;
        for (uint32_t k = 0; k < q->jobs.len; k++)
            assert(q->jobs.at[k]->queued && q->jobs.at[k]->request == q->request &&
                   q->jobs.at[k]->group == q->group && (!k || q->jobs.at[k - 1]->id < q->jobs.at[k]->id));
    }
    assert(waiting == w->optional.waiting && waiting <= w->optional.pending);
    int64_t used[DIMS_MAX] = {0}, sum[DIMS_MAX] = {0};
    uint32_t running = 0, pending = 0;
    for (uint32_t i = 0; i < w->rules.projects.len; i++) {
        const struct world_project *p = w->rules.projects.at[i];
        for (unsigned d = 0; p && d < w->cluster.dims; d++)
            used[d] += p->optional_used[d];
        running += p ? p->optional_running : 0;
        pending += p ? p->optional_pending : 0;
    }
    for (uint32_t i = 0; i < w->optional.running.len; i++) {
        int64_t held[DIMS_MAX];
        sched_alloc_amounts(w, w->optional.running.at[i]->alloc, held);
        for (unsigned d = 0; d < w->cluster.dims; d++)
            sum[d] += held[d];
    }
    assert(running == w->optional.running.len && pending == w->optional.pending);
    for (unsigned d = 0; d < w->cluster.dims; d++)
        assert(used[d] == sum[d]);
}

void sched_optional_clone(struct world *to, const struct world *w) {
    for (uint32_t i = 0; i < w->cluster.nodes.len; i++) {
        const struct world_node *n = w->cluster.nodes.at[i];
        if (!n || !n->optional || i >= to->cluster.nodes.len || !to->cluster.nodes.at[i])
            continue;
        struct world_node *c = to->cluster.nodes.at[i];
        if (!c->optional)
            c->optional = xcalloc(1, sizeof *c->optional);
        c->optional->rest_project = n->optional->rest_project;
        c->optional->rest_until_ms = n->optional->rest_until_ms;
    }
}

void sched_optional_free(struct world *w) {
    for (uint32_t i = 0; i < w->optional.queues.len; i++) {
        vec_done(&w->optional.queues.at[i]->jobs);
        free(w->optional.queues.at[i]);
    }
    for (uint32_t i = 0; i < w->cluster.nodes.len; i++) {
        struct world_node *n = w->cluster.nodes.at[i];
        if (n && n->optional) {
            vec_done(&n->optional->jobs);
            free(n->optional);
        }
    }
    vec_done(&w->optional.queues);
    vec_done(&w->optional.running);
}
