// Makes and shows ledgers and arbiters from a shell, as the node agent does: for the GPU tests.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim/arbiter.h"
#include "shim/ledger.h"

static int usage(void) {
    fprintf(stderr, "usage: ledger create|set FILE JOB UUID MEMORY_BYTES COMPUTE_MILLI BORROW\n"
                    "       ledger show FILE\n       ledger arbiter FILE UUID\n       ledger jobs FILE\n");
    return 2;
}

static int done(int r) {
    if (r < 0)
        fprintf(stderr, "ledger: %s\n", strerror(-r));
    return r < 0;
}

static int show(const char *path) {
    static struct ledger_usage u;
    int r = ledger_sample(path, &u);
    if (r < 0)
        return done(r);
    printf("{\"used\": %lu, \"peak\": %lu, \"overdraft\": %lu, \"refused\": %lu, \"gpu_ns\": %lu, "
           "\"throttled_ns\": %lu, \"launches\": %lu, \"context\": %lu, \"processes\": [",
           u.used_bytes, u.peak_bytes, u.overdraft_bytes, u.refused, u.gpu_ns, u.throttled_ns,
           u.launches, u.limits.context_bytes);
    for (unsigned i = 0; i < u.nprocesses; i++) {
        const uint64_t *k = u.process[i].kind_bytes;
        printf("%s{\"pid\": %d, \"bytes\": %lu, \"kinds\": [%lu, %lu, %lu, %lu, %lu, %lu]}",
               i ? ", " : "",
               u.process[i].pid, u.process[i].bytes, k[0], k[1], k[2], k[3], k[4], k[5]);
    }
    printf("]}\n");
    return 0;
}

static int jobs(const char *path) {
    struct arbiter_job job[ARBITER_JOBS];
    unsigned n = 0;
    int r = arbiter_sample(path, job, &n);
    for (unsigned i = 0; r == 0 && i < n; i++)
        printf("%s share %u used %.3f s\n", job[i].job, job[i].share_milli,
               (double)job[i].used_ns / 1e9);
    return done(r);
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "show"))
        return show(argv[2]);
    if (argc == 3 && !strcmp(argv[1], "jobs"))
        return jobs(argv[2]);
    if (argc == 4 && !strcmp(argv[1], "arbiter"))
        return done(arbiter_create(argv[2], argv[3], 0666));
    if (argc != 8)
        return usage();
    struct ledger_limits limits = {
        .memory_bytes = strtoull(argv[5], NULL, 10),
        .compute_milli = (uint32_t)strtoul(argv[6], NULL, 10),
        .flags = strtoul(argv[7], NULL, 10) ? LEDGER_BORROW : 0,
    };
    if (!strcmp(argv[1], "create"))
        return done(ledger_create(argv[2], argv[3], argv[4], &limits, 0666, true));
    return !strcmp(argv[1], "set") ? done(ledger_set_limits(argv[2], &limits)) : usage();
}
