// Reads a job's ledger, the file its processes share for a fraction of a GPU. The only place outside
// the shim that knows its header.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct ledger_use {
    uint64_t used_bytes, peak_bytes, limit_bytes;
    uint64_t gpu_ns, throttled_ns;  // since the ledger was made
    uint64_t refused, launches;
    uint32_t compute_milli, processes;
};

struct ledger_reader;  // holds the memory a reading needs
struct ledger_reader *gpu_ledger_reader_new(void);
struct ledger_reader *gpu_ledger_reader_free(struct ledger_reader *r);  // returns NULL
int gpu_ledger_read(struct ledger_reader *r, const char *path, struct ledger_use *out);
// Whether the ledger read last knows the process: by its pid here, or by its pid in its own pid
// namespace (`inner`, 0: not known) when that is another.
bool gpu_ledger_knows(const struct ledger_reader *r, uint32_t pid, uint32_t inner);
