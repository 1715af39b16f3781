// Owns the packing of steps into their job. The job's nodes are tried in the job's order. A request is
// first packed as if no other step ran: when that fails it is refused, so only steps that can run wait.
#include "sched/step_pack.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "uneven.h"

// --- what a node has room for ---

static bool named(const char *const *names, uint32_t count, const char *node) {
    for (uint32_t i = 0; i < count; i++)
        if (streq(names[i], node))
            return true;
    return false;
}

static uint32_t cpus_per_task(const struct step_request *r) {
    return r->cpus_per_task ? r->cpus_per_task : 1;
}

static uint32_t gpu_free(const struct step_gpu *g, bool empty) {
    return empty ? g->milli : g->milli - g->held_milli;
}

// Thousandths that requests of `each` can use: whole GPUs must be free of other steps, a fraction
// must fit into one GPU.
static uint64_t gpus_usable(const struct step_slot *s, uint32_t each, bool empty) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->gpu_count; i++) {
        uint32_t left = gpu_free(&s->gpus[i], empty);
        if (each < 1000)
            sum += left - left % each;
        else if (left == s->gpus[i].milli)
            sum += left;
    }
    return sum;
}

struct step_room {
    uint32_t tasks;  // at most so many
    uint32_t even;   // so many before CPUs are shared; the same unless CPUs are overcommitted
};

static uint32_t at_most(uint32_t a, uint64_t b) {
    return b < a ? (uint32_t)b : a;
}

// Room for tasks on a node now, or (empty) as if no other step ran.
static struct step_room room_on(const struct step_request *r, const struct step_slot *s, bool empty) {
    struct step_room room = {r->tasks, r->tasks};
    bool gpus_free = empty || r->overlap;
    if (named(r->excluded, r->excluded_count, s->node))
        return (struct step_room){0};
    if (!r->overlap) {
        uint32_t held = empty ? 0 : s->cpus_held, cpus = s->cpus > held ? s->cpus - held : 0;
        uint64_t memory = s->memory_bytes - (empty ? 0 : s->memory_held_bytes);
        uint64_t each = r->memory_per_cpu_bytes * cpus_per_task(r);
        if ((r->whole && held) || (s->memory_bytes && r->memory_per_node_bytes > memory))
            return (struct step_room){0};
        room.even = at_most(room.even, cpus / cpus_per_task(r));
        if (!r->overcommit)
            room.tasks = room.even;
        if (s->memory_bytes && each)
            room.tasks = at_most(room.tasks, memory / each);
    }
    if (r->gpus_per_node_milli && gpus_usable(s, r->gpus_per_node_milli, gpus_free) < r->gpus_per_node_milli)
        return (struct step_room){0};
    if (r->gpus_milli && !gpus_usable(s, r->gpus_milli, gpus_free))
        return (struct step_room){0};
    if (r->gpus_per_task_milli)
        room.tasks = at_most(room.tasks, gpus_usable(s, r->gpus_per_task_milli, gpus_free) / r->gpus_per_task_milli);
    if (r->tasks_per_node)
        room.tasks = at_most(room.tasks, r->tasks_per_node);
    if (!room.even)  // overcommitted: a node that is used has at least one task
        room.even = 1;
    room.even = at_most(room.even, room.tasks);
    return room;
}

// --- which nodes, and how many tasks on each ---

struct packing {
    const struct step_request *r;
    const struct step_slot *slots;
    uint32_t count;
    bool empty;
    struct step_room *room;
    bool *chosen;
    uint32_t *tasks;
    uint32_t nodes;
    uint64_t room_sum, gpu_sum;
};

static void choose(struct packing *p, uint32_t i) {
    p->chosen[i] = true;
    p->nodes++;
    p->room_sum += p->room[i].tasks;
    if (p->r->gpus_milli)
        p->gpu_sum += gpus_usable(&p->slots[i], p->r->gpus_milli, p->empty || p->r->overlap);
}

static bool enough(const struct packing *p) {
    return p->room_sum >= p->r->tasks && p->gpu_sum >= p->r->gpus_milli && p->nodes >= p->r->required_count;
}

static uint32_t nodes_wanted(const struct packing *p) {
    const struct step_request *r = p->r;
    if (r->nodes || !r->whole)
        return r->nodes;
    return r->required_count ? r->required_count : r->tasks < p->count ? r->tasks : p->count;
}

// Required nodes first, then the others in order. False: it does not fit.
static bool choose_nodes(struct packing *p) {
    uint32_t wanted = nodes_wanted(p);
    for (uint32_t i = 0; i < p->count; i++) {
        p->room[i] = room_on(p->r, &p->slots[i], p->empty);
        if (named(p->r->required, p->r->required_count, p->slots[i].node) && p->room[i].tasks)
            choose(p, i);
    }
    if (p->nodes < p->r->required_count)
        return false;
    for (uint32_t i = 0; i < p->count && (wanted ? p->nodes < wanted : !enough(p)); i++)
        if (!p->chosen[i] && p->room[i].tasks)
            choose(p, i);
    return enough(p) && p->nodes && p->nodes <= p->r->tasks && (!p->r->nodes || p->nodes == p->r->nodes);
}

// One task per node in turn, up to its CPUs; with overcommitted CPUs then on in the same way.
static void count_tasks(struct packing *p) {
    uint32_t left = p->r->tasks;
    for (bool over = false; left;) {
        uint32_t before = left;
        for (uint32_t i = 0; i < p->count && left; i++)
            if (p->chosen[i] && p->tasks[i] < (over ? p->room[i].tasks : p->room[i].even)) {
                p->tasks[i]++;
                left--;
            }
        assert(left < before || !over);
        over = over || left == before;
    }
}

// --- which ranks ---

// Deals ranks in runs of `run` to the nodes in turn, until each has its number of tasks.
static void deal_ranks(struct step_layout *l, uint32_t run, uint32_t tasks) {
    cleanup_free uint32_t *dealt = xcalloc(l->len + 1, sizeof *dealt);
    for (uint32_t rank = 0; rank < tasks;)
        for (uint32_t i = 0; i < l->len; i++)
            for (uint32_t k = 0; k < run && dealt[i] < l->at[i].tasks; k++)
                l->at[i].ranks[dealt[i]++] = rank++;
}

// --- CPUs and GPUs ---

static void take_cpus(const struct packing *p, const struct step_slot *s, struct step_share *h, struct arena *a) {
    uint64_t want = p->r->whole ? s->cpus : (uint64_t)h->tasks * cpus_per_task(p->r);
    if (p->r->overlap)
        return;
    h->cpus = arena_alloc(a, (s->cpus + 1) * sizeof *h->cpus);
    for (uint32_t i = 0; i < s->cpus && h->cpu_count < want; i++)
        if (p->empty || !s->cpu_held[i])
            h->cpus[h->cpu_count++] = i;
}

static void add_gpu(struct step_share *h, uint32_t index, uint32_t milli) {
    if (h->gpu_count && h->gpus[h->gpu_count - 1].index == index)
        h->gpus[h->gpu_count - 1].milli += milli;
    else
        h->gpus[h->gpu_count++] = (struct step_gpu_share){index, milli};
}

// Whole GPUs in order, or `times` equal fractions, each within one GPU.
static bool take_gpus(const struct packing *p, const struct step_slot *s, uint32_t milli, uint32_t times,
                      struct step_share *h) {
    bool empty = p->empty || p->r->overlap, fraction = milli < 1000;
    uint64_t left = fraction ? times : (uint64_t)milli * times;
    for (uint32_t i = 0; i < s->gpu_count && left; i++) {
        uint32_t there = gpu_free(&s->gpus[i], empty);
        if (fraction) {
            uint32_t n = at_most(there / milli, left);
            if (n)
                add_gpu(h, s->gpus[i].index, n * milli);
            left -= n;
        } else if (there && there == s->gpus[i].milli) {
            uint32_t take = at_most(there, left);
            add_gpu(h, s->gpus[i].index, take);
            left -= take;
        }
    }
    return !left;
}

// A total of GPUs over the step's nodes. False: too few.
static bool split_total(const struct packing *p, const struct step_layout *l, uint32_t *milli) {
    uint32_t total = p->r->gpus_milli;
    if (total < 1000) {
        milli[0] = total;
        return l->len == 1;
    }
    cleanup_free uint32_t *room = xcalloc(l->len + 1, sizeof *room);
    for (uint32_t i = 0; i < l->len; i++)
        room[i] = (uint32_t)gpus_usable(&p->slots[l->at[i].slot], 1000, p->empty || p->r->overlap);
    return sched_deal(total, 1000, room, l->len, milli);
}

static void all_gpus(const struct step_slot *s, struct step_share *h) {
    for (uint32_t i = 0; i < s->gpu_count; i++)
        add_gpu(h, s->gpus[i].index, s->gpus[i].milli);
}

static uint64_t run_of_bits(uint32_t first, uint32_t count, uint32_t gpus) {
    uint64_t mask = 0;
    for (uint32_t i = first; i < first + count && i < gpus; i++)
        mask |= UINT64_C(1) << i;
    return mask;
}

// Fractions are dealt in the order in which take_gpus took them.
static uint32_t gpu_of_fraction(const struct step_share *h, uint32_t milli, uint32_t task) {
    uint32_t g = 0;
    for (uint32_t n = 0; g + 1 < h->gpu_count && task >= n + h->gpus[g].milli / milli; g++)
        n += h->gpus[g].milli / milli;
    return g;
}

static uint64_t task_mask(const struct step_request *r, const struct step_share *h, uint32_t task) {
    const struct step_bind *b = &r->bind;
    uint32_t gpus = h->gpu_count, each = r->gpus_per_task_milli;
    uint64_t all = run_of_bits(0, gpus, gpus), mask = all;
    switch (b->kind) {
    case STEP_BIND_DEFAULT:
        if (each >= 1000)
            mask = run_of_bits(task * (each / 1000), each / 1000, gpus);
        else if (each)
            mask = run_of_bits(gpu_of_fraction(h, each, task), 1, gpus);
        break;
    case STEP_BIND_SINGLE: mask = run_of_bits(task / b->count % gpus, 1, gpus); break;
    case STEP_BIND_PER_TASK: {
        uint32_t groups = gpus / b->count ? gpus / b->count : 1;
        mask = run_of_bits(task % groups * b->count, b->count, gpus);
        break;
    }
    case STEP_BIND_MAP: mask = run_of_bits((uint32_t)(b->list[task % b->len] % gpus), 1, gpus); break;
    case STEP_BIND_MASK: mask = b->list[task % b->len] & all; break;
    case STEP_BIND_ALL: break;
    }
    // A map or mask that names only GPUs which the step does not have: the task sees all, as with Slurm.
    return mask ? mask : all;
}

static void bind_gpus(const struct step_request *r, struct step_share *h, struct arena *a) {
    if (!h->gpu_count || h->gpu_count > STEP_GPUS_MAX || r->bind.kind == STEP_BIND_ALL ||
        (r->bind.kind == STEP_BIND_DEFAULT && !r->gpus_per_task_milli))
        return;
    h->task_gpus = arena_alloc(a, h->tasks * sizeof *h->task_gpus);
    for (uint32_t i = 0; i < h->tasks; i++)
        h->task_gpus[i] = task_mask(r, h, i);
}

static bool share_gpus(const struct packing *p, struct step_layout *l, struct arena *a) {
    const struct step_request *r = p->r;
    bool asked = r->gpus_milli || r->gpus_per_node_milli || r->gpus_per_task_milli;
    cleanup_free uint32_t *split = xcalloc(l->len + 1, sizeof *split);
    if (r->gpus_milli && !split_total(p, l, split))
        return false;
    for (uint32_t i = 0; i < l->len; i++) {
        struct step_share *h = &l->at[i];
        const struct step_slot *s = &p->slots[h->slot];
        h->gpus = arena_alloc(a, (s->gpu_count + 1) * sizeof *h->gpus);
        h->owns_gpus = asked && !r->overlap;
        bool ok = true;
        if (r->gpus_milli)
            ok = take_gpus(p, s, split[i], 1, h);
        else if (r->gpus_per_node_milli)
            ok = take_gpus(p, s, r->gpus_per_node_milli, 1, h);
        else if (r->gpus_per_task_milli)
            ok = take_gpus(p, s, r->gpus_per_task_milli, h->tasks, h);
        else
            all_gpus(s, h);  // shared with the job's other steps
        if (!ok)
            return false;
        bind_gpus(r, h, a);
    }
    return true;
}

// --- the whole ---

static void lay_out(const struct packing *p, struct arena *a, struct step_layout *l) {
    const struct step_request *r = p->r;
    *l = (struct step_layout){.at = arena_alloc(a, (p->nodes + 1) * sizeof *l->at)};
    for (uint32_t i = 0; i < p->count; i++) {
        if (!p->chosen[i])
            continue;
        struct step_share *h = &l->at[l->len++];
        *h = (struct step_share){.slot = i, .tasks = p->tasks[i]};
        h->ranks = arena_alloc(a, (h->tasks + 1) * sizeof *h->ranks);
        take_cpus(p, &p->slots[i], h, a);
        if (!r->overlap)
            h->memory_bytes =
                r->memory_per_node_bytes ? r->memory_per_node_bytes : r->memory_per_cpu_bytes * h->cpu_count;
    }
    deal_ranks(l,
               r->distribution == STEP_CYCLIC                    ? 1
               : r->distribution == STEP_PLANE && r->plane_size ? r->plane_size
                                                                 : r->tasks,
               r->tasks);
}

static bool pack(const struct step_request *r, const struct step_slot *slots, uint32_t count, bool empty,
                 struct arena *a, struct step_layout *out) {
    cleanup_free struct step_room *room = xcalloc(count + 1, sizeof *room);
    cleanup_free bool *chosen = xcalloc(count + 1, sizeof *chosen);
    cleanup_free uint32_t *tasks = xcalloc(count + 1, sizeof *tasks);
    struct packing p = {
        .r = r, .slots = slots, .count = count, .empty = empty, .room = room, .chosen = chosen, .tasks = tasks};
    if (!choose_nodes(&p))
        return false;
    count_tasks(&p);
    struct step_layout l;
    lay_out(&p, a, &l);
    if (!share_gpus(&p, &l, a))
        return false;
    *out = l;
    return true;
}

// Memory of a whole step is only known when its CPUs are.
static bool exceeds_memory(const struct step_slot *slots, const struct step_layout *l, bool empty) {
    for (uint32_t i = 0; i < l->len; i++) {
        const struct step_slot *s = &slots[l->at[i].slot];
        if (s->memory_bytes && l->at[i].memory_bytes > s->memory_bytes - (empty ? 0 : s->memory_held_bytes))
            return true;
    }
    return false;
}

// GPUs of all nodes that the step may use, in thousandths.
static uint64_t gpus_in_all(const struct step_request *r, const struct step_slot *slots, uint32_t count) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t g = 0; !named(r->excluded, r->excluded_count, slots[i].node) && g < slots[i].gpu_count; g++)
            sum += slots[i].gpus[g].milli;
    return sum;
}

static int check_gpus(const struct step_request *r, const struct step_slot *slots, uint32_t count, struct error *e) {
    uint64_t all = gpus_in_all(r, slots, count);
    if (!r->gpus_milli && !r->gpus_per_node_milli && !r->gpus_per_task_milli)
        return 0;
    if (!all)
        return error_set(e, E2BIG, "Step requested GRES but job doesn't have GRES");
    if (r->gpus_milli > all)
        return error_set(e, E2BIG, "Step requested gres=gpu:%u is more than the job's gres=gpu:%llu",
                         r->gpus_milli / 1000, (unsigned long long)all / 1000);
    if (r->gpus_milli >= 1000 && r->gpus_milli / 1000 < r->nodes)
        return error_set(e, EINVAL, "Step requested gres=gpu:%u is less than the requested min nodes=%u",
                         r->gpus_milli / 1000, r->nodes);
    return 0;
}

// Why it can never fit.
static int refuse(const struct step_request *r, const struct step_slot *slots, uint32_t count, struct arena *a,
                  struct error *e) {
    struct step_request less = *r;
    struct step_layout ignored;
    uint32_t there = 0, usable = 0;
    for (uint32_t i = 0; i < count; i++) {
        bool out = named(r->excluded, r->excluded_count, slots[i].node);
        there += !out && named(r->required, r->required_count, slots[i].node);
        usable += !out;
    }
    if (r->nodes > usable)
        return error_set(e, E2BIG, "Only allocated %u nodes asked for %u", usable, r->nodes);
    if (there < r->required_count || (r->nodes && r->nodes < r->required_count))
        return error_set(e, E2BIG, "Requested node configuration is not available");
    if (r->nodes > r->tasks)
        return error_set(e, EINVAL, "%u tasks cannot run on %u nodes", r->tasks, r->nodes);
    less.memory_per_node_bytes = less.memory_per_cpu_bytes = 0;
    if ((r->memory_per_node_bytes || r->memory_per_cpu_bytes) && pack(&less, slots, count, true, a, &ignored))
        return error_set(e, E2BIG, "Memory required by task is not available");
    less = *r;
    less.gpus_milli = less.gpus_per_node_milli = 0;
    if ((r->gpus_milli || r->gpus_per_node_milli) && pack(&less, slots, count, true, a, &ignored))
        return error_set(e, E2BIG, "More GPUs requested on a node than the job has there");
    return error_set(e, E2BIG, "More processors requested than permitted");
}

int sched_step_pack(const struct step_request *r, const struct step_slot *slots, uint32_t count,
                    struct arena *a, struct step_layout *out, struct error *e) {
    struct step_layout l = {0};
    if (!r->tasks || r->tasks > STEP_TASKS_MAX)
        return error_set(e, EINVAL, "a step has 1 to %d tasks; %u were asked for", STEP_TASKS_MAX, r->tasks);
    int rc = check_gpus(r, slots, count, e);
    if (rc < 0)
        return rc;
    if (!pack(r, slots, count, true, a, &l))
        return refuse(r, slots, count, a, e);
    if (exceeds_memory(slots, &l, true))
        return error_set(e, E2BIG, "Memory required by task is not available");
    if (!pack(r, slots, count, false, a, &l) || exceeds_memory(slots, &l, false))
        return error_set(e, EAGAIN, "Requested nodes are busy");
    *out = l;
    return 0;
}

static void change(struct step_slot *slots, const struct step_layout *l, bool hold) {
    for (uint32_t i = 0; i < l->len; i++) {
        const struct step_share *h = &l->at[i];
        struct step_slot *s = &slots[h->slot];
        for (uint32_t k = 0; k < h->cpu_count; k++) {
            assert(s->cpu_held[h->cpus[k]] != hold);
            s->cpu_held[h->cpus[k]] = hold;
        }
        s->cpus_held = hold ? s->cpus_held + h->cpu_count : s->cpus_held - h->cpu_count;
        s->memory_held_bytes = hold ? s->memory_held_bytes + h->memory_bytes : s->memory_held_bytes - h->memory_bytes;
        for (uint32_t k = 0; h->owns_gpus && k < h->gpu_count; k++)
            for (uint32_t g = 0; g < s->gpu_count; g++)
                if (s->gpus[g].index == h->gpus[k].index) {
                    uint32_t *held = &s->gpus[g].held_milli;
                    *held = hold ? *held + h->gpus[k].milli : *held - h->gpus[k].milli;
                    assert(*held <= s->gpus[g].milli);
                }
    }
}

static bool gpus_fit(const struct step_slot *s, const struct step_share *h) {
    for (uint32_t k = 0; h->owns_gpus && k < h->gpu_count; k++)
        for (uint32_t g = 0; g < s->gpu_count; g++) {
            uint64_t wanted = s->gpus[g].held_milli;
            for (uint32_t n = 0; n <= k; n++)  // one GPU may be named twice
                wanted += h->gpus[n].index == s->gpus[g].index ? h->gpus[n].milli : 0;
            if (wanted > s->gpus[g].milli && s->gpus[g].index == h->gpus[k].index)
                return false;
        }
    return true;
}

bool sched_step_fits(const struct step_slot *slots, const struct step_layout *l) {
    for (uint32_t i = 0; i < l->len; i++) {
        const struct step_share *h = &l->at[i];
        const struct step_slot *s = &slots[h->slot];
        for (uint32_t k = 0; k < h->cpu_count; k++)
            if (h->cpus[k] >= s->cpus || s->cpu_held[h->cpus[k]] || (k && h->cpus[k] <= h->cpus[k - 1]))
                return false;
        for (uint32_t k = 0; k < i; k++)
            if (l->at[k].slot == h->slot)
                return false;
        if (!gpus_fit(s, h))
            return false;
    }
    return true;
}

void sched_step_hold(struct step_slot *slots, const struct step_layout *layout) {
    change(slots, layout, true);
}

void sched_step_free(struct step_slot *slots, const struct step_layout *layout) {
    change(slots, layout, false);
}
