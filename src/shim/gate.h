// The gate every launch passes: lets work run while the job's share and turn allow it, has the GPU
// wait before it otherwise, and charges the GPU time that was really used. One gate per context.
#pragma once
#include <stdbool.h>

#include "cuda_abi.h"

struct gate;

// The gate of the current context; NULL when nothing is limited there.
struct gate *gate_current(void);
void gate_moved(void); // this thread may have another context now
// Before a launch of the work named by `key`; waits only if the program is far ahead of the GPU.
// What it returns goes to gate_after.
unsigned gate_before(struct gate *g, CUstream stream, bool per_thread, uint64_t key);
void gate_after(struct gate *g, CUstream stream, bool per_thread, unsigned mark);

// Around calls that wait for the GPU: what was launched gets its end measured.
struct gate *gate_sync_begin(void);
void gate_sync_end(struct gate *g);

void gate_stream_gone(CUstream stream);
void gate_forget(CUcontext ctx); // before it is destroyed
void gate_after_fork(void);
