// Owns the decision how many replicas a service has, and its figures of latency.
#include "serve_scale.h"

#include <string.h>

static uint32_t at_most(double v, uint32_t max) {
    return v >= max ? max : v <= 0 ? 0 : (uint32_t)v + (v > (uint32_t)v);
}

// More replicas help only where requests share one: an answer that is slow by itself stays so.
static uint32_t for_latency(const struct serve_load *l) {
    if (!l->latency_ms || l->p99_ms <= l->latency_ms || !l->ready || l->ready < l->replicas ||
        l->in_flight <= l->ready)
        return 0;
    double times = (double)l->p99_ms / l->latency_ms;
    return at_most(l->replicas * (times < 2 ? times : 2), l->max);
}

static uint32_t wanted(const struct serve_load *l) {
    uint32_t n = at_most((l->in_flight + l->queued) / l->target, l->max), more = for_latency(l);
    if (more > n)
        n = more;
    if (!n && (l->queued || l->in_flight > 0 || l->now_ms - l->request_ms < (int64_t)l->idle_ms))
        n = 1;
    if (n < l->min)
        n = l->min;
    return n < l->max ? n : l->max;
}

uint32_t serve_scale(struct serve_scaler *s, const struct serve_load *l) {
    uint32_t n = wanted(l);
    if (n >= l->replicas) {
        *s = (struct serve_scaler){0};
        return n;
    }
    if (!n) {  // the idle time is the pause before that
        *s = (struct serve_scaler){0};
        return 0;
    }
    if (!s->below_since_ms || n > s->most)
        s->most = n;
    if (!s->below_since_ms)
        s->below_since_ms = l->now_ms;
    if (l->now_ms - s->below_since_ms < (int64_t)l->cooldown_ms)
        return l->replicas;
    n = s->most;
    *s = (struct serve_scaler){0};
    return n < l->replicas ? n : l->replicas;
}

// --- latency ---

// Bucket b holds what takes less than 64 µs · 2^((b + 1) / 4), roughly; the last one all that is longer.
static uint32_t bucket_of(int64_t us) {
    uint64_t v = us > 64 ? (uint64_t)us : 64;
    uint32_t log = 63 - (uint32_t)__builtin_clzll(v), quarter = (uint32_t)(v >> (log - 2)) & 3;
    uint32_t b = (log - 6) * 4 + quarter;
    return b < SERVE_BUCKETS ? b : SERVE_BUCKETS - 1;
}

static uint64_t bound_of(uint32_t bucket) {
    uint32_t log = bucket / 4 + 6, quarter = bucket % 4;
    return ((uint64_t)1 << log) + (((uint64_t)1 << log) >> 2) * (quarter + 1);
}

static bool recent(const struct serve_latency *l, uint32_t i, int64_t now_ms) {
    return l->began_ms[i] && now_ms - l->began_ms[i] < (int64_t)SERVE_WINDOWS * SERVE_WINDOW_MS;
}

void serve_latency_add(struct serve_latency *l, int64_t now_ms, int64_t took_us, bool failed) {
    uint32_t i = (uint32_t)(now_ms / SERVE_WINDOW_MS) % SERVE_WINDOWS;
    int64_t began_ms = now_ms - now_ms % SERVE_WINDOW_MS;
    if (l->began_ms[i] != began_ms) {
        memset(l->counts[i], 0, sizeof l->counts[i]);
        l->failed[i] = 0;
        l->began_ms[i] = began_ms;
    }
    l->counts[i][bucket_of(took_us)]++;
    l->failed[i] += failed;
}

static uint64_t count_all(const struct serve_latency *l, int64_t now_ms, int64_t *oldest_ms) {
    uint64_t n = 0;
    *oldest_ms = now_ms;
    for (uint32_t i = 0; i < SERVE_WINDOWS; i++) {
        if (!recent(l, i, now_ms))
            continue;
        for (uint32_t b = 0; b < SERVE_BUCKETS; b++)
            n += l->counts[i][b];
        if (l->began_ms[i] < *oldest_ms)
            *oldest_ms = l->began_ms[i];
    }
    return n;
}

double serve_latency_rate(const struct serve_latency *l, int64_t now_ms) {
    int64_t oldest_ms;
    uint64_t n = count_all(l, now_ms, &oldest_ms);
    int64_t span_ms = now_ms - oldest_ms;
    return (double)n * 1000 / (double)(span_ms > 1000 ? span_ms : 1000);
}

uint64_t serve_latency_us(const struct serve_latency *l, int64_t now_ms, uint32_t part) {
    int64_t oldest_ms;
    uint64_t n = count_all(l, now_ms, &oldest_ms), seen = 0, place = (n * part + 999) / 1000;
    for (uint32_t b = 0; n && b < SERVE_BUCKETS; b++) {
        for (uint32_t i = 0; i < SERVE_WINDOWS; i++)
            seen += recent(l, i, now_ms) ? l->counts[i][b] : 0;
        if (seen >= place)
            return bound_of(b);
    }
    return 0;
}
