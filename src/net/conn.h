// One connection on the event loop (inside net/ only): a byte stream over a pipe or TCP, with or
// without TLS, with bounded output, one deadline, a graceful end and a reference count. What the
// bytes mean is decided by `ops`, which an upgrade replaces.
// Callbacks come from the loop only, never from inside conn_write, conn_finish or conn_destroy.
#pragma once
#include <uv.h>

#include "base/buf.h"
#include "net/socket.h"
#include "net/tls.h"

enum {
    CONN_READ_BYTES = 64 * 1024,
    CONN_OUTPUT_HARD_MAX = 1024 * 1024 * 1024,  // unsent bytes, whatever the caller's limit
    CONN_LINGER_MS = 2000,     // after our last byte, how long the peer may take to end as well
    CONN_KEEP_BYTES = 4 * 1024,  // larger buffers are freed when empty
};

struct conn;

struct conn_ops {
    void (*on_open)(struct conn *c);  // the TLS handshake is done
    // Returns how many bytes were taken; fewer than len stops reading until conn_resume, and the
    // rest is offered again then.
    size_t (*on_data)(struct conn *c, const char *data, size_t len);
    void (*on_eof)(struct conn *c);
    void (*on_drain)(struct conn *c);
    void (*on_deadline)(struct conn *c);
    void (*on_shutdown)(struct conn *c);  // the server wants to end
    void (*on_gone)(struct conn *c);      // once; the connection is closed
};

struct conn {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_pipe_t pipe;
        uv_tcp_t tcp;
    };
    uv_timer_t timer;
    uv_write_t write;
    uv_shutdown_t shutdown;
    const struct conn_ops *ops;
    void *owner;                          // of ops
    void (*on_closed)(struct conn *c);    // of whoever made the connection; after on_gone
    void (*free_fn)(struct conn *c);      // last reference gone
    struct tls *tls;                      // NULL: plain
    struct net_peer peer;
    struct buf out, inflight, pushback;
    char *read_buffer;                    // CONN_READ_BYTES, shared by the connections of a loop
    size_t output_max;
    size_t write_left;                    // of the write in progress when last looked at
    uint32_t write_timeout_ms;
    uint64_t deadline, write_deadline, due;  // loop times, 0: none
    uint64_t last_input;
    unsigned refs, handles;
    const char *problem;  // why it ended, when something is known
    int problem_code;     // or a libuv error
    bool paused, kicked, corked, writing, eof, finishing, shutdown_sent, closing;
};

// The caller has initialised the stream handle; `c` starts with one reference, the loop's.
void conn_init(struct conn *c, uv_loop_t *loop, char *read_buffer);
void conn_start(struct conn *c);  // connected: begins the TLS handshake, reads
struct conn *conn_ref(struct conn *c);
void conn_unref(struct conn *c);
ssize_t conn_write(struct conn *c, const void *data, size_t len);          // as net_ws_send
ssize_t conn_write_bounded(struct conn *c, const void *data, size_t len);  // output_max holds
void conn_cork(struct conn *c);
void conn_uncork(struct conn *c);
void conn_resume(struct conn *c);
void conn_pause(struct conn *c);
void conn_set_deadline(struct conn *c, uint64_t after_ms);  // 0: none
void conn_finish(struct conn *c);                           // sends what waits, then ends
void conn_hang_up(struct conn *c);                          // of one that is idle: ends soon
void conn_destroy(struct conn *c);                          // ends now
size_t conn_pending(const struct conn *c);
bool conn_peer_closed(const struct conn *c);  // after on_eof: not only the sending side is shut
