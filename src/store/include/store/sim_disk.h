// What a simulated disk holds: committed batches and the views into them. Internal.
#pragma once
#include "base/map.h"
#include "base/rand.h"
#include "store/batch.h"
#include "store/sim_store.h"

struct sim_snapshot {
    uint64_t seq;
    void *data;
    size_t len;
};

struct sim_disk {
    struct rand rand;
    struct sim_disk_faults faults;
    int64_t now_ms;
    struct sim_store *store;  // the one that is open
    uint64_t used_bytes;
    bool rotten;              // the newest snapshot cannot be read until the next opening
    struct store_batch *batches;
    VEC(struct store_event) journal;
    uint32_t journal_first;   // records before this one are pruned
    VEC(struct store_history) history;
    struct map history_by_id; // id -> position in `history` + 1
    struct map array_rows;    // array -> number of rows
    struct map texts;         // first bytes of the key -> struct sim_text
    struct map owners;        // owner -> struct sim_owner
    struct strmap blobs;      // name -> struct sim_blob
    uint32_t level;           // feature level of the journal, 0: none was written
    const char *release;      // that can read it
    struct sim_snapshot snapshots[STORE_SNAPSHOTS_KEPT];  // newest first
};

void sim_disk_keep(struct sim_disk *d, struct store_batch *b);  // takes it
void sim_disk_keep_snapshot(struct sim_disk *d, uint64_t seq, void *data, size_t len);
void sim_disk_prune(struct sim_disk *d, const struct store_retention *keep, int64_t now_ms);
int sim_disk_load(struct sim_disk *d, const struct store_loader *loader, uint64_t *last_seq,
                  struct error *e);
int sim_disk_text(struct sim_disk *d, const struct store_key *key, void **out, size_t *len,
                  struct error *e);
int sim_disk_blob(struct sim_disk *d, const char *name, void **out, size_t *len, struct error *e);
int sim_disk_blobs(struct sim_disk *d, const char *prefix, store_blob_fn fn, void *ctx);
int sim_disk_events(struct sim_disk *d, uint64_t job, uint64_t after, uint32_t limit,
                    store_event_fn fn, void *ctx);
int sim_disk_history(struct sim_disk *d, const struct store_query *q, store_history_fn fn,
                     void *ctx);
