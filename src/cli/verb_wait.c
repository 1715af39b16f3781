// acequia wait
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/job_wait.h"
#include "cli/verbs.h"
#include "model/units.h"

enum { WAIT_ROUND_S = 60 };

static const struct option_spec specs[] = {
    {"timeout", 't', "DURATION", "Give up after this time; a bare number is seconds.", 0, NULL, NULL},
    {"quiet", 'Q', NULL, "Print nothing.", 0, NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("Options", specs);

int job_exit_status(const struct json *job) {
    int64_t code = json_i64(job, "exit_code", 0), signal = json_i64(job, "exit_signal", 0);
    if (streq(json_str(job, "state"), "COMPLETED"))
        return CLI_OK;
    if (signal > 0 && signal < 128)
        return 128 + (int)signal;
    return code > 0 && code < 256 ? (int)code : CLI_FAILED;
}

int job_wait(struct cli *c, struct client *k, const char *id, int64_t timeout_ms) {
    int64_t deadline = timeout_ms < 0 ? INT64_MAX : clock_mono_ms() + timeout_ms;
    for (;;) {
        int64_t left = deadline == INT64_MAX ? WAIT_ROUND_S : (deadline - clock_mono_ms() + 999) / 1000;
        struct reply reply;
        cleanup_query struct query q;
        if (left < 0)
            left = 0;
        query_begin(&q, arena_printf(&c->arena, "/v1/jobs/%s/wait", id));
        query_addf(&q, "timeout_s", "%lld", (long long)(left < WAIT_ROUND_S ? left : WAIT_ROUND_S));
        int r = client_call_timeout(k, "GET", buf_str(&q.text), NULL, (WAIT_ROUND_S + 30) * 1000, &reply);
        if (r == -EAGAIN || r == -ECONNREFUSED || r == -EPIPE || r == -ECONNRESET) {
            // The controller is being restarted: the job is not lost, so go on waiting.
            if (clock_mono_ms() >= deadline)
                return cli_fail(c);
            usleep(500000);
            continue;
        }
        if (r < 0)
            return cli_fail(c);
        if (reply.status == 200) {
            const char *state = json_str(reply.json, "state"), *reason = json_str(reply.json, "reason");
            if (c->json)
                printf("%s\n", reply.text);
            else if (!streq(state, "COMPLETED"))
                cli_note("job %s: %s%s%s", id, state ? state : "ended", str_empty(reason) ? "" : ", ", reason ? reason : "");
            return job_exit_status(reply.json);
        }
        if (clock_mono_ms() >= deadline)
            return cli_failf(c, "job %s has not ended in time", id);
    }
}

static int run(struct cli *c) {
    uint32_t seconds = DURATION_UNLIMITED;
    if (option_duration(&c->options, "timeout", 1, &seconds, &c->error) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    struct client *k;
    if (client_open(c, &k) < 0)
        return cli_fail(c);
    int status = CLI_OK;
    int64_t end = seconds == DURATION_UNLIMITED ? -1 : clock_mono_ms() + (int64_t)seconds * 1000;
    for (int i = 0; i < c->count; i++) {
        int64_t left = end < 0 ? -1 : end - clock_mono_ms();
        int one = job_wait(c, k, c->arguments[i], left < 0 && end >= 0 ? 0 : left);
        if (status == CLI_OK)
            status = one;
    }
    client_free(k);
    return status;
}

const struct verb verb_wait = {
    .name = "wait",
    .group = "Work",
    .arguments = "[options] JOB...",
    .summary = "wait until jobs have ended; the exit status is theirs",
    .text = "Of several jobs the first that failed gives the exit status. An array is waited for as a whole.",
    .examples = "acequia wait 12 && acequia logs 12",
    .options = {&table, &common_options},
    .run = run,
    .complete = "@job",
    .least = 1,
    .most = -1,
};
