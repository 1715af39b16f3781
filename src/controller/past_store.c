// Owns the kept snapshots: files in the state folder, named by the number and the time of their newest event. When
// there are too many, every second one of the older half goes: the distant past stays reachable by longer replays.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "core/core.h"
#include "past_view.h"

struct past_file {
    uint64_t seq;
    int64_t at_ms;
    uint64_t bytes;
};

struct past_list {
    VEC(struct past_file) files;  // oldest first
};

static char *path_of(const char *state, const struct past_file *k) {
    return xasprintf("%s/past/%020" PRIu64 "-%" PRId64 ".snapshot", state, k->seq, k->at_ms);
}

static int by_seq(const void *a, const void *b) {
    const struct past_file *x = a, *y = b;
    return (x->seq > y->seq) - (x->seq < y->seq);
}

static void list_kept(const char *state, struct past_list *out) {
    cleanup_free char *folder = xasprintf("%s/past", state);
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        struct past_file k;
        struct stat st;
        int end = 0;
        if (sscanf(e->d_name, "%" SCNu64 "-%" SCNd64 ".snapshot%n", &k.seq, &k.at_ms, &end) != 2 || !end ||
            e->d_name[end] || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        k.bytes = (uint64_t)st.st_size;
        vec_push(&out->files, k);
    }
    if (d)
        closedir(d);
    if (out->files.len)
        qsort(out->files.at, out->files.len, sizeof *out->files.at, by_seq);
}

static void drop(const char *state, const struct past_file *k) {
    cleanup_free char *path = path_of(state, k);
    unlink(path);
}

static void thin_out(const char *state) {
    struct past_list l = {0};
    uint64_t bytes = 0;
    list_kept(state, &l);
    for (uint32_t i = 0; i < l.files.len; i++)
        bytes += l.files.at[i].bytes;
    for (uint32_t i = 1; (l.files.len > PAST_SNAPSHOTS_MAX || bytes > PAST_BYTES_MAX) && i < l.files.len / 2;
         i += 2)
        drop(state, &l.files.at[i]);
    vec_done(&l.files);
}

static int write_all(int fd, const char *data, size_t len) {
    while (len) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

void past_keep(const char *state, uint64_t seq, int64_t at_ms, const void *data, size_t len) {
    struct past_file k = {seq, at_ms, len};
    cleanup_free char *folder = xasprintf("%s/past", state), *path = path_of(state, &k);
    cleanup_free char *new = xasprintf("%s.new", path);
    if (mkdir(folder, 0700) < 0 && errno != EEXIST)
        return;
    int fd = open(new, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    bool ok = fd >= 0 && write_all(fd, data, len) == 0;
    if (fd >= 0)
        close(fd);
    if (!ok || rename(new, path) < 0) {
        log_warn("a snapshot cannot be kept for looking back: %s", strerror(errno));
        unlink(new);
        return;
    }
    thin_out(state);
}

// --- looking back ---

struct past_replay {
    struct core *core;
    int64_t until_ms;
    const struct past_file *begin;  // the journal must have this event, else it is another journal
    bool checked, foreign;
};

static int play(void *ctx, const struct store_event *e) {
    struct past_replay *r = ctx;
    if (r->begin && !r->checked) {
        r->checked = true;
        r->foreign = e->seq != r->begin->seq || e->at_ms != r->begin->at_ms;
        return r->foreign;
    }
    if (e->at_ms > r->until_ms)
        return 1;
    return core_replay(r->core, e->seq, e->at_ms, (enum event_type)e->type, e->data, e->len);
}

static int load_file(const char *state, const struct past_file *k, struct core *core) {
    cleanup_free char *path = path_of(state, k);
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    cleanup_free char *data = NULL;
    size_t len = 0;
    if (fd < 0)
        return -errno;
    data = xmalloc(k->bytes + 1);
    for (ssize_t n; len < k->bytes && (n = read(fd, data + len, k->bytes - len)) > 0;)
        len += (size_t)n;
    return len == k->bytes ? core_load_snapshot(core, k->seq, data, len, NULL) : -EIO;
}

// 0; 1: that snapshot is of another journal, one that a restore has replaced.
static int load_from(const char *place, const char *state, const struct past_file *k, int64_t time_ms,
                     struct core *core, struct error *e) {
    struct past_replay r = {.core = core, .until_ms = time_ms, .begin = k};
    if (k && load_file(state, k, core) < 0)
        return 1;
    int rc = store_journal_copy(place, k ? k->seq - 1 : 0, play, &r, e);
    if (rc < 0)
        return error_set(e, ENODATA, "the kept history does not reach back to that time");
    return r.foreign || (k && !r.checked);
}

int past_load(const char *place, const char *state, int64_t time_ms, struct core *core, struct error *e) {
    struct past_list l = {0};
    list_kept(state, &l);
    uint32_t i = l.files.len;
    int r = 1;
    while (i && l.files.at[i - 1].at_ms > time_ms)
        i--;
    if (i)
        r = load_from(place, state, &l.files.at[i - 1], time_ms, core, e);
    else
        r = load_from(place, state, NULL, time_ms, core, e);
    if (r == 1 && i) {  // one try more, from the beginning: a core that was loaded cannot be used again
        drop(state, &l.files.at[i - 1]);
        r = error_set(e, EAGAIN, "a kept snapshot was of another journal and is removed; ask again");
    }
    vec_done(&l.files);
    return r;
}

static int take_first(void *ctx, const struct store_event *e) {
    *(struct past_file *)ctx = (struct past_file){.seq = e->seq, .at_ms = e->at_ms};
    return 1;
}

// A journal whose beginning was removed is readable from the oldest kept snapshot on whose event it still has.
int64_t past_oldest_ms(const char *place, const char *state) {
    struct past_file first = {0};
    struct past_list l = {0};
    struct error e = {0};
    store_journal_copy(place, 0, take_first, &first, &e);
    if (first.seq > 1) {
        list_kept(state, &l);
        uint32_t i = 0;
        while (i < l.files.len && l.files.at[i].seq < first.seq)
            i++;
        first.at_ms = i < l.files.len ? l.files.at[i].at_ms : 0;
        vec_done(&l.files);
    }
    return first.at_ms;
}
