// The contents of a simulated disk: keeps committed batches and answers questions about them as
// the database does. Plain scans where the simulator never asks often.
#include "store/sim_disk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "sql.h"

struct sim_text {
    struct store_key key;
    const void *data;
    size_t len;
    uint32_t owners;
};

struct sim_owner {
    bool live;
    VEC(struct sim_text *) texts;
};

struct sim_blob {
    const void *data;  // in a batch
    size_t len;
    bool removed;
};

struct sim_disk *sim_disk_new(uint64_t seed) {
    struct sim_disk *d = xcalloc(1, sizeof *d);
    rand_seed(&d->rand, seed);
    return d;
}

static void owner_free(struct sim_owner *owner) {
    vec_done(&owner->texts);
    free(owner);
}

struct sim_disk *sim_disk_free(struct sim_disk *d) {
    if (!d)
        return NULL;
    assert(!d->store);
    while (d->batches) {
        struct store_batch *next = d->batches->next;
        store_batch_free(d->batches);
        d->batches = next;
    }
    void *value = NULL;
    for (size_t it = 0; map_next(&d->texts, &it, NULL, &value);)
        free(value);
    for (size_t it = 0; map_next(&d->owners, &it, NULL, &value);)
        owner_free(value);
    for (size_t it = 0; strmap_next(&d->blobs, &it, NULL, &value);)
        free(value);
    for (int i = 0; i < STORE_SNAPSHOTS_KEPT; i++)
        free(d->snapshots[i].data);
    map_done(&d->texts);
    map_done(&d->owners);
    strmap_done(&d->blobs);
    map_done(&d->history_by_id);
    map_done(&d->array_rows);
    vec_done(&d->journal);
    vec_done(&d->history);
    free(d);
    return NULL;
}

void sim_disk_faults(struct sim_disk *d, const struct sim_disk_faults *faults) {
    assert(faults->commit_ms_min <= faults->commit_ms_max);
    d->faults = *faults;
}

uint64_t sim_disk_bytes(const struct sim_disk *d) {
    return d->used_bytes;
}

uint64_t sim_disk_hash(const struct sim_disk *d) {
    uint64_t h = 0;
    for (uint32_t i = 0; i < d->journal.len; i++) {
        const struct store_event *ev = &d->journal.at[i];
        uint64_t fields[4] = {ev->seq, (uint64_t)ev->at_ms, ev->type, ev->job};
        h = store_sql_checksum(store_sql_checksum(h, fields, sizeof fields), ev->data, ev->len);
    }
    return h;
}

// --- keeping ---

static uint64_t text_slot(const struct store_key *key) {
    uint64_t slot;
    memcpy(&slot, key->bytes, sizeof slot);
    return slot;
}

static void keep_text(struct sim_disk *d, const struct store_batch *b, const struct batch_text *t) {
    struct sim_text *text = map_get(&d->texts, text_slot(&t->key));
    if (!text) {
        text = xcalloc(1, sizeof *text);
        *text = (struct sim_text){.key = t->key, .data = batch_at(b, t->text), .len = t->text.len};
        map_put(&d->texts, text_slot(&t->key), text);
    }
    assert(memcmp(&text->key, &t->key, sizeof text->key) == 0);
    struct sim_owner *owner = map_get(&d->owners, t->owner);
    if (!owner) {
        owner = xcalloc(1, sizeof *owner);
        map_put(&d->owners, t->owner, owner);
    }
    owner->live = true;
    for (uint32_t i = 0; i < owner->texts.len; i++)
        if (owner->texts.at[i] == text)
            return;
    vec_push(&owner->texts, text);
    text->owners++;
}

static void count_array_row(struct sim_disk *d, uint64_t array, intptr_t change) {
    if (!array)
        return;
    intptr_t rows = (intptr_t)map_get(&d->array_rows, array) + change;
    if (rows)
        map_put(&d->array_rows, array, (void *)rows);
    else
        map_remove(&d->array_rows, array);
}

static void keep_history(struct sim_disk *d, const struct store_history *row) {
    uintptr_t at = (uintptr_t)map_get(&d->history_by_id, row->id);
    if (at) {
        count_array_row(d, d->history.at[at - 1].array, -1);
        d->history.at[at - 1] = *row;
    } else {
        vec_push(&d->history, *row);
        map_put(&d->history_by_id, row->id, (void *)(uintptr_t)d->history.len);
    }
    count_array_row(d, row->array, 1);
}

static void drop_owner(struct sim_disk *d, uint64_t id) {
    struct sim_owner *owner = map_get(&d->owners, id);
    if (!owner || owner->live || map_get(&d->history_by_id, id) || map_get(&d->array_rows, id))
        return;
    for (uint32_t i = 0; i < owner->texts.len; i++) {
        struct sim_text *text = owner->texts.at[i];
        if (--text->owners == 0) {
            map_remove(&d->texts, text_slot(&text->key));
            free(text);
        }
    }
    map_remove(&d->owners, id);
    owner_free(owner);
}

static void keep_blob(struct sim_disk *d, const struct store_batch *b, const struct batch_blob *from) {
    const char *name = batch_at(b, from->name);  // batches stay as long as the disk
    struct sim_blob *blob = strmap_get(&d->blobs, name);
    if (!blob) {
        blob = xcalloc(1, sizeof *blob);
        strmap_put(&d->blobs, name, blob);
    }
    *blob = (struct sim_blob){.data = batch_at(b, from->data), .len = from->data.len, .removed = from->remove};
}

void sim_disk_keep(struct sim_disk *d, struct store_batch *b) {
    for (uint32_t i = 0; i < b->events.len; i++) {
        struct store_event ev = store_batch_event_view(b, &b->events.at[i]);
        assert(ev.seq == (d->journal.len ? d->journal.at[d->journal.len - 1].seq : 0) + 1);
        vec_push(&d->journal, ev);
    }
    for (uint32_t i = 0; i < b->texts.len; i++)
        keep_text(d, b, &b->texts.at[i]);
    for (uint32_t i = 0; i < b->history.len; i++) {
        struct store_history row = store_batch_history_view(b, &b->history.at[i]);
        keep_history(d, &row);
    }
    for (uint32_t i = 0; i < b->releases.len; i++) {
        struct sim_owner *owner = map_get(&d->owners, b->releases.at[i]);
        if (owner)
            owner->live = false;
        drop_owner(d, b->releases.at[i]);
    }
    for (uint32_t i = 0; i < b->blobs.len; i++)
        keep_blob(d, b, &b->blobs.at[i]);
    if (b->level > d->level) {
        d->level = b->level;
        d->release = batch_at(b, b->release);
    }
    d->used_bytes += store_batch_bytes(b);
    b->next = d->batches;
    d->batches = b;
}

void sim_disk_restore(struct sim_disk *d, uint64_t seq) {
    assert(!d->store);
    VEC(struct store_batch *) batches = {0};  // newest first
    for (struct store_batch *b = d->batches; b; b = b->next)
        vec_push(&batches, b);
    struct sim_disk *fresh = sim_disk_new(0);
    fresh->rand = d->rand;
    fresh->faults = d->faults;
    fresh->now_ms = d->now_ms;
    for (uint32_t i = batches.len; i-- > 0;) {
        struct store_batch *b = batches.at[i];
        if (b->events.len && b->events.at[b->events.len - 1].seq > seq)
            seq = 0;  // nor anything behind it
        if (seq)
            sim_disk_keep(fresh, b);
        else
            store_batch_free(b);
    }
    uint64_t last = fresh->journal.len ? fresh->journal.at[fresh->journal.len - 1].seq : 0;
    for (int i = STORE_SNAPSHOTS_KEPT; i-- > 0;)
        if (d->snapshots[i].seq && d->snapshots[i].seq <= last)
            sim_disk_keep_snapshot(fresh, d->snapshots[i].seq, TAKE_PTR(d->snapshots[i].data), d->snapshots[i].len);
    d->batches = NULL;
    struct sim_disk old = *d;
    *d = *fresh;
    *fresh = old;
    sim_disk_free(fresh);
    vec_done(&batches);
}

uint64_t sim_disk_snapshot(const struct sim_disk *d) {
    return d->snapshots[0].seq;
}

void sim_disk_keep_snapshot(struct sim_disk *d, uint64_t seq, void *data, size_t len) {
    struct sim_snapshot *s = d->snapshots;
    free(s[STORE_SNAPSHOTS_KEPT - 1].data);
    memmove(s + 1, s, (STORE_SNAPSHOTS_KEPT - 1) * sizeof *s);
    s[0] = (struct sim_snapshot){seq, data, len};
}

static void prune_history(struct sim_disk *d, int64_t before_ms) {
    VEC(struct store_history) gone = {0};
    uint32_t kept = 0;
    for (uint32_t i = 0; i < d->history.len; i++) {
        struct store_history row = d->history.at[i];
        if (row.end_ms < before_ms) {
            map_remove(&d->history_by_id, row.id);
            count_array_row(d, row.array, -1);
            vec_push(&gone, row);
        } else {
            d->history.at[kept++] = row;
            map_put(&d->history_by_id, row.id, (void *)(uintptr_t)kept);
        }
    }
    d->history.len = kept;
    for (uint32_t i = 0; i < gone.len; i++) {
        drop_owner(d, gone.at[i].id);
        if (gone.at[i].array)
            drop_owner(d, gone.at[i].array);
    }
    vec_done(&gone);
}

void sim_disk_prune(struct sim_disk *d, const struct store_retention *keep, int64_t now_ms) {
    uint64_t oldest = d->snapshots[STORE_SNAPSHOTS_KEPT - 1].seq;
    if (keep->journal_ms) {
        while (d->journal_first < d->journal.len &&
               d->journal.at[d->journal_first].seq < oldest &&
               d->journal.at[d->journal_first].at_ms < now_ms - keep->journal_ms)
            d->journal_first++;
    }
    if (keep->history_ms)
        prune_history(d, now_ms - keep->history_ms);
}

// --- asking ---

int sim_disk_load(struct sim_disk *d, const struct store_loader *loader, uint64_t *last_seq,
                  struct error *e) {
    uint64_t from = 0;
    for (int i = 0; i < STORE_SNAPSHOTS_KEPT && !from; i++) {
        const struct sim_snapshot *s = &d->snapshots[i];
        if (!s->seq || (i == 0 && d->rotten && d->snapshots[1].seq))
            continue;
        if (loader->snapshot(loader->ctx, s->seq, s->data, s->len) == 0)
            from = s->seq;
    }
    *last_seq = from;
    for (uint32_t i = d->journal_first; i < d->journal.len; i++) {
        const struct store_event *ev = &d->journal.at[i];
        if (ev->seq <= from)
            continue;
        if (ev->seq != *last_seq + 1)
            return error_set(e, EBADMSG, "the journal starts at record %" PRIu64
                             " and no snapshot before it can be read", ev->seq);
        int r = loader->event(loader->ctx, ev);
        if (r < 0)
            return error_set(e, -r, "journal record %" PRIu64 " (type %u) cannot be applied",
                             ev->seq, ev->type);
        *last_seq = ev->seq;
    }
    return 0;
}

int sim_disk_text(struct sim_disk *d, const struct store_key *key, void **out, size_t *len,
                  struct error *e) {
    const struct sim_text *text = map_get(&d->texts, text_slot(key));
    if (!text || memcmp(&text->key, key, sizeof *key) != 0)
        return error_set(e, ENOENT, "no such script or environment is stored");
    char *copy = xmalloc(text->len + 1);
    if (text->len)
        memcpy(copy, text->data, text->len);
    copy[text->len] = 0;
    *out = copy;
    *len = text->len;
    return 0;
}

int sim_disk_blob(struct sim_disk *d, const char *name, void **out, size_t *len, struct error *e) {
    const struct sim_blob *blob = strmap_get(&d->blobs, name);
    if (!blob || blob->removed)
        return error_set(e, ENOENT, "no value named \"%s\" is stored", name);
    char *copy = xmalloc(blob->len + 1);
    if (blob->len)
        memcpy(copy, blob->data, blob->len);
    copy[blob->len] = 0;
    *out = copy;
    *len = blob->len;
    return 0;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int sim_disk_blobs(struct sim_disk *d, const char *prefix, store_blob_fn fn, void *ctx) {
    VEC(const char *) names = {0};
    const char *name;
    void *value;
    int r = 0;
    for (size_t it = 0; strmap_next(&d->blobs, &it, &name, &value);)
        if (!((struct sim_blob *)value)->removed && str_has_prefix(name, prefix))
            vec_push(&names, name);
    if (names.len)
        qsort(names.at, names.len, sizeof *names.at, compare_names);
    for (uint32_t i = 0; i < names.len && r == 0; i++) {
        const struct sim_blob *blob = strmap_get(&d->blobs, names.at[i]);
        r = fn(ctx, names.at[i], blob->data, blob->len);
    }
    vec_done(&names);
    return r < 0 ? r : 0;
}

int sim_disk_events(struct sim_disk *d, uint64_t job, uint64_t after, uint32_t limit,
                    store_event_fn fn, void *ctx) {
    uint32_t seen = 0;
    for (uint32_t i = d->journal_first; i < d->journal.len; i++) {
        const struct store_event *ev = &d->journal.at[i];
        if (ev->seq <= after || (job && ev->job != job))
            continue;
        int r = fn(ctx, ev);
        if (r != 0)
            return r < 0 ? r : 0;
        if (limit && ++seen == limit)
            break;
    }
    return 0;
}

// The same conditions as question_filters in history.c has in SQL.
static bool row_matches(const struct store_history *row, const struct store_query *q) {
    return (!q->id || row->id == q->id) && (!q->array || row->array == q->array) &&
           (!q->user || strcmp(row->user, q->user) == 0) &&
           (!q->project || strcmp(row->project, q->project) == 0) &&
           (!q->name || strcmp(row->name, q->name) == 0) &&
           (!q->state_mask || (q->state_mask >> row->state & 1)) &&
           (!q->ended_from_ms || row->end_ms >= q->ended_from_ms) &&
           (!q->ended_before_ms || row->end_ms < q->ended_before_ms) &&
           (!q->submitted_from_ms || row->submit_ms >= q->submitted_from_ms) &&
           (!q->submitted_before_ms || row->submit_ms < q->submitted_before_ms) &&
           (!q->has_index || row->index == q->index) &&
           (!q->began_before_ms || store_history_began_ms(row) < q->began_before_ms);
}

static int compare_u64(uint64_t a, uint64_t b) {
    return a < b ? -1 : a > b;
}

static int row_order(const struct store_history *a, int64_t end_ms, uint64_t id,
                     const struct store_query *q) {
    int by_end = a->end_ms < end_ms ? -1 : a->end_ms > end_ms;
    int order = q->order != STORE_BY_ID && by_end ? by_end : compare_u64(a->id, id);
    return q->descending ? -order : order;
}

static int compare_rows(const void *a, const void *b, void *query) {
    const struct store_history *other = b;
    return row_order(a, other->end_ms, other->id, query);
}

int sim_disk_history(struct sim_disk *d, const struct store_query *q, store_history_fn fn,
                     void *ctx) {
    VEC(struct store_history) rows = {0};
    for (uint32_t i = 0; i < d->history.len; i++) {
        const struct store_history *row = &d->history.at[i];
        if (row_matches(row, q) &&
            (!q->resume || row_order(row, q->after_end_ms, q->after_id, q) > 0))
            vec_push(&rows, *row);
    }
    struct store_query copy = *q;
    if (rows.len)
        qsort_r(rows.at, rows.len, sizeof *rows.at, compare_rows, &copy);
    int r = 0;
    for (uint32_t i = 0; i < rows.len && (!q->limit || i < q->limit) && r == 0; i++)
        r = fn(ctx, &rows.at[i]);
    vec_done(&rows);
    return r < 0 ? r : 0;
}
