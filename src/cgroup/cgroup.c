// Owns the site: finding the mounts, making the agent's folders and removing groups that lost
// their shepherd. Everything lives under MOUNT/acequia/TAG.
#include "cgroup/cgroup.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "cgroup/cgroup_io.h"
#include "cgroup_devices.h"

enum { TIDY_PATIENCE_MS = 500, MOVE_ROUNDS = 50 };

static const char *const controller_names[CG_CONTROLLERS] = {
    [CG_CPUACCT] = "cpuacct", [CG_PIDS] = "pids", [CG_MEMORY] = "memory",
    [CG_CPUSET] = "cpuset",   [CG_CPU] = "cpu",   [CG_DEVICES] = "devices",
};

void cgroup_kernel_path(char *out, size_t size, const char *dir, const char *file) {
    int n = snprintf(out, size, "%s/%s", dir, file);
    assert(n > 0 && (size_t)n < size);  // the parts have limits of their own
}

int cgroup_kernel_write(const char *path, const char *text) {
    cleanup_close int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        return -errno;
    return 0;
}

ssize_t cgroup_kernel_read(const char *path, char *out, size_t size) {
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);
    if (n < 0)
        return -errno;
    out[n] = 0;
    return n;
}

uint64_t cgroup_kernel_field(const char *text, const char *key) {
    size_t len = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, len) == 0 && line[len] == ' ') {
            uint64_t v = 0;
            for (const char *p = line + len + 1; *p >= '0' && *p <= '9'; p++)
                v = v * 10 + (uint64_t)(*p - '0');
            return v;
        }
    }
    return 0;
}

// Appends "/name"; false if it does not fit.
static bool path_add(char path[CGROUP_PATH_MAX], const char *name) {
    size_t len = strlen(path);
    int n = snprintf(path + len, CGROUP_PATH_MAX - len, "/%s", name);
    return n > 0 && len + (size_t)n < CGROUP_PATH_MAX;
}

// A new cpuset admits nothing until its cpus and memory nodes are written; take the parent's.
static void cpuset_inherit(const char *dir) {
    static const char *const files[] = {"cpuset.cpus", "cpuset.mems"};
    for (size_t i = 0; i < 2; i++) {
        char from[CGROUP_PATH_MAX + 32], to[CGROUP_PATH_MAX + 32], text[4096];
        char above[32];
        snprintf(above, sizeof above, "../%s", files[i]);
        cgroup_kernel_path(from, sizeof from, dir, above);
        cgroup_kernel_path(to, sizeof to, dir, files[i]);
        if (cgroup_kernel_read(to, text, sizeof text) <= 1 && cgroup_kernel_read(from, text, sizeof text) > 1)
            cgroup_kernel_write(to, text);
    }
}

static bool has_option(const char *options, const char *name) {
    size_t len = strlen(name);
    for (const char *p = options; p && *p; p = strchr(p, ',')) {
        p += *p == ',';
        if (strncmp(p, name, len) == 0 && (p[len] == ',' || p[len] == 0 || p[len] == '\n'))
            return true;
    }
    return false;
}

// Version 1 before kernel 5.11: what is below a group counts in it only if this was said in time.
static void hierarchical(const char *dir) {
    char path[CGROUP_PATH_MAX + 32];
    cgroup_kernel_path(path, sizeof path, dir, "memory.use_hierarchy");
    if (access(path, F_OK) == 0)
        cgroup_kernel_write(path, "1");
}

// Makes MOUNT/acequia/TAG of one tree.
static bool make_base(char base[CGROUP_PATH_MAX], const char *mount, const char *tag, bool cpuset) {
    const char *parts[] = {"acequia", tag};
    if (snprintf(base, CGROUP_PATH_MAX, "%s", mount) >= CGROUP_PATH_MAX - CGROUP_NAME_MAX * 2)
        return false;
    for (size_t i = 0; i < 2; i++) {
        if (!path_add(base, parts[i]) || (mkdir(base, 0755) < 0 && errno != EEXIST))
            return false;
        if (cpuset)
            cpuset_inherit(base);
        hierarchical(base);
    }
    return access(base, W_OK) == 0;
}

static void discover_v1_mount(struct cgroup_site *site, const char *mount, const char *options,
                              const char *tag) {
    for (int c = 0; c < CG_CONTROLLERS; c++)
        if (!site->has[c] && has_option(options, controller_names[c]))
            site->has[c] = make_base(site->base[c], mount, tag, c == CG_CPUSET);
}

// A group that was handed over for good: ours to divide. The service manager marks it; a container has
// its own at the top of its mount, where only a machine's first group has no type.
static bool delegated(const char *path, const char *mount) {
    char v[8], type[CGROUP_PATH_MAX + 32];
    cgroup_kernel_path(type, sizeof type, path, "cgroup.type");
    if (streq(path, mount))
        return access(type, F_OK) == 0 && access(path, W_OK) == 0;
    ssize_t n = getxattr(path, "trusted.delegate", v, sizeof v);
    if (n <= 0)
        n = getxattr(path, "user.delegate", v, sizeof v);
    return n > 0 && v[0] == '1';
}

// Again until none is left, because they fork meanwhile.
void cgroup_move(const char *group, const char *leaf) {
    char from[CGROUP_FULL_MAX + 32], to[CGROUP_FULL_MAX + 32];
    cgroup_kernel_path(from, sizeof from, group, "cgroup.procs");
    cgroup_kernel_path(to, sizeof to, leaf, "cgroup.procs");
    for (int i = 0, moved = 1; i < MOVE_ROUNDS && moved; i++) {
        cleanup_fclose FILE *f = fopen(from, "re");
        char pid[32];
        moved = 0;
        while (f && fgets(pid, sizeof pid, f)) {
            pid[strcspn(pid, "\n")] = 0;
            moved += cgroup_kernel_write(to, pid) == 0;
        }
    }
}

// Where our version 2 groups may go: the delegated group that we run in, from whose root everybody
// moves aside; else the mount's root.
static void v2_parent(char out[CGROUP_PATH_MAX], const char *mount) {
    char text[4096], path[CGROUP_PATH_MAX], leaf[CGROUP_PATH_MAX];
    snprintf(out, CGROUP_PATH_MAX, "%s", mount);
    if (cgroup_kernel_read("/proc/self/cgroup", text, sizeof text) < 0)
        return;
    char *line = strstr(text, "0::/");
    if (!line || (line != text && line[-1] != '\n'))
        return;
    line += 3;
    line[strcspn(line, "\n")] = 0;
    if (snprintf(path, sizeof path, "%s%s", mount, line) >= (int)sizeof path - 64)
        return;
    char *last = strrchr(path, '/');
    if (last && streq(last, "/acequia-agent"))  // moved aside by an earlier call
        *last = 0;
    else if (last && !last[1])  // the top itself
        *last = 0;
    if (!delegated(path, mount))
        return;
    snprintf(out, CGROUP_PATH_MAX, "%s", path);
    memcpy(leaf, path, sizeof leaf);
    if (path_add(leaf, "acequia-agent") && (mkdir(leaf, 0755) == 0 || errno == EEXIST))
        cgroup_move(path, leaf);  // a group that divides its controllers may hold none
}

static void v2_enable(const char *dir) {
    static const char *const wanted[] = {"+memory", "+pids", "+cpuset", "+cpu"};
    char path[CGROUP_PATH_MAX + 32];
    cgroup_kernel_path(path, sizeof path, dir, "cgroup.subtree_control");
    for (size_t i = 0; i < 4; i++)
        cgroup_kernel_write(path, wanted[i]);  // those it refuses are missing from `has`
}

static bool has_word(const char *text, const char *word) {
    size_t len = strlen(word);
    for (const char *p = text; (p = strstr(p, word)); p += len)
        if ((p == text || p[-1] == ' ') && (p[len] == ' ' || p[len] == '\n' || !p[len]))
            return true;
    return false;
}

static bool discover_v2(struct cgroup_site *site, const char *mount, const char *tag) {
    char parent[CGROUP_PATH_MAX], base[CGROUP_PATH_MAX], path[CGROUP_PATH_MAX + 32], text[512];
    v2_parent(parent, mount);
    v2_enable(parent);
    if (!make_base(base, parent, tag, false))
        return false;
    cgroup_kernel_path(path, sizeof path, parent, "acequia");
    v2_enable(path);
    v2_enable(base);
    cgroup_kernel_path(path, sizeof path, base, "cgroup.subtree_control");
    if (cgroup_kernel_read(path, text, sizeof text) < 0)
        return false;
    for (int c = 0; c < CG_CONTROLLERS; c++) {
        memcpy(site->base[c], base, sizeof base);
        site->has[c] = has_word(text, controller_names[c]);
    }
    site->has[CG_CPUACCT] = true;  // cpu.stat is always there
    site->has[CG_DEVICES] = cgroup_devices_possible();
    site->kind = CGROUP_V2;
    site->track = CG_CPUACCT;
    return true;
}

static bool choose_v1_track(struct cgroup_site *site) {
    static const enum cgroup_controller order[] = {CG_CPUACCT, CG_PIDS, CG_MEMORY, CG_CPU};
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
        if (site->has[order[i]]) {
            site->track = order[i];
            site->kind = CGROUP_V1;
            return true;
        }
    return false;
}

// One line of mountinfo: "ID PARENT DEV ROOT MOUNT OPTIONS … - TYPE SOURCE SUPEROPTIONS".
static void discover_line(struct cgroup_site *site, char *line, bool v2, const char *tag) {
    char *mount = line, *type = strstr(line, " - cgroup");
    for (int i = 0; i < 4 && mount; i++)
        mount = strchr(mount + 1, ' ');
    if (!mount || !type)
        return;
    *type = 0;
    type += 3;
    mount++;
    char *end = strchr(mount, ' ');
    if (!end || strchr(mount, '\\'))
        return;
    *end = 0;
    if (v2 && str_has_prefix(type, "cgroup2 ") && site->kind == CGROUP_NONE)
        discover_v2(site, mount, tag);
    if (v2 || !str_has_prefix(type, "cgroup "))
        return;
    char *options = strchr(type + strlen("cgroup "), ' ');
    if (options)
        discover_v1_mount(site, mount, options + 1, tag);
}

static int discover(struct cgroup_site *site, bool v2, const char *tag) {
    cleanup_fclose FILE *f = fopen("/proc/self/mountinfo", "re");
    char line[4096];
    if (!f)
        return -errno;
    while (fgets(line, sizeof line, f))
        discover_line(site, line, v2, tag);
    if (!v2)
        choose_v1_track(site);
    return 0;
}

int cgroup_discover(struct cgroup_site *site, const char *want, const char *tag, struct error *e) {
    struct cgroup_site found = {0};
    bool any = streq(want, "auto");
    assert(strlen(tag) < CGROUP_NAME_MAX && !strchr(tag, '/'));
    if (!any && !streq(want, "v1") && !streq(want, "v2") && !streq(want, "none"))
        return error_set(e, EINVAL, "cgroup: \"%s\" is not one of auto, v1, v2, none", want);
    int rc = 0;
    if (any || streq(want, "v1"))
        rc = discover(&found, false, tag);
    // Controllers may be spread over both versions: memory is the one that decides.
    if (rc == 0 && !found.has[CG_MEMORY] && (any || streq(want, "v2"))) {
        struct cgroup_site second = {0};
        rc = discover(&second, true, tag);
        bool better = second.kind != CGROUP_NONE &&
                      (second.has[CG_MEMORY] || found.kind == CGROUP_NONE);
        cgroup_leave(better ? &found : &second);
        if (better)
            found = second;
    }
    if (rc < 0)
        return error_set(e, -rc, "cgroup: cannot read the list of mounts: %s", strerror(-rc));
    *site = found;
    return 0;
}

void cgroup_leave(const struct cgroup_site *site) {
    for (int c = 0; c < CG_CONTROLLERS; c++) {
        char path[CGROUP_PATH_MAX];
        if (!site->has[c])
            continue;
        memcpy(path, site->base[c], sizeof path);
        rmdir(path);
        *strrchr(path, '/') = 0;
        rmdir(path);  // stays while another agent has its folder there
    }
}

int cgroup_destroy(const struct cgroup_site *site, const char *name, int patience_ms) {
    struct cgroup_slot slot;
    struct timespec nap = {.tv_nsec = 5000000};
    if (site->kind == CGROUP_NONE || !*name)
        return 0;
    cgroup_slot_init(&slot, site, name);
    slot.steps = 1;  // unknown: look for them
    for (int c = 0; c < CG_CONTROLLERS; c++)
        slot.made[c] = site->has[c];
    cgroup_slot_seal(&slot);
    int rc = 0;
    for (int waited = 0;; waited += 5) {
        cgroup_signal(&slot, 0, SIGKILL);
        if (cgroup_slot_empty(&slot))
            break;
        if (waited >= patience_ms) {
            rc = -EBUSY;
            break;
        }
        nanosleep(&nap, NULL);
    }
    cgroup_slot_done(&slot);
    return rc;
}

static bool process_gone(pid_t pid) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if (cgroup_kernel_read(path, text, sizeof text) < 0)
        return true;
    const char *p = strrchr(text, ')');
    return p && p[1] && p[2] == 'Z';  // only waits to be reaped
}

// Slots are named after their shepherd: "sPID-NUMBER".
static bool slot_orphaned(const char *name) {
    char digits[16];
    uint32_t pid;
    size_t len = strcspn(name, "-");
    if (name[0] != 's' || len < 2 || len > sizeof digits || name[len] != '-')
        return false;
    memcpy(digits, name + 1, len - 1);
    digits[len - 1] = 0;
    return parse_u32(digits, &pid) == 0 && pid > 1 && process_gone((pid_t)pid);
}

void cgroup_tidy(const struct cgroup_site *site) {
    for (int c = 0; c < CG_CONTROLLERS; c++) {
        DIR *d = site->has[c] ? opendir(site->base[c]) : NULL;
        for (struct dirent *ent; d && (ent = readdir(d));)
            if (slot_orphaned(ent->d_name))
                cgroup_destroy(site, ent->d_name, TIDY_PATIENCE_MS);
        if (d)
            closedir(d);
    }
}
