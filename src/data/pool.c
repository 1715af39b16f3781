// See the header.
#include "pool.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"

struct data_pool {
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct data_task *first, *last, *done_first, *done_last;
    uint32_t waiting, nthreads;
    int wake_fd;
    bool stop;
    int64_t busy_us;
    struct data_remote *remote;
    pthread_t threads[];
};

static void *run(void *ctx) {
    struct data_pool *p = ctx;
    struct data_fetcher *f = data_fetcher_new(p->remote);
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->first && !p->stop)
            pthread_cond_wait(&p->work, &p->lock);
        if (p->stop)
            break;
        struct data_task *t = p->first;
        p->first = t->next;
        if (!p->first)
            p->last = NULL;
        p->waiting--;
        pthread_mutex_unlock(&p->lock);
        int64_t begin = clock_mono_us();
        t->run(t, f);
        int64_t end = clock_mono_us();
        pthread_mutex_lock(&p->lock);
        p->busy_us += end - begin;
        t->next = NULL;
        bool first = !p->done_first;
        *(p->done_last ? &p->done_last->next : &p->done_first) = t;
        p->done_last = t;
        if (first) {
            uint64_t one = 1;
            (void)!write(p->wake_fd, &one, sizeof one);
        }
    }
    pthread_mutex_unlock(&p->lock);
    data_fetcher_free(f);
    return NULL;
}

struct data_pool *data_pool_new(uint32_t threads, struct data_remote *remote, int wake_fd) {
    struct data_pool *p = xcalloc(1, sizeof *p + threads * sizeof *p->threads);
    p->remote = remote;
    p->wake_fd = wake_fd;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    for (uint32_t i = 0; i < threads; i++)
        if (pthread_create(&p->threads[p->nthreads], NULL, run, p) == 0)
            p->nthreads++;
    return p;
}

void data_pool_free(struct data_pool *p) {
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (uint32_t i = 0; i < p->nthreads; i++)
        pthread_join(p->threads[i], NULL);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

void data_pool_give(struct data_pool *p, struct data_task *t) {
    t->next = NULL;
    pthread_mutex_lock(&p->lock);
    *(p->last ? &p->last->next : &p->first) = t;
    p->last = t;
    p->waiting++;
    pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
}

void data_pool_finish(struct data_pool *p) {
    pthread_mutex_lock(&p->lock);
    struct data_task *t = p->done_first;
    p->done_first = p->done_last = NULL;
    pthread_mutex_unlock(&p->lock);
    while (t) {
        struct data_task *next = t->next;
        t->done(t);
        t = next;
    }
}

double data_pool_busy_us(struct data_pool *p) {
    pthread_mutex_lock(&p->lock);
    int64_t v = p->busy_us;
    pthread_mutex_unlock(&p->lock);
    return (double)v;
}

uint32_t data_pool_waiting(struct data_pool *p) {
    pthread_mutex_lock(&p->lock);
    uint32_t v = p->waiting;
    pthread_mutex_unlock(&p->lock);
    return v;
}
