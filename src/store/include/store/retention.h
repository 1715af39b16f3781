// Which time it is for what is deleted because of its age. A clock that was set forward, by mistake or by a bad time
// server, must not delete the history of months: a jump counts only when it has lasted for a day, and until then
// somebody can set the clock right.
#pragma once
#include <stdint.h>

#include "base/clock.h"

struct store_retention_clock {
    struct clock_watch watch;
    int64_t ahead_ms;       // of the time that counts; 0: nothing is doubted
    int64_t until_mono_ms;  // then the clock is believed
};
// last_ms: the time of the newest record; one that is very much older makes the clock doubtful from the start. 0: none.
void store_retention_begin(struct store_retention_clock *r, int64_t last_ms, int64_t wall_ms,
                           int64_t mono_ms);
// To be called about once a second. *jump_ms: by how much the clock was set forward just now; 0: not.
int64_t store_retention_now_ms(struct store_retention_clock *r, int64_t wall_ms, int64_t mono_ms,
                               int64_t *jump_ms);
