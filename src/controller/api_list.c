// Owns lists of jobs: filters, chosen fields, folding of waiting array elements into one row. Rows
// are written straight from the core's views, so that a long queue costs no copies.
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "controller/api.h"
#include "model/arrayspec.h"
#include "model/dependency.h"
#include "model/nodelist.h"

enum { LISTED_ELEMENTS_MAX = 10000 };  // named one by one

// One row, from a live job's view or a finished one's record.
struct row {
    struct job_view v;
    struct spec *spec;         // decoded only when a field needs it
    int64_t end_ms;
    int32_t exit_code;
    uint32_t exit_signal;
    const char *reason, *nodes;
    const struct usage *usage;
    const char *label, *elements, *by;
    uint64_t count;
    uint32_t steps;            // how many
};

enum { LIST_TIME_US = 2000000 };  // for looking up what was named

enum column {
    COL_ID, COL_ARRAY_ID, COL_ARRAY_INDEX, COL_LABEL, COL_NAME, COL_USER, COL_PROJECT, COL_PARTITION, COL_QOS, COL_CLASS, COL_STATE,
    COL_REASON, COL_NODES, COL_NODE_COUNT, COL_TASKS, COL_CPUS, COL_MEMORY, COL_GPUS, COL_GPU_MODEL, COL_TIME_LIMIT, COL_SUBMIT,
    COL_ELIGIBLE, COL_START, COL_END, COL_ELAPSED, COL_EXPECTED, COL_EXIT_CODE, COL_EXIT_SIGNAL, COL_ATTEMPT, COL_PRIORITY, COL_NICE,
    COL_COMMENT, COL_WORKDIR, COL_OUTPUT, COL_ERROR, COL_COMMAND, COL_DEPENDENCY, COL_HOLD, COL_CPU, COL_MEMORY_PEAK, COL_GPU_BUSY,
    COL_ENERGY, COL_PREEMPTED, COL_FEATURES, COL_BEGIN, COL_UID, COL_SPEC, COL_STEPS, COL_BY, COL_USAGE, COL_ENDING, COL_LAUNCH, COL_ORDER, COL_COUNT
};
static const char *const column_names[] = {
    "id", "array_id", "array_index", "label", "name", "user", "project", "partition", "qos", "class", "state",
    "reason", "nodes", "node_count", "tasks", "cpus", "memory_bytes", "gpus_milli", "gpu_model", "time_limit_s", "submit_ms",
    "eligible_ms", "start_ms", "end_ms", "elapsed_ms", "expected_start_ms", "exit_code", "exit_signal", "attempt", "priority", "nice",
    "comment", "workdir", "output", "error", "command_text", "dependency", "hold", "cpu_ms", "memory_peak_bytes", "gpu_busy_ms",
    "energy_mj", "preempted", "features", "begin_ms", "uid", "spec", "steps", "by", "usage", "ending", "launch", "order", NULL};
_Static_assert(sizeof column_names / sizeof *column_names == COL_COUNT + 1, "a name per column");

#define BIT(c) (1ULL << (c))
static const uint64_t default_columns =
    BIT(COL_ID) | BIT(COL_LABEL) | BIT(COL_NAME) | BIT(COL_USER) | BIT(COL_PROJECT) | BIT(COL_PARTITION) | BIT(COL_STATE) |
    BIT(COL_REASON) | BIT(COL_NODES) | BIT(COL_NODE_COUNT) | BIT(COL_CPUS) | BIT(COL_MEMORY) | BIT(COL_GPUS) | BIT(COL_TIME_LIMIT) |
    BIT(COL_SUBMIT) | BIT(COL_START) | BIT(COL_END) | BIT(COL_ELAPSED) | BIT(COL_EXIT_CODE) | BIT(COL_EXIT_SIGNAL);
static const uint64_t private_columns = BIT(COL_COMMENT) | BIT(COL_WORKDIR) | BIT(COL_OUTPUT) | BIT(COL_ERROR) | BIT(COL_COMMAND);
static const uint64_t spec_columns = private_columns | BIT(COL_GPU_MODEL) | BIT(COL_DEPENDENCY) | BIT(COL_FEATURES) | BIT(COL_BEGIN) | BIT(COL_SPEC) | BIT(COL_LAUNCH);

struct listing {
    struct api_call *call;
    struct json_writer w;
    struct buf out;
    uint64_t columns;
    const char *user, *project, *partition, *name, *node, *qos;
    uint32_t states;  // bit per state; 0: all
    bool elements, compact;  // compact: rows are lists in the order of "fields"
    int64_t now;
    uint64_t rows, limit;
    struct arena scratch;
    // Array elements being folded.
    struct row fold;
    VEC(uint32_t) fold_indices;
    char key[64];
};

static bool is_mine(const struct listing *l, const struct row *r) {
    return l->call->actor.admin || streq(l->call->actor.user, r->v.user);
}

static const char *spec_text(const struct row *r, enum column c) {
    const struct spec *s = r->spec;
    switch (c) {
    case COL_COMMENT: return s->comment;
    case COL_WORKDIR: return s->workdir;
    case COL_OUTPUT: return s->output;
    case COL_ERROR: return s->error;
    case COL_COMMAND: return s->command_text;
    case COL_DEPENDENCY: return s->dependency;
    case COL_FEATURES: return s->features;
    case COL_GPU_MODEL: return s->gpu_model;
    default: return NULL;
    }
}

static void put_number(struct listing *l, const struct row *r, enum column c) {
    const struct job_view *v = &r->v;
    int64_t n = 0;
    switch (c) {
    case COL_ID: n = (int64_t)v->id; break;
    case COL_ARRAY_ID: n = (int64_t)v->array_id; break;
    case COL_ARRAY_INDEX: n = v->array_index; break;
    case COL_NODE_COUNT: n = v->node_count; break;
    case COL_TASKS: n = v->tasks; break;
    case COL_CPUS: n = v->cpus; break;
    case COL_MEMORY: n = (int64_t)v->memory_bytes; break;
    case COL_GPUS: n = (int64_t)v->gpus_milli; break;
    case COL_TIME_LIMIT: n = v->time_limit_s; break;
    case COL_SUBMIT: n = v->submit_ms; break;
    case COL_ELIGIBLE: n = v->eligible_ms; break;
    case COL_START: n = v->start_ms; break;
    case COL_END: n = r->end_ms; break;
    case COL_ELAPSED: n = !v->start_ms ? 0 : (r->end_ms ? r->end_ms : l->now) - v->start_ms; break;
    case COL_EXPECTED: n = v->expected_start_ms; break;
    case COL_EXIT_CODE: n = r->exit_code; break;
    case COL_EXIT_SIGNAL: n = r->exit_signal; break;
    case COL_ATTEMPT: n = v->attempt; break;
    case COL_PRIORITY: n = v->priority; break;
    case COL_NICE: n = v->nice; break;
    case COL_BEGIN: n = r->spec->begin_ms; break;
    case COL_UID: n = v->uid; break;
    case COL_CPU: n = r->usage ? (int64_t)((r->usage->cpu_user_us + r->usage->cpu_system_us) / 1000) : 0; break;
    case COL_MEMORY_PEAK: n = r->usage ? (int64_t)r->usage->memory_peak_bytes : 0; break;
    case COL_GPU_BUSY: n = r->usage ? (int64_t)r->usage->gpu_busy_ms : 0; break;
    case COL_ENERGY: n = r->usage ? (int64_t)r->usage->energy_mj : 0; break;
    case COL_PREEMPTED: n = v->preempted; break;
    default: break;
    }
    json_put_i64(&l->w, n < 0 ? (c == COL_NICE || c == COL_EXIT_CODE ? n : 0) : n);
}

static int put_step(void *ctx, const struct store_event *e) {
    if (e->type == EVENT_STEP_STARTED || e->type == EVENT_STEP_ENDED)
        api_event_json(e, false, ctx);
    return 0;
}

// The events of its steps, in order.
static void put_steps(struct listing *l, const struct row *r) {
    json_open(&l->w, '[');
    if (r->steps)
        store_events(l->call->controller->store, r->v.id, 0, 0, put_step, &l->w, NULL);
    json_close(&l->w, ']');
}

static void put_spec(struct listing *l, const struct row *r) {
    struct spec s = *r->spec;
    if (!is_mine(l, r))
        api_hide_private(&s);
    schema_write_json(&spec_schema, &s, &l->w);
}

static void put_column(struct listing *l, const struct row *r, enum column c) {
    if (!l->compact)
        json_key(&l->w, column_names[c]);
    switch (c) {
    case COL_LABEL: json_put_str(&l->w, r->label); break;
    case COL_NAME: json_put_str(&l->w, r->v.name); break;
    case COL_USER: json_put_str(&l->w, r->v.user); break;
    case COL_PROJECT: json_put_str(&l->w, r->v.project); break;
    case COL_PARTITION: json_put_str(&l->w, r->v.partition); break;
    case COL_QOS: json_put_str(&l->w, r->v.qos); break;
    case COL_CLASS: json_put_str(&l->w, job_class_words[r->v.class]); break;
    case COL_STATE: json_put_str(&l->w, job_state_words[r->v.state]); break;
    case COL_REASON: json_put_str(&l->w, is_mine(l, r) ? r->reason : api_public_reason(&l->call->arena, r->reason)); break;
    case COL_NODES: json_put_str(&l->w, r->nodes); break;
    case COL_SPEC: put_spec(l, r); break;
    case COL_STEPS: put_steps(l, r); break;
    case COL_LAUNCH: json_put_str(&l->w, launch_kind_words[r->spec->launch]); break;
    case COL_ENDING: json_put_str(&l->w, r->v.ending); break;
    case COL_BY: json_put_str(&l->w, r->by); break;
    case COL_USAGE:
        if (r->usage)
            schema_write_json(&usage_schema, r->usage, &l->w);
        else
            json_put_null(&l->w);
        break;
    case COL_ORDER:
        if (r->v.state != JOB_PENDING || !api_put_order(l->call->controller, r->v.id, l->now, &l->w))
            json_put_null(&l->w);
        break;
    case COL_HOLD: json_put_bool(&l->w, r->v.held); break;
    case COL_COMMENT:
    case COL_WORKDIR:
    case COL_OUTPUT:
    case COL_ERROR:
    case COL_COMMAND: json_put_str(&l->w, is_mine(l, r) ? spec_text(r, c) : NULL); break;
    case COL_DEPENDENCY:
    case COL_FEATURES:
    case COL_GPU_MODEL: json_put_str(&l->w, spec_text(r, c)); break;
    default: put_number(l, r, c); break;
    }
}

static void put_row(struct listing *l, const struct row *r) {
    json_open(&l->w, l->compact ? '[' : '{');
    for (int c = 0; c < COL_COUNT; c++)
        if (l->columns & BIT(c))
            put_column(l, r, (enum column)c);
    if (r->elements && !l->compact) {
        json_kv_str(&l->w, "elements", r->elements);
        json_kv_i64(&l->w, "count", (int64_t)r->count);
    }
    json_close(&l->w, l->compact ? ']' : '}');
    l->rows++;
}

static bool wanted(const struct listing *l, const struct job_view *v) {
    return (!l->states || l->states >> v->state & 1) && (!l->user || streq(l->user, v->user)) &&
           (!l->project || streq(l->project, v->project)) && (!l->partition || streq(l->partition, v->partition)) &&
           (!l->name || streq(l->name, v->name)) && (!l->qos || streq(l->qos, v->qos));
}

static void fold_end(struct listing *l) {
    cleanup_buf struct buf text = {0}, label = {0};
    if (!l->fold_indices.len)
        return;
    array_fold(l->fold_indices.at, l->fold_indices.len, l->fold.v.array_limit, &text);
    buf_addf(&label, "%llu_[%s]", (unsigned long long)l->fold.v.array_id, buf_str(&text));
    l->fold.label = buf_str(&label);
    if (l->fold_indices.len == 1) {
        buf_clear(&label);
        buf_addf(&label, "%llu_%u", (unsigned long long)l->fold.v.array_id, l->fold.v.array_index);
        l->fold.label = buf_str(&label);
    } else {
        l->fold.elements = buf_str(&text);
        l->fold.count = l->fold_indices.len;
    }
    put_row(l, &l->fold);
    l->fold.elements = NULL;
    vec_clear(&l->fold_indices);
}

static bool folds_with(const struct listing *l, const struct job_view *v) {
    return l->fold_indices.len && l->fold.v.array_id == v->array_id && l->fold.v.state == v->state && l->fold.v.reason == v->reason &&
           (l->fold.v.spec_bytes == v->spec_bytes ||
            (l->fold.v.spec_len == v->spec_len && !memcmp(l->fold.v.spec_bytes, v->spec_bytes, v->spec_len)));
}

static bool add_live(void *ctx, const struct job_view *v) {
    struct listing *l = ctx;
    struct row r = {.v = *v, .steps = v->steps};
    char label[48];
    if (!wanted(l, v))
        return true;
    if (folds_with(l, v)) {
        vec_push(&l->fold_indices, v->array_index);
        return true;
    }
    fold_end(l);
    if (l->limit && l->rows >= l->limit)
        return false;
    cleanup_buf struct buf nodes = {0};
    r.reason = v->state == JOB_PENDING ? job_reason_words[v->reason] : v->ending_reason;
    if (v->start_ms && (l->columns & BIT(COL_NODES) || l->node)) {
        core_job_nodes(l->call->controller->core, v->id, &nodes);
        r.nodes = buf_str(&nodes);
    }
    if (l->node && !streq(r.nodes, l->node)) {
        const char *names[64];
        uint32_t n = core_job_node_names(l->call->controller->core, v->id, names, 64);
        bool there = false;
        for (uint32_t i = 0; i < n; i++)
            there |= streq(names[i], l->node);
        if (!there)
            return true;
    }
    struct live_usage *u = map_get(&l->call->controller->live, v->id);
    r.usage = u ? &u->usage : NULL;
    if (l->columns & spec_columns) {
        arena_done(&l->scratch);
        r.spec = arena_alloc(&l->scratch, sizeof *r.spec);
        if (schema_decode(&spec_schema, v->spec_bytes, v->spec_len, &l->scratch, r.spec) < 0)
            return true;
    }
    if (v->array_id && v->state == JOB_PENDING && !l->elements) {
        l->fold = r;
        vec_push(&l->fold_indices, v->array_index);
        return true;
    }
    if (v->array_id)
        snprintf(label, sizeof label, "%llu_%u", (unsigned long long)v->array_id, v->array_index);
    else
        snprintf(label, sizeof label, "%llu", (unsigned long long)v->id);
    r.label = label;
    put_row(l, &r);
    return true;
}

static void view_of_record(const struct job_record *j, struct job_view *v) {
    const struct spec *s = j->spec;
    *v = (struct job_view){.id = j->id, .array_id = j->array_id, .array_index = j->array_index, .name = s->name, .user = s->user,
                           .project = s->project, .partition = s->partition, .qos = s->qos, .class = s->class, .state = j->state,
                           .attempt = j->attempt, .tasks = s->tasks ? s->tasks : 1, .node_count = j->parts.len,
                           .time_limit_s = s->time_limit_s, .preempted = j->preempted, .uid = s->uid, .submit_ms = j->submit_ms,
                           .eligible_ms = j->eligible_ms, .start_ms = j->start_ms, .nice = s->nice, .priority = s->priority};
    for (uint32_t i = 0; i < j->parts.len; i++) {
        v->cpus += j->parts.at[i].cpus;
        v->memory_bytes += j->parts.at[i].memory_bytes;
        for (uint32_t g = 0; g < j->parts.at[i].gpus.len; g++)
            v->gpus_milli += j->parts.at[i].gpus.at[g].milli;
    }
}

static int add_finished(void *ctx, const struct store_history *row) {
    struct listing *l = ctx;
    struct job_record j;
    char label[48];
    arena_done(&l->scratch);
    if (schema_decode(&job_record_schema, row->data, row->len, &l->scratch, &j) < 0 || !j.spec)
        return 0;
    struct row r = {.spec = j.spec, .end_ms = j.end_ms, .exit_code = j.exit_code, .exit_signal = j.exit_signal, .reason = j.reason,
                    .nodes = row->nodes, .usage = j.usage, .steps = j.steps, .by = j.by};
    view_of_record(&j, &r.v);
    if (!wanted(l, &r.v))
        return 0;
    api_label(&j, label, sizeof label);
    r.label = label;
    put_row(l, &r);
    snprintf(l->key, sizeof l->key, "%lld.%llu", (long long)j.end_ms, (unsigned long long)j.id);
    return l->limit && l->rows >= l->limit ? 1 : 0;
}

static int parse_columns(struct listing *l, const char *text, struct error *e) {
    if (str_empty(text)) {
        l->columns = default_columns;
        return 0;
    }
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, ",");
        const char *name = arena_strndup(&l->call->arena, p, n);
        int c = words_find(column_names, name);
        if (c < 0)
            return error_set(e, EINVAL, "fields: \"%.40s\" is not known", name);
        l->columns |= BIT(c);
        p += n + (p[n] == ',');
    }
    return 0;
}

static int parse_states(struct listing *l, const char *text, struct error *e) {
    for (const char *p = text; p && *p;) {
        size_t n = strcspn(p, ",");
        const char *name = arena_strndup(&l->call->arena, p, n);
        int s = words_find(job_state_words, name);
        if (s < 0)
            return error_set(e, EINVAL, "state: \"%.40s\" is not known; expected PENDING, RUNNING, COMPLETED, …", name);
        l->states |= 1u << s;
        p += n + (p[n] == ',');
    }
    return 0;
}

static void list_id(struct listing *l, const char *text, const struct job_ref *ref) {
    struct controller *c = l->call->controller;
    struct job_view v;
    uint64_t before = l->rows + l->fold_indices.len;
    uint64_t id = ref->has_index ? api_parse_job(c, text, NULL) : ref->job;
    // A bare array id means every element of it.
    bool live = id && core_view(c->core, id, &v);
    if (!ref->has_index && (core_is_array(c->core, id) || (live && v.array_id == id)))
        core_each_element(c->core, id, add_live, l);
    else if (live)
        add_live(l, &v);
    fold_end(l);
    if (!ref->has_index)
        store_history(c->store, &(struct store_query){.array = id, .order = STORE_BY_ID}, add_finished, l, NULL);
    if (id && !live && l->rows == before)
        store_history(c->store, &(struct store_query){.id = id}, add_finished, l, NULL);
}

// "12_[1-5,7]"
static int list_elements(struct listing *l, const char *text, size_t bracket, struct error *e) {
    struct arena *a = &l->call->arena;
    struct array_spec spec;
    size_t len = strlen(text);
    const char *stem = arena_strndup(a, text, bracket);
    struct job_ref array;
    if (bracket < 2 || stem[bracket - 1] != '_' || text[len - 1] != ']' || job_ref_parse(arena_strndup(a, text, bracket - 1), &array, NULL) < 0)
        return error_set(e, EINVAL, "\"%.60s\" is not a job; expected 12, 12_3 or 12_[1-5]", text);
    int r = array_parse(arena_strndup(a, text + bracket + 1, len - bracket - 2), a, &spec, e);
    if (r < 0)
        return r;
    if (spec.elements > LISTED_ELEMENTS_MAX)
        return error_set(e, E2BIG, "\"%.60s\" names %llu elements; at most %d can be listed this way, list %llu instead", text,
                         (unsigned long long)spec.elements, LISTED_ELEMENTS_MAX, (unsigned long long)array.job);
    for (uint32_t i = 0; i < spec.len; i++)
        for (uint64_t k = spec.at[i].first; k <= spec.at[i].last; k += spec.at[i].step) {
            struct job_ref one = {.job = array.job, .has_index = true, .index = (uint32_t)k};
            list_id(l, arena_printf(a, "%s%llu", stem, (unsigned long long)k), &one);
        }
    return 0;
}

// Everybody else waits meanwhile.
static int in_time(const struct listing *l, struct error *e) {
    if (clock_mono_us() - l->call->req->began_us < LIST_TIME_US)
        return 0;
    return error_set(e, E2BIG, "ids: this takes too long in one request; name fewer jobs at a time");
}

static int list_ids(struct listing *l, const char *text, struct error *e) {
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, ",["), bracket = n;
        if (p[n] == '[') {
            n += strcspn(p + n, "]");
            n += strcspn(p + n, ",");
        }
        const char *one = arena_strndup(&l->call->arena, p, n);
        struct job_ref ref;
        int r = in_time(l, e);
        if (r == 0)
            r = bracket < n ? list_elements(l, one, bracket, e) : job_ref_parse(one, &ref, e);
        if (r < 0)
            return r;
        if (bracket == n)
            list_id(l, one, &ref);
        p += n + (p[n] == ',');
    }
    return 0;
}

static void list_finished(struct listing *l) {
    struct api_call *call = l->call;
    struct store_query q = {.user = l->user, .project = l->project, .name = l->name, .order = STORE_BY_END, .descending = true,
                            .state_mask = l->states, .ended_from_ms = api_query_i64(call, "since_ms", 0),
                            .ended_before_ms = api_query_i64(call, "until_ms", 0)};
    const char *after = api_query(call, "after"), *dot = after ? strchr(after, '.') : NULL;
    if (dot && parse_i64(arena_strndup(&call->arena, after, (size_t)(dot - after)), &q.after_end_ms) == 0 && parse_u64(dot + 1, &q.after_id) == 0)
        q.resume = true;
    if (!l->limit)
        l->limit = 1000;
    store_history(call->controller->store, &q, add_finished, l, NULL);
}

void api_list(struct api_call *call) {
    struct listing l = {.call = call, .now = now_ms()};
    struct error e = {0};
    l.w.out = &l.out;
    const char *ids = api_query(call, "ids");
    l.user = api_query(call, "user");
    l.project = api_query(call, "project");
    l.partition = api_query(call, "partition");
    l.name = api_query(call, "name");
    l.node = api_query(call, "node");
    l.qos = api_query(call, "qos");
    l.elements = api_query_i64(call, "elements", 0);
    int64_t limit = api_query_i64(call, "limit", 0);
    l.limit = limit < 0 || limit > LIST_ROWS_MAX ? LIST_ROWS_MAX : (uint64_t)limit;
    if (parse_columns(&l, api_query(call, "fields"), &e) < 0 || parse_states(&l, api_query(call, "state"), &e) < 0) {
        api_fail(call->req, &e);
        return;
    }
    bool finished = api_query_i64(call, "finished", 0);
    json_open(&l.w, '{');
    l.compact = api_query_i64(call, "compact", 0);
    if (l.compact) {
        json_key(&l.w, "fields");
        json_open(&l.w, '[');
        for (int c = 0; c < COL_COUNT; c++)
            if (l.columns & BIT(c))
                json_put_str(&l.w, column_names[c]);
        json_close(&l.w, ']');
    }
    json_key(&l.w, "jobs");
    json_open(&l.w, '[');
    int r = 0;
    if (ids) {
        r = list_ids(&l, ids, &e);
    } else if (finished) {
        list_finished(&l);
    } else {
        core_each_job(call->controller->core, add_live, &l);
        fold_end(&l);
    }
    json_close(&l.w, ']');
    json_kv_str(&l.w, "next", finished && l.limit && l.rows >= l.limit ? l.key : NULL);
    json_close(&l.w, '}');
    if (r < 0)
        api_fail(call->req, &e);
    else
        api_json(call->req, 200, &l.out);
    buf_done(&l.out);
    arena_done(&l.scratch);
    vec_done(&l.fold_indices);
}
