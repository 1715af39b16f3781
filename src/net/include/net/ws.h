// WebSocket (RFC 6455) without I/O: frames in, messages out, and back. No extensions.
// A server refuses unmasked frames, a client masked ones; messages are bounded; text is UTF-8.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"

enum {
    WS_MESSAGE_MAX = 16 * 1024 * 1024,  // bytes of one message unless the caller says otherwise
    WS_CONTROL_MAX = 125,               // bytes of a ping, pong or close
    WS_ACCEPT_LEN = 28,                 // characters of Sec-WebSocket-Accept
    WS_KEY_LEN = 24,                    // characters of Sec-WebSocket-Key
    WS_HEAD_MAX = 14,                   // bytes of a frame's head
};

enum ws_role { WS_SERVER, WS_CLIENT };

enum ws_opcode { WS_TEXT = 1, WS_BINARY = 2, WS_CLOSE = 8, WS_PING = 9, WS_PONG = 10 };

enum ws_status {
    WS_NORMAL = 1000,
    WS_GOING_AWAY = 1001,
    WS_PROTOCOL_ERROR = 1002,
    WS_NO_STATUS = 1005,  // never sent: the close frame held no status
    WS_ABNORMAL = 1006,   // never sent: the connection ended without a close frame
    WS_BAD_DATA = 1007,
    WS_POLICY = 1008,
    WS_TOO_BIG = 1009,
    WS_INTERNAL = 1011,
    WS_TRY_LATER = 1013,
};

// One thing that arrived. `data` lives until the next ws_feed and is NUL-terminated.
struct ws_event {
    enum ws_opcode type;
    const char *data;
    size_t len;
    int status;  // of a close; data and len are then its reason
};

struct ws {
    enum ws_role role;
    size_t message_max;
    int fail_status;  // after -EPROTO: the status to close with
    const char *fail_text;
    // private
    unsigned char head[14];
    unsigned head_len;
    bool in_payload, fin, have_event, failed, closed;
    uint8_t frame_opcode, message_opcode;
    uint8_t mask[4];
    uint64_t frame_len, frame_seen;
    struct buf message, control;
};

void ws_init(struct ws *w, enum ws_role role, size_t message_max);  // 0: the default
void ws_done(struct ws *w);
// Consumes bytes until one event is complete or none are left. Returns how many were consumed;
// *got tells whether `event` was filled. -EPROTO when the peer breaks the rules: answer with a
// close frame of fail_status and end the connection. After a close frame nothing more is taken.
ssize_t ws_feed(struct ws *w, const void *data, size_t len, struct ws_event *event, bool *got);

size_t ws_unfinished(const struct ws *w);  // bytes of a message that is not complete yet

// Appends the head of a server's frame, whose payload follows as it is: at most WS_HEAD_MAX bytes.
size_t ws_encode_head(unsigned char out[static WS_HEAD_MAX], enum ws_opcode opcode, size_t len);
// Appends one unfragmented frame. A client's frames are masked with `mask`, which must be
// unpredictable to whoever chose the payload; a server passes 0.
void ws_encode(struct buf *out, enum ws_role role, enum ws_opcode opcode, const void *data,
               size_t len, uint32_t mask);
void ws_encode_close(struct buf *out, enum ws_role role, int status, const char *reason,
                     uint32_t mask);

// Handshake. The accept value for a client's key, which must be well-formed: 0 or -EINVAL.
int ws_accept(const char *key, char out[static WS_ACCEPT_LEN + 1]);
void ws_key(const unsigned char nonce[static 16], char out[static WS_KEY_LEN + 1]);
