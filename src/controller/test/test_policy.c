// The configuration file applied to the core: entries may name others further down.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "../policy.h"
#include "store/sim_store.h"

struct found_entity {
    const char *name, *preempts, *parent;
};

static bool find_qos(void *ctx, const char *name, const void *value) {
    struct found_entity *f = ctx;
    const struct qos *q = value;
    if (strcmp(name, f->name) == 0)
        f->preempts = q->preempts.len ? q->preempts.at[0] : "";
    return true;
}

static bool find_project(void *ctx, const char *name, const void *value) {
    struct found_entity *f = ctx;
    const struct project *p = value;
    if (strcmp(name, f->name) == 0)
        f->parent = p->parent ? p->parent : "";
    return true;
}

static void entries_may_name_later_ones(void **state) {
    (void)state;
    static const char *middle = "middle", *low = "low", *missing = "missing";
    struct qos qos[] = {{.name = "high", .usage_factor = 1, .preempts = {&middle, 1}},
                        {.name = "middle", .usage_factor = 1, .preempts = {&low, 1}},
                        {.name = "bad", .usage_factor = 1, .preempts = {&missing, 1}},
                        {.name = "low", .usage_factor = 1}};
    struct project projects[] = {{.name = "team", .parent = "department"}, {.name = "department"}};
    struct core_config config;
    core_config_default(&config);
    struct controller *c = xcalloc(1, sizeof *c);
    c->core = core_new(&config);
    core_start(c->core, 1000);
    struct sim_disk *disk = sim_disk_new(1);  // what the file had the last time is kept in the store
    struct pipeline_hooks hooks = {0};
    struct error e = {0};
    c->pipeline = pipeline_new(c->core, &hooks);
    struct store_config store = {.watch = pipeline_watch(c->pipeline)};
    assert_int_equal(sim_store_open(disk, &store, &c->store, &e), 0);
    pipeline_attach(c->pipeline, c->store);
    c->config.qos.at = qos;
    c->config.qos.len = 4;
    c->config.projects.at = projects;
    c->config.projects.len = 2;
    controller_policy_from_config(c);
    struct found_entity f = {.name = "high"};
    core_each_entity(c->core, ENTITY_QOS, find_qos, &f);
    assert_string_equal(f.preempts, "middle");
    f = (struct found_entity){.name = "bad"};
    core_each_entity(c->core, ENTITY_QOS, find_qos, &f);
    assert_null(f.preempts);
    f = (struct found_entity){.name = "team"};
    core_each_entity(c->core, ENTITY_PROJECT, find_project, &f);
    assert_string_equal(f.parent, "department");
    uint64_t seq = core_seq(c->core);
    controller_policy_from_config(c);  // nothing is left to change
    assert_int_equal(core_seq(c->core), seq);
    pipeline_free(c->pipeline);
    store_close(c->store);
    core_free(c->core);
    sim_disk_free(disk);
    buf_done(&c->configured);
    free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(entries_may_name_later_ones)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
