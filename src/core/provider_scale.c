// How many nodes there are: asks the autoscaler, wants nodes, gives back those that are idle, and follows each from one
// state to the next by what is known of its agent. Never ends work: a node is drained first, and stopped when its last
// job has ended.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/nodelist.h"
#include "model/units.h"
#include "provider_state.h"
#include "sched/autoscale.h"

enum {
    LOOK_MS = 1000,
    LOOK_LONGEST_MS = 15000,
    JOBS_PER_LOOK_MS = 20,   // the larger the world, the rarer it is copied
    MINUTE_MS = 60 * 1000,
    LATE_START_MS = 120 * 1000,   // as long as an answer of its program may take
    NAME_REST_MS = 3600 * 1000,  // before the name of a node that is gone is used again
    LEAVE_BEFORE_MS = 60 * 1000,  // a node that goes by itself gets no more jobs so long before
    BOOT_GUESS_MS = 30 * 1000,
    HOUR_MICRO = 1000,
    SHAPES_ALL = PROVIDERS_MAX * PROVIDER_SHAPES_MAX,
};

static const char *span_text(uint32_t seconds, char out[static UNIT_TEXT_MAX]) {
    bool minutes = seconds >= 120;
    snprintf(out, UNIT_TEXT_MAX, "%u %s", minutes ? seconds / 60 : seconds, minutes ? "min" : "s");
    return out;
}

// --- one node ---

static bool has_no_work(const struct node_entry *n) {
    return !n || (!n->jobs.len && !n->stale.len && !n->unknown.len);
}

void core_wanted_drain(struct core *c, struct wanted_entry *w, const char *reason, int64_t now_ms) {
    struct node_entry *n = core_find_node(c, w->node->node);
    cleanup_arena struct arena a = {0};
    const char *text = arena_strdup(&a, reason);
    if (n && !n->drained)
        core_emit(c, now_ms, EVENT_NODE_DRAINED,
                  &(struct event_node){.name = n->name, .state = n->state, .reason = text, .by = "provider"});
    struct wanted_node now = *w->node;
    now.state = WANTED_DRAINING;
    now.draining_ms = now_ms;
    now.reason = text;
    core_wanted_emit(c, &now, now_ms);
}

static void stop(struct core *c, struct wanted_entry *w, bool failed, const char *problem, int64_t now_ms) {
    struct wanted_node now = *w->node;
    now.state = WANTED_STOPPING;
    now.stopping_ms = now_ms;
    now.failed |= failed;
    if (problem)
        now.problem = problem;
    core_wanted_emit(c, &now, now_ms);
}

// A node that is to go may not get jobs in the moment its agent is there at last.
static void keep_free(struct core *c, const struct wanted_entry *w, int64_t now_ms) {
    struct node_entry *n = core_find_node(c, w->node->node);
    if (n && !n->drained)
        core_emit(c, now_ms, EVENT_NODE_DRAINED,
                  &(struct event_node){
                      .name = n->name, .state = n->state, .reason = "it is given back", .by = "provider"});
}

static void joined(struct core *c, struct wanted_entry *w, const struct node_entry *n, int64_t now_ms) {
    struct wanted_node now = *w->node;
    now.state = WANTED_JOINED;
    now.joined_ms = now_ms;
    now.booting_ms = now.booting_ms ? now.booting_ms : now_ms;
    now.running_ms = now.running_ms ? now.running_ms : now_ms;
    now.until_ms = n->node->until_ms ? n->node->until_ms : now.until_ms;
    now.problem = NULL;
    core_wanted_emit(c, &now, now_ms);
    const struct provider_entry *p = core_provider_entry(c, w->node->provider);
    if (p)
        core_provider_pause(c, p, w->node->shape, NULL, 0, now_ms);
}

static void follow_joined(struct core *c, struct wanted_entry *w, const struct node_entry *n, int64_t now_ms) {
    int64_t job_ms = n && (n->jobs.len || n->busy_ms >= w->node->joined_ms) ? now_ms : 0;
    if (!w->node->job_ms && job_ms) {
        struct wanted_node now = *w->node;
        now.job_ms = job_ms;
        core_wanted_emit(c, &now, now_ms);
    }
    if (!n || n->state == NODE_DOWN)
        stop(c, w, true, "its agent is gone", now_ms);
    else if (w->node->until_ms && w->node->until_ms - LEAVE_BEFORE_MS <= now_ms)
        core_wanted_drain(c, w, "its time in the engine is nearly over", now_ms);
}

static void give_up(struct core *c, struct wanted_entry *w, const struct provider_entry *p, int64_t now_ms) {
    char span[UNIT_TEXT_MAX], text[120];
    snprintf(text, sizeof text, "it has run for %s and its agent has not joined",
             span_text(p->set->start_s, span));
    stop(c, w, true, text, now_ms);
    core_provider_pause(c, p, w->node->shape, text, 0, now_ms);
}

// The node is forgotten when nothing of it is left and nobody else has its name.
static void forget_node(struct core *c, const struct wanted_entry *w, int64_t now_ms) {
    const struct node_entry *n = core_find_node(c, w->node->node);
    if (!n || n->state == NODE_UP || !has_no_work(n))
        return;
    for (uint32_t i = 0; i < c->wanted.len; i++)
        if (c->wanted.at[i]->node->state != WANTED_GONE && streq(c->wanted.at[i]->node->node, n->name))
            return;
    core_emit(c, now_ms, EVENT_NODE_REMOVED, &(struct event_node){.name = n->name, .by = "provider"});
}

static void follow(struct core *c, struct wanted_entry *w, int64_t now_ms) {
    const struct provider_entry *p = core_provider_entry(c, w->node->provider);
    const struct node_entry *n = core_find_node(c, w->node->node);
    bool up = n && n->state == NODE_UP;
    switch (w->node->state) {
    case WANTED_REQUESTED:
    case WANTED_BOOTING:
        if (up)
            joined(c, w, n, now_ms);
        else if (p && w->node->running_ms && now_ms - w->node->running_ms > (int64_t)p->set->start_s * 1000)
            give_up(c, w, p, now_ms);
        break;
    case WANTED_JOINED: follow_joined(c, w, n, now_ms); break;
    case WANTED_DRAINING:
        keep_free(c, w, now_ms);
        if (has_no_work(n) || n->state == NODE_DOWN)
            stop(c, w, false, NULL, now_ms);
        break;
    case WANTED_STOPPING: keep_free(c, w, now_ms); break;
    case WANTED_GONE: forget_node(c, w, now_ms); break;
    default: break;
    }
}

// One that was taken for gone may be stopped in this moment, as a stranger: it gets no jobs, and goes.
void core_wanted_hello(struct core *c, const char *node, int64_t now_ms) {
    struct wanted_entry *gone = NULL;
    for (uint32_t i = 0; i < c->wanted.len; i++) {
        struct wanted_entry *w = c->wanted.at[i];
        if (!streq(w->node->node, node))
            continue;
        if (w->node->state != WANTED_GONE) {
            follow(c, w, now_ms);
            return;
        }
        gone = w;
    }
    if (gone && core_provider_entry(c, gone->node->provider)) {
        struct wanted_node now = *gone->node;
        now.gone_ms = now.stopping_ms = 0;
        keep_free(c, gone, now_ms);
        now.state = WANTED_DRAINING;
        now.draining_ms = now_ms;
        core_wanted_emit(c, &now, now_ms);
    }
}

static void follow_all(struct core *c, int64_t now_ms) {
    VEC(struct wanted_entry *) all = {0};
    for (uint32_t i = 0; i < c->wanted.len; i++)
        vec_push(&all, c->wanted.at[i]);
    for (uint32_t i = 0; i < all.len; i++)
        follow(c, all.at[i], now_ms);
    vec_done(&all);
}

// --- a provider that goes ---

static void leave_node(struct core *c, struct wanted_entry *w, bool now, int64_t now_ms) {
    switch (w->node->state) {
    case WANTED_DECIDED:
    case WANTED_REFUSED: core_wanted_to(c, w, WANTED_GONE, NULL, now_ms); break;
    case WANTED_REQUESTED:
    case WANTED_BOOTING: stop(c, w, false, NULL, now_ms); break;
    case WANTED_JOINED: core_wanted_drain(c, w, "its provider is being removed", now_ms); break;
    default: break;
    }
    if (w->node->state == WANTED_DRAINING && (now || has_no_work(core_find_node(c, w->node->node))))
        stop(c, w, false, NULL, now_ms);
}

// A question to start a node can reach the engine after the node was given up: of a controller that has ended, say. A
// provider that is removed is asked for its nodes until that is over.
static bool may_still_start(const struct core *c, const char *provider, int64_t now_ms) {
    for (uint32_t i = 0; i < c->wanted.len; i++) {
        const struct wanted_node *n = c->wanted.at[i]->node;
        if (n->state == WANTED_GONE && !n->joined_ms && n->gone_ms > now_ms - LATE_START_MS &&
            streq(n->provider, provider))
            return true;
    }
    return false;
}

void core_provider_leave(struct core *c, struct provider_entry *p, bool now, int64_t now_ms) {
    cleanup_arena struct arena a = {0};
    const char *name = arena_strdup(&a, p->set->name);
    bool forget = p->set->forget, left = false;
    VEC(struct wanted_entry *) mine = {0};
    for (uint32_t i = 0; i < c->wanted.len; i++)
        if (streq(c->wanted.at[i]->node->provider, name) && c->wanted.at[i]->node->state != WANTED_GONE)
            vec_push(&mine, c->wanted.at[i]);
    for (uint32_t i = 0; i < mine.len; i++) {
        leave_node(c, mine.at[i], now || forget, now_ms);
        if (forget && mine.at[i]->node->state != WANTED_GONE)
            core_wanted_over(c, mine.at[i], NULL, now_ms);
        left |= mine.at[i]->node->state != WANTED_GONE;
    }
    vec_done(&mine);
    p = core_provider_entry(c, name);
    if (!left && (forget || (p->empty_lists >= 2 && !may_still_start(c, name, now_ms))))
        core_emit(c, now_ms, EVENT_PROVIDER_REMOVED, &(struct event_name){name, p->set->by});
}

// --- what is asked of the autoscaler ---

struct shape_of {
    struct provider_entry *provider;
    const struct provider_shape *shape;
    uint32_t joined, live, limit;  // limit: of what the provider may still want altogether
};

struct scaling {
    struct autoscale_shape shapes[SHAPES_ALL];
    struct shape_of of[SHAPES_ALL];
    uint32_t count;
    struct arena arena;
};

static bool is_name_listed(const char *list, const char *name) {
    cleanup_arena struct arena a = {0};
    struct name_list names = {0};
    if (str_empty(list) || streq(list, "ALL"))
        return true;
    if (nodelist_expand(list, &a, &names, NULL) < 0)
        return false;
    for (uint32_t i = 0; i < names.len; i++)
        if (streq(names.at[i], name))
            return true;
    return false;
}

static void node_of_shape(struct core *c, const char *provider, const struct provider_shape *s, struct arena *a,
                          struct sched_node *out, const uint32_t **partitions, uint32_t *partition_count) {
    struct sched_gpu *gpus = arena_alloc(a, (s->gpus + 1) * sizeof *gpus);
    uint32_t *ids = arena_alloc(a, (c->entity_list[ENTITY_PARTITION].len + 1) * sizeof *ids);
    for (uint32_t i = 0; i < s->gpus; i++)
        gpus[i] = (struct sched_gpu){.model = str_empty(s->gpu_model) ? "gpu" : s->gpu_model,
                                     .memory_bytes = s->gpu_memory_bytes};
    *out = (struct sched_node){.cpus = s->cpus,
                               .memory_bytes = s->memory_bytes,
                               .gpus = gpus,
                               .gpu_count = s->gpus,
                               .features = s->features.at,
                               .feature_count = s->features.len,
                               .user = str_empty(s->user) ? 0 : core_user_handle(c, s->user)};
    *partition_count = 0;
    const char *first = arena_printf(a, "%s-1", provider);
    for (uint32_t i = 0; i < c->entity_list[ENTITY_PARTITION].len; i++) {
        const struct entity_entry *t = c->entity_list[ENTITY_PARTITION].at[i];
        const struct partition *p = t->value;
        if (p && !str_empty(p->nodes) && is_name_listed(p->nodes, first))
            ids[(*partition_count)++] = t->handle;
    }
    *partitions = ids;
}

void core_provider_shapes_to_world(struct core *c) {
    cleanup_arena struct arena a = {0};
    struct provider_entry *list[PROVIDERS_MAX];
    uint32_t n = core_provider_list(c, list), count = 0;
    struct world_shape *shapes = arena_alloc(&a, (SHAPES_ALL + 1) * sizeof *shapes);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < list[i]->set->shapes.len && !list[i]->set->removing; k++) {
            const struct provider_shape *s = &list[i]->set->shapes.at[k];
            struct world_shape *out = &shapes[count++];
            node_of_shape(c, list[i]->set->name, s, &a, &out->node, &out->partitions, &out->partition_count);
            out->nodes = s->max && s->max < list[i]->set->max ? s->max : list[i]->set->max;
        }
    world_shapes_set(c->world, shapes, count, NULL);
    c->shapes_changed = false;
    c->dirty = true;
}

static const struct provider_pause *pause_of(const struct node_provider *p, const char *shape, int64_t now_ms) {
    for (uint32_t i = 0; i < p->pauses.len; i++)
        if (streq(p->pauses.at[i].shape, shape) && p->pauses.at[i].until_ms > now_ms)
            return &p->pauses.at[i];
    return NULL;
}

struct provider_counts {
    uint32_t live, joined, recent;  // recent: wanted within the last minute
    uint64_t cost_milli;            // of an hour of all
};

static struct provider_counts count_nodes(const struct core *c, const char *provider, int64_t now_ms) {
    struct provider_counts out = {0};
    for (uint32_t i = 0; i < c->wanted.len; i++) {
        const struct wanted_node *n = c->wanted.at[i]->node;
        if (!streq(n->provider, provider))
            continue;
        out.live += core_wanted_live(n);
        out.joined += n->state == WANTED_JOINED;
        out.recent += n->wanted_ms > now_ms - MINUTE_MS && n->wanted_ms <= now_ms;
        out.cost_milli += core_wanted_live(n) ? n->cost_milli : 0;
    }
    return out;
}

static uint32_t less(uint32_t a, uint32_t b) {
    return a > b ? a - b : 0;
}

static uint32_t smaller(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

// How many more nodes the provider may want now, and why no more.
static uint32_t room_of(const struct core *c, struct provider_entry *p, const struct provider_counts *n,
                        uint64_t cost_milli, int64_t now_ms, const char **why) {
    const struct node_provider *s = p->set;
    uint32_t room = less(s->max, n->live), by_rate = less(s->rate, n->recent);
    *why = "it has as many nodes as it may have";
    if (s->paused || s->removing) {
        *why = s->removing ? "it is being removed" : "it is paused";
        return 0;
    }
    if (by_rate < room) {
        room = by_rate;
        *why = "it has asked for as many nodes within a minute as its rate allows";
    }
    if (schema_given(&provider_schema, s, &s->budget_milli) && cost_milli) {
        uint64_t spent = core_provider_spent_micro(c, s, now_ms) / HOUR_MICRO + n->cost_milli;
        uint64_t left = spent < s->budget_milli ? (s->budget_milli - spent) / cost_milli : 0;
        if (left < room) {
            room = (uint32_t)left;
            *why = "another node would cost more than its budget of today";
        }
    }
    return room;
}

static void add_shape(struct core *c, struct scaling *g, struct provider_entry *p, const struct provider_shape *s,
                      const struct provider_counts *n, int64_t now_ms) {
    struct autoscale_shape *out = &g->shapes[g->count];
    struct shape_of *of = &g->of[g->count++];
    const char *why;
    *of = (struct shape_of){.provider = p, .shape = s};
    *out = (struct autoscale_shape){.lifetime_ms = (int64_t)s->lifetime_s * 1000,
                                    .boot_ms = s->boot_s ? (int64_t)s->boot_s * 1000 : BOOT_GUESS_MS,
                                    .cost = provider_cost(p->set, s)};
    node_of_shape(c, p->set->name, s, &g->arena, &out->node, &out->partitions, &out->partition_count);
    for (uint32_t i = 0; i < c->wanted.len; i++) {
        const struct wanted_node *w = c->wanted.at[i]->node;
        if (streq(w->provider, p->set->name) && streq(w->shape, s->name)) {
            out->coming += wanted_is_coming(w->state);
            of->live += core_wanted_live(w);
        }
    }
    of->limit = room_of(c, p, n, out->cost, now_ms, &why);
    const struct provider_pause *pause = pause_of(p->set, s->name, now_ms);
    if (pause)
        snprintf(p->note, sizeof p->note, "%s is asked for again later: %.300s", s->name, pause->reason);
    else if (!of->limit)
        snprintf(p->note, sizeof p->note, "no more nodes: %s", why);
    else
        *p->note = 0;
    out->room = pause ? 0 : s->max ? smaller(of->limit, less(s->max, of->live)) : of->limit;
}

static void make_shapes(struct core *c, struct scaling *g, int64_t now_ms) {
    struct provider_entry *list[PROVIDERS_MAX];
    uint32_t n = core_provider_list(c, list);
    for (uint32_t i = 0; i < n; i++) {
        struct provider_counts counts = count_nodes(c, list[i]->set->name, now_ms);
        for (uint32_t k = 0; k < list[i]->set->shapes.len; k++)
            add_shape(c, g, list[i], &list[i]->set->shapes.at[k], &counts, now_ms);
    }
}

// --- more nodes ---

// The lowest number that no node of the provider has, or had a while ago, from `from` on: one that the engine said had
// ended can turn out to run.
static uint32_t free_number(const struct core *c, const char *provider, uint32_t from, int64_t now_ms) {
    char name[IDENTIFIER_MAX + 1];
    for (uint32_t number = from;; number++) {
        snprintf(name, sizeof name, "%s-%u", provider, number);
        bool taken = core_find_node(c, name) != NULL;
        for (uint32_t i = 0; i < c->wanted.len && !taken; i++)
            taken = (c->wanted.at[i]->node->state != WANTED_GONE ||
                     c->wanted.at[i]->node->gone_ms > now_ms - NAME_REST_MS) &&
                    streq(c->wanted.at[i]->node->node, name);
        if (!taken)
            return number;
    }
}

static void want(struct core *c, const struct shape_of *of, uint32_t count, uint64_t job, const char *reason,
                 int64_t now_ms) {
    cleanup_arena struct arena a = {0};
    const struct core_job *j = job ? core_find_job(c, job) : NULL;
    // The provider's own texts may move while events are applied.
    const char *provider = arena_strdup(&a, of->provider->set->name), *shape = arena_strdup(&a, of->shape->name);
    uint64_t cost = provider_cost(of->provider->set, of->shape);
    for (uint32_t i = 0; i < c->wanted.len && count; i++) {  // those that were refused come first
        struct wanted_entry *w = c->wanted.at[i];
        if (w->node->state != WANTED_REFUSED || !streq(w->node->provider, provider) || !streq(w->node->shape, shape))
            continue;
        core_wanted_to(c, w, WANTED_REQUESTED, NULL, now_ms);
        count--;
    }
    for (uint32_t i = 0, number = 0; i < count; i++) {
        number = free_number(c, provider, number + 1, now_ms);
        struct wanted_node n = {.id = c->newest_wanted + 1,
                                .provider = provider,
                                .node = arena_printf(&a, "%s-%u", provider, number),
                                .shape = shape,
                                .state = WANTED_DECIDED,
                                .reason = reason,
                                .job = job,
                                .cost_milli = cost,
                                .demand_ms = j ? j->sub->submit_ms : now_ms,
                                .wanted_ms = now_ms};
        n.key = arena_printf(&a, "%s.%" PRIu64 ".%08" PRIx32, n.node, n.id, (uint32_t)hash_u64(core_epoch(c)));
        core_wanted_emit(c, &n, now_ms);
        core_wanted_to(c, core_wanted_entry(c, n.id), WANTED_REQUESTED, NULL, now_ms);
    }
}

static void want_by_jobs(struct core *c, struct scaling *g, int64_t now_ms) {
    for (uint32_t i = 0; i < g->count; i++) {
        struct autoscale_shape *s = &g->shapes[i];
        struct shape_of *of = &g->of[i];
        char reason[200];
        uint32_t count = smaller(s->wanted, of->limit);
        if (!count)
            continue;
        snprintf(reason, sizeof reason,
                 "%u job%s wait%s for what does not become free sooner; the first is job %" PRIu64, s->jobs,
                 s->jobs == 1 ? "" : "s", s->jobs == 1 ? "s" : "", s->first_job);
        for (uint32_t k = i; k < g->count; k++)  // its other shapes share the limit
            if (g->of[k].provider == of->provider)
                g->of[k].limit = less(g->of[k].limit, count);
        snprintf(of->provider->note, sizeof of->provider->note, "%u of %s: %s", count, of->shape->name, reason);
        want(c, of, count, s->first_job, reason, now_ms);
    }
}

// The least number of nodes, of the cheapest shape.
static void want_least(struct core *c, struct scaling *g, int64_t now_ms) {
    struct provider_entry *list[PROVIDERS_MAX];
    uint32_t n = core_provider_list(c, list);
    for (uint32_t i = 0; i < n; i++) {
        struct provider_counts counts = count_nodes(c, list[i]->set->name, now_ms);
        uint32_t missing = less(list[i]->set->min, counts.live), best = g->count;
        for (uint32_t k = 0; k < g->count; k++)
            if (g->of[k].provider == list[i] && g->shapes[k].room &&
                (best == g->count || g->shapes[k].cost < g->shapes[best].cost))
                best = k;
        if (missing && best < g->count)
            want(c, &g->of[best], smaller(missing, smaller(g->of[best].limit, g->shapes[best].room)), 0,
                 "it is to have this many nodes at least", now_ms);
    }
}

// --- fewer nodes ---

static bool is_used(const struct autoscale_result *r, const struct node_entry *n) {
    for (uint32_t i = 0; i < r->used.len; i++)
        if (r->used.at[i] == n->handle)
            return true;
    return false;
}

static int dearest_first(const void *pa, const void *pb) {
    const struct wanted_node *a = (*(struct wanted_entry *const *)pa)->node,
                             *b = (*(struct wanted_entry *const *)pb)->node;
    if (a->cost_milli != b->cost_milli)
        return a->cost_milli < b->cost_milli ? 1 : -1;
    return a->id < b->id ? 1 : -1;
}

static bool is_idle(const struct core *c, const struct wanted_node *w, int64_t idle_ms, int64_t now_ms) {
    const struct node_entry *n = core_find_node(c, w->node);
    if (!n || n->state != NODE_UP || !has_no_work(n))
        return false;
    int64_t since = n->busy_ms > w->joined_ms ? n->busy_ms : w->joined_ms;
    return now_ms - since >= idle_ms;
}

static void shrink(struct core *c, struct provider_entry *p, const struct autoscale_result *r, int64_t now_ms) {
    struct provider_counts counts = count_nodes(c, p->set->name, now_ms);
    cleanup_arena struct arena a = {0};
    const char *name = arena_strdup(&a, p->set->name);
    uint32_t min = p->set->min, max = p->set->max, idle_s = p->set->idle_s, stopping = 0;
    char span[UNIT_TEXT_MAX], reason[100];
    VEC(struct wanted_entry *) list = {0};
    for (uint32_t i = 0; i < c->wanted.len; i++) {
        const struct wanted_node *w = c->wanted.at[i]->node;
        if (!streq(w->provider, name))
            continue;
        stopping += w->state == WANTED_DRAINING || w->state == WANTED_STOPPING;
        // Also those that the engine has not begun and that nothing waits for any more.
        if (w->state == WANTED_JOINED || (w->state == WANTED_BOOTING && !w->running_ms))
            vec_push(&list, c->wanted.at[i]);
    }
    if (list.len)
        qsort(list.at, list.len, sizeof *list.at, dearest_first);
    uint32_t staying = counts.live - stopping;
    for (uint32_t i = 0; i < list.len && staying > min; i++) {
        struct wanted_entry *w = list.at[i];
        const struct node_entry *n = core_find_node(c, w->node->node);
        int64_t idle_ms = staying > max ? 0 : (int64_t)idle_s * 1000;
        if (w->node->state == WANTED_JOINED && is_idle(c, w->node, idle_ms, now_ms) && !is_used(r, n)) {
            snprintf(reason, sizeof reason, "without jobs for %s", span_text((uint32_t)(idle_ms / 1000), span));
            core_wanted_drain(c, w, reason, now_ms);
            if (has_no_work(core_find_node(c, w->node->node)))
                stop(c, w, false, NULL, now_ms);
            staying--;
        }
    }
    vec_done(&list);
}

// Nodes that the engine has not begun: as many as no job would start on are asked back, the newest first.
static void ask_back(struct core *c, struct scaling *g, int64_t now_ms) {
    for (uint32_t i = 0; i < g->count; i++) {
        const struct node_provider *p = g->of[i].provider->set;
        uint32_t extra = less(g->shapes[i].coming, g->shapes[i].coming_used);
        struct provider_counts counts = count_nodes(c, p->name, now_ms);
        extra = smaller(extra, less(counts.live, p->min));
        cleanup_arena struct arena a = {0};
        const char *provider = arena_strdup(&a, p->name), *shape = arena_strdup(&a, g->of[i].shape->name);
        int64_t idle_ms = (int64_t)p->idle_s * 1000;
        for (uint32_t k = c->wanted.len; k-- > 0 && extra;) {
            struct wanted_entry *w = c->wanted.at[k];
            if (w->node->state != WANTED_BOOTING || w->node->running_ms || !streq(w->node->provider, provider) ||
                !streq(w->node->shape, shape) || now_ms - w->node->booting_ms < idle_ms)
                continue;
            stop(c, w, false, "nothing waits for it any more", now_ms);
            extra--;
        }
    }
}

// Refused ones that nothing waits for are forgotten.
static void forget_refused(struct core *c, const struct scaling *g, int64_t now_ms) {
    VEC(struct wanted_entry *) list = {0};
    for (uint32_t i = 0; i < c->wanted.len; i++) {
        const struct wanted_node *w = c->wanted.at[i]->node;
        const struct provider_entry *p = core_provider_entry(c, w->provider);
        if (w->state == WANTED_REFUSED && (!p || !pause_of(p->set, w->shape, now_ms)))
            vec_push(&list, c->wanted.at[i]);
    }
    for (uint32_t i = 0; i < list.len; i++)
        core_wanted_to(c, list.at[i], WANTED_GONE, NULL, now_ms);
    vec_done(&list);
}

static int64_t look_again_ms(const struct core *c) {
    int64_t jobs = (int64_t)world_pending(c->world) + world_running(c->world);
    int64_t ms = jobs / JOBS_PER_LOOK_MS;
    return ms < LOOK_MS ? LOOK_MS : ms > LOOK_LONGEST_MS ? LOOK_LONGEST_MS : ms;
}

static void autoscale(struct core *c, int64_t now_ms) {
    struct scaling *g = xcalloc(1, sizeof *g);
    struct provider_entry *list[PROVIDERS_MAX];
    struct autoscale_result r;
    make_shapes(c, g, now_ms);
    sched_autoscale(c->world, g->shapes, g->count, now_ms, &c->config.policy, &r);
    for (uint32_t i = 0; i < g->count; i++) {
        const struct node_provider *p = g->of[i].provider->set;
        if (!r.unmet && !p->paused && !pause_of(p, g->of[i].shape->name, now_ms))
            *g->of[i].provider->note = 0;  // nothing asks for what it may not do
        if (r.unmet && !*g->of[i].provider->note)
            snprintf(g->of[i].provider->note, sizeof g->of[i].provider->note,
                     "%u job%s wait%s that its nodes could not run, or for something else than nodes", r.unmet,
                     r.unmet == 1 ? "" : "s", r.unmet == 1 ? "s" : "");
    }
    want_by_jobs(c, g, now_ms);
    want_least(c, g, now_ms);
    ask_back(c, g, now_ms);
    uint32_t n = core_provider_list(c, list);
    for (uint32_t i = 0; i < n; i++)
        if (!list[i]->set->removing)
            shrink(c, list[i], &r, now_ms);
    forget_refused(c, g, now_ms);
    vec_done(&r.used);
    arena_done(&g->arena);
    free(g);
    c->next_autoscale_ms = now_ms + look_again_ms(c);
}

void core_providers_tick(struct core *c, int64_t now_ms) {
    if (!c->providers.len)
        return;
    if (c->shapes_changed)
        core_provider_shapes_to_world(c);
    follow_all(c, now_ms);
    struct provider_entry *list[PROVIDERS_MAX];
    uint32_t n = core_provider_list(c, list);
    for (uint32_t i = 0; i < n; i++)
        if (list[i]->set->removing)
            core_provider_leave(c, list[i], false, now_ms);
    if (now_ms >= c->next_autoscale_ms)
        autoscale(c, now_ms);
}
