// Owns the packing of steps.
#include "step_plan.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/text.h"

void step_part_init(struct step_part *p, const struct part *from, struct arena *a) {
    *p = (struct step_part){.node = arena_strdup(a, from->node),
                            .cpus = from->cpus,
                            .cpu_held = arena_alloc(a, from->cpus + 1),
                            .memory_bytes = from->memory_bytes,
                            .gpus = arena_alloc(a, (from->gpus.len + 1) * sizeof *p->gpus),
                            .gpu_count = from->gpus.len};
    for (uint32_t i = 0; i < from->gpus.len; i++)
        p->gpus[i] = (struct step_gpu){.index = from->gpus.at[i].index, .milli = from->gpus.at[i].milli};
}

static bool named(const struct step_need *n, const char *node) {
    for (uint32_t i = 0; i < n->name_count; i++)
        if (streq(n->names[i], node))
            return true;
    return !n->name_count;
}

static uint32_t cpus_per_task(const struct step_need *n) {
    return n->cpus_per_task ? n->cpus_per_task : 1;
}

// Shares of GPUs that are there, all of the job's or only the free ones.
static uint64_t gpus_there(const struct step_part *p, bool empty) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->gpu_count; i++)
        sum += empty ? p->gpus[i].milli : p->gpus[i].milli - p->gpus[i].held;
    return sum;
}

// How many tasks fit on a part, now or with all other steps gone.
static uint32_t capacity(const struct step_need *n, const struct step_part *p, bool empty) {
    uint64_t tasks = n->tasks;
    if (!named(n, p->node))
        return 0;
    if (!n->overlap) {
        uint32_t held = empty ? 0 : p->cpus_held, cpus = p->cpus > held ? p->cpus - held : 0;
        if (n->whole && held)
            return 0;
        if (!n->overcommit && cpus / cpus_per_task(n) < tasks)
            tasks = cpus / cpus_per_task(n);
        uint64_t memory = p->memory_bytes - (empty ? 0 : p->memory_held);
        if (p->memory_bytes && n->memory_per_node_bytes > memory)
            return 0;
        uint64_t each = n->memory_per_cpu_bytes * cpus_per_task(n);
        if (p->memory_bytes && each && memory / each < tasks)
            tasks = memory / each;
    }
    uint64_t gpus = gpus_there(p, empty || n->overlap);
    if (n->gpus_per_node_milli > gpus)
        return 0;
    if (n->gpus_per_task_milli && gpus / n->gpus_per_task_milli < tasks)
        tasks = gpus / n->gpus_per_task_milli;
    if (n->tasks_per_node && n->tasks_per_node < tasks)
        tasks = n->tasks_per_node;
    return (uint32_t)tasks;
}

// Chooses parts and spreads the tasks over them: one each, then filled in order. Returns how many
// parts were chosen; 0: they do not fit.
static uint32_t spread(const struct step_need *n, const struct step_part *parts, uint32_t count, bool empty,
                       uint32_t *tasks) {
    uint32_t *room = xcalloc(count + 1, sizeof *room), chosen = 0, left = n->tasks, wanted = n->nodes;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        tasks[i] = 0;
        room[i] = capacity(n, &parts[i], empty);
    }
    if (!wanted && n->whole)
        wanted = n->tasks < count ? n->tasks : count;
    for (uint32_t i = 0; i < count && (wanted ? chosen < wanted : sum < n->tasks); i++)
        if (room[i]) {
            tasks[i] = 1;
            sum += room[i];
            chosen++;
        }
    bool fits = sum >= n->tasks && chosen && chosen <= n->tasks && (!n->nodes || chosen == n->nodes);
    left = fits ? left - chosen : 0;
    // Without a bound by CPUs the first would take all: evenly first, then what is left.
    uint32_t even = n->overcommit && chosen ? (n->tasks + chosen - 1) / chosen : UINT32_MAX;
    for (int pass = 0; pass < 2; pass++, even = UINT32_MAX)
        for (uint32_t i = 0; fits && i < count && left; i++) {
            uint32_t most = room[i] < even ? room[i] : even, more = tasks[i] && most > tasks[i] ? most - tasks[i] : 0;
            more = more < left ? more : left;
            tasks[i] += more;
            left -= more;
        }
    free(room);
    return fits ? chosen : 0;
}

static void take_cpus(const struct step_need *n, const struct step_part *p, struct step_share *s, struct arena *a) {
    uint32_t want = n->whole ? p->cpus : s->tasks * cpus_per_task(n);
    if (n->overlap)
        return;
    s->cpus = arena_alloc(a, (p->cpus + 1) * sizeof *s->cpus);
    for (uint32_t i = 0; i < p->cpus && s->cpu_count < want; i++)
        if (!p->cpu_held[i])
            s->cpus[s->cpu_count++] = i;
}

// Emptiest first for whole GPUs; a fraction goes where it fits.
static bool take_gpus(const struct step_part *p, uint32_t milli, bool overlap, struct step_share *s) {
    bool fraction = milli < 1000;
    for (uint32_t i = 0; i < p->gpu_count && milli; i++) {
        uint32_t free_milli = p->gpus[i].milli - (overlap ? 0 : p->gpus[i].held);
        uint32_t want = milli < 1000 ? milli : 1000;
        if (!free_milli || (fraction ? free_milli < want : free_milli < p->gpus[i].milli))
            continue;
        want = want < free_milli ? want : free_milli;
        s->gpus[s->gpu_count++] = (struct gpu_grant){.index = p->gpus[i].index, .milli = want};
        milli -= want;
    }
    return !milli;
}

static bool share_gpus(const struct step_need *n, const struct step_part *p, uint32_t nodes,
                       struct step_share *s, struct arena *a) {
    uint32_t want = n->gpus_per_node_milli ? n->gpus_per_node_milli : n->gpus_per_task_milli * s->tasks;
    s->gpus = arena_alloc(a, (p->gpu_count + 1) * sizeof *s->gpus);
    if (n->gpus_milli)
        want = n->gpus_milli >= 1000 * nodes ? n->gpus_milli / nodes / 1000 * 1000 : n->gpus_milli / nodes;
    s->owns_gpus = want && !n->overlap;
    if (want)
        return take_gpus(p, want, n->overlap, s);
    for (uint32_t i = 0; i < p->gpu_count; i++)  // all of the job's, shared with other steps
        s->gpus[s->gpu_count++] = (struct gpu_grant){.index = p->gpus[i].index, .milli = p->gpus[i].milli};
    return true;
}

static int share_out(const struct step_need *n, const struct step_part *parts, uint32_t count,
                     const uint32_t *tasks, uint32_t nodes, struct arena *a, struct step_shares *out) {
    struct step_shares shares = {.at = arena_alloc(a, (nodes + 1) * sizeof *shares.at)};
    uint32_t rank = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!tasks[i])
            continue;
        struct step_share *s = &shares.at[shares.len++];
        *s = (struct step_share){.part = i, .tasks = tasks[i], .first_rank = rank};
        rank += tasks[i];
        take_cpus(n, &parts[i], s, a);
        if (!n->overlap)
            s->memory_bytes =
                n->memory_per_node_bytes ? n->memory_per_node_bytes : n->memory_per_cpu_bytes * s->cpu_count;
        if (!share_gpus(n, &parts[i], nodes, s, a))
            return -EAGAIN;
    }
    *out = shares;
    return 0;
}

// Would it fit without asking for memory?
static bool lacks_memory(const struct step_need *n, const struct step_part *parts, uint32_t count, uint32_t *tasks) {
    struct step_need less = *n;
    less.memory_per_node_bytes = less.memory_per_cpu_bytes = 0;
    return (n->memory_per_node_bytes || n->memory_per_cpu_bytes) && spread(&less, parts, count, true, tasks);
}

static int never(const struct step_need *n, const struct step_part *parts, uint32_t count, uint32_t *tasks,
                 struct error *e) {
    uint32_t usable = 0;
    for (uint32_t i = 0; i < count; i++)
        usable += named(n, parts[i].node);
    if (n->nodes > count)
        return error_set(e, E2BIG, "Only allocated %u nodes asked for %u", count, n->nodes);
    if (usable < n->name_count)
        return error_set(e, E2BIG, "Requested node configuration is not available");
    if (lacks_memory(n, parts, count, tasks))
        return error_set(e, E2BIG, "Memory required by task is not available");
    if (n->nodes > n->tasks)
        return error_set(e, EINVAL, "%u tasks cannot run on %u nodes", n->tasks, n->nodes);
    return error_set(e, E2BIG, "More processors requested than permitted");
}

int step_plan(const struct step_need *n, const struct step_part *parts, uint32_t count, struct arena *a,
              struct step_shares *out, struct error *e) {
    uint32_t *tasks = arena_alloc(a, (count + 1) * sizeof *tasks);
    uint64_t all_gpus = 0;
    assert(n->tasks);
    for (uint32_t i = 0; i < count; i++)
        all_gpus += named(n, parts[i].node) ? gpus_there(&parts[i], true) : 0;
    if (n->gpus_milli > all_gpus)
        return error_set(e, E2BIG,
                         all_gpus ? "More GPUs requested than the job has"
                                  : "Step requested GRES but job doesn't have GRES");
    if (!spread(n, parts, count, true, tasks))
        return never(n, parts, count, tasks, e);
    uint32_t nodes = spread(n, parts, count, false, tasks);
    if (!nodes)
        return error_set(e, EAGAIN, "Requested nodes are busy");
    int r = share_out(n, parts, count, tasks, nodes, a, out);
    return r < 0 ? error_set(e, EAGAIN, "Requested nodes are busy") : 0;
}

static void change(struct step_part *parts, const struct step_shares *shares, bool take) {
    for (uint32_t i = 0; i < shares->len; i++) {
        const struct step_share *s = &shares->at[i];
        struct step_part *p = &parts[s->part];
        for (uint32_t k = 0; k < s->cpu_count; k++) {
            assert(p->cpu_held[s->cpus[k]] != take);
            p->cpu_held[s->cpus[k]] = take;
        }
        p->cpus_held = take ? p->cpus_held + s->cpu_count : p->cpus_held - s->cpu_count;
        p->memory_held = take ? p->memory_held + s->memory_bytes : p->memory_held - s->memory_bytes;
        for (uint32_t k = 0; s->owns_gpus && k < s->gpu_count; k++)
            for (uint32_t g = 0; g < p->gpu_count; g++)
                if (p->gpus[g].index == s->gpus[k].index) {
                    p->gpus[g].held = take ? p->gpus[g].held + s->gpus[k].milli : p->gpus[g].held - s->gpus[k].milli;
                    assert(p->gpus[g].held <= p->gpus[g].milli);
                }
    }
}

void step_take(struct step_part *parts, const struct step_shares *shares) {
    change(parts, shares, true);
}

void step_release(struct step_part *parts, const struct step_shares *shares) {
    change(parts, shares, false);
}
