// See the header.
#include "credentials.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/text.h"

enum { FILE_MAX = 1 << 20, ANSWER_MAX = 64 << 10, RENEW_BEFORE_S = 300, ROLE_WAIT_S = 2 };

void data_keys_done(struct data_keys *k) {
    if (k->secret)
        explicit_bzero(k->secret, strlen(k->secret));
    free(k->id);
    free(k->secret);
    free(k->token);
    *k = (struct data_keys){0};
}

void data_settings_done(struct data_settings *s) {
    data_keys_done(&s->keys);
    free(s->region);
    free(s->endpoint);
    free(s->role_url);
    free(s->role_token);
    *s = (struct data_settings){0};
}

static char *trimmed(const char *from, size_t n) {
    while (n && (*from == ' ' || *from == '\t'))
        from++, n--;
    while (n && (from[n - 1] == ' ' || from[n - 1] == '\t' || from[n - 1] == '\r'))
        n--;
    return xstrndup(from, n);
}

char *data_ini_value(const char *text, const char *section, const char *name) {
    bool inside = false;
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, "\n");
        cleanup_free char *line = trimmed(at, n);
        at += n + (at[n] == '\n');
        size_t len = strlen(line);
        if (line[0] == '[' && len > 1 && line[len - 1] == ']') {
            cleanup_free char *title = trimmed(line + 1, len - 2);
            const char *plain = str_has_prefix(title, "profile ") ? title + 8 : title;  // as in ~/.aws/config
            inside = streq(plain, section);
        } else if (inside && line[0] != '#' && line[0] != ';') {
            const char *equals = strchr(line, '=');
            if (!equals)
                continue;
            cleanup_free char *key = trimmed(line, (size_t)(equals - line));
            if (streq(key, name))
                return trimmed(equals + 1, strlen(equals + 1));
        }
    }
    return NULL;
}

static char *read_home_file(const char *variable, const char *name) {
    const char *given = getenv(variable), *home = getenv("HOME");
    cleanup_free char *path = given ? xstrdup(given) : home ? xasprintf("%s/.aws/%s", home, name) : NULL;
    cleanup_close int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    struct buf text = {0};
    buf_adds(&text, "");
    while (fd >= 0 && text.len < FILE_MAX) {
        char *into = buf_reserve(&text, 4096);
        ssize_t n = read(fd, into, 4096);
        if (n <= 0)
            break;
        text.len += (size_t)n;
    }
    buf_adds(&text, "");
    return buf_take(&text);
}

static char *variable(const char *name) {
    const char *v = getenv(name);
    return str_empty(v) ? NULL : xstrdup(v);
}

static void read_endpoint(struct data_settings *s, char *url) {
    cleanup_free char *owned = url;
    if (!owned)
        return;
    const char *host = owned;
    if (str_has_prefix(owned, "http://")) {
        s->plain_http = true;
        host += 7;
    } else if (str_has_prefix(owned, "https://")) {
        host += 8;
    }
    s->endpoint = xstrndup(host, strcspn(host, "/"));
}

static void read_role(struct data_settings *s) {
    const char *full = getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI"),
               *relative = getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    if (full)
        s->role_url = xstrdup(full);
    else if (relative)
        s->role_url = xasprintf("http://169.254.170.2%s", relative);
    s->role_token = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
}

void data_settings_read(struct data_settings *s) {
    *s = (struct data_settings){0};
    const char *profile = getenv("AWS_PROFILE") ? getenv("AWS_PROFILE") : "default";
    cleanup_free char *config = read_home_file("AWS_CONFIG_FILE", "config");
    cleanup_free char *keys = read_home_file("AWS_SHARED_CREDENTIALS_FILE", "credentials");
    s->keys.id = variable("AWS_ACCESS_KEY_ID");
    if (s->keys.id) {
        s->keys.secret = variable("AWS_SECRET_ACCESS_KEY");
        s->keys.token = variable("AWS_SESSION_TOKEN");
    } else {
        const char *from = keys;
        s->keys.id = data_ini_value(from, profile, "aws_access_key_id");
        if (!s->keys.id)
            s->keys.id = data_ini_value(from = config, profile, "aws_access_key_id");
        s->keys.secret = data_ini_value(from, profile, "aws_secret_access_key");
        s->keys.token = data_ini_value(from, profile, "aws_session_token");
    }
    if (!s->keys.secret)
        data_keys_done(&s->keys);
    s->region = variable("AWS_REGION");
    if (!s->region)
        s->region = variable("AWS_DEFAULT_REGION");
    if (!s->region)
        s->region = data_ini_value(config, profile, "region");
    if (!s->region)
        s->region = xstrdup("us-east-1");
    char *endpoint = variable("AWS_ENDPOINT_URL_S3");
    if (!endpoint)
        endpoint = variable("AWS_ENDPOINT_URL");
    read_endpoint(s, endpoint ? endpoint : data_ini_value(config, profile, "endpoint_url"));
    s->anonymous = getenv("AWS_NO_SIGN_REQUEST") != NULL;
    read_role(s);
}

void data_settings_place(const struct data_settings *s, const char *bucket, struct buf *host, struct buf *path) {
    // A dot in a bucket's name does not match Amazon's certificate: such a bucket goes into the path there, too.
    if (s->endpoint || strchr(bucket, '.')) {
        if (s->endpoint)
            buf_adds(host, s->endpoint);
        else
            buf_addf(host, "s3.%s.amazonaws.com", s->region);
        buf_addf(path, "/%s/", bucket);
    } else {
        buf_addf(host, "%s.s3.%s.amazonaws.com", bucket, s->region);
        buf_adds(path, "/");
    }
}

// --- keys that expire ---

static size_t on_data(char *data, size_t one, size_t n, void *ctx) {
    struct buf *out = ctx;
    if (out->len + n > ANSWER_MAX)
        return 0;
    buf_add(out, data, n);
    return one * n;
}

static bool ask(const char *method, const char *url, const char *header, struct buf *out) {
    CURL *c = curl_easy_init();
    struct curl_slist *list = header ? curl_slist_append(NULL, header) : NULL;
    buf_clear(out);
    curl_easy_setopt(c, CURLOPT_URL, url);
    curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_TIMEOUT, (long)ROLE_WAIT_S);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, out);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, list);
    curl_easy_setopt(c, CURLOPT_FAILONERROR, 1L);
    bool ok = curl_easy_perform(c) == CURLE_OK;
    curl_slist_free_all(list);
    curl_easy_cleanup(c);
    buf_adds(out, "");
    return ok;
}

static int64_t parse_time(const char *s) {
    struct tm tm = {0};
    return s && strptime(s, "%Y-%m-%dT%H:%M:%S", &tm) ? timegm(&tm) : 0;
}

static bool read_keys(const struct buf *answer, struct data_keys *keys) {
    struct arena cleanup_arena a = {0};
    struct json *j = NULL;
    if (json_parse(answer->data, answer->len, &a, &j, NULL))
        return false;
    const char *id = json_str(j, "AccessKeyId"), *secret = json_str(j, "SecretAccessKey"),
               *token = json_str(j, "Token");
    if (!id || !secret)
        return false;
    data_keys_done(keys);
    *keys = (struct data_keys){xstrdup(id), xstrdup(secret), token ? xstrdup(token) : NULL,
                               parse_time(json_str(j, "Expiration"))};
    return true;
}

// A machine of a cloud: a token first, then the role's name, then its keys.
static bool machine_keys(struct data_keys *keys) {
    const char *given = getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    const char *base = given ? given : "http://169.254.169.254";
    size_t n = strlen(base);
    int len = (int)(n && base[n - 1] == '/' ? n - 1 : n);
    const char *disabled = getenv("AWS_EC2_METADATA_DISABLED");
    if (disabled && !strcasecmp(disabled, "true"))
        return false;
    struct buf cleanup_buf answer = {0};
    cleanup_free char *token_url = xasprintf("%.*s/latest/api/token", len, base);
    if (!ask("PUT", token_url, "X-aws-ec2-metadata-token-ttl-seconds: 21600", &answer))
        return false;
    cleanup_free char *header = xasprintf("X-aws-ec2-metadata-token: %s", answer.data);
    cleanup_free char *roles = xasprintf("%.*s/latest/meta-data/iam/security-credentials/", len, base);
    if (!ask("GET", roles, header, &answer))
        return false;
    cleanup_free char *role = xasprintf("%s%.*s", roles, (int)strcspn(answer.data, "\r\n"), answer.data);
    return ask("GET", role, header, &answer) && read_keys(&answer, keys);
}

static char *copy(const char *s) {
    return s ? xstrdup(s) : NULL;
}

int data_settings_keys(struct data_settings *s, struct data_keys *out, struct error *e) {
    *out = (struct data_keys){0};
    if (s->anonymous)
        return 0;
    bool expired = s->keys.expires_s && s->keys.expires_s - RENEW_BEFORE_S < time(NULL);
    if (!s->keys.id || expired) {
        struct buf cleanup_buf answer = {0};
        cleanup_free char *header = s->role_token ? xasprintf("Authorization: %s", s->role_token) : NULL;
        bool ok = s->role_url ? ask("GET", s->role_url, header, &answer) && read_keys(&answer, &s->keys)
                              : machine_keys(&s->keys);
        if (!ok && s->keys.expires_s && s->keys.expires_s < time(NULL))
            return error_set(e, EACCES, "the keys for S3 have expired and new ones could not be had");
        if (!ok && !s->keys.id)
            s->anonymous = true;  // a public bucket; asked once
    }
    *out = (struct data_keys){copy(s->keys.id), copy(s->keys.secret), copy(s->keys.token), s->keys.expires_s};
    return 0;
}
