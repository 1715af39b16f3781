// acequia view, and what list --view takes from one. A view is kept as the query of the portal's table of jobs; here it
// is a set of options of list.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "cli/client/client.h"
#include "cli/job/action.h"
#include "cli/term/table.h"
#include "net/http.h"
#include "verbs.h"

enum { VIEW_WORDS_MAX = 16 };

static const struct option_spec specs[] = {
    {"title", 0, "TEXT", "The title that the portal shows; default: its name.", 0, NULL, NULL},
    {"user", 'u', "NAME", "Only jobs of this user.", 0, NULL, NULL},
    {"me", 0, NULL, "Only my jobs.", 0, "mine", NULL},
    {"project", 'P', "NAME", "Only jobs of this project.", 0, NULL, "@project"},
    {"state", 's', "STATES", "Only jobs in these states, as PENDING,RUNNING.", 0, "states",
     "PENDING RUNNING SUSPENDED COMPLETED FAILED CANCELLED TIMEOUT OUT_OF_MEMORY NODE_FAIL PREEMPTED"},
    {"where", 0, "FILTER", "Only jobs for which all terms hold, see list; may be given several times.",
     OPTION_REPEAT, "filter", NULL},
    {"elements", 'r', NULL, "One line per element of an array.", 0, "unfold", NULL},
};
static const struct option_table table_options = OPTION_TABLE("Options of save", specs);

// --- as options of list ---

// By name, or by the title under which the portal has kept it.
static const struct json *find_view(struct cli *c, const struct json *views, const char *name) {
    const struct json *titled = NULL;
    for (uint32_t i = 0; views && i < views->len; i++) {
        const char *title = json_str(&views->items[i], "title");
        if (streq(json_str(&views->items[i], "name"), name))
            return &views->items[i];
        if (title && streq(title, name))
            titled = &views->items[i];
    }
    return titled;
}

static bool all_ended(const char *states) {
    static const char *const live[] = {"PENDING", "STARTING", "RUNNING", "SUSPENDED", "COMPLETING"};
    for (size_t i = 0; i < sizeof live / sizeof *live; i++)
        if (strstr(states, live[i]))
            return false;
    return *states != 0;
}

static const char *value_of(struct cli *c, const char *query, const char *key) {
    cleanup_buf struct buf b = {0};
    return http_query_get(query, key, &b) == 0 && b.len ? arena_strdup(&c->arena, buf_str(&b)) : NULL;
}

// As a term of --where has it: characters that mean something there stand for themselves.
static const char *escaped(struct cli *c, const char *text) {
    cleanup_buf struct buf b = {0};
    for (const char *p = text; *p; p++) {
        if (strchr(" \\'\"|*?", *p))
            buf_addc(&b, '\\');
        buf_addc(&b, *p);
    }
    return arena_strdup(&c->arena, buf_str(&b));
}

static int words_of(struct cli *c, const char *query, char *words[VIEW_WORDS_MAX]) {
    static const char *const same[] = {"user", "project", "state", "where"};
    int n = 0;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        const char *value = value_of(c, query, same[i]);
        if (value)
            words[n++] = arena_printf(&c->arena, "--%s=%s", same[i], value);
        if (value && streq(same[i], "state") && all_ended(value))
            words[n++] = arena_strdup(&c->arena, "--finished");
    }
    const char *search = value_of(c, query, "search"), *mine = value_of(c, query, "mine"),
               *elements = value_of(c, query, "elements");
    if (search)
        words[n++] = arena_printf(&c->arena, "--where=name=*%s*", escaped(c, search));
    if (mine)
        words[n++] = arena_strdup(&c->arena, "--me");
    if (elements)
        words[n++] = arena_strdup(&c->arena, "--elements");
    return n;
}

int verb_view_apply(struct cli *c, const char *name) {
    struct reply reply;
    struct cli_options more = {0};
    char *words[VIEW_WORDS_MAX], shown[80];
    int status = client_get(c, "/v1/views", &reply);
    if (status != CLI_OK)
        return status;
    const struct json *view = find_view(c, json_get(reply.json, "views"), name);
    if (!view)
        return cli_failf(c, "there is no view %s; acequia view lists yours",
                         str_printable(name, shown, sizeof shown));
    const char *query = json_str(view, "query");
    if (streq(value_of(c, query, "state"), "DRAFT"))
        return cli_failf(c, "this view shows drafts; acequia draft lists yours");
    int n = words_of(c, query, words);
    if (options_parse(c->options.tables, n, words, false, &more, &c->error) < 0)
        return cli_fail(c);
    options_add_missing(&c->options, &more);
    options_done(&more);
    return CLI_OK;
}

// --- the verb ---

static int list(struct cli *c) {
    static const struct table_column columns[] = {
        {"NAME", false, 0, 0}, {"TITLE", false, 0, 0}, {"JOBS", false, 1, 20}};
    struct text_table t;
    struct reply reply;
    cleanup_buf struct buf out = {0};
    int status = client_get(c, "/v1/views", &reply);
    if (status != CLI_OK)
        return status;
    const struct json *views = json_get(reply.json, "views");
    table_init(&t, &c->arena, columns, 3);
    for (uint32_t i = 0; views && i < views->len; i++) {
        char *words[VIEW_WORDS_MAX];
        cleanup_buf struct buf options = {0};
        const char *title = json_str(&views->items[i], "title");
        int n = words_of(c, json_str(&views->items[i], "query"), words);
        for (int k = 0; k < n; k++)
            buf_addf(&options, "%s%s", k ? " " : "", words[k]);
        table_add(&t, json_str(&views->items[i], "name"), COLOUR_NONE);
        table_add(&t, title ? title : "", COLOUR_NONE);
        table_add(&t, n ? arena_strdup(&c->arena, buf_str(&options)) : "all", COLOUR_NONE);
    }
    if (c->json)
        buf_addf(&out, "%s\n", reply.text);
    else
        table_print(&t, terminal_table_width(), true, terminal_colour(), &out);
    table_done(&t);
    return cli_print(&out);
}

static void add(struct buf *query, const char *key, const char *value) {
    if (!value)
        return;
    buf_addf(query, "%s%s=", query->len ? "&" : "", key);
    http_percent_encode(query, value);
}

static const char *path_of(struct cli *c, const char *name) {
    cleanup_buf struct buf b = {0};
    buf_adds(&b, "/v1/views/");
    http_percent_encode(&b, name);
    return arena_strdup(&c->arena, buf_str(&b));
}

static int save(struct cli *c) {
    const struct cli_options *o = &c->options;
    cleanup_buf struct buf query = {0}, where = {0}, body = {0};
    struct json_writer w = {.out = &body};
    struct reply reply;
    uint32_t it = 0;
    const char *name = c->arguments[1], *title = option_get(o, "title");
    if (c->count > 2)
        return cli_usage(c, "unexpected argument \"%.40s\"", c->arguments[2]);
    for (const char *one; (one = option_next(o, "where", &it));)
        buf_addf(&where, "%s%s", where.len ? " " : "", one);
    add(&query, "state", job_states_text(&c->arena, option_get(o, "state")));
    add(&query, "user", option_get(o, "user"));
    add(&query, "project", option_get(o, "project"));
    add(&query, "mine", option_given(o, "me") ? "1" : NULL);
    add(&query, "where", where.len ? buf_str(&where) : NULL);
    add(&query, "elements", option_given(o, "elements") ? "1" : NULL);
    json_open(&w, '{');
    json_kv_str(&w, "title", title ? title : name);
    json_kv_str(&w, "query", buf_str(&query));
    json_close(&w, '}');
    int status = client_request(c, "PUT", path_of(c, name), &body, &reply);
    if (status == CLI_OK && !c->json)
        printf("View %s saved\n", name);
    return status;
}

static int delete_all(struct cli *c) {
    struct reply reply;
    int status = client_get(c, "/v1/views", &reply);
    const struct json *views = status == CLI_OK ? json_get(reply.json, "views") : NULL;
    for (int i = 1; i < c->count && status == CLI_OK; i++) {
        const struct json *view = find_view(c, views, c->arguments[i]);
        const char *name = view ? json_str(view, "name") : c->arguments[i];
        status = client_request(c, "DELETE", path_of(c, name), NULL, &reply);
        if (status == CLI_OK && !c->json)
            printf("View %s deleted\n", c->arguments[i]);
    }
    return status;
}

static int run(struct cli *c) {
    const char *what = c->count ? c->arguments[0] : "list";
    if (streq(what, "list"))
        return c->count > 1 ? cli_usage(c, "unexpected argument \"%.40s\"", c->arguments[1]) : list(c);
    if (!streq(what, "save") && !streq(what, "delete"))
        return cli_usage(c, "unknown action \"%.40s\"; use list, save or delete", what);
    if (c->count < 2)
        return cli_usage(c, "%s needs the name of a view; see acequia view", what);
    return streq(what, "save") ? save(c) : delete_all(c);
}

const struct verb verb_view = {
    .name = "view",
    .group = "Work",
    .arguments = "[list]\nsave NAME [options]\ndelete NAME...",
    .summary = "keep filters of the list of jobs",
    .text =
        "A view is a set of filters, kept with the controller: the portal shows it above the table of jobs, "
        "and acequia list --view NAME uses it. NAME may be the title of a view that was saved in the portal.",
    .examples =
        "acequia view save large -s PENDING --where 'gpus>=2'\nacequia list --view large\nacequia view "
        "delete large",
    .options = {&table_options, &cli_common_options},
    .run = run,
    .complete = "list save delete",
    .most = -1,
};
