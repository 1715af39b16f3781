// One reading of a GPU: each question that is due is asked and timed, the others keep their newest
// answer. All together have an allowance of 1.1 ms of CPU a second, which is less than 1 % of a core for
// eight GPUs: cheap questions are always asked, the dear ones take turns, and with a driver for which most
// are dear all become slower by the same factor. Energy between two looks at its counter is power times
// time. Rates come from counters where the driver has them, because its own measurement of PCIe traffic
// blocks for 20 ms a direction: without counters one GPU is measured per second, in turn.
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "device/nvml.h"

enum {
    EVENTS_PER_READING = 64,
    READING_MS = 1000,
    EARLY_MS = 100,
    PROCESS_USE_AGE_MS = 3000,
    ALLOWANCE_US = 1100,   // of CPU per second and GPU
    SAVED_MAX_US = 2000,   // what is left over is kept for a while
    CHEAP_US = 60,
    EVENT_ALLOWANCE_US = 100,
    EVENT_INTERVAL_MAX_MS = 5000,
    OVERDUE_MAX = 1000000,
};

static void note_xid(struct nvml_source *s, nvml_device d, uint32_t xid) {
    for (uint32_t i = 0; i < s->count; i++) {
        struct nvml_gpu *g = &s->gpus[i];
        if (g->physical == d && g->xid_count < GPU_XIDS_MAX)
            g->xids[g->xid_count++] = xid;
    }
}

static void poll_events(struct nvml_source *s) {
    if (!s->events)
        return;
    for (int n = 0; n < EVENTS_PER_READING; n++) {
        struct nvml_event event = {0};
        if (s->api.events_wait(s->events, &event, 0))
            return;
        if (event.type == NVML_EVENT_XID)
            note_xid(s, event.device, (uint32_t)event.data);
        else if (event.type == NVML_EVENT_DOUBLE_BIT_ECC)
            note_xid(s, event.device, 48);  // what the driver reports for it, too
    }
}

static uint64_t rate_of(struct nvml_rate *r, uint64_t value, int64_t now_ms) {
    uint64_t rate = 0;
    if (r->known && value >= r->value && now_ms > r->at_ms)
        rate = (uint64_t)((double)(value - r->value) * 1000.0 / (double)(now_ms - r->at_ms));
    *r = (struct nvml_rate){.value = value, .at_ms = now_ms, .known = true};
    return rate;
}

static bool field_u64(const struct nvml_field *f, uint64_t *out) {
    if (f->result)
        return false;
    switch ((enum nvml_value)f->type) {
    case NVML_VALUE_DOUBLE: *out = f->value.d > 0 ? (uint64_t)f->value.d : 0; return true;
    case NVML_VALUE_UINT: *out = f->value.u; return true;
    case NVML_VALUE_ULONG: *out = f->value.ul; return true;
    case NVML_VALUE_ULONG_LONG: *out = f->value.ull; return true;
    case NVML_VALUE_LONG_LONG: *out = f->value.ll > 0 ? (uint64_t)f->value.ll : 0; return true;
    case NVML_VALUE_INT: *out = f->value.i > 0 ? (uint64_t)f->value.i : 0; return true;
    }
    return false;
}

// --- the questions; each leaves what it learnt in g->sample ---

static void ask_memory(struct nvml_source *s, struct nvml_gpu *g, int64_t now_ms) {
    struct nvml_memory_v2 v2 = {.version = sizeof v2 | 2u << 24};
    g->error = 0;
    if (s->api.memory_v2 && !s->api.memory_v2(g->handle, &v2)) {
        g->sample.memory_total_bytes = v2.total;
        g->sample.memory_used_bytes = v2.used;
        return;
    }
    struct nvml_memory v1 = {0};
    g->error = s->api.memory(g->handle, &v1);
    g->sample.memory_total_bytes = v1.total;
    g->sample.memory_used_bytes = v1.used;
}

static void ask_use(struct nvml_source *s, struct nvml_gpu *g, int64_t now_ms) {
    struct nvml_utilisation use;
    if (g->mig || s->gpm_always) {
        if (nvml_gpm_read(s, g)) {
            g->sample.utilisation_milli = g->sample.engine_milli;
            g->sample.memory_copy_milli = g->sample.dram_milli;
            g->sample.utilisation_unknown = false;
            return;
        }
    }
    g->sample.utilisation_unknown = !s->api.utilisation || s->api.utilisation(g->handle, &use);
    if (g->sample.utilisation_unknown)
        return;
    g->sample.utilisation_milli = use.gpu * 10;
    g->sample.memory_copy_milli = use.memory * 10;
}

static void ask_engines(struct nvml_source *s, struct nvml_gpu *g, int64_t now_ms) {
    unsigned v, period;
    if (s->api.encoder && !s->api.encoder(g->physical, &v, &period))
        g->sample.encoder_milli = v * 10;
    if (s->api.decoder && !s->api.decoder(g->physical, &v, &period))
        g->sample.decoder_milli = v * 10;
}

static void ask_energy(struct nvml_source *s, struct nvml_gpu *g, int64_t now_ms) {
    unsigned long long mj;
    if (!s->api.energy || s->api.energy(g->physical, &mj))
        return;
    bool reset = mj < g->energy_mj;
    if (reset || mj > g->sample.energy_mj)
        g->sample.energy_mj = mj;  // an estimate that was too high waits until the counter has passed it
    g->energy_mj = mj;
    g->energy_ms = now_ms;
}

static void estimate_energy(struct nvml_gpu *g, int64_t now_ms) {
    if (g->energy_mj && now_ms > g->energy_ms) {
        uint64_t mj = g->energy_mj + g->sample.power_mw * (uint64_t)(now_ms - g->energy_ms) / 1000;
        if (mj > g->sample.energy_mj)
            g->sample.energy_mj = mj;
    }
}

static bool ask_fields(struct nvml_source *s, struct nvml_gpu *g, struct nvml_field *f, int count) {
    return s->api.fields && !s->api.fields(g->physical, count, f);
}

// The average over a second costs some drivers milliseconds: only where the instant value is missing.
static void ask_power(struct nvml_source *s, struct nvml_gpu *g, int64_t now_ms) {
    struct nvml_field f = {.id = NVML_FI_POWER_INSTANT};
    uint64_t v;
    unsigned mw;
    if (!g->no_instant_power && ask_fields(s, g, &f, 1) && field_u64(&f, &v)) {
        g->sample.power_mw = v;
        return;
    }
    g->no_instant_power = true;
    if (s->api.power && !s->api.power(g->physical, &mw))
        g->sample.power_mw = mw;
}

static void ask_temperature(struct nvml_source *s, struct nvml_gpu *g, int64_t now_ms) {
    unsigned v;
    if (s->api.temperature && !s->api.temperature(g->physical, 0, &v))
        g->sample.temperature_c = (int32_t)v;
}

static void ask_memory_temperature(struct nvml_source *s, struct nvml_gpu *g, int64_t now_ms) {
    struct nvml_field f = {.id = NVML_FI_MEMORY_TEMP};
    uint64_t v;
    if (ask_fields(s, g, &f, 1) && field_u64(&f, &v))
        g->sample.memory_temperature_c = (int32_t)v;
}

static void ask_clocks(struct nvml_source *s, struct nvml_gpu *g, int64_t now_ms) {
    unsigned v;
    if (s->api.clock && !s->api.clock(g->physical, NVML_CLOCK_SM, &v))
        g->sample.sm_clock_mhz = v;
    if (s->api.clock && !s->api.clock(g->physical, NVML_CLOCK_MEM, &v))
        g->sample.memory_clock_mhz = v;
}

static void ask_reasons(struct nvml_source *s, struct nvml_gpu *g, int64_t now_ms) {
    unsigned long long v;
    if ((s->api.reasons && !s->api.reasons(g->physical, &v)) ||
        (s->api.reasons_old && !s->api.reasons_old(g->physical, &v)))
        g->sample.throttle_reasons = v;
}

static void ask_pcie(struct nvml_source *s, struct nvml_gpu *g, int64_t now_ms) {
    struct nvml_field f[] = {{.id = NVML_FI_PCIE_TX}, {.id = NVML_FI_PCIE_RX}};
    uint64_t tx, rx;
    unsigned kb;
    if (!g->no_pcie_counts && ask_fields(s, g, f, 2) && field_u64(&f[0], &tx) && field_u64(&f[1], &rx)) {
        g->sample.pcie_tx_bytes_s = rate_of(&g->pcie_tx, tx, now_ms);
        g->sample.pcie_rx_bytes_s = rate_of(&g->pcie_rx, rx, now_ms);
        return;
    }
    g->no_pcie_counts = true;
    if (!s->api.pcie || s->pcie_turn % s->count != (uint32_t)(g - s->gpus))
        return;
    if (!s->api.pcie(g->physical, NVML_PCIE_TX, &kb))
        g->sample.pcie_tx_bytes_s = (uint64_t)kb * 1024;
    if (!s->api.pcie(g->physical, NVML_PCIE_RX, &kb))
        g->sample.pcie_rx_bytes_s = (uint64_t)kb * 1024;
}

static void ask_nvlink(struct nvml_source *s, struct nvml_gpu *g, int64_t now_ms) {
    struct nvml_field f[] = {{.id = NVML_FI_NVLINK_TX, .scope = NVML_ALL_LINKS},
                             {.id = NVML_FI_NVLINK_RX, .scope = NVML_ALL_LINKS}};
    uint64_t tx, rx;
    if (ask_fields(s, g, f, 2) && field_u64(&f[0], &tx) && field_u64(&f[1], &rx))
        g->sample.nvlink_bytes_s = rate_of(&g->nvlink, tx + rx, now_ms) * 1024;
}

// Of instances, and where the two ways are compared, this is how use is measured anyway.
static void ask_profile(struct nvml_source *s, struct nvml_gpu *g, int64_t now_ms) {
    if (!g->mig && !s->gpm_always)
        nvml_gpm_read(s, g);
}

static void ask_errors(struct nvml_source *s, struct nvml_gpu *g, int64_t now_ms) {
    unsigned long long ecc;
    unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0, replays;
    if (s->api.ecc && !s->api.ecc(g->physical, NVML_ECC_UNCORRECTED, NVML_ECC_VOLATILE, &ecc))
        g->sample.ecc_errors = ecc;
    if (s->api.remapped && !s->api.remapped(g->physical, &corrected, &uncorrected, &pending, &failed)) {
        g->sample.remapped_rows = corrected + uncorrected;
        g->sample.remapped_uncorrected = uncorrected;
        g->sample.remap_failed = failed;
        g->remap_pending = pending;
        g->remap_failed = failed;
    } else if (s->api.retired_pending && !s->api.retired_pending(g->physical, &pending)) {
        g->remap_pending = pending;  // older GPUs retire pages
    }
    if (s->api.pcie_replays && !s->api.pcie_replays(g->physical, &replays))
        g->sample.pcie_replays = replays;
}

// --- processes ---

static struct gpu_process *process_of(struct gpu_process *list, uint32_t *count, uint32_t pid) {
    for (uint32_t i = 0; i < *count; i++)
        if (list[i].pid == pid)
            return &list[i];
    if (*count == GPU_PROCESSES_MAX)
        return NULL;
    list[*count] = (struct gpu_process){.pid = pid};
    return &list[(*count)++];
}

static struct gpu_process *list_of(struct gpu_process **list) {
    if (!*list)
        *list = xcalloc(GPU_PROCESSES_MAX, sizeof **list);
    return *list;
}

// ~0 means that the driver does not know (inside some virtual machines).
static void add_memory(struct nvml_gpu *g, unsigned pid, unsigned long long memory) {
    struct gpu_process *p = process_of(list_of(&g->memory_of), &g->memory_count, pid);
    if (p && memory != ~0ULL)
        p->memory_bytes += memory;
}

static void ask_processes(struct nvml_source *s, struct nvml_gpu *g, int64_t now_ms) {
    unsigned n = GPU_PROCESSES_MAX;
    int (*list)(nvml_device, unsigned *, struct nvml_process_v2 *) =
        s->api.processes_v3 ? s->api.processes_v3 : s->api.processes_v2;
    g->memory_count = 0;
    g->processes_ms = now_ms;
    if (list) {
        struct nvml_process_v2 *at = s->scratch;
        int r = list(g->handle, &n, at);
        for (unsigned i = 0; (!r || r == NVML_INSUFFICIENT_SIZE) && i < n && i < GPU_PROCESSES_MAX; i++)
            add_memory(g, at[i].pid, at[i].memory);
    } else if (s->api.processes_v1) {
        struct nvml_process_v1 *at = s->scratch;
        int r = s->api.processes_v1(g->handle, &n, at);
        for (unsigned i = 0; (!r || r == NVML_INSUFFICIENT_SIZE) && i < n && i < GPU_PROCESSES_MAX; i++)
            add_memory(g, at[i].pid, at[i].memory);
    }
}

// The driver keeps a short history per process; what is newer than the last time is averaged. A
// process without use has no entries, and then "not found" means that none has any.
static void ask_process_use(struct nvml_source *s, struct nvml_gpu *g, int64_t now_ms) {
    struct nvml_process_use *at = s->scratch;
    unsigned n = GPU_PROCESSES_MAX;
    g->use_count = 0;
    g->process_use = s->api.process_use && !g->mig;
    int r = g->process_use ? s->api.process_use(g->handle, at, &n, g->process_at_us) : NVML_NOT_SUPPORTED;
    g->process_use = !r || r == NVML_NOT_FOUND;
    uint64_t newest = g->process_at_us;
    for (unsigned i = 0; !r && i < n && i < GPU_PROCESSES_MAX; i++) {
        if (at[i].at_us <= g->process_at_us || at[i].sm > 100)  // old entries and junk come along
            continue;
        struct gpu_process *p = process_of(list_of(&g->use_of), &g->use_count, at[i].pid);
        unsigned same = 0, sum = 0;
        for (unsigned k = 0; k < n && k < GPU_PROCESSES_MAX; k++)
            if (at[k].pid == at[i].pid && at[k].at_us > g->process_at_us && at[k].sm <= 100) {
                same++;
                sum += at[k].sm;
            }
        if (p)
            p->utilisation_milli = sum * 10 / same;
        if (at[i].at_us > newest)
            newest = at[i].at_us;
    }
    g->process_at_us = newest;
}

// What processes did a while ago says nothing about now, nor about who is there.
static void merge_processes(struct nvml_gpu *g, struct gpu_reading *out, int64_t now_ms) {
    bool recent = now_ms - g->turns[PROBE_PROCESS_USE].asked_ms <= PROCESS_USE_AGE_MS;
    uint32_t use_count = recent ? g->use_count : 0;
    out->process_use = g->process_use && recent;
    if (!g->memory_count && !use_count)
        return;
    struct gpu_process *list = list_of(&g->processes);
    for (uint32_t i = 0; i < g->memory_count; i++)
        list[out->process_count++] = g->memory_of[i];
    for (uint32_t i = 0; i < use_count; i++) {
        struct gpu_process *p = process_of(list, &out->process_count, g->use_of[i].pid);
        if (p)
            p->utilisation_milli = g->use_of[i].utilisation_milli;
    }
    out->processes = list;
}

// --- turns ---

static const struct {
    void (*ask)(struct nvml_source *s, struct nvml_gpu *g, int64_t now_ms);
    uint32_t cheap_us;  // at most this: asked each time
    uint32_t every_ms;  // dearer than that: so often, or less often if all of them are too dear
    uint32_t least_ms;  // not more often than this in any case
} probes[PROBE_COUNT] = {
    // What jobs are judged by: each second, unless a driver is very slow.
    [PROBE_MEMORY] = {ask_memory, 150, 1000, 0},
    [PROBE_POWER] = {ask_power, 300, 1000, 0},
    [PROBE_PROCESSES] = {ask_processes, 200, 1000, 0},
    [PROBE_USE] = {ask_use, CHEAP_US, 2000, 0},
    // What changes slowly, or can be told from the others meanwhile.
    [PROBE_TEMPERATURE] = {ask_temperature, CHEAP_US, 5000, 0},
    [PROBE_MEMORY_TEMPERATURE] = {ask_memory_temperature, CHEAP_US, 5000, 0},
    [PROBE_CLOCKS] = {ask_clocks, CHEAP_US, 5000, 0},
    [PROBE_REASONS] = {ask_reasons, CHEAP_US, 5000, 0},
    [PROBE_PCIE] = {ask_pcie, CHEAP_US, 10000, 0},
    [PROBE_NVLINK] = {ask_nvlink, CHEAP_US, 10000, 0},
    [PROBE_ENGINES] = {ask_engines, CHEAP_US, 10000, 0},
    [PROBE_ENERGY] = {ask_energy, CHEAP_US, 30000, 0},
    [PROBE_PROCESS_USE] = {ask_process_use, CHEAP_US, 60000, 0},
    [PROBE_ERRORS] = {ask_errors, CHEAP_US, 60000, 15000},
    [PROBE_PROFILE] = {ask_profile, CHEAP_US, 10000, 2000},
};

static double thread_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void note_cost(struct nvml_turn *turn, double cost_us) {
    turn->cost_us = turn->cost_us ? (turn->cost_us * 3 + cost_us) / 4 : cost_us;
}

static void ask(struct nvml_source *s, struct nvml_gpu *g, enum nvml_probe probe, int64_t now_ms) {
    struct nvml_turn *turn = &g->turns[probe];
    double before = thread_us();
    probes[probe].ask(s, g, now_ms);
    double cost = thread_us() - before;
    note_cost(turn, cost);
    if (turn->asked)  // the first look at everything is for free
        g->budget_us -= cost;
    turn->asked_ms = now_ms;
    turn->asked = true;
}

static bool is_cheap(const struct nvml_gpu *g, enum nvml_probe probe) {
    return g->turns[probe].cost_us <= probes[probe].cheap_us;
}

// How long it has waited, in parts of the time it should wait; below 1: it is not its turn.
static double overdue(const struct nvml_gpu *g, enum nvml_probe probe, int64_t now_ms) {
    const struct nvml_turn *turn = &g->turns[probe];
    if (!turn->asked || (probe == PROBE_ERRORS && g->xid_count))
        return OVERDUE_MAX;  // after an error the cheap way to learn more is to ask at once
    uint32_t every_ms = is_cheap(g, probe) ? READING_MS : probes[probe].every_ms;
    if (every_ms < probes[probe].least_ms)
        every_ms = probes[probe].least_ms;
    return (double)(now_ms - turn->asked_ms + EARLY_MS) / every_ms;
}

static void earn(struct nvml_gpu *g, int64_t now_ms) {
    int64_t span_ms = g->earned_ms ? now_ms - g->earned_ms : 1000;
    g->earned_ms = now_ms;
    g->budget_us += (double)span_ms * ALLOWANCE_US / 1000;
    if (g->budget_us > SAVED_MAX_US)
        g->budget_us = SAVED_MAX_US;
}

// The cheap questions that are due, and of the dear ones those that have waited longest for their
// kind, as long as there is time left.
static void take_turns(struct nvml_source *s, struct nvml_gpu *g, int64_t now_ms) {
    for (int p = PROBE_MEMORY + 1; p < PROBE_COUNT; p++) {
        double late = overdue(g, (enum nvml_probe)p, now_ms);
        if (late >= OVERDUE_MAX || (late >= 1 && is_cheap(g, (enum nvml_probe)p)))
            ask(s, g, (enum nvml_probe)p, now_ms);
    }
    while (g->budget_us > 0) {
        int next = -1;
        double most = 1;
        for (int p = PROBE_MEMORY; p < PROBE_COUNT; p++) {
            double late = overdue(g, (enum nvml_probe)p, now_ms);
            if (late >= most && g->turns[p].asked_ms != now_ms) {
                most = late;
                next = p;
            }
        }
        if (next < 0)
            return;
        ask(s, g, (enum nvml_probe)next, now_ms);
    }
}

static void take_event_turn(struct nvml_source *s, int64_t now_ms) {
    double wait_ms = s->event_turn.cost_us > CHEAP_US ? s->event_turn.cost_us * 1000 / EVENT_ALLOWANCE_US : 0;
    if (wait_ms > EVENT_INTERVAL_MAX_MS)
        wait_ms = EVENT_INTERVAL_MAX_MS;
    if (s->event_turn.asked && (double)(now_ms - s->event_turn.asked_ms + EARLY_MS) < wait_ms)
        return;
    double before = thread_us();
    poll_events(s);
    note_cost(&s->event_turn, thread_us() - before);
    s->event_turn.asked_ms = now_ms;
    s->event_turn.asked = true;
}

static void hand_over_xids(struct nvml_gpu *g, struct gpu_reading *out) {
    out->xid_count = g->xid_count;
    memcpy(out->xids, g->xids, sizeof out->xids);
    g->xid_count = 0;
}

void nvml_read(struct gpu_source *base, uint32_t index, int64_t now_ms, struct gpu_reading *out) {
    struct nvml_source *s = (struct nvml_source *)base;
    assert(index < s->count);
    struct nvml_gpu *g = &s->gpus[index];
    *out = (struct gpu_reading){.power_share_milli = g->power_share_milli};
    if (index == 0) {
        take_event_turn(s, now_ms);
        s->pcie_turn++;
    }
    earn(g, now_ms);
    // Whether it answers at all is learnt here.
    if (overdue(g, PROBE_MEMORY, now_ms) >= 1 && (g->error || is_cheap(g, PROBE_MEMORY)))
        ask(s, g, PROBE_MEMORY, now_ms);
    if (!g->error)
        take_turns(s, g, now_ms);
    if (g->error) {
        hand_over_xids(g, out);
        const char *text = s->api.error_text ? s->api.error_text(g->error) : NULL;
        snprintf(out->error_text, sizeof out->error_text, "%s", text ? text : "the driver gives an error");
        out->error = g->error == NVML_GPU_IS_LOST || g->error == NVML_RESET_REQUIRED ? -ENODEV : -EIO;
        return;
    }
    estimate_energy(g, now_ms);
    hand_over_xids(g, out);
    out->sample = g->sample;
    out->sample.index = index;
    out->remap_pending = g->remap_pending;
    out->remap_failed = g->remap_failed;
    out->processes_fresh = g->processes_ms == now_ms;
    merge_processes(g, out, now_ms);
}
