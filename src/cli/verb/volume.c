// acequia volume
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/client/client.h"
#include "cli/term/local_time.h"
#include "cli/term/table.h"
#include "model/file.h"
#include "model/units.h"
#include "model/volume.h"
#include "verbs.h"

static const struct option_spec specs[] = {
    {"size", 's', "SIZE", "Create: how much it may hold, as 100G; else, or with unlimited, there is no limit.", 0, NULL,
     NULL},
    {"project", 'P', "NAME", "Create: for this project, whose members can use it.", 0, NULL, "@project"},
    {"mode", 0, "OCTAL", "Create: permissions of its folder; default 700, of a project 2770.", 0, NULL, NULL},
    {"at", 0, "PLACE",
     "Create: somewhere else. s3://BUCKET[/PREFIX][?endpoint=URL], mounted with the credentials of whoever "
     "has it "
     "in a job; for administrators also nfs://SERVER/PATH, or a folder that the nodes have.",
     0, NULL, "@dir"},
    {"with", 'u', "USER", "Share: with this user.", 0, NULL, NULL},
    {"read-only", 'r', NULL, "Share: they may read it only.", 0, NULL, NULL},
    {"revoke", 0, NULL, "Share: end the share.", 0, NULL, NULL},
};
static const struct option_table table_options = OPTION_TABLE("Options", specs);

static int print_json(const struct reply *reply) {
    cleanup_buf struct buf out = {0};
    buf_addf(&out, "%s\n", reply->text);
    return cli_print(&out);
}

static const char *size_text(struct cli *c, const struct json *j) {
    char text[UNIT_TEXT_MAX];
    int64_t bytes = json_i64(j, "size_bytes", 0);
    return bytes ? arena_strdup(&c->arena, size_format((uint64_t)bytes, text)) : "no limit";
}

// What its file system says. NULL: nothing is known; c->error says why.
static const struct json *ask_space(struct cli *c, const char *folder) {
    enum { ANSWER_MS = 10000 };
    cleanup_query struct query q = {0};
    cleanup_buf struct buf path = {0};
    struct client *k;
    struct reply reply;
    file_name_write(folder, strlen(folder), &path);
    client_query_begin(&q, "/v1/files/space");
    client_query_add(&q, "path", buf_str(&path));
    if (client_open(c, &k) < 0)
        return NULL;
    int r = client_call_timeout(k, "GET", buf_str(&q.text), NULL, ANSWER_MS, &reply);
    client_free(k);
    return r < 0 ? NULL : reply.json;
}

// Whether its size is kept, and how much is free: a sentence.
static const char *space_text(struct cli *c, const struct json *volume) {
    const char *folder = json_str(volume, "folder");
    char free_text[UNIT_TEXT_MAX], all[UNIT_TEXT_MAX];
    const struct json *s = folder && *folder == '/' ? ask_space(c, folder) : NULL;
    if (!folder || *folder != '/')
        return "as its storage gives it";
    if (!s)
        return arena_printf(&c->arena, "not known: %s", c->error.text);
    const char *kind = json_str(s, "file_system"), *node = json_str(s, "node");
    size_format((uint64_t)json_i64(s, "space_free_bytes", 0), free_text);
    size_format((uint64_t)json_i64(s, "space_bytes", 0), all);
    if (!json_i64(volume, "size_bytes", 0))
        return arena_printf(&c->arena, "none asked for; %s of %s free (%s)", free_text, all, kind);
    if (!json_true(s, "quota"))
        return arena_printf(
            &c->arena,
            "not kept: the file system (%s, node %s) has no project quotas, so jobs can write "
            "more than its size",
            kind, node);
    if (!json_true(s, "exists"))
        return arena_printf(&c->arena, "kept by the file system (%s), from the first job on", kind);
    return arena_printf(&c->arena, "kept by the file system (%s); %s of %s free", kind, free_text, all);
}

static int create(struct cli *c) {
    cleanup_buf struct buf body = {0};
    struct json_writer w = {.out = &body};
    struct reply reply;
    uint64_t size = 0;
    const char *mode = option_get(&c->options, "mode");
    char *end = NULL;
    if (c->count != 2)
        return cli_usage(c, "create needs one name: acequia volume create NAME [--size SIZE]");
    bool endless = streq(option_get(&c->options, "size"), "unlimited");
    if (!endless && option_size(&c->options, "size", 1, &size, &c->error) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    unsigned long bits = mode ? strtoul(mode, &end, 8) : 0;
    if (mode && (!*mode || *end || bits > VOLUME_MODE_MAX))
        return cli_usage(c, "--mode is \"%.20s\"; expected an octal number as 750 or 2770", mode);
    json_open(&w, '{');
    json_kv_str(&w, "name", c->arguments[1]);
    if (option_get(&c->options, "project"))
        json_kv_str(&w, "project", option_get(&c->options, "project"));
    if (option_get(&c->options, "at"))
        json_kv_str(&w, "at", option_get(&c->options, "at"));
    json_kv_i64(&w, "size_bytes", (int64_t)size);
    json_kv_i64(&w, "mode", (int64_t)bits);
    json_close(&w, '}');
    int status = client_post(c, "/v1/volumes", &body, &reply);
    if (status != CLI_OK || c->json)
        return status != CLI_OK ? status : print_json(&reply);
    printf("Volume %s created; give it to a job with -v %s:/PATH\n", c->arguments[1], c->arguments[1]);
    if (size)
        printf("Its size is %s\n", space_text(c, reply.json));
    return CLI_OK;
}

static int list(struct cli *c) {
    static const struct table_column columns[] = {{"VOLUME", false, 4, 8}, {"OWNER", false, 3, 5},
                                                  {"SIZE", true, 0, 0},    {"MODE", true, 0, 0},
                                                  {"MADE", false, 0, 0},   {"FOLDER", false, 6, 10}};
    struct reply reply;
    struct text_table t;
    cleanup_buf struct buf out = {0};
    int status = client_get(c, "/v1/volumes", &reply);
    if (status != CLI_OK || c->json)
        return status != CLI_OK ? status : print_json(&reply);
    const struct json *all = json_get(reply.json, "volumes");
    table_init(&t, &c->arena, columns, 6);
    for (uint32_t i = 0; all && all->type == JSON_ARRAY && i < all->len; i++) {
        const struct json *j = &all->items[i];
        char when[UNIT_TEXT_MAX];
        table_add(&t, json_str(j, "title"), COLOUR_NONE);
        table_add(&t, json_str(j, "user"), COLOUR_NONE);
        table_add(&t, size_text(c, j), COLOUR_NONE);
        table_add(&t, arena_printf(&c->arena, "%03llo", (unsigned long long)json_i64(j, "mode", 0)),
                  COLOUR_NONE);
        table_add(&t,
                  arena_strdup(&c->arena, local_time_short(json_i64(j, "made_ms", 0), clock_wall_ms(), when)),
                  COLOUR_NONE);
        table_add(&t, json_str(j, "folder") ? json_str(j, "folder") : "-", COLOUR_NONE);
    }
    table_print(&t, terminal_table_width(), true, terminal_colour(), &out);
    table_done(&t);
    return cli_print(&out);
}

// /v1/volumes/NAME with the owner in the query.
static int target(struct cli *c, struct query *q, struct volume_wish *w) {
    cleanup_buf struct buf path = {0};
    if (c->count != 2)
        return cli_usage(c, "%s needs one volume: NAME, ~USER/NAME or PROJECT/NAME", c->arguments[0]);
    if (volume_title_parse(c->arguments[1], &c->arena, w, &c->error) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    if (!w->project)
        w->project = option_get(&c->options, "project");
    buf_adds(&path, "/v1/volumes/");
    http_percent_encode(&path, w->name);
    client_query_begin(q, buf_str(&path));
    return CLI_OK;
}

static void add_users(struct buf *out, const char *what, const struct json *list) {
    for (uint32_t i = 0; list && list->type == JSON_ARRAY && i < list->len; i++)
        if (list->items[i].type == JSON_STRING)
            buf_addf(out, "%s%s", i ? ", " : what, list->items[i].s);
    if (list && list->type == JSON_ARRAY && list->len)
        buf_addc(out, '\n');
}

static int get(struct cli *c) {
    cleanup_query struct query q = {0};
    cleanup_buf struct buf out = {0};
    struct volume_wish w;
    struct reply reply;
    int status = target(c, &q, &w);
    if (status != CLI_OK)
        return status;
    client_query_add(&q, "project", w.project);
    client_query_add(&q, "user", w.user);
    status = client_get(c, buf_str(&q.text), &reply);
    if (status != CLI_OK || c->json)
        return status != CLI_OK ? status : print_json(&reply);
    const struct json *j = reply.json;
    int64_t job = json_i64(j, "job", 0), others = json_i64(j, "other_jobs", 0);
    const char *folder = json_str(j, "folder");
    buf_addf(&out, "Volume         %s\nOwner          %s\n", json_str(j, "title"), json_str(j, "user"));
    if (json_str(j, "project"))
        buf_addf(&out, "Project        %s\n", json_str(j, "project"));
    buf_addf(&out, "Size           %s\nMode           %03llo\nFolder         %s\n", size_text(c, j),
             (unsigned long long)json_i64(j, "mode", 0), folder ? folder : "-");
    buf_addf(&out, "Quota          %s\n", space_text(c, j));
    add_users(&out, "Writers        ", json_get(j, "writers"));
    add_users(&out, "Readers        ", json_get(j, "readers"));
    if (job && others)
        buf_addf(&out, "In use by      job %lld and %lld more\n", (long long)job, (long long)others);
    else if (job)
        buf_addf(&out, "In use by      job %lld\n", (long long)job);
    return cli_print(&out);
}

static int delete (struct cli *c) {
    cleanup_query struct query q = {0};
    struct volume_wish w;
    struct reply reply;
    int status = target(c, &q, &w);
    if (status != CLI_OK)
        return status;
    client_query_add(&q, "project", w.project);
    client_query_add(&q, "user", w.user);
    status = client_request(c, "DELETE", buf_str(&q.text), NULL, &reply);
    if (status != CLI_OK || c->json)
        return status != CLI_OK ? status : print_json(&reply);
    printf("Volume %s deleted; its files stay in their folder\n", c->arguments[1]);
    return CLI_OK;
}

static int share(struct cli *c) {
    cleanup_query struct query q = {0};
    cleanup_buf struct buf body = {0}, path = {0};
    struct json_writer w = {.out = &body};
    struct volume_wish v;
    struct reply reply;
    const char *with = option_get(&c->options, "with");
    int status = target(c, &q, &v);
    if (status != CLI_OK)
        return status;
    if (!with)
        return cli_usage(c,
                         "share needs somebody: --with USER; for a whole project create it with --project");
    json_open(&w, '{');
    json_kv_str(&w, "with", with);
    if (v.project)
        json_kv_str(&w, "project", v.project);
    if (v.user)
        json_kv_str(&w, "user", v.user);
    json_kv_bool(&w, "read_only", option_given(&c->options, "read-only"));
    json_kv_bool(&w, "revoke", option_given(&c->options, "revoke"));
    json_close(&w, '}');
    buf_addf(&path, "%s/shares", buf_str(&q.text));
    status = client_post(c, buf_str(&path), &body, &reply);
    if (status != CLI_OK || c->json)
        return status != CLI_OK ? status : print_json(&reply);
    if (option_given(&c->options, "revoke"))
        printf("Volume %s is not shared with %s any more\n", c->arguments[1], with);
    else
        printf("Volume %s is shared with %s; in their jobs: -v %s:/PATH%s\n", c->arguments[1], with,
               json_str(reply.json, "title"), option_given(&c->options, "read-only") ? ":ro" : "");
    return CLI_OK;
}

static int run(struct cli *c) {
    static const struct {
        const char *word;
        int (*run)(struct cli *c);
    } actions[] = {{"create", create}, {"get", get}, {"delete", delete}, {"share", share}};
    const char *what = c->count ? c->arguments[0] : "list";
    if (streq(what, "list"))
        return c->count > 1 ? cli_usage(c, "unexpected argument \"%.40s\"", c->arguments[1]) : list(c);
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
        if (streq(what, actions[i].word))
            return actions[i].run(c);
    return cli_usage(c, "unknown action \"%.40s\"; use create, list, get, share or delete", what);
}

const struct verb verb_volume = {
    .name = "volume",
    .group = "Programs",
    .arguments =
        "create NAME [options]\n[list]\nget VOLUME\nshare VOLUME --with USER [--read-only|--revoke]\n"
        "delete VOLUME",
    .summary = "keep data for jobs in folders on shared storage",
    .text =
        "A volume is a folder on storage that the nodes share, yours or your project's. Jobs see it "
        "where they ask "
        "for it, "
        "with -v NAME:/PATH or -v NAME:/PATH:ro, in a container or not. Its files belong to whoever "
        "writes them, and "
        "permissions hold as everywhere. VOLUME is NAME, or ~USER/NAME or PROJECT/NAME for one of "
        "somebody else. "
        "The size "
        "is kept by the file system where it has project quotas (ext4, XFS); where it has none, create, get "
        "and "
        "the output of jobs say so. A bucket of S3 is mounted by rclone, or "
        "for reading by mount-s3, as the job's user; what a job writes there is sent before the job has ended, or "
        "named in its output. A volume that jobs have cannot be "
        "deleted; deleting it leaves its "
        "files where they are.",
    .examples = "acequia volume create data --size 100G\nacequia run -v data:/data -- ls /data\n"
                "acequia volume create models --at 's3://models?endpoint=https://s3.lab'\n"
                "acequia volume create sets -P vision\nacequia volume share data --with eva --read-only",
    .options = {&table_options, &cli_common_options},
    .run = run,
    .complete = "create list get share delete",
    .most = -1,
};
