// The PostgreSQL store's parts and who owns them. Two threads: the owner's (submit, poll, reads on `reader`) and the
// writer, which commits, writes snapshots, prunes, and holds or watches the lease, all on `writer.conn`. What they
// share is under `lock`. Internal.
#pragma once
#include <pthread.h>

#include "ops.h"
#include "pg.h"
#include "store/batch.h"

enum pg_write_sql {
    PGW_EVENT,
    PGW_TEXT,
    PGW_OWNER,
    PGW_RELEASE,
    PGW_DROP_OWNER,
    PGW_HISTORY,
    PGW_BLOB,
    PGW_BLOB_DROP,
    PGW_LEVEL,
    PGW_FENCE,
    PGW_SNAPSHOT,
    PGW_SNAPSHOT_PIECE,
    PGW_SNAPSHOT_PRUNE,
    PGW_SNAPSHOT_DROP,
    PGW_PRUNE_JOURNAL,
    PGW_OLD_HISTORY,
    PGW_DROP_HISTORY,
    PGW_LEASE,
    PGW_CLAIM,
    PGW_END_SESSION,
    PGW_RAISE,
    PGW_GIVE_UP,
    PGW_COUNT
};

enum pg_read_sql {
    PGR_JOURNAL,
    PGR_JOB_EVENTS,
    PGR_TEXT,
    PGR_BLOB,
    PGR_BLOBS,
    PGR_SNAPSHOTS,
    PGR_PIECES,
    PGR_COUNT
};

struct pg_writer {
    struct pg_conn conn;
    uint64_t commits;         // transactions of this term that are known to be committed
    bool unknown;             // the answer to the next one was lost,
    uint64_t unknown_ticket;  // which held batches up to this one; 0: none
    uint64_t done_ticket;     // it was committed, and they are still in the queue; 0: none
    int64_t tried_ms;         // when a connection was last tried
};

// A snapshot that the owner has handed over: bytes in memory, or part of a file.
struct pg_snapshot {
    bool done;
    uint64_t seq;  // 0: none
    void *data;    // owned, or mapped when fd >= 0
    size_t len, at, map_len, written;
    int fd;
    int code;
    struct error error;
};

struct pg_store {
    struct store base;
    char *place, *holder, *address;
    int event_fd;
    uint32_t lease_ms, level;
    struct store_retention retention;

    // Owner's thread.
    struct pg_conn reader;
    uint64_t told_ticket;

    struct pg_writer writer;  // writer's thread
    bool writer_runs;
    pthread_t writer_thread;

    pthread_mutex_t lock;
    pthread_cond_t work;     // for the writer
    pthread_cond_t settled;  // a commit or a failure: for flush
    struct store_batch *head, **tail;
    uint64_t committed_ticket, committed_seq;
    uint64_t oldest_snapshot;  // 0 while fewer than STORE_SNAPSHOTS_KEPT are there
    bool stop, failed, failure_new, fenced, claims, give_up;
    struct error failure;
    int64_t prune_ms;  // now, while pruning goes on; 0 otherwise
    bool discard;      // pieces of unfinished and of old snapshots are to be removed
    struct pg_snapshot snapshot;
    bool reader_wanted;  // the owner's connection broke
    struct pg_conn fresh_reader;
    struct store_lease lease;  // as last read, or held
    int64_t lease_read_ms;     // when that was,
    int64_t lease_asked_ms;    // and when it was last tried
    uint64_t raise_to;         // 0: nothing to raise
    struct store_stats stats;
};

static inline struct pg_store *pg_store_of(struct store *s) {
    return (struct pg_store *)s;
}

int64_t pg_lease_clock_ms(void);  // goes on while the machine sleeps

// pg_schema.c
extern const char *const pg_write_statements[PGW_COUNT], *const pg_read_statements[PGR_COUNT];
int pg_schema_prepare(const char *place, uint32_t level, const char *const *states, struct error *e);

// pg_writer.c
void *pg_writer_main(void *store);
void pg_writer_done(struct pg_store *s);

// pg_lease.c, on the writer's thread, called and returning with the lock held
bool pg_lease_due(struct pg_store *s, int64_t *wait_ms);  // something is to be done; else when
void pg_lease_step(struct pg_store *s);
void pg_lease_give_up(struct pg_store *s);  // so that another need not wait for its end
int pg_lease_others(struct store *s);       // by the reader

// pg_writer.c: connected, and nothing is unknown any more. Without the lock.
int pg_writer_ready(struct pg_store *s, struct error *e);
// One transaction that counts only while the lease is held.
int pg_writer_fenced(struct pg_store *s, int (*add)(struct pg_store *s, const void *what, struct error *e),
                     const void *what, const char *doing, uint64_t *rows, struct error *e);
// The lease is another's: nothing is written any more. With the lock held.
void pg_writer_fence(struct pg_store *s, const struct error *e);

// pg_snapshot.c: one step of writing the snapshot; the lock as above.
void pg_snapshot_step(struct pg_store *s);
void pg_snapshot_discard_step(struct pg_store *s);
uint64_t pg_snapshot_oldest_needed(struct pg_conn *c);

// pg_reader.c
int pg_reader_open(struct pg_conn *c, const char *place, struct error *e);
int pg_reader_load(struct store *st, const struct store_loader *loader, uint64_t *last_seq, struct error *e);
int pg_reader_text(struct store *st, const struct store_key *key, void **out, size_t *len, struct error *e);
int pg_reader_blob(struct store *st, const char *name, void **out, size_t *len, struct error *e);
int pg_reader_blobs(struct store *st, const char *prefix, store_blob_fn fn, void *ctx, struct error *e);
int pg_reader_events(struct store *st, uint64_t job, uint64_t after, uint32_t limit, store_event_fn fn,
                     void *ctx, struct error *e);
int pg_reader_journal(struct store *st, store_event_fn fn, void *ctx, struct error *e);
int pg_reader_check(struct store *st, struct error *e);
int pg_reader_each_event(struct pg_conn *c, uint64_t job, uint64_t after, uint32_t limit, store_event_fn fn,
                         void *ctx, struct error *e);
struct pg_conn *pg_reader_conn(struct pg_store *s);  // the owner's, exchanged when it broke

// pg_history.c
int pg_reader_history(struct store *st, const struct store_query *q, store_history_fn fn, void *ctx,
                      struct error *e);
