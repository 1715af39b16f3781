// acequia update
#include "base/text.h"
#include "cli/client/client.h"
#include "cli/job/action.h"
#include "cli/job/options.h"
#include "verbs.h"

// Only what was given is sent: an absent field stays as it is. Words with a default (class, launch)
// are always written by the table, so they are taken out unless asked for.
static int write_changes(struct cli *c, struct json_writer *w) {
    cleanup_buf struct buf text = {0};
    struct json_writer inner = {.out = &text};
    struct json *j;
    struct spec s;
    int r = job_spec(c, &c->options, &s);
    if (r < 0)
        return r;
    if (!option_given(&c->options, "chdir"))
        s.workdir = NULL;
    schema_write_json(&spec_schema, &s, &inner);
    r = json_parse(buf_str(&text), text.len, &c->arena, &j, &c->error);
    if (r < 0)
        return r;
    json_key(w, "spec");
    json_open(w, '{');
    for (uint32_t i = 0; i < j->len; i++) {
        const char *key = j->members[i].key;
        if (streq(key, "launch") || (streq(key, "class") && !option_given(&c->options, "interactive")))
            continue;
        json_key(w, key);
        json_write(w, &j->members[i].value);
    }
    if (option_given(&c->options, "dependency") && !s.dependency)
        json_kv_str(w, "dependency", "");
    if (option_given(&c->options, "no-requeue"))
        json_kv_bool(w, "requeue", false);
    json_close(w, '}');
    return 0;
}

static int run(struct cli *c) {
    cleanup_buf struct buf body = {0};
    struct json_writer w = {.out = &body};
    struct reply reply;
    json_open(&w, '{');
    json_key(&w, "ids");
    json_open(&w, '[');
    for (int i = 0; i < c->count; i++)
        json_put_str(&w, c->arguments[i]);
    json_close(&w, ']');
    if (write_changes(c, &w) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    json_close(&w, '}');
    int status = client_post(c, "/v1/jobs/update", &body, &reply);
    return status == CLI_OK ? job_action_report(c, &reply, "changed") : status;
}

const struct verb verb_update = {
    .name = "update",
    .group = "Work",
    .arguments = "JOB... [options]",
    .summary = "change pending and running jobs",
    .text = "Accepts the options of submit; what is not given stays unchanged.",
    .examples = "acequia update 12 --time 4h --nice 10",
    .options = {&job_resource_options, &job_control_options, &common_options},
    .run = run,
    .complete = "@job",
    .least = 1,
    .most = -1,
};
