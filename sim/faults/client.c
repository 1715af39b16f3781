// Owns users and operators: each item of work becomes a request that is sent again until there is an
// answer, under the same idempotency key. Answers get lost when the controller dies; then the same
// request comes twice.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "sim.h"

static const struct actor users[] = {
    {"alice", 1001, 1001, false}, {"bob", 1002, 1002, false}, {"carol", 1003, 1003, false}};
static const struct actor admin = {"root", 0, 0, true};
static const char *const projects[PROJECTS] = {"default", "vision", "speech"};

enum { RESULT_LATER = 1, PATIENCE = 30 };

void client_begin(struct sim *s, uint32_t item) {
    struct request q = {.number = s->requests.len, .item = item};
    const struct item *it = &s->plan->items.at[item];
    if (it->job && it->job->keyed)
        snprintf(q.key, sizeof q.key, "key-%u", item);
    vec_push(&s->requests, q);
    client_impatient(s, &s->requests.at[q.number]);
}

void client_impatient(struct sim *s, struct request *q) {
    if (q->settled)
        return;
    q->tries++;
    after(s, some_ms(s, 1, s->plan->latency_ms), HAPPEN_REQUEST, q->number, q->tries, 0);
    after(s, some_ms(s, 3000, 12000), HAPPEN_CLIENT, q->number, q->tries, 0);
}

static const struct request *request_of(const struct sim *s, uint32_t item) {
    for (uint32_t i = 0; i < s->requests.len; i++)
        if (s->requests.at[i].item == item)
            return &s->requests.at[i];
    return NULL;
}

static uint64_t target_of(const struct sim *s, const struct item *it) {
    const struct request *q = request_of(s, it->target);
    return q && q->id ? q->id + it->pick % q->count : 0;
}

// --- commands ---

static bool depend_on(const struct job_shape *j, const struct request *other, char *out, size_t size) {
    static const struct {
        const char *before, *behind;
    } forms[DEPEND_COUNT] = {[DEPEND_AFTER] = {"after", ""},
                             [DEPEND_OK] = {"afterok", ""},
                             [DEPEND_ANY] = {"afterany", ""},
                             [DEPEND_NOT_OK] = {"afternotok", ""},
                             [DEPEND_SAME_ELEMENT] = {"aftercorr", ""},
                             [DEPEND_ELEMENT] = {"afterany", "_0"},
                             [DEPEND_MINUTE_AFTER] = {"after", "+1"}};
    unsigned long long id = other ? other->id : 0;
    if (!id)
        return false;
    if (j->dependency == DEPEND_SINGLETON)
        snprintf(out, size, "singleton");
    else if (j->dependency == DEPEND_ONE_OF_TWO)
        snprintf(out, size, "afterok:%llu?afternotok:%llu", id, id);
    else if (other->count == 1 && (j->dependency == DEPEND_ELEMENT || j->dependency == DEPEND_SAME_ELEMENT))
        snprintf(out, size, "afterany:%llu", id);
    else
        snprintf(out, size, "%s:%llu%s", forms[j->dependency].before, id, forms[j->dependency].behind);
    return true;
}

static int step(struct sim *s, const struct item *it, uint64_t id) {
    struct job_view v;
    struct event_step e = {.id = id, .name = "step", .tasks = 1};
    if (!core_view(s->head.core, id, &v))
        return -ENOENT;
    e.attempt = v.attempt;
    e.step = core_step_started(s->head.core, id, &e, head_wall_ms(s));
    if (e.step && it->amount % 2)
        core_step_ended(s->head.core, &e, head_wall_ms(s));
    return 0;
}

static int submit(struct sim *s, struct request *q, const struct item *it, struct answer *a, struct error *e) {
    const struct job_shape *j = it->job;
    struct commit_pipeline *pipeline = s->head.pipeline;
    const struct actor *who = &users[j->user];
    char number[16], dependency[64], script_id[33];
    const char *argv[] = {"run", number};
    const char script[] = JOB_SCRIPT;
    struct array_range range = {0, j->array ? j->array - 1 : 0, 1};
    if (store_space(s->head.store) != STORE_SPACE_OK)
        return error_set(e, EAGAIN, "the disk is nearly full");
    if (q->key[0] && store_idem(s->head.store, who->user, q->key, head_wall_ms(s), &a->id, NULL) == 0) {
        a->count = j->array ? j->array : 1;
        return 0;
    }
    snprintf(number, sizeof number, "%u", q->item);
    pipeline_text_id(script, sizeof script - 1, script_id);
    static const char *const qos[] = {NULL, "urgent", "low"};
    struct spec spec = {.name = j->dependency == DEPEND_SINGLETON ? "alone" : "job",
                        .partition = j->partition,
                        .workdir = "/tmp",
                        .tasks = j->tasks,
                        .cpus_per_task = j->cpus,
                        .nodes_min = j->nodes,
                        .nodes_max = j->nodes,
                        .gpus_milli = j->gpus_milli,
                        .project = projects[j->project],
                        .requeue = j->requeue,
                        .hold = j->hold,
                        .time_limit_s = j->time_limit_s,
                        .grace_s = j->grace_s,
                        .argv = {argv, 2},
                        .array_limit = j->array ? j->array_limit : 0,
                        .qos = qos[j->qos],
                        .script_id = script_id,
                        .class = j->interactive ? CLASS_INTERACTIVE : CLASS_TRAIN,
                        .launch = j->launch_tasks ? LAUNCH_TASKS : LAUNCH_BATCH,
                        .memory_per_node_bytes = 64 << 20};
    if (j->array) {
        spec.array.at = &range;
        spec.array.len = 1;
    }
    if (j->begin_after_ms)
        spec.begin_ms = head_wall_ms(s) + j->begin_after_ms;
    if (j->deadline_after_ms)
        spec.deadline_ms = head_wall_ms(s) + j->deadline_after_ms;
    if (depend_on(j, j->dependency ? request_of(s, j->depends_on) : NULL, dependency, sizeof dependency))
        spec.dependency = dependency;
    int r = core_submit(s->head.core, who, &spec, q->key[0] ? q->key : NULL, false, head_wall_ms(s), &a->id,
                        &a->count, e);
    if (r < 0)
        return r;
    pipeline_keep_text(pipeline, a->id, script, sizeof script - 1);
    if (q->key[0])
        pipeline_keep_key(pipeline, who->user, q->key, a->id, head_wall_ms(s));
    s->submitted += a->count;
    return RESULT_LATER;
}

static int update(struct sim *s, const struct item *it, uint64_t id, struct error *e) {
    cleanup_arena struct arena a = {0};
    struct job_record r;
    if (core_record(s->head.core, id, &a, &r) < 0)
        return -ENOENT;
    struct spec spec = *r.spec;
    spec.time_limit_s = 1 + it->amount % 40;
    spec.nice = (int32_t)(it->amount % 100);
    if (it->amount % 3 == 0)
        spec.comment = "changed";
    if (it->amount % 7 == 0)
        spec.dependency = NULL;
    if (it->amount % 7 == 1)
        spec.qos = "low";
    return core_update(s->head.core, &admin, id, &spec, head_wall_ms(s), e);
}

static int on_job(struct sim *s, const struct item *it, struct error *e) {
    uint64_t id = target_of(s, it);
    struct core *c = s->head.core;
    int64_t now = head_wall_ms(s);
    struct cancel_options cancel = {.signal = it->amount % 5 == 0 ? SIGKILL : 0};
    if (!id)
        return -ENOENT;
    switch (it->kind) {
    case ITEM_CANCEL: return core_cancel(c, &admin, id, &cancel, now, e);
    case ITEM_HOLD: return core_hold(c, &admin, id, now, e);
    case ITEM_RELEASE: return core_release(c, &admin, id, now, e);
    case ITEM_REQUEUE: return core_requeue(c, &admin, id, it->amount % 6 == 0, now, e);
    case ITEM_SUSPEND: return core_suspend(c, &admin, id, false, now, e);
    case ITEM_RESUME: return core_suspend(c, &admin, id, true, now, e);
    case ITEM_STEP: return step(s, it, id);
    case ITEM_SIGNAL: return core_cancel(c, &admin, id, &(struct cancel_options){.signal = SIGUSR1}, now, e);
    default: return update(s, it, id, e);
    }
}

static int set_project(struct sim *s, uint32_t which, uint32_t quota_milligpu, bool limit, struct error *e) {
    const char *models[] = {"V100=1"};
    struct project p = {.name = projects[which],
                        .parent = which == 2 ? projects[1] : NULL,
                        .quota_milligpu = quota_milligpu,
                        .has_limit = limit,
                        .limit_milligpu = quota_milligpu + 1000};
    if (quota_milligpu % 3 == 1)
        p.model_quotas = (__typeof__(p.model_quotas)){models, 1};
    return core_project_set(s->head.core, &admin, &p, head_wall_ms(s), e);
}

static int set_qos(struct sim *s, uint32_t max_jobs, struct error *e) {
    const char *preempts[] = {"low"};
    struct qos low = {.name = "low", .priority = 1}, urgent = {.name = "urgent",
                                                               .priority = 10,
                                                               .max_jobs_per_user = max_jobs,
                                                               .preempts = {preempts, 1}};
    int r = core_qos_set(s->head.core, &admin, &low, head_wall_ms(s), e);
    return r < 0 ? r : core_qos_set(s->head.core, &admin, &urgent, head_wall_ms(s), e);
}

// Somebody turns a few of the knobs, sometimes beyond where they go.
static int set_policy(struct sim *s, const struct item *it, struct error *e) {
    struct policy_settings p;
    uint32_t n = it->amount;
    core_policy_settings(s->head.core, &p);
    switch (it->pick) {
    case 0: p.order = p.order == ORDER_FCFS ? ORDER_FAIR : ORDER_FCFS; break;
    case 1: p.backfill = (enum policy_backfill_word)(n % 3); break;
    case 2: p.placement = (enum policy_placement_word)(n % 4); break;
    case 3: p.reclaim = !p.reclaim; break;
    case 4: p.half_life_s = 60 + n * 600; break;
    default: p.short_factor = n; break;
    }
    if (n % 2) {
        p.use_s = n * 100;
        p.size_s = (int32_t)n - 500;
        p.max_wait_s = n % 3 ? 0 : n;
        p.min_run_s = n % 7;
    }
    if (n % 3 == 0) {
        p.plan_depth = n % 70;  // more than 64 is refused
        p.qos_step_s = n % 2 ? n * 60 : 0;
        p.nice_step_s = n % 5 ? 0 : 60;
        p.interactive_in_quota = !p.interactive_in_quota;
    }
    return core_policy_set(s->head.core, &admin, &p, head_wall_ms(s), e);
}

static int on_cluster(struct sim *s, const struct item *it, struct error *e) {
    struct core *c = s->head.core;
    int64_t now = head_wall_ms(s);
    const char *node = s->machines[it->node].name;
    const char *who[] = {"alice"};
    char id[24];
    switch (it->kind) {
    case ITEM_DRAIN: return core_drain(c, &admin, node, "to be repaired", now, e);
    case ITEM_UNDRAIN: return core_resume(c, &admin, node, now, e);
    case ITEM_QUOTA: return set_project(s, it->pick % PROJECTS, it->amount * 5, it->amount % 2, e);
    case ITEM_PROJECT_DELETE:
        return core_delete(c, &admin, ENTITY_PROJECT, projects[it->pick % PROJECTS], true, now, e);
    case ITEM_PARTITION_DOWN:
        return core_partition_set(
            c, &admin, &(struct partition){.name = "main", .is_default = true, .down = true}, now, e);
    case ITEM_QOS:
        return it->amount % 2 ? set_qos(s, 1, e) : core_delete(c, &admin, ENTITY_QOS, "urgent", true, now, e);
    case ITEM_POLICY: return set_policy(s, it, e);
    case ITEM_NODE_REMOVE: return core_node_remove(c, &admin, node, now, e);
    case ITEM_RESERVATION: {
        struct reservation r = {.name = "hold",
                                .nodes = node,
                                .start_ms = now + it->amount,
                                .end_ms = now + 60000 + it->amount,
                                .maintenance = it->amount % 2,
                                .users = {who, 1}};
        return core_reservation_set(c, &admin, &r, now, e);
    }
    default: {
        snprintf(id, sizeof id, "token-%u", it->amount % 9);
        if (it->amount % 4 == 0)
            return core_token_revoke(c, &admin, id, now, e);
        if (it->amount % 4 == 1)
            return core_token_use(c, id, "00", node, "fingerprint", now, e);
        struct event_token t = {.id = id, .hash = "00", .expires_ms = now + 3600000};
        return core_token_create(c, &admin, &t, now, e);
    }
    }
}

// --- answers ---

static void committed(void *arg) {
    struct answer *a = arg;
    struct sim *s = a->sim;
    if (rand_below(&s->rand, 50) != 0)  // the client's connection may have gone
        after(s, some_ms(s, 1, s->plan->latency_ms), HAPPEN_REPLY, a->number, 0, 0);
}

void client_arrives(struct sim *s, struct request *q) {
    struct error e = {0};
    const struct item *it = &s->plan->items.at[q->item];
    if (!s->head.core)
        return;
    struct answer *a = arena_alloc(&s->arena, sizeof *a);
    *a = (struct answer){.sim = s, .number = s->answers.len, .request = q->number};
    vec_push(&s->answers, a);
    a->result = it->kind == ITEM_SUBMIT ? submit(s, q, it, a, &e)
                : it->kind < ITEM_DRAIN ? on_job(s, it, &e)
                                        : on_cluster(s, it, &e);
    note(s, "controller: request #%u %s: %s", q->item, item_word(it->kind), a->result < 0 ? e.text : "accepted");
    if (a->result < 0)
        committed(a);  // a refusal depends on nothing
    else
        pipeline_when_committed(s->head.pipeline, committed, a);
    head_touched(s);
}

void client_answered(struct sim *s, const struct answer *a) {
    struct request *q = &s->requests.at[a->request];
    if (q->settled || a->result == -EAGAIN)
        return;
    q->settled = true;
    q->refused = a->result < 0;
    if (a->result < 0)
        return;
    q->id = a->id;
    q->count = a->count;
    note(s, "client: request #%u is acknowledged (job %llu)", q->item, (unsigned long long)q->id);
    check_acknowledged(s, q);
}

bool clients_settled(const struct sim *s) {
    for (uint32_t i = 0; i < s->requests.len; i++)
        if (!s->requests.at[i].settled)
            return false;
    return true;
}

// --- putting things right ---

struct left {
    struct sim *sim;
    VEC(uint64_t) release, resume, cancel;
};

static bool look(void *ctx, const struct job_view *v) {
    struct left *l = ctx;
    bool hopeless = v->reason == REASON_DEPENDENCY_NEVER;
    // What would run for ever is cancelled, once: the rest is the controller's to do.
    bool goes_on = l->sim->cleanups % PATIENCE == 0 && (v->state == JOB_RUNNING || v->state == JOB_STARTING);
    hopeless |= goes_on && !map_get(&l->sim->cancelled, v->id);
    // A cluster that has lost machines for good cannot run everything that was accepted.
    for (uint32_t i = 0; i < l->sim->machine_count; i++)
        hopeless |= v->state == JOB_PENDING && l->sim->cleanups > 2 * PATIENCE && l->sim->machines[i].gone;
    if (v->held)
        vec_push(&l->release, v->id);
    if (v->state == JOB_SUSPENDED)
        vec_push(&l->resume, v->id);
    if (hopeless) {
        vec_push(&l->cancel, v->id);
        map_put(&l->sim->cancelled, v->id, l->sim);
    }
    return true;
}

static void clean_jobs(struct sim *s) {
    struct left l = {.sim = s};
    struct core *c = s->head.core;
    int64_t now = head_wall_ms(s);
    core_each_job(c, look, &l);
    for (uint32_t i = 0; i < l.release.len; i++)
        core_release(c, &admin, l.release.at[i], now, NULL);
    for (uint32_t i = 0; i < l.resume.len; i++)
        core_suspend(c, &admin, l.resume.at[i], true, now, NULL);
    for (uint32_t i = 0; i < l.cancel.len; i++)
        core_cancel(c, &admin, l.cancel.at[i], &(struct cancel_options){0}, now, NULL);
    vec_done(&l.release);
    vec_done(&l.resume);
    vec_done(&l.cancel);
}

void client_setup(struct sim *s, bool generous) {
    for (uint32_t i = 0; i < PROJECTS; i++)
        set_project(s, i, generous ? 100000000 : i ? 2000 : PROJECT_QUOTA_ALL, false, NULL);
    set_qos(s, 0, NULL);
    core_partition_set(s->head.core, &admin,
                       &(struct partition){.name = "small", .nodes = s->machines[0].name}, head_wall_ms(s),
                       NULL);
    head_touched(s);
}

void client_cleanup(struct sim *s) {
    struct core *c = s->head.core;
    int64_t now = head_wall_ms(s);
    s->cleanups++;
    if (!c)
        return;
    if (s->cleanups % 64 == 1) {
        client_setup(s, true);  // interactive work must fit into its quota
        core_partition_set(c, &admin, &(struct partition){.name = "main", .is_default = true}, now, NULL);
        core_delete(c, &admin, ENTITY_RESERVATION, "hold", true, now, NULL);
    }
    for (uint32_t i = 0; i < s->machine_count; i++)
        core_resume(c, &admin, s->machines[i].name, now, NULL);
    clean_jobs(s);
    head_touched(s);
}
