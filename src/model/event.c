// Owns the table of events.
#include "model/event.h"

#include <assert.h>
#include <errno.h>

const char *const event_end_cause_words[] = {"exit",      "cancel",        "timeout", "preempt",  "node_fail",
                                             "requeue",   "out_of_memory", "launch",  "deadline", "gpu",
                                             "unhealthy", "idle",          NULL};
static_assert(sizeof event_end_cause_words / sizeof *event_end_cause_words == END_CAUSE_COUNT + 1,
              "a word per cause");

#define S struct event_key
static const struct field key_fields[] = {
    FIELD(1, S, hash, "Keyed hash of user and key."),
    FIELD(2, S, spec_hash, "Keyed hash of the spec as it was sent."),
    FIELD(3, S, expires_ms, "When the key is forgotten."),
};
static const struct schema key_schema = SCHEMA(S, "key", key_fields);
#undef S
#define S struct event_job_submitted
static const struct field submitted_fields[] = {
    FIELD(1, S, id, "Job id; of the first element of an array."),
    FIELD_SUB(2, S, spec, &spec_schema, "What was asked for."),
    FIELD(3, S, key_text, "Idempotency key, as an earlier release wrote it."),
    FIELD_SUB(4, S, key, &key_schema, "Idempotency key."),
    FIELD(5, S, submit_ms, "When it was submitted, of a job adopted after a restore."),
    FIELD(6, S, created, "Elements of the array that exist at once; 0: all."),
};
static const struct schema submitted_schema = SCHEMA(S, "job_submitted", submitted_fields);
#undef S
#define S struct event_array_continued
static const struct field array_continued_fields[] = {
    FIELD(1, S, id, "Id of the array."),
    FIELD(2, S, created, "Elements that exist now."),
    FIELD(3, S, limited, "Elements that a changed limit is applied to."),
};
static const struct schema array_continued_schema = SCHEMA(S, "array_continued", array_continued_fields);
#undef S
#define S struct event_dependents_judged
static const struct field dependents_judged_fields[] = {
    FIELD(1, S, target, "The job or array they wait for."),
    FIELD(2, S, array, "It is an array as a whole."),
    FIELD(3, S, upto, "Jobs with ids up to this were looked at."),
};
static const struct schema dependents_judged_schema =
    SCHEMA(S, "dependents_judged", dependents_judged_fields);
#undef S
#define S struct event_job
static const struct field job_fields[] = {
    FIELD(1, S, id, "Job id."),
    FIELD(2, S, by, "Who did it."),
    FIELD(3, S, by_admin, "An administrator did it."),
    FIELD(4, S, reason, "Why."),
};
static const struct schema job_schema = SCHEMA(S, "job", job_fields);
#undef S
#define S struct event_job_updated
static const struct field updated_fields[] = {
    FIELD(1, S, id, "Job id."),
    FIELD_SUB(2, S, spec, &spec_schema, "What is asked for now."),
    FIELD(3, S, by, "Who did it."),
};
static const struct schema updated_schema = SCHEMA(S, "job_updated", updated_fields);
#undef S
#define S struct event_job_placed
static const struct field placed_fields[] = {
    FIELD(1, S, id, "Job id."),
    FIELD(2, S, attempt, "Attempt, from 1."),
    FIELD_LIST_SUB(3, S, parts, &job_part_schema, "What it gets, by node."),
    FIELD(4, S, time_limit_s, "Time limit."),
    FIELD(5, S, partition, "Partition it runs in, of several it may have."),
    FIELD(6, S, epoch, "Epoch of the controller that placed it."),
    FIELD(7, S, placed_seq, "Event that placed it, of an attempt adopted after a restore."),
    FIELD(8, S, agent_id, "Its number on the node, where that is another."),
    FIELD(9, S, start_ms, "When it was started, of an attempt adopted after a restore."),
    FIELD(10, S, reason, "Why it is there without having been scheduled."),
    FIELD(11, S, optional, "A worker beyond the minimum of its elastic job: it gives way to others."),
    FIELD(103, S, generation, "Generation of the membership that a worker adopted after a restore knows."),
};
static const struct schema placed_schema = SCHEMA(S, "job_placed", placed_fields);
#undef S
#define S struct promised_node
static const struct field promised_node_fields[] = {
    FIELD(1, S, node, "Name of the node."),
    FIELD(2, S, tasks, "Tasks that it will run there."),
    FIELD(4, S, gpus, "GPUs there, of a job that asks for GPUs in all; else 0."),
    FIELD(3, S, part, "Which part of a job with several shapes; 0: the first."),
};
static const struct schema promised_node_schema = SCHEMA(S, "promised_node", promised_node_fields);
#undef S
#define S struct event_job_promised
static const struct field promised_fields[] = {
    FIELD(1, S, id, "Job id."),
    FIELD(2, S, start_ms, "When it will start at the latest; 0: not known any more."),
    FIELD(3, S, partition, "The partition it will start in."),
    FIELD_LIST_SUB(4, S, nodes, &promised_node_schema, "Where."),
    FIELD(5, S, reason, "Why an earlier promise could not be kept."),
};
static const struct schema promised_schema = SCHEMA(S, "job_promised", promised_fields);
#undef S
#define S struct event_part_adopted
static const struct field part_adopted_fields[] = {
    FIELD(1, S, id, "Job id."),
    FIELD(2, S, attempt, "Attempt that the part belongs to."),
    FIELD(3, S, place, "Its place among the parts of the job, from 0."),
    FIELD_SUB(4, S, part, &job_part_schema, "What it holds on its node."),
};
static const struct schema part_adopted_schema = SCHEMA(S, "part_adopted", part_adopted_fields);
#undef S
#define S struct event_job_adopted
static const struct field adopted_fields[] = {
    FIELD(1, S, id, "Job id."),
    FIELD(2, S, attempt, "Attempt of the job."),
    FIELD(3, S, time_limit_s, "Time limit."),
    FIELD(4, S, partition, "Partition it runs in, of several it may have."),
    FIELD(5, S, agent_id, "Its number on its nodes, where that is another."),
    FIELD(6, S, start_ms, "When it was started."),
    FIELD(7, S, begin_ms, "Workers that no node has reported by then are started."),
    FIELD(8, S, texts_lost, "Its script and environment are lost: it can start no more workers."),
    FIELD(9, S, reason, "Why it is there without having been scheduled."),
};
static const struct schema adopted_schema = SCHEMA(S, "job_adopted", adopted_fields);
#undef S
#define S struct placed_worker
static const struct field placed_worker_fields[] = {
    FIELD(1, S, number, "Number of the worker."),
    FIELD(2, S, attempt, "Its attempt."),
    FIELD_SUB(3, S, part, &job_part_schema, "What it gets."),
    FIELD(4, S, id, "Job id of the worker."),
    FIELD_LIST_SUB(5, S, more, &job_part_schema, "What it gets on further nodes."),
};
static const struct schema placed_worker_schema = SCHEMA(S, "placed_worker", placed_worker_fields);
#undef S
#define S struct event_workers_placed
static const struct field workers_placed_fields[] = {
    FIELD(1, S, id, "Job id."),
    FIELD(2, S, attempt, "Attempt of the job, from 1."),
    FIELD_LIST_SUB(3, S, workers, &placed_worker_schema, "What each worker of the minimum gets."),
    FIELD(4, S, time_limit_s, "Time limit."),
    FIELD(5, S, partition, "Partition it runs in, of several it may have."),
    FIELD(6, S, epoch, "Epoch of the controller that placed it."),
};
static const struct schema workers_placed_schema = SCHEMA(S, "workers_placed", workers_placed_fields);
#undef S
#define S struct event_worker_restarted
static const struct field worker_restarted_fields[] = {
    FIELD(1, S, id, "Job id of the worker."),
    FIELD(2, S, attempt, "Its new attempt."),
    FIELD(3, S, begin_ms, "It is started at this time."),
    FIELD(4, S, time_limit_s, "Time limit."),
    FIELD(5, S, epoch, "Epoch of the controller that restarted it."),
    FIELD(6, S, reason, "In words."),
    FIELD(7, S, job, "The job it belongs to."),
};
static const struct schema worker_restarted_schema = SCHEMA(S, "worker_restarted", worker_restarted_fields);
#undef S
#define S struct event_job_resized
static const struct field resized_fields[] = {
    FIELD(1, S, id, "Job id."),
    FIELD(2, S, workers_min, "Least workers."),
    FIELD(3, S, workers_max, "Most workers."),
    FIELD(4, S, added, "New workers."),
    FIELD(5, S, by, "Who did it."),
    FIELD(6, S, first_id, "Job id of the first new worker; the others follow."),
    FIELD(7, S, component, "Component whose size it is."),
    FIELD(103, S, begin_ms, "The new workers are not started before this time."),
};
static const struct schema resized_schema = SCHEMA(S, "job_resized", resized_fields);
#undef S
#define S struct worker_rank
static const struct field worker_rank_fields[] = {
    FIELD(1, S, number, "Number of the worker."),
    FIELD(2, S, rank, "The lowest is given back first."),
    FIELD(3, S, idle, "It has nothing to do: it is given back before all that have."),
};
const struct schema event_worker_rank_schema = SCHEMA(S, "the rank of a worker", worker_rank_fields);
#undef S
#define S struct event_workers_ranked
static const struct field ranked_fields[] = {
    FIELD(1, S, id, "Job id."),
    FIELD_LIST_SUB(2, S, ranks, &event_worker_rank_schema, "Ranks of the workers."),
    FIELD(3, S, by, "Who did it."),
};
static const struct schema ranked_schema = SCHEMA(S, "workers_ranked", ranked_fields);
#undef S
#define S struct event_job_started
static const struct field started_fields[] = {
    FIELD(1, S, id, "Job id."),
    FIELD(2, S, attempt, "Attempt."),
    FIELD(3, S, node, "Node that reported it."),
    FIELD(4, S, cpu_ids, "The node's CPUs that it was given."),
    FIELD(5, S, first,
          "The first of its array or of its job's workers; set where somebody is notified of it."),
};
static const struct schema started_schema = SCHEMA(S, "job_started", started_fields);
#undef S
#define S struct event_job_health
static const struct field health_fields[] = {
    FIELD(1, S, id, "Job id."),
    FIELD(2, S, attempt, "Attempt."),
    FIELD(3, S, node, "Node that says so."),
    FIELD_WORDS_OPEN(4, S, health, job_health_words,
                     "Whether its program is ready: starting, ready, sick, or idle: it will be closed soon."),
    FIELD(5, S, reason, "What its health check answered, where it failed."),
};
static const struct schema health_schema = SCHEMA(S, "job_health", health_fields);
#undef S
#define S struct event_job_ending
static const struct field ending_fields[] = {
    FIELD(1, S, id, "Job id."),
    FIELD(2, S, attempt, "Attempt."),
    FIELD_WORDS_OPEN(3, S, cause, event_end_cause_words, "Why it is ended."),
    FIELD(4, S, by, "Who ended it, or the job it makes room for."),
    FIELD(5, S, reason, "In words."),
    FIELD(6, S, signal, "First signal."),
    FIELD(7, S, grace_s, "Time before it is killed."),
    FIELD(8, S, hold, "Held when it is queued again."),
    FIELD(9, S, exit_code, "Exit code of an allocation that is given back."),
    FIELD(10, S, exit_signal, "Signal that ended what it was for."),
    FIELD(11, S, claim, "By what the other job takes it: 0 its due, 1 its quota, 2 beyond its share."),
    FIELD(12, S, share, "Share of its project when it had to make room."),
    FIELD(13, S, by_share, "Share of the other job's project then."),
};
static const struct schema ending_schema = SCHEMA(S, "job_ending", ending_fields);
#undef S
#define S struct event_part_ended
static const struct field part_ended_fields[] = {
    FIELD(1, S, id, "Job id."),
    FIELD(2, S, attempt, "Attempt."),
    FIELD(3, S, node, "Node."),
    FIELD_WORDS_OPEN(4, S, cause, event_end_cause_words, "How it ended there."),
    FIELD(5, S, exit_code, "Exit code."),
    FIELD(6, S, exit_signal, "Signal that ended it."),
    FIELD(7, S, reason, "In words."),
    FIELD_SUB(8, S, usage, &usage_schema, "What it used there."),
    FIELD(9, S, launch_failed, "The node could not launch it, for reasons of its own; it never ran."),
};
static const struct schema part_ended_schema = SCHEMA(S, "part_ended", part_ended_fields);
#undef S
#define S struct event_job_ended
static const struct field ended_fields[] = {
    FIELD(1, S, id, "Job id."),
    FIELD(2, S, attempt, "Attempt; 0: never started."),
    FIELD_WORDS(3, S, state, job_state_words, "Final state."),
    FIELD(4, S, exit_code, "Exit code."),
    FIELD(5, S, exit_signal, "Signal that ended it."),
    FIELD(6, S, reason, "In words."),
    FIELD(7, S, by, "Who ended it."),
    FIELD(8, S, array_elements,
          "The last of its array, which had so many; set where somebody is notified of it."),
    FIELD(9, S, array_completed, "How many of them completed."),
};
static const struct schema ended_schema = SCHEMA(S, "job_ended", ended_fields);
#undef S
#define S struct event_job_requeued
static const struct field requeued_fields[] = {
    FIELD(1, S, id, "Job id."),
    FIELD(2, S, attempt, "The attempt that ended."),
    FIELD_WORDS_OPEN(3, S, cause, event_end_cause_words, "Why."),
    FIELD(4, S, by, "Who did it."),
    FIELD(5, S, reason, "In words."),
    FIELD(6, S, hold, "Held afterwards."),
    FIELD(7, S, begin_ms, "Not before this time."),
    FIELD(8, S, uncounted, "Not counted as an attempt: a node could not launch it."),
    FIELD(9, S, retry, "Its program failed and is run again."),
};
static const struct schema requeued_schema = SCHEMA(S, "job_requeued", requeued_fields);
#undef S
#define S struct step_part
static const struct field step_part_fields[] = {
    FIELD(1, S, node, "Node."),
    FIELD_LIST(2, S, ranks, "Ranks of its tasks there."),
    FIELD_LIST(3, S, cpus, "CPUs, counted among the job's there."),
    FIELD(4, S, memory_bytes, "Memory."),
    FIELD_LIST_SUB(5, S, gpus, &gpu_grant_schema, "GPUs."),
    FIELD(6, S, owns_gpus, "No other step may use these GPUs."),
    FIELD_LIST(7, S, task_gpus, "By task, which of the GPUs it sees: a mask."),
};
static const struct schema step_part_schema = SCHEMA(S, "step_part", step_part_fields);
#undef S
#define S struct step_end
static const struct field step_end_fields[] = {
    FIELD(1, S, id, "Job id."),
    FIELD(2, S, attempt, "Attempt."),
    FIELD(3, S, step, "Number of the step."),
    FIELD(4, S, node, "Node."),
    FIELD_WORDS(5, S, cause, event_end_cause_words, "How it ended there."),
    FIELD(6, S, exit_code, "Highest exit code."),
    FIELD(7, S, exit_signal, "Signal that ended it."),
    FIELD(8, S, task, "Rank of the task that failed."),
    FIELD(9, S, error, "In words."),
    FIELD_LIST(10, S, exits, "Wait statuses of the tasks."),
    FIELD_SUB(11, S, usage, &usage_schema, "What it used there."),
    FIELD(12, S, output_bytes, "Bytes its tasks printed to streams; 0: not known."),
    FIELD(13, S, epoch, "Start of the controller that made the step."),
    FIELD(14, S, made_seq, "Number of the event that created the step."),
};
const struct schema event_step_end_schema = SCHEMA(S, "step_end", step_end_fields);
#undef S
#define S struct event_step_ending
static const struct field step_ending_fields[] = {
    FIELD(1, S, id, "Job id."),
    FIELD(2, S, attempt, "Attempt."),
    FIELD(3, S, step, "Number of the step."),
    FIELD(4, S, signal, "First signal."),
    FIELD(5, S, grace_s, "Time before it is killed."),
    FIELD(6, S, by, "Who ended it."),
    FIELD(7, S, reason, "Why."),
};
static const struct schema step_ending_schema = SCHEMA(S, "step_ending", step_ending_fields);
#undef S
#define S struct event_step
static const struct field step_fields[] = {
    FIELD(1, S, id, "Job id."),
    FIELD(2, S, attempt, "Attempt."),
    FIELD(3, S, step, "Number of the step."),
    FIELD(4, S, name, "Name."),
    FIELD(5, S, nodes, "Nodes."),
    FIELD(6, S, tasks, "Tasks."),
    FIELD(7, S, exit_code, "Highest exit code."),
    FIELD(8, S, exit_signal, "Signal that ended it."),
    FIELD_WORDS_OPEN(9, S, state, job_state_words, "State."),
    FIELD_SUB(10, S, usage, &usage_schema, "What it used."),
    FIELD(11, S, cpus, "CPUs."),
    FIELD(12, S, key, "Idempotency key."),
    FIELD_LIST_SUB(13, S, parts, &step_part_schema, "What it has, by node."),
    FIELD_SUB(14, S, command, &message_exec_schema, "What runs."),
    FIELD(15, S, environment_id, "Text with its environment."),
    FIELD_LIST_SUB(16, S, ends, &event_step_end_schema, "How it ended, by node."),
    FIELD(17, S, environment_bytes, "Its size."),
    FIELD(18, S, lease_s, "Ends when its client was not connected for so long; 0: it stays."),
    FIELD(19, S, epoch, "Start of the controller that made it: numbers may come again after a restore."),
    FIELD(20, S, made_seq, "Number of the event that created it, where that is another one."),
    FIELD(21, S, adopted, "Created by a state that is lost: its nodes have described it."),
};
static const struct schema step_schema = SCHEMA(S, "step", step_fields);
#undef S
#define S struct event_node_joined
static const struct field joined_fields[] = {
    FIELD_SUB(1, S, node, &node_schema, "The node."),
    FIELD(2, S, fingerprint, "Fingerprint of its certificate."),
};
static const struct schema joined_schema = SCHEMA(S, "node_joined", joined_fields);
#undef S
#define S struct event_node
static const struct field node_event_fields[] = {
    FIELD(1, S, name, "Node."),
    FIELD_WORDS(2, S, state, node_state_words, "State."),
    FIELD(3, S, reason, "Why."),
    FIELD(4, S, by, "Who did it."),
};
static const struct schema node_event_schema = SCHEMA(S, "node", node_event_fields);
#undef S
#define S struct event_node_launches
static const struct field node_launches_fields[] = {
    FIELD(1, S, name, "Node."),
    FIELD(2, S, failures, "Launches in a row that failed for the node's own reasons; 0: it is trusted again."),
    FIELD(3, S, retry_ms, "It gets no launches before this time; 0: it is tried again."),
    FIELD(4, S, reason, "Why the last one failed."),
    FIELD(5, S, by, "Who trusted it again."),
};
static const struct schema node_launches_schema = SCHEMA(S, "node_launches", node_launches_fields);
#undef S
#define SET(name, S, member, sub)                                                                  \
    static const struct field name##_fields[] = {FIELD_SUB(1, S, member, sub, "What is set."),     \
                                                 FIELD(2, S, by, "Who did it.")};                  \
    static const struct schema name##_schema = SCHEMA(S, #name, name##_fields)
SET(project_set, struct event_project_set, project, &entity_project_schema);
SET(partition_set, struct event_partition_set, partition, &entity_partition_schema);
SET(qos_set, struct event_qos_set, qos, &entity_qos_schema);
SET(reservation_set, struct event_reservation_set, reservation, &entity_reservation_schema);
SET(license_set, struct event_license_set, license, &entity_license_schema);
SET(policy_set, struct event_policy_set, policy, &policy_schema);
#undef SET
#define S struct event_name
static const struct field name_fields[] = {
    FIELD(1, S, name, "Name."),
    FIELD(2, S, by, "Who did it."),
};
static const struct schema name_schema = SCHEMA(S, "deleted", name_fields);
#undef S
#define S struct event_token
static const struct field token_fields[] = {
    FIELD(1, S, id, "Id of the token."),
    FIELD(2, S, hash, "Hash of its secret."),
    FIELD(3, S, user, "User it stands for."),
    FIELD(4, S, expires_ms, "Valid until."),
    FIELD(5, S, by, "Who did it."),
    FIELD(6, S, node, "Node that used it."),
    FIELD(7, S, fingerprint, "Fingerprint of the certificate it was used for."),
    FIELD(8, S, used_ms, "When it was used."),
    FIELD(9, S, scopes, "What it allows: 1 read, 2 submit, 4 admin, added; 0: all."),
    FIELD(10, S, project, "Project whose jobs it is limited to."),
};
static const struct schema token_schema = SCHEMA(S, "token", token_fields);
#undef S
#define S struct event_keys_init
static const struct field keys_init_fields[] = {FIELD(1, S, secret, "Secret that keys are hashed with.")};
static const struct schema keys_init_schema = SCHEMA(S, "keys_init", keys_init_fields);
#undef S
#define S struct event_key_imported
static const struct field key_imported_fields[] = {
    FIELD_SUB(1, S, key, &key_schema, "The key."),
    FIELD(2, S, user, "User whose key it is."),
    FIELD(3, S, id, "Job it was used for."),
    FIELD(4, S, count, "Elements of that job's array."),
};
static const struct schema key_imported_schema = SCHEMA(S, "key_imported", key_imported_fields);
#undef S
#define S struct event_keys_expired
static const struct field keys_expired_fields[] = {
    FIELD(1, S, before_ms, "Keys that expired before this time are gone.")};
static const struct schema keys_expired_schema = SCHEMA(S, "keys_expired", keys_expired_fields);
#undef S

#define S struct event_job_time_warning
static const struct field time_warning_fields[] = {
    FIELD(1, S, id, "Job."),
    FIELD(2, S, attempt, "Its attempt."),
    FIELD(3, S, percent, "How much of its time limit is used."),
};
static const struct schema time_warning_schema = SCHEMA(S, "job_time_warning", time_warning_fields);
#undef S

#define S struct event_level_set
static const struct field level_fields[] = {
    FIELD(1, S, level, "Feature level of the journal."),
    FIELD(2, S, by, "Who finished the upgrade."),
};
static const struct schema level_schema = SCHEMA(S, "level_set", level_fields);
#undef S

#define S struct event_controller_started
static const struct field controller_started_fields[] = {
    FIELD(1, S, epoch, "Number of this start, larger than all before."),
    FIELD(2, S, version, "Version of the program."),
};
static const struct schema controller_started_schema = SCHEMA(S, "controller_started", controller_started_fields);
#undef S
#define S struct event_restore_found
static const struct field restore_found_fields[] = {
    FIELD(1, S, node, "Node that knows of later events."),
    FIELD(2, S, lost_epoch, "Epoch of the newest event it knows of."),
    FIELD(3, S, lost_seq, "Number of that event."),
    FIELD(4, S, next_id, "The lowest number of new jobs."),
};
static const struct schema restore_found_schema = SCHEMA(S, "restore_found", restore_found_fields);
#undef S

#define S struct event_secret
static const struct field secret_fields[] = {
    FIELD(1, S, name, "Name of the secret."),
    FIELD(2, S, user, "User whose it is."),
    FIELD(3, S, project, "Project whose it is."),
    FIELD(4, S, version, "Version, from 1."),
    FIELD(5, S, value, "Number under which the encrypted value is kept."),
    FIELD(6, S, replaced, "Number of the value that it replaces or that is deleted."),
    FIELD(7, S, by, "Who did it."),
    FIELD(8, S, set_ms, "When, in snapshots."),
};
static const struct schema secret_schema = SCHEMA(S, "secret", secret_fields);
#undef S

#define S struct event_alert_rule
static const struct field alert_rule_fields[] = {
    FIELD_SUB(1, S, rule, &alert_rule_schema, "The rule."),
    FIELD(2, S, by, "Who set it."),
    FIELD(3, S, set_ms, "When."),
};
const struct schema event_alert_rule_schema = SCHEMA(S, "alert_rule", alert_rule_fields);
#undef S
#define S struct event_share
static const struct field share_fields[] = {
    FIELD(1, S, job, "The job."),
    FIELD(2, S, port, "The port that its program listens on."),
    FIELD(3, S, user, "The user who may use it."),
    FIELD(4, S, project, "The project whose members may."),
    FIELD(5, S, by, "Who shared it, or ended it."),
    FIELD(6, S, made_ms, "When it was shared."),
    FIELD(7, S, expires_ms, "Until when."),
};
const struct schema event_share_schema = SCHEMA(S, "share", share_fields);
#undef S
#define S struct event_volume
static const struct field volume_fields[] = {
    FIELD(1, S, name, "Name of the volume."),
    FIELD(2, S, user, "Its owner."),
    FIELD(3, S, project, "The project it is of."),
    FIELD(4, S, uid, "The owner's number."),
    FIELD(5, S, gid, "The owner's group."),
    FIELD(6, S, number, "Number of the volume."),
    FIELD(7, S, size_bytes, "How much it may hold; 0: no limit."),
    FIELD(8, S, mode, "Permissions of its folder."),
    FIELD(9, S, at, "Its folder, where that is not below the cluster's own."),
    FIELD_LIST(10, S, readers, "Users who may read it."),
    FIELD_LIST(11, S, writers, "Users who may write to it."),
    FIELD(12, S, by, "Who made, changed or deleted it."),
    FIELD(13, S, made_ms, "When it was made."),
};
const struct schema event_volume_schema = SCHEMA(S, "volume", volume_fields);
#undef S
#define S struct event_node_images
static const struct field node_images_fields[] = {
    FIELD(1, S, name, "Name of the node."),
    FIELD_LIST_SUB(2, S, images, &node_image_schema, "All that it holds."),
};
const struct schema event_node_images_schema = SCHEMA(S, "node_images", node_images_fields);
#undef S
#define S struct event_alert
static const struct field alert_fields[] = {
    FIELD(1, S, rule, "Name of the rule."),
    FIELD(2, S, subject, "The metric."),
    FIELD(3, S, value, "Its value when the alert was raised."),
    FIELD(4, S, raised_ms, "When it was raised."),
    FIELD(5, S, acknowledged_ms, "When somebody acknowledged it."),
    FIELD(6, S, by, "Who did."),
    FIELD(7, S, comment, "What they said."),
};
const struct schema event_alert_schema = SCHEMA(S, "alert", alert_fields);
#undef S

#define S struct event_user_set
static const struct field user_set_fields[] = {
    FIELD_SUB(1, S, account, &user_account_schema, "The account."),
    FIELD(2, S, by, "Who did it."),
    FIELD(3, S, value, "Number of its password's hash, in snapshots."),
    FIELD(4, S, version, "Version of the password, in snapshots."),
    FIELD(5, S, set_ms, "When, in snapshots."),
};
static const struct schema user_set_schema = SCHEMA(S, "user_set", user_set_fields);
#undef S
#define S struct event_user_removed
static const struct field user_removed_fields[] = {
    FIELD(1, S, name, "Name of the account."),
    FIELD(2, S, by, "Who did it."),
    FIELD(3, S, replaced, "Number of the password's hash that is removed."),
};
static const struct schema user_removed_schema = SCHEMA(S, "user_removed", user_removed_fields);
#undef S
#define S struct event_user_password
static const struct field user_password_fields[] = {
    FIELD(1, S, name, "Name of the account."),
    FIELD(2, S, version, "Version, from 1."),
    FIELD(3, S, value, "Number under which the encrypted hash is kept."),
    FIELD(4, S, replaced, "Number of the hash that it replaces."),
    FIELD(5, S, by, "Who did it."),
};
static const struct schema user_password_schema = SCHEMA(S, "user_password", user_password_fields);
#undef S
#define S struct event_session
static const struct field session_fields[] = {
    FIELD(1, S, id, "Id of the session."),
    FIELD(2, S, hash, "Hash of its secret."),
    FIELD(3, S, identity, "Who logged in."),
    FIELD(4, S, unix_user, "Unix user that the provider names."),
    FIELD(5, S, full_name, "The person's name."),
    FIELD(6, S, from, "Address."),
    FIELD(7, S, agent, "Program."),
    FIELD(8, S, begun_ms, "When it began."),
    FIELD(9, S, expires_ms, "When it ends at the latest."),
    FIELD(10, S, seen_ms, "When it was used last, within minutes."),
    FIELD(11, S, idle_s, "It ends when it was not used for this long."),
};
const struct schema event_session_schema = SCHEMA(S, "session", session_fields);
#undef S
#define S struct event_user_grant
static const struct field user_grant_fields[] = {
    FIELD(1, S, unix_user, "Unix user."),
    FIELD_WORDS(2, S, role, user_role_words, "Role that the provider's groups give."),
    FIELD_LIST(3, S, projects, "Projects that they make the user a member of."),
    FIELD(4, S, expires_ms, "Until when."),
    FIELD(5, S, by, "Who did it; null: its time has come."),
};
const struct schema event_user_grant_schema = SCHEMA(S, "user_grant", user_grant_fields);
#undef S
#define S struct event_session_seen
static const struct field session_seen_fields[] = {
    FIELD(1, S, id, "Id of the session."),
    FIELD(2, S, seen_ms, "When it was used."),
};
static const struct schema session_seen_schema = SCHEMA(S, "session_seen", session_seen_fields);
#undef S
#define S struct event_session_ended
static const struct field session_ended_fields[] = {
    FIELD(1, S, id, "Id of the session."),
    FIELD(2, S, by, "Who did it."),
};
static const struct schema session_ended_schema = SCHEMA(S, "session_ended", session_ended_fields);
#undef S

const char *const event_saved_words[] = {"draft", "template", "view", NULL};
#define S struct event_saved
static const struct field saved_fields[] = {
    FIELD_WORDS(1, S, kind, event_saved_words, "A draft, a template or a view."),
    FIELD(2, S, name, "Its name."),
    FIELD(3, S, user, "User whose it is."),
    FIELD(4, S, project, "Project whose it is."),
    FIELD(5, S, title, "As people call it."),
    FIELD_SUB(6, S, spec, &spec_schema, "What is asked for."),
    FIELD(7, S, script, "The script."),
    FIELD(8, S, query, "Filters, order and columns of a view."),
    FIELD(9, S, by, "Who did it."),
    FIELD(10, S, set_ms, "When, in snapshots."),
};
const struct schema event_saved_schema = SCHEMA(S, "saved", saved_fields);
#undef S

static const struct event_info infos[EVENT_TYPE_MAX] = {
    [EVENT_JOB_SUBMITTED] = {"job_submitted", &submitted_schema},
    [EVENT_JOB_HELD] = {"job_held", &job_schema},
    [EVENT_JOB_RELEASED] = {"job_released", &job_schema},
    [EVENT_JOB_UPDATED] = {"job_updated", &updated_schema},
    [EVENT_JOB_PLACED] = {"job_placed", &placed_schema},
    [EVENT_JOB_STARTED] = {"job_started", &started_schema},
    [EVENT_JOB_ENDING] = {"job_ending", &ending_schema},
    [EVENT_PART_ENDED] = {"part_ended", &part_ended_schema},
    [EVENT_JOB_ENDED] = {"job_ended", &ended_schema},
    [EVENT_JOB_REQUEUED] = {"job_requeued", &requeued_schema},
    [EVENT_JOB_SUSPENDED] = {"job_suspended", &job_schema},
    [EVENT_JOB_RESUMED] = {"job_resumed", &job_schema},
    [EVENT_STEP_STARTED] = {"step_started", &step_schema},
    [EVENT_STEP_ENDED] = {"step_ended", &step_schema},
    [EVENT_JOB_TIME_WARNING] = {"job_time_warning", &time_warning_schema, .level = 2},
    [EVENT_WORKERS_PLACED] = {"workers_placed", &workers_placed_schema, .level = 2},
    [EVENT_WORKER_RESTARTED] = {"worker_restarted", &worker_restarted_schema, .level = 2},
    [EVENT_JOB_RESIZED] = {"job_resized", &resized_schema, .level = 2},
    [EVENT_WORKERS_RANKED] = {"workers_ranked", &ranked_schema, .level = 2},
    [EVENT_JOB_HEALTH] = {"job_health", &health_schema, .level = 3},
    [EVENT_JOB_ADOPTED] = {"job_adopted", &adopted_schema, .level = 3},
    [EVENT_PART_ADOPTED] = {"part_adopted", &part_adopted_schema, .level = 3},
    [EVENT_STEP_ENDING] = {"step_ending", &step_ending_schema, .level = 2},
    [EVENT_NODE_JOINED] = {"node_joined", &joined_schema},
    [EVENT_NODE_STATE] = {"node_state", &node_event_schema},
    [EVENT_NODE_DRAINED] = {"node_drained", &node_event_schema},
    [EVENT_NODE_RESUMED] = {"node_resumed", &node_event_schema},
    [EVENT_NODE_REMOVED] = {"node_removed", &node_event_schema},
    [EVENT_NODE_LAUNCHES] = {"node_launches", &node_launches_schema, .level = 2},
    [EVENT_ARRAY_CONTINUED] = {"array_continued", &array_continued_schema, .level = 3},
    [EVENT_DEPENDENTS_JUDGED] = {"dependents_judged", &dependents_judged_schema, .level = 3},
    [EVENT_PROJECT_SET] = {"project_set", &project_set_schema},
    [EVENT_PROJECT_DELETED] = {"project_deleted", &name_schema},
    [EVENT_PARTITION_SET] = {"partition_set", &partition_set_schema},
    [EVENT_PARTITION_DELETED] = {"partition_deleted", &name_schema},
    [EVENT_QOS_SET] = {"qos_set", &qos_set_schema},
    [EVENT_QOS_DELETED] = {"qos_deleted", &name_schema},
    [EVENT_RESERVATION_SET] = {"reservation_set", &reservation_set_schema},
    [EVENT_RESERVATION_DELETED] = {"reservation_deleted", &name_schema},
    [EVENT_LICENSE_SET] = {"license_set", &license_set_schema},
    [EVENT_LICENSE_DELETED] = {"license_deleted", &name_schema},
    [EVENT_POLICY_SET] = {"policy_set", &policy_set_schema},
    [EVENT_TOKEN_CREATED] = {"token_created", &token_schema},
    [EVENT_TOKEN_USED] = {"token_used", &token_schema},
    [EVENT_TOKEN_REVOKED] = {"token_revoked", &token_schema},
    [EVENT_SECRET_SET] = {"secret_set", &secret_schema, .level = 2},
    [EVENT_SECRET_DELETED] = {"secret_deleted", &secret_schema, .level = 2},
    [EVENT_USER_SET] = {"user_set", &user_set_schema, .level = 3},
    [EVENT_USER_REMOVED] = {"user_removed", &user_removed_schema, .level = 3},
    [EVENT_USER_PASSWORD] = {"user_password", &user_password_schema, .level = 3},
    [EVENT_USER_GRANTED] = {"user_granted", &event_user_grant_schema, .level = 3},
    [EVENT_SESSION_BEGUN] = {"session_begun", &event_session_schema, .level = 3},
    [EVENT_SESSION_SEEN] = {"session_seen", &session_seen_schema, .level = 3},
    [EVENT_SESSION_ENDED] = {"session_ended", &session_ended_schema, .level = 3},
    [EVENT_SAVED_SET] = {"saved_set", &event_saved_schema, .level = 3},
    [EVENT_SAVED_DELETED] = {"saved_deleted", &event_saved_schema, .level = 3},
    [EVENT_ALERT_RULE_SET] = {"alert_rule_set", &event_alert_rule_schema, .level = 3},
    [EVENT_ALERT_RULE_DELETED] = {"alert_rule_deleted", &name_schema, .level = 3},
    [EVENT_ALERT_RAISED] = {"alert_raised", &event_alert_schema, .level = 3},
    [EVENT_ALERT_ACKNOWLEDGED] = {"alert_acknowledged", &event_alert_schema, .level = 3},
    [EVENT_ALERT_CLEARED] = {"alert_cleared", &event_alert_schema, .level = 3},
    [EVENT_SHARE_SET] = {"share_set", &event_share_schema, .level = 3},
    [EVENT_SHARE_ENDED] = {"share_ended", &event_share_schema, .level = 3},
    [EVENT_SERVICE_SET] = {"service_set", &event_service_schema, .level = 3},
    [EVENT_SERVICE_DELETED] = {"service_deleted", &event_service_schema, .level = 3},
    [EVENT_SERVICE_TOKEN_SET] = {"service_token_set", &event_service_token_schema, .level = 3},
    [EVENT_SERVICE_TOKEN_REVOKED] = {"service_token_revoked", &event_service_token_schema, .level = 3},
    [EVENT_VOLUME_SET] = {"volume_set", &event_volume_schema, .level = 3},
    [EVENT_VOLUME_DELETED] = {"volume_deleted", &event_volume_schema, .level = 3},
    [EVENT_JOB_PROMISED] = {"job_promised", &promised_schema, .level = 3},
    [EVENT_NODE_IMAGES] = {"node_images", &event_node_images_schema, .level = 3},
    [EVENT_PROVIDER_SET] = {"provider_set", &event_provider_schema, .level = 3},
    [EVENT_PROVIDER_REMOVED] = {"provider_removed", &name_schema, .level = 3},
    [EVENT_WANTED_NODE] = {"wanted_node", &wanted_node_schema, .level = 3},
    [EVENT_LEVEL_SET] = {"level_set", &level_schema, .level = 2},
    [EVENT_KEYS_INIT] = {"keys_init", &keys_init_schema, .level = 2},
    [EVENT_KEY_IMPORTED] = {"key_imported", &key_imported_schema, .level = 2},
    [EVENT_KEYS_EXPIRED] = {"keys_expired", &keys_expired_schema, .level = 2},
    [EVENT_CONTROLLER_STARTED] = {"controller_started", &controller_started_schema, .level = 2},
    [EVENT_RESTORE_FOUND] = {"restore_found", &restore_found_schema, .level = 2},
};

const struct event_info *event_info(enum event_type type) {
    return type < EVENT_TYPE_MAX && infos[type].name ? &infos[type] : NULL;
}

uint64_t event_job_id(const struct event *e) {
    // Every body about a job begins with its id.
    static_assert(
        offsetof(struct event_job_submitted, id) == 0 && offsetof(struct event_job, id) == 0 &&
            offsetof(struct event_job_updated, id) == 0 && offsetof(struct event_job_placed, id) == 0 &&
            offsetof(struct event_job_started, id) == 0 && offsetof(struct event_job_ending, id) == 0 &&
            offsetof(struct event_part_ended, id) == 0 && offsetof(struct event_job_ended, id) == 0 &&
            offsetof(struct event_job_requeued, id) == 0 && offsetof(struct event_step, id) == 0 &&
            offsetof(struct event_job_time_warning, id) == 0 && offsetof(struct event_job_promised, id) == 0 &&
            offsetof(struct event_step_ending, id) == 0 &&
            offsetof(struct event_workers_placed, id) == 0 &&
            offsetof(struct event_worker_restarted, id) == 0 && offsetof(struct event_job_resized, id) == 0 &&
            offsetof(struct event_workers_ranked, id) == 0 && offsetof(struct event_job_adopted, id) == 0 &&
            offsetof(struct event_job_health, id) == 0 && offsetof(struct event_part_adopted, id) == 0,
        "the id comes first");
    bool about_job = (e->type >= EVENT_JOB_SUBMITTED && e->type < EVENT_NODE_JOINED) ||
                     e->type == EVENT_JOB_RESIZED || e->type == EVENT_WORKERS_RANKED ||
                     e->type == EVENT_JOB_ADOPTED || e->type == EVENT_JOB_HEALTH ||
                     e->type == EVENT_PART_ADOPTED || e->type == EVENT_JOB_PROMISED;
    return about_job ? *(const uint64_t *)e->body : 0;
}

void event_encode(const struct event *e, struct buf *out) {
    const struct event_info *info = event_info(e->type);
    assert(info);
    schema_encode(info->schema, e->body, out);
}

int event_decode(enum event_type type, const void *data, size_t len, struct arena *a, struct event *e) {
    const struct event_info *info = event_info(type);
    if (!info)
        return -EPROTONOSUPPORT;
    void *body = arena_alloc(a, info->schema->size);
    int r = schema_decode(info->schema, data, len, a, body);
    if (r < 0)
        return r;
    const struct spec *spec = type == EVENT_JOB_SUBMITTED ? ((struct event_job_submitted *)body)->spec
                              : type == EVENT_JOB_UPDATED ? ((struct event_job_updated *)body)->spec
                                                          : NULL;
    if (spec && !spec_known(spec))
        return -EPROTONOSUPPORT;
    *e = (struct event){.type = type, .body = body};
    return 0;
}
