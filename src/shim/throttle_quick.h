// The way of most launches: the thread's context and stream are what they were, the kernel is
// known, and there is room in the open segment. No call, no clock, one locked instruction; four
// cache lines. Anything else goes to throttle_before.
#pragma once
#include "throttle_state.h"

static inline bool throttle_quick(CUstream stream, bool per_thread, uint64_t key) {
    struct throttle_mine *mine = &throttle_mine;
    struct throttle *g = mine->throttle;
    if (!g || !mine->trust ||
        atomic_load_explicit(&shim.throttle_epoch, memory_order_acquire) != mine->epoch ||
        atomic_load_explicit(&shim.captures, memory_order_relaxed) || !throttle_try(g))
        return false;
    unsigned k = throttle_set(key), end = k + THROTTLE_WAYS;
    while (k < end && g->kernel[k].key != key)
        k++;
    bool ok = k < end && g->room && g->room_stream == stream && g->room_per_thread == per_thread &&
              g->kernel[k].ns < g->room_ns;
    if (ok) {
        struct segment *s = g->open;
        float ns = g->kernel[k].ns;
        s->launch[s->n++] = (struct launch){k, ns};
        s->est_ns += ns;
        g->flight_ns += ns;
        g->room--;
        g->room_ns -= ns;
        g->serial++;
        mine->trust--;
    }
    throttle_unlock(g);
    return ok;
}
