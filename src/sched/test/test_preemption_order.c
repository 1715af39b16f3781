// Worlds in which jobs took the same GPUs from each other without end, and the rule that ends it: who made
// room for another job does not take it back from that one, nor from those that one made room for.
#include <stdlib.h>

#include "cluster.h"

enum { GPU = 1000 };

static void partition(struct cluster *c, uint32_t id, int32_t tier) {
    char name[8];
    snprintf(name, sizeof name, "q%u", id);
    struct sched_partition p = {
        .id = id, .name = name, .nodes = (uint32_t[]){id, id + 1}, .node_count = 2, .tier = tier};
    assert_int_equal(test_partition_set(c->w, &p, NULL), 0);
}

static void rests(struct cluster *c) {
    uint32_t rounds = 0;
    for (; cluster_round(c); rounds++)
        assert_true(rounds < 40);
    for (int i = 0; i < 5; i++)
        assert_int_equal(cluster_round(c), 0);
    world_assert(c->w);
    world_free(c->w);
}

// Shares in a circle: a small job within its project's share takes a gang that is above its own, another
// project starts on what is left over, and the gangs come back beyond their shares.
static void gangs_in_overlapping_partitions(void **state) {
    (void)state;
    struct cluster c = cluster_new(0, 0);
    static const uint32_t gpus[] = {2, 2, 1, 2};
    static const int64_t quota[] = {1, 2, 3, 0};
    for (uint32_t i = 1; i <= 4; i++) {
        cluster_node(&c, i, gpus[i - 1], "V100");
        cluster_project(&c, i, 0, quota[i - 1]);
    }
    for (uint32_t i = 1; i <= 3; i++)
        partition(&c, i, i < 3);
    cluster_submit(&c, &(struct sched_request){
                           .project = 3, .user = 3, .cpus_per_task = 1, .gpu_milli_per_task = GPU, .partition = 2});
    assert_int_equal(cluster_round(&c), 1);
    static const uint32_t also = 1;
    static const struct sched_request asked[] = {
        {.project = 1, .user = 1, .cpus_per_task = 1, .gpu_milli_per_task = GPU, .tasks = 3, .partition = 1},
        {.project = 2, .user = 1, .cpus_per_task = 1, .gpu_milli_per_task = GPU, .tasks = 3, .partition = 3},
        {.project = 4, .user = 2, .cpus_per_task = 1, .gpu_milli_per_task = 2 * GPU, .partition = 3},
        {.project = 4, .user = 2, .cpus_per_task = 1, .gpu_milli_per_task = GPU, .partition = 3,
         .also = &also, .also_count = 1},
        {.project = 1, .user = 1, .cpus_per_task = 1, .gpu_milli_per_task = GPU, .partition = 2},
    };
    for (uint32_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        cluster_submit(&c, &asked[i]);
        c.now_ms += 1000;
    }
    rests(&c);
}

// Share against quota, inside one department: a job inside its quota takes gangs that are above theirs but
// inside their share, and they take it back by that.
static void share_against_quota(void **state) {
    (void)state;
    struct cluster c = cluster_new(0, 0);
    static const uint32_t gpus[] = {3, 3, 4};
    static const int64_t quota[] = {2, 2, 1, 3};
    static const uint32_t parent[] = {0, 0, 1, 2};
    for (uint32_t i = 1; i <= 3; i++)
        cluster_node(&c, i, gpus[i - 1], "V100");
    for (uint32_t i = 1; i <= 4; i++)
        cluster_project(&c, i, parent[i - 1], quota[i - 1]);
    for (uint32_t i = 1; i <= 3; i++)
        partition(&c, i, i == 3);
    static const struct {
        struct sched_request asked;
        uint32_t nodes[2];  // it runs there; 0: it waits
    } jobs[] = {
        {{.project = 3, .user = 3, .class = SCHED_INTERACTIVE, .gpu_milli_per_task = GPU, .partition = 1}, {1}},
        {{.project = 2, .user = 3, .gpu_milli_per_task = GPU, .partition = 2}, {0}},
        {{.project = 4, .user = 3, .gpu_milli_per_node = GPU, .nodes_min = 2}, {1, 2}},
        {{.project = 2, .user = 1, .gpu_milli_per_task = GPU}, {1}},
        {{.project = 2, .user = 2, .gpu_milli_per_task = 400, .partition = 1}, {0}},
        {{.project = 4, .user = 2, .gpu_milli_per_task = 250, .partition = 3}, {3}},
        {{.project = 3, .user = 2, .gpu_milli_per_node = GPU, .nodes_min = 2, .partition = 2}, {0}},
        {{.project = 1, .user = 2, .gpu_milli_per_task = GPU, .partition = 1}, {2}},
        {{.project = 1, .user = 3, .gpu_milli_per_task = GPU, .partition = 2}, {3}},
        {{.project = 4, .user = 1, .gpu_milli_per_task = GPU, .partition = 2}, {3}},
    };
    uint16_t used[4] = {0};
    for (uint32_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        struct sched_request q = jobs[i].asked;
        q.cpus_per_task = 1;
        uint64_t id = cluster_submit(&c, &q);
        c.now_ms += 1000;
        uint32_t count = (jobs[i].nodes[0] > 0) + (jobs[i].nodes[1] > 0);
        struct sched_alloc *a = sched_alloc_new(count, count);
        struct sched_alloc_gpu *at = sched_alloc_gpus(a);
        for (uint32_t k = 0; k < count; k++) {
            uint32_t milli = q.gpu_milli_per_task ? q.gpu_milli_per_task : q.gpu_milli_per_node;
            at[k] = (struct sched_alloc_gpu){used[jobs[i].nodes[k]]++, (uint16_t)milli};
            a->nodes[k] = (struct sched_alloc_node){.node = jobs[i].nodes[k], .cpus = 1, .tasks = 1, .gpus = &at[k],
                                              .gpu_count = 1};
        }
        if (count)
            assert_int_equal(world_job_start_in(c.w, id, q.partition, a, c.now_ms), 0);
        sched_alloc_free(a);
    }
    rests(&c);
}

// --- the rule by itself: job 2 of a project below its share, job 1 of one above it ---

static struct cluster two(void) {
    struct cluster c = cluster_new(1, 2);
    cluster_project(&c, 1, 0, 1);
    cluster_project(&c, 2, 0, 1);
    cluster_submit(&c, &(struct sched_request){.project = 1, .user = 1, .gpu_milli_per_task = 2 * GPU});
    assert_int_equal(cluster_round(&c), 1);
    cluster_submit(&c, &(struct sched_request){.project = 2, .user = 1, .gpu_milli_per_task = GPU});
    return c;
}

static uint64_t takes(struct cluster *c) {
    struct sched_decisions d;
    sched_decide(c->w, c->now_ms, &c->policy, &d);
    assert_true(d.preempts.len <= 1);
    uint64_t preemptor = d.preempts.len ? d.preempts.at[0].for_job : 0;
    sched_decisions_done(&d);
    return preemptor;
}

static void preempted(struct cluster *c, uint64_t id, struct sched_preemption g) {
    world_job_preemptions_set(c->w, id, &g, 1);
    world_assert(c->w);
}

static void room_once_made_is_not_taken_back(void **state) {
    (void)state;
    struct cluster c = two();
    assert_int_equal(takes(&c), 2);
    preempted(&c, 2, (struct sched_preemption){.by = 1, .share = GPU, .by_share = GPU});
    assert_int_equal(takes(&c), 0);
    // one like it, behind it, never made room for anybody
    cluster_submit(&c, &(struct sched_request){.project = 2, .user = 1, .gpu_milli_per_task = GPU});
    assert_int_equal(takes(&c), 3);
    world_job_remove(c.w, 3);
    struct world *copy = world_clone(c.w);
    struct cluster again = c;
    again.w = copy;
    assert_int_equal(takes(&again), 0);
    world_free(copy);
    world_free(c.w);
}

static void over_any_number_of_steps(void **state) {
    (void)state;
    struct cluster c = two();
    cluster_submit(&c, &(struct sched_request){.project = 1, .user = 1, .gpu_milli_per_task = 2 * GPU});
    preempted(&c, 2, (struct sched_preemption){.by = 3, .share = GPU, .by_share = GPU});
    assert_int_equal(takes(&c), 2);
    preempted(&c, 3, (struct sched_preemption){.by = 1, .share = GPU, .by_share = GPU});
    assert_int_equal(takes(&c), 0);
    world_job_remove(c.w, 3);
    assert_int_equal(takes(&c), 2);
    world_free(c.w);
}

static void unless_things_have_changed(void **state) {
    (void)state;
    struct cluster c = two();
    preempted(&c, 2, (struct sched_preemption){.by = 1, .share = GPU, .by_share = GPU, .claim = SCHED_CLAIM_BEYOND});
    assert_int_equal(takes(&c), 2);  // what the other has beyond its due is not for good
    preempted(&c, 2, (struct sched_preemption){.by = 1, .share = 0, .by_share = GPU});
    assert_int_equal(takes(&c), 2);  // due more than then
    preempted(&c, 2, (struct sched_preemption){.by = 1, .share = GPU, .by_share = 2 * GPU});
    assert_int_equal(takes(&c), 2);  // the other is due less than then
    preempted(&c, 2, (struct sched_preemption){.by = 1, .share = GPU, .by_share = GPU});
    assert_int_equal(takes(&c), 0);
    world_preemptions_forget(c.w);
    assert_int_equal(takes(&c), 2);
    world_free(c.w);
}

// Shares that follow who runs would let the two take turns.
static void the_second_time_counts_whatever_the_shares(void **state) {
    (void)state;
    struct cluster c = two();
    world_job_end(c.w, 1, c.now_ms);
    assert_int_equal(cluster_round(&c), 1);
    const struct sched_preempt p = {.victim = 2, .for_job = 3, .grounds = {.by = 3, .share = 0, .by_share = 2 * GPU}};
    cluster_submit(&c, &(struct sched_request){.project = 1, .user = 1, .gpu_milli_per_task = 2 * GPU});
    for (int i = 0; i < 2; i++) {
        world_job_preempt(c.w, &p);
        cluster_requeue(&c, 2);
        c.now_ms += 1000;
        assert_int_equal(cluster_round(&c), 1);
        assert_true(cluster_runs(&c, 3));
        assert_int_equal(takes(&c), i ? 0 : 2);
        if (i == 0) {
            world_job_preempt(c.w, &(struct sched_preempt){.victim = 3, .for_job = 2, .grounds = {.by = 2}});
            cluster_requeue(&c, 3);
            assert_int_equal(cluster_round(&c), 1);
            assert_true(cluster_runs(&c, 2));
        }
    }
    world_free(c.w);
}

static void a_job_that_ends_by_itself_begins_it_anew(void **state) {
    (void)state;
    struct cluster c = two();
    cluster_node(&c, 2, 1, "V100");
    cluster_round(&c);  // job 2 has the new node
    uint32_t count;
    uint64_t next = cluster_submit(&c, &(struct sched_request){.project = 2, .user = 1, .gpu_milli_per_task = GPU});
    preempted(&c, next, (struct sched_preemption){.by = 1, .share = GPU, .by_share = GPU});
    world_job_preempt(c.w, &(struct sched_preempt){.victim = 1, .for_job = next,
                                                   .grounds = {.by = next, .share = GPU, .by_share = GPU}});
    cluster_requeue(&c, 1);  // it made room: that stays known, here and in its own list
    struct sched_preemption *by = world_job_preemptions(c.w, 1, &count);
    assert_int_equal(count, 1);
    assert_int_equal(by[0].by, next);
    free(by);
    free(world_job_preemptions(c.w, next, &count));
    assert_int_equal(count, 1);
    world_job_end(c.w, 2, c.now_ms);
    assert_null(world_job_preemptions(c.w, next, &count));
    free(world_job_preemptions(c.w, 1, &count));
    assert_int_equal(count, 1);
    world_free(c.w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gangs_in_overlapping_partitions),
        cmocka_unit_test(share_against_quota),
        cmocka_unit_test(room_once_made_is_not_taken_back),
        cmocka_unit_test(over_any_number_of_steps),
        cmocka_unit_test(unless_things_have_changed),
        cmocka_unit_test(the_second_time_counts_whatever_the_shares),
        cmocka_unit_test(a_job_that_ends_by_itself_begins_it_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
