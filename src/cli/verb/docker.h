// docker's words inside jobs: what the parts share.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/vec.h"
#include "cli/command/command.h"

enum {
    DOCKER_FAILED = 125,  // docker's own failure, as docker has it
    DOCKER_WORDS_MAX = 4096,
    DOCKER_NAME_MAX = 64,
    DOCKER_LIST_MAX = 1024,
    DOCKER_REPORT_FD = 3,  // on which acequia-box says why it failed (launch/box_report.h)
    DOCKER_REPORT_MAX = 512,
};

// The variable in which the agent leaves how acequia-box is started for this job: words separated by tabs.
#define DOCKER_BOX "ACEQUIA_BOX_OPTIONS"

struct docker {
    struct cli *c;
    bool nvidia;        // called as nvidia-docker: GPUs are given without being asked for
    const char *cache;  // the user's folder for images
    char **box;         // acequia-box and its options, ended by NULL
    uint32_t boxc;
};

// What `docker run` is asked for.
struct docker_run {
    const char *name, *workdir, *entrypoint, *image, *pull;
    struct buf mounts;
    VEC(const char *) env;
    bool detach, remove, gpus;
    int64_t gpu_count;  // -1: all
    char **argv;
    int argc;
};

// docker_options.c: reads words up to the image or container. `exec`: of docker exec.
int docker_options_read(struct docker *d, bool exec, int argc, char **argv, struct docker_run *out);
void docker_run_done(struct docker_run *r);

// A container that this job started, as its file says.
struct docker_state {
    char id[65], name[DOCKER_NAME_MAX], image[512], command[256];
    pid_t pid;
    uint64_t start;  // of the process, by which it is told from a later one with the same number
    int64_t started_ms;
    int exit_code;        // -1: not known, or it runs
    bool detached, kept;  // kept: its files stay, as a container of that name
    bool running;
};
struct docker_list {
    VEC(struct docker_state) at;
};
// docker_state.c
void docker_state_list(struct docker *d, struct docker_list *out);
struct docker_state *docker_state_find(struct docker_list *l,
                                       const char *name);  // by name or the beginning of its id
int docker_state_write(struct docker *d, const struct docker_state *s);
void docker_state_remove(struct docker *d, const struct docker_state *s);
const char *docker_state_path(struct docker *d, const char *id, const char *what);
void docker_state_new(struct docker_state *s);  // its id, and a name
// Sends to every process of the container.
int docker_signal(const struct docker_state *s, int number);
// How a kept container was run, for docker exec and start in later jobs.
const char *docker_kept_path(struct docker *d, const char *name);
bool docker_kept(struct docker *d, const char *name);  // there is a container of that name
int docker_main(int argc, char **argv, const struct cli_transport *tls);
bool docker_is_name(const char *name);  // of the links: docker, nvidia-docker, sudo
int docker_sudo(int argc, char **argv, const struct cli_transport *tls);
