// The state machine of unused GPUs: quiet, named, warned, ended; any use starts it anew.
#include "metrics/efficiency.h"

static bool reached(const struct idle_state *s, uint32_t after_s) {
    return after_s && s->idle_ms >= (int64_t)after_s * 1000;
}

static void count(struct idle_state *s, int64_t now_ms) {
    int64_t gap = s->seen_ms ? now_ms - s->seen_ms : 0;
    s->idle_ms += gap < 0 ? 0 : gap < IDLE_GAP_MS ? gap : IDLE_GAP_MS;
    s->seen_ms = now_ms;
}

enum idle_step metrics_idle_look(struct idle_state *s, const struct idle_policy *p, int64_t now_ms,
                                 int64_t use_milli) {
    if (use_milli < 0) {
        s->seen_ms = 0;
        return IDLE_NOTHING;
    }
    if (use_milli >= p->below_milli && use_milli > 0) {
        bool was = s->stage >= IDLE_NAMED;
        *s = (struct idle_state){0};
        return was ? IDLE_BUSY_AGAIN : IDLE_NOTHING;
    }
    if (s->stage == IDLE_BUSY)
        *s = (struct idle_state){.stage = IDLE_QUIET};
    count(s, now_ms);
    // One step at a time: whoever is ended was warned before, when there is to be a warning.
    if (s->stage == IDLE_QUIET && reached(s, p->after_s)) {
        s->stage = IDLE_NAMED;
        return IDLE_NAME;
    }
    if (s->stage < IDLE_WARNED && reached(s, p->warn_s)) {
        s->stage = IDLE_WARNED;
        return IDLE_WARN;
    }
    if (s->stage < IDLE_ENDED && reached(s, p->end_s)) {
        s->stage = IDLE_ENDED;
        return IDLE_END;
    }
    return IDLE_NOTHING;
}

uint32_t metrics_idle_below_milli(uint64_t share_milli) {
    uint64_t share = share_milli < 1000 ? share_milli : 1000;
    return share < 200 ? 1 : (uint32_t)(share / 100);
}

uint64_t metrics_idle_seconds(const struct idle_state *s) {
    return (uint64_t)s->idle_ms / 1000;
}
