// Owns the output of jobs over HTTP, and what a node is asked for when somebody wants to read it.
#include "logs.h"

#include <errno.h>

#include "base/text.h"
#include "api.h"
#include "session.h"
#include "step_watch.h"

struct message_log_read controller_logs_request(struct job_record *r, uint32_t index, bool error, bool follow,
                                                int64_t tail) {
    return (struct message_log_read){.id = r->id,
                                     .attempt = r->attempt,
                                     .spec = r->spec,
                                     .part = &r->parts.at[index],
                                     .array_id = r->job        ? r->job
                                                 : r->is_array ? r->array_id
                                                               : 0,
                                     .array_index = r->job ? r->worker : r->array_index,
                                     .source = error ? LOG_SOURCE_ERROR : LOG_SOURCE_OUTPUT,
                                     .follow = follow,
                                     .tail_lines = tail,
                                     .node_index = index,
                                     .placed = true};
}

struct stream *controller_logs_open(struct api_call *call, const char *node, struct message_log_read *m,
                                    const struct stream_client *client, void *ctx) {
    struct controller *c = call->controller;
    struct error e = {0};
    struct stream *s = controller_stream_new(&c->streams, &call->actor, node, client, ctx, &e);
    if (s) {
        m->stream = controller_stream_id(s);
        m->credit = controller_stream_window(&c->streams, m->stream);
        if (agents_send(c, node, MESSAGE_LOG_READ, m))
            return s;
        controller_stream_drop(s);
        error_set(&e, ENOTCONN, "node %s, which has the output, is not connected; try again later", node);
    }
    api_fail(call->req, &e);
    return NULL;
}

int64_t controller_logs_tail(const struct query_logs *q) {
    return schema_given(&query_logs_schema, q, &q->tail) ? q->tail : -1;
}

struct placing {
    uint32_t attempt;
    struct arena *arena;
    struct job_record *record;
    bool found;
};

static int take_placing(void *ctx, const struct store_event *e) {
    struct placing *p = ctx;
    struct event event;
    bool placed = e->type == EVENT_JOB_PLACED, more = e->type == EVENT_PART_ADOPTED;
    if ((!placed && !more) || event_decode((enum event_type)e->type, e->data, e->len, p->arena, &event) < 0)
        return 0;
    const struct event_job_placed *b = event.body;
    const struct event_part_adopted *part = event.body;
    if (placed && b->attempt == p->attempt) {
        p->record->parts.at = b->parts.at;
        p->record->parts.len = b->parts.len;
        p->found = true;
    } else if (more && part->attempt == p->attempt && p->found && !part->place) {
        p->record->parts.at = part->part;  // the output is that of the first part
        p->record->parts.len = 1;
    }
    return 0;
}

// Makes the record one of an earlier attempt: where it ran is told by the journal. Attempts share
// their output file, unless it is kept on the node for somebody who is attached.
static bool find_attempt(struct controller *c, int64_t attempt, struct arena *a, struct job_record *r,
                         struct error *e) {
    struct placing p = {.attempt = (uint32_t)attempt, .arena = a, .record = r};
    unsigned long long id = (unsigned long long)r->id;
    if (attempt < 1 || attempt > r->attempt) {
        error_set(e, EINVAL,
                  r->attempt > 1 ? "attempt: job %llu has run %u times; expected 1 to %u"
                  : r->attempt   ? "attempt: job %llu has run once"
                                 : "attempt: job %llu has not run yet",
                  id, r->attempt, r->attempt);
        return false;
    }
    if (attempt < r->attempt && !r->spec->attach) {
        error_set(
            e, EINVAL,
            r->spec->truncate
                ? "attempt: the output of job %llu was replaced by that of attempt %u; without --truncate "
                  "all of it is kept"
                : "attempt: all attempts of job %llu write to one file; leave --attempt out",
            id, r->attempt);
        return false;
    }
    if (attempt == r->attempt && r->parts.len)
        return true;
    int rc = store_events(c->store, r->id, 0, 0, take_placing, &p, e);
    if (rc >= 0 && !p.found)
        error_set(e, ENOENT, "attempt: it is no longer known where attempt %u of job %llu ran", p.attempt,
                  id);
    r->attempt = p.attempt;
    return rc >= 0 && p.found;
}

bool controller_logs_find_part(struct controller *c, uint64_t id, int64_t index, int64_t attempt,
                               struct arena *a, struct job_record *r, bool *live, struct error *e) {
    if (api_record(c, id, a, r, live) < 0) {
        error_set(e, ENOENT, "there is no job %llu", (unsigned long long)id);
        return false;
    }
    if (attempt && !find_attempt(c, attempt, a, r, e))
        return false;
    if (!r->parts.len) {
        error_set(e, EBUSY, "job %llu is %s; it %s", (unsigned long long)id, job_state_words[r->state],
                  r->attempt > 0 && r->state == JOB_PENDING ? "waits to run again" : "has not run yet");
        return false;
    }
    if (index < 0 || index >= r->parts.len) {
        error_set(e, EINVAL, "node: job %llu has %u %s, counted from 0; there is no %lld",
                  (unsigned long long)id, r->parts.len, r->parts.len == 1 ? "node" : "nodes",
                  (long long)index);
        return false;
    }
    return true;
}

struct log_reply {
    struct controller *controller;
    struct net_request *req;
    struct stream *stream;
    bool started;
    bool kept;  // positions are those of kept output, which may have gaps
    bool tail;  // where it begins is not known
    uint64_t at;
};

static ssize_t write_reply(struct log_reply *l, const void *data, size_t len) {
    if (!l->started) {
        net_reply_stream_start(l->req, 200, "application/octet-stream");
        l->started = true;
    }
    return len ? net_reply_stream_write(l->req, data, len) : 0;
}

static ssize_t write_missing(struct log_reply *l, uint64_t bytes, const char *why) {
    char text[160];
    int n = snprintf(text, sizeof text, "acequia: %llu bytes of output %s\n", (unsigned long long)bytes, why);
    return n > 0 ? write_reply(l, text, (size_t)n) : 0;
}

static ssize_t log_data(void *ctx, const struct message_stream *m) {
    struct log_reply *l = ctx;
    ssize_t n = 0;
    if (l->kept && !l->tail && m->offset > l->at + m->data.len)
        n = write_missing(l, m->offset - m->data.len - l->at,
                          "before this were read by the job's client and are not kept");
    l->tail = false;
    l->at = m->offset;
    if (n >= 0)
        n = write_reply(l, m->data.data, m->data.len);
    if (n < 0)
        l->stream = NULL;  // dropped by whoever called
    return n;
}

static void log_end(void *ctx, const struct message_stream *end) {
    struct log_reply *l = ctx;
    bool lost = end->error && end->exit_code == -1;
    if (end->error && !l->started) {
        api_error(l->req, lost ? 503 : 404, lost ? "EAGAIN" : "ENOENT", end->error);
    } else if (end->error) {
        net_reply_stream_abort(l->req);  // the reader must see that the rest is missing
    } else {
        write_reply(l, NULL, 0);
        if (end->lost_bytes)
            write_missing(l, end->lost_bytes,
                          "were dropped: nobody read them, and the limit of kept output was reached");
        net_reply_stream_end(l->req);
    }
    free(l);
}

static void log_client_gone(struct net_request *req, void *user) {
    struct log_reply *l = user;
    if (l->stream)
        controller_stream_drop(l->stream);
    if (l->started)
        net_reply_stream_end(req);
    else
        net_reply(req, 499, NULL, NULL, 0);
    free(l);
}

static void log_drained(struct net_request *req, void *user) {
    struct log_reply *l = user;
    if (l->stream)
        controller_stream_drained(l->stream);
}

void api_logs(struct api_call *call) {
    static const struct stream_client client = {log_data, log_end, NULL, NULL, NULL};
    struct controller *c = call->controller;
    struct job_record r;
    struct error e = {0};
    bool live;
    const struct query_logs *q = call->query;
    if (net_request_wants_ws(call->req)) {
        controller_session_follow_log(call);
        return;
    }
    if (!controller_logs_find_part(c, api_first_worker(c, call->job), q->node, q->attempt, &call->arena, &r,
                                   &live, &e)) {
        api_fail(call->req, &e);
        return;
    }
    if (controller_logs_wants_events(call->req)) {
        controller_logs_events(call, &r);
        return;
    }
    const char *node = core_intern(c->core, r.parts.at[q->node].node);
    struct message_log_read m =
        controller_logs_request(&r, q->node, q->source == QUERY_ERROR, q->follow, controller_logs_tail(q));
    m.id = controller_agent_job(c->core, c->store, r.id, r.attempt);
    struct log_reply *l = xcalloc(1, sizeof *l);
    *l = (struct log_reply){
        .controller = c, .req = call->req, .kept = r.spec->attach, .tail = m.tail_lines >= 0};
    if (!(l->stream = controller_logs_open(call, node, &m, &client, l))) {
        free(l);
        return;
    }
    net_request_watch(call->req, log_client_gone, log_drained, l);
}
