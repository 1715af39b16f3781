// What contexts cost. A context takes hundreds of MiB the moment it is made and grows with modules
// and stacks, and no call says how much. So a known or guessed size is reserved before, and
// afterwards the driver's own figure for this process, less all that is accounted for by name, is
// charged, and looked at again from time to time.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "forward.h"
#include "nvml_abi.h"
#include "shim.h"

enum { PROCESSES_MAX = 512 };

struct nvml {
    pthread_mutex_t lock;
    bool tried;
    nvmlReturn (*init)(void);
    nvmlReturn (*by_uuid)(const char *, nvmlDevice *);
    nvmlReturn (*processes)(nvmlDevice, unsigned *, struct nvmlProcess_v2 *);
};
static struct nvml nvml = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void nvml_load(void) {
    nvml.tried = true;
    void *lib = shim_real_open("ACEQUIA_REAL_NVML", "libnvidia-ml.so.1");
    if (!lib)
        return;
    *(void **)&nvml.init = dlsym(lib, "nvmlInit_v2");
    *(void **)&nvml.by_uuid = dlsym(lib, "nvmlDeviceGetHandleByUUID");
    *(void **)&nvml.processes = dlsym(lib, "nvmlDeviceGetComputeRunningProcesses_v3");
    if (!nvml.init || !nvml.by_uuid || nvml.init() != NVML_SUCCESS)
        nvml.processes = NULL;
}

// 0 where it cannot be known: no NVML, or another pid namespace than the driver's.
uint64_t nvml_own_bytes(const char *uuid) {
    static struct nvmlProcess_v2 list[PROCESSES_MAX]; // under the lock
    uint64_t bytes = 0;
    char name[LEDGER_UUID_MAX + 4];
    nvmlDevice dev;
    pthread_mutex_lock(&nvml.lock);
    if (!nvml.tried)
        nvml_load();
    unsigned n = PROCESSES_MAX, pid = (unsigned)getpid();
    bool found = false;
    for (int mig = 0; mig < 2 && nvml.processes && !found; mig++) {
        snprintf(name, sizeof name, "%s-%s", mig ? "MIG" : "GPU", uuid);
        found = nvml.by_uuid(name, &dev) == NVML_SUCCESS;
    }
    if (found && nvml.processes(dev, &n, list) == NVML_SUCCESS)
        for (unsigned i = 0; i < n; i++)
            if (list[i].pid == pid && list[i].used_bytes < UINT64_MAX / 2)
                bytes += list[i].used_bytes;
    pthread_mutex_unlock(&nvml.lock);
    return bytes;
}

void context_after_fork(void) {
    pthread_mutex_init(&nvml.lock, NULL);
    nvml.tried = false; // NVML is begun anew in the child
    nvml.processes = NULL;
}

static uint64_t with_slack(uint64_t bytes) {
    uint64_t step = SHIM_CONTEXT_SLACK_BYTES;
    return (bytes + step - 1) / step * step + step;
}

static uint64_t context_guess(struct shim_device *d) {
    uint64_t known = ledger_limits(d->ledger).context_bytes;
    return known ? with_slack(known) : SHIM_CONTEXT_GUESS_BYTES;
}

static void charge_to(struct shim_device *d, uint64_t bytes) {
    if (bytes > d->context_bytes)
        ledger_charge(d->ledger, LEDGER_CONTEXT, bytes - d->context_bytes);
    else
        ledger_refund(d->ledger, LEDGER_CONTEXT, d->context_bytes - bytes);
    d->context_bytes = bytes;
}

// The figure is only good if nothing was allocated or freed while it was taken.
static bool measure_once(struct shim_device *d, uint64_t *extra) {
    uint64_t changes = atomic_load(&d->changes);
    if (atomic_load(&d->busy))
        return false;
    pool_refresh(d);
    uint64_t named = ledger_own(d->ledger) - ledger_own_kind(d->ledger, LEDGER_CONTEXT);
    uint64_t all = nvml_own_bytes(d->uuid);
    if (!all || atomic_load(&d->busy) || atomic_load(&d->changes) != changes)
        return false;
    *extra = all > named ? all - named : 0;
    return true;
}

static bool measure_locked(struct shim_device *d) {
    uint64_t extra;
    d->measured_ns = shim_now_ns();
    if (!d->contexts || !measure_once(d, &extra))
        return false;
    if (with_slack(extra) != d->context_bytes)
        charge_to(d, with_slack(extra));
    return true;
}

void context_measure(struct shim_device *d, bool now) {
    if (!d->contexts || (!now && shim_now_ns() - d->measured_ns < SHIM_MEASURE_NS))
        return;
    if (pthread_mutex_trylock(&shim.context_lock) != 0)
        return; // a context is being made: it will be measured
    measure_locked(d);
    pthread_mutex_unlock(&shim.context_lock);
}

// Held from before a context is made until it is measured.
CUresult context_begin(struct hold *h, CUdevice ordinal) {
    struct shim_device *d = shim_device(ordinal);
    *h = (struct hold){0};
    if (shim.enabled && ordinal >= 0 && ordinal < SHIM_DEVICES &&
        atomic_load(&shim.device[ordinal].state) == DEVICE_BROKEN)
        return CUDA_ERROR_SYSTEM_NOT_READY;
    if (!d)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&shim.context_lock);
    h->kind = LEDGER_CONTEXT;
    h->bytes = context_guess(d);
    if (account_reserve(d, h->kind, h->bytes) < 0) {
        pthread_mutex_unlock(&shim.context_lock);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    h->device = d;
    return CUDA_SUCCESS;
}

void context_end(struct hold *h, CUresult r) {
    struct shim_device *d = h->device;
    if (!d)
        return;
    uint64_t guess = (h->bytes + SHIM_BLOCK_BYTES - 1) / SHIM_BLOCK_BYTES * SHIM_BLOCK_BYTES;
    if (r != CUDA_SUCCESS) {
        ledger_refund(d->ledger, LEDGER_CONTEXT, guess);
    } else {
        uint64_t before = d->context_bytes, extra = 0;
        d->context_bytes += guess;
        d->contexts++;
        for (int i = 0; i < 3 && !measure_once(d, &extra); i++)
            ;
        if (extra) {
            if (extra > before)
                ledger_note_context(d->ledger, d->contexts == 1 ? extra : extra - before);
            charge_to(d, with_slack(extra));
        }
        d->measured_ns = shim_now_ns();
    }
    pthread_mutex_unlock(&shim.context_lock);
    h->device = NULL;
}

// All that was allocated in a context goes with it.
static void forget_items(struct shim_table *t, struct shim_device *d, uint64_t context) {
    for (;;) {
        struct shim_table_entry gone = {0};
        pthread_mutex_lock(&shim.lock);
        for (size_t i = 0; i < t->size && !gone.key; i++)
            if (t->item[i].key && t->item[i].aux == context && t->item[i].device == d->ordinal)
                shim_table_take(t, t->item[i].key, &gone);
        pthread_mutex_unlock(&shim.lock);
        if (!gone.key)
            return;
        account_refund(d, (enum ledger_kind)gone.kind, gone.bytes);
        atomic_fetch_add(&d->changes, 1);
    }
}

void context_gone(CUdevice ordinal, CUcontext context) {
    struct shim_device *d = shim_device(ordinal);
    if (!d || !context)
        return;
    forget_items(&shim.pointers, d, (uintptr_t)context);
    forget_items(&shim.arrays, d, (uintptr_t)context);
    pool_refresh(d);
    pthread_mutex_lock(&shim.context_lock);
    unsigned before = d->contexts;
    if (before)
        d->contexts--;
    if (!d->contexts)
        charge_to(d, 0);
    else if (!measure_locked(d)) // not to be known: an equal part of what all were charged
        charge_to(d, d->context_bytes / before * (before - 1));
    pthread_mutex_unlock(&shim.context_lock);
}
