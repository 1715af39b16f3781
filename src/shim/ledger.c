// The job's memory account. The total is one 64-bit word {pages used, slot, sequence}; a change
// is announced in the slot's `pending` word, takes effect when the total is swapped, and is then
// copied into the slot's own word by whoever comes next ("help"). So total = sum of slots plus at
// most one announced change, at every instruction. Only the slot's owner starts changes on it,
// or, once the owner is dead, anybody, and then only the one that empties it.
#include "shim/ledger.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ledger_file.h"

struct ledger {
    struct ledger_file *file;
    int fd;
    _Atomic int slot; // -1: not attached
    uint64_t me;
    pthread_mutex_t lock; // threads of this process; never shared
};

static uint64_t step_load(_Atomic uint64_t *word) {
    LEDGER_STEP();
    return atomic_load(word);
}

static void step_store(_Atomic uint64_t *word, uint64_t value) {
    LEDGER_STEP();
    atomic_store(word, value);
}

static bool step_swap(_Atomic uint64_t *word, uint64_t *seen, uint64_t value) {
    LEDGER_STEP();
    return atomic_compare_exchange_strong(word, seen, value);
}

static uint64_t file_pages(uint64_t word) {
    return word >> (WORD_SLOT_BITS + WORD_SEQ_BITS);
}

static unsigned word_seq(uint64_t word) {
    return (unsigned)(word & WORD_SEQ_MASK);
}

static unsigned word_slot(uint64_t word) {
    return (unsigned)(word >> WORD_SEQ_BITS) & ((1u << WORD_SLOT_BITS) - 1);
}

static uint64_t total_word(uint64_t pages, unsigned slot, unsigned seq) {
    return pages << (WORD_SLOT_BITS + WORD_SEQ_BITS) | (uint64_t)slot << WORD_SEQ_BITS | seq;
}

static uint64_t slot_pages(uint64_t word) {
    return word >> WORD_SEQ_BITS;
}

static uint64_t slot_word(uint64_t pages, unsigned seq) {
    return pages << WORD_SEQ_BITS | seq;
}

static uint64_t pending_word(int64_t delta, unsigned seq) {
    return (uint64_t)delta << WORD_SEQ_BITS | seq;
}

static int64_t pending_delta(uint64_t word) {
    return (int64_t)word >> WORD_SEQ_BITS;
}

static unsigned seq_next(unsigned seq) {
    return (seq + 1) & WORD_SEQ_MASK;
}

uint64_t ledger_round(uint64_t bytes) {
    uint64_t page = 1ULL << LEDGER_PAGE_SHIFT;
    return (bytes + page - 1) & ~(page - 1);
}

// Copies the change that made `total` into its slot, unless somebody already did.
static void help(struct ledger_file *f, uint64_t total) {
    unsigned i = word_slot(total), seq = word_seq(total);
    if (i >= LEDGER_SLOTS)
        return;
    struct ledger_slot *s = &f->slot[i];
    uint64_t charged = step_load(&s->charged);
    uint64_t pending = step_load(&s->pending);
    if (seq_next(word_seq(charged)) != seq || word_seq(pending) != seq)
        return;
    uint64_t pages = slot_pages(charged) + (uint64_t)pending_delta(pending);
    step_swap(&s->charged, &charged, slot_word(pages, seq));
}

static void note_max(_Atomic uint64_t *word, uint64_t value) {
    uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);
    while (seen < value && !atomic_compare_exchange_weak(word, &seen, value))
        ;
}

// One change on the caller's own slot. `limit_pages` is what the total may reach.
static int change(struct ledger *l, int64_t delta, uint64_t limit_pages) {
    struct ledger_file *f = l->file;
    struct ledger_slot *s = &f->slot[l->slot];
    for (;;) {
        uint64_t total = step_load(&f->total);
        help(f, total);
        uint64_t mine = step_load(&s->charged);
        uint64_t used = file_pages(total);
        if (delta > 0 && (used + (uint64_t)delta > limit_pages ||
                          used + (uint64_t)delta > PAGES_MAX))
            return -ENOMEM;
        if (delta < 0 && slot_pages(mine) < (uint64_t)-delta)
            return -ERANGE;
        // First the change is announced in the slot, then the swap of the total makes it happen and names the slot.
        // Whoever finds the total so finishes the slot (help), so a process killed between the two loses nothing.
        unsigned seq = seq_next(word_seq(mine));
        step_store(&s->pending, pending_word(delta, seq));
        uint64_t next = total_word(used + (uint64_t)delta, (unsigned)l->slot, seq);
        if (!step_swap(&f->total, &total, next))
            continue;
        help(f, next);
        note_max(&f->peak_pages, used + (uint64_t)delta);
        return 0;
    }
}

// Empties the slot of a dead owner. Several may try at once; all announce the same change. A late
// one must not touch a slot that has a new owner: `owner` is read after `pending`, so a pending
// word of the new owner is never taken for the dead one's.
static bool empty_slot(struct ledger_file *f, unsigned i, uint64_t dead) {
    struct ledger_slot *s = &f->slot[i];
    for (;;) {
        uint64_t total = step_load(&f->total);
        help(f, total);
        uint64_t charged = step_load(&s->charged);
        uint64_t pending = step_load(&s->pending);
        if (step_load(&s->owner) != dead)
            return false;
        uint64_t pages = slot_pages(charged);
        if (!pages)
            break;
        uint64_t used = file_pages(total);
        unsigned seq = seq_next(word_seq(charged));
        uint64_t empty = pending_word(-(int64_t)pages, seq);
        if (pending != empty && !step_swap(&s->pending, &pending, empty))
            continue;
        if (step_load(&s->charged) != charged || step_load(&s->owner) != dead)
            continue;
        uint64_t rest = used >= pages ? used - pages : 0;
        uint64_t next = total_word(rest, i, seq);
        if (step_swap(&f->total, &total, next))
            help(f, next);
    }
    return step_swap(&s->owner, &dead, 0);
}

unsigned ledger_reclaim_dead(struct ledger *l) {
    unsigned n = 0;
    for (unsigned i = 0; i < LEDGER_SLOTS; i++) {
        uint64_t owner = atomic_load(&l->file->slot[i].owner);
        if (!owner || (int)i == l->slot)
            continue;
        if (ledger_owner_dead(l->fd, i, owner, owner_namespace(l->me)))
            n += empty_slot(l->file, i, owner);
    }
    return n;
}

static int lock_slot(int fd, unsigned i, short type) {
    struct flock lk = {.l_type = type, .l_whence = SEEK_SET,
                       .l_start = LOCK_BASE + (off_t)i, .l_len = 1};
    return fcntl(fd, F_OFD_SETLK, &lk) < 0 ? -errno : 0;
}

// The lock comes before the claim, so that a claimed slot is never seen unlocked.
static int claim_slot(struct ledger *l) {
    for (unsigned i = 0; i < LEDGER_SLOTS; i++) {
        struct ledger_slot *s = &l->file->slot[i];
        if (atomic_load(&s->owner) || lock_slot(l->fd, i, F_WRLCK) < 0)
            continue;
        uint64_t none = 0;
        if (atomic_compare_exchange_strong(&s->owner, &none, l->me)) {
            for (int k = 0; k < LEDGER_KINDS; k++)
                atomic_store(&s->kind_bytes[k], 0);
            atomic_store(&s->launches, 0);
            atomic_store(&s->throttled_ns, 0);
            l->slot = (int)i;
            return 0;
        }
        lock_slot(l->fd, i, F_UNLCK);
    }
    return -EUSERS;
}

int ledger_attach(struct ledger *l) {
    pthread_mutex_lock(&l->lock);
    int r = 0;
    if (l->slot < 0) {
        l->me = ledger_owner_word();
        // A slot under our own name was left by the program this process was before exec.
        for (unsigned i = 0; i < LEDGER_SLOTS; i++)
            if (atomic_load(&l->file->slot[i].owner) == l->me && !ledger_slot_locked(l->fd, i))
                empty_slot(l->file, i, l->me);
        r = claim_slot(l);
        if (r == -EUSERS && ledger_reclaim_dead(l))
            r = claim_slot(l);
    }
    pthread_mutex_unlock(&l->lock);
    return r;
}

void ledger_detach(struct ledger *l) {
    pthread_mutex_lock(&l->lock);
    if (l->slot >= 0) {
        unsigned i = (unsigned)l->slot;
        l->slot = -1;
        empty_slot(l->file, i, l->me);
        lock_slot(l->fd, i, F_UNLCK);
    }
    pthread_mutex_unlock(&l->lock);
}

bool ledger_attached(const struct ledger *l) {
    return l->slot >= 0;
}

// The child owns nothing of its parent's. Its copy of the descriptor shares the parent's lock and
// would keep it alive; a descriptor of its own is opened instead.
void ledger_after_fork(struct ledger *l) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", l->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0) {
        close(l->fd);
        l->fd = fd;
    }
    l->slot = -1;
    l->me = 0;
    pthread_mutex_init(&l->lock, NULL);
}

static void kind_add(struct ledger *l, enum ledger_kind kind, int64_t bytes) {
    atomic_fetch_add_explicit(&l->file->slot[l->slot].kind_bytes[kind], (uint64_t)bytes,
                              memory_order_relaxed);
}

static uint64_t limit_pages(const struct ledger *l) {
    uint64_t limit = atomic_load_explicit(&l->file->memory_bytes, memory_order_relaxed);
    return limit ? limit >> LEDGER_PAGE_SHIFT : PAGES_MAX;
}

int ledger_reserve(struct ledger *l, enum ledger_kind kind, uint64_t bytes) {
    uint64_t pages = ledger_round(bytes) >> LEDGER_PAGE_SHIFT;
    if (bytes > UINT64_MAX / 2 || pages > PAGES_MAX) {
        atomic_fetch_add(&l->file->refused, 1);
        return -ENOMEM;
    }
    pthread_mutex_lock(&l->lock);
    int r = l->slot < 0 ? -ESTALE : change(l, (int64_t)pages, limit_pages(l));
    if (r == -ENOMEM && ledger_reclaim_dead(l))
        r = change(l, (int64_t)pages, limit_pages(l));
    if (r == 0)
        kind_add(l, kind, (int64_t)(pages << LEDGER_PAGE_SHIFT));
    else if (r == -ENOMEM)
        atomic_fetch_add(&l->file->refused, 1);
    pthread_mutex_unlock(&l->lock);
    return r;
}

void ledger_refund(struct ledger *l, enum ledger_kind kind, uint64_t bytes) {
    uint64_t pages = ledger_round(bytes) >> LEDGER_PAGE_SHIFT;
    pthread_mutex_lock(&l->lock);
    if (pages && l->slot >= 0 && change(l, -(int64_t)pages, PAGES_MAX) == 0)
        kind_add(l, kind, -(int64_t)(pages << LEDGER_PAGE_SHIFT));
    pthread_mutex_unlock(&l->lock);
}

void ledger_charge(struct ledger *l, enum ledger_kind kind, uint64_t bytes) {
    uint64_t pages = ledger_round(bytes) >> LEDGER_PAGE_SHIFT;
    pthread_mutex_lock(&l->lock);
    if (pages && l->slot >= 0 && change(l, (int64_t)pages, PAGES_MAX) == 0) {
        kind_add(l, kind, (int64_t)(pages << LEDGER_PAGE_SHIFT));
        uint64_t used = file_pages(atomic_load(&l->file->total)), limit = limit_pages(l);
        if (used > limit)
            note_max(&l->file->overdraft_pages, used - limit);
    }
    pthread_mutex_unlock(&l->lock);
}

uint64_t ledger_used(const struct ledger *l) {
    return file_pages(atomic_load(&l->file->total)) << LEDGER_PAGE_SHIFT;
}

uint64_t ledger_own(const struct ledger *l) {
    if (l->slot < 0)
        return 0;
    help(l->file, atomic_load(&l->file->total));
    return slot_pages(atomic_load(&l->file->slot[l->slot].charged)) << LEDGER_PAGE_SHIFT;
}

uint64_t ledger_own_kind(const struct ledger *l, enum ledger_kind kind) {
    return l->slot < 0 ? 0 : atomic_load(&l->file->slot[l->slot].kind_bytes[kind]);
}

struct ledger_limits ledger_limits(const struct ledger *l) {
    return ledger_file_limits(l->file);
}

const char *ledger_job(const struct ledger *l) {
    return l->file->job;
}

void ledger_note_context(struct ledger *l, uint64_t bytes) {
    note_max(&l->file->context_bytes, bytes);
}

void ledger_view(struct ledger *l, struct ledger_usage *out) {
    ledger_file_usage(l->file, l->fd, out);
}

struct ledger_compute *ledger_compute(struct ledger *l) {
    return &l->file->compute;
}

_Atomic uint32_t *ledger_compute_milli(struct ledger *l) {
    return &l->file->compute_milli;
}

_Atomic uint32_t *ledger_flags(struct ledger *l) {
    return &l->file->flags;
}

void ledger_count_launches(struct ledger *l, uint64_t launches, uint64_t throttled_ns) {
    struct ledger_compute *c = &l->file->compute;
    atomic_fetch_add_explicit(&c->launches, launches, memory_order_relaxed);
    if (throttled_ns)
        atomic_fetch_add_explicit(&c->throttled_ns, throttled_ns, memory_order_relaxed);
    if (l->slot < 0)
        return;
    struct ledger_slot *s = &l->file->slot[l->slot];
    atomic_fetch_add_explicit(&s->launches, launches, memory_order_relaxed);
    if (throttled_ns)
        atomic_fetch_add_explicit(&s->throttled_ns, throttled_ns, memory_order_relaxed);
}

int ledger_open(const char *path, struct ledger **out) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int r = ledger_file_check(fd);
    if (r < 0) {
        close(fd);
        return r;
    }
    void *map = mmap(NULL, sizeof(struct ledger_file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        r = -errno;
        close(fd);
        return r;
    }
    // Programs that close the first few descriptors they did not open should not hit this one.
    int high = fcntl(fd, F_DUPFD_CLOEXEC, 512);
    if (high >= 0) {
        close(fd);
        fd = high;
    }
    struct ledger *l = calloc(1, sizeof *l);
    if (!l)
        abort();
    *l = (struct ledger){.file = map, .fd = fd, .slot = -1};
    pthread_mutex_init(&l->lock, NULL);
    *out = l;
    return 0;
}

struct ledger *ledger_close(struct ledger *l) {
    if (!l)
        return NULL;
    ledger_detach(l);
    munmap(l->file, sizeof *l->file);
    close(l->fd);
    pthread_mutex_destroy(&l->lock);
    free(l);
    return NULL;
}
