// What positions of a step's streams mean, without I/O: when tasks wait, when output is dropped, what is sent from a
// position on. Used by shepherd and agent on the mapped page and file of a step, and by the fault simulator on its own.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "launch/relay.h"

struct relay_limits {
    uint64_t budget_bytes, alone_bytes;  // RELAY_BUDGET_BYTES, RELAY_ALONE_BYTES
};
extern const struct relay_limits launch_relay_limits;

// The tasks have to wait: their client has not taken what they have printed.
bool launch_relay_blocks(const struct relay_page *p, const struct relay_limits *l);
// What is printed now is dropped and counted: there is no client, or nobody can wait any more.
bool launch_relay_drops(const struct relay_page *p, const struct relay_limits *l);
// The client has everything before `offset`. True: tasks waited for that. Positions that make no sense are ignored.
bool launch_relay_ack(struct relay_page *p, uint64_t offset, const struct relay_limits *l);

// One that reads the output from a position on, as far as credit goes.
struct relay_reader {
    uint64_t at, credit;
};
struct relay_source {
    ssize_t (*read)(void *ctx, uint64_t at, void *data, size_t size);
    // A piece of output that ends at `end`.
    void (*piece)(void *ctx, const struct relay_record *r, const void *data, uint64_t end);
};
// Hands on whole records before `end`. 1: all of them; 0: credit is used up; negative: there is no record at the
// position.
int launch_relay_read(struct relay_reader *r, uint64_t end, const struct relay_source *s, void *ctx);
