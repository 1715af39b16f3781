// The wrapped functions. Each calls the real one, before or after doing what the planted bug does; without a planted
// bug only the encoding of the next version remains.
#include "seams.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/logic/logic.h"
#include "agent/logic/port_relay.h"
#include "base/text.h"
#include "controller/commit_pipeline.h"
#include "images.h"
#include "job_watch.h"
#include "log_flow.h"
#include "model/reason.h"
#include "state.h"
#include "step_watch.h"
#include "store/sim_disk.h"

enum { UNKNOWN_FIELD = 1000, SNAPSHOT_RECORD_JOB = 7 };

// Between two runs in one process, and for functions whose callers cannot pass anything along.
static struct {
    enum planted planted;
    bool next_format, in_snapshot, in_hello, restarted, following;
    uint32_t level;  // of a fresh journal
    uint32_t slice;  // jobs that one event works on
    struct store_watch watch;
    struct sim_disk *disk;
    struct arena arena;
    struct event_session *ended_login;  // of the arena; NULL: none has ended
    const struct core *settling;  // the controller's, while it decides what follows from the end of a worker
    struct map greeted,
        renewed;  // since the controller started: nodes that said hello, leases that were renewed
} seams;

static const struct {
    const char *word, *help;
} planted[PLANTED_COUNT] = {
    [PLANTED_NONE] = {"none", "nothing is broken"},
    [PLANTED_ACK_BEFORE_COMMIT] = {"ack-before-commit",
                                   "commands are answered before their events are on disk"},
    [PLANTED_EFFECTS_BEFORE_COMMIT] = {"effects-before-commit",
                                       "messages leave before their events are on disk"},
    [PLANTED_END_ACKED_EARLY] = {"end-acked-early", "an agent may forget an end before it is recorded"},
    [PLANTED_FOLDER_LEFT_OUT] = {"folder-left-out", "a job is launched without the folder that goes with it"},
    [PLANTED_LAUNCH_TWICE] = {"launch-twice", "an agent launches whatever it is told, also again"},
    [PLANTED_END_FORGOTTEN] = {"end-forgotten", "an agent forgets an end once it was sent"},
    [PLANTED_ENDS_NOT_REPEATED] = {"ends-not-repeated", "an agent's hello leaves out what has ended"},
    [PLANTED_STALE_REPORT] = {"stale-report", "the end of an old attempt is taken for the current one's"},
    [PLANTED_LOST_REQUEUE] = {"lost-requeue", "a job that should go back to the queue does not"},
    [PLANTED_DOUBLE_GRANT] = {"double-grant",
                              "on reconnection what runs is taken for gone and granted again"},
    [PLANTED_STALE_IGNORED] = {"stale-ignored", "attempts that were given up are not cleared away"},
    [PLANTED_UP_TOO_EARLY] = {"up-too-early", "a node is used before its old attempts are gone"},
    [PLANTED_SNAPSHOT_LOSES_JOB] = {"snapshot-loses-job", "the newest job is missing in snapshots"},
    [PLANTED_SNAPSHOT_TOO_EARLY] = {"snapshot-too-early",
                                    "a snapshot becomes visible before its journal record"},
    [PLANTED_RECORD_LOST] = {"record-lost", "the last committed record is gone after a restart"},
    [PLANTED_RELAUNCH_AFTER_REBOOT] = {"relaunch-after-reboot",
                                       "a restarted machine is taken for one that never ran the attempt"},
    [PLANTED_STALL_COUNTS] = {"stall-counts",
                              "a controller that stalled takes its own absence for the nodes' silence"},
    [PLANTED_SUSPEND_NOT_REPEATED] = {"suspend-not-repeated",
                                      "whether a job is suspended is not said at a hello"},
    [PLANTED_SUSPEND_DROPPED] = {"suspend-dropped", "an agent gives up when a shepherd does not listen yet"},
    [PLANTED_SICK_NODE_HARMS] = {"sick-node-harms",
                                 "a launch that fails for the node's reasons ends the job"},
    [PLANTED_SICK_NODE_TRUSTED] = {"sick-node-trusted",
                                   "a node that fails launches gets the next ones at once"},
    [PLANTED_KILL_NOT_REPEATED] = {"kill-not-repeated",
                                   "a kill that was lost is not sent again on reconnection"},
    [PLANTED_USAGE_TWICE] = {"usage-twice", "what a job used is counted twice"},
    [PLANTED_KEY_IGNORED] = {"key-ignored", "a repeated submit makes another job"},
    [PLANTED_KEY_NOT_IN_SNAPSHOT] = {"key-not-in-snapshot", "idempotency keys are missing in snapshots"},
    [PLANTED_KEY_LOST_AT_REPLAY] = {"key-lost-at-replay",
                                    "idempotency keys in the journal are not read again"},
    [PLANTED_LOST_NODE_KEEPS_WORK] = {"lost-node-keeps-work", "a node is given up and keeps its jobs"},
    [PLANTED_HOLD_IGNORED] = {"hold-ignored", "a job that is held later starts all the same"},
    [PLANTED_DRAIN_IGNORED] = {"drain-ignored", "a drained node gets new jobs"},
    [PLANTED_LIMIT_IGNORED] = {"limit-ignored", "a project's limit does not hold"},
    [PLANTED_LICENSE_IGNORED] = {"license-ignored", "a license has seats for every job"},
    [PLANTED_DEPENDENCY_IGNORED] = {"dependency-ignored", "a job starts before what it waits for"},
    [PLANTED_DRAFT_LOST] = {"draft-lost", "drafts, templates and views are gone after a restart"},
    [PLANTED_USER_GRANT_LOST] = {"user-grant-lost", "what a provider's groups gave is not read again"},
    [PLANTED_POLICY_FORGOTTEN] = {"policy-forgotten", "a policy that was set is not in snapshots"},
    [PLANTED_RESTORE_UNNOTICED] =
        {"restore-unnoticed", "after a restore numbers are not moved on, and attempts are launched again"},
    [PLANTED_UNKNOWN_KILLED] = {"unknown-killed", "after a restore what the copy does not know is killed"},
    [PLANTED_STEP_KILLED_AT_RESTART] = {"step-killed-at-restart",
                                        "a started controller ends the steps that run"},
    [PLANTED_STEP_NOT_SENT_AGAIN] = {"step-not-sent-again",
                                     "what a node should run of steps is not said at a hello"},
    [PLANTED_LEASE_LEAKED] = {"lease-leaked",
                              "an allocation whose client ended while the controller was away stays"},
    [PLANTED_STALL_ENDS_LEASES] = {"stall-ends-leases", "a controller that stalled takes clients for away"},
    [PLANTED_CHECKPOINT_TWICE] = {"checkpoint-twice",
                                  "a restarted agent starts the checkpoint command again"},
    [PLANTED_STREAM_REPEATS] = {"stream-repeats", "a stream that is opened again begins anew"},
    [PLANTED_STREAM_MISSES] = {"stream-misses", "a stream that is opened again begins at the end"},
    [PLANTED_STREAM_HANGS] = {"stream-hangs", "a stream of a half-open connection is not opened again"},
    [PLANTED_STREAM_TOO_EARLY] = {"stream-too-early",
                                  "a node is asked for the output of a step before it is told of the step"},
    [PLANTED_STREAM_OF_ANOTHER] = {"stream-of-another",
                                   "after a restore a client is shown another step of its key"},
    [PLANTED_STEP_NOT_RENEWED] = {"step-not-renewed",
                                  "a step's client that is there does not renew its lease"},
    [PLANTED_WORKER_MISSING] = {"worker-missing", "an elastic job starts without a worker of its minimum"},
    [PLANTED_LAUNCH_IN_THE_WAY] = {"launch-in-the-way",
                                   "a job is launched before the optional workers on its place have ended"},
    [PLANTED_MEMBERS_NOT_REPEATED] = {"members-not-repeated",
                                      "the membership of an elastic job is not said at a hello"},
    [PLANTED_WORKER_LEFT_BEHIND] = {"worker-left-behind", "an elastic job that is ended keeps a worker"},
    [PLANTED_COMPONENT_MISSING] = {"component-missing", "a job starts without one of its components"},
    [PLANTED_HEAD_IGNORED] = {"head-ignored", "a job goes on when its head has ended"},
    [PLANTED_HEADLESS_QUEUED] = {"headless-queued", "a job whose head has ended goes back to the queue"},
    [PLANTED_WORKER_CUT_SHORT] = {"worker-cut-short", "a worker of several nodes gets the first of them"},
    [PLANTED_RETRY_NOT_COUNTED] = {"retry-not-counted", "a job that fails is run again for ever"},
    [PLANTED_LOGIN_OUTLIVES_ACCOUNT] =
        {"login-outlives-account",
         "logins stay when their account is removed, disabled or has another password"},
    [PLANTED_LOGOUT_FORGOTTEN] =
        {"logout-forgotten", "the end of a login is not in the journal: a started controller lets it in"},
    [PLANTED_LOGIN_BACK_BY_SNAPSHOT] =
        {"login-back-by-snapshot", "a controller that starts from a snapshot lets in a login that had ended"},
    [PLANTED_LOGIN_USE_FORGOTTEN] = {"login-use-forgotten", "a login ends although it is used"},
    [PLANTED_PASSWORD_LOST] = {"password-lost", "a new password is removed together with the one before"},
    [PLANTED_HEALTH_NOT_REPEATED] = {"health-not-repeated",
                                     "whether a job's program is ready is not read from a hello"},
    [PLANTED_NODE_ASKED_AGAIN] = {"node-asked-again",
                                  "an engine is asked for a node again that it has accepted"},
    [PLANTED_STOPPED_TOO_EARLY] = {"stopped-too-early",
                                   "a node that is given back is stopped while jobs run on it"},
    [PLANTED_STRANGERS_KEPT] = {"strangers-kept",
                                "nodes in an engine that nobody knows of any more are left there"},
    [PLANTED_TOKEN_BACK] = {"token-back", "a revoked token of a service lets callers in after a restart"},
    [PLANTED_OLD_REVISION_SERVES] = {"old-revision-serves",
                                     "a revision that was replaced takes requests after a restart"},
    [PLANTED_SERVICE_JOB_TWICE] = {"service-job-twice",
                                   "a started controller does not know the jobs of its services"},
    [PLANTED_ALERT_FORGOTTEN] = {"alert-forgotten", "who has acknowledged an alert is not in snapshots"},
    [PLANTED_SHARE_BACK] = {"share-back", "a share that was ended is there again after a restart"},
    [PLANTED_ADOPTED_LEASE_LOST] = {"adopted-lease-lost",
                                    "after a restore an allocation that nobody claims stays"},
    [PLANTED_ADOPTED_KEY_LOST] = {"adopted-key-lost",
                                  "after a restore the client of an allocation does not find it"},
    [PLANTED_STEP_NOT_ADOPTED] = {"step-not-adopted",
                                  "after a restore what a node says of a step is not heard"},
    [PLANTED_PART_ALONE] = {"part-alone",
                            "after a restore the part of a node that reports late becomes a job of its own"},
    [PLANTED_PORT_MISSES] = {"port-misses", "bytes that come while a program is slow do not reach it"},
    [PLANTED_PORT_EOF_LOST] = {"port-eof-lost", "a program is not told that the other side has ended"},
    [PLANTED_PORT_CREDIT_LOST] = {"port-credit-lost",
                                  "an agent is not told that more of a program's bytes may be sent"},
    [PLANTED_PORT_ROOM_LOST] = {"port-room-lost",
                                "the client of a port is not told that the program has taken its bytes"},
    [PLANTED_PORT_OUTLIVES_CUT] = {"port-outlives-cut",
                                   "an agent keeps connections to ports when its own connection is cut"},
    [PLANTED_PORT_EARLY_END] = {"port-early-end",
                                "a connection ends when one side has, before the other has got everything"},
    [PLANTED_ATTACH_OTHER_ATTEMPT] = {"attach-other-attempt",
                                      "positions in the output of one attempt are taken for another's"},
    [PLANTED_ATTACH_OTHER_NODES] = {"attach-other-nodes",
                                    "positions in the output of a job's nodes are taken in the order of those of now"},
    [PLANTED_LOG_OLD_FILE] = {"log-old-file",
                              "an agent opens the output that an attempt of this number had before a restore"},
    [PLANTED_LOG_MISSES] = {"log-misses",
                            "output of a job is followed from the end when a client comes back"},
    [PLANTED_LOG_HANGS] = {"log-hangs", "the output of a job is not asked for again when its node is back"},
    [PLANTED_LOG_ENDS_EARLY] = {"log-ends-early",
                                "an agent ends a stream of a job's output while the job runs"},
    [PLANTED_LOG_STAYS] = {"log-stays", "a log that is followed ends with the attempt that ran when it was begun"},
    [PLANTED_LOG_END_ASSUMED] = {"log-end-assumed",
                                 "an agent asks whether an attempt has ended after it has read its output, not before"},
    [PLANTED_LOG_DROPPED_UNTOLD] = {"log-dropped-untold",
                                    "nobody is told of output that was dropped at the limit of what is kept"},
    [PLANTED_CLOCK_BACK_IGNORED] =
        {"clock-back-ignored", "what waits for a time by a clock that was set back waits until it comes"},
    [PLANTED_LEVEL_IGNORED] =
        {"level-ignored", "what an earlier release cannot read is written before the upgrade is finished"},
    [PLANTED_LATER_FIELDS_REFUSED] = {"later-fields-refused",
                                      "a journal that a later release has written to is not read any more"},
    [PLANTED_OLDER_AGENT_IGNORED] = {"older-agent-ignored",
                                     "what an agent of the release before says that it runs is not heard"},
    [PLANTED_ARRAY_CUT_SHORT] = {"array-cut-short",
                                 "a started controller does not create the elements that are missing"},
    [PLANTED_DEPENDENTS_FORGOTTEN] =
        {"dependents-forgotten", "a started controller does not judge the jobs that wait for an ended one"},
    [PLANTED_WORKER_ALONE] = {"worker-alone",
                              "after a restore workers of an elastic job become jobs of their own"},
    [PLANTED_VOLUME_TAKEN_AWAY] = {"volume-taken-away", "a volume is deleted while a job has it"},
    [PLANTED_IMAGES_FORGOTTEN] = {"images-forgotten", "what a node holds of images is not part of the state"},
    [PLANTED_NO_FENCING] = {"no-fencing", "transactions do not check that their leader leads"},
    [PLANTED_LEASE_NOT_CHECKED] = {"lease-not-checked", "a leader goes on when its lease has ended"},
    [PLANTED_OLDER_TERM_OBEYED] = {"older-term-obeyed", "an agent obeys a leader of before"},
    [PLANTED_TERM_NOT_KEPT] = {"term-not-kept", "a restarted agent does not know whom it obeyed"},
    [PLANTED_TERM_NOT_RAISED] = {"term-not-raised",
                                 "a database that is behind what agents have heard stays behind"},
    [PLANTED_FOLLOWER_APPLIES_TWICE] = {"follower-applies-twice", "a follower applies some records twice"},
    [PLANTED_TAKEOVER_UNREAD] = {"takeover-unread",
                                 "a new leader does not read what the one before has committed last"},
    [PLANTED_REPLACED_UNNOTICED] = {"replaced-unnoticed",
                                    "a follower goes on when the database was replaced by an older copy"},
    [PLANTED_ANSWER_TAKEN_AS_FAILURE] = {"answer-taken-as-failure",
                                         "a commit whose answer was lost is taken for failed"},
    [PLANTED_ANSWER_TAKEN_AS_SUCCESS] = {"answer-taken-as-success",
                                         "a commit whose answer was lost is taken for done"},
    [PLANTED_NO_EPOCHS] = {"no-epochs", "attempts of before a restore cannot be told from those after it"},
};

const char *planted_word(enum planted p) {
    return planted[p].word;
}

const char *planted_help(enum planted p) {
    return planted[p].help;
}

bool planted_failover(enum planted p) {
    return p >= PLANTED_NO_FENCING && p <= PLANTED_ANSWER_TAKEN_AS_SUCCESS;
}

int planted_find(const char *word) {
    for (int i = 0; i < PLANTED_COUNT; i++)
        if (streq(planted[i].word, word))
            return i;
    return -1;
}

void seams_plant(enum planted p) {
    seams.planted = p;
}

bool seams_planted(enum planted p) {
    return seams.planted == p;
}

void seams_next_format(bool on) {
    seams.next_format = on;
}

void seams_slice(uint32_t jobs) {
    seams.slice = jobs;
}

void seams_level(uint32_t level) {
    seams.level = level;
}

#define WRAP(type, name, ...)           \
    type __real_##name(__VA_ARGS__);    \
    type __wrap_##name(__VA_ARGS__);    \
    type __wrap_##name(__VA_ARGS__)

// --- format of the next version: fields and records this one does not know ---

static void add_unknown(struct buf *out) {
    schema_put_varint(out, UNKNOWN_FIELD * 2 + 1);
    schema_put_varint(out, 5);
    buf_add(out, "later", 5);
}

WRAP(void, event_encode, const struct event *e, struct buf *out) {
    __real_event_encode(e, out);
    if (seams.next_format)
        add_unknown(out);
}

WRAP(void, message_encode, const struct message *m, struct buf *out) {
    __real_message_encode(m, out);
    if (seams.next_format)
        add_unknown(out);
}

// Only inside snapshots: elsewhere the bytes become part of the state.
WRAP(void, schema_encode, const struct schema *s, const void *value, struct buf *out) {
    __real_schema_encode(s, value, out);
    if (seams.in_snapshot)
        add_unknown(out);
}

WRAP(void, core_snapshot, const struct core *c, struct buf *out) {
    seams.in_snapshot = seams.next_format;
    __real_core_snapshot(c, out);
    seams.in_snapshot = false;
}

WRAP(bool, core_feature, const struct core *c, enum feature f) {
    return seams_planted(PLANTED_LEVEL_IGNORED) || __real_core_feature(c, f);
}

WRAP(int, core_replay, struct core *c, uint64_t seq, int64_t at_ms, enum event_type type, const void *data,
     size_t len) {
    bool later = len > 5 && memcmp((const char *)data + len - 5, "later", 5) == 0;
    if (later && seams_planted(PLANTED_LATER_FIELDS_REFUSED))
        return -EBADMSG;
    int r = __real_core_replay(c, seq, at_ms, type, data, len);
    if (r == 0 && seams.following && seq % 7 == 0 && seams_planted(PLANTED_FOLLOWER_APPLIES_TWICE)) {
        c->seq--;
        r = __real_core_replay(c, seq, at_ms, type, data, len);
    }
    return r;
}

// The first release wrote no level and had no epochs; the later ones began their journals with their level.
WRAP(void, core_start, struct core *c, int64_t now_ms) {
    struct event_level_set b = {.level = seams.level};
    seams.restarted = c->seq > 0;
    if (!c->seq && seams.level == FEATURE_LEVEL_FIRST)
        return;
    if (!c->seq && seams.level < FEATURE_LEVEL_NEWEST)
        core_emit(c, now_ms, EVENT_LEVEL_SET, &b);
    __real_core_start(c, now_ms);
}

// --- several controllers ---

WRAP(bool, agent_logic_term, struct agent_logic *l, uint64_t term) {
    return __real_agent_logic_term(l, term) || seams_planted(PLANTED_OLDER_TERM_OBEYED);
}

WRAP(void, store_raise_term, struct store *s, uint64_t term) {
    if (!seams_planted(PLANTED_TERM_NOT_RAISED))
        __real_store_raise_term(s, term);
}

WRAP(int, pipeline_follow, struct commit_pipeline *p, struct error *e) {
    struct store_lease lease;
    store_lease(pipeline_store(p), &lease);
    if (lease.mine && seams_planted(PLANTED_TAKEOVER_UNREAD))
        return 0;
    seams.following = true;
    int r = __real_pipeline_follow(p, e);
    seams.following = false;
    return r;
}

WRAP(int, store_follow, struct store *s, const struct store_loader *loader, uint64_t *last_seq,
     struct error *e) {
    int r = __real_store_follow(s, loader, last_seq, e);
    return r == -ESTALE && seams_planted(PLANTED_REPLACED_UNNOTICED) ? 0 : r;
}

// --- controller ---

WRAP(uint32_t, core_slice, void) {
    return seams.slice ? seams.slice : __real_core_slice();
}

WRAP(bool, core_depend_continue, struct core *c, int64_t now_ms) {
    return !(seams.restarted && seams_planted(PLANTED_DEPENDENTS_FORGOTTEN)) &&
           __real_core_depend_continue(c, now_ms);
}

WRAP(bool, core_array_continue, struct core *c, int64_t now_ms) {
    return !(seams.restarted && seams_planted(PLANTED_ARRAY_CUT_SHORT)) &&
           __real_core_array_continue(c, now_ms);
}

WRAP(bool, core_wanted_to_start, const struct wanted_node *n, int64_t now_ms) {
    return __real_core_wanted_to_start(n, now_ms) ||
           (seams_planted(PLANTED_NODE_ASKED_AGAIN) && n->state == WANTED_BOOTING);
}

WRAP(bool, core_wanted_to_stop, const struct wanted_node *n) {
    return __real_core_wanted_to_stop(n) ||
           (seams_planted(PLANTED_STOPPED_TOO_EARLY) && n->state == WANTED_DRAINING);
}

WRAP(uint32_t, core_provider_strangers, const struct core *c, const struct provider_report *r, bool settled,
     const struct engine_node **out, uint32_t max) {
    return seams_planted(PLANTED_STRANGERS_KEPT) ? 0 : __real_core_provider_strangers(c, r, settled, out, max);
}

WRAP(int, core_volume_check_unused, const struct core *c, const struct event_volume *v, struct error *e) {
    return seams_planted(PLANTED_VOLUME_TAKEN_AWAY) ? 0 : __real_core_volume_check_unused(c, v, e);
}

WRAP(void, core_apply_images, struct core *c, const struct event *e) {
    if (!seams_planted(PLANTED_IMAGES_FORGOTTEN))
        __real_core_apply_images(c, e);
}

// Only a snapshot has both in one: what was raised, and who has acknowledged it.
WRAP(void, core_apply_alert, struct core *c, const struct event *e) {
    struct event_alert alert = *(const struct event_alert *)e->body;
    struct event changed = {.type = e->type, .at_ms = e->at_ms, .body = &alert};
    if (e->type == EVENT_ALERT_RAISED && seams_planted(PLANTED_ALERT_FORGOTTEN))
        alert.by = NULL;
    __real_core_apply_alert(c, &changed);
}

WRAP(void, pipeline_when_committed, struct commit_pipeline *s, pipeline_done_fn fn, void *arg) {
    if (seams_planted(PLANTED_ACK_BEFORE_COMMIT))
        fn(arg);
    else
        __real_pipeline_when_committed(s, fn, arg);
}

static void add_attempts(const struct message_hello *h, struct message_hello *out,
                         bool (*wanted)(struct core *, const struct attempt *), struct core *c) {
    out->attempts.len = 0;
    for (uint32_t i = 0; i < h->attempts.len; i++)
        if (wanted(c, &h->attempts.at[i]))
            out->attempts.at[out->attempts.len++] = h->attempts.at[i];
}

static bool has_ended(struct core *c, const struct attempt *a) {
    return a->state == ATTEMPT_ENDED;
}

static bool has_not_ended(struct core *c, const struct attempt *a) {
    return a->state != ATTEMPT_ENDED;
}

static bool is_current(struct core *c, const struct attempt *a) {
    struct job_view v;
    return a->state == ATTEMPT_ENDED || (core_view(c, a->id, &v) && v.attempt == a->attempt && v.state != JOB_PENDING);
}

WRAP(int, core_agent_hello, struct core *c, const struct message_hello *h, const char *fingerprint,
     int64_t now_ms, struct error *e) {
    struct attempt kept[64];
    struct node node = h->node ? *h->node : (struct node){0};
    struct message_hello changed = *h;
    struct node_view known;
    if (h->attempts.len <= 64) {
        changed.attempts.at = kept;
        for (uint32_t i = 0; i < h->attempts.len; i++)
            kept[i] = h->attempts.at[i];
        if (seams_planted(PLANTED_DOUBLE_GRANT))
            add_attempts(h, &changed, has_ended, c);
        if (seams_planted(PLANTED_ENDS_NOT_REPEATED))
            add_attempts(h, &changed, has_not_ended, c);
        if (seams_planted(PLANTED_OLDER_AGENT_IGNORED) && !h->level)
            changed.attempts.len = 0;
        if (seams_planted(PLANTED_STALE_IGNORED))
            add_attempts(h, &changed, is_current, c);
    }
    if (seams_planted(PLANTED_RELAUNCH_AFTER_REBOOT) && node.name && core_node(c, node.name, &known)) {
        node.boot_id = known.node->boot_id;
        node.spool_id = known.node->spool_id;
        changed.node = &node;
    }
    seams.in_hello = true;
    int r = __real_core_agent_hello(c, &changed, fingerprint, now_ms, e);
    seams.in_hello = false;
    if (node.name)
        map_put(&seams.greeted, hash_bytes(node.name, strlen(node.name)), c);
    if (seams_planted(PLANTED_UP_TOO_EARLY) && r == 0)
        core_node_ready(c, core_find_node(c, h->node->name), now_ms);
    return r;
}

WRAP(void, core_agent_ended, struct core *c, const char *node, const struct message_ended *m, int64_t now_ms) {
    struct message_ended changed = *m;
    struct job_view v;
    if (seams_planted(PLANTED_STALE_REPORT) && core_view(c, m->id, &v))
        changed.attempt = v.attempt;
    if (seams_planted(PLANTED_SICK_NODE_HARMS) && m->launch_failed) {
        changed.launch_failed = false;
        changed.cause = END_LAUNCH;
    }
    __real_core_agent_ended(c, node, &changed, now_ms);
}

WRAP(void, core_node_launch_failed, struct core *c, struct node_entry *n, const char *reason, int64_t now_ms) {
    if (!seams_planted(PLANTED_SICK_NODE_TRUSTED))
        __real_core_node_launch_failed(c, n, reason, now_ms);
}

WRAP(void, core_node_lost, struct core *c, const char *node, const char *reason, int64_t now_ms) {
    struct event_node b = {.name = node, .state = NODE_DOWN, .reason = reason};
    struct node_view v;
    if (!seams_planted(PLANTED_LOST_NODE_KEEPS_WORK))
        __real_core_node_lost(c, node, reason, now_ms);
    else if (core_node(c, node, &v) && v.state != NODE_DOWN)
        core_emit(c, now_ms, EVENT_NODE_STATE, &b);
}

// All workers of the component that the last of them is of, unless there is no other.
static void leave_out_component(const struct core *c, struct event_workers_placed *b) {
    const struct group *g = map_get(&c->groups, b->id);
    uint32_t len = b->workers.len;
    while (len && g->workers.at[b->workers.at[len - 1].number].component ==
                      g->workers.at[b->workers.at[b->workers.len - 1].number].component)
        len--;
    b->workers.len = len ? len : b->workers.len;
}

WRAP(void, core_begin_ending, struct core *c, struct core_job *j, const struct event_job_ending *how,
     int64_t now_ms) {
    bool head = core_is_group(j) && how->reason == reason_text(BECAUSE_HEAD_ENDED);
    struct event_job_ending changed = *how;
    if (head && seams_planted(PLANTED_HEADLESS_QUEUED))
        changed.cause = END_REQUEUE;
    if (!head || !seams_planted(PLANTED_HEAD_IGNORED))
        __real_core_begin_ending(c, j, &changed, now_ms);
}

WRAP(void, core_group_worker_done, struct core *c, struct core_job *j, const struct run_part *p,
     const char *reason, bool never_ran, int64_t now_ms) {
    seams.settling = c;
    __real_core_group_worker_done(c, j, p, reason, never_ran, now_ms);
    seams.settling = NULL;
}

WRAP(bool, core_group_has_head, const struct group *g) {
    const struct core_job *job = seams.settling && seams_planted(PLANTED_HEADLESS_QUEUED)
                                     ? core_find_job(seams.settling, g->id)
                                     : NULL;
    return !(job && job->run && job->run->ending) && __real_core_group_has_head(g);
}

WRAP(void, core_emit, struct core *c, int64_t now_ms, enum event_type type, void *body) {
    struct event_workers_placed *placed = body;
    if (type == EVENT_WORKERS_PLACED && placed->workers.len > 1 && seams_planted(PLANTED_WORKER_MISSING))
        placed->workers.len--;
    if (type == EVENT_WORKERS_PLACED && seams_planted(PLANTED_COMPONENT_MISSING))
        leave_out_component(c, placed);
    for (uint32_t i = 0; type == EVENT_WORKERS_PLACED && i < placed->workers.len; i++)
        if (seams_planted(PLANTED_WORKER_CUT_SHORT))
            placed->workers.at[i].more.len = 0;
    struct event_job_submitted *submitted = body;
    if (type == EVENT_JOB_SUBMITTED && submitted->submit_ms && seams_planted(PLANTED_ADOPTED_LEASE_LOST))
        submitted->spec->lease_s = 0;
    if (type == EVENT_JOB_REQUEUED && seams_planted(PLANTED_RETRY_NOT_COUNTED))
        ((struct event_job_requeued *)body)->retry = false;
    const struct session_entry *login =
        type == EVENT_SESSION_ENDED && seams_planted(PLANTED_LOGIN_BACK_BY_SNAPSHOT)
            ? strmap_get(&c->login_sessions, ((struct event_session_ended *)body)->id)
            : NULL;
    if (login) {
        arena_done(&seams.arena);
        seams.arena = (struct arena){0};
        seams.ended_login = schema_copy(&event_session_schema, login->session, &seams.arena);
    }
    if (type == EVENT_SESSION_ENDED && seams_planted(PLANTED_LOGOUT_FORGOTTEN)) {
        core_apply_session(c, &(struct event){.type = type, .at_ms = now_ms, .body = body});
        return;
    }
    if (type == EVENT_SESSION_SEEN && seams_planted(PLANTED_LOGIN_USE_FORGOTTEN))
        return;
    if (type == EVENT_USER_PASSWORD && seams_planted(PLANTED_PASSWORD_LOST))
        ((struct event_user_password *)body)->replaced = ((struct event_user_password *)body)->value;
    if (type != EVENT_JOB_REQUEUED || !seams_planted(PLANTED_LOST_REQUEUE))
        __real_core_emit(c, now_ms, type, body);
}

WRAP(int, core_load_snapshot, struct core *c, uint64_t seq, const void *data, size_t len, struct error *e) {
    int r = __real_core_load_snapshot(c, seq, data, len, e);
    if (r == 0 && seams.ended_login && seams_planted(PLANTED_LOGIN_BACK_BY_SNAPSHOT))
        core_apply_session(c, &(struct event){.type = EVENT_SESSION_BEGUN, .body = seams.ended_login});
    return r;
}

WRAP(void, core_sessions_of_account_end, struct core *c, const char *account, const char *but, const char *by,
     int64_t now_ms) {
    if (!seams_planted(PLANTED_LOGIN_OUTLIVES_ACCOUNT))
        __real_core_sessions_of_account_end(c, account, but, by, now_ms);
}

WRAP(bool, core_launch_waits, const struct core *c, const struct core_job *j) {
    return seams_planted(PLANTED_LAUNCH_IN_THE_WAY) ? j->run && j->run->delayed
                                                    : __real_core_launch_waits(c, j);
}

WRAP(void, core_group_send_members, struct core *c, const struct core_job *j, const struct run_part *p) {
    if (!seams_planted(PLANTED_MEMBERS_NOT_REPEATED))
        __real_core_group_send_members(c, j, p);
}

WRAP(void, core_health_reconcile, struct core *c, const struct core_job *j, const char *node,
     const struct attempt *a, int64_t now_ms) {
    if (!seams_planted(PLANTED_HEALTH_NOT_REPEATED))
        __real_core_health_reconcile(c, j, node, a, now_ms);
}

WRAP(void, core_send_suspend, struct core *c, const struct core_job *j, const struct run_part *p) {
    if (!seams.in_hello || !seams_planted(PLANTED_SUSPEND_NOT_REPEATED))
        __real_core_send_suspend(c, j, p);
}

WRAP(void, core_send_kill, struct core *c, const struct core_job *j, const struct run_part *p) {
    bool forgotten = seams_planted(PLANTED_WORKER_LEFT_BEHIND) && core_is_worker(j) && j->array_index == 1;
    if (!seams_planted(PLANTED_KILL_NOT_REPEATED) && !forgotten)
        __real_core_send_kill(c, j, p);
}

WRAP(void, usage_add, struct usage *sum, const struct usage *more) {
    __real_usage_add(sum, more);
    if (seams_planted(PLANTED_USAGE_TWICE))
        sum->cpu_user_us += more->cpu_user_us;
}

// --- what the scheduler is told ---

WRAP(int, world_job_hold, struct world *w, uint64_t id, enum sched_hold hold) {
    bool ignore = seams_planted(PLANTED_HOLD_IGNORED) && (hold == SCHED_HOLD_USER || hold == SCHED_HOLD_ADMIN);
    return ignore ? 0 : __real_world_job_hold(w, id, hold);
}

WRAP(int, world_job_add, struct world *w, const struct sched_job *job) {
    struct sched_job changed = *job;
    if (seams_planted(PLANTED_DEPENDENCY_IGNORED) && job->hold == SCHED_HOLD_DEPENDENCY)
        changed.hold = SCHED_HOLD_NONE;
    return __real_world_job_add(w, &changed);
}

WRAP(void, world_node_state, struct world *w, uint32_t id, enum sched_node_state state) {
    bool ignore = seams_planted(PLANTED_DRAIN_IGNORED) && state == SCHED_NODE_DRAINED;
    __real_world_node_state(w, id, ignore ? SCHED_NODE_UP : state);
}

WRAP(int, world_project_set, struct world *w, const struct sched_project *p, struct error *err) {
    struct sched_project changed = *p;
    if (seams_planted(PLANTED_LIMIT_IGNORED))
        changed.limit_milligpu = SCHED_UNLIMITED;
    return __real_world_project_set(w, &changed, err);
}

WRAP(int, world_license_set, struct world *w, const struct sched_license *l, struct error *err) {
    struct sched_license changed = *l;
    if (seams_planted(PLANTED_LICENSE_IGNORED))
        changed.count = UINT32_MAX;
    return __real_world_license_set(w, &changed, err);
}

WRAP(void, core_apply_policy, struct core *c, const struct policy_settings *s, int64_t at_ms) {
    if (!seams_planted(PLANTED_POLICY_FORGOTTEN) || at_ms)
        __real_core_apply_policy(c, s, at_ms);
}

// --- steps and leases ---

WRAP(void, core_steps_reconcile, struct core *c, struct core_job *j, const char *node,
     const struct attempt *a, bool restored, int64_t now_ms) {
    uint64_t name = hash_bytes(node, strlen(node));
    for (uint32_t i = 0; i < a->steps.len && seams_planted(PLANTED_STEP_KILLED_AT_RESTART); i++) {
        struct message_kill k = {
            .id = a->id, .attempt = a->attempt, .step = a->steps.at[i].step, .signal = 9};
        if (!a->steps.at[i].end && !map_get(&seams.greeted, name))
            core_effect_send(c, node, MESSAGE_KILL, &k);
    }
    if (!seams_planted(PLANTED_STEP_NOT_SENT_AGAIN))
        __real_core_steps_reconcile(c, j, node, a, restored, now_ms);
}

WRAP(void, core_lease_renew, struct core *c, uint64_t id) {
    if (seams_planted(PLANTED_LEASE_LEAKED))
        map_put(&seams.renewed, id, c);
    __real_core_lease_renew(c, id);
}

WRAP(void, core_leases_check, struct core *c, int64_t now_ms) {
    for (uint32_t i = 0; i < c->leased.len && seams_planted(PLANTED_LEASE_LEAKED); i++)
        if (!map_get(&seams.renewed, c->leased.at[i].id))
            c->leased.at[i].away_ms = 0;  // a client that never came since the controller started
    for (uint32_t i = 0; i < c->leased.len && seams_planted(PLANTED_STALL_ENDS_LEASES); i++)
        c->leased.at[i].away_ms += c->next_lease_ms ? now_ms - c->next_lease_ms : 0;
    __real_core_leases_check(c, now_ms);
}

// --- clients of steps ---

WRAP(int, controller_follow_positions, const uint64_t *from, uint32_t given, struct follow_source *sources,
     uint32_t count, struct error *e) {
    return __real_controller_follow_positions(from, seams_planted(PLANTED_STREAM_REPEATS) ? 0 : given,
                                              sources, count, e);
}

WRAP(void, controller_streams_node_gone, struct stream_table *t, const char *node) {
    if (!seams_planted(PLANTED_STREAM_HANGS))
        __real_controller_streams_node_gone(t, node);
}

WRAP(uint64_t, core_step_told_seq, const struct core *c, uint64_t id, uint32_t number, uint32_t part) {
    return seams_planted(PLANTED_STREAM_TOO_EARLY) ? 0 : __real_core_step_told_seq(c, id, number, part);
}

WRAP(int, controller_step_watch_resume, struct step_watch *w, const struct step_watch_question *q,
     struct error *e) {
    struct step_watch_question changed = *q;
    if (seams_planted(PLANTED_STREAM_OF_ANOTHER))
        changed = (struct step_watch_question){.key = q->key, .from = q->from, .from_count = q->from_count};
    return __real_controller_step_watch_resume(w, &changed, e);
}

WRAP(void, core_step_renew, struct core *c, uint64_t id, uint32_t step) {
    if (!seams_planted(PLANTED_STEP_NOT_RENEWED))
        __real_core_step_renew(c, id, step);
}

// --- ports ---

WRAP(void, agent_port_take, struct port_relay *r, const struct message_stream *m) {
    struct message_stream changed = *m;
    if (seams_planted(PLANTED_PORT_MISSES) && r->unsent.len)
        changed.data.len = 0;
    if (seams_planted(PLANTED_PORT_EOF_LOST))
        changed.eof = false;
    if (seams_planted(PLANTED_PORT_EARLY_END) && m->eof)
        r->program_ended = true;
    __real_agent_port_take(r, &changed);
}

WRAP(void, agent_port_credit, struct port_relay *r, uint64_t bytes) {
    __real_agent_port_credit(r, seams_planted(PLANTED_PORT_CREDIT_LOST) ? 0 : bytes);
}

WRAP(void, controller_stream_message, struct stream_table *t, const char *node, const struct message *m) {
    if (!seams_planted(PLANTED_PORT_ROOM_LOST) || m->type != MESSAGE_STREAM_CREDIT)
        __real_controller_stream_message(t, node, m);
}

// --- store ---

WRAP(int, sim_store_open, struct sim_disk *d, const struct store_config *config, struct store **out, struct error *e) {
    seams.watch = config->watch;
    seams.disk = d;
    map_done(&seams.greeted);
    map_done(&seams.renewed);
    seams.greeted = seams.renewed = (struct map){0};
    if (seams_planted(PLANTED_RECORD_LOST) && d->journal.len)
        d->journal.len--;
    return __real_sim_store_open(d, config, out, e);
}

WRAP(uint64_t, store_submit, struct store *s, struct store_batch *b) {
    uint64_t ticket = __real_store_submit(s, b);
    if (seams_planted(PLANTED_EFFECTS_BEFORE_COMMIT))
        seams.watch.committed(seams.watch.ctx, ticket, 0);
    return ticket;
}

// --- idempotency keys ---

WRAP(int, core_key_find, struct core *c, const char *user, const char *key, const struct spec *spec, int64_t now_ms,
     struct event_key *entry, struct command_result *out, struct error *e) {
    int r = __real_core_key_find(c, user, key, spec, now_ms, entry, out, e);
    if (seams_planted(PLANTED_KEY_IGNORED))
        out->repeated = false;
    return r;
}

// Called from outside its file only when a snapshot is loaded.
WRAP(void, core_key_put, struct core *c, const struct core_key *key) {
    if (!seams_planted(PLANTED_KEY_NOT_IN_SNAPSHOT))
        __real_core_key_put(c, key);
}

WRAP(void, core_key_add, struct core *c, const struct event_key *key, const char *user, uint64_t id, uint64_t count) {
    if (!seams_planted(PLANTED_KEY_LOST_AT_REPLAY) || !c->replaying)
        __real_core_key_add(c, key, user, id, count);
}

WRAP(void, core_apply_saved, struct core *c, const struct event *e) {
    if (!seams_planted(PLANTED_DRAFT_LOST) || !c->replaying)
        __real_core_apply_saved(c, e);
}

WRAP(void, core_apply_service_token, struct core *c, const struct event *e) {
    if (!seams_planted(PLANTED_TOKEN_BACK) || !c->replaying || e->type != EVENT_SERVICE_TOKEN_REVOKED)
        __real_core_apply_service_token(c, e);
}

WRAP(void, core_apply_service, struct core *c, const struct event *e) {
    struct event_service *b = e->body;
    for (uint32_t i = 0; c->replaying && i < b->revisions.len; i++)
        if (b->revisions.at[i].state == REVISION_RETIRING && seams_planted(PLANTED_OLD_REVISION_SERVES))
            b->revisions.at[i].state = REVISION_SERVING;
    __real_core_apply_service(c, e);
}

WRAP(void, core_service_job_linked, struct core *c, const struct core_job *j) {
    if (!seams_planted(PLANTED_SERVICE_JOB_TWICE) || !c->replaying)
        __real_core_service_job_linked(c, j);
}

WRAP(void, core_apply_grant, struct core *c, const struct event_user_grant *b) {
    if (!seams_planted(PLANTED_USER_GRANT_LOST) || !c->replaying)
        __real_core_apply_grant(c, b);
}

WRAP(void, core_apply_share, struct core *c, const struct event *e) {
    if (!seams_planted(PLANTED_SHARE_BACK) || !c->replaying || e->type != EVENT_SHARE_ENDED)
        __real_core_apply_share(c, e);
}

// The snapshot without its last record of a job.
static size_t without_last_job(const uint8_t *data, size_t len, uint8_t *out) {
    const uint8_t *p = data, *end = data + len, *from = NULL, *to = NULL;
    while (p < end) {
        const uint8_t *start = p;
        uint64_t type, size;
        if (schema_get_varint(&p, end, &type) < 0 || schema_get_varint(&p, end, &size) < 0)
            break;
        p += size;
        if (type == SNAPSHOT_RECORD_JOB) {
            from = start;
            to = p;
        }
    }
    if (!from)
        from = to = end;
    memcpy(out, data, (size_t)(from - data));
    memcpy(out + (from - data), to, (size_t)(end - to));
    return (size_t)(from - data) + (size_t)(end - to);
}

WRAP(int, store_snapshot, struct store *s, uint64_t seq, const void *data, size_t len) {
    if (seams_planted(PLANTED_SNAPSHOT_LOSES_JOB)) {
        uint8_t *less = xmalloc(len + 1);
        int r = __real_store_snapshot(s, seq, less, without_last_job(data, len, less));
        free(less);
        return r;
    }
    if (seams_planted(PLANTED_SNAPSHOT_TOO_EARLY))
        sim_disk_keep_snapshot(seams.disk, seq, xmemdup(data, len), len);
    return __real_store_snapshot(s, seq, data, len);
}

// --- agent ---

WRAP(void, agent_logic_ended, struct agent_logic *l, const struct message_ended *end) {
    struct message_ack ack = {end->id, end->attempt};
    __real_agent_logic_ended(l, end);
    if (seams_planted(PLANTED_END_FORGOTTEN))
        agent_logic_message(l, &(struct message){MESSAGE_ACK, &ack}, 0);
}

// --- restores ---

WRAP(bool, core_find_restore, struct core *c, const struct node_entry *n, const struct message_hello *h,
     int64_t now_ms) {
    return !seams_planted(PLANTED_RESTORE_UNNOTICED) && __real_core_find_restore(c, n, h, now_ms);
}

WRAP(bool, core_attempt_unknown, const struct core *c, const struct node_entry *n, const struct attempt *a) {
    return !seams_planted(PLANTED_UNKNOWN_KILLED) && __real_core_attempt_unknown(c, n, a);
}

WRAP(uint32_t, core_effect_messages, struct core *c, const struct effect *f, const struct core_sources *from,
     int64_t now_ms, struct arena *a, struct message out[static CORE_EFFECT_MESSAGES_MAX]) {
    uint32_t n = __real_core_effect_messages(c, f, from, now_ms, a, out);
    for (uint32_t i = 0; i < n && seams_planted(PLANTED_NO_EPOCHS); i++) {
        struct message_launch *m = out[i].body;
        if (out[i].type == MESSAGE_LAUNCH)
            m->epoch = m->seq = 0;
    }
    return n;
}

WRAP(bool, core_adopt_worker, struct core *c, const struct message_attempt *m,
     struct event_job_placed *placed, int64_t now_ms) {
    return !seams_planted(PLANTED_WORKER_ALONE) && __real_core_adopt_worker(c, m, placed, now_ms);
}

WRAP(bool, core_adopt_part, struct core *c, const struct node_entry *n, const struct message_launch *l,
     int64_t now_ms) {
    return !seams_planted(PLANTED_PART_ALONE) && __real_core_adopt_part(c, n, l, now_ms);
}

WRAP(bool, core_key_adopt, const struct core *c, const char *text, int64_t now_ms, struct event_key *out) {
    return !seams_planted(PLANTED_ADOPTED_KEY_LOST) && __real_core_key_adopt(c, text, now_ms, out);
}

WRAP(void, core_agent_step_known, struct core *c, const char *node, const struct message_step_known *m,
     int64_t now_ms) {
    if (!seams_planted(PLANTED_STEP_NOT_ADOPTED))
        __real_core_agent_step_known(c, node, m, now_ms);
}

// --- output of jobs ---

WRAP(void, agent_log_flow_begin, struct log_flow *f, const struct message_log_read *m, int64_t now_ms) {
    __real_agent_log_flow_begin(f, m, now_ms);
    if (seams.planted == PLANTED_LOG_MISSES && f->at.at)
        f->at.at += 1;
    if (seams.planted == PLANTED_LOG_ENDS_EARLY)
        f->follow = false;
}

WRAP(bool, agent_log_flow_has_begun, const struct log_flow *f, const struct agent_logic *l) {
    return seams.planted == PLANTED_LOG_OLD_FILE || __real_agent_log_flow_has_begun(f, l);
}

WRAP(void, controller_job_watch_node_up, struct job_watch *w, const char *node) {
    if (seams.planted != PLANTED_LOG_HANGS)
        __real_controller_job_watch_node_up(w, node);
}

WRAP(void, controller_follow_open_waiting, struct controller_follow *f) {
    if (seams.planted != PLANTED_LOG_HANGS)
        __real_controller_follow_open_waiting(f);
}

// --- clocks ---

WRAP(int64_t, core_schedule, struct core *c, int64_t now_ms) {
    if (seams.planted == PLANTED_CLOCK_BACK_IGNORED)
        c->scheduled_ms = INT64_MIN;
    return __real_core_schedule(c, now_ms);
}
