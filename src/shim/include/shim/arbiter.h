// Who runs on a GPU now: one file per GPU that all jobs on it map. Jobs take turns of a few
// milliseconds, so that each is alone while it runs and its time can be measured; the one that has
// had least for its share goes next; nobody waits for a job that has nothing to run, which is how
// idle share is lent. A turn is a lease: one held by a dead or idle job is simply taken.
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "shim/ledger.h"

#define ARBITER_MAGIC 0x3142524151434141ULL // "AACQARB1", little-endian
#define ARBITER_SUFFIX ".arbiter"
enum {
    ARBITER_VERSION = 1,
    ARBITER_JOBS = 64, // on one GPU at a time
    ARBITER_PERIOD_NS = 20 * 1000 * 1000,
    ARBITER_TURN_MIN_NS = 4 * 1000 * 1000,
    ARBITER_TURN_MAX_NS = 40 * 1000 * 1000,
    ARBITER_ALONE_NS = 1000 * 1000, // a turn while nobody else wants one
    ARBITER_WANT_NS = 10 * 1000 * 1000,   // a wish to run holds this long unless renewed
    ARBITER_QUIET_NS = 500 * 1000,        // a holder that launched nothing for so long is idle
    ARBITER_GRACE_NS = 10 * 1000 * 1000,  // a turn overdue by this is taken over
    ARBITER_NAP_NS = 20 * 1000,
    ARBITER_AWAY_NS = 50 * 1000 * 1000,   // a job quiet this long starts level with the others
    ARBITER_RETURN_NS = 30 * 1000 * 1000, // and is kept level with them for so long
};

#define ARBITER_COMPANY_NS (5ULL * 1000000000ULL)
#define ARBITER_BELIEVED_NS (2ULL * 1000000000ULL) // no honest estimate reaches further

struct arbiter_job {
    char job[LEDGER_JOB_MAX];
    uint32_t share_milli;
    uint64_t used_ns;    // GPU time charged
    uint64_t active_ns;  // when it last launched, on the monotonic clock
    bool waiting;
};

struct arbiter;

// For the agent. `arbiter_forget` drops a finished job's line.
size_t arbiter_bytes(void);  // of every arbiter file
int arbiter_create(const char *path, const char *uuid, mode_t mode);
int arbiter_sample(const char *path, struct arbiter_job out[ARBITER_JOBS], unsigned *n);
int arbiter_forget(const char *path, const char *job);

// For the shim.
int arbiter_open(const char *path, struct arbiter **out);
struct arbiter *arbiter_close(struct arbiter *a);
int arbiter_join(struct arbiter *a, const char *job, uint32_t share_milli, uint64_t now); // the line
bool arbiter_mine(const struct arbiter *a, int line, uint64_t now); // the turn, and not yet over
bool arbiter_holds(const struct arbiter *a, int line); // the turn, be it over or not
// Takes or prolongs the turn: true when it is ours. Otherwise we are known to want it. `pending_ns`
// is GPU time we have used or will use that is not charged yet.
bool arbiter_take(struct arbiter *a, int line, uint32_t share_milli, uint64_t pending_ns,
                  uint64_t now);
// The holder's next turn, begun early: true unless one that waits has had less.
bool arbiter_renew(struct arbiter *a, int line, uint32_t share_milli, uint64_t pending_ns,
                   uint64_t now);
bool arbiter_contended(const struct arbiter *a, int line, uint64_t now); // another one waits
bool arbiter_company(const struct arbiter *a, int line, uint64_t now);   // others were here lately
// Gives the turn on; `again`: we are known to want another.
void arbiter_leave(struct arbiter *a, int line, bool again, uint64_t now);
void arbiter_wait(struct arbiter *a, uint64_t at_most_ns);  // until a turn ends, or so long
// Says when our work will be done; returns what to pass as `before` the next time.
uint64_t arbiter_launched(struct arbiter *a, int line, uint64_t now, uint64_t before,
                          uint64_t busy_until);
uint64_t arbiter_turn_left(const struct arbiter *a, uint64_t now);
uint64_t arbiter_busy_until(const struct arbiter *a, int line);
void arbiter_charge(struct arbiter *a, int line, uint32_t share_milli, uint64_t used_ns);
