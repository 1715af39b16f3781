// The writing side of HTTP: heads, chunks, percent-encoding, queries.
#include "net/http.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

const char *http_status_text(int status) {
    static const struct {
        int status;
        const char *text;
    } table[] = {
        {100, "Continue"},
        {101, "Switching Protocols"},
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {206, "Partial Content"},
        {301, "Moved Permanently"},
        {302, "Found"},
        {303, "See Other"},
        {304, "Not Modified"},
        {307, "Temporary Redirect"},
        {308, "Permanent Redirect"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {406, "Not Acceptable"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {410, "Gone"},
        {411, "Length Required"},
        {412, "Precondition Failed"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {416, "Range Not Satisfiable"},
        {417, "Expectation Failed"},
        {422, "Unprocessable Content"},
        {426, "Upgrade Required"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
        {507, "Insufficient Storage"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].status == status)
            return table[i].text;
    return "Status";
}

static void add_header(struct buf *out, const char *name, const char *value) {
    assert(http_header_ok(name, value));
    buf_adds(out, name);
    buf_adds(out, ": ");
    buf_adds(out, value);
    buf_adds(out, "\r\n");
}

static void add_length(struct buf *out, int64_t length) {
    buf_adds(out, "Content-Length: ");
    buf_addu(out, (uint64_t)length);
    buf_adds(out, "\r\n");
}

void http_write_response_head(struct buf *out, int status, const char *content_type,
                              int64_t content_length, bool keep_alive, const char *extra) {
    assert(status >= 100 && status <= 999);
    buf_adds(out, "HTTP/1.1 ");
    buf_addu(out, (uint64_t)status);
    buf_addc(out, ' ');
    buf_adds(out, http_status_text(status));
    buf_adds(out, "\r\n");
    if (content_type)
        add_header(out, "Content-Type", content_type);
    bool framed = status >= 200 && status != 204 && status != 304;
    if (framed && content_length >= 0)
        add_length(out, content_length);
    else if (framed && content_length == HTTP_CHUNKED)
        add_header(out, "Transfer-Encoding", "chunked");
    if (!keep_alive && status >= 200)
        add_header(out, "Connection", "close");
    if (extra)
        buf_adds(out, extra);
    buf_adds(out, "\r\n");
}

void http_write_request_head(struct buf *out, const char *method, const char *target,
                             const char *host, const char *content_type, int64_t content_length,
                             const char *extra) {
    buf_adds(out, method);
    buf_addc(out, ' ');
    buf_adds(out, target);
    buf_adds(out, " HTTP/1.1\r\n");
    add_header(out, "Host", host);
    if (content_type)
        add_header(out, "Content-Type", content_type);
    if (content_length >= 0)
        add_length(out, content_length);
    if (extra)
        buf_adds(out, extra);
    buf_adds(out, "\r\n");
}

void http_write_chunk(struct buf *out, const void *data, size_t len) {
    static const char digits[] = "0123456789abcdef";
    assert(len > 0);
    char size[16];
    size_t at = sizeof size;
    for (size_t v = len; v; v >>= 4)
        size[--at] = digits[v & 15];
    buf_add(out, size + at, sizeof size - at);
    buf_add(out, "\r\n", 2);
    buf_add(out, data, len);
    buf_add(out, "\r\n", 2);
}

void http_write_last_chunk(struct buf *out) {
    buf_adds(out, "0\r\n\r\n");
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int http_percent_decode(const char *s, size_t len, bool plus, struct buf *out) {
    size_t start = out->len;
    for (size_t i = 0; i < len; i++) {
        char c = s[i];
        if (c == '+' && plus)
            c = ' ';
        if (c == '%') {
            int hi = i + 2 < len ? hex_digit(s[i + 1]) : -1;
            int lo = i + 2 < len ? hex_digit(s[i + 2]) : -1;
            if (hi < 0 || lo < 0 || hi + lo == 0) {
                out->len = start;
                return -EINVAL;
            }
            c = (char)(hi * 16 + lo);
            i += 2;
        }
        buf_addc(out, c);
    }
    return 0;
}

void http_percent_encode(struct buf *out, const char *s) {
    static const char digits[] = "0123456789ABCDEF";
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
            strchr("-._~", c)) {
            buf_addc(out, (char)c);
        } else {
            buf_addc(out, '%');
            buf_addc(out, digits[c >> 4]);
            buf_addc(out, digits[c & 15]);
        }
    }
}

int http_query_get(const char *query, const char *name, struct buf *out) {
    cleanup_buf struct buf key = {0};
    for (const char *p = query; *p;) {
        size_t n = strcspn(p, "&");
        const char *eq = memchr(p, '=', n);
        size_t key_len = eq ? (size_t)(eq - p) : n;
        buf_clear(&key);
        if (http_percent_decode(p, key_len, true, &key) == 0 && key.len == strlen(name) &&
            memcmp(buf_str(&key), name, key.len) == 0) {
            if (!eq)
                return 0;
            return http_percent_decode(eq + 1, n - key_len - 1, true, out);
        }
        p += n;
        p += *p == '&';
    }
    return -ENOENT;
}
