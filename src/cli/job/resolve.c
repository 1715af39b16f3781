// Finds the job that a name means: the user's own before those of others, live ones before those that have ended.
#include "cli/job/resolve.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "cli/job/action.h"
#include "cli/job/rows.h"
#include "model/dependency.h"

enum { NAMED_MAX = 5, LOOK_AT = 200 };

static const struct option_spec specs[] = {
    {"project", 'P', "NAME", "With the name of a job: of this project.", 0, NULL, "@project"},
};
const struct option_table job_pick_options = OPTION_TABLE("Which job", specs);

// "12", "12_3", "12_[1-5]", "12,13", "12+3"
static bool is_id(const char *text) {
    return *text >= '0' && *text <= '9' && !text[strspn(text, "0123456789_[]-,:%+")];
}

static const char *project_wanted(const struct cli *c) {
    const struct option_table *const *t = c->verb->options;
    for (; *t; t++)
        if (*t == &job_pick_options || *t == &job_filter_options)
            return option_get(&c->options, "project");
    return NULL;
}

struct candidates {
    int64_t ids[NAMED_MAX];
    uint32_t count;
};

// An array is one candidate, whichever of its elements are found.
static void add_candidate(struct candidates *f, int64_t id) {
    for (uint32_t i = 0; i < f->count && i < NAMED_MAX; i++)
        if (f->ids[i] == id)
            return;
    if (f->count < NAMED_MAX)
        f->ids[f->count] = id;
    f->count++;
}

static int look(struct cli *c, struct client *k, const char *name, bool mine, bool finished, struct candidates *out) {
    cleanup_query struct query q = {0};
    struct job_rows rows = {0};
    *out = (struct candidates){0};
    client_query_begin(&q, "/v1/jobs");
    client_query_add(&q, "name", name);
    client_query_add(&q, "project", project_wanted(c));
    client_query_add(&q, "mine", mine ? "1" : NULL);
    client_query_add(&q, "finished", finished ? "1" : NULL);
    client_query_add(&q, "compact", "1");
    client_query_add(&q, "fields", "id,array_id");
    client_query_addf(&q, "limit", "%d", LOOK_AT);
    int r = job_list_fetch(c, k, buf_str(&q.text), LOOK_AT, &rows);
    int id = job_rows_field(&rows, "id"), array = job_rows_field(&rows, "array_id");
    for (uint32_t i = 0; r == 0 && i < rows.rows.len; i++) {
        int64_t of = job_rows_number(rows.rows.at[i], array);
        add_candidate(out, of ? of : job_rows_number(rows.rows.at[i], id));
    }
    vec_done(&rows.rows);
    return r;
}

static int64_t ambiguous(struct cli *c, const char *name, const struct candidates *f) {
    cleanup_buf struct buf list = {0};
    for (uint32_t i = 0; i < f->count && i < NAMED_MAX; i++)
        buf_addf(&list, "%s%lld", i ? ", " : "", (long long)f->ids[i]);
    return error_set(&c->error, EINVAL, "%u jobs are named \"%s\": %s%s; give the number", f->count, name,
                     buf_str(&list), f->count > NAMED_MAX ? ", ..." : "");
}

// The id of the one job of the name; 0: there is none. A negative one: c->error says why not.
static int64_t find(struct cli *c, struct client *k, const char *name, bool live) {
    char shown[64];
    struct candidates f;
    for (int finished = 0; finished <= !live; finished++)
        for (int mine = 1; mine >= 0; mine--) {
            if (look(c, k, name, mine, finished, &f) < 0)
                return -1;
            if (!finished && f.count > 1)
                return ambiguous(c, str_printable(name, shown, sizeof shown), &f);
            if (f.count)
                return f.ids[0];  // of ended ones the newest comes first
        }
    return 0;
}

// "train", "train_3", "train+1". A job may also be named like this.
static int resolve(struct cli *c, struct client **k, char **name, bool live) {
    char shown[64];
    size_t len = strlen(*name), digits = 0;
    str_printable(*name, shown, sizeof shown);
    while (digits < len && (*name)[len - 1 - digits] >= '0' && (*name)[len - 1 - digits] <= '9')
        digits++;
    if (!*k && client_open(c, k) < 0)
        return -1;
    int64_t id = find(c, *k, *name, live);
    const char *part = digits && digits + 1 < len ? *name + len - digits - 1 : "";
    if (!id && (*part == '_' || *part == '+'))
        id = find(c, *k, arena_strndup(&c->arena, *name, (size_t)(part - *name)), live);
    else
        part = "";
    if (id < 0)
        return -1;
    if (!id)
        return error_set(&c->error, ENOENT,
                         live ? "no pending or running job is named \"%s\"" : "no job is named \"%s\"",
                         shown);
    *name = arena_printf(&c->arena, "%lld%s", (long long)id, part);
    return 0;
}

int job_resolve_arguments(struct cli *c, int count, bool live) {
    struct client *k = NULL;
    int r = 0;
    for (int i = 0; r == 0 && i < count && i < c->count; i++)
        r = is_id(c->arguments[i]) ? 0 : resolve(c, &k, &c->arguments[i], live);
    client_free(k);
    return r < 0 ? cli_fail(c) : CLI_OK;
}

int job_resolve_option(struct cli *c, const char *option) {
    struct client *k = NULL;
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < c->options.values.len; i++) {
        struct option_value *v = &c->options.values.at[i];
        if (!streq(v->option->name, option) || is_id(v->value))
            continue;
        char *name = arena_strdup(&c->arena, v->value);
        r = resolve(c, &k, &name, false);
        v->value = name;
    }
    client_free(k);
    return r < 0 ? cli_fail(c) : CLI_OK;
}

static bool is_dependency_word(const char *part, size_t len) {
    for (const char *const *w = dependency_words; *w; w++)
        if (strlen(*w) == len && strncasecmp(*w, part, len) == 0)
            return true;
    return false;
}

// "afterok:train:12,singleton": what stands between the separators, and is neither a word nor begins with a digit, is
// a name.
const char *job_resolve_dependency(struct cli *c, const char *text) {
    struct client *k = NULL;
    cleanup_buf struct buf out = {0};
    int r = 0;
    for (const char *p = text; r == 0 && *p;) {
        size_t len = strcspn(p, ":,?");
        bool first = p == text || p[-1] != ':';
        char *name = arena_strndup(&c->arena, p, len);
        if (len && !(*p >= '0' && *p <= '9') && *p != ' ' &&
            !(first && (p[len] == ':' || is_dependency_word(p, len))))
            r = resolve(c, &k, &name, false);
        buf_adds(&out, name);
        p += len;
        if (*p)
            buf_addc(&out, *p++);
    }
    client_free(k);
    return r < 0 ? NULL : arena_strdup(&c->arena, buf_str(&out));
}
