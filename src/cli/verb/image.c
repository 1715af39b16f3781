// acequia image: images that are built, fetched, pushed and removed by jobs, and containers that are kept.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "cli/client/client.h"
#include "cli/client/session.h"
#include "cli/job/options.h"
#include "cli/term/local_time.h"
#include "cli/term/table.h"
#include "model/image.h"
#include "model/units.h"
#include "verbs.h"

enum { WORDS_MAX = 256, IGNORE_MAX = 64 << 10, BUILD_TIME_S = 3600, REPORTED_LOOKS = 6 };

static const struct option_spec specs[] = {
    {"file", 'f', "FILE", "Build: the Dockerfile; default: Containerfile or Dockerfile in the folder.", 0,
     NULL, "@file"},
    {"tag", 't', "NAME[:TAG]", "Build: name of the image; default: that of the folder.", OPTION_REPEAT, NULL,
     NULL},
    {"build-arg", 0, "NAME=VALUE", "Build: a value for an ARG of the Dockerfile.", OPTION_REPEAT, NULL, NULL},
    {"label", 0, "NAME=VALUE", "Build: a label of the image.", OPTION_REPEAT, NULL, NULL},
    {"target", 0, "STAGE", "Build: end with this stage of the Dockerfile.", 0, NULL, NULL},
    {"no-cache", 0, NULL, "Build: make every layer anew.", 0, NULL, NULL},
    {"pull", 0, "WHEN",
     "Build: whether base images are asked for at their registry: always, missing or never.", 0, NULL,
     "always missing never"},
    {"upload", 'u', NULL, "Build: send the folder with the job, for nodes that do not see it.", 0, NULL,
     NULL},
    {"push", 0, "HOST/NAME:TAG", "Build: push it when it is built.", 0, NULL, NULL},
    {"insecure", 0, NULL,
     "Registries without TLS, or with a certificate that nobody signed; those of the node "
     "itself need no word.",
     0, NULL, NULL},
    {"auth-file", 0, "FILE", "Logins of registries, as docker and skopeo keep them; default: where they do.",
     0, NULL, "@file"},
    {"auth-secret", 0, "NAME", "Logins of registries from this secret; see acequia secret.", 0, NULL, NULL},
    {"container", 0, NULL, "Remove: a container that is kept, not an image.", 0, NULL, NULL},
    {"all", 'a', NULL, "List: of all users, for administrators.", 0, NULL, NULL},
    {"detach", 'd', NULL, "Do not wait for the job; print its number.", 0, NULL, NULL},
};
static const struct option_table table_options = OPTION_TABLE("Options", specs);
// The words for jobs that matter here; -t is the name of an image.
static const struct option_spec job_specs[] = {
    {"node", 'w', "NODE", "On this node; default: push and remove where the image is, others anywhere.", 0,
     "nodelist", "@node"},
    {"cpus", 'c', "N", "CPUs.", 0, NULL, NULL},
    {"memory", 'm', "SIZE", "Memory.", 0, "mem", NULL},
    {"gpus", 'g', "N", "GPUs, for builds that need one.", 0, NULL, NULL},
    {"time", 0, "DURATION", "Time limit; default: an hour.", 0, NULL, NULL},
    {"partition", 'p', "NAME", "Partition.", 0, NULL, "@partition"},
    {"project", 'P', "NAME", "Project that is charged.", 0, NULL, "@project"},
    {"qos", 'q', "NAME", "Quality of service.", 0, NULL, NULL},
};
static const struct option_table job_options = OPTION_TABLE("The job that does it", job_specs);

struct task_words {
    const char *at[WORDS_MAX];
    uint32_t len;
};

static void add(struct task_words *w, const char *text) {
    if (text && w->len < WORDS_MAX)
        w->at[w->len++] = text;
}

static void add_option(struct cli *c, struct task_words *w, const char *name) {
    uint32_t it = 0;
    for (const char *v; (v = option_next(&c->options, name, &it));) {
        add(w, arena_printf(&c->arena, "--%s", name));
        add(w, v);
    }
}

// The spec of the job, read by the same code as that of any job.
static int read_spec(struct cli *c, struct spec *out) {
    static const char *const names[][2] = {
        {"node", "--nodelist"}, {"cpus", "--cpus"},           {"memory", "--memory"},   {"gpus", "--gpus"},
        {"time", "--time"},     {"partition", "--partition"}, {"project", "--project"}, {"qos", "--qos"}};
    char *argv[WORDS_MAX];
    int n = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (option_given(&c->options, names[i][0])) {
            argv[n++] = arena_strdup(&c->arena, names[i][1]);
            argv[n++] = arena_strdup(&c->arena, option_get(&c->options, names[i][0]));
        }
    if (option_given(&c->options, "auth-secret")) {
        argv[n++] = arena_strdup(&c->arena, "--secret");
        argv[n++] =
            arena_printf(&c->arena, "%s:file=REGISTRY_AUTH_FILE", option_get(&c->options, "auth-secret"));
    }
    int r = verb_job_of_words(c, n, argv, out, NULL);
    if (r == 0 && !option_given(&c->options, "time"))
        out->time_limit_s = BUILD_TIME_S;
    return r;
}

static int read_environment(struct cli *c, struct job_environment *out) {
    char *argv[2];
    int n = 0;
    const char *file = option_get(&c->options, "auth-file");
    if (file) {
        char *full = realpath(file, NULL);
        if (!full)
            return error_set(&c->error, errno, "--auth-file %s cannot be read: %s", file, strerror(errno));
        argv[n++] = arena_strdup(&c->arena, "--env");
        argv[n++] = arena_printf(&c->arena, "REGISTRY_AUTH_FILE=%s", full);
        free(full);
    }
    return verb_job_of_words(c, n, argv, NULL, out);
}

static int submit_job(struct cli *c, const struct spec *s, const struct job_environment *environment) {
    cleanup_buf struct buf body = {0}, out = {0};
    struct reply reply;
    struct spec own = *s;
    own.attach = false;
    verb_complete_job(&own);
    job_request_write(&(struct job_request){.spec = &own, .environment = environment}, &body);
    int status = client_post(c, "/v1/jobs", &body, &reply);
    if (status != CLI_OK)
        return status;
    if (c->json)
        buf_addf(&out, "%s\n", reply.text);
    else
        buf_addf(&out, "Submitted job %lld\n", (long long)json_i64(reply.json, "id", 0));
    return cli_print(&out);
}

// Runs the words as a job and shows its output; the exit status is its own.
static int do_job(struct cli *c, const struct task_words *w, const char *node, bool input) {
    struct spec s;
    struct job_environment environment;
    if (read_spec(c, &s) < 0 || read_environment(c, &environment) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    s.name = arena_printf(&c->arena, "image-%s", w->at[0]);
    if (node && str_empty(s.nodes))
        s.nodes = node;
    s.argv.at = arena_memdup(&c->arena, w->at, w->len * sizeof *w->at);
    s.argv.len = w->len;
    s.image_task = true;
    s.launch = LAUNCH_BATCH;
    s.stdin_open = input;
    if (!option_given(&c->options, "detach"))
        return verb_run_attached(c, &s, &environment);
    job_umask(&s);
    schema_give(&spec_schema, &s, &s.requeue);
    return submit_job(c, &s, &environment);
}

// --- build ---

// Lines of .dockerignore that tar can follow too. The rest is sent, and left out by the build itself.
static int ignore_options(struct cli *c, const char *folder, char **argv, int n) {
    char *text = arena_alloc(&c->arena, IGNORE_MAX + 1);
    cleanup_close int fd = open(arena_printf(&c->arena, "%s/.dockerignore", folder), O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? 0 : read(fd, text, IGNORE_MAX);
    if (len <= 0 || len == IGNORE_MAX || memchr(text, '!', (size_t)len))
        return n;  // an exception may bring back what an earlier line took away
    for (char *line = text; line && *line && n < WORDS_MAX;) {
        char *end = strchr(line, '\n');
        if (end)
            *end = 0;
        line += strspn(line, " \t/");
        size_t k = strlen(line);
        while (k && strchr(" \t\r/", line[k - 1]))
            line[--k] = 0;
        if (k && *line != '#' && !strstr(line, "**") && !strstr(line, ".."))
            argv[n++] = arena_printf(&c->arena, "--exclude=./%s", line);
        line = end ? end + 1 : NULL;
    }
    return n;
}

// Standard input becomes an archive of the folder.
static int send_folder(struct cli *c, const char *folder, pid_t *child) {
    char *argv[WORDS_MAX + 12] = {"tar", "--create", "--anchored", "--wildcards",
                                  "--no-wildcards-match-slash"};
    int pipe_fds[2], n = ignore_options(c, folder, argv, 5);
    argv[n++] = "--directory";
    argv[n++] = arena_strdup(&c->arena, folder);
    argv[n++] = ".";
    if (pipe2(pipe_fds, O_CLOEXEC) < 0 || (*child = fork()) < 0)
        return error_set(&c->error, errno, "the folder cannot be sent: %s", strerror(errno));
    if (*child == 0) {
        dup2(pipe_fds[1], STDOUT_FILENO);
        execvp(argv[0], argv);
        dprintf(STDERR_FILENO, "acequia: tar cannot be run: %s\n", strerror(errno));
        _exit(127);
    }
    dup2(pipe_fds[0], STDIN_FILENO);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    return 0;
}

static const char *whole_path(struct cli *c, const char *path) {
    char *full = realpath(path, NULL);
    const char *out = full ? arena_strdup(&c->arena, full) : NULL;
    free(full);
    if (!out)
        error_set(&c->error, errno, "%s cannot be read: %s", path, strerror(errno));
    return out;
}

static void add_tags(struct cli *c, struct task_words *w, const char *folder) {
    add_option(c, w, "tag");
    if (option_given(&c->options, "tag"))
        return;
    const char *name = strrchr(folder, '/') ? strrchr(folder, '/') + 1 : folder;
    char *tag = arena_strdup(&c->arena, *name && !streq(name, "-") ? name : "image");
    for (char *p = tag; *p; p++)  // as registries have names
        *p = strchr("abcdefghijklmnopqrstuvwxyz0123456789._-", *p) ? *p
             : *p >= 'A' && *p <= 'Z'                              ? (char)(*p - 'A' + 'a')
                                                                   : '-';
    add(w, "--tag");
    add(w, tag);
}

static int build(struct cli *c) {
    static const char *const passed[] = {"build-arg", "label", "target", "pull", "push"};
    struct task_words w = {0};
    struct stat st;
    pid_t sender = 0;
    const char *context = c->count > 1 ? c->arguments[1] : ".", *file = option_get(&c->options, "file");
    const char *pull = option_get(&c->options, "pull");
    bool archive = streq(context, "-"), upload = archive || option_given(&c->options, "upload");
    if (c->count > 2)
        return cli_usage(c, "build takes one folder: acequia image build [-f FILE] [-t NAME] [FOLDER]");
    if (pull && !streq(pull, "always") && !streq(pull, "missing") && !streq(pull, "never"))
        return cli_usage(c, "--pull is \"%.20s\"; expected always, missing or never", pull);
    if (upload && option_given(&c->options, "detach"))
        return cli_usage(c, "a folder that is sent needs this command until it is there; leave out --detach");
    if (!archive && !(context = whole_path(c, context)))
        return cli_fail(c);
    if (!archive && (stat(context, &st) < 0 || !S_ISDIR(st.st_mode)))
        return cli_usage(c, "%s is not a folder", context);
    add(&w, "build");
    add_tags(c, &w, context);
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        add_option(c, &w, passed[i]);
    if (option_given(&c->options, "no-cache"))
        add(&w, "--no-cache");
    if (option_given(&c->options, "insecure"))
        add(&w, "--insecure");
    if (file) {
        const char *full = archive ? file : whole_path(c, file);
        size_t n = strlen(context);
        if (!full)
            return cli_fail(c);
        if (upload && !archive && (strncmp(full, context, n) != 0 || full[n] != '/'))
            return cli_usage(c, "%s is not in the folder %s, which is sent; move it there", file, context);
        add(&w, "--file");
        add(&w, upload && !archive ? full + n + 1 : full);
    }
    add(&w, upload ? "-" : context);
    if (upload && !archive && send_folder(c, context, &sender) < 0)
        return cli_fail(c);
    int status = do_job(c, &w, NULL, upload);
    if (sender > 0) {
        close(STDIN_FILENO);
        while (waitpid(sender, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    return status;
}

// --- which there are ---

static int fetch(struct cli *c, bool all, struct reply *reply) {
    cleanup_query struct query q = {0};
    client_query_begin(&q, "/v1/images");
    if (all)
        client_query_add(&q, "all", "true");
    return client_get(c, buf_str(&q.text), reply);
}

static bool is_container(const struct json *j) {
    return streq(json_str(j, "kind"), image_kind_words[IMAGE_CONTAINER]);
}

static const char *title(struct cli *c, const char *name) {
    const char *slash = strrchr(name, '/');
    return strchr(slash ? slash : name, ':') ? name : arena_printf(&c->arena, "%s:latest", name);
}

static int print_list(struct cli *c, const struct json *all, bool containers, bool users) {
    static const struct table_column columns[] = {
        {"NAME", false, 8, 16}, {"KIND", false, 0, 0},  {"DIGEST", false, 0, 0}, {"SIZE", true, 0, 0},
        {"MADE", false, 0, 0},  {"NODES", false, 4, 8}, {"USER", false, 0, 0}};
    struct text_table t;
    cleanup_buf struct buf out = {0};
    table_init(&t, &c->arena, columns, users ? 7 : 6);
    for (uint32_t i = 0; all && all->type == JSON_ARRAY && i < all->len; i++) {
        const struct json *j = &all->items[i];
        char text[UNIT_TEXT_MAX];
        if (is_container(j) != containers)
            continue;
        const char *digest = containers ? json_str(j, "image") : json_str(j, "digest");
        const char *colon = !containers && digest ? strchr(digest, ':') : NULL;
        table_add(&t, json_str(j, "name"), COLOUR_NONE);
        table_add(&t, json_str(j, "kind"), COLOUR_NONE);
        table_add(&t, colon ? arena_strndup(&c->arena, colon + 1, 12) : digest ? digest : "-", COLOUR_NONE);
        table_add(&t, arena_strdup(&c->arena, size_format((uint64_t)json_i64(j, "bytes", 0), text)),
                  COLOUR_NONE);
        table_add(&t,
                  arena_strdup(&c->arena, local_time_short(json_i64(j, "made_ms", 0), clock_wall_ms(), text)),
                  COLOUR_NONE);
        table_add(&t, json_str(j, "nodes") ? json_str(j, "nodes") : "-", COLOUR_NONE);
        if (users)
            table_add(&t, json_str(j, "user") ? json_str(j, "user") : "-", COLOUR_NONE);
    }
    table_print(&t, terminal_table_width(), true, terminal_colour(), &out);
    table_done(&t);
    return cli_print(&out);
}

static int list(struct cli *c, bool containers) {
    struct reply reply;
    cleanup_buf struct buf out = {0};
    bool all = option_given(&c->options, "all");
    int status = fetch(c, all, &reply);
    if (status != CLI_OK)
        return status;
    if (c->json) {
        buf_addf(&out, "%s\n", reply.text);
        return cli_print(&out);
    }
    return print_list(c, json_get(reply.json, "images"), containers, all);
}

// --- push, pull, remove ---

static const char *find_nodes(struct cli *c, const char *name, bool container, int *status) {
    struct reply reply;
    *status = fetch(c, false, &reply);
    const struct json *all = *status == CLI_OK ? json_get(reply.json, "images") : NULL;
    const char *whole = container ? name : title(c, name);
    if (str_has_prefix(whole, "docker://"))
        whole += strlen("docker://");
    for (uint32_t i = 0; all && all->type == JSON_ARRAY && i < all->len; i++) {
        const char *known = json_str(&all->items[i], "name");
        if (is_container(&all->items[i]) == container && known && (streq(known, whole) || streq(known, name)))
            return json_str(&all->items[i], "nodes");
    }
    return NULL;
}

// The nodes that hold an image or container of one's own; NULL: none. Nodes report a new one within a second or two.
static const char *nodes_of(struct cli *c, const char *name, bool container, int *status) {
    const char *nodes = find_nodes(c, name, container, status);
    for (int i = 0; i < REPORTED_LOOKS && !nodes && *status == CLI_OK; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
        nodes = find_nodes(c, name, container, status);
    }
    return nodes;
}

static int missing(struct cli *c, const char *name, bool container) {
    return cli_failf(c, "%s %s is on no node; 'acequia image %s' shows what there is",
                     container ? "container" : "image", name, container ? "containers" : "list");
}

static int push(struct cli *c) {
    struct task_words w = {0};
    int status;
    if (c->count < 2 || c->count > 3)
        return cli_usage(c, "push needs an image and where it goes: acequia image push NAME [HOST/NAME:TAG]");
    const char *name = c->arguments[1], *to = c->count == 3 ? c->arguments[2] : name;
    const char *nodes = option_given(&c->options, "node") ? option_get(&c->options, "node")
                                                          : nodes_of(c, name, false, &status);
    if (!nodes)
        return status != CLI_OK ? status : missing(c, name, false);
    add(&w, "push");
    add(&w, name);
    add(&w, to);
    if (option_given(&c->options, "insecure"))
        add(&w, "--insecure");
    // Any of them will do; a list of several would ask for all.
    const char *first = strpbrk(nodes, ",[") ? arena_strndup(&c->arena, nodes, strcspn(nodes, ",")) : nodes;
    return do_job(c, &w, strchr(first, '[') ? NULL : first, false);
}

static int pull(struct cli *c) {
    struct task_words w = {0};
    if (c->count != 2)
        return cli_usage(c, "pull needs one image: acequia image pull [docker://]HOST/NAME:TAG");
    add(&w, "pull");
    add(&w, c->arguments[1]);
    if (option_given(&c->options, "insecure"))
        add(&w, "--insecure");
    return do_job(c, &w, NULL, false);
}

static int remove_image(struct cli *c) {
    bool container = option_given(&c->options, "container");
    int status = CLI_OK;
    if (c->count != 2)
        return cli_usage(c, "remove needs one name: acequia image remove [--container] NAME");
    const char *name = c->arguments[1];
    const char *nodes = option_given(&c->options, "node") ? option_get(&c->options, "node")
                                                          : nodes_of(c, name, container, &status);
    if (!nodes)
        return status != CLI_OK ? status : missing(c, name, container);
    char *rest = arena_strdup(&c->arena, nodes);
    for (char *node; (node = strsep(&rest, ","));) {
        struct task_words w = {0};
        add(&w, "remove");
        add(&w, name);
        if (container)
            add(&w, "--container");
        int r = *node ? do_job(c, &w, node, false) : CLI_OK;
        status = r != CLI_OK ? r : status;
    }
    return status;
}

static int run(struct cli *c) {
    const char *action = c->arguments[0];
    char shown[64];
    if (streq(action, "build"))
        return build(c);
    if (streq(action, "list"))
        return list(c, false);
    if (streq(action, "containers"))
        return list(c, true);
    if (streq(action, "push"))
        return push(c);
    if (streq(action, "pull"))
        return pull(c);
    if (streq(action, "remove"))
        return remove_image(c);
    return cli_usage(c, "unknown action \"%s\"; expected build, push, pull, list, containers or remove",
                     str_printable(action, shown, sizeof shown));
}

const struct verb verb_image = {
    .name = "image",
    .group = "Work",
    .arguments = "build [-f FILE] [-t NAME] [FOLDER]\npush NAME [HOST/NAME:TAG]\npull HOST/NAME:TAG\nlist\n"
                 "containers\nremove [--container] NAME",
    .summary = "build container images and see those that nodes hold",
    .text = "A build is a job like any other: it has limits, waits its turn, can be cancelled, and its "
            "progress is its "
            "output. It runs as you, without any privilege, by buildah on the node; layers are kept there "
            "for your "
            "next build. The image is on that node under its name, for --container; push it to a registry "
            "for all "
            "nodes. The folder must be on storage that the node sees, or is sent with --upload. containers "
            "are those "
            "that jobs with --container-name have left.",
    .examples =
        "acequia image build -t train .\nacequia image push train registry.example:5000/vision/train:1\n"
        "acequia run -g 1 --container train -- python train.py\nacequia image list",
    .options = {&table_options, &job_options, &cli_common_options},
    .run = run,
    .complete = "build push pull list containers remove",
    .least = 1,
    .most = 3,
};
