// The tables of commands.
#include "model/command.h"

#include <assert.h>

const char *const command_hold_kind_words[] = {"owner", "user", "admin", NULL};
static const char *const entity_kind_words[] = {"project", "partition", "qos", "reservation", NULL};

#define S struct command_result
static const struct field result_fields[] = {
    FIELD(1, S, id, "Job id; of the first element of an array."),
    FIELD(2, S, count, "Jobs: the elements of an array, else 1."),
    FIELD(3, S, repeated, "The idempotency key was used before for the same job; nothing was submitted now."),
};
const struct schema command_result_schema = SCHEMA(S, "the result of a command", result_fields);
#undef S
#define S struct command_submit
static const struct field submit_fields[] = {
    FIELD_SUB(1, S, spec, &spec_schema, "What to run."),
    FIELD(2, S, dry_run, "Check it, but do not submit it."),
    FIELD(3, S, service, "Number of the service that it is for."),
    FIELD(4, S, revision, "Revision of that service."),
};
static const struct schema submit_schema = SCHEMA(S, "submit", submit_fields);
#undef S
#define S struct command_job
static const struct field job_fields[] = {FIELD(1, S, id, "Job id.")};
static const struct schema job_schema = SCHEMA(S, "a command about a job", job_fields);
#undef S
#define S struct command_cancel
static const struct field cancel_fields[] = {
    FIELD(1, S, id, "Job id."),
    FIELD(2, S, signal, "Send this signal instead of ending the job; 0: end it."),
    FIELD(3, S, batch_only, "The signal goes to the batch script only."),
    FIELD(4, S, steps_only, "The signal goes to the job's steps, not to its batch script."),
    FIELD(5, S, step, "Only this step; 0: the whole job."),
    FIELD(6, S, reason, "Why, for the job's user."),
};
static const struct schema cancel_schema = SCHEMA(S, "cancel", cancel_fields);
#undef S
#define S struct command_hold
static const struct field hold_fields[] = {
    FIELD(1, S, id, "Job id."),
    FIELD_WORDS(
        2, S, as, command_hold_kind_words,
        "user: its user may release it; admin: only an administrator; owner: user for one's own job."),
};
static const struct schema hold_schema = SCHEMA(S, "hold", hold_fields);
#undef S
#define S struct command_requeue
static const struct field requeue_fields[] = {
    FIELD(1, S, id, "Job id."),
    FIELD(2, S, hold, "Hold it once it is back in the queue."),
};
static const struct schema requeue_schema = SCHEMA(S, "requeue", requeue_fields);
#undef S
#define S struct command_update
static const struct field update_fields[] = {
    FIELD(1, S, id, "Job id."),
    FIELD_SUB(2, S, change, &spec_schema, "The fields to change; others stay."),
    FIELD(3, S, dry_run, "Check it, but change nothing."),
};
static const struct schema update_schema = SCHEMA(S, "update", update_fields);
#undef S
#define S struct command_resize
static const struct field resize_fields[] = {
    FIELD(1, S, id, "Job id."),
    FIELD(2, S, workers_min, "Least workers; 0: as before, unless that is more than the most."),
    FIELD(3, S, workers_max, "Most workers."),
    FIELD(4, S, component, "Component to resize, of a job with several."),
    FIELD(5, S, min_given, "The least number is meant also when it is 0."),
};
static const struct schema resize_schema = SCHEMA(S, "resize", resize_fields);
#undef S
#define S struct command_rank_workers
static const struct field rank_workers_fields[] = {
    FIELD(1, S, id, "Job id."),
    FIELD_LIST_SUB(2, S, ranks, &event_worker_rank_schema,
                   "Ranks of its workers; those not named stay as they are."),
};
static const struct schema rank_workers_schema = SCHEMA(S, "rank_workers", rank_workers_fields);
#undef S
#define S struct command_node
static const struct field node_fields[] = {FIELD(1, S, node, "Name of the node.")};
static const struct schema node_command_schema = SCHEMA(S, "a command about a node", node_fields);
#undef S
#define S struct command_node_drain
static const struct field drain_fields[] = {
    FIELD(1, S, node, "Name of the node."),
    FIELD(2, S, reason, "Why it is drained; required."),
};
static const struct schema drain_schema = SCHEMA(S, "drain", drain_fields);
#undef S
#define S struct command_entity_delete
static const struct field delete_fields[] = {
    FIELD_WORDS(1, S, kind, entity_kind_words, "What to delete: project, partition, qos or reservation."),
    FIELD(2, S, name, "Its name."),
    FIELD(3, S, force, "Also while live jobs are in it."),
};
static const struct schema delete_schema = SCHEMA(S, "delete", delete_fields);
#undef S
#define S struct command_token_create
static const struct field token_create_fields[] = {
    FIELD(1, S, id, "Id of the token."),
    FIELD(2, S, hash, "Hash of its secret."),
    FIELD(3, S, user, "User it stands for; empty: a token for an agent."),
    FIELD(4, S, node, "Node an agent's token is for; empty: any."),
    FIELD(5, S, expires_ms, "When it expires (ms since 1970)."),
    FIELD(6, S, scopes, "What it allows: 1 read, 2 submit, 4 admin, added; 0: all."),
    FIELD(7, S, project, "Project whose jobs it is limited to; empty: all."),
};
static const struct schema token_create_schema = SCHEMA(S, "token_create", token_create_fields);
#undef S
#define S struct command_token_revoke
static const struct field token_revoke_fields[] = {FIELD(1, S, id, "Id of the token.")};
static const struct schema token_revoke_schema = SCHEMA(S, "token_revoke", token_revoke_fields);
#undef S
#define S struct command_token_use
static const struct field token_use_fields[] = {
    FIELD(1, S, id, "Id of the token."),
    FIELD(2, S, hash, "Hash of its secret."),
    FIELD(3, S, node, "Node that joins."),
    FIELD(4, S, fingerprint, "Fingerprint of the node's certificate."),
};
static const struct schema token_use_schema = SCHEMA(S, "token_use", token_use_fields);
#undef S
#define S struct command_secret
static const struct field secret_fields[] = {
    FIELD(1, S, name, "Name of the secret."),
    FIELD(2, S, project, "Project whose it is; empty: one's own."),
    FIELD(3, S, user, "To delete another user's, for administrators."),
};
static const struct schema secret_schema = SCHEMA(S, "secret", secret_fields);
#undef S
#define S struct command_keys_init
static const struct field keys_init_fields[] = {FIELD(1, S, secret, "Secret that keys are hashed with, 16 bytes.")};
static const struct schema keys_init_schema = SCHEMA(S, "keys_init", keys_init_fields);
#undef S
#define S struct command_key_import
static const struct field key_import_fields[] = {
    FIELD(1, S, user, "User whose key it is."),
    FIELD(2, S, key, "The key."),
    FIELD(3, S, id, "Job it was used for."),
    FIELD(4, S, count, "Elements of that job's array, else 1."),
    FIELD(5, S, expires_ms, "When it is forgotten (ms since 1970)."),
};
static const struct schema key_import_schema = SCHEMA(S, "key_import", key_import_fields);
#undef S

#define S struct command_user
static const struct field user_fields[] = {
    FIELD(1, S, name, "Name of the account."),
    FIELD(2, S, keep, "Password: session that stays when the others end."),
};
static const struct schema user_schema = SCHEMA(S, "user", user_fields);
#undef S
#define S struct command_session
static const struct field session_fields[] = {FIELD(1, S, id, "Id of the session.")};
static const struct schema session_schema = SCHEMA(S, "session", session_fields);
#undef S

#define S struct command_alert
static const struct field alert_fields[] = {
    FIELD(1, S, rule, "Name of the rule."),
    FIELD(2, S, subject, "The metric."),
    FIELD(3, S, value, "Its value."),
    FIELD(4, S, comment, "What is said when it is acknowledged."),
};
static const struct schema alert_schema = SCHEMA(S, "alert", alert_fields);
#undef S

#define S struct command_volume
static const struct field command_volume_fields[] = {
    FIELD(1, S, name, "Name of the volume."),         FIELD(2, S, user, "Whose it is; empty: one's own."),
    FIELD(3, S, project, "Project whose it is."),     FIELD(4, S, with, "User to share it with."),
    FIELD(5, S, read_only, "They may read it only."), FIELD(6, S, revoke, "End the share."),
};
static const struct schema command_volume_schema = SCHEMA(S, "volume", command_volume_fields);
#undef S

static const struct schema empty_schema = {.name = "no parameters", .size = sizeof(struct command_empty)};

static const struct {
    const char *name;
    const struct schema *schema;
} commands[] = {
    [COMMAND_SUBMIT] = {"submit", &submit_schema},
    [COMMAND_CANCEL] = {"cancel", &cancel_schema},
    [COMMAND_HOLD] = {"hold", &hold_schema},
    [COMMAND_RELEASE] = {"release", &job_schema},
    [COMMAND_REQUEUE] = {"requeue", &requeue_schema},
    [COMMAND_SUSPEND] = {"suspend", &job_schema},
    [COMMAND_RESUME] = {"resume", &job_schema},
    [COMMAND_UPDATE] = {"update", &update_schema},
    [COMMAND_RESIZE] = {"resize", &resize_schema},
    [COMMAND_RANK_WORKERS] = {"rank_workers", &rank_workers_schema},
    [COMMAND_NODE_DRAIN] = {"node_drain", &drain_schema},
    [COMMAND_NODE_RESUME] = {"node_resume", &node_command_schema},
    [COMMAND_NODE_REMOVE] = {"node_remove", &node_command_schema},
    [COMMAND_PROJECT_SET] = {"project_set", &entity_project_schema},
    [COMMAND_PARTITION_SET] = {"partition_set", &entity_partition_schema},
    [COMMAND_QOS_SET] = {"qos_set", &entity_qos_schema},
    [COMMAND_RESERVATION_SET] = {"reservation_set", &entity_reservation_schema},
    [COMMAND_LICENSE_SET] = {"license_set", &entity_license_schema},
    [COMMAND_ENTITY_DELETE] = {"entity_delete", &delete_schema},
    [COMMAND_POLICY_SET] = {"policy_set", &policy_schema},
    [COMMAND_TOKEN_CREATE] = {"token_create", &token_create_schema},
    [COMMAND_TOKEN_REVOKE] = {"token_revoke", &token_revoke_schema},
    [COMMAND_TOKEN_USE] = {"token_use", &token_use_schema},
    [COMMAND_KEYS_INIT] = {"keys_init", &keys_init_schema},
    [COMMAND_KEY_IMPORT] = {"key_import", &key_import_schema},
    [COMMAND_SECRET_SET] = {"secret_set", &secret_schema},
    [COMMAND_SECRET_DELETE] = {"secret_delete", &secret_schema},
    [COMMAND_UPGRADE_FINISH] = {"upgrade_finish", &empty_schema},
    [COMMAND_USER_SET] = {"user_set", &user_account_schema},
    [COMMAND_USER_REMOVE] = {"user_remove", &user_schema},
    [COMMAND_USER_PASSWORD] = {"user_password", &user_schema},
    [COMMAND_USER_GRANT] = {"user_grant", &event_user_grant_schema},
    [COMMAND_ALERT_SET] = {"alert_set", &alert_rule_schema},
    [COMMAND_ALERT_DELETE] = {"alert_delete", &alert_schema},
    [COMMAND_ALERT_RAISE] = {"alert_raise", &alert_schema},
    [COMMAND_ALERT_CLEAR] = {"alert_clear", &alert_schema},
    [COMMAND_ALERT_ACK] = {"alert_ack", &alert_schema},
    [COMMAND_SHARE_SET] = {"share_set", &event_share_schema},
    [COMMAND_SHARE_END] = {"share_end", &event_share_schema},
    [COMMAND_SERVICE_CREATE] = {"service_create", &event_service_schema},
    [COMMAND_SERVICE_UPDATE] = {"service_update", &event_service_schema},
    [COMMAND_SERVICE_SCALE] = {"service_scale", &command_service_schema},
    [COMMAND_SERVICE_READY] = {"service_ready", &command_service_schema},
    [COMMAND_SERVICE_PROMOTE] = {"service_promote", &command_service_schema},
    [COMMAND_SERVICE_ROLLBACK] = {"service_rollback", &command_service_schema},
    [COMMAND_SERVICE_RETIRED] = {"service_retired", &command_service_schema},
    [COMMAND_SERVICE_DELETE] = {"service_delete", &command_service_schema},
    [COMMAND_SERVICE_TOKEN_SET] = {"service_token_set", &command_service_token_schema},
    [COMMAND_SERVICE_TOKEN_REVOKE] = {"service_token_revoke", &command_service_token_schema},
    [COMMAND_VOLUME_CREATE] = {"volume_create", &event_volume_schema},
    [COMMAND_VOLUME_DELETE] = {"volume_delete", &command_volume_schema},
    [COMMAND_VOLUME_SHARE] = {"volume_share", &command_volume_schema},
    [COMMAND_PROVIDER_SET] = {"provider_set", &provider_schema},
    [COMMAND_PROVIDER_REMOVE] = {"provider_remove", &command_provider_remove_schema},
    [COMMAND_PROVIDER_REPORT] = {"provider_report", &provider_report_schema},
    [COMMAND_SESSION_BEGIN] = {"session_begin", &event_session_schema},
    [COMMAND_SESSION_SEEN] = {"session_seen", &session_schema},
    [COMMAND_SESSION_END] = {"session_end", &session_schema},
    [COMMAND_SAVED_SET] = {"saved_set", &event_saved_schema},
    [COMMAND_SAVED_DELETE] = {"saved_delete", &event_saved_schema},
};
static_assert(sizeof commands / sizeof *commands == COMMAND_TYPE_COUNT, "a table per command");

const char *command_name(enum command_type type) {
    return type > COMMAND_NONE && type < COMMAND_TYPE_COUNT ? commands[type].name : NULL;
}

const struct schema *command_schema(enum command_type type) {
    return type > COMMAND_NONE && type < COMMAND_TYPE_COUNT ? commands[type].schema : NULL;
}

enum command_type command_entity_set(enum entity_kind kind) {
    static const enum command_type types[ENTITY_COUNT] = {COMMAND_PROJECT_SET, COMMAND_PARTITION_SET,
                                                          COMMAND_QOS_SET, COMMAND_RESERVATION_SET,
                                                          COMMAND_LICENSE_SET};
    return types[kind];
}
