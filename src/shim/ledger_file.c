// Writing and reading a ledger file as a whole: what the agent does, and who a process is.
#include "ledger_file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int ledger_path(char out[LEDGER_PATH_MAX], const char *dir, const char *uuid, const char *suffix) {
    if (!strncmp(uuid, "GPU-", 4) || !strncmp(uuid, "MIG-", 4))
        uuid += 4;
    if (!*uuid || strlen(uuid) >= LEDGER_UUID_MAX || strchr(uuid, '/'))
        return -EINVAL;
    int n = snprintf(out, LEDGER_PATH_MAX, "%s/%s%s", dir, uuid, suffix);
    return n < 0 || n >= LEDGER_PATH_MAX ? -ENAMETOOLONG : 0;
}

static int write_all(int fd, const void *data, size_t len) {
    const char *p = data;
    while (len) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

static int place(const char *temp, const char *path, bool replace) {
    if (replace)
        return rename(temp, path) < 0 ? -errno : 0;
    int r = link(temp, path) < 0 ? -errno : 0;
    unlink(temp);
    return r;
}

int ledger_create(const char *path, const char *job, const char *uuid,
                  const struct ledger_limits *limits, mode_t mode, bool replace) {
    if (!strncmp(uuid, "GPU-", 4) || !strncmp(uuid, "MIG-", 4))
        uuid += 4;
    if (strlen(job) >= LEDGER_JOB_MAX || strlen(uuid) >= LEDGER_UUID_MAX ||
        limits->compute_milli > 1000 || limits->memory_bytes >> LEDGER_PAGE_SHIFT > PAGES_MAX)
        return -EINVAL;
    char temp[LEDGER_PATH_MAX + 16];
    if (snprintf(temp, sizeof temp, "%s.%d.new", path, (int)getpid()) >= (int)sizeof temp)
        return -ENAMETOOLONG;
    struct ledger_file *f = calloc(1, sizeof *f);
    if (!f)
        abort();
    f->magic = LEDGER_MAGIC;
    f->version = LEDGER_VERSION;
    f->slots = LEDGER_SLOTS;
    memcpy(f->job, job, strlen(job));
    memcpy(f->uuid, uuid, strlen(uuid));
    f->memory_bytes = limits->memory_bytes;
    f->compute_milli = limits->compute_milli;
    f->flags = limits->flags;
    f->context_bytes = limits->context_bytes;
    f->total_bytes = limits->total_bytes;
    // No change was made yet: a slot number past the last one stands for none.
    f->total = (uint64_t)((1 << WORD_SLOT_BITS) - 1) << WORD_SEQ_BITS;

    unlink(temp);
    int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    int r = fd < 0 ? -errno : write_all(fd, f, sizeof *f);
    if (fd >= 0 && r == 0 && fchmod(fd, mode) < 0)
        r = -errno;
    if (fd >= 0 && close(fd) < 0 && r == 0)
        r = -errno;
    if (r == 0)
        r = place(temp, path, replace);
    if (r < 0 && fd >= 0)
        unlink(temp);
    free(f);
    return r;
}

size_t ledger_bytes(void) {
    return sizeof(struct ledger_file);
}

int ledger_file_check(int fd) {
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof(struct ledger_file))
        return -EBADMSG;
    uint64_t head[2];
    if (pread(fd, head, sizeof head, 0) != (ssize_t)sizeof head)
        return -EBADMSG;
    uint32_t version = (uint32_t)head[1], slots = (uint32_t)(head[1] >> 32);
    return head[0] == LEDGER_MAGIC && version == LEDGER_VERSION && slots == LEDGER_SLOTS ? 0
                                                                                        : -EBADMSG;
}

struct ledger_limits ledger_file_limits(const struct ledger_file *f) {
    return (struct ledger_limits){
        .memory_bytes = atomic_load_explicit(&f->memory_bytes, memory_order_relaxed),
        .compute_milli = atomic_load_explicit(&f->compute_milli, memory_order_relaxed),
        .flags = atomic_load_explicit(&f->flags, memory_order_relaxed),
        .context_bytes = atomic_load_explicit(&f->context_bytes, memory_order_relaxed),
        .total_bytes = atomic_load_explicit(&f->total_bytes, memory_order_relaxed),
    };
}

static unsigned own_namespace(void) {
    struct stat st;
    return stat("/proc/self/ns/pid", &st) < 0 ? 0 : (unsigned)(st.st_ino % 1021) + 1;
}

// What dead processes still stand for is left out: it is given back when somebody needs it.
void ledger_file_usage(const struct ledger_file *f, int fd, struct ledger_usage *out) {
    unsigned ns = own_namespace();
    *out = (struct ledger_usage){.limits = ledger_file_limits(f)};
    memcpy(out->job, f->job, sizeof out->job - 1);
    memcpy(out->uuid, f->uuid, sizeof out->uuid - 1);
    out->used_bytes = atomic_load(&f->total) >> (WORD_SLOT_BITS + WORD_SEQ_BITS)
                                                   << LEDGER_PAGE_SHIFT;
    out->peak_bytes = atomic_load(&f->peak_pages) << LEDGER_PAGE_SHIFT;
    out->overdraft_bytes = atomic_load(&f->overdraft_pages) << LEDGER_PAGE_SHIFT;
    out->refused = atomic_load(&f->refused);
    out->gpu_ns = atomic_load(&f->compute.gpu_ns);
    out->throttled_ns = atomic_load(&f->compute.throttled_ns);
    out->launches = atomic_load(&f->compute.launches);
    for (unsigned i = 0; i < LEDGER_SLOTS; i++) {
        const struct ledger_slot *s = &f->slot[i];
        uint64_t owner = atomic_load(&s->owner);
        if (!owner)
            continue;
        uint64_t bytes = atomic_load(&s->charged) >> WORD_SEQ_BITS << LEDGER_PAGE_SHIFT;
        if (ledger_owner_dead(fd, i, owner, ns)) {
            out->used_bytes -= bytes < out->used_bytes ? bytes : out->used_bytes;
            continue;
        }
        struct ledger_process *p = &out->process[out->nprocesses++];
        p->pid = owner_pid(owner);
        p->same_namespace = owner_namespace(owner) == ns;
        p->bytes = bytes;
        for (int k = 0; k < LEDGER_KINDS; k++)
            p->kind_bytes[k] = atomic_load(&s->kind_bytes[k]);
        p->launches = atomic_load(&s->launches);
        p->throttled_ns = atomic_load(&s->throttled_ns);
    }
}

int ledger_sample(const char *path, struct ledger_usage *out) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    struct ledger_file *f = malloc(sizeof *f);
    if (!f)
        abort();
    int r = ledger_file_check(fd);
    if (r == 0 && pread(fd, f, sizeof *f, 0) != (ssize_t)sizeof *f)
        r = -EBADMSG;
    if (r == 0)
        ledger_file_usage(f, fd, out);
    close(fd);
    free(f);
    return r;
}

static int put(int fd, const void *value, size_t len, size_t offset) {
    ssize_t n = pwrite(fd, value, len, (off_t)offset);
    return n == (ssize_t)len ? 0 : n < 0 ? -errno : -EIO;
}

int ledger_set_limits(const char *path, const struct ledger_limits *limits) {
    if (limits->compute_milli > 1000 || limits->memory_bytes >> LEDGER_PAGE_SHIFT > PAGES_MAX)
        return -EINVAL;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    uint32_t compute[2] = {limits->compute_milli, limits->flags};
    int r = ledger_file_check(fd);
    if (r == 0)
        r = put(fd, &limits->memory_bytes, 8, offsetof(struct ledger_file, memory_bytes));
    if (r == 0)
        r = put(fd, compute, sizeof compute, offsetof(struct ledger_file, compute_milli));
    if (r == 0 && limits->context_bytes)
        r = put(fd, &limits->context_bytes, 8, offsetof(struct ledger_file, context_bytes));
    if (r == 0 && limits->total_bytes)
        r = put(fd, &limits->total_bytes, 8, offsetof(struct ledger_file, total_bytes));
    close(fd);
    return r;
}

// State and start time from /proc/PID/stat; the name in parentheses may hold anything.
static int pid_stat(pid_t pid, char *state, uint64_t *start_ticks) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return n < 0 ? -errno : -ESRCH;
    text[n] = 0;
    char *p = strrchr(text, ')');
    if (!p || p[1] != ' ')
        return -EBADMSG;
    *state = p[2];
    p += 2;
    for (int field = 3; field < 22; field++) {
        p = strchr(p + 1, ' ');
        if (!p)
            return -EBADMSG;
    }
    *start_ticks = strtoull(p + 1, NULL, 10);
    return 0;
}

uint64_t ledger_owner_word(void) {
    char state;
    uint64_t start = 0;
    pid_t pid = getpid();
    if (pid_stat(pid, &state, &start) < 0)
        start = 0;
    return (uint64_t)own_namespace() << (OWNER_PID_BITS + OWNER_START_BITS) |
           (uint64_t)(pid & ((1 << OWNER_PID_BITS) - 1)) << OWNER_START_BITS |
           (start & UINT32_MAX);
}

static bool pid_dead(uint64_t owner) {
    pid_t pid = owner_pid(owner);
    char state;
    uint64_t start;
    if (pid_stat(pid, &state, &start) < 0)
        return kill(pid, 0) < 0 && errno == ESRCH;
    return state == 'Z' || state == 'X' || (start & UINT32_MAX) != (owner & UINT32_MAX);
}

bool ledger_slot_locked(int fd, unsigned i) {
    struct flock lk = {.l_type = F_WRLCK, .l_whence = SEEK_SET,
                       .l_start = LOCK_BASE + (off_t)i, .l_len = 1};
    if (fcntl(fd, F_OFD_GETLK, &lk) < 0)
        return true; // cannot tell: never take a living process for dead
    return lk.l_type != F_UNLCK;
}

// A process is dead when nobody holds its lock and, where its pid means something to us, the pid
// is gone, belongs to a later process, or is a zombie (whose GPU memory is already freed).
bool ledger_owner_dead(int fd, unsigned i, uint64_t owner, unsigned own_ns) {
    if (ledger_slot_locked(fd, i))
        return false;
    return owner_namespace(owner) != own_ns || pid_dead(owner);
}
