// A workload trace in memory: what machines there were and which jobs came when. Readers for the
// Standard Workload Format, the openb CSV files, and our own CSV; all may be gzipped.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/map.h"
#include "base/vec.h"
#include "sched/world.h"

enum {
    TRACE_JOBS_MAX = 5000000,
    TRACE_NODES_MAX = 60000,
    TRACE_LINE_MAX = 65536,
    TRACE_FIELDS_MAX = 64,
    TRACE_NAMES_MAX = 16000,       // different projects
    TRACE_WORKERS_MAX = 10000,     // of one elastic job
    TRACE_OPTIONAL_MAX = 5000000,  // optional workers of all jobs together
    TRACE_ELASTIC_RUN_MAX_S = 10 * 366 * 86400,
};

struct trace_node {
    char *name;
    uint32_t cpus, gpus;
    uint64_t memory_bytes;
    char *model;
};

struct trace_job {
    int64_t submit_ms, run_ms, limit_ms;  // limit 0: none
    uint32_t nodes;                       // 0: any
    uint32_t tasks, cpus_per_task;
    uint32_t workers;                     // elastic: up to this many tasks, which share the work; 0: not
    uint64_t memory_bytes;                // per node
    uint32_t gpu_milli;                   // per task
    uint32_t user, project;               // 1 …, 0: none
    uint32_t model;                       // 1 + index into models, 0: any
    bool interactive;
};

// Names given numbers 1, 2, … in the order they are met.
struct names {
    struct strmap map;
    VEC(char *) at;
};

struct trace {
    VEC(struct trace_node) nodes;
    VEC(struct trace_job) jobs;  // by submit time
    struct names users, projects, models;
    uint32_t skipped;            // jobs left out: never ran, or larger than the machine
    bool gpus;
    // Quotas and limits by number of the project, a parent before its children; empty: all GPUs in equal parts.
    VEC(struct sched_project) settings;
};

enum trace_format { TRACE_UNKNOWN, TRACE_SWF, TRACE_OPENB, TRACE_OWN };

int trace_read(struct trace *t, const char *path, struct error *err);
int trace_read_nodes(struct trace *t, const char *path, struct error *err);  // openb node list
void trace_done(struct trace *t);
uint32_t trace_names_number(struct names *n, const char *name);  // 0 for "" and "-1"
const char *trace_names_get(const struct names *n, uint32_t number);

// input.c: lines of a file, plain or gzipped
struct input;
struct input *trace_input_open(const char *path, struct error *err);
int trace_input_line(struct input *in, char **line, struct error *err);  // 1, 0 at the end, or an error
uint32_t trace_input_number(const struct input *in);                     // of the line read last
void trace_input_close(struct input *in);
// Splits in place; empty fields stay. Separator ' ' stands for any run of blanks.
uint32_t trace_input_split(char *line, char separator, char **fields, uint32_t max);
// Whole part of a decimal number, the fraction is dropped.
int trace_input_int(const struct input *in, const char *name, const char *text, int64_t *out, struct error *err);

int trace_read_swf(struct trace *t, struct input *in, char *first, struct error *err);
int trace_read_openb(struct trace *t, struct input *in, char *header, struct error *err);
int trace_read_own(struct trace *t, struct input *in, char *header, struct error *err);
