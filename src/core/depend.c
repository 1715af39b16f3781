// Dependencies between jobs: which job waits for which, and when the wait is over. Evaluated while events are
// applied, so that a replay gives the same result; terms about ended jobs are answered from their outcomes.
#include <assert.h>
#include <errno.h>

#include "base/text.h"
#include "state.h"

enum depend_verdict { HOLDS, WAITS, NEVER };
enum { CYCLE_SEARCH_MAX = 2000 };  // jobs looked at; every element of a large action makes one search

static const struct dependency *terms_of(const struct submission *s) {
    static const struct dependency none;
    return s->dependency ? &s->dependency->terms : &none;
}

static enum depend_verdict judge(enum dependency_type type, bool begun, bool ended, bool ok, bool failed) {
    switch (type) {
    case AFTER: return begun || ended ? HOLDS : WAITS;
    case AFTER_ANY: return ended ? HOLDS : WAITS;
    case AFTER_OK:
    case AFTER_CORR: return failed ? NEVER : ended && ok ? HOLDS : WAITS;
    case AFTER_NOT_OK: return !ended ? WAITS : failed ? HOLDS : NEVER;
    default: return WAITS;
    }
}

static enum depend_verdict judge_outcome(const struct core *c, uint64_t id, enum dependency_type type) {
    const struct core_outcome *o = core_outcome_find(c, id);
    if (!o)  // too long ago: it has ended, how is not known any more
        return type == AFTER || type == AFTER_ANY ? HOLDS : NEVER;
    return judge(type, o->started, true, o->ok, !o->ok);
}

// What a term refers to: a live job, a live array as a whole, or something that has ended.
struct target {
    struct core_job *job;
    struct array *array;
    uint64_t ended_id;
};

static struct target resolve(const struct core *c, const struct dependency_term *t, uint32_t own_index) {
    struct array *a = map_get(&c->arrays, t->ref.job);
    bool element = t->ref.has_index || t->type == AFTER_CORR;
    if (a && !element)
        return (struct target){.array = a};
    uint64_t id = a ? core_array_element(a, t->ref.has_index ? t->ref.index : own_index) : t->ref.job;
    struct core_job *j = id ? core_find_job(c, id) : NULL;
    if (j)
        return (struct target){.job = j};
    if (!a && core_outcome_find(c, t->ref.job | OUTCOME_ARRAY))
        id = t->ref.job | OUTCOME_ARRAY;
    return (struct target){.ended_id = id || a ? id : t->ref.job};  // 0: an array without that element
}

// The elements of an array have consecutive ids and do not wait for each other.
static uint64_t first_of_submission(const struct core_job *j) {
    return j->sub->is_array ? j->sub->id : j->id;
}

static bool earlier_of_same_name(const struct core *c, const struct core_job *j) {
    const struct core_job *oldest = core_same_name_oldest(c, j);
    return oldest && oldest->id < first_of_submission(j);
}

// "after:JOB+MINUTES": so long after its start, whether it still runs or not.
static void wait_after(struct core_job *j, const struct dependency_term *t, int64_t start_ms) {
    int64_t not_before = start_ms + (int64_t)t->delay_minutes * 60000;
    if (t->type == AFTER && t->delay_minutes && j->begin_ms < not_before)
        j->begin_ms = not_before;
}

static enum depend_verdict judge_term(const struct core *c, struct core_job *j, const struct dependency_term *t) {
    if (t->type == SINGLETON)
        return earlier_of_same_name(c, j) ? WAITS : HOLDS;
    // What it waits for may be a live array, a live job, or one that has ended and of which only the outcome is kept.
    struct target x = resolve(c, t, j->array_index);
    if (x.array) {
        if (x.array->begun == x.array->count)
            wait_after(j, t, x.array->begun_ms);
        return judge(t->type, x.array->begun == x.array->count, x.array->live == 0, x.array->ended_ok == x.array->count,
                     x.array->ended > x.array->ended_ok && (t->type != AFTER_NOT_OK || !x.array->live));
    }
    if (!x.job) {
        const struct core_outcome *o = core_outcome_find(c, x.ended_id);
        if (o && o->start_s)
            wait_after(j, t, (int64_t)o->start_s * 1000);
        return judge_outcome(c, x.ended_id, t->type);
    }
    bool begun = x.job->flags & HAS_BEGUN;
    if (begun)
        wait_after(j, t, x.job->start_ms);
    return judge(t->type, begun, false, false, false);
}

static enum depend_verdict judge_all(const struct core *c, struct core_job *j) {
    const struct dependency *d = terms_of(j->sub);
    bool some_hold = false, some_wait = false, some_never = false;
    for (uint32_t i = 0; i < d->len; i++) {
        enum depend_verdict v = judge_term(c, j, &d->at[i]);
        some_hold |= v == HOLDS;
        some_wait |= v == WAITS;
        some_never |= v == NEVER;
    }
    if (!d->len || (d->any && some_hold))
        return HOLDS;
    if (d->any)
        return some_wait ? WAITS : NEVER;
    return some_never ? NEVER : some_wait ? WAITS : HOLDS;
}

static void set_flags(struct core *c, struct core_job *j, enum depend_verdict v, int64_t now_ms) {
    j->flags &= (uint8_t)~(WAITS_DEPENDENCY | DEPENDENCY_NEVER);
    if (v == WAITS)
        j->flags |= WAITS_DEPENDENCY;
    else if (v == NEVER)
        j->flags |= WAITS_DEPENDENCY | DEPENDENCY_NEVER;
    else if (!j->eligible_ms)
        j->eligible_ms = j->begin_ms > now_ms ? j->begin_ms : now_ms;
}

bool core_job_waits(const struct core_job *j) {
    // A dependency that can never be satisfied stays so, also if it would be judged otherwise now.
    return j->state == JOB_PENDING && j->flags & WAITS_DEPENDENCY && !(j->flags & DEPENDENCY_NEVER);
}

static void evaluate(struct core *c, uint64_t id, int64_t now_ms) {
    struct core_job *j = core_find_job(c, id);
    if (!j || !core_job_waits(j))
        return;
    enum depend_verdict v = judge_all(c, j);
    if (v != WAITS)
        core_depend_detach(c, j);
    set_flags(c, j, v, now_ms);
    world_job_remove(c->world, j->id);  // its begin time may have moved
    core_job_to_world(c, j);
    c->dirty = true;
}

void core_depend_parse(struct submission *s, const struct spec *spec) {
    if (str_empty(spec->dependency))
        return;
    s->dependency = xcalloc(1, sizeof *s->dependency);
    if (dependency_parse(spec->dependency, &s->dependency->arena, &s->dependency->terms, NULL) < 0)
        core_depend_free(s);  // it was checked before it was accepted
}

void core_depend_free(struct submission *s) {
    if (s->dependency)
        arena_done(&s->dependency->arena);
    free(s->dependency);
    s->dependency = NULL;
}

void core_depend_attach(struct core *c, struct core_job *j, int64_t now_ms) {
    set_flags(c, j, judge_all(c, j), now_ms);
    core_depend_link(c, j);
}

// The list of the job or array that a term refers to, while that lives; its key if jobs that wait for it are judged.
static struct dependents **list_of(const struct target *x, uint64_t *key) {
    *key = x->array ? x->array->id | OUTCOME_ARRAY : x->job ? x->job->id : 0;
    return x->array ? &x->array->waiting : x->job ? &x->job->waiting : NULL;
}

void core_depend_link(struct core *c, struct core_job *j) {
    const struct dependency *d = terms_of(j->sub);
    for (uint32_t i = 0; core_job_waits(j) && i < d->len; i++) {
        if (d->at[i].type == SINGLETON)
            continue;
        uint64_t key;
        struct target x = resolve(c, &d->at[i], j->array_index);
        struct dependents **list = list_of(&x, &key);
        const struct judging *g = list ? map_get(&c->judging, key) : NULL;
        if (list && !(g && core_dependents_have(g->ids, j->id)))  // else it is linked when it is judged
            core_dependents_add(list, j->id);
    }
}

void core_depend_detach(struct core *c, struct core_job *j) {
    const struct dependency *d = terms_of(j->sub);
    for (uint32_t i = 0; j->flags & WAITS_DEPENDENCY && i < d->len; i++) {
        if (d->at[i].type == SINGLETON)
            continue;
        uint64_t key;
        struct target x = resolve(c, &d->at[i], j->array_index);
        struct dependents **list = list_of(&x, &key);
        if (list)
            core_dependents_remove(list, j->id);
    }
}

// --- who waits is judged, many of them in slices ---

static void judge_upto(struct core *c, struct dependents **list, uint64_t upto, int64_t now_ms) {
    while (*list && (*list)->at[(*list)->head] <= upto) {
        uint64_t id = (*list)->at[(*list)->head];
        core_dependents_remove(list, id);
        evaluate(c, id, now_ms);
        struct core_job *j = core_find_job(c, id);
        if (j)
            core_depend_link(c, j);  // it may go on waiting, for this one or for others
        c->dependents_judged++;
    }
}

static void judge_waiting(struct core *c, uint64_t key, struct dependents **list, int64_t now_ms) {
    struct dependents *taken = *list;
    *list = NULL;
    if (core_dependents_count(taken) <= core_slice() || !core_feature(c, FEATURE_ARRAY_SLICES)) {
        judge_upto(c, &taken, UINT64_MAX, now_ms);
        return;
    }
    struct judging *g = map_get(&c->judging, key);
    if (!g) {
        g = xcalloc(1, sizeof *g);
        g->target = key;
        map_put(&c->judging, key, g);
    }
    core_dependents_merge(&g->ids, &taken);
}

void core_apply_judged(struct core *c, int64_t at_ms, const struct event_dependents_judged *b) {
    uint64_t key = b->target | (b->array ? OUTCOME_ARRAY : 0);
    struct judging *g = map_get(&c->judging, key);
    if (!g)
        return;
    judge_upto(c, &g->ids, b->upto, at_ms);
    if (!g->ids) {
        map_remove(&c->judging, key);
        free(g);
    }
}

bool core_depend_continue(struct core *c, int64_t now_ms) {
    size_t it = 0;
    void *v;
    if (!map_next(&c->judging, &it, NULL, &v))
        return false;
    const struct judging *g = v;
    uint32_t n = core_dependents_count(g->ids), slice = n < core_slice() ? n : core_slice();
    struct event_dependents_judged b = {.target = g->target & ~OUTCOME_ARRAY,
                                        .array = g->target & OUTCOME_ARRAY,
                                        .upto = g->ids->at[g->ids->head + slice - 1]};
    core_emit(c, now_ms, EVENT_DEPENDENTS_JUDGED, &b);
    return true;
}

void core_judging_done(struct core *c) {
    size_t it = 0;
    void *v;
    while (map_next(&c->judging, &it, NULL, &v)) {
        core_dependents_free(&((struct judging *)v)->ids);
        free(v);
    }
    map_done(&c->judging);
}

void core_depend_notify(struct core *c, struct core_job *j, int64_t now_ms) {
    judge_waiting(c, j->id, &j->waiting, now_ms);
}

void core_depend_array(struct core *c, struct array *a, int64_t now_ms) {
    judge_waiting(c, a->id | OUTCOME_ARRAY, &a->waiting, now_ms);
}

bool core_depend_is_singleton(const struct submission *s) {
    const struct dependency *d = terms_of(s);
    for (uint32_t i = 0; i < d->len; i++)
        if (d->at[i].type == SINGLETON)
            return true;
    return false;
}

// Only the oldest job of the name, or the elements of its array, can have waited for `removed` and wait no longer.
void core_depend_singleton(struct core *c, const struct core_job *removed, int64_t now_ms) {
    const struct core_job *oldest = core_same_name_oldest(c, removed);
    if (!oldest || removed->id > oldest->id || first_of_submission(removed) == first_of_submission(oldest))
        return;
    const struct array *a = oldest->sub->array;
    if (!a) {
        evaluate(c, oldest->id, now_ms);
        return;
    }
    uint64_t first = a->id, count = a->singletons ? a->count : 0;
    c->singleton_work += count;
    for (uint64_t i = 0; i < count; i++)
        evaluate(c, first + i, now_ms);
}

// --- cycles ---

// A search for the jobs that a job would wait for, directly or through others. Bounded by CYCLE_SEARCH_MAX jobs.
struct cycle_search {
    const struct core *c;
    const struct core_job *self;
    struct map seen;
    VEC(struct core_job *) jobs;  // pending, to be looked at
    uint32_t looks;               // jobs looked for, also those that have ended or wait for the same as another
    bool found;                   // self is among them, or in an array that is
};

static bool depends_by_index(const struct submission *s) {
    const struct dependency *d = terms_of(s);
    for (uint32_t i = 0; i < d->len; i++)
        if (d->at[i].type == AFTER_CORR)
            return true;
    return false;
}

static void search_job(struct cycle_search *s, struct core_job *j) {
    s->found |= j == s->self;
    if (s->found || j->state != JOB_PENDING || map_get(&s->seen, j->id) || s->seen.len >= CYCLE_SEARCH_MAX)
        return;
    map_put(&s->seen, j->id, j);
    vec_push(&s->jobs, j);
}

// Elements of one submission wait for the same, unless a term goes by their index: one of them is enough.
static void search_target(struct cycle_search *s, const struct target *x) {
    const struct submission *seen = NULL;
    if (x->job)
        search_job(s, x->job);
    if (!x->array)
        return;
    s->found |= s->self->sub->array == x->array;
    for (uint64_t i = 0; i < x->array->created && !s->found && s->looks < CYCLE_SEARCH_MAX; i++) {
        s->looks++;
        struct core_job *j = core_find_job(s->c, x->array->id + i);
        if (!j || (j->sub == seen && !depends_by_index(seen)))
            continue;
        seen = j->sub;
        search_job(s, j);
    }
}

// Would waiting for `target` mean that the job waits for itself?
static bool reaches(const struct core *c, const struct target *target, const struct core_job *self) {
    struct cycle_search s = {.c = c, .self = self};
    search_target(&s, target);
    for (uint32_t i = 0; i < s.jobs.len && !s.found; i++) {
        const struct core_job *j = s.jobs.at[i];
        const struct dependency *d = terms_of(j->sub);
        for (uint32_t k = 0; k < d->len && !s.found; k++) {
            const struct dependency_term *t = &d->at[k];
            if (t->type == SINGLETON)
                continue;
            struct target x = resolve(c, t, j->array_index);
            search_target(&s, &x);
        }
    }
    map_done(&s.seen);
    vec_done(&s.jobs);
    return s.found;
}

static int check_cycle(const struct core *c, const struct dependency_term *t, const struct core_job *self,
                       struct error *e) {
    struct target x = resolve(c, t, self->array_index);
    unsigned long long own = self->id;
    if (x.job == self)
        return error_set(e, EDEADLK, "dependency: job %llu would wait for itself", own);
    if (x.array && x.array == self->sub->array)
        return error_set(e, EDEADLK, "dependency: job %llu is an element of array %llu and would wait for itself", own,
                         (unsigned long long)x.array->id);
    if (reaches(c, &x, self))
        return error_set(e, EDEADLK,
                         "dependency: %s %llu waits for job %llu already; the two would wait for each other for ever",
                         x.job ? "job" : "array", (unsigned long long)(x.job ? x.job->id : x.array->id), own);
    return 0;
}

int core_depend_check(const struct core *c, const char *text, uint64_t self, struct error *e) {
    cleanup_arena struct arena a = {0};
    struct dependency d;
    if (str_empty(text))
        return 0;
    int r = dependency_parse(text, &a, &d, e);
    if (r < 0)
        return r;
    if (d.len > c->config.max_dependencies)
        return error_set(e, E2BIG, "dependency: %u terms; at most %u are allowed", d.len, c->config.max_dependencies);
    // A new job is waited for by nobody, so only one that changes its dependency can close a cycle.
    const struct core_job *me = self ? core_find_job(c, self) : NULL;
    for (uint32_t i = 0; i < d.len; i++) {
        const struct dependency_term *t = &d.at[i];
        if (t->type == SINGLETON)
            continue;
        // Of an array that is still being created an element may come yet: neither there nor missing.
        const struct array *of = map_get(&c->arrays, t->ref.job);
        if (of && of->sub && (t->ref.has_index || t->type == AFTER_CORR))
            return error_set(
                e, EAGAIN, "dependency: the elements of array %llu are being created; try again in a moment",
                (unsigned long long)of->id);
        struct target x = resolve(c, t, 0);
        if (!x.array && !x.job && !core_outcome_find(c, x.ended_id) &&
            !(t->type == AFTER_CORR && map_get(&c->arrays, t->ref.job)))
            return error_set(
                e, ENOENT,
                "dependency: job %llu%s is not known; it never existed or ended long ago. See 'acequia list'",
                (unsigned long long)t->ref.job, t->ref.has_index ? " has no such element, or it" : "");
        if (me && (r = check_cycle(c, t, me, e)) < 0)
            return r;
    }
    return 0;
}
