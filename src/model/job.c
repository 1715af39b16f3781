// Owns the words and tables of jobs.
#include "model/job.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/text.h"

const char *const job_state_words[] = {
    "PENDING", "STARTING",  "RUNNING", "SUSPENDED",     "COMPLETING", "COMPLETED", "FAILED",
    "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL",  "PREEMPTED", "DEADLINE", NULL};
static_assert(sizeof job_state_words / sizeof *job_state_words == JOB_STATE_COUNT + 1, "a word per state");

const char *job_state_short(enum job_state s) {
    static const char *const words[] = {"PD", "CF", "R", "S", "CG", "CD", "F", "CA", "TO", "OOM", "NF", "PR", "DL"};
    static_assert(sizeof words / sizeof *words == JOB_STATE_COUNT, "a word per state");
    assert(s < JOB_STATE_COUNT);
    return words[s];
}

bool job_state_final(enum job_state s) {
    return s >= JOB_COMPLETED;
}

bool job_state_holds_resources(enum job_state s) {
    return s >= JOB_STARTING && s <= JOB_COMPLETING;
}

const char *const job_reason_words[] = {
    "None",        "Priority",       "Resources",     "Dependency",        "DependencyNeverSatisfied",
    "BeginTime",   "JobHeldUser",    "JobHeldAdmin",  "JobArrayTaskLimit", "ProjectLimit",
    "QOSLimit",    "PartitionLimit", "Reservation",   "ReqNodeNotAvail",   "FairShare",
    "ProjectGone", "QOSGone",        "PartitionDown", "ReservationGone",   "ScriptLost",
    "Licenses",    NULL};
static_assert(sizeof job_reason_words / sizeof *job_reason_words == REASON_COUNT + 1, "a word per reason");

const char *const job_class_words[] = {"train", "interactive", NULL};
const char *const job_launch_kind_words[] = {"batch", "tasks", "steps", NULL};
const char *const job_network_words[] = {"auto", "own", "node", NULL};
static_assert(sizeof job_network_words / sizeof *job_network_words == NETWORK_COUNT + 1, "a word each");
const char *const job_pull_words[] = {"usual", "always", "missing", "never", NULL};
static_assert(sizeof job_pull_words / sizeof *job_pull_words == PULL_COUNT + 1, "a word each");
const char *const job_worker_end_words[] = {"fail", "restart", "continue", NULL};
static_assert(sizeof job_worker_end_words / sizeof *job_worker_end_words == WORKER_END_COUNT + 1,
              "a word each");
const char *const job_worker_state_words[] = {"waiting", "starting", "running", "leaving", "left", NULL};
static_assert(sizeof job_worker_state_words / sizeof *job_worker_state_words == WORKER_STATE_COUNT + 1,
              "a word per state");

static const struct field array_range_fields[] = {
    FIELD(1, struct array_range, first, "First index."),
    FIELD(2, struct array_range, last, "Last index."),
    FIELD(3, struct array_range, step, "Distance between indices."),
};
const struct schema array_range_schema = SCHEMA(struct array_range, "an array range", array_range_fields);

#define S struct job_component
static const struct field component_fields[] = {
    FIELD(1, S, name, "Name of the component; the job ends with the component \"head\", if it has one."),
    FIELD(2, S, workers_min, "Workers of it that start with the job."),
    FIELD(3, S, workers_max, "Most workers of it; those beyond the minimum are optional."),
    FIELD(4, S, nodes_min, "Fewest nodes of each worker."),
    FIELD(5, S, nodes_max, "Most nodes of each worker; 0: as nodes_min."),
    FIELD(6, S, tasks, "Tasks of each worker."),
    FIELD(7, S, tasks_per_node, "Tasks on each node."),
    FIELD(8, S, cpus_per_task, "CPUs for each task."),
    FIELD(9, S, memory_per_node_bytes, "Memory on each node."),
    FIELD(10, S, memory_per_cpu_bytes, "Memory for each CPU."),
    FIELD(11, S, memory_per_gpu_bytes, "Memory for each GPU."),
    FIELD(12, S, gpus_milli, "GPUs of each worker, in thousandths; below 1000: a fraction of one GPU."),
    FIELD(13, S, gpus_per_node_milli, "GPUs on each node, in thousandths."),
    FIELD(14, S, gpus_per_task_milli, "GPUs for each task, in thousandths."),
    FIELD(15, S, gpu_memory_bytes, "GPU memory; becomes a fraction of the GPU it lands on."),
    FIELD(16, S, gpu_model, "GPU model."),
    FIELD(17, S, features, "Node features required, joined by & (all) and | (any), with parentheses."),
    FIELD(18, S, nodes, "Nodes that must be used, e.g. n[1-4]."),
    FIELD(19, S, exclude, "Nodes that must not be used."),
    FIELD(20, S, container, "Container image."),
    FIELD(21, S, container_mounts, "Folders seen in the container, as SRC[:DST[:ro]] with commas."),
    FIELD(22, S, container_workdir, "Working directory in the container."),
    FIELD(23, S, spread, "Spread over nodes rather than packed."),
    FIELD(24, S, contiguous_topology, "GPUs and CPUs of one socket or NVLink group."),
    FIELD(25, S, ntasks_per_gpu, "Tasks for each GPU."),
    FIELD(26, S, cpus_per_gpu, "CPUs for each GPU."),
    FIELD(27, S, memory_default, "The memory is the default, not asked for."),
    FIELD(28, S, partition, "Partition to run in; not given: the job's."),
    FIELD_WORDS_OPEN(29, S, launch, job_launch_kind_words, "What is started: batch, tasks or steps."),
    FIELD_LIST(30, S, argv, "Command and arguments; empty: what the job runs."),
    FIELD(31, S, output, "Path pattern of standard output; not given: the job's."),
    FIELD(32, S, error, "Path pattern of standard error; not given: the job's."),
    FIELD(33, S, workers_given,
          "The numbers of workers are meant also when they are 0: a job with a head may have none of this "
          "kind."),
};
const struct schema job_component_schema = SCHEMA(S, "a component", component_fields);
#undef S

static const struct field spec_fields[] = {
    FIELD(1, struct spec, name, "Name of the job."),
    FIELD(2, struct spec, user, "User the job belongs to (set by the controller)."),
    FIELD(3, struct spec, uid, "User id of the job's processes (set by the controller)."),
    FIELD(4, struct spec, gid, "Group id of the job's processes (set by the controller)."),
    FIELD(5, struct spec, project, "Project that is charged."),
    FIELD(6, struct spec, partition, "Partition to run in; of several (a,b) the first that lets it start."),
    FIELD(7, struct spec, qos, "Quality of service."),
    FIELD_WORDS_OPEN(
        8, struct spec, class, job_class_words,
        "train: preemptible, may go over quota; interactive: never paused, only inside the quota."),
    FIELD_LIST_SUB(9, struct spec, array, &array_range_schema, "Index ranges of a job array."),
    FIELD(10, struct spec, array_limit, "Elements of the array that may run at once; 0: no limit."),
    FIELD(11, struct spec, nodes_min, "Fewest nodes."),
    FIELD(12, struct spec, nodes_max, "Most nodes; 0: as nodes_min."),
    FIELD(13, struct spec, tasks, "Tasks (processes of a parallel program)."),
    FIELD(14, struct spec, tasks_per_node, "Tasks on each node."),
    FIELD(15, struct spec, cpus_per_task, "CPUs for each task."),
    FIELD(16, struct spec, memory_per_node_bytes, "Memory on each node."),
    FIELD(17, struct spec, memory_per_cpu_bytes, "Memory for each CPU."),
    FIELD(18, struct spec, memory_per_gpu_bytes, "Memory for each GPU."),
    FIELD(19, struct spec, gpus_milli,
          "GPUs for the whole job, in thousandths; below 1000: a fraction of one GPU."),
    FIELD(20, struct spec, gpus_per_node_milli, "GPUs on each node, in thousandths."),
    FIELD(21, struct spec, gpus_per_task_milli, "GPUs for each task, in thousandths."),
    FIELD(22, struct spec, gpu_memory_bytes, "GPU memory; becomes a fraction of the GPU it lands on."),
    FIELD(23, struct spec, gpu_model, "GPU model."),
    FIELD(24, struct spec, time_limit_s, "Time limit; 0: the partition's default."),
    FIELD(25, struct spec, time_min_s,
          "It may start with a time limit as short as this, if it starts earlier so."),
    FIELD(26, struct spec, begin_ms, "Not before this time (ms since 1970)."),
    FIELD(27, struct spec, deadline_ms, "Removed if it cannot end before this time (ms since 1970)."),
    FIELD(28, struct spec, dependency, "Dependencies, e.g. afterok:12:13,singleton."),
    FIELD(29, struct spec, hold, "Submitted held."),
    FIELD(30, struct spec, requeue, "Queued again when its node fails."),
    FIELD(31, struct spec, nice, "Lowers (or, for administrators, raises) the priority."),
    FIELD(32, struct spec, comment, "Comment."),
    FIELD(33, struct spec, workdir, "Working directory."),
    FIELD(34, struct spec, output, "Path pattern of standard output."),
    FIELD(35, struct spec, error, "Path pattern of standard error; empty: with the output."),
    FIELD(36, struct spec, input, "Path of standard input."),
    FIELD(37, struct spec, append, "Output files are appended to, not cut."),
    FIELD_LIST(38, struct spec, argv, "Command and arguments, or arguments of the script."),
    FIELD(39, struct spec, script_id, "Key of the stored script (set by the controller)."),
    FIELD(40, struct spec, environment_id, "Key of the stored environment (set by the controller)."),
    FIELD(41, struct spec, signal, "Signal sent before the time limit."),
    FIELD(42, struct spec, signal_before_s, "How long before the time limit the signal is sent."),
    FIELD(43, struct spec, signal_batch_only, "The signal goes to the batch script only."),
    FIELD(44, struct spec, features,
          "Node features required, joined by & (all) and | (any), with parentheses."),
    FIELD(45, struct spec, nodes, "Nodes that must be used, e.g. n[1-4]."),
    FIELD(46, struct spec, exclude, "Nodes that must not be used."),
    FIELD(47, struct spec, reservation, "Reservation to run in."),
    FIELD(48, struct spec, container,
          "Container image: a folder, a squashfs file or archive on the nodes, or a name at a registry."),
    FIELD(49, struct spec, exclusive, "No other job on its nodes."),
    FIELD_WORDS_OPEN(50, struct spec, launch, job_launch_kind_words,
                     "What is started: batch, tasks or steps."),
    FIELD(51, struct spec, attach, "Output is kept in the node's spool for whoever attaches."),
    FIELD(52, struct spec, pty, "Runs on a pseudo-terminal."),
    FIELD(53, struct spec, stdin_open, "Standard input is fed by whoever attaches."),
    FIELD(54, struct spec, grace_s,
          "Seconds between the ending signal and the kill; 0: the cluster's default."),
    FIELD(55, struct spec, min_run_s, "Seconds it runs before it may be preempted."),
    FIELD(56, struct spec, checkpoint, "Command run inside the job before it is preempted."),
    FIELD(57, struct spec, no_kill_on_bad_exit, "Other tasks go on when one fails."),
    FIELD(58, struct spec, priority, "Fixed priority; 0: computed."),
    FIELD(59, struct spec, spread, "Spread over nodes rather than packed."),
    FIELD(60, struct spec, ntasks_per_gpu, "Tasks for each GPU."),
    FIELD(61, struct spec, cpus_per_gpu, "CPUs for each GPU."),
    FIELD(62, struct spec, command_text, "The command as typed."),
    FIELD(63, struct spec, contiguous_topology, "GPUs and CPUs of one socket or NVLink group."),
    FIELD(64, struct spec, has_umask, "It has a umask of its own; else 022."),
    FIELD(65, struct spec, umask, "What new files of it are kept from, as a number: 18 is 022."),
    FIELD(66, struct spec, slurm_words,
          "Submitted in Slurm's language: its output tells its end as Slurm does, and the submitter's HOME, "
          "USER and "
          "LOGNAME stay."),
    FIELD(67, struct spec, script_bytes, "Size of the stored script (set by the controller)."),
    FIELD(68, struct spec, environment_bytes, "Size of the stored environment (set by the controller)."),
    FIELD(150, struct spec, upload_id, "Key of the stored folder (set by the controller)."),
    FIELD(151, struct spec, upload_bytes, "Size of the stored folder (set by the controller)."),
    FIELD(69, struct spec, submit_line, "The command line that submitted it."),
    FIELD(90, struct spec, lease_s,
          "End the allocation when its client has not been connected for so long; 0: keep it."),
    FIELD(80, struct spec, container_mounts, "Folders seen in the container, as SRC[:DST[:ro]] with commas."),
    FIELD(81, struct spec, container_workdir, "Working directory in the container; else workdir."),
    FIELD(82, struct spec, pty_rows, "Rows of the pseudo-terminal at its start; 0: 24."),
    FIELD(83, struct spec, pty_columns, "Columns of the pseudo-terminal at its start; 0: 80."),
    FIELD(84, struct spec, truncate, "A later attempt empties the output files; else it appends to them."),
    FIELD(85, struct spec, retries, "How often the job is run again when its program fails."),
    FIELD(86, struct spec, backoff_s, "Pause before it is run again, in seconds."),
    FIELD(100, struct spec, notify,
          "When somebody is notified: a list of begin, end, fail, requeue, time_limit, time_limit_90, "
          "time_limit_80, "
          "time_limit_50, array_tasks, all."),
    FIELD(101, struct spec, notify_to, "Mail addresses and webhook URLs to notify; not given: the user."),
    FIELD(112, struct spec, memory_default,
          "The memory is the default, not asked for; submitted again, it gets the default of then."),
    FIELD_LIST(110, struct spec, secrets,
               "Secrets it is given: NAME or NAME=VARIABLE in a variable, NAME:file or NAME:file=VARIABLE as "
               "a file."),
    FIELD_LIST(111, struct spec, tags,
               "Tags: words, or key=value; one of each key. In an update: added, or with '-' before it "
               "removed; \"-\" "
               "removes all."),
    FIELD(102, struct spec, workers_min,
          "Workers of an elastic job that start together; 0: a job without workers."),
    FIELD(103, struct spec, workers_max,
          "Most workers of an elastic job; those beyond the minimum are optional."),
    FIELD_WORDS_OPEN(
        104, struct spec, on_worker_end, job_worker_end_words,
        "What happens when a worker fails: fail (the job ends), restart (the worker is run again) or "
        "continue (without it)."),
    FIELD(105, struct spec, worker_signal, "Signal to the workers when one joins or leaves; 0: none."),
    FIELD_LIST_SUB(113, struct spec, components, &job_component_schema,
                   "Kinds of workers of a job that has several; all of them start together."),
    FIELD(114, struct spec, component, "Component that a worker is of (set by the controller)."),
    FIELD_LIST(118, struct spec, ports,
               "Ports that others reach through the controller: NUMBER, http:NUMBER or tcp:NUMBER, 0: a free "
               "one; or "
               "unix:PATH, a socket that speaks HTTP."),
    FIELD_WORDS_OPEN(
        119, struct spec, network, job_network_words,
        "Network of its processes: own, node (that of the node), or auto: its own if it has ports and the "
        "node can."),
    FIELD(121, struct spec, health,
          "How its program is asked whether it is ready: /PATH or http:PORT/PATH of an HTTP port, jupyter, "
          "or a "
          "shell command."),
    FIELD(122, struct spec, health_interval_s, "Seconds between two questions; 0: 5."),
    FIELD(123, struct spec, health_failures,
          "Failures in a row after which it is sick; after twice as many the job ends as failed. 0: 3."),
    FIELD(124, struct spec, idle_s,
          "Ends when the kernels of its Jupyter server were not used for so many seconds; 0: never."),
    FIELD(120, struct spec, key_hash, "Hash of its idempotency key (set by the controller)."),
    FIELD(125, struct spec, service,
          "Number of the service whose replicas its workers are (set by the controller)."),
    FIELD(126, struct spec, revision, "Revision of that service (set by the controller)."),
    FIELD_WORDS_OPEN(127, struct spec, container_pull, job_pull_words,
                     "When the registry is asked for its image: usual (a name is believed for ten minutes), "
                     "always, missing (only where there is none) or never."),
    FIELD(128, struct spec, container_name,
          "A container that keeps what is written to it: made from the image when there is none of this name "
          "on the node, and used again by later jobs."),
    FIELD(129, struct spec, image_task,
          "Its arguments are work on the user's images on the node: build, push, pull or remove."),
    FIELD_LIST(
        130, struct spec, volumes,
        "Volumes it sees: NAME:/PATH, ~USER/NAME:/PATH, PROJECT/NAME:/PATH, or a folder of its nodes as "
        "/FOLDER:/PATH; each may end with :ro."),
    FIELD(145, struct spec, cancel_invalid_dependency,
          "Cancelled as soon as its dependency can no longer be satisfied."),
    FIELD(160, struct spec, licenses,
          "Seats of licenses that it holds while it runs, whichever nodes it runs on: matlab:2,ansys. Without a "
          "number: 1."),
};
const struct schema spec_schema = SCHEMA_GIVEN(struct spec, "a job", spec_fields);

#define GIVEN(s, member) schema_given(&spec_schema, s, &(s)->member)

void spec_merge(struct spec *s, const struct spec *change) {
    struct spec before = *s;
    if (GIVEN(change, gpus_milli) || GIVEN(change, gpus_per_node_milli) || GIVEN(change, gpus_per_task_milli))
        s->gpus_milli = s->gpus_per_node_milli = s->gpus_per_task_milli = 0;
    if (GIVEN(change, memory_per_node_bytes) || GIVEN(change, memory_per_cpu_bytes) ||
        GIVEN(change, memory_per_gpu_bytes))
        s->memory_per_node_bytes = s->memory_per_cpu_bytes = s->memory_per_gpu_bytes = s->memory_default = 0;
    schema_merge(&spec_schema, s, change);
    s->user = before.user;
    s->uid = before.uid;
    s->gid = before.gid;
    s->script_id = before.script_id;
    s->environment_id = before.environment_id;
    s->script_bytes = before.script_bytes;
    s->environment_bytes = before.environment_bytes;
    s->upload_id = before.upload_id;
    s->upload_bytes = before.upload_bytes;
    s->key_hash = before.key_hash;
    s->service = before.service;
    s->revision = before.revision;
}

// Also of a range that is still to be checked: one without a step counts as empty.
static uint64_t range_count(const struct array_range *r) {
    return r->step && r->last >= r->first ? (uint64_t)(r->last - r->first) / r->step + 1 : 0;
}

static uint64_t whole_gpus(uint32_t milli) {
    return ((uint64_t)milli + 999) / 1000;
}

// Too many for a number are refused with the most there can be, by whoever checks ranges.
static uint32_t bounded(uint64_t v) {
    return v < UINT32_MAX ? (uint32_t)v : UINT32_MAX;
}

static void count_tasks(struct spec *s) {
    uint64_t each = s->ntasks_per_gpu, nodes = s->nodes_min ? s->nodes_min : 1;
    bool asks = s->gpus_milli || s->gpus_per_node_milli || s->gpus_per_task_milli;
    if (!each)
        return;
    if (s->tasks && !asks) {
        s->gpus_milli = bounded((s->tasks + each - 1) / each * 1000);
    } else if (!s->tasks && s->gpus_per_node_milli) {
        s->tasks_per_node = bounded(each * whole_gpus(s->gpus_per_node_milli));
        s->tasks = bounded(nodes * s->tasks_per_node);
    } else if (!s->tasks && s->gpus_milli) {
        s->tasks = bounded(each * whole_gpus(s->gpus_milli));
    }
}

void spec_count_by_gpu(struct spec *s) {
    count_tasks(s);
    if (!s->cpus_per_gpu || s->cpus_per_task)
        return;
    uint64_t tasks = s->tasks ? s->tasks : 1, nodes = s->nodes_min ? s->nodes_min : 1, gpus = 0;
    if (s->gpus_per_task_milli) {
        gpus = whole_gpus(s->gpus_per_task_milli);
        tasks = 1;
    } else if (s->gpus_per_node_milli) {
        gpus = whole_gpus(s->gpus_per_node_milli);
        tasks = s->tasks_per_node ? s->tasks_per_node : (tasks + nodes - 1) / nodes;
    } else {
        gpus = whole_gpus(s->gpus_milli);
    }
    s->cpus_per_task = bounded((s->cpus_per_gpu * gpus + tasks - 1) / tasks);
}

void spec_component(const struct spec *s, uint32_t component, struct spec *out) {
    const struct job_component *from = &s->components.at[component];
    *out = *s;
    out->components.at = NULL;
    out->components.len = 0;
    out->component = from->name;
    out->lease_s = 0;  // the job's
    out->workers_min = from->workers_min;
    out->workers_max = from->workers_max;
    out->launch = from->launch;
#define TAKE(member) out->member = from->member;
    COMPONENT_SHAPE(TAKE)
#undef TAKE
    if (from->partition)
        out->partition = from->partition;
    if (from->output)
        out->output = from->output;
    if (from->error)
        out->error = from->error;
    if (!from->argv.len)
        return;
    out->argv.at = from->argv.at;
    out->argv.len = from->argv.len;
    out->script_id = out->upload_id = NULL;
    out->script_bytes = out->upload_bytes = 0;
    out->command_text = NULL;
}

int spec_workers_parse(const char *text, uint32_t *min, uint32_t *max) {
    char first[16];
    size_t n = strcspn(text, "-");
    if (n >= sizeof first)
        return -EINVAL;
    memcpy(first, text, n);
    first[n] = 0;
    if (parse_u32(first, min) < 0 || (text[n] && parse_u32(text + n + 1, max) < 0))
        return -EINVAL;
    if (!text[n])
        *max = *min;
    return *max >= *min && *max <= JOB_WORKERS_MAX ? 0 : -EINVAL;
}

bool spec_component_may_be_empty(const struct spec *s, uint32_t component) {
    bool head = false;
    for (uint32_t i = 0; i < s->components.len; i++)
        head |= i != component && streq(s->components.at[i].name, COMPONENT_HEAD);
    return head;
}

bool spec_worker_is_task(const struct spec *s) {
    return s->tasks <= 1 && s->tasks_per_node <= 1 && s->nodes_min <= 1 && s->nodes_max <= 1 &&
           !s->ntasks_per_gpu;
}

static bool components_known(const struct spec *s) {
    for (uint32_t i = 0; i < s->components.len; i++)
        if (s->components.at[i].launch >= LAUNCH_KIND_COUNT)
            return false;
    return true;
}

bool spec_known(const struct spec *s) {
    return components_known(s) && s->class < CLASS_COUNT && s->launch < LAUNCH_KIND_COUNT &&
           s->on_worker_end < WORKER_END_COUNT && s->network < NETWORK_COUNT;
}

uint64_t spec_array_count(const struct spec *s) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < s->array.len; i++)
        n += range_count(&s->array.at[i]);
    return s->array.len ? n : 1;
}

uint32_t spec_array_index(const struct spec *s, uint64_t position) {
    for (uint32_t i = 0; i < s->array.len; i++) {
        uint64_t n = range_count(&s->array.at[i]);
        if (position < n)
            return s->array.at[i].first + (uint32_t)position * s->array.at[i].step;
        position -= n;
    }
    assert(!s->array.len && position == 0);
    return 0;
}

static const struct field usage_fields[] = {
    FIELD(1, struct usage, cpu_user_us, "CPU time in user mode."),
    FIELD(2, struct usage, cpu_system_us, "CPU time in the kernel."),
    FIELD(3, struct usage, memory_peak_bytes, "Highest memory use."),
    FIELD(4, struct usage, wall_ms, "Run time."),
    FIELD(5, struct usage, gpu_busy_ms, "GPU time in use."),
    FIELD(6, struct usage, gpu_memory_peak_bytes, "Highest GPU memory use."),
    FIELD(7, struct usage, energy_mj, "Energy of the GPUs in millijoules, by share of use."),
    FIELD(8, struct usage, read_bytes, "Bytes read from disk."),
    FIELD(9, struct usage, write_bytes, "Bytes written to disk."),
    FIELD(10, struct usage, gpu_throttled_ms, "Time kernels waited because the GPU share was used up."),
    FIELD(11, struct usage, gpu_measured_ms, "Time in which the use of GPUs was measured, summed over GPUs."),
    FIELD(12, struct usage, earlier_attempts,
          "Attempts before the newest one, that were preempted, queued again or lost."),
    FIELD(13, struct usage, earlier_start_ms, "Start of the first of them."),
    FIELD(14, struct usage, earlier_end_ms, "End of the last of them."),
    FIELD(15, struct usage, earlier_cpu_held_ms, "CPUs that they held, by time."),
    FIELD(16, struct usage, earlier_gpu_held_ms, "GPUs that they held, by time."),
    FIELD(17, struct usage, earlier_cpu_us, "CPU time that they used."),
    FIELD(18, struct usage, earlier_gpu_busy_ms, "GPU time in use of theirs."),
    FIELD(19, struct usage, earlier_gpu_measured_ms, "Time in which that was measured."),
    FIELD(20, struct usage, earlier_energy_mj, "Energy of their GPUs in millijoules."),
};
const struct schema usage_schema = SCHEMA(struct usage, "usage", usage_fields);

void usage_attempt_ended(struct usage *u, int64_t start_ms, int64_t end_ms, uint64_t cpus, uint64_t gpus_milli) {
    uint64_t ran_ms = end_ms > start_ms ? (uint64_t)(end_ms - start_ms) : 0;
    if (!u->earlier_attempts++)
        u->earlier_start_ms = start_ms;
    u->earlier_end_ms = end_ms;
    u->earlier_cpu_held_ms += cpus * ran_ms;
    u->earlier_gpu_held_ms += gpus_milli * ran_ms / 1000;
    u->earlier_cpu_us += u->cpu_user_us + u->cpu_system_us;
    u->earlier_gpu_busy_ms += u->gpu_busy_ms;
    u->earlier_gpu_measured_ms += u->gpu_measured_ms;
    u->earlier_energy_mj += u->energy_mj;
}

void usage_copy_earlier(struct usage *to, const struct usage *from) {
    to->earlier_attempts = from->earlier_attempts;
    to->earlier_start_ms = from->earlier_start_ms;
    to->earlier_end_ms = from->earlier_end_ms;
    to->earlier_cpu_held_ms = from->earlier_cpu_held_ms;
    to->earlier_gpu_held_ms = from->earlier_gpu_held_ms;
    to->earlier_cpu_us = from->earlier_cpu_us;
    to->earlier_gpu_busy_ms = from->earlier_gpu_busy_ms;
    to->earlier_gpu_measured_ms = from->earlier_gpu_measured_ms;
    to->earlier_energy_mj = from->earlier_energy_mj;
}

void usage_attempt_begins(struct usage *u) {
    struct usage fresh = {0};
    usage_copy_earlier(&fresh, u);
    *u = fresh;
}

void usage_add(struct usage *sum, const struct usage *more) {
    sum->cpu_user_us += more->cpu_user_us;
    sum->cpu_system_us += more->cpu_system_us;
    sum->memory_peak_bytes += more->memory_peak_bytes;
    if (more->wall_ms > sum->wall_ms)
        sum->wall_ms = more->wall_ms;
    sum->gpu_busy_ms += more->gpu_busy_ms;
    sum->gpu_memory_peak_bytes += more->gpu_memory_peak_bytes;
    sum->energy_mj += more->energy_mj;
    sum->read_bytes += more->read_bytes;
    sum->write_bytes += more->write_bytes;
    sum->gpu_throttled_ms += more->gpu_throttled_ms;
    sum->gpu_measured_ms += more->gpu_measured_ms;
}

static const struct field gpu_grant_fields[] = {
    FIELD(1, struct gpu_grant, index, "Index of the GPU on its node."),
    FIELD(2, struct gpu_grant, milli, "Share in thousandths."),
};
const struct schema gpu_grant_schema = SCHEMA(struct gpu_grant, "a GPU grant", gpu_grant_fields);

static const struct field part_fields[] = {
    FIELD(1, struct part, node, "Node."),
    FIELD(2, struct part, cpus, "CPUs held."),
    FIELD(3, struct part, tasks, "Tasks there."),
    FIELD(4, struct part, memory_bytes, "Memory held."),
    FIELD_LIST_SUB(5, struct part, gpus, &gpu_grant_schema, "GPUs held."),
    FIELD(6, struct part, cpu_ids, "Which of the node's CPUs, as 0-3,8; empty until it runs."),
};
const struct schema job_part_schema = SCHEMA(struct part, "a part of an allocation", part_fields);

static const struct field worker_fields[] = {
    FIELD(1, struct worker, number, "Number of the worker in its job."),
    FIELD(2, struct worker, id, "Job id of the worker."),
    FIELD_WORDS_OPEN(3, struct worker, state, job_worker_state_words, "Where it is."),
    FIELD(4, struct worker, optional, "Beyond the minimum: given back when others need its room."),
    FIELD(5, struct worker, idle, "The job says that it is idle: it is given back first."),
    FIELD(6, struct worker, rank, "The lowest is given back first."),
    FIELD(7, struct worker, node, "Its node."),
    FIELD(8, struct worker, attempt, "How often it was started."),
    FIELD(9, struct worker, exit_code, "Exit code of one that has left."),
    FIELD(10, struct worker, exit_signal, "Signal that ended it."),
    FIELD(11, struct worker, ended, "Final state of one that has left."),
    FIELD(12, struct worker, component, "Component it is of."),
    FIELD(13, struct worker, health, "Whether its program is ready; not given: it has no health check."),
};
const struct schema job_worker_schema = SCHEMA(struct worker, "a worker", worker_fields);

static const struct field job_record_fields[] = {
    FIELD(1, struct job_record, id, "Job id."),
    FIELD(2, struct job_record, array_id, "Id of the array's first element."),
    FIELD(3, struct job_record, array_index, "Index in the array."),
    FIELD(4, struct job_record, is_array, "Element of an array."),
    FIELD_SUB(5, struct job_record, spec, &spec_schema, "What was asked for."),
    FIELD_WORDS(6, struct job_record, state, job_state_words, "State."),
    FIELD(7, struct job_record, reason, "Why it waits, or why it ended so."),
    FIELD(8, struct job_record, exit_code, "Exit code."),
    FIELD(9, struct job_record, exit_signal, "Signal that ended it."),
    FIELD(10, struct job_record, attempt, "How often it was started."),
    FIELD(11, struct job_record, submit_ms, "Submitted (ms since 1970)."),
    FIELD(12, struct job_record, eligible_ms, "Could first have started."),
    FIELD(13, struct job_record, start_ms, "Started."),
    FIELD(14, struct job_record, end_ms, "Ended."),
    FIELD_LIST_SUB(15, struct job_record, parts, &job_part_schema, "What it holds, by node."),
    FIELD_SUB(16, struct job_record, usage, &usage_schema, "What it used."),
    FIELD(17, struct job_record, expected_start_ms, "When it is expected to start."),
    FIELD(18, struct job_record, preempted, "How often it was preempted."),
    FIELD(19, struct job_record, steps, "Steps its newest attempt started."),
    FIELD(20, struct job_record, by, "Who ended it."),
    FIELD(21, struct job_record, suspended_ms, "How long it was suspended."),
    FIELD(28, struct job_record, late_why, "Why its planned start moved later the last time."),
    FIELD(22, struct job_record, preempted_why, "For which job and why it was preempted the last time."),
    FIELD(40, struct job_record, job, "Of a worker: the elastic job it belongs to."),
    FIELD(41, struct job_record, worker, "Its number in that job."),
    FIELD(115, struct job_record, components, "How many components it has, or the job of this worker."),
    FIELD_LIST_SUB(42, struct job_record, workers, &job_worker_schema, "Workers of an elastic job."),
    FIELD(116, struct job_record, epoch, "Epoch of the controller that started its newest attempt."),
    FIELD(117, struct job_record, agent_id, "Its number on its nodes."),
};
const struct schema job_record_schema = SCHEMA(struct job_record, "a job record", job_record_fields);
