// How many replicas a service is to have, and how long its answers take: without I/O and without a clock.
#pragma once
#include <stdbool.h>
#include <stdint.h>

// What is known of a service at a time.
struct serve_load {
    int64_t now_ms;
    uint32_t min, max;    // replicas
    uint32_t target;      // requests at once of a replica
    uint32_t latency_ms;  // that 99 of 100 answers may take; 0: not looked at
    uint32_t cooldown_ms, idle_ms;
    uint32_t replicas;   // that it is to have by the last decision
    uint32_t ready;      // that take requests
    double in_flight;    // requests that replicas have, on average since the last decision
    uint32_t queued;     // that wait for a replica
    uint32_t p99_ms;     // of the last answers; 0: there were none
    int64_t request_ms;  // when the last request came
};

// What a decision remembers of the earlier ones.
struct serve_scaler {
    int64_t below_since_ms;  // since when fewer replicas would do; 0: they would not
    uint32_t most;           // that were wanted since
};

// More replicas at once, as many as the requests that there are need; fewer only after less was needed for the whole
// cool-down, and then as many as were needed most meanwhile. None only after no request came for the idle time.
uint32_t serve_scale(struct serve_scaler *s, const struct serve_load *l);

// How long answers took lately, in buckets whose bounds are a quarter of a power of two apart: 19 % at most.
enum { SERVE_BUCKETS = 96, SERVE_WINDOWS = 6, SERVE_WINDOW_MS = 10 * 1000 };
struct serve_latency {
    uint32_t counts[SERVE_WINDOWS][SERVE_BUCKETS];
    uint64_t failed[SERVE_WINDOWS];
    int64_t began_ms[SERVE_WINDOWS];  // of each window; 0: unused
};
void serve_latency_add(struct serve_latency *l, int64_t now_ms, int64_t took_us, bool failed);
// Over the windows: answers a second, and what part of the answers took at most. `part` in thousandths; 0: none came.
double serve_latency_rate(const struct serve_latency *l, int64_t now_ms);
uint64_t serve_latency_us(const struct serve_latency *l, int64_t now_ms, uint32_t part);
