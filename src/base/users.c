// Owns what is remembered of users, and which questions are under way. An entry is a question, by
// number or by name, with its newest answer; entries with a question under way stay where they are.
#include "base/users.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/map.h"
#include "base/text.h"
#include "users_ask.h"
#include "base/vec.h"

struct known {
    uint64_t number;     // of the question under way; 0: none
    int64_t asked_ms, answered_ms, silent_until_ms;  // answered 0: never
    bool sent, refused;  // the question; refused: too many are under way
    bool absent;
    struct user_info info;
    uint32_t uid;
    char name[];         // asked for by name; "": by uid
};

struct users {
    int fd, asker_fd;
    pid_t pid;
    uint64_t next_number;
    uint32_t sent;          // questions that the asking process has
    struct map by_uid;      // uid + 1 → struct known
    struct strmap by_name;
    struct map asked;       // number → struct known
};

int users_start(struct users **out, struct error *e) {
    int pair[2], r;
    pid_t pid;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_set(e, errno, "the directory of users cannot be asked: %m");
    if ((r = users_ask_start(pair[1], pair[0], &pid)) < 0) {
        close(pair[0]);
        close(pair[1]);
        return error_set(e, -r, "the directory of users cannot be asked: %s", strerror(-r));
    }
    struct users *u = xcalloc(1, sizeof *u);
    *u = (struct users){.fd = pair[0], .asker_fd = pair[1], .pid = pid};
    *out = u;
    return 0;
}

static void info_done(struct user_info *i) {
    free(i->name);
    free(i->home);
    free(i->shell);
    free(i->groups);
    *i = (struct user_info){0};
}

static void known_free(struct known *k) {
    info_done(&k->info);
    free(k);
}

struct users *users_free(struct users *u) {
    if (!u)
        return NULL;
    size_t it = 0;
    void *v;
    while (map_next(&u->by_uid, &it, NULL, &v))
        known_free(v);
    for (it = 0; strmap_next(&u->by_name, &it, NULL, &v);)
        known_free(v);
    map_done(&u->by_uid);
    map_done(&u->asked);
    strmap_done(&u->by_name);
    close(u->fd);
    close(u->asker_fd);
    if (u->pid > 0 && kill(u->pid, SIGKILL) == 0)  // it asks nobody itself, so nothing keeps it
        waitpid(u->pid, NULL, 0);
    free(u);
    return NULL;
}

int users_fd(const struct users *u) {
    return u->fd;
}

// What is not waited for goes, all of it: a bound, and names come back on demand.
static void make_room(struct users *u) {
    VEC(struct known *) old = {0};
    size_t it = 0;
    void *v;
    if (u->by_uid.len + u->by_name.len < USERS_MAX)
        return;
    while (map_next(&u->by_uid, &it, NULL, &v))
        if (!((struct known *)v)->number)
            vec_push(&old, v);
    for (it = 0; strmap_next(&u->by_name, &it, NULL, &v);)
        if (!((struct known *)v)->number)
            vec_push(&old, v);
    for (uint32_t i = 0; i < old.len; i++) {
        if (*old.at[i]->name)
            strmap_remove(&u->by_name, old.at[i]->name);
        else
            map_remove(&u->by_uid, (uint64_t)old.at[i]->uid + 1);
        known_free(old.at[i]);
    }
    vec_done(&old);
}

static struct known *add(struct users *u, uint32_t uid, const char *name) {
    make_room(u);
    struct known *k = xcalloc(1, sizeof *k + strlen(name) + 1);
    memcpy(k->name, name, strlen(name) + 1);
    k->uid = uid;
    if (*name)
        strmap_put(&u->by_name, k->name, k);
    else
        map_put(&u->by_uid, (uint64_t)uid + 1, k);
    return k;
}

static void send_question(struct users *u, struct known *k) {
    struct users_question q = {.number = k->number, .uid = k->uid};
    memcpy(q.name, k->name, strlen(k->name) + 1);
    if (u->sent >= USERS_ASKING_MAX || send(u->fd, &q, sizeof q, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        return;
    k->sent = true;
    u->sent++;
}

static void send_waiting(struct users *u) {
    size_t it = 0;
    void *v;
    while (u->sent < USERS_ASKING_MAX && map_next(&u->asked, &it, NULL, &v)) {
        struct known *k = v;
        if (!k->sent && !k->refused)
            send_question(u, k);
    }
}

static void ask(struct users *u, struct known *k, int64_t now_ms) {
    k->number = ++u->next_number;
    k->asked_ms = now_ms;
    k->refused = false;
    map_put(&u->asked, k->number, k);
    send_question(u, k);
}

static void not_sent(struct users *u, struct known *k) {
    u->sent -= k->sent;
    k->sent = false;
}

static void asked_no_more(struct users *u, struct known *k) {
    not_sent(u, k);
    map_remove(&u->asked, k->number);
    k->number = 0;
}

static bool holds(const struct known *k, int64_t age_ms, int64_t now_ms) {
    return k->answered_ms && now_ms - k->answered_ms < age_ms;
}

static int64_t patience_ms(const struct known *k, int64_t now_ms) {
    return holds(k, USERS_STALE_MS, now_ms) && !k->absent ? USERS_KNOWN_PATIENCE_MS : USERS_PATIENCE_MS;
}

static int tell(const struct known *k, const struct user_info **out, struct error *e) {
    if (!k->absent)
        *out = &k->info;
    else if (*k->name)
        return error_set(e, ENOENT, "user %s does not exist", k->name);
    else
        return error_set(e, ENOENT, "user id %u does not exist", k->uid);
    return 0;
}

static int find(struct users *u, struct known *k, int64_t now_ms, const struct user_info **out, struct error *e) {
    bool rests = now_ms < k->silent_until_ms;
    if (holds(k, USERS_KEEP_MS, now_ms)) {
        if (!holds(k, USERS_REFRESH_MS, now_ms) && !k->number && !rests)
            ask(u, k, now_ms);
        return tell(k, out, e);
    }
    if (rests && holds(k, USERS_STALE_MS, now_ms) && !k->absent)
        return tell(k, out, e);
    if (rests)
        return error_set(e, ETIMEDOUT, "the directory of users does not answer; try again later");
    if (!k->number)
        ask(u, k, now_ms);
    return -EINPROGRESS;
}

int users_by_uid(struct users *u, uint32_t uid, int64_t now_ms, const struct user_info **out, struct error *e) {
    struct known *k = map_get(&u->by_uid, (uint64_t)uid + 1);
    return find(u, k ? k : add(u, uid, ""), now_ms, out, e);
}

int users_by_name(struct users *u, const char *name, int64_t now_ms, const struct user_info **out, struct error *e) {
    if (!*name || strlen(name) > USERS_NAME_MAX)
        return error_set(e, ENOENT, "there is no such user");
    struct known *k = strmap_get(&u->by_name, name);
    return find(u, k ? k : add(u, 0, name), now_ms, out, e);
}

const struct user_info *users_last(const struct users *u, uint32_t uid, const char *name) {
    const struct known *k = name ? strmap_get(&u->by_name, name) : map_get(&u->by_uid, (uint64_t)uid + 1);
    return k && k->answered_ms && !k->absent ? &k->info : NULL;
}

static bool well_formed(const struct users_answer *a, size_t len) {
    return a->name_len && a->home_len && a->shell_len && a->name_len <= USERS_NAME_MAX + 1 &&
           a->home_len <= USERS_TEXT_MAX && a->shell_len <= USERS_TEXT_MAX && a->ngroups <= USERS_GROUPS_MAX &&
           len == sizeof *a + a->name_len + a->home_len + a->shell_len + a->ngroups * sizeof(uint32_t);
}

static void take_info(struct known *k, const struct users_answer *a, const char *p) {
    info_done(&k->info);
    k->info.uid = a->uid;
    k->info.gid = a->gid;
    k->info.name = xstrndup(p, a->name_len - 1);
    k->info.home = xstrndup(p += a->name_len, a->home_len - 1);
    k->info.shell = xstrndup(p += a->home_len, a->shell_len - 1);
    k->info.groups = xmemdup(p += a->shell_len, a->ngroups * sizeof(uint32_t));
    k->info.ngroups = a->ngroups;
}

static void take(struct users *u, const struct users_answer *a, size_t len, int64_t now_ms) {
    struct known *k = map_get(&u->asked, a->number);
    if (!k)
        return;  // given up
    if (a->result == -EAGAIN) {
        not_sent(u, k);
        k->refused = true;
        return;
    }
    asked_no_more(u, k);
    if (a->result == 0 && well_formed(a, len)) {
        take_info(k, a, (const char *)(a + 1));
        k->absent = false;
    } else if (a->result == -ENOENT) {
        info_done(&k->info);
        k->absent = true;
    } else {
        k->silent_until_ms = now_ms + USERS_REST_MS;
        return;
    }
    k->answered_ms = now_ms;
    k->silent_until_ms = 0;
}

bool users_read(struct users *u, int64_t now_ms) {
    bool news = false;
    struct users_answer *a = xmalloc(USERS_ANSWER_MAX);
    ssize_t n;
    while ((n = recv(u->fd, a, USERS_ANSWER_MAX, MSG_DONTWAIT)) > 0)
        if ((size_t)n >= sizeof *a) {
            take(u, a, (size_t)n, now_ms);
            news = true;
        }
    free(a);
    send_waiting(u);
    return news;
}

bool users_tick(struct users *u, int64_t now_ms) {
    bool late = false;
    size_t it = 0;
    void *v;
    if (u->pid <= 0 || waitpid(u->pid, NULL, WNOHANG) == u->pid)
        users_ask_start(u->asker_fd, u->fd, &u->pid);  // what it was asked and had not taken yet is still there
    while (map_next(&u->asked, &it, NULL, &v)) {
        struct known *k = v;
        k->refused = false;
        if (now_ms - k->asked_ms < patience_ms(k, now_ms))
            continue;
        asked_no_more(u, k);
        k->silent_until_ms = now_ms + USERS_REST_MS;
        late = true;
    }
    send_waiting(u);
    return late;
}
