// The HTTP/1.1 parser. One pass over the bytes: the head is collected line by line and cut up in
// place, the body is counted. Every length is checked before it is used; nothing is repaired.
#include "net/http.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

enum body_mode {
    BODY_NONE,
    BODY_LENGTH,
    BODY_UNTIL_EOF,
    BODY_CHUNK_SIZE,
    BODY_CHUNK_DATA,
    BODY_CHUNK_END,
    BODY_TRAILER,
};

void http_message_init(struct http_message *m) {
    memset(m, 0, offsetof(struct http_message, headers));
    m->content_length = -1;
}

void http_message_done(struct http_message *m) {
    buf_done(&m->head);
    buf_done(&m->body);
    http_message_init(m);
}

const char *http_message_header(const struct http_message *m, const char *name) {
    for (unsigned i = 0; i < m->header_count; i++)
        if (strcasecmp(m->headers[i].name, name) == 0)
            return m->headers[i].value;
    return NULL;
}

static bool list_has_token(const char *list, const char *token) {
    size_t len = strlen(token);
    for (const char *p = list; *p;) {
        p += strspn(p, " \t,");
        size_t n = strcspn(p, ",");
        size_t trimmed = n;
        while (trimmed && (p[trimmed - 1] == ' ' || p[trimmed - 1] == '\t'))
            trimmed--;
        if (trimmed == len && strncasecmp(p, token, len) == 0)
            return true;
        p += n;
    }
    return false;
}

bool http_message_has_token(const struct http_message *m, const char *name, const char *token) {
    for (unsigned i = 0; i < m->header_count; i++)
        if (strcasecmp(m->headers[i].name, name) == 0 && list_has_token(m->headers[i].value, token))
            return true;
    return false;
}

static bool is_tchar(unsigned char c) {
    static const char others[] = "!#$%&'*+-.^_`|~";
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr(others, c));
}

static bool is_value_char(unsigned char c) {
    return c == '\t' || (c >= 0x20 && c != 0x7f);
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

bool http_header_ok(const char *name, const char *value) {
    if (!*name)
        return false;
    for (const char *p = name; *p; p++)
        if (!is_tchar((unsigned char)*p))
            return false;
    for (const char *p = value; *p; p++)
        if (!is_value_char((unsigned char)*p))
            return false;
    return true;
}

void http_parser_begin(struct http_parser *p, enum http_kind kind, struct http_message *message,
                       size_t head_max, uint64_t body_max) {
    assert(message->head.len == 0 && message->body.len == 0);
    *p = (struct http_parser){
        .kind = kind,
        .state = HTTP_STATE_HEAD,
        .message = message,
        .head_max = head_max ? head_max : HTTP_HEAD_MAX,
        .body_max = body_max ? body_max : HTTP_BODY_MAX,
    };
}

static int fail(struct http_parser *p, int status, const char *text) {
    p->state = HTTP_STATE_FAILED;
    p->fail_status = status;
    p->fail_text = text;
    return -EPROTO;
}

void http_parser_limit_body(struct http_parser *p, uint64_t body_max) {
    const struct http_message *m = p->message;
    if (body_max >= p->body_max || p->state == HTTP_STATE_FAILED)
        return;
    p->body_max = body_max;
    if (p->state == HTTP_STATE_BODY && m->content_length > 0 && (uint64_t)m->content_length > body_max)
        fail(p, 413, "The body is larger than the limit.");
}

// "HTTP/1.1" or "HTTP/1.0", exactly eight bytes.
static int parse_version(struct http_parser *p, const char *s) {
    if (strncmp(s, "HTTP/", 5) != 0 || !is_digit(s[5]) || s[6] != '.' || !is_digit(s[7]))
        return fail(p, 400, "The HTTP version is malformed.");
    if (s[5] != '1' || s[7] > '1')
        return fail(p, 505, "Only HTTP/1.1 and HTTP/1.0 are spoken here.");
    p->message->minor = s[7] - '0';
    return 0;
}

static int parse_request_line(struct http_parser *p, char *line, size_t len) {
    struct http_message *m = p->message;
    char *end = line + len, *s = line;
    while (s < end && is_tchar((unsigned char)*s))
        s++;
    if (s == line || s == end || *s != ' ')
        return fail(p, 400, "The request line is malformed.");
    *s++ = 0;
    m->method = line;
    char *target = s;
    char *query = NULL;
    // Bytes beyond ASCII must be percent-encoded, and a fragment is never sent: a proxy before us may read either
    // differently.
    while (s < end && *s > 0x20 && *s < 0x7f && *s != '#') {
        if (*s == '?' && !query)
            query = s;
        s++;
    }
    if (end - s != 9 || *s != ' ')
        return fail(p, 400, "The request target or the HTTP version is malformed.");
    if (target[0] != '/' && !(target[0] == '*' && s - target == 1))
        return fail(p, 400, "The request target must be a path that begins with '/'.");
    *s++ = 0;
    m->path = target;
    m->query = "";
    if (query) {
        *query = 0;
        m->query = query + 1;
    }
    return parse_version(p, s);
}

static int parse_status_line(struct http_parser *p, char *line, size_t len) {
    if (len < 12 || line[8] != ' ' || !is_digit(line[9]) || !is_digit(line[10]) ||
        !is_digit(line[11]) || (len > 12 && line[12] != ' '))
        return fail(p, 502, "The status line is malformed.");
    for (size_t i = 12; i < len; i++)
        if (!is_value_char((unsigned char)line[i]))
            return fail(p, 502, "The status line holds control characters.");
    p->message->status = (line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0');
    if (p->message->status < 100)
        return fail(p, 502, "The status is not one of HTTP's.");
    return parse_version(p, line);
}

// `line` holds len bytes and is followed by a byte that may be overwritten (the CR).
static int parse_header_line(struct http_parser *p, char *line, size_t len) {
    struct http_message *m = p->message;
    size_t n = 0;
    while (n < len && is_tchar((unsigned char)line[n]))
        n++;
    if (n == 0 || n == len || line[n] != ':')
        return fail(p, 400, "A header line is malformed.");
    char *value = line + n + 1, *end = line + len;
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    for (const char *c = value; c < end; c++)
        if (!is_value_char((unsigned char)*c))
            return fail(p, 400, "A header value holds control characters.");
    line[n] = 0;
    *end = 0;
    if (m->header_count == HTTP_HEADERS_MAX)
        return fail(p, 431, "The request has too many header lines.");
    m->headers[m->header_count++] = (struct http_header){line, value};
    return 0;
}

static int parse_length(struct http_parser *p, const char *s) {
    if (p->message->content_length >= 0)
        return fail(p, 400, "Content-Length is given twice.");
    uint64_t v = 0;
    size_t n = 0;
    for (; is_digit(s[n]); n++) {
        if (n == 18)
            return fail(p, 413, "Content-Length is too large.");
        v = v * 10 + (uint64_t)(s[n] - '0');
    }
    if (n == 0 || s[n])
        return fail(p, 400, "Content-Length is not a number.");
    p->message->content_length = (int64_t)v;
    return 0;
}

static int read_framing_headers(struct http_parser *p) {
    struct http_message *m = p->message;
    unsigned hosts = 0;
    for (unsigned i = 0; i < m->header_count; i++) {
        const char *name = m->headers[i].name, *value = m->headers[i].value;
        if (strcasecmp(name, "Content-Length") == 0) {
            int r = parse_length(p, value);
            if (r < 0)
                return r;
        } else if (strcasecmp(name, "Transfer-Encoding") == 0) {
            if (m->chunked || strcasecmp(value, "chunked") != 0)
                return fail(p, 501, "The only transfer encoding understood is \"chunked\".");
            m->chunked = true;
        } else if (strcasecmp(name, "Host") == 0) {
            hosts++;
        }
    }
    // Two lengths are how a request is smuggled past one reader into another: refused, not preferred.
    if (m->chunked && m->content_length >= 0)
        return fail(p, 400, "Content-Length and Transfer-Encoding exclude each other.");
    if (m->chunked && m->minor == 0)
        return fail(p, 400, "HTTP/1.0 has no chunked encoding.");
    if (p->kind == HTTP_REQUEST && (hosts > 1 || (hosts == 0 && m->minor == 1)))
        return fail(p, 400, "An HTTP/1.1 request has exactly one Host header.");
    return 0;
}

static int choose_body(struct http_parser *p) {
    struct http_message *m = p->message;
    bool response = p->kind == HTTP_RESPONSE;
    p->state = HTTP_STATE_BODY;
    if (response && (p->no_body || m->status < 200 || m->status == 204 || m->status == 304)) {
        p->state = HTTP_STATE_DONE;
    } else if (m->chunked) {
        p->body_mode = BODY_CHUNK_SIZE;
    } else if (m->content_length > 0) {
        if ((uint64_t)m->content_length > p->body_max)
            return fail(p, 413, "The body is larger than the limit.");
        p->body_mode = BODY_LENGTH;
        p->body_left = (uint64_t)m->content_length;
    } else if (response && m->content_length < 0) {
        p->body_mode = BODY_UNTIL_EOF;
        m->keep_alive = false;
    } else {
        p->state = HTTP_STATE_DONE;
    }
    return 0;
}

// The whole head is in message->head and ends with an empty line; every LF follows a CR.
static int parse_head(struct http_parser *p) {
    struct http_message *m = p->message;
    char *s = m->head.data, *end = m->head.data + m->head.len - 2;
    bool first = true;
    while (s < end) {
        char *lf = memchr(s, '\n', (size_t)(end - s));
        assert(lf && lf > s && lf[-1] == '\r');
        size_t len = (size_t)(lf - 1 - s);
        int r = !first                    ? parse_header_line(p, s, len)
                : p->kind == HTTP_REQUEST ? parse_request_line(p, s, len)
                                          : parse_status_line(p, s, len);
        if (r < 0)
            return r;
        lf[-1] = 0;
        first = false;
        s = lf + 1;
    }
    if (first)
        return fail(p, 400, "The head is empty.");
    int r = read_framing_headers(p);
    if (r < 0)
        return r;
    bool close = http_message_has_token(m, "Connection", "close");
    m->keep_alive =
        !close && (m->minor == 1 || http_message_has_token(m, "Connection", "keep-alive"));
    m->upgrade = m->minor == 1 && http_message_header(m, "Upgrade") &&
                 http_message_has_token(m, "Connection", "upgrade");
    m->expect_continue = m->minor == 1 && http_message_has_token(m, "Expect", "100-continue");
    return choose_body(p);
}

static ssize_t feed_head(struct http_parser *p, const char *data, size_t len) {
    struct buf *head = &p->message->head;
    size_t used = 0;
    while (used < len) {
        const char *lf = memchr(data + used, '\n', len - used);
        size_t n = lf ? (size_t)(lf - (data + used)) + 1 : len - used;
        if (head->len + n > p->head_max)
            return fail(p, 431, "The request head is larger than the limit.");
        buf_add(head, data + used, n);
        used += n;
        if (!lf)
            break;
        const char *tail = head->data + head->len;
        if (head->len < 2 || tail[-2] != '\r')
            return fail(p, 400, "Lines must end with CR LF.");
        if (head->len == 2 || (head->len >= 4 && tail[-4] == '\r' && tail[-3] == '\n')) {
            int r = parse_head(p);
            return r < 0 ? r : (ssize_t)used;
        }
    }
    return (ssize_t)used;
}

static int hex_value(char c) {
    if (is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

// p->line holds a chunk-size line with its CR LF.
static int parse_chunk_size(struct http_parser *p) {
    size_t digits = p->line_len - 2;
    if (digits == 0 || p->line[digits] != '\r')
        return fail(p, 400, "A chunk size is malformed.");
    uint64_t size = 0;
    for (size_t i = 0; i < digits; i++) {
        int v = hex_value(p->line[i]);
        if (v < 0)
            return fail(p, 400, "A chunk size is malformed.");
        size = size * 16 + (uint64_t)v;
    }
    p->line_len = 0;
    if (size > p->body_max - p->body_seen)
        return fail(p, 413, "The body is larger than the limit.");
    p->body_left = size;
    p->body_mode = size ? BODY_CHUNK_DATA : BODY_TRAILER;
    return 0;
}

// One byte of a size line or of the CR LF behind a chunk.
static int feed_chunk_byte(struct http_parser *p, char c) {
    if (p->body_mode == BODY_CHUNK_END) {
        if (c != "\r\n"[p->line_len])
            return fail(p, 400, "A chunk does not end where its size says.");
        if (++p->line_len == 2) {
            p->line_len = 0;
            p->body_mode = BODY_CHUNK_SIZE;
        }
        return 0;
    }
    if (p->line_len == sizeof p->line)
        return fail(p, 400, "A chunk size is malformed.");
    p->line[p->line_len++] = c;
    if (c != '\n')
        return 0;
    if (p->line_len < 2)
        return fail(p, 400, "A chunk size is malformed.");
    return parse_chunk_size(p);
}

// Trailers are checked for shape, bounded, and dropped: nothing here may depend on them.
static int feed_trailer_byte(struct http_parser *p, char c) {
    if (++p->trailer_len > p->head_max)
        return fail(p, 431, "The trailers are larger than the limit.");
    if (c == '\n') {
        bool empty = p->line_len == 1;
        if (p->line_len == 0 || p->line[0] != '\r')
            return fail(p, 400, "Lines must end with CR LF.");
        p->line_len = 0;
        if (empty)
            p->state = HTTP_STATE_DONE;
        return 0;
    }
    if (p->line_len && p->line[0] == '\r')
        return fail(p, 400, "Lines must end with CR LF.");
    if (c != '\r' && !is_value_char((unsigned char)c))
        return fail(p, 400, "A trailer holds control characters.");
    p->line[0] = c;  // only the last byte matters
    if (p->line_len < 2)
        p->line_len++;
    return 0;
}

static ssize_t feed_body(struct http_parser *p, const char *data, size_t len) {
    size_t used = 0;
    while (used < len && p->state == HTTP_STATE_BODY) {
        if (p->body_mode == BODY_LENGTH || p->body_mode == BODY_CHUNK_DATA ||
            p->body_mode == BODY_UNTIL_EOF) {
            size_t n = len - used;
            // One byte beyond the limit is taken, so that going beyond it is seen.
            if (p->body_mode == BODY_UNTIL_EOF)
                p->body_left = p->body_max - p->body_seen + 1;
            if (n > p->body_left)
                n = (size_t)p->body_left;
            if (p->by_pieces) {
                p->piece = data + used;
                p->piece_len = n;
            } else {
                buf_add(&p->message->body, data + used, n);
            }
            used += n;
            p->body_seen += n;
            p->body_left -= n;
            if (p->body_seen > p->body_max)
                return fail(p, 413, "The body is larger than the limit.");
            if (p->body_left == 0 && p->body_mode == BODY_LENGTH)
                p->state = HTTP_STATE_DONE;
            else if (p->body_left == 0)
                p->body_mode = BODY_CHUNK_END;
            if (p->piece_len)
                break;
            continue;
        }
        char c = data[used++];
        int r = p->body_mode == BODY_TRAILER ? feed_trailer_byte(p, c) : feed_chunk_byte(p, c);
        if (r < 0)
            return r;
    }
    return (ssize_t)used;
}

ssize_t http_parser_feed(struct http_parser *p, const void *data, size_t len) {
    p->piece_len = 0;
    switch (p->state) {
    case HTTP_STATE_HEAD:
        return feed_head(p, data, len);
    case HTTP_STATE_BODY:
        return feed_body(p, data, len);
    case HTTP_STATE_DONE:
        return 0;
    case HTTP_STATE_FAILED:
        break;
    }
    return -EPROTO;
}

int http_parser_eof(struct http_parser *p) {
    if (p->state == HTTP_STATE_DONE)
        return 0;
    if (p->state == HTTP_STATE_BODY && p->body_mode == BODY_UNTIL_EOF) {
        p->state = HTTP_STATE_DONE;
        return 0;
    }
    if (p->state == HTTP_STATE_FAILED)
        return -EPROTO;
    return fail(p, 400, "The connection ended in the middle of a message.");
}
