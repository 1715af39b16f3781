// Owns the formatting of errors; a text too long is cut, never overrun.
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int error_set(struct error *e, int code, const char *fmt, ...) {
    if (e) {
        va_list args;
        e->code = code;
        va_start(args, fmt);
        vsnprintf(e->text, sizeof e->text, fmt, args);
        va_end(args);
    }
    return -code;
}

int error_prefix(struct error *e, const char *fmt, ...) {
    if (!e)
        return 0;
    char prefix[ERROR_TEXT_MAX / 2], old[ERROR_TEXT_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(prefix, sizeof prefix, fmt, args);
    va_end(args);
    memcpy(old, e->text, sizeof old);
    snprintf(e->text, sizeof e->text, "%s: %.*s", prefix, (int)(sizeof old / 2 - 3), old);
    return -e->code;
}
