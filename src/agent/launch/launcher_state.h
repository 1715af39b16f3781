// Shared by the files of this module only: the launcher's state and functions.
#pragma once
#include "agent/launch/launcher.h"
#include "agent/logic/step_runner.h"
#include "launch/shepherds.h"
#include "launch/spool_quota.h"
#include "request.h"

enum {
    LAUNCHER_LOOK_EVERY_MS = 2000,  // hints may get lost: how often every attempt is looked at
    LAUNCHER_RETRY_MS = 25,
    LAUNCHER_UNREADABLE_MS = 60000,     // between two lines of the log about records that cannot be read
    LAUNCHER_ENDS_AFTER_MS = 5000,      // without a controller: ends go to disk
    LAUNCHER_ZYGOTE_REST_MS = 2000,     // between two deaths of the zygote
    LAUNCHER_USER_PATIENCE_MS = 20000,  // a launch whose user nobody tells; then the job is queued again
    LAUNCHER_LEFTOVER_MS =
        60 * 1000,  // output of a step stays so long after its end for a client that was cut off
    LAUNCHER_LEFTOVERS_MAX = 4096,
};

struct waiting_control {  // a request to a shepherd that does not listen yet
    uint64_t id;
    uint32_t attempt;
    struct control_request request;
    int64_t until_ms;
};

struct waiting_launch {  // one that the socket had no room for
    uint64_t id;
    uint32_t attempt;
    int fds[3], nfds;
};

struct unresolved_launch {  // its user is not known yet
    struct arena arena;     // of all below
    struct message_launch *launch;
    struct message_secrets *secrets;  // NULL: none
    int64_t until_ms;
    uint32_t *cpus;
    uint32_t ncpus;
    const void *origin;  // as of the action
    size_t origin_len;
};

struct image_watch {  // of an attempt in a container that has not begun yet (images.c)
    uint64_t id;
    uint32_t attempt, looks;
    bool told, ever_told;  // told: on this connection
};

struct leftover {  // of a step (0: of the attempt), acknowledged: its client may still fetch output
    uint64_t id;
    uint32_t attempt, step;
    int64_t until_ms;
};

struct launcher {
    struct agent_node *node;
    struct gpus *gpus;
    struct streams *streams;  // NULL: stopping
    int hints_fd, ends_fd;
    uint32_t ends_kept;     // on disk
    int64_t away_since_ms;  // the controller
    struct shepherds *shepherds;
    struct spool_quota quota;
    bool executing, started, stopping;
    VEC(struct waiting_launch) handed_back;
    VEC(struct unresolved_launch) unresolved;
    VEC(struct image_watch) images;
    int64_t image_list_ms;     // when the users' lists of images are looked at again
    uint64_t image_list_mark;  // of what they were then
    VEC(struct waiting_control) waiting;
    struct agent_step_runner *step_runner;
    VEC(struct leftover) leftovers;
    struct journal_position kept_seen;  // as it lies in the spool folder
    int64_t zygote_due_ms;              // when a dead one is started again; 0: it lives
    int64_t zygote_started_ms;
    int64_t next_look_ms, usage_done_ms;
    int64_t unreadable_ms;  // when it was last said that records cannot be read
    uint32_t usage_at;  // next attempt to be asked
    uv_timer_t retry_timer;
    uv_poll_t hints, users_poll;
};

// launch.c: from the message to the shepherd.
void launcher_launch(struct launcher *l, const struct agent_action *action);
void launcher_users_changed(struct launcher *l);  // somebody's look-up has an answer, or takes too long
// Waits for its user: nothing of it is there yet.
bool launcher_unresolved(const struct launcher *l, uint64_t id, uint32_t attempt);
// True when it waited for its user: it ends before it began.
bool launcher_end_unresolved(struct launcher *l, const struct agent_action *kill);
void launcher_launch_again(struct launcher *l);  // those that were handed back
void launcher_drop_waiting(struct launcher *l);

// actions.c: the other actions.
void launcher_retry(struct launcher *l);  // controls and launches that had to wait
int launcher_send_control(struct launcher *l, uint64_t id, uint32_t attempt,
                          const struct control_request *r);  // once
// Sends a request to a shepherd; one that does not listen yet gets it later.
int launcher_control(struct launcher *l, uint64_t id, uint32_t attempt, const struct control_request *r);

// images.c: images that are being fetched.
bool launcher_image_preparing(struct launcher *l, uint64_t id, uint32_t attempt, struct spool_status *s);
void launcher_image_watch(struct launcher *l, uint64_t id,
                          uint32_t attempt);  // when it is launched or found again
void launcher_images_look(struct launcher *l);
void launcher_image_list_look(struct launcher *l, int64_t now_ms);  // image_list.c

// secrets.c: what a launch names; `s` is what came for it, NULL: nothing.
// Adds the variables to the request, before it is written; writes the files, after the folder was made.
int launcher_secrets_apply(struct launcher *l, const struct message_launch *m,
                           const struct message_secrets *s, struct launch_request *r, struct arena *arena,
                           struct error *e);
uint64_t launcher_secrets_bytes(const struct message_secrets *s);  // of its files in the spool folder
int launcher_secrets_write(struct launcher *l, const struct message_secrets *s,
                           const struct launch_request *r, struct error *e);

// steps.c: steps inside attempts, for agent/logic/step_runner.h.
extern const struct agent_step_host launcher_step_host;
void launcher_step_recover(struct launcher *l, uint64_t id, uint32_t attempt);
// Their ends are recorded: the files of a step, or the folder of an attempt, are removed, at once or when the clients
// of the steps have all output or their time is over.
void launcher_step_hub(struct launcher *l, const struct agent_action *x);
void launcher_step_remove(struct launcher *l, uint64_t id, uint32_t attempt, uint32_t step);
void launcher_attempt_remove(struct launcher *l, uint64_t id, uint32_t attempt);
void launcher_leftovers_check(struct launcher *l, int64_t now_ms);

// attempt_scan.c: what became of attempts.
void launcher_scan(struct launcher *l);  // at the start: all that the spool folder holds
void launcher_read_hints(struct launcher *l);
void launcher_look(struct launcher *l);  // at every attempt
void launcher_check(struct launcher *l, uint64_t id, uint32_t attempt, bool look_alive);
void launcher_report_usage(struct launcher *l, int64_t now_ms);

// unacknowledged_ends.c: ends that wait for the controller survive a reboot.
int launcher_ends_open(struct launcher *l, const char *folder, struct error *e);
void launcher_ends_recover(struct launcher *l);
void launcher_ends_keep(struct launcher *l);
void launcher_ends_forget(struct launcher *l, uint64_t id, uint32_t attempt);
