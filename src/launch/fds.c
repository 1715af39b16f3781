// Owns the form in which descriptors are handed to another process.
#include "launch/fds.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

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
