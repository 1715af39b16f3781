// Owns what scontrol shows.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "node_row.h"
#include "scontrol.h"
#include "squeue_columns.h"
#include "step_row.h"
#include "model/gpuspec.h"
#include "model/nodelist.h"

// One record: lines of NAME=VALUE, or all in one line with -o.
static void line_end(const struct scontrol *c, struct buf *out) {
    buf_adds(out, c->one_line ? " " : "\n   ");
}

static void record_end(const struct scontrol *c, struct buf *out) {
    while (out->len && (out->data[out->len - 1] == ' ' || out->data[out->len - 1] == '\n'))
        out->len--;
    buf_adds(out, c->one_line ? "\n" : "\n\n");
}

static const char *or_null(const char *text) {
    return str_empty(text) ? "(null)" : text;
}

// Pauses before the one that it is in.
static int64_t past_pauses_ms(const struct sjob *j) {
    return j->suspended_ms - (j->state == JOB_SUSPENDED ? j->now_ms - j->suspend_ms : 0);
}

static void job_times(const struct scontrol *c, const struct sjob *j, struct buf *out) {
    char a[UNIT_TEXT_MAX], b[UNIT_TEXT_MAX], d[UNIT_TEXT_MAX];
    const struct spec *p = j->spec;
    int64_t eligible = j->hold && j->state == JOB_PENDING ? 0 : j->eligible_ms;
    buf_addf(out, "RunTime=%s TimeLimit=%s TimeMin=%s", duration_elapsed_format_full(j->elapsed_ms / 1000, a),
             j->time_limit_s && j->time_limit_s < DURATION_LIMIT_S
                 ? duration_elapsed_format_full(j->time_limit_s, b)
                 : "UNLIMITED",
             p->time_min_s ? duration_elapsed_format_full(p->time_min_s, d) : "N/A");
    line_end(c, out);
    buf_addf(out, "SubmitTime=%s EligibleTime=%s", slurm_time(j->submit_ms, "Unknown", a),
             slurm_time(eligible, "Unknown", b));
    line_end(c, out);
    buf_addf(out, "AccrueTime=%s", slurm_time(eligible, "Unknown", a));
    line_end(c, out);
    buf_addf(out, "StartTime=%s EndTime=%s Deadline=%s",
             slurm_time(j->start_ms ? j->start_ms : j->expected_start_ms, "Unknown", a),
             slurm_time(slurm_job_end_ms(j), "Unknown", b), slurm_time(p->deadline_ms, "N/A", d));
    line_end(c, out);
    int64_t before = j->suspend_ms ? (j->suspend_ms - j->start_ms - past_pauses_ms(j)) / 1000 : 0;
    buf_addf(out, "SuspendTime=%s SecsPreSuspend=%lld LastSchedEval=%s Scheduler=Main",
             slurm_time(j->suspend_ms, "None", a), (long long)(before > 0 ? before : 0),
             slurm_time(j->now_ms, "Unknown", b));
    line_end(c, out);
}

static void job_places(const struct scontrol *c, const struct sjob *j, struct buf *out) {
    const struct spec *p = j->spec;
    char host[256] = "localhost";
    gethostname(host, sizeof host - 1);
    buf_addf(out, "Partition=%s AllocNode:Sid=%s:0", or_null(j->partition), host);
    line_end(c, out);
    buf_addf(out, "ReqNodeList=%s ExcNodeList=%s", or_null(p->nodes), or_null(p->exclude));
    line_end(c, out);
    buf_addf(out, "NodeList=%s", j->nodes ? j->nodes : "");
    line_end(c, out);
    if (!str_empty(j->nodes)) {
        struct name_list names;
        if (nodelist_expand(j->nodes, &c->s->cli.arena, &names, NULL) == 0 && names.len) {
            buf_addf(out, "BatchHost=%s", names.at[0]);
            line_end(c, out);
        }
    }
}

// "a100:" if all GPUs of the part are that, else "".
static const char *part_model(const struct scontrol *c, const struct json *part) {
    struct arena *a = &c->s->cli.arena;
    const struct json *mine = json_get(part, "gpus");
    struct reply r;
    const char *model = NULL;
    const char *path = arena_printf(a, "/v1/nodes/%s", or_null(json_str(part, "node")));
    if (!mine || !mine->len || client_call(c->s->client, "GET", path, NULL, &r) < 0)
        return "";
    const struct json *gpus = json_get(r.json, "gpus");
    for (uint32_t i = 0; i < mine->len; i++) {
        int64_t at = json_i64(&mine->items[i], "index", 0);
        const char *here = gpus && at >= 0 && at < gpus->len ? json_str(&gpus->items[at], "model") : NULL;
        if (!here || (model && !streq(model, here)))
            return "";
        model = here;
    }
    return arena_printf(a, "%s:", slurm_gres_model(a, model));
}

// "gpu:a100:2(IDX:0-1)", or with parts of one "gpu:a100:0.5(IDX:3)"; nothing without.
static uint64_t put_gpu_places(const struct json *gpus, const char *model, struct buf *out) {
    uint64_t milli = 0;
    cleanup_buf struct buf places = {0};
    for (uint32_t i = 0; gpus && i < gpus->len;) {
        int64_t first = json_i64(&gpus->items[i], "index", 0), last = first;
        milli += (uint64_t)json_i64(&gpus->items[i], "milli", 0);
        for (i++; i < gpus->len && json_i64(&gpus->items[i], "index", 0) == last + 1; i++, last++)
            milli += (uint64_t)json_i64(&gpus->items[i], "milli", 0);
        buf_addf(&places, last > first ? "%s%lld-%lld" : "%s%lld", places.len ? "," : "", (long long)first,
                 (long long)last);
    }
    char t[GPU_TEXT_MAX];
    if (milli)
        buf_addf(out, "gpu:%s%s(IDX:%s)", model, gpu_milli_format((uint32_t)milli, t), buf_str(&places));
    return milli;
}

// -d: what the job has on each node. Which CPUs is the node's choice and told there.
static void job_parts(const struct scontrol *c, const struct sjob *j, struct buf *out) {
    struct reply r;
    cleanup_buf struct buf lines = {0};
    uint64_t milli = 0;
    const char *model = "";
    char t[GPU_TEXT_MAX];
    if (!j->start_ms || !slurm_client(c->s) ||
        client_call(c->s->client, "GET", arena_printf(&c->s->cli.arena, "/v1/jobs/%llu", (unsigned long long)j->id),
                    NULL, &r) < 0)
        return;
    const struct json *parts = json_get(r.json, "parts");
    for (uint32_t i = 0; parts && i < parts->len; i++) {
        const struct json *p = &parts->items[i];
        buf_addf(&lines, "%sNodes=%s CPU_IDs=%s Mem=%llu GRES=", c->one_line ? "" : "  ", or_null(json_str(p, "node")),
                 json_str(p, "cpu_ids") ? json_str(p, "cpu_ids") : "",
                 (unsigned long long)(json_i64(p, "memory_bytes", 0) >> 20));
        const char *here = part_model(c, p);
        model = i && !streq(model, here) ? "" : here;
        milli += put_gpu_places(json_get(p, "gpus"), here, &lines);
        line_end(c, &lines);
    }
    if (milli)
        buf_addf(out, "JOB_GRES=gpu:%s%s", model, gpu_milli_format((uint32_t)milli, t));
    else
        buf_adds(out, "JOB_GRES=(null)");
    line_end(c, out);
    buf_adds(out, buf_str(&lines));
}

static void job_shape(const struct scontrol *c, const struct sjob *j, struct buf *out) {
    const struct spec *p = j->spec;
    char t[UNIT_TEXT_MAX];
    bool per_cpu;
    uint32_t nodes = j->node_count ? j->node_count : p->nodes_min ? p->nodes_min : 1;
    uint64_t memory = slurm_job_memory(j, &per_cpu);
    if (j->start_ms || p->nodes_max <= 1)
        buf_addf(out, "NumNodes=%u ", nodes);
    else
        buf_addf(out, "NumNodes=%u-%u ", nodes, p->nodes_max);
    buf_addf(out, "NumCPUs=%u NumTasks=%u CPUs/Task=%u ReqB:S:C:T=0:0:*:*", j->cpus, j->tasks ? j->tasks : 1,
             p->cpus_per_task ? p->cpus_per_task : 1);
    line_end(c, out);
    buf_adds(out, "TRES=");
    slurm_tres_text(j, false, out);
    line_end(c, out);
    buf_addf(out, "Socks/Node=* NtasksPerN:B:S:C=%u:0:*:* CoreSpec=*", p->tasks_per_node);
    line_end(c, out);
    if (c->details)
        job_parts(c, j, out);
    buf_addf(out, "MinCPUsNode=%u MinMemory%s=%s MinTmpDiskNode=0", p->cpus_per_task ? p->cpus_per_task : 1,
             per_cpu ? "CPU" : "Node", memory ? slurm_megabytes(memory, t) : "0");
    line_end(c, out);
    buf_addf(out, "Features=%s DelayBoot=00:00:00", or_null(p->features));
    line_end(c, out);
    if (p->reservation) {
        buf_addf(out, "Reservation=%s", p->reservation);
        line_end(c, out);
    }
    buf_addf(out, "OverSubscribe=%s Contiguous=0 Licenses=%s Network=(null)", p->exclusive ? "NO" : "OK",
             or_null(p->licenses));
    line_end(c, out);
}

static void job_files(const struct scontrol *c, const struct sjob *j, struct buf *out) {
    const struct spec *p = j->spec;
    buf_addf(out, "Command=%s", p->script_id ? or_null(p->command_text) : or_null(p->command_text));
    line_end(c, out);
    buf_addf(out, "WorkDir=%s", p->workdir ? p->workdir : "");
    line_end(c, out);
    if (!str_empty(p->comment)) {
        buf_addf(out, "Comment=%s ", p->comment);
        line_end(c, out);
    }
    if (p->launch == LAUNCH_BATCH && !p->attach) {
        buf_adds(out, "StdErr=");
        slurm_job_path(j, str_empty(p->error) ? p->output : p->error, out);
        line_end(c, out);
        buf_addf(out, "StdIn=%s", str_empty(p->input) ? "/dev/null" : p->input);
        line_end(c, out);
        buf_adds(out, "StdOut=");
        slurm_job_path(j, p->output, out);
        line_end(c, out);
    }
    buf_adds(out, "Power=");
    if (p->gpus_per_node_milli || p->gpus_milli || p->gpus_per_task_milli) {
        char t[GPU_TEXT_MAX];
        uint32_t milli = p->gpus_per_node_milli ? p->gpus_per_node_milli
                         : p->gpus_milli        ? p->gpus_milli
                                                : p->gpus_per_task_milli;
        line_end(c, out);
        buf_addf(out, "TresPer%s=gres:gpu:%s%s%s",
                 p->gpus_per_node_milli ? "Node"
                 : p->gpus_milli        ? "Job"
                                        : "Task",
                 p->gpu_model ? p->gpu_model : "", p->gpu_model ? ":" : "", gpu_milli_format(milli, t));
    }
}

static void put_job(const struct scontrol *c, const struct sjob *j, struct buf *out) {
    struct arena *a = &c->s->cli.arena;
    const struct spec *p = j->spec;
    uint64_t job;
    uint32_t offset;
    buf_addf(out, "JobId=%llu ", (unsigned long long)slurm_job_number(j));
    if (slurm_job_component(j, &job, &offset))
        buf_addf(out, "HetJobId=%llu HetJobOffset=%u ", (unsigned long long)job, offset);
    else if (j->array_id && j->elements)
        buf_addf(out, "ArrayJobId=%llu ArrayTaskId=%s ", (unsigned long long)j->array_id, j->elements);
    else if (j->array_id)
        buf_addf(out, "ArrayJobId=%llu ArrayTaskId=%u ", (unsigned long long)j->array_id, j->array_index);
    if (j->array_id && p->array_limit)
        buf_addf(out, "ArrayTaskThrottle=%u ", p->array_limit);
    buf_addf(out, "JobName=%s", or_null(j->name));
    line_end(c, out);
    buf_addf(out, "UserId=%s(%u) GroupId=%s(%u) MCS_label=N/A", or_null(j->user), j->uid,
             slurm_group_name(a, p->gid), p->gid);
    line_end(c, out);
    buf_addf(out, "Priority=%u Nice=%d Account=%s QOS=%s", slurm_job_priority(j), j->nice,
             or_null(j->project), j->qos ? j->qos : "normal");
    line_end(c, out);
    buf_addf(out, "JobState=%s Reason=%s Dependency=", slurm_state_word(j->state), slurm_reason_word(j));
    slurm_job_dependency(j, out);
    line_end(c, out);
    buf_addf(out, "Requeue=%d Restarts=%u BatchFlag=%d Reboot=0 ExitCode=%d:%u", p->requeue,
             j->attempt > 1 ? j->attempt - 1 : 0, p->launch == LAUNCH_BATCH, j->exit_code, j->exit_signal);
    line_end(c, out);
    job_times(c, j, out);
    job_places(c, j, out);
    job_shape(c, j, out);
    job_files(c, j, out);
    record_end(c, out);
}

// Of "12_99": is there a job 12?
static bool array_there(struct scontrol *c, const char *ids) {
    sjob_vec jobs = {0};
    struct job_query q = {.fields = "id,label,state,array_id,array_index",
                          .ids = arena_strndup(&c->s->cli.arena, ids, strcspn(ids, "_")),
                          .live = true,
                          .finished = true};
    bool there = slurm_jobs_fetch(c->s, &q, &jobs) == 0 && jobs.len;
    vec_done(&jobs);
    return there;
}

static int show_jobs(struct scontrol *c, const char *ids) {
    sjob_vec jobs = {0};
    cleanup_buf struct buf out = {0};
    const char *bad = NULL, *plain = ids ? slurm_ids_plain(&c->s->cli.arena, ids, &bad) : NULL;
    uint32_t shown = 0;
    if (ids && (!plain || strchr(ids, '.'))) {
        fprintf(stderr, "scontrol_print_job error: Invalid job id specified\n");
        return SLURM_FAILED;
    }
    struct job_query q = {.fields = SJOB_JSON_FIELDS,
                          .ids = plain,
                          .components = true,
                          .live = true,
                          .finished = true,
                          .since_ms = clock_wall_ms() - SLURM_RECENT_MS};
    int status = slurm_jobs_fetch(c->s, &q, &jobs);
    for (uint32_t i = 0; !status && i < jobs.len; i++) {
        const struct sjob *j = &jobs.at[i];
        if (!slurm_ids_have(ids, j) || (job_state_final(j->state) && j->end_ms < j->now_ms - SLURM_RECENT_MS))
            continue;
        put_job(c, j, &out);
        shown++;
    }
    vec_done(&jobs);
    if (!status && !shown && ids && strchr(ids, '_') && array_there(c, ids)) {
        printf("Job %s not found\n", ids);
        return SLURM_FAILED;
    }
    if (!status && !shown && ids) {
        fprintf(stderr, "slurm_load_jobs error: Invalid job id specified\n");
        return SLURM_FAILED;
    }
    if (!status && !shown)
        buf_adds(&out, "No jobs in the system\n");
    return status ? status : cli_print(&out);
}

static void put_tres(struct buf *out, uint32_t cpus, uint64_t memory, uint32_t gpus_milli, bool billing) {
    char t[GPU_TEXT_MAX];
    buf_addf(out, "cpu=%u,mem=%lluM", cpus, (unsigned long long)(memory >> 20));
    if (billing)
        buf_addf(out, ",billing=%u", cpus);
    if (gpus_milli)
        buf_addf(out, ",gres/gpu=%s", gpu_milli_format(gpus_milli, t));
}

static void upper(const char *text, struct buf *out) {
    for (; *text; text++)
        buf_addc(out, *text >= 'a' && *text <= 'z' ? (char)(*text - 32) : *text);
}

static void put_node(const struct scontrol *c, const struct snode *n, struct buf *out) {
    char t[UNIT_TEXT_MAX];
    cleanup_buf struct buf state = {0}, partitions = {0};
    switch (n->state) {
    case SNODE_DRAINED: buf_adds(&state, "IDLE+DRAIN"); break;
    case SNODE_DRAINING: buf_adds(&state, "MIXED+DRAIN"); break;
    default: upper(slurm_node_long(n), &state); break;
    }
    for (uint32_t i = 0; n->partitions && i < n->partitions->len; i++)
        buf_addf(&partitions, "%s%s", i ? "," : "", n->partitions->items[i].s);
    buf_addf(out, "NodeName=%s Arch=%s CoresPerSocket=%u ", n->name, n->arch ? n->arch : "unknown", n->cores);
    line_end(c, out);
    buf_addf(out, "CPUAlloc=%u CPUEfctv=%u CPUTot=%u CPULoad=%.2f", n->cpus_used, n->cpus, n->cpus,
             n->load_milli / 1000.0);
    line_end(c, out);
    buf_addf(out, "AvailableFeatures=%s", or_null(n->features));
    line_end(c, out);
    buf_addf(out, "ActiveFeatures=%s", or_null(n->features));
    line_end(c, out);
    buf_addf(out, "Gres=%s", or_null(n->gres));
    line_end(c, out);
    if (c->details) {
        buf_addf(out, "GresUsed=%s", or_null(n->gres_used));
        line_end(c, out);
    }
    buf_addf(out, "NodeAddr=%s NodeHostName=%s Version=%s", n->address ? n->address : n->name, n->name,
             n->version ? n->version : "(null)");
    line_end(c, out);
    buf_addf(out, "OS=%s ", n->os ? n->os : "Linux");
    line_end(c, out);
    buf_addf(out, "RealMemory=%llu AllocMem=%llu FreeMem=%llu Sockets=%u Boards=1",
             (unsigned long long)(n->memory_bytes >> 20), (unsigned long long)(n->memory_used_bytes >> 20),
             (unsigned long long)(n->free_bytes >> 20), n->sockets);
    line_end(c, out);
    buf_addf(out, "State=%s ThreadsPerCore=%u TmpDisk=%llu Weight=1 Owner=N/A MCS_label=N/A", buf_str(&state),
             n->threads, (unsigned long long)(n->tmp_bytes >> 20));
    line_end(c, out);
    buf_addf(out, "Partitions=%s ", buf_str(&partitions));
    line_end(c, out);
    char started[UNIT_TEXT_MAX];
    buf_addf(out, "BootTime=%s SlurmdStartTime=%s", slurm_time(n->boot_ms, "None", t),
             slurm_time(n->agent_start_ms, "None", started));
    line_end(c, out);
    // Where no job has been yet: idle since it is there.
    int64_t busy_ms = n->cpus_used ? clock_wall_ms() : n->busy_ms ? n->busy_ms : n->agent_start_ms;
    buf_addf(out, "LastBusyTime=%s", slurm_time(busy_ms, "Unknown", t));
    line_end(c, out);
    buf_adds(out, "CfgTRES=");
    put_tres(out, n->cpus, n->memory_bytes, n->gpus_milli, true);
    line_end(c, out);
    buf_adds(out, "AllocTRES=");
    if (n->cpus_used || n->memory_used_bytes)
        put_tres(out, n->cpus_used, n->memory_used_bytes, n->gpus_used_milli, false);
    line_end(c, out);
    buf_adds(out, "CapWatts=n/a");
    line_end(c, out);
    buf_adds(out, "CurrentWatts=0 AveWatts=0");
    line_end(c, out);
    buf_adds(out, "ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s");
    if (!str_empty(n->reason)) {
        line_end(c, out);
        buf_addf(out, "Reason=%s [%s@%s]", n->reason, n->by ? n->by : "root", slurm_time(n->reason_ms, "Unknown", t));
    }
    record_end(c, out);
}

static int show_nodes(struct scontrol *c, const char *names) {
    struct cluster_view v;
    struct name_list wanted = {0};
    cleanup_buf struct buf out = {0};
    int status = SLURM_OK;
    if (names && nodelist_expand(names, &c->s->cli.arena, &wanted, NULL) < 0) {
        printf("Node %s not found\n", names);
        return SLURM_FAILED;
    }
    if (slurm_cluster_fetch(c->s, &v))
        return SLURM_FAILED;
    for (uint32_t i = 0; !names && i < v.nodes.len; i++)
        put_node(c, &v.nodes.at[i], &out);
    for (uint32_t k = 0; k < wanted.len; k++) {
        bool found = false;
        for (uint32_t i = 0; i < v.nodes.len; i++)
            if (streq(v.nodes.at[i].name, wanted.at[k])) {
                put_node(c, &v.nodes.at[i], &out);
                found = true;
            }
        if (!found) {
            buf_addf(&out, "Node %s not found\n", wanted.at[k]);
            status = SLURM_FAILED;
        }
    }
    if (!names && !v.nodes.len)
        buf_adds(&out, "No nodes in the system\n");
    slurm_cluster_done(&v);
    return cli_print(&out) ? SLURM_FAILED : status;
}

static void put_partition(const struct scontrol *c, const struct spartition *p, struct buf *out) {
    char a[UNIT_TEXT_MAX], b[UNIT_TEXT_MAX];
    buf_addf(out, "PartitionName=%s", p->p.name);
    line_end(c, out);
    buf_adds(out, "AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL");
    line_end(c, out);
    buf_addf(out, "AllocNodes=ALL Default=%s QoS=N/A", p->p.is_default ? "YES" : "NO");
    line_end(c, out);
    buf_addf(out, "DefaultTime=%s DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO",
             entity_has(ENTITY_PARTITION, &p->p, &p->p.default_time_s)
                 ? duration_elapsed_format_full(p->p.default_time_s, a)
                 : "NONE");
    line_end(c, out);
    buf_addf(out, "MaxNodes=UNLIMITED MaxTime=%s MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED",
             entity_has(ENTITY_PARTITION, &p->p, &p->p.max_time_s) ? duration_elapsed_format_full(p->p.max_time_s, b)
                                                                   : "UNLIMITED");
    line_end(c, out);
    buf_addf(out, "Nodes=%s", or_null(p->node_list));
    line_end(c, out);
    buf_addf(out, "PriorityJobFactor=1 PriorityTier=%u RootOnly=NO ReqResv=NO OverSubscribe=NO",
             p->p.tier ? p->p.tier : 1);
    line_end(c, out);
    buf_adds(out, "OverTimeLimit=NONE PreemptMode=OFF");
    line_end(c, out);
    buf_adds(out, "State=");
    upper(slurm_partition_state(p), out);
    buf_addf(out, " TotalCPUs=%u TotalNodes=%u SelectTypeParameters=NONE", p->cpus, p->nodes);
    line_end(c, out);
    buf_adds(out, "JobDefaults=(null)");
    line_end(c, out);
    if (p->p.default_memory_per_cpu_bytes)
        buf_addf(out, "DefMemPerCPU=%llu MaxMemPerNode=UNLIMITED",
                 (unsigned long long)(p->p.default_memory_per_cpu_bytes >> 20));
    else
        buf_adds(out, "DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED");
    line_end(c, out);
    buf_addf(out, "TRES=cpu=%u,mem=%lluM,node=%u,billing=%u", p->cpus,
             (unsigned long long)(p->memory_bytes >> 20), p->nodes, p->cpus);
    if (p->gpus_milli)
        buf_addf(out, ",gres/gpu=%llu", (unsigned long long)(p->gpus_milli / 1000));
    record_end(c, out);
}

static int show_partitions(struct scontrol *c, const char *name) {
    struct cluster_view v;
    cleanup_buf struct buf out = {0};
    bool found = !name;
    if (slurm_cluster_fetch(c->s, &v))
        return SLURM_FAILED;
    for (uint32_t i = 0; i < v.partitions.len; i++)
        if (!name || streq(v.partitions.at[i].p.name, name)) {
            put_partition(c, &v.partitions.at[i], &out);
            found = true;
        }
    slurm_cluster_done(&v);
    if (!found) {
        printf("Partition %s not found\n", name);
        return SLURM_FAILED;
    }
    return cli_print(&out);
}

static void reservation_place(const struct scontrol *c, const struct reservation *v, struct buf *out) {
    struct cluster_view view;
    uint32_t nodes = 0, cpus = 0;
    cleanup_buf struct buf folded = {0};
    VEC(const char *) names = {0};
    if (slurm_cluster_fetch(c->s, &view))
        return;
    for (uint32_t i = 0; i < view.nodes.len; i++)
        if (!v->nodes || slurm_nodes_meet(v->nodes, view.nodes.at[i].name)) {
            nodes++;
            cpus += view.nodes.at[i].cpus;
            vec_push(&names, view.nodes.at[i].name);
        }
    nodelist_fold(names.at, names.len, &folded);
    buf_addf(out, "Nodes=%s NodeCnt=%u CoreCnt=%u Features=(null) PartitionName=(null) Flags=%s%s",
             nodes ? buf_str(&folded) : or_null(v->nodes), nodes, cpus, v->maintenance ? "MAINT," : "",
             v->nodes ? "SPEC_NODES" : "ALL_NODES");
    line_end(c, out);
    buf_addf(out, "TRES=cpu=%u", cpus);
    line_end(c, out);
    vec_done(&names);
    slurm_cluster_done(&view);
}

static int show_reservations(struct scontrol *c, const char *name) {
    struct reply r;
    cleanup_buf struct buf out = {0};
    bool found = false;
    if (slurm_get(c->s, "/v1/reservations", &r))
        return SLURM_FAILED;
    const struct json *list = json_get(r.json, "reservations");
    for (uint32_t i = 0; list && i < list->len; i++) {
        struct reservation v;
        char a[UNIT_TEXT_MAX], b[UNIT_TEXT_MAX], d[UNIT_TEXT_MAX];
        if (schema_read_json(&entity_reservation_schema, &list->items[i], &c->s->cli.arena, &v, NULL) < 0 ||
            (name && !streq(v.name, name)))
            continue;
        found = true;
        buf_addf(&out, "ReservationName=%s StartTime=%s EndTime=%s Duration=%s", v.name,
                 slurm_time(v.start_ms, "N/A", a), slurm_time(v.end_ms, "N/A", b),
                 duration_elapsed_format_full((v.end_ms - v.start_ms) / 1000, d));
        line_end(c, &out);
        reservation_place(c, &v, &out);
        buf_adds(&out, "Users=");
        for (uint32_t k = 0; k < v.users.len; k++)
            buf_addf(&out, "%s%s", k ? "," : "", v.users.at[k]);
        buf_addf(&out, "%s Groups=(null) Accounts=", v.users.len ? "" : "(null)");
        for (uint32_t k = 0; k < v.projects.len; k++)
            buf_addf(&out, "%s%s", k ? "," : "", v.projects.at[k]);
        int64_t now = clock_wall_ms();
        buf_addf(&out, "%s Licenses=(null) State=%s BurstBuffer=(null) Watts=n/a", v.projects.len ? "" : "(null)",
                 v.start_ms <= now && now < v.end_ms ? "ACTIVE" : "INACTIVE");
        line_end(c, &out);
        buf_adds(&out, "MaxStartDelay=(null)");
        record_end(c, &out);
    }
    if (!found && name) {
        printf("Reservation %s not found\n", name);
        return SLURM_FAILED;
    }
    if (!found)
        buf_adds(&out, "No reservations in the system\n");
    return cli_print(&out);
}

static int show_steps(struct scontrol *c, const char *ids) {
    sjob_vec jobs = {0};
    sstep_vec steps = {0};
    cleanup_buf struct buf out = {0};
    const char *bad, *plain = ids ? slurm_ids_plain(&c->s->cli.arena, ids, &bad) : NULL;
    struct job_query q = {.fields = STEP_FIELDS ",uid,memory_bytes", .live = true, .ids = plain};
    int status = slurm_jobs_fetch(c->s, &q, &jobs);
    bool jobs_found = jobs.len;
    for (uint32_t i = 0; !status && i < jobs.len; i++)
        slurm_steps_of(&c->s->cli.arena, &jobs.at[i], &steps);
    for (uint32_t i = 0; i < steps.len; i++) {
        const struct sstep *p = &steps.at[i];
        char t[UNIT_TEXT_MAX];
        if (p->state != JOB_RUNNING || !slurm_ids_have_step(ids, p->job, p->id))
            continue;
        buf_addf(&out, "StepId=%s.%s UserId=%u StartTime=%s TimeLimit=UNLIMITED", p->job->label, p->id,
                 p->job->uid, slurm_time(p->start_ms, "Unknown", t));
        line_end(c, &out);
        buf_addf(&out, "State=RUNNING Partition=%s NodeList=%s", or_null(p->job->partition), or_null(p->nodes));
        line_end(c, &out);
        bool batch = streq(p->id, "batch");
        buf_addf(&out, "Nodes=%u CPUs=%u Tasks=%u Name=%s Network=(null)", p->node_count, batch ? 0 : p->cpus, p->tasks,
                 or_null(p->name));
        line_end(c, &out);
        if (batch)
            buf_adds(&out, "TRES=(null)");
        else
            buf_addf(&out, "TRES=cpu=%u,mem=%s,node=%u", p->cpus, slurm_megabytes(p->job->memory_bytes, t),
                     p->node_count);
        line_end(c, &out);
        buf_adds(&out, "ResvPorts=(null)");
        line_end(c, &out);
        buf_addf(&out, "CPUFreqReq=Default%s", batch ? "" : p->tasks > p->node_count ? " Dist=Block" : " Dist=Cyclic");
        line_end(c, &out);
        buf_adds(&out, "SrunHost:Pid=(null):0");
        record_end(c, &out);
    }
    vec_done(&jobs);
    vec_done(&steps);
    if (!status && !out.len)
        buf_adds(&out, ids ? "" : "No job steps in the system\n");
    if (!status && !out.len && !jobs_found) {
        fprintf(stderr, "slurm_get_job_steps error: Invalid job id specified\n");
        return SLURM_FAILED;
    }
    if (!status && !out.len) {
        printf("Job step %s not found\n", ids);
        return SLURM_FAILED;
    }
    return status ? status : cli_print(&out);
}

static int show_hostnames(struct scontrol *c, const char *list) {
    struct name_list names;
    if (!list)
        list = getenv("SLURM_JOB_NODELIST");
    if (str_empty(list)) {
        fprintf(stderr, "scontrol: error: host list is empty\n");
        return SLURM_OK;
    }
    if (nodelist_expand(list, &c->s->cli.arena, &names, &c->s->cli.error) < 0) {
        fprintf(stderr, "Invalid hostlist: %s\n", list);
        return SLURM_FAILED;
    }
    cleanup_buf struct buf out = {0};  // in one piece: whoever reads only the first line ends no pipe
    for (uint32_t i = 0; i < names.len; i++)
        buf_addf(&out, "%s\n", names.at[i]);
    return cli_print(&out);
}

// In the order in which they are written: runs of neighbours are joined, nothing is sorted.
static void fold_in_order(const struct name_list *names, struct buf *out) {
    for (uint32_t i = 0; i < names->len;) {
        size_t stem = strlen(names->at[i]);
        while (stem && names->at[i][stem - 1] >= '0' && names->at[i][stem - 1] <= '9')
            stem--;
        uint32_t group = i;
        while (names->at[i][stem] && group < names->len && !strncmp(names->at[group], names->at[i], stem) &&
               names->at[group][stem] &&
               strspn(names->at[group] + stem, "0123456789") == strlen(names->at[group] + stem) &&
               strlen(names->at[group]) == strlen(names->at[i]))
            group++;
        buf_adds(out, out->len ? "," : "");
        if (group <= i + 1) {
            buf_adds(out, names->at[i++]);
            continue;
        }
        buf_addf(out, "%.*s[", (int)stem, names->at[i]);
        for (uint32_t k = i; k < group;) {
            unsigned long first = strtoul(names->at[k] + stem, NULL, 10);
            uint32_t last = k + 1;
            while (last < group && strtoul(names->at[last] + stem, NULL, 10) == first + (last - k))
                last++;
            buf_addf(out, last > k + 1 ? "%s%s-%s" : "%s%s", k > i ? "," : "", names->at[k] + stem,
                     names->at[last - 1] + stem);
            k = last;
        }
        buf_addc(out, ']');
        i = group;
    }
}

static int show_hostlist(struct scontrol *c, const char *list, bool sorted) {
    struct name_list names;
    cleanup_buf struct buf out = {0};
    if (!list || nodelist_expand(list, &c->s->cli.arena, &names, NULL) < 0) {
        fprintf(stderr, "Invalid hostlist: %s\n", list ? list : "");
        return SLURM_FAILED;
    }
    if (sorted)
        nodelist_fold(names.at, names.len, &out);
    else
        fold_in_order(&names, &out);
    buf_addc(&out, '\n');
    return cli_print(&out);
}

static int show_config(struct scontrol *c) {
    struct reply r;
    char t[UNIT_TEXT_MAX], host[256] = "localhost";
    gethostname(host, sizeof host - 1);
    if (slurm_get(c->s, "/v1/status", &r))
        return SLURM_FAILED;
    printf("Configuration data as of %s\n", slurm_time(clock_wall_ms(), "", t));
    static const char *const fixed[][2] = {{"AccountingStorageEnforce", "associations,limits,qos"},
                                           {"AccountingStorageTRES", "cpu,mem,energy,node,billing,gres/gpu"},
                                           {"AccountingStorageType", "accounting_storage/acequia"},
                                           {"AuthType", "auth/peer"},
                                           {"EnforcePartLimits", "ALL"},
                                           {"FirstJobId", "1"},
                                           {"GresTypes", "gpu"},
                                           {"JobAcctGatherType", "jobacct_gather/cgroup"},
                                           {"Licenses", "(null)"},
                                           {"LaunchParameters", "(null)"},
                                           {"MaxTasksPerNode", "4096"},
                                           {"MinJobAge", "300 sec"},
                                           {"MpiDefault", "none"},
                                           {"PreemptMode", "REQUEUE"},
                                           {"PriorityType", "priority/shares"},
                                           {"ProctrackType", "proctrack/cgroup"},
                                           {"SchedulerType", "sched/backfill"},
                                           {"SelectType", "select/cons_tres"},
                                           {"SelectTypeParameters", "CR_CPU_MEMORY"},
                                           {"TaskPlugin", "task/cgroup"}};
    printf("%-23s = %s\n", "ClusterName", json_str(r.json, "cluster") ? json_str(r.json, "cluster") : "cluster");
    printf("%-23s = %s\n", "SlurmctldHost[0]", host);
    printf("%-23s = 22.05.8 (acequia %s)\n", "SLURM_VERSION", ACEQUIA_VERSION);
    const struct json *limits = json_get(r.json, "limits");
    printf("%-23s = %lld sec\n", "KillWait", (long long)json_i64(limits, "grace_s", 30));
    printf("%-23s = %lld\n", "MaxArraySize", (long long)json_i64(limits, "max_array_size", 0));
    printf("%-23s = %lld\n", "MaxJobCount", (long long)json_i64(limits, "max_queue_length", 0));
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        printf("%-23s = %s\n", fixed[i][0], fixed[i][1]);
    printf("\nSlurmctld(primary) at %s is UP\n", host);
    return SLURM_OK;
}

static int show_licenses(struct scontrol *c, const char *name) {
    struct reply r;
    cleanup_buf struct buf out = {0};
    if (slurm_get(c->s, "/v1/licenses", &r))
        return SLURM_FAILED;
    const struct json *list = json_get(r.json, "licenses");
    for (uint32_t i = 0; list && i < list->len; i++) {
        struct license l;
        if (schema_read_json(&entity_license_schema, &list->items[i], &c->s->cli.arena, &l, NULL) < 0 ||
            (name && !streq(l.name, name)))
            continue;
        uint32_t unused = l.used < l.count ? l.count - l.used : 0;
        buf_addf(&out, "LicenseName=%s%s", l.name, c->one_line ? " " : "\n    ");
        buf_addf(&out, "Total=%u Used=%u Free=%u Reserved=0 Remote=no\n", l.count, l.used, unused);
    }
    if (out.len)
        fputs(buf_str(&out), stdout);
    else if (name)
        printf("License %s not found\n", name);
    else
        puts("No licenses configured in Slurm.");
    return SLURM_OK;
}

static bool begins(const char *word, const char *full, size_t least) {
    size_t n = strlen(word);
    return n >= least && n <= strlen(full) && !strncasecmp(word, full, n);
}

int scontrol_show(struct scontrol *c, int argc, char **argv) {
    char *what = argv[0], *equals = strchr(what, '=');
    const char *name = argc > 1 ? argv[1] : NULL;
    if (equals) {  // "show job=12"
        *equals = 0;
        name = equals + 1;
    }
    if (begins(what, "jobs", 1) || begins(what, "jobid", 4))
        return show_jobs(c, name);
    if (begins(what, "nodes", 1))
        return show_nodes(c, name);
    if (begins(what, "partitions", 1) || begins(what, "partitionname", 4))
        return show_partitions(c, name);
    if (begins(what, "reservations", 1) || begins(what, "reservationname", 4))
        return show_reservations(c, name);
    if (begins(what, "licenses", 1))
        return show_licenses(c, name);
    if (begins(what, "steps", 2))
        return show_steps(c, name);
    if (begins(what, "hostnames", 5))
        return show_hostnames(c, name);
    if (begins(what, "hostlist", 5))
        return show_hostlist(c, name, false);
    if (begins(what, "hostlistsorted", 9))
        return show_hostlist(c, name, true);
    if (begins(what, "config", 1))
        return show_config(c);
    static const struct {
        const char *word;
        size_t least;
        const char *out, *err;
    } absent[] = {{"topology", 1, "", "scontrol: error: No topology information available\n"},
                  {"daemons", 1, "slurmctld slurmd\n", ""},
                  {"frontend", 1, "No nodes in the system\n", ""},
                  {"bbstat", 3, "", ""},
                  {"burstbuffer", 2, "", ""},
                  {"aliases", 1, "", ""},
                  {"federation", 2, "", ""},
                  {"assoc_mgr", 2, "Current Association Manager state\n", ""},
                  {"slurmd", 2, "", ""}};
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        if (begins(what, absent[i].word, absent[i].least)) {
            printf("%s", absent[i].out);
            fprintf(stderr, "%s", absent[i].err);
            return SLURM_OK;
        }
    fprintf(stderr, "invalid entity:%s for keyword:show \n", what);
    return SLURM_FAILED;
}
