// Owns the reading of job rows, and Slurm's words about jobs.
#include "cli/slurm/joblist.h"

#include <grp.h>
#include <pwd.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "model/arrayspec.h"
#include "model/gpuspec.h"

enum { FINISHED_PAGE = 10000, ROW_FIELDS_MAX = 64 };

// One setter per field of a row. Rows of an answer have the same fields in the same order, so each
// name is looked up once.
typedef void (*set_fn)(struct sjob *j, const struct json *v);

#define SETTER_TEXT(field)                                                \
    static void set_##field(struct sjob *j, const struct json *v) {       \
        j->field = v->type == JSON_STRING ? v->s : NULL;                  \
    }
#define SETTER_NUMBER(field)                                              \
    static void set_##field(struct sjob *j, const struct json *v) {       \
        j->field = (__typeof__(j->field))(v->type == JSON_INT ? v->i : 0); \
    }
#define TEXTS(X) X(label) X(name) X(user) X(project) X(partition) X(qos) X(reason) X(nodes) X(elements) X(by) X(ending) X(launch) X(gpu_model)
#define NUMBERS(X)                                                                                                 \
    X(id) X(array_id) X(array_index) X(node_count) X(tasks) X(cpus) X(time_limit_s) X(attempt) X(uid) X(preempted)  \
    X(memory_bytes) X(gpus_milli) X(memory_peak_bytes) X(cpu_ms) X(energy_mj) X(gpu_busy_ms) X(submit_ms)          \
    X(eligible_ms) X(start_ms) X(end_ms) X(elapsed_ms) X(expected_start_ms) X(exit_code) X(nice) X(exit_signal)    \
    X(priority)
TEXTS(SETTER_TEXT)
NUMBERS(SETTER_NUMBER)

static void set_state(struct sjob *j, const struct json *v) {
    int state = v->type == JSON_STRING ? words_find(job_state_words, v->s) : -1;
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

#define ENTRY(field) {#field, set_##field},
static const struct {
    const char *name;
    set_fn set;
} setters[] = {TEXTS(ENTRY) NUMBERS(ENTRY){"state", set_state}, {"hold", set_hold}, {"spec", set_spec}, {"steps", set_steps}, {"usage", set_usage}};

static set_fn setter(const char *name) {
    for (size_t i = 0; i < sizeof setters / sizeof *setters; i++)
        if (streq(setters[i].name, name))
            return setters[i].set;
    return NULL;
}

struct row_shape {
    const char *names[ROW_FIELDS_MAX];
    set_fn set[ROW_FIELDS_MAX];
};

// Slurm writes indices with a distance one by one: "[0,3,6]", not "[0-6:3]".
static const char *without_steps(struct arena *a, const char *text) {
    enum { ONE_BY_ONE_MAX = 10000 };
    const char *open = text ? strchr(text, '[') : NULL, *from = open ? open + 1 : text;
    struct array_spec spec;
    if (!text || !strchr(text, ':'))
        return text;
    size_t len = strcspn(from, "%]");
    if (array_parse(arena_strndup(a, from, len), a, &spec, NULL) < 0 || spec.elements > ONE_BY_ONE_MAX)
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

static void read_row(struct slurm *s, const struct json *row, struct row_shape *shape, struct sjob *j) {
    for (uint32_t i = 0; i < row->len && i < ROW_FIELDS_MAX; i++) {
        const struct json_member *m = &row->members[i];
        if (!shape->names[i] || !streq(shape->names[i], m->key)) {
            shape->names[i] = m->key;
            shape->set[i] = setter(m->key);
        }
        if (shape->set[i])
            shape->set[i](j, &m->value);
    }
    if (!j->label || !strchr(j->label, '_'))
        j->array_id = 0;
    j->label = without_steps(&s->cli.arena, j->label);
    j->elements = without_steps(&s->cli.arena, j->elements);
    if (!j->spec_json)
        return;
    j->spec = arena_alloc(&s->cli.arena, sizeof *j->spec);
    if (j->spec_json->type != JSON_OBJECT || schema_read_json(&spec_schema, j->spec_json, &s->cli.arena, j->spec, NULL) < 0)
        *j->spec = (struct spec){0};
}

static int fetch(struct slurm *s, const char *target, bool folded, sjob_vec *out, const char **next) {
    struct reply r;
    struct row_shape shape = {0};
    int status = slurm_get(s, target, &r);
    const struct json *jobs = status || !r.json ? NULL : json_get(r.json, "jobs");
    int64_t now = clock_wall_ms();
    *next = NULL;
    if (!jobs || jobs->type != JSON_ARRAY)
        return status;
    vec_reserve(out, out->len + jobs->len);
    for (uint32_t i = 0; i < jobs->len; i++) {
        struct sjob j = {.now_ms = now};
        if (jobs->items[i].type != JSON_OBJECT)
            continue;
        read_row(s, &jobs->items[i], &shape, &j);
        if (folded && j.array_id && j.state == JOB_PENDING && !strchr(j.label, '['))
            j.label = arena_printf(&s->cli.arena, "%llu_[%u]", (unsigned long long)j.array_id, j.array_index);
        vec_push(out, j);
    }
    *next = json_str(r.json, "next");
    return 0;
}

static void query_common(struct query *t, const struct job_query *q) {
    query_begin(t, "/v1/jobs");
    query_add(t, "fields", q->fields);
    query_add(t, "user", q->user);
    query_add(t, "partition", q->partition);
    query_add(t, "project", q->project);
    query_add(t, "name", q->name);
    query_add(t, "qos", q->qos);
    if (q->elements)
        query_add(t, "elements", "1");
}

static int fetch_finished(struct slurm *s, const struct job_query *q, sjob_vec *out) {
    const char *next = NULL;
    int status;
    do {
        cleanup_query struct query t;
        query_common(&t, q);
        query_add(&t, "finished", "1");
        query_addf(&t, "limit", "%d", FINISHED_PAGE);
        if (q->since_ms)
            query_addf(&t, "since_ms", "%lld", (long long)q->since_ms);
        if (q->until_ms)
            query_addf(&t, "until_ms", "%lld", (long long)q->until_ms);
        query_add(&t, "after", next);
        status = fetch(s, buf_str(&t.text), !q->elements, out, &next);
    } while (!status && next);
    return status;
}

int jobs_fetch(struct slurm *s, const struct job_query *q, sjob_vec *out) {
    const char *next;
    if (q->ids) {
        cleanup_query struct query t;
        query_common(&t, q);
        query_add(&t, "ids", q->ids);
        return fetch(s, buf_str(&t.text), !q->elements && !strchr(q->ids, '_'), out, &next);
    }
    int status = 0;
    if (q->live) {
        cleanup_query struct query t;
        query_common(&t, q);
        status = fetch(s, buf_str(&t.text), !q->elements, out, &next);
    }
    return !status && q->finished ? fetch_finished(s, q, out) : status;
}

const char *state_word(enum job_state s) {
    return s == JOB_STARTING ? "RUNNING" : job_state_words[s];
}

const char *state_letters(enum job_state s) {
    return s == JOB_STARTING ? "R" : job_state_short(s);
}

const char *reason_word(const struct sjob *j) {
    switch (j->state) {
    case JOB_PENDING: return j->reason ? j->reason : "None";
    case JOB_FAILED:
        if (j->exit_code > 0)
            return "NonZeroExitCode";
        return j->exit_signal ? "RaisedSignal" : "JobLaunchFailure";
    case JOB_TIMEOUT: return "TimeLimit";
    case JOB_OUT_OF_MEMORY: return "OutOfMemory";
    case JOB_NODE_FAIL: return "NodeDown";
    case JOB_DEADLINE: return "DeadLine";
    default: return "None";
    }
}

static const struct {
    const char *word, *letters;
    uint32_t states;
} state_names[] = {
    {"PENDING", "PD", 1u << JOB_PENDING},
    {"RUNNING", "R", 1u << JOB_RUNNING | 1u << JOB_STARTING},
    {"SUSPENDED", "S", 1u << JOB_SUSPENDED},
    {"COMPLETED", "CD", 1u << JOB_COMPLETED},
    {"CANCELLED", "CA", 1u << JOB_CANCELLED},
    {"FAILED", "F", 1u << JOB_FAILED},
    {"TIMEOUT", "TO", 1u << JOB_TIMEOUT},
    {"NODE_FAIL", "NF", 1u << JOB_NODE_FAIL},
    {"PREEMPTED", "PR", 1u << JOB_PREEMPTED},
    {"BOOT_FAIL", "BF", 0},
    {"DEADLINE", "DL", 1u << JOB_DEADLINE},
    {"OUT_OF_MEMORY", "OOM", 1u << JOB_OUT_OF_MEMORY},
    {"COMPLETING", "CG", 1u << JOB_COMPLETING},
    {"CONFIGURING", "CF", 0},
    {"RESIZING", "RS", 0},
    {"RESV_DEL_HOLD", "RD", 0},
    {"REQUEUED", "RQ", 0},
    {"REQUEUE_FED", "RF", 0},
    {"REQUEUE_HOLD", "RH", 0},
    {"REVOKED", "RV", 0},
    {"SIGNALING", "SI", 0},
    {"SPECIAL_EXIT", "SE", 0},
    {"STAGE_OUT", "SO", 0},
    {"STOPPED", "ST", 0},
};

uint32_t states_parse(struct slurm *s, const char *text) {
    enum { MATCHED_NOTHING = 1u << 31 };  // a state of Slurm that no job has here
    uint32_t mask = MATCHED_NOTHING;
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, ",");
        const char *word = arena_strndup(&s->cli.arena, p, n);
        bool known = same_word(word, "all");
        mask |= known ? STATES_ALL : 0;
        for (size_t i = 0; i < sizeof state_names / sizeof *state_names; i++)
            if (same_word(word, state_names[i].word) || same_word(word, state_names[i].letters)) {
                mask |= state_names[i].states;
                known = true;
            }
        if (!known) {
            cleanup_buf struct buf all = {0};
            for (size_t i = 0; i < sizeof state_names / sizeof *state_names; i++)
                buf_addf(&all, "%s%s", i ? "," : "", state_names[i].word);
            slurm_error(s, "Invalid job state specified: %s", word);
            slurm_error(s, "Valid job states include: %s\n", buf_str(&all));
            return 0;
        }
        p += n + (p[n] == ',');
    }
    return mask;
}

bool list_has(const char *list, const char *word) {
    if (str_empty(list))
        return true;
    size_t len = word ? strlen(word) : 0;
    for (const char *p = list; *p;) {
        size_t n = strcspn(p, ",");
        if (word && n == len && !strncmp(p, word, n))
            return true;
        p += n + (p[n] == ',');
    }
    return false;
}

// The end of one item of a list; commas in brackets do not count.
static size_t item_len(const char *p) {
    size_t n = 0;
    for (bool inside = false; p[n] && (inside || p[n] != ','); n++)
        inside = p[n] == '[' || (inside && p[n] != ']');
    return n;
}

static bool item_has(const char *item, size_t len, const struct sjob *j) {
    char head[64], inner[4096];
    uint64_t number;
    const char *mark = memchr(item, '_', len);
    size_t n = mark ? (size_t)(mark - item) : strcspn(item, ".,+");
    n = n < len ? n : len;
    if (n >= sizeof head)
        return false;
    memcpy(head, item, n);
    head[n] = 0;
    if (parse_u64(head, &number) < 0)
        return false;
    if (!mark)
        return j->id == number || j->array_id == number;
    if (j->array_id != number)
        return false;
    bool bracket = mark[1] == '[';
    size_t inner_len = len - n - 1 - (bracket ? 2 : 0);
    if (inner_len >= sizeof inner || len < n + 2 + (bracket ? 2u : 0u))
        return false;
    memcpy(inner, mark + 1 + (bracket ? 1 : 0), inner_len);
    inner[inner_len] = 0;
    inner[strcspn(inner, ".")] = 0;
    cleanup_arena struct arena a = {0};
    struct array_spec spec;
    if (array_parse(inner, &a, &spec, NULL) < 0)
        return false;
    for (uint32_t i = 0; i < spec.len; i++)
        if (j->elements || (j->array_index >= spec.at[i].first && j->array_index <= spec.at[i].last &&
                            (j->array_index - spec.at[i].first) % spec.at[i].step == 0))
            return true;
    return false;
}

bool ids_have(const char *list, const struct sjob *j) {
    if (str_empty(list))
        return true;
    for (const char *p = list; *p;) {
        size_t n = item_len(p);
        if (item_has(p, n, j))
            return true;
        p += n + (p[n] == ',');
    }
    return false;
}

const char *ids_plain(struct arena *a, const char *list, const char **bad) {
    cleanup_buf struct buf out = {0};
    for (const char *p = list; *p;) {
        size_t n = item_len(p), digits = strspn(p, "0123456789");
        if (!digits || digits > n || (digits < n && !strchr("_.+", p[digits]))) {
            *bad = arena_strndup(a, p, n);
            return NULL;
        }
        buf_addf(&out, "%s%.*s", out.len ? "," : "", (int)digits, p);
        // One element by its index; more of them are picked from the whole array.
        if (p[digits] == '_' && p[digits + 1] >= '0' && p[digits + 1] <= '9')
            buf_addf(&out, "_%.*s", (int)strspn(p + digits + 1, "0123456789"), p + digits + 1);
        p += n + (p[n] == ',');
    }
    return arena_strdup(a, buf_str(&out));
}

const char *user_name_of(struct arena *a, const char *text) {
    uint32_t uid;
    struct passwd *pw = parse_u32(text, &uid) == 0 ? getpwuid(uid) : getpwnam(text);
    return pw ? arena_strdup(a, pw->pw_name) : NULL;
}

const char *group_name(struct arena *a, uint32_t gid) {
    struct group *g = getgrgid(gid);
    return g ? arena_strdup(a, g->gr_name) : arena_printf(a, "%u", gid);
}

const char *own_name(struct arena *a) {
    struct passwd *pw = getpwuid(geteuid());
    return pw ? arena_strdup(a, pw->pw_name) : arena_printf(a, "%u", (unsigned)geteuid());
}

void tres_text(const struct sjob *j, bool sorted, struct buf *out) {
    char memory[UNIT_TEXT_MAX], gpus[GPU_TEXT_MAX];
    uint32_t nodes = j->node_count ? j->node_count : 1;
    if (sorted)
        buf_addf(out, "billing=%u,", j->cpus);
    buf_addf(out, "cpu=%u", j->cpus);
    if (sorted && j->gpus_milli)
        buf_addf(out, ",gres/gpu=%s", gpu_milli_format(j->gpus_milli, gpus));
    if (j->memory_bytes)
        buf_addf(out, ",mem=%s", slurm_megabytes(j->memory_bytes, memory));
    buf_addf(out, ",node=%u", nodes);
    if (!sorted)
        buf_addf(out, ",billing=%u", j->cpus);
    if (!sorted && j->gpus_milli)
        buf_addf(out, ",gres/gpu=%s", gpu_milli_format(j->gpus_milli, gpus));
}
