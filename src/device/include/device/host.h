// The machine's own telemetry: use of CPUs, load, memory, free disk. The caller keeps the state, from
// which use since the last time is made.
#pragma once
#include <stdint.h>

#include "model/message.h"

struct host_state {
    uint64_t busy, total;  // CPU ticks
};
// Fills cpu_milli, load_milli, memory_used_bytes, and disk_bytes and disk_free_bytes of the file system with `path`;
// what cannot be read stays 0.
void gpu_host_sample(struct host_state *s, const char *path, struct message_telemetry *out);
