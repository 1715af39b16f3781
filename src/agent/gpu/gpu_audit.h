// What is done about jobs that do not keep to their part of a GPU, as the node's policy says.
#pragma once
#include "device/monitor.h"
#include "model/config.h"

enum { GPU_AUDITS_KEPT = 64 };

struct agent_node;
struct gpu_audits {
    enum gpu_audit policy;
    // Attempts that were named in the log already, the oldest forgotten first.
    struct {
        uint64_t job;
        uint32_t attempt;
    } told[GPU_AUDITS_KEPT];
    uint32_t told_count;
};

void gpus_audit_act(struct gpu_audits *g, struct agent_node *a, const struct gpu_samples *s);
