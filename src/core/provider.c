// Providers and wanted nodes: what is kept of them, and the commands of administrators. What programs report is in
// provider_report.c; how many nodes there are to be in provider_scale.c.
#include "model/provider.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/text.h"
#include "model/nodelist.h"
#include "provider_state.h"

enum { DAY_MS = 86400 * 1000, HOUR_MS = 3600 * 1000, TIMES_MAX = 13 };

struct provider_entry *core_provider_entry(const struct core *c, const char *name) {
    return name ? strmap_get(&c->providers, name) : NULL;
}

const struct node_provider *core_provider(const struct core *c, const char *name) {
    const struct provider_entry *p = core_provider_entry(c, name);
    return p ? p->set : NULL;
}

const char *core_provider_note(const struct core *c, const char *name) {
    const struct provider_entry *p = core_provider_entry(c, name);
    return p ? p->note : "";
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(struct provider_entry *const *)a)->set->name,
                  (*(struct provider_entry *const *)b)->set->name);
}

uint32_t core_provider_list(const struct core *c, struct provider_entry *out[static PROVIDERS_MAX]) {
    size_t it = 0;
    uint32_t n = 0;
    void *v;
    while (strmap_next(&c->providers, &it, NULL, &v) && n < PROVIDERS_MAX)
        out[n++] = v;
    qsort(out, n, sizeof *out, by_name);
    return n;
}

void core_each_provider(const struct core *c, bool (*fn)(void *ctx, const struct node_provider *p), void *ctx) {
    struct provider_entry *list[PROVIDERS_MAX];
    uint32_t n = core_provider_list(c, list);
    for (uint32_t i = 0; i < n && fn(ctx, list[i]->set); i++)
        ;
}

// The first entry whose id is not below.
static uint32_t position(const struct core *c, uint64_t id) {
    uint32_t low = 0, high = c->wanted.len;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (c->wanted.at[mid]->node->id < id)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

struct wanted_entry *core_wanted_entry(const struct core *c, uint64_t id) {
    uint32_t i = position(c, id);
    return i < c->wanted.len && c->wanted.at[i]->node->id == id ? c->wanted.at[i] : NULL;
}

const struct wanted_node *core_wanted(const struct core *c, uint64_t id) {
    const struct wanted_entry *w = core_wanted_entry(c, id);
    return w ? w->node : NULL;
}

void core_each_wanted(const struct core *c, const char *provider,
                      bool (*fn)(void *ctx, const struct wanted_node *n), void *ctx) {
    for (uint32_t i = 0; i < c->wanted.len; i++)
        if ((!provider || streq(c->wanted.at[i]->node->provider, provider)) && !fn(ctx, c->wanted.at[i]->node))
            return;
}

// --- money ---

static uint64_t cost_since(const struct wanted_node *n, int64_t from_ms, int64_t to_ms) {
    int64_t begin = n->booting_ms > from_ms ? n->booting_ms : from_ms;
    if (!n->booting_ms || to_ms <= begin || to_ms - begin > DAY_MS)
        return 0;
    return n->cost_milli * (uint64_t)(to_ms - begin) / HOUR_MS * 1000;
}

uint64_t core_provider_spent_micro(const struct core *c, const struct node_provider *p, int64_t now_ms) {
    int64_t day = now_ms / DAY_MS;
    uint64_t sum = p->spent_day == day ? p->spent_micro : 0;
    for (uint32_t i = 0; i < c->wanted.len; i++) {
        const struct wanted_node *n = c->wanted.at[i]->node;
        if (n->state != WANTED_GONE && streq(n->provider, p->name))
            sum += cost_since(n, day * DAY_MS, now_ms);
    }
    return sum;
}

// --- state ---

static void provider_free(struct provider_entry *p) {
    arena_done(&p->arena);
    free(p);
}

static void wanted_free(struct wanted_entry *w) {
    arena_done(&w->arena);
    free(w);
}

static void forget_wanted(struct core *c, uint32_t i) {
    struct wanted_entry *w = c->wanted.at[i];
    c->wanted_gone -= w->node->state == WANTED_GONE;
    vec_remove(&c->wanted, i);
    wanted_free(w);
}

void core_apply_provider(struct core *c, const struct event *e) {
    c->shapes_changed = true;
    c->next_autoscale_ms = 0;
    if (e->type == EVENT_PROVIDER_SET) {
        const struct node_provider *b = ((const struct event_provider *)e->body)->provider;
        struct provider_entry *p = core_provider_entry(c, b->name);
        if (!p)
            p = xcalloc(1, sizeof *p);
        else
            strmap_remove(&c->providers, b->name);
        struct arena old = p->arena;
        p->arena = (struct arena){0};
        p->set = schema_copy(&provider_schema, b, &p->arena);
        strmap_put(&c->providers, p->set->name, p);
        arena_done(&old);
        return;
    }
    struct provider_entry *p = strmap_remove(&c->providers, ((const struct event_name *)e->body)->name);
    for (uint32_t i = c->wanted.len; p && i-- > 0;)
        if (streq(c->wanted.at[i]->node->provider, p->set->name))
            forget_wanted(c, i);
    if (p)
        provider_free(p);
}

static void count_cost(struct core *c, const struct wanted_node *n) {
    struct provider_entry *p = core_provider_entry(c, n->provider);
    int64_t day = n->gone_ms / DAY_MS;
    if (!p)
        return;
    if (p->set->spent_day != day)
        p->set->spent_micro = 0;
    p->set->spent_day = day;
    p->set->spent_micro += cost_since(n, day * DAY_MS, n->gone_ms);
}

void core_apply_wanted(struct core *c, const struct event *e) {
    const struct wanted_node *b = e->body;
    struct wanted_entry *w = core_wanted_entry(c, b->id);
    bool is_new = !w, was_gone = w && w->node->state == WANTED_GONE;
    if (is_new)
        w = xcalloc(1, sizeof *w);
    struct arena old = w->arena;
    w->arena = (struct arena){0};
    w->node = schema_copy(&wanted_node_schema, b, &w->arena);
    arena_done(&old);
    if (is_new) {
        uint32_t at = position(c, b->id);
        vec_push(&c->wanted, w);
        memmove(c->wanted.at + at + 1, c->wanted.at + at, (c->wanted.len - 1 - at) * sizeof *c->wanted.at);
        c->wanted.at[at] = w;
        c->newest_wanted = b->id > c->newest_wanted ? b->id : c->newest_wanted;
    }
    bool gone = b->state == WANTED_GONE;
    c->wanted_gone += (uint32_t)gone - was_gone;
    if (gone && !was_gone && !is_new)
        count_cost(c, w->node);
    for (uint32_t i = 0; c->wanted_gone > WANTED_GONE_KEPT && i < c->wanted.len; i++)
        if (c->wanted.at[i]->node->state == WANTED_GONE) {
            forget_wanted(c, i);
            break;
        }
}

static bool times_load(const struct wanted_node *n) {
    const int64_t times[TIMES_MAX] = {n->until_ms,  n->demand_ms,   n->wanted_ms, n->requested_ms, n->booting_ms,
                                      n->running_ms, n->joined_ms,  n->job_ms,    n->draining_ms,  n->stopping_ms,
                                      n->gone_ms,   n->next_ms,     0};
    for (int i = 0; i < TIMES_MAX; i++)
        if (!core_time_loads(times[i]))
            return false;
    return true;
}

bool core_wanted_loads(const struct wanted_node *n) {
    return n->id && n->id < CORE_ID_MAX && n->provider && n->key && n->node && n->shape &&
           n->state < WANTED_STATES && n->cost_milli <= PROVIDER_COST_MAX && times_load(n);
}

bool core_provider_loads(const struct node_provider *p) {
    if (!p || !p->tag || provider_check(p, NULL) < 0 || p->shapes.len > PROVIDER_SHAPES_MAX ||
        p->pauses.len > PROVIDER_SHAPES_MAX)
        return false;
    for (uint32_t i = 0; i < p->shapes.len; i++)
        if (provider_shape_check(&p->shapes.at[i], NULL) < 0)
            return false;
    for (uint32_t i = 0; i < p->pauses.len; i++)
        if (!p->pauses.at[i].shape || !core_time_loads(p->pauses.at[i].until_ms))
            return false;
    return true;
}

void core_providers_free(struct core *c) {
    size_t it = 0;
    void *v;
    while (strmap_next(&c->providers, &it, NULL, &v))
        provider_free(v);
    strmap_done(&c->providers);
    for (uint32_t i = 0; i < c->wanted.len; i++)
        wanted_free(c->wanted.at[i]);
    vec_done(&c->wanted);
}

// --- changes ---

void core_provider_emit(struct core *c, const struct node_provider *p, int64_t now_ms) {
    cleanup_arena struct arena a = {0};  // applying it frees what it may be made of
    core_emit(c, now_ms, EVENT_PROVIDER_SET,
              &(struct event_provider){schema_copy(&provider_schema, p, &a)});
}

void core_wanted_emit(struct core *c, struct wanted_node *n, int64_t now_ms) {
    cleanup_arena struct arena a = {0};
    core_emit(c, now_ms, EVENT_WANTED_NODE, schema_copy(&wanted_node_schema, n, &a));
}

void core_wanted_to(struct core *c, const struct wanted_entry *w, enum wanted_state state, const char *problem,
                    int64_t now_ms) {
    struct wanted_node n = *w->node;
    int64_t *const times[WANTED_STATES] = {
        [WANTED_REQUESTED] = &n.requested_ms, [WANTED_BOOTING] = &n.booting_ms,   [WANTED_JOINED] = &n.joined_ms,
        [WANTED_DRAINING] = &n.draining_ms,   [WANTED_STOPPING] = &n.stopping_ms, [WANTED_GONE] = &n.gone_ms};
    n.state = state;
    if (times[state] && !*times[state])
        *times[state] = now_ms;
    if (problem)
        n.problem = problem;
    core_wanted_emit(c, &n, now_ms);
}

// --- commands ---

static int need_feature(const struct core *c, struct error *e) {
    return core_feature(c, FEATURE_PROVIDERS)
               ? 0
               : error_set(e, ENOTSUP, "provider: finish the upgrade first: acequia upgrade finish");
}

static int need_provider(const struct core *c, const char *name, struct provider_entry **out, struct error *e) {
    char shown[64];
    *out = core_provider_entry(c, name);
    return *out ? 0
                : error_set(e, ENOENT, "provider \"%s\" does not exist; see 'acequia provider list'",
                            str_printable(name, shown, sizeof shown));
}

static int check_secrets(const struct core *c, const struct node_provider *p, struct error *e) {
    for (uint32_t i = 0; i < p->secrets.len; i++)
        if (!core_secret(c, p->by, NULL, p->secrets.at[i]))
            return error_set(e, ENOENT,
                             "secrets: %s has no secret \"%s\"; store it first: acequia secret set %s", p->by,
                             p->secrets.at[i], p->secrets.at[i]);
    return 0;
}

// What the core knows of a provider stays as it is, whatever is sent.
static void keep_own(const struct core *c, const struct node_provider *old, const struct actor *actor, int64_t now_ms,
                     struct arena *a, struct node_provider *p) {
    p->tag = old ? old->tag
                 : arena_printf(a, "%016" PRIx64, hash_u64(core_epoch(c) ^ hash_u64(c->seq + 1)));
    p->removing = old && old->removing;
    p->forget = false;
    p->shapes.at = old ? old->shapes.at : NULL;
    p->shapes.len = old ? old->shapes.len : 0;
    p->pauses.at = NULL;  // whoever changes it wants to see whether it works now
    p->pauses.len = 0;
    p->spent_day = old ? old->spent_day : 0;
    p->spent_micro = old ? old->spent_micro : 0;
    p->made_ms = old ? old->made_ms : now_ms;
    p->by = old ? old->by : actor->user;
}

CORE_COMMAND(core_command_provider_set) {
    const struct node_provider *m = body;
    cleanup_arena struct arena a = {0};
    int r;
    if ((r = core_need_admin(actor, "change providers", e)) < 0 || (r = need_feature(c, e)) < 0 ||
        (r = provider_name_check(m->name, e)) < 0)
        return r;
    const struct provider_entry *entry = core_provider_entry(c, m->name);
    const struct node_provider *old = entry ? entry->set : NULL;
    if (old && old->removing)
        return error_set(e, EBUSY, "provider %s is being removed; it is gone when its last node is", old->name);
    if (!old && c->providers.len >= PROVIDERS_MAX)
        return error_set(e, E2BIG, "provider: there are %d, which is the most", PROVIDERS_MAX);
    struct node_provider p = old ? *old : (struct node_provider){.name = m->name};
    schema_merge(&provider_schema, &p, m);
    if (old && p.kind != old->kind)
        return error_set(e, EINVAL, "kind: provider %s is of kind %s, which cannot be changed; remove it first",
                         old->name, provider_kind_words[old->kind]);
    if (!old && !schema_given(&provider_schema, &p, &p.max))
        return error_set(e, EINVAL, "max: say how many nodes there may be at most, as --max 8");
    keep_own(c, old, actor, now_ms, &a, &p);
    if (m->secrets.len)
        p.by = actor->user;
    if (!old)
        provider_defaults(&p);
    if ((r = provider_check(&p, e)) < 0 || (r = check_secrets(c, &p, e)) < 0)
        return r;
    if (old && schema_equal(&provider_schema, old, &p)) {
        error_set(e, EALREADY, "provider %s has these values already", p.name);
        return CORE_UNCHANGED;
    }
    core_provider_emit(c, &p, now_ms);
    return 0;
}

CORE_COMMAND(core_command_provider_remove) {
    const struct command_provider_remove *m = body;
    struct provider_entry *entry;
    int r;
    if ((r = core_need_admin(actor, "remove providers", e)) < 0 || (r = need_provider(c, m->name, &entry, e)) < 0)
        return r;
    struct node_provider p = *entry->set;
    p.removing = true;
    p.forget |= m->forget;
    if (!entry->set->removing || p.forget != entry->set->forget)
        core_provider_emit(c, &p, now_ms);
    entry = core_provider_entry(c, m->name);
    entry->empty_lists = 0;
    core_provider_leave(c, entry, m->now, now_ms);
    return 0;
}
