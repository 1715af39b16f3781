// Allocation that cannot fail: running out of memory ends the process with a message.
// Daemons are crash-only (the journal makes that safe), so no caller handles NULL.
#pragma once
#include <stddef.h>

void *xmalloc(size_t size);
void *xcalloc(size_t count, size_t size);
void *xrealloc(void *p, size_t size);
char *xstrdup(const char *s);
char *xstrndup(const char *s, size_t len);
void *xmemdup(const void *p, size_t len);
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
