// See retention.h.
#include "store/retention.h"

enum { LASTS_MS = 24 * 60 * 60 * 1000, NOTABLE_MS = 60 * 60 * 1000 };
#define AWAY_MS (90LL * 24 * 60 * 60 * 1000)  // a cluster that was switched off for that long is rare

static void doubt(struct store_retention_clock *r, int64_t by_ms, int64_t mono_ms) {
    r->ahead_ms += by_ms;
    if (r->ahead_ms < 0)
        r->ahead_ms = 0;
    if (by_ms > 0)
        r->until_mono_ms = mono_ms + LASTS_MS;
}

void store_retention_begin(struct store_retention_clock *r, int64_t last_ms, int64_t wall_ms,
                           int64_t mono_ms) {
    *r = (struct store_retention_clock){0};
    clock_watch_jump(&r->watch, wall_ms, mono_ms);
    if (last_ms && wall_ms - last_ms > AWAY_MS)
        doubt(r, wall_ms - last_ms, mono_ms);
}

int64_t store_retention_now_ms(struct store_retention_clock *r, int64_t wall_ms, int64_t mono_ms,
                               int64_t *jump_ms) {
    int64_t jump = clock_watch_jump(&r->watch, wall_ms, mono_ms);
    if (jump)
        doubt(r, jump, mono_ms);
    if (r->ahead_ms && mono_ms >= r->until_mono_ms)
        r->ahead_ms = 0;
    *jump_ms = jump > NOTABLE_MS ? jump : 0;
    return wall_ms - r->ahead_ms;
}
