// Owns requests that act on jobs and the report of what came of them.
#include "cli/job/action.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/map.h"
#include "base/text.h"
#include "cli/client/client.h"

static const struct option_spec specs[] = {
    {"user", 'u', "NAME", "Jobs of this user.", 0, NULL, NULL},
    {"project", 'P', "NAME", "Jobs of this project.", 0, NULL, "@project"},
    {"partition", 'p', "NAME", "Jobs of this partition.", 0, NULL, "@partition"},
    {"qos", 'q', "NAME", "Jobs of this QoS.", 0, NULL, "@qos"},
    {"name", 'J', "NAME", "Jobs of this name.", 0, NULL, NULL},
    {"state", 's', "STATES", "Jobs in these states.", 0, NULL, "PENDING RUNNING SUSPENDED"},
    {"all", 0, NULL, "All my jobs; administrators, with --user: all jobs of that user.", 0, NULL, NULL},
};
const struct option_table job_filter_options = OPTION_TABLE("Which jobs, instead of ids", specs);

const char *job_states_text(struct arena *a, const char *states) {
    char *text = states ? arena_strdup(a, states) : NULL;
    for (char *p = text; p && *p; p++)
        *p = *p >= 'a' && *p <= 'z' ? (char)(*p - 32) : *p;
    return text;
}

static bool write_filters(struct cli *c, struct json_writer *w) {
    static const char *const names[] = {"user", "project", "partition", "qos", "name", "state"};
    bool any = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = option_get(&c->options, names[i]);
        if (value) {
            json_kv_str(w, names[i], streq(names[i], "state") ? job_states_text(&c->arena, value) : value);
            any = true;
        }
    }
    if (option_given(&c->options, "all")) {
        json_kv_bool(w, "all", true);
        any = true;
    }
    return any;
}

int job_action_report(struct cli *c, const struct reply *reply, const char *done, job_action_mend_fn mend,
                      void *ctx) {
    cleanup_buf struct buf out = {0};
    const struct json *errors = json_get(reply->json, "errors");
    uint32_t refused = errors && errors->type == JSON_ARRAY ? errors->len : 0, failed = 0;
    long long count = (long long)json_i64(reply->json, "done", 0);
    if (c->json) {
        buf_addf(&out, "%s\n", reply->text);
        int status = cli_print(&out);
        return refused ? CLI_FAILED : status;
    }
    for (uint32_t i = 0; i < refused; i++) {
        const struct json *one = &errors->items[i], *inner = json_get(one, "error");
        const char *id = json_str(one, "id"), *message = json_str(inner ? inner : one, "message");
        if (mend && id && mend(ctx, id, json_str(inner ? inner : one, "code")))
            continue;
        failed++;
        message = message ? cli_field_options(c, message) : NULL;
        // Some messages name the job themselves, others do not.
        bool named = id && message && strstr(message, arena_printf(&c->arena, "job %s", id));
        if (named)
            cli_note("%s", message);
        else
            cli_note("job %s: %s", id ? id : "?", message ? message : "failed");
    }
    const struct json *notes = json_get(reply->json, "notes");
    long long same = (long long)json_i64(reply->json, "unchanged", 0), said = 0;
    for (uint32_t i = 0; notes && notes->type == JSON_ARRAY && i < notes->len; i++)
        if (notes->items[i].type == JSON_STRING) {
            cli_note("%s", notes->items[i].s);
            said++;
        }
    if (same > said)
        cli_note("%lld more %s so already", same - said, same - said == 1 ? "job was" : "jobs were");
    if (!count && !refused && !same)
        buf_adds(&out, "No matching jobs\n");
    else if (count)
        buf_addf(&out, "%lld %s %s\n", count, count == 1 ? "job" : "jobs", done);
    cli_print(&out);
    return failed ? CLI_FAILED : CLI_OK;
}

// A filter beside ids; --project is none there: it says which job of a name is meant.
static const char *filter_given(const struct cli *c) {
    static const char *const names[] = {"user", "partition", "qos", "name", "state", "all"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (option_given(&c->options, names[i]))
            return names[i];
    return NULL;
}

int job_action_ask(struct cli *c, const char *action, job_action_fn more, struct reply *out) {
    cleanup_buf struct buf body = {0};
    struct json_writer w = {.out = &body};
    struct strmap seen = {0};
    if (c->count && filter_given(c))
        return cli_usage(c, "give either jobs or --%s, not both: nothing was done", filter_given(c));
    json_open(&w, '{');
    if (c->count) {
        json_open_key(&w, "ids", '[');
        for (int i = 0; i < c->count; i++)
            if (!strmap_get(&seen, c->arguments[i])) {  // a job named twice is acted on once
                json_put_str(&w, c->arguments[i]);
                strmap_put(&seen, c->arguments[i], c->arguments[i]);
            }
        json_close(&w, ']');
    }
    strmap_done(&seen);
    bool filtered = write_filters(c, &w);
    if (!filtered && !c->count)
        return cli_usage(c, "%s needs jobs: ids, or a filter such as --name or --all", c->verb->name);
    if (more && more(c, &w) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    json_close(&w, '}');
    return client_post(c, arena_printf(&c->arena, "/v1/jobs/%s", action), &body, out);
}

int job_action(struct cli *c, const char *action, const char *done, job_action_fn more) {
    struct reply reply;
    int status = job_action_ask(c, action, more, &reply);
    return status == CLI_OK ? job_action_report(c, &reply, done, NULL, NULL) : status;
}
