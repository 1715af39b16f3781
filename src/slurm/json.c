// Owns jobs and nodes as JSON, in the shape of Slurm 22.05's OpenAPI v0.0.38: what has no meaning here
// is there, empty, so that programs find it.
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "json.h"
#include "squeue_columns.h"
#include "model/gpuspec.h"
#include "model/nodelist.h"
#include "model/signalname.h"

void slurm_json_open(struct json_writer *w, const char *plugin, const char *list) {
    json_open(w, '{');
    json_open_key(w, "meta", '{');
    json_open_key(w, "plugin", '{');
    json_kv_str(w, "type", plugin);
    json_kv_str(w, "name", "Acequia " ACEQUIA_VERSION);
    json_close(w, '}');
    json_open_key(w, "Slurm", '{');
    json_open_key(w, "version", '{');
    json_kv_i64(w, "major", 22);
    json_kv_i64(w, "micro", 8);
    json_kv_i64(w, "minor", 5);
    json_close(w, '}');
    json_kv_str(w, "release", "22.05.8");
    json_close(w, '}');
    json_close(w, '}');
    json_open_key(w, "errors", '[');
    json_close(w, ']');
    json_open_key(w, list, '[');
}

void slurm_json_close(struct json_writer *w) {
    json_close(w, ']');
    json_close(w, '}');
    buf_addc(w->out, '\n');
}

static void kv_time(struct json_writer *w, const char *key, int64_t at_ms) {
    json_kv_i64(w, key, at_ms / 1000);
}

static void kv_null(struct json_writer *w, const char *key) {
    json_key(w, key);
    json_put_null(w);
}

static void kv_text(struct json_writer *w, const char *key, const char *text) {
    json_kv_str(w, key, text ? text : "");
}

static void kv_each(struct json_writer *w, const char *const *keys, size_t count, const char *kind) {
    for (size_t i = 0; i < count; i++) {
        if (streq(kind, "null"))
            kv_null(w, keys[i]);
        else if (streq(kind, "zero"))
            json_kv_i64(w, keys[i], 0);
        else if (streq(kind, "false"))
            json_kv_bool(w, keys[i], false);
        else
            json_kv_str(w, keys[i], "");
    }
}
#define EACH(w, kind, ...)                                                       \
    do {                                                                         \
        static const char *const keys[] = {__VA_ARGS__};                         \
        kv_each(w, keys, sizeof keys / sizeof *keys, kind);                      \
    } while (0)

static void kv_gpus(struct json_writer *w, const char *key, uint32_t milli, const char *model) {
    char gpus[GPU_TEXT_MAX], text[128];
    snprintf(text, sizeof text, "gres:gpu:%s%s%s", model ? model : "", model ? ":" : "",
             milli ? gpu_milli_format(milli, gpus) : "0");
    json_kv_str(w, key, milli ? text : "");
}

static void kv_empty_list(struct json_writer *w, const char *key) {
    json_open_key(w, key, '[');
    json_close(w, ']');
}

// An object of empty lists: figures by resource that are not measured.
static void kv_unmeasured(struct json_writer *w, const char *key) {
    json_open_key(w, key, '{');
    kv_empty_list(w, "max");
    kv_empty_list(w, "min");
    kv_empty_list(w, "average");
    kv_empty_list(w, "total");
    json_close(w, '}');
}

static void kv_open(struct json_writer *w, const char *key) {
    json_open_key(w, key, '{');
}

static void kv_limit(struct json_writer *w, const char *key, uint32_t seconds) {
    if (!seconds || seconds >= DURATION_LIMIT_S)
        kv_null(w, key);
    else
        json_kv_i64(w, key, seconds / 60);
}

static void first_host(const char *nodes, struct buf *out) {
    const char *bracket = nodes ? strchr(nodes, '[') : NULL;
    size_t n = nodes ? strcspn(nodes, ",[") : 0;
    buf_add(out, nodes ? nodes : "", n);
    if (bracket && bracket == nodes + n)
        buf_add(out, bracket + 1, strcspn(bracket + 1, "-,]"));
}

static void put_spec(const struct sjob *j, struct json_writer *w) {
    const struct spec *s = j->spec;
    cleanup_buf struct buf text = {0};
    cleanup_arena struct arena a = {0};
    kv_text(w, "comment", s->comment);
    kv_text(w, "container", s->container);
    kv_text(w, "current_working_directory", s->workdir);
    kv_text(w, "command", s->command_text);
    slurm_job_dependency(j, &text);
    kv_text(w, "dependency", streq(buf_str(&text), "(null)") ? "" : buf_str(&text));
    kv_text(w, "features", s->features);
    kv_text(w, "licenses", s->licenses);
    kv_text(w, "required_nodes", s->nodes);
    kv_text(w, "excluded_nodes", s->exclude);
    kv_text(w, "resv_name", s->reservation);
    json_kv_bool(w, "requeue", s->requeue);
    json_kv_bool(w, "batch_flag", s->launch == LAUNCH_BATCH);
    json_kv_i64(w, "group_id", s->gid);
    json_kv_str(w, "group_name", slurm_group_name(&a, s->gid));
    json_kv_i64(w, "array_max_tasks", s->array_limit);
    json_kv_i64(w, "max_nodes", s->nodes_max);
    json_kv_i64(w, "tasks_per_node", s->tasks_per_node);
    json_kv_i64(w, "minimum_cpus_per_node", s->cpus_per_task ? s->cpus_per_task : 1);
    json_key(w, "cpus_per_task");
    if (s->cpus_per_task)
        json_put_i64(w, s->cpus_per_task);
    else
        json_put_null(w);
    kv_time(w, "deadline", s->deadline_ms);
    json_kv_i64(w, "time_minimum", s->time_min_s / 60);
    kv_gpus(w, "tres_per_job", s->gpus_milli, s->gpu_model);
    kv_gpus(w, "tres_per_node", s->gpus_per_node_milli, s->gpu_model);
    kv_gpus(w, "tres_per_task", s->gpus_per_task_milli, s->gpu_model);
    buf_clear(&text);
    slurm_job_path(j, s->output, &text);
    json_kv_str(w, "standard_output", buf_str(&text));
    buf_clear(&text);
    slurm_job_path(j, str_empty(s->error) ? s->output : s->error, &text);
    json_kv_str(w, "standard_error", buf_str(&text));
    json_kv_str(w, "standard_input", s->input ? s->input : "/dev/null");
}

static void put_memory(const struct sjob *j, struct json_writer *w) {
    bool per_cpu;
    uint64_t bytes = slurm_job_memory(j, &per_cpu);
    kv_null(w, per_cpu ? "memory_per_node" : "memory_per_cpu");
    json_kv_i64(w, per_cpu ? "memory_per_cpu" : "memory_per_node", (int64_t)(bytes >> 20));
}

static void put_without_meaning(struct json_writer *w) {
    EACH(w, "text", "admin_comment", "batch_features", "burst_buffer", "burst_buffer_state",
         "cluster_features", "cpus_per_tres", "federation_origin", "federation_siblings_active",
         "federation_siblings_viable", "het_job_id_set", "mcs_label", "memory_per_tres", "prefer",
         "state_description", "system_comment", "tres_bind", "tres_freq", "tres_per_socket", "wckey");
    EACH(w, "zero", "association_id", "delay_boot", "derived_exit_code", "het_job_id", "het_job_offset",
         "max_cpus", "minimum_tmp_disk_per_node", "pre_sus_time", "preempt_time", "resize_time",
         "sockets_per_board", "suspend_time", "tasks_per_board");
    EACH(w, "null", "core_spec", "cores_per_socket", "cpu_frequency_governor", "cpu_frequency_maximum",
         "cpu_frequency_minimum", "profile", "shared", "sockets_per_node", "tasks_per_core",
         "tasks_per_socket", "thread_spec", "threads_per_core");
    EACH(w, "false", "contiguous", "reboot");
    kv_empty_list(w, "flags");
    kv_empty_list(w, "gres_detail");
    kv_empty_list(w, "show_flags");
}

void slurm_job_json(const struct sjob *j, const char *cluster, struct json_writer *w) {
    cleanup_buf struct buf text = {0};
    json_open(w, '{');
    kv_text(w, "account", j->project);
    kv_time(w, "accrue_time", j->hold && j->state == JOB_PENDING ? 0 : j->eligible_ms);
    json_kv_i64(w, "array_job_id", (int64_t)j->array_id);
    json_key(w, "array_task_id");
    if (j->array_id && !j->elements)
        json_put_i64(w, j->array_index);
    else
        json_put_null(w);
    kv_text(w, "array_task_string", j->elements);
    first_host(j->nodes, &text);
    json_kv_str(w, "batch_host", buf_str(&text));
    json_kv_i64(w, "billable_tres", j->cpus);
    kv_text(w, "cluster", cluster);
    json_kv_i64(w, "cpus", j->cpus);
    kv_time(w, "eligible_time", j->hold && j->state == JOB_PENDING ? 0 : j->eligible_ms);
    kv_time(w, "end_time", slurm_job_end_ms(j));
    json_kv_i64(w, "exit_code", (j->exit_code << 8) | (int)j->exit_signal);
    json_kv_i64(w, "job_id", (int64_t)j->id);
    json_open_key(w, "job_resources", '{');
    kv_text(w, "nodes", j->nodes);
    json_kv_i64(w, "allocated_cores", j->start_ms ? j->cpus : 0);
    json_kv_i64(w, "allocated_hosts", j->start_ms ? j->node_count : 0);
    json_close(w, '}');
    json_kv_str(w, "job_state", slurm_state_word(j->state));
    kv_time(w, "last_sched_evaluation", j->now_ms);
    kv_text(w, "name", j->name);
    json_kv_i64(w, "nice", j->nice);
    json_kv_i64(w, "node_count", j->node_count);
    kv_text(w, "nodes", j->nodes);
    kv_text(w, "partition", j->partition);
    json_kv_i64(w, "priority", slurm_job_priority(j));
    json_kv_str(w, "qos", j->qos ? j->qos : "normal");
    json_kv_i64(w, "restart_cnt", j->attempt > 1 ? j->attempt - 1 : 0);
    kv_time(w, "start_time", j->start_ms ? j->start_ms : j->expected_start_ms);
    json_kv_str(w, "state_reason", slurm_reason_word(j));
    kv_time(w, "submit_time", j->submit_ms);
    json_kv_i64(w, "tasks", j->tasks ? j->tasks : 1);
    kv_limit(w, "time_limit", j->time_limit_s);
    buf_clear(&text);
    slurm_tres_text(j, false, &text);
    json_kv_str(w, "tres_req_str", buf_str(&text));
    json_kv_str(w, "tres_alloc_str", j->start_ms ? buf_str(&text) : "");
    json_kv_i64(w, "user_id", j->uid);
    kv_text(w, "user_name", j->user);
    json_kv_bool(w, "hold", j->hold);
    put_memory(j, w);
    if (j->spec)
        put_spec(j, w);
    put_without_meaning(w);
    json_close(w, '}');
}

// --- sacct ---

static void put_exit(struct json_writer *w, const char *key, int32_t code, uint32_t signal) {
    json_open_key(w, key, '{');
    json_kv_str(w, "status", signal ? "SIGNALED" : code ? "ERROR" : "SUCCESS");
    json_kv_i64(w, "return_code", code);
    if (signal) {
        json_open_key(w, "signal", '{');
        json_kv_i64(w, "signal_id", signal);
        char name[SIGNAL_TEXT_MAX];
        json_kv_str(w, "name", signal_name(signal, name));
        json_close(w, '}');
    }
    json_close(w, '}');
}

static void put_span(struct json_writer *w, const char *key, uint64_t us) {
    json_open_key(w, key, '{');
    json_kv_i64(w, "seconds", (int64_t)(us / 1000000));
    json_kv_i64(w, "microseconds", (int64_t)(us % 1000000));
    json_close(w, '}');
}

static void put_times(struct json_writer *w, int64_t start, int64_t end, int64_t now, const struct json *usage) {
    uint64_t user = usage ? (uint64_t)json_i64(usage, "cpu_user_us", 0) : 0,
             system = usage ? (uint64_t)json_i64(usage, "cpu_system_us", 0) : 0;
    json_kv_i64(w, "elapsed", start ? ((end ? end : now) - start) / 1000 : 0);
    kv_time(w, "end", end);
    kv_time(w, "start", start);
    json_kv_i64(w, "suspended", 0);
    put_span(w, "system", system);
    put_span(w, "total", user + system);
    put_span(w, "user", user);
}

static void put_tres(struct json_writer *w, const char *key, const struct sjob *j, uint32_t cpus,
                     uint32_t nodes, bool billing) {
    const struct {
        const char *type, *name;
        int id;
        int64_t count;
        bool there;
    } all[] = {{"cpu", NULL, 1, cpus, true},
               {"mem", NULL, 2, (int64_t)(j->memory_bytes >> 20), j->memory_bytes > 0},
               {"node", NULL, 4, nodes, true},
               {"billing", NULL, 5, cpus, billing},
               {"gres", "gpu", 1001, (int64_t)(j->gpus_milli / 1000), j->gpus_milli > 0}};
    json_open_key(w, key, '[');
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!all[i].there)
            continue;
        json_open(w, '{');
        json_kv_str(w, "type", all[i].type);
        json_kv_str(w, "name", all[i].name);
        json_kv_i64(w, "id", all[i].id);
        json_kv_i64(w, "count", all[i].count);
        json_close(w, '}');
    }
    json_close(w, ']');
}

static void put_step_without_meaning(struct json_writer *w) {
    kv_open(w, "CPU");
    kv_open(w, "requested_frequency");
    json_kv_i64(w, "min", 0);
    json_kv_i64(w, "max", 0);
    json_close(w, '}');
    kv_empty_list(w, "governor");
    json_close(w, '}');
    kv_open(w, "statistics");
    kv_open(w, "CPU");
    json_kv_i64(w, "actual_frequency", 0);
    json_close(w, '}');
    kv_open(w, "energy");
    json_kv_i64(w, "consumed", 0);
    json_close(w, '}');
    json_close(w, '}');
    kv_open(w, "task");
    json_kv_str(w, "distribution", "Unknown");
    json_close(w, '}');
}

static void put_step(const struct sstep *p, struct json_writer *w) {
    cleanup_arena struct arena a = {0};
    struct name_list names = {0};
    uint32_t number;
    json_open(w, '{');
    json_open_key(w, "nodes", '{');
    json_open_key(w, "list", '[');
    if (p->nodes && nodelist_expand(p->nodes, &a, &names, NULL) == 0)
        for (uint32_t i = 0; i < names.len; i++)
            json_put_str(w, names.at[i]);
    json_close(w, ']');
    json_kv_i64(w, "count", p->node_count);
    kv_text(w, "range", p->nodes);
    json_close(w, '}');
    json_open_key(w, "tres", '{');
    kv_unmeasured(w, "requested");
    kv_unmeasured(w, "consumed");
    put_tres(w, "allocated", p->job, p->cpus, p->node_count, false);
    json_close(w, '}');
    put_step_without_meaning(w);
    json_open_key(w, "time", '{');
    put_times(w, p->start_ms, p->end_ms, p->job->now_ms, p->usage);
    json_close(w, '}');
    put_exit(w, "exit_code", p->exit_code, p->exit_signal);
    json_open_key(w, "tasks", '{');
    json_kv_i64(w, "count", p->tasks);
    json_close(w, '}');
    kv_null(w, "pid");
    kv_null(w, "kill_request_user");
    json_kv_str(w, "state", slurm_state_word(p->state));
    json_open_key(w, "step", '{');
    json_kv_i64(w, "job_id", (int64_t)p->job->id);
    kv_open(w, "het");
    kv_null(w, "component");
    json_close(w, '}');
    json_key(w, "id");
    if (parse_u32(p->id, &number) == 0)
        json_put_i64(w, number);
    else
        json_put_str(w, p->id);
    kv_text(w, "name", p->name);
    json_close(w, '}');
    json_close(w, '}');
}

static void put_array(const struct sjob *j, struct json_writer *w) {
    json_open_key(w, "array", '{');
    json_kv_i64(w, "job_id", (int64_t)j->array_id);
    kv_open(w, "limits");
    kv_open(w, "max");
    kv_open(w, "running");
    json_kv_i64(w, "tasks", j->spec ? j->spec->array_limit : 0);
    for (int i = 0; i < 3; i++)
        json_close(w, '}');
    json_key(w, "task_id");
    if (j->array_id && !j->elements)
        json_put_i64(w, j->array_index);
    else
        json_put_null(w);
    json_kv_str(w, "task", j->elements);
    json_close(w, '}');
}

static void put_whom(const struct sjob *j, const char *cluster, struct json_writer *w) {
    cleanup_arena struct arena a = {0};
    kv_text(w, "account", j->project);
    json_open_key(w, "association", '{');
    kv_text(w, "account", j->project);
    kv_text(w, "cluster", cluster);
    kv_null(w, "partition");
    kv_text(w, "user", j->user);
    json_close(w, '}');
    kv_text(w, "cluster", cluster);
    kv_text(w, "user", j->user);
    json_kv_str(w, "group", j->spec ? slurm_group_name(&a, j->spec->gid) : "");
}

void slurm_job_history_json(const struct sjob *j, const char *cluster, const sstep_vec *steps,
                            struct json_writer *w) {
    json_open(w, '{');
    put_whom(j, cluster, w);
    json_open_key(w, "comment", '{');
    kv_null(w, "administrator");
    json_kv_str(w, "job", j->spec ? j->spec->comment : NULL);
    kv_null(w, "system");
    json_close(w, '}');
    json_kv_i64(w, "allocation_nodes", j->start_ms ? j->node_count : 0);
    put_array(j, w);
    kv_text(w, "constraints", j->spec ? j->spec->features : NULL);
    kv_text(w, "licenses", j->spec ? j->spec->licenses : NULL);
    json_kv_str(w, "container", j->spec ? j->spec->container : NULL);
    put_exit(w, "derived_exit_code", 0, 0);
    json_open_key(w, "time", '{');
    put_times(w, j->start_ms, j->end_ms, j->now_ms, j->usage);
    kv_time(w, "eligible", j->eligible_ms);
    kv_time(w, "submission", j->submit_ms);
    kv_limit(w, "limit", j->time_limit_s);
    json_close(w, '}');
    put_exit(w, "exit_code", j->exit_code, j->exit_signal);
    kv_empty_list(w, "flags");
    kv_open(w, "het");
    json_kv_i64(w, "job_id", 0);
    kv_null(w, "job_offset");
    json_close(w, '}');
    kv_open(w, "mcs");
    kv_text(w, "label", "");
    json_close(w, '}');
    kv_open(w, "reservation");
    json_kv_i64(w, "id", 0);
    json_kv_str(w, "name", j->spec && !str_empty(j->spec->reservation) ? j->spec->reservation : NULL);
    json_close(w, '}');
    kv_open(w, "wckey");
    kv_text(w, "wckey", "");
    kv_empty_list(w, "flags");
    json_close(w, '}');
    json_kv_i64(w, "job_id", (int64_t)j->id);
    kv_text(w, "name", j->name);
    kv_text(w, "nodes", str_empty(j->nodes) ? "None assigned" : j->nodes);
    kv_text(w, "partition", j->partition);
    json_kv_i64(w, "priority", slurm_job_priority(j));
    json_kv_str(w, "qos", j->qos ? j->qos : "normal");
    json_open_key(w, "required", '{');
    json_kv_i64(w, "CPUs", j->cpus);
    json_kv_i64(w, "memory", (int64_t)(j->memory_bytes >> 20));
    json_close(w, '}');
    json_kv_str(w, "kill_request_user", j->state == JOB_CANCELLED ? j->by : NULL);
    json_open_key(w, "state", '{');
    json_kv_str(w, "current", slurm_state_word(j->state));
    json_kv_str(w, "reason", slurm_reason_word(j));
    json_close(w, '}');
    json_open_key(w, "steps", '[');
    for (uint32_t i = 0; i < steps->len; i++)
        put_step(&steps->at[i], w);
    json_close(w, ']');
    json_open_key(w, "tres", '{');
    put_tres(w, "allocated", j, j->start_ms ? j->cpus : 0, j->start_ms ? j->node_count : 0, true);
    put_tres(w, "requested", j, j->cpus, j->node_count ? j->node_count : 1, true);
    json_close(w, '}');
    kv_text(w, "working_directory", j->spec ? j->spec->workdir : NULL);
    json_close(w, '}');
}

// --- sinfo ---

void slurm_node_json(const struct snode *n, struct json_writer *w) {
    cleanup_buf struct buf tres = {0};
    bool drain = n->state == SNODE_DRAINED || n->state == SNODE_DRAINING;
    json_open(w, '{');
    kv_text(w, "architecture", n->arch);
    json_kv_i64(w, "boards", 1);
    kv_time(w, "boot_time", n->boot_ms);
    json_kv_i64(w, "cores", n->cores);
    json_kv_i64(w, "cpu_load", n->load_milli / 10);
    json_kv_i64(w, "free_memory", (int64_t)(n->free_bytes >> 20));
    json_kv_i64(w, "cpus", n->cpus);
    kv_text(w, "features", n->features);
    kv_text(w, "active_features", n->features);
    kv_text(w, "gres", n->gres);
    kv_text(w, "gres_used", n->gres_used);
    kv_text(w, "name", n->name);
    kv_text(w, "address", n->address ? n->address : n->name);
    kv_text(w, "hostname", n->name);
    json_kv_str(w, "state",
                drain       ? (n->cpus_used ? "mixed" : "idle")
                : n->silent ? "down"
                            : slurm_node_long(n));
    json_open_key(w, "state_flags", '[');
    if (drain)
        json_put_str(w, "DRAIN");
    if (n->silent)
        json_put_str(w, "NOT_RESPONDING");
    json_close(w, ']');
    kv_text(w, "operating_system", n->os);
    json_open_key(w, "partitions", '[');
    for (uint32_t i = 0; n->partitions && i < n->partitions->len; i++)
        json_put_str(w, n->partitions->items[i].s);
    json_close(w, ']');
    json_kv_i64(w, "real_memory", (int64_t)(n->memory_bytes >> 20));
    kv_text(w, "reason", n->reason);
    kv_time(w, "reason_changed_at", n->reason ? n->reason_ms : 0);
    json_kv_str(w, "reason_set_by_user", n->by);
    kv_time(w, "slurmd_start_time", n->agent_start_ms);
    json_kv_i64(w, "sockets", n->sockets);
    json_kv_i64(w, "threads", n->threads);
    json_kv_i64(w, "temporary_disk", (int64_t)(n->tmp_bytes >> 20));
    json_kv_i64(w, "weight", 1);
    buf_addf(&tres, "cpu=%u,mem=%lluM,billing=%u", n->cpus, (unsigned long long)(n->memory_bytes >> 20), n->cpus);
    if (n->gpus_milli)
        buf_addf(&tres, ",gres/gpu=%u", n->gpus_milli / 1000);
    json_kv_str(w, "tres", buf_str(&tres));
    kv_text(w, "slurmd_version", n->version);
    json_kv_i64(w, "alloc_memory", (int64_t)(n->memory_used_bytes >> 20));
    json_kv_i64(w, "alloc_cpus", n->cpus_used);
    json_kv_i64(w, "idle_cpus", n->cpus > n->cpus_used ? n->cpus - n->cpus_used : 0);
    buf_clear(&tres);
    buf_addf(&tres, "cpu=%u,mem=%lluM", n->cpus_used, (unsigned long long)(n->memory_used_bytes >> 20));
    json_kv_str(w, "tres_used", n->cpus_used ? buf_str(&tres) : NULL);
    json_kv_i64(w, "tres_weighted", n->cpus_used);
    json_kv_str(w, "gres_drained", "N/A");
    json_kv_str(w, "next_state_after_reboot", "invalid");
    kv_empty_list(w, "next_state_after_reboot_flags");
    kv_null(w, "owner");
    EACH(w, "zero", "cpu_binding", "last_busy", "port");
    EACH(w, "text", "burstbuffer_network_address", "comment", "extra", "mcs_label");
    json_close(w, '}');
}
