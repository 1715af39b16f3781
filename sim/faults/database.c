// The server's side: the row of the lease and who waits for it, transactions on their way, faults.
#include "database.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "database_calls.h"
#include "fault_sim.h"
#include "seams.h"

enum {
    NOTICED_MS = 1500,
    SPEAK_SLACK_MS = 60,
};

struct lease_row {
    uint64_t term, commits;
    char holder[STORE_ADDRESS_MAX], address[STORE_ADDRESS_MAX];
    uint32_t backend;
    int64_t until_ms;  // by the database's clock
};

struct lease_was {
    uint64_t seq;  // of the newest record then
    struct lease_row row;
};

static struct {
    struct sim *sim;
    bool away, full;
    int64_t slow_ms, clock_ms, jumped_ms, claimed_ms;
    int64_t cut_until_ms[HEADS_MAX];
    uint32_t lose_answers;
    uint64_t known_commits
        [HEADS_MAX];  // for planted bugs: what each has heard of, and whether an answer is missing
    bool missing[HEADS_MAX];
    struct lease_row lease;
    VEC(struct lease_was) leases;  // for restores
    struct db_call *locked_by;
    VEC(struct db_call *) waiting;
    VEC(struct db_call *) calls;  // under way; NULL: a place for the next
    uint64_t calls_made;
    VEC(struct db_session *) sessions;
    VEC(struct db_piece) pieces;  // of snapshots that are not complete
} db;

static int64_t db_now_ms(void) {
    return db.sim->now_ms + db.clock_ms;
}

// --- results ---

void db_add_cell(struct db_result *r, const void *data, size_t len) {
    char *copy = xmalloc(len + 1);
    if (len)
        memcpy(copy, data, len);
    copy[len] = 0;
    vec_push(&r->cells, ((struct db_cell){copy, (int)len}));
}

void db_add_int(struct db_result *r, int64_t v) {
    uint64_t big = htobe64((uint64_t)v);
    db_add_cell(r, &big, sizeof big);
}

struct db_result *db_result_new(int columns) {
    struct db_result *r = xcalloc(1, sizeof *r);
    r->columns = columns;
    return r;
}

void db_result_free(struct db_result *r) {
    for (uint32_t i = 0; r && i < r->cells.len; i++)
        free(r->cells.at[i].data);
    if (r)
        vec_done(&r->cells);
    free(r);
}

static const struct db_cell *cell_of(const PGresult *r, int row, int column) {
    const struct db_result *d = (const struct db_result *)r;
    return &d->cells.at[row * d->columns + column];
}

static int lib_ntuples(const PGresult *r) {
    return ((const struct db_result *)r)->rows;
}

static char *lib_getvalue(const PGresult *r, int row, int column) {
    return cell_of(r, row, column)->data;
}

static int lib_getlength(const PGresult *r, int row, int column) {
    return cell_of(r, row, column)->len;
}

static int lib_getisnull(const PGresult *r, int row, int column) {
    return 0;
}

static void lib_clear(PGresult *r) {
    db_result_free((struct db_result *)r);
}

// --- life ---

void db_work_free(struct db_work *w) {
    if (!w)
        return;
    store_batch_free(w->batch);
    free(w->text);
    for (uint32_t i = 0; i < w->pieces.len; i++)
        free(w->pieces.at[i].data);
    vec_done(&w->pieces);
    free(w);
}

static void free_call(uint32_t number) {
    struct db_call *c = db.calls.at[number];
    if (!c)
        return;
    db_work_free(c->work);
    db_result_free(c->rows);
    free(c);
    db.calls.at[number] = NULL;
}

static bool is_settled(const struct db_call *c) {
    return c->state == CALL_ANSWERED || c->state == CALL_LOST;
}

static void put_call(struct db_call *c) {
    uint32_t at = 0;
    while (at < db.calls.len && db.calls.at[at])
        at++;
    if (at == db.calls.len)
        vec_push(&db.calls, c);
    else
        db.calls.at[at] = c;
    c->number = at;
    c->id = ++db.calls_made;
}

static void forget_waiting(const struct db_call *c) {
    for (uint32_t i = db.waiting.len; i-- > 0;)
        if (db.waiting.at[i] == c)
            vec_remove(&db.waiting, i);
}

// Those that nobody waits for any more, neither here nor there.
static void sweep(void) {
    for (uint32_t i = 0; i < db.calls.len; i++)
        if (db.calls.at[i] && db.calls.at[i]->alone && is_settled(db.calls.at[i])) {
            forget_waiting(db.calls.at[i]);
            free_call(i);
        }
}

static void drop_pieces(void) {
    for (uint32_t i = 0; i < db.pieces.len; i++)
        free(db.pieces.at[i].data);
    vec_clear(&db.pieces);
}

void database_begin(struct sim *s) {
    db.sim = s;
    db.lease = (struct lease_row){.until_ms = INT64_MIN};
    pg_lib.PQntuples = lib_ntuples;
    pg_lib.PQgetvalue = lib_getvalue;
    pg_lib.PQgetlength = lib_getlength;
    pg_lib.PQgetisnull = lib_getisnull;
    pg_lib.PQclear = lib_clear;
}

void database_end(void) {
    for (uint32_t i = 0; i < db.calls.len; i++)
        free_call(i);
    for (uint32_t i = 0; i < db.sessions.len; i++) {
        db_work_free(db.sessions.at[i]->work);
        free(db.sessions.at[i]);
    }
    drop_pieces();
    vec_done(&db.calls);
    vec_done(&db.sessions);
    vec_done(&db.pieces);
    vec_done(&db.waiting);
    vec_done(&db.leases);
    memset(&db, 0, sizeof db);
}

// --- the server ---

static int64_t travel_ms(uint32_t head, int64_t from_ms) {
    int64_t at = from_ms + some_ms(db.sim, 0, 2) + (db.slow_ms ? some_ms(db.sim, 0, db.slow_ms) : 0);
    return db.cut_until_ms[head] > at ? db.cut_until_ms[head] : at;
}

static void wake(const struct db_call *c, int64_t at_ms) {
    if (c->thread)
        thread_wake(c->thread, at_ms);
}

static void answer(struct db_call *c, int code) {
    c->state = CALL_ANSWERED;
    c->code = code;
    if (!c->session->open) {
        c->state = CALL_LOST;
        return;
    }
    if (c->statement < 0 && code == 0 && db.lose_answers) {
        db.lose_answers--;
        note(db.sim, "database: the answer to a commit of controller %u is lost", c->session->head);
        c->state = CALL_LOST;
        c->session->open = false;
        if (some_ms(db.sim, 0, 2))  // else it is never told
            c->session->lost_ms = db.sim->now_ms + some_ms(db.sim, 1, NOTICED_MS);
    }
    c->answer_ms = travel_ms(c->session->head, db.sim->now_ms);
    int64_t at = c->state == CALL_LOST ? c->session->lost_ms : c->answer_ms;
    if (at)
        wake(c, at);
}

static void execute(struct db_call *c);

static void unlock(struct db_call *c) {
    if (db.locked_by != c)
        return;
    db.locked_by = NULL;
    while (!db.locked_by && db.waiting.len) {
        struct db_call *next = db.waiting.at[0];
        vec_remove(&db.waiting, 0);
        if (next->state == CALL_WAITS)
            execute(next);
    }
}

static void will_commit(struct db_call *c) {
    db.locked_by = c;
    c->state = CALL_COMMITS;
    bool slow = !db.sim->cleaning && rand_below(&db.sim->rand, 12) == 0;
    int64_t took = some_ms(db.sim, 0, slow ? 1500 : 6);
    after(db.sim, took + (db.slow_ms ? some_ms(db.sim, 0, db.slow_ms) : 0), HAPPEN_DATABASE, c->number, c->id,
          0);
}

uint64_t db_last_record(void) {
    const struct sim_disk *d = db.sim->disk;
    return d->journal.len ? d->journal.at[d->journal.len - 1].seq : 0;
}

// What a unique index says.
static bool has_records(const struct db_work *w) {
    return w->batch->events.len && w->batch->events.at[0].seq <= db_last_record();
}

static bool counts(void) {
    return !seams_planted(PLANTED_ANSWER_TAKEN_AS_FAILURE) && !seams_planted(PLANTED_ANSWER_TAKEN_AS_SUCCESS);
}

static void execute_work(struct db_call *c) {
    const struct db_work *w = c->work;
    bool writes = !store_batch_empty(w->batch) || w->pieces.len;
    if (has_records(w)) {
        answer(c, -EIO);
    } else if (w->fenced && (db.lease.term != w->term || (counts() && db.lease.commits + 1 != w->commits) ||
                             !streq(db.lease.holder, w->holder))) {
        note(db.sim, "database: controller %u does not lead in term %llu any more", c->session->head,
             (unsigned long long)w->term);
        answer(c, -ESTALE);
    } else if (db.full && writes) {
        answer(c, -ENOSPC);
    } else {
        c->until_ms = db_now_ms() + w->lease_ms;
        will_commit(c);
        return;
    }
}

static struct db_result *lease_result(uint32_t head) {
    struct db_result *r = db_result_new(5);
    bool done = db.missing[head] && seams_planted(PLANTED_ANSWER_TAKEN_AS_SUCCESS);
    uint64_t commits = counts() ? db.lease.commits : db.known_commits[head] + done;
    db.known_commits[head] += done;
    db.missing[head] = false;
    int64_t left = db.lease.until_ms == INT64_MIN ? -86400000 : db.lease.until_ms - db_now_ms();
    r->rows = 1;
    db_add_int(r, (int64_t)db.lease.term);
    db_add_int(r, (int64_t)commits);
    db_add_cell(r, db.lease.address, strlen(db.lease.address));
    db_add_int(r, left);
    db_add_cell(r, db.lease.holder, strlen(db.lease.holder));
    return r;
}

// Its transaction is undone, unless it has been committed and waits for the disk alone.
static void end_session(uint32_t number) {
    struct db_session *s = number ? db.sessions.at[number - 1] : NULL;
    if (!s || !s->open)
        return;
    s->open = false;
    s->lost_ms = db.sim->now_ms + some_ms(db.sim, 1, NOTICED_MS);
    for (uint32_t i = 0; i < db.calls.len; i++) {
        struct db_call *c = db.calls.at[i];
        if (!c || c->session != s)
            continue;
        bool undone = c->state == CALL_ON_ITS_WAY || c->state == CALL_WAITS ||
                      (c->state == CALL_COMMITS && rand_below(&db.sim->rand, 2));
        if (!undone)
            continue;
        c->state = CALL_LOST;
        wake(c, s->lost_ms);
        unlock(c);
    }
}

static bool is_over(void) {
    return db.lease.until_ms < db_now_ms();
}

static void execute_statement(struct db_call *c) {
    bool applies = false;
    switch (c->statement) {
    case PGW_LEASE: c->rows = lease_result(c->session->head); break;
    case PGW_END_SESSION:
        if (is_over() && db.lease.backend != c->session->number)
            end_session(db.lease.backend);
        c->rows = db_result_new(1);
        break;
    case PGW_CLAIM: applies = is_over(); break;
    case PGW_RAISE:
        applies = db.lease.term == c->numbers[0] && c->numbers[1] > c->numbers[0] &&
                  streq(db.lease.holder, c->texts[0]);
        break;
    case PGW_GIVE_UP: applies = db.lease.term == c->numbers[0] && streq(db.lease.holder, c->texts[0]); break;
    default: sim_fail(db.sim, "statement %d is not known to the simulated database", c->statement);
    }
    c->until_ms = db_now_ms() + (int64_t)c->numbers[2];
    if (applies) {
        will_commit(c);
        return;
    }
    if (!c->rows)
        c->rows = db_result_new(1);
    answer(c, 0);
}

static bool needs_row(const struct db_call *c) {
    return c->statement < 0
               ? c->work->fenced
               : c->statement == PGW_CLAIM || c->statement == PGW_RAISE || c->statement == PGW_GIVE_UP;
}

static void execute(struct db_call *c) {
    if (needs_row(c) && db.locked_by) {
        c->state = CALL_WAITS;
        vec_push(&db.waiting, c);
    } else if (c->statement < 0) {
        execute_work(c);
    } else {
        execute_statement(c);
    }
}

// --- commits ---

static void keep_pieces(struct db_work *w) {
    for (uint32_t i = 0; i < w->pieces.len; i++) {
        struct db_piece *p = &w->pieces.at[i];
        for (uint32_t k = 0; k < db.pieces.len; k++)
            if (db.pieces.at[k].seq == p->seq && db.pieces.at[k].n == p->n) {
                free(db.pieces.at[k].data);
                vec_remove(&db.pieces, k);
                break;
            }
        vec_push(&db.pieces, *p);
    }
    w->pieces.len = 0;
}

static void keep_snapshot(uint64_t seq, uint64_t len) {
    struct sim_disk *d = db.sim->disk;
    char *data = xmalloc(len + 1);
    uint64_t got = 0;
    for (uint32_t i = db.pieces.len; i-- > 0;) {
        struct db_piece *p = &db.pieces.at[i];
        if (p->seq != seq)
            continue;
        memcpy(data + p->n * DB_PIECE_BYTES, p->data, p->len);
        got += p->len;
        free(p->data);
        vec_remove(&db.pieces, i);
    }
    if (got != len)
        sim_fail(db.sim, "a snapshot of %llu bytes has %llu", (unsigned long long)len,
                 (unsigned long long)got);
    if (d->snapshots[0].seq == seq) {
        free(d->snapshots[0].data);
        d->snapshots[0] = (struct sim_snapshot){seq, data, len};
    } else {
        sim_disk_keep_snapshot(d, seq, data, len);
    }
}

static void prune(struct db_call *c, const struct db_work *w) {
    struct sim_disk *d = db.sim->disk;
    while (c->changed < w->prune_rows && d->journal_first < d->journal.len &&
           d->journal.at[d->journal_first].seq < w->prune_seq &&
           d->journal.at[d->journal_first].at_ms < w->prune_before_ms) {
        d->journal_first++;
        c->changed++;
    }
}

static void commit_work(struct db_call *c) {
    struct db_work *w = c->work;
    const struct store_batch *b = w->batch;
    if (b->events.len && b->events.at[0].seq != db_last_record() + 1) {
        if (b->events.at[0].seq > db_last_record() + 1)
            sim_fail(db.sim, "controller %u writes record %llu after record %llu of the journal",
                     c->session->head, (unsigned long long)b->events.at[0].seq,
                     (unsigned long long)db_last_record());
        c->code = -EIO;
        return;
    }
    keep_pieces(w);
    if (w->snapshot_seq)
        keep_snapshot(w->snapshot_seq, w->snapshot_len);
    if (w->drops && db.pieces.len) {
        c->changed += db.pieces.len;
        drop_pieces();
    }
    if (w->prunes)
        prune(c, w);
    if (!store_batch_empty(w->batch))
        sim_disk_keep(db.sim->disk, TAKE_PTR(w->batch));
    if (w->fenced) {
        db.lease.commits = w->commits;
        db.lease.backend = c->session->number;
        db.lease.until_ms = c->until_ms;
    }
}

static void commit_statement(struct db_call *c) {
    struct lease_row *l = &db.lease;
    c->rows = db_result_new(1);
    switch (c->statement) {
    case PGW_CLAIM:
        l->term++;
        l->commits = 0;
        snprintf(l->holder, sizeof l->holder, "%s", c->texts[0]);
        snprintf(l->address, sizeof l->address, "%s", c->texts[1]);
        l->backend = c->session->number;
        l->until_ms = c->until_ms;
        db.known_commits[c->session->head] = 0;
        db.missing[c->session->head] = false;
        db.claimed_ms = db.sim->now_ms;
        c->rows->rows = 1;
        db_add_int(c->rows, (int64_t)l->term);
        note(db.sim, "database: controller %u has the lease, term %llu", c->session->head,
             (unsigned long long)l->term);
        break;
    case PGW_RAISE:
        l->term = c->numbers[1];
        l->commits = 0;
        c->rows->rows = 1;
        db_add_int(c->rows, (int64_t)l->term);
        break;
    default: l->until_ms = INT64_MIN; break;
    }
}

static void commit(struct db_call *c) {
    c->code = 0;
    if (c->statement < 0)
        commit_work(c);
    else
        commit_statement(c);
    vec_push(&db.leases, ((struct lease_was){db_last_record(), db.lease}));
    struct sim_head *before = db.sim->head;
    heads_use(db.sim, c->session->head);  // whose journal it is now
    check_journal(db.sim);
    heads_use(db.sim, before->number);
    answer(c, c->code);
    unlock(c);
}

static void happen(struct sim *s, uint32_t number, uint64_t id) {
    struct db_call *c = db.calls.at[number];
    if (!c || c->id != id)
        return;
    if (c->state == CALL_COMMITS) {
        commit(c);
        return;
    }
    if (c->state != CALL_ON_ITS_WAY)
        return;
    if (db.cut_until_ms[c->session->head] > s->now_ms) {
        queue_put(&s->queue, db.cut_until_ms[c->session->head] + 1, HAPPEN_DATABASE, number, id, 0);
    } else if (!c->session->open && rand_below(&s->rand, 2)) {
        c->state = CALL_LOST;
    } else if (db.away) {
        c->state = CALL_LOST;
    } else {
        execute(c);
    }
}

void database_event(struct sim *s, uint32_t number, uint64_t id) {
    happen(s, number, id);
    sweep();
}

// --- faults ---

void database_away(struct sim *s, bool away) {
    if (db.away == away)
        return;
    db.away = away;
    note(s, "database: %s", away ? "killed" : "is there again");
    if (!away)
        return;
    for (uint32_t i = 0; i < db.sessions.len; i++) {
        struct db_session *one = db.sessions.at[i];
        if (!one->open)
            continue;
        one->open = false;
        if (rand_below(&s->rand, 4))
            one->lost_ms = s->now_ms + some_ms(s, 1, NOTICED_MS);
    }
    for (uint32_t i = 0; i < db.calls.len; i++) {
        struct db_call *c = db.calls.at[i];
        if (!c)
            continue;
        if (c->state == CALL_COMMITS && rand_below(&s->rand, 2))
            commit(c);
        if (c->state == CALL_ANSWERED && c->answer_ms <= s->now_ms)
            continue;
        if (c->state == CALL_LOST && !c->session->lost_ms)
            continue;
        c->state = CALL_LOST;
        if (c->session->lost_ms > s->now_ms)
            wake(c, c->session->lost_ms);
    }
    vec_clear(&db.waiting);
    db.locked_by = NULL;
}

void database_slow(struct sim *s, int64_t by_ms) {
    db.slow_ms = by_ms;
}

void database_full(struct sim *s, bool full) {
    db.full = full;
}

void database_cut(struct sim *s, uint32_t head, int64_t until_ms) {
    note(s, "database: cut off from controller %u", head);
    db.cut_until_ms[head] = until_ms;
}

void database_lose_answer(struct sim *s, uint32_t count) {
    db.lose_answers = count;
}

void database_clock(struct sim *s, int64_t by_ms) {
    note(s, "database: its clock jumps by %lld ms", (long long)by_ms);
    db.clock_ms += by_ms;
    db.jumped_ms = s->now_ms;
}

void database_restore(struct sim *s, uint64_t seq) {
    database_away(s, true);
    sim_disk_restore(s->disk, seq);
    uint64_t last = db_last_record();
    drop_pieces();
    db.lease = (struct lease_row){.until_ms = INT64_MIN};
    for (uint32_t i = 0; i < db.leases.len; i++)
        if (db.leases.at[i].seq <= last)
            db.lease = db.leases.at[i].row;
    for (uint32_t i = db.leases.len; i-- > 0;)
        if (db.leases.at[i].seq > last)
            vec_remove(&db.leases, i);
    db.jumped_ms = s->now_ms;
}

bool database_leader(const struct sim *s, uint64_t *term, uint32_t *head) {
    *term = db.lease.term;
    *head = db.lease.address[0] ? (uint32_t)(db.lease.address[1] - '0') : 0;
    return db.lease.address[0];
}

bool database_led_by_another(const struct sim *s, uint64_t term) {
    bool jumped = db.jumped_ms && db.claimed_ms - db.jumped_ms < (int64_t)s->plan->lease_ms + 1000;
    bool other = db.lease.address[0] && (uint32_t)(db.lease.address[1] - '0') != s->head->number;
    return other && db.lease.term > term && !jumped && s->now_ms - db.claimed_ms > SPEAK_SLACK_MS;
}

// --- for its clients ---

bool db_reachable(uint32_t head) {
    return !db.away && db.cut_until_ms[head] <= db.sim->now_ms;
}

struct db_session *db_session_new(uint32_t head) {
    struct db_session *s = xcalloc(1, sizeof *s);
    *s = (struct db_session){.number = db.sessions.len + 1, .head = head, .open = true};
    vec_push(&db.sessions, s);
    return s;
}

struct sim *db_sim(void) {
    return db.sim;
}

struct sim_disk *db_disk(void) {
    return db.sim->disk;
}

int64_t db_cut_until_ms(uint32_t head) {
    return db.cut_until_ms[head];
}

int64_t db_slow_ms(void) {
    return db.slow_ms;
}

void db_call_begin(struct db_call *c) {
    put_call(c);
    if (thread_dead(c->thread)) {
        c->state = CALL_LOST;
    } else if (thread_drains(c->thread)) {
        if (db_reachable(c->session->head) && c->session->open && !db.locked_by)
            execute(c);
        if (c->state == CALL_COMMITS)
            commit(c);
    } else {
        int64_t at = travel_ms(c->session->head, db.sim->now_ms);
        queue_put(&db.sim->queue, at, HAPPEN_DATABASE, c->number, c->id, 0);
    }
}

void db_call_end(struct db_call *c, int code) {
    uint32_t head = c->session->head;
    if (code == 0 && c->work && c->work->fenced)
        db.known_commits[head] = c->work->commits;
    db.missing[head] |= c->work && (code == -EPIPE || code == -ETIMEDOUT);
    c->alone = true;
    c->thread = NULL;
}
