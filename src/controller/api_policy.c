// Owns policy in the API: projects, partitions, QoS, reservations, all by one set of handlers over
// their tables; and the shares that follow from them.
#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "api.h"
#include "model/nodelist.h"
#include "sched/world.h"

static enum entity_kind entity_of_path(const char *path) {
    return str_has_prefix(path, "/v1/projects")     ? ENTITY_PROJECT
           : str_has_prefix(path, "/v1/partitions") ? ENTITY_PARTITION
           : str_has_prefix(path, "/v1/qos")        ? ENTITY_QOS
                                                    : ENTITY_RESERVATION;
}

struct entity_listing {
    struct json_writer w;
    enum entity_kind kind;
    const char *only;
    bool found;
};

static bool list_entity(void *ctx, const char *name, const void *value) {
    struct entity_listing *l = ctx;
    if (l->only && !streq(l->only, name))
        return true;
    l->found = true;
    schema_write_json(entity_schema(l->kind), value, &l->w);
    return true;
}

void api_entities(struct api_call *call) {
    static const char *const keys[] = {"projects", "partitions", "qos", "reservations"};
    cleanup_buf struct buf b = {0};
    struct entity_listing l = {.w = {.out = &b}, .kind = entity_of_path(call->req->path)};
    json_open(&l.w, '{');
    json_key(&l.w, keys[l.kind]);
    json_open(&l.w, '[');
    core_each_entity(call->controller->core, l.kind, list_entity, &l);
    json_close(&l.w, ']');
    json_close(&l.w, '}');
    api_json(call->req, 200, &b);
}

void api_entity(struct api_call *call) {
    cleanup_buf struct buf b = {0};
    struct entity_listing l = {.w = {.out = &b}, .kind = entity_of_path(call->req->path), .only = call->name};
    core_each_entity(call->controller->core, l.kind, list_entity, &l);
    if (l.found) {
        api_json(call->req, 200, &b);
        return;
    }
    cleanup_buf struct buf text = {0};
    char shown[64];
    buf_addf(&text, "%s \"%s\" does not exist; see 'acequia %s list'", entity_word(l.kind),
             printable(call->name, shown, sizeof shown), entity_command(l.kind));
    api_error(call->req, 404, "ENOENT", buf_str(&text));
}

// Nodes may come later, but a name nobody has is more often a slip.
static void warn_of_nodes(struct api_call *call, const char *list, struct json_writer *w) {
    char text[ERROR_TEXT_MAX];
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
    if (!unknown)
        return;
    if (unknown == 1)
        snprintf(text, sizeof text, "there is no node %.64s yet; see 'acequia nodes'", first);
    else
        snprintf(text, sizeof text, "%u of these nodes are not there yet, such as %.64s; see 'acequia nodes'",
                 unknown, first);
    json_put_str(w, text);
}

// What is deleted under a job that waits keeps it waiting. `jobs`: that were in it.
static void warn_of_jobs(struct api_call *call, enum entity_kind kind, uint64_t jobs, struct json_writer *w) {
    char text[ERROR_TEXT_MAX];
    snprintf(text, sizeof text,
             "%llu live %s in it: what runs goes on, what waits will not start; acequia cancel --%s %.64s "
             "ends them",
             (unsigned long long)jobs, jobs == 1 ? "job is" : "jobs are", entity_command(kind), call->name);
    json_put_str(w, text);
}

static void finish(struct api_call *call, int r, const char *nodes, uint64_t jobs, const struct error *e) {
    struct buf b = {0};
    struct json_writer w = {.out = &b};
    char warning[ERROR_TEXT_MAX];
    if (r < 0) {
        api_fail(call->req, e);
        return;
    }
    json_open(&w, '{');
    json_kv_bool(&w, "done", true);
    json_key(&w, "warnings");
    json_open(&w, '[');
    enum entity_kind kind = entity_of_path(call->req->path);
    if (jobs)
        warn_of_jobs(call, kind, jobs, &w);
    for (uint32_t i = 0; kind == ENTITY_PROJECT && i < 100 &&
                         world_warning(core_world(call->controller->core), i, warning, sizeof warning);
         i++)
        json_put_str(&w, warning);
    warn_of_nodes(call, nodes, &w);
    json_close(&w, ']');
    json_close(&w, '}');
    api_when_committed(call, 200, &b);
}

void api_entity_set(struct api_call *call) {
    enum entity_kind kind = entity_of_path(call->req->path);
    const struct schema *schema = entity_schema(kind);
    void *value = arena_alloc(&call->arena, schema->size);
    struct json *j;
    struct error e = {0};
    if (api_body(call, &j) < 0)
        return;
    int r = schema_read_json(schema, j, &call->arena, value, &e);
    if (r < 0) {
        api_fail(call->req, &e);
        return;
    }
    const char **name = value;  // each of these structs begins with its name
    if (*name && !streq(*name, call->name)) {
        api_error(call->req, 400, "EINVAL", "name: it differs from the one in the path");
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
    struct command command = {command_entity_set(kind), value};
    r = core_command(call->controller->core, &call->actor, NULL, &command, now_ms(), NULL, &e);
    finish(call, r, nodes, 0, &e);
}

void api_entity_delete(struct api_call *call) {
    struct error e = {0};
    enum entity_kind kind = entity_of_path(call->req->path);
    struct core *core = call->controller->core;
    uint64_t jobs = core_jobs_in(core, kind, call->name);
    struct command_entity_delete delete = {kind, call->name, api_query_i64(call, "force", 0)};
    struct command command = {COMMAND_ENTITY_DELETE, &delete};
    int r = core_command(core, &call->actor, NULL, &command, now_ms(), NULL, &e);
    finish(call, r, NULL, jobs, &e);
}

// --- the policy ---

void api_policy(struct api_call *call) {
    cleanup_buf struct buf b = {0};
    struct json_writer w = {.out = &b};
    struct policy_settings s;
    core_policy_settings(call->controller->core, &s);
    schema_write_json(&policy_schema, &s, &w);
    api_json(call->req, 200, &b);
}

// What is not given stays as it is.
void api_policy_set(struct api_call *call) {
    struct policy_settings change;
    struct json *j;
    struct error e = {0};
    if (api_body(call, &j) < 0)
        return;
    struct command command = {COMMAND_POLICY_SET, &change};
    int r = schema_read_json(&policy_schema, j, &call->arena, &change, &e);
    if (r == 0)
        r = core_command(call->controller->core, &call->actor, NULL, &command, now_ms(), NULL, &e);
    finish(call, r, NULL, 0, &e);
}

struct share_listing {
    struct json_writer w;
    struct core *core;
};

static bool list_share(void *ctx, const char *name, const void *value) {
    struct share_listing *l = ctx;
    const struct project *p = value;
    struct sched_project_figures f;
    if (!world_project_figures(core_world(l->core), core_handle(l->core, ENTITY_PROJECT, name), &f))
        return true;
    json_open(&l->w, '{');
    json_kv_str(&l->w, "project", name);
    json_kv_str(&l->w, "parent", p->parent);
    json_kv_i64(&l->w, "quota_milligpu", f.quota_milligpu);
    json_kv_i64(&l->w, "share_milligpu", f.share_milligpu);
    json_kv_i64(&l->w, "used_milligpu", f.used_milligpu);
    json_kv_i64(&l->w, "queued_milligpu", f.queued_milligpu);
    json_kv_i64(&l->w, "used_cpus", f.used_cpus);
    json_kv_i64(&l->w, "queued_cpus", f.queued_cpus);
    json_kv_i64(&l->w, "running", f.running);
    json_kv_i64(&l->w, "pending", f.pending);
    json_close(&l->w, '}');
    return true;
}

struct totals {
    int64_t milligpu, cpus;
};

static bool add_totals(void *ctx, const struct node_view *v) {
    struct totals *t = ctx;
    if (v->state == NODE_UP && !v->drained) {
        t->milligpu += (int64_t)v->node->gpus.len * 1000;
        t->cpus += v->node->cpus;
    }
    return true;
}

void api_shares(struct api_call *call) {
    cleanup_buf struct buf b = {0};
    struct share_listing l = {.w = {.out = &b}, .core = call->controller->core};
    struct totals t = {0};
    core_each_node(l.core, add_totals, &t);
    json_open(&l.w, '{');
    json_kv_i64(&l.w, "total_milligpu", t.milligpu);
    json_kv_i64(&l.w, "total_cpus", t.cpus);
    json_key(&l.w, "projects");
    json_open(&l.w, '[');
    core_each_entity(l.core, ENTITY_PROJECT, list_share, &l);
    json_close(&l.w, ']');
    json_close(&l.w, '}');
    api_json(call->req, 200, &b);
}
