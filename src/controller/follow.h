// The streams of one client: output of a step, of an attached job, or of a log file, from all its nodes, and input to
// them. Each stream has a position, so when a node's connection is lost the stream is opened again from there when
// the node is back, and a client that comes back names the positions it has.
//
// Binary messages of a client that keeps positions: 5 (output) or 6 (error), rank and number of the stream as four
// bytes each, the position behind the data as eight, then data; to us 7, the position in the input as eight bytes,
// then data (none: the end). Numbers have the lowest byte first. Of a client that does not: 1 or 2 and data, with
// `ranks` the rank in four bytes before it, else for the second and further nodes 3 or 4 and the node's number; to us 0
// and data. Text messages are JSON, see session_messages.h.
#pragma once
#include "stream.h"

enum { FOLLOW_INPUT_HEAD = 9 };

struct controller_follow;

struct follow_source {
    const char *node;  // interned
    uint32_t node_index;
    uint32_t fd;        // all of it is 1 (output) or 2 (error); 0: every piece says which
    bool input;         // the node takes input through it
    uint64_t at, file;  // where to begin
    bool times;         // the client is told when its output was written
};

struct follow_client {
    // Asks the node for stream number i; false: it is not connected.
    bool (*open)(void *ctx, uint32_t i, uint64_t stream, uint64_t at, uint64_t file);
    // May be NULL. The node has not heard of what it would be asked for: see controller_follow_open_waiting.
    bool (*waits)(void *ctx, uint32_t i);
    void (*complete)(void *ctx);  // one more stream has ended
    void (*failed)(void *ctx,
                   const struct error *e);  // a stream cannot be opened; the follow may be freed inside
    // To the client: a text message, and output, which returns bytes not yet on their way or negative: it has gone.
    void (*say)(void *ctx, const struct schema *schema, const void *value);
    ssize_t (*send)(void *ctx, const char *data, size_t len);
    void (*pause)(void *ctx, bool on);  // nothing is read from it
};

struct follow_options {
    struct stream_table *streams;
    const struct actor *actor;  // lives as long
    const struct follow_client *client;
    void *ctx;
    bool placed;    // the client keeps positions
    bool ranks;     // one that does not is told ranks, not nodes
    bool resumed;   // one that does not comes back: it is told where its input stands
    bool watching;  // looks on: acknowledges nothing, and its input is put in between
};

struct controller_follow *controller_follow_new(const struct follow_options *o);
struct controller_follow *controller_follow_free(struct controller_follow *f);
// Once: opens the streams of the nodes that are connected. Input that came before waits for them.
void controller_follow_open(struct controller_follow *f, const struct follow_source *sources, uint32_t count);
// Where stream i stands, and in which file.
void controller_follow_place(const struct controller_follow *f, uint32_t i, uint64_t *at, uint64_t *file);
bool controller_follow_is_open(const struct controller_follow *f);
void controller_follow_node_up(struct controller_follow *f, const char *node);
void controller_follow_open_waiting(struct controller_follow *f);  // those that can be opened now
// Every stream has ended, or its node is gone for good (job_over: nothing of the job runs any more).
bool controller_follow_complete(struct controller_follow *f, bool job_over);

// Input and the like from the client. A message that is not understood is an error for it.
int controller_follow_binary(struct controller_follow *f, const char *data, size_t len, struct error *e);
void controller_follow_acknowledge(struct controller_follow *f, const uint64_t *positions, uint32_t count);
void controller_follow_resize(struct controller_follow *f, uint32_t rows, uint32_t columns);
void controller_follow_drained(struct controller_follow *f);
// The positions that a client has; -EINVAL: there are more than `count`.
int controller_follow_positions(const uint64_t *from, uint32_t given, struct follow_source *sources,
                                uint32_t count, struct error *e);
