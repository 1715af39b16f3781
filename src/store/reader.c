// Reads on the owner's own connection: loading at start, events, texts. The
// write-ahead log lets them go on while the writer commits.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "places.h"
#include "sql.h"
#include "sqlite_store.h"

static const char *const read_sql[READ_COUNT] = {
    [READ_JOURNAL] = "SELECT seq, at_ms, type, job, sum, data FROM journal WHERE seq > ?1"
                     " ORDER BY seq LIMIT ?2",
    [READ_JOB_EVENTS] = "SELECT seq, at_ms, type, job, sum, data FROM journal"
                        " WHERE job = ?3 AND job != 0 AND seq > ?1 ORDER BY seq LIMIT ?2",
    [READ_TEXT] = "SELECT data FROM text WHERE key = ?",
    [READ_BLOB] = "SELECT sum, data FROM blob WHERE name = ?",
};

int store_reader_open(struct sqlite_store *s, struct error *e) {
    struct sql_options options = {.vfs = s->vfs, .flags = SQLITE_OPEN_READWRITE, .alone = s->alone};
    int r = store_sql_open(s->file, &options, &s->reader, e);
    if (r == 0)
        r = store_sql_exec(s->reader, "PRAGMA query_only=ON", e);
    if (r == 0)
        r = store_sql_prepare_all(s->reader, read_sql, s->read, READ_COUNT, e);
    return r;
}

void store_reader_close(struct sqlite_store *s) {
    store_sql_finalize_all(s->read, READ_COUNT);
    sqlite3_close(s->reader);
    s->reader = NULL;
}

uint64_t store_event_checksum(const struct store_event *ev) {
    uint64_t fields[4] = {ev->seq, (uint64_t)ev->at_ms, ev->type, ev->job};
    return store_sql_checksum(store_sql_checksum(0, fields, sizeof fields), ev->data, ev->len);
}

static int row_event(sqlite3_stmt *q, struct store_event *ev, struct error *e) {
    *ev = (struct store_event){
        .seq = (uint64_t)sqlite3_column_int64(q, 0),
        .at_ms = sqlite3_column_int64(q, 1),
        .type = (uint32_t)sqlite3_column_int64(q, 2),
        .job = (uint64_t)sqlite3_column_int64(q, 3),
        .data = sqlite3_column_blob(q, 5),
        .len = (size_t)sqlite3_column_bytes(q, 5),
    };
    if (!ev->data)
        ev->data = "";
    if ((uint64_t)sqlite3_column_int64(q, 4) != store_event_checksum(ev))
        return error_set(e, EBADMSG,
                         "journal record %" PRIu64 " is damaged: its checksum does not match; "
                         "restore the state folder from a backup",
                         ev->seq);
    return 0;
}

static int each_event(sqlite3 *db, sqlite3_stmt *q, uint64_t after, uint32_t limit, store_event_fn fn, void *ctx,
                      struct error *e) {
    sqlite3_bind_int64(q, 1, (int64_t)after);
    sqlite3_bind_int64(q, 2, limit ? (int64_t)limit : -1);
    int r = 0, rc;
    while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
        struct store_event ev;
        r = row_event(q, &ev, e);
        if (r == 0)
            r = fn(ctx, &ev);
        if (r != 0)
            break;
    }
    if (r == 0 && rc != SQLITE_DONE)
        r = store_sql_error(db, e, "reading the journal");
    sqlite3_reset(q);
    return r < 0 ? r : 0;
}

int store_reader_events(struct store *st, uint64_t job, uint64_t after, uint32_t limit, store_event_fn fn,
                        void *ctx, struct error *e) {
    struct sqlite_store *s = sqlite_store_of(st);
    sqlite3_stmt *q = s->read[job ? READ_JOB_EVENTS : READ_JOURNAL];
    if (job)
        sqlite3_bind_int64(q, 3, (int64_t)job);
    return each_event(s->reader, q, after, limit, fn, ctx, e);
}

int store_reader_journal(struct store *st, store_event_fn fn, void *ctx, struct error *e) {
    struct sqlite_store *s = sqlite_store_of(st);  // only what never changes while it is open
    struct sql_options options = {.vfs = s->vfs, .flags = SQLITE_OPEN_READWRITE};
    sqlite3 *db;
    sqlite3_stmt *q = NULL;
    int r = store_sql_open(s->file, &options, &db, e);
    if (r == 0)
        r = store_sql_exec(db, "PRAGMA query_only=ON", e);
    if (r == 0)
        r = store_sql_prepare(db, read_sql[READ_JOURNAL], &q, e);
    if (r == 0)
        r = each_event(db, q, 0, 0, fn, ctx, e);
    sqlite3_finalize(q);
    sqlite3_close(db);
    return r;
}

struct load {
    const struct store_loader *loader;
    uint64_t last;
    struct error *e;
};

static int load_event(void *ctx, const struct store_event *ev) {
    struct load *load = ctx;
    if (ev->seq != load->last + 1)
        return error_set(load->e, EBADMSG,
                         "the journal goes from record %" PRIu64 " to %" PRIu64 ": records are "
                         "missing; restore the state folder from a backup",
                         load->last, ev->seq);
    load->last = ev->seq;
    int r = load->loader->event(load->loader->ctx, ev);
    if (r < 0)
        return error_set(load->e, -r,
                         r == -EPROTONOSUPPORT
                             ? "journal record %" PRIu64 " (type %u) was written by a later release; install that again"
                             : "journal record %" PRIu64 " (type %u) cannot be applied",
                         ev->seq, ev->type);
    return 0;
}

// The newest snapshot that can be read and is accepted; 0 when there is none.
static int load_snapshot(struct sqlite_store *s, const struct store_loader *loader,
                         uint64_t newest_record, uint64_t *seq, struct error *e) {
    struct snapshot_ref refs[2 * STORE_SNAPSHOTS_KEPT];  // in the database, and files of an earlier release
    int count = store_snapshot_list(s->reader, s, refs, 2 * STORE_SNAPSHOTS_KEPT, e), r = 0;
    *seq = 0;
    if (count < 0)
        return count;
    for (int i = 0; i < count; i++) {
        if (refs[i].seq > newest_record)
            return error_set(e, EBADMSG,
                             "%s has a snapshot of record %" PRIu64 " but its journal ends at %" PRIu64
                             "; restore the whole folder from one backup",
                             s->folder, refs[i].seq, newest_record);
        cleanup_free void *data = NULL;
        size_t len = 0;
        r = store_snapshot_read(s->reader, s, &refs[i], &data, &len, e);
        if (r == 0)
            r = loader->snapshot(loader->ctx, refs[i].seq, data, len);
        if (r == 0) {
            *seq = refs[i].seq;
            return 0;
        }
    }
    return 0;
}

int store_reader_load_all(struct sqlite_store *s, const struct store_loader *loader, uint64_t *last_seq,
                          struct error *e) {
    int64_t first = 0, newest = 0;
    int r = store_sql_int(s->reader, "SELECT min(seq) FROM journal", 0, &first, e);
    if (r == 0)
        r = store_sql_int(s->reader, "SELECT max(seq) FROM journal", 0, &newest, e);
    uint64_t from = 0;
    struct error snapshot_error = {0};
    if (r == 0)
        r = load_snapshot(s, loader, (uint64_t)newest, &from, &snapshot_error);
    if (r < 0) {
        if (e && snapshot_error.code)
            *e = snapshot_error;
        return r;
    }
    if (first > 1 && from + 1 < (uint64_t)first)
        return error_set(e, EBADMSG,
                         "the journal in %s starts at record %" PRId64 " and no snapshot before "
                         "it can be read (%s); restore the state folder from a backup",
                         s->folder, first,
                         snapshot_error.code ? snapshot_error.text : "there is none");
    struct load load = {.loader = loader, .last = from, .e = e};
    r = each_event(s->reader, s->read[READ_JOURNAL], from, 0, load_event, &load, e);
    if (r == 0)
        *last_seq = load.last;
    return r;
}

int store_reader_load(struct store *st, const struct store_loader *loader, uint64_t *last_seq,
                      struct error *e) {
    struct sqlite_store *s = sqlite_store_of(st);
    int r = store_reader_load_all(s, loader, last_seq, e);
    if (r < 0)
        return r;
    uint64_t oldest = store_snapshot_oldest_needed(s->reader, s);
    pthread_mutex_lock(&s->lock);
    s->committed_seq = *last_seq;
    s->oldest_snapshot = oldest;
    pthread_mutex_unlock(&s->lock);
    return 0;
}

struct store_copy {
    struct sqlite_store store;
    char *folder, *file;
};

static void copy_close(struct store_copy *k) {
    store_reader_close(&k->store);
    if (k->store.folder_fd >= 0)
        close(k->store.folder_fd);
    free(k->folder);
    free(k->file);
}

// For reading only, beside a controller that may be running. To be closed also after an error.
static int copy_open(struct store_copy *k, const char *path, struct error *e) {
    *k = (struct store_copy){.folder = xstrdup(path), .file = xasprintf("%s/%s", path, STORE_DATABASE_NAME)};
    k->store = (struct sqlite_store){.folder = k->folder, .file = k->file};
    k->store.folder_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (k->store.folder_fd < 0)
        return error_set(e, errno, "cannot open the state folder %s: %s", path, strerror(errno));
    return store_reader_open(&k->store, e);
}

int sqlite_load_copy(const char *path, const struct store_loader *loader, uint64_t *last_seq,
                     struct error *e) {
    struct store_copy k;
    int r = copy_open(&k, path, e);
    if (r == 0)  // everything below sees one state of the database
        r = store_sql_exec(k.store.reader, "BEGIN", e);
    if (r == 0)
        r = store_reader_load_all(&k.store, loader, last_seq, e);
    copy_close(&k);
    return r;
}

int sqlite_journal_copy(const char *path, uint64_t after, store_event_fn fn, void *ctx, struct error *e) {
    struct store_copy k;
    int r = copy_open(&k, path, e);
    if (r == 0)
        r = each_event(k.store.reader, k.store.read[READ_JOURNAL], after, 0, fn, ctx, e);
    copy_close(&k);
    return r;
}

int store_reader_text(struct store *st, const struct store_key *key, void **out, size_t *len,
                      struct error *e) {
    struct sqlite_store *s = sqlite_store_of(st);
    sqlite3_stmt *q = s->read[READ_TEXT];
    sqlite3_bind_blob(q, 1, key->bytes, sizeof key->bytes, SQLITE_STATIC);
    int rc = sqlite3_step(q), r = 0;
    if (rc == SQLITE_ROW) {
        size_t bytes = (size_t)sqlite3_column_bytes(q, 0);
        char *copy = xmalloc(bytes + 1);
        if (bytes)
            memcpy(copy, sqlite3_column_blob(q, 0), bytes);
        copy[bytes] = 0;
        // The key is a hash of the text: whatever damaged it, on disk or in memory, shows here.
        struct store_key found;
        store_key_of(copy, bytes, &found);
        if (memcmp(&found, key, sizeof found) != 0) {
            free(copy);
            r = error_set(e, EBADMSG, "a stored script or environment is damaged; restore the "
                                      "state folder from a backup");
        } else {
            *out = copy;
            *len = bytes;
        }
    } else if (rc == SQLITE_DONE) {
        r = error_set(e, ENOENT, "no such script or environment is stored");
    } else {
        r = store_sql_error(s->reader, e, "reading a text");
    }
    sqlite3_reset(q);
    return r;
}

int store_reader_blob(struct store *st, const char *name, void **out, size_t *len, struct error *e) {
    struct sqlite_store *s = sqlite_store_of(st);
    sqlite3_stmt *q = s->read[READ_BLOB];
    sqlite3_bind_text(q, 1, name, -1, SQLITE_STATIC);
    int rc = sqlite3_step(q), r = 0;
    if (rc == SQLITE_ROW) {
        size_t bytes = (size_t)sqlite3_column_bytes(q, 1);
        const void *data = sqlite3_column_blob(q, 1);
        if (store_sql_checksum(strlen(name), bytes ? data : "", bytes) !=
            (uint64_t)sqlite3_column_int64(q, 0)) {
            r = error_set(e, EBADMSG, "the stored value \"%s\" is damaged; restore the state folder from a backup",
                          name);
        } else {
            char *copy = xmalloc(bytes + 1);
            if (bytes)
                memcpy(copy, data, bytes);
            copy[bytes] = 0;
            *out = copy;
            *len = bytes;
        }
    } else if (rc == SQLITE_DONE) {
        r = error_set(e, ENOENT, "no value named \"%s\" is stored", name);
    } else {
        r = store_sql_error(s->reader, e, "reading a named value");
    }
    sqlite3_reset(q);
    return r;
}

int store_reader_blobs(struct store *st, const char *prefix, store_blob_fn fn, void *ctx, struct error *e) {
    struct sqlite_store *s = sqlite_store_of(st);
    sqlite3_stmt *q = NULL;
    int rc = SQLITE_DONE, stop = 0, damaged = 0;
    int r =
        store_sql_prepare(s->reader, "SELECT name, sum, data FROM blob WHERE name >= ? ORDER BY name", &q, e);
    if (r < 0)
        return r;
    sqlite3_bind_text(q, 1, prefix, -1, SQLITE_STATIC);
    while (stop == 0 && (rc = sqlite3_step(q)) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(q, 0);
        size_t bytes = (size_t)sqlite3_column_bytes(q, 2);
        const void *data = bytes ? sqlite3_column_blob(q, 2) : "";
        if (!name || !str_has_prefix(name, prefix))
            break;
        if (store_sql_checksum(strlen(name), data, bytes) != (uint64_t)sqlite3_column_int64(q, 1))
            damaged = error_set(e, EBADMSG, "the stored value \"%s\" is damaged", name);
        else
            stop = fn(ctx, name, data, bytes);
    }
    if (stop == 0 && rc != SQLITE_DONE && rc != SQLITE_ROW)
        r = store_sql_error(s->reader, e, "reading named values");
    sqlite3_finalize(q);
    return stop < 0 ? stop : r < 0 ? r : damaged;
}

int store_reader_old_keys(struct store *st, int64_t now_ms,
                          int (*fn)(void *ctx, const struct store_old_key *k), void *ctx, struct error *e) {
    struct sqlite_store *s = sqlite_store_of(st);
    sqlite3_stmt *q = NULL;
    int rc = SQLITE_DONE, stop = 0;
    int r = store_sql_prepare(s->reader,
                              "SELECT user, key, job, expires_ms FROM idem WHERE expires_ms > ?"
                              " ORDER BY expires_ms DESC",
                              &q, e);
    if (r < 0)
        return r;
    sqlite3_bind_int64(q, 1, now_ms);
    while (stop == 0 && (rc = sqlite3_step(q)) == SQLITE_ROW) {
        struct store_old_key k = {.user = (const char *)sqlite3_column_text(q, 0),
                                  .key = (const char *)sqlite3_column_text(q, 1),
                                  .job = (uint64_t)sqlite3_column_int64(q, 2),
                                  .expires_ms = sqlite3_column_int64(q, 3)};
        stop = k.user && k.key ? fn(ctx, &k) : 0;
    }
    if (stop == 0 && rc != SQLITE_DONE)
        r = store_sql_error(s->reader, e, "reading idempotency keys");
    sqlite3_finalize(q);
    return stop < 0 ? stop : r;
}

static int check_event(void *ctx, const struct store_event *ev) {
    return 0;
}

static int check_snapshots(struct sqlite_store *s, struct error *e) {
    struct snapshot_ref refs[2 * STORE_SNAPSHOTS_KEPT];
    int count = store_snapshot_list(s->reader, s, refs, 2 * STORE_SNAPSHOTS_KEPT, e),
        r = count < 0 ? count : 0;
    for (int i = 0; i < count && r == 0; i++) {
        cleanup_free void *data = NULL;
        size_t len;
        r = store_snapshot_read(s->reader, s, &refs[i], &data, &len, e);
    }
    return r;
}

static int skip_blob(void *ctx, const char *name, const void *data, size_t len) {
    return 0;
}

static int check_texts(struct sqlite_store *s, struct error *e) {
    sqlite3_stmt *q = NULL;
    int rc = SQLITE_DONE, r = store_sql_prepare(s->reader, "SELECT key, data FROM text", &q, e);
    while (r == 0 && (rc = sqlite3_step(q)) == SQLITE_ROW) {
        struct store_key found;
        size_t bytes = (size_t)sqlite3_column_bytes(q, 1);
        store_key_of(bytes ? sqlite3_column_blob(q, 1) : "", bytes, &found);
        if (sqlite3_column_bytes(q, 0) != sizeof found.bytes ||
            memcmp(sqlite3_column_blob(q, 0), found.bytes, sizeof found.bytes) != 0)
            r = error_set(
                e, EBADMSG,
                "a stored script or environment is damaged; restore the state folder from a backup");
    }
    if (r == 0 && rc != SQLITE_DONE)
        r = store_sql_error(s->reader, e, "reading texts");
    sqlite3_finalize(q);
    return r;
}

int store_reader_check(struct store *st, struct error *e) {
    struct sqlite_store *s = sqlite_store_of(st);
    sqlite3_stmt *q = NULL;
    int r = store_sql_prepare(s->reader, "PRAGMA integrity_check(1)", &q, e);
    if (r < 0)
        return r;
    int rc = sqlite3_step(q);
    const char *said = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(q, 0) : NULL;
    if (rc != SQLITE_ROW)
        r = store_sql_error(s->reader, e, "checking the state database");
    else if (strcmp(said, "ok") != 0)
        r = error_set(e, EBADMSG, "%s is damaged: %s; restore the state folder from a backup",
                      s->file, said);
    sqlite3_finalize(q);
    if (r == 0)
        r = check_snapshots(s, e);
    if (r == 0)
        r = store_reader_blobs(st, "", skip_blob, NULL, e);
    if (r == 0)
        r = check_texts(s, e);
    return r < 0 ? r : each_event(s->reader, s->read[READ_JOURNAL], 0, 0, check_event, NULL, e);
}
