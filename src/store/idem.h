// Idempotency keys handed over but not yet committed, so that a repeat that comes in between finds
// its job too. Internal to the store.
#pragma once
#include "base/map.h"
#include "store/batch.h"

struct idem_pending {
    struct strmap by_key;
    struct idem_entry *head, *tail;  // by ticket
};

void idem_pending_add(struct idem_pending *p, const struct store_batch *b);
void idem_pending_settle(struct idem_pending *p, uint64_t ticket);  // up to and including
// The job, or 0.
uint64_t idem_pending_find(const struct idem_pending *p, const char *user, const char *key,
                           int64_t now_ms);
void idem_pending_done(struct idem_pending *p);
