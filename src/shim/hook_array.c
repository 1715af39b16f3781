// Arrays and mipmaps, charged by their extent: rows padded to 512 bytes, as the driver lays them
// out at least; the measurement of the whole process catches what alignment adds.
#include "shim.h"

static unsigned format_bytes(int format) {
    switch (format) {
    case 0x01: // 8-bit
    case 0x08:
        return 1;
    case 0x02: // 16-bit
    case 0x09:
    case 0x10:
        return 2;
    default:
        return 4; // 32-bit; block-compressed and packed formats are no larger per channel
    }
}

static uint64_t at_least(uint64_t n) {
    return n ? n : 1;
}

static uint64_t level_bytes(const struct CUarray3DDesc *a, unsigned level) {
    uint64_t width = at_least(a->width >> level), height = at_least(a->height >> level);
    uint64_t depth = at_least(a->flags & CU_ARRAY_CUBEMAP ? a->depth : a->depth >> level);
    uint64_t row = (width * at_least(a->channels) * format_bytes(a->format) + 511) / 512 * 512;
    return row * height * depth;
}

static uint64_t array_bytes(const struct CUarray3DDesc *a, unsigned levels) {
    uint64_t sum = 0;
    if (a->flags & (CU_ARRAY_SPARSE | CU_ARRAY_DEFERRED))
        return 0; // backed by memory that is charged where it is made
    for (unsigned i = 0; i < levels && i < 32; i++)
        sum += level_bytes(a, i);
    return sum;
}

static CUresult array_begin(struct hold *h, const struct CUarray3DDesc *a, unsigned levels) {
    uint64_t bytes = array_bytes(a, levels);
    *h = (struct hold){0};
    return bytes ? hold_take(h, shim_current(), LEDGER_ARRAY, bytes) : CUDA_SUCCESS;
}

#define ARRAY_CREATE(name, desc_type, ...)                                                     \
    CUresult name(CUarray *array, const desc_type *desc) {                                     \
        struct hold h;                                                                         \
        if (!desc || !shim.enabled)                                                            \
            return REAL(name)(array, desc);                                                    \
        struct CUarray3DDesc full = {__VA_ARGS__};                                             \
        CUresult r = array_begin(&h, &full, 1);                                                \
        if (r != CUDA_SUCCESS)                                                                 \
            return r;                                                                          \
        r = REAL(name)(array, desc);                                                           \
        return hold_keep(&h, &shim.arrays, r, r == CUDA_SUCCESS ? (uintptr_t)*array : 0);      \
    }
ARRAY_CREATE(cuArrayCreate, struct CUarrayDesc_v1, desc->width, desc->height, 0, desc->format,
             desc->channels, 0)
ARRAY_CREATE(cuArrayCreate_v2, struct CUarrayDesc, desc->width, desc->height, 0, desc->format,
             desc->channels, 0)
ARRAY_CREATE(cuArray3DCreate, struct CUarray3DDesc_v1, desc->width, desc->height, desc->depth,
             desc->format,
             desc->channels, desc->flags)
ARRAY_CREATE(cuArray3DCreate_v2, struct CUarray3DDesc, desc->width, desc->height, desc->depth,
             desc->format,
             desc->channels, desc->flags)

CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const struct CUarray3DDesc *desc,
                                unsigned levels) {
    struct hold h;
    if (!desc || !shim.enabled)
        return REAL(cuMipmappedArrayCreate)(array, desc, levels);
    CUresult r = array_begin(&h, desc, levels);
    if (r != CUDA_SUCCESS)
        return r;
    r = REAL(cuMipmappedArrayCreate)(array, desc, levels);
    return hold_keep(&h, &shim.arrays, r, r == CUDA_SUCCESS ? (uintptr_t)*array : 0);
}

CUresult cuArrayDestroy(CUarray array) {
    struct shim_table_entry item;
    bool known = held_take(&shim.arrays, (uintptr_t)array, &item);
    CUresult r = REAL(cuArrayDestroy)(array);
    if (known)
        held_end(&shim.arrays, &item, r);
    return r;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) {
    struct shim_table_entry item;
    bool known = held_take(&shim.arrays, (uintptr_t)array, &item);
    CUresult r = REAL(cuMipmappedArrayDestroy)(array);
    if (known)
        held_end(&shim.arrays, &item, r);
    return r;
}
