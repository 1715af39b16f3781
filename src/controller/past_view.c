// GET /v1/at: starts `acequiad show-past`, which loads the state of that time and writes the answer into shared memory.
// The trial of a policy (policy_trial.c) is answered by a process in the same way. Everybody may look back at what
// everybody may see now; what is private stays so.
#include "past_view.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "answers_portal.h"
#include "base/log.h"
#include "base/text.h"
#include "controller/daemon.h"
#include "helper_process.h"
#include "listing.h"
#include "overview.h"
#include "sched/sched.h"
#include "snapshot_maker.h"

enum { VIEW_FD = 3, EXIT_NODATA = 3, EXIT_AGAIN = 4 };

struct past_view {
    struct controller *controller;
    struct net_request *req;  // NULL: it is answered
    char user[USER_NAME_MAX];
    int fd;
};

// --- the controller's side ---

static void view_free(struct past_view *v) {
    close(v->fd);
    free(v);
}

static void reply_with_memory(struct past_view *v) {
    struct stat st;
    void *data = MAP_FAILED;
    if (fstat(v->fd, &st) == 0 && st.st_size > 0 && st.st_size <= PAST_ANSWER_MAX)
        data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, v->fd, 0);
    if (data == MAP_FAILED) {
        api_error(v->req, 503, "EIO", "the state of that time cannot be read; try again later");
        return;
    }
    net_reply(v->req, 200, "application/json", data, (size_t)st.st_size);
    munmap(data, (size_t)st.st_size);
}

static void on_answer(void *arg, int status, struct buf *output) {
    struct past_view *v = arg;
    struct controller *c = v->controller;
    for (uint32_t i = 0; i < c->past_views.len; i++)
        if (c->past_views.at[i] == v) {
            vec_remove_swap(&c->past_views, i);
            break;
        }
    if (!v->req)
        ;  // the controller stops, and has said so
    else if (status == 0)
        reply_with_memory(v);
    else if (status == EXIT_NODATA)
        api_error(v->req, 404, "ENODATA", "time_ms: the kept history does not reach back to that time");
    else
        api_error(v->req, 503, "EAGAIN", "the state of that time cannot be read now; try again later");
    view_free(v);
}

static uint32_t views_of(const struct controller *c, const char *user) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->past_views.len; i++)
        n += streq(c->past_views.at[i]->user, user);
    return n;
}

void past_process_answer(struct api_call *call, char *const *args, unsigned limit_ms) {
    struct controller *c = call->controller;
    struct error e = {0};
    if (!c->program)
        error_set(&e, ENOTSUP,
                  "the state of an earlier time cannot be shown: the program that reads it is missing");
    else if (views_of(c, call->actor.user) >= PAST_USER_VIEWS_MAX)
        error_set(&e, EAGAIN, "you are viewing an earlier state already; try again when that is answered");
    else if (c->past_views.len >= PAST_VIEWS_MAX)
        error_set(&e, EAGAIN, "too many users are viewing earlier states; try again in a moment");
    if (e.code) {
        api_fail(call->req, &e);
        return;
    }
    struct past_view *v = xcalloc(1, sizeof *v);
    v->controller = c;
    v->req = call->req;
    snprintf(v->user, sizeof v->user, "%s", call->actor.user);
    v->fd = memfd_create("acequia-past", MFD_CLOEXEC);
    struct helper_question q = {
        .path = c->program, .args = args, .answer = v->fd, .limit_ms = limit_ms, .done = on_answer, .arg = v};
    if (v->fd >= 0 && helper_ask(c, &q, &e) == 0) {
        vec_push(&c->past_views, v);
        return;
    }
    log_warn("the state of an earlier time cannot be shown: %s", e.code ? e.text : strerror(errno));
    api_error(call->req, 503, "EAGAIN", "the state of that time cannot be read now; try again later");
    if (v->fd >= 0)
        close(v->fd);
    free(v);
}

void api_at(struct api_call *call) {
    struct controller *c = call->controller;
    const struct actor *actor = &call->actor;
    int64_t time_ms = ((const struct query_at *)call->query)->time_ms, now_ms = controller_now_ms();
    char time[24];
    snprintf(time, sizeof time, "%lld", (long long)(time_ms ? time_ms : now_ms));
    if (time_ms > now_ms) {
        struct error e = {0};
        error_set(&e, EINVAL, "time_ms: it lies in the future");
        api_fail(call->req, &e);
        return;
    }
    char *args[] = {"acequiad",
                    "show-past",
                    (char *)(uintptr_t)c->place,
                    (char *)(uintptr_t)c->paths.state,
                    time,
                    (char *)(uintptr_t)actor->user,
                    actor->admin      ? "admin"
                    : actor->operates ? "operator"
                                      : "user",
                    (char *)(uintptr_t)(actor->project ? actor->project : ""),
                    (char *)(uintptr_t)config_others_jobs_words[c->config.cluster.others_jobs],
                    NULL};
    past_process_answer(call, args, PAST_VIEW_MS);
}

void past_views_stop(struct controller *c) {
    for (uint32_t i = 0; i < c->past_views.len; i++) {
        struct past_view *v = c->past_views.at[i];
        api_error(v->req, 503, "ENOTCONN", "the controller is stopping; try again later");
        v->req = NULL;
    }
}

void past_views_done(struct controller *c) {
    helpers_free(c);  // they have our descriptors
    for (uint32_t i = 0; i < c->past_views.len; i++)
        view_free(c->past_views.at[i]);
    vec_done(&c->past_views);
}

// --- the other process ---

static void write_jobs(struct listing *l) {
    static const uint32_t waiting = 1u << JOB_PENDING;
    json_open(&l->w, '[');
    l->limit = PAST_ROWS_MAX;
    l->states = ~waiting;
    core_each_job(l->controller->core, listing_live, l);
    listing_fold_end(l);
    l->states = waiting;
    if (l->rows < l->limit)
        core_each_job(l->controller->core, listing_live, l);
    listing_fold_end(l);
    json_close(&l->w, ']');
}

// Why jobs wait is known after a scheduling pass, which the journal does not record.
static void decide(struct core *core, int64_t time_ms) {
    struct sched_decisions d;
    sched_decide(core_world(core), time_ms, core_policy(core), &d);
    sched_decisions_done(&d);
}

static void write_view(struct controller *c, const struct actor *viewer, int64_t time_ms, struct buf *out) {
    struct listing l;
    struct arena a = {0};
    struct core_counts n;
    struct answer_shares shares;
    struct answer_at at = {
        .time_ms = time_ms, .seq = core_seq(c->core), .oldest_ms = past_oldest_ms(c->place, c->paths.state)};
    decide(c->core, time_ms);
    listing_init_plain(&l, c, viewer);
    l.now = time_ms;
    write_jobs(&l);
    core_counts(c->core, &n);
    struct answer_states states = {0};
    memcpy(states.by_state, n.by_state, sizeof states.by_state);
    api_fill_shares(c->core, &a, &shares);
    overview_nodes(c, &a, &at.nodes.at, &at.nodes.len);
    at.jobs = buf_str(&l.out);
    at.complete = l.rows < l.limit;
    at.states = &states;
    at.shares = &shares;
    schema_write_json(&answer_at_schema, &at, &(struct json_writer){.out = out});
    buf_addc(out, '\n');
    listing_done(&l);
    arena_done(&a);
}

int past_process_write(const struct buf *answer) {
    for (size_t at = 0; at < answer->len;) {
        ssize_t n = write(VIEW_FD, answer->data + at, answer->len - at);
        if (n <= 0)
            return 1;
        at += (size_t)n;
    }
    return 0;
}

int controller_past_main(int argc, char **argv) {
    struct core_config config;
    struct error e = {0};
    int64_t time_ms;
    int others = argc == 8 ? schema_word_find(config_others_jobs_words, argv[7]) : -1;
    if (others < 0 || parse_i64(argv[3], &time_ms) < 0) {
        log_error("show-past is started by the controller");
        return 2;
    }
    controller_stay_behind();
    core_config_default(&config);
    struct controller *c = xcalloc(1, sizeof *c);
    c->core = core_new(&config);
    c->place = argv[1];
    c->paths.state = argv[2];
    int r = past_load(c->place, c->paths.state, time_ms, c->core, &e);
    if (r < 0) {
        log_warn("%s", e.text);
        return r == -ENODATA ? EXIT_NODATA : EXIT_AGAIN;
    }
    struct actor viewer = {.user = argv[4],
                           .admin = streq(argv[5], "admin"),
                           .operates = streq(argv[5], "operator"),
                           .project = *argv[6] ? argv[6] : NULL};
    c->config.cluster.others_jobs = (enum others_jobs)others;
    struct buf out = {0};
    write_view(c, &viewer, time_ms, &out);
    return past_process_write(&out);  // the memory goes with the process
}
