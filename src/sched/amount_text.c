// Amounts as people write them, for messages and explanations. No thousandths: 500 milli-GPU are "0.5 GPUs".
#include "amount_text.h"

#include <inttypes.h>
#include <stdio.h>

#include "sched/request.h"

const char *sched_gpu_number_text(int64_t milli, char out[static AMOUNT_TEXT_MAX]) {
    int64_t whole = milli / SCHED_GPU, part = milli % SCHED_GPU;
    int digits = 3;
    for (; part && part % 10 == 0; digits--)
        part /= 10;
    if (part)
        snprintf(out, AMOUNT_TEXT_MAX, "%" PRId64 ".%0*" PRId64, whole, digits, part);
    else
        snprintf(out, AMOUNT_TEXT_MAX, "%" PRId64, whole);
    return out;
}

const char *sched_gpus_text(int64_t milli, char out[static AMOUNT_TEXT_MAX]) {
    char number[AMOUNT_TEXT_MAX];
    snprintf(out, AMOUNT_TEXT_MAX, "%.40s %s", sched_gpu_number_text(milli, number),
             milli == SCHED_GPU ? "GPU" : "GPUs");
    return out;
}

const char *sched_cpus_text(uint64_t cpus, char out[static AMOUNT_TEXT_MAX]) {
    snprintf(out, AMOUNT_TEXT_MAX, "%" PRIu64 " %s", cpus, cpus == 1 ? "CPU" : "CPUs");
    return out;
}

const char *sched_size_text(uint64_t bytes, char out[static AMOUNT_TEXT_MAX]) {
    bool gib = bytes >= 1ULL << 30;
    uint64_t tenths = bytes / (gib ? 1ULL << 30 : 1ULL << 20) * 10 +
                      bytes % (gib ? 1ULL << 30 : 1ULL << 20) * 10 / (gib ? 1ULL << 30 : 1ULL << 20);
    if (tenths % 10)
        snprintf(out, AMOUNT_TEXT_MAX, "%" PRIu64 ".%" PRIu64 " %s", tenths / 10, tenths % 10, gib ? "GiB" : "MiB");
    else
        snprintf(out, AMOUNT_TEXT_MAX, "%" PRIu64 " %s", tenths / 10, gib ? "GiB" : "MiB");
    return out;
}

const char *sched_duration_text(int64_t ms, char out[static AMOUNT_TEXT_MAX]) {
    int64_t s = ms / 1000;
    const struct {
        int64_t count;
        const char *unit;
    } parts[] = {
        {s / 86400, s / 86400 == 1 ? "day" : "days"}, {s / 3600 % 24, "h"}, {s / 60 % 60, "min"}, {s % 60, "s"}};
    size_t len = 0;
    out[0] = '\0';
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].count || (i == 3 && !len))
            len += (size_t)snprintf(out + len, AMOUNT_TEXT_MAX - len, "%s%" PRId64 " %s", len ? " " : "",
                                    parts[i].count, parts[i].unit);
    return out;
}
