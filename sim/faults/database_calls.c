// The product's way to a database, src/store/pg.h, as the simulated one knows it. The linker puts these functions in
// the place of those of pg.c. Statements are known by their numbers (pg_store.h); their texts are tested on a real
// server.
#include "database_calls.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "fault_sim.h"
#include "seams.h"
#include "sql.h"
#include "sqlite_store.h"

enum {
    ANSWER_WAIT_MS = 10000,
    CONNECT_WAIT_MS = 3000,
    READ_STALL_MS = 500,
};

static struct db_session *session_of(const struct pg_conn *c) {
    return (struct db_session *)(void *)c->db;
}

// Waits for the answer as long as the product does. A paused program sees the answer or the time that has passed first.
static int wait_for(struct db_call *c, struct pg_conn *conn, struct error *e) {
    struct sim_thread *t = thread_current();
    int64_t deadline = db_sim()->now_ms + ANSWER_WAIT_MS;
    for (;;) {
        bool there = c->state == CALL_ANSWERED && c->answer_ms <= db_sim()->now_ms;
        bool late = db_sim()->now_ms >= deadline;
        if (thread_dead(t))
            break;
        if (there && (!late || rand_below(&db_sim()->rand, 2)))
            return c->code < 0 ? error_set(e, -c->code, "the database says no (%d)", -c->code) : 0;
        if (late) {
            conn->broken = true;
            return error_set(e, ETIMEDOUT, "the database does not answer");
        }
        if (c->session->lost_ms && c->session->lost_ms <= db_sim()->now_ms)
            break;
        if (thread_drains(t) && c->state != CALL_ANSWERED)
            break;
        if (thread_drains(t))
            c->answer_ms = db_sim()->now_ms;
        else
            thread_sleep(deadline);
    }
    conn->broken = true;
    return error_set(e, EPIPE, "the connection to the database is gone");
}

static int call(struct db_call *c, struct pg_conn *conn, struct error *e) {
    c->session = session_of(conn);
    c->thread = thread_current();
    db_call_begin(c);
    return wait_for(c, conn, e);
}

int __wrap_pg_load(struct error *e);
int __wrap_pg_schema_prepare(const char *place, uint32_t level, const char *const *states, struct error *e);
int __wrap_pg_open(struct pg_conn *c, const char *place, const char *who, const char *const *statements,
                   int count, struct error *e);
void __wrap_pg_close(struct pg_conn *c);
bool __wrap_pg_alive(struct pg_conn *c);
int __wrap_pg_exec(struct pg_conn *c, const char *sql, struct error *e);
PGresult *__wrap_pg_query(struct pg_conn *c, const char *sql, const struct pg_args *args, const char *doing,
                          struct error *e);
PGresult *__wrap_pg_run(struct pg_conn *c, int statement, const struct pg_args *args, const char *doing,
                        struct error *e);
int __wrap_pg_first_int(struct pg_conn *c, const char *sql, int64_t fallback, int64_t *out, struct error *e);
int __wrap_pg_pipe_begin(struct pg_conn *c, struct error *e);
int __wrap_pg_pipe_add(struct pg_conn *c, int statement, const struct pg_args *args, struct error *e);
int __wrap_pg_pipe_end(struct pg_conn *c, const char *doing, uint64_t *rows, struct error *e);

int __wrap_pg_load(struct error *e) {
    return 0;
}

int __wrap_pg_schema_prepare(const char *place, uint32_t level, const char *const *states, struct error *e) {
    return db_reachable(db_sim()->head->number) ? 0 : error_set(e, EPIPE, "the database cannot be reached");
}

int __wrap_pg_open(struct pg_conn *c, const char *place, const char *who, const char *const *statements,
                   int count, struct error *e) {
    struct sim_thread *t = thread_current();
    uint32_t head = t ? thread_head(t) : db_sim()->head->number;
    *c = (struct pg_conn){.broken = true, .wait_ms = ANSWER_WAIT_MS};
    if (t)
        thread_sleep(db_sim()->now_ms +
                     (db_cut_until_ms(head) > db_sim()->now_ms ? CONNECT_WAIT_MS : some_ms(db_sim(), 0, 20)));
    if (!db_reachable(head) || (t && thread_dead(t)))
        return error_set(e, EPIPE, "the database cannot be reached");
    c->db = (PGconn *)(void *)db_session_new(head);
    c->broken = false;
    return 0;
}

void __wrap_pg_close(struct pg_conn *c) {
    if (c->db)
        session_of(c)->open = false;
    *c = (struct pg_conn){.broken = true};
}

bool __wrap_pg_alive(struct pg_conn *c) {
    const struct db_session *s = session_of(c);
    c->broken = c->broken || !s || (s->lost_ms && s->lost_ms <= db_sim()->now_ms);
    return !c->broken;
}

// A read of the loop: done at once, or the loop has waited in vain.
static bool can_read(struct pg_conn *c, struct error *e) {
    if (!c->db || c->broken) {
        error_set(e, EPIPE, "the database does not answer");
        return false;
    }
    struct db_session *s = session_of(c);
    if (s->open && db_reachable(s->head) && db_slow_ms() < READ_STALL_MS)
        return true;
    c->broken = true;
    if (!thread_current())
        head_stall(db_sim(), READ_STALL_MS);
    error_set(e, ETIMEDOUT, "the database does not answer");
    return false;
}

int __wrap_pg_exec(struct pg_conn *c, const char *sql, struct error *e) {
    struct error own = {0};
    if (can_read(c, &own))
        return 0;
    if (e)
        *e = own;
    return -own.code;
}

PGresult *__wrap_pg_query(struct pg_conn *c, const char *sql, const struct pg_args *args, const char *doing,
                          struct error *e) {
    sim_fail(db_sim(), "the simulated database does not know: %s", sql);
    error_set(e, EIO, "not known");
    return NULL;
}

int __wrap_pg_first_int(struct pg_conn *c, const char *sql, int64_t fallback, int64_t *out, struct error *e) {
    const struct sim_disk *d = db_disk();
    struct error own = {0};
    int64_t kept = 0, oldest = fallback;
    if (!can_read(c, &own)) {
        if (e)
            *e = own;
        return -own.code;
    }
    for (int i = 0; i < STORE_SNAPSHOTS_KEPT; i++)
        if (d->snapshots[i].seq) {
            kept++;
            oldest = (int64_t)d->snapshots[i].seq;
        }
    if (streq(sql, "SELECT count(*) FROM snapshot"))
        *out = kept;
    else if (streq(sql, "SELECT min(seq) FROM snapshot"))
        *out = oldest;
    else if (streq(sql, "SELECT min(seq) FROM journal"))
        *out = d->journal_first < d->journal.len ? (int64_t)d->journal.at[d->journal_first].seq : fallback;
    else if (streq(sql, "SELECT max(seq) FROM journal"))
        *out = d->journal.len ? (int64_t)db_last_record() : fallback;
    else
        sim_fail(db_sim(), "the simulated database does not know: %s", sql);
    return 0;
}

// --- values ---

static uint64_t int_of(const struct pg_args *a, int i) {
    uint64_t v;
    memcpy(&v, a->values[i], sizeof v);
    return be64toh(v);
}

static void text_of(const struct pg_args *a, int i, char *out, size_t size) {
    size_t len = (size_t)a->lengths[i] < size - 1 ? (size_t)a->lengths[i] : size - 1;
    memcpy(out, a->values[i], len);
    out[len] = 0;
}

// --- reads ---

static int add_event(void *ctx, const struct store_event *ev) {
    struct db_result *r = ctx;
    db_add_int(r, (int64_t)ev->seq);
    db_add_int(r, ev->at_ms);
    db_add_int(r, ev->type);
    db_add_int(r, (int64_t)ev->job);
    db_add_int(r, (int64_t)store_event_checksum(ev));
    db_add_cell(r, ev->data, ev->len);
    r->rows++;
    return 0;
}

// The journal is in order and without gaps: followers ask for its end twenty times a second.
static void read_journal(struct db_result *r, uint64_t after, uint64_t limit) {
    const struct sim_disk *d = db_disk();
    uint64_t first = d->journal.len ? d->journal.at[0].seq : 1;
    uint64_t at = after + 1 > first ? after + 1 - first : 0;
    if (at < d->journal_first)
        at = d->journal_first;
    for (; at < d->journal.len && (uint64_t)r->rows < limit; at++)
        add_event(r, &d->journal.at[at]);
}

static void read_snapshots(struct db_result *r) {
    const struct sim_disk *d = db_disk();
    for (int i = 0; i < STORE_SNAPSHOTS_KEPT; i++) {
        const struct sim_snapshot *s = &d->snapshots[i];
        if (!s->seq)
            continue;
        db_add_int(r, (int64_t)s->seq);
        db_add_int(r, (int64_t)s->len);
        db_add_int(r, (int64_t)store_sql_checksum(s->seq, s->data, s->len));
        db_add_int(r, (int64_t)((s->len + DB_PIECE_BYTES - 1) / DB_PIECE_BYTES));
        r->rows++;
    }
}

static void read_pieces(struct db_result *r, uint64_t seq, uint64_t from, uint64_t limit) {
    const struct sim_disk *d = db_disk();
    for (int i = 0; i < STORE_SNAPSHOTS_KEPT; i++) {
        const struct sim_snapshot *s = &d->snapshots[i];
        for (uint64_t n = from; s->seq == seq && n * DB_PIECE_BYTES < s->len && (uint64_t)r->rows < limit;
             n++) {
            size_t left = s->len - n * DB_PIECE_BYTES;
            db_add_int(r, (int64_t)n);
            db_add_cell(r, (const char *)s->data + n * DB_PIECE_BYTES,
                        left < DB_PIECE_BYTES ? left : DB_PIECE_BYTES);
            r->rows++;
        }
    }
}

static PGresult *read_rows(int statement, const struct pg_args *a) {
    static const int columns[PGR_COUNT] = {6, 6, 1, 2, 3, 4, 2};
    struct db_result *r = db_result_new(columns[statement]);
    struct sim_disk *d = db_disk();
    void *data = NULL;
    size_t len = 0;
    struct store_key key;
    char name[STORE_BLOB_NAME_MAX + 1];
    switch (statement) {
    case PGR_JOURNAL: read_journal(r, int_of(a, 0), int_of(a, 1)); break;
    case PGR_JOB_EVENTS:
        sim_disk_events(d, int_of(a, 2), int_of(a, 0), (uint32_t)int_of(a, 1), add_event, r);
        break;
    case PGR_TEXT:
        memcpy(key.bytes, a->values[0], sizeof key.bytes);
        if (sim_disk_text(d, &key, &data, &len, NULL) == 0) {
            db_add_cell(r, data, len);
            r->rows = 1;
        }
        break;
    case PGR_BLOB:
        text_of(a, 0, name, sizeof name);
        if (sim_disk_blob(d, name, &data, &len, NULL) == 0) {
            db_add_int(r, (int64_t)store_sql_checksum(strlen(name), data, len));
            db_add_cell(r, data, len);
            r->rows = 1;
        }
        break;
    case PGR_SNAPSHOTS: read_snapshots(r); break;
    case PGR_PIECES: read_pieces(r, int_of(a, 0), int_of(a, 1), int_of(a, 2)); break;
    default: sim_fail(db_sim(), "read %d is not known to the simulated database", statement);
    }
    free(data);
    return (PGresult *)(void *)r;
}

PGresult *__wrap_pg_run(struct pg_conn *c, int statement, const struct pg_args *args, const char *doing,
                        struct error *e) {
    struct error ignored;
    if (!c->db || c->broken) {
        error_set(e, EPIPE, "the database does not answer");
        return NULL;
    }
    if (!thread_current())
        return can_read(c, e) ? read_rows(statement, args) : NULL;
    struct db_call *k = xcalloc(1, sizeof *k);
    k->statement = statement;
    int numbers = 0, texts = 0;
    for (int i = 0; i < args->count; i++) {
        bool text = statement == PGW_CLAIM ? i < 2 : i == args->count - 1 && statement != PGW_CLAIM;
        if (text)
            text_of(args, i, k->texts[texts++], STORE_ADDRESS_MAX);
        else
            k->numbers[statement == PGW_CLAIM ? 2 : numbers++] = int_of(args, i);
    }
    int r = call(k, c, e ? e : &ignored);
    PGresult *rows = r == 0 ? (PGresult *)(void *)TAKE_PTR(k->rows) : NULL;
    db_call_end(k, r);
    return rows;
}

// --- transactions ---

int __wrap_pg_pipe_begin(struct pg_conn *c, struct error *e) {
    if (!c->db || c->broken)
        return error_set(e, EPIPE, "the database does not answer");
    struct db_session *s = session_of(c);
    db_work_free(s->work);
    s->work = xcalloc(1, sizeof *s->work);
    s->work->batch = store_batch_new();
    return 0;
}

static void add_row(struct db_work *w, const struct pg_args *a) {
    char user[200], project[200], name[400], nodes[2000];
    text_of(a, 4, user, sizeof user);
    text_of(a, 5, project, sizeof project);
    text_of(a, 6, name, sizeof name);
    text_of(a, 10, nodes, sizeof nodes);
    struct store_history row = {.id = int_of(a, 0),
                                .array = int_of(a, 1),
                                .index = (uint32_t)int_of(a, 2),
                                .state = (uint32_t)int_of(a, 3),
                                .user = user,
                                .project = project,
                                .name = name,
                                .nodes = nodes,
                                .submit_ms = (int64_t)int_of(a, 7),
                                .start_ms = (int64_t)int_of(a, 8),
                                .end_ms = (int64_t)int_of(a, 9),
                                .data = a->values[11],
                                .len = (size_t)a->lengths[11],
                                .cpus = int_of(a, 12),
                                .gpu_milli = int_of(a, 13)};
    store_batch_history(w->batch, &row);
}

static void add_statement(struct db_work *w, int statement, const struct pg_args *a) {
    char name[STORE_BLOB_NAME_MAX + 1];
    struct store_event ev;
    switch (statement) {
    case PGW_EVENT:
        ev = (struct store_event){.seq = int_of(a, 0),
                                  .at_ms = (int64_t)int_of(a, 1),
                                  .type = (uint32_t)int_of(a, 2),
                                  .job = int_of(a, 3),
                                  .data = a->values[5],
                                  .len = (size_t)a->lengths[5]};
        store_batch_event(w->batch, &ev);
        break;
    case PGW_TEXT:
        memcpy(w->key.bytes, a->values[0], sizeof w->key.bytes);
        free(w->text);
        w->text_len = (size_t)a->lengths[1];
        w->text = xmemdup(a->values[1], w->text_len ? w->text_len : 1);
        break;
    case PGW_OWNER: store_batch_text(w->batch, int_of(a, 0), &w->key, w->text, w->text_len); break;
    case PGW_RELEASE: store_batch_release(w->batch, int_of(a, 0)); break;
    case PGW_DROP_OWNER: break;  // the simulated disk does it at the release
    case PGW_HISTORY: add_row(w, a); break;
    case PGW_BLOB:
        text_of(a, 0, name, sizeof name);
        store_batch_blob(w->batch, name, a->values[2], (size_t)a->lengths[2]);
        break;
    case PGW_BLOB_DROP:
        text_of(a, 0, name, sizeof name);
        store_batch_blob(w->batch, name, NULL, 0);
        break;
    case PGW_LEVEL: store_batch_level(w->batch, (uint32_t)int_of(a, 0), "later"); break;
    case PGW_FENCE:
        w->fenced = !seams_planted(PLANTED_NO_FENCING);
        w->term = int_of(a, 0);
        w->commits = int_of(a, 1);
        w->lease_ms = (int64_t)int_of(a, 2);
        text_of(a, 3, w->holder, sizeof w->holder);
        break;
    case PGW_SNAPSHOT:
        w->snapshot_seq = int_of(a, 0);
        w->snapshot_len = int_of(a, 1);
        break;
    case PGW_SNAPSHOT_PIECE:
        vec_push(&w->pieces,
                 ((struct db_piece){int_of(a, 0), int_of(a, 1),
                                    xmemdup(a->values[2], a->lengths[2] ? (size_t)a->lengths[2] : 1),
                                    (size_t)a->lengths[2]}));
        break;
    case PGW_SNAPSHOT_PRUNE: break;
    case PGW_SNAPSHOT_DROP: w->drops = true; break;
    case PGW_PRUNE_JOURNAL:
        w->prunes = true;
        w->prune_seq = int_of(a, 0);
        w->prune_before_ms = (int64_t)int_of(a, 1);
        w->prune_rows = int_of(a, 2);
        break;
    default: sim_fail(db_sim(), "statement %d is not known to the simulated database", statement);
    }
}

int __wrap_pg_pipe_add(struct pg_conn *c, int statement, const struct pg_args *args, struct error *e) {
    add_statement(session_of(c)->work, statement, args);
    return 0;
}

int __wrap_pg_pipe_end(struct pg_conn *c, const char *doing, uint64_t *rows, struct error *e) {
    struct error ignored;
    struct db_call *k = xcalloc(1, sizeof *k);
    k->statement = -1;
    k->work = TAKE_PTR(session_of(c)->work);
    int r = call(k, c, e ? e : &ignored);
    if (r == 0 && rows)
        *rows += k->changed;
    db_call_end(k, r);
    return r;
}
