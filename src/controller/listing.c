// Owns the columns of job lists, what is wanted of them, and the rows.
#include "listing.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "telemetry.h"
#include "model/arrayspec.h"
#include "model/name.h"

enum column {
    COL_ID,
    COL_ARRAY_ID,
    COL_ARRAY_INDEX,
    COL_LABEL,
    COL_NAME,
    COL_USER,
    COL_PROJECT,
    COL_PARTITION,
    COL_QOS,
    COL_CLASS,
    COL_STATE,
    COL_REASON,
    COL_NODES,
    COL_NODE_COUNT,
    COL_TASKS,
    COL_CPUS,
    COL_MEMORY,
    COL_GPUS,
    COL_GPU_MODEL,
    COL_TIME_LIMIT,
    COL_SUBMIT,
    COL_ELIGIBLE,
    COL_START,
    COL_END,
    COL_ELAPSED,
    COL_EXPECTED,
    COL_EXIT_CODE,
    COL_EXIT_SIGNAL,
    COL_ATTEMPT,
    COL_PRIORITY,
    COL_NICE,
    COL_COMMENT,
    COL_WORKDIR,
    COL_OUTPUT,
    COL_ERROR,
    COL_COMMAND,
    COL_DEPENDENCY,
    COL_HOLD,
    COL_CPU,
    COL_MEMORY_PEAK,
    COL_GPU_BUSY,
    COL_ENERGY,
    COL_PREEMPTED,
    COL_FEATURES,
    COL_BEGIN,
    COL_UID,
    COL_SPEC,
    COL_STEPS,
    COL_BY,
    COL_USAGE,
    COL_ENDING,
    COL_LAUNCH,
    COL_ORDER,
    COL_GPU_USE,
    COL_WARNING,
    COL_SUSPENDED,
    COL_SUSPEND,
    COL_MEMORY_NOW,
    COL_CONTAINER,
    COL_COUNT
};
static const char *const column_names[] = {"id",           "array_id",
                                           "array_index",  "label",
                                           "name",         "user",
                                           "project",      "partition",
                                           "qos",          "class",
                                           "state",        "reason",
                                           "nodes",        "node_count",
                                           "tasks",        "cpus",
                                           "memory_bytes", "gpus_milli",
                                           "gpu_model",    "time_limit_s",
                                           "submit_ms",    "eligible_ms",
                                           "start_ms",     "end_ms",
                                           "elapsed_ms",   "expected_start_ms",
                                           "exit_code",    "exit_signal",
                                           "attempt",      "priority",
                                           "nice",         "comment",
                                           "workdir",      "output",
                                           "error",        "command_text",
                                           "dependency",   "hold",
                                           "cpu_ms",       "memory_peak_bytes",
                                           "gpu_busy_ms",  "energy_mj",
                                           "preempted",    "features",
                                           "begin_ms",     "uid",
                                           "spec",         "steps",
                                           "by",           "usage",
                                           "ending",       "launch",
                                           "order",        "gpu_use_milli",
                                           "warning",      "suspended_ms",
                                           "suspend_ms",   "memory_now_bytes",
                                           "container",    NULL};
_Static_assert(sizeof column_names / sizeof *column_names == COL_COUNT + 1, "a name per column");

#define BIT(c) (1ULL << (c))
static const uint64_t default_columns =
    BIT(COL_ID) | BIT(COL_LABEL) | BIT(COL_NAME) | BIT(COL_USER) | BIT(COL_PROJECT) | BIT(COL_PARTITION) |
    BIT(COL_STATE) | BIT(COL_REASON) | BIT(COL_NODES) | BIT(COL_NODE_COUNT) | BIT(COL_CPUS) |
    BIT(COL_MEMORY) | BIT(COL_GPUS) | BIT(COL_TIME_LIMIT) | BIT(COL_SUBMIT) | BIT(COL_START) | BIT(COL_END) |
    BIT(COL_ELAPSED) | BIT(COL_EXIT_CODE) | BIT(COL_EXIT_SIGNAL);
static const uint64_t private_columns =
    BIT(COL_COMMENT) | BIT(COL_WORKDIR) | BIT(COL_OUTPUT) | BIT(COL_ERROR) | BIT(COL_COMMAND);
static const uint64_t spec_columns = private_columns | BIT(COL_GPU_MODEL) | BIT(COL_DEPENDENCY) |
                                     BIT(COL_FEATURES) | BIT(COL_CONTAINER) | BIT(COL_BEGIN) | BIT(COL_SPEC) |
                                     BIT(COL_LAUNCH);

static bool is_mine(const struct listing *l, const struct row *r) {
    return l->viewer.admin || streq(l->viewer.user, r->v.user);
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
    case COL_CONTAINER: return s->container;
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
    case COL_ELAPSED:
        n = !v->start_ms ? 0 : (r->end_ms ? r->end_ms : l->now) - v->start_ms - core_view_paused_ms(v, l->now);
        break;
    case COL_SUSPENDED: n = core_view_paused_ms(v, l->now); break;
    case COL_SUSPEND: n = v->suspend_ms; break;
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
    case COL_MEMORY_NOW: n = (int64_t)r->memory_now_bytes; break;
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
        store_events(l->controller->store, r->v.id, 0, 0, put_step, &l->w, NULL);
    json_close(&l->w, ']');
}

static void put_spec(struct listing *l, const struct row *r) {
    struct spec s = *r->spec;
    if (!is_mine(l, r))
        api_hide_private(&s);
    schema_write_json(&spec_schema, &s, &l->w);
}

static void put_gpu_use(struct listing *l, const struct row *r) {
    uint64_t milli;
    if (!r->end_ms && telemetry_job_use(l->controller, r->v.id, &milli))
        json_put_i64(&l->w, (int64_t)milli);
    else
        json_put_null(&l->w);
}

static void put_warning(struct listing *l, const struct row *r) {
    char text[320];
    bool has = !r->end_ms && is_mine(l, r) && telemetry_warning(l->controller, r->v.id, text, sizeof text);
    json_put_str(&l->w, has ? text : NULL);
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
    case COL_CLASS: json_put_str(&l->w, words_name(job_class_words, r->v.class)); break;
    case COL_STATE: json_put_str(&l->w, job_state_words[r->v.state]); break;
    case COL_REASON: json_put_str(&l->w, is_mine(l, r) ? r->reason : api_public_reason(&l->scratch, r->reason)); break;
    case COL_NODES: json_put_str(&l->w, r->nodes); break;
    case COL_SPEC: put_spec(l, r); break;
    case COL_STEPS: put_steps(l, r); break;
    case COL_LAUNCH: json_put_str(&l->w, words_name(launch_kind_words, r->spec->launch)); break;
    case COL_ENDING: json_put_str(&l->w, r->v.ending); break;
    case COL_GPU_USE: put_gpu_use(l, r); break;
    case COL_WARNING: put_warning(l, r); break;
    case COL_BY: json_put_str(&l->w, r->by); break;
    case COL_USAGE:
        if (r->usage)
            schema_write_json(&usage_schema, r->usage, &l->w);
        else
            json_put_null(&l->w);
        break;
    case COL_ORDER:
        if (r->v.state != JOB_PENDING || !api_put_order(l->controller, r->v.id, l->now, &l->w))
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
    case COL_CONTAINER:
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
    if (l->lines) {
        buf_addc(&l->out, '\n');
        l->w.need_comma = false;
    }
}

bool listing_several(const char *names) {
    return names && strchr(names, ',');
}

static bool named(const char *names, const char *name) {
    if (!names || streq(names, name))
        return true;
    size_t len = name ? strlen(name) : 0;
    for (const char *p = len && listing_several(names) ? names : NULL; p;
         p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (!strncmp(p, name, len) && (p[len] == ',' || !p[len]))
            return true;
    return false;
}

static bool wanted(const struct listing *l, const struct job_view *v) {
    return (!l->states || l->states >> v->state & 1) && named(l->user, v->user) && named(l->project, v->project) &&
           (!l->partition || names_meet(l->partition, v->partition)) && (!l->name || streq(l->name, v->name)) &&
           named(l->qos, v->qos) &&
           (!l->began_before_ms || (v->start_ms ? v->start_ms : v->submit_ms) < l->began_before_ms);
}

// What can be said before the record is decoded.
static bool row_wanted(const struct listing *l, const struct store_history *row) {
    return (!l->states || l->states >> row->state & 1) && named(l->user, row->user) &&
           named(l->project, row->project) && (!l->name || streq(l->name, row->name)) &&
           (!l->began_before_ms || store_history_began_ms(row) < l->began_before_ms);
}

void listing_fold_end(struct listing *l) {
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
    return l->fold_indices.len && l->fold.v.array_id == v->array_id && l->fold.v.state == v->state &&
           l->fold.v.reason == v->reason &&
           (l->fold.v.spec_bytes == v->spec_bytes ||
            (l->fold.v.spec_len == v->spec_len && !memcmp(l->fold.v.spec_bytes, v->spec_bytes, v->spec_len)));
}

bool listing_folding(const struct listing *l, const struct job_view *v) {
    return l->fold_indices.len && l->fold.v.array_id == v->array_id;
}

enum { LABEL_MAX = 48 };

static char *put_digits(char *end, uint64_t n) {
    do {
        *--end = (char)('0' + n % 10);
        n /= 10;
    } while (n);
    return end;
}

// "12", or "12_3" in an array.
static const char *label_of(uint64_t id, uint64_t array, uint32_t index, char out[static LABEL_MAX]) {
    char *p = out + LABEL_MAX - 1;
    *p = 0;
    if (!array)
        return put_digits(p, id);
    p = put_digits(p, index);
    *--p = '_';
    return put_digits(p, array);
}

bool listing_live(void *ctx, const struct job_view *v) {
    struct listing *l = ctx;
    struct row r = {.v = *v, .steps = v->steps};
    char label[LABEL_MAX];
    if (!wanted(l, v))
        return true;
    if (folds_with(l, v)) {
        vec_push(&l->fold_indices, v->array_index);
        l->last_id = v->id;
        return true;
    }
    listing_fold_end(l);
    if (l->limit && l->rows >= l->limit)
        return false;
    cleanup_buf struct buf nodes = {0};
    bool waits = v->state == JOB_PENDING || (v->held && !v->ending);  // held: when it comes back
    r.reason = waits ? job_reason_words[v->reason] : v->ending_reason;
    if (v->start_ms && (l->columns & BIT(COL_NODES) || l->node)) {
        core_job_nodes(l->controller->core, v->id, &nodes);
        r.nodes = buf_str(&nodes);
    }
    if (l->node && !streq(r.nodes, l->node)) {
        const char *names[64];
        uint32_t n = core_job_node_names(l->controller->core, v->id, names, 64);
        bool there = false;
        for (uint32_t i = 0; i < n; i++)
            there |= streq(names[i], l->node);
        if (!there)
            return true;
    }
    struct live_usage *u = map_get(&l->controller->live, v->id);
    r.usage = u ? &u->usage : NULL;
    r.memory_now_bytes = u ? u->memory_now_bytes : 0;
    if (l->columns & spec_columns) {
        arena_reset(&l->scratch);
        r.spec = arena_alloc(&l->scratch, sizeof *r.spec);
        if (schema_decode(&spec_schema, v->spec_bytes, v->spec_len, &l->scratch, r.spec) < 0)
            return true;
    }
    l->last_id = v->id;
    if (v->array_id && v->state == JOB_PENDING && !l->elements) {
        l->fold = r;
        vec_push(&l->fold_indices, v->array_index);
        return true;
    }
    r.label = label_of(v->id, v->array_id, v->array_index, label);
    put_row(l, &r);
    return true;
}

static void view_of_record(const struct store_history *row, const struct job_record *j, struct job_view *v) {
    static const struct spec none;
    const struct spec *s = j->spec ? j->spec : &none;
    *v = (struct job_view){.id = row->id,
                           .array_id = row->array,
                           .array_index = row->index,
                           .name = row->name,
                           .user = row->user,
                           .project = row->project,
                           .partition = s->partition,
                           .qos = s->qos,
                           .class = s->class,
                           .state = (enum job_state)row->state,
                           .attempt = j->attempt,
                           .tasks = s->tasks ? s->tasks : 1,
                           .node_count = j->parts.len,
                           .time_limit_s = s->time_limit_s,
                           .preempted = j->preempted,
                           .uid = s->uid,
                           .submit_ms = row->submit_ms,
                           .eligible_ms = j->eligible_ms,
                           .start_ms = row->start_ms,
                           .suspended_ms = j->suspended_ms,
                           .nice = s->nice,
                           .priority = s->priority};
    if (!j->parts.len) {  // it never started: what it asked for
        v->cpus = v->tasks * (s->cpus_per_task ? s->cpus_per_task : 1);
        v->memory_bytes = s->memory_per_node_bytes ? s->memory_per_node_bytes : v->cpus * s->memory_per_cpu_bytes;
    }
    for (uint32_t i = 0; i < j->parts.len; i++) {
        v->cpus += j->parts.at[i].cpus;
        v->memory_bytes += j->parts.at[i].memory_bytes;
        for (uint32_t g = 0; g < j->parts.at[i].gpus.len; g++)
            v->gpus_milli += j->parts.at[i].gpus.at[g].milli;
    }
}

int listing_finished(void *ctx, const struct store_history *row) {
    struct listing *l = ctx;
    struct job_record j;
    char label[LABEL_MAX];
    if (!row_wanted(l, row))
        return 0;
    arena_reset(&l->scratch);
    if (schema_decode(&l->record_schema, row->data, row->len, &l->scratch, &j) < 0)
        return 0;
    struct row r = {.spec = j.spec,
                    .end_ms = row->end_ms,
                    .exit_code = j.exit_code,
                    .exit_signal = j.exit_signal,
                    .reason = j.reason,
                    .nodes = row->nodes,
                    .usage = j.usage,
                    .steps = j.steps,
                    .by = j.by};
    view_of_record(row, &j, &r.v);
    if ((l->columns & spec_columns && !r.spec) || !wanted(l, &r.v))
        return 0;
    r.label = label_of(row->id, row->array, row->index, label);
    put_row(l, &r);
    if (!l->lines)
        snprintf(l->key, sizeof l->key, "%lld.%llu", (long long)row->end_ms, (unsigned long long)row->id);
    return l->limit && l->rows >= l->limit ? 1 : 0;
}

static int parse_columns(struct listing *l, const char *text, struct error *e) {
    if (str_empty(text)) {
        l->columns = default_columns;
        return 0;
    }
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, ",");
        const char *name = arena_strndup(&l->keep, p, n);
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
        const char *name = arena_strndup(&l->keep, p, n);
        int s = words_find(job_state_words, name);
        if (s < 0)
            return error_set(e, EINVAL, "state: \"%.40s\" is not known; expected PENDING, RUNNING, COMPLETED, …", name);
        l->states |= 1u << s;
        p += n + (p[n] == ',');
    }
    return 0;
}

// Fields of history's records by what needs them; those of no column here are not decoded.
static const struct {
    const char *name;
    uint64_t columns;
} record_needs[] =
    {
        {"reason", BIT(COL_REASON)},
        {"exit_code", BIT(COL_EXIT_CODE)},
        {"exit_signal", BIT(COL_EXIT_SIGNAL)},
        {"attempt", BIT(COL_ATTEMPT)},
        {"eligible_ms", BIT(COL_ELIGIBLE)},
        {"parts", BIT(COL_NODE_COUNT) | BIT(COL_CPUS) | BIT(COL_MEMORY) | BIT(COL_GPUS)},
        {"usage", BIT(COL_CPU) | BIT(COL_MEMORY_PEAK) | BIT(COL_GPU_BUSY) | BIT(COL_ENERGY) | BIT(COL_USAGE)},
        {"preempted", BIT(COL_PREEMPTED)},
        {"steps", BIT(COL_STEPS)},
        {"by", BIT(COL_BY)},
        {"suspended_ms", BIT(COL_SUSPENDED) | BIT(COL_ELAPSED)},
},
  spec_needs[] = {
      {"partition", BIT(COL_PARTITION)},
      {"qos", BIT(COL_QOS)},
      {"class", BIT(COL_CLASS)},
      {"tasks", BIT(COL_TASKS) | BIT(COL_CPUS) | BIT(COL_MEMORY)},
      {"cpus_per_task", BIT(COL_CPUS) | BIT(COL_MEMORY)},
      {"memory_per_node_bytes", BIT(COL_MEMORY)},
      {"memory_per_cpu_bytes", BIT(COL_MEMORY)},
      {"time_limit_s", BIT(COL_TIME_LIMIT)},
      {"uid", BIT(COL_UID)},
      {"nice", BIT(COL_NICE)},
      {"priority", BIT(COL_PRIORITY)},
};

static void take_field(const struct schema *from, const char *name, struct schema *to, struct field *fields) {
    for (size_t i = 0; i < from->count; i++)
        if (streq(from->fields[i].name, name)) {
            assert(to->count < LISTING_FIELDS_MAX);
            fields[to->count++] = from->fields[i];
            return;
        }
    assert(!"a field of the record");
}

// Unknown fields are skipped, so a table of few of them decodes few.
static void choose_fields(struct listing *l) {
    uint64_t columns = l->columns | (l->partition ? BIT(COL_PARTITION) : 0) | (l->qos ? BIT(COL_QOS) : 0);
    l->spec_schema = (struct schema){.name = spec_schema.name, .size = spec_schema.size, .fields = l->spec_fields};
    l->record_schema = (struct schema){
        .name = job_record_schema.name, .size = job_record_schema.size, .fields = l->record_fields};
    for (size_t i = 0; i < sizeof spec_needs / sizeof *spec_needs; i++)
        if (columns & spec_needs[i].columns)
            take_field(&spec_schema, spec_needs[i].name, &l->spec_schema, l->spec_fields);
    if (l->spec_schema.count || columns & spec_columns) {
        take_field(&job_record_schema, "spec", &l->record_schema, l->record_fields);
        l->record_fields[0].sub = columns & spec_columns ? &spec_schema : &l->spec_schema;
    }
    for (size_t i = 0; i < sizeof record_needs / sizeof *record_needs; i++)
        if (columns & record_needs[i].columns)
            take_field(&job_record_schema, record_needs[i].name, &l->record_schema, l->record_fields);
}

static const char *asked(struct listing *l, struct api_call *call, const char *name) {
    const char *value = api_query(call, name);
    return value ? arena_strdup(&l->keep, value) : NULL;
}

int listing_init(struct listing *l, struct api_call *call, struct error *e) {
    *l = (struct listing){.controller = call->controller, .viewer = call->actor, .now = now_ms()};
    l->viewer.user = arena_strdup(&l->keep, call->actor.user);
    l->w.out = &l->out;
    l->user = api_query_i64(call, "mine", 0) ? l->viewer.user : asked(l, call, "user");
    l->project = asked(l, call, "project");
    l->partition = asked(l, call, "partition");
    l->name = asked(l, call, "name");
    l->node = asked(l, call, "node");
    l->qos = asked(l, call, "qos");
    l->elements = api_query_i64(call, "elements", 0);
    l->compact = api_query_i64(call, "compact", 0);
    int64_t limit = api_query_i64(call, "limit", 0), to_ms = api_query_i64(call, "to_ms", 0);
    l->limit = limit < 0 || limit > LIST_ROWS_MAX ? LIST_ROWS_MAX : (uint64_t)limit;
    l->began_before_ms = to_ms > 0 && to_ms < INT64_MAX ? to_ms + 1 : 0;
    int r = parse_columns(l, api_query(call, "fields"), e);
    if (r == 0)
        r = parse_states(l, api_query(call, "state"), e);
    if (r < 0)
        listing_done(l);
    else
        choose_fields(l);
    return r;
}

void listing_done(struct listing *l) {
    buf_done(&l->out);
    arena_done(&l->keep);
    arena_done(&l->scratch);
    vec_done(&l->fold_indices);
}

void listing_fields(struct listing *l) {
    json_open(&l->w, '[');
    for (int c = 0; c < COL_COUNT; c++)
        if (l->columns & BIT(c))
            json_put_str(&l->w, column_names[c]);
    json_close(&l->w, ']');
}
