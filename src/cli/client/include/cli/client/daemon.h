// The second executable, acequiad, holds the daemons and the client for TLS: where it is, and how it
// is started and stopped. Pid files hold a locked pid of a running daemon.
#pragma once
#include <stdbool.h>
#include <sys/types.h>

#include "cli/command/command.h"
#include "model/paths.h"

int client_daemon_path(struct arena *a, const char **out, struct error *e);
// Becomes acequiad with this command line; returns only on failure.
int client_daemon_exec_client(struct cli *c, struct error *e);
int client_daemon_exec(struct cli *c, const char *role, char **arguments, int count, struct error *e);
// In the background: own session, log file, no terminal. `name` names the pid and log files.
int client_daemon_start(struct cli *c, const struct paths *p, const char *name, const char *const *arguments,
                        pid_t *pid, struct error *e);
pid_t client_daemon_running(struct cli *c, const struct paths *p, const char *name);  // 0: not running
// SIGTERM, wait up to timeout_ms, SIGKILL. 1: stopped, 0: was not running.
int client_daemon_stop(struct cli *c, const struct paths *p, const char *name, int timeout_ms,
                       struct error *e);
// The same for another program; `mark` is a text in its command line by which it is recognised.
int client_daemon_program_start(struct cli *c, const struct paths *p, const char *name, const char *program,
                                const char *const *argv, pid_t *pid, struct error *e);
pid_t client_daemon_program_running(struct cli *c, const struct paths *p, const char *name, const char *mark);
int client_daemon_program_stop(struct cli *c, const struct paths *p, const char *name, const char *mark,
                               int timeout_ms, struct error *e);
