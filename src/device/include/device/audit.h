// Whether a job keeps to its part of a GPU, judged from outside by what the driver tells of its
// processes: the shim counts inside them and can be left out, by mistake or on purpose. Pure: facts
// of one reading go in, a finding comes out once it has held for several readings. While a job stays
// within its limits, nothing it does is a finding except to leave the shim out, which also unbinds
// its compute.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    AUDIT_READINGS = 3,        // in a row, before a finding counts
    AUDIT_LEAST_MS = 2500,     // and for so long
    AUDIT_SUSPECTS_MAX = 8,    // processes followed at a time
    AUDIT_TEXT_MAX = 224,
};

enum audit_kind {
    AUDIT_CLEAN,
    AUDIT_BEYOND,    // more memory than the job may hold
    AUDIT_AROUND,    // a process on the GPU that the job's ledger does not know
    AUDIT_TAMPERED,  // the limits in the ledger are not those the agent wrote
    AUDIT_STRAY,     // a process on a GPU that the job does not hold
};

struct audit_facts {
    bool fresh;             // the driver's list of processes is new; otherwise nothing is judged
    uint64_t limit_bytes;   // 0: not limited
    bool ledger;            // the job is to be held by one
    bool ledger_readable;
    uint64_t ledger_bytes;  // charged there, as it says itself
    uint64_t ledger_limit_bytes;
    uint32_t milli, ledger_milli;  // share of compute; the ledger's 0: not limited
    uint64_t driver_bytes;  // of its processes, as the driver says
    uint32_t processes;     // of the job on this GPU
    const uint32_t *unlisted;  // those of them that the ledger does not know
    uint32_t unlisted_count;
    bool granted;           // the job holds (a part of) this GPU
};

struct audit_suspect {
    uint32_t pid, readings;
};
struct audit_state {  // of one job on one GPU; starts as zero
    struct audit_suspect suspects[AUDIT_SUSPECTS_MAX];
    uint32_t suspect_count;
    uint32_t beyond, tampered;  // readings in a row
    int64_t since_ms;           // of the first bad reading; 0: the last one was good
};

struct audit_finding {
    enum audit_kind kind;
    uint32_t pid;  // of AROUND and STRAY
    uint64_t bytes, limit_bytes;
};

struct audit_finding gpu_audit_look(struct audit_state *s, const struct audit_facts *f, int64_t now_ms);
// What an honest job may be above its limit by the driver's count: contexts that grow, rounding, and
// what the ledger itself admits to, up to an eighth of the limit.
uint64_t gpu_audit_allowed_bytes(const struct audit_facts *f);
// One sentence for the job's owner. "GPU 0" is named by its index.
const char *gpu_audit_text(const struct audit_finding *f, uint32_t index, char out[AUDIT_TEXT_MAX]);
