// What tests of jobs with workers share: two nodes of four CPUs and GPUs, and the state out of a snapshot and the journal.
#pragma once
#include <errno.h>
#include <signal.h>

#include "rig.h"

static inline void same_after_recovery(struct rig *r) {
    struct core_config config;
    struct error e = {0};
    core_config_default(&config);
    cleanup_buf struct buf mine = {0}, loaded = {0}, replayed = {0};
    core_snapshot(r->core, &mine);
    struct core *c = core_new(&config);
    assert_int_equal(core_load_snapshot(c, core_seq(r->core), mine.data, mine.len, &e), 0);
    core_assert(c);
    core_snapshot(c, &loaded);
    core_free(c);
    c = core_new(&config);
    for (uint32_t i = 0; i < r->journal.len; i++) {
        const struct outbox_event *v = &r->journal.at[i].e;
        assert_int_equal(core_replay(c, v->seq, v->at_ms, v->type, r->journal.at[i].data, v->len), 0);
    }
    core_assert(c);
    core_snapshot(c, &replayed);
    core_free(c);
    assert_int_equal(mine.len, loaded.len);
    assert_memory_equal(mine.data, loaded.data, mine.len);
    assert_int_equal(mine.len, replayed.len);
    assert_memory_equal(mine.data, replayed.data, mine.len);
}

static inline void init(struct rig *r) {
    rig_init(r);
    rig_hello(r, "n1", 4, 4, "b1", NULL, 0);
    rig_hello(r, "n2", 4, 4, "b1", NULL, 0);
}

static inline struct spec workers(uint32_t min, uint32_t max) {
    struct spec s = rig_spec();
    s.workers_min = min;
    s.workers_max = max;
    s.memory_per_cpu_bytes = 1 << 20;
    return s;
}

static inline struct job_view view(struct rig *r, uint64_t id) {
    struct job_view v = {0};
    core_view(r->core, id, &v);
    return v;
}

static inline uint64_t worker(struct rig *r, uint64_t job, uint32_t number) {
    return core_worker(r->core, job, number);
}

static inline const char *node_of(struct rig *r, uint64_t id) {
    const char *name = NULL;
    core_job_node_names(r->core, id, &name, 1);
    return name;
}

static inline void start_all(struct rig *r, uint64_t job) {
    for (uint32_t i = 0; i < core_worker_count(r->core, job); i++) {
        uint64_t id = worker(r, job, i);
        if (rig_state(r, id) == JOB_STARTING)
            rig_started(r, node_of(r, id), id, view(r, id).attempt);
    }
}

static inline void end_one(struct rig *r, uint64_t job, uint32_t number, enum end_cause cause, int32_t code) {
    uint64_t id = worker(r, job, number);
    rig_end(r, node_of(r, id), id, view(r, id).attempt, cause, code);
}

static inline int resize(struct rig *r, uint64_t id, uint32_t min, uint32_t max, struct error *e) {
    struct command_resize m = {id, min, max};
    int v = rig_command(r->core, &alice, COMMAND_RESIZE, &m, r->now_ms, e);
    core_schedule(r->core, r->now_ms);
    rig_drain(r);
    return v;
}
