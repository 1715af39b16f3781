// The writer's thread of the PostgreSQL store: takes every waiting batch, commits them in one transaction, reports; and
// in between a step of a snapshot, of pruning, or of the lease. Each transaction is sent without waiting for answers
// and ends with a check of the lease (PGW_FENCE), which also counts transactions: when the answer to one was lost with
// the connection, the count says whether it was committed.
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "pg_store.h"
#include "schema.h"
#include "sql.h"
#include "sqlite_store.h"

enum {
    RECONNECT_MS = 250,
    PRUNE_ROWS = 500,
};

// --- the connection ---

static int lost_lease(struct error *e) {
    return error_set(e, ESTALE, "another controller leads now");
}

// After a connection was lost: is the lease still ours, and was the transaction that was on its way committed?
static int resolve(struct pg_store *s, struct error *e) {
    struct pg_writer *w = &s->writer;
    pthread_mutex_lock(&s->lock);
    uint64_t term = s->lease.mine ? s->lease.term : 0;
    pthread_mutex_unlock(&s->lock);
    if (!term)
        return 0;
    struct error own = {0};
    struct pg_args none = {0};
    cleanup_result PGresult *r = pg_run(&w->conn, PGW_LEASE, &none, "reading the lease", &own);
    if (!r || !pg_lib.PQntuples(r)) {
        if (e)
            *e = own;
        return r ? error_set(e, EBADMSG, "the database has no lease; restore it from a backup") : -own.code;
    }
    if ((uint64_t)pg_get_int(r, 0, 0) != term || !streq(pg_get_text(r, 0, 4), s->holder))
        return lost_lease(e);
    uint64_t commits = (uint64_t)pg_get_int(r, 0, 1);
    bool happened = w->unknown && commits == w->commits + 1;
    if (commits != w->commits && !happened)
        return lost_lease(e);
    if (happened && w->unknown_ticket)
        w->done_ticket = w->unknown_ticket;
    w->commits = commits;
    w->unknown = false;
    w->unknown_ticket = 0;
    return 0;
}

int pg_writer_ready(struct pg_store *s, struct error *e) {
    struct pg_writer *w = &s->writer;
    int r = 0;
    if (!w->conn.db || w->conn.broken) {
        pg_close(&w->conn);
        w->tried_ms = clock_mono_ms();
        r = pg_open(&w->conn, s->place, "acequia writer", pg_write_statements, PGW_COUNT, e);
        if (r == 0)
            r = resolve(s, e);
        if (r < 0 && r != -ESTALE)
            pg_close(&w->conn);
    }
    pthread_mutex_lock(&s->lock);
    bool reader = s->reader_wanted && !s->fresh_reader.db;
    pthread_mutex_unlock(&s->lock);
    struct pg_conn fresh;
    if (r == 0 && reader && pg_reader_open(&fresh, s->place, NULL) == 0) {
        pthread_mutex_lock(&s->lock);
        s->fresh_reader = fresh;
        s->reader_wanted = false;
        pthread_mutex_unlock(&s->lock);
    }
    return r;
}

void pg_writer_done(struct pg_store *s) {
    pg_close(&s->writer.conn);
}

void pg_writer_fence(struct pg_store *s, const struct error *e) {
    s->fenced = s->failed = s->failure_new = true;
    s->lease.mine = false;
    s->failure = *e;
    pthread_cond_broadcast(&s->settled);
    eventfd_write(s->event_fd, 1);
}

int pg_writer_fenced(struct pg_store *s, int (*add)(struct pg_store *s, const void *what, struct error *e),
                     const void *what, const char *doing, uint64_t *rows, struct error *e) {
    struct pg_writer *w = &s->writer;
    int r = pg_writer_ready(s, e);
    pthread_mutex_lock(&s->lock);
    uint64_t term = s->lease.mine ? s->lease.term : 0;
    pthread_mutex_unlock(&s->lock);
    if (r == 0 && !term)
        r = lost_lease(e);
    if (r == 0)
        r = pg_pipe_begin(&w->conn, e);
    if (r < 0)
        return r;
    int64_t before = pg_lease_clock_ms();
    r = add(s, what, e);
    if (r == 0) {
        struct pg_args a = {0};
        pg_int(&a, (int64_t)term);
        pg_int(&a, (int64_t)w->commits + 1);
        pg_int(&a, s->lease_ms);
        pg_text(&a, s->holder);
        r = pg_pipe_add(&w->conn, PGW_FENCE, &a, e);
    }
    if (r < 0) {
        w->conn.broken = true;  // what was sent goes with the connection: nothing has asked for a commit
        return r;
    }
    r = pg_pipe_end(&w->conn, doing, rows, e);
    w->unknown = r == -EPIPE || r == -ETIMEDOUT;
    if (r == -ESTALE)
        lost_lease(e);
    if (r < 0)
        return r;
    w->commits++;
    pthread_mutex_lock(&s->lock);
    s->lease.left_ms = s->lease_ms;
    s->lease_read_ms = before;
    pthread_mutex_unlock(&s->lock);
    return 0;
}

// --- batches ---

static int add_event(struct pg_conn *c, const struct store_event *ev, struct error *e) {
    struct pg_args a = {0};
    pg_int(&a, (int64_t)ev->seq);
    pg_int(&a, ev->at_ms);
    pg_int(&a, ev->type);
    pg_int(&a, (int64_t)ev->job);
    pg_int(&a, (int64_t)store_event_checksum(ev));
    pg_bytes(&a, ev->data, ev->len);
    return pg_pipe_add(c, PGW_EVENT, &a, e);
}

// A text is stored once, whoever uses it: its key is a hash of its bytes.
static int add_text(struct pg_conn *c, const struct store_batch *b, const struct batch_text *t,
                    struct error *e) {
    struct pg_args text = {0}, owner = {0};
    pg_bytes(&text, t->key.bytes, sizeof t->key.bytes);
    pg_bytes(&text, batch_at(b, t->text), t->text.len);
    pg_int(&owner, (int64_t)t->owner);
    pg_bytes(&owner, t->key.bytes, sizeof t->key.bytes);
    int r = pg_pipe_add(c, PGW_TEXT, &text, e);
    return r < 0 ? r : pg_pipe_add(c, PGW_OWNER, &owner, e);
}

// The database takes valid UTF-8 only. Whatever came this far must not keep the journal from being committed: what is
// not valid is shown as question marks here; the record beside it holds the bytes as they are.
static char *valid_text(const char *text) {
    size_t len = strlen(text);
    char *out = xstrdup(text);
    for (size_t i = 0; i < len && !str_utf8_valid(text, len); i++)
        if ((unsigned char)out[i] >= 0x80)
            out[i] = '?';
    return out;
}

static int add_history(struct pg_conn *c, const struct store_history *h, struct error *e) {
    cleanup_free char *user = valid_text(h->user), *project = valid_text(h->project),
                      *name = valid_text(h->name), *nodes = valid_text(h->nodes);
    struct pg_args a = {0};
    pg_int(&a, (int64_t)h->id);
    pg_int(&a, (int64_t)h->array);
    pg_int(&a, h->index);
    pg_int(&a, h->state);
    pg_text(&a, user);
    pg_text(&a, project);
    pg_text(&a, name);
    pg_int(&a, h->submit_ms);
    pg_int(&a, h->start_ms);
    pg_int(&a, h->end_ms);
    pg_text(&a, nodes);
    pg_bytes(&a, h->data, h->len);
    pg_int(&a, (int64_t)h->cpus);
    pg_int(&a, (int64_t)h->gpu_milli);
    return pg_pipe_add(c, PGW_HISTORY, &a, e);
}

static int add_owner(struct pg_conn *c, enum pg_write_sql what, uint64_t owner, struct error *e) {
    struct pg_args a = {0};
    pg_int(&a, (int64_t)owner);
    return pg_pipe_add(c, what, &a, e);
}

static int add_blob(struct pg_conn *c, const char *name, const void *data, size_t len, struct error *e) {
    struct pg_args a = {0};
    pg_text(&a, name);
    pg_int(&a, (int64_t)store_sql_checksum(strlen(name), data, len));
    pg_bytes(&a, data, len);
    return pg_pipe_add(c, PGW_BLOB, &a, e);
}

static int add_blobs(struct pg_conn *c, const struct store_batch *b, struct error *e) {
    int r = 0;
    for (uint32_t i = 0; i < b->blobs.len && r == 0; i++) {
        const struct batch_blob *blob = &b->blobs.at[i];
        const char *name = batch_at(b, blob->name);
        struct pg_args a = {0};
        pg_text(&a, name);
        r = blob->remove ? pg_pipe_add(c, PGW_BLOB_DROP, &a, e)
                         : add_blob(c, name, batch_at(b, blob->data), blob->data.len, e);
    }
    return r;
}

static int add_level(struct pg_conn *c, const struct store_batch *b, struct error *e) {
    struct pg_args a = {0};
    pg_int(&a, b->level);
    int r = pg_pipe_add(c, PGW_LEVEL, &a, e);
    return r < 0 ? r : add_blob(c, SCHEMA_LEVEL_RELEASE, batch_at(b, b->release), b->release.len, e);
}

// In the order of the SQLite store (writer.c): texts before releases, history before releases.
static int add_batch(struct pg_conn *c, const struct store_batch *b, struct error *e) {
    int r = 0;
    for (uint32_t i = 0; i < b->events.len && r == 0; i++) {
        struct store_event ev = store_batch_event_view(b, &b->events.at[i]);
        r = add_event(c, &ev, e);
    }
    for (uint32_t i = 0; i < b->texts.len && r == 0; i++)
        r = add_text(c, b, &b->texts.at[i], e);
    for (uint32_t i = 0; i < b->history.len && r == 0; i++) {
        struct store_history row = store_batch_history_view(b, &b->history.at[i]);
        r = add_history(c, &row, e);
    }
    for (uint32_t i = 0; i < b->releases.len && r == 0; i++) {
        r = add_owner(c, PGW_RELEASE, b->releases.at[i], e);
        if (r == 0)
            r = add_owner(c, PGW_DROP_OWNER, b->releases.at[i], e);
    }
    if (r == 0)
        r = add_blobs(c, b, e);
    if (r == 0 && b->level)
        r = add_level(c, b, e);
    return r;
}

static int add_batches(struct pg_store *s, const void *what, struct error *e) {
    int r = 0;
    for (const struct store_batch *b = what; b && r == 0; b = b->next)
        r = add_batch(&s->writer.conn, b, e);
    return r;
}

// --- the queue ---

static void note_committed(struct pg_store *s, const struct store_batch *list, int64_t took_us) {
    s->stats.commits++;
    s->stats.commit_us_total += (uint64_t)took_us;
    if ((uint64_t)took_us > s->stats.commit_us_max)
        s->stats.commit_us_max = (uint64_t)took_us;
    for (const struct store_batch *b = list; b; b = b->next) {
        assert(b->ticket == s->committed_ticket + 1);
        s->committed_ticket = b->ticket;
        s->stats.records += b->events.len;
        s->stats.waiting_batches--;
        s->stats.waiting_bytes -= store_batch_bytes(b);
        if (b->events.len)
            s->committed_seq = b->events.at[b->events.len - 1].seq;
    }
    pthread_cond_broadcast(&s->settled);
}

static void free_batches(struct store_batch *list) {
    while (list) {
        struct store_batch *next = list->next;
        store_batch_free(list);
        list = next;
    }
}

// The transaction whose answer was lost turned out to be committed. Called and returns with the lock held.
static void settle_unknown(struct pg_store *s) {
    struct pg_writer *w = &s->writer;
    struct store_batch *list = store_batches_take(&s->head, &s->tail, w->done_ticket);
    w->done_ticket = 0;
    note_committed(s, list, 0);
    pthread_mutex_unlock(&s->lock);
    eventfd_write(s->event_fd, 1);
    free_batches(list);
    pthread_mutex_lock(&s->lock);
}

// Called and returns with the lock held.
static int commit_once(struct pg_store *s, struct error *e) {
    struct pg_writer *w = &s->writer;
    pthread_mutex_unlock(&s->lock);
    int r = pg_writer_ready(s, e);
    pthread_mutex_lock(&s->lock);
    if (r < 0)
        return r;
    if (w->done_ticket)
        settle_unknown(s);
    if (!s->head)
        return 0;
    struct store_batch *list = store_batches_take(&s->head, &s->tail, 0);
    pthread_mutex_unlock(&s->lock);
    int64_t before = clock_mono_us();
    r = pg_writer_fenced(s, add_batches, list, "committing", NULL, e);
    int64_t took = clock_mono_us() - before;
    pthread_mutex_lock(&s->lock);
    if (r < 0) {
        uint64_t last = store_batches_put_back(&s->head, &s->tail, list);
        w->unknown_ticket = w->unknown ? last : 0;
        return r;
    }
    note_committed(s, list, took);
    pthread_mutex_unlock(&s->lock);
    eventfd_write(s->event_fd, 1);
    free_batches(list);  // the owner is awake by now and answers
    pthread_mutex_lock(&s->lock);
    return 0;
}

// Called and returns with the lock held. A connection that broke is made anew once before the owner hears of it.
static void commit_some(struct pg_store *s) {
    struct error error = {0};
    int r = commit_once(s, &error);
    if ((r == -EPIPE || r == -ETIMEDOUT) && !s->stop)
        r = commit_once(s, &error);
    if (r == -ESTALE) {
        pg_writer_fence(s, &error);
    } else if (r < 0) {
        s->failed = s->failure_new = true;
        s->failure = error;
        s->stats.failures++;
        pthread_cond_broadcast(&s->settled);
        eventfd_write(s->event_fd, 1);
    }
}

// --- pruning ---

struct prune {
    int64_t journal_before_ms, history_before_ms;
    uint64_t oldest_snapshot;
    PGresult *old;
};

static int add_prune(struct pg_store *s, const void *what, struct error *e) {
    const struct prune *p = what;
    struct pg_conn *c = &s->writer.conn;
    int r = 0, count = p->old ? pg_lib.PQntuples(p->old) : 0;
    if (p->oldest_snapshot && p->journal_before_ms != INT64_MIN) {
        struct pg_args a = {0};
        pg_int(&a, (int64_t)p->oldest_snapshot);
        pg_int(&a, p->journal_before_ms);
        pg_int(&a, PRUNE_ROWS);
        r = pg_pipe_add(c, PGW_PRUNE_JOURNAL, &a, e);
    }
    for (int i = 0; i < count && r == 0; i++)
        r = add_owner(c, PGW_DROP_HISTORY, (uint64_t)pg_get_int(p->old, i, 0), e);
    for (int i = 0; i < count && r == 0; i++) {
        uint64_t array = (uint64_t)pg_get_int(p->old, i, 1);
        bool again = i > 0 && array == (uint64_t)pg_get_int(p->old, i - 1, 1);
        r = add_owner(c, PGW_DROP_OWNER, (uint64_t)pg_get_int(p->old, i, 0), e);
        if (r == 0 && array && !again)
            r = add_owner(c, PGW_DROP_OWNER, array, e);
    }
    return r;
}

// Called and returns with the lock held.
static void prune_some(struct pg_store *s) {
    const struct store_retention *keep = &s->retention;
    struct prune p = {.oldest_snapshot = s->oldest_snapshot,
                      .journal_before_ms = keep->journal_ms ? s->prune_ms - keep->journal_ms : INT64_MIN,
                      .history_before_ms = keep->history_ms ? s->prune_ms - keep->history_ms : INT64_MIN};
    struct error error = {0};
    uint64_t rows = 0;
    pthread_mutex_unlock(&s->lock);
    int r = pg_writer_ready(s, &error);
    if (r == 0 && p.history_before_ms != INT64_MIN) {
        struct pg_args a = {0};
        pg_int(&a, p.history_before_ms);
        pg_int(&a, PRUNE_ROWS);
        p.old = pg_run(&s->writer.conn, PGW_OLD_HISTORY, &a, "pruning the history", &error);
        r = p.old ? 0 : -error.code;
    }
    if (r == 0)
        r = pg_writer_fenced(s, add_prune, &p, "pruning", &rows, &error);
    pg_result_done(&p.old);
    pthread_mutex_lock(&s->lock);
    if (r == -ESTALE)
        pg_writer_fence(s, &error);
    if (r < 0 || rows == 0)
        s->prune_ms = 0;  // done, or failing: the next store_prune tries again
}

// --- the thread ---

static void wait_for_work(struct pg_store *s, int64_t wait_ms) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += wait_ms / 1000;
    until.tv_nsec += wait_ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_cond_timedwait(&s->work, &s->lock, &until);
}

// A server that does not answer is not asked again at once.
static void replace_reader(struct pg_store *s) {
    pthread_mutex_unlock(&s->lock);
    int r = pg_writer_ready(s, NULL);
    pthread_mutex_lock(&s->lock);
    if (r < 0 && !s->stop)
        wait_for_work(s, RECONNECT_MS);
}

void *pg_writer_main(void *store) {
    struct pg_store *s = store;
    bool committed = false;  // since the last step of a snapshot: they take turns
    pthread_mutex_lock(&s->lock);
    for (;;) {
        int64_t wait_ms = 0;
        bool writes = s->lease.mine && !s->failed;
        bool commit = writes && s->head;
        bool piece = writes && s->snapshot.seq && !s->snapshot.done && s->committed_seq >= s->snapshot.seq;
        if (piece && (committed || !commit)) {
            pg_snapshot_step(s);
            committed = false;
        } else if (commit) {
            commit_some(s);
            committed = true;
        } else if (s->stop) {
            break;
        } else if (s->reader_wanted && !s->fresh_reader.db) {
            replace_reader(s);
        } else if (pg_lease_due(s, &wait_ms)) {
            pg_lease_step(s);
        } else if (writes && s->discard) {
            pg_snapshot_discard_step(s);
        } else if (writes && s->prune_ms) {
            prune_some(s);
        } else {
            wait_for_work(s, wait_ms);
        }
    }
    pg_lease_give_up(s);
    pthread_cond_broadcast(&s->settled);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}
