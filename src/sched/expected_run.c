// Expected run times. Time limits are several times too long on real clusters, but who submits the same kind of job
// again usually sees it run for the same time: a job is expected to run as long as the latest job of the same user,
// project, size and time limit. This decides the order only; planned starts and backfill go by the limits, so that a
// wrong guess delays nobody.
//
// Each user of a project has room for a fixed number of shapes; the one whose jobs ended longest ago makes room for a
// new one. So memory is bounded and nobody can push out what is known of others.
#include "expected_run.h"

#include <string.h>

#include "world_state.h"

// The same on every machine and in every release: it is kept in snapshots.
static uint64_t mix(uint64_t hash, uint64_t value) {
    for (unsigned i = 0; i < sizeof value; i++)
        hash = (hash ^ (value >> (8 * i) & 0xff)) * 0x100000001b3;
    return hash;
}

// What does not depend on the partition: the options of a choice have the same.
static uint64_t shape_of(const struct world_request *r) {
    const struct sched_demand *d = &r->demand;
    uint64_t hash = 0xcbf29ce484222325;
    hash = mix(hash, d->nodes_min);
    hash = mix(hash, d->tasks);
    hash = mix(hash, d->cpus_task);
    hash = mix(hash, r->gpu_milli);
    return mix(hash, (uint64_t)r->asked.time_limit_ms);
}

int64_t sched_expected_run_ms(const struct world_request *r, int64_t limit_ms) {
    const struct run_history *h = r->user ? r->user->runs : NULL;
    if (!h)
        return limit_ms;
    uint64_t shape = shape_of(r);
    for (uint32_t i = 0; i < h->count; i++) {
        const struct sched_run_shape *s = &h->at[i];
        if (s->shape != shape)
            continue;
        return s->run_s < (uint64_t)limit_ms / 1000 ? (int64_t)s->run_s * 1000 : limit_ms;
    }
    return limit_ms;
}

static struct run_history *history_of(struct world_user *u) {
    if (!u->runs)
        u->runs = xcalloc(1, sizeof *u->runs);
    return u->runs;
}

static void put_first(struct run_history *h, uint32_t from, struct sched_run_shape s) {
    memmove(h->at + 1, h->at, from * sizeof *h->at);
    h->at[0] = s;
}

// A job that was asked to end before its limit says nothing about how long it would have run.
void sched_run_learn(struct world *w, const struct world_job *j, int64_t now_ms) {
    int64_t ran_ms = now_ms - j->start_ms;
    if (ran_ms < 0 || (j->state == SCHED_JOB_ENDING && (j->ending_for || ran_ms < j->limit_ms)))
        return;
    struct world_user *u =
        sched_user_slot(&w->usage.users, j->request->asked.project, j->request->asked.user);
    struct run_history *h = history_of(u);
    struct sched_run_shape s = {.shape = shape_of(j->request), .run_s = (uint64_t)ran_ms / 1000};
    uint32_t i = 0;
    while (i < h->count && h->at[i].shape != s.shape)
        i++;
    if (i == h->count && h->count < SCHED_RUN_SHAPES_MAX)
        h->count++;
    i = i < h->count ? i : h->count - 1;
    put_first(h, i, s);
    u->runs_version = ++w->usage.runs_version;
}

uint32_t world_runs_kept(const struct world *w, uint32_t project, uint32_t user,
                         struct sched_run_shape out[static SCHED_RUN_SHAPES_MAX]) {
    const struct world_user *u = map_get(&w->usage.users, (uint64_t)project << 32 | user);
    for (uint32_t i = 0; u && u->runs && i < u->runs->count; i++)
        out[i] = u->runs->at[i];
    return u && u->runs ? u->runs->count : 0;
}

void world_runs_set(struct world *w, uint32_t project, uint32_t user, const struct sched_run_shape *shapes,
                    uint32_t count) {
    struct world_user *u = sched_user_slot(&w->usage.users, project, user);
    struct run_history *h = history_of(u);
    h->count = count < SCHED_RUN_SHAPES_MAX ? count : SCHED_RUN_SHAPES_MAX;
    for (uint32_t i = 0; i < h->count; i++)
        h->at[i] = shapes[i];
    u->runs_version = ++w->usage.runs_version;
}
