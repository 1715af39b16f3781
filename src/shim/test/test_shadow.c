// The shadow over the simulated driver: binding as libcudart does, memory of every kind against
// the limit, what programs are told, threads, forks, kills and renumbered devices.
#include "shadow.h"

#include <pthread.h>
#include <signal.h>

#include "../nvml_abi.h"

static void binds(void) {
    int status = -1;
    void *fn = &status;
    CUresult (*get)(const char *, void **, int, uint64_t, int *);
    CUresult (*get_old)(const char *, void **, int, uint64_t);
    limit(UUID0, "j", 1024ULL * MIB, 0, 0);
    shadow_load();
    *(void **)&get = dlsym(shadow, "cuGetProcAddress_v2");
    CHECK_EQ(get("", &fn, 0, 0, &status), 0);
    CHECK(fn == NULL);
    static const struct { const char *base; int version, flags; const char *name; } want[] = {
        {"cuMemAlloc", 2000, 0, "cuMemAlloc"}, {"cuMemAlloc", 3020, 0, "cuMemAlloc_v2"},
        {"cuMemAlloc", 12000, 2, "cuMemAlloc_v2"}, {"cuLaunchKernel", 12000, 0, "cuLaunchKernel"},
        {"cuLaunchKernel", 12000, 2, "cuLaunchKernel_ptsz"}, {"cuMemAllocAsync", 12000, 2,
                "cuMemAllocAsync_ptsz"},
        {"cuGetProcAddress", 11030, 0, "cuGetProcAddress"}, {"cuGetProcAddress", 12000, 0,
                "cuGetProcAddress_v2"},
        {"cuCtxCreate", 3020, 0, "cuCtxCreate_v2"}, {"cuCtxCreate", 12000, 0, "cuCtxCreate_v3"},
        {"cuCtxCreate", 13000, 0, "cuCtxCreate_v4"},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        CHECK_EQ(get(want[i].base, &fn, want[i].version, (uint64_t)want[i].flags, &status), 0);
        CHECK(fn == dlsym(shadow, want[i].name));
    }
    CHECK_EQ(get("cuGetProcAddress", &fn, 11030, 0, &status), 0);
    *(void **)&get_old = fn;
    CHECK_EQ(get_old("cuMemFree", &fn, 12000, 0), 0);
    CHECK(fn == dlsym(shadow, "cuMemFree_v2"));
    CHECK_EQ(get("cuStreamCreate", &fn, 12000, 0, &status), 0); // not ours: the driver's own
    CHECK(fn == dlsym(fake_lib, "cuStreamCreate"));
    CHECK_EQ(get("cuNoSuchThing", &fn, 12000, 0, &status), CUDA_ERROR_NOT_FOUND);
    CHECK(fn == NULL && status == 1);
    CHECK_EQ(get("cuMemAlloc", &fn, 12000, 0, NULL), 0);
    // Passed on by jumps: registers, stack and floating point arrive.
    CUresult (*many)(long, long, long, long, long, long, long, long, double);
    CUresult (*floats)(void *, float, float);
    CUresult (*lacking)(void);
    *(void **)&many = dlsym(shadow, "cuGraphAddKernelNode_v2");
    *(void **)&floats = dlsym(shadow, "cuTexRefSetMipmapLevelClamp");
    *(void **)&lacking = dlsym(shadow, "cuMemcpyHtoD_v2"); // a driver older than the list
    CHECK_EQ(many(1, 2, 3, 4, 5, 6, 7, 8, 9.5), 1 + 4 + 9 + 16 + 25 + 36 + 49 + 64 + 85);
    CHECK_EQ(floats(NULL, 1.5f, 2.25f), 150 + 22500);
    CHECK_EQ(lacking(), CUDA_ERROR_NOT_FOUND);
}

// Every function taken over, asked for as libcudart does, in its own version and stream variant: the hook
// and no other. A name that is added to the table is tried by being there.
static void binds_everything(void) {
    static const char *const names[] = {
#define X(name) #name,
#include "../cuda_hooks.def"
#undef X
    };
    limit(UUID0, "j", 1024ULL * MIB, 0, 0);
    shadow_load();
    CUresult (*get)(const char *, void **, int, uint64_t, int *), (*driver)(const char *, void **, int, uint64_t, int *);
    int (*version_of)(const char *, char *, uint64_t *);
    *(void **)&get = dlsym(shadow, "cuGetProcAddress_v2");
    *(void **)&driver = dlsym(fake_lib, "cuGetProcAddress_v2");
    *(void **)&version_of = dlsym(fake_lib, "fake_version_of");
    for (size_t i = 2; i < sizeof names / sizeof *names; i++) { // after the two cuGetProcAddress
        char base[64];
        uint64_t flags;
        void *fn, *theirs;
        int version = version_of(names[i], base, &flags), status;
        CHECK_EQ(driver(base, &theirs, version, flags, &status), 0);
        CHECK_EQ(get(base, &fn, version, flags, &status), 0);
        if (theirs != dlsym(fake_lib, names[i]) || fn != dlsym(shadow, names[i]))
            fprintf(stderr, "%s is not bound\n", names[i]);
        CHECK(theirs == dlsym(fake_lib, names[i]) && fn == dlsym(shadow, names[i]));
    }
}

static uint64_t job_used(void) {
    return sample(UUID0).used_bytes;
}

// The charge is never less than what the device really gave, and beyond the context's slack equal.
static void settled(void) {
    struct ledger_usage u = sample(UUID0);
    CHECK(u.used_bytes >= used_on(0));
    CHECK(u.used_bytes - used_on(0) <= 80ULL * MIB);
}

static void memory(void) {
    size_t f, t;
    CUdeviceptr p[8];
    limit(UUID0, "j", 1024ULL * MIB, 0, 0);
    shadow_load();
    CHECK_EQ(CU(cuDeviceTotalMem_v2)(&t, 0), 0);
    CHECK_EQ(t, 1024ULL * MIB);
    CUcontext ctx = context(0);
    settled();
    uint64_t base = job_used();
    CHECK(base >= 300 * MIB && base <= 370 * MIB);
    CHECK_EQ(sample(UUID0).limits.context_bytes, 300 * MIB);
    CHECK_EQ(CU(cuMemGetInfo_v2)(&f, &t), 0);
    CHECK_EQ(t, 1024ULL * MIB);
    CHECK_EQ(f, 1024ULL * MIB - base);
    CHECK_EQ(CU(cuMemAlloc_v2)(&p[0], f + 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(hits("cuMemAlloc_v2"), 0); // the driver was not even asked
    CHECK_EQ(CU(cuMemAlloc_v2)(&p[0], f), 0);
    CHECK_EQ(CU(cuMemAlloc_v2)(&p[1], 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(CU(cuMemFree_v2)(p[0]), 0);
    CHECK_EQ(job_used(), base);
    for (int i = 0; i < 8; i++) // small ones share a block
        CHECK_EQ(CU(cuMemAlloc_v2)(&p[i], 100000), 0);
    CHECK_EQ(job_used(), base + 2 * MIB);
    settled();
    for (int i = 0; i < 8; i++)
        CHECK_EQ(CU(cuMemFree_v2)(p[i]), 0);
    CHECK_EQ(job_used(), base);
    size_t pitch;
    CHECK_EQ(CU(cuMemAllocPitch_v2)(&p[0], &pitch, 1500 * 1024 + 1, 4, 4), 0);
    CHECK_EQ(job_used(), base + 6 * MIB);
    CHECK_EQ(CU(cuMemAllocManaged)(&p[1], 10 * MIB, 1), 0);
    CHECK_EQ(CU(cuMemAlloc_v2)(&p[2], 0), CUDA_ERROR_INVALID_VALUE); // the driver's own errors pass
    CHECK_EQ(CU(cuMemFree_v2)(0xdead), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(job_used(), base + 16 * MIB);
    settled();
    // The heap of a context grows it; measured at once.
    CHECK_EQ(CU(cuCtxSetLimit)(2, 100 * MIB), 0);
    settled();
    CHECK(job_used() >= base + 116 * MIB - 64 * MIB);
    // All goes with the context.
    CHECK_EQ(CU(cuDevicePrimaryCtxReset_v2)(0), 0);
    CHECK_EQ(job_used(), 0);
    (void)ctx;
}

static void pools(void) {
    CUdeviceptr p[4], q;
    CUmemoryPool pool;
    limit(UUID0, "j", 1024ULL * MIB, 0, 0);
    shadow_load();
    context(0);
    uint64_t base = job_used();
    CHECK_EQ(CU(cuMemAllocAsync)(&p[0], MIB, NULL), 0);
    CHECK_EQ(job_used(), base + 32 * MIB);
    CHECK_EQ(CU(cuMemAllocAsync_ptsz)(&p[1], 40 * MIB, NULL), 0);
    CHECK_EQ(job_used(), base + 64 * MIB);
    settled();
    CHECK_EQ(CU(cuMemFreeAsync)(p[1], NULL), 0); // still the pool's
    CHECK_EQ(job_used(), base + 64 * MIB);
    CHECK_EQ(CU(cuStreamSynchronize)(NULL), 0); // now the device's
    CHECK_EQ(job_used(), base + 32 * MIB);
    CHECK_EQ(CU(cuMemFree_v2)(p[0]), 0);
    CHECK_EQ(CU(cuCtxSynchronize)(), 0);
    CHECK_EQ(job_used(), base);
    struct CUmemPoolProps props = {.alloc_type = 1, .location = {CU_LOCATION_DEVICE, 0}};
    CHECK_EQ(CU(cuMemPoolCreate)(&pool, &props), 0);
    CHECK_EQ(CU(cuMemAllocFromPoolAsync)(&p[0], 100 * MIB, pool, NULL), 0);
    CHECK_EQ(job_used(), base + 128 * MIB);
    CHECK_EQ(CU(cuMemAllocFromPoolAsync_ptsz)(&p[1], 2000 * (size_t)MIB, pool, NULL),
             CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(CU(cuMemFreeAsync_ptsz)(p[0], NULL), 0);
    // The pool holds 128 MiB unused: asking for nearly all of the limit gives it back first.
    CHECK_EQ(CU(cuMemAllocAsync)(&q, 576 * MIB, NULL), 0);
    settled();
    CHECK_EQ(CU(cuMemFreeAsync)(q, NULL), 0);
    CHECK_EQ(CU(cuCtxSynchronize_v2)(NULL), 0);
    CHECK_EQ(CU(cuMemAllocFromPoolAsync)(&p[0], 10 * MIB, pool, NULL), 0);
    CHECK_EQ(CU(cuMemPoolDestroy)(pool), 0); // lives until the last pointer goes
    CHECK(job_used() > base);
    settled();
    CHECK_EQ(CU(cuMemFreeAsync)(p[0], NULL), 0);
    CHECK_EQ(job_used(), base);
    CHECK_EQ(CU(cuMemPoolImportFromShareableHandle)(&pool, NULL, 1, 0), 0);
    CHECK_EQ(CU(cuMemAllocFromPoolAsync)(&p[0], 10 * MIB, pool, NULL), 0); // the exporter pays
    CHECK_EQ(job_used(), base);
}

static void vmm(void) {
    CUmemGenericAllocationHandle h, h2, host;
    limit(UUID0, "j", 200ULL * MIB, 0, 0);
    shadow_load();
    struct CUmemAllocationProp prop = {.type = 1, .location = {CU_LOCATION_DEVICE, 0}};
    struct CUmemAllocationProp on_host = {.type = 1, .location = {2, 0}};
    CHECK_EQ(CU(cuMemCreate)(&h, 100 * MIB, &prop, 0), 0); // no context anywhere
    CHECK_EQ(job_used(), 100 * MIB);
    CHECK_EQ(CU(cuMemCreate)(&h2, 102 * MIB, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(CU(cuMemCreate)(&host, 500 * MIB, &on_host, 0), 0);
    CHECK_EQ(CU(cuMemMap)(0x10000000, 60 * MIB, 0, h, 0), 0);
    CHECK_EQ(CU(cuMemMap)(0x10000000 + 60 * MIB, 40 * MIB, 60 * MIB, h, 0), 0);
    CHECK_EQ(CU(cuMemRelease)(h), 0);
    CHECK_EQ(job_used(), 100 * MIB); // still mapped
    CHECK_EQ(CU(cuMemRetainAllocationHandle)(&h2, (void *)(0x10000000 + 5 * MIB)), 0);
    CHECK_EQ(CU(cuMemUnmap)(0x10000000, 100 * MIB), 0); // both at once
    CHECK_EQ(job_used(), 100 * MIB); // a handle is out
    CHECK_EQ(CU(cuMemRelease)(h2), 0);
    CHECK_EQ(job_used(), 0);
    CHECK_EQ(used_on(0), 0);
    CHECK_EQ(CU(cuMemImportFromShareableHandle)(&h, NULL, 1), 0);
    CHECK_EQ(CU(cuMemRelease)(host), 0);
    CHECK_EQ(job_used(), 0);
}

static void arrays(void) {
    CUarray a;
    CUmipmappedArray m;
    limit(UUID0, "j", 1024ULL * MIB, 0, 0);
    shadow_load();
    context(0);
    uint64_t base = job_used();
    struct CUarrayDesc d = {4096, 1024, 0x20, 4};
    struct CUarray3DDesc d3 = {1024, 1024, 16, 0x20, 1, 0}, sparse = {1 << 16, 1 << 16, 0, 0x20, 4,
            CU_ARRAY_SPARSE};
    CHECK_EQ(CU(cuArrayCreate_v2)(&a, &d), 0);
    CHECK_EQ(job_used(), base + 64 * MIB);
    CHECK_EQ(CU(cuArrayDestroy)(a), 0);
    CHECK_EQ(CU(cuArray3DCreate_v2)(&a, &d3), 0);
    CHECK_EQ(job_used(), base + 64 * MIB);
    CHECK_EQ(CU(cuArrayDestroy)(a), 0);
    CHECK_EQ(CU(cuMipmappedArrayCreate)(&m, &d3, 3), 0);
    CHECK(job_used() > base + 72 * MIB && job_used() <= base + 76 * MIB);
    settled();
    CHECK_EQ(CU(cuMipmappedArrayDestroy)(m), 0);
    d.width = d.height = 1 << 15;
    CHECK_EQ(CU(cuArrayCreate_v2)(&a, &d), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(CU(cuArray3DCreate_v2)(&a, &sparse), 0);
    CHECK_EQ(job_used(), base);
}

static void graphs(void) {
    CUgraph g;
    CUgraphExec e;
    CUdeviceptr p;
    CUstream s;
    CUresult (*create)(CUstream *, unsigned);
    limit(UUID0, "j", 1024ULL * MIB, 500, 0);
    shadow_load();
    context(0);
    *(void **)&create = shadow_symbol("cuStreamCreate");
    CHECK_EQ(create(&s, 0), 0);
    uint64_t base = job_used();
    CHECK_EQ(CU(cuLaunchKernel)((CUfunction)1000, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL), 0);
    CHECK_EQ(CU(cuStreamBeginCapture_v2)(s, 0), 0); // the strictest mode
    CHECK_EQ(CU(cuMemAllocAsync)(&p, 60 * MIB, s), 0);
    for (int i = 0; i < 300; i++) // neither waits nor is charged
        CHECK_EQ(CU(cuLaunchKernel)((CUfunction)10000000, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL), 0);
    CHECK_EQ(CU(cuLaunchKernel)((CUfunction)1000, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), 0);
    CHECK_EQ(CU(cuMemFreeAsync)(p, s) == 0, 0);
    CHECK_EQ(CU(cuStreamEndCapture)(s, &g), 0);
    CHECK_EQ(counts()->spoiled, 0);
    CHECK_EQ(job_used(), base);
    CHECK(sample(UUID0).gpu_ns < 10000000);
    CHECK_EQ(CU(cuGraphInstantiateWithFlags)(&e, g, 0), 0);
    CHECK_EQ(job_used(), base);
    CHECK_EQ(CU(cuGraphUpload)(e, s), 0);
    CHECK_EQ(job_used(), base + 64 * MIB);
    settled();
    CHECK_EQ(CU(cuDeviceGraphMemTrim)(0), 0);
    CHECK_EQ(job_used(), base);
    CHECK_EQ(CU(cuMemAllocManaged)(&p, 640 * MIB, 1), 0);
    CHECK_EQ(CU(cuGraphUpload_ptsz)(e, s), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(CU(cuMemFree_v2)(p), 0);
    CHECK_EQ(CU(cuGraphExecDestroy)(e), 0);
    CHECK_EQ(CU(cuStreamDestroy_v2)(s), 0);
}

static void *no_context(void *arg) {
    CUdeviceptr p;
    size_t f, t;
    CHECK_EQ(CU(cuMemAlloc_v2)(&p, MIB), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(CU(cuMemGetInfo_v2)(&f, &t), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(CU(cuLaunchKernel)((CUfunction)1000, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), 0);
    return NULL;
}

static void *allocates(void *arg) {
    CUdeviceptr p[4];
    CUresult (*set)(CUcontext);
    *(void **)&set = shadow_symbol("cuCtxSetCurrent");
    set(arg);
    for (int round = 0; round < 50; round++) {
        int n = 0;
        while (n < 4 && CU(cuMemAlloc_v2)(&p[n], (size_t)(n + round % 3) * 700000 + 1) == 0)
            n++;
        while (n)
            CHECK_EQ(CU(cuMemFree_v2)(p[--n]), 0);
        CHECK_EQ(CU(cuMemAllocAsync)(&p[0], MIB, NULL), 0);
        CU(cuLaunchKernel)((CUfunction)1000, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        CHECK_EQ(CU(cuMemFreeAsync)(p[0], NULL), 0);
    }
    return NULL;
}

static void threads(void) {
    pthread_t t[4];
    limit(UUID0, "j", 1024ULL * MIB, 900, 0);
    shadow_load();
    CHECK_EQ(pthread_create(&t[0], NULL, no_context, NULL), 0);
    pthread_join(t[0], NULL);
    CHECK_EQ(job_used(), 0);
    CUcontext ctx = context(0);
    uint64_t base = job_used();
    for (int i = 0; i < 4; i++)
        CHECK_EQ(pthread_create(&t[i], NULL, allocates, ctx), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    CHECK_EQ(CU(cuCtxSynchronize)(), 0);
    struct ledger_usage u = sample(UUID0);
    CHECK_EQ(u.used_bytes - u.process[0].kind_bytes[LEDGER_CONTEXT],
             base - base); // nothing but the context is left
}

static void renumbered(void) {
    size_t t;
    setenv("FAKE_ORDER", "10", 1); // device 0 is the second GPU, as with CUDA_VISIBLE_DEVICES=1,0
    limit(UUID1, "j", 1024ULL * MIB, 0, 0);
    shadow_load();
    CHECK_EQ(CU(cuDeviceTotalMem_v2)(&t, 0), 0);
    CHECK_EQ(t, 1024ULL * MIB);
    CHECK_EQ(CU(cuDeviceTotalMem_v2)(&t, 1), 0);
    CHECK_EQ(t, 80ULL << 30);
    context(0);
    CHECK(sample(UUID1).used_bytes >= 300 * MIB);
    context(1); // no ledger: not limited
}

static void broken_ledger(void) {
    char path[LEDGER_PATH_MAX];
    CUcontext c;
    limit(UUID0, "j", 1024ULL * MIB, 0, 0);
    path_of(path, UUID0, LEDGER_SUFFIX);
    CHECK_EQ(truncate(path, 64), 0);
    shadow_load();
    CHECK_EQ(CU(cuDevicePrimaryCtxRetain)(&c, 0), CUDA_ERROR_SYSTEM_NOT_READY);
    CHECK_EQ(CU(cuCtxCreate_v2)(&c, 0, 0), CUDA_ERROR_SYSTEM_NOT_READY);
}

// No NVML figure: the context is charged as guessed, or as somebody learned it.
static void blind(void) {
    CUcontext c;
    limit(UUID0, "j", 1300ULL * MIB, 0, 0);
    setenv("FAKE_BLIND", "1", 1);
    shadow_load();
    CHECK_EQ(CU(cuCtxCreate_v2)(&c, 0, 0), 0);
    CHECK_EQ(job_used(), 640 * MIB);
    CHECK_EQ(CU(cuCtxCreate_v3)(&c, NULL, 0, 0, 0), 0);
    CUcontext third;
    CHECK_EQ(CU(cuCtxCreate_v4)(&third, NULL, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(CU(cuCtxDestroy_v2)(c), 0);
    struct ledger_limits known = {.memory_bytes = 1300ULL * MIB, .context_bytes = 300 * MIB};
    char path[LEDGER_PATH_MAX];
    path_of(path, UUID0, LEDGER_SUFFIX);
    CHECK_EQ(ledger_set_limits(path, &known), 0);
    CHECK_EQ(CU(cuCtxCreate)(&third, 0, 0), 0);
}

// Sixteen processes make a context and allocate until nothing more is given; what the devices
// gave, contexts included, stays under the limit at every moment.
static struct race {
    _Atomic int64_t total, most;
    _Atomic int ready, finished;
} *race;
enum { RACERS = 16 };

static void racer(void) {
    CUdeviceptr p;
    CUcontext c;
    unsigned seed = (unsigned)getpid();
    int64_t before = 0;
    shadow_load();
    atomic_fetch_add(&race->ready, 1);
    while (atomic_load(&race->ready) < RACERS)
        usleep(100);
    bool ok = CU(cuDevicePrimaryCtxRetain)(&c, 0) == 0;
    CUresult (*set)(CUcontext);
    *(void **)&set = shadow_symbol("cuCtxSetCurrent");
    if (ok)
        set(c);
    for (int refused = 0; ok && refused < 20;) {
        refused += CU(cuMemAlloc_v2)(&p, (size_t)(rand_r(&seed) % 60 + 1) * MIB) != 0;
        int64_t now = (int64_t)used_on(0);
        int64_t all = atomic_fetch_add(&race->total, now - before) + now - before;
        before = now;
        int64_t most = atomic_load(&race->most);
        while (all > most && !atomic_compare_exchange_weak(&race->most, &most, all))
            ;
    }
    atomic_fetch_add(&race->finished, 1);
    while (atomic_load(&race->finished) < RACERS)
        usleep(100);
    if (getpid() % 2)
        kill(getpid(), SIGKILL);
}

static void race_of_sixteen(void **state) {
    pid_t pid[RACERS];
    race = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    limit(UUID0, "j", 8192ULL * MIB, 0, 0);
    for (int i = 0; i < RACERS; i++)
        pid[i] = start(racer);
    for (int i = 0; i < RACERS; i++)
        finish(pid[i]);
    assert_true(race->most <= 8192LL * MIB);
    assert_true(race->most > 7000LL * MIB);
    assert_int_equal(sample(UUID0).overdraft_bytes, 0);
    struct ledger *l;
    char path[LEDGER_PATH_MAX];
    path_of(path, UUID0, LEDGER_SUFFIX);
    assert_int_equal(ledger_open(path, &l), 0);
    ledger_reclaim_dead(l);
    assert_int_equal(ledger_used(l), 0);
    ledger_close(l);
}

static void forks(void) {
    CUdeviceptr p;
    limit(UUID0, "j", 1024ULL * MIB, 500, 0);
    shadow_load();
    CUcontext ctx = context(0);
    CHECK_EQ(CU(cuMemAlloc_v2)(&p, 64 * MIB), 0);
    CHECK_EQ(CU(cuLaunchKernel)((CUfunction)100000, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), 0);
    uint64_t before = job_used();
    pid_t pid = fork();
    if (pid == 0) { // owns nothing; what it makes is its own
        CHECK_EQ(CU(cuMemFree_v2)(p), 0);
        CHECK_EQ(job_used(), before);
        CHECK_EQ(CU(cuMemAlloc_v2)(&p, 32 * MIB), 0);
        CHECK_EQ(job_used(), before + 32 * MIB);
        CHECK_EQ(sample(UUID0).nprocesses, 2);
        for (int i = 0; i < 20; i++)
            CHECK_EQ(CU(cuLaunchKernel)((CUfunction)100000, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
                     0);
        _exit(0);
    }
    CHECK_EQ(finish(pid), 0);
    CUdeviceptr big;
    CHECK_EQ(CU(cuMemAlloc_v2)(&big, 1024ULL * MIB - before), 0); // the child's part came back
    CHECK_EQ(CU(cuMemFree_v2)(p), 0);
    CHECK_EQ(CU(cuLaunchKernel)((CUfunction)100000, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), 0);
    (void)ctx;
}

// Every function taken over reaches the driver under its own name, in every version.
static void everything(void) {
    CUdeviceptr p;
    unsigned u, u2;
    size_t n;
    CUcontext c;
    CUstream s;
    CUgraph g;
    CUgraphExec e;
    CUarray a;
    CUmodule m;
    CUlibrary l;
    CUmemGenericAllocationHandle h;
    limit(UUID0, "j", 8192ULL * MIB, 990, 0);
    shadow_load();
    context(0);
    CUresult (*create)(CUstream *, unsigned);
    *(void **)&create = shadow_symbol("cuStreamCreate");
    CUfunction f = (CUfunction)1000;
    struct CUlaunchConfig cfg = {.grid = {1, 1, 1}};
    struct CUlaunchParams params = {.f = f};
    struct CUarrayDesc_v1 d1 = {64, 64, 0x20, 1};
    struct CUarray3DDesc_v1 d3 = {64, 64, 2, 0x20, 1, 0};
    CHECK_EQ(CU(cuMemAlloc)(&u, MIB), 0), CHECK_EQ(CU(cuMemFree)(u), 0);
    CHECK_EQ(CU(cuMemAllocPitch)(&u, &u2, 1000, 10, 4), 0), CHECK_EQ(CU(cuMemFree)(u), 0);
    CHECK_EQ(CU(cuMemGetInfo)(&u, &u2), 0), CHECK_EQ(CU(cuDeviceTotalMem)(&u, 0), 0);
    CHECK_EQ(CU(cuArrayCreate)(&a, &d1), 0), CHECK_EQ(CU(cuArrayDestroy)(a), 0);
    CHECK_EQ(CU(cuArray3DCreate)(&a, &d3), 0), CHECK_EQ(CU(cuArrayDestroy)(a), 0);
    CHECK_EQ(CU(cuCtxCreate)(&c, 0, 0), 0), CHECK_EQ(CU(cuCtxDestroy)(c), 0);
    CHECK_EQ(CU(cuCtxCreate_v2)(&c, 0, 0), 0), CHECK_EQ(CU(cuCtxDestroy_v2)(c), 0);
    CHECK_EQ(CU(cuCtxCreate_v3)(&c, NULL, 0, 0, 0), 0), CHECK_EQ(CU(cuCtxDetach)(c), 0);
    CHECK_EQ(CU(cuCtxCreate_v4)(&c, NULL, 0, 0), 0), CHECK_EQ(CU(cuCtxDestroy_v2)(c), 0);
    CHECK_EQ(CU(cuModuleLoad)(&m, "x"), 0), CHECK_EQ(CU(cuModuleLoadData)(&m, "x"), 0);
    CHECK_EQ(CU(cuModuleLoadDataEx)(&m, "x", 0, NULL, NULL),
             0), CHECK_EQ(CU(cuModuleLoadFatBinary)(&m, "x"), 0);
    CHECK_EQ(CU(cuLibraryLoadData)(&l, "x", NULL, NULL, 0, NULL, NULL, 0), 0);
    CHECK_EQ(CU(cuLibraryLoadFromFile)(&l, "x", NULL, NULL, 0, NULL, NULL, 0), 0);
    CHECK_EQ(create(&s, 0), 0);
    CHECK_EQ(CU(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL), 0);
    CHECK_EQ(CU(cuLaunchKernel_ptsz)(f, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL), 0);
    CHECK_EQ(CU(cuLaunchKernelEx)(&cfg, f, NULL, NULL), 0), CHECK_EQ(CU(cuLaunchKernelEx_ptsz)(&cfg,
            f, NULL, NULL), 0);
    CHECK_EQ(CU(cuLaunchCooperativeKernel)(f, 1, 1, 1, 1, 1, 1, 0, s, NULL), 0);
    CHECK_EQ(CU(cuLaunchCooperativeKernel_ptsz)(f, 1, 1, 1, 1, 1, 1, 0, s, NULL), 0);
    CHECK_EQ(CU(cuLaunchCooperativeKernelMultiDevice)(&params, 1, 0), 0);
    CHECK_EQ(CU(cuLaunch)(f), 0), CHECK_EQ(CU(cuLaunchGrid)(f, 1, 1), 0);
    CHECK_EQ(CU(cuLaunchGridAsync)(f, 1, 1, s), 0);
    CHECK_EQ(CU(cuStreamBeginCapture)(s), 0), CHECK_EQ(CU(cuStreamEndCapture)(s, &g), 0);
    CHECK_EQ(CU(cuStreamBeginCapture_ptsz)(s), 0), CHECK_EQ(CU(cuStreamEndCapture_ptsz)(s, &g), 0);
    CHECK_EQ(CU(cuStreamBeginCapture_v2_ptsz)(s, 1), 0), CHECK_EQ(CU(cuStreamEndCapture)(s, &g), 0);
    CHECK_EQ(CU(cuStreamBeginCaptureToGraph)(s, g, NULL, NULL, 0, 1),
             0), CHECK_EQ(CU(cuStreamEndCapture)(s, &g), 0);
    CHECK_EQ(CU(cuStreamBeginCaptureToGraph_ptsz)(s, g, NULL, NULL, 0, 1),
             0), CHECK_EQ(CU(cuStreamEndCapture)(s, &g), 0);
    CHECK_EQ(CU(cuStreamBeginCapture_v2)(s, 2), 0), CHECK_EQ(CU(cuStreamEndCapture)(s, &g), 0);
    CHECK_EQ(CU(cuGraphInstantiate)(&e, g, NULL, NULL, 0), 0), CHECK_EQ(CU(cuGraphLaunch)(e, s), 0);
    CHECK_EQ(CU(cuGraphInstantiate_v2)(&e, g, NULL, NULL, 0), 0), CHECK_EQ(CU(cuGraphLaunch_ptsz)(e,
            s), 0);
    CHECK_EQ(CU(cuGraphInstantiateWithParams)(&e, g, NULL), 0), CHECK_EQ(CU(cuGraphUpload)(e, s),
            0);
    CHECK_EQ(CU(cuGraphInstantiateWithParams_ptsz)(&e, g, NULL),
             0), CHECK_EQ(CU(cuGraphUpload_ptsz)(e, s), 0);
    CHECK_EQ(CU(cuGraphInstantiateWithFlags)(&e, g, 0), 0), CHECK_EQ(CU(cuGraphExecDestroy)(e), 0);
    CHECK_EQ(CU(cuDeviceGraphMemTrim)(0), 0), CHECK_EQ(CU(cuEventSynchronize)(calloc(1, 64)), 0);
    CHECK_EQ(CU(cuStreamSynchronize)(s), 0), CHECK_EQ(CU(cuStreamSynchronize_ptsz)(s), 0);
    CHECK_EQ(CU(cuCtxSynchronize)(), 0), CHECK_EQ(CU(cuCtxSynchronize_v2)(NULL), 0);
    CHECK_EQ(CU(cuStreamDestroy)(s), 0), CHECK_EQ(create(&s, 0),
                                                  0), CHECK_EQ(CU(cuStreamDestroy_v2)(s), 0);
    CHECK_EQ(CU(cuMemAlloc_v2)(&p, MIB), 0), CHECK_EQ(CU(cuMemFree_v2)(p), 0);
    CHECK_EQ(CU(cuMemAllocPitch_v2)(&p, &n, 10, 10, 4), 0), CHECK_EQ(CU(cuMemAllocManaged)(&p, MIB,
            1), 0);
    CHECK_EQ(CU(cuMemGetInfo_v2)(&n, &n), 0), CHECK_EQ(CU(cuDeviceTotalMem_v2)(&n, 0), 0);
    CHECK_EQ(CU(cuMemAllocAsync)(&p, MIB, NULL), 0), CHECK_EQ(CU(cuMemFreeAsync)(p, NULL), 0);
    CHECK_EQ(CU(cuMemAllocAsync_ptsz)(&p, MIB, NULL), 0), CHECK_EQ(CU(cuMemFreeAsync_ptsz)(p, NULL),
            0);
    struct CUmemPoolProps props = {.alloc_type = 1, .location = {CU_LOCATION_DEVICE, 0}};
    CUmemoryPool pool;
    CHECK_EQ(CU(cuMemPoolCreate)(&pool, &props), 0), CHECK_EQ(CU(cuMemAllocFromPoolAsync)(&p, MIB,
            pool, NULL), 0);
    CHECK_EQ(CU(cuMemAllocFromPoolAsync_ptsz)(&p, MIB, pool, NULL),
             0), CHECK_EQ(CU(cuMemPoolTrimTo)(pool, 0), 0);
    CHECK_EQ(CU(cuMemPoolDestroy)(pool), 0), CHECK_EQ(CU(cuMemPoolImportFromShareableHandle)(&pool,
            NULL, 1, 0), 0);
    struct CUmemAllocationProp prop = {.type = 1, .location = {CU_LOCATION_DEVICE, 0}};
    CHECK_EQ(CU(cuMemCreate)(&h, 2 * MIB, &prop, 0), 0), CHECK_EQ(CU(cuMemMap)(0x40000000, 2 * MIB,
            0, h, 0), 0);
    CHECK_EQ(CU(cuMemRetainAllocationHandle)(&h, (void *)0x40000000),
             0), CHECK_EQ(CU(cuMemRelease)(h), 0);
    CHECK_EQ(CU(cuMemUnmap)(0x40000000, 2 * MIB),
             0), CHECK_EQ(CU(cuMemImportFromShareableHandle)(&h, NULL, 1), 0);
    struct CUarrayDesc dd = {64, 64, 0x20, 1};
    struct CUarray3DDesc dd3 = {64, 64, 2, 0x20, 1, 0};
    CUmipmappedArray mm;
    CHECK_EQ(CU(cuArrayCreate_v2)(&a, &dd), 0), CHECK_EQ(CU(cuArray3DCreate_v2)(&a, &dd3), 0);
    CHECK_EQ(CU(cuMipmappedArrayCreate)(&mm, &dd3, 2), 0), CHECK_EQ(CU(cuMipmappedArrayDestroy)(mm),
            0);
    CUcontext now = context(0), popped;
    CHECK_EQ(CU(cuCtxPushCurrent)(now), 0), CHECK_EQ(CU(cuCtxPopCurrent)(&popped), 0);
    CHECK_EQ(CU(cuCtxPushCurrent_v2)(now), 0), CHECK_EQ(CU(cuCtxPopCurrent_v2)(&popped), 0);
    CHECK_EQ(CU(cuDevicePrimaryCtxRelease)(0), 0);
    CHECK_EQ(CU(cuCtxSetLimit)(2, MIB), 0), CHECK_EQ(CU(cuDevicePrimaryCtxRelease)(0), 0);
    context(0), CHECK_EQ(CU(cuDevicePrimaryCtxRelease_v2)(0), 0);
    context(0), CHECK_EQ(CU(cuDevicePrimaryCtxReset)(0), 0);
    context(0), CHECK_EQ(CU(cuDevicePrimaryCtxReset_v2)(0), 0);
    static const char *const names[] = {
#define X(name) #name,
#include "../cuda_hooks.def"
#undef X
    };
    for (size_t i = 2; i < sizeof names / sizeof *names; i++) { // after the two cuGetProcAddress
        if (hits(names[i]) == 0)
            fprintf(stderr, "%s never reached the driver\n", names[i]);
        CHECK(hits(names[i]) > 0);
    }
    CHECK_EQ(counts()->spoiled, 0);
}

static void nvml_view(void) {
    struct nvmlMemory m;
    struct nvmlMemory_v2 m2 = {.version = 2};
    struct nvmlProcess_v2 list[4];
    struct nvmlProcess_v1 list1[4];
    unsigned n = 4;
    char name[16] = "";
    limit(UUID0, "j", 1024ULL * MIB, 0, 0);
    shadow_load();
    context(0);
    void *nvml = dlopen(getenv("TEST_NVML"), RTLD_NOW);
    CHECK(nvml);
    nvmlDevice d0 = (nvmlDevice)1, d1 = (nvmlDevice)2;
    nvmlReturn (*info)(nvmlDevice, struct nvmlMemory *), (*info2)(nvmlDevice,
            struct nvmlMemory_v2 *);
    nvmlReturn (*procs)(nvmlDevice, unsigned *, struct nvmlProcess_v2 *);
    nvmlReturn (*procs1)(nvmlDevice, unsigned *, struct nvmlProcess_v1 *);
    nvmlReturn (*get_name)(nvmlDevice, char *, unsigned), (*power)(nvmlDevice, unsigned *);
    *(void **)&info = dlsym(nvml, "nvmlDeviceGetMemoryInfo");
    *(void **)&info2 = dlsym(nvml, "nvmlDeviceGetMemoryInfo_v2");
    *(void **)&procs = dlsym(nvml, "nvmlDeviceGetComputeRunningProcesses_v3");
    *(void **)&procs1 = dlsym(nvml, "nvmlDeviceGetComputeRunningProcesses");
    *(void **)&get_name = dlsym(nvml, "nvmlDeviceGetName");
    *(void **)&power = dlsym(nvml, "nvmlDeviceGetPowerUsage");
    CHECK_EQ(info(d0, &m), 0);
    CHECK_EQ(m.total, 1024ULL * MIB);
    CHECK_EQ(m.used, job_used());
    CHECK_EQ(m.free, m.total - m.used);
    CHECK_EQ(info2(d0, &m2), 0);
    CHECK(m2.total == m.total && m2.used == m.used && m2.reserved == 0 && m2.version == 2);
    CHECK_EQ(info(d1, &m), 0);
    CHECK_EQ(m.total, 80ULL << 30);
    CHECK_EQ(procs(d0, &n, list), 0);
    CHECK(n == 1 && list[0].pid == (unsigned)getpid() && list[0].used_bytes == job_used());
    n = 0;
    CHECK_EQ(procs(d0, &n, NULL), NVML_ERROR_INSUFFICIENT_SIZE);
    CHECK_EQ(n, 1);
    CHECK_EQ(procs1(d0, &n, list1), 0);
    CHECK_EQ(list1[0].pid, getpid());
    CHECK_EQ(get_name(d0, name, sizeof name), 0);
    CHECK(!strcmp(name, "fake"));
    CHECK_EQ(power(d0, &n), NVML_ERROR_FUNCTION_NOT_FOUND);
}

// Every NVML function taken over shows the part where there is one, and the driver's answer where not.
static void nvml_everything(void) {
    static const char *const names[] = {
#define X(name) #name,
#include "../nvml_hooks.def"
#undef X
    };
    limit(UUID0, "j", 1024ULL * MIB, 0, 0);
    shadow_load();
    context(0);
    void *nvml = dlopen(getenv("TEST_NVML"), RTLD_NOW);
    CHECK(nvml);
    nvmlDevice d0 = (nvmlDevice)1, d1 = (nvmlDevice)2;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *name = names[i];
        bool driver_has = dlsym(fake_lib, name);
        union { struct nvmlMemory m; struct nvmlMemory_v2 m2; } u = {.m2.version = 2};
        struct nvmlProcess_v2 list[4] = {{0}};
        struct nvmlProcessDetail details[4] = {{0}};
        struct nvmlProcessDetailList detail = {.version = 1, .count = 4, .entry = details};
        unsigned n = 4;
        nvmlReturn (*one)(nvmlDevice, void *), (*two)(nvmlDevice, unsigned *, void *);
        *(void **)&one = *(void **)&two = dlsym(nvml, name);
        CHECK(one);
        if (strstr(name, "MemoryInfo")) {
            bool second = strstr(name, "_v2");
            CHECK_EQ(one(d0, &u), 0);
            CHECK_EQ(second ? u.m2.total : u.m.total, 1024ULL * MIB);
            CHECK_EQ(second ? u.m2.used : u.m.used, job_used());
            CHECK_EQ(one(d1, &u), 0);
            CHECK_EQ(second ? u.m2.total : u.m.total, 80ULL << 30);
        } else if (strstr(name, "DetailList")) {
            CHECK_EQ(one(d0, &detail), 0);
            CHECK(detail.count == 1 && details[0].pid == (unsigned)getpid() && details[0].used_bytes == job_used());
            detail.count = 0;
            CHECK_EQ(one(d0, &detail), NVML_ERROR_INSUFFICIENT_SIZE);
            CHECK_EQ(detail.count, 1);
            detail = (struct nvmlProcessDetailList){.version = 1, .mode = 1, .count = 4, .entry = details};
            CHECK_EQ(one(d0, &detail), 0); // graphics: none
            CHECK_EQ(detail.count, 0);
            CHECK_EQ(one(d1, &detail), driver_has ? 0 : NVML_ERROR_FUNCTION_NOT_FOUND);
        } else if (strstr(name, "RunningProcesses")) {
            bool computing = strstr(name, "GetCompute");
            CHECK_EQ(two(d0, &n, list), 0);
            CHECK_EQ(n, computing ? 1 : 0);
            CHECK(!computing || (list[0].pid == (unsigned)getpid() && list[0].used_bytes == job_used()));
            CHECK_EQ(two(d0, NULL, list), NVML_ERROR_INVALID_ARGUMENT);
            n = 4;
            CHECK_EQ(two(d1, &n, list), driver_has ? 0 : NVML_ERROR_FUNCTION_NOT_FOUND);
        } else {
            fprintf(stderr, "%s has no test\n", name);
            CHECK(false);
        }
    }
}

static void no_driver(void) {
    setenv("ACEQUIA_REAL_LIBCUDA", getenv("TEST_SHADOW"), 1); // itself: refused
    void *h = dlopen(getenv("TEST_SHADOW"), RTLD_NOW);
    CUresult (*init)(unsigned);
    *(void **)&init = dlsym(h, "cuInit");
    CHECK_EQ(init(0), CUDA_ERROR_NO_DEVICE);
    CUcontext c;
    shadow = h;
    CHECK_EQ(CU(cuDevicePrimaryCtxRetain)(&c, 0), CUDA_ERROR_NO_DEVICE);
}

#define CHILD(name) \
    static void name##_test(void **state) { in_child(name); }
CHILD(binds)
CHILD(binds_everything)
CHILD(memory)
CHILD(pools)
CHILD(vmm)
CHILD(arrays)
CHILD(graphs)
CHILD(threads)
CHILD(renumbered)
CHILD(broken_ledger)
CHILD(blind)
CHILD(forks)
CHILD(everything)
CHILD(nvml_view)
CHILD(nvml_everything)
CHILD(no_driver)

#define T(name) cmocka_unit_test_teardown(name, test_teardown)
int main(void) {
    const struct CMUnitTest tests[] = {
        T(binds_test), T(binds_everything_test), T(nvml_everything_test), T(memory_test), T(pools_test), T(vmm_test), T(arrays_test), T(graphs_test),
        T(threads_test), T(renumbered_test), T(broken_ledger_test), T(blind_test), T(forks_test),
        T(everything_test), T(nvml_view_test), T(no_driver_test), T(race_of_sixteen),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
