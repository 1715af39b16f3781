// Owns reading /proc. A list of processes is never complete while they fork: callers repeat until
// nothing is found, and stop the tree first.
#include "cgroup/procs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/text.h"
#include "base/vec.h"
#include "cgroup/cgroup_io.h"

struct proc {
    pid_t pid, parent;
    uint64_t rss_pages;
};

typedef VEC(struct proc) procs_list;

static bool read_stat(pid_t pid, struct proc *out) {
    char path[64], text[1024], state;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if (cgroup_kernel_read(path, text, sizeof text) < 0)
        return false;
    const char *p = strrchr(text, ')');  // the name may contain anything
    int parent;
    long rss = 0;
    if (!p || sscanf(p + 1, " %c %d", &state, &parent) != 2 || state == 'Z' || state == 'X')
        return false;
    for (int i = 0; i < 22 && p; i++)  // rss is field 24, the name is field 2
        p = strchr(p + 1, ' ');
    if (p)
        sscanf(p, "%ld", &rss);
    *out = (struct proc){.pid = pid, .parent = parent, .rss_pages = rss > 0 ? (uint64_t)rss : 0};
    return true;
}

static void list_all(procs_list *list) {
    DIR *d = opendir("/proc");
    if (!d)
        return;
    for (struct dirent *ent; (ent = readdir(d)) && list->len < PROCS_MAX;) {
        uint32_t pid;
        struct proc p;
        if (parse_u32(ent->d_name, &pid) == 0 && read_stat((pid_t)pid, &p))
            vec_push(list, p);
    }
    closedir(d);
}

enum { INSIDE = 1, OUTSIDE };

// Whether pid has root above it: follows parents, remembering what is known.
static int belongs(const procs_list *list, struct map *at, struct map *known, pid_t pid, pid_t root,
                   procs_skip_fn *skip, void *ctx) {
    static char verdicts[3];
    int verdict = OUTSIDE;
    pid_t p = pid;
    for (uint32_t depth = 0; depth <= list->len; depth++) {
        if (p == root) {
            verdict = pid == root ? OUTSIDE : INSIDE;
            break;
        }
        char *k = map_get(known, (uint64_t)p);
        if (k) {
            verdict = (int)(k - verdicts);
            break;
        }
        struct proc *entry = p > 0 ? map_get(at, (uint64_t)p) : NULL;
        if (!entry || (skip && skip(ctx, p)))
            break;
        p = entry->parent;
    }
    map_put(known, (uint64_t)pid, &verdicts[verdict]);
    return verdict;
}

typedef void proc_fn(void *ctx, const struct proc *p);

static void each_descendant(pid_t root, procs_skip_fn *skip, void *skip_ctx, proc_fn *fn,
                            void *ctx) {
    procs_list list = {0};
    struct map at = {0}, known = {0};
    list_all(&list);
    for (uint32_t i = 0; i < list.len; i++)
        map_put(&at, (uint64_t)list.at[i].pid, &list.at[i]);
    for (uint32_t i = 0; i < list.len; i++)
        if (belongs(&list, &at, &known, list.at[i].pid, root, skip, skip_ctx) == INSIDE)
            fn(ctx, &list.at[i]);
    map_done(&at);
    map_done(&known);
    vec_done(&list);
}

struct socket_search {
    const uint32_t *inodes;
    bool *held;
    uint32_t len, missing, looks;
    bool incomplete;
};

static void find_sockets(void *ctx, const struct proc *p) {
    struct socket_search *q = ctx;
    char path[64], to[64];
    unsigned inode;
    if (!q->missing)
        return;
    snprintf(path, sizeof path, "/proc/%d/fd", p->pid);
    DIR *d = opendir(path);
    if (!d) {
        q->incomplete |= errno != ENOENT && errno != ESRCH;  // else it has ended
        return;
    }
    for (struct dirent *ent; q->missing && (ent = readdir(d));) {
        if (q->looks == PROCS_SOCKET_LOOKS) {
            q->incomplete = true;
            break;
        }
        q->looks++;
        ssize_t n = readlinkat(dirfd(d), ent->d_name, to, sizeof to - 1);
        if (n < 0) {
            q->incomplete |= errno == EACCES || errno == EPERM;
            continue;
        }
        to[n] = 0;
        if (sscanf(to, "socket:[%u]", &inode) != 1)
            continue;
        for (uint32_t i = 0; i < q->len; i++)
            if (q->inodes[i] == inode && !q->held[i]) {
                q->held[i] = true;
                q->missing--;
            }
    }
    closedir(d);
}

bool cgroup_procs_tree_sockets(pid_t root, const uint32_t *inodes, uint32_t len, bool *held) {
    struct socket_search q = {.inodes = inodes, .held = held, .len = len, .missing = len};
    memset(held, 0, len * sizeof *held);
    each_descendant(root, NULL, NULL, find_sockets, &q);
    return !q.incomplete;
}

struct signalling {
    int sig, count;
};

static void signal_one(void *ctx, const struct proc *p) {
    struct signalling *s = ctx;
    if (!s->sig || kill(p->pid, s->sig) == 0)
        s->count++;
}

int cgroup_procs_signal_tree(pid_t root, int sig, procs_skip_fn *skip, void *ctx) {
    struct signalling s = {.sig = sig};
    each_descendant(root, skip, ctx, signal_one, &s);
    return s.count;
}

static void add_usage(void *ctx, const struct proc *p) {
    struct procs_usage *u = ctx;
    u->count++;
    u->rss_bytes += p->rss_pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

void cgroup_procs_tree_usage(pid_t root, struct procs_usage *out) {
    *out = (struct procs_usage){0};
    each_descendant(root, NULL, NULL, add_usage, out);
}

void cgroup_procs_family_usage(pid_t root, struct procs_usage *out) {
    struct proc self;
    cgroup_procs_tree_usage(root, out);
    if (read_stat(root, &self))
        add_usage(out, &self);
}

// The environment as it was at exec; a variable begins after a NUL or at the start.
static bool has_mark(pid_t pid, const char *mark, size_t mark_len) {
    char path[64], text[65536 + 64];
    size_t keep = 0;
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    for (;;) {
        ssize_t n = read(fd, text + keep, sizeof text - keep);
        if (n <= 0)
            return false;
        size_t have = keep + (size_t)n;
        if (memmem(text, have, mark, mark_len))
            return true;
        keep = have < mark_len ? have : mark_len;
        memmove(text, text + have - keep, keep);
    }
}

int cgroup_procs_signal_marked(uint64_t id, int sig) {
    char mark[64];
    procs_list list = {0};
    int count = 0;
    int len = snprintf(mark, sizeof mark, "%s=%016" PRIx64, PROCS_MARK, id);
    list_all(&list);
    for (uint32_t i = 0; i < list.len; i++)
        if (list.at[i].pid != getpid() && has_mark(list.at[i].pid, mark, (size_t)len) &&
            kill(list.at[i].pid, sig) == 0)
            count++;
    vec_done(&list);
    return count;
}
