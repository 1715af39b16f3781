// Owns the sentences about jobs that explanations have beside the scheduler's.
#include "api_explain_phrases.h"

const struct phrase api_explain_phrases[] = {
    [SAID_PREEMPTED] = {"why_preempted", "{why}."},
    [SAID_LATER] = {"why_later", "Its planned start moved later: {why}."},
    [SAID_DEPENDS] = {"why_depends", "It depends on {jobs}."},
    [SAID_DEPENDS_NEVER] = {"why_depends_never", "It depends on {jobs}, which can no longer be satisfied."},
    [SAID_SCRIPT_LOST] = {"why_script_lost",
        "Its script or environment was lost when the controller's state was restored from an "
        "older copy: it can never start. To have more workers, submit the job again."},
    [SAID_WORKERS] = {"why_workers",
        "{running} of at most {most} workers run. The minimum is {minimum}; workers beyond it are"
        " optional."},
    [SAID_NEXT_SIZE] = {"why_next_size",
        "It will have {workers} workers in {time}, if jobs run as long as usual, or to their "
        "limits."},
    [SAID_WORKER_LOST] = {"why_worker_lost",
        "Worker {worker} does not run. Its script or environment was lost when the controller's "
        "state was restored from an older copy: it can never start. To have more workers, submit "
        "the job again."},
    [SAID_WORKER_OPTIONAL] = {"why_worker_optional",
        "Worker {worker} waits for resources that no other job needs ({reason})."},
    [SAID_WORKER_OF_OPTIONAL] = {"why_worker_of_optional",
        "Worker {worker} of component {component} waits for resources that no other job needs "
        "({reason})."},
    [SAID_WORKER_NEEDED] = {"why_worker_needed", "Worker {worker}, which the minimum needs, waits:"},
    [SAID_IMAGE] = {"why_image",
        "Its container image is being fetched on node {node}; its program starts after that."},
    [SAID_IMAGE_SINCE] = {"why_image_since",
        "Its container image is being fetched on node {node} since {time}; its program starts "
        "after that."},
    [SAID_ENDING_AWAY] = {"why_ending_away",
        "Node {node} is not connected: whether it has ended there is not known."},
    [SAID_ENDING] = {"why_ending", "Its processes on node {node} were told to end and have {time} for it."},
    [SAID_ENDING_LATE] = {"why_ending_late",
        "Its processes on node {node} do not answer: they were told to end {time} ago. They are "
        "stopped, or wait in the kernel for a disk, a file system or a device; what they hold is "
        "not free before they have ended. An administrator of the node finds them below its "
        "process acequia-shepherd."},
    [SAID_IS] = {"why_is", "Job {job} is {state}."},
    [SAID_IS_BECAUSE] = {"why_is_because", "Job {job} is {state}: {why}."},
    [SAID_ENDED] = {"why_ended", "Job {job} has ended: {state}."},
    [SAID_ENDED_BECAUSE] = {"why_ended_because", "Job {job} has ended: {state}, {why}."},
};
