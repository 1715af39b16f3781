// What somebody may see of a job. One function decides (job_sight); every route that shows jobs, names them in a
// sentence or searches them asks it.
#pragma once
#include "answers.h"
#include "controller.h"

enum job_sight {
    SIGHT_NONE,  // not even that it exists
    SIGHT_MASKED,  // its number, project, state, times and resources: nothing that its user wrote, nor who that is
    SIGHT_PUBLIC,  // its name and user as well
    SIGHT_ALL,     // script, environment, command, paths and output as well
    SIGHT_COUNT
};

enum job_sight job_sight(const struct controller *c, const struct actor *viewer, const char *user,
                         const char *project);
// SIGHT_NONE also when there is no such job.
enum job_sight job_sight_of(struct controller *c, const struct actor *viewer, uint64_t id);

// Takes out of the answer what SIGHT_MASKED does not show.
void job_sight_mask(struct answer_job *job);
// The reason of a job's state, as far as it may be seen; texts land in the arena.
const char *job_sight_reason(enum job_sight sight, struct arena *a, const char *reason);
// "104 ours (eva, vision)", as far as the viewer may know it; at least the number.
void job_sight_name(const struct controller *c, const struct actor *viewer, const struct job_view *v,
                    struct buf *out);
