// Small programs on the driver's own interface, for the GPU tests: what one launch costs, sixteen
// processes racing for memory, every kind of memory against the limit. Finds the driver as any
// program does, by the SONAME, so the same binary runs with and without the shim.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cuda_abi.h"

static void *lib;

static void *symbol(const char *name) {
    void *p = dlsym(lib, name);
    if (!p) {
        fprintf(stderr, "no %s in the driver\n", name);
        exit(3);
    }
    return p;
}
#define CU(name) ((__typeof__(&name))symbol(#name))
#define TRY(call)                                                          \
    do {                                                                   \
        CUresult r_ = (call);                                              \
        if (r_) {                                                          \
            fprintf(stderr, "line %d: %s: error %d\n", __LINE__, #call, r_); \
            exit(4);                                                       \
        }                                                                  \
    } while (0)

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static CUresult start(CUcontext *ctx) {
    CUresult (*init)(unsigned), (*set)(CUcontext);
    *(void **)&init = symbol("cuInit");
    *(void **)&set = symbol("cuCtxSetCurrent");
    TRY(init(0));
    CUresult r = CU(cuDevicePrimaryCtxRetain)(ctx, 0);
    return r ? r : set(*ctx);
}

// Kernels: one that does nothing, one that spins for so many cycles, one that adds one to a word,
// one that waits until a word is set.
static const char ptx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing() { ret; }\n"
    ".visible .entry spin(.param .u64 n) { .reg .u64 a, b, c; .reg .pred p; ld.param.u64 a, [n];\n"
    "mov.u64 b, %clock64;\nL: mov.u64 c, %clock64; sub.u64 c, c, b; setp.lt.u64 p, c, a; @p bra L; ret; }\n"
    ".visible .entry add(.param .u64 n) { .reg .u64 a; .reg .u32 v; ld.param.u64 a, [n];\n"
    "ld.global.u32 v, [a]; add.u32 v, v, 1; st.global.u32 [a], v; ret; }\n"
    ".visible .entry await(.param .u64 n) { .reg .u64 a; .reg .u32 v; .reg .pred p; ld.param.u64 a, [n];\n"
    "L: ld.volatile.global.u32 v, [a]; setp.eq.u32 p, v, 0; @p bra L; ret; }\n";

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, by_size);
    return v[n / 2];
}

// Median over rounds of the time one launch takes the caller; few enough in a round that the
// driver's queue never fills. Every other round calls the driver itself (PROBE_REAL, the path of
// the real library), so both are measured in one process, in the same minute, on the same core.
static int launch(void) {
    enum { ROUNDS = 1000, EACH = 100 };
    static double cost[2][ROUNDS];
    CUcontext ctx;
    CUmodule module;
    CUfunction f;
    CUresult (*get)(CUfunction *, CUmodule, const char *);
    TRY(start(&ctx));
    TRY(CU(cuModuleLoadData)(&module, ptx));
    *(void **)&get = symbol("cuModuleGetFunction");
    TRY(get(&f, module, "nothing"));
    const char *path = getenv("PROBE_REAL");
    void *real = path ? dlopen(path, RTLD_NOW) : lib;
    __typeof__(&cuLaunchKernel) go[2] = {CU(cuLaunchKernel), NULL};
    *(void **)&go[1] = real ? dlsym(real, "cuLaunchKernel") : NULL;
    if (!go[1]) {
        fprintf(stderr, "PROBE_REAL=%s: %s\n", path, dlerror());
        return 3;
    }
    for (int r = 0; r < ROUNDS * 2; r++) {
        TRY(CU(cuCtxSynchronize)());
        __typeof__(&cuLaunchKernel) fn = go[r % 2];
        uint64_t from = now_ns();
        for (int i = 0; i < EACH; i++)
            TRY(fn(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
        cost[r % 2][r / 2] = (double)(now_ns() - from) / EACH;
    }
    TRY(CU(cuCtxSynchronize)());
    double with = median(cost[0], ROUNDS), without = median(cost[1], ROUNDS);
    printf("%.1f %.1f %.1f\n", with, without, cost[0][ROUNDS / 10] - cost[1][ROUNDS / 10]);
    return 0;
}

// Takes memory until refused twenty times, says how much it got, holds it until told to go.
static int hog(unsigned seed) {
    CUcontext ctx;
    CUdeviceptr p;
    uint64_t got = 0;
    char line[16];
    int made = start(&ctx) == 0;
    for (int refused = 0; made && refused < 20;) {
        size_t n = (size_t)(rand_r(&seed) % 128 + 1) << 20;
        if (CU(cuMemAlloc_v2)(&p, n))
            refused++;
        else
            got += n;
    }
    printf("%d %lu\n", made, got);
    fflush(stdout);
    return fgets(line, sizeof line, stdin) == NULL; // until told, or killed
}

static size_t free_now(void) {
    size_t f, t;
    TRY(CU(cuMemGetInfo_v2)(&f, &t));
    return f;
}

static int failed;
static void expect(const char *what, int ok) {
    printf("%s %s\n", ok ? "ok  " : "FAIL", what);
    failed += !ok;
}

static void kind_pool(size_t big, size_t half) {
    CUmemoryPool pool;
    CUdeviceptr p, q;
    struct CUmemPoolProps props = {.alloc_type = 1, .location = {CU_LOCATION_DEVICE, 0}};
    size_t before = free_now();
    expect("async: too much refused", CU(cuMemAllocAsync)(&p, big,
                                                          NULL) == CUDA_ERROR_OUT_OF_MEMORY);
    expect("async: half given", CU(cuMemAllocAsync)(&p, half, NULL) == 0);
    expect("async: shown as used", free_now() + half <= before);
    TRY(CU(cuMemFreeAsync)(p, NULL));
    TRY(CU(cuStreamSynchronize)(NULL));
    expect("async: given back", before - free_now() < 64u << 20);
    TRY(CU(cuMemPoolCreate)(&pool, &props));
    expect("pool: half given", CU(cuMemAllocFromPoolAsync)(&p, half, pool, NULL) == 0);
    expect("pool: another not", CU(cuMemAllocFromPoolAsync)(&q, half + (half / 8), pool,
                                                            NULL) == CUDA_ERROR_OUT_OF_MEMORY);
    TRY(CU(cuMemFreeAsync)(p, NULL));
    TRY(CU(cuStreamSynchronize)(NULL));
    TRY(CU(cuMemPoolDestroy)(pool));
    expect("pool: given back", before - free_now() < 64u << 20);
}

static void kind_vmm(size_t big, size_t half) {
    CUmemGenericAllocationHandle h, h2;
    CUdeviceptr at;
    struct CUmemAllocationProp prop = {.type = 1, .location = {CU_LOCATION_DEVICE, 0}};
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, uint64_t);
    *(void **)&reserve = symbol("cuMemAddressReserve");
    size_t before = free_now();
    half &= ~((size_t)(2 << 20) - 1);
    big &= ~((size_t)(2 << 20) - 1);
    expect("vmm: too much refused", CU(cuMemCreate)(&h, big, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
    TRY(CU(cuMemCreate)(&h, half, &prop, 0));
    TRY(reserve(&at, half, 0, 0, 0));
    TRY(CU(cuMemMap)(at, half, 0, h, 0));
    TRY(CU(cuMemRelease)(h));
    expect("vmm: mapped memory stays charged", free_now() + half <= before);
    TRY(CU(cuMemRetainAllocationHandle)(&h2, (void *)(uintptr_t)at));
    TRY(CU(cuMemUnmap)(at, half));
    expect("vmm: a handle keeps it charged", free_now() + half <= before);
    TRY(CU(cuMemRelease)(h2));
    expect("vmm: given back", before - free_now() < 64u << 20);
}

static void kind_graph(size_t big, size_t half) {
    CUgraph g;
    CUgraphExec e;
    CUdeviceptr p;
    CUstream s;
    CUresult (*create)(CUstream *, unsigned);
    *(void **)&create = symbol("cuStreamCreate");
    TRY(create(&s, 1));
    size_t before = free_now(), sizes[2] = {half, big};
    for (int i = 0; i < 2; i++) {
        TRY(CU(cuStreamBeginCapture_v2)(s, 0));
        TRY(CU(cuMemAllocAsync)(&p, sizes[i], s));
        TRY(CU(cuMemFreeAsync)(p, s));
        TRY(CU(cuStreamEndCapture)(s, &g));
        TRY(CU(cuGraphInstantiateWithFlags)(&e, g, 0));
        CUresult r = CU(cuGraphLaunch)(e, s);
        TRY(CU(cuStreamSynchronize)(s));
        expect(i ? "graph memory: too much refused" : "graph memory: half given",
               i ? r == CUDA_ERROR_OUT_OF_MEMORY : r == 0);
        if (!i)
            expect("graph memory: shown as used", free_now() + half <= before);
        TRY(CU(cuGraphExecDestroy)(e));
        TRY(CU(cuDeviceGraphMemTrim)(0));
    }
    expect("graph memory: given back", before - free_now() < 64u << 20);
}

static int kinds(void) {
    CUcontext ctx;
    CUdeviceptr p;
    CUarray a;
    size_t total, pitch;
    TRY(start(&ctx));
    TRY(CU(cuDeviceTotalMem_v2)(&total, 0));
    size_t before = free_now(), big = before + (64u << 20), half = before / 2;
    printf("total %lu MiB, free %lu MiB\n", total >> 20, before >> 20);
    expect("device: too much refused", CU(cuMemAlloc_v2)(&p, big) == CUDA_ERROR_OUT_OF_MEMORY);
    expect("device: all that is free given", CU(cuMemAlloc_v2)(&p,
            before & ~((size_t)(2 << 20) - 1)) == 0);
    TRY(CU(cuMemFree_v2)(p));
    expect("device: given back", free_now() == before);
    expect("managed: too much refused", CU(cuMemAllocManaged)(&p, big,
            1) == CUDA_ERROR_OUT_OF_MEMORY);
    TRY(CU(cuMemAllocManaged)(&p, half, 1));
    expect("managed: shown as used", free_now() + half <= before);
    TRY(CU(cuMemFree_v2)(p));
    TRY(CU(cuMemAllocPitch_v2)(&p, &pitch, 100001, 10000, 4));
    expect("pitch: charged as padded", free_now() + pitch * 10000 <= before);
    TRY(CU(cuMemFree_v2)(p));
    struct CUarrayDesc d = {16384, 16384, 0x20, 4};
    TRY(CU(cuArrayCreate_v2)(&a, &d));
    expect("array: charged", free_now() + (4ull << 30) <= before);
    TRY(CU(cuArrayDestroy)(a));
    kind_pool(big, half);
    kind_vmm(big, half);
    kind_graph(big, half);
    TRY(CU(cuDevicePrimaryCtxReset_v2)(0));
    return failed != 0;
}

static CUmodule door_module;

static void door_launch(const char *name, CUstream s, uint64_t arg) {
    CUfunction f;
    CUresult (*get)(CUfunction *, CUmodule, const char *);
    void *params[] = {&arg};
    *(void **)&get = symbol("cuModuleGetFunction");
    TRY(get(&f, door_module, name));
    TRY(CU(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
}

enum { SPIN_MS = 1800000 }; // about a millisecond of cycles

static void door_streams(void) {
    enum { N = 16 };
    CUstream s[N];
    CUevent e[N];
    CUresult (*create)(CUstream *, unsigned), (*wait)(CUstream, CUevent, unsigned);
    *(void **)&create = symbol("cuStreamCreate");
    *(void **)&wait = symbol("cuStreamWaitEvent");
    for (int i = 0; i < N; i++) {
        TRY(create(&s[i], 1));
        TRY(CU(cuEventCreate)(&e[i], 2));
    }
    for (int round = 0; round < 20; round++)
        for (int i = 0; i < N; i++) { // each waits for the one before it
            TRY(wait(s[i], e[(i + N - 1) % N], 0));
            door_launch("spin", s[i], SPIN_MS / 10);
            TRY(CU(cuEventRecord)(e[i], s[i]));
        }
    TRY(CU(cuCtxSynchronize)());
}

// What was launched is all done, in order, when a plain copy returns.
static void door_order(int flood) {
    CUdeviceptr p;
    uint32_t got = 0;
    CUresult (*set)(CUdeviceptr, unsigned, size_t, CUstream), (*copy)(void *, CUdeviceptr, size_t);
    *(void **)&set = symbol("cuMemsetD32Async");
    *(void **)&copy = symbol("cuMemcpyDtoH_v2");
    TRY(CU(cuMemAlloc_v2)(&p, 1 << 20));
    TRY(set(p, 0, 1, NULL));
    for (int i = 0; i < 300; i++) {
        door_launch("add", NULL, p);
        door_launch("spin", NULL, SPIN_MS / 10);
        for (int k = 0; k < flood; k++)
            TRY(set(p + 4096, 0, 1, NULL));
    }
    TRY(copy(&got, p, sizeof got));
    if (got != 300) {
        fprintf(stderr, "%u of 300 additions seen\n", got);
        exit(5);
    }
}

// A kernel waits for this thread, which has more to launch first than may be on its way. All the
// time it waits is charged.
static void door_await(void) {
    void *host;
    CUdeviceptr at;
    CUstream s;
    CUresult (*create)(CUstream *, unsigned);
    *(void **)&create = symbol("cuStreamCreate");
    TRY(create(&s, 1));
    TRY(CU(cuMemHostAlloc)(&host, 4096, 3));
    *(volatile uint32_t *)host = 0;
    TRY(CU(cuMemHostGetDevicePointer_v2)(&at, host, 0));
    door_launch("await", s, at);
    for (int i = 0; i < 60; i++)
        door_launch("spin", NULL, SPIN_MS);
    *(volatile uint32_t *)host = 1;
    TRY(CU(cuCtxSynchronize)());
}

// Programs that must not hang or go wrong while the GPU is made to wait.
static int barriers(const char *what) {
    CUcontext ctx;
    TRY(start(&ctx));
    TRY(CU(cuModuleLoadData)(&door_module, ptx));
    door_launch("spin", NULL, SPIN_MS);
    TRY(CU(cuCtxSynchronize)());
    uint64_t from = now_ns();
    if (!strcmp(what, "streams"))
        door_streams();
    else if (!strcmp(what, "order") || !strcmp(what, "flood"))
        door_order(*what == 'f' ? 20 : 0);
    else if (!strcmp(what, "await"))
        door_await();
    else
        for (int i = 0; i < 100; i++)
            door_launch("spin", NULL, SPIN_MS);
    if (!strcmp(what, "reset"))
        TRY(CU(cuDevicePrimaryCtxReset_v2)(0));
    printf("%.3f\n", (double)(now_ns() - from) / 1e9);
    return 0; // "exit": with work behind barriers
}

int main(int argc, char **argv) {
    lib = dlopen("libcuda.so.1", RTLD_NOW);
    if (!lib || argc < 2) {
        fprintf(stderr, "usage: probe launch|hog [SEED]|kinds|barriers WHAT (%s)\n",
                lib ? "driver found" : dlerror());
        return 2;
    }
    if (!strcmp(argv[1], "launch"))
        return launch();
    if (!strcmp(argv[1], "hog"))
        return hog(argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 1);
    if (!strcmp(argv[1], "barriers") && argc > 2)
        return barriers(argv[2]);
    return !strcmp(argv[1], "kinds") ? kinds() : 2;
}
