// The protocol of a pool: what clients, worker processes and the pool's process (acequia-tasks) say to each other.
// A frame is a length of 4 bytes (of what follows), a type of 1 byte and a body; numbers are little-endian, unpadded.
// python/acequia/connection.py is the other side, and portal/src/pools/data.ts asks for lists. Pure: bytes in, frames
// out.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum {
    TASKS_VERSION = 2,
    TASKS_FRAME_HEAD = 5,
    TASKS_FRAME_MAX = 1 << 20,      // larger values go through shared memory, or in pieces
    TASKS_INLINE_MAX = 32 << 10,    // of a value or of a task's arguments inside a frame
    TASKS_MESSAGE_MAX = 128 << 10,  // of a task as it is given to a worker: one packet
    TASKS_DEPENDENCIES_MAX = 1024,  // of one task, as arguments of their own
    TASKS_NESTED_MAX = 4096,        // references inside one value
    TASKS_NAME_MAX = 255,
};

enum tasks_frame {
    // from clients and workers
    TASKS_HELLO = 1,  // u32 version, u8 kind
    TASKS_SUBMIT,     // struct tasks_submit
    TASKS_PUT,        // u64 id, nested, value
    TASKS_ALLOC,      // u64 id, u64 size
    TASKS_WRITE,      // u64 id, u64 at, bytes: by clients that do not map the memory
    TASKS_SEAL,       // u64 id, nested
    TASKS_GET,        // u64 id
    TASKS_HOLD,       // u64 ids
    TASKS_RELEASE,    // u64 ids
    TASKS_DONE,       // struct tasks_done, by workers
    TASKS_CANCEL,     // u64 id, u8 force
    TASKS_BLOCKED,    // u8 yes, by workers: the task waits for a value
    TASKS_LIST,       // u8 what, u64 id, u32 limit
    TASKS_END,        // the pool is to end
    TASKS_FROM_OUTSIDE,
    // to clients and workers
    TASKS_WELCOME =
        32,           // u32 connection, u64 bytes of shared memory, u8 shared; a descriptor with it if shared
    TASKS_VALUE,      // u64 id, u8 kind: enum tasks_value, …
    TASKS_ALLOCATED,  // u64 id, u64 offset or UINT64_MAX, text
    TASKS_DATA,       // u64 id, bytes of a value, for clients that do not map the memory
    TASKS_LISTED,     // JSON
    // to workers, one packet each
    TASKS_TASK = 48,  // u64 id, u64 function, u64 actor, u8 flags, u16 count, dependencies, arguments
    TASKS_QUIT,
};

enum tasks_kind { TASKS_CLIENT = 1, TASKS_VIEWER, TASKS_WORKER };

enum tasks_value {
    TASKS_VALUE_INLINE,  // the bytes
    TASKS_VALUE_SHARED,  // u64 offset, u64 size: in shared memory; for others u64 0, u64 size, then TASKS_DATA
    TASKS_VALUE_ERROR,   // u8 enum tasks_error, bytes
    TASKS_VALUE_ASK,     // of a dependency: it does not fit into the packet or is elsewhere, the worker asks for it
    TASKS_VALUE_ELSEWHERE,  // u64 size: a result that is on another node, and comes when it is asked for
};

enum tasks_error {
    TASKS_EXCEPTION = 1,  // bytes of the worker
    TASKS_WORKER_LOST,    // from here on a text
    TASKS_CANCELLED,
    TASKS_ACTOR_LOST,
    TASKS_UNKNOWN,
    TASKS_FULL,
    TASKS_IMPOSSIBLE,
};

enum tasks_flags {
    TASKS_WANT = 1,         // the result is sent to the submitter, if it need not be brought from another node
    TASKS_NEW_ACTOR = 2,    // the task makes the actor of its id
    TASKS_ARGS_OBJECT = 4,  // the last dependency holds the arguments
};

enum tasks_list { TASKS_LIST_TASKS, TASKS_LIST_ACTORS, TASKS_LIST_OBJECTS, TASKS_LIST_SUMMARY, TASKS_LIST_NODES };

struct tasks_submit {
    uint64_t id, function, actor;
    uint32_t cpu_milli, gpu_milli;
    uint16_t retries, ndependencies, nnested;
    uint8_t flags, name_len;
    const char *name;
    const uint8_t *dependencies, *nested;  // unaligned: tasks_id
    const char *arguments;
    uint32_t arguments_len;
};

struct tasks_done {
    uint64_t id;
    bool error, shared;  // shared: the value was written to the memory allocated for this id
    uint32_t micros;
    uint16_t nnested;
    const uint8_t *nested;
    const char *value;
    uint32_t value_len;
};

struct tasks_reader {
    const uint8_t *at, *end;
    bool bad;  // something was asked for that is not there
};

uint8_t tasks_read_u8(struct tasks_reader *r);
uint16_t tasks_read_u16(struct tasks_reader *r);
uint32_t tasks_read_u32(struct tasks_reader *r);
uint64_t tasks_read_u64(struct tasks_reader *r);
const uint8_t *tasks_read_bytes(struct tasks_reader *r, size_t len);
uint64_t tasks_id(const uint8_t *ids, size_t i);

// 0, or -EPROTO: the frame is not one.
int tasks_read_submit(const void *body, size_t len, struct tasks_submit *out);
int tasks_read_done(const void *body, size_t len, struct tasks_done *out);

// The next whole frame of `in` from *at on: 1 and *at behind it, 0: there is none yet, -EPROTO: this is no frame.
int tasks_next_frame(const struct buf *in, size_t *at, enum tasks_frame *type, const char **body,
                     size_t *len);

void tasks_add_u8(struct buf *b, uint8_t v);
void tasks_add_u16(struct buf *b, uint16_t v);
void tasks_add_u32(struct buf *b, uint32_t v);
void tasks_add_u64(struct buf *b, uint64_t v);
void tasks_begin(struct buf *b, enum tasks_frame type, size_t body);  // the head of a frame with such a body
