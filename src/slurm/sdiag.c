// sdiag: counters of the controller and its scheduler.
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "option.h"

int sdiag_run(struct slurm *s, int argc, char **argv) {
    static const struct opt table[] = {
        {"all", 'a', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
        {"json", 0, OPT_FLAG, OPT_DOES, NULL, NULL, 0},
        {"reset", 'r', OPT_FLAG, OPT_REFUSED, NULL, "figures count from the controller's start", 0},
        {"sort-by-id", 'i', OPT_FLAG, OPT_HARMLESS, NULL, NULL, 0},
        {"sort-by-time", 't', OPT_FLAG, OPT_HARMLESS, NULL, NULL, 0},
        {"sort-by-time2", 'T', OPT_FLAG, OPT_HARMLESS, NULL, NULL, 0},
        OPTS_COMMON};
    struct opts o;
    int status;
    slurm_opts_init(&o, table, sizeof table / sizeof *table, 0);
    if (!slurm_opts_begin(&o, s, argc, argv, NULL, "[OPTIONS]", &status))
        return status;
    if (slurm_check_clusters(s))
        return SLURM_FAILED;
    struct reply r;
    char now[64], since[64];
    struct tm tm;
    if (slurm_get(s, "/v1/status", &r))
        return SLURM_FAILED;
    if (slurm_opt_given(&o, "json")) {
        printf("%s\n", r.text);
        return SLURM_OK;
    }
    time_t t = time(NULL), began = t - (time_t)(json_i64(r.json, "uptime_ms", 0) / 1000);
    strftime(now, sizeof now, "%a %b %d %H:%M:%S %Y", localtime_r(&t, &tm));
    strftime(since, sizeof since, "%a %b %d %H:%M:%S %Y", localtime_r(&began, &tm));
    const struct json *jobs = json_get(r.json, "jobs"), *sched = json_get(r.json, "scheduler");
    static const char line[] = "*******************************************************";
    int64_t done = json_i64(jobs, "COMPLETED", 0), failed = json_i64(jobs, "FAILED", 0),
            cancelled = json_i64(jobs, "CANCELLED", 0);
    printf("%s\nsdiag output at %s (%lld)\nData since      %s (%lld)\n%s\n", line, now, (long long)t, since,
           (long long)began, line);
    printf("Server thread count:  1\nAgent queue size:     0\nAgent count:          0\nAgent thread count:   "
           "0\nDBD Agent queue size: 0\n\n");
    printf("Jobs submitted: %lld\nJobs started:   %lld\nJobs completed: %lld\nJobs canceled:  %lld\nJobs "
           "failed:    %lld\n\n",
           (long long)json_i64(jobs, "submitted", 0),
           (long long)(done + failed + json_i64(jobs, "RUNNING", 0)), (long long)done, (long long)cancelled,
           (long long)failed);
    printf("Job states ts:  %s (%lld)\nJobs pending:   %lld\nJobs running:   %lld\n\n", now, (long long)t,
           (long long)json_i64(jobs, "PENDING", 0),
           (long long)(json_i64(jobs, "RUNNING", 0) + json_i64(jobs, "STARTING", 0)));
    long long last = (long long)json_i64(sched, "last_us", 0), passes = (long long)json_i64(sched, "passes", 0);
    long long minutes = (long long)(t - began) / 60, queue = (long long)json_i64(jobs, "PENDING", 0);
    printf("Main schedule statistics (microseconds):\n\tLast cycle:   %lld\n\tTotal cycles: %lld\n\tCycles "
           "per minute: %lld\n\tLast queue length: %lld\n\n",
           last, passes, passes / (minutes > 0 ? minutes : 1), queue);
    // There is one pass for both: what is planned and what is filled in behind it.
    printf("Backfilling stats\n\tTotal cycles: %lld\n\tLast cycle: %lld\n\tLast queue length: %lld\n\n",
           passes, last, queue);
    printf("Remote Procedure Call statistics by message type\n\tREQUEST                                 (    "
           "1) count:%lld\n\n",
           (long long)json_i64(r.json, "requests", 0));
    return SLURM_OK;
}
