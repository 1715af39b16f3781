// Owns the folder of kept output (launch/kept.h): new files, how many files and how many bytes of ended jobs stay, how
// much those of a user's running jobs may hold, and which of these have lost their client, so that they are not
// blocked by it any longer.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "stream.h"

enum { LOOK_EVERY_MS = 5000, BLOCK_BYTES = 512, PRUNE_EVERY = 64 };

struct kept_entry {
    char name[SPOOL_NAME_MAX];
    uint64_t id, bytes;
    uint32_t attempt, uid;
    bool running, error;
};
struct kept_list {
    VEC(struct kept_entry) all;
    uint64_t ended_bytes;
};

// "JOB.ATTEMPT.out" or ".err"
static bool parse_name(const char *name, struct kept_entry *k) {
    char head[SPOOL_NAME_MAX];
    size_t len = strlen(name);
    if (len < 5 || len >= sizeof head || name[len - 4] != '.')
        return false;
    memcpy(head, name, len - 4);
    head[len - 4] = 0;
    memcpy(k->name, name, len + 1);
    k->error = strcmp(name + len - 4, ".err") == 0;
    return spool_parse_name(head, &k->id, &k->attempt) == 0;
}

static void list_outputs(struct agent_node *a, struct kept_list *out) {
    int fd = openat(a->output_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d)
        return;
    for (struct dirent *ent; (ent = readdir(d));) {
        struct kept_entry k = {0};
        struct stat st;
        if (!parse_name(ent->d_name, &k) || fstatat(fd, k.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        enum agent_phase phase = agent_logic_phase(a->logic, k.id, k.attempt);
        k.running = phase != AGENT_ENDED && phase != AGENT_UNKNOWN;
        k.bytes = (uint64_t)st.st_blocks * BLOCK_BYTES;
        out->ended_bytes += k.running ? 0 : k.bytes;
        vec_push(&out->all, k);
    }
    closedir(d);
}

static uint32_t owner(struct agent_node *a, const char *name) {
    struct kept_head h = {0};
    cleanup_close int fd = openat(a->output_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return fd >= 0 && pread(fd, &h, sizeof h, 0) == (ssize_t)sizeof h ? h.uid : 0;
}

static int newest_first(const void *a, const void *b) {
    const struct kept_entry *x = a, *y = b;
    return x->id != y->id ? (x->id > y->id ? -1 : 1) : strcmp(x->name, y->name);
}

static int by_user(const void *a, const void *b) {
    const struct kept_entry *x = a, *y = b;
    return x->uid != y->uid ? (x->uid < y->uid ? -1 : 1) : newest_first(a, b);
}

// Of too many files the older half goes.
static void prune_by_number(struct agent_node *a, struct kept_list *l) {
    if (l->all.len <= AGENT_KEPT_OUTPUTS_MAX)
        return;
    qsort(l->all.at, l->all.len, sizeof *l->all.at, newest_first);
    for (uint32_t i = l->all.len / 2; i < l->all.len; i++)
        if (!l->all.at[i].running)
            unlinkat(a->output_fd, l->all.at[i].name, 0);
}

// The newest output of each user's ended jobs stays, up to a number of bytes.
static void prune_by_bytes(struct agent_node *a, struct kept_list *l) {
    uint64_t bytes = 0;
    if (l->ended_bytes <= AGENT_KEPT_USER_BYTES)
        return;
    for (uint32_t i = 0; i < l->all.len; i++)
        l->all.at[i].uid = owner(a, l->all.at[i].name);
    qsort(l->all.at, l->all.len, sizeof *l->all.at, by_user);
    for (uint32_t i = 0; i < l->all.len; i++) {
        const struct kept_entry *k = &l->all.at[i];
        if (i == 0 || k->uid != k[-1].uid)
            bytes = 0;
        bytes += k->running ? 0 : k->bytes;
        if (!k->running && bytes > AGENT_KEPT_USER_BYTES)
            unlinkat(a->output_fd, k->name, 0);
    }
}

// --- running jobs ---

static struct kept_user *kept_user(struct streams *all, uint32_t uid) {
    for (uint32_t i = 0; i < all->kept_users.len; i++)
        if (all->kept_users.at[i].uid == uid)
            return &all->kept_users.at[i];
    vec_push(&all->kept_users, ((struct kept_user){.uid = uid}));
    return &all->kept_users.at[all->kept_users.len - 1];
}

static uint64_t share_of(const struct kept_user *u) {
    return AGENT_KEPT_RUNNING_BYTES / (u->streams ? u->streams : 1);
}

// Counts again, and gives each its part: more when others have ended, less when others have come.
static void share_among_running(struct streams *all, struct kept_list *l) {
    vec_clear(&all->kept_users);
    for (uint32_t i = 0; i < l->all.len; i++)
        if (l->all.at[i].running) {
            l->all.at[i].uid = owner(all->agent, l->all.at[i].name);
            kept_user(all, l->all.at[i].uid)->streams++;
        }
    for (uint32_t i = 0; i < l->all.len; i++) {
        cleanup_kept struct kept_file k = {.fd = -1};
        if (!l->all.at[i].running)
            continue;
        cleanup_close int fd =
            openat(all->agent->output_fd, l->all.at[i].name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0 || launch_kept_open(fd, &k) < 0)
            continue;
        TAKE_FD(fd);
        launch_kept_limit(&k, share_of(kept_user(all, l->all.at[i].uid)));
    }
}

// The file of a new stream gets its part of what its user may have.
static void share_with_new(struct streams *all, uint32_t uid, struct kept_file *k) {
    struct kept_list l = {0};
    struct kept_user *u = kept_user(all, uid);
    u->streams++;
    if (share_of(u) >= KEPT_STREAM_BYTES)
        return;
    // Streams that have ended are still among them.
    list_outputs(all->agent, &l);
    share_among_running(all, &l);
    vec_done(&l.all);
    launch_kept_limit(k, share_of(kept_user(all, uid)));
}

static void prune(struct agent_node *a) {
    struct kept_list l = {0};
    list_outputs(a, &l);
    prune_by_number(a, &l);
    prune_by_bytes(a, &l);
    vec_done(&l.all);
}

void streams_kept_give_up_client(struct agent_node *a, uint64_t id, uint32_t attempt) {
    static const char *const ends[] = {"out", "err"};
    for (int i = 0; i < 2; i++) {
        cleanup_kept struct kept_file k = {.fd = -1};
        char name[SPOOL_NAME_MAX];
        snprintf(name, sizeof name, "%llu.%u.%s", (unsigned long long)id, attempt, ends[i]);
        cleanup_close int fd = openat(a->output_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0 || launch_kept_open(fd, &k) < 0)
            continue;
        TAKE_FD(fd);
        atomic_store(&k.head->client, 0);
    }
}

bool streams_kept_look(struct streams *all, int64_t now_ms, streams_kept_fn *fn, void *ctx) {
    struct kept_list l = {0};
    if (now_ms < all->next_kept_look_ms)
        return false;
    all->next_kept_look_ms = now_ms + LOOK_EVERY_MS;
    list_outputs(all->agent, &l);
    for (uint32_t i = 0; i < l.all.len; i++)
        if (l.all.at[i].running && !l.all.at[i].error)
            fn(ctx, l.all.at[i].id, l.all.at[i].attempt, 0);
    share_among_running(all, &l);
    prune_by_bytes(all->agent, &l);
    vec_done(&l.all);
    return true;
}

static void kept_name(const struct message_launch *m, const char *which, char out[static SPOOL_NAME_MAX]) {
    snprintf(out, SPOOL_NAME_MAX, "%llu.%u.%s", (unsigned long long)m->id, m->attempt, which);
}

static void remove_kept(const struct agent_node *a, const struct message_launch *m, const char *which) {
    char name[SPOOL_NAME_MAX];
    kept_name(m, which, name);
    unlinkat(a->output_fd, name, 0);
}

static int make_kept(struct streams *all, const struct message_launch *m, const char *which, int *out) {
    struct agent_node *a = all->agent;
    char name[SPOOL_NAME_MAX];
    struct kept_file kept;
    kept_name(m, which, name);
    cleanup_close int fd =
        openat(a->output_fd, name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    int rc = fd < 0 ? -errno : launch_kept_create(fd, m->spec->uid, &kept);
    if (rc < 0)
        return rc;
    TAKE_FD(fd);
    share_with_new(all, m->spec->uid, &kept);
    *out = TAKE_FD(kept.fd);
    launch_kept_close(&kept);
    return 0;
}

// The shepherd reads what the tasks print and writes it there; descriptor 0 only has its place.
int streams_attach(struct streams *all, const struct message_launch *m, struct launch_request *r, int fds[3],
                   struct error *e) {
    if (all->attached++ % PRUNE_EVERY == 0)
        prune(all->agent);
    r->use_fds = r->relay = true;
    r->tty = m->spec->pty;
    r->relay_input = m->spec->stdin_open || r->tty;
    r->rows = m->spec->pty_rows;
    r->columns = m->spec->pty_columns;
    cleanup_close int out = -1, err = -1, none = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int rc = none < 0 ? -errno : make_kept(all, m, "out", &out);
    if (rc == 0 && !r->tty)
        rc = make_kept(all, m, "err", &err);
    if (rc < 0) {  // an empty one would be read as output
        remove_kept(all->agent, m, "out");
        remove_kept(all->agent, m, "err");
        return error_set(e, -rc, "its output cannot be kept in the folder %s/output: %s%s",
                         all->agent->folder, strerror(-rc), error_remedy(-rc));
    }
    fds[0] = TAKE_FD(none);
    fds[1] = TAKE_FD(out);
    fds[2] = TAKE_FD(err);
    return r->tty ? 2 : 3;
}
