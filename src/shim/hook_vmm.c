// Physical memory by handle (cuMemCreate): it exists while a handle or a mapping of it does, so
// both are counted. Address ranges cost nothing; memory imported from another process is charged
// there.
#include <errno.h>

#include "shim.h"

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const struct CUmemAllocationProp *prop, uint64_t flags) {
    struct hold h = {0};
    if (prop && prop->location.type == CU_LOCATION_DEVICE) {
        CUresult r = hold_take(&h, shim_device(prop->location.id), LEDGER_VMM, bytes);
        if (r != CUDA_SUCCESS)
            return r;
    }
    CUresult r = REAL(cuMemCreate)(handle, bytes, prop, flags);
    return hold_keep(&h, &shim.handles, r, r == CUDA_SUCCESS ? *handle : 0);
}

static void drop_if_unused(uint64_t handle) {
    struct shim_table_entry *it = shim_table_find(&shim.handles, handle), gone;
    if (!it || it->refs || it->maps)
        return;
    shim_table_take(&shim.handles, handle, &gone);
    account_refund(&shim.device[gone.device], LEDGER_VMM, gone.bytes);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    CUresult r = REAL(cuMemRelease)(handle);
    if (r != CUDA_SUCCESS || !shim.enabled)
        return r;
    pthread_mutex_lock(&shim.lock);
    struct shim_table_entry *it = shim_table_find(&shim.handles, handle);
    if (it && it->refs) {
        it->refs--;
        drop_if_unused(handle);
    }
    pthread_mutex_unlock(&shim.lock);
    return r;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  uint64_t flags) {
    CUresult r = REAL(cuMemMap)(ptr, bytes, offset, handle, flags);
    if (r != CUDA_SUCCESS || !shim.enabled)
        return r;
    pthread_mutex_lock(&shim.lock);
    struct shim_table_entry *it = shim_table_find(&shim.handles, handle);
    if (it) {
        it->maps++;
        struct shim_table_entry mapping = {.key = ptr, .aux = handle, .bytes = bytes, .device = it->device};
        shim_table_put(&shim.mappings, &mapping);
    }
    pthread_mutex_unlock(&shim.lock);
    return r;
}

// One unmapping may cover many mappings, which lie one after the other.
static void unmapped(CUdeviceptr ptr, size_t bytes) {
    for (uint64_t at = ptr; at < ptr + bytes;) {
        struct shim_table_entry mapping;
        if (shim_table_take(&shim.mappings, at, &mapping) < 0) {
            at += SHIM_BLOCK_BYTES;
            continue;
        }
        struct shim_table_entry *it = shim_table_find(&shim.handles, mapping.aux);
        if (it && it->maps) {
            it->maps--;
            drop_if_unused(mapping.aux);
        }
        at += mapping.bytes ? mapping.bytes : SHIM_BLOCK_BYTES;
    }
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t bytes) {
    CUresult r = REAL(cuMemUnmap)(ptr, bytes);
    if (r != CUDA_SUCCESS || !shim.enabled)
        return r;
    pthread_mutex_lock(&shim.lock);
    unmapped(ptr, bytes);
    pthread_mutex_unlock(&shim.lock);
    return r;
}

static struct shim_table_entry *mapping_over(uint64_t addr) {
    struct shim_table_entry *exact = shim_table_find(&shim.mappings, addr);
    if (exact)
        return exact;
    for (size_t i = 0; i < shim.mappings.size; i++) {
        struct shim_table_entry *m = &shim.mappings.item[i];
        if (m->key && addr >= m->key && addr - m->key < m->bytes)
            return m;
    }
    return NULL;
}

// The driver may answer with the old handle or with a new one for the same memory.
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr) {
    CUresult r = REAL(cuMemRetainAllocationHandle)(handle, addr);
    if (r != CUDA_SUCCESS || !shim.enabled)
        return r;
    pthread_mutex_lock(&shim.lock);
    struct shim_table_entry *m = mapping_over((uint64_t)(uintptr_t)addr);
    struct shim_table_entry *it = m ? shim_table_find(&shim.handles, m->aux) : NULL;
    if (it && it->key == *handle) {
        it->refs++;
    } else if (it) { // the mapping keeps the charge; it moves to the new name
        struct shim_table_entry moved = *it, gone;
        uint64_t old = it->key;
        if (!it->refs) {
            moved.key = *handle;
            moved.refs = 1;
            shim_table_take(&shim.handles, old, &gone);
            shim_table_put(&shim.handles, &moved);
            for (size_t i = 0; i < shim.mappings.size; i++)
                if (shim.mappings.item[i].key && shim.mappings.item[i].aux == old)
                    shim.mappings.item[i].aux = *handle;
        }
    }
    pthread_mutex_unlock(&shim.lock);
    return r;
}

// The exporter pays. A handle imported back into the process that made it is one more handle.
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *os_handle,
                                        int type) {
    CUresult r = REAL(cuMemImportFromShareableHandle)(handle, os_handle, type);
    if (r != CUDA_SUCCESS || !shim.enabled)
        return r;
    pthread_mutex_lock(&shim.lock);
    struct shim_table_entry *it = shim_table_find(&shim.handles, *handle);
    if (it)
        it->refs++;
    pthread_mutex_unlock(&shim.lock);
    return r;
}
