// Users' usage: a moving average of what they hold, halved every half-life without use. Computed in integers
// only, so that every machine decides the same.
#include <assert.h>

#include "world_state.h"

// 2^-(1/2), 2^-(1/4), … in Q32.
static const uint64_t ROOTS[] = {
    3037000500, 3611622603, 3938502376, 4112874773, 4202935003, 4248701965, 4271771996, 4283353945,
    4289156690, 4292061010, 4293513907, 4294240540, 4294603903, 4294785595, 4294876445, 4294921870,
};

uint64_t sched_decay_q32(int64_t elapsed_ms, int64_t half_life_ms) {
    if (elapsed_ms <= 0 || half_life_ms <= 0)
        return 1ULL << 32;
    if (elapsed_ms / half_life_ms >= 32)
        return 0;
    uint64_t q = (1ULL << 32) >> (elapsed_ms / half_life_ms), rest = (uint64_t)(elapsed_ms % half_life_ms);
    uint64_t part = rest >> 47 ? (uint64_t)(((unsigned __int128)rest << 16) / (uint64_t)half_life_ms)
                               : (rest << 16) / (uint64_t)half_life_ms;
    for (unsigned bit; part; part ^= 1ULL << bit) {
        bit = 63 - (unsigned)__builtin_clzll(part);
        q = (q * ROOTS[15 - bit]) >> 32;
    }
    return q;
}

struct world_user *sched_user_slot(struct map *m, uint32_t owner, uint32_t user) {
    uint64_t key = (uint64_t)owner << 32 | user;
    struct world_user *u = map_get(m, key);
    if (!u) {
        u = xcalloc(1, sizeof *u);
        u->key = key;
        map_put(m, key, u);
    }
    return u;
}

int64_t sched_user_average(const struct world_user *u, int64_t now_ms, int64_t half_life_ms) {
    if (!u)
        return 0;
    if (u->average == u->cost)
        return u->cost;
    uint64_t q = sched_decay_q32(now_ms - u->at_ms, half_life_ms);
    __int128 past = (__int128)(u->average - u->cost) * (int64_t)q;
    return u->cost + (int64_t)(past / ((__int128)1 << 32));
}

// From now_ms on the user holds `cost` more (less, when negative).
void sched_user_charge(struct world_user *u, int64_t cost, int64_t now_ms, int64_t half_life_ms) {
    u->average = sched_user_average(u, now_ms, half_life_ms);
    if (now_ms > u->at_ms)
        u->at_ms = now_ms;
    u->cost += cost;
}

void world_half_life(struct world *w, int64_t half_life_ms) {
    assert(half_life_ms > 0);
    w->usage.half_life_ms = half_life_ms;
}

void world_half_life_from(struct world *w, int64_t half_life_ms, int64_t now_ms) {
    size_t it = 0;
    void *v;
    if (half_life_ms == w->usage.half_life_ms)
        return;
    while (map_next(&w->usage.users, &it, NULL, &v))
        if (((struct world_user *)v)->at_ms)  // 0: it never used anything
            sched_user_charge(v, 0, now_ms, w->usage.half_life_ms);
    world_half_life(w, half_life_ms);
}

void world_usage_set(struct world *w, uint32_t project, uint32_t user, int64_t milli, int64_t at_ms) {
    struct world_user *u = sched_user_slot(&w->usage.users, project, user);
    u->average = milli;
    u->at_ms = at_ms;
}

int64_t world_usage(const struct world *w, uint32_t project, uint32_t user, int64_t now_ms) {
    return sched_user_average(map_get(&w->usage.users, (uint64_t)project << 32 | user), now_ms,
                              w->usage.half_life_ms);
}

bool world_usage_kept(const struct world *w, uint32_t project, uint32_t user, int64_t *milli, int64_t *at_ms) {
    const struct world_user *u = map_get(&w->usage.users, (uint64_t)project << 32 | user);
    if (!u || (!u->average && !u->cost && !u->at_ms))  // the entry was made by a look-up only
        return false;
    *milli = u->average;
    *at_ms = u->at_ms;
    return true;
}

// What the user uses: the moving average, and what it holds at this moment.
int64_t sched_user_load(const struct world *w, struct world_user *u, int64_t now_ms) {
    if (u->cached.average_pass != w->last_pass.number) {
        u->cached.average = sched_user_average(u, now_ms, w->usage.half_life_ms);
        u->cached.average_pass = w->last_pass.number;
    }
    return u->cached.average + u->cost + u->started_cost;
}
