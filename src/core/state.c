// Creates, finds and frees the parts of the state.
#include "images.h"
#include "state.h"
#include "volume_use.h"
#include "model/notify.h"

#include <assert.h>
#include <string.h>

#include "base/text.h"

void core_config_default(struct core_config *c) {
    *c = (struct core_config){
        .cluster = "acequia",
        .max_jobs = 2000000,
        .max_jobs_per_user = 1000000,
        .max_array_size = 1000000,
        .max_spec_bytes_per_user = 1ULL << 30,
        .max_text_bytes_per_user = 1ULL << 30,
        .max_keys_per_user = 100000,
        .max_dependencies = 1000,
        .elements_at_once = 2000,
        .grace_s = 30,
        .max_attempts = 100,
    };
    sched_policy_default(&c->policy);
}

void core_configure(struct core *c, const struct core_config *config) {
    c->config = *config;
    c->config.cluster = core_intern(c, config->cluster);
    c->unset_policy = config->policy;
    core_policy_reapply(c);
    c->dirty = true;
}

// A new cluster has one project and one partition that everybody may use.
static void add_builtin(struct core *c) {
    static const struct partition main_partition = {.name = "main", .is_default = true};
    static const struct project default_project = {.name = PROJECT_DEFAULT, .quota_milligpu = PROJECT_QUOTA_ALL};
    struct event_partition_set p = {.partition = (struct partition *)(uintptr_t)&main_partition};
    struct event_project_set j = {.project = (struct project *)(uintptr_t)&default_project};
    core_apply(c, &(struct event){.type = EVENT_PARTITION_SET, .body = &p});
    core_apply(c, &(struct event){.type = EVENT_PROJECT_SET, .body = &j});
}

static void init(struct core *c, const struct core_config *config) {
    c->world = world_new();
    world_half_life(c->world, config->policy.half_life_ms);
    c->next_id = 1;
    c->level = FEATURE_LEVEL_FIRST;
    c->next_decide_ms = c->next_retry_ms = c->next_group_ms = INT64_MAX;
    core_configure(c, config);
    add_builtin(c);
}

uint32_t core_slice(void) {
    return 2000;
}

struct core *core_new(const struct core_config *config) {
    struct core *c = xcalloc(1, sizeof *c);
    init(c, config);
    return c;
}

static void node_entry_free(struct node_entry *n) {
    if (!n)
        return;
    arena_done(&n->arena);
    free(n->reason);
    free(n->launch_reason);
    core_images_forget(n);
    free(n->by);
    free(n->fingerprint);
    vec_done(&n->jobs);
    vec_done(&n->stale);
    vec_done(&n->unknown);
    free(n);
}

static void free_entities(struct core *c) {
    for (int t = 0; t < ENTITY_COUNT; t++) {
        for (uint32_t i = 0; i < c->entity_list[t].len; i++) {
            arena_done(&c->entity_list[t].at[i]->arena);
            free(c->entity_list[t].at[i]);
        }
        vec_done(&c->entity_list[t]);
        strmap_done(&c->entities[t]);
    }
}

static void free_jobs(struct core *c) {
    for (uint32_t i = 0; i < c->order.len; i++) {
        struct core_job *j = c->order.at[i].job;
        if (!j)
            continue;
        if (j->run) {
            core_steps_free(c, j->run->steps);
            j->run->steps = NULL;
        }
        core_run_free(j->run);
        core_dependents_free(&j->waiting);
        free(j->usage);
        free(map_remove(&c->preempted_why, j->id));
        core_promise_forget(c, j);
        core_submission_unref(c, j->sub);
        free(j);
    }
    vec_done(&c->order);
    vec_done(&c->planned);
    map_done(&c->preempted_why);
    map_done(&c->promised);
    vec_done(&c->leased);
    size_t it = 0;
    void *v;
    while (map_next(&c->groups, &it, NULL, &v))
        core_group_free(c, v);
    map_done(&c->groups);
    vec_done(&c->late_launches);
    vec_done(&c->changed_groups);
    it = 0;
    while (map_next(&c->arrays, &it, NULL, &v)) {
        core_dependents_free(&((struct array *)v)->waiting);
        core_array_free(c, v);
    }
    vec_done(&c->unfinished);
    core_judging_done(c);
}

static void clear(struct core *c) {
    free_jobs(c);
    for (uint32_t i = 0; i < c->node_list.len; i++)
        node_entry_free(c->node_list.at[i]);
    vec_done(&c->node_list);
    free_entities(c);
    size_t it = 0;
    void *v;
    while (strmap_next(&c->tokens, &it, NULL, &v)) {
        arena_done(&((struct token_entry *)v)->arena);
        free(v);
    }
    it = 0;
    while (strmap_next(&c->user_jobs, &it, NULL, &v))
        free(v);
    world_free(c->world);
    sched_decisions_done(&c->decisions);
    vec_done(&c->outbox.events);
    vec_done(&c->outbox.effects);
    vec_done(&c->outbox.finished);
    vec_done(&c->outbox.notices);
    buf_done(&c->outbox.bytes);
    vec_done(&c->outcomes);
    vec_done(&c->epochs);
    vec_done(&c->adopted);
    vec_done(&c->users);
    map_done(&c->jobs);
    core_same_name_done(c);
    vec_done(&c->keys.list);
    map_done(&c->keys.index);
    buf_done(&c->encoded);
    map_done(&c->arrays);
    map_done(&c->outcome_index);
    strmap_done(&c->nodes);
    strmap_done(&c->user_handles);
    strmap_done(&c->user_jobs);
    strmap_done(&c->tokens);
    core_secrets_free(c);
    core_saved_free(c);
    core_users_free(c);
    core_sessions_free(c);
    core_grants_free(c);
    core_providers_free(c);
    core_alerts_free(c);
    core_shares_free(c);
    core_services_free(c);
    core_volume_uses_done(c);
    core_volumes_free(c);
    strmap_done(&c->texts);
    it = 0;
    while (strmap_next(&c->interned, &it, NULL, &v))
        free(v);
    strmap_done(&c->interned);
    *c = (struct core){0};
}

struct core *core_free(struct core *c) {
    if (c)
        clear(c);
    free(c);
    return NULL;
}

void core_reset(struct core *c) {
    struct core_config config = c->config;
    char *cluster = xstrdup(config.cluster);
    config.cluster = cluster;
    config.policy = c->unset_policy;
    clear(c);
    init(c, &config);
    free(cluster);
}

static int by_token_id(const void *a, const void *b) {
    const struct token_entry *const *x = a, *const *y = b;
    return strcmp((*x)->token->id, (*y)->token->id);
}

struct core_token_list core_tokens_by_id(const struct core *c) {
    struct core_token_list tokens = {0};
    size_t it = 0;
    void *v;
    while (strmap_next(&c->tokens, &it, NULL, &v))
        vec_push(&tokens, (struct token_entry *)v);
    if (tokens.len)
        qsort(tokens.at, tokens.len, sizeof *tokens.at, by_token_id);
    return tokens;
}

const char *core_intern(struct core *c, const char *s) {
    if (!s)
        return NULL;
    char *known = strmap_get(&c->interned, s);
    if (!known) {
        known = xstrdup(s);
        strmap_put(&c->interned, known, known);
    }
    return known;
}

struct core_job *core_find_job(const struct core *c, uint64_t id) {
    return map_get(&c->jobs, id);
}

struct node_entry *core_find_node(const struct core *c, const char *name) {
    struct node_entry *n = name ? strmap_get(&c->nodes, name) : NULL;
    return n && !n->removed ? n : NULL;
}

struct entity_entry *core_find_entity(const struct core *c, enum entity_kind t, const char *name) {
    struct entity_entry *entry = name ? strmap_get(&c->entities[t], name) : NULL;
    return entry && entry->value ? entry : NULL;
}

uint32_t core_user_known(const struct core *c, const char *user) {
    return (uint32_t)(uintptr_t)strmap_get(&c->user_handles, user);
}

uint32_t core_user_handle(struct core *c, const char *user) {
    uintptr_t handle = core_user_known(c, user);
    if (!handle) {
        const char *name = core_intern(c, user);
        vec_push(&c->users, name);
        handle = c->users.len;
        strmap_put(&c->user_handles, name, (void *)handle);
    }
    return (uint32_t)handle;
}

struct core_user *core_user_count(struct core *c, const char *user) {
    struct core_user *u = strmap_get(&c->user_jobs, user);
    if (!u) {
        u = xcalloc(1, sizeof *u);
        strmap_put(&c->user_jobs, core_intern(c, user), u);
    }
    return u;
}

void core_order_add(struct core *c, struct core_job *j) {
    // New jobs come last; one that was adopted after a restore, or an element that follows its array, has an older
    // number.
    uint32_t at = j->id >= c->next_id ? c->order.len : core_order_after(c, j->id);
    if (at && c->order.at[at - 1].id == j->id) {  // reserved
        c->order.at[at - 1].job = j;
        return;
    }
    vec_push(&c->order, ((struct core_order){0}));
    memmove(c->order.at + at + 1, c->order.at + at, (c->order.len - 1 - at) * sizeof *c->order.at);
    c->order.at[at] = (struct core_order){j->id, j};
}

// Others may have larger ids already: they move once for all, not once for each.
void core_order_reserve(struct core *c, uint64_t first, uint32_t count) {
    uint32_t at = core_order_after(c, first), after = c->order.len - at;
    vec_reserve(&c->order, c->order.len + count);
    memmove(c->order.at + at + count, c->order.at + at, after * sizeof *c->order.at);
    for (uint32_t i = 0; i < count; i++)
        c->order.at[at + i] = (struct core_order){.id = first + i};
    c->order.len += count;
}

static uint32_t order_search(const struct core *c, uint64_t id, uint64_t *steps) {
    uint32_t low = 0, high = c->order.len;
    for (; low < high; ++*steps) {
        uint32_t mid = low + (high - low) / 2;
        if (c->order.at[mid].id <= id)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

uint32_t core_order_after(const struct core *c, uint64_t id) {
    uint64_t steps = 0;
    return order_search(c, id, &steps);
}

void core_order_remove(struct core *c, struct core_job *j) {
    uint32_t at = order_search(c, j->id, &c->order_work) - 1, kept = 0;
    assert(c->order.at[at].job == j);
    c->order.at[at].job = NULL;
    if (++c->holes * 2 <= c->order.len || c->order.len < 64)
        return;
    c->order_work += c->order.len;
    for (uint32_t i = 0; i < c->order.len; i++)
        if (c->order.at[i].job)
            c->order.at[kept++] = c->order.at[i];
    c->order.len = kept;
    c->holes = 0;
}

void core_spec_of(const struct core_job *j, struct arena *a, struct spec *out) {
    int r = schema_decode(&spec_schema, j->sub->spec, j->sub->spec_len, a, out);
    assert(r == 0);
    if (j->sub->array)
        out->array_limit = j->sub->array->limit;  // the limit is the array's, whatever the element's own spec says
}

struct core_run *core_run_free(struct core_run *r) {
    if (!r)
        return NULL;
    for (uint32_t i = 0; i < r->part_count; i++) {
        free(r->parts[i].gpus);
        free(r->parts[i].cpu_ids);
        free(r->parts[i].health_reason);
    }
    core_steps_free(NULL, r->steps);
    free(r->parts);
    free(r->by);
    free(r->reason);
    free(r->end_reason);
    free(r);
    return NULL;
}

void core_outcome_add(struct core *c, uint64_t id, bool ok, bool started, uint32_t start_s) {
    if (!c->outcomes.cap)
        vec_reserve(&c->outcomes, OUTCOMES_KEPT);  // it must not move: the index points into it
    struct core_outcome *o;
    if (c->outcomes.len < OUTCOMES_KEPT) {
        o = &c->outcomes.at[c->outcomes.len++];
    } else {
        o = &c->outcomes.at[c->outcome_next];
        c->outcome_next = (c->outcome_next + 1) % OUTCOMES_KEPT;
        if (map_get(&c->outcome_index, o->id) == o)
            map_remove(&c->outcome_index, o->id);
    }
    *o = (struct core_outcome){id, ok, started, start_s};
    map_put(&c->outcome_index, id, o);
}

const struct core_outcome *core_outcome_find(const struct core *c, uint64_t id) {
    return map_get(&c->outcome_index, id);
}

const struct buf *core_encode_spec(struct core *c, const struct spec *spec) {
    if (c->encoded_of != spec || !spec) {
        c->encoded_of = NULL;
        if (c->encoded.cap > 64 << 10)
            buf_done(&c->encoded);  // a large one does not stay
        buf_clear(&c->encoded);
        schema_encode(&spec_schema, spec, &c->encoded);
    }
    return &c->encoded;
}

// bench/ allows 1,024 bytes of the controller's memory for a pending job, all things counted.
static_assert(sizeof(struct submission) <= 208 && sizeof(struct core_job) <= 104, "a pending job stays small");

struct submission *core_submission_new(struct core *c, uint64_t id, const struct spec *spec, int64_t submit_ms) {
    const struct buf *encoded = core_encode_spec(c, spec);
    const char *name = spec->name ? spec->name : "";
    size_t name_len = strlen(name) + 1;
    struct submission *s = xcalloc(1, sizeof *s + name_len + encoded->len);
    memcpy(s->bytes, name, name_len);
    memcpy(s->bytes + name_len, encoded->data, encoded->len);
    s->name = s->bytes;
    s->spec = s->bytes + name_len;
    s->spec_len = (uint32_t)encoded->len;
    s->id = id;
    s->count = spec_array_count(spec);
    s->is_array = spec->array.len > 0;
    s->limit = spec->array_limit;
    s->submit_ms = submit_ms;
    s->user = core_intern(c, spec->user);
    core_user_count(c, s->user)->spec_bytes += s->spec_len;
    s->script = core_text_take(c, s->user, spec->script_id, spec->script_bytes);
    s->environment = core_text_take(c, s->user, spec->environment_id, spec->environment_bytes);
    s->upload = core_text_take(c, s->user, spec->upload_id, spec->upload_bytes);
    s->project = core_intern(c, spec->project);
    s->partition = core_intern(c, spec->partition);
    s->qos = core_intern(c, spec->qos);
    s->uid = spec->uid;
    s->nice = spec->nice;
    s->priority = spec->priority;
    s->time_limit_s = spec->time_limit_s;
    s->class = (uint8_t)spec->class;
    s->requeue = spec->requeue;
    s->hold = spec->hold;
    s->remove_invalid = spec->cancel_invalid_dependency && !str_empty(spec->dependency);
    s->health = !str_empty(spec->health);
    s->volumes = spec->volumes.len > 0;
    uint32_t mask = 0;
    spec_notify_parse(spec->notify, &mask, NULL);  // checked when it was submitted
    s->notify = (uint16_t)mask;
    s->begin_ms = spec->begin_ms;
    s->deadline_ms = spec->deadline_ms;
    s->lease_s = spec->lease_s < UINT16_MAX ? (uint16_t)spec->lease_s : UINT16_MAX;
    struct arena a = {0};
    struct sched_request asked;
    // If its project or partition was deleted, the job stays pending with that as its reason.
    core_request(c, spec->user, spec, &a, &asked, NULL);
    asked.user = core_user_handle(c, spec->user);  // from here on the user is part of the state
    s->request = world_request(c->world, &asked);
    s->tasks = sched_request_tasks(s->request);
    s->cpus = sched_request_cpus(s->request);
    s->gpus_milli = sched_request_gpu_milli(s->request);
    s->nodes_min = spec->nodes_min ? spec->nodes_min : 1;
    if (spec->workers_max && !spec->component && !spec->components.len)  // per worker, each on a node
        s->nodes_min = spec->workers_min;
    for (uint32_t i = 0; i < spec->components.len; i++) {
        const struct job_component *k = &spec->components.at[i];
        s->nodes_min = (i ? s->nodes_min : 0) + k->workers_min * (k->nodes_min ? k->nodes_min : 1);
    }
    s->memory_bytes = spec->memory_per_node_bytes ? spec->memory_per_node_bytes * s->nodes_min
                      : spec->memory_per_gpu_bytes ? spec->memory_per_gpu_bytes * (s->gpus_milli / 1000)
                                                   : spec->memory_per_cpu_bytes * s->cpus;
    arena_done(&a);
    if (s->volumes)
        core_volumes_used(c, s, spec);
    return s;
}

void core_submission_unref(struct core *c, struct submission *s) {
    if (!s || --s->refs)
        return;
    core_user_count(c, s->user)->spec_bytes -= s->spec_len;
    core_text_drop(c, s->script);
    core_text_drop(c, s->environment);
    core_text_drop(c, s->upload);
    world_request_unref(c->world, s->request);
    core_depend_free(s);
    if (s->volumes)
        core_volumes_unused(c, s);
    free(s);
}
