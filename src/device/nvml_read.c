// One reading of a GPU. Values that change slowly (errors, replaced rows) are asked for every
// SLOW_MS; rates come from counters where the driver has them, because its own measurement of PCIe
// traffic blocks for 20 ms a direction: without counters one GPU is measured per second, in turn.
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "device/nvml.h"

enum { SLOW_MS = 15000, EVENTS_PER_READING = 64 };

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

// Several values in one call; those the GPU lacks say so one by one.
static void read_fields(struct nvml_source *s, struct nvml_gpu *g, int64_t now_ms, struct gpu_sample *out) {
    struct nvml_field f[] = {
        {.id = NVML_FI_MEMORY_TEMP}, {.id = NVML_FI_PCIE_TX}, {.id = NVML_FI_PCIE_RX},
        {.id = NVML_FI_NVLINK_TX, .scope = NVML_ALL_LINKS}, {.id = NVML_FI_NVLINK_RX, .scope = NVML_ALL_LINKS},
        {.id = NVML_FI_POWER_INSTANT},
    };
    uint64_t v, tx, rx;
    if (!s->api.fields || s->api.fields(g->physical, sizeof f / sizeof *f, f))
        return;
    if (field_u64(&f[0], &v))
        out->memory_temperature_c = (int32_t)v;
    g->pcie_counts = field_u64(&f[1], &tx) && field_u64(&f[2], &rx);
    if (g->pcie_counts) {
        out->pcie_tx_bytes_s = rate_of(&g->pcie_tx, tx, now_ms);
        out->pcie_rx_bytes_s = rate_of(&g->pcie_rx, rx, now_ms);
    }
    if (field_u64(&f[3], &tx) && field_u64(&f[4], &rx))
        out->nvlink_bytes_s = rate_of(&g->nvlink, tx + rx, now_ms) * 1024;
    if (field_u64(&f[5], &v))
        out->power_mw = v;
}

static void read_pcie(struct nvml_source *s, struct nvml_gpu *g, uint32_t index, struct gpu_sample *out) {
    if (g->pcie_counts || !s->api.pcie)
        return;
    unsigned kb;
    if (s->pcie_turn % s->count == index) {
        if (!s->api.pcie(g->physical, NVML_PCIE_TX, &kb))
            g->slow.pcie_tx_bytes_s = (uint64_t)kb * 1024;
        if (!s->api.pcie(g->physical, NVML_PCIE_RX, &kb))
            g->slow.pcie_rx_bytes_s = (uint64_t)kb * 1024;
    }
    out->pcie_tx_bytes_s = g->slow.pcie_tx_bytes_s;
    out->pcie_rx_bytes_s = g->slow.pcie_rx_bytes_s;
}

static void read_slow(struct nvml_source *s, struct nvml_gpu *g, int64_t now_ms) {
    if (g->slow_at_ms && now_ms - g->slow_at_ms < SLOW_MS && !g->xid_count)
        return;
    g->slow_at_ms = now_ms;
    unsigned long long ecc;
    unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0, replays;
    if (s->api.ecc && !s->api.ecc(g->physical, NVML_ECC_UNCORRECTED, NVML_ECC_VOLATILE, &ecc))
        g->slow.ecc_errors = ecc;
    if (s->api.remapped && !s->api.remapped(g->physical, &corrected, &uncorrected, &pending, &failed)) {
        g->slow.remapped_rows = corrected + uncorrected;
        g->remap_pending = pending;
        g->remap_failed = failed;
    } else if (s->api.retired_pending && !s->api.retired_pending(g->physical, &pending)) {
        g->remap_pending = pending;  // older GPUs retire pages
    }
    if (s->api.pcie_replays && !s->api.pcie_replays(g->physical, &replays))
        g->slow.pcie_replays = replays;
}

static int read_memory(struct nvml_source *s, const struct nvml_gpu *g, struct gpu_sample *out) {
    struct nvml_memory_v2 v2 = {.version = sizeof v2 | 2u << 24};
    if (s->api.memory_v2 && !s->api.memory_v2(g->handle, &v2)) {
        out->memory_total_bytes = v2.total;
        out->memory_used_bytes = v2.used;
        return 0;
    }
    struct nvml_memory v1 = {0};
    int r = s->api.memory(g->handle, &v1);
    out->memory_total_bytes = v1.total;
    out->memory_used_bytes = v1.used;
    return r;
}

static void read_engine(struct nvml_source *s, const struct nvml_gpu *g, struct gpu_sample *out) {
    struct nvml_utilisation use;
    unsigned v, period;
    out->utilisation_unknown = true;
    if (s->api.utilisation && !s->api.utilisation(g->handle, &use)) {
        out->utilisation_milli = use.gpu * 10;
        out->memory_copy_milli = use.memory * 10;
        out->utilisation_unknown = false;
    }
    if (s->api.encoder && !s->api.encoder(g->physical, &v, &period))
        out->encoder_milli = v * 10;
    if (s->api.decoder && !s->api.decoder(g->physical, &v, &period))
        out->decoder_milli = v * 10;
}

static void read_board(struct nvml_source *s, const struct nvml_gpu *g, struct gpu_sample *out) {
    unsigned v;
    unsigned long long v64;
    // Averaged by the driver, which takes it milliseconds: only where the instant value is missing.
    if (!out->power_mw && s->api.power && !s->api.power(g->physical, &v))
        out->power_mw = v;
    if (s->api.energy && !s->api.energy(g->physical, &v64))
        out->energy_mj = v64;
    if (s->api.temperature && !s->api.temperature(g->physical, 0, &v))
        out->temperature_c = (int32_t)v;
    if (s->api.clock && !s->api.clock(g->physical, NVML_CLOCK_SM, &v))
        out->sm_clock_mhz = v;
    if (s->api.clock && !s->api.clock(g->physical, NVML_CLOCK_MEM, &v))
        out->memory_clock_mhz = v;
    if ((s->api.reasons && !s->api.reasons(g->physical, &v64)) || (s->api.reasons_old && !s->api.reasons_old(g->physical, &v64)))
        out->throttle_reasons = v64;
}

static struct gpu_process *process_of(struct nvml_gpu *g, uint32_t *count, uint32_t pid) {
    for (uint32_t i = 0; i < *count; i++)
        if (g->processes[i].pid == pid)
            return &g->processes[i];
    if (*count == GPU_PROCESSES_MAX)
        return NULL;
    if (*count == g->process_cap) {
        g->process_cap = g->process_cap ? g->process_cap * 2 : 8;
        g->processes = xrealloc(g->processes, g->process_cap * sizeof *g->processes);
    }
    g->processes[*count] = (struct gpu_process){.pid = pid};
    return &g->processes[(*count)++];
}

// ~0 means that the driver does not know (inside some virtual machines).
static void add_memory(struct nvml_gpu *g, uint32_t *count, unsigned pid, unsigned long long memory) {
    struct gpu_process *p = process_of(g, count, pid);
    if (p && memory != ~0ULL)
        p->memory_bytes += memory;
}

static void read_process_memory(struct nvml_source *s, struct nvml_gpu *g, uint32_t *count) {
    unsigned n = GPU_PROCESSES_MAX;
    int (*list)(nvml_device, unsigned *, struct nvml_process_v2 *) = s->api.processes_v3 ? s->api.processes_v3 : s->api.processes_v2;
    if (list) {
        struct nvml_process_v2 *at = s->scratch;
        int r = list(g->handle, &n, at);
        for (unsigned i = 0; (!r || r == NVML_INSUFFICIENT_SIZE) && i < n && i < GPU_PROCESSES_MAX; i++)
            add_memory(g, count, at[i].pid, at[i].memory);
    } else if (s->api.processes_v1) {
        struct nvml_process_v1 *at = s->scratch;
        int r = s->api.processes_v1(g->handle, &n, at);
        for (unsigned i = 0; (!r || r == NVML_INSUFFICIENT_SIZE) && i < n && i < GPU_PROCESSES_MAX; i++)
            add_memory(g, count, at[i].pid, at[i].memory);
    }
}

// The driver keeps a short history per process; what is newer than the last reading is averaged.
// A process without use has no entries, and then "not found" means that none has any. Whether the
// utilisation is measured at all is the return value.
static bool read_process_use(struct nvml_source *s, struct nvml_gpu *g, uint32_t *count) {
    struct nvml_process_use *at = s->scratch;
    unsigned n = GPU_PROCESSES_MAX;
    if (!s->api.process_use || g->mig)
        return false;
    int r = s->api.process_use(g->handle, at, &n, g->process_at_us);
    if (r == NVML_NOT_FOUND)
        return true;
    if (r)
        return false;
    uint64_t newest = g->process_at_us;
    for (unsigned i = 0; i < n && i < GPU_PROCESSES_MAX; i++) {
        if (at[i].at_us <= g->process_at_us || at[i].sm > 100)  // old entries and junk come along
            continue;
        struct gpu_process *p = process_of(g, count, at[i].pid);
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
    return true;
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
        poll_events(s);
        s->pcie_turn++;
    }
    struct gpu_sample *sample = &out->sample;
    int r = read_memory(s, g, sample);
    if (r) {
        hand_over_xids(g, out);
        const char *text = s->api.error_text ? s->api.error_text(r) : NULL;
        snprintf(out->error_text, sizeof out->error_text, "%s", text ? text : "the driver gives an error");
        out->error = r == NVML_GPU_IS_LOST || r == NVML_RESET_REQUIRED ? -ENODEV : -EIO;
        return;
    }
    read_slow(s, g, now_ms);
    hand_over_xids(g, out);
    sample->index = index;
    sample->ecc_errors = g->slow.ecc_errors;
    sample->remapped_rows = g->slow.remapped_rows;
    sample->pcie_replays = g->slow.pcie_replays;
    out->remap_pending = g->remap_pending;
    out->remap_failed = g->remap_failed;
    read_engine(s, g, sample);
    read_fields(s, g, now_ms, sample);
    read_board(s, g, sample);
    read_pcie(s, g, index, sample);
    read_process_memory(s, g, &out->process_count);
    out->process_use = read_process_use(s, g, &out->process_count);
    out->processes = g->processes;
}
