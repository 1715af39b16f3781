// Owns the reading of job rows: lines of JSON from the controller, handed on as they arrive. Texts of a
// row are not copied, they stay in the piece of the answer that they came in.
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "job_row.h"
#include "model/arrayspec.h"

enum { ROW_FIELDS_MAX = 64, STREAM_TIMEOUT_MS = 60 * 1000 };

// One setter per field of a row. All rows of an answer have the same fields, named in its first line.
typedef void (*set_fn)(struct sjob *j, const struct json *v);

#define SETTER_TEXT(field)                                                \
    static void set_##field(struct sjob *j, const struct json *v) {       \
        j->field = v->type == JSON_STRING ? v->s : NULL;                  \
    }
#define SETTER_NUMBER(field)                                              \
    static void set_##field(struct sjob *j, const struct json *v) {       \
        j->field = (__typeof__(j->field))(v->type == JSON_INT ? v->i : 0); \
    }
#define TEXTS(X)                                                                                             \
    X(label)                                                                                                 \
    X(name) X(user) X(project) X(partition) X(qos) X(reason) X(nodes) X(elements) X(by) X(ending) X(launch)  \
        X(gpu_model)
#define NUMBERS(X)                                                                                                 \
    X(id) X(array_id) X(array_index) X(node_count) X(tasks) X(cpus) X(time_limit_s) X(attempt) X(uid) X(preempted)  \
    X(memory_bytes) X(gpus_milli) X(memory_peak_bytes) X(cpu_ms) X(energy_mj) X(gpu_busy_ms) X(submit_ms)          \
    X(eligible_ms) X(start_ms) X(end_ms) X(elapsed_ms) X(expected_start_ms) X(exit_code) X(nice) X(exit_signal)    \
    X(priority) X(suspended_ms) X(suspend_ms)
TEXTS(SETTER_TEXT)
NUMBERS(SETTER_NUMBER)

static void set_state(struct sjob *j, const struct json *v) {
    int state = v->type == JSON_STRING ? schema_word_find(job_state_words, v->s) : -1;
    j->state = state < 0 ? JOB_PENDING : (enum job_state)state;
}

static void set_hold(struct sjob *j, const struct json *v) {
    j->hold = v->type == JSON_BOOL && v->boolean;
}

static void set_spec(struct sjob *j, const struct json *v) {
    j->spec_json = v;
}

static void set_steps(struct sjob *j, const struct json *v) {
    j->steps = v->type == JSON_ARRAY ? v : NULL;
}

static void set_usage(struct sjob *j, const struct json *v) {
    j->usage = v->type == JSON_OBJECT ? v : NULL;
}

static void set_order(struct sjob *j, const struct json *v) {
    if (v->type != JSON_OBJECT)
        return;
    j->ordered = true;
    j->turn_priority = json_i64(v, "priority", 0);
    j->age_s = json_i64(v, "age_s", 0);
    j->short_s = json_i64(v, "short_s", 0);
    j->use_s = json_i64(v, "use_s", 0);
    j->size_s = json_i64(v, "size_s", 0);
    j->tier = json_i64(v, "tier", 0);
    j->qos_priority = json_i64(v, "qos", 0);
}

#define ENTRY(field) {#field, set_##field},
static const struct {
    const char *name;
    set_fn set;
} setters[] = {TEXTS(ENTRY) NUMBERS(ENTRY){"state", set_state},
               {"hold", set_hold},
               {"spec", set_spec},
               {"steps", set_steps},
               {"usage", set_usage},
               {"order", set_order}};

static set_fn setter(const char *name) {
    for (size_t i = 0; i < sizeof setters / sizeof *setters; i++)
        if (streq(setters[i].name, name))
            return setters[i].set;
    return NULL;
}

// Slurm writes indices with a distance one by one, "[0,3,6]", unless they are all of a long list.
static const char *without_steps(struct arena *a, const char *text) {
    enum { ONE_BY_ONE_MAX = 10000, SHORT_SPAN = 10 };
    const char *open = text ? strchr(text, '[') : NULL, *from = open ? open + 1 : text;
    struct array_spec spec;
    if (!text || !strchr(text, ':'))
        return text;
    size_t len = strcspn(from, "%]");
    if (array_parse(arena_strndup(a, from, len), a, &spec, NULL) < 0 || spec.elements > ONE_BY_ONE_MAX ||
        (spec.len == 1 && spec.elements > 2 && spec.at[0].last - spec.at[0].first > SHORT_SPAN))
        return text;
    cleanup_buf struct buf b = {0};
    buf_add(&b, text, (size_t)(from - text));
    size_t head = b.len;
    for (uint32_t i = 0; i < spec.len; i++) {
        const struct array_range *r = &spec.at[i];
        for (uint64_t k = r->first; r->step > 1 && k <= r->last; k += r->step)
            buf_addf(&b, "%s%llu", b.len > head ? "," : "", (unsigned long long)k);
        if (r->step <= 1)
            buf_addf(&b, r->last > r->first ? "%s%u-%u" : "%s%u", b.len > head ? "," : "", r->first, r->last);
    }
    buf_adds(&b, from + len);
    return arena_strdup(a, buf_str(&b));
}

struct job_reading {
    struct slurm *s;
    const struct job_query *query;
    sjob_fn fn;
    void *ctx;
    bool keep;             // rows stay when the next ones are read
    bool folded;           // elements that wait are shown as arrays are
    bool ended;            // the last line has come
    int status;            // of fn
    struct buf in;         // the beginning of a line
    struct arena *arena;   // of the rows' texts and values
    struct error *error;
    set_fn set[ROW_FIELDS_MAX];
    uint32_t fields;
    int64_t now_ms;
};

static void read_label(struct job_reading *r, struct sjob *j) {
    const char *bracket = j->label ? strchr(j->label, '[') : NULL;
    if (!j->label || !strchr(j->label, '_'))
        j->array_id = 0;
    j->label = without_steps(r->arena, j->label);
    if (bracket) {
        bracket = strchr(j->label, '[') + 1;
        j->elements = arena_strndup(r->arena, bracket, strcspn(bracket, "]"));
    } else if (r->folded && j->array_id && j->state == JOB_PENDING) {
        j->label = arena_printf(r->arena, "%llu_[%u]", (unsigned long long)j->array_id, j->array_index);
    }
}

static int read_row(struct job_reading *r, const struct json *row) {
    struct sjob j = {.now_ms = r->now_ms};
    for (uint32_t i = 0; i < row->len && i < r->fields; i++)
        if (r->set[i])
            r->set[i](&j, &row->items[i]);
    read_label(r, &j);
    if (j.spec_json) {
        j.spec = arena_alloc(r->arena, sizeof *j.spec);
        if (j.spec_json->type != JSON_OBJECT || schema_read_json(&spec_schema, j.spec_json, r->arena, j.spec, NULL) < 0)
            *j.spec = (struct spec){0};
    }
    return r->status = r->fn(r->ctx, &j);
}

static int read_line(void *ctx, const struct json *line) {
    struct job_reading *r = ctx;
    if (line->type == JSON_ARRAY)
        return read_row(r, line);
    const struct json *fields = json_get(line, "fields"), *failed = json_get(line, "error");
    if (failed)
        return error_set(r->error, EIO, "%s",
                         json_str(failed, "message") ? json_str(failed, "message")
                                                     : "the list is incomplete");
    r->ended = json_get(line, "rows") != NULL;
    for (uint32_t i = 0; fields && fields->type == JSON_ARRAY && i < fields->len && i < ROW_FIELDS_MAX; i++)
        r->set[r->fields++] = fields->items[i].type == JSON_STRING ? setter(fields->items[i].s) : NULL;
    return 0;
}

// Whole lines are read where they are; the rest waits for more.
static int read_piece(void *arg, const char *data, size_t len) {
    struct job_reading *r = arg;
    buf_add(&r->in, data, len);
    const char *last = memrchr(r->in.data, '\n', r->in.len);
    if (!last)
        return 0;
    size_t whole = (size_t)(last - r->in.data) + 1;
    char *text = r->keep ? arena_memdup(r->arena, r->in.data, whole) : r->in.data;
    int n = json_each_line(text, whole, r->arena, read_line, r, r->error);
    buf_drop(&r->in, whole);
    if (!r->keep)
        arena_reset(r->arena);
    return n;
}

static void build_query(struct query *t, const struct job_query *q) {
    client_query_begin(t, "/v1/jobs");
    client_query_add(t, "stream", "1");
    client_query_add(t, "fields", q->fields);
    client_query_add(t, "user", q->user);
    client_query_add(t, "partition", q->partition);
    client_query_add(t, "project", q->project);
    client_query_add(t, "name", q->name);
    client_query_add(t, "qos", q->qos);
    client_query_add(t, "ids", q->ids);
    if (q->elements)
        client_query_add(t, "elements", "1");
    if (q->components)
        client_query_add(t, "components", "1");
    if (q->finished)
        client_query_add(t, q->live ? "all" : "finished", "1");
    if (q->since_ms > 0)
        client_query_addf(t, "from_ms", "%lld", (long long)q->since_ms);
    if (q->to_ms > 0)
        client_query_addf(t, "to_ms", "%lld", (long long)q->to_ms);
    if (!q->states)
        return;
    cleanup_buf struct buf states = {0};
    for (int i = 0; i < JOB_STATE_COUNT; i++)
        if (q->states >> i & 1)
            buf_addf(&states, "%s%s", states.len ? "," : "", job_state_words[i]);
    client_query_add(t, "state", buf_str(&states));
}

static int read_all(struct slurm *s, struct job_reading *r) {
    cleanup_query struct query t = {0};
    struct client *k = slurm_client(s);
    if (!k)
        return SLURM_FAILED;
    r->s = s;
    r->error = &s->cli.error;
    r->folded = !r->query->elements && !(r->query->ids && strchr(r->query->ids, '_'));
    r->now_ms = clock_wall_ms();
    build_query(&t, r->query);
    int n = client_stream(k, buf_str(&t.text), STREAM_TIMEOUT_MS, read_piece, r);
    buf_done(&r->in);
    if (n == 0 && !r->ended)
        n = error_set(&s->cli.error, EPROTO, "the controller's answer is truncated");
    if (n == 0 || r->status)
        return r->status;
    return slurm_call_failed(s);
}

int slurm_jobs_each(struct slurm *s, const struct job_query *q, sjob_fn fn, void *ctx) {
    cleanup_arena struct arena a = {0};
    struct job_reading r = {.query = q, .fn = fn, .ctx = ctx, .arena = &a};
    return read_all(s, &r);
}

static int keep_row(void *ctx, const struct sjob *j) {
    vec_push((sjob_vec *)ctx, *j);
    return 0;
}

int slurm_jobs_fetch_in(struct slurm *s, const struct job_query *q, struct arena *a, sjob_vec *out) {
    struct job_reading r = {.query = q, .fn = keep_row, .ctx = out, .arena = a, .keep = true};
    return read_all(s, &r);
}

int slurm_jobs_fetch(struct slurm *s, const struct job_query *q, sjob_vec *out) {
    return slurm_jobs_fetch_in(s, q, &s->cli.arena, out);
}
