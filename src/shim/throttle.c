// Letting through. A launch joins its stream's segment at once; whether the segment may run now is
// decided when it is begun and looked at again every few launches: if not, the next one gets a barrier.
// The program itself waits only when it is far ahead of the GPU, or where no barrier can be had.
#include "throttle.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "shim/arbiter.h"
#include "bucket.h"
#include "throttle_state.h"

enum { THROTTLES = 64, COUNT_EVERY = 256, SPINS = 200, YIELDS = 20, SEGMENTS_SPARE = 4 };
enum { LOCK_NAP_NS = 20 * 1000, WAIT_NAP_NS = 100 * 1000 };
enum { MARK_NONE, MARK_CLOSE };

static struct {
    pthread_mutex_t lock;
    struct throttle *throttle[THROTTLES];
} throttles = {.lock = PTHREAD_MUTEX_INITIALIZER};

__thread struct throttle_mine throttle_mine;

static void cpu_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("yield");
#endif
}

void throttle_lock(struct throttle *g) {
    for (unsigned i = 0; !throttle_try(g); i++) {
        if (i < SPINS)
            cpu_relax();
        else if (i < SPINS + YIELDS)
            sched_yield();
        else
            shim_sleep_ns(LOCK_NAP_NS);
    }
}

static void throttle_setup(struct throttle *g, CUcontext ctx, struct shim_device *d) {
    uint32_t milli = atomic_load(ledger_compute_milli(d->ledger));
    g->device = d;
    g->ledger = d->ledger;
    g->arbiter = d->arbiter;
    g->line = -1;
    g->moved_ns = shim_now_ns();
    g->company_at_ns = g->held_ns = g->run_end_ns = g->left_ns = g->busy_until = 0;
    g->company = false;
    g->sure = 0;
    atomic_store(&g->watched, false);
    if (g->arbiter)
        g->line = arbiter_join(g->arbiter, ledger_job(d->ledger), milli, g->moved_ns);
    g->ctx = meter_events(g) ? ctx : NULL;
    if (g->ctx)
        barrier_make(g);
}

static struct throttle *throttle_new(void) {
    struct throttle *g = aligned_alloc(64, sizeof *g);
    if (!g)
        abort();
    memset(g, 0, sizeof *g);
    return g;
}

static struct throttle *throttle_find(CUcontext ctx, struct shim_device *d) {
    struct throttle *found = NULL;
    int unused = -1;
    pthread_mutex_lock(&throttles.lock);
    for (int i = 0; i < THROTTLES && !found; i++) {
        if (throttles.throttle[i] && throttles.throttle[i]->ctx == ctx)
            found = throttles.throttle[i];
        else if (unused < 0 && (!throttles.throttle[i] || !throttles.throttle[i]->ctx))
            unused = i;
    }
    if (!found && unused >= 0) {
        if (!throttles.throttle[unused])
            throttles.throttle[unused] = throttle_new();
        found = throttles.throttle[unused];
        throttle_lock(found);
        throttle_setup(found, ctx, d);
        throttle_unlock(found);
        if (!found->ctx)
            found = NULL;
    }
    pthread_mutex_unlock(&throttles.lock);
    return found;
}

void throttle_each(void (*visit)(struct throttle *g, void *arg), void *arg) {
    struct throttle *all[THROTTLES];
    pthread_mutex_lock(&throttles.lock);
    memcpy(all, throttles.throttle, sizeof all);
    pthread_mutex_unlock(&throttles.lock);
    for (int i = 0; i < THROTTLES; i++) // kept once made
        if (all[i])
            visit(all[i], arg);
}

void throttle_moved(void) {
    throttle_mine.trust = 0;
    throttle_mine.told = true;
}

// A context that changed without a call we saw: from then on it is asked for at every launch.
static void ask(unsigned epoch) {
    struct throttle_mine *mine = &throttle_mine;
    CUcontext ctx = NULL;
    REAL(cuCtxGetCurrent)(&ctx);
    if (ctx != mine->ctx && mine->ctx && !mine->told && epoch == mine->epoch)
        atomic_store_explicit(&shim.asks, true, memory_order_relaxed);
    if (ctx != mine->ctx || epoch != mine->epoch) {
        struct shim_device *d = ctx ? shim_current() : NULL;
        *mine = (struct throttle_mine){.ctx = ctx, .device = d, .epoch = epoch,
                                   .milli = d ? ledger_compute_milli(d->ledger) : NULL};
    }
    mine->told = false;
    mine->trust = ctx && !atomic_load_explicit(&shim.asks, memory_order_relaxed) ? THROTTLE_TRUST : 0;
}

struct throttle *throttle_current(void) {
    struct throttle_mine *mine = &throttle_mine;
    if (!shim.enabled)
        return NULL;
    unsigned epoch = atomic_load_explicit(&shim.throttle_epoch, memory_order_acquire);
    if (!mine->trust || epoch != mine->epoch)
        ask(epoch);
    else
        mine->trust--;
    if (!mine->milli)
        return NULL;
    uint32_t milli = atomic_load_explicit(mine->milli, memory_order_relaxed);
    if (milli == 0 || milli >= 1000)
        return mine->throttle = NULL; // looked at each time: the limit may come later
    if (!mine->throttle)
        mine->throttle = throttle_find(mine->ctx, mine->device);
    return mine->throttle;
}

struct throttle_view throttle_look(struct throttle *g) {
    return (struct throttle_view){
        .now = shim_now_ns(),
        .milli = atomic_load_explicit(ledger_compute_milli(g->ledger), memory_order_relaxed),
        .borrow = atomic_load_explicit(ledger_flags(g->ledger),
                                       memory_order_relaxed) & LEDGER_BORROW,
    };
}

static unsigned pending(const struct throttle *g) {
    return THROTTLE_SEGMENTS - g->nunused;
}

static bool too_far(const struct throttle *g) {
    return (g->flight_ns > THROTTLE_AHEAD_NS && pending(g) >= 2) || g->nunused < SEGMENTS_SPARE;
}

// A kernel may wait for something this very thread is about to do (a peer's launch, a flag in host
// memory): when nothing moves for long, waiting ends and the launch goes on.
static bool wait_ends(const struct throttle *g, const struct throttle_view *v) {
    double running = barrier_running(g);
    return !g->ctx || v->milli == 0 || v->milli >= 1000 ||
           (running > 0 && v->now > g->moved_ns + THROTTLE_STUCK_NS + 4 * (uint64_t)running);
}

// Called and left with the lock held; dropped meanwhile.
static void nap(struct throttle *g, struct throttle_view *v) {
    uint64_t from = v->now;
    throttle_unlock(g);
    shim_sleep_ns(WAIT_NAP_NS);
    throttle_lock(g);
    if (g->ctx)
        barrier_step(g);
    *v = throttle_look(g);
    if (g->ctx && !g->nshut)
        ledger_count_launches(g->ledger, 0, v->now - from);
}

// While the job is nowhere near its limit its time need not be measured to the microsecond.
static bool plenty(const struct throttle *g, const struct throttle_view *v) {
    if (v->borrow && g->line >= 0)
        return !arbiter_contended(g->arbiter, g->line, v->now);
    return bucket_balance(ledger_compute(g->ledger), v->milli, v->now) >=
           (int64_t)BUCKET_CAP_NS / 1000 * v->milli;
}

// The segment the next launch on this stream joins; NULL: it goes unmeasured.
static struct segment *segment_for(struct throttle *g, struct lane *l, struct throttle_view *v) {
    meter_stalled(g, l, v->now);
    if (l->open && l->open->batch != g->batch)
        meter_close(g, l, v->now);
    if (l->open && l->open->shut)
        return l->open;
    CUstream stream = l->stream;
    bool free = barrier_free(g, v), per_thread = l->per_thread;
    if (l->open && free)
        return l->open;
    meter_close(g, l, v->now);
    meter_poll(g);
    bool shut = !free && !(free = barrier_free(g, v)) && barrier_possible(g, l);
    while (!free && !shut && !wait_ends(g, v)) {
        nap(g, v);
        free = !g->ctx || barrier_free(g, v);
        shut = !free && barrier_possible(g, l);
    }
    if (!g->ctx || !l->used || l->stream != stream || l->per_thread != per_thread)
        return NULL; // gone, or given to another stream, while we napped
    if (l->open)
        return l->open;
    return meter_open(g, l, v->now, !shut && plenty(g, v), shut) ? l->open : NULL;
}

// Ends are marked at once in all streams: later the program may have put a wait for the next batch
// before the mark, and what ran would seem to run on.
static void next_batch(struct throttle *g, const struct lane *but, uint64_t now) {
    g->batch++;
    g->batch_ns = 0;
    for (int i = 0; i < THROTTLE_LANES; i++)
        if (g->lane[i].used && &g->lane[i] != but && !barrier_own_stream(&g->lane[i]))
            meter_close(g, &g->lane[i], now);
}

// Launches like this one may follow without a look around, within what the segment has left.
static void give_room(struct throttle *g, struct lane *l, struct segment *s) {
    double left = THROTTLE_SEGMENT_NS - g->batch_ns;
    unsigned places = THROTTLE_SEGMENT_LAUNCHES - 1 - s->n;
    g->open = s;
    g->room_stream = l->stream;
    g->room_per_thread = l->per_thread;
    g->room = places < THROTTLE_ROOM ? places : THROTTLE_ROOM;
    g->room_ns = g->granted_ns = left < THROTTLE_ROOM_NS ? (float)left : THROTTLE_ROOM_NS;
}

// Adds the launch to its stream's segment; says whether the segment ends with it.
static unsigned enlist(struct throttle *g, struct lane *l, struct segment *s, uint64_t key,
                       uint64_t now) {
    unsigned k = meter_kernel(g, key);
    float ns = g->kernel[k].ns;
    s->launch[s->n++] = (struct launch){k, ns};
    s->est_ns += ns;
    s->last_ns = now;
    g->batch_ns += ns;
    g->flight_ns += ns;
    if (!s->shut)
        barrier_added(g, now, ns);
    if (!g->kernel[k].seen)
        g->sure = 0;
    s->ending = s->n == THROTTLE_SEGMENT_LAUNCHES || g->batch_ns >= THROTTLE_SEGMENT_NS || !g->kernel[k].seen;
    if (s->ending)
        next_batch(g, l, now);
    if (!s->ending)
        give_room(g, l, s);
    return s->ending ? MARK_CLOSE : MARK_NONE;
}

static unsigned admit(struct throttle *g, CUstream stream, bool per_thread, uint64_t key) {
    struct throttle_view v = throttle_look(g);
    barrier_settle(g, v.now);
    if (too_far(g))
        meter_poll(g);
    while (too_far(g) && !wait_ends(g, &v))
        nap(g, &v);
    struct lane *l = g->ctx ? meter_lane(g, stream, per_thread, v.now) : NULL;
    if (!l && g->ctx) { // more streams at once than we follow
        meter_close_all(g, v.now);
        nap(g, &v);
        l = g->ctx ? meter_lane(g, stream, per_thread, v.now) : NULL;
    }
    struct segment *s = l ? segment_for(g, l, &v) : NULL;
    unsigned mark = s ? enlist(g, l, s, key, v.now) : MARK_NONE;
    if (g->ctx && g->line >= 0 && arbiter_holds(g->arbiter, g->line)) {
        g->busy_until = arbiter_launched(g->arbiter, g->line, v.now, g->busy_until, g->run_end_ns);
    }
    if (g->nshut)
        throttle_thread_watch(g);
    return mark;
}

unsigned throttle_before(struct throttle *g, CUstream stream, bool per_thread, uint64_t key) {
    if (shim_capturing(stream, per_thread))
        return MARK_NONE;
    throttle_lock(g);
    g->serial++;
    unsigned mark = g->ctx ? admit(g, stream, per_thread, key) : MARK_NONE;
    if (g->serial - g->counted >= COUNT_EVERY || mark == MARK_CLOSE) {
        ledger_count_launches(g->ledger, g->serial - g->counted, 0);
        g->counted = g->serial;
    }
    throttle_unlock(g);
    return mark;
}

void throttle_after(struct throttle *g, CUstream stream, bool per_thread, unsigned mark) {
    if (mark != MARK_CLOSE)
        return;
    uint64_t now = shim_now_ns();
    throttle_lock(g);
    for (int i = 0; i < THROTTLE_LANES && g->ctx; i++) {
        struct lane *l = &g->lane[i];
        if (l->used && l->stream == stream && l->per_thread == per_thread)
            meter_close(g, l, now);
    }
    throttle_unlock(g);
}

struct throttle *throttle_sync_begin(void) {
    struct throttle *g = throttle_current();
    if (!g)
        return NULL;
    throttle_lock(g);
    if (g->ctx) {
        uint64_t now = shim_now_ns();
        meter_close_all(g, now);
        next_batch(g, NULL, now);
        if (g->nshut || (g->line >= 0 && arbiter_holds(g->arbiter, g->line) &&
                         arbiter_contended(g->arbiter, g->line, now)))
            throttle_thread_watch(g);
    }
    throttle_unlock(g);
    return g;
}

void throttle_sync_end(struct throttle *g) {
    if (!g)
        return;
    throttle_lock(g);
    if (g->ctx)
        meter_poll(g);
    throttle_unlock(g);
}

// A stream that is gone must not be marked any more; what it still runs is charged by estimate.
void throttle_stream_gone(CUstream stream) {
    struct throttle *g = throttle_current();
    if (!g)
        return;
    throttle_lock(g);
    for (int i = 0; i < THROTTLE_LANES; i++) {
        struct lane *l = &g->lane[i];
        if (!l->used || l->stream != stream)
            continue;
        meter_close(g, l, shim_now_ns());
        l->stream = NULL;
        l->per_thread = false;
        l->used = l->pending > 0; // kept until its marks are read, under no stream's name
        if (l->used)
            l->stream = (CUstream)(uintptr_t)-1;
    }
    g->last = NULL;
    throttle_unlock(g);
}

static void forget(struct throttle *g) {
    meter_poll(g);
    barrier_open_all(g);
    barrier_drop(g);
    g->ctx = NULL;
    REAL(cuEventDestroy_v2)(g->base);
    for (int k = 0; k < THROTTLE_SEGMENTS; k++) {
        REAL(cuEventDestroy_v2)(g->segment[k].start);
        REAL(cuEventDestroy_v2)(g->segment[k].end);
    }
    meter_reset(g);
}

void throttle_forget(CUcontext ctx) {
    if (!ctx)
        return;
    pthread_mutex_lock(&throttles.lock);
    for (int i = 0; i < THROTTLES; i++) {
        struct throttle *g = throttles.throttle[i];
        if (!g)
            continue;
        throttle_lock(g);
        if (g->ctx == ctx)
            forget(g);
        throttle_unlock(g);
    }
    atomic_fetch_add(&shim.throttle_epoch, 1);
    pthread_mutex_unlock(&throttles.lock);
}

void throttle_after_fork(void) {
    pthread_mutex_init(&throttles.lock, NULL);
    atomic_fetch_add(&shim.throttle_epoch, 1);
    for (int i = 0; i < THROTTLES; i++) // the parent's, locks and all; the child makes its own
        throttles.throttle[i] = NULL;
    throttle_thread_after_fork();
}
