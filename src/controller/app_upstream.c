// Owns connections to programs of jobs. One that has answered completely, and said nothing more, is kept for a moment
// for the next request to the same program. They are closed from the loop, never inside a callback of their own.
// How much a program may send ahead begins small and grows while its client reads, as far as the user's budget goes:
// so a thousand idle connections cost little, and one download is fast.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "app_proxy.h"
#include "base/clock.h"
#include "base/text.h"

enum {
    WINDOW_FIRST = 64 << 10,
    WINDOW_MAX = STREAM_WINDOW_BYTES,
    USER_WINDOWS_MAX = 64 << 20,
    IDLE_MAX = 32,  // of one program
    GRANT_PART = 4,
};

static struct app_user *user_get(struct controller *c, const char *name) {
    struct app_user *u = strmap_get(&c->apps->users, name);
    if (!u) {
        size_t len = strlen(name) + 1;
        u = xcalloc(1, sizeof *u + len);
        memcpy(u->name, name, len);
        strmap_put(&c->apps->users, u->name, u);
    }
    u->refs++;
    return u;
}

static void user_put(struct controller *c, struct app_user *u) {
    if (!u || --u->refs)
        return;
    strmap_remove(&c->apps->users, u->name);
    free(u);
}

// --- from the program ---

// The client has read a whole window: the program may send twice as much ahead.
static void grow(struct app_upstream *u) {
    if (!u->port || u->received < u->window || u->window >= WINDOW_MAX ||
        u->user->windows + u->window > USER_WINDOWS_MAX)
        return;
    port_conn_grant(u->port, u->window);
    u->user->windows += u->window;
    u->window *= 2;
    u->received = 0;
}

static ssize_t on_data(void *ctx, const char *data, size_t len) {
    struct app_upstream *u = ctx;
    if (!u->conn) {
        u->dead = true;  // idle ones have nothing to say
        return 0;
    }
    u->received += len;
    size_t waiting = app_conn_data(u->conn, data, len);
    u->ungranted += len;  // after it: what is granted in between is what came before these bytes
    if (u->conn && waiting > u->window / 2)
        return STREAM_BACKLOG_BYTES + 1;  // held until the client has taken it
    grow(u);
    // Several pieces are granted in one message: while this waits, three quarters of the window are open. When the
    // exchange is over there is no client whose reading would grant the rest.
    if (u->conn && u->ungranted < u->window / GRANT_PART)
        return STREAM_BACKLOG_BYTES + 1;
    u->ungranted = 0;
    return 0;
}

static void gone(struct app_upstream *u, const char *error) {
    struct app_conn *x = u->conn;
    bool reused = u->reused && !u->received;
    u->conn = NULL;
    u->dead = true;
    if (x)
        app_conn_upstream_ended(x, error, reused);
}

static void on_eof(void *ctx) {
    gone(ctx, NULL);
}

static void on_end(void *ctx, const char *error) {
    struct app_upstream *u = ctx;
    u->port = NULL;
    gone(u, error);
}

static void on_room(void *ctx) {
    const struct app_upstream *u = ctx;
    if (u->conn)
        app_conn_room(u->conn);
}

// --- use ---

// Of the same user: what a program still had to say to one is never part of an answer to another.
static struct app_upstream *find_idle(struct controller *c, const struct app_name *name, const char *user,
                                      int64_t idle_ms) {
    int64_t now = clock_mono_ms();
    for (uint32_t i = c->apps->upstreams.len; i-- > 0;) {
        struct app_upstream *u = c->apps->upstreams.at[i];
        if (!u->dead && !u->conn && u->port && u->name.job == name->job && u->name.port == name->port &&
            now - u->idle_since_ms < idle_ms && streq(u->user->name, user))
            return u;
    }
    return NULL;
}

struct app_upstream *app_upstream_get(struct controller *c, const struct actor *actor,
                                      const struct app_name *name, struct app_conn *conn, int64_t idle_ms,
                                      struct error *e) {
    static const struct port_conn_client client = {
        .data = on_data, .eof = on_eof, .end = on_end, .room = on_room, .window = WINDOW_FIRST};
    struct app_upstream *u = find_idle(c, name, actor->user, idle_ms);
    if (u) {
        u->conn = conn;
        u->reused = true;
        u->received = 0;
        return u;
    }
    u = xcalloc(1, sizeof *u);
    *u = (struct app_upstream){.controller = c, .name = *name, .conn = conn, .window = WINDOW_FIRST};
    u->port = port_conn_open(c, actor, name->job, name->port, &client, u, e);
    if (!u->port) {
        free(u);
        return NULL;
    }
    u->user = user_get(c, actor->user);
    u->user->windows += u->window;
    vec_push(&c->apps->upstreams, u);
    return u;
}

static uint32_t idle_of(const struct controller *c, const struct app_name *name) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->apps->upstreams.len; i++) {
        const struct app_upstream *u = c->apps->upstreams.at[i];
        n += !u->conn && !u->dead && u->name.job == name->job && u->name.port == name->port;
    }
    return n;
}

void app_upstream_put(struct app_upstream *u, bool reusable) {
    u->conn = NULL;
    u->idle_since_ms = clock_mono_ms();
    u->dead |= !reusable || !u->port || idle_of(u->controller, &u->name) > IDLE_MAX;
    if (!u->dead && u->ungranted)
        app_upstream_drained(u);
}

bool app_upstream_send(struct app_upstream *u, const void *data, size_t len) {
    return u->port ? port_conn_send(u->port, data, len) : true;
}

void app_upstream_drained(struct app_upstream *u) {
    if (!u->port)
        return;
    u->ungranted = 0;
    port_conn_drained(u->port);
    grow(u);
}

static void upstream_free(struct app_upstream *u) {
    if (u->port)
        port_conn_close(u->port);
    u->user->windows -= u->window;
    user_put(u->controller, u->user);
    free(u);
}

void app_upstreams_turn(struct controller *c) {
    for (uint32_t i = c->apps->upstreams.len; i-- > 0;) {
        struct app_upstream *u = c->apps->upstreams.at[i];
        if (!u->dead)
            continue;
        vec_remove_swap(&c->apps->upstreams, i);
        upstream_free(u);
    }
}

void app_upstreams_tick(struct controller *c) {
    int64_t now = clock_mono_ms();
    for (uint32_t i = 0; i < c->apps->upstreams.len; i++) {
        struct app_upstream *u = c->apps->upstreams.at[i];
        u->dead |= !u->conn && now - u->idle_since_ms > APP_UPSTREAM_IDLE_MS;
    }
}

void app_upstreams_done(struct controller *c) {
    for (uint32_t i = 0; i < c->apps->upstreams.len; i++) {
        c->apps->upstreams.at[i]->port = NULL;  // streams are freed with their table
        upstream_free(c->apps->upstreams.at[i]);
    }
    vec_done(&c->apps->upstreams);
    strmap_done(&c->apps->users);
}
