// Owns the output of jobs over HTTP, and what a node is asked for when somebody wants to read it.
#include "logs.h"

#include <errno.h>

#include "base/text.h"
#include "api.h"
#include "session.h"

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
    if (!controller_job_find_part(&(struct job_lookup){c->core, c->pipeline, c->store},
                                  api_first_worker(c, call->job), q->node, q->attempt, &call->arena, &r,
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
    struct log_reply *l = xcalloc(1, sizeof *l);
    *l = (struct log_reply){
        .controller = c, .req = call->req, .kept = r.spec->attach, .tail = m.tail_lines >= 0};
    if (!(l->stream = controller_logs_open(call, node, &m, &client, l))) {
        free(l);
        return;
    }
    net_request_watch(call->req, log_client_gone, log_drained, l);
}
