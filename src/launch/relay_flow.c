// Owns the rules of positions; see the header.
#include "launch/relay_flow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"

enum { READ_BYTES = 256 << 10 };  // looked at in one go

const struct relay_limits launch_relay_limits = {RELAY_BUDGET_BYTES, RELAY_ALONE_BYTES};

static uint64_t waiting(const struct relay_page *p) {
    uint64_t len = atomic_load(&p->out_len), acked = atomic_load(&p->out_acked);
    return len > acked ? len - acked : 0;
}

bool launch_relay_blocks(const struct relay_page *p, const struct relay_limits *l) {
    return atomic_load(&p->client) && waiting(p) >= l->budget_bytes;
}

bool launch_relay_drops(const struct relay_page *p, const struct relay_limits *l) {
    return waiting(p) >= l->alone_bytes + l->budget_bytes ||
           (!atomic_load(&p->client) && waiting(p) >= l->alone_bytes);
}

bool launch_relay_ack(struct relay_page *p, uint64_t offset, const struct relay_limits *l) {
    uint64_t acked = atomic_load(&p->out_acked), len = atomic_load(&p->out_len);
    if (offset <= acked || offset > len)
        return false;
    atomic_store(&p->out_acked, offset);
    return len - acked >= l->budget_bytes;
}

int launch_relay_read(struct relay_reader *r, uint64_t end, const struct relay_source *s, void *ctx) {
    if (!r->credit || r->at >= end)
        return r->at >= end;
    cleanup_free char *data = xcalloc(1, READ_BYTES);
    while (r->credit && r->at < end) {
        size_t want = end - r->at < READ_BYTES ? (size_t)(end - r->at) : READ_BYTES, at = 0;
        ssize_t n = s->read(ctx, r->at, data, want);
        if (n <= 0)
            return 1;  // a damaged file has no more than this
        while (r->credit && at + sizeof(struct relay_record) <= (size_t)n) {
            struct relay_record head;
            memcpy(&head, data + at, sizeof head);
            if (head.mark != RELAY_MARK || head.len > RELAY_DATA_MAX)
                return -EBADMSG;
            if (at + sizeof head + head.len > (size_t)n)
                break;
            at += sizeof head + head.len;
            r->credit -= head.len < r->credit ? head.len : r->credit;
            s->piece(ctx, &head, data + at - head.len, r->at + at);
        }
        if (!at)
            return 1;
        r->at += at;
    }
    return r->at >= end;
}
