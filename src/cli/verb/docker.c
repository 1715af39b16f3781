// acequia docker, and the links docker and nvidia-docker: docker's words inside a job. Containers are processes of the
// job, as its user and within its limits; acequia-box makes them, as it makes those of --container.
#include "docker.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/process.h"
#include "base/text.h"
#include "cli/term/table.h"
#include "model/image.h"
#include "model/units.h"
#include "verbs.h"

enum { STOP_S = 10, RECORD_MAX = 64 << 10, ID_SHOWN = 12, LOG_BLOCK = 16384 };

static int fail(struct docker *d) {
    fprintf(stderr, "docker: %s\n", d->c->error.text);
    return DOCKER_FAILED;
}

static int failf(struct docker *d, const char *what, const char *name) {
    char shown[128];
    fprintf(stderr, "%s%s\n", what, str_printable(name, shown, sizeof shown));
    (void)d;
    return 1;
}

// --- how acequia-box is started ---

static int read_box(struct docker *d) {
    const char *text = getenv(DOCKER_BOX);
    if (str_empty(text))
        return error_set(
            &d->c->error, ENOTSUP,
            getenv("ACEQUIA_CONTAINER")
                ? "this job runs in a container already; submit it without --container to use docker's words"
            : getenv("ACEQUIA_JOB_ID") ? "this node cannot run containers; see 'acequia nodes --missing'"
                                       : "docker's words work inside jobs: acequia run -- docker …, or in a "
                                         "script for acequia submit");
    char *rest = arena_strdup(&d->c->arena, text);
    d->box = arena_alloc(&d->c->arena, DOCKER_WORDS_MAX * sizeof *d->box);
    for (char *word; (word = strsep(&rest, "\t")) && d->boxc < DOCKER_WORDS_MAX / 2;)
        d->box[d->boxc++] = word;
    for (uint32_t i = 0; i + 1 < d->boxc; i++)
        if (streq(d->box[i], "--cache"))
            d->cache = d->box[i + 1];
    return d->cache ? 0 : error_set(&d->c->error, EINVAL, "the variable " DOCKER_BOX " has been changed");
}

struct box_words {
    char *at[DOCKER_WORDS_MAX];
    uint32_t len;
};

static void add(struct docker *d, struct box_words *w, const char *text) {
    if (text && w->len < DOCKER_WORDS_MAX - 1)
        w->at[w->len++] = arena_strdup(&d->c->arena, text);
}

static void add_option(struct docker *d, struct box_words *w, const char *option, const char *value) {
    if (value) {
        add(d, w, option);
        add(d, w, value);
    }
}

// The options of this job; without --gpus its GPUs are left out.
static void add_box(struct docker *d, struct box_words *w, bool gpus) {
    for (uint32_t i = 0; i < d->boxc; i++) {
        bool gpu = streq(d->box[i], "--device") || streq(d->box[i], "--driver") || streq(d->box[i], "--shim");
        if (gpu && !gpus)
            i++;
        else
            add(d, w, d->box[i]);
    }
}

// The first GPUs of those that the job has.
static int limit_gpus(struct docker *d, const struct docker_run *r, struct box_words *w) {
    const char *all = getenv("CUDA_VISIBLE_DEVICES");
    int64_t have = 0;
    size_t upto = 0;
    if (r->gpu_count < 0)
        return 0;
    if (!r->gpus) {
        add_option(d, w, "--env", "CUDA_VISIBLE_DEVICES=");
        return 0;
    }
    for (const char *p = all; p && *p; have++) {
        size_t n = strcspn(p, ",");
        if (have < r->gpu_count)
            upto = (size_t)(p - all) + n;
        p += n + (p[n] == ',');
    }
    if (r->gpu_count > have)
        return error_set(&d->c->error, EINVAL,
                         "docker --gpus %lld: the job has %lld; ask for more when it is submitted (--gpus)",
                         (long long)r->gpu_count, (long long)have);
    add_option(d, w, "--env", arena_printf(&d->c->arena, "CUDA_VISIBLE_DEVICES=%.*s", (int)upto, all));
    return 0;
}

static int add_run(struct docker *d, const struct docker_run *r, struct box_words *w) {
    const char *pull = r->pull && !streq(r->pull, "always") && !streq(r->pull, "never") ? "missing" : r->pull;
    add_box(d, w, r->gpus);
    add(d, w, "--docker");
    add_option(d, w, "--mounts", r->mounts.len ? buf_str(&r->mounts) : NULL);
    add_option(d, w, "--workdir", r->workdir);
    add_option(d, w, "--entrypoint", r->entrypoint);
    add_option(d, w, "--pull", pull ? pull : "missing");
    for (uint32_t i = 0; i < r->env.len; i++)
        add_option(d, w, "--env", r->env.at[i]);
    return limit_gpus(d, r, w);
}

static void add_command(struct docker *d, struct box_words *w, char **argv, int argc) {
    add(d, w, "--");
    for (int i = 0; i < argc; i++)
        add(d, w, argv[i]);
    w->at[w->len] = NULL;
}

// Becomes acequia-box, whose errors go to standard error.
_Noreturn static void become(struct docker *d, struct box_words *w) {
    close(DOCKER_REPORT_FD);
    execv(w->at[0], w->at);
    fprintf(stderr, "docker: %s cannot be run: %s\n", w->at[0], strerror(errno));
    _exit(DOCKER_FAILED);
}

// Work on images; the exit status.
static int task(struct docker *d, const char *const *words, int count) {
    struct box_words *w = arena_alloc(&d->c->arena, sizeof *w);
    add_box(d, w, false);
    add(d, w, "--task");
    add(d, w, "--");
    for (int i = 0; i < count; i++)
        add(d, w, words[i]);
    w->at[w->len] = NULL;
    pid_t pid = fork();
    int status = 0;
    if (pid == 0)
        become(d, w);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return pid < 0 || !WIFEXITED(status) ? DOCKER_FAILED : WEXITSTATUS(status);
}

// --- run, exec, start ---

// How it was run, for later: mounts, working folder, variables, entry point and command, a line each.
static void record(struct docker *d, const struct docker_run *r) {
    cleanup_buf struct buf out = {0};
    struct json_writer w = {.out = &out};
    json_open(&w, '{');
    json_kv_str(&w, "image", r->image);
    json_kv_str(&w, "mounts", buf_str(&r->mounts));
    if (r->workdir)
        json_kv_str(&w, "workdir", r->workdir);
    if (r->entrypoint)
        json_kv_str(&w, "entrypoint", r->entrypoint);
    json_kv_bool(&w, "gpus", r->gpus);
    json_open_key(&w, "env", '[');
    for (uint32_t i = 0; i < r->env.len; i++)
        json_put_str(&w, r->env.at[i]);
    json_close(&w, ']');
    json_open_key(&w, "argv", '[');
    for (int i = 0; i < r->argc; i++)
        json_put_str(&w, r->argv[i]);
    json_close(&w, ']');
    json_close(&w, '}');
    mkdir(arena_printf(&d->c->arena, "%s/docker", d->cache), 0700);
    cleanup_close int fd =
        open(docker_kept_path(d, r->name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || write(fd, out.data, out.len) != (ssize_t)out.len)
        fprintf(stderr, "docker: how %s was run cannot be kept: %s\n", r->name, strerror(errno));
}

static void recall(struct docker *d, const char *name, struct docker_run *r, bool command) {
    char *text = arena_alloc(&d->c->arena, RECORD_MAX);
    struct json *j = NULL;
    cleanup_close int fd = open(docker_kept_path(d, name), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t n = fd < 0 ? -1 : read(fd, text, RECORD_MAX);
    if (n <= 0 || json_parse(text, (size_t)n, &d->c->arena, &j, NULL) < 0)
        return;  // of --container-name: as it is
    if (!r->mounts.len && json_str(j, "mounts"))
        buf_adds(&r->mounts, json_str(j, "mounts"));
    r->workdir = r->workdir ? r->workdir : json_str(j, "workdir");
    r->gpus = r->gpus || json_true(j, "gpus");
    const struct json *env = json_get(j, "env"), *argv = json_get(j, "argv");
    VEC(const char *) all = {0};
    for (uint32_t i = 0; env && env->type == JSON_ARRAY && i < env->len; i++)
        if (env->items[i].type == JSON_STRING)
            vec_push(&all, env->items[i].s);
    for (uint32_t i = 0; i < r->env.len; i++)
        vec_push(&all, r->env.at[i]);
    vec_done(&r->env);
    r->env.at = all.at;
    r->env.len = all.len;
    r->env.cap = all.cap;
    if (!command)
        return;
    r->entrypoint = json_str(j, "entrypoint");
    r->argv = arena_alloc(&d->c->arena, (argv ? argv->len + 1 : 1) * sizeof *r->argv);
    r->argc = 0;
    for (uint32_t i = 0; argv && argv->type == JSON_ARRAY && i < argv->len; i++)
        if (argv->items[i].type == JSON_STRING)
            r->argv[r->argc++] = arena_strdup(&d->c->arena, argv->items[i].s);
}

// Waits for the container's end and notes how it ended.
_Noreturn static void watch(struct docker *d, struct docker_state *s, pid_t pid) {
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    s->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    docker_state_write(d, s);
    _exit(0);
}

// In the background: this call ends when the program has begun.
static int detach(struct docker *d, struct docker_state *s, struct box_words *w) {
    int report[2];
    char text[DOCKER_REPORT_MAX];
    if (pipe2(report, O_CLOEXEC) < 0)
        return error_set(&d->c->error, errno, "%s", strerror(errno)), fail(d);
    s->detached = true;
    if (docker_state_write(d, s) < 0)
        return fail(d);
    fflush(NULL);
    pid_t watcher = fork();
    if (watcher == 0) {
        setsid();
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        int log = open(docker_state_path(d, s->id, "log"),
                       O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
        pid_t pid = log < 0 || null < 0 ? -1 : fork();
        if (pid == 0) {
            setsid();
            dup2(null, STDIN_FILENO);
            dup2(log, STDOUT_FILENO);
            dup2(log, STDERR_FILENO);
            if (report[1] == DOCKER_REPORT_FD)
                fcntl(DOCKER_REPORT_FD, F_SETFD, 0);
            else
                dup2(report[1], DOCKER_REPORT_FD);
            execv(w->at[0], w->at);
            _exit(DOCKER_FAILED);
        }
        s->pid = pid;
        s->start = pid > 0 ? process_start(pid) : 0;
        docker_state_write(d, s);
        dup2(null, STDIN_FILENO);
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        close(report[1]);
        if (DOCKER_REPORT_FD != report[0] && DOCKER_REPORT_FD != report[1])
            close(DOCKER_REPORT_FD);
        watch(d, s, pid);
    }
    close(report[1]);
    ssize_t n = watcher < 0 ? -1 : read(report[0], text, sizeof text - 1);  // its end: the program runs
    close(report[0]);
    if (n == 0) {
        printf("%s\n", s->id);
        return 0;
    }
    text[n > 0 ? n : 0] = 0;
    const char *why = strchr(text, ' ');
    fprintf(stderr, "docker: %s\n", why ? why + 1 : "the container cannot be started");
    docker_state_remove(d, s);
    return DOCKER_FAILED;
}

static void set_command(struct docker_state *s, const struct docker_run *r) {
    cleanup_buf struct buf b = {0};
    for (int i = 0; i < r->argc && b.len < sizeof s->command; i++)
        buf_addf(&b, "%s%s", i ? " " : "", r->argv[i]);
    str_printable(buf_str(&b), s->command, sizeof s->command);
}

static int start(struct docker *d, struct docker_run *r, bool kept) {
    struct box_words *w = arena_alloc(&d->c->arena, sizeof *w);
    struct docker_state s = {.kept = kept};
    if (add_run(d, r, w) < 0)
        return fail(d);
    add_option(d, w, "--image", r->image);
    add_option(d, w, "--name", kept ? r->name : NULL);
    add_command(d, w, r->argv, r->argc);
    snprintf(s.name, sizeof s.name, "%s", r->name ? r->name : "");
    snprintf(s.image, sizeof s.image, "%s", r->image ? r->image : "-");
    set_command(&s, r);
    docker_state_new(&s);
    if (r->detach)
        return detach(d, &s, w);
    s.pid = getpid();
    s.start = process_start(s.pid);
    if (docker_state_write(d, &s) < 0)
        return fail(d);
    become(d, w);
}

static int do_run(struct docker *d, int argc, char **argv) {
    struct docker_run r;
    struct docker_list list = {0};
    if (docker_options_read(d, false, argc, argv, &r) < 0)
        return fail(d);
    docker_state_list(d, &list);
    const struct docker_state *known = r.name ? docker_state_find(&list, r.name) : NULL;
    if (r.name && ((known && known->running) || (!r.remove && docker_kept(d, r.name)))) {
        error_set(&d->c->error, EEXIST,
                  "the container name \"%s\" is in use already; remove it with 'docker rm %s', or run a "
                  "command in it "
                  "with 'docker exec %s'",
                  r.name, r.name, r.name);
        return fail(d);
    }
    if (known)
        docker_state_remove(d, known);
    bool kept = r.name && !r.remove;
    if (kept)
        record(d, &r);
    return start(d, &r, kept);
}

static int do_exec(struct docker *d, int argc, char **argv) {
    struct docker_run r;
    struct docker_list list = {0};
    struct box_words *w = arena_alloc(&d->c->arena, sizeof *w);
    if (docker_options_read(d, true, argc, argv, &r) < 0)
        return fail(d);
    const char *name = r.image;
    docker_state_list(d, &list);
    const struct docker_state *s = docker_state_find(&list, name);
    if (s && s->running) {
        add_box(d, w, false);
        add_option(d, w, "--workdir", r.workdir);
        for (uint32_t i = 0; i < r.env.len; i++)
            add_option(d, w, "--env", r.env.at[i]);
        add_option(d, w, "--join", arena_printf(&d->c->arena, "%d", s->pid));
        add_command(d, w, r.argv, r.argc);
        if (!r.detach)
            become(d, w);
        struct docker_state other = {0};
        docker_state_new(&other);
        snprintf(other.image, sizeof other.image, "%s", s->image);
        return detach(d, &other, w);
    }
    if (!docker_kept(d, name))
        return failf(d, "docker: no such container on this node: ", name);
    // It was left by an earlier call or job: entered as it is, with what it was run with.
    r.name = name;
    r.image = NULL;
    recall(d, name, &r, false);
    r.entrypoint = "";
    return start(d, &r, true);
}

static int do_start(struct docker *d, int argc, char **argv) {
    struct docker_run r = {.gpus = d->nvidia, .gpu_count = -1, .detach = true};
    int i = 0;
    for (; i < argc && argv[i][0] == '-'; i++)
        r.detach = r.detach && !strchr(argv[i], 'a');
    if (i >= argc || !docker_kept(d, argv[i]))
        return failf(d, "docker: no such container on this node: ", i < argc ? argv[i] : "");
    r.name = argv[i];
    recall(d, r.name, &r, true);
    int status = start(d, &r, true);
    return status;
}

// --- those that there are ---

static const char *ago(struct docker *d, int64_t ms) {
    char text[UNIT_TEXT_MAX];
    int64_t s = (clock_wall_ms() - ms) / 1000;
    return arena_printf(&d->c->arena, "%s", duration_format((uint64_t)(s > 0 ? s : 0), text));
}

static int do_ps(struct docker *d, int argc, char **argv) {
    static const struct table_column columns[] = {{"CONTAINER ID", false, 0, 0}, {"IMAGE", false, 8, 8},
                                                  {"COMMAND", false, 8, 8},      {"CREATED", false, 0, 0},
                                                  {"STATUS", false, 0, 0},       {"NAMES", false, 0, 0}};
    bool all = false, quiet = false;
    struct docker_list list = {0};
    struct text_table t;
    cleanup_buf struct buf out = {0};
    for (int i = 0; i < argc; i++) {
        bool letters = argv[i][0] == '-' && argv[i][1] != '-';
        all |= streq(argv[i], "--all") || (letters && strchr(argv[i], 'a'));
        quiet |= streq(argv[i], "--quiet") || (letters && strchr(argv[i], 'q'));
        if (!letters && !streq(argv[i], "--all") && !streq(argv[i], "--quiet"))
            return error_set(&d->c->error, EINVAL, "docker ps %s is not known here; there are -a and -q",
                             argv[i]),
                   fail(d);
    }
    docker_state_list(d, &list);
    table_init(&t, &d->c->arena, columns, 6);
    for (uint32_t i = 0; i < list.at.len; i++) {
        const struct docker_state *s = &list.at.at[i];
        if (!s->running && !all)
            continue;
        if (quiet) {
            buf_addf(&out, "%.12s\n", s->id);
            continue;
        }
        table_add(&t, arena_strndup(&d->c->arena, s->id, ID_SHOWN), COLOUR_NONE);
        table_add(&t, s->image, COLOUR_NONE);
        table_add(&t, s->command[0] ? s->command : "-", COLOUR_NONE);
        table_add(&t, arena_printf(&d->c->arena, "%s ago", ago(d, s->started_ms)), COLOUR_NONE);
        table_add(&t,
                  s->running          ? "Up"
                  : s->exit_code >= 0 ? arena_printf(&d->c->arena, "Exited (%d)", s->exit_code)
                                      : "Exited",
                  COLOUR_NONE);
        table_add(&t, s->name, COLOUR_NONE);
    }
    if (!quiet)
        table_print(&t, terminal_table_width(), true, terminal_colour(), &out);
    table_done(&t);
    return cli_print(&out);
}

static int do_images(struct docker *d, int argc, char **argv) {
    static const struct table_column columns[] = {{"REPOSITORY", false, 8, 8},
                                                  {"TAG", false, 0, 0},
                                                  {"IMAGE ID", false, 0, 0},
                                                  {"CREATED", false, 0, 0},
                                                  {"SIZE", true, 0, 0}};
    struct text_table t;
    cleanup_buf struct buf text = {0}, out = {0};
    struct node_image_list list;
    cleanup_close int fd = open(arena_printf(&d->c->arena, "%s/index", d->cache), O_RDONLY | O_CLOEXEC);
    ssize_t n;
    (void)argv;
    if (argc)
        return error_set(&d->c->error, EINVAL, "docker images takes no options here"), fail(d);
    while (fd >= 0 && text.len < IMAGE_INDEX_MAX && (n = read(fd, buf_reserve(&text, 4096), 4096)) > 0)
        text.len += (size_t)n;
    image_index_parse(buf_str(&text), text.len, getuid(), &d->c->arena, &list);
    table_init(&t, &d->c->arena, columns, 5);
    for (uint32_t i = 0; i < list.len; i++) {
        const struct node_image *m = &list.at[i];
        char size[UNIT_TEXT_MAX];
        const char *slash = strrchr(m->name, '/'), *colon = strchr(slash ? slash : m->name, ':');
        if (m->kind == IMAGE_CONTAINER)
            continue;
        const char *digest = m->digest && strchr(m->digest, ':') ? strchr(m->digest, ':') + 1 : "-";
        table_add(&t, colon ? arena_strndup(&d->c->arena, m->name, (size_t)(colon - m->name)) : m->name,
                  COLOUR_NONE);
        table_add(&t, colon ? colon + 1 : "-", COLOUR_NONE);
        table_add(&t,
                  arena_strndup(&d->c->arena, digest, strlen(digest) < ID_SHOWN ? strlen(digest) : ID_SHOWN),
                  COLOUR_NONE);
        table_add(&t, arena_printf(&d->c->arena, "%s ago", ago(d, m->made_ms)), COLOUR_NONE);
        table_add(&t, arena_strdup(&d->c->arena, size_format(m->bytes, size)), COLOUR_NONE);
    }
    table_print(&t, terminal_table_width(), true, terminal_colour(), &out);
    table_done(&t);
    return cli_print(&out);
}

static void sleep_ms(long ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static bool still_runs(const struct docker_state *s) {
    return process_start(s->pid) == s->start;
}

static void stop(const struct docker_state *s, long seconds) {
    if (docker_signal(s, SIGTERM) < 0)
        return;
    for (long i = 0; i < seconds * 20 && still_runs(s); i++)
        sleep_ms(50);
    if (still_runs(s))
        docker_signal(s, SIGKILL);
    for (int i = 0; i < 100 && still_runs(s); i++)
        sleep_ms(20);
}

// stop [-t N], kill, rm [-f]: each container that is named.
static int do_each(struct docker *d, const char *verb, int argc, char **argv) {
    struct docker_list list = {0};
    long seconds = STOP_S;
    bool force = false;
    int status = 0;
    docker_state_list(d, &list);
    for (int i = 0; i < argc; i++) {
        if (streq(verb, "stop") && (streq(argv[i], "-t") || streq(argv[i], "--time")) && i + 1 < argc) {
            seconds = strtol(argv[++i], NULL, 10);
            continue;
        }
        if (argv[i][0] == '-') {
            force |= streq(argv[i], "-f") || streq(argv[i], "--force");
            if (!streq(verb, "rm") || (!force && !streq(argv[i], "-v")))
                return error_set(&d->c->error, EINVAL, "docker %s %s is not known here", verb, argv[i]),
                       fail(d);
            continue;
        }
        const struct docker_state *s = docker_state_find(&list, argv[i]);
        bool kept = docker_kept(d, s ? s->name : argv[i]);
        if (!s && !(kept && streq(verb, "rm"))) {
            status = failf(d, "docker: no such container: ", argv[i]);
            continue;
        }
        if (streq(verb, "rm") && s && s->running && !force) {
            status = failf(d, "docker: it runs; stop it first, or use docker rm -f: ", argv[i]);
            continue;
        }
        if (s && s->running)
            stop(s, streq(verb, "stop") ? seconds : 0);
        if (streq(verb, "rm")) {
            const char *words[] = {"remove", "--container", s ? s->name : argv[i]};
            if (kept && task(d, words, 3) != 0) {
                status = 1;
                continue;
            }
            unlink(docker_kept_path(d, s ? s->name : argv[i]));
            if (s)
                docker_state_remove(d, s);
        }
        printf("%s\n", argv[i]);
    }
    return status;
}

static int do_wait(struct docker *d, int argc, char **argv) {
    struct docker_list list = {0};
    docker_state_list(d, &list);
    for (int i = 0; i < argc; i++) {
        const struct docker_state *s = docker_state_find(&list, argv[i]);
        if (!s)
            return failf(d, "docker: no such container: ", argv[i]);
        while (still_runs(s) && s->running)
            sleep_ms(50);
        struct docker_list after = {0};
        for (int k = 0; k < 40; k++) {  // whoever watches it notes how it ended
            vec_clear(&after.at);
            docker_state_list(d, &after);
            const struct docker_state *now = docker_state_find(&after, argv[i]);
            if (!now || now->exit_code >= 0)
                break;
            sleep_ms(50);
        }
        const struct docker_state *now = docker_state_find(&after, argv[i]);
        printf("%d\n", now && now->exit_code >= 0 ? now->exit_code : 0);
        vec_done(&after.at);
    }
    return 0;
}

static int do_logs(struct docker *d, int argc, char **argv) {
    struct docker_list list = {0};
    const char *name = NULL;
    bool follow = false;
    char data[LOG_BLOCK];
    for (int i = 0; i < argc; i++) {
        if (streq(argv[i], "-f") || streq(argv[i], "--follow"))
            follow = true;
        else if (argv[i][0] == '-')
            return error_set(&d->c->error, EINVAL, "docker logs %s is not known here; there is -f", argv[i]),
                   fail(d);
        else
            name = argv[i];
    }
    docker_state_list(d, &list);
    const struct docker_state *s = name ? docker_state_find(&list, name) : NULL;
    if (!s)
        return failf(d, "docker: no such container: ", name ? name : "");
    cleanup_close int fd = open(docker_state_path(d, s->id, "log"), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return failf(d, "docker: its output is the job's own, as of all that run in the foreground: ", name);
    for (;;) {
        bool runs = still_runs(s);
        ssize_t n;
        while ((n = read(fd, data, sizeof data)) > 0)
            if (verb_write_all(STDOUT_FILENO, data, (size_t)n) < 0)
                return 0;
        if (!follow || !runs)
            return 0;
        sleep_ms(100);
    }
}

// --- images ---

static const char *absolute(struct docker *d, const char *path) {
    char *full = realpath(path, NULL);
    const char *out = arena_strdup(&d->c->arena, full ? full : path);
    free(full);
    return out;
}

static int do_build(struct docker *d, int argc, char **argv) {
    static const char *const pairs[][2] = {{"-t", "--tag"},
                                           {"--tag", "--tag"},
                                           {"-f", "--file"},
                                           {"--file", "--file"},
                                           {"--target", "--target"},
                                           {"--label", "--label"},
                                           {"--build-arg", "--build-arg"}};
    const char **words = arena_alloc(&d->c->arena, ((size_t)argc * 2 + 8) * sizeof *words);
    int n = 0;
    bool tagged = false;
    words[n++] = "build";
    for (int i = 0; i < argc; i++) {
        char *equals = str_has_prefix(argv[i], "--") ? strchr(argv[i], '=') : NULL;
        const char *name =
            equals ? arena_strndup(&d->c->arena, argv[i], (size_t)(equals - argv[i])) : argv[i];
        const char *to = NULL;
        for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++)
            if (streq(name, pairs[k][0]))
                to = pairs[k][1];
        if (to && (equals || i + 1 < argc)) {
            const char *value = equals ? equals + 1 : argv[++i];
            tagged |= streq(to, "--tag");
            words[n++] = to;
            words[n++] = streq(to, "--file") ? absolute(d, value) : value;
        } else if (streq(name, "--no-cache")) {
            words[n++] = name;
        } else if (streq(name, "--pull")) {
            words[n++] = "--pull";
            words[n++] = "always";
        } else if (streq(name, "--rm") || streq(name, "-q") || streq(name, "--quiet") ||
                   streq(name, "--force-rm") || streq(name, "--progress") || streq(name, "--network")) {
            i += (streq(name, "--progress") || streq(name, "--network")) && !equals;
        } else if (*name == '-' && name[1]) {
            return error_set(&d->c->error, EINVAL,
                             "docker build %s is not known here; see 'acequia image --help'", name),
                   fail(d);
        } else {
            words[n++] = streq(name, "-") ? name : absolute(d, name);
        }
    }
    if (!tagged) {
        words[n++] = "--tag";
        words[n++] = "image";
    }
    return task(d, words, n);
}

static int do_image_task(struct docker *d, const char *verb, int argc, char **argv) {
    const char *words[4] = {verb};
    int n = 1;
    for (int i = 0; i < argc; i++) {
        if (streq(argv[i], "-q") || streq(argv[i], "--quiet") || streq(argv[i], "-f"))
            continue;
        if (argv[i][0] == '-' || n == 3)
            return error_set(&d->c->error, EINVAL, "docker: %s is not known here", argv[i]), fail(d);
        words[n++] = argv[i];
    }
    if (streq(verb, "push") && n == 2)  // where it goes is its name
        words[n++] = words[1];
    return task(d, words, n);
}

// --- the words ---

static int do_version(void) {
    printf("acequia %s: docker's words inside jobs, without a daemon\n", ACEQUIA_VERSION);
    return 0;
}

static int other(struct docker *d, const char *verb) {
    static const char *const known[][2] = {
        {"compose",
         "several containers that belong together are components of a job (acequia submit --component)"},
        {"swarm", "the cluster is Acequia's own"},
        {"login", "logins are read where 'skopeo login HOST' leaves them; use that"},
        {"volume", "use acequia volume"},
        {"network", "containers use the job's network"},
        {"cp", "folders that are mounted with -v are seen on both sides"},
        {"commit", "a container with a name keeps what is written to it; images are made with docker build"},
        {"save", "push the image to a registry"},
        {"load", "acequia run --container FILE runs an archive of docker save"},
        {"inspect", "see docker ps and docker images"},
        {"stats", "see acequia top and acequia efficiency"},
        {"top", "see acequia top"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (streq(verb, known[i][0]))
            return error_set(&d->c->error, EINVAL, "%s is not possible inside a job: %s", verb, known[i][1]),
                   fail(d);
    char shown[64];
    return error_set(&d->c->error, EINVAL,
                     "\"%s\" is not one of docker's words that are known here: run, exec, start, ps, stop, "
                     "kill, wait, rm, "
                     "logs, build, pull, push, tag, images, rmi",
                     str_printable(verb, shown, sizeof shown)),
           fail(d);
}

static int dispatch(struct docker *d, int argc, char **argv) {
    const char *verb = argc ? argv[0] : "";
    if ((streq(verb, "container") || streq(verb, "image")) && argc > 1) {  // docker container run
        bool list = streq(verb, "image") && (streq(argv[1], "ls") || streq(argv[1], "list"));
        bool gone = streq(verb, "image") && streq(argv[1], "rm");
        verb = list ? "images" : gone ? "rmi" : streq(argv[1], "ls") ? "ps" : argv[1];
        argc--, argv++;
    }
    if (streq(verb, "version") || streq(verb, "--version") || streq(verb, "-v") || streq(verb, "info"))
        return do_version();
    if (read_box(d) < 0)
        return fail(d);
    argc = argc ? argc - 1 : 0;
    argv++;
    if (streq(verb, "run"))
        return do_run(d, argc, argv);
    if (streq(verb, "exec"))
        return do_exec(d, argc, argv);
    if (streq(verb, "start"))
        return do_start(d, argc, argv);
    if (streq(verb, "ps"))
        return do_ps(d, argc, argv);
    if (streq(verb, "images"))
        return do_images(d, argc, argv);
    if (streq(verb, "stop") || streq(verb, "kill") || streq(verb, "rm"))
        return do_each(d, verb, argc, argv);
    if (streq(verb, "wait"))
        return do_wait(d, argc, argv);
    if (streq(verb, "logs"))
        return do_logs(d, argc, argv);
    if (streq(verb, "build"))
        return do_build(d, argc, argv);
    if (streq(verb, "pull") || streq(verb, "push") || streq(verb, "tag"))
        return do_image_task(d, verb, argc, argv);
    if (streq(verb, "rmi"))
        return do_image_task(d, "remove", argc, argv);
    return other(d, verb);
}

bool docker_is_name(const char *name) {
    return streq(name, "docker") || streq(name, "nvidia-docker");
}

int docker_main(int argc, char **argv, const struct cli_transport *tls) {
    struct cli c = {.argc = argc, .argv = argv, .tls = tls};
    const char *slash = strrchr(argv[0], '/');
    struct docker d = {.c = &c, .nvidia = streq(slash ? slash + 1 : argv[0], "nvidia-docker")};
    int status = dispatch(&d, argc - 1, argv + 1);
    fflush(stdout);
    arena_done(&c.arena);
    return status;
}

// Scripts have "sudo docker …": in a job that is docker, as oneself. Everything else is sudo's.
int docker_sudo(int argc, char **argv, const struct cli_transport *tls) {
    const char *path = getenv("PATH");
    if (argc > 1 && docker_is_name(argv[1]))
        return docker_main(argc - 1, argv + 1, tls);
    char own[PATH_MAX], there[PATH_MAX], file[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
    own[n > 0 ? n : 0] = 0;
    for (const char *p = path; p && *p;) {
        size_t len = strcspn(p, ":");
        snprintf(file, sizeof file, "%.*s/sudo", (int)len, p);
        if (realpath(file, there) && !streq(there, own))
            execv(file, argv);
        p += len + (p[len] == ':');
    }
    fprintf(stderr,
            "sudo: this link knows 'sudo docker' and 'sudo nvidia-docker' inside jobs; another sudo is not "
            "installed\n");
    return 1;
}

static int run(struct cli *c) {
    char **argv = arena_alloc(&c->arena, ((size_t)c->count + 2) * sizeof *argv);
    argv[0] = arena_strdup(&c->arena, "docker");
    for (int i = 0; i < c->count; i++)
        argv[i + 1] = c->arguments[i];
    return docker_main(c->count + 1, argv, c->tls);
}

const struct verb verb_docker = {
    .name = "docker",
    .group = "Work",
    .arguments = "COMMAND [arguments...]",
    .summary = "docker's words inside a job: run, exec, ps, build and others",
    .text = "Scripts with docker and nvidia-docker lines run unchanged in jobs: 'acequia docker-commands "
            "DIR' makes links of "
            "those names. Containers are processes of the job, as you and within its limits and GPUs; there "
            "is no daemon. "
            "Known are run, exec, start, ps, stop, kill, wait, rm, logs, build, pull, push, tag, images and "
            "rmi. A "
            "container with --name and without --rm is kept on the node with what was written to it, and "
            "later jobs "
            "can exec in it. Options that cannot hold inside a job are refused, with the reason.",
    .examples = "acequia docker run --rm --gpus all -v $PWD:/w -w /w pytorch python train.py\n"
                "acequia docker exec mounted python script.py",
    .options = {&cli_common_options},
    .run = run,
    .raw = true,
    .complete = "run exec start ps stop kill wait rm logs build pull push tag images rmi",
    .most = -1,
};
