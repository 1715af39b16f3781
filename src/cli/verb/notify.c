// acequia notify: waits for the ends of jobs and tells them on the desktop, or in the terminal.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/map.h"
#include "base/text.h"
#include "cli/client/client.h"
#include "cli/client/job_wait.h"
#include "cli/job/resolve.h"
#include "cli/term/terminal.h"
#include "model/units.h"
#include "verbs.h"

enum {
    EVERY_DEFAULT_S = 5,
    OVERLAP_MS = 2000,  // a job may come into history a little after others that ended later
    SEEN_MAX = 20000,   // ids that are remembered because of it
    SHOWN_AT_ONCE = 5,  // notifications of one look; the rest is told in one
    ROWS_MAX = 1000,
};

static const struct option_spec specs[] = {
    {"how", 0, "WAY",
     "desktop (notify-send), terminal (OSC 9 and bell), bell or none; default: what is there.", 0, NULL,
     "desktop terminal bell none"},
    {"failed", 'f', NULL, "Only jobs that did not complete.", 0, NULL, NULL},
    {"every", 0, "DURATION", "Look so often; a bare number is seconds. Default: 5s.", 0, NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("Options", specs);

struct notify_watch {
    struct cli *cli;
    struct client *client;
    const char *way;
    bool failed_only;
    int64_t since_ms;  // ends from then on are looked at
    struct map seen;   // ids of ended jobs that were told
    char **wanted;     // ids that were named; NULL: all of the user's
    uint32_t wanted_count, left;
    int status;      // of the first named job that did not complete
    uint32_t shown;  // in this look
};

static bool on_desktop(void) {
    const char *path = getenv("PATH");
    if (!getenv("DISPLAY") && !getenv("WAYLAND_DISPLAY"))
        return false;
    for (const char *p = path; p && *p;) {
        char full[4096];
        size_t n = strcspn(p, ":");
        if (snprintf(full, sizeof full, "%.*s/notify-send", (int)n, p) < (int)sizeof full &&
            access(full, X_OK) == 0)
            return true;
        p += n + (p[n] == ':');
    }
    return false;
}

static const char *choose_way(struct cli *c) {
    const char *way = option_get(&c->options, "how");
    return way ? way : on_desktop() ? "desktop" : isatty(STDOUT_FILENO) ? "terminal" : "none";
}

// The text of a notification may be read as markup.
static void add_escaped(struct buf *out, const char *text) {
    for (; *text; text++) {
        if (*text == '&' || *text == '<' || *text == '>')
            buf_addf(out, "&#%d;", *text);
        else
            buf_addc(out, *text);
    }
}

static void on_screen(const char *title, const char *text) {
    cleanup_buf struct buf body = {0};
    add_escaped(&body, text);
    char *argv[] = {"notify-send",
                    "--app-name=acequia",
                    "--",
                    (char *)(uintptr_t)title,
                    (char *)(uintptr_t)buf_str(&body),
                    NULL};
    int status = 0;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);
        if (null >= 0 && (dup2(null, 0) < 0 || dup2(null, 1) < 0))
            _exit(126);
        execvp(argv[0], argv);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
        cli_note("notify-send did not work; try --how terminal");
}

static void show(struct notify_watch *w, const char *title, const char *text) {
    char safe_title[128], safe[400];
    str_printable(title, safe_title, sizeof safe_title);
    str_printable(text, safe, sizeof safe);
    if (!w->cli->json)
        printf("%s: %s\n", safe_title, safe);
    if (streq(w->way, "desktop"))
        on_screen(safe_title, safe);
    else if (streq(w->way, "terminal"))
        printf("\033]9;%s: %s\a", safe_title, safe);
    else if (streq(w->way, "bell"))
        printf("\a");
    fflush(stdout);
}

static void tell(struct notify_watch *w, const struct json *j) {
    const char *label = json_str(j, "label"), *name = json_str(j, "name"), *state = json_str(j, "state"),
               *reason = json_str(j, "reason");
    char elapsed[UNIT_TEXT_MAX];
    cleanup_buf struct buf text = {0};
    int64_t code = json_i64(j, "exit_code", 0);
    if (w->cli->json) {
        struct json_writer jw = {.out = &text};
        json_write(&jw, j);
        printf("%s\n", buf_str(&text));
        buf_clear(&text);
    }
    if (w->shown++ >= SHOWN_AT_ONCE)
        return;
    buf_addf(&text, "%s after %s", state ? state : "ended",
             duration_elapsed_format(json_i64(j, "elapsed_ms", 0) / 1000, elapsed));
    if (code)
        buf_addf(&text, ", exit code %lld", (long long)code);
    if (!str_empty(reason) && !streq(reason, "None"))
        buf_addf(&text, " (%s)", reason);
    show(w, arena_printf(&w->cli->arena, "Job %s %s", label ? label : "?", name ? name : ""), buf_str(&text));
}

// An array has ended when none of its elements is live.
static bool array_lives(struct notify_watch *w, int64_t array) {
    static const char *const live[] = {"PENDING", "STARTING", "RUNNING", "SUSPENDED", "COMPLETING"};
    struct reply reply;
    const char *target = arena_printf(&w->cli->arena, "/v1/jobs/%lld/array", (long long)array);
    if (client_call(w->client, "GET", target, NULL, &reply) < 0)
        return false;
    const struct json *states = json_get(reply.json, "states");
    for (size_t i = 0; states && i < sizeof live / sizeof *live; i++)
        if (json_i64(states, live[i], 0))
            return true;
    return false;
}

static bool is_wanted(struct notify_watch *w, const struct json *j, int64_t id) {
    if (!w->wanted)
        return true;
    for (uint32_t i = 0; i < w->wanted_count; i++)
        if (streq(w->wanted[i], json_str(j, "label")) || (uint64_t)id == strtoull(w->wanted[i], NULL, 10))
            if (!strchr(w->wanted[i], '_') || streq(w->wanted[i], json_str(j, "label")))
                return true;
    return false;
}

static void take(struct notify_watch *w, const struct json *j) {
    int64_t array = json_i64(j, "array_id", 0), id = array ? array : json_i64(j, "id", 0);
    int64_t end = json_i64(j, "end_ms", 0);
    if (end - OVERLAP_MS > w->since_ms)
        w->since_ms = end - OVERLAP_MS;
    bool element = array && w->wanted && is_wanted(w, j, -1);  // "12_3" was named, not the array
    if (element)
        id = json_i64(j, "id", 0);
    if (map_get(&w->seen, (uint64_t)id) || !is_wanted(w, j, id) ||
        (array && !element && array_lives(w, array)))
        return;
    map_put(&w->seen, (uint64_t)id, w);
    w->left -= w->left > 0;
    bool completed = streq(json_str(j, "state"), "COMPLETED");
    if (!completed && w->status == CLI_OK)
        w->status = client_job_exit_status(j);
    if (!completed || !w->failed_only)
        tell(w, j);
}

static int look(struct notify_watch *w) {
    cleanup_query struct query q = {0};
    struct reply reply;
    client_query_begin(&q, "/v1/jobs");
    if (w->wanted) {
        cleanup_buf struct buf ids = {0};
        for (uint32_t i = 0; i < w->wanted_count; i++)
            buf_addf(&ids, "%s%s", i ? "," : "", w->wanted[i]);
        client_query_add(&q, "ids", buf_str(&ids));
    } else {
        client_query_add(&q, "mine", "1");
        client_query_add(&q, "finished", "1");
        client_query_addf(&q, "since_ms", "%lld", (long long)w->since_ms);
    }
    client_query_addf(&q, "limit", "%d", ROWS_MAX);
    client_query_add(&q, "fields",
                     "id,array_id,label,name,state,reason,exit_code,exit_signal,elapsed_ms,end_ms");
    int r = client_call(w->client, "GET", buf_str(&q.text), NULL, &reply);
    const struct json *jobs = r < 0 ? NULL : json_get(reply.json, "jobs");
    w->shown = 0;
    for (uint32_t i = jobs && jobs->type == JSON_ARRAY ? jobs->len : 0; i-- > 0;)  // the newest come first
        if (json_i64(&jobs->items[i], "end_ms", 0))
            take(w, &jobs->items[i]);
    if (w->shown > SHOWN_AT_ONCE)
        show(w, "Jobs", arena_printf(&w->cli->arena, "%u more have ended", w->shown - SHOWN_AT_ONCE));
    if (w->seen.len > SEEN_MAX)
        map_done(&w->seen);
    return r;
}

// Ends from now on, by the controller's clock: those of the last moments are known.
static int begin(struct notify_watch *w) {
    struct reply reply;
    int r = client_call(w->client, "GET", "/v1/jobs?mine=1&finished=1&limit=1000&fields=id,array_id,end_ms",
                        NULL, &reply);
    const struct json *jobs = r < 0 ? NULL : json_get(reply.json, "jobs");
    for (uint32_t i = 0; jobs && jobs->type == JSON_ARRAY && i < jobs->len; i++) {
        const struct json *j = &jobs->items[i];
        int64_t end = json_i64(j, "end_ms", 0), array = json_i64(j, "array_id", 0);
        if (!i)
            w->since_ms = end > OVERLAP_MS ? end - OVERLAP_MS : 0;
        if (end >= w->since_ms && (!array || !array_lives(w, array)))
            map_put(&w->seen, (uint64_t)(array ? array : json_i64(j, "id", 0)), w);
    }
    return r;
}

static int watch(struct notify_watch *w, uint32_t every_s) {
    struct cli *c = w->cli;
    int r = w->wanted ? 0 : begin(w);
    if (r < 0)
        return r;
    if (!w->wanted && !c->json)
        cli_note("waiting for the ends of your jobs; Ctrl-C ends it");
    for (;;) {
        r = look(w);
        if (r < 0 && r != -EAGAIN && r != -ECONNREFUSED && r != -EPIPE && r != -ECONNRESET)
            return r;
        if (w->wanted && !w->left)
            return 0;
        arena_done(&c->arena);
        sleep(every_s);
    }
}

// A job that never was would be waited for without end.
static int check_wanted(struct notify_watch *w) {
    int r = 0;
    for (uint32_t i = 0; i < w->wanted_count && r >= 0; i++) {
        cleanup_buf struct buf target = {0};
        struct reply reply;
        buf_adds(&target, "/v1/jobs/");
        http_percent_encode(&target, w->wanted[i]);
        r = client_call(w->client, "GET", buf_str(&target), NULL, &reply);
    }
    return r;
}

static int run(struct cli *c) {
    static const char *const ways[] = {"desktop", "terminal", "bell", "none"};
    struct notify_watch w = {
        .cli = c, .way = choose_way(c), .failed_only = option_given(&c->options, "failed")};
    uint32_t every = EVERY_DEFAULT_S;
    bool known = false;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        known |= streq(w.way, ways[i]);
    if (!known)
        return cli_usage(c, "--how is \"%.40s\"; use desktop, terminal, bell or none", w.way);
    if (option_duration(&c->options, "every", 1, &every, &c->error) < 0 || !every || every > 3600)
        return cli_usage(c, "--every is \"%.40s\"; give 1 second to 1 hour",
                         option_get(&c->options, "every"));
    if (client_open(c, &w.client) < 0)
        return cli_fail(c);
    // What replies take of memory is given back after every look; the names must stay.
    w.wanted_count = w.left = (uint32_t)c->count;
    w.wanted = c->count ? calloc((size_t)c->count, sizeof *w.wanted) : NULL;
    for (int i = 0; i < c->count; i++)
        w.wanted[i] = strdup(c->arguments[i]);
    int r = check_wanted(&w);
    if (r >= 0)
        r = watch(&w, every);
    int status = r < 0 ? cli_fail(c) : w.status;
    for (uint32_t i = 0; i < w.wanted_count; i++)
        free(w.wanted[i]);
    free(w.wanted);
    map_done(&w.seen);
    client_free(w.client);
    return status;
}

const struct verb verb_notify = {
    .name = "notify",
    .group = "Work",
    .arguments = "[options] [JOB...]",
    .summary = "show a desktop notification when jobs end",
    .text = "Without JOB it waits for the ends of all your jobs, until it is interrupted; with jobs until "
            "these have ended, "
            "and its exit status is then that of the first that did not complete. Where there is no desktop "
            "the terminal is "
            "told (OSC 9, and the bell), which many show as a notification, also over ssh. An array counts "
            "as one job. For "
            "mails and webhooks see submit --notify.",
    .examples = "acequia notify &\nacequia notify 12 13\nacequia notify --failed --how bell",
    .options = {&table, &job_pick_options, &cli_common_options},
    .run = run,
    .complete = "@job",
    .most = -1,
    .jobs = VERB_JOBS,
};
