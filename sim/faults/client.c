// Users and operators: each item of work becomes a command that is sent again until there is an answer, a
// submit under the same idempotency key. Answers get lost when the controller dies; then the same command
// comes twice. Commands go in through core_command, as those of the API do.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "fault_sim.h"
#include "sched/step_pack.h"

static const struct actor users[] = {
    {"alice", 1001, 1001, false}, {"bob", 1002, 1002, false}, {"carol", 1003, 1003, false}};
static const struct actor admin = {"root", 0, 0, true};
static const char *const projects[PROJECTS] = {"default", "vision", "speech"};

enum { PATIENCE = 30 };

const char *client_user(const struct job_shape *j) {
    return users[j->user].user;
}

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

uint64_t client_job_of(const struct sim *s, uint32_t item) {
    const struct request *q = request_of(s, item);
    return q ? q->id : 0;
}

static uint64_t target_of(const struct sim *s, const struct item *it) {
    const struct request *q = request_of(s, it->target);
    const struct job_shape *j = s->plan->items.at[it->target].job;
    if (q && q->id && j && j->workers_max && it->pick > 2 && it->kind < ITEM_DRAIN)
        return q->id + 1 + it->amount % j->workers_max;  // one of its workers
    return q && q->id ? q->id + it->pick % q->count : 0;
}

// --- commands ---

static int command(struct sim *s, enum command_type type, const void *body, struct error *e) {
    struct command m = {type, body};
    return core_command(s->head->core, &admin, NULL, &m, head_wall_ms(s), NULL, e);
}

// The license is there, or again: a restore of an older copy may have lost it.
static bool has_license(struct sim *s) {
    const struct license seats = {.name = "matlab", .count = 2};
    struct error e = {0};
    return core_feature(s->head->core, FEATURE_LICENSES) &&
           (core_entity_exists(s->head->core, ENTITY_LICENSE, seats.name) ||
            command(s, COMMAND_LICENSE_SET, &seats, &e) == 0);
}

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

// A repeated request finds the step by its key, as the controller's sessions do.
static bool create_step(struct sim *s, const struct item *it, uint32_t item, uint64_t id) {
    char run_ms[16], code[16], key[24];
    const char *argv[] = {"step", run_ms, code};
    struct message_exec command = {.kill_on_bad_exit = it->amount % 2,
                                   .mpi = it->amount % 4 ? STEP_MPI_PMI : STEP_MPI_NONE,
                                   .argv = {argv, 3}};
    struct step_request where = {
        .tasks = 1 + it->amount % 3, .overlap = it->amount % 2, .overcommit = it->amount % 3 != 0};
    struct job_view job;
    if (command.mpi && core_view(s->head->core, id, &job) && job.node_count > 1)
        where.nodes = where.tasks = 2;
    struct core_step_request q = {.name = "step", .request = &where, .command = &command, .key = key};
    q.lease_s = it->amount % 3 == 2 ? SIM_STEP_LEASE_S : 0;
    struct core_step_view v;
    struct error e = {0};
    uint32_t number;
    bool created = false;
    snprintf(run_ms, sizeof run_ms, "%u", (uint32_t)it->for_ms);
    snprintf(code, sizeof code, "%u", it->amount % 5 == 0 ? it->pick % 3 : 0);
    snprintf(key, sizeof key, "step-%u", item);
    if (it->amount % 8 == 7)
        core_step_signal(s->head->core, &admin, id, 1 + it->pick % 3, SIGTERM, true, head_wall_ms(s), &e);
    else if (!core_step_view(s->head->core, id, 0, key, &v))
        created = core_step_create(s->head->core, &admin, id, &q, head_wall_ms(s), &number, &e) == 0;
    return created;
}

// A request that is repeated because its answer was lost comes from a client that is there already: its session finds
// the step by its key, also one that has ended (controller/step_watch.c), or has it created again.
static void step_in(struct sim *s, const struct item *it, uint32_t item, uint64_t id) {
    for (uint32_t i = 0; i < s->watchers.len; i++)
        if (s->watchers.at[i]->item == item && s->watchers.at[i]->id == id)
            return;
    if (create_step(s, it, item, id) && it->amount % 3)
        watcher_begin(s, id, item);
}

// In a job of several components, some of them are one in each, as srun --het-group makes them.
static int step(struct sim *s, const struct item *it, uint32_t item, uint64_t id) {
    const struct job_shape *j = s->plan->items.at[it->target].job;
    const struct request *q = request_of(s, it->target);
    if (!j->components || it->amount % 4 < 2) {
        step_in(s, it, item, id);
        return 0;
    }
    for (uint32_t i = 0; i < j->components; i++)
        step_in(s, it, item, elastic_first_worker(j, q->id, i));
    return 0;
}

void client_step_again(struct sim *s, uint32_t item, uint64_t id) {
    create_step(s, &s->plan->items.at[item], item, id);
    head_touched(s);
}

static int submit(struct sim *s, struct request *q, const struct item *it, struct sim_answer *a, struct error *e) {
    const struct job_shape *j = it->job;
    struct commit_pipeline *pipeline = s->head->pipeline;
    const struct actor *who = &users[j->user];
    char number[16], dependency[64], script_id[33], upload_id[33], volume[64];
    const char *argv[] = {"run", number}, *volumes[] = {volume}, *ports[] = {"tcp:7000"};
    const char script[] = JOB_SCRIPT, folder[] = JOB_FOLDER;
    struct array_range range = {0, j->array ? j->array - 1 : 0, 1};
    if (store_space(s->head->store) != STORE_SPACE_OK)
        return error_set(e, EAGAIN, "the disk is nearly full");
    snprintf(number, sizeof number, "%u", q->item);
    pipeline_text_id(script, sizeof script - 1, script_id);
    pipeline_text_id(folder, sizeof folder - 1, upload_id);
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
                        .attach = j->attached,
                        .class = j->interactive ? CLASS_INTERACTIVE : CLASS_TRAIN,
                        .launch = j->lease_s        ? LAUNCH_STEPS
                                  : j->launch_tasks ? LAUNCH_TASKS
                                                    : LAUNCH_BATCH,
                        .lease_s = j->lease_s,
                        .checkpoint = j->checkpoint ? "save" : NULL,
                        .workers_min = j->workers_min,
                        .workers_max = j->workers_max,
                        .on_worker_end = j->on_worker_end,
                        .retries = j->retries,
                        .backoff_s = j->backoff_s,
                        .memory_per_node_bytes = 64 << 20};
    struct job_component components[3];
    if (!q->sent_ms)
        q->with_upload = q->item % 7 == 0 && core_feature(s->head->core, FEATURE_UPLOADS);
    spec.upload_id = q->with_upload ? upload_id : NULL;
    spec.upload_bytes = q->with_upload ? sizeof folder - 1 : 0;
    if (j->components)
        elastic_components(j, components, &spec);
    if (j->array) {
        spec.array.at = &range;
        spec.array.len = 1;
    }
    struct event_volume fresh = {.name = "data", .project = spec.project};
    struct error refused = {0};
    if (!q->sent_ms && q->item % 3 == 0)
        q->with_volume = core_volume(s->head->core, NULL, spec.project, "data") ||
                         command(s, COMMAND_VOLUME_CREATE, &fresh, &refused) == 0;
    snprintf(volume, sizeof volume, "%s/data:/data", spec.project);
    spec.volumes.at = volumes;
    spec.volumes.len = q->with_volume;
    if (!q->sent_ms)
        q->with_port = j->port && core_feature(s->head->core, FEATURE_PORTS);
    spec.ports.at = ports;
    spec.ports.len = q->with_port;
    if ((!q->sent_ms && q->item % 4 == 1 && !j->workers_max && !j->components) || q->with_license)
        q->with_license |= has_license(s);
    spec.licenses = q->with_license ? "matlab:1" : NULL;
    if (!q->sent_ms)
        q->sent_ms = head_wall_ms(s);  // the times in it are the same each time it is sent
    if (j->begin_after_ms)
        spec.begin_ms = q->sent_ms + j->begin_after_ms;
    if (j->deadline_after_ms)
        spec.deadline_ms = q->sent_ms + j->deadline_after_ms;
    if (depend_on(j, j->dependency ? request_of(s, j->depends_on) : NULL, dependency, sizeof dependency))
        spec.dependency = dependency;
    struct command m = {COMMAND_SUBMIT, &(struct command_submit){.spec = &spec}};
    struct command_result result;
    int r = core_command(s->head->core, who, q->key[0] ? q->key : NULL, &m, head_wall_ms(s), &result, e);
    if (r < 0)
        return r;
    a->id = result.id;
    a->count = result.count;
    if (result.repeated)
        return 0;
    pipeline_keep_text(pipeline, a->id, script, sizeof script - 1);
    if (q->with_upload)
        pipeline_keep_text(pipeline, a->id, folder, sizeof folder - 1);
    s->submitted += a->count;
    return 0;
}

static int update(struct sim *s, const struct item *it, uint64_t id, struct error *e) {
    struct spec change = {.time_limit_s = 1 + it->amount % 40, .nice = (int32_t)(it->amount % 100)};
    schema_give(&spec_schema, &change, &change.nice);
    if (it->amount % 3 == 0)
        change.comment = "changed";
    if (it->amount % 7 == 0)
        schema_give(&spec_schema, &change, &change.dependency);  // none any more
    if (it->amount % 7 == 1)
        change.qos = "low";
    return command(s, COMMAND_UPDATE, &(struct command_update){id, &change}, e);
}

static int on_job(struct sim *s, const struct item *it, struct error *e) {
    uint64_t id = target_of(s, it);
    struct command_job job = {id};
    struct command_cancel cancel = {.id = id, .signal = it->amount % 5 == 0 ? SIGKILL : 0};
    struct command_cancel signal = {.id = id, .signal = SIGUSR1};
    if (!id)
        return -ENOENT;
    switch (it->kind) {
    case ITEM_CANCEL: return command(s, COMMAND_CANCEL, &cancel, e);
    case ITEM_HOLD: return command(s, COMMAND_HOLD, &(struct command_hold){.id = id}, e);
    case ITEM_RELEASE: return command(s, COMMAND_RELEASE, &job, e);
    case ITEM_REQUEUE: return command(s, COMMAND_REQUEUE, &(struct command_requeue){id, it->amount % 6 == 0}, e);
    case ITEM_SUSPEND: return command(s, COMMAND_SUSPEND, &job, e);
    case ITEM_RESUME: return command(s, COMMAND_RESUME, &job, e);
    case ITEM_STEP: return step(s, it, (uint32_t)(it - s->plan->items.at), id);
    case ITEM_SIGNAL: return command(s, COMMAND_CANCEL, &signal, e);
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
    return command(s, COMMAND_PROJECT_SET, &p, e);
}

static int set_qos(struct sim *s, uint32_t max_jobs, struct error *e) {
    const char *preempts[] = {"low"};
    struct qos low = {.name = "low", .priority = 1}, urgent = {.name = "urgent",
                                                               .priority = 10,
                                                               .max_jobs_per_user = max_jobs,
                                                               .preempts = {preempts, 1}};
    int r = command(s, COMMAND_QOS_SET, &low, e);
    return r < 0 ? r : command(s, COMMAND_QOS_SET, &urgent, e);
}

// Somebody turns a few of the knobs, sometimes beyond where they go.
static int set_policy(struct sim *s, const struct item *it, struct error *e) {
    struct policy_settings p;
    uint32_t n = it->amount;
    core_policy_settings(s->head->core, &p);
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
    for (size_t i = 0; i < policy_schema.count; i++)
        schema_give(&policy_schema, &p, (char *)&p + policy_schema.fields[i].offset);
    return command(s, COMMAND_POLICY_SET, &p, e);
}

// Somebody logs in by way of a provider: what their groups give, until a time that may come within the run.
static int on_grant(struct sim *s, const struct item *it, struct error *e) {
    const char *const people[] = {"alice", "bob", "carol"};
    const char *names[] = {projects[it->amount % PROJECTS]};
    struct event_user_grant grant = {.unix_user = people[it->pick / 3 % 3],
                                     .role = it->amount % 3,
                                     .projects = {names, it->amount % 2},
                                     .expires_ms = head_wall_ms(s) + 1 + it->amount % 100 * 1000};
    return command(s, COMMAND_USER_GRANT, &grant, e);
}

// Rules of alerts are set and deleted, alerts raised, acknowledged and cleared. What is refused is refused.
static void on_alert(struct sim *s, const struct item *it) {
    char subject[40];
    struct error e = {0};
    struct alert_rule rule = {.name = "hot", .metric = "gpu/*/0/heat", .value = it->amount, .for_s = it->pick};
    snprintf(subject, sizeof subject, "gpu/%s/0/heat", s->machines[it->node].name);
    struct command_alert alert = {.rule = "hot", .subject = subject, .value = it->amount, .comment = "seen"};
    switch (it->amount % 7) {
    case 0: command(s, COMMAND_ALERT_SET, &rule, &e); break;
    case 1: command(s, COMMAND_ALERT_CLEAR, &alert, &e); break;
    case 2: command(s, COMMAND_ALERT_DELETE, &alert, &e); break;
    default:
        command(s, COMMAND_ALERT_RAISE, &alert, &e);
        if (it->amount % 2)
            command(s, COMMAND_ALERT_ACK, &alert, &e);
    }
}

// Programs of jobs are shared, again and for another time, and shares are ended.
static void on_share(struct sim *s, const struct item *it) {
    const char *const people[] = {"alice", "bob", "carol"};
    struct error e = {0};
    struct event_share share = {.job = 1 + it->pick % 40,
                                .port = 8000 + it->amount % 2,
                                .user = people[it->pick % 3],
                                .expires_ms = head_wall_ms(s) + 1 + it->amount % 100 * 1000};
    command(s, it->amount % 5 == 0 ? COMMAND_SHARE_END : COMMAND_SHARE_SET, &share, &e);
}

// Volumes are made, shared and deleted; jobs have them (submit).
static void on_volume(struct sim *s, const struct item *it) {
    const char *const people[] = {"alice", "bob", "carol"};
    struct error e = {0};
    struct event_volume volume = {.name = "data", .project = projects[it->pick % PROJECTS]};
    struct command_volume named = {
        .name = "data", .project = volume.project, .with = people[it->pick % 3], .read_only = it->amount % 2};
    switch (it->amount % 4) {
    case 0: command(s, COMMAND_VOLUME_CREATE, &volume, &e); break;
    case 1: command(s, COMMAND_VOLUME_SHARE, &named, &e); break;
    default: command(s, COMMAND_VOLUME_DELETE, &named, &e);
    }
}

// Drafts, templates and views are kept, replaced and deleted.
static int on_saved(struct sim *s, const struct item *it, struct error *e) {
    char name[24], text[32];
    struct spec spec = {
        .name = "draft", .cpus_per_task = it->amount % 7, .project = projects[it->amount % PROJECTS]};
    struct event_saved m = {.kind = it->amount % SAVED_KINDS, .name = name};
    snprintf(name, sizeof name, "saved-%u", it->node);
    snprintf(text, sizeof text, "search=%u", it->amount);
    if (m.kind == SAVED_TEMPLATE && it->amount % 4 == 0)
        m.project = projects[it->node % PROJECTS];
    if (it->amount % 5 == 0)
        return command(s, COMMAND_SAVED_DELETE, &m, e);
    if (m.kind == SAVED_VIEW)
        m.query = text;
    else
        m.spec = &spec, m.script = text;
    return command(s, COMMAND_SAVED_SET, &m, e);
}

static int on_token(struct sim *s, const struct item *it, struct error *e) {
    char id[24];
    snprintf(id, sizeof id, "token-%u", it->amount % 9);
    struct command_token_revoke revoke = {id};
    struct command_token_use use = {
        .id = id, .hash = "00", .node = s->machines[it->node].name, .fingerprint = "fingerprint"};
    struct command_token_create create = {.id = id, .hash = "00", .expires_ms = head_wall_ms(s) + 3600000};
    if (it->pick % 3 == 0)
        return on_grant(s, it, e);
    if (it->pick % 3 == 1)
        return on_saved(s, it, e);
    if (it->amount % 4 == 0)
        return command(s, COMMAND_TOKEN_REVOKE, &revoke, e);
    if (it->amount % 4 == 1)
        return command(s, COMMAND_TOKEN_USE, &use, e);
    return command(s, COMMAND_TOKEN_CREATE, &create, e);
}

static int delete(struct sim *s, enum entity_kind kind, const char *name, struct error *e) {
    return command(s, COMMAND_ENTITY_DELETE, &(struct command_entity_delete){kind, name, true}, e);
}

static int on_cluster(struct sim *s, const struct item *it, struct error *e) {
    int64_t now = head_wall_ms(s);
    const char *node = s->machines[it->node].name;
    const char *who[] = {"alice"};
    struct partition down = {.name = "main", .is_default = true, .down = true};
    struct license seats = {.name = "matlab", .count = 1 + it->amount % 3};
    struct reservation reservation = {.name = "hold",
                                      .nodes = node,
                                      .start_ms = now + it->amount,
                                      .end_ms = now + 60000 + it->amount,
                                      .maintenance = it->amount % 2,
                                      .users = {who, 1}};
    switch (it->kind) {
    case ITEM_DRAIN: return command(s, COMMAND_NODE_DRAIN, &(struct command_node_drain){node, "to be repaired"}, e);
    case ITEM_UNDRAIN: return command(s, COMMAND_NODE_RESUME, &(struct command_node){node}, e);
    case ITEM_QUOTA: return set_project(s, it->pick % PROJECTS, it->amount * 5, it->amount % 2, e);
    case ITEM_PROJECT_DELETE: return delete(s, ENTITY_PROJECT, projects[it->pick % PROJECTS], e);
    case ITEM_PARTITION_DOWN: return command(s, COMMAND_PARTITION_SET, &down, e);
    case ITEM_QOS:
        if (it->amount % 4 > 1 && core_feature(s->head->core, FEATURE_LICENSES))
            return command(s, COMMAND_LICENSE_SET, &seats, e);
        return it->amount % 2 ? set_qos(s, 1, e) : delete(s, ENTITY_QOS, "urgent", e);
    case ITEM_POLICY: return set_policy(s, it, e);
    case ITEM_NODE_REMOVE: return command(s, COMMAND_NODE_REMOVE, &(struct command_node){node}, e);
    case ITEM_RESERVATION: return command(s, COMMAND_RESERVATION_SET, &reservation, e);
    case ITEM_LEVEL: return command(s, COMMAND_UPGRADE_FINISH, &(struct command_empty){0}, e);
    case ITEM_PROVIDER: provider_item(s, it); return 0;
    default:
        on_alert(s, it);
        on_share(s, it);
        service_command(s, it);
        on_volume(s, it);
        return on_token(s, it, e);
    }
}

// --- answers ---

static void committed(void *arg) {
    struct sim_answer *a = arg;
    struct sim *s = a->sim;
    if (rand_below(&s->rand, 50) != 0)  // the client's connection may have gone
        after(s, some_ms(s, 1, s->plan->latency_ms), HAPPEN_REPLY, a->number, 0, 0);
}

void client_arrives(struct sim *s, struct request *q) {
    struct error e = {0};
    const struct item *it = &s->plan->items.at[q->item];
    if (!s->head->core)
        return;
    struct sim_answer *a = arena_alloc(&s->arena, sizeof *a);
    *a = (struct sim_answer){.sim = s, .number = s->answers.len, .request = q->number};
    vec_push(&s->answers, a);
    a->result = it->kind == ITEM_SUBMIT                              ? submit(s, q, it, a, &e)
                : it->kind == ITEM_ACCOUNT || it->kind == ITEM_LOGIN ? login_command(s, q, it, a, &e)
                : it->kind == ITEM_RESIZE || it->kind == ITEM_RANK
                    ? elastic_command(s, it, target_of(s, it), &e)
                : it->kind < ITEM_DRAIN ? on_job(s, it, &e)
                                        : on_cluster(s, it, &e);
    note(s, "controller: request #%u %s: %s", q->item, item_word(it->kind), a->result < 0 ? e.text : "accepted");
    if (a->result < 0)
        committed(a);  // a refusal depends on nothing
    else
        pipeline_when_committed(s->head->pipeline, committed, a);
    head_touched(s);
}

void client_answered(struct sim *s, const struct sim_answer *a) {
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
    login_answered(s, q, a);
    check_acknowledged(s, q);
    const struct job_shape *j = s->plan->items.at[q->item].job;
    if (j && j->lease_s)
        holder_begin(s, q, j->lease_s);
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
    // A cluster that has lost machines for good cannot run everything that was accepted, and the minimum of an elastic
    // job may have been accepted while a machine was known by two names.
    hopeless |= v->state == JOB_PENDING && l->sim->cleanups > 2 * PATIENCE && v->workers_max;
    for (uint32_t i = 0; i < l->sim->plan->machine_count; i++)
        hopeless |= v->state == JOB_PENDING && l->sim->cleanups > 2 * PATIENCE && l->sim->machines[i].gone;
    if (v->held)
        vec_push(&l->release, v->id);
    if (v->state == JOB_SUSPENDED)
        vec_push(&l->resume, v->id);
    if (hopeless)
        vec_push(&l->cancel, v->id);
    return true;
}

struct cancel_sent {
    struct sim *sim;
    uint64_t id;
};

static void cancel_committed(void *arg) {
    const struct cancel_sent *c = arg;
    map_put(&c->sim->cancelled, c->id, c->sim);
}

// Only a cancel that was committed is never sent again. A leader that steps down loses what it has not committed, and
// the job that has the number under the next leader may be another one.
static void cancel_left(struct sim *s, uint64_t id) {
    struct cancel_sent *c = arena_alloc(&s->arena, sizeof *c);
    *c = (struct cancel_sent){s, id};
    command(s, COMMAND_CANCEL, &(struct command_cancel){.id = id}, NULL);
    pipeline_when_committed(s->head->pipeline, cancel_committed, c);
}

static void clean_jobs(struct sim *s) {
    struct left l = {.sim = s};
    core_each_job(s->head->core, look, &l);
    for (uint32_t i = 0; i < l.release.len; i++)
        command(s, COMMAND_RELEASE, &(struct command_job){l.release.at[i]}, NULL);
    for (uint32_t i = 0; i < l.resume.len; i++)
        command(s, COMMAND_RESUME, &(struct command_job){l.resume.at[i]}, NULL);
    for (uint32_t i = 0; i < l.cancel.len; i++)
        cancel_left(s, l.cancel.at[i]);
    vec_done(&l.release);
    vec_done(&l.resume);
    vec_done(&l.cancel);
}

void client_setup(struct sim *s, bool generous) {
    struct partition small = {.name = "small", .nodes = s->machines[0].name};
    for (uint32_t i = 0; i < PROJECTS; i++)
        set_project(s, i, generous ? 100000000 : i ? 2000 : PROJECT_QUOTA_ALL, false, NULL);
    set_qos(s, 0, NULL);
    command(s, COMMAND_PARTITION_SET, &small, NULL);
    head_touched(s);
}

void client_cleanup(struct sim *s) {
    struct partition main_partition = {.name = "main", .is_default = true};
    s->cleanups++;
    if (!s->head->core)
        return;
    if (s->cleanups % 64 == 1) {
        client_setup(s, true);  // interactive work must fit into its quota
        command(s, COMMAND_PARTITION_SET, &main_partition, NULL);
        delete(s, ENTITY_RESERVATION, "hold", NULL);
    }
    for (uint32_t i = 0; i < s->plan->machine_count; i++)
        command(s, COMMAND_NODE_RESUME, &(struct command_node){s->machines[i].name}, NULL);
    clean_jobs(s);
    provider_cleanup(s);
    head_touched(s);
}
