// acequia logs
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/client/client.h"
#include "cli/client/job_wait.h"
#include "cli/job/columns.h"
#include "cli/job/rows.h"
#include "cli/job/resolve.h"
#include "verbs.h"

enum { LOST_MS = 60 * 1000, AGAIN_US = 300 * 1000, END_WAIT_S = 10 };

static const struct option_spec specs[] = {
    {"follow", 'f', NULL, "Keep printing until the job has ended; waits for it to start.", 0, NULL, NULL},
    {"tail", 'n', "LINES", "Print only the last lines.", 0, "lines", NULL},
    {"error", 'e', NULL, "Standard error, if it has its own file.", 0, "stderr", NULL},
    {"attempt", 0, "NUMBER", "Output of this attempt, from 1; default: the newest.", 0, NULL, NULL},
    {"all", 'a', NULL, "Of an array: the output of every element, each under its id.", 0, NULL, NULL},
    {"exit-status", 'x', NULL, "With --follow: exit with the job's exit status.", 0, NULL, NULL},
    {"node", 'w', "NUMBER", "Output on the job's node with this number, from 0.", 0, NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("Options", specs);

struct log_reading {
    struct cli *cli;
    struct client *client;
    const char *job, *target, *none;  // none: only what comes from now on
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
    if (status != -EAGAIN && status != -ECONNREFUSED && status != -EPIPE && status != -ECONNRESET &&
        status != -ENOTCONN && status != -ENOENT)
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

// `part`: what of it, as "/wait?timeout_s=1".
static int get_job(struct cli *c, struct client *k, const char *job, const char *part, struct reply *reply) {
    cleanup_buf struct buf path = {0};
    buf_adds(&path, "/v1/jobs/");
    http_percent_encode(&path, job);
    buf_adds(&path, part);
    return client_call(k, "GET", buf_str(&path), NULL, reply);
}

// A job that waits to run again has output of before. Its number of attempts, 0: it has none.
static uint32_t earlier_attempt(struct cli *c, struct client *k, const char *job) {
    struct reply reply;
    if (get_job(c, k, job, "", &reply) < 0)
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
        if (pending && earlier_attempt(r->cli, r->client, r->job)) {
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

static int print(struct cli *c, struct client *k, const char *job, const struct log_request *r,
                 struct log_reading *reading) {
    cleanup_query struct query q = {0};
    cleanup_buf struct buf path = {0};
    buf_adds(&path, "/v1/jobs/");
    http_percent_encode(&path, job);
    buf_adds(&path, "/logs");
    client_query_begin(&q, buf_str(&path));
    client_query_add(&q, "follow", option_given(&c->options, "follow") ? "1" : NULL);
    client_query_add(&q, "source", option_given(&c->options, "error") ? "error" : NULL);
    client_query_add(&q, "node", option_get(&c->options, "node"));
    if (r->attempt)
        client_query_addf(&q, "attempt", "%u", r->attempt);
    const char *none = arena_printf(&c->arena, "%s%ctail=0", buf_str(&q.text), q.has ? '&' : '?');
    if (option_given(&c->options, "tail"))
        client_query_addf(&q, "tail", "%u", r->tail);
    *reading = (struct log_reading){.cli = c,
                                    .client = k,
                                    .job = job,
                                    .target = buf_str(&q.text),
                                    .none = none,
                                    .follow = option_given(&c->options, "follow"),
                                    .tail = option_given(&c->options, "tail")};
    return follow(reading);
}

// How the job ended, on standard error. The exit status is that of the job, where it is wanted.
static int report_end(struct cli *c, struct client *k, const char *job) {
    struct reply reply;
    if (get_job(c, k, job, arena_printf(&c->arena, "/wait?timeout_s=%d", END_WAIT_S), &reply) < 0)
        return cli_fail(c);
    const char *state = json_str(reply.json, "state"), *reason = json_str(reply.json, "reason");
    const char *exit = job_exit_text(&c->arena, state, json_i64(reply.json, "exit_code", 0),
                                     json_i64(reply.json, "exit_signal", 0));
    cleanup_buf struct buf how = {0};
    if (!str_empty(exit) && !streq(exit, "0"))
        buf_addf(&how, str_has_prefix(exit, "SIG") ? ", ended by %s" : ", exit code %s", exit);
    if (!str_empty(reason) && !streq(reason, "None"))
        buf_addf(&how, ", %s", reason);
    cli_note("job %s: %s%s", job, state ? state : "unknown state", buf_str(&how));
    return option_given(&c->options, "exit-status") ? client_job_exit_status(reply.json) : CLI_OK;
}

// One job or element, from its first line to the report of its end.
static int print_job(struct cli *c, struct client *k, const char *job, struct log_request q, bool *closed) {
    struct log_reading reading;
    int r = print(c, k, job, &q, &reading);
    if (r == -EBUSY && !q.attempt) {
        struct error why = c->error;
        q.attempt = earlier_attempt(c, k, job);
        c->error = why;
        if (q.attempt) {
            cli_note("job %s is queued again; this is the output of attempt %u", job, q.attempt);
            r = print(c, k, job, &q, &reading);
        }
    }
    *closed = reading.closed;
    if (reading.closed && r != -EPIPE)
        return cli_failf(c, "cannot write to standard output: %s", strerror(-r));
    if (reading.closed)
        return CLI_OK;
    if (r < 0)
        return cli_fail(c);
    return reading.follow ? report_end(c, k, job) : CLI_OK;
}

// The ids of an array's elements: the finished and the live ones, in order.
static int find_elements(struct cli *c, struct client *k, const char *array, struct job_rows *rows) {
    cleanup_query struct query q = {0};
    client_query_begin(&q, "/v1/jobs");
    client_query_add(&q, "ids", array);
    client_query_add(&q, "elements", "1");
    client_query_add(&q, "all", "1");
    client_query_add(&q, "compact", "1");
    client_query_add(&q, "fields", "label,state,array_index");
    int r = job_list_fetch(c, k, buf_str(&q.text), 0, rows);
    return r < 0 ? r : job_rows_sort_by(rows, "array_index");
}

static int print_all(struct cli *c, struct client *k, const char *array, const struct log_request *q) {
    struct job_rows rows = {0};
    bool closed = false;
    int status = find_elements(c, k, array, &rows) < 0 ? cli_fail(c) : CLI_OK;
    int label = job_rows_field(&rows, "label"), state = job_rows_field(&rows, "state");
    for (uint32_t i = 0; status != CLI_FAILED && !closed && i < rows.rows.len; i++) {
        const char *id = job_rows_text(rows.rows.at[i], label);
        bool pending = streq(job_rows_text(rows.rows.at[i], state), "PENDING");
        // An elastic job has no output but its workers'.
        if (!id || streq(id, array) || (pending && !option_given(&c->options, "follow")))
            continue;
        printf("%s==> %s <==\n", i ? "\n" : "", id);
        fflush(stdout);
        int one = print_job(c, k, id, *q, &closed);
        status = status == CLI_OK ? one : status;
    }
    vec_done(&rows.rows);
    return status;
}

static int run(struct cli *c) {
    struct log_request q = {0};
    struct client *k;
    struct reply reply;
    bool closed;
    if (option_u32(&c->options, "tail", 0, 1000000000, &q.tail, &c->error) < 0 ||
        option_u32(&c->options, "node", 0, 65535, &q.node, &c->error) < 0 ||
        option_u32(&c->options, "attempt", 1, UINT32_MAX, &q.attempt, &c->error) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    if (client_open(c, &k) < 0)
        return cli_fail(c);
    const char *job = c->arguments[0];
    // Whether it is an array is asked only where no element is named.
    bool known = !strpbrk(job, "_+") && get_job(c, k, job, "", &reply) == 0;
    bool array = known && json_true(reply.json, "is_array");
    const struct json *members = known ? json_get(reply.json, "members") : NULL;
    uint32_t workers = members && members->type == JSON_ARRAY ? members->len : 0;
    int status;
    if ((array || workers) && option_given(&c->options, "all")) {
        status = print_all(c, k, job, &q);
    } else {
        if (workers > 1)
            cli_note(
                "job %s has %u workers; this is the output of the first that runs. Of another: acequia logs "
                "%s+1; of every one: acequia logs --all %s",
                job, workers, job, job);
        if (array) {
            const char *element =
                arena_printf(&c->arena, "%s_%lld", job, (long long)json_i64(reply.json, "array_index", 0));
            cli_note("job %s is an array; this is the output of %s. For every element: acequia logs --all %s", job,
                     element, job);
            job = element;
        }
        status = print_job(c, k, job, q, &closed);
    }
    client_free(k);
    return status;
}

const struct verb verb_logs = {
    .name = "logs",
    .group = "Work",
    .arguments = "[options] JOB",
    .summary = "print the output of a job",
    .text = "Each attempt of a job that is run again replaces the output of the one before, unless it was "
            "submitted with --append; only the output of "
            "`acequia run` is kept for each. While a job waits to run again, that of its last attempt is "
            "printed. With --follow the state at the end is printed on standard error.",
    .examples =
        "acequia logs -f 12\nacequia logs --tail 20 12_3\nacequia logs --all 12\nacequia logs --attempt 1 12",
    .options = {&table, &job_pick_options, &cli_common_options},
    .run = run,
    .complete = "@job",
    .least = 1,
    .most = 1,
    .jobs = VERB_JOB_FIRST,
};
