// The SQLite store's parts and who owns them. Three threads: the owner's (submit, poll, reads on
// `reader`), the writer (commits on `writer.db`), maintenance (snapshots, checkpoints, the reserve).
// What they share is under `lock`. Internal.
#pragma once
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>

#include "store/batch.h"
#include "ops.h"

#define STORE_DATABASE_NAME "acequia.db"

enum write_sql {
    WRITE_BEGIN,
    WRITE_COMMIT,
    WRITE_EVENT,
    WRITE_TEXT,
    WRITE_TEXT_ID,
    WRITE_OWNER,
    WRITE_RELEASE,
    WRITE_HISTORY,
    WRITE_BLOB,
    WRITE_BLOB_DROP,
    WRITE_LEVEL,
    WRITE_NEEDED,
    WRITE_OWNED,
    WRITE_DISOWN,
    WRITE_TEXT_DROP,
    WRITE_SNAPSHOT,
    WRITE_SNAPSHOT_PIECE,
    WRITE_SNAPSHOT_PRUNE,
    WRITE_SNAPSHOT_DROP,
    WRITE_READABLE_BY,
    WRITE_PRUNE_JOURNAL,
    WRITE_PRUNE_IDEM,
    WRITE_OLD_HISTORY,
    WRITE_DROP_HISTORY,
    WRITE_COUNT
};

enum read_sql { READ_JOURNAL, READ_JOB_EVENTS, READ_TEXT, READ_BLOB, READ_COUNT };

struct writer {
    sqlite3 *db;
    sqlite3_stmt *stmt[WRITE_COUNT];
    int wal_pages;    // in the log,
    int asked_pages;  // and when a checkpoint was last asked for
};

// A snapshot that the owner has handed over: bytes in memory, or part of a file.
struct snapshot_work {
    bool wanted, done;
    uint64_t seq;
    void *data;
    size_t len;
    int fd;     // -1: the bytes are in `data`
    size_t at;  // in the file
    int code;
    struct error error;
};

// A step of it, which the maintenance thread has the writer's thread do.
enum snapshot_step { SNAPSHOT_PIECE, SNAPSHOT_PUBLISH, SNAPSHOT_DROP };
struct snapshot_task {
    enum snapshot_step what;
    uint64_t seq, sum;
    uint32_t pieces;  // number of this piece; of all; removed
    const void *data;
    size_t len;
    bool finished;  // out: the upgrade is
    bool done;
    int code;
    struct error error;
};

struct snapshot_ref {
    uint64_t seq, len, sum, pieces;
    bool in_file;  // of an earlier release
};

struct sqlite_store {
    struct store base;
    char *folder, *file;
    int folder_fd, lock_fd, event_fd;
    uint64_t reserve_bytes, low_bytes;
    struct store_retention retention;
    const char *vfs;
    bool alone;      // a backup: no log or journal belongs to it
    uint32_t level;  // newest that the owner can read
    bool had_database;  // a controller has kept its state in this folder,
    uint64_t had_seq;   // up to this record; 0: not known

    // Owner's thread.
    sqlite3 *reader;
    sqlite3_stmt *read[READ_COUNT];
    uint64_t told_ticket;

    struct writer writer;  // writer's thread
    sqlite3 *maintenance_db;    // maintenance thread
    bool writer_runs, maintenance_runs;
    pthread_t writer_thread, maintenance_thread;

    pthread_mutex_t lock;
    pthread_cond_t work;    // for the writer
    pthread_cond_t care;    // for the maintenance thread
    pthread_cond_t settled; // a commit or a failure: for flush and the maintenance thread
    struct store_batch *head, **tail;
    uint64_t committed_ticket, committed_seq;
    uint64_t oldest_snapshot;  // 0 while fewer than STORE_SNAPSHOTS_KEPT are there
    struct snapshot_task *task;  // for the writer; NULL: none
    bool stop, writer_gone, maintenance_stop, failed, failure_new, reserve_wanted, checkpoint_wanted;
    int log_pages;  // in the log
    bool log_tail;  // all but a few were copied: the writer copies those
    struct error failure;
    int64_t prune_ms;  // now, while pruning goes on; 0 otherwise
    struct snapshot_work snapshot;
    struct store_stats stats;
    _Atomic bool reserve_released;
};

static inline struct sqlite_store *sqlite_store_of(struct store *s) {
    return (struct sqlite_store *)s;
}

// folder.c
int store_folder_open(struct sqlite_store *s, struct error *e);  // and locks it
int store_folder_check(struct sqlite_store *s, const char *const *companions, struct error *e);
int store_folder_check_journal(struct sqlite_store *s, struct error *e);  // after the database was opened
void store_folder_make_private(struct sqlite_store *s);
void store_folder_note(struct sqlite_store *s, uint64_t seq);  // the newest committed record

// writer.c
int store_writer_open(struct sqlite_store *s, struct error *e);
void store_writer_close(struct sqlite_store *s);
void *store_writer_main(void *store);
int store_writer_drop_owner(struct sqlite_store *s, uint64_t owner, struct error *e);

// prune.c: one small step in its own transaction; 1 when there may be more, 0 when done.
int store_prune_step(struct sqlite_store *s, int64_t now_ms, uint64_t oldest_snapshot, struct error *e);

// maintenance.c
void *store_maintenance_main(void *store);
void store_move_log(struct sqlite_store *s);  // into the database; called and returns with the lock held

// snapshot.c
int store_snapshot_run(struct sqlite_store *s, struct snapshot_task *t,
                       struct error *e);  // on the writer's thread
// On the maintenance thread, without the lock.
int store_snapshot_write(struct sqlite_store *s, uint64_t seq, const void *data, size_t len, uint32_t *pieces,
                         struct error *e);
// Makes a written snapshot the newest one; those no longer kept do not count any more.
int store_snapshot_publish(struct sqlite_store *s, uint64_t seq, const void *data, size_t len,
                           uint32_t pieces, struct error *e);
void store_snapshot_discard(struct sqlite_store *s);  // pieces of unfinished and of old ones
int store_snapshot_list(sqlite3 *db, const struct sqlite_store *s, struct snapshot_ref *out, int max,
                        struct error *e);  // newest first; count
int store_snapshot_read(sqlite3 *db, const struct sqlite_store *s, const struct snapshot_ref *ref,
                        void **data, size_t *len, struct error *e);
// Journal records before this one may be removed; 0: none.
uint64_t store_snapshot_oldest_needed(sqlite3 *db, const struct sqlite_store *s);

// snapshot_file.c
int store_snapshot_file_list(const struct sqlite_store *s, uint64_t *seqs, int max);  // newest first; count
int store_snapshot_file_read(const struct sqlite_store *s, uint64_t seq, void **data, size_t *len,
                             struct error *e);
void store_snapshot_file_remove_all(struct sqlite_store *s);

// space.c
int store_space_reserve(struct sqlite_store *s);
bool store_space_release(struct sqlite_store *s);  // true when that freed something
enum store_space store_space_look(struct sqlite_store *s, uint64_t *free_bytes);

// reader.c
int store_reader_open(struct sqlite_store *s, struct error *e);
void store_reader_close(struct sqlite_store *s);
int store_reader_load(struct store *st, const struct store_loader *loader, uint64_t *last_seq,
                      struct error *e);
int store_reader_load_all(struct sqlite_store *s, const struct store_loader *loader, uint64_t *last_seq,
                          struct error *e);
int store_reader_text(struct store *st, const struct store_key *key, void **out, size_t *len,
                      struct error *e);
int store_reader_blob(struct store *st, const char *name, void **out, size_t *len, struct error *e);
int store_reader_blobs(struct store *st, const char *prefix, store_blob_fn fn, void *ctx, struct error *e);
int store_reader_journal(struct store *st, store_event_fn fn, void *ctx, struct error *e);
int store_reader_events(struct store *st, uint64_t job, uint64_t after, uint32_t limit, store_event_fn fn,
                        void *ctx, struct error *e);
int store_reader_old_keys(struct store *st, int64_t now_ms,
                          int (*fn)(void *ctx, const struct store_old_key *k), void *ctx, struct error *e);
int store_reader_check(struct store *st, struct error *e);
// seal.c: the checksum at the end of a backup. A file without one, of an earlier release, passes the check.
int store_seal(const char *file, struct error *e);
int store_seal_check(const char *file, struct error *e);
int store_seal_remove(const char *file, struct error *e);
uint64_t store_event_checksum(const struct store_event *ev);

// history.c
int store_reader_history(struct store *st, const struct store_query *q, store_history_fn fn, void *ctx,
                         struct error *e);
