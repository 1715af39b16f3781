// Loading the shadow libraries over the simulated driver in a child process, as a CUDA program
// would: each test gets a process of its own, since the shim reads its surroundings when loaded.
#pragma once
#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "shim/arbiter.h"
#include "../cuda_abi.h"
#include "shim/ledger.h"
#include "fake_driver.h"

#define UUID0 "10101010-1010-1010-1010-101010101010"
#define UUID1 "11111111-1111-1111-1111-111111111111"
enum { MIB = 1 << 20 };

static char dir[64];
static void *shadow, *fake_lib;

#define CHECK(cond)                                                                     \
    do {                                                                                \
        if (!(cond)) {                                                                  \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #cond);        \
            _exit(1);                                                                   \
        }                                                                               \
    } while (0)
#define CHECK_EQ(a, b)                                                                       \
    ({                                                                                       \
        long long a_ = (long long)(a), b_ = (long long)(b);                                  \
        if (a_ != b_) {                                                                      \
            fprintf(stderr, "%s:%d: %s is %lld, not %s = %lld\n", __FILE__, __LINE__, #a, a_, #b, b_); \
            _exit(1);                                                                        \
        }                                                                                    \
    })

// A function of the shadow by its exported name, with its own type.
#define CU(name) ((__typeof__(&name))shadow_symbol(#name))

static inline void *shadow_symbol(const char *name) {
    void *p = dlsym(shadow, name);
    if (!p) {
        fprintf(stderr, "the shadow lacks %s\n", name);
        _exit(1);
    }
    return p;
}

static inline void shadow_load(void) {
    setenv("ACEQUIA_REAL_LIBCUDA", getenv("TEST_FAKE"), 1);
    setenv("ACEQUIA_REAL_NVML", getenv("TEST_FAKE"), 1);
    setenv("ACEQUIA_GPU_LEDGER_DIR", dir, 1);
    shadow = dlopen(getenv("TEST_SHADOW"), RTLD_NOW | RTLD_LOCAL);
    if (!shadow) {
        fprintf(stderr, "%s\n", dlerror());
        _exit(1);
    }
    fake_lib = dlopen(getenv("TEST_FAKE"), RTLD_NOW | RTLD_NOLOAD);
    CHECK(fake_lib);
}

static inline uint64_t used_on(int device) {
    uint64_t (*fn)(int);
    *(void **)&fn = dlsym(fake_lib, "fake_used");
    return fn(device);
}

static inline struct fake_counts *counts(void) {
    struct fake_counts *(*fn)(void);
    *(void **)&fn = dlsym(fake_lib, "fake_counts");
    return fn();
}

static inline uint64_t hits(const char *name) {
    uint64_t (*fn)(const char *);
    *(void **)&fn = dlsym(fake_lib, "fake_hits");
    return fn(name);
}

static inline uint64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void path_of(char out[LEDGER_PATH_MAX], const char *uuid, const char *suffix) {
    CHECK_EQ(ledger_path(out, dir, uuid, suffix), 0);
}

static inline void limit(const char *uuid, const char *job, uint64_t memory, uint32_t milli,
                         uint32_t flags) {
    char path[LEDGER_PATH_MAX];
    struct ledger_limits l = {.memory_bytes = memory, .compute_milli = milli, .flags = flags};
    path_of(path, uuid, LEDGER_SUFFIX);
    CHECK_EQ(ledger_create(path, job, uuid, &l, 0600, true), 0);
}

static inline struct ledger_usage sample(const char *uuid) {
    char path[LEDGER_PATH_MAX];
    struct ledger_usage u;
    path_of(path, uuid, LEDGER_SUFFIX);
    CHECK_EQ(ledger_sample(path, &u), 0);
    return u;
}

static inline CUcontext context(CUdevice device) {
    CUcontext ctx;
    CUresult (*set)(CUcontext);
    *(void **)&set = shadow_symbol("cuCtxSetCurrent");
    CHECK_EQ(CU(cuDevicePrimaryCtxRetain)(&ctx, device), 0);
    CHECK_EQ(set(ctx), 0);
    return ctx;
}

static inline pid_t start(void (*body)(void)) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        body();
        _exit(0);
    }
    return pid;
}

static inline int finish(pid_t pid) {
    int status = -1;
    waitpid(pid, &status, 0);
    return status;
}

static inline void in_child(void (*body)(void)) {
    assert_int_equal(finish(start(body)), 0);
}

static inline void clear_dir(void) {
    const char *names[] = {UUID0 LEDGER_SUFFIX, UUID1 LEDGER_SUFFIX, UUID0 ARBITER_SUFFIX,
                           "engine"};
    char path[256];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
}

static inline int group_setup(void **state) {
    snprintf(dir, sizeof dir, "/tmp/acequia-shim-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static inline int group_teardown(void **state) {
    clear_dir();
    return rmdir(dir);
}

static inline int test_teardown(void **state) {
    clear_dir();
    return 0;
}
