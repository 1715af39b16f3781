// Owns the output of jobs as server-sent events: GET /v1/jobs/{job}/logs with Accept: text/event-stream. The id of an
// event is the position behind its text and the file that is a position in, so that a browser that lost the
// connection goes on where it was. Output is bytes and an event is text: what is not UTF-8 becomes U+FFFD, and a
// character that is not complete yet waits for its rest.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "base/text.h"
#include "logs.h"

enum { CHARACTER_MAX = 4 };

struct log_events {
    struct controller *controller;
    struct net_request *req;
    struct stream *stream;
    uint64_t job, at, file;    // at: what was sent ends here
    char held[CHARACTER_MAX];  // the beginning of a character
    size_t held_len;
};

// The length of the character at `s`; 0: it is not complete; -1: it is none.
static int character_len(const char *s, size_t left) {
    unsigned char c = (unsigned char)*s;
    size_t len = c < 0x80                 ? 1
                 : c >= 0xc2 && c <= 0xdf ? 2
                 : (c & 0xf0) == 0xe0     ? 3
                 : c >= 0xf0 && c <= 0xf4 ? 4
                                          : 0;
    if (!len)
        return -1;
    for (size_t i = 1; i < len && i < left; i++)
        if (((unsigned char)s[i] & 0xc0) != 0x80)
            return -1;
    if (len > left)
        return 0;
    return str_utf8_valid(s, len) ? (int)len : -1;
}

size_t controller_logs_text(const char *s, size_t len, bool last, struct buf *out) {
    for (size_t i = 0; i < len;) {
        int n = character_len(s + i, len - i);
        if (n == 0 && !last)
            return len - i;
        if (n > 0 && s[i])
            buf_add(out, s + i, (size_t)n);
        else
            buf_adds(out, "\xef\xbf\xbd");
        i += n > 0 ? (size_t)n : 1;
    }
    return 0;
}

static ssize_t send_event(struct log_events *l, const char *name, const struct buf *data) {
    cleanup_buf struct buf b = {0};
    buf_addf(&b, "event: %s\nid: %llu.%llu\ndata: ", name, (unsigned long long)l->at,
             (unsigned long long)l->file);
    buf_add(&b, data->data, data->len);
    buf_adds(&b, "\n\n");
    return net_reply_stream_write(l->req, b.data, b.len);
}

static ssize_t send_text(struct log_events *l, const char *data, size_t len, uint64_t end, bool last) {
    cleanup_buf struct buf bytes = {0}, text = {0}, json = {0};
    struct json_writer w = {.out = &json};
    buf_add(&bytes, l->held, l->held_len);
    buf_add(&bytes, data, len);
    size_t held = controller_logs_text(bytes.data, bytes.len, last, &text);
    memcpy(l->held, bytes.len ? bytes.data + bytes.len - held : "", held);
    l->held_len = held;
    l->at = end - held;
    if (!text.len)
        return (ssize_t)net_reply_stream_pending(l->req);
    json_open(&w, '{');
    json_kv_i64(&w, "at", (int64_t)l->at);
    json_key(&w, "text");
    json_put_strn(&w, text.data, text.len);
    json_close(&w, '}');
    return send_event(l, "log", &json);
}

// Another file has its name now, or it was emptied.
static ssize_t move_to(struct log_events *l, uint64_t file, uint64_t at) {
    cleanup_buf struct buf json = {0};
    bool first = !l->file && l->at <= at;
    l->file = file;
    l->at = at;
    l->held_len = 0;
    if (first)
        return 0;
    buf_addf(&json, "{\"file\":%llu,\"at\":%llu}", (unsigned long long)file, (unsigned long long)at);
    return send_event(l, "file", &json);
}

static ssize_t on_data(void *ctx, const struct message_stream *m) {
    struct log_events *l = ctx;
    uint64_t end = m->offset ? m->offset : l->at + l->held_len + m->data.len;
    uint64_t begin = end > m->data.len ? end - m->data.len : 0, have = l->at + l->held_len;
    ssize_t n = 0;
    size_t skip = 0;
    if (m->file && (m->file != l->file || begin < l->at))
        n = move_to(l, m->file, begin);
    else if (begin < have)
        skip = have - begin < m->data.len ? (size_t)(have - begin) : m->data.len;
    if (n >= 0)
        n = send_text(l, (const char *)m->data.data + skip, m->data.len - skip, end, false);
    if (n < 0)
        l->stream = NULL;  // dropped by whoever called
    return n;
}

static void send_end(struct log_events *l) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf json = {0};
    struct job_record r;
    bool live;
    if (api_record(l->controller, l->job, &a, &r, &live) < 0)
        return;
    schema_write_json(&answer_session_end_schema,
                      &(struct answer_session_end){l->job, r.state, r.exit_code, r.exit_signal, r.reason},
                      &(struct json_writer){.out = &json});
    send_event(l, "end", &json);
}

// When the node is lost the answer just ends: a browser comes back by itself, and goes on.
static void on_end(void *ctx, const struct message_stream *end) {
    struct log_events *l = ctx;
    if (l->held_len)
        send_text(l, NULL, 0, l->at + l->held_len, true);
    if (!end->error || end->exit_code != -1)
        send_end(l);
    net_reply_stream_end(l->req);
    free(l);
}

static void on_gone(struct net_request *req, void *user) {
    struct log_events *l = user;
    if (l->stream)
        controller_stream_drop(l->stream);
    net_reply_stream_end(req);
    free(l);
}

static void on_drain(struct net_request *req, void *user) {
    struct log_events *l = user;
    if (l->stream)
        controller_stream_drained(l->stream);
}

bool controller_logs_wants_events(const struct net_request *req) {
    const char *accept = http_message_header(req->http, "Accept");
    return accept && strstr(accept, "text/event-stream");
}

static int read_place(const struct api_call *call, struct log_events *l, struct error *e) {
    cleanup_arena struct arena a = {0};
    const struct query_logs *q = call->query;
    const char *last = http_message_header(call->req->http, "Last-Event-ID"),
               *dot = last ? strchr(last, '.') : NULL;
    l->at = q->from;
    l->file = q->file;
    if (str_empty(last))
        return 0;
    if (dot && parse_u64(arena_strndup(&a, last, (size_t)(dot - last)), &l->at) == 0 &&
        parse_u64(dot + 1, &l->file) == 0)
        return 0;
    return error_set(e, EINVAL, "Last-Event-ID: expected the id of an event of this log, as 4096.17");
}

void controller_logs_events(struct api_call *call, struct job_record *r) {
    static const struct stream_client client = {on_data, on_end, NULL, NULL, NULL};
    struct controller *c = call->controller;
    const struct query_logs *q = call->query;
    const char *node = core_intern(c->core, r->parts.at[q->node].node);
    struct log_events *l = xcalloc(1, sizeof *l);
    struct error e = {0};
    *l = (struct log_events){.controller = c, .req = call->req, .job = r->id};
    if (read_place(call, l, &e) < 0) {
        api_fail(call->req, &e);
        free(l);
        return;
    }
    struct message_log_read m = controller_logs_request(r, q->node, q->source == QUERY_ERROR, q->follow,
                                                        l->at ? -1 : controller_logs_tail(q));
    m.offset = l->at;
    m.file = l->file;
    m.resumed = l->at > 0;
    if (!(l->stream = controller_logs_open(call, node, &m, &client, l))) {
        free(l);
        return;
    }
    net_reply_header(call->req, "Cache-Control", "no-store");
    net_reply_header(call->req, "X-Accel-Buffering", "no");
    net_reply_stream_start(call->req, 200, "text/event-stream");
    net_reply_stream_write(call->req, "retry: 2000\n\n", 13);
    net_request_watch(call->req, on_gone, on_drain, l);
}
