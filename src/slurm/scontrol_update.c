// Owns what scontrol changes of jobs.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/job/resubmit.h"
#include "cli/term/local_time.h"
#include "submit_options.h"
#include "job_row.h"
#include "scontrol.h"
#include "model/gpuspec.h"

static void write_ids(const char *list, struct json_writer *w) {
    for (const char *p = list; *p;) {
        size_t n = 0;
        for (bool inside = false; p[n] && (inside || p[n] != ','); n++)
            inside = p[n] == '[' || (inside && p[n] != ']');
        json_put_strn(w, p, n);
        p += n + (p[n] == ',');
    }
}

// `soft`: of requeue, suspend and resume, which have other words for some errors.
static const char *error_words(const struct json *e, bool soft) {
    const char *code = json_str(e, "code"), *message = json_str(e, "message");
    const char *words = message ? slurm_submit_words(message) : NULL;
    if (words && !streq(code, "EPERM"))
        return words;
    if (streq(code, "ENOENT"))
        return "Invalid job id specified";
    if (message && (strstr(message, "is PENDING; only a running") || strstr(message, "is STARTING; only a running")))
        return "Job is pending execution";
    if (message && strstr(message, "can be changed now"))
        return "Job is no longer pending execution";
    if (words)
        return "Access/permission denied";
    if (streq(code, "EPERM") || streq(code, "EACCES"))  // Slurm has two words for it
        return soft ? "Access/permission denied" : "Invalid user id";
    if (streq(code, "EALREADY"))
        return soft ? "Job/step already completing or completed" : "Job has already finished";
    return message ? message : "Unspecified error";
}

// A job that has ended keeps its id here: what Slurm would run again under it becomes a new job.
static bool submit_again(struct scontrol *c, const char *id, const char *word) {
    struct reply r;
    struct slurm *s = c->s;
    struct job_resubmit q = {.id = id, .hold = streq(word, "requeuehold")};
    if (job_resubmit(&s->cli, s->client, &q, &r) < 0)
        return false;
    if (!c->quiet)
        fprintf(stderr, "scontrol: job %s has ended; submitted again as job %lld\n", id,
                (long long)json_i64(r.json, "id", 0));
    return true;
}

static int report(struct scontrol *c, const struct reply *r, const char *word) {
    const struct json *errors = json_get(r->json, "errors");
    bool twice = streq(word, "hold") || streq(word, "uhold") || streq(word, "release");
    bool soft = !twice && !streq(word, "update");
    uint32_t again = 0;
    for (uint32_t i = 0; errors && i < errors->len; i++) {
        const struct json *e = json_get(&errors->items[i], "error");
        const char *id = json_str(&errors->items[i], "id");
        if (str_has_prefix(word, "requeue") && streq(json_str(e, "code"), "EALREADY") && submit_again(c, id, word)) {
            again++;
            continue;
        }
        if (!c->quiet)
            fprintf(stderr, "%s for job %s\n", error_words(e, soft), json_str(&errors->items[i], "id"));
    }
    if (errors && errors->len && twice && !c->quiet)
        fprintf(stderr, "slurm_suspend error: %s\n", error_words(json_get(&errors->items[0], "error"), soft));
    return errors && errors->len > again ? SLURM_FAILED : SLURM_OK;
}

// Resuming what runs and requeueing what waits does nothing; Slurm says so.
static bool no_use(struct scontrol *c, const char *ids, bool resume, bool *some) {
    sjob_vec jobs = {0};
    const char *wrong = NULL;
    struct job_query q = {.fields = "id,label,state,array_id,array_index,user",
                          .ids = slurm_ids_plain(&c->s->cli.arena, ids, &wrong)};
    const char *me = slurm_own_name(&c->s->cli.arena);
    uint32_t found = 0;
    int status = slurm_jobs_fetch(c->s, &q, &jobs);
    for (uint32_t i = 0; !status && i < jobs.len; i++) {
        const struct sjob *j = &jobs.at[i];
        if (!resume && geteuid() != 0 && !streq(j->user, me))
            continue;  // that it is not theirs comes first
        if ((!resume || j->state != JOB_RUNNING) && j->state != JOB_PENDING)
            continue;
        fprintf(stderr, "%s for job %s\n",
                j->state == JOB_RUNNING ? "Job is not suspended" : "Job is pending execution", j->label);
        found++;
    }
    *some = found;
    bool all = found && found == jobs.len;
    vec_done(&jobs);
    return all;
}

int scontrol_act(struct scontrol *c, const char *word, const char *action, bool hold, int argc, char **argv) {
    cleanup_buf struct buf body = {0}, list = {0};
    struct json_writer w = {.out = &body};
    struct reply r;
    const char *name = NULL, *bad = NULL;
    for (int i = 1; i < argc; i++) {
        const char *equals = strchr(argv[i], '=');
        if (equals && (!strncasecmp(argv[i], "name=", 5) || !strncasecmp(argv[i], "jobname=", 8)))
            name = equals + 1;
        else
            buf_addf(&list, "%s%s", list.len ? "," : "", equals ? equals + 1 : argv[i]);
    }
    if (list.len && !slurm_ids_plain(&c->s->cli.arena, buf_str(&list), &bad)) {
        fprintf(stderr, "Invalid job id specified for job %s\n", bad);
        return SLURM_FAILED;
    }
    json_open(&w, '{');
    if (list.len) {
        json_open_key(&w, "ids", '[');
        write_ids(buf_str(&list), &w);
        json_close(&w, ']');
    } else if (name) {
        json_kv_str(&w, "name", name);
    }
    if (hold)
        json_kv_bool(&w, "hold", true);
    if (streq(action, "hold"))  // an administrator's own hold, unless it is asked for as a user's
        json_kv_str(&w, "as", streq(word, "uhold") ? "user" : "admin");
    json_close(&w, '}');
    bool resume = streq(action, "resume"), some = false;
    if ((resume || streq(action, "requeue")) && list.len && no_use(c, buf_str(&list), resume, &some))
        return SLURM_FAILED;
    if (slurm_post(c->s, arena_printf(&c->s->cli.arena, "/v1/jobs/%s", action), &body, &r))
        return SLURM_FAILED;
    return report(c, &r, word) || some ? SLURM_FAILED : SLURM_OK;
}

static int bad(const char *name, const char *value) {
    bool told = slurm_same_word(name, "Priority") || slurm_same_word(name, "Requeue");
    fprintf(stderr, "scontrol: error: Invalid %s value%s%s\n", name, told ? ": " : "", told ? value : "");
    return -1;
}

static int put_seconds(struct json_writer *w, const char *key, const char *name, const char *v) {
    uint32_t seconds;
    if (slurm_same_word(v, "unlimited") || slurm_same_word(v, "infinite"))
        seconds = DURATION_LIMIT_S;
    else if (duration_parse(v, 60, &seconds, NULL) < 0)
        return bad(name, v);
    json_kv_i64(w, key, seconds == DURATION_UNLIMITED ? DURATION_LIMIT_S : seconds);
    return 0;
}

static int put_moment(struct json_writer *w, const char *key, const char *name, const char *v) {
    int64_t at;
    if (local_time_parse(v, clock_wall_ms(), TIME_NEXT, &at, NULL) < 0) {
        fprintf(stderr, "Invalid time specification (pos=0): %s\nNo changes specified\n", v);
        return -1;
    }
    json_kv_i64(w, key, at);
    return 0;
}

static int put_count(struct json_writer *w, const char *key, const char *name, const char *v) {
    int64_t n;
    if (parse_i64(v, &n) < 0)
        return bad(name, v);
    json_kv_i64(w, key, n);
    return 0;
}

static int put_nodes(struct json_writer *w, const char *name, const char *v) {
    char *dash;
    unsigned long low = strtoul(v, &dash, 10), high = *dash == '-' ? strtoul(dash + 1, NULL, 10) : low;
    if (!low || high < low || high > UINT32_MAX)
        return bad(name, v);
    json_kv_i64(w, "nodes_min", (int64_t)low);
    json_kv_i64(w, "nodes_max", (int64_t)high);
    return 0;
}

static int put_size(struct json_writer *w, const char *key, const char *name, const char *v) {
    uint64_t bytes;
    if (size_parse(v, SIZE_M, &bytes, NULL) < 0)
        return bad(name, v);
    json_kv_i64(w, key, (int64_t)bytes);
    return 0;
}

// What Slurm lets be changed and has no meaning here.
static bool has_no_effect(const char *name) {
    static const char *const names[] = {
        "OverSubscribe", "Shared",      "Contiguous", "AdminComment",
        "SystemComment", "WCKey",       "MailUser",   "MailType",        "MinTmpDiskNode",
        "CoreSpec",      "ThreadSpec",  "Switches",   "Network",         "Power",
        "DelayBoot",     "SiteFactor",  "Prefer",     "ClusterFeatures", "Extra",
        "ReqThreads",    "ReqCores",    "ReqSockets", "ResetAccrueTime"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (slurm_same_word(name, names[i]))
            return true;
    return false;
}

// Own jobs of a name; NULL: none.
static const char *jobs_named(struct scontrol *c, const char *name) {
    sjob_vec jobs = {0};
    cleanup_buf struct buf ids = {0};
    struct job_query q = {.fields = "id,label,state,name,array_id,array_index",
                          .live = true,
                          .name = name,
                          .user = slurm_own_name(&c->s->cli.arena)};
    if (slurm_jobs_fetch(c->s, &q, &jobs) == 0)
        for (uint32_t i = 0; i < jobs.len; i++)
            buf_addf(&ids, "%s%llu", ids.len ? "," : "",
                     (unsigned long long)(jobs.at[i].array_id ? jobs.at[i].array_id : jobs.at[i].id));
    vec_done(&jobs);
    return ids.len ? arena_strdup(&c->s->cli.arena, buf_str(&ids)) : NULL;
}

// One NAME=VALUE of "update JobId=12 …". 1: not known.
static int put_change(struct json_writer *w, const char *name, const char *v) {
    static const struct {
        const char *name, *key;
    } texts[] = {{"JobName", "name"},
                 {"Name", "name"},
                 {"Partition", "partition"},
                 {"QOS", "qos"},
                 {"Account", "project"},
                 {"Comment", "comment"},
                 {"Dependency", "dependency"},
                 {"Features", "features"},
                 {"Licenses", "licenses"},
                 {"NodeList", "nodes"},
                 {"ReqNodeList", "nodes"},
                 {"ExcNodeList", "exclude"},
                 {"ReservationName", "reservation"},
                 {"Reservation", "reservation"},
                 {"WorkDir", "workdir"},
                 {"StdOut", "output"}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (slurm_same_word(name, texts[i].name)) {
            json_kv_str(w, texts[i].key, v);
            return 0;
        }
    if (slurm_same_word(name, "TimeLimit"))
        return put_seconds(w, "time_limit_s", "TimeLimit", v);
    if (slurm_same_word(name, "TimeMin"))
        return put_seconds(w, "time_min_s", "TimeMin", v);
    if (slurm_same_word(name, "StartTime") || slurm_same_word(name, "EligibleTime"))
        return put_moment(w, "begin_ms", "StartTime", v);
    if (slurm_same_word(name, "Deadline"))
        return put_moment(w, "deadline_ms", name, v);
    if (slurm_same_word(name, "Nice"))
        return put_count(w, "nice", name, v);
    if (slurm_same_word(name, "NumCPUs"))
        return put_count(w, "tasks", name, v);
    if (has_no_effect(name))
        return 0;
    if (slurm_same_word(name, "NumTasks"))
        return put_count(w, "tasks", name, v);
    if (slurm_same_word(name, "CPUsPerTask"))
        return put_count(w, "cpus_per_task", name, v);
    if (slurm_same_word(name, "Priority"))
        return put_count(w, "priority", "Priority", v);
    if (slurm_same_word(name, "ArrayTaskThrottle"))
        return put_count(w, "array_limit", name, v);
    if (slurm_same_word(name, "NumNodes"))
        return put_nodes(w, name, v);
    if (slurm_same_word(name, "MinMemoryNode") || slurm_same_word(name, "MinMemoryCPU")) {  // one of them only
        bool node = slurm_same_word(name, "MinMemoryNode");
        json_kv_i64(w, node ? "memory_per_cpu_bytes" : "memory_per_node_bytes", 0);
        return put_size(w, node ? "memory_per_node_bytes" : "memory_per_cpu_bytes", name, v);
    }
    if (slurm_same_word(name, "Requeue")) {
        if (!streq(v, "0") && !streq(v, "1"))
            return bad("Requeue", v);
        json_kv_bool(w, "requeue", streq(v, "1"));
        return 0;
    }
    if (slurm_same_word(name, "Gres") || slurm_same_word(name, "TresPerNode")) {
        struct gpu_spec g;
        if (gpu_spec_parse(v, &g, NULL) < 0)
            return bad(name, v);
        json_kv_i64(w, "gpus_per_node_milli", g.milli);
        return 0;
    }
    return 1;
}

// The first job that is meant; false: there is none.
static bool first_job(struct scontrol *c, const char *ids, struct sjob *out) {
    sjob_vec jobs = {0};
    const char *wrong = NULL;
    struct job_query q = {.fields = "id,label,state,time_limit_s,array_id,array_index,start_ms,hold,"
                                    "suspended_ms,nice,user,partition",
                          .ids = slurm_ids_plain(&c->s->cli.arena, ids, &wrong)};
    bool found = slurm_jobs_fetch(c->s, &q, &jobs) == 0 && jobs.len;
    if (found)
        *out = jobs.at[0];
    vec_done(&jobs);
    return found;
}

// "+5", "-2": minutes more or less than now, of the first job that is meant.
static int put_relative(struct scontrol *c, struct json_writer *w, const char *ids, char sign, const char *v) {
    struct sjob j;
    uint32_t seconds;
    if (duration_parse(v, 60, &seconds, NULL) < 0 || !first_job(c, ids, &j))
        return bad("TimeLimit", v);
    int64_t now = j.time_limit_s, then = sign == '+' ? now + seconds : now - (int64_t)seconds;
    if (now >= DURATION_LIMIT_S || then < 60)
        return bad("TimeLimit", v);
    json_kv_i64(w, "time_limit_s", then);
    return 0;
}

// The end is a time limit, counted from the start.
static int put_end(struct scontrol *c, struct json_writer *w, const char *ids, const char *v) {
    struct sjob j;
    int64_t at;
    if (local_time_parse(v, clock_wall_ms(), TIME_NEXT, &at, NULL) < 0) {
        fprintf(stderr, "Invalid time specification (pos=0): %s\n", v);
        return -1;
    }
    if (!first_job(c, ids, &j) || !j.start_ms || job_state_final(j.state)) {
        fprintf(stderr, "Job is not running for job %s\n", ids);
        return -1;
    }
    int64_t minutes = (at - j.start_ms - j.suspended_ms) / 60000;
    json_kv_i64(w, "time_limit_s", minutes > 1 ? minutes * 60 : 60);
    return 0;
}

// What is no text or number of the job's spec. 1: none of these; -1: refused, and said why.
static int put_special(struct scontrol *c, struct json_writer *w, const char *ids, const char *word, const char *v) {
    const char *name = arena_strndup(&c->s->cli.arena, word, strcspn(word, "=+-"));
    char sign = word[strlen(name)];  // "TimeLimit+=5", "TimeLimit=+5"
    if (slurm_same_word(name, "TimeLimit") && (sign == '+' || sign == '-'))
        return put_relative(c, w, ids, sign, v);
    if (slurm_same_word(name, "TimeLimit") && (*v == '+' || *v == '-'))
        return put_relative(c, w, ids, *v, v + 1);
    if (slurm_same_word(name, "EndTime"))
        return put_end(c, w, ids, v);
    if (slurm_same_word(name, "BurstBuffer")) {
        fprintf(stderr, "Requested operation not supported on this system for job %s\n", ids);
        return -1;
    }
    struct sjob j;
    uint32_t number;
    if (slurm_same_word(name, "Priority") && parse_u32(v, &number) == 0 && first_job(c, ids, &j) && j.hold &&
        !job_state_final(j.state)) {
        fprintf(stderr, "Job is in held state, pending scheduler release for job %s\n", ids);
        return -1;
    }
    return 1;
}

static int update_job(struct scontrol *c, const char *ids, int argc, char **argv) {
    cleanup_buf struct buf body = {0};
    struct json_writer w = {.out = &body};
    struct reply r;
    const char *priority = scontrol_value(argc, argv, "Priority"), *wrong = NULL;
    uint32_t changes = 0;
    if (!slurm_ids_plain(&c->s->cli.arena, ids, &wrong)) {
        fprintf(stderr, "Invalid job id specified for job %s\n", wrong);
        return SLURM_FAILED;
    }
    if (streq(priority, "0")) {  // Slurm's way to hold
        char *hold[] = {argv[0], arena_strdup(&c->s->cli.arena, ids)};
        return scontrol_act(c, "update", "hold", false, 2, hold);
    }
    json_open(&w, '{');
    json_open_key(&w, "ids", '[');
    write_ids(ids, &w);
    json_close(&w, ']');
    json_open_key(&w, "spec", '{');
    for (int i = 0; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        const char *name = arena_strndup(&c->s->cli.arena, argv[i], strcspn(argv[i], "=+-"));
        if (slurm_same_word(argv[i], "Job") || slurm_same_word(argv[i], "JobId")) {  // its id is the next word
            i++;
            continue;
        }
        if (!equals && !slurm_same_word(name, "Nice") && !slurm_same_word(name, "ResetAccrueTime")) {
            fprintf(stderr, "Invalid input: %s\nRequest aborted\n", argv[i]);
            return SLURM_FAILED;
        }
        if (slurm_same_word(name, "JobId") || slurm_same_word(name, "Job"))
            continue;
        const char *value = equals ? equals + 1 : "100";
        int n = put_special(c, &w, ids, argv[i], value);
        if (n > 0)
            n = put_change(&w, name, value);
        changes++;
        if (n > 0)
            fprintf(stderr, "Update of this parameter is not supported: %s\nRequest aborted\n", argv[i]);
        if (n)
            return SLURM_FAILED;
    }
    json_close(&w, '}');
    json_close(&w, '}');
    if (!changes) {
        fprintf(stderr, "No changes specified\n");
        return SLURM_FAILED;
    }
    return slurm_post(c->s, "/v1/jobs/update", &body, &r) ? SLURM_FAILED : report(c, &r, "update");
}

static int update_nice(struct scontrol *c, const struct sjob *j, int64_t nice) {
    cleanup_buf struct buf body = {0};
    struct reply r;
    buf_addf(&body, "{\"ids\":[\"%llu\"],\"spec\":{\"nice\":%lld}}", (unsigned long long)j->id, (long long)nice);
    return slurm_post(c->s, "/v1/jobs/update", &body, &r) ? SLURM_FAILED : report(c, &r, "update");
}

// Before the other waiting jobs of its user and partition: nicer than the least nice of them by one.
static int to_the_top(struct scontrol *c, const char *id) {
    struct sjob j;
    sjob_vec jobs = {0};
    if (!first_job(c, id, &j)) {
        fprintf(stderr, "Invalid job id specified for job %s\n", id);
        return SLURM_FAILED;
    }
    const char *wrong = job_state_final(j.state)  ? "Job has already finished"
                        : j.state != JOB_PENDING ? "Job is no longer pending execution"
                        : j.hold                 ? "Job is in held state, pending scheduler release"
                                                 : NULL;
    if (wrong) {
        fprintf(stderr, "%s for job %s\n", wrong, id);
        return SLURM_FAILED;
    }
    int64_t least = j.nice;
    struct job_query q = {.fields = "id,label,state,nice,user,partition,array_id,array_index",
                          .live = true,
                          .user = j.user,
                          .states = 1u << JOB_PENDING};
    int status = slurm_jobs_fetch(c->s, &q, &jobs);
    for (uint32_t i = 0; !status && i < jobs.len; i++)
        if (jobs.at[i].id != j.id && streq(jobs.at[i].partition, j.partition) && jobs.at[i].nice <= least)
            least = jobs.at[i].nice - 1;
    vec_done(&jobs);
    return status || least == j.nice ? status : update_nice(c, &j, least);
}

int scontrol_top(struct scontrol *c, int argc, char **argv) {
    int status = SLURM_OK;
    for (int i = argc - 1; i >= 0; i--) {  // the first comes first
        const char *bad = NULL;
        if (!slurm_ids_plain(&c->s->cli.arena, argv[i], &bad)) {
            fprintf(stderr, "Invalid job id specified for job %s\n", argv[i]);
            status = SLURM_FAILED;
        } else if (to_the_top(c, argv[i])) {
            status = SLURM_FAILED;
        }
    }
    return status;
}

int scontrol_update(struct scontrol *c, int argc, char **argv) {
    const char *job = scontrol_value(argc, argv, "JobId");
    if (!job)
        job = scontrol_value(argc, argv, "Job");
    if (!job && argc > 1 && (slurm_same_word(argv[0], "Job") || slurm_same_word(argv[0], "JobId")))
        job = argv[1];
    int r = job ? -1 : scontrol_update_entity(c, argc, argv);
    if (r >= 0)
        return r;
    if (!job && scontrol_value(argc, argv, "JobName"))
        job = jobs_named(c, scontrol_value(argc, argv, "JobName"));
    if (job)
        return update_job(c, job, argc, argv);
    fprintf(stderr, "No valid entity in update command\nInput line must include \"NodeName\", "
                    "\"PartitionName\", \"Reservation\", \"JobId\", or \"SlurmctldDebug\"\n");
    return SLURM_FAILED;
}
