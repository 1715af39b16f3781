// acequia cluster: virtual clusters. A cluster is a job with a head and workers, made from an app that describes its
// kind (model/app.h); its name is the job's, so that everything that names a job works with it too.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "app_start.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/rand.h"
#include "base/text.h"
#include "cli/client/job_wait.h"
#include "cli/job/options.h"
#include "cli/term/table.h"
#include "cli/term/terminal.h"
#include "net/http.h"

enum { LOOK_MS = 50, LOOK_LATER_MS = 500, LATER_MS = 20 * 1000, VALUES_MAX = 64, FILE_MAX = 64 << 10 };
#define LIVE "state=PENDING,STARTING,RUNNING,SUSPENDED,COMPLETING"
#define FOLDER ".acequia/clusters"  // in the owner's home (cluster.sh)

static const struct option_spec specs[] = {
    {"wait", 0, NULL, "create, resize: wait until the head and its workers are ready.", 0, NULL, NULL},
    {"environment", 0, "FOLDER",
     "A virtual or conda environment that has the framework; default: the one in the PATH.", 0, "venv",
     "@dir"},
    {"file", 'f', "FILE",
     "create: kind, name and fields as a JSON object, as {\"kind\": \"dask\", \"name\": \"d\"}.", 0, NULL,
     "@file"},
};
static const struct option_table table = OPTION_TABLE("Clusters", specs);

// --- which clusters there are ---

static const struct json *rows_of(struct cli *c, struct client *k, const char *name, struct reply *reply) {
    cleanup_buf struct buf target = {0};
    buf_adds(&target, "/v1/jobs?mine=true&" LIVE "&where=");
    http_percent_encode(&target, "tag=cluster");
    if (name) {
        buf_adds(&target, "&name=");
        http_percent_encode(&target, name);
    }
    if (client_call(k, "GET", buf_str(&target), NULL, reply) < 0)
        return NULL;
    const struct json *list = json_get(reply->json, "jobs");
    return list && list->type == JSON_ARRAY ? list : NULL;
}

// The number of the cluster's job; 0: there is none. Negative: the error is set.
static int64_t find(struct cli *c, struct client *k, const char *name) {
    struct reply reply;
    const struct json *list = rows_of(c, k, name, &reply);
    if (!list)
        return -1;
    for (uint32_t i = 0; i < list->len; i++)
        if (streq(json_str(&list->items[i], "name"), name))
            return json_i64(&list->items[i], "id", 0);
    return 0;
}

static int64_t need(struct cli *c, struct client *k, const char *name) {
    char shown[64];
    int64_t id = find(c, k, name);
    if (id == 0)
        error_set(&c->error, ENOENT, "there is no cluster \"%s\" of yours; see acequia cluster list",
                  str_printable(name, shown, sizeof shown));
    return id ? id : -1;
}

static const char *kind_of(const struct json *row) {
    const struct json *tags = json_get(row, "tags");
    for (uint32_t i = 0; tags && tags->type == JSON_ARRAY && i < tags->len; i++)
        if (tags->items[i].type == JSON_STRING && str_has_prefix(tags->items[i].s, "app="))
            return tags->items[i].s + strlen("app=");
    return "?";
}

// --- get and the wait ---

struct counts {
    uint32_t running, ready, waiting;  // workers
    bool head_ready;
    int64_t head_attempt;
};

static struct counts count_members(const struct json *job) {
    const struct json *members = json_get(job, "members");
    struct counts n = {0};
    for (uint32_t i = 0; members && members->type == JSON_ARRAY && i < members->len; i++) {
        const struct json *m = &members->items[i];
        bool ready = streq(json_str(m, "health"), "ready"), running = streq(json_str(m, "state"), "running");
        if (streq(json_str(m, "component"), COMPONENT_HEAD)) {
            n.head_ready |= running && ready;
            n.head_attempt = json_i64(m, "attempt", 0);
            continue;
        }
        if (!str_empty(json_str(m, "ended")) || streq(json_str(m, "state"), "leaving"))
            continue;
        n.running += running;
        n.ready += running && ready;
        n.waiting += !running;
    }
    return n;
}

static int look(struct cli *c, struct client *k, int64_t id, struct reply *reply) {
    return client_call(k, "GET", arena_printf(&c->arena, "/v1/jobs/%lld", (long long)id), NULL, reply);
}

static void show_output(struct cli *c, int64_t id) {
    char *const argv[] = {"acequia", "logs", "--tail", "20", arena_printf(&c->arena, "%lld+0", (long long)id),
                          NULL};
    extern char **environ;
    pid_t pid;
    fflush(NULL);
    if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ) == 0)
        waitpid(pid, NULL, 0);
}

// Until the head is ready and so many workers are; not when the head fails again and again. The arena of the command is
// emptied between two looks.
static int look_until_ready(struct cli *c, struct client *k, int64_t id, uint32_t wanted) {
    int64_t began_ms = clock_mono_ms();
    char told[96] = "", now[96];
    int64_t first = 0;
    for (;;) {
        struct reply reply;
        arena_reset(&c->arena);
        if (look(c, k, id, &reply) < 0)
            return cli_fail(c);
        struct counts n = count_members(reply.json);
        if (n.head_ready && n.ready >= wanted)
            return CLI_OK;
        first = first ? first : n.head_attempt;
        if (n.head_attempt > first + 1) {
            cli_note(
                "the head of job %lld has failed twice, and is run again; to end it: acequia cancel %lld",
                (long long)id, (long long)id);
            show_output(c, id);
            return CLI_FAILED;
        }
        const char *state = json_str(reply.json, "state"), *reason = json_str(reply.json, "reason");
        if (json_i64(reply.json, "end_ms", 0)) {
            cli_note("job %lld has ended before the cluster was ready: %s%s%s", (long long)id, state,
                     str_empty(reason) ? "" : ", ", str_empty(reason) ? "" : reason);
            show_output(c, id);
            return CLI_FAILED;
        }
        snprintf(now, sizeof now, "%s, %s, %u of %u workers are ready", state,
                 n.head_ready ? "the head is ready" : "the head starts", n.ready, wanted);
        if (!streq(told, now) && isatty(STDERR_FILENO)) {
            memcpy(told, now, sizeof told);
            cli_note("job %lld: %s", (long long)id, now);
        }
        int64_t nap_ms = clock_mono_ms() - began_ms < LATER_MS ? LOOK_MS : LOOK_LATER_MS;
        nanosleep(&(struct timespec){.tv_sec = nap_ms / 1000, .tv_nsec = nap_ms % 1000 * 1000000}, NULL);
    }
}

static int wait_ready(struct cli *c, struct client *k, int64_t id, uint32_t wanted) {
    struct arena before = c->arena;
    c->arena = (struct arena){0};
    int status = look_until_ready(c, k, id, wanted);
    arena_done(&c->arena);
    c->arena = before;
    return status;
}

// Where its files lie: in the owner's home, unless the field folder was given.
static const char *folder_of(struct cli *c, struct client *k, int64_t id, const char *name) {
    struct reply reply;
    if (client_call(k, "GET", arena_printf(&c->arena, "/v1/jobs/%lld/environment?list=true", (long long)id),
                    NULL, &reply) == 0) {
        const struct json *list = json_get(reply.json, "environment");
        for (uint32_t i = 0; list && list->type == JSON_ARRAY && i < list->len; i++)
            if (list->items[i].type == JSON_STRING && str_has_prefix(list->items[i].s, "APP_FOLDER=/"))
                return arena_printf(&c->arena, "%s/%s", list->items[i].s + strlen("APP_FOLDER="), name);
    }
    return arena_printf(&c->arena, "~/" FOLDER "/%s", name);
}

static int get(struct cli *c, struct client *k, const char *name) {
    cleanup_buf struct buf out = {0};
    struct reply reply;
    int64_t id = need(c, k, name);
    if (id < 0 || look(c, k, id, &reply) < 0)
        return cli_fail(c);
    if (c->json) {
        buf_addf(&out, "%s\n", reply.text);
        return cli_print(&out);
    }
    struct counts n = count_members(reply.json);
    const struct json *urls = json_get(reply.json, "urls"), *members = json_get(reply.json, "members");
    buf_addf(&out,
             "Cluster    %s (%s), job %lld\nState      %s%s\nWorkers    %u running, %u of them ready, %u "
             "waiting\n",
             name, kind_of(reply.json), (long long)id, json_str(reply.json, "state"),
             n.head_ready ? ", ready" : "", n.running, n.ready, n.waiting);
    for (uint32_t i = 0; urls && urls->type == JSON_ARRAY && i < urls->len; i++)
        buf_addf(&out, "Dashboard  %s\n", urls->items[i].s);
    buf_addf(&out, "Keys       %s\n", folder_of(c, k, id, name));
    for (uint32_t i = 0; members && members->type == JSON_ARRAY && i < members->len; i++) {
        const struct json *m = &members->items[i];
        const char *node = json_str(m, "node"), *health = json_str(m, "health");
        if (str_empty(json_str(m, "ended")))
            buf_addf(&out, "  +%-3lld %-7s %-8s %-8s attempt %lld%s%s\n", (long long)json_i64(m, "number", 0),
                     json_str(m, "component"), json_str(m, "state"), health ? health : "",
                     (long long)json_i64(m, "attempt", 0), node ? " on " : "", node ? node : "");
    }
    return cli_print(&out);
}

static int list(struct cli *c, struct client *k) {
    static const struct table_column columns[] = {{"NAME"},          {"KIND"},        {"STATE"},
                                                  {"WORKERS", true}, {"READY", true}, {"JOB", true}};
    cleanup_buf struct buf out = {0};
    struct reply reply;
    struct text_table t;
    const struct json *rows = rows_of(c, k, NULL, &reply);
    if (!rows)
        return cli_fail(c);
    if (c->json) {
        struct json_writer w = {.out = &out};
        json_write(&w, rows);
        buf_addc(&out, '\n');
        return cli_print(&out);
    }
    table_init(&t, &c->arena, columns, sizeof columns / sizeof *columns);
    for (uint32_t i = 0; i < rows->len; i++) {
        const struct json *j = &rows->items[i];
        struct reply one;
        if (look(c, k, json_i64(j, "id", 0), &one) < 0)
            continue;  // it has ended meanwhile
        struct counts n = count_members(one.json);
        table_add(&t, json_str(j, "name"), COLOUR_NONE);
        table_add(&t, kind_of(one.json), COLOUR_NONE);
        table_add(&t, json_str(j, "state"), COLOUR_NONE);
        table_addf(&t, "%u/%u", n.running, n.running + n.waiting);
        table_addf(&t, "%u", n.head_ready ? n.ready : 0);
        table_addf(&t, "%lld", (long long)json_i64(j, "id", 0));
    }
    table_print(&t, terminal_table_width(), true, terminal_colour(), &out);
    table_done(&t);
    return cli_print(&out);
}

// --- create and run ---

static bool name_ok(const char *name) {
    size_t len = strlen(name);
    return len && len <= APP_NAME_MAX && *name != '.' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == len;
}

struct wish {
    const char *kind, *name;
    const char *values[VALUES_MAX];
    uint32_t count;
};

// `text`: FIELD=VALUE.
static int add_text(struct cli *c, struct wish *w, const char *text) {
    if (w->count == VALUES_MAX)
        return error_set(&c->error, E2BIG, "more than %d fields", VALUES_MAX);
    w->values[w->count++] = text;
    return 0;
}

static int add_value(struct cli *c, struct wish *w, const char *field, const char *value) {
    return add_text(c, w, arena_printf(&c->arena, "%s=%s", field, value));
}

// A JSON object: kind, name, and a member for each field.
static int read_file(struct cli *c, const char *path, struct wish *w) {
    char *text = arena_alloc(&c->arena, FILE_MAX + 1);
    struct json *root;
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, FILE_MAX);
    if (n < 0)
        return error_set(&c->error, errno, "%s cannot be read: %s", path, strerror(errno));
    int r = json_parse(text, (size_t)n, &c->arena, &root, &c->error);
    if (r == 0 && root->type != JSON_OBJECT)
        r = error_set(&c->error, EINVAL,
                      "a JSON object is expected, as {\"kind\": \"dask\", \"name\": \"d\"}");
    for (uint32_t i = 0; r == 0 && i < root->len; i++) {
        const struct json *m = &root->members[i].value;
        const char *key = root->members[i].key;
        const char *value = m->type == JSON_STRING ? m->s
                            : m->type == JSON_INT  ? arena_printf(&c->arena, "%lld", (long long)m->i)
                                                   : NULL;
        if (!value)
            r = error_set(&c->error, EINVAL, "%s: a text or a whole number is expected", key);
        else if (streq(key, "kind"))
            w->kind = value;
        else if (streq(key, "name"))
            w->name = value;
        else
            r = add_value(c, w, key, value);
    }
    return r < 0 ? error_prefix(&c->error, "%s", path) : 0;
}

static const struct app *find_kind(struct cli *c, const struct app_list *apps, const char *kind) {
    cleanup_buf struct buf all = {0};
    char shown[64];
    const struct app *app = app_find(apps, kind);
    if (app && app_is_cluster(app))
        return app;
    for (uint32_t i = 0; i < apps->len; i++)
        if (app_is_cluster(&apps->at[i]))
            buf_addf(&all, "%s%s", all.len ? ", " : "", apps->at[i].name);
    error_set(&c->error, ENOENT, "there is no kind of cluster \"%s\"; there are %s",
              str_printable(kind, shown, sizeof shown), buf_str(&all));
    return NULL;
}

// Options become fields of the kind; what it has no field for changes the job.
static int complete(struct cli *c, struct wish *w) {
    const char *workers = option_get(&c->options, "workers"),
               *environment = option_get(&c->options, "environment");
    char *full = environment ? realpath(environment, NULL) : NULL;
    int r = add_value(c, w, "name", w->name);
    if (r == 0 && workers)
        r = add_value(c, w, "workers", workers);
    if (r == 0 && environment)
        r = add_value(c, w, "environment", full ? full : environment);
    free(full);
    return r;
}

static int start(struct cli *c, struct client *k, struct wish *w, char **command, int count, int64_t *id,
                 uint32_t *workers) {
    struct app_list apps;
    struct app_job job;
    struct reply reply;
    const struct app *app;
    int r = verb_app_list(c, k, &apps);
    if (r < 0)
        return cli_fail(c);
    if (!(app = find_kind(c, &apps, w->kind)) || complete(c, w) < 0 ||
        verb_app_job(c, app, w->values, w->count, &job) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    if (!name_ok(w->name))
        return cli_usage(
            c, "a cluster is named by letters, digits, '.', '_' and '-', at most %d, and not '.' first",
            APP_NAME_MAX);
    job.spec.name = w->name;
    job.spec.argv.at = (const char **)(uintptr_t)command;
    job.spec.argv.len = (uint32_t)count;
    if (count)  // the command's failure is the job's, it is not run again
        job.spec.on_worker_end = WORKER_END_CONTINUE;
    int64_t there = find(c, k, w->name);
    if (there > 0)
        return cli_failf(c,
                         "a cluster %s of yours is there already, job %lld; choose another name, or end it: "
                         "acequia cluster delete %s",
                         w->name, (long long)there, w->name);
    if (there < 0 || verb_app_submit(c, k, &job, &reply) < 0)
        return cli_fail(c);
    *id = json_i64(reply.json, "id", 0);
    *workers = job.spec.components.at[1].workers_min;
    return CLI_OK;
}

static int create(struct cli *c, struct client *k) {
    struct wish w = {0};
    const char *file = option_get(&c->options, "file");
    cleanup_buf struct buf out = {0};
    int64_t id;
    uint32_t workers;
    int at = 1;
    if (file && read_file(c, file, &w) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    if (!w.kind && at < c->count)
        w.kind = c->arguments[at++];
    if (!w.name && at < c->count)
        w.name = c->arguments[at++];
    if (!w.kind || !w.name)
        return cli_usage(
            c, "write: acequia cluster create KIND NAME --workers 4, where KIND is ipython, dask, mpi, ...");
    for (; at < c->count; at++)
        if (add_text(c, &w, c->arguments[at]) < 0)
            return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    int status = start(c, k, &w, NULL, 0, &id, &workers);
    if (status != CLI_OK ||
        (option_given(&c->options, "wait") && (status = wait_ready(c, k, id, workers)) != CLI_OK))
        return status;
    if (c->json)
        buf_addf(&out, "{\"id\":%lld}\n", (long long)id);
    else
        buf_addf(&out, "Cluster %s is job %lld; to use it: acequia cluster connect %s\n", w.name,
                 (long long)id, w.name);
    return cli_print(&out);
}

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    interrupted = 1;
}

static int cancel(struct cli *c, struct client *k, int64_t id) {
    cleanup_buf struct buf body = {0};
    struct reply reply;
    buf_addf(&body, "{\"ids\":[\"%lld\"]}", (long long)id);
    return client_call(k, "POST", "/v1/jobs/cancel", &body, &reply);
}

// The output of the command as it comes, and its exit status; the cluster ends with it.
static int follow(struct cli *c, struct client *k, int64_t id) {
    const char *job = arena_printf(&c->arena, "%lld", (long long)id);
    char *const argv[] = {"acequia", "logs", "--follow", arena_printf(&c->arena, "%s+0", job), NULL};
    extern char **environ;
    pid_t pid;
    sigaction(SIGINT, &(struct sigaction){.sa_handler = on_interrupt}, NULL);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = on_interrupt}, NULL);
    fflush(NULL);
    bool spawned = posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ) == 0;
    while (spawned && waitpid(pid, NULL, 0) < 0 && errno == EINTR && !interrupted)
        ;
    if (interrupted) {
        if (spawned)
            kill(pid, SIGTERM);
        cli_note("job %s is cancelled", job);
        if (cancel(c, k, id) < 0)
            return cli_fail(c);
    }
    return client_job_wait(c, k, job, -1, true);
}

static int run_once(struct cli *c, struct client *k) {
    uint32_t random = 0, workers;
    int64_t id;
    if (c->count < 3)
        return cli_usage(c, "write: acequia cluster run KIND --workers 4 -- COMMAND");
    rand_secret(&random, sizeof random);
    struct wish w = {.kind = c->arguments[1], .name = arena_printf(&c->arena, "run-%08x", random)};
    int words = 2;  // fields, then the command
    for (; words < c->count && !streq(c->arguments[words], "--") && strchr(c->arguments[words], '='); words++)
        if (add_text(c, &w, c->arguments[words]) < 0)
            return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    words += words < c->count && streq(c->arguments[words], "--");
    if (words == c->count)
        return cli_usage(c, "say what to run, after --: acequia cluster run %s -- COMMAND", w.kind);
    int status = start(c, k, &w, c->arguments + words, c->count - words, &id, &workers);
    return status == CLI_OK ? follow(c, k, id) : status;
}

// --- the rest ---

static int resize(struct cli *c, struct client *k, const char *name, const char *size) {
    cleanup_buf struct buf body = {0};
    struct reply reply;
    uint32_t min, max;
    if (job_workers_parse("the size", size, &min, &max, &c->error) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    int64_t id = need(c, k, name);
    buf_addf(&body, "{\"component\":\"worker\",\"workers_min\":%u,\"workers_max\":%u}", min, max);
    if (id < 0 || client_call(k, "POST", arena_printf(&c->arena, "/v1/jobs/%lld/resize", (long long)id),
                              &body, &reply) < 0)
        return cli_fail(c);
    if (option_given(&c->options, "wait")) {
        int status = wait_ready(c, k, id, min);
        if (status != CLI_OK)
            return status;
    }
    if (!c->json)
        printf("Cluster %s: %s workers from now on\n", name, size);
    return CLI_OK;
}

static int delete_one(struct cli *c, struct client *k, const char *name) {
    int64_t id = need(c, k, name);
    if (id < 0 || cancel(c, k, id) < 0)
        return cli_fail(c);
    if (!c->json)
        printf("Cluster %s is ended\n", name);
    return CLI_OK;
}

static int connect_to(struct cli *c, struct client *k, const char *name) {
    cleanup_buf struct buf out = {0};
    struct reply reply;
    int64_t id = need(c, k, name);
    if (id < 0 || look(c, k, id, &reply) < 0)
        return cli_fail(c);
    const char *kind = kind_of(reply.json);
    if (!count_members(reply.json).head_ready)
        cli_note("the head is not ready yet; acequia cluster get %s shows where it is", name);
    if (streq(kind, "mpi"))
        buf_addf(&out, "acequia cluster exec %s -- mpirun ./program\n", name);
    else
        buf_addf(&out, "exec(open(__import__(\"os\").path.expanduser(\"%s/connect.py\")).read())\n",
                 folder_of(c, k, id, name));
    return cli_print(&out);
}

// In the head, with the variables that programs of the kind need.
static int exec_in(struct cli *c, struct client *k, const char *name) {
    int64_t id = need(c, k, name);
    int words = c->count > 2 && streq(c->arguments[2], "--") ? 3 : 2;
    if (id < 0)
        return cli_fail(c);
    if (c->count <= words)
        return cli_usage(c, "write: acequia cluster exec NAME -- COMMAND");
    char *workdir = getcwd(NULL, 0);
    const char *script =
        "enter=${APP_FOLDER:-$HOME/" FOLDER
        "}/$ACEQUIA_JOB_NAME/enter\n[ ! -x \"$enter\" ] || exec \"$enter\" \"$@\"\nexec \"$@\"";
    char **argv = arena_alloc(&c->arena, ((size_t)c->count + 12) * sizeof *argv);
    const char *const first[] = {"acequia",
                                 "exec",
                                 "--chdir",
                                 workdir ? workdir : "/",
                                 arena_printf(&c->arena, "%lld+0", (long long)id),
                                 "--",
                                 "sh",
                                 "-c",
                                 script,
                                 "sh"};
    int n = 0;
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        argv[n++] = (char *)(uintptr_t)first[i];
    for (int i = words; i < c->count; i++)
        argv[n++] = c->arguments[i];
    execv("/proc/self/exe", argv);
    free(workdir);
    return cli_failf(c, "acequia exec cannot be started: %s", strerror(errno));
}

static int act(struct cli *c, struct client *k) {
    const char *what = c->arguments[0], *name = c->count > 1 ? c->arguments[1] : NULL;
    if (streq(what, "create"))
        return create(c, k);
    if (streq(what, "run"))
        return run_once(c, k);
    if (streq(what, "list") && c->count == 1)
        return list(c, k);
    if (streq(what, "get") && c->count == 2)
        return get(c, k, name);
    if (streq(what, "resize") && c->count == 3)
        return resize(c, k, name, c->arguments[2]);
    if (streq(what, "delete") && c->count == 2)
        return delete_one(c, k, name);
    if (streq(what, "connect") && c->count == 2)
        return connect_to(c, k, name);
    if (streq(what, "exec") && c->count > 2)
        return exec_in(c, k, name);
    return cli_usage(
        c, "write: cluster create KIND NAME, list, get NAME, resize NAME SIZE, delete NAME, connect NAME, "
           "exec NAME -- COMMAND, or run KIND -- COMMAND");
}

static int run(struct cli *c) {
    struct client *k;
    if (client_open(c, &k) < 0)
        return cli_fail(c);
    int status = act(c, k);
    client_free(k);
    return status;
}

const struct verb verb_cluster = {
    .name = "cluster",
    .group = "Programs",
    .arguments = "create [options] KIND NAME [FIELD=VALUE...]\ncreate [options] --file FILE\nlist\nget NAME\n"
                 "resize NAME SIZE\ndelete NAME\nconnect NAME\nexec NAME -- COMMAND [arguments...]\n"
                 "run [options] KIND [FIELD=VALUE...] -- COMMAND...",
    .summary = "make and resize clusters of Dask, IPython, Ray, Spark or MPI",
    .text = "A virtual cluster is a job with a head and workers. SIZE is a number of workers, or a range "
            "such as 2-8: those "
            "beyond the first number run on what others leave idle. Options of acequia submit describe one "
            "worker. connect "
            "prints the line that uses it; exec runs a command beside its head. run makes a cluster for one "
            "command and "
            "ends it with the command. Keys are in ~/" FOLDER
            "/NAME, which only you can read. acequia app list shows "
            "the kinds, acequia app show KIND the fields of one.",
    .examples =
        "acequia cluster create ipython lab --workers 4 --wait\nacequia cluster connect lab\n"
        "acequia cluster resize lab 8\nacequia cluster create dask d --workers 2-8 --gpus 1 --memory 16G\n"
        "acequia cluster exec hpc -- mpirun ./program\nacequia cluster run dask --workers 4 -- python3 "
        "work.py\n"
        "acequia cluster delete lab",
    .options = {&table, &job_resource_options, &job_control_options, &cli_common_options},
    .run = run,
    .complete = "create list get resize delete connect exec run @file",
    .least = 1,
    .most = -1,
};
