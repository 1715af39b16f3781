// Shared by the files of the daemon only: its state and functions. Everything runs on one
// event loop; decisions are made in agent/logic, the files here carry them out.
#pragma once
#include "agent/daemon/daemon.h"
#include "agent/gpu/gpus.h"
#include "agent/logic/step_runner.h"
#include "agent/node/node.h"
#include "agent/stream/streams.h"
#include "launch/shepherds.h"
#include "launch/spool_quota.h"

enum {
    AGENT_TICK_MS = 250,
    AGENT_LOOK_EVERY_MS = 2000,  // hints may get lost: how often every attempt is looked at
    AGENT_CONTROL_RETRY_MS = 25,
    AGENT_DIAL_FIRST_MS = 100,
    AGENT_DIAL_MAX_MS = 10000,
    AGENT_ENDS_AFTER_MS = 5000,      // without a controller: ends go to disk
    AGENT_ZYGOTE_REST_MS = 2000,     // between two deaths of the zygote
    AGENT_USER_PATIENCE_MS = 20000,  // a launch whose user nobody tells; then the job is queued again
    AGENT_LEFTOVER_MS =
        60 * 1000,  // output of a step stays so long after its end for a client that was cut off
    AGENT_LEFTOVERS_MAX = 4096,
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

struct waiting_secrets {
    struct arena arena;
    struct message_secrets *message;
};

struct leftover {  // of a step (0: of the attempt), acknowledged: its client may still fetch output
    uint64_t id;
    uint32_t attempt, step;
    int64_t until_ms;
};

struct agent {
    struct agent_node shared;  // first: agent_of() relies on it
    const struct agent_options *options;
    int hints_fd, ends_fd;
    uint32_t ends_kept;    // on disk
    int64_t away_since_ms; // the controller; 0: it is there
    struct shepherds *shepherds;
    struct spool_quota quota;
    bool executing;
    VEC(struct waiting_launch) handed_back;
    VEC(struct unresolved_launch) unresolved;
    VEC(struct waiting_secrets) secrets;  // of launches to come
    VEC(struct image_watch) images;
    VEC(struct waiting_control) waiting;
    struct agent_step_runner *step_runner;
    VEC(struct leftover) leftovers;
    struct journal_position kept_seen;  // as it lies in the spool folder

    bool welcomed_once;
    struct message_skips skips;  // message types of a later controller
    struct tls_context *tls;
    int64_t zygote_due_ms;  // when a dead one is started again; 0: it lives
    int64_t zygote_started_ms;
    int64_t dial_delay_ms, next_look_ms, usage_done_ms;
    uint32_t usage_at;  // next attempt to be asked
    uv_timer_t tick, dial, retry;
    uv_poll_t hints, users_poll;
    uv_signal_t on_term, on_int, on_child;
    uint32_t handles;
    bool stopping;

    struct streams *streams;
    const char *metrics_listen;  // "": none
    struct agent_metrics *metrics;
    struct gpus *gpus;
};

static inline struct agent *agent_of(struct agent_node *n) {
    return (struct agent *)n;
}

// actions.c: carries out what the logic decided.
void agent_execute(struct agent *a);
void agent_retry(struct agent *a);  // controls and launches that had to wait
void agent_users_changed(struct agent *a);  // somebody's look-up has an answer, or takes too long
// Waits for its user: nothing of it is there yet.
bool agent_unresolved(const struct agent *a, uint64_t id, uint32_t attempt);
int agent_send_control(struct agent *a, uint64_t id, uint32_t attempt, const struct control_request *r);  // once
// Sends a request to a shepherd; one that does not listen yet gets it later.
int agent_control(struct agent_node *n, uint64_t id, uint32_t attempt, const struct control_request *r);

// images.c: images that are being fetched.
bool agent_image_preparing(struct agent *a, uint64_t id, uint32_t attempt, struct spool_status *s);
void agent_image_watch(struct agent *a, uint64_t id, uint32_t attempt);  // when it is launched or found again
void agent_image_connected(struct agent *a);
void agent_images_look(struct agent *a);

// secrets.c: what a launch names.
void agent_secrets_keep(struct agent *a, const struct message_secrets *m);
void agent_secrets_forget(struct agent *a, uint64_t id, uint32_t attempt);
void agent_secrets_forget_all(struct agent *a);
// Adds the variables to the request, before it is written; writes the files, after the folder was made.
int agent_secrets_apply(struct agent *a, const struct message_launch *m, struct launch_request *r,
                        struct arena *arena, struct error *e);
uint64_t agent_secrets_bytes(const struct agent *a,
                             const struct message_launch *m);  // of its files in the spool
int agent_secrets_write(struct agent *a, const struct message_launch *m, const struct launch_request *r,
                        struct error *e);

// step_runner.c: steps inside attempts, for agent/logic/step_runner.h.
extern const struct agent_step_host agent_step_host;
void agent_step_recover(struct agent *a, uint64_t id, uint32_t attempt);
// Their ends are recorded: the files of a step, or the folder of an attempt, are removed, at once or when the clients
// of the steps have all output or their time is over.
void agent_step_remove(struct agent *a, uint64_t id, uint32_t attempt, uint32_t step);
void agent_attempt_remove(struct agent *a, uint64_t id, uint32_t attempt);
void agent_leftovers_check(struct agent *a, int64_t now_ms);

// attempt_scan.c: what became of attempts.
void agent_recover(struct agent *a);
void agent_read_hints(struct agent *a);
void agent_look(struct agent *a);  // at every attempt
void agent_check(struct agent *a, uint64_t id, uint32_t attempt, bool look_alive);
void agent_report_usage(struct agent *a, int64_t now_ms);

// unacknowledged_ends.c: ends that wait for the controller survive a reboot.
int agent_ends_open(struct agent *a, struct error *e);
void agent_ends_recover(struct agent *a);
void agent_ends_keep(struct agent *a);
void agent_ends_forget(struct agent *a, uint64_t id, uint32_t attempt);

// describe.c: the machine in words.
int agent_describe(struct agent *a, struct error *e);
const char *agent_find_shepherd(struct arena *a, const char *given);
