// The table of features and the releases that brought each level.
#include "model/feature.h"

#include <assert.h>
#include <stddef.h>

static const struct feature_info features[FEATURE_COUNT] = {
    [FEATURE_LEVELS] = {"levels", 2},
    [FEATURE_EPOCHS] = {"epochs", 2},
    [FEATURE_TIME_WARNINGS] = {"time_warnings", 2},
    [FEATURE_KEYS] = {"keys", 2},
    [FEATURE_NODE_HEALTH] = {"node_health", 2},
    [FEATURE_ELASTIC] = {"elastic", 2},
    [FEATURE_STEPS] = {"steps", 2},
    [FEATURE_TAGS] = {"tags", 2},
    [FEATURE_SECRETS] = {"secrets", 2},
    [FEATURE_LIMITS] = {"limits", 2},
    [FEATURE_COMPONENTS] = {"components", 3},
    [FEATURE_ARRAY_SLICES] = {"array_slices", 3},
    [FEATURE_SECRET_VERSIONS] = {"secret_versions", 3},
    [FEATURE_USERS] = {"users", 3},
    [FEATURE_SAVED] = {"saved", 3},
    [FEATURE_ADOPTED_WORKERS] = {"adopted_workers", 3},
    [FEATURE_ALERTS] = {"alerts", 3},
    [FEATURE_PORTS] = {"ports", 3},
    [FEATURE_SHARES] = {"shares", 3},
    [FEATURE_HEALTH] = {"health", 3},
    [FEATURE_ADOPTED_STEPS] = {"adopted_steps", 3},
    [FEATURE_SERVICES] = {"services", 3},
    [FEATURE_VOLUMES] = {"volumes", 3},
    [FEATURE_LICENSES] = {"licenses", 3},
    [FEATURE_ADOPTED_PARTS] = {"adopted_parts", 3},
    [FEATURE_IMAGES] = {"images", 3},
    [FEATURE_PROVIDERS] = {"providers", 3},
    [FEATURE_UPLOADS] = {"uploads", 3},
    [FEATURE_PROMISES] = {"promises", 3},
};

static const char *const releases[FEATURE_LEVEL_NEWEST + 1] = {
    [FEATURE_LEVEL_FIRST] = "0.1.0",
    [2] = "0.2.0",
    [3] = "0.3.0",
};

const struct feature_info *feature_info(enum feature f) {
    assert(f < FEATURE_COUNT && features[f].name && features[f].level <= FEATURE_LEVEL_NEWEST);
    return &features[f];
}

const char *feature_level_release(uint32_t level) {
    return level >= FEATURE_LEVEL_FIRST && level <= FEATURE_LEVEL_NEWEST ? releases[level] : NULL;
}
