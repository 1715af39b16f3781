// The example cluster: two GPU nodes, one of them with a broken GPU, and one node that is down.
#include "example.h"

enum { NODES = 3, GPUS_PER_NODE = 4, GPUS = 8 };

static void add_gpus(struct arena *a, uint64_t step, const char *node, uint32_t first, struct metrics_gpu *out) {
    for (uint32_t i = 0; i < GPUS_PER_NODE; i++) {
        struct gpu *g = arena_alloc(a, sizeof *g);
        g->uuid = arena_printf(a, "GPU-%08u-0000-0000-0000-000000000000", first + i);
        g->model = "NVIDIA H200";
        g->minor_path = arena_printf(a, "/dev/nvidia%u", i);
        g->memory_bytes = 141ULL << 30;
        g->unhealthy = first + i == 7 ? "XID 79: fell off the bus" : NULL;
        struct gpu_sample *s = arena_alloc(a, sizeof *s);
        *s = (struct gpu_sample){.index = i,
                                 .utilisation_milli = 100 * i + (uint32_t)(step % 50),
                                 .memory_used_bytes = (uint64_t)i << 32,
                                 .memory_total_bytes = g->memory_bytes,
                                 .power_mw = 100500 + 100000 * i,
                                 .energy_mj = 1000 * step,
                                 .temperature_c = 40 + 10 * (int32_t)i,
                                 .memory_temperature_c = 45,
                                 .sm_clock_mhz = 1980,
                                 .memory_clock_mhz = 2619,
                                 .xid_errors = g->unhealthy ? 79 : 0,
                                 .pcie_tx_bytes_s = 1000,
                                 .pcie_rx_bytes_s = 2000,
                                 .throttle_reasons = 4};
        out[i] = (struct metrics_gpu){.node = node,
                                      .index = i,
                                      .gpu = g,
                                      .allocated_milli = i ? 1000 : 500,
                                      .sample = g->unhealthy ? NULL : s};
    }
}

static struct metrics_job_gpu *add_jobs(struct arena *a, uint64_t step, const struct metrics_gpu *gpus,
                                        uint32_t count) {
    struct metrics_job_gpu *jobs = arena_alloc(a, count * sizeof *jobs);
    for (uint32_t i = 0; i < count; i++) {
        struct gpu_sample *s = arena_alloc(a, sizeof *s);
        *s = (struct gpu_sample){.id = 100 + i,
                                 .index = gpus[i].index,
                                 .utilisation_milli = i == 1 ? 0 : 450,
                                 .memory_used_bytes = 1 << 30,
                                 .memory_total_bytes = 70ULL << 30,
                                 .power_mw = 120000,
                                 .energy_mj = 500 * step,
                                 .throttled_milli = 20};
        jobs[i] = (struct metrics_job_gpu){.job = 100 + i,
                                           .label = i ? NULL : "100_7",
                                           .user = "ana",
                                           .project = "vision",
                                           .node = gpus[i].node,
                                           .uuid = gpus[i].gpu->uuid,
                                           .grant_milli = i ? 1000 : 500,
                                           .sample = s,
                                           .idle_s = i == 1 ? 1800 + step : 0};
    }
    return jobs;
}

static struct message_telemetry *add_telemetry(struct arena *a, int64_t now_ms, const struct metrics_gpu *gpus) {
    struct message_telemetry *t = arena_alloc(a, sizeof *t);
    *t = (struct message_telemetry){.at_ms = now_ms,
                                    .memory_used_bytes = 9ULL << 30,
                                    .disk_free_bytes = 50ULL << 30,
                                    .disk_bytes = 100ULL << 30,
                                    .cpu_milli = 375,
                                    .load_milli = 12500};
    t->gpus.at = arena_alloc(a, GPUS_PER_NODE * sizeof *t->gpus.at);
    for (uint32_t i = 0; i < GPUS_PER_NODE; i++)
        if (gpus[i].sample)
            t->gpus.at[t->gpus.len++] = *gpus[i].sample;
    return t;
}

static void add_daemon(struct arena *a, uint64_t step, int64_t now_ms, struct metrics_input *in) {
    struct metrics_histogram *h = arena_alloc(a, sizeof *h);
    for (uint64_t i = 0; i < 1 + step; i++)
        metrics_observe(h, 90 * (i % 400) * (i % 400));
    in->pass = in->request = h;
    in->journal_commits = 500 + step;
    in->journal_commit_us = 900000 + 1500 * step;
    in->pass_last_us = 1234;
    in->pass_jobs = 40 * step;
    in->backfilled = step / 2;
    struct metrics_route *routes = arena_alloc(a, 2 * sizeof *routes);
    routes[0] = (struct metrics_route){"/v1/jobs", "GET", 200, 10 + step};
    routes[1] = (struct metrics_route){"/v1/jobs", "POST", 201, 3 + step};
    in->routes.at = routes;
    in->routes.len = 2;
    struct metrics_storage *storage = arena_alloc(a, sizeof *storage);
    *storage = (struct metrics_storage){"state", 100ULL << 30, 5ULL << 30};
    in->storage.at = storage;
    in->storage.len = 1;
    in->connections = 7;
    in->journal_events = 1000 + 9 * step;
    in->journal_bytes = 1 << 20;
    in->snapshot_ms = now_ms - 60000;
    metrics_process_self(&in->process);
}

static void add_groups(struct arena *a, struct metrics_input *in) {
    struct metrics_group *users = arena_alloc(a, 2 * sizeof *users);
    users[0] = (struct metrics_group){.name = "ana", .pending = 4, .running = 3, .cpus = 24, .gpus_milli = 2500};
    users[1] = (struct metrics_group){.name = "o\"brien\\", .pending = 1, .suspended = 1};
    in->users.at = users;
    in->users.len = 2;
    struct metrics_group *projects = arena_alloc(a, sizeof *projects);
    *projects = (struct metrics_group){.name = "vision",
                                       .pending = 5,
                                       .running = 3,
                                       .suspended = 1,
                                       .cpus = 24,
                                       .gpus_milli = 2500,
                                       .quota_milligpu = 4000};
    in->projects.at = projects;
    in->projects.len = 1;
    struct metrics_group *partitions = arena_alloc(a, sizeof *partitions);
    *partitions = (struct metrics_group){
        .name = "main", .pending = 5, .cpus = 24, .cpus_idle = 104, .cpus_other = 64, .cpus_total = 192};
    in->partitions.at = partitions;
    in->partitions.len = 1;
}

void example_input(struct arena *a, uint64_t step, int64_t now_ms, struct metrics_input *out) {
    *out = (struct metrics_input){.version = "0.1.0",
                                  .now_ms = now_ms,
                                  .start_ms = now_ms - 3600000,
                                  .submitted = 20 + step,
                                  .started = 15 + step,
                                  .requeued = 1,
                                  .preempted = 1,
                                  .oldest_eligible_ms = now_ms - 4200000};
    out->jobs_by_state[JOB_PENDING] = 5;
    out->jobs_by_state[JOB_RUNNING] = 3;
    out->jobs_by_state[JOB_SUSPENDED] = 1;
    out->jobs_by_state[JOB_COMPLETED] = 10 + step;
    out->jobs_by_state[JOB_FAILED] = 2;
    out->pending_by_reason[REASON_RESOURCES] = 4;
    out->pending_by_reason[REASON_DEPENDENCY] = 1;
    struct metrics_gpu *gpus = arena_alloc(a, GPUS * sizeof *gpus);
    add_gpus(a, step, "gpu1", 0, gpus);
    add_gpus(a, step, "gpu2", GPUS_PER_NODE, gpus + GPUS_PER_NODE);
    out->gpus.at = gpus;
    out->gpus.len = GPUS;
    out->job_gpus.at = add_jobs(a, step, gpus, 3);
    out->job_gpus.len = 3;
    struct metrics_node *nodes = arena_alloc(a, NODES * sizeof *nodes);
    for (uint32_t i = 0; i < NODES; i++)
        nodes[i] = (struct metrics_node){.name = arena_printf(a, "gpu%u", i + 1),
                                         .cpus = 64,
                                         .cpus_used = i ? 0 : 24,
                                         .jobs = i ? 0 : 3,
                                         .memory_bytes = 512ULL << 30,
                                         .memory_used_bytes = i ? 0 : 64ULL << 30,
                                         .gpus_milli = i < 2 ? 4000 : 0,
                                         .gpus_used_milli = i ? 0 : 2500,
                                         .gpu_unhealthy = i == 1,
                                         .state = i == 2 ? NODE_DOWN : NODE_UP};
    nodes[0].telemetry = add_telemetry(a, now_ms, gpus);
    nodes[1].telemetry = add_telemetry(a, now_ms, gpus + GPUS_PER_NODE);
    out->nodes.at = nodes;
    out->nodes.len = NODES;
    add_groups(a, out);
    add_daemon(a, step, now_ms, out);
}

void example_agent(struct arena *a, uint64_t step, int64_t now_ms, struct metrics_agent_input *out) {
    struct metrics_gpu *gpus = arena_alloc(a, GPUS_PER_NODE * sizeof *gpus);
    add_gpus(a, step, "gpu2", GPUS_PER_NODE, gpus);
    struct node *node = arena_alloc(a, sizeof *node);
    *node = (struct node){.name = "gpu2", .cpus = 64, .memory_bytes = 512ULL << 30};
    node->gpus.at = arena_alloc(a, GPUS_PER_NODE * sizeof *node->gpus.at);
    for (uint32_t i = 0; i < GPUS_PER_NODE; i++)
        node->gpus.at[node->gpus.len++] = *gpus[i].gpu;
    *out = (struct metrics_agent_input){.version = "0.1.0",
                                        .now_ms = now_ms,
                                        .start_ms = now_ms - 1000,
                                        .node = node,
                                        .connected = true,
                                        .jobs = 2,
                                        .telemetry = add_telemetry(a, now_ms, gpus)};
    out->job_gpus.at = add_jobs(a, step, gpus, 2);
    out->job_gpus.len = 2;
    metrics_process_self(&out->process);
}
