// The client's half of the WebSocket handshake (inside net/ only).
#pragma once
#include "base/error.h"
#include "net/http.h"
#include "net/ws.h"

// Appends the header lines that ask for a WebSocket.
void ws_handshake_lines(struct buf *out, const char key[static WS_KEY_LEN + 1]);
// Whether the response grants it. -ECONNREFUSED: it does not, and says why with status and body.
int ws_handshake_check(const struct http_message *m, const char key[static WS_KEY_LEN + 1],
                       struct error *e);
