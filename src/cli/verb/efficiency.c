// acequia efficiency
#include <string.h>

#include "base/text.h"
#include "cli/client/client.h"
#include "cli/term/table.h"
#include "cli/job/resolve.h"
#include "verbs.h"
#include "model/gpuspec.h"
#include "model/units.h"

enum { BAR_WIDTH = 20 };

static const char *bar(struct arena *a, int64_t percent) {
    char text[BAR_WIDTH + 3] = "[";
    int64_t filled = percent * BAR_WIDTH / 100;
    if (percent > 0 && !filled)
        filled = 1;
    for (int64_t i = 0; i < BAR_WIDTH; i++)
        text[i + 1] = i < filled ? '#' : '.';
    text[BAR_WIDTH + 1] = ']';
    text[BAR_WIDTH + 2] = 0;
    return arena_strdup(a, text);
}

static const char *figure(struct arena *a, const char *what, int64_t v) {
    char text[UNIT_TEXT_MAX + GPU_TEXT_MAX];
    uint64_t u = v > 0 ? (uint64_t)v : 0;
    if (streq(what, "cpu") || streq(what, "gpu"))
        return arena_strdup(a, gpu_milli_format(u < 10000 ? u / 10 * 10 : u / 100 * 100, text));
    if (streq(what, "memory") || streq(what, "gpu_memory"))
        return arena_strdup(a, size_format(u, text));
    if (streq(what, "time"))
        return u >= DURATION_LIMIT_S ? "unlimited" : arena_strdup(a, duration_format(u, text));
    return arena_printf(a, "%.1f Wh", (double)v / 3600.0);
}

static void add_row(struct cli *c, struct text_table *t, const struct json *row, bool bars) {
    static const struct {
        const char *what, *shown;
    } names[] = {{"cpu", "CPUs"},  {"memory", "Memory"}, {"gpu", "GPUs"}, {"gpu_memory", "GPU memory"},
                 {"time", "Time"}, {"energy", "Energy"}};
    const char *what = json_str(row, "what"), *shown = what;
    if (!what)
        return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (streq(names[i].what, what))
            shown = names[i].shown;
    bool has = json_get(row, "percent") != NULL;
    int64_t percent = json_i64(row, "percent", 0);
    const char *option = json_str(row, "option");
    enum colour colour = !has ? COLOUR_NONE : option ? COLOUR_YELLOW : COLOUR_GREEN;
    table_add(t, shown, COLOUR_NONE);
    table_add(t, json_get(row, "asked") ? figure(&c->arena, what, json_i64(row, "asked", 0)) : "", COLOUR_NONE);
    bool used = json_get(row, "used") != NULL;
    table_add(t, used ? figure(&c->arena, what, json_i64(row, "used", 0)) : "not measured", COLOUR_NONE);
    table_add(t, has ? arena_printf(&c->arena, "%lld %%", (long long)percent) : "", colour);
    if (bars)
        table_add(t, has ? bar(&c->arena, percent > 100 ? 100 : percent) : "", colour);
    table_add(t, option ? option : "", COLOUR_BOLD);
}

static void print(struct cli *c, const struct json *j, struct buf *out) {
    static const struct table_column columns[] = {{"", false, 0, 0},  {"ASKED", true, 0, 0}, {"USED", true, 0, 0},
                                                  {"%", true, 0, 0}, {"", false, 0, 0},     {"NEXT TIME", false, 0, 0}},
                                     narrow[] = {{"", false, 0, 0},
                                                 {"ASKED", true, 0, 0},
                                                 {"USED", true, 0, 0},
                                                 {"%", true, 0, 0},
                                                 {"NEXT TIME", false, 0, 0}};
    bool bars = terminal_width() >= TERMINAL_WIDTH_DEFAULT;
    const struct json *rows = json_get(j, "rows");
    char elapsed[UNIT_TEXT_MAX];
    struct text_table t;
    duration_format((uint64_t)json_i64(j, "elapsed_s", 0), elapsed);
    if (json_get(j, "elements"))
        buf_addf(out, "Array %s, %lld elements that ran for %s on average\n\n", c->arguments[0],
                 (long long)json_i64(j, "elements", 0), elapsed);
    else
        buf_addf(out, "Job %s %s %s\n\n", c->arguments[0],
                 json_true(j, "final") ? "ran for" : "has been running for", elapsed);
    table_init(&t, &c->arena, bars ? columns : narrow, bars ? 6 : 5);
    for (uint32_t i = 0; rows && rows->type == JSON_ARRAY && i < rows->len; i++)
        add_row(c, &t, &rows->items[i], bars);
    table_print(&t, terminal_table_width(), true, terminal_colour(), out);
    table_done(&t);
    if (json_true(j, "too_short"))
        buf_adds(out, "\nThe job ran too briefly for advice on CPUs, memory and GPUs.\n");
    else if (json_true(j, "failed"))
        buf_adds(out, "\nThe job failed, so its use says little about the next run.\n");
    for (uint32_t i = 0; rows && rows->type == JSON_ARRAY && i < rows->len; i++) {
        const char *option = json_str(&rows->items[i], "option"), *text = json_str(&rows->items[i], "text");
        if (option && text) {
            buf_addc(out, '\n');
            terminal_wrap(out, arena_printf(&c->arena, "%s: %s", option, text), 0, 2);
        }
    }
    if (out->len && out->data[out->len - 1] != '\n')
        buf_addc(out, '\n');
}

static int run(struct cli *c) {
    cleanup_buf struct buf path = {0}, out = {0};
    struct reply reply;
    buf_adds(&path, "/v1/jobs/");
    http_percent_encode(&path, c->arguments[0]);
    buf_adds(&path, "/efficiency");
    int status = client_get(c, buf_str(&path), &reply);
    if (status != CLI_OK)
        return status;
    if (c->json)
        buf_addf(&out, "%s\n", reply.text);
    else
        print(c, reply.json, &out);
    return cli_print(&out);
}

const struct verb verb_efficiency = {
    .name = "efficiency",
    .group = "Work",
    .arguments = "[options] JOB",
    .summary = "compare what a job asked for with what it used",
    .text = "CPUs, memory, GPUs, GPU memory, time and energy, while the job runs and afterwards. The last "
            "column is the option to give next time; "
            "where there is none, the job asked for about what it needs. Of an array all elements together: "
            "means, but the highest peaks and the longest time.",
    .examples = "acequia efficiency 12\nacequia efficiency 12_3 --json",
    .options = {&job_pick_options, &cli_common_options},
    .run = run,
    .complete = "@job",
    .least = 1,
    .most = 1,
    .jobs = VERB_JOB_FIRST,
};
