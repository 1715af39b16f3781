// Jobs in containers, as the agent sees them: a container job is a launch request with the program
// acequia-box and its options before the command. Everything about the image happens in that program,
// as the job's user; here it is only said which folders, devices and libraries belong to the job.
#pragma once
#include "agent/node/node.h"
#include "launch/launch.h"
#include "model/job.h"

struct config_node;

struct container_wish {
    const char *image, *mounts, *workdir;
    const char *volumes;  // mounts as well; without an image the job sees the node as it is, and these
    const char *buckets;  // volumes that acequia-box mounts itself, a line for each: "s3://… rw /path"
    const char *name;     // a container that is kept
    enum job_pull pull;   // when the registry is asked
    bool task;            // the command is work on images
    bool ssh;  // the command inside needs the node's ssh server
};

// Adds acequia-box to `r`, whose environment is complete. Makes the user's folder for images.
int agent_container_apply(const struct request_node *node, struct launch_request *r,
                          const struct container_wish *w, bool login, struct arena *a, struct error *e);
// What an attempt was launched with, for its steps; image NULL: no container.
struct container_wish agent_container_of(const struct launch_request *r);
// At the start: where the program, the driver and the images are, and whether users may have namespaces.
// `images`: folder for users' images, NULL for the usual one; `socket`: the controller's, if it is on this machine.
void agent_container_describe(struct agent_node *a, const struct config_node *c, const char *images,
                              const char *socket);
