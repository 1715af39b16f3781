// acequia get
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/client/client.h"
#include "cli/job/columns.h"
#include "cli/term/local_time.h"
#include "cli/term/terminal.h"
#include "cli/job/option_text.h"
#include "cli/job/resolve.h"
#include "verbs.h"
#include "model/gpuspec.h"
#include "model/pattern.h"
#include "model/units.h"

enum { LABEL = 15 };

static const struct option_spec specs[] = {
    {"script", 0, NULL, "Print only the batch script.", 0, NULL, NULL},
    {"environment", 0, NULL, "Print only the environment.", 0, NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("Options", specs);

static void line(struct buf *out, const char *label, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void line(struct buf *out, const char *label, const char *fmt, ...) {
    va_list args;
    buf_addf(out, "%-*s", LABEL, label);
    va_start(args, fmt);
    buf_vaddf(out, fmt, args);
    va_end(args);
    buf_addc(out, '\n');
}

// A sentence, wrapped where a person reads it.
static void sentence_line(struct buf *out, const char *label, const char *text) {
    cleanup_buf struct buf visible = {0};
    if (!isatty(STDOUT_FILENO)) {
        line(out, label, "%s", text);
        return;
    }
    buf_addf(out, "%-*s", LABEL, label);
    buf_add_visible(&visible, text);
    terminal_wrap(out, buf_str(&visible), LABEL, LABEL);
    if (out->data[out->len - 1] != '\n')
        buf_addc(out, '\n');
}

// Text that somebody else chose.
static void visible_line(struct buf *out, const char *label, const char *text) {
    buf_addf(out, "%-*s", LABEL, label);
    buf_add_visible(out, text);
    buf_addc(out, '\n');
}

static void text_line(struct buf *out, const char *label, const struct json *j, const char *field) {
    const char *s = j ? json_str(j, field) : NULL;
    if (s && *s)
        visible_line(out, label, s);
}

static void list_line(struct buf *out, const char *label, const struct json *spec, const char *field) {
    const struct json *list = json_get(spec, field);
    cleanup_buf struct buf text = {0};
    for (uint32_t i = 0; list && list->type == JSON_ARRAY && i < list->len; i++)
        if (list->items[i].type == JSON_STRING)
            buf_addf(&text, "%s%s", text.len ? ", " : "", list->items[i].s);
    if (text.len)
        visible_line(out, label, buf_str(&text));
}

// Options that have no line of their own.
static void option_line(struct buf *out, const struct json *spec) {
    cleanup_buf struct buf text = {0};
    job_option_text(spec, false, &text);
    if (text.len)
        sentence_line(out, "Options", buf_str(&text) + 1);
}

static void time_line(struct buf *out, const char *label, const struct json *j, const char *field) {
    char text[UNIT_TEXT_MAX];
    int64_t at = json_i64(j, field, 0);
    if (at)
        line(out, label, "%s", local_time_format(at, text));
}

static void request_lines(struct buf *out, const struct json *spec) {
    char text[UNIT_TEXT_MAX];
    int64_t v;
    cleanup_buf struct buf b = {0};
    if ((v = json_i64(spec, "nodes_min", 0)))
        buf_addf(&b, "%lld %s, ", (long long)v, v == 1 ? "node" : "nodes");
    if ((v = json_i64(spec, "tasks", 0)))
        buf_addf(&b, "%lld %s, ", (long long)v, v == 1 ? "task" : "tasks");
    if ((v = json_i64(spec, "cpus_per_task", 0)))
        buf_addf(&b, "%lld %s per task, ", (long long)v, v == 1 ? "CPU" : "CPUs");
    static const struct {
        const char *field, *per;
    } sizes[] = {{"memory_per_node_bytes", "per node"},
                 {"memory_per_cpu_bytes", "per CPU"},
                 {"memory_per_gpu_bytes", "per GPU"},
                 {"gpu_memory_bytes", "of GPU memory"}},
      gpus[] = {
          {"gpus_milli", ""}, {"gpus_per_node_milli", " per node"}, {"gpus_per_task_milli", " per task"}};
    for (size_t i = 0; i < 4; i++)
        if ((v = json_i64(spec, sizes[i].field, 0)))
            buf_addf(&b, "%s %s%s, ", size_format((uint64_t)v, text), sizes[i].per,
                     i < 3 && json_true(spec, "memory_default") ? " (default)" : "");
    for (size_t i = 0; i < 3; i++)
        if ((v = json_i64(spec, gpus[i].field, 0)))
            buf_addf(&b, "%s %s%s, ", gpu_milli_format((uint64_t)v, text), v == 1000 ? "GPU" : "GPUs", gpus[i].per);
    if (json_str(spec, "gpu_model"))
        buf_addf(&b, "model %s, ", json_str(spec, "gpu_model"));
    if (json_true(spec, "exclusive"))
        buf_adds(&b, "exclusive, ");
    if (b.len > 2)
        line(out, "Asked for", "%.*s", (int)b.len - 2, b.data);
    if ((v = json_i64(spec, "time_limit_s", 0)))
        line(out, "Time limit", "%s", v < DURATION_LIMIT_S ? duration_format((uint64_t)v, text) : "unlimited");
    if ((v = json_i64(spec, "time_min_s", 0)))
        line(out, "At least", "%s: shortened to that if it can start earlier",
             duration_format((uint64_t)v, text));
}

// "for job 5: speech used more than its share, vision less", and how often if more than once.
static void preempted_line(struct buf *out, const struct json *j) {
    static const char word[] = "Preempted ";
    int64_t times = json_i64(j, "preempted", 0);
    const char *why = json_str(j, "preempted_why");
    cleanup_buf struct buf b = {0};
    if (!times)
        return;
    if (times > 1 || !why)
        buf_addf(&b, "%lld time%s", (long long)times, times > 1 ? "s" : "");
    if (why)
        buf_addf(&b, "%s%s", b.len ? ", last " : "", str_has_prefix(why, word) ? why + sizeof word - 1 : why);
    sentence_line(out, "Preempted", buf_str(&b));
}

static void part_lines(struct buf *out, const struct json *parts, bool ended) {
    char text[UNIT_TEXT_MAX];
    for (uint32_t i = 0; parts && parts->type == JSON_ARRAY && i < parts->len; i++) {
        const struct json *p = &parts->items[i], *gpus = json_get(p, "gpus");
        cleanup_buf struct buf b = {0};
        int64_t milli = 0;
        buf_addf(&b, "%s: %lld %s", json_str(p, "node") ? json_str(p, "node") : "?", (long long)json_i64(p, "cpus", 0),
                 json_i64(p, "cpus", 0) == 1 ? "CPU" : "CPUs");
        if (json_i64(p, "memory_bytes", 0))
            buf_addf(&b, ", %s", size_format((uint64_t)json_i64(p, "memory_bytes", 0), text));
        for (uint32_t g = 0; gpus && gpus->type == JSON_ARRAY && g < gpus->len; g++)
            milli += json_i64(&gpus->items[g], "milli", 0);
        if (milli)
            buf_addf(&b, ", %s %s", gpu_milli_format((uint64_t)milli, text), milli == 1000 ? "GPU" : "GPUs");
        line(out, i ? "" : ended ? "Held" : "Holds", "%s", buf_str(&b));
    }
}

static void usage_lines(struct buf *out, const struct json *u) {
    char text[UNIT_TEXT_MAX], more[UNIT_TEXT_MAX];
    int64_t v;
    if (!u || u->type != JSON_OBJECT)
        return;
    int64_t user = json_i64(u, "cpu_user_us", 0), system = json_i64(u, "cpu_system_us", 0);
    if (user || system)
        line(out, "CPU time", "%s (%lld.%02lld s user, %lld.%02lld s system)",
             duration_elapsed_format((user + system) / 1000000, text), (long long)(user / 1000000),
             (long long)(user / 10000 % 100), (long long)(system / 1000000),
             (long long)(system / 10000 % 100));
    if ((v = json_i64(u, "memory_peak_bytes", 0)))
        line(out, "Memory peak", "%s", size_format((uint64_t)v, text));
    if (json_i64(u, "read_bytes", 0) || json_i64(u, "write_bytes", 0))
        line(out, "Disk", "%s read, %s written", size_format((uint64_t)json_i64(u, "read_bytes", 0), text),
             size_format((uint64_t)json_i64(u, "write_bytes", 0), more));
    if ((v = json_i64(u, "gpu_busy_ms", 0)))
        line(out, "GPU busy", "%s", duration_elapsed_format(v / 1000, text));
    if ((v = json_i64(u, "gpu_memory_peak_bytes", 0)))
        line(out, "GPU memory", "%s peak", size_format((uint64_t)v, text));
    if ((v = json_i64(u, "gpu_throttled_ms", 0)))
        line(out, "GPU throttled", "%s", duration_elapsed_format(v / 1000, text));
    if ((v = json_i64(u, "energy_mj", 0)))
        line(out, "Energy", "%lld J", (long long)(v / 1000));
}

// Share, use and throttling of each GPU right now.
static void gpu_lines(struct buf *out, const struct json *live) {
    const struct json *gpus = live && live->type == JSON_OBJECT ? json_get(live, "gpus") : NULL;
    char share[GPU_TEXT_MAX], used[UNIT_TEXT_MAX], limit[UNIT_TEXT_MAX];
    for (uint32_t i = 0; gpus && gpus->type == JSON_ARRAY && i < gpus->len; i++) {
        const struct json *g = &gpus->items[i];
        const char *node = json_str(g, "node");
        cleanup_buf struct buf b = {0};
        if (json_get(g, "use_milli"))
            buf_addf(&b, "%lld %% busy, ", (long long)(json_i64(g, "use_milli", 0) / 10));
        buf_addf(&b, "%s of %s", size_format((uint64_t)json_i64(g, "memory_bytes", 0), used),
                 size_format((uint64_t)json_i64(g, "memory_limit_bytes", 0), limit));
        if (json_i64(g, "throttled_milli", 0))
            buf_addf(&b, ", throttled %lld %%", (long long)(json_i64(g, "throttled_milli", 0) / 10));
        line(out, i ? "" : "GPUs now", "%s:%lld  %s of it, %s", node ? node : "?", (long long)json_i64(g, "index", 0),
             gpu_milli_format((uint64_t)json_i64(g, "share_milli", 0), share), buf_str(&b));
    }
    if (live && live->type == JSON_OBJECT && json_str(live, "warning"))
        line(out, "Warning", "it %s", json_str(live, "warning"));
}

static void image_text(struct buf *b, int64_t since_ms) {
    char text[UNIT_TEXT_MAX];
    int64_t now = clock_wall_ms();
    buf_adds(b, ", fetching its container image");
    if (since_ms && now > since_ms)
        buf_addf(b, " for %s", duration_format((uint64_t)(now - since_ms) / 1000, text));
}

static void progress_line(struct buf *out, const struct json *live) {
    char time[UNIT_TEXT_MAX];
    const char *text = json_str(live, "progress_text");
    int64_t milli = json_i64(live, "progress_milli", -1), left = json_i64(live, "left_ms", -1);
    if (milli < 0)
        return;
    cleanup_buf struct buf b = {0};
    buf_addf(&b, "%lld %%", (long long)(milli / 10));
    if (!str_empty(text))
        buf_addf(&b, ", %s", text);
    if (left >= 0)
        buf_addf(&b, ", about %s left", duration_format((uint64_t)left / 1000, time));
    line(out, "Progress", "%s", buf_str(&b));
}

static void state_lines(struct cli *c, struct buf *out, const struct json *j) {
    const char *state = json_str(j, "state"), *reason = json_str(j, "reason"),
               *exit = job_exit_text(&c->arena, state, json_i64(j, "exit_code", 0),
                                     json_i64(j, "exit_signal", 0));
    enum colour colour = terminal_colour() ? job_state_colour(state) : COLOUR_NONE;
    cleanup_buf struct buf b = {0};
    if (*exit)
        buf_addf(&b, str_has_prefix(exit, "SIG") ? ", ended by %s" : ", exit code %s", exit);
    if (json_i64(j, "attempt", 0) > 1)
        buf_addf(&b, ", attempt %lld", (long long)json_i64(j, "attempt", 0));
    const struct json *live = json_get(j, "live");
    if (live && live->type == JSON_OBJECT && json_true(live, "preparing"))
        image_text(&b, json_i64(live, "preparing_ms", 0));
    line(out, "State", "%s%s%s%s", terminal_colour_on(colour), state ? state : "?",
         terminal_colour_off(colour), buf_str(&b));
    if (!str_empty(reason) && !streq(reason, "None"))
        line(out, "Reason", "%s", reason);
    if (live && live->type == JSON_OBJECT)
        progress_line(out, live);
    const char *health = json_str(j, "health"), *why = json_str(j, "health_reason");
    if (health)
        line(out, "Health", "%s%s%s", health, str_empty(why) ? "" : ": ", str_empty(why) ? "" : why);
}

// Where the output lies; the pattern itself where the job has not got what it is made of yet.
static void file_line(struct buf *out, const char *label, const struct json *j, const struct json *spec,
                      const char *field) {
    const struct json *parts = json_get(j, "parts");
    const char *pattern = json_str(spec, field);
    struct pattern_values v = {.job = (uint64_t)json_i64(j, "id", 0),
                               .array = (uint64_t)json_i64(j, json_i64(j, "job", 0) ? "job" : "array_id", 0),
                               .array_index =
                                   (uint32_t)json_i64(j, json_i64(j, "job", 0) ? "worker" : "array_index", 0),
                               .name = json_str(spec, "name"),
                               .user = json_str(spec, "user")};
    cleanup_buf struct buf path = {0};
    if (str_empty(pattern))
        return;
    if (parts && parts->type == JSON_ARRAY && parts->len)
        v.node = json_str(&parts->items[0], "node");
    bool known = v.name && v.user && (v.node || !strstr(pattern, "%N")) && !strstr(pattern, "%t") &&
                 !strstr(pattern, "%n");
    if (known && pattern_expand(pattern, json_str(spec, "workdir"), &v, &path, NULL) == 0)
        line(out, label, "%s", buf_str(&path));
    else
        line(out, label, "%s", pattern);
}

// Of a waiting job: when its turn comes, and what that is made of besides its submit time.
static void queue_time_line(struct buf *out, const struct json *j) {
    static const struct {
        const char *key, *what;
    } parts[] = {{"short_s", "for its time limit"}, {"use_s", "for past use"}, {"size_s", "for its size"},
                 {"qos_s", "for its QoS"}, {"nice_s", "for --nice"}};
    const struct json *order = json_get(j, "order");
    cleanup_buf struct buf made = {0};
    char text[UNIT_TEXT_MAX], when[UNIT_TEXT_MAX];
    if (!order || order->type != JSON_OBJECT || !json_i64(order, "priority", 0))
        return;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        int64_t v = json_i64(order, parts[i].key, 0);
        if (v)
            buf_addf(&made, "%s%s%s %s", made.len ? ", " : "", v < 0 ? "-" : "+",
                     duration_format((uint64_t)(v < 0 ? -v : v), text), parts[i].what);
    }
    cleanup_buf struct buf shown = {0};
    buf_addf(&shown, "%s%s%s%s", local_time_format(json_i64(order, "queue_time_ms", 0), when),
             made.len ? " (" : "", buf_str(&made), made.len ? ")" : "");
    sentence_line(out, "Queue time", buf_str(&shown));
}

// Of an elastic job: one line for each worker that runs or has run.
static void worker_lines(struct buf *out, const struct json *j, const struct json *spec) {
    const struct json *members = json_get(j, "members");
    if (json_i64(j, "job", 0))
        line(out, "Worker", "%lld of job %lld", (long long)json_i64(j, "worker", 0),
             (long long)json_i64(j, "job", 0));
    if (!members || members->type != JSON_ARRAY || !members->len)
        return;
    static const char *const ends[][2] = {{"fail", "the job ends when a worker fails"},
                                          {"restart", "a worker that fails is run again"},
                                          {"continue", "the job goes on when a worker fails"}};
    // "RUNNING/MOST" in one text.
    const char *end = json_str(spec, "on_worker_end"), *count = json_str(j, "workers");
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        end = streq(end, ends[i][0]) ? ends[i][1] : end;
    const char *slash = count ? strchr(count, '/') : NULL;
    cleanup_buf struct buf text = {0};
    long long least = (long long)json_i64(spec, "workers_min", 0);
    if (slash)
        buf_addf(&text, "%.*s of %s run, at least %lld start together; %s", (int)(slash - count), count,
                 slash + 1, least, end ? end : "");
    else
        buf_addf(&text, "%u in all, at least %lld started together", members->len, least);
    sentence_line(out, "Workers", buf_str(&text));
    const struct json *components = json_get(spec, "components");
    bool several = components && components->type == JSON_ARRAY && components->len;
    for (uint32_t i = 0; i < members->len; i++) {
        const struct json *m = &members->items[i];
        const char *node = json_str(m, "node"), *ended = json_str(m, "ended"), *state = json_str(m, "state");
        if (!node)
            continue;  // it waits, or was never started
        const char *component = several ? json_str(m, "component") : NULL;
        line(out, "", "+%lld %s%s%s%s%s%s%s", (long long)json_i64(m, "number", 0), component ? component : "",
             component ? " " : "",
             ended   ? ended
             : state ? state
                     : "?",
             node ? " on " : "", node ? node : "", json_true(m, "optional") && !ended ? ", optional" : "",
             json_true(m, "idle") && !ended ? ", idle" : "");
    }
}

// What was asked for, of a job as of an array, but for amounts and times.
static void spec_lines(struct buf *out, const struct json *spec) {
    text_line(out, "Depends on", spec, "dependency");
    text_line(out, "Comment", spec, "comment");
    list_line(out, "Tags", spec, "tags");
    list_line(out, "Secrets", spec, "secrets");
    list_line(out, "Volumes", spec, "volumes");
    text_line(out, "Notify", spec, "notify");
    text_line(out, "Notify to", spec, "notify_to");
    text_line(out, "Container", spec, "container");
    text_line(out, "Kept as", spec, "container_name");
    text_line(out, "Mounts", spec, "container_mounts");
    option_line(out, spec);
    text_line(out, "Folder", spec, "workdir");
}

static void print_job(struct cli *c, const struct json *j, struct buf *out) {
    char text[UNIT_TEXT_MAX];
    const struct json *spec = json_get(j, "spec"), *usage = json_get(j, "usage"), *live = json_get(j, "live");
    const char *label = json_str(j, "label");
    line(out, "Job", "%s", label ? label : arena_printf(&c->arena, "%lld", (long long)json_i64(j, "id", 0)));
    text_line(out, "Name", spec, "name");
    text_line(out, "User", spec, "user");
    text_line(out, "Project", spec, "project");
    text_line(out, "Partition", spec, "partition");
    text_line(out, "QoS", spec, "qos");
    text_line(out, "Licenses", spec, "licenses");
    state_lines(c, out, j);
    preempted_line(out, j);
    if (spec)
        request_lines(out, spec);
    part_lines(out, json_get(j, "parts"), json_i64(j, "end_ms", 0) != 0);
    worker_lines(out, j, spec);
    time_line(out, "Submitted", j, "submit_ms");
    time_line(out, "Begins", spec ? spec : j, "begin_ms");
    time_line(out, "Deadline", spec ? spec : j, "deadline_ms");
    queue_time_line(out, j);
    if (!json_i64(j, "start_ms", 0))
        time_line(out, "Expected start", j, "expected_start_ms");
    if (json_str(j, "late_why"))
        sentence_line(out, "Moved later", json_str(j, "late_why"));
    time_line(out, "Started", j, "start_ms");
    time_line(out, "Ended", j, "end_ms");
    if (json_i64(j, "elapsed_ms", 0))
        line(out, "Run time", "%s", duration_elapsed_format(json_i64(j, "elapsed_ms", 0) / 1000, text));
    usage_lines(out, usage && usage->type == JSON_OBJECT ? usage : live);
    gpu_lines(out, live);
    if (!spec)
        return;
    spec_lines(out, spec);
    list_line(out, "Ports", json_get(j, "ports") ? j : spec, "ports");  // an earlier release does not say
    list_line(out, "Address", j, "urls");
    file_line(out, "Output", j, spec, "output");
    file_line(out, "Error", j, spec, "error");
    text_line(out, "Command", spec, "command_text");
}

// Of an array: what its elements have in common, and how many are in which state.
static void print_array(struct cli *c, const struct json *j, const struct json *counts, struct buf *out) {
    const struct json *spec = json_get(j, "spec"), *states = json_get(counts, "states");
    long long id = (long long)json_i64(counts, "id", 0);
    cleanup_buf struct buf b = {0};
    long long elements = (long long)json_i64(counts, "elements", 0);
    line(out, "Array", "%lld, %lld element%s", id, elements, elements == 1 ? "" : "s");
    text_line(out, "Name", spec, "name");
    text_line(out, "User", spec, "user");
    text_line(out, "Project", spec, "project");
    text_line(out, "Partition", spec, "partition");
    text_line(out, "QoS", spec, "qos");
    for (uint32_t i = 0; states && states->type == JSON_OBJECT && i < states->len; i++) {
        int64_t n = json_i64(states, states->members[i].key, 0);
        if (n)
            buf_addf(&b, "%s%lld %s", b.len ? ", " : "", (long long)n, states->members[i].key);
    }
    line(out, "States", "%s%s", buf_str(&b), json_true(counts, "complete") ? "" : ", and more that have ended");
    if (json_i64(spec, "array_limit", 0))
        line(out, "At once", "%lld", (long long)json_i64(spec, "array_limit", 0));
    request_lines(out, spec);
    time_line(out, "Submitted", j, "submit_ms");
    spec_lines(out, spec);
    list_line(out, "Ports", spec, "ports");
    text_line(out, "Output", spec, "output");
    text_line(out, "Error", spec, "error");
    text_line(out, "Command", spec, "command_text");
    line(out, "Elements", "acequia list %lld, acequia list --finished %lld, acequia get %lld_%lld", id, id, id,
         (long long)json_i64(j, "array_index", 0));
}

// True when it is an array that was named, not one of its elements.
static bool array_of(struct cli *c, struct client *k, const char *name, const struct json *j, struct reply *counts) {
    if (!json_i64(j, "array_id", 0) || strchr(name, '_') ||
        json_i64(j, "id", 0) != json_i64(j, "array_id", 0))
        return false;
    const char *target = arena_printf(&c->arena, "/v1/jobs/%lld/array", (long long)json_i64(j, "array_id", 0));
    return client_call(k, "GET", target, NULL, counts) == 0 && counts->json && json_get(j, "spec");
}

static int run(struct cli *c) {
    struct client *k;
    const char *part = option_given(&c->options, "script")        ? "/script"
                       : option_given(&c->options, "environment") ? "/environment"
                                                                  : "";
    cleanup_buf struct buf out = {0};
    if (client_open(c, &k) < 0)
        return cli_fail(c);
    int status = CLI_OK;
    for (int i = 0; i < c->count; i++) {
        struct reply reply, counts;
        cleanup_buf struct buf target = {0};
        buf_adds(&target, "/v1/jobs/");
        http_percent_encode(&target, c->arguments[i]);
        buf_adds(&target, part);
        if (client_call(k, "GET", buf_str(&target), NULL, &reply) < 0) {
            status = cli_fail(c);
            continue;
        }
        if (i && !c->json && !*part)
            buf_addc(&out, '\n');
        if (*part || !reply.json)
            buf_add(&out, reply.text, reply.len);
        else if (c->json)
            buf_addf(&out, "%s\n", reply.text);
        else if (array_of(c, k, c->arguments[i], reply.json, &counts))
            print_array(c, reply.json, counts.json, &out);
        else
            print_job(c, reply.json, &out);
    }
    client_free(k);
    int printed = cli_print(&out);
    return status == CLI_OK ? printed : status;
}

const struct verb verb_get = {
    .name = "get",
    .alias = "show",
    .group = "Work",
    .arguments = "[options] JOB...",
    .summary = "show everything about a job",
    .examples = "acequia get 12\nacequia get 12_3 --json\nacequia get 12 --script",
    .options = {&table, &job_pick_options, &cli_common_options},
    .run = run,
    .complete = "@job",
    .least = 1,
    .most = -1,
    .jobs = VERB_JOBS,
};
