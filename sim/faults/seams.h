// Functions of the product that the simulator wraps with the linker (--wrap): to write what a neighbouring version
// would write, and to plant known bugs that must be found. The product's sources do not know of it. One run per
// process.
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum planted {
    PLANTED_NONE,
    PLANTED_ACK_BEFORE_COMMIT,
    PLANTED_EFFECTS_BEFORE_COMMIT,
    PLANTED_END_ACKED_EARLY,
    PLANTED_LAUNCH_TWICE,
    PLANTED_END_FORGOTTEN,
    PLANTED_ENDS_NOT_REPEATED,
    PLANTED_STALE_REPORT,
    PLANTED_LOST_REQUEUE,
    PLANTED_DOUBLE_GRANT,
    PLANTED_STALE_IGNORED,
    PLANTED_UP_TOO_EARLY,
    PLANTED_SNAPSHOT_LOSES_JOB,
    PLANTED_SNAPSHOT_TOO_EARLY,
    PLANTED_RECORD_LOST,
    PLANTED_RELAUNCH_AFTER_REBOOT,
    PLANTED_STALL_COUNTS,
    PLANTED_SUSPEND_NOT_REPEATED,
    PLANTED_SUSPEND_DROPPED,
    PLANTED_SICK_NODE_HARMS,
    PLANTED_SICK_NODE_TRUSTED,
    PLANTED_KILL_NOT_REPEATED,
    PLANTED_USAGE_TWICE,
    PLANTED_KEY_IGNORED,
    PLANTED_KEY_NOT_IN_SNAPSHOT,
    PLANTED_KEY_LOST_AT_REPLAY,
    PLANTED_LOST_NODE_KEEPS_WORK,
    PLANTED_HOLD_IGNORED,
    PLANTED_DRAIN_IGNORED,
    PLANTED_LIMIT_IGNORED,
    PLANTED_DEPENDENCY_IGNORED,
    PLANTED_POLICY_FORGOTTEN,
    PLANTED_RESTORE_UNNOTICED,
    PLANTED_UNKNOWN_KILLED,
    PLANTED_ARRAY_CUT_SHORT,
    PLANTED_DEPENDENTS_FORGOTTEN,
    PLANTED_NO_EPOCHS,
    PLANTED_STEP_KILLED_AT_RESTART,
    PLANTED_STEP_NOT_SENT_AGAIN,
    PLANTED_LEASE_LEAKED,
    PLANTED_STALL_ENDS_LEASES,
    PLANTED_CHECKPOINT_TWICE,
    PLANTED_STREAM_REPEATS,
    PLANTED_STREAM_MISSES,
    PLANTED_STREAM_HANGS,
    PLANTED_STREAM_TOO_EARLY,
    PLANTED_STREAM_OF_ANOTHER,
    PLANTED_STEP_NOT_RENEWED,
    PLANTED_WORKER_MISSING,
    PLANTED_LAUNCH_IN_THE_WAY,
    PLANTED_MEMBERS_NOT_REPEATED,
    PLANTED_WORKER_LEFT_BEHIND,
    PLANTED_COMPONENT_MISSING,
    PLANTED_HEAD_IGNORED,
    PLANTED_HEADLESS_QUEUED,
    PLANTED_COUNT
};

const char *planted_word(enum planted p);
const char *planted_help(enum planted p);
int planted_find(const char *word);  // enum planted, or -1
void seams_plant(enum planted p);
bool seams_planted(enum planted p);

void seams_next_format(bool on);
void seams_slice(
    uint32_t jobs);  // that one event works on, of a large array or of the jobs that wait for one
void seams_level(uint32_t level);  // of a fresh journal: that of an earlier release, or the newest
