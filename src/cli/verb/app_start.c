// Owns starting an app: which one, with which settings, as a job, and the wait until it is ready. The settings that it
// was started with last are kept in the user's configuration folder, as the spec and variables of its job.
#include "app_start.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/rand.h"
#include "base/text.h"
#include "cli/job/defaults.h"
#include "cli/job/options.h"
#include "model/paths.h"
#include "net/http.h"

enum { LOOK_MS = 100, LOOK_LATER_MS = 1000, LATER_MS = 20 * 1000, SETTINGS_MAX = 1 << 20 };

static const struct option_spec specs[] = {
    {"new", 0, NULL, "Start another one, also while one runs.", 0, NULL, NULL},
    {"no-wait", 0, NULL, "Do not wait until it is ready; print the job.", 0, NULL, NULL},
};
const struct option_table verb_app_options = OPTION_TABLE("Starting", specs);

// --- which apps there are ---

static void bad_file(void *ctx, const char *file, const char *why) {
    cli_note("%s/%s is left out: %s", (const char *)ctx, file, why);
}

int verb_app_list(struct cli *c, struct client *k, struct app_list *out) {
    struct reply reply;
    struct paths p;
    struct app_list own;
    int r = client_call(k, "GET", "/v1/apps", NULL, &reply);
    if (r < 0)
        return r;
    const struct json *list = json_get(reply.json, "apps");
    uint32_t len = list && list->type == JSON_ARRAY ? list->len : 0;
    if ((r = paths_get(&c->arena, &p, &c->error)) < 0)
        return r;
    char *folder = arena_printf(&c->arena, "%s/apps", p.config_dir);
    if ((r = app_folder(folder, "own", &c->arena, &own, bad_file, folder, &c->error)) < 0)
        return r;
    *out = (struct app_list){.at = arena_alloc(&c->arena, (len + own.len) * sizeof *out->at)};
    for (uint32_t i = 0; i < own.len; i++)
        out->at[out->len++] = own.at[i];
    for (uint32_t i = 0; i < len; i++)
        if (!app_find(&own, json_str(&list->items[i], "name")) &&
            schema_read_json(&app_schema, &list->items[i], &c->arena, &out->at[out->len], &c->error) == 0)
            out->len++;
    return 0;
}

// --- settings of the last time ---

static const char *settings_path(struct cli *c, const char *name) {
    struct paths p;
    return paths_get(&c->arena, &p, &c->error) < 0
               ? NULL
               : arena_printf(&c->arena, "%s/app-settings/%s.json", p.config_dir, name);
}

static void add_strings(struct json_writer *w, const char *key, const char *const *at, uint32_t len) {
    json_key(w, key);
    json_open(w, '[');
    for (uint32_t i = 0; i < len; i++)
        json_put_str(w, at[i]);
    json_close(w, ']');
}

static void settings_write(struct cli *c, const char *name, const struct app_job *job) {
    const char *path = settings_path(c, name);
    cleanup_buf struct buf out = {0};
    struct json_writer w = {.out = &out};
    struct spec spec = job->spec;
    if (!path)
        return;
    json_open(&w, '{');
    json_key(&w, "spec");
    schema_write_json(&spec_schema, &spec, &w);
    add_strings(&w, "environment", job->environment.at, job->environment.len);
    json_close(&w, '}');
    char *folder = arena_strndup(&c->arena, path, (size_t)(strrchr(path, '/') - path));
    mkdir(folder, 0700);
    cleanup_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, out.data, out.len) != (ssize_t)out.len)
        cli_note("the settings cannot be kept in %s: %s", path, strerror(errno));
}

// False: there are none.
static bool settings_read(struct cli *c, const char *name, struct app_job *job) {
    const char *path = settings_path(c, name);
    char *text = arena_alloc(&c->arena, SETTINGS_MAX);
    struct json *root;
    struct spec spec = {0};
    cleanup_close int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t n = fd < 0 ? -1 : read(fd, text, SETTINGS_MAX);
    if (n <= 0 || json_parse(text, (size_t)n, &c->arena, &root, NULL) < 0 || !json_get(root, "spec") ||
        schema_read_json(&spec_schema, json_get(root, "spec"), &c->arena, &spec, NULL) < 0)
        return false;
    const struct json *list = json_get(root, "environment");
    job->spec = spec;
    job->environment.len = 0;
    job->environment.at = arena_alloc(&c->arena, (list ? list->len + 1 : 1) * sizeof *job->environment.at);
    for (uint32_t i = 0; list && list->type == JSON_ARRAY && i < list->len; i++)
        if (list->items[i].type == JSON_STRING)
            job->environment.at[job->environment.len++] = list->items[i].s;
    return true;
}

// --- the job ---

// The newest of the app's jobs that has not ended; 0: none.
static int64_t running_one(struct cli *c, struct client *k, const char *name) {
    struct reply reply;
    cleanup_buf struct buf target = {0};
    buf_adds(&target, "/v1/jobs?mine=true&state=PENDING,STARTING,RUNNING,SUSPENDED&fields=id&where=");
    http_percent_encode(&target, arena_printf(&c->arena, "tag=app=%s", name));
    if (client_call(k, "GET", buf_str(&target), NULL, &reply) < 0)
        return -1;
    const struct json *list = json_get(reply.json, "jobs");
    int64_t id = 0;
    for (uint32_t i = 0; list && list->type == JSON_ARRAY && i < list->len; i++)
        if (json_i64(&list->items[i], "id", 0) > id)
            id = json_i64(&list->items[i], "id", 0);
    return id;
}

static bool options_given(const struct cli *c) {
    const struct option_table *const tables[] = {&job_resource_options, &job_control_options};
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (size_t i = 0; i < tables[t]->count; i++)
            if (option_given(&c->options, tables[t]->at[i].name))
                return true;
    return false;
}

int verb_app_job(struct cli *c, const struct app *app, const char *const *values, uint32_t count,
                 struct app_job *out) {
    struct spec given = {0};
    uint64_t random = 0;
    int r = rand_secret(&random, sizeof random);
    r = r < 0 ? r : app_job(app, values, count, random, &c->arena, out, &c->error);
    r = r < 0 ? r : job_spec(c, &c->options, &given);
    if (r < 0)
        return r;
    if (!option_given(&c->options, "chdir") && out->spec.workdir)
        given.workdir = NULL;
    if (app_is_cluster(app))
        given.workers_min = given.workers_max = 0;  // a field of it
    const char *const *tags = out->spec.tags.at;
    uint32_t tag_count = out->spec.tags.len;
    spec_merge(&out->spec, &given);
    if (given.tags.len) {  // beside its own, by which it is found again
        const char **all = arena_alloc(&c->arena, (tag_count + given.tags.len) * sizeof *all);
        memcpy(all, tags, tag_count * sizeof *all);
        memcpy(all + tag_count, given.tags.at, given.tags.len * sizeof *all);
        out->spec.tags.at = all;
        out->spec.tags.len = tag_count + given.tags.len;
    }
    app_shape_to_workers(&out->spec, &c->arena);
    return 0;
}

// With nothing given: as it was started the last time.
static int make_job(struct cli *c, const struct app *app, const char *const *values, uint32_t count,
                    struct app_job *out) {
    struct app_job last;
    int r = verb_app_job(c, app, values, count, out);
    if (r == 0 && !count && !options_given(c) && settings_read(c, app->name, &last)) {
        last.script = out->script;
        *out = last;
    }
    return r;
}

int verb_app_submit(struct cli *c, struct client *k, struct app_job *job, struct reply *reply) {
    struct job_environment shell, all = {0};
    cleanup_buf struct buf body = {0};
    struct job_source source = {.script = job->script, .script_len = strlen(job->script)};
    int r = job_environment(c, &c->options, &shell);
    if (r < 0)
        return r;
    all.at = arena_alloc(&c->arena, (shell.len + job->environment.len) * sizeof *all.at);
    for (uint32_t i = 0; i < shell.len; i++)
        all.at[all.len++] = shell.at[i];
    for (uint32_t i = 0; i < job->environment.len; i++)
        all.at[all.len++] = job->environment.at[i];
    verb_complete_job(&job->spec);
    job_request_write(&(struct job_request){.spec = &job->spec, .source = &source, .environment = &all},
                      &body);
    return client_call(k, "POST", "/v1/jobs", &body, reply);
}

// --- the wait ---

static void show_output(const char *job) {
    char *const argv[] = {"acequia", "logs", "--tail", "20", (char *)(uintptr_t)job, NULL};
    extern char **environ;
    pid_t pid;
    fflush(NULL);
    if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ) == 0)
        waitpid(pid, NULL, 0);
}

static int failed(struct cli *c, const char *job, const struct json *j) {
    const char *reason = json_str(j, "reason");
    cli_note("job %s has ended before it was ready: %s%s%s", job, json_str(j, "state"),
             str_empty(reason) ? "" : ", ", str_empty(reason) ? "" : reason);
    show_output(job);
    return CLI_FAILED;
}

static int print_link(struct cli *c, struct client *k, const char *job) {
    cleanup_buf struct buf out = {0};
    struct reply reply;
    if (client_call(k, "POST", arena_printf(&c->arena, "/v1/jobs/%s/open?port=0", job), &out, &reply) < 0)
        return cli_fail(c);
    buf_clear(&out);
    if (c->json)
        buf_addf(&out, "%s\n", reply.text);
    else
        buf_addf(&out, "Job %s is ready: %s\nOpen it, logged in as you: %s\n", job,
                 json_str(reply.json, "url"), json_str(reply.json, "link"));
    return cli_print(&out);
}

// The arena of the command is emptied between two looks.
static int look_until_ready(struct cli *c, struct client *k, const char *job) {
    int64_t began_ms = clock_mono_ms();
    char told[64] = "";
    for (;;) {
        struct reply reply;
        arena_reset(&c->arena);
        if (client_call(k, "GET", arena_printf(&c->arena, "/v1/jobs/%s", job), NULL, &reply) < 0)
            return cli_fail(c);
        const char *state = json_str(reply.json, "state"), *health = json_str(reply.json, "health");
        bool runs = streq(state, "RUNNING");
        if (runs && (!health || streq(health, "ready") || streq(health, "idle")))
            return print_link(c, k, job);
        if (json_i64(reply.json, "end_ms", 0))
            return failed(c, job, reply.json);
        const char *now = runs ? health : state;
        if (!streq(told, now) && isatty(STDERR_FILENO)) {
            snprintf(told, sizeof told, "%s", now);
            cli_note("job %s: %s", job, runs ? health : state);
        }
        int64_t nap_ms = clock_mono_ms() - began_ms < LATER_MS ? LOOK_MS : LOOK_LATER_MS;
        nanosleep(&(struct timespec){.tv_sec = nap_ms / 1000, .tv_nsec = nap_ms % 1000 * 1000000}, NULL);
    }
}

static int wait_ready(struct cli *c, struct client *k, const char *job) {
    struct arena before = c->arena;
    c->arena = (struct arena){0};
    int status = look_until_ready(c, k, job);
    arena_done(&c->arena);
    c->arena = before;
    return status;
}

static int start(struct cli *c, struct client *k, const char *name, const char *const *values,
                 uint32_t count) {
    struct app_list apps;
    struct app_job job;
    struct reply reply;
    if (verb_app_list(c, k, &apps) < 0)
        return cli_fail(c);
    const struct app *app = app_find(&apps, name);
    if (!app)
        return cli_usage(c, "there is no app \"%.60s\"; see 'acequia app list'", name);
    int64_t id = option_given(&c->options, "new") ? 0 : running_one(c, k, name);
    if (id < 0)
        return cli_fail(c);
    if (id > 0 && (count || options_given(c)))
        cli_note(
            "job %lld of this app is there already and is opened; --new starts another with these settings",
            (long long)id);
    if (id == 0) {
        if (make_job(c, app, values, count, &job) < 0)
            return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
        if (verb_app_submit(c, k, &job, &reply) < 0)
            return cli_fail(c);
        settings_write(c, app->name, &job);
        id = json_i64(reply.json, "id", 0);
        if (option_given(&c->options, "no-wait")) {
            cleanup_buf struct buf out = {0};
            buf_addf(&out, c->json ? "{\"id\":%lld}\n" : "Submitted job %lld\n", (long long)id);
            return cli_print(&out);
        }
    }
    return wait_ready(c, k, arena_printf(&c->arena, "%lld", (long long)id));
}

int verb_app_start(struct cli *c, const char *name, const char *const *values, uint32_t count) {
    struct client *k;
    if (client_open(c, &k) < 0)
        return cli_fail(c);
    int status = start(c, k, name, values, count);
    client_free(k);
    return status;
}
