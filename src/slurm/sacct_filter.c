// Owns sacct's choice of jobs. Times are whole seconds as in Slurm's history: a job without named states
// is in the window when it could have run before its end and had not ended before its beginning; one with
// named states when it was pending or running at some time in it, or ended in it in such a state.
#include "sacct_filter.h"

#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/term/local_time.h"

static int take_time(const char *text, int64_t *out_s) {
    int64_t at_ms;
    if (str_empty(text))
        return 0;
    if (local_time_parse(text, clock_wall_ms(), TIME_TODAY, &at_ms, NULL) == 0) {
        *out_s = at_ms / 1000;
        return 0;
    }
    fprintf(stderr, "Invalid time specification (pos=0): %s\n", text);
    return SLURM_FAILED;
}

static int64_t midnight_s(int64_t now_s) {
    time_t now = (time_t)now_s;
    struct tm tm;
    localtime_r(&now, &tm);
    tm.tm_sec = tm.tm_min = tm.tm_hour = 0;
    return (int64_t)mktime(&tm);
}

// Defaults: the day so far; of named jobs all there is; of named states this moment.
static int take_window(struct slurm *s, const struct opts *o, struct acct_wanted *w) {
    char from[UNIT_TEXT_MAX], to[UNIT_TEXT_MAX];
    if (take_time(slurm_opt_get(o, "starttime"), &w->from_s) ||
        take_time(slurm_opt_get(o, "endtime"), &w->to_s))
        return SLURM_FAILED;
    if (!w->from_s && !w->ids)
        w->from_s = w->by_state ? w->now_s : midnight_s(w->now_s);
    if (!w->to_s)
        w->to_s = w->by_state && w->from_s ? w->from_s : w->now_s;
    if (w->from_s > w->to_s) {
        slurm_error(s, "Start time (%s) requested is after end time (%s).", slurm_time(w->from_s * 1000, "", from),
                    slurm_time(w->to_s * 1000, "", to));
        return SLURM_FAILED;
    }
    if (w->to_s == w->from_s || w->to_s == w->now_s)
        w->to_s++;  // that second is inside
    return 0;
}

static const char *users_of(struct slurm *s, const char *text) {
    cleanup_buf struct buf b = {0};
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, ",");
        const char *one = arena_strndup(&s->cli.arena, p, n), *name = slurm_user_name_of(&s->cli.arena, one);
        if (!name) {
            slurm_error(s, "Invalid user id: %s", one);
            return NULL;
        }
        buf_addf(&b, "%s%s", b.len ? "," : "", name);
        p += n + (p[n] == ',');
    }
    return arena_strdup(&s->cli.arena, buf_str(&b));
}

static int take_people(struct slurm *s, const struct opts *o, struct acct_wanted *w) {
    const char *user = slurm_opt_get(o, "user") ? slurm_opt_get(o, "user") : slurm_opt_get(o, "uid");
    const char *group = slurm_opt_get(o, "group") ? slurm_opt_get(o, "group") : slurm_opt_get(o, "gid");
    if (group) {
        struct group *g = getgrnam(group);
        if (!g && parse_u32(group, &w->gid) < 0) {
            slurm_error(s, "Invalid group id: %s", group);
            return SLURM_FAILED;
        }
        w->gid = g ? g->gr_gid : w->gid;
        w->by_group = true;
    }
    if (user)
        return (w->users = users_of(s, user)) ? 0 : SLURM_FAILED;
    if (!slurm_opt_given(o, "allusers") && !w->ids && geteuid() != 0)
        w->users = slurm_own_name(&s->cli.arena);
    return 0;
}

static int take_states(struct slurm *s, const struct opts *o, struct acct_wanted *w) {
    const char *states = slurm_opt_get(o, "state");
    for (const char *p = states; p && *p;) {
        const char *one = arena_strndup(&s->cli.arena, p, strcspn(p, ","));
        if (!slurm_states_known(one)) {
            slurm_fatal(s, "unrecognized job state value '%s'", one);
            return SLURM_FAILED;
        }
        p += strlen(one) + (p[strlen(one)] == ',');
    }
    w->by_state = !str_empty(states);
    return w->by_state && !(w->states = slurm_states_parse(s, states)) ? SLURM_FAILED : 0;
}

// "2", "2-5"
static int take_range(struct slurm *s, const char *text, const char *what, struct acct_range *out) {
    const char *dash = text ? strchr(text, '-') : NULL;
    if (!text)
        return 0;
    const char *low = dash ? arena_strndup(&s->cli.arena, text, (size_t)(dash - text)) : text;
    if (parse_u32(low, &out->low) < 0 || (dash && parse_u32(dash + 1, &out->high) < 0)) {
        slurm_error(s, "Invalid numeric value \"%s\" for requested %s.", text, what);
        return SLURM_FAILED;
    }
    out->high = dash ? out->high : out->low;
    out->given = true;
    return 0;
}

// Of the time limit: at least -k, at most -K; -k alone means that very limit.
static int take_limits(struct slurm *s, const struct opts *o, struct acct_wanted *w) {
    const char *low = slurm_opt_get(o, "timelimit-min"), *high = slurm_opt_get(o, "timelimit-max");
    uint32_t least = 0, most = 0;
    if ((low && duration_parse(low, 60, &least, NULL) < 0) || (high && duration_parse(high, 60, &most, NULL) < 0)) {
        slurm_fatal(s, "Invalid timelimit specification");
        return SLURM_FAILED;
    }
    if (low || high)
        w->limit_s = (struct acct_range){true, least, high ? most : least};
    return 0;
}

static int take_qos(struct slurm *s, const char *list, struct acct_wanted *w) {
    struct reply r;
    cleanup_buf struct buf known = {0};
    if (!list)
        return 0;
    if (slurm_get(s, "/v1/qos", &r))
        return SLURM_FAILED;
    const struct json *all = json_get(r.json, "qos");
    buf_adds(&known, "normal");
    for (uint32_t i = 0; all && i < all->len; i++)
        if (!streq(json_str(&all->items[i], "name"), "normal"))
            buf_addf(&known, ",%s", json_str(&all->items[i], "name"));
    for (const char *p = list; *p;) {
        const char *one = arena_strndup(&s->cli.arena, p, strcspn(p, ","));
        if (!slurm_list_has(buf_str(&known), one)) {
            slurm_error(s, "You gave a bad qos '%s'. Valid QOS's are %s", one, buf_str(&known));
            slurm_fatal(s, "problem processing qos list");
            return SLURM_FAILED;
        }
        p += strlen(one) + (p[strlen(one)] == ',');
    }
    w->qos = list;
    return 0;
}

int sacct_wanted_read(struct slurm *s, const struct opts *o, const char *ids, struct acct_wanted *w) {
    const char *bad = NULL, *jobs = ids ? ids : slurm_opt_get(o, "jobs");
    *w = (struct acct_wanted){.ids = str_empty(jobs) ? NULL : jobs,
                              .accounts = slurm_opt_get(o, "accounts") ? slurm_opt_get(o, "accounts")
                                                                       : slurm_opt_get(o, "account"),
                              .names = slurm_opt_get(o, "name"),
                              .partitions = slurm_opt_get(o, "partition"),
                              .nodes = slurm_opt_get(o, "nodelist"),
                              .features = slurm_opt_get(o, "constraints"),
                              .nobody = slurm_opt_given(o, "wckeys"),
                              .truncate = slurm_opt_given(o, "truncate"),
                              .states = STATES_ALL,
                              .now_s = clock_wall_ms() / 1000};
    if (w->ids && !slurm_ids_plain(&s->cli.arena, w->ids, &bad)) {
        slurm_fatal(s, "Bad job/step specified: %s", bad);
        return SLURM_FAILED;
    }
    return take_people(s, o, w) || take_states(s, o, w) || take_window(s, o, w) || take_limits(s, o, w) ||
                   take_range(s, slurm_opt_get(o, "nnodes"), "node range", &w->node_count) ||
                   take_range(s, slurm_opt_get(o, "ncpus"), "cpu range", &w->cpus) ||
                   take_qos(s, slurm_opt_get(o, "qos"), w)
               ? SLURM_FAILED
               : 0;
}

static bool within(const struct acct_range *r, uint32_t n) {
    return !r->given || (n >= r->low && n <= r->high);
}

static bool in_state_then(const struct acct_wanted *w, const struct sjob *j, uint32_t state) {
    int64_t eligible = j->hold && j->state == JOB_PENDING ? 0 : j->eligible_ms / 1000;
    int64_t start = j->start_ms / 1000, end = j->end_ms / 1000;
    if (j->state == JOB_COMPLETING && !end)
        end = w->now_s;  // to history it has ended
    switch (state) {
    case JOB_PENDING:
        return eligible && w->to_s > eligible &&
               (start ? w->from_s < start : end ? w->from_s < end : j->state == JOB_PENDING);
    case JOB_RUNNING:
        return start && w->to_s > start &&
               (end ? w->from_s < end : j->state == JOB_RUNNING || j->state == JOB_STARTING);
    case JOB_SUSPENDED:
        return start && w->to_s > start && (!end || w->from_s <= end) &&
               (j->state == JOB_SUSPENDED || j->suspended_ms);
    default: return j->state == state && (!end || (end >= w->from_s && end <= w->to_s));
    }
}

static bool in_window(const struct acct_wanted *w, const struct sjob *j) {
    int64_t end = j->end_ms / 1000;
    if (!w->by_state) {
        int64_t first = w->ids                                   ? j->submit_ms / 1000
                        : j->hold && j->state == JOB_PENDING     ? 0
                                                                 : j->eligible_ms / 1000;
        return first && first < w->to_s && (!end || end >= w->from_s);
    }
    for (uint32_t state = 0; state < JOB_STATE_COUNT; state++)
        if (w->states >> state & 1 && in_state_then(w, j, state))
            return true;
    return false;
}

// "12+1" is one component here, while squeue shows all of its job.
static bool has_component(const char *ids, const struct sjob *j) {
    uint64_t job;
    uint32_t offset;
    if (!ids || !strchr(ids, '+') || !slurm_job_component(j, &job, &offset))
        return true;
    for (const char *p = ids; *p; p += *p == ',') {
        char *end;
        bool own = strtoull(p, &end, 10) == job;
        if (own && (*end != '+' || strtoul(end + 1, NULL, 10) == offset))
            return true;
        p += strcspn(p, ",");
    }
    return false;
}

bool sacct_wanted_has(const struct acct_wanted *w, const struct sjob *j) {
    return !w->nobody && in_window(w, j) && slurm_list_has(w->users, j->user) &&
           slurm_list_has(w->accounts, j->project) && slurm_list_has(w->names, j->name) &&
           slurm_list_has(w->partitions, j->partition) &&
           slurm_list_has(w->qos, j->qos ? j->qos : "normal") && slurm_ids_have(w->ids, j) &&
           has_component(w->ids, j) && (!w->nodes || slurm_nodes_meet(w->nodes, j->nodes)) &&
           (!w->by_group || (j->spec && j->spec->gid == w->gid)) &&
           (!w->features ||
            (j->spec && j->spec->features && slurm_list_has(w->features, j->spec->features))) &&
           within(&w->node_count, j->node_count ? j->node_count : 1) && within(&w->cpus, j->cpus) &&
           within(&w->limit_s, j->time_limit_s);
}

static const char *one_of(const struct acct_wanted *w, const char *list) {
    return list && !w->ids && !strchr(list, ',') ? list : NULL;
}

struct job_query sacct_wanted_query(struct slurm *s, const struct acct_wanted *w, const char *fields,
                                    bool elements) {
    const char *bad;
    enum { ENDED = STATES_ALL & ~STATES_LIVE };
    bool only_ended = w->by_state && !(w->states & STATES_LIVE);
    // What waited in the window may have begun after it.
    bool began = !w->ids && w->to_s < w->now_s && (!w->by_state || !(w->states >> JOB_PENDING & 1));
    return (struct job_query){.fields = fields,
                              .live = true,
                              .finished = true,
                              .since_ms = w->from_s * 1000,
                              .to_ms = began ? w->to_s * 1000 + 999 : 0,
                              .elements = elements,
                              .components = true,
                              .user = w->ids ? NULL : w->users,
                              .project = w->ids ? NULL : w->accounts,
                              .partition = w->ids ? NULL : w->partitions,
                              .name = one_of(w, w->names),
                              .states = w->ids || !only_ended ? 0 : w->states & ENDED,
                              .ids = w->ids ? slurm_ids_plain(&s->cli.arena, w->ids, &bad) : NULL};
}

const char *sacct_wanted_fields(struct arena *a, const struct acct_wanted *w, const char *fields) {
    return arena_printf(a, "%s,submit_ms,eligible_ms,start_ms,end_ms,hold%s%s%s%s%s%s%s%s%s%s%s", fields,
                        w->users ? ",user" : "", w->accounts ? ",project" : "", w->names ? ",name" : "",
                        w->partitions ? ",partition" : "", w->qos ? ",qos" : "", w->nodes ? ",nodes" : "",
                        w->by_group || w->features ? ",spec" : "", w->node_count.given ? ",node_count" : "",
                        w->cpus.given ? ",cpus" : "", w->limit_s.given ? ",time_limit_s" : "",
                        w->by_state && w->states >> JOB_SUSPENDED & 1 ? ",suspended_ms" : "");
}

void sacct_wanted_cut(const struct acct_wanted *w, struct sjob *j) {
    int64_t to_s = w->to_s > w->now_s ? w->now_s : w->to_s;
    if (!w->truncate || !j->start_ms)
        return;
    if (j->start_ms / 1000 < w->from_s)
        j->start_ms = w->from_s * 1000;
    if (!j->end_ms || j->end_ms / 1000 > to_s)
        j->end_ms = to_s * 1000;
}
