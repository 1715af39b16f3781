// A core with a node and a few jobs, for the fuzz targets of this folder.
#pragma once
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
