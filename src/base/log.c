// Owns the form of a log line. The level is the one process-wide setting of this program: it
// changes what is printed, never what is done. Control characters are replaced, so that text from
// a user cannot forge a line.
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"

static enum log_level max_level = LOG_INFO;
static const char *const names[] = {"error", "warn", "info", "debug"};

void log_set_level(enum log_level level) {
    max_level = level;
}

int log_level_parse(const char *s) {
    for (int i = 0; i < 4; i++)
        if (strcmp(s, names[i]) == 0)
            return i;
    return -1;
}

void log_write(enum log_level level, const char *fmt, ...) {
    if (level > max_level)
        return;
    char line[2048];
    struct timespec t;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &t);
    gmtime_r(&t.tv_sec, &tm);
    size_t n = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &tm);
    n += (size_t)snprintf(line + n, sizeof line - n, ".%03ldZ %s ", t.tv_nsec / 1000000, names[level]);
    size_t start = n;
    va_list args;
    va_start(args, fmt);
    int added = vsnprintf(line + n, sizeof line - n - 1, fmt, args);
    va_end(args);
    if (added > 0)
        n = start + (size_t)added < sizeof line - 2 ? start + (size_t)added : sizeof line - 2;
    uint32_t code;
    for (size_t i = start, len; i < n; i += len ? len : 1) {
        len = str_control_char(line + i, n - i, &code);
        memset(line + i, '?', len);
    }
    line[n++] = '\n';
    (void)!write(STDERR_FILENO, line, n);
}
