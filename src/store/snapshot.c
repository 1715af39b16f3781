// Snapshots in the database. A snapshot is written as pieces (table snapshot_piece), each in a transaction of its own
// between commits, so that no acknowledgement waits for more than one piece. It counts from the moment its row in
// table snapshot is committed, which names length, checksum and number of pieces; pieces without such a row are
// removed. A crash at any point therefore leaves the snapshots before it as they were. The newest two are kept.
// The maintenance thread decides what is to be done; the writer's thread does it (store_snapshot_run).
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "schema.h"
#include "sql.h"
#include "sqlite_store.h"

enum {
    SNAPSHOT_PIECE_BYTES = 256 << 10,
    SNAPSHOT_DROP_PIECES = 4,   // removed in one transaction
    SNAPSHOT_FORMAT_ALONE = 4,  // the first format whose programs find snapshots in the database
};

// --- on the writer's thread ---

static int insert_piece(struct writer *w, const struct snapshot_task *t, struct error *e) {
    sqlite3_stmt *q = w->stmt[WRITE_SNAPSHOT_PIECE];
    sqlite3_bind_int64(q, 1, (int64_t)t->seq);
    sqlite3_bind_int64(q, 2, t->pieces);
    sqlite3_bind_blob(q, 3, t->data, (int)t->len, SQLITE_STATIC);
    return store_sql_run(w->db, q, e, "writing a snapshot");
}

// The last step: from its commit on the snapshot is there. Once the upgrade is finished no older program can need
// the files of earlier releases, and none must open a database whose snapshots it would not find.
static int publish(struct writer *w, struct snapshot_task *t, struct error *e) {
    sqlite3_stmt *q = w->stmt[WRITE_SNAPSHOT];
    int64_t level = 0;
    sqlite3_bind_int64(q, 1, (int64_t)t->seq);
    sqlite3_bind_int64(q, 2, (int64_t)t->len);
    sqlite3_bind_int64(q, 3, (int64_t)t->sum);
    sqlite3_bind_int64(q, 4, t->pieces);
    int r = store_sql_run(w->db, q, e, "writing a snapshot");
    if (r == 0) {
        sqlite3_bind_int64(w->stmt[WRITE_SNAPSHOT_PRUNE], 1, STORE_SNAPSHOTS_KEPT);
        r = store_sql_run(w->db, w->stmt[WRITE_SNAPSHOT_PRUNE], e, "writing a snapshot");
    }
    if (r == 0)
        r = store_sql_int(w->db, SCHEMA_READ_LEVEL, 0, &level, e);
    t->finished = level > 1;
    if (r < 0 || !t->finished)
        return r;
    sqlite3_bind_int64(w->stmt[WRITE_READABLE_BY], 1, SNAPSHOT_FORMAT_ALONE);
    return store_sql_run(w->db, w->stmt[WRITE_READABLE_BY], e, "writing a snapshot");
}

static int drop_pieces(struct writer *w, struct snapshot_task *t, struct error *e) {
    sqlite3_bind_int64(w->stmt[WRITE_SNAPSHOT_DROP], 1, SNAPSHOT_DROP_PIECES);
    int r = store_sql_run(w->db, w->stmt[WRITE_SNAPSHOT_DROP], e, "removing an old snapshot");
    t->pieces = r < 0 ? 0 : (uint32_t)sqlite3_changes(w->db);
    return r;
}

int store_snapshot_run(struct sqlite_store *s, struct snapshot_task *t, struct error *e) {
    struct writer *w = &s->writer;
    int r = store_sql_run(w->db, w->stmt[WRITE_BEGIN], e, "writing a snapshot");
    if (r == 0)
        r = t->what == SNAPSHOT_PIECE     ? insert_piece(w, t, e)
            : t->what == SNAPSHOT_PUBLISH ? publish(w, t, e)
                                          : drop_pieces(w, t, e);
    if (r == 0)
        r = store_sql_run(w->db, w->stmt[WRITE_COMMIT], e, "writing a snapshot");
    if (r < 0 && !sqlite3_get_autocommit(w->db))
        sqlite3_exec(w->db, "ROLLBACK", NULL, NULL, NULL);
    return r;
}

// --- on the maintenance thread ---

// Has the writer do it, and waits. Called without the lock.
static int have_done(struct sqlite_store *s, struct snapshot_task *t, struct error *e) {
    pthread_mutex_lock(&s->lock);
    s->task = t;
    pthread_cond_signal(&s->work);
    while (!t->done && !s->writer_gone)
        pthread_cond_wait(&s->settled, &s->lock);
    s->task = NULL;
    if (s->checkpoint_wanted)
        store_move_log(s);
    pthread_mutex_unlock(&s->lock);
    if (!t->done)
        return error_set(e, ECANCELED, "the store was closed before the snapshot was written");
    if (t->code < 0 && e)
        *e = t->error;
    return t->code;
}

int store_snapshot_write(struct sqlite_store *s, uint64_t seq, const void *data, size_t len, uint32_t *pieces,
                         struct error *e) {
    int r = 0;
    *pieces = 0;
    for (size_t at = 0; at < len && r == 0; at += SNAPSHOT_PIECE_BYTES) {
        struct snapshot_task t = {.what = SNAPSHOT_PIECE,
                                  .seq = seq,
                                  .pieces = (*pieces)++,
                                  .data = (const char *)data + at,
                                  .len = len - at < SNAPSHOT_PIECE_BYTES ? len - at : SNAPSHOT_PIECE_BYTES};
        r = have_done(s, &t, e);
    }
    return r;
}

int store_snapshot_publish(struct sqlite_store *s, uint64_t seq, const void *data, size_t len,
                           uint32_t pieces, struct error *e) {
    struct snapshot_task t = {.what = SNAPSHOT_PUBLISH,
                              .seq = seq,
                              .len = len,
                              .sum = store_sql_checksum(seq, data, len),
                              .pieces = pieces};
    int r = have_done(s, &t, e);
    if (r == 0 && t.finished)
        store_snapshot_file_remove_all(s);
    return r;
}

void store_snapshot_discard(struct sqlite_store *s) {
    struct snapshot_task t;
    do
        t = (struct snapshot_task){.what = SNAPSHOT_DROP};
    while (have_done(s, &t, NULL) == 0 && t.pieces);
}

// --- reading ---

int store_snapshot_list(sqlite3 *db, const struct sqlite_store *s, struct snapshot_ref *out, int max,
                        struct error *e) {
    uint64_t files[STORE_SNAPSHOTS_KEPT];
    sqlite3_stmt *q = NULL;
    int file_count = store_snapshot_file_list(s, files, STORE_SNAPSHOTS_KEPT), file = 0, count = 0;
    int r = store_sql_prepare(db, "SELECT seq, len, sum, pieces FROM snapshot ORDER BY seq DESC", &q, e);
    if (r < 0)
        return r;
    int rc = sqlite3_step(q);
    while (count < max && (rc == SQLITE_ROW || file < file_count)) {
        uint64_t seq = rc == SQLITE_ROW ? (uint64_t)sqlite3_column_int64(q, 0) : 0;
        if (file < file_count && files[file] > seq) {
            out[count++] = (struct snapshot_ref){.seq = files[file++], .in_file = true};
            continue;
        }
        if (file < file_count && files[file] == seq)
            file++;
        out[count++] = (struct snapshot_ref){.seq = seq,
                                             .len = (uint64_t)sqlite3_column_int64(q, 1),
                                             .sum = (uint64_t)sqlite3_column_int64(q, 2),
                                             .pieces = (uint64_t)sqlite3_column_int64(q, 3)};
        rc = sqlite3_step(q);
    }
    r = rc == SQLITE_ROW || rc == SQLITE_DONE ? count : store_sql_error(db, e, "looking for snapshots");
    sqlite3_finalize(q);
    return r;
}

uint64_t store_snapshot_oldest_needed(sqlite3 *db, const struct sqlite_store *s) {
    uint64_t files[STORE_SNAPSHOTS_KEPT];
    int64_t level = 0, kept = 0, oldest = 0;
    int count = store_snapshot_file_list(s, files, STORE_SNAPSHOTS_KEPT);
    if (store_sql_int(db, SCHEMA_READ_LEVEL, 0, &level, NULL) < 0 ||
        store_sql_int(db, "SELECT count(*) FROM snapshot", 0, &kept, NULL) < 0 ||
        store_sql_int(db, "SELECT min(seq) FROM snapshot", 0, &oldest, NULL) < 0)
        return 0;
    // The release before finds only the files: what comes after them stays until the upgrade is finished.
    if (level <= 1)
        return count == STORE_SNAPSHOTS_KEPT ? files[count - 1] : 0;
    return kept >= STORE_SNAPSHOTS_KEPT ? (uint64_t)oldest : 0;
}

static int read_pieces(sqlite3 *db, const struct snapshot_ref *ref, char *out, struct error *e) {
    sqlite3_stmt *q = NULL;
    uint64_t pieces = 0, at = 0;
    int rc, r = store_sql_prepare(db, "SELECT n, data FROM snapshot_piece WHERE seq = ? ORDER BY n", &q, e);
    if (r < 0)
        return r;
    sqlite3_bind_int64(q, 1, (int64_t)ref->seq);
    while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
        const void *data = sqlite3_column_blob(q, 1);
        uint64_t len = (uint64_t)sqlite3_column_bytes(q, 1);
        if ((uint64_t)sqlite3_column_int64(q, 0) != pieces || len > ref->len - at)
            break;
        if (len)
            memcpy(out + at, data, len);
        at += len;
        pieces++;
    }
    if (rc == SQLITE_ROW || (rc == SQLITE_DONE && (pieces != ref->pieces || at != ref->len)))
        r = -EBADMSG;
    else if (rc != SQLITE_DONE)
        r = store_sql_error(db, e, "reading a snapshot");
    sqlite3_finalize(q);
    return r;
}

int store_snapshot_read(sqlite3 *db, const struct sqlite_store *s, const struct snapshot_ref *ref,
                        void **data, size_t *len, struct error *e) {
    if (ref->in_file)
        return store_snapshot_file_read(s, ref->seq, data, len, e);
    cleanup_free char *bytes = NULL;
    int r = ref->len > STORE_SNAPSHOT_BYTES_MAX ? -EBADMSG : 0;
    if (r == 0) {
        bytes = xmalloc(ref->len + 1);
        r = read_pieces(db, ref, bytes, e);
    }
    if (r == 0 && store_sql_checksum(ref->seq, bytes, ref->len) != ref->sum)
        r = -EBADMSG;
    if (r == -EBADMSG)
        error_set(e, EBADMSG, "the snapshot at record %" PRIu64 " in %s is damaged", ref->seq, s->file);
    if (r < 0)
        return r;
    *data = TAKE_PTR(bytes);
    *len = ref->len;
    return 0;
}
