// The misbehaving VFS; see shim.h. One per process, used from several threads under one lock.
#include "shim.h"

#include <assert.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/rand.h"
#include "base/vec.h"

struct undo {
    sqlite3_file *file;
    sqlite3_int64 at;
    int len;
    char *old;
};

struct shim_file {
    sqlite3_file base;
    sqlite3_file *real;
    bool is_database;
};

static struct {
    sqlite3_vfs vfs, *real;
    sqlite3_io_methods methods;
    pthread_mutex_t lock;
    enum shim_fault fault;
    unsigned until, left, hits;
    struct rand rand;
    VEC(struct undo) undo;
    bool hold;
    unsigned held;
    pthread_cond_t let_go;
} shim = {.lock = PTHREAD_MUTEX_INITIALIZER, .let_go = PTHREAD_COND_INITIALIZER};

static sqlite3_file *real_of(sqlite3_file *f) {
    return ((struct shim_file *)f)->real;
}

// True when this operation is the one that goes wrong.
static bool shim_due(bool is_write, bool is_sync) {
    bool concerned = (is_write && (shim.fault == SHIM_WRITE_FAILS || shim.fault == SHIM_FULL)) ||
                     (is_sync && shim.fault == SHIM_SYNC_FAILS) || shim.fault == SHIM_POWER_CUT;
    if (!concerned || shim.left == 0)
        return false;
    if (shim.until > 1) {
        shim.until--;
        return false;
    }
    shim.left--;
    shim.hits++;
    return true;
}

static void power_cut(void) {
    for (uint32_t i = shim.undo.len; i-- > 0;) {
        struct undo *u = &shim.undo.at[i];
        if (rand_below(&shim.rand, 2))
            continue;
        if (u->old)
            u->file->pMethods->xWrite(u->file, u->old, u->len, u->at);
    }
    _exit(0);
}

static void remember(sqlite3_file *real, int len, sqlite3_int64 at) {
    struct undo u = {.file = real, .at = at, .len = len, .old = xcalloc(1, (size_t)len)};
    int rc = real->pMethods->xRead(real, u.old, len, at);  // short: the rest reads as zeros
    assert(rc == SQLITE_OK || rc == SQLITE_IOERR_SHORT_READ);
    vec_push(&shim.undo, u);
}

static void forget(sqlite3_file *real) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < shim.undo.len; i++) {
        if (shim.undo.at[i].file == real)
            free(shim.undo.at[i].old);
        else
            shim.undo.at[kept++] = shim.undo.at[i];
    }
    shim.undo.len = kept;
}

static int shim_write(sqlite3_file *f, const void *data, int len, sqlite3_int64 at) {
    sqlite3_file *real = real_of(f);
    int rc = SQLITE_OK;
    pthread_mutex_lock(&shim.lock);
    bool waits = shim.hold && ((struct shim_file *)f)->is_database;
    shim.held += waits;
    while (waits && shim.hold)
        pthread_cond_wait(&shim.let_go, &shim.lock);
    shim.held -= waits;
    bool due = shim_due(true, false);
    if (shim.fault == SHIM_POWER_CUT) {
        remember(real, len, at);
        rc = real->pMethods->xWrite(real, data, len, at);
        if (due)
            power_cut();
    } else if (due) {
        // Half of it arrives: a failing write may be torn.
        real->pMethods->xWrite(real, data, len / 2, at);
        rc = shim.fault == SHIM_FULL ? SQLITE_FULL : SQLITE_IOERR_WRITE;
    } else {
        rc = real->pMethods->xWrite(real, data, len, at);
    }
    pthread_mutex_unlock(&shim.lock);
    return rc;
}

static int shim_sync(sqlite3_file *f, int flags) {
    sqlite3_file *real = real_of(f);
    pthread_mutex_lock(&shim.lock);
    bool due = shim_due(false, true);
    if (due && shim.fault == SHIM_POWER_CUT)
        power_cut();
    int rc = due ? SQLITE_IOERR_FSYNC : real->pMethods->xSync(real, flags);
    if (!due)
        forget(real);
    pthread_mutex_unlock(&shim.lock);
    return rc;
}

static int shim_close(sqlite3_file *f) {
    pthread_mutex_lock(&shim.lock);
    forget(real_of(f));
    pthread_mutex_unlock(&shim.lock);
    return real_of(f)->pMethods->xClose(real_of(f));
}

#define PASS(name, params, args)                             \
    static int shim_##name params {                          \
        return real_of(f)->pMethods->name args;              \
    }
PASS(xRead, (sqlite3_file * f, void *p, int n, sqlite3_int64 at), (real_of(f), p, n, at))
PASS(xTruncate, (sqlite3_file * f, sqlite3_int64 n), (real_of(f), n))
PASS(xFileSize, (sqlite3_file * f, sqlite3_int64 *n), (real_of(f), n))
PASS(xLock, (sqlite3_file * f, int l), (real_of(f), l))
PASS(xUnlock, (sqlite3_file * f, int l), (real_of(f), l))
PASS(xCheckReservedLock, (sqlite3_file * f, int *l), (real_of(f), l))
PASS(xFileControl, (sqlite3_file * f, int op, void *p), (real_of(f), op, p))
PASS(xSectorSize, (sqlite3_file * f), (real_of(f)))
PASS(xDeviceCharacteristics, (sqlite3_file * f), (real_of(f)))
PASS(xShmMap, (sqlite3_file * f, int i, int n, int x, void volatile **p), (real_of(f), i, n, x, p))
PASS(xShmLock, (sqlite3_file * f, int o, int n, int fl), (real_of(f), o, n, fl))
PASS(xShmUnmap, (sqlite3_file * f, int d), (real_of(f), d))

static void shim_xShmBarrier(sqlite3_file *f) {
    real_of(f)->pMethods->xShmBarrier(real_of(f));
}

static int shim_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *f, int flags, int *out) {
    struct shim_file *file = (struct shim_file *)f;
    file->base.pMethods = NULL;
    file->real = (sqlite3_file *)(file + 1);
    file->is_database = flags & SQLITE_OPEN_MAIN_DB;
    int rc = shim.real->xOpen(shim.real, name, file->real, flags, out);
    if (rc == SQLITE_OK)
        file->base.pMethods = &shim.methods;
    return rc;
}

void shim_register(void) {
    if (shim.real)
        return;
    shim.real = sqlite3_vfs_find(NULL);
    shim.vfs = *shim.real;
    shim.vfs.pNext = NULL;
    shim.vfs.zName = SHIM_VFS;
    shim.vfs.szOsFile = (int)sizeof(struct shim_file) + shim.real->szOsFile;
    shim.vfs.xOpen = shim_open;
    shim.methods = (sqlite3_io_methods){
        .iVersion = 2, .xClose = shim_close, .xRead = shim_xRead, .xWrite = shim_write,
        .xTruncate = shim_xTruncate, .xSync = shim_sync, .xFileSize = shim_xFileSize,
        .xLock = shim_xLock, .xUnlock = shim_xUnlock,
        .xCheckReservedLock = shim_xCheckReservedLock, .xFileControl = shim_xFileControl,
        .xSectorSize = shim_xSectorSize, .xDeviceCharacteristics = shim_xDeviceCharacteristics,
        .xShmMap = shim_xShmMap, .xShmLock = shim_xShmLock, .xShmBarrier = shim_xShmBarrier,
        .xShmUnmap = shim_xShmUnmap};
    sqlite3_vfs_register(&shim.vfs, 0);
}

void shim_arm(enum shim_fault fault, unsigned nth, unsigned count, uint64_t seed) {
    pthread_mutex_lock(&shim.lock);
    shim.fault = fault;
    shim.until = nth;
    shim.left = count;
    shim.hits = 0;
    rand_seed(&shim.rand, seed);
    pthread_mutex_unlock(&shim.lock);
}

void shim_disarm(void) {
    pthread_mutex_lock(&shim.lock);
    shim.fault = SHIM_NONE;
    pthread_mutex_unlock(&shim.lock);
}

unsigned shim_hits(void) {
    pthread_mutex_lock(&shim.lock);
    unsigned hits = shim.hits;
    pthread_mutex_unlock(&shim.lock);
    return hits;
}

void shim_hold_database(bool hold) {
    pthread_mutex_lock(&shim.lock);
    shim.hold = hold;
    pthread_cond_broadcast(&shim.let_go);
    pthread_mutex_unlock(&shim.lock);
}

unsigned shim_held(void) {
    pthread_mutex_lock(&shim.lock);
    unsigned held = shim.held;
    pthread_mutex_unlock(&shim.lock);
    return held;
}
