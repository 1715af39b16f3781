// acequia events
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/client/client.h"
#include "cli/term/local_time.h"
#include "cli/term/terminal.h"
#include "cli/job/resolve.h"
#include "verbs.h"
#include "model/gpuspec.h"

enum { LINE_MAX_BYTES = 1 << 20, INDENT = 25, LOST_MS = 60 * 1000, AGAIN_US = 300 * 1000 };

static const struct option_spec specs[] = {
    {"follow", 'f', NULL, "Print new events as they happen; with a job, until it has ended.", 0, NULL, NULL},
    {"after", 0, "NUMBER", "With --follow: start after the event with this number.", 0, NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("Options", specs);

static void add_value(struct buf *out, const struct json *v) {
    cleanup_buf struct buf text = {0};
    struct json_writer w = {.out = &text};
    if (v->type == JSON_STRING) {
        buf_adds(out, v->s);
        return;
    }
    json_write(&w, v);
    buf_add(out, buf_str(&text), text.len);
}

// Where it was placed: the nodes, and what it holds of them together.
static void add_parts(struct buf *out, const struct json *parts) {
    char text[GPU_TEXT_MAX];
    int64_t cpus = 0, milli = 0;
    buf_adds(out, "  nodes=");
    for (uint32_t i = 0; i < parts->len; i++) {
        const struct json *p = &parts->items[i], *gpus = json_get(p, "gpus");
        const char *node = json_str(p, "node");
        buf_addf(out, "%s%s", i ? "," : "", node ? node : "?");
        cpus += json_i64(p, "cpus", 0);
        for (uint32_t g = 0; gpus && gpus->type == JSON_ARRAY && g < gpus->len; g++)
            milli += json_i64(&gpus->items[g], "milli", 0);
    }
    buf_addf(out, "  cpus=%lld", (long long)cpus);
    if (milli)
        buf_addf(out, "  gpus=%s", gpu_milli_format((uint64_t)milli, text));
}

// Which worker of an elastic job was given what.
static void add_workers(struct buf *out, const struct json *workers) {
    buf_adds(out, "  workers=");
    for (uint32_t i = 0; i < workers->len; i++) {
        const struct json *w = &workers->items[i], *part = json_get(w, "part");
        const char *node = part ? json_str(part, "node") : NULL;
        buf_addf(out, "%s+%lld on %s", i ? ", " : "", (long long)json_i64(w, "number", 0), node ? node : "?");
    }
}

// Zero, false, null and empty: what a line for people leaves out.
static bool says_nothing(const struct json *v) {
    switch (v->type) {
    case JSON_NULL: return true;
    case JSON_BOOL: return !v->boolean;
    case JSON_INT: return v->i == 0;
    case JSON_DOUBLE: return v->d == 0;
    case JSON_STRING:
    case JSON_ARRAY:
    case JSON_OBJECT: return v->len == 0;
    default: return false;
    }
}

// "2026-01-31T12:00:00.123  job_placed  attempt=1 …", without what the reader knows already.
static void print_event(const struct json *e, bool with_job, struct buf *out) {
    // share, by_share and claim: of a preemption, for the scheduler; the reason says it in words. epoch: tells
    // the controller which agent may act on the event.
    static const char *const known[] = {"seq", "at_ms", "type", "spec", "usage", "share",
                                        "by_share", "claim", "epoch"};
    char time[UNIT_TEXT_MAX];
    int64_t at = json_i64(e, "at_ms", 0);
    const char *type = json_str(e, "type");
    buf_addf(out, "%s.%03d  %-14s", local_time_format(at, time), (int)(at % 1000), type ? type : "?");
    for (uint32_t i = 0; e->type == JSON_OBJECT && i < e->len; i++) {
        bool skip = (streq(e->members[i].key, "id") && !with_job) || says_nothing(&e->members[i].value);
        for (size_t n = 0; n < sizeof known / sizeof *known; n++)
            skip = skip || streq(e->members[i].key, known[n]);
        if (skip)
            continue;
        if (streq(e->members[i].key, "parts") && e->members[i].value.type == JSON_ARRAY) {
            add_parts(out, &e->members[i].value);
            continue;
        }
        if (streq(type, "workers_placed") && streq(e->members[i].key, "workers") &&
            e->members[i].value.type == JSON_ARRAY) {
            add_workers(out, &e->members[i].value);
            continue;
        }
        buf_addf(out, "  %s=", e->members[i].key);
        add_value(out, &e->members[i].value);
    }
    while (out->len && out->data[out->len - 1] == ' ')
        out->len--;
    buf_addc(out, '\n');
}

// For people: lines no longer than the terminal, broken between words and indented.
static void print_shown(const struct json *e, bool with_job, struct buf *out) {
    cleanup_buf struct buf one = {0};
    print_event(e, with_job, &one);
    if (!isatty(STDOUT_FILENO)) {
        buf_add(out, buf_str(&one), one.len);
        return;
    }
    size_t width = (size_t)terminal_width(), at = 0;
    for (const char *p = buf_str(&one); *p && *p != '\n';) {
        size_t gap = strspn(p, " "), len = gap + strcspn(p + gap, " \n"), shown = len;
        if (at > INDENT && at + len > width) {
            buf_addf(out, "\n%*s", INDENT, "");
            at = INDENT;
            p += gap;
            shown -= gap;
        }
        buf_add(out, p, shown);
        at += shown;
        p += shown;
    }
    buf_addc(out, '\n');
}

struct follow {
    struct cli *cli;
    struct buf line;
    const char *after;  // what was seen last, as a number; NULL: nothing yet
    char seq[24];
    int64_t lost_ms;    // since when the controller does not answer; 0: it does
    int64_t job;        // only this one, until it has ended; 0: all
    bool done;
};

// Server-sent events: each "data: {…}" line is one.
static int take_piece(void *arg, const char *data, size_t len) {
    struct follow *f = arg;
    buf_add(&f->line, data, len);
    char *end;
    while ((end = memchr(f->line.data, '\n', f->line.len))) {
        size_t n = (size_t)(end - f->line.data);
        if (n > 6 && str_has_prefix(f->line.data, "data: ")) {
            cleanup_arena struct arena a = {0};
            cleanup_buf struct buf out = {0};
            struct json *j;
            if (json_parse(f->line.data + 6, n - 6, &a, &j, NULL) == 0) {
                snprintf(f->seq, sizeof f->seq, "%lld", (long long)json_i64(j, "seq", 0));
                f->after = f->seq;
                f->lost_ms = 0;
                if (f->cli->json)
                    buf_addf(&out, "%.*s\n", (int)(n - 6), f->line.data + 6);
                else
                    print_shown(j, true, &out);
                cli_print(&out);
                f->done = f->job && json_i64(j, "id", 0) == f->job && streq(json_str(j, "type"), "job_ended");
            }
        }
        buf_drop(&f->line, n + 1);
        if (f->done)
            return -ECANCELED;
    }
    return f->line.len > LINE_MAX_BYTES ? -EMSGSIZE : 0;
}

// The controller is being restarted: go on where it was, for a while.
static bool try_again(struct follow *f, int r) {
    if (r != -ECONNRESET && r != -ECONNREFUSED && r != -EPIPE && r != 0)
        return false;
    int64_t now = clock_mono_ms();
    f->lost_ms = f->lost_ms ? f->lost_ms : now;
    if (now - f->lost_ms > LOST_MS)
        return false;
    buf_clear(&f->line);
    usleep(AGAIN_US);
    return true;
}

// The number of the job that was named, if it has not ended.
static int find_job(struct cli *c, struct client *k, struct follow *f) {
    cleanup_buf struct buf path = {0};
    struct reply reply;
    buf_adds(&path, "/v1/jobs/");
    http_percent_encode(&path, c->arguments[0]);
    int r = client_call(k, "GET", buf_str(&path), NULL, &reply);
    if (r < 0)
        return r;
    if (json_i64(reply.json, "end_ms", 0))
        return error_set(&c->error, EALREADY, "job %.40s has already ended; see acequia events %.40s",
                         c->arguments[0], c->arguments[0]);
    f->job = json_i64(reply.json, "id", 0);
    return 0;
}

static int follow(struct cli *c) {
    struct follow f = {.cli = c, .after = option_get(&c->options, "after")};
    struct client *k;
    int r;
    if (client_open(c, &k) < 0)
        return cli_fail(c);
    if (c->count && find_job(c, k, &f) < 0) {
        client_free(k);
        return cli_fail(c);
    }
    do {
        cleanup_query struct query q = {0};
        client_query_begin(&q, "/v1/events");
        client_query_add(&q, "follow", "1");
        client_query_add(&q, "after", f.after);
        if (f.job)
            client_query_addf(&q, "job", "%lld", (long long)f.job);
        r = client_stream(k, buf_str(&q.text), -1, take_piece, &f);
    } while (!f.done && try_again(&f, r));
    client_free(k);
    buf_done(&f.line);
    if (f.done)
        return CLI_OK;
    if (r == 0)
        return cli_failf(c, "the controller closed the connection");
    return cli_fail(c);
}

static int run(struct cli *c) {
    struct reply reply;
    cleanup_buf struct buf out = {0}, target = {0};
    if (option_given(&c->options, "follow"))
        return follow(c);
    if (option_given(&c->options, "after"))
        return cli_usage(c, "--after needs --follow");
    if (!c->count)
        return cli_usage(c, "events needs a job, or --follow for the whole cluster");
    buf_adds(&target, "/v1/jobs/");
    http_percent_encode(&target, c->arguments[0]);
    buf_adds(&target, "/events");
    int status = client_get(c, buf_str(&target), &reply);
    if (status != CLI_OK)
        return status;
    const struct json *events = json_get(reply.json, "events");
    if (c->json)
        buf_addf(&out, "%s\n", reply.text);
    for (uint32_t i = 0; !c->json && events && events->type == JSON_ARRAY && i < events->len; i++)
        print_shown(&events->items[i], false, &out);
    return cli_print(&out);
}

const struct verb verb_events = {
    .name = "events",
    .group = "Work",
    .arguments = "[options] JOB\n--follow [JOB]",
    .summary = "show what happened to a job, in order, with times",
    .examples = "acequia events 12\nacequia events --follow",
    .options = {&table, &job_pick_options, &cli_common_options},
    .run = run,
    .complete = "@job",
    .most = 1,
    .jobs = VERB_JOB_FIRST,
};
