// Threads that read, decode and write. A task is done by one of them and then handed back to the thread that gave it.
#pragma once
#include <stdint.h>

#include "remote.h"

struct data_task {
    void (*run)(struct data_task *t, struct data_fetcher *f);   // on a thread of the pool
    void (*done)(struct data_task *t);                           // on the caller's, by data_pool_finish
    struct data_task *next;
};

struct data_pool;
// wake_fd: an eventfd that says that tasks are done.
struct data_pool *data_pool_new(uint32_t threads, struct data_remote *remote, int wake_fd);
void data_pool_free(struct data_pool *p);  // tasks that have not begun are handed back undone, without `done`
void data_pool_give(struct data_pool *p, struct data_task *t);
void data_pool_finish(struct data_pool *p);         // calls `done` of all that are
double data_pool_busy_us(struct data_pool *p);      // of all threads together, so far
uint32_t data_pool_waiting(struct data_pool *p);    // tasks that no thread has begun
