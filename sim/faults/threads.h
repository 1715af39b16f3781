// Threads of the product in virtual time: each is a coroutine that runs until it waits, for the database or for work.
// The linker puts threads.c in place of pthread_create and its like, and of the clock.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct sim;
struct sim_thread;

void threads_begin(struct sim *s);
void threads_end(void);
struct sim_thread *thread_current(void);  // NULL: the event loop's
// The thread that runs waits until then, or until it is woken. Returns at once when its process ends.
void thread_sleep(int64_t until_ms);
void thread_wake(struct sim_thread *t, int64_t at_ms);
void thread_turn(struct sim *s, uint32_t head, uint64_t number, uint64_t turn);  // HAPPEN_THREAD
void threads_die(uint32_t head);               // killed: nothing of this controller reaches anybody any more
bool thread_dead(const struct sim_thread *t);  // it was killed
bool thread_drains(const struct sim_thread *t);  // its process ends: nothing takes time any more
uint32_t thread_head(const struct sim_thread *t);
