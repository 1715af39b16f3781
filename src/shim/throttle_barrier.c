// Barriers: a stream is made to wait for a word in memory before a segment that may not run yet, so
// the program goes on launching and the GPU finds its work ready when the word moves. Decides what
// may run: in the job's turn (where jobs share a GPU), as much as fits in it; and, unless it may
// borrow, as much as its bucket covers. Barriers open in the order they were shut.
#include <string.h>

#include "shim/arbiter.h"
#include "bucket.h"
#include "throttle_state.h"

enum { HOST_PORTABLE = 1, HOST_MAPPED = 2, WAIT_AT_LEAST = 0 };

// Without barriers (an old driver) a launch that may not run waits in the program instead.
bool barrier_make(struct throttle *g) {
    void *word = NULL;
    g->barrier = NULL;
    if (!HAVE(cuStreamWaitValue32_v2) || !HAVE(cuMemHostAlloc))
        return false;
    int mode = meter_relax();
    bool ok = REAL(cuMemHostAlloc)(&word, sizeof *g->barrier, HOST_PORTABLE | HOST_MAPPED) == CUDA_SUCCESS;
    if (ok && REAL(cuMemHostGetDevicePointer_v2)(&g->barrier_at, word, 0) != CUDA_SUCCESS) {
        REAL(cuMemFreeHost)(word);
        ok = false;
    }
    meter_unrelax(mode);
    if (ok) {
        g->barrier = word;
        atomic_store(g->barrier, 0);
        atomic_store(&g->seq, 0);
    }
    return ok;
}

// The word goes with the context; nobody may write to it any more.
void barrier_drop(struct throttle *g) {
    while (atomic_exchange_explicit(&g->barrier_lock, 1, memory_order_acquire))
        ;
    g->barrier = NULL;
    atomic_store_explicit(&g->barrier_lock, 0, memory_order_release);
}

// Without the throttle's lock: all barriers open. The books follow when the lock is to be had.
void barrier_force(struct throttle *g) {
    while (atomic_exchange_explicit(&g->barrier_lock, 1, memory_order_acquire))
        ;
    if (g->barrier)
        atomic_store_explicit(g->barrier, atomic_load(&g->seq), memory_order_release);
    atomic_store_explicit(&g->barrier_lock, 0, memory_order_release);
}

static bool is_open(const struct throttle *g, const struct segment *s) {
    return (int32_t)(atomic_load_explicit(g->barrier, memory_order_relaxed) - s->seq) >= 0;
}

static unsigned shut_lanes(const struct throttle *g) {
    unsigned n = 0;
    for (int i = 0; i < THROTTLE_LANES; i++)
        n += g->lane[i].shut > 0;
    return n;
}

static unsigned shut_launches(const struct throttle *g) {
    unsigned n = 0;
    for (unsigned i = 0; i < g->nshut; i++)
        n += g->shut[i]->n;
    return n;
}

bool barrier_possible(const struct throttle *g, const struct lane *l) {
    return g->barrier && g->nunused && (l->shut || shut_lanes(g) < BARRIER_LANES) &&
           shut_launches(g) < THROTTLE_AHEAD_LAUNCHES;
}

bool barrier_shut(struct throttle *g, struct lane *l, struct segment *s) {
    if (!g->barrier || shim_capturing(l->stream, l->per_thread))
        return false;
    uint32_t seq = atomic_load_explicit(&g->seq, memory_order_relaxed) + 1;
    atomic_store(&g->seq, seq); // before: the call may have to wait for room in the queue
    int mode = meter_relax();
    CUresult r = l->per_thread && HAVE(cuStreamWaitValue32_v2_ptsz)
                     ? REAL(cuStreamWaitValue32_v2_ptsz)(l->stream, g->barrier_at, seq, WAIT_AT_LEAST)
                     : REAL(cuStreamWaitValue32_v2)(l->stream, g->barrier_at, seq, WAIT_AT_LEAST);
    meter_unrelax(mode);
    if (r != CUDA_SUCCESS) {
        if (!g->nshut)
            barrier_drop(g); // not to be had here
        return false;
    }
    s->seq = seq;
    s->shut = true;
    l->shut++;
    g->shut[g->nshut++] = s;
    return true;
}

double barrier_running(const struct throttle *g) {
    double ns = g->flight_ns;
    for (unsigned i = 0; i < g->nshut; i++)
        ns -= g->shut[i]->est_ns;
    return ns > 1 ? ns : 0;
}

void barrier_added(struct throttle *g, uint64_t now, double ns) {
    g->run_end_ns = (g->run_end_ns > now ? g->run_end_ns : now) + (uint64_t)ns;
}

void barrier_settle(struct throttle *g, uint64_t now) {
    float joined = g->granted_ns - g->room_ns;
    if (g->open && !g->open->shut && joined > 0)
        barrier_added(g, now, joined);
    if (g->open && joined > 0) {
        g->batch_ns += joined;
        g->open->paused |= now > g->open->last_ns + THROTTLE_STALL_NS; // between some of these launches
        g->open->last_ns = now;
    }
    g->room = 0;
    g->granted_ns = g->room_ns = 0;
}

void barrier_open_first(struct throttle *g, uint64_t now) {
    struct segment *s = g->shut[0];
    if (s == g->open)
        barrier_settle(g, now);
    g->nshut--;
    memmove(g->shut, g->shut + 1, g->nshut * sizeof *g->shut);
    s->shut = false;
    s->fed = s != s->lane->open; // all of it is in the queue
    s->lane->shut--;
    s->first_ns = now;
    if (s->last_ns < now)
        s->last_ns = now;
    g->moved_ns = now;
    barrier_added(g, now, s->est_ns);
    if (!is_open(g, s))
        atomic_store_explicit(g->barrier, s->seq, memory_order_release);
}

void barrier_open_all(struct throttle *g) {
    uint64_t now = shim_now_ns();
    while (g->nshut)
        barrier_open_first(g, now);
}

static bool shared(const struct throttle *g) {
    return g->line >= 0;
}

static double run_left(const struct throttle *g, uint64_t now) {
    return g->run_end_ns > now ? (double)(g->run_end_ns - now) : 0;
}

// Where others use the GPU now and then, little may be on its way: they are not to wait for it.
static bool company(struct throttle *g, uint64_t now) {
    if (now > g->company_at_ns + BARRIER_COMPANY_NS) {
        g->company_at_ns = now;
        g->company = arbiter_company(g->arbiter, g->line, now);
    }
    return g->company || arbiter_contended(g->arbiter, g->line, now);
}

static bool fits_turn(struct throttle *g, const struct throttle_view *v, double running, double next) {
    if (!shared(g))
        return true;
    if (!arbiter_mine(g->arbiter, g->line, v->now))
        return false;
    if (running <= 0 || !company(g, v->now))
        return true;
    double left = (double)arbiter_turn_left(g->arbiter, v->now);
    return run_left(g, v->now) + next / 2 <= (left < BARRIER_FLIGHT_NS ? left : BARRIER_FLIGHT_NS);
}

static int64_t lack(const struct throttle *g, const struct throttle_view *v, double running, double next) {
    if (v->borrow && shared(g))
        return 0;
    if (v->now > g->run_end_ns + BARRIER_OVERDUE_NS)
        running = 0; // it may wait for what is behind the barrier; it is charged when it ends
    return bucket_lack(ledger_compute(g->ledger), v->milli, running, next, g->flowing, v->now);
}

static bool unlimited(const struct throttle_view *v) {
    return v->milli == 0 || v->milli >= 1000;
}

bool barrier_free(struct throttle *g, const struct throttle_view *v) {
    if (unlimited(v))
        return true;
    double running = barrier_running(g);
    if (!g->nshut)
        g->flowing = true;
    if (g->nshut || lack(g, v, running, 0) > 0)
        return false;
    if (shared(g) && !arbiter_take(g->arbiter, g->line, v->milli, (uint64_t)running, v->now))
        return false;
    return fits_turn(g, v, running, 0);
}

// Other processes of the job may still have work running in our turn.
static bool peers_run(const struct throttle *g, uint64_t now) {
    uint64_t busy = arbiter_busy_until(g->arbiter, g->line);
    return busy != g->busy_until && busy > now + BARRIER_HANDOVER_NS && busy < now + THROTTLE_AHEAD_NS;
}

// The turn is asked for when there is work for it, kept as long as nobody has had less, and given
// on a moment before our work ends, so that the next one is awake by then.
static void turn_step(struct throttle *g, const struct throttle_view *v, double running) {
    const struct segment *next = g->nshut ? g->shut[0] : NULL;
    bool wanted = next && lack(g, v, running, next->est_ns) <= 0;
    if (!arbiter_holds(g->arbiter, g->line)) {
        if (wanted)
            arbiter_take(g->arbiter, g->line, v->milli, (uint64_t)running, v->now);
        return;
    }
    if (wanted && fits_turn(g, v, running, next->est_ns))
        return;
    double half = next ? next->est_ns / 2 : 0; // what ends nearer to the turn's end than it begins fits
    bool over = run_left(g, v->now) + half >= (double)arbiter_turn_left(g->arbiter, v->now);
    if (over && wanted &&
        arbiter_renew(g->arbiter, g->line, v->milli, (uint64_t)running, v->now))
        return;
    bool quiet = running <= 0 && v->now > g->moved_ns + THROTTLE_STALL_NS;
    bool known = g->sure >= BARRIER_SURE && v->now < g->run_end_ns + BARRIER_HANDOVER_NS;
    bool ending = running <= 0 || (known && run_left(g, v->now) <= BARRIER_HANDOVER_NS);
    bool idle = next && !wanted && running <= 0; // the bucket is empty
    if (arbiter_contended(g->arbiter, g->line, v->now) && (over || quiet || idle) && ending &&
        !peers_run(g, v->now)) {
        g->left_ns = v->now + (uint64_t)run_left(g, v->now);
        arbiter_leave(g->arbiter, g->line, wanted, v->now);
    }
}

// A thread's own default stream cannot be marked by another.
bool barrier_own_stream(const struct lane *l) {
    return (l->per_thread && !l->stream) || (uintptr_t)l->stream == 2;
}

// The program may have gone away with a segment open; its end is marked for it.
static void close_quiet(struct throttle *g, uint64_t now) {
    for (int i = 0; i < THROTTLE_LANES; i++) {
        struct segment *s = g->lane[i].used ? g->lane[i].open : NULL;
        if (!s || s->shut || s->ending || !s->n || barrier_own_stream(s->lane) ||
            now < s->last_ns + THROTTLE_QUIET_NS)
            continue;
        if (s == g->open && g->room_ns < g->granted_ns)
            barrier_settle(g, now); // launches came: not so quiet
        else
            meter_close(g, &g->lane[i], now);
    }
}

static void count_held(struct throttle *g, double running, uint64_t now) {
    bool held = g->nshut && running <= 0;
    if (held && g->held_ns)
        ledger_count_launches(g->ledger, 0, now - g->held_ns);
    g->held_ns = held ? now : 0;
}

// How long until a look is worth it.
static uint64_t due(const struct throttle *g, const struct throttle_view *v, double running) {
    double wait = BARRIER_LOOK_NS, left = run_left(g, v->now);
    if (shared(g) && g->nshut && !arbiter_holds(g->arbiter, g->line))
        return BARRIER_TURN_NS;
    if (running > 0) // before it ends, or while there is time to let more run
        wait = shared(g) && g->nshut && left > 4 * BARRIER_HANDOVER_NS ? left / 2 : left - BARRIER_HANDOVER_NS;
    if (g->nshut) {
        int64_t need = lack(g, v, running, g->shut[0]->est_ns);
        double refill = running > 0 ? (double)need : (double)need * 1000 / v->milli;
        if (need > 0 && (running <= 0 || refill < wait))
            wait = refill;
    }
    return wait < BARRIER_NAP_NS ? BARRIER_NAP_NS : wait > BARRIER_LOOK_NS ? BARRIER_LOOK_NS : (uint64_t)wait;
}

static bool waits_for(const struct segment *runs, const struct segment *s) {
    return runs && !runs->shut && runs->n && runs->lane != s->lane &&
           (int32_t)(runs->batch - s->batch) >= 0;
}

// What runs in another stream may wait for the rest of its batch: it goes along, covered or not, and
// is paid off afterwards.
static bool goes_along(const struct throttle *g, const struct segment *s) {
    if (!s->n)
        return false;
    for (unsigned i = 0; i < g->nended; i++)
        if (waits_for(g->ended[i], s))
            return true;
    for (int i = 0; i < THROTTLE_LANES; i++)
        if (g->lane[i].used && waits_for(g->lane[i].open, s))
            return true;
    return false;
}

// A kernel may wait for one that is behind a barrier; when nothing moves for long, one barrier opens.
static bool stuck(const struct throttle *g, double running, uint64_t now) {
    return running > 0 && now > g->moved_ns + THROTTLE_STUCK_NS + 4 * (uint64_t)running;
}

uint64_t barrier_step(struct throttle *g) {
    struct throttle_view v = throttle_look(g);
    meter_poll(g);
    close_quiet(g, v.now);
    if (unlimited(&v)) {
        barrier_open_all(g);
        return 0;
    }
    double running = barrier_running(g);
    count_held(g, running, v.now);
    if (shared(g))
        turn_step(g, &v, running);
    // Barriers open in the order in which they were put up: what a stream waits for is never behind it.
    while (g->nshut) {
        double next = g->shut[0]->est_ns;
        bool may = fits_turn(g, &v, running, next) && lack(g, &v, running, next) <= 0;
        if (!may && !is_open(g, g->shut[0]) && !goes_along(g, g->shut[0]) &&
            !stuck(g, running, v.now))
            break;
        g->flowing = true;
        barrier_open_first(g, v.now);
        running = barrier_running(g);
    }
    if (g->nshut && lack(g, &v, running, g->shut[0]->est_ns) > 0)
        g->flowing = false;
    if (shared(g) && running > 0 && arbiter_holds(g->arbiter, g->line)) {
        g->busy_until = arbiter_launched(g->arbiter, g->line, v.now, g->busy_until, g->run_end_ns);
    }
    bool watch = g->nshut || (shared(g) && arbiter_holds(g->arbiter, g->line) &&
                              arbiter_contended(g->arbiter, g->line, v.now));
    return watch ? due(g, &v, running) : 0;
}
