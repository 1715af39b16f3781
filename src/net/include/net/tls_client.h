// TLS for the blocking client (net/client.h).
#pragma once
#include <stdint.h>

#include "net/client.h"
#include "net/tls.h"

// Connects, shakes hands and verifies; `context` stays the caller's and must outlive the client.
int http_client_tls(const char *host, uint16_t port, struct tls_context *context, int timeout_ms,
                    struct http_client **out, struct error *e);
