// A core with a node and a few jobs, for the fuzz targets of this folder.
#pragma once
#include <stdio.h>

#include "base/rand.h"
#include "base/text.h"
#include "core/core.h"
#include "model/command.h"
#include "driver.h"

static inline struct core *harness_core(int64_t now_ms) {
    static const char *argv[] = {"true"};
    static const struct actor alice = {"alice", 1001, 1001, false}, root = {"root", 0, 0, true};
    struct core_config config;
    struct error e = {0};
    struct gpu gpus[2] = {{.uuid = "g0", .model = "V100", .memory_bytes = 1ull << 35, .simulated = true},
                          {.uuid = "g1", .model = "V100", .memory_bytes = 1ull << 35, .simulated = true}};
    struct node n = {.name = "n1",
                     .boot_id = "b",
                     .spool_id = "s",
                     .cpus = 4,
                     .memory_bytes = 1ull << 36,
                     .gpus = {gpus, 2}};
    struct message_hello hello = {.node = &n};
    struct array_range range = {.first = 0, .last = 3, .step = 1};
    core_config_default(&config);
    struct core *c = core_new(&config);
    core_start(c, now_ms);
    for (int i = 0; i < 4; i++) {
        struct spec s = {.name = "t",
                         .workdir = "/tmp",
                         .tasks = 1,
                         .cpus_per_task = 1,
                         .requeue = true,
                         .argv = {argv, 1}};
        s.hold = i == 2;
        s.dependency = i == 3 ? "afterok:1" : NULL;
        if (i == 1)
            s.array.at = &range, s.array.len = 1;
        struct command_submit body = {.spec = &s};
        struct command submit = {COMMAND_SUBMIT, &body};
        FUZZ_CHECK(core_command(c, i ? &alice : &root, NULL, &submit, now_ms, NULL, &e) == 0);
    }
    FUZZ_CHECK(core_agent_hello(c, &hello, NULL, now_ms, &e) == 0);
    core_schedule(c, now_ms);
    return c;
}

// Something happens: commands of every kind about the jobs, and reports of the node. For corpora of states.
static inline void harness_act(struct core *c, struct rand *r, int64_t now_ms) {
    static const struct actor root = {"root", 0, 0, true};
    static const char *argv[] = {"true"};
    struct error e = {0};
    uint64_t id = 1 + rand_below(r, 12);
    struct spec s = {.name = rand_below(r, 2) ? "t" : "u",
                     .workdir = "/tmp",
                     .tasks = 1,
                     .cpus_per_task = 1,
                     .gpus_milli = rand_below(r, 3) ? 0 : 1000,
                     .requeue = true,
                     .argv = {argv, 1}};
    struct array_range range = {.first = 1, .last = 3, .step = 2};
    if (rand_below(r, 3) == 0)
        s.array.at = &range, s.array.len = 1;
    else if (rand_below(r, 3) == 0)
        s.workers_min = 1 + (uint32_t)rand_below(r, 2),
        s.workers_max = s.workers_min + (uint32_t)rand_below(r, 3);
    s.array_limit = s.array.len && rand_below(r, 2);
    s.dependency = rand_below(r, 4) ? NULL : "afterany:1";
    s.hold = rand_below(r, 4) == 0;
    struct spec change = {.name = "changed", .nice = 3};
    schema_give(&spec_schema, &change, &change.nice);
    struct project project = {.name = "p1", .quota_milligpu = 1000};
    struct partition partition = {.name = "short", .max_time_s = 600};
    struct qos qos = {.name = "high", .priority = 5};
    struct reservation reservation = {
        .name = "r1", .nodes = "n1", .start_ms = now_ms + 1000, .end_ms = now_ms + 9000};
    struct command_submit submit = {.spec = &s};
    struct command_cancel cancel = {.id = id};
    struct command_hold hold = {.id = id};
    struct command_job job = {id};
    struct command_requeue requeue = {.id = id};
    struct command_update update = {id, &change};
    struct command_resize resize = {
        .id = id, .workers_min = 1, .workers_max = 1 + (uint32_t)rand_below(r, 4)};
    struct worker_rank rank = {.number = (uint32_t)rand_below(r, 3), .rank = 5, .idle = rand_below(r, 2)};
    struct command_rank_workers ranks = {.id = id, .ranks = {&rank, 1}};
    struct command_node_drain drain = {.node = "n1", .reason = "test"};
    struct command_node resume = {.node = "n1"};
    struct license license = {.name = "matlab", .count = (uint32_t)rand_below(r, 3)};
    const struct command commands[] = {{COMMAND_SUBMIT, &submit},
                                       {COMMAND_SUBMIT, &submit},
                                       {COMMAND_CANCEL, &cancel},
                                       {COMMAND_HOLD, &hold},
                                       {COMMAND_RELEASE, &job},
                                       {COMMAND_SUSPEND, &job},
                                       {COMMAND_RESUME, &job},
                                       {COMMAND_REQUEUE, &requeue},
                                       {COMMAND_UPDATE, &update},
                                       {COMMAND_RESIZE, &resize},
                                       {COMMAND_RANK_WORKERS, &ranks},
                                       {COMMAND_PROJECT_SET, &project},
                                       {COMMAND_PARTITION_SET, &partition},
                                       {COMMAND_QOS_SET, &qos},
                                       {COMMAND_RESERVATION_SET, &reservation},
                                       {COMMAND_LICENSE_SET, &license},
                                       {COMMAND_NODE_DRAIN, &drain},
                                       {COMMAND_NODE_RESUME, &resume}};
    const struct command *command = &commands[rand_below(r, sizeof commands / sizeof *commands)];
    const char *key = command->type == COMMAND_SUBMIT && rand_below(r, 2) ? "a-key" : NULL;
    core_command(c, &root, key, command, now_ms, NULL, &e);
    struct message_started started = {.id = id, .attempt = 1};
    struct message_ended ended = {.id = id, .attempt = 1};
    if (rand_below(r, 3) == 0)
        core_agent_started(c, "n1", &started, now_ms);
    if (rand_below(r, 6) == 0)
        core_agent_ended(c, "n1", &ended, now_ms);
    core_schedule(c, now_ms);
}

static inline void harness_step(struct core *c, struct rand *r, int64_t now_ms) {
    core_outbox_clear(core_outbox(c));
    harness_act(c, r, now_ms);
    core_outbox_clear(core_outbox(c));
}

static inline void harness_step_events(struct core *c, struct rand *r, int64_t now_ms,
                                       void (*fn)(struct core *c, struct buf *out), struct buf *out) {
    harness_act(c, r, now_ms);
    fn(c, out);
    core_outbox_clear(core_outbox(c));
}

// What the program wrote itself can be loaded.
static inline void harness_reload(const struct core *c) {
    struct core_config config;
    struct error e = {0};
    cleanup_buf struct buf snapshot = {0};
    core_config_default(&config);
    struct core *copy = core_new(&config);
    core_snapshot(c, &snapshot);
    if (core_load_snapshot(copy, core_seq(c), snapshot.data, snapshot.len, &e) < 0) {
        fprintf(stderr, "%s\n", e.text);
        FUZZ_CHECK(false);
    }
    core_free(copy);
}
