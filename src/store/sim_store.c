// The simulated disk and the store on it. Committed batches are kept as they are; the journal, the
// texts and the history are views into them. A transaction is a group of batches that were waiting
// when it began, as in the real writer, and becomes durable as a whole or not at all.
#include "store/sim_store.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "store/batch.h"
#include "ops.h"
#include "store/sim_disk.h"
#include "sql.h"

struct sim_store {
    struct store base;
    struct sim_disk *disk;
    uint64_t reserve_bytes, low_bytes;
    struct store_retention retention;
    struct store_batch *head, **tail;
    uint32_t in_flight;   // batches of the transaction under way, from the head
    uint32_t ghosts;      // batches of a failed transaction that may be on disk all the same
    int64_t due_ms;
    bool failed, failure_new, released;
    struct error failure;
    uint64_t committed_ticket, committed_seq, told_ticket;
    uint64_t snapshot_seq;  // under way, 0: none
    void *snapshot_data;
    size_t snapshot_len;
    int64_t snapshot_due_ms;
    bool snapshot_told;
    struct store_stats stats;
};

static struct sim_store *sim_of(struct store *st) {
    return (struct sim_store *)st;
}

// --- commits ---

static bool chance(struct rand *r, uint32_t permille) {
    return permille && rand_below(r, 1000) < permille;
}

static void sim_begin(struct sim_store *s) {
    struct sim_disk *d = s->disk;
    if (s->in_flight || s->failed || !s->head)
        return;
    for (struct store_batch *b = s->head; b; b = b->next)
        s->in_flight++;
    const struct sim_disk_faults *f = &d->faults;
    int64_t took = chance(&d->rand, f->slow_permille)
                       ? f->slow_ms
                       : rand_between(&d->rand, f->commit_ms_min, f->commit_ms_max);
    s->due_ms = d->now_ms + took;
}

static uint64_t group_bytes(const struct sim_store *s, uint32_t count) {
    uint64_t bytes = 0;
    const struct store_batch *b = s->head;
    for (uint32_t i = 0; i < count; i++, b = b->next)
        bytes += store_batch_bytes(b);
    return bytes;
}

static bool group_fits(struct sim_store *s) {
    uint64_t capacity = s->disk->faults.capacity_bytes;
    if (!capacity)
        return true;
    uint64_t need = s->disk->used_bytes + group_bytes(s, s->in_flight);
    if (!s->released && need + s->reserve_bytes > capacity)
        s->released = s->reserve_bytes > 0;
    return need + (s->released ? 0 : s->reserve_bytes) <= capacity;
}

// Moves the first `count` batches onto the disk.
static void sim_persist(struct sim_store *s, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        struct store_batch *b = s->head;
        s->head = b->next;
        if (!s->head)
            s->tail = &s->head;
        b->next = NULL;
        s->committed_ticket = b->ticket;
        s->stats.records += b->events.len;
        if (b->events.len)
            s->committed_seq = b->events.at[b->events.len - 1].seq;
        s->stats.waiting_batches--;
        s->stats.waiting_bytes -= store_batch_bytes(b);
        sim_disk_keep(s->disk, b);
    }
}

static void sim_fail(struct sim_store *s, int code, const char *why) {
    // The commit's last block may have reached the disk although its sync failed.
    s->ghosts = code == EIO ? s->in_flight : 0;
    s->in_flight = 0;
    s->failed = s->failure_new = true;
    s->stats.failures++;
    error_set(&s->failure, code, "%s", why);
}

static void sim_finish(struct sim_store *s) {
    if (!group_fits(s)) {
        sim_fail(s, ENOSPC, "committing: database or disk is full; make room on the disk that "
                            "holds the state folder");
    } else if (chance(&s->disk->rand, s->disk->faults.fail_permille)) {
        sim_fail(s, EIO, "committing: disk I/O error");
    } else {
        s->stats.commits++;
        sim_persist(s, s->in_flight);
        s->in_flight = 0;
        s->ghosts = 0;
        sim_begin(s);
    }
}

static void sim_finish_snapshot(struct sim_store *s) {
    if (s->committed_seq < s->snapshot_seq) {
        s->snapshot_due_ms = s->disk->now_ms + 1;  // it must not run ahead of its record
        return;
    }
    sim_disk_keep_snapshot(s->disk, s->snapshot_seq, TAKE_PTR(s->snapshot_data), s->snapshot_len);
    s->snapshot_due_ms = INT64_MAX;
    s->snapshot_told = true;
}

int64_t sim_disk_due(const struct sim_disk *d) {
    const struct sim_store *s = d->store;
    if (!s)
        return INT64_MAX;
    int64_t due = s->in_flight ? s->due_ms : INT64_MAX;
    // A snapshot that waits for its record has nothing to do before the next commit.
    bool ready = s->snapshot_data && s->committed_seq >= s->snapshot_seq;
    return ready && s->snapshot_due_ms < due ? s->snapshot_due_ms : due;
}

void sim_disk_tick(struct sim_disk *d, int64_t now_ms) {
    assert(now_ms >= d->now_ms);
    struct sim_store *s = d->store;
    int64_t due;
    while (s && (due = sim_disk_due(d)) <= now_ms) {
        d->now_ms = due > d->now_ms ? due : d->now_ms;
        if (s->in_flight && s->due_ms == due)
            sim_finish(s);
        else
            sim_finish_snapshot(s);
    }
    d->now_ms = now_ms;
}

// --- the interface ---

static void sim_submit(struct store *st, struct store_batch *b) {
    struct sim_store *s = sim_of(st);
    s->stats.waiting_batches++;
    s->stats.waiting_bytes += store_batch_bytes(b);
    *s->tail = b;
    s->tail = &b->next;
    sim_begin(s);
}

static int sim_fd(const struct store *st) {
    return -1;
}

static void sim_poll(struct store *st) {
    struct sim_store *s = sim_of(st);
    const struct store_watch *watch = &s->base.watch;
    if (s->committed_ticket > s->told_ticket) {
        s->told_ticket = s->committed_ticket;
        if (watch->committed)
            watch->committed(watch->ctx, s->told_ticket, s->committed_seq);
    }
    if (s->failure_new) {
        s->failure_new = false;
        struct error failure = s->failure;
        if (watch->failed)
            watch->failed(watch->ctx, &failure);
    }
    if (s->snapshot_told) {
        s->snapshot_told = false;
        uint64_t seq = s->snapshot_seq;
        s->snapshot_seq = 0;
        if (watch->snapshot_done)
            watch->snapshot_done(watch->ctx, seq, NULL);
    }
}

static void sim_retry(struct store *st) {
    struct sim_store *s = sim_of(st);
    s->failed = false;
    sim_begin(s);
}

static void sim_flush(struct store *st) {
    struct sim_store *s = sim_of(st);
    while (s->in_flight)
        sim_disk_tick(s->disk, s->due_ms > s->disk->now_ms ? s->due_ms : s->disk->now_ms);
    sim_poll(st);
}

static int sim_snapshot(struct store *st, uint64_t seq, const void *data, size_t len) {
    struct sim_store *s = sim_of(st);
    assert(seq > 0);
    if (s->snapshot_seq)
        return -EBUSY;
    s->snapshot_seq = seq;
    s->snapshot_data = xmemdup(data, len ? len : 1);
    s->snapshot_len = len;
    const struct sim_disk_faults *f = &s->disk->faults;
    s->snapshot_due_ms = s->disk->now_ms + rand_between(&s->disk->rand, f->commit_ms_min,
                                                        f->commit_ms_max + f->slow_ms);
    return 0;
}

static int sim_snapshot_file(struct store *st, uint64_t seq, int fd, size_t at, size_t len) {
    cleanup_free char *data = xmalloc(len + 1);
    for (size_t n = 0; n < len;) {
        ssize_t got = pread(fd, data + n, len - n, (off_t)(at + n));
        if (got <= 0)
            return -EIO;
        n += (size_t)got;
    }
    int r = sim_snapshot(st, seq, data, len);
    if (r == 0)
        close(fd);
    return r;
}

static void sim_prune(struct store *st, int64_t now_ms) {
    sim_disk_prune(sim_of(st)->disk, &sim_of(st)->retention, now_ms);
}

static enum store_space sim_space(struct store *st) {
    struct sim_store *s = sim_of(st);
    uint64_t capacity = s->disk->faults.capacity_bytes, used = s->disk->used_bytes;
    if (s->failed && s->failure.code == ENOSPC)
        return STORE_SPACE_CRITICAL;
    uint64_t unused = !capacity ? UINT64_MAX : capacity > used ? capacity - used : 0;
    if (s->released && unused / 2 >= s->reserve_bytes + s->low_bytes)
        s->released = false;
    if (s->released)
        return STORE_SPACE_CRITICAL;
    return unused < s->low_bytes + s->reserve_bytes ? STORE_SPACE_LOW : STORE_SPACE_OK;
}

static void sim_stats(struct store *st, struct store_stats *out) {
    struct sim_store *s = sim_of(st);
    *out = s->stats;
    out->committed_seq = s->committed_seq;
    out->committed_ticket = s->committed_ticket;
    out->file_bytes = s->disk->used_bytes;
    uint64_t capacity = s->disk->faults.capacity_bytes;
    out->free_bytes = capacity > s->disk->used_bytes ? capacity - s->disk->used_bytes : 0;
}

static int sim_load(struct store *st, const struct store_loader *loader, uint64_t *last_seq,
                    struct error *e) {
    struct sim_store *s = sim_of(st);
    int r = sim_disk_load(s->disk, loader, last_seq, e);
    if (r == 0)
        s->committed_seq = *last_seq;
    return r;
}

static int sim_text(struct store *st, const struct store_key *key, void **out, size_t *len,
                    struct error *e) {
    struct sim_disk *d = sim_of(st)->disk;
    if (chance(&d->rand, d->faults.unreadable_permille))
        return error_set(e, EIO, "reading a text: disk I/O error");
    return sim_disk_text(d, key, out, len, e);
}

static int sim_blob(struct store *st, const char *name, void **out, size_t *len, struct error *e) {
    return sim_disk_blob(sim_of(st)->disk, name, out, len, e);
}

static int sim_blobs(struct store *st, const char *prefix, store_blob_fn fn, void *ctx, struct error *e) {
    return sim_disk_blobs(sim_of(st)->disk, prefix, fn, ctx);
}

static int sim_events(struct store *st, uint64_t job, uint64_t after, uint32_t limit,
                      store_event_fn fn, void *ctx, struct error *e) {
    return sim_disk_events(sim_of(st)->disk, job, after, limit, fn, ctx);
}

static int sim_journal(struct store *st, store_event_fn fn, void *ctx, struct error *e) {
    return sim_disk_events(sim_of(st)->disk, 0, 0, 0, fn, ctx);
}

static int sim_history(struct store *st, const struct store_query *q, store_history_fn fn,
                       void *ctx, struct error *e) {
    return sim_disk_history(sim_of(st)->disk, q, fn, ctx);
}

static int sim_check(struct store *st, struct error *e) {
    return 0;
}

static void sim_free(struct sim_store *s) {
    while (s->head) {
        struct store_batch *next = s->head->next;
        store_batch_free(s->head);
        s->head = next;
    }
    s->disk->store = NULL;
    free(s->snapshot_data);
    free(s);
}

static void sim_close(struct store *st) {
    struct sim_store *s = sim_of(st);
    while (s->in_flight)
        sim_finish(s);
    sim_free(s);
}

struct store *sim_store_crash(struct store *st) {
    struct sim_store *s = sim_of(st);
    uint32_t reached = s->in_flight ? s->in_flight : s->ghosts;
    if (reached && group_fits(s) && chance(&s->disk->rand, 500))
        sim_persist(s, reached);
    sim_free(s);
    return NULL;
}

static const struct store_ops sim_ops = {
    .close = sim_close,
    .submit = sim_submit,
    .fd = sim_fd,
    .poll = sim_poll,
    .retry = sim_retry,
    .flush = sim_flush,
    .snapshot = sim_snapshot,
    .snapshot_file = sim_snapshot_file,
    .prune = sim_prune,
    .space = sim_space,
    .stats = sim_stats,
    .load = sim_load,
    .text = sim_text,
    .blob = sim_blob,
    .blobs = sim_blobs,
    .events = sim_events,
    .journal = sim_journal,
    .history = sim_history,
    .check = sim_check,
};

int sim_store_open(struct sim_disk *d, const struct store_config *config, struct store **out,
                   struct error *e) {
    if (d->store)
        return error_set(e, EBUSY, "the simulated disk is in use by another controller");
    if (config->level && d->level > config->level)
        return error_set(e, EPROTONOSUPPORT,
                         "the simulated disk was written by a later release (feature level %u, this program knows "
                         "levels up to %u): it needs Acequia %s or later",
                         d->level, config->level, d->release);
    struct sim_store *s = xcalloc(1, sizeof *s);
    s->base.ops = &sim_ops;
    s->base.watch = config->watch;
    s->disk = d;
    s->reserve_bytes = config->reserve_bytes;
    s->low_bytes = config->low_bytes;
    s->retention = config->retention;
    s->tail = &s->head;
    s->snapshot_due_ms = INT64_MAX;
    d->rotten = chance(&d->rand, d->faults.rot_permille);
    d->store = s;
    *out = &s->base;
    return 0;
}
