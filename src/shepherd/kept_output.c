// Owns the output of an attached job on its way from the tasks' pipes to the kept files that the agent has
// passed along (launch/kept.h). Tasks never hold a descriptor of these files: they could write without limit.
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "launch/kept.h"
#include "shepherd.h"

enum { READS_AT_ONCE = 8, DRAIN_READS_MAX = 64, READ_BYTES = 64 << 10 };

struct kept_output {
    int from[3];  // reading ends; -1: none, or closed
    struct kept_file to[3];
};

static int make_pipe(struct shepherd_unit *u, int which) {
    int p[2];
    if (pipe2(p, O_CLOEXEC) < 0)
        return -errno;
    fcntl(p[0], F_SETFL, O_NONBLOCK);
    // So that the job can open /dev/stdout.
    int rc = u->req.switch_user && fchown(p[1], u->req.uid, u->req.gid) < 0 ? -errno : 0;
    u->kept->from[which] = p[0];
    u->fds[which] = p[1];
    return rc;
}

int kept_output_open(struct shepherd_unit *u) {
    struct kept_output *k = arena_alloc(&u->arena, sizeof *k);
    *k = (struct kept_output){.from = {-1, -1, -1}, .to = {{.fd = -1}, {.fd = -1}, {.fd = -1}}};
    for (int i = 1; u->req.use_fds && !u->req.tty && i < 3; i++) {
        int rc = u->fds[i] < 0 ? -EBADMSG : launch_kept_open(u->fds[i], &k->to[i]);
        if (rc == -EBADMSG)
            continue;  // something else than a kept file: the tasks get it as it is
        if (rc < 0)
            return rc;
        u->fds[i] = -1;
        u->kept = k;
        if ((rc = make_pipe(u, i)) < 0)
            return rc;
    }
    return 0;
}

static void close_end(int *fd) {
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void copy(struct kept_output *k, int which, bool drain) {
    static char data[READ_BYTES];
    for (int i = 0; i < (drain ? DRAIN_READS_MAX : READS_AT_ONCE); i++) {
        if (!drain && launch_kept_blocked(&k->to[which]))
            return;
        ssize_t n = read(k->from[which], data, sizeof data);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            close_end(&k->from[which]);
            return;
        }
        launch_kept_append(&k->to[which], data, (size_t)n, drain);
    }
}

bool kept_output_blocked(const struct shepherd_unit *u) {
    const struct kept_output *k = u->kept;
    for (int i = 1; k && i < 3; i++)
        if (k->from[i] >= 0 && launch_kept_blocked(&k->to[i]))
            return true;
    return false;
}

uint32_t kept_output_poll(const struct shepherd_unit *u, struct pollfd *p) {
    const struct kept_output *k = u->kept;
    uint32_t n = 0;
    for (int i = 1; k && i < 3; i++)
        if (k->from[i] >= 0 && !launch_kept_blocked(&k->to[i]))
            p[n++] = (struct pollfd){.fd = k->from[i], .events = POLLIN};
    return n;
}

void kept_output_serve(struct shepherd_unit *u, const struct pollfd *p, uint32_t n) {
    for (uint32_t at = 0; at < n; at++)
        for (int i = 1; i < 3; i++)
            if (p[at].revents && p[at].fd == u->kept->from[i])
                copy(u->kept, i, false);
}

void kept_output_say(struct shepherd_unit *u, const char *text, size_t len) {
    if (u->kept->to[2].head)
        launch_kept_append(&u->kept->to[2], text, len, true);
}

void kept_output_close(struct shepherd_unit *u) {
    struct kept_output *k = u->kept;
    for (int i = 1; k && i < 3; i++) {
        if (k->from[i] >= 0)
            copy(k, i, true);  // the tasks are dead: what their pipes hold is all there is
        close_end(&k->from[i]);
        launch_kept_close(&k->to[i]);
    }
    u->kept = NULL;
}
