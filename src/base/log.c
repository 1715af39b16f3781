// Owns the form of a log line. The level is the one process-wide setting of this program: it
// changes what is printed, never what is done. Control characters are replaced, so that text from
// a user cannot forge a line.
#include "base/log.h"

#include <pthread.h>
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

// The newest lines, for those who ask a daemon; a ring, so that they cost the same for ever. Threads log too.
enum { RECENT_BYTES = 128 << 10 };
static struct {
    pthread_mutex_t lock;
    char ring[RECENT_BYTES];
    size_t written;  // ever
} recent = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void keep(const char *line, size_t len) {
    pthread_mutex_lock(&recent.lock);
    for (size_t i = 0; i < len; i++)
        recent.ring[recent.written++ % RECENT_BYTES] = line[i];
    pthread_mutex_unlock(&recent.lock);
}

void log_recent(struct buf *out) {
    pthread_mutex_lock(&recent.lock);
    size_t from = recent.written > RECENT_BYTES ? recent.written - RECENT_BYTES : 0;
    while (from && from < recent.written && recent.ring[(from - 1) % RECENT_BYTES] != '\n')
        from++;  // the first whole line
    for (size_t i = from; i < recent.written; i++)
        buf_addc(out, recent.ring[i % RECENT_BYTES]);
    pthread_mutex_unlock(&recent.lock);
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
    keep(line, n);
    (void)!write(STDERR_FILENO, line, n);
}
