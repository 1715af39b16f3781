// Owns the form in which descriptors are handed to another process.
#include "launch/fds.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

int launch_fds_send(int socket, const void *data, size_t len, const int *fds, int nfds) {
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(FDS_SENT_MAX * sizeof(int))];
    } c = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (nfds < 0 || nfds > FDS_SENT_MAX)
        return -EINVAL;
    if (nfds) {
        m.msg_control = &c;
        m.msg_controllen = CMSG_SPACE((size_t)nfds * sizeof(int));
        c.header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
                                    .cmsg_len = CMSG_LEN((size_t)nfds * sizeof(int))};
        memcpy(CMSG_DATA(&c.header), fds, (size_t)nfds * sizeof(int));
    }
    return sendmsg(socket, &m, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

ssize_t launch_fds_receive(int socket, void *data, size_t len, int *fds, int max, int *nfds) {
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(FDS_SENT_MAX * sizeof(int))];
    } c;
    struct iovec iov = {.iov_base = data, .iov_len = len};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = &c,
                       .msg_controllen = CMSG_SPACE((size_t)max * sizeof(int))};
    *nfds = 0;
    ssize_t n = recvmsg(socket, &m, MSG_CMSG_CLOEXEC);
    if (n < 0)
        return -errno;
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    bool too_many = (m.msg_flags & MSG_CTRUNC) != 0;
    if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS) {
        // Padding makes room for one descriptor more than was planned for.
        int sent = (int)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int)), fd;
        too_many |= sent > max;
        for (int i = 0; i < sent; i++) {
            memcpy(&fd, CMSG_DATA(h) + (size_t)i * sizeof fd, sizeof fd);
            if (*nfds < max)
                fds[(*nfds)++] = fd;
            else
                close(fd);
        }
    }
    if (!too_many)
        return n;
    while (*nfds)
        close(fds[--*nfds]);
    return -EBADMSG;
}
