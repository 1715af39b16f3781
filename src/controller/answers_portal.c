// The tables of the answers that the portal's pages are made of.
#include "answers_portal.h"

#include "model/alert.h"

#define S struct answer_gpu_part
static const struct field gpu_part_fields[] = {
    FIELD(1, S, project, "Project of the job that holds it."),
    FIELD(2, S, milli, "How much of the GPU, in thousandths."),
};
static const struct schema gpu_part_schema = SCHEMA(S, "a part of a GPU that is held", gpu_part_fields);
#undef S

#define S struct answer_view_gpu
static const struct field view_gpu_fields[] = {
    FIELD(1, S, index, "Index on its node."),
    FIELD(2, S, model, "Model."),
    FIELD(3, S, memory_bytes, "Its memory."),
    FIELD(4, S, held_milli, "How much of it jobs hold, in thousandths."),
    FIELD(5, S, use_milli, "How busy it is, in thousandths; null: not measured.", .nullable = true),
    FIELD(6, S, memory_used_bytes, "Memory in use; null: not measured.", .nullable = true),
    FIELD(7, S, power_mw, "Power, in milliwatts; null: not measured.", .nullable = true),
    FIELD(8, S, temperature_c, "Temperature in degrees Celsius; null: not measured.", .nullable = true),
    FIELD(9, S, unhealthy, "Why it is out of use; null: it is not."),
    FIELD_LIST_SUB(10, S, parts, &gpu_part_schema, "Who holds it, job by job."),
};
const struct schema answer_view_gpu_schema = SCHEMA_GIVEN(S, "a GPU at a glance", view_gpu_fields);
#undef S

#define S struct answer_view_node
static const struct field view_node_fields[] = {
    FIELD(1, S, name, "Name."),
    FIELD_WORDS(2, S, state, answer_node_words, "State."),
    FIELD(3, S, reason, "Why it is down or drained."),
    FIELD(4, S, cpus, "CPUs."),
    FIELD(5, S, cpus_used, "CPUs that jobs hold."),
    FIELD(6, S, cpu_milli, "How busy its CPUs are, in thousandths of all; null: not measured.",
          .nullable = true),
    FIELD(7, S, memory_bytes, "Memory."),
    FIELD(8, S, memory_used_bytes, "Memory that jobs hold."),
    FIELD(9, S, memory_in_use_bytes, "Memory in use; null: not measured.", .nullable = true),
    FIELD(10, S, jobs, "Jobs on it."),
    FIELD_LIST_SUB(11, S, gpus, &answer_view_gpu_schema, "Its GPUs."),
};
const struct schema answer_view_node_schema = SCHEMA_GIVEN(S, "a node at a glance", view_node_fields);
#undef S

#define S struct answer_view_gpus
static const struct field view_gpus_fields[] = {
    FIELD(1, S, total, "GPUs of all nodes."),
    FIELD(2, S, allocated_milli, "What jobs hold of them, in thousandths."),
    FIELD(3, S, idle_allocated_milli, "What jobs hold and have not used for a minute, in thousandths."),
    FIELD(4, S, free_milli, "Free now: healthy GPUs of nodes that are up, in thousandths."),
    FIELD(5, S, out_of_use, "GPUs with a fault."),
    FIELD(6, S, measured, "GPUs whose use is measured."),
    FIELD(7, S, busy_milli, "Their total use, in thousandths of a GPU."),
    FIELD(8, S, power_mw, "Their total power, in milliwatts."),
};
static const struct schema view_gpus_schema = SCHEMA(S, "GPUs of the cluster", view_gpus_fields);
#undef S
#define S struct answer_view_cpus
static const struct field view_cpus_fields[] = {
    FIELD(1, S, total, "CPUs of all nodes."),
    FIELD(2, S, allocated, "CPUs that jobs hold."),
};
static const struct schema view_cpus_schema = SCHEMA(S, "CPUs of the cluster", view_cpus_fields);
#undef S
#define S struct answer_view_memory
static const struct field view_memory_fields[] = {
    FIELD(1, S, total_bytes, "Memory of all nodes."),
    FIELD(2, S, allocated_bytes, "Memory that jobs hold."),
};
static const struct schema view_memory_schema = SCHEMA(S, "memory of the cluster", view_memory_fields);
#undef S
static const struct field view_users_fields[] = {
    FIELD(1, struct answer_view_users, live, "Users with jobs that wait or run.")};
static const struct schema view_users_schema =
    SCHEMA(struct answer_view_users, "users with jobs", view_users_fields);
#define S struct answer_view_projects
static const struct field view_projects_fields[] = {
    FIELD(1, S, live, "Projects with jobs that wait or run."),
    FIELD(2, S, running, "Projects with jobs that run."),
    FIELD(3, S, pending, "Projects with jobs that wait."),
};
static const struct schema view_projects_schema = SCHEMA(S, "projects with jobs", view_projects_fields);
#undef S
#define S struct answer_view_alerts
static const struct field view_alerts_fields[] = {
    FIELD(1, S, open, "Alerts that nobody has acknowledged."),
    FIELD(2, S, acknowledged, "Alerts that hold and were acknowledged."),
};
static const struct schema view_alerts_schema = SCHEMA(S, "alerts at a glance", view_alerts_fields);
#undef S
#define S struct answer_view_wait
static const struct field view_wait_fields[] = {
    FIELD(1, S, hours, "Of jobs that started within this many hours."),
    FIELD(2, S, jobs, "Number of these jobs."),
    FIELD(3, S, median_ms, "Median of the time from when they could start to their start."),
    FIELD(4, S, p90_ms, "90th percentile of that time."),
};
static const struct schema view_wait_schema = SCHEMA(S, "waits", view_wait_fields);
#undef S
#define S struct answer_view_hour
static const struct field view_hour_fields[] = {
    FIELD(1, S, step_ms, "Interval between points."),
    FIELD_RAW(2, S, utilisation, "SeriesPoints", "Mean use of the GPUs, 0 to 1."),
    FIELD_RAW(3, S, power_watts, "SeriesPoints", "Total power of the GPUs."),
    FIELD_RAW(4, S, gpus_allocated, "SeriesPoints", "GPUs that jobs held."),
    FIELD_RAW(5, S, jobs_pending, "SeriesPoints", "Jobs that waited."),
    FIELD_RAW(6, S, jobs_running, "SeriesPoints", "Jobs that ran."),
};
static const struct schema view_hour_schema = SCHEMA(S, "the last hour", view_hour_fields);
#undef S

#define S struct answer_view_status
static const struct field view_status_fields[] = {
    FIELD_SUB(1, S, gpus, &view_gpus_schema, "GPUs."),
    FIELD_SUB(2, S, nodes, &answer_node_counts_schema, "Nodes."),
    FIELD_SUB(3, S, jobs, &answer_job_counts_schema, "Jobs by state; ended ones since the beginning."),
    FIELD_SUB(4, S, users, &view_users_schema, "Users."),
    FIELD_SUB(5, S, projects, &view_projects_schema, "Projects."),
    FIELD_SUB(6, S, wait, &view_wait_schema, "How long jobs waited."),
    FIELD_SUB(7, S, alerts, &view_alerts_schema, "Alerts."),
};
const struct schema answer_view_status_schema = SCHEMA(S, "the cluster's figures", view_status_fields);
#undef S

#define S struct answer_overview
static const struct field overview_fields[] = {
    FIELD(1, S, at_ms, "Time of this state."),
    FIELD(2, S, seq, "The newest event in it: the after= of /v1/live."),
    FIELD(3, S, cluster, "Name of the cluster."),
    FIELD(4, S, version, "Version of the controller."),
    FIELD_SUB(5, S, gpus, &view_gpus_schema, "GPUs."),
    FIELD_SUB(6, S, cpus, &view_cpus_schema, "CPUs."),
    FIELD_SUB(7, S, memory, &view_memory_schema, "Memory."),
    FIELD_SUB(8, S, nodes, &answer_node_counts_schema, "Nodes."),
    FIELD_SUB(9, S, jobs, &answer_job_counts_schema, "Jobs by state; ended ones since the beginning."),
    FIELD_SUB(10, S, users, &view_users_schema, "Users."),
    FIELD_SUB(11, S, projects, &view_projects_schema, "Projects."),
    FIELD_SUB(12, S, wait, &view_wait_schema, "How long jobs waited."),
    FIELD_SUB(13, S, last_hour, &view_hour_schema, "Charts of the last hour."),
    FIELD_SUB(14, S, shares, &answer_shares_schema, "Quota, share and use of each project."),
    FIELD_LIST_SUB(15, S, node_list, &answer_view_node_schema, "Nodes with their GPUs."),
    FIELD_SUB(16, S, alerts, &view_alerts_schema, "Alerts."),
};
const struct schema answer_overview_schema = SCHEMA(S, "the overview", overview_fields);
#undef S

#define S struct answer_at
static const struct field at_fields[] = {
    FIELD(1, S, time_ms, "The time."),
    FIELD(2, S, seq, "The newest event before it."),
    FIELD_SUB(3, S, states, &answer_states_schema, "Jobs by state; ended ones since the beginning."),
    FIELD_RAW(4, S, jobs, "JobRows", "Jobs that ran, then those that waited."),
    FIELD(5, S, complete, "The list is complete; false: it has only the first 2,000."),
    FIELD_LIST_SUB(6, S, nodes, &answer_view_node_schema, "Nodes, without measured values."),
    FIELD_SUB(7, S, shares, &answer_shares_schema, "Quota, share and use of each project."),
    FIELD(8, S, oldest_ms, "How far one can look back."),
};
const struct schema answer_at_schema = SCHEMA(S, "the state at a time", at_fields);
#undef S
#define S struct answer_analytics_group
static const struct field analytics_group_fields[] = {
    FIELD(1, S, name, "Project, user, or month as 2026-11 (UTC)."),
    FIELD(2, S, jobs, "Jobs that ran in the time."),
    FIELD(3, S, gpu_hours, "GPU hours that they held."),
    FIELD(4, S, cpu_hours, "CPU hours that they held."),
    FIELD(5, S, gpu_busy_hours, "GPU hours in use, of jobs that ended in the time."),
    FIELD(6, S, energy_kwh, "Energy of the GPUs, of jobs that ended in the time."),
    FIELD(7, S, cost, "At the prices of the configuration."),
    FIELD(8, S, wait_median_ms, "Median wait of those that started in the time."),
    FIELD_LIST(9, S, gpus,
               "GPUs held: a mean for each step from from_ms on; none by month, and of groups beyond a "
               "million points."),
    FIELD(10, S, gpu_ended_hours, "GPU hours that jobs that ended in the time held in all their life."),
};
const struct schema answer_analytics_group_schema = SCHEMA(S, "use of a group", analytics_group_fields);
#undef S
#define S struct answer_analytics
static const struct field analytics_fields[] = {
    FIELD(1, S, from_ms, "Start of the first step."),
    FIELD(2, S, to_ms, "End."),
    FIELD(3, S, step_ms, "Interval between points."),
    FIELD(4, S, complete, "All ended jobs were considered; false: only the newest 250,000."),
    FIELD_LIST_SUB(5, S, groups, &answer_analytics_group_schema, "Those that used the most GPU hours first."),
    FIELD(6, S, currency, "Of the cost; null: the configuration has no prices."),
};
const struct schema answer_analytics_schema = SCHEMA(S, "use over time", analytics_fields);
#undef S
#define S struct answer_delay
static const struct field delay_fields[] = {
    FIELD(1, S, job, "The job that waits."),
    FIELD(2, S, name, "Its name; null: it is not shown to you."),
    FIELD(3, S, user, "Its user; null: not shown to you."),
    FIELD(4, S, project, "Its project."),
    FIELD(5, S, before_ms, "Its start if the limit stays, at the latest."),
    FIELD(6, S, after_ms, "Its start with the new limit, at the latest; null: later than can be foreseen.",
          .nullable = true),
};
const struct schema answer_delay_schema = SCHEMA_GIVEN(S, "a start that moves", delay_fields);
#undef S
#define S struct answer_extension
static const struct field extension_fields[] = {
    FIELD(1, S, time_limit_s, "The limit that was asked about."),
    FIELD(2, S, end_ms, "When the job ends with it, at the latest."),
    FIELD(3, S, refused, "Why you may not set it; null: you may."),
    FIELD(4, S, delayed, "How many jobs would start later."),
    FIELD(5, S, earlier, "How many would start earlier."),
    FIELD(6, S, complete,
          "All waiting jobs were looked at; false: the queue is so long that only the next of it were."),
    FIELD_LIST_SUB(7, S, moved, &answer_delay_schema, "Those delayed most first, at most 100."),
};
const struct schema answer_extension_schema =
    SCHEMA(S, "what a longer time limit does to others", extension_fields);
#undef S
#define S struct answer_trial_run
static const struct field trial_run_fields[] = {
    FIELD(1, S, wait_mean_s, "Mean wait, in seconds; runs that were lost to preemption count as waiting."),
    FIELD(2, S, wait_median_s, "Median wait."),
    FIELD(3, S, wait_p95_s, "The wait that 95 % of the jobs do not exceed."),
    FIELD(4, S, gpu_hours, "GPU-hours of these jobs until to_ms; what preemption lost is not counted."),
    FIELD(5, S, preemptions, "How often one of its jobs was preempted."),
    FIELD(6, S, not_started, "Jobs that would not have run to their end until to_ms."),
};
static const struct schema trial_run_schema = SCHEMA(S, "one run of a trial", trial_run_fields);
#undef S
#define S struct answer_trial_project
static const struct field trial_project_fields[] = {
    FIELD(1, S, project, "Name."),
    FIELD(2, S, jobs, "Its jobs in the trial."),
    FIELD_SUB(3, S, now, &trial_run_schema, "With the rules in force."),
    FIELD_SUB(4, S, changed, &trial_run_schema, "With the changed rules."),
};
static const struct schema trial_project_schema = SCHEMA(S, "a project in a trial", trial_project_fields);
#undef S
#define S struct answer_policy_trial
static const struct field policy_trial_fields[] = {
    FIELD(1, S, from_ms, "Jobs that ended from this time on take part."),
    FIELD(2, S, to_ms, "Until this time."),
    FIELD(3, S, jobs, "How many they are."),
    FIELD(4, S, left_out, "Jobs that never ran, or have several kinds of workers."),
    FIELD(5, S, complete, "All of them took part; false: there are too many, and only the newest did."),
    FIELD(6, S, sooner, "Jobs that would have ended at least a minute sooner."),
    FIELD(7, S, later, "Jobs that would have ended at least a minute later."),
    FIELD_SUB(8, S, now, &trial_run_schema, "All projects, with the rules in force."),
    FIELD_SUB(9, S, changed, &trial_run_schema, "All projects, with the changed rules."),
    FIELD_LIST_SUB(10, S, projects, &trial_project_schema, "By project."),
};
const struct schema answer_policy_trial_schema = SCHEMA(S, "the trial of a policy", policy_trial_fields);
#undef S
#define S struct answer_alert
static const struct field alert_fields[] = {
    FIELD(1, S, rule, "Name of the rule."),
    FIELD(2, S, subject, "The metric."),
    FIELD(3, S, text, "As a sentence."),
    FIELD(4, S, value, "Its value when the alert was raised."),
    FIELD(5, S, now, "Its value now; null: none has come since the controller began.", .nullable = true),
    FIELD(6, S, raised_ms, "When it was raised."),
    FIELD(7, S, acknowledged_ms, "When it was acknowledged; null: it was not.", .nullable = true),
    FIELD(8, S, by, "Who acknowledged it; null: nobody."),
    FIELD(9, S, comment, "What they said."),
};
const struct schema answer_alert_schema = SCHEMA_GIVEN(S, "an alert", alert_fields);
#undef S
#define S struct answer_alert_rule_now
static const struct field alert_rule_fields[] = {
    FIELD(1, S, name, "Name."),
    FIELD(2, S, metric, "Metric; * stands for any one part."),
    FIELD_WORDS(3, S, when, alert_when_words, "above or below."),
    FIELD(4, S, value, "The value."),
    FIELD(5, S, for_s, "For so many seconds without a break."),
    FIELD(6, S, to, "Who is told; null: alerts_to of [notify]. Shown to operators and administrators."),
    FIELD(7, S, disabled, "It is not looked at."),
    FIELD(8, S, built_in, "There is a built-in rule of this name."),
    FIELD(9, S, set, "An administrator has set it."),
};
static const struct schema alert_rule_answer_schema = SCHEMA(S, "an alert rule in force", alert_rule_fields);
#undef S
#define S struct answer_alerts
static const struct field alerts_fields[] = {
    FIELD_LIST_SUB(1, S, alerts, &answer_alert_schema, "Alerts that hold now."),
    FIELD_LIST_SUB(2, S, rules, &alert_rule_answer_schema, "Rules in force."),
};
const struct schema answer_alerts_schema = SCHEMA(S, "alerts", alerts_fields);
#undef S
#define S struct answer_process
static const struct field process_fields[] = {
    FIELD(1, S, job, "The job it belongs to."),
    FIELD(2, S, pid, "Its number on the node."),
    FIELD(3, S, parent, "That of its parent."),
    FIELD(4, S, threads, "Threads."),
    FIELD(5, S, memory_bytes, "Memory it has resident."),
    FIELD(6, S, cpu_ms, "CPU time it has used."),
    FIELD(7, S, cpu_milli, "CPUs it keeps busy, in thousandths; null: nobody has looked a moment ago.",
          .nullable = true),
    FIELD(8, S, name, "Its program; null: only the job's user may see it."),
};
const struct schema answer_process_schema = SCHEMA_GIVEN(S, "a process of a job", process_fields);
#undef S
#define S struct answer_processes
static const struct field processes_fields[] = {
    FIELD_LIST_SUB(1, S, processes, &answer_process_schema, "Processes of jobs on the node, at most 1,024."),
    FIELD(2, S, left_out, "How many more there are."),
};
const struct schema answer_processes_schema = SCHEMA(S, "processes of a node", processes_fields);
#undef S
static const struct field node_log_fields[] = {
    FIELD(1, struct answer_node_log, log, "The newest lines, oldest first, about 128 KiB.")};
const struct schema answer_node_log_schema =
    SCHEMA(struct answer_node_log, "the log of a daemon", node_log_fields);
#define S struct answer_mcp
static const struct field mcp_fields[] = {
    FIELD(1, S, jsonrpc, "2.0"),
    FIELD_RAW(2, S, id, NULL, "That of the request."),
    FIELD_RAW(3, S, result, NULL,
              "As the protocol says; of tools/call: content, a list of texts, and isError."),
    FIELD_RAW(4, S, error, NULL, "In place of the result: code and message."),
};
const struct schema answer_mcp_schema = SCHEMA(S, "a JSON-RPC answer", mcp_fields);
#undef S
#define S struct answer_table_array
static const struct field table_array_fields[] = {
    FIELD(1, S, elements, "Elements that match."),
    FIELD_SUB(2, S, states, &answer_states_schema, "The same by state."),
};
const struct schema answer_table_array_schema = SCHEMA(S, "an array in the table", table_array_fields);
#undef S
#define S struct answer_table
static const struct field table_fields[] = {
    FIELD(1, S, seq, "The newest event in it: the after= of /v1/live."),
    FIELD(2, S, now_ms, "The controller's time."),
    FIELD_RAW(3, S, rows, "TableRows", "Jobs, in the order asked for."),
    FIELD(4, S, next, "The after= of the next page; null: there is none."),
    FIELD(5, S, total, "Number of rows of all pages."),
    FIELD(6, S, jobs, "Number of jobs of all pages, elements of arrays counted singly."),
    FIELD_SUB(7, S, states, &answer_states_schema, "The same by state."),
    FIELD(8, S, complete,
          "All ended jobs were considered; false: only the newest 250,000, or they are still being read."),
};
const struct schema answer_table_schema = SCHEMA(S, "a page of the job table", table_fields);
#undef S
