// Owns the reaction to findings. Each attempt is named once in the log; a kill is asked for again
// with every reading, and the logic sees to it that it happens once.
#include "gpu_audit.h"

#include "agent/node/node.h"
#include "base/clock.h"
#include "base/log.h"

static bool first_time(struct gpu_audits *g, uint64_t job, uint32_t attempt) {
    uint32_t kept = g->told_count < GPU_AUDITS_KEPT ? g->told_count : GPU_AUDITS_KEPT;
    for (uint32_t i = 0; i < kept; i++)
        if (g->told[i].job == job && g->told[i].attempt == attempt)
            return false;
    uint32_t at = g->told_count++ % GPU_AUDITS_KEPT;
    g->told[at].job = job;
    g->told[at].attempt = attempt;
    return true;
}

void gpus_audit_act(struct gpu_audits *g, struct agent_node *a, const struct gpu_samples *s) {
    if (g->policy == GPU_AUDIT_OFF || !s->finding_count)
        return;
    for (uint32_t i = 0; i < s->finding_count; i++) {
        const struct gpu_finding *f = &s->findings[i];
        bool kill = g->policy == GPU_AUDIT_KILL;
        if (first_time(g, f->job, f->attempt))
            log_warn("job %llu%s: %s", (unsigned long long)f->job, kill ? " is ended" : "", f->text);
        if (kill)
            agent_logic_stop(a->logic, f->job, f->attempt, END_GPU, f->text, clock_mono_ms());
    }
    a->execute(a);
}
