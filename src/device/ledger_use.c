// The adapter over the shim's ledger_sample, which reads by pread and cannot be hurt by the job.
#include "ledger_use.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "shim/ledger.h"

struct ledger_reader {
    struct ledger_usage usage;
};

struct ledger_reader *gpu_ledger_reader_new(void) {
    return xcalloc(1, sizeof(struct ledger_reader));
}

struct ledger_reader *gpu_ledger_reader_free(struct ledger_reader *r) {
    free(r);
    return NULL;
}

int gpu_ledger_read(struct ledger_reader *r, const char *path, struct ledger_use *out) {
    int e = ledger_sample(path, &r->usage);
    if (e < 0)
        return e;
    const struct ledger_usage *u = &r->usage;
    *out = (struct ledger_use){
        .used_bytes = u->used_bytes,
        .peak_bytes = u->peak_bytes,
        .limit_bytes = u->limits.memory_bytes,
        .gpu_ns = u->gpu_ns,
        .throttled_ns = u->throttled_ns,
        .refused = u->refused,
        .launches = u->launches,
        .compute_milli = u->limits.compute_milli,
        .processes = u->nprocesses,
    };
    return 0;
}

bool gpu_ledger_knows(const struct ledger_reader *r, uint32_t pid, uint32_t inner) {
    for (unsigned i = 0; i < r->usage.nprocesses; i++) {
        const struct ledger_process *p = &r->usage.process[i];
        if ((uint32_t)p->pid == (p->same_namespace ? pid : inner))
            return true;
    }
    return false;
}
