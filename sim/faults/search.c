// Runs seeds in processes of their own, and reduces a failing plan to the items that matter.
#include "search.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS_MAX = 64 };

struct search_shared {
    _Atomic uint64_t next;
    _Atomic bool stop;
    struct {
        uint64_t seed;  // under way
        bool busy;
        struct search_found sum;
    } worker[WORKERS_MAX];
};

// A search that is interrupted says how far it came: runs are counted, and a long one is stopped for newer code.
static struct search_shared *_Atomic interruptible;

static void on_interrupt(int signal) {
    struct search_shared *sh = atomic_load(&interruptible);
    if (sh)
        atomic_store(&sh->stop, true);
}

static void catch_interrupts(struct search_shared *sh) {
    struct sigaction catch = {.sa_handler = sh ? on_interrupt : SIG_DFL};
    atomic_store(&interruptible, sh);
    sigaction(SIGTERM, &catch, NULL);
    sigaction(SIGINT, &catch, NULL);
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void *share(size_t size) {
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
    return p;
}

static void add(struct search_found *sum, const struct verdict *v) {
    sum->runs++;
    sum->steps += v->steps;
    sum->messages += v->messages;
    sum->jobs += v->jobs;
    sum->starts += v->starts;
    sum->records += v->records;
    sum->compares += v->compares;
    sum->asserts += v->asserts;
    sum->virtual_ms += v->virtual_ms;
}

// Keeps the smallest seeds, in order.
static void note_seed(struct search_found *f, uint64_t seed) {
    for (uint32_t i = 0; i < SEARCH_FIRST_MAX && seed; i++)
        if (!f->first[i] || f->first[i] > seed) {
            uint64_t next = f->first[i];
            f->first[i] = seed;
            seed = next;
        }
}

static void found(const struct search *s, struct search_found *sum, uint64_t seed, const char *text) {
    if (!sum->failed || seed < sum->seed) {
        sum->seed = seed;
        snprintf(sum->text, sizeof sum->text, "%s", text);
    }
    sum->failed = true;
    sum->failures++;
    note_seed(sum, seed);
    if (!s->go_on)
        return;
    printf("seed %llu: %s\n", (unsigned long long)seed, text);
    fflush(stdout);
}

static void work(const struct search *s, struct search_shared *sh, uint32_t me, double until) {
    struct search_found *sum = &sh->worker[me].sum;
    for (;;) {
        uint64_t seed = atomic_fetch_add(&sh->next, 1);
        if (seed > s->last || atomic_load(&sh->stop) || (until > 0 && now_s() > until))
            return;
        sh->worker[me].seed = seed;
        sh->worker[me].busy = true;
        struct plan p;
        run_plan_make(&p, seed);
        struct verdict v = run_plan(&p, NULL, NULL);
        run_plan_done(&p);
        sh->worker[me].busy = false;
        add(sum, &v);
        if (v.failed) {
            found(s, sum, seed, v.text);
            if (s->go_on)
                continue;
            atomic_store(&sh->stop, true);
            return;
        }
    }
}

static void merge(struct search_found *all, const struct search_found *one) {
    all->runs += one->runs;
    all->steps += one->steps;
    all->messages += one->messages;
    all->jobs += one->jobs;
    all->starts += one->starts;
    all->records += one->records;
    all->compares += one->compares;
    all->asserts += one->asserts;
    all->virtual_ms += one->virtual_ms;
    all->failures += one->failures;
    for (uint32_t i = 0; i < SEARCH_FIRST_MAX; i++)
        note_seed(all, one->first[i]);
    if (one->failed && (!all->failed || one->seed < all->seed)) {
        all->failed = true;
        all->seed = one->seed;
        memcpy(all->text, one->text, sizeof all->text);
    }
}

static pid_t start(const struct search *s, struct search_shared *sh, uint32_t me, double until) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) {
        perror("fork");
        exit(2);
    }
    if (pid)
        return pid;
    if (s->planted && !freopen("/dev/null", "w", stderr))
        _exit(2);
    work(s, sh, me, until);
    _exit(0);
}

struct search_found search_run(const struct search *s) {
    struct search_shared *sh = share(sizeof *sh);
    struct search_found all = {0};
    double began = now_s();
    uint32_t workers = s->workers < 1 ? 1 : s->workers > WORKERS_MAX ? WORKERS_MAX : s->workers;
    pid_t pids[WORKERS_MAX];
    atomic_store(&sh->next, s->first);
    seams_plant(s->planted);
    fflush(NULL);
    if (s->stoppable)
        catch_interrupts(sh);
    double until = s->seconds > 0 ? began + s->seconds : 0;
    for (uint32_t i = 0; i < workers; i++)
        pids[i] = start(s, sh, i, until);
    for (uint32_t running = workers; running;) {
        int status = 0;
        pid_t pid = waitpid(-1, &status, 0);
        uint32_t i = 0;
        while (i < workers && pids[i] != pid)
            i++;
        if (pid < 0 || i == workers)
            continue;  // interrupted
        pids[i] = 0;
        running--;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
            continue;
        char text[100];
        snprintf(text, sizeof text, "an assertion failed or the program crashed (signal %d)",
                 WIFSIGNALED(status) ? WTERMSIG(status) : 0);
        sh->worker[i].sum.runs++;
        found(s, &sh->worker[i].sum, sh->worker[i].seed, text);
        if (s->go_on) {
            pids[i] = start(s, sh, i, until);
            running++;
        } else {
            atomic_store(&sh->stop, true);
        }
    }
    for (uint32_t i = 0; i < workers; i++)
        merge(&all, &sh->worker[i].sum);
    all.seconds = now_s() - began;
    if (s->stoppable)
        catch_interrupts(NULL);
    munmap(sh, sizeof *sh);
    return all;
}

struct verdict trial(uint64_t seed, const bool *keep, enum planted planted, const char *path) {
    struct verdict *out = share(sizeof *out), v;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct plan p;
        FILE *timeline = path ? fopen(path, "w") : NULL;
        if (timeline)
            setvbuf(timeline, NULL, _IOLBF, 0);  // survives an abort
        else if (!freopen("/dev/null", "w", stderr))
            _exit(2);
        seams_plant(planted);
        run_plan_make(&p, seed);
        *out = run_plan(&p, keep, timeline);
        if (timeline)
            fclose(timeline);
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    v = *out;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        v.failed = true;
        snprintf(v.text, sizeof v.text, "an assertion failed or the program crashed (signal %d)",
                 WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    }
    munmap(out, sizeof *out);
    return v;
}

static bool fails(uint64_t seed, enum planted planted, const bool *keep) {
    return trial(seed, keep, planted, NULL).failed;
}

static void keep_first(bool *keep, uint32_t count, uint32_t n) {
    for (uint32_t i = 0; i < count; i++)
        keep[i] = i < n;
}

static void thin_out(uint64_t seed, enum planted planted, bool *keep, uint32_t count, double until) {
    bool *less = malloc(count + 1);
    for (uint32_t chunk = count / 2 ? count / 2 : 1; chunk && now_s() < until; chunk /= 2) {
        for (uint32_t from = 0; from < count && now_s() < until; from += chunk) {
            bool any = false;
            memcpy(less, keep, count);
            for (uint32_t i = from; i < count && i < from + chunk; i++) {
                any |= less[i];
                less[i] = false;
            }
            if (any && fails(seed, planted, less))
                memcpy(keep, less, count);
        }
    }
    free(less);
}

uint32_t shrink(uint64_t seed, enum planted planted, bool *keep, uint32_t count, double seconds) {
    double until = now_s() + seconds;
    uint32_t low = 0, high = count;  // the first `high` fail
    while (low < high && now_s() < until) {
        uint32_t mid = low + (high - low) / 2;
        keep_first(keep, count, mid);
        if (fails(seed, planted, keep))
            high = mid;
        else
            low = mid + 1;
    }
    keep_first(keep, count, high);
    thin_out(seed, planted, keep, high, until);
    uint32_t left = 0;
    for (uint32_t i = 0; i < count; i++)
        left += keep[i];
    return left;
}
