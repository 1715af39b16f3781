// A driver without a GPU, for tests: exports the functions the shim takes over or calls, in all
// their versions, over a small simulated device. Kernels take the time their handle says; the
// device runs one at a time, in order, on the real clock. Serves as NVML too. The engine's clock
// can be shared between processes through the file named by FAKE_ENGINE.
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../cuda_abi.h"
#include "../nvml_abi.h"
#include "fake_driver.h"

enum { DEVICES = 2, MIB = 1 << 20, CONTEXT_MIB = 300, BLOCK = 2 * MIB, STEP = 32 * MIB, ENTITIES = 65536 };
static const uint64_t device_bytes = 80ULL << 30;

struct CUctx_st {
    int device, primary;
    unsigned refs;
};
enum { QUEUE = 1024 }; // as deep as a real stream's
struct op { // waits behind a barrier: exactly one is set
    uint64_t ns;
    CUevent event;
    _Atomic uint32_t *word;
    uint32_t value;
};
struct CUstream_st {
    uint64_t tail;
    int capturing;
    CUgraph graph;
    unsigned head, count; // of op
    int listed;
    struct op op[QUEUE];
};
struct CUevent_st {
    uint64_t at;
    int recorded;
    int queued;
};
struct CUmemPoolHandle_st {
    int device;
    uint64_t reserved, used;
    int dead;
};
struct CUgraphNode_st {
    int type;
    uint64_t bytes;
};
struct CUgraph_st {
    uint64_t ns, alloc_bytes;
    struct CUgraphNode_st alloc;
};
struct CUgraphExec_st {
    uint64_t ns, alloc_bytes;
    int device;
};
struct thing { // an allocation, array or handle
    uint64_t key, bytes;
    int device, refs, maps, live;
    CUmemoryPool pool;
    CUcontext ctx;
};

static struct {
    pthread_mutex_t lock;
    uint64_t used[DEVICES], graph_store[DEVICES], small[DEVICES];
    struct CUctx_st primary[DEVICES];
    struct CUmemPoolHandle_st pool[DEVICES];
    struct thing thing[ENTITIES];
    unsigned nentities;
    uint64_t next;
    struct CUstream_st legacy, per_thread;
    struct CUstream_st *waiting[512]; // streams that ever had a barrier
    unsigned nwaiting;
    int pumped;
    int captures, strict;
    struct fake_counts counts;
    _Atomic uint64_t *engine;
    _Atomic uint64_t own_engine;
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .next = 0x700000000000ULL};
static __thread CUcontext current[16];
static __thread int depth;
static __thread int relaxed;

#define LOCK pthread_mutex_lock(&fake.lock)
#define UNLOCK pthread_mutex_unlock(&fake.lock)
#define API __attribute__((visibility("default")))

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// A child has none of its parent's streams.
static void after_fork(void) {
    pthread_mutex_init(&fake.lock, NULL);
    fake.legacy.count = fake.per_thread.count = 0;
    fake.nwaiting = 0;
    fake.pumped = 0;
    fake.legacy.listed = fake.per_thread.listed = 0;
}

__attribute__((constructor)) static void fake_load(void) {
    pthread_atfork(NULL, NULL, after_fork);
    const char *path = getenv("FAKE_ENGINE");
    int fd = path ? open(path, O_RDWR | O_CREAT, 0600) : -1;
    fake.engine = &fake.own_engine;
    if (fd >= 0 && ftruncate(fd, 4096) == 0) {
        void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (map != MAP_FAILED)
            fake.engine = map;
        close(fd);
    }
    for (int i = 0; i < DEVICES; i++)
        fake.primary[i] = (struct CUctx_st){i, 1, 0}, fake.pool[i].device = i;
}

API struct fake_counts *fake_counts(void) {
    return &fake.counts;
}

API uint64_t fake_used(int device) {
    LOCK;
    uint64_t n = fake.used[device];
    UNLOCK;
    return n;
}

// Which physical GPU a number means: FAKE_ORDER=10 swaps the two, as CUDA_VISIBLE_DEVICES would.
static int physical(int ordinal) {
    const char *order = getenv("FAKE_ORDER");
    return order ? order[ordinal] - '0' : ordinal;
}

static CUcontext ctx_now(void) {
    return depth ? current[depth - 1] : NULL;
}

static uint64_t blocks(uint64_t n) {
    return (n + BLOCK - 1) / BLOCK * BLOCK;
}

static CUresult take(int device, uint64_t bytes) {
    if (fake.used[device] + bytes > device_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    fake.used[device] += bytes;
    return CUDA_SUCCESS;
}

// Small ones share blocks: the device's use moves when their sum crosses a block.
static CUresult take_sized(int device, uint64_t bytes, int sign) {
    if (bytes >= MIB) {
        if (sign < 0)
            fake.used[device] -= blocks(bytes);
        return sign < 0 ? CUDA_SUCCESS : take(device, blocks(bytes));
    }
    uint64_t before = blocks(fake.small[device]);
    fake.small[device] += (uint64_t)(sign * (int64_t)((bytes + 511) / 512 * 512));
    fake.used[device] += blocks(fake.small[device]) - before;
    return CUDA_SUCCESS;
}

static uint64_t add_entity(int device, uint64_t bytes, CUmemoryPool pool) {
    uint64_t key = fake.next;
    fake.next += blocks(bytes ? bytes : 1);
    fake.thing[fake.nentities++ % ENTITIES] = (struct thing){key, bytes, device, 1, 0, 1, pool, ctx_now()};
    return key;
}

static struct thing *find_entity(uint64_t key) {
    for (unsigned i = 0; i < fake.nentities && i < ENTITIES; i++)
        if (fake.thing[i].live && fake.thing[i].key == key)
            return &fake.thing[i];
    return NULL;
}

static CUresult alloc(uint64_t *out, uint64_t bytes) {
    CUcontext c = ctx_now();
    if (!c)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    LOCK;
    CUresult r = take_sized(c->device, bytes, 1);
    if (r == CUDA_SUCCESS)
        *out = add_entity(c->device, bytes, NULL);
    UNLOCK;
    return r;
}

static CUresult drop(uint64_t key) {
    LOCK;
    struct thing *t = find_entity(key);
    if (t && t->pool) {
        t->pool->used -= t->bytes;
        if (t->pool->dead && !t->pool->used)
            fake.used[t->device] -= t->pool->reserved, t->pool->reserved = 0;
    } else if (t) {
        take_sized(t->device, t->bytes, -1);
    }
    if (t)
        t->live = 0;
    UNLOCK;
    return t ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

#define HIT(name) atomic_fetch_add(&fake.counts.hits[FAKE_##name], 1)
enum {
#define X(name) FAKE_##name,
#include "../cuda_hooks.def"
#undef X
    FAKE_COUNT,
};
_Static_assert((int)FAKE_COUNT <= (int)FAKE_HITS_MAX, "fake counters");

API uint64_t fake_hits(const char *name) {
    static const char *const names[] = {
#define X(name) #name,
#include "../cuda_hooks.def"
#undef X
    };
    for (int i = 0; i < FAKE_COUNT; i++)
        if (!strcmp(names[i], name))
            return fake.counts.hits[i];
    return UINT64_MAX;
}

CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n) { HIT(cuMemAlloc_v2); return alloc(p, n); }
CUresult cuMemAlloc(unsigned *p, unsigned n) {
    HIT(cuMemAlloc);
    uint64_t at;
    CUresult r = alloc(&at, n);
    if (r == CUDA_SUCCESS) { // a 32-bit address
        LOCK;
        struct thing *t = find_entity(at);
        t->key = 0x1000 + (fake.next >> 16 & 0x7fffffff);
        *p = (unsigned)t->key;
        UNLOCK;
    }
    return r;
}
CUresult cuMemAllocPitch_v2(CUdeviceptr *p, size_t *pitch, size_t w, size_t h, unsigned e) {
    HIT(cuMemAllocPitch_v2);
    *pitch = (w + 1023) / 1024 * 1024; // coarser than the shim expects, on purpose
    return alloc(p, *pitch * h);
}
CUresult cuMemAllocPitch(unsigned *p, unsigned *pitch, unsigned w, unsigned h, unsigned e) {
    HIT(cuMemAllocPitch);
    *pitch = (w + 511) / 512 * 512;
    return cuMemAlloc(p, *pitch * h);
}
CUresult cuMemAllocManaged(CUdeviceptr *p, size_t n, unsigned flags) { HIT(cuMemAllocManaged); return alloc(p, n); }
CUresult cuMemFree_v2(CUdeviceptr p) { HIT(cuMemFree_v2); return drop(p); }
CUresult cuMemFree(unsigned p) { HIT(cuMemFree); return drop(p); }
CUresult cuMemGetInfo_v2(size_t *f, size_t *t) {
    HIT(cuMemGetInfo_v2);
    CUcontext c = ctx_now();
    if (!c)
        return CUDA_ERROR_INVALID_CONTEXT;
    *t = device_bytes;
    *f = device_bytes - fake_used(c->device);
    return CUDA_SUCCESS;
}
CUresult cuMemGetInfo(unsigned *f, unsigned *t) { HIT(cuMemGetInfo); *f = *t = ~0u; return CUDA_SUCCESS; }
CUresult cuDeviceTotalMem_v2(size_t *n, CUdevice d) { HIT(cuDeviceTotalMem_v2); *n = device_bytes; return CUDA_SUCCESS; }
CUresult cuDeviceTotalMem(unsigned *n, CUdevice d) { HIT(cuDeviceTotalMem); *n = ~0u; return CUDA_SUCCESS; }

static struct CUstream_st *stream_of(CUstream s, int per_thread) {
    if ((uintptr_t)s == 1)
        return &fake.legacy;
    if ((uintptr_t)s == 2)
        return &fake.per_thread;
    return s ? s : per_thread ? &fake.per_thread : &fake.legacy;
}

static CUresult pool_alloc(CUdeviceptr *p, size_t n, CUmemoryPool pool, CUstream stream, int pt) {
    struct CUstream_st *s = stream_of(stream, pt);
    LOCK;
    CUresult r = CUDA_SUCCESS;
    if (s->capturing) {
        s->graph->alloc_bytes += n;
        s->graph->alloc = (struct CUgraphNode_st){CU_NODE_MEM_ALLOC, s->graph->alloc_bytes};
        *p = fake.next += BLOCK;
    } else {
        if (pool->used + n > pool->reserved) {
            uint64_t grow = (pool->used + n - pool->reserved + STEP - 1) / STEP * STEP;
            r = take(pool->device, grow);
            pool->reserved += r == CUDA_SUCCESS ? grow : 0;
        }
        if (r == CUDA_SUCCESS) {
            pool->used += n;
            *p = add_entity(pool->device, n, pool);
        }
    }
    UNLOCK;
    return r;
}
static CUmemoryPool default_pool(void) { return &fake.pool[ctx_now() ? ctx_now()->device : 0]; }
CUresult cuMemAllocAsync(CUdeviceptr *p, size_t n, CUstream s) { HIT(cuMemAllocAsync); return pool_alloc(p, n, default_pool(), s, 0); }
CUresult cuMemAllocAsync_ptsz(CUdeviceptr *p, size_t n, CUstream s) { HIT(cuMemAllocAsync_ptsz); return pool_alloc(p, n, default_pool(), s, 1); }
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *p, size_t n, CUmemoryPool m, CUstream s) { HIT(cuMemAllocFromPoolAsync); return pool_alloc(p, n, m, s, 0); }
CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *p, size_t n, CUmemoryPool m, CUstream s) { HIT(cuMemAllocFromPoolAsync_ptsz); return pool_alloc(p, n, m, s, 1); }
CUresult cuMemFreeAsync(CUdeviceptr p, CUstream s) { HIT(cuMemFreeAsync); return drop(p); }
CUresult cuMemFreeAsync_ptsz(CUdeviceptr p, CUstream s) { HIT(cuMemFreeAsync_ptsz); return drop(p); }
CUresult cuMemPoolCreate(CUmemoryPool *m, const struct CUmemPoolProps *props) {
    HIT(cuMemPoolCreate);
    *m = calloc(1, sizeof **m);
    (*m)->device = props->location.id;
    return CUDA_SUCCESS;
}
CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *m, void *h, int type, uint64_t flags) {
    HIT(cuMemPoolImportFromShareableHandle);
    *m = calloc(1, sizeof **m);
    return CUDA_SUCCESS;
}
static void pool_shrink(CUmemoryPool m, uint64_t keep) {
    uint64_t want = (m->used + STEP - 1) / STEP * STEP;
    want = want > keep ? want : keep;
    if (want < m->reserved) {
        fake.used[m->device] -= m->reserved - want;
        m->reserved = want;
    }
}
CUresult cuMemPoolTrimTo(CUmemoryPool m, size_t keep) { HIT(cuMemPoolTrimTo); LOCK; pool_shrink(m, keep); UNLOCK; return CUDA_SUCCESS; }
CUresult cuMemPoolDestroy(CUmemoryPool m) {
    HIT(cuMemPoolDestroy);
    LOCK;
    m->dead = 1; // leaked on purpose: pointers may be out
    if (!m->used)
        fake.used[m->device] -= m->reserved, m->reserved = 0;
    UNLOCK;
    return CUDA_SUCCESS;
}
CUresult cuMemPoolGetAttribute(CUmemoryPool m, int which, void *value) {
    LOCK;
    *(uint64_t *)value = which == CU_POOL_RESERVED_CURRENT ? m->reserved : m->used;
    UNLOCK;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetMemPool(CUmemoryPool *m, CUdevice d) { *m = &fake.pool[d]; return CUDA_SUCCESS; }
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *m, CUdevice d) { *m = &fake.pool[d]; return CUDA_SUCCESS; }

CUresult cuMemCreate(CUmemGenericAllocationHandle *h, size_t n, const struct CUmemAllocationProp *p, uint64_t f) {
    HIT(cuMemCreate);
    LOCK;
    CUresult r = p->location.type == CU_LOCATION_DEVICE ? take(p->location.id, blocks(n)) : CUDA_SUCCESS;
    if (r == CUDA_SUCCESS)
        *h = add_entity(p->location.type == CU_LOCATION_DEVICE ? p->location.id : -1, n, NULL);
    UNLOCK;
    return r;
}
static void vmm_check(struct thing *t) {
    if (!t->refs && !t->maps) {
        if (t->device >= 0)
            fake.used[t->device] -= blocks(t->bytes);
        t->live = 0;
    }
}
CUresult cuMemRelease(CUmemGenericAllocationHandle h) {
    HIT(cuMemRelease);
    LOCK;
    struct thing *t = find_entity(h);
    if (t && t->refs)
        t->refs--, vmm_check(t);
    UNLOCK;
    return t ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
static struct { uint64_t ptr, handle, bytes; } maps[1024];
static int nmaps;
CUresult cuMemMap(CUdeviceptr p, size_t n, size_t off, CUmemGenericAllocationHandle h, uint64_t f) {
    HIT(cuMemMap);
    LOCK;
    struct thing *t = find_entity(h);
    if (t)
        t->maps++, maps[nmaps].ptr = p, maps[nmaps].handle = h, maps[nmaps++].bytes = n;
    UNLOCK;
    return t ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemUnmap(CUdeviceptr p, size_t n) {
    HIT(cuMemUnmap);
    LOCK;
    for (int i = 0; i < nmaps; i++)
        if (maps[i].ptr >= p && maps[i].ptr < p + n) {
            struct thing *t = find_entity(maps[i].handle);
            t->maps--, vmm_check(t);
            maps[i].ptr = 0;
        }
    UNLOCK;
    return CUDA_SUCCESS;
}
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *h, void *addr) {
    HIT(cuMemRetainAllocationHandle);
    LOCK;
    CUresult r = CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < nmaps; i++)
        if ((uint64_t)(uintptr_t)addr - maps[i].ptr < maps[i].bytes) {
            find_entity(maps[i].handle)->refs++;
            *h = maps[i].handle;
            r = CUDA_SUCCESS;
        }
    UNLOCK;
    return r;
}
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *h, void *os, int type) {
    HIT(cuMemImportFromShareableHandle);
    *h = 0x1234;
    return CUDA_SUCCESS;
}

static uint64_t array_size(uint64_t w, uint64_t h, uint64_t d, unsigned channels) {
    return (w * channels * 4 + 511) / 512 * 512 * (h ? h : 1) * (d ? d : 1);
}
static CUresult array_make(CUarray *a, uint64_t bytes) {
    uint64_t key;
    CUresult r = alloc(&key, bytes);
    if (r == CUDA_SUCCESS)
        *a = (CUarray)(uintptr_t)key;
    return r;
}
CUresult cuArrayCreate(CUarray *a, const struct CUarrayDesc_v1 *d) { HIT(cuArrayCreate); return array_make(a, array_size(d->width, d->height, 0, d->channels)); }
CUresult cuArrayCreate_v2(CUarray *a, const struct CUarrayDesc *d) { HIT(cuArrayCreate_v2); return array_make(a, array_size(d->width, d->height, 0, d->channels)); }
CUresult cuArray3DCreate(CUarray *a, const struct CUarray3DDesc_v1 *d) { HIT(cuArray3DCreate); return array_make(a, array_size(d->width, d->height, d->depth, d->channels)); }
CUresult cuArray3DCreate_v2(CUarray *a, const struct CUarray3DDesc *d) { HIT(cuArray3DCreate_v2); return array_make(a, d->flags & CU_ARRAY_SPARSE ? 512 : array_size(d->width, d->height, d->depth, d->channels)); }
CUresult cuMipmappedArrayCreate(CUmipmappedArray *a, const struct CUarray3DDesc *d, unsigned levels) {
    HIT(cuMipmappedArrayCreate);
    uint64_t sum = 0;
    for (unsigned i = 0; i < levels; i++)
        sum += array_size(d->width >> i, d->height >> i, d->depth >> i, d->channels);
    return array_make((CUarray *)(void *)a, sum);
}
CUresult cuArrayDestroy(CUarray a) { HIT(cuArrayDestroy); return drop((uintptr_t)a); }
CUresult cuMipmappedArrayDestroy(CUmipmappedArray a) { HIT(cuMipmappedArrayDestroy); return drop((uintptr_t)a); }

static CUresult ctx_make(CUcontext *c, int device) {
    LOCK;
    CUresult r = take(device, (uint64_t)CONTEXT_MIB * MIB);
    UNLOCK;
    if (r == CUDA_SUCCESS) {
        *c = calloc(1, sizeof **c);
        **c = (struct CUctx_st){device, 0, 1};
        current[depth++] = *c;
    }
    return r;
}
static void ctx_end(CUcontext c) {
    LOCK;
    for (unsigned i = 0; i < fake.nentities && i < ENTITIES; i++) {
        struct thing *t = &fake.thing[i];
        if (t->live && t->ctx == c && !t->pool && t->device >= 0 && !t->maps)
            take_sized(t->device, t->bytes, -1), t->live = 0;
    }
    fake.used[c->device] -= (uint64_t)CONTEXT_MIB * MIB;
    UNLOCK;
}
CUresult cuCtxCreate(CUcontext *c, unsigned f, CUdevice d) { HIT(cuCtxCreate); return ctx_make(c, d); }
CUresult cuCtxCreate_v2(CUcontext *c, unsigned f, CUdevice d) { HIT(cuCtxCreate_v2); return ctx_make(c, d); }
CUresult cuCtxCreate_v3(CUcontext *c, void *a, int n, unsigned f, CUdevice d) { HIT(cuCtxCreate_v3); return ctx_make(c, d); }
CUresult cuCtxCreate_v4(CUcontext *c, void *p, unsigned f, CUdevice d) { HIT(cuCtxCreate_v4); return ctx_make(c, d); }
static CUresult ctx_destroy(CUcontext c) {
    ctx_end(c);
    if (depth && current[depth - 1] == c)
        depth--;
    free(c);
    return CUDA_SUCCESS;
}
CUresult cuCtxDestroy(CUcontext c) { HIT(cuCtxDestroy); return ctx_destroy(c); }
CUresult cuCtxDestroy_v2(CUcontext c) { HIT(cuCtxDestroy_v2); return ctx_destroy(c); }
CUresult cuCtxDetach(CUcontext c) { HIT(cuCtxDetach); return ctx_destroy(c); }
CUresult cuCtxSetLimit(int limit, size_t v) {
    HIT(cuCtxSetLimit);
    LOCK;
    fake.used[ctx_now()->device] += v; // a heap, say
    UNLOCK;
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) {
    HIT(cuDevicePrimaryCtxRetain);
    CUresult r = CUDA_SUCCESS;
    LOCK;
    if (!fake.primary[d].refs)
        r = take(d, (uint64_t)CONTEXT_MIB * MIB);
    if (r == CUDA_SUCCESS)
        fake.primary[d].refs++, *c = &fake.primary[d];
    UNLOCK;
    return r;
}
static CUresult primary_release(int d, int all) {
    struct CUctx_st *c = &fake.primary[d];
    if (!c->refs)
        return CUDA_ERROR_INVALID_CONTEXT;
    c->refs = all ? 0 : c->refs - 1;
    if (!c->refs)
        ctx_end(c);
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice d) { HIT(cuDevicePrimaryCtxRelease); return primary_release(d, 0); }
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice d) { HIT(cuDevicePrimaryCtxRelease_v2); return primary_release(d, 0); }
CUresult cuDevicePrimaryCtxReset(CUdevice d) { HIT(cuDevicePrimaryCtxReset); return primary_release(d, 1); }
CUresult cuDevicePrimaryCtxReset_v2(CUdevice d) { HIT(cuDevicePrimaryCtxReset_v2); return primary_release(d, 1); }
CUresult cuDevicePrimaryCtxGetState(CUdevice d, unsigned *f, int *a) { LOCK; *f = 0; *a = fake.primary[d].refs > 0; UNLOCK; return CUDA_SUCCESS; }
CUresult cuCtxGetCurrent(CUcontext *c) { *c = ctx_now(); return CUDA_SUCCESS; }
CUresult cuCtxGetDevice(CUdevice *d) { if (!ctx_now()) return CUDA_ERROR_INVALID_CONTEXT; *d = ctx_now()->device; return CUDA_SUCCESS; }
CUresult cuCtxPushCurrent(CUcontext c) { HIT(cuCtxPushCurrent); current[depth++] = c; return CUDA_SUCCESS; }
CUresult cuCtxPopCurrent(CUcontext *c) { HIT(cuCtxPopCurrent); *c = current[--depth]; return CUDA_SUCCESS; }
CUresult cuCtxPushCurrent_v2(CUcontext c) { HIT(cuCtxPushCurrent_v2); current[depth++] = c; return CUDA_SUCCESS; }
CUresult cuCtxPopCurrent_v2(CUcontext *c) { HIT(cuCtxPopCurrent_v2); *c = current[--depth]; return CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext c) { HIT(cuCtxSetCurrent); depth = c != NULL; current[0] = c; return CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int *n) { *n = DEVICES; return CUDA_SUCCESS; }
CUresult cuDeviceGetUuid_v2(struct CUuuid *u, CUdevice d) { memset(u, 0x10 + physical(d), sizeof *u); return CUDA_SUCCESS; }
CUresult cuDeviceGetUuid(struct CUuuid *u, CUdevice d) { return cuDeviceGetUuid_v2(u, d); }
CUresult cuModuleLoad(CUmodule *m, const char *f) { HIT(cuModuleLoad); return CUDA_SUCCESS; }
CUresult cuModuleLoadData(CUmodule *m, const void *i) { HIT(cuModuleLoadData); return CUDA_SUCCESS; }
CUresult cuModuleLoadDataEx(CUmodule *m, const void *i, unsigned n, int *o, void **v) { HIT(cuModuleLoadDataEx); return CUDA_SUCCESS; }
CUresult cuModuleLoadFatBinary(CUmodule *m, const void *i) { HIT(cuModuleLoadFatBinary); return CUDA_SUCCESS; }
CUresult cuLibraryLoadData(CUlibrary *l, const void *c, int *a, void **b, unsigned n, int *d, void **e, unsigned f) { HIT(cuLibraryLoadData); return CUDA_SUCCESS; }
CUresult cuLibraryLoadFromFile(CUlibrary *l, const char *c, int *a, void **b, unsigned n, int *d, void **e, unsigned f) { HIT(cuLibraryLoadFromFile); return CUDA_SUCCESS; }

// One engine for all processes: a launch takes the next free stretch of time after its stream.
static void run_op(struct CUstream_st *s, const struct op *o) {
    uint64_t now = now_ns();
    if (o->event) {
        o->event->at = s->tail > now ? s->tail : now;
        o->event->recorded = 1;
        o->event->queued--;
    }
    if (!o->ns)
        return;
    uint64_t free_at = atomic_load(fake.engine), start;
    do {
        start = free_at > now ? free_at : now;
        start = start > s->tail ? start : s->tail;
    } while (!atomic_compare_exchange_weak(fake.engine, &free_at, start + o->ns));
    s->tail = start + o->ns;
    atomic_fetch_add(&fake.counts.kernels, 1);
    atomic_fetch_add(&fake.counts.kernel_ns, o->ns);
}

static void pump(struct CUstream_st *s) {
    while (s->count) {
        struct op *o = &s->op[s->head];
        if (o->word && (int32_t)(atomic_load(o->word) - o->value) < 0)
            return;
        run_op(s, o);
        s->head = (s->head + 1) % QUEUE;
        s->count--;
    }
}

// Something must see that a barrier opened, also while every thread of the program sleeps.
static void *pump_all(void *arg) {
    for (;;) {
        LOCK;
        for (unsigned i = 0; i < fake.nwaiting; i++)
            pump(fake.waiting[i]);
        UNLOCK;
        usleep(50);
    }
    return NULL;
}

static void enqueue(struct CUstream_st *s, struct op o) {
    pthread_t thread;
    pump(s);
    if (!s->count && !o.word) {
        run_op(s, &o);
        return;
    }
    if (!s->listed && fake.nwaiting < 512)
        fake.waiting[fake.nwaiting++] = s, s->listed = 1;
    if (!fake.pumped)
        fake.pumped = pthread_create(&thread, NULL, pump_all, NULL) == 0;
    while (s->count == QUEUE) { // full: the caller waits, as with a real driver
        UNLOCK;
        usleep(50);
        LOCK;
        pump(s);
    }
    s->op[(s->head + s->count++) % QUEUE] = o;
}

static CUresult run(CUstream stream, int per_thread, uint64_t ns) {
    struct CUstream_st *s = stream_of(stream, per_thread);
    LOCK;
    if (s->capturing)
        s->graph->ns += ns;
    else
        enqueue(s, (struct op){.ns = ns ? ns : 1});
    UNLOCK;
    return CUDA_SUCCESS;
}
CUresult cuMemHostAlloc(void **p, size_t n, unsigned f) { *p = calloc(1, n); return CUDA_SUCCESS; }
CUresult cuMemFreeHost(void *p) { free(p); return CUDA_SUCCESS; }
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *d, void *p, unsigned f) { *d = (uintptr_t)p; return CUDA_SUCCESS; }
static CUresult wait_value(struct CUstream_st *s, CUdeviceptr at, uint32_t v) {
    if (getenv("FAKE_NO_BARRIERS"))
        return 801;
    LOCK;
    if (s->capturing)
        fake.counts.spoiled++;
    atomic_fetch_add(&fake.counts.barriers, 1);
    enqueue(s, (struct op){.word = (void *)(uintptr_t)at, .value = v});
    UNLOCK;
    return CUDA_SUCCESS;
}
CUresult cuStreamWaitValue32_v2(CUstream s, CUdeviceptr at, uint32_t v, unsigned f) { return wait_value(stream_of(s, 0), at, v); }
CUresult cuStreamWaitValue32_v2_ptsz(CUstream s, CUdeviceptr at, uint32_t v, unsigned f) { return wait_value(stream_of(s, 1), at, v); }
API CUresult cuMemsetD8Async(CUdeviceptr p, unsigned char c, size_t n, CUstream s);
CUresult cuMemsetD8Async(CUdeviceptr p, unsigned char c, size_t n, CUstream s) { LOCK; enqueue(stream_of(s, 0), (struct op){0}); UNLOCK; return CUDA_SUCCESS; }
CUresult cuLaunchKernel(CUfunction f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned h, CUstream s, void **p, void **x) { HIT(cuLaunchKernel); return run(s, 0, (uintptr_t)f); }
CUresult cuLaunchKernel_ptsz(CUfunction f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned h, CUstream s, void **p, void **x) { HIT(cuLaunchKernel_ptsz); return run(s, 1, (uintptr_t)f); }
CUresult cuLaunchKernelEx(const struct CUlaunchConfig *c, CUfunction f, void **p, void **x) { HIT(cuLaunchKernelEx); return run(c->stream, 0, (uintptr_t)f); }
CUresult cuLaunchKernelEx_ptsz(const struct CUlaunchConfig *c, CUfunction f, void **p, void **x) { HIT(cuLaunchKernelEx_ptsz); return run(c->stream, 1, (uintptr_t)f); }
CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned h, CUstream s, void **p) { HIT(cuLaunchCooperativeKernel); return run(s, 0, (uintptr_t)f); }
CUresult cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned h, CUstream s, void **p) { HIT(cuLaunchCooperativeKernel_ptsz); return run(s, 1, (uintptr_t)f); }
CUresult cuLaunchCooperativeKernelMultiDevice(struct CUlaunchParams *l, unsigned n, unsigned f) { HIT(cuLaunchCooperativeKernelMultiDevice); return run(l->stream, 0, (uintptr_t)l->f); }
CUresult cuLaunch(CUfunction f) { HIT(cuLaunch); return run(NULL, 0, (uintptr_t)f); }
CUresult cuLaunchGrid(CUfunction f, int w, int h) { HIT(cuLaunchGrid); return run(NULL, 0, (uintptr_t)f); }
CUresult cuLaunchGridAsync(CUfunction f, int w, int h, CUstream s) { HIT(cuLaunchGridAsync); return run(s, 0, (uintptr_t)f); }

static CUresult capture(CUstream s, int pt, int mode) {
    struct CUstream_st *st = stream_of(s, pt);
    LOCK;
    st->capturing = 1;
    st->graph = calloc(1, sizeof *st->graph);
    fake.captures++;
    fake.strict = mode == 0;
    UNLOCK;
    return CUDA_SUCCESS;
}
CUresult cuStreamBeginCapture(CUstream s) { HIT(cuStreamBeginCapture); return capture(s, 0, 0); }
CUresult cuStreamBeginCapture_ptsz(CUstream s) { HIT(cuStreamBeginCapture_ptsz); return capture(s, 1, 0); }
CUresult cuStreamBeginCapture_v2(CUstream s, int m) { HIT(cuStreamBeginCapture_v2); return capture(s, 0, m); }
CUresult cuStreamBeginCapture_v2_ptsz(CUstream s, int m) { HIT(cuStreamBeginCapture_v2_ptsz); return capture(s, 1, m); }
CUresult cuStreamBeginCaptureToGraph(CUstream s, CUgraph g, const CUgraphNode *d, const void *x, size_t n, int m) { HIT(cuStreamBeginCaptureToGraph); return capture(s, 0, m); }
CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream s, CUgraph g, const CUgraphNode *d, const void *x, size_t n, int m) { HIT(cuStreamBeginCaptureToGraph_ptsz); return capture(s, 1, m); }
static CUresult capture_end(CUstream s, int pt, CUgraph *g) {
    struct CUstream_st *st = stream_of(s, pt);
    LOCK;
    CUresult r = !st->capturing ? CUDA_ERROR_INVALID_VALUE : fake.counts.spoiled ? 901 : CUDA_SUCCESS;
    if (st->capturing)
        fake.captures--;
    st->capturing = 0;
    *g = st->graph;
    UNLOCK;
    return r;
}
CUresult cuStreamEndCapture(CUstream s, CUgraph *g) { HIT(cuStreamEndCapture); return capture_end(s, 0, g); }
CUresult cuStreamEndCapture_ptsz(CUstream s, CUgraph *g) { HIT(cuStreamEndCapture_ptsz); return capture_end(s, 1, g); }
CUresult cuStreamIsCapturing(CUstream s, int *c) { LOCK; *c = stream_of(s, 0)->capturing; UNLOCK; return CUDA_SUCCESS; }
CUresult cuStreamIsCapturing_ptsz(CUstream s, int *c) { LOCK; *c = stream_of(s, 1)->capturing; UNLOCK; return CUDA_SUCCESS; }
CUresult cuThreadExchangeStreamCaptureMode(int *m) { int old = relaxed; relaxed = *m == CU_CAPTURE_MODE_RELAXED ? 2 : *m; *m = old; return CUDA_SUCCESS; }
// As the driver does: asking about events in a strict thread spoils a capture under way.
static void strict_call(void) {
    LOCK;
    if (fake.captures && fake.strict && relaxed != CU_CAPTURE_MODE_RELAXED)
        fake.counts.spoiled++;
    UNLOCK;
}

API CUresult cuStreamCreate(CUstream *s, unsigned f);
CUresult cuStreamCreate(CUstream *s, unsigned f) { *s = calloc(1, sizeof **s); return CUDA_SUCCESS; }
static CUresult stream_end(CUstream s) {
    if (!s->listed) // else it still has to be looked after
        free(s);
    return CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream s) { HIT(cuStreamDestroy); return stream_end(s); }
CUresult cuStreamDestroy_v2(CUstream s) { HIT(cuStreamDestroy_v2); return stream_end(s); }
static CUresult wait_until(uint64_t at) {
    uint64_t now = now_ns();
    if (at > now) {
        struct timespec t = {(time_t)((at - now) / 1000000000u), (long)((at - now) % 1000000000u)};
        nanosleep(&t, NULL);
    }
    LOCK;
    for (int i = 0; i < DEVICES; i++)
        pool_shrink(&fake.pool[i], 0);
    UNLOCK;
    return CUDA_SUCCESS;
}
// Until all before it has run, or is at least under way.
static uint64_t tail_of(struct CUstream_st *s) {
    LOCK;
    for (pump(s); s->count; pump(s)) {
        UNLOCK;
        usleep(50);
        LOCK;
    }
    uint64_t t = s->tail;
    UNLOCK;
    return t;
}
static uint64_t tail_of_all(void) {
    LOCK;
    for (unsigned i = 0; i < fake.nwaiting; i++) {
        struct CUstream_st *s = fake.waiting[i];
        UNLOCK;
        tail_of(s);
        LOCK;
    }
    UNLOCK;
    return atomic_load(fake.engine);
}
CUresult cuStreamSynchronize(CUstream s) { HIT(cuStreamSynchronize); return wait_until(tail_of(stream_of(s, 0))); }
CUresult cuStreamSynchronize_ptsz(CUstream s) { HIT(cuStreamSynchronize_ptsz); return wait_until(tail_of(stream_of(s, 1))); }
CUresult cuCtxSynchronize(void) { HIT(cuCtxSynchronize); return wait_until(tail_of_all()); }
CUresult cuCtxSynchronize_v2(CUcontext c) { HIT(cuCtxSynchronize_v2); return wait_until(tail_of_all()); }
CUresult cuEventSynchronize(CUevent e) { HIT(cuEventSynchronize); LOCK; uint64_t at = e->at; UNLOCK; return wait_until(at); }
CUresult cuEventCreate(CUevent *e, unsigned f) { *e = calloc(1, sizeof **e); return CUDA_SUCCESS; }
CUresult cuEventDestroy_v2(CUevent e) {
    LOCK;
    if (!e->queued) // else it is left: its stream still points to it
        free(e);
    UNLOCK;
    return CUDA_SUCCESS;
}
static CUresult event_record(CUevent e, struct CUstream_st *s) {
    LOCK;
    if (s->capturing)
        fake.counts.spoiled++;
    e->queued++;
    enqueue(s, (struct op){.event = e});
    UNLOCK;
    return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent e, CUstream s) { return event_record(e, stream_of(s, 0)); }
CUresult cuEventRecord_ptsz(CUevent e, CUstream s) { return event_record(e, stream_of(s, 1)); }
CUresult cuEventQuery(CUevent e) {
    strict_call();
    LOCK;
    uint64_t at = e->queued ? UINT64_MAX : e->at;
    UNLOCK;
    return now_ns() >= at ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuEventElapsedTime(float *ms, CUevent a, CUevent b) {
    LOCK;
    int ok = a->recorded && b->recorded;
    *ms = (float)((double)(int64_t)(b->at - a->at) / 1e6);
    UNLOCK;
    return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphGetNodes(CUgraph g, CUgraphNode *n, size_t *count) {
    *count = g->alloc_bytes ? 1 : 0;
    if (n && *count)
        n[0] = &g->alloc;
    return CUDA_SUCCESS;
}
CUresult cuGraphNodeGetType(CUgraphNode n, int *t) { *t = n->type; return CUDA_SUCCESS; }
CUresult cuGraphMemAllocNodeGetParams(CUgraphNode n, struct CUmemAllocNodeParams *p) {
    p->pool.location = (struct CUmemLocation){CU_LOCATION_DEVICE, 0};
    p->bytes = n->bytes;
    return CUDA_SUCCESS;
}
CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode n, CUgraph *g) { return CUDA_ERROR_INVALID_VALUE; }
static CUresult instantiate(CUgraphExec *e, CUgraph g) {
    *e = calloc(1, sizeof **e);
    (*e)->ns = g->ns;
    (*e)->alloc_bytes = g->alloc_bytes;
    return CUDA_SUCCESS;
}
CUresult cuGraphInstantiate(CUgraphExec *e, CUgraph g, CUgraphNode *n, char *l, size_t s) { HIT(cuGraphInstantiate); return instantiate(e, g); }
CUresult cuGraphInstantiate_v2(CUgraphExec *e, CUgraph g, CUgraphNode *n, char *l, size_t s) { HIT(cuGraphInstantiate_v2); return instantiate(e, g); }
CUresult cuGraphInstantiateWithFlags(CUgraphExec *e, CUgraph g, uint64_t f) { HIT(cuGraphInstantiateWithFlags); return instantiate(e, g); }
CUresult cuGraphInstantiateWithParams(CUgraphExec *e, CUgraph g, struct CUgraphInstantiateParams *p) { HIT(cuGraphInstantiateWithParams); return instantiate(e, g); }
CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *e, CUgraph g, struct CUgraphInstantiateParams *p) { HIT(cuGraphInstantiateWithParams_ptsz); return instantiate(e, g); }
CUresult cuGraphExecDestroy(CUgraphExec e) { HIT(cuGraphExecDestroy); free(e); return CUDA_SUCCESS; }
static CUresult graph_back(CUgraphExec e) {
    CUresult r = CUDA_SUCCESS;
    LOCK;
    uint64_t want = (e->alloc_bytes + STEP - 1) / STEP * STEP;
    if (want > fake.graph_store[0]) {
        r = take(0, want - fake.graph_store[0]);
        if (r == CUDA_SUCCESS)
            fake.graph_store[0] = want;
    }
    UNLOCK;
    return r;
}
CUresult cuGraphUpload(CUgraphExec e, CUstream s) { HIT(cuGraphUpload); return graph_back(e); }
CUresult cuGraphUpload_ptsz(CUgraphExec e, CUstream s) { HIT(cuGraphUpload_ptsz); return graph_back(e); }
CUresult cuGraphLaunch(CUgraphExec e, CUstream s) { HIT(cuGraphLaunch); CUresult r = graph_back(e); return r ? r : run(s, 0, e->ns); }
CUresult cuGraphLaunch_ptsz(CUgraphExec e, CUstream s) { HIT(cuGraphLaunch_ptsz); CUresult r = graph_back(e); return r ? r : run(s, 1, e->ns); }
CUresult cuDeviceGraphMemTrim(CUdevice d) { HIT(cuDeviceGraphMemTrim); LOCK; fake.used[d] -= fake.graph_store[d]; fake.graph_store[d] = 0; UNLOCK; return CUDA_SUCCESS; }
CUresult cuDeviceGetGraphMemAttribute(CUdevice d, int which, void *v) { LOCK; *(uint64_t *)v = fake.graph_store[d]; UNLOCK; return CUDA_SUCCESS; }

// Not taken over by the shim: integers in registers and on the stack, and floating point, must
// arrive as they were sent.
API CUresult cuTexRefSetMipmapLevelClamp(void *ref, float low, float high);
CUresult cuTexRefSetMipmapLevelClamp(void *ref, float low, float high) { return (int)(low * 100 + high * 10000); }
API CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name);
CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name) { *f = (CUfunction)1000; return CUDA_SUCCESS; }
API CUresult cuDriverGetVersion(int *v);
CUresult cuDriverGetVersion(int *v) { *v = 13000; return CUDA_SUCCESS; }
API CUresult cuInit(unsigned f);
CUresult cuInit(unsigned f) { return CUDA_SUCCESS; }
API CUresult cuGraphAddKernelNode_v2(long a, long b, long c, long d, long e, long f, long g, long h, double x);
CUresult cuGraphAddKernelNode_v2(long a, long b, long c, long d, long e, long f, long g, long h, double x) {
    return (int)(a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + (long)(x * 9));
}

#define V(base, version, flag, name) {#base, version, flag, (void *)name}
static const struct { const char *base; int version, flag; void *fn; } versions[] = {
    V(cuMemAlloc, 2000, 0, cuMemAlloc), V(cuMemAlloc, 3020, 0, cuMemAlloc_v2),
    V(cuMemFree, 2000, 0, cuMemFree), V(cuMemFree, 3020, 0, cuMemFree_v2),
    V(cuLaunchKernel, 4000, 0, cuLaunchKernel), V(cuLaunchKernel, 7000, 2, cuLaunchKernel_ptsz),
    V(cuGetProcAddress, 11030, 0, cuGetProcAddress), V(cuGetProcAddress, 12000, 0, cuGetProcAddress_v2),
    V(cuCtxCreate, 2000, 0, cuCtxCreate), V(cuCtxCreate, 3020, 0, cuCtxCreate_v2),
    V(cuCtxCreate, 11040, 0, cuCtxCreate_v3), V(cuCtxCreate, 12050, 0, cuCtxCreate_v4),
    V(cuMemAllocAsync, 11020, 0, cuMemAllocAsync), V(cuMemAllocAsync, 11020, 2, cuMemAllocAsync_ptsz),
    V(cuStreamCreate, 2000, 0, cuStreamCreate), V(cuInit, 2000, 0, cuInit),
    V(cuDevicePrimaryCtxRetain, 7000, 0, cuDevicePrimaryCtxRetain),
};
// Those not in the table above: a version for each suffix, so that every function can be asked for.
static const struct { const char *name; void *fn; } exported[] = {
#define X(name) {#name, (void *)name},
#include "../cuda_hooks.def"
#undef X
};
int fake_version_of(const char *name, char base[static 64], uint64_t *flags) {
    snprintf(base, 64, "%s", name);
    size_t n = strlen(base);
    *flags = n > 5 && !strcmp(base + n - 5, "_ptsz") ? CU_PROC_PER_THREAD : 0;
    if (*flags)
        base[n -= 5] = 0;
    if (n < 4 || base[n - 3] != '_' || base[n - 2] != 'v')
        return 2000;
    int v = base[n - 1] - '0';
    base[n - 3] = 0;
    return v == 2 ? 3020 : v == 3 ? 11040 : 12050;
}
static void *by_suffix(const char *symbol, int version, uint64_t flags) {
    void *fn = NULL;
    int best = -1;
    for (size_t i = 0; i < sizeof exported / sizeof *exported; i++) {
        char base[64];
        uint64_t per_thread;
        int v = fake_version_of(exported[i].name, base, &per_thread);
        if (strcmp(base, symbol) || v > version || v < best || (per_thread && !(flags & CU_PROC_PER_THREAD)))
            continue;
        if (v > best || per_thread)
            fn = exported[i].fn;
        best = v;
    }
    return fn;
}
CUresult cuGetProcAddress_v2(const char *symbol, void **fn, int version, uint64_t flags, int *status) {
    *fn = NULL;
    if (!*symbol) // what libcudart asks first; the driver says yes to nothing
        return CUDA_SUCCESS;
    int best = -1;
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++)
        if (!strcmp(versions[i].base, symbol) && versions[i].version <= version &&
            (versions[i].flag == 0 || (flags & CU_PROC_PER_THREAD)) && versions[i].version >= best)
            *fn = versions[i].fn, best = versions[i].version;
    if (!*fn)
        *fn = by_suffix(symbol, version, flags);
    if (status)
        *status = *fn ? 0 : 1;
    return *fn ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
CUresult cuGetProcAddress(const char *symbol, void **fn, int version, uint64_t flags) { return cuGetProcAddress_v2(symbol, fn, version, flags, NULL); }

// NVML
API nvmlReturn nvmlInit_v2(void);
nvmlReturn nvmlInit_v2(void) { return 0; }
API nvmlReturn nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice *d);
nvmlReturn nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice *d) {
    for (int i = 0; i < DEVICES; i++) {
        char mine[16];
        snprintf(mine, sizeof mine, "GPU-%02x%02x", 0x10 + i, 0x10 + i);
        if (!strncmp(uuid, mine, 8))
            return *d = (nvmlDevice)(uintptr_t)(i + 1), 0;
    }
    return 2;
}
API nvmlReturn nvmlDeviceGetUUID(nvmlDevice d, char *out, unsigned n);
nvmlReturn nvmlDeviceGetUUID(nvmlDevice d, char *out, unsigned n) {
    unsigned b = 0x10 + (unsigned)(uintptr_t)d - 1;
    snprintf(out, n, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b, b, b, b, b,
             b, b, b, b, b, b, b, b, b, b, b);
    return 0;
}
static uint64_t nvml_used(nvmlDevice d) {
    int p = (int)(uintptr_t)d - 1, ordinal = p; // FAKE_ORDER is its own inverse
    return fake_used(physical(ordinal));
}
API nvmlReturn nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice d, unsigned *n, struct nvmlProcess_v2 *out);
nvmlReturn nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice d, unsigned *n, struct nvmlProcess_v2 *out) {
    if (getenv("FAKE_BLIND")) // another pid namespace: the driver knows us by another number
        return *n = 0, 0;
    out[0] = (struct nvmlProcess_v2){(unsigned)getpid(), nvml_used(d), ~0u, ~0u};
    *n = 1;
    return 0;
}
API nvmlReturn nvmlDeviceGetMemoryInfo(nvmlDevice d, struct nvmlMemory *m);
nvmlReturn nvmlDeviceGetMemoryInfo(nvmlDevice d, struct nvmlMemory *m) { *m = (struct nvmlMemory){device_bytes, device_bytes - nvml_used(d), nvml_used(d)}; return 0; }
API nvmlReturn nvmlDeviceGetMemoryInfo_v2(nvmlDevice d, struct nvmlMemory_v2 *m);
nvmlReturn nvmlDeviceGetMemoryInfo_v2(nvmlDevice d, struct nvmlMemory_v2 *m) { *m = (struct nvmlMemory_v2){m->version, device_bytes, MIB, device_bytes - nvml_used(d), nvml_used(d)}; return 0; }
API nvmlReturn nvmlDeviceGetName(nvmlDevice d, char *out, unsigned n);
nvmlReturn nvmlDeviceGetName(nvmlDevice d, char *out, unsigned n) { snprintf(out, n, "fake"); return 0; }
