// Owns the streams between agents and clients: output and input of jobs and steps. An agent sends at most the
// credit it was given; credit returns as the client takes the bytes. A stream belongs to one connection of its node
// and has a number that no other stream had, also before a restart: what comes for another one is ignored.
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "base/vec.h"
#include "stream.h"

enum { EPOCH_BITS = 20 };  // streams of a millisecond of this process's life

struct stream {
    struct stream_table *table;
    uint64_t id;
    const char *node;
    uid_t uid;         // whose it is
    uint64_t window;
    struct stream_client client;
    void *ctx;
    uint64_t owed;     // credit held back until the client drains
    uint64_t offset;   // where the data that came last ends
    bool acknowledge;
};

static uint32_t streams_of(struct stream_table *t, uid_t uid) {
    uint32_t n = 0;
    size_t it = 0;
    void *v;
    while (map_next(&t->streams, &it, NULL, &v))
        n += ((struct stream *)v)->uid == uid;
    return n;
}

// What nobody reads is held here up to the window. All windows of one user are bounded: the n-th is at most the n-th
// part of STREAM_USER_WINDOWS, the sum over 1,024 streams about 150 MiB.
static uint64_t window_for(const struct stream_table *t, uint32_t streams) {
    uint64_t part = STREAM_USER_WINDOWS / (streams + 1);
    part = part < STREAM_WINDOW_MIN ? STREAM_WINDOW_MIN : part;
    return part < t->window_bytes ? part : t->window_bytes;
}

struct stream *controller_stream_new(struct stream_table *t, const struct actor *actor, const char *node,
                                     const struct stream_client *client, void *ctx, struct error *e) {
    bool full = t->streams.len >= STREAMS_MAX;
    uint32_t own = streams_of(t, actor->uid);
    if (full || (!actor->admin && own >= USER_STREAMS_MAX)) {
        error_set(
            e, EBUSY,
            "%d outputs, terminals and steps are open, which is the limit %s; close some, or try again later",
            full ? STREAMS_MAX : USER_STREAMS_MAX, full ? "of the cluster" : "for one user");
        return NULL;
    }
    struct stream *s = xcalloc(1, sizeof *s);
    if (!t->next)
        t->next = (uint64_t)t->host->now_ms(t->ctx) << EPOCH_BITS;
    *s = (struct stream){.table = t,
                         .id = ++t->next,
                         .node = node,
                         .uid = actor->uid,
                         .window = window_for(t, own),
                         .client = *client,
                         .ctx = ctx};
    map_put(&t->streams, s->id, s);
    return s;
}

uint64_t controller_stream_id(const struct stream *s) {
    return s->id;
}

uint64_t controller_stream_window(const struct stream_table *t, uint64_t id) {
    const struct stream *s = map_get(&t->streams, id);
    return s ? s->window : STREAM_WINDOW_MIN;
}

void controller_stream_send(struct stream *s, enum message_type type, struct message_stream *m) {
    m->stream = s->id;
    s->table->host->send(s->table->ctx, s->node, type, m);
}

void controller_stream_acknowledge(struct stream *s, bool yes) {
    s->acknowledge = yes;
}

size_t controller_stream_backlog(const struct stream *s) {
    return s->table->host->backlog(s->table->ctx, s->node);
}

void controller_streams_node_drained(struct stream_table *t, const char *node) {
    size_t it = 0;
    void *v;
    while (t->held_inputs && map_next(&t->streams, &it, NULL, &v)) {
        const struct stream *s = v;
        if (s->client.room && streq(s->node, node))
            s->client.room(s->ctx);
    }
}

static void give_credit(struct stream *s, uint64_t bytes) {
    struct message_stream m = {.credit = bytes, .offset = s->acknowledge ? s->offset : 0};
    if (bytes)
        controller_stream_send(s, MESSAGE_STREAM_CREDIT, &m);
}

void controller_stream_drained(struct stream *s) {
    uint64_t owed = s->owed;
    s->owed = 0;
    give_credit(s, owed);
}

static void stream_free(struct stream *s) {
    map_remove(&s->table->streams, s->id);
    free(s);
}

void controller_stream_drop(struct stream *s) {
    struct message_stream m = {0};
    controller_stream_send(s, MESSAGE_STREAM_END, &m);
    stream_free(s);
}

static void end(struct stream *s, const struct message_stream *m) {
    struct stream_client client = s->client;
    void *ctx = s->ctx;
    stream_free(s);
    client.end(ctx, m);
}

void controller_stream_message(struct stream_table *t, const char *node, const struct message *message) {
    const struct message_stream *m = message->body;
    struct stream *s = map_get(&t->streams, m->stream);
    if (!s || !streq(s->node, node))
        return;  // ended here already
    if (message->type == MESSAGE_STREAM_END) {
        end(s, m);
        return;
    }
    if (message->type == MESSAGE_STREAM_CREDIT && m->position) {
        if (s->client.position)
            s->client.position(s->ctx, m);
        return;
    }
    if (message->type == MESSAGE_STREAM_CREDIT && s->client.credit)
        s->client.credit(s->ctx, m->credit);
    if (message->type != MESSAGE_STREAM_DATA)
        return;
    s->offset = m->offset;
    ssize_t waiting = s->client.data(s->ctx, m);
    s = map_get(&t->streams, m->stream);
    if (!s)
        return;
    if (waiting < 0) {
        controller_stream_drop(s);
        return;
    }
    s->owed += m->data.len;
    if (waiting <= STREAM_BACKLOG_BYTES && (uint64_t)waiting <= s->window / 2)
        controller_stream_drained(s);
}

void controller_stream_result(struct stream_table *t, const char *node, const struct file_result *r) {
    struct stream *s = map_get(&t->streams, r->stream);
    if (s && streq(s->node, node) && s->client.result)
        s->client.result(s->ctx, r);
}

void controller_streams_node_gone(struct stream_table *t, const char *node) {
    VEC(struct stream *) gone = {0};
    size_t it = 0;
    void *v;
    while (map_next(&t->streams, &it, NULL, &v))
        if (streq(((struct stream *)v)->node, node))
            vec_push(&gone, v);
    struct message_stream m = {.error = "the connection to the node was lost", .exit_code = -1};
    for (uint32_t i = 0; i < gone.len; i++)
        end(gone.at[i], &m);
    vec_done(&gone);
}

void controller_streams_done(struct stream_table *t) {
    size_t it = 0;
    void *v;
    while (map_next(&t->streams, &it, NULL, &v))
        free(v);
    map_done(&t->streams);
}
