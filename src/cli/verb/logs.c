// acequia logs
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/client/client.h"
#include "verbs.h"

enum { LOST_MS = 60 * 1000, AGAIN_US = 300 * 1000 };

static const struct option_spec specs[] = {
    {"follow", 'f', NULL, "Keep printing until the job has ended; waits for it to start.", 0, NULL, NULL},
    {"tail", 'n', "LINES", "Print only the last lines.", 0, "lines", NULL},
    {"error", 'e', NULL, "Standard error, if it has its own file.", 0, "stderr", NULL},
    {"attempt", 0, "NUMBER", "Output of this attempt, from 1; default: the newest.", 0, NULL, NULL},
    {"node", 'w', "NUMBER", "Output on the job's node with this number, from 0.", 0, NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("Options", specs);

struct log_reading {
    struct cli *cli;
    struct client *client;
    const char *target, *none;  // none: only what comes from now on
    bool follow, tail;
    bool told_pending, told_lost;
    bool closed;          // whoever reads our output has gone
    uint64_t shown, skip;  // bytes; those to leave out after a new connection
    int64_t lost_ms;      // since when the controller does not answer; 0: it does
};

static int take(void *arg, const char *data, size_t len) {
    struct log_reading *r = arg;
    size_t skip = r->skip < len ? (size_t)r->skip : len;
    r->skip -= skip;
    r->lost_ms = 0;
    int status = client_to_output(NULL, data + skip, len - skip);
    r->closed = status < 0;
    r->shown += len - skip;
    return status;
}

// The controller is being restarted, or a node is away: the output lies where it was.
static bool try_again(struct log_reading *r, int status) {
    if (status != -EAGAIN && status != -ECONNREFUSED && status != -EPIPE && status != -ECONNRESET && status != -ENOENT)
        return false;
    if (status == -ENOENT && !r->lost_ms)
        return false;
    if (!r->lost_ms)
        r->lost_ms = clock_mono_ms();
    if (clock_mono_ms() - r->lost_ms > LOST_MS)
        return false;
    if (!r->told_lost && r->tail)
        cli_note("the connection was lost; lines written meanwhile are missing");
    r->told_lost = true;
    return true;
}

// A job that waits to run again has output of before. Its number of attempts, 0: it has none.
static uint32_t earlier_attempt(struct cli *c, struct client *k) {
    cleanup_buf struct buf path = {0};
    struct reply reply;
    buf_adds(&path, "/v1/jobs/");
    http_percent_encode(&path, c->arguments[0]);
    if (client_call(k, "GET", buf_str(&path), NULL, &reply) < 0 || reply.status != 200)
        return 0;
    int64_t n = json_i64(reply.json, "attempt", 0);
    return streq(json_str(reply.json, "state"), "PENDING") && n > 0 ? (uint32_t)n : 0;
}

static int follow(struct log_reading *r) {
    for (;;) {
        int status = client_stream(r->client, r->target, -1, take, r);
        bool pending = status == -EBUSY;
        if (!r->follow || status == 0 || r->closed || (!pending && !try_again(r, status)))
            return status;
        struct error why = r->cli->error;
        if (pending && earlier_attempt(r->cli, r->client)) {
            r->cli->error = why;
            return status;
        }
        if (pending && !r->told_pending)
            cli_note("%s; waiting for its output", why.text);
        r->told_pending |= pending;
        if (!pending) {
            r->skip = r->tail ? 0 : r->shown;
            r->target = r->tail ? r->none : r->target;
        }
        usleep(AGAIN_US);
    }
}

struct log_request {
    uint32_t tail, node, attempt;
};

static int print(struct cli *c, struct client *k, const struct log_request *r, struct log_reading *reading) {
    cleanup_query struct query q = {0};
    cleanup_buf struct buf path = {0};
    buf_adds(&path, "/v1/jobs/");
    http_percent_encode(&path, c->arguments[0]);
    buf_adds(&path, "/logs");
    query_begin(&q, buf_str(&path));
    query_add(&q, "follow", option_given(&c->options, "follow") ? "1" : NULL);
    query_add(&q, "source", option_given(&c->options, "error") ? "error" : NULL);
    query_add(&q, "node", option_get(&c->options, "node"));
    if (r->attempt)
        query_addf(&q, "attempt", "%u", r->attempt);
    const char *none = arena_printf(&c->arena, "%s&tail=0", buf_str(&q.text));
    if (option_given(&c->options, "tail"))
        query_addf(&q, "tail", "%u", r->tail);
    *reading = (struct log_reading){.cli = c,
                                .client = k,
                                .target = buf_str(&q.text),
                                .none = none,
                                .follow = option_given(&c->options, "follow"),
                                .tail = option_given(&c->options, "tail")};
    return follow(reading);
}

static int run(struct cli *c) {
    struct log_request q = {0};
    struct client *k;
    if (option_u32(&c->options, "tail", 0, 1000000000, &q.tail, &c->error) < 0 ||
        option_u32(&c->options, "node", 0, 65535, &q.node, &c->error) < 0 ||
        option_u32(&c->options, "attempt", 1, UINT32_MAX, &q.attempt, &c->error) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    if (client_open(c, &k) < 0)
        return cli_fail(c);
    struct log_reading reading;
    int r = print(c, k, &q, &reading);
    if (r == -EBUSY && !q.attempt) {
        struct error why = c->error;
        q.attempt = earlier_attempt(c, k);
        c->error = why;
        if (q.attempt) {
            cli_note("job %s is queued again; this is the output of attempt %u", c->arguments[0], q.attempt);
            r = print(c, k, &q, &reading);
        }
    }
    client_free(k);
    if (reading.closed && r != -EPIPE)
        return cli_failf(c, "cannot write to standard output: %s", strerror(-r));
    if (reading.closed)
        return CLI_OK;
    return r < 0 ? cli_fail(c) : CLI_OK;
}

const struct verb verb_logs = {
    .name = "logs",
    .group = "Work",
    .arguments = "[options] JOB",
    .summary = "print the output of a job",
    .text = "Each attempt of a job that is run again replaces the output of the one before, unless it was "
            "submitted with --append; only the output of "
            "`acequia run` is kept for each. While a job waits to run again, that of its last attempt is "
            "printed.",
    .examples = "acequia logs -f 12\nacequia logs --tail 20 12_3\nacequia logs --attempt 1 12",
    .options = {&table, &common_options},
    .run = run,
    .complete = "@job",
    .least = 1,
    .most = 1,
};
