// acequia-faults: runs seeds, searches for one that fails, shows why it fails.
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "search.h"

enum { PLANTED_SEEDS_MAX = 3000, TIMELINE_LINES = 60 };

static const char usage_text[] =
    "Usage: acequia-faults [options]\n"
    "Runs the real controller, store logic and agents' decisions in virtual time against simulated\n"
    "machines, disks, networks and clocks. One seed decides everything.\n\n"
    "  --seed N            one run; prints its hash, the same every time\n"
    "    --keep LIST       carry out only these items of its plan, e.g. 0,4,7-9\n"
    "    --timeline        tell everything that happens\n"
    "  --seeds A..B        search; stops at the first failure and explains it\n"
    "  --fresh             search seeds that begin at the time of day, until --for is over\n"
    "  --go-on             name every seed that fails, explain the first\n"
    "  --no-explanation    and do not explain it\n"
    "  --failover          two or three controllers that share a database\n"
    "  --no-restores       plans without older copies of the controller's state put back\n"
    "  --for SECONDS       stop searching then\n"
    "  --runs N            stop searching after so many; SIGINT and SIGTERM stop it as well\n"
    "  -j N                processes (1)\n"
    "  --regressions FILE  run the seeds in FILE, one a line (\"N failover\": with --failover), twice: both "
    "runs\n"
    "                      must be the same\n"
    "  --count FILE        add the runs done to the count kept in FILE\n"
    "  --planted NAME      run a variant that is broken on purpose\n"
    "  --check-planted     show that every broken variant is caught\n"
    "    --from FILE       begin with the seeds in FILE, \"NAME SEED\" a line, which once caught them\n"
    "  --list-planted      name them\n";

struct faults_options {
    struct search search;
    bool one, many, fresh, timeline, check_planted, no_explanation, failover;
    uint64_t runs;
    const char *keep, *regressions, *count, *from;
};

static int usage_error(const char *what, const char *value) {
    fprintf(stderr, "acequia-faults: %s: \"%s\" is not understood; see --help\n", what, value);
    return 2;
}

static int parse_range(const char *text, uint64_t *first, uint64_t *last) {
    char low[32];
    const char *dots = strstr(text, "..");
    if (!dots || (size_t)(dots - text) >= sizeof low)
        return -1;
    memcpy(low, text, (size_t)(dots - text));
    low[dots - text] = 0;
    return parse_u64(low, first) < 0 || parse_u64(dots + 2, last) < 0 || *first > *last ? -1 : 0;
}

static int parse_keep(const char *text, bool *keep, uint32_t count) {
    char *end;
    memset(keep, 0, count);
    for (const char *p = text; *p;) {
        unsigned long first = strtoul(p, &end, 10), last = first;
        if (end == p)
            return -1;
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        for (; first <= last && first < count; first++)
            keep[first] = true;
        p = *end == ',' ? end + 1 : end;
        if (*end && *end != ',')
            return -1;
    }
    return 0;
}

static void print_tail(const char *path, uint32_t lines) {
    cleanup_fclose FILE *f = fopen(path, "r");
    char line[1024];
    uint32_t total = 0, at = 0;
    while (f && fgets(line, sizeof line, f))
        total++;
    if (!f)
        return;
    rewind(f);
    if (total > lines)
        printf("  … %u lines before\n", total - lines);
    while (fgets(line, sizeof line, f))
        if (at++ + lines >= total)
            printf("  %s", line);
}

static void explain(uint64_t seed, enum planted planted) {
    struct plan p;
    char text[200], path[] = "/tmp/acequia-faults-XXXXXX";
    run_plan_make(&p, seed);
    bool *keep = xcalloc(p.items.len + 1, 1);
    uint32_t left = shrink(seed, planted, keep, p.items.len, 20);
    printf("\nShortest plan found that fails: %u of %u items, %u machines\n", left, p.items.len, p.machine_count);
    cleanup_buf struct buf list = {0};
    for (uint32_t i = 0; i < p.items.len; i++)
        if (keep[i]) {
            item_print(&p.items.at[i], i, text, sizeof text);
            printf("  %s\n", text);
            buf_addf(&list, "%s%u", list.len ? "," : "", i);
        }
    int fd = mkstemp(path);
    if (fd >= 0) {
        close(fd);
        struct verdict v = trial(seed, keep, planted, path);
        printf("\nTimeline (seconds since the beginning):\n");
        print_tail(path, TIMELINE_LINES);
        unlink(path);
        printf("\nFails with: %s\n", v.text);
    }
    printf("Replay: acequia-faults%s --seed %" PRIu64 " --keep '%s' --timeline%s%s\n",
           run_plan_failover ? " --failover" : "", seed, buf_str(&list), planted ? " --planted " : "",
           planted ? planted_word(planted) : "");
    free(keep);
    run_plan_done(&p);
}

static void print_found(const struct search_found *f, const char *what) {
    printf("%s: %" PRIu64 " runs, %" PRIu64 " failed, %.1f s, %.0f runs/s, %.0f times real time\n"
           "  %" PRIu64 " steps, %" PRIu64 " messages, %" PRIu64 " jobs, %" PRIu64 " starts, %" PRIu64
           " journal records, %" PRIu64 " audits, %" PRIu64 " replays compared\n",
           what, f->runs, f->failures, f->seconds, (double)f->runs / f->seconds,
           (double)f->virtual_ms / 1000 / f->seconds, f->steps, f->messages, f->jobs, f->starts, f->records,
           f->asserts, f->compares);
}

static int one_run(const struct faults_options *o) {
    struct plan p;
    bool *keep = NULL;
    run_plan_make(&p, o->search.first);
    if (o->keep) {
        keep = xcalloc(p.items.len + 1, 1);
        if (parse_keep(o->keep, keep, p.items.len) < 0)
            return usage_error("--keep", o->keep);
    }
    seams_plant(o->search.planted);
    if (o->timeline)
        setvbuf(stdout, NULL, _IOLBF, 0);
    struct verdict v = run_plan(&p, keep, o->timeline ? stdout : NULL);
    printf("seed %" PRIu64 ": %s, hash %016" PRIx64 ", %.1f s in %" PRIu64 " steps, %" PRIu64
           " jobs, %" PRIu64 " starts, %" PRIu64 " records\n",
           o->search.first, v.failed ? "FAILED" : "good", v.hash, (double)v.virtual_ms / 1000, v.steps,
           v.jobs, v.starts, v.records);
    if (v.failed)
        printf("%s\n", v.text);
    run_plan_done(&p);
    free(keep);
    return v.failed;
}

static void keep_count(const char *path, uint64_t runs, int64_t virtual_ms) {
    uint64_t before = 0;
    long long hours_ms = 0;
    FILE *f = fopen(path, "r");
    if (f) {
        if (fscanf(f, "%" SCNu64 " runs %lld ms", &before, &hours_ms) != 2)
            before = 0;
        fclose(f);
    }
    f = fopen(path, "w");
    if (!f) {
        perror(path);
        return;
    }
    fprintf(f, "%" PRIu64 " runs %lld ms of virtual time\n", before + runs, hours_ms + (long long)virtual_ms);
    fclose(f);
    printf("%" PRIu64 " runs so far (%s)\n", before + runs, path);
}

static int many_runs(struct faults_options *o) {
    if (o->fresh) {
        o->search.first = (uint64_t)time(NULL) * 1000000;
        o->search.last = UINT64_MAX - 1;
    }
    if (o->runs && o->search.last - o->search.first >= o->runs)
        o->search.last = o->search.first + o->runs - 1;
    printf("Seeds from %" PRIu64 "\n", o->search.first);
    fflush(stdout);
    o->search.stoppable = true;
    struct search_found f = search_run(&o->search);
    print_found(&f, "Search");
    if (o->count && !o->search.planted)
        keep_count(o->count, f.runs, f.virtual_ms);
    if (!f.failed)
        return 0;
    printf("FAILED: seed %" PRIu64 ": %s\n", f.seed, f.text);
    if (f.failures > 1) {
        printf("The first seeds that failed:");
        for (uint32_t i = 0; i < SEARCH_FIRST_MAX && f.first[i]; i++)
            printf(" %" PRIu64, f.first[i]);
        printf("\n");
    }
    fflush(stdout);
    if (!o->no_explanation)
        explain(f.seed, o->search.planted);
    return 1;
}

static int run_regressions(const struct faults_options *o) {
    cleanup_fclose FILE *f = fopen(o->regressions, "r");
    char line[256];
    uint32_t runs = 0, failed = 0;
    if (!f) {
        perror(o->regressions);
        return 2;
    }
    while (fgets(line, sizeof line, f)) {
        uint64_t seed;
        line[strcspn(line, "#\n")] = 0;
        run_plan_failover = strstr(line, " failover") != NULL;
        line[strcspn(line, " #\t\n")] = 0;
        if (!line[0])
            continue;
        if (parse_u64(line, &seed) < 0)
            return usage_error(o->regressions, line);
        struct verdict v = trial(seed, NULL, PLANTED_NONE, NULL), again = trial(seed, NULL, PLANTED_NONE, NULL);
        runs++;
        if (!v.failed && v.hash != again.hash) {
            v.failed = true;
            snprintf(v.text, sizeof v.text, "two runs differ: %016" PRIx64 " and %016" PRIx64, v.hash, again.hash);
        }
        failed += v.failed;
        if (v.failed)
            printf("seed %" PRIu64 ": FAILED: %s\n", seed, v.text);
    }
    printf("%u seeds that once failed: %u fail now\n", runs, failed);
    return failed != 0;
}

// Where the search for each planted bug begins: at a seed that once caught it, else at 1.
static int read_from(const char *path, uint64_t first[static PLANTED_COUNT]) {
    char line[256];
    for (int i = 0; i < PLANTED_COUNT; i++)
        first[i] = 1;
    if (!path)
        return 0;
    cleanup_fclose FILE *f = fopen(path, "r");
    if (!f) {
        perror(path);
        return 2;
    }
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "#\n")] = 0;
        if (!*line)
            continue;
        char *seed = line + strcspn(line, " ");
        if (*seed)
            *seed++ = 0;
        int which = planted_find(line);
        if (which < 0 || parse_u64(seed, &first[which]) < 0 || first[which] < 1)
            return usage_error(path, line);
    }
    return 0;
}

// A seed that fails with the bug planted and holds without it.
static struct search_found catch_planted(enum planted which, uint64_t first, uint32_t workers) {
    struct search s = {.first = first, .last = first + PLANTED_SEEDS_MAX - 1, .workers = workers, .planted = which};
    struct search_found f;
    uint64_t runs = 0;
    do {
        f = search_run(&s);
        runs += f.runs;
        f.runs = runs;
        s.first = f.seed + 1;
    } while (f.failed && s.first <= s.last && trial(f.seed, NULL, PLANTED_NONE, NULL).failed);
    return f;
}

static int check_planted(const struct faults_options *o) {
    uint64_t first[PLANTED_COUNT];
    int missed = 0, checked = 0, r = read_from(o->from, first);
    if (r)
        return r;
    for (int i = PLANTED_NONE + 1; i < PLANTED_COUNT; i++) {
        run_plan_failover = planted_failover((enum planted)i);
        if (o->failover && !run_plan_failover)
            continue;
        struct search_found f = catch_planted((enum planted)i, first[i], o->search.workers);
        checked++;
        printf("%-22s %s by seed %" PRIu64 " after %" PRIu64 " runs: %s\n", planted_word((enum planted)i),
               f.failed ? "caught" : "MISSED", f.seed, f.runs, f.failed ? f.text : planted_help((enum planted)i));
        fflush(stdout);
        missed += !f.failed;
    }
    printf("%d broken variants, %d missed\n", checked, missed);
    return missed != 0;
}

static int parse(int argc, char **argv, struct faults_options *o) {
    enum {
        SEED = 256,
        SEEDS,
        KEEP,
        TIMELINE,
        FRESH,
        FOR,
        REGRESSIONS,
        COUNT,
        PLANTED,
        CHECK,
        FROM,
        LIST_THEM,
        GO_ON,
        NO_RESTORES,
        NO_EXPLANATION,
        RUNS,
        FAILOVER
    };
    static const struct option options[] = {{"seed", 1, 0, SEED},
                                            {"seeds", 1, 0, SEEDS},
                                            {"keep", 1, 0, KEEP},
                                            {"timeline", 0, 0, TIMELINE},
                                            {"fresh", 0, 0, FRESH},
                                            {"for", 1, 0, FOR},
                                            {"regressions", 1, 0, REGRESSIONS},
                                            {"count", 1, 0, COUNT},
                                            {"planted", 1, 0, PLANTED},
                                            {"check-planted", 0, 0, CHECK},
                                            {"from", 1, 0, FROM},
                                            {"list-planted", 0, 0, LIST_THEM},
                                            {"go-on", 0, 0, GO_ON},
                                            {"no-restores", 0, 0, NO_RESTORES},
                                            {"no-explanation", 0, 0, NO_EXPLANATION},
                                            {"failover", 0, 0, FAILOVER},
                                            {"runs", 1, 0, RUNS},
                                            {"help", 0, 0, 'h'},
                                            {0}};
    uint64_t n;
    int c, p;
    *o = (struct faults_options){.search = {.workers = 1}};
    while ((c = getopt_long(argc, argv, "hj:", options, NULL)) != -1) {
        switch (c) {
        case SEED:
            if (parse_u64(optarg, &o->search.first) < 0)
                return usage_error("--seed", optarg);
            o->one = true;
            break;
        case SEEDS:
            if (parse_range(optarg, &o->search.first, &o->search.last) < 0)
                return usage_error("--seeds", optarg);
            o->many = true;
            break;
        case FOR:
        case RUNS:
        case 'j':
            if (parse_u64(optarg, &n) < 0 || n < 1 || n > 1000000000)
                return usage_error(c == 'j' ? "-j" : c == RUNS ? "--runs" : "--for", optarg);
            if (c == 'j')
                o->search.workers = n < 64 ? (uint32_t)n : 64;
            else if (c == RUNS)
                o->runs = n;
            else
                o->search.seconds = (double)n;
            break;
        case PLANTED:
            if ((p = planted_find(optarg)) < 0)
                return usage_error("--planted", optarg);
            o->search.planted = (enum planted)p;
            run_plan_failover |= planted_failover((enum planted)p);
            break;
        case LIST_THEM:
            for (p = 1; p < PLANTED_COUNT; p++)
                printf("%-22s %s\n", planted_word((enum planted)p), planted_help((enum planted)p));
            exit(0);
        case GO_ON: o->search.go_on = true; break;
        case NO_EXPLANATION: o->no_explanation = true; break;
        case NO_RESTORES: run_plan_restores = false; break;
        case FAILOVER: run_plan_failover = true; break;
        case KEEP: o->keep = optarg; break;
        case TIMELINE: o->timeline = true; break;
        case FRESH: o->fresh = o->many = true; break;
        case REGRESSIONS: o->regressions = optarg; break;
        case COUNT: o->count = optarg; break;
        case CHECK: o->check_planted = true; break;
        case FROM: o->from = optarg; break;
        case 'h': fputs(usage_text, stdout); exit(0);
        default: return 2;
        }
    }
    return 0;
}

int main(int argc, char **argv) {
    struct faults_options o;
    int r = parse(argc, argv, &o);
    if (r)
        return r;
    o.failover = run_plan_failover;
    if (o.check_planted)
        return check_planted(&o);
    if (o.regressions)
        return run_regressions(&o);
    if (o.one)
        return one_run(&o);
    if (o.many)
        return many_runs(&o);
    fputs(usage_text, stderr);
    return 2;
}
