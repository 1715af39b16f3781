// The writer's thread: takes every waiting batch, commits them in one transaction, reports. A
// transaction that fails is rolled back and its batches go back to the front of the queue in their
// order; nothing is tried again until the owner says so, except once after the disk was full and
// the reserve could be released.
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "schema.h"
#include "sql.h"
#include "sqlite_store.h"

enum {
    LEVEL_FORMAT = 3,               // the first format whose programs look at the level
    CHECKPOINT_PAGES = 2000,        // more in the log: maintenance moves them into the file
    CHECKPOINT_PAGES_MUST = 64000,  // so far behind that the writer does it itself
};

static const char *const write_sql[WRITE_COUNT] = {
    [WRITE_BEGIN] = "BEGIN IMMEDIATE",
    [WRITE_COMMIT] = "COMMIT",
    [WRITE_EVENT] = "INSERT INTO journal(seq, at_ms, type, job, sum, data) VALUES(?,?,?,?,?,?)",
    [WRITE_TEXT] = "INSERT INTO text(key, data) VALUES(?,?)",
    [WRITE_TEXT_ID] = "SELECT id FROM text WHERE key = ?",
    [WRITE_OWNER] = "INSERT INTO text_owner(owner, text, live) VALUES(?,?,1)"
                    " ON CONFLICT DO UPDATE SET live = 1",
    [WRITE_RELEASE] = "UPDATE text_owner SET live = 0 WHERE owner = ?",
    [WRITE_HISTORY] = "INSERT OR REPLACE INTO history(id, array_id, array_index, state, user,"
                      " project, name, submit_ms, start_ms, end_ms, nodes, data)"
                      " VALUES(?,?,?,?,?,?,?,?,?,?,?,?)",
    [WRITE_BLOB] = "INSERT OR REPLACE INTO blob(name, sum, data) VALUES(?,?,?)",
    [WRITE_BLOB_DROP] = "DELETE FROM blob WHERE name = ?",
    // The level's own format check holds from format 3 on; programs before that only look at readable_by.
    [WRITE_LEVEL] = "INSERT INTO meta(name, value) VALUES('level', ?1), ('readable_by', ?2)"
                    " ON CONFLICT DO UPDATE SET value = max(value, excluded.value)",
    [WRITE_NEEDED] = "SELECT EXISTS(SELECT 1 FROM history WHERE id = ?1)"
                     " OR EXISTS(SELECT 1 FROM history WHERE array_id = ?1 AND array_id != 0)",
    [WRITE_OWNED] = "SELECT text FROM text_owner WHERE owner = ? AND live = 0 LIMIT 1",
    [WRITE_DISOWN] = "DELETE FROM text_owner WHERE owner = ? AND text = ?",
    [WRITE_TEXT_DROP] = "DELETE FROM text WHERE id = ?1"
                        " AND NOT EXISTS(SELECT 1 FROM text_owner WHERE text = ?1)",
    [WRITE_SNAPSHOT] = "INSERT INTO snapshot(seq, len, sum, pieces) VALUES(?,?,?,?)",
    [WRITE_SNAPSHOT_PIECE] = "INSERT INTO snapshot_piece(seq, n, data) VALUES(?,?,?)",
    [WRITE_SNAPSHOT_PRUNE] = "DELETE FROM snapshot WHERE seq NOT IN"
                             " (SELECT seq FROM snapshot ORDER BY seq DESC LIMIT ?)",
    [WRITE_SNAPSHOT_DROP] = "DELETE FROM snapshot_piece WHERE rowid IN (SELECT rowid FROM snapshot_piece"
                            " WHERE seq NOT IN (SELECT seq FROM snapshot) LIMIT ?)",
    [WRITE_READABLE_BY] = "INSERT INTO meta(name, value) VALUES('readable_by', ?)"
                          " ON CONFLICT DO UPDATE SET value = max(value, excluded.value)",
    [WRITE_PRUNE_JOURNAL] = "DELETE FROM journal WHERE seq IN (SELECT seq FROM journal"
                            " WHERE seq < ? AND at_ms < ? ORDER BY seq LIMIT ?)",
    [WRITE_PRUNE_IDEM] = "DELETE FROM idem WHERE (user, key) IN (SELECT user, key FROM idem"
                         " WHERE expires_ms <= ? ORDER BY expires_ms LIMIT ?)",
    [WRITE_OLD_HISTORY] = "SELECT id, array_id FROM history WHERE end_ms < ?"
                          " ORDER BY end_ms LIMIT ?",
    [WRITE_DROP_HISTORY] = "DELETE FROM history WHERE id = ?",
};

static int on_wal(void *ctx, sqlite3 *db, const char *name, int pages) {
    ((struct sqlite_store *)ctx)->writer.wal_pages = pages;
    return SQLITE_OK;
}

int store_writer_open(struct sqlite_store *s, struct error *e) {
    struct writer *w = &s->writer;
    int r = store_sql_prepare_all(w->db, write_sql, w->stmt, WRITE_COUNT, e);
    if (r == 0)
        sqlite3_wal_hook(w->db, on_wal, s);
    return r;
}

void store_writer_close(struct sqlite_store *s) {
    store_sql_finalize_all(s->writer.stmt, WRITE_COUNT);
    sqlite3_close(s->writer.db);
    s->writer.db = NULL;
}

static int write_event(struct sqlite_store *s, const struct store_event *ev, struct error *e) {
    sqlite3_stmt *q = s->writer.stmt[WRITE_EVENT];
    sqlite3_bind_int64(q, 1, (int64_t)ev->seq);
    sqlite3_bind_int64(q, 2, ev->at_ms);
    sqlite3_bind_int64(q, 3, ev->type);
    sqlite3_bind_int64(q, 4, (int64_t)ev->job);
    sqlite3_bind_int64(q, 5, (int64_t)store_event_checksum(ev));
    sqlite3_bind_blob(q, 6, ev->data, (int)ev->len, SQLITE_STATIC);
    return store_sql_run(s->writer.db, q, e, "writing the journal");
}

// The row of a text, 0 when it is not there.
static int find_text(struct sqlite_store *s, const struct store_key *key, int64_t *id,
                     struct error *e) {
    sqlite3_stmt *q = s->writer.stmt[WRITE_TEXT_ID];
    sqlite3_bind_blob(q, 1, key->bytes, sizeof key->bytes, SQLITE_STATIC);
    int rc = sqlite3_step(q);
    *id = rc == SQLITE_ROW ? sqlite3_column_int64(q, 0) : 0;
    int r =
        rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : store_sql_error(s->writer.db, e, "looking for a text");
    sqlite3_reset(q);
    return r;
}

// A text is stored once, whoever uses it: its key is a hash of its bytes. 10,000 jobs of one script are one row here
// and 10,000 rows of owners, which say until when it is needed.
static int write_text(struct sqlite_store *s, const struct store_batch *b,
                      const struct batch_text *t, struct error *e) {
    struct writer *w = &s->writer;
    int64_t id = 0;
    int r = find_text(s, &t->key, &id, e);
    if (r == 0 && id == 0) {
        sqlite3_stmt *q = w->stmt[WRITE_TEXT];
        sqlite3_bind_blob(q, 1, t->key.bytes, sizeof t->key.bytes, SQLITE_STATIC);
        sqlite3_bind_blob(q, 2, batch_at(b, t->text), (int)t->text.len, SQLITE_STATIC);
        r = store_sql_run(w->db, q, e, "writing a text");
        id = sqlite3_last_insert_rowid(w->db);
    }
    if (r < 0)
        return r;
    sqlite3_stmt *q = w->stmt[WRITE_OWNER];
    sqlite3_bind_int64(q, 1, (int64_t)t->owner);
    sqlite3_bind_int64(q, 2, id);
    return store_sql_run(w->db, q, e, "writing a text's owner");
}

static int write_history(struct sqlite_store *s, const struct store_history *h, struct error *e) {
    sqlite3_stmt *q = s->writer.stmt[WRITE_HISTORY];
    sqlite3_bind_int64(q, 1, (int64_t)h->id);
    sqlite3_bind_int64(q, 2, (int64_t)h->array);
    sqlite3_bind_int64(q, 3, h->index);
    sqlite3_bind_int64(q, 4, h->state);
    sqlite3_bind_text(q, 5, h->user, -1, SQLITE_STATIC);
    sqlite3_bind_text(q, 6, h->project, -1, SQLITE_STATIC);
    sqlite3_bind_text(q, 7, h->name, -1, SQLITE_STATIC);
    sqlite3_bind_int64(q, 8, h->submit_ms);
    sqlite3_bind_int64(q, 9, h->start_ms);
    sqlite3_bind_int64(q, 10, h->end_ms);
    sqlite3_bind_text(q, 11, h->nodes, -1, SQLITE_STATIC);
    sqlite3_bind_blob(q, 12, h->data, (int)h->len, SQLITE_STATIC);
    return store_sql_run(s->writer.db, q, e, "writing the history");
}

static int write_blob(struct sqlite_store *s, const char *name, const void *data, size_t len,
                      struct error *e) {
    sqlite3_stmt *q = s->writer.stmt[WRITE_BLOB];
    sqlite3_bind_text(q, 1, name, -1, SQLITE_STATIC);
    sqlite3_bind_int64(q, 2, (int64_t)store_sql_checksum(strlen(name), data, len));
    sqlite3_bind_blob(q, 3, data, (int)len, SQLITE_STATIC);
    return store_sql_run(s->writer.db, q, e, "writing a named value");
}

static int write_blobs(struct sqlite_store *s, const struct store_batch *b, struct error *e) {
    int r = 0;
    for (uint32_t i = 0; i < b->blobs.len && r == 0; i++) {
        const struct batch_blob *blob = &b->blobs.at[i];
        const char *name = batch_at(b, blob->name);
        if (!blob->remove) {
            r = write_blob(s, name, batch_at(b, blob->data), blob->data.len, e);
            continue;
        }
        sqlite3_stmt *q = s->writer.stmt[WRITE_BLOB_DROP];
        sqlite3_bind_text(q, 1, name, -1, SQLITE_STATIC);
        r = store_sql_run(s->writer.db, q, e, "removing a named value");
    }
    return r;
}

// Both in the transaction of the level_set event: a program that may read the event may read the database, and the
// other way round. `readable_by` is what programs look at that know no levels.
static int write_level(struct sqlite_store *s, const struct store_batch *b, struct error *e) {
    sqlite3_stmt *q = s->writer.stmt[WRITE_LEVEL];
    sqlite3_bind_int64(q, 1, b->level);
    sqlite3_bind_int64(q, 2, b->level > 1 ? LEVEL_FORMAT : 1);
    int r = store_sql_run(s->writer.db, q, e, "writing the feature level");
    const char *release = batch_at(b, b->release);
    return r < 0 ? r : write_blob(s, SCHEMA_LEVEL_RELEASE, release, b->release.len, e);
}

static int first_int(struct sqlite_store *s, enum write_sql which, uint64_t arg, int64_t *out,
                     struct error *e) {
    sqlite3_stmt *q = s->writer.stmt[which];
    sqlite3_bind_int64(q, 1, (int64_t)arg);
    int rc = sqlite3_step(q);
    *out = rc == SQLITE_ROW ? sqlite3_column_int64(q, 0) : 0;
    int r = rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : store_sql_error(s->writer.db, e, "releasing texts");
    sqlite3_reset(q);
    return r;
}

// Drops the owner's released texts once no row of history stands for it.
int store_writer_drop_owner(struct sqlite_store *s, uint64_t owner, struct error *e) {
    struct writer *w = &s->writer;
    int64_t needed = 0, text = 0;
    int r = first_int(s, WRITE_NEEDED, owner, &needed, e);
    if (r < 0 || needed)
        return r;
    for (;;) {
        r = first_int(s, WRITE_OWNED, owner, &text, e);
        if (r < 0 || text == 0)
            return r;
        sqlite3_bind_int64(w->stmt[WRITE_DISOWN], 1, (int64_t)owner);
        sqlite3_bind_int64(w->stmt[WRITE_DISOWN], 2, text);
        r = store_sql_run(w->db, w->stmt[WRITE_DISOWN], e, "releasing texts");
        if (r < 0)
            return r;
        sqlite3_bind_int64(w->stmt[WRITE_TEXT_DROP], 1, text);
        r = store_sql_run(w->db, w->stmt[WRITE_TEXT_DROP], e, "releasing texts");
        if (r < 0)
            return r;
    }
}

// Nothing refers to the owner any more but perhaps history, which keeps showing the script of an ended job: then the
// texts go with its last row, when history is pruned.
static int write_release(struct sqlite_store *s, uint64_t owner, struct error *e) {
    sqlite3_stmt *q = s->writer.stmt[WRITE_RELEASE];
    sqlite3_bind_int64(q, 1, (int64_t)owner);
    int r = store_sql_run(s->writer.db, q, e, "releasing texts");
    if (r < 0 || sqlite3_changes(s->writer.db) == 0)
        return r;
    return store_writer_drop_owner(s, owner, e);
}

// Texts come before the releases of the same batch: the other way round a job that was submitted and ended in it
// would keep its texts for ever.
static int write_batch(struct sqlite_store *s, const struct store_batch *b, struct error *e) {
    int r = 0;
    for (uint32_t i = 0; i < b->events.len && r == 0; i++) {
        struct store_event ev = store_batch_event_view(b, &b->events.at[i]);
        r = write_event(s, &ev, e);
    }
    for (uint32_t i = 0; i < b->texts.len && r == 0; i++)
        r = write_text(s, b, &b->texts.at[i], e);
    for (uint32_t i = 0; i < b->history.len && r == 0; i++) {
        struct store_history row = store_batch_history_view(b, &b->history.at[i]);
        r = write_history(s, &row, e);
    }
    for (uint32_t i = 0; i < b->releases.len && r == 0; i++)
        r = write_release(s, b->releases.at[i], e);
    if (r == 0)
        r = write_blobs(s, b, e);
    if (r == 0 && b->level)
        r = write_level(s, b, e);
    return r;
}

// All batches or none. After some failures SQLite has rolled back by itself, after others the transaction is still
// open: hence the look at autocommit.
static int commit_batches(struct sqlite_store *s, const struct store_batch *list,
                          struct error *e) {
    struct writer *w = &s->writer;
    int r = store_sql_run(w->db, w->stmt[WRITE_BEGIN], e, "committing");
    for (const struct store_batch *b = list; b && r == 0; b = b->next)
        r = write_batch(s, b, e);
    if (r == 0)
        r = store_sql_run(w->db, w->stmt[WRITE_COMMIT], e, "committing");
    if (r < 0 && !sqlite3_get_autocommit(w->db))
        sqlite3_exec(w->db, "ROLLBACK", NULL, NULL, NULL);
    return r;
}

static void wake_owner(struct sqlite_store *s) {
    eventfd_write(s->event_fd, 1);
}

static void note_committed(struct sqlite_store *s, struct store_batch *list, int64_t took_us) {
    s->stats.commits++;
    s->stats.commit_us_total += (uint64_t)took_us;
    if ((uint64_t)took_us > s->stats.commit_us_max)
        s->stats.commit_us_max = (uint64_t)took_us;
    for (struct store_batch *b = list; b; b = b->next) {
        assert(b->ticket == s->committed_ticket + 1);
        s->committed_ticket = b->ticket;
        s->stats.records += b->events.len;
        s->stats.waiting_batches--;
        s->stats.waiting_bytes -= store_batch_bytes(b);
        if (b->events.len) {
            assert(b->events.at[0].seq == s->committed_seq + 1);
            s->committed_seq = b->events.at[b->events.len - 1].seq;
        }
    }
}

// A checkpoint copies the log into the database and would delay the next commit, so the other thread does it while
// commits go on. But the log begins anew only when all of it has been copied: what was committed during the copy, a
// few pages, is copied here, between two commits; and all of it when it has grown far too large.
static void checkpoint_if_due(struct sqlite_store *s) {
    struct writer *w = &s->writer;
    if (w->wal_pages < w->asked_pages)
        w->asked_pages = 0;  // it has begun anew
    bool due = w->wal_pages - w->asked_pages >= CHECKPOINT_PAGES;
    pthread_mutex_lock(&s->lock);
    s->log_pages = w->wal_pages;
    bool here = s->log_tail || (due && w->wal_pages >= CHECKPOINT_PAGES_MUST);
    s->log_tail = false;
    if (due && !here) {
        s->checkpoint_wanted = true;
        pthread_cond_signal(&s->care);
    }
    pthread_mutex_unlock(&s->lock);
    if (due)
        w->asked_pages = w->wal_pages;
    if (here)
        sqlite3_wal_checkpoint_v2(w->db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
}

// Called and returns with the lock held.
static void commit_some(struct sqlite_store *s) {
    struct store_batch *list = store_batches_take(&s->head, &s->tail, 0);
    pthread_mutex_unlock(&s->lock);
    struct error error = {0};
    int64_t before = clock_mono_us();
    int r = commit_batches(s, list, &error);
    // The reserve is given up for what is already under way: ends of running jobs must be recorded even on a full disk.
    if (r == -ENOSPC && store_space_release(s))
        r = commit_batches(s, list, &error);
    int64_t took = clock_mono_us() - before;
    pthread_mutex_lock(&s->lock);
    // A failed batch goes back to the head of the queue, in front of what came since: records are committed in order
    // or not at all.
    if (r < 0) {
        store_batches_put_back(&s->head, &s->tail, list);
        s->failed = s->failure_new = true;
        s->failure = error;
        s->stats.failures++;
        list = NULL;
    } else {
        note_committed(s, list, took);
    }
    uint64_t newest = s->committed_seq;
    pthread_cond_broadcast(&s->settled);
    pthread_mutex_unlock(&s->lock);
    wake_owner(s);
    if (r == 0)
        store_folder_note(s, newest);
    // The owner is awake by now and answers; freeing memory must not delay it.
    while (list) {
        struct store_batch *next = list->next;
        store_batch_free(list);
        list = next;
    }
    if (r == 0)
        checkpoint_if_due(s);
    pthread_mutex_lock(&s->lock);
}

// Called and returns with the lock held.
static void prune_some(struct sqlite_store *s) {
    int64_t now_ms = s->prune_ms;
    uint64_t oldest = s->oldest_snapshot;
    pthread_mutex_unlock(&s->lock);
    int more = store_prune_step(s, now_ms, oldest, NULL);
    if (more >= 0)
        checkpoint_if_due(s);
    pthread_mutex_lock(&s->lock);
    if (more <= 0)
        s->prune_ms = 0;  // done, or failing: the next store_prune tries again
}

// Called and returns with the lock held. The maintenance thread waits for it, and so keeps the task.
static void run_task(struct sqlite_store *s) {
    struct snapshot_task *t = s->task;
    pthread_mutex_unlock(&s->lock);
    t->code = store_snapshot_run(s, t, &t->error);
    if (t->code == 0)
        checkpoint_if_due(s);
    pthread_mutex_lock(&s->lock);
    t->done = true;
    pthread_cond_broadcast(&s->settled);
}

void *store_writer_main(void *store) {
    struct sqlite_store *s = store;
    bool committed = false;  // since the last step of a snapshot: they take turns
    pthread_mutex_lock(&s->lock);
    for (;;) {
        bool commit = s->head && !s->failed, task = s->task && !s->task->done;
        if (task && (committed || !commit)) {
            run_task(s);
            committed = false;
        } else if (commit) {
            commit_some(s);
            committed = true;
        } else if (s->stop)
            break;
        else if (s->prune_ms && !s->failed)
            prune_some(s);
        else
            pthread_cond_wait(&s->work, &s->lock);
    }
    s->writer_gone = true;
    pthread_cond_broadcast(&s->settled);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}
