// Shared by the files that serve streams. A stream is a conversation with somebody behind the
// controller: reading a log, or output and input of a step or an attached job. Data leaves only as far as the
// other side gave credit, so a slow reader costs no memory here. A stream ends with its connection; files and
// positions stay, and the other side opens another stream from where it was.
#pragma once
#include "agent/node/node.h"
#include "agent/stream/streams.h"
#include "base/map.h"
#include "launch/kept.h"
#include "launch/log_times.h"
#include "launch/relay.h"
#include "model/file.h"

enum {
    STREAM_POLL_MS = 20,              // how often files that grow are looked at
    STREAM_READ_PATIENCE_MS = 15000,  // a file system that does not answer
    STREAM_UNSENT_MAX = 4 << 20,  // bytes on their way to the controller, beyond which no stream sends more
};

// A descriptor on the loop; closed and freed together.
struct stream_fd {
    uv_poll_t poll;
    int fd;
    int wanted;  // events it waits for
    void *owner;
    void (*on_ready)(struct stream_fd *w, int events);
};
struct stream_fd *stream_fd_new(struct agent_node *a, int fd, void *owner,
                                void (*on_ready)(struct stream_fd *w, int events));
void stream_fd_want(struct stream_fd *w, int events);  // UV_READABLE, UV_WRITABLE; 0: none for now
struct stream_fd *stream_fd_close(struct stream_fd *w);

// Input of a step or an attached job, by positions (launch/relay.h).
struct stream_input {
    struct relay_page *page;  // NULL: not there yet
    int file;
    bool placed;  // the other side says where its input begins; else (release 0.1) it comes in order
    bool told, told_closed, refused;
    uint64_t told_at, told_left;
    int64_t refused_ms;  // when the other side was last told to send again
    int64_t woken_ms;    // when the shepherd was last woken because it had not taken everything
};

enum stream_kind { STREAM_LOG, STREAM_STEP, STREAM_FILE, STREAM_PORT };

struct agent_stream {
    struct streams *all;
    enum stream_kind kind;
    uint64_t number, id;
    uint32_t attempt, step;  // step 0: of the attempt itself
    uint64_t credit;
    struct stream_input input;
    struct stream_log *log;
    struct stream_step *step_stream;
    struct stream_file *file;
    struct stream_port *port;
};

// Streams of a user's running attached jobs, which share a number of bytes.
struct kept_user {
    uint32_t uid, streams;
};

struct streams {
    struct agent_node *agent;
    VEC(struct agent_stream *) list;
    struct map alone;  // running step or attached attempt that no stream is open for → struct step_alone
    uint32_t attached, times_kept;
    uint32_t turn;  // which stream comes first
    int64_t next_kept_look_ms;
    VEC(struct kept_user) kept_users;
    uv_timer_t timer;
};

// How much it may send now: the credit of the other side, as long as the connection that all streams share takes it.
// The node's other messages, by which it stays known as alive, are never behind more than STREAM_UNSENT_MAX.
uint64_t stream_room(const struct agent_stream *s);
bool stream_takes_more(const struct agent_stream *s);  // the connection does
// Tells the other side and frees the stream.
void stream_finish(struct agent_stream *s, const char *error);
void stream_close(struct agent_stream *s);

// stream_input.c
int stream_input_open(struct agent_stream *s);  // a negative errno: not there (yet)
void stream_input_take(struct agent_stream *s, const struct message_stream *m);
void stream_input_tell(struct agent_stream *s);    // where it stands, if the other side does not know
void stream_input_refuse(struct agent_stream *s);  // none is taken
void stream_input_resize(struct agent_stream *s, uint32_t rows, uint32_t columns);
void stream_input_done(struct stream_input *in);
void stream_wake(struct agent_stream *s);  // the shepherd, after a change

// stream_log.c
void stream_log_start(struct agent_stream *s, const struct message_log_read *m);
void stream_log_pump(struct agent_stream *s, int64_t now_ms);  // may end the stream
bool stream_log_is_client(const struct agent_stream *s);  // of an attached job: it frees what it has read
void stream_log_kick(struct agent_stream *s);  // there is something new
void stream_log_ack(struct agent_stream *s, uint64_t offset);  // the client of an attached job has it
struct stream_log *stream_log_free(struct stream_log *l);

// stream_step.c
void stream_step_start(struct agent_stream *s, const struct message_step *m);
void stream_step_pump(struct agent_stream *s, int64_t now_ms);  // may end the stream
void stream_step_ack(struct agent_stream *s, uint64_t offset);
void stream_step_received(struct agent_node *a, const struct message_step *m);
struct stream_step *stream_step_free(struct stream_step *p);
void streams_alone_done(struct streams *all);

// stream_file.c
void stream_file_start(struct agent_stream *s, const struct file_request *m);
void stream_file_pump(struct agent_stream *s, int64_t now_ms);  // may end the stream
struct stream_file *stream_file_free(struct stream_file *p);
// stream_port.c
void stream_port_start(struct agent_stream *s, const struct message_connect *m);
void stream_port_pump(struct agent_stream *s, int64_t now_ms);  // may end the stream
void stream_port_take(struct agent_stream *s, const struct message_stream *m);
void stream_port_credit(struct agent_stream *s, uint64_t bytes);
struct stream_port *stream_port_free(struct stream_port *p);

// kept_outputs.c: the folder of kept output.
typedef void streams_kept_fn(void *ctx, uint64_t id, uint32_t attempt, uint32_t step);
// Output over the limit is then dropped instead of blocking the job.
void streams_kept_give_up_client(struct agent_node *a, uint64_t id, uint32_t attempt);
// From time to time: calls fn for every running attached attempt (step is 0), and prunes. True: it did.
bool streams_kept_look(struct streams *all, int64_t now_ms, streams_kept_fn *fn, void *ctx);

// kept_times.c: when a log was written. A descriptor, or -1: not known.
int streams_times_open(struct agent_node *a, uint64_t id, uint32_t attempt, bool error);
