// Owns the audit: every index recomputed from the jobs and compared. For tests and the fault
// simulator; costs a pass over everything.
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

#define MUST(cond, ...)                       \
    do {                                      \
        if (!(cond)) {                        \
            fprintf(stderr, "world: " __VA_ARGS__); \
            fputc('\n', stderr);              \
            assert(cond);                     \
        }                                     \
    } while (0)

static void audit_node(const struct world *w, const struct node *n) {
    uint32_t cpus = 0, exclusive = 0, gpus[SCHED_GPUS_MAX] = {0};
    uint64_t memory = 0;
    for (uint32_t i = 0; i < n->jobs.len; i++) {
        const struct job *j = n->jobs.at[i];
        MUST(j->state != SCHED_JOB_PENDING, "node %u lists job %" PRIu64 " that does not run", n->id, j->id);
        exclusive += j->request->demand.exclusive;
        for (uint32_t k = 0; k < j->alloc->node_count; k++) {
            const struct alloc_node *a = &j->alloc->nodes[k];
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
             "node %u GPU %u: held %u free %u, its jobs %u", n->id, g, n->gpus[g].held_milli,
             n->gpus[g].free_milli, gpus[g]);
    }
}

static void audit_queue(const struct project *p, uint32_t slot) {
    const struct request *r = p->turns.slots.at[slot].request;
    if (!r)
        return;
    MUST(r->project_slot == slot && r->head < r->queue.len, "project %u: request slot %u is wrong", p->id, slot);
    for (uint32_t i = r->head; i < r->queue.len; i++) {
        const struct job *j = r->queue.at[i];
        MUST(j->queued && job_option_in(j, r->asked.partition) == r && j->state == SCHED_JOB_PENDING,
             "job %" PRIu64 " queued wrongly", j->id);
        for (uint32_t k = 0; k < job_options(j); k++) {
            const struct request *o = job_option(j, k);
            MUST(o->queue.len - o->head == r->queue.len - r->head && o->queue.at[o->head + i - r->head] == j,
                 "job %" PRIu64 " is not in all its queues", j->id);
        }
        if (i > r->head) {
            const struct job *b = r->queue.at[i - 1];
            MUST(b->submit_ms < j->submit_ms || (b->submit_ms == j->submit_ms && b->id < j->id),
                 "job %" PRIu64 " out of order", j->id);
        }
    }
}

void world_assert(const struct world *cw) {
    struct world *w = (struct world *)(uintptr_t)cw;  // counts are compared by counting again
    for (uint32_t i = 0; i < w->nodes.len; i++)
        if (w->nodes.at[i])
            audit_node(w, w->nodes.at[i]);
    for (uint32_t i = 0; i < w->whole_free.len; i++)
        MUST(w->whole_free.at[i] == (world_node(w, i) ? w->nodes.at[i]->whole_free : 0),
             "node %u: free GPUs were not kept up", i);
    ends_assert(w);
    uint32_t pending = 0;
    int64_t(*used)[3][DIMS_MAX] = xcalloc(w->projects.len + 1, sizeof *used);
    for (uint32_t i = 0; i < w->projects.len; i++) {
        const struct project *p = w->projects.at[i];
        if (!p)
            continue;
        uint32_t count = 0;
        for (uint32_t k = 0; k < p->turns.slots.len; k++) {
            audit_queue(p, k);
            count += p->turns.slots.at[k].request != NULL;
        }
        MUST(count == p->turns.count, "project %u has %u requests, its turns say %u", p->id, count, p->turns.count);
        pending += p->pending;
        memcpy(used[i][0], p->used, sizeof p->used);
        memcpy(used[i][1], p->fixed, sizeof p->fixed);
        memcpy(used[i][2], p->queued, sizeof p->queued);
    }
    MUST(pending == w->pending, "%u jobs pending, projects say %u", w->pending, pending);
    MUST(w->jobs.len == (size_t)w->pending + w->running.len, "%zu jobs known, %u pending and %u running",
         w->jobs.len, w->pending, w->running.len);
    int64_t capacity[DIMS_MAX];
    memcpy(capacity, w->capacity, sizeof capacity);
    nodes_recount_capacity(w);
    MUST(!memcmp(capacity, w->capacity, sizeof capacity), "capacity was not kept up");
    world_recount(w);
    for (uint32_t i = 0; i < w->projects.len; i++) {
        const struct project *p = w->projects.at[i];
        MUST(!p || (!memcmp(used[i][0], p->used, sizeof p->used) && !memcmp(used[i][1], p->fixed, sizeof p->fixed) &&
                    !memcmp(used[i][2], p->queued, sizeof p->queued)),
             "project %u: counts were not kept up", i);
    }
    free(used);
}
