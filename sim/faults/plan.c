// Makes the plan of a seed. Two runs of one seed are equal; seeds differ in size, in how many faults there are and in
// their kinds: some have a few kinds only, some all.
#include "plan.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/rand.h"
#include "model/feature.h"

static const struct {
    const char *word;
    uint32_t weight;  // of the kinds that are chosen at random
} kinds[ITEM_COUNT] = {
    [ITEM_SUBMIT] = {"submit", 0},
    [ITEM_CANCEL] = {"cancel", 14},
    [ITEM_HOLD] = {"hold", 3},
    [ITEM_RELEASE] = {"release", 3},
    [ITEM_REQUEUE] = {"requeue", 6},
    [ITEM_SUSPEND] = {"suspend", 3},
    [ITEM_RESUME] = {"resume", 3},
    [ITEM_SIGNAL] = {"signal", 2},
    [ITEM_UPDATE] = {"update", 4},
    [ITEM_STEP] = {"step", 3},
    [ITEM_DRAIN] = {"drain", 3},
    [ITEM_UNDRAIN] = {"undrain", 4},
    [ITEM_QUOTA] = {"quota", 3},
    [ITEM_PROJECT_DELETE] = {"project-delete", 2},
    [ITEM_PARTITION_DOWN] = {"partition-down", 1},
    [ITEM_RESERVATION] = {"reservation", 1},
    [ITEM_QOS] = {"qos", 2},
    [ITEM_POLICY] = {"policy", 3},
    [ITEM_NODE_REMOVE] = {"node-remove", 3},
    [ITEM_TOKEN] = {"token", 4},
    [ITEM_HEAD_KILL] = {"controller-kill", 12},
    [ITEM_HEAD_STOP] = {"controller-stop", 2},
    [ITEM_HEAD_UPGRADE] = {"controller-upgrade", 2},
    [ITEM_HEAD_SNAPSHOT] = {"controller-snapshot", 5},
    [ITEM_DISK_FAIL] = {"disk-fail", 5},
    [ITEM_DISK_SLOW] = {"disk-slow", 4},
    [ITEM_DISK_FULL] = {"disk-full", 2},
    [ITEM_HEAD_CLOCK] = {"controller-clock", 2},
    [ITEM_HEAD_STALL] = {"controller-stall", 4},
    [ITEM_AGENT_KILL] = {"agent-kill", 10},
    [ITEM_REBOOT] = {"reboot", 6},
    [ITEM_POWER_OFF] = {"power-off", 4},
    [ITEM_GONE] = {"gone-for-good", 1},
    [ITEM_IDENTITY] = {"identity", 2},
    [ITEM_SHEPHERD_KILL] = {"shepherd-kill", 4},
    [ITEM_SPOOL_FULL] = {"spool-full", 4},
    [ITEM_NODE_CLOCK] = {"node-clock", 2},
    [ITEM_GPU] = {"gpu-breaks-or-heals", 3},
    [ITEM_BREAK] = {"break", 10},
    [ITEM_HALF_OPEN] = {"half-open", 4},
    [ITEM_CUT_UP] = {"cut-up", 5},
    [ITEM_CUT_DOWN] = {"cut-down", 5},
    [ITEM_CUT] = {"cut", 6},
    [ITEM_SLOW] = {"slow", 4},
    [ITEM_CORRUPT] = {"corrupt", 3},
    [ITEM_REPEAT] = {"repeat", 5},
    [ITEM_HEAD_RESTORE] = {"controller-restore", 0},
    [ITEM_HOLDER] = {"client-of-allocation", 0},
    [ITEM_LEVEL] = {"finish-upgrade", 0},
    [ITEM_RESIZE] = {"resize", 0},
    [ITEM_RANK] = {"rank-workers", 0},
    [ITEM_ACCOUNT] = {"account", 0},
    [ITEM_LOGIN] = {"login", 0},
    [ITEM_PORT] = {"client-of-port", 0},
    [ITEM_LOG] = {"client-of-output", 0},
    [ITEM_PROVIDER] = {"provider", 0},
    [ITEM_HEAD_PAUSE] = {"controller-pause", 0},
    [ITEM_HEAD_PAUSE_SENDING] = {"controller-pause-sending", 0},
    [ITEM_HEAD_CUT] = {"controller-cut", 0},
    [ITEM_HAND_OVER] = {"hand-over", 0},
    [ITEM_DB_AWAY] = {"database-away", 0},
    [ITEM_DB_CUT] = {"database-cut", 0},
    [ITEM_DB_SLOW] = {"database-slow", 0},
    [ITEM_DB_FULL] = {"database-full", 0},
    [ITEM_DB_CLOCK] = {"database-clock", 0},
    [ITEM_DB_ANSWER] = {"answer-lost", 0},
    [ITEM_DB_RESTORE] = {"database-restore", 0},
};

const char *item_word(enum item_kind kind) {
    return kinds[kind].word;
}

void item_print(const struct item *it, uint32_t number, char *out, size_t size) {
    const struct job_shape *j = it->job;
    if (j)
        snprintf(
            out, size,
            "#%u at %lld ms: submit (%u nodes, %u cpus, %u milligpu, array %u%%%u, workers %u-%u of %u%s, %u "
            "ms%s%s%s%s%s)",
            number, (long long)it->at_ms, j->nodes, j->cpus, j->gpus_milli, j->array, j->array_limit,
            j->workers_min, j->workers_max, j->components, j->head ? " with head" : "", j->behaviour.run_ms,
            j->requeue ? ", requeue" : "", j->hold ? ", held" : "", j->dependency ? ", dependent" : "",
            j->lease_s ? ", allocation" : "", j->checkpoint ? ", checkpoint" : "");
    else
        snprintf(out, size, "#%u at %lld ms: %s (node %u, job of #%u, %lld ms, %u)", number,
                 (long long)it->at_ms, kinds[it->kind].word, it->node, it->target, (long long)it->for_ms,
                 it->amount);
}

static bool one_in(struct rand *r, uint32_t n) {
    return rand_below(r, n) == 0;
}

static uint32_t between(struct rand *r, uint32_t low, uint32_t high) {
    return (uint32_t)rand_between(r, low, high);
}

static void shape_cluster(struct plan *p, struct rand *r) {
    p->machine_count = one_in(r, 6) ? 1 : between(r, 2, one_in(r, 5) ? PLAN_MACHINES_MAX : 4);
    bool alike = one_in(r, 2);
    for (uint32_t i = 0; i < p->machine_count; i++) {
        struct machine_shape *m = &p->machines[i];
        *m = alike && i ? p->machines[0]
                        : (struct machine_shape){.cpus = between(r, 1, 6),
                                                 .gpus = one_in(r, 3) ? 0 : between(r, 1, GPUS_MAX),
                                                 .memory_bytes = 16ull << 30};
        m->keeps_spool = one_in(r, 2);
        m->drift_ppm = one_in(r, 3) ? (int32_t)rand_between(r, -2000, 2000) : 0;
    }
}

static void shape_settings(struct plan *p, struct rand *r) {
    sched_policy_default(&p->policy);
    p->policy.order = one_in(r, 4) ? POLICY_ORDER_FCFS : POLICY_ORDER_FAIR;
    p->policy.backfill = (enum policy_backfill)rand_below(r, 3);
    p->policy.placement = (enum policy_placement)rand_below(r, 4);
    p->policy.reclaim = !one_in(r, 3);
    p->policy.grace_ms = rand_between(r, 1, 10) * 1000;
    p->policy.min_runtime_ms = rand_between(r, 0, 5) * 1000;
    p->heartbeat_s = between(r, 2, 10);
    p->lost_after_s = p->heartbeat_s * between(r, 3, 5);
    p->grace_s = between(r, 1, 8);
    p->max_attempts = one_in(r, 5) ? 2 : 100;
    p->latency_ms = one_in(r, 4) ? between(r, 5, 200) : between(r, 1, 4);
    p->snapshot_every = one_in(r, 3) ? 1000000 : between(r, 3, 120);
    p->disk = (struct sim_disk_faults){.commit_ms_min = 1, .commit_ms_max = between(r, 1, 8), .slow_ms = 20};
    if (one_in(r, 3)) {
        p->disk.slow_permille = between(r, 1, 50);
        p->disk.slow_ms = between(r, 20, 3000);
    }
    if (one_in(r, 3))
        p->disk.rot_permille = between(r, 1, 400);
    if (one_in(r, 6))
        p->disk.unreadable_permille = between(r, 50, 600);
    if (one_in(r, 4))
        p->disk.fail_permille = between(r, 1, 30);
}

static void shape_behaviour(struct behaviour *b, struct rand *r) {
    *b = (struct behaviour){.run_ms = between(r, 1, 20000)};
    if (one_in(r, 4))
        b->run_ms = between(r, 1, 60);
    if (one_in(r, 10))
        b->run_ms = between(r, 20000, 90000);
    if (one_in(r, 20))
        b->run_ms = FOREVER_MS;
    if (one_in(r, 4))
        b->exit_code = (int32_t)rand_between(r, 1, 3);
    b->ignores_term = one_in(r, 5);
    if (one_in(r, 5))
        b->late_ms = between(r, 10, 20000);
    if (one_in(r, 6))
        b->leftover_ms = between(r, 1, 8000);
    b->oom = one_in(r, 25);
}

static struct job_shape *shape_job(const struct plan *p, struct rand *r, uint32_t number) {
    struct job_shape *j = xcalloc(1, sizeof *j);
    const struct machine_shape *like = &p->machines[rand_below(r, p->machine_count)];
    *j = (struct job_shape){.cpus = between(r, 1, like->cpus),
                            .tasks = 1,
                            .nodes = 1,
                            .project = (uint32_t)rand_below(r, PROJECTS),
                            .user = (uint32_t)rand_below(r, 3),
                            .requeue = !one_in(r, 4),
                            .keyed = !one_in(r, 5)};
    if (like->gpus && !one_in(r, 3))
        j->gpus_milli = one_in(r, 2) ? between(r, 1, 9) * 100 : between(r, 1, like->gpus) * 1000;
    if (p->machine_count > 1 && one_in(r, 5)) {
        j->nodes = between(r, 2, p->machine_count);
        j->tasks = j->nodes;
        j->cpus = 1;
        j->gpus_milli = 0;
        j->launch_tasks = one_in(r, 2);
    }
    if (j->nodes == 1 && one_in(r, 6)) {
        j->array = between(r, 1, 6);
        j->array_limit = one_in(r, 2) ? between(r, 1, 3) : 0;
    }
    if (number && one_in(r, 6)) {
        j->dependency = (enum job_dependency)between(r, 1, DEPEND_COUNT - 1);
        j->depends_on = (uint32_t)rand_below(r, number);
    }
    j->hold = one_in(r, 15);
    j->qos = one_in(r, 5) ? between(r, 1, 2) : 0;
    bool fits = j->nodes == 1 && j->cpus <= p->machines[0].cpus && j->gpus_milli <= p->machines[0].gpus * 1000;
    static const char *const partitions[8] = {"small", "small,main", "main,small"};
    j->partition = partitions[rand_below(r, 8)];
    if (!fits && j->partition == partitions[0])
        j->partition = NULL;
    j->interactive = one_in(r, 12);
    if (one_in(r, 6))
        j->time_limit_s = between(r, 1, 20);
    if (one_in(r, 3))
        j->grace_s = between(r, 1, 5);
    if (one_in(r, 15))
        j->begin_after_ms = rand_between(r, 1, 30000);
    if (one_in(r, 15))
        j->deadline_after_ms = rand_between(r, 1000, 60000);
    shape_behaviour(&j->behaviour, r);
    return j;
}

// A seed takes a random handful of kinds more seriously than the rest, so that they meet.
static void choose_weights(struct rand *r, uint32_t weights[ITEM_RANDOM_COUNT], bool calm) {
    for (int k = 0; k < ITEM_RANDOM_COUNT; k++) {
        weights[k] = kinds[k].weight;
        if (calm && k >= ITEM_HEAD_KILL)
            weights[k] = 0;
    }
    if (calm || one_in(r, 3))
        return;
    for (int k = ITEM_CANCEL; k < ITEM_RANDOM_COUNT; k++)
        weights[k] *= one_in(r, 3) ? 6 : one_in(r, 3) ? 0 : 1;
}

static enum item_kind choose(struct rand *r, const uint32_t weights[ITEM_RANDOM_COUNT]) {
    uint64_t sum = 0;
    for (int k = 0; k < ITEM_RANDOM_COUNT; k++)
        sum += weights[k];
    if (!sum)
        return ITEM_CANCEL;
    uint64_t at = rand_below(r, sum);
    int k = 0;
    while (at >= weights[k])
        at -= weights[k++];
    return (enum item_kind)k;
}

static int64_t duration(struct rand *r, enum item_kind kind, const struct plan *p) {
    switch (kind) {
    case ITEM_HEAD_KILL:
    case ITEM_HEAD_STOP:
    case ITEM_HEAD_UPGRADE: return one_in(r, 6) ? rand_between(r, 5000, 90000) : rand_between(r, 1, 4000);
    case ITEM_AGENT_KILL: return one_in(r, 5) ? rand_between(r, 5000, 60000) : rand_between(r, 1, 2000);
    case ITEM_HEAD_STALL: return rand_between(r, 5000, (int64_t)p->lost_after_s * 3000);
    case ITEM_REBOOT: return rand_between(r, 500, 40000);
    case ITEM_POWER_OFF: return rand_between(r, 5000, 120000);
    case ITEM_HEAD_CLOCK:
    case ITEM_NODE_CLOCK: return rand_between(r, -1, 1) * rand_between(r, 1, 7200000);
    // Cuts around the time-outs are where both sides disagree.
    case ITEM_CUT:
    case ITEM_CUT_UP:
    case ITEM_CUT_DOWN:
    case ITEM_SLOW:
        return one_in(r, 2) ? rand_between(r, 1, 5000) : rand_between(r, 1, (int64_t)p->lost_after_s * 2000);
    default: return rand_between(r, 100, 20000);
    }
}

static int by_time(const void *a, const void *b) {
    const struct item *x = a, *y = b;
    return x->at_ms < y->at_ms ? -1 : x->at_ms > y->at_ms;
}

// One seed in six puts older copies of the controller's state back. They come on top: the rest of the plan is
// what it would be without them.
bool run_plan_restores = true;

static bool add_restores(struct plan *p, uint64_t seed, int64_t length) {
    struct rand r;
    if (!run_plan_restores)
        return false;
    rand_seed(&r, seed ^ 0x7e570e);
    if (!one_in(&r, 6))
        return false;
    p->level = FEATURE_LEVEL_NEWEST;  // a journal without epochs cannot notice that it is an older copy
    for (uint32_t n = between(&r, 1, 3); n; n--) {
        struct item it = {.at_ms = rand_between(&r, length / 8, length),
                          .kind = ITEM_HEAD_RESTORE,
                          .amount = one_in(&r, 3) ? between(&r, 1, 400) : between(&r, 1, 40),
                          .for_ms = rand_between(&r, 1, 5000)};
        vec_push(&p->items, it);
        if (it.at_ms + it.for_ms > p->last_ms)
            p->last_ms = it.at_ms + it.for_ms;
    }
    return true;
}

// Some clusters have agents that were not upgraded yet. They cannot tell a restore.
static void choose_older(struct plan *p, uint64_t seed, bool restores) {
    struct rand r;
    rand_seed(&r, seed ^ 0x01de5);
    for (uint32_t i = 0; i < p->machine_count && !restores; i++)
        p->machines[i].older = one_in(&r, 12);
}

// Some clusters were upgraded from a release between the first and this one, and most of them finish that one day.
static void choose_level(struct plan *p, uint64_t seed, int64_t length) {
    struct rand r;
    rand_seed(&r, seed ^ 0x1e7e1);
    if (p->level < FEATURE_LEVEL_NEWEST || !one_in(&r, 5))
        return;
    p->level = between(&r, FEATURE_LEVEL_FIRST + 1, FEATURE_LEVEL_NEWEST - 1);
    if (!one_in(&r, 3))
        vec_push(&p->items, ((struct item){.at_ms = rand_between(&r, 0, length), .kind = ITEM_LEVEL}));
}

static void shape_allocation(struct job_shape *j, struct rand *r) {
    j->lease_s = between(r, 5, 40);
    j->array = j->array_limit = 0;
    j->requeue = false;
    j->launch_tasks = false;
    j->time_limit_s = 0;
    j->behaviour.run_ms = FOREVER_MS;
    j->behaviour.leftover_ms = 0;
    j->behaviour.oom = false;
}

static void add_item(struct plan *p, struct rand *r, enum item_kind kind, int64_t at_ms, uint32_t target) {
    struct item it = {.at_ms = at_ms, .kind = kind, .target = target};
    it.node = (uint32_t)rand_below(r, p->machine_count);
    it.pick = (uint32_t)rand_below(r, 6);
    it.amount = (uint32_t)rand_below(r, 1000);
    it.for_ms = kind == ITEM_HOLDER ? rand_between(r, 1, 80000) : rand_between(r, 1, 15000);
    vec_push(&p->items, it);
}

// Allocations, steps, checkpoints and journals of the release before: drawn apart, so that the rest of the plan is
// what it would be without them.
static void add_steps(struct plan *p, uint64_t seed, int64_t length) {
    struct rand r;
    uint32_t count = p->items.len;
    rand_seed(&r, seed ^ 0x57e95);
    bool many = one_in(&r, 3);
    p->level = one_in(&r, 5) ? FEATURE_LEVEL_FIRST : FEATURE_LEVEL_NEWEST;
    for (uint32_t i = 0; i < count; i++) {
        struct job_shape *j = p->items.at[i].job;
        int64_t from = p->items.at[i].at_ms;
        if (!j)
            continue;
        j->checkpoint = j->requeue && one_in(&r, 4);
        if (j->checkpoint && many) {  // they are preempted by what comes later
            j->qos = 2;
            j->behaviour.run_ms = between(&r, 20000, 90000);
        } else if (many && one_in(&r, 3)) {
            j->qos = 1;
        }
        j->behaviour.checkpoint_ms = one_in(&r, 4) ? between(&r, 5000, 30000) : between(&r, 1, 3000);
        if (one_in(&r, many ? 4 : 12)) {
            shape_allocation(j, &r);
            for (uint32_t n = between(&r, 0, 2); n; n--)
                add_item(p, &r, ITEM_HOLDER, rand_between(&r, from, length + 1), i);
        }
        if (one_in(&r, 10)) {  // stopped for a while
            int64_t at = from + rand_between(&r, 1, 10000);
            add_item(p, &r, ITEM_SUSPEND, at, i);
            add_item(p, &r, ITEM_RESUME, at + rand_between(&r, 1, 20000), i);
        }
        for (uint32_t n = one_in(&r, many ? 2 : 6) ? between(&r, 1, 4) : 0; n; n--)
            add_item(p, &r, ITEM_STEP, from + rand_between(&r, 0, one_in(&r, 2) ? 3000 : 30000), i);
    }
    if (p->level == FEATURE_LEVEL_FIRST && one_in(&r, 2))
        add_item(p, &r, ITEM_LEVEL, rand_between(&r, 0, length), 0);
}

// Elastic jobs and what is done to them; drawn apart as well.
static void add_elastic(struct plan *p, uint64_t seed, int64_t length) {
    struct rand r;
    uint32_t count = p->items.len;
    rand_seed(&r, seed ^ 0xe1a57);
    if (one_in(&r, 3))
        return;
    bool many = one_in(&r, 2);
    for (uint32_t i = 0; i < count; i++) {
        struct job_shape *j = p->items.at[i].job;
        int64_t from = p->items.at[i].at_ms;
        if (!j || j->nodes > 1 || j->array || j->lease_s || !one_in(&r, many ? 2 : 8))
            continue;
        j->workers_min = between(&r, 1, 3);
        j->workers_max = j->workers_min + (uint32_t)rand_below(&r, 5);
        j->on_worker_end = (enum worker_end)rand_below(&r, WORKER_END_COUNT);
        j->cpus = between(&r, 1, 2);
        j->gpus_milli = j->gpus_milli > 1000 ? 1000 : j->gpus_milli;
        j->launch_tasks = false;
        if (one_in(&r, 3))
            j->behaviour.run_ms = FOREVER_MS;
        for (uint32_t n = one_in(&r, 2) ? between(&r, 1, 3) : 0; n; n--)
            add_item(p, &r, one_in(&r, 3) ? ITEM_RANK : ITEM_RESIZE, rand_between(&r, from, length + 1), i);
    }
}

// Some elastic jobs have several kinds of workers; drawn apart as well.
static void add_components(struct plan *p, uint64_t seed) {
    struct rand r;
    struct rand none;
    rand_seed(&r, seed ^ 0xc0317);
    rand_seed(&none, seed ^ 0x2e40);
    for (uint32_t i = 0; i < p->items.len; i++) {
        struct job_shape *j = p->items.at[i].job;
        if (!j || !j->workers_max || !one_in(&r, 3))
            continue;
        j->components = between(&r, 2, 3);
        j->head = one_in(&r, 2);
        if (j->head && one_in(&none, 4))
            j->workers_min = 0;
    }
}

// Jobs that are run again when they failed, components of several heads, and workers on several nodes.
static void add_retries(struct plan *p, uint64_t seed) {
    struct rand r;
    rand_seed(&r, seed ^ 0x2ead5);
    for (uint32_t i = 0; i < p->items.len; i++) {
        struct job_shape *j = p->items.at[i].job;
        if (!j)
            continue;
        j->retries = one_in(&r, 5) ? between(&r, 1, 3) : 0;
        j->backoff_s = one_in(&r, 2) ? between(&r, 1, 10) : 0;
        j->heads = one_in(&r, 2) ? 2 : 1;
        j->wide = p->machine_count > 1 && one_in(&r, 2);
    }
}

// Jobs with a total of GPUs that their nodes can share only unevenly; drawn apart as well.
static void add_totals(struct plan *p, uint64_t seed) {
    struct rand r;
    uint32_t with[GPUS_MAX + 1] = {0};  // machines by their number of GPUs
    rand_seed(&r, seed ^ 0x707a1);
    for (uint32_t i = 0; i < p->machine_count; i++)
        with[p->machines[i].gpus]++;
    for (uint32_t i = 0; i < p->items.len; i++) {
        struct job_shape *j = p->items.at[i].job;
        uint32_t nodes = 0, most = 0;
        for (uint32_t g = GPUS_MAX; j && g; g--)  // of the machines that have most
            for (uint32_t n = with[g]; n && nodes < j->nodes; n--, nodes++)
                most += g;
        if (!j || j->nodes == 1 || nodes < j->nodes || one_in(&r, 2))
            continue;
        uint32_t total = between(&r, nodes, most);
        j->gpus_milli = (total % nodes ? total : nodes) * 1000;  // what divides is divided evenly
    }
}

// Accounts and logins; drawn apart as well.
static void add_accounts(struct plan *p, uint64_t seed, int64_t length) {
    struct rand r;
    rand_seed(&r, seed ^ 0xacc07);
    if (!one_in(&r, 3))
        return;
    for (uint32_t n = between(&r, 3, 25); n; n--) {
        bool login = !one_in(&r, 3);
        int64_t at_ms =
            login ? rand_between(&r, 0, length) : rand_between(&r, 0, one_in(&r, 2) ? 5000 : length);
        add_item(p, &r, login ? ITEM_LOGIN : ITEM_ACCOUNT, at_ms, 0);
    }
}

// A provider of more machines; drawn apart as well.
static void add_provider(struct plan *p, uint64_t seed, int64_t length) {
    struct rand r;
    rand_seed(&r, seed ^ 0x940b1de2);
    if (run_plan_failover || !one_in(&r, 3))
        return;
    p->engine = true;
    p->machines[p->machine_count] =
        (struct machine_shape){.cpus = between(&r, 2, 8), .memory_bytes = 16ull << 30};
    for (uint32_t i = 1; i < ENGINE_MACHINES; i++)
        p->machines[p->machine_count + i] = p->machines[p->machine_count];
    add_item(p, &r, ITEM_PROVIDER, rand_between(&r, 0, 3000), 0);
    p->items.at[p->items.len - 1].pick = 0;
    for (uint32_t n = between(&r, 0, 8); n; n--)
        add_item(p, &r, ITEM_PROVIDER, rand_between(&r, 0, length), 0);
}

// Programs that listen, and those who use them; drawn apart as well.
static void add_ports(struct plan *p, uint64_t seed, int64_t length) {
    struct rand r;
    uint32_t count = p->items.len;
    rand_seed(&r, seed ^ 0x9027);
    if (!one_in(&r, 3))
        return;
    for (uint32_t i = 0; i < count; i++) {
        struct job_shape *j = p->items.at[i].job;
        int64_t from = p->items.at[i].at_ms;
        if (!j || j->workers_max || j->array || !one_in(&r, 3))
            continue;
        j->port = true;
        if (!j->lease_s && one_in(&r, 2))
            j->behaviour.run_ms = between(&r, 20000, 90000);
        for (uint32_t n = between(&r, 1, 2); n; n--)
            add_item(p, &r, ITEM_PORT, rand_between(&r, from, from + length / 2), i);
    }
}

// Jobs whose output is followed, attached or not; drawn apart as well.
static void add_logs(struct plan *p, uint64_t seed, int64_t length, bool restores) {
    struct rand r;
    uint32_t count = p->items.len;
    rand_seed(&r, seed ^ 0x106f);
    if (!one_in(&r, restores ? 2 : 3))
        return;
    p->logs = true;
    p->flood = one_in(&r, 12);
    for (uint32_t i = 0; i < count; i++) {
        struct job_shape *j = p->items.at[i].job;
        int64_t from = p->items.at[i].at_ms;
        if (!j || j->workers_max || j->array || !one_in(&r, restores ? 2 : 3))
            continue;
        j->attached = !one_in(&r, 3);
        if (!j->lease_s && one_in(&r, 2))
            j->behaviour.run_ms = between(&r, 10000, 60000);
        for (uint32_t n = between(&r, 1, 2); n; n--)
            add_item(p, &r, ITEM_LOG, rand_between(&r, from, from + length / 4), i);
    }
}

// Two or three controllers share a database, their clocks differ, and what can happen to them happens more often than
// all else: in most seeds several of these kinds meet.
bool run_plan_failover = false;

static void add_failover(struct plan *p, uint64_t seed, int64_t length, bool restores) {
    static const struct {
        enum item_kind kind;
        int64_t longest_ms;
    } what[] = {{ITEM_HEAD_PAUSE, 12000}, {ITEM_HEAD_PAUSE_SENDING, 12000},
                {ITEM_HEAD_CUT, 20000},   {ITEM_HAND_OVER, 1},
                {ITEM_DB_AWAY, 8000},     {ITEM_DB_CUT, 12000},
                {ITEM_DB_SLOW, 8000},     {ITEM_DB_FULL, 5000},
                {ITEM_DB_CLOCK, 1},       {ITEM_DB_ANSWER, 1},
                {ITEM_HEAD_KILL, 8000}};
    struct rand r;
    p->controllers = 1;
    if (!run_plan_failover)
        return;
    rand_seed(&r, seed ^ 0xfa1105e2);
    p->controllers = between(&r, 2, 3);
    p->lease_ms = one_in(&r, 3) ? between(&r, 2, 10) * 1000 : 3000;
    p->disk.rot_permille = p->disk.unreadable_permille = 0;
    for (uint32_t i = 0; i < p->controllers; i++) {
        p->drift_ppm[i] = (int32_t)rand_between(&r, -200, 200);
        p->clock_ms[i] = one_in(&r, 2) ? rand_between(&r, -1, 1) * rand_between(&r, 1, 7200000) : 0;
    }
    uint32_t kinds_of = between(&r, 1, sizeof what / sizeof *what), from = (uint32_t)rand_below(&r, 11);
    for (uint32_t n = between(&r, 1, one_in(&r, 3) ? 30 : 10); n; n--) {
        uint32_t k = (from + (uint32_t)rand_below(&r, kinds_of) * 3) % (sizeof what / sizeof *what);
        struct item it = {.at_ms = rand_between(&r, 0, length), .kind = what[k].kind};
        it.for_ms = rand_between(&r, 1, one_in(&r, 3) ? what[k].longest_ms : 1 + what[k].longest_ms / 4);
        if (it.kind == ITEM_DB_CLOCK)
            it.for_ms = rand_between(&r, -20000, 60000);
        it.node = (uint32_t)rand_below(&r, p->machine_count);
        it.pick = (uint32_t)rand_below(&r, 6);
        it.amount = (uint32_t)rand_below(&r, 1000);
        vec_push(&p->items, it);
        if (it.kind != ITEM_DB_CLOCK && it.at_ms + it.for_ms > p->last_ms)
            p->last_ms = it.at_ms + it.for_ms;
    }
    for (uint32_t n = restores ? between(&r, 0, 2) : 0; n; n--) {
        struct item it = {.at_ms = rand_between(&r, length / 8, length),
                          .kind = ITEM_DB_RESTORE,
                          .amount = one_in(&r, 3) ? between(&r, 1, 400) : between(&r, 1, 40),
                          .for_ms = rand_between(&r, 1, 9000)};
        vec_push(&p->items, it);
        if (it.at_ms + it.for_ms > p->last_ms)
            p->last_ms = it.at_ms + it.for_ms;
    }
}

void run_plan_make(struct plan *p, uint64_t seed) {
    struct rand r;
    uint32_t weights[ITEM_RANDOM_COUNT];
    *p = (struct plan){.seed = seed};
    rand_seed(&r, seed);
    shape_cluster(p, &r);
    shape_settings(p, &r);
    choose_weights(&r, weights, one_in(&r, 20));
    int64_t length = rand_between(&r, 10000, one_in(&r, 4) ? 240000 : 90000);
    uint32_t submits = between(&r, 3, one_in(&r, 4) ? 45 : 20), others = between(&r, 0, one_in(&r, 3) ? 50 : 20);
    for (uint32_t i = 0; i < submits + others; i++) {
        struct item it = {.at_ms = rand_between(&r, 0, length),
                          .kind = i < submits ? ITEM_SUBMIT : choose(&r, weights)};
        it.node = (uint32_t)rand_below(&r, p->machine_count);
        it.pick = (uint32_t)rand_below(&r, 6);
        it.amount = (uint32_t)rand_below(&r, 1000);
        it.for_ms = duration(&r, it.kind, p);
        vec_push(&p->items, it);
    }
    qsort(p->items.at, p->items.len, sizeof *p->items.at, by_time);
    uint32_t submitted = 0;
    VEC(uint32_t) at = {0};
    for (uint32_t i = 0; i < p->items.len; i++) {
        struct item *it = &p->items.at[i];
        it->target = at.len ? at.at[rand_below(&r, at.len)] : 0;
        if (it->kind == ITEM_SUBMIT) {
            it->job = shape_job(p, &r, submitted++);
            if (it->job->dependency)
                it->job->depends_on = at.at[it->job->depends_on];
            vec_push(&at, i);
        }
        int64_t over = it->at_ms + (it->for_ms > 0 && it->kind >= ITEM_HEAD_KILL &&
                                            it->kind != ITEM_HEAD_CLOCK && it->kind != ITEM_NODE_CLOCK
                                        ? it->for_ms
                                        : 0);
        if (over > p->last_ms)
            p->last_ms = over;
    }
    vec_done(&at);
    add_steps(p, seed, length);
    add_elastic(p, seed, length);
    add_components(p, seed);
    add_retries(p, seed);
    add_totals(p, seed);
    add_accounts(p, seed, length);
    add_provider(p, seed, length);
    if (!run_plan_failover)  // clients of ports know one controller so far
        add_ports(p, seed, length);
    bool restores = add_restores(p, seed, length);
    if (!run_plan_failover)
        add_logs(p, seed, length, restores);
    choose_older(p, seed, restores || run_plan_failover);
    choose_level(p, seed, length);
    add_failover(p, seed, length, restores);
}

void run_plan_done(struct plan *p) {
    for (uint32_t i = 0; i < p->items.len; i++)
        free(p->items.at[i].job);
    vec_done(&p->items);
}
