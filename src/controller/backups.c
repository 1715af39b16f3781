// Owns when a backup is made, and the answers of /v1/backups.
#include "backups.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "answers.h"
#include "api.h"
#include "backup_messages.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "helper_process.h"

enum { FIRST_LOOK_MS = 60 * 1000, RETRY_MS = 10 * 60 * 1000, LIST_MS = 20 * 1000, LISTS_MAX = 8 };
static const uint32_t MAKE_MS = 24 * 3600 * 1000;

struct backups {
    int64_t next_ms;  // by the monotonic clock; 0: not decided yet
    bool running;
    char problem[768];  // "": none
    uint32_t lists;     // questions of users on their way
};

struct backups *backups_new(void) {
    return xcalloc(1, sizeof(struct backups));
}

struct backups *backups_free(struct backups *b) {
    free(b);
    return NULL;
}

const char *backups_problem(const struct controller *c) {
    return *c->backups->problem ? c->backups->problem : NULL;
}

static bool has_folder(const struct controller *c) {
    return !str_empty(c->config.backup.folder) && !c->shared;
}

static int ask(struct controller *c, struct backups_question *q, uint32_t limit_ms, helper_done done,
               void *arg, struct error *e) {
    struct helper_question h = {.program = "acequiad",
                                .module = "acequiad",
                                .role = "backups",
                                .limit_ms = limit_ms,
                                .done = done,
                                .arg = arg};
    q->state = c->paths.state;
    q->folder = c->config.backup.folder;
    q->keep = c->config.backup.keep;
    schema_write_json(&backups_question_schema, q, &(struct json_writer){.out = &h.input});
    return helper_ask(c, &h, e);
}

// What the program said; a problem of its own when it said nothing that can be read.
static void read_result(int status, struct buf *output, struct arena *a, struct backups_result *out) {
    struct error e = {0};
    *out = (struct backups_result){0};
    struct json *j;
    if (status != 0 || json_parse(buf_str(output), output->len, a, &j, &e) < 0 ||
        schema_read_json(&backups_result_schema, j, a, out, &e) < 0)
        *out = (struct backups_result){.problem = "the program that makes them has ended or does not answer"};
}

// --- making them ---

static void on_made(void *arg, int status, struct buf *output) {
    struct controller *c = arg;
    struct backups *b = c->backups;
    cleanup_arena struct arena a = {0};
    struct backups_result r;
    read_result(status, output, &a, &r);
    b->running = false;
    *b->problem = 0;
    if (r.problem) {
        snprintf(b->problem, sizeof b->problem, "backups into %.200s fail: %.500s", c->config.backup.folder,
                 r.problem);
        log_warn("%s", b->problem);
    }
    int64_t age_ms = r.backups.len ? controller_now_ms() - r.backups.at[0].made_ms : INT64_MAX / 2;
    int64_t left_ms = (int64_t)c->config.backup.every_s * 1000 - age_ms;
    b->next_ms = clock_mono_ms() + (r.problem || left_ms < RETRY_MS ? RETRY_MS : left_ms);
}

static int make(struct controller *c, bool always, struct error *e) {
    struct backups *b = c->backups;
    struct backups_question q = {.older_s = c->config.backup.every_s, .make = always};
    int r = ask(c, &q, MAKE_MS, on_made, c, e);
    b->running = r == 0;
    return r;
}

void backups_tick(struct controller *c) {
    struct backups *b = c->backups;
    struct error e = {0};
    int64_t now_ms = clock_mono_ms();
    if (!has_folder(c) || !c->config.backup.every_s || b->running)
        return;
    if (!b->next_ms)
        b->next_ms = now_ms + FIRST_LOOK_MS;  // not while everything starts
    if (now_ms < b->next_ms)
        return;
    b->next_ms = now_ms + RETRY_MS;
    if (make(c, false, &e) < 0)
        snprintf(b->problem, sizeof b->problem, "no backup can be made: %.500s", e.text);
}

// --- the API ---

struct backup_list {
    struct controller *controller;
    struct net_request *req;
};

static void reply_list(struct controller *c, struct net_request *req, const struct backups_result *r) {
    struct backups *b = c->backups;
    struct answer_backups a = {.folder = has_folder(c) ? c->config.backup.folder : NULL,
                               .every_s = c->config.backup.every_s,
                               .keep = c->config.backup.keep,
                               .running = b->running,
                               .problem = r->problem ? r->problem : backups_problem(c)};
    a.backups.at = r->backups.at;
    a.backups.len = r->backups.len;
    api_answer_to(req, 200, &answer_backups_schema, &a);
}

static void on_list(void *arg, int status, struct buf *output) {
    struct backup_list *l = arg;
    cleanup_arena struct arena a = {0};
    struct backups_result r;
    read_result(status, output, &a, &r);
    l->controller->backups->lists--;
    reply_list(l->controller, l->req, &r);
    free(l);
}

void api_backups(struct api_call *call) {
    struct controller *c = call->controller;
    struct error e = {0};
    if (!has_folder(c)) {
        reply_list(c, call->req, &(struct backups_result){0});
        return;
    }
    if (c->backups->lists >= LISTS_MAX) {
        api_error(call->req, 503, "EAGAIN",
                  "the folder of backups is being looked at; try again in a moment");
        return;
    }
    struct backup_list *l = xcalloc(1, sizeof *l);
    *l = (struct backup_list){c, call->req};
    if (ask(c, &(struct backups_question){.list = true}, LIST_MS, on_list, l, &e) < 0) {
        free(l);
        api_fail(call->req, &e);
        return;
    }
    c->backups->lists++;
}

void api_backup_make(struct api_call *call) {
    struct controller *c = call->controller;
    struct error e = {0};
    if (!has_folder(c))
        error_set(&e, EINVAL,
                  "no folder for backups is set: give `folder` in [backup] of the configuration file and "
                  "reload it, or run 'acequia backup FILE' on the controller's machine");
    else if (c->backups->running)
        error_set(&e, EBUSY, "a backup is being made; wait until it is in the list");
    else
        make(c, true, &e);
    if (e.code)
        api_fail(call->req, &e);
    else
        api_answer(call, &answer_done_schema, &(struct answer_done){true});
}
