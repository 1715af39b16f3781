// The table of XID errors and the judgement. What a program can bring about by itself is no fault
// of the GPU; a code that is not in the table keeps the GPU out for a while.
#include "device/health.h"

#include <stdio.h>
#include <string.h>

enum xid_kind { XID_PROGRAM, XID_NOTE, XID_RESET, XID_WATCH };

static const struct {
    uint32_t code;
    enum xid_kind kind;
    const char *text;
} xids[] = {
    {8, XID_PROGRAM, "a kernel ran too long"},
    {13, XID_PROGRAM, "exception in a program's kernel"},
    {31, XID_PROGRAM, "a program touched memory it does not have"},
    {43, XID_PROGRAM, "a program's work was stopped"},
    {45, XID_PROGRAM, "a program's work was removed"},
    {48, XID_RESET, "uncorrectable memory error"},
    {61, XID_RESET, "internal controller error"},
    {62, XID_RESET, "internal controller halted"},
    {63, XID_NOTE, "a memory row was marked for replacement"},
    {64, XID_RESET, "a memory row could not be replaced"},
    {68, XID_PROGRAM, "exception in the video decoder"},
    {69, XID_PROGRAM, "exception in a program's graphics work"},
    {74, XID_RESET, "NVLink error"},
    {79, XID_RESET, "fell off the bus"},
    {92, XID_NOTE, "many corrected memory errors"},
    {94, XID_PROGRAM, "memory error contained to one program"},
    {95, XID_RESET, "memory error that was not contained"},
    {109, XID_PROGRAM, "a program's context did not switch"},
    {119, XID_RESET, "the GPU's system processor does not answer"},
    {120, XID_RESET, "the GPU's system processor failed"},
    {140, XID_RESET, "memory error that was not recovered"},
};

static enum xid_kind kind_of(uint32_t code, const char **text) {
    for (size_t i = 0; i < sizeof xids / sizeof *xids; i++)
        if (xids[i].code == code) {
            *text = xids[i].text;
            return xids[i].kind;
        }
    *text = "error reported by the driver";
    return XID_WATCH;
}

static void take_xids(struct gpu_health *h, const struct gpu_reading *r, int64_t now_ms) {
    for (uint32_t i = 0; i < r->xid_count; i++) {
        const char *text;
        h->xid = r->xids[i];
        enum xid_kind kind = kind_of(h->xid, &text);
        if (kind == XID_RESET)
            h->reset_xid = h->xid;
        if (kind == XID_WATCH) {
            h->watch_xid = h->xid;
            h->watch_at_ms = now_ms;
        }
    }
}

// The energy counter starts at 0 when the GPU or its driver was started anew.
static void notice_reset(struct gpu_health *h, const struct gpu_reading *r) {
    uint64_t energy = r->sample.energy_mj;
    if (energy && h->energy_mj && energy < h->energy_mj) {
        h->reset_xid = h->watch_xid = h->xid = 0;
        h->ecc_new = 0;
        h->ecc_known = false;
    }
    if (energy)
        h->energy_mj = energy;
}

static void take_ecc(struct gpu_health *h, uint64_t errors, int64_t now_ms) {
    if (h->ecc_known && errors > h->ecc_seen) {
        h->ecc_new += errors - h->ecc_seen;
        h->ecc_at_ms = now_ms;
    } else if (h->ecc_new && now_ms - h->ecc_at_ms >= HEALTH_QUARANTINE_MS) {
        h->ecc_new = 0;
    }
    h->ecc_seen = errors;
    h->ecc_known = true;
}

static void take_answer(struct gpu_health *h, const struct gpu_reading *r) {
    if (r->error) {
        h->unreadable = true;
        h->good = 0;
        memcpy(h->unreadable_text, r->error_text, sizeof h->unreadable_text);
    } else if (h->unreadable && ++h->good >= HEALTH_GOOD_READINGS) {
        h->unreadable = false;
    }
}

static void judge(const struct gpu_health *h, const struct gpu_reading *r, char out[static HEALTH_TEXT_MAX]) {
    const char *text;
    out[0] = 0;
    if (h->reset_xid) {
        kind_of(h->reset_xid, &text);
        snprintf(out, HEALTH_TEXT_MAX, "XID %u: %s; reset the GPU", h->reset_xid, text);
    } else if (h->unreadable) {
        snprintf(out, HEALTH_TEXT_MAX, "cannot be read: %s", h->unreadable_text);
    } else if (r->remap_failed) {
        snprintf(out, HEALTH_TEXT_MAX, "replacing memory rows failed; have the GPU exchanged");
    } else if (r->remap_pending) {
        snprintf(out, HEALTH_TEXT_MAX, "memory rows wait to be replaced; reset the GPU");
    } else if (h->ecc_new) {
        snprintf(out, HEALTH_TEXT_MAX, "%llu new uncorrected memory errors", (unsigned long long)h->ecc_new);
    } else if (h->watch_xid) {
        kind_of(h->watch_xid, &text);
        snprintf(out, HEALTH_TEXT_MAX, "XID %u: %s", h->watch_xid, text);
    }
}

bool gpu_health_recall(struct gpu_health *h, uint32_t xid, uint64_t energy_mj) {
    const char *text;
    if (!energy_mj || kind_of(xid, &text) != XID_RESET)
        return false;
    h->xid = h->reset_xid = xid;
    h->energy_mj = energy_mj;
    judge(h, &(struct gpu_reading){0}, h->reason);
    return h->unhealthy = true;
}

bool gpu_health_update(struct gpu_health *h, const struct gpu_reading *r, int64_t now_ms) {
    if (!r->error) {
        notice_reset(h, r);
        take_ecc(h, r->sample.ecc_errors, now_ms);
    }
    take_xids(h, r, now_ms);
    take_answer(h, r);
    if (h->watch_xid && now_ms - h->watch_at_ms >= HEALTH_QUARANTINE_MS)
        h->watch_xid = 0;
    char reason[HEALTH_TEXT_MAX];
    judge(h, r, reason);
    bool changed = strcmp(reason, h->reason) != 0;
    memcpy(h->reason, reason, sizeof h->reason);
    h->unhealthy = reason[0] != 0;
    return changed;
}
