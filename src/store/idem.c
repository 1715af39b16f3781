// A queue in ticket order plus a map from "user\nkey". A later entry with the same key takes the
// map over; settling the earlier one must then leave the map alone.
#include "idem.h"

#include <string.h>

struct idem_entry {
    struct idem_entry *next;
    uint64_t ticket, job;
    int64_t expires_ms;
    char name[];
};

void idem_pending_add(struct idem_pending *p, const struct store_batch *b) {
    for (uint32_t i = 0; i < b->idems.len; i++) {
        const struct batch_idem *idem = &b->idems.at[i];
        struct idem_entry *entry = xcalloc(1, sizeof *entry + idem->user.len + idem->key.len + 2);
        *entry = (struct idem_entry){.ticket = b->ticket, .job = idem->job,
                                     .expires_ms = idem->expires_ms};
        memcpy(entry->name, batch_at(b, idem->user), idem->user.len);
        entry->name[idem->user.len] = '\n';
        memcpy(entry->name + idem->user.len + 1, batch_at(b, idem->key), idem->key.len);
        strmap_put(&p->by_key, entry->name, entry);
        if (p->tail)
            p->tail->next = entry;
        else
            p->head = entry;
        p->tail = entry;
    }
}

void idem_pending_settle(struct idem_pending *p, uint64_t ticket) {
    while (p->head && p->head->ticket <= ticket) {
        struct idem_entry *entry = p->head;
        p->head = entry->next;
        if (!p->head)
            p->tail = NULL;
        if (strmap_get(&p->by_key, entry->name) == entry)
            strmap_remove(&p->by_key, entry->name);
        free(entry);
    }
}

uint64_t idem_pending_find(const struct idem_pending *p, const char *user, const char *key,
                           int64_t now_ms) {
    if (!p->head)
        return 0;
    char name[2 * STORE_KEY_TEXT_MAX + 2];
    size_t user_len = strlen(user), key_len = strlen(key);
    if (user_len > STORE_KEY_TEXT_MAX || key_len > STORE_KEY_TEXT_MAX)
        return 0;
    memcpy(name, user, user_len);
    name[user_len] = '\n';
    memcpy(name + user_len + 1, key, key_len + 1);
    const struct idem_entry *entry = strmap_get(&p->by_key, name);
    return entry && entry->expires_ms > now_ms ? entry->job : 0;
}

void idem_pending_done(struct idem_pending *p) {
    idem_pending_settle(p, UINT64_MAX);
    strmap_done(&p->by_key);
}
