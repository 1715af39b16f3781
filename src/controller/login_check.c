// Checks of passwords, off the loop: those of own users on a thread of the loop's pool, those of the system by the
// program acequia-pam, which is started for each and told name and password by a pipe. Few at a time, and fewer for one
// address, so that nobody can hold up the logins of others.
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "controller.h"
#include "login.h"
#include "model/user.h"

enum { CHECKS_MAX = 8, PAM_MAX_MS = 30000 };

struct login_check {
    struct controller *controller;
    login_checked fn;
    void *arg;
    char hash[LOGIN_HASH_MAX];
    struct buf secret;  // password, or what the program is told; wiped
    bool right;
    struct error problem;
    uv_work_t work;
    uv_process_t process;
    uv_pipe_t input;
    uv_timer_t timer;
    uv_write_t write;
    unsigned handles;
};

static void wipe(struct buf *b) {
    if (b->data)
        explicit_bzero(b->data, b->cap);
    buf_done(b);
}

static struct login_check *check_new(struct controller *c, login_checked fn, void *arg, struct error *e) {
    if (c->login_checks.len >= CHECKS_MAX) {
        error_set(e, EAGAIN, "many are logging in now; try again in a moment");
        return NULL;
    }
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

int login_check_own(struct controller *c, const char *hash, const char *password, login_checked fn, void *arg,
                    struct error *e) {
    struct login_check *k = check_new(c, fn, arg, e);
    if (!k)
        return -EAGAIN;
    snprintf(k->hash, sizeof k->hash, "%s", hash ? hash : "");
    buf_adds(&k->secret, password);
    k->work.data = k;
    uv_queue_work(&c->loop, &k->work, verify, verified);
    return 0;
}

// --- users of the system ---

static void on_closed(uv_handle_t *h) {
    struct login_check *k = h->data;
    if (--k->handles == 0)
        check_free(k);
}

static void close_handles(struct login_check *k) {
    uv_handle_t *const handles[] = {(uv_handle_t *)&k->process, (uv_handle_t *)&k->input,
                                    (uv_handle_t *)&k->timer};
    for (int i = 0; i < 3; i++)
        if (!uv_is_closing(handles[i]))
            uv_close(handles[i], on_closed);
}

static void on_exit_pam(uv_process_t *p, int64_t status, int signal) {
    struct login_check *k = p->data;
    k->right = status == 0 && signal == 0;
    if (!k->right && (signal || status != 1))
        error_set(&k->problem, EIO,
                  "the system's users cannot be checked now; the controller's log says why");
    report(k);
    close_handles(k);
}

static void on_late(uv_timer_t *t) {
    uv_process_kill(&((struct login_check *)t->data)->process, SIGKILL);
}

// It reads to the end of its input.
static void on_written(uv_write_t *w, int status) {
    struct login_check *k = w->handle->data;
    if (!uv_is_closing((uv_handle_t *)&k->input))
        uv_close((uv_handle_t *)&k->input, on_closed);
}

static bool find_program(char out[static PATH_MAX]) {
    static const char *const places[] = {"", "../pam/", "../src/pam/"};
    char self[PATH_MAX - 64];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    self[len < 0 ? 0 : len] = 0;
    char *slash = strrchr(self, '/');
    if (slash)
        *slash = 0;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(out, PATH_MAX, "%s/%sacequia-pam", self, places[i]);
        if (access(out, X_OK) == 0)
            return true;
    }
    return false;
}

static int start(struct login_check *k, const char *program, struct error *e) {
    struct controller *c = k->controller;
    const char *const args[] = {program, NULL}, *const env[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL};
    uv_pipe_init(&c->loop, &k->input, 0);
    uv_timer_init(&c->loop, &k->timer);
    k->input.data = k->timer.data = k->process.data = k;
    k->handles = 3;
    uv_stdio_container_t stdio[3] = {
        {.flags = UV_CREATE_PIPE | UV_READABLE_PIPE, .data.stream = (uv_stream_t *)&k->input},
        {.flags = UV_IGNORE},
        {.flags = UV_INHERIT_FD, .data.fd = 2}};
    uv_process_options_t o = {.file = program,
                              .args = (char **)(uintptr_t)args,
                              .env = (char **)(uintptr_t)env,
                              .exit_cb = on_exit_pam,
                              .stdio_count = 3,
                              .stdio = stdio};
    int r = uv_spawn(&c->loop, &k->process, &o);
    if (r < 0) {
        close_handles(k);
        return error_set(e, EIO, "cannot start %s: %s", program, uv_strerror(r));
    }
    uv_timer_start(&k->timer, on_late, PAM_MAX_MS, 0);
    return 0;
}

int login_check_pam(struct controller *c, const char *user, const char *password, const char *from,
                    login_checked fn, void *arg, struct error *e) {
    char program[PATH_MAX];
    if (!find_program(program))
        return error_set(e, ENOTSUP, "the program acequia-pam is not installed beside acequiad");
    struct login_check *k = check_new(c, fn, arg, e);
    if (!k)
        return -EAGAIN;
    const char *const words[] = {c->config.login.pam_service, user, from, password};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        buf_add(&k->secret, words[i], strlen(words[i]) + 1);
    int r = start(k, program, e);
    if (r < 0)
        return r;
    uv_buf_t data = uv_buf_init(k->secret.data, (unsigned)k->secret.len);
    uv_write(&k->write, (uv_stream_t *)&k->input, &data, 1, on_written);
    return 0;
}

// The loop is closed: nobody is called back any more.
void login_done(struct controller *c) {
    while (c->login_checks.len)
        check_free(c->login_checks.at[0]);
    vec_done(&c->login_checks);
    login_codes_done(c);
}
