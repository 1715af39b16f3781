// Invariants: every index and every sum of the state is checked against what it is derived from.
#include <stdio.h>
#include <stdlib.h>

#include "state.h"
#include "volume_use.h"

static void check(bool right, const char *what, uint64_t id) {
    if (!right) {
        fprintf(stderr, "core_assert: %s (job or node %llu)\n", what, (unsigned long long)id);
        abort();
    }
}

void core_assert(const struct core *c) {
    uint64_t by_state[JOB_STATE_COUNT] = {0}, live = 0;
    for (uint32_t i = 0; i < c->order.len; i++) {
        const struct core_job *j = c->order.at[i].job;
        if (!j)
            continue;
        live++;
        // Workers are jobs inside, and one job with the others to people: they are not counted.
        by_state[j->state] += !core_is_worker(j);
        struct sched_job_view v;
        check(core_find_job(c, j->id) == j, "indexed", j->id);
        check((j->run != NULL) == job_state_holds_resources((enum job_state)j->state),
              "has a run while it holds resources", j->id);
        if (core_is_worker(j)) {
            check(core_group_job(c, j) != NULL, "a worker of a live job", j->id);
            check(core_worker_of(j)->id == j->id && !(core_worker_of(j)->flags & GROUP_LEFT),
                  "among its job's workers", j->id);
            check(world_job(c->world, j->id, &v) == core_worker_in_world(c, j),
                  "a worker known to the scheduler", j->id);
            if (!core_worker_in_world(c, j))
                continue;
        }
        check(world_job(c->world, j->id, &v), "known to the scheduler", j->id);
        check((v.state == SCHED_JOB_PENDING) == (j->state == JOB_PENDING),
              "in the same state for the scheduler", j->id);
    }
    check(core_texts_add_up(c), "texts counted once for each user", c->texts.len);
    check(core_saved_adds_up(c), "what is saved counted once for each owner", c->saved_bytes);
    check(core_secrets_add_up(c), "secrets counted once for each owner", c->secrets.len);
    check(core_volumes_add_up(c), "no volume is gone that a job has", c->volumes.len);
    check(core_users_add_up(c), "each identity and Unix user belongs to one account", c->accounts.len);
    check(core_keys_add_up(c), "idempotency keys counted once for each user", c->keys.list.len);
    check(live == c->jobs.len, "as many jobs in order as indexed", live);
    uint64_t uncreated = 0;
    for (uint32_t i = 0; i < c->unfinished.len; i++)
        uncreated += c->unfinished.at[i]->count - c->unfinished.at[i]->created;
    check(uncreated == c->uncreated, "elements to be created counted", uncreated);
    for (int s = 0; s < JOB_COMPLETED; s++)
        check(by_state[s] == c->counts.by_state[s], "counted by state", (uint64_t)s);
    for (uint32_t i = 0; i < c->node_list.len; i++) {
        const struct node_entry *n = c->node_list.at[i];
        uint64_t cpus = 0, memory = 0, gpus[SCHED_GPUS_MAX] = {0}, optional[SCHED_GPUS_MAX] = {0};
        for (uint32_t k = 0; k < n->jobs.len; k++) {
            const struct run_part *p = core_part_on(n->jobs.at[k], n->name);
            check(p && !p->ended, "holds its part", n->jobs.at[k]->id);
            check(n->state != NODE_DOWN, "not on a node that is down", n->jobs.at[k]->id);
            cpus += p->cpus;
            memory += p->memory_bytes;
            for (uint32_t g = 0; g < p->gpu_count; g++)
                *(core_is_optional(n->jobs.at[k]) ? &optional[p->gpus[g].index] : &gpus[p->gpus[g].index]) +=
                    p->gpus[g].milli;
        }
        check(cpus == n->cpus_used && memory == n->memory_used_bytes, "node use adds up", n->handle);
        if (n->removed || !n->node)
            continue;
        for (uint32_t g = 0; g < SCHED_GPUS_MAX; g++)
            // Counted apart: an optional worker that is being ended may overlap for a moment with the job it makes
            // room for.
            check(gpus[g] <= 1000 && optional[g] <= 1000, "no GPU granted more than once", n->handle);
    }
    world_assert(c->world);
}
