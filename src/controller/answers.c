// The tables of the API's answers.
#include "answers.h"

#include <assert.h>

#include "metrics/efficiency.h"

// --- jobs ---

#define S struct answer_order
static const struct field order_fields[] = {
    FIELD(1, S, priority,
          "One positive number, higher first. Jobs of one project and partition sort by it, to the second. Between "
          "projects shares come first, which a number of one job cannot express: why tells the position. One point is "
          "one second of queue time; 1,000,000,000 is a queue time of now. A step of priority is 2,000,000,000 points; "
          "jobs below priority 0 have numbers below 100,000,000, to 1,000 s. 0: held, or its begin time has not come."),
    FIELD(2, S, queue_time_ms, "Submitted + short + use + size + qos + nice; the earliest goes first."),
    FIELD(3, S, age_s, "Seconds since it was submitted, also if it was requeued."),
    FIELD(4, S, short_s, "What its time limit adds to the queue time."),
    FIELD(5, S, use_s, "What its user's recent use adds."),
    FIELD(6, S, size_s, "What its GPUs add (may be negative)."),
    FIELD(7, S, qos_s, "What its QoS's priority adds, where the policy makes it count as time."),
    FIELD(8, S, nice_s, "What its nice value adds, where the policy makes it count as time."),
    FIELD(9, S, overdue, "It waited longer than the policy's max_wait: first of its priority."),
    FIELD(10, S, tier, "Tier of its partition; sorts before everything else."),
    FIELD(11, S, qos, "Its QoS's priority."),
    FIELD(12, S, own, "Its own priority."),
    FIELD(13, S, nice, "Its nice value."),
};
static const struct schema order_schema = SCHEMA(S, "the order of a job", order_fields);
#undef S

#define S struct answer_job_gpu
static const struct field job_gpu_fields[] = {
    FIELD(1, S, node, "Node."),
    FIELD(2, S, index, "Index of the GPU on its node."),
    FIELD(3, S, share_milli, "How much of it the job holds, in thousandths."),
    FIELD(4, S, use_milli, "How much it uses, in thousandths; null: not measured.", .nullable = true),
    FIELD(5, S, throttled_milli, "Time in which it was slowed down to its share, in thousandths."),
    FIELD(6, S, memory_bytes, "Memory it uses."),
    FIELD(7, S, memory_limit_bytes, "Memory it may use."),
    FIELD(8, S, power_mw, "Power, in milliwatts."),
};
const struct schema answer_job_gpu_schema = SCHEMA_GIVEN(S, "a GPU of a job", job_gpu_fields);
#undef S

#define S struct answer_live
static const struct field live_fields[] = {
    FIELD(1, S, cpu_ms, "CPU time so far."),
    FIELD(2, S, memory_bytes, "Memory it uses."),
    FIELD(3, S, memory_peak_bytes, "Most memory so far."),
    FIELD(4, S, processes, "Processes."),
    FIELD(5, S, gpu_busy_ms, "Sum over its GPUs of time in use."),
    FIELD(6, S, gpu_throttled_ms, "Time in which it was slowed down to its share of a GPU."),
    FIELD(7, S, gpu_memory_peak_bytes, "Most GPU memory so far."),
    FIELD(8, S, energy_mj, "Energy, in millijoules."),
    FIELD(9, S, gpu_idle_s, "Seconds for which it has not used its GPUs."),
    FIELD(10, S, preparing, "Its container image is being fetched."),
    FIELD(13, S, preparing_ms, "Since when it is being fetched; 0: not known, or it is not."),
    FIELD(14, S, progress_milli, "How far it says it has come, in thousandths; null: it does not say.",
          .nullable = true),
    FIELD(15, S, progress_text, "What that was read from, such as epoch 3/10."),
    FIELD(16, S, left_ms, "How long it will still run at the pace until now; null: not known.",
          .nullable = true),
    FIELD(11, S, warning, "What its owner should know."),
    FIELD_LIST_SUB(12, S, gpus, &answer_job_gpu_schema, "Its GPUs."),
};
const struct schema answer_live_schema = SCHEMA_GIVEN(S, "what a job uses now", live_fields);
#undef S

// The order of the rows is that of compact lists.
#define S struct answer_job
static const struct field job_fields[] = {
    FIELD(1, S, id, "Number of the job."),
    FIELD(2, S, array_id, "Number of the array it belongs to; 0: none."),
    FIELD(3, S, array_index, "Its index in the array."),
    FIELD(4, S, label, "As people write it: 12, 12_3, or 12_[1-5] for elements in one row."),
    FIELD(5, S, name, "Name; null where those of others are not shown."),
    FIELD(6, S, user, "User; null where others are not shown."),
    FIELD(7, S, project, "Project."),
    FIELD(8, S, partition, "Partition it runs in; while it waits all it names."),
    FIELD(9, S, qos, "QoS."),
    FIELD_WORDS(10, S, class, job_class_words, "Kind of work."),
    FIELD_WORDS(11, S, state, job_state_words, "State."),
    FIELD(12, S, reason, "Why it waits, or why it ended."),
    FIELD(13, S, nodes, "Its nodes, as n[1-4]."),
    FIELD(14, S, node_count, "Number of nodes."),
    FIELD(15, S, tasks, "Tasks."),
    FIELD(16, S, cpus, "CPUs."),
    FIELD(17, S, memory_bytes, "Memory."),
    FIELD(18, S, gpus_milli, "GPUs, in thousandths."),
    FIELD(19, S, gpu_model, "GPU model it asks for."),
    FIELD(20, S, time_limit_s, "Time limit; 0: none."),
    FIELD(21, S, submit_ms, "When it was submitted (ms since 1970, as all times)."),
    FIELD(22, S, eligible_ms, "When it could first start."),
    FIELD(23, S, start_ms, "When it started; 0: it has not."),
    FIELD(24, S, end_ms, "When it ended; 0: it has not."),
    FIELD(25, S, elapsed_ms, "How long it has run, without pauses."),
    FIELD(26, S, expected_start_ms, "When it is expected to start; 0: not known."),
    FIELD(27, S, exit_code, "Exit code."),
    FIELD(28, S, exit_signal, "Signal that ended it; 0: none."),
    FIELD(29, S, attempt, "Attempt, from 1; 0: it has not started."),
    FIELD(30, S, priority, "Fixed priority; 0: computed."),
    FIELD(31, S, nice, "Nice value."),
    FIELD(32, S, comment, "Comment; null for others than its owner."),
    FIELD(33, S, workdir, "Working directory; null for others than its owner."),
    FIELD(34, S, output, "Path pattern of standard output; null for others than its owner."),
    FIELD(35, S, error, "Path pattern of standard error; null for others than its owner."),
    FIELD(36, S, command_text, "The command as typed; null for others than its owner."),
    FIELD(37, S, dependency, "Dependencies."),
    FIELD(38, S, hold, "It is held."),
    FIELD(39, S, cpu_ms, "CPU time."),
    FIELD(40, S, memory_peak_bytes, "Most memory."),
    FIELD(41, S, gpu_busy_ms, "Sum over its GPUs of time in use."),
    FIELD(42, S, energy_mj, "Energy, in millijoules."),
    FIELD(43, S, preempted, "How often it was preempted."),
    FIELD(44, S, features, "Node features it requires."),
    FIELD(45, S, begin_ms, "Not before this time."),
    FIELD(46, S, uid, "User id; null where others' users are not shown.", .nullable = true),
    FIELD_SUB(47, S, spec, &spec_schema, "What was asked for."),
    FIELD_RAW(48, S, steps, "EventList",
              "Events of its steps: step_started and step_ended. Of very many steps the first ones; its "
              "events have all."),
    FIELD(49, S, by, "Who cancelled it."),
    FIELD_SUB(50, S, usage, &usage_schema, "What it used."),
    FIELD(51, S, ending, "Why it is being ended; null: it is not."),
    FIELD_WORDS(52, S, launch, job_launch_kind_words, "What is started."),
    FIELD_SUB(53, S, order, &order_schema, "Of a pending job: where its turn comes from."),
    FIELD(54, S, gpu_use_milli, "How much of its GPUs it uses now, in thousandths; null: not known.",
          .nullable = true),
    FIELD(55, S, warning, "What its owner should know."),
    FIELD(56, S, suspended_ms, "How long it was suspended."),
    FIELD(57, S, suspend_ms, "When it was suspended or resumed last."),
    FIELD(58, S, memory_now_bytes, "Memory it uses now."),
    FIELD(59, S, container, "Container image."),
    FIELD(60, S, step_count, "Steps started by its newest attempt."),
    FIELD(61, S, elements, "In lists: indices of the array's elements that this row stands for."),
    FIELD(62, S, count, "In lists: how many elements this row stands for.", .nullable = true),
    FIELD_LIST(67, S, tags, "Tags: words, or key=value."),
    FIELD(68, S, workers,
          "Of an elastic job: how many of its workers run, and the most there can be, as 5/8."),
    FIELD(
        75, S, progress_milli,
        "How far a running job says it has come, in thousandths: read from its output or its progress file; "
        "null: it does not say.",
        .nullable = true),
    FIELD(121, S, health,
          "Whether the program of a running job is ready: starting, ready, sick or idle (it will be closed "
          "soon); "
          "null: it has no health check."),
    FIELD(122, S, health_reason, "What its health check says, where it is not ready."),
    FIELD_LIST(92, S, urls, "Addresses of the HTTP ports of a live job, for those who may use it."),
    FIELD(63, S, is_array, "It is an element of an array. Not in lists."),
    FIELD_LIST_SUB(64, S, parts, &job_part_schema, "What it holds, by node. Not in lists."),
    FIELD_SUB(65, S, live, &answer_live_schema, "What it uses now; null: it does not run. Not in lists."),
    FIELD(87, S, late_why, "Why its planned start moved later the last time. Not in lists."),
    FIELD(66, S, preempted_why, "Why it was preempted the last time. Not in lists."),
    FIELD(69, S, job, "Of a worker: the elastic job it belongs to; 0: it is no worker. Not in lists."),
    FIELD(70, S, worker, "Its number in that job. Not in lists."),
    FIELD_LIST_SUB(
        71, S, members, &job_worker_schema,
        "Workers of an elastic job; of more than 1,024 those that are there and the newest. Not in "
        "lists."),
    FIELD_LIST(140, S, ports,
               "Its ports, with the numbers that were chosen for those given as 0. Not in lists."),
    FIELD(90, S, version,
          "Of a live job: changes with everything that happens to it; give it back with an update. Not in "
          "lists."),
};
const struct schema answer_job_schema = SCHEMA_GIVEN(S, "a job", job_fields);
#undef S

#define STATE(word, state)                                                                                    \
    {.num = (state) + 1, .type = FIELD_U64, .offset = offsetof(struct answer_states, by_state[state]),        \
     .name = word, .help = "Jobs in this state."}
static const struct field states_fields[] = {
    STATE("PENDING", JOB_PENDING),
    STATE("STARTING", JOB_STARTING),
    STATE("RUNNING", JOB_RUNNING),
    STATE("SUSPENDED", JOB_SUSPENDED),
    STATE("COMPLETING", JOB_COMPLETING),
    STATE("COMPLETED", JOB_COMPLETED),
    STATE("FAILED", JOB_FAILED),
    STATE("CANCELLED", JOB_CANCELLED),
    STATE("TIMEOUT", JOB_TIMEOUT),
    STATE("OUT_OF_MEMORY", JOB_OUT_OF_MEMORY),
    STATE("NODE_FAIL", JOB_NODE_FAIL),
    STATE("PREEMPTED", JOB_PREEMPTED),
    STATE("DEADLINE", JOB_DEADLINE),
    FIELD(50, struct answer_states, submitted, "Jobs submitted since the beginning."),
    FIELD(51, struct answer_states, requeued, "Requeues since the beginning."),
    FIELD(52, struct answer_states, preempted, "Preemptions since the beginning."),
};
const struct schema answer_states_schema = {.name = "jobs by state",
                                            .type = "struct answer_array_states",
                                            .size = sizeof(struct answer_states),
                                            .fields = states_fields,
                                            .count = JOB_STATE_COUNT};
const struct schema answer_job_counts_schema = SCHEMA(struct answer_states, "counts of jobs", states_fields);

#define S struct answer_apps
static const struct field apps_fields[] = {
    FIELD_LIST_SUB(1, S, apps, &app_schema, "The site's apps and the built-in ones.")};
const struct schema answer_apps_schema = SCHEMA(S, "apps", apps_fields);
#undef S
#define S struct answer_array
static const struct field array_fields[] = {
    FIELD(1, S, id, "Number of the array."),
    FIELD(2, S, elements, "Elements it has."),
    FIELD(3, S, complete, "All ended elements are counted; false: only the first 100,000."),
    FIELD_SUB(4, S, states, &answer_states_schema, "Elements by state."),
};
const struct schema answer_array_schema = SCHEMA(S, "an array", array_fields);
#undef S

#define S struct answer_error
static const struct field error_fields[] = {
    FIELD(1, S, code, "A word for programs: the name of an errno value."),
    FIELD(2, S, message, "One sentence: what is wrong, and what to do."),
};
const struct schema answer_error_schema = SCHEMA(S, "an error", error_fields);
#undef S
static const struct field failure_fields[] = {
    FIELD_SUB(1, struct answer_failure, error, &answer_error_schema, "What is wrong.")};
const struct schema answer_failure_schema = SCHEMA(struct answer_failure, "a failure", failure_fields);

#define S struct answer_problem
static const struct field problem_fields[] = {
    FIELD(1, S, type, "Kind of the problem, a URI; about:blank: what the status says."),
    FIELD(2, S, title, "The status in words."),
    FIELD(3, S, status, "The HTTP status."),
    FIELD(4, S, detail, "One sentence: what is wrong, and what to do."),
    FIELD(5, S, instance, "The path that was asked for."),
    FIELD(6, S, field, "The field or parameter that is to blame; null: none, or several."),
    FIELD_SUB(7, S, error, &answer_error_schema, "The same as a code for programs and the sentence."),
};
const struct schema answer_problem_schema = SCHEMA(S, "a problem", problem_fields);
#undef S

#define S struct answer_action_error
static const struct field action_error_fields[] = {
    FIELD(1, S, id, "The job, as it was named."),
    FIELD_SUB(2, S, error, &answer_error_schema, "Why it was not changed."),
};
static const struct schema action_error_schema = SCHEMA(S, "a job that was not changed", action_error_fields);
#undef S
#define S struct answer_action
static const struct field action_fields[] = {
    FIELD(1, S, matched, "Jobs that were meant."),
    FIELD(2, S, done, "Jobs that were changed."),
    FIELD_LIST_SUB(3, S, errors, &action_error_schema, "Jobs that were not, at most 1,000 of them."),
    FIELD(4, S, unchanged, "Jobs that were as asked already, which is no error."),
    FIELD_LIST(5, S, notes, "What is said of these, as \"job 7 was not held\"; of the first 20."),
};
const struct schema answer_action_schema = SCHEMA(S, "the result of an action", action_fields);
#undef S
static const struct field environment_fields[] = {
    FIELD_LIST(1, struct answer_environment, environment, "Its variables, as NAME=value.")};
const struct schema answer_environment_schema =
    SCHEMA(struct answer_environment, "an environment", environment_fields);
static const struct field events_fields[] = {
    FIELD_RAW(1, struct answer_events, events, "EventList", "Events, oldest first.")};
const struct schema answer_events_schema = SCHEMA(struct answer_events, "events", events_fields);

static const struct field series_names_fields[] = {
    FIELD_LIST(1, struct answer_series_names, names, "Names of series, in order.")};
const struct schema answer_series_names_schema =
    SCHEMA(struct answer_series_names, "names of series", series_names_fields);
#define S struct answer_series
static const struct field series_fields[] = {
    FIELD(1, S, name, "Its name."),
    FIELD(2, S, step_ms, "Interval between points."),
    FIELD_RAW(3, S, points, "SeriesPoints", "Time (ms since 1970) and value of each point; gaps have none."),
};
const struct schema answer_series_schema = SCHEMA(S, "a series", series_fields);
#undef S

// --- explanations ---

const char *const answer_basis_words[] = {"now", "forecast", "later", "never", "unknown", "estimate", NULL};
#define S struct answer_start
static const struct field start_fields[] = {
    FIELD_WORDS(1, S, basis, answer_basis_words,
                "now: in the next pass; forecast: the queue played forward; estimate: from totals; later: after what "
                "can be foreseen; never: not as things are; unknown: something in its way has no time limit."),
    FIELD(2, S, early_ms, "At the earliest.", .nullable = true),
    FIELD(3, S, late_ms, "At the latest, if jobs run to their limits.", .nullable = true),
};
const struct schema answer_start_schema = SCHEMA_GIVEN(S, "an expected start", start_fields);
#undef S
#define S struct answer_why_nodes
static const struct field why_nodes_fields[] = {
    FIELD(1, S, all, "Nodes of the cluster."),
    FIELD(2, S, needed, "Nodes the job needs."),
    FIELD(3, S, fit, "Nodes it could start on now."),
    FIELD(4, S, not_in_partition, "Not in its partition."),
    FIELD(5, S, not_for_project, "Not for its project."),
    FIELD(6, S, not_listed, "Not in its list of nodes, or excluded."),
    FIELD(7, S, without_features, "Without the features it requires."),
    FIELD(8, S, other_gpu_model, "With another GPU model."),
    FIELD(9, S, down, "Down or unreachable."),
    FIELD(10, S, drained, "Drained."),
    FIELD(11, S, too_small, "Too small even when empty."),
    FIELD(12, S, reserved, "Reserved during its time."),
    FIELD(13, S, gpus_busy, "With too few free GPUs."),
    FIELD(14, S, cpus_busy, "With too few free CPUs."),
    FIELD(15, S, memory_busy, "With too little free memory."),
    FIELD(16, S, exclusive, "Held by a job that shares with nobody, or not empty for one that does not share."),
    FIELD(17, S, planned_for_others, "Kept for jobs before it."),
    FIELD(18, S, of_another_user, "For the jobs of another user only."),
    FIELD(19, S, gone_too_soon, "Gone before it would have to end."),
};
static const struct schema why_nodes_schema = SCHEMA(S, "nodes by what is in the way", why_nodes_fields);
#undef S
#define S struct answer_holder
static const struct field holder_fields[] = {
    FIELD(1, S, job, "Number of the job."),
    FIELD(2, S, name, "Its name."),
    FIELD(3, S, user, "Its user."),
    FIELD(4, S, project, "Its project."),
    FIELD(5, S, gpus_milli, "GPUs it holds, in thousandths."),
    FIELD(6, S, cpus, "CPUs it holds."),
    FIELD(7, S, end_ms, "When it ends at the latest; null: it has no limit.", .nullable = true),
};
const struct schema answer_holder_schema = SCHEMA_GIVEN(S, "a job that holds what is needed", holder_fields);
#undef S
static const char *const change_words[] = {
    "none",          "release",     "begin_now",    "time_limit_ms", "gpus_milli",     "nodes",    "tasks",
    "cpus_per_task", "memory_per_node_bytes", "any_gpu_model", "no_features", "no_node_list", "partition", "qos",
    "class_train",   "not_exclusive", "no_reservation", "priority", "project_quota_milligpu", "project_limit_milligpu",
    "end_jobs",      NULL};  // in the order of enum explain_change
#define S struct answer_why_change
static const struct field change_fields[] = {
    FIELD_WORDS(1, S, what, change_words, "The smallest change after which it would start now."),
    FIELD(2, S, value, "The value it would need.", .nullable = true),
    FIELD_LIST(3, S, jobs, "Jobs that would have to end."),
};
const struct schema answer_why_change_schema = SCHEMA_GIVEN(S, "a change", change_fields);
#undef S
#define S struct answer_why_partition
static const struct field why_partition_fields[] = {
    FIELD(1, S, partition, "Partition."),
    FIELD(2, S, reason, "What the job waits for there."),
    FIELD(3, S, planned_start_ms, "Planned start there.", .nullable = true),
};
const struct schema answer_why_partition_schema = SCHEMA_GIVEN(S, "a partition a job may use", why_partition_fields);
#undef S
#define S struct answer_why
static const struct field why_fields[] = {
    FIELD(1, S, job, "Number of the job."),
    FIELD_WORDS(2, S, state, job_state_words, "Its state."),
    FIELD_LIST(3, S, lines, "The explanation for people, line by line."),
    FIELD(4, S, reason, "Of a pending job: what it waits for, in one word."),
    FIELD(5, S, position, "Its place in the order, from 1.", .nullable = true),
    FIELD(6, S, waiting, "Pending jobs in all.", .nullable = true),
    FIELD_LIST_SUB(7, S, partitions, &answer_why_partition_schema, "Of a job with several partitions."),
    FIELD_SUB(8, S, start, &answer_start_schema, "When it will start."),
    FIELD_SUB(9, S, nodes, &why_nodes_schema, "What is in the way, node by node."),
    FIELD_LIST_SUB(10, S, holders, &answer_holder_schema, "Jobs that hold what it needs."),
    FIELD_SUB(11, S, change, &answer_why_change_schema, "What would let it start now."),
    FIELD_RAW(12, S, sentences, NULL,
              "The explanation for readers of other languages: for each line its `code`, and its `values` by name. "
              "`x-phrases` of this document has the English text of each code."),
};
const struct schema answer_why_schema = SCHEMA_GIVEN(S, "an explanation", why_fields);
#undef S
#define S struct answer_variant
static const struct field variant_fields[] = {
    FIELD(1, S, request, "What is different: \"as asked\", \"with 1 GPU\"."),
    FIELD(2, S, reason, "What it would wait for."),
    FIELD_SUB(3, S, start, &answer_start_schema, "When it would start."),
    FIELD(4, S, refused, "Of an alternative: why it would be refused; null: it would not."),
};
static const struct schema variant_schema = SCHEMA(S, "a variant of a request", variant_fields);
#undef S
#define S struct answer_when
static const struct field when_fields[] = {
    FIELD_LIST(1, S, lines, "For people, a line per variant."),
    FIELD_LIST_SUB(2, S, variants, &variant_schema,
                   "The request as it is, and variants that may start sooner."),
    FIELD(3, S, refused, "With check: why it would be refused; null: it would not."),
};
const struct schema answer_when_schema = SCHEMA(S, "expected starts", when_fields);
#undef S
#define S struct answer_difference
static const struct field difference_fields[] = {
    FIELD(1, S, seq, "Number of the event."),
    FIELD(2, S, at_ms, "Its time."),
    FIELD(3, S, recorded, "What was decided then."),
    FIELD(4, S, now, "What would be decided now."),
};
static const struct schema difference_schema = SCHEMA(S, "a difference", difference_fields);
#undef S
#define S struct answer_replay
static const struct field replay_fields[] = {
    FIELD(1, S, events, "Events that were replayed."),
    FIELD(2, S, passes, "Scheduling passes that were compared."),
    FIELD(3, S, starts, "Starts in them."),
    FIELD(4, S, preemptions, "Preemptions in them."),
    FIELD(5, S, different, "Passes that came out differently."),
    FIELD_LIST_SUB(6, S, differences, &difference_schema, "The first 100 differences."),
};
const struct schema answer_replay_schema = SCHEMA(S, "a replay", replay_fields);
#undef S
#define S struct answer_efficiency_row
static const struct field efficiency_row_fields[] = {
    FIELD(1, S, what, "cpu, memory, gpu, gpu_memory, time or energy."),
    FIELD(2, S, asked, "What was asked for.", .nullable = true),
    FIELD(3, S, used, "What was used; null: not measured.", .nullable = true),
    FIELD(4, S, percent, "Used of what was asked for, at most 999.", .nullable = true),
    FIELD(5, S, option, "The option to give next time; null: it fits."),
    FIELD(6, S, text, "One sentence."),
};
const struct schema answer_efficiency_row_schema = SCHEMA_GIVEN(S, "the use of one resource", efficiency_row_fields);
#undef S
#define S struct answer_efficiency
static const struct field efficiency_fields[] = {
    FIELD(1, S, elapsed_s, "How long it ran."),
    FIELD(2, S, final, "It has ended; else the figures are of now."),
    FIELD(3, S, too_short, "It ran too briefly for advice."),
    FIELD(4, S, failed, "It failed: what it used is no measure for the next one."),
    FIELD(5, S, elements, "Elements of the array the figures are the mean of; null: one job.", .nullable = true),
    FIELD_LIST_SUB(6, S, rows, &answer_efficiency_row_schema,
                   "CPU and GPU in thousandths kept busy on average, memory in bytes at the peak, time in seconds, "
                   "energy in joules."),
};
const struct schema answer_efficiency_schema = SCHEMA_GIVEN(S, "the efficiency of a job", efficiency_fields);
#undef S

// --- the cluster ---

#define S struct answer_gpu_holder
static const struct field gpu_holder_fields[] = {
    FIELD(1, S, job, "The job."),
    FIELD(2, S, user, "Its user."),
    FIELD(3, S, use_milli, "How much of the GPU it uses, in thousandths; null: not measured.", .nullable = true),
    FIELD(4, S, memory_used_bytes, "Memory it uses."),
    FIELD(5, S, power_mw, "Its part of the power, in milliwatts."),
    FIELD(6, S, stray, "It uses the GPU without holding it."),
};
const struct schema answer_gpu_holder_schema = SCHEMA_GIVEN(S, "a job on a GPU", gpu_holder_fields);
#undef S
#define S struct answer_gpu_now
static const struct field gpu_now_fields[] = {
    FIELD(1, S, held_milli, "How much of it jobs hold, in thousandths."),
    FIELD(2, S, use_milli, "How much of it is used, in thousandths; null: not measured.", .nullable = true),
    FIELD(3, S, memory_used_bytes, "Memory in use.", .nullable = true),
    FIELD(4, S, power_mw, "Power, in milliwatts.", .nullable = true),
    FIELD(5, S, temperature_c, "Temperature.", .nullable = true),
    FIELD(6, S, sm_clock_mhz, "Clock of its processors.", .nullable = true),
    FIELD(7, S, clock_reasons, "Why its clock is held back, as NVML's bits.", .nullable = true),
    FIELD(8, S, foreign_bytes, "Memory of processes that belong to no job.", .nullable = true),
    FIELD_LIST_SUB(9, S, jobs, &answer_gpu_holder_schema, "Jobs that use it."),
};
const struct schema answer_gpu_now_schema = SCHEMA_GIVEN(S, "a GPU right now", gpu_now_fields);
#undef S
const char *const answer_node_words[] = {"down", "cleaning",  "unreachable", "draining", "drained",
                                         "idle", "allocated", "mixed",       NULL};
#define S struct answer_node_status
static const struct field node_fields[] = {
    FIELD(1, S, name, "Name."),
    FIELD_WORDS(2, S, state, answer_node_words, "State."),
    FIELD(3, S, reason, "Why it is drained or down."),
    FIELD(4, S, by, "Who drained it."),
    FIELD(5, S, reason_ms, "Since when."),
    FIELD(6, S, busy_ms, "When its last job ended; 0: none yet."),
    FIELD(7, S, cpus, "CPUs."),
    FIELD(8, S, cpus_used, "CPUs that jobs hold."),
    FIELD(9, S, memory_bytes, "Memory."),
    FIELD(10, S, memory_used_bytes, "Memory that jobs hold."),
    FIELD(11, S, gpus_milli, "GPUs, in thousandths."),
    FIELD(12, S, gpus_used_milli, "GPUs that jobs hold, in thousandths."),
    FIELD_LIST_SUB(13, S, gpus, &gpu_schema, "GPUs."),
    FIELD_LIST_SUB(14, S, gpus_now, &answer_gpu_now_schema,
                   "What each GPU does now, and for which jobs; empty in the list of nodes."),
    FIELD_LIST(15, S, features, "Features."),
    FIELD_LIST(16, S, partitions, "Partitions it is in."),
    FIELD(17, S, jobs, "Jobs on it."),
    FIELD(18, S, version, "Version of its agent."),
    FIELD(19, S, address, "Address it connected from."),
    FIELD(20, S, boot_id, "Changes with every start of the machine."),
    FIELD(21, S, boot_ms, "When the machine was started."),
    FIELD(22, S, agent_start_ms, "When its agent was started."),
    FIELD(23, S, os, "Operating system."),
    FIELD(24, S, arch, "Processor architecture."),
    FIELD(25, S, sockets, "Sockets."),
    FIELD(26, S, cores_per_socket, "Cores per socket."),
    FIELD(27, S, threads_per_core, "Threads per core."),
    FIELD(28, S, tmp_bytes, "Temporary disk space."),
    FIELD(29, S, missing, "What cannot be enforced there."),
    FIELD(30, S, connected, "Its agent is connected."),
    FIELD(31, S, containers, "It can run jobs in containers."),
    FIELD(32, S, cpu_milli, "Use of all its CPUs, in thousandths.", .nullable = true),
    FIELD(33, S, load_milli, "Load average over one minute, in thousandths.", .nullable = true),
    FIELD(34, S, memory_in_use_bytes, "Memory in use on the machine.", .nullable = true),
    FIELD(35, S, launch_failures, "Launches in a row that failed there."),
    FIELD(36, S, retry_ms, "It is paused for failed launches until this time; 0: it is not."),
};
const struct schema answer_node_schema = SCHEMA_GIVEN(S, "a node", node_fields);
#undef S
static const struct field nodes_fields[] = {
    FIELD_LIST_SUB(1, struct answer_nodes, nodes, &answer_node_schema, "All nodes.")};
const struct schema answer_nodes_schema = SCHEMA(struct answer_nodes, "nodes", nodes_fields);

#define S struct answer_node_counts
static const struct field node_counts_fields[] = {
    FIELD(1, S, total, "Nodes."),
    FIELD(2, S, up, "Up."),
    FIELD(3, S, drained, "Drained."),
    FIELD(4, S, down, "Down."),
};
const struct schema answer_node_counts_schema = SCHEMA(S, "counts of nodes", node_counts_fields);
#undef S
#define S struct answer_gpu_counts
static const struct field gpu_counts_fields[] = {
    FIELD(1, S, total, "GPUs."),
    FIELD(2, S, out_of_use, "With a fault."),
    FIELD(3, S, measured, "Whose use is measured."),
    FIELD(4, S, busy_milli, "Their use, added up, in thousandths."),
    FIELD(5, S, power_mw, "Their power, added up, in milliwatts."),
};
static const struct schema gpu_counts_schema = SCHEMA(S, "counts of GPUs", gpu_counts_fields);
#undef S
#define S struct answer_storage
static const struct field storage_fields[] = {
    FIELD(1, S, file_bytes, "Size of the database."),
    FIELD(2, S, free_bytes, "Free space on its disk."),
    FIELD(3, S, commits, "Commits since the start."),
    FIELD(4, S, commit_us_mean, "Mean time of a commit."),
    FIELD(5, S, commit_us_max, "Longest time of a commit."),
    FIELD(6, S, problem, "Why nothing can be stored; null: it can."),
};
static const struct schema storage_schema = SCHEMA(S, "storage", storage_fields);
#undef S
#define S struct answer_scheduler
static const struct field scheduler_fields[] = {
    FIELD(1, S, passes, "Scheduling passes since the start."),
    FIELD(2, S, last_us, "Time of the last one."),
    FIELD(3, S, action_slices, "Slices in which actions on jobs were carried out."),
    FIELD(4, S, action_work_max, "The most work on them in one turn of the loop."),
};
static const struct schema scheduler_schema = SCHEMA(S, "the scheduler", scheduler_fields);
#undef S
#define S struct answer_limits
static const struct field limits_fields[] = {
    FIELD(1, S, max_array_size, "Elements of one array."),
    FIELD(2, S, max_jobs_per_user, "Live jobs of one user."),
    FIELD(3, S, max_queue_length, "Live jobs of the cluster."),
    FIELD(4, S, grace_s, "Seconds between the ending signal and the kill."),
};
static const struct schema limits_schema = SCHEMA(S, "limits", limits_fields);
#undef S
#define S struct answer_prices
static const struct field prices_fields[] = {
    FIELD(1, S, currency, "Currency of the prices."),
    FIELD(2, S, gpu_hour, "Price of a GPU for an hour."),
    FIELD(3, S, cpu_hour, "Price of a CPU for an hour."),
    FIELD(4, S, kwh, "Price of a kilowatt hour."),
    FIELD(5, S, co2_g_per_kwh, "Grams of CO2 for a kilowatt hour."),
};
static const struct schema prices_schema = SCHEMA(S, "prices", prices_fields);
#undef S
#define S struct answer_status
static const struct field status_fields[] = {
    FIELD(1, S, cluster, "Name of the cluster."),
    FIELD(2, S, version, "Version of the controller."),
    FIELD(3, S, uptime_ms, "How long it has run."),
    FIELD(4, S, user, "Who you are."),
    FIELD(5, S, admin, "You are an administrator."),
    FIELD_SUB(6, S, nodes, &answer_node_counts_schema, "Nodes."),
    FIELD_SUB(7, S, jobs, &answer_job_counts_schema, "Jobs: live ones now, ended ones since the beginning."),
    FIELD_SUB(8, S, gpus, &gpu_counts_schema, "GPUs."),
    FIELD(9, S, journal_seq, "Number of the last committed event."),
    FIELD_SUB(10, S, storage, &storage_schema, "Storage."),
    FIELD_SUB(11, S, scheduler, &scheduler_schema, "The scheduler."),
    FIELD_SUB(12, S, limits, &limits_schema, "What bounds a submit."),
    FIELD(13, S, requests, "Requests since the start."),
    FIELD(14, S, listen, "Address the controller listens on; null: only its own machine."),
    FIELD_SUB(16, S, prices, &prices_schema, "Prices for reports."),
    FIELD_LIST(15, S, warnings, "What an administrator should look at."),
};
const struct schema answer_status_schema = SCHEMA(S, "the status", status_fields);
#undef S
#define S struct answer_reload
static const struct field reload_fields[] = {
    FIELD(1, S, file, "The configuration file."),
    FIELD_LIST(2, S, warnings, "Entries that are no longer in the file and still exist."),
};
const struct schema answer_reload_schema = SCHEMA(S, "the configuration was read again", reload_fields);
#undef S

#define S struct answer_upgrade
static const struct field upgrade_fields[] = {
    FIELD(1, S, version, "Version of the controller."),
    FIELD(2, S, level, "Feature level of the journal."),
    FIELD(3, S, newest_level, "Feature level that this version can write."),
    FIELD(4, S, readable_since, "The oldest release that can read the journal."),
    FIELD(5, S, finished, "The upgrade is finished."),
};
const struct schema answer_upgrade_schema = SCHEMA(S, "the upgrade", upgrade_fields);
#undef S

#define S struct answer_audit_record
static const struct field audit_record_fields[] = {
    FIELD(1, S, at_ms, "When."),
    FIELD(2, S, who, "The user; null: not authenticated, or an agent."),
    FIELD(3, S, from, "The address, or unix."),
    FIELD(4, S, what, "Method and path, or login."),
    FIELD(5, S, on, "What it was about, shortened."),
    FIELD(6, S, status, "Of the answer; 499: the client left before it."),
};
const struct schema answer_audit_record_schema = SCHEMA(S, "a record of the audit log", audit_record_fields);
#undef S
static const struct field audit_fields[] = {
    FIELD_LIST_SUB(1, struct answer_audit, records, &answer_audit_record_schema, "The newest first."),
};
const struct schema answer_audit_schema = SCHEMA(struct answer_audit, "records of the audit log", audit_fields);

// --- tokens ---

#define S struct answer_token_created
static const struct field token_created_fields[] = {
    FIELD(1, S, token, "The token. It is shown only now."),
    FIELD(2, S, id, "Its id, for revoking it."),
    FIELD(3, S, expires_ms, "Valid until."),
};
const struct schema answer_token_created_schema = SCHEMA(S, "a new token", token_created_fields);
#undef S
const char *const answer_token_words[] = {"agent", "user", NULL};
#define S struct answer_secret
static const struct field secret_fields[] = {
    FIELD(1, S, name, "Name."),
    FIELD(2, S, user, "User whose it is; null: a project's."),
    FIELD(3, S, project, "Project whose it is; null: a user's."),
    FIELD(4, S, version, "Greater each time a secret of this name is stored, also after it was deleted."),
    FIELD(5, S, set_ms, "When it was stored last (ms since 1970)."),
    FIELD(6, S, by, "By whom."),
};
static const struct schema secret_schema = SCHEMA(S, "a secret", secret_fields);
#undef S
static const struct field secrets_fields[] = {
    FIELD_LIST_SUB(1, struct answer_secrets, secrets, &secret_schema, "Secrets, without their values."),
    FIELD(2, struct answer_secrets, key_lost,
          "Null unless the key they are encrypted with is gone: what to do about it."),
};
const struct schema answer_secrets_schema = SCHEMA(struct answer_secrets, "secrets", secrets_fields);

#define S struct answer_token
static const struct field token_fields[] = {
    FIELD(1, S, id, "Its id."),
    FIELD_WORDS(2, S, kind, answer_token_words, "For an agent to join, or for a user."),
    FIELD(3, S, user, "User it stands for."),
    FIELD(4, S, by, "Who created it."),
    FIELD(5, S, expires_ms, "Valid until."),
    FIELD(6, S, used, "An agent has joined with it."),
    FIELD(7, S, node, "Node that may use it, or has."),
    FIELD_LIST(8, S, scopes, "What a user's token allows: read, submit, admin."),
    FIELD(9, S, project, "Project whose jobs it is limited to; null: all."),
};
static const struct schema token_schema = SCHEMA(S, "a token", token_fields);
#undef S
static const struct field tokens_fields[] = {
    FIELD_LIST_SUB(1, struct answer_tokens, tokens, &token_schema, "Tokens, without their secrets.")};
const struct schema answer_tokens_schema = SCHEMA(struct answer_tokens, "tokens", tokens_fields);
#define S struct answer_join
static const struct field join_fields[] = {
    FIELD(1, S, certificate, "Certificate of the node (PEM)."),
    FIELD(2, S, ca, "Certificate of the cluster's authority (PEM)."),
    FIELD(3, S, name, "Name of the node."),
    FIELD(4, S, cluster, "Name of the cluster."),
};
const struct schema answer_join_schema = SCHEMA(S, "a joined node", join_fields);
#undef S

// --- sharing ---

#define S struct answer_share
static const struct field share_fields[] = {
    FIELD(1, S, project, "Project."),
    FIELD(2, S, parent, "Parent in the tree."),
    FIELD(3, S, quota_milligpu, "GPUs that are guaranteed to it, in thousandths."),
    FIELD(4, S, share_milligpu, "GPUs that it should have now, in thousandths."),
    FIELD(5, S, used_milligpu, "GPUs that its jobs hold, in thousandths."),
    FIELD(6, S, queued_milligpu, "GPUs that its pending jobs ask for, in thousandths."),
    FIELD(7, S, used_cpus, "CPUs that its jobs hold."),
    FIELD(8, S, queued_cpus, "CPUs that its pending jobs ask for."),
    FIELD(9, S, running, "Running jobs."),
    FIELD(10, S, pending, "Pending jobs."),
    FIELD(11, S, deleting,
          "It is being deleted: no job starts in it, and it is gone when its last job has ended."),
};
static const struct schema share_schema = SCHEMA(S, "a project's share", share_fields);
#undef S
#define S struct answer_shares
static const struct field shares_fields[] = {
    FIELD(1, S, total_milligpu, "GPUs of nodes that are up and not drained, in thousandths."),
    FIELD(2, S, total_cpus, "CPUs of these nodes."),
    FIELD_LIST_SUB(3, S, projects, &share_schema, "Projects."),
};
const struct schema answer_shares_schema = SCHEMA(S, "shares", shares_fields);
#undef S
static const struct field projects_fields[] = {
    FIELD_LIST_SUB(1, struct answer_projects, projects, &entity_project_schema, "All projects.")};
const struct schema answer_projects_schema = SCHEMA(struct answer_projects, "projects", projects_fields);
static const struct field partitions_fields[] = {
    FIELD_LIST_SUB(1, struct answer_partitions, partitions, &entity_partition_schema, "All partitions.")};
const struct schema answer_partitions_schema = SCHEMA(struct answer_partitions, "partitions", partitions_fields);
static const struct field qos_fields[] = {
    FIELD_LIST_SUB(1, struct answer_qos_list, qos, &entity_qos_schema, "All QoS.")};
const struct schema answer_qos_schema = SCHEMA(struct answer_qos_list, "QoS", qos_fields);
static const struct field licenses_fields[] = {
    FIELD_LIST_SUB(1, struct answer_licenses, licenses, &entity_license_schema, "All licenses.")};
const struct schema answer_licenses_schema = SCHEMA(struct answer_licenses, "licenses", licenses_fields);
static const struct field reservations_fields[] = {FIELD_LIST_SUB(
    1, struct answer_reservations, reservations, &entity_reservation_schema, "All reservations.")};
const struct schema answer_reservations_schema =
    SCHEMA(struct answer_reservations, "reservations", reservations_fields);
static const struct field done_fields[] = {FIELD(1, struct answer_done, done, "Always true.")};
const struct schema answer_done_schema = SCHEMA(struct answer_done, "a change", done_fields);
#define S struct answer_changed
static const struct field changed_fields[] = {
    FIELD(1, S, done, "Always true."),
    FIELD_LIST(2, S, warnings, "What may not be as it was meant."),
};
const struct schema answer_changed_schema = SCHEMA(S, "a change", changed_fields);
#undef S
#define S struct answer_route
static const struct field route_fields[] = {
    FIELD(1, S, method, "Method."),
    FIELD(2, S, path, "Path; {job} is a job as 12 or 12_3."),
    FIELD(3, S, help, "What it does."),
};
const struct schema answer_route_schema = SCHEMA(S, "a route", route_fields);
#undef S
