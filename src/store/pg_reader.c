// Reads from PostgreSQL. Those of the owner's thread wait at most READ_WAIT_MS for a server that does not answer; then
// the connection counts as broken and reads fail at once, until the writer's thread has made another. Rows come in
// pages, each a question of its own that goes on after the last key, so that no answer is large.
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "pg_store.h"
#include "places.h"
#include "sql.h"
#include "sqlite_store.h"

enum {
    READ_WAIT_MS = 500,
    LOAD_WAIT_MS = 60000,
    EVENT_PAGE = 1000,
    EVENT_PAGE_FIRST = 64,  // most questions want few
    PIECE_PAGE = 8,
    BLOB_PAGE = 64,
};

int pg_reader_open(struct pg_conn *c, const char *place, struct error *e) {
    int r = pg_open(c, place, "acequia reader", pg_read_statements, PGR_COUNT, e);
    if (r == 0 && (r = pg_exec(c, "SET default_transaction_read_only = on", e)) < 0)
        pg_close(c);
    c->wait_ms = READ_WAIT_MS;
    return r;
}

// One that the server has ended, as all are when it is restarted, is made anew here: a server that has said so answers
// at once, and readers would take an error for the absence of what they look for. One that did not answer in time is
// made anew by the writer's thread.
struct pg_conn *pg_reader_conn(struct pg_store *s) {
    if (!s->reader.broken && !pg_alive(&s->reader)) {
        pg_close(&s->reader);
        if (pg_reader_open(&s->reader, s->place, NULL) < 0)
            s->reader.broken = true;
    }
    if (!s->reader.broken)
        return &s->reader;
    pthread_mutex_lock(&s->lock);
    if (s->fresh_reader.db) {
        pg_close(&s->reader);
        s->reader = s->fresh_reader;
        s->fresh_reader = (struct pg_conn){0};
    } else {
        s->reader_wanted = true;
        pthread_cond_signal(&s->work);
    }
    pthread_mutex_unlock(&s->lock);
    return &s->reader;
}

// --- events ---

static int row_event(const PGresult *q, int row, struct store_event *ev, struct error *e) {
    *ev = (struct store_event){.seq = (uint64_t)pg_get_int(q, row, 0),
                               .at_ms = pg_get_int(q, row, 1),
                               .type = (uint32_t)pg_get_int(q, row, 2),
                               .job = (uint64_t)pg_get_int(q, row, 3),
                               .data = pg_lib.PQgetvalue(q, row, 5),
                               .len = (size_t)pg_lib.PQgetlength(q, row, 5)};
    if ((uint64_t)pg_get_int(q, row, 4) != store_event_checksum(ev))
        return error_set(e, EBADMSG,
                         "journal record %" PRIu64
                         " is damaged: its checksum does not match; restore the database "
                         "from a backup",
                         ev->seq);
    return 0;
}

int pg_reader_each_event(struct pg_conn *c, uint64_t job, uint64_t after, uint32_t limit, store_event_fn fn,
                         void *ctx, struct error *e) {
    struct error own = {0};
    uint32_t page = EVENT_PAGE_FIRST, told = 0;
    for (;;) {
        struct pg_args a = {0};
        uint32_t ask = limit && limit - told < page ? limit - told : page;
        pg_int(&a, (int64_t)after);
        pg_int(&a, ask);
        if (job)
            pg_int(&a, (int64_t)job);
        cleanup_result PGresult *q =
            pg_run(c, job ? PGR_JOB_EVENTS : PGR_JOURNAL, &a, "reading the journal", &own);
        if (!q) {
            if (e)
                *e = own;
            return -own.code;
        }
        int rows = pg_lib.PQntuples(q);
        for (int i = 0; i < rows; i++) {
            struct store_event ev;
            int r = row_event(q, i, &ev, e);
            if (r == 0)
                r = fn(ctx, &ev);
            if (r != 0)
                return r < 0 ? r : 0;
            after = ev.seq;
        }
        told += (uint32_t)rows;
        if ((uint32_t)rows < ask || (limit && told >= limit))
            return 0;
        page = EVENT_PAGE;
    }
}

int pg_reader_events(struct store *st, uint64_t job, uint64_t after, uint32_t limit, store_event_fn fn,
                     void *ctx, struct error *e) {
    return pg_reader_each_event(pg_reader_conn(pg_store_of(st)), job, after, limit, fn, ctx, e);
}

static int journal_of(const char *place, uint64_t after, store_event_fn fn, void *ctx, struct error *e) {
    struct pg_conn c;
    int r = pg_reader_open(&c, place, e);
    c.wait_ms = LOAD_WAIT_MS;
    if (r == 0)
        r = pg_reader_each_event(&c, 0, after, 0, fn, ctx, e);
    pg_close(&c);
    return r;
}

int pg_reader_journal(struct store *st, store_event_fn fn, void *ctx, struct error *e) {
    return journal_of(pg_store_of(st)->place, 0, fn, ctx, e);
}

int pg_journal_copy(const char *place, uint64_t after, store_event_fn fn, void *ctx, struct error *e) {
    return journal_of(place, after, fn, ctx, e);
}

// --- snapshots ---

static int read_pieces(struct pg_conn *c, uint64_t seq, uint64_t len, uint64_t pieces, char *out,
                       struct error *e) {
    uint64_t at = 0, n = 0;
    while (n < pieces) {
        struct pg_args a = {0};
        pg_int(&a, (int64_t)seq);
        pg_int(&a, (int64_t)n);
        pg_int(&a, PIECE_PAGE);
        cleanup_result PGresult *q = pg_run(c, PGR_PIECES, &a, "reading a snapshot", e);
        if (!q)
            return -e->code;
        if (!pg_lib.PQntuples(q))
            return -EBADMSG;
        for (int i = 0; i < pg_lib.PQntuples(q); i++, n++) {
            size_t piece = (size_t)pg_lib.PQgetlength(q, i, 1);
            if ((uint64_t)pg_get_int(q, i, 0) != n || piece > len - at)
                return -EBADMSG;
            memcpy(out + at, pg_lib.PQgetvalue(q, i, 1), piece);
            at += piece;
        }
    }
    return at == len ? 0 : -EBADMSG;
}

static int read_snapshot(struct pg_conn *c, const PGresult *list, int row, void **data, size_t *len,
                         struct error *e) {
    uint64_t seq = (uint64_t)pg_get_int(list, row, 0), bytes = (uint64_t)pg_get_int(list, row, 1);
    cleanup_free char *out = NULL;
    int r = bytes > STORE_SNAPSHOT_BYTES_MAX ? -EBADMSG : 0;
    if (r == 0) {
        out = xmalloc(bytes + 1);
        r = read_pieces(c, seq, bytes, (uint64_t)pg_get_int(list, row, 3), out, e);
    }
    if (r == 0 && store_sql_checksum(seq, out, bytes) != (uint64_t)pg_get_int(list, row, 2))
        r = -EBADMSG;
    if (r == -EBADMSG)
        error_set(e, EBADMSG, "the snapshot at record %" PRIu64 " is damaged", seq);
    if (r < 0)
        return r;
    *data = TAKE_PTR(out);
    *len = bytes;
    return 0;
}

static PGresult *list_snapshots(struct pg_conn *c, struct error *e) {
    struct pg_args a = {0};
    pg_int(&a, STORE_SNAPSHOTS_KEPT);
    return pg_run(c, PGR_SNAPSHOTS, &a, "looking for snapshots", e);
}

// --- loading ---

struct pg_loading {
    const struct store_loader *loader;
    uint64_t last, last_sum;
    bool begun;
    struct error *e;
};

static int load_event(void *ctx, const struct store_event *ev) {
    struct pg_loading *load = ctx;
    bool in_snapshot = !load->begun && ev->seq == load->last;
    load->begun = true;
    load->last_sum = store_event_checksum(ev);
    if (in_snapshot)
        return 0;
    if (ev->seq != load->last + 1)
        return error_set(load->e, EBADMSG,
                         "the journal goes from record %" PRIu64 " to %" PRIu64
                         ": records are missing; restore the "
                         "database from a backup",
                         load->last, ev->seq);
    load->last = ev->seq;
    int r = load->loader->event(load->loader->ctx, ev);
    if (r < 0)
        return error_set(load->e, -r,
                         r == -EPROTONOSUPPORT
                             ? "journal record %" PRIu64
                               " (type %u) was written by a later release; install that again"
                             : "journal record %" PRIu64 " (type %u) cannot be applied",
                         ev->seq, ev->type);
    return 0;
}

// The newest snapshot that can be read and is accepted; 0 when there is none.
static int load_snapshot(struct pg_conn *c, const struct store_loader *loader, uint64_t newest, uint64_t *seq,
                         struct error *why, struct error *e) {
    cleanup_result PGresult *list = list_snapshots(c, e);
    *seq = 0;
    if (!list)
        return -e->code;
    for (int i = 0; i < pg_lib.PQntuples(list); i++) {
        uint64_t at = (uint64_t)pg_get_int(list, i, 0);
        if (at > newest)
            return error_set(e, EBADMSG,
                             "the database has a snapshot of record %" PRIu64
                             " but its journal ends at %" PRIu64 "; restore all of it from one backup",
                             at, newest);
        cleanup_free void *data = NULL;
        size_t len = 0;
        int r = read_snapshot(c, list, i, &data, &len, why);
        if (r == 0)
            r = loader->snapshot(loader->ctx, at, data, len);
        if (r == 0) {
            *seq = at;
            return 0;
        }
        if (c->broken) {
            *e = *why;
            return r;
        }
    }
    return 0;
}

// The record of the snapshot itself is read for its checksum: whoever follows tells by it whether the database was
// replaced meanwhile.
static int load_all(struct pg_conn *c, const struct store_loader *loader, uint64_t *last_seq,
                    uint64_t *last_sum, struct error *e) {
    int64_t first = 0, newest = 0;
    uint64_t from = 0;
    struct error why = {0};
    int r = pg_first_int(c, "SELECT min(seq) FROM journal", 0, &first, e);
    if (r == 0)
        r = pg_first_int(c, "SELECT max(seq) FROM journal", 0, &newest, e);
    if (r == 0)
        r = load_snapshot(c, loader, (uint64_t)newest, &from, &why, e);
    if (r < 0)
        return r;
    if (first > 1 && from + 1 < (uint64_t)first)
        return error_set(e, EBADMSG,
                         "the journal starts at record %" PRId64
                         " and no snapshot before it can be read (%s); restore "
                         "the database from a backup",
                         first, why.code ? why.text : "there is none");
    struct pg_loading load = {.loader = loader, .last = from, .e = e};
    r = pg_reader_each_event(c, 0, from ? from - 1 : 0, 0, load_event, &load, e);
    if (r == 0) {
        *last_seq = load.last;
        *last_sum = load.last_sum;
    }
    return r;
}

// In one transaction, which sees one state of the database.
static int load_at_once(struct pg_conn *c, const struct store_loader *loader, uint64_t *last_seq,
                        uint64_t *last_sum, struct error *e) {
    struct error own = {0};
    int wait_ms = c->wait_ms;
    c->wait_ms = LOAD_WAIT_MS;
    int r = pg_exec(c, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", &own);
    if (r == 0) {
        r = load_all(c, loader, last_seq, last_sum, &own);
        pg_exec(c, "ROLLBACK", NULL);
    }
    c->wait_ms = wait_ms;
    if (r < 0 && e)
        *e = own;
    return r;
}

int pg_reader_load(struct store *st, const struct store_loader *loader, uint64_t *last_seq, struct error *e) {
    struct pg_store *s = pg_store_of(st);
    struct pg_conn *c = pg_reader_conn(s);
    int r = load_at_once(c, loader, last_seq, &s->base.last_sum, e);
    if (r < 0)
        return r;
    uint64_t oldest = pg_snapshot_oldest_needed(c);
    pthread_mutex_lock(&s->lock);
    s->committed_seq = *last_seq;
    s->oldest_snapshot = oldest;
    pthread_mutex_unlock(&s->lock);
    return 0;
}

int pg_load_copy(const char *place, const struct store_loader *loader, uint64_t *last_seq, struct error *e) {
    struct pg_conn c;
    uint64_t sum;
    int r = pg_reader_open(&c, place, e);
    if (r == 0)
        r = load_at_once(&c, loader, last_seq, &sum, e);
    pg_close(&c);
    return r;
}

// --- texts and named values ---

static void *copy_value(const PGresult *q, int row, int column, size_t *len) {
    *len = (size_t)pg_lib.PQgetlength(q, row, column);
    char *copy = xmalloc(*len + 1);
    memcpy(copy, pg_lib.PQgetvalue(q, row, column), *len);
    copy[*len] = 0;
    return copy;
}

static PGresult *ask_key(struct pg_store *s, enum pg_read_sql what, const void *key, size_t len,
                         const char *doing, struct error *e, int *code) {
    struct error own = {0};
    struct pg_args a = {0};
    pg_bytes(&a, key, len);
    PGresult *q = pg_run(pg_reader_conn(s), what, &a, doing, &own);
    *code = -own.code;
    if (!q && e)
        *e = own;
    return q;
}

int pg_reader_text(struct store *st, const struct store_key *key, void **out, size_t *len, struct error *e) {
    int r;
    cleanup_result PGresult *q =
        ask_key(pg_store_of(st), PGR_TEXT, key->bytes, sizeof key->bytes, "reading a text", e, &r);
    if (!q)
        return r;
    if (!pg_lib.PQntuples(q))
        return error_set(e, ENOENT, "no such script or environment is stored");
    struct store_key found;
    store_key_of(pg_lib.PQgetvalue(q, 0, 0), (size_t)pg_lib.PQgetlength(q, 0, 0), &found);
    if (memcmp(&found, key, sizeof found) != 0)
        return error_set(e, EBADMSG,
                         "a stored script or environment is damaged; restore the database from a backup");
    *out = copy_value(q, 0, 0, len);
    return 0;
}

static bool is_intact(const char *name, const PGresult *q, int row, int sum) {
    return store_sql_checksum(strlen(name), pg_lib.PQgetvalue(q, row, sum + 1),
                              (size_t)pg_lib.PQgetlength(q, row, sum + 1)) ==
           (uint64_t)pg_get_int(q, row, sum);
}

int pg_reader_blob(struct store *st, const char *name, void **out, size_t *len, struct error *e) {
    int r;
    cleanup_result PGresult *q =
        ask_key(pg_store_of(st), PGR_BLOB, name, strlen(name), "reading a named value", e, &r);
    if (!q)
        return r;
    if (!pg_lib.PQntuples(q))
        return error_set(e, ENOENT, "no value named \"%s\" is stored", name);
    if (!is_intact(name, q, 0, 0))
        return error_set(e, EBADMSG, "the stored value \"%s\" is damaged; restore the database from a backup",
                         name);
    *out = copy_value(q, 0, 1, len);
    return 0;
}

int pg_reader_blobs(struct store *st, const char *prefix, store_blob_fn fn, void *ctx, struct error *e) {
    struct pg_conn *c = pg_reader_conn(pg_store_of(st));
    cleanup_free char *after = xstrdup(prefix);
    size_t cut = strlen(after);
    int damaged = 0;
    // Names greater than the prefix itself; one that is the prefix is asked for by itself.
    void *own = NULL;
    size_t own_len;
    if (pg_reader_blob(st, prefix, &own, &own_len, NULL) == 0) {
        int r = fn(ctx, prefix, own, own_len);
        free(own);
        if (r != 0)
            return r < 0 ? r : 0;
    }
    for (;;) {
        struct error failed = {0};
        struct pg_args a = {0};
        pg_text(&a, after);
        pg_int(&a, BLOB_PAGE);
        cleanup_result PGresult *q = pg_run(c, PGR_BLOBS, &a, "reading named values", &failed);
        if (!q) {
            if (e)
                *e = failed;
            return -failed.code;
        }
        int rows = pg_lib.PQntuples(q);
        for (int i = 0; i < rows; i++) {
            const char *name = pg_get_text(q, i, 0);
            if (strncmp(name, prefix, cut) != 0)
                return damaged;
            int r = 0;
            if (!is_intact(name, q, i, 1))
                damaged = error_set(e, EBADMSG, "the stored value \"%s\" is damaged", name);
            else
                r = fn(ctx, name, pg_lib.PQgetvalue(q, i, 2), (size_t)pg_lib.PQgetlength(q, i, 2));
            if (r != 0)
                return r < 0 ? r : damaged;
        }
        if (rows < BLOB_PAGE)
            return damaged;
        free(after);
        after = xstrdup(pg_get_text(q, rows - 1, 0));
    }
}

// --- checking ---

static int check_event(void *ctx, const struct store_event *ev) {
    return 0;
}

int pg_reader_check(struct store *st, struct error *e) {
    struct pg_conn *c = pg_reader_conn(pg_store_of(st));
    struct error own = {0};
    int wait_ms = c->wait_ms, r = 0;
    c->wait_ms = LOAD_WAIT_MS;
    cleanup_result PGresult *list = list_snapshots(c, &own);
    for (int i = 0; list && i < pg_lib.PQntuples(list) && r == 0; i++) {
        cleanup_free void *data = NULL;
        size_t len;
        r = read_snapshot(c, list, i, &data, &len, &own);
    }
    if (!list)
        r = -own.code;
    if (r == 0)
        r = pg_reader_each_event(c, 0, 0, 0, check_event, NULL, &own);
    c->wait_ms = wait_ms;
    if (r < 0 && e)
        *e = own;
    return r;
}
