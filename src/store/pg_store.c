// The store in PostgreSQL: opening and closing, handing batches to the writer, and telling the owner what became of
// them. Opening it does not make its owner the leader: store_claim does, once nobody else is.
#include "pg_store.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/text.h"
#include "places.h"

enum { LEASE_MS = 3000 };

static void pg_store_close(struct store *st) {
    struct pg_store *s = pg_store_of(st);
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
    if (s->writer_runs)
        pthread_join(s->writer_thread, NULL);
    pg_writer_done(s);
    pg_close(&s->reader);
    pg_close(&s->fresh_reader);
    while (s->head) {
        struct store_batch *next = s->head->next;
        store_batch_free(s->head);
        s->head = next;
    }
    if (s->snapshot.fd >= 0)
        close(s->snapshot.fd);  // its mapping, if any, goes with the process
    else
        free(s->snapshot.data);
    if (s->event_fd >= 0)
        close(s->event_fd);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->settled);
    free(s->place);
    free(s->holder);
    free(s->address);
    free(s);
}

// --- writing ---

static void pg_store_submit(struct store *st, struct store_batch *b) {
    struct pg_store *s = pg_store_of(st);
    pthread_mutex_lock(&s->lock);
    s->stats.waiting_batches++;
    s->stats.waiting_bytes += store_batch_bytes(b);
    *s->tail = b;
    s->tail = &b->next;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
}

static int pg_store_fd(const struct store *st) {
    return ((const struct pg_store *)st)->event_fd;
}

static void pg_store_poll(struct store *st) {
    struct pg_store *s = pg_store_of(st);
    eventfd_t count;
    eventfd_read(s->event_fd, &count);
    pthread_mutex_lock(&s->lock);
    uint64_t ticket = s->committed_ticket, seq = s->committed_seq;
    bool failed = s->failure_new, snapshot = s->snapshot.done;
    s->failure_new = false;
    struct error failure = s->failure;
    struct pg_snapshot work = s->snapshot;
    if (snapshot)
        s->snapshot = (struct pg_snapshot){.fd = -1};
    pthread_mutex_unlock(&s->lock);

    // The owner is called without the lock: what it does next may be another submit.
    const struct store_watch *watch = &s->base.watch;
    if (ticket > s->told_ticket) {
        s->told_ticket = ticket;
        if (watch->committed)
            watch->committed(watch->ctx, ticket, seq);
    }
    if (failed && watch->failed)
        watch->failed(watch->ctx, &failure);
    if (snapshot && watch->snapshot_done)
        watch->snapshot_done(watch->ctx, work.seq, work.code < 0 ? &work.error : NULL);
}

static void pg_store_retry(struct store *st) {
    struct pg_store *s = pg_store_of(st);
    pthread_mutex_lock(&s->lock);
    s->failed = s->fenced;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
}

static void pg_store_flush(struct store *st) {
    struct pg_store *s = pg_store_of(st);
    pthread_mutex_lock(&s->lock);
    while (s->committed_ticket < s->base.last_ticket && !s->failed && s->lease.mine)
        pthread_cond_wait(&s->settled, &s->lock);
    pthread_mutex_unlock(&s->lock);
    pg_store_poll(st);
}

static int hand_over(struct pg_store *s, const struct pg_snapshot *work) {
    assert(work->seq > 0);
    pthread_mutex_lock(&s->lock);
    bool busy = s->snapshot.seq != 0;
    if (!busy) {
        s->snapshot = *work;
        pthread_cond_signal(&s->work);
    }
    pthread_mutex_unlock(&s->lock);
    return busy ? -EBUSY : 0;
}

static int pg_store_snapshot(struct store *st, uint64_t seq, const void *data, size_t len) {
    struct pg_snapshot work = {.seq = seq, .data = xmemdup(data, len ? len : 1), .len = len, .fd = -1};
    int r = hand_over(pg_store_of(st), &work);
    if (r < 0)
        free(work.data);
    return r;
}

static int pg_store_snapshot_file(struct store *st, uint64_t seq, int fd, size_t at, size_t len) {
    return hand_over(pg_store_of(st), &(struct pg_snapshot){.seq = seq, .fd = fd, .at = at, .len = len});
}

static void pg_store_prune(struct store *st, int64_t now_ms) {
    struct pg_store *s = pg_store_of(st);
    pthread_mutex_lock(&s->lock);
    s->prune_ms = now_ms;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
}

// Room is the business of the database's machine: only a commit shows that there is none.
static enum store_space pg_store_space(struct store *st) {
    struct pg_store *s = pg_store_of(st);
    pthread_mutex_lock(&s->lock);
    bool full = s->failed && s->failure.code == ENOSPC;
    pthread_mutex_unlock(&s->lock);
    return full ? STORE_SPACE_CRITICAL : STORE_SPACE_OK;
}

static void pg_store_stats(struct store *st, struct store_stats *out) {
    struct pg_store *s = pg_store_of(st);
    pthread_mutex_lock(&s->lock);
    *out = s->stats;
    out->committed_seq = s->committed_seq;
    out->committed_ticket = s->committed_ticket;
    pthread_mutex_unlock(&s->lock);
}

// --- leading ---

static void pg_store_claim(struct store *st) {
    struct pg_store *s = pg_store_of(st);
    pthread_mutex_lock(&s->lock);
    s->claims = true;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
}

static void pg_store_give_up(struct store *st) {
    struct pg_store *s = pg_store_of(st);
    pthread_mutex_lock(&s->lock);
    s->give_up = true;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
}

static void pg_store_lease(struct store *st, struct store_lease *out) {
    struct pg_store *s = pg_store_of(st);
    pthread_mutex_lock(&s->lock);
    *out = s->lease;
    out->left_ms = s->give_up ? 0 : out->left_ms - (pg_lease_clock_ms() - s->lease_read_ms);
    pthread_mutex_unlock(&s->lock);
}

static void pg_store_raise(struct store *st, uint64_t term) {
    struct pg_store *s = pg_store_of(st);
    pthread_mutex_lock(&s->lock);
    if (s->lease.mine && term > s->lease.term && term > s->raise_to)
        s->raise_to = term;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
}

static void pg_store_followed(struct store *st, uint64_t seq) {
    struct pg_store *s = pg_store_of(st);
    pthread_mutex_lock(&s->lock);
    s->committed_seq = seq;
    pthread_mutex_unlock(&s->lock);
}

static const struct store_ops pg_ops = {
    .close = pg_store_close,
    .submit = pg_store_submit,
    .fd = pg_store_fd,
    .poll = pg_store_poll,
    .retry = pg_store_retry,
    .flush = pg_store_flush,
    .snapshot = pg_store_snapshot,
    .snapshot_file = pg_store_snapshot_file,
    .prune = pg_store_prune,
    .space = pg_store_space,
    .stats = pg_store_stats,
    .claim = pg_store_claim,
    .give_up = pg_store_give_up,
    .others = pg_lease_others,
    .lease = pg_store_lease,
    .raise = pg_store_raise,
    .followed = pg_store_followed,
    .load = pg_reader_load,
    .text = pg_reader_text,
    .blob = pg_reader_blob,
    .blobs = pg_reader_blobs,
    .events = pg_reader_events,
    .journal = pg_reader_journal,
    .history = pg_reader_history,
    .check = pg_reader_check,
};

int pg_store_open(const struct store_config *config, struct store **out, struct error *e) {
    struct pg_store *s = xcalloc(1, sizeof *s);
    pthread_condattr_t monotonic;
    s->base.ops = &pg_ops;
    s->base.watch = config->watch;
    s->place = xstrdup(config->path);
    s->address = xstrdup(config->address ? config->address : "");
    uint64_t random = 0;
    int r =
        getrandom(&random, sizeof random, 0) == sizeof random ? 0 : error_set(e, EIO, "no random numbers");
    s->holder = xasprintf("%s process %d %016llx", s->address, (int)getpid(), (unsigned long long)random);
    s->lease_ms = config->lease_ms ? config->lease_ms : LEASE_MS;
    s->level = config->level;
    s->retention = config->retention;
    s->tail = &s->head;
    s->snapshot.fd = -1;
    s->reader.broken = s->fresh_reader.broken = s->writer.conn.broken = true;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->work, &monotonic);
    pthread_cond_init(&s->settled, NULL);
    pthread_condattr_destroy(&monotonic);
    s->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->event_fd < 0)
        r = error_set(e, errno, "eventfd: %s", strerror(errno));
    if (r == 0)
        r = pg_load(e);
    if (r == 0)
        r = pg_schema_prepare(s->place, s->level, config->states, e);
    if (r == 0)
        r = pg_reader_open(&s->reader, s->place, e);
    if (r == 0) {
        int code = pthread_create(&s->writer_thread, NULL, pg_writer_main, s);
        s->writer_runs = code == 0;
        r = code ? error_set(e, code, "cannot start the store's thread: %s", strerror(code)) : 0;
    }
    if (r < 0) {
        pg_store_close(&s->base);
        return r;
    }
    *out = &s->base;
    return 0;
}
