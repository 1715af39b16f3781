// Whether a GPU may be used: judged from its readings alone, so that a replay gives the same answer.
// Errors that only a reset heals keep it out until a reset is seen, also over a new start of the agent; others
// keep it out for a while after the last one.
#pragma once
#include "device/gpu.h"

enum { HEALTH_QUARANTINE_MS = 600000, HEALTH_GOOD_READINGS = 10, HEALTH_TEXT_MAX = 160 };

struct gpu_health {
    bool unhealthy;
    char reason[HEALTH_TEXT_MAX];  // one sentence; "" while healthy
    uint32_t xid;                  // the newest, 0: none
    // what the judgement is made of
    uint32_t reset_xid, watch_xid;
    int64_t watch_at_ms, ecc_at_ms;
    uint64_t ecc_seen, ecc_new, energy_mj;
    bool ecc_known, unreadable;
    uint32_t good;
    char unreadable_text[GPU_ERROR_MAX];
};

// True when `unhealthy` or the reason changed.
bool gpu_health_update(struct gpu_health *h, const struct gpu_reading *r, int64_t now_ms);
// What an earlier run knew: this XID needs a reset, and the energy counter stood there. A counter that then
// reads less tells of the reset. False: not an XID that needs one.
bool gpu_health_recall(struct gpu_health *h, uint32_t xid, uint64_t energy_mj);
