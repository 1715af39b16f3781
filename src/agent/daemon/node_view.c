// Answers NODE_LOOK: the processes of jobs with what they use, and the newest lines of this agent's log. /proc is read
// in a thread; how busy a process is comes from the look before, if that was not long ago.
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent.h"
#include "agent/gpu/gpus.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "cgroup/cgroup_io.h"
#include "cgroup/owners.h"

enum {
    PROCESSES_MAX = 1024,  // of one answer
    PIDS_MAX = 65536,      // looked at
    NAME_MAX_BYTES = 64,
    OLD_MS = 60000,  // a look before that is too old to compare with
};

struct seen_process {
    struct node_process process;
    char name[NAME_MAX_BYTES];
};

struct node_scan {
    struct agent *agent;
    uv_work_t work;
    bool log;
    struct owners *owners;  // a copy: the thread reads it
    VEC(struct seen_process) seen;
    uint32_t left_out;
    int64_t at_ms;
};

// The fields of /proc/PID/stat behind the name, which may contain anything.
static bool read_stat(uint32_t pid, struct seen_process *out) {
    char path[64], text[1024], state;
    unsigned parent;
    unsigned long user, system;
    long threads, pages;
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    if (cgroup_kernel_read(path, text, sizeof text) < 0)
        return false;
    char *open = strchr(text, '('), *close = strrchr(text, ')');
    if (!open || !close ||
        sscanf(close + 1,
               " %c %u %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %*d %*d %*d %*d %ld %*d %*u %*u %ld",
               &state, &parent, &user, &system, &threads, &pages) != 6)
        return false;
    *close = 0;
    str_printable(open + 1, out->name, sizeof out->name);
    out->process.pid = pid;
    out->process.parent = parent;
    out->process.threads = threads > 0 ? (uint32_t)threads : 1;
    out->process.memory_bytes = pages > 0 ? (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
    out->process.cpu_ms = (user + system) * 1000 / (unsigned long)sysconf(_SC_CLK_TCK);
    return true;
}

static void look(uv_work_t *w) {
    struct node_scan *l = w->data;
    DIR *d = opendir("/proc");
    uint32_t looked = 0;
    for (struct dirent *e; d && looked < PIDS_MAX && (e = readdir(d));) {
        struct seen_process p = {0};
        uint32_t pid;
        if (!isdigit((unsigned char)e->d_name[0]) || parse_u32(e->d_name, &pid) < 0)
            continue;
        looked++;
        if (!cgroup_owners_find(l->owners, pid, &p.process.job, &p.process.attempt) || !read_stat(pid, &p))
            continue;
        if (l->seen.len >= PROCESSES_MAX)
            l->left_out++;
        else
            vec_push(&l->seen, p);
    }
    if (d)
        closedir(d);
    l->at_ms = clock_mono_ms();
}

// Of a number that was given to another process meanwhile the time would go back.
static void fill_use(const struct node_views *before, struct node_process *p, int64_t now_ms) {
    int64_t span_ms = now_ms - before->at_ms;
    p->cpu_known = false;
    for (uint32_t i = 0; span_ms > 0 && span_ms < OLD_MS && i < before->times.len; i++)
        if (before->times.at[i].pid == p->pid && before->times.at[i].cpu_ms <= p->cpu_ms) {
            p->cpu_known = true;
            p->cpu_milli = (uint32_t)((p->cpu_ms - before->times.at[i].cpu_ms) * 1000 / (uint64_t)span_ms);
            return;
        }
}

static void answer(uv_work_t *w, int status) {
    struct node_scan *l = w->data;
    struct agent *a = l->agent;
    cleanup_arena struct arena arena = {0};
    cleanup_buf struct buf log = {0};
    struct message_node_seen m = {.left_out = l->left_out};
    m.processes.at = arena_alloc(&arena, (l->seen.len + 1) * sizeof *m.processes.at);
    for (uint32_t i = 0; i < l->seen.len; i++) {
        struct node_process *p = &m.processes.at[m.processes.len++];
        *p = l->seen.at[i].process;
        p->name = l->seen.at[i].name;
        fill_use(&a->views, p, l->at_ms);
    }
    vec_clear(&a->views.times);
    for (uint32_t i = 0; i < m.processes.len; i++)
        vec_push(&a->views.times, ((struct process_time){m.processes.at[i].pid, m.processes.at[i].cpu_ms}));
    a->views.at_ms = l->at_ms;
    if (l->log) {
        log_recent(&log);
        m.log = buf_str(&log);
    }
    if (!a->stopping)
        agent_send(&a->shared, MESSAGE_NODE_SEEN, &m);
    cgroup_owners_free(l->owners);
    vec_done(&l->seen);
    free(l);
}

void agent_look(struct agent *a, const struct message_node_look *m) {
    struct node_scan *l = xcalloc(1, sizeof *l);
    *l = (struct node_scan){.agent = a, .log = m->log, .owners = gpus_owners_copy(a->gpus)};
    l->work.data = l;
    if (uv_queue_work(&a->shared.loop, &l->work, look, answer) == 0)
        return;
    cgroup_owners_free(l->owners);
    free(l);
}
