// The store on SQLite in a state folder: opening and closing, handing batches to the writer, and
// telling the owner what became of them.
#include "sqlite_store.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "places.h"
#include "schema.h"
#include "sql.h"

static int open_databases(struct sqlite_store *s, struct error *e) {
    store_folder_make_private(s);
    struct sql_options options = {.vfs = s->vfs,
                                  .flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE};
    int r = store_sql_open(s->file, &options, &s->writer.db, e);
    if (r == 0)
        r = store_sql_exec(s->writer.db, "PRAGMA journal_mode=WAL", e);
    if (r == 0)
        r = store_schema_prepare(s->writer.db, s->file, store_schema_steps, store_schema_step_count, e);
    if (r == 0)
        r = store_schema_check_level(s->writer.db, s->file, s->level, e);
    if (r == 0)
        r = store_writer_open(s, e);
    if (r == 0)
        r = store_sql_open(s->file, &options, &s->maintenance_db, e);
    if (r == 0)
        r = store_reader_open(s, e);
    return r;
}

// --- threads ---

static int start_threads(struct sqlite_store *s, struct error *e) {
    int code = pthread_create(&s->writer_thread, NULL, store_writer_main, s);
    s->writer_runs = code == 0;
    if (code == 0) {
        code = pthread_create(&s->maintenance_thread, NULL, store_maintenance_main, s);
        s->maintenance_runs = code == 0;
    }
    return code ? error_set(e, code, "cannot start the store's threads: %s", strerror(code)) : 0;
}

// A snapshot that was handed over is still written; the writer does that, so it ends last.
static void stop_threads(struct sqlite_store *s) {
    pthread_mutex_lock(&s->lock);
    s->maintenance_stop = true;
    pthread_cond_broadcast(&s->care);
    pthread_cond_broadcast(&s->settled);
    pthread_mutex_unlock(&s->lock);
    if (s->maintenance_runs)
        pthread_join(s->maintenance_thread, NULL);
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
    if (s->writer_runs)
        pthread_join(s->writer_thread, NULL);
}

static void sqlite_close(struct store *st) {
    struct sqlite_store *s = sqlite_store_of(st);
    stop_threads(s);
    store_reader_close(s);
    sqlite3_close(s->maintenance_db);
    store_writer_close(s);
    while (s->head) {
        struct store_batch *next = s->head->next;
        store_batch_free(s->head);
        s->head = next;
    }
    free(s->snapshot.data);
    if (s->snapshot.fd >= 0)
        close(s->snapshot.fd);
    if (s->event_fd >= 0)
        close(s->event_fd);
    if (s->lock_fd >= 0)
        close(s->lock_fd);
    if (s->folder_fd >= 0)
        close(s->folder_fd);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->care);
    pthread_cond_destroy(&s->settled);
    free(s->folder);
    free(s->file);
    free(s);
}

// --- writing ---

static void sqlite_submit(struct store *st, struct store_batch *b) {
    struct sqlite_store *s = sqlite_store_of(st);
    pthread_mutex_lock(&s->lock);
    s->stats.waiting_batches++;
    s->stats.waiting_bytes += store_batch_bytes(b);
    *s->tail = b;
    s->tail = &b->next;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
}

static int sqlite_fd(const struct store *st) {
    return ((const struct sqlite_store *)st)->event_fd;
}

static void sqlite_poll(struct store *st) {
    struct sqlite_store *s = sqlite_store_of(st);
    eventfd_t count;
    eventfd_read(s->event_fd, &count);
    pthread_mutex_lock(&s->lock);
    uint64_t ticket = s->committed_ticket, seq = s->committed_seq;
    bool failed = s->failure_new;
    s->failure_new = false;
    struct error failure = s->failure;
    bool snapshot = s->snapshot.done;
    struct snapshot_work work = s->snapshot;
    s->snapshot.done = false;
    if (snapshot)
        s->snapshot.seq = 0;
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

static void sqlite_retry(struct store *st) {
    struct sqlite_store *s = sqlite_store_of(st);
    pthread_mutex_lock(&s->lock);
    s->failed = false;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
}

static void sqlite_flush(struct store *st) {
    struct sqlite_store *s = sqlite_store_of(st);
    pthread_mutex_lock(&s->lock);
    while (s->committed_ticket < s->base.last_ticket && !s->failed)
        pthread_cond_wait(&s->settled, &s->lock);
    pthread_mutex_unlock(&s->lock);
    sqlite_poll(st);
}

static int hand_over(struct sqlite_store *s, const struct snapshot_work *work) {
    assert(work->seq > 0);
    pthread_mutex_lock(&s->lock);
    bool busy = s->snapshot.seq != 0;
    if (!busy) {
        s->snapshot = *work;
        s->snapshot.wanted = true;
        pthread_cond_signal(&s->care);
    }
    pthread_mutex_unlock(&s->lock);
    return busy ? -EBUSY : 0;
}

static int sqlite_snapshot(struct store *st, uint64_t seq, const void *data, size_t len) {
    struct snapshot_work work = {.seq = seq, .data = xmemdup(data, len ? len : 1), .len = len, .fd = -1};
    int r = hand_over(sqlite_store_of(st), &work);
    if (r < 0)
        free(work.data);
    return r;
}

static int sqlite_snapshot_file(struct store *st, uint64_t seq, int fd, size_t at, size_t len) {
    return hand_over(sqlite_store_of(st),
                     &(struct snapshot_work){.seq = seq, .fd = fd, .at = at, .len = len});
}

static void sqlite_prune(struct store *st, int64_t now_ms) {
    struct sqlite_store *s = sqlite_store_of(st);
    pthread_mutex_lock(&s->lock);
    s->prune_ms = now_ms;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
}

static enum store_space sqlite_space(struct store *st) {
    struct sqlite_store *s = sqlite_store_of(st);
    uint64_t free_bytes = 0;
    enum store_space space = store_space_look(s, &free_bytes);
    pthread_mutex_lock(&s->lock);
    if (s->failed && s->failure.code == ENOSPC)
        space = STORE_SPACE_CRITICAL;
    pthread_mutex_unlock(&s->lock);
    if (faccessat(s->folder_fd, STORE_DATABASE_NAME, F_OK, 0) < 0 && errno == ENOENT)
        space = STORE_SPACE_GONE;
    return space;
}

static void sqlite_stats(struct store *st, struct store_stats *out) {
    struct sqlite_store *s = sqlite_store_of(st);
    uint64_t free_bytes = 0;
    struct stat file;
    store_space_look(s, &free_bytes);
    pthread_mutex_lock(&s->lock);
    *out = s->stats;
    out->committed_seq = s->committed_seq;
    out->committed_ticket = s->committed_ticket;
    pthread_mutex_unlock(&s->lock);
    out->free_bytes = free_bytes;
    if (stat(s->file, &file) == 0)
        out->file_bytes = (uint64_t)file.st_size;
}

static const struct store_ops sqlite_ops = {
    .close = sqlite_close,
    .submit = sqlite_submit,
    .fd = sqlite_fd,
    .poll = sqlite_poll,
    .retry = sqlite_retry,
    .flush = sqlite_flush,
    .snapshot = sqlite_snapshot,
    .snapshot_file = sqlite_snapshot_file,
    .prune = sqlite_prune,
    .space = sqlite_space,
    .stats = sqlite_stats,
    .load = store_reader_load,
    .text = store_reader_text,
    .blob = store_reader_blob,
    .blobs = store_reader_blobs,
    .events = store_reader_events,
    .journal = store_reader_journal,
    .history = store_reader_history,
    .old_keys = store_reader_old_keys,
    .check = store_reader_check,
};

int sqlite_store_open(const struct store_config *config, struct store **out, struct error *e) {
    struct sqlite_store *s = xcalloc(1, sizeof *s);
    s->base.ops = &sqlite_ops;
    s->base.watch = config->watch;
    s->folder = xstrdup(config->path);
    s->file = xasprintf("%s/%s", config->path, STORE_DATABASE_NAME);
    s->folder_fd = s->lock_fd = s->snapshot.fd = -1;
    s->reserve_bytes = config->reserve_bytes;
    s->low_bytes = config->low_bytes;
    s->retention = config->retention;
    s->vfs = config->vfs;
    s->level = config->level;
    s->tail = &s->head;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->work, NULL);
    pthread_cond_init(&s->care, NULL);
    pthread_cond_init(&s->settled, NULL);
    s->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int r = s->event_fd < 0 ? error_set(e, errno, "eventfd: %s", strerror(errno)) : 0;
    if (r == 0)
        r = store_folder_open(s, e);
    if (r == 0)
        r = store_folder_check(s, config->companions, e);
    if (r == 0) {
        store_space_reserve(s);  // told by store_space when it cannot be had
        r = open_databases(s, e);
        // What is on disk already may fill it to the brim: the reserve gives way to the start.
        if (r == -ENOSPC && store_space_release(s)) {
            store_reader_close(s);
            sqlite3_close(s->maintenance_db);
            s->maintenance_db = NULL;
            store_writer_close(s);
            r = open_databases(s, e);
        }
    }
    if (r == 0)
        r = store_folder_check_journal(s, e);
    if (r == 0)
        r = start_threads(s, e);
    if (r < 0) {
        sqlite_close(&s->base);
        return r;
    }
    *out = &s->base;
    return 0;
}
