// squeue: jobs that are not finished, or chosen ones.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "node_row.h"
#include "option.h"
#include "squeue_columns.h"
#include "json.h"
#include "step_row.h"
#include "model/license.h"
#include "model/nodelist.h"

static const struct opt table[] = {
    {"account", 'A', OPT_VALUE, OPT_DOES, "ACCOUNT", NULL, 0},
    {"all", 'a', OPT_FLAG, OPT_HARMLESS, "ALL", "no partition is hidden", 0},
    {"array", 'r', OPT_FLAG, OPT_DOES, "ARRAY", NULL, 0},
    {"array-unique", 0, OPT_FLAG, OPT_HARMLESS, "ARRAY_UNIQUE",
     "elements that wait are one line unless -r is given", 0},
    {"clusters", 'M', OPT_VALUE, OPT_DOES, "CLUSTERS", NULL, 0},
    {"federation", 0, OPT_FLAG, OPT_HARMLESS, NULL, "there is one cluster", 0},
    {"format", 'o', OPT_VALUE, OPT_DOES, "FORMAT", NULL, 0},
    {"Format", 'O', OPT_VALUE, OPT_DOES, "FORMAT2", NULL, 0},
    {"help", 0, OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"hide", 0, OPT_FLAG, OPT_HARMLESS, NULL, "no partition is hidden", 0},
    {"iterate", 'i', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"jobs", 'j', OPT_MAYBE, OPT_DOES, NULL, NULL, 0},
    {"json", 0, OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"licenses", 'L', OPT_VALUE, OPT_DOES, "LICENSES", NULL, 0},
    {"local", 0, OPT_FLAG, OPT_HARMLESS, NULL, "there is one cluster", 0},
    {"long", 'l', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"me", 0, OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"name", 'n', OPT_VALUE, OPT_DOES, "NAMES", NULL, 0},
    {"noconvert", 0, OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"node", 0, OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"nodelist", 'w', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"noheader", 'h', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"partition", 'p', OPT_VALUE, OPT_DOES, "PARTITION", NULL, 0},
    {"priority", 'P', OPT_FLAG, OPT_DOES, "PRIORITY", NULL, 0},
    {"qos", 'q', OPT_VALUE, OPT_DOES, "QOS", NULL, 0},
    {"reservation", 'R', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"sibling", 0, OPT_FLAG, OPT_HARMLESS, NULL, "there is one cluster", 0},
    {"sort", 'S', OPT_VALUE, OPT_DOES, "SORT", NULL, 0},
    {"start", 0, OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"states", 't', OPT_VALUE, OPT_DOES, "STATES", NULL, 0},
    {"steps", 's', OPT_MAYBE, OPT_DOES, NULL, NULL, 0},
    {"usage", 0, OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"user", 'u', OPT_VALUE, OPT_DOES, "USERS", NULL, 0},
    {"verbose", 'v', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"version", 'V', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"yaml", 0, OPT_FLAG, OPT_REFUSED, NULL, "use --json", 0},
};

static const char default_format[] = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R";
static const char long_format[] = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R";
static const char start_format[] = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R";

struct wanted {
    const char *ids, *users, *partitions, *accounts, *names, *qos, *nodes, *reservation, *licenses;
    uint32_t states;
};

// "a,b" of users, each by name or number, as names. Unknown ones are told and match nobody.
static const char *user_list(struct slurm *s, const char *text) {
    cleanup_buf struct buf b = {0};
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, ",");
        const char *one = arena_strndup(&s->cli.arena, p, n), *name = slurm_user_name_of(&s->cli.arena, one);
        if (!name)
            slurm_error(s, "Invalid user: %s\n", one);
        buf_addf(&b, "%s%s", b.len ? "," : "", name ? name : "//");
        p += n + (p[n] == ',');
    }
    return arena_strdup(&s->cli.arena, buf_str(&b));
}

static int read_wanted(struct slurm *s, const struct opts *o, struct wanted *w) {
    const char *bad = NULL;
    *w = (struct wanted){.ids = slurm_opt_get(o, "jobs"),
                         .partitions = slurm_opt_get(o, "partition"),
                         .accounts = slurm_opt_get(o, "account"),
                         .names = slurm_opt_get(o, "name"),
                         .qos = slurm_opt_get(o, "qos"),
                         .licenses = slurm_opt_get(o, "licenses"),
                         .reservation = slurm_opt_get(o, "reservation")};
    w->nodes = slurm_opt_get(o, "nodelist") ? slurm_opt_get(o, "nodelist") : slurm_opt_get(o, "node");
    if (slurm_opt_given(o, "jobs") && !w->ids && o->argument_count)
        w->ids = o->arguments[0];
    if (w->ids && !slurm_ids_plain(&s->cli.arena, w->ids, &bad)) {
        slurm_error(s, "Invalid job id: %s", bad);
        return SLURM_FAILED;
    }
    if (slurm_opt_given(o, "me"))
        w->users = slurm_own_name(&s->cli.arena);
    else if (slurm_opt_get(o, "user"))
        w->users = user_list(s, slurm_opt_get(o, "user"));
    w->states = slurm_opt_given(o, "start")  ? 1u << JOB_PENDING
                : slurm_opt_given(o, "json") ? STATES_ALL
                                             : STATES_LIVE;
    if (slurm_opt_get(o, "states") && !(w->states = slurm_states_parse(s, slurm_opt_get(o, "states"))))
        return SLURM_FAILED;
    return 0;
}

// Names that no node has.
static int check_nodes(struct slurm *s, const char *list) {
    struct name_list want;
    struct cluster_view c;
    if (!list)
        return 0;
    if (nodelist_expand(list, &s->cli.arena, &want, NULL) < 0 || slurm_cluster_fetch(s, &c))
        return SLURM_FAILED;
    int status = 0;
    for (uint32_t i = 0; i < want.len && !status; i++) {
        bool there = false;
        for (uint32_t k = 0; k < c.nodes.len && !there; k++)
            there = streq(c.nodes.at[k].name, want.at[i]);
        if (!there) {
            slurm_error(s, "Invalid node name %s", want.at[i]);
            status = SLURM_FAILED;
        }
    }
    slurm_cluster_done(&c);
    return status;
}

// What stands on the line besides options, other than a list that belongs to -j or -s.
static int check_rest(struct slurm *s, const struct opts *o) {
    int taken = (slurm_opt_given(o, "jobs") && !slurm_opt_get(o, "jobs")) ||
                (slurm_opt_given(o, "steps") && !slurm_opt_get(o, "steps"));
    if (o->argument_count <= taken)
        return 0;
    slurm_error(s, "Unrecognized option: %s", o->arguments[taken]);
    return SLURM_FAILED;
}

// The letters that lists can be sorted by.
static int check_sort(struct slurm *s, const char *by) {
    size_t n = by ? strspn(by, ",+-bcdefghijlmnptuvzBCDGHIJLMNOPQSTUVaAFKqRy") : 0;
    if (!by || !by[n])
        return 0;
    slurm_error(s, "Invalid sort specification: %c", by[n]);
    return SLURM_FAILED;
}

// One of the licenses in the list "a,b".
static bool holds_license(struct slurm *s, const char *list, const struct sjob *j) {
    struct license_asks asks;
    if (!j->spec || license_asks_parse(j->spec->licenses, &s->cli.arena, &asks, NULL) < 0)
        return false;
    for (uint32_t i = 0; i < asks.len; i++)
        if (slurm_list_has(list, asks.at[i].name))
            return true;
    return false;
}

static bool matches(struct slurm *s, const struct wanted *w, const struct sjob *j) {
    return (w->states >> j->state & 1) && slurm_list_has(w->users, j->user) &&
           slurm_list_meets(w->partitions, j->partition) && slurm_list_has(w->accounts, j->project) &&
           slurm_list_has(w->names, j->name) && slurm_list_has(w->qos, j->qos) && slurm_ids_have(w->ids, j) &&
           (!w->nodes || slurm_nodes_meet(w->nodes, j->nodes)) &&
           (!w->licenses || holds_license(s, w->licenses, j)) &&
           (!w->reservation || (j->spec && streq(j->spec->reservation, w->reservation))) &&
           (!job_state_final(j->state) || j->end_ms > j->now_ms - SLURM_RECENT_MS);
}

static int64_t sort_number(const struct sjob *j, int key) {
    switch (key) {
    case 'i':
    case 'A':
    case 'F': return (int64_t)(j->array_id ? j->array_id : j->id);
    case 't':
    case 'T': return j->state == JOB_STARTING ? JOB_RUNNING : j->state;
    case 'p':
    case 'Q': return slurm_job_priority(j);
    case 'S': return j->start_ms ? j->start_ms : j->expected_start_ms ? j->expected_start_ms : INT64_MAX;
    case 'V': return j->submit_ms;
    case 'e': return slurm_job_end_ms(j);
    case 'M': return j->elapsed_ms;
    case 'l': return j->time_limit_s;
    case 'C': return j->cpus;
    case 'D': return j->node_count;
    case 'U': return j->uid;
    case 'K': return j->array_index;
    case 'm': return (int64_t)j->memory_bytes;
    case 'y': return j->nice;
    default: return 0;
    }
}

static const char *sort_text(const struct sjob *j, int key) {
    const char *t = key == 'P' ? j->partition : key == 'j' ? j->name : key == 'u' ? j->user : key == 'a' ? j->project :
                    key == 'q' ? j->qos : key == 'N' || key == 'R' || key == 'B' ? j->nodes : "";
    return t ? t : "";
}

static int compare(const void *x, const void *y, void *arg) {
    const struct sjob *a = *(const struct sjob *const *)x, *b = *(const struct sjob *const *)y;
    for (const char *p = arg; *p; p++) {
        bool down = *p == '-';
        if (*p == '-' || *p == '+')
            p++;
        if (!*p)
            break;
        if (*p == ',')
            continue;
        int64_t m = sort_number(a, *p), n = sort_number(b, *p);
        int d = m < n ? -1 : m > n;
        if (!d && strchr("PjuaqNRB", *p)) {
            const char *left = sort_text(a, *p), *right = sort_text(b, *p);
            d = *left && *right ? strcmp(left, right) : !*left - !*right;  // jobs that are nowhere come last
        }
        if (d)
            return down ? -d : d;
    }
    return a->id < b->id ? -1 : a->id > b->id;
}

// Sorted by moving pointers: rows are large, and most lists come in order as they are.
static void sort_rows(const sjob_vec *jobs, char *by, const struct sjob **out) {
    bool ordered = true;
    for (uint32_t i = 0; i < jobs->len; i++) {
        out[i] = &jobs->at[i];
        ordered = ordered && (!i || compare(&out[i - 1], &out[i], by) <= 0);
    }
    if (!ordered)
        qsort_r(out, jobs->len, sizeof *out, compare, by);
}

static void put_json(struct slurm *s, const struct sjob *const *jobs, uint32_t count, struct buf *out) {
    struct json_writer w = {.out = out};
    const char *cluster = slurm_cluster(s);
    slurm_json_open(&w, "openapi/v0.0.38", "jobs");
    for (uint32_t i = 0; i < count; i++)
        slurm_job_json(jobs[i], cluster, &w);
    slurm_json_close(&w);
}

static void make_columns(struct slurm *s, const struct opts *o, struct columns *c) {
    const char *format = slurm_opt_get(o, "format"), *names = slurm_opt_get(o, "Format");
    // A format on the command line beats one from the environment, whichever kind.
    if (names && (!format || !getenv("SQUEUE_FORMAT2") || streq(format, getenv("SQUEUE_FORMAT"))))
        slurm_columns_by_names(s, squeue_columns, squeue_column_count, names, "job", c);
    else
        slurm_columns_by_letters(s, squeue_columns, squeue_column_count,
                                 format                        ? format
                                 : slurm_opt_given(o, "start") ? start_format
                                 : slurm_opt_given(o, "long")  ? long_format
                                                               : default_format,
                                 "job", c);
}

static int fetch(struct slurm *s, const struct opts *o, const struct wanted *w, const char *fields, struct arena *a,
                 sjob_vec *jobs) {
    const char *bad;
    struct job_query q = {.fields = fields,
                          .live = true,
                          .elements = slurm_opt_given(o, "array"),
                          .components = true,
                          .finished = w->states & ~(uint32_t)STATES_LIVE & STATES_ALL,
                          .since_ms = clock_wall_ms() - SLURM_RECENT_MS,
                          .ids = w->ids ? slurm_ids_plain(&s->cli.arena, w->ids, &bad) : NULL};
    if (!q.ids) {
        q.user = w->users;
        q.partition = w->partitions;
        q.project = w->accounts;
        q.states = w->states & STATES_ALL;
    }
    return slurm_jobs_fetch_in(s, &q, a, jobs);
}

static bool unknown_id(const struct wanted *w, const sjob_vec *jobs) {
    if (!w->ids || strchr(w->ids, ',') || strchr(w->ids, '_'))
        return false;
    for (uint32_t i = 0; i < jobs->len; i++)
        if (!job_state_final(jobs->at[i].state) || jobs->at[i].end_ms > jobs->at[i].now_ms - SLURM_RECENT_MS)
            return false;
    return true;
}

// An id may be named twice.
static bool listed(const sjob_vec *jobs, uint32_t count, const struct sjob *j) {
    for (uint32_t i = 0; i < count; i++)
        if (jobs->at[i].id == j->id && streq(jobs->at[i].label, j->label))
            return true;
    return false;
}

static int show(struct slurm *s, const struct opts *o, const struct wanted *w) {
    struct columns c = {0};
    sjob_vec jobs = {0};
    cleanup_arena struct arena own = {0};  // rows: with --iterate they would pile up
    cleanup_buf struct buf out = {0};
    const char *fields, *sort = slurm_opt_get(o, "sort");
    make_columns(s, o, &c);
    bool ended = w->states & ~(uint32_t)STATES_LIVE & STATES_ALL;
    slurm_columns_fields(&s->cli.arena, &c,
                   arena_printf(&s->cli.arena, "id,label,state,partition%s%s%s%s%s", w->users ? ",user" : "",
                                w->names ? ",name" : "", w->accounts ? ",project" : "", w->qos ? ",qos" : "",
                                ended || w->ids ? ",end_ms" : ""),
                   &fields);
    if (slurm_opt_given(o, "json"))
        fields = SJOB_JSON_FIELDS;
    if (sort || w->nodes || w->reservation)
        fields = arena_printf(&s->cli.arena,
                              "%s,array_id,array_index,nodes,spec,start_ms,submit_ms,elapsed_ms,time_limit_s,"
                              "cpus,node_count,uid,"
                              "memory_bytes,nice,priority,hold,expected_start_ms%s",
                              fields, sort && strpbrk(sort, "pQ") ? ",order" : "");
    else
        fields = arena_printf(&s->cli.arena, "%s,array_id,array_index,priority,hold", fields);
    int status = fetch(s, o, w, fields, &own, &jobs);
    if (!status && unknown_id(w, &jobs)) {
        fprintf(stderr, "slurm_load_jobs error: Invalid job id specified\n");
        status = SLURM_FAILED;
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; !status && i < jobs.len; i++)
        // A job that was named twice is listed once.
        if (matches(s, w, &jobs.at[i]) && !(w->ids && listed(&jobs, kept, &jobs.at[i])))
            jobs.at[kept++] = jobs.at[i];
    jobs.len = kept;
    if (slurm_opt_given(o, "priority"))
        slurm_jobs_by_partition(w->partitions, &own, &jobs);
    if (!status) {
        char *by = arena_strdup(&s->cli.arena, sort ? sort : slurm_opt_given(o, "start") ? "S" : "P,t,-p");
        const struct sjob **rows = arena_alloc(&own, jobs.len * sizeof *rows);
        sort_rows(&jobs, by, rows);
        if (slurm_opt_given(o, "json")) {
            put_json(s, rows, jobs.len, &out);
        } else {
            if (!slurm_opt_given(o, "noheader"))
                slurm_columns_head(s, slurm_opt_given(o, "long"), &c, &out);
            for (uint32_t i = 0; i < jobs.len; i++)
                slurm_columns_row(&c, rows[i], &out);
        }
        status = cli_print(&out);
    }
    vec_done(&jobs);
    slurm_columns_done(&c);
    return status;
}

int squeue_run(struct slurm *s, int argc, char **argv) {
    struct opts o;
    int status;
    struct wanted w;
    uint32_t pause = 0;
    slurm_opts_init(&o, table, sizeof table / sizeof *table, 0);
    if (!slurm_opts_begin(&o, s, argc, argv, "SQUEUE", "[OPTIONS]", &status))
        return status;
    if (slurm_opt_get(&o, "iterate") && (parse_u32(slurm_opt_get(&o, "iterate"), &pause) < 0 || !pause)) {
        slurm_error(s, "--iterate=%s", slurm_opt_get(&o, "iterate"));
        return SLURM_FAILED;
    }
    if (check_rest(s, &o) || check_sort(s, slurm_opt_get(&o, "sort")) || slurm_check_clusters(s) ||
        read_wanted(s, &o, &w) || check_nodes(s, w.nodes))
        return SLURM_FAILED;
    if (slurm_opt_given(&o, "steps"))
        return slurm_steps_show(s,
                                slurm_opt_get(&o, "steps") ? slurm_opt_get(&o, "steps")
                                : o.argument_count         ? o.arguments[0]
                                                           : NULL,
                                &(struct step_show){.users = w.users,
                                                    .partitions = w.partitions,
                                                    .jobs = w.ids,
                                                    .format = slurm_opt_get(&o, "format"),
                                                    .names = slurm_opt_get(&o, "Format"),
                                                    .heading = !slurm_opt_given(&o, "noheader")});
    for (;;) {
        status = show(s, &o, &w);
        if (status || !pause)
            return status;
        sleep(pause);
    }
}
