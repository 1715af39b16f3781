// Shared by the store's tests: a folder that vanishes, a watcher that remembers what it was told,
// and batches whose contents follow from their sequence numbers so that a checker can recompute
// them.
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "store/store.h"

struct lab_watch {
    uint64_t ticket, seq, snapshot_seq;
    unsigned commits, failures, snapshots, snapshot_failures;
    struct error failure;
};

struct lab_check {
    uint64_t next, snapshot_seq;
    unsigned events, snapshots;
};

char *lab_folder(void);             // a new temporary folder; the caller frees the name
void lab_remove(char *folder);      // removes it with its plain files, frees the name
struct store_config lab_config(const char *folder, struct lab_watch *watch);
const char *lab_database(void);  // the address of the PostgreSQL database to test with, emptied
void lab_lead(struct store *s);  // claims the lease, returns when it is held
void lab_event(struct store_batch *b, uint64_t seq, size_t len);
struct store_batch *lab_batch(uint64_t first, uint64_t count, size_t len);
void lab_history(struct store_batch *b, uint64_t id, const char *user, uint32_t state,
                 int64_t end_ms);
// Loads everything and asserts that each record is what lab_event wrote. Returns the last seq.
uint64_t lab_load(struct store *s, struct lab_check *check);
// Prunes a store on disk and returns when its writer has finished with that.
void lab_prune(struct store *s, int64_t now_ms);
// Polls until `ticket` is committed; fails the test after a minute.
void lab_wait(struct store *s, const struct lab_watch *watch, uint64_t ticket);
void lab_wait_snapshot(struct store *s, const struct lab_watch *watch, unsigned count);
