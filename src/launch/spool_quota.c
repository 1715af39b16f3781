// Owns the counts of spool_quota.h.
#include "launch/spool_quota.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/alloc.h"
#include "launch/spool.h"

#define SPOOL_QUOTA_MAX (4ull << 30)
enum { FIXED_BYTES = 4 * SPOOL_BLOCK_BYTES };  // folder, status record, socket, origin

struct spool_held {
    uint32_t uid;
    uint64_t bytes;    // with those of the membership file
    uint64_t members;  // what the membership file takes
};

void spool_quota_init(struct spool_quota *q, uint64_t total_max) {
    *q = (struct spool_quota){.total_max = total_max, .user_max = total_max / 2};
}

void spool_quota_done(struct spool_quota *q) {
    void *v;
    for (size_t it = 0; map_next(&q->attempts, &it, NULL, &v);)
        free(v);
    map_done(&q->attempts);
    map_done(&q->users);
}

uint64_t spool_quota_limit(int spool_fd) {
    struct statvfs v;
    uint64_t half = fstatvfs(spool_fd, &v) < 0 ? SPOOL_QUOTA_MAX : (uint64_t)v.f_blocks * v.f_frsize / 2;
    return half < SPOOL_QUOTA_MAX ? half : SPOOL_QUOTA_MAX;
}

static uint64_t list_bytes(char *const *list, uint32_t n) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        bytes += strlen(list[i]) + 8;
    return bytes;
}

uint64_t spool_quota_bytes(const struct launch_request *r, uint64_t texts_bytes) {
    uint64_t request = list_bytes(r->argv, r->argc) + list_bytes(r->env, r->nenv);
    uint64_t copies = r->health == LAUNCH_HEALTH_COMMAND ? 2 : 1;  // its step has the environment again
    return FIXED_BYTES + copies * spool_file_bytes(request) + texts_bytes;
}

static uint64_t key_of(uint64_t job, uint32_t attempt) {
    return hash_u64(job ^ hash_u64(attempt));
}

static uint64_t held_by(const struct spool_quota *q, uint32_t uid) {
    return (uint64_t)(uintptr_t)map_get(&q->users, (uint64_t)uid + 1);
}

static void add_to_user(struct spool_quota *q, uint32_t uid, uint64_t bytes) {
    map_remove(&q->users, (uint64_t)uid + 1);
    if (bytes)
        map_put(&q->users, (uint64_t)uid + 1, (void *)(uintptr_t)bytes);
}

void spool_quota_note(struct spool_quota *q, uint64_t job, uint32_t attempt, uint32_t uid, uint64_t bytes) {
    uint64_t key = key_of(job, attempt);
    if (map_get(&q->attempts, key))
        return;
    struct spool_held *held = xcalloc(1, sizeof *held);
    *held = (struct spool_held){.uid = uid, .bytes = bytes};
    map_put(&q->attempts, key, held);
    q->total += bytes;
    add_to_user(q, uid, held_by(q, uid) + bytes);
}

static int need_room(const struct spool_quota *q, uint32_t uid, uint64_t bytes, struct error *e) {
    if (held_by(q, uid) + bytes > q->user_max)
        return error_set(
            e, EUSERS,
            "scripts, environments, secrets and lists of workers of this user's jobs on the node take "
            "%llu MiB; at most %llu MiB are allowed. Start fewer at a time, or put large data into files",
            (unsigned long long)(held_by(q, uid) >> 20), (unsigned long long)(q->user_max >> 20));
    if (q->total + bytes > q->total_max)
        return error_set(
            e, ENOSPC,
            "the node's spool folder is full: %llu of %llu MiB are in use; it has room again when jobs there "
            "have ended",
            (unsigned long long)(q->total >> 20), (unsigned long long)(q->total_max >> 20));
    return 0;
}

int spool_quota_take(struct spool_quota *q, uint64_t job, uint32_t attempt, uint32_t uid, uint64_t bytes,
                     struct error *e) {
    int rc = map_get(&q->attempts, key_of(job, attempt)) ? 0 : need_room(q, uid, bytes, e);
    if (rc == 0)
        spool_quota_note(q, job, attempt, uid, bytes);
    return rc;
}

static void set_members(struct spool_quota *q, struct spool_held *held, uint64_t bytes) {
    q->total += bytes - held->members;
    add_to_user(q, held->uid, held_by(q, held->uid) + bytes - held->members);
    held->bytes += bytes - held->members;
    held->members = bytes;
}

void spool_quota_note_members(struct spool_quota *q, uint64_t job, uint32_t attempt, uint64_t bytes) {
    struct spool_held *held = map_get(&q->attempts, key_of(job, attempt));
    if (held)
        set_members(q, held, bytes);
}

int spool_quota_take_members(struct spool_quota *q, uint64_t job, uint32_t attempt, uint64_t bytes,
                             struct error *e) {
    struct spool_held *held = map_get(&q->attempts, key_of(job, attempt));
    int rc = held && bytes > held->members ? need_room(q, held->uid, bytes - held->members, e) : 0;
    if (held && rc == 0)
        set_members(q, held, bytes);
    return rc;
}

void spool_quota_release(struct spool_quota *q, uint64_t job, uint32_t attempt) {
    struct spool_held *held = map_remove(&q->attempts, key_of(job, attempt));
    if (!held)
        return;
    q->total -= held->bytes;
    add_to_user(q, held->uid, held_by(q, held->uid) - held->bytes);
    free(held);
}
