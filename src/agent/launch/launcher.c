// Owns the launcher's life: its part of the event loop, the shepherds' parent process (the zygote), and what is due at
// every tick.
#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "launcher_state.h"

static int control_of(struct agent_node *n, uint64_t id, uint32_t attempt, const struct control_request *r) {
    return launcher_control(n->launcher, id, attempt, r);
}

static void execute_of(struct agent_node *n) {
    launcher_execute(n->launcher);
}

int launcher_open(struct agent_node *n, struct gpus *gpus, const struct launcher_options *o,
                  struct launcher **out, struct error *e) {
    struct launcher *l = xcalloc(1, sizeof *l);
    *l = (struct launcher){
        .node = n, .gpus = gpus, .hints_fd = -1, .ends_fd = -1, .away_since_ms = clock_mono_ms()};
    *out = l;
    n->launcher = l;
    n->control = control_of;
    n->execute = execute_of;
    spool_quota_init(&l->quota, spool_quota_limit(n->spool_fd));
    l->step_runner = agent_step_runner_new(n->logic, &launcher_step_host, l);
    int rc = launcher_ends_open(l, o->folder, e);
    if (rc == 0)
        rc = l->hints_fd = spool_open_hints(n->spool_fd, e);
    struct shepherds_options so = {.program = o->shepherd,
                                   .spool_path = n->spool_path,
                                   .cgroup = o->cgroup,
                                   .tag = o->tag,
                                   .open_files = o->open_files};
    return rc < 0 ? rc : launch_shepherds_start(&l->shepherds, &so, e);
}

static void on_hints(uv_poll_t *p, int status, int events) {
    launcher_read_hints(p->data);
}

static void on_users(uv_poll_t *p, int status, int events) {
    struct launcher *l = p->data;
    if (users_read(l->node->users, clock_mono_ms()))
        launcher_users_changed(l);
}

void launcher_start(struct launcher *l, struct streams *streams) {
    uv_loop_t *loop = &l->node->loop;
    l->streams = streams;
    uv_timer_init(loop, &l->retry_timer);
    uv_poll_init(loop, &l->hints, l->hints_fd);
    uv_poll_init(loop, &l->users_poll, users_fd(l->node->users));
    l->retry_timer.data = l->hints.data = l->users_poll.data = l;
    uv_poll_start(&l->hints, UV_READABLE, on_hints);
    uv_poll_start(&l->users_poll, UV_READABLE, on_users);
    l->started = true;
}

void launcher_stop(struct launcher *l) {
    uv_handle_t *handles[] = {(uv_handle_t *)&l->retry_timer, (uv_handle_t *)&l->hints,
                              (uv_handle_t *)&l->users_poll};
    l->stopping = true;
    l->streams = NULL;
    for (size_t i = 0; i < sizeof handles / sizeof *handles; i++)
        if (!uv_is_closing(handles[i]))
            uv_close(handles[i], NULL);
}

struct launcher *launcher_free(struct launcher *l) {
    if (!l)
        return NULL;
    launch_shepherds_free(l->shepherds);
    agent_step_runner_free(l->step_runner);
    spool_quota_done(&l->quota);
    launcher_drop_waiting(l);
    vec_done(&l->leftovers);
    vec_done(&l->images);
    vec_done(&l->waiting);
    if (l->hints_fd >= 0)
        close(l->hints_fd);
    if (l->ends_fd >= 0)
        close(l->ends_fd);
    free(l);
    return NULL;
}

void launcher_recover(struct launcher *l) {
    launcher_scan(l);
    launcher_ends_recover(l);
}

// One that dies as soon as it is started is not started again and again without a pause.
static void restart_zygote(struct launcher *l, int64_t now_ms) {
    struct error e = {0};
    if (!l->zygote_due_ms || now_ms < l->zygote_due_ms)
        return;
    l->zygote_due_ms = 0;
    l->zygote_started_ms = now_ms;
    if (launch_shepherds_restart(l->shepherds, &e) < 0) {
        log_error("%s", e.text);
        l->zygote_due_ms = now_ms + LAUNCHER_ZYGOTE_REST_MS;
    }
}

void launcher_child_exited(struct launcher *l) {
    int64_t now_ms = clock_mono_ms();
    pid_t zygote = launch_shepherds_pid(l->shepherds);
    if (l->zygote_due_ms || waitpid(zygote, NULL, WNOHANG) != zygote)
        return;
    log_warn("the shepherds' parent process ended; starting another");
    bool early = now_ms - l->zygote_started_ms < LAUNCHER_ZYGOTE_REST_MS;
    l->zygote_due_ms = early ? now_ms + LAUNCHER_ZYGOTE_REST_MS : now_ms;
    restart_zygote(l, now_ms);
}

void launcher_tick(struct launcher *l, int64_t now_ms) {
    bool welcomed = agent_logic_welcomed(l->node->logic);
    restart_zygote(l, now_ms);
    if (users_tick(l->node->users, now_ms) || l->unresolved.len)
        launcher_users_changed(l);
    if (now_ms >= l->next_look_ms) {
        l->next_look_ms = now_ms + LAUNCHER_LOOK_EVERY_MS;
        launcher_look(l);
        if (welcomed)
            l->away_since_ms = now_ms;
        else if (now_ms - l->away_since_ms > LAUNCHER_ENDS_AFTER_MS)
            launcher_ends_keep(l);
    }
    streams_look_at_steps(l->streams, welcomed, now_ms);
    launcher_leftovers_check(l, now_ms);
    launcher_images_look(l);
    launcher_image_list_look(l, now_ms);
    launcher_report_usage(l, now_ms);
}
