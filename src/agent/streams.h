// Shared by the files that serve streams. A stream is a conversation with somebody behind the
// controller: reading a log, or a process inside a running job. Data leaves only as far as the
// other side gave credit, so a slow reader costs no memory here.
#pragma once
#include "agent/agent.h"

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
struct watched {
    uv_poll_t poll;
    int fd;
    void *owner;
    void (*on_ready)(struct watched *w, int events);
    int events;  // asked for now
};
struct watched *watched_new(struct agent *a, int fd, void *owner,
                            void (*on_ready)(struct watched *w, int events));
void watched_want(struct watched *w, int events);
struct watched *watched_close(struct watched *w);

struct pipe_in {  // towards a process
    struct watched *w;
    struct buf pending;
    bool eof, terminal;
    int keep_fd;  // the other end of a named pipe, held so that it does not vanish; else -1
};
void pipe_in_write(struct pipe_in *p, const void *data, size_t len, bool eof);
// Writes what it can.
void pipe_in_flush(struct pipe_in *p);
void pipe_in_close(struct pipe_in *p);

enum stream_kind { STREAM_LOG, STREAM_EXEC };

struct stream {
    struct streams *all;
    enum stream_kind kind;
    uint64_t number, id;
    uint32_t attempt, step;
    uint64_t credit;
    uint64_t input_bytes, input_credited;  // taken from the other side; told to have left
    struct buf early;  // input for an attached job that is not launched yet
    bool early_eof;
    uint32_t rows, columns;
    struct log_reader *log;
    struct exec *exec;
};

struct streams {
    struct agent *agent;
    VEC(struct stream *) list;
    VEC(struct feed *) feeds;
    uint32_t next_step, attached;
    uv_timer_t timer;
};

void stream_put(struct stream *s, uint32_t fd, uint32_t task, const void *data, size_t len);
// Tells the other side and frees the stream.
void stream_finish(struct stream *s, int32_t exit_code, uint32_t exit_signal, const char *error);
void stream_close(struct stream *s);
// The other side may send as much more input as has left; `waiting` bytes have not.
void stream_credit_input(struct stream *s, size_t waiting);

// stream_log.c
void log_start(struct stream *s, const struct message_log_read *m);
void log_pump(struct stream *s, int64_t now_ms);  // may end the stream
void log_kick(struct stream *s);  // there is something new
struct log_reader *log_free(struct log_reader *l);

// stream_exec.c
void exec_start(struct stream *s, const struct message_exec *m, bool is_step);
void exec_pump(struct stream *s, int64_t now_ms);
void exec_input(struct stream *s, const struct message_stream *m);
void exec_resize(struct stream *s, uint32_t rows, uint32_t columns);
void exec_credit(struct stream *s);
void exec_step_ended(struct stream *s);
void exec_abandon(struct stream *s);  // ends the processes
struct exec *exec_free(struct stream *s, struct exec *e);

// stream_feed.c: the input of attached jobs.
struct feed {
    struct streams *all;
    uint64_t id;
    uint32_t attempt;
    struct pipe_in in;
    bool terminal, ended;  // ended: the end of input was seen
    uint64_t taken;        // bytes of input ever taken in
    int kept_fd;  // terminals: where what they show is kept
};
struct feed *feed_find(struct streams *all, uint64_t id, uint32_t attempt);
void feed_drain(struct feed *f);
void feed_write(struct feed *f, const void *data, size_t len, bool eof);
// Tells whoever reads the attempt's output where its input stands; f NULL: it takes none.
void feed_position(struct feed *f, struct stream *s);
void feed_flush(struct feed *f);  // input, and credit for what has left
void feed_free(struct feed *f);
void feed_resize(struct feed *f, uint32_t rows, uint32_t columns);
int open_terminal(uint32_t rows, uint32_t columns, uint32_t uid, bool root, int *master, int *slave);
