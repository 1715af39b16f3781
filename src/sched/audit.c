// world_assert: recomputes every index and sum from the jobs and compares. For tests and the fault simulator.
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "world_state.h"

#define MUST(cond, ...)                                                                                              \
    do {                                                                                                             \
        if (!(cond)) {                                                                                               \
            fprintf(stderr, "world: " __VA_ARGS__);                                                                  \
            fputc('\n', stderr);                                                                                     \
            assert(cond);                                                                                            \
        }                                                                                                            \
    } while (0)

static void audit_node(const struct world *w, const struct world_node *n) {
    uint32_t cpus = 0, exclusive = 0, gpus[SCHED_GPUS_MAX] = {0};
    uint64_t memory = 0;
    for (uint32_t i = 0; i < n->jobs.len; i++) {
        const struct world_job *j = n->jobs.at[i];
        MUST(j->state != SCHED_JOB_PENDING, "node %u lists job %" PRIu64 " that does not run", n->id, j->id);
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
    MUST(cpus == n->cpus_held && memory == n->memory_held && exclusive == n->exclusive,
         "node %u holds %u cpus, its jobs %u", n->id, n->cpus_held, cpus);
    MUST(n->cpus_free == (n->cpus > cpus ? n->cpus - cpus : 0), "node %u: free cpus %u", n->id, n->cpus_free);
    for (uint32_t g = 0; g < n->gpu_count; g++) {
        uint32_t want = n->gpus[g].usable && gpus[g] < SCHED_GPU ? SCHED_GPU - gpus[g] : 0;
        MUST(n->gpus[g].held_milli == gpus[g] && n->gpus[g].free_milli == want,
             "node %u GPU %u: held %u free %u, its jobs %u", n->id, g, n->gpus[g].held_milli, n->gpus[g].free_milli,
             gpus[g]);
    }
}

static void audit_queue(const struct world_project *p, uint32_t slot) {
    const struct world_request *r = p->queue.slots.at[slot].request;
    if (!r)
        return;
    MUST(r->project_slot == slot && r->queue.len, "project %u: request slot %u is wrong", p->id, slot);
    for (uint32_t i = 0; i < r->queue.len; i++) {
        const struct world_job *j = job_queue_at(&r->queue, i);
        MUST(j->queued && sched_job_option_in(j, r->asked.partition) == r && j->state == SCHED_JOB_PENDING,
             "job %" PRIu64 " queued wrongly", j->id);
        for (uint32_t k = 0; k < sched_job_options(j); k++) {
            const struct world_request *o = sched_job_option(j, k);
            MUST(o->queue.len == r->queue.len && job_queue_at(&o->queue, i) == j,
                 "job %" PRIu64 " is not in all its queues", j->id);
        }
        if (i > 0) {
            const struct world_job *b = job_queue_at(&r->queue, i - 1);
            MUST(b->submit_ms < j->submit_ms || (b->submit_ms == j->submit_ms && b->id < j->id),
                 "job %" PRIu64 " out of order", j->id);
        }
    }
}

static void audit_licenses(const struct world *w) {
    uint64_t *used = xcalloc(w->rules.licenses.len + 1, sizeof *used);
    for (uint32_t i = 0; i < w->jobs.running.len; i++) {
        const struct sched_request *q = &w->jobs.running.at[i]->request->asked;
        for (uint32_t k = 0; k < q->license_count; k++)
            used[q->licenses[k].license] += q->licenses[k].count;
    }
    for (uint32_t i = 0; i < w->rules.licenses.len; i++)
        MUST(used[i] == world_license_used(w, i), "license %u: %" PRIu64 " in use, its jobs hold %" PRIu64, i,
             world_license_used(w, i), used[i]);
    free(used);
}

void world_assert(const struct world *cw) {
    struct world *w = (struct world *)(uintptr_t)cw;  // counts are compared by counting again
    for (uint32_t i = 0; i < w->cluster.nodes.len; i++)
        if (w->cluster.nodes.at[i])
            audit_node(w, w->cluster.nodes.at[i]);
    for (uint32_t i = 0; i < w->cluster.whole_free.len; i++)
        MUST(w->cluster.whole_free.at[i] == (world_node(w, i) ? w->cluster.nodes.at[i]->whole_free : 0),
             "node %u: free GPUs were not kept up", i);
    sched_running_orders_assert(w);
    sched_optional_assert(w);
    audit_licenses(w);
    uint32_t pending = 0;
    int64_t(*used)[3][DIMS_MAX] = xcalloc(w->rules.projects.len + 1, sizeof *used);
    for (uint32_t i = 0; i < w->rules.projects.len; i++) {
        const struct world_project *p = w->rules.projects.at[i];
        if (!p)
            continue;
        uint32_t count = 0;
        for (uint32_t k = 0; k < p->queue.slots.len; k++) {
            audit_queue(p, k);
            count += p->queue.slots.at[k].request != NULL;
        }
        MUST(count == p->queue.count, "project %u has %u requests, its turns say %u", p->id, count, p->queue.count);
        pending += p->pending;
        memcpy(used[i][0], p->used, sizeof p->used);
        memcpy(used[i][1], p->used_nonpreemptible, sizeof p->used_nonpreemptible);
        memcpy(used[i][2], p->queued, sizeof p->queued);
    }
    MUST(pending == w->jobs.pending, "%u jobs pending, projects say %u", w->jobs.pending, pending);
    MUST(w->jobs.by_id.len ==
             (size_t)w->jobs.pending + w->jobs.running.len + w->optional.pending + w->optional.running.len,
         "%zu jobs known, %u pending and %u running", w->jobs.by_id.len, w->jobs.pending,
         w->jobs.running.len);
    int64_t capacity[DIMS_MAX];
    memcpy(capacity, w->cluster.capacity, sizeof capacity);
    sched_nodes_recount_capacity(w);
    MUST(!memcmp(capacity, w->cluster.capacity, sizeof capacity), "capacity was not kept up");
    world_recount(w);
    for (uint32_t i = 0; i < w->rules.projects.len; i++) {
        const struct world_project *p = w->rules.projects.at[i];
        MUST(!p || (!memcmp(used[i][0], p->used, sizeof p->used) &&
                    !memcmp(used[i][1], p->used_nonpreemptible, sizeof p->used_nonpreemptible) &&
                    !memcmp(used[i][2], p->queued, sizeof p->queued)),
             "project %u: counts were not kept up", i);
    }
    free(used);
}
