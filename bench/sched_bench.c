// What the scheduler costs: one pass over a large cluster with a long queue, a pass after one event,
// and a queue that reclaims everything that runs. Prints a table; run by hand or by bench/run.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rand.h"
#include "base/text.h"
#include "sched/explain.h"

enum { PROJECTS = 40, USERS = 200, SHAPES = 24, GPUS = 8, REPEAT = 200, SETTLE_MAX = 100 };

struct cluster {
    struct world *w;
    struct policy policy;
    struct rand rnd;
    uint64_t next_id;
    int64_t now_ms;
    bool both;  // every job names two partitions, which share a fifth of the nodes
};

// Processor time: the figures must not depend on who else uses the machine.
static double cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void nodes_add(struct cluster *c, uint32_t nodes) {
    struct sched_gpu gpus[GPUS];
    for (uint32_t i = 0; i < GPUS; i++)
        gpus[i] = (struct sched_gpu){"H100", 80ULL << 30, i / 4, false};
    for (uint32_t i = 1; i <= nodes; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%05u", i);
        struct sched_node n = {.id = i,
                               .name = name,
                               .cpus = 128,
                               .memory_bytes = 1024ULL << 30,
                               .gpus = gpus,
                               .gpu_count = GPUS};
        world_node_set(c->w, &n, NULL);
    }
}

static void partitions_add(struct cluster *c, uint32_t nodes) {
    uint32_t *ids = xcalloc(nodes, sizeof *ids);
    for (uint32_t i = 0; i < nodes; i++)
        ids[i] = i + 1;
    uint32_t n = nodes / 10 * 6;
    world_partition_set(c->w, &(struct sched_partition){.id = 1, .name = "a", .nodes = ids, .node_count = n}, NULL);
    world_partition_set(
        c->w, &(struct sched_partition){.id = 2, .name = "b", .nodes = ids + nodes - n, .node_count = n}, NULL);
    free(ids);
    c->both = true;
}

static void projects_add(struct cluster *c, uint32_t count, int64_t quota_milligpu) {
    for (uint32_t i = 1; i <= count; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%u", i);
        struct sched_project p = {.id = i,
                                  .name = name,
                                  .quota_milligpu = quota_milligpu,
                                  .weight_milli = SCHED_UNLIMITED,
                                  .limit_milligpu = SCHED_UNLIMITED,
                                  .quota_cpus = SCHED_UNLIMITED,
                                  .limit_cpus = SCHED_UNLIMITED,
                                  .interactive_limit_ms = SCHED_UNLIMITED};
        world_project_set(c->w, &p, NULL);
    }
}

static struct sched_request shape(struct cluster *c) {
    static const uint32_t gpus[SHAPES] = {1000, 1000, 1000, 1000, 1000, 1000, 2000, 2000, 2000, 4000, 4000, 8000,
                                          500, 250, 500, 8000, 0, 0, 1000, 2000, 4000, 1000, 1000, 8000};
    uint32_t k = (uint32_t)rand_below(&c->rnd, SHAPES), project = 1 + (uint32_t)rand_below(&c->rnd, PROJECTS);
    struct sched_request q = {.project = project, .user = project * 8 + (uint32_t)rand_below(&c->rnd, USERS / PROJECTS),
                              .cpus_per_task = 1 + k % 5 * 3, .memory_per_node_bytes = (uint64_t)(8 + k * 4) << 30,
                              .gpu_milli_per_task = gpus[k], .time_limit_ms = 3600000LL * (1 + k % 6 * 8)};
    if (k == 15)
        q.nodes_min = 4;
    if (k == 23)
        q.nodes_min = 32;
    static const uint32_t also[] = {2};
    if (c->both) {
        q.partition = 1;
        q.also = also;
        q.also_count = 1;
    }
    return q;
}

static uint64_t submit(struct cluster *c, const struct sched_request *q) {
    const struct world_request *r = world_request(c->w, q);
    uint64_t id = c->next_id++;
    world_job_add(c->w, &(struct sched_job){.id = id, .request = r, .submit_ms = c->now_ms + (int64_t)id});
    world_request_unref(c->w, r);
    return id;
}

static void requeue(struct cluster *c, uint64_t id) {
    struct sched_job_view v;
    world_job(c->w, id, &v);
    const struct world_request *r = world_request(c->w, sched_request_asked(v.request));
    struct sched_job j = {
        .id = id, .request = r, .submit_ms = v.submit_ms, .restarts = v.restarts + 1, .group = v.group};
    uint32_t count;
    struct sched_preemption *by = world_job_preemptions(c->w, id, &count);
    world_job_end(c->w, id, c->now_ms);
    world_job_add(c->w, &j);
    world_job_preemptions_set(c->w, id, by, count);
    free(by);
    world_request_unref(c->w, r);
}

// Decides and, unless only the time is wanted, carries the decisions out.
static uint32_t decide(struct cluster *c, double *ms, bool apply, uint32_t *looked, uint32_t *preempts) {
    struct sched_decisions d;
    double began = cpu_ms();
    sched_decide(c->w, c->now_ms, &c->policy, &d);
    *ms = cpu_ms() - began;
    for (uint32_t i = 0; apply && i < d.starts.len; i++)
        world_job_start_in(c->w, d.starts.at[i].job, d.starts.at[i].partition, d.starts.at[i].alloc, c->now_ms);
    for (uint32_t i = 0; apply && i < d.preempts.len; i++)
        world_job_preempt(c->w, &d.preempts.at[i]);
    if (apply)
        sched_promises_keep(c->w, &d);
    for (uint32_t i = 0; apply && i < d.preempts.len; i++)
        requeue(c, d.preempts.at[i].victim);
    uint32_t n = d.starts.len;
    *looked = d.looked_at;
    if (preempts)
        *preempts = d.preempts.len;
    sched_decisions_done(&d);
    return n;
}

static long resident_kib(void) {
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    long kib = 0;
    while (f && fgets(line, sizeof line, f))
        if (str_has_prefix(line, "VmRSS:"))
            kib = strtol(line + 6, NULL, 10);
    if (f)
        fclose(f);
    return kib;
}

static struct cluster cluster_new(uint32_t nodes, uint32_t projects, int64_t quota) {
    struct cluster c = {.w = world_new(), .next_id = 1, .now_ms = 1000000};
    sched_policy_default(&c.policy);
    rand_seed(&c.rnd, 1);
    nodes_add(&c, nodes);
    projects_add(&c, projects, quota);
    return c;
}

static void row(const char *what, double ms, const char *note) {
    printf("%-46s %10.3f ms  %s\n", what, ms, note);
    fflush(stdout);
}

static void explaining(struct cluster *c) {
    enum { JOBS = 5 };
    double sum = 0, most = 0;
    unsigned n = 0;
    for (uint64_t id = c->next_id - 1; id > 17 && n < JOBS; id -= 17) {
        struct sched_explanation e;
        double began = cpu_ms();
        if (sched_explain(c->w, id, c->now_ms, &c->policy, &e))
            continue;
        double ms = cpu_ms() - began;
        sum += ms;
        most = ms > most ? ms : most;
        n++;
    }
    char note[96];
    snprintf(note, sizeof note, "mean of %u, slowest %.1f ms", n, most);
    row("explaining one pending job", n ? sum / n : 0, note);
}

static void asking_when(struct cluster *c) {
    enum { VARIANTS = 4 };
    struct sched_request q[VARIANTS];
    struct sched_when out[VARIANTS];
    char note[96];
    for (unsigned i = 0; i < VARIANTS; i++)
        q[i] = shape(c);
    double began = cpu_ms();
    sched_when(c->w, q, VARIANTS, c->now_ms, &c->policy, out);
    snprintf(note, sizeof note, "%d variants", VARIANTS);
    row("when would it start", cpu_ms() - began, note);
}

static void large(uint32_t nodes, uint32_t pending, bool both, int64_t size_ms) {
    char note[96];
    long before = resident_kib();
    struct cluster c = cluster_new(nodes, PROJECTS, (int64_t)nodes * GPUS * 1000 / PROJECTS);
    double ms;
    uint32_t looked;
    c.policy.size_ms = size_ms;
    if (both)
        partitions_add(&c, nodes);
    for (uint32_t i = 0; i < pending; i++) {
        struct sched_request q = shape(&c);
        submit(&c, &q);
    }
    uint32_t started = decide(&c, &ms, true, &looked, NULL);
    snprintf(note, sizeof note, "%u looked at, %u started, cluster was empty", looked, started);
    row("first pass, everything new", ms, note);
    while (world_pending(c.w) < pending) {
        struct sched_request q = shape(&c);
        submit(&c, &q);
    }
    c.now_ms += 1000;
    started = decide(&c, &ms, true, &looked, NULL);
    snprintf(note, sizeof note, "%u looked at, %u started, nearly full", looked, started);
    row("whole queue again, many new jobs", ms, note);
    uint32_t preempts = 1, rounds = 0;
    for (; (started || preempts) && rounds < SETTLE_MAX; rounds++) {
        c.now_ms += 1000;
        started = decide(&c, &ms, true, &looked, &preempts);
    }
    decide(&c, &ms, false, &looked, NULL);
    snprintf(note, sizeof note, "%u looked at, nothing to do (came to rest after %u)", looked, rounds);
    row("whole queue, full cluster", ms, note);
    double sum = 0, most = 0;
    for (uint32_t i = 0; i < REPEAT; i++) {
        struct sched_job_view v;
        uint64_t id = 1 + rand_below(&c.rnd, pending);
        while (!world_job(c.w, id, &v) || v.state != SCHED_JOB_RUNNING)
            id = 1 + rand_below(&c.rnd, pending);
        world_job_end(c.w, id, c.now_ms);
        c.now_ms += 1000;
        started = decide(&c, &ms, true, &looked, NULL);
        sum += ms;
        most = ms > most ? ms : most;
    }
    snprintf(note, sizeof note, "mean of %d, slowest %.3f ms, %u looked at", REPEAT, most, looked);
    row("pass after one job ended", sum / REPEAT, note);
    sum = most = 0;
    for (uint32_t i = 0; i < REPEAT; i++) {
        struct sched_request q = shape(&c);
        submit(&c, &q);
        started = decide(&c, &ms, true, &looked, NULL);
        sum += ms;
        most = ms > most ? ms : most;
    }
    snprintf(note, sizeof note, "mean of %d, slowest %.3f ms", REPEAT, most);
    row("pass after one submit", sum / REPEAT, note);
    sum = most = 0;
    for (uint32_t i = 0; i < REPEAT; i++) {
        world_node_state(c.w, 1 + (uint32_t)rand_below(&c.rnd, nodes), i % 2 ? SCHED_NODE_UP : SCHED_NODE_DRAINED);
        started = decide(&c, &ms, true, &looked, NULL);
        sum += ms;
        most = ms > most ? ms : most;
    }
    snprintf(note, sizeof note, "mean of %d, slowest %.3f ms", REPEAT, most);
    row("pass after one node was drained or resumed", sum / REPEAT, note);
    explaining(&c);
    asking_when(&c);
    printf("%-46s %10.1f MiB for %u nodes, %u jobs\n", "memory", (double)(resident_kib() - before) / 1024, nodes,
           world_pending(c.w) + world_running(c.w));
    world_free(c.w);
}

static void reclaiming(uint32_t nodes, uint32_t jobs, uint32_t gpus_each) {
    struct cluster c = cluster_new(nodes, 2, (int64_t)nodes * GPUS * 500);
    double ms;
    uint32_t looked, preempts;
    char note[96], what[64];
    for (uint32_t i = 0; i < jobs; i++)
        submit(&c, &(struct sched_request){.project = 1, .user = 1, .gpu_milli_per_task = 1000});
    uint32_t running = decide(&c, &ms, true, &looked, NULL);
    snprintf(note, sizeof note, "%u started", running);
    row("4,000 one-GPU jobs on 500 empty nodes", ms, note);
    c.now_ms += 1000;
    for (uint32_t i = 0; i < jobs; i++)
        submit(&c, &(struct sched_request){.project = 2, .user = 2, .gpu_milli_per_task = gpus_each});
    decide(&c, &ms, false, &looked, &preempts);
    snprintf(note, sizeof note, "%u victims of %u running", preempts, running);
    snprintf(what, sizeof what, "4,000 pending (%u GPU) reclaim from 4,000", gpus_each / 1000);
    row(what, ms, note);
    world_free(c.w);
}

static void add_workers(struct cluster *c, uint32_t project, uint32_t count) {
    struct sched_request q = {
        .project = project, .user = project, .gpu_milli_per_task = 1000, .optional = true};
    const struct world_request *r = world_request(c->w, &q);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t id = c->next_id++;
        world_job_add(c->w,
                      &(struct sched_job){.id = id, .request = r, .submit_ms = c->now_ms, .group = project});
    }
    world_request_unref(c->w, r);
}

// A tenth of the nodes runs jobs, the rest is filled by optional workers of 40 elastic jobs; as many more wait.
static void elastic(uint32_t nodes) {
    struct cluster c = cluster_new(nodes, PROJECTS, (int64_t)nodes * GPUS * 1000 / PROJECTS);
    double ms, sum = 0, most = 0;
    uint32_t looked, gpus = nodes * GPUS, preempts = 1, rounds = 0;
    char note[96];
    for (uint32_t i = 0; i < gpus / 10; i++)
        submit(&c,
               &(struct sched_request){.project = 1 + i % PROJECTS, .user = 1, .gpu_milli_per_task = 1000});
    decide(&c, &ms, true, &looked, NULL);
    for (uint32_t p = 1; p <= PROJECTS; p++)
        add_workers(&c, p, gpus / PROJECTS);
    uint32_t started = decide(&c, &ms, true, &looked, NULL);
    snprintf(note, sizeof note, "%u started", started);
    row("elastic jobs grow into what is free", ms, note);
    for (; (started || preempts) && rounds < SETTLE_MAX; rounds++) {
        c.now_ms += 60000;
        started = decide(&c, &ms, true, &looked, &preempts);
    }
    snprintf(note, sizeof note, "%u workers run, %u wait", world_optional_running(c.w),
             world_optional_waiting(c.w));
    row("nothing to do, all of it in use", ms, note);
    for (uint32_t i = 0; i < REPEAT; i++) {
        submit(&c,
               &(struct sched_request){.project = 1 + i % PROJECTS, .user = 1, .gpu_milli_per_task = 1000});
        c.now_ms += 1000;
        decide(&c, &ms, true, &looked, NULL);
        sum += ms;
        most = ms > most ? ms : most;
    }
    snprintf(note, sizeof note, "mean of %d, slowest %.3f ms", REPEAT, most);
    row("a job starts on the place of a worker", sum / REPEAT, note);
    world_free(c.w);
}

int main(int argc, char **argv) {
    uint64_t nodes = 10000, pending = 100000, partitions = 1;
    if ((argc > 1 && parse_u64(argv[1], &nodes)) || (argc > 2 && parse_u64(argv[2], &pending)) ||
        (argc > 3 && parse_u64(argv[3], &partitions)) || nodes < 1 || nodes > 60000 || pending > 2000000 ||
        partitions < 1 || partitions > 2) {
        fprintf(stderr, "usage: sched_bench [NODES [PENDING [PARTITIONS-PER-JOB: 1 or 2]]]\n");
        return 2;
    }
    printf("%llu nodes x %d GPUs, %llu pending%s\n", (unsigned long long)nodes, GPUS, (unsigned long long)pending,
           partitions > 1 ? ", each in two partitions" : "");
    large((uint32_t)nodes, (uint32_t)pending, partitions > 1, 0);
    printf("the largest jobs first\n");
    large((uint32_t)nodes, (uint32_t)pending, partitions > 1, -(int64_t)3600 * 1000);
    reclaiming(500, 4000, 1000);
    reclaiming(500, 4000, 2000);
    elastic((uint32_t)nodes);
    return 0;
}
