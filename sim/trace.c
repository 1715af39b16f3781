// Traces in memory: recognising the format by the first line, and numbering names.
#include "sim/trace.h"

#include <errno.h>
#include <string.h>

#include "base/text.h"

uint32_t trace_names_number(struct names *n, const char *name) {
    if (str_empty(name) || streq(name, "-1"))
        return 0;
    uintptr_t known = (uintptr_t)strmap_get(&n->map, name);
    if (known)
        return (uint32_t)known;
    vec_push(&n->at, xstrdup(name));
    strmap_put(&n->map, n->at.at[n->at.len - 1], (void *)(uintptr_t)n->at.len);
    return n->at.len;
}

const char *trace_names_get(const struct names *n, uint32_t number) {
    return number && number <= n->at.len ? n->at.at[number - 1] : "-";
}

static void names_done(struct names *n) {
    strmap_done(&n->map);
    for (uint32_t i = 0; i < n->at.len; i++)
        free(n->at.at[i]);
    vec_done(&n->at);
}

static bool looks_like_swf(const char *line) {
    line += strspn(line, " \t");
    return *line == ';' || (strspn(line, "0123456789") && strspn(line, "-0123456789. \t") == strlen(line));
}

static int by_submit(const void *pa, const void *pb) {
    const struct trace_job *a = pa, *b = pb;
    return (a->submit_ms > b->submit_ms) - (a->submit_ms < b->submit_ms);
}

static void sort_jobs(struct trace *t) {
    for (uint32_t i = 1; i < t->jobs.len; i++)
        if (t->jobs.at[i].submit_ms < t->jobs.at[i - 1].submit_ms) {
            qsort(t->jobs.at, t->jobs.len, sizeof *t->jobs.at, by_submit);
            return;
        }
}

int trace_read(struct trace *t, const char *path, struct error *err) {
    struct input *in = trace_input_open(path, err);
    if (!in)
        return -err->code;
    char *line;
    int r = trace_input_line(in, &line, err);
    if (r == 0)
        r = error_set(err, EINVAL, "%s is empty: a trace was expected", path);
    if (r > 0) {
        if (looks_like_swf(line))
            r = trace_read_swf(t, in, line, err);
        else if (strstr(line, "cpu_milli") && strstr(line, "num_gpu"))
            r = trace_read_openb(t, in, line, err);
        else if (strstr(line, "submit_s"))
            r = trace_read_own(t, in, line, err);
        else
            r = error_set(
                err, EINVAL,
                "%s: the format is not known: give the Standard Workload Format, an openb pod list, or "
                "a CSV with the columns submit_s, run_s, ...",
                path);
        if (r < 0 && err && err->text[0] != path[0])
            error_prefix(err, "%s", path);
    }
    trace_input_close(in);
    if (r < 0)
        return r;
    if (!t->jobs.len)
        return error_set(err, EINVAL, "%s: no job in it can be replayed (%u were left out)", path, t->skipped);
    if (t->projects.at.len > TRACE_NAMES_MAX)
        return error_set(err, E2BIG, "%s: more than %d projects", path, TRACE_NAMES_MAX);
    sort_jobs(t);
    return 0;
}

void trace_done(struct trace *t) {
    for (uint32_t i = 0; i < t->nodes.len; i++) {
        free(t->nodes.at[i].name);
        free(t->nodes.at[i].model);
    }
    vec_done(&t->nodes);
    vec_done(&t->jobs);
    vec_done(&t->settings);
    names_done(&t->users);
    names_done(&t->projects);
    names_done(&t->models);
}
