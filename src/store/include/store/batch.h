// A batch as the writers see it: records in vectors, their bytes in one buffer, addressed by
// offset because the buffer moves while it grows. Internal to the store.
#pragma once
#include "base/buf.h"
#include "base/vec.h"
#include "store/store.h"

struct batch_span {
    size_t at, len;  // in `bytes`
};

struct batch_event {
    uint64_t seq, job;
    int64_t at_ms;
    uint32_t type;
    struct batch_span data;
};

struct batch_text {
    uint64_t owner;
    struct store_key key;
    struct batch_span text;
};

struct batch_history {
    struct store_history row;  // its pointers are unset
    struct batch_span user, project, name, nodes, data;
};

struct batch_blob {
    struct batch_span name;  // followed by a NUL
    struct batch_span data;
    bool remove;
};

struct store_batch {
    struct store_batch *next;
    uint64_t ticket;
    struct buf bytes;
    VEC(struct batch_event) events;
    VEC(struct batch_text) texts;
    VEC(uint64_t) releases;
    VEC(struct batch_history) history;
    VEC(struct batch_blob) blobs;
    uint32_t level;            // 0: unchanged
    struct batch_span release; // followed by a NUL
};

static inline const char *batch_at(const struct store_batch *b, struct batch_span span) {
    return span.len ? b->bytes.data + span.at : "";
}

// The record with pointers into the batch's bytes.
struct store_event store_batch_event_view(const struct store_batch *b, const struct batch_event *ev);
struct store_history store_batch_history_view(const struct store_batch *b, const struct batch_history *h);
