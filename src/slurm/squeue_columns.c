// Owns the fields that squeue can print.
#include "squeue_columns.h"

#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "model/gpuspec.h"
#include "model/pattern.h"

#define PUT(fn) static void put_##fn(const void *row, struct buf *out)
#define JOB const struct sjob *j = row

static void text_or(struct buf *out, const char *text, const char *none) {
    buf_adds(out, str_empty(text) ? none : text);
}

static void put_time(struct buf *out, int64_t at_ms, const char *none) {
    char t[UNIT_TEXT_MAX];
    buf_adds(out, slurm_time(at_ms, none, t));
}

static void put_in_brackets(struct buf *out, const char *text) {
    buf_addc(out, '(');
    buf_adds(out, text);
    buf_addc(out, ')');
}

int64_t slurm_job_end_ms(const struct sjob *j) {
    if (j->end_ms)
        return j->end_ms;
    return j->start_ms && j->time_limit_s && j->time_limit_s < DURATION_LIMIT_S
               ? j->start_ms + (int64_t)j->time_limit_s * 1000 + j->suspended_ms
               : 0;
}

uint32_t slurm_job_priority(const struct sjob *j) {
    if (j->hold && !job_state_final(j->state))
        return 0;
    if (j->ordered && !j->priority && j->turn_priority)
        return j->turn_priority < UINT32_MAX ? (uint32_t)j->turn_priority : UINT32_MAX;
    return j->priority ? j->priority : 1;
}

uint64_t slurm_job_memory(const struct sjob *j, bool *per_cpu) {
    const struct spec *s = j->spec;
    *per_cpu = !(s && s->memory_per_node_bytes);
    if (!*per_cpu)
        return s->memory_per_node_bytes;
    if (s && s->memory_per_cpu_bytes)
        return s->memory_per_cpu_bytes;
    return j->cpus ? j->memory_bytes / j->cpus : 0;
}

void slurm_job_path(const struct sjob *j, const char *pattern, struct buf *out) {
    const struct spec *s = j->spec;
    struct pattern_values v = {.job = j->id,
                               .array = j->array_id,
                               .array_index = j->array_index,
                               .name = j->name,
                               .user = j->user,
                               .node = j->nodes};
    if (str_empty(pattern))
        pattern = j->array_id ? PATTERN_DEFAULT_ARRAY : PATTERN_DEFAULT;
    if (!s || str_empty(s->workdir) || pattern_expand(pattern, s->workdir, &v, out, NULL) < 0)
        buf_adds(out, s && s->workdir ? pattern : "");
}

static void gres_text(struct buf *out, uint32_t milli, const char *model) {
    char gpus[GPU_TEXT_MAX];
    if (milli)
        buf_addf(out, "gres:gpu:%s%s%s", str_empty(model) ? "" : model, str_empty(model) ? "" : ":",
                 gpu_milli_format(milli, gpus));
    else
        buf_adds(out, "N/A");
}

void slurm_job_dependency(const struct sjob *j, struct buf *out) {
    const char *text = j->spec ? j->spec->dependency : NULL;
    bool waits = str_has_prefix(j->reason ? j->reason : "", "Dependency") || j->hold;
    if (str_empty(text) || j->state != JOB_PENDING || !waits) {
        buf_adds(out, "(null)");
        return;
    }
    bool never = streq(j->reason, "DependencyNeverSatisfied");
    for (const char *p = text; *p;) {
        // "afterok:12:13" is shown one by one.
        size_t n = strcspn(p, ",?"), type = strcspn(p, ":,?");
        for (const char *id = p + type; id < p + n || id == p + n;) {
            size_t len = *id == ':' ? 1 + strcspn(id + 1, ":,?") : 0;
            buf_addf(out, "%.*s%.*s(%s)", (int)type, p, (int)len, id, never ? "failed" : "unfulfilled");
            id += len;
            if (id >= p + n)
                break;
            buf_addc(out, p[n] == '?' ? '?' : ',');
        }
        if (p[n])
            buf_addc(out, p[n]);
        p += n + (p[n] != 0);
    }
}

PUT(label) { JOB; text_or(out, j->label, ""); }
PUT(id) {
    JOB;
    buf_addu(out, j->array_id && j->elements ? j->array_id : slurm_job_number(j));
}
PUT(array_id) {
    JOB;
    buf_addu(out, j->array_id ? j->array_id : slurm_job_number(j));
}
static void put_component(const struct sjob *j, bool offset, struct buf *out) {
    uint64_t job;
    uint32_t number;
    if (!slurm_job_component(j, &job, &number))
        buf_adds(out, "N/A");
    else
        buf_addu(out, offset ? number : job);
}
PUT(het_id) {
    JOB;
    put_component(j, false, out);
}
PUT(het_offset) {
    JOB;
    put_component(j, true, out);
}
PUT(task_id) {
    JOB;
    if (!j->array_id)
        buf_adds(out, "N/A");
    else if (j->elements)
        buf_adds(out, j->elements);
    else
        buf_addu(out, j->array_index);
}
PUT(name) { JOB; text_or(out, j->name, ""); }
PUT(user) { JOB; text_or(out, j->user, ""); }
PUT(uid) { JOB; buf_addu(out, j->uid); }
PUT(gid) { JOB; buf_addu(out, j->spec->gid); }
PUT(group) {
    JOB;
    struct group *g = getgrgid(j->spec->gid);
    if (g)
        buf_adds(out, g->gr_name);
    else
        buf_addu(out, j->spec->gid);
}
PUT(account) { JOB; text_or(out, j->project, "(null)"); }
PUT(partition) { JOB; text_or(out, j->partition, "(null)"); }
PUT(qos) { JOB; text_or(out, j->qos, "normal"); }
PUT(state) { JOB; buf_adds(out, slurm_state_word(j->state)); }
PUT(letters) { JOB; buf_adds(out, slurm_state_letters(j->state)); }
PUT(reason) { JOB; buf_adds(out, slurm_reason_word(j)); }
PUT(where) {
    JOB;
    if (j->state == JOB_PENDING || (job_state_final(j->state) && str_empty(j->nodes)))
        put_in_brackets(out, slurm_reason_word(j));
    else
        text_or(out, j->nodes, "");
}
PUT(nodes) { JOB; text_or(out, j->nodes, ""); }
PUT(node_count) { JOB; buf_addu(out, j->node_count ? j->node_count : 1); }
PUT(cpus) { JOB; buf_addu(out, j->cpus); }
PUT(tasks) { JOB; buf_addu(out, j->tasks ? j->tasks : 1); }
PUT(used) {
    JOB;
    char t[UNIT_TEXT_MAX];
    buf_adds(out, duration_elapsed_format(j->elapsed_ms / 1000, t));
}
PUT(limit) {
    JOB;
    char t[UNIT_TEXT_MAX];
    buf_adds(out, slurm_limit(j->time_limit_s, "UNLIMITED", t));
}
PUT(left) {
    JOB;
    char t[UNIT_TEXT_MAX];
    int64_t left = (int64_t)j->time_limit_s - j->elapsed_ms / 1000;
    if (!j->time_limit_s || j->time_limit_s >= DURATION_LIMIT_S)
        buf_adds(out, "UNLIMITED");
    else
        buf_adds(out, duration_elapsed_format(left > 0 ? left : 0, t));
}
PUT(submit) { JOB; put_time(out, j->submit_ms, "N/A"); }
PUT(eligible) { JOB; put_time(out, j->hold && j->state == JOB_PENDING ? 0 : j->eligible_ms, "N/A"); }
PUT(start) { JOB; put_time(out, j->start_ms ? j->start_ms : j->expected_start_ms, "N/A"); }
PUT(end) {
    JOB;
    put_time(out, slurm_job_end_ms(j), "N/A");
}
PUT(deadline) { JOB; put_time(out, j->spec->deadline_ms, "N/A"); }
PUT(pending) { JOB; buf_addu(out, (uint64_t)(((j->start_ms ? j->start_ms : j->now_ms) - j->submit_ms) / 1000)); }
PUT(priority) {
    JOB;
    buf_addu(out, slurm_job_priority(j));
}
PUT(priority_share) {
    JOB;
    buf_addf(out, "%.14f", slurm_job_priority(j) / 4294967295.0);
}
PUT(nice) { JOB; buf_addf(out, "%d", j->nice); }
PUT(gres) { JOB; gres_text(out, j->spec->gpus_per_node_milli, j->spec->gpu_model); }
PUT(gpus_job) { JOB; gres_text(out, j->spec->gpus_milli, j->spec->gpu_model); }
PUT(gpus_task) { JOB; gres_text(out, j->spec->gpus_per_task_milli, j->spec->gpu_model); }
PUT(tres_alloc) { JOB; slurm_tres_text(j, false, out); }
PUT(host) {
    JOB;
    if (str_empty(j->nodes)) {
        buf_adds(out, "n/a");
        return;
    }
    const char *bracket = strchr(j->nodes, '[');
    size_t n = strcspn(j->nodes, ",[");
    buf_add(out, j->nodes, n);
    if (bracket == j->nodes + n)
        buf_add(out, bracket + 1, strcspn(bracket + 1, "-,]"));
}
PUT(min_cpus) { JOB; buf_addu(out, j->spec->cpus_per_task ? j->spec->cpus_per_task : 1); }
PUT(cpus_per_task) {
    JOB;
    buf_addu(out, j->spec->cpus_per_task ? j->spec->cpus_per_task : 1);
}
PUT(memory) {
    JOB;
    char t[UNIT_TEXT_MAX];
    bool per_cpu;
    uint64_t bytes = slurm_job_memory(j, &per_cpu);
    buf_adds(out, bytes ? slurm_megabytes(bytes, t) : "0");
}
PUT(dependency) {
    JOB;
    slurm_job_dependency(j, out);
}
PUT(features) { JOB; text_or(out, j->spec->features, "(null)"); }
PUT(comment) { JOB; text_or(out, j->spec->comment, "(null)"); }
PUT(command) { JOB; text_or(out, j->spec->script_id ? j->spec->command_text : NULL, "(null)"); }
PUT(workdir) { JOB; text_or(out, j->spec->workdir, "(null)"); }
PUT(reservation) { JOB; text_or(out, j->spec->reservation, "(null)"); }
PUT(required) { JOB; text_or(out, j->spec->nodes, ""); }
PUT(excluded) { JOB; text_or(out, j->spec->exclude, ""); }
PUT(container) { JOB; text_or(out, j->spec->container, "(null)"); }
PUT(shared) { JOB; buf_adds(out, j->spec->exclusive ? "NO" : "OK"); }
PUT(requeue) { JOB; buf_adds(out, j->spec->requeue ? "1" : "0"); }
PUT(restarts) { JOB; buf_addu(out, j->attempt > 1 ? j->attempt - 1 : 0); }
PUT(batch) { JOB; buf_adds(out, j->spec->launch == LAUNCH_BATCH ? "1" : "0"); }
PUT(stdout) {
    JOB;
    slurm_job_path(j, j->spec->output, out);
}
PUT(stderr) {
    JOB;
    slurm_job_path(j, str_empty(j->spec->error) ? j->spec->output : j->spec->error, out);
}
PUT(stdin) { JOB; text_or(out, j->spec->input, "/dev/null"); }
PUT(exit) { JOB; buf_addf(out, "%d", j->exit_code); }
PUT(tasks_node) {
    JOB;
    buf_addu(out, j->spec->tasks_per_node);
}
PUT(max_nodes) { JOB; buf_addu(out, j->spec->nodes_max ? j->spec->nodes_max : j->node_count ? j->node_count : 1); }
PUT(nothing) { (void)row; (void)out; }
PUT(licenses) { JOB; text_or(out, j->spec->licenses, "(null)"); }
PUT(null) { buf_adds(out, "(null)"); }
PUT(na) { buf_adds(out, "N/A"); }
PUT(not_set) { buf_adds(out, "NotSet"); }
PUT(zero) { buf_adds(out, "0"); }
PUT(star) { buf_adds(out, "*"); }
PUT(none_na) { buf_adds(out, "NA"); }
PUT(no_time) { buf_adds(out, "0:00"); }
PUT(now) { JOB; put_time(out, j->now_ms, "N/A"); }
PUT(min_time) {
    JOB;
    char t[UNIT_TEXT_MAX];
    buf_adds(out, duration_elapsed_format(j->spec->time_min_s, t));
}
PUT(submit_host) {
    char host[256] = "localhost";
    gethostname(host, sizeof host - 1);
    buf_adds(out, host);
}
PUT(sct) { buf_adds(out, "*:*:*"); }

const struct column squeue_columns[] = {
    {'a', "account", "ACCOUNT", "project", put_account},
    {'A', "jobid", "JOBID", "id,label,array_id", put_id},
    {'b', "tres-per-node", "TRES_PER_NODE", "spec", put_gres},
    {'B', "batchhost", "EXEC_HOST", "nodes", put_host},
    {'c', "mincpus", "MIN_CPUS", "spec", put_min_cpus},
    {'C', "numcpus", "CPUS", "cpus", put_cpus},
    {'d', "mintmpdisk", "MIN_TMP_DISK", "", put_zero},
    {'D', "numnodes", "NODES", "node_count", put_node_count},
    {'e', "endtime", "END_TIME", "start_ms,end_ms,time_limit_s,suspended_ms", put_end},
    {'E', "dependency", "DEPENDENCY", "spec,reason,hold", put_dependency},
    {'f', "feature", "FEATURES", "spec", put_features},
    {'F', "arrayjobid", "ARRAY_JOB_ID", "id,label,array_id", put_array_id},
    {'g', "groupname", "GROUP", "spec", put_group},
    {'G', "groupid", "GROUP", "spec", put_gid},
    {'h', "oversubscribe", "OVER_SUBSCRIBE", "spec", put_shared},
    {'H', "sockets", "SOCKETS_PER_NODE", "", put_star},
    {'i', "jobarrayid", "JOBID", "label", put_label},
    {'I', "cores", "CORES_PER_SOCKET", "", put_star},
    {'j', "name", "NAME", "name", put_name},
    {'J', "threads", "THREADS_PER_CORE", "", put_star},
    {'k', "comment", "COMMENT", "spec", put_comment},
    {'K', "arraytaskid", "ARRAY_TASK_ID", "array_id,array_index", put_task_id},
    {'l', "timelimit", "TIME_LIMIT", "time_limit_s", put_limit},
    {'L', "timeleft", "TIME_LEFT", "time_limit_s,elapsed_ms", put_left},
    {'m', "minmemory", "MIN_MEMORY", "spec,memory_bytes,cpus", put_memory},
    {'M', "timeused", "TIME", "elapsed_ms", put_used},
    {'n', "reqnodes", "REQ_NODES", "spec", put_required},
    {'N', "nodelist", "NODELIST", "nodes", put_nodes},
    {'o', "command", "COMMAND", "spec", put_command},
    {'O', "contiguous", "CONTIGUOUS", "", put_zero},
    {'p', "priority", "PRIORITY", "priority,hold,order", put_priority_share},
    {'P', "partition", "PARTITION", "partition", put_partition},
    {'q', "qos", "QOS", "qos", put_qos},
    {'Q', "prioritylong", "PRIORITY", "priority,hold,order", put_priority},
    {'r', "reason", "REASON", "reason,exit_code,exit_signal,hold", put_reason},
    {'R', "reasonlist", "NODELIST(REASON)", "nodes,reason,exit_code,exit_signal", put_where},
    {'s', "selectjobinfo", "SELECT_JOBINFO", "", put_nothing},
    {'S', "starttime", "START_TIME", "start_ms,expected_start_ms", put_start},
    {'t', "statecompact", "ST", "", put_letters},
    {'T', "state", "STATE", "", put_state},
    {'u', "username", "USER", "user", put_user},
    {'U', "userid", "UID", "uid", put_uid},
    {'v', "reservation", "RESERVATION", "spec", put_reservation},
    {'V', "submittime", "SUBMIT_TIME", "submit_ms", put_submit},
    {'w', "wckey", "WCKEY", "", put_null},
    {'W', "licenses", "LICENSES", "spec", put_licenses},
    {'x', "excnodes", "EXC_NODES", "spec", put_excluded},
    {'X', "corespec", "CORE_SPEC", "", put_na},
    {'y', "nice", "NICE", "nice", put_nice},
    {'Y', "schednodes", "SCHEDNODES", "", put_null},
    {'z', "sct", "S:C:T", "", put_sct},
    {'Z', "workdir", "WORK_DIR", "spec", put_workdir},
    {0, "accruetime", "ACCRUE_TIME", "eligible_ms,hold", put_eligible},
    {0, "eligibletime", "ELIGIBLE_TIME", "eligible_ms,hold", put_eligible},
    {0, "batchflag", "BATCH_FLAG", "spec", put_batch},
    {0, "boardspernode", "BOARDS_PER_NODE", "", put_zero},
    {0, "burstbuffer", "BURST_BUFFER", "", put_null},
    {0, "cluster", "CLUSTER", "", put_na},
    {0, "clusterfeature", "CLUSTER_FEATURES", "", put_null},
    {0, "container", "CONTAINER", "spec", put_container},
    {0, "cpus-per-task", "CPUS_PER_TASK", "spec", put_cpus_per_task},
    {0, "cpuspertask", "CPUS_PER_TASK", "spec", put_cpus_per_task},
    {0, "shared", "OVER_SUBSCRIBE", "spec", put_shared},
    {0, "cpus-per-tres", "CPUS_PER_TRES", "", put_na},
    {0, "deadline", "DEADLINE", "spec", put_deadline},
    {0, "exit_code", "EXIT_CODE", "exit_code", put_exit},
    {0, "licenses", "LICENSES", "spec", put_licenses},
    {0, "maxcpus", "MAX_CPUS", "", put_zero},
    {0, "maxnodes", "MAX_NODES", "spec,node_count", put_max_nodes},
    {0, "mcslabel", "MCSLABEL", "", put_null},
    {0, "mem-per-tres", "MEM_PER_TRES", "", put_na},
    {0, "network", "NETWORK", "", put_null},
    {0, "ntpernode", "NTASKS_PER_NODE", "spec", put_tasks_node},
    {0, "ntpercore", "NTASKS_PER_CORE", "", put_na},
    {0, "ntpersocket", "NTASKS_PER_SOCKET", "", put_na},
    {0, "ntperboard", "NTASKS_PER_BOARD", "", put_zero},
    {0, "numtasks", "TASKS", "tasks", put_tasks},
    {0, "tasks", "TASKS", "tasks", put_tasks},
    {0, "pendingtime", "PENDING_TIME", "submit_ms,start_ms", put_pending},
    {0, "profile", "PROFILE", "", put_not_set},
    {0, "reboot", "REBOOT", "", put_zero},
    {0, "reqswitch", "REQ_SWITCH", "", put_zero},
    {0, "requeue", "REQUEUE", "spec", put_requeue},
    {0, "resizetime", "RESIZE_TIME", "", put_na},
    {0, "restartcnt", "RESTART_COUNT", "attempt", put_restarts},
    {0, "stderr", "STDERR", "spec,label,nodes,name,user", put_stderr},
    {0, "stdin", "STDIN", "spec", put_stdin},
    {0, "stdout", "STDOUT", "spec,label,nodes,name,user", put_stdout},
    {0, "tres-alloc", "TRES_ALLOC", "cpus,memory_bytes,gpus_milli,node_count", put_tres_alloc},
    {0, "tres", "TRES_ALLOC", "cpus,memory_bytes,gpus_milli,node_count", put_tres_alloc},
    {0, "tres-per-job", "TRES_PER_JOB", "spec", put_gpus_job},
    {0, "tres-per-task", "TRES_PER_TASK", "spec", put_gpus_task},
    {0, "tres-per-socket", "TRES_PER_SOCKET", "", put_na},
    {0, "gres", "TRES_PER_NODE", "spec", put_gres},
    {0, "wait4switch", "WAIT4SWITCH", "", put_no_time},
    {0, "admin_comment", "ADMIN_COMMENT", "", put_null},
    {0, "allocnodes", "ALLOC_NODES", "spec", put_submit_host},
    {0, "allocsid", "ALLOC_SID", "", put_zero},
    {0, "associd", "ASSOC_ID", "", put_zero},
    {0, "burstbufferstate", "BURST_BUFFER_STATE", "", put_null},
    {0, "cpufreq", "CPU_FREQ", "", put_na},
    {0, "delayboot", "DELAY_BOOT", "", put_no_time},
    {0, "derivedec", "DERIVED_EC", "", put_zero},
    {0, "hetjobid", "HET_JOB_ID", "label", put_het_id},
    {0, "hetjobidset", "HET_JOB_ID_SET", "", put_na},
    {0, "hetjoboffset", "HET_JOB_OFFSET", "label", put_het_offset},
    {0, "lastschedeval", "LAST_SCHED_EVAL", "", put_now},
    {0, "mintime", "TIME_MIN", "spec", put_min_time},
    {0, "origin", "ORIGIN", "", put_none_na},
    {0, "originraw", "ORIGIN_RAW", "", put_none_na},
    {0, "preempttime", "PREEMPT_TIME", "", put_na},
    {0, "prefer", "PREFER", "", put_null},
    {0, "siblingsactive", "ACTIVE_SIBLINGS", "", put_none_na},
    {0, "siblingsactiveraw", "ACTIVE_SIBLINGS_RAW", "", put_none_na},
    {0, "siblingsviable", "VIABLE_SIBLINGS", "", put_none_na},
    {0, "siblingsviableraw", "VIABLE_SIBLINGS_RAW", "", put_none_na},
    {0, "sperboard", "SOCKETS_PER_BOARD", "", put_zero},
    {0, "system_comment", "SYSTEM_COMMENT", "", put_null},
    {0, "tres-bind", "TRES_BIND", "", put_na},
    {0, "tres-freq", "TRES_FREQ", "", put_na},
};
const size_t squeue_column_count = sizeof squeue_columns / sizeof *squeue_columns;
