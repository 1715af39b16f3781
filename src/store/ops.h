// The seam between store.h and its implementations: SQLite (sqlite_store.c), PostgreSQL (pg_store.c) and the simulated
// disk (sim_store.c). An implementation embeds `struct store` as its first member. Internal.
#pragma once
#include "store/store.h"

struct store_ops {
    void (*close)(struct store *s);
    void (*submit)(struct store *s, struct store_batch *b);
    int (*fd)(const struct store *s);
    void (*poll)(struct store *s);
    void (*retry)(struct store *s);
    void (*flush)(struct store *s);
    int (*snapshot)(struct store *s, uint64_t seq, const void *data, size_t len);
    int (*snapshot_file)(struct store *s, uint64_t seq, int fd, size_t at, size_t len);
    void (*prune)(struct store *s, int64_t now_ms);
    enum store_space (*space)(struct store *s);
    void (*stats)(struct store *s, struct store_stats *out);
    // NULL, all of them: nobody else can write, so its owner leads.
    void (*claim)(struct store *s);
    void (*give_up)(struct store *s);
    int (*others)(struct store *s);
    void (*lease)(struct store *s, struct store_lease *out);
    void (*raise)(struct store *s, uint64_t term);
    void (*followed)(struct store *s, uint64_t seq);
    int (*load)(struct store *s, const struct store_loader *loader, uint64_t *last_seq,
                struct error *e);
    int (*text)(struct store *s, const struct store_key *key, void **out, size_t *len,
                struct error *e);
    int (*blob)(struct store *s, const char *name, void **out, size_t *len, struct error *e);
    int (*blobs)(struct store *s, const char *prefix, store_blob_fn fn, void *ctx, struct error *e);
    int (*events)(struct store *s, uint64_t job, uint64_t after, uint32_t limit,
                  store_event_fn fn, void *ctx, struct error *e);
    int (*journal)(struct store *s, store_event_fn fn, void *ctx, struct error *e);
    int (*history)(struct store *s, const struct store_query *q, store_history_fn fn, void *ctx,
                   struct error *e);
    int (*old_keys)(struct store *s, int64_t now_ms, int (*fn)(void *ctx, const struct store_old_key *k),
                    void *ctx, struct error *e);  // NULL: there never were any
    int (*check)(struct store *s, struct error *e);
};

struct store {
    const struct store_ops *ops;
    struct store_watch watch;
    uint64_t last_ticket;  // handed out
    uint64_t last_seq;     // handed over or loaded
    uint64_t last_sum;     // of that record, when it was read from a database that others write; 0: not known
};

// Cuts a transaction's worth of batches off a queue; with `until`, those up to that ticket.
struct store_batch *store_batches_take(struct store_batch **head, struct store_batch ***tail, uint64_t until);
// Puts them back and returns the ticket of the last.
uint64_t store_batches_put_back(struct store_batch **head, struct store_batch ***tail,
                                struct store_batch *list);
