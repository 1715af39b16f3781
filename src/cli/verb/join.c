// acequia join: makes this machine a node of a cluster, in one line, and keeps it one after a reboot.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "cli/client/daemon.h"
#include "model/name.h"
#include "model/paths.h"
#include "verbs.h"

enum { JOIN_TOKEN_MAX = 4096 };

#define AGENT_DEFAULTS "/etc/default/acequia-agent"

static const struct option_spec specs[] = {
    {"name", 0, "NAME", "Name of the node; default: the host name.", 0, NULL, NULL},
    {"token-file", 0, "FILE", "Read the token from this file; default: from standard input.", 0, NULL,
     "@file"},
};
static const struct option_table join_options = OPTION_TABLE("Options", specs);

static int read_token(struct cli *c, char *out) {
    const char *file = option_get(&c->options, "token-file");
    cleanup_close int fd = file ? open(file, O_RDONLY | O_CLOEXEC) : dup(STDIN_FILENO);
    size_t len = 0;
    if (fd < 0)
        return error_set(&c->error, errno, "cannot read %s: %s", file ? file : "standard input",
                         strerror(errno));
    if (!file && isatty(STDIN_FILENO))
        fprintf(stderr, "Token (from 'acequia token create' on the controller): ");
    for (ssize_t n; len < JOIN_TOKEN_MAX && (n = read(fd, out + len, JOIN_TOKEN_MAX - len)) > 0 &&
                    !memchr(out + len, '\n', (size_t)n);)
        len += (size_t)n;
    out[JOIN_TOKEN_MAX] = 0;
    out[strcspn(out, "\r\n")] = 0;
    if (!*out)
        return error_set(
            &c->error, EINVAL,
            "there is no token; create one with 'acequia token create' on the controller and paste the "
            "line that it prints");
    return 0;
}

// The token goes to the daemon in a file that only this user can read, and that is gone afterwards.
static int write_token(struct cli *c, const struct paths *p, const char *token, char **file) {
    *file = arena_printf(&c->arena, "%s/join.XXXXXX", p->state);
    cleanup_close int fd = mkostemp(*file, O_CLOEXEC);
    if (fd < 0 || dprintf(fd, "%s\n", token) < 0)
        return error_set(&c->error, errno, "cannot write %s: %s", *file, strerror(errno));
    return 0;
}

static int run_program(struct cli *c, const char *path, const char *const *argv) {
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        execvp(path, (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (pid < 0 || !WIFEXITED(status) || WEXITSTATUS(status))
        return error_set(&c->error, ECHILD, "%s failed; see the message above", argv[0]);
    return 0;
}

static int enroll(struct cli *c, const struct paths *p, const char *token) {
    const char *path, *name = option_get(&c->options, "name");
    char *file = NULL;
    int r = client_daemon_path(&c->arena, &path, &c->error);
    if (r < 0 || (r = write_token(c, p, token, &file)) < 0)
        return r;
    const char *const argv[] = {"acequiad",
                                "agent",
                                "--join",
                                c->arguments[0],
                                "--token-file",
                                file,
                                "--enroll-only",
                                name ? arena_printf(&c->arena, "--name=%s", name) : NULL,
                                NULL};
    r = run_program(c, path, argv);
    unlink(file);
    if (r < 0)
        return error_set(&c->error, EACCES, "this machine did not join %s; see the message above",
                         c->arguments[0]);
    return 0;
}

static int write_defaults(struct cli *c, const char *name) {
    cleanup_close int fd = name ? open(AGENT_DEFAULTS, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644) : -1;
    if (name && (fd < 0 || dprintf(fd, "ACEQUIA_AGENT_OPTIONS=\"--name %s\"\n", name) < 0))
        return error_set(&c->error, errno, "cannot write %s: %s", AGENT_DEFAULTS, strerror(errno));
    return 0;
}

// As a service where systemd runs, so that it starts with the machine; else in the background.
static int start_agent(struct cli *c, const struct paths *p, bool *service) {
    static const char *const enable[] = {"systemctl", "enable", "--now", "acequia-agent", NULL};
    const char *name = option_get(&c->options, "name");
    pid_t pid;
    *service =
        geteuid() == 0 && str_empty(getenv("ACEQUIA_HOME")) && access("/run/systemd/system", F_OK) == 0;
    if (*service) {
        int r = write_defaults(c, name);
        return r < 0 ? r : run_program(c, "systemctl", enable);
    }
    const char *const argv[] = {"acequiad", "agent", name ? arena_printf(&c->arena, "--name=%s", name) : NULL,
                                NULL};
    if (client_daemon_running(c, p, "agent"))
        return 0;
    return client_daemon_start(c, p, "agent", argv, &pid, &c->error);
}

static int join(struct cli *c) {
    char token[JOIN_TOKEN_MAX + 1] = "";
    struct paths p;
    bool service = false;
    const char *name = option_get(&c->options, "name");
    int r = name ? name_check("--name", name, &c->error) : 0;
    r = r < 0 ? r : paths_get(&c->arena, &p, &c->error);
    r = r < 0 ? r : read_token(c, token);
    r = r < 0 ? r : paths_make(p.config_dir, 0755, &c->error);
    r = r < 0 ? r : paths_make(p.state, 0700, &c->error);
    r = r < 0 ? r : paths_make(p.run, 0755, &c->error);
    r = r < 0 ? r : paths_make(p.log, 0755, &c->error);
    r = r < 0 ? r : enroll(c, &p, token);
    explicit_bzero(token, sizeof token);
    r = r < 0 ? r : start_agent(c, &p, &service);
    if (r < 0)
        return cli_fail(c);
    printf("Joined %s; 'acequia nodes' on the controller shows this node.\n", c->arguments[0]);
    if (!service)
        printf("The agent runs in the background. There is no systemd here: let 'acequia agent%s%s' start "
               "with the "
               "machine.\n",
               name ? " --name " : "", name ? name : "");
    return CLI_OK;
}

const struct verb verb_join = {
    .name = "join",
    .group = "Cluster",
    .arguments = "HOST:PORT",
    .summary = "make this machine a node of a cluster",
    .text =
        "Creates a key, has it signed with the token and starts the agent, as a service where systemd runs. "
        "'acequia token create' on the controller prints the line to paste.",
    .examples = "echo TOKEN | acequia join head:6820",
    .options = {&join_options, &cli_common_options},
    .run = join,
    .least = 1,
    .most = 1,
};
