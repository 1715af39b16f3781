// acequia requeue. A job that has ended is in the history, which does not change: it is submitted again as a new one.
#include <string.h>

#include "base/text.h"
#include "base/vec.h"
#include "cli/job/action.h"
#include "cli/job/resubmit.h"
#include "verbs.h"

static const struct option_spec specs[] = {
    {"hold", 'H', NULL, "Hold them in the queue.", 0, NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("Options", specs);

static int more(struct cli *c, struct json_writer *w) {
    if (option_given(&c->options, "hold"))
        json_kv_bool(w, "hold", true);
    return 0;
}

struct resubmitted {
    const char *id;
    int64_t new_id, count;
};

struct requeue {
    struct cli *cli;
    struct client *client;
    VEC(struct resubmitted) again;
    bool failed;
};

static bool has_ended(const char *code) {
    return streq(code, "EALREADY");
}

static const struct json *error_of(const struct json *one) {
    const struct json *inner = json_get(one, "error");
    return inner ? inner : one;
}

static void submit_again(struct requeue *q, const char *id) {
    struct cli *c = q->cli;
    struct job_resubmit wish = {.id = id, .hold = option_given(&c->options, "hold")};
    struct reply r;
    if ((!q->client && client_open(c, &q->client) < 0) || job_resubmit(c, q->client, &wish, &r) < 0) {
        q->failed = true;
        cli_note("job %s has ended, and cannot be submitted again: %s", id, c->error.text);
        return;
    }
    vec_push(&q->again, ((struct resubmitted){id, json_i64(r.json, "id", 0), json_i64(r.json, "count", 1)}));
}

// In text mode those that had ended were reported already.
static bool reported(void *ctx, const char *id, const char *code) {
    return has_ended(code);
}

static int report_text(struct requeue *q, const struct reply *reply) {
    cleanup_buf struct buf out = {0};
    for (uint32_t i = 0; i < q->again.len; i++) {
        const struct resubmitted *r = &q->again.at[i];
        buf_addf(&out, "Job %s had ended: submitted again as job %lld", r->id, (long long)r->new_id);
        if (r->count > 1)
            buf_addf(&out, ", %lld elements", (long long)r->count);
        buf_adds(&out, "\n");
    }
    int status = cli_print(&out), rest = job_action_report(q->cli, reply, "queued again", reported, q);
    return q->failed ? CLI_FAILED : rest ? rest : status;
}

static int report_json(struct requeue *q, const struct reply *reply) {
    cleanup_buf struct buf out = {0};
    struct json_writer w = {.out = &out};
    const struct json *errors = json_get(reply->json, "errors");
    static const char *const same[] = {"matched", "done", "unchanged", "notes"};
    bool failed = q->failed;
    json_open(&w, '{');
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (json_get(reply->json, same[i])) {
            json_key(&w, same[i]);
            json_write(&w, json_get(reply->json, same[i]));
        }
    json_open_key(&w, "resubmitted", '[');
    for (uint32_t i = 0; i < q->again.len; i++) {
        json_open(&w, '{');
        json_kv_str(&w, "id", q->again.at[i].id);
        json_kv_i64(&w, "new_id", q->again.at[i].new_id);
        json_kv_i64(&w, "count", q->again.at[i].count);
        json_close(&w, '}');
    }
    json_close(&w, ']');
    json_open_key(&w, "errors", '[');
    for (uint32_t i = 0; errors && errors->type == JSON_ARRAY && i < errors->len; i++)
        if (!has_ended(json_str(error_of(&errors->items[i]), "code"))) {
            json_write(&w, &errors->items[i]);
            failed = true;
        }
    json_close(&w, ']');
    json_close(&w, '}');
    buf_adds(&out, "\n");
    int status = cli_print(&out);
    return failed ? CLI_FAILED : status;
}

static int run(struct cli *c) {
    struct requeue q = {.cli = c};
    struct reply reply;
    int status = job_action_ask(c, "requeue", more, &reply);
    if (status != CLI_OK)
        return status;
    const struct json *errors = json_get(reply.json, "errors");
    for (uint32_t i = 0; errors && errors->type == JSON_ARRAY && i < errors->len; i++)
        if (has_ended(json_str(error_of(&errors->items[i]), "code")))
            submit_again(&q, json_str(&errors->items[i], "id"));
    status = c->json ? report_json(&q, &reply) : report_text(&q, &reply);
    vec_done(&q.again);
    client_free(q.client);
    return status;
}

const struct verb verb_requeue = {
    .name = "requeue",
    .group = "Work",
    .arguments = "[options] JOB...",
    .summary = "run jobs again from their beginning",
    .text =
        "A running job is stopped and queued again under its number; ACEQUIA_RESTART_COUNT holds the number "
        "of "
        "restarts. A pending job is reported and is no error. A job that has ended keeps its number and its "
        "record, and is submitted again as a new job, whose number is printed; acequia resubmit does the "
        "same "
        "and can change options. Of an array that has not ended as a whole, only elements that have not "
        "ended "
        "are meant; acequia resubmit --failed runs those again that failed.",
    .examples = "acequia requeue 12",
    .options = {&table, &job_filter_options, &cli_common_options},
    .run = run,
    .complete = "@job",
    .most = -1,
    .jobs = VERB_JOBS,
};
