// Requests by libcurl, one handle per thread. What is retried: lost connections, time-outs, 429 and 5xx, with a pause
// that doubles and is different for each, so that a thousand readers of a store that is busy do not come back at once.
#include "remote.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/rand.h"
#include "base/text.h"
#include "credentials.h"
#include "sign.h"

enum {
    TRIES = 6,
    PAUSE_MS = 100,  // before the second try; doubles
    CONNECT_S = 10,
    STALL_S = 30,  // less than a byte a second for so long counts as lost
    ANSWER_MAX = 16 << 20,
    PART_BYTES = 16 << 20,
    PARTS_MAX = 10000,
    ADDRESS_MAX = 4096,
    NAME_TRIES = 100,
    EMPTY_PAGES_MAX = 100,  // of a list: a store may filter, but not for ever
};

struct data_remote {
    struct data_settings settings;
    pthread_mutex_t lock;  // keys are renewed by whoever finds them expired
};

struct data_fetcher {
    struct data_remote *remote;
    CURL *curl;
    struct rand rand;
    char problem[CURL_ERROR_SIZE];
};

bool data_is_s3(const char *address) {
    return str_has_prefix(address, "s3://");
}

bool data_is_remote(const char *address) {
    return data_is_s3(address) || str_has_prefix(address, "http://") || str_has_prefix(address, "https://");
}

struct data_remote *data_remote_new(void) {
    curl_global_init(CURL_GLOBAL_DEFAULT);
    struct data_remote *r = xcalloc(1, sizeof *r);
    pthread_mutex_init(&r->lock, NULL);
    data_settings_read(&r->settings);
    return r;
}

void data_remote_free(struct data_remote *r) {
    if (!r)
        return;
    data_settings_done(&r->settings);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

struct data_fetcher *data_fetcher_new(struct data_remote *r) {
    struct data_fetcher *f = xcalloc(1, sizeof *f);
    uint64_t seed = 1;
    rand_secret(&seed, sizeof seed);
    rand_seed(&f->rand, seed);
    f->remote = r;
    return f;
}

void data_fetcher_free(struct data_fetcher *f) {
    if (!f)
        return;
    if (f->curl)
        curl_easy_cleanup(f->curl);
    free(f);
}

// --- one request ---

struct web_exchange {
    const char *method;
    struct buf url, headers;  // headers: lines
    const char *range;
    uint64_t offset, part;  // of the range; part: 0 is to the end
    const void *body;
    size_t body_len, max;
    struct buf *out;
    struct buf etag;
    bool too_large;
    size_t sent;
};

static size_t on_data(char *data, size_t one, size_t n, void *ctx) {
    struct web_exchange *x = ctx;
    if (n > x->max - x->out->len) {
        x->too_large = true;
        return 0;
    }
    buf_add(x->out, data, n);
    return one * n;
}

static size_t on_header(char *data, size_t one, size_t n, void *ctx) {
    struct web_exchange *x = ctx;
    if (n > 6 && !strncasecmp(data, "etag:", 5)) {
        size_t from = 5, to = n;
        while (from < to && (data[from] == ' ' || data[from] == '\t'))
            from++;
        while (to > from && (data[to - 1] == '\r' || data[to - 1] == '\n' || data[to - 1] == ' '))
            to--;
        buf_clear(&x->etag);
        buf_add(&x->etag, data + from, to - from);
    }
    return one * n;
}

static size_t on_upload(char *into, size_t one, size_t n, void *ctx) {
    struct web_exchange *x = ctx;
    size_t take = x->body_len - x->sent < n ? x->body_len - x->sent : n;
    memcpy(into, (const char *)x->body + x->sent, take);
    x->sent += take;
    (void)one;
    return take;
}

static int on_rewind(void *ctx, curl_off_t offset, int origin) {
    struct web_exchange *x = ctx;
    if (origin != SEEK_SET || offset < 0 || (size_t)offset > x->body_len)
        return CURL_SEEKFUNC_FAIL;
    x->sent = (size_t)offset;
    return CURL_SEEKFUNC_OK;
}

static struct curl_slist *header_list(const struct buf *lines) {
    struct curl_slist *list = NULL;
    const char *at = buf_str(lines);
    while (*at) {
        size_t n = strcspn(at, "\n");
        cleanup_free char *line = xstrndup(at, n);
        list = curl_slist_append(list, line);
        at += n + (at[n] == '\n');
    }
    return curl_slist_append(list, "Expect:");
}

// The status of the answer, or 0 when there was none.
static long exchange_once(struct data_fetcher *f, struct web_exchange *x, CURLcode *code) {
    if (!f->curl)
        f->curl = curl_easy_init();
    CURL *c = f->curl;
    curl_easy_reset(c);
    f->problem[0] = 0;
    x->out->len = x->sent = 0;
    x->too_large = false;
    curl_easy_setopt(c, CURLOPT_URL, x->url.data);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, f->problem);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)STALL_S);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, x->headers.len ? 0L : 1L);  // a signature holds for one address
    curl_easy_setopt(c, CURLOPT_MAXREDIRS, 5L);
    curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, x->method);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, x);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, x);
    if (x->range)
        curl_easy_setopt(c, CURLOPT_RANGE, x->range);
    if (x->body) {
        curl_easy_setopt(c, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(c, CURLOPT_INFILESIZE_LARGE, (curl_off_t)x->body_len);
        curl_easy_setopt(c, CURLOPT_READFUNCTION, on_upload);
        curl_easy_setopt(c, CURLOPT_READDATA, x);
        curl_easy_setopt(c, CURLOPT_SEEKFUNCTION, on_rewind);
        curl_easy_setopt(c, CURLOPT_SEEKDATA, x);
    }
    struct curl_slist *list = header_list(&x->headers);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, list);
    *code = curl_easy_perform(c);
    long status = 0;
    if (*code == CURLE_OK)
        curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
    curl_slist_free_all(list);
    return status;
}

static bool worth_another_try(long status, CURLcode code) {
    switch (code) {
    case CURLE_OK: return status == 429 || status == 408 || status >= 500;
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_PARTIAL_FILE:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM: return true;
    default: return false;
    }
}

static void pause_before(struct data_fetcher *f, int attempt) {
    int64_t ms = (int64_t)PAUSE_MS << attempt;
    ms = rand_between(&f->rand, ms / 2, ms);
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

// What the store says in its XML, or its status.
static int answer_error(const char *address, long status, const struct buf *body, struct error *e) {
    int code = status == 404 ? ENOENT : status == 403 || status == 401 ? EACCES : status == 416 ? ERANGE : EREMOTEIO;
    const char *text = strstr(buf_str(body), "<Message>"), *kind = strstr(buf_str(body), "<Code>");
    char safe[200], word[64] = "";
    if (kind) {
        size_t n = strcspn(kind + 6, "<");
        snprintf(word, sizeof word, "%.*s: ", (int)(n < 48 ? n : 48), kind + 6);
    }
    if (text) {
        cleanup_free char *message = xstrndup(text + 9, strcspn(text + 9, "<"));
        return error_set(e, code, "%s: the server answered %ld (%s%s)", address, status, word,
                         str_printable(message, safe, sizeof safe));
    }
    return error_set(e, code, "%s: the server answered %ld%s", address, status,
                     code == ENOENT   ? " (there is no such object)"
                     : code == EACCES ? " (no permission: are AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY right?)"
                                      : "");
}

// A server that knows no parts sends all: from the beginning that is the part if it is no longer.
static bool sent_no_part(struct data_fetcher *f, const struct web_exchange *x) {
    long status = 0;
    curl_easy_getinfo(f->curl, CURLINFO_RESPONSE_CODE, &status);
    return x->range && status == 200 && (x->offset || x->too_large || x->out->len > x->part);
}

typedef int prepare_fn(struct data_fetcher *f, struct web_exchange *x, void *ctx, struct error *e);

// Prepares anew before each try: a signature has a time in it, and keys can have been renewed.
static int exchange_run(struct data_fetcher *f, const char *address, struct web_exchange *x,
                        prepare_fn *prepare, void *ctx, struct error *e) {
    for (int attempt = 0;; attempt++) {
        CURLcode code;
        buf_clear(&x->url);
        buf_clear(&x->headers);
        int r = prepare(f, x, ctx, e);
        if (r)
            return r;
        long status = exchange_once(f, x, &code);
        if (sent_no_part(f, x))
            return error_set(e, EPROTO, "%s: the server sends no parts of files (HTTP ranges)", address);
        if (code == CURLE_OK && status >= 200 && status < 300)
            return 0;
        if (x->too_large)
            return error_set(e, EFBIG, "%s has more than the %zu bytes that are read at once", address, x->max);
        if (attempt + 1 < TRIES && worth_another_try(status, code)) {
            pause_before(f, attempt);
            continue;
        }
        if (code == CURLE_OK)
            return answer_error(address, status, x->out, e);
        return error_set(e, EIO, "%s: %s", address, f->problem[0] ? f->problem : curl_easy_strerror(code));
    }
}

static void exchange_done(struct web_exchange *x) {
    buf_done(&x->url);
    buf_done(&x->headers);
    buf_done(&x->etag);
}

// --- S3 ---

struct s3_call {
    char bucket[256];
    const char *key;
    const char *query;  // sorted, encoded
    char hash[DATA_SHA256_HEX + 1];
};

static int s3_split(const char *address, struct s3_call *call, struct error *e) {
    const char *bucket = address + 5;
    size_t n = strcspn(bucket, "/");
    if (n < 1 || n >= sizeof call->bucket)
        return error_set(e, EINVAL, "%s names no bucket: write s3://BUCKET/KEY", address);
    memcpy(call->bucket, bucket, n);
    call->bucket[n] = 0;
    for (size_t i = 0; i < n; i++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_", call->bucket[i]))
            return error_set(e, EINVAL, "%s: a bucket's name has letters, digits, dots and hyphens", address);
    call->key = bucket + n + (bucket[n] == '/');
    return 0;
}

static int s3_prepare(struct data_fetcher *f, struct web_exchange *x, void *ctx, struct error *e) {
    const struct s3_call *call = ctx;
    struct data_remote *r = f->remote;
    struct buf cleanup_buf host = {0}, cleanup_buf path = {0};
    data_settings_place(&r->settings, call->bucket, &host, &path);
    data_uri_add(&path, call->key, strlen(call->key), true);
    buf_addf(&x->url, "%s://%s%s%s%s", r->settings.plain_http ? "http" : "https", host.data, path.data,
             *call->query ? "?" : "", call->query);
    pthread_mutex_lock(&r->lock);
    struct data_keys keys = {0};
    int rc = data_settings_keys(&r->settings, &keys, e);
    pthread_mutex_unlock(&r->lock);
    if (rc)
        return rc;
    if (keys.id)
        data_sign(&(struct data_request){x->method, host.data, path.data, call->query, r->settings.region,
                                         call->hash},
                  &keys, time(NULL), &x->headers);
    data_keys_done(&keys);
    return 0;
}

static int s3_run(struct data_fetcher *f, const char *address, struct web_exchange *x, const char *query,
                  struct error *e) {
    struct s3_call call = {.query = query};
    int r = s3_split(address, &call, e);
    if (r)
        return r;
    data_sha256_hex(x->body ? x->body : "", x->body_len, call.hash);
    return exchange_run(f, address, x, s3_prepare, &call, e);
}

static int plain_prepare(struct data_fetcher *f, struct web_exchange *x, void *ctx, struct error *e) {
    (void)f;
    (void)e;
    buf_adds(&x->url, ctx);
    return 0;
}

// --- files ---

static int read_file(const char *path, uint64_t offset, uint64_t len, size_t max, struct buf *out, struct error *e) {
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);  // a pipe without a writer
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return error_set(e, errno, "%s cannot be read: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return error_set(e, EINVAL, "%s is no file", path);
    uint64_t size = (uint64_t)st.st_size, want = offset >= size ? 0 : size - offset;
    if (len && len < want)
        want = len;
    if (want > max)
        return error_set(e, EFBIG, "%s has more than the %zu bytes that are read at once", path, max);
    buf_clear(out);
    buf_reserve(out, want);
    while (out->len < want) {
        ssize_t n = pread(fd, out->data + out->len, want - out->len, (off_t)(offset + out->len));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set(e, errno, "%s cannot be read: %s", path, strerror(errno));
        if (!n)
            break;
        out->len += (size_t)n;
    }
    return 0;
}

static int write_all(int fd, const char *bytes, size_t len) {
    while (len) {
        ssize_t n = write(fd, bytes, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        bytes += n;
        len -= (size_t)n;
    }
    return 0;
}

static int write_file(struct data_fetcher *f, const char *path, const void *bytes, size_t len, struct error *e) {
    char beside[ADDRESS_MAX];
    for (int i = 0; i < NAME_TRIES; i++) {
        const char *slash = strrchr(path, '/');
        int folder = slash ? (int)(slash - path) + 1 : 0;
        if (snprintf(beside, sizeof beside, "%.*s.%s.%08x", folder, path, path + folder,
                     (unsigned)rand_u64(&f->rand)) >= (int)sizeof beside)
            return error_set(e, ENAMETOOLONG, "%s is too long a path", path);
        cleanup_close int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno == EEXIST)
            continue;
        int r = fd < 0 ? -errno : write_all(fd, bytes, len);
        if (!r && fsync(fd) < 0)
            r = -errno;
        if (!r && rename(beside, path) < 0)
            r = -errno;
        if (r) {
            unlink(beside);
            return error_set(e, -r, "%s cannot be written: %s%s", path, strerror(-r), error_remedy(-r));
        }
        return 0;
    }
    return error_set(e, EEXIST, "%s cannot be written: no free name beside it", path);
}

// --- reading and writing by address ---

int data_read(struct data_fetcher *f, const char *address, uint64_t offset, uint64_t len, size_t max, struct buf *out,
              struct error *e) {
    if (!data_is_remote(address))
        return read_file(address, offset, len, max, out, e);
    char range[48];
    struct web_exchange x = {.method = "GET", .out = out, .max = max};
    if (offset || len) {
        if (len)
            snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)offset,
                     (unsigned long long)(offset + len - 1));
        else
            snprintf(range, sizeof range, "%llu-", (unsigned long long)offset);
        x.range = range;
        x.offset = offset;
        x.part = len ? len : UINT64_MAX;
    }
    buf_clear(out);
    int r = data_is_s3(address) ? s3_run(f, address, &x, "", e)
                                : exchange_run(f, address, &x, plain_prepare, (void *)(uintptr_t)address, e);
    exchange_done(&x);
    if (r == -ERANGE) {  // nothing is behind the end
        buf_clear(out);
        return 0;
    }
    return r;
}

static int s3_put(struct data_fetcher *f, const char *address, const char *query, const void *bytes, size_t len,
                  struct buf *etag, struct error *e) {
    struct buf cleanup_buf answer = {0};
    struct web_exchange x = {.method = "PUT", .out = &answer, .max = ANSWER_MAX, .body = bytes, .body_len = len};
    int r = s3_run(f, address, &x, query, e);
    if (!r && etag)
        buf_add(etag, x.etag.data, x.etag.len);
    exchange_done(&x);
    return r;
}

// The text of the first element of that name.
static bool xml_text(const char *xml, const char *end, const char *name, struct buf *out);

static int s3_post(struct data_fetcher *f, const char *address, const char *method, const char *query,
                   const struct buf *body, struct buf *answer, struct error *e) {
    struct web_exchange x = {.method = method, .out = answer, .max = ANSWER_MAX, .body = body ? body->data : NULL,
                         .body_len = body ? body->len : 0};
    int r = s3_run(f, address, &x, query, e);
    exchange_done(&x);
    return r;
}

static int put_parts(struct data_fetcher *f, const char *address, const struct buf *id, const char *bytes, size_t len,
                     struct error *e) {
    struct buf cleanup_buf list = {0}, cleanup_buf answer = {0}, cleanup_buf query = {0};
    buf_adds(&list, "<CompleteMultipartUpload>");
    unsigned number = 0;
    for (size_t at = 0; at < len; at += PART_BYTES) {
        struct buf cleanup_buf etag = {0};
        buf_clear(&query);
        buf_addf(&query, "partNumber=%u&uploadId=", ++number);
        data_uri_add(&query, id->data, id->len, false);
        size_t n = len - at < PART_BYTES ? len - at : PART_BYTES;
        int r = s3_put(f, address, query.data, bytes + at, n, &etag, e);
        if (r)
            return r;
        buf_addf(&list, "<Part><PartNumber>%u</PartNumber><ETag>%s</ETag></Part>", number, buf_str(&etag));
    }
    buf_adds(&list, "</CompleteMultipartUpload>");
    buf_clear(&query);
    buf_adds(&query, "uploadId=");
    data_uri_add(&query, id->data, id->len, false);
    int r = s3_post(f, address, "POST", query.data, &list, &answer, e);
    if (!r && strstr(buf_str(&answer), "<Error>"))  // this answer can be a failure with status 200
        return answer_error(address, 200, &answer, e);
    return r;
}

static int put_large(struct data_fetcher *f, const char *address, const char *bytes, size_t len, struct error *e) {
    struct buf cleanup_buf answer = {0}, cleanup_buf id = {0}, cleanup_buf query = {0}, cleanup_buf empty = {0};
    buf_adds(&empty, "");
    if (len / PART_BYTES >= PARTS_MAX)
        return error_set(e, EFBIG, "%s: an object of %zu bytes is too large for one upload", address, len);
    int r = s3_post(f, address, "POST", "uploads=", &empty, &answer, e);
    if (r)
        return r;
    if (!xml_text(buf_str(&answer), buf_str(&answer) + answer.len, "UploadId", &id))
        return error_set(e, EPROTO, "%s: the server began no upload in parts", address);
    r = put_parts(f, address, &id, bytes, len, e);
    if (r) {  // what was sent must not stay and cost
        struct error ignored;
        buf_adds(&query, "uploadId=");
        data_uri_add(&query, id.data, id.len, false);
        s3_post(f, address, "DELETE", query.data, NULL, &answer, &ignored);
    }
    return r;
}

int data_write(struct data_fetcher *f, const char *address, const void *bytes, size_t len, struct error *e) {
    if (!data_is_remote(address))
        return write_file(f, address, bytes, len, e);
    if (!data_is_s3(address))
        return error_set(e, EINVAL, "%s: results are written to folders and to s3://", address);
    if (len > 4 * (size_t)PART_BYTES)
        return put_large(f, address, bytes, len, e);
    return s3_put(f, address, "", len ? bytes : "", len, NULL, e);
}

int data_remove(struct data_fetcher *f, const char *address, struct error *e) {
    if (!data_is_remote(address))
        return unlink(address) < 0 && errno != ENOENT
                   ? error_set(e, errno, "%s cannot be removed: %s", address, strerror(errno))
                   : 0;
    struct buf cleanup_buf answer = {0};
    int r = s3_post(f, address, "DELETE", "", NULL, &answer, e);
    return r == -ENOENT ? 0 : r;
}

// --- listing ---

// The five entities of XML and characters by number.
static void xml_unescape(const char *s, size_t n, struct buf *out) {
    static const struct {
        const char *name;
        char c;
    } entities[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
    for (size_t i = 0; i < n;) {
        size_t step = 1;
        char c = s[i];
        for (size_t k = 0; c == '&' && k < 5; k++) {
            size_t len = strlen(entities[k].name);
            if (n - i >= len && !memcmp(s + i, entities[k].name, len)) {
                c = entities[k].c;
                step = len;
                break;
            }
        }
        if (step == 1 && c == '&' && n - i > 3 && s[i + 1] == '#') {
            bool hex = s[i + 2] == 'x';
            char *end = NULL;
            unsigned long v = strtoul(s + i + (hex ? 3 : 2), &end, hex ? 16 : 10);
            if (end && *end == ';' && end < s + n && v && v < 128) {
                c = (char)v;
                step = (size_t)(end - (s + i)) + 1;
            }
        }
        buf_addc(out, c);
        i += step;
    }
}

static bool xml_text(const char *xml, const char *end, const char *name, struct buf *out) {
    char open[64], close[64];
    snprintf(open, sizeof open, "<%s>", name);
    snprintf(close, sizeof close, "</%s>", name);
    const char *from = memmem(xml, (size_t)(end - xml), open, strlen(open));
    if (!from)
        return false;
    from += strlen(open);
    const char *to = memmem(from, (size_t)(end - from), close, strlen(close));
    if (!to)
        return false;
    buf_clear(out);
    xml_unescape(from, (size_t)(to - from), out);
    buf_adds(out, "");
    return true;
}

int data_list_page(const char *xml, size_t len, data_object_fn *fn, void *ctx, struct buf *next, struct error *e) {
    const char *end = xml + len, *at = xml;
    struct buf cleanup_buf key = {0}, cleanup_buf size = {0};
    if (!memmem(xml, len, "<ListBucketResult", 17))
        return error_set(e, EPROTO, "the server's list of objects is not one");
    for (;;) {
        const char *from = memmem(at, (size_t)(end - at), "<Contents>", 10);
        if (!from)
            break;
        const char *to = memmem(from, (size_t)(end - from), "</Contents>", 11);
        if (!to)
            return error_set(e, EPROTO, "the server's list of objects ends too early");
        uint64_t bytes = 0;
        if (!xml_text(from, to, "Key", &key) || !xml_text(from, to, "Size", &size) ||
            parse_u64(buf_str(&size), &bytes) || strlen(buf_str(&key)) != key.len)
            return error_set(e, EPROTO, "the server's list has an object without a name or size");
        int r = fn(ctx, &(struct data_object){buf_str(&key), bytes});
        if (r)
            return r;
        at = to + 11;
    }
    buf_clear(next);
    struct buf cleanup_buf more = {0};
    if (xml_text(xml, end, "IsTruncated", &more) && streq(buf_str(&more), "true") &&
        !xml_text(xml, end, "NextContinuationToken", next))
        return error_set(e, EPROTO, "the server's list goes on but does not say where");
    return 0;
}

struct page_count {
    data_object_fn *fn;
    void *ctx;
    uint64_t objects;
};

static int on_counted(void *ctx, const struct data_object *object) {
    struct page_count *c = ctx;
    c->objects++;
    return c->fn(c->ctx, object);
}

int data_list_objects(struct data_fetcher *f, const char *address, data_object_fn *fn, void *ctx, struct error *e) {
    struct s3_call call = {0};
    int r = s3_split(address, &call, e);
    if (r)
        return r;
    struct buf cleanup_buf next = {0}, cleanup_buf query = {0}, cleanup_buf answer = {0}, cleanup_buf bucket = {0};
    struct page_count count = {fn, ctx, 0};
    unsigned empty = 0;  // pages, one after the other
    buf_addf(&bucket, "s3://%s/", call.bucket);
    do {
        buf_clear(&query);
        if (next.len) {
            buf_adds(&query, "continuation-token=");
            data_uri_add(&query, next.data, next.len, false);
            buf_addc(&query, '&');
        }
        buf_adds(&query, "list-type=2&prefix=");
        data_uri_add(&query, call.key, strlen(call.key), false);
        struct web_exchange x = {.method = "GET", .out = &answer, .max = ANSWER_MAX};
        r = s3_run(f, bucket.data, &x, query.data, e);
        exchange_done(&x);
        if (!r)
            r = data_list_page(answer.data, answer.len, on_counted, &count, &next, e);
        empty = count.objects ? 0 : empty + 1;
        count.objects = 0;
        if (!r && empty > EMPTY_PAGES_MAX)
            r = error_set(e, EPROTO, "%s: the server's list of objects goes on and names none", address);
    } while (!r && next.len);
    return r;
}
