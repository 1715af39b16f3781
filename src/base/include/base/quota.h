// Project quotas of a file system: limits for a folder with all that is in it (ext4, XFS).
#pragma once
#include <stdbool.h>

// Whether the file system of this descriptor keeps limits of projects, and does not only count. Asks nothing but the
// kernel, and needs no privilege.
bool quota_enforced(int fd);
