// Turns on one GPU. All words are atomic and stand alone: a job killed between two of them costs
// the others a few milliseconds at most, never a block.
#include "shim/arbiter.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// Weighted fair queueing. Invariant: of the jobs that want the GPU, the turn goes to the one with the least virtual
// time, that is GPU time had divided by its share. Example: A has 0.75 of a GPU and B 0.25; after A ran 30 ms and B
// 10 ms both have 40 ms of virtual time, so each has had what it may have.
struct arbiter_line {
    _Atomic uint64_t key; // 0: free
    char job[LEDGER_JOB_MAX];
    _Atomic uint32_t share_milli;
    uint32_t spare;
    _Atomic uint64_t virtual_ns; // GPU time had, divided by the share
    _Atomic uint64_t used_ns;
    _Atomic uint64_t want_until_ns;
    _Atomic uint64_t launched_ns;
    _Atomic uint64_t busy_until_ns;
    _Atomic uint64_t returned_ns; // when it came back from being away
};
static_assert(sizeof(struct arbiter_line) == 128, "lines do not share cache lines");

struct file {
    uint64_t magic;
    uint32_t version, lines;
    char uuid[LEDGER_UUID_MAX];
    char gap[72];
    _Atomic uint64_t turn; // {line + 1:16, count:48}; 0 in the upper part: nobody's
    _Atomic uint64_t until_ns;
    _Atomic uint64_t wanted_until_ns; // nobody waits after this: saves looking at every line
    _Atomic uint32_t passed;          // futex: counts turns given on
    char gap2[100];
    struct arbiter_line line[ARBITER_JOBS];
};
static_assert(offsetof(struct file, turn) == 128 && offsetof(struct file, line) == 256,
              "arbiter layout");

struct arbiter {
    struct file *file;
};

enum { TURN_COUNT_BITS = 48 };

static int turn_line(uint64_t turn) {
    return (int)(turn >> TURN_COUNT_BITS) - 1;
}

// The count makes each turn a different word: a compare-and-exchange by one who slept through others' turns and wakes
// up with the same line in the word fails, where it would take the turn of a job that has it rightfully.
static uint64_t turn_next(uint64_t turn, int line) {
    uint64_t count = (turn + 1) & ((1ULL << TURN_COUNT_BITS) - 1);
    return (uint64_t)(line + 1) << TURN_COUNT_BITS | count;
}

static uint64_t job_key(const char *job) {
    uint64_t h = 14695981039346656037ULL;
    for (; *job; job++)
        h = (h ^ (unsigned char)*job) * 1099511628211ULL;
    return h ? h : 1;
}

static uint64_t load(const _Atomic uint64_t *word) {
    return atomic_load_explicit(word, memory_order_relaxed);
}

static void store(_Atomic uint64_t *word, uint64_t value) {
    atomic_store_explicit(word, value, memory_order_relaxed);
}

int arbiter_join(struct arbiter *a, const char *job, uint32_t share_milli, uint64_t now) {
    struct file *f = a->file;
    uint64_t key = job_key(job);
    for (int i = 0; i < ARBITER_JOBS; i++)
        if (load(&f->line[i].key) == key)
            return i;
    for (int pass = 0; pass < 2; pass++) { // free lines first, then those of jobs long gone
        for (int i = 0; i < ARBITER_JOBS; i++) {
            struct arbiter_line *l = &f->line[i];
            uint64_t old = load(&l->key);
            // A job that was killed leaves its line behind: nobody else knows when it went.
            bool stale = pass == 1 && now > load(&l->launched_ns) + 60 * 1000000000ULL;
            if ((old && !stale) || !atomic_compare_exchange_strong(&l->key, &old, key))
                continue;
            snprintf(l->job, sizeof l->job, "%s", job);
            atomic_store(&l->share_milli, share_milli);
            store(&l->virtual_ns, 0);
            store(&l->used_ns, 0);
            store(&l->want_until_ns, 0);
            store(&l->launched_ns, 0);
            store(&l->busy_until_ns, 0);
            store(&l->returned_ns, 0);
            return i;
        }
    }
    return -EUSERS;
}

bool arbiter_mine(const struct arbiter *a, int line, uint64_t now) {
    return turn_line(load(&a->file->turn)) == line && now < load(&a->file->until_ns);
}

// A wish runs out by itself, so a job that dies while it waits holds nobody up; one that lies too far ahead was
// written by a clock that is wrong, or by somebody who wants to be in the way.
static bool wants(const struct arbiter_line *l, uint64_t now) {
    uint64_t until = load(&l->want_until_ns);
    return load(&l->key) && until > now && until <= now + ARBITER_WANT_NS;
}

bool arbiter_holds(const struct arbiter *a, int line) {
    return turn_line(load(&a->file->turn)) == line;
}

bool arbiter_contended(const struct arbiter *a, int line, uint64_t now) {
    if (load(&a->file->wanted_until_ns) <= now)
        return false;
    for (int i = 0; i < ARBITER_JOBS; i++)
        if (i != line && wants(&a->file->line[i], now))
            return true;
    return false;
}

static uint64_t virtual_of(uint64_t ns, uint32_t share_milli) {
    return ns * 1000 / (share_milli ? share_milli : 1000);
}

// `pending`: what the job has launched and not been charged for yet. Equal times are decided by the line, or two jobs
// would each let the other go first for ever.
static bool someone_goes_first(const struct arbiter *a, int line, uint64_t pending, uint64_t now) {
    uint64_t mine = load(&a->file->line[line].virtual_ns) + pending;
    for (int i = 0; i < ARBITER_JOBS; i++) {
        const struct arbiter_line *l = &a->file->line[i];
        if (i != line && wants(l, now) &&
            (load(&l->virtual_ns) < mine || (load(&l->virtual_ns) == mine && i < line)))
            return true;
    }
    return false;
}

bool arbiter_company(const struct arbiter *a, int line, uint64_t now) {
    for (int i = 0; i < ARBITER_JOBS; i++) {
        const struct arbiter_line *l = &a->file->line[i];
        if (i != line && load(&l->key) && now < load(&l->launched_ns) + ARBITER_COMPANY_NS)
            return true;
    }
    return arbiter_contended(a, line, now);
}

static bool here(const struct arbiter_line *l, uint64_t now) {
    return load(&l->key) && now < load(&l->launched_ns) + ARBITER_AWAY_NS;
}

// A job that was away comes back neither with a claim on what it did not use nor with a debt: it
// starts level with the one that has had least among those that run or wait. Jobs that come at the
// same moment do not see each other at first, so this holds for a while.
static void come_back(struct arbiter *a, int line, uint64_t now) {
    struct arbiter_line *me = &a->file->line[line];
    if (!here(me, now) && !wants(me, now))
        store(&me->returned_ns, now);
    if (now > load(&me->returned_ns) + ARBITER_RETURN_NS)
        return;
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < ARBITER_JOBS; i++) {
        const struct arbiter_line *l = &a->file->line[i];
        if (i != line && (wants(l, now) || here(l, now)) && load(&l->virtual_ns) < least)
            least = load(&l->virtual_ns);
    }
    if (least != UINT64_MAX)
        store(&me->virtual_ns, least);
}

// May the turn be taken from its holder: because it has nothing to run, or is long overdue.
static bool abandoned(const struct arbiter *a, int holder, uint64_t now) {
    const struct arbiter_line *l = &a->file->line[holder];
    uint64_t busy = load(&l->busy_until_ns), launched = load(&l->launched_ns);
    uint64_t until = load(&a->file->until_ns);
    if (busy > now + ARBITER_BELIEVED_NS)
        busy = 0; // nobody's estimate reaches so far; not believed
    if (now > launched + ARBITER_QUIET_NS && now > busy + ARBITER_QUIET_NS / 2)
        return true;
    return now > (until > busy ? until : busy) + ARBITER_GRACE_NS;
}

// Another one has had less and only pauses: what is taken of its time is a short loan.
static bool on_loan(const struct arbiter *a, int line, uint64_t now) {
    uint64_t mine = load(&a->file->line[line].virtual_ns);
    for (int i = 0; i < ARBITER_JOBS; i++)
        if (i != line && here(&a->file->line[i], now) && load(&a->file->line[i].virtual_ns) < mine)
            return true;
    return false;
}

static void begin_turn(struct arbiter *a, int line, uint32_t share_milli, uint64_t now) {
    uint64_t slice = (uint64_t)ARBITER_PERIOD_NS / 1000 * share_milli;
    if (slice < ARBITER_TURN_MIN_NS)
        slice = ARBITER_TURN_MIN_NS;
    if (slice > ARBITER_TURN_MAX_NS)
        slice = ARBITER_TURN_MAX_NS;
    if (on_loan(a, line, now))
        slice = ARBITER_TURN_MIN_NS;
    if (!arbiter_contended(a, line, now))
        slice = ARBITER_ALONE_NS; // whoever comes is not to wait long
    store(&a->file->line[line].launched_ns, now);
    store(&a->file->until_ns, now + slice);
}

static void want(struct arbiter *a, int line, uint64_t now) {
    store(&a->file->line[line].want_until_ns, now + ARBITER_WANT_NS);
    store(&a->file->wanted_until_ns, now + ARBITER_WANT_NS);
}

bool arbiter_renew(struct arbiter *a, int line, uint32_t share_milli, uint64_t pending_ns,
                   uint64_t now) {
    if (arbiter_contended(a, line, now) &&
        someone_goes_first(a, line, virtual_of(pending_ns, share_milli), now))
        return false;
    begin_turn(a, line, share_milli, now);
    return true;
}

bool arbiter_take(struct arbiter *a, int line, uint32_t share_milli, uint64_t pending_ns,
                  uint64_t now) {
    struct file *f = a->file;
    struct arbiter_line *me = &f->line[line];
    uint64_t turn = atomic_load(&f->turn);
    int holder = turn_line(turn);
    atomic_store(&me->share_milli, share_milli);
    if (holder == line) {
        if (now < load(&f->until_ns))
            return true;
        come_back(a, line, now); // the last one to have run may have been away since
        return arbiter_renew(a, line, share_milli, pending_ns, now);
    }
    come_back(a, line, now);
    want(a, line, now);
    if (holder >= 0 && holder < ARBITER_JOBS && !abandoned(a, holder, now))
        return false;
    // The turn is free, but it is not ours if another waits who has had less: it polls as well and comes within a
    // moment.
    if (someone_goes_first(a, line, virtual_of(pending_ns, share_milli), now))
        return false;
    // Of several that got here one wins; the exchange has loaded the winner's word into `turn`.
    if (!atomic_compare_exchange_strong(&f->turn, &turn, turn_next(turn, line)))
        return turn_line(turn) == line;
    begin_turn(a, line, share_milli, now);
    store(&me->want_until_ns, 0);
    return true;
}

static long futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *timeout) {
    return syscall(SYS_futex, word, op, value, timeout, NULL, 0);
}

void arbiter_leave(struct arbiter *a, int line, bool again, uint64_t now) {
    struct file *f = a->file;
    uint64_t turn = atomic_load(&f->turn);
    if (again && turn_line(turn) == line)
        want(a, line, now); // before: the next one is to see that we wait
    if (turn_line(turn) != line ||
        !atomic_compare_exchange_strong(&f->turn, &turn, turn_next(turn, -1)))
        return;
    atomic_fetch_add(&f->passed, 1);
    futex(&f->passed, FUTEX_WAKE, INT32_MAX, NULL);
}

void arbiter_wait(struct arbiter *a, uint64_t at_most_ns) {
    uint32_t seen = atomic_load(&a->file->passed);
    bool held = turn_line(load(&a->file->turn)) >= 0;
    if (!held && at_most_ns > ARBITER_NAP_NS) // just given on: whoever is to have it takes it now
        at_most_ns = ARBITER_NAP_NS;
    struct timespec t = {.tv_sec = (time_t)(at_most_ns / 1000000000u),
                         .tv_nsec = (long)(at_most_ns % 1000000000u)};
    if (held)
        futex(&a->file->passed, FUTEX_WAIT, seen, &t);
    else
        nanosleep(&t, NULL);
}

// The latest end any of the job's processes expects; who wrote it may take it back.
uint64_t arbiter_launched(struct arbiter *a, int line, uint64_t now, uint64_t before,
                          uint64_t busy_until) {
    struct arbiter_line *l = &a->file->line[line];
    store(&l->launched_ns, now);
    uint64_t old = load(&l->busy_until_ns);
    while (old == before || old < busy_until || old > now + ARBITER_BELIEVED_NS)
        if (atomic_compare_exchange_weak(&l->busy_until_ns, &old, busy_until))
            return busy_until;
    return before;
}

uint64_t arbiter_turn_left(const struct arbiter *a, uint64_t now) {
    uint64_t until = load(&a->file->until_ns);
    return until > now ? until - now : 0;
}

uint64_t arbiter_busy_until(const struct arbiter *a, int line) {
    return load(&a->file->line[line].busy_until_ns);
}

void arbiter_charge(struct arbiter *a, int line, uint32_t share_milli, uint64_t used_ns) {
    struct arbiter_line *l = &a->file->line[line];
    atomic_fetch_add_explicit(&l->used_ns, used_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&l->virtual_ns, virtual_of(used_ns, share_milli),
                              memory_order_relaxed);
}

static int file_check(int fd) {
    struct stat st;
    uint64_t head[2];
    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof(struct file) ||
        pread(fd, head, sizeof head, 0) != (ssize_t)sizeof head || head[0] != ARBITER_MAGIC ||
        head[1] != ((uint64_t)ARBITER_JOBS << 32 | ARBITER_VERSION))
        return -EBADMSG;
    return 0;
}

// The file is written by other users' jobs on the same GPU. One that cuts it off must not end this program: a page
// that is gone (SIGBUS) becomes a private, empty one, as if this job were alone on the GPU.
enum { GUARDED_MAX = 64 };
static struct {
    _Atomic uintptr_t map[GUARDED_MAX];
    struct sigaction before;
    atomic_flag installed;
} guard = {.installed = ATOMIC_FLAG_INIT};

static void on_bus_error(int sig, siginfo_t *info, void *context) {
    uintptr_t at = (uintptr_t)info->si_addr, size = (uintptr_t)sysconf(_SC_PAGESIZE);
    int saved = errno;
    for (int i = 0; i < GUARDED_MAX; i++) {
        uintptr_t map = atomic_load(&guard.map[i]);
        if (map && at >= map && at < map + sizeof(struct file) &&
            mmap((void *)(at & ~(size - 1)), size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                 0) != MAP_FAILED) {
            errno = saved;
            return;
        }
    }
    // Not ours: as if we were not here.
    if (guard.before.sa_flags & SA_SIGINFO)
        guard.before.sa_sigaction(sig, info, context);
    else if (guard.before.sa_handler != SIG_DFL && guard.before.sa_handler != SIG_IGN)
        guard.before.sa_handler(sig);
    else
        sigaction(SIGBUS, &guard.before, NULL);  // the access is repeated, and ends the program
}

static void guard_map(const void *map, bool on) {
    struct sigaction a = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    uintptr_t from = on ? 0 : (uintptr_t)map, to = on ? (uintptr_t)map : 0;
    for (int i = 0; i < GUARDED_MAX; i++) {
        uintptr_t expected = from;
        if (atomic_compare_exchange_strong(&guard.map[i], &expected, to))
            break;
    }
    if (on && !atomic_flag_test_and_set(&guard.installed))
        sigaction(SIGBUS, &a, &guard.before);
}

int arbiter_open(const char *path, struct arbiter **out) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int r = file_check(fd);
    void *map = r < 0 ? MAP_FAILED
                      : mmap(NULL, sizeof(struct file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (r == 0 && map == MAP_FAILED)
        r = -errno;
    close(fd);
    if (r < 0)
        return r;
    struct arbiter *a = calloc(1, sizeof *a);
    if (!a)
        abort();
    guard_map(map, true);
    a->file = map;
    *out = a;
    return 0;
}

struct arbiter *arbiter_close(struct arbiter *a) {
    if (a) {
        guard_map(a->file, false);
        munmap(a->file, sizeof *a->file);
        free(a);
    }
    return NULL;
}

// An arbiter is kept once made: jobs may be using it.
size_t arbiter_bytes(void) {
    return sizeof(struct file);
}

int arbiter_create(const char *path, const char *uuid, mode_t mode) {
    if (!strncmp(uuid, "GPU-", 4) || !strncmp(uuid, "MIG-", 4))
        uuid += 4;
    if (strlen(uuid) >= LEDGER_UUID_MAX)
        return -EINVAL;
    struct file *f = calloc(1, sizeof *f);
    if (!f)
        abort();
    f->magic = ARBITER_MAGIC;
    f->version = ARBITER_VERSION;
    f->lines = ARBITER_JOBS;
    memcpy(f->uuid, uuid, strlen(uuid));
    char temp[LEDGER_PATH_MAX + 16];
    int r = 0, fd = -1;
    if (snprintf(temp, sizeof temp, "%s.%d.new", path, (int)getpid()) >= (int)sizeof temp)
        r = -ENAMETOOLONG;
    if (r == 0) {
        unlink(temp);
        fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
        r = fd < 0 ? -errno : 0;
    }
    if (r == 0 && (write(fd, f, sizeof *f) != (ssize_t)sizeof *f || fchmod(fd, mode) < 0))
        r = errno ? -errno : -EIO;
    if (fd >= 0) {
        close(fd);
        // A link, not a rename: an arbiter that is there already stays, since jobs have it mapped; and nobody ever sees
        // half a file.
        if (r == 0 && link(temp, path) < 0)
            r = -errno;
        unlink(temp);
    }
    free(f);
    return r;
}

static int read_file(const char *path, int flags, struct file *f, int *fd) {
    *fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW);
    if (*fd < 0)
        return -errno;
    int r = file_check(*fd);
    if (r == 0 && pread(*fd, f, sizeof *f, 0) != (ssize_t)sizeof *f)
        r = -EBADMSG;
    if (r < 0)
        close(*fd);
    return r;
}

int arbiter_sample(const char *path, struct arbiter_job out[ARBITER_JOBS], unsigned *n) {
    static_assert(sizeof(struct file) < 16384, "fits a stack");
    struct file f;
    struct timespec t;
    int fd, r = read_file(path, O_RDONLY, &f, &fd);
    if (r < 0)
        return r;
    close(fd);
    clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t now = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    *n = 0;
    for (int i = 0; i < ARBITER_JOBS; i++) {
        struct arbiter_line *l = &f.line[i];
        if (!load(&l->key))
            continue;
        struct arbiter_job *j = &out[(*n)++];
        *j = (struct arbiter_job){.share_milli = l->share_milli, .used_ns = load(&l->used_ns),
                                  .active_ns = load(&l->launched_ns), .waiting = wants(l, now)};
        memcpy(j->job, l->job, sizeof j->job - 1);
    }
    return 0;
}

int arbiter_forget(const char *path, const char *job) {
    struct file f;
    int fd, r = read_file(path, O_RDWR, &f, &fd);
    if (r < 0)
        return r;
    r = -ENOENT;
    uint64_t none = 0, key = job_key(job);
    for (int i = 0; i < ARBITER_JOBS; i++) {
        if (load(&f.line[i].key) != key)
            continue;
        off_t at = (off_t)(offsetof(struct file, line) + (size_t)i * sizeof(struct arbiter_line));
        r = pwrite(fd, &none, sizeof none, at) == (ssize_t)sizeof none ? 0 : -EIO;
    }
    close(fd);
    return r;
}
