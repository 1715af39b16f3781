// Messages with open descriptors, over a unix socket.
#pragma once
#include <stddef.h>
#include <sys/types.h>

enum { FDS_SENT_MAX = 16 };

// Sends one record; the descriptors stay the caller's. 0 or a negative errno.
int launch_fds_send(int socket, const void *data, size_t len, const int *fds, int nfds);
// Receives one record of at most `len` bytes and up to `max` descriptors (at most 16), which are the caller's then.
// The bytes, or a negative errno; -EBADMSG: there were more descriptors, and all are closed.
ssize_t launch_fds_receive(int socket, void *data, size_t len, int *fds, int max, int *nfds);
