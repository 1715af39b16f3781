// Tables of the state in PostgreSQL, in a schema of their own, and the statements on them. All numbers are BIGINT, so
// that values travel as eight bytes. The table `lease` has one row: who leads, until when by the database's clock, and
// how many transactions that leader has committed.
#include <assert.h>
#include <errno.h>
#include <inttypes.h>

#include "base/buf.h"
#include "base/text.h"
#include "pg_store.h"
#include "schema.h"

enum { PG_FORMAT = 1, SCHEMA_LOCK = 0x61636571 };

static const char tables[] =
    "CREATE SCHEMA acequia;"
    "CREATE TABLE acequia.meta(name TEXT PRIMARY KEY, value BIGINT NOT NULL);"
    "CREATE TABLE acequia.journal(seq BIGINT PRIMARY KEY, at_ms BIGINT NOT NULL, type BIGINT NOT NULL,"
    "  job BIGINT NOT NULL, sum BIGINT NOT NULL, data BYTEA NOT NULL);"
    "CREATE INDEX journal_job ON acequia.journal(job, seq) WHERE job <> 0;"
    "CREATE TABLE acequia.text(key BYTEA PRIMARY KEY, data BYTEA NOT NULL);"
    "CREATE TABLE acequia.text_owner(owner BIGINT NOT NULL, text BYTEA NOT NULL, live BOOLEAN NOT NULL,"
    "  PRIMARY KEY(owner, text));"
    "CREATE INDEX text_owner_text ON acequia.text_owner(text);"
    "CREATE TABLE acequia.history(id BIGINT PRIMARY KEY, array_id BIGINT NOT NULL, array_index BIGINT NOT "
    "NULL,"
    "  state BIGINT NOT NULL, user_name TEXT COLLATE \"C\" NOT NULL, project TEXT COLLATE \"C\" NOT NULL,"
    "  name TEXT COLLATE \"C\" NOT NULL, submit_ms BIGINT NOT NULL, start_ms BIGINT NOT NULL,"
    "  end_ms BIGINT NOT NULL, nodes TEXT COLLATE \"C\" NOT NULL, data BYTEA NOT NULL,"
    "  cpus BIGINT NOT NULL, gpu_milli BIGINT NOT NULL);"
    "CREATE INDEX history_end ON acequia.history(end_ms, id);"
    "CREATE INDEX history_user ON acequia.history(user_name, end_ms, id);"
    "CREATE INDEX history_project ON acequia.history(project, end_ms, id);"
    "CREATE INDEX history_name ON acequia.history(name, end_ms, id);"
    "CREATE INDEX history_state ON acequia.history(state, end_ms, id);"
    "CREATE INDEX history_array ON acequia.history(array_id, array_index) WHERE array_id <> 0;"
    "CREATE TABLE acequia.blob(name TEXT COLLATE \"C\" PRIMARY KEY, sum BIGINT NOT NULL, data BYTEA NOT "
    "NULL);"
    "CREATE TABLE acequia.snapshot(seq BIGINT PRIMARY KEY, len BIGINT NOT NULL, sum BIGINT NOT NULL,"
    "  pieces BIGINT NOT NULL);"
    "CREATE TABLE acequia.snapshot_piece(seq BIGINT NOT NULL, n BIGINT NOT NULL, data BYTEA NOT NULL,"
    "  PRIMARY KEY(seq, n));"
    "CREATE TABLE acequia.lease(one BOOLEAN PRIMARY KEY CHECK(one), term BIGINT NOT NULL, commits BIGINT NOT "
    "NULL,"
    "  holder TEXT NOT NULL, address TEXT NOT NULL, backend BIGINT NOT NULL, until TIMESTAMPTZ NOT NULL);"
    "INSERT INTO acequia.lease VALUES(true, 0, 0, '', '', 0, '-infinity');"
    "INSERT INTO acequia.meta VALUES('format', 1);"
    // For people and their reports: what is documented in docs/guide-admin.md.
    "CREATE TABLE acequia.state(number BIGINT PRIMARY KEY, word TEXT NOT NULL);"
    "CREATE VIEW acequia.finished_jobs AS SELECT h.*, run_hours * cpus AS cpu_hours, run_hours * gpus AS "
    "gpu_hours"
    " FROM (SELECT id AS job, nullif(array_id, 0) AS array_job,"
    "  CASE WHEN array_id <> 0 THEN array_index END AS array_index, coalesce(word, state::text) AS state,"
    "  user_name, project, name, nodes, to_timestamp(submit_ms / 1000.0) AS submitted,"
    "  CASE WHEN start_ms <> 0 THEN to_timestamp(start_ms / 1000.0) END AS started,"
    "  to_timestamp(end_ms / 1000.0) AS ended, cpus, gpu_milli / 1000.0 AS gpus,"
    "  CASE WHEN start_ms <> 0 THEN (end_ms - start_ms) / 3600000.0 ELSE 0 END AS run_hours"
    "  FROM acequia.history LEFT JOIN acequia.state ON number = state) h;"
    "CREATE VIEW acequia.use_by_day AS SELECT ended::date AS day, project, user_name, count(*) AS jobs,"
    " sum(cpu_hours) AS cpu_hours, sum(gpu_hours) AS gpu_hours FROM acequia.finished_jobs GROUP BY 1, 2, 3;";
static_assert(PG_FORMAT == 1, "as written above");

#define PG_UNTIL "clock_timestamp() + make_interval(secs => $3::int8::float8 / 1000)"

const char *const pg_write_statements[PGW_COUNT] = {
    [PGW_EVENT] = "INSERT INTO journal(seq, at_ms, type, job, sum, data) VALUES($1,$2,$3,$4,$5,$6)",
    [PGW_TEXT] = "INSERT INTO text(key, data) VALUES($1,$2) ON CONFLICT DO NOTHING",
    [PGW_OWNER] = "INSERT INTO text_owner(owner, text, live) VALUES($1,$2,true)"
                  " ON CONFLICT(owner, text) DO UPDATE SET live = true",
    [PGW_RELEASE] = "UPDATE text_owner SET live = false WHERE owner = $1",
    // Drops the owner's released texts once no row of history stands for it. Both parts see the rows of before, so the
    // second must not count the owner's own.
    [PGW_DROP_OWNER] =
        "WITH gone AS (DELETE FROM text_owner WHERE owner = $1 AND NOT live"
        " AND NOT EXISTS(SELECT 1 FROM history WHERE id = $1)"
        " AND NOT EXISTS(SELECT 1 FROM history WHERE array_id = $1 AND array_id <> 0)"
        " RETURNING text)"
        " DELETE FROM text USING gone WHERE text.key = gone.text"
        " AND NOT EXISTS(SELECT 1 FROM text_owner o WHERE o.text = gone.text AND o.owner <> $1)",
    [PGW_HISTORY] =
        "INSERT INTO history(id, array_id, array_index, state, user_name, project, name, submit_ms,"
        " start_ms, end_ms, nodes, data, cpus, gpu_milli)"
        " VALUES($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14)"
        " ON CONFLICT(id) DO UPDATE SET array_id = excluded.array_id,"
        " array_index = excluded.array_index, state = excluded.state, user_name = excluded.user_name,"
        " project = excluded.project, name = excluded.name, submit_ms = excluded.submit_ms,"
        " start_ms = excluded.start_ms, end_ms = excluded.end_ms, nodes = excluded.nodes,"
        " data = excluded.data, cpus = excluded.cpus, gpu_milli = excluded.gpu_milli",
    [PGW_BLOB] = "INSERT INTO blob(name, sum, data) VALUES($1,$2,$3)"
                 " ON CONFLICT(name) DO UPDATE SET sum = excluded.sum, data = excluded.data",
    [PGW_BLOB_DROP] = "DELETE FROM blob WHERE name = $1",
    [PGW_LEVEL] = "INSERT INTO meta(name, value) VALUES('level', $1)"
                  " ON CONFLICT(name) DO UPDATE SET value = greatest(meta.value, excluded.value)",
    // The last statement of every transaction. When the term is another's, or this transaction was committed before,
    // it divides by zero, and nothing of the transaction is kept. It holds the row until the commit, so a takeover
    // comes before it or after the commit, never between. The holder counts because a restored database gives out
    // terms for the second time.
    [PGW_FENCE] =
        "WITH mine AS (UPDATE lease SET commits = $2::int8, backend = pg_backend_pid(), until = " PG_UNTIL
        " WHERE term = $1 AND commits = $2::int8 - 1 AND holder = $4 RETURNING 1)"
        " SELECT 1 / count(*) FROM mine",
    [PGW_SNAPSHOT] =
        "INSERT INTO snapshot(seq, len, sum, pieces) VALUES($1,$2,$3,$4) ON CONFLICT(seq) DO UPDATE"
        " SET len = excluded.len, sum = excluded.sum, pieces = excluded.pieces",
    [PGW_SNAPSHOT_PIECE] = "INSERT INTO snapshot_piece(seq, n, data) VALUES($1,$2,$3)"
                           " ON CONFLICT(seq, n) DO UPDATE SET data = excluded.data",
    [PGW_SNAPSHOT_PRUNE] = "DELETE FROM snapshot WHERE seq NOT IN"
                           " (SELECT seq FROM snapshot ORDER BY seq DESC LIMIT $1)",
    [PGW_SNAPSHOT_DROP] = "DELETE FROM snapshot_piece WHERE (seq, n) IN (SELECT seq, n FROM snapshot_piece"
                          " WHERE seq NOT IN (SELECT seq FROM snapshot) LIMIT $1)",
    [PGW_PRUNE_JOURNAL] = "DELETE FROM journal WHERE seq IN (SELECT seq FROM journal"
                          " WHERE seq < $1 AND at_ms < $2 ORDER BY seq LIMIT $3)",
    [PGW_OLD_HISTORY] = "SELECT id, array_id FROM history WHERE end_ms < $1 ORDER BY end_ms, id LIMIT $2",
    [PGW_DROP_HISTORY] = "DELETE FROM history WHERE id = $1",
    [PGW_LEASE] =
        "SELECT term, commits, address, (extract(epoch FROM until - clock_timestamp()) * 1000)::int8, holder"
        " FROM (SELECT term, commits, address, holder,"
        " greatest(until, clock_timestamp() - interval '1 day') AS until FROM lease) l",
    [PGW_CLAIM] =
        "UPDATE lease SET term = term + 1, commits = 0, holder = $1, address = $2,"
        " backend = pg_backend_pid(), until = " PG_UNTIL " WHERE until < clock_timestamp() RETURNING term",
    // The leader before may be paused in the middle of a transaction, whose rows would be waited for.
    [PGW_END_SESSION] = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid IN"
                        " (SELECT backend FROM lease WHERE until < clock_timestamp()) AND pid <> "
                        "pg_backend_pid() AND usename = current_user"
                        " AND application_name LIKE 'acequia writer%'",
    [PGW_RAISE] =
        "UPDATE lease SET term = $2, commits = 0 WHERE term = $1 AND $2 > $1 AND holder = $3 RETURNING term",
    [PGW_GIVE_UP] = "UPDATE lease SET until = '-infinity' WHERE term = $1 AND holder = $2",
};

const char *const pg_read_statements[PGR_COUNT] = {
    [PGR_JOURNAL] =
        "SELECT seq, at_ms, type, job, sum, data FROM journal WHERE seq > $1 ORDER BY seq LIMIT $2",
    [PGR_JOB_EVENTS] = "SELECT seq, at_ms, type, job, sum, data FROM journal WHERE job = $3 AND job <> 0"
                       " AND seq > $1 ORDER BY seq LIMIT $2",
    [PGR_TEXT] = "SELECT data FROM text WHERE key = $1",
    [PGR_BLOB] = "SELECT sum, data FROM blob WHERE name = $1",
    [PGR_BLOBS] = "SELECT name, sum, data FROM blob WHERE name > $1 ORDER BY name LIMIT $2",
    [PGR_SNAPSHOTS] = "SELECT seq, len, sum, pieces FROM snapshot ORDER BY seq DESC LIMIT $1",
    [PGR_PIECES] = "SELECT n, data FROM snapshot_piece WHERE seq = $1 AND n >= $2 ORDER BY n LIMIT $3",
};

// Two controllers may be started at once on an empty database: one makes the tables, the other waits for it.
static int make_tables(struct pg_conn *c, struct error *e) {
    cleanup_buf struct buf sql = {0};
    int64_t there = 0;
    int r = pg_exec(c, "BEGIN; SELECT pg_advisory_xact_lock(1633903985)", e);
    static_assert(SCHEMA_LOCK == 1633903985, "the same number");
    if (r == 0)
        r = pg_first_int(c, "SELECT count(*) FROM pg_namespace WHERE nspname = 'acequia'", 0, &there, e);
    if (r == 0 && !there)
        r = pg_exec(c, tables, e);
    struct error ignored;
    int end = pg_exec(c, r < 0 ? "ROLLBACK" : "COMMIT", r < 0 ? &ignored : e);
    return r < 0 ? r : end;
}

static int check_level(struct pg_conn *c, uint32_t known, struct error *e) {
    int64_t level = 0;
    int r = pg_first_int(c, SCHEMA_READ_LEVEL, 0, &level, e);
    if (r < 0 || !known || level <= known)
        return r;
    cleanup_result PGresult *release = pg_query(
        c, "SELECT data FROM blob WHERE name = '" SCHEMA_LEVEL_RELEASE "'", NULL, "state database", e);
    return error_set(
        e, EPROTONOSUPPORT,
        "the database was written by a later release (feature level %lld, this program knows levels up to "
        "%u): it needs Acequia %s or later",
        (long long)level, known,
        release && pg_lib.PQntuples(release) ? pg_get_text(release, 0, 0) : "of that level");
}

static int name_states(struct pg_conn *c, const char *const *words, struct error *e) {
    for (int64_t i = 0; words && words[i]; i++) {
        struct pg_args a = {0};
        pg_int(&a, i);
        pg_text(&a, words[i]);
        cleanup_result PGresult *r =
            pg_query(c, "INSERT INTO state VALUES($1, $2) ON CONFLICT DO NOTHING", &a, "state database", e);
        if (!r)
            return -EIO;
    }
    return 0;
}

int pg_schema_prepare(const char *place, uint32_t level, const char *const *states, struct error *e) {
    struct pg_conn c;
    int64_t there = 0, format = 0;
    int r = pg_open(&c, place, "acequia", NULL, 0, e);
    if (r == 0)
        r = pg_first_int(&c, "SELECT count(*) FROM pg_namespace WHERE nspname = 'acequia'", 0, &there, e);
    if (r == 0 && !there)
        r = make_tables(&c, e);
    if (r == 0)
        r = pg_first_int(&c, "SELECT value FROM meta WHERE name = 'format'", 0, &format, e);
    if (r == 0 && format != PG_FORMAT)
        r = error_set(e, EPROTONOSUPPORT,
                      "the database has format %" PRId64 ", this program knows format %d; install the "
                      "newer program",
                      format, PG_FORMAT);
    if (r == 0)
        r = check_level(&c, level, e);
    if (r == 0)
        r = name_states(&c, states, e);
    pg_close(&c);
    return r;
}
