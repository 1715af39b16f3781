// Sharing in the API: projects, partitions, QoS and reservations, all by one set of handlers over their
// tables; the policy; and the shares that follow from them.
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "api.h"
#include "model/config_table.h"
#include "model/nodelist.h"
#include "sched/world.h"

static enum entity_kind entity_of_path(const char *path) {
    return str_has_prefix(path, "/v1/projects")     ? ENTITY_PROJECT
           : str_has_prefix(path, "/v1/partitions") ? ENTITY_PARTITION
           : str_has_prefix(path, "/v1/qos")        ? ENTITY_QOS
           : str_has_prefix(path, "/v1/licenses")   ? ENTITY_LICENSE
                                                    : ENTITY_RESERVATION;
}

struct entity_listing {
    const struct core *core;  // NULL: as it is kept, without the seats in use
    struct arena *arena;
    enum entity_kind kind;
    const char *only;
    struct any_list found;
    uint32_t room;
};

// Copies of the structs, in a row; what they point to stays the core's.
static bool list_entity(void *ctx, const char *name, const void *value) {
    struct entity_listing *l = ctx;
    size_t size = entity_schema(l->kind)->size;
    if (l->only && !streq(l->only, name))
        return true;
    if (l->found.len == l->room) {
        l->room = l->room ? l->room * 2 : 16;
        void *more = arena_alloc(l->arena, l->room * size);
        if (l->found.len)
            memcpy(more, l->found.at, l->found.len * size);
        l->found.at = more;
    }
    void *copy = (char *)l->found.at + l->found.len++ * size;
    memcpy(copy, value, size);
    if (l->kind == ENTITY_LICENSE && l->core)
        ((struct license *)copy)->used = core_license_used(l->core, name);
    return true;
}

void api_entities(struct api_call *call) {
    // Each of these answers is a struct with one list in it.
    static_assert(sizeof(struct answer_projects) == sizeof(struct any_list), "one list");
    static const struct schema *const answers[] = {[ENTITY_PROJECT] = &answer_projects_schema,
                                                   [ENTITY_PARTITION] = &answer_partitions_schema,
                                                   [ENTITY_QOS] = &answer_qos_schema,
                                                   [ENTITY_RESERVATION] = &answer_reservations_schema,
                                                   [ENTITY_LICENSE] = &answer_licenses_schema};
    struct entity_listing l = {
        .core = call->controller->core, .arena = &call->arena, .kind = entity_of_path(call->req->path)};
    core_each_entity(call->controller->core, l.kind, list_entity, &l);
    api_answer(call, answers[l.kind], &l.found);
}

void api_entity(struct api_call *call) {
    struct entity_listing l = {
        .core = call->controller->core,
        .arena = &call->arena,
        .kind = entity_of_path(call->req->path),
        .only = call->name};
    core_each_entity(call->controller->core, l.kind, list_entity, &l);
    if (l.found.len) {
        api_version_tag(call->req, core_entity_version(call->controller->core, l.kind, call->name));
        api_answer(call, entity_schema(l.kind), l.found.at);
        return;
    }
    struct error e = {0};
    char shown[64];
    error_set(&e, ENOENT, "%s \"%s\" does not exist; see 'acequia %s list'", entity_word(l.kind),
              str_printable(call->name, shown, sizeof shown), entity_command(l.kind));
    api_fail(call->req, &e);
}

void api_entity_changes(const char *section, const void *before, const void *after, struct arena *a,
                        struct buf *out) {
    const struct config_section *s = config_section_find(section);
    void *defaults = arena_alloc(a, s->size);
    config_defaults(s, a, defaults);
    for (size_t i = 0; i < s->count; i++) {
        cleanup_buf struct buf old = {0}, new = {0};
        config_value_format(&s->keys[i], before ? before : defaults, &old);
        config_value_format(&s->keys[i], after, &new);
        if (streq(buf_str(&old), buf_str(&new)))
            continue;
        buf_addf(out, "%s%s: ", out->len ? ", " : before ? "" : "new, ", s->keys[i].name);
        if (before)
            buf_addf(out, "%s -> ", old.len ? buf_str(&old) : "none");
        buf_adds(out, new.len ? buf_str(&new) : "none");
    }
}

// What a change changes, for the audit log.
static void note_changes(struct api_call *call, const char *section, const void *before, const void *after) {
    cleanup_buf struct buf text = {0};
    api_entity_changes(section, before, after, &call->arena, &text);
    if (!text.len)
        buf_adds(&text, before ? "nothing changed" : "new");
    str_printable(buf_str(&text), call->req->note, sizeof call->req->note);
}

enum { WARNINGS_MAX = 100 };

struct warnings {
    struct arena *arena;
    const char *at[WARNINGS_MAX + 2];
    uint32_t len;
};

// Nodes may be added later, but a name that no node has is more often a typing error.
static void warn_of_nodes(struct api_call *call, const char *list, struct warnings *w) {
    struct name_list names = {0};
    const char *first = NULL;
    uint32_t unknown = 0;
    if (str_empty(list) || streq(list, "ALL") || nodelist_expand(list, &call->arena, &names, NULL) < 0)
        return;
    for (uint32_t i = 0; i < names.len; i++)
        if (!core_node_handle(call->controller->core, names.at[i])) {
            first = first ? first : names.at[i];
            unknown++;
        }
    if (unknown == 1)
        w->at[w->len++] = arena_printf(w->arena, "there is no node %.64s yet; see 'acequia nodes'", first);
    else if (unknown)
        w->at[w->len++] = arena_printf(
            w->arena, "%u of these nodes do not exist yet, for example %.64s; see 'acequia nodes'", unknown, first);
}

// `jobs`: that were in it.
static void warn_of_jobs(struct api_call *call, enum entity_kind kind, uint64_t jobs, struct warnings *w) {
    w->at[w->len++] = arena_printf(w->arena,
                                   "%llu live %s in it: running jobs go on to their end, pending ones are "
                                   "cancelled%s; 'acequia cancel --%s %.64s' ends the running ones",
                                   (unsigned long long)jobs, jobs == 1 ? "job is" : "jobs are",
                                   kind == ENTITY_PARTITION ? " unless they name another partition, too" : "",
                                   entity_command(kind), call->name);
}

enum change { CHANGE_SET, CHANGE_DELETE, CHANGE_POLICY };

static void finish(struct api_call *call, int r, enum change change, const char *nodes, uint64_t jobs,
                   const struct error *e) {
    struct warnings w = {.arena = &call->arena};
    char warning[ERROR_TEXT_MAX];
    enum entity_kind kind = entity_of_path(call->req->path);
    if (r < 0) {
        api_fail(call->req, e);
        return;
    }
    if (jobs)
        warn_of_jobs(call, kind, jobs, &w);
    for (uint32_t i = 0; kind == ENTITY_PROJECT && change == CHANGE_SET && w.len < WARNINGS_MAX &&
                         world_warning(core_world(call->controller->core), i, warning, sizeof warning);
         i++)
        w.at[w.len++] = arena_strdup(&call->arena, warning);
    warn_of_nodes(call, nodes, &w);
    // A project with jobs is gone only when these have ended.
    struct answer_changed answer = {.done = !(change == CHANGE_DELETE && kind == ENTITY_PROJECT && jobs)};
    answer.warnings.at = w.at;
    answer.warnings.len = w.len;
    api_answer_committed(call, 200, &answer_changed_schema, &answer);
}

void api_entity_set(struct api_call *call) {
    enum entity_kind kind = entity_of_path(call->req->path);
    void *value = call->body;
    struct error e = {0};
    int r;
    const char **name = value;  // each of these structs begins with its name
    if (*name && !streq(*name, call->name)) {
        api_error(call->req, 400, "EINVAL", "field \"name\": it differs from the name in the path; leave it out");
        return;
    }
    *name = call->name;
    const char *nodes = NULL;
    if (kind == ENTITY_PROJECT)
        nodes = ((const struct project *)value)->nodes;
    if (kind == ENTITY_PARTITION)
        nodes = ((const struct partition *)value)->nodes;
    if (kind == ENTITY_RESERVATION)
        nodes = ((const struct reservation *)value)->nodes;
    struct entity_listing before = {.arena = &call->arena, .kind = kind, .only = call->name};
    core_each_entity(call->controller->core, kind, list_entity, &before);
    if (!api_entity_version_holds(call, kind, before.found.at))
        return;
    entity_normalize(kind, value);
    note_changes(call, entity_command(kind), before.found.len ? before.found.at : NULL, value);
    struct command command = {command_entity_set(kind), value};
    r = core_command(call->controller->core, &call->actor, NULL, &command, controller_now_ms(), NULL, &e);
    finish(call, r, CHANGE_SET, nodes, 0, &e);
}

void api_entity_delete(struct api_call *call) {
    struct error e = {0};
    enum entity_kind kind = entity_of_path(call->req->path);
    struct core *core = call->controller->core;
    uint64_t jobs = core_jobs_in(core, kind, call->name);
    struct entity_listing now = {.arena = &call->arena, .kind = kind, .only = call->name};
    core_each_entity(core, kind, list_entity, &now);
    if (!api_entity_version_holds(call, kind, now.found.at))
        return;
    struct command_entity_delete delete = {kind, call->name, ((const struct query_delete *)call->query)->force};
    snprintf(call->req->note, sizeof call->req->note, "deleted with %llu live jobs", (unsigned long long)jobs);
    struct command command = {COMMAND_ENTITY_DELETE, &delete};
    int r = core_command(core, &call->actor, NULL, &command, controller_now_ms(), NULL, &e);
    finish(call, r, CHANGE_DELETE, NULL, jobs, &e);
}

// --- the policy ---

void api_policy(struct api_call *call) {
    struct policy_settings s;
    core_policy_settings(call->controller->core, &s);
    api_answer(call, &policy_schema, &s);
}

// What is not given stays as it is.
void api_policy_set(struct api_call *call) {
    struct error e = {0};
    struct policy_settings before, after;
    core_policy_settings(call->controller->core, &before);
    after = before;
    schema_merge(&policy_schema, &after, call->body);
    note_changes(call, "policy", &before, &after);
    struct command command = {COMMAND_POLICY_SET, call->body};
    int r = core_command(call->controller->core, &call->actor, NULL, &command, controller_now_ms(), NULL, &e);
    finish(call, r, CHANGE_POLICY, NULL, 0, &e);
}

struct share_listing {
    struct core *core;
    struct arena *arena;
    struct answer_shares answer;
    uint32_t room;
};

static bool list_share(void *ctx, const char *name, const void *value) {
    struct share_listing *l = ctx;
    const struct project *p = value;
    struct sched_project_figures f;
    if (!world_project_figures(core_world(l->core), core_handle(l->core, ENTITY_PROJECT, name), &f))
        return true;
    if (l->answer.projects.len == l->room) {
        l->room = l->room ? l->room * 2 : 16;
        struct answer_share *more = arena_alloc(l->arena, l->room * sizeof *more);
        if (l->answer.projects.len)
            memcpy(more, l->answer.projects.at, l->answer.projects.len * sizeof *more);
        l->answer.projects.at = more;
    }
    l->answer.projects.at[l->answer.projects.len++] =
        (struct answer_share){.project = name,
                              .parent = p->parent,
                              .quota_milligpu = (uint64_t)f.quota_milligpu,
                              .share_milligpu = (uint64_t)f.share_milligpu,
                              .used_milligpu = (uint64_t)f.used_milligpu,
                              .queued_milligpu = (uint64_t)f.queued_milligpu,
                              .used_cpus = (uint64_t)f.used_cpus,
                              .queued_cpus = (uint64_t)f.queued_cpus,
                              .running = f.running,
                              .pending = f.pending,
                              .deleting = p->deleted_by != NULL};
    return true;
}

struct share_totals {
    int64_t milligpu, cpus;
};

static bool add_totals(void *ctx, const struct node_view *v) {
    struct share_totals *t = ctx;
    if (v->state == NODE_UP && !v->drained) {
        t->milligpu += (int64_t)v->node->gpus.len * 1000;
        t->cpus += v->node->cpus;
    }
    return true;
}

void api_fill_shares(struct core *core, struct arena *a, struct answer_shares *out) {
    struct share_listing l = {.core = core, .arena = a};
    struct share_totals t = {0};
    core_each_node(l.core, add_totals, &t);
    core_each_entity(l.core, ENTITY_PROJECT, list_share, &l);
    l.answer.total_milligpu = (uint64_t)t.milligpu;
    l.answer.total_cpus = (uint64_t)t.cpus;
    *out = l.answer;
}

void api_shares(struct api_call *call) {
    struct answer_shares answer;
    api_fill_shares(call->controller->core, &call->arena, &answer);
    api_answer(call, &answer_shares_schema, &answer);
}
