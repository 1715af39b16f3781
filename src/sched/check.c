// Which requests are refused at submit: contradictions, amounts beyond a limit or quota, deadlines that cannot be
// met, and demands that no nodes could ever meet. The figures and limits of a request are checked here and nowhere
// else. A message says field, value and remedy; the field comes first, so that the command line can name its
// option instead.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "amount_text.h"
#include "base/text.h"
#include "uneven.h"
#include "world_state.h"

static int check_most(const char *field, uint32_t value, uint32_t most, struct error *err) {
    return value <= most ? 0 : error_set(err, ERANGE, "%s: %u is too large; at most %u is allowed", field, value, most);
}

static int check_numbers(const struct sched_request *q, struct error *err) {
    int r;
    if ((r = check_most("nodes", q->nodes_min, SCHED_NODES_MAX - 1, err)) < 0 ||
        (r = check_most("nodes", q->nodes_max, SCHED_NODES_MAX - 1, err)) < 0 ||
        (r = check_most("tasks", q->tasks, SCHED_TASKS_MAX, err)) < 0 ||
        (r = check_most("tasks_per_node", q->tasks_per_node, SCHED_TASKS_MAX, err)) < 0 ||
        (r = check_most("cpus_per_task", q->cpus_per_task, SCHED_CPUS_PER_TASK_MAX, err)) < 0)
        return r;
    if (q->nodes_max && q->nodes_max < q->nodes_min)
        return error_set(err, EINVAL, "nodes: at least %u and at most %u contradict each other; swap them",
                         q->nodes_min, q->nodes_max);
    if (q->tasks && q->tasks_per_node && q->nodes_max && (uint64_t)q->tasks_per_node * q->nodes_max < q->tasks)
        return error_set(err, EINVAL, "tasks: %u do not fit on %u nodes with %u tasks each; ask for more nodes",
                         q->tasks, q->nodes_max, q->tasks_per_node);
    if (!!q->memory_per_node_bytes + !!q->memory_per_cpu_bytes + !!q->memory_per_gpu_bytes > 1)
        return error_set(err, EINVAL, "memory: give it per node, per CPU or per GPU, not more than one of them");
    if (q->time_limit_ms < 0 || q->min_runtime_ms < 0)
        return error_set(err, EINVAL, "time_limit_s: it is negative; give a duration");
    return 0;
}

static int check_gpus(const struct sched_request *q, const struct world_request *r, struct error *err) {
    const uint32_t amounts[] = {q->gpu_milli_per_job, q->gpu_milli_per_node, q->gpu_milli_per_task};
    static const char *const fields[] = {"gpus", "gpus_per_node", "gpus_per_task"};
    unsigned given = 0;
    char a[AMOUNT_TEXT_MAX];
    for (unsigned i = 0; i < 3; i++) {
        given += amounts[i] > 0;
        if (amounts[i] > SCHED_GPU && amounts[i] % SCHED_GPU)
            return error_set(err, EINVAL,
                             "%s: %s is not possible, a fraction is part of one GPU; ask for a whole number or for "
                             "less than 1",
                             fields[i], sched_gpu_number_text(amounts[i], a));
    }
    if (given > 1)
        return error_set(err, EINVAL, "gpus: give them for the job, per node or per task, not more than one of them");
    if (r->demand.gpu_uneven)
        return error_set(err, EINVAL,
                         "gpus: %s cannot be divided over %u nodes, each of which needs at least one; ask for more, or "
                         "for fewer nodes",
                         sched_gpu_number_text(q->gpu_milli_per_job, a), r->demand.nodes_min);
    if (q->feature_count > SCHED_FEATURES_MAX)
        return error_set(err, ERANGE, "features: %u are too many; at most %d are allowed", q->feature_count,
                         SCHED_FEATURES_MAX);
    return 0;
}

static int check_names(const struct world *w, const struct sched_request *q, struct error *err) {
    if (q->project && !world_project(w, q->project))
        return error_set(err, EINVAL, "project: there is none with this id; see 'acequia project list'");
    bool known = !q->partition || world_partition(w, q->partition);
    for (uint32_t i = 0; i < q->also_count; i++)
        known &= world_partition(w, q->also[i]) != NULL;
    if (!known)
        return error_set(err, EINVAL, "partition: there is none with this id; see 'acequia partition list'");
    if (q->qos && !world_qos(w, q->qos))
        return error_set(err, EINVAL, "qos: there is none with this id; see 'acequia qos list'");
    if (q->reservation && !world_reservation(w, q->reservation))
        return error_set(err, EINVAL, "reservation: %s does not exist; see 'acequia reservation list'", q->reservation);
    return 0;
}

#define UNLIMITED_MS (INT64_C(100) * 365 * 86400 * 1000)  // the time limit that stands for "unlimited"

static const char *limit_text(int64_t ms, char out[static AMOUNT_TEXT_MAX]) {
    return ms >= UNLIMITED_MS ? "unlimited" : sched_duration_text(ms, out);
}

static int check_time(const struct sched_request *q, const char *kind, const char *name, int64_t max_ms,
                      struct error *err) {
    char a[AMOUNT_TEXT_MAX], b[AMOUNT_TEXT_MAX];
    if (max_ms == 0)
        return error_set(err, EINVAL, "%s: %s allows no jobs (its max_time is 0); name another",
                         kind[0] == 'Q' ? "qos" : kind, name);
    if (max_ms < 0 || q->time_limit_ms <= max_ms)
        return 0;
    return error_set(err, EINVAL, "time_limit_s: %s exceeds %s %s's limit of %s; ask for less",
                     limit_text(q->time_limit_ms, a), kind, name, sched_duration_text(max_ms, b));
}

static int check_rules(const struct world *w, const struct sched_request *q, const struct world_request *r,
                       struct error *err) {
    char a[AMOUNT_TEXT_MAX], b[AMOUNT_TEXT_MAX];
    const struct world_partition *p = world_partition(w, q->partition);
    const struct world_qos *qos = world_qos(w, q->qos);
    int e = p ? check_time(q, "partition", p->name, p->max_time_ms, err) : 0;
    if (!e && qos)
        e = check_time(q, "QoS", qos->name, qos->max_time_ms, err);
    if (e)
        return e;
    const struct world_project *own = world_project(w, q->project);
    if (q->class == SCHED_INTERACTIVE && own && own->interactive_limit_ms == 0)
        return error_set(
            err, EINVAL,
            "project: %s allows no interactive jobs (its interactive_time is 0); submit a batch job, or "
            "name another project",
            own->name);
    if (qos && qos->max_gpu_milli_per_user >= 0 && r->gpu_milli > (uint64_t)qos->max_gpu_milli_per_user)
        return error_set(err, EINVAL, "gpus: %s exceed QoS %s's limit of %s for one user; ask for less",
                         sched_gpu_number_text((int64_t)r->gpu_milli, a), qos->name,
                         sched_gpu_number_text(qos->max_gpu_milli_per_user, b));
    if (qos && qos->max_cpus_per_user >= 0 && sched_request_cpus(r) > qos->max_cpus_per_user)
        return error_set(err, EINVAL,
                         "cpus: %u exceed QoS %s's limit of %" PRId64 " for one user; ask for less",
                         sched_request_cpus(r), qos->name, qos->max_cpus_per_user);
    // A limit holds for everything below a project, so each ancestor may be the one that is too small.
    for (const struct world_project *t = world_project(w, q->project); t; t = sched_project_parent(w, t)) {
        if (t->limit[DIM_GPU] >= 0 && (int64_t)r->gpu_milli > t->limit[DIM_GPU])
            return error_set(err, EINVAL, "gpus: %s exceed project %s's limit of %s; ask for less",
                             sched_gpu_number_text((int64_t)r->gpu_milli, a), t->name,
                             sched_gpu_number_text(t->limit[DIM_GPU], b));
        if (t->limit[DIM_CPU] >= 0 && (int64_t)sched_request_cpus(r) > t->limit[DIM_CPU])
            return error_set(err, EINVAL, "cpus: %u exceed project %s's limit of %" PRId64 "; ask for less",
                             sched_request_cpus(r), t->name, t->limit[DIM_CPU]);
    }
    return 0;
}

// A job that may run only within its project's quota and is larger than it would wait for ever
// (eligibility.c). A quota that is the rest of the cluster may grow, so it refuses nothing.
static int check_quota(const struct world *w, const struct world_request *r, const struct policy *policy,
                       struct error *err) {
    const struct world_project *p = world_project(w, r->asked.project);
    bool fixed = policy->interactive_within_quota && !sched_request_preemptible(w, r);
    if (!p || !p->id || p->quota_rest || (!fixed && p->weight != 0))
        return 0;
    for (unsigned d = 0; d < w->cluster.dims; d++) {
        char a[AMOUNT_TEXT_MAX], b[AMOUNT_TEXT_MAX];
        int64_t amount = sched_request_amount(w, r, d), scale = d == DIM_CPU ? SCHED_GPU : 1;
        if ((d != sched_request_dim(w, r) && d != DIM_GPU) || p->quota[d] == SCHED_UNLIMITED || amount <= p->quota[d])
            continue;
        return error_set(err, EINVAL, "%s: %s exceed project %s's quota of %s; %s. Ask for less%s",
                         d == DIM_CPU ? "cpus" : "gpus", sched_gpu_number_text(amount * scale, a), p->name,
                         sched_gpu_number_text(p->quota[d] * scale, b),
                         fixed ? "a job that cannot be preempted (interactive, attached, not to be requeued) runs only "
                                 "within the quota"
                               : "the project's weight is 0, so its jobs run only within the quota",
                         fixed ? ", or submit a batch job that may be requeued" : "");
    }
    return 0;
}

// Without a time limit the job may run until its deadline, whenever it starts.
static int check_deadline(const struct world *w, const struct world_request *r, int64_t start_ms, struct error *err) {
    char a[AMOUNT_TEXT_MAX], b[AMOUNT_TEXT_MAX];
    int64_t left_ms = r->asked.deadline_ms - start_ms, limit_ms = sched_request_limit_ms(w, r);
    if (!r->asked.deadline_ms || (left_ms > 0 && (limit_ms == INT64_MAX || limit_ms <= left_ms)))
        return 0;
    if (left_ms <= 0)
        return error_set(err, ERANGE, "deadline: it passes before the job could start; give a later one");
    return error_set(err, ERANGE,
                     "deadline: it is only %s after the earliest start, and the job's time limit is %s; give a later "
                     "deadline or a shorter time limit",
                     sched_duration_text(left_ms, b), sched_duration_text(limit_ms, a));
}

// The node as if it were up and idle; `repaired`: also as if its faulty GPUs were usable.
static struct world_node idle_copy(const struct world_node *n, struct world_gpu gpus[SCHED_GPUS_MAX], bool repaired) {
    struct world_node c = *n;
    c.state = SCHED_NODE_UP;
    c.exclusive = c.cpus_held = 0;
    c.memory_held = c.memory_withheld = 0;
    c.cpus_withheld = 0;
    c.gpus = gpus;
    for (uint32_t i = 0; i < n->gpu_count; i++) {
        gpus[i] = n->gpus[i];
        gpus[i].held_milli = gpus[i].withheld_milli = 0;
        gpus[i].usable |= repaired;
    }
    c.gpu_usable = repaired ? c.gpu_count : c.gpu_usable;
    sched_node_refresh(&c);
    return c;
}

uint32_t sched_fit_tasks_idle(const struct world_node *n, const struct sched_demand *d) {
    struct world_gpu gpus[SCHED_GPUS_MAX];
    struct world_node c = idle_copy(n, gpus, false);
    return sched_fit_tasks(&c, d);
}

// Tasks that would fit on the repaired node, and of a job with gpu_total the GPUs that it could have there.
static uint32_t fit_tasks_repaired(const struct world_node *n, const struct sched_demand *d, uint32_t *gpu_count) {
    struct world_gpu gpus[SCHED_GPUS_MAX];
    struct world_node c = idle_copy(n, gpus, true);
    uint32_t tasks = sched_fit_tasks(&c, d);
    *gpu_count = d->gpu_total && tasks ? sched_fit_gpus(&c, d) : 0;
    return tasks;
}

bool sched_fits_together_when_idle(const struct world *w, const struct sched_fit *f) {
    VEC(struct placement_candidate) found = {0};
    for (uint32_t i = 0; i < f->nodes_len; i++) {
        const struct world_node *n = f->allowed[i] ? w->cluster.nodes.at[i] : NULL;
        struct world_gpu gpus[SCHED_GPUS_MAX];
        if (!n || n->state != SCHED_NODE_UP)
            continue;
        struct world_node c = idle_copy(n, gpus, false);
        uint32_t tasks = sched_fit_tasks(&c, &f->demand);
        if (tasks)
            vec_push(&found, (struct placement_candidate){i, tasks, 0, sched_fit_gpus(&c, &f->demand)});
    }
    bool fits = sched_nodes_enough(&f->demand, found.at, found.len);
    vec_done(&found);
    return fits;
}

struct node_census {
    uint32_t nodes, allowed, fitting;
    uint64_t tasks;
    uint32_t cpus_max, gpus_max;
    uint64_t memory_max, gpu_memory_max;
    bool together;  // the nodes it may have are enough
};

struct found_nodes {
    struct placement_candidate *at;
    uint32_t len, cap;
};

static void count_node(const struct world *w, const struct world_request *r, const struct world_node *n,
                       uint32_t count, struct node_census *c, struct found_nodes *found) {
    c->nodes += count;
    if (!count || !sched_request_node_allowed(w, r, n))
        return;
    c->allowed += count;
    uint32_t gpus = 0;
    for (uint32_t g = 0; g < n->gpu_count; g++)
        if (!r->demand.models || (r->demand.models >> n->gpus[g].model & 1)) {
            gpus++;
            if (n->gpus[g].memory_bytes > c->gpu_memory_max)
                c->gpu_memory_max = n->gpus[g].memory_bytes;
        }
    c->cpus_max = n->cpus > c->cpus_max ? n->cpus : c->cpus_max;
    c->memory_max = n->memory > c->memory_max ? n->memory : c->memory_max;
    c->gpus_max = gpus > c->gpus_max ? gpus : c->gpus_max;
    uint32_t there, k = fit_tasks_repaired(n, &r->demand, &there);
    c->fitting += k > 0 ? count : 0;
    c->tasks += (uint64_t)k * count;
    for (uint32_t i = 0; k && i < count; i++)
        vec_push(found, (struct placement_candidate){n->id, k, 0, there});
}

// Counts nodes and GPUs that are down or faulty as well, and nodes that could be had: jobs for them are accepted and
// wait until they are there.
static struct node_census census(const struct world *w, const struct world_request *r) {
    struct node_census c = {0};
    struct found_nodes found = {0};
    for (uint32_t i = 0; i < w->cluster.nodes.len; i++)
        if (world_node(w, i))
            count_node(w, r, world_node(w, i), 1, &c, &found);
    for (uint32_t i = 0; i < w->cluster.potential_count; i++)
        count_node(w, r, &w->cluster.potential[i].node, w->cluster.potential[i].count, &c, &found);
    c.together = (r->demand.even && !r->demand.gpu_total) || sched_nodes_enough(&r->demand, found.at, found.len);
    vec_done(&found);
    return c;
}

static int nothing_fits(const struct world_request *r, const struct node_census *c, struct error *err) {
    const struct sched_demand *d = &r->demand;
    // What one node must have at the least: its even part, or one task.
    uint32_t k = d->even ? d->node_tasks : 1;
    uint64_t cpus = (uint64_t)d->cpus_task * k, memory = d->memory_node + d->memory_task * k;
    uint32_t gpus = d->gpu_by_memory ? k : d->gpu_node ? (d->gpu_node + 999) / 1000 : (d->gpu_task + 999) / 1000 * k;
    char a[AMOUNT_TEXT_MAX], b[AMOUNT_TEXT_MAX];
    const char *of = r->asked.gpu_model ? " of model " : "", *model = r->asked.gpu_model ? r->asked.gpu_model : "";
    if (cpus > c->cpus_max)
        return error_set(err, ERANGE,
                         "cpus: %" PRIu64 " on one node, but the largest node it may use has %u; ask for fewer, or for "
                         "more nodes",
                         cpus, c->cpus_max);
    if (d->gpu_memory > c->gpu_memory_max && gpus)
        return error_set(err, ERANGE, "gpu_memory: %s, but the largest GPU it may use has %s; ask for less",
                         sched_size_text(d->gpu_memory, a), sched_size_text(c->gpu_memory_max, b));
    if (gpus && !c->gpus_max)
        return c->allowed == 1
                   ? error_set(err, ERANGE,
                               "gpus: the only node it may use has no GPU%s%s; see 'acequia nodes'", of,
                               model)
                   : error_set(err, ERANGE,
                               "gpus: none of the %u nodes it may use has a GPU%s%s; see 'acequia nodes'",
                               c->allowed, of, model);
    if (gpus > c->gpus_max)
        return error_set(err, ERANGE,
                         "gpus: %u on one node, but the largest node it may use has %u%s%s; ask for fewer, or for more "
                         "nodes",
                         gpus, c->gpus_max, of, model);
    if (memory > c->memory_max)
        return error_set(err, ERANGE, "memory: %s on one node, but the largest node it may use has %s; ask for less",
                         sched_size_text(memory, a), sched_size_text(c->memory_max, b));
    return error_set(err, ERANGE,
                     "none of the %u nodes it may use has the CPUs, memory and GPUs together; ask for less per node%s",
                     c->allowed, d->same_group ? ", or allow GPUs of different groups" : "");
}

static int no_node_allowed(const struct world *w, const struct sched_request *q, struct error *err) {
    const struct world_partition *p = world_partition(w, q->partition);
    bool empty = p && !q->also_count;
    for (uint32_t i = 0; empty && i < w->cluster.nodes.len; i++)
        empty = !world_node(w, i) || !sched_partition_has(p, i);
    for (uint32_t i = 0; empty && i < w->cluster.potential_count; i++)
        empty = !(w->cluster.potential[i].node.partitions[p->id / 64] >> (p->id % 64) & 1);
    if (empty)
        return error_set(err, ERANGE,
                         "partition: none of the nodes of partition %s exists yet; choose another one, see 'acequia "
                         "partition list'",
                         p->name);
    uint32_t others = 0, all = 0;
    for (uint32_t i = 0; i < w->cluster.nodes.len; i++) {
        const struct world_node *n = world_node(w, i);
        all += n != NULL;
        others += n && n->user && n->user != q->user;
    }
    if (others && others == all)
        return error_set(err, ERANGE,
                         "user: the nodes there are run the jobs of other users only, because their agents run as "
                         "these users; see 'acequia nodes'");
    if (q->feature_count)
        return error_set(err, ERANGE,
                         "features: no node that it may use has them; ask for others, see 'acequia nodes'");
    if (q->nodes_only_count)
        return error_set(err, ERANGE,
                         "node list: its partition and project may use none of these nodes; choose others, or another "
                         "partition");
    return error_set(err, ERANGE, "project: it may use no node of this partition; choose another partition or project");
}

static int check_nodes(const struct world *w, const struct world_request *r, struct error *err) {
    const struct sched_request *q = &r->asked;
    struct node_census c = census(w, r);
    if (!c.nodes)
        return 0;  // an empty cluster may still grow
    if (r->demand.model_unknown)
        return error_set(err, ERANGE,
                         "gpu_model: no node has a GPU of model \"%s\"; see 'acequia nodes' for the models there are",
                         q->gpu_model);
    if (!c.allowed)
        return no_node_allowed(w, q, err);
    if (!c.fitting)
        return nothing_fits(r, &c, err);
    if (c.fitting < r->demand.nodes_min)
        return error_set(err, ERANGE,
                         "nodes: %u, but only %u %s large enough for a part of this job; ask for fewer nodes",
                         r->demand.nodes_min, c.fitting, c.fitting == 1 ? "node is" : "nodes are");
    if (c.tasks < r->demand.tasks)
        return error_set(err, ERANGE,
                         "tasks: %u, but all nodes together can run %" PRIu64 " of this size; ask for fewer",
                         r->demand.tasks, c.tasks);
    char a[AMOUNT_TEXT_MAX];
    if (!c.together && r->demand.gpu_total)
        return error_set(err, ERANGE,
                         "gpus: %s, but no %u of the nodes it may use have as many together; ask for fewer, or for "
                         "more nodes",
                         sched_gpu_number_text(r->demand.gpu_total, a), r->demand.nodes_max);
    if (!c.together)
        return error_set(err, ERANGE,
                         "tasks: %u, but no %u of the nodes it may use can run as many together; ask for fewer, or for "
                         "more nodes",
                         r->demand.tasks, r->demand.nodes_max);
    return 0;
}

static int check_partition(const struct world *w, const struct world_request *r, int64_t start_ms, struct error *err) {
    int code;
    if ((code = check_rules(w, &r->asked, r, err)) || (code = check_deadline(w, r, start_ms, err)))
        return code;
    return check_nodes(w, r, err);
}

// One of several partitions is enough; if none will do, the message is that of the first.
static int check_partitions(const struct world *w, const struct world_request *r, int64_t start_ms, struct error *err) {
    if (!r->options.len)
        return check_partition(w, r, start_ms, err);
    for (uint32_t i = 0; i < r->options.len; i++)
        if (!check_partition(w, r->options.at[i], start_ms, NULL))
            return 0;
    struct error first = {0};
    int code = check_partition(w, r->options.at[0], start_ms, &first);
    const struct world_partition *p = world_partition(w, r->options.at[0]->asked.partition);
    return error_set(err, -code, "%s (in partition %s; the other partitions it names cannot run it either)",
                     first.text, p ? p->name : "(none)");
}

// The parts together need more than all nodes have that one of them may use. Whether they fit side by side is not
// known before they do.
static int check_parts_sum(const struct world *w, const struct world_request *r, struct error *err) {
    uint64_t cpus = 0, milli = 0;
    for (uint32_t i = 0; i < w->cluster.nodes.len; i++) {
        const struct world_node *n = world_node(w, i);
        bool allowed = n && sched_request_node_allowed(w, r, n);
        for (uint32_t k = 0; n && k < r->parts.len && !allowed; k++)
            allowed = sched_request_node_allowed(w, r->parts.at[k], n);
        cpus += allowed ? n->cpus : 0;
        milli += allowed ? (uint64_t)n->gpu_count * SCHED_GPU : 0;
    }
    for (uint32_t i = 0; i < w->cluster.potential_count; i++) {
        const struct world_potential *p = &w->cluster.potential[i];
        cpus += (uint64_t)p->node.cpus * p->count;
        milli += (uint64_t)p->node.gpu_count * SCHED_GPU * p->count;
    }
    char a[AMOUNT_TEXT_MAX], b[AMOUNT_TEXT_MAX];
    if (cpus && sched_request_cpus(r) > cpus)
        return error_set(err, ERANGE,
                         "components: together they need %u CPUs, but the nodes have %" PRIu64
                         "; ask for less",
                         sched_request_cpus(r), cpus);
    if (cpus && r->gpu_milli > milli)
        return error_set(err, ERANGE,
                         "components: together they need %s, but the nodes have %s; ask for less",
                         sched_gpus_text((int64_t)r->gpu_milli, a), sched_gpu_number_text((int64_t)milli, b));
    return 0;
}

static int check_parts(const struct world *w, const struct world_request *r, int64_t start_ms,
                       struct error *err) {
    for (uint32_t i = 0; i < r->parts.len; i++) {
        const struct world_request *part = r->parts.at[i];
        struct error why = {0};
        int code = check_names(w, &part->asked, &why);
        if (!code)
            code = check_gpus(&part->asked, part, &why);
        if (!code)
            code = check_partition(w, part, start_ms, &why);
        if (code)
            return error_set(err, -code, "component %u: %s", i + 1, why.text);
    }
    return r->parts.len ? check_parts_sum(w, r, err) : 0;
}

int world_check_request(struct world *w, const struct sched_request *asked, int64_t start_ms,
                        const struct policy *policy, struct error *err) {
    if (asked->part_count > SCHED_PARTS_MAX)
        return error_set(err, ERANGE, "components: %u are too many; at most %d are allowed",
                         asked->part_count + 1, SCHED_PARTS_MAX + 1);
    if (asked->part_count && (asked->also_count || asked->optional))
        return error_set(err, EINVAL, "components: each of several components can name only one partition");
    int r = check_numbers(asked, err);
    for (uint32_t i = 0; i < asked->part_count && !r; i++)
        r = check_numbers(&asked->parts[i], err);
    if (r || (r = check_names(w, asked, err)))
        return r;
    const struct world_request *q = world_request(w, asked);
    if (!(r = check_gpus(asked, q, err)) && !(r = check_quota(w, q, policy, err)) &&
        !(r = check_partitions(w, q, start_ms, err)))
        r = check_parts(w, q, start_ms, err);
    world_request_unref(w, q);
    return r;
}
