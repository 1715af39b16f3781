// Snapshots of the core's state, made beside the controller's loop by a process of their own.
#pragma once
#include <stdbool.h>

struct controller;

int controller_snapshot_start(void *controller);  // hook of the commit pipeline
bool controller_snapshot_tick(struct controller *c);  // looks whether it has ended; true: it is under way
void controller_snapshot_stop(struct controller *c);  // what is under way is given up
void controller_stay_behind(
    void);  // a process beside the controller: leaves it processor and memory, ends with it
