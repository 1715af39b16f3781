// Time comes in as an argument everywhere; only daemons and the CLI read these clocks.
#pragma once
#include <stdbool.h>
#include <stdint.h>

int64_t clock_wall_ms(void);  // since 1970, may jump
int64_t clock_mono_ms(void);  // never jumps
int64_t clock_mono_us(void);

// Notices that the clock of the day was set, by the one that never jumps.
struct clock_watch {
    int64_t ahead_ms;
    bool begun;
};
// By how much since the last call: forward, or back (negative); 0: not, or by less than two seconds.
int64_t clock_watch_jump(struct clock_watch *w, int64_t wall_ms, int64_t mono_ms);
