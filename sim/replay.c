// The event loop of a replay: submissions, ends and evictions in the order of time; one scheduling pass whenever
// something changed and jobs are pending. An elastic job (`workers`) has its tasks as minimum; its work, the tasks
// times the run time, is done the sooner the more workers it has.
#include "sim/replay.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

#include "base/cleanup.h"

enum { FRAGMENT_SAMPLES = 256, ROUNDS_AT_ONE_TIME_MAX = 10000 };

struct replay_event {
    int64_t at_ms;
    uint32_t job;      // trace index; from the number of jobs on: an optional worker
    uint32_t attempt;  // stale when the job was preempted since
    bool evict;
    uint32_t version;  // of an elastic job's expected end: stale when its workers changed since
};

// An elastic job while it runs.
struct elastic {
    int64_t done_ms;  // of its work, in worker-milliseconds, until at_ms
    int64_t at_ms;
    uint32_t workers;  // 0: it does not run
    uint32_t version;
    uint32_t first;  // its first optional worker
};

struct loop {
    const struct trace *t;
    const struct policy *policy;
    struct replay *out;
    struct world *w;
    VEC(struct replay_event) events;  // heap
    VEC(uint32_t) attempts;           // by trace index, then by optional worker
    VEC(struct elastic) elastic;      // by trace index; empty: no job is elastic
    VEC(uint32_t) owners;             // by optional worker: trace index of its job
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

static int add_equal_projects(const struct trace *t, struct world *w, struct error *err) {
    int r = 0;
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

int sim_replay_world(const struct trace *t, struct world *w, struct error *err) {
    if (!t->nodes.len)
        return error_set(err, EINVAL,
                         "the trace does not say which nodes there are: give a node list with --nodes");
    int r = add_nodes(t, w, err);
    for (uint32_t i = 0; i < t->settings.len && !r; i++)
        r = world_project_set(w, &t->settings.at[i], err);
    return r || t->settings.len ? r : add_equal_projects(t, w, err);
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

// --- elastic jobs ---

static bool is_elastic(const struct loop *l, uint32_t job) {
    return job < l->t->jobs.len && l->t->jobs.at[job].workers;
}

static uint64_t worker_id(const struct loop *l, uint32_t worker) {
    return (uint64_t)l->t->jobs.len + 1 + worker;
}

static int64_t worker_size(const struct loop *l, uint32_t job) {
    const struct trace_job *j = &l->t->jobs.at[job];
    return l->t->gpus ? (int64_t)j->gpu_milli : (int64_t)j->cpus_per_task;
}

static void worker_waits(struct loop *l, uint32_t worker) {
    uint32_t job = l->owners.at[worker];
    struct sched_request q = sim_replay_request(l->t, &l->t->jobs.at[job]);
    q.nodes_min = q.tasks = 1;
    q.time_limit_ms = 0;
    q.optional = true;
    const struct world_request *r = world_request(l->w, &q);
    world_job_add(l->w, &(struct sched_job){.id = worker_id(l, worker),
                                            .request = r,
                                            .submit_ms = l->t->jobs.at[job].submit_ms,
                                            .group = (uint64_t)job + 1});
    world_request_unref(l->w, r);
}

// What was done since the last change counts, and the end is expected anew.
static void workers_changed(struct loop *l, uint32_t job, int change) {
    struct elastic *e = &l->elastic.at[job];
    const struct trace_job *j = &l->t->jobs.at[job];
    if (l->now_ms > e->at_ms) {
        e->done_ms += (l->now_ms - e->at_ms) * e->workers;
        e->at_ms = l->now_ms;
    }
    e->workers += (uint32_t)change;
    int64_t left = j->run_ms * j->tasks - e->done_ms;
    left = left > 0 ? (left + e->workers - 1) / e->workers : 0;
    event_add(l, (struct replay_event){e->at_ms + left, job, l->attempts.at[job], false, ++e->version});
}

static void worker_ends(struct loop *l, uint32_t worker) {
    struct sched_job_view v;
    if (!world_job(l->w, worker_id(l, worker), &v))
        return;
    l->attempts.at[l->t->jobs.len + worker]++;
    if (v.state != SCHED_JOB_PENDING)
        l->used -= worker_size(l, l->owners.at[worker]);
    world_job_end(l->w, v.id, l->now_ms);
}

static void elastic_starts(struct loop *l, uint32_t job, int64_t delay_ms) {
    struct elastic *e = &l->elastic.at[job];
    *e = (struct elastic){.at_ms = l->now_ms + delay_ms,
                          .workers = l->t->jobs.at[job].tasks,
                          .version = e->version,
                          .first = e->first};
    for (uint32_t i = 0; i < l->t->jobs.at[job].workers - l->t->jobs.at[job].tasks; i++)
        worker_waits(l, e->first + i);
    workers_changed(l, job, 0);
    l->wake_ms = l->now_ms;  // it may grow at once
}

static void elastic_ends(struct loop *l, uint32_t job) {
    l->elastic.at[job].workers = 0;
    for (uint32_t i = 0; i < l->t->jobs.at[job].workers - l->t->jobs.at[job].tasks; i++)
        worker_ends(l, l->elastic.at[job].first + i);
}

static void worker_starts(struct loop *l, const struct sched_start *s) {
    uint32_t worker = (uint32_t)(s->job - l->t->jobs.len - 1), job = l->owners.at[worker];
    world_job_start_in(l->w, s->job, s->partition, s->alloc, l->now_ms);
    l->used += worker_size(l, job);
    l->out->grown++;
    workers_changed(l, job, 1);
}

static int elastic_init(struct loop *l, struct error *err) {
    uint64_t count = 0;
    for (uint32_t i = 0; i < l->t->jobs.len; i++)
        count += l->t->jobs.at[i].workers ? l->t->jobs.at[i].workers - l->t->jobs.at[i].tasks : 0;
    if (count > TRACE_OPTIONAL_MAX)
        return error_set(err, E2BIG, "the trace has more than %d optional workers: cut it",
                         TRACE_OPTIONAL_MAX);
    for (uint32_t i = 0; i < l->t->jobs.len && count; i++) {
        vec_push(&l->elastic, (struct elastic){.first = l->owners.len});
        for (uint32_t k = l->t->jobs.at[i].tasks; k < l->t->jobs.at[i].workers; k++) {
            vec_push(&l->owners, i);
            vec_push(&l->attempts, 0);
        }
    }
    return 0;
}

// --- starts and ends ---

static void finish(struct loop *l, const struct replay_event *e) {
    if (e->attempt != l->attempts.at[e->job])
        return;
    if (e->job >= l->t->jobs.len) {
        uint32_t worker = e->job - l->t->jobs.len;
        worker_ends(l, worker);
        worker_waits(l, worker);
        workers_changed(l, l->owners.at[worker], -1);
        return;
    }
    if (is_elastic(l, e->job)) {
        if (!e->evict && e->version != l->elastic.at[e->job].version)
            return;
        elastic_ends(l, e->job);
    }
    struct replay_outcome *o = &l->out->jobs.at[e->job];
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
    l->out->lost += (l->now_ms - o->start_ms) * size_of(l, e->job);
    arrive(l, e->job, o->preempted);
    world_job_preemptions_set(l->w, (uint64_t)e->job + 1, by, count);
}

static void carry_out(struct loop *l, const struct sched_decisions *d) {
    for (uint32_t i = 0; i < d->starts.len; i++) {
        const struct sched_start *s = &d->starts.at[i];
        uint32_t job = (uint32_t)(s->job - 1);
        if (s->optional) {
            worker_starts(l, s);
            continue;
        }
        int64_t delay_ms = s->after_count ? l->policy->grace_ms : 0;  // for the workers in its way
        world_job_start_in(l->w, s->job, s->partition, s->alloc, l->now_ms);
        l->out->jobs.at[job].start_ms = l->now_ms + delay_ms;
        l->used += size_of(l, job);
        if (is_elastic(l, job))
            elastic_starts(l, job, delay_ms);
        else
            event_add(l, (struct replay_event){l->now_ms + delay_ms + l->t->jobs.at[job].run_ms, job,
                                               l->attempts.at[job], false, 0});
    }
    for (uint32_t i = 0; i < d->preempts.len; i++) {
        uint32_t job = (uint32_t)(d->preempts.at[i].victim - 1);
        world_job_preempt(l->w, &d->preempts.at[i]);
        event_add(l, (struct replay_event){l->now_ms + d->preempts.at[i].grace_ms, job, l->attempts.at[job],
                                           true, 0});
        if (d->preempts.at[i].why == SCHED_PREEMPT_OPTIONAL)
            l->out->given_back++;
        else
            l->out->preemptions++;
    }
    sched_promises_keep(l->w, d);
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
    if (world_pending(l->w) || world_optional_waiting(l->w)) {
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
    r = r ? r : elastic_init(&l, err);
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
    vec_done(&l.elastic);
    vec_done(&l.owners);
    world_free(l.w);
    return r;
}

void sim_replay_done(struct replay *r) {
    vec_done(&r->jobs);
    vec_done(&r->samples);
}
