// Making, ending and changing contexts, and the calls that make one grow.
#include "throttle.h"
#include "shim.h"

#define CONTEXT_CREATE(name, params, args)                    \
    CUresult name params {                                    \
        struct hold h;                                        \
        CUresult r = context_begin(&h, dev);                  \
        if (r != CUDA_SUCCESS)                                \
            return r;                                         \
        r = REAL(name) args;                                  \
        context_end(&h, r);                                   \
        throttle_moved();                                         \
        return r;                                             \
    }
CONTEXT_CREATE(cuCtxCreate, (CUcontext * ctx, unsigned flags, CUdevice dev), (ctx, flags, dev))
CONTEXT_CREATE(cuCtxCreate_v2, (CUcontext * ctx, unsigned flags, CUdevice dev), (ctx, flags, dev))
CONTEXT_CREATE(cuCtxCreate_v3, (CUcontext * ctx, void *affinity, int n, unsigned flags,
                                CUdevice dev),
               (ctx, affinity, n, flags, dev))
CONTEXT_CREATE(cuCtxCreate_v4, (CUcontext * ctx, void *params, unsigned flags, CUdevice dev),
               (ctx, params, flags, dev))

static bool primary_active(CUdevice dev) {
    unsigned flags;
    int active = 0;
    return REAL(cuDevicePrimaryCtxGetState)(dev, &flags, &active) == CUDA_SUCCESS && active;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice dev) {
    struct hold h;
    struct shim_device *d = shim_device(dev);
    if (d && primary_active(dev)) // one more reference costs nothing
        return REAL(cuDevicePrimaryCtxRetain)(ctx, dev);
    CUresult r = context_begin(&h, dev);
    if (r != CUDA_SUCCESS)
        return r;
    if (h.device && primary_active(dev)) { // another thread made it while we waited our turn
        account_refund(h.device, h.kind, h.bytes);
        pthread_mutex_unlock(&shim.context_lock);
        return REAL(cuDevicePrimaryCtxRetain)(ctx, dev);
    }
    r = REAL(cuDevicePrimaryCtxRetain)(ctx, dev);
    if (r == CUDA_SUCCESS && h.device)
        h.device->primary = *ctx;
    context_end(&h, r);
    return r;
}

// Marks point into the context and must go before it does.
#define PRIMARY_END(name)                                          \
    CUresult name(CUdevice dev) {                                  \
        struct shim_device *d = shim_device(dev);                       \
        if (!d)                                                    \
            return REAL(name)(dev);                                \
        CUcontext ctx = d->primary;                                \
        bool was = primary_active(dev);                            \
        throttle_forget(ctx);                                          \
        CUresult r = REAL(name)(dev);                              \
        if (r == CUDA_SUCCESS && was && !primary_active(dev))      \
            context_gone(dev, ctx);                                \
        return r;                                                  \
    }
PRIMARY_END(cuDevicePrimaryCtxRelease)
PRIMARY_END(cuDevicePrimaryCtxRelease_v2)
PRIMARY_END(cuDevicePrimaryCtxReset)
PRIMARY_END(cuDevicePrimaryCtxReset_v2)

static CUdevice context_device(CUcontext ctx) {
    CUdevice dev = -1;
    CUcontext popped;
    if (shim.enabled && REAL(cuCtxPushCurrent_v2)(ctx) == CUDA_SUCCESS) {
        if (REAL(cuCtxGetDevice)(&dev) != CUDA_SUCCESS)
            dev = -1;
        REAL(cuCtxPopCurrent_v2)(&popped);
    }
    return dev;
}

#define CONTEXT_END(name)                        \
    CUresult name(CUcontext ctx) {               \
        CUdevice dev = context_device(ctx);      \
        throttle_forget(ctx);                        \
        CUresult r = REAL(name)(ctx);            \
        if (r == CUDA_SUCCESS && dev >= 0)       \
            context_gone(dev, ctx);              \
        throttle_moved();                            \
        return r;                                \
    }
CONTEXT_END(cuCtxDestroy)
CONTEXT_END(cuCtxDestroy_v2)
CONTEXT_END(cuCtxDetach)

#define CONTEXT_MOVE(name, params, args) \
    CUresult name params {               \
        CUresult r = REAL(name) args;    \
        throttle_moved();                    \
        return r;                        \
    }
CONTEXT_MOVE(cuCtxSetCurrent, (CUcontext ctx), (ctx))
CONTEXT_MOVE(cuCtxPushCurrent, (CUcontext ctx), (ctx))
CONTEXT_MOVE(cuCtxPushCurrent_v2, (CUcontext ctx), (ctx))
CONTEXT_MOVE(cuCtxPopCurrent, (CUcontext * ctx), (ctx))
CONTEXT_MOVE(cuCtxPopCurrent_v2, (CUcontext * ctx), (ctx))

static CUresult grown(CUresult r, bool now) {
    struct shim_device *d = r == CUDA_SUCCESS ? shim_current() : NULL;
    if (d)
        context_measure(d, now);
    return r;
}

CUresult cuCtxSetLimit(int limit, size_t value) {
    return grown(REAL(cuCtxSetLimit)(limit, value), true);
}

CUresult cuModuleLoad(CUmodule *module, const char *file) {
    return grown(REAL(cuModuleLoad)(module, file), false);
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    return grown(REAL(cuModuleLoadData)(module, image), false);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned n, int *options,
                            void **values) {
    return grown(REAL(cuModuleLoadDataEx)(module, image, n, options, values), false);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image) {
    return grown(REAL(cuModuleLoadFatBinary)(module, image), false);
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, int *jit, void **jit_values,
                           unsigned njit,
                           int *options, void **values, unsigned n) {
    return grown(REAL(cuLibraryLoadData)(library, code, jit, jit_values, njit, options, values, n),
                 false);
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *file, int *jit, void **jit_values,
                               unsigned njit, int *options, void **values, unsigned n) {
    return grown(REAL(cuLibraryLoadFromFile)(library, file, jit, jit_values, njit, options, values,
                                             n), false);
}
