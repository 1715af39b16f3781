// The one place that reads the machine's clocks.
#include "base/clock.h"

#include <stdlib.h>
#include <time.h>

enum { JUMP_MS = 2000 };

static int64_t read_us(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int64_t clock_wall_ms(void) {
    return read_us(CLOCK_REALTIME) / 1000;
}

int64_t clock_mono_ms(void) {
    return read_us(CLOCK_MONOTONIC) / 1000;
}

int64_t clock_mono_us(void) {
    return read_us(CLOCK_MONOTONIC);
}

int64_t clock_watch_jump(struct clock_watch *w, int64_t wall_ms, int64_t mono_ms) {
    int64_t ahead_ms = wall_ms - mono_ms, jump_ms = w->begun ? ahead_ms - w->ahead_ms : 0;
    *w = (struct clock_watch){.ahead_ms = ahead_ms, .begun = true};
    return llabs(jump_ms) < JUMP_MS ? 0 : jump_ms;
}
