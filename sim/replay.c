// The event loop of a replay: submissions, ends and evictions in the order of time; one scheduling pass whenever
// something changed and jobs are pending.
#include "sim/replay.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

#include "base/cleanup.h"

enum { FRAGMENT_SAMPLES = 256, ROUNDS_AT_ONE_TIME_MAX = 10000 };

struct replay_event {
    int64_t at_ms;
    uint32_t job;      // trace index
    uint32_t attempt;  // stale when the job was preempted since
    bool evict;
};

struct loop {
    const struct trace *t;
    const struct policy *policy;
    struct replay *out;
    struct world *w;
    VEC(struct replay_event) events;  // heap
    VEC(uint32_t) attempts;    // by trace index
    uint32_t next;             // arrival
    int64_t now_ms;
    int64_t wake_ms;
    int64_t used;
    uint32_t sample_every;
};

struct sched_request sim_replay_request(const struct trace *t, const struct trace_job *j) {
    return (struct sched_request){
        .project = j->project,
        .user = j->user,
        .class = j->interactive ? SCHED_INTERACTIVE : SCHED_TRAIN,
        .nodes_min = j->nodes,
        .tasks = j->tasks,
        .cpus_per_task = j->cpus_per_task,
        .memory_per_node_bytes = j->memory_bytes,
        .gpu_milli_per_task = j->gpu_milli,
        .gpu_model = j->model ? trace_names_get(&t->models, j->model) : NULL,
        .time_limit_ms = j->limit_ms,
    };
}

static int add_nodes(const struct trace *t, struct world *w, struct error *err) {
    for (uint32_t i = 0; i < t->nodes.len; i++) {
        const struct trace_node *n = &t->nodes.at[i];
        struct sched_gpu gpus[SCHED_GPUS_MAX];
        for (uint32_t g = 0; g < n->gpus && g < SCHED_GPUS_MAX; g++)
            gpus[g] = (struct sched_gpu){.model = n->model};
        struct sched_node node = {.id = i + 1, .name = n->name, .cpus = n->cpus, .gpus = gpus, .gpu_count = n->gpus,
                                  .memory_bytes = n->memory_bytes ? n->memory_bytes : UINT64_MAX};
        int r = world_node_set(w, &node, err);
        if (r)
            return r;
    }
    return 0;
}

int sim_replay_world(const struct trace *t, struct world *w, struct error *err) {
    if (!t->nodes.len)
        return error_set(err, EINVAL, "the trace does not say which nodes there are: give a node list with --nodes");
    int r = add_nodes(t, w, err);
    int64_t gpus = 0;
    for (uint32_t i = 0; i < t->nodes.len; i++)
        gpus += t->nodes.at[i].gpus;
    uint32_t n = t->projects.at.len;
    for (uint32_t i = 1; i <= n && !r; i++) {
        struct sched_project p = {.id = i,
                                  .name = trace_names_get(&t->projects, i),
                                  .quota_milligpu = gpus * 1000 / n,
                                  .weight_milli = SCHED_UNLIMITED,
                                  .limit_milligpu = SCHED_UNLIMITED,
                                  .quota_cpus = SCHED_UNLIMITED,
                                  .limit_cpus = SCHED_UNLIMITED,
                                  .interactive_limit_ms = SCHED_UNLIMITED};
        r = world_project_set(w, &p, err);
    }
    return r;
}

static bool sooner(const struct replay_event *a, const struct replay_event *b) {
    return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : a->job < b->job;
}

static void event_add(struct loop *l, struct replay_event e) {
    vec_push(&l->events, e);
    struct replay_event *at = l->events.at;
    uint32_t i = l->events.len - 1;
    for (; i && sooner(&e, &at[(i - 1) / 2]); i = (i - 1) / 2)
        at[i] = at[(i - 1) / 2];
    at[i] = e;
}

static struct replay_event event_pop(struct loop *l) {
    struct replay_event first = l->events.at[0], e = vec_pop(&l->events);
    struct replay_event *at = l->events.at;
    uint32_t i = 0, n = l->events.len;
    for (uint32_t k; (k = 2 * i + 1) < n; i = k) {
        if (k + 1 < n && sooner(&at[k + 1], &at[k]))
            k++;
        if (!sooner(&at[k], &e))
            break;
        at[i] = at[k];
    }
    if (n)
        at[i] = e;
    return first;
}

static int64_t size_of(const struct loop *l, uint32_t job) {
    const struct trace_job *j = &l->t->jobs.at[job];
    return l->t->gpus ? (int64_t)j->gpu_milli * j->tasks : (int64_t)j->cpus_per_task * j->tasks;
}

static void arrive(struct loop *l, uint32_t job, uint32_t restarts) {
    struct sched_request q = sim_replay_request(l->t, &l->t->jobs.at[job]);
    const struct world_request *r = world_request(l->w, &q);
    struct sched_job j = {.id = (uint64_t)job + 1, .request = r, .submit_ms = l->t->jobs.at[job].submit_ms,
                          .restarts = restarts};
    int e = world_job_add(l->w, &j);
    assert(!e);
    (void)e;
    world_request_unref(l->w, r);
}

static void finish(struct loop *l, const struct replay_event *e) {
    struct replay_outcome *o = &l->out->jobs.at[e->job];
    if (e->attempt != l->attempts.at[e->job])
        return;
    l->attempts.at[e->job]++;
    l->used -= size_of(l, e->job);
    uint32_t count;
    cleanup_free struct sched_preemption *by = world_job_preemptions(l->w, (uint64_t)e->job + 1, &count);
    world_job_end(l->w, (uint64_t)e->job + 1, l->now_ms);
    if (!e->evict) {
        o->end_ms = l->now_ms;
        return;
    }
    o->preempted++;
    arrive(l, e->job, o->preempted);
    world_job_preemptions_set(l->w, (uint64_t)e->job + 1, by, count);
}

static void carry_out(struct loop *l, const struct sched_decisions *d) {
    for (uint32_t i = 0; i < d->starts.len; i++) {
        uint32_t job = (uint32_t)(d->starts.at[i].job - 1);
        world_job_start_in(l->w, d->starts.at[i].job, d->starts.at[i].partition, d->starts.at[i].alloc, l->now_ms);
        l->out->jobs.at[job].start_ms = l->now_ms;
        l->used += size_of(l, job);
        event_add(l, (struct replay_event){l->now_ms + l->t->jobs.at[job].run_ms, job, l->attempts.at[job], false});
    }
    for (uint32_t i = 0; i < d->preempts.len; i++) {
        uint32_t job = (uint32_t)(d->preempts.at[i].victim - 1);
        world_job_preempt(l->w, &d->preempts.at[i]);
        event_add(l, (struct replay_event){l->now_ms + d->preempts.at[i].grace_ms, job, l->attempts.at[job], true});
        l->out->preemptions++;
    }
}

static void sample(struct loop *l) {
    vec_push(&l->out->samples, (struct sample){l->now_ms, l->used, world_pending(l->w), world_running(l->w)});
    if (l->t->gpus && l->out->samples.len % l->sample_every == 0) {
        l->out->fragmented_sum += world_fragmented_milligpu(l->w);
        l->out->fragmented_samples++;
    }
}

static void step(struct loop *l) {
    while (l->events.len && l->events.at[0].at_ms <= l->now_ms) {
        struct replay_event e = event_pop(l);
        finish(l, &e);
    }
    while (l->next < l->t->jobs.len && l->t->jobs.at[l->next].submit_ms <= l->now_ms)
        arrive(l, l->next++, 0);
    l->wake_ms = INT64_MAX;
    if (world_pending(l->w)) {
        struct sched_decisions d;
        sched_decide(l->w, l->now_ms, l->policy, &d);
        l->out->decisions++;
        l->wake_ms = d.next_ms;
        carry_out(l, &d);
        sched_decisions_done(&d);
    }
    sample(l);
}

int sim_replay_run(const struct trace *t, const struct policy *policy, struct replay *out, struct error *err) {
    *out = (struct replay){0};
    struct loop l = {.t = t, .policy = policy, .out = out, .w = world_new(), .wake_ms = INT64_MAX};
    world_half_life(l.w, policy->half_life_ms);
    int r = sim_replay_world(t, l.w, err);
    for (uint32_t i = 0; i < t->nodes.len; i++)
        out->capacity += t->gpus ? (int64_t)t->nodes.at[i].gpus * SCHED_GPU : (int64_t)t->nodes.at[i].cpus;
    for (uint32_t i = 0; i < t->jobs.len && !r; i++) {
        vec_push(&out->jobs, (struct replay_outcome){.start_ms = -1, .end_ms = -1});
        vec_push(&l.attempts, 0);
    }
    l.sample_every = t->jobs.len * 2 / FRAGMENT_SAMPLES + 1;
    out->first_ms = t->jobs.len ? t->jobs.at[0].submit_ms : 0;
    unsigned rounds = 0;
    while (!r) {
        int64_t at = l.wake_ms;
        if (l.next < t->jobs.len && t->jobs.at[l.next].submit_ms < at)
            at = t->jobs.at[l.next].submit_ms;
        if (l.events.len && l.events.at[0].at_ms < at)
            at = l.events.at[0].at_ms;
        if (at == INT64_MAX)
            break;
        rounds = at > l.now_ms ? 0 : rounds + 1;
        if (rounds > ROUNDS_AT_ONE_TIME_MAX) {
            r = error_set(err, ELOOP, "the policy never comes to rest at %lld s", (long long)at / 1000);
            break;
        }
        l.now_ms = at > l.now_ms ? at : l.now_ms;
        step(&l);
    }
    out->last_ms = l.now_ms;
    out->unstarted = world_pending(l.w);
    vec_done(&l.events);
    vec_done(&l.attempts);
    world_free(l.w);
    return r;
}

void sim_replay_done(struct replay *r) {
    vec_done(&r->jobs);
    vec_done(&r->samples);
}
