// Log lines of the daemons, one per event, to standard error: "2026-01-31T12:00:00.123Z info text".
// Libraries do not log; they return errors. Secrets never go in here.
#pragma once
#include "base/buf.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_set_level(enum log_level level);
int log_level_parse(const char *s);  // level, or -1
void log_write(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// The newest lines of this process, oldest first: about 128 KiB are kept in memory.
void log_recent(struct buf *out);

#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_write(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_write(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_DEBUG, __VA_ARGS__)
