// Points in time in this machine's time zone.
#pragma once
#include <stdint.h>

#include "model/units.h"

int32_t local_time_offset_s(int64_t at_ms);
// The offset is that of the time meant, also across a change to or from summer time.
int local_time_parse(const char *text, int64_t now_ms, enum time_meaning meaning, int64_t *at_ms, struct error *e);
const char *local_time_format(int64_t at_ms, char out[static UNIT_TEXT_MAX]);  // "2026-01-31T12:00:00"
// As short as it stays clear: "12:00:05" today, "Jan 31 12:00" this year, else "2026-01-31".
const char *local_time_short(int64_t at_ms, int64_t now_ms, char out[static UNIT_TEXT_MAX]);
