// acequia up, acequia down
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "cli/client/client.h"
#include "cluster_status.h"
#include "cli/client/daemon.h"
#include "cli/client/saved_login.h"
#include "cli/term/local_time.h"
#include "verbs.h"
#include "model/config.h"
#include "model/units.h"

enum { READY_MS = 30 * 1000, STOP_MS = 20 * 1000, LOG_TAIL = 2000 };

static const struct option_spec up_specs[] = {
    {"no-agent", 0, NULL, "Only the controller: this machine runs no jobs.", 0, NULL, NULL},
    {"quiet", 'Q', NULL, "Print nothing on success.", 0, NULL, NULL},
};
static const struct option_table up_options = OPTION_TABLE("Options", up_specs);

static const struct option_spec down_specs[] = {
    {"cancel-jobs", 0, NULL, "Cancel all jobs first and wait until they have ended.", 0, NULL, NULL},
};
static const struct option_table down_options = OPTION_TABLE("Options", down_specs);

static int make_folder(struct cli *c, const char *path, mode_t mode) {
    char *copy = arena_strdup(&c->arena, path);
    for (char *p = strchr(copy + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = 0;
        if (mkdir(copy, 0755) < 0 && errno != EEXIST)
            return error_set(&c->error, errno, "cannot create the folder %s: %s%s", copy, strerror(errno),
                             error_remedy(errno));
        *p = '/';
    }
    if (mkdir(copy, mode) < 0 && errno != EEXIST)
        return error_set(&c->error, errno, "cannot create the folder %s: %s%s", path, strerror(errno),
                         error_remedy(errno));
    if (access(path, W_OK) < 0)
        return error_set(&c->error, errno, "the folder %s is not writable: %s%s", path, strerror(errno),
                         error_remedy(errno));
    return 0;
}

static int write_default_config(struct cli *c, const struct paths *p) {
    cleanup_buf struct buf text = {0};
    cleanup_close int fd = open(p->config, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return errno == EEXIST ? 0
                               : error_set(&c->error, errno, "cannot write %s: %s%s", p->config,
                                           strerror(errno), error_remedy(errno));
    config_default_file(&text);
    if (write(fd, text.data, text.len) != (ssize_t)text.len)
        return error_set(&c->error, errno, "cannot write %s: %s%s", p->config, strerror(errno),
                         error_remedy(errno));
    return 0;
}

static int prepare(struct cli *c, const struct paths *p) {
    int r = make_folder(c, p->config_dir, 0755);
    r = r < 0 ? r : make_folder(c, p->state, 0700);
    r = r < 0 ? r : make_folder(c, p->run, 0755);
    r = r < 0 ? r : make_folder(c, p->log, 0755);
    r = r < 0 ? r : write_default_config(c, p);
    if (r < 0)
        return r;
    cleanup_config struct config config = {0};
    int64_t now = clock_wall_ms();
    return config_load(p->config, now, local_time_offset_s(now), &config, &c->error);
}

// The last line of a log, for when a daemon does not come up.
static void last_words(struct cli *c, const struct paths *p, const char *name, char *out, size_t size) {
    char tail[LOG_TAIL + 1];
    cleanup_close int fd = open(paths_log_file(p, &c->arena, name), O_RDONLY | O_CLOEXEC);
    off_t end = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    ssize_t n = fd < 0 ? -1 : pread(fd, tail, LOG_TAIL, end > LOG_TAIL ? end - LOG_TAIL : 0);
    *out = 0;
    if (n <= 0)
        return;
    tail[n] = 0;
    while (n > 0 && tail[n - 1] == '\n')
        tail[--n] = 0;
    char *line = strrchr(tail, '\n');
    str_printable(line ? line + 1 : tail, out, size);
}

static bool controller_answers(struct cli *c, struct client **k, struct reply *status) {
    if (!*k && client_open(c, k) < 0)
        return false;
    return client_call(*k, "GET", "/v1/status", NULL, status) == 0;
}

// A node that is connected: after a restart one may be known and not yet back.
static bool agent_answers(struct cli *c, struct client *k, struct reply *nodes) {
    if (client_call(k, "GET", "/v1/nodes", NULL, nodes) < 0)
        return false;
    const struct json *list = json_get(nodes->json, "nodes");
    for (uint32_t i = 0; list && list->type == JSON_ARRAY && i < list->len; i++)
        if (json_true(&list->items[i], "connected") && !streq(json_str(&list->items[i], "state"), "down"))
            return true;
    return false;
}

struct start {
    struct cli *cli;
    const struct paths *paths;
    struct client *client;
    struct reply status, nodes, link;
    bool progress;
};

// pid 0: it was started before and by somebody else; -ESRCH when that one has ended.
static int wait_ready(struct start *s, const char *name, pid_t pid, bool agent) {
    char words[400];
    int64_t began = clock_mono_ms();
    for (unsigned pause_us = 2000;; pause_us = pause_us < 50000 ? pause_us * 2 : 50000) {
        if (agent ? agent_answers(s->cli, s->client, &s->nodes) : controller_answers(s->cli, &s->client, &s->status))
            break;
        if (!pid && !client_daemon_running(s->cli, s->paths, name))
            return error_set(&s->cli->error, ESRCH, "the %s has exited", name);
        if (pid && waitpid(pid, NULL, WNOHANG) == pid) {
            last_words(s->cli, s->paths, name, words, sizeof words);
            unlink(paths_pid_file(s->paths, &s->cli->arena, name));
            return error_set(&s->cli->error, ECHILD, "the %s exited immediately: %s", name, words);
        }
        if (clock_mono_ms() - began > READY_MS) {
            last_words(s->cli, s->paths, name, words, sizeof words);
            return error_set(&s->cli->error, ETIMEDOUT,
                             "the %s did not become ready within %d s; its log ends with: %s", name,
                             READY_MS / 1000, words);
        }
        usleep(pause_us);
    }
    if (s->progress)
        fprintf(stderr, "%s ready after %lld ms\n", agent ? "Agent     " : "Controller",
                (long long)(clock_mono_ms() - began));
    return 0;
}

static int start_one(struct start *s, const char *name, bool agent) {
    const char *const argv[] = {"acequiad", name, NULL};
    pid_t pid = client_daemon_running(s->cli, s->paths, name);
    if (!agent && !pid && controller_answers(s->cli, &s->client, &s->status))
        return 0;  // run by someone else, such as systemd
    int r = pid ? wait_ready(s, name, 0, agent) : -ESRCH;  // one that was killed may still be ending
    if (r != -ESRCH)
        return r;
    if (s->progress)
        fprintf(stderr, "Starting the %s ...\n", name);
    r = client_daemon_start(s->cli, s->paths, name, argv, &pid, &s->cli->error);
    return r < 0 ? r : wait_ready(s, name, pid, agent);
}

// Two at once would start two controllers, of which one waits for the other's end.
static int take_turn(struct cli *c, const struct paths *p, int *out) {
    const char *path = arena_printf(&c->arena, "%s/up.lock", p->run);
    *out = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (*out < 0 || flock(*out, LOCK_EX) < 0)
        return error_set(&c->error, errno, "cannot lock %s: %s%s", path, strerror(errno),
                         error_remedy(errno));
    return 0;
}

// Users without a cluster of their own use the machine's: that one is theirs to use, not to start.
static bool somebody_elses(struct cli *c, const struct paths *p) {
    return geteuid() != 0 && str_empty(getenv("ACEQUIA_HOME")) && str_empty(getenv("ACEQUIA_HOST")) &&
           access(p->socket, F_OK) < 0 && access(PATHS_SYSTEM_SOCKET, F_OK) == 0 &&
           !client_daemon_running(c, p, "controller");
}

static int already_there(struct cli *c, struct start *s) {
    cleanup_buf struct buf out = {0};
    int r = client_open(c, &s->client);
    r = r < 0 ? r : client_call(s->client, "GET", "/v1/status", NULL, &s->status);
    r = r < 0 ? r : client_call(s->client, "GET", "/v1/nodes", NULL, &s->nodes);
    client_free(s->client);
    if (r < 0)
        return cli_fail(c);
    if (c->json) {
        buf_addf(&out, "%s\n", s->status.text);
    } else if (!option_given(&c->options, "quiet")) {
        verb_cluster_status_lines(c, s->status.json, json_get(s->nodes.json, "nodes"), &out);
        buf_adds(&out, "A cluster of the administrator is already running on this machine; nothing was started.\n"
                       "To start one of your own: ACEQUIA_HOME=$HOME/acequia acequia up\n");
    }
    return cli_print(&out);
}

// Whoever is logged in elsewhere would look for the new cluster's jobs in vain.
static void note_login(struct cli *c, const struct paths *p) {
    struct saved_login saved;
    if (str_empty(getenv("ACEQUIA_HOST")) &&
        saved_login_read(p->config_dir, &c->arena, &saved, &(struct error){0}) == 0)
        cli_note("you are logged in to %s: commands go there, not to this cluster, until acequia logout",
                 saved.server);
}

static int up(struct cli *c) {
    struct paths p;
    struct start s = {.cli = c,
                      .paths = &p,
                      .progress = isatty(STDERR_FILENO) && !c->json && !option_given(&c->options, "quiet")};
    cleanup_buf struct buf out = {0};
    cleanup_close int turn = -1;
    c->local = true;
    c->no_wait = true;  // it starts the controller itself
    int r = paths_get(&c->arena, &p, &c->error);
    if (r == 0 && somebody_elses(c, &p))
        return already_there(c, &s);
    r = r < 0 ? r : prepare(c, &p);
    r = r < 0 ? r : take_turn(c, &p, &turn);
    r = r < 0 ? r : start_one(&s, "controller", false);
    if (r == 0 && !option_given(&c->options, "no-agent"))
        r = start_one(&s, "agent", true);
    if (r == 0)
        r = client_call(s.client, "GET", "/v1/status", NULL, &s.status);
    if (r == 0)
        r = client_call(s.client, "GET", "/v1/nodes", NULL, &s.nodes);
    // A code that logs in: for the person at the terminal, not for files.
    if (r == 0 && isatty(STDOUT_FILENO) && !c->json && client_call(s.client, "POST", "/v1/portal", NULL, &s.link) < 0)
        s.link.json = NULL;
    client_free(s.client);
    if (r < 0)
        return cli_fail(c);
    if (c->json) {
        buf_addf(&out, "%s\n", s.status.text);
    } else if (!option_given(&c->options, "quiet")) {
        verb_cluster_status_lines(c, s.status.json, json_get(s.nodes.json, "nodes"), &out);
        buf_addf(&out, "%-10s%s\n%-10sacequia run -- hostname\n", "Settings", p.config, "Try");
        if (s.link.json && json_str(s.link.json, "url"))
            buf_addf(&out, "%-10s%s\n", "Portal", json_str(s.link.json, "url"));
        note_login(c, &p);
    }
    return cli_print(&out);
}

static int64_t live_jobs(struct cli *c, struct client *k, bool running_only) {
    struct reply reply;
    static const char *const words[] = {"RUNNING", "STARTING", "COMPLETING", "SUSPENDED", "PENDING"};
    int64_t n = 0;
    if (client_call(k, "GET", "/v1/status", NULL, &reply) < 0)
        return 0;
    const struct json *jobs = json_get(reply.json, "jobs");
    for (size_t i = 0; jobs && i < (running_only ? 4 : 5); i++)
        n += json_i64(jobs, words[i], 0);
    return n;
}

static int cancel_everything(struct cli *c, struct client *k) {
    cleanup_buf struct buf body = {0};
    struct reply reply;
    buf_adds(&body, "{\"all\":true,\"reason\":\"cluster shut down\"}");
    int r = client_call(k, "POST", "/v1/jobs/cancel", &body, &reply);
    int64_t deadline = clock_mono_ms() + 120 * 1000;
    while (r == 0 && live_jobs(c, k, false) > 0 && clock_mono_ms() < deadline)
        usleep(100000);
    return r;
}

static int down(struct cli *c) {
    struct paths p;
    struct client *k = NULL;
    cleanup_buf struct buf out = {0};
    int64_t running = 0;
    c->local = true;
    c->no_wait = true;
    if (paths_get(&c->arena, &p, &c->error) < 0)
        return cli_fail(c);
    bool there = client_daemon_running(c, &p, "controller") || client_daemon_running(c, &p, "agent");
    if (there && client_open(c, &k) == 0) {
        if (option_given(&c->options, "cancel-jobs") && cancel_everything(c, k) < 0) {
            client_free(k);
            return cli_fail(c);
        }
        running = live_jobs(c, k, true);
        client_free(k);
    }
    int agent = client_daemon_stop(c, &p, "agent", STOP_MS, &c->error);
    int controller = agent < 0 ? agent : client_daemon_stop(c, &p, "controller", STOP_MS, &c->error);
    if (controller < 0)
        return cli_fail(c);
    if (c->json)
        buf_addf(&out, "{\"stopped\":%s,\"running_jobs\":%lld}\n", agent || controller ? "true" : "false",
                 (long long)running);
    else if (!agent && !controller && somebody_elses(c, &p))
        buf_adds(&out, "Nothing was stopped: the cluster on this machine belongs to the administrator\n");
    else if (!agent && !controller)
        buf_adds(&out, "Nothing was running\n");
    else
        buf_adds(&out, "Stopped\n");
    if (!c->json && running)
        buf_addf(&out, "%lld running %s; the next acequia up takes %s over\n", (long long)running,
                 running == 1 ? "job continues" : "jobs continue", running == 1 ? "it" : "them");
    return cli_print(&out);
}

const struct verb verb_up = {
    .name = "up",
    .group = "Cluster",
    .arguments = "[options]",
    .summary = "start a cluster on this machine",
    .text = "Starts the controller and an agent in the background, unless they are running. The first "
            "time it creates the folders and a configuration file. As root, jobs run as the user who submits "
            "them; without root, as you.",
    .examples = "acequia up",
    .options = {&up_options, &cli_common_options},
    .run = up,
};

const struct verb verb_down = {
    .name = "down",
    .group = "Cluster",
    .arguments = "[options]",
    .summary = "stop the cluster on this machine",
    .text = "Stops the controller and the agent that acequia up has started. Running jobs continue and are "
            "taken over by the next acequia up, unless --cancel-jobs is given.",
    .examples = "acequia down\nacequia down --cancel-jobs",
    .options = {&down_options, &cli_common_options},
    .run = down,
};
