// The face of the store: numbers batches, checks that journal records are contiguous, and hands
// everything on to the implementation behind it.
#include "store/store.h"

#include <assert.h>
#include <errno.h>
#include <openssl/evp.h>
#include <string.h>

#include "store/batch.h"
#include "ops.h"
#include "pg.h"
#include "places.h"
#include "sqlite_store.h"

int store_open(const struct store_config *config, struct store **out, struct error *e) {
    return pg_is_place(config->path) ? pg_store_open(config, out, e) : sqlite_store_open(config, out, e);
}

int store_load_copy(const char *path, const struct store_loader *loader, uint64_t *last_seq,
                    struct error *e) {
    return pg_is_place(path) ? pg_load_copy(path, loader, last_seq, e)
                             : sqlite_load_copy(path, loader, last_seq, e);
}

int store_journal_copy(const char *path, uint64_t after, store_event_fn fn, void *ctx, struct error *e) {
    return pg_is_place(path) ? pg_journal_copy(path, after, fn, ctx, e)
                             : sqlite_journal_copy(path, after, fn, ctx, e);
}

struct store *store_close(struct store *s) {
    if (s)
        s->ops->close(s);
    return NULL;
}

uint64_t store_submit(struct store *s, struct store_batch *b) {
    if (b->events.len) {
        assert(b->events.at[0].seq == s->last_seq + 1);
        s->last_seq = b->events.at[b->events.len - 1].seq;
    }
    b->ticket = ++s->last_ticket;
    uint64_t ticket = b->ticket;
    s->ops->submit(s, b);
    return ticket;
}

int store_fd(const struct store *s) {
    return s->ops->fd(s);
}

void store_poll(struct store *s) {
    s->ops->poll(s);
}

void store_retry(struct store *s) {
    s->ops->retry(s);
}

void store_flush(struct store *s) {
    s->ops->flush(s);
}

int store_snapshot(struct store *s, uint64_t seq, const void *data, size_t len) {
    assert(seq <= s->last_seq);
    return s->ops->snapshot(s, seq, data, len);
}

int store_snapshot_file(struct store *s, uint64_t seq, int fd, size_t at, size_t len) {
    assert(seq <= s->last_seq && at + len >= at);
    return s->ops->snapshot_file(s, seq, fd, at, len);
}

void store_prune(struct store *s, int64_t now_ms) {
    s->ops->prune(s, now_ms);
}

enum store_space store_space(struct store *s) {
    return s->ops->space(s);
}

void store_stats(struct store *s, struct store_stats *out) {
    s->ops->stats(s, out);
}

// --- leading ---

void store_claim(struct store *s) {
    if (s->ops->claim)
        s->ops->claim(s);
}

void store_give_up(struct store *s) {
    if (s->ops->give_up)
        s->ops->give_up(s);
}

int store_others(struct store *s) {
    return s->ops->others ? s->ops->others(s) : 0;
}

void store_lease(struct store *s, struct store_lease *out) {
    *out = (struct store_lease){.known = true, .mine = true, .left_ms = INT64_MAX};
    if (s->ops->lease)
        s->ops->lease(s, out);
}

void store_raise_term(struct store *s, uint64_t term) {
    if (s->ops->raise)
        s->ops->raise(s, term);
}

struct store_following {
    struct store *store;
    const struct store_loader *loader;
    struct error *e;
    bool same;  // the record that was read last is there, as it was then
};

static int follow_event(void *ctx, const struct store_event *event) {
    struct store_following *f = ctx;
    if (event->seq == f->store->last_seq && !f->same) {
        uint64_t sum = store_event_checksum(event);
        f->same = !f->store->last_sum || sum == f->store->last_sum;
        return f->same ? 0 : -ESTALE;
    }
    if (!f->same)
        return -ESTALE;
    if (event->seq != f->store->last_seq + 1 && !f->store->last_seq)
        return -ESTALE;  // it was empty when it was read, and its first records were pruned since: a snapshot has them
    if (event->seq != f->store->last_seq + 1)
        return error_set(f->e, EBADMSG, "records before record %llu of the journal are gone",
                         (unsigned long long)event->seq);
    int r = f->loader->event(f->loader->ctx, event);
    if (r < 0)
        return error_set(f->e, -r, "journal record %llu cannot be applied", (unsigned long long)event->seq);
    f->store->last_seq = event->seq;
    f->store->last_sum = store_event_checksum(event);
    return 0;
}

// Asks for the record that was read last once more: a database that was replaced by an older copy does not have it, or
// another in its place.
int store_follow(struct store *s, const struct store_loader *loader, uint64_t *last_seq, struct error *e) {
    struct store_following f = {s, loader, e, s->last_seq == 0};
    assert(s->last_ticket == 0);
    int r = s->ops->events(s, 0, s->last_seq ? s->last_seq - 1 : 0, 0, follow_event, &f, e);
    if (r == -ESTALE || (r == 0 && !f.same))
        r = error_set(e, ESTALE, "the database was replaced by another copy");
    if (s->ops->followed)
        s->ops->followed(s, s->last_seq);
    *last_seq = s->last_seq;
    return r;
}

void store_key_of(const void *text, size_t len, struct store_key *out) {
    uint8_t digest[EVP_MAX_MD_SIZE];
    unsigned digest_len = 0;
    int ok = EVP_Digest(text, len, digest, &digest_len, EVP_sha256(), NULL);
    assert(ok == 1 && digest_len >= sizeof out->bytes);
    (void)ok;
    memcpy(out->bytes, digest, sizeof out->bytes);
}

int store_load(struct store *s, const struct store_loader *loader, uint64_t *last_seq,
               struct error *e) {
    uint64_t last = 0;
    int r = s->ops->load(s, loader, &last, e);
    if (r < 0)
        return r;
    assert(s->last_ticket == 0);
    s->last_seq = last;
    if (last_seq)
        *last_seq = last;
    return 0;
}

int store_text(struct store *s, const struct store_key *key, void **out, size_t *len,
               struct error *e) {
    return s->ops->text(s, key, out, len, e);
}

int store_blob(struct store *s, const char *name, void **out, size_t *len, struct error *e) {
    return s->ops->blob(s, name, out, len, e);
}

int store_blobs(struct store *s, const char *prefix, store_blob_fn fn, void *ctx, struct error *e) {
    return s->ops->blobs(s, prefix, fn, ctx, e);
}

int store_events(struct store *s, uint64_t job, uint64_t after, uint32_t limit, store_event_fn fn,
                 void *ctx, struct error *e) {
    return s->ops->events(s, job, after, limit, fn, ctx, e);
}

int store_journal(struct store *s, store_event_fn fn, void *ctx, struct error *e) {
    return s->ops->journal(s, fn, ctx, e);
}

int store_history(struct store *s, const struct store_query *q, store_history_fn fn, void *ctx,
                  struct error *e) {
    return s->ops->history(s, q, fn, ctx, e);
}

int store_old_keys(struct store *s, int64_t now_ms, int (*fn)(void *ctx, const struct store_old_key *k), void *ctx,
                   struct error *e) {
    return s->ops->old_keys ? s->ops->old_keys(s, now_ms, fn, ctx, e) : 0;
}

int store_check(struct store *s, struct error *e) {
    return s->ops->check(s, e);
}
