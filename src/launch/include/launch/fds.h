// Messages with open descriptors, over a unix socket.
#pragma once
#include <stddef.h>

enum { FDS_SENT_MAX = 16 };

// Sends one record; the descriptors stay the caller's. 0 or a negative errno.
int launch_fds_send(int socket, const void *data, size_t len, const int *fds, int nfds);
