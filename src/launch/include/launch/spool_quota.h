// How much the attempts on a node hold of its spool folder, in all and per user, as the agent knows it: scripts,
// environments, arguments, files with secrets and the lists of a job's workers. Nobody else's launches fail because one
// user has many large ones.
#pragma once
#include "base/map.h"
#include "launch/launch.h"

struct spool_quota {
    uint64_t total_max, user_max;  // bytes
    uint64_t total;
    struct map attempts;  // → struct spool_held
    struct map users;     // uid + 1 → bytes
};

void spool_quota_init(struct spool_quota *q, uint64_t total_max);  // one user may have half of it
void spool_quota_done(struct spool_quota *q);
// Half of the file system that the folder is on, at most SPOOL_QUOTA_MAX.
uint64_t spool_quota_limit(int spool_fd);
// `texts_bytes`: what the script and the secrets take, by spool_file_bytes of each.
uint64_t spool_quota_bytes(const struct launch_request *r, uint64_t texts_bytes);
// -EUSERS: the user's part is used up; -ENOSPC: the whole. An attempt that is counted already is counted once.
int spool_quota_take(struct spool_quota *q, uint64_t job, uint32_t attempt, uint32_t uid, uint64_t bytes,
                     struct error *e);
// The same without a limit: it is there already.
void spool_quota_note(struct spool_quota *q, uint64_t job, uint32_t attempt, uint32_t uid, uint64_t bytes);
// The membership file of an attempt takes this much from now on; it may grow while the attempt runs. Nothing is counted
// for an attempt that is not.
int spool_quota_take_members(struct spool_quota *q, uint64_t job, uint32_t attempt, uint64_t bytes,
                             struct error *e);
void spool_quota_note_members(struct spool_quota *q, uint64_t job, uint32_t attempt,
                              uint64_t bytes);  // without a limit
void spool_quota_release(struct spool_quota *q, uint64_t job, uint32_t attempt);
