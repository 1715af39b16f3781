// The options that describe a job, as submit would take them: what get has no line for, and all of a draft.
#include "cli/job/option_text.h"

#include <string.h>

#include "base/text.h"
#include "cli/term/local_time.h"
#include "model/gpuspec.h"
#include "model/job.h"
#include "model/signalname.h"
#include "model/units.h"

enum kind { TEXT, COUNT, SECONDS, BYTES, GPUS, FLAG, TIME, SIGNAL, WORDS };

static const struct {
    const char *field, *option;
    enum kind kind;
    bool own_line;  // in what get prints
} table[] = {
    {"name", "name", TEXT, true},
    {"project", "project", TEXT, true},
    {"partition", "partition", TEXT, true},
    {"qos", "qos", TEXT, true},
    {"nodes_min", "nodes", COUNT, true},
    {"tasks", "tasks", COUNT, true},
    {"tasks_per_node", "tasks-per-node", COUNT, false},
    {"cpus_per_task", "cpus", COUNT, true},
    {"memory_per_node_bytes", "memory", BYTES, true},
    {"memory_per_cpu_bytes", "memory-per-cpu", BYTES, true},
    {"memory_per_gpu_bytes", "memory-per-gpu", BYTES, true},
    {"gpus_milli", "gpus", GPUS, true},
    {"gpus_per_node_milli", "gpus-per-node", GPUS, true},
    {"gpus_per_task_milli", "gpus-per-task", GPUS, true},
    {"gpu_memory_bytes", "gpu-memory", BYTES, true},
    {"cpus_per_gpu", "cpus-per-gpu", COUNT, false},
    {"ntasks_per_gpu", "tasks-per-gpu", COUNT, false},
    {"time_limit_s", "time", SECONDS, true},
    {"time_min_s", "time-min", SECONDS, true},
    {"features", "constraint", TEXT, false},
    {"nodes", "nodelist", TEXT, false},
    {"exclude", "exclude", TEXT, false},
    {"exclusive", "exclusive", FLAG, true},
    {"spread", "spread", FLAG, false},
    {"contiguous_topology", "same-socket", FLAG, false},
    {"reservation", "reservation", TEXT, false},
    {"workdir", "chdir", TEXT, true},
    {"output", "output", TEXT, true},
    {"error", "error", TEXT, true},
    {"input", "input", TEXT, false},
    {"append", "append", FLAG, false},
    {"truncate", "truncate", FLAG, false},
    {"dependency", "dependency", TEXT, true},
    {"cancel_invalid_dependency", "cancel-invalid-dependency", FLAG, false},
    {"begin_ms", "begin", TIME, true},
    {"deadline_ms", "deadline", TIME, true},
    {"hold", "hold", FLAG, true},
    {"nice", "nice", COUNT, false},
    {"comment", "comment", TEXT, true},
    {"retries", "retries", COUNT, false},
    {"backoff_s", "backoff", SECONDS, false},
    {"grace_s", "grace", SECONDS, false},
    {"min_run_s", "min-run", SECONDS, false},
    {"signal", "signal", SIGNAL, false},
    {"checkpoint", "checkpoint", TEXT, false},
    {"worker_signal", "worker-signal", SIGNAL, false},
    {"container", "container", TEXT, true},
    {"container_mounts", "container-mounts", TEXT, true},
    {"container_workdir", "container-workdir", TEXT, false},
    {"container_name", "container-name", TEXT, false},
    {"notify", "notify", TEXT, true},
    {"notify_to", "notify-to", TEXT, true},
    {"secrets", "secret", WORDS, true},
    {"licenses", "license", TEXT, true},
    {"ports", "port", WORDS, true},
    {"health", "health", TEXT, false},
    {"health_interval_s", "health-interval", SECONDS, false},
    {"health_failures", "health-failures", COUNT, false},
    {"idle_s", "idle", SECONDS, false},
    {"volumes", "volume", WORDS, true},
    {"tags", "tag", WORDS, true},
};

// As a shell reads it; what a terminal would obey is shown as text.
static void add_text(struct buf *out, const char *option, const char *text) {
    bool plain = *text && !strpbrk(text, " \t\"'\\$`&|;<>()*?#~");
    cleanup_buf struct buf quoted = {0};
    for (const char *p = text; *p; p++)
        buf_adds(&quoted, *p == '\'' ? "'\\''" : (char[]){*p, 0});
    buf_addf(out, plain ? " --%s " : " --%s '", option);
    buf_add_visible(out, buf_str(&quoted));
    buf_adds(out, plain ? "" : "'");
}

static void add_words(struct buf *out, const char *option, const struct json *list) {
    for (uint32_t i = 0; list && list->type == JSON_ARRAY && i < list->len; i++)
        if (list->items[i].type == JSON_STRING)
            add_text(out, option, list->items[i].s);
}

static void add_signal(struct buf *out, const char *option, const struct json *spec, int64_t number) {
    char name[SIGNAL_TEXT_MAX];
    bool job = streq(option, "signal");
    buf_addf(out, " --%s %s%s", option, job && json_true(spec, "signal_batch_only") ? "B:" : "",
             signal_name((uint32_t)number, name));
    if (job && json_i64(spec, "signal_before_s", 0))
        buf_addf(out, "@%lld", (long long)json_i64(spec, "signal_before_s", 0));
}

static void add_number(struct buf *out, size_t i, const struct json *spec, int64_t v) {
    char text[UNIT_TEXT_MAX];
    const char *model = json_str(spec, "gpu_model");
    switch (table[i].kind) {
    case SECONDS:
        add_text(out, table[i].option,
                 v < DURATION_LIMIT_S ? duration_format((uint64_t)v, text) : "unlimited");
        break;
    case BYTES: add_text(out, table[i].option, size_format((uint64_t)v, text)); break;
    case GPUS:
        buf_addf(out, " --%s %s%s%s", table[i].option, model ? model : "", model ? ":" : "",
                 gpu_milli_format((uint64_t)v, text));
        break;
    case TIME: add_text(out, table[i].option, local_time_format(v, text)); break;
    case SIGNAL: add_signal(out, table[i].option, spec, v); break;
    default: buf_addf(out, " --%s %lld", table[i].option, (long long)v); break;
    }
}

static void add_workers(struct buf *out, const struct json *spec) {
    long long min = (long long)json_i64(spec, "workers_min", 0),
              max = (long long)json_i64(spec, "workers_max", 0);
    const struct json *components = json_get(spec, "components");
    if (max && !(components && components->type == JSON_ARRAY && components->len))
        buf_addf(out, " --workers %lld-%lld", min, max);
}

void job_option_text(const struct json *spec, bool all, struct buf *out) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const char *text = json_str(spec, table[i].field);
        int64_t v = json_i64(spec, table[i].field, 0);
        bool memory = table[i].kind == BYTES && json_true(spec, "memory_default");
        if ((table[i].own_line && !all) || memory)
            continue;
        if (table[i].kind == WORDS)
            add_words(out, table[i].option, json_get(spec, table[i].field));
        else if (table[i].kind == FLAG && json_true(spec, table[i].field))
            buf_addf(out, " --%s", table[i].option);
        else if (table[i].kind == TEXT && !str_empty(text))
            add_text(out, table[i].option, text);
        else if (table[i].kind != TEXT && table[i].kind != FLAG && v)
            add_number(out, i, spec, v);
    }
    const char *network = json_str(spec, "network");
    if (network && !streq(network, job_network_words[NETWORK_AUTO]))
        buf_addf(out, " --network %s", network);
    const char *pull = json_str(spec, "container_pull");
    if (pull && !streq(pull, job_pull_words[PULL_USUAL]))
        buf_addf(out, " --pull %s", pull);
    if (all)
        add_workers(out, spec);
}
