// Checks of passwords, off the loop: those of own users on a thread of the loop's pool, those of the system by the
// program acequia-pam, which is started for each and told name and password by a pipe. Whoever asks has a turn
// (login_turns.h).
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controller.h"
#include "helper_process.h"
#include "login.h"
#include "login_turns.h"
#include "model/user.h"

enum { PAM_MAX_MS = 30000 };

struct login_check {
    struct controller *controller;
    login_checked fn;
    void *arg;
    char hash[LOGIN_HASH_MAX];
    struct buf secret;  // the password; wiped
    bool right;
    struct error problem;
    uv_work_t work;
};

static void wipe(struct buf *b) {
    if (b->data)
        explicit_bzero(b->data, b->cap);
    buf_done(b);
}

static struct login_check *check_new(struct controller *c, login_checked fn, void *arg) {
    struct login_check *k = xcalloc(1, sizeof *k);
    *k = (struct login_check){.controller = c, .fn = fn, .arg = arg};
    vec_push(&c->login_checks, k);
    return k;
}

static void check_free(struct login_check *k) {
    struct controller *c = k->controller;
    for (uint32_t i = 0; i < c->login_checks.len; i++)
        if (c->login_checks.at[i] == k) {
            vec_remove_swap(&c->login_checks, i);
            break;
        }
    wipe(&k->secret);
    explicit_bzero(k->hash, sizeof k->hash);
    free(k);
}

static void report(struct login_check *k) {
    wipe(&k->secret);
    k->fn(k->arg, k->right, k->problem.code ? &k->problem : NULL);
}

// --- own users ---

static void verify(uv_work_t *work) {
    struct login_check *k = work->data;
    k->right = login_password_matches(*k->hash ? k->hash : NULL, buf_str(&k->secret));
}

static void verified(uv_work_t *work, int status) {
    struct login_check *k = work->data;
    report(k);
    check_free(k);
}

void login_check_own(struct controller *c, const char *hash, const char *password, login_checked fn,
                     void *arg) {
    struct login_check *k = check_new(c, fn, arg);
    snprintf(k->hash, sizeof k->hash, "%s", hash ? hash : "");
    buf_adds(&k->secret, password);
    k->work.data = k;
    uv_queue_work(&c->loop, &k->work, verify, verified);
}

// --- users of the system ---

static void answered(void *arg, int status, struct buf *output) {
    struct login_check *k = arg;
    k->right = status == 0;
    if (!k->right && status != 1)
        error_set(&k->problem, EIO,
                  "passwords of the system's users cannot be checked now; see the controller's log");
    report(k);
    check_free(k);
}

int login_check_pam(struct controller *c, const char *user, const char *password, const char *from,
                    login_checked fn, void *arg, struct error *e) {
    struct login_check *k = check_new(c, fn, arg);
    struct helper_question q = {
        .program = "acequia-pam", .module = "pam", .limit_ms = PAM_MAX_MS, .done = answered, .arg = k};
    const char *const words[] = {c->config.login.pam_service, user, from, password};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        buf_add(&q.input, words[i], strlen(words[i]) + 1);
    int r = helper_ask(c, &q, e);
    if (r < 0)
        check_free(k);
    return r;
}

// The loop is closed: nobody is called back any more.
void login_done(struct controller *c) {
    while (c->login_checks.len)
        check_free(c->login_checks.at[0]);
    vec_done(&c->login_checks);
    helpers_free(c);
    login_turns_done(c);
    login_codes_done(c);
    api_password_changes_done(c);
    login_oidc_done(c);
    login_devices_done(c);
}
