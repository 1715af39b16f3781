// Owns the advice. It is careful: room of a fifth is left above what was used, nothing is said of
// jobs that ran for moments, and what was not measured gets no advice.
#include "metrics/efficiency.h"

#include <assert.h>
#include <string.h>

#include "base/text.h"
#include "model/gpuspec.h"
#include "model/units.h"

const char *const efficiency_words[] = {"cpu", "memory", "gpu", "gpu_memory", "time", "energy", NULL};

enum { LOW_PERCENT = 60, HIGH_PERCENT = 95, ROOM_PERCENT = 120, TIME_ROOM_PERCENT = 130, UNUSED_GPU_MILLI = 10 };

struct held {
    uint32_t nodes, cpus, tasks, gpus;
    uint64_t memory_bytes, gpus_milli;
};

static struct held sum_parts(const struct job_record *r) {
    struct held h = {.nodes = r->parts.len};
    for (uint32_t i = 0; i < r->parts.len; i++) {
        const struct part *p = &r->parts.at[i];
        h.cpus += p->cpus;
        h.tasks += p->tasks;
        h.memory_bytes += p->memory_bytes;
        h.gpus += p->gpus.len;
        for (uint32_t k = 0; k < p->gpus.len; k++)
            h.gpus_milli += p->gpus.at[k].milli;
    }
    return h;
}

static void set(struct efficiency_row *row, uint64_t asked, uint64_t used) {
    row->known = true;
    row->asked = asked;
    row->used = used;
    uint64_t percent = asked ? (uint64_t)((__uint128_t)used * 100 / asked) : 0;
    row->percent = percent < 999 ? (uint32_t)percent : 999;
}

// Sizes people write: whole GiB from 2 on, else steps of 256 MiB.
static uint64_t round_size(uint64_t bytes) {
    uint64_t unit = bytes >= 2 * SIZE_G ? SIZE_G : 256 * SIZE_M;
    return (bytes + unit - 1) / unit * unit;
}

static uint64_t with_room(uint64_t v) {
    return (uint64_t)((__uint128_t)v * ROOM_PERCENT / 100);
}

static void judge_cpu(const struct held *h, const struct usage *u, uint64_t elapsed_ms, bool advise,
                      struct arena *a, struct efficiency_row *row) {
    if (!h->cpus || !elapsed_ms)
        return;
    uint64_t used = (u->cpu_user_us + u->cpu_system_us) / elapsed_ms;  // µs per ms: thousandths of a CPU
    set(row, h->cpus * 1000ULL, used);
    uint32_t tasks = h->tasks ? h->tasks : 1;
    uint64_t each = (with_room(used) + tasks * 1000ULL - 1) / (tasks * 1000ULL);
    if (!each)
        each = 1;
    if (advise && row->percent < LOW_PERCENT && each * tasks < h->cpus)
        row->option = arena_printf(a, "--cpus %llu", (unsigned long long)each);
    row->text = arena_printf(a, "%u.%u of %u CPUs were busy on average%s", (unsigned)(used / 1000),
                             (unsigned)(used % 1000 / 100), h->cpus, row->option ? "; fewer would do." : ".");
}

static const char *memory_option(const struct spec *s, const struct held *h, uint64_t bytes, struct arena *a) {
    char text[UNIT_TEXT_MAX];
    if (s->memory_per_cpu_bytes && h->cpus)
        return arena_printf(a, "--memory-per-cpu %s", size_format(round_size(bytes / h->cpus), text));
    if (s->memory_per_gpu_bytes && h->gpus_milli)
        return arena_printf(a, "--memory-per-gpu %s", size_format(round_size(bytes * 1000 / h->gpus_milli), text));
    return arena_printf(a, "--memory %s", size_format(round_size(bytes / (h->nodes ? h->nodes : 1)), text));
}

static void judge_memory(const struct spec *s, const struct held *h, const struct usage *u, bool oom,
                         bool advise, struct arena *a, struct efficiency_row *row) {
    if (!h->memory_bytes || !u->memory_peak_bytes)
        return;
    set(row, h->memory_bytes, u->memory_peak_bytes);
    char used[UNIT_TEXT_MAX], asked[UNIT_TEXT_MAX];
    const char *more = ".";
    uint64_t wanted = with_room(u->memory_peak_bytes);
    if (oom) {
        wanted = h->memory_bytes * 3 / 2;
        more = "; it ran out.";
        row->option = memory_option(s, h, wanted, a);
    } else if (advise && row->percent > HIGH_PERCENT) {
        more = "; it came close to its limit.";
        row->option = memory_option(s, h, wanted, a);
    } else if (advise && row->percent < LOW_PERCENT && round_size(wanted) < h->memory_bytes * 9 / 10) {
        more = "; less would do.";
        row->option = memory_option(s, h, wanted, a);
    }
    row->text = arena_printf(a, "%s of %s at the peak%s", size_format(u->memory_peak_bytes, used),
                             size_format(h->memory_bytes, asked), more);
}

// Halves, quarters and so on below one GPU, whole ones above.
static uint64_t round_gpus(uint64_t milli) {
    static const uint32_t steps[] = {100, 125, 200, 250, 300, 400, 500, 600, 750, 1000};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (milli <= steps[i])
            return steps[i];
    return (milli + 999) / 1000 * 1000;
}

// Busy time and memory both have to fit, so they are looked at together; one option for both.
static uint64_t gpus_needed(const struct efficiency_input *in, uint64_t busy_milli) {
    uint64_t by_memory = 0;
    if (in->gpu_memory_each_bytes)
        by_memory = (uint64_t)((__uint128_t)with_room(in->usage->gpu_memory_peak_bytes) * 1000 /
                               in->gpu_memory_each_bytes);
    uint64_t by_time = with_room(busy_milli);
    return round_gpus(by_time > by_memory ? by_time : by_memory);
}

// What is asked for over several nodes is divided among them evenly, in whole GPUs.
static uint64_t whole_over_nodes(uint64_t milli, uint32_t nodes) {
    uint64_t unit = nodes * 1000ULL;
    return nodes > 1 ? (milli + unit - 1) / unit * unit : milli;
}

// The option it was asked with, and how many GPUs that makes in all.
static const char *gpu_option(const struct spec *s, const struct held *h, uint64_t milli, struct arena *a,
                              uint64_t *total) {
    char text[GPU_TEXT_MAX];
    const char *option = "--gpus", *model = str_empty(s->gpu_model) ? "" : s->gpu_model;
    uint32_t times = 1;
    if (s->gpus_per_node_milli && h->nodes) {
        option = "--gpus-per-node";
        times = h->nodes;
        milli = round_gpus(milli / times);
    } else if (s->gpus_per_task_milli && h->tasks) {
        option = "--gpus-per-task";
        times = h->tasks;
        milli = round_gpus(milli / times);
    } else {
        milli = whole_over_nodes(milli, h->nodes);
    }
    *total = milli * times;
    return arena_printf(a, "%s %s%s%s", option, model, *model ? ":" : "", gpu_milli_format(milli, text));
}

// Busy GPUs on average, over the time in which somebody looked; false where nobody did.
static bool busy_gpus(const struct usage *u, const struct held *h, uint64_t elapsed_ms, uint64_t *milli) {
    if (u->gpu_measured_ms && h->gpus)
        *milli = (uint64_t)((__uint128_t)u->gpu_busy_ms * 1000 * h->gpus / u->gpu_measured_ms);
    else
        *milli = u->gpu_busy_ms * 1000 / elapsed_ms;  // by an agent that did not tell
    return u->gpu_measured_ms || u->gpu_busy_ms;
}

static void judge_gpu(const struct efficiency_input *in, const struct held *h, uint64_t elapsed_ms,
                      bool advise, struct arena *a, struct efficiency_row *row) {
    if (!h->gpus_milli || !elapsed_ms)
        return;
    const struct spec *s = in->record->spec;
    const struct usage *u = in->usage;
    char used[GPU_TEXT_MAX], asked[GPU_TEXT_MAX];
    uint64_t busy, total;
    if (!busy_gpus(u, h, elapsed_ms, &busy)) {
        *row = (struct efficiency_row){.known = true, .unmeasured = true, .asked = h->gpus_milli};
        row->text = "Its GPUs were not measured.";
        return;
    }
    set(row, h->gpus_milli, busy);
    const char *more = ".";
    // Half of the time at least has to be known, and who asked for memory got the share that goes with it.
    advise &= !u->gpu_measured_ms || u->gpu_measured_ms >= elapsed_ms * h->gpus / 2;
    advise &= !(s->gpu_memory_bytes && h->gpus_milli < 1000);
    if (advise && busy < UNUSED_GPU_MILLI && !u->gpu_memory_peak_bytes) {
        row->option = "--gpus 0";
        more = "; it never used a GPU.";
    } else if (advise && row->percent < LOW_PERCENT) {
        const char *option = gpu_option(s, h, gpus_needed(in, busy), a, &total);
        row->option = total < h->gpus_milli ? option : NULL;
        more = row->option ? "; less would do." : ".";
    }
    row->text = arena_printf(a, "%s of %s GPUs were busy on average%s", gpu_milli_format(busy, used),
                             gpu_milli_format(h->gpus_milli, asked), more);
}

// More memory than it has: by the option it was asked with, at most a whole GPU.
static const char *more_gpu_memory(const struct efficiency_input *in, const struct held *h, struct arena *a) {
    char wanted[UNIT_TEXT_MAX], gpus[GPU_TEXT_MAX];
    const struct spec *s = in->record->spec;
    uint64_t bytes = round_size(with_room(in->gpu_memory_bytes)), share = round_gpus(with_room(h->gpus_milli)), total;
    if (!s->gpu_memory_bytes)
        return gpu_option(s, h, share < 1000 ? share : 1000, a, &total);
    if (in->gpu_memory_each_bytes && bytes > in->gpu_memory_each_bytes)
        return arena_printf(a, "--gpus %s", gpu_milli_format(1000, gpus));
    return arena_printf(a, "--gpu-memory %s", size_format(bytes, wanted));
}

static void judge_gpu_memory(const struct efficiency_input *in, const struct held *h, bool advise,
                             struct arena *a, struct efficiency_row *row) {
    uint64_t peak = in->usage->gpu_memory_peak_bytes;
    const struct usage *u = in->usage;
    if (!h->gpus_milli || !in->gpu_memory_bytes || !(peak || u->gpu_measured_ms || u->gpu_busy_ms))
        return;
    set(row, in->gpu_memory_bytes, peak);
    char used[UNIT_TEXT_MAX], asked[UNIT_TEXT_MAX], wanted[UNIT_TEXT_MAX];
    const struct spec *s = in->record->spec;
    const char *more = ".";
    if (advise && s->gpu_memory_bytes && row->percent < LOW_PERCENT &&
        round_size(with_room(peak)) < s->gpu_memory_bytes) {
        row->option = arena_printf(a, "--gpu-memory %s", size_format(round_size(with_room(peak)), wanted));
        more = "; less would do.";
    } else if (advise && h->gpus == 1 && h->gpus_milli < 1000 && row->percent > HIGH_PERCENT) {
        row->option = more_gpu_memory(in, h, a);
        more = "; it came close to its limit.";
    }
    row->text = arena_printf(a, "%s of %s at the peak%s", size_format(peak, used),
                             size_format(in->gpu_memory_bytes, asked), more);
}

static uint64_t round_time(uint64_t s) {
    uint64_t unit = s > 4 * 3600 ? 3600 : s > 3600 ? 900 : 300;
    return (s + unit - 1) / unit * unit;
}

static void judge_time(const struct efficiency_input *in, uint64_t elapsed_s, bool ended_well, struct arena *a,
                       struct efficiency_row *row) {
    if (!in->time_limit_s || in->time_limit_s == DURATION_UNLIMITED)
        return;
    set(row, in->time_limit_s, elapsed_s);
    char used[UNIT_TEXT_MAX], asked[UNIT_TEXT_MAX], wanted[UNIT_TEXT_MAX];
    uint64_t fit = round_time(elapsed_s * TIME_ROOM_PERCENT / 100);
    const char *more = ".";
    if (in->record->state == JOB_TIMEOUT) {
        row->option = arena_printf(a, "--time %s",
                                   duration_format(round_time((uint64_t)in->time_limit_s * 3 / 2), wanted));
        more = "; the limit ended it.";
    } else if (ended_well && row->percent < LOW_PERCENT && fit < in->time_limit_s) {
        row->option = arena_printf(a, "--time %s", duration_format(fit, wanted));
        more = "; a shorter limit lets it start earlier.";
    }
    row->text = arena_printf(a, "%s of %s%s%s", duration_format(elapsed_s, used),
                             duration_format(in->time_limit_s, asked), in->elements ? " by the longest" : "", more);
}

static void judge_energy(uint64_t energy_mj, const struct held *h, struct arena *a, struct efficiency_row *row) {
    if (!h->gpus_milli || !energy_mj)
        return;
    row->known = true;
    row->used = energy_mj / 1000;
    uint64_t wh_milli = energy_mj / 3600;
    row->text = arena_printf(a, "%llu.%03llu Wh drawn by its GPUs, by share of use.",
                             (unsigned long long)(wh_milli / 1000), (unsigned long long)(wh_milli % 1000));
}

static uint64_t elapsed_of(const struct job_record *r, int64_t now_ms) {
    int64_t end_ms = job_state_final(r->state) ? r->end_ms : now_ms;
    return r->start_ms && end_ms > r->start_ms ? (uint64_t)(end_ms - r->start_ms) : 0;
}

void efficiency_of(const struct efficiency_input *in, struct arena *a, struct efficiency *out) {
    const struct job_record *r = in->record;
    struct held h = sum_parts(r);
    assert(r->spec && in->usage);
    *out = (struct efficiency){.final = job_state_final(r->state), .elements = in->elements};
    uint64_t elapsed_ms = elapsed_of(r, in->now_ms);
    out->elapsed_s = elapsed_ms / 1000;
    out->too_short = out->elapsed_s < EFFICIENCY_LEAST_S;
    out->failed = r->state == JOB_FAILED || r->state == JOB_NODE_FAIL || r->state == JOB_OUT_OF_MEMORY;
    bool advise = !out->too_short && !out->failed;
    uint64_t longest_s = in->elements ? in->longest_s : out->elapsed_s;
    judge_cpu(&h, in->usage, elapsed_ms, advise, a, &out->rows[EFFICIENCY_CPU]);
    judge_memory(r->spec, &h, in->usage, r->state == JOB_OUT_OF_MEMORY, advise, a, &out->rows[EFFICIENCY_MEMORY]);
    judge_gpu(in, &h, elapsed_ms, advise, a, &out->rows[EFFICIENCY_GPU]);
    judge_gpu_memory(in, &h, advise, a, &out->rows[EFFICIENCY_GPU_MEMORY]);
    judge_time(in, longest_s, r->state == JOB_COMPLETED && (advise || in->time_limit_s > 3600), a,
               &out->rows[EFFICIENCY_TIME]);
    judge_energy(in->elements ? in->energy_mj : in->usage->energy_mj, &h, a, &out->rows[EFFICIENCY_ENERGY]);
}

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

void efficiency_add(struct efficiency_sum *s, const struct job_record *r, const struct usage *u, int64_t now_ms) {
    uint64_t elapsed = elapsed_of(r, now_ms);
    struct usage before = s->usage;
    usage_add(&s->usage, u);
    s->usage.memory_peak_bytes = larger(before.memory_peak_bytes, u->memory_peak_bytes);
    s->usage.gpu_memory_peak_bytes = larger(before.gpu_memory_peak_bytes, u->gpu_memory_peak_bytes);
    s->elapsed_ms += elapsed;
    s->longest_ms = larger(s->longest_ms, elapsed);
    s->count++;
    s->running += !job_state_final(r->state);
    s->completed += r->state == JOB_COMPLETED;
    s->timeout += r->state == JOB_TIMEOUT;
    s->out_of_memory += r->state == JOB_OUT_OF_MEMORY;
}

// One that was too small for some is too small; what failed otherwise counts only where nothing ended well.
static enum job_state state_of_all(const struct efficiency_sum *s) {
    return s->out_of_memory ? JOB_OUT_OF_MEMORY
           : s->timeout     ? JOB_TIMEOUT
           : s->running     ? JOB_RUNNING
           : s->completed   ? JOB_COMPLETED
                            : JOB_FAILED;
}

void efficiency_mean(const struct efficiency_sum *s, struct job_record *record, struct usage *usage,
                     struct efficiency_input *in) {
    assert(s->count);
    *usage = s->usage;
    usage->cpu_user_us /= s->count;
    usage->cpu_system_us /= s->count;
    usage->gpu_busy_ms /= s->count;
    usage->gpu_measured_ms /= s->count;
    record->state = state_of_all(s);
    record->start_ms = 1;
    record->end_ms = in->now_ms = 1 + (int64_t)(s->elapsed_ms / s->count);
    in->record = record;
    in->usage = usage;
    in->elements = s->count;
    in->longest_s = s->longest_ms / 1000;
    in->energy_mj = s->usage.energy_mj;
}
