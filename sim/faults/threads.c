// Coroutines and the functions of the system that the linker replaces by them. See threads.h.
#include "threads.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <ucontext.h>

#include "base/alloc.h"
#include "fault_sim.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#else
#define __sanitizer_start_switch_fiber(save, bottom, size) ((void)(save))
#define __sanitizer_finish_switch_fiber(save, bottom, size) ((void)(save))
#endif

enum { STACK_BYTES = 256 << 10 };

struct sim_thread {
    ucontext_t own, loop;
    void *fake_own, *fake_loop;  // stacks of the address sanitizer
    const void *loop_stack;
    size_t loop_size;
    char *stack;
    void *(*run)(void *);
    void *arg;
    pthread_cond_t *waits_for;
    uint32_t head, number;
    uint64_t turn;
    bool ended, dead, drains;
};

static struct {
    struct sim *sim;  // NULL: no run with several controllers is under way
    VEC(struct sim_thread *) all;
    VEC(char *) stacks;  // for the next ones
    struct sim_thread *current;
} threads;

void threads_begin(struct sim *s) {
    threads.sim = s;
}

static void free_stack(struct sim_thread *t) {
    if (t->stack)
        vec_push(&threads.stacks, t->stack);
    t->stack = NULL;
}

void threads_end(void) {
    for (uint32_t i = 0; i < threads.all.len; i++) {
        free_stack(threads.all.at[i]);
        free(threads.all.at[i]);
    }
    vec_clear(&threads.all);
    threads.sim = NULL;
}

struct sim_thread *thread_current(void) {
    return threads.current;
}

bool thread_dead(const struct sim_thread *t) {
    return t->dead;
}

bool thread_drains(const struct sim_thread *t) {
    return t->drains;
}

uint32_t thread_head(const struct sim_thread *t) {
    return t->head;
}

void threads_die(uint32_t head) {
    for (uint32_t i = 0; i < threads.all.len; i++)
        if (threads.all.at[i]->head == head)
            threads.all.at[i]->dead = true;
}

// --- switching ---

static void begin(void) {
    struct sim_thread *t = threads.current;
    __sanitizer_finish_switch_fiber(NULL, &t->loop_stack, &t->loop_size);
    t->run(t->arg);
    t->ended = true;
    __sanitizer_start_switch_fiber(NULL, t->loop_stack, t->loop_size);
    setcontext(&t->loop);
    abort();
}

static void resume(struct sim_thread *t) {
    struct sim_thread *before = threads.current;
    threads.current = t;
    __sanitizer_start_switch_fiber(&t->fake_loop, t->stack, STACK_BYTES);
    swapcontext(&t->loop, &t->own);
    __sanitizer_finish_switch_fiber(t->fake_loop, NULL, NULL);
    threads.current = before;
    if (t->ended)
        free_stack(t);
}

static void leave(struct sim_thread *t) {
    __sanitizer_start_switch_fiber(&t->fake_own, t->loop_stack, t->loop_size);
    swapcontext(&t->own, &t->loop);
    __sanitizer_finish_switch_fiber(t->fake_own, &t->loop_stack, &t->loop_size);
}

void thread_wake(struct sim_thread *t, int64_t at_ms) {
    struct sim *s = threads.sim;
    queue_put(&s->queue, at_ms > s->now_ms ? at_ms : s->now_ms, HAPPEN_THREAD, t->head, t->number, ++t->turn);
}

void thread_sleep(int64_t until_ms) {
    struct sim_thread *t = threads.current;
    if (t->drains)
        return;
    thread_wake(t, until_ms);
    leave(t);
}

void thread_turn(struct sim *s, uint32_t head, uint64_t number, uint64_t turn) {
    struct sim_thread *t = threads.all.at[number];
    if (!t->ended && !t->dead && t->turn == turn)
        resume(t);
}

// --- in place of the system's ---

int __real_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*run)(void *), void *arg);
int __wrap_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_cond_signal(pthread_cond_t *cond);
int __wrap_pthread_cond_broadcast(pthread_cond_t *cond);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until);

int __wrap_clock_gettime(clockid_t id, struct timespec *out) {
    if (!threads.sim)
        return __real_clock_gettime(id, out);
    int64_t ms = head_steady_ms(threads.sim);
    *out = (struct timespec){ms / 1000, ms % 1000 * 1000000};
    return 0;
}

int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*run)(void *), void *arg) {
    struct sim_thread *t = xcalloc(1, sizeof *t);
    *t = (struct sim_thread){
        .run = run, .arg = arg, .head = threads.sim->head->number, .number = threads.all.len};
    t->stack = threads.stacks.len ? threads.stacks.at[--threads.stacks.len] : xmalloc(STACK_BYTES);
    vec_push(&threads.all, t);
    getcontext(&t->own);
    t->own.uc_stack.ss_sp = t->stack;
    t->own.uc_stack.ss_size = STACK_BYTES;
    makecontext(&t->own, begin, 0);
    *out = (pthread_t)(uintptr_t)t;
    thread_wake(t, threads.sim->now_ms);
    return 0;
}

int __wrap_pthread_join(pthread_t thread, void **result) {
    struct sim_thread *t = (struct sim_thread *)(uintptr_t)thread;
    t->drains = true;
    t->turn++;
    while (!t->ended)
        resume(t);
    return 0;
}

static void wake_all(pthread_cond_t *cond) {
    for (uint32_t i = 0; i < threads.all.len; i++)
        if (threads.all.at[i]->waits_for == cond && !threads.all.at[i]->ended)
            thread_wake(threads.all.at[i], threads.sim->now_ms);
}

int __wrap_pthread_cond_signal(pthread_cond_t *cond) {
    wake_all(cond);
    return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *cond) {
    wake_all(cond);
    return 0;
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *until) {
    struct sim_thread *t = threads.current;
    int64_t wait_ms = (int64_t)until->tv_sec * 1000 + until->tv_nsec / 1000000 - head_steady_ms(threads.sim);
    pthread_mutex_unlock(mutex);
    t->waits_for = cond;
    thread_sleep(threads.sim->now_ms + (wait_ms > 0 ? wait_ms : 1));
    t->waits_for = NULL;
    pthread_mutex_lock(mutex);
    return 0;
}
