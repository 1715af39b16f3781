// Owns the upgrade's part of the API: which feature level the journal has, and finishing an upgrade.
#include "api.h"
#include "controller.h"

static void put_upgrade(const struct core *core, struct json_writer *w) {
    uint32_t level = core_level(core);
    json_open(w, '{');
    json_kv_str(w, "version", ACEQUIA_VERSION);
    json_kv_i64(w, "level", level);
    json_kv_i64(w, "newest_level", FEATURE_LEVEL_NEWEST);
    json_kv_str(w, "readable_since", feature_level_release(level));
    json_kv_bool(w, "finished", level == FEATURE_LEVEL_NEWEST);
    json_close(w, '}');
}

void api_upgrade(struct api_call *call) {
    cleanup_buf struct buf b = {0};
    struct json_writer w = {.out = &b};
    put_upgrade(call->controller->core, &w);
    api_json(call->req, 200, &b);
}

void api_upgrade_finish(struct api_call *call) {
    struct core *core = call->controller->core;
    struct error e = {0};
    struct buf b = {0};
    struct json_writer w = {.out = &b};
    struct command command = {COMMAND_UPGRADE_FINISH, &(struct command_empty){0}};
    if (core_command(core, &call->actor, NULL, &command, now_ms(), NULL, &e) < 0 ||
        controller_init_keys(call->controller, &e) < 0) {
        api_fail(call->req, &e);
        return;
    }
    put_upgrade(core, &w);
    api_when_committed(call, 200, &b);
}

void api_put_upgrade_warning(const struct core *core, struct json_writer *w) {
    cleanup_buf struct buf b = {0};
    if (core_level(core) == FEATURE_LEVEL_NEWEST)
        return;
    buf_addf(&b,
             "the upgrade to %s is not finished: going back to %s is still possible. When all is well, type "
             "'acequia upgrade finish'",
             ACEQUIA_VERSION, feature_level_release(core_level(core)));
    json_put_str(w, buf_str(&b));
}
