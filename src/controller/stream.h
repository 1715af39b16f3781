// Streams between agents and clients: a table of them and what it needs of the daemon around it. Without I/O of its
// own, so that the fault simulator runs the same code.
#pragma once
#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/map.h"
#include "core/core.h"
#include "model/file.h"
#include "model/message.h"

enum {
    STREAM_WINDOW_BYTES =
        1 << 20,  // sent ahead by an agent, at most: it is what is held for who does not read
    STREAM_WINDOW_MIN = 64 << 10,
    STREAM_USER_WINDOWS = 32 << 20,  // of one user; who has many streams has smaller windows
    STREAM_BACKLOG_BYTES =
        512 << 10,  // unsent to the client before credit is held back; half of the window if less
    SESSION_INPUT_MAX = STREAM_WINDOW_BYTES + 1,  // of one message from a client, its channel byte counted
    STREAMS_MAX = 4096,                           // outputs, terminals and steps that are followed at once
    USER_STREAMS_MAX = 1024,                      // of them, one user's who is no administrator
};

struct stream_host {
    bool (*send)(void *ctx, const char *node, enum message_type type, void *body);  // false: not connected
    bool (*connected)(void *ctx, const char *node);
    // Connected, and what its hello brought about has been sent: it has heard of all that it should run. Asked earlier,
    // it would say that there is no output of a step that it is about to be told of.
    bool (*ready)(void *ctx, const char *node);
    bool (*given_up)(void *ctx, const char *node);     // nothing can come from it any more
    size_t (*backlog)(void *ctx, const char *node);  // bytes on their way to it
    int64_t (*now_ms)(void *ctx);
    uint32_t (*level)(void *ctx,
                      const char *node);  // newest feature level that its agent knows; 0: not connected
};

struct stream_table {
    const struct stream_host *host;
    void *ctx;
    struct map streams;    // id → struct stream
    uint64_t next;         // 0: none was made yet
    uint32_t held_inputs;  // clients whose input waits for their node
    uint64_t window_bytes;  // the largest window
};

struct stream;
struct stream_client {
    // Returns bytes not yet on their way, or negative when the client has gone: the stream is then
    // dropped, and whoever held it must have let go of it.
    ssize_t (*data)(void *ctx, const struct message_stream *m);
    void (*end)(void *ctx, const struct message_stream *end);  // once; the stream is gone afterwards
    void (*credit)(void *ctx,
                   uint64_t bytes);  // this much input was taken (agents of release 0.1); may be NULL
    void (*room)(void *ctx);         // may be NULL: the node has taken all that was sent to it
    void (*position)(void *ctx, const struct message_stream *m);  // may be NULL: where the input stands
    void (*result)(void *ctx, const struct file_result *r);  // may be NULL; the stream may be dropped there
};
// NULL, and why, when there are too many. The node's name lives as long as the core.
struct stream *controller_stream_new(struct stream_table *t, const struct actor *actor, const char *node,
                                     const struct stream_client *client, void *ctx, struct error *e);
uint64_t controller_stream_id(const struct stream *s);
// How much its agent may send ahead; what it is told when it begins.
uint64_t controller_stream_window(const struct stream_table *t, uint64_t id);
void controller_stream_send(struct stream *s, enum message_type type, struct message_stream *m);
// What the client has drained is acknowledged.
void controller_stream_acknowledge(struct stream *s, bool yes);
size_t controller_stream_backlog(const struct stream *s);  // bytes that its node has not taken yet
void controller_streams_node_drained(struct stream_table *t, const char *node);
void controller_stream_drained(struct stream *s);  // the client took what was waiting
void controller_stream_drop(struct stream *s);     // the client has gone; no callback any more
void controller_stream_result(struct stream_table *t, const char *node, const struct file_result *r);
void controller_stream_message(struct stream_table *t, const char *node, const struct message *m);
void controller_streams_node_gone(struct stream_table *t, const char *node);
void controller_streams_done(struct stream_table *t);
