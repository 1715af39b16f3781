// The variables a job finds: what its user wants, and what it needs to know about itself, under our
// own names and under those that programs written for Slurm look for.
#pragma once
#include "base/users.h"
#include "launch/launch.h"
#include "model/message.h"

struct env {
    struct arena *arena;
    char **at;
    uint32_t len, cap;
    bool append_only;  // what is set is known not to be there yet
    uint32_t *slots;   // hashed by name: position + 1; NULL while there are few
    uint32_t slot_count, indexed;  // a power of two; entries that are in it
    uint64_t compared;             // names, counted for tests
};

// Sets or replaces.
void agent_environment_set(struct env *env, const char *name, const char *value);
const char *agent_environment_find(struct env *env, const char *name);  // NULL if not set

// Of an attempt: for its script, command or tasks, and the ground for its steps.
void agent_environment_job(struct env *env, const struct message_launch *m, const struct user_info *user,
                           const char *node);
// Of one task of a job or step.
// Of a worker of an elastic job; nothing for others.
void agent_environment_worker(struct env *env, const struct message_launch *m, const char *spool_path);
void agent_environment_task(struct env *env, uint32_t rank, uint32_t local);
// The GPUs that it sees, when the step binds them to tasks.
void agent_environment_task_gpus(struct env *env, const struct message_exec *m, uint32_t local);
uint32_t agent_environment_rank(const struct message_exec *m, uint32_t local);
// Of a step, on top of its attempt's.
void agent_environment_step(struct env *env, const struct message_exec *m);
