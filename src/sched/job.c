// Owns jobs: pending in their request's queue, running on nodes, ending to make room. Every delta
// keeps queues, nodes and counts exact; nothing is looked up by name.
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"
#include "mix.h"
#include "whatif.h"

static bool before(const struct job *a, const struct job *b) {
    return a->submit_ms != b->submit_ms ? a->submit_ms < b->submit_ms : a->id < b->id;
}

bool job_is_choice(const struct job *j) {
    return j->request->options.len > 0;
}

bool request_counts(const struct request *r) {
    return !r->choice || r == r->choice->options.at[0];
}

uint32_t job_options(const struct job *j) {
    return job_is_choice(j) ? j->request->options.len : 1;
}

struct request *job_option(const struct job *j, uint32_t i) {
    return job_is_choice(j) ? j->request->options.at[i] : j->request;
}

struct request *job_option_in(const struct job *j, uint32_t partition) {
    for (uint32_t i = 0; i < job_options(j); i++)
        if (job_option(j, i)->asked.partition == partition)
            return job_option(j, i);
    return job_option(j, 0);
}

// First place at or after `head` whose job is not before `j`.
uint32_t queue_place(const struct request *r, const struct job *j) {
    uint32_t low = r->head, high = r->queue.len;
    if (low < high && before(r->queue.at[high - 1], j))
        return high;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (before(r->queue.at[mid], j))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static void queue_add(struct world *w, struct request *r, struct job *j) {
    if (r->head == r->queue.len) {
        r->head = 0;
        vec_clear(&r->queue);
        turns_add(&world_project_slot(w, r->asked.project)->turns, r);
    }
    uint32_t at = queue_place(r, j);
    if (at == r->head)
        turns_stale(world_project_slot(w, r->asked.project), r);
    if (at == r->head && r->head > 0) {
        r->queue.at[--r->head] = j;
    } else {
        vec_push(&r->queue, NULL);
        memmove(r->queue.at + at + 1, r->queue.at + at, (r->queue.len - 1 - at) * sizeof *r->queue.at);
        r->queue.at[at] = j;
    }
}

static void queue_remove(struct world *w, struct request *r, const struct job *j) {
    uint32_t at = queue_place(r, j);
    assert(at < r->queue.len && r->queue.at[at] == j);
    turns_stale(world_project_slot(w, r->asked.project), r);  // places in the queue change as well
    if (at == r->head)
        r->head++;
    else
        vec_remove(&r->queue, at);
    if (r->head == r->queue.len) {
        turns_remove(&world_project_slot(w, r->asked.project)->turns, r);
        vec_clear(&r->queue);
        r->head = 0;
    } else if (r->head > 64 && r->head > r->queue.len / 2) {
        memmove(r->queue.at, r->queue.at + r->head, (r->queue.len - r->head) * sizeof *r->queue.at);
        r->queue.len -= r->head;
        r->head = 0;
    }
}

void job_enqueue(struct world *w, struct job *j) {
    assert(!j->queued && j->state == SCHED_JOB_PENDING);
    for (uint32_t i = 0; i < job_options(j); i++)
        queue_add(w, job_option(j, i), j);
    j->queued = true;
    j->since_pass = (uint32_t)w->pass;
    w->ready++;
    count_queued(w, j, 1);
}

void job_dequeue(struct world *w, struct job *j) {
    if (!j->queued)
        return;
    for (uint32_t i = 0; i < job_options(j); i++)
        queue_remove(w, job_option(j, i), j);
    j->queued = false;
    w->ready--;
    count_queued(w, j, -1);
}

static bool wakes_before(const struct job *a, const struct job *b) {
    return a->begin_ms != b->begin_ms ? a->begin_ms < b->begin_ms : a->id < b->id;
}

static void waiting_sift(struct world *w, uint32_t i) {
    struct job **at = w->waiting.at;
    for (;;) {
        uint32_t least = i, l = 2 * i + 1, r = l + 1;
        if (l < w->waiting.len && wakes_before(at[l], at[least]))
            least = l;
        if (r < w->waiting.len && wakes_before(at[r], at[least]))
            least = r;
        if (least == i)
            return;
        struct job *t = at[i];
        at[i] = at[least];
        at[least] = t;
        i = least;
    }
}

static void waiting_add(struct world *w, struct job *j) {
    vec_push(&w->waiting, j);
    struct job **at = w->waiting.at;
    for (uint32_t i = w->waiting.len - 1; i && wakes_before(at[i], at[(i - 1) / 2]); i = (i - 1) / 2) {
        struct job *t = at[i];
        at[i] = at[(i - 1) / 2];
        at[(i - 1) / 2] = t;
    }
}

static void waiting_remove(struct world *w, struct job *j) {
    for (uint32_t i = 0; i < w->waiting.len; i++)
        if (w->waiting.at[i] == j) {
            vec_remove_swap(&w->waiting, i);
            for (uint32_t k = w->waiting.len / 2; k-- > 0;)
                waiting_sift(w, k);
            return;
        }
}

void world_due(struct world *w, int64_t now_ms) {
    while (w->waiting.len && w->waiting.at[0]->begin_ms <= now_ms) {
        struct job *j = w->waiting.at[0];
        vec_remove_swap(&w->waiting, 0);
        waiting_sift(w, 0);
        job_enqueue(w, j);
    }
}

// A pending job is in exactly one place: its queue, the waiting heap, or nowhere (held).
static void pend(struct world *w, struct job *j) {
    if (j->hold != SCHED_HOLD_NONE)
        return;
    if (j->begin_ms > 0)
        waiting_add(w, j);
    else
        job_enqueue(w, j);
}

static void unpend(struct world *w, struct job *j) {
    if (j->queued)
        job_dequeue(w, j);
    else if (j->hold == SCHED_HOLD_NONE)
        waiting_remove(w, j);
}

struct job *job_suppose(struct world *w, const struct sched_job *from) {
    struct job *j = xcalloc(1, sizeof *j);
    *j = (struct job){
        .id = from->id,
        .request = (struct request *)(uintptr_t)from->request,
        .submit_ms = from->submit_ms,
        .begin_ms = from->begin_ms,
        .hold = (uint8_t)from->hold,
        .restarts = from->restarts,
        .state = SCHED_JOB_PENDING,
    };
    j->request->refs++;
    map_put(&w->jobs, j->id, j);
    w->pending++;
    world_project_slot(w, j->request->asked.project)->pending++;
    pend(w, j);
    return j;
}

int world_job_add(struct world *w, const struct sched_job *from) {
    if (!from->id || !from->request || from->request->asked.project >= SCHED_PROJECTS_MAX ||
        from->request->asked.partition >= SCHED_PARTITIONS_MAX)
        return -EINVAL;
    for (uint32_t i = 0; i < from->request->asked.also_count; i++)
        if (from->request->asked.also[i] >= SCHED_PARTITIONS_MAX)
            return -EINVAL;
    if (world_find(w, from->id))
        return -EEXIST;
    mix_add(w, from->request);
    job_suppose(w, from);
    return 0;
}

int world_job_hold(struct world *w, uint64_t id, enum sched_hold hold) {
    struct job *j = world_find(w, id);
    if (!j)
        return -ENOENT;
    if (j->state != SCHED_JOB_PENDING)
        return -EBUSY;
    unpend(w, j);
    j->hold = (uint8_t)hold;
    pend(w, j);
    return 0;
}

int world_job_update(struct world *w, const struct sched_job *from) {
    struct job *j = world_find(w, from->id);
    if (!j)
        return -ENOENT;
    if (j->state != SCHED_JOB_PENDING)
        return -EBUSY;
    struct request *old = j->request;
    unpend(w, j);
    world_project_slot(w, old->asked.project)->pending--;
    j->request = (struct request *)(uintptr_t)from->request;
    j->request->refs++;
    world_project_slot(w, j->request->asked.project)->pending++;
    j->submit_ms = from->submit_ms;
    j->begin_ms = from->begin_ms;
    j->hold = (uint8_t)from->hold;
    j->restarts = from->restarts;
    pend(w, j);
    world_request_unref(w, old);
    return 0;
}

static void nodes_take(struct world *w, struct job *j) {
    for (uint32_t i = 0; i < j->alloc->node_count; i++) {
        struct alloc_node *a = &j->alloc->nodes[i];
        struct node *n = w->nodes.at[a->node];
        node_hold(n, a, j->request->demand.exclusive, 1);
        vec_push(&n->jobs, j);
        world_node_changed(w, n->id);
    }
}

static void nodes_give(struct world *w, struct job *j) {
    for (uint32_t i = 0; i < j->alloc->node_count; i++) {
        struct alloc_node *a = &j->alloc->nodes[i];
        struct node *n = w->nodes.at[a->node];
        node_hold(n, a, j->request->demand.exclusive, -1);
        for (uint32_t k = 0; k < n->jobs.len; k++)
            if (n->jobs.at[k] == j) {
                vec_remove_swap(&n->jobs, k);
                break;
            }
        world_node_changed(w, n->id);
    }
}

static void run(struct world *w, struct job *j, int64_t now_ms) {
    j->run_slot = w->running.len;
    vec_push(&w->running, j);
    nodes_take(w, j);
    count_running(w, j, 1, now_ms);
    ends_add(w, j);
    worth_add(w, j);
}

int world_job_start(struct world *w, uint64_t id, const struct alloc *a, int64_t now_ms) {
    return world_job_start_in(w, id, 0, a, now_ms);
}

int world_job_start_in(struct world *w, uint64_t id, uint32_t partition, const struct alloc *a, int64_t now_ms) {
    struct job *j = world_find(w, id);
    if (!j)
        return -ENOENT;
    if (j->state != SCHED_JOB_PENDING)
        return -EBUSY;
    for (uint32_t i = 0; i < a->node_count; i++)
        if (a->nodes[i].node >= w->nodes.len || !w->nodes.at[a->nodes[i].node])
            return -EINVAL;
    unpend(w, j);
    j->taker = false;
    w->pending--;
    world_project_slot(w, j->request->asked.project)->pending--;
    j->state = SCHED_JOB_RUNNING;
    j->alloc = alloc_copy(a);
    j->start_ms = now_ms;
    const struct request *option = job_option_in(j, partition);
    j->partition = (uint8_t)option->asked.partition;
    j->limit_ms = request_limit_ms(w, option);
    run(w, j, now_ms);
    return 0;
}

static void ending_add(struct world *w, struct job *j) {
    uint32_t i = 0;
    while (i < w->ending.len && w->ending.at[i]->id < j->id)
        i++;
    vec_push(&w->ending, NULL);
    memmove(w->ending.at + i + 1, w->ending.at + i, (w->ending.len - 1 - i) * sizeof *w->ending.at);
    w->ending.at[i] = j;
}

static void ending_remove(struct world *w, const struct job *j) {
    for (uint32_t i = 0; i < w->ending.len; i++)
        if (w->ending.at[i] == j) {
            vec_remove(&w->ending, i);
            return;
        }
}

void world_job_takes(struct world *w, uint64_t id, bool takes) {
    struct job *j = world_find(w, id);
    if (!j || j->state != SCHED_JOB_PENDING || j->taker == takes)
        return;
    j->taker = takes;
    if (takes)
        vec_push(&w->takers, id);
}

static int make_room(struct world *w, uint64_t id, const struct sched_gave *gave) {
    uint64_t for_job = gave->to;
    struct job *j = world_find(w, id);
    if (!j)
        return -ENOENT;
    if (j->state == SCHED_JOB_PENDING)
        return -EINVAL;
    j->ending_for = for_job;
    if (for_job && for_job != id)
        gave_note(w, j, gave);
    world_job_takes(w, for_job, true);
    if (j->state == SCHED_JOB_ENDING)
        return 0;
    j->state = SCHED_JOB_ENDING;
    ending_add(w, j);
    return 0;
}

int world_job_ending(struct world *w, uint64_t id, uint64_t for_job) {
    return make_room(w, id, &(struct sched_gave){.to = for_job, .share = INT64_MAX});
}

int world_job_preempt(struct world *w, const struct sched_preempt *p) {
    return make_room(w, p->victim, &p->gave);
}

static void forget(struct world *w, struct job *j) {
    map_remove(&w->jobs, j->id);
    gave_forget(w, j);
    world_request_unref(w, j->request);
    alloc_free(j->alloc);
    free(j);
}

static void stop_running(struct world *w, struct job *j, int64_t now_ms) {
    ending_remove(w, j);
    ends_remove(w, j);
    worth_remove(w, j);
    nodes_give(w, j);
    count_running(w, j, -1, now_ms);
    vec_remove_swap(&w->running, j->run_slot);
    if (j->run_slot < w->running.len)
        w->running.at[j->run_slot]->run_slot = j->run_slot;
}

void job_lift(struct world *w, struct job *j, int64_t now_ms, struct lifted *out) {
    const struct sched_request *q = &j->request->asked;
    *out = (struct lifted){j, *user_slot(&w->users, q->project, q->user), j->cost, j->state};
    stop_running(w, j, now_ms);
}

void job_return(struct world *w, const struct lifted *l) {
    struct job *j = l->job;
    run(w, j, j->start_ms);
    *user_slot(&w->users, j->request->asked.project, j->request->asked.user) = l->user;
    j->cost = l->cost;
    if (l->state == SCHED_JOB_ENDING)
        ending_add(w, j);
}

// How much of their limits a user's jobs use: for forecasts only.
static void learn(struct world *w, const struct job *j, int64_t now_ms) {
    if (j->limit_ms == INT64_MAX || j->limit_ms < 1000 || j->state == SCHED_JOB_ENDING)
        return;
    int64_t ratio = (now_ms - j->start_ms) / (j->limit_ms / 1000);
    ratio = ratio < 1 ? 1 : ratio > 1000 ? 1000 : ratio;
    struct user *u = user_slot(&w->users, j->request->asked.project, j->request->asked.user);
    u->ratio_milli = u->ratio_milli ? (int32_t)((3 * u->ratio_milli + ratio) / 4) : (int32_t)ratio;
}

int world_job_end(struct world *w, uint64_t id, int64_t now_ms) {
    struct job *j = world_find(w, id);
    if (!j)
        return -ENOENT;
    if (j->state == SCHED_JOB_PENDING)
        return world_job_remove(w, id);
    stop_running(w, j, now_ms);
    learn(w, j, now_ms);
    if (j->state != SCHED_JOB_ENDING || !j->ending_for)
        gave_lapse(w, j->request->asked.project);
    forget(w, j);
    return 0;
}

int world_job_remove(struct world *w, uint64_t id) {
    struct job *j = world_find(w, id);
    if (!j)
        return -ENOENT;
    if (j->state != SCHED_JOB_PENDING) {
        stop_running(w, j, j->start_ms);
    } else {
        unpend(w, j);
        w->pending--;
        world_project_slot(w, j->request->asked.project)->pending--;
    }
    forget(w, j);
    return 0;
}

int world_job_limit(struct world *w, uint64_t id, int64_t time_limit_ms) {
    struct job *j = world_find(w, id);
    if (!j || j->state == SCHED_JOB_PENDING)
        return -ENOENT;
    ends_remove(w, j);
    j->limit_ms = time_limit_ms > 0 ? time_limit_ms : INT64_MAX;
    ends_add(w, j);
    return 0;
}

int64_t job_end_ms(const struct job *j) {
    return j->limit_ms >= INT64_MAX - j->start_ms ? INT64_MAX : j->start_ms + j->limit_ms;
}

bool world_job(const struct world *w, uint64_t id, struct sched_job_view *out) {
    const struct job *j = world_find(w, id);
    if (!j)
        return false;
    *out = (struct sched_job_view){
        .id = j->id,
        .state = (enum sched_job_state)j->state,
        .hold = (enum sched_hold)j->hold,
        .request = j->request,
        .alloc = j->alloc,
        .submit_ms = j->submit_ms,
        .begin_ms = j->begin_ms,
        .start_ms = j->start_ms,
        .limit_end_ms = j->alloc ? job_end_ms(j) : INT64_MAX,
        .ending_for = j->ending_for,
        .restarts = j->restarts,
        .partition = j->partition,
        .takes = j->taker,
    };
    return true;
}
