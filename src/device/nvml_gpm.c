// GPU performance monitoring, which Hopper and later have: how far the parts of a GPU are used, and use of a
// MIG instance at all, which NVML's own utilisation leaves out. Each reading takes a sample, and what lies
// between it and the one before is the use. Older GPUs have nothing of the kind: there it stays unknown.
#include <stdlib.h>

#include "base/alloc.h"
#include "device/nvml.h"

static const unsigned wanted[] = {NVML_GPM_GRAPHICS_UTIL, NVML_GPM_SM_UTIL, NVML_GPM_SM_OCCUPANCY,
                                  NVML_GPM_TENSOR_UTIL, NVML_GPM_DRAM_UTIL};
enum { METRICS = sizeof wanted / sizeof *wanted };

static bool complete(const struct nvml_api *api) {
    return api->gpm_support && api->gpm_alloc && api->gpm_free && api->gpm_sample && api->gpm_mig_sample &&
           api->gpm_metrics;
}

static bool set_up(struct nvml_source *s, struct nvml_gpu *g) {
    struct nvml_gpm *m = &g->gpm;
    struct nvml_gpm_support support = {.version = NVML_GPM_VERSION};
    m->tried = true;
    if (!complete(&s->api) || s->api.gpm_support(g->physical, &support) || !support.supported)
        return false;
    if (g->mig && (!s->api.mig_gpu_instance || s->api.mig_gpu_instance(g->handle, &m->instance)))
        return false;
    for (int i = 0; i < 2; i++)
        if (s->api.gpm_alloc(&m->samples[i]))
            m->samples[i] = NULL;
    if (!s->gpm_metrics)
        s->gpm_metrics = xcalloc(1, sizeof *s->gpm_metrics);
    return m->works = m->samples[0] && m->samples[1];
}

static uint32_t milli_of(const struct nvml_gpm_metric *m) {
    if (m->result || !(m->value > 0))
        return 0;
    return m->value < 100 ? (uint32_t)(m->value * 10 + 0.5) : 1000;
}

bool nvml_gpm_read(struct nvml_source *s, struct nvml_gpu *g) {
    struct nvml_gpm *m = &g->gpm;
    g->sample.profiled = false;
    if (m->tried ? !m->works : !set_up(s, g))
        return false;
    unsigned next = 1 - m->newest;
    int r = g->mig ? s->api.gpm_mig_sample(g->physical, m->instance, m->samples[next])
                   : s->api.gpm_sample(g->physical, m->samples[next]);
    if (r) {
        m->sampled = false;
        m->works = r != NVML_NOT_SUPPORTED;
        return false;
    }
    struct nvml_gpm_metrics *out = s->gpm_metrics;
    out->version = NVML_GPM_VERSION;
    out->count = METRICS;
    out->before = m->samples[m->newest];
    out->after = m->samples[next];
    for (int i = 0; i < METRICS; i++)
        out->metrics[i] = (struct nvml_gpm_metric){.id = wanted[i]};
    bool measured = m->sampled && !s->api.gpm_metrics(out) && !out->metrics[0].result;
    m->newest = next;
    m->sampled = true;
    if (!measured)
        return false;
    g->sample.engine_milli = milli_of(&out->metrics[0]);
    g->sample.sm_milli = milli_of(&out->metrics[1]);
    g->sample.occupancy_milli = milli_of(&out->metrics[2]);
    g->sample.tensor_milli = milli_of(&out->metrics[3]);
    g->sample.dram_milli = milli_of(&out->metrics[4]);
    return g->sample.profiled = true;
}

void nvml_gpm_done(struct nvml_source *s) {
    for (uint32_t i = 0; i < s->count; i++)
        for (int k = 0; k < 2; k++)
            if (s->gpus[i].gpm.samples[k])
                s->api.gpm_free(s->gpus[i].gpm.samples[k]);
    free(s->gpm_metrics);
    s->gpm_metrics = NULL;
}
