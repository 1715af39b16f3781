// Standard streams of a step as they lie in its attempt's folder. The shepherd reads the tasks' output
// from pipes (or a terminal) and appends it to `out.N` as records; it feeds the tasks from `in.N`, which
// the agent appends to. Positions in both files are positions in the streams, so agents, controllers and
// clients come and go and say where to go on. `io.N` holds the positions, mapped by both sides; each
// member is written by one side only. After a change the agent wakes the shepherd (CONTROL_RELAY), the
// shepherd hints at new output.
#pragma once
#include <stdatomic.h>
#include <stdint.h>

enum {
    RELAY_MAGIC = 0x59414c52,       // "RLAY"
    RELAY_MARK = 0xa7,              // in every record: a position that is not the beginning of one is noticed
    RELAY_DATA_MAX = 32 << 10,      // of one record
    RELAY_BUDGET_BYTES = 16 << 20,  // not acknowledged by the client: then the tasks are blocked
    RELAY_ALONE_BYTES = 64 << 20,   // the same while there is no client: then output is dropped and counted
    RELAY_INPUT_BYTES = 1 << 20,    // input that waits for the tasks
};

struct relay_record {
    uint32_t rank;
    uint16_t len;
    uint8_t fd;  // 1: output, 2: error
    uint8_t mark;
};

struct relay_page {
    uint32_t magic, pad;
    // by the shepherd
    _Atomic uint64_t out_len;     // of complete records
    _Atomic uint64_t out_lost;    // bytes of output that were dropped
    _Atomic uint64_t out_bytes;   // bytes of output in those records
    _Atomic uint64_t in_read;     // every task has had the input before this
    _Atomic uint32_t in_closed;   // no task takes input any more
    // by the agent
    _Atomic uint32_t client;      // somebody reads the output, or is expected back
    _Atomic uint64_t out_acked;   // the client has everything before this
    _Atomic uint64_t in_len;
    _Atomic uint64_t in_foreign;  // of that, from others than the step's client: it does not count their bytes
    _Atomic uint32_t in_ended;    // no input follows
    _Atomic uint32_t rows, columns;
};

// The positions of a step, mapped; NULL: there are none (yet). step 0: of the attempt itself.
struct relay_page *launch_relay_map(int spool_fd, uint64_t job, uint32_t attempt, uint32_t step);
struct relay_page *launch_relay_unmap(struct relay_page *page);  // accepts NULL
