// Reservations: from a size to charged bytes and back. Large sizes are charged as the blocks the
// driver takes; small ones share blocks, so the charge follows their sum.
#include <errno.h>

#include "shim.h"

static uint64_t round_to(uint64_t bytes, uint64_t step) {
    return bytes > UINT64_MAX - step ? bytes : (bytes + step - 1) / step * step;
}

static bool is_small(enum ledger_kind kind, uint64_t bytes) {
    return (kind == LEDGER_DEVICE || kind == LEDGER_ARRAY) && bytes < SHIM_SMALL_MAX;
}

static int reserve(struct shim_device *d, enum ledger_kind kind, uint64_t bytes) {
    if (!ledger_attached(d->ledger)) {
        int r = ledger_attach(d->ledger);
        if (r < 0)
            return r;
    }
    return ledger_reserve(d->ledger, kind, bytes);
}

// Small allocations of all kinds are charged as device memory.
static int small_change(struct shim_device *d, int64_t bytes) {
    pthread_mutex_lock(&shim.lock);
    uint64_t sum = d->small_bytes + (uint64_t)bytes;
    uint64_t want = round_to(sum, SHIM_BLOCK_BYTES);
    int r = 0;
    if (want > d->small_charged)
        r = reserve(d, LEDGER_DEVICE, want - d->small_charged);
    else if (want < d->small_charged)
        ledger_refund(d->ledger, LEDGER_DEVICE, d->small_charged - want);
    if (r == 0) {
        d->small_bytes = sum;
        d->small_charged = want;
    }
    pthread_mutex_unlock(&shim.lock);
    return r;
}

int account_reserve(struct shim_device *d, enum ledger_kind kind, uint64_t bytes) {
    if (is_small(kind, bytes))
        return small_change(d, (int64_t)round_to(bytes, 512));
    return reserve(d, kind, round_to(bytes, SHIM_BLOCK_BYTES));
}

void account_refund(struct shim_device *d, enum ledger_kind kind, uint64_t bytes) {
    if (is_small(kind, bytes))
        small_change(d, -(int64_t)round_to(bytes, 512));
    else
        ledger_refund(d->ledger, kind, round_to(bytes, SHIM_BLOCK_BYTES));
}

CUresult hold_take(struct hold *h, struct shim_device *d, enum ledger_kind kind, uint64_t bytes) {
    *h = (struct hold){.kind = kind, .bytes = bytes};
    if (!d)
        return CUDA_SUCCESS;
    context_measure(d, false);
    int r = account_reserve(d, kind, bytes);
    if (r == -ENOMEM) { // what our own pools no longer use may be enough
        pool_refresh(d);
        context_measure(d, true);
        r = account_reserve(d, kind, bytes);
    }
    if (r < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    h->device = d;
    atomic_fetch_add(&d->busy, 1);
    return CUDA_SUCCESS;
}

static void hold_end(struct hold *h) {
    atomic_fetch_add(&h->device->changes, 1);
    atomic_fetch_sub(&h->device->busy, 1);
    h->device = NULL;
}

void hold_drop(struct hold *h) {
    if (!h->device)
        return;
    account_refund(h->device, h->kind, h->bytes);
    hold_end(h);
}

// The driver took another size than was asked for. What exists is charged, limit or not.
void hold_resize(struct hold *h, uint64_t bytes) {
    if (!h->device || bytes == h->bytes)
        return;
    account_refund(h->device, h->kind, h->bytes);
    if (account_reserve(h->device, h->kind, bytes) < 0) {
        h->bytes = round_to(bytes, SHIM_BLOCK_BYTES);
        if (is_small(h->kind, bytes))
            h->bytes = SHIM_BLOCK_BYTES;
        ledger_charge(h->device->ledger, h->kind, h->bytes);
        return;
    }
    h->bytes = bytes;
}

CUresult hold_keep(struct hold *h, struct shim_table *t, CUresult r, uint64_t key) {
    if (!h->device)
        return r;
    if (r != CUDA_SUCCESS || !key) {
        hold_drop(h);
        return r;
    }
    CUcontext context = NULL;
    REAL(cuCtxGetCurrent)(&context);
    struct shim_table_entry item = {.key = key, .bytes = h->bytes, .aux = (uintptr_t)context,
                        .device = h->device->ordinal,
                        .kind = (int)h->kind, .refs = 1};
    pthread_mutex_lock(&shim.lock);
    shim_table_put(t, &item);
    pthread_mutex_unlock(&shim.lock);
    hold_end(h);
    return r;
}

bool held_take(struct shim_table *t, uint64_t key, struct shim_table_entry *out) {
    pthread_mutex_lock(&shim.lock);
    bool found = shim_table_take(t, key, out) == 0;
    pthread_mutex_unlock(&shim.lock);
    if (found)
        atomic_fetch_add(&shim.device[out->device].busy, 1);
    return found;
}

void held_end(struct shim_table *t, const struct shim_table_entry *item, CUresult r) {
    struct shim_device *d = &shim.device[item->device];
    if (r == CUDA_SUCCESS) {
        account_refund(d, (enum ledger_kind)item->kind, item->bytes);
    } else { // still there
        pthread_mutex_lock(&shim.lock);
        shim_table_put(t, item);
        pthread_mutex_unlock(&shim.lock);
    }
    atomic_fetch_add(&d->changes, 1);
    atomic_fetch_sub(&d->busy, 1);
}
