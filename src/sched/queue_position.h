// A pending job's turn, in parts: the order of a pass and what people are told of it come from here.
#pragma once
#include "internal.h"

enum { NO_LIMIT_COUNTS_AS_MS = 24 * 3600 * 1000 };

struct turn_parts {
    bool overdue;  // waited longer than the policy lets anybody: before all others of its priority
    int64_t short_ms, use_ms, size_ms;
    int64_t qos_ms, nice_ms;  // where these count as time
};

// The priority that comes before every turn, by what of it does not count as time.
int32_t turn_class(const struct world *w, const struct policy *policy, const struct request *r);

int64_t turn_add(int64_t a, int64_t b);  // bounded
int64_t turn_scaled(int64_t a, int64_t b, int64_t c);  // a × b / c, bounded
int64_t turn_overdue(int64_t submit_ms);
// `load`: what its user uses; `capacity`: what the whole cluster counts as in users' use.
void turn_parts(const struct world *w, const struct policy *policy, const struct request *r,
                int64_t submit_ms, int64_t load, int64_t capacity, int64_t now_ms, struct turn_parts *out);
int64_t turn_time(int64_t submit_ms, const struct turn_parts *parts);  // the earliest goes first
int64_t cost_capacity(const struct world *w);
