// Devices out of reach on version 2, where a small program that the kernel runs decides instead of
// a list of rules. It lives as long as the group it is attached to.
#pragma once
#include <stdbool.h>

#include "launch/launch.h"

bool cgroup_devices_possible(void);  // whether this process may load such programs
int cgroup_devices_deny(const char *folder, const struct launch_device *denied, uint32_t count);
