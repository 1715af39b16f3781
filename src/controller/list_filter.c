// Owns the columns that filters of lists can name, and their values.
#include "list_filter.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "model/nodelist.h"
#include "model/units.h"

enum value {
    VALUE_FIELD,    // as the field is
    VALUE_STATE,    // its word and its short form
    VALUE_TAGS,     // each tag, and the key of each
    VALUE_NODES,    // each node's name
    VALUE_AGE,      // seconds since then
    VALUE_LIMIT,    // 0 is the longest
    VALUE_CPU_USE,  // per cent of what its CPUs could have given
    VALUE_GPU_USE,  // per cent of the GPUs it holds
};

static const struct filter_column {
    const char *name, *field, *also;  // fields of struct answer_job
    enum where_kind kind;
    enum value value;
    bool of_element;  // differs between waiting elements of an array
} columns[] = {
    {"id", "id", NULL, WHERE_NUMBER, VALUE_FIELD, true},
    {"array", "array_id", NULL, WHERE_NUMBER, VALUE_FIELD, false},
    {"index", "array_index", NULL, WHERE_NUMBER, VALUE_FIELD, true},
    {"name", "name", NULL, WHERE_TEXT, VALUE_FIELD, false},
    {"user", "user", NULL, WHERE_TEXT, VALUE_FIELD, false},
    {"project", "project", NULL, WHERE_TEXT, VALUE_FIELD, false},
    {"partition", "partition", NULL, WHERE_TEXT, VALUE_FIELD, false},
    {"qos", "qos", NULL, WHERE_TEXT, VALUE_FIELD, false},
    {"class", "class", NULL, WHERE_TEXT, VALUE_FIELD, false},
    {"state", "state", NULL, WHERE_TEXT, VALUE_STATE, false},
    {"reason", "reason", NULL, WHERE_TEXT, VALUE_FIELD, false},
    {"nodes", "nodes", NULL, WHERE_TEXT, VALUE_NODES, false},
    {"node_count", "node_count", NULL, WHERE_NUMBER, VALUE_FIELD, false},
    {"tasks", "tasks", NULL, WHERE_NUMBER, VALUE_FIELD, false},
    {"cpus", "cpus", NULL, WHERE_NUMBER, VALUE_FIELD, false},
    {"memory", "memory_bytes", NULL, WHERE_BYTES, VALUE_FIELD, false},
    {"gpus", "gpus_milli", NULL, WHERE_GPUS, VALUE_FIELD, false},
    {"gpu_model", "gpu_model", NULL, WHERE_TEXT, VALUE_FIELD, false},
    {"limit", "time_limit_s", NULL, WHERE_SECONDS, VALUE_LIMIT, false},
    {"time", "elapsed_ms", NULL, WHERE_MILLIS, VALUE_FIELD, false},
    {"submit", "submit_ms", NULL, WHERE_TIME, VALUE_FIELD, false},
    {"age", "submit_ms", NULL, WHERE_SECONDS, VALUE_AGE, false},
    {"eligible", "eligible_ms", NULL, WHERE_TIME, VALUE_FIELD, true},
    {"start", "start_ms", NULL, WHERE_TIME, VALUE_FIELD, false},
    {"end", "end_ms", NULL, WHERE_TIME, VALUE_FIELD, false},
    {"expected", "expected_start_ms", NULL, WHERE_TIME, VALUE_FIELD, true},
    {"exit", "exit_code", NULL, WHERE_NUMBER, VALUE_FIELD, false},
    {"signal", "exit_signal", NULL, WHERE_NUMBER, VALUE_FIELD, false},
    {"attempt", "attempt", NULL, WHERE_NUMBER, VALUE_FIELD, false},
    {"preempted", "preempted", NULL, WHERE_NUMBER, VALUE_FIELD, false},
    {"priority", "priority", NULL, WHERE_NUMBER, VALUE_FIELD, false},
    {"nice", "nice", NULL, WHERE_NUMBER, VALUE_FIELD, false},
    {"held", "hold", NULL, WHERE_FLAG, VALUE_FIELD, false},
    {"cpu", "cpu_ms", NULL, WHERE_MILLIS, VALUE_FIELD, false},
    {"cpu_use", "cpu_ms", "elapsed_ms", WHERE_NUMBER, VALUE_CPU_USE, false},
    {"memory_now", "memory_now_bytes", NULL, WHERE_BYTES, VALUE_FIELD, false},
    {"peak", "memory_peak_bytes", NULL, WHERE_BYTES, VALUE_FIELD, false},
    {"gpu_busy", "gpu_busy_ms", NULL, WHERE_MILLIS, VALUE_FIELD, false},
    {"gpu_use", "gpu_use_milli", "gpus_milli", WHERE_NUMBER, VALUE_GPU_USE, false},
    {"warning", "warning", NULL, WHERE_TEXT, VALUE_FIELD, false},
    {"comment", "comment", NULL, WHERE_TEXT, VALUE_FIELD, false},
    {"tag", "tags", NULL, WHERE_TEXT, VALUE_TAGS, false},
    {"tags", "tags", NULL, WHERE_TEXT, VALUE_TAGS, false},
    {"image", "container", NULL, WHERE_TEXT, VALUE_FIELD, false},
    {"workdir", "workdir", NULL, WHERE_TEXT, VALUE_FIELD, false},
    {"output", "output", NULL, WHERE_TEXT, VALUE_FIELD, false},
    {"command", "command_text", NULL, WHERE_TEXT, VALUE_FIELD, false},
    {"dependency", "dependency", NULL, WHERE_TEXT, VALUE_FIELD, false},
    {"features", "features", NULL, WHERE_TEXT, VALUE_FIELD, false},
    {"by", "by", NULL, WHERE_TEXT, VALUE_FIELD, false},
};
enum { COLUMNS = sizeof columns / sizeof *columns, NODES_MATCHED_MAX = 1024 };

static uint32_t field_index(const char *name) {
    for (uint32_t i = 0; i < answer_job_schema.count && i < 64; i++)
        if (streq(answer_job_schema.fields[i].name, name))
            return i;
    assert(!"a field of lists");
    return 0;
}

static int32_t zone_offset_s(int64_t at_ms) {
    time_t at = (time_t)(at_ms / 1000);
    struct tm tm;
    return localtime_r(&at, &tm) ? (int32_t)tm.tm_gmtoff : 0;
}

static const char *upper_case(struct arena *a, const char *text) {
    char *copy = arena_strdup(a, text);
    for (char *p = copy; *p; p++)
        *p = *p >= 'a' && *p <= 'z' ? (char)(*p - 'a' + 'A') : *p;
    return copy;
}

static bool is_state(const char *word) {
    for (int i = 0; i < JOB_STATE_COUNT; i++)
        if (streq(word, job_state_words[i]) || streq(word, job_state_short((enum job_state)i)))
            return true;
    return false;
}

// A word that no job can have is an error, not an empty list; patterns may match nothing. States are as in --state.
static int check_words(struct where_term *t, const struct filter_column *c, const struct field *f,
                       struct arena *a, struct error *e) {
    char shown[64];
    for (uint32_t i = 0; t->kind == WHERE_TEXT && i < t->count; i++) {
        if (c->value == VALUE_STATE)
            t->patterns[i] = upper_case(a, t->patterns[i]);
        const char *word = t->patterns[i];
        if (strpbrk(word, "*?\\"))
            continue;
        str_printable(word, shown, sizeof shown);
        if (c->value == VALUE_STATE && !is_state(word))
            return error_set(
                e, EINVAL, "where: there is no state \"%s\"; expected PENDING, RUNNING, COMPLETED, …", shown);
        if (c->value != VALUE_STATE && f->type == FIELD_ENUM && schema_word_find(f->words, word) < 0)
            return error_set(e, EINVAL, "where: %s is never \"%s\"", c->name, shown);
    }
    return 0;
}

int listing_filter_init(struct list_filter *f, const char *text, int64_t now_ms, struct arena *a,
                        struct error *e) {
    *f = (struct list_filter){0};
    if (str_empty(text))
        return 0;
    struct where_column names[COLUMNS];
    struct where_clock clock = {now_ms, zone_offset_s(now_ms)};
    for (uint32_t i = 0; i < COLUMNS; i++)
        names[i] = (struct where_column){columns[i].name, columns[i].kind};
    int r = where_parse(text, names, COLUMNS, &clock, a, &f->where, e);
    for (uint32_t i = 0; r == 0 && i < f->where.count; i++) {
        const struct filter_column *c = &columns[f->where.at[i].column];
        f->fields[i] = &answer_job_schema.fields[field_index(c->field)];
        f->columns |= COLUMN_BIT(field_index(c->field));
        if (c->also)
            f->columns |= COLUMN_BIT(field_index(c->also));
        if (c->value == VALUE_CPU_USE)
            f->columns |= COLUMN_BIT(field_index("cpus"));
        r = check_words(&f->where.at[i], c, f->fields[i], a, e);
    }
    return r;
}

static int64_t number_of(const struct field *f, const struct answer_job *job) {
    const char *at = (const char *)job + f->offset;
    switch (f->type) {
    case FIELD_BOOL: return *(const bool *)at;
    case FIELD_U32: return *(const uint32_t *)at;
    case FIELD_I32: return *(const int32_t *)at;
    case FIELD_U64: return (int64_t) * (const uint64_t *)at;
    default: assert(f->type == FIELD_I64); return *(const int64_t *)at;
    }
}

static bool number_passes(const struct where_term *t, const struct filter_column *c, const struct field *f,
                          const struct answer_job *job, int64_t now_ms) {
    int64_t v = number_of(f, job);
    switch (c->value) {
    case VALUE_AGE: v = now_ms > v ? (now_ms - v) / 1000 : 0; break;
    case VALUE_LIMIT: v = v && v < DURATION_LIMIT_S ? v : DURATION_LIMIT_S; break;
    case VALUE_CPU_USE:
        if (job->elapsed_ms <= 0 || !job->cpus)
            return t->op == WHERE_UNEQUAL;
        v = v * 100 / (job->elapsed_ms * job->cpus);
        break;
    case VALUE_GPU_USE:
        if (!job->gpus_milli || !schema_field_given(&answer_job_schema, f, job))
            return t->op == WHERE_UNEQUAL;
        v = v * 100 / (int64_t)job->gpus_milli;
        break;
    default: break;
    }
    return where_number(t, v);
}

// "exp1" names the tag exp1 and every tag with that key; "team=vision" the whole tag.
static bool tags_pass(const struct where_term *t, const struct answer_job *job) {
    cleanup_arena struct arena a = {0};
    const char **texts = arena_alloc(&a, (2 * (size_t)job->tags.len + 1) * sizeof *texts);
    uint32_t n = 0;
    for (uint32_t i = 0; i < job->tags.len; i++) {
        const char *tag = job->tags.at[i];
        size_t key = strcspn(tag, "=");
        texts[n++] = tag;
        if (tag[key])
            texts[n++] = arena_strndup(&a, tag, key);
    }
    if (!n)
        texts[n++] = "";
    return where_texts(t, texts, n);
}

static bool nodes_pass(const struct where_term *t, const char *nodes) {
    cleanup_arena struct arena a = {0};
    struct name_list names;
    if (str_empty(nodes) || !strpbrk(nodes, ",[") || nodelist_expand(nodes, &a, &names, NULL) < 0)
        return where_texts(t, &nodes, 1);
    uint32_t n = names.len < NODES_MATCHED_MAX ? names.len : NODES_MATCHED_MAX;
    return where_texts(t, (const char *const *)names.at, n);
}

static bool text_passes(const struct where_term *t, const struct filter_column *c, const struct field *f,
                        const struct answer_job *job) {
    const char *texts[2];
    switch (c->value) {
    case VALUE_STATE:
        texts[0] = job_state_words[job->state];
        texts[1] = job_state_short(job->state);
        return where_texts(t, texts, 2);
    case VALUE_TAGS: return tags_pass(t, job);
    case VALUE_NODES: return nodes_pass(t, job->nodes);
    default: break;
    }
    const char *at = (const char *)job + f->offset;
    texts[0] = f->type == FIELD_ENUM ? schema_word_name(f->words, *(const unsigned *)at) : *(const char *const *)at;
    return where_texts(t, texts, 1);
}

bool listing_filter_passes(const struct list_filter *filter, enum filter_part part,
                           const struct answer_job *job, int64_t now_ms) {
    for (uint32_t i = 0; i < filter->where.count; i++) {
        const struct where_term *t = &filter->where.at[i];
        const struct filter_column *c = &columns[t->column];
        if (part != FILTER_ALL && c->of_element != (part == FILTER_ELEMENT))
            continue;
        const struct field *f = filter->fields[i];
        if (!(t->kind == WHERE_TEXT ? text_passes(t, c, f, job) : number_passes(t, c, f, job, now_ms)))
            return false;
    }
    return true;
}
