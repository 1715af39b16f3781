// Owns the streams of an attached job and the account of its input: a node that is slower holds the
// client back, one that takes none does not.
#include "attached.h"

#include <assert.h>
#include <string.h>

struct source {
    struct attached *all;
    uint32_t index;
    struct stream *output, *error;
    bool located, closed;  // it said where its input stands; it takes none
    uint64_t taken, left;  // positions, from the beginning of the job
    uint64_t skip;         // bytes of the input to come that it has had
};

struct attached {
    struct controller *controller;
    const struct actor *actor;
    struct attached_client client;
    void *ctx;
    struct source *parts;
    uint32_t count, open;   // streams that have not ended
    bool resume, located;   // the client was told where its input stands
    bool opening, lost, eof;
    uint64_t left;          // as the client knows it
    struct buf early;       // input that came before every node said where it stands
};

struct attached *controller_attached_new(struct controller *c, const struct actor *actor,
                                         const struct attached_client *client, void *ctx, bool resume) {
    struct attached *a = xcalloc(1, sizeof *a);
    *a = (struct attached){.controller = c, .actor = actor, .client = *client, .ctx = ctx, .resume = resume};
    return a;
}

struct attached *controller_attached_free(struct attached *a) {
    if (!a)
        return NULL;
    for (uint32_t i = 0; i < a->count; i++) {
        if (a->parts[i].output)
            controller_stream_drop(a->parts[i].output);
        if (a->parts[i].error)
            controller_stream_drop(a->parts[i].error);
    }
    buf_done(&a->early);
    free(a->parts);
    free(a);
    return NULL;
}

bool controller_attached_complete(const struct attached *a) {
    return a->parts && !a->open && !a->opening;
}

// --- input ---

static bool takes_input(const struct source *p) {
    return p->output && !p->closed;
}

// The position up to which every node that takes input has got; false: none takes any.
static bool least(const struct attached *a, bool left, uint64_t *out) {
    bool any = false;
    for (uint32_t i = 0; i < a->count; i++) {
        const struct source *p = &a->parts[i];
        uint64_t at = left ? p->left : p->taken;
        if (takes_input(p) && (!any || at < *out)) {
            *out = at;
            any = true;
        }
    }
    return any;
}

static void give_credit(struct attached *a) {
    uint64_t left = 0;
    if (!a->located || !least(a, true, &left) || left <= a->left)
        return;
    uint64_t more = left - a->left;
    a->left = left;
    a->client.credit(a->ctx, more);
}

static void send_input(struct attached *a, const void *data, size_t len, bool eof) {
    bool any = false;
    for (uint32_t i = 0; i < a->count; i++) {
        struct source *p = &a->parts[i];
        if (!takes_input(p))
            continue;
        size_t skip = p->skip < len ? (size_t)p->skip : len;
        p->skip -= skip;
        any = true;
        if (len > skip || eof)
            controller_stream_send(
                p->output, MESSAGE_STREAM_DATA,
                &(struct message_stream){.data = {(const char *)data + skip, len - skip}, .eof = eof});
    }
    if (!any && len)
        a->client.credit(a->ctx, len);  // lost, as in a pipe that nobody reads
}

void controller_attached_input(struct attached *a, const void *data, size_t len, bool eof) {
    if (a->located) {
        send_input(a, data, len, eof);
        return;
    }
    if (a->early.len + len <= STREAM_WINDOW_BYTES)
        buf_add(&a->early, data, len);
    a->eof |= eof;
}

// Once every node has said where it stands, or that it takes none, input flows.
static void locate(struct attached *a) {
    uint64_t taken = 0, left = 0;
    if (a->located || a->opening || a->lost)
        return;
    for (uint32_t i = 0; i < a->count; i++)
        if (takes_input(&a->parts[i]) && !a->parts[i].located)
            return;
    a->located = true;
    bool any = least(a, false, &taken) && least(a, true, &left);
    a->left = left;
    for (uint32_t i = 0; i < a->count; i++)
        if (a->resume && takes_input(&a->parts[i]))
            a->parts[i].skip = a->parts[i].taken - taken;
    a->client.position(a->ctx, taken, left, !any);
    if (a->early.len || a->eof)
        send_input(a, a->early.data, a->early.len, a->eof);
    buf_done(&a->early);
}

static void on_position(void *ctx, const struct message_stream *m) {
    struct source *p = ctx;
    p->located = true;
    p->closed = m->eof;
    p->taken = m->input_taken;
    p->left = m->input_taken > m->input_waiting ? m->input_taken - m->input_waiting : 0;
    locate(p->all);
}

static void on_credit(void *ctx, uint64_t bytes) {
    struct source *p = ctx;
    p->left += bytes;
    give_credit(p->all);
}

static void on_room(void *ctx) {
    struct attached *a = ((struct source *)ctx)->all;
    a->client.room(a->ctx);
}

size_t controller_attached_backlog(const struct attached *a) {
    size_t most = 0;
    for (uint32_t i = 0; i < a->count; i++) {
        size_t waits = a->parts[i].output ? controller_stream_backlog(a->parts[i].output) : 0;
        most = waits > most ? waits : most;
    }
    return most;
}

void controller_attached_resize(struct attached *a, uint32_t rows, uint32_t columns) {
    for (uint32_t i = 0; i < a->count; i++)
        if (a->parts[i].output)
            controller_stream_send(a->parts[i].output, MESSAGE_RESIZE,
                                   &(struct message_stream){.rows = rows, .columns = columns});
}

// --- output ---

// A stream whose client is gone is dropped by whoever called.
static ssize_t pass_on(struct source *p, struct stream **at, uint32_t fd, const void *data, size_t len) {
    ssize_t n = p->all->client.data(p->all->ctx, p->index, fd, data, len);
    if (n < 0) {
        *at = NULL;
        p->all->open--;
    }
    return n;
}

static ssize_t on_output(void *ctx, uint32_t fd, uint32_t task, const void *data, size_t len) {
    struct source *p = ctx;
    return pass_on(p, &p->output, 1, data, len);
}

static ssize_t on_error(void *ctx, uint32_t fd, uint32_t task, const void *data, size_t len) {
    struct source *p = ctx;
    return pass_on(p, &p->error, 2, data, len);
}

// Whoever says that this is the end of it may have ended us: nothing is touched afterwards.
static bool give_up(struct attached *a, const struct error *e) {
    a->lost = true;
    if (a->client.lost(a->ctx, e))
        return true;
    a->lost = false;
    return false;
}

static void stream_over(struct attached *a, bool lost) {
    assert(a->open);
    a->open--;
    if (a->lost || (lost && give_up(a, NULL)) || a->opening)
        return;
    locate(a);
    give_credit(a);
    if (!a->open)
        a->client.done(a->ctx);
}

static bool node_lost(const struct message_stream *end) {
    return end->error && end->exit_code == -1;
}

static void on_output_end(void *ctx, const struct message_stream *end) {
    struct source *p = ctx;
    p->output = NULL;
    p->all->client.room(p->all->ctx);
    stream_over(p->all, node_lost(end));
}

static void on_error_end(void *ctx, const struct message_stream *end) {
    struct source *p = ctx;
    p->error = NULL;
    stream_over(p->all, node_lost(end));
}

// False: it cannot be opened, and *e says so if it is not for the node.
static bool open_stream(struct source *p, struct job_record *r, enum log_source source, struct error *e) {
    static const struct stream_client output = {on_output, on_output_end, on_credit, on_room, on_position};
    static const struct stream_client error = {on_error, on_error_end, NULL, NULL, NULL};
    struct attached *a = p->all;
    const char *node = r->parts.at[p->index].node;
    struct message_log_read m = controller_session_log_read(r, p->index, source, true, -1);
    m.attached = true;
    m.resumed = a->resume;
    struct stream **at = source == LOG_SOURCE_ERROR ? &p->error : &p->output;
    *at = controller_stream_new(a->controller, a->actor, node, source == LOG_SOURCE_ERROR ? &error : &output,
                                p, e);
    if (!*at)
        return false;
    m.stream = controller_stream_id(*at);
    a->open++;
    if (agents_send(a->controller, node, MESSAGE_LOG_READ, &m))
        return true;
    a->open--;
    controller_stream_drop(*at);
    *at = NULL;
    return false;
}

void controller_attached_open(struct attached *a, struct job_record *r) {
    static const enum log_source sources[] = {LOG_SOURCE_OUTPUT, LOG_SOURCE_ERROR};
    assert(!a->parts);
    a->parts = xcalloc(r->parts.len, sizeof *a->parts);
    a->count = r->parts.len;
    a->opening = true;
    for (uint32_t i = 0; i < a->count; i++)
        a->parts[i] = (struct source){.all = a, .index = i};
    for (uint32_t i = 0; i < 2 * a->count; i++) {
        struct error e = {0};
        if (!open_stream(&a->parts[i / 2], r, sources[i % 2], &e) && give_up(a, e.code ? &e : NULL))
            return;
    }
    a->opening = false;
}

void controller_attached_drained(struct attached *a) {
    for (uint32_t i = 0; i < a->count; i++) {
        if (a->parts[i].output)
            controller_stream_drained(a->parts[i].output);
        if (a->parts[i].error)
            controller_stream_drained(a->parts[i].error);
    }
}
