// acequia logs
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>

#include "base/text.h"
#include "cli/client/client.h"
#include "cli/client/session.h"
#include "cli/job/columns.h"
#include "cli/job/rows.h"
#include "cli/job/resolve.h"
#include "verbs.h"

static const struct option_spec specs[] = {
    {"follow", 'f', NULL, "Keep printing until the job has ended; waits for it to start.", 0, NULL, NULL},
    {"tail", 'n', "LINES", "Print only the last lines.", 0, "lines", NULL},
    {"error", 'e', NULL, "Standard error, if it has its own file.", 0, "stderr", NULL},
    {"attempt", 0, "NUMBER", "Output of this attempt, from 1; default: the newest.", 0, NULL, NULL},
    {"all", 'a', NULL, "Of an array: the output of every element, each under its id.", 0, NULL, NULL},
    {"exit-status", 'x', NULL, "With --follow: exit with the job's exit status.", 0, NULL, NULL},
    {"times", 'T', NULL, "Begin each line with the time when it was written.", 0, "timestamps", NULL},
    {"node", 'w', "NUMBER", "Output on the job's node with this number, from 0.", 0, NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("Options", specs);

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

struct log_request {
    uint32_t tail, node, attempt;
    bool follow;
};

static void write_target(struct cli *c, const char *job, const struct log_request *r, bool tail,
                         struct query *q) {
    cleanup_buf struct buf path = {0};
    buf_adds(&path, "/v1/jobs/");
    http_percent_encode(&path, job);
    buf_adds(&path, "/logs");
    client_query_begin(q, buf_str(&path));
    bool times = option_given(&c->options, "times");
    client_query_add(q, "follow", r->follow ? "1" : times ? "0" : NULL);
    client_query_add(q, "times", times ? "1" : NULL);
    client_query_add(q, "source", option_given(&c->options, "error") ? "error" : NULL);
    client_query_add(q, "node", option_get(&c->options, "node"));
    if (r->attempt)
        client_query_addf(q, "attempt", "%u", r->attempt);
    if (tail && option_given(&c->options, "tail"))
        client_query_addf(q, "tail", "%u", r->tail);
}

struct log_output {
    bool closed;  // whoever reads our output has gone
};

static int take(void *arg, const char *data, size_t len) {
    int status = client_to_output(NULL, data, len);
    ((struct log_output *)arg)->closed = status < 0;
    return status;
}

// What is there now. -EBUSY: nothing yet.
static int print(struct cli *c, struct client *k, const char *job, const struct log_request *r,
                 bool *closed) {
    cleanup_query struct query q = {0};
    struct log_output out = {0};
    write_target(c, job, r, true, &q);
    int status = client_stream(k, buf_str(&q.text), -1, take, &out);
    *closed = out.closed;
    return status;
}

// How the job ended, on standard error. The exit status is that of the job, where it is wanted.
static int report_end(struct cli *c, const char *job, const struct client_session *s, int status) {
    const char *exit = job_exit_text(&c->arena, s->state, s->exit_code, s->exit_signal);
    cleanup_buf struct buf how = {0};
    if (!str_empty(exit) && !streq(exit, "0"))
        buf_addf(&how, str_has_prefix(exit, "SIG") ? ", ended by %s" : ", exit code %s", exit);
    if (!str_empty(s->reason) && !streq(s->reason, "None"))
        buf_addf(&how, ", %s", s->reason);
    cli_note("job %s: %s%s", job, s->state, buf_str(&how));
    return option_given(&c->options, "exit-status") ? status : s->missing ? CLI_FAILED : CLI_OK;
}

// Until the job has ended, or with times alone to what is there now, over restarts of the daemons and over cuts.
static int follow(struct cli *c, const char *job, const struct log_request *r, bool *closed) {
    cleanup_query struct query q = {0};
    write_target(c, job, r, false, &q);
    const char *tail = option_given(&c->options, "tail") ? arena_printf(&c->arena, "tail=%u", r->tail) : NULL;
    struct client_session s = {.cli = c,
                               .kind = SESSION_LOGS,
                               .target = buf_str(&q.text),
                               .last_lines = tail,
                               .times = option_given(&c->options, "times"),
                               .once = !r->follow,
                               .id = strtoll(job, NULL, 10)};
    int status = client_session_run(&s);
    *closed = s.closed;
    return s.closed || s.once || !*s.state ? status : report_end(c, job, &s, status);
}

// One job or element, from its first line to the report of its end.
static int print_job(struct cli *c, struct client *k, const char *job, struct log_request q, bool *closed) {
    uint32_t earlier = q.attempt ? 0 : earlier_attempt(c, k, job);
    *closed = false;
    if (earlier) {
        q.attempt = earlier;
        q.follow = false;
        cli_note("job %s is queued again; this is the output of attempt %u", job, q.attempt);
    }
    if (option_given(&c->options, "times") || q.follow)
        return follow(c, job, &q, closed);
    int r = print(c, k, job, &q, closed);
    if (*closed && r != -EPIPE)
        return cli_failf(c, "cannot write to standard output: %s", strerror(-r));
    return *closed || r == 0 ? CLI_OK : cli_fail(c);
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
    struct log_request q = {.follow = option_given(&c->options, "follow")};
    struct client *k;
    struct reply reply;
    bool closed;
    if (option_u32(&c->options, "tail", 0, 1000000000, &q.tail, &c->error) < 0 ||
        option_u32(&c->options, "node", 0, 65535, &q.node, &c->error) < 0 ||
        option_u32(&c->options, "attempt", 1, UINT32_MAX, &q.attempt, &c->error) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    if (option_given(&c->options, "exit-status") && !option_given(&c->options, "follow"))
        return cli_usage(c, "--exit-status needs --follow");
    if (client_open(c, &k) < 0)
        return cli_fail(c);
    const char *job = c->arguments[0];
    // Whether it is an array is asked only where no element is named.
    bool known = !strpbrk(job, "_+") && get_job(c, k, job, "", &reply) == 0;
    bool array =
        known && json_true(reply.json, "is_array") &&
        json_i64(reply.json, "id", 0) == json_i64(reply.json, "array_id", 0);  // not another element's number
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
    .text = "A job that is run again appends to its output, unless it was submitted with --truncate; the "
            "output of "
            "`acequia run` is kept for each attempt apart. While a job waits to run again, that of its last "
            "attempt "
            "is printed. With --follow the state at the end is printed on standard error.",
    .examples = "acequia logs -f 12\nacequia logs --tail 20 12_3\nacequia logs --times 12\nacequia logs "
                "--all 12\nacequia logs --attempt 1 12",
    .options = {&table, &job_pick_options, &cli_common_options},
    .run = run,
    .complete = "@job",
    .least = 1,
    .most = 1,
    .jobs = VERB_JOB_FIRST,
};
