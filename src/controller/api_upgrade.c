// Owns the upgrade's part of the API: which feature level the journal has, and finishing an upgrade.
#include "api.h"
#include "controller.h"
#include "model/units.h"

enum { RESTORE_SHOWN_DAYS = 3 };

static struct answer_upgrade upgrade_of(const struct core *core) {
    uint32_t level = core_level(core);
    return (struct answer_upgrade){.version = ACEQUIA_VERSION,
                                   .level = level,
                                   .newest_level = FEATURE_LEVEL_NEWEST,
                                   .readable_since = feature_level_release(level),
                                   .finished = level == FEATURE_LEVEL_NEWEST};
}

void api_upgrade(struct api_call *call) {
    struct answer_upgrade u = upgrade_of(call->controller->core);
    api_answer(call, &answer_upgrade_schema, &u);
}

void api_upgrade_finish(struct api_call *call) {
    struct core *core = call->controller->core;
    struct error e = {0};
    struct command command = {COMMAND_UPGRADE_FINISH, &(struct command_empty){0}};
    if (core_command(core, &call->actor, NULL, &command, controller_now_ms(), NULL, &e) < 0 ||
        controller_init_keys(call->controller, &e) < 0) {
        api_fail(call->req, &e);
        return;
    }
    struct answer_upgrade u = upgrade_of(core);
    api_answer_committed(call, 200, &answer_upgrade_schema, &u);
}

const char *api_restore_warning(const struct core *core, int64_t now, struct arena *a) {
    int64_t at = core_restore_ms(core);
    char ago[UNIT_TEXT_MAX];
    if (!at || now - at > RESTORE_SHOWN_DAYS * 86400000LL)
        return NULL;
    bool whole = core_feature(core, FEATURE_ADOPTED_STEPS) && core_feature(core, FEATURE_ADOPTED_PARTS);
    return arena_printf(
        a,
        "the state was restored from an older copy: nodes knew of later jobs (found %s ago). "
        "Jobs that still ran were adopted, numbers of new jobs were moved on; what else happened since "
        "the copy is lost. This is shown for %d days%s",
        duration_format((uint64_t)(now > at ? now - at : 0) / 60000 * 60, ago), RESTORE_SHOWN_DAYS,
        whole ? ""
              : ". The upgrade of that copy is not finished: steps of srun were not adopted, and "
                "workers and parts on further nodes became jobs of their own");
}

const char *api_upgrade_warning(const struct core *core, struct arena *a) {
    if (core_level(core) == FEATURE_LEVEL_NEWEST)
        return NULL;
    return arena_printf(a,
                        "the upgrade to %s is not finished: going back to %s is still possible. When all is well, "
                        "type 'acequia upgrade finish'",
                        ACEQUIA_VERSION, feature_level_release(core_level(core)));
}
