// The maintenance thread does what would hold up commits: writes snapshots, moves the write-ahead log
// into the database file, and lays the reserve aside again once there is room.
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sql.h"
#include "sqlite_store.h"

enum {
    LOG_ROUNDS = 4,
    LOG_TAIL_PAGES = 500,  // copied by the writer in a few milliseconds
};

// What is committed meanwhile is left over: each round has less to do, until the writer can do the rest.
void store_move_log(struct sqlite_store *s) {
    for (int round = 0; round < LOG_ROUNDS; round++) {
        int pages = 0, moved = 0;
        s->checkpoint_wanted = false;
        pthread_mutex_unlock(&s->lock);
        int rc =
            sqlite3_wal_checkpoint_v2(s->maintenance_db, NULL, SQLITE_CHECKPOINT_PASSIVE, &pages, &moved);
        pthread_mutex_lock(&s->lock);
        if (rc != SQLITE_OK || moved < pages)  // somebody reads an older state
            return;
        s->log_tail = s->log_pages > moved && s->log_pages - moved <= LOG_TAIL_PAGES;
        if (s->log_tail || s->log_pages <= moved)
            return;
    }
}

// A snapshot must not run ahead of its journal record.
static int wait_committed(struct sqlite_store *s, uint64_t seq, struct error *e) {
    pthread_mutex_lock(&s->lock);
    while (s->committed_seq < seq && !s->writer_gone && !(s->maintenance_stop && s->failed))
        pthread_cond_wait(&s->settled, &s->lock);
    bool committed = s->committed_seq >= seq;
    pthread_mutex_unlock(&s->lock);
    return committed ? 0
                     : error_set(e, ECANCELED, "the store was closed before record %llu was committed",
                                 (unsigned long long)seq);
}

static int map_bytes(const struct snapshot_work *work, void **map, size_t *map_len, const void **data,
                     struct error *e) {
    *data = work->data;
    *map_len = work->at + work->len;
    if (work->fd < 0)
        return 0;
    void *m = mmap(NULL, *map_len, PROT_READ, MAP_SHARED, work->fd, 0);
    if (m == MAP_FAILED)
        return error_set(e, errno, "cannot read a snapshot: %s", strerror(errno));
    *map = m;
    *data = (const char *)m + work->at;
    return 0;
}

// One at this record is there already: nothing has happened since.
static bool is_there(struct sqlite_store *s, uint64_t seq) {
    struct snapshot_ref kept[STORE_SNAPSHOTS_KEPT];
    int count = store_snapshot_list(s->maintenance_db, s, kept, STORE_SNAPSHOTS_KEPT, NULL);
    for (int i = 0; i < count; i++)
        if (kept[i].seq == seq && !kept[i].in_file)
            return true;
    return false;
}

static int keep_snapshot(struct sqlite_store *s, const struct snapshot_work *work, struct error *e) {
    void *map = NULL;
    const void *data;
    size_t map_len;
    uint32_t pieces;
    if (is_there(s, work->seq))
        return 0;
    int r = map_bytes(work, &map, &map_len, &data, e);
    if (r == 0)
        r = wait_committed(s, work->seq, e);
    if (r == 0)
        r = store_snapshot_write(s, work->seq, data, work->len, &pieces, e);
    if (r == 0)
        r = store_snapshot_publish(s, work->seq, data, work->len, pieces, e);
    if (map)
        munmap(map, map_len);
    store_snapshot_discard(s);
    return r;
}

// Called and returns with the lock held.
static void write_snapshot(struct sqlite_store *s) {
    struct snapshot_work *work = &s->snapshot;
    work->wanted = false;
    struct error error = {0};
    pthread_mutex_unlock(&s->lock);
    int r = keep_snapshot(s, work, &error);
    uint64_t oldest = store_snapshot_oldest_needed(s->maintenance_db, s);
    pthread_mutex_lock(&s->lock);
    s->oldest_snapshot = oldest;
    free(work->data);
    work->data = NULL;
    if (work->fd >= 0)
        close(work->fd);
    work->fd = -1;
    work->code = r;
    work->error = error;
    work->done = true;
    eventfd_write(s->event_fd, 1);
}

void *store_maintenance_main(void *store) {
    struct sqlite_store *s = store;
    store_snapshot_discard(s);  // what a crash left unfinished
    pthread_mutex_lock(&s->lock);
    while (!s->maintenance_stop || s->snapshot.wanted) {
        if (s->snapshot.wanted) {
            write_snapshot(s);
        } else if (s->checkpoint_wanted) {
            store_move_log(s);
        } else if (s->reserve_wanted) {
            s->reserve_wanted = false;
            pthread_mutex_unlock(&s->lock);
            store_space_reserve(s);
            pthread_mutex_lock(&s->lock);
        } else {
            pthread_cond_wait(&s->care, &s->lock);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}
