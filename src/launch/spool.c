// Owns the layout of the spool folder and the rule of its lock. The folder and everything in it
// belongs to the agent's user; nothing here is opened through a path that a job
// can write to.
#include "launch/spool.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/acl.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "base/rand.h"
#include "base/text.h"
#include "launch/mpi.h"

enum {
    SPOOL_MAGIC = 0x31505341,  // "ASP1"
    LOOKS_MAX = 3,
};

static_assert(sizeof(struct spool_status) <= SPOOL_STATUS_SIZE, "the record has a fixed place");

int spool_error(int spool_fd, int code, struct error *e, const char *what) {
    char link[32], path[160];
    snprintf(link, sizeof link, "/proc/self/fd/%d", spool_fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    return error_set(e, code, "spool folder %s: %s: %s%s", path, what, strerror(code), error_remedy(code));
}

int spool_open(const char *path, struct error *e) {
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return error_set(e, errno, "spool folder %s: cannot be made: %s%s", path, strerror(errno),
                         error_remedy(errno));
    cleanup_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return error_set(e, errno, "spool folder %s: cannot be opened: %s%s", path, strerror(errno),
                         error_remedy(errno));
    if (st.st_uid != geteuid())
        return error_set(e, EPERM, "spool folder %s: belongs to user %u; remove it or choose "
                         "another", path, st.st_uid);
    // Users must pass through to their scripts, but not look around.
    if (fchmod(fd, geteuid() == 0 ? 0711 : 0700) < 0)
        return error_set(e, errno, "spool folder %s: cannot set its mode: %s%s", path, strerror(errno),
                         error_remedy(errno));
    return TAKE_FD(fd);
}

int spool_open_hints(int spool_fd, struct error *e) {
    if (mkfifoat(spool_fd, "hints", 0600) < 0 && errno != EEXIST)
        return spool_error(spool_fd, errno, e, "cannot make the pipe `hints`");
    // Also open for writing: the pipe never reads as ended while no shepherd has it open.
    cleanup_close int fd = openat(spool_fd, "hints", O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return spool_error(spool_fd, errno, e, "cannot open the pipe `hints`");
    if (!S_ISFIFO(st.st_mode))
        return error_set(e, EINVAL, "spool folder: `hints` is not a pipe; remove it");
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return error_set(e, errno == EWOULDBLOCK ? EBUSY : errno,
                         "another agent uses this spool folder");
    return TAKE_FD(fd);
}

void spool_name(char out[SPOOL_NAME_MAX], uint64_t job, uint32_t attempt) {
    snprintf(out, SPOOL_NAME_MAX, "%" PRIu64 ".%" PRIu32, job, attempt);
}

int spool_parse_name(const char *name, uint64_t *job, uint32_t *attempt) {
    char head[SPOOL_NAME_MAX];
    const char *dot = strchr(name, '.');
    if (!dot || (size_t)(dot - name) >= sizeof head)
        return -EINVAL;
    memcpy(head, name, (size_t)(dot - name));
    head[dot - name] = 0;
    int r = parse_u64(head, job);
    return r < 0 ? r : parse_u32(dot + 1, attempt);
}

void spool_unit_name(char out[SPOOL_NAME_MAX], uint32_t step) {
    if (step)
        snprintf(out, SPOOL_NAME_MAX, "unit.%" PRIu32, step);
    else
        snprintf(out, SPOOL_NAME_MAX, "unit");
}

void spool_report_name(char out[SPOOL_NAME_MAX], uint32_t step) {
    if (step)
        snprintf(out, SPOOL_NAME_MAX, "report.%" PRIu32, step);
    else
        snprintf(out, SPOOL_NAME_MAX, "report");
}

void spool_relay_name(char out[SPOOL_NAME_MAX], uint32_t step, enum spool_relay which) {
    static const char *const names[SPOOL_RELAY_COUNT] = {"out", "in", "io"};
    snprintf(out, SPOOL_NAME_MAX, "%s.%" PRIu32, names[which], step);
}

void spool_mpi_name(char out[SPOOL_NAME_MAX], uint32_t step, enum spool_mpi which) {
    snprintf(out, SPOOL_NAME_MAX, "%s.%" PRIu32, which == SPOOL_MPI_OWN ? "mpi" : "hub", step);
}

// "JOB.ATTEMPT/file": one lookup instead of opening the folder first.
static void spool_path(char out[SPOOL_PATH_MAX], uint64_t job, uint32_t attempt, const char *file) {
    snprintf(out, SPOOL_PATH_MAX, "%" PRIu64 ".%" PRIu32 "/%s", job, attempt, file);
}

void spool_seal(struct spool_status *s) {
    s->magic = SPOOL_MAGIC;
    s->check = hash_bytes(s, offsetof(struct spool_status, check));
}

bool spool_sealed(const struct spool_status *s) {
    return s->magic == SPOOL_MAGIC && s->state <= SPOOL_ENDED && s->end < ENDED_REASONS &&
           s->launch_code < LAUNCH_CODES &&
           s->check == hash_bytes(s, offsetof(struct spool_status, check)) &&
           memchr(s->text, 0, sizeof s->text) && memchr(s->cgroup, 0, sizeof s->cgroup) &&
           memchr(s->boot_id, 0, sizeof s->boot_id);
}

int spool_boot_id(char out[40]) {
    cleanup_close int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, 39);
    if (n < 0)
        return -errno;
    out[n] = 0;
    out[strcspn(out, "\n")] = 0;
    return 0;
}

static int write_all(int fd, const char *p, size_t n) {
    while (n) {
        ssize_t w = write(fd, p, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return w < 0 ? -errno : -EIO;
        p += w;
        n -= (size_t)w;
    }
    return 0;
}

// In the room that is kept behind the status record: number and epoch of the event that created a step; zeros in files
// of release 0.2.
enum { EVENT_AT = SPOOL_STATUS_SIZE - sizeof(struct spool_event) };
enum { HEALTH_AT = EVENT_AT - sizeof(struct spool_health) };
static_assert(sizeof(struct spool_status) <= HEALTH_AT, "the status record reaches into what is behind it");

static int write_unit(int spool_fd, const struct launch_request *r, const struct spool_event *event,
                      const char *boot_id, int64_t wall_ms) {
    cleanup_buf struct buf b = {0};
    char name[SPOOL_NAME_MAX], path[SPOOL_PATH_MAX];
    struct spool_status s = {
        .state = SPOOL_CREATED, .job = r->job, .attempt = r->attempt, .step = r->step,
        .ntasks = r->ntasks, .created_wall_ms = wall_ms,
    };
    int rc = rand_secret(&s.id, sizeof s.id);
    if (rc == 0 && !boot_id)
        rc = spool_boot_id(s.boot_id);
    if (rc < 0)
        return rc;
    if (boot_id)
        snprintf(s.boot_id, sizeof s.boot_id, "%s", boot_id);
    spool_seal(&s);
    size_t head = SPOOL_STATUS_SIZE + r->ntasks * sizeof(int32_t);
    memset(buf_reserve(&b, head), 0, head);
    memcpy(b.data, &s, sizeof s);
    memcpy(b.data + EVENT_AT, event, sizeof *event);
    b.len = head;
    launch_encode(r, &b);
    spool_unit_name(name, r->step);
    spool_path(path, r->job, r->attempt, name);
    cleanup_close int fd = openat(spool_fd, path,
                                  O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    rc = write_all(fd, b.data, b.len);
    if (rc < 0)
        unlinkat(spool_fd, path, 0);
    return rc;
}

// The job's user may read and run the script, but does not own it: an owner could make it writable and fill the
// file system that all jobs need. Where there are no access control lists the user has to own it.
static int grant_to_user(int fd, uid_t uid, gid_t gid, unsigned rights) {
    if (acl_allow_user(fd, uid, rights) == 0)
        return 0;
    return fchown(fd, uid, gid) < 0 ? -errno : 0;
}

static int write_script(int spool_fd, const struct launch_request *r, const char *text,
                        size_t len) {
    char path[SPOOL_PATH_MAX];
    spool_path(path, r->job, r->attempt, "script");
    cleanup_close int fd = openat(spool_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0500);
    if (fd < 0)
        return -errno;
    int rc = write_all(fd, text, len);
    return rc == 0 && r->switch_user ? grant_to_user(fd, r->uid, r->gid, ACL_READ | ACL_EXECUTE) : rc;
}

static const char origin_name[] = "origin", seen_name[] = "seen";

static void step_origin_name(char out[static SPOOL_NAME_MAX], uint32_t step) {
    snprintf(out, SPOOL_NAME_MAX, "%s.%" PRIu32, origin_name, step);
}

static int remove_folder(int spool_fd, const char *name);

int spool_create(int spool_fd, const struct launch_request *r, const char *script,
                 size_t script_len, const char *boot_id, int64_t wall_ms, struct error *e) {
    char name[SPOOL_NAME_MAX];
    assert(r->step == 0 && r->has_script == (script != NULL));
    int rc = launch_check(r, e);
    if (rc < 0)
        return rc;
    if (script_len > LAUNCH_SCRIPT_MAX)
        return error_set(e, E2BIG, "script: %zu bytes are over the limit of %d", script_len,
                         LAUNCH_SCRIPT_MAX);
    spool_name(name, r->job, r->attempt);
    if (mkdirat(spool_fd, name, 0711) < 0)
        return spool_error(spool_fd, errno, e, "cannot make the folder of a job");
    // The umask may have taken bits that users need to reach their script and pipes.
    rc = fchmodat(spool_fd, name, geteuid() == 0 ? 0711 : 0700, 0) < 0 ? -errno : 0;
    if (rc == 0 && script)
        rc = write_script(spool_fd, r, script, script_len);
    if (rc == 0)
        rc = write_unit(spool_fd, r, &(struct spool_event){0}, boot_id, wall_ms);
    if (rc < 0) {
        remove_folder(spool_fd, name);
        return spool_error(spool_fd, -rc, e, "cannot write what a job is started from");
    }
    return 0;
}

int spool_write_secret(int spool_fd, const struct launch_request *r, const char *name, const void *data, size_t len) {
    char path[SPOOL_PATH_MAX];
    if (snprintf(path, sizeof path, "%" PRIu64 ".%" PRIu32 "/" SPOOL_SECRET "%s", r->job, r->attempt, name) >=
        (int)sizeof path)
        return -ENAMETOOLONG;
    cleanup_close int fd = openat(spool_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0400);
    if (fd < 0)
        return -errno;
    int rc = write_all(fd, data, len);
    return rc == 0 && r->switch_user ? grant_to_user(fd, r->uid, r->gid, ACL_READ) : rc;
}

static int open_folder(int spool_fd, uint64_t job, uint32_t attempt) {
    char name[SPOOL_NAME_MAX];
    spool_name(name, job, attempt);
    int fd = openat(spool_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -errno : fd;
}

uint64_t spool_texts_bytes(int spool_fd, uint64_t job, uint32_t attempt) {
    uint64_t bytes = 0;
    int fd = open_folder(spool_fd, job, attempt);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d && fd >= 0)
        close(fd);
    for (struct dirent *ent; d && (ent = readdir(d));) {
        struct stat st;
        if ((streq(ent->d_name, "script") || str_has_prefix(ent->d_name, SPOOL_SECRET)) &&
            fstatat(fd, ent->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_size > 0)
            bytes += spool_file_bytes((uint64_t)st.st_size);
    }
    if (d)
        closedir(d);
    return bytes;
}

static bool same_content(int dir, const char *path, const void *data, size_t len) {
    cleanup_close int fd = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || (size_t)st.st_size != len)
        return false;
    cleanup_free char *old = malloc(len + 1);
    return old && read(fd, old, len) == (ssize_t)len && memcmp(old, data, len) == 0;
}

uint64_t spool_members_held(int spool_fd, uint64_t job, uint32_t attempt) {
    char path[SPOOL_PATH_MAX];
    struct stat st;
    spool_path(path, job, attempt, SPOOL_MEMBERS_FILE);
    return fstatat(spool_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0 ? 0
                                                                 : spool_members_bytes((uint64_t)st.st_size);
}

int spool_write_members(int spool_fd, uint64_t job, uint32_t attempt, const void *data, size_t len) {
    cleanup_close int dir = open_folder(spool_fd, job, attempt);
    if (dir < 0)
        return dir;
    if (mkdirat(dir, SPOOL_MEMBERS, 0755) < 0 && errno != EEXIST)
        return -errno;
    if (same_content(dir, SPOOL_MEMBERS_FILE, data, len))
        return 1;
    unlinkat(dir, SPOOL_MEMBERS "/new", 0);  // of an agent that was killed
    cleanup_close int fd =
        openat(dir, SPOOL_MEMBERS "/new", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return -errno;
    int rc = write_all(fd, data, len);
    // The umask may have taken bits that the job's user needs.
    if (rc == 0 && (fchmodat(dir, SPOOL_MEMBERS, 0755, 0) < 0 || fchmod(fd, 0644) < 0 ||
                    renameat(dir, SPOOL_MEMBERS "/new", dir, SPOOL_MEMBERS_FILE) < 0))
        rc = -errno;
    return rc;
}

static void origin_path(char path[static SPOOL_PATH_MAX], uint64_t job, uint32_t attempt, uint32_t step) {
    char name[SPOOL_NAME_MAX];
    step_origin_name(name, step);
    spool_path(path, job, attempt, step ? name : origin_name);
}

int spool_write_origin(int spool_fd, uint64_t job, uint32_t attempt, uint32_t step, const void *data,
                       size_t len) {
    char path[SPOOL_PATH_MAX];
    origin_path(path, job, attempt, step);
    cleanup_close int fd = openat(spool_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fd < 0 ? -errno : write(fd, data, len) == (ssize_t)len ? 0 : -EIO;
}

int spool_read_origin(int spool_fd, uint64_t job, uint32_t attempt, uint32_t step, struct arena *a,
                      const void **data, size_t *len) {
    char path[SPOOL_PATH_MAX];
    struct stat st;
    origin_path(path, job, attempt, step);
    cleanup_close int fd = openat(spool_fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (st.st_size <= 0 || st.st_size > LAUNCH_REQUEST_MAX)
        return -EBADMSG;
    void *bytes = arena_alloc(a, (size_t)st.st_size);
    if (read(fd, bytes, (size_t)st.st_size) != st.st_size)
        return -EIO;
    *data = bytes;
    *len = (size_t)st.st_size;
    return 0;
}

struct seen_record {
    uint64_t position[3], check;
};

static uint64_t seen_check(const struct seen_record *r) {
    return hash_bytes(r->position, sizeof r->position) | 1;
}

// It is asked for once in the life of an agent; a damaged one counts as none.
void spool_write_health(int unit_fd, struct spool_health *h) {
    h->check = hash_bytes(h, offsetof(struct spool_health, check));
    if (pwrite(unit_fd, h, sizeof *h, HEALTH_AT) < 0)
        return;  // the agent keeps what it knew
}

bool spool_read_health(int spool_fd, uint64_t job, uint32_t attempt, struct spool_health *out) {
    char path[SPOOL_PATH_MAX];
    spool_path(path, job, attempt, "unit");
    cleanup_close int fd = openat(spool_fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return fd >= 0 && pread(fd, out, sizeof *out, HEALTH_AT) == sizeof *out && out->health &&
           out->check == hash_bytes(out, offsetof(struct spool_health, check)) &&
           memchr(out->reason, 0, sizeof out->reason);
}

void spool_write_seen(int spool_fd, const uint64_t position[static 3]) {
    struct seen_record r;
    memcpy(r.position, position, sizeof r.position);
    r.check = seen_check(&r);
    cleanup_close int fd = openat(spool_fd, seen_name, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0 && pwrite(fd, &r, sizeof r, 0) != sizeof r)
        unlinkat(spool_fd, seen_name, 0);
}

void spool_read_seen(int spool_fd, uint64_t position[static 3]) {
    struct seen_record r;
    memset(position, 0, 3 * sizeof *position);
    cleanup_close int fd = openat(spool_fd, seen_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 && read(fd, &r, sizeof r) == sizeof r && r.check == seen_check(&r))
        memcpy(position, r.position, sizeof r.position);
}

int spool_create_step(int spool_fd, const struct launch_request *r, const struct spool_event *event,
                      int64_t wall_ms, struct error *e) {
    assert(r->step);
    int rc = launch_check(r, e);
    if (rc < 0)
        return rc;
    rc = write_unit(spool_fd, r, event, NULL, wall_ms);
    return rc < 0 ? spool_error(spool_fd, -rc, e, "cannot write what a step is started from") : 0;
}

static int read_record(int fd, struct spool_status *s) {
    ssize_t n = pread(fd, s, sizeof *s, 0);
    if (n < 0)
        return -errno;
    return n == sizeof *s && spool_sealed(s) ? 0 : -EBADMSG;
}

static int open_unit(int spool_fd, uint64_t job, uint32_t attempt, uint32_t step, int flags) {
    char name[SPOOL_NAME_MAX], path[SPOOL_PATH_MAX];
    spool_unit_name(name, step);
    spool_path(path, job, attempt, name);
    int fd = openat(spool_fd, path, flags | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -errno : fd;
}

struct spool_event spool_step_event(int spool_fd, uint64_t job, uint32_t attempt, uint32_t step) {
    struct spool_event event;
    cleanup_close int fd = open_unit(spool_fd, job, attempt, step, O_RDONLY);
    return fd >= 0 && pread(fd, &event, sizeof event, EVENT_AT) == sizeof event ? event
                                                                                : (struct spool_event){0};
}

int spool_read_status(int spool_fd, uint64_t job, uint32_t attempt, uint32_t step,
                      struct spool_status *out) {
    struct spool_status s;
    cleanup_close int fd = open_unit(spool_fd, job, attempt, step, O_RDONLY);
    int rc = fd < 0 ? fd : read_record(fd, &s);
    if (rc == 0)
        *out = s;
    return rc;
}

int spool_read_request(int spool_fd, uint64_t job, uint32_t attempt, uint32_t step,
                       struct arena *arena, struct launch_request *out, struct error *e) {
    struct spool_status s;
    struct stat st;
    cleanup_close int fd = open_unit(spool_fd, job, attempt, step, O_RDONLY);
    int rc = fd < 0 ? fd : read_record(fd, &s);
    if (rc < 0 || fstat(fd, &st) < 0)
        return error_set(e, rc < 0 ? -rc : errno, "the launch request cannot be read");
    off_t head = SPOOL_STATUS_SIZE + (off_t)s.ntasks * (off_t)sizeof(int32_t);
    if (st.st_size <= head || st.st_size > head + LAUNCH_REQUEST_MAX)
        return error_set(e, EBADMSG, "the launch request is damaged");
    size_t len = (size_t)(st.st_size - head);
    char *data = arena_alloc(arena, len);
    if (pread(fd, data, len, head) != (ssize_t)len)
        return error_set(e, EIO, "the launch request cannot be read");
    return launch_decode(data, len, arena, out, e);
}

int spool_read_exits(int spool_fd, uint64_t job, uint32_t attempt, uint32_t step, int32_t *exits,
                     uint32_t max) {
    struct spool_status s;
    cleanup_close int fd = open_unit(spool_fd, job, attempt, step, O_RDONLY);
    int rc = fd < 0 ? fd : read_record(fd, &s);
    if (rc < 0)
        return rc;
    uint32_t n = s.ntasks < max ? s.ntasks : max;
    size_t len = n * sizeof *exits;
    return pread(fd, exits, len, SPOOL_STATUS_SIZE) == (ssize_t)len ? (int)n : -EIO;
}

// 1 if a shepherd holds the lock.
static int lock_held(int fd, pid_t *pid) {
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_GETLK, &l) < 0)
        return -errno;
    if (pid)
        *pid = l.l_type == F_UNLCK ? 0 : l.l_pid;
    return l.l_type != F_UNLCK;
}

int spool_alive(int spool_fd, uint64_t job, uint32_t attempt, pid_t *pid) {
    cleanup_close int fd = open_unit(spool_fd, job, attempt, 0, O_RDONLY);
    return fd < 0 ? fd : lock_held(fd, pid);
}

// Two questions cannot be asked at once. An attempt that ends between them has let go of the lock and has an end;
// one that starts between them holds it when it is asked for again; a record that is being written can be read then.
static int look(int fd, struct spool_status *s, bool *alive) {
    int rc = 0;
    for (int i = 0; i < LOOKS_MAX; i++) {
        *alive = lock_held(fd, NULL) != 0;
        rc = read_record(fd, s);
        if (*alive || (rc == 0 && s->state != SPOOL_STARTED))
            break;
    }
    return rc;
}

int spool_look(int spool_fd, uint64_t job, uint32_t attempt, struct spool_status *out, bool *alive) {
    cleanup_close int fd = open_unit(spool_fd, job, attempt, 0, O_RDONLY);
    return fd < 0 ? fd : look(fd, out, alive);
}

int spool_close_attempt(int spool_fd, uint64_t job, uint32_t attempt, enum launch_end end,
                        const char *text, int64_t wall_ms, struct spool_status *out) {
    struct spool_status s;
    cleanup_close int fd = open_unit(spool_fd, job, attempt, 0, O_RDWR);
    if (fd < 0)
        return fd;
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_SETLK, &l) < 0)
        return errno == EACCES || errno == EAGAIN ? -EBUSY : -errno;
    int rc = read_record(fd, &s);
    if (rc < 0)
        return rc;
    if (s.state != SPOOL_ENDED) {
        s.state = SPOOL_ENDED;
        s.end = end;
        s.ended_wall_ms = wall_ms;
        snprintf(s.text, sizeof s.text, "%s", text);
        spool_seal(&s);
        if (pwrite(fd, &s, sizeof s, 0) != sizeof s)
            return -EIO;
    } else {
        rc = -EALREADY;
    }
    *out = s;
    return rc;
}

static int remove_folder(int spool_fd, const char *name) {
    char path[SPOOL_PATH_MAX];
    // What is always there first: most folders need no listing.
    snprintf(path, sizeof path, "%s/unit", name);
    unlinkat(spool_fd, path, 0);
    snprintf(path, sizeof path, "%s/%s", name, origin_name);
    unlinkat(spool_fd, path, 0);
    if (unlinkat(spool_fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 0;
    int fd = openat(spool_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        if (fd >= 0)
            close(fd);
        return -errno;
    }
    unlinkat(fd, SPOOL_MEMBERS_FILE, 0);
    unlinkat(fd, SPOOL_MEMBERS "/new", 0);
    unlinkat(fd, SPOOL_MEMBERS, AT_REMOVEDIR);
    for (struct dirent *ent; (ent = readdir(d));)
        if (!streq(ent->d_name, ".") && !streq(ent->d_name, ".."))
            unlinkat(fd, ent->d_name, 0);
    closedir(d);
    return unlinkat(spool_fd, name, AT_REMOVEDIR) < 0 ? -errno : 0;
}

int spool_remove(int spool_fd, uint64_t job, uint32_t attempt) {
    char name[SPOOL_NAME_MAX];
    spool_name(name, job, attempt);
    return remove_folder(spool_fd, name);
}

int spool_remove_step(int spool_fd, uint64_t job, uint32_t attempt, uint32_t step) {
    char name[SPOOL_NAME_MAX];
    assert(step);
    cleanup_close int dir = open_folder(spool_fd, job, attempt);
    if (dir < 0)
        return dir;
    spool_report_name(name, step);
    unlinkat(dir, name, 0);
    step_origin_name(name, step);
    unlinkat(dir, name, 0);
    for (enum spool_relay i = 0; i < SPOOL_RELAY_COUNT; i++) {
        spool_relay_name(name, step, i);
        unlinkat(dir, name, 0);
    }
    for (enum spool_mpi i = SPOOL_MPI_OWN; i <= SPOOL_MPI_HUB; i++) {
        spool_mpi_name(name, step, i);
        unlinkat(dir, name, 0);
    }
    spool_unit_name(name, step);
    return unlinkat(dir, name, 0) < 0 ? -errno : 0;
}

int spool_mpi_write(int spool_fd, uint64_t job, uint32_t attempt, uint32_t step, enum spool_mpi which,
                    const struct mpi_note *n) {
    char name[SPOOL_NAME_MAX], path[SPOOL_PATH_MAX];
    spool_mpi_name(name, step, which);
    spool_path(path, job, attempt, name);
    cleanup_close int fd =
        openat(spool_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fd < 0 ? -errno : pwrite(fd, n, sizeof *n, 0) == (ssize_t)sizeof *n ? 0 : -EIO;
}

int spool_mpi_read(int spool_fd, uint64_t job, uint32_t attempt, uint32_t step, enum spool_mpi which,
                   struct mpi_note *n) {
    char name[SPOOL_NAME_MAX], path[SPOOL_PATH_MAX];
    spool_mpi_name(name, step, which);
    spool_path(path, job, attempt, name);
    cleanup_close int fd = openat(spool_fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -errno : pread(fd, n, sizeof *n, 0) == (ssize_t)sizeof *n ? 0 : -EBADMSG;
}

int spool_relay_file(int spool_fd, uint64_t job, uint32_t attempt, uint32_t step, enum spool_relay which, int flags) {
    char name[SPOOL_NAME_MAX], path[SPOOL_PATH_MAX];
    spool_relay_name(name, step, which);
    spool_path(path, job, attempt, name);
    int fd = openat(spool_fd, path, flags | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -errno : fd;
}

static void scan_one(int spool_fd, const char *name, spool_scan_fn *fn, void *ctx) {
    uint64_t job;
    uint32_t attempt;
    struct spool_status s;
    if (spool_parse_name(name, &job, &attempt) < 0)
        return;
    bool alive = false;
    int rc = spool_look(spool_fd, job, attempt, &s, &alive);
    if (rc == 0 && s.job == job && s.attempt == attempt)
        fn(ctx, &s, alive);
    else if (!alive && (rc == 0 || rc == -ENOENT || rc == -EBADMSG))
        remove_folder(spool_fd, name);
}

static DIR *open_listing(int dir_fd) {
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d && fd >= 0)
        close(fd);
    return d;
}

void spool_discard(int spool_fd, const char *path) {
    static const char *const own[] = {"hints", "id", seen_name, "shepherd.log"};
    DIR *d = open_listing(spool_fd);
    bool empty = d != NULL;
    for (struct dirent *ent; empty && (ent = readdir(d));) {
        struct stat st;
        bool known = streq(ent->d_name, ".") || streq(ent->d_name, "..");
        for (size_t i = 0; i < sizeof own / sizeof *own && !known; i++)
            known = streq(ent->d_name, own[i]) && fstatat(spool_fd, own[i], &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                    (i < 3 || st.st_size == 0);
        empty = known;
    }
    if (d)
        closedir(d);
    for (size_t i = 0; i < sizeof own / sizeof *own && empty; i++)
        unlinkat(spool_fd, own[i], 0);
    if (empty)
        rmdir(path);
}

int spool_scan(int spool_fd, spool_scan_fn *fn, void *ctx, struct error *e) {
    DIR *d = open_listing(spool_fd);
    if (!d)
        return spool_error(spool_fd, errno, e, "cannot be listed");
    for (struct dirent *ent; (ent = readdir(d));)
        if (ent->d_name[0] >= '0' && ent->d_name[0] <= '9')
            scan_one(spool_fd, ent->d_name, fn, ctx);
    closedir(d);
    return 0;
}

int spool_scan_steps(int spool_fd, uint64_t job, uint32_t attempt, spool_step_fn *fn, void *ctx) {
    cleanup_close int dir = open_folder(spool_fd, job, attempt);
    if (dir < 0)
        return dir;
    DIR *d = open_listing(dir);
    if (!d)
        return -errno;
    for (struct dirent *ent; (ent = readdir(d));) {
        struct spool_status s;
        uint32_t step;
        if (str_has_prefix(ent->d_name, "unit.") && parse_u32(ent->d_name + 5, &step) == 0 &&
            step && spool_read_status(spool_fd, job, attempt, step, &s) == 0)
            fn(ctx, &s);
    }
    closedir(d);
    return 0;
}
