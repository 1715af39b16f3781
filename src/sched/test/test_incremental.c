// A pass leaves out whoever can get nothing and starts from what earlier passes found out. Whatever
// happened before, it must decide as a world that was built just now does, and as one that leaves
// nobody out does. Random clusters, rules, jobs and changes; SCHED_SEED=n repeats one.
#include <inttypes.h>
#include <stdlib.h>

#include "base/rand.h"
#include "cluster.h"
#include "../order.h"

enum { SEEDS = 250, EVENTS = 120, NODES = 6, PROJECTS = 6, USERS = 4, PARTITIONS = 4, JOBS = 400, MINUTE = 60000 };

struct incremental_run {
    struct cluster c;
    struct rand rnd;
    uint64_t seed, jobs[JOBS], ending[JOBS];
    uint32_t job_count, ending_count;
    bool plain;  // few shapes in many lengths: planned jobs are passed by short ones
};

static uint32_t below(struct incremental_run *r, uint32_t n) {
    return (uint32_t)rand_below(&r->rnd, n);
}

static bool one_in(struct incremental_run *r, uint32_t n) {
    return below(r, n) == 0;
}

static void project_put(struct incremental_run *r, uint32_t id) {
    char name[8];
    snprintf(name, sizeof name, "p%u", id);
    struct sched_project p = {.id = id,
                              .parent = id > 4 ? id - 4 : 0,
                              .name = name,
                              .quota_milligpu = below(r, 5) * 1000,
                              .weight_milli =
                                  one_in(r, 4) ? (int64_t)below(r, 3) * 1000 : (int64_t)SCHED_UNLIMITED,
                              .limit_milligpu = SCHED_UNLIMITED,
                              .quota_cpus = SCHED_UNLIMITED,
                              .limit_cpus = SCHED_UNLIMITED,
                              .interactive_limit_ms = SCHED_UNLIMITED};
    if (one_in(r, 4))
        p.limit_milligpu = p.quota_milligpu + 1000;
    world_project_set(r->c.w, &p, NULL);
}

static void partition_put(struct incremental_run *r, uint32_t id) {
    uint32_t nodes[NODES], n = 0;
    char name[8];
    snprintf(name, sizeof name, "q%u", id);
    for (uint32_t i = 1; i <= NODES; i++)
        if (!one_in(r, 3))
            nodes[n++] = i;
    struct sched_partition p = {.id = id,
                                .name = name,
                                .all_nodes = one_in(r, 2),
                                .nodes = nodes,
                                .node_count = n,
                                .tier = one_in(r, 4),
                                .fifo = one_in(r, 4),
                                .closed = one_in(r, 8),
                                .default_time_ms = 5 * MINUTE};
    test_partition_set(r->c.w, &p, NULL);
}

static void qos_put(struct incremental_run *r, uint32_t id) {
    uint32_t lower = 1;
    struct sched_qos q = {.id = id,
                          .name = id == 1 ? "low" : "high",
                          .priority = id == 1 ? -1 : 2,
                          .max_jobs_per_user = below(r, 4),
                          .preempts = &lower,
                          .preempts_count = id == 2 && one_in(r, 2)};
    test_qos_set(r->c.w, &q, NULL);
}

static void policy_pick(struct incremental_run *r) {
    struct policy *p = &r->c.policy;
    sched_policy_default(p);
    p->backfill = (enum policy_backfill)(one_in(r, 3) ? below(r, 3) : 0);
    p->order = one_in(r, 5) ? POLICY_ORDER_FCFS : POLICY_ORDER_FAIR;
    p->plan_depth = below(r, 4);
    p->reclaim = one_in(r, 2);
    p->size_ms = (int64_t)below(r, 3) * MINUTE;
    p->nice_ms = one_in(r, 3) ? MINUTE : 0;
    p->qos_ms = one_in(r, 3) ? 3 * MINUTE : 0;
    p->short_milli = (int32_t)below(r, 3) * 2500;
    p->max_wait_ms = one_in(r, 4) ? 20 * MINUTE : 0;
    p->use_ms = one_in(r, 4) ? 0 : 60 * MINUTE;
}

static void begin(struct incremental_run *r, uint64_t seed) {
    *r = (struct incremental_run){.c = cluster_new(0, 0), .seed = seed, .plain = seed % 2};
    rand_seed(&r->rnd, seed);
    policy_pick(r);
    world_half_life(r->c.w, 10 * MINUTE);
    for (uint32_t i = 1; i <= NODES; i++)
        cluster_node(&r->c, i, below(r, 5), one_in(r, 3) ? "A100" : "V100");
    for (uint32_t i = 1; i <= PROJECTS; i++)
        project_put(r, i);
    for (uint32_t i = 1; i < PARTITIONS; i++)
        partition_put(r, i);
    qos_put(r, 1);
    qos_put(r, 2);
}

static struct sched_request shape(struct incremental_run *r) {
    static const uint32_t gpus[] = {0, 250, 500, 1000, 1000, 1000, 2000, 4000};
    struct sched_request q = {.project = 1 + below(r, PROJECTS),
                              .user = 1 + below(r, USERS),
                              .cpus_per_task = 1 + below(r, 3) * 10,
                              .gpu_milli_per_task = gpus[below(r, 8)],
                              .partition = below(r, PARTITIONS),
                              .time_limit_ms = (int64_t)below(r, 6) * 3 * MINUTE,
                              .qos = one_in(r, 5) ? 1 + below(r, 2) : 0,
                              .nice = one_in(r, 8) ? 1 : 0};
    if (r->plain) {
        static const uint32_t few[] = {1000, 1000, 2000, 4000};
        q.gpu_milli_per_task = few[below(r, 4)];
        q.cpus_per_task = 1;
        q.partition = q.partition == 1 ? 1 + below(r, PARTITIONS - 1) : 0;
        q.time_limit_ms = (int64_t)(1 + below(r, 30)) * MINUTE;
    }
    if (one_in(r, 4))
        q.time_min_ms = (int64_t)(1 + below(r, 6)) * MINUTE;
    if (one_in(r, 6))
        q.class = SCHED_INTERACTIVE;
    if (one_in(r, 5))
        q.nodes_min = 1 + below(r, 4);
    if (q.nodes_min > 1 && q.gpu_milli_per_task >= 1000 && one_in(r, 2)) {  // not divided evenly
        q.gpu_milli_per_task = 0;
        q.gpu_milli_per_job = (2 * q.nodes_min + 1) * 1000;
    }
    if (one_in(r, 8))
        q.gpu_model = "A100";
    if (one_in(r, 10))
        q.reservation = "mine";
    if (one_in(r, 12))
        q.exclusive = true;
    if (one_in(r, 12))
        q.deadline_ms = r->c.now_ms + 10 * MINUTE;
    if (q.partition && one_in(r, 2)) {  // wherever it can start first
        static uint32_t also[PARTITIONS];
        for (uint32_t n = 1 + below(r, PARTITIONS - 1); n > 0; n--)
            also[q.also_count++] = 1 + below(r, PARTITIONS - 1);
        q.also = also;
    } else if (one_in(r, 6)) {  // parts of different shapes that start together
        static struct sched_request parts[2];
        for (q.part_count = 0; q.part_count <= below(r, 2) && q.part_count < 2; q.part_count++)
            parts[q.part_count] = (struct sched_request){.cpus_per_task = 1 + below(r, 3) * 10,
                                                         .gpu_milli_per_task = gpus[below(r, 8)],
                                                         .nodes_min = below(r, 3),
                                                         .partition = below(r, PARTITIONS)};
        q.parts = parts;
    }
    return q;
}

static uint64_t any_job(struct incremental_run *r, bool running) {
    struct sched_job_view v;
    for (uint32_t tries = 0; tries < 40 && r->job_count; tries++) {
        uint64_t id = r->jobs[below(r, r->job_count)];
        if (world_job(r->c.w, id, &v) && v.state == (running ? SCHED_JOB_RUNNING : SCHED_JOB_PENDING))
            return id;
    }
    return 0;
}

static void submit(struct incremental_run *r, uint32_t n) {
    struct sched_request q = shape(r);
    for (; n > 0 && r->job_count < JOBS; n--) {
        const struct world_request *req = world_request(r->c.w, &q);
        struct sched_job j = {
            .id = r->c.next_id++, .request = req, .submit_ms = r->c.now_ms - (int64_t)below(r, 3) * MINUTE};
        if (one_in(r, 10))
            j.begin_ms = r->c.now_ms + MINUTE;
        assert_int_equal(world_job_add(r->c.w, &j), 0);
        world_request_unref(r->c.w, req);
        r->jobs[r->job_count++] = j.id;
    }
}

static void change_job(struct incremental_run *r) {
    uint64_t id = any_job(r, false);
    struct sched_job_view v;
    if (!id || !world_job(r->c.w, id, &v))
        return;
    if (one_in(r, 3)) {
        world_job_hold(r->c.w, id, v.hold ? SCHED_HOLD_NONE : SCHED_HOLD_USER);
        return;
    }
    struct sched_request q = shape(r);
    const struct world_request *req = world_request(r->c.w, &q);
    struct sched_job j = {.id = id, .request = req, .submit_ms = v.submit_ms, .hold = v.hold};
    world_job_update(r->c.w, &j);
    world_request_unref(r->c.w, req);
}

static void reserve(struct incremental_run *r) {
    uint32_t user = 1, node = 1 + below(r, NODES);
    struct sched_reservation v = {.id = 1,
                                  .name = "mine",
                                  .start_ms = r->c.now_ms + (int64_t)below(r, 3) * 5 * MINUTE,
                                  .nodes = &node,
                                  .node_count = 1,
                                  .maintenance = one_in(r, 3),
                                  .users = &user,
                                  .user_count = 1};
    v.end_ms = v.start_ms + 10 * MINUTE;
    world_reservation_remove(r->c.w, 1);
    if (!one_in(r, 3))
        world_reservation_set(r->c.w, &v, NULL);
}

static void change_rules(struct incremental_run *r) {
    struct world *w = r->c.w;
    uint32_t node = 1 + below(r, NODES);
    switch (below(r, 8)) {
    case 0: world_node_state(w, node, (enum sched_node_state)below(r, 3)); break;
    case 1: world_node_state(w, node, SCHED_NODE_UP); break;
    case 2: cluster_node(&r->c, node, below(r, 5), "V100"); break;
    case 3: project_put(r, 1 + below(r, PROJECTS)); break;
    case 4: one_in(r, 3) ? world_partition_remove(w, 1) : partition_put(r, 1 + below(r, PARTITIONS - 1)); break;
    case 5: qos_put(r, 1 + below(r, 2)); break;
    case 6: reserve(r); break;
    default: policy_pick(r);
    }
}

static void event(struct incremental_run *r) {
    uint64_t id;
    switch (below(r, 12)) {
    case 0:
    case 1:
    case 2: submit(r, 1); break;
    case 3: submit(r, 1 + below(r, 12)); break;
    case 4:
    case 5:
    case 6:
        if ((id = any_job(r, true)))
            world_job_end(r->c.w, id, r->c.now_ms);
        break;
    case 7:
        if ((id = any_job(r, false)))
            world_job_remove(r->c.w, id);
        break;
    case 8: change_job(r); break;
    case 9: change_rules(r); break;
    case 10: r->c.now_ms += (int64_t)below(r, 20) * MINUTE; break;
    default:
        if (r->ending_count)
            cluster_requeue(&r->c, r->ending[--r->ending_count]);
    }
}

static bool same_starts(const struct sched_decisions *a, const struct sched_decisions *b) {
    if (a->starts.len != b->starts.len)
        return false;
    for (uint32_t i = 0; i < a->starts.len; i++) {
        const struct sched_start *x = &a->starts.at[i], *y = &b->starts.at[i];
        if (x->job != y->job || x->limit_ms != y->limit_ms || x->backfill != y->backfill ||
            x->partition != y->partition || x->alloc->node_count != y->alloc->node_count)
            return false;
        for (uint32_t k = 0; k < x->alloc->node_count; k++) {
            const struct sched_alloc_node *m = &x->alloc->nodes[k], *n = &y->alloc->nodes[k];
            if (m->node != n->node || m->tasks != n->tasks || m->gpu_count != n->gpu_count ||
                (m->gpu_count && memcmp(m->gpus, n->gpus, m->gpu_count * sizeof *m->gpus)))
                return false;
        }
    }
    return true;
}

static bool same_preempts(const struct sched_decisions *a, const struct sched_decisions *b) {
    if (a->preempts.len != b->preempts.len || a->plans.len != b->plans.len || a->looked_at != b->looked_at)
        return false;
    for (uint32_t i = 0; i < a->preempts.len; i++)
        if (a->preempts.at[i].victim != b->preempts.at[i].victim ||
            a->preempts.at[i].for_job != b->preempts.at[i].for_job)
            return false;
    for (uint32_t i = 0; i < a->plans.len; i++)
        if (a->plans.at[i].job != b->plans.at[i].job || a->plans.at[i].start_ms != b->plans.at[i].start_ms ||
            a->plans.at[i].partition != b->plans.at[i].partition)
            return false;
    return true;
}

static void compare(struct incremental_run *r, const struct sched_decisions *d, struct world *copy, bool all) {
    struct sched_decisions other;
    (all ? sched_decide_all : sched_decide)(copy, r->c.now_ms, &r->c.policy, &other);
    bool equal = same_preempts(d, &other) && same_starts(d, &other) && (all || d->next_ms == other.next_ms);
    for (uint32_t i = 0; equal && !all && i < r->job_count; i++)
        if (sched_job_reason(r->c.w, r->jobs[i]) != sched_job_reason(copy, r->jobs[i]))
            fail_msg("seed %" PRIu64 " at %" PRId64 ": job %" PRIu64 " waits for %s, in a copy for %s",
                     r->seed, r->c.now_ms, r->jobs[i],
                     sched_reason_word(sched_job_reason(r->c.w, r->jobs[i])),
                     sched_reason_word(sched_job_reason(copy, r->jobs[i])));
    if (!equal)
        fail_msg("seed %" PRIu64 " at %" PRId64 ": %u starts %u preempts %u plans, %s %u, %u, %u", r->seed,
                 r->c.now_ms, d->starts.len, d->preempts.len, d->plans.len,
                 all ? "with nobody left out" : "from scratch", other.starts.len, other.preempts.len,
                 other.plans.len);
    sched_decisions_done(&other);
    world_free(copy);
}

// The place of every job as it is told, against walking the whole order.
static void check_positions(struct incremental_run *r) {
    struct sched_decisions none = {0};
    struct sched_pass p = {.w = r->c.w, .policy = &r->c.policy, .now_ms = r->c.now_ms, .out = &none};
    struct sched_order told, walked;
    r->c.w->last_pass.number++;
    sched_share_update(r->c.w);
    sched_order_make(&told, &p);
    uint32_t place[JOBS] = {0}, n = 0;
    bool seen[JOBS] = {0};  // in another of its partitions
    for (uint32_t i = 0; i < r->job_count; i++) {
        const struct world_job *j = world_find(r->c.w, r->jobs[i]);
        place[i] = j && j->state == SCHED_JOB_PENDING ? sched_order_position(&told, j, NULL, NULL) : 0;
    }
    sched_order_done(&told);
    r->c.w->last_pass.number++;
    sched_order_make(&walked, &p);
    for (struct queue_entry *t; (t = sched_order_next(&walked)); sched_order_advance(&walked)) {
        uint32_t at = 0;
        while (r->jobs[at] != job_queue_at(&t->request->queue, t->at)->id)
            at++;
        n += !seen[at];
        for (uint32_t i = at; i == at && !seen[at]; seen[i++] = true)
            if (place[i] != n)
                fail_msg("seed %" PRIu64 " at %" PRId64 ": job %" PRIu64 " is told place %u, it has %u",
                         r->seed, r->c.now_ms, r->jobs[i], place[i], n);
    }
    sched_order_done(&walked);
    assert_int_equal(n, r->c.w->jobs.ready);
}

static uint32_t decide(struct incremental_run *r) {
    struct cluster *c = &r->c;
    struct world *fresh = world_clone(c->w), *all = world_clone(c->w);
    struct sched_decisions d;
    sched_decide(c->w, c->now_ms, &c->policy, &d);
    compare(r, &d, fresh, false);
    compare(r, &d, all, true);
    uint32_t moves = d.starts.len + d.preempts.len;
    for (uint32_t i = 0; i < d.starts.len; i++)
        assert_int_equal(world_job_start_in(c->w, d.starts.at[i].job, d.starts.at[i].partition, d.starts.at[i].alloc,
                                            c->now_ms), 0);
    for (uint32_t i = 0; i < d.starts.len; i++)
        if (d.starts.at[i].limit_ms)
            world_job_limit(c->w, d.starts.at[i].job, d.starts.at[i].limit_ms);
    for (uint32_t i = 0; i < d.preempts.len; i++) {
        world_job_preempt(c->w, &d.preempts.at[i]);
        r->ending[r->ending_count++] = d.preempts.at[i].victim;
        assert_true(r->ending_count < JOBS);
    }
    sched_promises_keep(c->w, &d);
    sched_decisions_done(&d);
    return moves;
}

static void a_pass_decides_as_a_new_world_does(void **state) {
    (void)state;
    const char *from = getenv("SCHED_SEED"), *many = getenv("SCHED_SEEDS");
    uint64_t first = from ? strtoull(from, NULL, 10) : 1,
             count = many   ? strtoull(many, NULL, 10)
                     : from ? 1
                            : SEEDS,
             moves = 0;
    for (uint64_t seed = first; seed < first + count; seed++) {
        static struct incremental_run r;
        begin(&r, seed);
        submit(&r, 1);
        for (uint32_t i = 0; i < EVENTS; i++) {
            event(&r);
            moves += decide(&r);
            if (i % 8 == 0)
                check_positions(&r);
            r.c.now_ms += 1000;
        }
        world_assert(r.c.w);
        world_free(r.c.w);
    }
    print_message("%" PRIu64 " starts and preemptions compared\n", moves);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_pass_decides_as_a_new_world_does)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
