// Shared by the files that serve streams. A stream is a conversation with somebody behind the
// controller: reading a log, or a process inside a running job. Data leaves only as far as the
// other side gave credit, so a slow reader costs no memory here.
#pragma once
#include "agent/node/node.h"
#include "agent/stream/streams.h"
#include "launch/kept.h"

enum {
    STREAM_INPUT_MAX = 1 << 20,   // input that waits for a process to read it
    STREAM_POLL_MS = 20,          // how often files that grow are looked at
    STREAM_READ_PATIENCE_MS = 15000,  // a file system that does not answer
    STREAM_LINGER_MS = 2000,      // output may come this long after a step's end
    STREAM_STEP_FIRST = 0x40000000,  // numbers of steps that the controller does not count
    STREAM_STEP_MASK = 0x3fffffff,
    STREAM_LOOK_MS = 1000,           // hints of a step's end may get lost
};

// A descriptor on the loop; closed and freed together.
struct stream_fd {
    uv_poll_t poll;
    int fd;
    void *owner;
    void (*on_ready)(struct stream_fd *w, int events);
    int events;  // asked for now
};
struct stream_fd *stream_fd_new(struct agent_node *a, int fd, void *owner,
                            void (*on_ready)(struct stream_fd *w, int events));
void stream_fd_want(struct stream_fd *w, int events);
struct stream_fd *stream_fd_close(struct stream_fd *w);

struct stream_pipe {  // towards a process
    struct stream_fd *w;
    struct buf pending;
    bool eof, terminal;
    int keep_fd;  // the other end of a named pipe, held so that it does not vanish; else -1
};
void stream_pipe_write(struct stream_pipe *p, const void *data, size_t len, bool eof);
// Writes what it can.
void stream_pipe_flush(struct stream_pipe *p);
void stream_pipe_close(struct stream_pipe *p);

enum stream_kind { STREAM_LOG, STREAM_EXEC, STREAM_STEP };

struct agent_stream {
    struct streams *all;
    enum stream_kind kind;
    uint64_t number, id;
    uint32_t attempt, step;
    uint64_t credit;
    uint64_t input_bytes, input_credited;  // taken from the other side; told to have left
    struct buf early;  // input for an attached job that is not launched yet
    bool early_eof;
    uint32_t rows, columns;
    struct stream_log *log;
    struct stream_exec *exec;
    struct stream_step *step_stream;
};

struct step_alone {  // a running step that no stream is open for
    uint64_t id;
    uint32_t attempt, step;
    int64_t since_ms;
    bool given_up;
};

struct streams {
    struct agent_node *agent;
    VEC(struct agent_stream *) list;
    VEC(struct stream_feed *) feeds;
    VEC(struct step_alone) alone;
    uint32_t next_step, attached;
    int64_t next_kept_look_ms;
    uv_timer_t timer;
};

void stream_put(struct agent_stream *s, uint32_t fd, uint32_t task, const void *data, size_t len);
// Tells the other side and frees the stream.
void stream_finish(struct agent_stream *s, int32_t exit_code, uint32_t exit_signal, const char *error);
void stream_close(struct agent_stream *s);
// The other side may send as much more input as has left; `waiting` bytes have not.
void stream_credit_input(struct agent_stream *s, size_t waiting);

// stream_log.c
void stream_log_start(struct agent_stream *s, const struct message_log_read *m);
void stream_log_pump(struct agent_stream *s, int64_t now_ms);  // may end the stream
bool stream_log_is_client(const struct agent_stream *s);  // of an attached job: it frees what it has read
void stream_log_kick(struct agent_stream *s);  // there is something new
struct stream_log *stream_log_free(struct stream_log *l);

// stream_exec.c
void stream_exec_start(struct agent_stream *s, const struct message_exec *m);
void stream_exec_pump(struct agent_stream *s, int64_t now_ms);
void stream_exec_input(struct agent_stream *s, const struct message_stream *m);
void stream_exec_resize(struct agent_stream *s, uint32_t rows, uint32_t columns);
void stream_exec_credit(struct agent_stream *s);
void stream_exec_step_ended(struct agent_stream *s);
void stream_exec_abandon(struct agent_stream *s);  // ends the processes
struct stream_exec *stream_exec_free(struct agent_stream *s, struct stream_exec *e);

// stream_step.c
void stream_step_start(struct agent_stream *s, const struct message_step *m);
void stream_step_pump(struct agent_stream *s, int64_t now_ms);  // may end the stream
void stream_step_input(struct agent_stream *s, const struct message_stream *m);
void stream_step_ack(struct agent_stream *s, uint64_t offset);
void stream_step_resize(struct agent_stream *s, uint32_t rows, uint32_t columns);
struct stream_step *stream_step_free(struct agent_stream *s, struct stream_step *p);

// stream_feed.c: the input of attached jobs.
struct stream_feed {
    struct streams *all;
    uint64_t id;
    uint32_t attempt;
    struct stream_pipe in;
    bool terminal, ended;  // ended: the end of input was seen
    uint64_t taken;        // bytes of input ever taken in
    struct kept_file kept;  // terminals: where what they show is kept
    bool blocked;           // the terminal is not read until the client has made room there
};
struct stream_feed *stream_feed_find(struct streams *all, uint64_t id, uint32_t attempt);
// Terminals that waited for their client are read again when there is room.
void stream_feeds_unblock(struct streams *all);
void stream_feed_drain(struct stream_feed *f);
void stream_feed_write(struct stream_feed *f, const void *data, size_t len, bool eof);
// Tells whoever reads the attempt's output where its input stands; f NULL: it takes none.
void stream_feed_position(struct stream_feed *f, struct agent_stream *s);
void stream_feed_flush(struct stream_feed *f);  // input, and credit for what has left
void stream_feed_free(struct stream_feed *f);
void stream_feed_resize(struct stream_feed *f, uint32_t rows, uint32_t columns);
int stream_open_terminal(uint32_t rows, uint32_t columns, uint32_t uid, bool root, int *master, int *slave);

// kept_outputs.c: the folder of kept output.
typedef void streams_kept_fn(void *ctx, uint64_t id, uint32_t attempt, uint32_t step);
void streams_kept_prune(struct agent_node *a);
// Output over the limit is then dropped instead of blocking the job.
void streams_kept_give_up_client(struct agent_node *a, uint64_t id, uint32_t attempt);
// From time to time: calls fn for every running attached attempt (step is 0), and prunes.
void streams_kept_look(struct streams *all, int64_t now_ms, streams_kept_fn *fn, void *ctx);
