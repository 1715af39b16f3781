// The throttle thread: one thread per process that opens barriers and gives turns on while the program is
// elsewhere. It sleeps unless some throttle has work behind a barrier or a turn others want, takes no
// signals, and is gone after fork until the child needs its own.
#include <linux/futex.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shim/arbiter.h"
#include "throttle_state.h"

enum { THREAD_STACK = 512 << 10, THREAD_SLACK_NS = 1000, THREAD_NAP_NS = 5000 };
enum { THREAD_PATIENCE_NS = 20 * 1000 * 1000 };

static struct {
    pthread_mutex_t lock;
    bool started, at_exit;
    _Atomic bool ending;
    _Atomic uint32_t calls; // futex: counts requests to watch
} watcher = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct round {
    uint64_t due;
    unsigned watched;
    struct arbiter *arbiter; // of the only throttle watched
};

// A thread that marks a stream whose queue is full of what the program put there holds the lock and
// waits for the GPU, which waits at a barrier. Opening needs no lock, so that ends it.
static bool lock_or_open(struct throttle *g) {
    uint64_t from = shim_now_ns();
    while (!throttle_try(g)) {
        if (shim_now_ns() - from > THREAD_PATIENCE_NS) {
            barrier_force(g);
            return false;
        }
        shim_sleep_ns(THREAD_NAP_NS);
    }
    return true;
}

static void visit(struct throttle *g, void *arg) {
    struct round *r = arg;
    if (!atomic_load_explicit(&g->watched, memory_order_relaxed))
        return;
    if (!lock_or_open(g)) {
        r->watched++;
        return;
    }
    uint64_t due = 0;
    if (g->ctx && REAL(cuCtxSetCurrent)(g->ctx) == CUDA_SUCCESS) {
        due = barrier_step(g);
        REAL(cuCtxSetCurrent)(NULL); // it may be destroyed before we come again
    }
    if (!due)
        atomic_store_explicit(&g->watched, false, memory_order_relaxed);
    throttle_unlock(g);
    if (!due)
        return;
    r->watched++;
    r->arbiter = due == BARRIER_TURN_NS ? g->arbiter : NULL;
    if (due < r->due)
        r->due = due;
}

static void *keep(void *arg) {
    prctl(PR_SET_TIMERSLACK, THREAD_SLACK_NS, 0, 0, 0);
    prctl(PR_SET_NAME, "acequia-gpu", 0, 0, 0);
    while (!atomic_load(&watcher.ending)) {
        uint32_t calls = atomic_load(&watcher.calls);
        struct round r = {.due = BARRIER_LOOK_NS};
        throttle_each(visit, &r);
        if (!r.watched)
            syscall(SYS_futex, &watcher.calls, FUTEX_WAIT_PRIVATE, calls, NULL, NULL, 0);
        else if (r.watched == 1 && r.arbiter)
            arbiter_wait(r.arbiter, r.due);
        else
            shim_sleep_ns(r.due);
    }
    return NULL;
}

static void open_barriers(struct throttle *g, void *arg) {
    if (lock_or_open(g)) {
        barrier_open_all(g);
        barrier_drop(g);
        throttle_unlock(g);
    }
}

// Registered after the driver's own, so run before it: nothing must wait at a barrier while the driver
// takes itself down, and it must not be called from here any more.
static void at_exit(void) {
    atomic_store(&watcher.ending, true);
    throttle_each(open_barriers, NULL);
}

static void throttle_thread_start(void) {
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, old;
    if (!watcher.at_exit)
        watcher.at_exit = atexit(at_exit) == 0;
    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, THREAD_STACK);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    watcher.started = pthread_create(&thread, &attr, keep, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
}

// With the throttle's lock held.
void throttle_thread_watch(struct throttle *g) {
    if (atomic_load_explicit(&g->watched, memory_order_relaxed))
        return;
    atomic_store_explicit(&g->watched, true, memory_order_relaxed);
    pthread_mutex_lock(&watcher.lock);
    if (!watcher.started)
        throttle_thread_start();
    bool started = watcher.started;
    pthread_mutex_unlock(&watcher.lock);
    if (!started) { // no thread to be had: without it no barrier would open
        barrier_open_all(g);
        barrier_drop(g);
        atomic_store(&g->watched, false);
        return;
    }
    atomic_fetch_add(&watcher.calls, 1);
    syscall(SYS_futex, &watcher.calls, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void throttle_thread_after_fork(void) {
    pthread_mutex_init(&watcher.lock, NULL);
    watcher.started = false;
}
