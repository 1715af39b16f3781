// acequia draft, acequia template: jobs that the controller keeps without running them.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/client/client.h"
#include "cli/job/option_text.h"
#include "cli/job/options.h"
#include "cli/job/saved.h"
#include "cli/term/local_time.h"
#include "cli/term/table.h"
#include "model/gpuspec.h"
#include "model/name.h"
#include "model/units.h"
#include "verbs.h"

static const struct option_spec draft_specs[] = {
    {"title", 0, "TEXT", "Save: the title that lists show; default: its name.", 0, NULL, NULL},
    {"keep", 0, NULL, "Submit: the draft stays.", 0, NULL, NULL},
};
static const struct option_table draft_options = OPTION_TABLE("Drafts", draft_specs);
static const struct option_spec template_specs[] = {
    {"title", 0, "TEXT", "Save: the title that lists show; default: its name.", 0, NULL, NULL},
    {"share", 0, "PROJECT", "A template of this project, for all its members.", 0, NULL, "@project"},
};
static const struct option_table template_options = OPTION_TABLE("Templates", template_specs);

static bool is_draft(const struct cli *c) {
    return streq(c->verb->name, "draft");
}

static void path_of(const struct cli *c, const char *name, struct query *q) {
    cleanup_buf struct buf path = {0};
    buf_addf(&path, "/v1/%ss/", c->verb->name);
    http_percent_encode(&path, name);
    client_query_begin(q, buf_str(&path));
    if (!is_draft(c))
        client_query_add(q, "project", option_get(&c->options, "share"));
}

// --- list and show ---

static const char *gpus_text(struct cli *c, const struct json *spec) {
    char text[GPU_TEXT_MAX];
    int64_t milli = spec ? json_i64(spec, "gpus_milli", 0) : 0;
    return milli > 0 ? arena_strdup(&c->arena, gpu_milli_format((uint32_t)milli, text)) : "";
}

static const char *limit_text(struct cli *c, const struct json *spec) {
    char text[UNIT_TEXT_MAX];
    int64_t s = spec ? json_i64(spec, "time_limit_s", 0) : 0;
    return s > 0 ? arena_strdup(&c->arena, duration_format((uint64_t)s, text)) : "";
}

static int list(struct cli *c) {
    static const struct table_column drafts[] = {{"NAME", false, 3, 8},    {"TITLE", false, 5, 8},
                                                 {"PROJECT", false, 3, 7}, {"GPUS", true, 0, 0},
                                                 {"LIMIT", true, 0, 0},    {"CHANGED", false, 0, 0}};
    static const struct table_column templates[] = {{"NAME", false, 3, 8}, {"TITLE", false, 5, 8},
                                                    {"OF", false, 3, 7},   {"GPUS", true, 0, 0},
                                                    {"LIMIT", true, 0, 0}, {"CHANGED", false, 0, 0}};
    struct reply reply;
    struct text_table t;
    cleanup_buf struct buf out = {0};
    int status = client_get(c, is_draft(c) ? "/v1/drafts" : "/v1/templates", &reply);
    if (status != CLI_OK)
        return status;
    if (c->json) {
        buf_addf(&out, "%s\n", reply.text);
        return cli_print(&out);
    }
    const struct json *all = json_get(reply.json, is_draft(c) ? "drafts" : "templates");
    table_init(&t, &c->arena, is_draft(c) ? drafts : templates, 6);
    for (uint32_t i = 0; all && i < all->len; i++) {
        const struct json *j = &all->items[i], *spec = json_get(j, "spec");
        char when[UNIT_TEXT_MAX];
        const char *of = json_str(j, "of"), *project = json_str(j, "project");
        int64_t set_ms = json_i64(j, "set_ms", 0);
        table_add(&t, json_str(j, "name"), COLOUR_NONE);
        table_add(&t, json_str(j, "title"), COLOUR_NONE);
        table_add(&t, is_draft(c) || project ? project : streq(of, "own") ? "you" : "Acequia", COLOUR_NONE);
        table_add(&t, gpus_text(c, spec), COLOUR_NONE);
        table_add(&t, limit_text(c, spec), COLOUR_NONE);
        table_add(&t, set_ms ? arena_strdup(&c->arena, local_time_short(set_ms, clock_wall_ms(), when)) : "",
                  COLOUR_NONE);
    }
    table_print(&t, terminal_table_width(), true, terminal_colour(), &out);
    table_done(&t);
    return cli_print(&out);
}

static int show(struct cli *c) {
    struct reply reply;
    cleanup_query struct query q = {0};
    cleanup_buf struct buf out = {0};
    path_of(c, c->arguments[1], &q);
    int status = client_get(c, buf_str(&q.text), &reply);
    if (status != CLI_OK)
        return status;
    const char *script = json_str(reply.json, "script");
    const struct json *spec = json_get(reply.json, "spec"), *argv = spec ? json_get(spec, "argv") : NULL;
    cleanup_buf struct buf options = {0};
    if (spec && !c->json)
        job_option_text(spec, true, &options);
    if (options.len)
        cli_note("options:%s", buf_str(&options));  // beside the script, which can go into a file
    if (c->json)
        buf_addf(&out, "%s\n", reply.text);
    else if (script)
        buf_adds(&out, script);
    for (uint32_t i = 0; !c->json && !script && argv && i < argv->len; i++)
        buf_addf(&out, "%s%s", i ? " " : "", argv->items[i].s);
    if (argv && script && argv->len && !c->json)
        cli_note("%u arguments follow the script", argv->len);
    if (out.len && out.data[out.len - 1] != '\n')
        buf_addc(&out, '\n');
    return cli_print(&out);
}

// --- save, submit, delete ---

static void write_body(const struct cli *c, const struct spec *s, const struct job_source *source,
                       struct buf *out) {
    struct json_writer w = {.out = out};
    json_open(&w, '{');
    json_kv_str(&w, "title", option_get(&c->options, "title"));
    if (!is_draft(c))
        json_kv_str(&w, "project", option_get(&c->options, "share"));
    json_key(&w, "spec");
    schema_write_given_json(&spec_schema, s, &w);
    if (source->script) {
        json_key(&w, "script");
        json_put_strn(&w, source->script, source->script_len);
    }
    json_close(&w, '}');
}

static int save(struct cli *c) {
    struct spec s;
    struct job_source source;
    struct reply reply;
    cleanup_buf struct buf body = {0}, path = {0};
    const char *name = c->arguments[1];
    if (name_check(c->verb->name, name, &c->error) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    c->arguments += 2;  // what is left is the script, or the command
    c->count -= 2;
    int status = verb_read_job(c, &s, &source);
    if (status != CLI_OK)
        return status;
    if (!is_draft(c) && !option_given(&c->options, "chdir"))
        s.workdir = NULL;  // wherever it is used
    write_body(c, &s, &source, &body);
    buf_addf(&path, "/v1/%ss/%s", c->verb->name, name);
    status = client_request(c, "PUT", buf_str(&path), &body, &reply);
    if (status == CLI_OK && c->json)
        printf("%s\n", reply.text);
    else if (status == CLI_OK && is_draft(c))
        printf("Draft %s saved; submit it with: acequia draft submit %s\n", name, name);
    else if (status == CLI_OK)
        printf("Template %s saved; use it with: acequia submit --template %s\n", name, name);
    return status;
}

static int submit_one(struct cli *c, struct client *k, const char *name) {
    struct job_saved draft;
    struct job_environment environment;
    struct reply reply;
    cleanup_query struct query q = {0};
    cleanup_buf struct buf body = {0};
    path_of(c, name, &q);
    if (job_saved_get(c, k, buf_str(&q.text), &draft) < 0 ||
        job_environment(c, &c->options, &environment) < 0)
        return cli_fail(c);
    if (!draft.spec.name)
        draft.spec.name = name;
    verb_complete_job(&draft.spec);
    struct job_source source = {.script = draft.script,
                                .script_len = draft.script ? strlen(draft.script) : 0};
    job_request_write(
        &(struct job_request){.spec = &draft.spec, .source = &source, .environment = &environment}, &body);
    if (client_call(k, "POST", "/v1/jobs", &body, &reply) < 0)
        return cli_fail(c);
    long long id = (long long)json_i64(reply.json, "id", 0),
              count = (long long)json_i64(reply.json, "count", 1);
    if (c->json)
        printf("%s\n", reply.text);
    else
        printf(count > 1 ? "Submitted job %lld, %lld elements\n" : "Submitted job %lld\n", id, count);
    if (!option_given(&c->options, "keep") && client_call(k, "DELETE", buf_str(&q.text), NULL, &reply) < 0)
        return cli_fail(c);
    return CLI_OK;
}

static int submit(struct cli *c) {
    struct client *k;
    int status = CLI_OK;
    if (client_open(c, &k) < 0)
        return cli_fail(c);
    for (int i = 1; i < c->count && status == CLI_OK; i++)
        status = submit_one(c, k, c->arguments[i]);
    client_free(k);
    return status;
}

static int delete_all(struct cli *c) {
    for (int i = 1; i < c->count; i++) {
        struct reply reply;
        cleanup_query struct query q = {0};
        path_of(c, c->arguments[i], &q);
        int status = client_request(c, "DELETE", buf_str(&q.text), NULL, &reply);
        if (status != CLI_OK)
            return status;
        if (c->json)
            printf("%s\n", reply.text);
        else
            printf("%s %s deleted\n", is_draft(c) ? "Draft" : "Template", c->arguments[i]);
    }
    return CLI_OK;
}

// Whether an option means something to an action; save takes all of submit.
static bool applies(const char *what, const char *option) {
    static const char *const takes[][2] = {
        {"submit", "keep"}, {"submit", "export"}, {"submit", "env"}, {"show", "share"}, {"delete", "share"}};
    bool common = streq(option, "json") || streq(option, "help");
    if (common || streq(what, "save"))
        return common || !streq(option, "keep");
    for (size_t i = 0; i < sizeof takes / sizeof *takes; i++)
        if (streq(what, takes[i][0]) && streq(option, takes[i][1]))
            return true;
    return false;
}

static int check_options(struct cli *c, const char *what) {
    for (uint32_t i = 0; i < c->options.values.len; i++) {
        const char *option = c->options.values.at[i].option->name;
        if (!applies(what, option))
            return cli_usage(c, "--%s has no effect on %s %s; give it to %s", option, c->verb->name, what,
                             streq(option, "keep") ? "submit" : "save");
    }
    return CLI_OK;
}

static int run(struct cli *c) {
    const char *what = c->count ? c->arguments[0] : "list";
    if (streq(what, "list") && c->count <= 1)
        return list(c);
    if (streq(what, "list"))
        return cli_usage(c, "unexpected argument \"%.40s\"", c->arguments[1]);
    bool known = streq(what, "show") || streq(what, "save") || streq(what, "delete") ||
                 (streq(what, "submit") && is_draft(c));
    if (!known)
        return cli_usage(c, "unknown action \"%.40s\"; use list, show, save%s or delete", what,
                         is_draft(c) ? ", submit" : "");
    if (c->count < 2)
        return cli_usage(c, "%s needs the name of a %s; see acequia %s list", what, c->verb->name,
                         c->verb->name);
    int status = check_options(c, what);
    if (status != CLI_OK)
        return status;
    if (streq(what, "show") && c->count > 2)
        return cli_usage(c, "unexpected argument \"%.40s\"", c->arguments[2]);
    return streq(what, "show")     ? show(c)
           : streq(what, "save")   ? save(c)
           : streq(what, "submit") ? submit(c)
                                   : delete_all(c);
}

const struct verb verb_draft = {
    .name = "draft",
    .group = "Work",
    .arguments = "[list]\nshow NAME\nsave NAME [options] SCRIPT\nsave NAME [options] -- COMMAND "
                 "[arguments...]\nsubmit NAME...\ndelete NAME...",
    .summary = "keep jobs that are not submitted yet",
    .text =
        "Save takes the options of submit and keeps script, options and working directory with the "
        "controller; "
        "nothing is checked or run before it is submitted. The portal shows drafts in the table of jobs as "
        "\"not submitted\" and opens them in its composer. Nobody else sees them. Submitting gives the job "
        "the environment of that moment and deletes the draft.",
    .examples =
        "acequia draft save night -g 4 -t 8h train.sh\nacequia draft list\nacequia draft submit night",
    .options = {&draft_options, &job_resource_options, &job_control_options, &cli_common_options},
    .run = run,
    .complete = "list show save submit delete",
    .most = -1,
};

const struct verb verb_template = {
    .name = "template",
    .group = "Work",
    .arguments =
        "[list]\nshow NAME [--share PROJECT]\nsave NAME [options] SCRIPT\nsave NAME [options] -- COMMAND "
        "[arguments...]\ndelete NAME... [--share PROJECT]",
    .summary = "keep jobs to begin others from",
    .text =
        "Save takes the options of submit and keeps script and options with the controller, for yourself or "
        "with --share for the members of a project. submit, run and when begin from one with --template "
        "NAME: "
        "options of the command line take precedence, and without a script submit runs that of the "
        "template. Some templates come with Acequia. Templates of options alone can also be kept in your own "
        "file, see acequia config set; those are found first.",
    .examples =
        "acequia template save big -g 8 -t 1d train.sh\nacequia template save eval --share vision eval.sh\n"
        "acequia submit --template big\nacequia submit --template eval -g 2 other.sh",
    .options = {&template_options, &job_resource_options, &job_control_options, &cli_common_options},
    .run = run,
    .complete = "list show save delete",
    .most = -1,
};
