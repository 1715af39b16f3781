// libpq's calls with this project's errors and deadlines. Nothing here knows what is stored.
#include "pg.h"

#include <dlfcn.h>
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/text.h"

enum {
    SERVER_VERSION_MIN = 130000,
    SERVER_WAIT_MS = 10000,  // for an answer of a server that is there
};

struct pg_library pg_lib;

bool pg_is_place(const char *place) {
    return place && str_has_prefix(place, PG_PLACE);
}

int pg_load(struct error *e) {
    static bool loaded;
    if (loaded)
        return 0;
    void *library = dlopen("libpq.so.5", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return error_set(e, ENOENT,
                         "PostgreSQL's client library cannot be loaded (%s); install the package libpq5",
                         dlerror());
    struct pg_library found;
    const char *missing = NULL;
#define X(name)                                                                                              \
    {                                                                                                        \
        void *symbol = dlsym(library, #name);                                                                \
        missing = symbol ? missing : #name;                                                                  \
        memcpy(&found.name, &symbol, sizeof symbol);                                                         \
    }
    PG_FUNCTIONS(X)
#undef X
    if (missing)
        return error_set(e, ENOSYS,
                         "PostgreSQL's client library is too old: it has no %s; install libpq5 of version 14 "
                         "or later",
                         missing);
    pg_lib = found;
    loaded = true;
    return 0;
}

// --- values ---

void pg_int(struct pg_args *a, int64_t v) {
    a->numbers[a->count] = htobe64((uint64_t)v);
    a->values[a->count] = (const char *)&a->numbers[a->count];
    a->lengths[a->count++] = sizeof v;
}

void pg_bytes(struct pg_args *a, const void *data, size_t len) {
    a->values[a->count] = len ? data : "";
    a->lengths[a->count++] = (int)len;
}

void pg_text(struct pg_args *a, const char *text) {
    pg_bytes(a, text, strlen(text));
}

int64_t pg_get_int(const PGresult *r, int row, int column) {
    uint64_t v = 0;
    if (pg_lib.PQgetlength(r, row, column) == (int)sizeof v)
        memcpy(&v, pg_lib.PQgetvalue(r, row, column), sizeof v);
    return (int64_t)be64toh(v);
}

const char *pg_get_text(const PGresult *r, int row, int column) {
    return pg_lib.PQgetvalue(r, row, column);
}

// --- errors ---

// In one line, without the word that libpq puts before.
static void say_why(const char *message, char *out, size_t size) {
    size_t n = 0;
    for (const char *p = message ? message : ""; *p && n + 1 < size; p++)
        if (*p != '\n' || p[1])
            out[n++] = *p == '\n' || *p == '\t' ? ' ' : *p;
    out[n] = 0;
}

static int connection_failed(struct pg_conn *c, const char *doing, struct error *e) {
    char why[ERROR_TEXT_MAX / 2];
    c->broken = true;
    say_why(pg_lib.PQerrorMessage(c->db), why, sizeof why);
    return error_set(e, EPIPE, "%s: the database does not answer: %s", doing,
                     *why ? why : "the connection is gone");
}

static int result_failed(struct pg_conn *c, const PGresult *r, const char *doing, struct error *e) {
    char why[ERROR_TEXT_MAX / 2];
    const char *state = r ? pg_lib.PQresultErrorField(r, PG_DIAG_SQLSTATE) : NULL;
    // 57P01, 57P02: it was told to end, as all are when the server stops or crashes; 08: the connection.
    bool ends = state && (str_has_prefix(state, "57P") || str_has_prefix(state, "08"));
    if (!state || ends || pg_lib.PQstatus(c->db) == CONNECTION_BAD)
        return connection_failed(c, doing, e);
    say_why(pg_lib.PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY), why, sizeof why);
    int code = streq(state, "53100")            ? ENOSPC   // disk full
               : streq(state, "22012")          ? ESTALE   // the check of the lease, see pg_writer.c
               : str_has_prefix(state, "XX")    ? EBADMSG  // damaged
               : str_has_prefix(state, "25006") ? EROFS
               : str_has_prefix(state, "42501") ? EACCES
                                                : EIO;
    const char *remedy =
        code == ENOSPC  ? "; make room on the database's disk"
        : code == EROFS ? "; connect to the database's primary server: add target_session_attrs=read-write"
                        : "";
    return error_set(e, code, "%s: the database says: %s%s", doing, why, remedy);
}

// --- waiting ---

// Until something can be read, or also written. -ETIMEDOUT after the deadline.
static int wait_io(struct pg_conn *c, bool writes, int64_t deadline_ms, const char *doing, struct error *e) {
    int64_t left = deadline_ms - clock_mono_ms();
    struct pollfd p = {.fd = pg_lib.PQsocket(c->db), .events = (short)(POLLIN | (writes ? POLLOUT : 0))};
    int n = left > 0 ? poll(&p, 1, (int)left) : 0;
    if (n < 0 && errno == EINTR)
        return 0;
    if (n <= 0) {
        c->broken = true;
        return error_set(e, ETIMEDOUT, "%s: the database does not answer", doing);
    }
    return (p.revents & (POLLIN | POLLERR | POLLHUP)) && !pg_lib.PQconsumeInput(c->db)
               ? connection_failed(c, doing, e)
               : 0;
}

static int flush_out(struct pg_conn *c, const char *doing, struct error *e) {
    int64_t deadline = clock_mono_ms() + c->wait_ms;
    int left, r = 0;
    while (r == 0 && (left = pg_lib.PQflush(c->db)) != 0)
        r = left < 0 ? connection_failed(c, doing, e) : wait_io(c, true, deadline, doing, e);
    return r;
}

// The next result; NULL with 0: there is none.
static int next_result(struct pg_conn *c, PGresult **out, const char *doing, struct error *e) {
    int64_t deadline = clock_mono_ms() + c->wait_ms;
    int r = flush_out(c, doing, e);
    while (r == 0 && pg_lib.PQisBusy(c->db))
        r = wait_io(c, false, deadline, doing, e);
    if (r == 0)
        *out = pg_lib.PQgetResult(c->db);
    return r;
}

// --- statements ---

static bool is_good(const PGresult *r) {
    ExecStatusType status = pg_lib.PQresultStatus(r);
    return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

// The last result of what was sent.
static PGresult *take_answer(struct pg_conn *c, bool sent, const char *doing, struct error *e) {
    PGresult *last = NULL, *next = NULL;
    int r = sent ? 0 : connection_failed(c, doing, e);
    while (r == 0 && (r = next_result(c, &next, doing, e)) == 0 && next) {
        if (is_good(next)) {
            pg_result_done(&last);
            last = next;
        } else {
            r = result_failed(c, next, doing, e);
            pg_lib.PQclear(next);
        }
    }
    // What is left of a failed statement, so that the next one can be sent.
    while (r < 0 && !c->broken && next_result(c, &next, doing, NULL) == 0 && next)
        pg_lib.PQclear(next);
    if (r == 0)
        return last;
    pg_result_done(&last);
    return NULL;
}

static const int *binary(void) {
    static const int formats[PG_ARGS_MAX] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    return formats;
}

static bool is_usable(struct pg_conn *c, const char *doing, struct error *e) {
    if (c->db && !c->broken)
        return true;
    error_set(e, EPIPE, "%s: the database does not answer", doing);
    return false;
}

PGresult *pg_query(struct pg_conn *c, const char *sql, const struct pg_args *args, const char *doing,
                   struct error *e) {
    static const struct pg_args none;
    const struct pg_args *a = args ? args : &none;
    if (!is_usable(c, doing, e))
        return NULL;
    bool sent = pg_lib.PQsendQueryParams(c->db, sql, a->count, NULL, a->values, a->lengths, binary(), 1);
    return take_answer(c, sent, doing, e);
}

PGresult *pg_run(struct pg_conn *c, int statement, const struct pg_args *args, const char *doing,
                 struct error *e) {
    char name[12];
    snprintf(name, sizeof name, "s%d", statement);
    if (!is_usable(c, doing, e))
        return NULL;
    bool sent =
        pg_lib.PQsendQueryPrepared(c->db, name, args->count, args->values, args->lengths, binary(), 1);
    return take_answer(c, sent, doing, e);
}

int pg_exec(struct pg_conn *c, const char *sql, struct error *e) {
    struct error own = {0};
    if (!is_usable(c, "state database", e))
        return -EPIPE;
    cleanup_result PGresult *r = take_answer(c, pg_lib.PQsendQuery(c->db, sql), "state database", &own);
    if (!r && e)
        *e = own;
    return r ? 0 : -own.code;
}

int pg_first_int(struct pg_conn *c, const char *sql, int64_t fallback, int64_t *out, struct error *e) {
    struct error own = {0};
    cleanup_result PGresult *r = pg_query(c, sql, NULL, "reading the state database", &own);
    if (!r) {
        if (e)
            *e = own;
        return -own.code;
    }
    *out = pg_lib.PQntuples(r) && !pg_lib.PQgetisnull(r, 0, 0) ? pg_get_int(r, 0, 0) : fallback;
    return 0;
}

// A server says nothing unasked but that it ends a connection.
bool pg_alive(struct pg_conn *c) {
    if (!c->db || c->broken)
        return false;
    struct pollfd p = {.fd = pg_lib.PQsocket(c->db), .events = POLLIN};
    c->broken = poll(&p, 1, 0) > 0;
    return !c->broken;
}

// --- pipelines ---

int pg_pipe_begin(struct pg_conn *c, struct error *e) {
    if (!is_usable(c, "committing", e))
        return -EPIPE;
    return pg_lib.PQenterPipelineMode(c->db) ? 0 : connection_failed(c, "committing", e);
}

int pg_pipe_add(struct pg_conn *c, int statement, const struct pg_args *args, struct error *e) {
    char name[12];
    snprintf(name, sizeof name, "s%d", statement);
    if (!pg_lib.PQsendQueryPrepared(c->db, name, args->count, args->values, args->lengths, binary(), 1))
        return connection_failed(c, "committing", e);
    return flush_out(c, "committing", e);
}

int pg_pipe_end(struct pg_conn *c, const char *doing, uint64_t *rows, struct error *e) {
    PGresult *next = NULL;
    int failed = 0, r = pg_lib.PQpipelineSync(c->db) ? 0 : connection_failed(c, doing, e);
    for (bool synced = false; r == 0 && !synced;) {
        r = next_result(c, &next, doing, e);
        if (r < 0 || !next)
            continue;  // the end of one statement's results
        ExecStatusType status = pg_lib.PQresultStatus(next);
        if (status == PGRES_PIPELINE_SYNC)
            synced = true;
        else if (status != PGRES_PIPELINE_ABORTED && !is_good(next) && !failed)
            failed = result_failed(c, next, doing, e);
        else if (rows && is_good(next) && status == PGRES_COMMAND_OK)
            *rows += (uint64_t)strtoull(pg_lib.PQcmdTuples(next), NULL, 10);
        pg_lib.PQclear(next);
        if (c->broken)
            r = failed ? failed : -EPIPE;
    }
    if (r == 0 && !pg_lib.PQexitPipelineMode(c->db))
        r = connection_failed(c, doing, e);
    return r < 0 ? r : failed;
}

// --- connecting ---

static bool is_private_host(const char *host) {
    return str_empty(host) || *host == '/' || *host == '@' || streq(host, "localhost") ||
           streq(host, "127.0.0.1") || streq(host, "::1");
}

static const char *option_of(const PQconninfoOption *all, const char *name) {
    for (const PQconninfoOption *o = all; o && o->keyword; o++)
        if (streq(o->keyword, name))
            return o->val;
    return NULL;
}

// Before anything is sent: what the address asks for.
static int check_place(const char *place, struct error *e) {
    char *wrong = NULL;
    PQconninfoOption *all = pg_lib.PQconninfoParse(place, &wrong);
    int r = 0;
    if (!all) {
        char why[ERROR_TEXT_MAX / 2];
        say_why(wrong, why, sizeof why);
        pg_lib.PQfreemem(wrong);
        return error_set(e, EINVAL, "[store]: database is not an address that PostgreSQL understands: %s",
                         why);
    }
    const char *mode = option_of(all, "sslmode"), *host = option_of(all, "host"),
               *address = option_of(all, "hostaddr");
    if (option_of(all, "password"))
        r = error_set(
            e, EINVAL,
            "[store]: database holds a password, which others may read; put it into a file and name "
            "that with passfile=FILE");
    else if ((!is_private_host(host) || !is_private_host(address)) &&
             (!mode || (!streq(mode, "verify-full") && !streq(mode, "verify-ca"))))
        r = error_set(e, EINVAL,
                      "[store]: the database is on another machine: add sslmode=verify-full and "
                      "sslrootcert=FILE to its address, so that nobody reads or changes what is sent");
    pg_lib.PQconninfoFree(all);
    return r;
}

static int check_setting(struct pg_conn *c, const char *sql, const char *name, const char *bad,
                         struct error *e) {
    cleanup_result PGresult *r = pg_query(c, sql, NULL, "asking for the database's settings", e);
    if (!r)
        return e && e->code ? -e->code : -EIO;
    if (pg_lib.PQntuples(r) && streq(pg_get_text(r, 0, 0), bad))
        return error_set(
            e, EINVAL,
            "the database is set to %s = %s and would lose what was acknowledged when its machine "
            "fails; set it to on (ALTER SYSTEM SET %s = on) and reload it",
            name, bad, name);
    return 0;
}

static int check_server(struct pg_conn *c, struct error *e) {
    if (pg_lib.PQserverVersion(c->db) < SERVER_VERSION_MIN)
        return error_set(e, EPROTONOSUPPORT, "the database is PostgreSQL %d; version 13 or later is needed",
                         pg_lib.PQserverVersion(c->db) / 10000);
    int r = check_setting(c, "SELECT current_setting('fsync')", "fsync", "off", e);
    if (r == 0)
        r = check_setting(c, "SELECT current_setting('synchronous_commit')", "synchronous_commit", "off", e);
    return r < 0
               ? r
               : check_setting(c, "SELECT current_setting('full_page_writes')", "full_page_writes", "off", e);
}

static int prepare_all(struct pg_conn *c, const char *const *statements, int count, struct error *e) {
    for (int i = 0; i < count; i++) {
        char name[12];
        snprintf(name, sizeof name, "s%d", i);
        bool sent = pg_lib.PQsendPrepare(c->db, name, statements[i], 0, NULL);
        cleanup_result PGresult *r = take_answer(c, sent, "state database", e);
        if (!r)
            return e && e->code ? -e->code : -EIO;
    }
    return 0;
}

static void ignore_notice(void *ctx, const PGresult *r) {
}

static int connect_to(struct pg_conn *c, const char *place, const char *who, struct error *e) {
    // The last ones win over what comes before; `dbname` is the whole address.
    const char *const names[] = {"connect_timeout",
                                 "tcp_user_timeout",
                                 "keepalives_idle",
                                 "dbname",
                                 "application_name",
                                 "client_encoding",
                                 NULL};
    const char *const values[] = {"3", "5000", "5", place, who, "UTF8", NULL};
    c->db = pg_lib.PQconnectdbParams(names, values, 1);
    if (c->db && pg_lib.PQstatus(c->db) == CONNECTION_OK)
        return 0;
    char why[ERROR_TEXT_MAX / 2];
    say_why(c->db ? pg_lib.PQerrorMessage(c->db) : "out of memory", why, sizeof why);
    return error_set(e, EPIPE, "the database cannot be reached: %s", why);
}

int pg_open(struct pg_conn *c, const char *place, const char *who, const char *const *statements, int count,
            struct error *e) {
    struct error own = {0};
    *c = (struct pg_conn){.wait_ms = SERVER_WAIT_MS};
    int r = pg_load(&own);
    if (r == 0)
        r = check_place(place, &own);
    if (r == 0)
        r = connect_to(c, place, who, &own);
    if (r == 0) {
        pg_lib.PQsetNoticeReceiver(c->db, ignore_notice, NULL);
        pg_lib.PQsetnonblocking(c->db, 1);
        r = check_server(c, &own);
    }
    if (r == 0)
        r = pg_exec(c, "SET search_path = acequia", &own);
    if (r == 0)
        r = prepare_all(c, statements, count, &own);
    if (r < 0) {
        pg_close(c);
        if (e)
            *e = own;
    }
    return r;
}

void pg_close(struct pg_conn *c) {
    if (c->db)
        pg_lib.PQfinish(c->db);
    *c = (struct pg_conn){.wait_ms = c->wait_ms, .broken = true};
}
