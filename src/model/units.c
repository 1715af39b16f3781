// Owns the conversions between numbers with units and text.
#include "model/units.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"

enum { SHOWN = 64 };  // how much of a bad value a message repeats

// Reads decimal digits at *p. Returns their count; 0 if there are none, -1 if they overflow.
static int take_digits(const char **p, uint64_t *out) {
    const char *start = *p;
    uint64_t v = 0;
    for (; **p >= '0' && **p <= '9'; (*p)++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, (uint64_t)(**p - '0'), &v))
            return -1;
    *out = v;
    return *p - start > 64 ? -1 : (int)(*p - start);
}

static int size_error(const char *text, struct error *e) {
    char shown[SHOWN];
    return error_set(e, EINVAL,
                     "\"%s\" is not a size; write a number and a unit, for example 512M, 64G or 1.5T",
                     str_printable(text, shown, sizeof shown));
}

static uint64_t size_unit(const char *unit, uint64_t bare) {
    static const char letters[] = "KMGTP";
    if (!*unit)
        return bare;
    if (!strcasecmp(unit, "B"))
        return 1;
    const char *at = strchr(letters, toupper((unsigned char)*unit));
    if (!at || (unit[1] && strcasecmp(unit + 1, "B") && strcasecmp(unit + 1, "iB")))
        return 0;
    return 1ull << (10 * (at - letters + 1));
}

int size_parse(const char *text, uint64_t bare_bytes, uint64_t *bytes, struct error *e) {
    char shown[SHOWN];
    const char *p = text ? text : "";
    uint64_t whole = 0, total, fraction = 0, scale = 1;
    int digits = take_digits(&p, &whole);
    if (digits == 0)
        return size_error(text ? text : "", e);
    if (*p == '.') {
        if (!(p[1] >= '0' && p[1] <= '9'))
            return size_error(text, e);
        for (p++; *p >= '0' && *p <= '9'; p++)
            if (scale < 1000000) {  // further digits are below a byte of any sensible size
                fraction = fraction * 10 + (uint64_t)(*p - '0');
                scale *= 10;
            }
    }
    uint64_t unit = size_unit(p, bare_bytes);
    if (!unit)
        return size_error(text, e);
    if (digits < 0 || __builtin_mul_overflow(whole, unit, &total) || total > SIZE_LIMIT_BYTES)
        return error_set(e, ERANGE, "\"%s\" is too large for a size; the limit is 1024P",
                         str_printable(text, shown, sizeof shown));
    total += (uint64_t)((unsigned __int128)fraction * unit / scale);
    *bytes = total;
    return 0;
}

static uint32_t duration_unit(const char *p, size_t len) {
    static const struct {
        const char *word;
        uint32_t seconds;
    } units[] = {
        {"s", 1},         {"sec", 1},       {"secs", 1},     {"second", 1}, {"seconds", 1},    {"m", 60},
        {"min", 60},      {"mins", 60},     {"minute", 60},  {"minutes", 60}, {"h", 3600},     {"hr", 3600},
        {"hour", 3600},   {"hours", 3600},  {"d", 86400},    {"day", 86400}, {"days", 86400},  {"w", 604800},
        {"week", 604800}, {"weeks", 604800},
    };
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strlen(units[i].word) == len && !strncasecmp(units[i].word, p, len))
            return units[i].seconds;
    return 0;
}

static int duration_error(const char *text, struct error *e) {
    char shown[SHOWN];
    return error_set(e, EINVAL,
                     "\"%s\" is not a duration; write for example 90m, 8h, 2d, HH:MM:SS or D-HH:MM:SS",
                     str_printable(text, shown, sizeof shown));
}

static int duration_range(const char *text, struct error *e) {
    char shown[SHOWN];
    return error_set(e, ERANGE,
                     "\"%s\" is too long for a duration; the limit is 36500 days, or write unlimited",
                     str_printable(text, shown, sizeof shown));
}

// "1h30m", "8 hours": numbers each with a unit, larger units first.
static int duration_words(const char *text, uint64_t *seconds) {
    const char *p = text;
    uint64_t total = 0;
    uint32_t last = UINT32_MAX;
    while (*p) {
        uint64_t v;
        int digits = take_digits(&p, &v);
        if (digits == 0)
            return -EINVAL;
        if (*p == ' ')
            p++;
        size_t len = strspn(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
        uint32_t unit = duration_unit(p, len);
        if (!unit || unit >= last)
            return -EINVAL;
        if (digits < 0 || __builtin_mul_overflow(v, (uint64_t)unit, &v) || __builtin_add_overflow(total, v, &total))
            return -ERANGE;
        last = unit;
        p += len;
        if (*p == ' ' && p[1])
            p++;
    }
    *seconds = total;
    return 0;
}

// "[D-]A[:B[:C]]": with days the first number is hours; without, two numbers are minutes and
// seconds, three are hours, minutes and seconds.
static int duration_clock(const char *text, uint32_t bare_s, uint64_t *seconds) {
    const char *p = text;
    uint64_t v[3] = {0}, days = 0, total = 0;
    int n = 0, overflow = 0;
    int digits = take_digits(&p, &v[0]);
    if (digits == 0)
        return -EINVAL;
    overflow |= digits < 0;
    bool has_days = *p == '-';
    if (has_days) {
        p++;
        days = v[0];
        v[0] = 0;
        digits = take_digits(&p, &v[0]);
        if (digits == 0)
            return -EINVAL;
        overflow |= digits < 0;
    }
    for (n = 1; *p == ':' && n < 3; n++) {
        p++;
        digits = take_digits(&p, &v[n]);
        if (digits == 0)
            return -EINVAL;
        overflow |= digits < 0;
    }
    if (*p)
        return -EINVAL;
    uint32_t first = has_days || n == 3 ? 3600 : n == 2 ? 60 : bare_s;
    uint64_t day_s, part;
    overflow |= __builtin_mul_overflow(days, 86400ull, &day_s);
    overflow |= __builtin_add_overflow(total, day_s, &total);
    for (int i = 0; i < n; i++, first /= 60) {
        overflow |= __builtin_mul_overflow(v[i], (uint64_t)first, &part);
        overflow |= __builtin_add_overflow(total, part, &total);
    }
    *seconds = total;
    return overflow ? -ERANGE : 0;
}

int duration_parse(const char *text, uint32_t bare_s, uint32_t *seconds, struct error *e) {
    if (str_empty(text))
        return duration_error("", e);
    if (!strcasecmp(text, "unlimited") || !strcasecmp(text, "infinite") || !strcasecmp(text, "none")) {
        *seconds = DURATION_UNLIMITED;
        return 0;
    }
    uint64_t total = 0;
    int r = duration_clock(text, bare_s, &total);
    if (r == -EINVAL)
        r = duration_words(text, &total);
    if (r == -EINVAL)
        return duration_error(text, e);
    if (r == -ERANGE || total > DURATION_LIMIT_S)
        return duration_range(text, e);
    *seconds = (uint32_t)total;
    return 0;
}

// Days since 1970-01-01 of a civil date, and back (proleptic Gregorian).
static int64_t days_of(int64_t y, unsigned m, unsigned d) {
    y -= m <= 2;
    int64_t era = (y >= 0 ? y : y - 399) / 400;
    unsigned yoe = (unsigned)(y - era * 400), doy = (153 * (m + (m > 2 ? -3u : 9u)) + 2) / 5 + d - 1;
    return era * 146097 + (int64_t)(yoe * 365 + yoe / 4 - yoe / 100 + doy) - 719468;
}

static void date_of(int64_t days, int64_t *y, unsigned *m, unsigned *d) {
    days += 719468;
    int64_t era = (days >= 0 ? days : days - 146096) / 146097;
    unsigned doe = (unsigned)(days - era * 146097), yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    unsigned doy = doe - (365 * yoe + yoe / 4 - yoe / 100), mp = (5 * doy + 2) / 153;
    *d = doy - (153 * mp + 2) / 5 + 1;
    *m = mp < 10 ? mp + 3 : mp - 9;
    *y = (int64_t)yoe + era * 400 + (*m <= 2);
}

static int64_t floor_div(int64_t a, int64_t b) {
    return a / b - (a % b < 0);
}

static unsigned month_of(int64_t days) {
    int64_t y;
    unsigned m, d;
    date_of(days, &y, &m, &d);
    return m;
}

static unsigned month_days(int64_t y, unsigned m) {
    static const uint8_t days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    return m == 2 && ((y % 4 == 0 && y % 100) || y % 400 == 0) ? 29 : days[m - 1];
}

// A number of exactly `digits` digits (or 1 to -digits of them).
static bool take_number(const char **p, int digits, unsigned low, unsigned high, unsigned *out) {
    const char *at = *p;
    uint64_t v;
    int n = take_digits(&at, &v);
    if (n <= 0 || (digits > 0 ? n != digits : n > -digits) || v < low || v > high)
        return false;
    *p = at;
    *out = (unsigned)v;
    return true;
}

// "HH:MM[:SS][AM|PM]"
static bool take_clock(const char **p, int64_t *seconds) {
    unsigned h, m, s = 0;
    if (!take_number(p, -2, 0, 23, &h) || *(*p)++ != ':' || !take_number(p, 2, 0, 59, &m))
        return false;
    if (**p == ':') {
        (*p)++;
        if (!take_number(p, 2, 0, 59, &s))
            return false;
    }
    if (**p == ' ')
        (*p)++;
    bool am = !strncasecmp(*p, "am", 2), pm = !strncasecmp(*p, "pm", 2);
    if (am || pm) {
        if (h < 1 || h > 12)
            return false;
        h = h % 12 + (pm ? 12 : 0);
        *p += 2;
    }
    *seconds = h * 3600 + m * 60 + s;
    return true;
}

// "MMDD" or "MMDDYY": digits alone.
static bool take_short_date(const char **p, unsigned *y, unsigned *m, unsigned *d, bool *has_year) {
    const char *at = *p;
    uint64_t v;
    int n = take_digits(&at, &v);
    if ((n != 4 && n != 6) || *at == ':')
        return false;
    *has_year = n == 6;
    *y = n == 6 ? 2000 + (unsigned)(v % 100) : 0;
    v = n == 6 ? v / 100 : v;
    *m = (unsigned)(v / 100);
    *d = (unsigned)(v % 100);
    *p = at;
    return *m >= 1 && *m <= 12 && *d >= 1 && *d <= 31;
}

// "MM/DD[/YY[YY]]", also with points.
static bool take_marked_date(const char **p, unsigned *y, unsigned *m, unsigned *d, bool *has_year) {
    const char *at = *p;
    if (!take_number(&at, -2, 1, 12, m) || (*at != '/' && *at != '.'))
        return false;
    char mark = *at++;
    if (!take_number(&at, -2, 1, 31, d))
        return false;
    *has_year = *at == mark;
    if (*has_year) {
        at++;
        if (take_number(&at, 2, 0, 99, y))
            *y += 2000;
        else if (!take_number(&at, 4, 1970, 9999, y))
            return false;
    }
    *p = at;
    return true;
}

// "YYYY-MM-DD", "MM/DD[/YY[YY]]", "MM.DD[.YY[YY]]" or "MMDD[YY]". Without a year: this one.
static bool take_date(const char **p, int64_t today, int64_t *days, bool *has_year) {
    unsigned y, m, d, mo, da;
    int64_t year;
    date_of(today, &year, &mo, &da);
    const char *at = *p;
    *has_year = true;
    if (strlen(at) > 4 && at[4] == '-') {
        if (!take_number(&at, 4, 1970, 9999, &y) || *at++ != '-' || !take_number(&at, 2, 1, 12, &m) || *at++ != '-' ||
            !take_number(&at, -2, 1, 31, &d))
            return false;
    } else if (!take_marked_date(&at, &y, &m, &d, has_year) && !take_short_date(&at, &y, &m, &d, has_year)) {
        return false;
    }
    year = *has_year ? y : year;
    if (d > month_days(year, m))
        return false;
    *days = days_of(year, m, d);
    *p = at;
    return true;
}

// The same day of another year; the last of February where there is no 29th.
static int64_t shift_year(int64_t days, int by) {
    int64_t y;
    unsigned m, d;
    date_of(days, &y, &m, &d);
    unsigned most = month_days(y + by, m);
    return days_of(y + by, m, d < most ? d : most);
}

static int time_error(const char *text, struct error *e) {
    char shown[SHOWN];
    return error_set(e, EINVAL,
                     "\"%s\" is not a time; write for example 2026-01-31T12:00, 16:00, now+1hour or tomorrow",
                     str_printable(text, shown, sizeof shown));
}

static int time_relative(const char *text, const char *p, int64_t now_ms, int64_t *at_ms, struct error *e) {
    uint32_t seconds;
    if (!*p) {
        *at_ms = now_ms;
        return 0;
    }
    if (*p != '+' && *p != '-')
        return time_error(text, e);
    bool back = *p == '-';
    if (duration_parse(p + 1, 1, &seconds, NULL) < 0 || seconds == DURATION_UNLIMITED)
        return time_error(text, e);
    int64_t ms = (int64_t)seconds * 1000;
    *at_ms = back ? now_ms - ms : now_ms + ms;
    return 0;
}

// A word for a day or an hour of the day; -1 if it is none.
static int64_t named_time(const char *text, int64_t *day_shift) {
    static const struct {
        const char *word;
        int64_t day, second;
    } names[] = {{"today", 0, 0},        {"tomorrow", 1, 0},       {"midnight", -1, 0}, {"noon", -1, 43200},
                 {"teatime", -1, 57600}, {"elevenses", -1, 39600}, {"fika", -1, 54000}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcasecmp(text, names[i].word)) {
            *day_shift = names[i].day;
            return names[i].second;
        }
    return -1;
}

static int time_epoch(const char *text, const char *number, int64_t *at_ms, struct error *e) {
    uint64_t s;
    if (parse_u64(number, &s) < 0 || s > (uint64_t)TIME_LIMIT_MS / 1000)
        return time_error(text, e);
    *at_ms = (int64_t)s * 1000;
    return 0;
}

int time_parse(const char *text, int64_t now_ms, int32_t zone_offset_s, enum time_meaning meaning,
               int64_t *at_ms, struct error *e) {
    if (str_empty(text))
        return time_error("", e);
    if (*text == '@')
        return time_epoch(text, text + 1, at_ms, e);
    if (!strncasecmp(text, "uts", 3))
        return time_epoch(text, text + 3, at_ms, e);
    if (!strncasecmp(text, "now", 3))
        return time_relative(text, text + 3, now_ms, at_ms, e);
    // From here on in local days and seconds of the day; floor_div, because times before 1970 are negative.
    int64_t local_s = floor_div(now_ms, 1000) + zone_offset_s, today = floor_div(local_s, 86400);
    int64_t days = today, second = 0, shift = 0;
    bool has_date = false, has_year = true;
    const char *p = text;
    int64_t named = named_time(text, &shift);
    if (named >= 0) {
        second = named;
        has_date = shift >= 0;
        days = today + (has_date ? shift : 0);
    } else if (take_date(&p, today, &days, &has_year)) {
        has_date = true;
        if (*p == 'T' || *p == ' ' || *p == '-') {
            p++;
            if (!take_clock(&p, &second))
                return time_error(text, e);
            if (*p == 'Z') {
                p++;
                zone_offset_s = 0;
            }
        }
        if (*p)
            return time_error(text, e);
    } else if (!take_clock(&p, &second) || *p) {
        return time_error(text, e);
    }
    // Looking ahead, "16:00" at five in the afternoon is tomorrow's, and "01/05" in December next year's. Looking back,
    // "12/24" in January is last year's.
    if (!has_date && meaning == TIME_NEXT && days * 86400 + second <= local_s)
        days++;
    if (!has_year && meaning == TIME_NEXT && days * 86400 + second <= local_s)
        days = shift_year(days, 1);
    if (!has_year && meaning == TIME_TODAY && month_of(days) > month_of(today))
        days = shift_year(days, -1);
    *at_ms = (days * 86400 + second - zone_offset_s) * 1000;
    return 0;
}

const char *size_format(uint64_t bytes, char out[static UNIT_TEXT_MAX]) {
    static const char units[] = "BKMGTPE";
    int unit = 0;
    unsigned __int128 tenths = (unsigned __int128)bytes * 10;
    while (tenths >= 10240 && units[unit + 1]) {
        tenths = (tenths + 512) / 1024;
        unit++;
    }
    unsigned long whole = (unsigned long)(tenths / 10), rest = (unsigned long)(tenths % 10);
    if (!bytes)
        snprintf(out, UNIT_TEXT_MAX, "0");
    else if (rest && whole < 100)
        snprintf(out, UNIT_TEXT_MAX, "%lu.%lu%c", whole, rest, units[unit]);
    else
        snprintf(out, UNIT_TEXT_MAX, "%lu%c", whole + (rest >= 5), units[unit]);
    return out;
}

const char *duration_format(uint64_t seconds, char out[static UNIT_TEXT_MAX]) {
    static const struct {
        char letter;
        uint32_t seconds;
    } units[] = {{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}};
    size_t n = 0;
    if (seconds == DURATION_UNLIMITED) {
        snprintf(out, UNIT_TEXT_MAX, "unlimited");
        return out;
    }
    if (!seconds)
        snprintf(out, UNIT_TEXT_MAX, "0s");
    for (size_t i = 0; i < 4; i++) {
        uint64_t v = seconds / units[i].seconds;
        seconds %= units[i].seconds;
        if (v && n < UNIT_TEXT_MAX)
            n += (size_t)snprintf(out + n, UNIT_TEXT_MAX - n, "%llu%c", (unsigned long long)v, units[i].letter);
    }
    return out;
}

// Long lists have several times per line: they are written by hand.
static char *put_two(char *p, int64_t v) {
    *p++ = (char)('0' + v / 10 % 10);
    *p++ = (char)('0' + v % 10);
    return p;
}

static const char *elapsed(int64_t s, bool full, char *out) {
    if (s < 0)
        s = 0;
    int64_t d = s / 86400, h = s / 3600 % 24, m = s / 60 % 60;
    char *p = out + (d ? snprintf(out, UNIT_TEXT_MAX, "%lld-", (long long)d) : 0);
    if (d || full || h) {
        p = d || full || h >= 10 ? put_two(p, h) : (*p = (char)('0' + h), p + 1);
        *p++ = ':';
    }
    p = d || full || h || m >= 10 ? put_two(p, m) : (*p = (char)('0' + m), p + 1);
    *p++ = ':';
    p = put_two(p, s % 60);
    *p = 0;
    return out;
}

const char *duration_elapsed_format(int64_t seconds, char out[static UNIT_TEXT_MAX]) {
    return elapsed(seconds, false, out);
}

const char *duration_elapsed_format_full(int64_t seconds, char out[static UNIT_TEXT_MAX]) {
    return elapsed(seconds, true, out);
}

const char *time_format(int64_t at_ms, int32_t zone_offset_s, char out[static UNIT_TEXT_MAX]) {
    if (at_ms <= 0 || at_ms > TIME_LIMIT_MS) {
        snprintf(out, UNIT_TEXT_MAX, "-");
        return out;
    }
    int64_t s = floor_div(at_ms, 1000) + zone_offset_s, days = floor_div(s, 86400), y;
    unsigned m, d;
    date_of(days, &y, &m, &d);
    s -= days * 86400;
    const int64_t parts[] = {m, d, s / 3600 % 24, s / 60 % 60, s % 60};
    static const char marks[] = "--T::";
    char *p = put_two(put_two(out, y / 100), y);
    for (int i = 0; i < 5; i++) {
        *p++ = marks[i];
        p = put_two(p, parts[i]);
    }
    *p = 0;
    return out;
}
