// The one entry for commands: finds the function that checks and carries out each kind.
#include <assert.h>
#include <errno.h>

#include "base/text.h"
#include "state.h"

typedef int (*command_fn)(struct core *c, const struct actor *actor, const void *body, int64_t now_ms,
                          struct error *e);

static const command_fn functions[COMMAND_TYPE_COUNT] = {
    [COMMAND_CANCEL] = core_command_cancel,
    [COMMAND_HOLD] = core_command_hold,
    [COMMAND_RELEASE] = core_command_release,
    [COMMAND_REQUEUE] = core_command_requeue,
    [COMMAND_SUSPEND] = core_command_suspend,
    [COMMAND_RESUME] = core_command_resume,
    [COMMAND_UPDATE] = core_command_update,
    [COMMAND_RESIZE] = core_command_resize,
    [COMMAND_RANK_WORKERS] = core_command_rank_workers,
    [COMMAND_NODE_DRAIN] = core_command_node_drain,
    [COMMAND_NODE_RESUME] = core_command_node_resume,
    [COMMAND_NODE_REMOVE] = core_command_node_remove,
    [COMMAND_PROJECT_SET] = core_command_project_set,
    [COMMAND_PARTITION_SET] = core_command_partition_set,
    [COMMAND_QOS_SET] = core_command_qos_set,
    [COMMAND_RESERVATION_SET] = core_command_reservation_set,
    [COMMAND_LICENSE_SET] = core_command_license_set,
    [COMMAND_ENTITY_DELETE] = core_command_entity_delete,
    [COMMAND_POLICY_SET] = core_command_policy_set,
    [COMMAND_TOKEN_CREATE] = core_command_token_create,
    [COMMAND_TOKEN_REVOKE] = core_command_token_revoke,
    [COMMAND_TOKEN_USE] = core_command_token_use,
    [COMMAND_KEYS_INIT] = core_command_keys_init,
    [COMMAND_KEY_IMPORT] = core_command_key_import,
    [COMMAND_SECRET_SET] = core_command_secret_set,
    [COMMAND_SECRET_DELETE] = core_command_secret_delete,
    [COMMAND_UPGRADE_FINISH] = core_command_upgrade_finish,
    [COMMAND_USER_SET] = core_command_user_set,
    [COMMAND_USER_REMOVE] = core_command_user_remove,
    [COMMAND_USER_PASSWORD] = core_command_user_password,
    [COMMAND_USER_GRANT] = core_command_user_grant,
    [COMMAND_SESSION_BEGIN] = core_command_session_begin,
    [COMMAND_SESSION_SEEN] = core_command_session_seen,
    [COMMAND_SESSION_END] = core_command_session_end,
    [COMMAND_SAVED_SET] = core_command_saved_set,
    [COMMAND_SAVED_DELETE] = core_command_saved_delete,
    [COMMAND_ALERT_SET] = core_command_alert_set,
    [COMMAND_ALERT_DELETE] = core_command_alert_delete,
    [COMMAND_ALERT_RAISE] = core_command_alert_raise,
    [COMMAND_ALERT_CLEAR] = core_command_alert_clear,
    [COMMAND_ALERT_ACK] = core_command_alert_ack,
    [COMMAND_SHARE_SET] = core_command_share_set,
    [COMMAND_SHARE_END] = core_command_share_end,
    [COMMAND_SERVICE_CREATE] = core_command_service_create,
    [COMMAND_SERVICE_UPDATE] = core_command_service_update,
    [COMMAND_SERVICE_SCALE] = core_command_service_scale,
    [COMMAND_SERVICE_READY] = core_command_service_ready,
    [COMMAND_SERVICE_PROMOTE] = core_command_service_promote,
    [COMMAND_SERVICE_ROLLBACK] = core_command_service_rollback,
    [COMMAND_SERVICE_RETIRED] = core_command_service_retired,
    [COMMAND_SERVICE_DELETE] = core_command_service_delete,
    [COMMAND_SERVICE_TOKEN_SET] = core_command_service_token_set,
    [COMMAND_SERVICE_TOKEN_REVOKE] = core_command_service_token_revoke,
    [COMMAND_VOLUME_CREATE] = core_command_volume_create,
    [COMMAND_VOLUME_DELETE] = core_command_volume_delete,
    [COMMAND_VOLUME_SHARE] = core_command_volume_share,
    [COMMAND_PROVIDER_SET] = core_command_provider_set,
    [COMMAND_PROVIDER_REMOVE] = core_command_provider_remove,
    [COMMAND_PROVIDER_REPORT] = core_command_provider_report,
};

// Texts and structs without which a command means nothing. Handlers rely on them.
static const struct {
    enum command_type type;
    const char *field;
} required[] = {
    {COMMAND_SUBMIT, "spec"},
    {COMMAND_UPDATE, "change"},
    {COMMAND_NODE_DRAIN, "node"},
    {COMMAND_NODE_RESUME, "node"},
    {COMMAND_NODE_REMOVE, "node"},
    {COMMAND_PROJECT_SET, "name"},
    {COMMAND_PARTITION_SET, "name"},
    {COMMAND_QOS_SET, "name"},
    {COMMAND_RESERVATION_SET, "name"},
    {COMMAND_LICENSE_SET, "name"},
    {COMMAND_ENTITY_DELETE, "name"},
    {COMMAND_TOKEN_CREATE, "id"},
    {COMMAND_TOKEN_CREATE, "hash"},
    {COMMAND_TOKEN_REVOKE, "id"},
    {COMMAND_TOKEN_USE, "id"},
    {COMMAND_TOKEN_USE, "hash"},
    {COMMAND_SECRET_SET, "name"},
    {COMMAND_SECRET_DELETE, "name"},
    {COMMAND_USER_SET, "name"},
    {COMMAND_USER_REMOVE, "name"},
    {COMMAND_USER_PASSWORD, "name"},
    {COMMAND_SESSION_BEGIN, "id"},
    {COMMAND_SESSION_BEGIN, "hash"},
    {COMMAND_SESSION_BEGIN, "identity"},
    {COMMAND_SESSION_SEEN, "id"},
    {COMMAND_USER_GRANT, "unix_user"},
    {COMMAND_SESSION_END, "id"},
    {COMMAND_TOKEN_USE, "node"},
    {COMMAND_TOKEN_USE, "fingerprint"},
    {COMMAND_SAVED_SET, "name"},
    {COMMAND_SAVED_DELETE, "name"},
    {COMMAND_ALERT_SET, "name"},
    {COMMAND_ALERT_DELETE, "rule"},
    {COMMAND_ALERT_RAISE, "rule"},
    {COMMAND_ALERT_RAISE, "subject"},
    {COMMAND_ALERT_CLEAR, "rule"},
    {COMMAND_ALERT_CLEAR, "subject"},
    {COMMAND_ALERT_ACK, "rule"},
    {COMMAND_ALERT_ACK, "subject"},
    {COMMAND_PROVIDER_SET, "name"},
    {COMMAND_PROVIDER_REMOVE, "name"},
    {COMMAND_PROVIDER_REPORT, "provider"},
    {COMMAND_SERVICE_CREATE, "name"},
    {COMMAND_SERVICE_UPDATE, "name"},
    {COMMAND_SERVICE_SCALE, "name"},
    {COMMAND_SERVICE_READY, "name"},
    {COMMAND_SERVICE_PROMOTE, "name"},
    {COMMAND_SERVICE_ROLLBACK, "name"},
    {COMMAND_SERVICE_RETIRED, "name"},
    {COMMAND_SERVICE_DELETE, "name"},
    {COMMAND_SERVICE_TOKEN_SET, "name"},
    {COMMAND_SERVICE_TOKEN_REVOKE, "name"},
    {COMMAND_SERVICE_TOKEN_SET, "id"},
    {COMMAND_SERVICE_TOKEN_SET, "hash"},
    {COMMAND_SERVICE_TOKEN_REVOKE, "id"},
};

static int check_required(const struct command *command, struct error *e) {
    const struct schema *s = command_schema(command->type);
    for (size_t i = 0; i < sizeof required / sizeof *required; i++) {
        if (required[i].type != command->type)
            continue;
        for (size_t k = 0; k < s->count; k++) {
            const struct field *f = &s->fields[k];
            const void *const *at = (const void *const *)((const char *)command->body + f->offset);
            if (streq(f->name, required[i].field) && !*at)
                return error_set(e, EINVAL, "%s: %s is missing", command_name(command->type), f->name);
        }
    }
    return 0;
}

// Who may only look: with a token for reading, or without a Unix user. One's own login is one's own affair.
// So is asking what would become of a job, which changes nothing.
static int check_scope(const struct actor *actor, const struct command *command, struct error *e) {
    enum command_type type = command->type;
    bool own_login =
        type == COMMAND_SESSION_END || type == COMMAND_USER_PASSWORD || type == COMMAND_TOKEN_REVOKE;
    bool asks = type == COMMAND_SUBMIT && ((const struct command_submit *)command->body)->dry_run;
    if (!actor->scopes || actor->scopes & USER_SCOPE_SUBMIT || own_login || asks)
        return 0;
    return error_set(
        e, EPERM,
        "you may look and change nothing: your token is for reading, or your login is not mapped to a Unix "
        "user; an administrator can do that with 'acequia user set'");
}

int core_command(struct core *c, const struct actor *actor, const char *key, const struct command *command,
                 int64_t now_ms, struct command_result *out, struct error *e) {
    struct command_result result = {0};
    int r;
    assert(command_schema(command->type) && command->body);
    if ((r = check_required(command, e)) < 0 || (r = check_scope(actor, command, e)) < 0)
        return r;
    if (command->type == COMMAND_SUBMIT)
        r = core_command_submit(c, actor, key, command->body, now_ms, &result, e);
    else if (key)
        r = error_set(e, EINVAL, "key: only a submit can have an idempotency key");
    else
        r = functions[command->type](c, actor, command->body, now_ms, e);
    if (r == CORE_UNCHANGED) {
        result.unchanged = true;
        r = 0;
    }
    c->encoded_of = NULL;
    if (r == 0 && out)
        *out = result;
    return r;
}
