// Ownership by scope: a variable marked with one of these frees what it holds when it goes out of
// scope; TAKE_PTR and TAKE_FD hand it on instead.
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_free_fn(void *p) {
    free(*(void **)p);
}

static inline void cleanup_close_fn(int *fd) {
    if (*fd >= 0)
        close(*fd);
}

static inline void cleanup_fclose_fn(FILE **f) {
    if (*f)
        fclose(*f);
}

#define cleanup(fn) __attribute__((__cleanup__(fn)))
#define cleanup_free cleanup(cleanup_free_fn)
#define cleanup_close cleanup(cleanup_close_fn)
#define cleanup_fclose cleanup(cleanup_fclose_fn)

#define TAKE_PTR(p)               \
    ({                            \
        __typeof__(p) taken_ = p; \
        (p) = NULL;               \
        taken_;                   \
    })
#define TAKE_FD(fd)       \
    ({                    \
        int taken_ = fd;  \
        (fd) = -1;        \
        taken_;           \
    })
