// Loading: finds the real driver, points hooks at it, maps pointers the driver hands out to our
// hooks, and knows which GPU is under which ledger. GPUs are known by UUID, never by number:
// CUDA_VISIBLE_DEVICES renumbers them.
#include "shim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shim/arbiter.h"
#include "forward.h"
#include "throttle.h"

struct shim shim = {
    .throttle_epoch = 1,
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .context_lock = PTHREAD_MUTEX_INITIALIZER,
};
void *shim_real[R_COUNT];

static struct shim_hook hooks[] = {
#define X(name) {#name, (void *)name, &shim_real[R_##name]},
#include "cuda_hooks.def"
#undef X
};
static struct shim_hook calls[] = {
#define X(name) {#name, NULL, &shim_real[R_##name]},
#include "cuda_calls.def"
#undef X
};
enum { NHOOKS = sizeof hooks / sizeof *hooks, NCALLS = sizeof calls / sizeof *calls };

static CUresult shim_no_driver(void) {
    return CUDA_ERROR_NO_DEVICE;
}

CUresult shim_missing(void) {
    return CUDA_ERROR_NOT_FOUND;
}

static int by_real(const void *a, const void *b) {
    uintptr_t x = (uintptr_t)*((const struct shim_hook *)a)->real;
    uintptr_t y = (uintptr_t)*((const struct shim_hook *)b)->real;
    return x < y ? -1 : x > y;
}

__attribute__((constructor)) static void shim_load(void) {
    void *real = shim_real_open("ACEQUIA_REAL_LIBCUDA", "libcuda.so.1");
    void *missing = real ? (void *)shim_missing : (void *)shim_no_driver;
    shim_real_bind(real, hooks, NHOOKS, missing);
    shim_real_bind(real, calls, NCALLS, missing);
    qsort(hooks, NHOOKS, sizeof *hooks, by_real);
    const char *dir = getenv("ACEQUIA_GPU_LEDGER_DIR");
    shim.enabled = real && dir && *dir;
    pthread_atfork(NULL, NULL, shim_after_fork);
}

// The driver was asked first; if what it returned is a function we take over, ours goes out. Its
// address says which version and stream variant was chosen, so no name or version is guessed.
static void *hook_of(void *real) {
    struct shim_hook key = {.real = &real};
    if (real == (void *)shim_missing || real == (void *)shim_no_driver)
        return real;
    struct shim_hook *h = bsearch(&key, hooks, NHOOKS, sizeof *hooks, by_real);
    return h ? h->hook : real;
}

CUresult cuGetProcAddress(const char *symbol, void **fn, int version, uint64_t flags) {
    CUresult r = REAL(cuGetProcAddress)(symbol, fn, version, flags);
    if (r == CUDA_SUCCESS && fn && *fn)
        *fn = hook_of(*fn);
    return r;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **fn, int version, uint64_t flags,
                             int *status) {
    CUresult r = REAL(cuGetProcAddress_v2)(symbol, fn, version, flags, status);
    if (r == CUDA_SUCCESS && fn && *fn)
        *fn = hook_of(*fn);
    return r;
}

uint64_t shim_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void shim_sleep_ns(uint64_t ns) {
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    nanosleep(&t, NULL);
}

static int device_uuid(CUdevice ordinal, char out[LEDGER_UUID_MAX]) {
    struct CUuuid u;
    CUresult r = HAVE(cuDeviceGetUuid_v2) ? REAL(cuDeviceGetUuid_v2)(&u, ordinal)
                                          : REAL(cuDeviceGetUuid)(&u, ordinal);
    if (r != CUDA_SUCCESS)
        return -ENODEV;
    const unsigned char *b = u.bytes;
    snprintf(out, LEDGER_UUID_MAX,
             "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2],
             b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
    return 0;
}

// No ledger means no limit on this GPU. One that is there and cannot be used stops the job from
// using the GPU rather than letting it run without its limit.
static int device_load(struct shim_device *d, CUdevice ordinal) {
    char path[LEDGER_PATH_MAX];
    if (device_uuid(ordinal, d->uuid) < 0)
        return DEVICE_UNKNOWN; // the driver is not up yet: ask again later
    d->ordinal = ordinal;
    int r = ledger_path(path, getenv("ACEQUIA_GPU_LEDGER_DIR"), d->uuid, LEDGER_SUFFIX);
    if (r == 0)
        r = ledger_open(path, &d->ledger);
    if (r == -ENOENT)
        return DEVICE_FREE;
    if (r < 0) {
        fprintf(stderr,
                "acequia: the ledger %s of GPU %s cannot be used (%s); the GPU is refused\n",
                path, d->uuid, strerror(-r));
        return DEVICE_BROKEN;
    }
    const char *dir = getenv("ACEQUIA_GPU_ARBITER_DIR");
    if (dir && *dir && ledger_path(path, dir, d->uuid, ARBITER_SUFFIX) == 0)
        arbiter_open(path, &d->arbiter); // without it only the job's own cap holds
    return DEVICE_LIMITED;
}

struct shim_device *shim_device(CUdevice ordinal) {
    if (!shim.enabled || ordinal < 0 || ordinal >= SHIM_DEVICES)
        return NULL;
    struct shim_device *d = &shim.device[ordinal];
    int state = atomic_load_explicit(&d->state, memory_order_acquire);
    if (state == DEVICE_UNKNOWN) {
        pthread_mutex_lock(&shim.lock);
        state = atomic_load(&d->state);
        if (state == DEVICE_UNKNOWN) {
            state = device_load(d, ordinal);
            atomic_store_explicit(&d->state, state, memory_order_release);
        }
        pthread_mutex_unlock(&shim.lock);
    }
    return state == DEVICE_LIMITED ? d : NULL;
}

struct shim_device *shim_current(void) {
    CUdevice ordinal;
    if (!shim.enabled || REAL(cuCtxGetDevice)(&ordinal) != CUDA_SUCCESS)
        return NULL;
    return shim_device(ordinal);
}

// A captured stream runs nothing: neither memory nor time may be charged. The query on a legacy
// stream fails while another is captured in global mode; nothing can run on it then either.
bool shim_capturing(CUstream stream, bool per_thread) {
    if (atomic_load_explicit(&shim.captures, memory_order_relaxed) == 0)
        return false;
    int capturing = 0;
    CUresult r = per_thread ? REAL(cuStreamIsCapturing_ptsz)(stream, &capturing)
                            : REAL(cuStreamIsCapturing)(stream, &capturing);
    return r != CUDA_SUCCESS || capturing != 0;
}

void shim_after_fork(void) {
    pthread_mutex_init(&shim.lock, NULL);
    pthread_mutex_init(&shim.context_lock, NULL);
    atomic_store(&shim.captures, 0);
    atomic_store(&shim.pools_used, false);
    atomic_store(&shim.graphs_used, false);
    struct shim_table *all[] = {&shim.pointers, &shim.handles, &shim.mappings,
                           &shim.arrays, &shim.pools, &shim.graphs};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        *all[i] = (struct shim_table){0}; // not freed: another thread may have been inside when we forked
    for (int i = 0; i < SHIM_DEVICES; i++) {
        struct shim_device *d = &shim.device[i];
        if (d->ledger)
            ledger_after_fork(d->ledger);
        d->small_bytes = d->small_charged = d->context_bytes = d->graph_bytes = 0;
        d->primary = NULL;
        atomic_store(&d->contexts, 0);
        atomic_store(&d->measured_ns, 0);
        atomic_store(&d->busy, 0);
    }
    context_after_fork();
    throttle_after_fork();
}
