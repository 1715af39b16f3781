// The arithmetic of split.h. Rounding is always down, so that parts never add up to more than the whole.
#include "split.h"

#include <assert.h>

static uint32_t at_most(uint64_t v, uint32_t max) {
    return v < max ? (uint32_t)v : max;
}

// Those without a measurement share what the device does beyond the measured ones, by their shares.
static void fill_in_use(const struct split_device *d, struct split_job *jobs, uint32_t count) {
    uint64_t measured = d->foreign_milli, milli = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (jobs[i].measured)
            measured += jobs[i].use_milli = at_most(jobs[i].use_milli, 1000);
        else
            milli += jobs[i].milli;
    }
    // Two jobs whose kernels lie in each other's way each measure the other's time, too.
    uint64_t all = measured > 1000 ? measured : 1000;
    for (uint32_t i = 0; i < count; i++)
        if (jobs[i].measured)
            jobs[i].use_milli = (uint32_t)((uint64_t)jobs[i].use_milli * 1000 / all);
    uint64_t rest = d->use_known && d->use_milli > measured ? d->use_milli - measured : 0;
    for (uint32_t i = 0; i < count; i++)
        if (!jobs[i].measured)
            jobs[i].use_milli = milli ? at_most(rest * jobs[i].milli / milli, 1000) : 0;
}

struct parts {
    uint64_t idle, busy;
};

// `busy_sum` 0: nobody used it, so all of it is idling.
static uint64_t part_of(const struct parts *p, const struct split_job *j, uint64_t busy_sum) {
    uint64_t idle = p->idle + (busy_sum ? 0 : p->busy);
    uint64_t share = (uint64_t)((__uint128_t)idle * j->milli / 1000);
    return share + (busy_sum ? (uint64_t)((__uint128_t)p->busy * j->use_milli / busy_sum) : 0);
}

static struct parts cut(uint64_t whole, uint64_t idle) {
    if (idle > whole)
        idle = whole;
    return (struct parts){.idle = idle, .busy = whole - idle};
}

void gpu_split(const struct split_device *d, struct split_job *jobs, uint32_t count) {
    fill_in_use(d, jobs, count);
    uint64_t busy_sum = d->foreign_milli;
    uint64_t shares = 0;
    for (uint32_t i = 0; i < count; i++) {
        busy_sum += jobs[i].use_milli;
        shares += jobs[i].milli;
    }
    assert(d->span_ms >= 0);
    struct parts power = cut(d->power_mw, d->idle_power_mw);
    struct parts energy = cut(d->energy_mj, d->idle_power_mw * (uint64_t)d->span_ms / 1000);
    // More than a whole GPU in shares happens for moments, while one job leaves and another comes.
    uint64_t scale = shares > 1000 ? shares : 1000;
    for (uint32_t i = 0; i < count; i++) {
        struct split_job scaled = jobs[i];
        scaled.milli = (uint32_t)((uint64_t)jobs[i].milli * 1000 / scale);
        jobs[i].power_mw = part_of(&power, &scaled, busy_sum);
        jobs[i].energy_mj = part_of(&energy, &scaled, busy_sum);
    }
}
