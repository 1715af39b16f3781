// Owns the table of shepherds and their attempts. A slot is named after its shepherd ("sPID-NUMBER"),
// and a shepherd has one attempt at a time.
#include "cgroup/owners.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/map.h"
#include "base/text.h"
#include "cgroup/cgroup_io.h"

enum { PROC_TEXT_MAX = 8192, GENERATIONS_MAX = 256 };

struct owner {
    uint64_t job;
    uint32_t attempt;
    char slot[CGROUP_NAME_MAX];
};

struct owners {
    const struct cgroup_site *site;
    struct map shepherds;  // pid → struct owner
};

struct owners *cgroup_owners_new(const struct cgroup_site *site) {
    struct owners *o = xcalloc(1, sizeof *o);
    o->site = site;
    return o;
}

struct owners *cgroup_owners_free(struct owners *o) {
    size_t it = 0;
    void *v;
    if (!o)
        return NULL;
    while (map_next(&o->shepherds, &it, NULL, &v))
        free(v);
    map_done(&o->shepherds);
    free(o);
    return NULL;
}

struct owners *cgroup_owners_copy(const struct owners *o) {
    struct owners *copy = cgroup_owners_new(o->site);
    size_t it = 0;
    uint64_t pid;
    void *v;
    while (map_next(&o->shepherds, &it, &pid, &v)) {
        struct owner *w = xcalloc(1, sizeof *w);
        *w = *(const struct owner *)v;
        map_put(&copy->shepherds, pid, w);
    }
    return copy;
}

void cgroup_owners_started(struct owners *o, const struct spool_status *s) {
    if (s->shepherd_pid <= 1)
        return;
    struct owner *w = map_get(&o->shepherds, (uint64_t)s->shepherd_pid);
    if (!w) {
        w = xcalloc(1, sizeof *w);
        map_put(&o->shepherds, (uint64_t)s->shepherd_pid, w);
    }
    w->job = s->job;
    w->attempt = s->attempt;
    snprintf(w->slot, sizeof w->slot, "%.*s", (int)sizeof s->cgroup - 1, s->cgroup);
}

void cgroup_owners_ended(struct owners *o, uint64_t job, uint32_t attempt) {
    size_t it = 0;
    uint64_t pid;
    void *v;
    while (map_next(&o->shepherds, &it, &pid, &v)) {
        struct owner *w = v;
        if (w->job == job && w->attempt == attempt) {
            free(map_remove(&o->shepherds, pid));
            return;
        }
    }
}

bool cgroup_owners_shepherd(const struct owners *o, uint64_t job, uint32_t attempt, pid_t *shepherd,
                            char slot[CGROUP_NAME_MAX]) {
    size_t it = 0;
    uint64_t pid;
    void *v;
    while (map_next(&o->shepherds, &it, &pid, &v)) {
        const struct owner *w = v;
        if (w->job != job || w->attempt != attempt)
            continue;
        *shepherd = (pid_t)pid;
        snprintf(slot, CGROUP_NAME_MAX, "%s", w->slot);
        return true;
    }
    return false;
}

bool cgroup_owners_slot_of(const char *base, const char *line, char out[CGROUP_NAME_MAX]) {
    const char *path = strchr(line, ':');
    path = path ? strchr(path + 1, ':') : NULL;
    if (!path)
        return false;
    path++;
    // The folder as the process sees it is the end of the folder as we see it, or the whole of it.
    const char *tag = strrchr(base, '/');
    if (!tag)
        return false;
    for (const char *p = path; (p = strstr(p, tag)); p++) {
        size_t prefix = (size_t)(p - path) + strlen(tag), whole = strlen(base);
        if (path[prefix] != '/' || prefix > whole || strncmp(base + whole - prefix, path, prefix) != 0)
            continue;
        const char *name = path + prefix + 1;
        size_t len = strcspn(name, "/\n");
        if (!len || len >= CGROUP_NAME_MAX)
            return false;
        memcpy(out, name, len);
        out[len] = 0;
        return true;
    }
    return false;
}

static const struct owner *by_slot(const struct owners *o, const char *slot) {
    char digits[16];
    uint32_t pid;
    size_t len = strcspn(slot, "-");
    if (slot[0] != 's' || len < 2 || len > sizeof digits)
        return NULL;
    memcpy(digits, slot + 1, len - 1);
    digits[len - 1] = 0;
    const struct owner *w = parse_u32(digits, &pid) < 0 ? NULL : map_get(&o->shepherds, pid);
    return w && streq(w->slot, slot) ? w : NULL;
}

static const struct owner *by_group(const struct owners *o, uint32_t pid) {
    char path[64], text[PROC_TEXT_MAX], slot[CGROUP_NAME_MAX];
    if (o->site->kind == CGROUP_NONE)
        return NULL;
    snprintf(path, sizeof path, "/proc/%u/cgroup", pid);
    if (cgroup_kernel_read(path, text, sizeof text) < 0)
        return NULL;
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));)
        if (cgroup_owners_slot_of(o->site->base[o->site->track], line, slot))
            return by_slot(o, slot);
    return NULL;
}

static uint32_t parent_of(uint32_t pid) {
    char path[64], text[1024], state;
    unsigned parent = 0;
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    if (cgroup_kernel_read(path, text, sizeof text) < 0)
        return 0;
    const char *p = strrchr(text, ')');  // the name may contain anything
    return p && sscanf(p + 1, " %c %u", &state, &parent) == 2 ? parent : 0;
}

static const struct owner *by_parents(const struct owners *o, uint32_t pid) {
    for (int i = 0; i < GENERATIONS_MAX && pid > 1; i++, pid = parent_of(pid)) {
        const struct owner *w = map_get(&o->shepherds, pid);
        if (w)
            return w;
    }
    return NULL;
}

bool cgroup_owners_find(const struct owners *o, uint32_t pid, uint64_t *job, uint32_t *attempt) {
    const struct owner *w = by_group(o, pid);
    if (!w)
        w = by_parents(o, pid);
    if (!w)
        return false;
    *job = w->job;
    *attempt = w->attempt;
    return true;
}

bool cgroup_owners_in_first_namespace(void) {
    enum { FIRST_PID_NAMESPACE = 0xEFFFFFFC };  // the kernel's fixed inode for it
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 && st.st_ino == FIRST_PID_NAMESPACE;
}

bool cgroup_owners_has_open(uint32_t pid, const char *prefix) {
    char path[64], target[256];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%u/fd", pid);
    DIR *d = opendir(path);
    for (struct dirent *ent; d && !found && (ent = readdir(d));) {
        ssize_t n = readlinkat(dirfd(d), ent->d_name, target, sizeof target - 1);
        target[n > 0 ? n : 0] = 0;
        found = str_has_prefix(target, prefix);
    }
    if (d)
        closedir(d);
    return found;
}

uint32_t cgroup_owners_inner_pid(uint32_t pid) {
    char path[64], text[PROC_TEXT_MAX];
    uint32_t inner = 0;
    snprintf(path, sizeof path, "/proc/%u/status", pid);
    if (cgroup_kernel_read(path, text, sizeof text) < 0)
        return 0;
    char *line = strstr(text, "\nNSpid:");
    if (!line)
        return pid;
    line++;
    line[strcspn(line, "\n")] = 0;
    char *last = strrchr(line, '\t');
    return last && parse_u32(last + 1, &inner) == 0 ? inner : pid;
}
