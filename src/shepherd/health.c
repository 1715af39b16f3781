// Owns whether the attempt's program is ready for others. It is asked again and again: by a command, which is a step in
// the job's own control group and network; or over HTTP, by a small process that has become the job's user, since the
// socket it asks may lie in anybody's file system. What changes is written for the agent. A program that stays sick is
// ended, and so is one that has not been used for as long as the job allows.
//
// Example with 3 failures every 5 s: two failures change nothing, after the third it is sick and not served, one good
// answer makes it ready again, and after the sixth in a row the job ends as failed.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "model/event.h"
#include "shepherd.h"

enum {
    FIRST_MS = 50,           // after the start
    STARTING_HTTP_MS = 100,  // between questions until it is ready: others wait for it
    STARTING_STEP_MS =
        1000,  // at most, for a command; at first oftener: an eighth of the time since its start
    STARTING_STEP_PART = 8,
    ANSWER_MAX = 1 << 20,
    TEXT_MAX = SPOOL_HEALTH_TEXT_MAX,
    WARN_PART = 5,            // of the idle time is left when it is said that it will be closed,
    WARN_MAX_MS = 600 * 1000  // and no more than this
};

// Written by the process that asks, as the job's user: nothing in it is believed beyond its bounds.
struct health_page {
    char text[TEXT_MAX];
    int64_t used_ms;  // time of day; 0: not known
    bool busy;        // it is used now
};

static struct shepherd_unit *main_unit(struct shepherd *s) {
    return &s->units[0];
}

static void tell(struct shepherd *s, enum job_health state, const char *reason) {
    struct shepherd_unit *m = main_unit(s);
    struct spool_health h = {.health = state};
    struct spool_hint hint = {.job = m->status.job, .attempt = m->status.attempt, .state = SPOOL_HEALTH};
    if (s->health.state == state)
        return;
    s->health.state = state;
    snprintf(h.reason, sizeof h.reason, "%s", reason);
    spool_write_health(m->file, &h);
    if (write(s->hint_fd, &hint, sizeof hint) < 0)
        return;  // full: the agent looks around by itself now and then
}

static void end_attempt(struct shepherd *s, enum end_cause why, const char *text, int64_t now_ms) {
    struct shepherd_unit *m = main_unit(s);
    snprintf(m->status.text, sizeof m->status.text, "%s", text);
    attempt_end(s, ENDED_KILLED, why, SIGTERM, m->req.grace_ms, now_ms);
}

// --- what the answers mean ---

static void time_of_day(int64_t wall_ms, char out[static 16]) {
    time_t t = (time_t)(wall_ms / 1000);
    struct tm tm;
    if (!localtime_r(&t, &tm) || !strftime(out, 16, "%H:%M", &tm))
        *out = 0;
}

static void look_at_use(struct shepherd *s, int64_t now_ms) {
    struct shepherd_health *k = &s->health;
    const struct launch_request *r = &main_unit(s)->req;
    int64_t wall_ms = clock_wall_ms(), warn_ms = r->idle_ms / WARN_PART;
    char text[TEXT_MAX], since[16], until[16];
    if (!r->idle_ms || !k->page)
        return;
    // The clock was set: the time since the last use is the same as before. What the program says is a time of day of
    // before as well, until it says another one.
    k->used_ms += clock_watch_jump(&k->clock, wall_ms, now_ms);
    if (k->page->busy || k->page->used_ms != k->said_ms) {
        int64_t used_ms = k->page->busy ? wall_ms : k->page->used_ms;
        k->said_ms = k->page->used_ms;
        if (used_ms > k->used_ms)
            k->used_ms = used_ms < wall_ms ? used_ms : wall_ms;
    }
    int64_t idle_ms = wall_ms - k->used_ms;
    warn_ms = warn_ms < WARN_MAX_MS ? warn_ms : WARN_MAX_MS;
    time_of_day(k->used_ms, since);
    time_of_day(k->used_ms + r->idle_ms, until);
    if (idle_ms >= r->idle_ms && k->state == HEALTH_IDLE) {  // never without having said so before
        snprintf(text, sizeof text, "closed: no kernel was used since %s", since);
        end_attempt(s, END_IDLE, text, now_ms);
    } else if (idle_ms >= r->idle_ms - warn_ms) {
        snprintf(text, sizeof text, "no kernel was used since %s; it is closed at %s if that stays so", since,
                 until);
        tell(s, HEALTH_IDLE, text);
    } else {
        tell(s, HEALTH_READY, "");
    }
}

static void answered(struct shepherd *s, bool ok, const char *text, int64_t now_ms) {
    struct shepherd_health *k = &s->health;
    const struct launch_request *r = &main_unit(s)->req;
    char reason[TEXT_MAX], shown[TEXT_MAX / 2];
    int64_t starting_ms = STARTING_HTTP_MS;
    if (r->health == LAUNCH_HEALTH_COMMAND) {
        starting_ms = (now_ms - main_unit(s)->start_ms) / STARTING_STEP_PART;
        starting_ms = starting_ms < STARTING_HTTP_MS   ? STARTING_HTTP_MS
                      : starting_ms > STARTING_STEP_MS ? STARTING_STEP_MS
                                                       : starting_ms;
    }
    bool starting = k->state == HEALTH_STARTING;
    k->asked_ms = 0;
    k->next_ms = now_ms + (starting && !ok && starting_ms < r->health_interval_ms ? starting_ms
                                                                                  : r->health_interval_ms);
    if (main_unit(s)->phase != UNIT_RUNNING || s->suspended)
        return;  // stopped processes do not answer
    k->failures = ok ? 0 : k->failures + 1;
    str_printable(text, shown, sizeof shown);
    if (ok && !r->idle_ms)
        tell(s, HEALTH_READY, "");
    else if (ok)
        look_at_use(s, now_ms);
    else if (starting && now_ms - main_unit(s)->start_ms >= r->health_start_ms) {
        snprintf(reason, sizeof reason, "it was not ready %lld s after its start: %s",
                 (long long)r->health_start_ms / 1000, shown);
        end_attempt(s, END_UNHEALTHY, reason, now_ms);
    } else if (!starting && k->failures >= r->health_failures) {
        tell(s, HEALTH_SICK, shown);
        if (k->failures / 2 < r->health_failures)
            return;
        snprintf(reason, sizeof reason, "its health check failed %u times in a row: %s", k->failures, shown);
        end_attempt(s, END_UNHEALTHY, reason, now_ms);
    }
}

// --- over HTTP, in a process of its own ---

_Noreturn __attribute__((format(printf, 2, 3))) static void give_up(struct health_page *page, const char *fmt,
                                                                    ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(page->text, sizeof page->text, fmt, args);
    va_end(args);
    _exit(1);
}

static int connect_to(struct shepherd *s, struct health_page *page) {
    const struct launch_request *r = &main_unit(s)->req;
    const char *path = network_socket_path(s, r->health_port);
    int fd = path ? network_connect_socket(s, path) : network_connect(s, r->health_port);
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int err = fd < 0 ? -fd : 0;
    socklen_t len = sizeof err;
    if (fd >= 0 && (poll(&p, 1, -1) < 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0))
        err = errno;
    if (err == ECONNREFUSED && path)
        give_up(page, "nothing listens on the socket %.100s", path);
    if (err == EADDRINUSE)
        give_up(page, "another program of the same user listens on port %u of the node", r->health_port);
    if (err == ECONNREFUSED)
        give_up(page, "nothing listens on port %u", r->health_port);
    if (err)
        give_up(page, "port %u: %s", r->health_port, strerror(err));
    fcntl(fd, F_SETFL, 0);
    return fd;
}

// The answer's body; the program closes the connection after it. Exits unless the status is one of success.
static const char *get(struct shepherd *s, struct health_page *page, const char *path, char *out) {
    char head[HEALTH_CHECK_MAX + 128];
    size_t have = 0;
    int fd = connect_to(s, page), status, used = 0;
    int n = snprintf(head, sizeof head,
                     "GET %s HTTP/1.0\r\nHost: localhost\r\nUser-Agent: acequia-health\r\n\r\n", path);
    if (send(fd, head, (size_t)n, MSG_NOSIGNAL) != n)
        give_up(page, "the connection ended before the question");
    for (ssize_t got; have < ANSWER_MAX && (got = recv(fd, out + have, ANSWER_MAX - have, 0)) > 0;)
        have += (size_t)got;
    close(fd);
    out[have] = 0;
    if (sscanf(out, "HTTP/1.%*1[01] %3d%n", &status, &used) != 1 || !used)
        give_up(page, "the answer is not HTTP");
    if (status < 200 || status > 399)
        give_up(page, "HTTP status %d for %.100s", status, path);
    const char *body = strstr(out, "\r\n\r\n");
    return body ? body + 4 : out + have;
}

// "2026-11-16T10:25:50.123456Z"
static int64_t read_time(const char *text) {
    struct tm tm = {0};
    if (!text || sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour,
                        &tm.tm_min, &tm.tm_sec) != 6)
        return 0;
    tm.tm_year -= 1900;
    tm.tm_mon--;
    return (int64_t)timegm(&tm) * 1000;
}

// Kernels and terminals say themselves when they were last used.
static void take_use(struct health_page *page, const char *body) {
    cleanup_arena struct arena a = {0};
    struct json *list;
    if (json_parse(body, strlen(body), &a, &list, NULL) < 0 || list->type != JSON_ARRAY)
        return;
    for (uint32_t i = 0; i < list->len; i++) {
        int64_t used_ms = read_time(json_str(&list->items[i], "last_activity"));
        page->busy |= streq(json_str(&list->items[i], "execution_state"), "busy");
        if (used_ms > page->used_ms)
            page->used_ms = used_ms;
    }
}

_Noreturn static void ask_http(struct shepherd *s, pid_t shepherd) {
    static char answer[ANSWER_MAX + 1];
    const struct launch_request *r = &main_unit(s)->req;
    struct health_page *page = s->health.page;
    sigset_t none;
    prctl(PR_SET_NAME, "health-check");
    child_reset_signals();
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (!network_enter(s) || !shepherd_become(r) || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 ||
        getppid() != shepherd)
        _exit(1);
    get(s, page, r->health == LAUNCH_HEALTH_JUPYTER ? "/api" : r->health_path, answer);
    if (r->health == LAUNCH_HEALTH_JUPYTER && r->idle_ms) {
        take_use(page, get(s, page, "/api/kernels", answer));
        take_use(page, get(s, page, "/api/terminals", answer));
    }
    _exit(0);
}

static void start_asker(struct shepherd *s, int64_t now_ms) {
    struct shepherd_health *k = &s->health;
    pid_t self = getpid();
    if (!k->page)
        k->page = mmap(NULL, sizeof *k->page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (k->page == MAP_FAILED)
        k->page = NULL;
    if (k->page)
        *k->page = (struct health_page){0};
    k->stopped = false;
    // Here, because the process that asks cannot see all that we do, and is gone with what it has found out.
    if (!network_socket_path(s, main_unit(s)->req.health_port))
        network_check(s, main_unit(s)->req.health_port);
    k->asker = k->page ? fork() : -1;
    if (k->asker == 0)
        ask_http(s, self);
    if (k->asker < 0) {
        k->asker = 0;
        answered(s, false, "the node cannot start a process to ask", now_ms);
    }
}

bool health_reaped(struct shepherd *s, pid_t pid, int status) {
    struct shepherd_health *k = &s->health;
    if (!pid || pid != k->asker)
        return false;
    k->asker = 0;
    k->page->text[TEXT_MAX - 1] = 0;
    // One that somebody else has killed says nothing about the program: it is asked once more.
    if (WIFSIGNALED(status) && !k->stopped && !k->asked_again) {
        k->asked_again = true;
        k->asked_ms = 0;
        k->next_ms = clock_mono_ms() + STARTING_HTTP_MS;
        return true;
    }
    const char *killed = k->stopped ? "no answer in time" : "the process that asked was killed";
    k->asked_again = false;
    answered(s, WIFEXITED(status) && WEXITSTATUS(status) == 0, WIFSIGNALED(status) ? killed : k->page->text,
             clock_mono_ms());
    return true;
}

// --- by a command ---

static void start_step(struct shepherd *s, int64_t now_ms) {
    struct shepherd_unit *u = NULL;
    struct error e = {0};
    for (int i = 1; i < UNITS_MAX && !u; i++)
        if (s->units[i].phase == UNIT_FREE)
            u = &s->units[i];
    if (!u || unit_load(s, u, SPOOL_HEALTH_STEP, &e) < 0) {
        if (u)
            unit_done(s, u);
        answered(s, false, u ? e.text : "the job has too many steps", now_ms);
        return;
    }
    unit_start(s, u, now_ms);
}

void health_step_ended(struct shepherd *s, struct shepherd_unit *u, int64_t now_ms) {
    char text[TEXT_MAX] = "no answer in time";
    bool ok = !u->verdict && u->worst == 0;
    if (u->verdict == ENDED_LAUNCH_FAILED)
        snprintf(text, sizeof text, "%.*s", TEXT_MAX - 1, u->status.text);
    else if (!u->verdict && WIFSIGNALED(u->worst))
        snprintf(text, sizeof text, "the check was ended by signal %d", WTERMSIG(u->worst));
    else if (!u->verdict && !ok)
        snprintf(text, sizeof text, "exit status %d of the check", WEXITSTATUS(u->worst));
    // As it was before, for the next time.
    u->status.state = SPOOL_CREATED;
    u->status.launch_code = LAUNCH_OK;
    u->status.text[0] = 0;
    unit_write(u);
    answered(s, ok, text, now_ms);
}

// --- when ---

static void stop_asking(struct shepherd *s, int64_t now_ms) {
    struct shepherd_unit *u = unit_find(s, SPOOL_HEALTH_STEP);
    s->health.stopped = true;
    if (s->health.asker > 0)
        kill(s->health.asker, SIGKILL);
    else if (u)
        unit_end(s, u, ENDED_KILLED, 0, SIGKILL, 0, now_ms);
}

void health_begin(struct shepherd *s, int64_t now_ms) {
    struct shepherd_unit *m = main_unit(s);
    if (!m->req.health || m->verdict)
        return;
    s->health.state = HEALTH_STARTING;
    s->health.next_ms = now_ms + FIRST_MS;
    s->health.used_ms = clock_wall_ms();
    clock_watch_jump(&s->health.clock, s->health.used_ms, now_ms);
}

int64_t health_due_ms(const struct shepherd *s) {
    const struct shepherd_health *k = &s->health;
    if (!k->state || s->units[0].phase != UNIT_RUNNING)
        return INT64_MAX;
    return k->asked_ms ? k->asked_ms + HEALTH_TIMEOUT_S * 1000 : s->suspended ? INT64_MAX : k->next_ms;
}

void health_timers(struct shepherd *s, int64_t now_ms) {
    struct shepherd_health *k = &s->health;
    if (now_ms < health_due_ms(s))
        return;
    if (k->asked_ms) {
        k->asked_ms = now_ms;  // asked to stop again if that takes as long
        stop_asking(s, now_ms);
        return;
    }
    k->asked_ms = now_ms;
    if (main_unit(s)->req.health == LAUNCH_HEALTH_COMMAND)
        start_step(s, now_ms);
    else
        start_asker(s, now_ms);
}

void health_end(struct shepherd *s) {
    if (s->health.asker > 0)
        kill(s->health.asker, SIGKILL);
}
