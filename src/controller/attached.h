// The streams of an attached job: the output of every node comes from one stream each, in the order
// in which that node wrote it; input goes to all of them. Positions of input are counted from the
// beginning of the job, so that a client that comes back sends what no node has.
#pragma once
#include "controller.h"

struct attached;

struct attached_client {
    // Bytes not yet on their way, or negative when the client has gone. fd 1: output, 2: error.
    ssize_t (*data)(void *ctx, uint32_t node, uint32_t fd, const void *data, size_t len);
    void (*credit)(void *ctx, uint64_t bytes);  // this much more input has left everywhere
    // Told once: where input goes on, how much of it has left, and whether none is taken any more.
    void (*position)(void *ctx, uint64_t taken, uint64_t left, bool closed);
    void (*done)(void *ctx);  // all output is complete
    // A node cannot be reached, or (with an error) a stream not be opened. True: that is the end of
    // it; false: go on with the others.
    bool (*lost)(void *ctx, const struct error *e);
    void (*room)(void *ctx);  // the nodes may have taken what was sent
};

// `resume`: the client goes on where it was cut off; what a node has had of its input is left out
// there.
struct attached *controller_attached_new(struct controller *c, const struct actor *actor,
                                         const struct attached_client *client, void *ctx, bool resume);
// Opens the streams, behind the launch. Callbacks may come from inside.
void controller_attached_open(struct attached *a, struct job_record *r);
bool controller_attached_complete(const struct attached *a);
void controller_attached_input(struct attached *a, const void *data, size_t len, bool eof);
size_t controller_attached_backlog(const struct attached *a);
void controller_attached_resize(struct attached *a, uint32_t rows, uint32_t columns);
void controller_attached_drained(struct attached *a);
struct attached *controller_attached_free(struct attached *a);

struct message_log_read controller_session_log_read(struct job_record *r, uint32_t index,
                                                    enum log_source source, bool follow, int64_t tail);
