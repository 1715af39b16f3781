// The tables of a snapshot's records. Numbers of fields and records are never used again for something else.
#include "snapshot_records.h"

#define S struct rec_meta
static const struct field meta_fields[] = {FIELD(1, S, next_id, ""),
                                           FIELD(2, S, submitted, ""),
                                           FIELD(3, S, requeued, ""),
                                           FIELD(4, S, preempted, ""),
                                           FIELD_LIST(5, S, by_state, ""),
                                           FIELD(6, S, last_event_ms, ""),
                                           FIELD_SUB(7, S, policy, &policy_schema, ""),
                                           FIELD(8, S, level, ""),
                                           FIELD(9, S, key_secret, ""),
                                           FIELD(10, S, keys_swept_ms, ""),
                                           FIELD_LIST(20, S, epochs, ""),
                                           FIELD_LIST(21, S, epoch_seqs, ""),
                                           FIELD(22, S, unused_from, ""),
                                           FIELD(23, S, unused_to, ""),
                                           FIELD(24, S, restore_epoch, ""),
                                           FIELD(25, S, restore_ms, ""),
                                           FIELD_LIST(26, S, adopted, "")};
static const struct schema meta_schema = SCHEMA(S, "meta", meta_fields);
#undef S
#define S struct rec_user
static const struct field user_fields[] = {FIELD(1, S, name, "")};
static const struct schema user_schema = SCHEMA(S, "user", user_fields);
#undef S
#define S struct rec_usage
static const struct field rec_usage_fields[] = {FIELD(1, S, project, ""), FIELD(2, S, user, ""),
                                                FIELD(3, S, milli, ""), FIELD(4, S, at_ms, "")};
static const struct schema rec_usage_schema = SCHEMA(S, "usage", rec_usage_fields);
#undef S
#define S struct rec_node
static const struct field rec_node_fields[] = {
    FIELD(1, S, name, ""),     FIELD_SUB(2, S, node, &node_schema, ""),
    FIELD(3, S, state, ""),    FIELD(4, S, drained, ""),
    FIELD(5, S, removed, ""),  FIELD(6, S, reason, ""),
    FIELD(7, S, by, ""),       FIELD(8, S, fingerprint, ""),
    FIELD(9, S, reason_ms, ""), FIELD(10, S, busy_ms, ""),
    FIELD(11, S, launch_failures, ""), FIELD(12, S, retry_ms, ""), FIELD(13, S, launch_reason, "")};
static const struct schema rec_node_schema = SCHEMA(S, "node", rec_node_fields);
#undef S
#define S struct rec_entity
static const struct field rec_entity_fields[] = {FIELD(1, S, kind, ""), FIELD(2, S, name, ""),
                                                 FIELD(3, S, value, ""), FIELD(57, S, version, "")};
static const struct schema rec_entity_schema = SCHEMA(S, "thing", rec_entity_fields);
#undef S
#define S struct rec_token
static const struct field rec_token_fields[] = {FIELD(1, S, token, ""), FIELD(2, S, used, "")};
static const struct schema rec_token_schema = SCHEMA(S, "token", rec_token_fields);
#undef S
#define S struct rec_submission
static const struct field submission_fields[] = {FIELD(1, S, number, ""),
                                                 FIELD(2, S, id, ""),
                                                 FIELD(3, S, count, ""),
                                                 FIELD(4, S, submit_ms, ""),
                                                 FIELD(5, S, spec, ""),
                                                 FIELD(6, S, is_array, ""),
                                                 FIELD(7, S, limit, ""),
                                                 FIELD(8, S, ended, ""),
                                                 FIELD(9, S, ended_ok, ""),
                                                 FIELD(10, S, begun, ""),
                                                 FIELD(11, S, live, ""),
                                                 FIELD(12, S, cursor, ""),
                                                 FIELD_LIST_SUB(13, S, ranges, &array_range_schema, ""),
                                                 FIELD(14, S, has_array, ""),
                                                 FIELD(15, S, begun_ms, ""),
                                                 FIELD(16, S, uncreated, ""),
                                                 FIELD(17, S, unlimited, ""),
                                                 FIELD(18, S, creating, "")};
static const struct schema submission_schema = SCHEMA(S, "submission", submission_fields);
#undef S
#define S struct rec_worker
static const struct field rec_worker_fields[] = {FIELD(1, S, id, ""),          FIELD(2, S, rank, ""),
                                                 FIELD(3, S, flags, ""),       FIELD(4, S, state, ""),
                                                 FIELD(5, S, node, ""),        FIELD(6, S, exit_code, ""),
                                                 FIELD(7, S, exit_signal, ""), FIELD(8, S, component, "")};
static const struct schema rec_worker_schema = SCHEMA(S, "worker", rec_worker_fields);
#undef S
#define S struct rec_group
static const struct field rec_group_fields[] = {FIELD(1, S, id, ""),
                                                FIELD(2, S, generation, ""),
                                                FIELD(3, S, together, ""),
                                                FIELD(4, S, worst_state, ""),
                                                FIELD(5, S, worst_signal, ""),
                                                FIELD(6, S, worst_code, ""),
                                                FIELD_LIST_SUB(7, S, workers, &rec_worker_schema, ""),
                                                FIELD_LIST(8, S, together_more, "")};
static const struct schema rec_group_schema = SCHEMA(S, "group", rec_group_fields);
#undef S
#define S struct rec_judging
static const struct field rec_judging_fields[] = {FIELD(1, S, target, ""), FIELD_LIST(2, S, ids, "")};
static const struct schema rec_judging_schema = SCHEMA(S, "judging", rec_judging_fields);
#undef S
#define S struct rec_part
static const struct field rec_part_fields[] = {FIELD_SUB(1, S, part, &job_part_schema, ""),
                                               FIELD(2, S, started, ""),
                                               FIELD(3, S, ended, ""),
                                               FIELD(4, S, cause, ""),
                                               FIELD(5, S, exit_signal, ""),
                                               FIELD(6, S, exit_code, ""),
                                               FIELD(7, S, launch_failed, ""),
                                               FIELD(64, S, health, ""),
                                               FIELD(65, S, health_reason, "")};
static const struct schema rec_part_schema = SCHEMA(S, "part", rec_part_fields);
#undef S
#define S struct rec_gave
static const struct field rec_gave_fields[] = {FIELD(1, S, to, ""), FIELD(2, S, share, ""), FIELD(3, S, to_share, ""),
                                               FIELD(4, S, claim, "")};
static const struct schema rec_gave_schema = SCHEMA(S, "gave", rec_gave_fields);
#undef S
#define S struct rec_step
static const struct field rec_step_fields[] = {FIELD(1, S, started, ""), FIELD(2, S, ending, ""),
                                               FIELD(3, S, signal, ""), FIELD(4, S, grace_s, "")};
static const struct schema rec_step_schema = SCHEMA(S, "step", rec_step_fields);
#undef S
#define S struct rec_job
static const struct field rec_job_fields[] = {FIELD(1, S, id, ""),
                                              FIELD(2, S, submission, ""),
                                              FIELD(3, S, array_index, ""),
                                              FIELD(4, S, attempt, ""),
                                              FIELD(5, S, preempted, ""),
                                              FIELD(6, S, state, ""),
                                              FIELD(7, S, flags, ""),
                                              FIELD(8, S, begin_ms, ""),
                                              FIELD(9, S, eligible_ms, ""),
                                              FIELD(10, S, start_ms, ""),
                                              FIELD_SUB(11, S, usage, &usage_schema, ""),
                                              FIELD_LIST_SUB(12, S, parts, &rec_part_schema, ""),
                                              FIELD(13, S, time_limit_s, ""),
                                              FIELD(14, S, ending, ""),
                                              FIELD(15, S, hold, ""),
                                              FIELD(16, S, cause, ""),
                                              FIELD(17, S, signal, ""),
                                              FIELD(18, S, grace_s, ""),
                                              FIELD(19, S, by, ""),
                                              FIELD(20, S, reason, ""),
                                              FIELD(21, S, end_reason, ""),
                                              FIELD(22, S, steps, ""),
                                              FIELD(23, S, exit_code, ""),
                                              FIELD(24, S, exit_signal, ""),
                                              FIELD(25, S, partition, ""),
                                              FIELD(26, S, suspended_ms, ""),
                                              FIELD(40, S, warned_percent, ""),
                                              FIELD(27, S, suspend_ms, ""),
                                              FIELD_LIST_SUB(28, S, gave, &rec_gave_schema, ""),
                                              FIELD(29, S, uncounted, ""),
                                              FIELD(30, S, preempted_why, ""),
                                              FIELD(31, S, retried, ""),
                                              FIELD(64, S, promised, ""),
                                              FIELD(65, S, late_why, ""),
                                              FIELD(50, S, epoch, ""),
                                              FIELD(51, S, seq, ""),
                                              FIELD(52, S, agent_id, ""),
                                              FIELD_LIST(63, S, adopted_steps, ""),
                                              FIELD(53, S, adopted, ""),
                                              FIELD(57, S, version, ""),
                                              FIELD_LIST_SUB(45, S, running, &rec_step_schema, "")};
static const struct schema rec_job_schema = SCHEMA(S, "job", rec_job_fields);
#undef S
#define S struct rec_outcomes
static const struct field outcomes_fields[] = {FIELD_LIST(1, S, ids, ""), FIELD_LIST(2, S, flags, ""),
                                               FIELD_LIST(3, S, starts, ""),
                                               FIELD_LIST(4, S, key_hashes, ""),
                                               FIELD_LIST(5, S, key_specs, ""),
                                               FIELD_LIST(6, S, key_ids, ""),
                                               FIELD_LIST(7, S, key_counts, ""),
                                               FIELD_LIST(8, S, key_users, ""),
                                               FIELD_LIST(9, S, key_expires, ""),
                                               FIELD_LIST(10, S, key_plain, "")};
static const struct schema outcomes_schema = SCHEMA(S, "outcomes", outcomes_fields);
#undef S

const struct schema *core_record_schema(enum record_type type) {
    static const struct schema *const schemas[REC_TYPES] = {
        [REC_META] = &meta_schema,          [REC_USER] = &user_schema,
        [REC_NODE] = &rec_node_schema,      [REC_ENTITY] = &rec_entity_schema,
        [REC_TOKEN] = &rec_token_schema,    [REC_SUBMISSION] = &submission_schema,
        [REC_JOB] = &rec_job_schema,        [REC_OUTCOMES] = &outcomes_schema,
        [REC_USAGE] = &rec_usage_schema,    [REC_GROUP] = &rec_group_schema,
        [REC_JUDGING] = &rec_judging_schema};
    if (type == REC_SECRET || type == REC_SECRET_DELETED)
        return event_info(EVENT_SECRET_SET)->schema;
    if (type == REC_ACCOUNT)
        return event_info(EVENT_USER_SET)->schema;
    if (type == REC_ALERT_RULE)
        return &event_alert_rule_schema;
    if (type == REC_ALERT)
        return &event_alert_schema;
    if (type == REC_SHARE)
        return &event_share_schema;
    if (type == REC_SERVICE)
        return &event_service_schema;
    if (type == REC_SERVICE_TOKEN)
        return &event_service_token_schema;
    if (type == REC_NODE_IMAGES)
        return &event_node_images_schema;
    if (type == REC_PROVIDER)
        return &event_provider_schema;
    if (type == REC_WANTED)
        return &wanted_node_schema;
    if (type == REC_VOLUME)
        return &event_volume_schema;
    if (type == REC_SESSION)
        return &event_session_schema;
    if (type == REC_GRANT)
        return &event_user_grant_schema;
    if (type == REC_SAVED)
        return &event_saved_schema;
    return type < REC_TYPES ? schemas[type] : NULL;
}
