// Submits COUNT no-op batch jobs to Slurm through libslurm, by THREADS threads of one process: what
// Slurm takes in when no command has to be started for each job. Built and called by bench/run;
// not part of the product. Prints one line of JSON.
#include <pthread.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS_MAX = 64, COUNT_MAX = 1000000 };

struct share {
    pthread_t thread;
    long count;
    int held, failed;
};

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int submit_one(int held) {
    char script[] = "#!/bin/sh\ntrue\n", path[] = "PATH=/usr/bin:/bin", null[] = "/dev/null";
    char workdir[] = "/tmp", name[] = "noop";
    char *environment[] = {path, NULL};
    job_desc_msg_t job;
    slurm_init_job_desc_msg(&job);
    job.script = script;
    job.environment = environment;
    job.env_size = 1;
    job.name = name;
    job.work_dir = workdir;
    job.std_out = null;
    job.std_err = null;
    job.std_in = null;
    job.user_id = getuid();
    job.group_id = getgid();
    job.min_cpus = 1;
    job.num_tasks = 1;
    if (held)
        job.priority = 0;
    submit_response_msg_t *reply = NULL;
    for (int tries = 0; tries < 100; tries++) {
        if (slurm_submit_batch_job(&job, &reply) == SLURM_SUCCESS) {
            slurm_free_submit_response_response_msg(reply);
            return 0;
        }
        if (slurm_get_errno() != EAGAIN)
            break;
    }
    fprintf(stderr, "slurm_submit: %s\n", slurm_strerror(slurm_get_errno()));
    return 1;
}

static void *submit_share(void *arg) {
    struct share *s = arg;
    for (long i = 0; i < s->count && !s->failed; i++)
        s->failed = submit_one(s->held);
    return NULL;
}

int main(int argc, char **argv) {
    long count = argc == 4 ? strtol(argv[1], NULL, 10) : 0;
    long threads = argc == 4 ? strtol(argv[2], NULL, 10) : 0;
    if (count < 1 || count > COUNT_MAX || threads < 1 || threads > THREADS_MAX) {
        fprintf(stderr, "usage: slurm_submit COUNT THREADS held|free\n");
        return 2;
    }
    slurm_init(NULL);
    static struct share shares[THREADS_MAX];
    int failed = 0;
    double before = now_s();
    for (long i = 0; i < threads; i++) {
        shares[i].count = count / threads + (i < count % threads);
        shares[i].held = strcmp(argv[3], "held") == 0;
        if (pthread_create(&shares[i].thread, NULL, submit_share, &shares[i]) != 0)
            return 1;
    }
    for (long i = 0; i < threads; i++) {
        pthread_join(shares[i].thread, NULL);
        failed |= shares[i].failed;
    }
    printf("{\"count\":%ld,\"rate\":%.1f}\n", count, (double)count / (now_s() - before));
    return failed;
}
