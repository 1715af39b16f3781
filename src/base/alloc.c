// Owns the policy for exhausted memory: say so and abort.
#include "base/alloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *checked(void *p) {
    if (!p) {
        static const char msg[] = "acequia: out of memory\n";
        (void)!write(STDERR_FILENO, msg, sizeof msg - 1);
        abort();
    }
    return p;
}

void *xmalloc(size_t size) {
    return checked(malloc(size ? size : 1));
}

void *xcalloc(size_t count, size_t size) {
    return checked(calloc(count ? count : 1, size ? size : 1));
}

void *xrealloc(void *p, size_t size) {
    return checked(realloc(p, size ? size : 1));
}

char *xstrdup(const char *s) {
    return checked(strdup(s));
}

char *xstrndup(const char *s, size_t len) {
    return checked(strndup(s, len));
}

void *xmemdup(const void *p, size_t len) {
    void *copy = xmalloc(len);
    if (len)
        memcpy(copy, p, len);
    return copy;
}

char *xasprintf(const char *fmt, ...) {
    va_list args;
    char *out = NULL;
    va_start(args, fmt);
    int n = vasprintf(&out, fmt, args);
    va_end(args);
    return checked(n < 0 ? NULL : out);
}
