// The WebSocket frame codec. Control frames may arrive between the fragments of a message, so they
// are collected apart from it. Lengths are checked against the limits before a byte is stored.
#include "net/ws.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/text.h"

void ws_init(struct ws *w, enum ws_role role, size_t message_max) {
    *w = (struct ws){.role = role, .message_max = message_max ? message_max : WS_MESSAGE_MAX};
}

void ws_done(struct ws *w) {
    buf_done(&w->message);
    buf_done(&w->control);
}

static int fail(struct ws *w, int status, const char *text) {
    w->failed = true;
    w->fail_status = status;
    w->fail_text = text;
    return -EPROTO;
}

static bool is_control(uint8_t opcode) {
    return opcode & 8;
}

// Bytes of the frame head, as far as what is there tells.
static unsigned head_need(const struct ws *w) {
    if (w->head_len < 2)
        return 2;
    unsigned len7 = w->head[1] & 0x7f;
    return 2 + (len7 == 126 ? 2 : len7 == 127 ? 8 : 0) + (w->head[1] & 0x80 ? 4 : 0);
}

static int check_opcode(struct ws *w) {
    switch (w->frame_opcode) {
    case 0:
        if (!w->message_opcode)
            return fail(w, WS_PROTOCOL_ERROR, "a continuation without a beginning");
        return 0;
    case WS_TEXT:
    case WS_BINARY:
        if (w->message_opcode)
            return fail(w, WS_PROTOCOL_ERROR, "a new message inside another");
        w->message_opcode = w->frame_opcode;
        return 0;
    case WS_CLOSE:
    case WS_PING:
    case WS_PONG:
        if (!w->fin)
            return fail(w, WS_PROTOCOL_ERROR, "a fragmented control frame");
        return 0;
    default:
        return fail(w, WS_PROTOCOL_ERROR, "an unknown opcode");
    }
}

static int check_length(struct ws *w, unsigned len7) {
    if (len7 == 126 && w->frame_len < 126)
        return fail(w, WS_PROTOCOL_ERROR, "a length that is not minimal");
    if (len7 == 127 && (w->frame_len <= UINT16_MAX || w->frame_len >> 63))
        return fail(w, WS_PROTOCOL_ERROR, "a length that is not minimal");
    if (is_control(w->frame_opcode)) {
        if (w->frame_len > WS_CONTROL_MAX)
            return fail(w, WS_PROTOCOL_ERROR, "a control frame over 125 bytes");
    } else if (w->message.len > w->message_max || w->frame_len > w->message_max - w->message.len) {
        return fail(w, WS_TOO_BIG, "a message over the limit");
    }
    return 0;
}

static int parse_frame_head(struct ws *w) {
    if (w->head[0] & 0x70)
        return fail(w, WS_PROTOCOL_ERROR, "reserved bits are set");
    bool masked = w->head[1] & 0x80;
    if (masked != (w->role == WS_SERVER))
        return fail(w, WS_PROTOCOL_ERROR,
                    masked ? "a masked frame from a server" : "an unmasked frame from a client");
    w->fin = w->head[0] & 0x80;
    w->frame_opcode = w->head[0] & 0x0f;
    int r = check_opcode(w);
    if (r < 0)
        return r;
    unsigned len7 = w->head[1] & 0x7f, at = 2;
    unsigned extended = len7 == 126 ? 2 : len7 == 127 ? 8 : 0;
    w->frame_len = len7;
    if (extended) {
        w->frame_len = 0;
        for (unsigned i = 0; i < extended; i++)
            w->frame_len = w->frame_len << 8 | w->head[at++];
    }
    r = check_length(w, len7);
    if (r < 0)
        return r;
    memset(w->mask, 0, 4);
    if (masked)
        memcpy(w->mask, w->head + at, 4);
    w->frame_seen = 0;
    w->in_payload = true;
    return 0;
}

// Appends the bytes, masked or unmasked: one pass over them for both.
static void add_masked(struct buf *out, const char *data, size_t len, const uint8_t mask[4], uint64_t phase) {
    char *to = buf_reserve(out, len);
    uint8_t turned[8];
    for (unsigned i = 0; i < 8; i++)
        turned[i] = mask[(phase + i) & 3];
    uint64_t wide, words[4];
    memcpy(&wide, turned, 8);
    size_t i = 0;
    for (; i + sizeof words <= len; i += sizeof words) {
        memcpy(words, data + i, sizeof words);
        for (unsigned k = 0; k < 4; k++)
            words[k] ^= wide;
        memcpy(to + i, words, sizeof words);
    }
    for (; i < len; i++)
        to[i] = (char)(data[i] ^ turned[i & 7]);
    out->len += len;
    out->data[out->len] = 0;
}

static size_t take_payload(struct ws *w, const char *data, size_t len) {
    struct buf *to = is_control(w->frame_opcode) ? &w->control : &w->message;
    uint64_t left = w->frame_len - w->frame_seen;
    size_t n = len < left ? len : (size_t)left;
    if (w->role == WS_SERVER)
        add_masked(to, data, n, w->mask, w->frame_seen);
    else
        buf_add(to, data, n);
    w->frame_seen += n;
    return n;
}

static bool sendable_status(int status) {
    return (status >= 1000 && status <= 1014 && status != 1004 && status != WS_NO_STATUS &&
            status != WS_ABNORMAL) ||
           (status >= 3000 && status <= 4999);
}

static int finish_close(struct ws *w, struct ws_event *event) {
    struct buf *c = &w->control;
    *event = (struct ws_event){.type = WS_CLOSE, .data = "", .status = WS_NO_STATUS};
    w->closed = true;
    if (c->len == 0)
        return 0;
    if (c->len == 1)
        return fail(w, WS_PROTOCOL_ERROR, "a close frame of one byte");
    event->status = (unsigned char)c->data[0] << 8 | (unsigned char)c->data[1];
    event->data = c->data + 2;
    event->len = c->len - 2;
    if (!sendable_status(event->status))
        return fail(w, WS_PROTOCOL_ERROR, "a close status that may not be sent");
    if (!str_utf8_valid(event->data, event->len))
        return fail(w, WS_BAD_DATA, "a close reason that is not UTF-8");
    return 0;
}

// The frame is complete; *got when that completes an event.
static int finish_frame(struct ws *w, struct ws_event *event, bool *got) {
    w->in_payload = false;
    w->head_len = 0;
    if (is_control(w->frame_opcode)) {
        w->have_event = *got = true;
        if (w->frame_opcode == WS_CLOSE)
            return finish_close(w, event);
        *event = (struct ws_event){(enum ws_opcode)w->frame_opcode, buf_str(&w->control),
                                   w->control.len, 0};
        return 0;
    }
    if (!w->fin)
        return 0;
    *event = (struct ws_event){(enum ws_opcode)w->message_opcode, buf_str(&w->message),
                               w->message.len, 0};
    w->message_opcode = 0;
    w->have_event = *got = true;
    if (event->type == WS_TEXT && !str_utf8_valid(event->data, event->len))
        return fail(w, WS_BAD_DATA, "a text message that is not UTF-8");
    return 0;
}

// What the caller was given last time may be forgotten now.
static void forget_event(struct ws *w) {
    enum { KEEP_BYTES = 64 * 1024 };  // a large message's memory is not held for the next small one
    w->have_event = false;
    buf_clear(&w->control);
    if (w->message_opcode)
        return;
    if (w->message.cap > KEEP_BYTES)
        buf_done(&w->message);
    buf_clear(&w->message);
}

ssize_t ws_feed(struct ws *w, const void *data, size_t len, struct ws_event *event, bool *got) {
    *got = false;
    if (w->failed)
        return -EPROTO;
    if (w->closed)
        return (ssize_t)len;
    if (w->have_event)
        forget_event(w);
    const char *p = data;
    size_t used = 0;
    while (!*got) {
        if (!w->in_payload) {
            unsigned need = head_need(w);
            while (w->head_len < need && used < len) {
                w->head[w->head_len++] = (unsigned char)p[used++];
                need = head_need(w);
            }
            if (w->head_len < need)
                break;
            int r = parse_frame_head(w);
            if (r < 0)
                return r;
        }
        used += take_payload(w, p + used, len - used);
        if (w->frame_seen < w->frame_len)
            break;
        int r = finish_frame(w, event, got);
        if (r < 0) {
            *got = false;
            return r;
        }
    }
    return (ssize_t)used;
}

size_t ws_unfinished(const struct ws *w) {
    return w->message_opcode ? w->message.len : 0;
}

static size_t encode_head(unsigned char head[static WS_HEAD_MAX], uint8_t mask_bit, enum ws_opcode opcode,
                          size_t len) {
    assert(!is_control((uint8_t)opcode) || len <= WS_CONTROL_MAX);
    size_t n = 0;
    head[n++] = (unsigned char)(0x80 | opcode);
    if (len < 126) {
        head[n++] = (unsigned char)(mask_bit | len);
    } else {
        unsigned extended = len <= UINT16_MAX ? 2 : 8;
        head[n++] = mask_bit | (extended == 2 ? 126 : 127);
        for (unsigned i = extended; i-- > 0;)
            head[n++] = (unsigned char)((uint64_t)len >> (8 * i));
    }
    return n;
}

size_t ws_encode_head(unsigned char out[static WS_HEAD_MAX], enum ws_opcode opcode, size_t len) {
    return encode_head(out, 0, opcode, len);
}

void ws_encode(struct buf *out, enum ws_role role, enum ws_opcode opcode, const void *data, size_t len,
               uint32_t mask) {
    unsigned char head[WS_HEAD_MAX];
    size_t n = encode_head(head, role == WS_CLIENT ? 0x80 : 0, opcode, len);
    uint8_t key[4];
    memcpy(key, &mask, 4);
    if (role == WS_CLIENT) {
        memcpy(head + n, key, 4);
        n += 4;
    }
    buf_reserve(out, n + len);
    buf_add(out, head, n);
    if (role == WS_CLIENT)
        add_masked(out, data, len, key, 0);
    else
        buf_add(out, data, len);
}

void ws_encode_close(struct buf *out, enum ws_role role, int status, const char *reason,
                     uint32_t mask) {
    char payload[WS_CONTROL_MAX];
    size_t len = 0;
    if (sendable_status(status)) {
        size_t n = reason ? strlen(reason) : 0;
        if (n > sizeof payload - 2)
            n = sizeof payload - 2;
        while (n && !str_utf8_valid(reason, n))
            n--;
        payload[0] = (char)(status >> 8);
        payload[1] = (char)status;
        if (n)
            memcpy(payload + 2, reason, n);
        len = n + 2;
    }
    ws_encode(out, role, WS_CLOSE, payload, len, mask);
}
