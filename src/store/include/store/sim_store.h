// A store on a simulated disk, for runs in virtual time where one seed decides everything. The disk
// outlives the store: kill the controller with sim_store_crash, open the same disk again, and find
// what a real disk could have kept. Commits take virtual time, can be slow, can fail (and then,
// after a crash, turn out to have happened all the same), and the disk can be full.
// Nothing here reads a clock, starts a thread or touches a file.
#pragma once
#include "base/rand.h"
#include "store/store.h"

struct sim_disk;

// Chances are per thousand commits (or opens, for rot).
struct sim_disk_faults {
    uint32_t fail_permille;       // the commit fails with EIO
    uint32_t slow_permille;       // the commit takes slow_ms
    uint32_t rot_permille;        // at opening, the newest snapshot cannot be read
    uint32_t unreadable_permille; // a text cannot be read
    int64_t commit_ms_min, commit_ms_max, slow_ms;
    uint64_t capacity_bytes;      // 0: endless
};

struct sim_disk *sim_disk_new(uint64_t seed);
struct sim_disk *sim_disk_free(struct sim_disk *d);  // accepts NULL; the store must be gone
void sim_disk_faults(struct sim_disk *d, const struct sim_disk_faults *faults);  // from now on
// Virtual time: when something happens next (INT64_MAX: nothing is under way), and letting it
// happen. Call store_poll afterwards.
int64_t sim_disk_due(const struct sim_disk *d);
void sim_disk_tick(struct sim_disk *d, int64_t now_ms);
// Puts an older copy in its place: what was committed up to record `seq`. The store must be closed.
void sim_disk_restore(struct sim_disk *d, uint64_t seq);
uint64_t sim_disk_bytes(const struct sim_disk *d);
uint64_t sim_disk_snapshot(
    const struct sim_disk *d);                     // up to which record the newest one goes; 0: there is none
uint64_t sim_disk_hash(const struct sim_disk *d);  // of the journal: to compare two runs

// `config->path` and `config->vfs` are not looked at.
int sim_store_open(struct sim_disk *d, const struct store_config *config, struct store **out,
                   struct error *e);
// The end by kill -9 or power cut: what was under way is kept whole or lost whole, what waited
// behind it is lost. Frees the store.
struct store *sim_store_crash(struct store *s);
