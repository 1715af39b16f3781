// The one entry for commands: finds the function that checks and carries out each kind.
#include <assert.h>
#include <errno.h>

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
    [COMMAND_NODE_DRAIN] = core_command_node_drain,
    [COMMAND_NODE_RESUME] = core_command_node_resume,
    [COMMAND_NODE_REMOVE] = core_command_node_remove,
    [COMMAND_PROJECT_SET] = core_command_project_set,
    [COMMAND_PARTITION_SET] = core_command_partition_set,
    [COMMAND_QOS_SET] = core_command_qos_set,
    [COMMAND_RESERVATION_SET] = core_command_reservation_set,
    [COMMAND_ENTITY_DELETE] = core_command_entity_delete,
    [COMMAND_POLICY_SET] = core_command_policy_set,
    [COMMAND_TOKEN_CREATE] = core_command_token_create,
    [COMMAND_TOKEN_REVOKE] = core_command_token_revoke,
    [COMMAND_TOKEN_USE] = core_command_token_use,
    [COMMAND_KEYS_INIT] = core_command_keys_init,
    [COMMAND_KEY_IMPORT] = core_command_key_import,
    [COMMAND_UPGRADE_FINISH] = core_command_upgrade_finish,
};

int core_command(struct core *c, const struct actor *actor, const char *key, const struct command *command,
                 int64_t now_ms, struct command_result *out, struct error *e) {
    struct command_result result = {0};
    int r;
    assert(command_schema(command->type) && command->body);
    if (command->type == COMMAND_SUBMIT)
        r = core_command_submit(c, actor, key, command->body, now_ms, &result, e);
    else if (key)
        r = error_set(e, EINVAL, "key: only a submit can have an idempotency key");
    else
        r = functions[command->type](c, actor, command->body, now_ms, e);
    if (r == 0 && out)
        *out = result;
    return r;
}
