// The state machine of unused GPUs: quiet, named, warned, ended; any use starts it anew.
#include "metrics/efficiency.h"

static bool reached(const struct idle_state *s, uint32_t after_s, int64_t now_ms) {
    return after_s && now_ms - s->since_ms >= (int64_t)after_s * 1000;
}

enum idle_step idle_look(struct idle_state *s, const struct idle_policy *p, int64_t now_ms, int64_t use_milli) {
    if (use_milli < 0)
        return IDLE_NOTHING;
    if (use_milli >= p->below_milli && use_milli > 0) {
        bool was = s->stage >= IDLE_NAMED;
        *s = (struct idle_state){0};
        return was ? IDLE_BUSY_AGAIN : IDLE_NOTHING;
    }
    if (s->stage == IDLE_BUSY)
        *s = (struct idle_state){.stage = IDLE_QUIET, .since_ms = now_ms};
    // One step at a time: whoever is ended was warned before, when there is to be a warning.
    if (s->stage == IDLE_QUIET && reached(s, p->after_s, now_ms)) {
        s->stage = IDLE_NAMED;
        return IDLE_NAME;
    }
    if (s->stage < IDLE_WARNED && reached(s, p->warn_s, now_ms)) {
        s->stage = IDLE_WARNED;
        return IDLE_WARN;
    }
    if (s->stage < IDLE_ENDED && reached(s, p->end_s, now_ms)) {
        s->stage = IDLE_ENDED;
        return IDLE_END;
    }
    return IDLE_NOTHING;
}

uint64_t idle_seconds(const struct idle_state *s, int64_t now_ms) {
    return s->stage == IDLE_BUSY || now_ms < s->since_ms ? 0 : (uint64_t)(now_ms - s->since_ms) / 1000;
}
