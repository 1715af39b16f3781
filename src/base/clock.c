// The one place that reads the machine's clocks.
#include "base/clock.h"

#include <time.h>

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
