// Owns who waits for a turn and who has one. Whose turn is next, in this order: addresses without many wrong secrets,
// accounts without a wrong one from there, the address and then the account with the fewest turns under way, and of
// those the one whose last turn is longest ago.
#include "login_turns.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "admission.h"
#include "api.h"
#include "base/map.h"

enum {
    WAITING_MAX = 256,         // of each kind, all addresses together
    ADDRESS_WAITING_MAX = 64,  // of one address,
    GUESSER_WAITING_MAX = 32,  // of one with many wrong secrets,
    ACCOUNT_WAITING_MAX = 4,   // and of one account from one address
    RECENT = 256,              // turns that are remembered
    KEY_MAX = NET_ADDRESS_MAX + 600,
};

// How many at a time: of all, of one address, of all addresses with many wrong secrets.
static const struct {
    uint32_t all, address, guessers;
} limits[LOGIN_TURN_KINDS] = {
    [LOGIN_TURN_OWN] = {2, 2, 1}, [LOGIN_TURN_PAM] = {8, 4, 2}, [LOGIN_TURN_PROVIDER] = {8, 4, 2}};

struct login_turn {
    struct controller *controller;
    enum login_turn_kind kind;
    const struct net_request *req;
    char address[NET_ADDRESS_MAX];
    const char *account;            // behind the struct
    uint64_t address_id, login_id;  // hashes: of the address, and of address and account
    login_turn_come fn;
    void *arg;
    char text[];
};

struct login_turns {
    struct {
        VEC(struct login_turn *) waiting, running;
    } of[LOGIN_TURN_KINDS];
    struct {
        uint64_t address_id, login_id;
    } recent[RECENT];
    uint64_t given;  // turns, all kinds
    bool handing_out;
};

static struct login_turns *turns_of(struct controller *c) {
    if (!c->login_turns)
        c->login_turns = xcalloc(1, sizeof *c->login_turns);
    return c->login_turns;
}

uint32_t login_turns_running(const struct controller *c) {
    uint32_t n = 0;
    for (int k = 0; c->login_turns && k < LOGIN_TURN_KINDS; k++)
        n += c->login_turns->of[k].running.len;
    return n;
}

void login_turns_done(struct controller *c) {
    struct login_turns *all = c->login_turns;
    for (int k = 0; all && k < LOGIN_TURN_KINDS; k++) {
        for (uint32_t i = 0; i < all->of[k].waiting.len; i++)
            free(all->of[k].waiting.at[i]);
        for (uint32_t i = 0; i < all->of[k].running.len; i++)
            free(all->of[k].running.at[i]);
        vec_done(&all->of[k].waiting);
        vec_done(&all->of[k].running);
    }
    free(all);
    c->login_turns = NULL;
}

// --- whose turn is next ---

// Smaller comes first.
struct turn_rank {
    uint64_t parts[6];
};

static bool before(const struct turn_rank *a, const struct turn_rank *b) {
    for (size_t i = 0; i < sizeof a->parts / sizeof *a->parts; i++)
        if (a->parts[i] != b->parts[i])
            return a->parts[i] < b->parts[i];
    return false;
}

static struct turn_rank rank_of(const struct login_turns *all, const struct login_turn *t) {
    struct turn_rank r = {{admission_guesses_much(t->controller, t->address),
                           admission_has_guessed(t->controller, t->address, t->account)}};
    for (uint32_t i = 0; i < all->of[t->kind].running.len; i++) {
        const struct login_turn *other = all->of[t->kind].running.at[i];
        r.parts[2] += other->address_id == t->address_id;
        r.parts[4] += other->login_id == t->login_id;
    }
    // The number of its last turn; 0: none that is remembered.
    for (uint64_t i = all->given > RECENT ? all->given - RECENT : 0; i < all->given; i++) {
        if (all->recent[i % RECENT].address_id == t->address_id)
            r.parts[3] = i + 1;
        if (all->recent[i % RECENT].login_id == t->login_id)
            r.parts[5] = i + 1;
    }
    return r;
}

static bool may_begin(const struct login_turns *all, const struct login_turn *t) {
    uint32_t address = 0, guessers = 0;
    bool guesses = admission_guesses_much(t->controller, t->address);
    for (uint32_t i = 0; i < all->of[t->kind].running.len; i++) {
        const struct login_turn *other = all->of[t->kind].running.at[i];
        address += other->address_id == t->address_id;
        guessers += admission_guesses_much(t->controller, other->address);
    }
    return all->of[t->kind].running.len < limits[t->kind].all && address < limits[t->kind].address &&
           (!guesses || guessers < limits[t->kind].guessers);
}

static struct login_turn *take_next(struct login_turns *all, int kind) {
    struct turn_rank best = {{0}};
    uint32_t found = UINT32_MAX;
    for (uint32_t i = 0; i < all->of[kind].waiting.len; i++) {
        const struct login_turn *t = all->of[kind].waiting.at[i];
        if (!may_begin(all, t))
            continue;
        struct turn_rank r = rank_of(all, t);
        if (found == UINT32_MAX || before(&r, &best)) {
            best = r;
            found = i;
        }
    }
    if (found == UINT32_MAX)
        return NULL;
    struct login_turn *t = all->of[kind].waiting.at[found];
    vec_remove(&all->of[kind].waiting, found);
    return t;
}

static void begin(struct login_turns *all, struct login_turn *t) {
    all->recent[all->given % RECENT].address_id = t->address_id;
    all->recent[all->given % RECENT].login_id = t->login_id;
    all->given++;
    vec_push(&all->of[t->kind].running, t);
}

static void refuse(struct login_turn *t, int code, const char *text) {
    struct error e = {0};
    error_set(&e, code, "%s", text);
    t->fn(t->arg, &e);
    free(t);
}

// A turn may end as soon as it has begun, which leads here again: then the outer call goes on.
static void hand_out(struct controller *c) {
    struct login_turns *all = turns_of(c);
    struct login_turn *t;
    if (all->handing_out)
        return;
    all->handing_out = true;
    for (int kind = 0; kind < LOGIN_TURN_KINDS; kind++)
        while (!c->stopping && (t = take_next(all, kind))) {
            if (net_request_gone(t->req)) {
                refuse(t, EAGAIN, "nobody waits for the answer any more");
                continue;
            }
            begin(all, t);
            t->fn(t->arg, NULL);
        }
    all->handing_out = false;
}

// --- waiting ---

static uint32_t waiting_of(const struct login_turns *all, int kind, uint64_t address_id) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < all->of[kind].waiting.len; i++)
        n += all->of[kind].waiting.at[i]->address_id == address_id;
    return n;
}

// Too many wait: the last one of the address with the most gives way, if that has more than the new one's.
static bool make_room(struct login_turns *all, const struct login_turn *t) {
    uint32_t most = waiting_of(all, t->kind, t->address_id) + 1, victim = UINT32_MAX;
    for (uint32_t i = 0; i < all->of[t->kind].waiting.len; i++) {
        uint32_t n = waiting_of(all, t->kind, all->of[t->kind].waiting.at[i]->address_id);
        if (n > most || (n == most && victim != UINT32_MAX)) {
            most = n;
            victim = i;
        }
    }
    if (victim == UINT32_MAX)
        return false;
    struct login_turn *out = all->of[t->kind].waiting.at[victim];
    vec_remove(&all->of[t->kind].waiting, victim);
    refuse(out, EAGAIN, "too many logins at once; try again in a moment");
    return true;
}

static int wait_for(struct login_turns *all, struct login_turn *t, struct error *e) {
    uint32_t of_account = 0, of_address = waiting_of(all, t->kind, t->address_id);
    bool guesses = admission_guesses_much(t->controller, t->address);
    for (uint32_t i = 0; i < all->of[t->kind].waiting.len; i++)
        of_account += all->of[t->kind].waiting.at[i]->login_id == t->login_id;
    if (of_account >= ACCOUNT_WAITING_MAX)
        return error_set(e, EAGAIN, "too many logins of this user at once; try again in a moment");
    if (of_address >= (guesses ? GUESSER_WAITING_MAX : ADDRESS_WAITING_MAX))
        return error_set(e, EAGAIN, "too many logins from your address at once; try again in a moment");
    if (all->of[t->kind].waiting.len >= WAITING_MAX && !make_room(all, t))
        return error_set(e, EAGAIN, "too many logins at once; try again in a moment");
    vec_push(&all->of[t->kind].waiting, t);
    return 0;
}

static struct login_turn *turn_new(struct controller *c, const struct net_request *req, const char *account) {
    char key[KEY_MAX];
    size_t size = strlen(account) + 1;
    struct login_turn *t = xcalloc(1, sizeof *t + size);
    memcpy(t->text, account, size);
    t->account = t->text;
    t->controller = c;
    t->req = req;
    admission_address(req, t->address, sizeof t->address);
    int n = snprintf(key, sizeof key, "%s %s", t->address, account);
    t->address_id = hash_keyed(t->address, strlen(t->address));
    t->login_id = hash_keyed(key, n < KEY_MAX ? (size_t)n : KEY_MAX - 1);
    return t;
}

int login_turn_take(struct controller *c, enum login_turn_kind kind, const struct net_request *req,
                    const char *account, login_turn_come fn, void *arg, struct login_turn **out,
                    struct error *e) {
    struct login_turns *all = turns_of(c);
    struct login_turn *t = turn_new(c, req, account);
    t->kind = kind;
    t->fn = fn;
    t->arg = arg;
    int r = 1;
    if (may_begin(all, t))
        begin(all, t);
    else
        r = wait_for(all, t, e);
    if (r < 0)
        free(t);
    else
        *out = t;
    return r;
}

void login_turn_end(struct login_turn *t) {
    if (!t)
        return;
    struct controller *c = t->controller;
    struct login_turns *all = c->login_turns;
    for (uint32_t i = 0; i < all->of[t->kind].running.len; i++)
        if (all->of[t->kind].running.at[i] == t) {
            vec_remove_swap(&all->of[t->kind].running, i);
            break;
        }
    free(t);
    hand_out(c);
}
