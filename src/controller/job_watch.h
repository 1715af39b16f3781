// What one client has of a job's output: of all nodes of an attached job (run, attach), or one log that is followed.
// Which attempt is shown, from where on, and when the client has everything. Pure: the daemon's sessions and the fault
// simulator run the same code.
#pragma once
#include "follow.h"
#include "job_output.h"
#include "session_messages.h"

struct job_watch_client {
    void (*say)(void *ctx, const struct schema *schema, const void *value);
    ssize_t (*send)(void *ctx, const char *data, size_t len);  // as follow_client
    void (*pause)(void *ctx, bool on);
    // Each ends the conversation: nothing more is said. The watch must not be freed inside.
    void (*failed)(void *ctx, const struct error *e);
    void (*complete)(void *ctx, const char *final);  // all output was sent, and this is how the job ended
    void (*come_again)(void *ctx);  // the attempt has more nodes than it was told; only of one that keeps positions
};

struct job_watch_log {
    bool once;   // as far as it is now
    bool error;  // not the output
    bool times;
    uint32_t node, attempt;  // attempt 0: the newest
    uint64_t from, file;
    int64_t tail;  // last lines; -1: all
};

struct job_watch_options {
    struct job_lookup source;
    struct stream_table *streams;
    const struct actor *actor;  // lives as long
    const struct job_watch_client *client;
    void *ctx;
    bool placed;                      // the client keeps positions
    bool resume;                      // it was here before and goes on
    const struct job_watch_log *log;  // copied; NULL: all output of an attached job
};

struct job_watch;
struct job_watch *controller_job_watch_new(const struct job_watch_options *o);
struct job_watch *controller_job_watch_free(struct job_watch *w);
struct controller_follow *controller_job_watch_follow(
    struct job_watch *w);  // until the next call of `changed`
void controller_job_watch_set(struct job_watch *w, uint64_t job);
// What a client that comes back says: the positions that it has, and of which attempt (0: it does not say). After a
// restore another attempt may have the number, placed in another epoch (0: not known).
struct job_watch_positions {
    const uint64_t *from;  // lives as long
    uint32_t count, attempt;
    uint64_t epoch;
    const char *const *nodes;  // that they are of; lives as long
    uint32_t node_count;       // 0: it does not say
};
// Whoever comes back gets the rest of the output, also of a job that has ended meanwhile.
void controller_job_watch_begin(struct job_watch *w, bool resume, const struct job_watch_positions *has);
void controller_job_watch_changed(struct job_watch *w);  // its job has
void controller_job_watch_node_up(struct job_watch *w, const char *node);
void controller_job_watch_tick(struct job_watch *w);  // now and then: how it ended could not be read
