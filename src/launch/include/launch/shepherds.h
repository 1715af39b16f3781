// The agent's hold on the shepherd program: starts the zygote, hands it folders to run, starts it
// again if it dies. Jobs do not notice any of that.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

struct shepherds_options {
    const char *program;     // path of acequia-shepherd
    const char *spool_path;  // absolute
    const char *cgroup;      // "auto", "v1", "v2", "none"
    const char *tag;         // tells agents of one machine apart
    unsigned ready_min, ready_max;  // 0: chosen by the number of cpus
    uint64_t open_files;  // the jobs' limit of open files unless they ask for another; 0: the caller's own
};

struct shepherds;
int launch_shepherds_start(struct shepherds **out, const struct shepherds_options *o, struct error *e);
struct shepherds *launch_shepherds_free(struct shepherds *s);  // the zygote leaves; running jobs go on
// Hands an attempt's folder over. -EAGAIN: too many are waiting; try again when writable.
int launch_shepherds_launch(struct shepherds *s, uint64_t job, uint32_t attempt, const int *fds, int nfds);
int launch_shepherds_fd(const struct shepherds *s);  // writable again after -EAGAIN
pid_t launch_shepherds_pid(const struct shepherds *s);
// After the zygote ended (SIGCHLD): starts another on the same socket.
int launch_shepherds_restart(struct shepherds *s, struct error *e);
