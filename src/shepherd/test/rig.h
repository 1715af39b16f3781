// A spool folder with a running zygote, and jobs described in a line, for the tests.
#pragma once
#include "cgroup/cgroup.h"
#include "launch/shepherds.h"
#include "launch/spool.h"

struct rig {
    char path[128];
    const char *program, *mode;
    int spool, hints;
    struct shepherds *shepherds;
    struct cgroup_site site;
    uint64_t next_job;
};

int rig_start(struct rig *r, const char *program, const char *mode);
int rig_stop(struct rig *r);  // kills what runs and removes everything; 1 if shepherds complained
int rig_complaints(int spool);
void rig_agent_dies(struct rig *r);
void rig_agent_returns(struct rig *r);

// A request for `sh -c TEXT` with the usual environment; the caller changes what it likes.
struct job {
    struct launch_request req;
    struct launch_process task;
    char *argv[8];
    char *env[8];
    char out[192];
    char text[2048];
    const char *script;
};
void job_sh(struct rig *r, struct job *j, const char *text);
void job_submit(struct rig *r, struct job *j);
// Waits for the end (or fails after timeout_ms) and removes the folder.
struct spool_status client_job_wait(struct rig *r, const struct job *j, int timeout_ms);
struct spool_status job_run(struct rig *r, struct job *j);
void job_wait_started(struct rig *r, const struct job *j);
struct spool_status step_wait(struct rig *r, const struct job *j, uint32_t step, int timeout_ms);
const char *job_output(const struct job *j);  // static
int count_processes(const char *mark);  // started by this test with that "470NN"
void nap_ms(int ms);
