// Owns the columns of job lists.
#include "cli/job/columns.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/job/rows.h"
#include "cli/term/local_time.h"
#include "model/gpuspec.h"
#include "model/progress.h"
#include "model/signalname.h"
#include "model/units.h"

enum column_kind {
    TEXT,
    NUMBER,
    SIZE,
    SECONDS,
    MILLIS,
    TIME,
    GPUS,
    STATE,
    WHERE,
    EXIT,
    ID,
    JOULES,
    BUSY,
    AGE,
    CPU_USE,
    TAGS,
    PROGRESS
};

struct job_column {
    const char *name, *title;
    enum column_kind kind;
    const char *field;   // of the API; the first one of several sorts
    const char *others;  // more fields, joined by commas
    uint8_t shrink, least;
};

static const struct job_column columns[] = {
    {"id", "JOB", ID, "label", NULL, 0, 0},
    {"name", "NAME", TEXT, "name", NULL, 6, 8},
    {"user", "USER", TEXT, "user", NULL, 4, 5},
    {"project", "PROJECT", TEXT, "project", NULL, 4, 7},
    {"partition", "PARTITION", TEXT, "partition", NULL, 4, 6},
    {"qos", "QOS", TEXT, "qos", NULL, 4, 4},
    {"class", "CLASS", TEXT, "class", NULL, 0, 0},
    {"state", "STATE", STATE, "state", "workers,reason,progress_milli", 0, 0},
    {"progress", "PROGRESS", PROGRESS, "progress_milli", "elapsed_ms", 0, 0},
    {"health", "HEALTH", TEXT, "health", NULL, 0, 0},
    {"url", "ADDRESS", TAGS, "urls", NULL, 6, 12},
    {"workers", "WORKERS", TEXT, "workers", NULL, 0, 0},
    {"reason", "REASON", TEXT, "reason", NULL, 5, 8},
    {"where", "WHERE", WHERE, "nodes", "reason,state", 6, 12},
    {"nodes", "NODES", TEXT, "nodes", NULL, 5, 6},
    {"node_count", "NODES#", NUMBER, "node_count", NULL, 0, 0},
    {"tasks", "TASKS", NUMBER, "tasks", NULL, 0, 0},
    {"cpus", "CPUS", NUMBER, "cpus", NULL, 0, 0},
    {"memory", "MEMORY", SIZE, "memory_bytes", NULL, 0, 0},
    {"gpus", "GPUS", GPUS, "gpus_milli", NULL, 0, 0},
    {"gpu_model", "GPU MODEL", TEXT, "gpu_model", NULL, 3, 5},
    {"limit", "LIMIT", SECONDS, "time_limit_s", NULL, 0, 0},
    {"time", "TIME", MILLIS, "elapsed_ms", NULL, 0, 0},
    {"submit", "SUBMITTED", TIME, "submit_ms", NULL, 0, 0},
    {"age", "AGE", AGE, "submit_ms", NULL, 0, 0},
    {"eligible", "ELIGIBLE", TIME, "eligible_ms", NULL, 0, 0},
    {"start", "STARTED", TIME, "start_ms", NULL, 0, 0},
    {"end", "ENDED", TIME, "end_ms", NULL, 0, 0},
    {"expected", "EXPECTED", TIME, "expected_start_ms", NULL, 0, 0},
    {"exit", "EXIT", EXIT, "exit_code", "exit_signal,state", 0, 0},
    {"attempt", "ATTEMPT", NUMBER, "attempt", NULL, 0, 0},
    {"preempted", "PREEMPTED", NUMBER, "preempted", NULL, 0, 0},
    {"priority", "PRIORITY", NUMBER, "priority", NULL, 0, 0},
    {"nice", "NICE", NUMBER, "nice", NULL, 0, 0},
    {"cpu", "CPU", MILLIS, "cpu_ms", NULL, 0, 0},
    {"cpu_use", "CPU USE", CPU_USE, "cpu_ms", "elapsed_ms,cpus", 0, 0},
    {"memory_now", "MEM USE", SIZE, "memory_now_bytes", NULL, 0, 0},
    {"peak", "PEAK", SIZE, "memory_peak_bytes", NULL, 0, 0},
    {"gpu_busy", "GPU BUSY", MILLIS, "gpu_busy_ms", NULL, 0, 0},
    {"gpu_use", "GPU USE", BUSY, "gpu_use_milli", "gpus_milli", 0, 0},
    {"energy", "ENERGY", JOULES, "energy_mj", NULL, 0, 0},
    {"warning", "WARNING", TEXT, "warning", NULL, 6, 8},
    {"comment", "COMMENT", TEXT, "comment", NULL, 6, 6},
    {"tags", "TAGS", TAGS, "tags", NULL, 6, 6},
    {"image", "IMAGE", TEXT, "container", NULL, 6, 8},
    {"workdir", "FOLDER", TEXT, "workdir", NULL, 6, 8},
    {"output", "OUTPUT", TEXT, "output", NULL, 6, 8},
    {"command", "COMMAND", TEXT, "command_text", NULL, 6, 8},
    {"dependency", "DEPENDENCY", TEXT, "dependency", NULL, 6, 8},
};
enum { ID_WIDTH = 18, COLUMNS = sizeof columns / sizeof *columns };

void job_columns_list(struct buf *out) {
    for (size_t i = 0; i < COLUMNS; i++)
        buf_addf(out, "%s%s", i ? ", " : "", columns[i].name);
}

static const struct job_column *find_column(const char *name, size_t len, struct error *e) {
    char given[64], shown[64];
    const char *nearest = NULL;
    for (size_t i = 0; i < COLUMNS; i++)
        if (strlen(columns[i].name) == len && !strncmp(columns[i].name, name, len))
            return &columns[i];
    size_t n = len < sizeof given ? len : sizeof given - 1;
    memcpy(given, name, n);
    given[n] = 0;
    unsigned best = str_edit_distance_near(given);
    for (size_t i = 0; i < COLUMNS; i++)
        if (str_edit_distance(given, columns[i].name) < best) {
            best = str_edit_distance(given, columns[i].name);
            nearest = columns[i].name;
        }
    str_printable(given, shown, sizeof shown);
    if (nearest) {
        error_set(e, EINVAL, "unknown column \"%s\"; did you mean \"%s\"?", shown, nearest);
    } else {
        cleanup_buf struct buf all = {0};
        job_columns_list(&all);
        error_set(e, EINVAL, "unknown column \"%s\"; columns are %s", shown, buf_str(&all));
    }
    return NULL;
}

int job_columns_parse(const char *text, struct job_columns *out, struct error *e) {
    struct job_columns c = {0};
    for (const char *p = text; *p; p += *p == ',') {
        size_t len = strcspn(p, ",");
        const struct job_column *column = find_column(p, len, e);
        if (!column)
            return -EINVAL;
        if (c.count == JOB_COLUMNS_MAX)
            return error_set(e, EINVAL, "at most %d columns can be shown", JOB_COLUMNS_MAX);
        bool right = column->kind == NUMBER || column->kind == SIZE || column->kind == SECONDS ||
                     column->kind == MILLIS || column->kind == GPUS || column->kind == EXIT ||
                     column->kind == JOULES || column->kind == BUSY || column->kind == AGE ||
                     column->kind == CPU_USE;
        c.titles[c.count] = (struct table_column){column->title, right, column->shrink, column->least};
        c.at[c.count++] = column;
        p += len;
    }
    if (!c.count)
        return error_set(e, EINVAL, "the list of columns is empty; write for example id,name,state");
    *out = c;
    return 0;
}

void job_columns_fields(const struct job_columns *c, struct buf *out) {
    for (uint32_t i = 0; i < c->count; i++) {
        buf_addf(out, "%s%s", out->len ? "," : "", c->at[i]->field);
        if (c->at[i]->others)
            buf_addf(out, ",%s", c->at[i]->others);
    }
}

enum colour job_state_colour(const char *state) {
    if (!state)
        return COLOUR_NONE;
    if (*state >= '0' && *state <= '9')  // of a folded array: "2 RUNNING, 98 PENDING"
        return strstr(state, "RUNNING") || strstr(state, " R") ? COLOUR_GREEN
               : strstr(state, "FAIL")                         ? COLOUR_RED
                                                               : COLOUR_YELLOW;
    if (streq(state, "RUNNING") || streq(state, "COMPLETING") || streq(state, "STARTING") || streq(state, "FETCHING"))
        return COLOUR_GREEN;
    if (streq(state, "PENDING") || streq(state, "SUSPENDED"))
        return COLOUR_YELLOW;
    if (streq(state, "COMPLETED"))
        return COLOUR_NONE;
    return streq(state, "CANCELLED") || streq(state, "PREEMPTED") ? COLOUR_GREY : COLOUR_RED;
}

const char *job_exit_text(struct arena *a, const char *state, int64_t code, int64_t signal) {
    char name[SIGNAL_TEXT_MAX];
    if (streq(state, "PENDING") || streq(state, "STARTING") || streq(state, "RUNNING") || streq(state, "SUSPENDED"))
        return "";
    if (signal > 0)
        return arena_printf(a, "SIG%s", signal_name((uint32_t)signal, name));
    if (!code && !streq(state, "COMPLETED") && !streq(state, "FAILED"))
        return "";  // it has not ended by itself, or never began
    return arena_printf(a, "%lld", (long long)code);
}

void job_columns_bind(struct job_columns *c, const struct job_rows *rows) {
    for (uint32_t i = 0; i < c->count; i++)
        c->field[i] = job_rows_field(rows, c->at[i]->field);
    c->label = job_rows_field(rows, "label");
    c->nodes = job_rows_field(rows, "nodes");
    c->reason = job_rows_field(rows, "reason");
    c->state = job_rows_field(rows, "state");
    c->workers = job_rows_field(rows, "workers");
    c->progress = job_rows_field(rows, "progress_milli");
    c->exit_signal = job_rows_field(rows, "exit_signal");
    c->gpus = job_rows_field(rows, "gpus_milli");
    c->cpus = job_rows_field(rows, "cpus");
    c->elapsed = job_rows_field(rows, "elapsed_ms");
}

// "RUNNING 5/8": of an elastic job how many workers run, and the most there can be.
static const char *with_workers(struct arena *a, const char *state, const char *workers) {
    return str_empty(workers) ? state : arena_printf(a, "%s %s", state, workers);
}

static const char *where_text(const struct job_columns *c, struct arena *a, const struct json *row) {
    const char *nodes = job_rows_text(row, c->nodes), *reason = job_rows_text(row, c->reason);
    if (!str_empty(nodes))
        return nodes;
    if (str_empty(reason) || streq(reason, "None"))
        return "";
    size_t len = strlen(reason);
    char *text = arena_alloc(a, len + 3);
    text[0] = '(';
    memcpy(text + 1, reason, len);
    text[len + 1] = ')';
    return text;
}

// Lists are long and most numbers small: no formatting for those.
static const char *small_number(int64_t v) {
    static const char digits[10][2] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
    return v >= 0 && v < 10 ? digits[v] : NULL;
}

static const char *number_text(const struct job_column *column, struct arena *a, int64_t v, int64_t now_ms) {
    char text[UNIT_TEXT_MAX];
    const char *small = small_number(v);
    if (!v && column->kind != NUMBER)
        return column->kind == MILLIS ? "0:00" : "-";
    switch (column->kind) {
    case SIZE: return arena_strdup(a, size_format((uint64_t)v, text));
    case SECONDS:
        return v < DURATION_LIMIT_S ? arena_strdup(a, duration_elapsed_format(v, text)) : "unlimited";
    case MILLIS: return arena_strdup(a, duration_elapsed_format(v / 1000, text));
    case AGE: return arena_strdup(a, duration_elapsed_format(now_ms > v ? (now_ms - v) / 1000 : 0, text));
    case TIME: return arena_strdup(a, local_time_short(v, now_ms, text));
    case GPUS: return arena_strdup(a, gpu_milli_format((uint64_t)v, text));
    case JOULES: return arena_printf(a, "%lld J", (long long)(v / 1000));
    default: return small ? small : arena_printf(a, "%lld", (long long)v);
    }
}

static const char *id_text(const struct job_columns *c, uint32_t i, struct arena *a, const struct json *row) {
    const char *label = job_rows_text(row, c->label), *bracket = label ? strchr(label, '[') : NULL;
    // An id is never cut; a long list of elements is shortened at a comma, so that no number is.
    if (bracket && !c->whole_ids && strlen(label) > ID_WIDTH) {
        size_t n = (size_t)(bracket - label) + 1, next;
        while ((next = n + strcspn(label + n, ",]")) < ID_WIDTH && label[next] == ',')
            n = next + 1;
        return arena_printf(a, "%.*s...]", (int)n, label);
    }
    return label ? label : arena_printf(a, "%lld", (long long)job_rows_number(row, c->field[i]));
}

// How much of what it holds a job keeps busy; nothing where that is not measured.
static const char *busy_text(const struct job_columns *c, uint32_t i, struct arena *a, const struct json *row) {
    int field = c->field[i];
    int64_t held = job_rows_number(row, c->gpus);
    bool there = field >= 0 && row->type == JSON_ARRAY && (uint32_t)field < row->len;
    if (!held || !there || row->items[field].type != JSON_INT)
        return "-";
    return arena_printf(a, "%lld %%", (long long)(job_rows_number(row, field) * 100 / held));
}

// CPU time as a part of what its CPUs could have given since its start.
static const char *cpu_use_text(const struct job_columns *c, uint32_t i, struct arena *a, const struct json *row) {
    int64_t could = job_rows_number(row, c->elapsed) * job_rows_number(row, c->cpus);
    if (could <= 0)
        return "-";
    return arena_printf(a, "%lld %%", (long long)(job_rows_number(row, c->field[i]) * 100 / could));
}

// What the job says of itself, in thousandths; -1: nothing.
static int64_t progress_milli(const struct json *row, int field) {
    bool there = field >= 0 && row->type == JSON_ARRAY && (uint32_t)field < row->len;
    return there && row->items[field].type == JSON_INT ? job_rows_number(row, field) : -1;
}

// "[####      ] 37 %, 1:20 left"
static const char *progress_text(const struct job_columns *c, struct arena *a, const struct json *row) {
    static const char bar[] = "##########          ";
    char time[UNIT_TEXT_MAX];
    int64_t milli = progress_milli(row, c->progress);
    if (milli < 0 || milli > 1000)
        return "";
    int full = (int)(milli / 100);
    int64_t left = progress_left_ms((uint32_t)milli, job_rows_number(row, c->elapsed));
    const char *shown = arena_printf(a, "[%.10s] %lld %%", bar + 10 - full, (long long)(milli / 10));
    return left > 0 ? arena_printf(a, "%s, %s left", shown, duration_elapsed_format(left / 1000, time))
                    : shown;
}

// "RUNNING 37 %"
static const char *state_text(const struct job_columns *c, struct arena *a, const struct json *row,
                              const char *state) {
    int64_t milli = progress_milli(row, c->progress);
    const char *text = with_workers(a, state, job_rows_text(row, c->workers));
    return milli >= 0 && streq(state, "RUNNING")
               ? arena_printf(a, "%s %lld %%", text, (long long)(milli / 10))
               : text;
}

// "exp1,team=vision"
static const char *tags_text(const struct json *row, int field, struct arena *a) {
    cleanup_buf struct buf text = {0};
    const struct json *list =
        field >= 0 && row->type == JSON_ARRAY && (uint32_t)field < row->len ? &row->items[field] : NULL;
    for (uint32_t i = 0; list && list->type == JSON_ARRAY && i < list->len; i++)
        if (list->items[i].type == JSON_STRING)
            buf_addf(&text, "%s%s", text.len ? "," : "", list->items[i].s);
    return arena_strdup(a, buf_str(&text));
}

void job_columns_add(const struct job_columns *c, struct arena *a, const struct json *row, int64_t now_ms,
                     struct text_table *t) {
    for (uint32_t i = 0; i < c->count; i++) {
        const struct job_column *column = c->at[i];
        const char *state;
        switch (column->kind) {
        case TEXT: table_add(t, job_rows_text(row, c->field[i]), COLOUR_NONE); break;
        case ID: table_add(t, id_text(c, i, a, row), COLOUR_NONE); break;
        case STATE:
            state = job_rows_text(row, c->state);
            if (streq(job_rows_text(row, c->reason), "FetchingImage"))
                state = "FETCHING";
            table_add(t, state_text(c, a, row, state), job_state_colour(state));
            break;
        case WHERE: table_add(t, where_text(c, a, row), COLOUR_NONE); break;
        case EXIT:
            table_add(t,
                      job_exit_text(a, job_rows_text(row, c->state), job_rows_number(row, c->field[i]),
                                    job_rows_number(row, c->exit_signal)),
                      COLOUR_NONE);
            break;
        case TAGS: table_add(t, tags_text(row, c->field[i], a), COLOUR_NONE); break;
        case CPU_USE: table_add(t, cpu_use_text(c, i, a, row), COLOUR_NONE); break;
        case PROGRESS: table_add(t, progress_text(c, a, row), COLOUR_NONE); break;
        case BUSY: table_add(t, busy_text(c, i, a, row), COLOUR_NONE); break;
        default: table_add(t, number_text(column, a, job_rows_number(row, c->field[i]), now_ms), COLOUR_NONE); break;
        }
    }
}

struct sort_key {
    const struct job_column *column;
    bool descending;
    int field;
};
struct sort_keys {
    struct sort_key at[9];
    int count;
};

static int compare_rows(const void *va, const void *vb, void *arg) {
    const struct json *a = *(const struct json *const *)va, *b = *(const struct json *const *)vb;
    const struct sort_keys *keys = arg;
    for (int i = 0; i < keys->count; i++) {
        int field = keys->at[i].field;
        const char *ta = job_rows_text(a, field), *tb = job_rows_text(b, field);
        int64_t na = job_rows_number(a, field), nb = job_rows_number(b, field);
        int order = ta || tb ? strcmp(ta ? ta : "", tb ? tb : "") : na < nb ? -1 : na > nb;
        if (order)
            return keys->at[i].descending ? -order : order;
    }
    return 0;
}

int job_rows_sort(struct job_rows *rows, const char *keys, struct error *e) {
    struct sort_keys parsed = {0};
    for (const char *p = keys; *p; p += *p == ',') {
        bool descending = *p == '-';
        p += descending || *p == '+';
        size_t len = strcspn(p, ",");
        const struct job_column *column = find_column(p, len, e);
        if (!column)
            return -EINVAL;
        if (parsed.count == 8)
            return error_set(e, EINVAL, "at most 8 columns can be sorted by");
        const char *field = column->kind == ID ? "id" : column->field;  // labels are text: 10 would be before 9
        parsed.at[parsed.count++] = (struct sort_key){column, descending, job_rows_field(rows, field)};
        p += len;
    }
    parsed.at[parsed.count++] =
        (struct sort_key){NULL, false, job_rows_field(rows, "id")};  // the same order every time
    if (rows->rows.len)
        qsort_r(rows->rows.at, rows->rows.len, sizeof *rows->rows.at, compare_rows, &parsed);
    return 0;
}
