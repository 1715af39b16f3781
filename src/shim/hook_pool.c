// Stream-ordered memory. What counts is what a pool has taken from the GPU, not what is handed
// out of it: before an allocation the most the pool can grow by is reserved, afterwards the charge
// is set to what the pool says it holds.
#include "shim.h"

// A pool's item: bytes is what it is charged, refs the pointers out of it. `device` is -1 for a
// pool imported from another process, which pays for it, and for pools of host memory.
enum { POOL_FOREIGN = -1, POOL_GONE = 1 };

static uint64_t pool_attribute(CUmemoryPool pool, int which) {
    uint64_t bytes = 0;
    return REAL(cuMemPoolGetAttribute)(pool, which, &bytes) == CUDA_SUCCESS ? bytes : 0;
}

static void pool_learn(CUmemoryPool pool, int device) {
    struct shim_table_entry item = {.key = (uint64_t)(uintptr_t)pool, .device = device, .kind = LEDGER_POOL};
    pthread_mutex_lock(&shim.lock);
    if (!shim_table_find(&shim.pools, item.key))
        shim_table_put(&shim.pools, &item);
    pthread_mutex_unlock(&shim.lock);
}

// A pool made before we knew of it is some device's default; failing that the current one pays.
static struct shim_device *pool_device(CUmemoryPool pool) {
    pthread_mutex_lock(&shim.lock);
    struct shim_table_entry *known = shim_table_find(&shim.pools, (uint64_t)(uintptr_t)pool);
    int device = known ? known->device : -2;
    pthread_mutex_unlock(&shim.lock);
    if (device == POOL_FOREIGN)
        return NULL;
    if (device >= 0)
        return shim_device(device);
    int count = 0;
    REAL(cuDeviceGetCount)(&count);
    for (int i = 0; i < count && i < SHIM_DEVICES; i++) {
        CUmemoryPool standard = NULL;
        if (REAL(cuDeviceGetDefaultMemPool)(&standard, i) == CUDA_SUCCESS && standard == pool) {
            pool_learn(pool, i);
            return shim_device(i);
        }
    }
    struct shim_device *d = shim_current();
    if (d)
        pool_learn(pool, d->ordinal);
    return d;
}

// Lowers a pool's charge to what it holds now. A rise belongs to an allocation under way, which
// holds its own reservation, so it is left alone.
static void settle(struct shim_table_entry *pool, uint64_t holds) {
    if (holds < pool->bytes) {
        ledger_refund(shim.device[pool->device].ledger, LEDGER_POOL, pool->bytes - holds);
        pool->bytes = holds;
    }
}

void pool_refresh(struct shim_device *d) {
    if (!atomic_load_explicit(&shim.pools_used, memory_order_relaxed))
        return;
    pthread_mutex_lock(&shim.lock);
    for (size_t i = 0; i < shim.pools.size; i++) {
        struct shim_table_entry *pool = &shim.pools.item[i];
        if (pool->key && pool->device == d->ordinal && pool->maps != POOL_GONE && pool->bytes)
            settle(pool, pool_attribute((CUmemoryPool)(uintptr_t)pool->key,
                                        CU_POOL_RESERVED_CURRENT));
    }
    pthread_mutex_unlock(&shim.lock);
}

static void pools_trim(struct shim_device *d) {
    CUmemoryPool pool[64];
    unsigned n = 0;
    pthread_mutex_lock(&shim.lock);
    for (size_t i = 0; i < shim.pools.size && n < 64; i++) {
        struct shim_table_entry *p = &shim.pools.item[i];
        if (p->key && p->device == d->ordinal && p->maps != POOL_GONE)
            pool[n++] = (CUmemoryPool)(uintptr_t)p->key;
    }
    pthread_mutex_unlock(&shim.lock);
    for (unsigned i = 0; i < n; i++)
        REAL(cuMemPoolTrimTo)(pool[i], 0);
    pool_refresh(d);
}

// First as it is; then with the pools' spare memory given back; then with everything finished, so
// that memory freed in stream order is spare as well.
static CUresult pool_begin(struct hold *h, CUmemoryPool pool, size_t bytes) {
    struct shim_device *d = pool_device(pool);
    *h = (struct hold){0};
    if (!d || !bytes)
        return CUDA_SUCCESS;
    atomic_store_explicit(&shim.pools_used, true, memory_order_relaxed);
    uint64_t step = SHIM_POOL_STEP_BYTES;
    uint64_t most = bytes > UINT64_MAX - step ? bytes : (bytes + step - 1) / step * step;
    CUresult r = hold_take(h, d, LEDGER_POOL, most);
    if (r != CUDA_SUCCESS) {
        pools_trim(d);
        r = hold_take(h, d, LEDGER_POOL, most);
    }
    if (r != CUDA_SUCCESS && REAL(cuCtxSynchronize)() == CUDA_SUCCESS) {
        pools_trim(d);
        r = hold_take(h, d, LEDGER_POOL, most);
    }
    return r;
}

static CUresult pool_end(struct hold *h, CUmemoryPool handle, CUresult r, CUdeviceptr ptr,
                         size_t bytes) {
    if (!h->device)
        return r;
    struct shim_device *d = h->device;
    pthread_mutex_lock(&shim.lock);
    struct shim_table_entry *pool = shim_table_find(&shim.pools, (uint64_t)(uintptr_t)handle);
    // Before the call the most that the pool could grow by was taken from the ledger (h->bytes); now the pool says what
    // it really holds, and the difference goes back or is charged.
    uint64_t holds = pool_attribute(handle, CU_POOL_RESERVED_CURRENT);
    if (pool && holds > pool->bytes) {
        uint64_t grown = holds - pool->bytes;
        if (grown > h->bytes) {
            ledger_charge(d->ledger, LEDGER_POOL, grown - h->bytes);
            h->bytes = grown;
        }
        ledger_refund(d->ledger, LEDGER_POOL, h->bytes - grown);
        pool->bytes = holds;
    } else {
        ledger_refund(d->ledger, LEDGER_POOL, h->bytes);
        if (pool)
            settle(pool, holds);
    }
    if (pool && r == CUDA_SUCCESS) {
        pool->refs++;
        struct shim_table_entry item = {.key = ptr, .bytes = bytes, .aux = pool->key, .device = d->ordinal,
                            .kind = LEDGER_POOL};
        shim_table_put(&shim.pointers, &item);
    }
    pthread_mutex_unlock(&shim.lock);
    atomic_fetch_add(&d->changes, 1);
    atomic_fetch_sub(&d->busy, 1);
    return r;
}

// A pool destroyed while pointers are out lives on until the last is freed; nobody can ask it how
// much it holds any more. Returns true when the pointer's pool was such a one.
bool pool_freed(const struct shim_table_entry *pointer) {
    pthread_mutex_lock(&shim.lock);
    struct shim_table_entry *pool = shim_table_find(&shim.pools, pointer->aux);
    bool gone = pool && pool->maps == POOL_GONE;
    if (pool && pool->refs)
        pool->refs--;
    if (gone && !pool->refs) {
        struct shim_table_entry dead;
        ledger_refund(shim.device[pool->device].ledger, LEDGER_POOL, pool->bytes);
        shim_table_take(&shim.pools, pointer->aux, &dead);
    }
    pthread_mutex_unlock(&shim.lock);
    return gone;
}

static CUmemoryPool current_pool(void) {
    CUdevice ordinal;
    CUmemoryPool pool = NULL;
    if (!shim.enabled || REAL(cuCtxGetDevice)(&ordinal) != CUDA_SUCCESS || !shim_device(ordinal) ||
        REAL(cuDeviceGetMemPool)(&pool, ordinal) != CUDA_SUCCESS)
        return NULL;
    pool_learn(pool, ordinal);
    return pool;
}

#define ALLOC_ASYNC(name, per_thread)                                            \
    CUresult name(CUdeviceptr *ptr, size_t bytes, CUstream stream) {             \
        struct hold h;                                                           \
        CUmemoryPool pool = shim_capturing(stream, per_thread) ? NULL : current_pool(); \
        if (!pool)                                                               \
            return REAL(name)(ptr, bytes, stream);                               \
        CUresult r = pool_begin(&h, pool, bytes);                                \
        if (r != CUDA_SUCCESS)                                                   \
            return r;                                                            \
        r = REAL(name)(ptr, bytes, stream);                                      \
        return pool_end(&h, pool, r, r == CUDA_SUCCESS ? *ptr : 0, bytes);       \
    }
ALLOC_ASYNC(cuMemAllocAsync, false)
ALLOC_ASYNC(cuMemAllocAsync_ptsz, true)

#define ALLOC_FROM(name, per_thread)                                                   \
    CUresult name(CUdeviceptr *ptr, size_t bytes, CUmemoryPool pool, CUstream stream) { \
        struct hold h;                                                                 \
        if (!shim.enabled || !pool || shim_capturing(stream, per_thread))              \
            return REAL(name)(ptr, bytes, pool, stream);                               \
        CUresult r = pool_begin(&h, pool, bytes);                                      \
        if (r != CUDA_SUCCESS)                                                         \
            return r;                                                                  \
        r = REAL(name)(ptr, bytes, pool, stream);                                      \
        return pool_end(&h, pool, r, r == CUDA_SUCCESS ? *ptr : 0, bytes);             \
    }
ALLOC_FROM(cuMemAllocFromPoolAsync, false)
ALLOC_FROM(cuMemAllocFromPoolAsync_ptsz, true)

CUresult cuMemPoolCreate(CUmemoryPool *pool, const struct CUmemPoolProps *props) {
    CUresult r = REAL(cuMemPoolCreate)(pool, props);
    if (r == CUDA_SUCCESS && shim.enabled) {
        bool device = props->location.type == CU_LOCATION_DEVICE && shim_device(props->location.id);
        pool_learn(*pool, device ? props->location.id : POOL_FOREIGN);
    }
    return r;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *handle, int type,
                                            uint64_t flags) {
    CUresult r = REAL(cuMemPoolImportFromShareableHandle)(pool, handle, type, flags);
    if (r == CUDA_SUCCESS && shim.enabled)
        pool_learn(*pool, POOL_FOREIGN);
    return r;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
    CUresult r = REAL(cuMemPoolTrimTo)(pool, keep);
    struct shim_device *d = shim.enabled ? pool_device(pool) : NULL;
    if (d)
        pool_refresh(d);
    return r;
}

CUresult cuMemPoolDestroy(CUmemoryPool handle) {
    uint64_t key = (uint64_t)(uintptr_t)handle, used = 0;
    struct shim_table_entry gone;
    pthread_mutex_lock(&shim.lock);
    struct shim_table_entry *pool = shim_table_find(&shim.pools, key);
    if (pool && pool->device >= 0) {
        used = pool_attribute(handle, CU_POOL_USED_CURRENT);
        settle(pool, pool_attribute(handle, CU_POOL_RESERVED_CURRENT));
    }
    pthread_mutex_unlock(&shim.lock);
    CUresult r = REAL(cuMemPoolDestroy)(handle);
    if (r != CUDA_SUCCESS)
        return r;
    pthread_mutex_lock(&shim.lock);
    pool = shim_table_find(&shim.pools, key);
    if (pool && pool->device >= 0 && used && pool->refs) {
        pool->maps = POOL_GONE;
    } else if (shim_table_take(&shim.pools, key, &gone) == 0 && gone.device >= 0) {
        ledger_refund(shim.device[gone.device].ledger, LEDGER_POOL, gone.bytes);
    }
    pthread_mutex_unlock(&shim.lock);
    return r;
}
