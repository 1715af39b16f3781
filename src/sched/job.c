// Jobs and their state: pending in their request's queue, running on nodes, or ending. Every change keeps
// queues, nodes and counts exact.
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "world_state.h"
#include "request_mix.h"
#include "what_if.h"

static bool before(const struct world_job *a, const struct world_job *b) {
    return a->submit_ms != b->submit_ms ? a->submit_ms < b->submit_ms : a->id < b->id;
}

bool sched_job_is_choice(const struct world_job *j) {
    return j->request->options.len > 0;
}

bool sched_request_counts(const struct world_request *r) {
    return !r->choice || r == r->choice->options.at[0];
}

uint32_t sched_job_options(const struct world_job *j) {
    return sched_job_is_choice(j) ? j->request->options.len : 1;
}

struct world_request *sched_job_option(const struct world_job *j, uint32_t i) {
    return sched_job_is_choice(j) ? j->request->options.at[i] : j->request;
}

struct world_request *sched_job_option_in(const struct world_job *j, uint32_t partition) {
    for (uint32_t i = 0; i < sched_job_options(j); i++)
        if (sched_job_option(j, i)->asked.partition == partition)
            return sched_job_option(j, i);
    return sched_job_option(j, 0);
}

// The first index whose job does not come before `j`.
uint32_t sched_queue_index(const struct world_request *r, const struct world_job *j) {
    const struct job_queue *q = &r->queue;
    uint32_t low = 0, high = q->len;
    if (high && before(job_queue_at(q, high - 1), j))
        return high;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (before(job_queue_at(q, mid), j))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

// Returns how many jobs had to be moved.
static uint32_t move_gap(struct job_queue *q, uint32_t to) {
    uint32_t from = q->gap, room = q->cap - q->len, moved = to < from ? from - to : to - from;
    q->gap = to;
    if (!room)
        return 0;
    if (to < from)
        memmove(q->at + to + room, q->at + to, moved * sizeof *q->at);
    else
        memmove(q->at + from, q->at + from + room, moved * sizeof *q->at);
    return moved;
}

static void make_room(struct job_queue *q) {
    if (q->len < q->cap)
        return;
    q->cap = q->cap ? 2 * q->cap : 8;
    q->at = xrealloc(q->at, q->cap * sizeof *q->at);
    q->gap = q->len;
}

static void queue_add(struct world *w, struct world_request *r, struct world_job *j) {
    struct job_queue *q = &r->queue;
    if (!q->len)
        sched_project_queue_add(&world_project_slot(w, r->asked.project)->queue, r);
    uint32_t at = sched_queue_index(r, j);
    if (!at)  // another first job
        sched_project_queue_stale(world_project_slot(w, r->asked.project), r);
    make_room(q);
    w->jobs.queue_moves += move_gap(q, at);
    q->at[q->gap++] = j;
    q->len++;
}

static void queue_remove(struct world *w, struct world_request *r, const struct world_job *j) {
    struct job_queue *q = &r->queue;
    uint32_t at = sched_queue_index(r, j);
    assert(at < q->len && job_queue_at(q, at) == j);
    sched_project_queue_stale(world_project_slot(w, r->asked.project), r);
    w->jobs.queue_moves += move_gap(q, at < q->gap ? at + 1 : at);
    q->gap = at;
    if (--q->len == 0)
        sched_project_queue_remove(&world_project_slot(w, r->asked.project)->queue, r);
}

void sched_job_enqueue(struct world *w, struct world_job *j) {
    assert(!j->queued && j->state == SCHED_JOB_PENDING);
    j->since_pass = (uint32_t)w->last_pass.decided;
    if (j->optional) {
        sched_optional_enqueue(w, j);
        return;
    }
    for (uint32_t i = 0; i < sched_job_options(j); i++)
        queue_add(w, sched_job_option(j, i), j);
    j->queued = true;
    w->jobs.ready++;
    sched_count_queued(w, j, 1);
}

void sched_job_dequeue(struct world *w, struct world_job *j) {
    if (!j->queued)
        return;
    if (j->optional) {
        sched_optional_dequeue(w, j);
        return;
    }
    for (uint32_t i = 0; i < sched_job_options(j); i++)
        queue_remove(w, sched_job_option(j, i), j);
    j->queued = false;
    w->jobs.ready--;
    sched_count_queued(w, j, -1);
}

static bool begins_before(const struct world_job *a, const struct world_job *b) {
    return a->begin_ms != b->begin_ms ? a->begin_ms < b->begin_ms : a->id < b->id;
}

static void begin_sift(struct world *w, uint32_t i) {
    struct world_job **at = w->jobs.begin_heap.at;
    for (;;) {
        uint32_t least = i, l = 2 * i + 1, r = l + 1;
        if (l < w->jobs.begin_heap.len && begins_before(at[l], at[least]))
            least = l;
        if (r < w->jobs.begin_heap.len && begins_before(at[r], at[least]))
            least = r;
        if (least == i)
            return;
        struct world_job *t = at[i];
        at[i] = at[least];
        at[least] = t;
        i = least;
    }
}

static void begin_add(struct world *w, struct world_job *j) {
    vec_push(&w->jobs.begin_heap, j);
    struct world_job **at = w->jobs.begin_heap.at;
    for (uint32_t i = w->jobs.begin_heap.len - 1; i && begins_before(at[i], at[(i - 1) / 2]); i = (i - 1) / 2) {
        struct world_job *t = at[i];
        at[i] = at[(i - 1) / 2];
        at[(i - 1) / 2] = t;
    }
}

static void begin_remove(struct world *w, struct world_job *j) {
    for (uint32_t i = 0; i < w->jobs.begin_heap.len; i++)
        if (w->jobs.begin_heap.at[i] == j) {
            vec_remove_swap(&w->jobs.begin_heap, i);
            for (uint32_t k = w->jobs.begin_heap.len / 2; k-- > 0;)
                begin_sift(w, k);
            return;
        }
}

void world_enqueue_begun(struct world *w, int64_t now_ms) {
    while (w->jobs.begin_heap.len && w->jobs.begin_heap.at[0]->begin_ms <= now_ms) {
        struct world_job *j = w->jobs.begin_heap.at[0];
        vec_remove_swap(&w->jobs.begin_heap, 0);
        begin_sift(w, 0);
        sched_job_enqueue(w, j);
    }
}

void sched_job_unbegin(struct world *w, struct world_job *j) {
    sched_job_dequeue(w, j);
    begin_add(w, j);
}

// A pending job is in its queue, in the heap of begin times, or, while it is held, in neither.
static void pend(struct world *w, struct world_job *j) {
    if (j->hold != SCHED_HOLD_NONE)
        return;
    if (j->begin_ms > 0)
        begin_add(w, j);
    else
        sched_job_enqueue(w, j);
}

static void unpend(struct world *w, struct world_job *j) {
    sched_promise_drop(w, j);
    if (j->queued)
        sched_job_dequeue(w, j);
    else if (j->hold == SCHED_HOLD_NONE)
        begin_remove(w, j);
}

// Counts a pending job (sign 1), or takes it back (sign -1).
static void count_pending(struct world *w, const struct world_job *j, int sign) {
    struct world_project *p = world_project_slot(w, j->request->asked.project);
    if (j->optional) {
        w->optional.pending += (uint32_t)sign;
        p->optional_pending += (uint32_t)sign;
    } else {
        w->jobs.pending += (uint32_t)sign;
        p->pending += (uint32_t)sign;
    }
}

struct world_job *sched_job_add_hypothetical(struct world *w, const struct sched_job *from) {
    struct world_job *j = xcalloc(1, sizeof *j);
    *j = (struct world_job){
        .id = from->id,
        .request = (struct world_request *)(uintptr_t)from->request,
        .submit_ms = from->submit_ms,
        .begin_ms = from->begin_ms,
        .hold = (uint8_t)from->hold,
        .restarts = from->restarts,
        .state = SCHED_JOB_PENDING,
        .optional = from->request->asked.optional,
        .group = from->group,
    };
    j->request->refs++;
    map_put(&w->jobs.by_id, j->id, j);
    count_pending(w, j, 1);
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
    if (!from->request->asked.optional)  // the mix decides where other jobs are placed
        sched_mix_add(w, from->request);
    sched_job_add_hypothetical(w, from);
    return 0;
}

int world_job_hold(struct world *w, uint64_t id, enum sched_hold hold) {
    struct world_job *j = world_find(w, id);
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
    struct world_job *j = world_find(w, from->id);
    if (!j)
        return -ENOENT;
    if (j->state != SCHED_JOB_PENDING)
        return -EBUSY;
    struct world_request *old = j->request;
    unpend(w, j);
    count_pending(w, j, -1);
    j->request = (struct world_request *)(uintptr_t)from->request;
    j->request->refs++;
    j->optional = j->request->asked.optional;
    j->group = from->group;
    count_pending(w, j, 1);
    j->submit_ms = from->submit_ms;
    j->begin_ms = from->begin_ms;
    j->hold = (uint8_t)from->hold;
    j->restarts = from->restarts;
    pend(w, j);
    world_request_unref(w, old);
    return 0;
}

static void nodes_take(struct world *w, struct world_job *j) {
    for (uint32_t i = 0; i < j->alloc->node_count; i++) {
        struct sched_alloc_node *a = &j->alloc->nodes[i];
        struct world_node *n = w->cluster.nodes.at[a->node];
        sched_node_allocate(n, a, j->request->demand.exclusive, 1);
        vec_push(&n->jobs, j);
        world_node_changed(w, n->id);
    }
}

static void nodes_give(struct world *w, struct world_job *j) {
    for (uint32_t i = 0; i < j->alloc->node_count; i++) {
        struct sched_alloc_node *a = &j->alloc->nodes[i];
        struct world_node *n = w->cluster.nodes.at[a->node];
        sched_node_allocate(n, a, j->request->demand.exclusive, -1);
        for (uint32_t k = 0; k < n->jobs.len; k++)
            if (n->jobs.at[k] == j) {
                vec_remove_swap(&n->jobs, k);
                break;
            }
        world_node_changed(w, n->id);
    }
}

static void run(struct world *w, struct world_job *j, int64_t now_ms) {
    if (j->optional) {
        sched_optional_run(w, j);
        return;
    }
    j->run_slot = w->jobs.running.len;
    vec_push(&w->jobs.running, j);
    nodes_take(w, j);
    sched_count_running(w, j, 1, now_ms);
    sched_by_end_add(w, j);
    sched_victims_add(w, j);
}

int world_job_start(struct world *w, uint64_t id, const struct sched_alloc *a, int64_t now_ms) {
    return world_job_start_in(w, id, 0, a, now_ms);
}

int world_job_start_in(struct world *w, uint64_t id, uint32_t partition, const struct sched_alloc *a,
                       int64_t now_ms) {
    struct world_job *j = world_find(w, id);
    if (!j)
        return -ENOENT;
    if (j->state != SCHED_JOB_PENDING)
        return -EBUSY;
    for (uint32_t i = 0; i < a->node_count; i++)
        if (a->nodes[i].node >= w->cluster.nodes.len || !w->cluster.nodes.at[a->nodes[i].node])
            return -EINVAL;
    unpend(w, j);
    j->preemptor = false;
    count_pending(w, j, -1);
    j->state = SCHED_JOB_RUNNING;
    j->alloc = sched_alloc_copy(a);
    j->start_ms = now_ms;
    const struct world_request *option = sched_job_option_in(j, partition);
    j->partition = (uint8_t)option->asked.partition;
    j->limit_ms = sched_request_limit_ms(w, option);
    run(w, j, now_ms);
    return 0;
}

static void ending_add(struct world *w, struct world_job *j) {
    uint32_t i = 0;
    while (i < w->jobs.ending.len && w->jobs.ending.at[i]->id < j->id)
        i++;
    vec_push(&w->jobs.ending, NULL);
    memmove(w->jobs.ending.at + i + 1, w->jobs.ending.at + i,
            (w->jobs.ending.len - 1 - i) * sizeof *w->jobs.ending.at);
    w->jobs.ending.at[i] = j;
}

static void ending_remove(struct world *w, const struct world_job *j) {
    for (uint32_t i = 0; i < w->jobs.ending.len; i++)
        if (w->jobs.ending.at[i] == j) {
            vec_remove(&w->jobs.ending, i);
            return;
        }
}

void world_job_preemptor_set(struct world *w, uint64_t id, bool preemptor) {
    struct world_job *j = world_find(w, id);
    if (!j || j->state != SCHED_JOB_PENDING || j->preemptor == preemptor)
        return;
    j->preemptor = preemptor;
    if (preemptor)
        vec_push(&w->jobs.preemptors, id);
}

static int begin_ending(struct world *w, uint64_t id, const struct sched_preemption *grounds) {
    uint64_t for_job = grounds->by;
    struct world_job *j = world_find(w, id);
    if (!j)
        return -ENOENT;
    if (j->state == SCHED_JOB_PENDING)
        return -EINVAL;
    j->ending_for = for_job;
    if (j->optional) {  // nobody becomes a preemptor by it, and the worker has no claim on anybody
        w->optional.ending += j->state != SCHED_JOB_ENDING;
        j->state = SCHED_JOB_ENDING;
        return 0;
    }
    if (for_job && for_job != id)
        sched_preemption_record(w, j, grounds);
    world_job_preemptor_set(w, for_job, true);
    if (j->state == SCHED_JOB_ENDING)
        return 0;
    j->state = SCHED_JOB_ENDING;
    ending_add(w, j);
    return 0;
}

int world_job_ending(struct world *w, uint64_t id, uint64_t for_job) {
    return begin_ending(w, id, &(struct sched_preemption){.by = for_job, .share = INT64_MAX});
}

int world_job_preempt(struct world *w, const struct sched_preempt *p) {
    return begin_ending(w, p->victim, &p->grounds);
}

static void forget(struct world *w, struct world_job *j) {
    map_remove(&w->jobs.by_id, j->id);
    sched_preemptions_forget(w, j);
    sched_promise_drop(w, j);
    world_request_unref(w, j->request);
    sched_alloc_free(j->alloc);
    free(j);
}

static void stop_running(struct world *w, struct world_job *j, int64_t now_ms) {
    if (j->optional) {
        sched_optional_stop(w, j);
        return;
    }
    w->jobs.releases++;
    ending_remove(w, j);
    sched_by_end_remove(w, j);
    sched_victims_remove(w, j);
    nodes_give(w, j);
    sched_count_running(w, j, -1, now_ms);
    vec_remove_swap(&w->jobs.running, j->run_slot);
    if (j->run_slot < w->jobs.running.len)
        w->jobs.running.at[j->run_slot]->run_slot = j->run_slot;
}

void sched_job_take_out(struct world *w, struct world_job *j, int64_t now_ms, struct taken_out_job *out) {
    const struct sched_request *q = &j->request->asked;
    *out = (struct taken_out_job){j, *sched_user_slot(&w->usage.users, q->project, q->user), j->cost, j->state};
    stop_running(w, j, now_ms);
    j->run_slot = UINT32_MAX;  // in no list of running jobs: it may be looked at by id still
}

void sched_job_put_back(struct world *w, const struct taken_out_job *l) {
    struct world_job *j = l->job;
    run(w, j, j->start_ms);
    *sched_user_slot(&w->usage.users, j->request->asked.project, j->request->asked.user) = l->user;
    j->cost = l->cost;
    if (l->state == SCHED_JOB_ENDING)
        ending_add(w, j);
}

// Learns what part of their limits a user's jobs run; for forecasts only.
static void learn_ratio(struct world *w, const struct world_job *j, int64_t now_ms) {
    if (j->limit_ms == INT64_MAX || j->limit_ms < 1000 || j->state == SCHED_JOB_ENDING)
        return;
    int64_t ratio = (now_ms - j->start_ms) / (j->limit_ms / 1000);
    ratio = ratio < 1 ? 1 : ratio > 1000 ? 1000 : ratio;
    struct world_user *u = sched_user_slot(&w->usage.users, j->request->asked.project, j->request->asked.user);
    u->ratio_milli = u->ratio_milli ? (int32_t)((3 * u->ratio_milli + ratio) / 4) : (int32_t)ratio;
}

int world_job_end(struct world *w, uint64_t id, int64_t now_ms) {
    struct world_job *j = world_find(w, id);
    if (!j)
        return -ENOENT;
    if (j->state == SCHED_JOB_PENDING)
        return world_job_remove(w, id);
    stop_running(w, j, now_ms);
    if (j->optional) {
        sched_optional_rest(w, j, now_ms);
        forget(w, j);
        return 0;
    }
    learn_ratio(w, j, now_ms);
    if (j->state != SCHED_JOB_ENDING || !j->ending_for)
        sched_preemptions_lapse(w, j->request->asked.project);
    forget(w, j);
    return 0;
}

int world_job_remove(struct world *w, uint64_t id) {
    struct world_job *j = world_find(w, id);
    if (!j)
        return -ENOENT;
    if (j->state != SCHED_JOB_PENDING) {
        stop_running(w, j, j->start_ms);
    } else {
        unpend(w, j);
        count_pending(w, j, -1);
    }
    forget(w, j);
    return 0;
}

int world_job_limit(struct world *w, uint64_t id, int64_t time_limit_ms) {
    struct world_job *j = world_find(w, id);
    if (!j || j->state == SCHED_JOB_PENDING)
        return -ENOENT;
    if (!j->optional)
        sched_by_end_remove(w, j);
    j->limit_ms = time_limit_ms > 0 ? time_limit_ms : INT64_MAX;
    w->jobs.releases++;
    if (!j->optional)
        sched_by_end_add(w, j);
    return 0;
}

int world_job_rank(struct world *w, uint64_t id, int32_t rank) {
    struct world_job *j = world_find(w, id);
    if (!j)
        return -ENOENT;
    j->rank = rank;
    return 0;
}

// Does the job hold at least this on the node?
static bool holds(const struct sched_alloc *held, const struct sched_alloc_node *a) {
    for (uint32_t i = 0; i < held->node_count; i++) {
        const struct sched_alloc_node *h = &held->nodes[i];
        if (h->node != a->node)
            continue;
        if (a->cpus > h->cpus || a->memory_bytes > h->memory_bytes)
            return false;
        for (uint32_t g = 0; g < a->gpu_count; g++) {
            uint32_t has = 0, wants = 0;
            for (uint32_t k = 0; k < h->gpu_count; k++)
                has += h->gpus[k].index == a->gpus[g].index ? h->gpus[k].milli : 0;
            for (uint32_t k = 0; k < a->gpu_count; k++)
                wants += a->gpus[k].index == a->gpus[g].index ? a->gpus[k].milli : 0;
            if (wants > has)
                return false;
        }
        return true;
    }
    return false;
}

// Everything that is derived from an allocation (victims, what nodes have left, counts) is taken out with the old one
// and put in with the new one: no index needs to know how to change it.
static void replace_alloc(struct world *w, struct world_job *j, struct sched_alloc *a, int64_t now_ms) {
    if (j->optional) {
        sched_optional_stop(w, j);
    } else {
        sched_victims_remove(w, j);
        nodes_give(w, j);
        sched_count_running(w, j, -1, now_ms);
    }
    sched_alloc_free(j->alloc);
    j->alloc = a;
    if (j->optional) {
        sched_optional_run(w, j);
    } else {
        nodes_take(w, j);
        sched_count_running(w, j, 1, now_ms);
        sched_victims_add(w, j);
    }
}

int world_job_shrink(struct world *w, uint64_t id, const struct sched_alloc *a, int64_t now_ms) {
    struct world_job *j = world_find(w, id);
    if (!j || j->state == SCHED_JOB_PENDING)
        return -ENOENT;
    for (uint32_t i = 0; a && i < a->node_count; i++)
        if ((i && a->nodes[i].node <= a->nodes[i - 1].node) || !holds(j->alloc, &a->nodes[i]))
            return -EINVAL;
    replace_alloc(w, j, a ? sched_alloc_copy(a) : sched_alloc_new(0, 0), now_ms);
    return 0;
}

int world_job_extend(struct world *w, uint64_t id, const struct sched_alloc *a, int64_t now_ms) {
    struct world_job *j = world_find(w, id);
    if (!j || j->state == SCHED_JOB_PENDING)
        return -ENOENT;
    for (uint32_t i = 0; i < a->node_count; i++)
        if (a->nodes[i].node >= w->cluster.nodes.len || !w->cluster.nodes.at[a->nodes[i].node])
            return -EINVAL;
    replace_alloc(w, j, sched_alloc_copy(a), now_ms);
    return 0;
}

int64_t sched_job_end_ms(const struct world_job *j) {
    bool never = j->limit_ms == INT64_MAX || (j->start_ms > 0 && j->limit_ms >= INT64_MAX - j->start_ms);
    return never ? INT64_MAX : j->start_ms + j->limit_ms;
}

bool world_job(const struct world *w, uint64_t id, struct sched_job_view *out) {
    const struct world_job *j = world_find(w, id);
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
        .limit_end_ms = j->alloc ? sched_job_end_ms(j) : INT64_MAX,
        .ending_for = j->ending_for,
        .restarts = j->restarts,
        .partition = j->partition,
        .preemptor = j->preemptor,
        .optional = j->optional,
        .group = j->group,
        .rank = j->rank,
        .promised_ms = j->promise ? j->promise->start_ms : 0,
    };
    return true;
}
