// Owns the turn of requests. What a request does at once counts for its account (a user, a node, an address); when an
// account has used up its part of a turn of the loop, its further requests wait for the next turn. So nobody waits
// behind the thousands of requests that another may send at once. Requests of one account are handled in their order.
// Addresses of strangers have one part together, and take turns in it: anybody can have many of them.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "base/clock.h"
#include "base/text.h"

enum {
    ACCOUNT_TURN_US = 5000,
    ACCOUNT_TURN_REQUESTS = 256,
    COUNTED_BODY_BYTES =
        16 << 10,                  // of a body, that count as a request of their own: 4 MiB are all of a turn
    WAITING_MAX = 4096,            // requests of one account,
    WAITING_BYTES_MAX = 64 << 20,  // and the bytes of their bodies
};

struct request_account {
    struct request_part part;  // of this turn
    bool stranger;             // an address: nobody knows who it is
    VEC(struct net_request *) waiting;
    uint32_t next;  // of them
    size_t bytes;
    char key[];
};

static struct request_account *account_of(struct controller *c, const char *key) {
    struct request_account *a = strmap_get(&c->request_accounts, key);
    if (a)
        return a;
    size_t size = strlen(key) + 1;
    a = xcalloc(1, sizeof *a + size);
    memcpy(a->key, key, size);
    a->stranger = str_has_prefix(key, "address ");
    strmap_put(&c->request_accounts, a->key, a);
    return a;
}

static void account_free(struct request_account *a) {
    vec_done(&a->waiting);
    free(a);
}

static bool has_part(const struct controller *c, const struct request_part *p) {
    return (!c->request_turn_us || p->spent_us < c->request_turn_us) && p->handled < ACCOUNT_TURN_REQUESTS;
}

static bool may_handle(const struct controller *c, const struct request_account *a) {
    return has_part(c, &a->part) && (!a->stranger || has_part(c, &c->strangers));
}

static void spend(struct request_part *p, int64_t us, size_t body_len) {
    p->spent_us += us;
    p->handled += 1 + (uint32_t)(body_len / COUNTED_BODY_BYTES);
}

static void handle(struct controller *c, struct request_account *a, struct net_request *req) {
    int64_t began_us = req->began_us = clock_mono_us();
    size_t body_len = req->body_len;
    api_dispatch(c, req);
    int64_t took_us = clock_mono_us() - began_us;
    spend(&a->part, took_us, body_len);
    if (a->stranger)
        spend(&c->strangers, took_us, body_len);
}

static void on_idle(uv_idle_t *h) {
}

static void wait_for_turn(struct controller *c, struct request_account *a, struct net_request *req) {
    if (a->waiting.len - a->next >= WAITING_MAX || a->bytes + req->body_len > WAITING_BYTES_MAX) {
        api_error(req, 429, "EAGAIN", "too many requests at once; send fewer at a time");
        return;
    }
    // Those that were handled leave the front now and then. A row that is never empty would grow without end otherwise.
    if (a->next > WAITING_MAX) {
        memmove(a->waiting.at, a->waiting.at + a->next, (a->waiting.len - a->next) * sizeof *a->waiting.at);
        a->waiting.len -= a->next;
        a->next = 0;
    }
    assert(a->waiting.len <= 2 * WAITING_MAX);
    a->bytes += req->body_len;
    vec_push(&a->waiting, req);
    uv_idle_start(&c->request_idle, on_idle);
}

void api_request(struct net_request *req, void *user) {
    struct controller *c = user;
    struct request_account *a = account_of(c, net_request_account(req));
    if (!controller_leads(c) && !c->stopping)
        controller_lease_look(c);
    c->requests++;
    c->body_bytes += req->body_len;
    if (c->stopping || (a->next == a->waiting.len && may_handle(c, a)))
        handle(c, a, req);
    else
        wait_for_turn(c, a, req);
}

static void handle_waiting(struct controller *c, struct request_account *a) {
    while (a->next < a->waiting.len && may_handle(c, a)) {
        struct net_request *req = a->waiting.at[a->next++];
        a->bytes -= req->body_len;
        if (net_request_gone(req) && !strcmp(req->method, "GET"))
            api_error(req, 503, "EAGAIN", "nobody waits for the answer any more");
        else
            handle(c, a, req);
    }
}

// Of the strangers the one after the last that was handled comes first.
static void handle_in_turn(struct controller *c, struct request_account *const *list, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        struct request_account *a = list[(c->strangers_from + i) % n];
        if (a->next == a->waiting.len)
            continue;
        if (!has_part(c, &c->strangers)) {
            c->strangers_from = (c->strangers_from + i) % n;
            return;
        }
        handle_waiting(c, a);
    }
}

bool controller_requests_turn(struct controller *c) {
    size_t it = 0;
    void *v;
    bool waiting = false, worked = false;
    VEC(struct request_account *) strangers = {0};
    c->strangers = (struct request_part){0};
    while (strmap_next(&c->request_accounts, &it, NULL, &v)) {
        struct request_account *a = v;
        bool idle = !a->part.handled;
        a->part = (struct request_part){0};
        bool waits = a->next < a->waiting.len;
        worked |= waits;
        if (waits && a->stranger) {
            vec_push(&strangers, a);
        } else if (waits) {
            handle_waiting(c, a);
            waiting |= a->next < a->waiting.len;
        } else if (idle) {
            strmap_remove(&c->request_accounts, a->key);
            account_free(a);
        } else {
            a->waiting.len = a->next = 0;
        }
    }
    if (strangers.len)
        handle_in_turn(c, strangers.at, strangers.len);
    for (uint32_t i = 0; i < strangers.len; i++)
        waiting |= strangers.at[i]->next < strangers.at[i]->waiting.len;
    vec_done(&strangers);
    if (!waiting)
        uv_idle_stop(&c->request_idle);
    return worked;
}

void controller_requests_stop(struct controller *c) {
    size_t it = 0;
    void *v;
    while (strmap_next(&c->request_accounts, &it, NULL, &v)) {
        struct request_account *a = v;
        while (a->next < a->waiting.len)
            api_error(a->waiting.at[a->next++], 503, "ENOTCONN", "the controller stops; try again later");
    }
}

void controller_requests_done(struct controller *c) {
    size_t it = 0;
    void *v;
    while (strmap_next(&c->request_accounts, &it, NULL, &v))
        account_free(v);
    strmap_done(&c->request_accounts);
}

void controller_requests_init(struct controller *c) {
    uv_idle_init(&c->loop, &c->request_idle);
    c->request_turn_us = ACCOUNT_TURN_US;
}
