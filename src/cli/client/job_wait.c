// Waits until jobs have ended, across restarts of the controller.
#include "cli/client/job_wait.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "model/job.h"

enum { WAIT_ROUND_S = 60, RESTART_PAUSE_US = 500000 };

int client_job_exit_status(const struct json *job) {
    int64_t code = json_i64(job, "exit_code", 0), signal = json_i64(job, "exit_signal", 0);
    if (streq(json_str(job, "state"), "COMPLETED"))
        return CLI_OK;
    if (signal > 0 && signal < 128)
        return 128 + (int)signal;
    return code > 0 && code < 256 ? (int)code : CLI_FAILED;
}

struct waiting {
    struct cli *cli;
    struct client *client;
    int64_t deadline_ms;
};

// One round of waiting for one job: 1 with the final record, 0 when it has not ended yet.
static int wait_round(struct waiting *w, const char *id, struct reply *reply) {
    struct cli *c = w->cli;
    int64_t left = w->deadline_ms == INT64_MAX ? WAIT_ROUND_S : (w->deadline_ms - clock_mono_ms() + 999) / 1000;
    cleanup_query struct query q = {0};
    left = left < 0 ? 0 : left > WAIT_ROUND_S ? WAIT_ROUND_S : left;
    client_query_begin(&q, arena_printf(&c->arena, "/v1/jobs/%s/wait", id));
    client_query_addf(&q, "timeout_s", "%lld", (long long)left);
    int r = client_call_timeout(w->client, "GET", buf_str(&q.text), NULL, (WAIT_ROUND_S + 30) * 1000, reply);
    if (r == -EAGAIN || r == -ECONNREFUSED || r == -EPIPE || r == -ECONNRESET) {
        usleep(RESTART_PAUSE_US);  // the controller is being restarted; the job is not lost
        return 0;
    }
    return r < 0 ? r : reply->status == 200;
}

static int wait_one(struct waiting *w, const char *id, struct reply *reply) {
    for (;;) {
        int r = wait_round(w, id, reply);
        if (r != 0)
            return r;
        if (clock_mono_ms() >= w->deadline_ms)
            return error_set(&w->cli->error, ETIMEDOUT, "job %s has not ended within the given time", id);
    }
}

// The first element of an array that is live, or that has ended otherwise than well; NULL: none.
static int find_element(struct waiting *w, const char *id, bool final, const struct json **out) {
    cleanup_query struct query q = {0};
    cleanup_buf struct buf states = {0};
    struct reply reply;
    for (int s = 0; s < JOB_STATE_COUNT; s++)
        if (job_state_final((enum job_state)s) == final && s != JOB_COMPLETED)
            buf_addf(&states, "%s%s", states.len ? "," : "", job_state_words[s]);
    client_query_begin(&q, "/v1/jobs");
    client_query_add(&q, "ids", id);
    client_query_add(&q, "elements", "1");
    client_query_add(&q, "state", buf_str(&states));
    client_query_add(&q, "limit", "1");
    int r = client_call(w->client, "GET", buf_str(&q.text), NULL, &reply);
    const struct json *jobs = r < 0 ? NULL : json_get(reply.json, "jobs");
    *out = jobs && jobs->type == JSON_ARRAY && jobs->len ? &jobs->items[0] : NULL;
    return r;
}

// Until no element is live any more; the result is one that failed, if any did.
static int wait_array(struct waiting *w, const char *id, const struct json **failed) {
    for (;;) {
        struct reply reply;
        const struct json *live;
        int r = find_element(w, id, false, &live);
        if (r < 0)
            return r;
        if (!live)
            return find_element(w, id, true, failed);
        const char *label = json_str(live, "label");
        r = wait_one(w, label ? label : id, &reply);
        if (r < 0)
            return r;
    }
}

static void tell_end(struct cli *c, const char *id, const struct json *job) {
    const char *state = json_str(job, "state"), *reason = json_str(job, "reason");
    if (!streq(state, "COMPLETED"))
        cli_note("job %s: %s%s%s", id, state ? state : "ended", str_empty(reason) ? "" : ", ", reason ? reason : "");
}

int client_job_wait(struct cli *c, struct client *k, const char *id, int64_t timeout_ms, bool quiet) {
    struct waiting w = {c, k, timeout_ms < 0 ? INT64_MAX : clock_mono_ms() + timeout_ms};
    struct reply reply;
    const struct json *failed = NULL;
    if (wait_one(&w, id, &reply) < 0)
        return cli_fail(c);
    const struct json *last = reply.json;
    if (json_true(last, "is_array") && !strchr(id, '_')) {
        if (wait_array(&w, id, &failed) < 0)
            return cli_fail(c);
        if (failed)
            last = failed;
    }
    const char *label = failed ? json_str(failed, "label") : NULL;
    if (c->json)
        printf("%s\n", reply.text);
    else if (!quiet)
        tell_end(c, label ? label : id, last);
    return client_job_exit_status(last);
}
