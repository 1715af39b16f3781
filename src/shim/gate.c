// Letting through and holding back. A launch goes on while the job has its turn on the GPU (where
// jobs share one) and, unless it may borrow, while its bucket covers what is in flight. One that
// must wait first sees its own work finished, so that nothing of it runs in another job's turn.
#include "gate.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "arbiter.h"
#include "bucket.h"
#include "gate_state.h"

enum { GATES = 64, COUNT_EVERY = 256 };
enum { MARK_NONE, MARK_CLOSE };

static struct {
    pthread_mutex_t lock;
    struct gate *gate[GATES];
} gates = {.lock = PTHREAD_MUTEX_INITIALIZER};

static __thread struct {
    CUcontext ctx;
    struct device *device;
    _Atomic uint32_t *milli; // NULL: no ledger here
    struct gate *gate;
    unsigned epoch;
} mine __attribute__((tls_model("initial-exec")));

static void gate_setup(struct gate *g, CUcontext ctx, struct device *d) {
    g->ctx = ctx;
    g->device = d;
    g->ledger = d->ledger;
    g->arbiter = d->arbiter;
    g->line = -1;
    g->stretch = 1;
    uint32_t milli = atomic_load(ledger_compute_milli(d->ledger));
    if (g->arbiter)
        g->line = arbiter_join(g->arbiter, ledger_job(d->ledger), milli, shim_now_ns());
}

static struct gate *gate_find(CUcontext ctx, struct device *d) {
    struct gate *found = NULL;
    int unused = -1;
    pthread_mutex_lock(&gates.lock);
    for (int i = 0; i < GATES && !found; i++) {
        if (gates.gate[i] && gates.gate[i]->ctx == ctx)
            found = gates.gate[i];
        else if (unused < 0 && (!gates.gate[i] || !gates.gate[i]->ctx))
            unused = i;
    }
    if (!found && unused >= 0) {
        if (!gates.gate[unused]) {
            gates.gate[unused] = calloc(1, sizeof(struct gate));
            if (!gates.gate[unused])
                abort();
            pthread_mutex_init(&gates.gate[unused]->lock, NULL);
        }
        found = gates.gate[unused];
        gate_setup(found, ctx, d);
        if (!meter_events(found)) {
            found->ctx = NULL;
            found = NULL;
        }
    }
    pthread_mutex_unlock(&gates.lock);
    return found;
}

struct gate *gate_current(void) {
    CUcontext ctx = NULL;
    if (!shim.enabled)
        return NULL;
    REAL(cuCtxGetCurrent)(&ctx);
    unsigned epoch = atomic_load_explicit(&shim.gate_epoch, memory_order_acquire);
    if (ctx != mine.ctx || epoch != mine.epoch) {
        struct device *d = ctx ? shim_current() : NULL;
        mine.ctx = ctx;
        mine.device = d;
        mine.milli = d ? ledger_compute_milli(d->ledger) : NULL;
        mine.gate = NULL;
        mine.epoch = epoch;
    }
    if (!mine.milli)
        return NULL;
    uint32_t milli = atomic_load_explicit(mine.milli, memory_order_relaxed);
    if (milli == 0 || milli >= 1000)
        return NULL; // looked at each time: the limit may come later
    if (!mine.gate)
        mine.gate = gate_find(ctx, mine.device);
    return mine.gate;
}

static void cpu_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("yield");
#endif
}

static void pause_ns(uint64_t ns) {
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    nanosleep(&t, NULL);
}

// Sleeps through most of an estimated wait; the end is spun, since a sleep is coarser than it.
static void pause_about(double ns) {
    if (ns > GATE_SPIN_NS * 2)
        pause_ns((uint64_t)(ns < 2e6 ? ns - GATE_SPIN_NS : 2e6 - GATE_SPIN_NS));
    else
        for (int i = 0; i < 200; i++)
            cpu_relax();
}

struct view {
    uint64_t now;
    uint32_t milli;
    bool borrow;
};

// The clock, by the processor's counter between two readings of it a millisecond apart: half the
// cost, and this is on the path of every launch.
static uint64_t gate_now(struct gate *g) {
#if defined(__x86_64__)
    uint64_t tick = __builtin_ia32_rdtsc(), since = tick - g->tick;
    if (g->tick_scale > 0 && since < g->tick_fresh)
        return g->tick_ns + (uint64_t)((double)since * g->tick_scale);
    uint64_t now = shim_now_ns(), passed = now - g->tick_ns;
    if (__builtin_ia32_rdtsc() - tick > 1000 || (g->tick && passed < 100000))
        return now; // interrupted between the two, or too soon to compare
    double scale = (double)passed / (double)since;
    if (g->tick && passed < 1000000000 && scale > 0.1 && scale < 10) {
        g->tick_scale = scale;
        g->tick_fresh = (uint64_t)(1e6 / scale);
    }
    g->tick = tick;
    g->tick_ns = now;
    return now;
#else
    return shim_now_ns();
#endif
}

static struct view look(struct gate *g) {
    return (struct view){
        .now = gate_now(g),
        .milli = atomic_load_explicit(ledger_compute_milli(g->ledger), memory_order_relaxed),
        .borrow = atomic_load_explicit(ledger_flags(g->ledger),
                                       memory_order_relaxed) & LEDGER_BORROW,
    };
}

// While work in flight runs, the bucket fills: only the rest of it must be covered.
static bool covered(const struct gate *g, const struct view *v) {
    if (v->borrow && g->line >= 0)
        return true;
    double rest = g->flight_ns * (1000 - v->milli) / 1000;
    return (double)bucket_balance(ledger_compute(g->ledger), v->milli, v->now) >= rest;
}

static bool on_turn(const struct gate *g, const struct view *v) {
    return g->line < 0 || arbiter_mine(g->arbiter, g->line, v->now);
}

// A program may run ahead of the GPU, so that its slow stretches are covered by work in store: as
// far as the turn lasts where others wait for it, else as far as the bucket covers.
static double flight_limit(const struct gate *g, const struct view *v) {
    if (g->line < 0 || !arbiter_contended(g->arbiter, g->line, v->now))
        return GATE_FLIGHT_MAX_NS;
    double left = (double)arbiter_turn_left(g->arbiter, v->now);
    return left < GATE_FLIGHT_NS ? GATE_FLIGHT_NS : left < GATE_FLIGHT_MAX_NS ? left : GATE_FLIGHT_MAX_NS;
}

// Waits until the work in flight is at most `limit_ns`; with the lock held, dropped while asleep.
// A kernel may wait for something this very thread is about to do (a peer's launch, a flag in host
// memory): when nothing moves for long, waiting ends and the launch goes on.
static void drain(struct gate *g, double limit_ns) {
    uint64_t moved = shim_now_ns();
    const struct segment *head = NULL;
    if (limit_ns <= 0)
        meter_close_all(g);
    while (meter_poll(g) && g->flight_ns > limit_ns) {
        struct segment *oldest = g->ring[g->head];
        double est = oldest->est_ns;
        uint64_t now = shim_now_ns(), ran = now - oldest->last_ns;
        if (oldest != head) {
            head = oldest;
            moved = now;
        } else if (now - moved > GATE_STUCK_NS + 4 * (uint64_t)est) {
            return;
        }
        pthread_mutex_unlock(&g->lock);
        pause_about(est - (double)ran);
        pthread_mutex_lock(&g->lock);
    }
}

// Other processes of the job may still have work running in our turn; theirs is waited for by
// its estimate, and not for long.
static void turn_over(struct gate *g) {
    uint64_t now = shim_now_ns(), busy = arbiter_busy_until(g->arbiter, g->line);
    if (busy != g->busy_until && busy > now && busy < now + 2 * GATE_FLIGHT_NS)
        pause_about((double)(busy - now) < GATE_FLIGHT_NS ? (double)(busy - now) : GATE_FLIGHT_NS);
    arbiter_leave(g->arbiter, g->line);
}

static void wait_covered(struct gate *g) {
    for (;;) {
        struct view v = look(g);
        if ((v.borrow && g->line >= 0) || v.milli == 0 || v.milli >= 1000)
            return;
        struct ledger_compute *c = ledger_compute(g->ledger);
        int64_t level = bucket_open_level(c, v.milli, g->stretch);
        int64_t lack = level - bucket_balance(c, v.milli, v.now);
        if (lack <= 0)
            return;
        uint64_t wall = (uint64_t)lack * 1000 / v.milli;
        if (wall < 20000)
            wall = 20000;
        pause_ns(wall < 20000000 ? wall : 20000000); // the limits may change meanwhile
    }
}

static void wait_turn(struct gate *g) {
    for (;;) {
        struct view v = look(g);
        if (g->line < 0 || v.milli == 0 ||
            arbiter_take(g->arbiter, g->line, v.milli, g->stretch, v.now))
            return;
        arbiter_wait(g->arbiter, 200000);
    }
}

// A program that was asleep needs a millisecond to launch at full speed again. If the GPU mostly
// waited for it, windows are made longer, so that less of them is lost; else shorter, for the sake
// of those who wait.
static void stretch(struct gate *g) {
    if (g->ended == 0)
        return;
    if (g->starved * 4 >= g->ended) {
        g->calm = 0;
        if (g->stretch < GATE_STRETCH_MAX)
            g->stretch *= 2;
    } else if (++g->calm >= GATE_SHRINK_AFTER && g->stretch > 1) {
        g->calm = 0;
        g->stretch /= 2;
    }
    g->ended = g->starved = 0;
}

// Called and left with the lock held; dropped meanwhile.
static void hold_back(struct gate *g) {
    struct view v = look(g);
    if (covered(g, &v) && g->line >= 0 &&
        arbiter_take(g->arbiter, g->line, v.milli, g->stretch, v.now))
        return; // a new turn at once: nobody else waits
    drain(g, 0);
    stretch(g);
    pthread_mutex_unlock(&g->lock);
    if (g->line >= 0)
        turn_over(g);
    for (;;) { // the bucket first: a turn is not to be spent waiting for it
        wait_covered(g);
        wait_turn(g);
        struct view w = look(g);
        if (covered(g, &w) || w.milli == 0 || w.milli >= 1000)
            break;
        if (g->line >= 0)
            arbiter_leave(g->arbiter, g->line);
    }
    ledger_count_launches(g->ledger, 0, shim_now_ns() - v.now);
    pthread_mutex_lock(&g->lock);
}

// While the job is nowhere near its limit its time need not be measured to the microsecond.
static bool plenty(const struct gate *g, const struct view *v) {
    if (v->milli == 0)
        return false; // not looked at for this launch
    if (v->borrow && g->line >= 0)
        return !arbiter_contended(g->arbiter, g->line, v->now);
    const struct ledger_compute *c = ledger_compute(g->ledger);
    return bucket_balance(c, v->milli, v->now) >= (int64_t)bucket_cap(c) / 1000 * v->milli;
}

// Adds the launch to its stream's segment; says whether the segment ends with it.
static unsigned enlist(struct gate *g, CUstream stream, bool per_thread, uint64_t key,
                       const struct view *v) {
    uint64_t now = v->now;
    struct lane *l = meter_lane(g, stream, per_thread, now);
    if (!l) { // more streams at once than we follow: see some of them finished first
        drain(g, 0);
        l = meter_lane(g, stream, per_thread, now);
        if (!l)
            return MARK_NONE;
    }
    meter_stalled(g, l, now);
    if (!l->open && !meter_open(g, l, now, plenty(g, v)))
        return MARK_NONE;
    struct segment *s = l->open;
    unsigned k = meter_kernel(g, key);
    float ns = g->kernel[k].ns;
    s->launch[s->n++] = (struct launch){k, ns};
    s->est_ns += ns;
    s->last_ns = now;
    g->flight_ns += ns;
    bool ends = s->n == GATE_SEGMENT_LAUNCHES || s->est_ns >= GATE_SEGMENT_NS || !g->kernel[k].seen;
    return ends ? MARK_CLOSE : MARK_NONE;
}

// Looks at flight, turn and bucket, and waits as they demand.
static void pass(struct gate *g, struct view *v) {
    double limit = 0;
    *v = look(g);
    if (g->flight_ns > GATE_FLIGHT_NS && g->flight_ns > (limit = flight_limit(g, v))) {
        drain(g, limit);
        *v = look(g);
    }
    while (!on_turn(g, v) || !covered(g, v)) {
        meter_poll(g);
        if (on_turn(g, v) && covered(g, v))
            break;
        hold_back(g);
        *v = look(g);
        if (v->milli == 0 || v->milli >= 1000)
            break;
    }
    if (g->line >= 0) {
        g->busy_until = v->now + (uint64_t)g->flight_ns;
        arbiter_launched(g->arbiter, g->line, v->now, g->busy_until);
    }
    g->clear_ns = v->now + GATE_CLEAR_NS;
    g->clear_flight_ns = g->flight_ns + GATE_CLEAR_NS * 2;
}

unsigned gate_before(struct gate *g, CUstream stream, bool per_thread, uint64_t key) {
    if (shim_capturing(stream, per_thread))
        return MARK_NONE;
    pthread_mutex_lock(&g->lock);
    struct view v = {.now = gate_now(g)};
    bool clear = v.now < g->clear_ns && g->flight_ns < g->clear_flight_ns;
    if (!clear || !g->last || !g->last->open)
        pass(g, &v);
    unsigned mark = g->ctx ? enlist(g, stream, per_thread, key, &v) : MARK_NONE;
    if (++g->launches >= COUNT_EVERY || mark == MARK_CLOSE) {
        ledger_count_launches(g->ledger, g->launches, 0);
        g->launches = 0;
    }
    pthread_mutex_unlock(&g->lock);
    return mark;
}

void gate_after(struct gate *g, CUstream stream, bool per_thread, unsigned mark) {
    if (mark != MARK_CLOSE)
        return;
    pthread_mutex_lock(&g->lock);
    for (int i = 0; i < GATE_LANES; i++) {
        struct lane *l = &g->lane[i];
        if (l->used && l->stream == stream && l->per_thread == per_thread)
            meter_close(g, l);
    }
    pthread_mutex_unlock(&g->lock);
}

struct gate *gate_sync_begin(void) {
    struct gate *g = gate_current();
    if (!g)
        return NULL;
    pthread_mutex_lock(&g->lock);
    meter_close_all(g);
    pthread_mutex_unlock(&g->lock);
    return g;
}

void gate_sync_end(struct gate *g) {
    if (!g)
        return;
    pthread_mutex_lock(&g->lock);
    meter_poll(g);
    pthread_mutex_unlock(&g->lock);
}

// A stream that is gone must not be marked any more; what it still runs is charged by estimate.
void gate_stream_gone(CUstream stream) {
    struct gate *g = gate_current();
    if (!g)
        return;
    pthread_mutex_lock(&g->lock);
    for (int i = 0; i < GATE_LANES; i++) {
        struct lane *l = &g->lane[i];
        if (!l->used || l->stream != stream)
            continue;
        meter_close(g, l);
        l->stream = NULL;
        l->per_thread = false;
        l->used = l->pending > 0; // kept until its marks are read, under no stream's name
        if (l->used)
            l->stream = (CUstream)(uintptr_t)-1;
    }
    g->last = NULL;
    pthread_mutex_unlock(&g->lock);
}

void gate_forget(CUcontext ctx) {
    if (!ctx)
        return;
    pthread_mutex_lock(&gates.lock);
    for (int i = 0; i < GATES; i++) {
        struct gate *g = gates.gate[i];
        if (!g || g->ctx != ctx)
            continue;
        pthread_mutex_lock(&g->lock);
        meter_poll(g);
        g->ctx = NULL;
        REAL(cuEventDestroy_v2)(g->base);
        for (int k = 0; k < GATE_SEGMENTS; k++) {
            REAL(cuEventDestroy_v2)(g->segment[k].start);
            REAL(cuEventDestroy_v2)(g->segment[k].end);
        }
        meter_reset(g);
        pthread_mutex_unlock(&g->lock);
    }
    atomic_fetch_add(&shim.gate_epoch, 1);
    pthread_mutex_unlock(&gates.lock);
}

void gate_after_fork(void) {
    pthread_mutex_init(&gates.lock, NULL);
    atomic_fetch_add(&shim.gate_epoch, 1);
    for (int i = 0; i < GATES; i++) // the parent's, locks and all; the child makes its own
        gates.gate[i] = NULL;
}
