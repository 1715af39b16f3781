// How steps are packed into a job. The tables' task counts and GPUs are those of Slurm 22.05 for the same
// command lines; the last test packs random steps into random jobs and checks what must always hold.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/rand.h"
#include "base/text.h"
#include "sched/step_pack.h"

enum { NODES_MAX = 4, RANDOM_JOBS = 3000 };

struct pack_fixture {
    struct arena arena;
    struct step_slot slots[NODES_MAX];
    uint32_t count;
    struct error error;
};

static void add_node(struct pack_fixture *f, uint32_t cpus, uint32_t gpus) {
    struct step_slot *s = &f->slots[f->count];
    *s = (struct step_slot){.node = arena_printf(&f->arena, "n%u", ++f->count),
                            .cpus = cpus,
                            .cpu_held = arena_alloc(&f->arena, cpus + 1),
                            .memory_bytes = 1000,
                            .gpus = arena_alloc(&f->arena, (gpus + 1) * sizeof *s->gpus),
                            .gpu_count = gpus};
    for (uint32_t i = 0; i < gpus; i++)
        s->gpus[i] = (struct step_gpu){.index = i, .milli = 1000};
}

static void make(struct pack_fixture *f, uint32_t cpus, uint32_t gpus) {
    *f = (struct pack_fixture){0};
    add_node(f, cpus, gpus);
    add_node(f, cpus, gpus);
}

static int plan(struct pack_fixture *f, const struct step_request *r, struct step_layout *out) {
    f->error = (struct error){0};
    return sched_step_pack(r, f->slots, f->count, &f->arena, out, &f->error);
}

// "3,1": tasks by node.
static const char *counts(struct pack_fixture *f, const struct step_layout *l) {
    cleanup_buf struct buf b = {0};
    for (uint32_t i = 0; i < l->len; i++)
        buf_addf(&b, "%s%u", i ? "," : "", l->at[i].tasks);
    return arena_strdup(&f->arena, buf_str(&b));
}

// "0 0 1": the node of each rank.
static const char *places(struct pack_fixture *f, const struct step_layout *l, uint32_t tasks) {
    cleanup_buf struct buf b = {0};
    for (uint32_t rank = 0; rank < tasks; rank++)
        for (uint32_t i = 0; i < l->len; i++)
            for (uint32_t t = 0; t < l->at[i].tasks; t++)
                if (l->at[i].ranks[t] == rank)
                    buf_addf(&b, "%s%u", rank ? " " : "", i);
    return arena_strdup(&f->arena, buf_str(&b));
}

// "0,1 2,3": GPUs that each task of the first node sees.
static const char *seen(struct pack_fixture *f, const struct step_share *h) {
    cleanup_buf struct buf b = {0};
    for (uint32_t t = 0; t < h->tasks; t++) {
        bool first = true;
        buf_adds(&b, t ? " " : "");
        for (uint32_t g = 0; g < h->gpu_count; g++)
            if (!h->task_gpus || h->task_gpus[t] >> g & 1) {
                buf_addf(&b, "%s%u", first ? "" : ",", h->gpus[g].index);
                first = false;
            }
    }
    return arena_strdup(&f->arena, buf_str(&b));
}

static void whole_steps_exclude_each_other(void **state) {
    struct pack_fixture f;
    struct step_layout one, two;
    make(&f, 4, 0);
    struct step_request r = {.tasks = 2, .whole = true};
    assert_int_equal(plan(&f, &r, &one), 0);
    assert_int_equal(one.len, 2);
    assert_int_equal(one.at[0].cpu_count, 4);
    assert_int_equal(one.at[1].ranks[0], 1);
    sched_step_hold(f.slots, &one);
    assert_int_equal(plan(&f, &r, &two), -EAGAIN);
    r.whole = false;
    assert_int_equal(plan(&f, &r, &two), -EAGAIN);
    r.overlap = true;
    assert_int_equal(plan(&f, &r, &two), 0);
    assert_int_equal(two.at[0].cpu_count, 0);
    sched_step_free(f.slots, &one);
    assert_int_equal(f.slots[0].cpus_held, 0);
    arena_done(&f.arena);
}

static void exact_steps_fill_up(void **state) {
    struct pack_fixture f;
    struct step_layout s[4], no;
    make(&f, 4, 0);
    struct step_request r = {.tasks = 2, .cpus_per_task = 1};
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(plan(&f, &r, &s[i]), 0);
        assert_int_equal(s[i].len, 1);
        assert_int_equal(s[i].at[0].slot, i / 2);
        assert_int_equal(s[i].at[0].cpus[0], i % 2 ? 2 : 0);
        sched_step_hold(f.slots, &s[i]);
    }
    assert_int_equal(plan(&f, &r, &no), -EAGAIN);
    sched_step_free(f.slots, &s[1]);
    assert_int_equal(plan(&f, &r, &no), 0);
    assert_int_equal(no.at[0].cpus[0], 2);
    arena_done(&f.arena);
}

static void steps_that_never_fit_are_refused(void **state) {
    struct pack_fixture f;
    struct step_layout s;
    const char *n2[] = {"n2"}, *n9[] = {"n9"}, *both[] = {"n1", "n2"};
    const struct {
        struct step_request r;
        int error;
        const char *words;
    } table[] = {
        {{.tasks = 9, .cpus_per_task = 1}, -E2BIG, "More processors requested than permitted"},
        {{.tasks = 3, .nodes = 3}, -E2BIG, "Only allocated 2 nodes asked for 3"},
        {{.tasks = 1, .nodes = 2}, -EINVAL, "1 tasks cannot run on 2 nodes"},
        {{.tasks = 1, .memory_per_node_bytes = 1001}, -E2BIG, "Memory required by task is not available"},
        {{.tasks = 1, .whole = true, .memory_per_cpu_bytes = 300}, -E2BIG, "Memory required by task is not available"},
        {{.tasks = 1, .gpus_milli = 3000}, -E2BIG, "Step requested gres=gpu:3 is more than the job's gres=gpu:2"},
        {{.tasks = 2, .nodes = 2, .gpus_milli = 1000}, -EINVAL,
         "Step requested gres=gpu:1 is less than the requested min nodes=2"},
        {{.tasks = 1, .gpus_per_node_milli = 2000}, -E2BIG, "More GPUs requested on a node than the job has there"},
        {{.tasks = 3, .gpus_per_task_milli = 1000}, -E2BIG, "More processors requested than permitted"},
        {{.tasks = 1, .required = n9, .required_count = 1}, -E2BIG, "Requested node configuration is not available"},
        {{.tasks = 2, .nodes = 1, .required = both, .required_count = 2}, -E2BIG,
         "Requested node configuration is not available"},
        {{.tasks = 2, .nodes = 2, .excluded = n2, .excluded_count = 1}, -E2BIG, "Only allocated 1 nodes asked for 2"},
        {{.tasks = 0}, -EINVAL, "a step has 1 to 65536 tasks; 0 were asked for"},
    };
    make(&f, 4, 1);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        assert_int_equal(plan(&f, &table[i].r, &s), table[i].error);
        assert_string_equal(f.error.text, table[i].words);
    }
    assert_int_equal(plan(&f, &(struct step_request){.tasks = 9, .whole = true, .overcommit = true}, &s), 0);
    arena_done(&f.arena);
    make(&f, 4, 0);
    assert_int_equal(plan(&f, &(struct step_request){.tasks = 1, .gpus_milli = 1000}, &s), -E2BIG);
    assert_string_equal(f.error.text, "Step requested GRES but job doesn't have GRES");
    arena_done(&f.arena);
}

static void tasks_and_ranks_are_dealt_as_in_slurm(void **state) {
    static const struct {
        uint32_t cpus[3];
        struct step_request r;
        const char *counts, *places;
    } table[] = {
        {{3, 1}, {.tasks = 4, .nodes = 2}, "3,1", "0 0 0 1"},
        {{3, 1}, {.tasks = 3, .nodes = 2}, "2,1", "0 0 1"},
        {{3, 1, 1}, {.tasks = 5, .nodes = 3}, "3,1,1", "0 0 0 1 2"},
        {{4, 4}, {.tasks = 5, .nodes = 2}, "3,2", "0 0 0 1 1"},
        {{4, 4}, {.tasks = 5, .nodes = 2, .distribution = STEP_CYCLIC}, "3,2", "0 1 0 1 0"},
        {{4, 4}, {.tasks = 5, .nodes = 2, .distribution = STEP_PLANE, .plane_size = 2}, "3,2", "0 0 1 1 0"},
        {{7, 1}, {.tasks = 8, .nodes = 2}, "7,1", "0 0 0 0 0 0 0 1"},
        {{7, 1}, {.tasks = 8, .nodes = 2, .distribution = STEP_CYCLIC}, "7,1", "0 1 0 0 0 0 0 0"},
        {{7, 1}, {.tasks = 8, .nodes = 2, .distribution = STEP_PLANE, .plane_size = 3}, "7,1", "0 0 0 1 0 0 0 0"},
        {{5, 1, 1}, {.tasks = 7, .nodes = 3, .distribution = STEP_CYCLIC}, "5,1,1", "0 1 2 0 0 0 0"},
        {{5, 1, 1},
         {.tasks = 7, .nodes = 3, .distribution = STEP_PLANE, .plane_size = 2},
         "5,1,1",
         "0 0 1 2 0 0 0"},
        {{6, 2}, {.tasks = 4, .nodes = 2}, "2,2", "0 0 1 1"},
        {{6, 2}, {.tasks = 8, .nodes = 2}, "6,2", "0 0 0 0 0 0 1 1"},
        {{4, 4}, {.tasks = 4, .nodes = 2, .cpus_per_task = 2}, "2,2", "0 0 1 1"},
        {{4, 4}, {.tasks = 2, .nodes = 1, .cpus_per_task = 2}, "2", "0 0"},
        {{2}, {.tasks = 4, .overcommit = true}, "4", "0 0 0 0"},
        {{4, 4}, {.tasks = 9, .nodes = 2, .overcommit = true}, "5,4", "0 0 0 0 0 1 1 1 1"},
        {{4, 4}, {.tasks = 4, .nodes = 2, .tasks_per_node = 2}, "2,2", "0 0 1 1"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (int whole = 0; whole < 2; whole++) {
            struct pack_fixture f = {0};
            struct step_layout l;
            struct step_request r = table[i].r;
            for (int n = 0; n < 3 && table[i].cpus[n]; n++)
                add_node(&f, table[i].cpus[n], 0);
            r.whole = whole;
            assert_int_equal(plan(&f, &r, &l), 0);
            assert_string_equal(counts(&f, &l), table[i].counts);
            assert_string_equal(places(&f, &l, r.tasks), table[i].places);
            arena_done(&f.arena);
        }
}

static void named_nodes_come_first(void **state) {
    struct pack_fixture f;
    struct step_layout l;
    const char *n2[] = {"n2"};
    make(&f, 4, 0);
    assert_int_equal(plan(&f, &(struct step_request){.tasks = 1, .required = n2, .required_count = 1}, &l), 0);
    assert_int_equal(l.len, 1);
    assert_int_equal(l.at[0].slot, 1);
    struct step_request more = {.tasks = 2, .nodes = 2, .required = n2, .required_count = 1};
    assert_int_equal(plan(&f, &more, &l), 0);
    assert_int_equal(l.len, 2);  // further nodes are added up to the number that was asked for
    struct step_request less = {.tasks = 2, .whole = true, .excluded = n2, .excluded_count = 1};
    assert_int_equal(plan(&f, &less, &l), 0);
    assert_int_equal(l.len, 1);
    assert_int_equal(l.at[0].slot, 0);
    arena_done(&f.arena);
}

static void gpus_are_bound_as_in_slurm(void **state) {
    static const struct {
        uint32_t tasks, gpus, per_task;
        const char *bind, *seen;
    } table[] = {
        {2, 2, 1, NULL, "0 1"},
        {2, 4, 2, NULL, "0,1 2,3"},
        {2, 4, 1, NULL, "0 1"},
        {2, 4, 0, NULL, "0,1,2,3 0,1,2,3"},
        {2, 4, 0, "single:1", "0 1"},
        {4, 2, 0, "single:2", "0 0 1 1"},
        {4, 4, 0, "single:1", "0 1 2 3"},
        {4, 4, 0, "map_gpu:3,2,1,0", "3 2 1 0"},
        {4, 4, 0, "map_gpu:0,1", "0 1 0 1"},
        {4, 4, 0, "verbose,map_gpu:2*2,3*2", "2 2 3 3"},
        {2, 4, 0, "mask_gpu:0x3,0xc", "0,1 2,3"},
        {2, 4, 0, "per_task:1", "0 1"},
        {2, 4, 0, "per_task:2", "0,1 2,3"},
        {2, 4, 0, "none", "0,1,2,3 0,1,2,3"},
        {2, 4, 1, "none", "0,1 0,1"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct pack_fixture f = {0};
        struct step_layout l;
        struct step_request r = {.tasks = table[i].tasks, .gpus_per_task_milli = table[i].per_task * 1000};
        add_node(&f, 8, table[i].gpus);
        if (table[i].bind)
            assert_int_equal(sched_step_bind_parse(table[i].bind, &f.arena, &r.bind, &f.error), 0);
        assert_int_equal(plan(&f, &r, &l), 0);
        assert_string_equal(seen(&f, &l.at[0]), table[i].seen);
        arena_done(&f.arena);
    }
}

static void a_total_of_gpus_is_spread_as_in_slurm(void **state) {
    static const struct {
        uint32_t have[2], want, first, second;
    } table[] = {{{2, 1}, 3, 2, 1}, {{4, 2}, 3, 2, 1}, {{4, 2}, 5, 4, 1}, {{4, 2}, 4, 3, 1}, {{4, 2}, 6, 4, 2}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct pack_fixture f = {0};
        struct step_layout l;
        add_node(&f, 4, table[i].have[0]);
        add_node(&f, 4, table[i].have[1]);
        struct step_request r = {.tasks = 2, .nodes = 2, .gpus_milli = table[i].want * 1000};
        assert_int_equal(plan(&f, &r, &l), 0);
        assert_int_equal(l.at[0].gpu_count, table[i].first);
        assert_int_equal(l.at[1].gpu_count, table[i].second);
        arena_done(&f.arena);
    }
}

static void gpus_are_held_and_freed(void **state) {
    struct pack_fixture f;
    struct step_layout a, b, c;
    make(&f, 8, 2);
    struct step_request r = {.tasks = 1, .cpus_per_task = 1, .gpus_milli = 1000};
    assert_int_equal(plan(&f, &r, &a), 0);
    assert_int_equal(a.at[0].gpus[0].index, 0);
    sched_step_hold(f.slots, &a);
    assert_int_equal(plan(&f, &r, &b), 0);
    assert_int_equal(b.at[0].gpus[0].index, 1);
    sched_step_hold(f.slots, &b);
    sched_step_free(f.slots, &a);
    assert_int_equal(plan(&f, &r, &c), 0);
    assert_int_equal(c.at[0].gpus[0].index, 0);
    struct step_request each = {.tasks = 2, .cpus_per_task = 1, .gpus_per_task_milli = 1000};
    assert_int_equal(plan(&f, &each, &c), 0);
    assert_int_equal(c.len, 2);  // one GPU is left on n1, the other task goes to n2
    struct step_request half = {.tasks = 3, .nodes = 1, .cpus_per_task = 1, .gpus_per_task_milli = 500};
    sched_step_free(f.slots, &b);
    assert_int_equal(plan(&f, &half, &c), 0);
    assert_string_equal(seen(&f, &c.at[0]), "0 0 1");
    assert_int_equal(c.at[0].gpus[1].milli, 500);
    arena_done(&f.arena);
}

static void bad_words_are_refused(void **state) {
    static const char *const binds[] = {"", "single", "single:0", "per_task:x", "map_gpu:", "map_gpu:99", "map_gpu:-1",
                                        "mask_gpu:zz", "map_gpu:1*0", "map_gpu:1*999999999", "nearest"};
    cleanup_arena struct arena a = {0};
    struct error e = {0};
    struct step_bind b;
    enum step_distribution d;
    uint32_t plane;
    for (size_t i = 0; i < sizeof binds / sizeof *binds; i++)
        assert_true(sched_step_bind_parse(binds[i], &a, &b, &e) < 0);
    assert_int_equal(sched_step_distribution_parse("plane=", &d, &plane, &e), -EINVAL);
    assert_int_equal(sched_step_distribution_parse("plane=0", &d, &plane, &e), -EINVAL);
    assert_int_equal(sched_step_distribution_parse("arbitrary", &d, &plane, &e), -ENOTSUP);
    assert_int_equal(sched_step_distribution_parse("plane=7:block", &d, &plane, &e), 0);
    assert_int_equal(plane, 7);
    assert_int_equal(sched_step_distribution_parse("cyclic:block,NoPack", &d, &plane, &e), 0);
    assert_int_equal(d, STEP_CYCLIC);
    assert_int_equal(sched_step_distribution_parse("block:cyclic", &d, &plane, &e), 0);
    assert_int_equal(d, STEP_BLOCK);
}

// --- what always holds ---

static void check_layout(const struct pack_fixture *f, const struct step_request *r, const struct step_layout *l) {
    bool *ranks = test_calloc(r->tasks, sizeof *ranks);
    uint32_t tasks = 0;
    uint64_t gpus = 0;
    for (uint32_t i = 0; i < l->len; i++) {
        const struct step_share *h = &l->at[i];
        const struct step_slot *s = &f->slots[h->slot];
        assert_true(h->tasks > 0 && (i == 0 || h->slot > l->at[i - 1].slot));
        for (uint32_t t = 0; t < h->tasks; t++) {
            assert_true(h->ranks[t] < r->tasks && !ranks[h->ranks[t]]);
            assert_true(t == 0 || h->ranks[t] > h->ranks[t - 1]);
            ranks[h->ranks[t]] = true;
            assert_true(!h->task_gpus || h->task_gpus[t]);  // a task without GPUs where the step has some
        }
        tasks += h->tasks;
        assert_true(r->overlap || r->whole || r->overcommit || h->cpu_count == h->tasks * r->cpus_per_task);
        assert_true(!r->whole || h->cpu_count == s->cpus);
        for (uint32_t g = 0; h->owns_gpus && g < h->gpu_count; g++)
            gpus += h->gpus[g].milli;
        assert_true(!r->gpus_per_node_milli || h->gpu_count == r->gpus_per_node_milli / 1000);
    }
    assert_int_equal(tasks, r->tasks);
    assert_true(!r->nodes || l->len == r->nodes);
    if (!r->overlap && (r->gpus_milli || r->gpus_per_task_milli))
        assert_int_equal(gpus, r->gpus_milli ? r->gpus_milli : (uint64_t)r->gpus_per_task_milli * r->tasks);
    test_free(ranks);
}

static struct step_request random_request(struct rand *x) {
    struct step_request r = {.tasks = 1 + (uint32_t)rand_below(x, 8),
                             .nodes = (uint32_t)rand_below(x, 3),
                             .cpus_per_task = 1 + (uint32_t)rand_below(x, 2),
                             .whole = rand_below(x, 4) == 0,
                             .overcommit = rand_below(x, 6) == 0,
                             .distribution = (enum step_distribution)rand_below(x, 3),
                             .plane_size = 1 + (uint32_t)rand_below(x, 3)};
    r.overlap = !r.whole && rand_below(x, 5) == 0;
    switch (rand_below(x, 5)) {
    case 0: r.gpus_milli = 1000 * (1 + (uint32_t)rand_below(x, 4)); break;
    case 1: r.gpus_per_node_milli = 1000 * (1 + (uint32_t)rand_below(x, 2)); break;
    case 2: r.gpus_per_task_milli = rand_below(x, 2) ? 1000 : 250; break;
    case 3: r.memory_per_cpu_bytes = rand_below(x, 200); break;
    default: break;
    }
    return r;
}

// Nothing is held twice, what is refused stays refused in an empty job, and all is free at the end.
static void random_steps_keep_the_rules(void **state) {
    for (uint32_t seed = 1; seed <= RANDOM_JOBS; seed++) {
        struct rand x;
        struct pack_fixture f = {0};
        struct step_layout running[16];
        uint32_t count = 0;
        rand_seed(&x, seed);
        for (uint32_t n = 1 + (uint32_t)rand_below(&x, NODES_MAX); n > 0; n--)
            add_node(&f, 1 + (uint32_t)rand_below(&x, 8), (uint32_t)rand_below(&x, 5));
        for (int i = 0; i < 30; i++) {
            struct step_request r = random_request(&x);
            struct step_layout l;
            int rc = plan(&f, &r, &l);
            if (rc == 0 && count < 16) {
                check_layout(&f, &r, &l);
                sched_step_hold(f.slots, &l);  // asserts that nothing is held twice
                running[count++] = l;
            }
            assert_true(rc == 0 || rc == -EAGAIN || !count || f.error.text[0]);
            assert_true(rc != -EAGAIN || count);  // nothing runs: it fits now or never
            if (count && rand_below(&x, 3) == 0) {
                uint32_t end = (uint32_t)rand_below(&x, count);
                sched_step_free(f.slots, &running[end]);
                running[end] = running[--count];
            }
        }
        while (count)
            sched_step_free(f.slots, &running[--count]);
        for (uint32_t i = 0; i < f.count; i++) {
            assert_int_equal(f.slots[i].cpus_held + f.slots[i].memory_held_bytes, 0);
            for (uint32_t g = 0; g < f.slots[i].gpu_count; g++)
                assert_int_equal(f.slots[i].gpus[g].held_milli, 0);
        }
        arena_done(&f.arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_steps_exclude_each_other),
        cmocka_unit_test(exact_steps_fill_up),
        cmocka_unit_test(steps_that_never_fit_are_refused),
        cmocka_unit_test(tasks_and_ranks_are_dealt_as_in_slurm),
        cmocka_unit_test(named_nodes_come_first),
        cmocka_unit_test(gpus_are_bound_as_in_slurm),
        cmocka_unit_test(a_total_of_gpus_is_spread_as_in_slurm),
        cmocka_unit_test(gpus_are_held_and_freed),
        cmocka_unit_test(bad_words_are_refused),
        cmocka_unit_test(random_steps_keep_the_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
