// Owns the columns, the order and the pages of the job table.
#include "table_sort.h"

#include <errno.h>
#include <string.h>

#include "base/text.h"

struct sort_column {
    const char *name;
    bool text;
    size_t offset;
    uint8_t size;       // of a number in struct table_row
    bool zero_is_last;  // 0 is "not yet" or "no limit": larger than all others
    bool grows;         // with time: all pages are sorted by the values at the time of the first
};

#define NUMBER(member, zero_last)                                                                            \
    {                                                                                                        \
#member, false, offsetof(struct table_row, member), sizeof(((struct table_row *)0)->member),         \
            zero_last, false                                                                                 \
    }
#define TEXT(member)                                                                                         \
    { #member, true, offsetof(struct table_row, member), 0, false, false }

static const struct sort_column columns[] = {
    NUMBER(id, false),
    TEXT(name),
    TEXT(user),
    TEXT(project),
    TEXT(partition),
    TEXT(qos),
    NUMBER(class, false),
    NUMBER(state, false),
    NUMBER(cpus, false),
    NUMBER(gpus_milli, false),
    NUMBER(memory_bytes, false),
    NUMBER(node_count, false),
    NUMBER(time_limit_s, true),
    NUMBER(submit_ms, false),
    NUMBER(start_ms, true),
    NUMBER(end_ms, true),
    NUMBER(expected_start_ms, true),
    NUMBER(exit_code, false),
    NUMBER(attempt, false),
    NUMBER(preempted, false),
    NUMBER(cpu_ms, false),
    NUMBER(memory_peak_bytes, false),
    NUMBER(gpu_busy_ms, false),
    NUMBER(energy_mj, false),
    {"elapsed_ms", false, 0, 0, false, true},
    {"wait_ms", false, 0, 0, false, true},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static int64_t elapsed_ms(const struct table_row *r, int64_t now_ms) {
    int64_t ms = (r->end_ms ? r->end_ms : now_ms) - r->start_ms - r->paused_ms;
    return r->start_ms && ms > 0 ? ms : 0;
}

static int64_t wait_ms(const struct table_row *r, int64_t now_ms) {
    int64_t until_ms = r->start_ms ? r->start_ms : r->end_ms ? r->end_ms : now_ms;
    int64_t from_ms = r->eligible_ms > r->submit_ms ? r->eligible_ms : r->submit_ms;
    return until_ms > from_ms ? until_ms - from_ms : 0;
}

static int64_t number_of(const struct sort_column *c, const struct table_row *r, int64_t now_ms) {
    const char *at = (const char *)r + c->offset;
    int64_t n = 0;
    if (streq(c->name, "elapsed_ms"))
        return elapsed_ms(r, now_ms);
    if (streq(c->name, "wait_ms"))
        return wait_ms(r, now_ms);
    if (c->size == sizeof(uint8_t))
        n = *(const uint8_t *)at;
    else if (streq(c->name, "exit_code"))
        n = *(const int32_t *)at;
    else if (c->size == sizeof(uint32_t))
        n = *(const uint32_t *)at;
    else
        n = *(const int64_t *)at;
    return n == 0 && c->zero_is_last ? INT64_MAX : n;
}

// --- positions ---

// Before 0: a comes first.
static int compare(const struct table_sort *s, const struct table_place *a, const struct table_place *b) {
    int r = s->column->text ? strcmp(a->text, b->text) : (a->number > b->number) - (a->number < b->number);
    if (r == 0)
        r = (a->id > b->id) - (a->id < b->id);
    return s->descending ? -r : r;
}

bool table_sort_next(const struct table_sort *s, struct buf *out) {
    if (s->heap.len <= s->limit || !s->rows)
        return false;
    const struct table_place *last = &s->heap.at[s->rows - 1];
    if (s->column->text)
        buf_addf(out, "%llu.%s", (unsigned long long)last->id, last->text);
    else
        buf_addf(out, "%llu.%lld", (unsigned long long)last->id, (long long)last->number);
    if (s->column->grows)
        buf_addf(out, ".%lld", (long long)s->now_ms);
    return true;
}

static int read_position(struct table_sort *s, const char *text, struct arena *a, struct error *e) {
    const char *dot = strchr(text, '.'), *value = dot ? dot + 1 : "";
    const char *time = dot && s->column->grows ? strchr(value, '.') : NULL;
    if (time)
        value = arena_strndup(a, value, (size_t)(time - value));
    if (dot && parse_u64(arena_strndup(a, text, (size_t)(dot - text)), &s->after.id) == 0 &&
        (s->column->text || parse_i64(value, &s->after.number) == 0) &&
        (!s->column->grows || (time && parse_i64(time + 1, &s->now_ms) == 0))) {
        s->after.text = arena_strdup(a, value);
        s->has_after = true;
        return 0;
    }
    return error_set(e, EINVAL,
                     "parameter \"after\": expected the \"next\" of the page before, with the same \"sort\"");
}

int table_sort_init(struct table_sort *s, const char *column, const char *after, uint32_t limit,
                    int64_t now_ms, struct arena *a, struct error *e) {
    const char *name = str_empty(column) ? "-id" : column;
    *s = (struct table_sort){.descending = *name == '-', .limit = limit, .now_ms = now_ms};
    name += s->descending;
    for (uint32_t i = 0; i < COLUMNS && !s->column; i++)
        s->column = streq(columns[i].name, name) ? &columns[i] : NULL;
    if (!s->column) {
        cleanup_buf struct buf known = {0};
        for (uint32_t i = 0; i < COLUMNS; i++)
            buf_addf(&known, "%s%s", i ? ", " : "", columns[i].name);
        return error_set(e, EINVAL, "parameter \"sort\": \"%.40s\" is no column; expected one of %s", name,
                         buf_str(&known));
    }
    return str_empty(after) ? 0 : read_position(s, after, a, e);
}

void table_sort_done(struct table_sort *s) {
    vec_done(&s->heap);
}

// --- the page ---

static void swap(struct table_sort *s, uint32_t i, uint32_t k) {
    struct table_place p = s->heap.at[i];
    s->heap.at[i] = s->heap.at[k];
    s->heap.at[k] = p;
}

static void sink(struct table_sort *s, uint32_t i, uint32_t len) {
    for (;;) {
        uint32_t top = i, left = 2 * i + 1, right = left + 1;
        if (left < len && compare(s, &s->heap.at[left], &s->heap.at[top]) > 0)
            top = left;
        if (right < len && compare(s, &s->heap.at[right], &s->heap.at[top]) > 0)
            top = right;
        if (top == i)
            return;
        swap(s, i, top);
        i = top;
    }
}

void table_sort_offer(struct table_sort *s, const struct table_row *r, uint64_t id, uint64_t array,
                      struct arena *a) {
    struct table_place p = {.id = id, .array = array};
    if (s->column->text)
        p.text = *(const char *const *)((const char *)r + s->column->offset);
    else
        p.number = number_of(s->column, r, s->now_ms);
    p.text = p.text ? p.text : "";
    if (s->has_after && compare(s, &p, &s->after) <= 0)
        return;
    bool full = s->heap.len > s->limit;
    if (full && compare(s, &p, &s->heap.at[0]) >= 0)
        return;
    if (s->column->text)
        p.text = arena_strdup(a, p.text);  // the job may be gone when the page is written
    if (full) {
        s->heap.at[0] = p;
        sink(s, 0, s->heap.len);
        return;
    }
    vec_push(&s->heap, p);
    for (uint32_t i = s->heap.len - 1; i && compare(s, &s->heap.at[i], &s->heap.at[(i - 1) / 2]) > 0;
         i = (i - 1) / 2)
        swap(s, i, (i - 1) / 2);
}

void table_sort_finish(struct table_sort *s) {
    for (uint32_t len = s->heap.len; len > 1; len--) {
        swap(s, 0, len - 1);
        sink(s, 0, len - 1);
    }
    s->rows = s->heap.len < s->limit ? s->heap.len : s->limit;
}

int64_t table_nth(int64_t *v, uint32_t len, uint32_t n) {
    uint32_t from = 0, to = len - 1;
    while (from < to) {
        int64_t pivot = v[from + (to - from) / 2];
        int64_t i = from, k = to;
        while (i <= k) {
            while (v[i] < pivot)
                i++;
            while (v[k] > pivot)
                k--;
            if (i <= k) {
                int64_t t = v[i];
                v[i++] = v[k];
                v[k--] = t;
            }
        }
        if ((int64_t)n <= k)
            to = (uint32_t)k;
        else if ((int64_t)n >= i)
            from = (uint32_t)i;
        else
            break;
    }
    return v[n];
}

// --- filters ---

void table_answer(const struct table_row *r, int64_t now_ms, struct answer_job *out) {
    out->id = r->id;
    out->array_id = r->array_id;
    out->array_index = r->array_index;
    out->name = r->name;
    out->user = r->user;
    out->project = r->project;
    out->partition = r->partition;
    out->qos = r->qos;
    out->class = (enum job_class)r->class;
    out->state = (enum job_state)r->state;
    out->node_count = r->node_count;
    out->cpus = r->cpus;
    out->memory_bytes = r->memory_bytes;
    out->gpus_milli = r->gpus_milli;
    out->time_limit_s = r->time_limit_s;
    out->submit_ms = r->submit_ms;
    out->eligible_ms = r->eligible_ms;
    out->start_ms = r->start_ms;
    out->end_ms = r->end_ms;
    out->elapsed_ms = elapsed_ms(r, now_ms);
    out->expected_start_ms = r->expected_start_ms;
    out->exit_code = r->exit_code;
    out->attempt = r->attempt;
    out->preempted = r->preempted;
    out->cpu_ms = r->cpu_ms;
    out->memory_peak_bytes = r->memory_peak_bytes;
    out->gpu_busy_ms = r->gpu_busy_ms;
    out->energy_mj = r->energy_mj;
}

bool table_answers(column_set wanted) {
    static const char *const names[] = {"id",
                                        "array_id",
                                        "array_index",
                                        "name",
                                        "user",
                                        "project",
                                        "partition",
                                        "qos",
                                        "class",
                                        "state",
                                        "node_count",
                                        "cpus",
                                        "memory_bytes",
                                        "gpus_milli",
                                        "time_limit_s",
                                        "submit_ms",
                                        "eligible_ms",
                                        "start_ms",
                                        "end_ms",
                                        "elapsed_ms",
                                        "expected_start_ms",
                                        "exit_code",
                                        "attempt",
                                        "preempted",
                                        "cpu_ms",
                                        "memory_peak_bytes",
                                        "gpu_busy_ms",
                                        "energy_mj"};
    for (; wanted; wanted &= wanted - 1) {
        const char *name = answer_job_schema.fields[column_first(wanted)].name;
        bool known = false;
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            known |= streq(names[i], name);
        if (!known)
            return false;
    }
    return true;
}

const char *table_reason(enum job_reason reason) {
    static const char *const sentences[REASON_COUNT] = {
        [REASON_NONE] = "It is next in the queue.",
        [REASON_PRIORITY] = "Other jobs are ahead of it in the queue.",
        [REASON_RESOURCES] = "The resources it needs are in use.",
        [REASON_DEPENDENCY] = "It waits for other jobs to end.",
        [REASON_DEPENDENCY_NEVER] = "A job that it depends on has not ended as it must: it can never start.",
        [REASON_BEGIN_TIME] = "Its begin time has not come.",
        [REASON_HELD_USER] = "It is held; release it to let it start.",
        [REASON_HELD_ADMIN] = "An administrator holds it.",
        [REASON_ARRAY_LIMIT] = "Its array's limit of running elements is reached.",
        [REASON_QUOTA] = "Its project is at its limit.",
        [REASON_QOS_LIMIT] = "A limit of its QoS is reached.",
        [REASON_PARTITION] = "It asks for more time than its partition allows.",
        [REASON_RESERVATION] = "A reservation is in its way, or its own is not open.",
        [REASON_NODES_DOWN] = "All nodes that it fits on are down or drained.",
        [REASON_SHARES] = "Its project uses more than its share while others use less.",
        [REASON_PROJECT_GONE] = "Its project does not exist any more.",
        [REASON_QOS_GONE] = "Its QoS does not exist any more.",
        [REASON_PARTITION_DOWN] = "Its partition is closed or gone.",
        [REASON_RESERVATION_GONE] = "Its reservation does not exist any more.",
        [REASON_LICENSES] = "Too few seats of a license it asks for are free.",
        [REASON_SCRIPT_LOST] = "Its script was lost when the state was restored: it can never start.",
    };
    return reason < REASON_COUNT ? sentences[reason] : NULL;
}
