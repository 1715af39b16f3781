// Where everything lies: configuration, state, sockets, logs, spools. Decided here and nowhere else.
// With $ACEQUIA_HOME all is below it; root uses the system's folders; others their own (XDG).
#pragma once
#include <stdbool.h>
#include <sys/types.h>

#include "base/arena.h"
#include "base/error.h"

struct paths_environment {
    const char *acequia_home;     // $ACEQUIA_HOME
    const char *home, *xdg_config, *xdg_state, *xdg_runtime;
    bool root;
};

struct paths {
    const char *config;      // the configuration file
    const char *config_dir;  // its folder
    const char *state;       // journal, snapshots, history, certificates
    const char *keys;        // the key of secrets; apart from the state, so that a copy of that is no use without it
    const char *run;         // sockets and pid files
    const char *log;
    const char *socket;      // run/api.sock
    const char *images;      // container images of users, unpacked
    const char *agents;      // folder of the agents' own folders
};

int paths_resolve(const struct paths_environment *env, struct arena *a, struct paths *out, struct error *e);
int paths_get(struct arena *a, struct paths *out, struct error *e);  // of this process
const char *paths_agent(const struct paths *p, struct arena *a, const char *node);        // agents/agent-NODE
const char *paths_agent_spool(const struct paths *p, struct arena *a, const char *node);  // …/spool
const char *paths_pid_file(const struct paths *p, struct arena *a, const char *daemon);   // run/DAEMON.pid
const char *paths_log_file(const struct paths *p, struct arena *a, const char *daemon);   // log/DAEMON.log
#define PATHS_SYSTEM_RUN "/run/acequia"
// The node's ssh server, its ssh-keygen and their libraries, as commands inside containers see them.
#define PATHS_CONTAINER_SSH "/.acequia/ssh"
#define PATHS_SYSTEM_SOCKET PATHS_SYSTEM_RUN "/api.sock"
// What comes with the running program: installed with it, or left by the build. `from` is the program's folder; NULL:
// it is found out. `places` are folders relative to it and end with NULL. The first that has `file`, with the access
// of `mode` (R_OK, X_OK), is returned as an absolute path. NULL: none has it.
const char *paths_beside(struct arena *a, const char *from, const char *const *places, const char *file,
                         int mode);
// The program `name`, which the build leaves in the folder src/MODULE. NULL: it is not installed.
const char *paths_program(struct arena *a, const char *from, const char *module, const char *name);
// Makes the folder if it is not there. What is there already must be a folder of ours that nobody
// else can write to: somebody who can would be trusted with all that is kept in it.
int paths_make(const char *path, mode_t mode, struct error *e);
