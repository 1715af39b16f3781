// One connection to a port of a job, on its node: what is asked of the shepherd and when, bytes both ways as far as
// each side gave credit, the end of one side and of both, errors in words. Without I/O: the agent runs it on sockets
// (agent/stream/stream_port.c), the fault simulator on its own.
// Such a stream has no positions and cannot go on after a cut: it ends with the connection to the controller, and
// whoever used it connects again.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "model/message.h"

enum {
    PORT_RELAY_PIECE_BYTES = 63 << 10,  // with what is around it, it fits a read of 64 KiB on the other side
    PORT_RELAY_UNSENT_MAX = 1 << 20,  // for the program; the other side stops well before
};

struct port_relay_host {
    // Asks the shepherd for the connection, whose answer agent_port_answered gets. 0, or a negative errno. -EAGAIN and
    // -ECONNREFUSED: it does not listen now; -ENOENT: not yet, or the attempt is not there.
    int (*ask)(void *ctx);
    ssize_t (*read)(void *ctx, void *data, size_t size);         // -EAGAIN; 0: the program sends no more
    ssize_t (*write)(void *ctx, const void *data, size_t size);  // -EAGAIN
    void (*shut)(void *ctx);                                     // the program gets no more
    void (*want)(void *ctx, bool read, bool write);              // which of them agent_port_ready is called for
    bool (*may_send)(void *ctx);  // whether the connection to the controller takes more now
    void (*send)(void *ctx, enum message_type type, struct message_stream *m);
    void (*end)(void *ctx, const char *error);  // once; the relay is not used any more. NULL: both sides had ended
};

struct port_relay {
    const struct port_relay_host *host;
    void *ctx;
    uint64_t stream, credit;
    uint32_t port;
    bool asked, answered, connected;
    bool program_ended, other_ended;  // sends no more
    struct buf unsent;                // for the program
    int64_t begun_ms, ask_ms;
};

// The host's functions, end included, may be called in each of these. `other`: the attempt that has the numbers on this
// node is one of another state of the controller (agent_logic_is_other).
void agent_port_begin(struct port_relay *r, const struct message_connect *m, bool other, int64_t now_ms);
void agent_port_done(struct port_relay *r);
void agent_port_answered(struct port_relay *r, int error);  // 0: connected, or about to be; else an errno
void agent_port_ready(struct port_relay *r, int error, bool readable, bool writable);  // error: the socket's errno
void agent_port_take(struct port_relay *r, const struct message_stream *m);            // from the other side
void agent_port_credit(struct port_relay *r, uint64_t bytes);
void agent_port_pump(struct port_relay *r, int64_t now_ms);  // from time to time
