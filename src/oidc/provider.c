// Talks to an OpenID Connect provider: its configuration document, the exchange of the code, its keys, and the user's
// claims. Redirects are refused, answers are bounded, and all of it together has one time limit. The keys are fetched
// at every login, so that a provider can change them whenever it likes.
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "oidc.h"

enum { ALL_REQUESTS_MS = 20000, SECRET_BYTES_MAX = 4096, GROUP_BYTES_MAX = 256 };

struct provider {
    const struct oidc_request *q;
    struct arena *a;
    bool plain;  // without TLS: a provider on this machine, for tests
    int64_t until_ms;
    const struct json *document;
    char secret[SECRET_BYTES_MAX + 1];
};

struct call {
    const char *url;
    const char *form;    // of a POST; NULL: GET
    const char *bearer;  // NULL: none
    bool as_client;      // with the client's name and secret
};

// --- HTTP ---

static bool is_on_this_machine(const char *url) {
    static const char *const hosts[] = {"http://localhost", "http://127.0.0.1", "http://[::1]"};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        if (str_has_prefix(url, hosts[i]) && strchr(":/", url[strlen(hosts[i])]))
            return true;
    return false;
}

static bool url_is_sound(const struct provider *p, const char *url) {
    return url && strlen(url) < 2048 && !str_has_control_chars(url, strlen(url)) && !strchr(url, ' ') &&
           (str_has_prefix(url, "https://") || (p->plain && is_on_this_machine(url)));
}

static size_t take_bytes(char *data, size_t size, size_t n, void *ctx) {
    struct buf *b = ctx;
    if (b->len + size * n > OIDC_BYTES_MAX)
        return 0;
    buf_add(b, data, size * n);
    return size * n;
}

static void set_client(CURL *easy, const struct provider *p) {
    // RFC 6749: both are encoded as in a form before they become a header.
    char *id = curl_easy_escape(easy, p->q->client_id, 0), *secret = curl_easy_escape(easy, p->secret, 0);
    curl_easy_setopt(easy, CURLOPT_HTTPAUTH, CURLAUTH_BASIC);
    curl_easy_setopt(easy, CURLOPT_USERNAME, id);
    curl_easy_setopt(easy, CURLOPT_PASSWORD, secret);
    curl_free(id);
    curl_free(secret);
}

static int call(struct provider *p, const struct call *c, const char *what, struct buf *out, long *status,
                struct error *e) {
    char problem[CURL_ERROR_SIZE] = "";
    int64_t left_ms = p->until_ms - clock_mono_ms();
    if (!url_is_sound(p, c->url))
        return error_set(e, EIO, "the provider's configuration has no usable address of %s", what);
    CURL *easy = curl_easy_init();
    struct curl_slist *headers = curl_slist_append(NULL, "Accept: application/json");
    if (c->bearer)
        headers = curl_slist_append(headers, arena_printf(p->a, "Authorization: Bearer %s", c->bearer));
    curl_easy_setopt(easy, CURLOPT_URL, c->url);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, p->plain ? "http,https" : "https");
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, left_ms > 1 ? (long)left_ms : 1L);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, problem);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "acequia/" ACEQUIA_VERSION);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_bytes);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, out);
    if (!str_empty(p->q->ca_file))
        curl_easy_setopt(easy, CURLOPT_CAINFO, p->q->ca_file);
    if (c->form)
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, c->form);
    if (c->as_client)
        set_client(easy, p);
    CURLcode code = curl_easy_perform(easy);
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, status);
    curl_slist_free_all(headers);
    curl_easy_cleanup(easy);
    if (code == CURLE_OK)
        return 0;
    return error_set(e, EIO, "%s of the provider: %s", what,
                     code == CURLE_WRITE_ERROR ? "the answer is too large"
                     : *problem                ? problem
                                               : curl_easy_strerror(code));
}

static int read_object(struct provider *p, const struct buf *body, const char *what, const struct json **out,
                       struct error *e) {
    struct json *j;
    if (json_parse_few(buf_str(body), body->len, OIDC_VALUES_MAX, p->a, &j, NULL) < 0 ||
        j->type != JSON_OBJECT)
        return error_set(e, EIO, "%s of the provider: the answer is no JSON object", what);
    *out = j;
    return 0;
}

static int get(struct provider *p, const char *url, const char *bearer, const char *what,
               const struct json **out, struct error *e) {
    cleanup_buf struct buf body = {0};
    long status = 0;
    int r = call(p, &(struct call){.url = url, .bearer = bearer}, what, &body, &status, e);
    if (r == 0 && status != 200)
        r = error_set(e, EIO, "%s of the provider: it answered with status %ld%s", what, status,
                      status >= 300 && status < 400 ? "; redirects are not followed" : "");
    return r < 0 ? r : read_object(p, &body, what, out, e);
}

// --- the provider's documents ---

static int read_document(struct provider *p, struct error *e) {
    const char *issuer = p->q->issuer;
    size_t len = strlen(issuer);
    while (len && issuer[len - 1] == '/')
        len--;
    const char *url = arena_printf(p->a, "%.*s/.well-known/openid-configuration", (int)len, issuer);
    int r = get(p, url, NULL, "the configuration", &p->document, e);
    if (r == 0 && !streq(json_str(p->document, "issuer"), issuer))
        r = error_set(
            e, EIO,
            "the configuration of the provider names another issuer; write issuer exactly as it does");
    return r;
}

static int read_secret(struct provider *p, struct error *e) {
    const char *file = p->q->client_secret_file;
    if (str_empty(file))
        return 0;
    cleanup_close int fd = open(file, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, p->secret, SECRET_BYTES_MAX);
    if (n < 0)
        return error_set(e, EIO, "client_secret_file %s cannot be read: %m", file);
    p->secret[strcspn(p->secret, "\r\n")] = 0;
    return *p->secret ? 0 : error_set(e, EIO, "client_secret_file %s is empty", file);
}

static bool takes(const struct provider *p, const char *method) {
    const struct json *list = json_get(p->document, "token_endpoint_auth_methods_supported");
    if (!list)
        return streq(method, "client_secret_basic");
    for (uint32_t i = 0; list->type == JSON_ARRAY && i < list->len; i++)
        if (list->items[i].type == JSON_STRING && streq(list->items[i].s, method))
            return true;
    return false;
}

static void add_pair(CURL *easy, struct buf *form, const char *key, const char *value) {
    char *text = curl_easy_escape(easy, value, 0);
    buf_addf(form, "%s%s=%s", form->len ? "&" : "", key, text ? text : "");
    curl_free(text);
}

// The code for tokens.
static int exchange(struct provider *p, const struct json **out, struct error *e) {
    const struct oidc_request *q = p->q;
    cleanup_buf struct buf form = {0}, body = {0};
    bool secret = *p->secret, basic = secret && takes(p, "client_secret_basic");
    long status = 0;
    CURL *easy = curl_easy_init();
    add_pair(easy, &form, "grant_type", "authorization_code");
    add_pair(easy, &form, "code", q->code);
    add_pair(easy, &form, "redirect_uri", q->redirect_uri);
    add_pair(easy, &form, "code_verifier", q->verifier);
    if (!basic)
        add_pair(easy, &form, "client_id", q->client_id);
    if (secret && !basic)
        add_pair(easy, &form, "client_secret", p->secret);
    curl_easy_cleanup(easy);
    int r =
        call(p,
             &(struct call){
                 .url = json_str(p->document, "token_endpoint"), .form = buf_str(&form), .as_client = basic},
             "the exchange of the code", &body, &status, e);
    explicit_bzero(form.data, form.cap);
    if (r < 0 || (r = read_object(p, &body, "the exchange of the code", out, e)) < 0)
        return r;
    char shown[96];
    const char *word = json_str(*out, "error");
    if (status == 400 && streq(word, "invalid_grant"))
        return error_set(e, EACCES, "the provider refuses the code: it was used already, or is too old");
    if (status != 200 || !json_str(*out, "id_token"))
        return error_set(e, EIO, "the exchange of the code of the provider: status %ld %s", status,
                         word ? str_printable(word, shown, sizeof shown) : "without an ID token");
    return 0;
}

// --- the user's claims ---

static void take_groups(const struct json *v, struct arena *a, struct oidc_answer *out) {
    uint32_t count = !v ? 0 : v->type == JSON_STRING ? 1 : v->type == JSON_ARRAY ? v->len : 0;
    out->groups.at = arena_alloc(a, (count ? count : 1) * sizeof *out->groups.at);
    for (uint32_t i = 0; i < count && out->groups.len < OIDC_GROUPS_MAX; i++) {
        const struct json *one = v->type == JSON_STRING ? v : &v->items[i];
        if (one->type == JSON_STRING && one->len && one->len <= GROUP_BYTES_MAX &&
            !str_has_control_chars(one->s, one->len))
            out->groups.at[out->groups.len++] = one->s;
    }
}

// What is asked for and not in the ID token may be in the answer of the provider's userinfo address.
static int complete(struct provider *p, const struct json *claims, const struct json *tokens,
                    struct oidc_answer *out, struct error *e) {
    const struct oidc_request *q = p->q;
    const struct json *more = NULL;
    const char *names[] = {str_empty(q->user_claim) ? NULL : q->user_claim,
                           str_empty(q->groups_claim) ? NULL : q->groups_claim};
    bool missing = false;
    for (int i = 0; i < 2; i++)
        missing = missing || (names[i] && !json_get(claims, names[i]));
    const char *url = json_str(p->document, "userinfo_endpoint"), *bearer = json_str(tokens, "access_token");
    if (missing && url && bearer && !str_has_control_chars(bearer, strlen(bearer))) {
        int r = get(p, url, bearer, "the user's claims", &more, e);
        if (r < 0)
            return r;
        if (!streq(json_str(more, "sub"), json_str(claims, "sub")))
            return error_set(e, EACCES, "the provider's claims are of another user than its ID token");
    }
    const struct json *of[2];
    for (int i = 0; i < 2; i++)
        of[i] = names[i] && !json_get(claims, names[i]) && more ? more : claims;
    out->subject = json_str(claims, "sub");
    out->user = names[0] ? json_str(of[0], names[0]) : NULL;
    out->full_name = json_str(claims, "name");
    if (!out->full_name && more)
        out->full_name = json_str(more, "name");
    take_groups(names[1] ? json_get(of[1], names[1]) : NULL, p->a, out);
    return 0;
}

static int finish(struct provider *p, int64_t now_s, struct oidc_answer *out, struct error *e) {
    const struct oidc_request *q = p->q;
    const struct oidc_expected x = {q->issuer, q->client_id, q->nonce, now_s};
    const struct json *tokens, *keys, *claims;
    int r;
    if ((r = read_secret(p, e)) < 0 || (r = exchange(p, &tokens, e)) < 0 ||
        (r = get(p, json_str(p->document, "jwks_uri"), NULL, "the keys", &keys, e)) < 0 ||
        (r = oidc_id_token_read(json_str(tokens, "id_token"), keys, &x, p->a, &claims, e)) < 0)
        return r;
    return complete(p, claims, tokens, out, e);
}

int oidc_provider_ask(const struct oidc_request *q, int64_t now_s, struct arena *a, struct oidc_answer *out,
                      struct error *e) {
    struct provider p = {.q = q, .a = a, .plain = is_on_this_machine(q->issuer)};
    p.until_ms = clock_mono_ms() + ALL_REQUESTS_MS;
    int r = read_document(&p, e);
    if (r == 0)
        out->authorization_endpoint = json_str(p.document, "authorization_endpoint");
    if (r == 0 && !url_is_sound(&p, out->authorization_endpoint))
        r = error_set(e, EIO, "the configuration of the provider names no login page");
    if (r == 0 && q->finish)
        r = finish(&p, now_s, out, e);
    explicit_bzero(p.secret, sizeof p.secret);
    return r;
}
