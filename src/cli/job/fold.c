// Folds the rows of an array into one: JOB is the array's id, STATE counts its elements, times are the longest, and
// resources are sums. The rows must have the fields of JOB_FOLD_FIELDS.
#include <string.h>

#include "base/map.h"
#include "base/text.h"
#include "cli/job/rows.h"
#include "model/arrayspec.h"
#include "model/job.h"

enum { STATES = JOB_STATE_COUNT };

struct job_fold {
    struct json *row;  // the first row of the array; becomes the folded one
    uint32_t rows;
    bool started;  // an element that is not pending is among them: sums are of these
    uint64_t counts[STATES];
};

static struct json *cell(struct json *row, int i, enum json_type type) {
    return i >= 0 && row->type == JSON_ARRAY && (uint32_t)i < row->len && row->items[i].type == type
               ? &row->items[i]
               : NULL;
}

// How many elements the row stands for: pending ones come as "12_[3-99]".
static uint64_t elements(const char *label, struct arena *a) {
    struct array_spec spec;
    const char *bracket = label ? strchr(label, '[') : NULL;
    if (!bracket || array_parse(arena_strndup(a, bracket + 1, strcspn(bracket + 1, "]")), a, &spec, NULL) < 0)
        return 1;
    return spec.elements;
}

static int state_index(const char *word) {
    for (int i = 0; word && i < STATES; i++)
        if (streq(job_state_words[i], word))
            return i;
    return -1;
}

static void count(struct job_fold *f, struct json *row, int label, int state, struct arena *a) {
    struct json *word = cell(row, state, JSON_STRING), *text = cell(row, label, JSON_STRING);
    int i = state_index(word ? word->s : NULL);
    if (i >= 0)
        f->counts[i] += elements(text ? text->s : NULL, a);
    f->rows++;
}

// Resources are those of elements that hold or held some; while all are pending, of one element.
static void merge_sums(const struct job_rows *rows, struct job_fold *f, struct json *from) {
    static const char *const sums[] = {"cpus",          "memory_bytes",  "gpus_milli",      "cpu_ms",
                                       "energy_mj",     "gpu_busy_ms",   "tasks",           "node_count",
                                       "gpu_use_milli", "memory_now_bytes"};
    struct json *state = cell(from, job_rows_field(rows, "state"), JSON_STRING);
    if (!state || streq(state->s, job_state_words[JOB_PENDING]))
        return;
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
        int at = job_rows_field(rows, sums[i]);
        struct json *a = cell(f->row, at, JSON_INT), *b = cell(from, at, JSON_INT);
        if (a && b)
            a->i = f->started ? a->i + b->i : b->i;
    }
    f->started = true;
}

static void merge(const struct job_rows *rows, struct job_fold *f, struct json *from) {
    static const char *const longest[] = {"elapsed_ms", "end_ms", "memory_peak_bytes"};
    struct json *into = f->row;
    merge_sums(rows, f, from);
    for (size_t i = 0; i < sizeof longest / sizeof *longest; i++) {
        int at = job_rows_field(rows, longest[i]);
        struct json *a = cell(into, at, JSON_INT), *b = cell(from, at, JSON_INT);
        if (a && b && b->i > a->i)
            a->i = b->i;
    }
    int nodes = job_rows_field(rows, "nodes");
    struct json *a = nodes >= 0 && (uint32_t)nodes < into->len ? &into->items[nodes] : NULL,
                *b = cell(from, nodes, JSON_STRING);
    if (a && b && (a->type != JSON_STRING || str_empty(a->s)))
        *a = *b;
}

static void set_text(struct json *row, int i, const char *text) {
    if (i >= 0 && (uint32_t)i < row->len)
        row->items[i] = (struct json){.type = JSON_STRING, .len = (uint32_t)strlen(text), .s = text};
}

// Slurm's letters for states, for narrow terminals.
static const char *state_text(int state, bool brief) {
    static const char *const letters[STATES] = {
        [JOB_PENDING] = "PD",   [JOB_STARTING] = "CF",  [JOB_RUNNING] = "R",        [JOB_SUSPENDED] = "S",
        [JOB_COMPLETING] = "CG", [JOB_COMPLETED] = "CD", [JOB_FAILED] = "F",         [JOB_CANCELLED] = "CA",
        [JOB_TIMEOUT] = "TO",   [JOB_NODE_FAIL] = "NF", [JOB_OUT_OF_MEMORY] = "OOM", [JOB_PREEMPTED] = "PR"};
    return brief && letters[state] ? letters[state] : job_state_words[state];
}

static void finish(const struct job_rows *rows, struct job_fold *f, int64_t id, bool brief, struct arena *a) {
    // Running ones first: they are what people look for.
    static const int order[] = {JOB_RUNNING, JOB_STARTING, JOB_COMPLETING, JOB_SUSPENDED, JOB_PENDING};
    cleanup_buf struct buf b = {0};
    int kinds = 0;
    for (int s = 0; s < STATES; s++)
        kinds += f->counts[s] != 0;
    brief = brief && kinds > 1;  // one word has room
    for (size_t i = 0; i < sizeof order / sizeof *order + STATES; i++) {
        int s = i < sizeof order / sizeof *order ? order[i] : (int)(i - sizeof order / sizeof *order);
        if (f->counts[s])
            buf_addf(&b, "%s%llu %s", b.len ? ", " : "", (unsigned long long)f->counts[s], state_text(s, brief));
        f->counts[s] = 0;
    }
    set_text(f->row, job_rows_field(rows, "label"), arena_printf(a, "%lld", (long long)id));
    set_text(f->row, job_rows_field(rows, "state"), arena_strdup(a, buf_str(&b)));
}

void job_rows_fold(struct job_rows *rows, bool brief, struct arena *a) {
    struct map arrays = {0};
    int array = job_rows_field(rows, "array_id"), label = job_rows_field(rows, "label"),
        state = job_rows_field(rows, "state");
    uint32_t kept = 0;
    for (uint32_t i = 0; i < rows->rows.len; i++) {
        struct json *row = arena_memdup(a, rows->rows.at[i], sizeof *row);
        struct json *id = cell(row, array, JSON_INT);
        struct job_fold *f = id && id->i > 0 ? map_get(&arrays, (uint64_t)id->i) : NULL;
        if (f) {
            count(f, row, label, state, a);
            merge(rows, f, row);
            continue;
        }
        if (id && id->i > 0) {
            f = arena_alloc(a, sizeof *f);
            *f = (struct job_fold){.row = row};
            row->items = arena_memdup(a, row->items, row->len * sizeof *row->items);
            struct json *word = cell(row, state, JSON_STRING);
            f->started = word && !streq(word->s, job_state_words[JOB_PENDING]);
            count(f, row, label, state, a);
            map_put(&arrays, (uint64_t)id->i, f);
        }
        rows->rows.at[kept++] = row;
    }
    rows->rows.len = kept;
    size_t it = 0;
    uint64_t key;
    void *value;
    while (map_next(&arrays, &it, &key, &value))
        if (((struct job_fold *)value)->rows > 1)
            finish(rows, value, (int64_t)key, brief, a);
    map_done(&arrays);
}
