// Who leads, in a database that several controllers share. The lease is one row with a term, a number that grows with
// every leader, and a time at which it ends, by the clock of the database: clocks of controllers do not matter. A
// leader renews it with every commit, or when it has been idle for a third of its length. Others read it four times a
// second and take it when it has ended. Runs on the writer's thread.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>

#include "base/text.h"
#include "pg_store.h"

enum { LOOK_MS = 250 };

int64_t pg_lease_clock_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

bool pg_lease_due(struct pg_store *s, int64_t *wait_ms) {
    int64_t every = s->lease.mine ? s->lease_ms / 3 : LOOK_MS;
    int64_t since = pg_lease_clock_ms() - s->lease_asked_ms;
    *wait_ms = since >= 0 && since < every ? every - since : 0;
    if (s->fenced)
        *wait_ms = 1000;
    return !s->fenced && (*wait_ms == 0 || s->raise_to || s->give_up);
}

static int add_nothing(struct pg_store *s, const void *what, struct error *e) {
    return 0;
}

static int raise_term(struct pg_store *s, uint64_t term, uint64_t to, struct error *e) {
    struct pg_args a = {0};
    pg_int(&a, (int64_t)term);
    pg_int(&a, (int64_t)to);
    pg_text(&a, s->holder);
    cleanup_result PGresult *r = pg_run(&s->writer.conn, PGW_RAISE, &a, "raising the term", e);
    if (!r)
        return -e->code;
    if (!pg_lib.PQntuples(r))
        return error_set(e, ESTALE, "another controller leads now");
    pthread_mutex_lock(&s->lock);
    s->lease.term = to;
    s->raise_to = 0;
    s->writer.commits = 0;
    pthread_mutex_unlock(&s->lock);
    return 0;
}

// Renews the lease. Without the lock.
static int keep(struct pg_store *s, uint64_t term, uint64_t raise_to, struct error *e) {
    int r = pg_writer_ready(s, e);
    if (r == 0 && raise_to > term)
        r = raise_term(s, term, raise_to, e);
    return r < 0 ? r : pg_writer_fenced(s, add_nothing, NULL, "renewing the lease", NULL, e);
}

static int look(struct pg_store *s, struct store_lease *out, struct error *e) {
    struct pg_args none = {0};
    cleanup_result PGresult *r = pg_run(&s->writer.conn, PGW_LEASE, &none, "reading the lease", e);
    if (!r)
        return -e->code;
    if (!pg_lib.PQntuples(r))
        return error_set(e, EBADMSG, "the database has no lease; restore it from a backup");
    *out = (struct store_lease){
        .known = true, .term = (uint64_t)pg_get_int(r, 0, 0), .left_ms = pg_get_int(r, 0, 3)};
    snprintf(out->address, sizeof out->address, "%s", pg_get_text(r, 0, 2));
    return 0;
}

static int take(struct pg_store *s, struct store_lease *out, struct error *e) {
    struct pg_args none = {0}, a = {0};
    cleanup_result PGresult *ended = pg_run(&s->writer.conn, PGW_END_SESSION, &none, "taking the lease", e);
    if (!ended)
        return -e->code;
    pg_text(&a, s->holder);
    pg_text(&a, s->address);
    pg_int(&a, s->lease_ms);
    cleanup_result PGresult *r = pg_run(&s->writer.conn, PGW_CLAIM, &a, "taking the lease", e);
    if (!r)
        return -e->code;
    if (!pg_lib.PQntuples(r))
        return 0;  // another was faster
    *out = (struct store_lease){
        .known = true, .mine = true, .term = (uint64_t)pg_get_int(r, 0, 0), .left_ms = s->lease_ms};
    snprintf(out->address, sizeof out->address, "%s", s->address);
    s->writer.commits = 0;
    s->writer.unknown = false;
    s->writer.unknown_ticket = s->writer.done_ticket = 0;
    return 0;
}

// Looks who leads, and takes the lease when it has ended and `claims`. Without the lock.
static int watch(struct pg_store *s, bool claims, struct store_lease *out, struct error *e) {
    int r = pg_writer_ready(s, e);
    if (r == 0)
        r = look(s, out, e);
    if (r == 0 && claims && out->left_ms <= 0)
        r = take(s, out, e);
    return r;
}

void pg_lease_step(struct pg_store *s) {
    struct error error = {0};
    bool mine = s->lease.mine, claims = s->claims;
    uint64_t term = s->lease.term, raise_to = s->raise_to;
    int64_t before = s->lease_asked_ms = pg_lease_clock_ms();
    struct store_lease found = {0};
    if (s->give_up) {
        pg_lease_give_up(s);
        return;
    }
    pthread_mutex_unlock(&s->lock);
    int r = mine ? keep(s, term, raise_to, &error) : watch(s, claims, &found, &error);
    pthread_mutex_lock(&s->lock);
    if (!mine) {
        if (r < 0)
            snprintf(s->lease.problem, sizeof s->lease.problem, "%s", error.text);
        else
            s->lease = found;
        s->lease_read_ms = before;
        if (found.mine)
            s->discard = true;
        eventfd_write(s->event_fd, 1);
    } else if (r == -ESTALE) {
        pg_writer_fence(s, &error);
    } else if (r < 0) {
        snprintf(s->lease.problem, sizeof s->lease.problem, "%s", error.text);
        s->lease_asked_ms = before - s->lease_ms / 3 + LOOK_MS;  // again soon
    } else {
        s->lease.problem[0] = 0;
    }
}

void pg_lease_give_up(struct pg_store *s) {
    bool mine = s->lease.mine && !s->fenced && !s->writer.conn.broken;
    struct pg_args a = {0};
    pg_int(&a, (int64_t)s->lease.term);
    pg_text(&a, s->holder);
    s->give_up = false;
    s->claims = false;
    s->lease.mine = false;
    if (!mine)
        return;
    pthread_mutex_unlock(&s->lock);
    cleanup_result PGresult *r = pg_run(&s->writer.conn, PGW_GIVE_UP, &a, "giving up the lease", NULL);
    pthread_mutex_lock(&s->lock);
}

// Every controller has a session to write with, also those that follow.
int pg_lease_others(struct store *st) {
    static const char sql[] = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                              " AND application_name LIKE 'acequia writer%' AND pid NOT IN (SELECT backend FROM lease)";
    struct pg_conn *c = pg_reader_conn(pg_store_of(st));
    int64_t n = 0;
    return c->broken || pg_first_int(c, sql, 0, &n, NULL) < 0 ? -1 : (int)n;
}
