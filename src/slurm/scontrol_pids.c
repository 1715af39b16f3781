// Owns scontrol listpids and pidinfo: processes of jobs on this machine, known by what their environment
// says. Those of others cannot be read, and are left out.
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/buf.h"
#include "base/text.h"
#include "job_row.h"
#include "scontrol.h"

enum { ENVIRON_MAX = 4 << 20, STAT_MAX = 4096 };

struct process {
    uint32_t pid, parent;
    uint64_t job;
    int64_t step;                // -1: the batch script's
    const char *local, *global;  // of the task that it is
};
typedef VEC(struct process) process_vec;

// A file of /proc says no size.
static int file_read(const char *path, size_t most, struct buf *out) {
    char piece[8192];
    cleanup_fclose FILE *f = fopen(path, "re");
    for (size_t n; f && out->len < most && (n = fread(piece, 1, sizeof piece, f)) > 0;)
        buf_add(out, piece, n);
    return f && out->len ? 0 : -1;
}

static const char *variable(const char *text, size_t len, const char *name) {
    size_t n = strlen(name);
    for (const char *p = text; p < text + len; p += strlen(p) + 1)
        if (!strncmp(p, name, n) && p[n] == '=')
            return p + n + 1;
    return NULL;
}

static uint32_t parent_of(const char *pid) {
    char path[64];
    cleanup_buf struct buf b = {0};
    unsigned parent = 0;
    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    const char *after = file_read(path, STAT_MAX, &b) < 0 ? NULL : strrchr(buf_str(&b), ')');
    return after && sscanf(after, ") %*c %u", &parent) == 1 ? parent : 0;
}

// False: no process of a job, or one that may not be looked at.
static bool read_process(struct arena *a, const char *pid, struct process *out) {
    char path[64];
    cleanup_buf struct buf b = {0};
    snprintf(path, sizeof path, "/proc/%s/environ", pid);
    *out = (struct process){.step = -1};
    if (parse_u32(pid, &out->pid) < 0 || file_read(path, ENVIRON_MAX, &b) < 0)
        return false;
    const char *text = buf_str(&b), *job = variable(text, b.len, "ACEQUIA_JOB_ID");
    const char *step = variable(text, b.len, "ACEQUIA_STEP_ID"), *local = variable(text, b.len, "SLURM_LOCALID"),
               *global = variable(text, b.len, "SLURM_PROCID");
    if (!job || parse_u64(job, &out->job) < 0)
        return false;
    if (step)
        parse_i64(step, &out->step);
    out->local = local ? arena_strdup(a, local) : "-";
    out->global = global ? arena_strdup(a, global) : "-";
    out->parent = parent_of(pid);
    return true;
}

static void read_processes(struct arena *a, process_vec *out) {
    DIR *d = opendir("/proc");
    struct dirent *e;
    while (d && (e = readdir(d))) {
        struct process p;
        if (*e->d_name >= '1' && *e->d_name <= '9' && read_process(a, e->d_name, &p))
            vec_push(out, p);
    }
    if (d)
        closedir(d);
}

// A task is what was started first; what it started itself has no number.
static bool is_task(const process_vec *all, const struct process *p) {
    for (uint32_t i = 0; i < all->len; i++)
        if (all->at[i].pid == p->parent && all->at[i].job == p->job && all->at[i].step == p->step)
            return false;
    return true;
}

static bool read_wanted(const char *text, uint64_t *job, int64_t *step) {
    char *end = NULL;
    *job = strtoull(text, &end, 10);
    if (end == text || !*job)
        return false;
    if (!*end)
        return true;
    return *end == '.' && (streq(end + 1, "batch") ? (*step = -1, true) : parse_i64(end + 1, step) == 0);
}

int scontrol_pids(struct scontrol *c, int argc, char **argv) {
    enum { ANY_STEP = -2 };
    uint64_t job = 0;
    int64_t step = ANY_STEP;
    process_vec all = {0};
    uint32_t shown = 0;
    if (argc > 1 && !read_wanted(argv[1], &job, &step)) {
        fprintf(stderr, "\"%s\" does not look like a stepid\n", argv[1]);
        return SLURM_FAILED;
    }
    read_processes(&c->s->cli.arena, &all);
    printf("%-8s %-8s %-8s %-7s %-8s\n", "PID", "JOBID", "STEPID", "LOCALID", "GLOBALID");
    for (uint32_t i = 0; i < all.len; i++) {
        const struct process *p = &all.at[i];
        if ((job && p->job != job) || (step != ANY_STEP && p->step != step))
            continue;
        char id[24] = "batch";
        bool task = is_task(&all, p);
        if (p->step >= 0)
            snprintf(id, sizeof id, "%lld", (long long)p->step);
        printf("%-8u %-8llu %-8s %-7s %-8s\n", p->pid, (unsigned long long)p->job, id, task ? p->local : "-",
               task ? p->global : "-");
        shown++;
    }
    vec_done(&all);
    if (shown)
        return SLURM_OK;
    if (job)
        fprintf(stderr, "JobId=%s does not exist on this node.\n", argv[1]);
    else
        fprintf(stderr, "No job steps exist on this node.\n");
    return SLURM_FAILED;
}

int scontrol_pid(struct scontrol *c, int argc, char **argv) {
    struct process p;
    sjob_vec jobs = {0};
    uint32_t number;
    if (parse_u32(argv[1], &number) < 0 || !read_process(&c->s->cli.arena, argv[1], &p)) {
        fprintf(stderr, "Failed to locate job for requested pid\n");
        return SLURM_FAILED;
    }
    const char *id = arena_printf(&c->s->cli.arena, "%llu", (unsigned long long)p.job);
    struct job_query q = {.fields = "id,label,start_ms,end_ms,time_limit_s,suspended_ms", .ids = id};
    if (slurm_jobs_fetch(c->s, &q, &jobs) || !jobs.len) {
        vec_done(&jobs);
        return SLURM_FAILED;
    }
    const struct sjob *j = &jobs.at[0];
    if (!j->time_limit_s || j->time_limit_s >= DURATION_LIMIT_S) {
        printf("Slurm JobId=%s has no end\n", id);
    } else {
        char text[64];
        int64_t end_ms = j->start_ms + (int64_t)j->time_limit_s * 1000 + j->suspended_ms;
        time_t end = (time_t)(end_ms / 1000);
        struct tm tm;
        strftime(text, sizeof text, "%a %b %d %H:%M:%S %Y", localtime_r(&end, &tm));
        printf("Slurm JobId=%s ends at %s\nJob remaining time is %lld seconds\n", id, text,
               (long long)((end_ms - j->now_ms) / 1000));
    }
    vec_done(&jobs);
    return SLURM_OK;
}
