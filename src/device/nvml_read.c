// One reading of a GPU: each question that is due is asked and timed, the others keep their newest
// answer. The allowances below add up to less than 1 % of a core for eight GPUs; what is neither cheap
// nor within its allowance is asked less often than every second. Rates come from counters where the driver has
// them, because its own measurement of PCIe traffic blocks for 20 ms a direction: without counters one
// GPU is measured per second, in turn.
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "device/nvml.h"

enum { EVENTS_PER_READING = 64, INTERVAL_MAX_MS = 30000, EARLY_MS = 100, CHEAP_US = 60,
       EVENT_ALLOWANCE_US = 100, EVENT_INTERVAL_MAX_MS = 5000 };

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
    if (s->api.energy && !s->api.energy(g->physical, &mj))
        g->sample.energy_mj = mj;
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
    if ((s->api.reasons && !s->api.reasons(g->physical, &v)) || (s->api.reasons_old && !s->api.reasons_old(g->physical, &v)))
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
    struct nvml_field f[] = {{.id = NVML_FI_NVLINK_TX, .scope = NVML_ALL_LINKS}, {.id = NVML_FI_NVLINK_RX, .scope = NVML_ALL_LINKS}};
    uint64_t tx, rx;
    if (ask_fields(s, g, f, 2) && field_u64(&f[0], &tx) && field_u64(&f[1], &rx))
        g->sample.nvlink_bytes_s = rate_of(&g->nvlink, tx + rx, now_ms) * 1024;
}

static void ask_errors(struct nvml_source *s, struct nvml_gpu *g, int64_t now_ms) {
    unsigned long long ecc;
    unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0, replays;
    if (s->api.ecc && !s->api.ecc(g->physical, NVML_ECC_UNCORRECTED, NVML_ECC_VOLATILE, &ecc))
        g->sample.ecc_errors = ecc;
    if (s->api.remapped && !s->api.remapped(g->physical, &corrected, &uncorrected, &pending, &failed)) {
        g->sample.remapped_rows = corrected + uncorrected;
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
    int (*list)(nvml_device, unsigned *, struct nvml_process_v2 *) = s->api.processes_v3 ? s->api.processes_v3 : s->api.processes_v2;
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

static void merge_processes(struct nvml_gpu *g, struct gpu_reading *out) {
    if (!g->memory_count && !g->use_count)
        return;
    struct gpu_process *list = list_of(&g->processes);
    for (uint32_t i = 0; i < g->memory_count; i++)
        list[out->process_count++] = g->memory_of[i];
    for (uint32_t i = 0; i < g->use_count; i++) {
        struct gpu_process *p = process_of(list, &out->process_count, g->use_of[i].pid);
        if (p)
            p->utilisation_milli = g->use_of[i].utilisation_milli;
    }
    out->processes = list;
}

// --- turns ---

static const struct {
    void (*ask)(struct nvml_source *s, struct nvml_gpu *g, int64_t now_ms);
    uint32_t allowance_us;  // of CPU per second
    uint32_t least_ms;      // not asked more often, however cheap
} probes[PROBE_COUNT] = {
    [PROBE_MEMORY] = {ask_memory, 120, 0},
    [PROBE_USE] = {ask_use, 200, 0},
    [PROBE_ENGINES] = {ask_engines, 20, 0},
    [PROBE_ENERGY] = {ask_energy, 120, 0},
    [PROBE_POWER] = {ask_power, 120, 0},
    [PROBE_TEMPERATURE] = {ask_temperature, 50, 0},
    [PROBE_MEMORY_TEMPERATURE] = {ask_memory_temperature, 20, 0},
    [PROBE_CLOCKS] = {ask_clocks, 50, 0},
    [PROBE_REASONS] = {ask_reasons, 50, 0},
    [PROBE_PCIE] = {ask_pcie, 50, 0},
    [PROBE_NVLINK] = {ask_nvlink, 50, 0},
    [PROBE_PROCESSES] = {ask_processes, 80, 0},
    [PROBE_PROCESS_USE] = {ask_process_use, 120, 0},
    [PROBE_ERRORS] = {ask_errors, 20, 15000},
};

static double thread_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

// When to ask again what has just cost `cost_us`.
static void set_turn(struct nvml_turn *turn, double cost_us, uint32_t allowance_us, double least_ms, double most_ms, int64_t now_ms) {
    turn->cost_us = turn->cost_us ? (turn->cost_us * 3 + cost_us) / 4 : cost_us;
    double interval = turn->cost_us > CHEAP_US ? turn->cost_us * 1000 / allowance_us : 0;
    if (interval > most_ms)
        interval = most_ms;
    if (interval < least_ms)
        interval = least_ms;
    turn->next_ms = now_ms + (int64_t)interval - EARLY_MS;
}

static void take_turn(struct nvml_source *s, struct nvml_gpu *g, enum nvml_probe probe, int64_t now_ms) {
    struct nvml_turn *turn = &g->turns[probe];
    // After an error the cheap way to learn more is to ask at once.
    bool urgent = probe == PROBE_ERRORS && g->xid_count;
    if (now_ms < turn->next_ms && !urgent)
        return;
    double before = thread_us();
    probes[probe].ask(s, g, now_ms);
    set_turn(turn, thread_us() - before, probes[probe].allowance_us, probes[probe].least_ms, INTERVAL_MAX_MS, now_ms);
}

static void take_event_turn(struct nvml_source *s, int64_t now_ms) {
    if (now_ms < s->event_turn.next_ms)
        return;
    double before = thread_us();
    poll_events(s);
    set_turn(&s->event_turn, thread_us() - before, EVENT_ALLOWANCE_US, 0, EVENT_INTERVAL_MAX_MS, now_ms);
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
    take_turn(s, g, PROBE_MEMORY, now_ms);
    if (g->error) {
        hand_over_xids(g, out);
        const char *text = s->api.error_text ? s->api.error_text(g->error) : NULL;
        snprintf(out->error_text, sizeof out->error_text, "%s", text ? text : "the driver gives an error");
        out->error = g->error == NVML_GPU_IS_LOST || g->error == NVML_RESET_REQUIRED ? -ENODEV : -EIO;
        return;
    }
    for (int probe = PROBE_MEMORY + 1; probe < PROBE_COUNT; probe++)
        take_turn(s, g, (enum nvml_probe)probe, now_ms);
    hand_over_xids(g, out);
    out->sample = g->sample;
    out->sample.index = index;
    out->remap_pending = g->remap_pending;
    out->remap_failed = g->remap_failed;
    out->process_use = g->process_use;
    out->processes_fresh = g->processes_ms == now_ms;
    merge_processes(g, out);
}
