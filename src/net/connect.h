// Blocking connects with a time limit (inside net/ only).
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

// A connected, close-on-exec socket, or a negative errno.
int net_connect_unix(const char *path, struct error *e);
// Tries every address of `host` in turn; timeout_ms bounds each attempt.
int net_connect_tcp(const char *host, uint16_t port, int timeout_ms, struct error *e);
// Sends everything, waiting at most timeout_ms each time the kernel takes no more.
int net_send_all(int fd, const void *p, size_t n, int timeout_ms);
