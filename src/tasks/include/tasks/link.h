// Connections between the processes of a pool on several nodes. Both sides prove that they know the pool's key,
// by random numbers of both and HMAC-SHA256; from then on each record is AES-256-GCM, under a key of the connection
// and direction, with the record's number as nonce. Whoever has not the key can neither read a record nor change,
// repeat, leave out or add one. Pure but for the random numbers: bytes in, frames and bytes out.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum {
    LINK_KEY_BYTES = 32,
    LINK_NONCE_BYTES = 32,
    LINK_TAG_BYTES = 16,
    LINK_PORTS = 8,               // that the head may have
    LINK_RECORD_MAX = 1100 << 10  // of a frame with its type
};

enum tasks_link_frame {
    // Of the first frame of a connection follows what it is for.
    LINK_JOIN = 1,  // u32 version, u32 cpus, u64 memory, u32 workers, u16 port, u16 length, name, u16 length, GPUs
    LINK_READ,      // u64 id, u64 at, u64 size: the other side sends that part of its memory
    LINK_BYTES,     // u64 id, bytes
    LINK_PING,
    // from the head to a node
    LINK_START = 16,  // u32 worker, u32 connection, GPUs
    LINK_GIVE,        // u32 worker, packet
    LINK_ASK_BACK,    // u32 worker
    LINK_STOP,        // u32 worker, u8 kill
    LINK_SEND,        // u32 worker, frames
    LINK_DROP,        // u64 at, u64 size
    LINK_FETCH,       // u64 id, u64 at, u64 size, u64 at there, u16 port, address; no address: from the head
    LINK_END,
    // from a node to the head
    LINK_FRAMES = 32,  // u32 worker, frames
    LINK_RETURNED,     // u32 worker, u64 ids of tasks
    LINK_OUTPUT,       // u32 worker, the end of what it wrote: before its task's error, or its end
    LINK_ENDED,        // u32 worker, text
    LINK_FETCHED,      // u64 id, u8 ok
    LINK_FRAME_KINDS,
};

struct tasks_link {
    bool server, greeted, open;
    uint8_t key[LINK_KEY_BYTES], nonce[LINK_NONCE_BYTES], other[LINK_NONCE_BYTES];
    struct evp_cipher_ctx_st *sealer, *opener;
    uint64_t sealed, opened;
    struct buf in, out;
    size_t at;  // of `in`: what is before was handled
    struct buf plain;  // of the record that is read
};

int tasks_link_init(struct tasks_link *l, bool server, const uint8_t key[static LINK_KEY_BYTES]);
void tasks_link_done(struct tasks_link *l);
// Two parts, so that what lies in memory need not be copied before. Nothing while the link is not open.
void tasks_link_send(struct tasks_link *l, enum tasks_link_frame type, const void *head, size_t head_len,
                     const void *body,
               size_t body_len);
// The next frame of what has come: 1, 0: there is none yet; negative: the connection is of no use. To be called again
// until it says 0; the frame is valid until then.
int tasks_link_next(struct tasks_link *l, enum tasks_link_frame *type, const char **body, size_t *len);
uint16_t tasks_link_port(const uint8_t key[static LINK_KEY_BYTES], uint32_t which);
int tasks_link_key(const char *hex, uint8_t out[static LINK_KEY_BYTES]);  // 0, or -EINVAL
