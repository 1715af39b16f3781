// Everything that puts work on the GPU passes the throttle here; captures and synchronisation are
// watched for the throttle's sake.
#include "throttle.h"
#include "throttle_quick.h"
#include "shim.h"

static uint64_t key_of(const void *f, uint64_t gx, uint64_t gy, uint64_t gz) {
    return (uint64_t)(uintptr_t)f ^ (gx * 0x9e3779b97f4a7c15ULL + gy * 0xc2b2ae3d27d4eb4fULL + gz) << 8 ^ 1;
}

#define THROTTLED(stream, per_thread, key, call)                            \
    do {                                                                \
        if (throttle_quick(stream, per_thread, key))                        \
            return call;                                                \
        struct throttle *throttle_ = throttle_current();                            \
        if (!throttle_)                                                     \
            return call;                                                \
        unsigned mark_ = throttle_before(throttle_, stream, per_thread, key);   \
        CUresult r_ = call;                                             \
        throttle_after(throttle_, stream, per_thread, mark_);                   \
        return r_;                                                      \
    } while (0)

#define LAUNCH_KERNEL(name, per_thread)                                                             \
    CUresult name(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,    \
                  unsigned bz, unsigned shared, CUstream stream, void **params, void **extra) {     \
        THROTTLED(stream, per_thread, key_of(f, gx, gy, gz),                                            \
              REAL(name)(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra));                \
    }
LAUNCH_KERNEL(cuLaunchKernel, false)
LAUNCH_KERNEL(cuLaunchKernel_ptsz, true)

#define LAUNCH_KERNEL_EX(name, per_thread)                                                         \
    CUresult name(const struct CUlaunchConfig *c, CUfunction f, void **params, void **extra) {      \
        if (!c)                                                                                    \
            return REAL(name)(c, f, params, extra);                                                \
        THROTTLED(c->stream, per_thread, key_of(f, c->grid[0], c->grid[1], c->grid[2]),                \
              REAL(name)(c, f, params, extra));                                                    \
    }
LAUNCH_KERNEL_EX(cuLaunchKernelEx, false)
LAUNCH_KERNEL_EX(cuLaunchKernelEx_ptsz, true)

#define LAUNCH_COOPERATIVE(name, per_thread)                                                        \
    CUresult name(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,    \
                  unsigned bz, unsigned shared, CUstream stream, void **params) {                   \
        THROTTLED(stream, per_thread, key_of(f, gx, gy, gz),                                            \
              REAL(name)(f, gx, gy, gz, bx, by, bz, shared, stream, params));                       \
    }
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel, false)
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel_ptsz, true)

// Over several devices the current one's share is asked; its stream is the first in the list.
CUresult cuLaunchCooperativeKernelMultiDevice(struct CUlaunchParams *list, unsigned n,
                                              unsigned flags) {
    if (!list || !n)
        return REAL(cuLaunchCooperativeKernelMultiDevice)(list, n, flags);
    THROTTLED(list->stream, false, key_of(list->f, list->grid[0], list->grid[1], list->grid[2]),
          REAL(cuLaunchCooperativeKernelMultiDevice)(list, n, flags));
}

CUresult cuLaunch(CUfunction f) {
    THROTTLED(NULL, false, key_of(f, 1, 1, 1), REAL(cuLaunch)(f));
}

CUresult cuLaunchGrid(CUfunction f, int width, int height) {
    THROTTLED(NULL, false, key_of(f, (unsigned)width, (unsigned)height, 1), REAL(cuLaunchGrid)(f, width,
            height));
}

CUresult cuLaunchGridAsync(CUfunction f, int width, int height, CUstream stream) {
    THROTTLED(stream, false, key_of(f, (unsigned)width, (unsigned)height, 1),
          REAL(cuLaunchGridAsync)(f, width, height, stream));
}

#define GRAPH_LAUNCH(name, per_thread)                                                \
    static CUresult name##_throttled(CUgraphExec exec, CUstream stream) {                 \
        THROTTLED(stream, per_thread, key_of(exec, 0, 0, 0), REAL(name)(exec, stream));   \
    }                                                                                 \
    CUresult name(CUgraphExec exec, CUstream stream) {                                \
        CUresult r;                                                                   \
        struct hold h = graph_begin(exec, &r);                                        \
        if (r != CUDA_SUCCESS)                                                        \
            return r;                                                                 \
        r = name##_throttled(exec, stream);                                               \
        graph_end(&h, exec, r);                                                       \
        return r;                                                                     \
    }
GRAPH_LAUNCH(cuGraphLaunch, false)
GRAPH_LAUNCH(cuGraphLaunch_ptsz, true)

#define CAPTURE_BEGIN(name, params, args)                     \
    CUresult name params {                                    \
        throttle_sync_begin(); /* marks end before the capture */ \
        atomic_fetch_add(&shim.captures, 1);                  \
        CUresult r = REAL(name) args;                         \
        if (r != CUDA_SUCCESS)                                \
            atomic_fetch_sub(&shim.captures, 1);              \
        return r;                                             \
    }
CAPTURE_BEGIN(cuStreamBeginCapture, (CUstream s), (s))
CAPTURE_BEGIN(cuStreamBeginCapture_ptsz, (CUstream s), (s))
CAPTURE_BEGIN(cuStreamBeginCapture_v2, (CUstream s, int mode), (s, mode))
CAPTURE_BEGIN(cuStreamBeginCapture_v2_ptsz, (CUstream s, int mode), (s, mode))
CAPTURE_BEGIN(cuStreamBeginCaptureToGraph,
              (CUstream s, CUgraph g, const CUgraphNode *deps, const void *data, size_t n,
               int mode),
              (s, g, deps, data, n, mode))
CAPTURE_BEGIN(cuStreamBeginCaptureToGraph_ptsz,
              (CUstream s, CUgraph g, const CUgraphNode *deps, const void *data, size_t n,
               int mode),
              (s, g, deps, data, n, mode))

// A capture that failed ends too; only one that was never begun (invalid handle) does not. The
// count must not sink below what is really captured: one too many only costs a question.
static void capture_ended(CUresult r) {
    unsigned n = atomic_load(&shim.captures);
    bool ended = r == CUDA_SUCCESS || r == 901;
    while (ended && n && !atomic_compare_exchange_weak(&shim.captures, &n, n - 1))
        ;
}

CUresult cuStreamEndCapture(CUstream s, CUgraph *graph) {
    CUresult r = REAL(cuStreamEndCapture)(s, graph);
    capture_ended(r);
    return r;
}

CUresult cuStreamEndCapture_ptsz(CUstream s, CUgraph *graph) {
    CUresult r = REAL(cuStreamEndCapture_ptsz)(s, graph);
    capture_ended(r);
    return r;
}

CUresult cuStreamDestroy(CUstream s) {
    throttle_stream_gone(s);
    return REAL(cuStreamDestroy)(s);
}

CUresult cuStreamDestroy_v2(CUstream s) {
    throttle_stream_gone(s);
    return REAL(cuStreamDestroy_v2)(s);
}

static void synced(struct throttle *g) {
    throttle_sync_end(g);
    if (atomic_load_explicit(&shim.pools_used, memory_order_relaxed)) {
        struct shim_device *d = shim_current();
        if (d)
            pool_refresh(d);
    }
}

#define SYNC(name, params, args)                    \
    CUresult name params {                          \
        struct throttle *g = throttle_sync_begin();         \
        CUresult r = REAL(name) args;               \
        synced(g);                                  \
        return r;                                   \
    }
SYNC(cuStreamSynchronize, (CUstream s), (s))
SYNC(cuStreamSynchronize_ptsz, (CUstream s), (s))
SYNC(cuEventSynchronize, (CUevent e), (e))
SYNC(cuCtxSynchronize, (void), ())
SYNC(cuCtxSynchronize_v2, (CUcontext ctx), (ctx))
