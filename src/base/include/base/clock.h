// Time comes in as an argument everywhere; only daemons and the CLI read these clocks.
#pragma once
#include <stdint.h>

int64_t clock_wall_ms(void);  // since 1970, may jump
int64_t clock_mono_ms(void);  // never jumps
int64_t clock_mono_us(void);
