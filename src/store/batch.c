// Builds batches: everything handed in is copied, checked against its limit by assertion (callers
// refuse oversized input long before), and kept in the order it came.
#include "store/batch.h"

#include <string.h>

#include "ops.h"

enum { TRANSACTION_BYTES_MAX = 8 << 20 };  // bounds how long an acknowledgement waits for others

struct store_batch *store_batch_new(void) {
    return xcalloc(1, sizeof(struct store_batch));
}

struct store_batch *store_batch_free(struct store_batch *b) {
    if (!b)
        return NULL;
    buf_done(&b->bytes);
    vec_done(&b->events);
    vec_done(&b->texts);
    vec_done(&b->releases);
    vec_done(&b->history);
    vec_done(&b->blobs);
    free(b);
    return NULL;
}

bool store_batch_empty(const struct store_batch *b) {
    return !b->events.len && !b->texts.len && !b->releases.len && !b->history.len &&
           !b->blobs.len && !b->level;
}

size_t store_batch_bytes(const struct store_batch *b) {
    return b->bytes.len + b->events.len * sizeof *b->events.at + b->texts.len * sizeof *b->texts.at +
           b->releases.len * sizeof *b->releases.at + b->history.len * sizeof *b->history.at +
           b->blobs.len * sizeof *b->blobs.at;
}

static struct batch_span batch_put(struct store_batch *b, const void *p, size_t len) {
    struct batch_span span = {b->bytes.len, len};
    if (len)
        buf_add(&b->bytes, p, len);
    return span;
}

static struct batch_span batch_put_text(struct store_batch *b, const char *s) {
    struct batch_span span = {b->bytes.len, s ? strlen(s) : 0};
    buf_add(&b->bytes, s ? s : "", span.len + 1);
    return span;
}

void store_batch_event(struct store_batch *b, const struct store_event *event) {
    assert(event->seq > 0 && event->seq <= INT64_MAX && event->job <= INT64_MAX);
    assert(event->len <= STORE_EVENT_BYTES_MAX);
    assert(!b->events.len || event->seq == b->events.at[b->events.len - 1].seq + 1);
    struct batch_span data = batch_put(b, event->data, event->len);
    vec_push(&b->events, (struct batch_event){.seq = event->seq, .job = event->job,
                                              .at_ms = event->at_ms, .type = event->type,
                                              .data = data});
}

void store_batch_text(struct store_batch *b, uint64_t owner, const struct store_key *key,
                      const void *text, size_t len) {
    assert(owner > 0 && owner <= INT64_MAX);
    assert(len <= STORE_TEXT_BYTES_MAX);
    struct batch_span span = batch_put(b, text, len);
    vec_push(&b->texts, (struct batch_text){.owner = owner, .key = *key, .text = span});
}

void store_batch_release(struct store_batch *b, uint64_t owner) {
    assert(owner > 0 && owner <= INT64_MAX);
    vec_push(&b->releases, owner);
}

void store_batch_history(struct store_batch *b, const struct store_history *row) {
    assert(row->id > 0 && row->id <= INT64_MAX && row->array <= INT64_MAX);
    assert(row->state < 32);  // so that a query can name states in a mask
    struct batch_history h = {.row = *row};
    h.row.user = h.row.project = h.row.name = h.row.nodes = NULL;
    h.row.data = NULL;
    h.user = batch_put_text(b, row->user);
    h.project = batch_put_text(b, row->project);
    h.name = batch_put_text(b, row->name);
    h.nodes = batch_put_text(b, row->nodes);
    h.data = batch_put(b, row->data, row->len);
    vec_push(&b->history, h);
}

void store_batch_blob(struct store_batch *b, const char *name, const void *data, size_t len) {
    assert(*name && strlen(name) <= STORE_BLOB_NAME_MAX && len <= STORE_BLOB_BYTES_MAX);
    struct batch_blob blob = {.remove = !data};
    blob.name = batch_put_text(b, name);
    blob.data = batch_put(b, data, data ? len : 0);
    vec_push(&b->blobs, blob);
}

void store_batch_level(struct store_batch *b, uint32_t level, const char *release) {
    assert(level > b->level && strlen(release) <= STORE_BLOB_NAME_MAX);
    b->level = level;
    b->release = batch_put_text(b, release);
}

struct store_event store_batch_event_view(const struct store_batch *b, const struct batch_event *ev) {
    return (struct store_event){.seq = ev->seq, .at_ms = ev->at_ms, .type = ev->type,
                                .job = ev->job, .data = batch_at(b, ev->data),
                                .len = ev->data.len};
}

struct store_history store_batch_history_view(const struct store_batch *b, const struct batch_history *h) {
    struct store_history row = h->row;
    row.user = batch_at(b, h->user);
    row.project = batch_at(b, h->project);
    row.name = batch_at(b, h->name);
    row.nodes = batch_at(b, h->nodes);
    row.data = batch_at(b, h->data);
    return row;
}

// Several batches in one transaction cost one sync: while the disk is busy with one, those that come meanwhile
// gather, so the slower the disk, the larger the transactions and the more commands per sync.
struct store_batch *store_batches_take(struct store_batch **head, struct store_batch ***tail,
                                       uint64_t until) {
    struct store_batch *list = *head, *last = *head;
    size_t bytes = store_batch_bytes(last);
    while (last->next && (until ? last->next->ticket <= until : bytes < TRANSACTION_BYTES_MAX)) {
        last = last->next;
        bytes += store_batch_bytes(last);
    }
    *head = last->next;
    if (!*head)
        *tail = head;
    last->next = NULL;
    return list;
}

uint64_t store_batches_put_back(struct store_batch **head, struct store_batch ***tail,
                                struct store_batch *list) {
    struct store_batch *last = list;
    while (last->next)
        last = last->next;
    last->next = *head;
    if (!*head)
        *tail = &last->next;
    *head = list;
    return last->ticket;
}
