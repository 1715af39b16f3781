// Plain device memory: allocate, pitch, managed, free; and what the job is told about memory.
#include "shim.h"

CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t bytes) {
    struct hold h;
    CUresult r = hold_take(&h, shim_current(), LEDGER_DEVICE, bytes);
    if (r != CUDA_SUCCESS)
        return r;
    r = REAL(cuMemAlloc_v2)(ptr, bytes);
    return hold_keep(&h, &shim.pointers, r, r == CUDA_SUCCESS ? *ptr : 0);
}

CUresult cuMemAlloc(unsigned *ptr, unsigned bytes) {
    struct hold h;
    CUresult r = hold_take(&h, shim_current(), LEDGER_DEVICE, bytes);
    if (r != CUDA_SUCCESS)
        return r;
    r = REAL(cuMemAlloc)(ptr, bytes);
    return hold_keep(&h, &shim.pointers, r, r == CUDA_SUCCESS ? *ptr : 0);
}

// Rows are padded by the driver; a guess is reserved first, the pitch it answers is charged.
static uint64_t pitch_guess(uint64_t width, uint64_t height) {
    uint64_t pitch = (width + 511) / 512 * 512;
    return height && pitch > UINT64_MAX / height ? UINT64_MAX : pitch * height;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *ptr, size_t *pitch, size_t width, size_t height,
                            unsigned element) {
    struct hold h;
    CUresult r = hold_take(&h, shim_current(), LEDGER_DEVICE, pitch_guess(width, height));
    if (r != CUDA_SUCCESS)
        return r;
    r = REAL(cuMemAllocPitch_v2)(ptr, pitch, width, height, element);
    if (r == CUDA_SUCCESS)
        hold_resize(&h, *pitch * height);
    return hold_keep(&h, &shim.pointers, r, r == CUDA_SUCCESS ? *ptr : 0);
}

CUresult cuMemAllocPitch(unsigned *ptr, unsigned *pitch, unsigned width, unsigned height,
                         unsigned element) {
    struct hold h;
    CUresult r = hold_take(&h, shim_current(), LEDGER_DEVICE, pitch_guess(width, height));
    if (r != CUDA_SUCCESS)
        return r;
    r = REAL(cuMemAllocPitch)(ptr, pitch, width, height, element);
    if (r == CUDA_SUCCESS)
        hold_resize(&h, (uint64_t)*pitch * height);
    return hold_keep(&h, &shim.pointers, r, r == CUDA_SUCCESS ? *ptr : 0);
}

// Managed memory may live on the host, but all of it can move to the GPU at any time.
CUresult cuMemAllocManaged(CUdeviceptr *ptr, size_t bytes, unsigned flags) {
    struct hold h;
    CUresult r = hold_take(&h, shim_current(), LEDGER_DEVICE, bytes);
    if (r != CUDA_SUCCESS)
        return r;
    r = REAL(cuMemAllocManaged)(ptr, bytes, flags);
    return hold_keep(&h, &shim.pointers, r, r == CUDA_SUCCESS ? *ptr : 0);
}

// Memory of a pool may be freed this way too; the pool keeps or returns it.
static void freed(const struct shim_table_entry *item, CUresult r) {
    if (item->kind != LEDGER_POOL) {
        held_end(&shim.pointers, item, r);
        return;
    }
    struct shim_table_entry none = *item;
    none.bytes = 0;
    held_end(&shim.pointers, r == CUDA_SUCCESS ? &none : item, r);
    if (r == CUDA_SUCCESS && !pool_freed(item))
        pool_refresh(&shim.device[item->device]);
}

CUresult cuMemFree_v2(CUdeviceptr ptr) {
    struct shim_table_entry item;
    bool known = held_take(&shim.pointers, ptr, &item);
    CUresult r = REAL(cuMemFree_v2)(ptr);
    if (known)
        freed(&item, r);
    return r;
}

CUresult cuMemFree(unsigned ptr) {
    struct shim_table_entry item;
    bool known = held_take(&shim.pointers, ptr, &item);
    CUresult r = REAL(cuMemFree)(ptr);
    if (known)
        freed(&item, r);
    return r;
}

CUresult cuMemFreeAsync(CUdeviceptr ptr, CUstream stream) {
    if (shim_capturing(stream, false))
        return REAL(cuMemFreeAsync)(ptr, stream);
    struct shim_table_entry item;
    bool known = held_take(&shim.pointers, ptr, &item);
    CUresult r = REAL(cuMemFreeAsync)(ptr, stream);
    if (known)
        freed(&item, r);
    return r;
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr ptr, CUstream stream) {
    if (shim_capturing(stream, true))
        return REAL(cuMemFreeAsync_ptsz)(ptr, stream);
    struct shim_table_entry item;
    bool known = held_take(&shim.pointers, ptr, &item);
    CUresult r = REAL(cuMemFreeAsync_ptsz)(ptr, stream);
    if (known)
        freed(&item, r);
    return r;
}

// The job's limit is its GPU: total is the limit, free what is left of it (or of the real one).
static void shown(struct shim_device *d, uint64_t *free_bytes, uint64_t *total_bytes) {
    uint64_t limit = ledger_limits(d->ledger).memory_bytes;
    if (!limit)
        return;
    pool_refresh(d);
    context_measure(d, false);
    uint64_t used = ledger_used(d->ledger);
    uint64_t left = used < limit ? limit - used : 0;
    if (*total_bytes > limit)
        *total_bytes = limit;
    if (*free_bytes > left)
        *free_bytes = left;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    CUresult r = REAL(cuMemGetInfo_v2)(free_bytes, total_bytes);
    struct shim_device *d = r == CUDA_SUCCESS ? shim_current() : NULL;
    if (d) {
        uint64_t f = *free_bytes, t = *total_bytes;
        shown(d, &f, &t);
        *free_bytes = f;
        *total_bytes = t;
    }
    return r;
}

static unsigned clip(uint64_t bytes) {
    return bytes > UINT32_MAX ? UINT32_MAX : (unsigned)bytes;
}

CUresult cuMemGetInfo(unsigned *free_bytes, unsigned *total_bytes) {
    CUresult r = REAL(cuMemGetInfo)(free_bytes, total_bytes);
    struct shim_device *d = r == CUDA_SUCCESS ? shim_current() : NULL;
    if (d) {
        uint64_t f = *free_bytes, t = *total_bytes;
        shown(d, &f, &t);
        *free_bytes = clip(f);
        *total_bytes = clip(t);
    }
    return r;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice ordinal) {
    CUresult r = REAL(cuDeviceTotalMem_v2)(bytes, ordinal);
    struct shim_device *d = r == CUDA_SUCCESS ? shim_device(ordinal) : NULL;
    uint64_t limit = d ? ledger_limits(d->ledger).memory_bytes : 0;
    if (limit && *bytes > limit)
        *bytes = limit;
    return r;
}

CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice ordinal) {
    CUresult r = REAL(cuDeviceTotalMem)(bytes, ordinal);
    struct shim_device *d = r == CUDA_SUCCESS ? shim_device(ordinal) : NULL;
    uint64_t limit = d ? ledger_limits(d->ledger).memory_bytes : 0;
    if (limit && *bytes > limit)
        *bytes = clip(limit);
    return r;
}
