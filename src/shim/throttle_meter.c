// Measuring: which part of the time the GPU worked for us, by events at the ends of segments; and
// remembering how long each kind of work takes, so that what is in flight can be estimated.
#include <string.h>

#include "shim/arbiter.h"
#include "bucket.h"
#include "throttle_state.h"

enum { EVENT_TIMED = 0 };

// While some stream is captured in the strict mode, even asking about an event would spoil the
// capture; a relaxed thread may ask.
int meter_relax(void) {
    int mode = CU_CAPTURE_MODE_RELAXED;
    if (atomic_load_explicit(&shim.captures, memory_order_relaxed) == 0)
        return -1;
    return REAL(cuThreadExchangeStreamCaptureMode)(&mode) == CUDA_SUCCESS ? mode : -1;
}

void meter_unrelax(int mode) {
    if (mode >= 0)
        REAL(cuThreadExchangeStreamCaptureMode)(&mode);
}

static CUresult record(CUevent event, const struct lane *l) {
    if (shim_capturing(l->stream, l->per_thread))
        return CUDA_ERROR_NOT_READY; // it would become part of the captured graph
    int mode = meter_relax();
    CUresult r = l->per_thread ? REAL(cuEventRecord_ptsz)(event, l->stream)
                               : REAL(cuEventRecord)(event, l->stream);
    meter_unrelax(mode);
    return r;
}

unsigned meter_kernel(struct throttle *g, uint64_t key) {
    unsigned at = throttle_set(key), worst = at;
    for (unsigned k = at; k < at + THROTTLE_WAYS; k++) {
        if (g->kernel[k].key == key)
            return k;
        if (g->kernel[k].seen < g->kernel[worst].seen)
            worst = k;
    }
    g->kernel[worst] = (struct kernel){.key = key, .ns = THROTTLE_UNKNOWN_NS};
    return worst;
}

struct lane *meter_lane(struct throttle *g, CUstream stream, bool per_thread, uint64_t now) {
    struct lane *idle = NULL;
    if (g->last && g->last->used && g->last->stream == stream && g->last->per_thread == per_thread)
        return g->last;
    for (int i = 0; i < THROTTLE_LANES; i++) {
        struct lane *l = &g->lane[i];
        if (l->used && l->stream == stream && l->per_thread == per_thread)
            return g->last = l;
        // A lane that something is measured on stays; of the others the one that was idle longest goes.
        bool free = !l->used || (!l->open && !l->pending && !l->shut);
        if (free && (!idle || !l->used || (idle->used && l->touched < idle->touched)))
            idle = l;
    }
    if (idle) {
        *idle = (struct lane){.used = true, .stream = stream, .per_thread = per_thread,
                              .touched = now};
        g->last = idle;
    }
    return idle;
}

static void give_segment(struct throttle *g, struct segment *s) {
    g->unused[g->nunused++] = s;
}

bool meter_open(struct throttle *g, struct lane *l, uint64_t now, bool rough, bool shut) {
    if (!g->nunused)
        return false;
    struct segment *s = g->unused[--g->nunused];
    s->lane = l;
    s->n = 0;
    s->est_ns = 0;
    s->batch = g->batch;
    s->shut = s->ending = s->fed = s->paused = false;
    s->first_ns = s->last_ns = now;
    if (shut && !barrier_shut(g, l, s)) {
        give_segment(g, s);
        return false;
    }
    s->own_start = shut || l->pending == 0;
    s->rough = !shut && s->own_start && rough && g->based;
    if (s->own_start && !s->rough && record(s->start, l) != CUDA_SUCCESS) {
        if (!shut) {
            give_segment(g, s);
            return false;
        }
        s->rough = true; // its barrier is in the stream already
    }
    l->open = s;
    l->touched = now;
    return true;
}

void meter_close(struct throttle *g, struct lane *l, uint64_t now) {
    struct segment *s = l->open;
    if (!s)
        return;
    if (g->open == s) {
        barrier_settle(g, now);
        g->open = NULL;
    }
    l->open = NULL;
    s->ending = false;
    s->paused |= now > s->last_ns + THROTTLE_STALL_NS; // its end is marked late
    if (!s->n || record(s->end, l) != CUDA_SUCCESS) {
        g->flight_ns -= s->est_ns;
        while (s->shut) // its end cannot be seen, so it is let run
            barrier_open_first(g, now);
        give_segment(g, s);
        return;
    }
    s->last_ns = now;
    g->ended[g->nended++] = s;
    l->pending++;
}

void meter_close_all(struct throttle *g, uint64_t now) {
    for (int i = 0; i < THROTTLE_LANES; i++)
        if (g->lane[i].used)
            meter_close(g, &g->lane[i], now);
}

static void charge(struct throttle *g, uint64_t from, uint64_t to) {
    uint32_t milli = atomic_load_explicit(ledger_compute_milli(g->ledger), memory_order_relaxed);
    uint64_t used = bucket_charge(ledger_compute(g->ledger), milli, from, to);
    if (used && g->arbiter && g->line >= 0)
        arbiter_charge(g->arbiter, g->line, milli, used);
}

// The program went away with a segment open, so its end was never marked. The GPU has long done
// it; the estimate stands for the measurement.
void meter_stalled(struct throttle *g, struct lane *l, uint64_t now) {
    struct segment *s = l->open;
    if (!s || s->shut || s->ending || now < s->last_ns + THROTTLE_STALL_NS ||
        now < s->first_ns + (uint64_t)s->est_ns + THROTTLE_STALL_NS)
        return;
    uint64_t end = s->first_ns + (uint64_t)s->est_ns;
    charge(g, s->first_ns, end > s->last_ns ? end : s->last_ns);
    g->flight_ns -= s->est_ns;
    l->open = NULL;
    if (g->open == s)
        g->open = NULL;
    give_segment(g, s);
}

static bool gpu_time(struct throttle *g, CUevent event, double *ns) {
    float ms;
    if (REAL(cuEventElapsedTime)(&ms, g->base, event) != CUDA_SUCCESS)
        return false;
    *ns = g->base_gpu_ns + (double)ms * 1e6;
    return true;
}

static void swap_base(struct throttle *g, CUevent *event, double gpu_ns) {
    CUevent base = g->base;
    g->base = *event;
    *event = base;
    g->base_gpu_ns = gpu_ns;
}

// The result is never before an event was seen finished, so the smallest difference ever seen is
// nearest to the truth; it is let grow slowly because the clocks drift.
static double to_cpu(struct throttle *g, double gpu_ns, uint64_t now) {
    double seen = (double)now - gpu_ns;
    double drift = gpu_ns > g->synced_gpu_ns ? (gpu_ns - g->synced_gpu_ns) * 1e-4 : 0;
    if (seen < g->gpu_to_cpu_ns + drift) {
        g->gpu_to_cpu_ns = seen;
        g->synced_gpu_ns = gpu_ns;
        drift = 0;
    }
    return gpu_ns + g->gpu_to_cpu_ns + drift;
}

// Where the GPU waited for the program, what was measured is too long: shorter is believed at
// once, longer only slowly, so that what work takes at its best is what is remembered.
static void learn(struct throttle *g, const struct segment *s, double took_ns, bool starved) {
    double scale = s->est_ns > 0 ? took_ns / s->est_ns : 1;
    for (unsigned i = 0; i < s->n; i++) {
        struct kernel *k = &g->kernel[s->launch[i].kernel];
        float ns = (float)(s->launch[i].ns * scale);
        float weight = starved && ns > k->ns ? 1.0f / 64 : 1.0f / 4;
        k->ns = k->seen ? k->ns + (ns - k->ns) * weight : ns;
        if (k->ns < 100)
            k->ns = 100;
        k->seen += k->seen < 1000000;
    }
}

// Times are read off against the start of the first segment, later against the end of one that is
// not long past.
static bool segment_ended(struct throttle *g, struct segment *s, uint64_t now, double *took,
                          double *at) {
    struct lane *l = s->lane;
    double start = l->ended_gpu_ns, end;
    bool first = !g->based;
    if (first) {
        if (!s->own_start)
            return false;
        swap_base(g, &s->start, 0);
        g->based = true;
        g->gpu_to_cpu_ns = (double)now;
        start = g->synced_gpu_ns = 0;
    }
    bool marked = s->own_start && !s->rough && !first;
    if (!gpu_time(g, s->end, &end) || (marked && !gpu_time(g, s->start, &start)))
        return false;
    l->ended_gpu_ns = end;
    *at = to_cpu(g, end, now);
    *took = s->rough ? *at - (double)s->first_ns : end - start;
    if (end > g->base_gpu_ns + 5e8) // a float of milliseconds is exact enough for a second
        swap_base(g, &s->end, end);
    return *took > 0 && *at > *took;
}

// Where several streams are at work, one's time includes waiting for the others.
static bool crowded(const struct throttle *g, const struct lane *l) {
    for (int i = 0; i < THROTTLE_LANES; i++)
        if (&g->lane[i] != l && g->lane[i].used && (g->lane[i].open || g->lane[i].pending))
            return true;
    return false;
}

static void finished(struct throttle *g, struct segment *s, uint64_t now) {
    double took, at;
    if (!segment_ended(g, s, now, &took, &at))
        return;
    double left = (double)g->left_ns;
    if (at > left && at - took < left) { // the rest of it waited for the next job's work, or so we hope
        if (at > left + 2 * BARRIER_HANDOVER_NS)
            g->sure = 0;
        charge(g, (uint64_t)(at - took), g->left_ns);
        g->run_end_ns = (uint64_t)at;
        return;
    }
    double off = took > s->est_ns ? took - s->est_ns : s->est_ns - took;
    g->sure = off < BARRIER_HANDOVER_NS || off < took / 8 ? g->sure + 1 : 0;
    bool starved = !s->fed && (s->paused || at < (double)s->last_ns + s->launch[s->n - 1].ns +
                                                     THROTTLE_KEPT_UP_NS);
    double cost = took, least = s->paused ? 0 : took * THROTTLE_STARVED_MIN;
    if (starved && s->est_ns < took)
        cost = s->est_ns > least ? s->est_ns : least;
    charge(g, (uint64_t)(at - cost), (uint64_t)at);
    learn(g, s, took, starved || crowded(g, s->lane));
    g->run_end_ns = (uint64_t)at; // what still runs began then
}

// Streams are independent: in each, the oldest that may run is asked about.
void meter_poll(struct throttle *g) {
    unsigned kept = 0, before = g->nended;
    if (!before)
        return;
    uint64_t now = shim_now_ns();
    uint32_t waits = 0; // lanes whose oldest has not finished
    int mode = meter_relax();
    for (unsigned i = 0; i < before; i++) {
        struct segment *s = g->ended[i];
        uint32_t lane = (uint32_t)1 << (s->lane - g->lane);
        CUresult r = s->shut || (waits & lane) ? CUDA_ERROR_NOT_READY : REAL(cuEventQuery)(s->end);
        if (r == CUDA_ERROR_NOT_READY) {
            waits |= lane;
            g->ended[kept++] = s;
            continue;
        }
        s->lane->pending--;
        g->flight_ns -= s->est_ns;
        if (r == CUDA_SUCCESS)
            finished(g, s, now);
        give_segment(g, s);
    }
    meter_unrelax(mode);
    g->nended = kept;
    if (kept == before)
        return;
    if (!kept) { // the sum is exact again
        g->flight_ns = 0;
        for (int i = 0; i < THROTTLE_LANES; i++)
            if (g->lane[i].used && g->lane[i].open)
                g->flight_ns += g->lane[i].open->est_ns;
    }
    g->moved_ns = now;
    g->run_end_ns += (uint64_t)barrier_running(g);
}

bool meter_events(struct throttle *g) {
    g->nunused = g->nended = g->nshut = 0;
    bool ok = REAL(cuEventCreate)(&g->base, EVENT_TIMED) == CUDA_SUCCESS;
    for (int i = 0; i < THROTTLE_SEGMENTS && ok; i++) {
        struct segment *s = &g->segment[i];
        ok = REAL(cuEventCreate)(&s->start, EVENT_TIMED) == CUDA_SUCCESS &&
             REAL(cuEventCreate)(&s->end, EVENT_TIMED) == CUDA_SUCCESS;
        if (ok)
            give_segment(g, s);
    }
    return ok;
}

void meter_reset(struct throttle *g) {
    memset(g->lane, 0, sizeof g->lane);
    g->last = NULL;
    g->open = NULL;
    g->room = 0;
    g->room_ns = g->granted_ns = 0;
    g->nunused = g->nended = g->nshut = 0;
    g->flight_ns = 0;
    g->based = false;
    g->run_end_ns = g->held_ns = g->left_ns = 0;
}
