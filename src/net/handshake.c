// Asking for a WebSocket and checking the answer, for the blocking and the event-loop client.
#include "handshake.h"

#include <errno.h>
#include <string.h>

#include "base/text.h"

void ws_handshake_lines(struct buf *out, const char key[static WS_KEY_LEN + 1]) {
    buf_adds(out, "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                  "Sec-WebSocket-Key: ");
    buf_adds(out, key);
    buf_adds(out, "\r\n");
}

int ws_handshake_check(const struct http_message *m, const char key[static WS_KEY_LEN + 1],
                       struct error *e) {
    char want[WS_ACCEPT_LEN + 1], text[200];
    if (m->status != 101)
        return error_set(e, ECONNREFUSED, "the server refused the WebSocket with status %d%s%s", m->status,
                         m->body.len ? ": " : "", str_printable(buf_str(&m->body), text, sizeof text));
    const char *got = http_message_header(m, "Sec-WebSocket-Accept");
    if (ws_accept(key, want) < 0 || !streq(got, want) ||
        !http_message_has_token(m, "Upgrade", "websocket") ||
        !http_message_has_token(m, "Connection", "upgrade"))
        return error_set(e, EPROTO, "the server's WebSocket handshake is wrong");
    return 0;
}
