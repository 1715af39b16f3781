// The live jobs of each user and job name, for singleton dependencies: a binary heap by id, so that the oldest is
// known at once, and adding or removing a job costs a logarithm. A job knows its place in the heap (name_place).
#include "state.h"

// One user's live jobs of one name. Found by a 64-bit hash with a secret key, which stands for user and name.
struct same_name {
    VEC(struct core_job *) jobs;
};

static uint64_t key_of(const struct core_job *j) {
    return hash_keyed(j->sub->user, strlen(j->sub->user)) * 31 + hash_keyed(j->sub->name, strlen(j->sub->name));
}

static void put(struct core *c, struct same_name *n, uint32_t place, struct core_job *j) {
    n->jobs.at[place] = j;
    j->name_place = place;
    c->singleton_work++;
}

static void sift_up(struct core *c, struct same_name *n, struct core_job *j, uint32_t place) {
    for (; place && n->jobs.at[(place - 1) / 2]->id > j->id; place = (place - 1) / 2)
        put(c, n, place, n->jobs.at[(place - 1) / 2]);
    put(c, n, place, j);
}

static void sift_down(struct core *c, struct same_name *n, struct core_job *j, uint32_t place) {
    for (uint32_t child; (child = 2 * place + 1) < n->jobs.len; place = child) {
        if (child + 1 < n->jobs.len && n->jobs.at[child + 1]->id < n->jobs.at[child]->id)
            child++;
        if (n->jobs.at[child]->id > j->id)
            break;
        put(c, n, place, n->jobs.at[child]);
    }
    sift_up(c, n, j, place);
}

void core_same_name_add(struct core *c, struct core_job *j) {
    uint64_t key = key_of(j);
    struct same_name *n = map_get(&c->same_name, key);
    if (!n)
        map_put(&c->same_name, key, n = xcalloc(1, sizeof *n));
    vec_push(&n->jobs, j);
    sift_up(c, n, j, n->jobs.len - 1);
}

void core_same_name_remove(struct core *c, struct core_job *j) {
    uint64_t key = key_of(j);
    struct same_name *n = map_get(&c->same_name, key);
    struct core_job *last = vec_pop(&n->jobs);
    if (last != j)
        sift_down(c, n, last, j->name_place);
    if (n->jobs.len)
        return;
    map_remove(&c->same_name, key);
    vec_done(&n->jobs);
    free(n);
}

struct core_job *core_same_name_oldest(const struct core *c, const struct core_job *like) {
    const struct same_name *n = map_get(&c->same_name, key_of(like));
    return n ? n->jobs.at[0] : NULL;
}

void core_same_name_done(struct core *c) {
    size_t it = 0;
    void *v;
    while (map_next(&c->same_name, &it, NULL, &v)) {
        struct same_name *n = v;
        vec_done(&n->jobs);
        free(n);
    }
    map_done(&c->same_name);
}
