// Which requests are refused at submit: contradictions, amounts beyond a limit, and demands that no nodes could
// ever meet. The figures and limits of a request are checked here and nowhere else. A message says field,
// value and remedy; the field comes first, so that the command line can name its option instead.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/text.h"
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
        return error_set(err, EINVAL, "time limit: it is negative; give a duration");
    return 0;
}

// "2", "0.5"
static const char *gpus_text(uint64_t milli, char out[static 24]) {
    int len = snprintf(out, 24, "%" PRIu64 ".%03" PRIu64, milli / SCHED_GPU, milli % SCHED_GPU);
    while (out[len - 1] == '0')
        out[--len] = 0;
    if (out[len - 1] == '.')
        out[len - 1] = 0;
    return out;
}

// "4 h", "90 min", "45 s"
static const char *time_text(int64_t ms, char out[static 24]) {
    int64_t s = ms / 1000;
    if (s && s % 3600 == 0)
        snprintf(out, 24, "%" PRId64 " h", s / 3600);
    else if (s && s % 60 == 0)
        snprintf(out, 24, "%" PRId64 " min", s / 60);
    else
        snprintf(out, 24, "%" PRId64 " s", s);
    return out;
}

static int check_gpus(const struct sched_request *q, const struct world_request *r, struct error *err) {
    const uint32_t amounts[] = {q->gpu_milli_per_job, q->gpu_milli_per_node, q->gpu_milli_per_task};
    static const char *const fields[] = {"gpus", "gpus_per_node", "gpus_per_task"};
    unsigned given = 0;
    char a[24];
    for (unsigned i = 0; i < 3; i++) {
        given += amounts[i] > 0;
        if (amounts[i] > SCHED_GPU && amounts[i] % SCHED_GPU)
            return error_set(err, EINVAL,
                             "%s: %s is not possible, a fraction is part of one GPU; ask for a whole number or for "
                             "less than 1",
                             fields[i], gpus_text(amounts[i], a));
    }
    if (given > 1)
        return error_set(err, EINVAL, "gpus: give them for the job, per node or per task, not more than one of them");
    if (r->demand.gpu_uneven)
        return error_set(err, EINVAL, "gpus: %s cannot be divided evenly over %u nodes; give GPUs per node",
                         gpus_text(q->gpu_milli_per_job, a), r->demand.nodes_min);
    if (q->feature_count > SCHED_FEATURES_MAX)
        return error_set(err, ERANGE, "features: %u are too many; at most %d are allowed", q->feature_count,
                         SCHED_FEATURES_MAX);
    return 0;
}

static int check_names(const struct world *w, const struct sched_request *q, struct error *err) {
    if (q->project && !world_project(w, q->project))
        return error_set(err, EINVAL, "project: there is none with this id, see the list of projects");
    bool known = !q->partition || world_partition(w, q->partition);
    for (uint32_t i = 0; i < q->also_count; i++)
        known &= world_partition(w, q->also[i]) != NULL;
    if (!known)
        return error_set(err, EINVAL, "partition: there is none with this id, see the list of partitions");
    if (q->qos && !world_qos(w, q->qos))
        return error_set(err, EINVAL, "qos: there is none with this id, see the list of QoS");
    if (q->reservation && !world_reservation(w, q->reservation))
        return error_set(err, EINVAL, "reservation %s does not exist, see the list of reservations", q->reservation);
    return 0;
}

static int check_rules(const struct world *w, const struct sched_request *q, const struct world_request *r,
                       struct error *err) {
    char a[24], b[24];
    const struct world_partition *p = world_partition(w, q->partition);
    if (p && p->max_time_ms && q->time_limit_ms > p->max_time_ms)
        return error_set(err, EINVAL, "time limit: %s exceeds partition %s's limit of %s; ask for less",
                         time_text(q->time_limit_ms, a), p->name, time_text(p->max_time_ms, b));
    const struct world_qos *qos = world_qos(w, q->qos);
    if (qos && qos->max_time_ms && q->time_limit_ms > qos->max_time_ms)
        return error_set(err, EINVAL, "time limit: %s exceeds QoS %s's limit of %s; ask for less",
                         time_text(q->time_limit_ms, a), qos->name, time_text(qos->max_time_ms, b));
    if (qos && qos->max_gpu_milli_per_user && r->gpu_milli > qos->max_gpu_milli_per_user)
        return error_set(err, EINVAL, "gpus: %s exceed QoS %s's limit of %s for one user; ask for less",
                         gpus_text(r->gpu_milli, a), qos->name, gpus_text(qos->max_gpu_milli_per_user, b));
    if (qos && qos->max_cpus_per_user && sched_request_cpus(r) > qos->max_cpus_per_user)
        return error_set(err, EINVAL, "cpus: %u exceed QoS %s's limit of %u for one user; ask for less",
                         sched_request_cpus(r), qos->name, qos->max_cpus_per_user);
    for (const struct world_project *t = world_project(w, q->project); t; t = sched_project_parent(w, t)) {
        if (t->limit[DIM_GPU] >= 0 && (int64_t)r->gpu_milli > t->limit[DIM_GPU])
            return error_set(err, EINVAL, "gpus: %s exceed project %s's limit of %s; ask for less",
                             gpus_text(r->gpu_milli, a), t->name, gpus_text((uint64_t)t->limit[DIM_GPU], b));
        if (t->limit[DIM_CPU] >= 0 && (int64_t)sched_request_cpus(r) > t->limit[DIM_CPU])
            return error_set(err, EINVAL, "cpus: %u exceed project %s's limit of %" PRId64 "; ask for less",
                             sched_request_cpus(r), t->name, t->limit[DIM_CPU]);
    }
    return 0;
}

// The node as if it were up and idle, with nothing promised to anybody; `repaired`: its GPUs without faults too.
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

static uint32_t fit_tasks_repaired(const struct world_node *n, const struct sched_demand *d) {
    struct world_gpu gpus[SCHED_GPUS_MAX];
    struct world_node c = idle_copy(n, gpus, true);
    return sched_fit_tasks(&c, d);
}

static void size_text(uint64_t bytes, char *out, size_t size) {
    if (bytes >= 1ULL << 30)
        snprintf(out, size, "%.1f GiB", (double)bytes / (1ULL << 30));
    else
        snprintf(out, size, "%.1f MiB", (double)bytes / (1ULL << 20));
}

struct node_census {
    uint32_t nodes, allowed, fitting;
    uint64_t tasks;
    uint32_t cpus_max, gpus_max;
    uint64_t memory_max, gpu_memory_max;
};

// What there is, down or up, with a fault or without: work for it is taken and waits until it is back.
static struct node_census census(const struct world *w, const struct world_request *r) {
    struct node_census c = {0};
    for (uint32_t i = 0; i < w->cluster.nodes.len; i++) {
        const struct world_node *n = world_node(w, i);
        if (!n)
            continue;
        c.nodes++;
        if (!sched_request_node_allowed(w, r, n))
            continue;
        c.allowed++;
        uint32_t gpus = 0;
        for (uint32_t g = 0; g < n->gpu_count; g++)
            if (!r->demand.models || (r->demand.models >> n->gpus[g].model & 1)) {
                gpus++;
                if (n->gpus[g].memory_bytes > c.gpu_memory_max)
                    c.gpu_memory_max = n->gpus[g].memory_bytes;
            }
        c.cpus_max = n->cpus > c.cpus_max ? n->cpus : c.cpus_max;
        c.memory_max = n->memory > c.memory_max ? n->memory : c.memory_max;
        c.gpus_max = gpus > c.gpus_max ? gpus : c.gpus_max;
        uint32_t k = fit_tasks_repaired(n, &r->demand);
        c.fitting += k > 0;
        c.tasks += k;
    }
    return c;
}

static int nothing_fits(const struct world_request *r, const struct node_census *c, struct error *err) {
    const struct sched_demand *d = &r->demand;
    uint32_t k = d->even ? d->node_tasks : 1;
    uint64_t cpus = (uint64_t)d->cpus_task * k, memory = d->memory_node + d->memory_task * k;
    uint32_t gpus = d->gpu_by_memory ? k : d->gpu_node ? (d->gpu_node + 999) / 1000 : (d->gpu_task + 999) / 1000 * k;
    char a[32], b[32];
    if (cpus > c->cpus_max)
        return error_set(err, ERANGE,
                         "cpus %" PRIu64 " on one node: the largest that may be used has %u, ask for "
                         "less or more nodes",
                         cpus, c->cpus_max);
    if (memory > c->memory_max) {
        size_text(memory, a, sizeof a);
        size_text(c->memory_max, b, sizeof b);
        return error_set(err, ERANGE, "memory %s on one node: the largest that may be used has %s, ask for less", a,
                         b);
    }
    if (d->gpu_memory > c->gpu_memory_max && gpus) {
        size_text(d->gpu_memory, a, sizeof a);
        size_text(c->gpu_memory_max, b, sizeof b);
        return error_set(err, ERANGE, "GPU memory %s: the largest GPU that may be used has %s, ask for less", a, b);
    }
    if (gpus && !c->gpus_max)
        return error_set(err, ERANGE,
                         "gpus: none of the %u nodes that may be used has a GPU%s%s; see 'acequia nodes'", c->allowed,
                         r->asked.gpu_model ? " of model " : "", r->asked.gpu_model ? r->asked.gpu_model : "");
    if (gpus > c->gpus_max)
        return error_set(err, ERANGE,
                         "gpus %u on one node: the largest that may be used has %u%s%s, ask for less "
                         "or more nodes",
                         gpus, c->gpus_max, r->asked.gpu_model ? " of model " : "",
                         r->asked.gpu_model ? r->asked.gpu_model : "");
    return error_set(err, ERANGE,
                     "cpus, memory and GPUs together fit on none of the %u nodes that may be used: ask "
                     "for less per node%s",
                     c->allowed, d->same_group ? " or drop the same-group wish" : "");
}

static int check_nodes(const struct world *w, const struct world_request *r, struct error *err) {
    const struct sched_request *q = &r->asked;
    struct node_census c = census(w, r);
    if (!c.nodes)
        return 0;  // an empty cluster may still grow
    if (r->demand.model_unknown)
        return error_set(err, ERANGE, "GPU model %s: no node has it, see the list of nodes for the models there are",
                         q->gpu_model);
    if (!c.allowed)
        return error_set(err, ERANGE,
                         "%s: none of the %u nodes has all of what is required, ask for fewer "
                         "features or another partition",
                         q->feature_count      ? "features"
                         : q->nodes_only_count ? "node list"
                                               : "partition and project",
                         c.nodes);
    if (!c.fitting)
        return nothing_fits(r, &c, err);
    if (c.fitting < r->demand.nodes_min)
        return error_set(err, ERANGE,
                         "nodes %u: only %u of the nodes can fit a part of this job, ask for fewer nodes",
                         r->demand.nodes_min, c.fitting);
    if (c.tasks < r->demand.tasks)
        return error_set(err, ERANGE, "tasks %u: all nodes together can hold %" PRIu64 " of this size, ask for fewer",
                         r->demand.tasks, c.tasks);
    return 0;
}

static int check_partition(const struct world *w, const struct world_request *r, struct error *err) {
    int code = check_rules(w, &r->asked, r, err);
    return code ? code : check_nodes(w, r, err);
}

// One of several is enough; if none does, what stands against the first is told.
static int check_partitions(const struct world *w, const struct world_request *r, struct error *err) {
    if (!r->options.len)
        return check_partition(w, r, err);
    for (uint32_t i = 0; i < r->options.len; i++)
        if (!check_partition(w, r->options.at[i], NULL))
            return 0;
    struct error first = {0};
    int code = check_partition(w, r->options.at[0], &first);
    const struct world_partition *p = world_partition(w, r->options.at[0]->asked.partition);
    return error_set(err, -code, "%s (in partition %s; none of the others it names can ever run this either)",
                     first.text, p ? p->name : "(none)");
}

int world_check_request(struct world *w, const struct sched_request *asked, struct error *err) {
    int r = check_numbers(asked, err);
    if (r || (r = check_names(w, asked, err)))
        return r;
    const struct world_request *q = world_request(w, asked);
    if (!(r = check_gpus(asked, q, err)))
        r = check_partitions(w, q, err);
    world_request_unref(w, q);
    return r;
}
