// Owns the network of an attempt that has one of its own: a namespace with a loopback interface that only its processes
// share, so that any number of jobs of a node may listen on the same port and none reaches another's. What connects it
// with the outside is a program (pasta), which copies between a device inside and ordinary sockets outside; nothing
// can connect from outside, except the agent, through us.
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "shepherd.h"

enum {
    GATEWAY_PATIENCE_MS = 10 * 1000,
    GATEWAY_LOOK_MS = 2,
    SOCKET_PATH_MAX = 4096,
    NETWORK_OF_NODE = -1,
    NETWORK_ENTERED = -2
};

static int loopback_up(void) {
    struct ifreq r = {.ifr_name = "lo"};
    cleanup_close int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &r) < 0)
        return -errno;
    r.ifr_flags |= IFF_UP;
    return ioctl(fd, SIOCSIFFLAGS, &r) < 0 ? -errno : 0;
}

// A descriptor of a new namespace; we stay in ours.
static int make_namespace(void) {
    cleanup_close int own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (own < 0 || unshare(CLONE_NEWNET) < 0)
        return -errno;
    int r = loopback_up();
    cleanup_close int made = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (r == 0 && made < 0)
        r = -errno;
    // Not to come back would leave the shepherd in a network that goes away with its first attempt.
    if (setns(own, CLONE_NEWNET) < 0)
        _exit(1);
    return r < 0 ? r : TAKE_FD(made);
}

// Its options: stay in the foreground, configure the device inside, forward no port in either direction and do not
// make the host's loopback reachable as the gateway. It gives up root's capabilities but for entering the namespace.
_Noreturn static void run_gateway(const char *program, int namespace) {
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", namespace);
    char *const argv[] = {
        "pasta", "-f", "-q",   "--config-net", "--no-map-gw", "-t",           "none",    "-u", "none", "-T",
        "none",  "-U", "none", "--runas",      "0",           "--netns-only", "--netns", path, NULL};
    char *const env[] = {"PATH=/usr/bin:/bin", NULL};
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3 && null >= 0; fd++)
        dup2(null, fd);
    close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
    fcntl(namespace, F_SETFD, 0);
    execve(program, argv, env);
    _exit(127);
}

static void start_gateway(struct shepherd *s, const char *program) {
    pid_t shepherd = getpid(), pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != shepherd)
            _exit(1);
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        child_reset_signals();
        run_gateway(program, s->network_fd);
    }
    s->gateway = pid > 0 ? pid : 0;
}

static bool has_address(void) {
    struct ifaddrs *all;
    bool found = false;
    if (getifaddrs(&all) < 0)
        return false;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        const struct sockaddr_in6 *a6 = (const void *)i->ifa_addr;
        bool usable =
            i->ifa_addr && (i->ifa_addr->sa_family == AF_INET ||
                            (i->ifa_addr->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&a6->sin6_addr)));
        found |= usable && i->ifa_flags & IFF_UP && !(i->ifa_flags & IFF_LOOPBACK);
    }
    freeifaddrs(all);
    return found;
}

// The job's program must find its network complete.
static int wait_for_gateway(struct shepherd *s, struct error *e) {
    const struct timespec nap = {.tv_nsec = GATEWAY_LOOK_MS * 1000000L};
    int64_t until = clock_mono_ms() + GATEWAY_PATIENCE_MS;
    cleanup_close int own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    bool ready = false;
    if (own < 0 || setns(s->network_fd, CLONE_NEWNET) < 0)
        return error_set(e, errno, "its own network cannot be entered: %m");
    while (!(ready = has_address()) && s->gateway && clock_mono_ms() < until) {
        nanosleep(&nap, NULL);
        if (waitpid(s->gateway, NULL, WNOHANG) > 0)
            s->gateway = 0;
    }
    if (setns(own, CLONE_NEWNET) < 0)
        _exit(1);
    if (ready)
        return 0;
    return error_set(e, EIO, "the program that connects its own network with the outside (pasta) %s",
                     s->gateway ? "does not get ready" : "cannot be run or has ended");
}

int network_open(struct shepherd *s, const struct launch_request *r, struct error *e) {
    if (!r->own_network)
        return 0;
    int fd = make_namespace();
    if (fd < 0)
        return error_set(e, -fd, "a network of its own cannot be made: %s", strerror(-fd));
    s->network_fd = fd;
    if (!r->gateway)
        return 0;
    start_gateway(s, r->gateway);
    return wait_for_gateway(s, e);
}

void network_close(struct shepherd *s) {
    if (s->gateway) {
        kill(s->gateway, SIGKILL);
        waitpid(s->gateway, NULL, 0);
    }
    if (s->network_fd >= 0)
        close(s->network_fd);
    s->gateway = 0;
    s->network_fd = -1;
}

// A socket keeps the network it was made in.
static int make_socket(const struct shepherd *s) {
    const int type = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
    if (s->network_fd < 0)
        return socket(AF_INET, type, 0);
    cleanup_close int own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (own < 0 || setns(s->network_fd, CLONE_NEWNET) < 0)
        return -1;
    int fd = socket(AF_INET, type, 0);
    if (setns(own, CLONE_NEWNET) < 0)
        _exit(1);
    return fd;
}

bool network_enter(struct shepherd *s) {
    if (s->network_fd < 0)
        return true;
    bool in = setns(s->network_fd, CLONE_NEWNET) == 0;
    s->network_fd = NETWORK_ENTERED;
    return in;
}

const char *network_socket_path(const struct shepherd *s, int64_t port) {
    const struct launch_request *r = &s->units[0].req;
    char *end;
    for (uint32_t i = 0; i < r->nsockets; i++)
        if (strtoll(r->sockets[i], &end, 10) == port && *end == ':')
            return end + 1;
    return NULL;
}

// A path in the container is found by way of the first process in it. The folder is entered first: the address of a
// socket has room for a short path only.
int network_connect_socket(const struct shepherd *s, const char *path) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    struct ucred peer;
    socklen_t len = sizeof peer;
    const struct shepherd_unit *m = &s->units[0];
    const char *name = strrchr(path, '/');
    char folder[SOCKET_PATH_MAX];
    if (!name || strlen(name + 1) >= sizeof to.sun_path)
        return -ENAMETOOLONG;
    int n = m->req.boxc && m->pids[0] > 0
                ? snprintf(folder, sizeof folder, "/proc/%d/root%.*s", (int)m->pids[0],
                           (int)(name - path) + 1, path)
                : snprintf(folder, sizeof folder, "%.*s", (int)(name - path) + 1, path);
    if (n < 0 || (size_t)n >= sizeof folder)
        return -ENAMETOOLONG;
    memcpy(to.sun_path, name + 1, strlen(name + 1) + 1);
    cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || chdir(folder) < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) < 0)
        return errno == ENOENT ? -ECONNREFUSED : -errno;
    // In a folder for everybody somebody else may have put his there.
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || peer.uid != m->req.uid)
        return -EACCES;
    return fcntl(fd, F_SETFL, O_NONBLOCK) < 0 ? -errno : TAKE_FD(fd);
}

int network_check(struct shepherd *s, int64_t port) {
    if (s->network_fd != NETWORK_OF_NODE)
        return 0;
    return listeners_check(&s->listeners, s->pid, (uint16_t)port, s->units[0].req.uid);
}

int network_connect(struct shepherd *s, int64_t port) {
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1;
    if (port < 1 || port > UINT16_MAX)
        return -EINVAL;
    cleanup_close int fd = make_socket(s);
    if (fd < 0)
        return -errno;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0 && errno != EINPROGRESS)
        return -errno;
    // After connecting: whoever listens now did not get the connection by being there before the check alone.
    int r = network_check(s, port);
    return r < 0 ? r : TAKE_FD(fd);
}
