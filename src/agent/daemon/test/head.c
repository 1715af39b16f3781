// Owns the tests' controller.
#include "head.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/daemon/daemon.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "rig.h"

static void on_message(struct net_ws *ws, enum ws_opcode type, const char *data, size_t len,
                       void *user) {
    struct head *h = user;
    struct said *s = xcalloc(1, sizeof *s);
    assert_int_equal(message_decode(data, len, &s->arena, &s->m), 0);
    assert_true(message_info(s->m.type)->from_agent);
    vec_push(&h->said, s);
    if (s->m.type == MESSAGE_HELLO) {
        struct message_welcome w = {.heartbeat_s = 10, .usage_every_s = 1, .grace_s = 2,
                                    .cluster = "test"};
        h->ws = ws;
        head_send(h, MESSAGE_WELCOME, &w);
    }
}

static void on_close(struct net_ws *ws, int status, const char *reason, void *user) {
    struct head *h = user;
    if (h->ws == ws)
        h->ws = NULL;
}

static const struct net_ws_callbacks callbacks = {.on_message = on_message, .on_close = on_close};

static void on_request(struct net_request *r, void *user) {
    struct head *h = user;
    if (strcmp(r->path, "/v1/agent") == 0 && !h->door_closed)
        net_upgrade_ws(r, NULL, &callbacks, h);
    else
        net_reply(r, 404, NULL, "", 0);
}

static void on_timer(uv_timer_t *t) {
    ((struct head *)t->data)->timed_out = true;
}

void said_free(struct said *s) {
    arena_done(&s->arena);
    free(s);
}

void head_forget(struct head *h) {
    while (h->said.len)
        said_free(vec_pop(&h->said));
}

void head_send(struct head *h, enum message_type type, const void *body) {
    cleanup_buf struct buf b = {0};
    struct message m = {.type = type};
    memcpy(&m.body, &body, sizeof body);
    message_encode(&m, &b);
    assert_non_null(h->ws);
    net_ws_send(h->ws, WS_BINARY, b.data, b.len);
}

static struct said *take(struct head *h, enum message_type type, uint64_t stream) {
    for (uint32_t i = 0; i < h->said.len; i++) {
        struct said *s = h->said.at[i];
        if (s->m.type != type ||
            (stream && ((struct message_stream *)s->m.body)->stream != stream))
            continue;
        vec_remove(&h->said, i);
        return s;
    }
    return NULL;
}

// A wait ends as soon as the message is there: on a busy machine it may take many times as long as usual.
enum { PATIENCE = 12 };

struct said *head_wait_stream(struct head *h, enum message_type type, uint64_t stream,
                              int timeout_ms) {
    struct said *s;
    h->timed_out = false;
    uv_timer_start(&h->timer, on_timer, (uint64_t)timeout_ms * PATIENCE, 0);
    while (!(s = take(h, type, stream)) && !h->timed_out)
        uv_run(&h->loop, UV_RUN_ONCE);
    uv_timer_stop(&h->timer);
    if (!s)
        fail_msg("the agent did not say %s within %d ms", message_info(type)->name, timeout_ms * PATIENCE);
    return s;
}

struct said *head_wait(struct head *h, enum message_type type, int timeout_ms) {
    return head_wait_stream(h, type, 0, timeout_ms);
}

void head_pump(struct head *h, int ms) {
    h->timed_out = false;
    uv_timer_start(&h->timer, on_timer, (uint64_t)ms, 0);
    while (!h->timed_out)
        uv_run(&h->loop, UV_RUN_ONCE);
}

void head_start(struct head *h, const char *shepherd, const char *cgroup) {
    struct error e = {0};
    struct net_server_options o = {.on_request = on_request, .user = h};
    *h = (struct head){.shepherd = shepherd, .cgroup = cgroup, .next_job = 1};
    snprintf(h->dir, sizeof h->dir, "/tmp/acequia-head-%d", getpid());
    snprintf(h->socket, sizeof h->socket, "%s/api.sock", h->dir);
    snprintf(h->folder, sizeof h->folder, "%s/agent", h->dir);
    snprintf(h->spool, sizeof h->spool, "/dev/shm/acequia-head-%d", getpid());
    mkdir(h->dir, 0755);
    uv_loop_init(&h->loop);
    uv_timer_init(&h->loop, &h->timer);
    h->timer.data = h;
    h->server = net_server_new(&h->loop, &o);
    if (net_server_listen_unix(h->server, h->socket, 0600, &e) < 0)
        fail_msg("%s", e.text);
}

int head_agent_main(char **argv) {
    static const char text[] = "[node *]\ngpus = v100:2:16G\ngpus_simulated = true\n";
    struct error e = {0};
    cleanup_config struct config config = {0};
    struct config_source source = {.file = "test"};
    if (config_parse(text, sizeof text - 1, &source, &config, &e) < 0)
        return 2;
    struct agent_options o = {.config = &config, .name = "n1", .folder = argv[2], .socket = argv[3],
                              .shepherd = argv[4], .cgroup = argv[5], .spool = argv[6]};
    log_set_level(getenv("AGENT_TEST_LOG") ? LOG_DEBUG : LOG_ERROR);
    int rc = agent_run(&o, &e);
    if (rc < 0)
        fprintf(stderr, "agent: %s\n", e.text);
    return rc < 0;
}

void head_agent_start(struct head *h) {
    fflush(NULL);
    h->agent = fork();
    if (h->agent == 0) {
        execl("/proc/self/exe", "test", "agent", h->folder, h->socket, h->shepherd, h->cgroup,
              h->spool, (char *)NULL);
        _exit(1);
    }
    struct said *s = head_wait(h, MESSAGE_HELLO, 5000);
    vec_push(&h->said, s);
}

void head_agent_kill(struct head *h, int signal) {
    kill(h->agent, signal);
    waitpid(h->agent, NULL, 0);
    while (h->ws)
        uv_run(&h->loop, UV_RUN_ONCE);
    head_forget(h);
}

void head_hang_up(struct head *h) {
    net_ws_abort(h->ws);
    while (h->ws)
        uv_run(&h->loop, UV_RUN_ONCE);
    head_forget(h);
}

void head_close_door(struct head *h, bool closed) {
    h->door_closed = closed;
    if (closed)
        head_hang_up(h);
}

static void remove_tree(const char *path);

void head_lose_spool(struct head *h) {
    remove_tree(h->spool);
}

static void on_server_closed(void *user) {
    ((struct head *)user)->closed = true;
}

static void remove_tree(const char *path) {
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/rm", "rm", "-rf", path, (char *)NULL);
        _exit(1);
    }
    waitpid(pid, NULL, 0);
}

int head_stop(struct head *h) {
    head_agent_kill(h, SIGTERM);
    net_server_close(h->server, 100, on_server_closed, h);
    while (!h->closed)
        uv_run(&h->loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&h->timer, NULL);
    uv_run(&h->loop, UV_RUN_DEFAULT);
    uv_loop_close(&h->loop);
    vec_done(&h->said);
    usleep(50000);
    int spool = open(h->spool, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int complaints = rig_complaints(spool);
    close(spool);
    remove_tree(h->dir);
    remove_tree(h->spool);
    return complaints;
}
