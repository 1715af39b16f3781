// One connection on the event loop (inside net/ only): a byte stream over a pipe or TCP, with or
// without TLS, with bounded output, one deadline, a graceful end and a reference count. What the
// bytes mean is decided by `ops`, which an upgrade replaces.
// Callbacks come from the loop only, never from inside net_conn_write, net_conn_finish or net_conn_destroy.
#pragma once
#include <uv.h>

#include "base/buf.h"
#include "net/socket.h"
#include "net/tls.h"

enum {
    CONN_READ_BYTES = 64 * 1024,
    CONN_OUTPUT_HARD_MAX = 1024 * 1024 * 1024,  // unsent bytes, whatever the caller's limit
    CONN_LINGER_MS = 2000,                 // after our last byte, how long the peer may take to end as well
    CONN_KEEP_BYTES = 4 * 1024,            // larger buffers are freed when empty,
    CONN_KEEP_DIALLED_BYTES = 128 * 1024,  // of those we made ourselves, which are few and busy
};

struct net_conn;

// Handshakes take long: in one turn of the loop only a few steps of all are made, and none before the peer's hello is
// complete.
enum { CONN_HANDSHAKES_TURN = 16, CONN_HELLO_MAX_MS = 63 };  // between two reads of an incomplete hello
struct conn_handshakes {
    uint64_t at_ms;  // loop time of the turn
    uint32_t steps, steps_max;
    uint64_t steps_all;
};

// What the connections of one account cost. In a turn of the loop their input gets CONN_TURN_NS; the rest waits for
// the next turn, so that nobody waits behind the floods of others. Answers and messages that wait because nobody reads
// them are counted for the account as well.
// Who used it up with very many small messages rests longer: then most of the time is left to others.
enum {
    CONN_TURN_NS = 2 * 1000 * 1000,
    CONN_MANY_PIECES = 256,
    CONN_STRANGERS_MANY_PIECES = 32,  // of all whom nobody knows; handshakes are fewer
    CONN_REST_MS = 1,
    CONN_LONG_REST_MS = 6,
    CONN_REST_MAX_MS = 100
};
struct conn_account {
    uint64_t at_ms;               // loop time of the turn
    uint64_t spent_ns;            // in it
    uint32_t pieces;              // likewise
    uint32_t many_pieces;         // from how many on it rests longer
    uint64_t rests_until_ms;      // loop time
    uint64_t long_rests;          // so far
    uint64_t rest_max_ms;         // longest, from the beginning of its turn
    uint64_t unsent, unsent_max;  // bytes
    bool always_heard;  // also while it leaves much unread: two who do that would wait for each other
    struct conn_account *all;     // of all strangers, whose input counts for this one as well; NULL: none
};

struct conn_ops {
    void (*on_open)(struct net_conn *c);  // the TLS handshake is done
    // Returns how many bytes were taken; fewer than len stops reading until net_conn_resume, and the
    // rest is offered again then.
    size_t (*on_data)(struct net_conn *c, const char *data, size_t len);
    void (*on_eof)(struct net_conn *c);
    void (*on_drain)(struct net_conn *c);
    void (*on_deadline)(struct net_conn *c);
    void (*on_shutdown)(struct net_conn *c);  // the server wants to end
    void (*on_gone)(struct net_conn *c);      // once; the connection is closed
};

struct net_conn {
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
    void (*on_closed)(struct net_conn *c);    // of whoever made the connection; after on_gone
    void (*free_fn)(struct net_conn *c);      // last reference gone
    struct tls *tls;                      // NULL: plain
    struct conn_handshakes *handshakes;   // of the server; NULL: no limit
    struct conn_account *account;         // likewise
    size_t counted;                       // of the account's unsent bytes, this connection's
    size_t queued;                        // of those, what the owner holds back; see net_conn_queued
    // Bytes of a WebSocket message that is not complete yet. False: too many, the connection must end. NULL: no limit.
    bool (*on_receiving)(struct net_conn *c, size_t bytes);
    struct net_peer peer;
    struct buf out, inflight, pushback;
    char *read_buffer;                    // CONN_READ_BYTES, shared by the connections of a loop
    size_t output_max;
    size_t keep_bytes;                    // of an empty buffer; 0: CONN_KEEP_BYTES
    size_t write_left;                    // of the write in progress when last looked at
    uint32_t write_timeout_ms;
    uint64_t deadline, write_deadline, due;  // loop times, 0: none
    uint64_t kick_at;                        // loop time at which it goes on, if it is kicked
    uint32_t hello_ms;                       // how long it was not read from while its hello was incomplete
    uint64_t last_input;
    unsigned refs, handles;
    const char *problem;  // why it ended, when something is known
    int problem_code;     // or a libuv error
    bool paused, kicked, corked, writing, eof, finishing, shutdown_sent, closing;
};

// The caller has initialised the stream handle; `c` starts with one reference, the loop's.
void net_conn_init(struct net_conn *c, uv_loop_t *loop, char *read_buffer);
void net_conn_start(struct net_conn *c);  // connected: begins the TLS handshake, reads
struct net_conn *net_conn_ref(struct net_conn *c);
void net_conn_unref(struct net_conn *c);
ssize_t net_conn_write(struct net_conn *c, const void *data, size_t len);          // as net_ws_send
ssize_t net_conn_write_bounded(struct net_conn *c, const void *data, size_t len);  // output_max holds
ssize_t net_conn_write_parts(struct net_conn *c, const void *head, size_t head_len, const void *data,
                             size_t len);  // likewise, both in one
void net_conn_cork(struct net_conn *c);
void net_conn_uncork(struct net_conn *c);
void net_conn_resume(struct net_conn *c);
void net_conn_pause(struct net_conn *c);
void net_conn_set_deadline(struct net_conn *c, uint64_t after_ms);  // 0: none
void net_conn_finish(struct net_conn *c);                           // sends what waits, then ends
void net_conn_hang_up(struct net_conn *c);                          // of one that is idle: ends soon
void net_conn_destroy(struct net_conn *c);                          // ends now
size_t net_conn_pending(const struct net_conn *c);
void net_conn_set_account(struct net_conn *c, struct conn_account *a);  // NULL: nothing is counted any more
void net_conn_queued(struct net_conn *c,
                     size_t bytes);  // held back by the owner, and counted with what is pending
bool net_conn_account_full(const struct net_conn *c);  // its account's clients read too little
bool net_conn_peer_closed(const struct net_conn *c);  // after on_eof: not only the sending side is shut
