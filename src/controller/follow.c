// Owns streams with positions between nodes and one client.
#include "follow.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "session_messages.h"

struct followed {
    struct controller_follow *all;
    struct follow_source source;
    struct stream *stream;  // NULL: not open
    uint64_t at, file;      // what was sent to the client ends here
    int64_t time_ms;        // and was written then
    uint64_t counted;       // of an agent without positions: bytes that came since it was opened
    bool finished;
    bool located, closed;  // the node said where its input stands; it takes none
    uint64_t input_at;     // input before this has arrived there
    uint64_t input_left;   // and before this was read
    uint64_t input_sent;
};

struct controller_follow {
    struct follow_options o;
    struct followed *at;
    uint32_t count;
    bool opening, gone;
    uint64_t input_len;  // of a client without positions: what it has sent
    uint64_t told_left;  // and what it was told has left
    bool told_position;
    struct buf early;  // input of such a client that came before the nodes said where they stand
    bool early_end;
    bool held;  // nothing is read from the client until the nodes have taken what it sent
    bool told_gone;
};

struct controller_follow *controller_follow_new(const struct follow_options *o) {
    struct controller_follow *f = xcalloc(1, sizeof *f);
    f->o = *o;
    return f;
}

struct controller_follow *controller_follow_free(struct controller_follow *f) {
    if (!f)
        return NULL;
    for (uint32_t i = 0; i < f->count; i++)
        if (f->at[i].stream)
            controller_stream_drop(f->at[i].stream);
    f->o.streams->held_inputs -= f->held;
    buf_done(&f->early);
    free(f->at);
    free(f);
    return NULL;
}

static void say(struct controller_follow *f, const struct schema *schema, const void *value) {
    f->o.client->say(f->o.ctx, schema, value);
}

static void say_missing(struct controller_follow *f, const struct followed *n, const char *what) {
    say(f, &answer_step_missing_schema, &(struct answer_step_missing){what, n->source.node});
}

// --- output ---

static void put_number(struct buf *b, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++)
        buf_addc(b, (char)(v >> (8 * i)));
}

static void put_head(const struct followed *n, uint32_t fd, uint32_t task, uint64_t at, struct buf *b) {
    const struct controller_follow *f = n->all;
    bool further = !f->o.ranks && n->source.node_index;
    if (f->o.placed) {
        buf_addc(b, (char)(4 + fd));
        put_number(b, task, 4);
        put_number(b, (uint64_t)(n - f->at), 4);
        put_number(b, at, 8);
    } else {
        buf_addc(b, (char)(further ? fd + 2 : fd));
        if (f->o.ranks || further)
            put_number(b, f->o.ranks ? task : n->source.node_index, 4);
    }
}

// A log that goes on elsewhere: another file has its name now, or it was emptied.
static void move_to(struct followed *n, uint64_t file, uint64_t at) {
    n->file = file;
    n->at = at;
    if (n->all->o.placed)
        say(n->all, &answer_session_file_schema, &(struct answer_session_file){file, at});
}

static ssize_t on_data(void *ctx, const struct message_stream *m) {
    struct followed *n = ctx;
    struct controller_follow *f = n->all;
    cleanup_buf struct buf b = {0};
    uint32_t fd = n->source.fd ? n->source.fd : m->fd == 2 ? 2 : 1;
    uint64_t at = m->offset ? m->offset : (n->counted += m->data.len);
    uint64_t begin = at > m->data.len ? at - m->data.len : 0;
    size_t skip = 0;
    if (m->file && (m->file != n->file || begin < n->at))
        move_to(n, m->file, begin);
    if (n->source.fd && begin < n->at)  // sent before the connection was lost
        skip = n->at - begin < m->data.len ? (size_t)(n->at - begin) : m->data.len;
    if (at <= n->at)
        return 0;
    if (n->source.times && m->time_ms != n->time_ms) {
        n->time_ms = m->time_ms;
        say(f, &answer_session_time_schema, &(struct answer_session_time){m->time_ms});
    }
    put_head(n, fd, m->task, at, &b);
    buf_add(&b, (const char *)m->data.data + skip, m->data.len - skip);
    ssize_t waiting = f->o.client->send(f->o.ctx, b.data, b.len);
    if (waiting < 0)
        n->stream = NULL;  // dropped by the caller
    else
        n->at = at;
    return waiting;
}

static bool is_behind(const struct controller_follow *f) {
    bool behind = false;
    for (uint32_t i = 0; i < f->count; i++)
        behind |= f->at[i].stream && controller_stream_backlog(f->at[i].stream) > STREAM_BACKLOG_BYTES;
    return behind;
}

static void release_input(struct controller_follow *f) {
    if (!f->held || is_behind(f) || f->early.len > STREAM_WINDOW_BYTES)
        return;
    f->held = false;
    f->o.streams->held_inputs--;
    f->o.client->pause(f->o.ctx, false);
}

static void on_room(void *ctx) {
    release_input(((struct followed *)ctx)->all);
}

static void tell_input(struct controller_follow *f, bool again);

static void on_end(void *ctx, const struct message_stream *end) {
    struct followed *n = ctx;
    struct controller_follow *f = n->all;
    char text[96];
    n->stream = NULL;
    n->located = false;
    n->counted = 0;
    release_input(f);
    if (end->error && end->exit_code == -1)
        return;  // the node is away: opened again when it is back
    n->finished = n->closed = true;
    if (end->error) {
        char shown[200];
        say_missing(f, n, str_printable(end->error, shown, sizeof shown));
    }
    snprintf(text, sizeof text, "%llu bytes of output were dropped while no client was connected",
             (unsigned long long)end->lost_bytes);
    if (end->lost_bytes && n->source.fd)
        say_missing(f, n, text);
    tell_input(f, false);
    f->o.client->complete(f->o.ctx);
}

// --- input ---

static bool takes_input(const struct followed *n) {
    return n->source.input && !n->closed && !n->finished;
}

// The least over all nodes that take input; of one that has not said where it stands nothing is known.
static bool least(const struct controller_follow *f, bool left, uint64_t *out) {
    bool any = false;
    *out = 0;
    for (uint32_t i = 0; i < f->count; i++) {
        const struct followed *n = &f->at[i];
        uint64_t at = !n->located ? 0 : left ? n->input_left : n->input_at;
        if (takes_input(n) && (!any || at < *out)) {
            *out = at;
            any = true;
        }
    }
    return any;
}

static bool all_located(const struct controller_follow *f) {
    for (uint32_t i = 0; i < f->count; i++)
        if (takes_input(&f->at[i]) && !f->at[i].located)
            return false;
    return f->count && !f->opening;
}

static void hold_input(struct controller_follow *f) {
    if (f->held)
        return;
    f->held = true;
    f->o.streams->held_inputs++;
    f->o.client->pause(f->o.ctx, true);
}

static void send_input(struct controller_follow *f, uint64_t offset, const char *data, size_t len, bool end) {
    for (uint32_t i = 0; i < f->count; i++) {
        struct followed *n = &f->at[i];
        if (!n->stream || !takes_input(n))
            continue;
        // A gap: the client sent this before it heard from where the node wants it, and sends all of it again.
        if (!f->o.watching && offset > n->input_sent)
            continue;
        size_t skip = f->o.watching || offset >= n->input_sent ? 0
                      : n->input_sent - offset < len           ? (size_t)(n->input_sent - offset)
                                                               : len;
        struct message_stream m = {.data = {data + skip, len - skip}, .eof = end, .offset = offset + skip};
        if (f->o.watching)
            m.offset = UINT64_MAX;
        else if (offset + len > n->input_sent)
            n->input_sent = offset + len;
        if (len > skip || end)
            controller_stream_send(n->stream, MESSAGE_STREAM_DATA, &m);
    }
    if (is_behind(f))
        hold_input(f);
}

static void give_credit(struct controller_follow *f, uint64_t left) {
    if (left <= f->told_left)
        return;
    say(f, &answer_session_input_schema, &(struct answer_session_input){left - f->told_left});
    f->told_left = left;
}

static void feed(struct controller_follow *f, const char *data, size_t len, bool end) {
    uint64_t ignored;
    if (!all_located(f)) {
        if (f->early.len <= STREAM_WINDOW_BYTES)
            buf_add(&f->early, data, len);
        f->early_end |= end;
        if (f->early.len > STREAM_WINDOW_BYTES)
            hold_input(f);  // the rest would be lost
        return;
    }
    f->input_len += len;
    send_input(f, f->input_len - len, data, len, end && !f->o.watching);
    if (!least(f, true, &ignored))
        give_credit(f, f->input_len);  // lost, as in a pipe that nobody reads
}

// A client without positions: once every node has said where it stands, or that it takes none, input flows.
static void tell_simple(struct controller_follow *f, bool any, uint64_t at, uint64_t left) {
    if (!all_located(f))
        return;
    if (!f->told_position && f->o.resumed) {
        say(f, &answer_session_position_schema, &(struct answer_session_position){at, left, !any});
        f->input_len = at;
        f->told_left = left;
    }
    f->told_position = true;
    if (f->early.len || f->early_end) {
        struct buf early = f->early;
        bool end = f->early_end;
        f->early = (struct buf){0};
        f->early_end = false;
        feed(f, early.data, early.len, end);
        buf_done(&early);
        release_input(f);
    }
    give_credit(f, any ? left : f->input_len);
}

static void tell_input(struct controller_follow *f, bool again) {
    uint64_t at, left;
    bool any = least(f, false, &at);
    least(f, true, &left);
    if (f->gone)
        return;
    if (!f->o.placed) {
        tell_simple(f, any, at, left);
        return;
    }
    if (again)
        say(f, &answer_step_from_schema, &(struct answer_step_from){any ? at : 0, !any});
    else
        say(f, &answer_step_at_schema, &(struct answer_step_at){any ? at : 0, !any});
}

static void on_position(void *ctx, const struct message_stream *m) {
    struct followed *n = ctx;
    bool again = !n->located || m->resend;
    n->located = true;
    n->closed = m->eof || !n->source.input;
    n->input_at = m->input_taken;
    n->input_left = m->input_taken > m->input_waiting ? m->input_taken - m->input_waiting : 0;
    if (again)
        n->input_sent = m->input_taken;
    tell_input(n->all, again);
}

// Of an agent that tells positions only once.
static void on_credit(void *ctx, uint64_t bytes) {
    struct followed *n = ctx;
    n->input_left += bytes;
    n->input_at = n->input_left > n->input_at ? n->input_left : n->input_at;
    tell_input(n->all, false);
}

int controller_follow_binary(struct controller_follow *f, const char *data, size_t len, struct error *e) {
    uint64_t offset = 0;
    if (len > SESSION_INPUT_MAX + (f->o.placed ? (size_t)FOLLOW_INPUT_HEAD : 0))
        return error_set(e, E2BIG, "a message of %zu bytes of input; at most %d are taken at once", len,
                         SESSION_INPUT_MAX);
    if (len && data[0] == 0 && !f->o.placed) {
        feed(f, data + 1, len - 1, len == 1);
        return 0;
    }
    if (!f->o.placed || len < FOLLOW_INPUT_HEAD || data[0] != 7)
        return error_set(e, EINVAL, "a binary message that is no input%s",
                         f->o.placed ? ": 7, its position in eight bytes, data" : ": 0, data");
    for (int i = 0; i < 8; i++)
        offset |= (uint64_t)(unsigned char)data[1 + i] << (8 * i);
    if (offset > INT64_MAX)
        return error_set(e, EINVAL, "the position of the input is negative");
    send_input(f, offset, data + FOLLOW_INPUT_HEAD, len - FOLLOW_INPUT_HEAD,
               len == FOLLOW_INPUT_HEAD && !f->o.watching);
    return 0;
}

// --- the streams ---

static void open_one(struct controller_follow *f, uint32_t i) {
    static const struct stream_client client = {on_data, on_end, on_credit, on_room, on_position};
    struct followed *n = &f->at[i];
    struct error e = {0};
    if (n->stream || n->finished || f->gone ||
        !f->o.streams->host->ready(f->o.streams->ctx, n->source.node) ||
        (f->o.client->waits && f->o.client->waits(f->o.ctx, i)))
        return;
    n->stream = controller_stream_new(f->o.streams, f->o.actor, n->source.node, &client, n, &e);
    if (!n->stream) {
        f->gone = true;
        f->o.client->failed(f->o.ctx, &e);
        return;
    }
    controller_stream_acknowledge(n->stream, !f->o.placed && !f->o.watching);
    if (!f->o.client->open(f->o.ctx, i, controller_stream_id(n->stream), n->at, n->file)) {
        controller_stream_drop(n->stream);
        n->stream = NULL;
    }
}

void controller_follow_open(struct controller_follow *f, const struct follow_source *sources,
                            uint32_t count) {
    f->at = xcalloc(count + 1, sizeof *f->at);
    f->count = count;
    f->opening = true;
    for (uint32_t i = 0; i < count; i++)
        f->at[i] = (struct followed){.all = f,
                                     .source = sources[i],
                                     .at = sources[i].at,
                                     .file = sources[i].file,
                                     .closed = !sources[i].input};
    for (uint32_t i = 0; i < count && !f->gone; i++)
        open_one(f, i);
    f->opening = false;
}

void controller_follow_place(const struct controller_follow *f, uint32_t i, uint64_t *at, uint64_t *file) {
    *at = f->at[i].at;
    *file = f->at[i].file;
}

bool controller_follow_is_open(const struct controller_follow *f) {
    return f->at != NULL;
}

void controller_follow_node_up(struct controller_follow *f, const char *node) {
    for (uint32_t i = 0; i < f->count && !f->gone; i++)
        if (streq(f->at[i].source.node, node))
            open_one(f, i);
}

void controller_follow_open_waiting(struct controller_follow *f) {
    for (uint32_t i = 0; i < f->count && !f->gone && !f->opening; i++)
        open_one(f, i);
}

// No more output can come from a node that the cluster has given up.
static bool is_lost(const struct controller_follow *f, const struct followed *n) {
    const struct stream_host *host = f->o.streams->host;
    return !n->stream && !host->connected(f->o.streams->ctx, n->source.node) &&
           host->given_up(f->o.streams->ctx, n->source.node);
}

bool controller_follow_complete(struct controller_follow *f, bool job_over) {
    if (!f->at)
        return false;
    for (uint32_t i = 0; i < f->count; i++)
        if (!f->at[i].finished && !(job_over && is_lost(f, &f->at[i])))
            return false;
    for (uint32_t i = 0; i < f->count && !f->told_gone; i++)
        if (!f->at[i].finished)
            say_missing(f, &f->at[i], "its output is incomplete: the node is gone");
    f->told_gone = true;
    return true;
}

void controller_follow_acknowledge(struct controller_follow *f, const uint64_t *positions, uint32_t count) {
    // What is acknowledged is deleted on the node: who looks on has no say in that.
    for (uint32_t i = 0; !f->o.watching && i < count && i < f->count; i++) {
        struct message_stream m = {.offset = positions[i]};
        if (f->at[i].stream && m.offset && m.offset <= f->at[i].at)
            controller_stream_send(f->at[i].stream, MESSAGE_STREAM_CREDIT, &m);
    }
}

void controller_follow_resize(struct controller_follow *f, uint32_t rows, uint32_t columns) {
    for (uint32_t i = 0; i < f->count; i++) {
        struct message_stream m = {.rows = rows, .columns = columns};
        if (f->at[i].stream && f->at[i].source.input)
            controller_stream_send(f->at[i].stream, MESSAGE_RESIZE, &m);
    }
}

void controller_follow_drained(struct controller_follow *f) {
    for (uint32_t i = 0; i < f->count; i++)
        if (f->at[i].stream)
            controller_stream_drained(f->at[i].stream);
}

int controller_follow_positions(const uint64_t *from, uint32_t given, struct follow_source *sources,
                                uint32_t count, struct error *e) {
    if (given > count)
        return error_set(e, EINVAL, "from: %u positions; there are %u streams", given, count);
    for (uint32_t i = 0; i < given; i++)
        sources[i].at = from[i];
    return 0;
}
