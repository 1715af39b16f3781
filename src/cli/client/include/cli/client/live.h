// A live connection with what runs in a job, over one WebSocket: output comes with its position, input goes with its
// own (the controller's follow.h says how). When the connection is cut another one goes on where it was: nothing is
// missed and nothing comes twice. What messages mean, and what is shown, is the business of whoever uses it: session.c
// for run, attach, exec and logs, slurm/step_run.c for srun and salloc.
#pragma once
#include <sys/signalfd.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/vec.h"
#include "cli/client/client.h"
#include "cli/term/terminal.h"

enum { LIVE_CHUNK = 64 * 1024, LIVE_PING_MS = 10 * 1000 };

struct client_live;

// All that return int return 0, or a negative errno that ends the connection; after one that means a cut it is made
// again.
struct client_live_ops {
    // Where to, and what to say first; `again`: after a cut, with what we have.
    void (*request)(const struct client_live *l, bool again, struct buf *target, struct buf *first);
    int (*connected)(struct client_live *l, bool again);
    // New output, of channel 1 or 2. `at`: where it ends in its stream; 0: streams have no positions.
    int (*output)(struct client_live *l, int fd, uint32_t rank, uint32_t stream, uint64_t at,
                  const char *data, size_t len);
    int (*text)(struct client_live *l, const struct json *message);
    int (*signal)(struct client_live *l, const struct signalfd_siginfo *info);
    int (*closed)(struct client_live *l);                // by the controller
    int (*wait_ms)(const struct client_live *l);         // how long to wait for anything at most
    int (*turn)(struct client_live *l, bool timed_out);  // after each wait
    // While there is no connection: whether a signal ends the waiting for one. False: signals are left for later.
    bool (*heeds_signals)(const struct client_live *l);
    void (*waits)(struct client_live *l);  // says that the controller does not answer
};

// Of one stream: the position up to which it was handed on, and how many bytes that were.
struct client_live_stream {
    uint64_t at, bytes;
};

struct client_live {
    struct cli *cli;
    const struct client_live_ops *ops;
    void *ctx;
    int signals;            // a signalfd
    bool placed;            // everything has positions: a cut is no end
    bool pty;               // our terminal is put into raw mode
    bool input_open, done;  // input_open: standard input is forwarded, until its end
    struct client *client;  // NULL: one is made. Whoever uses this frees it
    uint64_t epoch;         // of the step, as the controller told it; 0: none
    uint32_t attempt;
    VEC(struct client_live_stream) streams;  // by number
    // Private.
    struct http_client *http;
    struct terminal_raw raw;
    struct buf kept;             // input that is not known to have arrived
    uint64_t kept_at;            // position of its first byte
    bool input_ended, locating;  // its end was read; it is not known where it goes on
    uint64_t unacked;
    int64_t heard_ms, pinged_ms;
};

// Until `done` is set or something fails: 0 or a negative errno, with the words in the error of `cli`.
int client_live_run(struct client_live *l);
void client_live_done(struct client_live *l);

int client_live_send(struct client_live *l, const char *text);
int client_live_send_size(struct client_live *l);  // of our terminal
// Writes all of it, also to a reader that takes a break; meanwhile the controller is told that we are there.
int client_live_write(struct client_live *l, int fd, const char *data, size_t len);
// The positions that we have, as members of an object.
void client_live_positions(const struct client_live *l, struct buf *out);
