// Other processes of this machine.
#pragma once
#include <stdint.h>
#include <sys/types.h>

// When it was started, in the kernel's own count: a process by number and start is one that no other ever was. 0: there
// is none, or it has ended and nobody has asked for its exit status yet.
uint64_t process_start(pid_t pid);
