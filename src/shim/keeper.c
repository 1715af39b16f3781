// The keeper: one thread per process that opens doors and gives turns on while the program is
// elsewhere. It sleeps unless some gate has work behind a door or a turn others want, takes no
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
#include "gate_state.h"

enum { KEEPER_STACK = 512 << 10, KEEPER_SLACK_NS = 1000, KEEPER_NAP_NS = 5000 };
enum { KEEPER_PATIENCE_NS = 20 * 1000 * 1000 };

static struct {
    pthread_mutex_t lock;
    bool started, at_exit;
    _Atomic bool ending;
    _Atomic uint32_t calls; // futex: counts requests to watch
} keeper = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct round {
    uint64_t due;
    unsigned watched;
    struct arbiter *arbiter; // of the only gate watched
};

// A thread that marks a stream whose queue is full of what the program put there holds the lock and
// waits for the GPU, which waits at a door. Opening needs no lock, so that ends it.
static bool lock_or_open(struct gate *g) {
    uint64_t from = shim_now_ns();
    while (!gate_try(g)) {
        if (shim_now_ns() - from > KEEPER_PATIENCE_NS) {
            door_force(g);
            return false;
        }
        shim_sleep_ns(KEEPER_NAP_NS);
    }
    return true;
}

static void visit(struct gate *g, void *arg) {
    struct round *r = arg;
    if (!atomic_load_explicit(&g->watched, memory_order_relaxed))
        return;
    if (!lock_or_open(g)) {
        r->watched++;
        return;
    }
    uint64_t due = 0;
    if (g->ctx && REAL(cuCtxSetCurrent)(g->ctx) == CUDA_SUCCESS) {
        due = door_step(g);
        REAL(cuCtxSetCurrent)(NULL); // it may be destroyed before we come again
    }
    if (!due)
        atomic_store_explicit(&g->watched, false, memory_order_relaxed);
    gate_unlock(g);
    if (!due)
        return;
    r->watched++;
    r->arbiter = due == DOOR_TURN_NS ? g->arbiter : NULL;
    if (due < r->due)
        r->due = due;
}

static void *keep(void *arg) {
    prctl(PR_SET_TIMERSLACK, KEEPER_SLACK_NS, 0, 0, 0);
    prctl(PR_SET_NAME, "acequia-gpu", 0, 0, 0);
    while (!atomic_load(&keeper.ending)) {
        uint32_t calls = atomic_load(&keeper.calls);
        struct round r = {.due = DOOR_LOOK_NS};
        gate_each(visit, &r);
        if (!r.watched)
            syscall(SYS_futex, &keeper.calls, FUTEX_WAIT_PRIVATE, calls, NULL, NULL, 0);
        else if (r.watched == 1 && r.arbiter)
            arbiter_wait(r.arbiter, r.due);
        else
            shim_sleep_ns(r.due);
    }
    return NULL;
}

static void open_doors(struct gate *g, void *arg) {
    if (lock_or_open(g)) {
        door_open_all(g);
        door_drop(g);
        gate_unlock(g);
    }
}

// Registered after the driver's own, so run before it: nothing must wait at a door while the driver
// takes itself down, and it must not be called from here any more.
static void at_exit(void) {
    atomic_store(&keeper.ending, true);
    gate_each(open_doors, NULL);
}

static void keeper_start(void) {
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, old;
    if (!keeper.at_exit)
        keeper.at_exit = atexit(at_exit) == 0;
    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, KEEPER_STACK);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    keeper.started = pthread_create(&thread, &attr, keep, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
}

// With the gate's lock held.
void keeper_watch(struct gate *g) {
    if (atomic_load_explicit(&g->watched, memory_order_relaxed))
        return;
    atomic_store_explicit(&g->watched, true, memory_order_relaxed);
    pthread_mutex_lock(&keeper.lock);
    if (!keeper.started)
        keeper_start();
    bool started = keeper.started;
    pthread_mutex_unlock(&keeper.lock);
    if (!started) { // no thread to be had: without it no door would open
        door_open_all(g);
        door_drop(g);
        atomic_store(&g->watched, false);
        return;
    }
    atomic_fetch_add(&keeper.calls, 1);
    syscall(SYS_futex, &keeper.calls, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void keeper_after_fork(void) {
    pthread_mutex_init(&keeper.lock, NULL);
    keeper.started = false;
}
