// The maintenance thread does what would hold up commits: writes snapshots, moves the write-ahead log
// into the database file, and lays the reserve aside again once there is room.
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

#include "sql.h"
#include "sqlite_store.h"

// Called and returns with the lock held. A snapshot must not run ahead of its journal record.
static bool wait_committed(struct sqlite_store *s, uint64_t seq) {
    while (s->committed_seq < seq && !s->maintenance_stop)
        pthread_cond_wait(&s->settled, &s->lock);
    return s->committed_seq >= seq;
}

// Called and returns with the lock held.
static void write_snapshot(struct sqlite_store *s) {
    struct snapshot_work *work = &s->snapshot;
    work->wanted = false;
    struct error error = {0};
    pthread_mutex_unlock(&s->lock);
    int r = store_snapshot_write(s, work->seq, work->data, work->len, &error);
    pthread_mutex_lock(&s->lock);
    if (r == 0 && !wait_committed(s, work->seq))
        r = error_set(&error, ECANCELED, "the store was closed before record %llu was committed",
                      (unsigned long long)work->seq);
    pthread_mutex_unlock(&s->lock);
    if (r == 0)
        r = store_snapshot_publish(s, work->seq, &error);
    uint64_t kept[STORE_SNAPSHOTS_KEPT];
    int count = store_snapshot_list(s, kept, STORE_SNAPSHOTS_KEPT);
    pthread_mutex_lock(&s->lock);
    s->oldest_snapshot = count == STORE_SNAPSHOTS_KEPT ? kept[count - 1] : 0;
    free(work->data);
    work->data = NULL;
    work->code = r;
    work->error = error;
    work->done = true;
    eventfd_write(s->event_fd, 1);
}

void *store_maintenance_main(void *store) {
    struct sqlite_store *s = store;
    pthread_mutex_lock(&s->lock);
    while (!s->maintenance_stop) {
        if (s->snapshot.wanted) {
            write_snapshot(s);
        } else if (s->checkpoint_wanted) {
            s->checkpoint_wanted = false;
            pthread_mutex_unlock(&s->lock);
            sqlite3_wal_checkpoint_v2(s->maintenance_db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
            pthread_mutex_lock(&s->lock);
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
