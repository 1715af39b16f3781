// Owns the link between points in time and the local time zone.
#include "cli/term/local_time.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

int32_t local_time_offset_s(int64_t at_ms) {
    time_t t = (time_t)(at_ms / 1000);
    struct tm tm;
    return localtime_r(&t, &tm) ? (int32_t)tm.tm_gmtoff : 0;
}

int local_time_parse(const char *text, int64_t now_ms, enum time_meaning meaning, int64_t *at_ms, struct error *e) {
    int64_t at;
    int32_t offset = local_time_offset_s(now_ms);
    int r = time_parse(text, now_ms, offset, meaning, &at, e);
    if (r < 0)
        return r;
    if (local_time_offset_s(at) != offset)
        r = time_parse(text, now_ms, local_time_offset_s(at), meaning, &at, e);
    if (r == 0)
        *at_ms = at;
    return r;
}

const char *local_time_format(int64_t at_ms, char out[static UNIT_TEXT_MAX]) {
    return time_format(at_ms, local_time_offset_s(at_ms), out);
}

const char *local_time_short(int64_t at_ms, int64_t now_ms, char out[static UNIT_TEXT_MAX]) {
    static const char months[][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    time_t at = (time_t)(at_ms / 1000), now = (time_t)(now_ms / 1000);
    struct tm a, n;
    if (at_ms <= 0 || at_ms > TIME_LIMIT_MS || !localtime_r(&at, &a) || !localtime_r(&now, &n)) {
        snprintf(out, UNIT_TEXT_MAX, "-");
        return out;
    }
    if (a.tm_year == n.tm_year && a.tm_yday == n.tm_yday)
        snprintf(out, UNIT_TEXT_MAX, "%02d:%02d:%02d", a.tm_hour, a.tm_min, a.tm_sec);
    else if (a.tm_year == n.tm_year)
        snprintf(out, UNIT_TEXT_MAX, "%s %2d %02d:%02d", months[a.tm_mon], a.tm_mday, a.tm_hour, a.tm_min);
    else
        snprintf(out, UNIT_TEXT_MAX, "%04d-%02d-%02d", a.tm_year + 1900, a.tm_mon + 1, a.tm_mday);
    return out;
}
