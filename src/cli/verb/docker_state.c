// Owns what docker's words remember between two calls in a job: a file per container in docker/JOB of the user's folder
// for images, and its output beside it. A process is known by number and start. Files of jobs that are over are removed
// by the next call.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/rand.h"
#include "base/process.h"
#include "base/text.h"
#include "docker.h"

enum { STATE_MAX = 16 << 10, PROCESSES_MAX = 1 << 20 };

static const char *folder_of(struct docker *d) {
    const char *job = getenv("ACEQUIA_JOB_ID");
    return arena_printf(&d->c->arena, "%s/docker/%s", d->cache, job ? job : "none");
}

const char *docker_state_path(struct docker *d, const char *id, const char *what) {
    return arena_printf(&d->c->arena, "%s/%.12s.%s", folder_of(d), id, what);
}

const char *docker_kept_path(struct docker *d, const char *name) {
    return arena_printf(&d->c->arena, "%s/docker/kept-%s", d->cache, name);
}

bool docker_kept(struct docker *d, const char *name) {
    return access(arena_printf(&d->c->arena, "%s/containers/%s/rootfs", d->cache, name), F_OK) == 0;
}

void docker_state_new(struct docker_state *s) {
    static const char digits[] = "0123456789abcdef";
    uint8_t bytes[32];
    if (rand_secret(bytes, sizeof bytes) < 0)
        memset(bytes, getpid() & 255, sizeof bytes);
    for (int i = 0; i < 64; i++)
        s->id[i] = digits[i % 2 ? bytes[i / 2] & 15 : bytes[i / 2] >> 4];
    if (!s->name[0])
        snprintf(s->name, sizeof s->name, "job_%.8s", s->id);
    s->started_ms = clock_wall_ms();
    s->exit_code = -1;
}

int docker_state_write(struct docker *d, const struct docker_state *s) {
    cleanup_buf struct buf out = {0};
    struct json_writer w = {.out = &out};
    const char *path = docker_state_path(d, s->id, "json"), *new = docker_state_path(d, s->id, "new");
    mkdir(arena_printf(&d->c->arena, "%s/docker", d->cache), 0700);
    mkdir(folder_of(d), 0700);
    json_open(&w, '{');
    json_kv_str(&w, "id", s->id);
    json_kv_str(&w, "name", s->name);
    json_kv_str(&w, "image", s->image);
    json_kv_str(&w, "command", s->command);
    json_kv_i64(&w, "pid", s->pid);
    json_kv_i64(&w, "start", (int64_t)s->start);
    json_kv_i64(&w, "started_ms", s->started_ms);
    json_kv_i64(&w, "exit_code", s->exit_code);
    json_kv_bool(&w, "detached", s->detached);
    json_kv_bool(&w, "kept", s->kept);
    json_close(&w, '}');
    cleanup_close int fd = open(new, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || write(fd, out.data, out.len) != (ssize_t)out.len || rename(new, path) < 0)
        return error_set(&d->c->error, errno, "docker: %s cannot be written: %s", path, strerror(errno));
    return 0;
}

static void text_of(const struct json *j, const char *key, char *out, size_t size) {
    const char *text = json_str(j, key);
    snprintf(out, size, "%s", text ? text : "");
}

static bool read_state(struct docker *d, const char *path, struct docker_state *s) {
    char *text = arena_alloc(&d->c->arena, STATE_MAX);
    struct json *j;
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t n = fd < 0 ? -1 : read(fd, text, STATE_MAX);
    if (n <= 0 || json_parse(text, (size_t)n, &d->c->arena, &j, NULL) < 0)
        return false;
    *s = (struct docker_state){.pid = (pid_t)json_i64(j, "pid", 0),
                               .start = (uint64_t)json_i64(j, "start", 0),
                               .started_ms = json_i64(j, "started_ms", 0),
                               .exit_code = (int)json_i64(j, "exit_code", -1),
                               .detached = json_true(j, "detached"),
                               .kept = json_true(j, "kept")};
    text_of(j, "id", s->id, sizeof s->id);
    text_of(j, "name", s->name, sizeof s->name);
    text_of(j, "image", s->image, sizeof s->image);
    text_of(j, "command", s->command, sizeof s->command);
    s->running = s->pid > 0 && s->start && process_start(s->pid) == s->start;
    return strlen(s->id) == 64;
}

void docker_state_remove(struct docker *d, const struct docker_state *s) {
    unlink(docker_state_path(d, s->id, "json"));
    unlink(docker_state_path(d, s->id, "log"));
}

// A container without a name of its own that has ended is forgotten, as with --rm.
void docker_state_list(struct docker *d, struct docker_list *out) {
    DIR *f = opendir(folder_of(d));
    int n = 0;
    for (struct dirent *ent; f && n < DOCKER_LIST_MAX && (ent = readdir(f));) {
        struct docker_state s;
        const char *dot = strrchr(ent->d_name, '.');
        if (!streq(dot, ".json") ||
            !read_state(d, arena_printf(&d->c->arena, "%s/%s", folder_of(d), ent->d_name), &s))
            continue;
        n++;
        if (!s.running && !s.detached && !s.kept)
            docker_state_remove(d, &s);
        else
            vec_push(&out->at, s);
    }
    if (f)
        closedir(f);
}

struct docker_state *docker_state_find(struct docker_list *l, const char *name) {
    size_t n = strlen(name);
    for (uint32_t i = 0; i < l->at.len; i++)
        if (streq(l->at.at[i].name, name) || (n >= 4 && strncmp(l->at.at[i].id, name, n) == 0))
            return &l->at.at[i];
    return NULL;
}

// Its processes are those that see its files: it has a mount namespace of its own.
int docker_signal(const struct docker_state *s, int number) {
    char own[64], path[64], other[64];
    int sent = 0;
    snprintf(path, sizeof path, "/proc/%d/ns/mnt", s->pid);
    ssize_t n = readlink(path, own, sizeof own - 1);
    if (!s->running || n <= 0)
        return -ESRCH;
    own[n] = 0;
    DIR *d = opendir("/proc");
    int seen = 0;
    for (struct dirent *ent; d && seen < PROCESSES_MAX && (ent = readdir(d)); seen++) {
        uint32_t pid;
        if (parse_u32(ent->d_name, &pid) < 0)
            continue;
        snprintf(path, sizeof path, "/proc/%u/ns/mnt", pid);
        n = readlink(path, other, sizeof other - 1);
        other[n > 0 ? n : 0] = 0;
        if (n > 0 && streq(own, other) && kill((pid_t)pid, number) == 0)
            sent++;
    }
    if (d)
        closedir(d);
    return sent ? 0 : -ESRCH;
}
