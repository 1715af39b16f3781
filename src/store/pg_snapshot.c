// Snapshots in PostgreSQL: as in SQLite (snapshot.c), rows of 256 KiB, each in a transaction of its own between
// commits, and a last row that makes them count. Runs on the writer's thread, one step at a time; every function is
// called and returns with the lock held.
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pg_store.h"
#include "sql.h"

enum { PIECE_BYTES = 256 << 10, DROP_PIECES = 16 };

static int map_bytes(struct pg_snapshot *w, struct error *e) {
    if (w->fd < 0 || w->data)
        return 0;
    void *m = mmap(NULL, w->at + w->len, PROT_READ, MAP_SHARED, w->fd, 0);
    if (m == MAP_FAILED)
        return error_set(e, errno, "cannot read a snapshot: %m");
    w->data = m;
    return 0;
}

static const char *bytes_of(const struct pg_snapshot *w) {
    return (const char *)w->data + (w->fd < 0 ? 0 : w->at);
}

static int add_piece(struct pg_store *s, const void *what, struct error *e) {
    const struct pg_snapshot *w = what;
    size_t left = w->len - w->written;
    struct pg_args a = {0};
    pg_int(&a, (int64_t)w->seq);
    pg_int(&a, (int64_t)(w->written / PIECE_BYTES));
    pg_bytes(&a, bytes_of(w) + w->written, left < PIECE_BYTES ? left : PIECE_BYTES);
    return pg_pipe_add(&s->writer.conn, PGW_SNAPSHOT_PIECE, &a, e);
}

static int add_row(struct pg_store *s, const void *what, struct error *e) {
    const struct pg_snapshot *w = what;
    struct pg_args a = {0}, keep = {0};
    pg_int(&a, (int64_t)w->seq);
    pg_int(&a, (int64_t)w->len);
    pg_int(&a, (int64_t)store_sql_checksum(w->seq, bytes_of(w), w->len));
    pg_int(&a, (int64_t)((w->len + PIECE_BYTES - 1) / PIECE_BYTES));
    pg_int(&keep, STORE_SNAPSHOTS_KEPT);
    int r = pg_pipe_add(&s->writer.conn, PGW_SNAPSHOT, &a, e);
    return r < 0 ? r : pg_pipe_add(&s->writer.conn, PGW_SNAPSHOT_PRUNE, &keep, e);
}

static int add_drop(struct pg_store *s, const void *what, struct error *e) {
    struct pg_args a = {0};
    pg_int(&a, DROP_PIECES);
    return pg_pipe_add(&s->writer.conn, PGW_SNAPSHOT_DROP, &a, e);
}

uint64_t pg_snapshot_oldest_needed(struct pg_conn *c) {
    int64_t kept = 0, oldest = 0;
    if (pg_first_int(c, "SELECT count(*) FROM snapshot", 0, &kept, NULL) < 0 ||
        pg_first_int(c, "SELECT min(seq) FROM snapshot", 0, &oldest, NULL) < 0)
        return 0;
    return kept >= STORE_SNAPSHOTS_KEPT ? (uint64_t)oldest : 0;
}

static void finish(struct pg_store *s, int code, const struct error *e) {
    struct pg_snapshot *w = &s->snapshot;
    if (w->fd >= 0) {
        if (w->data)
            munmap(w->data, w->at + w->len);
        close(w->fd);
    } else {
        free(w->data);
    }
    w->data = NULL;
    w->fd = -1;
    w->code = code;
    w->error = *e;
    w->done = true;
    s->discard = true;
    eventfd_write(s->event_fd, 1);
}

void pg_snapshot_step(struct pg_store *s) {
    struct pg_snapshot *w = &s->snapshot;
    struct error error = {0};
    bool pieces = w->written < w->len;
    uint64_t oldest = 0;
    pthread_mutex_unlock(&s->lock);
    int r = map_bytes(w, &error);
    if (r == 0)
        r = pg_writer_fenced(s, pieces ? add_piece : add_row, w, "writing a snapshot", NULL, &error);
    if (r == 0 && !pieces)
        oldest = pg_snapshot_oldest_needed(&s->writer.conn);
    pthread_mutex_lock(&s->lock);
    if (r == 0 && pieces) {
        w->written += PIECE_BYTES;
        return;
    }
    if (r == -ESTALE)
        pg_writer_fence(s, &error);
    if (r == 0)
        s->oldest_snapshot = oldest;
    finish(s, r, &error);
}

void pg_snapshot_discard_step(struct pg_store *s) {
    struct error error = {0};
    uint64_t rows = 0;
    pthread_mutex_unlock(&s->lock);
    int r = pg_writer_fenced(s, add_drop, NULL, "removing an old snapshot", &rows, &error);
    pthread_mutex_lock(&s->lock);
    if (r == -ESTALE)
        pg_writer_fence(s, &error);
    if (r < 0 || rows == 0)
        s->discard = false;
}
