// The queue of events in virtual time: a heap by time and, for equal times, by order of insertion.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/vec.h"

struct queued {
    int64_t at_ms;
    uint64_t seq;
    uint32_t kind, who;  // who: a machine, a connection, a request, an item of the plan
    uint64_t a, b;       // generations and keys; what they mean depends on the kind
};

struct queue {
    VEC(struct queued) heap;
    uint64_t seq;
};

void queue_put(struct queue *q, int64_t at_ms, uint32_t kind, uint32_t who, uint64_t a, uint64_t b);
bool queue_take(struct queue *q, struct queued *out);
void queue_done(struct queue *q);
