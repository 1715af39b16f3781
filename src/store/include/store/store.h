// What the controller keeps: an append-only journal of events, texts (scripts, environments),
// snapshots and the history of finished jobs. Batches are committed in the order
// they were handed over, by another thread, many at a time; a commit is reported through store_fd
// and store_poll. Reads never wait for the writer. Three implementations stand behind this header:
// SQLite in a state folder and PostgreSQL (store_open), and a simulated disk (store/sim_store.h).
// Everything here is called from one thread, the owner's.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum {
    STORE_FORMAT = 4,                  // version of the files written by this program
    STORE_EVENT_BYTES_MAX = 16 << 20,  // one journal record
    STORE_TEXT_BYTES_MAX = 64 << 20,   // one script or environment
    STORE_BLOB_NAME_MAX = 192,
    STORE_BLOB_BYTES_MAX = 1 << 20,
    STORE_SNAPSHOTS_KEPT = 2,
    STORE_SNAPSHOT_BYTES_MAX = INT32_MAX,
};

struct store;
struct store_batch;

// --- opening ---

// Called from store_poll only.
struct store_watch {
    void *ctx;
    // Everything up to and including batch `ticket` is on disk; `seq` is the newest journal record.
    void (*committed)(void *ctx, uint64_t ticket, uint64_t seq);
    // The oldest waiting batch could not be committed. It and all behind it are kept, in order,
    // until store_retry. The state on disk is that of the last committed ticket.
    // ESTALE: another owner leads now, and nothing of this one will be committed any more.
    void (*failed)(void *ctx, const struct error *e);
    // `e` is NULL when the snapshot is on disk. A failed one changes nothing but the restart time.
    void (*snapshot_done)(void *ctx, uint64_t seq, const struct error *e);
};

// Zero means without limit. Journal records newer than the oldest kept snapshot are never removed.
struct store_retention {
    int64_t journal_ms;   // age of journal records
    int64_t history_ms;   // age, by their end, of finished jobs
    uint64_t file_bytes;  // the oldest journal records, then the oldest finished jobs, go while the
                          // database holds more than this
};

struct store_config {
    const char *path;     // the state folder, made if it is missing; or postgresql://…: a database
    const char *address;  // of its owner, for others who share the database; NULL: none
    const char *const
        *states;          // words of the states of finished jobs, for views of a database; NULL: numbers
    uint32_t lease_ms;    // for how long a leader leads that does not say a word; 0: the usual time
    struct store_watch watch;
    uint64_t reserve_bytes;  // kept aside for the ends of running jobs when the disk is full
    uint64_t low_bytes;      // less free space than this is reported as low
    struct store_retention retention;
    const char *const *companions;  // files that an owner keeps beside the store, NULL-terminated: where one of
                             // them or a snapshot is, a missing database is an error and not a new store
    uint32_t level;          // newest feature level of journals that the caller can read; 0: any
    const char *vfs;         // SQLite VFS, NULL for the usual one (tests put faults in here)
};

// -EPROTONOSUPPORT: the journal is of a newer level; the error names the release it needs.
int store_open(const struct store_config *config, struct store **out, struct error *e);
// Commits what is waiting (unless commits fail), then releases the folder. Accepts NULL.
struct store *store_close(struct store *s);

// --- writing ---

struct store_event {
    uint64_t seq;    // contiguous from 1, assigned by the caller
    int64_t at_ms;
    uint32_t type;
    uint64_t job;    // 0: about no job
    const void *data;
    size_t len;
};

struct store_key {
    uint8_t bytes[16];
};

struct store_history {
    uint64_t id, array;  // array: 0 when not part of one
    uint32_t index, state;
    const char *user, *project, *name, *nodes;
    int64_t submit_ms, start_ms, end_ms;  // start 0: never started
    uint64_t cpus, gpu_milli;             // for views of a database only: they are not read back
    const void *data;
    size_t len;
};

static inline int64_t store_history_began_ms(const struct store_history *row) {
    return row->start_ms ? row->start_ms : row->submit_ms;
}

struct store_batch *store_batch_new(void);
struct store_batch *store_batch_free(struct store_batch *b);  // accepts NULL
bool store_batch_empty(const struct store_batch *b);
size_t store_batch_bytes(const struct store_batch *b);
// All of these copy what they are given.
void store_batch_event(struct store_batch *b, const struct store_event *event);
// Keeps `text` for as long as `owner` (a job or array id) lives or is in history; the same bytes
// are stored once however many own them.
void store_batch_text(struct store_batch *b, uint64_t owner, const struct store_key *key,
                      const void *text, size_t len);
// No live job needs the owner's texts any more; history rows of that id or array still may.
void store_batch_release(struct store_batch *b, uint64_t owner);
void store_batch_history(struct store_batch *b, const struct store_history *row);

// A small named value (keys, certificates); replaces what had the name. `data` NULL: removes it.
void store_batch_blob(struct store_batch *b, const char *name, const void *data, size_t len);
// From this batch on the journal has this feature level: programs that know only lower ones refuse it
// and name `release`. Never lowered.
void store_batch_level(struct store_batch *b, uint32_t level, const char *release);

// Takes the batch. Returns its ticket: 1, 2, 3, …
uint64_t store_submit(struct store *s, struct store_batch *b);
int store_fd(const struct store *s);   // readable when store_poll has something to say
void store_poll(struct store *s);      // never blocks
void store_retry(struct store *s);     // after `failed`; harmless otherwise
// Waits until everything handed over is committed or has failed, then polls. For start and stop.
void store_flush(struct store *s);
// Copies `data`: the state after journal record `seq`. It becomes visible once that record is
// committed. -EBUSY while another is being written.
int store_snapshot(struct store *s, uint64_t seq, const void *data, size_t len);
// The same for bytes of a file, from `at` on, which the caller does not change any more; they are not read on
// this thread. On success the descriptor belongs to the store.
int store_snapshot_file(struct store *s, uint64_t seq, int fd, size_t at, size_t len);
// Removes what retention allows, in small steps between commits.
void store_prune(struct store *s, int64_t now_ms);

enum store_space {
    STORE_SPACE_OK,
    STORE_SPACE_LOW,       // refuse new submits
    STORE_SPACE_CRITICAL,  // the reserve is in use: record only what already runs
    STORE_SPACE_GONE,      // somebody removed the database: what is written now is lost
};
enum store_space store_space(struct store *s);

struct store_stats {
    uint64_t commits, records, failures, committed_seq, committed_ticket;
    uint64_t commit_us_total, commit_us_max;
    uint64_t waiting_batches, waiting_bytes, file_bytes, free_bytes;
};
void store_stats(struct store *s, struct store_stats *out);

// --- leading: several owners may share a database, one at a time writes ---

enum { STORE_ADDRESS_MAX = 256 };
struct store_lease {
    bool known;                       // false: it was not read yet
    bool mine;                        // this owner leads
    uint64_t term;                    // grows with every leader; 0: there is only one owner, for ever
    int64_t left_ms;                  // until it ends; mine: until another may have it
    char address[STORE_ADDRESS_MAX];  // of the leader
    char problem[ERROR_TEXT_MAX];     // why the database does not answer; "": it does
};
// Does not wait for anything. store_fd becomes readable when an owner that does not lead has learnt something.
void store_lease(struct store *s, struct store_lease *out);
void store_claim(struct store *s);    // from now on takes the lease when nobody has it
void store_give_up(struct store *s);  // the lease ends at once
// How many others are connected and could take the lease then; -1: not known. Reads.
int store_others(struct store *s);
// The term becomes at least this: somebody has heard of a leader that this database does not know.
void store_raise_term(struct store *s, uint64_t term);
// What was committed by the leader since the last call, or since store_load. Call it also after the lease was taken,
// before submitting. -ESTALE: the database was replaced by another copy; what was read from it counts for nothing.
struct store_loader;
int store_follow(struct store *s, const struct store_loader *loader, uint64_t *last_seq, struct error *e);

// --- reading ---

void store_key_of(const void *text, size_t len, struct store_key *out);

// Called with the newest readable snapshot, if there is one, then with each journal record after
// it, in order. A snapshot callback that returns a negative errno is called again with the older
// snapshot; any other negative return ends the loading with that error.
struct store_loader {
    void *ctx;
    int (*snapshot)(void *ctx, uint64_t seq, const void *data, size_t len);
    int (*event)(void *ctx, const struct store_event *event);
};
// `last_seq` (may be NULL) is the newest record, 0 for an empty store. Call before submitting.
int store_load(struct store *s, const struct store_loader *loader, uint64_t *last_seq,
               struct error *e);

// The same for another process than the owner's, while that one goes on: what is committed when it is called.
// Takes no lock and changes nothing.
int store_load_copy(const char *path, const struct store_loader *loader, uint64_t *last_seq, struct error *e);

typedef int (*store_event_fn)(void *ctx, const struct store_event *event);
// The records after `after`, likewise for another process.
int store_journal_copy(const char *path, uint64_t after, store_event_fn fn, void *ctx, struct error *e);

// Row callbacks return 0 to go on, a positive number to stop, a negative errno to fail. What they
// are given lives until they return.
typedef int (*store_history_fn)(void *ctx, const struct store_history *row);

// The bytes of a text; the caller frees. -ENOENT when there is none.
int store_text(struct store *s, const struct store_key *key, void **out, size_t *len,
               struct error *e);
// The bytes of a named value that is committed; the caller frees. -ENOENT when there is none.
int store_blob(struct store *s, const char *name, void **out, size_t *len, struct error *e);
// All committed named values whose name begins with `prefix`, in order of name; `data` lives until the callback
// returns. One that is damaged is left out and makes the result -EBADMSG.
typedef int (*store_blob_fn)(void *ctx, const char *name, const void *data, size_t len);
int store_blobs(struct store *s, const char *prefix, store_blob_fn fn, void *ctx, struct error *e);
// Events of one job (0: all records), in order, with a seq greater than `after`; limit 0: all.
int store_events(struct store *s, uint64_t job, uint64_t after, uint32_t limit, store_event_fn fn,
                 void *ctx, struct error *e);
// All records, in order, through a connection of its own: the one function here that another thread than
// the owner's may call, while the store is open.
int store_journal(struct store *s, store_event_fn fn, void *ctx, struct error *e);

// STORE_ANY: in whatever order is quickest for the question, always the same for the same question.
enum store_order { STORE_BY_END, STORE_BY_ID, STORE_ANY };

// Unset fields (0, NULL) do not filter.
struct store_query {
    uint64_t id, array;
    bool has_index;                            // only this element of the array
    uint32_t index;
    const char *user, *project, *name;
    uint32_t state_mask;                       // bit n: state n
    int64_t ended_from_ms, ended_before_ms;    // from: included, before: not
    int64_t submitted_from_ms, submitted_before_ms;
    int64_t began_before_ms;                   // its start, or its submit when it never started
    enum store_order order;
    bool descending;                           // not with STORE_ANY
    bool resume;                               // go on after this row of an earlier answer
    int64_t after_began_ms, after_end_ms;      // the former for STORE_ANY only
    uint64_t after_id;
    uint32_t limit;                            // 0: all
};
int store_history(struct store *s, const struct store_query *q, store_history_fn fn, void *ctx,
                  struct error *e);
// Idempotency keys that the previous release kept here and that have not expired, those that expire last
// first. Nothing writes them any more: keys are part of the core's state.
struct store_old_key {
    const char *user, *key;
    uint64_t job;
    int64_t expires_ms;
};
int store_old_keys(struct store *s, int64_t now_ms, int (*fn)(void *ctx, const struct store_old_key *k), void *ctx,
                   struct error *e);
// Reads everything and compares checksums; slow.
int store_check(struct store *s, struct error *e);

// --- backups: for another process than the owner's ---

// What a database holds.
struct store_contents {
    uint64_t first_seq, last_seq;  // of the journal; 0: it is empty
    int64_t last_ms;               // time of the newest record
    uint64_t finished;             // jobs in history
    uint64_t bytes;
};
struct store_backup_hooks {
    void *ctx;
    void (*progress)(void *ctx, uint64_t done, uint64_t all);          // may be NULL, as the next
    int (*finish)(void *ctx, const char *unfinished, struct error *);  // before the backup is there under its name
};
enum { STORE_ASIDE_MAX = 80 };

// Copies the database of a state folder into one new file as it is at this moment, while a controller may go on with
// it, and checks the copy with store_check_file. Until it is whole it lies in a folder of its own beside `file`, which
// nobody else can look or write into. `hooks` may be NULL.
int store_backup(const char *path, const char *file, const struct store_backup_hooks *hooks,
                 const struct store_loader *loader, struct store_contents *out, struct error *e);
// Reads everything, compares checksums, and loads it. Changes nothing. `level`: as in struct store_config.
int store_check_file(const char *file, const struct store_loader *loader, uint32_t level,
                     struct store_contents *out, struct error *e);
int store_check_folder(const char *path, const struct store_loader *loader, uint32_t level,
                       struct store_contents *out, struct error *e);
// Puts a backup that was checked in the place of the database of a folder that no controller uses. What was there is
// kept beside it; `aside` is its name, or "" when there was nothing.
int store_restore(const char *file, const char *path, char aside[static STORE_ASIDE_MAX], struct error *e);
// Removes what killed backups have left in a folder.
void store_backup_clear(const char *folder);
// Named values that are part of a backup only; a restore leaves them out.
int store_backup_value_set(const char *file, const char *name, const void *data, size_t len, struct error *e);
int store_backup_value(const char *file, const char *name, void **out, size_t *len, struct error *e);
