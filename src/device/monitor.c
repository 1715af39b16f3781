// Owns the readings, the health of each GPU and what each attempt used on each GPU. Counters that go
// backwards (a driver started anew, a ledger made anew) count from there, never as a huge step.
#include "device/monitor.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "base/vec.h"
#include "device/fraction.h"
#include "device/health.h"
#include "ledger_use.h"
#include "split.h"

enum { KEPT_MS = 60000, SPAN_MAX_MS = 60000 };
static const uint32_t NOBODY = UINT32_MAX;

// One attempt on one GPU.
struct holding {
    uint64_t job;
    uint32_t attempt, index, milli;
    int64_t seen_ms, held_ms;  // held: as a holder, not by a process alone
    uint64_t energy_mj, busy_us, throttled_us, measured_us, memory_peak_bytes;
    bool ledger_known;
    struct ledger_use ledger;
    // of the newest split
    uint64_t process_bytes;
    uint32_t process_milli, throttled_milli;
    uint64_t memory_bytes, limit_bytes;
    bool has_process, ledger_measured, ledger_read;
    bool stray;  // it holds nothing here, but a process of its was seen
    struct audit_state audit;
    char finding[AUDIT_TEXT_MAX];
};

struct monitored_gpu {
    struct gpu_reading reading;
    int64_t read_ms, last_ms;        // last: of the split before
    uint64_t energy_mj, last_energy_mj;  // as told, counted here when the device does not
    uint64_t idle_power_mw;
    uint32_t sample_at;  // of the newest split, in samples
    struct gpu_health health;
};

struct gpu_monitor {
    struct gpu_source *source;
    struct arena arena;
    struct gpu *gpus;
    uint32_t count;
    struct monitored_gpu *devices;
    VEC(struct holding) holdings;
    VEC(struct gpu_sample) samples;
    VEC(struct split_job) split;
    VEC(uint32_t) split_of;    // index in holdings
    VEC(uint32_t) process_of;  // by process of the device at hand: index in holdings, or NOBODY
    VEC(uint32_t) unlisted;
    VEC(struct gpu_finding) findings;
    struct arena texts;        // of the newest findings and samples
    struct ledger_reader *ledgers;
    int64_t now_ms;
};

int gpu_monitor_new(struct gpu_source *source, struct gpu_monitor **out, struct error *e) {
    struct gpu_monitor *m = xcalloc(1, sizeof *m);
    m->source = source;
    int r = source->ops->discover(source, &m->arena, &m->gpus, &m->count, e);
    if (r < 0) {
        gpu_monitor_free(m);
        return r;
    }
    assert(m->count <= GPU_DEVICES_MAX);
    m->devices = xcalloc(m->count ? m->count : 1, sizeof *m->devices);
    m->ledgers = gpu_ledger_reader_new();
    *out = m;
    return 0;
}

struct gpu_monitor *gpu_monitor_free(struct gpu_monitor *m) {
    if (!m)
        return NULL;
    gpu_source_free(m->source);
    arena_done(&m->arena);
    free(m->devices);
    vec_done(&m->holdings);
    vec_done(&m->samples);
    vec_done(&m->split);
    vec_done(&m->split_of);
    vec_done(&m->process_of);
    vec_done(&m->unlisted);
    vec_done(&m->findings);
    arena_done(&m->texts);
    gpu_ledger_reader_free(m->ledgers);
    free(m);
    return NULL;
}

const struct gpu *gpu_monitor_gpus(const struct gpu_monitor *m, uint32_t *count) {
    *count = m->count;
    return m->gpus;
}

void gpu_monitor_keep(const struct gpu_monitor *m, struct buf *out) {
    for (uint32_t i = 0; i < m->count; i++) {
        const struct gpu_health *h = &m->devices[i].health;
        if (h->reset_xid && h->energy_mj)
            buf_addf(out, "%s %u %llu\n", m->gpus[i].uuid, h->reset_xid, (unsigned long long)h->energy_mj);
    }
}

void gpu_monitor_recall(struct gpu_monitor *m, const char *text) {
    char uuid[97];
    unsigned xid;
    unsigned long long energy;
    for (const char *p = text; *p; p += *p == '\n') {
        size_t len = strcspn(p, "\n");
        bool whole = sscanf(p, "%96s %u %llu", uuid, &xid, &energy) == 3;
        for (uint32_t i = 0; whole && i < m->count; i++)
            if (streq(uuid, m->gpus[i].uuid) && gpu_health_recall(&m->devices[i].health, xid, energy))
                m->gpus[i].unhealthy = arena_strdup(&m->arena, m->devices[i].health.reason);
        p += len;
    }
}

void gpu_monitor_read(struct gpu_monitor *m, int64_t now_ms) {
    assert(now_ms >= m->now_ms);
    m->now_ms = now_ms;
    for (uint32_t i = 0; i < m->count; i++) {
        struct monitored_gpu *d = &m->devices[i];
        m->source->ops->read(m->source, i, now_ms, &d->reading);
        d->read_ms = now_ms;
    }
}

// The lowest power seen while nothing ran, the driver's own measure of "nothing".
static void learn_idle_power(struct monitored_gpu *d) {
    const struct gpu_sample *s = &d->reading.sample;
    if (!s->power_mw || s->utilisation_unknown || s->utilisation_milli || d->reading.process_count)
        return;
    if (!d->idle_power_mw || s->power_mw < d->idle_power_mw)
        d->idle_power_mw = s->power_mw;
}

static void settle_energy(struct monitored_gpu *d) {
    struct gpu_sample *s = &d->reading.sample;
    int64_t span = d->last_ms ? d->read_ms - d->last_ms : 0;
    if (span > SPAN_MAX_MS)
        span = SPAN_MAX_MS;
    if (d->reading.power_share_milli && d->reading.power_share_milli < 1000) {
        s->power_mw = s->power_mw * d->reading.power_share_milli / 1000;
        s->energy_mj = s->energy_mj * d->reading.power_share_milli / 1000;
    }
    if (!s->energy_mj)
        s->energy_mj = d->energy_mj + s->power_mw * (uint64_t)span / 1000;
    d->last_energy_mj = d->last_ms && s->energy_mj >= d->energy_mj ? d->energy_mj : s->energy_mj;
    d->energy_mj = s->energy_mj;
}

static void settle_device(struct gpu_monitor *m, uint32_t i, bool *changed) {
    struct monitored_gpu *d = &m->devices[i];
    if (gpu_health_update(&d->health, &d->reading, d->read_ms)) {
        *changed = true;
        m->gpus[i].unhealthy = d->health.unhealthy ? arena_strdup(&m->arena, d->health.reason) : NULL;
    }
    if (d->reading.error)
        return;
    d->reading.sample.xid_errors = d->health.xid;
    settle_energy(d);
    learn_idle_power(d);
    d->sample_at = m->samples.len;
    vec_push(&m->samples, d->reading.sample);
}

static struct holding *holding_of(struct gpu_monitor *m, uint64_t job, uint32_t attempt, uint32_t index) {
    for (uint32_t i = 0; i < m->holdings.len; i++) {
        struct holding *h = &m->holdings.at[i];
        if (h->job == job && h->attempt == attempt && h->index == index)
            return h;
    }
    return NULL;
}

static void take_holders(struct gpu_monitor *m, const struct gpu_holders *holders) {
    for (uint32_t i = 0; i < holders->count; i++) {
        const struct gpu_use *u = &holders->uses[i];
        if (u->index >= m->count)
            continue;
        struct holding *h = holding_of(m, u->job, u->attempt, u->index);
        if (!h) {
            vec_push(&m->holdings, (struct holding){.job = u->job, .attempt = u->attempt, .index = u->index});
            h = &m->holdings.at[m->holdings.len - 1];
        }
        h->milli = u->milli;
        h->seen_ms = h->held_ms = m->now_ms;
        h->process_bytes = 0;
        h->process_milli = h->throttled_milli = 0;
        h->has_process = h->ledger_measured = h->ledger_read = h->stray = false;
        uint64_t total = m->gpus[u->index].memory_bytes;
        h->limit_bytes = u->memory_limit_bytes ? u->memory_limit_bytes
                         : u->milli >= 1000    ? total
                                               : (uint64_t)((__uint128_t)total * u->milli / 1000);
    }
    for (uint32_t i = m->holdings.len; i-- > 0;)
        if (m->now_ms - m->holdings.at[i].seen_ms > KEPT_MS)
            vec_remove_swap(&m->holdings, i);
}

// A process of an attempt that holds nothing here is remembered like a holder, to be judged.
static struct holding *stray_holding(struct gpu_monitor *m, uint64_t job, uint32_t attempt, uint32_t index) {
    struct holding *h = holding_of(m, job, attempt, index);
    if (!h) {
        vec_push(&m->holdings, (struct holding){.job = job, .attempt = attempt, .index = index});
        h = &m->holdings.at[m->holdings.len - 1];
    }
    if (h->seen_ms != m->now_ms) {
        h->seen_ms = m->now_ms;
        h->process_bytes = h->limit_bytes = 0;
        h->process_milli = 0;
        h->stray = true;
    }
    return h;
}

// Sums up the processes of each holding; the rest is foreign.
static uint32_t take_processes(struct gpu_monitor *m, uint32_t index, const struct gpu_holders *holders) {
    const struct gpu_reading *r = &m->devices[index].reading;
    struct gpu_sample *whole = &m->samples.at[m->devices[index].sample_at];
    uint32_t foreign = 0;
    vec_clear(&m->process_of);
    for (uint32_t i = 0; i < r->process_count; i++) {
        const struct gpu_process *p = &r->processes[i];
        uint64_t job = p->job;
        uint32_t attempt = p->attempt;
        struct holding *h = NULL;
        if (job || (holders->owner && holders->owner(holders->ctx, p->pid, &job, &attempt)))
            h = holding_of(m, job, attempt, index);
        if (job && (!h || h->seen_ms != m->now_ms) && p->pid)
            h = stray_holding(m, job, attempt, index);
        bool ours = h && h->seen_ms == m->now_ms;
        vec_push(&m->process_of, ours ? (uint32_t)(h - m->holdings.at) : NOBODY);
        if (!ours || h->stray)
            foreign += p->utilisation_milli;
        if (!ours) {
            whole->foreign_processes++;
            whole->foreign_bytes += p->memory_bytes;
            continue;
        }
        h->has_process = true;
        h->process_bytes += p->memory_bytes;
        h->process_milli += p->utilisation_milli;
    }
    return foreign;
}

static uint64_t grown(uint64_t now, uint64_t before) {
    return now > before ? now - before : 0;
}

// The ledger of a fraction: GPU time and throttling since the last time, as parts of the span.
static void take_ledger(struct gpu_monitor *m, struct holding *h, const char *path, int64_t span_ms,
                        uint32_t *use_milli) {
    struct ledger_use now;
    if (gpu_ledger_read(m->ledgers, path, &now) < 0)
        return;
    if (h->ledger_known && span_ms > 0 && now.gpu_ns >= h->ledger.gpu_ns) {
        uint64_t use = (now.gpu_ns - h->ledger.gpu_ns) / 1000 / (uint64_t)span_ms;
        uint64_t throttled = grown(now.throttled_ns, h->ledger.throttled_ns) / 1000 / (uint64_t)span_ms;
        *use_milli = use < 1000 ? (uint32_t)use : 1000;
        h->throttled_milli = throttled < 1000 ? (uint32_t)throttled : 1000;
        h->ledger_measured = true;
    }
    h->ledger = now;
    h->ledger_known = h->ledger_read = true;
}

// The processes of the holding that its ledger, which was read last, does not know.
static void list_unlisted(struct gpu_monitor *m, const struct gpu_holders *holders, const struct holding *h) {
    const struct gpu_reading *r = &m->devices[h->index].reading;
    vec_clear(&m->unlisted);
    for (uint32_t i = 0; i < m->process_of.len; i++) {
        uint32_t pid = r->processes[i].pid;
        if (m->process_of.at[i] != (uint32_t)(h - m->holdings.at) || !pid)
            continue;
        uint32_t inner = holders->inner && !h->stray ? holders->inner(holders->ctx, pid) : 0;
        if (h->stray || (h->ledger_read && !gpu_ledger_knows(m->ledgers, pid, inner)))
            vec_push(&m->unlisted, pid);
    }
}

static void audit(struct gpu_monitor *m, const struct gpu_holders *holders, struct holding *h, bool ledger) {
    const struct gpu_reading *r = &m->devices[h->index].reading;
    if (holders->no_audit)
        return;
    struct audit_facts f = {
        .fresh = r->processes_fresh,
        .granted = !h->stray,
        .limit_bytes = h->milli < FRACTION_WHOLE_MILLI ? h->limit_bytes : 0,
        .milli = h->milli,
        .ledger = ledger,
        .ledger_readable = h->ledger_read,
        .ledger_bytes = h->ledger.used_bytes,
        .ledger_limit_bytes = h->ledger.limit_bytes,
        .ledger_milli = h->ledger.compute_milli,
        .driver_bytes = h->process_bytes,
    };
    for (uint32_t i = 0; i < m->process_of.len; i++)
        f.processes += m->process_of.at[i] == (uint32_t)(h - m->holdings.at);
    vec_clear(&m->unlisted);
    if (f.fresh && (ledger || h->stray))
        list_unlisted(m, holders, h);
    f.unlisted = m->unlisted.at;
    f.unlisted_count = m->unlisted.len;
    struct audit_finding found = gpu_audit_look(&h->audit, &f, m->now_ms);
    if (f.fresh)
        gpu_audit_text(&found, h->index, h->finding);
    if (found.kind) {
        struct gpu_finding told = {.job = h->job, .attempt = h->attempt, .index = h->index, .what = found,
                                   .text = arena_strdup(&m->texts, h->finding)};
        vec_push(&m->findings, told);
    }
}

static void measure(struct gpu_monitor *m, const struct gpu_holders *holders, const struct gpu_use *u,
                    struct holding *h, int64_t span_ms) {
    const struct gpu_reading *r = &m->devices[u->index].reading;
    struct split_job j = {.milli = u->milli};
    if (u->ledger)
        take_ledger(m, h, u->ledger, span_ms, &j.use_milli);
    audit(m, holders, h, u->ledger != NULL);
    if (u->milli >= 1000 && !r->sample.utilisation_unknown) {
        j.use_milli = r->sample.utilisation_milli;  // alone on it: the device's own figure is the job's
        j.measured = true;
    } else if (h->ledger_measured) {
        j.measured = true;
    } else if (r->process_use && h->has_process) {
        j.use_milli = h->process_milli;
        j.measured = true;
    }
    if (h->ledger_known && u->ledger)
        h->memory_bytes = h->ledger.used_bytes;
    else if (h->has_process && h->process_bytes)
        h->memory_bytes = h->process_bytes;
    else
        h->memory_bytes = u->milli >= 1000 ? r->sample.memory_used_bytes : 0;
    vec_push(&m->split, j);
    vec_push(&m->split_of, (uint32_t)(h - m->holdings.at));
}

static void book(struct gpu_monitor *m, const struct split_job *j, struct holding *h, int64_t span_ms) {
    const struct gpu_reading *r = &m->devices[h->index].reading;
    h->energy_mj += j->energy_mj;
    h->busy_us += (uint64_t)j->use_milli * (uint64_t)span_ms;
    h->throttled_us += (uint64_t)h->throttled_milli * (uint64_t)span_ms;
    if (j->measured || !r->sample.utilisation_unknown)
        h->measured_us += (uint64_t)span_ms * 1000;
    uint64_t peak = h->memory_bytes > h->ledger.peak_bytes ? h->memory_bytes : h->ledger.peak_bytes;
    if (peak > h->memory_peak_bytes)
        h->memory_peak_bytes = peak;
    struct gpu_sample s = {
        .index = h->index,
        .id = h->job,
        .attempt = h->attempt,
        .utilisation_milli = j->use_milli,
        .utilisation_unknown = !j->measured && r->sample.utilisation_unknown,
        .memory_used_bytes = h->memory_bytes,
        .memory_total_bytes = h->limit_bytes,
        .power_mw = j->power_mw,
        .energy_mj = h->energy_mj,
        .temperature_c = r->sample.temperature_c,
        .sm_clock_mhz = r->sample.sm_clock_mhz,
        .memory_clock_mhz = r->sample.memory_clock_mhz,
        .throttle_reasons = r->sample.throttle_reasons,
        .throttled_milli = h->throttled_milli,
        .finding = h->finding[0] ? arena_strdup(&m->texts, h->finding) : NULL,
    };
    vec_push(&m->samples, s);
}

// Where it is only to be warned of, its owner and the administrators see it like everything else.
static void tell_stray(struct gpu_monitor *m, const struct holding *h) {
    if (!h->finding[0])
        return;
    struct gpu_sample s = {
        .index = h->index,
        .id = h->job,
        .attempt = h->attempt,
        .utilisation_unknown = true,
        .memory_used_bytes = h->process_bytes,
        .finding = arena_strdup(&m->texts, h->finding),
        .stray = true,
    };
    vec_push(&m->samples, s);
}

static void split_device(struct gpu_monitor *m, uint32_t index, const struct gpu_holders *holders) {
    struct monitored_gpu *d = &m->devices[index];
    if (d->reading.error)
        return;
    int64_t span = d->last_ms ? d->read_ms - d->last_ms : 0;
    if (span > SPAN_MAX_MS)
        span = SPAN_MAX_MS;
    uint32_t foreign = take_processes(m, index, holders);
    vec_clear(&m->split);
    vec_clear(&m->split_of);
    for (uint32_t i = 0; i < holders->count; i++)
        if (holders->uses[i].index == index)
            measure(m, holders, &holders->uses[i],
                    holding_of(m, holders->uses[i].job, holders->uses[i].attempt, index), span);
    for (uint32_t i = 0; i < m->holdings.len; i++)
        if (m->holdings.at[i].stray && m->holdings.at[i].index == index && m->holdings.at[i].seen_ms == m->now_ms) {
            audit(m, holders, &m->holdings.at[i], false);
            tell_stray(m, &m->holdings.at[i]);
        }
    struct split_device dev = {
        .use_known = !d->reading.sample.utilisation_unknown,
        .use_milli = d->reading.sample.utilisation_milli,
        .foreign_milli = foreign,
        .power_mw = d->reading.sample.power_mw,
        .energy_mj = d->energy_mj - d->last_energy_mj,
        .idle_power_mw = d->idle_power_mw,
        .span_ms = span,
    };
    gpu_split(&dev, m->split.at, m->split.len);
    for (uint32_t i = 0; i < m->split.len; i++)
        book(m, &m->split.at[i], &m->holdings.at[m->split_of.at[i]], span);
    d->last_ms = d->read_ms;
}

void gpu_monitor_split(struct gpu_monitor *m, const struct gpu_holders *holders, struct gpu_samples *out) {
    bool changed = false;
    vec_clear(&m->samples);
    vec_clear(&m->findings);
    arena_done(&m->texts);
    m->texts = (struct arena){0};
    for (uint32_t i = 0; i < m->count; i++)
        settle_device(m, i, &changed);
    take_holders(m, holders);
    for (uint32_t i = 0; i < m->count; i++)
        split_device(m, i, holders);
    if (m->source->ops->running)
        m->source->ops->running(m->source, holders->uses, holders->count);
    *out = (struct gpu_samples){.at = m->samples.at, .len = m->samples.len, .health_changed = changed,
                                .findings = m->findings.at, .finding_count = m->findings.len};
}

bool gpu_monitor_usage(const struct gpu_monitor *m, uint64_t job, uint32_t attempt, struct usage *sum) {
    bool known = false;
    for (uint32_t i = 0; i < m->holdings.len; i++) {
        const struct holding *h = &m->holdings.at[i];
        if (h->job != job || h->attempt != attempt || !h->held_ms || m->now_ms - h->held_ms > KEPT_MS)
            continue;
        known = true;
        sum->gpu_busy_ms += h->busy_us / 1000;
        sum->gpu_throttled_ms += h->throttled_us / 1000;
        sum->gpu_measured_ms += h->measured_us / 1000;
        sum->gpu_memory_peak_bytes += h->memory_peak_bytes;
        sum->energy_mj += h->energy_mj;
    }
    return known;
}
