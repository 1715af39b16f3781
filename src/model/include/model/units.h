// Sizes, durations and points in time as people write them, and back. Parsers take the whole text
// or refuse it with a sentence; nothing wraps around. Clocks and time zones are arguments.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define SIZE_K (1024ull)
#define SIZE_M (1024ull * SIZE_K)
#define SIZE_G (1024ull * SIZE_M)
#define SIZE_T (1024ull * SIZE_G)

#define SIZE_LIMIT_BYTES (1024ull * 1024 * SIZE_T)  // 1 EiB: nothing larger is meant
#define DURATION_UNLIMITED UINT32_MAX               // "unlimited"
#define DURATION_LIMIT_S (100u * 365 * 86400)       // a hundred years
#define TIME_LIMIT_MS 253402300799000ll             // the last second of the year 9999

enum { UNIT_TEXT_MAX = 32 };

// "64G", "1.5T", "512M", "100KiB", "7B"; a bare number counts in `bare_bytes`. Powers of 1024.
int size_parse(const char *text, uint64_t bare_bytes, uint64_t *bytes, struct error *e);
// "90" (in units of `bare_s`; Slurm's minutes: 60), "90m", "1h30m", "8 hours", "MM:SS", "HH:MM:SS",
// "D-HH", "D-HH:MM", "D-HH:MM:SS", "unlimited" (DURATION_UNLIMITED).
int duration_parse(const char *text, uint32_t bare_s, uint32_t *seconds, struct error *e);

// A time of day without a date means its next occurrence, or today's.
enum time_meaning { TIME_NEXT, TIME_TODAY };
// "2026-01-31", "2026-01-31T12:00[:SS][Z]", "01/31[/26]", "16:00", "4:00PM", "now", "now+1hour",
// "now-90" (seconds), "today", "tomorrow", "midnight", "noon", "teatime", "@1769860800".
int time_parse(const char *text, int64_t now_ms, int32_t zone_offset_s, enum time_meaning meaning,
               int64_t *at_ms, struct error *e);

const char *size_format(uint64_t bytes, char out[static UNIT_TEXT_MAX]);      // "64G", "1.5T", "0"
const char *duration_format(uint64_t seconds, char out[static UNIT_TEXT_MAX]);  // "8h", "1d12h", "90s" as "1m30s"
const char *duration_elapsed_format(int64_t seconds,
                                    char out[static UNIT_TEXT_MAX]);  // "0:05", "1:02:03", "2-01:02:03"
const char *duration_elapsed_format_full(int64_t seconds,
                                         char out[static UNIT_TEXT_MAX]);  // "00:00:05", "2-01:02:03"
const char *time_format(int64_t at_ms, int32_t zone_offset_s,
                        char out[static UNIT_TEXT_MAX]);  // "2026-01-31T12:00:00"; "-" for 0
