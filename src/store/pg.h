// Thin help around libpq: the library is loaded when a cluster uses PostgreSQL, so that programs run on machines
// without it. Every wait has a deadline; all values travel in binary. Internal to the store.
#pragma once
#include <postgresql/libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

// What is used of libpq.
#define PG_FUNCTIONS(X)                                                                                      \
    X(PQconnectdbParams)                                                                                     \
    X(PQfinish)                                                                                              \
    X(PQstatus)                                                                                              \
    X(PQerrorMessage)                                                                                        \
    X(PQsocket)                                                                                              \
    X(PQserverVersion)                                                                                       \
    X(PQsslInUse)                                                                                            \
    X(PQhost)                                                                                                \
    X(PQconninfo)                                                                                            \
    X(PQconninfoParse)                                                                                       \
    X(PQconninfoFree)                                                                                        \
    X(PQfreemem)                                                                                             \
    X(PQsetnonblocking)                                                                                      \
    X(PQsetNoticeReceiver)                                                                                   \
    X(PQsendQuery)                                                                                           \
    X(PQsendQueryParams)                                                                                     \
    X(PQsendQueryPrepared)                                                                                   \
    X(PQsendPrepare)                                                                                         \
    X(PQenterPipelineMode)                                                                                   \
    X(PQexitPipelineMode)                                                                                    \
    X(PQpipelineSync)                                                                                        \
    X(PQflush)                                                                                               \
    X(PQconsumeInput)                                                                                        \
    X(PQisBusy)                                                                                              \
    X(PQgetResult)                                                                                           \
    X(PQresultStatus)                                                                                        \
    X(PQresultErrorField)                                                                                    \
    X(PQresultErrorMessage)                                                                                  \
    X(PQntuples)                                                                                             \
    X(PQgetvalue)                                                                                            \
    X(PQgetlength)                                                                                           \
    X(PQgetisnull)                                                                                           \
    X(PQcmdTuples)                                                                                           \
    X(PQclear)

struct pg_library {
#define X(name) __typeof__(&name) name;
    PG_FUNCTIONS(X)
#undef X
};
extern struct pg_library pg_lib;  // filled by pg_load

#define PG_PLACE "postgresql://"
bool pg_is_place(const char *place);  // a database, not a folder
int pg_load(struct error *e);         // harmless to repeat

// A statement's values; what is given must live until it was sent.
enum { PG_ARGS_MAX = 18 };
struct pg_args {
    int count;
    const char *values[PG_ARGS_MAX];
    int lengths[PG_ARGS_MAX];
    uint64_t numbers[PG_ARGS_MAX];
};
void pg_int(struct pg_args *a, int64_t v);
void pg_bytes(struct pg_args *a, const void *data, size_t len);
void pg_text(struct pg_args *a, const char *text);

// A connection. `broken`: to be closed; nothing is sent through it any more.
struct pg_conn {
    PGconn *db;
    bool broken;
    int wait_ms;  // for an answer, each
};
// Checks that the server keeps what it acknowledges and that the way there is private. `statements` are prepared under
// their number.
int pg_open(struct pg_conn *c, const char *place, const char *who, const char *const *statements, int count,
            struct error *e);
void pg_close(struct pg_conn *c);
// Whether the server still has an idle connection, as far as is known here. Does not wait.
bool pg_alive(struct pg_conn *c);
// Several statements, divided by semicolons, are one transaction.
int pg_exec(struct pg_conn *c, const char *sql, struct error *e);
// NULL: it failed. The caller clears the result.
PGresult *pg_query(struct pg_conn *c, const char *sql, const struct pg_args *args, const char *doing,
                   struct error *e);
PGresult *pg_run(struct pg_conn *c, int statement, const struct pg_args *args, const char *doing,
                 struct error *e);
int64_t pg_get_int(const PGresult *r, int row, int column);
const char *pg_get_text(const PGresult *r, int row, int column);
// First column of the first row; `fallback` when there is no row, or null.
int pg_first_int(struct pg_conn *c, const char *sql, int64_t fallback, int64_t *out, struct error *e);

// Statements sent without waiting, which are one transaction: pg_pipe_end commits it or, after an error, nothing of it.
int pg_pipe_begin(struct pg_conn *c, struct error *e);
int pg_pipe_add(struct pg_conn *c, int statement, const struct pg_args *args, struct error *e);
// Adds to `rows` (may be NULL) how many rows were changed by statements that return none. -ETIMEDOUT or -EPIPE: it may
// have been committed all the same.
int pg_pipe_end(struct pg_conn *c, const char *doing, uint64_t *rows, struct error *e);

#define cleanup_result __attribute__((__cleanup__(pg_result_done)))
static inline void pg_result_done(PGresult **r) {
    if (*r)
        pg_lib.PQclear(*r);
}
