// acequia project, partition, qos, reservation: one set of functions over the configuration's table,
// so that a key means the same in the file and on the command line.
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/client/client.h"
#include "cli/term/local_time.h"
#include "cli/term/table.h"
#include "verbs.h"
#include "model/config_table.h"
#include "model/name.h"

static const struct option_spec project_specs[] = {
    {"quota", 0, "GPUS", "Guaranteed GPUs; rest: all that no other project is guaranteed.", 0, NULL, NULL},
    {"weight", 0, "NUMBER", "Weight when idle GPUs are divided; none: the quota.", 0, NULL, NULL},
    {"limit", 0, "GPUS", "The most GPUs it may hold at once; none: no limit.", 0, NULL, NULL},
    {"parent", 0, "NAME", "Parent project.", 0, NULL, "@project"},
    {"members", 0, "NAMES", "Users who may submit to it; empty: everybody.", 0, NULL, NULL},
    {"leads", 0, "NAMES", "Users who may act on its jobs and name its members.", 0, NULL, NULL},
    {"nodes", 0, "NODES", "Nodes its jobs may use; empty: all.", 0, NULL, "@node"},
    {"interactive-time", 0, "DURATION", "Time limit of its interactive jobs; none: no limit.", 0, NULL, NULL},
    {"model-quotas", 0, "LIST", "Quotas by GPU model, as v100=4,a100=2.", 0, NULL, NULL},
    {"default-qos", 0, "NAME", "QoS of jobs that name none.", 0, NULL, "@qos"},
    {"shared-logs", 0, "BOOL", "Members may see each other's scripts and logs.", 0, NULL, "true false"},
};
static const struct option_table project_options = OPTION_TABLE("Settings", project_specs);

static const struct option_spec partition_specs[] = {
    {"nodes", 0, "NODES", "Its nodes; empty: all.", 0, NULL, "@node"},
    {"default", 0, "BOOL", "Jobs that name no partition go here.", 0, NULL, "true false"},
    {"fifo", 0, "BOOL", "Strictly in order, without backfill.", 0, NULL, "true false"},
    {"down", 0, "BOOL", "Jobs are accepted but not started.", 0, NULL, "true false"},
    {"closed", 0, "BOOL", "New jobs are refused; pending ones still start.", 0, NULL, "true false"},
    {"default-time", 0, "DURATION", "Time limit of jobs submitted without one; none: the longest.", 0, NULL,
     NULL},
    {"max-time", 0, "DURATION", "The longest time limit; none: no limit.", 0, NULL, NULL},
    {"tier", 0, "NUMBER", "Jobs of a higher tier go first.", 0, NULL, NULL},
    {"default-memory-per-cpu", 0, "SIZE",
     "Memory per CPU of jobs submitted without --memory; none: the cluster's.", 0, NULL, NULL},
};
static const struct option_table partition_options = OPTION_TABLE("Settings", partition_specs);

static const struct option_spec qos_specs[] = {
    {"priority", 0, "NUMBER", "Added to the priority of its jobs.", 0, NULL, NULL},
    {"max-jobs-per-user", 0, "NUMBER", "The most running jobs of one user; none: no limit.", 0, NULL, NULL},
    {"max-gpus-per-user", 0, "GPUS", "The most GPUs one user holds; none: no limit.", 0, NULL, NULL},
    {"max-time", 0, "DURATION", "The longest time limit; none: no limit.", 0, NULL, NULL},
    {"preempts", 0, "NAMES", "QoS whose jobs may be preempted for its jobs.", 0, NULL, NULL},
    {"usage-factor", 0, "NUMBER", "How much its use counts against fair share; 0: not at all.", 0, NULL,
     NULL},
    {"no-preempt", 0, "BOOL", "Its jobs are never preempted.", 0, NULL, "true false"},
};
static const struct option_table qos_options = OPTION_TABLE("Settings", qos_specs);

static const struct option_spec license_specs[] = {
    {"count", 0, "NUMBER", "Seats that running jobs can hold together.", 0, NULL, NULL},
};
static const struct option_table license_options = OPTION_TABLE("Settings", license_specs);

static const struct option_spec reservation_specs[] = {
    {"nodes", 0, "NODES", "The nodes that are reserved; empty: all.", 0, NULL, "@node"},
    {"start", 0, "TIME", "When it begins.", 0, NULL, NULL},
    {"end", 0, "TIME", "When it ends.", 0, NULL, NULL},
    {"users", 0, "NAMES", "Users who may run in it.", 0, NULL, NULL},
    {"projects", 0, "NAMES", "Projects that may run in it.", 0, NULL, NULL},
    {"maintenance", 0, "BOOL", "No jobs run in it.", 0, NULL, "true false"},
};
static const struct option_table reservation_options = OPTION_TABLE("Settings", reservation_specs);

static const struct option_spec delete_specs[] = {
    {"force", 0, NULL,
     "Delete it although it has jobs: running ones continue to their end, pending ones are cancelled (of a "
     "partition: "
     "unless they name another one, too). A project is gone when its last job has ended.",
     0, NULL, NULL},
};
static const struct option_table delete_options = OPTION_TABLE("With delete", delete_specs);

static const struct {
    const char *word, *path;
    const struct schema *schema;
} nouns[] = {
    {"project", "/v1/projects", &entity_project_schema},
    {"partition", "/v1/partitions", &entity_partition_schema},
    {"qos", "/v1/qos", &entity_qos_schema},
    {"reservation", "/v1/reservations", &entity_reservation_schema},
    {"license", "/v1/licenses", &entity_license_schema},
};

struct noun {
    struct cli *cli;
    const char *word, *path;
    const struct schema *schema;
    const struct config_section *section;
};

static const char *option_name(struct cli *c, const struct config_key *k) {
    char *name = arena_strdup(&c->arena, k->name);
    for (char *p = name; *p; p++)
        *p = *p == '_' ? '-' : *p;
    return name;
}

// The options that were given, read into a fresh struct; `changed[i]` tells which keys.
static int read_options(struct noun *n, void *fresh, bool *changed) {
    struct cli *c = n->cli;
    int64_t now = clock_wall_ms();
    struct config_source source = {"", now, local_time_offset_s(now)};
    for (size_t i = 0; i < n->section->count; i++) {
        const struct config_key *k = &n->section->keys[i];
        const char *name = option_name(c, k), *text = option_get(&c->options, name);
        changed[i] = text != NULL;
        int r = text ? config_value_parse(k, text, &source, &c->arena, fresh, &c->error) : 0;
        if (r < 0) {
            error_prefix(&c->error, "--%s", name);
            return r;
        }
    }
    return 0;
}

static bool field_changed(const struct noun *n, const bool *changed, const struct field *f) {
    for (size_t i = 0; i < n->section->count; i++) {
        const struct config_key *k = &n->section->keys[i];
        if (changed[i] && (k->offset == f->offset || (k->given_offset && k->given_offset == f->offset)))
            return true;
    }
    return false;
}

// What is there already, with the changes laid over it.
static int merge(struct noun *n, const struct json *before, struct buf *body) {
    enum { KEYS_MAX = 32 };
    struct cli *c = n->cli;
    bool changed[KEYS_MAX] = {false};
    cleanup_buf struct buf text = {0};
    struct json_writer tw = {.out = &text}, w = {.out = body};
    struct json *after;
    void *fresh = arena_alloc(&c->arena, n->schema->size);
    if (!before)
        config_defaults(n->section, &c->arena, fresh);
    int r = read_options(n, fresh, changed);
    if (r < 0)
        return r;
    schema_write_json(n->schema, fresh, &tw);
    r = json_parse(buf_str(&text), text.len, &c->arena, &after, &c->error);
    if (r < 0)
        return r;
    json_open(&w, '{');
    for (size_t i = 0; i < n->schema->count; i++) {
        const struct field *f = &n->schema->fields[i];
        if (streq(f->name, "name"))
            continue;
        const struct json *v =
            !before || field_changed(n, changed, f) ? json_get(after, f->name) : json_get(before, f->name);
        if (!v || v->type == JSON_NULL)
            continue;
        json_key(&w, f->name);
        json_write(&w, v);
    }
    json_kv_str(&w, "name", c->arguments[1]);
    json_close(&w, '}');
    return 0;
}

static int report(struct cli *c, const struct reply *reply, const char *word, const char *done) {
    cleanup_buf struct buf out = {0};
    const struct json *warnings = reply->json ? json_get(reply->json, "warnings") : NULL;
    if (c->json) {
        buf_addf(&out, "%s\n", reply->text);
        return cli_print(&out);
    }
    for (uint32_t i = 0; warnings && warnings->type == JSON_ARRAY && i < warnings->len; i++)
        if (warnings->items[i].type == JSON_STRING)
            cli_note("warning: %s", warnings->items[i].s);
    buf_addf(&out, "%s %s %s\n", word, c->arguments[1], done);
    return cli_print(&out);
}

static int put(struct noun *n, bool create) {
    struct cli *c = n->cli;
    struct client *k;
    struct reply before = {0}, reply;
    cleanup_buf struct buf body = {0};
    const char *target = arena_printf(&c->arena, "%s/%s", n->path, c->arguments[1]);
    if (client_open(c, &k) < 0)
        return cli_fail(c);
    int r = client_call(k, "GET", target, NULL, &before), status = CLI_OK;
    if (create && r == 0 && json_str(before.json, "deleted_by"))
        status = cli_failf(
            c,
            "%s \"%s\" is being deleted; it is gone when its last job has ended, and can be created "
            "then. Its jobs: acequia list --%s %s",
            n->word, c->arguments[1], n->word, c->arguments[1]);
    else if (create && r == 0)
        status = cli_failf(c, "%s \"%s\" already exists; to change it: acequia %s edit %s", n->word,
                           c->arguments[1], n->word, c->arguments[1]);
    else if (r < 0 && (!create || r != -ENOENT))
        status = cli_fail(c);
    if (status == CLI_OK && merge(n, create ? NULL : before.json, &body) < 0)
        status = cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    else if (status == CLI_OK)
        status = client_call(k, "PUT", target, &body, &reply) < 0
                     ? cli_fail(c)
                     : report(c, &reply, n->word, create ? "created" : "changed");
    client_free(k);
    return status;
}

static int remove_one(struct noun *n) {
    struct reply reply;
    int status = client_request(
        n->cli, "DELETE", arena_printf(&n->cli->arena, "%s/%s%s", n->path, n->cli->arguments[1],
                                        option_given(&n->cli->options, "force") ? "?force=1" : ""), NULL, &reply);
    const char *done = status == CLI_OK && !json_true(reply.json, "done") ? "is being deleted" : "deleted";
    return status == CLI_OK ? report(n->cli, &reply, n->word, done) : status;
}

// A value as the configuration writes it; members the table does not know are left out.
static int read_value(struct noun *n, const struct json *j, void *out) {
    cleanup_buf struct buf text = {0};
    struct json_writer w = {.out = &text};
    struct json *known;
    json_open(&w, '{');
    for (size_t i = 0; i < n->schema->count; i++) {
        const struct json *v = json_get(j, n->schema->fields[i].name);
        if (!v || v->type == JSON_NULL)
            continue;
        json_key(&w, n->schema->fields[i].name);
        json_write(&w, v);
    }
    json_close(&w, '}');
    int r = json_parse(buf_str(&text), text.len, &n->cli->arena, &known, &n->cli->error);
    return r < 0 ? r : schema_read_json(n->schema, known, &n->cli->arena, out, &n->cli->error);
}

static const char *cell(struct noun *n, const struct config_key *k, const void *value) {
    cleanup_buf struct buf text = {0};
    char when[UNIT_TEXT_MAX];
    if (!config_value_given(k, value))
        return "";
    if (k->type == CONFIG_TIME)
        return arena_strdup(&n->cli->arena,
                            local_time_format(*(const int64_t *)((const char *)value + k->offset), when));
    config_value_format(k, value, &text);
    bool nothing = k->type == CONFIG_BOOL && streq(buf_str(&text), "false");
    if (nothing ||
        (k->type != CONFIG_QUOTA && streq(buf_str(&text), "0") && !k->given_offset && !k->limit_of))
        return "";
    return arena_strdup(&n->cli->arena, buf_str(&text));
}

static const char *title(struct arena *a, const char *name) {
    char *t = arena_strdup(a, name);
    for (char *p = t; *p; p++)
        *p = *p == '_' ? ' ' : *p >= 'a' && *p <= 'z' ? (char)(*p - 32) : *p;
    return t;
}

static const char *name_cell(struct cli *c, const struct json *item) {
    const char *name = json_str(item, "name");
    return json_str(item, "deleted_by") ? arena_printf(&c->arena, "%s (being deleted)", name ? name : "")
                                        : name;
}

static int list(struct noun *n) {
    enum { KEYS_MAX = 32 };
    struct cli *c = n->cli;
    struct reply reply;
    struct text_table t;
    struct table_column columns[KEYS_MAX + 1] = {{"NAME", false, 2, 8}};
    const struct config_key *keys[KEYS_MAX];
    uint32_t count = 0;
    cleanup_buf struct buf out = {0};
    int status = client_get(c, n->path, &reply);
    if (status != CLI_OK)
        return status;
    if (c->json) {
        buf_addf(&out, "%s\n", reply.text);
        return cli_print(&out);
    }
    const struct json *items = json_get(reply.json, n->path + 4);
    uint32_t len = items && items->type == JSON_ARRAY ? items->len : 0;
    char *values = arena_alloc(&c->arena, (len ? len : 1) * n->schema->size);
    for (uint32_t i = 0; i < len; i++)
        if (read_value(n, &items->items[i], values + i * n->schema->size) < 0)
            return cli_fail(c);
    for (size_t k = 0; k < n->section->count; k++)  // columns that say something
        for (uint32_t i = 0; i < len; i++)
            if (*cell(n, &n->section->keys[k], values + i * n->schema->size)) {
                columns[count + 1] = (struct table_column){title(&c->arena, n->section->keys[k].name), false, 5, 5};
                keys[count++] = &n->section->keys[k];
                break;
            }
    table_init(&t, &c->arena, columns, count + 1);
    for (uint32_t i = 0; i < len; i++) {
        table_add(&t, name_cell(c, &items->items[i]), COLOUR_NONE);
        for (uint32_t k = 0; k < count; k++)
            table_add(&t, cell(n, keys[k], values + i * n->schema->size), COLOUR_NONE);
    }
    table_print(&t, terminal_table_width(), true, terminal_colour(), &out);
    table_done(&t);
    return cli_print(&out);
}

static int show(struct noun *n) {
    struct cli *c = n->cli;
    struct reply reply;
    cleanup_buf struct buf out = {0};
    int status = client_get(c, arena_printf(&c->arena, "%s/%s", n->path, c->arguments[1]), &reply);
    if (status != CLI_OK)
        return status;
    void *value = arena_alloc(&c->arena, n->schema->size);
    if (c->json) {
        buf_addf(&out, "%s\n", reply.text);
        return cli_print(&out);
    }
    if (read_value(n, reply.json, value) < 0)
        return cli_fail(c);
    buf_addf(&out, "[%s %s]\n", n->word, c->arguments[1]);
    if (json_str(reply.json, "deleted_by"))
        buf_addf(&out, "# being deleted by %s: gone when its last job has ended\n",
                 json_str(reply.json, "deleted_by"));
    for (size_t i = 0; i < n->section->count; i++) {
        const char *text = cell(n, &n->section->keys[i], value);
        if (*text)
            buf_addf(&out, "%s = %s\n", n->section->keys[i].name, text);
    }
    return cli_print(&out);
}

static int run(struct cli *c) {
    struct noun n = {.cli = c, .section = config_section_find(c->verb->name)};
    const char *what = c->count ? c->arguments[0] : "list";
    for (size_t i = 0; i < sizeof nouns / sizeof *nouns; i++)
        if (streq(nouns[i].word, c->verb->name)) {
            n.word = nouns[i].word;
            n.path = nouns[i].path;
            n.schema = nouns[i].schema;
        }
    if (streq(what, "list"))
        return list(&n);
    if (!streq(what, "create") && !streq(what, "edit") && !streq(what, "delete") && !streq(what, "show"))
        return cli_usage(c, "unknown action \"%.40s\"; use create, edit, delete, list or show", what);
    if (c->count < 2)
        return cli_usage(c, "%s %s needs a name", n.word, what);
    if (name_check(n.word, c->arguments[1], &c->error) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    if (streq(what, "show"))
        return show(&n);
    if (option_given(&c->options, "force") && !streq(what, "delete"))
        return cli_usage(c, "--force is for delete");
    if (streq(what, "edit") && !c->options.values.len)
        return cli_usage(c, "%s edit needs what to change; see acequia %s --help", n.word, n.word);
    return streq(what, "delete") ? remove_one(&n) : put(&n, streq(what, "create"));
}

#define NOUN(word, table_, summary_, text_, examples_)                                                       \
    const struct verb verb_##word = {                                                                        \
        .name = #word,                                                                                       \
        .group = "Sharing",                                                                                  \
        .arguments = "create NAME [settings]\nedit NAME [settings]\ndelete NAME [--force]\n[list]\n"         \
                     "show NAME",                                                                            \
        .summary = summary_,                                                                                 \
        .text = text_,                                                                                       \
        .examples = examples_,                                                                               \
        .options = {&table_, &delete_options, &cli_common_options},                                          \
        .run = run,                                                                                          \
        .complete = "create edit delete list show",                                                          \
        .most = 2,                                                                                           \
    }

NOUN(project, project_options, "projects and their guaranteed GPUs",
     "A project has a guaranteed quota of GPUs and may use idle GPUs of others. Settings that are not given "
     "keep their "
     "value. 0 is a limit of nothing; none or unlimited takes a limit away.",
     "acequia project create vision --quota 8 --members eva,joan\nacequia project edit vision --limit "
     "12\nacequia project list");
NOUN(partition, partition_options, "partitions: sets of nodes with their own limits",
     "Settings that are not given keep their value. 0 is a limit of nothing; none or unlimited takes a limit "
     "away.",
     "acequia partition create short --nodes n[01-04] --max-time 4h --default true");
NOUN(qos, qos_options, "qualities of service that jobs can ask for",
     "Settings that are not given keep their value. 0 is a limit of nothing; none or unlimited takes a limit "
     "away.",
     "acequia qos create urgent --priority 1000 --max-jobs-per-user 2");
NOUN(license, license_options, "licenses: seats of programs that jobs share",
     "A license has a number of seats. A job that asks for some with --license starts when so many are free, and "
     "holds them while it runs, whichever nodes it runs on.",
     "acequia license create matlab --count 10\nacequia submit --license matlab:2 -- matlab -batch run\n"
     "acequia license list");
NOUN(reservation, reservation_options, "reserve nodes for a time", "Other jobs are scheduled around a reservation.",
     "acequia reservation create disks --start tomorrow --end now+2days\nacequia reservation list\n"
     "acequia reservation delete disks");
