// Owns becoming the user, for good: groups, group, user, no capability, nothing that brings one back; and the limits of
// this process.
#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "files.h"

enum { MEMORY_BYTES = 512 << 20, OPEN_FILES = 256, CPU_S = 3600, NICE = 5, USUAL_UMASK = 022 };

static int set_limits(void) {
    static const struct {
        int resource;
        rlim_t limit;
    } limits[] = {
#ifndef __SANITIZE_ADDRESS__
        {RLIMIT_AS, MEMORY_BYTES},
#endif
        {RLIMIT_NOFILE, OPEN_FILES},
        {RLIMIT_CPU, CPU_S},
        {RLIMIT_CORE, 0},
        {RLIMIT_NPROC, 0}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct rlimit l = {limits[i].limit, limits[i].limit};
        if (setrlimit((__rlimit_resource_t)limits[i].resource, &l) < 0)
            return -errno;
    }
    // Only down: an agent that was started with `nice` may not go back up, and should not.
    if (getpriority(PRIO_PROCESS, 0) < NICE && setpriority(PRIO_PROCESS, 0, NICE) < 0)
        return -errno;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes is an error of the write
    umask(USUAL_UMASK);
    return 0;
}

// Root is somebody without privileges here as well, who owns root's files.
static int drop_capabilities(void) {
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {0};
    return syscall(SYS_capset, &head, none) < 0 ? -errno : 0;
}

static int switch_user(const struct file_order *o, struct error *e) {
    uid_t real, effective, saved;
    gid_t greal, geffective, gsaved;
    for (int cap = 0; prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0;)
        cap++;
    if (setgroups(o->groups.len, o->groups.at) < 0 || setresgid(o->gid, o->gid, o->gid) < 0 ||
        setresuid(o->uid, o->uid, o->uid) < 0)
        return error_set(e, errno, "cannot become user %u, group %u: %m", o->uid, o->gid);
    if (getresuid(&real, &effective, &saved) < 0 || getresgid(&greal, &geffective, &gsaved) < 0 ||
        real != o->uid || effective != o->uid || saved != o->uid || greal != o->gid || geffective != o->gid ||
        gsaved != o->gid)
        return error_set(e, EPERM, "became another user than %u", o->uid);
    return 0;
}

int files_become(const struct file_order *o, struct error *e) {
    int rc = set_limits();
    if (rc < 0)
        return error_set(e, -rc, "the limits of the process cannot be set: %s", strerror(-rc));
    if (o->switch_user && (rc = switch_user(o, e)) < 0)
        return rc;
    if (geteuid() != o->uid)
        return error_set(e, EPERM,
                         "this node's agent is not root: it reaches the files of its own user only");
    if ((rc = drop_capabilities()) < 0)
        return error_set(e, -rc, "the capabilities cannot be dropped: %s", strerror(-rc));
    if (o->uid != 0 && (setuid(0) == 0 || seteuid(0) == 0 || setresuid(0, 0, 0) == 0))
        return error_set(e, EPERM, "root could be regained after becoming user %u", o->uid);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return error_set(e, errno, "new privileges cannot be given up: %m");
    return 0;
}
