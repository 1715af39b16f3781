// HTTP/1.1 messages without I/O: a strict, bounded parser for heads and bodies, and the writing of
// heads. Whatever two implementations could read differently (both Content-Length and
// Transfer-Encoding, repeated Content-Length or Host, folded lines, bare LF, chunk extensions, odd
// white space) is refused, never guessed at. After a refusal the connection must be closed.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"

enum {
    HTTP_HEADERS_MAX = 64,            // header lines in one head
    HTTP_HEAD_MAX = 32 * 1024,        // bytes of a head, request line included
    HTTP_BODY_MAX = 32 * 1024 * 1024, // bytes of a body unless the caller says otherwise
    HTTP_CHUNK_DIGITS_MAX = 8,        // hexadecimal digits of a chunk size
};

struct http_header {
    const char *name, *value;
};

// One message. Text members point into `head`, which is NUL-separated in place by the parser.
struct http_message {
    struct buf head, body;
    const char *method;  // requests
    const char *path;    // as sent, still percent-encoded; begins with '/' (or is "*")
    const char *query;   // after '?', still encoded; "" when there is none
    int status;          // responses
    int minor;           // 1 for HTTP/1.1, 0 for HTTP/1.0
    unsigned header_count;
    int64_t content_length;  // -1 when not given
    bool chunked;
    bool keep_alive;
    bool upgrade;  // "Connection: upgrade" with an Upgrade header
    bool expect_continue;
    struct http_header headers[HTTP_HEADERS_MAX];
};

void http_message_init(struct http_message *m);
void http_message_done(struct http_message *m);
// The value of a header, names compared without case; NULL when it is not there.
const char *http_message_header(const struct http_message *m, const char *name);
// Whether a header that is a comma-separated list (any number of lines) holds the token.
bool http_message_has_token(const struct http_message *m, const char *name, const char *token);

enum http_kind { HTTP_REQUEST, HTTP_RESPONSE };
enum http_state { HTTP_STATE_HEAD, HTTP_STATE_BODY, HTTP_STATE_DONE, HTTP_STATE_FAILED };

struct http_parser {
    enum http_kind kind;
    enum http_state state;
    struct http_message *message;  // borrowed
    size_t head_max;
    uint64_t body_max;
    bool no_body;  // the response answers a HEAD request; set by the caller before the head
    // After a failure: the status a server answers with, and why, as one sentence.
    int fail_status;
    const char *fail_text;
    bool by_pieces;     // set after begin: the body is not collected, see http_parser_feed
    const char *piece;  // of the body, in the bytes given last
    size_t piece_len;
    // private
    int body_mode;
    uint64_t body_left, body_seen;
    size_t line_len, trailer_len;
    char line[HTTP_CHUNK_DIGITS_MAX + 2];
};

// Begins one message; `message` must be initialised and empty. Limits of 0 mean the defaults.
void http_parser_begin(struct http_parser *p, enum http_kind kind, struct http_message *message,
                       size_t head_max, uint64_t body_max);
// Lowers the limit of the body; to be called right after the head. The parser fails when the body is declared larger.
void http_parser_limit_body(struct http_parser *p, uint64_t body_max);
// Consumes bytes up to the end of the head or of the message, whichever comes first, and returns
// how many, or -EPROTO with fail_status and fail_text set. Call again while bytes are left and
// state is not HTTP_STATE_DONE. The body grows in message->body; a caller that streams may take
// the bytes out (buf_clear) between calls, the limit counts them all the same. With `by_pieces` it does not grow: a
// call ends after a piece of the body, which is where it came, until the next call.
ssize_t http_parser_feed(struct http_parser *p, const void *data, size_t len);
// The peer closed: 0 when that ends the message properly, else -EPROTO.
int http_parser_eof(struct http_parser *p);

const char *http_status_text(int status);
enum { HTTP_CHUNKED = -1, HTTP_UNTIL_CLOSE = -2 };  // instead of a content length
// Appends a response head. Status 1xx, 204 and 304 get no framing.
// content_type may be NULL. `extra` are whole lines, each ended by CRLF, or NULL.
void http_write_response_head(struct buf *out, int status, const char *content_type,
                              int64_t content_length, bool keep_alive, const char *extra);
// Appends a request head. content_length < 0: no body and no Content-Length header.
void http_write_request_head(struct buf *out, const char *method, const char *target,
                             const char *host, const char *content_type, int64_t content_length,
                             const char *extra);
void http_write_chunk(struct buf *out, const void *data, size_t len);  // len > 0
void http_write_last_chunk(struct buf *out);
bool http_header_ok(const char *name, const char *value);  // may be sent as a header line

// Percent-decoding of `len` bytes, '+' as space when `plus`; -EINVAL on a bad escape or %00.
int http_percent_decode(const char *s, size_t len, bool plus, struct buf *out);
// Percent-encodes everything but unreserved characters.
void http_percent_encode(struct buf *out, const char *s);
// The decoded value of the first `name` in a query: 0, -ENOENT or -EINVAL.
int http_query_get(const char *query, const char *name, struct buf *out);
