// The shadow of NVML: a job is shown its own part of the GPU, by nvidia-smi and everything else.
// Memory is the ledger's; the processes are the job's, those of the reader's pid namespace.
// Nothing is changed in the ledger from here, and its descriptor stays open for good: closing it
// would be pointless work on a path that programs call every second.
#include "nvml_abi.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "forward.h"
#include "shim/ledger.h"

#define NV_API __attribute__((visibility("default"))) nvmlReturn
NV_API nvmlDeviceGetMemoryInfo(nvmlDevice, struct nvmlMemory *);
NV_API nvmlDeviceGetMemoryInfo_v2(nvmlDevice, struct nvmlMemory_v2 *);
#define LISTS(X1, X2)                               \
    X1(nvmlDeviceGetComputeRunningProcesses)        \
    X2(nvmlDeviceGetComputeRunningProcesses_v2)     \
    X2(nvmlDeviceGetComputeRunningProcesses_v3)     \
    X1(nvmlDeviceGetGraphicsRunningProcesses)       \
    X2(nvmlDeviceGetGraphicsRunningProcesses_v2)    \
    X2(nvmlDeviceGetGraphicsRunningProcesses_v3)    \
    X1(nvmlDeviceGetMPSComputeRunningProcesses)     \
    X2(nvmlDeviceGetMPSComputeRunningProcesses_v2)  \
    X2(nvmlDeviceGetMPSComputeRunningProcesses_v3)
#define DECLARE1(name) NV_API name(nvmlDevice, unsigned *, struct nvmlProcess_v1 *);
#define DECLARE2(name) NV_API name(nvmlDevice, unsigned *, struct nvmlProcess_v2 *);
LISTS(DECLARE1, DECLARE2)
NV_API nvmlDeviceGetRunningProcessDetailList(nvmlDevice, struct nvmlProcessDetailList *);

enum nvml_real_index {
#define X(name) R_##name,
#include "nvml_hooks.def"
#undef X
    R_nvmlDeviceGetUUID,
    R_COUNT,
};
static void *real[R_COUNT];
#define REAL(name) ((__typeof__(&name))real[R_##name])

static struct shim_hook hooks[] = {
#define X(name) {#name, (void *)name, &real[R_##name]},
#include "nvml_hooks.def"
#undef X
    {"nvmlDeviceGetUUID", NULL, &real[R_nvmlDeviceGetUUID]},
};

enum { VIEWS = 64 };
static struct {
    pthread_mutex_t lock;
    const char *dir;
    unsigned n;
    struct {
        char uuid[LEDGER_UUID_MAX + 8];
        struct ledger *ledger; // NULL: this GPU is not limited
    } view[VIEWS];
} views = {.lock = PTHREAD_MUTEX_INITIALIZER};

static nvmlReturn no_library(void) {
    return NVML_ERROR_LIBRARY_NOT_FOUND;
}

static nvmlReturn no_function(void) {
    return NVML_ERROR_FUNCTION_NOT_FOUND;
}

static void after_fork(void) {
    pthread_mutex_init(&views.lock, NULL);
}

__attribute__((constructor)) static void load(void) {
    void *lib = shim_real_open("ACEQUIA_REAL_NVML", "libnvidia-ml.so.1");
    shim_real_bind(lib, hooks, sizeof hooks / sizeof *hooks,
                   lib ? (void *)no_function : (void *)no_library);
    views.dir = lib ? getenv("ACEQUIA_GPU_LEDGER_DIR") : NULL;
    pthread_atfork(NULL, NULL, after_fork);
}

static struct ledger *view_find(const char *uuid) {
    for (unsigned i = 0; i < views.n; i++)
        if (!strcmp(views.view[i].uuid, uuid))
            return views.view[i].ledger;
    if (views.n == VIEWS)
        return NULL;
    char path[LEDGER_PATH_MAX];
    struct ledger *l = NULL;
    if (ledger_path(path, views.dir, uuid, LEDGER_SUFFIX) == 0)
        ledger_open(path, &l);
    memcpy(views.view[views.n].uuid, uuid, strlen(uuid) + 1);
    views.view[views.n++].ledger = l;
    return l;
}

static struct ledger *ledger_of(nvmlDevice device) {
    char uuid[LEDGER_UUID_MAX + 8] = "";
    if (!views.dir || !*views.dir)
        return NULL;
    nvmlReturn (*get_uuid)(nvmlDevice, char *, unsigned);
    *(void **)&get_uuid = real[R_nvmlDeviceGetUUID];
    if (get_uuid(device, uuid, sizeof uuid - 1) != NVML_SUCCESS)
        return NULL;
    pthread_mutex_lock(&views.lock);
    struct ledger *l = view_find(uuid);
    pthread_mutex_unlock(&views.lock);
    return l;
}

// The limit can be larger than the GPU only by mistake; what exists is shown then.
static bool shown(nvmlDevice device, uint64_t *total, uint64_t *free_bytes, uint64_t *used) {
    struct ledger *l = ledger_of(device);
    uint64_t limit = l ? ledger_limits(l).memory_bytes : 0;
    if (!limit || limit > *total)
        return false;
    uint64_t have = ledger_used(l);
    *total = limit;
    *used = have < limit ? have : limit;
    *free_bytes = limit - *used;
    return true;
}

nvmlReturn nvmlDeviceGetMemoryInfo(nvmlDevice device, struct nvmlMemory *m) {
    nvmlReturn r = REAL(nvmlDeviceGetMemoryInfo)(device, m);
    if (r == NVML_SUCCESS)
        shown(device, &m->total, &m->free, &m->used);
    return r;
}

nvmlReturn nvmlDeviceGetMemoryInfo_v2(nvmlDevice device, struct nvmlMemory_v2 *m) {
    nvmlReturn r = REAL(nvmlDeviceGetMemoryInfo_v2)(device, m);
    if (r == NVML_SUCCESS && shown(device, &m->total, &m->free, &m->used))
        m->reserved = 0; // the driver's own part lies outside the job's
    return r;
}

// The job's processes here; the caller frees.
static struct ledger_process *own_processes(struct ledger *l, unsigned *n) {
    struct ledger_usage *u = malloc(sizeof *u);
    struct ledger_process *list = calloc(LEDGER_SLOTS, sizeof *list);
    if (!u || !list)
        abort();
    ledger_view(l, u);
    *n = 0;
    for (unsigned i = 0; i < u->nprocesses; i++)
        if (u->process[i].same_namespace)
            list[(*n)++] = u->process[i];
    free(u);
    return list;
}

// The three kinds of list share one rule: computing processes are the ledger's, a limited job has
// no others.
#define LIST(name, type)                                                         \
    nvmlReturn name(nvmlDevice device, unsigned *count, struct type *out) {      \
        struct ledger *l = ledger_of(device);                                    \
        if (!l)                                                                  \
            return REAL(name)(device, count, out);                               \
        if (!count)                                                              \
            return NVML_ERROR_INVALID_ARGUMENT;                                  \
        unsigned n = 0, room = *count;                                           \
        struct ledger_process *p = NULL;                                         \
        if (!strncmp(#name, "nvmlDeviceGetCompute", 20))                         \
            p = own_processes(l, &n);                                            \
        *count = n;                                                              \
        nvmlReturn r = n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;   \
        if (r == NVML_SUCCESS && n && !out)                                      \
            r = NVML_ERROR_INVALID_ARGUMENT;                                     \
        for (unsigned i = 0; i < n && r == NVML_SUCCESS; i++) {                  \
            memset(&out[i], 0xff, sizeof out[i]); /* no MIG instance */          \
            out[i].pid = (unsigned)p[i].pid;                                     \
            out[i].used_bytes = p[i].bytes;                                      \
        }                                                                        \
        free(p);                                                                 \
        return r;                                                                \
    }
#define LIST1(name) LIST(name, nvmlProcess_v1)
#define LIST2(name) LIST(name, nvmlProcess_v2)
LISTS(LIST1, LIST2)

nvmlReturn nvmlDeviceGetRunningProcessDetailList(nvmlDevice device,
                                                 struct nvmlProcessDetailList *list) {
    struct ledger *l = ledger_of(device);
    if (!l || !list)
        return REAL(nvmlDeviceGetRunningProcessDetailList)(device, list);
    unsigned n = 0, room = list->count;
    struct ledger_process *p = list->mode == 0 ? own_processes(l, &n) : NULL;
    list->count = n;
    nvmlReturn r = n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
    for (unsigned i = 0; i < n && r == NVML_SUCCESS && list->entry; i++)
        list->entry[i] = (struct nvmlProcessDetail){.pid = (unsigned)p[i].pid,
                                                    .used_bytes = p[i].bytes,
                                                    .gpu_instance = ~0u, .compute_instance = ~0u};
    free(p);
    return r;
}
