// acequia-oidc: asks an OpenID Connect provider who somebody is. The controller starts it for each question, writes
// one JSON object to its standard input and reads one from its standard output. A process of its own, with limits, so
// that a provider that is slow, hostile or broken holds up nobody, and what it sends is not parsed by the controller.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <curl/curl.h>

#include "base/clock.h"
#include "base/text.h"
#include "oidc.h"

enum { INPUT_MAX = 65536, CPU_S = 20, MEMORY_BYTES = 1 << 30 };

static void limit_itself(void) {
    setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    setrlimit(RLIMIT_CPU, &(struct rlimit){CPU_S, CPU_S});
    setrlimit(RLIMIT_AS, &(struct rlimit){MEMORY_BYTES, MEMORY_BYTES});
    prctl(PR_SET_DUMPABLE, 0);
}

static int read_question(struct arena *a, struct oidc_request *out) {
    static char input[INPUT_MAX];
    struct json *j;
    size_t len = 0;
    for (ssize_t n; len < sizeof input && (n = read(STDIN_FILENO, input + len, sizeof input - len)) > 0;)
        len += (size_t)n;
    if (json_parse(input, len, a, &j, NULL) < 0 || j->type != JSON_OBJECT)
        return -1;
    *out = (struct oidc_request){.finish = json_true(j, "finish"),
                                 .issuer = json_str(j, "issuer"),
                                 .client_id = json_str(j, "client_id"),
                                 .client_secret_file = json_str(j, "client_secret_file"),
                                 .ca_file = json_str(j, "ca_file"),
                                 .code = json_str(j, "code"),
                                 .verifier = json_str(j, "verifier"),
                                 .nonce = json_str(j, "nonce"),
                                 .redirect_uri = json_str(j, "redirect_uri"),
                                 .user_claim = json_str(j, "user_claim"),
                                 .groups_claim = json_str(j, "groups_claim")};
    bool whole = !out->finish || (out->code && out->verifier && out->nonce && out->redirect_uri);
    return out->issuer && out->client_id && whole ? 0 : -1;
}

static void write_answer(const struct oidc_answer *m, const struct error *e) {
    cleanup_buf struct buf b = {0};
    struct json_writer w = {.out = &b};
    json_open(&w, '{');
    json_kv_str(&w, "problem", e->code ? e->text : NULL);
    json_kv_bool(&w, "refused", e->code == EACCES);
    json_kv_str(&w, "authorization_endpoint", m->authorization_endpoint);
    json_kv_str(&w, "subject", m->subject);
    json_kv_str(&w, "user", m->user);
    json_kv_str(&w, "full_name", m->full_name);
    json_open_key(&w, "groups", '[');
    for (uint32_t i = 0; i < m->groups.len; i++)
        json_put_str(&w, m->groups.at[i]);
    json_close(&w, ']');
    json_close(&w, '}');
    for (size_t at = 0; at < b.len;) {
        ssize_t n = write(STDOUT_FILENO, b.data + at, b.len - at);
        if (n <= 0 && errno != EINTR)
            exit(1);  // the controller is gone
        at += n > 0 ? (size_t)n : 0;
    }
}

int main(void) {
    cleanup_arena struct arena a = {0};
    struct oidc_request q;
    struct oidc_answer m = {0};
    struct error e = {0};
    limit_itself();
    if (read_question(&a, &q) < 0) {
        fprintf(stderr, "acequia-oidc: the controller starts this program and tells it what to ask\n");
        return 2;
    }
    curl_global_init(CURL_GLOBAL_DEFAULT);
    if (oidc_provider_ask(&q, clock_wall_ms() / 1000, &a, &m, &e) < 0 && !e.code)
        error_set(&e, EIO, "the provider cannot be asked");
    write_answer(&m, &e);
    return 0;
}
