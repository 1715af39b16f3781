// Owns the tables of nodes and of what an administrator sets up.
#include "model/node.h"

enum { FACTOR_MAX = 1000 };

const char *const node_state_words[] = {"up", "silent", "down", NULL};

static const struct field gpu_fields[] = {
    FIELD(1, struct gpu, uuid, "Unique id."),
    FIELD(2, struct gpu, model, "Model."),
    FIELD(3, struct gpu, memory_bytes, "Memory."),
    FIELD(4, struct gpu, pci, "PCI address."),
    FIELD(5, struct gpu, numa, "NUMA node."),
    FIELD(6, struct gpu, link_group, "Group joined by NVLink."),
    FIELD(7, struct gpu, simulated, "Declared in the configuration, not real."),
    FIELD(8, struct gpu, unhealthy, "Why it is out of use."),
    FIELD(9, struct gpu, minor_path, "Device node."),
};
const struct schema gpu_schema = SCHEMA(struct gpu, "a GPU", gpu_fields);

static const struct field node_fields[] = {
    FIELD(1, struct node, name, "Name."),
    FIELD(2, struct node, address, "Address it dialled in from."),
    FIELD(3, struct node, version, "Version of its agent."),
    FIELD(4, struct node, boot_id, "Changes with every start of the machine."),
    FIELD(5, struct node, spool_id, "Changes when the agent lost its spool."),
    FIELD(6, struct node, cpus, "CPUs."),
    FIELD(7, struct node, sockets, "Sockets."),
    FIELD(8, struct node, cores_per_socket, "Cores per socket."),
    FIELD(9, struct node, threads_per_core, "Threads per core."),
    FIELD(10, struct node, memory_bytes, "Memory."),
    FIELD_LIST_SUB(11, struct node, gpus, &gpu_schema, "GPUs."),
    FIELD_LIST(12, struct node, features, "Features."),
    FIELD(13, struct node, missing, "What cannot be enforced there."),
    FIELD(14, struct node, tmp_bytes, "Temporary disk space."),
    FIELD(15, struct node, os, "Operating system."),
    FIELD(16, struct node, arch, "Processor architecture."),
    FIELD(17, struct node, boot_ms, "When the machine was started."),
    FIELD(18, struct node, agent_start_ms, "When its agent was started."),
    FIELD(19, struct node, containers, "It can run jobs in containers."),
    FIELD(20, struct node, user, "It runs this user's jobs only; null: everybody's."),
    FIELD(21, struct node, until_ms, "When it goes by itself (ms since 1970); 0: it stays."),
};
const struct schema node_schema = SCHEMA(struct node, "a node", node_fields);

static const struct field project_fields[] = {
    FIELD(1, struct project, name, "Name."),
    FIELD(2, struct project, parent, "Parent in the tree."),
    FIELD(3, struct project, quota_milligpu, "Guaranteed GPUs, in thousandths."),
    FIELD(4, struct project, weight_milli,
          "Weight when idle GPUs are shared out, in thousandths; null: the quota.", .nullable = true),
    FIELD(5, struct project, has_weight,
          "A weight is set. May be left out: then it is, if weight_milli is given."),
    FIELD(6, struct project, limit_milligpu, "Most GPUs at any time, in thousandths; null: no limit.",
          .nullable = true),
    FIELD(7, struct project, has_limit,
          "A limit is set. May be left out: then it is, if limit_milligpu is given."),
    FIELD_LIST(8, struct project, members, "Users; none: everybody."),
    FIELD(9, struct project, nodes, "Nodes it may use; none: all."),
    FIELD(10, struct project, interactive_limit_s,
          "Longest interactive session; null: no limit, 0: none may run.", .nullable = true),
    FIELD_LIST(11, struct project, model_quotas, "Quotas by GPU model, e.g. V100=4."),
    FIELD(12, struct project, default_qos, "QoS of jobs that name none."),
    FIELD(13, struct project, shared_logs, "Members see each other's scripts and logs."),
    FIELD_LIST(15, struct project, leads, "Users who may act on its jobs and name its members."),
    FIELD(14, struct project, deleted_by,
          "Only in answers. It is being deleted, by this administrator: no job starts in it, and it is gone "
          "when its last "
          "job has ended. null: it is not."),
};
const struct schema entity_project_schema = SCHEMA_GIVEN(struct project, "a project", project_fields);

static const struct field partition_fields[] = {
    FIELD(1, struct partition, name, "Name."),
    FIELD(2, struct partition, nodes, "Nodes; none: all."),
    FIELD(3, struct partition, is_default, "Used when a job names none."),
    FIELD(4, struct partition, fifo, "Strict order of submission, no backfill."),
    FIELD(5, struct partition, down, "Starts no jobs."),
    FIELD(6, struct partition, default_time_s, "Time limit of jobs that name none; null: the longest.",
          .nullable = true),
    FIELD(7, struct partition, max_time_s, "Longest time limit; null: no limit, 0: no job may run.",
          .nullable = true),
    FIELD(8, struct partition, tier, "Higher tiers are served first."),
    FIELD(9, struct partition, default_memory_per_cpu_bytes,
          "Memory per CPU of jobs that name none; null: the cluster's setting.", .nullable = true),
    FIELD(10, struct partition, closed, "Takes no new jobs; those that wait go on."),
};
const struct schema entity_partition_schema = SCHEMA_GIVEN(struct partition, "a partition", partition_fields);

static const struct field qos_fields[] = {
    FIELD(1, struct qos, name, "Name."),
    FIELD(2, struct qos, priority, "Priority."),
    FIELD(3, struct qos, max_jobs_per_user, "Running jobs per user; null: no limit.", .nullable = true),
    FIELD(4, struct qos, max_gpus_per_user_milli, "GPUs per user, in thousandths; null: no limit.",
          .nullable = true),
    FIELD(5, struct qos, max_wall_s, "Longest time limit; null: no limit, 0: no job may run.",
          .nullable = true),
    FIELD_LIST(6, struct qos, preempts, "QoS whose jobs it may preempt."),
    FIELD(7, struct qos, usage_factor,
          "Weight of its use in fair sharing; null: one, 0: its use is not counted.", .nullable = true,
          .min = 0, .max = FACTOR_MAX),
    FIELD(8, struct qos, no_preempt, "Its jobs are never preempted."),
};
const struct schema entity_qos_schema = SCHEMA_GIVEN(struct qos, "a QoS", qos_fields);

static const struct field reservation_fields[] = {
    FIELD(1, struct reservation, name, "Name."),
    FIELD(2, struct reservation, nodes, "Nodes."),
    FIELD(3, struct reservation, start_ms, "Start (ms since 1970)."),
    FIELD(4, struct reservation, end_ms, "End (ms since 1970)."),
    FIELD_LIST(5, struct reservation, users, "Users who may use it."),
    FIELD_LIST(6, struct reservation, projects, "Projects that may use it."),
    FIELD(7, struct reservation, maintenance, "Nobody may use it."),
};
const struct schema entity_reservation_schema =
    SCHEMA(struct reservation, "a reservation", reservation_fields);

const char *const policy_order_words[] = {"fair", "fcfs", NULL};
const char *const policy_backfill_words[] = {"in_order", "shortest", "none", NULL};
const char *const policy_placement_words[] = {"fragment", "pack", "spread", "first", NULL};

#define S struct policy_settings
static const struct field policy_fields[] = {
    FIELD_WORDS(1, S, order, policy_order_words, "The order of pending jobs."),
    FIELD_WORDS(2, S, backfill, policy_backfill_words, "Who may pass a job that waits for resources."),
    FIELD_WORDS(3, S, placement, policy_placement_words, "Where a job goes."),
    FIELD(4, S, short_factor, "How many times its time limit is added to a job's queue time.", .min = 0,
          .max = FACTOR_MAX),
    FIELD(5, S, half_life_s, "Use this long ago counts half."),
    FIELD(6, S, use_s,
          "Added to the queue time of a user who used the whole cluster lately; in proportion for less."),
    FIELD(7, S, size_s, "Added to the queue time for each GPU; below 0: large jobs sooner."),
    FIELD(8, S, max_wait_s, "Whoever waited longer comes first among the same priority; 0: off."),
    FIELD(9, S, qos_step_s, "What a step of priority is worth; 0: priority comes before everything."),
    FIELD(10, S, nice_step_s, "What a step of nice is worth; 0: nice comes before everything."),
    FIELD(11, S, min_run_s, "No job is preempted before it ran this long."),
    FIELD(12, S, plan_depth, "Blocked jobs per partition that get a planned start."),
    FIELD(13, S, reclaim, "Projects under their share may take from those over it."),
    FIELD(14, S, interactive_in_quota, "Interactive work runs only inside the quota."),
};
const struct schema policy_schema = SCHEMA_GIVEN(S, "the policy", policy_fields);
#undef S

static const struct field license_fields[] = {
    FIELD(1, struct license, name, "Name."),
    FIELD(2, struct license, count, "Seats that running jobs can hold together; 0: jobs that ask for it wait."),
    FIELD(3, struct license, used, "Seats that running jobs hold (set by the controller)."),
};
const struct schema entity_license_schema = SCHEMA(struct license, "a license", license_fields);

const struct schema *entity_schema(enum entity_kind kind) {
    static const struct schema *const schemas[] = {&entity_project_schema, &entity_partition_schema,
                                                   &entity_qos_schema, &entity_reservation_schema,
                                                   &entity_license_schema};
    return schemas[kind];
}

const char *entity_word(enum entity_kind kind) {
    static const char *const words[] = {"project", "partition", "QoS", "reservation", "license"};
    return words[kind];
}

const char *entity_command(enum entity_kind kind) {
    return kind == ENTITY_QOS ? "qos" : entity_word(kind);
}

bool entity_has(enum entity_kind kind, const void *value, const void *member) {
    return schema_given(entity_schema(kind), value, member);
}

// A figure and the flag beside it that tells whether it holds, of which a request may give either.
static void agree(struct project *p, uint32_t *figure, bool *has) {
    bool flag_given = schema_given(&entity_project_schema, p, has);
    if (!flag_given)
        *has = schema_given(&entity_project_schema, p, figure);
    if (!*has)
        *figure = 0;
    schema_unmark(&entity_project_schema, p, figure);
    if (*has)
        schema_give(&entity_project_schema, p, figure);
}

void entity_normalize(enum entity_kind kind, void *value) {
    const struct schema *s = entity_schema(kind);
    if (kind == ENTITY_PROJECT) {
        struct project *p = value;
        agree(p, &p->weight_milli, &p->has_weight);
        agree(p, &p->limit_milligpu, &p->has_limit);
    }
    for (size_t i = 0; s->given_bits && i < s->count; i++)
        if (!s->fields[i].nullable)
            schema_unmark(s, value, (char *)value + s->fields[i].offset);
}

bool entity_has_zero_limit(enum entity_kind kind, const void *value) {
    const struct schema *s = entity_schema(kind);
    bool zero = false;
    for (size_t i = 0; s->given_bits && i < s->count; i++) {
        const struct field *f = &s->fields[i];
        bool flagged = kind == ENTITY_PROJECT && (f->offset == offsetof(struct project, limit_milligpu) ||
                                                  f->offset == offsetof(struct project, weight_milli));
        zero |= f->nullable && !flagged && schema_given_zero(s, f, value);
    }
    return zero;
}
