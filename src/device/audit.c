// The judgement of audit.h. A process is followed by its number over readings: one that ends leaves
// its ledger a moment before the driver forgets it, and must not be taken for one that went around.
#include "device/audit.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MARGIN_BYTES = 256 << 20, PROCESS_MARGIN_BYTES = 64 << 20, ADMITTED_PART = 8, LIMIT_ROUNDING_BYTES = 2 << 20 };

uint64_t gpu_audit_allowed_bytes(const struct audit_facts *f) {
    uint64_t margin = MARGIN_BYTES + (uint64_t)f->processes * PROCESS_MARGIN_BYTES;
    uint64_t admitted = f->ledger_readable && f->ledger_bytes > f->limit_bytes ? f->ledger_bytes - f->limit_bytes : 0;
    uint64_t most = f->limit_bytes / ADMITTED_PART;
    return f->limit_bytes + margin + (admitted < most ? admitted : most);
}

static bool is_tampered(const struct audit_facts *f) {
    if (!f->ledger || !f->processes)
        return false;
    if (!f->ledger_readable)
        return true;
    bool memory = !f->ledger_limit_bytes || f->ledger_limit_bytes > f->limit_bytes + LIMIT_ROUNDING_BYTES;
    bool compute = f->milli && f->milli < 1000 && (!f->ledger_milli || f->ledger_milli > f->milli);
    return (f->limit_bytes && memory) || compute;
}

static uint32_t readings_before(const struct audit_state *s, uint32_t pid) {
    for (uint32_t i = 0; i < s->suspect_count; i++)
        if (s->suspects[i].pid == pid)
            return s->suspects[i].readings;
    return 0;
}

// Those that were suspect before stay, in front; the list is short and new ones have time.
static void follow(struct audit_state *s, const uint32_t *pids, uint32_t count) {
    struct audit_suspect next[AUDIT_SUSPECTS_MAX];
    uint32_t n = 0;
    for (int known = 1; known >= 0; known--)
        for (uint32_t i = 0; i < count && n < AUDIT_SUSPECTS_MAX; i++) {
            uint32_t before = readings_before(s, pids[i]);
            if ((before > 0) == (known > 0))
                next[n++] = (struct audit_suspect){.pid = pids[i], .readings = before + 1};
        }
    memcpy(s->suspects, next, n * sizeof *next);
    s->suspect_count = n;
}

static uint32_t worst_suspect(const struct audit_state *s) {
    for (uint32_t i = 0; i < s->suspect_count; i++)
        if (s->suspects[i].readings >= AUDIT_READINGS)
            return s->suspects[i].pid;
    return 0;
}

struct audit_finding gpu_audit_look(struct audit_state *s, const struct audit_facts *f, int64_t now_ms) {
    struct audit_finding none = {0};
    if (!f->fresh)
        return none;
    bool beyond = f->granted && f->limit_bytes && f->driver_bytes > gpu_audit_allowed_bytes(f);
    bool tampered = f->granted && is_tampered(f);
    follow(s, f->unlisted, f->unlisted_count);
    // Several readings in a row, and a least time: one that ends is in the driver's list for a moment longer.
    s->beyond = beyond ? s->beyond + 1 : 0;
    s->tampered = tampered ? s->tampered + 1 : 0;
    if (!beyond && !tampered && !s->suspect_count) {
        s->since_ms = 0;
        return none;
    }
    if (!s->since_ms)
        s->since_ms = now_ms;
    if (now_ms - s->since_ms < AUDIT_LEAST_MS)
        return none;
    uint32_t pid = worst_suspect(s);
    struct audit_finding found = {.pid = pid, .bytes = f->driver_bytes, .limit_bytes = f->limit_bytes};
    if (pid)
        found.kind = f->granted ? AUDIT_AROUND : AUDIT_STRAY;
    else if (s->tampered >= AUDIT_READINGS)
        found.kind = AUDIT_TAMPERED;
    else if (s->beyond >= AUDIT_READINGS)
        found.kind = AUDIT_BEYOND;
    return found.kind ? found : none;
}

const char *gpu_audit_text(const struct audit_finding *f, uint32_t index, char out[AUDIT_TEXT_MAX]) {
    out[0] = 0;
    switch (f->kind) {
    case AUDIT_CLEAN:
        break;
    case AUDIT_BEYOND:
        snprintf(out, AUDIT_TEXT_MAX,
                 "its processes held %" PRIu64 " MiB of GPU %u where the job may hold %" PRIu64
                 " MiB; ask for more with --gpu-memory",
                 f->bytes >> 20, index, f->limit_bytes >> 20);
        break;
    case AUDIT_AROUND:
        snprintf(out, AUDIT_TEXT_MAX,
                 "process %u used GPU %u without the library that keeps the job to its share; leave "
                 "LD_LIBRARY_PATH as it is given",
                 f->pid, index);
        break;
    case AUDIT_TAMPERED:
        snprintf(out, AUDIT_TEXT_MAX,
                 "the record of its limits on GPU %u was changed or damaged by the job; leave "
                 "ACEQUIA_GPU_LEDGER_DIR alone",
                 index);
        break;
    case AUDIT_STRAY:
        snprintf(
            out, AUDIT_TEXT_MAX,
            "process %u used GPU %u, which the job does not hold; leave CUDA_VISIBLE_DEVICES as it is given",
            f->pid, index);
        break;
    }
    return out;
}
