// scancel
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "job_row.h"
#include "option.h"
#include "step_row.h"
#include "model/arrayspec.h"
#include "model/signalname.h"

static const struct opt table[] = {
    {"account", 'A', OPT_VALUE, OPT_DOES, "ACCOUNT", NULL, 0},
    {"batch", 'b', OPT_FLAG, OPT_DOES, "BATCH", NULL, 0},
    {"clusters", 'M', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"ctld", 0, OPT_FLAG, OPT_HARMLESS, "CTLD", "signals always go through the controller", 0},
    {"cron", 0, OPT_FLAG, OPT_HARMLESS, "CRON", "there are no jobs of scrontab", 0},
    {"full", 'f', OPT_FLAG, OPT_DOES, "FULL", NULL, 0},
    {"help", 0, OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"hurry", 'H', OPT_FLAG, OPT_HARMLESS, "HURRY", "nothing is staged out", 0},
    {"interactive", 'i', OPT_FLAG, OPT_DOES, "INTERACTIVE", NULL, 0},
    {"jobname", 'n', OPT_VALUE, OPT_DOES, "NAME", NULL, 0},
    {"me", 0, OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"name", 0, OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"nodelist", 'w', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"partition", 'p', OPT_VALUE, OPT_DOES, "PARTITION", NULL, 0},
    {"qos", 'q', OPT_VALUE, OPT_DOES, "QOS", NULL, 0},
    {"quiet", 'Q', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"reservation", 'R', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"sibling", 0, OPT_VALUE, OPT_HARMLESS, NULL, "there is one cluster", 0},
    {"signal", 's', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"state", 't', OPT_VALUE, OPT_DOES, "STATE", NULL, 0},
    {"usage", 0, OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"user", 'u', OPT_VALUE, OPT_DOES, "USER", NULL, 0},
    {"verbose", 'v', OPT_FLAG, OPT_DOES, "VERBOSE", NULL, 0},
    {"version", 'V', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"wckey", 0, OPT_VALUE, OPT_DOES, "WCKEY", NULL, 0},
};

enum { DENIED = 210 };  // Slurm's exit status of a job that is somebody else's

struct cancel_request {
    uint32_t signal;
    bool batch, full;
    const char *user, *names, *partition, *account, *qos, *nodes, *reservation;
    uint32_t states;
    const char *ids;  // joined by ','; NULL: by filter
    bool nobody;      // a filter that nothing here can match
};

static bool has_filter(const struct cancel_request *q) {
    return q->user || q->names || q->partition || q->account || q->qos || q->nodes || q->reservation || q->states ||
           q->nobody;
}

static bool matches(const struct cancel_request *q, const struct sjob *j) {
    return !q->nobody && slurm_list_has(q->user, j->user) && slurm_list_has(q->names, j->name) &&
           (!q->partition || streq(q->partition, j->partition)) && slurm_list_has(q->account, j->project) &&
           slurm_list_has(q->qos, j->qos ? j->qos : "normal") && (!q->states || q->states >> j->state & 1) &&
           slurm_ids_have(q->ids, j) &&
           !job_state_final(j->state) && (!q->nodes || slurm_nodes_meet(q->nodes, j->nodes)) &&
           (!q->reservation || (j->spec && streq(j->spec->reservation, q->reservation)));
}

static bool confirmed(const struct sjob *j) {
    char answer[16];
    printf("Cancel job_id=%s name=%s partition=%s [y/n]? ", j->label, j->name, j->partition);
    fflush(stdout);
    ssize_t n = read(STDIN_FILENO, answer, sizeof answer);
    return n > 0 && (*answer == 'y' || *answer == 'Y');
}

static int read_words(struct slurm *s, const struct opts *o, struct cancel_request *q) {
    const char *signal = slurm_opt_get(o, "signal");
    *q = (struct cancel_request){.batch = slurm_opt_given(o, "batch"),
                                 .full = slurm_opt_given(o, "full"),
                                 .partition = slurm_opt_get(o, "partition"),
                                 .account = slurm_opt_get(o, "account"),
                                 .qos = slurm_opt_get(o, "qos"),
                                 .nodes = slurm_opt_get(o, "nodelist"),
                                 .reservation = slurm_opt_get(o, "reservation"),
                                 .nobody = slurm_opt_given(o, "wckey"),
                                 .names = slurm_opt_get(o, "jobname") ? slurm_opt_get(o, "jobname")
                                                                      : slurm_opt_get(o, "name")};
    if (signal && signal_parse(signal, &q->signal, NULL) < 0) {
        fprintf(stderr, "Unknown job signal: %s\n", signal);
        return SLURM_FAILED;
    }
    if (slurm_opt_get(o, "user")) {
        q->user = slurm_user_name_of(&s->cli.arena, slurm_opt_get(o, "user"));
        if (!q->user) {
            slurm_error(s, "Invalid user name: %s", slurm_opt_get(o, "user"));
            return SLURM_FAILED;
        }
    }
    if (slurm_opt_given(o, "me"))
        q->user = slurm_own_name(&s->cli.arena);
    if (q->batch && !q->signal)
        q->signal = SIGKILL;  // the script alone, not the job's steps
    const char *state = slurm_opt_get(o, "state");
    for (const char *p = state; p && *p;) {
        const char *one = arena_strndup(&s->cli.arena, p, strcspn(p, ","));
        if (!slurm_states_known(one)) {
            fprintf(stderr,
                    "Invalid job state specified: %s\nValid job states are PENDING, RUNNING, and SUSPENDED\n",
                    one);
            return SLURM_FAILED;
        }
        p += strlen(one) + (p[strlen(one)] == ',');
    }
    return state && !(q->states = slurm_states_parse(s, state)) ? SLURM_FAILED : 0;
}

// The part after '_': a number, "[1-3,7]", or "*" for all.
static bool element_fits(struct slurm *s, const char *item) {
    const char *mark = strchr(item, '_');
    struct array_spec spec;
    if (!mark || streq(mark, "_*"))
        return true;
    size_t len = strcspn(mark + 1, ".");
    const char *inner = arena_strndup(&s->cli.arena, mark + 1, len);
    if (*inner != '[')
        return len && strspn(inner, "0123456789") == len;
    if (inner[len - 1] != ']' ||
        array_parse(arena_strndup(&s->cli.arena, inner + 1, len - 2), &s->cli.arena, &spec, NULL) < 0) {
        slurm_error(s, "_parse_single_range: Invalid range: `%.*s'", (int)strcspn(inner + 1, "]"), inner + 1);
        return false;
    }
    return true;
}

static size_t item_len(const char *p) {
    size_t n = 0;
    for (bool inside = false; p[n] && (inside || p[n] != ','); n++)
        inside = p[n] == '[' || (inside && p[n] != ']');
    return n;
}

static int read_ids(struct slurm *s, const struct opts *o, struct cancel_request *q) {
    cleanup_buf struct buf b = {0};
    const char *bad = NULL;
    for (int i = 0; i < o->argument_count; i++) {
        if (!*o->arguments[i] || !slurm_ids_plain(&s->cli.arena, o->arguments[i], &bad)) {
            slurm_error(s, "Invalid job id %s", bad ? bad : "");
            return SLURM_FAILED;
        }
        for (const char *p = o->arguments[i]; *p;) {
            size_t n = item_len(p);
            const char *item = arena_strndup(&s->cli.arena, p, n);
            if (!element_fits(s, item)) {
                slurm_error(s, "Invalid job id %s", item);
                return SLURM_FAILED;
            }
            p += n + (p[n] == ',');
        }
        buf_addf(&b, "%s%s", b.len ? "," : "", o->arguments[i]);
    }
    if (b.len)
        q->ids = arena_strdup(&s->cli.arena, buf_str(&b));
    if (q->ids || has_filter(q))
        return 0;
    slurm_error(s, "No job identification provided");
    return SLURM_FAILED;
}

// What -v tells before anything is sent.
static void tell(struct slurm *s, const struct cancel_request *q, const char *id, size_t len) {
    if (q->signal && q->signal != SIGKILL)
        slurm_verbose(s, "Signal %u to %sjob %.*s", q->signal, q->batch ? "batch " : "", (int)len, id);
    else
        slurm_verbose(s, "Terminating job %.*s", (int)len, id);
}

// Ids that the API takes as they are: no filter has to look at them first.
static bool plain(const struct opts *o, const struct cancel_request *q) {
    return q->ids && !has_filter(q) && !slurm_opt_given(o, "interactive");
}

// Jobs as a whole; steps ("12.0") go one by one.
static uint32_t write_ids(struct slurm *s, const struct opts *o, const struct cancel_request *q,
                          struct json_writer *w) {
    uint32_t count = 0;
    for (int i = 0; i < o->argument_count; i++)
        for (const char *p = o->arguments[i]; *p;) {
            size_t n = item_len(p);
            if (!memchr(p, '.', n)) {
                json_put_strn(w, p, n > 2 && !strncmp(p + n - 2, "_*", 2) ? n - 2 : n);
                tell(s, q, p, n);
                count++;
            }
            p += n + (p[n] == ',');
        }
    return count;
}

static int chosen(struct slurm *s, const struct opts *o, const struct cancel_request *q, struct json_writer *w) {
    sjob_vec jobs = {0};
    const char *bad;
    struct job_query query = {
        .live = true,
        .elements = true,
        .ids = q->ids ? slurm_ids_plain(&s->cli.arena, q->ids, &bad) : NULL,
        .fields = q->reservation
                      ? "id,label,array_id,array_index,name,user,partition,project,qos,state,nodes,spec"
                      : "id,label,array_id,array_index,name,user,partition,project,qos,state,nodes"};
    int status = slurm_jobs_fetch(s, &query, &jobs), count = 0;
    for (uint32_t i = 0; !status && i < jobs.len; i++)
        if (matches(q, &jobs.at[i]) && (!slurm_opt_given(o, "interactive") || confirmed(&jobs.at[i]))) {
            json_put_str(w, jobs.at[i].label);
            tell(s, q, jobs.at[i].label, strlen(jobs.at[i].label));
            count++;
        }
    vec_done(&jobs);
    return status ? -1 : count;
}

// What went wrong with single jobs. Unknown or ended ones are no failure, as in Slurm.
static int report(struct slurm *s, const struct cancel_request *q, const struct reply *r) {
    const struct json *errors = json_get(r->json, "errors");
    int status = SLURM_OK;
    for (uint32_t i = 0; errors && i < errors->len; i++) {
        const struct json *e = json_get(&errors->items[i], "error");
        const char *id = json_str(&errors->items[i], "id"), *code = e ? json_str(e, "code") : NULL;
        bool gone = streq(code, "ENOENT") || streq(code, "EALREADY");
        if ((gone && q->signal) || (q->batch && !streq(code, "EPERM"))) {  // nothing to send to
            if (!s->quiet)
                slurm_error(s, "Kill job error on job id %s: Invalid job id specified", id);
            status = SLURM_FAILED;
            continue;
        }
        if (gone) {
            if (s->verbose)
                slurm_error(s, "Kill job error on job id %s: %s", id,
                            streq(code, "ENOENT") ? "Invalid job id specified"
                                                  : "Job/step already completing or completed");
            continue;
        }
        const char *words = streq(code, "EPERM") ? "Access/permission denied" :
                            q->signal ? "Job/step not running" : e ? json_str(e, "message") : "failed";
        if (!s->quiet)
            slurm_error(s, "Kill job error on job id %s: %s", id, words);
        status = streq(code, "EPERM") ? DENIED : SLURM_FAILED;
    }
    return status;
}

static void write_how(const struct cancel_request *q, struct json_writer *w) {
    // KILL ends the job in Slurm, too, but at once; other signals are only sent, to the steps unless
    // something else is said.
    if (q->signal)
        json_kv_i64(w, "signal", q->signal);
    if (q->batch)
        json_kv_bool(w, "batch_only", true);
    else if (q->signal && !q->full)
        json_kv_bool(w, "steps_only", true);
}

static bool step_runs(struct slurm *s, const char *item, size_t len) {
    const char *list = arena_strndup(&s->cli.arena, item, len), *bad;
    sjob_vec jobs = {0};
    sstep_vec steps = {0};
    bool runs = false;
    struct job_query q = {.live = true, .fields = STEP_FIELDS, .ids = slurm_ids_plain(&s->cli.arena, list, &bad)};
    if (slurm_jobs_fetch(s, &q, &jobs) == 0)
        for (uint32_t i = 0; i < jobs.len; i++)
            slurm_steps_of(&s->cli.arena, &jobs.at[i], &steps);
    for (uint32_t i = 0; i < steps.len; i++)
        runs |= !job_state_final(steps.at[i].state) && slurm_ids_have_step(list, steps.at[i].job, steps.at[i].id);
    vec_done(&jobs);
    vec_done(&steps);
    return runs;
}

static int cancel_step(struct slurm *s, const struct cancel_request *q, const char *item, size_t len) {
    cleanup_buf struct buf body = {0};
    struct json_writer w = {.out = &body};
    struct reply r;
    struct cancel_request how = *q;
    const char *dot = memchr(item, '.', len),
               *step = arena_strndup(&s->cli.arena, dot + 1, len - (size_t)(dot + 1 - item));
    uint32_t number = 0;
    how.batch = streq(step, "batch");
    if (!how.batch && parse_u32(step, &number) < 0) {
        slurm_error(s, "Invalid job id %.*s", (int)len, item);
        return SLURM_FAILED;
    }
    if (how.batch && !how.signal)
        how.signal = SIGTERM;
    if (!step_runs(s, item, len)) {
        if (!s->quiet)
            slurm_error(s, "Kill job error on job step id %.*s: Invalid job id specified", (int)len, item);
        return SLURM_FAILED;
    }
    json_open(&w, '{');
    json_open_key(&w, "ids", '[');
    json_put_strn(&w, item, (size_t)(dot - item));
    json_close(&w, ']');
    if (!how.batch)
        json_kv_i64(&w, "step", (int64_t)number + 1);
    write_how(&how, &w);
    json_close(&w, '}');
    return slurm_post(s, "/v1/jobs/cancel", &body, &r) ? SLURM_FAILED : report(s, &how, &r);
}

static int cancel_steps(struct slurm *s, const struct opts *o, const struct cancel_request *q) {
    int status = SLURM_OK;
    for (int i = 0; i < o->argument_count; i++)
        for (const char *p = o->arguments[i]; *p;) {
            size_t n = item_len(p);
            if (memchr(p, '.', n) && cancel_step(s, q, p, n))
                status = SLURM_FAILED;
            p += n + (p[n] == ',');
        }
    return status;
}

int scancel_run(struct slurm *s, int argc, char **argv) {
    struct opts o;
    struct cancel_request q;
    struct reply r;
    cleanup_buf struct buf body = {0};
    struct json_writer w = {.out = &body};
    int status;
    slurm_opts_init(&o, table, sizeof table / sizeof *table, 0);
    if (!slurm_opts_begin(&o, s, argc, argv, "SCANCEL", "[OPTIONS] [job_id[_array_id][.step_id]]", &status))
        return status;
    s->quiet = slurm_opt_given(&o, "quiet");
    if (read_words(s, &o, &q) || read_ids(s, &o, &q) || slurm_check_clusters(s))
        return SLURM_FAILED;
    uint32_t count = 1;
    json_open(&w, '{');
    json_open_key(&w, "ids", '[');
    if (plain(&o, &q))
        count = write_ids(s, &o, &q, &w);
    else if (chosen(s, &o, &q, &w) < 0)
        return SLURM_FAILED;
    json_close(&w, ']');
    write_how(&q, &w);
    json_close(&w, '}');
    status = plain(&o, &q) ? cancel_steps(s, &o, &q) : SLURM_OK;
    int jobs = !count ? SLURM_OK : slurm_post(s, "/v1/jobs/cancel", &body, &r) ? SLURM_FAILED : report(s, &q, &r);
    return jobs ? jobs : status;
}
