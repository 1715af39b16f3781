// acequia top
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "cli/cluster_status.h"
#include "cli/job_columns.h"
#include "cli/job_list.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

enum { EVERY_MS = 1000, ROWS_MAX = 500 };

static const struct option_spec specs[] = {
    {"once", '1', NULL, "Print once and end.", 0, NULL, NULL},
    {"sort", 'S', "NAMES", "Sort by these columns, as for list.", 0, NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("Options", specs);

static const char *running_first(const char *sort) {
    return sort ? sort : "-state,-time";
}

static int draw_jobs(struct cli *c, struct client *k, int rows_left, int width, struct buf *out) {
    struct job_columns columns;
    struct job_rows rows = {0};
    struct table t;
    cleanup_buf struct buf fields = {0};
    cleanup_query struct query q = {0};
    int r = job_columns_parse("id,name,user,project,state,time,cpus,memory,gpus,where", &columns, &c->error);
    job_columns_fields(&columns, &fields);
    query_begin(&q, "/v1/jobs");
    buf_adds(&fields, ",id");
    query_add(&q, "fields", buf_str(&fields));
    query_add(&q, "compact", "1");
    query_addf(&q, "limit", "%d", ROWS_MAX);
    r = r < 0 ? r : job_list_fetch(c, k, buf_str(&q.text), ROWS_MAX, &rows);
    r = r < 0 ? r : job_rows_sort(&rows, running_first(option_get(&c->options, "sort")), &c->error);
    if (r == 0) {
        job_columns_bind(&columns, &rows);
        table_init(&t, &c->arena, columns.titles, columns.count);
        for (uint32_t i = 0; i < rows.rows.len && (rows_left < 0 || (int)i + 1 < rows_left); i++)
            job_columns_add(&columns, &c->arena, rows.rows.at[i], clock_wall_ms(), &t);
        table_print(&t, width, true, terminal_colour(), out);
        table_done(&t);
    }
    vec_done(&rows.rows);
    return r;
}

static int lines_of(const struct buf *b) {
    int n = 0;
    for (size_t i = 0; i < b->len; i++)
        n += b->data[i] == '\n';
    return n;
}

static int draw(struct cli *c, struct client *k, int rows, int width, struct buf *out) {
    struct reply status, nodes;
    int r = client_call(k, "GET", "/v1/status", NULL, &status);
    r = r < 0 ? r : client_call(k, "GET", "/v1/nodes", NULL, &nodes);
    if (r < 0)
        return r;
    cluster_status_lines(c, status.json, json_get(nodes.json, "nodes"), out);
    buf_addc(out, '\n');
    return draw_jobs(c, k, rows < 0 ? -1 : rows - lines_of(out), width, out);
}

static int once(struct cli *c, struct client *k) {
    cleanup_buf struct buf out = {0};
    if (c->json) {
        struct reply status, jobs;
        if (client_call(k, "GET", "/v1/status", NULL, &status) < 0 || client_call(k, "GET", "/v1/jobs?limit=500", NULL, &jobs) < 0)
            return cli_fail(c);
        buf_addf(&out, "{\"status\":%s,\"jobs\":%s}\n", status.text, jobs.text);
        return cli_print(&out);
    }
    return draw(c, k, -1, terminal_width(), &out) < 0 ? cli_fail(c) : cli_print(&out);
}

// One screen, cleared to the end of each line so that it does not flicker.
static int refresh(struct cli *c, struct client *k) {
    cleanup_buf struct buf text = {0}, screen = {0};
    int rows, columns;
    terminal_size(&rows, &columns);
    int r = draw(c, k, rows - 1, columns, &text);
    if (r < 0)
        return r;
    buf_adds(&screen, "\033[H");
    for (const char *p = buf_str(&text); *p;) {
        size_t len = strcspn(p, "\n");
        buf_add(&screen, p, len);
        buf_adds(&screen, "\033[K\r\n");
        p += len + (p[len] == '\n');
    }
    buf_adds(&screen, "\033[J\033[90mq quits\033[0m");
    cli_print(&screen);
    arena_done(&c->arena);
    return 0;
}

static int live(struct cli *c, struct client *k) {
    sigset_t set;
    struct terminal_raw raw = {0};
    int r = 0;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGWINCH);
    sigprocmask(SIG_BLOCK, &set, NULL);
    cleanup_close int signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    terminal_raw_begin(&raw, STDIN_FILENO);
    fputs("\033[?1049h\033[?25l", stdout);
    fflush(stdout);
    for (bool quit = false; !quit && (r = refresh(c, k)) == 0;) {
        struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
        char key;
        if (poll(fds, 2, EVERY_MS) <= 0)
            continue;
        if (fds[0].revents)
            quit = read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 3 || key == 27;
        if (fds[1].revents) {
            struct signalfd_siginfo info;
            quit = quit || (read(signals, &info, sizeof info) > 0 && info.ssi_signo != SIGWINCH);
        }
    }
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    terminal_raw_end(&raw);
    return r < 0 ? cli_fail(c) : CLI_OK;
}

static int run(struct cli *c) {
    struct client *k;
    if (client_open(c, &k) < 0)
        return cli_fail(c);
    bool screen = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && !c->json && !option_given(&c->options, "once");
    int status = screen ? live(c, k) : once(c, k);
    client_free(k);
    return status;
}

const struct verb verb_top = {
    .name = "top",
    .group = "Cluster",
    .arguments = "[options]",
    .summary = "watch the cluster, refreshed each second",
    .examples = "acequia top",
    .options = {&table, &common_options},
    .run = run,
};
