// Reads the Standard Workload Format: 18 columns, and comments with ';' whose MaxProcs gives the size of the machine.
// The machine is one pool of processors, because the format does not say which ones a job had.
#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "sim/trace.h"

enum {
    JOB,
    SUBMIT,
    WAIT,
    RUN,
    USED_PROCS,
    CPU_TIME,
    USED_MEMORY,
    PROCS,
    TIME,
    MEMORY,
    STATUS,
    USER,
    GROUP,
    COLUMNS = 18
};

struct swf {
    struct trace *t;
    struct input *in;
    int64_t procs;  // of the machine
};

static int comment(struct swf *s, const char *line, struct error *err) {
    const char *words[] = {"MaxProcs:", "MaxNodes:"};
    line += strspn(line, "; \t");
    for (unsigned i = 0; i < 2; i++) {
        if (!str_has_prefix(line, words[i]))
            continue;
        const char *value = line + strlen(words[i]);
        value += strspn(value, " \t");
        char number[24] = {0};
        size_t len = strspn(value, "0123456789");
        if (!len || len >= sizeof number)
            return 0;
        memcpy(number, value, len);
        int64_t n;
        int r = trace_input_int(s->in, words[i], number, &n, err);
        if (r)
            return r;
        if (n > 0 && n < UINT32_MAX && (i == 0 || !s->procs))
            s->procs = n;
    }
    return 0;
}

static int record(struct swf *s, char *line, struct error *err) {
    static const char *const names[COLUMNS] = {"job number", "submit time", "wait time", "run time", "processors used",
                                               "cpu time", "memory used", "processors", "requested time", "memory",
                                               "status", "user", "group"};
    char *fields[TRACE_FIELDS_MAX];
    uint32_t n = trace_input_split(line, ' ', fields, TRACE_FIELDS_MAX);
    if (!n)
        return 0;
    if (n < USER + 1)
        return error_set(err, EINVAL, "line %u has %u columns: the Standard Workload Format has %d",
                         trace_input_number(s->in), n, COLUMNS);
    int64_t v[USER + 1] = {0};
    for (unsigned i = 0; i <= USER; i++) {
        int r = i == CPU_TIME || i == USED_MEMORY || i == MEMORY || i == STATUS
                    ? 0 : trace_input_int(s->in, names[i], fields[i], &v[i], err);
        if (r)
            return r;
    }
    int64_t procs = v[PROCS] > 0 ? v[PROCS] : v[USED_PROCS];
    int64_t run = v[RUN] < v[TIME] ? v[RUN] : v[TIME];
    if (run <= 0 || procs <= 0 || (s->procs && procs > s->procs) || procs > UINT32_MAX || v[SUBMIT] < 0 ||
        v[SUBMIT] > INT64_MAX / 4000 || v[TIME] > INT64_MAX / 4000) {
        s->t->skipped++;
        return 0;
    }
    if (s->t->jobs.len >= TRACE_JOBS_MAX)
        return error_set(err, E2BIG, "more than %d jobs: cut the trace", TRACE_JOBS_MAX);
    struct trace_job j = {.submit_ms = v[SUBMIT] * 1000, .run_ms = run * 1000, .limit_ms = v[TIME] * 1000, .nodes = 1,
                          .tasks = (uint32_t)procs, .cpus_per_task = 1,
                          .user = trace_names_number(&s->t->users, fields[USER])};
    vec_push(&s->t->jobs, j);
    return 0;
}

int trace_read_swf(struct trace *t, struct input *in, char *line, struct error *err) {
    struct swf s = {.t = t, .in = in};
    int r = 1;
    while (r > 0) {
        line += strspn(line, " \t");
        int e = *line == ';' ? comment(&s, line, err) : record(&s, line, err);
        if (e)
            return e;
        r = trace_input_line(in, &line, err);
    }
    if (r < 0)
        return r;
    if (!s.procs)
        for (uint32_t i = 0; i < t->jobs.len; i++)
            s.procs = t->jobs.at[i].tasks > s.procs ? t->jobs.at[i].tasks : s.procs;
    vec_push(&t->nodes, (struct trace_node){.name = xstrdup("pool"), .cpus = (uint32_t)s.procs});
    return 0;
}
