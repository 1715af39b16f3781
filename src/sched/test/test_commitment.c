// Planned starts are promises: over random histories no reported start moves later, except for a reason of the list
// in sched.h, and only after something happened that is such a reason.
#include <inttypes.h>
#include <stdlib.h>

#include "base/rand.h"
#include "cluster.h"

enum { NODES = 4, JOBS_MAX = 1024, MINUTE = 60 * 1000 };

// What happened since the last pass that may move planned starts.
struct causes {
    bool nodes, rules, overrun, preempted;
};

struct commitment_run {
    struct cluster c;
    struct rand rnd;
    uint64_t seed;
    int64_t ends_ms[JOBS_MAX];      // of running jobs, when they end really; 0: does not run
    int64_t promised_ms[JOBS_MAX];  // as reported by the pass before; 0: nothing was
    struct causes causes;
    bool shares;  // several projects
    bool longer;  // a running job's time limit was raised: it counts in limits for longer than was known
    uint32_t promises, moved, early, passes;
};

static uint64_t below(struct commitment_run *r, uint64_t n) {
    return rand_below(&r->rnd, n);
}

static void submit(struct commitment_run *r) {
    if (r->c.next_id >= JOBS_MAX)
        return;
    struct sched_request q = {.project = 1 + (r->shares ? (uint32_t)below(r, 3) : 0),
                              .user = 1 + (uint32_t)below(r, 3),
                              .time_limit_ms = MINUTE * (1 + (int64_t)below(r, 60))};
    if (below(r, 6) == 0) {
        q.nodes_min = 1 + (uint32_t)below(r, NODES);
        q.gpu_milli_per_node = 4000;
    } else {
        q.gpu_milli_per_task = 1000 * (1 + (uint32_t)below(r, 3));
    }
    if (below(r, 8) == 0)
        q.priority = 1;
    if (below(r, 3) == 0)
        q.qos = 1;
    cluster_submit(&r->c, &q);
}

static void start(struct commitment_run *r, const struct sched_start *s) {
    struct sched_job_view v;
    assert_int_equal(world_job_start_in(r->c.w, s->job, s->partition, s->alloc, r->c.now_ms), 0);
    assert_true(world_job(r->c.w, s->job, &v));
    int64_t limit_ms = v.limit_end_ms - r->c.now_ms;
    r->ends_ms[s->job] =
        r->c.now_ms + (below(r, 2) ? limit_ms : 1000 + (int64_t)below(r, (uint64_t)limit_ms));
    if (below(r, 40) == 0)
        r->ends_ms[s->job] += 2 * MINUTE;  // it will not end in time
}

static bool is_cause(const struct commitment_run *r, enum sched_plan_late why) {
    switch (why) {
    case SCHED_PLAN_NODES: return r->causes.nodes;
    case SCHED_PLAN_RULES: return r->causes.rules;
    case SCHED_PLAN_SHARE: return r->shares || r->causes.preempted;
    case SCHED_PLAN_OVERRUN: return r->causes.overrun;
    case SCHED_PLAN_IN_TIME:
    default: return false;
    }
}

// A job that was promised a start and has none now must have started, or not be allowed to start any more.
static void check_dropped(struct commitment_run *r, const struct sched_decisions *d, uint64_t id) {
    struct sched_job_view v;
    for (uint32_t i = 0; i < d->plans.len; i++)
        if (d->plans.at[i].job == id)
            return;
    if (!world_job(r->c.w, id, &v) || v.state != SCHED_JOB_PENDING)
        return;
    enum sched_reason reason = sched_job_reason(r->c.w, id);
    if (reason == SCHED_REASON_QOS_LIMIT && r->longer)
        return;
    bool claimed = r->shares || r->causes.preempted || v.preemptor;
    if (!r->causes.nodes && !r->causes.rules && !claimed && !r->causes.overrun)
        fail_msg("seed %" PRIu64 ": the promise to job %" PRIu64 " was dropped: %s", r->seed, id,
                 sched_reason_word(reason));
}

static void check_plans(struct commitment_run *r, const struct sched_decisions *d) {
    for (uint32_t i = 0; i < d->plans.len; i++) {
        const struct sched_plan *p = &d->plans.at[i];
        int64_t before_ms = r->promised_ms[p->job];
        if (before_ms && p->start_ms > before_ms) {
            r->moved++;
            if (!p->why || !is_cause(r, p->why))
                fail_msg("seed %" PRIu64 " at %" PRId64 " s: job %" PRIu64 " was to start at %" PRId64
                         ", now %" PRId64 " s; the reason given is '%s'",
                         r->seed, r->c.now_ms / 1000, p->job, before_ms / 1000, p->start_ms / 1000,
                         sched_plan_late_word(p->why));
        }
        r->promises += !before_ms;
        r->early += before_ms && p->start_ms < before_ms;
    }
    for (uint64_t id = 1; id < r->c.next_id; id++)
        if (r->promised_ms[id])
            check_dropped(r, d, id);
}

// What a pass decided, for reading a failure (SCHED_TRACE=1).
static void print_pass(const struct commitment_run *r, const struct sched_decisions *d) {
    struct sched_job_view v;
    print_message("%" PRId64 " s:", r->c.now_ms / 1000);
    for (uint32_t i = 0; i < d->starts.len && world_job(r->c.w, d->starts.at[i].job, &v); i++)
        print_message(" start %" PRIu64 "(p%u, until %" PRId64 ", node %u)", v.id,
                      sched_request_asked(v.request)->project,
                      (r->c.now_ms + sched_request_asked(v.request)->time_limit_ms) / 1000,
                      d->starts.at[i].alloc->nodes[0].node);
    for (uint32_t i = 0; i < d->preempts.len; i++)
        print_message(" preempt %" PRIu64 " for %" PRIu64, d->preempts.at[i].victim,
                      d->preempts.at[i].for_job);
    for (uint32_t i = 0; i < d->plans.len && world_job(r->c.w, d->plans.at[i].job, &v); i++) {
        print_message(" plan %" PRIu64 "(p%u) at %" PRId64 " on", v.id,
                      sched_request_asked(v.request)->project, d->plans.at[i].start_ms / 1000);
        for (uint32_t k = 0; k < d->plans.at[i].part_count; k++)
            print_message(" %u", d->plans.at[i].parts[k].node);
        if (d->plans.at[i].why)
            print_message(" (%s)", sched_plan_late_word(d->plans.at[i].why));
    }
    print_message("\n");
}

static void pass(struct commitment_run *r) {
    struct cluster *c = &r->c;
    struct sched_decisions d;
    for (uint64_t id = 1; id < c->next_id; id++) {
        struct sched_job_view v;
        r->causes.overrun |=
            world_job(c->w, id, &v) && v.state == SCHED_JOB_RUNNING && v.limit_end_ms <= c->now_ms;
    }
    sched_decide(c->w, c->now_ms, &c->policy, &d);
    if (getenv("SCHED_TRACE"))
        print_pass(r, &d);
    for (uint32_t i = 0; i < d.starts.len; i++)
        start(r, &d.starts.at[i]);
    for (uint32_t i = 0; i < d.preempts.len; i++) {
        world_job_preempt(c->w, &d.preempts.at[i]);
        r->causes.preempted = true;
    }
    check_plans(r, &d);
    memset(r->promised_ms, 0, sizeof r->promised_ms);
    for (uint32_t i = 0; i < d.plans.len; i++)
        r->promised_ms[d.plans.at[i].job] = d.plans.at[i].start_ms;
    world_plans_keep(c->w, &d);
    r->causes = (struct causes){.preempted = d.preempts.len > 0};
    for (uint32_t i = 0; i < d.preempts.len; i++) {
        cluster_requeue(c, d.preempts.at[i].victim);
        r->ends_ms[d.preempts.at[i].victim] = 0;
    }
    r->passes++;
    sched_decisions_done(&d);
}

static void something_happens(struct commitment_run *r) {
    struct cluster *c = &r->c;
    uint32_t node = 1 + (uint32_t)below(r, NODES);
    uint64_t id = 1 + below(r, c->next_id);
    switch (below(r, 60)) {
    case 0:
        world_node_state(c->w, node, SCHED_NODE_DRAINED);
        r->causes.nodes = true;
        break;
    case 1:
    case 2: world_node_state(c->w, node, SCHED_NODE_UP); break;
    case 3:
        if (world_job_limit(c->w, id, 90 * MINUTE) == 0)
            r->causes.rules = r->longer = true;
        break;
    case 4:
        if (world_job_hold(c->w, id, SCHED_HOLD_USER) == 0)
            r->promised_ms[id] = 0;
        break;
    case 5:
        if (world_job_hold(c->w, id, SCHED_HOLD_NONE) == 0)
            r->promised_ms[id] = 0;
        break;
    default: submit(r);
    }
}

static void history(struct commitment_run *r, uint64_t seed) {
    *r = (struct commitment_run){.seed = seed, .c = cluster_new(NODES, 4)};
    rand_seed(&r->rnd, seed * 31 + 7);
    r->shares = seed % 3 == 0;
    for (uint32_t i = 1; i <= 3; i++)
        cluster_project(&r->c, i, 0, r->shares ? 4 : 0);
    struct sched_qos few = {.id = 1, .name = "few", .max_jobs_per_user = 3};
    test_qos_set(r->c.w, &few, NULL);
    r->c.policy.plan_depth = 1 + (uint32_t)below(r, 3);
    r->c.policy.short_ms = 5 * MINUTE;
    r->c.policy.short_lead_ms = 60 * MINUTE;
    r->c.policy.max_wait_ms = below(r, 2) ? 100 * MINUTE : 0;
    for (unsigned step = 0; step < 400; step++) {
        for (unsigned i = (unsigned)below(r, 3); i > 0; i--)
            something_happens(r);
        pass(r);
        r->c.now_ms += 1000 * (int64_t)below(r, 120);
        for (uint64_t id = 1; id < r->c.next_id; id++)
            if (r->ends_ms[id] && r->ends_ms[id] <= r->c.now_ms) {
                world_job_end(r->c.w, id, r->c.now_ms);
                r->ends_ms[id] = 0;
            }
    }
    world_assert(r->c.w);
    world_free(r->c.w);
}

static void no_reported_start_moves_later(void **state) {
    (void)state;
    const char *from = getenv("SCHED_SEED"), *many = getenv("SCHED_SEEDS");
    uint64_t first = from ? strtoull(from, NULL, 10) : 1, count = many   ? strtoull(many, NULL, 10)
                                                                  : from ? 1
                                                                         : 40;
    uint32_t promises = 0, moved = 0, early = 0;
    struct commitment_run *r = xcalloc(1, sizeof *r);
    for (uint64_t seed = first; seed < first + count; seed++) {
        history(r, seed);
        promises += r->promises;
        moved += r->moved;
        early += r->early;
    }
    free(r);
    print_message("%u promises: %u moved earlier, %u later for a reason\n", promises, early, moved);
    if (!from)
        assert_true(promises > 10 * count && early > 0 && moved > 0);
}

// Short jobs that keep coming, more than the cluster can run, pass a wide one only until it is overdue: then it is
// first, gets a planned start at the end of what runs, and has it.
static void a_stream_of_short_jobs_does_not_pass_a_wide_one(void **state) {
    (void)state;
    struct cluster c = cluster_new(2, 4);
    cluster_project(&c, 1, 0, 8);
    c.policy.max_wait_ms = 5 * MINUTE;  // half a minute for a job that needs the whole cluster
    struct sched_request one = {.project = 1, .user = 1, .gpu_milli_per_task = 1000, .time_limit_ms = 10000},
                         wide = {.project = 1,
                                 .user = 2,
                                 .nodes_min = 2,
                                 .gpu_milli_per_node = 4000,
                                 .time_limit_ms = 4 * 3600 * 1000};
    int64_t ends_ms[JOBS_MAX] = {0}, planned_ms = 0;
    uint64_t id = 0;
    for (unsigned step = 0; step < 100; step++) {
        for (unsigned i = 0; i < 3; i++)
            cluster_submit(&c, &one);
        if (step == 5)
            id = cluster_submit(&c, &wide);
        for (uint64_t k = 1; k < c.next_id && k < JOBS_MAX; k++) {
            struct sched_job_view v;
            if (ends_ms[k] && ends_ms[k] <= c.now_ms) {
                world_job_end(c.w, k, c.now_ms);
                ends_ms[k] = 0;
            } else if (!ends_ms[k] && world_job(c.w, k, &v) && v.state == SCHED_JOB_RUNNING) {
                ends_ms[k] = v.limit_end_ms;
            }
        }
        cluster_round(&c);
        struct sched_plan plan;
        if (id && !planned_ms && world_job_planned(c.w, id, &plan))
            planned_ms = plan.start_ms;
        if (id && cluster_runs(&c, id)) {
            assert_true(planned_ms && c.now_ms - 1000 <= planned_ms);
            assert_in_range(step, 30, 60);
            world_free(c.w);
            return;
        }
    }
    fail_msg("the wide job was passed for ever");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_reported_start_moves_later),
        cmocka_unit_test(a_stream_of_short_jobs_does_not_pass_a_wide_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
