// See twin.h. Programs and throttle threads are coroutines; the GPU is a queue per stream, run one kernel at
// a time, streams in turn.
#include "twin.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include "shim/arbiter.h"
#include "../throttle_quick.h"

enum { BURST = 8, STACK = 256 << 10, OPS = 8192, EVENTS = 512, WAITS = 65536 };
enum { WAKE_LATE_NS = 60 * 1000, BARRIER_LATE_NS = 7 * 1000, TURN_LATE_NS = 50 * 1000 };

enum op_kind { OP_KERNEL, OP_WAIT, OP_EVENT, OP_AFTER };
struct op {
    enum op_kind kind;
    uint64_t ns;
    uint32_t seq;
    CUevent event;
};
struct CUevent_st {
    uint64_t at;
    unsigned pending; // records in the queue
    uint32_t done;    // records passed
};
struct CUctx_st {
    int job;
};

struct co {
    ucontext_t ctx;
    char *stack;
    uint64_t wake_ns; // UINT64_MAX: until told
    int job;
    bool done;
    struct throttle_mine mine;
};

struct stream {
    struct op op[OPS];
    uint64_t head, tail; // of op
    uint64_t ready_ns;   // it goes on no sooner
    struct CUevent_st end; // of its latest launch, where streams wait for each other
};

struct job {
    struct twin_load load;
    struct shim_device device;
    struct CUctx_st ctx;
    struct co program, watcher;
    struct stream stream[TWIN_STREAMS];
    _Atomic uint32_t word;
    struct CUevent_st event[EVENTS];
    unsigned events;
    uint64_t ran_ns, launches;
    uint64_t *wait;
    unsigned waits;
};

static struct {
    struct job job[TWIN_JOBS];
    unsigned jobs;
    uint64_t now, measure_from, measure_until, end;
    struct co *running;
    ucontext_t main;
    int gpu_job, gpu_stream; // whose kernel runs; -1: none
    uint64_t gpu_from, gpu_until;
    uint64_t busy_ns;
    unsigned next;
    bool no_barriers;
} t;

struct shim shim;
void *shim_real[R_COUNT];

static struct job *current(void) {
    return &t.job[t.running->job];
}

CUresult shim_missing(void) {
    return CUDA_ERROR_NOT_FOUND;
}

uint64_t shim_now_ns(void) {
    return t.now;
}

static void yield_until(uint64_t wake) {
    struct co *c = t.running;
    c->wake_ns = wake;
    swapcontext(&c->ctx, &t.main);
}

void shim_sleep_ns(uint64_t ns) {
    yield_until(t.now + ns + WAKE_LATE_NS);
}

struct shim_device *shim_device(CUdevice ordinal) {
    return &t.job[ordinal].device;
}

struct shim_device *shim_current(void) {
    return &current()->device;
}

bool shim_capturing(CUstream stream, bool per_thread) {
    return false;
}

void throttle_thread_after_fork(void) {
}

void throttle_thread_watch(struct throttle *g) {
    struct job *j = &t.job[g->ctx->job];
    atomic_store(&g->watched, true);
    if (j->watcher.wake_ns == UINT64_MAX)
        j->watcher.wake_ns = t.now + WAKE_LATE_NS;
}

static CUresult get_current(CUcontext *ctx) {
    *ctx = &current()->ctx;
    return CUDA_SUCCESS;
}

static CUresult event_create(CUevent *e, unsigned flags) {
    struct job *j = current();
    assert(j->events < EVENTS);
    *e = &j->event[j->events++];
    return CUDA_SUCCESS;
}

static unsigned index_of(CUstream s) {
    return s ? (unsigned)((uintptr_t)s - TWIN_STREAMS) : 0;
}

static void push(struct job *j, CUstream stream, struct op op) {
    struct stream *s = &j->stream[index_of(stream)];
    assert(s->tail - s->head < OPS);
    s->op[s->tail++ % OPS] = op;
}

static bool idle(const struct job *j) {
    for (int i = 0; i < TWIN_STREAMS; i++)
        if (j->stream[i].head < j->stream[i].tail)
            return false;
    return true;
}

static CUresult event_record(CUevent e, CUstream s) {
    e->pending++;
    push(current(), s, (struct op){.kind = OP_EVENT, .event = e});
    return CUDA_SUCCESS;
}

static CUresult event_query(CUevent e) {
    return e->pending ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult event_elapsed(float *ms, CUevent a, CUevent b) {
    *ms = (float)((double)(int64_t)(b->at - a->at) / 1e6);
    return a->pending || b->pending ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult host_alloc(void **p, size_t n, unsigned flags) {
    *p = &current()->word;
    return CUDA_SUCCESS;
}

static CUresult host_pointer(CUdeviceptr *p, void *host, unsigned flags) {
    *p = (CUdeviceptr)(uintptr_t)host;
    return CUDA_SUCCESS;
}

static CUresult wait_value(CUstream s, CUdeviceptr at, uint32_t value, unsigned flags) {
    push(current(), s, (struct op){.kind = OP_WAIT, .seq = value});
    return CUDA_SUCCESS;
}

static CUresult nothing(void) {
    return CUDA_SUCCESS;
}

static void bind(bool barriers) {
    for (int i = 0; i < R_COUNT; i++)
        shim_real[i] = (void *)shim_missing;
    shim_real[R_cuCtxGetCurrent] = (void *)get_current;
    shim_real[R_cuEventCreate] = (void *)event_create;
    shim_real[R_cuEventDestroy_v2] = (void *)nothing;
    shim_real[R_cuEventRecord] = (void *)event_record;
    shim_real[R_cuEventQuery] = (void *)event_query;
    shim_real[R_cuEventElapsedTime] = (void *)event_elapsed;
    shim_real[R_cuMemHostAlloc] = (void *)host_alloc;
    shim_real[R_cuMemHostGetDevicePointer_v2] = (void *)host_pointer;
    if (barriers)
        shim_real[R_cuStreamWaitValue32_v2] = (void *)wait_value;
}

// Passes barriers and marks that can be passed; says whether a kernel is ready.
static bool stream_ready(struct job *j, struct stream *s) {
    while (s->head < s->tail && s->ready_ns <= t.now) {
        struct op *o = &s->op[s->head % OPS];
        if (o->kind == OP_KERNEL)
            return true;
        if (o->kind == OP_AFTER && o->event->done < o->seq) // as it was when asked to wait
            return false;
        if (o->kind == OP_WAIT) {
            if ((int32_t)(atomic_load(&j->word) - o->seq) < 0)
                return false;
            s->ready_ns = t.now + BARRIER_LATE_NS;
        } else if (o->kind == OP_EVENT) {
            o->event->at = t.now;
            o->event->pending--;
            o->event->done++;
        }
        s->head++;
    }
    return false;
}

static void gpu_finish(void) {
    struct job *j = &t.job[t.gpu_job];
    uint64_t from = t.gpu_from > t.measure_from ? t.gpu_from : t.measure_from;
    uint64_t to = t.gpu_until < t.measure_until ? t.gpu_until : t.measure_until;
    if (to > from) {
        j->ran_ns += to - from;
        t.busy_ns += to - from;
    }
    j->stream[t.gpu_stream].head++;
    t.gpu_job = -1;
}

static unsigned streams_of(const struct job *j) {
    return j->load.streams ? j->load.streams : 1;
}

static void job_pump(unsigned k) {
    struct job *j = &t.job[k];
    for (unsigned i = 0; i < streams_of(j); i++) {
        struct stream *s = &j->stream[i];
        if (((int)k == t.gpu_job && (int)i == t.gpu_stream) || !stream_ready(j, s) || t.gpu_job >= 0)
            continue;
        t.gpu_job = (int)k;
        t.gpu_stream = (int)i;
        t.gpu_from = t.now;
        t.gpu_until = t.now + s->op[s->head % OPS].ns;
        t.next = k + 1;
    }
}

static void gpu_pump(void) {
    if (t.gpu_job >= 0 && t.now >= t.gpu_until)
        gpu_finish();
    unsigned first = t.next;
    for (unsigned i = 0; i < t.jobs; i++)
        job_pump((first + i) % t.jobs);
}

static void launch(struct job *j, uint64_t i, uint64_t ns) {
    struct op op = {.kind = OP_KERNEL, .ns = ns};
    uint64_t key = ns << 1 | 1;
    unsigned n = streams_of(j), at = (unsigned)(i % n);
    CUstream s = at ? (CUstream)(uintptr_t)(at + TWIN_STREAMS) : NULL;
    j->launches += t.now >= t.measure_from;
    CUevent before = &j->stream[(at + n - 1) % n].end;
    if (n > 1)
        push(j, s, (struct op){.kind = OP_AFTER, .event = before, .seq = before->done + before->pending});
    struct throttle *g = throttle_quick(s, false, key) ? NULL : throttle_current();
    unsigned mark = g ? throttle_before(g, s, false, key) : 0;
    push(j, s, op);
    if (g)
        throttle_after(g, s, false, mark);
    if (n > 1) {
        j->stream[at].end.pending++;
        push(j, s, (struct op){.kind = OP_EVENT, .event = &j->stream[at].end});
    }
}

static void synchronize(struct job *j) {
    struct throttle *g = throttle_sync_begin();
    while (!idle(j))
        yield_until(t.now + 10000);
    throttle_sync_end(g);
}

static void program(void) {
    struct job *j = current();
    const struct twin_load *l = &j->load;
    if (l->from_ns)
        yield_until(l->from_ns);
    uint64_t end = l->until_ns ? l->until_ns : t.end, first = t.now;
    for (uint64_t i = 1; t.now < end || (l->again_ns && end < t.end); i++) {
        if (t.now >= end) {
            synchronize(j);
            yield_until(l->again_ns);
            end = t.end;
        }
        uint64_t ns = l->kernel_ns;
        if (l->mixed)
            ns = i % 7 == 0 ? ns / 3 : i % 5 == 0 ? ns * 2 : ns;
        launch(j, i, ns);
        unsigned burst = l->kernel_ns < 100000 ? BURST : 1; // fewer switches: they take the real time
        if (i % burst == 0 || (l->sync_every && i % l->sync_every == 0))
            yield_until(t.now + l->launch_ns * burst);
        while (j->stream[i % streams_of(j)].tail - j->stream[i % streams_of(j)].head > 1000) // as the driver's queue
            yield_until(t.now + 10000);
        if (l->sync_every && i % l->sync_every == 0) {
            if (!l->unsynced)
                synchronize(j);
            if (t.now > t.measure_from && j->waits < WAITS)
                j->wait[j->waits++] = t.now - first;
            yield_until(t.now + l->think_ns);
            first = t.now;
        }
    }
    t.running->done = true;
    yield_until(UINT64_MAX);
}

static void keep(void) {
    struct job *j = current();
    for (;;) {
        struct throttle *g = j->program.mine.throttle;
        uint64_t due = 0;
        if (g && atomic_load(&g->watched)) {
            throttle_lock(g);
            due = barrier_step(g);
            if (!due)
                atomic_store(&g->watched, false);
            throttle_unlock(g);
        }
        if (!due)
            yield_until(UINT64_MAX);
        else if (due == BARRIER_TURN_NS) // woken when a turn is given on
            yield_until(t.now + TURN_LATE_NS);
        else
            yield_until(t.now + due + 15000);
    }
}

static void co_start(struct co *c, int job, void (*body)(void)) {
    *c = (struct co){.job = job, .stack = malloc(STACK)};
    getcontext(&c->ctx);
    c->ctx.uc_stack.ss_sp = c->stack;
    c->ctx.uc_stack.ss_size = STACK;
    makecontext(&c->ctx, body, 0);
}

static void resume(struct co *c) {
    t.running = c;
    throttle_mine = c->mine;
    swapcontext(&t.main, &c->ctx);
    c->mine = throttle_mine;
}

static struct co *earliest(void) {
    struct co *best = NULL;
    for (unsigned i = 0; i < t.jobs; i++) {
        struct co *both[] = {&t.job[i].program, &t.job[i].watcher};
        for (int k = 0; k < 2; k++)
            if (!both[k]->done && both[k]->wake_ns != UINT64_MAX &&
                (!best || both[k]->wake_ns < best->wake_ns))
                best = both[k];
    }
    return best;
}

static void kill_due(void) {
    for (unsigned i = 0; i < t.jobs; i++) {
        struct job *j = &t.job[i];
        if (!j->load.killed_ns || t.now < j->load.killed_ns)
            continue;
        j->program.done = j->watcher.done = true;
        for (int k = 0; k < TWIN_STREAMS; k++) // what runs runs out
            j->stream[k].head = j->stream[k].tail - (t.gpu_job == (int)i && t.gpu_stream == k);
        j->load.killed_ns = 0;
    }
}

static uint64_t gpu_next(void) {
    uint64_t at = t.gpu_job >= 0 ? t.gpu_until : UINT64_MAX;
    for (unsigned i = 0; i < t.jobs && t.gpu_job < 0; i++)
        for (unsigned k = 0; k < streams_of(&t.job[i]); k++) {
            const struct stream *s = &t.job[i].stream[k];
            if (s->head < s->tail && s->ready_ns > t.now && s->ready_ns < at)
                at = s->ready_ns;
        }
    return at;
}

static void setup(const char *dir, const struct twin_world *w) {
    char path[LEDGER_PATH_MAX], arbiter[LEDGER_PATH_MAX], name[16] = "";
    memset(&t, 0, sizeof t);
    t.now = 1000000000000;
    t.jobs = w->jobs;
    t.measure_from = t.now + w->measure_from_ns;
    t.end = t.now + w->run_ns;
    t.measure_until = w->measure_until_ns ? t.now + w->measure_until_ns : t.end;
    t.gpu_job = -1;
    bind(!w->no_barriers);
    snprintf(arbiter, sizeof arbiter, "%s/twin%s", dir, ARBITER_SUFFIX);
    unlink(arbiter);
    assert(arbiter_create(arbiter, "twin", 0600) == 0);
    for (unsigned i = 0; i < w->jobs; i++) {
        struct job *j = &t.job[i];
        j->load = w->load[i];
        j->load.from_ns += j->load.from_ns ? t.now : 0;
        j->load.until_ns += j->load.until_ns ? t.now : 0;
        j->load.again_ns += j->load.again_ns ? t.now : 0;
        j->load.killed_ns += j->load.killed_ns ? t.now : 0;
        j->ctx.job = (int)i;
        j->device.ordinal = (int)i;
        j->wait = calloc(WAITS, sizeof *j->wait);
        if (!j->load.joins)
            snprintf(name, sizeof name, "j%u", i);
        snprintf(path, sizeof path, "%s/%s%s", dir, name, LEDGER_SUFFIX);
        struct ledger_limits l = {.compute_milli = j->load.milli,
                                  .flags = j->load.borrow ? LEDGER_BORROW : 0};
        assert(j->load.joins || ledger_create(path, name, "twin", &l, 0600, true) == 0);
        assert(ledger_open(path, &j->device.ledger) == 0);
        if (i + 1 == w->jobs || !w->load[i + 1].joins)
            unlink(path);
        if (w->shared)
            assert(arbiter_open(arbiter, &j->device.arbiter) == 0);
        co_start(&j->program, (int)i, program);
        co_start(&j->watcher, (int)i, keep);
        j->program.wake_ns = t.now + 1 + i * 1000;
        j->watcher.wake_ns = UINT64_MAX;
    }
    unlink(arbiter);
    shim.enabled = true;
    atomic_fetch_add(&shim.throttle_epoch, 1);
}

static int by_size(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void results(struct twin_result *out) {
    double span = (double)(t.measure_until - t.measure_from);
    *out = (struct twin_result){.busy = 100 * (double)t.busy_ns / span};
    for (unsigned i = 0; i < t.jobs; i++) {
        struct job *j = &t.job[i];
        out->share[i] = 100 * (double)j->ran_ns / span;
        out->launches[i] = j->launches;
        out->charged_ns[i] = ledger_compute(j->device.ledger)->gpu_ns;
        qsort(j->wait, j->waits, sizeof *j->wait, by_size);
        out->wait_p50_ns[i] = j->waits ? j->wait[j->waits / 2] : 0;
        out->wait_p99_ns[i] = j->waits ? j->wait[j->waits * 99 / 100] : 0;
        throttle_forget(&j->ctx);
        j->device.arbiter = arbiter_close(j->device.arbiter);
        j->device.ledger = ledger_close(j->device.ledger);
        free(j->program.stack);
        free(j->watcher.stack);
        free(j->wait);
    }
}

void twin_run(const char *dir, const struct twin_world *w, struct twin_result *out) {
    setup(dir, w);
    while (t.now < t.end) {
        struct co *c = earliest();
        uint64_t gpu = gpu_next();
        if (gpu == UINT64_MAX && !c)
            break;
        kill_due();
        if (!c || gpu < c->wake_ns) {
            t.now = gpu > t.now ? gpu : t.now;
            gpu_pump();
            continue;
        }
        t.now = c->wake_ns > t.now ? c->wake_ns : t.now;
        gpu_pump();
        if (t.now < t.end && !c->done)
            resume(c);
        gpu_pump();
    }
    results(out);
}
