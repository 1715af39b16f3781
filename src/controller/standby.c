// A controller that shares its database with others. It follows the journal, tells clients who leads, and takes over
// when the lease has ended. One that has lost the lease, or cannot renew it, starts this program anew: whatever it knew
// that is not in the journal counts for nothing, and there is no way back from half a leader.
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "api.h"
#include "controller.h"
#include "controller/leadership.h"
#include "database_seen.h"
#include "snapshot_maker.h"

enum {
    LOOK_MS = 50,
    LEASE_WAIT_US = 10000,
    OPEN_AGAIN_MS = 500,
    TLS_AGAIN_MS = 1000,
    PROBLEM_AGAIN_MS = 30000,  // the same one is logged again after this long
    STAND_BACK_MS = 5000,      // after a hand-over another has this long to take the lease
};
#define STAND_BACK "ACEQUIA_STAND_BACK"  // in the environment of one that has handed over

struct standby {
    struct controller *controller;
    const struct store_config *config;
    uv_timer_t tick;
    uv_signal_t sigterm, sigint;
    uv_work_t work;
    struct net_server *server;
    struct store *opened;  // by the worker
    struct error open_error;
    int open_code;
    bool opening, leads, stop, ending, tls_open, noted;
    int64_t opened_ms, tls_ms, began_ms, problem_ms;
    struct leadership leadership;
    struct error failure;  // ends it
    int failed;
    char problem[ERROR_TEXT_MAX];  // why the database cannot be used; "": it can
};

// --- what clients are told ---

static void on_request(struct net_request *req, void *user) {
    struct standby *s = user;
    char text[ERROR_TEXT_MAX * 2];
    const struct store_lease *lease = &s->leadership.lease;
    bool known = lease->left_ms > 0 && !str_empty(lease->address);
    if (*s->problem)
        snprintf(text, sizeof text, "no controller leads: %s; running jobs go on", s->problem);
    else if (known)
        snprintf(text, sizeof text, "this controller does not lead; the leader is at %s", lease->address);
    else
        snprintf(text, sizeof text, "this controller does not lead, and none does yet; try again");
    if (known)
        net_reply_header(req, "Acequia-Leader", lease->address);
    net_reply_header(req, "Retry-After", "1");
    api_error(req, 503, "EREMOTE", text);
}

static int open_server(struct standby *s, struct error *e) {
    struct controller *c = s->controller;
    struct net_server_options o = {.on_request = on_request, .user = s};
    s->server = net_server_new(&c->loop, &o);
    return net_server_listen_unix(s->server, c->paths.socket, c->uid == 0 ? 0666 : 0600, e);
}

// The keys are in the database: the first leader has made them.
static void open_tls(struct standby *s) {
    struct controller *c = s->controller;
    struct error e = {0};
    if (s->tls_open || str_empty(c->config.cluster.listen) || clock_mono_ms() - s->tls_ms < TLS_AGAIN_MS)
        return;
    s->tls_ms = clock_mono_ms();
    int r = controller_listen_tls(c, s->server, &e);
    s->tls_open = r == 0;
    if (r < 0 && r != -ENOENT)
        log_warn("not listening for other machines yet: %s", e.text);
}

// --- the end ---

static void on_server_closed(void *user) {
    ((struct standby *)user)->server = NULL;
}

static void end(struct standby *s) {
    if (s->ending)
        return;
    s->ending = true;
    uv_close((uv_handle_t *)&s->tick, NULL);
    uv_close((uv_handle_t *)&s->sigterm, NULL);
    uv_close((uv_handle_t *)&s->sigint, NULL);
    net_server_close(s->server, 0, on_server_closed, s);
}

static void fail(struct standby *s, int code, const struct error *e) {
    s->failed = code;
    s->failure = *e;
    end(s);
}

static void on_signal(uv_signal_t *h, int number) {
    struct standby *s = h->data;
    s->stop = true;
    end(s);
}

// --- following ---

// Said once, and then now and then.
static void note_problem(struct standby *s, const char *text) {
    int64_t now = clock_mono_ms();
    bool news = !*s->problem || now - s->problem_ms > PROBLEM_AGAIN_MS;
    if (*text && news) {
        log_warn("%s; waiting for it", text);
        s->problem_ms = now;
    } else if (!*text && *s->problem) {
        log_info("the database answers again");
    }
    snprintf(s->problem, sizeof s->problem, "%s", text);
}

static void do_open(uv_work_t *w) {
    struct standby *s = w->data;
    s->open_error = (struct error){0};
    s->open_code = store_open(s->config, &s->opened, &s->open_error);
}

static bool is_away(int code) {
    return code == -EPIPE || code == -ETIMEDOUT;
}

static void after_open(uv_work_t *w, int status) {
    struct standby *s = w->data;
    struct controller *c = s->controller;
    s->opening = false;
    if (s->open_code == 0) {
        c->store = s->opened;
        pipeline_attach(c->pipeline, c->store);
    } else if (is_away(s->open_code)) {
        note_problem(s, s->open_error.text);
    } else if (!s->ending) {
        fail(s, s->open_code, &s->open_error);
    }
}

static void open_store(struct standby *s) {
    if (s->opening || clock_mono_ms() - s->opened_ms < OPEN_AGAIN_MS)
        return;
    s->opening = true;
    s->opened_ms = clock_mono_ms();
    s->work.data = s;
    uv_queue_work(&s->controller->loop, &s->work, do_open, after_open);
}

// One that has handed over lets others go first.
static bool may_claim(const struct standby *s) {
    return !getenv(STAND_BACK) || clock_mono_ms() - s->began_ms > STAND_BACK_MS;
}

static void on_tick(uv_timer_t *t) {
    struct standby *s = t->data;
    struct controller *c = s->controller;
    if (!c->store) {
        open_store(s);
        return;
    }
    struct leadership *l = &s->leadership;
    struct error e = {0};
    uint64_t leader = l->lease.term;
    bool had_read = l->read;
    enum leadership_next next = leadership_follow(l, c->pipeline, may_claim(s), &e);
    if (l->lease.known && !l->lease.mine && l->lease.term != leader && l->lease.left_ms > 0)
        log_info("%s leads, term %llu; this controller follows", l->lease.address,
                 (unsigned long long)l->lease.term);
    if (!had_read && l->read) {
        log_info("the journal was read up to event %llu", (unsigned long long)core_seq(c->core));
        if (controller_database_check(c->paths.state, core_seq(c->core), &e) < 0)
            next = LEADERSHIP_FAIL;
    }
    open_tls(s);
    if (next == LEADERSHIP_ANEW)
        controller_step_down(c, e.text);
    if (next == LEADERSHIP_FAIL) {
        fail(s, -e.code, &e);
        return;
    }
    if (!s->noted && l->read && core_seq(c->core)) {
        s->noted = true;
        controller_note_database(c);
    }
    note_problem(s, e.code ? e.text : l->lease.mine ? "" : l->lease.problem);
    if (next == LEADERSHIP_LEAD) {
        s->leads = true;
        end(s);
    }
}

int controller_stand_by(struct controller *c, const struct store_config *config, struct error *e) {
    struct standby s = {.controller = c, .config = config, .began_ms = clock_mono_ms()};
    uv_timer_init(&c->loop, &s.tick);
    uv_signal_init(&c->loop, &s.sigterm);
    uv_signal_init(&c->loop, &s.sigint);
    s.tick.data = s.sigterm.data = s.sigint.data = &s;
    s.opened_ms = -OPEN_AGAIN_MS;
    uv_timer_start(&s.tick, on_tick, 0, LOOK_MS);
    uv_signal_start(&s.sigterm, on_signal, SIGTERM);
    uv_signal_start(&s.sigint, on_signal, SIGINT);
    int r = open_server(&s, e);
    if (r < 0)
        fail(&s, r, e);
    uv_run(&c->loop, UV_RUN_DEFAULT);  // until all of this is closed
    unsetenv(STAND_BACK);
    if (s.failed) {
        *e = s.failure;
        return s.failed;
    }
    if (s.stop)
        return 1;
    controller_lease_look(c);
    log_info("this controller leads, term %llu", (unsigned long long)c->term);
    return 0;
}

// --- leading ---

// As soon as there is something, and every minute while it leads.
void controller_note_database(struct controller *c) {
    struct database_seen seen = {c->place, pipeline_committed_seq(c->pipeline)};
    struct error e = {0};
    if (!c->shared || !seen.seq)
        return;
    if (controller_database_note(c->paths.state, &seen, &e) < 0)
        log_warn("%s", e.text);
    c->database_noted = true;  // also when it failed: the next try is in a minute
}

// While it is not known whether the lease is ours, nothing is said to anybody: the loop stands still.
void controller_lease_look(struct controller *c) {
    struct leadership l = {0};
    enum leadership_next next;
    if (!c->shared)
        return;
    int64_t began = clock_mono_ms(), most = (int64_t)c->config.store.lease_s * 1000;
    while ((next = leadership_look(&l, c->store, clock_mono_ms() - began, most)) == LEADERSHIP_WAIT)
        usleep(LEASE_WAIT_US);
    if (next == LEADERSHIP_ANEW)
        controller_step_down(c,
                             *l.lease.problem ? l.lease.problem : "another has the lease, or it has ended");
    c->term = l.lease.term;
    c->lease_until_ms = clock_mono_ms() + l.lease.left_ms;
}

void controller_step_down(struct controller *c, const char *why) {
    log_warn("this controller does not lead any more (%s); it starts anew and follows", why);
    controller_snapshot_stop(c);
    signal(SIGCHLD, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execl("/proc/self/exe", "acequiad", "controller", (char *)NULL);
    log_error("it cannot start anew: %s", strerror(errno));
    _exit(1);
}

void controller_hand_over(struct controller *c) {
    setenv(STAND_BACK, "1", 1);
    store_give_up(c->store);
    c->lease_until_ms = 0;  // another may lead at once: nothing is said before it is known
}
