// Owns the fields of sacct.
#include "sacct_columns.h"

#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "squeue_columns.h"
#include "model/gpuspec.h"

struct acct_column {
    const char *name;
    int width;            // negative: left-justified
    const char *fields;
    void (*put)(const struct acct_format *f, const struct acct_row *r, struct buf *out);
};

#define PUT(fn) static void put_##fn(const struct acct_format *f, const struct acct_row *r, struct buf *out)
#define J (r->job)
#define STEP (r->step)

// What a job that is being ended will be; Slurm's history knows it already.
static enum job_state settled(const struct sjob *j) {
    static const struct {
        const char *cause;
        enum job_state state;
    } known[] = {{"cancel", JOB_CANCELLED},    {"timeout", JOB_TIMEOUT},   {"preempt", JOB_PREEMPTED},
                 {"node_fail", JOB_NODE_FAIL}, {"deadline", JOB_DEADLINE}, {"requeue", JOB_PENDING}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (streq(j->ending, known[i].cause))
            return known[i].state;
    return j->state == JOB_COMPLETING ? JOB_COMPLETED : j->state;
}

static enum job_state state_of(const struct acct_row *r) {
    enum job_state s = STEP ? STEP->state : J->state;
    return s == JOB_COMPLETING ? settled(J) : s;
}

static int64_t start_of(const struct acct_row *r) {
    return STEP ? STEP->start_ms : J->start_ms;
}

static int64_t end_of(const struct acct_row *r) {
    return STEP ? STEP->end_ms : J->end_ms;
}

// What its steps had of it is not kept: those that were there then had all of it.
static int64_t paused_s(const struct acct_row *r) {
    return STEP && J->suspend_ms && STEP->end_ms && STEP->end_ms < J->suspend_ms ? 0 : J->suspended_ms / 1000;
}

static int64_t elapsed_s(const struct acct_row *r) {
    int64_t start = start_of(r) / 1000, end = (end_of(r) ? end_of(r) : J->now_ms) / 1000 - paused_s(r);
    return start && end > start ? end - start : 0;
}

static uint32_t cpus_of(const struct acct_row *r) {
    return STEP ? STEP->cpus : J->cpus;
}

// Of a step, or of the job when it has been asked for.
static uint64_t used(const struct acct_row *r, const char *what) {
    const struct json *u = STEP ? STEP->usage : J->usage;
    return u ? (uint64_t)json_i64(u, what, 0) : 0;
}

static void put_bytes(const struct acct_format *f, uint64_t bytes, struct buf *out) {
    static const char letters[] = "KMGTP";
    double v = (double)bytes / 1024;
    int unit = 0;
    if (f->units && *f->units) {
        for (unit = 0; letters[unit] && letters[unit] != (*f->units & 0x5f); unit++)
            v /= 1024;
        if (!letters[unit])
            return;
        buf_addf(out, v == (double)(uint64_t)v ? "%.0f%c" : "%.2f%c", v, letters[unit]);
        return;
    }
    if (f->plain_numbers || bytes % (1 << 20)) {
        buf_addf(out, "%.0fK", v);
        return;
    }
    while (unit < 4 && v >= 1024 && (uint64_t)v % 1024 == 0) {
        v /= 1024;
        unit++;
    }
    buf_addf(out, "%.0f%c", v, letters[unit]);
}

static void put_moment(int64_t at_ms, const char *none, struct buf *out) {
    char t[UNIT_TEXT_MAX];
    buf_adds(out, slurm_time(at_ms, none, t));
}

static void put_span(int64_t seconds, struct buf *out) {
    char t[UNIT_TEXT_MAX];
    buf_adds(out, duration_elapsed_format_full(seconds, t));
}

static void put_used_time(uint64_t us, struct buf *out) {
    if (us < 3600 * 1000000ull)
        buf_addf(out, "%02u:%02u.%03u", (unsigned)(us / 60000000), (unsigned)(us / 1000000 % 60),
                 (unsigned)(us / 1000 % 1000));
    else
        put_span((int64_t)(us / 1000000), out);
}

PUT(job_id) {
    buf_adds(out, J->label);
    if (STEP)
        buf_addf(out, ".%s", STEP->id);
}
PUT(job_id_raw) {
    buf_addu(out, J->id);
    if (STEP)
        buf_addf(out, ".%s", STEP->id);
}
PUT(name) { buf_adds(out, STEP ? (STEP->name ? STEP->name : "") : J->name ? J->name : ""); }
PUT(partition) {
    if (!STEP && J->partition)
        buf_adds(out, J->partition);
}
PUT(account) { buf_adds(out, J->project ? J->project : ""); }
PUT(cluster) { buf_adds(out, f->cluster ? f->cluster : ""); }
PUT(user) {
    if (!STEP && J->user)
        buf_adds(out, J->user);
}
PUT(uid) {
    if (!STEP)
        buf_addu(out, J->uid);
}
PUT(group) {
    cleanup_arena struct arena a = {0};
    if (!STEP && J->spec)
        buf_adds(out, slurm_group_name(&a, J->spec->gid));
}
PUT(gid) {
    if (!STEP && J->spec)
        buf_addu(out, J->spec->gid);
}
PUT(qos) {
    if (!STEP)
        buf_adds(out, J->qos ? J->qos : "normal");
}
PUT(cpus) { buf_addu(out, cpus_of(r)); }
PUT(nodes) { buf_addu(out, STEP ? STEP->node_count : J->node_count ? J->node_count : 1); }
PUT(alloc_nodes) { buf_addu(out, STEP ? STEP->node_count : J->start_ms ? J->node_count : 0); }
PUT(suspended) { put_span(paused_s(r), out); }
PUT(frequency) { buf_adds(out, STEP && streq(STEP->id, "batch") ? "0" : "Unknown"); }
PUT(layout) {
    if (STEP)
        buf_adds(out, streq(STEP->id, "batch") ? "Unknown" : STEP->tasks > STEP->node_count ? "Block" : "Cyclic");
}
PUT(step_zero) {
    if (STEP)
        buf_adds(out, "0");
}
PUT(tasks) {
    if (STEP)
        buf_addu(out, STEP->tasks);
}
PUT(req_cpus) { buf_addu(out, cpus_of(r)); }
PUT(state) {
    enum job_state s = state_of(r);
    buf_adds(out, slurm_state_word(s));
    if (s == JOB_CANCELLED && !STEP && !str_empty(J->by)) {
        if (!streq(f->uids->name, J->by)) {
            struct passwd *pw = getpwnam(J->by);
            snprintf(f->uids->name, sizeof f->uids->name, "%s", J->by);
            f->uids->uid = pw ? (long)pw->pw_uid : -1;
        }
        if (f->uids->uid >= 0)
            buf_addf(out, " by %ld", f->uids->uid);
    }
}
PUT(exit) {
    int32_t code = STEP ? STEP->exit_code : J->exit_code;
    uint32_t signal = STEP ? STEP->exit_signal : J->exit_signal;
    enum job_state s = state_of(r);
    if (s == JOB_OUT_OF_MEMORY)
        buf_adds(out, "0:125");
    else if (!STEP && (s == JOB_CANCELLED || s == JOB_TIMEOUT || s == JOB_PREEMPTED))
        buf_adds(out, "0:0");
    else {
        if (code < 0)
            buf_addc(out, '-');
        buf_addu(out, (uint64_t)(code < 0 ? -(int64_t)code : code));
        buf_addc(out, ':');
        buf_addu(out, signal);
    }
}
PUT(derived_exit) {
    int32_t code = 0;
    if (STEP)
        return;
    for (uint32_t i = 0; J->steps && i < J->steps->len; i++) {
        int32_t one = (int32_t)json_i64(&J->steps->items[i], "exit_code", 0);
        code = one > code ? one : code;
    }
    buf_addf(out, "%d:0", code);
}
PUT(reason) {
    if (!STEP)
        buf_adds(out, J->state == JOB_PENDING ? slurm_reason_word(J) : "None");
}
PUT(submit) { put_moment(STEP ? STEP->start_ms : J->submit_ms, "Unknown", out); }
PUT(eligible) {
    if (!STEP)
        put_moment(J->hold && J->state == JOB_PENDING ? 0 : J->eligible_ms, "Unknown", out);
}
// What ended without having started shows its end twice.
PUT(start) { put_moment(start_of(r) ? start_of(r) : end_of(r), "Unknown", out); }
PUT(end) { put_moment(end_of(r), "Unknown", out); }
PUT(elapsed) { put_span(elapsed_s(r), out); }
PUT(elapsed_raw) { buf_addu(out, (uint64_t)elapsed_s(r)); }
PUT(planned) {
    int64_t from = J->eligible_ms ? J->eligible_ms : J->submit_ms, to = J->start_ms ? J->start_ms
                                                                        : J->end_ms ? J->end_ms
                                                                                    : J->now_ms;
    if (!STEP)
        put_span(to > from ? (to - from) / 1000 : 0, out);
}
PUT(limit) {
    char t[UNIT_TEXT_MAX];
    if (STEP)
        return;
    if (!J->time_limit_s || J->time_limit_s >= DURATION_LIMIT_S)
        buf_adds(out, "UNLIMITED");
    else
        buf_adds(out, duration_elapsed_format_full(J->time_limit_s, t));
}
PUT(limit_raw) {
    if (!STEP && J->time_limit_s && J->time_limit_s < DURATION_LIMIT_S)
        buf_addu(out, J->time_limit_s / 60);
}
PUT(cpu_time) { put_span(elapsed_s(r) * cpus_of(r), out); }
PUT(cpu_time_raw) { buf_addu(out, (uint64_t)elapsed_s(r) * cpus_of(r)); }
PUT(total_cpu) { put_used_time(used(r, "cpu_user_us") + used(r, "cpu_system_us"), out); }
PUT(user_cpu) { put_used_time(used(r, "cpu_user_us"), out); }
PUT(system_cpu) { put_used_time(used(r, "cpu_system_us"), out); }
PUT(ave_cpu) {
    if (STEP && STEP->usage)
        put_span((int64_t)((used(r, "cpu_user_us") + used(r, "cpu_system_us")) / 1000000 /
                           (STEP->tasks ? STEP->tasks : 1)),
                 out);
}
PUT(max_rss) {
    if (STEP && STEP->usage)
        put_bytes(f, used(r, "memory_peak_bytes"), out);
}
PUT(read) {
    if (STEP && STEP->usage)
        buf_addf(out, "%.2fM", (double)used(r, "read_bytes") / 1048576);
}
PUT(write) {
    if (STEP && STEP->usage)
        buf_addf(out, "%.2fM", (double)used(r, "write_bytes") / 1048576);
}
PUT(energy) {
    if (STEP || J->usage)
        buf_addu(out, used(r, "energy_mj") / 1000);
}
PUT(req_mem) {
    if (!STEP && J->memory_bytes && f->plain_numbers)
        buf_addf(out, "%lluM", (unsigned long long)(J->memory_bytes >> 20));
    else if (!STEP && J->memory_bytes)
        put_bytes(f, J->memory_bytes, out);
}
PUT(node_list) {
    const char *nodes = STEP ? STEP->nodes : J->nodes;
    buf_adds(out, !str_empty(nodes) ? nodes : "None assigned");
}
PUT(req_tres) {
    if (!STEP)
        slurm_tres_text(J, true, out);
}
PUT(alloc_tres) {
    char t[UNIT_TEXT_MAX];
    if (!STEP && J->start_ms)
        slurm_tres_text(J, true, out);
    if (STEP)
        buf_addf(out, "cpu=%u%s%s,node=%u", STEP->cpus, J->memory_bytes ? ",mem=" : "",
                 J->memory_bytes ? slurm_megabytes(J->memory_bytes, t) : "", STEP->node_count);
}
PUT(gpus) {
    char t[GPU_TEXT_MAX];
    if (!STEP && J->gpus_milli)
        buf_addf(out, "gpu:%s", gpu_milli_format(J->gpus_milli, t));
}
PUT(priority) {
    if (!STEP)
        buf_addu(out, slurm_job_priority(J));
}
PUT(comment) {
    if (!STEP && J->spec && J->spec->comment)
        buf_adds(out, J->spec->comment);
}
PUT(workdir) {
    if (!STEP && J->spec && J->spec->workdir)
        buf_adds(out, J->spec->workdir);
}
PUT(constraints) {
    if (!STEP && J->spec && J->spec->features)
        buf_adds(out, J->spec->features);
}
PUT(reservation) {
    if (!STEP && J->spec && J->spec->reservation)
        buf_adds(out, J->spec->reservation);
}
PUT(container) {
    if (!STEP && J->spec && J->spec->container)
        buf_adds(out, J->spec->container);
}
PUT(submit_line) {
    if (!STEP && J->spec && J->spec->submit_line)
        buf_adds(out, J->spec->submit_line);
}
PUT(flags) { buf_adds(out, ""); }
PUT(zero_span) { buf_adds(out, "00:00:00"); }
PUT(empty) { buf_adds(out, ""); }
PUT(zero) { buf_adds(out, "0"); }

static const struct acct_column columns[] = {
    {"Account", 10, "project", put_account},
    {"AdminComment", 19, "", put_empty},
    {"AllocCPUS", 10, "cpus", put_cpus},
    {"AllocNodes", 10, "node_count,start_ms", put_alloc_nodes},
    {"AllocTRES", 10, "cpus,memory_bytes,gpus_milli,node_count,start_ms", put_alloc_tres},
    {"AssocID", 7, "", put_zero},
    {"AveCPU", 10, "usage", put_ave_cpu},
    {"AveCPUFreq", 10, "", put_step_zero},
    {"AveDiskRead", 14, "usage", put_read},
    {"AveDiskWrite", 14, "usage", put_write},
    {"AvePages", 10, "", put_empty},
    {"AveRSS", 10, "usage", put_max_rss},
    {"AveVMSize", 10, "usage", put_max_rss},
    {"BlockID", 16, "", put_empty},
    {"Cluster", 10, "", put_cluster},
    {"Comment", 14, "spec", put_comment},
    {"Constraints", 19, "spec", put_constraints},
    {"ConsumedEnergy", 14, "usage", put_energy},
    {"ConsumedEnergyRaw", 17, "usage", put_energy},
    {"Container", 19, "spec", put_container},
    {"CPUTime", 10, "cpus,start_ms,end_ms,suspended_ms,suspend_ms", put_cpu_time},
    {"CPUTimeRAW", 10, "cpus,start_ms,end_ms,suspended_ms,suspend_ms", put_cpu_time_raw},
    {"DBIndex", 19, "", put_zero},
    {"DerivedExitCode", 15, "steps", put_derived_exit},
    {"Elapsed", 10, "start_ms,end_ms,suspended_ms,suspend_ms", put_elapsed},
    {"ElapsedRaw", 10, "start_ms,end_ms,suspended_ms,suspend_ms", put_elapsed_raw},
    {"Eligible", 19, "eligible_ms,hold", put_eligible},
    {"End", 19, "end_ms", put_end},
    {"ExitCode", 8, "exit_code,exit_signal,ending", put_exit},
    {"Flags", 20, "", put_flags},
    {"GID", 6, "spec", put_gid},
    {"Group", 9, "spec", put_group},
    {"JobID", -12, "", put_job_id},
    {"JobIDRaw", -12, "", put_job_id_raw},
    {"JobName", 10, "name", put_name},
    {"Layout", 9, "", put_layout},
    {"MaxDiskRead", 12, "usage", put_read},
    {"MaxDiskReadNode", 15, "", put_empty},
    {"MaxDiskReadTask", 15, "", put_empty},
    {"MaxDiskWrite", 12, "usage", put_write},
    {"MaxDiskWriteNode", 16, "", put_empty},
    {"MaxDiskWriteTask", 16, "", put_empty},
    {"MaxPages", 8, "", put_empty},
    {"MaxPagesNode", 12, "", put_empty},
    {"MaxPagesTask", 14, "", put_empty},
    {"MaxRSS", 10, "usage", put_max_rss},
    {"MaxRSSNode", 10, "", put_empty},
    {"MaxRSSTask", 10, "", put_empty},
    {"MaxVMSize", 10, "usage", put_max_rss},
    {"MaxVMSizeNode", 14, "", put_empty},
    {"MaxVMSizeTask", 14, "", put_empty},
    {"McsLabel", 10, "", put_empty},
    {"MinCPU", 10, "usage", put_ave_cpu},
    {"MinCPUNode", 10, "", put_empty},
    {"MinCPUTask", 10, "", put_empty},
    {"NCPUS", 10, "cpus", put_cpus},
    {"NNodes", 8, "node_count", put_nodes},
    {"NodeList", 15, "nodes", put_node_list},
    {"NTasks", 8, "tasks", put_tasks},
    {"Partition", 10, "partition", put_partition},
    {"Priority", 10, "priority,hold", put_priority},
    {"QOS", 10, "qos", put_qos},
    {"QOSRAW", 10, "qos", put_qos},
    {"Reason", 22, "reason", put_reason},
    {"ReqCPUFreq", 10, "", put_frequency},
    {"ReqCPUFreqGov", 13, "", put_frequency},
    {"ReqCPUFreqMax", 13, "", put_frequency},
    {"ReqCPUFreqMin", 13, "", put_frequency},
    {"ReqCPUS", 8, "cpus", put_req_cpus},
    {"ReqMem", 10, "memory_bytes", put_req_mem},
    {"ReqNodes", 8, "node_count", put_nodes},
    {"ReqTRES", 10, "cpus,memory_bytes,gpus_milli,node_count", put_req_tres},
    {"Reservation", 20, "spec", put_reservation},
    {"ReservationId", 16, "", put_empty},
    {"Reserved", 10, "eligible_ms,submit_ms,start_ms,end_ms", put_planned},
    {"ResvCPU", 10, "", put_zero_span},
    {"ResvCPURAW", 10, "", put_zero},
    {"Start", 19, "start_ms,end_ms", put_start},
    {"State", 10, "by,ending", put_state},
    {"Submit", 19, "submit_ms", put_submit},
    {"SubmitLine", 20, "spec", put_submit_line},
    {"Suspended", 10, "suspended_ms,suspend_ms,end_ms", put_suspended},
    {"SystemComment", 14, "", put_empty},
    {"SystemCPU", 10, "usage", put_system_cpu},
    {"Timelimit", 10, "time_limit_s", put_limit},
    {"TimelimitRaw", 12, "time_limit_s", put_limit_raw},
    {"TotalCPU", 10, "usage", put_total_cpu},
    {"TRESUsageInAve", 14, "", put_empty},
    {"TRESUsageInMax", 14, "", put_empty},
    {"TRESUsageInMaxNode", 18, "", put_empty},
    {"TRESUsageInMaxTask", 18, "", put_empty},
    {"TRESUsageInMin", 14, "", put_empty},
    {"TRESUsageInMinNode", 18, "", put_empty},
    {"TRESUsageInMinTask", 18, "", put_empty},
    {"TRESUsageInTot", 14, "", put_empty},
    {"TRESUsageOutAve", 15, "", put_empty},
    {"TRESUsageOutMax", 15, "", put_empty},
    {"TRESUsageOutMaxNode", 19, "", put_empty},
    {"TRESUsageOutMaxTask", 19, "", put_empty},
    {"TRESUsageOutMin", 15, "", put_empty},
    {"TRESUsageOutMinNode", 19, "", put_empty},
    {"TRESUsageOutMinTask", 19, "", put_empty},
    {"TRESUsageOutTot", 15, "", put_empty},
    {"UID", 6, "uid", put_uid},
    {"User", 9, "user", put_user},
    {"UserCPU", 10, "usage", put_user_cpu},
    {"WCKey", 10, "", put_empty},
    {"WCKeyID", 8, "", put_empty},
    {"WorkDir", 20, "spec", put_workdir},
    // Not Slurm 22.05's: known to older or newer ones.
    {"AllocGRES", 12, "gpus_milli", put_gpus},
    {"ReqGRES", 12, "gpus_milli", put_gpus},
    {"Planned", 10, "eligible_ms,submit_ms,start_ms,end_ms", put_planned},
};
enum { COLUMN_COUNT = sizeof columns / sizeof *columns, COLUMNS_TOLD = COLUMN_COUNT - 3 };

// Slurm takes any beginning of a name that is long enough; the first that fits counts.
static const struct acct_column *find(const char *name, size_t len) {
    for (int i = 0; i < COLUMN_COUNT; i++)
        if (strlen(columns[i].name) == len && !strncasecmp(columns[i].name, name, len))
            return &columns[i];
    for (int i = 0; i < COLUMN_COUNT && len; i++)
        if (!strncasecmp(columns[i].name, name, len))
            return &columns[i];
    return NULL;
}

int sacct_columns(struct slurm *s, const char *format, struct acct_format *f) {
    f->uids = arena_alloc(&s->cli.arena, sizeof *f->uids);
    for (const char *p = format; *p;) {
        size_t n = strcspn(p, ","), name = strcspn(p, ",%");
        struct acct_use u = {.column = find(p, name)};
        if (!n) {
            p++;
            continue;
        }
        if (n == 3 && !strncasecmp(p, "all", 3)) {
            for (int i = 0; i < COLUMNS_TOLD; i++)
                vec_push(&f->at, (struct acct_use){.column = &columns[i]});
            p += n + (p[n] == ',');
            continue;
        }
        if (!u.column) {
            slurm_error(s, "Invalid field requested: \"%s\"", arena_strndup(&s->cli.arena, p, name));
            return SLURM_FAILED;
        }
        if (name < n) {
            const char *w = p + name + 1;
            u.left = *w == '-';
            for (w += u.left; *w >= '0' && *w <= '9' && u.width < 100000; w++)
                u.width = u.width * 10 + (*w - '0');
        }
        vec_push(&f->at, u);
        p += n + (p[n] == ',');
    }
    return 0;
}

const char *sacct_fields(struct arena *a, const struct acct_format *f, bool steps) {
    cleanup_buf struct buf b = {0};
    buf_adds(&b, steps ? STEP_FIELDS ",array_index,submit_ms,project,qos"
                       : "id,label,state,array_id,array_index");
    for (uint32_t i = 0; i < f->at.len; i++)
        if (*f->at.at[i].column->fields)
            buf_addf(&b, ",%s", f->at.at[i].column->fields);
    return arena_strdup(a, buf_str(&b));
}

static int width_of(const struct acct_use *u, bool *left) {
    int own = u->column->width;
    *left = u->left || (own < 0 && !u->width);
    return u->width ? u->width : own < 0 ? -own : own;
}

// Cuts or pads what was written from `at` on.
static void fit_cell(const struct acct_use *u, size_t at, struct buf *out) {
    bool left;
    size_t width = (size_t)width_of(u, &left), len = out->len - at;
    if (len > width) {
        len = width ? width - 1 : 0;
        while (len && ((unsigned char)out->data[at + len] & 0xc0) == 0x80)
            len--;
        out->len = at + len;
        buf_addc(out, '+');
        len++;
    }
    size_t pad = width > len ? width - len : 0;
    if (!pad)
        return;
    buf_fill(out, ' ', pad);
    if (!left && len) {
        memmove(out->data + at + pad, out->data + at, len);
        memset(out->data + at, ' ', pad);
    }
}

static void end_cell(const struct acct_format *f, uint32_t i, size_t at, struct buf *out) {
    if (!f->parsable) {
        fit_cell(&f->at.at[i], at, out);
        buf_addc(out, ' ');
    } else if (f->parsable == 1 || i + 1 < f->at.len) {
        buf_adds(out, f->delimiter);
    }
}

void sacct_heading(const struct acct_format *f, struct buf *out) {
    for (uint32_t i = 0; i < f->at.len; i++) {
        size_t at = out->len;
        bool to_the_left;
        size_t width = (size_t)width_of(&f->at.at[i], &to_the_left), len = strlen(f->at.at[i].column->name);
        buf_add(out, f->at.at[i].column->name, !f->parsable && len > width ? width : len);  // cut without a mark
        end_cell(f, i, at, out);
    }
    buf_addc(out, '\n');
    if (f->parsable)
        return;
    for (uint32_t i = 0; i < f->at.len; i++) {
        bool left;
        for (int k = width_of(&f->at.at[i], &left); k > 0; k--)
            buf_addc(out, '-');
        buf_addc(out, ' ');
    }
    buf_addc(out, '\n');
}

void sacct_put(const struct acct_format *f, const struct acct_row *row, struct buf *out) {
    for (uint32_t i = 0; i < f->at.len; i++) {
        size_t at = out->len;
        f->at.at[i].column->put(f, row, out);
        end_cell(f, i, at, out);
    }
    buf_addc(out, '\n');
}

void sacct_columns_done(struct acct_format *f) {
    vec_done(&f->at);
}

int sacct_help(void) {
    for (int i = 0; i < COLUMNS_TOLD; i++)
        printf("%-20s%s", columns[i].name, i % 4 == 3 || i + 1 == COLUMNS_TOLD ? "\n" : "");
    return SLURM_OK;
}
