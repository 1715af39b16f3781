// Feature levels: which kinds of records a journal may hold. A journal has a level; events, fields and
// meanings that an earlier release cannot apply are written only once the level has them. A fresh
// cluster begins at the newest level; one that was upgraded stays at its old level, and can go back to
// the release before, until an administrator types `acequia upgrade finish`.
// How to add something: docs/decisions/upgrades.md.
#pragma once
#include <stdint.h>

enum {
    FEATURE_LEVEL_FIRST = 1,   // of a journal that does not say its level: release 0.1.0
    FEATURE_LEVEL_NEWEST = 3,  // what this program writes: release 0.3.0
};

enum feature {
    FEATURE_LEVELS,         // the journal says its level
    FEATURE_EPOCHS,         // each start of the controller is an event, and attempts carry its number
    FEATURE_TIME_WARNINGS,  // a warning of a time limit that comes near is an event
    FEATURE_KEYS,          // idempotency keys are hashed with a secret of the journal, and expire by an event
    FEATURE_NODE_HEALTH,   // nodes that fail launches get none for a while
    FEATURE_ELASTIC,       // jobs with workers
    FEATURE_STEPS,         // that a step is being ended is an event
    FEATURE_TAGS,          // jobs have tags
    FEATURE_SECRETS,       // users and projects have secrets
    FEATURE_LIMITS,        // a limit of zero is told from no limit
    FEATURE_COMPONENTS,    // jobs with several kinds of workers
    FEATURE_ARRAY_SLICES,  // large arrays are created by several events
    FEATURE_SECRET_VERSIONS,  // the version of a secret goes on after it was deleted
    FEATURE_USERS,            // accounts, logins of browsers, scopes of tokens
    FEATURE_SAVED,            // drafts, templates and views
    FEATURE_ADOPTED_WORKERS,  // elastic jobs go on as one after a restore of an older copy
    FEATURE_ALERTS,           // rules of alerts and alerts that hold are part of the state
    FEATURE_PORTS,            // jobs have ports and a network of their own
    FEATURE_SHARES,           // programs of jobs are shared with users and projects
    FEATURE_HEALTH,           // whether a job's program is ready is an event
    FEATURE_ADOPTED_STEPS,    // steps go on after a restore of an older copy
    FEATURE_SERVICES,         // programs that answer requests, with replicas, revisions and tokens
    FEATURE_VOLUMES,          // users and projects have volumes
    FEATURE_LICENSES,         // jobs hold seats of licenses
    FEATURE_ADOPTED_PARTS,    // parts of a job that report one after the other after a restore are one job
    FEATURE_IMAGES,           // what nodes hold of users' images is part of the state
    FEATURE_PROVIDERS,        // nodes are asked for from engines
    FEATURE_UPLOADS,          // folders that go with jobs
    FEATURE_PROMISES,         // planned starts are kept
    FEATURE_COUNT
};

struct feature_info {
    const char *name;
    uint32_t level;  // the first level that has it
};
const struct feature_info *feature_info(enum feature f);
// The first release that can read a journal of this level, as "0.2.0"; NULL: a level this program does not know.
const char *feature_level_release(uint32_t level);
