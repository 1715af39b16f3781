// Barriers over the simulated driver: what must not hang or go unseen. Programs that exit, fork, reset
// their context, fill the driver's queue or change contexts by ways of their own while the GPU
// waits; captures beside barriers; drivers without them.
#include "shadow.h"

#include <pthread.h>

static CUstream stream(void) {
    CUstream s;
    CUresult (*create)(CUstream *, unsigned);
    *(void **)&create = shadow_symbol("cuStreamCreate");
    CHECK_EQ(create(&s, 0), 0);
    return s;
}

static void launch(CUstream s, uint64_t ns) {
    CHECK_EQ(CU(cuLaunchKernel)((CUfunction)(uintptr_t)ns, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL), 0);
}

// A context at so small a share that work is behind barriers for long.
static CUcontext held(uint32_t milli) {
    limit(UUID0, "j", 0, milli, 0);
    shadow_load();
    CUcontext ctx = context(0);
    launch(NULL, 1000000); // known from now on
    CHECK_EQ(CU(cuCtxSynchronize)(), 0);
    return ctx;
}

static void shut_some(CUstream s) {
    for (int i = 0; i < 12; i++)
        launch(s, 1000000);
    CHECK(counts()->barriers > 0);
}

static void wait_for_kernels(uint64_t n, uint64_t at_most_ns) {
    uint64_t from = clock_ns();
    while (counts()->kernels < n && clock_ns() - from < at_most_ns)
        usleep(1000);
    CHECK_EQ(counts()->kernels, n);
}

static void the_program_goes_on(void) {
    held(100);
    uint64_t from = clock_ns(), n = counts()->kernels;
    shut_some(NULL); // 12 ms of work, which takes 120
    CHECK(counts()->kernels < n + 12);
    wait_for_kernels(n + 12, 20000000000); // with nobody in a call of ours
    CHECK(clock_ns() - from > 50000000);
}

static void exits(void) {
    held(2);
    shut_some(NULL);
    exit(0); // the driver's own end would wait for all that was launched
}

static void resets(void) {
    held(2);
    uint64_t n = counts()->kernels;
    shut_some(NULL);
    CHECK_EQ(CU(cuDevicePrimaryCtxReset_v2)(0), 0);
    wait_for_kernels(n + 12, 10000000000); // the barriers were opened before the context went
    context(0);
    launch(NULL, 1000);
    CHECK_EQ(CU(cuCtxSynchronize)(), 0);
}

static void forks(void) {
#ifdef __SANITIZE_ADDRESS__
    return; // its allocator cannot be forked while other threads allocate: the child may wait for ever
#endif
    held(50);
    shut_some(NULL);
    pid_t pid = fork();
    if (pid == 0) { // owns nothing of it, and needs a throttle thread of its own
        alarm(60);
        context(0);
        for (int i = 0; i < 12; i++)
            launch(NULL, 500000);
        CHECK_EQ(CU(cuCtxSynchronize)(), 0);
        _exit(0);
    }
    CHECK_EQ(finish(pid), 0);
    CHECK_EQ(CU(cuCtxSynchronize)(), 0);
}

static _Atomic bool filled;
static void *fill(void *arg) {
    CUresult (*set)(CUdeviceptr, unsigned char, size_t, CUstream);
    *(void **)&set = shadow_symbol("cuMemsetD8Async");
    while (!filled)
        CHECK_EQ(set(0, 0, 1, NULL), 0);
    return NULL;
}

// Another thread puts more into the stream than the driver takes, so that our own marks have to
// wait for room there, behind a barrier.
static void fills_the_queue(void) {
    pthread_t t;
    held(20);
    uint64_t n = counts()->kernels, from = clock_ns();
    shut_some(NULL);
    CHECK_EQ(pthread_create(&t, NULL, fill, NULL), 0);
    usleep(20000);
    for (int i = 0; i < 10; i++)
        launch(NULL, 1000000);
    filled = true;
    pthread_join(t, NULL);
    CHECK_EQ(CU(cuCtxSynchronize)(), 0);
    CHECK_EQ(counts()->kernels, n + 22);
    CHECK(clock_ns() - from < 20000000000);
}

static void *other_stream(void *arg) {
    CUcontext ctx = arg;
    CUresult (*set)(CUcontext);
    *(void **)&set = shadow_symbol("cuCtxSetCurrent");
    CHECK_EQ(set(ctx), 0);
    CUstream s = stream();
    for (int i = 0; i < 40; i++)
        launch(s, 20000 + (uint64_t)(i % 4) * 100000);
    CHECK_EQ(CU(cuStreamSynchronize)(s), 0);
    CHECK_EQ(CU(cuStreamDestroy_v2)(s), 0);
    return NULL;
}

// More streams than may have barriers: some launches wait in the program instead.
static void many_streams(void) {
    pthread_t t[10];
    CUcontext ctx = held(600);
    uint64_t n = counts()->kernels;
    for (int i = 0; i < 10; i++)
        CHECK_EQ(pthread_create(&t[i], NULL, other_stream, ctx), 0);
    for (int i = 0; i < 10; i++)
        pthread_join(t[i], NULL);
    CHECK_EQ(counts()->kernels, n + 400);
}

static void captures_beside_barriers(void) {
    CUgraph g;
    CUgraphExec exec;
    held(100);
    CUstream busy = stream(), s = stream();
    shut_some(busy);
    CHECK_EQ(CU(cuStreamBeginCapture_v2)(s, 0), 0);
    for (int i = 0; i < 10; i++) {
        launch(s, 100000);
        launch(busy, 300000);
    }
    CHECK_EQ(CU(cuStreamEndCapture)(s, &g), 0);
    CHECK_EQ(CU(cuGraphInstantiateWithFlags)(&exec, g, 0), 0);
    CHECK_EQ(CU(cuGraphLaunch)(exec, s), 0);
    CHECK_EQ(CU(cuCtxSynchronize)(), 0);
    CHECK_EQ(counts()->spoiled, 0);
}

static void no_barriers(void) {
    setenv("FAKE_NO_BARRIERS", "1", 1);
    held(200);
    uint64_t from = clock_ns();
    for (int i = 0; i < 40; i++)
        launch(NULL, 1000000);
    CHECK_EQ(CU(cuCtxSynchronize)(), 0);
    CHECK_EQ(counts()->barriers, 0);
    CHECK(clock_ns() - from > 120000000); // 40 ms of work at a fifth, less what was saved up
}

// A library that talks to the driver past us may change the context; it is noticed, and from then
// on each launch asks.
static void unseen_context(void) {
    CUcontext other;
    CUresult (*retain)(CUcontext *, CUdevice), (*set)(CUcontext), (*seen)(CUcontext);
    CUcontext ctx = held(900);
    *(void **)&retain = dlsym(fake_lib, "cuDevicePrimaryCtxRetain");
    *(void **)&set = dlsym(fake_lib, "cuCtxSetCurrent");
    *(void **)&seen = shadow_symbol("cuCtxSetCurrent");
    CHECK_EQ(retain(&other, 1), 0);
    CHECK_EQ(seen(ctx), 0);
    for (int i = 0; i < 300; i++)
        launch(NULL, 1000);
    CHECK_EQ(set(other), 0);
    for (int i = 0; i < 300; i++) // on the other GPU, which is not limited
        launch(NULL, 1000);
    CHECK_EQ(set(ctx), 0);
    CHECK_EQ(CU(cuCtxSynchronize)(), 0);
    uint64_t before = sample(UUID0).launches;
    CHECK(before < 300 + 100);
    CHECK_EQ(set(other), 0);
    for (int i = 0; i < 2000; i++)
        launch(NULL, 1000);
    CHECK_EQ(set(ctx), 0);
    for (int i = 0; i < 256; i++)
        launch(NULL, 1000);
    CHECK_EQ(CU(cuCtxSynchronize)(), 0);
    uint64_t after = sample(UUID0).launches;
    CHECK(after >= before && after - before < 700);
}

// Whoever changes it by the usual call is believed at once.
static void seen_context(void) {
    CUcontext other;
    CUresult (*set)(CUcontext);
    CUcontext ctx = held(900);
    *(void **)&set = shadow_symbol("cuCtxSetCurrent");
    CHECK_EQ(CU(cuDevicePrimaryCtxRetain)(&other, 1), 0);
    for (int i = 0; i < 5; i++) {
        CHECK_EQ(set(ctx), 0);
        launch(NULL, 1000);
        CHECK_EQ(set(other), 0);
        for (int k = 0; k < 60; k++)
            launch(NULL, 1000);
    }
    CHECK_EQ(set(ctx), 0);
    CHECK_EQ(CU(cuCtxSynchronize)(), 0);
    launch(NULL, 1000000);
    CHECK_EQ(CU(cuCtxSynchronize)(), 0);
    CHECK_EQ(sample(UUID0).launches, 1 + 5 + 1);
}

#define CHILD(name) \
    static void name##_test(void **state) { in_child(name); }
CHILD(the_program_goes_on)
CHILD(exits)
CHILD(resets)
CHILD(forks)
CHILD(fills_the_queue)
CHILD(many_streams)
CHILD(captures_beside_barriers)
CHILD(no_barriers)
CHILD(unseen_context)
CHILD(seen_context)

#define T(name) cmocka_unit_test_teardown(name##_test, test_teardown)
int main(void) {
    const struct CMUnitTest tests[] = {
        T(the_program_goes_on), T(exits), T(resets), T(forks), T(fills_the_queue), T(many_streams),
        T(captures_beside_barriers), T(no_barriers), T(unseen_context), T(seen_context),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
